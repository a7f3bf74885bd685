//! Tests of the request queue from outside, random and step by step, and their shared fixtures.

mod accounting;
mod dispatch;
mod flush;
mod merging;
mod qos;
mod random;
mod recorded_runs;
mod tags;
mod tracepoints;
mod zones;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use blklab_blk::{
    Bio, BioFlags, BlkDriver, BlkStatus, Elevator, ElevatorQueue, InsertAt, Interruption, IoStatus,
    MergeKind, Nanos, Op, Plug, QueueConfig, QueueLimits, Request, RequestId, RequestQueue, RqList,
    RunPoint, SchedCtx, Sector, Submit, TraceEvent, TraceKind, Waiter, elv_bio_merge_ok,
    sched_try_insert_merge,
};

/// A command that the driver took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Command {
    pub(crate) id: RequestId,
    pub(crate) hctx: usize,
    pub(crate) op: Op,
    pub(crate) sector: u64,
    pub(crate) sectors: u32,
    pub(crate) flags: BioFlags,
    pub(crate) last: bool,
}

/// A driver that answers from a script, and accepts everything after its end.
#[derive(Default)]
pub(crate) struct ScriptedDriver {
    pub(crate) answers: VecDeque<BlkStatus>,
    /// Budget left for `get_budget`.
    pub(crate) budget: u32,
    pub(crate) need_resched: bool,
    /// All commands taken, in order.
    pub(crate) taken: Vec<Command>,
    pub(crate) in_flight: VecDeque<RequestId>,
    /// Hardware contexts of the calls of `commit_rqs`.
    pub(crate) commits: Vec<usize>,
    /// A command that ends before the requests of a plug go into the scheduler.
    pub(crate) ends_before_insert: Option<RequestId>,
    /// Where the next run pauses for other CPUs, and under which name.
    pub(crate) pauses_at: Option<(RunPoint, u64)>,
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

    fn interrupt(&mut self, point: RunPoint) -> Option<Interruption> {
        if let Some((_, name)) = self.pauses_at.take_if(|(at, _)| *at == point) {
            return Some(Interruption::OtherCpus(name));
        }
        let ends = self
            .ends_before_insert
            .take_if(|_| point == RunPoint::Insert)?;
        Some(Interruption::Completion(ends, IoStatus::Ok, Nanos(2_000)))
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

/// What a test configures in a [`Fifo`], and the calls that it received.
#[derive(Default)]
pub(crate) struct FifoState {
    /// Whether `dispatch_request` returns nothing although there is work.
    pub(crate) holds: bool,
    /// The values of `limit_depth` and `min_shallow_depth`.
    pub(crate) depth: Option<u32>,
    pub(crate) min_shallow_depth: Option<u32>,
    /// Sectors and positions of inserted requests.
    pub(crate) inserts: Vec<(u64, InsertAt)>,
    pub(crate) depths_asked: u32,
    /// Merges of bios that did not join two requests.
    pub(crate) bio_merges: Vec<MergeKind>,
    pub(crate) prepared: u32,
    pub(crate) completed: u32,
    pub(crate) requeued: u32,
    pub(crate) finished: u32,
}

/// A scheduler that keeps the order of arrival and supports every kind of merge.
pub(crate) struct Fifo {
    list: RqList,
    state: Arc<Mutex<FifoState>>,
    queue: ElevatorQueue,
}

impl Fifo {
    pub(crate) fn new(state: FifoState) -> (Fifo, Arc<Mutex<FifoState>>) {
        let state = Arc::new(Mutex::new(state));
        let fifo = Fifo {
            list: RqList::new(),
            state: state.clone(),
            queue: ElevatorQueue::new("fifo", &[]),
        };
        (fifo, state)
    }

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
        self.queue.count_merge();
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

    fn insert_request(&mut self, ctx: &mut SchedCtx<'_>, hctx: usize, id: RequestId, at: InsertAt) {
        self.state().inserts.push((ctx.rqs[id].sector.0, at));
        if sched_try_insert_merge(self, ctx, id) {
            return;
        }
        ctx.trace_insert(id);
        self.add_request(ctx, hctx, id);
        if at == InsertAt::Head {
            self.list.remove(ctx.rqs, id);
            self.list.push_front(ctx.rqs, id);
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
        self.queue.send(ctx, id)
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
        self.queue.counters([])
    }
}

/// One CPU, one hardware context, 32 tags, and a drive that accepts everything.
pub(crate) fn config() -> QueueConfig {
    QueueConfig {
        nr_cpus: 1,
        nr_hw_queues: 1,
        queue_depth: 32,
        round_robin_tags: false,
        seed: 0,
        limits: QueueLimits::default(),
    }
}

/// The same configuration with these limits.
pub(crate) fn with_limits(limits: QueueLimits) -> QueueConfig {
    QueueConfig { limits, ..config() }
}

/// A queue with its driver, and a time that the test advances.
pub(crate) struct Fixture {
    pub(crate) now: Nanos,
    pub(crate) queue: RequestQueue,
    pub(crate) driver: ScriptedDriver,
    pub(crate) plug: Plug,
    pub(crate) waiters: Vec<Waiter>,
    submitted: u64,
}

impl Fixture {
    /// A queue without a scheduler.
    pub(crate) fn new(config: &QueueConfig) -> Fixture {
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
    pub(crate) fn with_fifo(
        config: &QueueConfig,
        state: FifoState,
    ) -> (Fixture, Arc<Mutex<FifoState>>) {
        let mut fixture = Fixture::new(config);
        let (fifo, state) = Fifo::new(state);
        fixture.queue.set_elevator(Some(Box::new(fifo)));
        (fixture, state)
    }

    /// Submits a plain bio on the first CPU.
    pub(crate) fn submit(&mut self, op: Op, sector: u64, sectors: u32) {
        self.submit_bio(0, Bio::new(op, Sector(sector), sectors));
    }

    /// Submits a bio whose handle is the number of bios submitted before.
    pub(crate) fn submit_bio(&mut self, cpu: usize, bio: Bio) {
        let user_data = self.submitted;
        self.submitted += 1;
        let bio = Bio { user_data, ..bio };
        let (now, driver) = (self.now, &mut self.driver);
        if let Submit::Blocked(waiter) = self.queue.submit_bio(now, cpu, None, bio, driver) {
            self.waiters.push(waiter);
        }
    }

    /// Submits a bio through the plug.
    pub(crate) fn submit_plugged(&mut self, cpu: usize, bio: Bio) {
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
    pub(crate) fn read_plugged(&mut self, sector: u64) {
        self.submit_plugged(0, Bio::new(Op::Read, Sector(sector), 8));
    }

    pub(crate) fn unplug(&mut self) {
        let driver = &mut self.driver;
        self.queue.flush_plug(self.now, &mut self.plug, driver);
    }

    /// Does all work that is due.
    pub(crate) fn process(&mut self) {
        while self.queue.next_event() <= self.now {
            self.queue.process(self.now, &mut self.driver);
        }
    }

    /// Ends the oldest command of the driver.
    pub(crate) fn complete(&mut self, status: IoStatus) {
        let id = self.driver.in_flight.pop_front();
        let id = id.expect("the driver has a command");
        self.queue.complete(self.now, id, status, &mut self.driver);
    }

    /// Ends everything in flight and everything that follows from it.
    pub(crate) fn drain(&mut self) {
        self.process();
        while !self.driver.in_flight.is_empty() {
            self.complete(IoStatus::Ok);
            self.process();
        }
    }

    /// Handles and results of the bios that ended since the last call.
    pub(crate) fn ended(&mut self) -> Vec<(u64, IoStatus)> {
        let mut ended = Vec::new();
        self.queue.take_ended(&mut ended);
        ended
            .iter()
            .map(|end| (end.user_data, end.status))
            .collect()
    }

    /// Number of waiters woken since the last call.
    pub(crate) fn woken(&mut self) -> Vec<u64> {
        let mut woken = Vec::new();
        self.queue.take_woken(&mut woken);
        woken
    }

    /// Continues the submitters that were woken.
    pub(crate) fn resume_woken(&mut self) {
        for ticket in self.woken() {
            let woken = |waiter: &Waiter| waiter.ticket == ticket;
            let Some(at) = self.waiters.iter().position(woken) else {
                continue;
            };
            let (now, waiter) = (self.now, self.waiters.remove(at));
            let plug = Some(&mut self.plug);
            let driver = &mut self.driver;
            if let Submit::Blocked(waiter) = self.queue.resume(now, plug, waiter, driver) {
                self.waiters.push(waiter);
            }
        }
    }

    /// First sectors of the commands that the driver took.
    pub(crate) fn sectors_taken(&self) -> Vec<u64> {
        self.driver.taken.iter().map(|c| c.sector).collect()
    }

    /// Tracepoints since the last call.
    pub(crate) fn trace(&mut self) -> Vec<TraceKind> {
        let mut events: Vec<TraceEvent> = Vec::new();
        self.queue.take_trace(&mut events);
        events.iter().map(|event| event.kind).collect()
    }
}
