//! Block devices in the model: majors, disks, partitions (`block/genhd.c`,
//! `block/partitions/core.c`).

use std::fmt;

use crate::device::{DeviceDeclaration, DeviceId, ModelError, Parent};
use crate::kobject::KobjectId;
use crate::{Action, Model};

/// Majors end below this one.
pub const BLKDEV_MAJOR_MAX: u32 = 512;

/// Majors that are given to those who ask for any: from the last one down
/// (`CHRDEV_MAJOR_DYN_END` to 254 of `Documentation/admin-guide/devices.txt`).
const ANY_MAJORS: std::ops::RangeInclusive<u32> = 234..=254;

/// Minors that disks have beyond their own (`DISK_MAX_PARTS`).
const MAX_PARTITIONS: u32 = 256;

/// Folders that every disk has, whatever is in them.
const DISK_FOLDERS: [&str; 7] = [
    "holders",
    "integrity",
    "mq",
    "power",
    "queue",
    "slaves",
    "trace",
];

/// A partition of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Its number, from 1.
    pub number: u32,
    /// Its first sector.
    pub start: u64,
    /// Its size in sectors.
    pub size_sectors: u64,
}

/// A hardware queue of a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HardwareQueue {
    /// The CPUs that submit to it.
    pub cpus: Vec<usize>,
    /// Its tags.
    pub tags: u32,
}

/// A disk as a driver adds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    /// Its name.
    pub name: String,
    /// Its driver's major.
    pub major: u32,
    /// Its first minor.
    pub first_minor: u32,
    /// Minors of its own.
    pub minors: u32,
    /// Its size in sectors.
    pub size_sectors: u64,
    /// Whether nothing can be written to it.
    pub read_only: bool,
    /// Whether partitions are looked for (`GENHD_FL_NO_PART`).
    pub is_scanned: bool,
    /// What lies on it.
    pub partitions: Vec<Partition>,
    /// Files of the driver and the queue, such as `queue/rotational`.
    pub attributes: Vec<(String, String)>,
    /// Its hardware queues.
    pub hardware_queues: Vec<HardwareQueue>,
    /// Files of its queue in debugfs, such as `hctx0/flags`.
    pub debug: Vec<(String, String)>,
}

/// A disk that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddedDisk {
    /// Its device.
    pub device: DeviceId,
    bdi: DeviceId,
    partitions: Vec<DeviceId>,
    /// Its folder in debugfs.
    debug: KobjectId,
}

impl Model {
    /// Takes a major (`register_blkdev`); 0 asks for any that is free.
    ///
    /// # Errors
    /// Where it is taken, too large, or none is free.
    pub fn register_blkdev(&mut self, major: u32, name: &str) -> Result<u32, ModelError> {
        let refused = |message: String| ModelError::Major {
            found: major,
            name: name.to_owned(),
            message,
        };
        let major = match major {
            0 => { ANY_MAJORS.rev() }
                .find(|major| !self.majors.contains_key(major))
                .ok_or_else(|| refused("no major is free".to_owned()))?,
            BLKDEV_MAJOR_MAX.. => {
                let last = BLKDEV_MAJOR_MAX - 1;
                return Err(refused(format!("legal is 0 to {last}")));
            }
            _ => major,
        };
        if let Some(owner) = self.majors.get(&major) {
            return Err(refused(format!("{owner} has it; expected another")));
        }
        self.majors.insert(major, name.to_owned());
        self.note(format!("major {major} {name}"));
        Ok(major)
    }

    /// Majors with their drivers, as `/proc/devices` lists them.
    pub fn majors(&self) -> impl Iterator<Item = (u32, &str)> {
        { self.majors.iter() }.map(|(major, name)| (*major, name.as_str()))
    }

    /// How many disks there have been (`diskseq`).
    pub fn set_disk_sequence(&mut self, sequence: u64) {
        self.disk_sequence = sequence;
    }

    /// Adds a disk: its backing device, its partitions, and then user space is told
    /// of all of them (`device_add_disk`). One that no device stands behind is virtual.
    ///
    /// # Errors
    /// Where the classes `block` and `bdi` or the parent are not there.
    pub fn add_disk(&mut self, parent: Parent, disk: &Disk) -> Result<AddedDisk, ModelError> {
        let (major, minor) = (disk.major, disk.first_minor);
        self.disk_sequence += 1;
        let sequence = ("DISKSEQ".to_owned(), self.disk_sequence.to_string());
        let above = match parent {
            Parent::Device(above) => self.kobject_of(above),
            Parent::Root(_) | Parent::Virtual => None,
        };
        let device = self.add_device(DeviceDeclaration {
            class: Some("block"),
            node: Some((major, minor, disk.name.clone())),
            kind: Some("disk"),
            environment: vec![sequence.clone()],
            attributes: disk_attributes(disk, self.disk_sequence),
            silent: true,
            ..DeviceDeclaration::new(&disk.name, parent)
        })?;
        let bdi = self.add_device(DeviceDeclaration {
            class: Some("bdi"),
            ..DeviceDeclaration::new(format!("{major}:{minor}"), Parent::Virtual)
        });
        let bdi = bdi.inspect_err(|_| self.remove_device(device))?;
        if let (Some(of), Some(to)) = (self.kobject_of(device), self.kobject_of(bdi)) {
            self.sysfs.link(of, "bdi", to);
            if let Some(above) = above {
                self.sysfs.link(of, "device", above);
            }
            for folder in DISK_FOLDERS {
                self.sysfs.add(of, folder);
            }
            self.add_hardware_queues(of, &disk.hardware_queues);
            let all = self.sysfs.root("block");
            self.sysfs.link(all, &disk.name, of);
        }
        let debug = self.debugfs();
        let debug = self.sysfs.add(debug, "block");
        let debug = self.sysfs.add(debug, &disk.name);
        self.sysfs.set_all(debug, &disk.debug);
        let mut added = AddedDisk {
            device,
            bdi,
            partitions: Vec::with_capacity(disk.partitions.len()),
            debug,
        };
        for partition in &disk.partitions {
            let number = partition.number;
            // A name that ends in a digit gets a letter in between.
            let between = match disk.name.ends_with(|c: char| c.is_ascii_digit()) {
                true => "p",
                false => "",
            };
            let name = format!("{}{between}{number}", disk.name);
            let partition = self.add_device(DeviceDeclaration {
                class: Some("block"),
                node: Some((major, minor + number, name.clone())),
                kind: Some("partition"),
                environment: vec![sequence.clone(), ("PARTN".to_owned(), number.to_string())],
                attributes: partition_attributes(disk, partition),
                silent: true,
                ..DeviceDeclaration::new(name, Parent::Device(device))
            });
            added
                .partitions
                .push(partition.inspect_err(|_| self.remove_disk(&added))?);
        }
        for &id in [device].iter().chain(&added.partitions) {
            self.send_of(id, Action::Add, &[]);
        }
        Ok(added)
    }

    /// Shows a disk's hardware queues (`blk_mq_sysfs_register`).
    fn add_hardware_queues(&mut self, disk: KobjectId, queues: &[HardwareQueue]) {
        let all = self.sysfs.add(disk, "mq");
        for (number, queue) in queues.iter().enumerate() {
            let folder = self.sysfs.add(all, &number.to_string());
            let cpus: Vec<String> = queue.cpus.iter().map(usize::to_string).collect();
            self.sysfs.set(folder, "cpu_list", cpus.join(", "));
            self.sysfs.set(folder, "nr_reserved_tags", "0");
            self.sysfs.set(folder, "nr_tags", queue.tags.to_string());
            for cpu in cpus {
                self.sysfs.add(folder, &format!("cpu{cpu}"));
            }
        }
    }

    /// Takes a disk away: partitions first (`del_gendisk`).
    pub fn remove_disk(&mut self, disk: &AddedDisk) {
        for &partition in &disk.partitions {
            self.remove_device(partition);
        }
        self.remove_device(disk.bdi);
        self.sysfs.remove(disk.debug);
        self.remove_device(disk.device);
    }
}

fn attribute(name: &str, value: impl fmt::Display) -> (String, String) {
    (name.to_owned(), value.to_string())
}

fn disk_attributes(disk: &Disk, sequence: u64) -> Vec<(String, String)> {
    let mut attributes = vec![
        attribute("alignment_offset", 0),
        attribute("capability", 0),
        attribute("dev", format_args!("{}:{}", disk.major, disk.first_minor)),
        attribute("discard_alignment", 0),
        attribute("diskseq", sequence),
        attribute("events", ""),
        attribute("events_async", ""),
        attribute("events_poll_msecs", -1),
        attribute(
            "ext_range",
            if disk.is_scanned { MAX_PARTITIONS } else { 1 },
        ),
        attribute("hidden", 0),
        attribute("inflight", "       0        0"),
        attribute("partscan", u8::from(disk.is_scanned)),
        attribute("range", disk.minors),
        attribute("removable", 0),
        attribute("ro", u8::from(disk.read_only)),
        attribute("size", disk.size_sectors),
        attribute("stat", ["0"; 17].join(" ")),
    ];
    attributes.extend(disk.attributes.iter().cloned());
    attributes
}

fn partition_attributes(disk: &Disk, partition: &Partition) -> Vec<(String, String)> {
    let minor = disk.first_minor + partition.number;
    vec![
        attribute("dev", format_args!("{}:{minor}", disk.major)),
        attribute("partition", partition.number),
        attribute("ro", u8::from(disk.read_only)),
        attribute("size", partition.size_sectors),
        attribute("start", partition.start),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn majors_are_taken_once_and_given_from_the_end() {
        let mut model = Model::new();
        assert_eq!(model.register_blkdev(179, "mmc"), Ok(179));
        let taken = model.register_blkdev(179, "other").unwrap_err();
        assert_eq!(
            taken.to_string(),
            "major 179 for other: mmc has it; expected another"
        );
        assert_eq!(model.register_blkdev(0, "virtblk"), Ok(254));
        assert_eq!(model.register_blkdev(0, "device-mapper"), Ok(253));
        let large = model.register_blkdev(512, "x").unwrap_err();
        assert_eq!(large.to_string(), "major 512 for x: legal is 0 to 511");
    }

    #[test]
    fn a_disk_is_told_after_its_bdi_and_before_its_partitions() {
        let mut model = Model::new();
        for class in ["block", "bdi"] {
            model.register_class(class).unwrap();
        }
        let parent = DeviceDeclaration::new("card", Parent::Root(""));
        let parent = model.add_device(parent).unwrap();
        let disk = Disk {
            name: "mmcblk0".to_owned(),
            major: 179,
            first_minor: 0,
            minors: 256,
            size_sectors: 4096,
            read_only: false,
            is_scanned: true,
            partitions: vec![Partition {
                number: 1,
                start: 2048,
                size_sectors: 1024,
            }],
            attributes: Vec::new(),
            hardware_queues: vec![HardwareQueue {
                cpus: vec![0, 1],
                tags: 64,
            }],
            debug: vec![("hctx0/type".to_owned(), "default".to_owned())],
        };
        let before = model.uevents().len();
        let added = model.add_disk(Parent::Device(parent), &disk).unwrap();
        let file = |folder: &str, name: &str| {
            let sysfs = model.sysfs();
            let found = sysfs.attribute(sysfs.find(folder).unwrap(), name);
            found.map(str::to_owned)
        };
        let list = file("/block/mmcblk0/mq/0", "cpu_list");
        assert_eq!(list.as_deref(), Some("0, 1"));
        let kind = file("/kernel/debug/block/mmcblk0", "hctx0/type");
        assert_eq!(kind.as_deref(), Some("default"));
        assert!(model.sysfs().find("/block/mmcblk0/mq/0/cpu1").is_some());
        model.remove_disk(&added);
        let told: Vec<String> = { model.uevents()[before..].iter() }
            .map(|uevent| format!("{}@{}", uevent.action, uevent.devpath))
            .collect();
        let expected = [
            "add@/devices/virtual/bdi/179:0",
            "add@/devices/card/block/mmcblk0",
            "add@/devices/card/block/mmcblk0/mmcblk0p1",
            "remove@/devices/card/block/mmcblk0/mmcblk0p1",
            "remove@/devices/virtual/bdi/179:0",
            "remove@/devices/card/block/mmcblk0",
        ];
        assert_eq!(told, expected);
        assert_eq!(model.sysfs().find("/block/mmcblk0"), None);
        assert_eq!(model.sysfs().find("/devices/card/block"), None);
        assert_eq!(model.sysfs().find("/kernel/debug/block/mmcblk0"), None);
    }
}
