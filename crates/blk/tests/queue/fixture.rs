//! A driver and a scheduler that do what a test says, and keep what they were
//! given.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use blklab_blk::{
    Bio, BioFlags, BlkDriver, BlkStatus, Elevator, ElevatorQueue, InsertAt, IoStatus, MergeKind,
    Nanos, Op, Plug, QueueConfig, QueueLimits, Request, RequestId, RequestQueue, RqList, SchedCtx,
    Sector, Submit, TraceEvent, TraceKind, Waiter, elv_bio_merge_ok, sched_try_insert_merge,
};

/// A command that the driver took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    pub id: RequestId,
    pub hctx: usize,
    pub op: Op,
    pub sector: u64,
    pub sectors: u32,
    pub flags: BioFlags,
    pub last: bool,
}

/// Answers from a script, and takes everything when that is used up.
#[derive(Default)]
pub struct ScriptedDriver {
    pub answers: VecDeque<BlkStatus>,
    /// Places left for `get_budget`.
    pub budget: u32,
    pub need_resched: bool,
    /// Every command taken, in order.
    pub taken: Vec<Command>,
    pub in_flight: VecDeque<RequestId>,
    /// Hardware contexts of the calls of `commit_rqs`.
    pub commits: Vec<usize>,
}

impl BlkDriver for ScriptedDriver {
    fn queue_rq(
        &mut self,
        _now: Nanos,
        hctx: usize,
        id: RequestId,
        rq: &Request,
        last: bool,
    ) -> BlkStatus {
        let answer = self.answers.pop_front().unwrap_or(BlkStatus::Ok);
        if matches!(answer, BlkStatus::Ok | BlkStatus::OkBlocking) {
            self.taken.push(Command {
                id,
                hctx,
                op: rq.op,
                sector: rq.sector.0,
                sectors: rq.sectors,
                flags: rq.flags,
                last,
            });
            self.in_flight.push_back(id);
        }
        answer
    }

    fn need_resched(&mut self) -> bool {
        self.need_resched
    }

    fn commit_rqs(&mut self, _now: Nanos, hctx: usize) {
        self.commits.push(hctx);
    }

    fn get_budget(&mut self) -> bool {
        let free = self.budget > 0;
        self.budget -= free as u32;
        free
    }

    fn put_budget(&mut self) {
        self.budget += 1;
    }
}

/// What a test says to a [`Fifo`] and what that was told by the queue.
#[derive(Default)]
pub struct FifoState {
    /// `dispatch_request` returns nothing, though there is work.
    pub holds: bool,
    /// What `limit_depth` and `min_shallow_depth` return.
    pub depth: Option<u32>,
    pub min_shallow_depth: Option<u32>,
    /// Sectors and places of inserted requests.
    pub inserts: Vec<(u64, InsertAt)>,
    pub depths_asked: u32,
    /// Merges of bios that made no two requests one.
    pub bio_merges: Vec<MergeKind>,
    pub prepared: u32,
    pub dispatched: u64,
    pub completed: u32,
    pub requeued: u32,
    pub finished: u32,
}

/// The order of arrival, with every kind of merge.
pub struct Fifo {
    list: RqList,
    state: Arc<Mutex<FifoState>>,
    queue: ElevatorQueue,
}

impl Fifo {
    fn state(&self) -> MutexGuard<'_, FifoState> {
        self.state.lock().expect("no test panics while it holds it")
    }
}

impl Elevator for Fifo {
    fn queue(&self) -> &ElevatorQueue {
        &self.queue
    }

    fn queue_mut(&mut self) -> &mut ElevatorQueue {
        &mut self.queue
    }

    fn limit_depth(&mut self, _op: Op, _flags: BioFlags) -> Option<u32> {
        let mut state = self.state();
        state.depths_asked += 1;
        state.depth
    }

    fn min_shallow_depth(&self) -> Option<u32> {
        self.state().min_shallow_depth
    }

    fn request_merge(
        &mut self,
        ctx: &mut SchedCtx<'_>,
        bio: &Bio,
    ) -> Option<(RequestId, MergeKind)> {
        let starts_behind = |id: &RequestId| ctx.rqs[*id].sector == bio.end();
        let id = self.list.iter(ctx.rqs).find(starts_behind)?;
        elv_bio_merge_ok(self, ctx, id, bio).then_some((id, MergeKind::Front))
    }

    fn request_merged(&mut self, _ctx: &mut SchedCtx<'_>, _id: RequestId, kind: MergeKind) {
        self.state().bio_merges.push(kind);
    }

    fn requests_merged(&mut self, ctx: &mut SchedCtx<'_>, _id: RequestId, next: RequestId) {
        if self.list.iter(ctx.rqs).any(|id| id == next) {
            self.list.remove(ctx.rqs, next);
        }
        ctx.merge.remove(ctx.rqs, next);
    }

    fn former_request(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) -> Option<RequestId> {
        let start = ctx.rqs[id].sector;
        let mut list = self.list.iter(ctx.rqs);
        list.find(|&other| ctx.rqs[other].end() == start)
    }

    fn next_request(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) -> Option<RequestId> {
        let end = ctx.rqs[id].end();
        let mut list = self.list.iter(ctx.rqs);
        list.find(|&other| ctx.rqs[other].sector == end)
    }

    fn prepare_request(&mut self, _ctx: &mut SchedCtx<'_>, _id: RequestId) {
        self.state().prepared += 1;
    }

    fn insert_requests(
        &mut self,
        ctx: &mut SchedCtx<'_>,
        hctx: usize,
        list: &mut RqList,
        at: InsertAt,
    ) {
        while let Some(id) = list.pop_front(ctx.rqs) {
            self.state().inserts.push((ctx.rqs[id].sector.0, at));
            if sched_try_insert_merge(self, ctx, id) {
                continue;
            }
            ctx.trace_insert(id);
            self.add_request(ctx, hctx, id);
            if at == InsertAt::Head {
                self.list.remove(ctx.rqs, id);
                self.list.push_front(ctx.rqs, id);
            }
        }
    }

    fn add_request(&mut self, ctx: &mut SchedCtx<'_>, _: usize, id: RequestId) {
        ctx.merge.add(ctx.rqs, id);
        self.list.push_back(ctx.rqs, id);
    }

    fn dispatch_request(&mut self, ctx: &mut SchedCtx<'_>, _: usize) -> Option<RequestId> {
        if self.state().holds {
            return None;
        }
        let id = self.list.pop_front(ctx.rqs)?;
        ctx.merge.remove(ctx.rqs, id);
        self.state().dispatched += 1;
        Some(id)
    }

    fn has_work(&self, _: usize) -> bool {
        !self.list.is_empty()
    }

    fn completed_request(&mut self, _ctx: &mut SchedCtx<'_>, _id: RequestId) {
        self.state().completed += 1;
    }

    fn requeue_request(&mut self, _ctx: &mut SchedCtx<'_>, _id: RequestId) {
        self.state().requeued += 1;
    }

    fn finish_request(&mut self, _ctx: &mut SchedCtx<'_>, _id: RequestId) {
        self.state().finished += 1;
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        vec![("dispatched", self.state().dispatched)]
    }
}

/// One CPU, one hardware context, 32 tags, a drive that takes everything.
pub fn config() -> QueueConfig {
    QueueConfig {
        nr_cpus: 1,
        nr_hw_queues: 1,
        queue_depth: 32,
        limits: QueueLimits::default(),
    }
}

/// The same with limits of its own.
pub fn with_limits(limits: QueueLimits) -> QueueConfig {
    QueueConfig { limits, ..config() }
}

/// A queue with its driver, at a time that the test moves.
pub struct Fixture {
    pub now: Nanos,
    pub queue: RequestQueue,
    pub driver: ScriptedDriver,
    pub plug: Plug,
    pub waiters: Vec<Waiter>,
    submitted: u64,
}

impl Fixture {
    /// A queue without a scheduler.
    pub fn new(config: &QueueConfig) -> Fixture {
        Fixture {
            now: Nanos(1_000),
            queue: RequestQueue::new(config),
            driver: ScriptedDriver {
                budget: 1_000,
                ..ScriptedDriver::default()
            },
            plug: Plug::new(),
            waiters: Vec::new(),
            submitted: 0,
        }
    }

    /// A queue with a [`Fifo`] on it.
    pub fn with_fifo(config: &QueueConfig, state: FifoState) -> (Fixture, Arc<Mutex<FifoState>>) {
        let mut fixture = Fixture::new(config);
        let state = Arc::new(Mutex::new(state));
        fixture.queue.set_elevator(Some(Box::new(Fifo {
            list: RqList::new(),
            state: state.clone(),
            queue: ElevatorQueue::new("fifo", &[]),
        })));
        (fixture, state)
    }

    /// Submits a plain bio on the first CPU.
    pub fn submit(&mut self, op: Op, sector: u64, sectors: u32) {
        self.submit_bio(0, Bio::new(op, Sector(sector), sectors));
    }

    /// Submits a bio; its handle is how many were submitted before it.
    pub fn submit_bio(&mut self, cpu: usize, bio: Bio) {
        let user_data = self.submitted;
        self.submitted += 1;
        let bio = Bio { user_data, ..bio };
        let (now, driver) = (self.now, &mut self.driver);
        if let Submit::Blocked(waiter) = self.queue.submit_bio(now, cpu, None, bio, driver) {
            self.waiters.push(waiter);
        }
    }

    /// Submits a bio through the plug.
    pub fn submit_plugged(&mut self, cpu: usize, bio: Bio) {
        let user_data = self.submitted;
        self.submitted += 1;
        let bio = Bio { user_data, ..bio };
        let (now, plug) = (self.now, Some(&mut self.plug));
        let driver = &mut self.driver;
        if let Submit::Blocked(waiter) = self.queue.submit_bio(now, cpu, plug, bio, driver) {
            self.waiters.push(waiter);
        }
    }

    /// Submits a read of 8 sectors through the plug.
    pub fn read_plugged(&mut self, sector: u64) {
        self.submit_plugged(0, Bio::new(Op::Read, Sector(sector), 8));
    }

    pub fn unplug(&mut self) {
        let driver = &mut self.driver;
        self.queue.flush_plug(self.now, &mut self.plug, driver);
    }

    /// Does what is due.
    pub fn process(&mut self) {
        while self.queue.next_event() <= self.now {
            self.queue.process(self.now, &mut self.driver);
        }
    }

    /// Ends the oldest command of the driver.
    pub fn complete(&mut self, status: IoStatus) {
        let id = self.driver.in_flight.pop_front();
        let id = id.expect("the driver has a command");
        self.queue.complete(self.now, id, status, &mut self.driver);
    }

    /// Ends everything that is under way and what follows from that.
    pub fn drain(&mut self) {
        self.process();
        while !self.driver.in_flight.is_empty() {
            self.complete(IoStatus::Ok);
            self.process();
        }
    }

    /// Handles and ends of the bios that ended since the last call.
    pub fn ended(&mut self) -> Vec<(u64, IoStatus)> {
        let mut ended = Vec::new();
        self.queue.take_ended(&mut ended);
        ended
            .iter()
            .map(|end| (end.user_data, end.status))
            .collect()
    }

    /// How many waiters were woken since the last call.
    pub fn woken(&mut self) -> Vec<u64> {
        let mut woken = Vec::new();
        self.queue.take_woken(&mut woken);
        woken
    }

    /// First sectors of the commands that the driver took.
    pub fn sectors_taken(&self) -> Vec<u64> {
        self.driver.taken.iter().map(|c| c.sector).collect()
    }

    /// Tracepoints since the last call.
    pub fn trace(&mut self) -> Vec<TraceKind> {
        let mut events: Vec<TraceEvent> = Vec::new();
        self.queue.take_trace(&mut events);
        events.iter().map(|event| event.kind).collect()
    }
}
