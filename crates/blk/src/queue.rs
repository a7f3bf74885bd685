//! `RequestQueue`: the state of blk-mq, and the calls that drive it through time.
//!
//! Its methods are in several files: [`crate::submit`] takes bios, [`crate::dispatch`] runs the
//! hardware queues, [`crate::complete`] ends requests, [`crate::flush`] sequences PREFLUSH and FUA.

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
use crate::tags::Search;
use crate::trace::{Span, Trace, TraceEvent, TraceKind};
use crate::units::{Nanos, Sector};
use crate::zone::ZonePlugs;

/// `BLKDEV_DEFAULT_RQ`: a scheduler gets twice the drive's depth by default, but at most twice this
/// number.
const DEFAULT_RQ: u32 = 128;
/// `BLKDEV_MIN_RQ`: the fewest requests that `nr_requests` gives.
pub const MIN_RQ: u32 = 4;

/// The driver's answer to a request (`blk_status_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlkStatus {
    /// The driver took the request.
    Ok,
    /// The driver took the request and sleeps in the submitting thread until
    /// [`RequestQueue::driver_unblocked`] is called or [`BlkDriver::take_woken`] returns the
    /// request.
    OkBlocking,
    /// The driver lacked a resource of the whole system; the queue tries again after a delay.
    Resource,
    /// The driver lacked a resource of the device; a completion will free it.
    DevResource,
    /// The zone of this request is busy; requests for other zones can go on.
    ZoneResource,
    /// The request failed.
    Failed(IoStatus),
}

/// A point in a submission or in a run of a hardware queue at which an interrupt or another CPU can
/// change the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunPoint {
    /// Before the scheduler is asked.
    Ask,
    /// Before the scheduler, which was asked, has its lock.
    Choose,
    /// Before a driver tag is taken for the request that the scheduler chose.
    Tag,
    /// Before a request goes to the driver.
    Issue,
    /// Before a submitter that ran the queue searches for a tag again.
    Request,
    /// Before the requests of a plug go into the scheduler.
    Insert,
}

/// An event between two steps of a hardware queue's run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interruption {
    /// A completion at this time.
    Completion(RequestId, IoStatus, Nanos),
    /// The run pauses for other CPUs under this number; [`RequestQueue::resume_run`] continues it.
    OtherCpus(u64),
}

/// A driver as the block layer sees it (`blk_mq_ops`).
pub trait BlkDriver {
    /// Takes a request. `last` says that no other request follows immediately.
    fn queue_rq(
        &mut self,
        now: Nanos,
        hctx: usize,
        id: RequestId,
        rq: &Request,
        last: bool,
    ) -> BlkStatus;

    /// Returns the next event that interrupts the run at this point; called again until it returns
    /// `None`.
    fn interrupt(&mut self, _point: RunPoint) -> Option<Interruption> {
        None
    }

    /// Whether another thread waits for this CPU, so that kblockd must continue the run later.
    fn need_resched(&mut self) -> bool {
        false
    }

    /// The busy average with which a dispatch loop begins. A conformance check can replace it by a
    /// recorded value.
    fn dispatch_busy(&mut self, busy: u32) -> u32 {
        busy
    }

    /// Whether a thread that calls `queue_rq` now would sleep in the driver, or another thread
    /// sleeps there already (a driver with `BLK_MQ_F_BLOCKING`). Submitters then leave their
    /// requests to kblockd.
    fn would_sleep(&self) -> bool {
        false
    }

    /// Returns the request whose thread no longer sleeps in the driver ([`BlkStatus::OkBlocking`]).
    /// Called after each completion.
    fn take_woken(&mut self) -> Option<RequestId> {
        None
    }

    /// Tells the driver that no request follows although the previous `last` was false.
    fn commit_rqs(&mut self, _now: Nanos, _hctx: usize) {}

    /// Reserves budget for one request, if the driver counts requests beside its tags (SCSI). After
    /// it returns false, the next completion runs the queue again, as SCSI's completion handler
    /// does.
    fn get_budget(&mut self) -> bool {
        true
    }

    /// Returns the budget of one request.
    fn put_budget(&mut self) {}
}

/// Configuration of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueConfig {
    /// Number of software queues, one for each CPU.
    pub nr_cpus: usize,
    /// Number of hardware contexts.
    pub nr_hw_queues: usize,
    /// Driver tags of each hardware context.
    pub queue_depth: u32,
    /// Whether tags are taken round robin (`BLK_TAG_ALLOC_RR`) instead of near the tag freed last.
    pub round_robin_tags: bool,
    /// Seed for the tag at which each CPU's first search starts.
    pub seed: u64,
    /// Limits of the drive.
    pub limits: QueueLimits,
}

/// Delay between asking kblockd for a run and the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KblockdDelay {
    /// Delay before the first worker is woken.
    pub after: Nanos,
    /// Time to wake one worker. Workers that are asked for together are woken one after the other,
    /// so that they do not all compete at once for what was freed.
    pub wake: Nanos,
}

/// A completed bio, as reported to its submitter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BioEnd {
    /// The submitter's handle.
    pub user_data: u64,
    /// The submitter.
    pub submitter: SubmitterId,
    /// The operation of the bio.
    pub op: Op,
    /// First sector.
    pub sector: Sector,
    /// Length in sectors.
    pub sectors: u32,
    /// The result.
    pub status: IoStatus,
}

/// The result of a submission.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub enum Submit {
    /// The block layer has taken the whole bio.
    Done,
    /// The submitter sleeps; it must call [`RequestQueue::resume`] when
    /// [`RequestQueue::take_woken`] returns its ticket.
    Blocked(Waiter),
}

/// A submitter that sleeps in the block layer.
#[derive(Debug, PartialEq, Eq)]
pub struct Waiter {
    /// The number that [`RequestQueue::take_woken`] returns for it.
    pub ticket: u64,
    pub(crate) cpu: usize,
    pub(crate) state: WaitFor,
}

impl Waiter {
    /// Whether it waits for a tag.
    pub fn wants_tag(&self) -> bool {
        matches!(self.state, WaitFor::Tag { .. })
    }
}

/// What a sleeping submitter waits for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum WaitFor {
    /// That the queue is unfrozen.
    Unfreeze(Bio),
    /// That an rq_qos policy lets `part` continue.
    Qos {
        part: BioId,
        rest: Option<Rest>,
        at: HeldAt,
    },
    /// A tag for `part`, with the depth limit that it was given first; `rest` is submitted after
    /// it.
    Tag {
        part: BioId,
        shallow: Option<u32>,
        rest: Option<Rest>,
    },
}

/// The remainder of a bio that was too large for one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rest {
    pub(crate) bio: Bio,
    pub(crate) parent: BioId,
}

/// The counters of `/sys/block/*/stat`, with times in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueCounters {
    /// Completed requests: reads, writes, discards, flushes.
    pub ios: [u64; 4],
    /// Merges of bios into requests and of requests into each other.
    pub merges: [u64; 4],
    /// Sectors transferred.
    pub sectors: [u64; 4],
    /// Time from allocation to completion, summed over requests.
    pub ticks_ns: [u64; 4],
    /// Time with at least one request in flight.
    pub io_ticks_ns: u64,
    /// Time that requests were in flight while a flush for others was running, summed over
    /// requests.
    pub behind_flush_ns: u64,
    /// Writes with FUA.
    pub fua_ios: u64,
    /// Time from allocation to completion of writes with FUA, summed over requests.
    pub fua_ticks_ns: u64,
    /// Requests that failed.
    pub errors: u64,
    /// Requests that the driver returned.
    pub requeues: u64,
}

/// How each kind of throttling delayed the bios of a control group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CgroupStats {
    /// Bios delayed by `io.max`.
    pub io_max: HeldBios,
    /// Bios delayed by writeback throttling.
    pub wbt: HeldBios,
    /// Bios delayed by `io.latency`.
    pub io_latency: HeldBios,
    /// Bios delayed by `io.cost`.
    pub io_cost: HeldBios,
    /// Usage by the cost model, if it is enabled.
    pub cost: Option<CostStat>,
    /// The most bios that `io.latency` allows in flight; `None` for no limit.
    pub max_depth: Option<u32>,
}

/// Counts of the operations that cost CPU time, since the queue was made. They only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CostCounts {
    /// Bios as they came, also those that were then refused or split.
    pub submits: u64,
    /// Pages of 4 KiB of reads and writes among them beyond the first of each.
    pub submitted_pages: u64,
    /// Of these, pages of writes.
    pub written_pages: u64,
    /// Bios submitted, with each part of a split one.
    pub bios: u64,
    /// Calls of the scheduler's `bio_merge`.
    pub merge_attempts: u64,
    /// Requests given to the scheduler.
    pub inserts: u64,
    /// Calls of the scheduler's `dispatch_request`.
    pub dispatch_calls: u64,
    /// Requests given to the driver.
    pub issues: u64,
    /// Requests longer than a page of 4 KiB given to the driver.
    pub multi_page_issues: u64,
    /// Pages of these requests beyond the first.
    pub further_pages: u64,
    /// Requests given to the driver by the run of a hardware context other than their own, because
    /// the contexts share a scheduler.
    pub foreign_issues: u64,
    /// Of these, requests whose own hardware context belongs to another socket
    /// ([`RequestQueue::set_sockets`]).
    pub far_issues: u64,
    /// Requests ended.
    pub ends: u64,
}

impl CostCounts {
    /// Returns the counts since `earlier`.
    pub fn since(&self, earlier: &CostCounts) -> CostCounts {
        CostCounts {
            submits: self.submits - earlier.submits,
            submitted_pages: self.submitted_pages - earlier.submitted_pages,
            written_pages: self.written_pages - earlier.written_pages,
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

/// The request queue of blk-mq.
pub struct RequestQueue {
    pub(crate) rqs: Requests,
    pub(crate) merge: MergeState,
    /// The largest read or write, in sectors, unless the scheduler wants a smaller one.
    max_sectors: u32,
    pub(crate) trace: Trace,
    pub(crate) elevator: Option<Box<dyn Elevator>>,
    /// The scheduler's counters when counters were last reset.
    elevator_counted: Vec<(&'static str, u64)>,
    pub(crate) hctxs: Vec<Hctx>,
    /// The software queues, one for each CPU.
    pub(crate) ctxs: Vec<RqList>,
    /// The hardware context of each CPU, and the index of the CPU in that context's `ctxs`.
    pub(crate) cpu_map: Vec<(u16, u16)>,
    pub(crate) queue_depth: u32,
    pub(crate) nr_requests: u32,
    pub(crate) frozen: bool,
    /// Whether the driver has refused budget since the last completion.
    pub(crate) budget_wanted: bool,
    pub(crate) requeue_list: RqList,
    pub(crate) flush_list: RqList,
    pub(crate) flushing: Flushing,
    pub(crate) requeue_work: DelayedWork,
    /// A lower bound for when pending work is due.
    pub(crate) work_hint: Nanos,
    /// Delay of kblockd's runs.
    pub(crate) kblockd: KblockdDelay,
    /// Whether a submitter runs the hardware queue after an insert by itself.
    pub(crate) runs_inline: bool,
    /// The hardware context that was run last.
    pub(crate) last_run: usize,
    /// The socket of each hardware context's first CPU; empty if all CPUs are on one socket.
    pub(crate) sockets: Vec<u16>,
    /// Hardware contexts that the scheduler has asked to run, in order.
    pub(crate) runs: Vec<u16>,
    /// Hardware contexts for which kblockd has been woken, in the order in which it runs them.
    pub(crate) run_order: VecDeque<u16>,
    pub(crate) ended: Vec<BioEnd>,
    /// Tickets of submitters that wait for a tag, by hardware context.
    pub(crate) waiting: Vec<VecDeque<u64>>,
    pub(crate) entering: VecDeque<u64>,
    pub(crate) woken: Vec<u64>,
    pub(crate) next_ticket: u64,
    /// The rq_qos policies, if there are any.
    pub(crate) rq_qos: Option<Box<RqQos>>,
    /// State of `io.max` and `io.prio.class`, if a group uses them.
    pub(crate) throttle: Option<Box<Throttled>>,
    /// The write plugs of the drive's zones, if it has zones.
    pub(crate) zones: Option<Box<ZonePlugs>>,
    pub(crate) suspended: Vec<Suspended>,
    pub(crate) paused: Vec<Paused>,
    pub(crate) counters: QueueCounters,
    pub(crate) cost_counts: CostCounts,
    pub(crate) in_flight: [u32; 2],
    pub(crate) in_flight_since: Nanos,
    pub(crate) scratch: Vec<RequestId>,
}

impl RequestQueue {
    /// Returns a queue without a scheduler.
    ///
    /// # Panics
    /// If there is no CPU, hardware context or tag.
    pub fn new(config: &QueueConfig) -> RequestQueue {
        assert!(config.nr_cpus > 0 && config.nr_hw_queues > 0 && config.queue_depth > 0);
        let nr_hw_queues = config.nr_hw_queues.min(config.nr_cpus);
        let mut maps = vec![Vec::new(); nr_hw_queues];
        let mut cpu_map = Vec::with_capacity(config.nr_cpus);
        for cpu in 0..config.nr_cpus {
            // Neighbouring CPUs share a hardware queue, as `group_cpus_evenly()` spreads them.
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
            zones: ZonePlugs::of(&config.limits),
            suspended: Vec::new(),
            paused: Vec::new(),
            counters: QueueCounters::default(),
            cost_counts: CostCounts::default(),
            in_flight: [0; 2],
            in_flight_since: Nanos::ZERO,
            scratch: Vec::new(),
        }
    }

    /// Attaches a scheduler, or none, and sets `nr_requests` to the kernel's default for it.
    ///
    /// # Panics
    /// If requests are in the queue: freeze it and wait until it is idle first.
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
    /// If the value is out of range; the message says which values are legal.
    pub fn set_nr_requests(&mut self, nr: u32) -> Result<(), String> {
        let (max, why) = match self.elevator {
            Some(_) => (16 * DEFAULT_RQ, "under a scheduler"),
            None => (self.queue_depth, "under none (the tags of the drive)"),
        };
        // A drive may have fewer tags.
        let min = MIN_RQ.min(max);
        if !(min..=max).contains(&nr) {
            return Err(format!("nr_requests takes {min} to {max} {why}, not {nr}"));
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

    /// The properties of this queue that a scheduler is told of.
    pub fn info(&self) -> QueueInfo {
        QueueInfo {
            nr_requests: self.nr_requests,
            old_nr_requests: self.nr_requests,
            nr_hw_queues: self.hctxs.len() as u32,
            queue_depth: self.queue_depth,
            nr_cpus: self.ctxs.len() as u32,
            capacity_sectors: self.merge.limits.capacity_sectors,
            rotational: self.merge.limits.rotational,
        }
    }

    /// The scheduler, if there is one.
    pub fn elevator(&self) -> Option<&dyn Elevator> {
        self.elevator.as_deref()
    }

    /// The scheduler, mutably, for setting tunables.
    pub fn elevator_mut(&mut self) -> Option<&mut (dyn Elevator + 'static)> {
        self.elevator.as_deref_mut()
    }

    /// Tells the scheduler that a submitter has exited (`exit_io_context`).
    pub fn exit_submitter(&mut self, now: Nanos, submitter: SubmitterId) {
        if let Some((elevator, mut ctx)) = self.sched(now) {
            elevator.exit_submitter(&mut ctx, submitter);
        }
    }

    fn rq_qos_mut(&mut self) -> &mut RqQos {
        self.rq_qos.get_or_insert_default()
    }

    /// Writes `queue/wbt_lat_usec`: the target for the latency of reads, in microseconds, above
    /// which buffered writes are delayed; 0 disables throttling.
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

    /// Sets the latency of write-back throttling that the kernel sets by itself, unless one was
    /// set before or the scheduler keeps it off (`wbt_enable_default`).
    pub fn enable_wbt(&mut self, now: Nanos) {
        let is_kept_off = self
            .elevator()
            .is_some_and(|elevator| elevator.disables_wbt());
        if self.wbt().is_none() && !is_kept_off {
            let rotational = self.merge.limits.rotational;
            self.set_wbt_latency(now, Wbt::default_latency_us(rotational));
        }
    }

    /// Tells that a task that dirties pages of the drive is put to sleep, because too many
    /// are dirty (`balance_dirty_pages`): write-back is then throttled less for a second.
    pub fn dirtier_sleeps(&mut self, now: Nanos) {
        if let Some(qos) = &mut self.rq_qos {
            qos.dirtier_sleeps(now);
        }
    }

    /// Sets the parent of a control group, which is the root by default.
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

    /// Writes a control group's `io.max`. Its parent must have been set before.
    pub fn set_io_max(&mut self, now: Nanos, group: CgroupId, max: IoMax) {
        let throttled = self.throttle.get_or_insert_default();
        throttled.limits.set_max(now, group, max);
        self.work_hint = self.work_hint.min(throttled.limits.next_timer());
    }

    /// Returns a control group's `io.max`.
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

    /// Writes a control group's `io.latency`, in microseconds; 0 removes the target. Its parent
    /// must have been set before.
    pub fn set_io_latency(&mut self, group: CgroupId, target_us: u64) {
        if self.rq_qos_mut().latency().is_none() {
            let rotational = self.merge.limits.rotational;
            let latency = IoLatency::new(rotational, self.nr_requests);
            self.rq_qos_mut().add_latency(latency);
            self.pass_on_parents();
        }
        if let Some(latency) = self.rq_qos_mut().latency_mut() {
            latency.set_target(group, target_us);
        }
    }

    /// Writes the root's `io.cost.qos`.
    pub fn set_io_cost_qos(&mut self, now: Nanos, qos: CostQos) {
        self.io_cost_mut(now).set_qos(qos);
    }

    /// Writes the root's `io.cost.model`.
    pub fn set_io_cost_model(&mut self, now: Nanos, model: CostModel) {
        self.io_cost_mut(now).set_model(model);
    }

    /// Writes a control group's `io.weight`, 1 to 10000. Its parent must have been set before.
    pub fn set_io_weight(&mut self, now: Nanos, group: CgroupId, weight: u32) {
        self.io_cost_mut(now).set_weight(now, group, weight);
    }

    /// Returns the cost controller, creating it if necessary (`blk_iocost_init`).
    pub fn io_cost_mut(&mut self, now: Nanos) -> &mut IoCost {
        if self.rq_qos_mut().cost().is_none() {
            let rotational = self.merge.limits.rotational;
            let cost = IoCost::new(now, rotational, self.queue_depth);
            self.rq_qos_mut().add_cost(cost);
            self.pass_on_parents();
        }
        self.rq_qos_mut().cost_mut().expect("it was made")
    }

    /// Passes the tree of control groups on to the rq_qos policies.
    fn pass_on_parents(&mut self) {
        if let (Some(throttled), Some(qos)) = (&self.throttle, &mut self.rq_qos) {
            for (group, parent) in throttled.limits.parents() {
                qos.set_parent(group, parent);
            }
        }
    }

    /// Statistics of how a control group's bios were throttled.
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

    /// The cost controller, if it was configured.
    pub fn io_cost(&self) -> Option<&IoCost> {
        self.rq_qos.as_deref().and_then(RqQos::cost)
    }

    /// Writeback throttling, if it was configured.
    pub fn wbt(&self) -> Option<&Wbt> {
        self.rq_qos.as_deref().and_then(RqQos::wbt)
    }

    /// The limits of the queue.
    pub fn limits(&self) -> &QueueLimits {
        &self.merge.limits
    }

    /// Sets the delay of kblockd's runs, which is zero by default.
    pub fn set_kblockd_delay(&mut self, delay: KblockdDelay) {
        self.kblockd = delay;
    }

    /// Sets whether a submitter runs the hardware queue after an insert by itself. Linux before
    /// 6.10 does so; later versions leave it to kblockd.
    pub fn set_runs_inline(&mut self, inline: bool) {
        self.runs_inline = inline;
    }

    /// Sets the socket that each CPU is in.
    pub fn set_sockets(&mut self, socket_of: impl Fn(usize) -> usize) {
        let of = |hctx: usize| {
            let mut cpus_of = self.cpu_map.iter();
            let first = cpus_of.position(|(of, _)| *of as usize == hctx);
            socket_of(first.unwrap_or(0)) as u16
        };
        self.sockets = (0..self.hctxs.len()).map(of).collect();
    }

    /// Sets the tag at which a CPU's next search starts.
    pub fn start_tags_at(&mut self, cpu: usize, tag: u32) {
        let hctx = self.cpu_map[cpu].0 as usize;
        self.hctxs[hctx].alloc_tags().start_at(cpu, tag);
    }

    /// The limits of the queue, mutably.
    pub fn limits_mut(&mut self) -> &mut QueueLimits {
        &mut self.merge.limits
    }

    /// `queue/nr_requests`.
    pub fn nr_requests(&self) -> u32 {
        self.nr_requests
    }

    /// Returns the request `id`.
    pub fn request(&self, id: RequestId) -> &Request {
        &self.rqs[id]
    }

    /// The bios of a request in the order in which they were merged, by which a driver finds the
    /// buffers. The flush command of a flush sequence has none.
    pub fn bios_of(&self, id: RequestId) -> impl Iterator<Item = &Bio> {
        let first = self.rqs[id].bios.map(|(first, _)| first);
        core::iter::successors(first, |&bio| self.rqs.bios[bio].next)
            .map(|bio| &self.rqs.bios[bio].bio)
    }

    /// Number of requests made so far, including merged ones; the next request has this serial
    /// number.
    #[inline]
    pub fn requests_made(&self) -> u64 {
        self.rqs.made()
    }

    /// Whether the queue contains no bio and no request.
    pub fn is_idle(&self) -> bool {
        self.rqs.bios_in_use() == 0 && self.rqs.in_use() == 0
    }

    /// The time at which [`RequestQueue::process`] should be called next.
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

    /// Makes all pending work due. A kernel's delays end with a tick and may be shorter than the
    /// simulated ones, as recorded traces show.
    pub fn expedite(&mut self, now: Nanos) {
        let works = self.hctxs.iter_mut().map(|h| &mut h.run_work);
        for work in works.chain([&mut self.requeue_work]) {
            if work.is_pending() {
                work.schedule(work.at().min(now));
            }
        }
        self.work_hint = self.work_hint.min(now);
    }

    /// Appends the completed bios to `out`.
    #[inline]
    pub fn take_ended(&mut self, out: &mut Vec<BioEnd>) {
        move_all(&mut self.ended, out);
    }

    /// Whether completed bios have not been taken yet.
    #[inline]
    pub fn has_ended(&self) -> bool {
        !self.ended.is_empty()
    }

    /// Appends the tickets of woken submitters to `out`.
    #[inline]
    pub fn take_woken(&mut self, out: &mut Vec<u64>) {
        if self.throttle.is_some() {
            self.wake_throttle_worker();
        }
        if self.zones.is_some() {
            self.wake_zone_workers();
        }
        move_all(&mut self.woken, out);
    }

    /// Starts or stops recording tracepoints.
    pub fn enable_trace(&mut self, on: bool) {
        self.trace.enable(on);
    }

    /// Spreads the tracepoints since the last call over the time that a CPU needed, for one
    /// hardware context or for all. `weight` is the share of each kind.
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

    /// Appends the recorded tracepoints to `out`.
    pub fn take_trace(&mut self, out: &mut Vec<TraceEvent>) {
        self.trace.drain_into(out);
    }

    /// Returns the counters as the kernel shows them at `now`.
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

    /// The scheduler's counters since they were last reset or the scheduler was attached.
    pub fn elevator_counters(&self) -> Vec<(&'static str, u64)> {
        let counters = self.elevator.as_ref().map(|e| e.counters());
        let mut counters = counters.unwrap_or_default();
        for ((_, count), (_, before)) in counters.iter_mut().zip(&self.elevator_counted) {
            *count -= before;
        }
        counters
    }

    /// Resets all counters, for instance at the end of a ramp.
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

    /// Counts of the operations so far that cost CPU time.
    #[inline]
    pub fn cost_counts(&self) -> CostCounts {
        self.cost_counts
    }

    /// Number of reads and of writes in flight (`inflight`).
    pub fn in_flight(&self) -> [u32; 2] {
        self.in_flight
    }

    /// Statistics of a hardware context, and its busy average.
    pub fn hctx_stats(&self, hctx: usize) -> (&HctxStats, u32) {
        let h = &self.hctxs[hctx];
        (&h.stats, h.dispatch_busy)
    }

    /// Whether a run of a hardware context would ask the scheduler, and not begin with requests
    /// that were taken before.
    pub fn asks_first(&self, hctx: usize) -> bool {
        let asks = self.elevator.as_deref().is_some_and(|e| e.has_work(hctx));
        asks && self.hctxs[hctx].dispatch.is_empty()
    }

    /// The request with which the next run of a hardware context begins, if it was taken from the
    /// scheduler before.
    pub fn held_request(&self, hctx: usize) -> Option<&Request> {
        let id = self.hctxs[hctx].dispatch.front()?;
        Some(&self.rqs[id])
    }

    /// The hardware context of a CPU.
    #[inline]
    pub fn hctx_of(&self, cpu: usize) -> usize {
        self.cpu_map[cpu].0 as usize
    }

    /// The first CPU of a hardware context, on which kblockd runs it.
    pub fn cpu_of(&self, hctx: usize) -> usize {
        self.hctxs[hctx].ctxs[0] as usize
    }

    /// Number of hardware contexts.
    pub fn nr_hw_queues(&self) -> usize {
        self.hctxs.len()
    }

    /// Stops a hardware context, so that no request reaches the driver through it
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

    /// Stops accepting bios (`blk_freeze_queue_start`). The queue is frozen as soon as
    /// [`RequestQueue::is_idle`] is true.
    pub fn freeze(&mut self) {
        self.frozen = true;
    }

    /// Accepts bios again and wakes the submitters that waited.
    pub fn unfreeze(&mut self) {
        self.frozen = false;
        self.woken.extend(self.entering.drain(..));
    }

    /// The scheduler and the context for its hooks.
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

    /// Adds the time since the last change of the requests in flight to the counters.
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

/// The time at which the scheduler's timer expires.
#[inline(never)]
fn next_timer(elevator: &dyn Elevator) -> Nanos {
    elevator.next_timer().unwrap_or(Nanos::MAX)
}

/// Moves all elements to the end of `out`. Mostly `from` or `out` is empty.
#[inline]
fn move_all<T>(from: &mut Vec<T>, out: &mut Vec<T>) {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// What was counted between two times is the difference of every count.
    #[test]
    fn counts_since_are_differences() {
        let counts = |factor: u64| CostCounts {
            submits: 11 * factor,
            submitted_pages: 12 * factor,
            written_pages: 13 * factor,
            bios: factor,
            merge_attempts: 2 * factor,
            inserts: 3 * factor,
            dispatch_calls: 4 * factor,
            issues: 5 * factor,
            multi_page_issues: 6 * factor,
            further_pages: 7 * factor,
            foreign_issues: 8 * factor,
            far_issues: 9 * factor,
            ends: 10 * factor,
        };
        assert_eq!(counts(7).since(&counts(3)), counts(4));
    }
}
