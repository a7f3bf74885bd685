//! Cards and hosts in the device model (`drivers/mmc/core/bus.c`, `host.c`,
//! `block.c`'s probe, and the host drivers' probes).

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use blklab_device_model::{
    Action, AddedDisk, BusType, DeviceDeclaration, DeviceId, Disk, Driver, DriverDeclaration,
    HardwareQueue, MatchId, Model, ModelError, Parent, Partition, ProbeError, Rest,
};

use crate::block::{Area, MAJOR, MINORS, Outcome, QUEUE_DEPTH, Queue, QueueLimits};
use crate::core::Core;
use crate::host::Host;

/// The first major that is given to a driver of characters that asks for any
/// (`CHRDEV_MAJOR_DYN_END` and on down).
const FIRST_FREE_CHAR_MAJOR: u32 = 254;

/// Makes what drives a controller.
pub type MakeHost = Rc<dyn Fn() -> Box<dyn Host>>;

/// A controller as a board has it: made anew whenever a driver takes it.
#[derive(Clone)]
pub struct Wiring {
    /// What the driver makes of it.
    pub host: MakeHost,
    /// What lies on its card.
    pub partitions: Vec<Partition>,
}

/// A host in the device model (`struct mmc_host`).
pub struct HostDevice {
    core: RefCell<Core>,
    partitions: Vec<Partition>,
    /// Its device in the class `mmc_host`.
    device: Cell<Option<DeviceId>>,
    led: Cell<Option<DeviceId>>,
    wakeup: Cell<Option<DeviceId>>,
    card: Cell<Option<DeviceId>>,
    disks: RefCell<Vec<NumberedDisk>>,
    queues: RefCell<Vec<Queue>>,
    /// RPMB's character device, and its number among those of all hosts (`mmc_rpmb_ida`).
    rpmb: Cell<Option<(u32, DeviceId)>>,
    /// How requests ended that were under way when their disk went.
    last_outcomes: RefCell<Vec<(u32, Outcome)>>,
}

/// A disk, and its number among those of all hosts (`mmc_blk_ida`), of which its minors come.
struct NumberedDisk {
    number: u32,
    added: AddedDisk,
}

impl HostDevice {
    /// The core.
    pub fn core(&self) -> &RefCell<Core> {
        &self.core
    }

    /// The queues of its card's areas, the user area first.
    pub fn queues(&self) -> &RefCell<Vec<Queue>> {
        &self.queues
    }

    /// How requests ended that were under way when their disk went, since the last call: tags and
    /// outcomes.
    pub fn take_last_outcomes(&self) -> Vec<(u32, Outcome)> {
        self.last_outcomes.take()
    }

    fn name(&self) -> String {
        format!("mmc{}", self.core.borrow().index())
    }

    fn card_name(&self) -> Option<String> {
        let core = self.core.borrow();
        core.card().map(|card| core.card_name(card))
    }

    /// Shows in debugfs how host and card are now.
    fn show_debug_files(&self, model: &mut Model) {
        let files = self.core.borrow_mut().debug_files();
        self.spend(model);
        self.hide_debug_files(model);
        let top = model.debugfs();
        let folder = model.sysfs_mut().add(top, &self.name());
        model.sysfs_mut().set_all(folder, &files);
    }

    fn hide_debug_files(&self, model: &mut Model) {
        let path = format!("/kernel/debug/{}", self.name());
        if let Some(shown) = model.sysfs().find(&path) {
            model.sysfs_mut().remove(shown);
        }
    }

    /// What the core's work took passes for all.
    fn spend(&self, model: &mut Model) {
        model.spend(self.core.borrow_mut().take_elapsed_ns());
    }

    /// Looks for a card and adds it (`mmc_rescan`, `mmc_add_card`).
    fn rescan(&self, model: &mut Model) {
        let found = self.core.borrow_mut().rescan();
        self.spend(model);
        let (true, Some(name), Some(host)) = (found, self.card_name(), self.device.get()) else {
            return;
        };
        let mut core = self.core.borrow_mut();
        core.add_card();
        let Some(card) = core.card() else { return };
        let speed = core.ios().timing.praise();
        model.note(format!(
            "mmc{}: new {speed}{} at address {:04x}",
            core.index(),
            card.description(),
            card.rca
        ));
        let mut attributes = card.attributes();
        attributes.push(("removable".to_owned(), core.removable().to_owned()));
        let declaration = DeviceDeclaration {
            bus: Some(BusType::MMC.name),
            environment: card.environment(),
            attributes,
            ..DeviceDeclaration::new(name, Parent::Device(host))
        };
        drop(core);
        match model.add_device(declaration) {
            Ok(device) => self.card.set(Some(device)),
            Err(error) => model.note(error.to_string()),
        }
    }

    /// The card goes, and its disks with it (`mmc_stop_host`).
    fn remove_card(&self, model: &mut Model) {
        self.core.borrow_mut().begin_remove();
        if let Some(device) = self.card.take() {
            model.remove_device(device);
        }
        let removed = self.core.borrow_mut().forget_card();
        if let Some(card) = removed {
            model.note(format!("{}: card {:04x} removed", self.name(), card.rca));
        }
        self.core.borrow_mut().stop();
        self.spend(model);
    }

    /// Removes what belongs to the host itself.
    fn remove_devices(&self, model: &mut Model) {
        if let Some(id) = self.device.take() {
            model.remove_device(id);
        }
        if let Some(led) = self.led.take() {
            model.send_of(led, Action::Change, &trigger("none"));
            model.remove_device(led);
        }
        if let Some(wakeup) = self.wakeup.take() {
            model.remove_device(wakeup);
        }
    }

    /// Adds the disks of the card's areas, all of them or none (`mmc_blk_probe`).
    fn add_disks(
        &self,
        model: &mut Model,
        card: DeviceId,
        hosts: &Hosts,
    ) -> Result<(), ProbeError> {
        let added = self.add_areas(model, card, hosts);
        if added.is_err() {
            self.remove_disks(model);
        }
        added
    }

    fn add_areas(
        &self,
        model: &mut Model,
        card: DeviceId,
        hosts: &Hosts,
    ) -> Result<(), ProbeError> {
        let failed = |error: ModelError| ProbeError::Failed(error.to_string());
        let mut core = self.core.borrow_mut();
        let index = core.index();
        let areas = core.card().map(|card| Area::all(card, core.host().spec()));
        let areas = areas.unwrap_or_default();
        let Some(limits) = QueueLimits::of(&mut core) else {
            return Err(ProbeError::Failed("the card is gone".to_owned()));
        };
        let boot_protect = core.card().and_then(|card| card.ext_csd.boot_protect);
        let mut main = None;
        for area in areas {
            let name = format!("mmcblk{index}{}", area.suffix);
            if area.is_rpmb {
                let number = hosts.first_free_rpmb();
                let declaration = DeviceDeclaration {
                    bus: Some(BusType::MMC_RPMB.name),
                    node: Some((hosts.rpmb_major.get(), number, name.clone())),
                    ..DeviceDeclaration::new(name, Parent::Device(card))
                };
                let device = model.add_device(declaration).map_err(failed)?;
                self.rpmb.set(Some((number, device)));
                continue;
            }
            let Some(queue) = Queue::new(&core, area) else {
                return Err(ProbeError::Failed("the card reads no blocks".to_owned()));
            };
            let is_main = area.suffix.is_empty();
            let of_blocks = limits.queue(area.sectors, model.cpus());
            let number = hosts.first_free_disk();
            let disk = Disk {
                name,
                major: MAJOR,
                first_minor: number * MINORS,
                minors: MINORS,
                size_sectors: area.sectors,
                read_only: queue.is_read_only() || !is_main,
                is_scanned: is_main,
                partitions: match is_main {
                    true => self.partitions.clone(),
                    false => Vec::new(),
                },
                attributes: disk_attributes(
                    &limits.attributes(&of_blocks),
                    boot_protect.filter(|_| !is_main),
                    !is_main,
                ),
                hardware_queues: vec![HardwareQueue {
                    cpus: (0..model.cpus()).collect(),
                    tags: QUEUE_DEPTH,
                }],
                // Cards are waited for in `queue_rq` (`BLK_MQ_F_BLOCKING`).
                debug: of_blocks.debug_files(true),
            };
            let parent = Parent::Device(main.unwrap_or(card));
            let added = model.add_disk(parent, &disk).map_err(failed)?;
            main.get_or_insert(added.device);
            self.disks.borrow_mut().push(NumberedDisk { number, added });
            self.queues.borrow_mut().push(queue);
        }
        Ok(())
    }

    /// Whether this is its card, or it has none any more but still disks.
    fn disks_are_of(&self, card: DeviceId) -> bool {
        let of_gone = self.card.get().is_none() && !self.disks.borrow().is_empty();
        self.card.get() == Some(card) || of_gone
    }

    /// Areas lie below the user area's disk and go before it; that one goes with its own
    /// area in use (`mmc_blk_remove`).
    fn remove_disks(&self, model: &mut Model) {
        if let Some((_, rpmb)) = self.rpmb.take() {
            model.remove_device(rpmb);
        }
        for mut queue in self.queues.take() {
            // What was under way ends before its queue goes (`mmc_cleanup_queue`).
            queue.complete_work(&mut self.core.borrow_mut());
            self.last_outcomes
                .borrow_mut()
                .extend(queue.take_outcomes());
        }
        let disks = self.disks.take();
        let Some((main, areas)) = disks.split_first() else {
            return;
        };
        for disk in areas.iter().rev() {
            model.remove_disk(&disk.added);
        }
        // A card that is gone takes no switch, and needs none.
        let _ = self.core.borrow_mut().switch_partition(0);
        model.remove_disk(&main.added);
    }
}

/// Files of a disk; only a boot area that can be protected has the one of that
/// (`mmc_disk_attrs_is_visible`).
fn disk_attributes(
    queue: &[(String, String)],
    boot_protect: Option<u8>,
    force_read_only: bool,
) -> Vec<(String, String)> {
    let read_only = u8::from(force_read_only).to_string();
    let mut attributes = vec![("force_ro".to_owned(), read_only)];
    // Protected for ever, until power goes, or not (`EXT_CSD_BOOT_WP_B_`).
    let lock = boot_protect.map(|protect| match (protect & 4 != 0, protect & 1 != 0) {
        (true, _) => "2",
        (_, true) => "1",
        _ => "0",
    });
    let named = |value: &str| ("ro_lock_until_next_power_on".to_owned(), value.to_owned());
    attributes.extend(lock.map(named));
    let queue = queue.iter();
    attributes.extend(queue.map(|(name, value)| (format!("queue/{name}"), value.clone())));
    attributes
}

/// All hosts, and how boards wire their controllers.
#[derive(Default)]
pub struct Hosts {
    /// The major of RPMB's character devices.
    rpmb_major: Cell<u32>,
    wirings: RefCell<BTreeMap<String, Wiring>>,
    devices: RefCell<BTreeMap<DeviceId, Rc<HostDevice>>>,
}

impl Hosts {
    /// No hosts.
    pub fn new() -> Rc<Hosts> {
        let hosts = Hosts::default();
        hosts.set_rpmb_major(FIRST_FREE_CHAR_MAJOR);
        Rc::new(hosts)
    }

    /// Which major the block driver was given for RPMB: the next one down that no other
    /// driver of characters has (`alloc_chrdev_region`).
    pub fn set_rpmb_major(&self, major: u32) {
        self.rpmb_major.set(major);
    }

    /// Says what lies behind the device of this name.
    pub fn wire(&self, device: &str, wiring: Wiring) {
        self.wirings.borrow_mut().insert(device.to_owned(), wiring);
    }

    /// The host with this number.
    pub fn get(&self, index: u32) -> Option<Rc<HostDevice>> {
        let devices = self.devices.borrow();
        { devices.values() }
            .find(|host| host.core.borrow().index() == index)
            .cloned()
    }

    /// Shows in debugfs how all hosts and their cards are now. Cards are asked for their
    /// status, as when somebody reads the files.
    pub fn show_debug_files(&self, model: &mut Model) {
        let devices: Vec<Rc<HostDevice>> = self.devices.borrow().values().cloned().collect();
        for host in devices {
            host.show_debug_files(model);
        }
    }

    fn first_free_index(&self) -> u32 {
        let devices = self.devices.borrow();
        let taken = |index: &u32| { devices.values() }.any(|h| h.core.borrow().index() == *index);
        (0..).find(|index| !taken(index)).unwrap_or(0)
    }

    /// The lowest number that no disk of any host has.
    fn first_free_disk(&self) -> u32 {
        let devices = self.devices.borrow();
        let of_host = |host: &Rc<HostDevice>, number| {
            let disks = host.disks.borrow();
            disks.iter().any(|disk| disk.number == number)
        };
        let taken = |number: &u32| devices.values().any(|host| of_host(host, *number));
        (0..).find(|number| !taken(number)).unwrap_or(0)
    }

    /// The lowest number that no host's RPMB has.
    fn first_free_rpmb(&self) -> u32 {
        let devices = self.devices.borrow();
        let rpmbs = || devices.values().filter_map(|host| host.rpmb.get());
        let taken = |number: &u32| rpmbs().any(|(taken, _)| taken == *number);
        (0..).find(|number| !taken(number)).unwrap_or(0)
    }

    fn of_card(&self, name: &str) -> Option<Rc<HostDevice>> {
        let devices = self.devices.borrow();
        { devices.values() }
            .find(|host| host.card_name().as_deref() == Some(name))
            .cloned()
    }

    /// Starts the core: its buses and its class (`mmc_init`).
    ///
    /// # Errors
    /// Where they are there already.
    pub fn init_core(model: &mut Model) -> Result<(), ModelError> {
        model.register_bus(BusType::MMC)?;
        model.register_class("mmc_host")?;
        model.register_bus(BusType::SDIO)
    }

    /// Starts the block driver (`mmc_blk_init`).
    ///
    /// # Errors
    /// Where its major is taken, or the core was not started.
    pub fn init_block(self: &Rc<Hosts>, model: &mut Model) -> Result<(), ModelError> {
        model.register_bus(BusType::MMC_RPMB)?;
        model.register_blkdev(MAJOR, "mmc")?;
        let declaration = DriverDeclaration {
            name: "mmcblk",
            bus: BusType::MMC.name,
            ids: Vec::new(),
            asynchronous: false,
        };
        model.register_driver(declaration, Rc::new(BlockDriver(Rc::clone(self))))
    }

    /// Registers a host driver.
    ///
    /// # Errors
    /// Where its bus is not there.
    pub fn init_host(
        self: &Rc<Hosts>,
        model: &mut Model,
        kind: HostDriverKind,
    ) -> Result<(), ModelError> {
        let body = HostDriver {
            hosts: Rc::clone(self),
            kind: kind.clone(),
        };
        model.register_driver(kind.declaration, Rc::new(body))
    }
}

/// The driver `mmcblk`.
struct BlockDriver(Rc<Hosts>);

impl Driver for BlockDriver {
    fn probe(&self, model: &mut Model, device: DeviceId) -> Result<Option<Rest>, ProbeError> {
        let name = model
            .kobject_of(device)
            .map(|id| model.sysfs().name(id).to_owned());
        let host = name.and_then(|name| self.0.of_card(&name));
        let Some(host) = host else {
            return Err(ProbeError::Failed("the card is gone".to_owned()));
        };
        host.card.set(Some(device));
        host.add_disks(model, device, &self.0)?;
        Ok(None)
    }

    fn remove(&self, model: &mut Model, device: DeviceId) {
        let devices: Vec<Rc<HostDevice>> = self.0.devices.borrow().values().cloned().collect();
        let host = devices.iter().find(|host| host.disks_are_of(device));
        if let Some(host) = host {
            host.remove_disks(model);
        }
    }
}

/// What host drivers differ in.
#[derive(Clone, Debug)]
pub struct HostDriverKind {
    /// Name, bus and what it serves.
    pub declaration: DriverDeclaration,
    /// Whether the controller drives a light.
    pub has_led: bool,
    /// The number of the wakeup source that the device is given, if it is one.
    pub wakeup: Option<u32>,
}

impl HostDriverKind {
    /// SDHCI behind PCI (`sdhci-pci`).
    pub fn sdhci_pci(wakeup: Option<u32>) -> HostDriverKind {
        let class = blklab_device_model::PciId {
            device: None,
            class: Some(0x08_0500),
            class_mask: 0xff_ff00,
        };
        HostDriverKind {
            declaration: DriverDeclaration {
                name: "sdhci-pci",
                bus: BusType::PCI.name,
                ids: vec![MatchId::Pci(class)],
                asynchronous: true,
            },
            has_led: true,
            wakeup,
        }
    }

    /// Arm's PL180 and PL181 (`mmci-pl18x`).
    pub fn mmci() -> HostDriverKind {
        let served = [(0x0004_1180, 0xff0f_ffff), (0x0004_1181, 0x000f_ffff)];
        HostDriverKind {
            declaration: DriverDeclaration {
                name: "mmci-pl18x",
                bus: BusType::AMBA.name,
                ids: served.map(|(id, mask)| MatchId::Amba { id, mask }).to_vec(),
                asynchronous: true,
            },
            has_led: false,
            wakeup: None,
        }
    }

    /// SDHCI in Broadcom's chips (`sdhci-iproc`), the Raspberry Pi 4's among them.
    pub fn sdhci_iproc() -> HostDriverKind {
        let served = [
            "brcm,bcm2711-emmc2",
            "brcm,bcm2835-sdhci",
            "brcm,sdhci-iproc",
        ];
        HostDriverKind {
            declaration: DriverDeclaration {
                name: "sdhci-iproc",
                bus: BusType::PLATFORM.name,
                ids: { served.iter() }
                    .map(|id| MatchId::Compatible((*id).to_owned()))
                    .collect(),
                asynchronous: true,
            },
            has_led: true,
            wakeup: None,
        }
    }
}

/// A host driver.
struct HostDriver {
    hosts: Rc<Hosts>,
    kind: HostDriverKind,
}

impl HostDriver {
    fn add(&self, model: &mut Model, device: DeviceId) -> Result<Rc<HostDevice>, ModelError> {
        let name = model
            .kobject_of(device)
            .map(|id| model.sysfs().name(id).to_owned());
        let name = name.ok_or(ModelError::NoDevice)?;
        let wiring = self.hosts.wirings.borrow().get(&name).cloned();
        let wiring = wiring.ok_or(ModelError::NoDevice)?;
        let index = self.hosts.first_free_index();
        let host = Rc::new(HostDevice {
            core: RefCell::new(Core::new((wiring.host)(), index)),
            partitions: wiring.partitions,
            device: Cell::new(None),
            led: Cell::new(None),
            wakeup: Cell::new(None),
            card: Cell::new(None),
            disks: RefCell::default(),
            queues: RefCell::default(),
            rpmb: Cell::new(None),
            last_outcomes: RefCell::default(),
        });
        let added = self.add_devices(model, device, &host);
        if added.is_err() {
            host.remove_devices(model);
        }
        added.map(|()| host)
    }

    /// Adds what belongs to a host, in the order in which Linux does.
    fn add_devices(
        &self,
        model: &mut Model,
        controller: DeviceId,
        host: &HostDevice,
    ) -> Result<(), ModelError> {
        if let Some(number) = self.kind.wakeup {
            host.wakeup.set(Some(model.add_device(DeviceDeclaration {
                class: Some("wakeup"),
                ..DeviceDeclaration::new(format!("wakeup{number}"), Parent::Virtual)
            })?));
        }
        if self.kind.has_led {
            let name = format!("{}::", host.name());
            host.led.set(Some(model.add_device(DeviceDeclaration {
                class: Some("leds"),
                ..DeviceDeclaration::new(name, Parent::Device(controller))
            })?));
        }
        host.core.borrow_mut().watch();
        host.device.set(Some(model.add_device(DeviceDeclaration {
            class: Some("mmc_host"),
            ..DeviceDeclaration::new(host.name(), Parent::Device(controller))
        })?));
        Ok(())
    }
}

fn trigger(name: &str) -> [(String, String); 1] {
    [("TRIGGER".to_owned(), name.to_owned())]
}

impl Driver for HostDriver {
    /// The host is added; its light gets a trigger, for which the probe waits, and
    /// then a card is looked for (`mmc_add_host`).
    fn probe(&self, model: &mut Model, device: DeviceId) -> Result<Option<Rest>, ProbeError> {
        let host = self.add(model, device);
        let host = host.map_err(|error| ProbeError::Failed(error.to_string()))?;
        self.hosts
            .devices
            .borrow_mut()
            .insert(device, Rc::clone(&host));
        let rest: Rest = Box::new(move |model| {
            if let Some(led) = host.led.get() {
                model.send_of(led, Action::Change, &trigger(&host.name()));
            }
            let name = format!("mmc_rescan {}", host.name());
            model.queue_work(0, name, move |model| host.rescan(model));
        });
        Ok(Some(rest))
    }

    fn remove(&self, model: &mut Model, device: DeviceId) {
        // The card's driver has to find its host while the card goes.
        let Some(host) = self.hosts.devices.borrow().get(&device).cloned() else {
            return;
        };
        host.remove_card(model);
        host.hide_debug_files(model);
        self.hosts.devices.borrow_mut().remove(&device);
        host.remove_devices(model);
    }
}
