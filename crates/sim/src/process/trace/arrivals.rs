//! When the next I/O of a trace arrives.

use blklab_blk::Nanos;
use blklab_workload::trace::{Reader, TraceRecord};

use super::dependencies::Dependencies;
use crate::setup::{ReplayMode, SetupError};

/// The I/Os of a trace, and what each of them waits for.
pub(super) enum Arrivals {
    /// The times of the trace.
    Open {
        reader: Reader,
        speed: f64,
        next: Option<TraceRecord>,
    },
    /// A place among those in flight.
    Closed {
        reader: Reader,
        depth: u32,
        next: Option<TraceRecord>,
    },
    /// The I/Os of its process that had ended before it.
    Dependencies(Box<Dependencies>),
}

impl Arrivals {
    pub(super) fn new(
        mode: ReplayMode,
        reader: Reader,
        file: &str,
    ) -> Result<Arrivals, SetupError> {
        let mut arrivals = match mode {
            ReplayMode::Open { speed } => Arrivals::Open {
                reader: reader.within(longest_trace_ns(speed)),
                speed,
                next: None,
            },
            ReplayMode::Closed { depth } => Arrivals::Closed {
                reader,
                depth,
                next: None,
            },
            ReplayMode::Dependencies => {
                let mut reader = reader.with_ends();
                if !reader.has_ends().map_err(SetupError::trace)? {
                    return Err(SetupError::trace_without_ends(file, reader.format()));
                }
                Arrivals::Dependencies(Box::new(Dependencies::new(reader)))
            }
        };
        arrivals.read_next()?;
        Ok(arrivals)
    }

    fn read_next(&mut self) -> Result<(), SetupError> {
        if let Arrivals::Open { reader, next, .. } | Arrivals::Closed { reader, next, .. } = self {
            *next = reader.next().transpose().map_err(SetupError::trace)?;
        }
        Ok(())
    }

    /// When the next I/O arrives: [`Nanos::MAX`] where that is not known yet, or
    /// never.
    pub(super) fn next(&mut self, now: Nanos, in_flight: u32) -> Result<Nanos, SetupError> {
        let at = match self {
            Arrivals::Open { next, speed, .. } => {
                next.map(|record| scaled(record.at_ns, *speed).max(now))
            }
            Arrivals::Closed { next, depth, .. } => {
                next.filter(|_| in_flight < *depth).map(|_| now)
            }
            Arrivals::Dependencies(dependencies) => {
                dependencies.prepare().map_err(SetupError::trace)?;
                dependencies.has_ready().then_some(now)
            }
        };
        Ok(at.unwrap_or(Nanos::MAX))
    }

    /// When the next I/O is due by the trace, however late it is; `None` where it has no time of
    /// its own.
    pub(super) fn next_due(&self) -> Option<Nanos> {
        match self {
            Arrivals::Open { next, speed, .. } => next.map(|record| scaled(record.at_ns, *speed)),
            Arrivals::Closed { .. } | Arrivals::Dependencies(_) => None,
        }
    }

    /// Takes the next I/O and its number.
    pub(super) fn take(&mut self) -> Result<Option<(TraceRecord, u64)>, SetupError> {
        let taken = match self {
            Arrivals::Open { next, .. } | Arrivals::Closed { next, .. } => {
                next.take().map(|record| (record, 0))
            }
            Arrivals::Dependencies(dependencies) => return Ok(dependencies.take()),
        };
        self.read_next()?;
        Ok(taken)
    }

    /// An I/O of the replay ended.
    pub(super) fn ended(&mut self, number: u64, pid: u32) {
        if let Arrivals::Dependencies(dependencies) = self {
            dependencies.ended(number, pid);
        }
    }

    /// What a reader of the result should know about the trace.
    pub(super) fn notes(&self) -> Vec<String> {
        match self {
            Arrivals::Open { reader, .. } | Arrivals::Closed { reader, .. } => reader.notes(),
            Arrivals::Dependencies(dependencies) => dependencies.notes(),
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

/// A time of the trace when its time passes `speed` times as fast.
fn scaled(at_ns: u64, speed: f64) -> Nanos {
    if speed == 1.0 {
        // Exact beyond what a float can hold.
        return Nanos(at_ns);
    }
    Nanos((at_ns as f64 / speed) as u64)
}
