//! The list of calls of the driver program, and the description of a run.

use std::collections::BTreeMap;
use std::path::Path;

use blklab_fs::write_back::{Settings, SyncRange};
use blklab_fs::{Advice, BackingDevice, Extent, Inode, InodeId, PAGE_BYTES, Policy, ReadPath};
use serde::Deserialize;

use crate::ConformError;
use crate::recording::{beside, read_beside, read_description};

/// A call of the driver program; offsets and lengths are in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Open {
        slot: usize,
        path: String,
        how: Open,
    },
    Close {
        slot: usize,
    },
    Read {
        slot: usize,
        bytes: u64,
    },
    Write {
        slot: usize,
        bytes: u64,
    },
    ReadAt {
        slot: usize,
        offset: u64,
        bytes: u64,
        buffer_offset: u64,
    },
    WriteAt {
        slot: usize,
        offset: u64,
        bytes: u64,
        buffer_offset: u64,
    },
    Seek {
        slot: usize,
        offset: u64,
    },
    Sync {
        slot: usize,
        only_data: bool,
    },
    SyncAll,
    SyncFileSystem {
        slot: usize,
    },
    SyncRange {
        slot: usize,
        offset: u64,
        bytes: u64,
        what: SyncRange,
    },
    SyncMapping {
        mapping: usize,
        offset: u64,
        bytes: u64,
    },
    Truncate {
        slot: usize,
        bytes: u64,
    },
    PunchHole {
        slot: usize,
        offset: u64,
        bytes: u64,
    },
    Advise {
        slot: usize,
        offset: u64,
        bytes: u64,
        advice: Advice,
    },
    Map {
        mapping: usize,
        slot: usize,
        offset: u64,
        bytes: u64,
    },
    Touch {
        mapping: usize,
        offset: u64,
        write: bool,
    },
    AdviseMapping {
        mapping: usize,
        offset: u64,
        bytes: u64,
        advice: Advice,
    },
    FlushBuffers {
        slot: usize,
    },
    Unlink {
        path: String,
    },
    /// Waiting, and what only a file system does.
    Nothing,
}

/// How a file is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Open {
    pub(crate) direct: bool,
    /// Every write is followed by `fsync`.
    pub(crate) sync: bool,
    /// Every write is followed by `fdatasync`.
    pub(crate) data_sync: bool,
    pub(crate) append: bool,
    /// It is made if it is not there.
    pub(crate) create: bool,
}

/// Reads the list of calls beside a trace.
pub(crate) fn read_calls(path: &Path) -> Result<Vec<Call>, ConformError> {
    let text = read_beside(path)?;
    (text.lines().zip(1..))
        .map(|(line, number)| {
            parse_call(line).ok_or_else(|| ConformError::Description {
                file: format!("{}:{number}", path.display()),
                message: format!("found {line:?}, expected a call such as \"read 0 4096\""),
            })
        })
        .collect()
}

/// The size of ext2's inodes where `mkfs` is not told another.
const DEFAULT_INODE_BYTES: u64 = 256;

/// The largest offset or length of a call: no file is longer.
const LARGEST: u64 = 1 << 60;

/// The mode of `fallocate` that takes blocks away (`FALLOC_FL_PUNCH_HOLE`).
const PUNCH_HOLE: u64 = 2;

fn parse_call(line: &str) -> Option<Call> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let number = |n: usize| {
        let number = words.get(n)?.parse::<u64>().ok()?;
        (number <= LARGEST).then_some(number)
    };
    let slot = usize::try_from(number(1).unwrap_or(0)).ok()?;
    let call = match *words.first()? {
        "open" => Call::Open {
            slot,
            path: (*words.get(2)?).to_owned(),
            how: how(&words.get(3..)?.join(",")),
        },
        "close" => Call::Close { slot },
        "read" => Call::Read {
            slot,
            bytes: number(2)?,
        },
        "write" => Call::Write {
            slot,
            bytes: number(2)?,
        },
        "pread" | "preadu" => Call::ReadAt {
            slot,
            offset: number(2)?,
            bytes: number(3)?,
            buffer_offset: number(4).unwrap_or(0) % 512,
        },
        "pwrite" | "pwriteu" => Call::WriteAt {
            slot,
            offset: number(2)?,
            bytes: number(3)?,
            buffer_offset: number(4).unwrap_or(0) % 512,
        },
        "lseek" => Call::Seek {
            slot,
            offset: number(2)?,
        },
        "fsync" | "fdatasync" => Call::Sync {
            slot,
            only_data: words[0] == "fdatasync",
        },
        "sync" => Call::SyncAll,
        "syncfs" => Call::SyncFileSystem { slot },
        "sfr" => Call::SyncRange {
            slot,
            offset: number(2)?,
            bytes: number(3)?,
            what: SyncRange {
                wait_before: number(4)? & 1 != 0,
                write: number(4)? & 2 != 0,
                wait_after: number(4)? & 4 != 0,
            },
        },
        "msync" => Call::SyncMapping {
            mapping: slot,
            offset: number(2)?,
            bytes: number(3)?,
        },
        "ftruncate" => Call::Truncate {
            slot,
            bytes: number(2)?,
        },
        "fallocate" if number(2)? & PUNCH_HOLE != 0 => Call::PunchHole {
            slot,
            offset: number(3)?,
            bytes: number(4)?,
        },
        "unlink" => Call::Unlink {
            path: (*words.get(1)?).to_owned(),
        },
        "fadvise" => Call::Advise {
            slot,
            offset: number(2)?,
            bytes: number(3)?,
            advice: advice(words.get(4)?)?,
        },
        "readahead" => Call::Advise {
            slot,
            offset: number(2)?,
            bytes: number(3)?,
            advice: Advice::WillNeed,
        },
        "mmap" => Call::Map {
            mapping: slot,
            slot: usize::try_from(number(2)?).ok()?,
            offset: number(3)?,
            bytes: number(4)?,
        },
        "touch" | "wtouch" => Call::Touch {
            mapping: slot,
            offset: number(2)?,
            write: words[0] == "wtouch",
        },
        "madvise" => Call::AdviseMapping {
            mapping: slot,
            offset: number(2)?,
            bytes: number(3)?,
            advice: advice(words.get(4)?)?,
        },
        "flsbuf" => Call::FlushBuffers { slot },
        "sleep_us" | "fallocate" => Call::Nothing,
        _ => return None,
    };
    Some(call)
}

fn how(flags: &str) -> Open {
    let has = |flag| flags.split(',').any(|word| word == flag);
    Open {
        direct: has("direct"),
        sync: has("sync"),
        data_sync: has("dsync"),
        append: has("append"),
        create: has("creat"),
    }
}

fn advice(word: &str) -> Option<Advice> {
    let advice = match word.to_ascii_lowercase().as_str() {
        "normal" => Advice::Normal,
        "random" => Advice::Random,
        "sequential" => Advice::Sequential,
        "willneed" => Advice::WillNeed,
        "dontneed" => Advice::DontNeed,
        "noreuse" => Advice::NoReuse,
        _ => return None,
    };
    Some(advice)
}

/// What a run's description says of its device and files.
#[derive(Deserialize)]
pub(crate) struct Description {
    dev: String,
    dev_sectors: u64,
    bdi: BTreeMap<String, String>,
    queue: BTreeMap<String, String>,
    filesystem: Option<FileSystem>,
    prep: String,
    #[serde(default)]
    vm_sysctl: BTreeMap<String, String>,
    #[serde(default)]
    call_results_nonobvious: Results,
}

/// What calls answered, where that was not what was asked for.
#[derive(Default, Deserialize)]
struct Results {
    /// The line of a call, and its bytes.
    #[serde(default)]
    short_counts: Vec<(usize, u64)>,
}

#[derive(Deserialize)]
struct FileSystem {
    #[serde(rename = "type")]
    kind: String,
    mkfs: String,
    files: Vec<String>,
}

/// A file of a run, with the bytes of it that are on the device.
#[derive(Debug)]
pub(crate) struct RunFile {
    pub(crate) path: String,
    /// As the trace names it.
    pub(crate) number: u64,
    pub(crate) inode: Inode,
    /// First byte, length and first sector, in the order of the file.
    pub(crate) extents: Vec<(u64, u64, u64)>,
}

impl Description {
    /// Reads a description.
    pub(crate) fn open(path: &Path) -> Result<Description, ConformError> {
        read_description(path)
    }

    /// Bytes of the calls that came to fewer than were asked for, by their lines.
    pub(super) fn short_counts(&self) -> BTreeMap<usize, u64> {
        (self.call_results_nonobvious.short_counts.iter().copied()).collect()
    }

    /// How pages were chosen that reclaim evicted.
    pub(super) fn policy(&self) -> Option<Policy> {
        let enabled = self.vm_sysctl.get("lru_gen")?;
        let bits = enabled.split(' ').next()?.strip_prefix("0x")?;
        match u32::from_str_radix(bits, 16).ok()? & 1 {
            0 => Some(Policy::ActiveInactive),
            _ => Some(Policy::Generations),
        }
    }

    /// Pages that fault-around maps, 16 unless the run set it.
    pub(crate) fn fault_around_pages(&self) -> u64 {
        let set = self.prep.split_once("echo ").and_then(|(_, rest)| {
            let (bytes, file) = rest.split_once(" > ")?;
            file.contains("fault_around_bytes")
                .then(|| bytes.parse::<u64>().ok())?
        });
        set.map_or(16, |bytes| bytes / PAGE_BYTES)
    }

    fn device(&self) -> Option<BackingDevice> {
        let pages = |map: &BTreeMap<String, String>, key| -> Option<u32> {
            map.get(key)?.parse::<u32>().ok().map(|kib| kib / 4)
        };
        Some(BackingDevice {
            ra_pages: pages(&self.bdi, "read_ahead_kb")?,
            io_pages: pages(&self.queue, "max_sectors_kb")?,
        })
    }

    /// The device, then the files of its file system.
    pub(crate) fn files(&self) -> Option<Vec<RunFile>> {
        let device = self.device()?;
        let (major, minor) = self.dev.split_once(',')?;
        let number = major.parse::<u64>().ok()? << 20 | minor.parse::<u64>().ok()?;
        let size_bytes = self.dev_sectors.checked_mul(512)?;
        if size_bytes > LARGEST {
            return None;
        }
        let mut files = vec![RunFile {
            path: "/dev/nullb0".to_owned(),
            number,
            inode: Inode {
                size_bytes,
                block_bytes: PAGE_BYTES,
                large_folios: false,
                read_path: ReadPath::Mpage,
                is_device: true,
                device,
            },
            extents: vec![(0, size_bytes, 0)],
        }];
        if let Some(system) = &self.filesystem {
            for line in &system.files {
                files.push(system.file(line, device)?);
            }
        }
        Some(files)
    }

    /// When and how much is written back.
    pub(crate) fn settings(&self) -> Settings {
        let number = |name: &str| {
            let value = self.vm_sysctl.get(name)?;
            value.trim_end_matches(" kB").parse::<u64>().ok()
        };
        let set = |name, or| number(name).unwrap_or(or);
        let pages = |name, or| number(name).map_or(or, |kib| kib * 1024 / PAGE_BYTES);
        let defaults = Settings::with_memory(pages("MemTotal", 1 << 19));
        Settings {
            dirty_bytes: set("dirty_bytes", 0),
            dirty_ratio: set("dirty_ratio", 0),
            dirty_background_bytes: set("dirty_background_bytes", 0),
            dirty_background_ratio: set("dirty_background_ratio", 0),
            dirty_expire_centisecs: set("dirty_expire_centisecs", 3000),
            dirty_writeback_centisecs: set("dirty_writeback_centisecs", 500),
            dirtyable_pages: pages("MemFree", defaults.dirtyable_pages),
            ..defaults
        }
    }

    /// Whether the device has a cache that must be flushed.
    pub(crate) fn has_volatile_cache(&self) -> bool {
        self.queue
            .get("write_cache")
            .is_some_and(|kind| kind == "write back")
    }

    /// A file that is made during the run, of which nothing is known yet.
    pub(crate) fn new_file(&self, path: &str, number: u64) -> Option<RunFile> {
        let system = self.filesystem.as_ref()?;
        let line = format!("{path} ino={number} size=0 blocks=0");
        system.file(&line, self.device()?)
    }

    /// The size of the file system's inodes on the device.
    pub(crate) fn inode_bytes(&self) -> u64 {
        let given = self.filesystem.as_ref().and_then(FileSystem::inode_bytes);
        given.unwrap_or(DEFAULT_INODE_BYTES)
    }

    /// Whether what the device's own pages hold is a file system's metadata.
    pub(crate) fn has_file_system(&self) -> bool {
        self.filesystem.is_some()
    }
}

impl FileSystem {
    /// What `mkfs` was given with an option.
    fn option(&self, name: &str) -> Option<&str> {
        let mut words = self.mkfs.split_whitespace();
        words.find(|&word| word == name)?;
        words.next()
    }

    /// The size of inodes that `mkfs` was given.
    fn inode_bytes(&self) -> Option<u64> {
        let given = self.option("-I")?.parse().ok();
        given.filter(|bytes| (128..=PAGE_BYTES).contains(bytes))
    }

    /// The block size that `mkfs` was given; `None` if no page holds such blocks.
    fn block_bytes(&self) -> Option<u64> {
        let given = self.option("-b");
        let bytes = given.map_or(Some(PAGE_BYTES), |digits| digits.parse().ok())?;
        [512, 1024, 2048, PAGE_BYTES]
            .contains(&bytes)
            .then_some(bytes)
    }

    /// From `PATH ino=N size=N blocks=N : LOGICAL+LENGTH@SECTOR/FLAGS ...`.
    fn file(&self, line: &str, device: BackingDevice) -> Option<RunFile> {
        let (facts, extents) = line.split_once(" : ").unwrap_or((line, ""));
        let number = |key: &str| {
            let word = facts.split(' ').find_map(|word| word.strip_prefix(key))?;
            word.parse::<u64>().ok().filter(|&bytes| bytes <= LARGEST)
        };
        let place = |digits: &str| digits.parse::<u64>().ok().filter(|&at| at <= LARGEST);
        let extent = |word: &str| {
            let (bytes, sector) = word.split_once('@')?;
            let (first, length) = bytes.split_once('+')?;
            let sector = sector.split('/').next()?;
            Some((place(first)?, place(length)?, place(sector)?))
        };
        Some(RunFile {
            path: facts.split(' ').next()?.to_owned(),
            number: number("ino=")?,
            inode: Inode {
                size_bytes: number("size=")?,
                block_bytes: self.block_bytes()?,
                large_folios: self.kind == "xfs",
                read_path: match self.kind.as_str() {
                    "xfs" => ReadPath::Iomap,
                    _ => ReadPath::Mpage,
                },
                is_device: false,
                device,
            },
            extents: extents
                .split_whitespace()
                .map(extent)
                .collect::<Option<_>>()?,
        })
    }
}

impl RunFile {
    /// Where a byte of it is.
    pub(crate) fn extent(&self, byte: u64) -> Extent {
        let holds =
            |&&(first, length, _): &&(u64, u64, u64)| (first..first + length).contains(&byte);
        if let Some(&(first, length, sector)) = self.extents.iter().find(holds) {
            return Extent {
                sector: Some(sector + (byte - first) / 512),
                bytes: first + length - byte,
                boundary: false,
            };
        }
        let next = self
            .extents
            .iter()
            .map(|extent| extent.0)
            .find(|&first| first > byte);
        Extent {
            sector: None,
            bytes: next.unwrap_or(u64::MAX / 2) - byte,
            boundary: false,
        }
    }
}

/// Whether a sector holds data of one of the files behind the first, which is the device.
pub(crate) fn is_data(files: &[RunFile], sector: u64) -> bool {
    let holds = |&(_, bytes, first): &(u64, u64, u64)| {
        (first..first + bytes.div_ceil(512)).contains(&sector)
    };
    let mut files = files.iter().skip(1);
    files.any(|file| file.extents.iter().any(holds))
}

/// A recorded run: what was called, on which files.
pub(super) struct RecordedRun {
    pub(super) calls: Vec<Call>,
    pub(super) description: Description,
    pub(super) files: Vec<RunFile>,
    /// Our names of the files by their inode numbers.
    pub(super) inodes: BTreeMap<u64, InodeId>,
}

impl RecordedRun {
    /// Reads what lies beside a trace.
    pub(super) fn open(path: &Path) -> Result<RecordedRun, ConformError> {
        let calls = read_calls(&beside(path, ".calls.txt"))?;
        let described = beside(path, ".json");
        let description = Description::open(&described)?;
        let files = description
            .files()
            .ok_or_else(|| ConformError::Description {
                file: described.display().to_string(),
                message: "dev, bdi, queue or files: found no numbers where they belong".to_owned(),
            })?;
        let inodes = (files.iter().zip(0..))
            .map(|(file, n)| (file.number, InodeId(n)))
            .collect();
        Ok(RecordedRun {
            calls,
            description,
            files,
            inodes,
        })
    }
}
