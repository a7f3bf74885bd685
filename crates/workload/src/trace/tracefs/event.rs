//! The events of a trace of the block layer; those of our own block layer become
//! such events, too.

use blklab_blk::{IoClass, Sector, TraceEvent, TraceKind};

use crate::trace::rwbs::Rwbs;

/// One line of a trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Event<'a> {
    /// The task that ran, whatever task the I/O is for.
    pub task: &'a str,
    /// Its process id; 0 is the idle task.
    pub pid: u32,
    /// The CPU it ran on.
    pub cpu: u32,
    /// Whether it was interrupted: in hard or soft irq context.
    pub irq: bool,
    /// Whether another task was waiting for this CPU: the task goes on to the
    /// next point at which it may be switched away from.
    pub need_resched: bool,
    /// In how many sections it was that may not be preempted, up to 15.
    pub preempt_depth: u8,
    /// The trace clock, in nanoseconds.
    pub at_ns: u64,
    /// What happened.
    pub kind: EventKind<'a>,
}

/// A call of writeback throttling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WbtCall {
    /// The bio's address.
    pub bio: u64,
    /// Its first sector.
    pub sector: Sector,
    /// Its operation and `REQ_*` bits, which only the entry shows.
    pub opf: Option<u32>,
    /// In flight: writes, swap, discards.
    pub in_flight: [i32; 3],
    /// Limits: of background writeback, of other writeback, of writes that
    /// somebody waits for.
    pub limits: [u32; 3],
    /// The step of its depth.
    pub step: i32,
    /// `jiffies_64`.
    pub jif: u64,
}

/// What happened. Names are the trace events'; those of the schedulers
/// (`dd_` mq-deadline, `ky_` kyber, `bfq_`) are probes on a scheduler's own
/// functions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum EventKind<'a> {
    /// `block_bio_queue`: a bio entered the block layer.
    BioQueue(BioEvent<'a>),
    /// `block_bio_backmerge`: a bio joined the end of a request, plugged or queued.
    BioBackmerge(BioEvent<'a>),
    /// `block_bio_frontmerge`: a bio joined the start of a request.
    BioFrontmerge(BioEvent<'a>),
    /// `block_bio_complete`: a bio ended.
    BioComplete {
        /// The bio.
        bio: BioEvent<'a>,
        /// 0 or a negative error number.
        error: i32,
    },
    /// `block_bio_remap`: a bio went from one device to the one below.
    BioRemap(Remap),
    /// `block_rq_remap`: a request went from one device to the one below.
    RqRemap(Remap),
    /// `block_split`: a bio was too large and was cut.
    Split {
        /// The drive.
        dev: Dev,
        /// The operation.
        rwbs: Rwbs,
        /// The bio's first sector.
        sector: Sector,
        /// The first sector of its second part.
        new_sector: Sector,
        /// The task.
        comm: &'a str,
    },
    /// `block_getrq`: a request was taken for a bio.
    GetRq(BioEvent<'a>),
    /// `block_plug`: a task began to hold requests back.
    Plug {
        /// The task.
        comm: &'a str,
    },
    /// `block_unplug`: a task let its held requests go.
    Unplug {
        /// The task.
        comm: &'a str,
        /// How many requests.
        requests: u32,
    },
    /// `block_rq_insert`: a request was given to the scheduler.
    RqInsert(RqEvent<'a>),
    /// `block_rq_issue`: a request was given to the driver.
    RqIssue(RqEvent<'a>),
    /// `block_rq_merge`: a request was merged into another.
    RqMerge(RqEvent<'a>),
    /// `block_rq_requeue`: the driver gave a request back.
    RqRequeue(RqEnd),
    /// `block_rq_complete`: the drive was done with a request.
    RqComplete(RqEnd),
    /// `block_rq_error`: as complete, and it failed.
    RqError(RqEnd),

    /// `rq_ins`: which request the `block_rq_insert` before it was of.
    RqIns {
        /// The request's address.
        rq: u64,
        /// Its first sector.
        sector: Sector,
        /// `jiffies_64`.
        jif: u64,
    },
    /// `dd_ins`: a list of requests goes to mq-deadline.
    DdIns(InsertCall),
    /// `ky_ins`: a list of requests goes to kyber.
    KyIns(InsertCall),
    /// `bfq_ins`: a list of requests goes to BFQ.
    BfqIns(InsertCall),
    /// `dd_disp`: mq-deadline is asked for a request.
    DdDisp(DdDisp),
    /// `ky_disp`: kyber is asked for a request.
    KyDisp(KyDisp),
    /// `bfq_disp`: BFQ is asked for a request.
    BfqDisp(BfqDisp),
    /// `dd_disp_ret`: mq-deadline's answer.
    DdDispRet(DdDispRet),
    /// `ky_disp_ret`: kyber's answer.
    KyDispRet(KyDispRet),
    /// `bfq_disp_ret`: BFQ's answer.
    BfqDispRet(BfqDispRet),
    /// `dd_fin`: mq-deadline frees a request.
    DdFin {
        /// The request's address.
        rq: u64,
        /// Its first sector now.
        sector: Sector,
        /// The priority class it was counted in (an address), or `None` if
        /// it never was in the scheduler.
        per_prio: Option<u64>,
    },
    /// `ky_fin`: kyber frees a request.
    KyFin {
        /// The request's address.
        rq: u64,
        /// Its first sector now.
        sector: Sector,
        /// The domain token it held; -1 is none.
        token: i64,
    },
    /// `bfq_fin`: BFQ frees a request, or takes it back.
    BfqFin {
        /// The request's address.
        rq: u64,
        /// Its first sector now.
        sector: Sector,
    },
    /// `bfq_exit`: the task that runs exits, and BFQ takes its queues from it.
    BfqExit {
        /// The address of what BFQ keeps of the task.
        icq: u64,
    },
    /// `wbt_wait`: writeback throttling looks at a bio.
    WbtWait(WbtCall),
    /// `wbt_wait_ret`: the bio may go on.
    WbtWaitRet(WbtCall),
    /// `wbt_timer`: a window of writeback throttling ends.
    WbtTimer {
        /// The drive.
        dev: Dev,
        /// 1 fast enough, 2 unknown, 3 only writes, 4 too slow.
        status: u8,
        /// The step of its depth.
        step: i32,
        /// Writes in flight.
        in_flight: u32,
    },
    /// `thr_ret`: `io.max` let a bio through, or holds it back.
    ThrRet {
        /// The bio's address.
        bio: u64,
        /// Its first sector.
        sector: Sector,
        /// Its size, in bytes.
        bytes: u32,
        /// It is held back.
        held: bool,
        /// `jiffies_64`.
        jif: u64,
    },
    /// `thr_work`: the worker of `io.max` submits what was let go.
    ThrWork {
        /// The address of its work.
        work: u64,
        /// `jiffies_64`.
        jif: u64,
    },
    /// `iocost_ioc_vrate_adj`: a period of the cost model ends.
    IocostRate {
        /// The drive's name.
        disk: &'a str,
        /// The rate of virtual time before, and from now on.
        rate: [u64; 2],
        /// Periods in which the drive had too much; below 0 too little.
        busy_level: i32,
        /// Reads and writes beyond their targets.
        missed_ppm: [u32; 2],
        /// Waits for tags, in percent of the period.
        wait_percent: u64,
        /// Groups with I/Os of past periods in the drive.
        lagging: u32,
        /// Groups that had too little.
        shortages: u32,
    },
    /// Another event of the cost model (`iocost_*`): what became of a group.
    IocostGroup {
        /// The event.
        name: &'a str,
        /// What it tells.
        text: &'a str,
    },
    /// `tracing_mark_write`: a program wrote a line into the trace.
    TracingMark {
        /// The line.
        text: &'a str,
    },
    /// `ky_done`: kyber handles a completion.
    KyDone {
        /// The request's address.
        rq: u64,
        /// Its first sector now.
        sector: Sector,
        /// When it completed, in nanoseconds.
        now_ns: u64,
        /// When it was allocated.
        start_ns: u64,
        /// When the driver got it.
        io_start_ns: u64,
    },
    /// `dd_bmerged`: a bio joined a request that mq-deadline holds.
    DdBmerged {
        /// The request's address.
        rq: u64,
        /// Its first sector, the bio included.
        sector: Sector,
        /// Its length in bytes, the bio included.
        len_bytes: u32,
        /// At which end.
        side: MergeSide,
    },
    /// `dd_rqmerged`: mq-deadline merged one of its requests into another.
    DdRqmerged {
        /// The address of the one that stays.
        rq: u64,
        /// Its first sector.
        sector: Sector,
        /// The address of the one that goes.
        next: u64,
        /// Its first sector.
        next_sector: Sector,
    },
    /// `kyber_latency`: a percentile that kyber measured.
    KyberLatency {
        /// The drive.
        dev: Dev,
        /// `READ`, `WRITE`, `DISCARD` or `OTHER`.
        domain: &'a str,
        /// `total` or `I/O`.
        latency_type: &'a str,
        /// Which percentile.
        percentile: u8,
        /// The histogram's bucket it fell into: `numerator / denominator` of
        /// the target latency.
        numerator: u8,
        /// See `numerator`.
        denominator: u8,
        /// Of how many samples.
        samples: u32,
    },
    /// `kyber_adjust`: kyber changed a domain's depth.
    KyberAdjust {
        /// The drive.
        dev: Dev,
        /// The domain.
        domain: &'a str,
        /// Its depth from now on.
        depth: u32,
    },
    /// `kyber_throttled`: a request waits for its domain's depth.
    KyberThrottled {
        /// The drive.
        dev: Dev,
        /// The domain.
        domain: &'a str,
    },
    /// An event that is none of the above.
    Other(&'a str),
}

impl EventKind<'_> {
    /// The drive that a bio or a request is for.
    pub fn drive(&self) -> Option<Dev> {
        use EventKind::*;
        match self {
            BioQueue(bio) | BioBackmerge(bio) | BioFrontmerge(bio) | GetRq(bio) => Some(bio.dev),
            BioComplete { bio, .. } => Some(bio.dev),
            RqInsert(rq) | RqIssue(rq) | RqMerge(rq) => Some(rq.dev),
            RqRequeue(end) | RqComplete(end) | RqError(end) => Some(end.dev),
            BioRemap(remap) | RqRemap(remap) => Some(remap.dev),
            Split { dev, .. } => Some(*dev),
            _ => None,
        }
    }
}

/// A drive, as the kernel numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dev {
    /// The driver.
    pub major: u32,
    /// The drive, or its partition.
    pub minor: u32,
}

/// A bio.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BioEvent<'a> {
    /// The drive.
    pub dev: Dev,
    /// The operation.
    pub rwbs: Rwbs,
    /// Its first sector.
    pub sector: Sector,
    /// Its length.
    pub sectors: u32,
    /// The task; empty on a completion.
    pub comm: &'a str,
}

/// A request on its way down.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RqEvent<'a> {
    /// The drive.
    pub dev: Dev,
    /// The operation.
    pub rwbs: Rwbs,
    /// Its length in bytes (of a passthrough command, that of its data).
    pub bytes: u32,
    /// A passthrough command's bytes in hexadecimal; else empty.
    pub cmd: &'a str,
    /// Its first sector.
    pub sector: Sector,
    /// Its length in sectors.
    pub sectors: u32,
    /// Its priority.
    pub prio: RqPrio,
    /// The task that runs.
    pub comm: &'a str,
}

/// A request on its way up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RqEnd {
    /// The drive.
    pub dev: Dev,
    /// The operation.
    pub rwbs: Rwbs,
    /// Its first sector; of a bare flush `u64::MAX`.
    pub sector: Sector,
    /// The sectors that are done.
    pub sectors: u32,
    /// Its priority.
    pub prio: RqPrio,
    /// 0 or a negative error number.
    pub error: i32,
}

/// A move from a device to the one below it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Remap {
    /// Where it goes.
    pub dev: Dev,
    /// The operation.
    pub rwbs: Rwbs,
    /// The first sector there.
    pub sector: Sector,
    /// Its length.
    pub sectors: u32,
    /// Where it comes from.
    pub from_dev: Dev,
    /// The first sector there.
    pub from_sector: Sector,
}

/// A request's `ioprio`. Kernels before 6.11 do not print it; it reads as the
/// default then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RqPrio {
    /// `rt`, `be`, `idle` or `none`.
    pub class: IoClass,
    /// The hint (command duration limits).
    pub hint: u32,
    /// The level within the class, 0 to 7.
    pub level: u32,
}

/// A call of `insert_requests`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InsertCall {
    /// The hardware context's address.
    pub hctx: u64,
    /// `blk_insert_t`; 1 is `BLK_MQ_INSERT_AT_HEAD`.
    pub flags: u32,
    /// `jiffies_64`.
    pub jif: u64,
}

/// At which end of a request a bio joined it (`enum elv_merge`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MergeSide {
    /// At its start.
    Front,
    /// At its end.
    Back,
}

/// A call of mq-deadline's `dispatch_request`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DdDisp {
    /// The hardware context's address.
    pub hctx: u64,
    /// Its `dispatch_busy`.
    pub busy: u32,
    /// `jiffies_64`.
    pub jif: u64,
}

/// A call of kyber's `dispatch_request`; state is from before the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KyDisp {
    /// The hardware context's address.
    pub hctx: u64,
    /// Its `dispatch_busy`.
    pub busy: u32,
    /// The domain whose turn it is.
    pub domain: u32,
    /// How many of its batch have gone.
    pub batching: u32,
    /// `jiffies_64`.
    pub jif: u64,
}

/// A call of BFQ's `dispatch_request`; state is from before the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BfqDisp {
    /// The hardware context's address.
    pub hctx: u64,
    /// Its `dispatch_busy`.
    pub busy: u32,
    /// The queue in service (an address), if any.
    pub in_service: Option<u64>,
    /// Requests waiting.
    pub queued: i32,
    /// Requests in the driver.
    pub in_driver: i32,
    /// `jiffies_64`.
    pub jif: u64,
}

/// What mq-deadline answered; state is from after the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DdDispRet {
    /// The request, or `None`.
    pub picked: Option<DdPicked>,
    /// The direction of the last batch: whether it is writes.
    pub last_dir_is_write: bool,
    /// How many of the batch have gone.
    pub batching: u32,
    /// How often reads went before waiting writes.
    pub starved: u32,
    /// `jiffies_64`.
    pub jif: u64,
}

/// A request that mq-deadline chose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DdPicked {
    /// Its address.
    pub rq: u64,
    /// Its first sector.
    pub sector: Sector,
    /// Its deadline, in jiffies.
    pub fifo_time: u64,
}

/// What kyber answered; state is from after the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KyDispRet {
    /// The request, or `None`.
    pub picked: Option<KyPicked>,
    /// The domain whose turn it is.
    pub domain: u32,
    /// How many of its batch have gone.
    pub batching: u32,
    /// `jiffies_64`.
    pub jif: u64,
}

/// A request that kyber chose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KyPicked {
    /// Its address.
    pub rq: u64,
    /// Its first sector.
    pub sector: Sector,
}

/// What BFQ answered; state is from after the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BfqDispRet {
    /// The request, or `None`.
    pub picked: Option<BfqPicked>,
    /// The queue in service (an address), if any.
    pub in_service: Option<u64>,
    /// Requests waiting.
    pub queued: i32,
    /// Requests in the driver.
    pub in_driver: i32,
    /// The estimated peak rate.
    pub peak_rate: u32,
    /// `jiffies_64`.
    pub jif: u64,
}

/// A request that BFQ chose, with the queue it came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BfqPicked {
    /// Its address.
    pub rq: u64,
    /// Its first sector.
    pub sector: Sector,
    /// The low bits of its deadline, in nanoseconds.
    pub fifo_time: u64,
    /// Its queue; `None` if the request went past the queues (a head insert).
    pub queue: Option<BfqQueue>,
}

/// A queue of BFQ at a dispatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BfqQueue {
    /// Its address.
    pub bfqq: u64,
    /// The process it belongs to; -1 is more than one.
    pub pid: i32,
    /// Sectors served since it was chosen.
    pub service: i32,
    /// Sectors it may be served.
    pub budget: i32,
    /// Its weight-raising factor.
    pub wr_coeff: u32,
    /// The control group it is in; `None` for the root, and where the probe
    /// does not tell.
    pub group: Option<BfqGroup>,
}

/// A control group of BFQ at a dispatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BfqGroup {
    /// Its address.
    pub entity: u64,
    /// Its weight.
    pub weight: i32,
    /// Sectors served since it was chosen.
    pub service: i32,
    /// Sectors it may be served.
    pub budget: i32,
}

impl<'a> Event<'a> {
    /// What the kernel would tell of an event on the drive `dev`, submitted by
    /// `task`, whose process id is the submitter's number. `None` for what the
    /// kernel has no trace event for: the calls of a scheduler.
    pub fn of_model(event: &TraceEvent, dev: Dev, task: &'a str) -> Option<Event<'a>> {
        let rwbs = Rwbs {
            op: Some(event.op),
            flags: event.flags,
        };
        let bio = BioEvent {
            dev,
            rwbs,
            sector: event.sector,
            sectors: event.sectors,
            comm: task,
        };
        let request = RqEvent {
            dev,
            rwbs,
            bytes: event.sectors << 9,
            cmd: "",
            sector: event.sector,
            sectors: event.sectors,
            prio: RqPrio::default(),
            comm: task,
        };
        let end = |error| RqEnd {
            dev,
            rwbs,
            sector: event.sector,
            sectors: event.sectors,
            prio: RqPrio::default(),
            error,
        };
        let kind = match event.kind {
            TraceKind::BioQueue => EventKind::BioQueue(bio),
            TraceKind::BioBackMerge => EventKind::BioBackmerge(bio),
            TraceKind::BioFrontMerge => EventKind::BioFrontmerge(bio),
            TraceKind::GetRq => EventKind::GetRq(bio),
            TraceKind::Plug => EventKind::Plug { comm: task },
            TraceKind::Unplug(requests) => EventKind::Unplug {
                comm: task,
                requests,
            },
            TraceKind::RqInsert => EventKind::RqInsert(request),
            TraceKind::RqMerge => EventKind::RqMerge(request),
            TraceKind::RqIssue => EventKind::RqIssue(request),
            TraceKind::RqRequeue => EventKind::RqRequeue(end(0)),
            TraceKind::RqComplete(status) => EventKind::RqComplete(end(-status.errno())),
            TraceKind::Ask(_) | TraceKind::Dispatch | TraceKind::DispatchNone => return None,
        };
        Some(Event {
            task,
            pid: event.submitter,
            cpu: u32::from(event.cpu),
            irq: false,
            need_resched: false,
            preempt_depth: 0,
            at_ns: event.at.0,
            kind,
        })
    }
}
