//! What each process of a trace did, without its times: which I/Os it
//! submitted, and between them, which earlier ones it saw end.
//!
//! An I/O of a process goes as soon as all I/Os of that process have ended
//! that had ended in the trace before it came. What a process had in flight
//! at once it has in flight at once again, and a chain stays a chain; time
//! spent thinking is left out.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use blklab_blk::Op;
use blklab_workload::trace::{IoEnd, Item, Reader, TraceError, TraceRecord};

/// Steps read ahead of the replay. A process that lags is waited for when so
/// many have gathered, so that memory does not grow with the trace.
const STEPS_MAX: usize = 1 << 16;

/// What a process does next.
#[derive(Clone, Copy, Debug)]
enum Step {
    Submit(TraceRecord, u64),
    AwaitEnd(u64),
}

/// A process.
#[derive(Debug, Default)]
struct Script {
    steps: VecDeque<Step>,
    /// It waits for this I/O to end.
    awaits: Option<u64>,
    is_ready: bool,
}

/// An I/O that has not ended in the trace.
#[derive(Debug)]
struct Open {
    io: u64,
    pid: u32,
    op: Op,
    sectors: u64,
    sectors_left: u64,
}

/// A drive in the trace's own time.
#[derive(Debug, Default)]
struct Recorded {
    open: BTreeMap<u64, Vec<Open>>,
    flushes: VecDeque<(u64, u32)>,
    longest: u64,
}

/// The scripts of all processes, read from the trace as far as needed.
pub(super) struct Scripts {
    reader: Reader,
    is_over: bool,
    processes: BTreeMap<u32, Script>,
    ready: VecDeque<u32>,
    steps: usize,
    drives: BTreeMap<u32, Recorded>,
    /// Submitted in the replay and not ended.
    in_flight: BTreeSet<u64>,
    next_io: u64,
}

impl Scripts {
    pub(super) fn new(reader: Reader) -> Scripts {
        Scripts {
            reader,
            is_over: false,
            processes: BTreeMap::new(),
            ready: VecDeque::new(),
            steps: 0,
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
        while self.ready.is_empty() && !self.is_over && self.steps < STEPS_MAX {
            match self.reader.next_item()? {
                Some(Item::Arrival(record)) => self.arrived(record),
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
        let script = self.processes.get_mut(&pid)?;
        let Some(Step::Submit(record, io)) = script.steps.pop_front() else {
            return None;
        };
        self.steps -= 1;
        self.in_flight.insert(io);
        script.is_ready = false;
        self.ready.pop_front();
        self.follow(pid);
        Some((record, io))
    }

    /// An I/O of the replay ended.
    pub(super) fn ended(&mut self, io: u64, pid: u32) {
        self.in_flight.remove(&io);
        let Some(script) = self.processes.get_mut(&pid) else {
            return;
        };
        if script.awaits == Some(io) {
            script.awaits = None;
            self.follow(pid);
        }
    }

    fn arrived(&mut self, record: TraceRecord) {
        let io = self.next_io;
        self.next_io += 1;
        let drive = self.drives.entry(record.device).or_default();
        if record.op == Op::Flush {
            drive.flushes.push_back((io, record.pid));
        } else {
            drive.longest = drive.longest.max(u64::from(record.sectors));
            drive.open.entry(record.sector.0).or_default().push(Open {
                io,
                pid: record.pid,
                op: record.op,
                sectors: record.sectors.into(),
                sectors_left: record.sectors.into(),
            });
        }
        self.step(record.pid, Step::Submit(record, io));
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
        for (&start, ios) in drive.open.range_mut(from.saturating_sub(drive.longest)..to) {
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
            self.step(pid, Step::AwaitEnd(io));
        }
    }

    fn step(&mut self, pid: u32, step: Step) {
        self.processes.entry(pid).or_default().steps.push_back(step);
        self.steps += 1;
        self.follow(pid);
    }

    /// Passes over ends that have been; a process before a submission is
    /// ready.
    fn follow(&mut self, pid: u32) {
        let Some(script) = self.processes.get_mut(&pid) else {
            return;
        };
        while script.awaits.is_none() && !script.is_ready {
            match script.steps.front() {
                None => return,
                Some(Step::Submit(..)) => {
                    script.is_ready = true;
                    self.ready.push_back(pid);
                }
                Some(&Step::AwaitEnd(io)) => {
                    script.steps.pop_front();
                    self.steps -= 1;
                    if self.in_flight.contains(&io) {
                        script.awaits = Some(io);
                    }
                }
            }
        }
    }
}
