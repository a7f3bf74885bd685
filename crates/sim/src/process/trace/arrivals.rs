//! When the next I/O of a trace arrives.

use blklab_blk::Nanos;
use blklab_workload::trace::{Reader, TraceRecord};
use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{RngCore, SeedableRng};

use super::dependencies::Dependencies;
use crate::setup::{Replay, ReplayMode, SetupError};

/// The longest random delay of an arrival: the clocks of most traces tell no more.
const JITTER_NS: u64 = 1000;

/// The I/Os of a trace, and when each of them arrives.
pub(super) struct Arrivals {
    waits_for: WaitsFor,
    /// What each arrival is delayed by, if by anything.
    jitter: Option<SplitMix64>,
    /// When the next I/O arrives, once that is known.
    next_at: Option<Nanos>,
    /// Nothing more arrives.
    is_stopped: bool,
}

/// The I/Os of a trace, and what each of them waits for.
enum WaitsFor {
    /// The times of the trace.
    Time {
        reader: Reader,
        speed: f64,
        next: Option<TraceRecord>,
    },
    /// A place among those in flight.
    Place {
        reader: Reader,
        depth: u32,
        next: Option<TraceRecord>,
    },
    /// The I/Os of its process that had ended before it.
    Ends(Box<Dependencies>),
}

impl Arrivals {
    pub(super) fn new(replay: Replay, reader: Reader, file: &str) -> Result<Arrivals, SetupError> {
        let waits_for = match replay.mode {
            ReplayMode::Open { speed } => WaitsFor::Time {
                reader: reader.within(longest_trace_ns(speed)),
                speed,
                next: None,
            },
            ReplayMode::Closed { depth } => WaitsFor::Place {
                reader,
                depth,
                next: None,
            },
            ReplayMode::Dependencies => {
                let mut reader = reader.with_ends();
                if !reader.has_ends().map_err(SetupError::trace)? {
                    return Err(SetupError::trace_without_ends(file, reader.format()));
                }
                WaitsFor::Ends(Box::new(Dependencies::new(reader)))
            }
        };
        let mut arrivals = Arrivals {
            waits_for,
            jitter: replay.jitter.map(SplitMix64::seed_from_u64),
            next_at: None,
            is_stopped: false,
        };
        arrivals.read_next()?;
        Ok(arrivals)
    }

    fn read_next(&mut self) -> Result<(), SetupError> {
        if let WaitsFor::Time { reader, next, .. } | WaitsFor::Place { reader, next, .. } =
            &mut self.waits_for
        {
            *next = reader.next().transpose().map_err(SetupError::trace)?;
        }
        Ok(())
    }

    /// Lets nothing more arrive.
    pub(super) fn stop(&mut self) {
        self.is_stopped = true;
    }

    /// When the next I/O arrives: [`Nanos::MAX`] where that is not known yet, or
    /// never.
    pub(super) fn next(&mut self, now: Nanos, in_flight: u32) -> Result<Nanos, SetupError> {
        if self.is_stopped {
            return Ok(Nanos::MAX);
        }
        if self.next_at.is_none() {
            self.next_at = self.waits_until(now, in_flight)?.map(|at| {
                let delay_ns = self
                    .jitter
                    .as_mut()
                    .map_or(0, |random| random.next_u64() % JITTER_NS);
                Nanos(at.0.saturating_add(delay_ns))
            });
        }
        Ok(self.next_at.map_or(Nanos::MAX, |at| at.max(now)))
    }

    /// When what the next I/O waits for has happened; `None` where that is not known yet, or
    /// there is no I/O.
    fn waits_until(&mut self, now: Nanos, in_flight: u32) -> Result<Option<Nanos>, SetupError> {
        Ok(match &mut self.waits_for {
            WaitsFor::Time { .. } => self.next_due(),
            WaitsFor::Place { next, depth, .. } => next.filter(|_| in_flight < *depth).map(|_| now),
            WaitsFor::Ends(dependencies) => {
                dependencies.prepare().map_err(SetupError::trace)?;
                dependencies.has_ready().then_some(now)
            }
        })
    }

    /// When the next I/O is due by the trace, however late it is; `None` where it has no time of
    /// its own.
    pub(super) fn next_due(&self) -> Option<Nanos> {
        match &self.waits_for {
            WaitsFor::Time { next, speed, .. } => next.map(|record| scaled(record.at_ns, *speed)),
            WaitsFor::Place { .. } | WaitsFor::Ends(_) => None,
        }
    }

    /// Takes the next I/O and its number.
    pub(super) fn take(&mut self) -> Result<Option<(TraceRecord, u64)>, SetupError> {
        self.next_at = None;
        let taken = match &mut self.waits_for {
            WaitsFor::Time { next, .. } | WaitsFor::Place { next, .. } => {
                next.take().map(|record| (record, 0))
            }
            WaitsFor::Ends(dependencies) => return Ok(dependencies.take()),
        };
        self.read_next()?;
        Ok(taken)
    }

    /// An I/O of the replay ended.
    pub(super) fn ended(&mut self, number: u64, pid: u32) {
        if let WaitsFor::Ends(dependencies) = &mut self.waits_for {
            dependencies.ended(number, pid);
        }
    }

    /// What a reader of the result should know about the trace.
    pub(super) fn notes(&self) -> Vec<String> {
        match &self.waits_for {
            WaitsFor::Time { reader, .. } | WaitsFor::Place { reader, .. } => reader.notes(),
            WaitsFor::Ends(dependencies) => dependencies.notes(),
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
