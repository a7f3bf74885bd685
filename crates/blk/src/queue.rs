//! `RequestQueue`: blk-mq's state, and how its owner drives it through time.
//!
//! The parts are one file each: [`crate::submit`] takes bios in,
//! [`crate::dispatch`] runs the hardware queues, [`crate::complete`] ends
//! requests, [`crate::flush`] sequences PREFLUSH and FUA.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use crate::bio::{Bio, CgroupId, Op, SubmitterId};
use crate::dispatch::{Paused, Suspended};
use crate::elevator::{Elevator, QueueInfo, SchedCtx};
use crate::flush::Flushing;
use crate::hctx::{DelayedWork, Hctx, HctxStats};
use crate::limits::QueueLimits;
use crate::list::RqList;
use crate::merge::MergeState;
use crate::request::{BioId, IoStatus, Request, RequestId, Requests};
use crate::rq_qos::{
    CostModel, CostQos, CostStat, HeldAt, HeldBios, IoCost, IoLatency, IoMax, PrioPolicy, RqQos,
    Throttled, Wbt,
};
use crate::tags::{Search, Tags};
use crate::trace::{Span, Trace, TraceEvent, TraceKind};
use crate::units::{Nanos, Sector};

/// `BLKDEV_DEFAULT_RQ`: by default a scheduler gets twice the
/// drive's depth, or twice this where the drive is deeper.
const DEFAULT_RQ: u32 = 128;

/// The driver's answer to a request (`blk_status_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlkStatus {
    /// It has it.
    Ok,
    /// It has it, and holds the thread that gave it until
    /// [`RequestQueue::driver_unblocked`], or until [`BlkDriver::take_woken`] names
    /// it: a driver that sleeps.
    OkBlocking,
    /// Something the whole system lacks; try again in a while.
    Resource,
    /// Something of the device's own; a completion will bring it.
    DevResource,
    /// This request's zone is taken; others may go.
    ZoneResource,
    /// It failed.
    Failed(IoStatus),
}

/// Where in a run of a hardware queue an interrupt, or another CPU, can make a
/// difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunPoint {
    /// Before the scheduler is asked.
    Ask,
    /// Before the scheduler, which was asked, has its lock.
    Choose,
    /// Before the driver tag of the request it named is tried.
    Tag,
    /// Before a request goes to the driver.
    Issue,
}

/// What comes between two steps of a run of a hardware queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interruption {
    /// A completion.
    Completion(RequestId, IoStatus),
    /// What other CPUs do; [`RequestQueue::go_on`] goes on with the run, which has
    /// this name.
    OtherCpus(u64),
}

/// A driver as the block layer sees it (`blk_mq_ops`).
pub trait BlkDriver {
    /// Takes a request. `last` says that no other follows at once.
    fn queue_rq(
        &mut self,
        now: Nanos,
        hctx: usize,
        id: RequestId,
        rq: &Request,
        last: bool,
    ) -> BlkStatus;

    /// What comes in the middle of a run of a hardware queue, as an interrupt
    /// does. Asked until there is nothing.
    fn interrupt(&mut self, _point: RunPoint) -> Option<Interruption> {
        None
    }

    /// Whether another thread waits for this CPU: kblockd then goes on with the
    /// run, once it has its turn.
    fn need_resched(&mut self) -> bool {
        false
    }

    /// The busy average with which a dispatch loop begins. A checker may replace
    /// it by the recorded one.
    fn dispatch_busy(&mut self, busy: u32) -> u32 {
        busy
    }

    /// Whether a thread that gave it a request now would sleep inside, or find
    /// another asleep there (a driver with `BLK_MQ_F_BLOCKING`). Who submits leaves
    /// requests to kblockd then, and does not sleep in its place.
    fn would_sleep(&self) -> bool {
        false
    }

    /// A request whose thread may leave the driver, where it slept
    /// ([`BlkStatus::OkBlocking`]). Asked when a request ends.
    fn take_woken(&mut self) -> Option<RequestId> {
        None
    }

    /// No request follows, though the last one's `last` was false.
    fn commit_rqs(&mut self, _now: Nanos, _hctx: usize) {}

    /// Reserves a place for one request, where the driver counts them beside
    /// its tags (SCSI). Where it refuses, the queue is run again when a request
    /// ends, as SCSI's completion handler does.
    fn get_budget(&mut self) -> bool {
        true
    }

    /// Gives a place back.
    fn put_budget(&mut self) {}
}

/// The shape of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueConfig {
    /// Software queues: one a CPU.
    pub nr_cpus: usize,
    /// Hardware contexts.
    pub nr_hw_queues: usize,
    /// Driver tags of each.
    pub queue_depth: u32,
    /// Tags are taken in turn (`BLK_TAG_ALLOC_RR`), not near the one freed last.
    pub round_robin_tags: bool,
    /// What each CPU's first search for a tag is drawn from: the queue knows no chance
    /// of its own.
    pub seed: u64,
    /// What the drive allows.
    pub limits: QueueLimits,
}

/// How long kblockd takes to run a hardware queue that it is asked to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KblockdDelay {
    /// Before its threads are woken.
    pub after: Nanos,
    /// Waking a thread. Those that are asked for together are woken one after
    /// the other, so they do not all come at once to share what was freed.
    pub wake: Nanos,
}

/// A bio's end, as its submitter hears of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BioEnd {
    /// The submitter's handle.
    pub user_data: u64,
    /// The submitter.
    pub submitter: SubmitterId,
    /// What was asked.
    pub op: Op,
    /// Where.
    pub sector: Sector,
    /// How much, in sectors.
    pub sectors: u32,
    /// How it ended.
    pub status: IoStatus,
}

/// How a submission went.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub enum Submit {
    /// The block layer has all of it.
    Done,
    /// The submitter sleeps; [`RequestQueue::take_woken`] names the waiter when
    /// [`RequestQueue::resume`] should be called.
    Blocked(Waiter),
}

/// A submitter that sleeps in the block layer.
#[derive(Debug, PartialEq, Eq)]
pub struct Waiter {
    /// Its name in [`RequestQueue::take_woken`].
    pub ticket: u64,
    pub(crate) cpu: usize,
    pub(crate) state: WaitFor,
}

/// What a sleeping submitter waits for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum WaitFor {
    /// The queue to be unfrozen.
    Unfreeze(Bio),
    /// A layer beside the scheduler to let `part` go on.
    Qos {
        part: BioId,
        rest: Option<Rest>,
        at: HeldAt,
    },
    /// A tag for `part`, of as many as it was given when it first asked; `rest`
    /// comes after it.
    Tag {
        part: BioId,
        shallow: Option<u32>,
        rest: Option<Rest>,
    },
}

/// What is left of a bio that was too large for one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rest {
    pub(crate) bio: Bio,
    pub(crate) parent: BioId,
}

/// The counters of `/sys/block/*/stat`, with times in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueCounters {
    /// Requests ended: reads, writes, discards, flushes.
    pub ios: [u64; 4],
    /// Merges: of bios into requests, and of requests.
    pub merges: [u64; 4],
    /// Sectors moved.
    pub sectors: [u64; 4],
    /// Time from being made to their end, summed over requests.
    pub ticks_ns: [u64; 4],
    /// Time with at least one request in flight.
    pub io_ticks_ns: u64,
    /// Time that requests were in flight while a flush was under way for others, summed
    /// over them.
    pub behind_flush_ns: u64,
    /// Those of the writes that went past the drive's cache (FUA), and the time that
    /// they took.
    pub fua_ios: u64,
    /// See `fua_ios`.
    pub fua_ticks_ns: u64,
    /// Requests that failed.
    pub errors: u64,
    /// Requests that the driver put back.
    pub requeues: u64,
}

/// What throttling did to a control group's bios, each layer for itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CgroupStats {
    /// Held back by `io.max`.
    pub io_max: HeldBios,
    /// Held back by writeback throttling.
    pub wbt: HeldBios,
    /// Held back by `io.latency`.
    pub io_latency: HeldBios,
    /// Held back by `io.cost`.
    pub io_cost: HeldBios,
    /// What the cost model counted, where it is on.
    pub cost: Option<CostStat>,
    /// How many bios `io.latency` lets it have under way; `None`: any number.
    pub max_depth: Option<u32>,
}

/// How often the queue did what costs CPU time, since it was made: a model of
/// CPUs knows the cost of each. The counts only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CostCounts {
    /// Bios taken in.
    pub bios: u64,
    /// Calls of the scheduler's `bio_merge`.
    pub merge_attempts: u64,
    /// Requests given to the scheduler.
    pub inserts: u64,
    /// Calls of the scheduler's `dispatch_request`.
    pub dispatch_calls: u64,
    /// Requests given to the driver.
    pub issues: u64,
    /// Those of them that are longer than a page of 4 KiB.
    pub multi_page_issues: u64,
    /// Pages of those, without the first of each.
    pub further_pages: u64,
    /// Requests given to the driver by a run of another hardware context than their
    /// own, which the scheduler they share makes possible.
    pub foreign_issues: u64,
    /// Those of them whose own hardware context is another socket's
    /// ([`RequestQueue::set_socket_cpus`]).
    pub far_issues: u64,
    /// Requests ended.
    pub ends: u64,
}

impl CostCounts {
    /// What was done since `earlier`.
    pub fn since(&self, earlier: &CostCounts) -> CostCounts {
        CostCounts {
            bios: self.bios - earlier.bios,
            merge_attempts: self.merge_attempts - earlier.merge_attempts,
            inserts: self.inserts - earlier.inserts,
            dispatch_calls: self.dispatch_calls - earlier.dispatch_calls,
            issues: self.issues - earlier.issues,
            multi_page_issues: self.multi_page_issues - earlier.multi_page_issues,
            further_pages: self.further_pages - earlier.further_pages,
            foreign_issues: self.foreign_issues - earlier.foreign_issues,
            far_issues: self.far_issues - earlier.far_issues,
            ends: self.ends - earlier.ends,
        }
    }
}

/// blk-mq's request queue.
pub struct RequestQueue {
    pub(crate) rqs: Requests,
    pub(crate) merge: MergeState,
    /// The largest read or write without a scheduler that wants it smaller.
    max_sectors: u32,
    pub(crate) trace: Trace,
    pub(crate) elevator: Option<Box<dyn Elevator>>,
    /// What it had counted when counters were last set to zero.
    elevator_counted: Vec<(&'static str, u64)>,
    pub(crate) hctxs: Vec<Hctx>,
    /// Software queues.
    pub(crate) ctxs: Vec<RqList>,
    /// Hardware context of a CPU, and its place among that one's software queues.
    pub(crate) cpu_map: Vec<(u16, u16)>,
    pub(crate) queue_depth: u32,
    pub(crate) nr_requests: u32,
    pub(crate) frozen: bool,
    /// The driver refused budget since a request last ended.
    pub(crate) budget_wanted: bool,
    pub(crate) requeue_list: RqList,
    pub(crate) flush_list: RqList,
    pub(crate) flushing: Flushing,
    pub(crate) requeue_work: DelayedWork,
    /// A lower bound of when pending work is due.
    pub(crate) work_hint: Nanos,
    /// How long kblockd takes to come.
    pub(crate) kblockd: KblockdDelay,
    /// Who inserts a request runs its hardware queue.
    pub(crate) runs_inline: bool,
    /// The hardware context that was run last.
    pub(crate) last_run: usize,
    /// The socket of each hardware context's first CPU; empty where there is one.
    pub(crate) sockets: Vec<u16>,
    /// Hardware contexts that the scheduler wants run, first come, first run.
    pub(crate) runs: Vec<u16>,
    /// The same with kblockd woken for them, in the order in which it runs them.
    pub(crate) run_order: VecDeque<u16>,
    pub(crate) ended: Vec<BioEnd>,
    /// Sleeping submitters by hardware context, and those that a frozen queue holds.
    pub(crate) waiting: Vec<VecDeque<u64>>,
    pub(crate) entering: VecDeque<u64>,
    pub(crate) woken: Vec<u64>,
    pub(crate) next_ticket: u64,
    /// Layers beside the scheduler, where there are any.
    pub(crate) rq_qos: Option<Box<RqQos>>,
    /// `io.max`, where a group has limits.
    pub(crate) throttle: Option<Box<Throttled>>,
    pub(crate) suspended: Vec<Suspended>,
    pub(crate) paused: Vec<Paused>,
    pub(crate) counters: QueueCounters,
    pub(crate) cost_counts: CostCounts,
    pub(crate) in_flight: [u32; 2],
    pub(crate) in_flight_since: Nanos,
    pub(crate) scratch: Vec<RequestId>,
}

impl RequestQueue {
    /// A queue without a scheduler.
    ///
    /// # Panics
    /// Without a CPU, a hardware context or a tag.
    pub fn new(config: &QueueConfig) -> RequestQueue {
        assert!(config.nr_cpus > 0 && config.nr_hw_queues > 0 && config.queue_depth > 0);
        let nr_hw_queues = config.nr_hw_queues.min(config.nr_cpus);
        let mut maps = vec![Vec::new(); nr_hw_queues];
        let mut cpu_map = Vec::with_capacity(config.nr_cpus);
        for cpu in 0..config.nr_cpus {
            // Neighbouring CPUs share a queue, as group_cpus_evenly() spreads them.
            let hctx = cpu * nr_hw_queues / config.nr_cpus;
            cpu_map.push((hctx as u16, maps[hctx].len() as u16));
            maps[hctx].push(cpu as u16);
        }
        let search = |hctx: u64| Search {
            nr_cpus: config.nr_cpus,
            round_robin: config.round_robin_tags,
            seed: config.seed.wrapping_add(hctx << 32),
        };
        let hctxs = (0..)
            .zip(maps)
            .map(|(number, ctxs)| Hctx::new(config.queue_depth, ctxs, search(number)));
        RequestQueue {
            rqs: Requests::default(),
            max_sectors: config.limits.max_sectors,
            merge: MergeState::new(config.limits.clone()),
            trace: Trace::default(),
            elevator: None,
            elevator_counted: Vec::new(),
            hctxs: hctxs.collect(),
            ctxs: vec![RqList::new(); config.nr_cpus],
            cpu_map,
            queue_depth: config.queue_depth,
            nr_requests: config.queue_depth,
            frozen: false,
            budget_wanted: false,
            requeue_list: RqList::new(),
            flush_list: RqList::new(),
            flushing: Flushing::default(),
            requeue_work: DelayedWork::default(),
            work_hint: Nanos::MAX,
            kblockd: KblockdDelay::default(),
            runs_inline: false,
            last_run: 0,
            sockets: Vec::new(),
            runs: Vec::new(),
            run_order: VecDeque::new(),
            ended: Vec::new(),
            waiting: vec![VecDeque::new(); nr_hw_queues],
            entering: VecDeque::new(),
            woken: Vec::new(),
            next_ticket: 0,
            rq_qos: None,
            throttle: None,
            suspended: Vec::new(),
            paused: Vec::new(),
            counters: QueueCounters::default(),
            cost_counts: CostCounts::default(),
            in_flight: [0; 2],
            in_flight_since: Nanos::ZERO,
            scratch: Vec::new(),
        }
    }

    /// Puts a scheduler on the queue, or none, and sets `nr_requests` to the
    /// kernel's default for it.
    ///
    /// # Panics
    /// While requests are in the queue: freeze it and let it run dry first.
    pub fn set_elevator(&mut self, elevator: Option<Box<dyn Elevator>>) {
        assert!(
            self.is_idle(),
            "the scheduler is changed on a queue in use; freeze it first"
        );
        self.merge.forget_requests();
        self.nr_requests = match elevator {
            Some(_) => 2 * self.queue_depth.min(DEFAULT_RQ),
            None => self.queue_depth,
        };
        let largest = elevator.as_deref().and_then(|e| e.max_sectors());
        self.merge.limits.max_sectors = self.max_sectors.min(largest.unwrap_or(u32::MAX));
        self.elevator = elevator;
        self.elevator_counted.clear();
        self.resize_sched_tags(self.nr_requests);
    }

    /// Writes `queue/nr_requests`.
    ///
    /// # Errors
    /// Where the value is out of range; the message says what is in it.
    pub fn set_nr_requests(&mut self, nr: u32) -> Result<(), String> {
        let max = match self.elevator {
            Some(_) => 16 * DEFAULT_RQ,
            None => self.queue_depth,
        };
        // BLKDEV_MIN_RQ is 4, but a drive may be shallower.
        let min = 4.min(max);
        if !(min..=max).contains(&nr) {
            return Err(format!("nr_requests takes {min} to {max} here, not {nr}"));
        }
        assert!(self.is_idle(), "nr_requests is changed on a queue in use");
        let old = core::mem::replace(&mut self.nr_requests, nr);
        if self.elevator.is_some() {
            self.resize_sched_tags(old);
        } else {
            self.hctxs.iter_mut().for_each(|h| h.tags = h.new_tags(nr));
        }
        Ok(())
    }

    fn resize_sched_tags(&mut self, old_nr_requests: u32) {
        let nr = self.nr_requests;
        let info = QueueInfo {
            old_nr_requests,
            ..self.info()
        };
        let min_shallow = match self.elevator.as_deref_mut() {
            Some(elevator) => {
                elevator.depth_updated(&info);
                elevator.min_shallow_depth()
            }
            None => None,
        };
        for hctx in &mut self.hctxs {
            hctx.sched_tags = self.elevator.is_some().then(|| {
                let mut tags = hctx.new_tags(nr);
                tags.set_min_shallow_depth(min_shallow);
                tags
            });
            if self.elevator.is_none() {
                hctx.tags = hctx.new_tags(nr);
            } else if hctx.tags.depth() != self.queue_depth {
                hctx.tags = hctx.new_tags(self.queue_depth);
            }
        }
    }

    /// What a scheduler learns of this queue.
    pub fn info(&self) -> QueueInfo {
        QueueInfo {
            nr_requests: self.nr_requests,
            old_nr_requests: self.nr_requests,
            nr_hw_queues: self.hctxs.len() as u32,
            queue_depth: self.queue_depth,
            nr_cpus: self.ctxs.len() as u32,
            capacity_sectors: self.merge.limits.capacity_sectors,
            rotational: self.merge.limits.rotational,
            tags_per_word: Tags::new(self.nr_requests).per_word(),
        }
    }

    /// The scheduler.
    pub fn elevator(&self) -> Option<&dyn Elevator> {
        self.elevator.as_deref()
    }

    /// The scheduler, to set a tunable.
    pub fn elevator_mut(&mut self) -> Option<&mut (dyn Elevator + 'static)> {
        self.elevator.as_deref_mut()
    }

    /// A submitter is gone (`exit_io_context`): the scheduler forgets it.
    pub fn exit_submitter(&mut self, now: Nanos, submitter: SubmitterId) {
        if let Some((elevator, mut ctx)) = self.sched(now) {
            elevator.exit_submitter(&mut ctx, submitter);
        }
    }

    fn rq_qos_mut(&mut self) -> &mut RqQos {
        self.rq_qos.get_or_insert_default()
    }

    /// Writes `queue/wbt_lat_usec`: the latency of reads, in microseconds, above
    /// which buffered writes are held back; 0 turns that off.
    pub fn set_wbt_latency(&mut self, now: Nanos, latency_us: u64) {
        let qos = self.rq_qos.get_or_insert_default();
        match qos.wbt_mut() {
            Some(wbt) => wbt.set_latency(now, latency_us, &mut self.woken),
            None => {
                let cache = self.merge.limits.write_cache;
                qos.add_wbt(Wbt::new(latency_us, self.queue_depth, cache));
            }
        }
    }

    /// Says which control group a group is in; in the root if not said.
    pub fn set_cgroup_parent(&mut self, group: CgroupId, parent: CgroupId) {
        if let Some(elevator) = self.elevator_mut()
            && parent != CgroupId::ROOT
        {
            elevator.set_cgroup_parent(group, parent);
        }
        let throttled = self.throttle.get_or_insert_default();
        throttled.limits.set_parent(group, parent);
        if let Some(qos) = &mut self.rq_qos {
            qos.set_parent(group, parent);
        }
    }

    /// Writes a control group's `io.max`. Its place in the tree is said before.
    pub fn set_io_max(&mut self, now: Nanos, group: CgroupId, max: IoMax) {
        let throttled = self.throttle.get_or_insert_default();
        throttled.limits.set_max(now, group, max);
        self.work_hint = self.work_hint.min(throttled.limits.next_timer());
    }

    /// A control group's `io.max`.
    pub fn io_max(&self, group: CgroupId) -> IoMax {
        let limits = self.throttle.as_ref().map(|throttled| &throttled.limits);
        limits.map_or(IoMax::default(), |limits| limits.max(group))
    }

    /// Writes a control group's `io.prio.class`.
    pub fn set_io_prio_class(&mut self, group: CgroupId, policy: PrioPolicy) {
        let policies = &mut self.throttle.get_or_insert_default().policies;
        let at = group.0 as usize;
        if policies.len() <= at {
            policies.resize(at + 1, PrioPolicy::default());
        }
        policies[at] = policy;
    }

    /// Writes a control group's `io.latency`, in microseconds; 0 for no target. Its
    /// place in the tree is said before.
    pub fn set_io_latency(&mut self, group: CgroupId, target_us: u64) {
        if self.rq_qos_mut().latency().is_none() {
            let rotational = self.merge.limits.rotational;
            let latency = IoLatency::new(rotational, self.nr_requests);
            self.rq_qos_mut().add_latency(latency);
            self.tell_parents();
        }
        if let Some(latency) = self.rq_qos_mut().latency_mut() {
            latency.set_target(group, target_us);
        }
    }

    /// Writes `io.cost.qos` of the root.
    pub fn set_io_cost_qos(&mut self, now: Nanos, qos: CostQos) {
        self.io_cost_mut(now).set_qos(qos);
    }

    /// Writes `io.cost.model` of the root.
    pub fn set_io_cost_model(&mut self, now: Nanos, model: CostModel) {
        self.io_cost_mut(now).set_model(model);
    }

    /// Writes a control group's `io.weight`, 1 to 10000. Its place in the tree is said
    /// before.
    pub fn set_io_weight(&mut self, now: Nanos, group: CgroupId, weight: u32) {
        self.io_cost_mut(now).set_weight(now, group, weight);
    }

    /// The cost model's layer, made where there is none (`blk_iocost_init`).
    pub fn io_cost_mut(&mut self, now: Nanos) -> &mut IoCost {
        if self.rq_qos_mut().cost().is_none() {
            let rotational = self.merge.limits.rotational;
            let cost = IoCost::new(now, rotational, self.queue_depth);
            self.rq_qos_mut().add_cost(cost);
            self.tell_parents();
        }
        self.rq_qos_mut().cost_mut().expect("it was made")
    }

    /// Makes the groups known to the layers.
    fn tell_parents(&mut self) {
        if let (Some(throttled), Some(qos)) = (&self.throttle, &mut self.rq_qos) {
            for (group, parent) in throttled.limits.parents() {
                qos.set_parent(group, parent);
            }
        }
    }

    /// What throttling did to a control group's bios.
    pub fn cgroup_stats(&self, group: CgroupId) -> CgroupStats {
        let qos = self.rq_qos.as_deref();
        let held = qos.map_or_else(Default::default, |qos| qos.held(group));
        let limits = self.throttle.as_deref().map(|throttled| &throttled.limits);
        CgroupStats {
            io_max: limits.map_or(HeldBios::default(), |limits| limits.held(group)),
            wbt: held[0],
            io_latency: held[1],
            io_cost: held[2],
            cost: qos.and_then(RqQos::cost).map(|cost| cost.stat(group)),
            max_depth: qos
                .and_then(RqQos::latency)
                .and_then(|l| l.max_depth(group)),
        }
    }

    /// The cost model, where it was set.
    pub fn io_cost(&self) -> Option<&IoCost> {
        self.rq_qos.as_deref().and_then(RqQos::cost)
    }

    /// Writeback throttling, where it was turned on.
    pub fn wbt(&self) -> Option<&Wbt> {
        self.rq_qos.as_deref().and_then(RqQos::wbt)
    }

    /// Limits of the queue.
    pub fn limits(&self) -> &QueueLimits {
        &self.merge.limits
    }

    /// How long kblockd takes to run a hardware queue; no time, if not said.
    pub fn set_kblockd_delay(&mut self, delay: KblockdDelay) {
        self.kblockd = delay;
    }

    /// Has who inserts a request run its hardware queue at once, where Linux
    /// before 6.10 leaves that to kblockd.
    pub fn set_runs_inline(&mut self, inline: bool) {
        self.runs_inline = inline;
    }

    /// Says that sockets have so many CPUs each, one behind the other.
    pub fn set_socket_cpus(&mut self, cpus: usize) {
        let of = |hctx: usize| {
            let mut cpus_of = self.cpu_map.iter();
            let first = cpus_of.position(|(of, _)| *of as usize == hctx);
            (first.unwrap_or(0) / cpus.max(1)) as u16
        };
        self.sockets = (0..self.hctxs.len()).map(of).collect();
    }

    /// Has a CPU's next search for a tag start at this one.
    pub fn start_tags_at(&mut self, cpu: usize, tag: u32) {
        let hctx = self.cpu_map[cpu].0 as usize;
        self.hctxs[hctx].alloc_tags().start_at(cpu, tag);
    }

    /// Limits, to change them.
    pub fn limits_mut(&mut self) -> &mut QueueLimits {
        &mut self.merge.limits
    }

    /// `queue/nr_requests`.
    pub fn nr_requests(&self) -> u32 {
        self.nr_requests
    }

    /// A request by its name.
    pub fn request(&self, id: RequestId) -> &Request {
        &self.rqs[id]
    }

    /// The bios a request is made of, in the order in which they joined it: a
    /// driver that moves data finds each one's buffer by them. The drive's own
    /// flush has none.
    pub fn bios_of(&self, id: RequestId) -> impl Iterator<Item = &Bio> {
        let first = self.rqs[id].bios.map(|(first, _)| first);
        core::iter::successors(first, |&bio| self.rqs.bios[bio].next)
            .map(|bio| &self.rqs.bios[bio].bio)
    }

    /// Requests made so far, those merged since included: the number of the
    /// next one.
    #[inline]
    pub fn requests_made(&self) -> u64 {
        self.rqs.made()
    }

    /// Whether no bio is anywhere in the queue.
    pub fn is_idle(&self) -> bool {
        self.rqs.bios_in_use() == 0 && self.rqs.in_use() == 0
    }

    /// When [`RequestQueue::process`] should be called next.
    #[inline]
    pub fn next_event(&self) -> Nanos {
        if !self.runs.is_empty() {
            return Nanos::ZERO;
        }
        match &self.elevator {
            Some(elevator) => self.work_hint.min(next_timer(elevator.as_ref())),
            None => self.work_hint,
        }
    }

    /// Makes delayed work due. A kernel's delay ends with a tick and so may be
    /// shorter than ours, which a recorded trace shows.
    pub fn expedite(&mut self, now: Nanos) {
        let works = self.hctxs.iter_mut().map(|h| &mut h.run_work);
        for work in works.chain([&mut self.requeue_work]) {
            if work.is_pending() {
                work.schedule(work.at().min(now));
            }
        }
        self.work_hint = self.work_hint.min(now);
    }

    /// Appends the bios that ended to `out`.
    #[inline]
    pub fn take_ended(&mut self, out: &mut Vec<BioEnd>) {
        hand_over(&mut self.ended, out);
    }

    /// Whether bios ended that were not taken yet.
    #[inline]
    pub fn has_ended(&self) -> bool {
        !self.ended.is_empty()
    }

    /// Appends the tickets of waiters that may go on to `out`.
    #[inline]
    pub fn take_woken(&mut self, out: &mut Vec<u64>) {
        if self.throttle.is_some() {
            self.wake_throttle_worker();
        }
        hand_over(&mut self.woken, out);
    }

    /// Starts or stops recording tracepoints.
    pub fn enable_trace(&mut self, on: bool) {
        self.trace.enable(on);
    }

    /// Gives tracepoints since the last call the times at which a CPU came to
    /// them: those of one hardware context, or all. `weight` says what share each
    /// kind has in the time.
    #[cold]
    pub fn spread_trace(
        &mut self,
        hctx: Option<usize>,
        span: &Span,
        weight: impl Fn(TraceKind) -> u64,
    ) {
        let cpu_map = &self.cpu_map;
        let of_hctx = |event: &TraceEvent, hctx| {
            event.serial != u64::MAX && cpu_map[event.cpu as usize].0 as usize == hctx
        };
        let is_own = |event: &TraceEvent| hctx.is_none_or(|hctx| of_hctx(event, hctx));
        self.trace.spread(is_own, span, weight);
        if hctx.is_none() {
            self.trace.set_timed();
        }
    }

    /// Makes the times of all tracepoints so far final.
    #[inline]
    pub fn keep_trace_times(&mut self) {
        self.trace.set_timed();
    }

    /// Whether tracepoints are recorded.
    #[inline]
    pub fn is_traced(&self) -> bool {
        self.trace.is_on()
    }

    /// Appends recorded tracepoints to `out`.
    pub fn take_trace(&mut self, out: &mut Vec<TraceEvent>) {
        self.trace.drain_into(out);
    }

    /// Counters as the kernel shows them.
    pub fn counters(&self, now: Nanos) -> QueueCounters {
        let mut counters = self.counters.clone();
        counters.merges = self.merge.merges;
        let span = now.saturating_sub(self.in_flight_since);
        if self.in_flight != [0; 2] {
            counters.io_ticks_ns += span.0;
        }
        counters.behind_flush_ns += self.flushing.stalls_ns(self.in_flight, span);
        counters
    }

    /// What the scheduler decided since counters were last set to zero, or since
    /// it came.
    pub fn elevator_counters(&self) -> Vec<(&'static str, u64)> {
        let counters = self.elevator.as_ref().map(|e| e.counters());
        let mut counters = counters.unwrap_or_default();
        for ((_, count), (_, before)) in counters.iter_mut().zip(&self.elevator_counted) {
            *count -= before;
        }
        counters
    }

    /// Sets all counters to zero, at the end of a ramp.
    pub fn reset_counters(&mut self, now: Nanos) {
        let counted = self.elevator.as_ref().map(|e| e.counters());
        self.elevator_counted = counted.unwrap_or_default();
        self.counters = QueueCounters::default();
        self.merge.merges = [0; 4];
        self.in_flight_since = now;
        if let Some(throttled) = &mut self.throttle {
            throttled.limits.reset_counters();
        }
        if let Some(qos) = &mut self.rq_qos {
            qos.reset_counters();
        }
        self.hctxs
            .iter_mut()
            .for_each(|h| h.stats = HctxStats::default());
    }

    /// What was done so far that costs CPU time.
    #[inline]
    pub fn cost_counts(&self) -> CostCounts {
        self.cost_counts
    }

    /// Reads and writes in flight (`inflight`).
    pub fn in_flight(&self) -> [u32; 2] {
        self.in_flight
    }

    /// A hardware context's counters and its busy average.
    pub fn hctx_stats(&self, hctx: usize) -> (&HctxStats, u32) {
        let h = &self.hctxs[hctx];
        (&h.stats, h.dispatch_busy)
    }

    /// The hardware context of a CPU.
    #[inline]
    pub fn hctx_of(&self, cpu: usize) -> usize {
        self.cpu_map[cpu].0 as usize
    }

    /// The first CPU of a hardware context: kblockd runs it there.
    pub fn cpu_of(&self, hctx: usize) -> usize {
        self.hctxs[hctx].ctxs[0] as usize
    }

    /// Hardware contexts.
    pub fn nr_hw_queues(&self) -> usize {
        self.hctxs.len()
    }

    /// Stops a hardware context: nothing reaches the driver through it
    /// (`blk_mq_stop_hw_queue`).
    pub fn stop_hw_queue(&mut self, hctx: usize) {
        self.hctxs[hctx].stopped = true;
        self.hctxs[hctx].run_work.cancel();
    }

    /// Starts a stopped hardware context again and runs it.
    pub fn start_hw_queue(&mut self, now: Nanos, hctx: usize) {
        self.hctxs[hctx].stopped = false;
        self.run_hw_queue_async(now, hctx);
    }

    /// Lets no new bio in (`blk_freeze_queue_start`). The queue is frozen when
    /// [`RequestQueue::is_idle`].
    pub fn freeze(&mut self) {
        self.frozen = true;
    }

    /// Lets bios in again and wakes who waited.
    pub fn unfreeze(&mut self) {
        self.frozen = false;
        self.woken.extend(self.entering.drain(..));
    }

    /// The scheduler with what its hooks see.
    #[inline]
    pub(crate) fn sched(
        &mut self,
        now: Nanos,
    ) -> Option<(&mut (dyn Elevator + 'static), SchedCtx<'_>)> {
        let elevator = self.elevator.as_deref_mut()?;
        let ctx = SchedCtx {
            now,
            rqs: &mut self.rqs,
            merge: &mut self.merge,
            trace: &mut self.trace,
            runs: &mut self.runs,
        };
        Some((elevator, ctx))
    }

    #[inline]
    pub(crate) fn count_in_flight(&mut self, now: Nanos, is_write: bool, change: i32) {
        self.account_in_flight(now);
        let count = &mut self.in_flight[is_write as usize];
        *count = count.wrapping_add_signed(change);
    }

    /// Counts the time since what is in flight last changed.
    #[inline]
    pub(crate) fn account_in_flight(&mut self, now: Nanos) {
        let span = now.saturating_sub(self.in_flight_since);
        if self.in_flight != [0; 2] {
            self.counters.io_ticks_ns += span.0;
        }
        if self.flushing.is_under_way() {
            self.counters.behind_flush_ns += self.flushing.stalls_ns(self.in_flight, span);
        }
        self.in_flight_since = now;
    }
}

/// When a scheduler's timer runs out.
#[inline(never)]
fn next_timer(elevator: &dyn Elevator) -> Nanos {
    elevator.next_timer().unwrap_or(Nanos::MAX)
}

/// Moves everything to the end of `out`. Mostly there is nothing to move, or
/// nothing to move it behind.
#[inline]
fn hand_over<T>(from: &mut Vec<T>, out: &mut Vec<T>) {
    if from.is_empty() {
        return;
    }
    match out.is_empty() {
        true => core::mem::swap(from, out),
        false => append(out, from),
    }
}

#[cold]
fn append<T>(out: &mut Vec<T>, from: &mut Vec<T>) {
    out.append(from);
}
