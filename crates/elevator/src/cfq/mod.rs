//! cfq, completely fair queueing, as Linux 4.2 has it (`block/cfq-iosched.c`).
//!
//! Every process has a queue for its synchronous requests; asynchronous requests share a queue for
//! each priority. Queues wait in service trees, by class (real time, best effort, idle) and by
//! workload: asynchronous, synchronous without idling, synchronous with idling. One queue is active
//! for a slice of time. When it is empty the drive is idled for a moment, if the process is known
//! to come back soon and not to seek, because idling costs less than seeking away and back. Within
//! a queue, requests go in sector order from the last position, with short steps back allowed; once
//! in a slice the oldest request goes first if its deadline has passed.
//!
//! On a drive without moving parts `slice_idle` starts at zero, which the kernel's documentation
//! calls IOPS mode, and a queue counts as seeky by the size of its requests. Before 4.2 it started
//! at 8 ms there, too: `slice_idle=8` is Linux 4.1 for synchronous requests.
//!
//! Differences from the kernel:
//! - Control groups are one level deep.
//! - If there are close queues on both sides of the head, the closer one cooperates; the kernel
//!   takes the one that its tree finds first.
//! - A process that the drive idles for gets a request although `nr_requests` are in use
//!   (`cfq_may_queue`); blk-mq has no such hook, and it waits for a tag like others.
//! - The kernel's driver asks again after every completion; here the timer causes another run.

mod groups;
mod queues;
mod slices;
#[cfg(test)]
mod tests;
mod tunables;

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::RangeInclusive;

use blklab_blk::{
    Bio, BioFlags, CgroupId, Elevator, ElevatorQueue, HZ, IoClass, IoPrio, MergeKind, Nanos,
    QueueInfo, Request, RequestId, RqFlags, RqList, SchedCtx, Sector, SortList, SubmitterId,
    elv_bio_merge_ok, jiffies, jiffy_start, msecs_to_jiffies,
};
use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;

use crate::{ElevatorType, StepCosts};
use groups::{Group, GroupId, GroupTree};
use tunables::*;

/// Requests further apart than this are a seek, in sectors (`CFQQ_SEEK_THR`).
const SEEK_THRESHOLD: u64 = 8 * 100;
/// The largest request, in sectors, of the kernels for which cfq was written (`BLK_DEF_MAX_SECTORS`
/// before it grew to 1280 KiB).
const MAX_SECTORS: u32 = 1024;
/// Requests at most this far apart are close, in sectors (`CFQQ_CLOSE_THR`).
const CLOSE_THRESHOLD: u64 = 8 * 1024;
/// On a drive without moving parts a request smaller than this counts as a seek, in sectors.
const SMALL_SECTORS: u32 = 2 * 32;
/// Delay of an idle-class queue after the previous one, in jiffies.
const IDLE_DELAY: i64 = HZ / 5;
/// The shortest slice of a workload, in jiffies.
const MIN_THINK_TIME: i64 = 2;
/// A drive that holds this many requests at once queues commands.
const HW_QUEUE_MIN: u32 = 5;
const PRIO_LEVELS: i64 = 8;
const NORMAL_PRIO: u8 = 4;

type QueueId = usize;

/// Priority classes in the order of the service trees; the idle class has one tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Class {
    #[default]
    BestEffort,
    RealTime,
    Idle,
}

/// The kind of a service tree's queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Workload {
    #[default]
    Async,
    SyncNoIdle,
    Sync,
}

const WORKLOADS: [Workload; 3] = [Workload::Async, Workload::SyncNoIdle, Workload::Sync];
const TREES: usize = 7;

fn tree_index(class: Class, workload: Workload) -> usize {
    match class {
        Class::Idle => TREES - 1,
        _ => 3 * class as usize + workload as usize,
    }
}

/// The mean time from a completion to the next request, in jiffies.
#[derive(Clone, Copy, Debug, Default)]
struct ThinkTime {
    last_end: i64,
    total: i64,
    samples: i64,
    mean: i64,
}

impl ThinkTime {
    fn update(&mut self, now: i64, idle: i64) {
        let elapsed = (now - self.last_end).min(2 * idle);
        self.samples = (7 * self.samples + 256) / 8;
        self.total = (7 * self.total + 256 * elapsed) / 8;
        self.mean = (self.total + 128) / self.samples;
    }

    fn is_known(&self) -> bool {
        self.samples > 80
    }

    fn is_longer_than(&self, idle: i64) -> bool {
        self.is_known() && self.mean > idle
    }
}

/// Queues that wait for service, sorted by key.
#[derive(Debug, Default)]
struct ServiceTree {
    queues: Vec<(i64, QueueId)>,
    think_time: ThinkTime,
}

/// The synchronous requests of a process, or the asynchronous ones of a priority.
#[derive(Debug, Default)]
struct Queue {
    group: GroupId,
    sync: bool,
    class: Class,
    ioprio: i64,
    prio_changed: bool,
    /// Number of processes that use this queue, plus one for a shared asynchronous queue.
    processes: u32,
    /// Number of its requests, queued or not.
    allocated: u32,
    /// The service tree in which it waits, and its key there.
    tree: Option<(usize, i64)>,
    on_rr: bool,
    sorted: SortList,
    fifo: RqList,
    next_rq: Option<RequestId>,
    prio_pending: u32,
    /// Number of its requests in the drive.
    dispatched: u32,
    slice_new: bool,
    /// The time at which it became active; its slice starts with the first completion.
    dispatch_start: i64,
    allocated_slice: i64,
    slice_start: i64,
    slice_end: i64,
    slice_residue: i64,
    slice_dispatch: i64,
    fifo_checked: bool,
    wait_request: bool,
    wait_busy: bool,
    must_dispatch: bool,
    idle_window: bool,
    deep: bool,
    seek_history: u32,
    last_request_end: u64,
    /// The queue into which it will be merged.
    merges_into: Option<QueueId>,
    shared: bool,
    split: bool,
}

impl Queue {
    fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }

    fn is_seeky(&self) -> bool {
        self.seek_history.count_ones() > 32 / 8
    }

    fn workload(&self) -> Workload {
        match (self.sync, self.idle_window) {
            (false, _) => Workload::Async,
            (true, false) => Workload::SyncNoIdle,
            (true, true) => Workload::Sync,
        }
    }

    fn tree_index(&self) -> usize {
        tree_index(self.class, self.workload())
    }
}

/// A process with its asynchronous and synchronous queue and its think time.
#[derive(Debug, Default)]
struct Process {
    /// Control group of its last request.
    group: GroupId,
    queues: [Option<QueueId>; 2],
    think_time: ThinkTime,
    prio: IoPrio,
    /// Number of its requests, queued or in the drive.
    requests: u32,
    /// Whether it has exited; some of its requests may remain.
    exited: bool,
}

/// `elv[0]`: the request's queue plus one; zero for none.
const ELV_QUEUE: usize = 0;
/// `elv[1]`: four times the index of its process, plus two flags.
const ELV_PROCESS: usize = 1;
/// Its queue has dispatched it, and it has not completed.
const SERVED: u32 = 1;
/// It is in the drive.
const IN_DRIVER: u32 = 2;

fn queue_of(rq: &Request) -> Option<QueueId> {
    Some(rq.elv[ELV_QUEUE].checked_sub(1)? as QueueId)
}

fn process_of(rq: &Request) -> usize {
    rq.elv[ELV_PROCESS] as usize / 4
}

fn is_prio(rq: &Request) -> bool {
    rq.flags.has(BioFlags::META)
}

/// Whether it is a synchronous write without `REQ_IDLE`, which announces no further writes
/// (`rq_noidle`).
fn is_no_idle(rq: &Request) -> bool {
    rq.is_write() && rq.flags.has(BioFlags::SYNC) && !rq.flags.has(BioFlags::IDLE)
}

/// The scheduler's state.
pub struct Cfq {
    queue: ElevatorQueue,
    rotational: bool,
    queues: Vec<Queue>,
    free_queues: Vec<QueueId>,
    processes: Vec<Process>,
    free_processes: Vec<usize>,
    process_ids: HashMap<SubmitterId, usize, FxBuildHasher>,
    /// All groups; the root is first.
    groups: Vec<Group>,
    group_tree: GroupTree,
    /// The group that is being served.
    serving: GroupId,
    /// Number of queues in the service trees, and of synchronous ones among them.
    busy: u32,
    busy_sync: u32,
    active: Option<QueueId>,
    active_process: Option<usize>,
    class: Class,
    workload: Workload,
    workload_end: i64,
    queued: u32,
    in_driver: u32,
    /// Dispatched requests of asynchronous and of synchronous queues.
    in_flight: [u32; 2],
    /// Whether the drive queues commands; `None` until that is known.
    queues_in_drive: Option<bool>,
    depth_seen: u32,
    depth_samples: u32,
    last_position: u64,
    last_delayed_sync: i64,
    idle_until: Option<i64>,
    /// Time at which the hardware queues should be run.
    run_at: Option<Nanos>,
    slices: u64,
    idles: u64,
    preemptions: u64,
    expired: u64,
    merged: u64,
    dispatched: u64,
}

impl Cfq {
    /// Returns a scheduler without requests and with default tunables.
    pub fn new(info: &QueueInfo) -> Cfq {
        let mut queue = CFQ.queue();
        if !info.rotational {
            // The value is always in range.
            let _ = queue.tunables.set("slice_idle", 0);
        }
        let mut new = Cfq {
            queue,
            rotational: info.rotational,
            queues: Vec::new(),
            free_queues: Vec::new(),
            processes: Vec::new(),
            free_processes: Vec::new(),
            process_ids: HashMap::default(),
            groups: Vec::new(),
            group_tree: GroupTree::default(),
            serving: groups::ROOT,
            busy: 0,
            busy_sync: 0,
            active: None,
            active_process: None,
            class: Class::BestEffort,
            workload: Workload::Async,
            workload_end: 0,
            queued: 0,
            in_driver: 0,
            in_flight: [0; 2],
            queues_in_drive: None,
            depth_seen: 0,
            depth_samples: 0,
            last_position: 0,
            // Far enough back that synchronous requests do not count as delayed.
            last_delayed_sync: -HZ,
            idle_until: None,
            run_at: None,
            slices: 0,
            idles: 0,
            preemptions: 0,
            expired: 0,
            merged: 0,
            dispatched: 0,
        };
        new.group(CgroupId::ROOT);
        new
    }

    fn ticks(&self, tunable: usize) -> i64 {
        msecs_to_jiffies(self.queue.tunables.at(tunable))
    }

    fn is_queueing_ssd(&self) -> bool {
        !self.rotational && self.queues_in_drive != Some(false)
    }
}

impl Elevator for Cfq {
    fn queue(&self) -> &ElevatorQueue {
        &self.queue
    }

    fn queue_mut(&mut self) -> &mut ElevatorQueue {
        &mut self.queue
    }

    fn disables_wbt(&self) -> bool {
        true
    }

    /// The seek history compares a request with the end of the previous one at its insertion; later
    /// merges do not move that end. If a reader's 128 KiB requests could grow beyond 528 KiB while
    /// they wait, the next one would count as a seek by [`SEEK_THRESHOLD`], and the drive would not
    /// idle for it.
    fn max_sectors(&self) -> Option<u32> {
        Some(MAX_SECTORS)
    }

    fn request_merge(
        &mut self,
        ctx: &mut SchedCtx<'_>,
        bio: &Bio,
    ) -> Option<(RequestId, MergeKind)> {
        let process = *self.process_ids.get(&bio.submitter)?;
        let queue = self.processes[process].queues[bio.is_sync() as usize]?;
        let id = self.queues[queue].sorted.find(bio.end())?;
        elv_bio_merge_ok(self, ctx, id, bio).then_some((id, MergeKind::Front))
    }

    /// Bios merge only within a process's queue, and a synchronous bio never into an asynchronous
    /// request.
    fn allow_merge(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId, bio: &Bio) -> bool {
        if bio.is_sync() && !ctx.rqs[id].is_sync() {
            return false;
        }
        let process = self.process_ids.get(&bio.submitter);
        process.is_some_and(|&process| {
            let queue = self.processes[process].queues[bio.is_sync() as usize];
            queue.is_some() && queue == queue_of(&ctx.rqs[id])
        })
    }

    fn request_merged(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId, kind: MergeKind) {
        if kind == MergeKind::Front
            && ctx.rqs[id].is_sorted()
            && let Some(queue) = queue_of(&ctx.rqs[id])
        {
            self.queues[queue].sorted.remove(ctx.rqs, id);
            self.add_sorted(ctx, queue, id, jiffies(ctx.now));
        }
    }

    /// The remaining request takes over an earlier deadline and its place.
    fn requests_merged(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId, next: RequestId) {
        self.merged += 1;
        let (queue, gone) = (queue_of(&ctx.rqs[id]), queue_of(&ctx.rqs[next]));
        let both_queued = ctx.rqs[id].is_sorted() && ctx.rqs[next].is_sorted();
        if let (true, Some(queue)) = (both_queued && queue == gone, queue) {
            let q = &mut self.queues[queue];
            q.fifo.inherit_deadline(ctx.rqs, id, next);
            if q.next_rq == Some(next) {
                q.next_rq = Some(id);
            }
        }
        self.remove(ctx, next);
        if let Some(gone) = gone
            && self.queues[gone].on_rr
            && self.queues[gone].is_empty()
            && self.active != Some(gone)
        {
            self.del_queue_rr(gone);
        }
    }

    fn former_request(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) -> Option<RequestId> {
        let queue = queue_of(&ctx.rqs[id])?;
        self.queues[queue].sorted.prev(ctx.rqs, id)
    }

    fn next_request(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) -> Option<RequestId> {
        let queue = queue_of(&ctx.rqs[id])?;
        self.queues[queue].sorted.next(ctx.rqs, id)
    }

    fn prepare_request(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        let rq = &mut ctx.rqs[id];
        let process = self.process(rq.submitter, jiffies(ctx.now));
        self.check_ioprio(process, rq.prio);
        self.check_group(process, rq.cgroup);
        let queue = self.queue_for(process, rq.is_sync());
        self.queues[queue].allocated += 1;
        self.processes[process].requests += 1;
        rq.elv[ELV_QUEUE] = queue as u32 + 1;
        rq.elv[ELV_PROCESS] = 4 * process as u32;
    }

    #[inline(always)]
    fn add_request(&mut self, ctx: &mut SchedCtx<'_>, _hctx: usize, id: RequestId) {
        self.enqueue(ctx, id);
    }

    fn dispatch_request(&mut self, ctx: &mut SchedCtx<'_>, _hctx: usize) -> Option<RequestId> {
        let id = match self.queue.head.pop_front(ctx.rqs) {
            Some(id) => id,
            None => {
                let queue = self.select_queue(ctx)?;
                self.dispatch_from(ctx, queue)?
            }
        };
        ctx.rqs[id].rq_flags.set(RqFlags::STARTED);
        self.dispatched += 1;
        Some(id)
    }

    fn activate_request(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        let rq = &mut ctx.rqs[id];
        if rq.elv[ELV_PROCESS] & SERVED != 0 {
            rq.elv[ELV_PROCESS] |= IN_DRIVER;
            self.in_driver += 1;
            self.last_position = rq.end().0;
        }
    }

    fn deactivate_request(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        let state = &mut ctx.rqs[id].elv[ELV_PROCESS];
        self.in_driver -= (*state & IN_DRIVER != 0) as u32;
        *state &= !IN_DRIVER;
    }

    fn has_work(&self, _hctx: usize) -> bool {
        !self.queue.head.is_empty() || self.queued > 0
    }

    fn completed_request(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        let rq = &ctx.rqs[id];
        let (state, sync) = (rq.elv[ELV_PROCESS], rq.is_sync());
        let (true, Some(queue)) = (state & SERVED != 0, queue_of(rq)) else {
            return;
        };
        self.update_hw_tag();
        self.in_driver -= (state & IN_DRIVER != 0) as u32;
        self.queues[queue].dispatched -= 1;
        self.groups[self.queues[queue].group].dispatched -= 1;
        self.in_flight[self.queues[queue].sync as usize] -= 1;
        self.record_completion(queue, rq, jiffies(ctx.now));
        ctx.rqs[id].elv[ELV_PROCESS] &= !(SERVED | IN_DRIVER);
        if self.active == Some(queue) {
            self.active_queue_completed(ctx, queue, sync);
        }
        if self.queued > 0 {
            self.run_at = Some(ctx.now);
        }
    }

    fn finish_request(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        if let Some(queue) = queue_of(&ctx.rqs[id]) {
            ctx.rqs[id].elv[ELV_QUEUE] = 0;
            self.queues[queue].allocated -= 1;
            self.free_if_unused(queue);
            self.process_request_freed(process_of(&ctx.rqs[id]));
        }
    }

    fn has_submitters() -> bool {
        true
    }

    fn exit_submitter(&mut self, ctx: &mut SchedCtx<'_>, submitter: SubmitterId) {
        self.exit_process(ctx.now, submitter);
    }

    fn has_cgroups(&self) -> bool {
        true
    }

    fn set_cgroup_weight(&mut self, cgroup: CgroupId, weight: u32) {
        self.set_group_weight(cgroup, weight);
    }

    fn next_timer(&self) -> Option<Nanos> {
        let idle = self.idle_until.map(jiffy_start);
        match (self.run_at, idle) {
            (Some(run), Some(idle)) => Some(run.min(idle)),
            (run, idle) => run.or(idle),
        }
    }

    fn timer(&mut self, ctx: &mut SchedCtx<'_>) -> bool {
        let now = jiffies(ctx.now);
        let run = self.run_at.take_if(|at| *at <= ctx.now).is_some();
        let ended = self.idle_until.take_if(|at| *at <= now).is_some();
        (ended && self.idle_timer_ended(now)) || run
    }

    /// `STORE_FUNCTION` clamps what `simple_strtoul` reads, which ignores a minus sign.
    fn sysfs_clamps(&self) -> Option<RangeInclusive<i64>> {
        Some(i64::MIN..=i64::MAX)
    }

    fn debug_state(&self) -> Vec<(&'static str, i64)> {
        let free = |all: usize, free: usize| (all - free) as i64;
        vec![
            ("busy_queues", self.busy as i64),
            ("rq_queued", self.queued as i64),
            ("rq_in_driver", self.in_driver as i64),
            ("queues", free(self.queues.len(), self.free_queues.len())),
            (
                "processes",
                free(self.processes.len(), self.free_processes.len()),
            ),
        ]
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("slices", self.slices),
            ("times idled", self.idles),
            ("preemptions", self.preemptions),
            ("expired deadlines", self.expired),
            ("requests merged", self.merged),
            ("dispatched", self.dispatched),
        ]
    }
}

/// Entry in the registry of schedulers.
pub const CFQ: ElevatorType = ElevatorType {
    name: "cfq",
    help: "time slices for each process, by priority; idles for sequential readers",
    source: "Linux 4.2, block/cfq-iosched.c",
    tunables: TUNABLES,
    attributes: &[],
    costs: Some(StepCosts {
        merge: 136,
        insert: 202,
        dispatch: 140,
        finish: 107,
    }),
    build: Some(&|info| Box::new(Cfq::new(info))),
};
