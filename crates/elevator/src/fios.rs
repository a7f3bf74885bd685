//! FIOS, a fair, efficient flash I/O scheduler: S. Park and K. Shen, FAST 2012;
//! document 002, section 3.1.5.
//!
//! Every task gets the same time on the drive in each epoch. Unlike cfq's slice it need not be used
//! in one piece: all tasks with time left may have requests in the drive at once, so that its
//! parallelism is used. A request costs the time that it took, divided by the number of requests in
//! the drive when it was dispatched, including itself. An epoch ends when requests wait but none
//! belongs to a task with time left.
//!
//! Reads are preferred: a write waits while a read is queued or in the drive, because on flash
//! reads take much longer beside writes. Time slices keep writers from starving.
//!
//! A task that reads one request after the other has no request for a moment. The scheduler waits
//! for its next one, both before it dispatches a write and before it ends an epoch in which the
//! task has time left. The fraction alpha bounds the cost of waiting: before a write it lasts at
//! most `alpha / (1 - alpha)` of the task's mean read time.
//!
//! The paper, as far as it was available, leaves the following open:
//! - The length of a slice: 20 ms here.
//! - The wait before the end of an epoch: over the whole epoch it may take `alpha / (1 - alpha)` of
//!   a slice. If only each single wait were bounded, a task with a long think time would delay all
//!   others after each of its reads.
//! - The order of tasks: they take turns by request, and a task's own requests go by arrival.
//! - Overdrawn slices: costs are known only at completion, so what a task overdraws is taken from
//!   its next slices; epochs in which no task has time left end at once.
//! - Merging: a task is a submitter, and requests merge only within a task, so that each is charged
//!   to the task that it serves.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use blklab_blk::{
    Bio, Elevator, ElevatorQueue, Nanos, QueueInfo, RequestId, RqList, SchedCtx, SubmitterId,
    Tunable, Unit,
};
use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;

use crate::{ElevatorType, StepCosts};

const TIMESLICE: usize = 0;
const READ_PREFERENCE: usize = 1;
const ANTICIPATION: usize = 2;

/// The tunables.
pub const TUNABLES: &[Tunable] = &[
    Tunable {
        name: "timeslice",
        unit: Unit::Milliseconds,
        min: 1,
        max: 100_000,
        default: 20,
        help: "a task's time on the drive in an epoch",
    },
    Tunable {
        name: "read_preference",
        unit: Unit::Bool,
        min: 0,
        max: 1,
        default: 1,
        help: "writes wait while a read is queued or in the drive",
    },
    Tunable {
        name: "anticipation",
        unit: Unit::Percent,
        min: 0,
        max: 90,
        default: 50,
        help: "part of the time that waiting for a task's next request may cost",
    },
];

const READ: usize = 0;
const WRITE: usize = 1;

type TaskId = usize;

/// A submitter and its remaining time.
#[derive(Debug, Default)]
struct Task {
    epoch: u64,
    left_ns: i64,
    fifo: [RqList; 2],
    /// Whether it is in the list of ready or exhausted tasks, by direction.
    listed: [bool; 2],
    in_flight: u32,
    /// The end of the wait for its next request at an epoch's end.
    expected_until: Nanos,
    /// Mean duration of its reads, in nanoseconds.
    read_ns: u64,
}

impl Task {
    fn is_idle(&self) -> bool {
        self.in_flight == 0 && self.fifo.iter().all(RqList::is_empty)
    }

    /// Whether it may send another request in this epoch when one of its requests completes.
    fn may_come_back(&self) -> bool {
        self.in_flight > 0 && self.left_ns > 0
    }
}

/// `elv[0]`: the request's task plus one; zero for none.
const ELV_TASK: usize = 0;
/// `elv[1]`: zero, [`QUEUED`], or the number of requests in the drive at its dispatch.
const ELV_STATE: usize = 1;
const QUEUED: u32 = u32::MAX;

/// The scheduler's state.
pub struct Fios {
    queue: ElevatorQueue,
    tasks: Vec<Task>,
    task_ids: HashMap<SubmitterId, TaskId, FxBuildHasher>,
    epoch: u64,
    /// Tasks with time left that have reads and that have writes, in turn.
    ready: [VecDeque<TaskId>; 2],
    /// Tasks with requests but no time left.
    exhausted: [VecDeque<TaskId>; 2],
    queued: u32,
    in_flight: [u32; 2],
    /// No write is dispatched before this time, because a read is expected.
    read_expected_until: Nanos,
    /// Number of tasks with time left and a request in the drive.
    may_come_back: u32,
    /// Tasks with time left whose next request is expected.
    expected: Vec<TaskId>,
    /// Start of the wait at the epoch's end, and the remaining time for such waits in this epoch.
    epoch_wait_since: Option<Nanos>,
    epoch_wait_left_ns: u64,
    /// End of the current wait.
    wake: Option<Nanos>,
    /// Time at which the hardware queues should be run.
    run_at: Option<Nanos>,
    epochs: u64,
    writes_held: u64,
    waits: u64,
}

impl Fios {
    /// Returns a scheduler without requests and with default tunables.
    pub fn new(_info: &QueueInfo) -> Fios {
        let mut new = Fios {
            queue: FIOS.queue(),
            tasks: Vec::new(),
            task_ids: HashMap::default(),
            epoch: 0,
            ready: Default::default(),
            exhausted: Default::default(),
            queued: 0,
            in_flight: [0; 2],
            read_expected_until: Nanos::ZERO,
            may_come_back: 0,
            expected: Vec::new(),
            epoch_wait_since: None,
            epoch_wait_left_ns: 0,
            wake: None,
            run_at: None,
            epochs: 0,
            writes_held: 0,
            waits: 0,
        };
        new.epoch_wait_left_ns = new.longest_wait(new.slice_ns() as u64);
        new
    }

    fn slice_ns(&self) -> i64 {
        self.queue.tunables.at(TIMESLICE) * 1_000_000
    }

    /// The longest wait that is the fraction alpha of itself plus `ns`.
    fn longest_wait(&self, ns: u64) -> u64 {
        let percent = self.queue.tunables.at(ANTICIPATION) as u64;
        ns.saturating_mul(percent) / (100 - percent)
    }

    fn task(&mut self, submitter: SubmitterId) -> TaskId {
        let next = self.tasks.len();
        let id = *self.task_ids.entry(submitter).or_insert(next);
        if id == next {
            self.tasks.push(Task::default());
        }
        self.refresh(id);
        id
    }

    /// Changes a task and updates the number of tasks that may come back.
    fn change(&mut self, id: TaskId, f: impl FnOnce(&mut Task)) {
        let task = &mut self.tasks[id];
        self.may_come_back -= task.may_come_back() as u32;
        f(task);
        self.may_come_back += task.may_come_back() as u32;
    }

    /// Gives a task its slice of this epoch, less what it overdrew. Slices of epochs that it missed
    /// also repay what it overdrew.
    fn refresh(&mut self, id: TaskId) {
        let (epoch, slice) = (self.epoch + 1, self.slice_ns());
        if self.tasks[id].epoch != epoch {
            self.change(id, |task| {
                let epochs = (epoch - task.epoch).min(i32::MAX as u64) as i64;
                let slices = slice.saturating_mul(epochs);
                task.epoch = epoch;
                task.left_ns = task.left_ns.min(0).saturating_add(slices).min(slice);
            });
        }
    }

    /// Appends a task with requests of a direction to the ready or the exhausted tasks.
    fn list(&mut self, id: TaskId, dir: usize) {
        let task = &mut self.tasks[id];
        if task.fifo[dir].is_empty() || core::mem::replace(&mut task.listed[dir], true) {
            return;
        }
        if task.left_ns > 0 {
            self.ready[dir].push_back(id);
        } else {
            self.exhausted[dir].push_back(id);
        }
    }

    /// The next ready task of a direction; tasks without time or requests are removed from the
    /// list.
    fn next_ready(&mut self, dir: usize) -> Option<TaskId> {
        while let Some(&id) = self.ready[dir].front() {
            let task = &self.tasks[id];
            if task.left_ns > 0 && !task.fifo[dir].is_empty() {
                return Some(id);
            }
            self.ready[dir].pop_front();
            self.tasks[id].listed[dir] = false;
            self.list(id, dir);
        }
        None
    }

    /// Whether a write must wait for a read that is in the drive or expected.
    fn holds_writes(&mut self, now: Nanos) -> bool {
        if self.queue.tunables.at(READ_PREFERENCE) == 0 {
            return false;
        }
        let expected = now < self.read_expected_until;
        if expected {
            self.wake = Some(self.read_expected_until);
        }
        self.in_flight[READ] > 0 || expected
    }

    /// Whether to wait for a task that has time left in this epoch.
    fn holds_epoch(&mut self, now: Nanos) -> bool {
        if self.may_come_back > 0 {
            return true;
        }
        let tasks = &self.tasks;
        self.expected.retain(|&id| now < tasks[id].expected_until);
        let last = self.expected.iter().map(|&id| tasks[id].expected_until);
        let Some(last) = last.max() else {
            return false;
        };
        let since = *self.epoch_wait_since.get_or_insert(now);
        let over = since.saturating_add(Nanos(self.epoch_wait_left_ns));
        let until = over.min(last);
        if now >= until {
            return false;
        }
        self.waits += (since == now) as u64;
        self.wake = Some(until);
        true
    }

    /// The task and direction to serve; `None` if all must wait.
    fn choose(&mut self, now: Nanos) -> Option<(TaskId, usize)> {
        if let Some(task) = self.next_ready(READ) {
            return Some((task, READ));
        }
        if let Some(task) = self.next_ready(WRITE) {
            let held = self.holds_writes(now);
            self.writes_held += held as u64;
            return (!held).then_some((task, WRITE));
        }
        if self.exhausted.iter().all(VecDeque::is_empty) || self.holds_epoch(now) {
            return None;
        }
        self.start_epoch(now);
        let task = self.next_ready(READ);
        task.map(|task| (task, READ))
            .or_else(|| Some((self.next_ready(WRITE)?, WRITE)))
    }

    /// Ends the wait at the epoch's end and deducts its duration.
    fn end_epoch_wait(&mut self, now: Nanos) {
        if let Some(since) = self.epoch_wait_since.take() {
            let waited = now.saturating_sub(since).0;
            self.epoch_wait_left_ns = self.epoch_wait_left_ns.saturating_sub(waited);
        }
    }

    /// Number of epochs until the task that overdrew least has time left.
    fn epochs_until_time_left(&self) -> u64 {
        let waits = |id: &TaskId| self.tasks[*id].fifo.iter().any(|fifo| !fifo.is_empty());
        let waiting = self.exhausted.iter().flatten().filter(|id| waits(id));
        let least = waiting.map(|&id| -self.tasks[id].left_ns).min();
        let overdrawn_ns = least.unwrap_or(0).max(0);
        (overdrawn_ns / self.slice_ns()) as u64 + 1
    }

    fn start_epoch(&mut self, now: Nanos) {
        self.end_epoch_wait(now);
        let epochs = self.epochs_until_time_left();
        self.epoch += epochs;
        self.epochs += epochs;
        self.epoch_wait_left_ns = self.longest_wait(self.slice_ns() as u64);
        for dir in [READ, WRITE] {
            for _ in 0..self.exhausted[dir].len() {
                let Some(id) = self.exhausted[dir].pop_front() else {
                    break;
                };
                self.tasks[id].listed[dir] = false;
                self.refresh(id);
                self.list(id, dir);
            }
        }
    }

    /// Charges the task of a request that has left the drive.
    fn charge(&mut self, ctx: &SchedCtx<'_>, id: RequestId) -> Option<TaskId> {
        let rq = &ctx.rqs[id];
        let (task, beside) = (rq.elv[ELV_TASK].checked_sub(1)?, rq.elv[ELV_STATE]);
        if beside == 0 || beside == QUEUED {
            return None;
        }
        let (task, write) = (task as TaskId, rq.is_write());
        let elapsed = ctx.now.saturating_sub(rq.fifo_time).0.min(1 << 50);
        self.in_flight[write as usize] -= 1;
        self.refresh(task);
        self.change(task, |task| {
            task.in_flight -= 1;
            task.left_ns -= (elapsed / beside as u64) as i64;
            if !write {
                task.read_ns = match task.read_ns {
                    0 => elapsed,
                    mean => mean - mean / 8 + elapsed / 8,
                };
            }
        });
        Some(task)
    }

    /// Expects another read of a task whose last read completed.
    fn expect_read(&mut self, now: Nanos, task: TaskId) {
        let id = task;
        let task = &self.tasks[id];
        if task.is_idle() && task.left_ns > 0 {
            let read = now.saturating_add(Nanos(self.longest_wait(task.read_ns)));
            self.read_expected_until = self.read_expected_until.max(read);
            let until = now.saturating_add(Nanos(self.epoch_wait_left_ns));
            self.tasks[id].expected_until = until;
            if !self.expected.contains(&id) {
                self.expected.push(id);
            }
        }
    }

    /// Removes a queued request. One that is merged during its insertion is in no list yet.
    fn remove(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        if ctx.rqs[id].elv[ELV_STATE] != QUEUED {
            return;
        }
        let task = ctx.rqs[id].elv[ELV_TASK] as usize - 1;
        ctx.rqs[id].elv[ELV_STATE] = 0;
        self.tasks[task].fifo[ctx.rqs[id].is_write() as usize].remove(ctx.rqs, id);
        ctx.merge.remove(ctx.rqs, id);
        self.queued -= 1;
    }

    /// Records the dispatch of a request.
    fn enter_drive(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        let dir = ctx.rqs[id].is_write() as usize;
        let task = ctx.rqs[id].elv[ELV_TASK] as TaskId - 1;
        self.in_flight[dir] += 1;
        self.change(task, |task| task.in_flight += 1);
        let rq = &mut ctx.rqs[id];
        rq.elv[ELV_STATE] = self.in_flight[READ] + self.in_flight[WRITE];
        rq.fifo_time = ctx.now;
        // The next turn belongs to another task.
        self.ready[dir].rotate_left(1);
        self.end_epoch_wait(ctx.now);
    }
}

impl Elevator for Fios {
    fn queue(&self) -> &ElevatorQueue {
        &self.queue
    }

    fn queue_mut(&mut self) -> &mut ElevatorQueue {
        &mut self.queue
    }

    /// Requests merge only within a task, so that each task pays for its own.
    fn allow_merge(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId, bio: &Bio) -> bool {
        ctx.rqs[id].submitter == bio.submitter
    }

    fn requests_merged(&mut self, ctx: &mut SchedCtx<'_>, _id: RequestId, next: RequestId) {
        self.queue.count_merge();
        self.remove(ctx, next);
    }

    fn former_request(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) -> Option<RequestId> {
        let task = ctx.rqs[id].elv[ELV_TASK].checked_sub(1)? as TaskId;
        self.tasks[task].fifo[ctx.rqs[id].is_write() as usize].prev(ctx.rqs, id)
    }

    fn next_request(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) -> Option<RequestId> {
        let task = ctx.rqs[id].elv[ELV_TASK].checked_sub(1)? as TaskId;
        self.tasks[task].fifo[ctx.rqs[id].is_write() as usize].next(ctx.rqs, id)
    }

    #[inline(always)]
    fn add_request(&mut self, ctx: &mut SchedCtx<'_>, _hctx: usize, id: RequestId) {
        let task = self.task(ctx.rqs[id].submitter);
        let dir = ctx.rqs[id].is_write() as usize;
        ctx.rqs[id].elv = [task as u32 + 1, QUEUED];
        self.tasks[task].fifo[dir].push_back(ctx.rqs, id);
        ctx.merge.add(ctx.rqs, id);
        self.queued += 1;
        self.expected.retain(|&expected| expected != task);
        self.list(task, dir);
    }

    fn dispatch_request(&mut self, ctx: &mut SchedCtx<'_>, _hctx: usize) -> Option<RequestId> {
        if let Some(id) = self.queue.pop_head(ctx) {
            return Some(id);
        }
        let (task, dir) = self.choose(ctx.now)?;
        let id = self.tasks[task].fifo[dir].front()?;
        self.remove(ctx, id);
        self.enter_drive(ctx, id);
        self.queue.send(ctx, id)
    }

    fn has_work(&self, _hctx: usize) -> bool {
        !self.queue.head.is_empty() || self.queued > 0
    }

    fn completed_request(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        if let Some(task) = self.charge(ctx, id) {
            ctx.rqs[id].elv[ELV_STATE] = 0;
            if !ctx.rqs[id].is_write() {
                self.expect_read(ctx.now, task);
            }
        }
        if self.queued > 0 {
            self.run_at = Some(ctx.now);
        }
    }

    /// A requeued request is charged for the time that it was in the drive.
    fn requeue_request(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        if self.charge(ctx, id).is_some() {
            ctx.rqs[id].elv[ELV_STATE] = 0;
        }
        self.run_at = Some(ctx.now);
    }

    fn next_timer(&self) -> Option<Nanos> {
        match (self.run_at, self.wake) {
            (Some(run), Some(wake)) => Some(run.min(wake)),
            (run, wake) => run.or(wake),
        }
    }

    fn timer(&mut self, ctx: &mut SchedCtx<'_>) -> bool {
        let run = self.run_at.take_if(|at| *at <= ctx.now).is_some();
        let woken = self.wake.take_if(|at| *at <= ctx.now).is_some();
        run || woken
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.queue.counters([
            ("epochs", self.epochs),
            ("times writes were held", self.writes_held),
            ("times waited for a task", self.waits),
        ])
    }
}

/// Entry in the registry of schedulers.
pub const FIOS: ElevatorType = ElevatorType {
    name: "fios",
    help: "equal time on the drive for each task, in epochs; reads before writes",
    source: "S. Park, K. Shen, FAST 2012",
    tunables: TUNABLES,
    attributes: &[],
    costs: Some(StepCosts {
        merge: 55,
        insert: 74,
        dispatch: 101,
        finish: 49,
    }),
    build: Some(&|info| Box::new(Fios::new(info))),
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounds::{Adversary, Victim, assert_wait};
    use crate::test_queue::{TestQueue, queue_info};
    use blklab_blk::{Op, Sector, SubmitterId};

    fn queue() -> TestQueue {
        TestQueue::new(Box::new(Fios::new(&queue_info())))
    }

    fn bio(task: u32, op: Op, sector: u64) -> Bio {
        Bio {
            submitter: SubmitterId(task),
            ..Bio::new(op, Sector(sector), 8)
        }
    }

    /// Keeps `depth` requests of each task queued for a second, on a drive that serves one at a
    /// time, each for `us` microseconds. Returns the time that each task got.
    fn serve(tasks: &[(Op, usize, u64)]) -> Vec<u64> {
        let mut queue = queue();
        let mut served_us = vec![0; tasks.len()];
        let mut sector = 0;
        let mut add = |queue: &mut TestQueue, task: usize| {
            sector += 1000;
            queue.insert(&bio(task as u32, tasks[task].0, sector));
        };
        for (task, &(_, depth, _)) in tasks.iter().enumerate() {
            (0..depth).for_each(|_| add(&mut queue, task));
        }
        while queue.now < Nanos::from_secs(1) {
            match queue.dispatch() {
                Some(id) => {
                    let task = queue.rq(id).submitter.0 as usize;
                    queue.now += Nanos::from_micros(tasks[task].2);
                    served_us[task] += tasks[task].2;
                    queue.complete(id);
                    add(&mut queue, task);
                }
                None => {
                    queue.now = queue
                        .elevator
                        .next_timer()
                        .expect("something waits")
                        .max(queue.now)
                }
            }
            queue.run_timer();
        }
        served_us
    }

    #[test]
    fn time_is_shared_whatever_a_task_s_requests_take_and_however_many_it_has() {
        let got = serve(&[
            (Op::Read, 1, 100),
            (Op::Read, 32, 100),
            (Op::Write, 8, 1000),
        ]);
        let total: u64 = got.iter().sum();
        for &share in &got {
            assert!(share.abs_diff(total / 3) < total / 15, "{got:?}");
        }
    }

    #[test]
    fn a_task_that_has_come_is_not_waited_for() {
        let alone = serve(&[(Op::Read, 1, 100)]);
        assert!(alone[0] > 990_000, "{alone:?}");
    }

    #[test]
    fn what_is_overdrawn_is_taken_from_as_many_slices_as_it_takes() {
        let mut queue = queue();
        let ids: Vec<_> = (0..4)
            .filter_map(|i| queue.insert(&bio(0, Op::Read, i * 1000)))
            .collect();
        assert_eq!(queue.drain(), ids);
        queue.pass_ms(48);
        ids.iter().for_each(|&id| queue.complete(id));
        // 48 + 24 + 16 + 12 ms are five slices, one of which was its own. Another task's reads take
        // 5 ms each.
        let first = queue.insert(&bio(0, Op::Read, 9000));
        let mut sent = 0;
        loop {
            queue.insert(&bio(1, Op::Read, 20_000 + 1000 * sent));
            let id = queue.dispatch().expect("one of them has time");
            if Some(id) == first {
                break;
            }
            queue.pass_ms(5);
            queue.complete(id);
            sent += 1;
        }
        assert!((16..=20).contains(&sent), "{sent}");
    }

    #[test]
    fn a_write_waits_for_reads_in_the_drive_and_briefly_for_the_next() {
        let mut queue = queue();
        let read = queue.insert(&bio(0, Op::Read, 0)).unwrap();
        let write = queue.insert(&bio(1, Op::Write, 1000)).unwrap();
        assert_eq!(queue.dispatch(), Some(read));
        assert_eq!(queue.dispatch(), None);
        queue.now += Nanos::from_micros(100);
        queue.complete(read);
        assert!(queue.run_timer());
        assert_eq!(queue.dispatch(), None);
        // Alpha is one half: the wait lasts as long as the read took.
        queue.now += Nanos::from_micros(100);
        assert!(queue.run_timer());
        assert_eq!(queue.dispatch(), Some(write));
    }

    /// The paper's bound on anticipation: the wait is the fraction alpha of itself plus the task's
    /// mean read time, that is, `alpha / (1 - alpha)` of that mean.
    #[test]
    fn a_write_waits_for_alpha_of_the_mean_read() {
        for (percent, factor) in [(50, 1), (80, 4), (0, 0)] {
            let mut queue = queue();
            queue.set("anticipation", percent);
            for took_us in [800, 1600] {
                let read = queue.insert(&bio(0, Op::Read, took_us)).unwrap();
                assert_eq!(queue.dispatch(), Some(read));
                queue.now += Nanos::from_micros(took_us);
                queue.complete(read);
                queue.run_timer();
            }
            let write = queue.insert(&bio(1, Op::Write, 1_000_000));
            let waits = queue.dispatch().is_none();
            assert_eq!(waits, factor > 0, "alpha {percent} %");
            if waits {
                // The mean moves an eighth of the way: 800 - 100 + 200 us.
                let wait = Nanos::from_micros(900 * factor);
                assert_eq!(queue.elevator.next_timer(), Some(queue.now + wait));
                queue.now += wait;
                assert!(queue.run_timer());
                assert_eq!(queue.dispatch(), write);
            }
        }
    }

    #[test]
    fn reads_beside_each_other_cost_a_part_of_their_time_each() {
        let mut queue = queue();
        let ids: Vec<_> = (0..4)
            .filter_map(|i| queue.insert(&bio(0, Op::Read, i * 1000)))
            .collect();
        assert_eq!(queue.drain(), ids);
        queue.pass_ms(12);
        ids.iter().for_each(|&id| queue.complete(id));
        // 12 + 6 + 4 + 3 ms exceed the slice of 20 ms.
        queue.insert(&bio(0, Op::Read, 9000));
        queue.insert(&bio(1, Op::Read, 10_000));
        assert_eq!(queue.drain_sectors(), [10_000]);
    }

    #[test]
    fn waiting_for_a_thinking_task_costs_no_more_than_alpha() {
        let mut queue = queue();
        let mut busy_us = 0;
        let mut sector = 0;
        let mut add = |queue: &mut TestQueue, task| {
            sector += 1000;
            queue.insert(&bio(task, Op::Read, sector));
        };
        (0..8).for_each(|_| add(&mut queue, 1));
        let mut thinks_until = Some(Nanos::ZERO);
        while queue.now < Nanos::from_secs(2) {
            if thinks_until.is_some_and(|at| at <= queue.now) {
                thinks_until = None;
                add(&mut queue, 0);
            }
            let Some(id) = queue.dispatch() else {
                queue.now += Nanos::from_micros(100);
                queue.run_timer();
                continue;
            };
            queue.now += Nanos::from_micros(100);
            busy_us += 100;
            let task = queue.rq(id).submitter.0;
            queue.complete(id);
            match task {
                0 => thinks_until = Some(queue.now + Nanos::from_millis(10)),
                _ => add(&mut queue, 1),
            }
        }
        assert!(busy_us >= 950_000, "{busy_us}");
    }

    #[test]
    fn waits_are_bounded() {
        // The time of the two others in an epoch, and what they overdraw.
        assert_wait(&FIOS, &[], Victim::AsyncWrite, Adversary::Reads, 2 * 20 + 2);
    }

    /// A task that has used up its slice exactly does not come back in this epoch, nor does one
    /// without requests in the drive.
    #[test]
    fn a_task_comes_back_with_time_left() {
        for (in_flight, left_ns, comes_back) in
            [(1, 1, true), (1, 0, false), (1, -1, false), (0, 1, false)]
        {
            let task = Task {
                in_flight,
                left_ns,
                ..Task::default()
            };
            assert_eq!(task.may_come_back(), comes_back, "{in_flight} {left_ns}");
        }
    }
}
