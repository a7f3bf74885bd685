//! The order in which each process of a trace submitted I/Os and saw them end,
//! without its times.
//!
//! An I/O of a process goes as soon as all I/Os of that process have ended
//! that had ended in the trace before it came. What a process had in flight
//! at once it has in flight at once again, and a chain stays a chain; time
//! spent thinking is left out.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use blklab_blk::Op;
use blklab_workload::trace::{IoEnd, Item, Reader, TraceError, TraceRecord};

/// Most actions that are read ahead of the replay, so that memory does not grow with
/// the trace where one process lags.
const ACTIONS_MAX: usize = 1 << 16;

/// What a process of the trace did.
#[derive(Clone, Copy, Debug)]
enum Action {
    /// It submitted the I/O of this number.
    Submit(TraceRecord, u64),
    /// It saw the I/O of this number end.
    AwaitEnd(u64),
}

/// A process of the trace.
#[derive(Debug, Default)]
struct TracedProcess {
    /// What it has still to do in the replay.
    actions: VecDeque<Action>,
    /// It waits for this I/O to end.
    awaits: Option<u64>,
    is_ready: bool,
}

/// An I/O that has not ended in the trace.
#[derive(Debug)]
struct OpenIo {
    io: u64,
    pid: u32,
    op: Op,
    sectors: u64,
    sectors_left: u64,
}

/// A drive in the trace's own time.
#[derive(Debug, Default)]
struct TracedDrive {
    /// By first sector.
    open: BTreeMap<u64, Vec<OpenIo>>,
    /// Flushes that have not ended, and their processes.
    flushes: VecDeque<(u64, u32)>,
    longest_sectors: u64,
}

/// What all processes of the trace have still to do, read as far as needed.
pub(super) struct Dependencies {
    reader: Reader,
    is_over: bool,
    processes: BTreeMap<u32, TracedProcess>,
    /// Processes whose next I/O waits for nothing.
    ready: VecDeque<u32>,
    /// Actions of all processes.
    actions: usize,
    drives: BTreeMap<u32, TracedDrive>,
    /// Submitted in the replay and not ended.
    in_flight: BTreeSet<u64>,
    next_io: u64,
}

impl Dependencies {
    pub(super) fn new(reader: Reader) -> Dependencies {
        Dependencies {
            reader,
            is_over: false,
            processes: BTreeMap::new(),
            ready: VecDeque::new(),
            actions: 0,
            drives: BTreeMap::new(),
            in_flight: BTreeSet::new(),
            next_io: 0,
        }
    }

    pub(super) fn notes(&self) -> Vec<String> {
        self.reader.notes()
    }

    /// Reads on until a process can do something, or enough is known.
    pub(super) fn prepare(&mut self) -> Result<(), TraceError> {
        while self.ready.is_empty() && !self.is_over && self.actions < ACTIONS_MAX {
            match self.reader.next_item()? {
                Some(Item::Arrival(record)) => self.submitted(record),
                Some(Item::Ended(end)) => self.recorded_end(&end),
                None => self.is_over = true,
            }
        }
        Ok(())
    }

    /// Whether an I/O can go now.
    pub(super) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// The next I/O that can go, and its number.
    pub(super) fn take(&mut self) -> Option<(TraceRecord, u64)> {
        let pid = *self.ready.front()?;
        let process = self.processes.get_mut(&pid)?;
        let Some(Action::Submit(record, io)) = process.actions.pop_front() else {
            return None;
        };
        self.actions -= 1;
        self.in_flight.insert(io);
        process.is_ready = false;
        self.ready.pop_front();
        self.follow(pid);
        Some((record, io))
    }

    /// An I/O of the replay ended.
    pub(super) fn ended(&mut self, io: u64, pid: u32) {
        self.in_flight.remove(&io);
        let Some(process) = self.processes.get_mut(&pid) else {
            return;
        };
        if process.awaits == Some(io) {
            process.awaits = None;
            self.follow(pid);
        }
    }

    fn submitted(&mut self, record: TraceRecord) {
        let io = self.next_io;
        self.next_io += 1;
        let drive = self.drives.entry(record.device).or_default();
        if record.op == Op::Flush {
            drive.flushes.push_back((io, record.pid));
        } else {
            drive.longest_sectors = drive.longest_sectors.max(u64::from(record.sectors));
            drive.open.entry(record.sector.0).or_default().push(OpenIo {
                io,
                pid: record.pid,
                op: record.op,
                sectors: record.sectors.into(),
                sectors_left: record.sectors.into(),
            });
        }
        self.push(record.pid, Action::Submit(record, io));
    }

    /// An extent ended in the trace: that of several I/Os that were merged, or
    /// a part of one that was cut.
    fn recorded_end(&mut self, end: &IoEnd) {
        let Some(drive) = self.drives.get_mut(&end.device) else {
            return;
        };
        let mut done: Vec<(u64, u32)> = Vec::new();
        if end.op == Op::Flush {
            done.extend(drive.flushes.pop_front());
        }
        let from = end.sector.0;
        let to = from.saturating_add(end.sectors.into());
        let mut emptied = Vec::new();
        for (&start, ios) in drive
            .open
            .range_mut(from.saturating_sub(drive.longest_sectors)..to)
        {
            for open in ios.iter_mut().filter(|open| open.op == end.op) {
                // Parts of one that was cut may end in any order.
                let shared = (start + open.sectors)
                    .min(to)
                    .saturating_sub(start.max(from));
                open.sectors_left = open.sectors_left.saturating_sub(shared);
                if open.sectors_left == 0 {
                    done.push((open.io, open.pid));
                }
            }
            ios.retain(|open| open.sectors_left > 0);
            if ios.is_empty() {
                emptied.push(start);
            }
        }
        for start in emptied {
            drive.open.remove(&start);
        }
        for (io, pid) in done {
            self.push(pid, Action::AwaitEnd(io));
        }
    }

    fn push(&mut self, pid: u32, action: Action) {
        self.processes
            .entry(pid)
            .or_default()
            .actions
            .push_back(action);
        self.actions += 1;
        self.follow(pid);
    }

    /// Passes over ends that have been in the replay too. A process whose next
    /// action is to submit is ready.
    fn follow(&mut self, pid: u32) {
        let Some(process) = self.processes.get_mut(&pid) else {
            return;
        };
        while process.awaits.is_none() && !process.is_ready {
            match process.actions.front() {
                None => return,
                Some(Action::Submit(..)) => {
                    process.is_ready = true;
                    self.ready.push_back(pid);
                }
                Some(&Action::AwaitEnd(io)) => {
                    process.actions.pop_front();
                    self.actions -= 1;
                    if self.in_flight.contains(&io) {
                        process.awaits = Some(io);
                    }
                }
            }
        }
    }
}
