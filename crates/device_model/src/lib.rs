//! Linux's device model (`drivers/base`, `lib/kobject.c`, `block/genhd.c`).
//!
//! A [`Model`] holds the tree of kobjects that sysfs shows, buses with their
//! devices and drivers, classes, modules, block majors and disks. Adding a device
//! or a driver matches both sides of its bus, probes, defers what is not ready
//! yet, and tells user space in uevents.
//!
//! There is no clock: whoever runs the model says what time it is
//! ([`Model::set_now`]), and runs work that is due ([`Model::run_work`]).

mod block;
mod bus;
mod device;
mod initcall;
mod kobject;
mod log;
mod uevent;

pub use block::{AddedDisk, BLKDEV_MAJOR_MAX, Disk, HardwareQueue, Partition};
pub use bus::{BusType, DriverDeclaration};
pub use device::{
    DeviceDeclaration, DeviceId, Driver, MatchId, ModelError, Parent, PciId, ProbeError, Rest,
};
pub use initcall::{Call, Initcall, Level};
pub use kobject::{Kobject, KobjectId, Sysfs};
pub use log::LogLine;
pub use uevent::{Action, Uevent};

use std::collections::{BTreeMap, BTreeSet};

use bus::Bus;
use device::Device;

/// Work that waits for its time.
struct DelayedWork {
    at_ns: u64,
    name: String,
    body: Box<dyn FnOnce(&mut Model)>,
}

/// Buses, devices, drivers and all that sysfs shows of them.
pub struct Model {
    sysfs: Sysfs,
    cpus: usize,
    buses: Vec<Bus>,
    classes: BTreeMap<&'static str, KobjectId>,
    devices: BTreeMap<DeviceId, Device>,
    next_device: u32,
    /// Probes that were told to come back, in that order.
    deferred: Vec<DeviceId>,
    majors: BTreeMap<u32, String>,
    disk_sequence: u64,
    uevent_sequence: u64,
    uevents: Vec<Uevent>,
    log: Vec<LogLine>,
    depth: usize,
    now_ns: u64,
    work: Vec<DelayedWork>,
    /// Probes that slept while whoever registered the driver went on.
    asynchronous: Vec<Rest>,
    modules: BTreeSet<String>,
}

impl Default for Model {
    fn default() -> Model {
        Model::new()
    }
}

impl Model {
    /// An empty machine: the folders of sysfs and nothing in them.
    pub fn new() -> Model {
        Model {
            sysfs: Sysfs::new(),
            cpus: 1,
            buses: Vec::new(),
            classes: BTreeMap::new(),
            devices: BTreeMap::new(),
            next_device: 0,
            deferred: Vec::new(),
            majors: BTreeMap::new(),
            disk_sequence: 0,
            uevent_sequence: 0,
            uevents: Vec::new(),
            log: Vec::new(),
            depth: 0,
            now_ns: 0,
            work: Vec::new(),
            asynchronous: Vec::new(),
            modules: BTreeSet::new(),
        }
    }

    /// The tree of kobjects.
    pub fn sysfs(&self) -> &Sysfs {
        &self.sysfs
    }

    /// The tree of kobjects, for whoever has attributes to show in it.
    pub fn sysfs_mut(&mut self) -> &mut Sysfs {
        &mut self.sysfs
    }

    /// Says how many CPUs the machine has, 1 if this is not called.
    pub fn set_cpus(&mut self, cpus: usize) {
        self.cpus = cpus.max(1);
    }

    /// How many CPUs the machine has.
    pub fn cpus(&self) -> usize {
        self.cpus
    }

    /// The top of debugfs, which is mounted in sysfs (`/sys/kernel/debug`).
    pub fn debugfs(&mut self) -> KobjectId {
        let kernel = self.sysfs.root("kernel");
        self.sysfs.add(kernel, "debug")
    }

    /// Tells what time it is: what follows is stamped with it.
    pub fn set_now(&mut self, now_ns: u64) {
        self.now_ns = self.now_ns.max(now_ns);
    }

    /// What the time was last said to be.
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Lets a driver's work pass the time that it takes.
    pub fn spend(&mut self, ns: u64) {
        self.now_ns = self.now_ns.saturating_add(ns);
    }

    /// Queues work (`queue_delayed_work`).
    pub fn queue_work(
        &mut self,
        delay_ns: u64,
        name: impl Into<String>,
        body: impl FnOnce(&mut Model) + 'static,
    ) {
        self.work.push(DelayedWork {
            at_ns: self.now_ns.saturating_add(delay_ns),
            name: name.into(),
            body: Box::new(body),
        });
    }

    /// When the next work is due.
    pub fn next_work_ns(&self) -> Option<u64> {
        self.work.iter().map(|work| work.at_ns).min()
    }

    /// Runs the work that is due now, in the order in which it became due.
    pub fn run_work(&mut self) {
        loop {
            let due = (self.work.iter().enumerate())
                .filter(|(_, work)| work.at_ns <= self.now_ns)
                .min_by_key(|(place, work)| (work.at_ns, *place));
            let Some((place, _)) = due else { return };
            let work = self.work.remove(place);
            self.enter(format!("work {}", work.name));
            (work.body)(self);
            self.leave();
        }
    }

    /// Runs all work, each at its time.
    pub fn run_all_work(&mut self) {
        while let Some(at_ns) = self.next_work_ns() {
            self.set_now(at_ns);
            self.run_work();
        }
    }

    /// A module's kobject, shown and told once its init function has returned
    /// (`do_init_module`).
    pub fn add_module(&mut self, name: &str) {
        if self.modules.insert(name.to_owned()) {
            let root = self.sysfs.root("module");
            let kobject = self.sysfs.add(root, name);
            self.send(Action::Add, kobject, "module", &[]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_runs_when_it_is_due_and_in_order() {
        let mut model = Model::new();
        for (delay_ns, name) in [(20, "b"), (10, "a"), (20, "c")] {
            model.queue_work(delay_ns, name, |_| {});
        }
        model.set_now(9);
        model.run_work();
        assert!(model.log().is_empty());
        model.run_all_work();
        let told: Vec<(u64, &str)> = { model.log().iter() }
            .map(|line| (line.at_ns, line.text.as_str()))
            .collect();
        assert_eq!(told, [(10, "work a"), (20, "work b"), (20, "work c")]);
    }

    #[test]
    fn a_module_is_told_once() {
        let mut model = Model::new();
        model.add_module("mmc_core");
        model.add_module("mmc_core");
        let told: Vec<String> = model.uevents().iter().map(Uevent::to_string).collect();
        let expected = "add@/module/mmc_core ACTION=add DEVPATH=/module/mmc_core \
            SUBSYSTEM=module SEQNUM=1";
        assert_eq!(told, [expected]);
    }
}
