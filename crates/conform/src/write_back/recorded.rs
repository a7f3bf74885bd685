//! What was recorded of write-back: who did what, in the order of the trace.

use std::collections::BTreeMap;
use std::path::Path;

use blklab_blk::{BioFlags, Op};
use blklab_fs::write_back::Reason;
use blklab_fs::{Bio, Event, InodeId, PAGE_BYTES};
use blklab_workload::trace::tracefs::{EventKind, Line, parse_line};

use super::throttle::Jiffies;
use crate::ConformError;
use crate::page_cache::{Fields, RunFile, shown};

/// Who runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Task {
    /// The driver program.
    Program,
    /// The device's flusher.
    Flusher,
}

/// A recorded step, from one line of a trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum RecordedStep {
    /// The program begins the call on this line of the list of calls.
    Call(usize),
    /// A task took this step.
    Took(Task, Event),
    /// `balance_dirty_pages` looks at the program, which has dirtied this many pages.
    /// Some may have been left over by programs that ended before.
    Looked { pages: u64 },
    /// The program queues a work item for the flusher.
    Queued,
    /// What the system's counters read.
    Counters { dirty: u64, writing: u64 },
    /// The flusher begins to run.
    FlusherRuns,
    /// A request ended.
    Ended { sector: u64, sectors: u64 },
    /// A file's times or its block map changed.
    Changed { inode: InodeId, data: bool },
    /// The file system changed a page of its own.
    FileSystemDirtied { task: Task, index: u64 },
    /// The file system itself wrote these sectors of its own.
    FileSystemWrote { sector: u64, sectors: u64 },
    /// The estimate of the device's rate was renewed by a timer.
    RatesRenewed,
    /// `mmap` answered with this address.
    Mapped { address: u64 },
    /// A page came into the page cache, in this page frame.
    Added {
        inode: InodeId,
        index: u64,
        frame: u64,
    },
}

/// A step and where it stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Recorded {
    pub(super) line: u64,
    pub(super) at_ns: u64,
    pub(super) jiffies: u64,
    pub(super) step: RecordedStep,
}

/// Reads a trace.
pub(super) struct Reader<'a> {
    pub(super) path: &'a Path,
    pub(super) files: &'a [RunFile],
    pub(super) jiffies: &'a Jiffies,
    /// Whether the device's own pages are a file system's.
    pub(super) has_file_system: bool,
}

impl Reader<'_> {
    /// The steps from the begin of the run to its end.
    pub(super) fn steps(&self, text: &str) -> Result<Vec<Recorded>, ConformError> {
        let inodes: BTreeMap<u64, InodeId> = (self.files.iter().zip(0..))
            .map(|(file, n)| (file.number, InodeId(n)))
            .collect();
        let mut steps: Vec<Recorded> = Vec::new();
        let mut begun = false;
        for (line, number) in text.lines().zip(1..) {
            let Some(fields) = Fields::of(line) else {
                continue;
            };
            match (fields.event, fields.rest.trim()) {
                ("mark", "BEGIN") => begun = true,
                ("mark", "END") => break,
                _ => {}
            }
            // A renewal inside the flusher's own work is no timer's.
            let renewed = |recorded: &mut Recorded| recorded.step == RecordedStep::RatesRenewed;
            if fields.event == "writepages_ret" {
                steps.pop_if(renewed);
            }
            if !begun {
                continue;
            }
            let malformed = || ConformError::Description {
                file: format!("{}:{number}", self.path.display()),
                message: format!("found {:?}, expected the fields of this event", line.trim()),
            };
            let step = match fields.event {
                name if name.starts_with("block_") => self.block_step(line, &fields),
                _ => self.step(&fields, &inodes).ok_or_else(malformed)?,
            };
            steps.extend(step.map(|step| Recorded {
                line: number,
                at_ns: fields.at_ns,
                jiffies: self.jiffies.at(fields.at_ns),
                step,
            }));
        }
        Ok(steps)
    }

    /// The step of a line; `None` if it is malformed.
    fn step(
        &self,
        fields: &Fields<'_>,
        inodes: &BTreeMap<u64, InodeId>,
    ) -> Option<Option<RecordedStep>> {
        let word = |name: &str| {
            let (_, rest) = fields.rest.split_once(name)?;
            rest.split([' ', ',']).next()
        };
        // In these events inode numbers are decimal.
        let inode = || {
            let number = word("ino=")?.parse::<u64>().ok()?;
            inodes.get(&number).copied()
        };
        let task = match fields.is_driver {
            true => Task::Program,
            false => Task::Flusher,
        };
        let step = match fields.event {
            "mark" => match fields.rest.trim().strip_prefix('L') {
                Some(digits) => RecordedStep::Call(digits.parse().ok()?),
                None => return Some(None),
            },
            "sys_mmap" if fields.rest.contains("-> ") => {
                let digits = fields.rest.rsplit("-> 0x").next()?;
                RecordedStep::Mapped {
                    address: u64::from_str_radix(digits.trim(), 16).ok()?,
                }
            }
            "writeback_dirty_folio" => {
                let index = fields.unsigned("index")?;
                match inode() {
                    None => return Some(None),
                    Some(InodeId(0)) if self.has_file_system => {
                        RecordedStep::FileSystemDirtied { task, index }
                    }
                    Some(inode) => RecordedStep::Took(task, Event::Dirty { inode, index }),
                }
            }
            // At the end of what the file system does for it.
            "writeback_dirty_inode" => {
                let flags = word("flags=").unwrap_or_default();
                match inode().filter(|_| flags.contains("I_DIRTY_SYNC")) {
                    Some(inode) => RecordedStep::Changed {
                        inode,
                        data: flags.contains("I_DIRTY_DATASYNC"),
                    },
                    None => return Some(None),
                }
            }
            "mm_filemap_add_to_page_cache" => match fields.inode(inodes)? {
                Some(inode) => RecordedStep::Added {
                    inode,
                    index: Event::page_of(fields.unsigned("ofs")?),
                    frame: fields.unsigned("pfn")?,
                },
                None => return Some(None),
            },
            "bdp" if fields.is_driver => RecordedStep::Looked {
                pages: fields.unsigned("pages_dirtied")?,
            },
            "global_dirty_state" => RecordedStep::Counters {
                dirty: fields.unsigned("dirty")?,
                writing: fields.unsigned("writeback")?,
            },
            "writeback_queue" if fields.is_driver => RecordedStep::Queued,
            "wb_workfn" => RecordedStep::FlusherRuns,
            "update_bw" if !fields.is_driver => RecordedStep::RatesRenewed,
            "over_bg" => {
                let over = fields.unsigned("ret")? != 0;
                RecordedStep::Took(Task::Flusher, Event::OverBackground { over })
            }
            "writeback_start" => {
                let reason = reason(word("reason=")?)?;
                RecordedStep::Took(Task::Flusher, Event::FlushStart { reason })
            }
            "writeback_queue_io" => {
                let reason = reason(word("reason=")?)?;
                let moved = fields.unsigned("enqueue")?;
                RecordedStep::Took(Task::Flusher, Event::QueueIo { reason, moved })
            }
            "writeback_single_inode_start" if !fields.is_driver => match inode() {
                Some(inode) => {
                    let pages = fields.number("to_write")?;
                    RecordedStep::Took(Task::Flusher, Event::WriteInode { inode, pages })
                }
                None => return Some(None),
            },
            "writeback_single_inode" if !fields.is_driver => match inode() {
                Some(inode) => {
                    let pages = fields.number("wrote")?;
                    RecordedStep::Took(Task::Flusher, Event::WroteInode { inode, pages })
                }
                None => return Some(None),
            },
            _ => return Some(None),
        };
        Some(Some(step))
    }

    /// What a line of the block layer tells: bios, and the end of requests.
    fn block_step(&self, line: &str, fields: &Fields<'_>) -> Option<RecordedStep> {
        let Ok(Line::Event(event)) = parse_line(line) else {
            return None;
        };
        match event.kind {
            EventKind::BioQueue(bio) => {
                let (sector, sectors) = (bio.sector.0, u64::from(bio.sectors));
                let is_own = self.has_file_system && !self.is_data(sector) && sectors > 0;
                let task = match fields.is_driver {
                    true => Task::Program,
                    false => Task::Flusher,
                };
                let op = bio.rwbs.op?;
                if is_own && (task == Task::Program || op == Op::Read) {
                    let writes = op == Op::Write;
                    return writes.then_some(RecordedStep::FileSystemWrote { sector, sectors });
                }
                Some(RecordedStep::Took(
                    task,
                    Event::Submit(compared_bio(Bio {
                        op,
                        flags: bio.rwbs.flags,
                        sector: bio.sector,
                        size_sectors: bio.sectors,
                    })),
                ))
            }
            EventKind::RqComplete(rq) => Some(RecordedStep::Ended {
                sector: rq.sector.0,
                sectors: u64::from(rq.sectors),
            }),
            _ => None,
        }
    }

    fn is_data(&self, sector: u64) -> bool {
        let holds = |&(_, bytes, first): &(u64, u64, u64)| {
            (first..first + bytes.div_ceil(512)).contains(&sector)
        };
        let mut files = self.files.iter().skip(1);
        files.any(|file| file.extents.iter().any(holds))
    }
}

/// A bio without what is not compared: who dirtied a page is not kept with it, so
/// that metadata has no letter of its own.
pub(super) fn compared_bio(bio: Bio) -> Bio {
    let flags = shown(bio.flags).without(BioFlags::META);
    Bio { flags, ..bio }
}

fn reason(word: &str) -> Option<Reason> {
    Some(match word {
        "background" => Reason::Background,
        "sync" => Reason::Sync,
        "periodic" => Reason::Periodic,
        "laptop_timer" => Reason::LaptopTimer,
        _ => return None,
    })
}

/// Where the file system put what the program wrote to new blocks: told from the
/// recorded writes, as the new pages, in order, have the blocks that no other file
/// has, in the order in which they were written.
pub(super) fn place_new_blocks(files: &mut [RunFile], steps: &[Recorded], text: &str) {
    let mut new_pages: BTreeMap<InodeId, Vec<u64>> = BTreeMap::new();
    for recorded in steps {
        if let RecordedStep::Took(Task::Program, Event::Dirty { inode, index }) = recorded.step {
            let file = &files[inode.0 as usize];
            let pages = new_pages.entry(inode).or_default();
            let is_new = inode.0 > 0 && file.extent(index * PAGE_BYTES).sector.is_none();
            if is_new && !pages.contains(&index) {
                pages.push(index);
            }
        }
    }
    new_pages.retain(|_, pages| !pages.is_empty());
    // With several files that grow it cannot be told whose a block is.
    let (Some((inode, mut pages)), None) = (new_pages.pop_first(), new_pages.pop_first()) else {
        return;
    };
    pages.sort_unstable();
    // A file is written in its own order.
    let mut sectors: Vec<u64> = Vec::new();
    for line in text.lines() {
        let Ok(Line::Event(event)) = parse_line(line) else {
            continue;
        };
        if let EventKind::BioQueue(bio) = event.kind
            && bio.rwbs.op == Some(Op::Write)
            && !bio.rwbs.flags.has(BioFlags::META)
        {
            for sector in (bio.sector.0..bio.sector.0 + u64::from(bio.sectors)).step_by(8) {
                if !sectors.contains(&sector) {
                    sectors.push(sector);
                }
            }
        }
    }
    for file in files.iter().skip(1) {
        for &(_, bytes, first) in &file.extents {
            sectors.retain(|sector| !(first..first + bytes / 512).contains(sector));
        }
    }
    let placed = pages.into_iter().zip(sectors);
    files[inode.0 as usize]
        .extents
        .extend(placed.map(|(page, sector)| (page * PAGE_BYTES, PAGE_BYTES, sector)));
}
