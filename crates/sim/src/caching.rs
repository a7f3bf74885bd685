//! How much memory there is to cache files in, and when what is dirty of it is written.

use std::str::FromStr;

use blklab_description::hint;
use blklab_fs::write_back::Settings;
use blklab_fs::{PAGE_BYTES, Policy, Watermarks};

/// The memory and the kernel's settings for I/O that is not direct.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caching {
    /// The largest window of readahead (`queue/read_ahead_kb`), in KiB.
    pub read_ahead_kb: u32,
    /// When how much is written back.
    pub write_back: Settings,
    /// Which cached pages go when memory is short.
    pub reclaim: Policy,
    /// How many unused names and inodes count as freeable when memory is short, in percent.
    pub cache_pressure_percent: u64,
    /// What the files of jobs are on.
    pub file_system: FileSystemKind,
}

/// What the files of a job are on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FileSystemKind {
    /// The drive itself, one file behind the other.
    #[default]
    Raw,
    /// ext2 on all of the drive, as `mke2fs -t ext2` makes it but without reserved group
    /// descriptors, extended attributes and indexed directories.
    Ext2,
    /// FAT, as `mkfs.vfat` makes it on all of the drive.
    Vfat,
    /// XFS on all of the drive, without its own blocks.
    Xfs,
}

impl FileSystemKind {
    /// Every kind, by its name.
    pub const ALL: [(&'static str, FileSystemKind); 4] = [
        ("raw", FileSystemKind::Raw),
        ("ext2", FileSystemKind::Ext2),
        ("vfat", FileSystemKind::Vfat),
        ("xfs", FileSystemKind::Xfs),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        let mut all = FileSystemKind::ALL.iter();
        let found = all.find(|(_, kind)| *kind == self);
        found.map_or("", |(name, _)| name)
    }
}

impl FromStr for FileSystemKind {
    type Err = String;

    fn from_str(name: &str) -> Result<FileSystemKind, String> {
        let found = FileSystemKind::ALL.iter().find(|(known, _)| *known == name);
        found.map(|(_, kind)| *kind).ok_or_else(|| {
            let names = FileSystemKind::ALL.map(|(name, _)| name).join(", ");
            format!("found {name}, legal is {names}")
        })
    }
}

/// A setting of the kernel's (`sysctl`).
struct Sysctl {
    name: &'static str,
    values: Values,
    set: fn(&mut Caching, u64),
}

/// What may be written to a setting.
enum Values {
    /// A number from this one to that.
    Between(u64, u64),
    /// `y` or `n`.
    Switch,
}

impl Values {
    fn read(&self, text: &str) -> Option<u64> {
        match (self, text.trim()) {
            (Values::Between(min, max), number) => {
                let number = number.parse().ok()?;
                (*min..=*max).contains(&number).then_some(number)
            }
            (Values::Switch, "y") => Some(1),
            (Values::Switch, "n") => Some(0),
            (Values::Switch, _) => None,
        }
    }

    fn legal(&self) -> String {
        match self {
            Values::Between(min, max) => format!("a whole number from {min} to {max}"),
            Values::Switch => "y or n".to_string(),
        }
    }
}

/// The most that a setting holds that is an `int`.
const INT_MAX: u64 = i32::MAX as u64;

/// The settings that there are (Documentation/admin-guide/sysctl/vm.rst, and
/// `/sys/kernel/mm` by the names of its files), with the limits of `vm_page_writeback_sysctls`
/// in Linux 6.12's `mm/page-writeback.c` and of `vm_table` in `kernel/sysctl.c`. A threshold in bytes takes the place of one in
/// percent, and the other way around.
const SYSCTLS: [Sysctl; 8] = [
    Sysctl {
        name: "vm.dirty_ratio",
        values: Values::Between(0, 100),
        set: |c, percent| {
            let s = &mut c.write_back;
            (s.dirty_ratio, s.dirty_bytes) = (percent, 0);
        },
    },
    Sysctl {
        name: "vm.dirty_bytes",
        // Two pages at least (`dirty_bytes_min`).
        values: Values::Between(2 * PAGE_BYTES, 1 << 50),
        set: |c, bytes| {
            let s = &mut c.write_back;
            (s.dirty_bytes, s.dirty_ratio) = (bytes, 0);
        },
    },
    Sysctl {
        name: "vm.dirty_background_ratio",
        values: Values::Between(0, 100),
        set: |c, percent| {
            let s = &mut c.write_back;
            (s.dirty_background_ratio, s.dirty_background_bytes) = (percent, 0);
        },
    },
    Sysctl {
        name: "vm.dirty_background_bytes",
        values: Values::Between(1, 1 << 50),
        set: |c, bytes| {
            let s = &mut c.write_back;
            (s.dirty_background_bytes, s.dirty_background_ratio) = (bytes, 0);
        },
    },
    Sysctl {
        name: "vm.dirty_expire_centisecs",
        values: Values::Between(0, INT_MAX),
        set: |c, centisecs| c.write_back.dirty_expire_centisecs = centisecs,
    },
    Sysctl {
        name: "vm.dirty_writeback_centisecs",
        values: Values::Between(0, INT_MAX),
        set: |c, centisecs| c.write_back.dirty_writeback_centisecs = centisecs,
    },
    Sysctl {
        name: "vm.vfs_cache_pressure",
        values: Values::Between(0, INT_MAX),
        set: |c, percent| c.cache_pressure_percent = percent,
    },
    // Documentation/admin-guide/mm/multigen_lru.rst; y and n stand for all of its bits.
    Sysctl {
        name: "mm.lru_gen.enabled",
        values: Values::Switch,
        set: |c, enabled| {
            c.reclaim = match enabled {
                0 => Policy::ActiveInactive,
                _ => Policy::Generations,
            };
        },
    },
];

/// The least memory: what a kernel needs to run at all.
const LEAST_MEMORY_BYTES: u64 = 16 << 20;

/// The most: what a machine of 52 bits addresses.
const MOST_MEMORY_BYTES: u64 = 1 << 52;

/// Linux's default, in KiB (`VM_READAHEAD_PAGES`).
const READ_AHEAD_KB: u32 = 128;

/// Linux's default (`sysctl_vfs_cache_pressure`).
const CACHE_PRESSURE_PERCENT: u64 = 100;

/// The memory of a machine of which nothing is said. Assumed: 4 GiB.
const MEMORY_PAGES: u64 = (4 << 30) / PAGE_BYTES;

impl Default for Caching {
    fn default() -> Caching {
        Caching {
            read_ahead_kb: READ_AHEAD_KB,
            write_back: settings(MEMORY_PAGES),
            // CONFIG_LRU_GEN_ENABLED is not set unless who builds the kernel does so.
            reclaim: Policy::ActiveInactive,
            cache_pressure_percent: CACHE_PRESSURE_PERCENT,
            file_system: FileSystemKind::Raw,
        }
    }
}

/// Linux's defaults with so much memory. What can be dirty is all but what is kept free.
fn settings(memory_pages: u64) -> Settings {
    let kept_free = Watermarks::of(memory_pages).high;
    Settings {
        dirtyable_pages: memory_pages.saturating_sub(kept_free),
        ..Settings::with_memory(memory_pages)
    }
}

impl Caching {
    /// What is said where something was set, and no job uses the page cache.
    pub(crate) fn unused_note(&self) -> Option<String> {
        let unset = Caching {
            file_system: self.file_system,
            ..Caching::default()
        };
        (*self != unset).then(|| {
            "all I/O is direct: no page is cached, and memory, read_ahead_kb and vm settings \
             change nothing"
                .to_string()
        })
    }

    /// The same with so much memory.
    ///
    /// # Errors
    /// Where that is less than a kernel needs, or more than there can be.
    pub fn with_memory(self, bytes: u64) -> Result<Caching, String> {
        if !(LEAST_MEMORY_BYTES..=MOST_MEMORY_BYTES).contains(&bytes) {
            return Err(format!(
                "found {bytes} bytes, legal is {LEAST_MEMORY_BYTES} to {MOST_MEMORY_BYTES}"
            ));
        }
        let sized = settings(bytes / PAGE_BYTES);
        Ok(Caching {
            write_back: Settings {
                memory_pages: sized.memory_pages,
                dirtyable_pages: sized.dirtyable_pages,
                ..self.write_back
            },
            ..self
        })
    }

    /// Sets one of the kernel's settings, such as `vm.dirty_ratio`.
    ///
    /// # Errors
    /// Where there is no such setting, or it cannot be that.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let Some(sysctl) = SYSCTLS.iter().find(|sysctl| sysctl.name == name) else {
            let names: Vec<&str> = Caching::sysctls().collect();
            let hint = hint(name, names.iter().copied());
            let names = names.join(", ");
            return Err(format!("there is no {name}{hint}; there are {names}"));
        };
        let Some(number) = sysctl.values.read(value) else {
            let legal = sysctl.values.legal();
            return Err(format!("{name}: found {value}, legal is {legal}"));
        };
        (sysctl.set)(self, number);
        Ok(())
    }

    /// The names of the kernel's settings that there are.
    pub fn sysctls() -> impl Iterator<Item = &'static str> {
        SYSCTLS.iter().map(|sysctl| sysctl.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threshold_in_bytes_takes_the_place_of_one_in_percent() {
        let mut caching = Caching::default().with_memory(1 << 30).expect("legal");
        let (percent, _) = caching.write_back.thresholds();
        assert!((50_000..53_000).contains(&percent), "{percent}");
        caching.set("vm.dirty_bytes", "8192").expect("legal");
        assert_eq!(caching.write_back.thresholds().0, 2);
        caching.set("vm.dirty_ratio", "20").expect("legal");
        assert_eq!(caching.write_back.thresholds().0, percent);
    }

    #[test]
    fn what_is_wrong_is_said() {
        let mut caching = Caching::default();
        let error = caching.set("vm.dirty_rato", "1").unwrap_err();
        assert!(error.starts_with("there is no vm.dirty_rato"), "{error}");
        assert!(error.contains("vm.dirty_ratio"), "{error}");
        let error = caching.set("vm.dirty_ratio", "101").unwrap_err();
        assert_eq!(
            error,
            "vm.dirty_ratio: found 101, legal is a whole number from 0 to 100"
        );
        for (name, wrong, legal) in [
            ("vm.dirty_bytes", "8191", "8192 to 1125899906842624"),
            ("vm.dirty_background_bytes", "0", "1 to 1125899906842624"),
            ("vm.dirty_expire_centisecs", "2147483648", "0 to 2147483647"),
            ("vm.vfs_cache_pressure", "-1", "0 to 2147483647"),
        ] {
            let error = caching.set(name, wrong).unwrap_err();
            let expected = format!("{name}: found {wrong}, legal is a whole number from {legal}");
            assert_eq!(error, expected);
        }
        let error = caching.set("mm.lru_gen.enabled", "7").unwrap_err();
        assert_eq!(error, "mm.lru_gen.enabled: found 7, legal is y or n");
        assert!(caching.with_memory(1 << 20).is_err());
    }
}
