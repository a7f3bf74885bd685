//! What was recorded of a page cache: the calls, the steps that the kernel took
//! in each, and when requests ended.

use std::collections::BTreeMap;
use std::path::Path;

use blklab_blk::{BioFlags, Op, SECTOR_SIZE, Sector};
use blklab_fs::{Bio, Event, InodeId, PAGE_BYTES, RaState};
use blklab_workload::trace::tracefs::{EventKind, Line, parse_line};

use crate::ConformError;

/// A recorded step, from one line of a trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum RecordedStep {
    /// The driver program begins the call on this line of the list of calls.
    Call(usize),
    /// The kernel took this step in the driver's call.
    Took(Event),
    /// The driver is still at work on the bio that it submitted last.
    Submitting,
    /// A request ended.
    Ended { sector: u64, sectors: u64 },
    /// `mmap` answered with this address, or with one that is as far from a multiple of
    /// what fault-around maps.
    Mapped { address: u64 },
    /// Some other task wrote these sectors.
    WrittenElsewhere { sector: u64, sectors: u64 },
    /// The flusher let go of folios that it had written.
    Flushed,
    /// Reclaim saw this many active pages, as the cgroup's statistics were flushed last.
    SawActive { pages: u64 },
}

/// A step and where it stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Recorded {
    pub(super) line: u64,
    pub(super) at_ns: u64,
    pub(super) step: RecordedStep,
    /// The page frame of a page that was added.
    pub(super) frame: Option<u64>,
}

/// Reads the steps of a trace. `inodes` has our names of the files by their inode
/// numbers; steps of other files are left out. Reads and writes of which no mark tells
/// the line are on those in `unmarked`, one after the other.
pub(super) fn read_steps(
    path: &Path,
    text: &str,
    inodes: &BTreeMap<u64, InodeId>,
    unmarked: &[usize],
) -> Result<Vec<Recorded>, ConformError> {
    let mut unmarked = unmarked.iter();
    let mut inodes = inodes.clone();
    inodes.extend(device_node(text).map(|number| (number, InodeId(0))));
    let mut steps = Vec::new();
    let mut begun = false;
    for (line, number) in text.lines().zip(1..) {
        let Some(fields) = Fields::of(line) else {
            continue;
        };
        if fields.event == "mark" {
            match fields.rest.trim() {
                "BEGIN" => begun = true,
                "END" => break,
                _ => {}
            }
        }
        if !begun {
            continue;
        }
        let malformed = || ConformError::Description {
            file: format!("{}:{number}", path.display()),
            message: format!("found {:?}, expected the fields of this event", line.trim()),
        };
        let step = match fields.event {
            name if name.starts_with("block_") => block_step(line, fields.is_driver),
            name if name.starts_with("sys_pread64(") || name.starts_with("sys_pwrite64(") => {
                unmarked.next().map(|&line| RecordedStep::Call(line))
            }
            "mm_lru_insertion" if !fields.is_driver => Some(RecordedStep::Flushed),
            _ => fields.step(&inodes).ok_or_else(malformed)?,
        };
        steps.extend(step.map(|step| Recorded {
            line: number,
            at_ns: fields.at_ns,
            step,
            frame: fields.unsigned("pfn"),
        }));
    }
    Ok(steps)
}

/// The number that faults have in a mapped device: that of its node in `/dev`. It
/// is the one of a fault that the device's own event follows.
fn device_node(text: &str) -> Option<u64> {
    let fields: Vec<Fields<'_>> = text.lines().filter_map(Fields::of).collect();
    let pairs = fields.iter().zip(fields.iter().skip(1));
    let mut mapped = pairs.filter(|(fault, next)| {
        fault.event == "fault" && next.event == "mm_filemap_fault" && next.rest.contains("dev=0:")
    });
    mapped.find_map(|(fault, _)| fault.unsigned("ino"))
}

/// A line cut into its columns.
pub(crate) struct Fields<'a> {
    pub(crate) is_driver: bool,
    /// Whether interrupts were off.
    is_atomic: bool,
    pub(crate) at_ns: u64,
    pub(crate) event: &'a str,
    pub(crate) rest: &'a str,
}

impl<'a> Fields<'a> {
    pub(crate) fn of(line: &'a str) -> Option<Fields<'a>> {
        if line.trim_start().starts_with('#') {
            return None;
        }
        let (task, rest) = line.split_once(" [")?;
        let (_, rest) = rest.split_once("] ")?;
        let (flags, rest) = rest.trim_start().split_once(' ')?;
        let (stamp, rest) = rest.trim_start().split_once(": ")?;
        let (event, rest) = match rest.split_once(": ") {
            Some((event, rest)) if !event.contains(' ') => (event, rest),
            _ => rest.split_once([' ', '('])?,
        };
        let (seconds, fraction) = stamp.split_once('.')?;
        let seconds_ns = seconds.parse::<u64>().ok()?.checked_mul(1_000_000_000)?;
        let at_ns = seconds_ns.checked_add(fraction.parse().ok()?)?;
        Some(Fields {
            is_driver: task.trim_start().starts_with("drv-"),
            is_atomic: flags.starts_with('d'),
            at_ns,
            event,
            rest,
        })
    }

    /// The value of `name=` in the rest of the line.
    pub(crate) fn number(&self, name: &str) -> Option<i64> {
        let word = (self.rest.split([' ', ','])).find_map(|word| {
            let (key, value) = word.split_once('=')?;
            (key == name).then_some(value)
        })?;
        match word.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok().map(u64::cast_signed),
            None => word.parse().ok(),
        }
    }

    pub(crate) fn unsigned(&self, name: &str) -> Option<u64> {
        self.number(name).and_then(|n| u64::try_from(n).ok())
    }

    fn count(&self, name: &str) -> Option<u32> {
        self.number(name).and_then(|n| u32::try_from(n).ok())
    }

    /// The file of a step; `Some(None)` where it is none of ours.
    pub(crate) fn inode(&self, inodes: &BTreeMap<u64, InodeId>) -> Option<Option<InodeId>> {
        let number = match self.number("ino") {
            Some(number) if self.rest.contains("ino=0x") => u64::try_from(number).ok()?,
            _ => {
                let (_, rest) = self.rest.split_once("ino").map(|(a, b)| (a, &b[1..]))?;
                u64::from_str_radix(rest.split(' ').next()?, 16).ok()?
            }
        };
        Some(inodes.get(&number).copied())
    }

    fn state(&self) -> Option<RaState> {
        Some(RaState {
            start: self.unsigned("start")?,
            size: self.count("size")?,
            async_size: self.count("async")?,
            ra_pages: self.count("ra_pages")?,
            mmap_miss: self.count("mmap_miss")?,
            prev_pos: self.number("prev_pos")?,
        })
    }

    /// The step of a line of reclaim, `None` if it is none; `Some(None)` if it is
    /// malformed.
    fn reclaim_step(&self) -> Option<Option<RecordedStep>> {
        let step = match self.event {
            "reclaim" => self
                .unsigned("nr")
                .map(|pages| RecordedStep::Took(Event::Reclaim { pages })),
            "mm_vmscan_lru_isolate" => self.isolate().map(RecordedStep::Took),
            "refault" => self.refault().map(RecordedStep::Took),
            // What is asked under the lock is asked of the whole machine's lists too.
            "lru_size" => self.unsigned("seen").map(|pages| match self.is_atomic {
                true => RecordedStep::Submitting,
                false => RecordedStep::SawActive { pages },
            }),
            _ => return None,
        };
        Some(step)
    }

    /// A page that came back: of which file is not told, and where memory is short that
    /// is the device.
    fn refault(&self) -> Option<Event> {
        Some(Event::Refault {
            inode: InodeId(0),
            index: self.unsigned("index")?,
            active: self.unsigned("fflags")? & 0x100 != 0,
        })
    }

    fn isolate(&self) -> Option<Event> {
        Some(Event::Isolate {
            active: self.rest.contains("lru=active_file"),
            requested: self.unsigned("nr_requested")?,
            scanned: self.unsigned("nr_scanned")?,
            taken: self.unsigned("nr_taken")?,
        })
    }

    /// The step of a line; `None` if it is malformed.
    fn step(&self, inodes: &BTreeMap<u64, InodeId>) -> Option<Option<RecordedStep>> {
        if self.event == "mark" {
            let call = self
                .rest
                .trim()
                .strip_prefix('L')
                .and_then(|n| n.parse().ok());
            return Some(call.map(RecordedStep::Call));
        }
        if self.event == "sys_mmap" && self.rest.contains("-> ") {
            let digits = self.rest.rsplit("-> 0x").next()?;
            let address = u64::from_str_radix(digits.trim(), 16).ok()?;
            return Some(Some(RecordedStep::Mapped { address }));
        }
        if !self.is_driver || !EVENTS.contains(&self.event) {
            return Some(None);
        }
        if let Some(step) = self.reclaim_step() {
            return step.map(Some);
        }
        let Some(inode) = self.inode(inodes)? else {
            return Some(None);
        };
        let event = match self.event.starts_with("mm_filemap") {
            true => self.cache_event(inode),
            false => self
                .readahead_event(inode)
                .or_else(|| self.fault_event(inode)),
        };
        Some(Some(RecordedStep::Took(event?)))
    }

    /// What happens to pages in the cache.
    fn cache_event(&self, inode: InodeId) -> Option<Event> {
        let page = || self.unsigned("ofs").map(Event::page_of);
        Some(match self.event {
            "mm_filemap_add_to_page_cache" => Event::Add {
                inode,
                index: page()?,
                order: self.count("order")?,
            },
            "mm_filemap_delete_from_page_cache" => Event::Delete {
                inode,
                index: page()?,
                order: self.count("order")?,
            },
            "mm_filemap_get_pages" => {
                let (_, range) = self.rest.split_once("ofs=")?;
                let (first, last) = range.trim().split_once('-')?;
                Event::GetPages {
                    inode,
                    first: Event::page_of(first.parse().ok()?),
                    last: Event::page_of(last.parse().ok()?),
                }
            }
            _ => return None,
        })
    }

    fn page_index(&self) -> Option<u64> {
        self.unsigned("index").or_else(|| self.unsigned("pgoff"))
    }

    /// What is decided on reading ahead.
    fn readahead_event(&self, inode: InodeId) -> Option<Event> {
        let index = self.page_index()?;
        Some(match self.event {
            "sync_ra" => Event::SyncReadahead {
                inode,
                index,
                req: self.unsigned("req")?,
                ra: self.state()?,
            },
            "async_ra" => Event::AsyncReadahead {
                inode,
                index,
                req: self.unsigned("req")?,
                ra: self.state()?,
            },
            "ra_order" => Event::Window {
                inode,
                index,
                new_order: self.count("new_order")?,
                ra: self.state()?,
            },
            "ra_unbounded" => Event::Fill {
                inode,
                index,
                nr: self.unsigned("nr")?,
                lookahead: self.unsigned("look")?,
            },
            "force_ra" => Event::Force {
                inode,
                index,
                nr: self.unsigned("nr")?,
            },
            "read_pages" => Event::ReadPages {
                inode,
                index,
                nr: self.unsigned("nr")?,
            },
            _ => return None,
        })
    }

    /// What a fault on mapped pages does.
    fn fault_event(&self, inode: InodeId) -> Option<Event> {
        let index = self.page_index()?;
        Some(match self.event {
            "map_pages" => Event::MapPages {
                inode,
                index,
                from: self.unsigned("from")?,
                to: self.unsigned("to")?,
            },
            "map_pages_ret" => Event::MapPagesEnd {
                inode,
                index,
                served: self.unsigned("ret")? & 0x100 != 0,
            },
            "fault" => Event::Fault {
                inode,
                index,
                mmap_miss: self.count("mmap_miss")?,
            },
            "fault_ret" => Event::FaultEnd {
                inode,
                index,
                retry: self.unsigned("ret")? & 0x400 != 0,
            },
            _ => return None,
        })
    }
}

/// Sectors of a page.
pub(crate) const PAGE_SECTORS: u64 = PAGE_BYTES / SECTOR_SIZE;

/// The events that are compared, the block layer's apart.
const EVENTS: [&str; 17] = [
    "sync_ra",
    "async_ra",
    "ra_order",
    "ra_unbounded",
    "force_ra",
    "read_pages",
    "mm_filemap_add_to_page_cache",
    "mm_filemap_delete_from_page_cache",
    "mm_filemap_get_pages",
    "map_pages",
    "map_pages_ret",
    "fault",
    "fault_ret",
    "refault",
    "reclaim",
    "mm_vmscan_lru_isolate",
    "lru_size",
];

/// What a line of the block layer tells: bios, and the end of requests.
fn block_step(line: &str, is_driver: bool) -> Option<RecordedStep> {
    let Ok(Line::Event(event)) = parse_line(line) else {
        return None;
    };
    match event.kind {
        EventKind::BioQueue(bio) => {
            let (sector, sectors) = (bio.sector.0, u64::from(bio.sectors));
            let op = bio.rwbs.op?;
            if !is_driver {
                return (op == Op::Write)
                    .then_some(RecordedStep::WrittenElsewhere { sector, sectors });
            }
            Some(RecordedStep::Took(Event::Submit(Bio {
                op,
                flags: shown(bio.rwbs.flags),
                sector: Sector(sector),
                size_sectors: bio.sectors,
            })))
        }
        EventKind::RqComplete(rq) => Some(RecordedStep::Ended {
            sector: rq.sector.0,
            sectors: u64::from(rq.sectors),
        }),
        _ => is_driver.then_some(RecordedStep::Submitting),
    }
}

/// The flags of a bio that a trace shows.
pub(crate) fn shown(flags: BioFlags) -> BioFlags {
    let letters = [
        BioFlags::RAHEAD,
        BioFlags::META,
        BioFlags::SYNC,
        BioFlags::FUA,
        BioFlags::PREFLUSH,
    ];
    BioFlags(flags.0 & letters.iter().fold(0, |all, flag| all | flag.0))
}
