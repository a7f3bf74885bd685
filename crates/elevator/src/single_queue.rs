//! What the schedulers of the block layer with one queue have in common.
//!
//! Linux up to 4.20 asked such a scheduler little more than to take a request in
//! and to name the next one (`struct elevator_ops`). [`Policy`] is that, and
//! [`SingleQueue`] the rest, which is the same for all of them: requests that go
//! in at the head, merging, counts.

use std::ops::RangeInclusive;

use blklab_blk::{
    Bio, Elevator, InsertAt, MergeKind, Nanos, QueueInfo, RequestId, Requests, RqFlags, RqList,
    SchedCtx, SubmitterId, TunableError, Tunables, elv_bio_merge_ok,
};

use crate::admit::admit;

/// What a scheduler decides. In brackets the kernel's name of a hook.
pub trait Policy: Send {
    /// As `queue/scheduler` shows it.
    const NAME: &'static str;

    /// The queue's shape changed.
    fn depth_updated(&mut self, _info: &QueueInfo) {}

    /// How many of the tags the bio's request may use (`elevator_may_queue_fn`,
    /// which said yes or no).
    fn limit_depth_for(&mut self, _bio: &Bio) -> Option<u32> {
        None
    }

    /// As [`Elevator::min_shallow_depth`].
    fn min_shallow_depth(&self) -> Option<u32> {
        None
    }

    /// Takes a request in (`elevator_add_req_fn`).
    fn add(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId);

    /// The next request, if one may go: it goes (`elevator_dispatch_fn`).
    fn choose(&mut self, ctx: &SchedCtx<'_>) -> Option<RequestId>;

    /// Takes a request out that goes or became part of another. One that merges
    /// while it is being inserted is not queued.
    fn remove(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId);

    /// A request that was chosen and taken out is on its way.
    fn sent(&mut self, _ctx: &mut SchedCtx<'_>, _id: RequestId) {}

    /// `next` becomes part of `id`, and leaves it what it has
    /// (`elevator_merge_req_fn`).
    fn inherit(&mut self, _ctx: &mut SchedCtx<'_>, _id: RequestId, _next: RequestId) {}

    /// The queued request that starts before this one
    /// (`elevator_former_req_fn`).
    fn former(&self, rqs: &Requests, id: RequestId) -> Option<RequestId>;

    /// The queued request that starts behind this one
    /// (`elevator_latter_req_fn`).
    fn latter(&self, rqs: &Requests, id: RequestId) -> Option<RequestId>;

    /// Whether nothing is queued.
    fn is_empty(&self) -> bool;

    /// A queued request that starts where the bio ends (`elevator_merge_fn`).
    fn behind(&self, _bio: &Bio) -> Option<RequestId> {
        None
    }

    /// A queued request has grown by a bio (`elevator_merged_fn`).
    fn grown(&mut self, _ctx: &mut SchedCtx<'_>, _id: RequestId, _kind: MergeKind) {}

    /// Whether a bio may become part of a request
    /// (`elevator_allow_bio_merge_fn`).
    fn allows_merge(&self, _rqs: &Requests, _id: RequestId, _bio: &Bio) -> bool {
        true
    }

    /// The drive finished a request (`elevator_completed_req_fn`).
    fn completed(&mut self, _ctx: &mut SchedCtx<'_>, _id: RequestId) {}

    /// The driver put a request back (`elevator_deactivate_req_fn`).
    fn requeued(&mut self, _ctx: &mut SchedCtx<'_>, _id: RequestId) {}

    /// A request is about to be freed (`elevator_put_req_fn`).
    fn finished(&mut self, _ctx: &mut SchedCtx<'_>, _id: RequestId) {}

    /// A submitter is gone (`elevator_exit_icq_fn`).
    fn submitter_exited(&mut self, _submitter: SubmitterId) {}

    /// When [`Policy::timer`] should be called.
    fn next_timer(&self) -> Option<Nanos> {
        None
    }

    /// Its timer ran out. Returns whether it may have something to take now.
    fn timer(&mut self, _now: Nanos) -> bool {
        false
    }

    /// Its tunables.
    fn tunables(&self) -> &Tunables;

    /// Its tunables, to be set.
    fn tunables_mut(&mut self) -> &mut Tunables;

    /// A tunable was set.
    fn tunable_set(&mut self) {}

    /// As [`Elevator::sysfs_clamps`].
    fn sysfs_clamps(&self) -> Option<RangeInclusive<i64>> {
        None
    }

    /// What it decided so far, besides what [`SingleQueue`] counts.
    fn counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// As [`Elevator::debug_state`].
    fn debug_state(&self) -> Vec<(&'static str, i64)> {
        Vec::new()
    }
}

/// A scheduler that is a policy over one queue.
pub struct SingleQueue<P> {
    policy: P,
    /// Head inserts: requeues and the data of flush sequences.
    head: RqList,
    last_was_write: bool,
    switches: u64,
    merged: u64,
    dispatched: u64,
}

impl<P: Policy + 'static> SingleQueue<P> {
    /// A scheduler with that policy.
    pub fn of(policy: P) -> Box<dyn Elevator> {
        Box::new(SingleQueue {
            policy,
            head: RqList::new(),
            last_was_write: false,
            switches: 0,
            merged: 0,
            dispatched: 0,
        })
    }

    #[inline]
    fn take(&mut self, ctx: &mut SchedCtx<'_>) -> Option<RequestId> {
        let id = self.policy.choose(ctx)?;
        self.policy.remove(ctx, id);
        self.policy.sent(ctx, id);
        let write = ctx.rqs[id].is_write();
        self.switches += (write != self.last_was_write) as u64;
        self.last_was_write = write;
        Some(id)
    }
}

impl<P: Policy + 'static> Elevator for SingleQueue<P> {
    fn name(&self) -> &'static str {
        P::NAME
    }

    fn depth_updated(&mut self, info: &QueueInfo) {
        self.policy.depth_updated(info);
    }

    fn limit_depth_for(&mut self, bio: &Bio) -> Option<u32> {
        self.policy.limit_depth_for(bio)
    }

    fn min_shallow_depth(&self) -> Option<u32> {
        self.policy.min_shallow_depth()
    }

    fn request_merge(
        &mut self,
        ctx: &mut SchedCtx<'_>,
        bio: &Bio,
    ) -> Option<(RequestId, MergeKind)> {
        let id = self.policy.behind(bio)?;
        elv_bio_merge_ok(self, ctx, id, bio).then_some((id, MergeKind::Front))
    }

    fn allow_merge(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId, bio: &Bio) -> bool {
        self.policy.allows_merge(ctx.rqs, id, bio)
    }

    fn request_merged(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId, kind: MergeKind) {
        self.policy.grown(ctx, id, kind);
    }

    fn requests_merged(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId, next: RequestId) {
        self.merged += 1;
        self.policy.inherit(ctx, id, next);
        self.policy.remove(ctx, next);
    }

    fn former_request(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) -> Option<RequestId> {
        self.policy.former(ctx.rqs, id)
    }

    fn next_request(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) -> Option<RequestId> {
        self.policy.latter(ctx.rqs, id)
    }

    #[inline(always)]
    fn insert_request(
        &mut self,
        ctx: &mut SchedCtx<'_>,
        _hctx: usize,
        id: RequestId,
        at: InsertAt,
    ) {
        if admit(self, |own| &mut own.head, ctx, id, at) {
            self.policy.add(ctx, id);
        }
    }

    fn dispatch_request(&mut self, ctx: &mut SchedCtx<'_>, _hctx: usize) -> Option<RequestId> {
        let id = match self.head.pop_front(ctx.rqs) {
            Some(id) => id,
            None => self.take(ctx)?,
        };
        self.dispatched += 1;
        ctx.rqs[id].rq_flags.set(RqFlags::STARTED);
        Some(id)
    }

    fn has_work(&self, _hctx: usize) -> bool {
        !self.head.is_empty() || !self.policy.is_empty()
    }

    fn completed_request(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        self.policy.completed(ctx, id);
    }

    fn requeue_request(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        self.policy.requeued(ctx, id);
    }

    fn finish_request(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        self.policy.finished(ctx, id);
    }

    fn exit_submitter(&mut self, _ctx: &mut SchedCtx<'_>, submitter: SubmitterId) {
        self.policy.submitter_exited(submitter);
    }

    fn next_timer(&self) -> Option<Nanos> {
        self.policy.next_timer()
    }

    fn timer(&mut self, ctx: &mut SchedCtx<'_>) -> bool {
        self.policy.timer(ctx.now)
    }

    fn tunables(&self) -> &Tunables {
        self.policy.tunables()
    }

    fn set_tunable(&mut self, name: &str, value: i64) -> Result<(), TunableError> {
        self.policy.tunables_mut().set(name, value)?;
        self.policy.tunable_set();
        Ok(())
    }

    fn sysfs_clamps(&self) -> Option<RangeInclusive<i64>> {
        self.policy.sysfs_clamps()
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let mut counters = self.policy.counters();
        counters.extend([
            ("direction switches", self.switches),
            ("requests merged", self.merged),
            ("dispatched", self.dispatched),
        ]);
        counters
    }

    fn debug_state(&self) -> Vec<(&'static str, i64)> {
        self.policy.debug_state()
    }
}
