//! Estimates of a device's write rate and of the rate at which its pages may be
//! dirtied, in pages a second (`__wb_update_bandwidth`).

use super::HZ;
use super::throttle::DirtyState;

/// What a device writes before anything is known of it: 100 MB/s.
const FIRST_RATE: u64 = (100 << 20) / crate::PAGE_BYTES;

/// Estimates are renewed every 200 ms.
const INTERVAL: u64 = HZ / 5;

/// Without write-back for so long the device counts as idle.
const IDLE: u64 = HZ;

/// The longest pause in jiffies: 200 ms.
const MAX_PAUSE: u64 = HZ / 5;

/// Pages between two looks at a task below which longer pauses are taken instead.
const POLL_PAGES: u64 = 32;

/// Pages of a device that were dirtied and written since it came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Pages dirtied.
    pub dirtied: u64,
    /// Pages written.
    pub written: u64,
}

/// What is known of a device's rates, in pages a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bandwidth {
    /// What it writes, smoothed over about 3 s.
    pub write_rate: u64,
    /// The same, smoothed once more.
    pub average_write_rate: u64,
    /// At which rate a task may dirty its pages when these are at the set point.
    pub dirty_ratelimit: u64,
    /// The rate that would have held them there, by the last interval alone.
    pub balanced_dirty_ratelimit: u64,
    /// The counters at the last update, and when that was.
    stamp: Counted,
    stamped_at: u64,
}

impl Bandwidth {
    /// A device that nothing is known of.
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
    pub const fn is_due(&self, now: u64) -> bool {
        now > self.stamped_at + INTERVAL
    }

    /// Write-back begins on a device: the time that it was idle is no part of the
    /// estimates (`wb_bandwidth_estimate_start`).
    pub fn begin(&mut self, counted: Counted, now: u64) {
        if now.saturating_sub(self.stamped_at) > IDLE {
            self.stamp = counted;
            self.stamped_at = now;
        }
    }

    /// Renews the estimate of the write rate.
    pub fn update(&mut self, counted: Counted, now: u64) {
        let elapsed = (now - self.stamped_at).max(1);
        let written = counted.written.saturating_sub(self.stamp.written);
        self.update_write_rate(written, elapsed);
        self.stamp = counted;
        self.stamped_at = now;
    }

    /// Renews both estimates, the rate of dirtying first.
    pub fn update_with_ratelimit(
        &mut self,
        state: &DirtyState,
        ratio: u64,
        counted: Counted,
        now: u64,
    ) {
        let elapsed = (now - self.stamped_at).max(1);
        let dirtied = counted.dirtied.wrapping_sub(self.stamp.dirtied);
        let rate = dirtied.wrapping_mul(HZ) / elapsed;
        self.update_dirty_ratelimit(state, ratio, rate);
        self.update(counted, now);
    }

    /// Smooths over a period of 1024 jiffies, and a second time where both
    /// smoothed rates still move the same way.
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

    /// Moves the base rate towards the one that balances dirtying and writing,
    /// unless the place of the dirty pages calls for the other direction
    /// (`wb_update_dirty_ratelimit`).
    pub fn update_dirty_ratelimit(&mut self, state: &DirtyState, ratio: u64, dirty_rate: u64) {
        let base = self.dirty_ratelimit;
        let task = ((base * ratio) >> 10) + 1;
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

    /// The longest pause in jiffies, so that the device does not run dry meanwhile.
    pub(super) fn max_pause(&self, device_dirty: u64) -> u64 {
        const EIGHTH: u64 = (1 + HZ / 8).next_power_of_two();
        let pause = device_dirty / (1 + self.average_write_rate / EIGHTH) + 1;
        pause.min(MAX_PAUSE)
    }

    /// The shortest pause in jiffies, and after how many pages the next look should
    /// be: 10 ms later, or more where several tasks share the device
    /// (`wb_min_pause`).
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
