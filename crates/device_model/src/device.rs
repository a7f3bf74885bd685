//! Devices, and how they come to their drivers (`drivers/base/core.c`, `dd.c`).

use std::rc::Rc;

use crate::kobject::KobjectId;
use crate::{Action, Model};

/// A device's number; none is used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceId(u32);

/// What a device is, or what a driver serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MatchId {
    /// A device tree's `compatible`.
    Compatible(String),
    /// A name, as platform devices without a device tree have.
    Name(String),
    /// An AMBA peripheral's number; a driver looks at the bits of `mask` alone.
    Amba {
        /// The peripheral ID registers, eight bits of each.
        id: u32,
        /// Bits that count.
        mask: u32,
    },
    /// A PCI function.
    Pci(PciId),
}

/// What a PCI function says of itself; a driver leaves open what it does not ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PciId {
    /// Vendor and device.
    pub device: Option<(u16, u16)>,
    /// Class, subclass and interface.
    pub class: Option<u32>,
    /// Bits of the class that a driver looks at.
    pub class_mask: u32,
}

/// What the model refuses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// A bus, class, driver or device of that name is there.
    #[error("{0} is registered; expected another name")]
    Exists(String),
    /// No such bus.
    #[error("bus {0:?} is not registered; register it first")]
    NoBus(String),
    /// No such class.
    #[error("class {0:?} is not registered; register it first")]
    NoClass(String),
    /// No such device.
    #[error("the device is gone")]
    NoDevice,
    /// A block major that cannot be had.
    #[error("major {found} for {name}: {message}")]
    Major {
        /// The number.
        found: u32,
        /// Whose.
        name: String,
        /// Why not.
        message: String,
    },
}

/// Why a probe did not take a device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProbeError {
    /// Something that it needs is not there yet: it is to be asked again.
    #[error("deferred: {0}")]
    Defer(String),
    /// It will never do.
    #[error("failed: {0}")]
    Failed(String),
}

/// What is left of a probe that sleeps.
pub type Rest = Box<dyn FnOnce(&mut Model)>;

/// A driver's two functions.
pub trait Driver {
    /// Takes a device. Where the probe has to sleep, it returns what comes after:
    /// whoever registered an asynchronous driver goes on meanwhile.
    ///
    /// # Errors
    /// Where it does not take it, for now or for ever.
    fn probe(&self, model: &mut Model, device: DeviceId) -> Result<Option<Rest>, ProbeError>;

    /// Lets the device go.
    fn remove(&self, model: &mut Model, device: DeviceId);
}

/// What a device is added below of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parent {
    /// A device.
    Device(DeviceId),
    /// A folder of `/sys/devices`, such as `platform`.
    Root(&'static str),
    /// `/sys/devices/virtual`, of a class alone.
    Virtual,
}

/// A device as it is added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceDeclaration {
    /// Its name.
    pub name: String,
    /// Below of what.
    pub parent: Parent,
    /// Its bus, if it is on one.
    pub bus: Option<&'static str>,
    /// Its class, if it is of one.
    pub class: Option<&'static str>,
    /// What drivers look at.
    pub ids: Vec<MatchId>,
    /// Major and minor number, and the node's name.
    pub node: Option<(u32, u32, String)>,
    /// `DEVTYPE`.
    pub kind: Option<&'static str>,
    /// What bus, class and type tell user space.
    pub environment: Vec<(String, String)>,
    /// Its files.
    pub attributes: Vec<(String, String)>,
    /// Whether user space is told that it was added; a disk's is told later.
    pub silent: bool,
}

impl DeviceDeclaration {
    /// A device with nothing but its place.
    pub fn new(name: impl Into<String>, parent: Parent) -> DeviceDeclaration {
        DeviceDeclaration {
            name: name.into(),
            parent,
            bus: None,
            class: None,
            ids: Vec::new(),
            node: None,
            kind: None,
            environment: Vec::new(),
            attributes: Vec::new(),
            silent: false,
        }
    }

    fn subsystem(&self) -> &'static str {
        self.bus.or(self.class).unwrap_or("")
    }
}

/// A device that is there.
pub(crate) struct Device {
    declaration: DeviceDeclaration,
    kobject: KobjectId,
    /// Its driver's place on the bus.
    driver: Option<usize>,
    /// The folder between it and its parent, if there is one.
    glue: Option<KobjectId>,
}

impl Model {
    /// Adds a device and looks for its driver (`device_add`).
    ///
    /// # Errors
    /// Where bus, class or parent are not there.
    pub fn add_device(&mut self, declaration: DeviceDeclaration) -> Result<DeviceId, ModelError> {
        let bus = declaration.bus.map(|bus| self.bus_place(bus)).transpose()?;
        let class = declaration.class.map(|name| self.class(name)).transpose()?;
        let (folder, glue) = self.folder_of(&declaration)?;
        if { self.sysfs.get(folder) }.is_some_and(|k| k.children().contains_key(&declaration.name))
        {
            return Err(ModelError::Exists(format!("device {}", declaration.name)));
        }
        let kobject = self.sysfs.add(folder, &declaration.name);
        let id = DeviceId(self.next_device);
        self.next_device += 1;
        for (name, value) in &declaration.attributes {
            self.sysfs.set(kobject, name, value);
        }
        if let Some(class) = class {
            self.sysfs.link(class, &declaration.name, kobject);
            self.sysfs.link(kobject, "subsystem", class);
        }
        if let Some(bus) = bus {
            let of = self.buses[bus].kobject;
            let devices = self.sysfs.add(of, "devices");
            self.sysfs.link(devices, &declaration.name, kobject);
            self.sysfs.link(kobject, "subsystem", of);
            self.buses[bus].devices.push(id);
        }
        let silent = declaration.silent;
        self.devices.insert(
            id,
            Device {
                declaration,
                kobject,
                driver: None,
                glue,
            },
        );
        self.show_uevent(id);
        if !silent {
            self.send_of(id, Action::Add, &[]);
        }
        if let Some(bus) = bus {
            for driver in 0..self.buses[bus].drivers.len() {
                if self.probe_if_served(bus, driver, id) {
                    break;
                }
            }
        }
        Ok(id)
    }

    /// Takes a device away: from its driver first (`device_del`).
    pub fn remove_device(&mut self, id: DeviceId) {
        self.release_driver(id);
        if !self.devices.contains_key(&id) {
            return;
        }
        self.send_of(id, Action::Remove, &[]);
        self.deferred.retain(|deferred| *deferred != id);
        for bus in &mut self.buses {
            bus.devices.retain(|device| *device != id);
        }
        if let Some(device) = self.devices.remove(&id) {
            self.sysfs.remove(device.kobject);
            if let Some(glue) = device.glue {
                self.sysfs.remove_if_empty(glue);
            }
        }
    }

    /// Takes a device from its driver (`device_release_driver`).
    pub fn release_driver(&mut self, id: DeviceId) {
        let Some((device, driver)) = { self.devices.get_mut(&id) }
            .and_then(|device| device.driver.take().map(|driver| (device, driver)))
        else {
            return;
        };
        let (kobject, name) = (device.kobject, device.declaration.name.clone());
        let Some(bus) = device
            .declaration
            .bus
            .and_then(|bus| self.bus_place(bus).ok())
        else {
            return;
        };
        let registered = &self.buses[bus].drivers[driver];
        let (body, of) = (Rc::clone(&registered.body), registered.kobject);
        self.enter(format!(
            "remove {name} from {}",
            registered.declaration.name
        ));
        self.sysfs.unlink(of, &name);
        self.sysfs.unlink(kobject, "driver");
        body.remove(self, id);
        self.show_uevent(id);
        self.send_of(id, Action::Unbind, &[]);
        self.leave();
    }

    /// Gives a device to its bus's drivers again (`/sys/bus/.../bind`).
    pub fn attach(&mut self, id: DeviceId) {
        let bus = { self.devices.get(&id) }
            .filter(|device| device.driver.is_none())
            .and_then(|device| self.bus_place(device.declaration.bus?).ok());
        if let Some(bus) = bus {
            for driver in 0..self.buses[bus].drivers.len() {
                if self.probe_if_served(bus, driver, id) {
                    break;
                }
            }
            self.run_asynchronous();
        }
    }

    /// Goes on with probes that slept while their drivers' registration went on.
    pub fn run_asynchronous(&mut self) {
        for rest in std::mem::take(&mut self.asynchronous) {
            rest(self);
        }
    }

    /// Tells user space of a device that something has happened to it.
    pub fn send_of(&mut self, id: DeviceId, action: Action, first: &[(String, String)]) {
        // A device of neither bus nor class is not told of (`dev_uevent_filter`).
        let told = self.devices.get(&id);
        let Some(device) = told.filter(|device| !device.declaration.subsystem().is_empty()) else {
            return;
        };
        let mut environment = first.to_vec();
        environment.extend(self.environment_of(device));
        let (kobject, subsystem) = (device.kobject, device.declaration.subsystem());
        self.send(action, kobject, subsystem, &environment);
    }

    /// The device's kobject.
    pub fn kobject_of(&self, id: DeviceId) -> Option<KobjectId> {
        self.devices.get(&id).map(|device| device.kobject)
    }

    /// The first device of a bus with this name.
    pub fn find_device(&self, bus: &str, name: &str) -> Option<DeviceId> {
        let bus = self.buses.iter().find(|of| of.kind.name == bus)?;
        { bus.devices.iter() }
            .copied()
            .find(|id| self.devices[id].declaration.name == name)
    }

    /// The device at a path below sysfs' top.
    pub fn device_at(&self, path: &str) -> Option<DeviceId> {
        let kobject = self.sysfs.find(path)?;
        let mut devices = self.devices.iter();
        devices.find_map(|(id, device)| (device.kobject == kobject).then_some(*id))
    }

    /// Devices whose probe was deferred, and that still wait.
    pub fn deferred(&self) -> Vec<&str> {
        { self.deferred.iter() }
            .filter_map(|id| Some(self.devices.get(id)?.declaration.name.as_str()))
            .collect()
    }

    /// Probes all deferred devices again (`driver_deferred_probe_trigger`).
    pub(crate) fn retry_deferred(&mut self) {
        for id in std::mem::take(&mut self.deferred) {
            self.attach(id);
        }
    }

    /// Probes the device if the driver serves it and nobody has it; whether it was
    /// served.
    pub(crate) fn probe_if_served(&mut self, bus: usize, driver: usize, id: DeviceId) -> bool {
        let registered = &self.buses[bus].drivers[driver];
        let Some(device) = self
            .devices
            .get(&id)
            .filter(|device| device.driver.is_none())
        else {
            return false;
        };
        let declared = &registered.declaration;
        if !(self.buses[bus].kind.matches)(&device.declaration.ids, declared) {
            return false;
        }
        let name = device.declaration.name.clone();
        let (body, asynchronous) = (Rc::clone(&registered.body), declared.asynchronous);
        self.enter(format!("match {name} with {}", declared.name));
        self.note(format!("probe {name}"));
        let probed = body.probe(self, id);
        let served = probed.is_ok();
        match probed {
            Ok(None) => self.bound(bus, driver, id),
            Ok(Some(rest)) => {
                let whole: Rest = Box::new(move |model| {
                    rest(model);
                    model.bound(bus, driver, id);
                });
                if asynchronous {
                    self.asynchronous.push(whole);
                } else {
                    whole(self);
                }
            }
            Err(error) => {
                self.note(format!("probe of {name} {error}"));
                if matches!(error, ProbeError::Defer(_)) && !self.deferred.contains(&id) {
                    self.deferred.push(id);
                }
            }
        }
        self.leave();
        served
    }

    /// The driver has the device (`driver_bound`): others may now find what they
    /// waited for.
    fn bound(&mut self, bus: usize, driver: usize, id: DeviceId) {
        let of = self.buses[bus].drivers[driver].kobject;
        let Some(device) = self.devices.get_mut(&id) else {
            return;
        };
        device.driver = Some(driver);
        let (kobject, name) = (device.kobject, device.declaration.name.clone());
        self.sysfs.link(of, &name, kobject);
        self.sysfs.link(kobject, "driver", of);
        self.show_uevent(id);
        self.retry_deferred();
        self.send_of(id, Action::Bind, &[]);
    }

    fn class(&self, name: &str) -> Result<KobjectId, ModelError> {
        let found = self.classes.get(name).copied();
        found.ok_or_else(|| ModelError::NoClass(name.to_owned()))
    }

    /// Where a device's folder goes, and the folder of its class that it shares with
    /// its like if the parent is of no class (`get_device_parent`).
    fn folder_of(
        &mut self,
        declaration: &DeviceDeclaration,
    ) -> Result<(KobjectId, Option<KobjectId>), ModelError> {
        let devices = self.sysfs.root("devices");
        let (above, of_class) = match declaration.parent {
            Parent::Device(id) => {
                let parent = self.devices.get(&id).ok_or(ModelError::NoDevice)?;
                (parent.kobject, parent.declaration.class.is_some())
            }
            Parent::Root("") => (devices, false),
            Parent::Root(name) => (self.sysfs.add(devices, name), false),
            Parent::Virtual => (self.sysfs.add(devices, "virtual"), false),
        };
        match declaration.class {
            Some(class) if !of_class => {
                let glue = self.sysfs.add(above, class);
                Ok((glue, Some(glue)))
            }
            _ => Ok((above, None)),
        }
    }

    /// What user space is told of a device (`dev_uevent`).
    fn environment_of(&self, device: &Device) -> Vec<(String, String)> {
        let declared = &device.declaration;
        let mut told = Vec::new();
        if let Some((major, minor, name)) = &declared.node {
            told.push(("MAJOR".to_owned(), major.to_string()));
            told.push(("MINOR".to_owned(), minor.to_string()));
            told.push(("DEVNAME".to_owned(), name.clone()));
        }
        told.extend(
            declared
                .kind
                .map(|kind| ("DEVTYPE".to_owned(), kind.to_owned())),
        );
        let driver = device.driver.and_then(|driver| {
            let bus = self.bus_place(declared.bus?).ok()?;
            Some(self.buses[bus].drivers[driver].declaration.name)
        });
        told.extend(driver.map(|name| ("DRIVER".to_owned(), name.to_owned())));
        told.extend(declared.environment.iter().cloned());
        told
    }

    /// Shows in the device's `uevent` file what a message would tell now.
    fn show_uevent(&mut self, id: DeviceId) {
        let Some(device) = self.devices.get(&id) else {
            return;
        };
        let told: Vec<String> = { self.environment_of(device).into_iter() }
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        let kobject = device.kobject;
        self.sysfs.set(kobject, "uevent", told.join("\n"));
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::{BusType, DriverDeclaration, Uevent};

    /// Takes a device once another is there.
    struct Needs(&'static str, Cell<u32>);

    impl Driver for Needs {
        fn probe(&self, model: &mut Model, _: DeviceId) -> Result<Option<Rest>, ProbeError> {
            self.1.set(self.1.get() + 1);
            let there = self.0.is_empty() || model.find_device("platform", self.0).is_some();
            match there {
                true => Ok(None),
                false => Err(ProbeError::Defer(format!("{} is not there", self.0))),
            }
        }

        fn remove(&self, _: &mut Model, _: DeviceId) {}
    }

    fn driver(name: &'static str) -> DriverDeclaration {
        DriverDeclaration {
            name,
            bus: "platform",
            ids: Vec::new(),
            asynchronous: false,
        }
    }

    fn device(name: &str) -> DeviceDeclaration {
        DeviceDeclaration {
            bus: Some("platform"),
            ids: vec![MatchId::Name(name.to_owned())],
            ..DeviceDeclaration::new(name, Parent::Root("platform"))
        }
    }

    fn actions(model: &Model) -> Vec<String> {
        { model.uevents().iter() }
            .map(
                |Uevent {
                     action, devpath, ..
                 }| format!("{action}@{devpath}"),
            )
            .collect()
    }

    #[test]
    fn a_deferred_probe_comes_back_when_another_device_is_bound() {
        let mut model = Model::new();
        model.register_bus(BusType::PLATFORM).unwrap();
        let card = Rc::new(Needs("regulator", Cell::new(0)));
        model.register_driver(driver("card"), card.clone()).unwrap();
        model.add_device(device("card")).unwrap();
        assert_eq!(model.deferred(), ["card"]);
        let regulator = Rc::new(Needs("", Cell::new(0)));
        model
            .register_driver(driver("regulator"), regulator)
            .unwrap();
        model.add_device(device("regulator")).unwrap();
        assert_eq!(card.1.get(), 2);
        assert!(model.deferred().is_empty());
        let told = actions(&model);
        let place = |text: &str| told.iter().position(|told| told == text).unwrap();
        let bound = place("bind@/devices/platform/card");
        assert!(bound < place("bind@/devices/platform/regulator"));
    }

    #[test]
    fn a_device_that_goes_is_first_taken_from_its_driver() {
        let mut model = Model::new();
        model.register_bus(BusType::PLATFORM).unwrap();
        model.register_class("leds").unwrap();
        let id = model.add_device(device("host")).unwrap();
        let led = model.add_device(DeviceDeclaration {
            class: Some("leds"),
            ..DeviceDeclaration::new("mmc0::", Parent::Device(id))
        });
        let body = Rc::new(Needs("", Cell::new(0)));
        model.register_driver(driver("host"), body).unwrap();
        let host = model.kobject_of(id).unwrap();
        assert_eq!(model.sysfs().attribute(host, "uevent"), Some("DRIVER=host"));
        let found = model.sysfs().find("/class/leds/mmc0::").unwrap();
        assert_eq!(
            model.sysfs().path(found),
            "/devices/platform/host/leds/mmc0::"
        );
        model.remove_device(led.unwrap());
        assert_eq!(model.sysfs().find("/devices/platform/host/leds"), None);
        model.remove_device(id);
        let told = actions(&model);
        assert_eq!(told[told.len() - 2], "unbind@/devices/platform/host");
        assert_eq!(told[told.len() - 1], "remove@/devices/platform/host");
        assert_eq!(model.sysfs().find("/bus/platform/devices/host"), None);
    }

    #[test]
    fn names_are_given_once_and_buses_come_first() {
        let mut model = Model::new();
        assert!(matches!(
            model.add_device(device("a")),
            Err(ModelError::NoBus(_))
        ));
        model.register_bus(BusType::PLATFORM).unwrap();
        let again = model.register_bus(BusType::PLATFORM);
        assert!(matches!(again, Err(ModelError::Exists(_))));
        model.add_device(device("a")).unwrap();
        assert!(matches!(
            model.add_device(device("a")),
            Err(ModelError::Exists(_))
        ));
    }
}
