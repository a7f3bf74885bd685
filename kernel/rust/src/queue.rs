//! A scheduler on a queue of the kernel: the hooks.

use alloc::boxed::Box;
use alloc::vec::Vec;

use blklab_blk::{
    Bio, BioFlags, CgroupId, Elevator, InsertAt, IoClass, IoPrio, MergeKind, MergeState, Nanos,
    NoMerges, Op, QueueInfo, QueueLimits, Request, RequestId, Requests, RqFlags, SchedCtx, Sector,
    SubmitterId, Trace, take_request,
};

/// A request or a bio as the kernel describes it (`struct blklab_view`).
#[repr(C)]
pub struct View {
    sector: u64,
    /// The time at which it was allocated.
    start_ns: u64,
    sectors: u32,
    submitter: u32,
    cpu: u16,
    hctx: u16,
    /// [`BioFlags`] by their bits.
    flags: u16,
    /// The number of its [`Op`].
    op: u8,
    /// `IOPRIO_CLASS_*` and the level.
    prio_class: u8,
    prio_level: u8,
}

impl View {
    fn bio(&self) -> Bio {
        let mut bio = Bio::new(op(self.op), Sector(self.sector), self.sectors);
        bio.flags = BioFlags(self.flags);
        bio.submitter = SubmitterId(self.submitter);
        bio.prio = IoPrio {
            class: match self.prio_class {
                1 => IoClass::Rt,
                2 => IoClass::Be,
                3 => IoClass::Idle,
                _ => IoClass::None,
            },
            level: self.prio_level,
        };
        bio.cgroup = CgroupId::ROOT;
        bio
    }
}

fn op(number: u8) -> Op {
    match number {
        0 => Op::Read,
        1 => Op::Write,
        2 => Op::Flush,
        3 => Op::Discard,
        _ => Op::WriteZeroes,
    }
}

/// The properties of a queue (`struct blklab_shape`).
#[repr(C)]
pub struct Shape {
    capacity_sectors: u64,
    nr_requests: u32,
    old_nr_requests: u32,
    nr_hw_queues: u32,
    queue_depth: u32,
    nr_cpus: u32,
    max_sectors: u32,
    /// The most requests at once.
    max_requests: u32,
    rotational: bool,
}

impl From<&Shape> for QueueInfo {
    fn from(shape: &Shape) -> QueueInfo {
        QueueInfo {
            nr_requests: shape.nr_requests,
            old_nr_requests: shape.old_nr_requests,
            nr_hw_queues: shape.nr_hw_queues,
            queue_depth: shape.queue_depth,
            nr_cpus: shape.nr_cpus,
            capacity_sectors: shape.capacity_sectors,
            rotational: shape.rotational,
        }
    }
}

/// What the module reads without a call (`struct blklab_shared`).
#[repr(C)]
struct Shared {
    /// The time at which [`Queue::timer`] must be called; `u64::MAX` for never.
    next_timer_ns: u64,
    /// Whether [`Queue::next_run`] has hardware contexts to run.
    has_runs: bool,
    /// Whether one state serves all hardware contexts.
    is_single_queue: bool,
    /// Whether write-back throttling is off by default under it.
    disables_wbt: bool,
    /// Whether the scheduler keeps state for each submitter.
    has_submitters: bool,
    /// Whether [`Queue::bio_merge`] must be called; most schedulers do nothing there.
    sees_bios: bool,
    /// Whether bios and requests are also looked for by the ends of queued requests.
    merges_by_end: bool,
    /// Whether [`Queue::finish`] can be called later, before the next hook.
    ends_can_wait: bool,
    /// The smallest depth that `limit_depth` returns; zero if it sets none.
    min_shallow_depth: u32,
    /// The depths for asynchronous reads and writes, then for synchronous ones, if they do
    /// not depend on the submitter; zero for all tags.
    depths: [u32; 4],
}

/// The result of an insertion (`struct blklab_inserted`).
#[repr(C)]
pub struct Inserted {
    number: u32,
    /// Whether bios may be merged behind it.
    hashed: bool,
}

/// A scheduler on a queue, with copies of the queue's requests. Requests have numbers from
/// 1; zero stands for none.
#[repr(C)]
pub struct Queue<E> {
    shared: Shared,
    pub(crate) elevator: E,
    requests: Requests,
    max_requests: usize,
    merge: MergeState,
    trace: Trace,
    runs: Vec<u16>,
}

fn number(id: Option<RequestId>) -> u32 {
    id.map_or(0, |id| id.index() as u32 + 1)
}

fn id(number: u32) -> RequestId {
    RequestId::from_index(number as usize - 1)
}

impl<E: Elevator> Queue<E> {
    /// Attaches a scheduler to a queue; null if there is no memory for its requests.
    pub fn create(elevator: E, shape: &Shape) -> *mut Queue<E> {
        let limits = QueueLimits {
            capacity_sectors: shape.capacity_sectors,
            max_sectors: shape.max_sectors,
            rotational: shape.rotational,
            nomerges: NoMerges::Never,
            ..QueueLimits::default()
        };
        let mut queue = Box::new(Queue {
            shared: Shared {
                next_timer_ns: u64::MAX,
                has_runs: false,
                is_single_queue: elevator.is_single_queue(),
                disables_wbt: elevator.disables_wbt(),
                has_submitters: E::has_submitters(),
                sees_bios: E::sees_bios(),
                merges_by_end: E::merges_by_end(),
                ends_can_wait: elevator.ends_can_wait(),
                min_shallow_depth: 0,
                depths: [0; 4],
            },
            elevator,
            requests: Requests::default(),
            max_requests: 0,
            merge: MergeState::of_kernel(limits),
            trace: Trace::default(),
            runs: Vec::with_capacity(shape.nr_hw_queues as usize),
        });
        if !queue.make_room(shape.max_requests) {
            return core::ptr::null_mut();
        }
        queue.publish_depths();
        Box::into_raw(queue)
    }

    /// # Safety
    /// `queue` comes from [`Queue::create`] and is not used afterwards.
    pub unsafe fn destroy(queue: *mut Queue<E>) {
        drop(unsafe { Box::from_raw(queue) });
    }

    /// Handles a write to `nr_requests`; no request is in the queue.
    pub fn resize(&mut self, shape: &Shape) {
        self.elevator.depth_updated(&QueueInfo::from(shape));
        self.publish_depths();
        self.make_room(shape.max_requests);
    }

    /// Updates the depths that the module reads without a call.
    pub(crate) fn publish_depths(&mut self) {
        self.shared.min_shallow_depth = self.elevator.min_shallow_depth().unwrap_or(0);
        for (class, depth) in self.shared.depths.iter_mut().enumerate() {
            let op = if class & 1 == 0 { Op::Read } else { Op::Write };
            let sync = [BioFlags::NONE, BioFlags::SYNC][class / 2];
            *depth = self.elevator.limit_depth(op, sync).unwrap_or(0);
        }
    }

    /// Allocates copies for all requests, so that none is allocated later. Without the memory the
    /// most requests at once stay what they were, and `false` is returned.
    fn make_room(&mut self, max_requests: u32) -> bool {
        let has_room = self.requests.make_room(max_requests as usize);
        if has_room {
            self.max_requests = max_requests as usize;
        }
        has_room
    }

    /// Calls a hook that only looks for a request.
    fn ask<R>(&mut self, now_ns: u64, hook: impl FnOnce(&mut E, &mut SchedCtx<'_>) -> R) -> R {
        let mut ctx = SchedCtx {
            now: Nanos(now_ns),
            rqs: &mut self.requests,
            merge: &mut self.merge,
            trace: &mut self.trace,
            runs: &mut self.runs,
        };
        hook(&mut self.elevator, &mut ctx)
    }

    /// Calls a hook and updates what the module must do afterwards.
    fn with<R>(&mut self, now_ns: u64, hook: impl FnOnce(&mut E, &mut SchedCtx<'_>) -> R) -> R {
        let result = self.ask(now_ns, hook);
        self.shared.next_timer_ns = self.elevator.next_timer().map_or(u64::MAX, |at| at.0);
        self.shared.has_runs = !self.runs.is_empty();
        self.shared.ends_can_wait = self.elevator.ends_can_wait();
        result
    }

    /// Updates the copy of a request with its sector and size.
    fn update_copy(&mut self, request: u32, view: &View) {
        let rq = &mut self.requests[id(request)];
        rq.sector = Sector(view.sector);
        rq.sectors = view.sectors;
    }

    /// Returns the number of tags that a request for this bio may use; zero for all.
    pub fn limit_depth(&mut self, bio: &View) -> u32 {
        self.elevator.limit_depth_for(&bio.bio()).unwrap_or(0)
    }

    /// Inserts a request; number 0 is a new one, any other was requeued. A new request gets
    /// no number if there are already `max_requests`.
    pub fn insert(&mut self, now_ns: u64, request: u32, rq: &View, at_head: bool) -> Inserted {
        let id = match request {
            0 if self.requests.in_use() >= self.max_requests => {
                return Inserted {
                    number: 0,
                    hashed: false,
                };
            }
            0 => self.requests.insert_with(|| {
                let mut request = Request::for_bio(&rq.bio(), Nanos(rq.start_ns));
                (request.ctx, request.hctx) = (rq.cpu, rq.hctx);
                request
            }),
            request => {
                self.update_copy(request, rq);
                id(request)
            }
        };
        let at = match at_head {
            true => InsertAt::Head,
            false => InsertAt::Tail,
        };
        let hctx = rq.hctx as usize;
        self.with(now_ns, |e, ctx| {
            if request == 0 {
                e.prepare_request(ctx, id);
            }
            e.insert_request(ctx, hctx, id, at);
        });
        Inserted {
            number: number(Some(id)),
            hashed: self.requests[id].rq_flags.has(RqFlags::HASHED),
        }
    }

    /// Returns the next request for the drive.
    pub fn dispatch(&mut self, now_ns: u64, hctx: u32) -> u32 {
        let hctx = hctx as usize;
        let id = self.with(now_ns, |e, ctx| take_request(e, ctx, hctx));
        if let Some(id) = id {
            // The driver starts it next; the kernel itself stores the time only for statistics.
            self.requests[id].io_start = Nanos(now_ns);
        }
        number(id)
    }

    /// Tells the scheduler of a bio before it is merged. Returns the request that the
    /// scheduler found for it, if it searches lists of its own.
    pub fn bio_merge(&mut self, now_ns: u64, bio: &View) -> u32 {
        let cpu = bio.cpu as usize;
        number(self.with(now_ns, |e, ctx| e.bio_merge(ctx, cpu, &bio.bio())))
    }

    /// Returns a queued request that the bio can be merged in front of.
    pub fn request_merge(&mut self, now_ns: u64, bio: &View) -> u32 {
        let found = self.with(now_ns, |e, ctx| e.request_merge(ctx, &bio.bio()));
        match found {
            Some((id, MergeKind::Front)) => number(Some(id)),
            _ => 0,
        }
    }

    /// Returns whether a bio may be merged into a request.
    pub fn allow_merge(&mut self, now_ns: u64, request: u32, bio: &View) -> bool {
        self.with(now_ns, |e, ctx| e.allow_merge(ctx, id(request), &bio.bio()))
    }

    /// Handles the merge of a bio into a request, at its front or back.
    pub fn request_merged(&mut self, now_ns: u64, request: u32, rq: &View, front: bool) {
        self.update_copy(request, rq);
        let kind = match front {
            true => MergeKind::Front,
            false => MergeKind::Back,
        };
        self.with(now_ns, |e, ctx| e.request_merged(ctx, id(request), kind));
    }

    /// Handles the merge of `next` into a request; `next` is freed afterwards.
    pub fn requests_merged(&mut self, now_ns: u64, request: u32, rq: &View, next: u32) {
        self.update_copy(request, rq);
        self.with(now_ns, |e, ctx| {
            e.requests_merged(ctx, id(request), id(next));
        });
    }

    /// Returns the queued request before this one in sector order.
    pub fn former(&mut self, now_ns: u64, request: u32) -> u32 {
        number(self.ask(now_ns, |e, ctx| e.former_request(ctx, id(request))))
    }

    /// Returns the queued request after this one in sector order.
    pub fn next(&mut self, now_ns: u64, request: u32) -> u32 {
        number(self.ask(now_ns, |e, ctx| e.next_request(ctx, id(request))))
    }

    /// Handles a request that the driver requeued.
    pub fn requeue(&mut self, now_ns: u64, request: u32) {
        self.with(now_ns, |e, ctx| e.requeue_request(ctx, id(request)));
    }

    /// Handles the end of a request that completed or was merged into another.
    pub fn finish(&mut self, now_ns: u64, request: u32, is_done: bool) {
        let id = id(request);
        self.with(now_ns, |e, ctx| {
            if is_done {
                e.completed_request(ctx, id);
            }
            e.finish_request(ctx, id);
        });
        self.requests.remove(id);
    }

    /// Handles the exit of a submitter.
    pub fn exit_submitter(&mut self, now_ns: u64, submitter: u32) {
        self.with(now_ns, |e, ctx| {
            e.exit_submitter(ctx, SubmitterId(submitter));
        });
    }

    /// Handles the expiry of the timer. Returns whether the hardware queues must be run.
    pub fn timer(&mut self, now_ns: u64) -> bool {
        self.with(now_ns, |e, ctx| e.timer(ctx))
    }

    /// Returns the request's `fifo_time`, its deadline in most schedulers.
    pub(crate) fn deadline(&self, request: u32) -> u64 {
        self.requests[id(request)].fifo_time.0
    }

    /// Returns the number of a hardware context to be run, plus one; zero if none is left.
    pub fn next_run(&mut self) -> u32 {
        let next = match self.runs.is_empty() {
            true => 0,
            false => self.runs.remove(0) as u32 + 1,
        };
        self.shared.has_runs = !self.runs.is_empty();
        next
    }
}
