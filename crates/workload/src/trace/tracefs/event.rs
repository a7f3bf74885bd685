//! The events of a trace of the block layer, and the conversion of our own block layer's events
//! into them.

use blklab_blk::{IoClass, Sector, TraceEvent, TraceKind};

use crate::trace::rwbs::Rwbs;

/// One line of a trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Event<'a> {
    /// The running task, which the I/O need not belong to.
    pub task: &'a str,
    /// The task's process id; 0 is the idle task.
    pub pid: u32,
    /// The CPU.
    pub cpu: u32,
    /// Whether the event is in hard or soft irq context.
    pub irq: bool,
    /// Whether the task is to be rescheduled at its next preemption point (`TIF_NEED_RESCHED`).
    pub need_resched: bool,
    /// The preemption depth, up to 15.
    pub preempt_depth: u8,
    /// The time of the trace clock, in nanoseconds.
    pub at_ns: u64,
    /// The kind of event.
    pub kind: EventKind<'a>,
}

/// A call of writeback throttling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WbtCall {
    /// The bio's address.
    pub bio: u64,
    /// The bio's first sector.
    pub sector: Sector,
    /// The bio's operation and `REQ_*` bits, which only the entry of the call has.
    pub opf: Option<u32>,
    /// The numbers of writes in flight: normal ones, those of swap, and discards.
    pub in_flight: [i32; 3],
    /// The limits for background writeback, for other writeback, and for writes that a task waits
    /// for.
    pub limits: [u32; 3],
    /// The scaling step of the depth.
    pub step: i32,
    /// `jiffies_64`.
    pub jif: u64,
}

/// The kind of an event. The names are those of trace events; those of the schedulers (`dd_`
/// mq-deadline, `ky_` kyber, `bfq_`) are probes of a scheduler's own functions.
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
    /// `block_bio_remap`: a bio was remapped from one device to the one below.
    BioRemap(Remap),
    /// `block_rq_remap`: a request was remapped from one device to the one below.
    RqRemap(Remap),
    /// `block_split`: a bio was too large and was split.
    Split {
        /// The drive.
        dev: Dev,
        /// The operation.
        rwbs: Rwbs,
        /// The bio's first sector.
        sector: Sector,
        /// The first sector of the second part.
        new_sector: Sector,
        /// The running task.
        comm: &'a str,
    },
    /// `block_getrq`: a request was allocated for a bio.
    GetRq(BioEvent<'a>),
    /// `block_plug`: a task plugged.
    Plug {
        /// The task.
        comm: &'a str,
    },
    /// `block_unplug`: a task unplugged its requests.
    Unplug {
        /// The task.
        comm: &'a str,
        /// The number of requests.
        requests: u32,
    },
    /// `block_rq_insert`: a request was inserted into the scheduler.
    RqInsert(RqEvent<'a>),
    /// `block_rq_issue`: a request was issued to the driver.
    RqIssue(RqEvent<'a>),
    /// `block_rq_merge`: a request was merged into another.
    RqMerge(RqEvent<'a>),
    /// `block_rq_requeue`: the driver requeued a request.
    RqRequeue(RqEnd),
    /// `block_rq_complete`: the drive completed a request, or a part of it.
    RqComplete(RqEnd),
    /// `block_rq_error`: the drive failed a request.
    RqError(RqEnd),

    /// `rq_ins`: identifies the request of the preceding `block_rq_insert`.
    RqIns {
        /// The request's address.
        rq: u64,
        /// Its first sector.
        sector: Sector,
        /// `jiffies_64`.
        jif: u64,
    },
    /// `dd_ins`: mq-deadline's `insert_requests` is called.
    DdIns(InsertCall),
    /// `ky_ins`: kyber's `insert_requests` is called.
    KyIns(InsertCall),
    /// `bfq_ins`: BFQ's `insert_requests` is called.
    BfqIns(InsertCall),
    /// `dd_disp`: mq-deadline's `dispatch_request` is called.
    DdDisp(DdDisp),
    /// `ky_disp`: kyber's `dispatch_request` is called.
    KyDisp(KyDisp),
    /// `bfq_disp`: BFQ's `dispatch_request` is called.
    BfqDisp(BfqDisp),
    /// `dd_disp_ret`: mq-deadline's `dispatch_request` returns.
    DdDispRet(DdDispRet),
    /// `ky_disp_ret`: kyber's `dispatch_request` returns.
    KyDispRet(KyDispRet),
    /// `bfq_disp_ret`: BFQ's `dispatch_request` returns.
    BfqDispRet(BfqDispRet),
    /// `dd_fin`: mq-deadline frees a request.
    DdFin {
        /// The request's address.
        rq: u64,
        /// The request's first sector at that time.
        sector: Sector,
        /// The address of the priority class in which it was counted; `None` if it never was in the
        /// scheduler.
        per_prio: Option<u64>,
    },
    /// `ky_fin`: kyber frees a request.
    KyFin {
        /// The request's address.
        rq: u64,
        /// The request's first sector at that time.
        sector: Sector,
        /// The domain token that it held; -1 is none.
        token: i64,
    },
    /// `bfq_fin`: BFQ frees or requeues a request.
    BfqFin {
        /// The request's address.
        rq: u64,
        /// The request's first sector at that time.
        sector: Sector,
    },
    /// `bfq_exit`: the running task exits and BFQ detaches its queues from it.
    BfqExit {
        /// The address of the task's `bfq_io_cq`.
        icq: u64,
    },
    /// `wbt_wait`: writeback throttling checks a bio.
    WbtWait(WbtCall),
    /// `wbt_wait_ret`: writeback throttling admits the bio.
    WbtWaitRet(WbtCall),
    /// `wbt_timer`: a window of writeback throttling ends.
    WbtTimer {
        /// The drive.
        dev: Dev,
        /// The result: 1 fast enough, 2 unknown, 3 only writes, 4 too slow.
        status: u8,
        /// The scaling step of the depth.
        step: i32,
        /// Writes in flight.
        in_flight: u32,
    },
    /// `thr_ret`: `io.max` admits or throttles a bio.
    ThrRet {
        /// The bio's address.
        bio: u64,
        /// Its first sector.
        sector: Sector,
        /// Its size, in bytes.
        bytes: u32,
        /// Whether the bio is throttled.
        held: bool,
        /// `jiffies_64`.
        jif: u64,
    },
    /// `thr_work`: the worker of `io.max` submits the bios that may go on.
    ThrWork {
        /// The address of its `work_struct`.
        work: u64,
        /// `jiffies_64`.
        jif: u64,
    },
    /// `zw_plug`: `blk_zone_plug_bio` lets a write pass its zone's write plug or not.
    ZwPlug {
        /// The bio's address.
        bio: u64,
        /// Its first sector.
        sector: Sector,
        /// Its operation and flags.
        opf: u64,
        /// Whether it waits in the plug.
        held: bool,
        /// `jiffies_64`.
        jif: u64,
    },
    /// `zw_work`: a worker submits the next bio of a zone's write plug.
    ZwWork {
        /// The address of its `work_struct`.
        work: u64,
        /// `jiffies_64`.
        jif: u64,
    },
    /// `zw_end`: a bio ends that passed its zone's write plug.
    ZwEnd {
        /// The bio's address.
        bio: u64,
        /// `jiffies_64`.
        jif: u64,
    },
    /// `iocost_ioc_vrate_adj`: a period of the cost model ends.
    IocostRate {
        /// The drive's name.
        disk: &'a str,
        /// The rate of virtual time before and after.
        rate: [u64; 2],
        /// The number of periods in which the drive was saturated; negative if it was not.
        busy_level: i32,
        /// The reads and writes beyond their latency targets, in parts per million.
        missed_ppm: [u32; 2],
        /// The time of waits for tags, in percent of the period.
        wait_percent: u64,
        /// The number of groups with I/Os from earlier periods in flight.
        lagging: u32,
        /// The number of groups with a shortage of budget.
        shortages: u32,
    },
    /// Another event of the cost model (`iocost_*`), about a group.
    IocostGroup {
        /// The event's name.
        name: &'a str,
        /// The event's arguments.
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
        /// The request's first sector at that time.
        sector: Sector,
        /// The time of its completion, in nanoseconds.
        now_ns: u64,
        /// The time of its allocation, in nanoseconds.
        start_ns: u64,
        /// The time of its issue to the driver, in nanoseconds.
        io_start_ns: u64,
    },
    /// `dd_bmerged`: a bio joined a request that mq-deadline holds.
    DdBmerged {
        /// The request's address.
        rq: u64,
        /// The request's first sector, with the bio.
        sector: Sector,
        /// The request's length in bytes, with the bio.
        len_bytes: u32,
        /// The end at which the bio joined.
        side: MergeSide,
    },
    /// `dd_rqmerged`: mq-deadline merged one of its requests into another.
    DdRqmerged {
        /// The address of the request that remains.
        rq: u64,
        /// Its first sector.
        sector: Sector,
        /// The address of the request that is freed.
        next: u64,
        /// Its first sector.
        next_sector: Sector,
    },
    /// `blklab_call`: the module `blklab-iosched` called a scheduler of ours.
    BlklabCall(BlklabCall<'a>),
    /// `kyber_latency`: a percentile that kyber measured.
    KyberLatency {
        /// The drive.
        dev: Dev,
        /// `READ`, `WRITE`, `DISCARD` or `OTHER`.
        domain: &'a str,
        /// `total` or `I/O`.
        latency_type: &'a str,
        /// The percentile.
        percentile: u8,
        /// The histogram's bucket that contains the percentile: `numerator / denominator` of the
        /// target latency.
        numerator: u8,
        /// See `numerator`.
        denominator: u8,
        /// The number of samples.
        samples: u32,
    },
    /// `kyber_adjust`: kyber changed a domain's depth.
    KyberAdjust {
        /// The drive.
        dev: Dev,
        /// The domain.
        domain: &'a str,
        /// The new depth.
        depth: u32,
    },
    /// `kyber_throttled`: a request waits for a token of its domain.
    KyberThrottled {
        /// The drive.
        dev: Dev,
        /// The domain.
        domain: &'a str,
    },
    /// Another event, by its name.
    Other(&'a str),
}

impl EventKind<'_> {
    /// Returns the drive of a bio's or request's event.
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

/// A drive's device number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dev {
    /// The driver's number.
    pub major: u32,
    /// The number of the drive or its partition.
    pub minor: u32,
}

impl Dev {
    /// Splits the number that [`device_number`](crate::trace::device_number) makes.
    pub const fn of_number(number: u32) -> Dev {
        Dev {
            major: number >> 20,
            minor: number & 0xf_ffff,
        }
    }
}

/// A bio.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BioEvent<'a> {
    /// The drive.
    pub dev: Dev,
    /// The operation.
    pub rwbs: Rwbs,
    /// The first sector.
    pub sector: Sector,
    /// The length in sectors.
    pub sectors: u32,
    /// The running task; empty for a completion.
    pub comm: &'a str,
}

/// A request that is inserted, issued or merged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RqEvent<'a> {
    /// The drive.
    pub dev: Dev,
    /// The operation.
    pub rwbs: Rwbs,
    /// The length in bytes; for a passthrough command, that of its data.
    pub bytes: u32,
    /// A passthrough command in hexadecimal, or empty.
    pub cmd: &'a str,
    /// The first sector.
    pub sector: Sector,
    /// The length in sectors.
    pub sectors: u32,
    /// The priority.
    pub prio: RqPrio,
    /// The running task.
    pub comm: &'a str,
}

/// A request that is completed or requeued.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RqEnd {
    /// The drive.
    pub dev: Dev,
    /// The operation.
    pub rwbs: Rwbs,
    /// The first sector; `u64::MAX` for a flush without data.
    pub sector: Sector,
    /// The number of completed sectors.
    pub sectors: u32,
    /// The priority.
    pub prio: RqPrio,
    /// 0 or a negative error number.
    pub error: i32,
}

/// A remapping from a device to the one below it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Remap {
    /// The lower device.
    pub dev: Dev,
    /// The operation.
    pub rwbs: Rwbs,
    /// The first sector on the lower device.
    pub sector: Sector,
    /// The length in sectors.
    pub sectors: u32,
    /// The upper device.
    pub from_dev: Dev,
    /// The first sector on the upper device.
    pub from_sector: Sector,
}

/// A request's `ioprio`. Kernels before 6.11 do not print it, and it is the default then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RqPrio {
    /// `rt`, `be`, `idle` or `none`.
    pub class: IoClass,
    /// The hint (command duration limits).
    pub hint: u32,
    /// The level within the class, 0 to 7.
    pub level: u32,
}

/// A call of a scheduler in the module `blklab-iosched`, with its answer. Fields that a hook has no
/// use for are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlklabCall<'a> {
    /// The hook.
    pub hook: &'a str,
    /// The time that the scheduler was given, in nanoseconds.
    pub now_ns: u64,
    /// The number of the request that it is about, from 1.
    pub rq: u32,
    /// What else it is given: the other request of a merge, whether a request goes to the head,
    /// a bio joined at the front, or a request was completed.
    pub other: u32,
    /// The answer: a request's number, a depth, or 1 for yes.
    pub answer: u32,
    /// The request or bio: the number of its [`blklab_blk::Op`].
    pub op: u8,
    /// The bits of its [`blklab_blk::BioFlags`].
    pub flags: u16,
    /// Its first sector.
    pub sector: Sector,
    /// Its size.
    pub sectors: u32,
    /// The number of its class (`IOPRIO_CLASS_*`).
    pub class: u8,
    /// The level within the class.
    pub level: u8,
    /// Who submits it.
    pub submitter: u32,
    /// The CPU.
    pub cpu: u16,
    /// The number of the hardware context.
    pub hctx: u16,
    /// The time of its allocation, in nanoseconds.
    pub start_ns: u64,
    /// The scheduler's state after `dispatch`, as `name=value` words; what is noted of `insert`.
    pub state: &'a str,
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

/// The end of a request at which a bio joined it (`enum elv_merge`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MergeSide {
    /// The start.
    Front,
    /// The end.
    Back,
}

/// A call of mq-deadline's `dispatch_request`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DdDisp {
    /// The hardware context's address.
    pub hctx: u64,
    /// The hardware context's `dispatch_busy`.
    pub busy: u32,
    /// `jiffies_64`.
    pub jif: u64,
}

/// A call of kyber's `dispatch_request`, with the state before the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KyDisp {
    /// The hardware context's address.
    pub hctx: u64,
    /// The hardware context's `dispatch_busy`.
    pub busy: u32,
    /// The current domain.
    pub domain: u32,
    /// The number of requests dispatched in the batch.
    pub batching: u32,
    /// `jiffies_64`.
    pub jif: u64,
}

/// A call of BFQ's `dispatch_request`, with the state before the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BfqDisp {
    /// The hardware context's address.
    pub hctx: u64,
    /// The hardware context's `dispatch_busy`.
    pub busy: u32,
    /// The address of the queue in service, if there is one.
    pub in_service: Option<u64>,
    /// The number of queued requests.
    pub queued: i32,
    /// The number of requests in the driver.
    pub in_driver: i32,
    /// `jiffies_64`.
    pub jif: u64,
}

/// The result of mq-deadline's `dispatch_request`, with the state after the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DdDispRet {
    /// The request, if there is one.
    pub picked: Option<DdPicked>,
    /// Whether the direction of the last batch was writes.
    pub last_dir_is_write: bool,
    /// The number of requests dispatched in the batch.
    pub batching: u32,
    /// The number of times that reads were preferred while writes waited.
    pub starved: u32,
    /// `jiffies_64`.
    pub jif: u64,
}

/// A request that mq-deadline dispatched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DdPicked {
    /// The request's address.
    pub rq: u64,
    /// The request's first sector.
    pub sector: Sector,
    /// The request's deadline, in jiffies.
    pub fifo_time: u64,
}

/// The result of kyber's `dispatch_request`, with the state after the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KyDispRet {
    /// The request, if there is one.
    pub picked: Option<KyPicked>,
    /// The current domain.
    pub domain: u32,
    /// The number of requests dispatched in the batch.
    pub batching: u32,
    /// `jiffies_64`.
    pub jif: u64,
}

/// A request that kyber dispatched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KyPicked {
    /// The request's address.
    pub rq: u64,
    /// The request's first sector.
    pub sector: Sector,
}

/// The result of BFQ's `dispatch_request`, with the state after the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BfqDispRet {
    /// The request, if there is one.
    pub picked: Option<BfqPicked>,
    /// The address of the queue in service, if there is one.
    pub in_service: Option<u64>,
    /// The number of queued requests.
    pub queued: i32,
    /// The number of requests in the driver.
    pub in_driver: i32,
    /// The estimated peak rate.
    pub peak_rate: u32,
    /// `jiffies_64`.
    pub jif: u64,
}

/// A request that BFQ dispatched, with its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BfqPicked {
    /// The request's address.
    pub rq: u64,
    /// The request's first sector.
    pub sector: Sector,
    /// The low bits of the request's deadline, in nanoseconds.
    pub fifo_time: u64,
    /// The request's queue; `None` if the request bypassed the queues (a head insert).
    pub queue: Option<BfqQueue>,
}

/// The state of a BFQ queue at a dispatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BfqQueue {
    /// The queue's address.
    pub bfqq: u64,
    /// The process of the queue; -1 if several processes share it.
    pub pid: i32,
    /// The sectors served since the queue was selected.
    pub service: i32,
    /// The budget in sectors.
    pub budget: i32,
    /// The weight-raising coefficient.
    pub wr_coeff: u32,
    /// The control group of the queue; `None` for the root, and if the probe does not record it.
    pub group: Option<BfqGroup>,
}

/// The state of a BFQ group at a dispatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BfqGroup {
    /// The address of the group's entity.
    pub entity: u64,
    /// The group's weight.
    pub weight: i32,
    /// The sectors served since the group was selected.
    pub service: i32,
    /// The budget in sectors.
    pub budget: i32,
}

impl<'a> Event<'a> {
    /// A text that a task writes into tracefs' `trace_marker`.
    pub fn mark(at_ns: u64, (task, pid): (&'a str, u32), text: &'a str) -> Event<'a> {
        Event {
            task,
            pid,
            cpu: 0,
            irq: false,
            need_resched: false,
            preempt_depth: 0,
            at_ns,
            kind: EventKind::TracingMark { text },
        }
    }

    /// Converts an event of our block layer on the drive `dev`, submitted by `task`, whose process
    /// id is the submitter's number. Returns `None` if the kernel has no such trace event: the
    /// calls of a scheduler.
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
            TraceKind::Ask(_)
            | TraceKind::Dispatch
            | TraceKind::DispatchNone
            | TraceKind::ZonePlug => return None,
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
