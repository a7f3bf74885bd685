//! Estimates of a device's write rate and of the rate at which its pages may be
//! dirtied, in pages a second (`__wb_update_bandwidth`).

use super::HZ;
use super::dirty_state::{DirtyState, RATIO_BITS};

/// The write rate assumed of a new device: 100 MB/s (`INIT_BW`).
const FIRST_RATE: u64 = (100 << 20) / crate::PAGE_BYTES;

/// Estimates are updated every 200 ms (`BANDWIDTH_INTERVAL`).
pub(super) const INTERVAL: u64 = HZ / 5;

/// A device without write-back for this long counts as idle (`WB_BANDWIDTH_IDLE_JIF`).
const IDLE: u64 = HZ;

/// The longest pause in jiffies: 200 ms (`MAX_PAUSE`).
const MAX_PAUSE: u64 = HZ / 5;

/// A task that is checked more often than once in this many pages gets longer pauses instead
/// (`DIRTY_POLL_THRESH`).
const POLL_PAGES: u64 = 32;

/// Pages of a device that were dirtied and written since it was added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Pages dirtied.
    pub dirtied: u64,
    /// Pages written.
    pub written: u64,
}

/// Estimates of a device's rates, in pages a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bandwidth {
    /// The rate at which it writes, smoothed over about 3 s (`write_bandwidth`).
    pub write_rate: u64,
    /// The same, smoothed once more (`avg_write_bandwidth`).
    pub average_write_rate: u64,
    /// The rate at which a task may dirty pages when they are at the set point.
    pub dirty_ratelimit: u64,
    /// The rate that would have held them there during the last interval.
    pub balanced_dirty_ratelimit: u64,
    /// The counters at the last update, and its time.
    stamp: Counted,
    stamped_at: u64,
}

impl Bandwidth {
    /// Estimates of a new device.
    pub fn new(now: u64) -> Bandwidth {
        Bandwidth {
            write_rate: FIRST_RATE,
            average_write_rate: FIRST_RATE,
            dirty_ratelimit: FIRST_RATE,
            balanced_dirty_ratelimit: FIRST_RATE,
            stamp: Counted::default(),
            stamped_at: now,
        }
    }

    /// Whether it is time for new estimates.
    pub(super) const fn is_due(&self, now: u64) -> bool {
        now > self.stamped_at + INTERVAL
    }

    /// Write-back begins on a device: its idle time is left out of the estimates
    /// (`wb_bandwidth_estimate_start`).
    pub(super) fn begin(&mut self, counted: Counted, now: u64) {
        if now.saturating_sub(self.stamped_at) > IDLE {
            self.stamp = counted;
            self.stamped_at = now;
        }
    }

    /// Updates the estimate of the write rate.
    pub(super) fn update(&mut self, counted: Counted, now: u64) {
        let elapsed = (now - self.stamped_at).max(1);
        let written = counted.written.saturating_sub(self.stamp.written);
        self.update_write_rate(written, elapsed);
        self.stamp = counted;
        self.stamped_at = now;
    }

    /// Updates both estimates, that of the dirty rate limit first, by each of the states with
    /// its position ratio.
    pub(super) fn update_with_ratelimit(
        &mut self,
        states: &[Option<(DirtyState, u64)>],
        counted: Counted,
        now: u64,
    ) {
        let elapsed = (now - self.stamped_at).max(1);
        let dirtied = counted.dirtied.wrapping_sub(self.stamp.dirtied);
        let rate = dirtied.wrapping_mul(HZ) / elapsed;
        for (state, ratio) in states.iter().flatten() {
            self.update_dirty_ratelimit(state, *ratio, rate);
        }
        self.update(counted, now);
    }

    /// Smooths the rate over 1024 jiffies, and a second time if both smoothed rates move
    /// in the same direction (`wb_update_write_bandwidth`).
    fn update_write_rate(&mut self, written: u64, elapsed: u64) {
        const PERIOD: u64 = (3 * HZ).next_power_of_two();
        let (old, average) = (self.write_rate, self.average_write_rate);
        if elapsed > PERIOD {
            self.write_rate = written * HZ / elapsed;
            self.average_write_rate = self.write_rate.max(1);
            return;
        }
        let rate = (written * HZ + old * (PERIOD - elapsed)) / PERIOD;
        let smoothed = if average > old && old >= rate {
            average - (average - old) / 8
        } else if average < old && old <= rate {
            average + (old - average) / 8
        } else {
            average
        };
        self.write_rate = rate;
        self.average_write_rate = smoothed.max(1);
    }

    /// Moves the base rate towards the one that balances dirtying and writing, unless the
    /// distance to the set point calls for the other direction
    /// (`wb_update_dirty_ratelimit`).
    pub fn update_dirty_ratelimit(&mut self, state: &DirtyState, ratio: u64, dirty_rate: u64) {
        let base = self.dirty_ratelimit;
        let task = ((base * ratio) >> RATIO_BITS) + 1;
        let balanced = task * self.average_write_rate / (dirty_rate | 1);
        let balanced = balanced.min(self.average_write_rate);
        let rates = [self.balanced_dirty_ratelimit, balanced, task];
        let step = if state.dirty < state.setpoint() {
            let lowest = rates.into_iter().min().unwrap_or(base);
            lowest.saturating_sub(base)
        } else {
            let highest = rates.into_iter().max().unwrap_or(base);
            base.saturating_sub(highest)
        };
        let shift = base / (2 * step + 1);
        let step = match u32::try_from(shift) {
            Ok(shift @ 0..64) => (step >> shift).div_ceil(8),
            _ => 0,
        };
        let moved = if base < balanced {
            base + step
        } else {
            base - step
        };
        self.dirty_ratelimit = moved.max(1);
        self.balanced_dirty_ratelimit = balanced;
    }

    /// The longest pause in jiffies during which the device still has pages to write
    /// (`wb_max_pause`).
    pub(super) fn max_pause(&self, device_dirty: u64) -> u64 {
        const EIGHTH: u64 = (1 + HZ / 8).next_power_of_two();
        let pause = device_dirty / (1 + self.average_write_rate / EIGHTH) + 1;
        pause.min(MAX_PAUSE)
    }

    /// The shortest pause in jiffies, and the number of pages until the next check: that
    /// of 10 ms, or more if several tasks share the device (`wb_min_pause`).
    pub(super) fn min_pause(&self, max_pause: u64, task_ratelimit: u64) -> (u64, u64) {
        const SECOND: u64 = HZ.next_power_of_two();
        let base = self.dirty_ratelimit;
        let [high, low] = [self.average_write_rate, base].map(|rate| rate.max(1).ilog2());
        let mut target = (HZ / 100).max(1);
        target += u64::from(high.saturating_sub(low)) * (10 * HZ) / 1024;
        target = target.min(1 + max_pause / 2);
        let mut pages = base * target / SECOND;
        if pages < POLL_PAGES {
            target = max_pause;
            pages = base * target / SECOND;
            if pages > POLL_PAGES {
                pages = POLL_PAGES;
                target = HZ * POLL_PAGES / base;
            }
        }
        if HZ * pages / (task_ratelimit + 1) > max_pause {
            target = max_pause;
            pages = task_ratelimit * target / SECOND;
        }
        let shortest = match pages {
            POLL_PAGES.. => 1 + target / 2,
            _ => target,
        };
        (shortest, pages)
    }
}
