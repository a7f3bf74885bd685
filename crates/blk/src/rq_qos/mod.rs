//! Quality of service beside the scheduler (`block/blk-rq-qos.c`): layers that may hold
//! a bio back before it gets a request, and that are called for each request when it is
//! made, issued and ended.
//!
//! Most queues have no such layer, so [`RqQos`] is boxed and optional.

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

/// A layer; its discriminant is its index in [`CgroupStats::held`].
#[derive(Debug)]
enum Layer {
    Wbt(Wbt),
    Latency(IoLatency),
    Cost(Box<IoCost>),
}

impl Layer {
    fn number(&self) -> usize {
        match self {
            Layer::Wbt(_) => 0,
            Layer::Latency(_) => 1,
            Layer::Cost(_) => 2,
        }
    }
}

/// Bios that were held back, and for how long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeldBios {
    /// How many.
    pub bios: u64,
    /// Their time until they went on, in nanoseconds; without those that still
    /// wait.
    pub ns: u64,
}

/// Where a submitter waits, and since when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeldAt {
    layer: usize,
    group: CgroupId,
    since: Nanos,
}

/// The layers of a queue. The kernel puts a new one before the others, so they are
/// asked from the last that was made to the first.
#[derive(Debug, Default)]
pub(crate) struct RqQos {
    layers: Vec<Layer>,
    /// By group: what writeback throttling, `io.latency` and `io.cost` held back.
    held: Vec<[HeldBios; 3]>,
}

impl RqQos {
    /// Whether a bio may go on to get a request; where not, its submitter sleeps
    /// under this ticket until it is among the woken (`rq_qos_throttle`).
    pub(crate) fn throttle(
        &mut self,
        now: Nanos,
        bio: (&Bio, BioId),
        ticket: u64,
        woken: &mut Vec<u64>,
    ) -> Option<HeldAt> {
        self.ask_from(0, now, bio, ticket, woken)
    }

    /// A submitter that was woken goes on; `Some` where it sleeps again.
    pub(crate) fn go_on(
        &mut self,
        now: Nanos,
        (bio, part): (&Bio, BioId),
        ticket: u64,
        at: HeldAt,
        woken: &mut Vec<u64>,
    ) -> Option<HeldAt> {
        let waited = now.saturating_sub(at.since).0;
        match &mut self.layers[at.layer] {
            Layer::Wbt(wbt) => wbt.let_in(now),
            Layer::Cost(_) => {}
            Layer::Latency(latency) => {
                if let Some(group) = latency.go_on(now, part, at.group, ticket, woken) {
                    return Some(HeldAt { group, ..at });
                }
            }
        }
        let number = self.layers[at.layer].number();
        self.held_of(bio.cgroup)[number].ns += waited;
        self.ask_from(at.layer + 1, now, (bio, part), ticket, woken)
    }

    fn ask_from(
        &mut self,
        first: usize,
        now: Nanos,
        (bio, part): (&Bio, BioId),
        ticket: u64,
        woken: &mut Vec<u64>,
    ) -> Option<HeldAt> {
        for layer in first..self.layers.len() {
            let holds = match &mut self.layers[layer] {
                Layer::Wbt(wbt) => (!wbt.wait(now, bio, ticket)).then_some(bio.cgroup),
                Layer::Latency(latency) => latency.throttle(now, (bio, part), ticket, woken),
                Layer::Cost(cost) => {
                    let goes = cost.throttle(now, (bio, part), ticket, woken);
                    (!goes).then_some(bio.cgroup)
                }
            };
            if let Some(group) = holds {
                let number = self.layers[layer].number();
                self.held_of(bio.cgroup)[number].bios += 1;
                return Some(HeldAt {
                    layer,
                    group,
                    since: now,
                });
            }
        }
        if let Some(cost) = self.cost_mut() {
            cost.asks_for_tag(now, part);
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

    /// What was held back of a group's bios: by writeback throttling, `io.latency`
    /// and `io.cost`.
    pub(crate) fn held(&self, group: CgroupId) -> [HeldBios; 3] {
        self.held.get(group.0 as usize).copied().unwrap_or_default()
    }

    /// Counts from zero.
    pub(crate) fn reset_counters(&mut self) {
        self.held.clear();
        if let Some(cost) = self.cost_mut() {
            cost.reset_counters();
        }
    }

    pub(crate) fn wbt(&self) -> Option<&Wbt> {
        self.layers.iter().find_map(|layer| match layer {
            Layer::Wbt(wbt) => Some(wbt),
            _ => None,
        })
    }

    pub(crate) fn wbt_mut(&mut self) -> Option<&mut Wbt> {
        self.layers.iter_mut().find_map(|layer| match layer {
            Layer::Wbt(wbt) => Some(wbt),
            _ => None,
        })
    }

    pub(crate) fn cost(&self) -> Option<&IoCost> {
        self.layers.iter().find_map(|layer| match layer {
            Layer::Cost(cost) => Some(&**cost),
            _ => None,
        })
    }

    pub(crate) fn cost_mut(&mut self) -> Option<&mut IoCost> {
        self.layers.iter_mut().find_map(|layer| match layer {
            Layer::Cost(cost) => Some(&mut **cost),
            _ => None,
        })
    }

    pub(crate) fn latency(&self) -> Option<&IoLatency> {
        self.layers.iter().find_map(|layer| match layer {
            Layer::Latency(latency) => Some(latency),
            _ => None,
        })
    }

    pub(crate) fn latency_mut(&mut self) -> Option<&mut IoLatency> {
        self.layers.iter_mut().find_map(|layer| match layer {
            Layer::Latency(latency) => Some(latency),
            _ => None,
        })
    }

    /// Adds writeback throttling before all other layers (`rq_qos_add`).
    pub(crate) fn add_wbt(&mut self, wbt: Wbt) {
        self.layers.insert(0, Layer::Wbt(wbt));
    }

    /// Adds `io.latency` before all other layers.
    pub(crate) fn add_latency(&mut self, latency: IoLatency) {
        self.layers.insert(0, Layer::Latency(latency));
    }

    /// Adds `io.cost` before all other layers.
    pub(crate) fn add_cost(&mut self, cost: IoCost) {
        self.layers.insert(0, Layer::Cost(Box::new(cost)));
    }

    /// A group has its place in the tree.
    pub(crate) fn set_parent(&mut self, group: CgroupId, parent: CgroupId) {
        for layer in &mut self.layers {
            match layer {
                Layer::Wbt(_) => {}
                Layer::Latency(latency) => latency.set_parent(group, parent),
                Layer::Cost(cost) => cost.set_parent(group, parent),
            }
        }
    }

    /// The bio that was let in gets no request after all (`rq_qos_cleanup`).
    pub(crate) fn cleanup(&mut self, now: Nanos, bio: &Bio, woken: &mut Vec<u64>) {
        if let Some(wbt) = self.wbt_mut() {
            wbt.cleanup(now, bio, woken);
        }
    }

    /// A request was made of a bio: what the layers note of it (`rq_qos_track`). Of a
    /// passthrough command they hear neither then nor later.
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

    /// A bio joined a request whose first bio is this one (`rq_qos_merge`).
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

    /// A request goes to the driver (`rq_qos_issue`).
    pub(crate) fn issue(&mut self, now: Nanos, rq: &Request) {
        if let Some(wbt) = self.wbt_mut() {
            wbt.issue(now, rq);
        }
    }

    /// The driver gave a request back (`rq_qos_requeue`).
    pub(crate) fn requeue(&mut self, rq: &Request) {
        if let Some(wbt) = self.wbt_mut() {
            wbt.requeue(rq);
        }
    }

    /// The drive is done with a request (`blk_stat_add`).
    pub(crate) fn count(&mut self, now: Nanos, rq: &Request) {
        if let Some(wbt) = self.wbt_mut()
            && !rq.is_passthrough()
        {
            wbt.count(now, rq);
        }
    }

    /// A part of a bio is done (`rq_qos_done_bio`).
    pub(crate) fn done_bio(
        &mut self,
        now: Nanos,
        part: BioId,
        status: IoStatus,
        woken: &mut Vec<u64>,
    ) {
        for layer in &mut self.layers {
            match layer {
                Layer::Wbt(_) => {}
                Layer::Latency(latency) => latency.done_bio(now, part, status, woken),
                Layer::Cost(cost) => cost.done_bio(part),
            }
        }
    }

    /// A request is freed (`rq_qos_done`).
    pub(crate) fn done(&mut self, now: Nanos, id: RequestId, rq: &Request, woken: &mut Vec<u64>) {
        if rq.is_passthrough() {
            return;
        }
        for layer in &mut self.layers {
            match layer {
                Layer::Wbt(wbt) => wbt.done(now, rq, woken),
                Layer::Latency(_) => {}
                Layer::Cost(cost) => cost.done(now, id, rq),
            }
        }
    }

    /// Whether the submitter with this ticket is still held back.
    pub(crate) fn is_held(&self, ticket: u64) -> bool {
        self.layers.iter().any(|layer| match layer {
            Layer::Wbt(wbt) => wbt.is_held(ticket),
            Layer::Latency(latency) => latency.is_held(ticket),
            Layer::Cost(cost) => cost.is_held(ticket),
        })
    }

    /// When [`RqQos::timer`] is to be called.
    pub(crate) fn next_timer(&self) -> Nanos {
        let timers = self.layers.iter().map(|layer| match layer {
            Layer::Wbt(wbt) => wbt.next_timer(),
            Layer::Latency(latency) => latency.next_timer(),
            Layer::Cost(cost) => cost.next_timer(),
        });
        timers.min().unwrap_or(Nanos::MAX)
    }

    /// Does what is due.
    pub(crate) fn timer(&mut self, now: Nanos, woken: &mut Vec<u64>) {
        for layer in &mut self.layers {
            match layer {
                Layer::Wbt(wbt) => wbt.timer(now, woken),
                Layer::Latency(latency) => latency.timer(now),
                Layer::Cost(cost) => cost.timer(now, woken),
            }
        }
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
