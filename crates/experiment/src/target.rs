//! The real device for whose queue a row's settings can be made.

use blklab_device::{DriveSpec, Interface};
use blklab_elevator::{DriverKind, QueueTraits};
use blklab_sim::Machine;

use crate::error::Error;
use crate::front_end::NamedFrontEnd;
use crate::setting::Setting;

/// A device, or one of a kind, with the kernel's names for its kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The names of the devices in `/sys/block`, such as `sdc`; empty if only their kind is
    /// known.
    pub devices: Vec<String>,
    /// The first device of their kind, such as `sda`.
    pub example: String,
    /// The pattern by which udev matches their kind, such as `sd[a-z]*`.
    pub pattern: String,
    /// The file below a device's folder in sysfs that tells it from others of its kind; empty
    /// if there is none.
    pub identity: String,
    /// Whether the device has rotating media; `None` if not known.
    pub rotational: Option<bool>,
    /// What decides on the scheduler that the kernel chooses by itself.
    pub queue: QueueTraits,
}

/// What the kernel calls the devices of a kind.
#[derive(Clone, Copy)]
struct DeviceKind {
    driver: DriverKind,
    /// The first device.
    first: &'static str,
    /// What every name of the kind begins with.
    stem: &'static str,
    /// See [`Target::pattern`].
    pattern: &'static str,
    /// See [`Target::identity`].
    identity: &'static str,
}

const fn kind(
    driver: DriverKind,
    (first, stem): (&'static str, &'static str),
    pattern: &'static str,
    identity: &'static str,
) -> DeviceKind {
    DeviceKind {
        driver,
        first,
        stem,
        pattern,
        identity,
    }
}

const KINDS: [DeviceKind; 8] = [
    kind(DriverKind::Scsi, ("sda", "sd"), "sd[a-z]*", "device/wwid"),
    kind(
        DriverKind::Nvme,
        ("nvme0n1", "nvme"),
        "nvme[0-9]*n[0-9]*",
        "wwid",
    ),
    kind(
        DriverKind::Mmc,
        ("mmcblk0", "mmcblk"),
        "mmcblk[0-9]*",
        "device/serial",
    ),
    kind(DriverKind::Virtio, ("vda", "vd"), "vd[a-z]*", "serial"),
    kind(DriverKind::Loop, ("loop0", "loop"), "loop[0-9]*", ""),
    kind(DriverKind::Null, ("nullb0", "nullb"), "nullb[0-9]*", ""),
    kind(DriverKind::Nbd, ("nbd0", "nbd"), "nbd[0-9]*", ""),
    kind(DriverKind::Ublk, ("ublkb0", "ublkb"), "ublkb[0-9]*", ""),
];

impl DeviceKind {
    /// Returns the kind of a device by its name in `/sys/block`.
    fn of_name(name: &str) -> Option<DeviceKind> {
        KINDS.into_iter().find(|kind| name.starts_with(kind.stem))
    }

    /// Whether a name that begins as the kind's do goes on as one: with a letter or number.
    fn has_disk(self, name: &str) -> bool {
        let rest = name.strip_prefix(self.stem).unwrap_or_default().bytes();
        let of_letters = self.pattern.contains("[a-z]");
        rest.take(1).any(|byte| match of_letters {
            true => byte.is_ascii_lowercase(),
            false => byte.is_ascii_digit(),
        })
    }

    fn of_driver(driver: DriverKind) -> DeviceKind {
        let found = KINDS.into_iter().find(|kind| kind.driver == driver);
        found.expect("every driver has its devices here")
    }

    fn target(self, devices: Vec<String>) -> Target {
        Target {
            devices,
            example: self.first.to_string(),
            pattern: self.pattern.to_string(),
            identity: self.identity.to_string(),
            rotational: None,
            queue: QueueTraits {
                driver: self.driver,
                ..QueueTraits::default()
            },
        }
    }
}

impl Target {
    /// Returns the kind of device that a setting's model belongs to, on its machine.
    ///
    /// # Errors
    /// If there is no such model or machine.
    pub fn of_model(setting: &Setting) -> Result<Target, Error> {
        let (drive, _) = setting.simulated_drive().map_err(Error::Mistake)?;
        let (machine, _) = Machine::load(&setting.machine).map_err(Error::Mistake)?;
        let (kind, queues) = match &setting.front_end {
            Some(text) => behind(&NamedFrontEnd::parse(text)?, text, machine.cpus()),
            None => attached(&drive, machine.cpus()),
        };
        let identity = drive.identity();
        let mut target = kind.target(Vec::new());
        target.rotational = Some(identity.rotational);
        target.queue.has_one_queue = queues == 1;
        target.queue.is_host_managed = identity.zones.is_some();
        Ok(target)
    }

    /// Returns a device of this machine.
    pub(crate) fn of_device(name: &str) -> Target {
        let devices = vec![name.to_string()];
        match DeviceKind::of_name(name) {
            Some(kind) => kind.target(devices),
            None => Target {
                devices,
                example: name.to_string(),
                pattern: name.to_string(),
                identity: String::new(),
                rotational: None,
                queue: QueueTraits::default(),
            },
        }
    }

    /// Names the devices that a job's files are on, if all files are disks of this kind or
    /// their partitions.
    pub fn name_devices(&mut self, files: &[String]) {
        let driver = self.queue.driver;
        let kind = DeviceKind::of_driver(driver);
        let disks = files.iter().map(|file| {
            let disk = whole_disk(file.strip_prefix("/dev/")?, driver)?;
            disk.starts_with(kind.stem).then(|| disk.to_string())
        });
        let disks: Option<Vec<String>> = disks.collect();
        self.devices = disks.unwrap_or_default();
        self.devices.sort();
        self.devices.dedup();
    }
}

/// Returns the first of a job's files that is a disk of another kind than the setting's model is,
/// such as `/dev/sdb` where an NVMe drive is simulated.
///
/// # Errors
/// If there is no such model or machine.
pub fn disk_of_another_kind(setting: &Setting, files: &[String]) -> Result<Option<String>, Error> {
    let target = Target::of_model(setting)?;
    let is_foreign = |file: &&String| {
        let name = file.strip_prefix("/dev/").unwrap_or_default();
        let kind = DeviceKind::of_name(name).filter(|kind| kind.has_disk(name));
        kind.is_some_and(|kind| kind.driver != target.queue.driver)
    };
    Ok(files.iter().find(is_foreign).cloned())
}

/// Returns the kind of a drive on its own controller and its number of hardware queues, of
/// which there are no more than CPUs.
fn attached(drive: &DriveSpec, cpus: u32) -> (DeviceKind, u32) {
    let driver = match drive.interface {
        Interface::Nvme => DriverKind::Nvme,
        Interface::Ahci => DriverKind::Scsi,
        Interface::Mmc => DriverKind::Mmc,
        Interface::Loop => DriverKind::Loop,
        Interface::Null => DriverKind::Null,
    };
    let queues = u32::from(drive.identity().max_queues);
    (DeviceKind::of_driver(driver), queues.min(cpus))
}

/// Returns the same of a disk behind a front end.
fn behind(front_end: &NamedFrontEnd, text: &str, cpus: u32) -> (DeviceKind, u32) {
    let device = front_end.device();
    let name = device.file_name().and_then(|name| name.to_str());
    let kind = name.and_then(DeviceKind::of_name);
    let kind = kind.expect("every front end's disk has a kind");
    // The kernel's own front ends, of which there are no models, have one queue.
    let queues = front_end.simulated(text).map(|front_end| {
        let queues = front_end.kind.queues(front_end.queues, cpus as usize);
        u32::try_from(queues).unwrap_or(u32::MAX)
    });
    (kind, queues.unwrap_or(1))
}

/// Returns the name of the disk that a device in `/dev` is, or is a partition of; `None` for
/// what only the machine itself can tell, such as a link.
fn whole_disk(name: &str, driver: DriverKind) -> Option<&str> {
    let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if !is_plain {
        return None;
    }
    let without_number = name.trim_end_matches(|c: char| c.is_ascii_digit());
    match driver {
        DriverKind::Scsi | DriverKind::Virtio => Some(without_number),
        // These end with a number, and have a p before that of a partition.
        _ => match without_number.strip_suffix('p') {
            Some(disk) if disk.ends_with(|c: char| c.is_ascii_digit()) => Some(disk),
            _ => Some(name),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(drive: &str, machine: &str, front_end: Option<&str>) -> Target {
        let setting = Setting {
            drive: drive.to_string(),
            machine: machine.to_string(),
            front_end: front_end.map(str::to_string),
            ..Setting::default()
        };
        Target::of_model(&setting).expect("shipped")
    }

    #[test]
    fn devices_are_matched_with_their_kind() {
        let pattern = |name| Target::of_device(name).pattern;
        assert_eq!(pattern("sdc"), "sd[a-z]*");
        assert_eq!(pattern("nvme1n1"), "nvme[0-9]*n[0-9]*");
        assert_eq!(pattern("mmcblk1"), "mmcblk[0-9]*");
        assert_eq!(pattern("vdb"), "vd[a-z]*");
        assert_eq!(pattern("dm-0"), "dm-0");
        let disk = of("hdd-7200", "i7-3770k", None);
        assert_eq!(
            (disk.example.as_str(), disk.rotational),
            ("sda", Some(true))
        );
        assert!(disk.queue.has_one_queue);
    }

    #[test]
    fn a_machine_has_no_more_queues_than_cpus() {
        assert!(!of("enterprise-tlc", "i7-3770k", None).queue.has_one_queue);
        let folder = tempfile::tempdir().expect("a folder");
        let one_cpu = folder.path().join("one-cpu.toml");
        let (_, text) = Machine::load("vm-2cpu").expect("shipped");
        let text = text.replace("count = 2", "count = 1");
        std::fs::write(&one_cpu, text).expect("written");
        let one_cpu = one_cpu.to_str().expect("a plain name");
        assert!(of("enterprise-tlc", one_cpu, None).queue.has_one_queue);
    }

    #[test]
    fn a_front_end_has_the_names_and_queues_of_its_own_driver() {
        let nbd = of("enterprise-tlc", "i7-3770k", Some("nbd"));
        assert_eq!(
            (nbd.example.as_str(), nbd.queue.has_one_queue),
            ("nbd0", true)
        );
        let several = of("enterprise-tlc", "i7-3770k", Some("vhost-user:2"));
        assert_eq!(
            (several.example.as_str(), several.queue.has_one_queue),
            ("vda", false)
        );
    }

    #[test]
    fn a_disk_of_another_kind_than_the_model_is_noticed() {
        let found = |drive: &str, files: &[&str]| {
            let setting = Setting {
                drive: drive.to_string(),
                machine: "i7-3770k".to_string(),
                ..Setting::default()
            };
            let files: Vec<String> = files.iter().map(ToString::to_string).collect();
            disk_of_another_kind(&setting, &files).expect("shipped")
        };
        let disk = |name: &str| Some(name.to_string());
        assert_eq!(found("nvme", &["data", "/dev/sdb"]), disk("/dev/sdb"));
        assert_eq!(found("mx100-256", &["/dev/nvme1n1"]), disk("/dev/nvme1n1"));
        assert_eq!(
            found("hdd-7200", &["/dev/mmcblk0p1"]),
            disk("/dev/mmcblk0p1")
        );
        assert_eq!(found("nvme", &["/dev/nvme0n1", "/dev/x", "/dev/ssd"]), None);
        assert_eq!(
            found("nvme", &["/dev/sd", "/dev/sd-card", "sdb", "/dev/loop-a"]),
            None
        );
    }

    #[test]
    fn a_job_s_own_disks_are_named_if_they_are_of_the_model_s_kind() {
        let named = |drive, files: &[&str]| {
            let mut target = of(drive, "i7-3770k", None);
            let files: Vec<String> = files.iter().map(ToString::to_string).collect();
            target.name_devices(&files);
            target.devices
        };
        assert_eq!(
            named("hdd-7200", &["/dev/sdd", "/dev/sdc1"]),
            ["sdc", "sdd"]
        );
        assert_eq!(named("enterprise-tlc", &["/dev/nvme1n1p2"]), ["nvme1n1"]);
        assert_eq!(named("enterprise-tlc", &["/dev/nvme1n1"]), ["nvme1n1"]);
        let none: [&str; 0] = [];
        assert_eq!(named("enterprise-tlc", &["/dev/sda"]), none);
        assert_eq!(named("hdd-7200", &["/dev/sda", "data"]), none);
        assert_eq!(named("hdd-7200", &["/dev/disk/by-id/ata-1"]), none);
    }
}
