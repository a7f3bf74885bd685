//! How long a task that dirties pages is put to sleep (`balance_dirty_pages`).
//!
//! Below the middle between the two thresholds nobody waits. Above it a control
//! loop holds the dirty pages at a set point: the device's base rate times a
//! ratio that falls with the distance from the set point is the rate at which
//! the task may dirty pages; its pause is what makes up for pages that came
//! faster.

use super::HZ;
use super::bandwidth::Bandwidth;

/// Pages that a new task may dirty until it is looked at.
const FIRST_POLL_PAGES: u64 = 32;

/// Fractional bits of ratios.
const RATIO_BITS: u32 = 10;

/// The ratio 1.
const ONE: i64 = 1 << RATIO_BITS;

/// How much is dirty and how much may be, in pages. Dirty are also pages that are
/// being written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirtyState {
    /// Dirty pages of the whole system.
    pub dirty: u64,
    /// How many there should be at most.
    pub thresh: u64,
    /// From how many on they are written in the background.
    pub background_thresh: u64,
    /// The threshold as it comes down slowly after it was lowered.
    pub limit: u64,
    /// Dirty pages of this device.
    pub device_dirty: u64,
    /// The device's share of the threshold.
    pub device_thresh: u64,
}

impl DirtyState {
    /// Up to here nobody has to wait.
    const fn freerun_ceiling(&self) -> u64 {
        self.thresh.midpoint(self.background_thresh)
    }

    /// Whether nobody has to wait.
    pub const fn is_freerun(&self) -> bool {
        self.dirty <= self.freerun_ceiling()
    }

    /// Whether the device has more than its share while the system has too much.
    pub const fn is_exceeded(&self) -> bool {
        self.device_dirty > self.device_thresh && self.dirty > self.thresh
    }

    /// The pages that a task may dirty until it is looked at again.
    pub fn poll_interval(&self) -> u64 {
        let margin = self.thresh.saturating_sub(self.dirty);
        1 << (margin.checked_ilog2().unwrap_or(0) / 2)
    }

    /// At so many dirty pages none gets through any more.
    fn hard_limit(&self) -> u64 {
        self.limit.max(self.thresh)
    }

    /// The dirty pages that the control loop aims at.
    pub fn setpoint(&self) -> u64 {
        self.freerun_ceiling().midpoint(self.hard_limit())
    }

    /// By what the base rate is multiplied, in units of 1/1024: a polynomial of the
    /// third order in the system's dirty pages, times a line in the device's
    /// (`wb_position_ratio`). `write_rate` is the device's average.
    pub fn position_ratio(&self, write_rate: u64) -> u64 {
        let limit = self.hard_limit();
        if self.dirty >= limit {
            return 0;
        }
        let global = polynomial(self.setpoint(), self.dirty, limit) as u64;
        let thresh = self.device_thresh.min(self.thresh);
        // A device that was idle has next to no share; it gets some to begin with.
        let thresh = thresh.max((limit - self.dirty) / 8);
        let share = (thresh << 16) / (self.thresh | 1);
        let setpoint = (self.setpoint() * share) >> 16;
        // As in the kernel these wrap where a share is larger than the whole.
        let span = (self.thresh.wrapping_sub(thresh)).wrapping_add(8 * write_rate);
        let span = span.wrapping_mul(share) >> 16;
        let zero = setpoint.wrapping_add(span);
        let ratio = if self.device_dirty < zero.wrapping_sub(span / 4) {
            global.wrapping_mul(zero.wrapping_sub(self.device_dirty)) / (span | 1)
        } else {
            global / 4
        };
        let reserve = thresh / 2;
        match self.device_dirty {
            dirty if dirty >= reserve => ratio,
            dirty if dirty > reserve / 8 => ratio * reserve / dirty,
            _ => ratio * 8,
        }
    }
}

/// `1 + ((setpoint - dirty) / (limit - setpoint))^3`, from 0 to 2
/// (`pos_ratio_polynom`).
fn polynomial(setpoint: u64, dirty: u64, limit: u64) -> i64 {
    let distance = (setpoint as i64 - dirty as i64) << RATIO_BITS;
    let x = distance / ((limit - setpoint) | 1) as i64;
    let cube = ((x * x) >> RATIO_BITS) * x;
    ((cube >> RATIO_BITS) + ONE).clamp(0, 2 * ONE)
}

/// What the kernel remembers of a task that dirties pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dirtier {
    /// Pages that it has dirtied since the last look at it.
    pub dirtied: u64,
    /// After so many it is looked at.
    pub pages_until_look: u64,
    /// When its last pause should have ended, or it was last let go; 0 before.
    pub paused_when: u64,
}

impl Default for Dirtier {
    fn default() -> Dirtier {
        Dirtier {
            dirtied: 0,
            pages_until_look: FIRST_POLL_PAGES,
            paused_when: 0,
        }
    }
}

/// What a look at a task came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on.
    GoOn,
    /// It sleeps for so many jiffies; then it goes on, or, if the device's rate is
    /// 0, is looked at again.
    Pause(u64),
}

/// The figures of one look at a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pass {
    /// At which rate it may dirty pages.
    pub task_ratelimit: u64,
    /// What its pages should have taken, in jiffies.
    pub period: u64,
    /// What is left of that, below 0 if it took longer.
    pub pause: i64,
    /// How long ago its last pause should have ended, in jiffies.
    pub think: i64,
    /// What is done.
    pub verdict: Verdict,
    /// The pages that it was about.
    pages: u64,
    /// The time, moved on by what the longest pause cuts off.
    now: u64,
    /// After how many pages it is looked at when it has slept.
    pages_until_look: u64,
}

impl Dirtier {
    /// Nobody has to wait: it is looked at again after so many pages.
    pub fn run_free(&mut self, state: &DirtyState, now: u64) {
        self.paused_when = now;
        self.dirtied = 0;
        self.pages_until_look = state.poll_interval();
    }

    /// Looks at a task that has dirtied `pages` of a device with so many dirty pages,
    /// at this position ratio.
    pub fn look(
        &self,
        pages: u64,
        device_dirty: u64,
        ratio: u64,
        rates: &Bandwidth,
        now: u64,
    ) -> Pass {
        let task_ratelimit = (rates.dirty_ratelimit * ratio) >> RATIO_BITS;
        let max_pause = rates.max_pause(device_dirty);
        let (min_pause, pages_until_look) = rates.min_pause(max_pause, task_ratelimit);
        let think = match self.paused_when {
            0 => 0,
            since => now as i64 - since as i64,
        };
        let period = (HZ * pages).checked_div(task_ratelimit);
        let left = period.map_or(max_pause as i64, |period| period as i64 - think);
        let longest = max_pause as i64;
        let verdict = if period.is_some() && left < min_pause as i64 {
            Verdict::GoOn
        } else {
            Verdict::Pause(left.min(longest) as u64)
        };
        Pass {
            task_ratelimit,
            period: period.unwrap_or(max_pause),
            pause: left.min(longest),
            think,
            verdict,
            pages,
            now: now + (left - longest).clamp(0, longest) as u64,
            pages_until_look,
        }
    }

    /// The look is over, and its pause, if it had one. A task that goes on has the
    /// time that its pages took too long set against the next ones, unless it was
    /// away for a second.
    pub fn looked_at(&mut self, pass: &Pass) {
        match pass.verdict {
            Verdict::Pause(pause) => {
                self.paused_when = pass.now + pause;
                self.dirtied = 0;
                self.pages_until_look = pass.pages_until_look;
            }
            Verdict::GoOn if pass.pause < -(HZ as i64) => {
                self.paused_when = pass.now;
                self.dirtied = 0;
            }
            Verdict::GoOn if pass.period > 0 => {
                self.paused_when += pass.period;
                self.dirtied = 0;
            }
            Verdict::GoOn if self.pages_until_look <= pass.pages => {
                self.pages_until_look += pass.pages;
            }
            Verdict::GoOn => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Bandwidth, Dirtier, DirtyState, Verdict};

    /// A device that has all of the threshold, with so many dirty pages.
    fn state(dirty: u64) -> DirtyState {
        DirtyState {
            dirty,
            thresh: 10_000,
            background_thresh: 5_000,
            limit: 10_000,
            device_dirty: dirty,
            device_thresh: 10_000,
        }
    }

    #[test]
    fn the_ratio_is_one_at_the_set_point_and_none_at_the_limit() {
        assert_eq!(state(0).setpoint(), 8_750);
        let ratio = |dirty| state(dirty).position_ratio(25_600);
        assert!((1_020..=1_024).contains(&ratio(8_750)), "{}", ratio(8_750));
        assert!(ratio(8_000) > ratio(8_750) && ratio(8_750) > ratio(9_500));
        assert_eq!(ratio(10_000), 0);
    }

    #[test]
    fn a_writer_that_is_too_fast_sleeps_and_one_that_is_slow_does_not() {
        let rates = Bandwidth::new(0);
        let full = state(9_900);
        let ratio = full.position_ratio(rates.average_write_rate);
        let fast = Dirtier {
            paused_when: 1_000,
            ..Dirtier::default()
        };
        let pass = fast.look(1_000, full.device_dirty, ratio, &rates, 1_000);
        assert!(matches!(pass.verdict, Verdict::Pause(_)), "{pass:?}");
        let slow = fast.look(32, full.device_dirty, ratio, &rates, 1_200);
        assert_eq!(slow.verdict, Verdict::GoOn);
    }

    #[test]
    fn nobody_waits_below_the_middle_of_the_thresholds() {
        assert!(state(7_500).is_freerun() && !state(7_501).is_freerun());
        assert_eq!(state(0).poll_interval(), 64);
        assert_eq!(state(10_000).poll_interval(), 1);
    }
}
