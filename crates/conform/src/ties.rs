//! Which of several requests that start at one sector a bio goes in front of.
//!
//! mq-deadline looks for it in a red-black tree and takes the one it meets
//! first on the way down. Which that is depends on how the tree was balanced
//! before, not on anything the scheduler decides; ours takes the oldest. So that
//! such a merge does not make all that follows differ, the recorded one is
//! taken where it fits as well as ours, and the report says how often.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, PoisonError};

use blklab_blk::{
    Attribute, Bio, BioFlags, CgroupId, Elevator, ElevatorQueue, InsertAt, MergeKind, Nanos, Op,
    QueueInfo, RequestId, Requests, RqList, SchedCtx, SubmitterId, TunableError, Tunables,
    elv_bio_merge_ok, sched_try_merge,
};

/// When the scheduler learns that a request ended, and when that was made and issued, where
/// the trace tells.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    pub(crate) at: Nanos,
    pub(crate) made_and_issued: Option<[Nanos; 2]>,
}

/// What the trace says of the merge that comes next, and how often it was needed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hint(Arc<Mutex<HintState>>);

#[derive(Debug, Default)]
struct HintState {
    /// A request's serial number.
    recorded: Option<u64>,
    /// When the scheduler was asked, where the trace tells.
    asked_at: Option<Nanos>,
    /// A request that ends, and what the trace tells of that.
    completed: Option<(RequestId, Ended)>,
    /// Something was inserted since this was reset.
    inserted: bool,
    /// Hardware contexts that the scheduler has requests for.
    has_work: Vec<bool>,
    taken: u64,
}

impl Hint {
    /// The kernel's bio went into the request of this serial number.
    pub(crate) fn merges_into(&self, serial: Option<u64>) {
        self.with(|state| state.recorded = serial);
    }

    /// The next call of the scheduler is at this time.
    pub(crate) fn asked_at(&self, now: Option<Nanos>) {
        self.with(|state| state.asked_at = now);
    }

    /// This request ends, at the times that the trace tells.
    pub(crate) fn completes(&self, id: RequestId, ended: Option<Ended>) {
        self.with(|state| state.completed = ended.map(|ended| (id, ended)));
    }

    /// What the trace tells of the end of a request.
    fn ended(&self, id: RequestId) -> Option<Ended> {
        let completed = self.with(|state| state.completed);
        completed.and_then(|(of, ended)| (of == id).then_some(ended))
    }

    /// A new call of the queue begins.
    pub(crate) fn begin(&self) {
        self.with(|state| {
            state.asked_at = None;
            state.inserted = false;
        });
    }

    /// Whether the call inserted something.
    pub(crate) fn inserted(&self) -> bool {
        self.with(|state| state.inserted)
    }

    /// Whether the scheduler has requests for a hardware context.
    pub(crate) fn has_work(&self, hctx: usize) -> bool {
        self.with(|state| state.has_work.get(hctx).copied().unwrap_or(false))
    }

    /// How often the recorded request was taken instead of another.
    pub(crate) fn taken(&self) -> u64 {
        self.with(|state| state.taken)
    }

    fn with<T>(&self, f: impl FnOnce(&mut HintState) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A scheduler that takes the recorded one of equals.
pub(crate) struct TieBreaker {
    inner: Box<dyn Elevator>,
    hint: Hint,
    /// The scheduler merges bios by itself.
    merges: bool,
    /// Requests that were inserted, by their serial numbers.
    inserted: BTreeMap<u64, RequestId>,
}

impl TieBreaker {
    /// `merges` where the scheduler merges bios by itself.
    pub(crate) fn new(inner: Box<dyn Elevator>, hint: Hint, merges: bool) -> TieBreaker {
        TieBreaker {
            inner,
            hint,
            merges,
            inserted: BTreeMap::new(),
        }
    }

    /// Requests came or went, by a call for this hardware context.
    fn note_work(&self, hctx: usize) {
        self.hint.with(|state| {
            let all = state.has_work.len().max(hctx + 1);
            state.has_work.clear();
            (state.has_work).extend((0..all).map(|hctx| self.inner.has_work(hctx)));
        });
    }
}

// Every hook is forwarded here: one that the trait gains and that is forgotten
// would be the block layer's default, not the scheduler's.
#[deny(clippy::missing_trait_methods)]
impl Elevator for TieBreaker {
    /// It wraps any scheduler; only a kernel asks, and of the schedulers themselves.
    fn has_submitters() -> bool {
        false
    }

    /// The same holds here.
    fn sees_bios() -> bool {
        true
    }

    /// The same holds here.
    fn merges_by_end() -> bool {
        true
    }

    fn ends_can_wait(&self) -> bool {
        self.inner.ends_can_wait()
    }

    /// Merges by [`TieBreaker::request_merge`], which the scheduler's own would
    /// not ask.
    fn bio_merge(&mut self, ctx: &mut SchedCtx<'_>, cpu: usize, bio: &Bio) -> Option<RequestId> {
        match self.merges {
            true => self.inner.bio_merge(ctx, cpu, bio),
            false => sched_try_merge(self, ctx, bio),
        }
    }

    fn request_merge(
        &mut self,
        ctx: &mut SchedCtx<'_>,
        bio: &Bio,
    ) -> Option<(RequestId, MergeKind)> {
        let (ours, kind) = self.inner.request_merge(ctx, bio)?;
        let recorded = self.hint.with(|state| state.recorded);
        let recorded = recorded.and_then(|serial| {
            let id = *self.inserted.get(&serial)?;
            (ctx.rqs[id].serial == serial).then_some(id)
        });
        match recorded {
            Some(recorded)
                if recorded != ours
                    && ctx.rqs[recorded].is_sorted()
                    && ctx.rqs[recorded].sector == ctx.rqs[ours].sector
                    && elv_bio_merge_ok(self, ctx, recorded, bio) =>
            {
                self.hint.with(|state| state.taken += 1);
                Some((recorded, kind))
            }
            _ => Some((ours, kind)),
        }
    }

    fn insert_requests(
        &mut self,
        ctx: &mut SchedCtx<'_>,
        hctx: usize,
        list: &mut RqList,
        at: InsertAt,
    ) {
        let named = |id: RequestId| (ctx.rqs[id].serial, id);
        self.inserted.extend(list.iter(ctx.rqs).map(named));
        self.hint.with(|state| state.inserted = true);
        self.inner.insert_requests(ctx, hctx, list, at);
        self.note_work(hctx);
    }

    fn insert_request(&mut self, ctx: &mut SchedCtx<'_>, hctx: usize, id: RequestId, at: InsertAt) {
        self.inserted.insert(ctx.rqs[id].serial, id);
        self.hint.with(|state| state.inserted = true);
        self.inner.insert_request(ctx, hctx, id, at);
        self.note_work(hctx);
    }

    fn dispatch_request(&mut self, ctx: &mut SchedCtx<'_>, hctx: usize) -> Option<RequestId> {
        if let Some(now) = self.hint.with(|state| state.asked_at.take()) {
            ctx.now = now;
        }
        let chosen = self.inner.dispatch_request(ctx, hctx);
        self.note_work(hctx);
        chosen
    }

    // The others go straight through.

    fn add_request(&mut self, ctx: &mut SchedCtx<'_>, hctx: usize, id: RequestId) {
        self.inner.add_request(ctx, hctx, id);
    }

    fn queue(&self) -> &ElevatorQueue {
        self.inner.queue()
    }
    fn queue_mut(&mut self) -> &mut ElevatorQueue {
        self.inner.queue_mut()
    }
    fn name(&self) -> &'static str {
        self.inner.name()
    }
    fn depth_updated(&mut self, info: &QueueInfo) {
        self.inner.depth_updated(info);
    }
    fn max_sectors(&self) -> Option<u32> {
        self.inner.max_sectors()
    }
    fn limit_depth(&mut self, op: Op, flags: BioFlags) -> Option<u32> {
        self.inner.limit_depth(op, flags)
    }
    fn limit_depth_for(&mut self, bio: &Bio) -> Option<u32> {
        self.inner.limit_depth_for(bio)
    }
    fn exit_submitter(&mut self, ctx: &mut SchedCtx<'_>, submitter: SubmitterId) {
        self.inner.exit_submitter(ctx, submitter);
    }
    fn has_cgroups(&self) -> bool {
        self.inner.has_cgroups()
    }
    fn set_cgroup_weight(&mut self, cgroup: CgroupId, weight: u32) {
        self.inner.set_cgroup_weight(cgroup, weight);
    }
    fn set_cgroup_parent(&mut self, cgroup: CgroupId, parent: CgroupId) {
        self.inner.set_cgroup_parent(cgroup, parent);
    }
    fn allow_merge(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId, bio: &Bio) -> bool {
        self.inner.allow_merge(ctx, id, bio)
    }
    fn request_merged(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId, kind: MergeKind) {
        self.inner.request_merged(ctx, id, kind);
    }
    fn requests_merged(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId, next: RequestId) {
        self.inner.requests_merged(ctx, id, next);
    }
    fn former_request(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) -> Option<RequestId> {
        self.inner.former_request(ctx, id)
    }
    fn next_request(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) -> Option<RequestId> {
        self.inner.next_request(ctx, id)
    }
    fn prepare_request(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        self.inner.prepare_request(ctx, id);
    }
    fn has_work(&self, hctx: usize) -> bool {
        self.inner.has_work(hctx)
    }
    fn completed_request(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        if let Some(ended) = self.hint.ended(id) {
            ctx.now = ended.at;
            if let Some([made, issued]) = ended.made_and_issued {
                (ctx.rqs[id].start, ctx.rqs[id].io_start) = (made, issued);
            }
        }
        self.inner.completed_request(ctx, id);
    }
    fn activate_request(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        self.inner.activate_request(ctx, id);
    }
    fn deactivate_request(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        self.inner.deactivate_request(ctx, id);
    }
    fn requeue_request(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        self.inner.requeue_request(ctx, id);
    }
    fn finish_request(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        if let Some(ended) = self.hint.ended(id) {
            ctx.now = ended.at;
        }
        self.inner.finish_request(ctx, id);
    }
    fn next_timer(&self) -> Option<Nanos> {
        self.inner.next_timer()
    }
    fn timer(&mut self, ctx: &mut SchedCtx<'_>) -> bool {
        self.inner.timer(ctx)
    }
    fn tunables(&self) -> &Tunables {
        self.inner.tunables()
    }
    fn set_tunable(&mut self, name: &str, value: i64) -> Result<(), TunableError> {
        self.inner.set_tunable(name, value)
    }
    fn sysfs_clamps(&self) -> Option<RangeInclusive<i64>> {
        self.inner.sysfs_clamps()
    }
    fn store_tunable(&mut self, name: &str, value: i64) -> Result<(), TunableError> {
        self.inner.store_tunable(name, value)
    }
    fn attributes(&self) -> &'static [Attribute] {
        self.inner.attributes()
    }
    fn attribute(&self, name: &str) -> Option<String> {
        self.inner.attribute(name)
    }
    fn set_attribute(&mut self, name: &str, numbers: &[u64]) {
        self.inner.set_attribute(name, numbers);
    }
    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.inner.counters()
    }
    fn debug_state(&self) -> Vec<(&'static str, i64)> {
        self.inner.debug_state()
    }
    fn debug_files(&self, rqs: &Requests, hctx: Option<usize>) -> Vec<(String, String)> {
        self.inner.debug_files(rqs, hctx)
    }
    fn disables_wbt(&self) -> bool {
        self.inner.disables_wbt()
    }

    fn is_single_queue(&self) -> bool {
        self.inner.is_single_queue()
    }
    fn min_shallow_depth(&self) -> Option<u32> {
        self.inner.min_shallow_depth()
    }
}
