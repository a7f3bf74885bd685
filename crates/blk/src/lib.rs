//! Linux's block layer as a state machine.
//!
//! [`RequestQueue`] takes bios and drives the hardware queues of a driver through an [`Elevator`].
//! It owns no clock, thread or file: every call is given the current time as `now`, and
//! [`RequestQueue::next_event`] says when the queue must be called again.

#![cfg_attr(not(test), no_std)]

extern crate alloc;

mod attribute;
mod bio;
mod cgroup;
mod complete;
mod debugfs;
mod dispatch;
mod elevator;
mod flush;
mod hctx;
mod limits;
mod list;
mod merge;
mod queue;
mod request;
mod rq_qos;
mod slab;
mod sort_list;
mod submit;
mod tags;
mod trace;
mod tunable;
mod units;
mod zone;

pub use attribute::Attribute;
pub use bio::{Bio, BioFlags, CgroupId, IoClass, IoPrio, Op, SubmitterId, ZoneAction, op_is_sync};
pub use cgroup::{CGROUP_FILES, CgroupFile, CgroupFileOn};
pub use debugfs::{debug_request, debug_requests};
pub use elevator::{Elevator, ElevatorQueue, InsertAt, QueueInfo, SchedCtx, take_request};
pub use hctx::{DISPATCH_BUCKETS, HctxStats};
pub use limits::{DEFAULT_MAX_SECTORS, NoMerges, QueueLimits, ZoneLimits};
pub use list::RqList;
pub use merge::{
    MergeKind, MergeState, bio_list_merge, elv_bio_merge_ok, sched_try_insert_merge,
    sched_try_merge,
};
pub use queue::{
    BioEnd, BlkDriver, BlkStatus, CgroupStats, CostCounts, Interruption, KblockdDelay, MIN_RQ,
    QueueConfig, QueueCounters, RequestQueue, RunPoint, Submit, Waiter,
};
pub use request::{BioId, IoStatus, Request, RequestId, Requests, RqFlags, Tag};
pub use rq_qos::{
    CostModel, CostQos, CostStat, HeldBios, IoCost, IoLatency, IoMax, PrioPolicy, RateChange,
    Speed, Throttle, Wbt, WbtState, WbtStatus, WbtTimer, parse_io_latency,
};
pub use slab::{Id, Slab};
pub use sort_list::SortList;
pub use submit::Plug;
pub use tags::Tags;
pub use trace::{Span, Trace, TraceEvent, TraceKind};
pub use tunable::{Tunable, TunableError, Tunables, Unit};
pub use units::{
    HZ, JIFFY_NS, Nanos, SECTOR_SIZE, SECTORS_PER_PAGE, Sector, jiffies, jiffy_start,
    msecs_to_jiffies, timer_end,
};
