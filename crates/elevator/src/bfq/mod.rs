//! bfq, Budget Fair Queueing, as Linux 6.12 has it (`block/bfq-iosched.c`,
//! `block/bfq-wf2q.c`); P. Valente and M. Andreolini, "Improving application
//! responsiveness with the BFQ disk I/O scheduler", SYSTOR 2012.
//!
//! Each process has a queue. One queue at a time is in service and has the drive to itself until
//! its budget, in sectors, is used up. B-WF2Q+ chooses the next queue so that shares follow weights
//! whatever the budgets are. The heuristics for low latency and throughput are in files of their
//! own.
//!
//! Drives with several actuators are not modelled, nor is `oom_bfqq`, the queue that the kernel
//! uses when it cannot allocate another. A queue takes its priority from its requests, in the
//! kernel from the process.

mod budget;
mod cooperators;
mod groups;
mod idling;
mod injection;
mod queue;
mod red_black;
mod requests;
mod submitter;
#[cfg(test)]
mod tests;
mod tunables;
mod weight_raising;
mod wf2q;

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::RangeInclusive;

use blklab_blk::{
    Bio, BioFlags, CgroupId, Elevator, ElevatorQueue, InsertAt, MergeKind, Nanos, Op, QueueInfo,
    RequestId, RqFlags, SchedCtx, Slab, SubmitterId, TunableError, elv_bio_merge_ok, jiffies,
    op_is_sync, sched_try_insert_merge, sched_try_merge,
};

use crate::{ElevatorType, StepCosts};
use budget::PeakRate;
use groups::{GROUP_CLASS, Group, GroupId, Member};
use idling::{DriveQueue, WeightCounts};
use queue::{BfqQueue, CLASSES, QueueId};
use submitter::Contexts;
use tunables::{Settings, TUNABLES};
use weight_raising::Burst;

/// Number of asynchronous queues: eight levels of two classes, and one of the idle class.
const ASYNC_QUEUES: usize = 17;
/// Number of reasons for which a queue leaves service.
const EXPIRATIONS: usize = 5;

/// The scheduler's state.
pub struct Bfq {
    queue: ElevatorQueue,
    settings: Settings,
    /// The time at which the current hook was called.
    now_ns: u64,
    jiffies: i64,
    nonrot: bool,
    nr_requests: u32,
    /// The number of tags of which depth limits are fractions.
    old_nr_requests: u32,

    queues: Slab<BfqQueue>,
    contexts: Contexts,
    /// Context and queue of the bio that is being merged.
    merging: Option<(usize, QueueId)>,

    /// All groups; the root is first.
    groups: Vec<Group>,
    /// Number of groups with requests, queued or in the drive.
    pending_groups: u32,
    /// Number of insertions into active trees, which orders queues by activation.
    activations: u64,
    in_service: Option<QueueId>,
    /// Number of busy queues of each class, including the one in service.
    busy: [u32; CLASSES],
    /// Number of busy queues that are weight-raised.
    wr_busy: u32,
    queued: u32,
    in_driver: u32,
    weights: WeightCounts,

    budgets_assigned: u32,
    max_budget: i64,
    last_budget_start_ns: u64,
    rate: PeakRate,
    drive: DriveQueue,
    /// Whether the drive has no moving parts and queues commands.
    queueing_flash: bool,
    /// The sector after the last dispatched request.
    last_position: u64,
    in_service_position: u64,
    last_completion_ns: u64,
    last_completed: Option<QueueId>,

    /// The time at which the wait for the queue in service ends.
    slice_timer: Option<Nanos>,
    last_idling_start_ns: u64,
    /// The time at which the hardware queues should be run.
    run_at: Option<Nanos>,

    /// Whether to time the next request of the queue in service; `waited_rq` is that request once
    /// it is dispatched.
    wait_dispatch: bool,
    waited_rq: Option<RequestId>,
    last_empty_occupied_ns: u64,
    rqs_injected: bool,

    burst: Burst,

    last_dispatched: Option<QueueId>,
    expirations: [u64; EXPIRATIONS],
    idlings: u64,
    injected: u64,
    queue_merges: u64,
    queue_splits: u64,
}

impl Bfq {
    /// Returns a scheduler without requests and with default tunables.
    pub fn new(info: &QueueInfo) -> Bfq {
        let queue = BFQ.queue();
        let nonrot = !info.rotational;
        let mut new = Bfq {
            settings: Settings::of(&queue.tunables),
            queue,
            now_ns: 0,
            jiffies: 0,
            nonrot,
            nr_requests: 0,
            old_nr_requests: 0,
            queues: Slab::default(),
            contexts: Contexts::default(),
            merging: None,
            groups: vec![Group::new(CgroupId::ROOT)],
            pending_groups: 0,
            activations: 0,
            in_service: None,
            busy: [0; CLASSES],
            wr_busy: 0,
            queued: 0,
            in_driver: 0,
            weights: WeightCounts::default(),
            budgets_assigned: 0,
            max_budget: budget::DEFAULT_MAX_BUDGET,
            last_budget_start_ns: 0,
            rate: PeakRate::new(nonrot),
            drive: DriveQueue::default(),
            queueing_flash: nonrot,
            last_position: 0,
            in_service_position: 0,
            last_completion_ns: 0,
            last_completed: None,
            slice_timer: None,
            last_idling_start_ns: 0,
            run_at: None,
            wait_dispatch: false,
            waited_rq: None,
            last_empty_occupied_ns: 0,
            rqs_injected: false,
            burst: Burst::new(),
            last_dispatched: None,
            expirations: [0; EXPIRATIONS],
            idlings: 0,
            injected: 0,
            queue_merges: 0,
            queue_splits: 0,
        };
        new.depth_updated(info);
        new
    }

    fn set_now(&mut self, now: Nanos) {
        self.now_ns = now.0;
        self.jiffies = jiffies(now);
    }

    /// Handles a request that completed, was requeued, or was merged during its insertion.
    fn finish_or_requeue(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        let Some(q) = Bfq::queue_of(&ctx.rqs[id]) else {
            return;
        };
        if ctx.rqs[id].rq_flags.has(RqFlags::STARTED) {
            self.request_completed(ctx, q, id);
        }
        self.release_request(ctx, id);
    }

    /// The number of tags that asynchronous requests and synchronous writes may hold, so that some
    /// are left for reads; it is smaller while weight-raised queues are busy (`bfq_limit_depth`).
    fn write_depth(&self, sync: bool) -> u32 {
        let nr = self.old_nr_requests;
        let depth = match (self.wr_busy > 0, sync) {
            (false, false) => nr / 2,
            (false, true) => nr * 3 / 4,
            (true, false) => nr * 3 / 16,
            (true, true) => nr * 6 / 16,
        };
        depth.max(1)
    }

    /// Whether a queue, or one of its groups, has more requests than its weight's share of `limit`.
    /// Weights of higher classes count eightfold.
    fn is_over_limit(&self, q: QueueId, limit: u32) -> bool {
        let queue = &self.queues[q];
        if !queue.entity.on_tree_or_in_service {
            return false;
        }
        let share = |limit: u64, weight: u32, sum: u64| match sum {
            0 => None,
            sum => Some((limit * weight as u64 + sum / 2) / sum),
        };
        let mut limit = limit as u64;
        let groups: Vec<_> = self.groups_from(queue.group).collect();
        let on_tree = |&g: &GroupId| self.groups[g].entity.on_tree_or_in_service;
        if !groups.iter().all(on_tree) {
            return false;
        }
        for &group in groups.iter().rev() {
            let entity = &self.groups[group].entity;
            let above = self.group_of(Member::Group(group));
            let sum = self.groups[above].sched.trees[GROUP_CLASS].weight_sum;
            if let Some(share) = share(limit, entity.weight, sum) {
                if entity.allocated as u64 >= share {
                    return true;
                }
                limit = share;
            }
        }
        let trees = &self.groups[queue.group].sched.trees[..=queue.class];
        let sum = trees.iter().fold(0, |sum, t| sum * 8 + t.weight_sum);
        let share = share(limit, queue.entity.weight, sum);
        share.is_some_and(|share| queue.entity.allocated as u64 >= share)
    }
}

impl Elevator for Bfq {
    fn queue(&self) -> &ElevatorQueue {
        &self.queue
    }

    fn queue_mut(&mut self) -> &mut ElevatorQueue {
        &mut self.queue
    }

    fn disables_wbt(&self) -> bool {
        true
    }

    fn depth_updated(&mut self, info: &QueueInfo) {
        self.nr_requests = info.nr_requests;
        self.old_nr_requests = info.old_nr_requests;
    }

    fn limit_depth(&mut self, op: Op, flags: BioFlags) -> Option<u32> {
        let sync = op_is_sync(op, flags);
        let limit = match sync && !op.is_write() {
            true => self.nr_requests,
            false => self.write_depth(sync),
        };
        (limit < self.nr_requests).then_some(limit)
    }

    fn limit_depth_for(&mut self, bio: &Bio) -> Option<u32> {
        let limit = self.limit_depth(bio.op, bio.flags);
        let context = self.contexts.find(bio.submitter);
        let q = context.and_then(|c| self.contexts[c].queues[bio.is_sync() as usize]);
        match q {
            Some(q) if self.is_over_limit(q, limit.unwrap_or(self.nr_requests)) => Some(1),
            _ => limit,
        }
    }

    fn min_shallow_depth(&self) -> Option<u32> {
        Some(1)
    }

    fn sees_bios() -> bool {
        true
    }

    fn bio_merge(&mut self, ctx: &mut SchedCtx<'_>, _cpu: usize, bio: &Bio) -> Option<RequestId> {
        self.set_now(ctx.now);
        self.merging = self.contexts.find(bio.submitter).and_then(|context| {
            self.check_cgroup(ctx, context, bio.cgroup);
            let q = self.contexts[context].queues[bio.is_sync() as usize]?;
            Some((context, q))
        });
        sched_try_merge(self, ctx, bio)
    }

    fn request_merge(
        &mut self,
        ctx: &mut SchedCtx<'_>,
        bio: &Bio,
    ) -> Option<(RequestId, MergeKind)> {
        let (_, q) = self.merging?;
        let id = self.queues[q].sorted.find(bio.end())?;
        elv_bio_merge_ok(self, ctx, id, bio).then_some((id, MergeKind::Front))
    }

    /// Whether a bio may be merged into a request, which must be of its own queue. The bio's sector
    /// may show that its process cooperates with another, so its queue can change here.
    fn allow_merge(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId, bio: &Bio) -> bool {
        // A synchronous bio must not wait behind an asynchronous request.
        if bio.is_sync() && !ctx.rqs[id].is_sync() {
            return false;
        }
        let Some((context, mut q)) = self.merging else {
            return false;
        };
        if let Some(into) = self.find_cooperator(q, bio.sector, context) {
            while q != into {
                q = self.merge(context, q);
            }
            self.merging = Some((context, q));
        }
        Bfq::queue_of(&ctx.rqs[id]) == Some(q)
    }

    fn request_merged(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId, kind: MergeKind) {
        if kind == MergeKind::Front
            && ctx.rqs[id].is_sorted()
            && let Some(q) = Bfq::queue_of(&ctx.rqs[id])
        {
            self.set_now(ctx.now);
            self.front_merged(ctx, q, id);
        }
    }

    fn requests_merged(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId, next: RequestId) {
        self.set_now(ctx.now);
        self.merge_requests(ctx, id, next);
    }

    fn former_request(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) -> Option<RequestId> {
        let q = Bfq::queue_of(&ctx.rqs[id])?;
        self.queues[q].sorted.prev(ctx.rqs, id)
    }

    fn next_request(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) -> Option<RequestId> {
        let q = Bfq::queue_of(&ctx.rqs[id])?;
        self.queues[q].sorted.next(ctx.rqs, id)
    }

    fn prepare_request(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        ctx.rqs[id].elv = [0; 2];
    }

    #[inline]
    fn insert_request(&mut self, ctx: &mut SchedCtx<'_>, hctx: usize, id: RequestId, at: InsertAt) {
        self.set_now(ctx.now);
        self.assign_queue(ctx, id);
        if sched_try_insert_merge(self, ctx, id) {
            return;
        }
        ctx.trace_insert(id);
        match at {
            InsertAt::Head => self.queue.head.push_front(ctx.rqs, id),
            InsertAt::Tail => self.add_request(ctx, hctx, id),
        }
    }

    #[inline(always)]
    fn add_request(&mut self, ctx: &mut SchedCtx<'_>, _hctx: usize, id: RequestId) {
        self.insert_into_queue(ctx, id);
        ctx.merge.add(ctx.rqs, id);
    }

    fn dispatch_request(&mut self, ctx: &mut SchedCtx<'_>, _hctx: usize) -> Option<RequestId> {
        self.set_now(ctx.now);
        self.dispatch_one(ctx)
    }

    fn has_work(&self, _hctx: usize) -> bool {
        !self.queue.head.is_empty() || self.queued > 0
    }

    fn requeue_request(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        self.set_now(ctx.now);
        self.finish_or_requeue(ctx, id);
    }

    fn finish_request(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        self.set_now(ctx.now);
        self.finish_or_requeue(ctx, id);
    }

    fn has_submitters() -> bool {
        true
    }

    fn exit_submitter(&mut self, ctx: &mut SchedCtx<'_>, submitter: SubmitterId) {
        self.set_now(ctx.now);
        self.exit_context(ctx, submitter);
    }

    fn has_cgroups(&self) -> bool {
        true
    }

    fn set_cgroup_weight(&mut self, cgroup: CgroupId, weight: u32) {
        self.set_group_weight(cgroup, weight);
    }

    fn set_cgroup_parent(&mut self, cgroup: CgroupId, parent: CgroupId) {
        self.set_group_parent(cgroup, parent);
    }

    fn next_timer(&self) -> Option<Nanos> {
        self.slice_timer.into_iter().chain(self.run_at).min()
    }

    fn timer(&mut self, ctx: &mut SchedCtx<'_>) -> bool {
        self.set_now(ctx.now);
        if self.slice_timer.is_some_and(|at| at <= ctx.now) {
            self.slice_timer = None;
            self.slice_timer_fired(ctx);
        }
        let run = self.run_at.is_some_and(|at| at <= ctx.now);
        if run {
            self.run_at = None;
        }
        run
    }

    /// The kernel clamps what `kstrtoul` reads (`STORE_FUNCTION` and others).
    fn sysfs_clamps(&self) -> Option<RangeInclusive<i64>> {
        Some(0..=i64::MAX)
    }

    fn set_tunable(&mut self, name: &str, value: i64) -> Result<(), TunableError> {
        self.apply_tunable(name, value)
    }

    /// Queues are shown by number, -1 for none. The entries from `service` to `wr_coeff` belong to
    /// the queue of the last dispatched request.
    fn debug_state(&self) -> Vec<(&'static str, i64)> {
        let number = |q: Option<QueueId>| q.map_or(-1, |q| q.index() as i64);
        let mut state = vec![
            ("in_service_queue", number(self.in_service)),
            ("queued", self.queued as i64),
            ("tot_rq_in_driver", self.in_driver as i64),
            ("busy_queues", self.busy_total() as i64),
            ("wr_busy_queues", self.wr_busy as i64),
            ("peak_rate", self.rate.peak as i64),
            ("bfq_max_budget", self.max_budget),
            ("bfqq", number(self.last_dispatched)),
        ];
        if let Some(q) = self.last_dispatched {
            let queue = &self.queues[q];
            state.extend([
                ("pid", queue.owner.map_or(-1, |owner| owner.0 as i64)),
                ("service", queue.entity.service),
                ("budget", queue.entity.budget),
                ("wr_coeff", queue.raising.coeff as i64),
            ]);
            if let Some(Member::Group(group)) = self.parent(Member::Queue(q)) {
                let entity = &self.groups[group].entity;
                state.extend([
                    ("group_weight", entity.weight as i64),
                    ("group_service", entity.service),
                    ("group_budget", entity.budget),
                ]);
            }
        }
        state
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let [too_idle, timeout, exhausted, no_more, preempted] = self.expirations;
        vec![
            ("left service: too idle", too_idle),
            ("left service: budget timeout", timeout),
            ("left service: budget exhausted", exhausted),
            ("left service: no more requests", no_more),
            ("left service: preempted", preempted),
            ("idle slices", self.idlings),
            ("requests injected", self.injected),
            ("queues merged", self.queue_merges),
            ("queues split", self.queue_splits),
        ]
    }
}

/// Entry in the registry of schedulers.
pub const BFQ: ElevatorType = ElevatorType {
    name: "bfq",
    help: "a budget of service for each process in turn, shares by weight, low latency for programs that just started",
    source: "Linux 6.12, block/bfq-iosched.c and bfq-wf2q.c; Valente and Andreolini, SYSTOR 2012",
    tunables: TUNABLES,
    attributes: &[],
    costs: Some(StepCosts {
        merge: 156,
        insert: 199,
        dispatch: 258,
        finish: 74,
    }),
    build: Some(&|info| Box::new(Bfq::new(info))),
};
