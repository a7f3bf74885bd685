//! `Elevator`: the interface of an I/O scheduler, with the kernel's hook names.

use alloc::string::String;
use alloc::vec::Vec;
use core::ops::RangeInclusive;

use crate::attribute::Attribute;
use crate::bio::{Bio, BioFlags, CgroupId, Op, SubmitterId};
use crate::list::RqList;
use crate::merge::{MergeKind, MergeState};
use crate::request::{RequestId, Requests, RqFlags};
use crate::trace::{Trace, TraceKind};
use crate::tunable::{Tunable, TunableError, Tunables};
use crate::units::Nanos;

/// Properties of the queue that a scheduler is told of when it is attached and after changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueInfo {
    /// Scheduler tags of each hardware context (`nr_requests`).
    pub nr_requests: u32,
    /// The previous `nr_requests`. Linux 6.12 calls `depth_updated` before it stores the new value,
    /// so bfq computes its limits from the old one.
    pub old_nr_requests: u32,
    /// Number of hardware contexts.
    pub nr_hw_queues: u32,
    /// Number of commands that the drive takes at once from one hardware queue.
    pub queue_depth: u32,
    /// Number of software queues.
    pub nr_cpus: u32,
    /// Size of the drive, in sectors.
    pub capacity_sectors: u64,
    /// Whether the drive has moving parts.
    pub rotational: bool,
}

/// The parts of the queue that a hook can use.
pub struct SchedCtx<'a> {
    /// The current time.
    pub now: Nanos,
    /// All requests of the queue.
    pub rqs: &'a mut Requests,
    /// The limits, the merge hash and the last merge.
    pub merge: &'a mut MergeState,
    /// The tracepoints.
    pub trace: &'a mut Trace,
    /// Hardware contexts that kblockd should run, in the order in which they were asked for.
    pub runs: &'a mut Vec<u16>,
}

impl SchedCtx<'_> {
    /// Records the insertion of a request (`trace_block_rq_insert`). A scheduler calls it for each
    /// request that it queues.
    #[inline]
    pub fn trace_insert(&mut self, id: RequestId) {
        let now = self.now;
        self.rqs[id].inserted = now;
        self.trace.request(now, TraceKind::RqInsert, self.rqs, id);
    }

    /// Schedules a run of a hardware context in kblockd (`blk_mq_run_hw_queue(hctx, true)`).
    #[inline]
    pub fn run_hw_queue(&mut self, hctx: usize) {
        self.runs.push(hctx as u16);
    }
}

/// Where requests are inserted (`BLK_MQ_INSERT_AT_HEAD` or not).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InsertAt {
    /// In the order that the scheduler decides.
    Tail,
    /// Before all others: data of flush sequences, and requeued requests.
    Head,
}

/// State that every scheduler has (`struct elevator_queue`): name, tunables, requests inserted at
/// the head, and counters.
pub struct ElevatorQueue {
    name: &'static str,
    /// Its tunables.
    pub tunables: Tunables,
    /// Requests inserted at the head: requeued ones and data of flush sequences.
    pub head: RqList,
    last_was_write: bool,
    switches: u64,
    merged: u64,
    dispatched: u64,
}

impl ElevatorQueue {
    /// Returns an empty queue with default tunables.
    pub fn new(name: &'static str, tunables: &'static [Tunable]) -> ElevatorQueue {
        ElevatorQueue {
            name,
            tunables: Tunables::new(tunables),
            head: RqList::new(),
            last_was_write: false,
            switches: 0,
            merged: 0,
            dispatched: 0,
        }
    }

    /// Dispatches the first request that was inserted at the head.
    #[inline]
    pub fn pop_head(&mut self, ctx: &mut SchedCtx<'_>) -> Option<RequestId> {
        let id = self.head.pop_front(ctx.rqs)?;
        self.dispatched += 1;
        ctx.rqs[id].rq_flags.set(RqFlags::STARTED);
        Some(id)
    }

    /// Dispatches a request that the scheduler has chosen and removed from its lists.
    #[inline]
    pub fn send(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) -> Option<RequestId> {
        let rq = &mut ctx.rqs[id];
        rq.rq_flags.set(RqFlags::STARTED);
        self.switches += (rq.is_write() != self.last_was_write) as u64;
        self.last_was_write = rq.is_write();
        self.dispatched += 1;
        Some(id)
    }

    /// Counts a queued request that was merged into another.
    #[inline]
    pub fn count_merge(&mut self) {
        self.merged += 1;
    }

    /// The scheduler's own counters, followed by the common ones.
    pub fn counters<const N: usize>(
        &self,
        own: [(&'static str, u64); N],
    ) -> Vec<(&'static str, u64)> {
        let mut counters = own.to_vec();
        counters.extend([
            ("direction switches", self.switches),
            ("requests merged", self.merged),
            ("dispatched", self.dispatched),
        ]);
        counters
    }
}

/// An I/O scheduler. The default of each hook does what the kernel does for a scheduler without
/// that hook.
pub trait Elevator: Send {
    /// The state that every scheduler has.
    fn queue(&self) -> &ElevatorQueue;

    /// The state that every scheduler has, mutably.
    fn queue_mut(&mut self) -> &mut ElevatorQueue;

    /// Name of the scheduler, as `queue/scheduler` shows it.
    fn name(&self) -> &'static str {
        self.queue().name
    }

    /// Tells the scheduler of a new queue shape: `nr_requests` was written, or the scheduler was
    /// just attached (`depth_updated`, `init_hctx`).
    fn depth_updated(&mut self, _info: &QueueInfo) {}

    /// The largest read or write, in sectors, that the scheduler was designed for, if its decisions
    /// depend on it.
    fn max_sectors(&self) -> Option<u32> {
        None
    }

    /// The number of tags that a request of this kind may use; `None` for all.
    fn limit_depth(&mut self, _op: Op, _flags: BioFlags) -> Option<u32> {
        None
    }

    /// As [`Elevator::limit_depth`], for schedulers that also consider the submitter.
    fn limit_depth_for(&mut self, bio: &Bio) -> Option<u32> {
        self.limit_depth(bio.op, bio.flags)
    }

    /// Whether [`Elevator::bio_merge`] does more than the default, so that it must be called even
    /// if merging is done elsewhere.
    fn sees_bios() -> bool
    where
        Self: Sized,
    {
        false
    }

    /// Whether [`Elevator::bio_merge`] and [`Elevator::insert_requests`] look for a queued request
    /// by its end and ask [`Elevator::request_merge`], as the defaults do.
    fn merges_by_end() -> bool
    where
        Self: Sized,
    {
        true
    }

    /// Tries to merge a bio into a queued request; returns that request.
    fn bio_merge(&mut self, ctx: &mut SchedCtx<'_>, _cpu: usize, bio: &Bio) -> Option<RequestId> {
        crate::merge::sched_try_merge(self, ctx, bio)
    }

    /// Finds a queued request to whose front `bio` can be merged.
    fn request_merge(
        &mut self,
        _ctx: &mut SchedCtx<'_>,
        _bio: &Bio,
    ) -> Option<(RequestId, MergeKind)> {
        None
    }

    /// Whether `bio` may be merged into this request.
    fn allow_merge(&mut self, _ctx: &mut SchedCtx<'_>, _id: RequestId, _bio: &Bio) -> bool {
        true
    }

    /// Called after a bio was merged into this request.
    fn request_merged(&mut self, _ctx: &mut SchedCtx<'_>, _id: RequestId, _kind: MergeKind) {}

    /// Called when `next` was merged into `id` and is about to be freed.
    fn requests_merged(&mut self, _ctx: &mut SchedCtx<'_>, _id: RequestId, _next: RequestId) {}

    /// The queued request before this one in sector order.
    fn former_request(&mut self, _ctx: &mut SchedCtx<'_>, _id: RequestId) -> Option<RequestId> {
        None
    }

    /// The queued request after this one in sector order.
    fn next_request(&mut self, _ctx: &mut SchedCtx<'_>, _id: RequestId) -> Option<RequestId> {
        None
    }

    /// Called when a request was made that will be inserted later.
    fn prepare_request(&mut self, _ctx: &mut SchedCtx<'_>, _id: RequestId) {}

    /// Inserts requests of one software queue, in order.
    fn insert_requests(
        &mut self,
        ctx: &mut SchedCtx<'_>,
        hctx: usize,
        list: &mut RqList,
        at: InsertAt,
    ) {
        while let Some(id) = list.pop_front(ctx.rqs) {
            self.insert_request(ctx, hctx, id, at);
        }
    }

    /// Inserts a request. It may be merged into a queued one instead. Requests inserted at the head
    /// are dispatched before all others.
    #[inline(always)]
    fn insert_request(&mut self, ctx: &mut SchedCtx<'_>, hctx: usize, id: RequestId, at: InsertAt) {
        if at == InsertAt::Tail && crate::merge::sched_try_insert_merge(self, ctx, id) {
            return;
        }
        ctx.trace_insert(id);
        match at {
            InsertAt::Head => self.queue_mut().head.push_front(ctx.rqs, id),
            InsertAt::Tail => self.add_request(ctx, hctx, id),
        }
    }

    /// Queues a request for the scheduler's own decision (`elevator_add_req_fn` of Linux 4.x).
    fn add_request(&mut self, ctx: &mut SchedCtx<'_>, hctx: usize, id: RequestId);

    /// Takes the next request to be dispatched, if one may be now.
    fn dispatch_request(&mut self, ctx: &mut SchedCtx<'_>, hctx: usize) -> Option<RequestId>;

    /// Called when the driver has taken up a dispatched request, also after it was requeued
    /// (`elevator_activate_req_fn` of Linux 4.x). A request that waits for the driver's resources
    /// counts as taken up, as one does that a driver of Linux 4.x has peeked at.
    fn activate_request(&mut self, _ctx: &mut SchedCtx<'_>, _id: RequestId) {}

    /// Whether a request is queued for this hardware context.
    fn has_work(&self, hctx: usize) -> bool;

    /// Called when the drive has finished a request.
    fn completed_request(&mut self, _ctx: &mut SchedCtx<'_>, _id: RequestId) {}

    /// Called when the driver gives a request back that it had taken up
    /// (`elevator_deactivate_req_fn` of Linux 4.x).
    fn deactivate_request(&mut self, _ctx: &mut SchedCtx<'_>, _id: RequestId) {}

    /// Called when the driver returns a dispatched request, which will be inserted again.
    fn requeue_request(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        self.deactivate_request(ctx, id);
    }

    /// Called when a request is about to be freed, even if it was never inserted.
    fn finish_request(&mut self, _ctx: &mut SchedCtx<'_>, _id: RequestId) {}

    /// Whether the end of any request now in the drive changes nothing before the next call of
    /// another hook: no timer is set and no queue is run. Then a kernel need not take the
    /// scheduler's lock at an end, but calls [`Elevator::completed_request`] and
    /// [`Elevator::finish_request`] later, in order and with the time of the end, before that hook.
    fn ends_can_wait(&self) -> bool {
        false
    }

    /// Called when a submitter has exited (`exit_icq`).
    fn exit_submitter(&mut self, _ctx: &mut SchedCtx<'_>, _submitter: SubmitterId) {}

    /// Whether the scheduler keeps state for each submitter and must be told when one exits
    /// (`icq_size`).
    fn has_submitters() -> bool
    where
        Self: Sized,
    {
        false
    }

    /// Whether the scheduler divides the drive between control groups.
    fn has_cgroups(&self) -> bool {
        false
    }

    /// Sets the weight of a control group (`io.bfq.weight`, `blkio.weight`). Other groups have the
    /// scheduler's default weight.
    fn set_cgroup_weight(&mut self, _cgroup: CgroupId, _weight: u32) {}

    /// Sets the parent of a control group, before anything is submitted in it. The default parent
    /// is the root.
    fn set_cgroup_parent(&mut self, _cgroup: CgroupId, _parent: CgroupId) {}

    /// The time at which [`Elevator::timer`] should be called. A scheduler that wants the hardware
    /// queues run after another hook returns the current time here, and `true` from the timer.
    fn next_timer(&self) -> Option<Nanos> {
        None
    }

    /// Handles the expired timer. Returns whether the hardware queues should be run.
    fn timer(&mut self, _ctx: &mut SchedCtx<'_>) -> bool {
        false
    }

    /// Its tunables.
    fn tunables(&self) -> &Tunables {
        &self.queue().tunables
    }

    /// Sets a tunable.
    ///
    /// # Errors
    /// If there is no tunable of that name, or the value is out of range.
    fn set_tunable(&mut self, name: &str, value: i64) -> Result<(), TunableError> {
        self.queue_mut().tunables.set(name, value)
    }

    /// The range of numbers that a write through sysfs clamps to the legal range, as most of the
    /// kernel's schedulers do; a number outside it is refused if it is out of range.
    fn sysfs_clamps(&self) -> Option<RangeInclusive<i64>> {
        None
    }

    /// Sets a tunable as a write to its sysfs file does.
    ///
    /// # Errors
    /// As [`Elevator::set_tunable`], except for values that are clamped.
    fn store_tunable(&mut self, name: &str, value: i64) -> Result<(), TunableError> {
        let moved = self.sysfs_clamps().is_some_and(|of| of.contains(&value));
        let declared = self.tunables().declared();
        let nearest = match declared.iter().find(|t| t.name == name) {
            Some(tunable) if moved => value.clamp(tunable.min, tunable.max),
            _ => value,
        };
        self.set_tunable(name, nearest)
    }

    /// The sysfs files that are not a single number.
    fn attributes(&self) -> &'static [Attribute] {
        &[]
    }

    /// The text that an attribute shows; `None` if it cannot be read.
    fn attribute(&self, _name: &str) -> Option<String> {
        None
    }

    /// Writes an attribute, with numbers from [`Attribute::parse`].
    fn set_attribute(&mut self, _name: &str, _numbers: &[u64]) {}

    /// Counters of the scheduler's decisions, with names for tables. They only grow, so that a
    /// report can show the difference over an interval.
    fn counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// Internal state under the names of debugfs, for conformance checks.
    fn debug_state(&self) -> Vec<(&'static str, i64)> {
        Vec::new()
    }

    /// The files of its folder `sched` in debugfs, without the newline that ends each: of the queue
    /// (`queue_debugfs_attrs`), or of a hardware context (`hctx_debugfs_attrs`).
    fn debug_files(&self, _rqs: &Requests, _hctx: Option<usize>) -> Vec<(String, String)> {
        Vec::new()
    }

    /// Whether one state serves all hardware contexts, so that running the submitter's own is
    /// enough (`QUEUE_FLAG_SQ_SCHED`).
    fn is_single_queue(&self) -> bool {
        true
    }

    /// Whether write-back is not throttled under it unless someone asks for that: it limits
    /// writes itself (`ELEVATOR_FLAG_DISABLE_WBT`), or belongs to the kernels' single queue,
    /// where that was off (`CONFIG_BLK_WBT_SQ`).
    fn disables_wbt(&self) -> bool {
        false
    }

    /// The smallest depth that [`Elevator::limit_depth`] can return
    /// (`sbitmap_queue_min_shallow_depth`); it decides how many waiters are woken together.
    fn min_shallow_depth(&self) -> Option<u32> {
        None
    }
}

/// Has a scheduler dispatch its next request to the driver, which takes it up
/// (`blk_peek_request` of Linux 4.x).
#[inline]
pub fn take_request<E: Elevator + ?Sized>(
    elevator: &mut E,
    ctx: &mut SchedCtx<'_>,
    hctx: usize,
) -> Option<RequestId> {
    let id = elevator.dispatch_request(ctx, hctx)?;
    elevator.activate_request(ctx, id);
    Some(id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::QueueLimits;
    use crate::request::Request;
    use crate::units::Sector;

    #[test]
    fn requests_from_the_head_are_counted_as_dispatched() {
        let (mut rqs, mut trace) = (Requests::default(), Trace::default());
        let mut merge = MergeState::of_kernel(QueueLimits::default());
        let ids = [0, 8].map(|sector| {
            let bio = Bio::new(Op::Read, Sector(sector), 8);
            rqs.insert(Request::for_bio(&bio, Nanos::ZERO))
        });
        let mut queue = ElevatorQueue::new("head", &[]);
        ids.iter()
            .for_each(|id| queue.head.push_back(&mut rqs, *id));
        let mut ctx = SchedCtx {
            now: Nanos::ZERO,
            rqs: &mut rqs,
            merge: &mut merge,
            trace: &mut trace,
            runs: &mut Vec::new(),
        };
        let taken = [(); 3].map(|()| queue.pop_head(&mut ctx));
        assert_eq!(taken, [Some(ids[0]), Some(ids[1]), None]);
        assert_eq!(queue.counters([]).last(), Some(&("dispatched", 2)));
        assert!(rqs[ids[0]].rq_flags.has(RqFlags::STARTED));
    }
}
