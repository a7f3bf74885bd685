//! A whole drive: its device node, its number, its folder in sysfs and its counters
//! (Documentation/block/stat.rst).

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use blklab_stats::QueueStats;
use serde::{Deserialize, Serialize};

use crate::error::HostError;
use crate::system::{System, names, read};

/// Device number of a drive or partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Number {
    /// Major number, of the driver.
    pub major: u32,
    /// Minor number, of the drive or partition.
    pub minor: u32,
}

impl From<Number> for blklab_workload::trace::tracefs::Dev {
    fn from(Number { major, minor }: Number) -> Self {
        Self { major, minor }
    }
}

impl std::fmt::Display for Number {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

impl Number {
    /// Parses `major:minor`, as in sysfs and mountinfo.
    pub fn parse(text: &str) -> Option<Number> {
        let (major, minor) = text.trim().split_once(':')?;
        Some(Number {
            major: major.parse().ok()?,
            minor: minor.parse().ok()?,
        })
    }

    /// The number in trace events, which is the kernel's internal `dev_t` of 12 and 20 bits.
    pub fn dev_t(self) -> u32 {
        (self.major << 20) | (self.minor & 0xf_ffff)
    }
}

/// A whole drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    /// The device as the user named it.
    pub path: PathBuf,
    /// The kernel's name for it, as in `/sys/block/NAME`.
    pub name: String,
    /// Device number.
    pub number: Number,
}

impl Disk {
    /// Finds the drive behind a device node.
    pub fn find(system: &System, path: &Path) -> Result<Disk, HostError> {
        let metadata = std::fs::metadata(path).map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => {
                let there = names(&system.sys("block")).join(", ");
                let hint = format!("no such device; the drives of this machine are {there}");
                HostError::device(path, hint)
            }
            _ => HostError::io("look at the device", path, e),
        })?;
        if !metadata.file_type().is_block_device() {
            let reason = "not a block device; name a whole drive such as /dev/nvme0n1, or a file's \
                          loop device (losetup --find --show FILE)";
            return Err(HostError::device(path, reason));
        }
        let number = Number {
            major: rustix::fs::major(metadata.rdev()),
            minor: rustix::fs::minor(metadata.rdev()),
        };
        Disk::numbered(system, path, number)
    }

    fn numbered(system: &System, path: &Path, number: Number) -> Result<Disk, HostError> {
        let link = system.sys(format!("dev/block/{number}"));
        let folder = std::fs::canonicalize(&link)
            .map_err(|e| HostError::io("find the drive in sysfs", &link, e))?;
        let name = |folder: &Path| folder.file_name().map(|n| n.to_string_lossy().into_owned());
        if folder.join("partition").exists() {
            let whole = folder.parent().and_then(name).unwrap_or_default();
            let reason = format!(
                "a partition; a scheduler belongs to the whole drive, which is /dev/{whole}"
            );
            return Err(HostError::device(path, reason));
        }
        Ok(Disk {
            path: path.to_path_buf(),
            name: name(&folder).unwrap_or_default(),
            number,
        })
    }

    /// Its folder in sysfs.
    pub fn folder(&self, system: &System) -> PathBuf {
        system.sys("block").join(&self.name)
    }

    /// Returns its length in bytes. sysfs counts in sectors of 512 bytes, whatever the drive's own
    /// sector size.
    pub fn size_bytes(&self, system: &System) -> Result<u64, HostError> {
        let path = self.folder(system).join("size");
        let text = read("read the drive's size", &path)?;
        let sectors: Option<u64> = text.parse().ok();
        sectors
            .and_then(|sectors| sectors.checked_mul(512))
            .ok_or_else(|| HostError::Format {
                path,
                message: format!("{text:?} is not a number of sectors"),
            })
    }

    /// Kernel names and numbers of the drive and its partitions.
    pub fn parts(&self, system: &System) -> Vec<(String, Number)> {
        let folder = self.folder(system);
        let mut parts = vec![(self.name.clone(), self.number)];
        for name in names(&folder) {
            let inside = folder.join(&name);
            if !inside.join("partition").exists() {
                continue;
            }
            let number = read("read a partition's number", &inside.join("dev"));
            if let Some(number) = number.ok().and_then(|text| Number::parse(&text)) {
                parts.push((name, number));
            }
        }
        parts
    }
}

/// The counters since boot, at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters([u64; 17]);

impl Counters {
    /// Parses the contents of the file. Kernels before 5.5 have no counters for flushes, those
    /// before 4.18 none for discards.
    pub fn parse(text: &str) -> Option<Counters> {
        let mut counters = [0; 17];
        let mut found = 0;
        for (slot, word) in counters.iter_mut().zip(text.split_ascii_whitespace()) {
            *slot = word.parse().ok()?;
            found += 1;
        }
        (found >= 11).then_some(Counters(counters))
    }

    /// Reads the drive's current counters.
    pub fn of(system: &System, disk: &Disk) -> Result<Counters, HostError> {
        let path = disk.folder(system).join("stat");
        let text = match read("read the drive's counters", &path) {
            Err(_) if !disk.folder(system).exists() => {
                return Err(HostError::Vanished {
                    device: disk.path.display().to_string(),
                });
            }
            text => text?,
        };
        Counters::parse(&text).ok_or_else(|| HostError::Format {
            path,
            message: format!("{text:?} is not at least eleven numbers"),
        })
    }

    /// Returns the differences since `before`. The kernel's times are in milliseconds.
    pub fn since(&self, before: &Counters) -> QueueStats {
        let d = |at: usize| self.0[at].saturating_sub(before.0[at]);
        let ns = |at: usize| d(at).saturating_mul(1_000_000);
        QueueStats {
            ios: [d(0), d(4), d(11), d(15)],
            merges: [d(1), d(5), d(12), 0],
            sectors: [d(2), d(6), d(13), 0],
            ticks_ns: [ns(3), ns(7), ns(14), ns(16)],
            io_ticks_ns: ns(9),
            time_in_queue_ns: ns(10),
            ..QueueStats::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_as_sysfs_writes_them() {
        let number = Number::parse("259:3\n").unwrap();
        assert_eq!((number.major, number.minor), (259, 3));
        assert_eq!(number.dev_t(), 259 << 20 | 3);
        for wrong in ["", "7", "7:", ":7", "a:b", "-1:0"] {
            assert_eq!(Number::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_is_no_block_device_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("plain");
        std::fs::write(&file, "x").unwrap();
        let system = System::at(folder.path());
        let error = Disk::find(&system, &file).unwrap_err();
        assert!(error.is_mistake());
        assert!(error.to_string().contains("not a block device"), "{error}");
        let error = Disk::find(&system, &folder.path().join("nothing")).unwrap_err();
        assert!(error.to_string().contains("no such device"), "{error}");
    }

    #[test]
    fn a_partition_is_refused_and_its_drive_named() {
        let folder = tempfile::tempdir().unwrap();
        let system = System::at(folder.path());
        let part = system.sys("block/sdx/sdx1");
        std::fs::create_dir_all(&part).unwrap();
        std::fs::write(part.join("partition"), "1\n").unwrap();
        std::fs::write(part.join("dev"), "8:17\n").unwrap();
        std::fs::create_dir_all(system.sys("dev/block")).unwrap();
        std::os::unix::fs::symlink(&part, system.sys("dev/block/8:17")).unwrap();
        let number = Number::parse("8:17").unwrap();
        let error = Disk::numbered(&system, Path::new("/dev/sdx1"), number).unwrap_err();
        assert!(error.to_string().contains("/dev/sdx"), "{error}");
        let whole = Disk {
            path: "/dev/sdx".into(),
            name: "sdx".into(),
            number: Number {
                major: 8,
                minor: 16,
            },
        };
        let parts = whole.parts(&system);
        assert_eq!(parts[1], ("sdx1".to_string(), number));
    }

    #[test]
    fn columns_are_the_kernels() {
        let before = Counters::parse("1 2 3 4 5 6 7 8 0 10 11 12 13 14 15 16 17").unwrap();
        let after = Counters::parse("11 12 13 14 15 16 17 18 1 20 21 22 23 24 25 26 27\n").unwrap();
        let went = after.since(&before);
        assert_eq!(went.ios, [10; 4]);
        assert_eq!(went.merges, [10, 10, 10, 0]);
        assert_eq!(went.ticks_ns, [10_000_000; 4]);
        assert_eq!(went.io_ticks_ns, 10_000_000);
        assert_eq!(before.since(&after), QueueStats::default());
    }

    #[test]
    fn short_and_wrong_text() {
        assert!(Counters::parse("1 2 3 4 5 6 7 8 9 10 11").is_some());
        for wrong in ["", "1 2 3", "1 2 3 4 5 6 7 8 9 10 x"] {
            assert_eq!(Counters::parse(wrong), None);
        }
    }
}
