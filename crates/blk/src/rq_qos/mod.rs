//! Quality of service beside the scheduler (`block/blk-rq-qos.c`): policies that may delay a bio
//! before it gets a request, and that are called when a request is made, issued and ended.
//!
//! Most queues have no policy, so [`RqQos`] is boxed and optional.

mod cost;
mod latency;
mod prio;
mod stat;
mod throttle;
mod wbt;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::bio::{Bio, BioFlags, CgroupId};
use crate::request::{BioId, IoStatus, Request, RequestId, RqFlags};
use crate::units::Nanos;

pub use cost::{CostModel, CostQos, CostStat, IoCost, RateChange, Speed};
pub use latency::{IoLatency, parse_io_latency};
pub use prio::PrioPolicy;
pub use throttle::{IoMax, Throttle};
pub(crate) use throttle::{Throttled, Worker};
pub use wbt::{Wbt, WbtState, WbtStatus, WbtTimer};

/// A policy; its discriminant is its index in [`RqQos::held`].
#[derive(Debug)]
enum Policy {
    Wbt(Wbt),
    Latency(IoLatency),
    Cost(Box<IoCost>),
}

impl Policy {
    fn number(&self) -> usize {
        match self {
            Policy::Wbt(_) => 0,
            Policy::Latency(_) => 1,
            Policy::Cost(_) => 2,
        }
    }
}

/// Number of delayed bios, and their delay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeldBios {
    /// Number of bios.
    pub bios: u64,
    /// Sum of their delays in nanoseconds, without bios that still wait.
    pub ns: u64,
}

/// The place where a submitter waits, and since when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeldAt {
    policy: usize,
    group: CgroupId,
    since: Nanos,
}

/// The policies of a queue, most recently added first, which is the order in which the kernel calls
/// them.
#[derive(Debug, Default)]
pub(crate) struct RqQos {
    policies: Vec<Policy>,
    /// Delayed bios of each group: by writeback throttling, `io.latency` and `io.cost`.
    held: Vec<[HeldBios; 3]>,
}

impl RqQos {
    /// Asks the policies whether a bio may get a request (`rq_qos_throttle`). If one delays it, the
    /// submitter sleeps until `ticket` is woken.
    pub(crate) fn throttle(
        &mut self,
        now: Nanos,
        bio: (&Bio, BioId),
        ticket: u64,
        woken: &mut Vec<u64>,
    ) -> Option<HeldAt> {
        self.ask_from(0, now, bio, ticket, woken)
    }

    /// Continues a woken submitter; returns `Some` if it must sleep again.
    pub(crate) fn resume(
        &mut self,
        now: Nanos,
        (bio, part): (&Bio, BioId),
        ticket: u64,
        at: HeldAt,
        woken: &mut Vec<u64>,
    ) -> Option<HeldAt> {
        let waited = now.saturating_sub(at.since).0;
        match &mut self.policies[at.policy] {
            Policy::Wbt(wbt) => wbt.admitted(now),
            Policy::Cost(_) => {}
            Policy::Latency(latency) => {
                if let Some(group) = latency.resume(now, part, at.group, ticket, woken) {
                    return Some(HeldAt { group, ..at });
                }
            }
        }
        let number = self.policies[at.policy].number();
        self.held_of(bio.cgroup)[number].ns += waited;
        self.ask_from(at.policy + 1, now, (bio, part), ticket, woken)
    }

    fn ask_from(
        &mut self,
        first: usize,
        now: Nanos,
        (bio, part): (&Bio, BioId),
        ticket: u64,
        woken: &mut Vec<u64>,
    ) -> Option<HeldAt> {
        for policy in first..self.policies.len() {
            let holds = match &mut self.policies[policy] {
                Policy::Wbt(wbt) => (!wbt.wait(now, bio, ticket)).then_some(bio.cgroup),
                Policy::Latency(latency) => latency.throttle(now, (bio, part), ticket, woken),
                Policy::Cost(cost) => {
                    let goes = cost.throttle(now, (bio, part), ticket, woken);
                    (!goes).then_some(bio.cgroup)
                }
            };
            if let Some(group) = holds {
                let number = self.policies[policy].number();
                self.held_of(bio.cgroup)[number].bios += 1;
                return Some(HeldAt {
                    policy,
                    group,
                    since: now,
                });
            }
        }
        if let Some(cost) = self.cost_mut() {
            cost.start_tag_wait(now, part);
        }
        None
    }

    fn held_of(&mut self, group: CgroupId) -> &mut [HeldBios; 3] {
        let at = group.0 as usize;
        if self.held.len() <= at {
            self.held.resize(at + 1, [HeldBios::default(); 3]);
        }
        &mut self.held[at]
    }

    /// Delayed bios of a group: by writeback throttling, `io.latency` and `io.cost`.
    pub(crate) fn held(&self, group: CgroupId) -> [HeldBios; 3] {
        self.held.get(group.0 as usize).copied().unwrap_or_default()
    }

    /// Resets the counters.
    pub(crate) fn reset_counters(&mut self) {
        self.held.clear();
        if let Some(cost) = self.cost_mut() {
            cost.reset_counters();
        }
    }

    pub(crate) fn wbt(&self) -> Option<&Wbt> {
        self.policies.iter().find_map(|policy| match policy {
            Policy::Wbt(wbt) => Some(wbt),
            _ => None,
        })
    }

    pub(crate) fn wbt_mut(&mut self) -> Option<&mut Wbt> {
        self.policies.iter_mut().find_map(|policy| match policy {
            Policy::Wbt(wbt) => Some(wbt),
            _ => None,
        })
    }

    pub(crate) fn cost(&self) -> Option<&IoCost> {
        self.policies.iter().find_map(|policy| match policy {
            Policy::Cost(cost) => Some(&**cost),
            _ => None,
        })
    }

    pub(crate) fn cost_mut(&mut self) -> Option<&mut IoCost> {
        self.policies.iter_mut().find_map(|policy| match policy {
            Policy::Cost(cost) => Some(&mut **cost),
            _ => None,
        })
    }

    pub(crate) fn latency(&self) -> Option<&IoLatency> {
        self.policies.iter().find_map(|policy| match policy {
            Policy::Latency(latency) => Some(latency),
            _ => None,
        })
    }

    pub(crate) fn latency_mut(&mut self) -> Option<&mut IoLatency> {
        self.policies.iter_mut().find_map(|policy| match policy {
            Policy::Latency(latency) => Some(latency),
            _ => None,
        })
    }

    /// Adds writeback throttling before all other policies (`rq_qos_add`).
    pub(crate) fn add_wbt(&mut self, wbt: Wbt) {
        self.policies.insert(0, Policy::Wbt(wbt));
    }

    /// Adds `io.latency` before all other policies.
    pub(crate) fn add_latency(&mut self, latency: IoLatency) {
        self.policies.insert(0, Policy::Latency(latency));
    }

    /// Adds `io.cost` before all other policies.
    pub(crate) fn add_cost(&mut self, cost: IoCost) {
        self.policies.insert(0, Policy::Cost(Box::new(cost)));
    }

    /// Sets the parent of a group.
    pub(crate) fn set_parent(&mut self, group: CgroupId, parent: CgroupId) {
        for policy in &mut self.policies {
            match policy {
                Policy::Wbt(_) => {}
                Policy::Latency(latency) => latency.set_parent(group, parent),
                Policy::Cost(cost) => cost.set_parent(group, parent),
            }
        }
    }

    /// A task that dirties pages of the drive is put to sleep.
    pub(crate) fn dirtier_sleeps(&mut self, now: Nanos) {
        if let Some(wbt) = self.wbt_mut() {
            wbt.dirtier_sleeps(now);
        }
    }

    /// Undoes the admission of a bio that gets no request (`rq_qos_cleanup`).
    pub(crate) fn cleanup(&mut self, now: Nanos, bio: &Bio, woken: &mut Vec<u64>) {
        if let Some(wbt) = self.wbt_mut() {
            wbt.cleanup(now, bio, woken);
        }
    }

    /// Records the request made from a bio and returns the flags that the policies set on it
    /// (`rq_qos_track`). Passthrough commands are not recorded.
    pub(crate) fn track(&mut self, id: RequestId, (bio, part): (&Bio, BioId)) -> RqFlags {
        if bio.flags.has(BioFlags::PASSTHROUGH) {
            return RqFlags::default();
        }
        if let Some(cost) = self.cost_mut() {
            cost.track(id, part);
        }
        let wbt = self.wbt();
        wbt.map_or(RqFlags::default(), |wbt| wbt.track(bio))
    }

    /// Records the merge of a bio into a request with the first bio `first` (`rq_qos_merge`).
    pub(crate) fn merge(&mut self, now: Nanos, bio: (&Bio, BioId), first: BioId, rq: &Request) {
        if let Some(cost) = self.cost_mut() {
            let (added, [start, end]) = (bio.0, [rq.sector, rq.end()]);
            let before = match added.sector == start {
                true => [added.end().0, end.0],
                false => [start.0, added.sector.0],
            };
            cost.merge(now, bio, first, before);
        }
    }

    /// Records that a request goes to the driver (`rq_qos_issue`).
    pub(crate) fn issue(&mut self, now: Nanos, rq: &Request) {
        if let Some(wbt) = self.wbt_mut() {
            wbt.issue(now, rq);
        }
    }

    /// Records that the driver returned a request (`rq_qos_requeue`).
    pub(crate) fn requeue(&mut self, rq: &Request) {
        if let Some(wbt) = self.wbt_mut() {
            wbt.requeue(rq);
        }
    }

    /// Records the latency of a completed request (`blk_stat_add`).
    pub(crate) fn count(&mut self, now: Nanos, rq: &Request) {
        if let Some(wbt) = self.wbt_mut()
            && !rq.is_passthrough()
        {
            wbt.count(now, rq);
        }
    }

    /// Records the end of a part of a bio (`rq_qos_done_bio`).
    pub(crate) fn done_bio(
        &mut self,
        now: Nanos,
        part: BioId,
        status: IoStatus,
        woken: &mut Vec<u64>,
    ) {
        for policy in &mut self.policies {
            match policy {
                Policy::Wbt(_) => {}
                Policy::Latency(latency) => latency.done_bio(now, part, status, woken),
                Policy::Cost(cost) => cost.done_bio(part),
            }
        }
    }

    /// Records that a request is freed (`rq_qos_done`).
    pub(crate) fn done(&mut self, now: Nanos, id: RequestId, rq: &Request, woken: &mut Vec<u64>) {
        if rq.is_passthrough() {
            return;
        }
        for policy in &mut self.policies {
            match policy {
                Policy::Wbt(wbt) => wbt.done(now, rq, woken),
                Policy::Latency(_) => {}
                Policy::Cost(cost) => cost.done(now, id, rq),
            }
        }
    }

    /// Whether the submitter with this ticket is still delayed.
    pub(crate) fn is_held(&self, ticket: u64) -> bool {
        self.policies.iter().any(|policy| match policy {
            Policy::Wbt(wbt) => wbt.is_held(ticket),
            Policy::Latency(latency) => latency.is_held(ticket),
            Policy::Cost(cost) => cost.is_held(ticket),
        })
    }

    /// The time at which [`RqQos::timer`] should be called.
    pub(crate) fn next_timer(&self) -> Nanos {
        let timers = self.policies.iter().map(|policy| match policy {
            Policy::Wbt(wbt) => wbt.next_timer(),
            Policy::Latency(latency) => latency.next_timer(),
            Policy::Cost(cost) => cost.next_timer(),
        });
        timers.min().unwrap_or(Nanos::MAX)
    }

    /// Runs the expired timers.
    pub(crate) fn timer(&mut self, now: Nanos, woken: &mut Vec<u64>) {
        for policy in &mut self.policies {
            match policy {
                Policy::Wbt(wbt) => wbt.timer(now, woken),
                Policy::Latency(latency) => latency.timer(now),
                Policy::Cost(cost) => cost.timer(now, woken),
            }
        }
    }
}

/// A count of requests in flight with a limit, and a queue of waiters (`struct rq_wait`).
#[derive(Debug, Default)]
struct RqWait<T> {
    in_flight: u32,
    /// Tickets of the waiters, each with the value that decides its limit.
    waiting: VecDeque<(u64, T)>,
}

impl<T: Copy> RqWait<T> {
    /// Increments the count if it is below `limit` (`rq_wait_inc_below`).
    fn inc_below(&mut self, limit: u32) -> bool {
        let below = self.in_flight < limit;
        self.in_flight += below as u32;
        below
    }

    /// Increments the count, or waits behind the other waiters (`rq_qos_wait`).
    fn wait(&mut self, limit: u32, ticket: u64, who: T) -> bool {
        if self.waiting.is_empty() && self.inc_below(limit) {
            return true;
        }
        self.waiting.push_back((ticket, who));
        false
    }

    /// Wakes waiters in order until one is at its limit (`rq_qos_wake_function`).
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

/// A depth limit that changes in steps (`struct rq_depth`). It starts at step 0; each step above
/// halves the depth, each step below doubles it.
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

    /// Returns to step 0.
    fn reset(&mut self) {
        self.scale_step = 0;
        self.scaled_max = false;
        self.calc_max_depth();
    }

    /// Computes the depth of this step. Returns whether it is the largest possible depth
    /// (`rq_depth_calc_max_depth`).
    fn calc_max_depth(&mut self) -> bool {
        if self.queue_depth == 1 {
            // A second request should be ready when the drive finishes the first.
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

    /// Increases the depth; `false` if it is the largest.
    fn scale_up(&mut self) -> bool {
        if self.scaled_max {
            return false;
        }
        self.scale_step -= 1;
        self.scaled_max = self.calc_max_depth();
        true
    }

    /// Decreases the depth; `hard` returns to step 0 at once from a step below it. Returns `false`
    /// if the depth is 1.
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

    /// The recorded runs: the first step up reduces queue depth 4 to 3, and 8 to 6.
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

    /// A hard step down ends at once what was gained, a soft one takes a step of it
    /// (`rq_depth_scale_down`).
    #[test]
    fn a_hard_step_down_returns_to_the_default_depth() {
        for (hard, step, max_depth) in [(true, 0, 16), (false, -1, 31)] {
            let mut depth = RqDepth::new(16, 256);
            assert!(depth.scale_up() && depth.scale_up());
            assert_eq!((depth.scale_step, depth.max_depth), (-2, 61));
            assert!(depth.scale_down(hard));
            assert_eq!((depth.scale_step, depth.max_depth), (step, max_depth));
        }
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

    /// On a drive of one tag the limit is two, so that a request is ready when another ends, and
    /// one at each step above (`rq_depth_calc_max_depth`).
    #[test]
    fn a_drive_of_one_tag_has_two_depths() {
        let mut depth = RqDepth::new(64, 1);
        assert!(depth.scale_up());
        assert_eq!((depth.max_depth, depth.scale_step), (2, -1));
        assert!(!depth.scale_up(), "it is the largest");
        assert!(depth.scale_down(true));
        assert_eq!((depth.max_depth, depth.scale_step), (2, 0));
        assert!(depth.scale_down(true));
        assert_eq!((depth.max_depth, depth.scale_step), (1, 1));
        assert!(!depth.scale_down(true), "it is the smallest");
        assert!(depth.scale_up());
        assert_eq!((depth.max_depth, depth.scale_step), (2, 0));
        assert!(!depth.scale_up(), "it is the largest again");
    }
}
