//! When the next I/O of a trace goes.

use blklab_blk::Nanos;
use blklab_workload::trace::{Reader, TraceRecord};

use super::scripts::Scripts;
use crate::setup::{ReplayMode, SetupError};

/// Where I/Os come from, and when.
pub(super) enum Pace {
    /// By the trace's times.
    Timed {
        reader: Reader,
        speed: f64,
        next: Option<TraceRecord>,
    },
    /// As many at once as fit.
    Closed {
        reader: Reader,
        depth: u32,
        next: Option<TraceRecord>,
    },
    /// By what waited for what.
    Scripts(Box<Scripts>),
}

impl Pace {
    pub(super) fn new(mode: ReplayMode, reader: Reader, file: &str) -> Result<Pace, SetupError> {
        let mut pace = match mode {
            ReplayMode::Open { speed } => Pace::Timed {
                reader: reader.within(longest_trace_ns(speed)),
                speed,
                next: None,
            },
            ReplayMode::Closed { depth } => Pace::Closed {
                reader,
                depth,
                next: None,
            },
            ReplayMode::Dependencies => {
                let mut reader = reader.with_ends();
                if !reader.has_ends().map_err(SetupError::trace)? {
                    return Err(SetupError::untold(file, reader.format()));
                }
                Pace::Scripts(Box::new(Scripts::new(reader)))
            }
        };
        pace.read_next()?;
        Ok(pace)
    }

    fn read_next(&mut self) -> Result<(), SetupError> {
        if let Pace::Timed { reader, next, .. } | Pace::Closed { reader, next, .. } = self {
            *next = reader.next().transpose().map_err(SetupError::trace)?;
        }
        Ok(())
    }

    /// When the next I/O may go; `MAX` where that is not known yet, or never.
    pub(super) fn next_arrival(&mut self, now: Nanos, in_flight: u32) -> Result<Nanos, SetupError> {
        let at = match self {
            Pace::Timed { next, speed, .. } => {
                next.map(|record| scaled(record.at_ns, *speed).max(now))
            }
            Pace::Closed { next, depth, .. } => next.filter(|_| in_flight < *depth).map(|_| now),
            Pace::Scripts(scripts) => {
                scripts.prepare().map_err(SetupError::trace)?;
                scripts.has_ready().then_some(now)
            }
        };
        Ok(at.unwrap_or(Nanos::MAX))
    }

    /// The next I/O and its number.
    pub(super) fn take(&mut self) -> Result<Option<(TraceRecord, u64)>, SetupError> {
        let taken = match self {
            Pace::Timed { next, .. } | Pace::Closed { next, .. } => {
                next.take().map(|record| (record, 0))
            }
            Pace::Scripts(scripts) => return Ok(scripts.take()),
        };
        self.read_next()?;
        Ok(taken)
    }

    /// An I/O ended.
    pub(super) fn ended(&mut self, number: u64, pid: u32) {
        if let Pace::Scripts(scripts) = self {
            scripts.ended(number, pid);
        }
    }

    /// What a reader of the result should know about the trace.
    pub(super) fn notes(&self) -> Vec<String> {
        match self {
            Pace::Timed { reader, .. } | Pace::Closed { reader, .. } => reader.notes(),
            Pace::Scripts(scripts) => scripts.notes(),
        }
    }
}

/// How long a replay may last, in nanoseconds: the models' clocks count up to
/// twice that, and what is under way at the end needs time too.
const LONGEST_NS: u64 = 1_000_000_000 * 1_000_000_000;

/// The longest trace that at this speed takes no more than that.
fn longest_trace_ns(speed: f64) -> u64 {
    (LONGEST_NS as f64 * speed) as u64
}

/// A time of the trace at another speed.
fn scaled(at_ns: u64, speed: f64) -> Nanos {
    if speed == 1.0 {
        // Exact beyond what a float can hold.
        return Nanos(at_ns);
    }
    Nanos((at_ns as f64 / speed) as u64)
}
