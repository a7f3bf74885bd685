//! Latency statistics over a window of time (`block/blk-stat.c`).

use crate::units::{JIFFY_NS, Nanos, jiffies, jiffy_start, timer_end};

/// The time at which a kernel timer set to `ticks` from now runs.
pub(super) fn wheel_timer(now: Nanos, ticks: i64) -> Nanos {
    jiffy_start(timer_end(jiffies(now), ticks))
}

/// Latencies in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Samples {
    pub(super) count: u64,
    /// The smallest latency, in nanoseconds.
    pub(super) min_ns: u64,
}

impl Samples {
    fn add(&mut self, latency_ns: u64) {
        self.min_ns = match self.count {
            0 => latency_ns,
            _ => self.min_ns.min(latency_ns),
        };
        self.count += 1;
    }
}

/// A window that is open until its timer expires, with reads first, then writes.
#[derive(Clone, Debug, Default)]
pub(super) struct Window {
    samples: [Samples; 2],
    ends: Option<Nanos>,
}

impl Window {
    /// Whether it is open (`blk_stat_is_active`).
    pub(super) fn is_open(&self) -> bool {
        self.ends.is_some()
    }

    /// The time at which it ends; [`Nanos::MAX`] if it is not open.
    pub(super) fn ends(&self) -> Nanos {
        self.ends.unwrap_or(Nanos::MAX)
    }

    /// Opens it for `span_ns` (`blk_stat_activate_nsecs`).
    pub(super) fn open(&mut self, now: Nanos, span_ns: u64) {
        self.ends = Some(wheel_timer(now, (span_ns / JIFFY_NS) as i64));
    }

    /// Records a latency, if the window is open.
    pub(super) fn add(&mut self, is_write: bool, latency_ns: u64) {
        if self.is_open() {
            self.samples[is_write as usize].add(latency_ns);
        }
    }

    /// Returns the samples if the window has ended by now.
    pub(super) fn take_ended(&mut self, now: Nanos) -> Option<[Samples; 2]> {
        self.ends.take_if(|ends| *ends <= now)?;
        Some(core::mem::take(&mut self.samples))
    }
}
