//! The part of a request queue that a scheduler uses, for unit tests, property tests and
//! benchmarks. Time advances only when a test advances it.

use blklab_blk::{
    Bio, Elevator, InsertAt, MergeKind, MergeState, Nanos, QueueInfo, QueueLimits, Request,
    RequestId, Requests, RqFlags, RqList, SchedCtx, Trace, take_request,
};

/// A scheduler and the arguments of its hooks.
pub struct TestQueue {
    /// The scheduler.
    pub elevator: Box<dyn Elevator>,
    /// The current time.
    pub now: Nanos,
    rqs: Requests,
    merge: MergeState,
    trace: Trace,
    runs: Vec<u16>,
}

#[allow(dead_code)] // Each user of this file needs its own part of it.
impl TestQueue {
    /// Returns a queue with default limits.
    pub fn new(elevator: Box<dyn Elevator>) -> TestQueue {
        TestQueue {
            elevator,
            now: Nanos::ZERO,
            rqs: Requests::default(),
            merge: MergeState::new(QueueLimits::default()),
            trace: Trace::default(),
            runs: Vec::new(),
        }
    }

    /// Calls `f` with the scheduler and its view of the queue.
    pub fn with<T>(&mut self, f: impl FnOnce(&mut dyn Elevator, &mut SchedCtx<'_>) -> T) -> T {
        let mut ctx = SchedCtx {
            now: self.now,
            rqs: &mut self.rqs,
            merge: &mut self.merge,
            trace: &mut self.trace,
            runs: &mut self.runs,
        };
        f(&mut *self.elevator, &mut ctx)
    }

    /// Advances time.
    pub fn pass_ms(&mut self, ms: u64) {
        self.now += Nanos::from_millis(ms);
    }

    /// Makes a request from a bio, as the block layer does before inserting it.
    pub fn make(&mut self, bio: &Bio) -> RequestId {
        let id = self.allocate(bio);
        self.prepare(id);
        id
    }

    /// The block layer's part of [`TestQueue::make`].
    pub fn allocate(&mut self, bio: &Bio) -> RequestId {
        self.rqs.insert(Request::for_bio(bio, self.now))
    }

    /// The scheduler's part of [`TestQueue::make`].
    pub fn prepare(&mut self, id: RequestId) {
        self.with(|e, ctx| e.prepare_request(ctx, id));
    }

    /// Makes the data request of a flush sequence.
    pub fn make_flush_data(&mut self, bio: &Bio) -> RequestId {
        let id = self.make(bio);
        self.rqs[id].rq_flags.set(RqFlags::FLUSH_SEQ);
        id
    }

    /// Completes a request and makes it a request for another bio: what [`TestQueue::complete`] and
    /// [`TestQueue::make`] do, without freeing it in between.
    pub fn reuse(&mut self, id: RequestId, bio: &Bio) {
        let now = self.now;
        self.with(|e, ctx| {
            e.completed_request(ctx, id);
            e.finish_request(ctx, id);
            let rq = &mut ctx.rqs[id];
            (rq.op, rq.sector, rq.sectors) = (bio.op, bio.sector, bio.sectors);
            (rq.start, rq.rq_flags) = (now, RqFlags::default());
            e.prepare_request(ctx, id);
        });
    }

    /// Inserts a request.
    pub fn insert_request(&mut self, id: RequestId, at: InsertAt) {
        self.with(|e, ctx| {
            let mut list = RqList::new();
            list.push_back(ctx.rqs, id);
            e.insert_requests(ctx, 0, &mut list, at);
        });
    }

    /// Inserts a bio as a request; `None` if it was merged.
    pub fn insert(&mut self, bio: &Bio) -> Option<RequestId> {
        let id = self.make(bio);
        self.insert_request(id, InsertAt::Tail);
        let gone = self.merged_away().contains(&id);
        (!gone).then_some(id)
    }

    /// Tries to merge a bio into a queued request.
    pub fn merge(&mut self, bio: &Bio) -> Option<RequestId> {
        self.with(|e, ctx| e.bio_merge(ctx, 0, bio))
    }

    /// Merges a bio that fills the gap between two queued requests: behind the first, or in front
    /// of the second. Returns the request that contains it.
    pub fn fill_hole(
        &mut self,
        first: RequestId,
        second: RequestId,
        kind: MergeKind,
    ) -> Option<RequestId> {
        let (start, rq) = (self.rqs[first].end(), &self.rqs[second]);
        let bio = |sector, sectors| Bio {
            flags: rq.flags,
            submitter: rq.submitter,
            ..Bio::new(rq.op, sector, sectors)
        };
        let hole = bio(start, (rq.sector.0 - start.0) as u32);
        let behind = bio(rq.end(), 8);
        if kind == MergeKind::Front {
            // The last merge is tried first.
            assert_eq!(self.merge(&behind), Some(second));
        }
        self.merge(&hole)
    }

    /// Frees the requests merged into others since the last call and returns them.
    pub fn merged_away(&mut self) -> Vec<RequestId> {
        let mut gone = Vec::new();
        self.merge.take_merged_away(&mut gone);
        for &id in &gone {
            self.with(|e, ctx| e.finish_request(ctx, id));
            self.rqs.remove(id);
        }
        gone
    }

    /// Dispatches the next request, which the driver takes at once.
    pub fn dispatch(&mut self) -> Option<RequestId> {
        let id = self.with(|e, ctx| take_request(e, ctx, 0))?;
        self.rqs[id].io_start = self.now;
        Some(id)
    }

    /// Completes and frees a request.
    pub fn complete(&mut self, id: RequestId) {
        self.end(id);
        self.free(id);
    }

    /// The scheduler's part of [`TestQueue::complete`].
    pub fn end(&mut self, id: RequestId) {
        self.with(|e, ctx| {
            e.completed_request(ctx, id);
            e.finish_request(ctx, id);
        });
    }

    /// The block layer's part of [`TestQueue::complete`].
    pub fn free(&mut self, id: RequestId) {
        self.rqs.remove(id);
    }

    /// Requeues a request at the head.
    pub fn requeue(&mut self, id: RequestId) {
        self.with(|e, ctx| e.requeue_request(ctx, id));
        self.insert_request(id, InsertAt::Head);
    }

    /// Calls the scheduler's timer if it has expired.
    pub fn run_timer(&mut self) -> bool {
        let due = self.elevator.next_timer().is_some_and(|at| at <= self.now);
        due && self.with(|e, ctx| e.timer(ctx))
    }

    /// Hardware contexts that the scheduler asked to run since the last call.
    pub fn take_runs(&mut self) -> Vec<u16> {
        std::mem::take(&mut self.runs)
    }

    /// Dispatches until the scheduler returns none.
    pub fn drain(&mut self) -> Vec<RequestId> {
        std::iter::from_fn(|| self.dispatch()).collect()
    }

    /// The first sectors of the requests of [`TestQueue::drain`].
    pub fn drain_sectors(&mut self) -> Vec<u64> {
        let ids = self.drain();
        ids.into_iter().map(|id| self.rqs[id].sector.0).collect()
    }

    /// The request `id`.
    pub fn rq(&self, id: RequestId) -> &Request {
        &self.rqs[id]
    }

    /// Number of requests.
    pub fn in_use(&self) -> usize {
        self.rqs.in_use()
    }

    /// Sets an existing tunable to a legal value.
    pub fn set(&mut self, name: &str, value: i64) {
        self.elevator.set_tunable(name, value).expect(name);
    }

    /// A counter by name.
    pub fn count(&self, name: &str) -> u64 {
        let counters = self.elevator.counters();
        counters.iter().find(|(n, _)| *n == name).expect(name).1
    }
}

/// Properties of a queue with one hardware context and 256 tags.
pub fn queue_info() -> QueueInfo {
    QueueInfo {
        old_nr_requests: 256,
        nr_requests: 256,
        nr_hw_queues: 1,
        queue_depth: 256,
        nr_cpus: 1,
        capacity_sectors: 1 << 29,
        rotational: false,
    }
}

/// Numbers that look random, the same each time (Marsaglia, "Xorshift RNGs", J. Stat. Softw. 8(14),
/// 2003).
#[allow(dead_code)] // Only benchmarks need it.
pub fn random_numbers() -> impl FnMut() -> u64 {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    }
}
