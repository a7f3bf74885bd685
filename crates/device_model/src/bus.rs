//! Buses, and how each matches its devices with its drivers (`drivers/base/bus.c`,
//! `platform.c`, `drivers/amba/bus.c`, `drivers/pci/pci-driver.c`,
//! `drivers/mmc/core/bus.c`).

use std::rc::Rc;

use crate::device::{DeviceId, Driver, MatchId, ModelError};
use crate::kobject::KobjectId;
use crate::{Action, Model};

/// A kind of bus.
#[derive(Clone, Copy)]
pub struct BusType {
    /// Its name in `/sys/bus`.
    pub name: &'static str,
    /// Whether a driver serves a device.
    pub matches: fn(device: &[MatchId], driver: &DriverDeclaration) -> bool,
}

impl BusType {
    /// Devices that are simply there: by `compatible`, else by name.
    pub const PLATFORM: BusType = BusType {
        name: "platform",
        matches: |device, driver| {
            let named = |id: &MatchId| matches!(id, MatchId::Name(name) if name == driver.name);
            device.iter().any(|id| driver.ids.contains(id) || named(id))
        },
    };

    /// ARM's peripherals: by the number in their ID registers.
    pub const AMBA: BusType = BusType {
        name: "amba",
        matches: |device, driver| {
            device.iter().any(|of| {
                let MatchId::Amba { id: found, .. } = of else {
                    return false;
                };
                { driver.ids.iter() }.any(|served| match served {
                    MatchId::Amba { id, mask } => found & mask == *id,
                    _ => false,
                })
            })
        },
    };

    /// PCI: by vendor and device, else by class.
    pub const PCI: BusType = BusType {
        name: "pci",
        matches: |device, driver| {
            let pairs = { device.iter() }.flat_map(|of| driver.ids.iter().map(move |id| (of, id)));
            { pairs }.any(|pair| match pair {
                (MatchId::Pci(found), MatchId::Pci(served)) => {
                    let class = found.class.unwrap_or(0) & served.class_mask;
                    (served.device.is_none() || served.device == found.device)
                        && (served.class.is_none() || served.class == Some(class))
                }
                _ => false,
            })
        },
    };

    /// Memory cards: every driver serves every card.
    pub const MMC: BusType = BusType {
        name: "mmc",
        matches: |_, _| true,
    };

    /// Functions of SDIO cards.
    pub const SDIO: BusType = BusType {
        name: "sdio",
        matches: |device, driver| device.iter().any(|id| driver.ids.contains(id)),
    };

    /// Replay protected areas of eMMC: devices without drivers.
    pub const MMC_RPMB: BusType = BusType {
        name: "mmc_rpmb",
        matches: |_, _| false,
    };
}

/// A driver as it is registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverDeclaration {
    /// Its name.
    pub name: &'static str,
    /// Its bus.
    pub bus: &'static str,
    /// What it serves.
    pub ids: Vec<MatchId>,
    /// Whether registering it does not wait for its probes
    /// (`PROBE_PREFER_ASYNCHRONOUS`).
    pub asynchronous: bool,
}

/// A registered driver.
pub(crate) struct Registered {
    pub(crate) declaration: DriverDeclaration,
    pub(crate) kobject: KobjectId,
    pub(crate) body: Rc<dyn Driver>,
}

/// A registered bus.
pub(crate) struct Bus {
    pub(crate) kind: BusType,
    pub(crate) kobject: KobjectId,
    pub(crate) drivers: Vec<Registered>,
    /// In the order in which they were added.
    pub(crate) devices: Vec<DeviceId>,
}

impl Model {
    /// Registers a bus (`bus_register`).
    ///
    /// # Errors
    /// Where there is one of that name.
    pub fn register_bus(&mut self, kind: BusType) -> Result<(), ModelError> {
        if self.buses.iter().any(|bus| bus.kind.name == kind.name) {
            return Err(ModelError::Exists(format!("bus {}", kind.name)));
        }
        let root = self.sysfs.root("bus");
        let kobject = self.sysfs.add(root, kind.name);
        self.send(Action::Add, kobject, "bus", &[]);
        self.sysfs.add(kobject, "devices");
        self.sysfs.add(kobject, "drivers");
        self.buses.push(Bus {
            kind,
            kobject,
            drivers: Vec::new(),
            devices: Vec::new(),
        });
        Ok(())
    }

    /// Registers a class (`class_register`).
    ///
    /// # Errors
    /// Where there is one of that name.
    pub fn register_class(&mut self, name: &'static str) -> Result<(), ModelError> {
        if self.classes.contains_key(name) {
            return Err(ModelError::Exists(format!("class {name}")));
        }
        let root = self.sysfs.root("class");
        let kobject = self.sysfs.add(root, name);
        self.classes.insert(name, kobject);
        self.send(Action::Add, kobject, "class", &[]);
        Ok(())
    }

    /// Registers a driver and probes the devices that it serves
    /// (`driver_register`). User space is told of the driver afterwards.
    ///
    /// # Errors
    /// Where its bus is not there, or has a driver of that name.
    pub fn register_driver(
        &mut self,
        declaration: DriverDeclaration,
        body: Rc<dyn Driver>,
    ) -> Result<(), ModelError> {
        let name = declaration.name;
        let place = self.bus_place(declaration.bus)?;
        let bus = &mut self.buses[place];
        if { bus.drivers.iter() }.any(|driver| driver.declaration.name == name) {
            return Err(ModelError::Exists(format!("driver {name}")));
        }
        let Some(folder) = self.sysfs.find(&format!("/bus/{}/drivers", bus.kind.name)) else {
            return Err(ModelError::NoBus(declaration.bus.to_owned()));
        };
        let kobject = self.sysfs.add(folder, name);
        bus.drivers.push(Registered {
            declaration,
            kobject,
            body,
        });
        let driver = bus.drivers.len() - 1;
        let devices = bus.devices.clone();
        self.enter(format!("driver {name}"));
        for device in devices {
            self.probe_if_served(place, driver, device);
        }
        self.send(Action::Add, kobject, "drivers", &[]);
        self.leave();
        Ok(())
    }

    pub(crate) fn bus_place(&self, name: &str) -> Result<usize, ModelError> {
        let found = self.buses.iter().position(|bus| bus.kind.name == name);
        found.ok_or_else(|| ModelError::NoBus(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::PciId;

    fn driver(name: &'static str, ids: Vec<MatchId>) -> DriverDeclaration {
        DriverDeclaration {
            name,
            bus: "any",
            ids,
            asynchronous: false,
        }
    }

    #[test]
    fn amba_looks_at_the_masked_bits() {
        // PL181 as the Versatile Express has it, and drivers/mmc/host/mmci.c's table.
        let found = [MatchId::Amba {
            id: 0x0004_1181,
            mask: 0xffff_ffff,
        }];
        let id = |id, mask| vec![MatchId::Amba { id, mask }];
        let serves = |ids| (BusType::AMBA.matches)(&found, &driver("mmci-pl18x", ids));
        assert!(serves(id(0x0004_1181, 0x000f_ffff)));
        assert!(!serves(id(0x0004_1180, 0x00ff_ffff)));
    }

    #[test]
    fn pci_matches_a_device_or_a_class() {
        let found = [MatchId::Pci(PciId {
            device: Some((0x1b36, 7)),
            class: Some(0x08_0501),
            class_mask: 0,
        })];
        let class = |class| PciId {
            class: Some(class),
            class_mask: 0xff_ff00,
            ..PciId::default()
        };
        let serves = |id| (BusType::PCI.matches)(&found, &driver("d", vec![MatchId::Pci(id)]));
        assert!(serves(class(0x08_0500)));
        assert!(!serves(class(0x01_0800)));
        let other = PciId {
            device: Some((0x1b36, 8)),
            ..PciId::default()
        };
        assert!(!serves(other));
    }

    #[test]
    fn platform_devices_match_by_compatible_or_by_the_drivers_name() {
        let compatible = MatchId::Compatible("brcm,bcm2711-emmc2".to_owned());
        let named = MatchId::Name("sdhci-iproc".to_owned());
        let served = driver("sdhci-iproc", vec![compatible.clone()]);
        assert!((BusType::PLATFORM.matches)(&[compatible], &served));
        assert!((BusType::PLATFORM.matches)(&[named], &served));
        assert!(!(BusType::PLATFORM.matches)(&[], &served));
    }
}
