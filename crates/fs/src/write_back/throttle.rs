//! How long a task that dirties pages is put to sleep (`balance_dirty_pages`).
//!
//! Below the middle between the two thresholds no task is throttled. Above it a control
//! loop holds the number of dirty pages at a set point. A task may dirty pages at the
//! device's base rate times a ratio, which falls as dirty pages exceed the set point; a
//! task that was faster sleeps for the difference.

use super::HZ;
use super::bandwidth::Bandwidth;
use super::dirty_state::{DirtyState, RATIO_BITS};

/// Pages that a new task may dirty before its first check.
const FIRST_POLL_PAGES: u64 = 32;

/// A task that dirties pages, as `struct task_struct` describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dirtier {
    /// Pages that it has dirtied since the last check.
    pub nr_dirtied: u64,
    /// Pages that it may dirty until the next check.
    pub nr_dirtied_pause: u64,
    /// When its last pause should have ended, in jiffies; 0 before the first check.
    pub dirty_paused_when: u64,
}

impl Default for Dirtier {
    fn default() -> Dirtier {
        Dirtier {
            nr_dirtied: 0,
            nr_dirtied_pause: FIRST_POLL_PAGES,
            dirty_paused_when: 0,
        }
    }
}

/// What a checked task does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThrottleAction {
    /// It continues.
    Continue,
    /// It sleeps for this many jiffies. Then it continues or, if it may dirty nothing at
    /// all, is checked again.
    Pause(u64),
}

/// The result of one check of a task, with the figures of the tracepoint
/// `balance_dirty_pages`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Throttle {
    /// The rate at which it may dirty pages, in pages a second.
    pub task_ratelimit: u64,
    /// The time that its pages should have taken at that rate, in jiffies.
    pub period: u64,
    /// The part of the period that is left, in jiffies; negative if it took longer.
    pub pause: i64,
    /// How long ago its last pause should have ended, in jiffies.
    pub think: i64,
    /// What it does next.
    pub action: ThrottleAction,
    /// Pages that it had dirtied.
    pages: u64,
    /// The time of the check, plus what was cut off a pause that would be too long.
    now: u64,
    /// Pages until the check after a pause.
    nr_dirtied_pause: u64,
}

impl Dirtier {
    /// Starts counting anew, because there are too few dirty pages to throttle it.
    pub fn freerun(&mut self, state: &DirtyState, now: u64) {
        self.dirty_paused_when = now;
        self.nr_dirtied = 0;
        self.nr_dirtied_pause = state.poll_interval();
    }

    /// Checks a task that has dirtied `pages`. The device has `device_dirty` dirty pages
    /// and this position ratio.
    pub fn throttle(
        &self,
        pages: u64,
        device_dirty: u64,
        ratio: u64,
        rates: &Bandwidth,
        now: u64,
    ) -> Throttle {
        let task_ratelimit = (rates.dirty_ratelimit * ratio) >> RATIO_BITS;
        let max_pause = rates.max_pause(device_dirty);
        let (min_pause, nr_dirtied_pause) = rates.min_pause(max_pause, task_ratelimit);
        let think = match self.dirty_paused_when {
            0 => 0,
            since => now as i64 - since as i64,
        };
        let period = (HZ * pages).checked_div(task_ratelimit);
        let left = period.map_or(max_pause as i64, |period| period as i64 - think);
        let longest = max_pause as i64;
        let action = if period.is_some() && left < min_pause as i64 {
            ThrottleAction::Continue
        } else {
            ThrottleAction::Pause(left.min(longest) as u64)
        };
        Throttle {
            task_ratelimit,
            period: period.unwrap_or(max_pause),
            pause: left.min(longest),
            think,
            action,
            pages,
            now: now + (left - longest).clamp(0, longest) as u64,
            nr_dirtied_pause,
        }
    }

    /// Records a check, after its pause if it had one. A task that was slower than it
    /// had to be may use the time that it lost later, unless it was away for a second.
    pub fn record(&mut self, throttle: &Throttle) {
        match throttle.action {
            ThrottleAction::Pause(pause) => {
                self.dirty_paused_when = throttle.now + pause;
                self.nr_dirtied = 0;
                self.nr_dirtied_pause = throttle.nr_dirtied_pause;
            }
            ThrottleAction::Continue if throttle.pause < -(HZ as i64) => {
                self.dirty_paused_when = throttle.now;
                self.nr_dirtied = 0;
            }
            ThrottleAction::Continue if throttle.period > 0 => {
                self.dirty_paused_when += throttle.period;
                self.nr_dirtied = 0;
            }
            ThrottleAction::Continue if self.nr_dirtied_pause <= throttle.pages => {
                self.nr_dirtied_pause += throttle.pages;
            }
            ThrottleAction::Continue => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Bandwidth, Dirtier, ThrottleAction};
    use crate::write_back::DirtyState;

    #[test]
    fn a_writer_that_is_too_fast_sleeps_and_one_that_is_slow_does_not() {
        let rates = Bandwidth::new(0);
        let full = DirtyState {
            dirty: 9_900,
            thresh: 10_000,
            background_thresh: 5_000,
            limit: 10_000,
            device_dirty: 9_900,
            device_thresh: 10_000,
        };
        let ratio = full.position_ratio(rates.average_write_rate);
        let dirtier = Dirtier {
            dirty_paused_when: 1_000,
            ..Dirtier::default()
        };
        let fast = dirtier.throttle(1_000, full.device_dirty, ratio, &rates, 1_000);
        assert!(matches!(fast.action, ThrottleAction::Pause(_)), "{fast:?}");
        let slow = dirtier.throttle(32, full.device_dirty, ratio, &rates, 1_200);
        assert_eq!(slow.action, ThrottleAction::Continue);
    }
}
