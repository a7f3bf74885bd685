//! `BfqQueue`: the synchronous requests of one process or of several that cooperate, or the
//! asynchronous requests of a priority; and the queue's lifetime.

use alloc::vec::Vec;

use blklab_blk::{
    Id, IoClass, IoPrio, RequestId, RqList, SchedCtx, SortList, SubmitterId, msecs_to_jiffies,
};

use super::Bfq;
use super::groups::GroupId;
use super::red_black::NodeId;
use super::weight_raising::min_idle_time;
use super::wf2q::Entity;

/// Index of a queue.
pub(super) type QueueId = Id<BfqQueue>;

/// A time, in jiffies, before the start of any run.
pub(super) const LONG_AGO: i64 = i64::MIN / 4;

/// Number of service classes, highest first: real time, best effort, idle.
pub(super) const CLASSES: usize = 3;
pub(super) const IDLE_CLASS: usize = 2;
/// Number of priority levels in a class.
pub(super) const LEVELS: u8 = 8;

/// Class and level of an I/O priority; a process without one is in the middle level of best effort.
pub(super) fn class_and_level(prio: IoPrio) -> (usize, u8) {
    let level = prio.level.min(LEVELS - 1);
    match prio.class {
        IoClass::Rt => (0, level),
        IoClass::Be => (1, level),
        IoClass::None => (1, LEVELS / 2),
        IoClass::Idle => (IDLE_CLASS, LEVELS - 1),
    }
}

/// The weight of a priority level.
pub(super) fn weight_of_level(level: u8) -> u32 {
    (LEVELS - level) as u32 * 10
}

/// The weight of a process without a priority; only queues of this weight are raised.
pub(super) const DEFAULT_WEIGHT: u32 = 40;

/// The mean time between a completion and a process's next request.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ThinkTime {
    pub(super) last_end_ns: u64,
    pub(super) total_ns: u64,
    pub(super) samples: u64,
    pub(super) mean_ns: u64,
}

/// Weight raising of a queue. Times are in jiffies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Raising {
    /// The factor of the weight; 1 if it is not raised.
    pub(super) coeff: u32,
    pub(super) max_time: i64,
    /// Start of the current raising, or end of the last one.
    pub(super) start_finish: i64,
    /// Start of the interactive raising that a soft real-time one interrupted.
    pub(super) start_before_soft_rt: i64,
    pub(super) service: u64,
}

/// What has been learned about injecting requests while this queue is served.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Injection {
    /// Requests are injected while fewer than this are in the drive.
    pub(super) limit: u32,
    /// Service time of a request without injection; 0 if unknown.
    pub(super) last_service_ns: u64,
    /// Time at which the limit was last lowered.
    pub(super) lowered: i64,
}

/// A queue (`struct bfq_queue`).
#[derive(Debug)]
pub(super) struct BfqQueue {
    /// Whether it has been freed, so that its slot can be reused.
    freed: bool,
    /// Number of contexts that use this queue or are about to.
    pub(super) process_refs: u32,
    /// Number of delayed stable merges into this queue.
    pub(super) stable_refs: u32,
    pub(super) group: GroupId,
    pub(super) class: usize,
    pub(super) new_class: usize,
    pub(super) level: u8,
    pub(super) entity: Entity,
    /// The weight under which it is counted among busy queues.
    pub(super) counted_weight: Option<u32>,
    /// Whether it is counted among the pending queues of its group.
    pub(super) counted_pending: bool,

    pub(super) sorted: SortList,
    pub(super) fifo: RqList,
    pub(super) next_rq: Option<RequestId>,
    /// Queued requests: asynchronous, synchronous.
    pub(super) queued: [u32; 2],
    /// Requests dispatched and not completed.
    pub(super) dispatched: u32,

    pub(super) max_budget: i64,
    pub(super) budget_timeout: i64,

    pub(super) just_created: bool,
    pub(super) busy: bool,
    /// Whether it is in service and empty while the drive idles for its next request.
    pub(super) wait_request: bool,
    /// Whether it expired without requests and may get one within the idle slice.
    pub(super) non_blocking_wait: bool,
    /// Whether the oldest request has been checked in this service slot.
    pub(super) fifo_checked: bool,
    pub(super) short_ttime: bool,
    pub(super) sync: bool,
    pub(super) io_bound: bool,
    pub(super) in_large_burst: bool,
    pub(super) soft_rt_update: bool,
    pub(super) coop: bool,
    pub(super) split_coop: bool,

    pub(super) ttime: ThinkTime,
    pub(super) io_start_ns: u64,
    pub(super) idle_total_ns: u64,
    /// One bit for each request, the latest lowest: whether it was a seek.
    pub(super) seek_history: u32,
    /// Sector after the last request that arrived.
    pub(super) last_request_pos: u64,
    pub(super) first_io: i64,
    pub(super) created: i64,
    pub(super) split: i64,
    pub(super) last_idle_to_busy: i64,
    pub(super) service_since_idle: u64,

    pub(super) raising: Raising,
    pub(super) soft_rt_next_start: i64,
    pub(super) injection: Injection,

    /// The queue into which it is to be merged.
    pub(super) merge_into: Option<QueueId>,
    /// Its node in the tree of next requests.
    pub(super) position: Option<NodeId>,
    /// The submitter's context, while the queue belongs to only one.
    pub(super) context: Option<usize>,
    /// The submitter, for display; `None` if the queue is shared.
    pub(super) owner: Option<SubmitterId>,

    pub(super) in_burst_list: bool,
    /// The queue whose completions cause requests of this one.
    pub(super) waker: Option<QueueId>,
    pub(super) tentative_waker: Option<QueueId>,
    pub(super) waker_detections: u32,
    pub(super) waker_detection_started_ns: u64,
    /// Queues that this one wakes, the most recently busy first.
    pub(super) woken: Vec<QueueId>,
}

impl BfqQueue {
    /// Whether more than 19 of the last 32 requests were seeks.
    pub(super) fn is_seeky(&self) -> bool {
        self.seek_history.count_ones() > 19
    }

    pub(super) fn is_raised(&self) -> bool {
        self.raising.coeff > 1
    }

    pub(super) fn is_idle_class(&self) -> bool {
        self.class == IDLE_CLASS
    }

    pub(super) fn budget_left(&self) -> i64 {
        self.entity.budget - self.entity.service
    }

    fn is_referenced(&self) -> bool {
        self.process_refs > 0
            || self.stable_refs > 0
            || self.entity.allocated > 0
            || self.entity.on_tree_or_in_service
            || self.counted_weight.is_some()
    }
}

impl Bfq {
    /// Creates a queue for the priority of a context (`bfq_init_bfqq`).
    pub(super) fn create_queue(
        &mut self,
        group: GroupId,
        prio: IoPrio,
        owner: SubmitterId,
        sync: bool,
    ) -> QueueId {
        let (class, level) = class_and_level(prio);
        let weight = weight_of_level(level);
        self.queues.insert(BfqQueue {
            freed: false,
            process_refs: 0,
            stable_refs: 0,
            group,
            class,
            new_class: class,
            level,
            entity: Entity::new(weight),
            counted_weight: None,
            counted_pending: false,
            sorted: SortList::new(),
            fifo: RqList::new(),
            next_rq: None,
            queued: [0; 2],
            dispatched: 0,
            max_budget: 2 * self.default_or_max_budget() / 3,
            budget_timeout: LONG_AGO,
            just_created: sync,
            busy: false,
            wait_request: false,
            non_blocking_wait: false,
            fifo_checked: false,
            // The kernel means to exclude the idle class, but checks the class before it is set.
            short_ttime: sync,
            sync,
            io_bound: true,
            in_large_burst: false,
            soft_rt_update: false,
            coop: false,
            split_coop: false,
            ttime: ThinkTime {
                last_end_ns: self.now_ns + 1,
                ..ThinkTime::default()
            },
            io_start_ns: self.now_ns,
            idle_total_ns: 0,
            // The first request counts as a seek.
            seek_history: 1,
            last_request_pos: 0,
            first_io: 0,
            created: self.jiffies,
            split: LONG_AGO,
            last_idle_to_busy: 0,
            service_since_idle: 0,
            raising: Raising {
                coeff: 1,
                max_time: 0,
                start_finish: self.jiffies,
                start_before_soft_rt: LONG_AGO,
                service: 0,
            },
            soft_rt_next_start: self.jiffies,
            injection: Injection {
                lowered: self.jiffies,
                ..Injection::default()
            },
            merge_into: None,
            position: None,
            context: None,
            owner: Some(owner),
            in_burst_list: false,
            waker: None,
            tentative_waker: None,
            waker_detections: 0,
            waker_detection_started_ns: 0,
            woken: Vec::new(),
        })
    }

    /// Frees a queue that has no references, and returns whether it did (`bfq_put_queue`). The
    /// queue in service is kept until it expires.
    pub(super) fn release(&mut self, q: QueueId) -> bool {
        let queue = &self.queues[q];
        if queue.freed || queue.is_referenced() || self.in_service == Some(q) {
            return false;
        }
        self.queues[q].freed = true;
        self.leave_burst_list(q);
        self.leave_waker(q);
        for woken in core::mem::take(&mut self.queues[q].woken) {
            self.queues[woken].waker = None;
        }
        if self.last_completed == Some(q) {
            self.last_completed = None;
        }
        self.queues.remove(q);
        true
    }
}

// Observed behaviour of a queue's process: its think time, whether it is I/O-bound, and whether its
// requests are seeks.

/// A shorter think time counts as zero.
pub(super) const MIN_THINK_TIME_NS: u64 = 2_000_000;
/// The mean is used from this sum of samples on; a sample adds 256, and older ones decay by an
/// eighth.
const ENOUGH_SAMPLES: u64 = 80;

/// A request at more than this distance from the previous one is a seek, in sectors.
const FAR_SECTORS: u64 = 8 * 100;
/// On a drive without moving parts only a request smaller than this is a seek, in sectors.
pub(super) const SMALL_SECTORS: u64 = 2 * 32;

impl Bfq {
    /// Whether a request is a seek from the end of the previous one.
    pub(super) fn is_far(&self, last: u64, sector: u64, sectors: u64) -> bool {
        last != 0
            && last.abs_diff(sector) > FAR_SECTORS
            && (!self.nonrot || sectors < SMALL_SECTORS)
    }

    /// Updates the think time when a request arrives.
    ///
    /// The kernel's clock stands still in a plug, so a request may seem to come before the
    /// completion that it follows; it then counts as the longest time, in the kernel and here.
    pub(super) fn update_think_time(&mut self, q: QueueId) {
        let queue = &mut self.queues[q];
        if queue.dispatched > 0 || queue.busy {
            return;
        }
        let ttime = &mut queue.ttime;
        let elapsed = self.now_ns.wrapping_sub(ttime.last_end_ns);
        let elapsed = elapsed.min(2 * self.settings.slice_idle_ns);
        ttime.samples = (7 * ttime.samples + 256) / 8;
        ttime.total_ns = (7 * ttime.total_ns + 256 * elapsed) / 8;
        ttime.mean_ns = (ttime.total_ns + 128) / ttime.samples;
    }

    /// Updates whether the think time is short enough to idle for the next request.
    pub(super) fn update_short_ttime(&mut self, q: QueueId, context: usize) {
        let queue = &self.queues[q];
        if !queue.sync
            || queue.is_idle_class()
            || self.settings.slice_idle_ns == 0
            || queue.split + min_idle_time() >= self.jiffies
        {
            return;
        }
        let ttime = &queue.ttime;
        let thinks_long =
            ttime.samples > ENOUGH_SAMPLES && ttime.mean_ns > self.settings.slice_idle_ns / 2;
        let short = !thinks_long && !self.contexts[context].exited;
        let changed = short != queue.short_ttime;
        let lately = queue.injection.lowered + msecs_to_jiffies(100) > self.jiffies;
        let unknown = queue.injection.last_service_ns == 0;
        self.queues[q].short_ttime = short;
        if changed && unknown && (!lately || !short) {
            self.reset_injection(q);
        }
    }

    /// Records whether the request is a seek.
    pub(super) fn update_seeks(&mut self, ctx: &SchedCtx<'_>, q: QueueId, id: RequestId) {
        let rq = &ctx.rqs[id];
        let (sector, sectors) = (rq.sector.0, rq.sectors as u64);
        let far = self.is_far(self.queues[q].last_request_pos, sector, sectors);
        let queue = &mut self.queues[q];
        queue.seek_history = queue.seek_history << 1 | far as u32;
        self.end_soft_rt_of_seeky(q);
    }

    /// Updates whether the process waits for I/O for at least four fifths of its time
    /// (`bfq_update_io_intensity`).
    ///
    /// The last completion of a new queue is set one nanosecond after its creation, so the idle
    /// time before its first request is negative and wraps: the queue is not I/O-bound until it has
    /// been idle once. Some time always passes between a completion and the next request, even on a
    /// simulated machine whose CPUs cost nothing.
    pub(super) fn update_io_bound(&mut self, q: QueueId) {
        let now_ns = self.now_ns;
        let queue = &mut self.queues[q];
        let total_ns = now_ns.wrapping_sub(queue.io_start_ns);
        if queue.sorted.is_empty() && queue.dispatched == 0 {
            let idle = now_ns.wrapping_sub(queue.ttime.last_end_ns).max(1);
            queue.idle_total_ns = queue.idle_total_ns.wrapping_add(idle);
        }
        if queue.just_created {
            return;
        }
        queue.io_bound = queue.idle_total_ns.wrapping_mul(5) <= total_ns;
        // The window of observation moves on, so that old behaviour fades.
        if total_ns > 200_000_000 {
            queue.io_start_ns = now_ns.wrapping_sub(total_ns / 2);
            queue.idle_total_ns /= 2;
        }
    }
}
