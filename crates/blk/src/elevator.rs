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

/// The queue as a scheduler sees it, when it is put on it and after changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueInfo {
    /// Scheduler tags a hardware context (`nr_requests`).
    pub nr_requests: u32,
    /// The same before it was last written. Linux 6.12 calls `depth_updated`
    /// before it takes over the new value, so bfq goes on with limits of the old.
    pub old_nr_requests: u32,
    /// Hardware contexts.
    pub nr_hw_queues: u32,
    /// Commands the drive takes at once on one of them.
    pub queue_depth: u32,
    /// Software queues.
    pub nr_cpus: u32,
    /// Size of the drive.
    pub capacity_sectors: u64,
    /// The drive has moving parts.
    pub rotational: bool,
    /// Requests of a tag bitmap's word, for schedulers that count depth by word.
    pub tags_per_word: u32,
}

/// What a hook sees of its queue.
pub struct SchedCtx<'a> {
    /// The present.
    pub now: Nanos,
    /// All requests of the queue.
    pub rqs: &'a mut Requests,
    /// Limits, the merge hash and the last merge.
    pub merge: &'a mut MergeState,
    /// The tracepoints.
    pub trace: &'a mut Trace,
    /// Hardware contexts that kblockd is to run, in the order asked for.
    pub runs: &'a mut Vec<u16>,
}

impl SchedCtx<'_> {
    /// The kernel's `trace_block_rq_insert`: a scheduler calls it for each
    /// request it takes into its queues.
    #[inline]
    pub fn trace_insert(&mut self, id: RequestId) {
        let now = self.now;
        self.rqs[id].inserted = now;
        self.trace.request(now, TraceKind::RqInsert, self.rqs, id);
    }

    /// Has kblockd run a hardware context (`blk_mq_run_hw_queue(hctx, true)`).
    #[inline]
    pub fn run_hw_queue(&mut self, hctx: usize) {
        self.runs.push(hctx as u16);
    }
}

/// Where requests go in (`BLK_MQ_INSERT_AT_HEAD` or not).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InsertAt {
    /// In their turn.
    Tail,
    /// Before everything else: the data of a flush sequence, and requeues.
    Head,
}

/// What a scheduler has whatever it decides (`struct elevator_queue`): its name,
/// its tunables, the requests that go before all others, and counts.
pub struct ElevatorQueue {
    name: &'static str,
    /// Its tunables.
    pub tunables: Tunables,
    /// Requests inserted at the head: requeues and the data of flush sequences.
    pub head: RqList,
    last_was_write: bool,
    switches: u64,
    merged: u64,
    dispatched: u64,
}

impl ElevatorQueue {
    /// One without requests, its tunables at their defaults.
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

    /// Dispatches the next head insert.
    #[inline]
    pub fn pop_head(&mut self, ctx: &mut SchedCtx<'_>) -> Option<RequestId> {
        let id = self.head.pop_front(ctx.rqs)?;
        self.dispatched += 1;
        ctx.rqs[id].rq_flags.set(RqFlags::STARTED);
        Some(id)
    }

    /// Dispatches a request that the scheduler chose and took out.
    #[inline]
    pub fn send(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) -> Option<RequestId> {
        let rq = &mut ctx.rqs[id];
        rq.rq_flags.set(RqFlags::STARTED);
        self.switches += (rq.is_write() != self.last_was_write) as u64;
        self.last_was_write = rq.is_write();
        self.dispatched += 1;
        Some(id)
    }

    /// A queued request became part of another.
    #[inline]
    pub fn count_merge(&mut self) {
        self.merged += 1;
    }

    /// The scheduler's own counts and those kept here.
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

/// An I/O scheduler. The default of a hook is what the kernel does where a
/// scheduler has none.
pub trait Elevator: Send {
    /// What it has whatever it decides.
    fn queue(&self) -> &ElevatorQueue;

    /// The same, to be changed.
    fn queue_mut(&mut self) -> &mut ElevatorQueue;

    /// Its name, as `queue/scheduler` shows it.
    fn name(&self) -> &'static str {
        self.queue().name
    }

    /// The queue's shape changed: `nr_requests` was written, or the scheduler
    /// was just put on the queue (`depth_updated`, `init_hctx`).
    fn depth_updated(&mut self, _info: &QueueInfo) {}

    /// The largest read or write of the block layer that it was written for,
    /// where what it decides rests on that.
    fn max_sectors(&self) -> Option<u32> {
        None
    }

    /// How many of the tags a request of this kind may use; `None` for all.
    fn limit_depth(&mut self, _op: Op, _flags: BioFlags) -> Option<u32> {
        None
    }

    /// As [`Elevator::limit_depth`], for schedulers that also look at who asks.
    fn limit_depth_for(&mut self, bio: &Bio) -> Option<u32> {
        self.limit_depth(bio.op, bio.flags)
    }

    /// Whether it does more in [`Elevator::bio_merge`] than the default, so that it
    /// must be called where somebody else merges.
    fn sees_bios() -> bool
    where
        Self: Sized,
    {
        false
    }

    /// Tries to merge a bio into a queued request; the request it went into.
    fn bio_merge(&mut self, ctx: &mut SchedCtx<'_>, _cpu: usize, bio: &Bio) -> Option<RequestId> {
        crate::merge::sched_try_merge(self, ctx, bio)
    }

    /// A queued request that `bio` could be put in front of.
    fn request_merge(
        &mut self,
        _ctx: &mut SchedCtx<'_>,
        _bio: &Bio,
    ) -> Option<(RequestId, MergeKind)> {
        None
    }

    /// Whether `bio` may become part of this request.
    fn allow_merge(&mut self, _ctx: &mut SchedCtx<'_>, _id: RequestId, _bio: &Bio) -> bool {
        true
    }

    /// A bio became part of this request.
    fn request_merged(&mut self, _ctx: &mut SchedCtx<'_>, _id: RequestId, _kind: MergeKind) {}

    /// `next` became part of `id` and is about to be freed.
    fn requests_merged(&mut self, _ctx: &mut SchedCtx<'_>, _id: RequestId, _next: RequestId) {}

    /// The queued request that starts before this one.
    fn former_request(&mut self, _ctx: &mut SchedCtx<'_>, _id: RequestId) -> Option<RequestId> {
        None
    }

    /// The queued request that starts behind this one.
    fn next_request(&mut self, _ctx: &mut SchedCtx<'_>, _id: RequestId) -> Option<RequestId> {
        None
    }

    /// A request was made that will be inserted later.
    fn prepare_request(&mut self, _ctx: &mut SchedCtx<'_>, _id: RequestId) {}

    /// Inserts requests of one software queue, in order. A request may be merged into a
    /// queued one while it is inserted; those inserted at the head go before all that
    /// the scheduler chooses from.
    fn insert_requests(
        &mut self,
        ctx: &mut SchedCtx<'_>,
        hctx: usize,
        list: &mut RqList,
        at: InsertAt,
    ) {
        while let Some(id) = list.pop_front(ctx.rqs) {
            if at == InsertAt::Tail && crate::merge::sched_try_insert_merge(self, ctx, id) {
                continue;
            }
            ctx.trace_insert(id);
            match at {
                InsertAt::Head => self.queue_mut().head.push_front(ctx.rqs, id),
                InsertAt::Tail => self.add_request(ctx, hctx, id),
            }
        }
    }

    /// Puts a request among those that it chooses from (`elevator_add_req_fn` of
    /// Linux 4.x).
    fn add_request(&mut self, ctx: &mut SchedCtx<'_>, hctx: usize, id: RequestId);

    /// The next request for the drive, if one may go now.
    fn dispatch_request(&mut self, ctx: &mut SchedCtx<'_>, hctx: usize) -> Option<RequestId>;

    /// Whether there is anything queued for this hardware context.
    fn has_work(&self, hctx: usize) -> bool;

    /// The drive finished a request.
    fn completed_request(&mut self, _ctx: &mut SchedCtx<'_>, _id: RequestId) {}

    /// The driver put a dispatched request back; it will be inserted again.
    fn requeue_request(&mut self, _ctx: &mut SchedCtx<'_>, _id: RequestId) {}

    /// A request is about to be freed, whether or not it was ever inserted.
    fn finish_request(&mut self, _ctx: &mut SchedCtx<'_>, _id: RequestId) {}

    /// A submitter is gone and will not come back (`exit_icq`).
    fn exit_submitter(&mut self, _ctx: &mut SchedCtx<'_>, _submitter: SubmitterId) {}

    /// Whether it keeps state for each submitter, and is notified when one
    /// is gone (`icq_size`).
    fn has_submitters() -> bool
    where
        Self: Sized,
    {
        false
    }

    /// Whether it gives control groups their shares.
    fn has_cgroups(&self) -> bool {
        false
    }

    /// A control group's weight was set (`io.bfq.weight`, `blkio.weight`). A
    /// group whose weight never was has the scheduler's default.
    fn set_cgroup_weight(&mut self, _cgroup: CgroupId, _weight: u32) {}

    /// A control group is part of another, which is said before anything is
    /// submitted in it. A group of which nothing is said is part of the root.
    fn set_cgroup_parent(&mut self, _cgroup: CgroupId, _parent: CgroupId) {}

    /// When [`Elevator::timer`] should be called. A scheduler that wants the
    /// hardware queues run after one of its other hooks names the present here
    /// and answers `true` then.
    fn next_timer(&self) -> Option<Nanos> {
        None
    }

    /// Its timer ran out. Returns whether the hardware queues should be run.
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
    /// Where it has none of that name, or the value is out of range.
    fn set_tunable(&mut self, name: &str, value: i64) -> Result<(), TunableError> {
        self.queue_mut().tunables.set(name, value)
    }

    /// Numbers of which sysfs takes the nearest legal value, as most of the
    /// kernel's schedulers do; outside them it refuses what is out of range.
    fn sysfs_clamps(&self) -> Option<RangeInclusive<i64>> {
        None
    }

    /// Sets a tunable as a write to its file in sysfs does.
    ///
    /// # Errors
    /// As [`Elevator::set_tunable`], less what is moved into range.
    fn store_tunable(&mut self, name: &str, value: i64) -> Result<(), TunableError> {
        let moved = self.sysfs_clamps().is_some_and(|of| of.contains(&value));
        let declared = self.tunables().declared();
        let nearest = match declared.iter().find(|t| t.name == name) {
            Some(tunable) if moved => value.clamp(tunable.min, tunable.max),
            _ => value,
        };
        self.set_tunable(name, nearest)
    }

    /// Its files in sysfs that are not one number.
    fn attributes(&self) -> &'static [Attribute] {
        &[]
    }

    /// What one of them shows; `None` where it shows nothing.
    fn attribute(&self, _name: &str) -> Option<String> {
        None
    }

    /// Writes one of them: numbers that [`Attribute::parse`] took.
    fn set_attribute(&mut self, _name: &str, _numbers: &[u64]) {}

    /// What it decided so far, for tables: a name and a count each. Counts only
    /// grow, so that a report can show the difference over its time.
    fn counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// Its state as debugfs shows it, by the kernel's names: for checkers.
    fn debug_state(&self) -> Vec<(&'static str, i64)> {
        Vec::new()
    }

    /// Whether one state serves all hardware contexts, so that running the
    /// submitter's own is enough (`QUEUE_FLAG_SQ_SCHED`).
    fn is_single_queue(&self) -> bool {
        true
    }

    /// The smallest depth [`Elevator::limit_depth`] may name
    /// (`sbitmap_queue_min_shallow_depth`): it decides how many waiters are
    /// woken together.
    fn min_shallow_depth(&self) -> Option<u32> {
        None
    }
}
