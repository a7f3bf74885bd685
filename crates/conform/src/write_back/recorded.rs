//! What was recorded of write-back: who did what, in the order of the trace.

use std::collections::BTreeMap;
use std::path::Path;

use blklab_blk::{BioFlags, Op};
use blklab_fs::write_back::Reason;
use blklab_fs::{Bio, Event, InodeId, PAGE_BYTES};
use blklab_workload::trace::tracefs::{EventKind, Line, parse_line};

use super::throttle::Jiffies;
use crate::ConformError;
use crate::page_cache::{Fields, PAGE_SECTORS, RunFile, is_data, shown};

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
    /// The file system itself wrote these sectors of its own, or does not need them any more.
    FileSystemCleaned { sector: u64, sectors: u64 },
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
    /// The size of its inodes there.
    pub(super) inode_bytes: u64,
}

impl Reader<'_> {
    /// The steps from the begin of the run to its end.
    pub(super) fn steps(&self, text: &str) -> Result<Vec<Recorded>, ConformError> {
        let inodes: BTreeMap<u64, InodeId> = (self.files.iter().zip(0..))
            .map(|(file, n)| (file.number, InodeId(n)))
            .collect();
        let inode_pages = self.inode_pages(text);
        let map_pages = self.map_pages(text);
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
            let at = |step| Recorded {
                line: number,
                at_ns: fields.at_ns,
                jiffies: self.jiffies.at(fields.at_ns),
                step,
            };
            if fields.event == "writeback_dirty_inode_start" && fields.rest.contains("I_FREEING") {
                let of = map_pages
                    .iter()
                    .filter(|(_, of)| Some(**of) == number_of(&fields));
                let forgotten = of.map(|(page, _)| RecordedStep::FileSystemCleaned {
                    sector: page * PAGE_SECTORS,
                    sectors: PAGE_SECTORS,
                });
                steps.extend(forgotten.map(at));
            }
            let step = match fields.event {
                name if name.starts_with("block_") => self.block_step(line, &fields),
                "writeback_dirty_inode_start" => self.inode_changes(&fields, &inode_pages),
                _ => self.step(&fields, &inodes).ok_or_else(malformed)?,
            };
            steps.extend(step.map(at));
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
        let task = task(fields);
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
                let is_own = self.has_file_system && !is_data(self.files, sector) && sectors > 0;
                let task = task(fields);
                let op = bio.rwbs.op?;
                if is_own && (task == Task::Program || op == Op::Read) {
                    let writes = op == Op::Write;
                    return writes.then_some(RecordedStep::FileSystemCleaned { sector, sectors });
                }
                if is_own && has_small_blocks(self.files) {
                    return None;
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

    /// What a changed inode makes dirty. No event shows it while its page is dirty for
    /// another reason, or since a block of it was written alone.
    fn inode_changes(
        &self,
        fields: &Fields<'_>,
        inode_pages: &BTreeMap<u64, u64>,
    ) -> Option<RecordedStep> {
        let (_, flags) = fields.rest.split_once("flags=")?;
        let index = *inode_pages.get(&self.table_block(number_of(fields)?))?;
        let changes = flags.contains("I_DIRTY_SYNC") || flags.contains("I_DIRTY_DATASYNC");
        let task = task(fields);
        changes.then_some(RecordedStep::FileSystemDirtied { task, index })
    }

    /// The pages of the device that became dirty as the program added blocks to an inode, and
    /// that lie among files' data: they map its blocks (indirect blocks), and are forgotten
    /// with it (`ext4_forget`).
    fn map_pages(&self, text: &str) -> BTreeMap<u64, u64> {
        let data = self.files.iter().skip(1).flat_map(|file| &file.extents);
        let first_data = data.map(|extent| extent.2 / PAGE_SECTORS).min();
        let mut pages = BTreeMap::new();
        let mut adds_to = None;
        for fields in text.lines().filter_map(Fields::of) {
            let device = self.files.first().map(|device| device.number);
            match fields.event {
                _ if !self.has_file_system || !fields.is_driver => {}
                "writeback_dirty_inode_start" => adds_to = number_of(&fields),
                "writeback_dirty_folio" if number_of(&fields) == device => {
                    if let (Some(page), Some(number)) = (fields.unsigned("index"), adds_to)
                        && first_data.is_some_and(|first| page >= first)
                    {
                        pages.insert(page, number);
                    }
                }
                _ => {}
            }
        }
        pages
    }

    /// The block of an inode table that holds an inode, counted from the first one.
    fn table_block(&self, number: u64) -> u64 {
        let block_bytes = self
            .files
            .get(1)
            .map_or(PAGE_BYTES, |file| file.inode.block_bytes);
        number.saturating_sub(1) / (block_bytes / self.inode_bytes).max(1)
    }

    /// The pages of the device in which the file system has its inodes, by the blocks of
    /// inode tables: those that become dirty as an inode does, and those that are written
    /// with it.
    fn inode_pages(&self, text: &str) -> BTreeMap<u64, u64> {
        let mut pages = BTreeMap::new();
        let mut changes = None;
        for (line, fields) in text
            .lines()
            .filter_map(|line| Some((line, Fields::of(line)?)))
        {
            match fields.event {
                "writeback_dirty_inode_start" | "writeback_write_inode_start" => {
                    changes = number_of(&fields).map(|number| (number, fields.is_driver));
                }
                "writeback_dirty_inode" | "writeback_write_inode" => changes = None,
                "writeback_dirty_folio" if self.has_file_system => {
                    if let (Some((number, true)), Some(index)) = (changes, fields.unsigned("index"))
                        && fields.is_driver
                        && number_of(&fields) == self.files.first().map(|device| device.number)
                    {
                        pages.insert(self.table_block(number), index);
                    }
                }
                "block_bio_queue" => {
                    if let (Some((number, by_driver)), Ok(Line::Event(event))) =
                        (changes, parse_line(line))
                        && let EventKind::BioQueue(bio) = event.kind
                        && by_driver == fields.is_driver
                        && bio.rwbs.op == Some(Op::Write)
                    {
                        pages.insert(self.table_block(number), bio.sector.0 / PAGE_SECTORS);
                    }
                }
                _ => {}
            }
        }
        pages
    }
}

/// Who took the step of a line.
fn task(fields: &Fields<'_>) -> Task {
    match fields.is_driver {
        true => Task::Program,
        false => Task::Flusher,
    }
}

/// The inode of a line in which it is decimal.
fn number_of(fields: &Fields<'_>) -> Option<u64> {
    let (_, rest) = fields.rest.split_once("ino=")?;
    rest.split([' ', ',']).next()?.parse().ok()
}

/// Whether a page holds several blocks, so that what dirties a page of the file system's
/// own does not tell which block.
pub(super) fn has_small_blocks(files: &[RunFile]) -> bool {
    let mut files = files.iter().skip(1);
    files.any(|file| file.inode.block_bytes < PAGE_BYTES)
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
