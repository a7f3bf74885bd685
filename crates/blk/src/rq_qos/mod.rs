//! Quality of service beside the scheduler (`block/blk-rq-qos.c`): layers that
//! may hold a bio back before it gets a request, and that hear of each request
//! when it is made, issued and ended.
//!
//! A queue without such a layer has none of this: [`RqQos`] is in a box that is
//! not there.

mod stat;
mod throttle;
mod wbt;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::bio::Bio;
use crate::request::{Request, RqFlags};
use crate::units::Nanos;

pub use throttle::{IoMax, Throttle};
pub(crate) use throttle::{Throttled, Worker};
pub use wbt::{Wbt, WbtState, WbtStatus, WbtTimer};

/// The layers of a queue, in the order in which the kernel asks them.
#[derive(Debug)]
pub(crate) struct RqQos {
    pub(crate) wbt: Wbt,
}

impl RqQos {
    /// Whether a bio may go on to get a request; where not, its submitter sleeps
    /// under this ticket until it is among the woken (`rq_qos_throttle`).
    pub(crate) fn throttle(&mut self, now: Nanos, bio: &Bio, ticket: u64) -> bool {
        self.wbt.wait(now, bio, ticket)
    }

    /// The bio that was let in gets no request after all (`rq_qos_cleanup`).
    pub(crate) fn cleanup(&mut self, now: Nanos, bio: &Bio, woken: &mut Vec<u64>) {
        self.wbt.cleanup(now, bio, woken);
    }

    /// A request was made of a bio: what the layers note of it (`rq_qos_track`).
    pub(crate) fn track(&self, bio: &Bio) -> RqFlags {
        self.wbt.track(bio)
    }

    /// A request goes to the driver (`rq_qos_issue`).
    pub(crate) fn issue(&mut self, now: Nanos, rq: &Request) {
        self.wbt.issue(now, rq);
    }

    /// The driver gave a request back (`rq_qos_requeue`).
    pub(crate) fn requeue(&mut self, rq: &Request) {
        self.wbt.requeue(rq);
    }

    /// The drive is done with a request (`blk_stat_add`).
    pub(crate) fn count(&mut self, now: Nanos, rq: &Request) {
        self.wbt.count(now, rq);
    }

    /// A request is freed (`rq_qos_done`).
    pub(crate) fn done(&mut self, now: Nanos, rq: &Request, woken: &mut Vec<u64>) {
        self.wbt.done(now, rq, woken);
    }

    /// Whether the submitter with this ticket is still held back.
    pub(crate) fn is_held(&self, ticket: u64) -> bool {
        self.wbt.is_held(ticket)
    }

    /// A submitter that was woken goes on.
    pub(crate) fn let_in(&mut self, now: Nanos) {
        self.wbt.let_in(now);
    }

    /// When [`RqQos::timer`] is to be called.
    pub(crate) fn next_timer(&self) -> Nanos {
        self.wbt.next_timer()
    }

    /// Does what is due.
    pub(crate) fn timer(&mut self, now: Nanos, woken: &mut Vec<u64>) {
        self.wbt.timer(now, woken);
    }
}

/// A count of requests under way that is kept below a limit, and who waits for it
/// to fall (`struct rq_wait`).
#[derive(Debug, Default)]
struct RqWait<T> {
    in_flight: u32,
    /// Tickets, with what decides on each one's limit.
    waiting: VecDeque<(u64, T)>,
}

impl<T: Copy> RqWait<T> {
    /// Takes a place below `limit` (`rq_wait_inc_below`).
    fn inc_below(&mut self, limit: u32) -> bool {
        let below = self.in_flight < limit;
        self.in_flight += below as u32;
        below
    }

    /// Takes a place, or waits behind those that wait already (`rq_qos_wait`).
    fn wait(&mut self, limit: u32, ticket: u64, who: T) -> bool {
        if self.waiting.is_empty() && self.inc_below(limit) {
            return true;
        }
        self.waiting.push_back((ticket, who));
        false
    }

    /// Gives places to those that wait, in order, until one gets none
    /// (`rq_qos_wake_function`).
    fn wake_all(&mut self, limit: impl Fn(T) -> u32, woken: &mut Vec<u64>) {
        while let Some(&(ticket, who)) = self.waiting.front() {
            if !self.inc_below(limit(who)) {
                return;
            }
            self.waiting.pop_front();
            woken.push(ticket);
        }
    }
}

/// How many requests are allowed at once, in steps (`struct rq_depth`). Step 0 is
/// where it starts; each step above it halves the depth, each below doubles it.
#[derive(Clone, Debug)]
struct RqDepth {
    max_depth: u32,
    scale_step: i32,
    scaled_max: bool,
    queue_depth: u32,
    default_depth: u32,
}

impl RqDepth {
    fn new(default_depth: u32, queue_depth: u32) -> RqDepth {
        let mut depth = RqDepth {
            max_depth: 0,
            scale_step: 0,
            scaled_max: false,
            queue_depth,
            default_depth,
        };
        depth.reset();
        depth
    }

    /// Back to step 0.
    fn reset(&mut self) {
        self.scale_step = 0;
        self.scaled_max = false;
        self.calc_max_depth();
    }

    /// The depth of this step; whether it is the largest that there can be
    /// (`rq_depth_calc_max_depth`).
    fn calc_max_depth(&mut self) -> bool {
        if self.queue_depth == 1 {
            // One more is to be ready when the drive is done with the one it has.
            self.max_depth = if self.scale_step > 0 { 1 } else { 2 };
            return self.scale_step <= 0;
        }
        let above_one = u64::from(self.default_depth.min(self.queue_depth)).saturating_sub(1);
        let step = self.scale_step.unsigned_abs().min(31);
        let largest = 3 * self.queue_depth as u64 / 4;
        let (depth, at_most) = match self.scale_step {
            0.. => (1 + (above_one >> step), false),
            _ => {
                let depth = 1 + (above_one << step);
                (depth.min(largest), depth > largest)
            }
        };
        self.max_depth = depth as u32;
        at_most
    }

    /// Allows more; `false` where it already is at the most.
    fn scale_up(&mut self) -> bool {
        if self.scaled_max {
            return false;
        }
        self.scale_step -= 1;
        self.scaled_max = self.calc_max_depth();
        true
    }

    /// Allows less; `hard` goes back to step 0 at once from below it. `false`
    /// where it already is at the least.
    fn scale_down(&mut self, hard: bool) -> bool {
        if self.max_depth == 1 {
            return false;
        }
        self.scale_step = match self.scale_step {
            ..0 if hard => 0,
            step => step + 1,
        };
        self.scaled_max = false;
        self.calc_max_depth();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The recorded runs: queue depth 4 goes from 4 to 3 with the first step up,
    /// 8 to 6.
    #[test]
    fn depth_follows_steps() {
        for (queue_depth, above) in [(4, 3), (8, 6)] {
            let mut depth = RqDepth::new(16, queue_depth);
            assert_eq!(depth.max_depth, queue_depth);
            assert!(depth.scale_up());
            assert_eq!((depth.max_depth, depth.scale_step), (above, -1));
            assert!(!depth.scale_up(), "it is at the most");
            assert!(depth.scale_down(true));
            assert_eq!((depth.max_depth, depth.scale_step), (queue_depth, 0));
        }
        let mut depth = RqDepth::new(16, 64);
        let mut seen = Vec::new();
        while depth.scale_down(true) {
            seen.push(depth.max_depth);
        }
        assert_eq!(seen, [8, 4, 2, 1]);
        let mut depth = RqDepth::new(16, 1);
        assert_eq!(depth.max_depth, 2);
        assert!(depth.scale_down(true) && depth.max_depth == 1);
    }

    #[test]
    fn who_waits_is_served_in_order() {
        let (mut places, mut woken) = (RqWait::default(), Vec::new());
        assert!(places.wait(1, 1, ()));
        assert!(!places.wait(1, 2, ()) && !places.wait(9, 3, ()));
        places.in_flight -= 1;
        places.wake_all(|()| 1, &mut woken);
        assert_eq!((woken, places.waiting.len()), (vec![2], 1));
    }
}
