//! Latencies of a window of time (`block/blk-stat.c`).

use crate::units::{JIFFY_NS, Nanos, jiffies, jiffy_start};

/// When a timer of the kernel's runs that is set to so many ticks from now. It counts
/// whole ticks and never ends early, so it is one tick late; where it is far off it
/// ends with a multiple of 8 ticks, of 64 where it is farther (`calc_wheel_index`).
pub(super) fn wheel_timer(now: Nanos, ticks: i64) -> Nanos {
    let shift = match ticks {
        ..63 => 0,
        63..504 => 3,
        _ => 6,
    };
    let expires = jiffies(now) + ticks;
    jiffy_start(((expires >> shift) + 1) << shift)
}

/// The latencies of one direction in a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Samples {
    pub(super) count: u64,
    /// The smallest, in nanoseconds.
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

/// A window that is open until its timer runs out: reads, then writes.
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

    /// When it ends.
    pub(super) fn ends(&self) -> Nanos {
        self.ends.unwrap_or(Nanos::MAX)
    }

    /// Opens it for a time (`blk_stat_activate_nsecs`).
    pub(super) fn open(&mut self, now: Nanos, span_ns: u64) {
        self.ends = Some(wheel_timer(now, (span_ns / JIFFY_NS) as i64));
    }

    /// Counts a latency, if it is open.
    pub(super) fn add(&mut self, is_write: bool, latency_ns: u64) {
        if self.is_open() {
            self.samples[is_write as usize].add(latency_ns);
        }
    }

    /// What came in, if it has ended by now.
    pub(super) fn take_ended(&mut self, now: Nanos) -> Option<[Samples; 2]> {
        self.ends.take_if(|ends| *ends <= now)?;
        Some(core::mem::take(&mut self.samples))
    }
}
