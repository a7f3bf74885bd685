//! mq-deadline, as Linux 6.12 has it (`block/mq-deadline.c`).
//!
//! The requests of each priority class and direction are in two lists: sorted by sector, and in
//! order of arrival. Dispatch follows the sorted list in batches of one direction; a batch starts
//! at a request whose deadline has passed, if there is one. Reads go before writes until writes
//! have been passed over `writes_starved` times. A lower class is served only while no request of a
//! higher one is queued or in flight, or when its head has waited longer than `prio_aging_expire`.
//!
//! Time is in jiffies of 4 ms (HZ=250, as in Debian's kernel): deadlines are compared with the
//! tick, not with the exact time, and the decisions depend on that.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::ops::RangeInclusive;

use blklab_blk::{
    Bio, BioFlags, Elevator, ElevatorQueue, InsertAt, IoClass, MergeKind, Nanos, Op, QueueInfo,
    RequestId, Requests, RqFlags, RqList, SchedCtx, Sector, SortList, Tunable, TunableError, Unit,
    debug_request, debug_requests, elv_bio_merge_ok, jiffies, msecs_to_jiffies, op_is_sync,
    sched_try_insert_merge,
};

use crate::deadline::{
    DECLARED, FIFO_BATCH, FRONT_MERGES, READ_EXPIRE, WRITE_EXPIRE, WRITES_STARVED, next_direction,
};
use crate::{ElevatorType, StepCosts};

const ASYNC_DEPTH: usize = 5;
const PRIO_AGING_EXPIRE: usize = 6;

/// The tunables, with the order, names and units of sysfs.
pub const TUNABLES: &[Tunable] = &[
    DECLARED[READ_EXPIRE],
    DECLARED[WRITE_EXPIRE],
    DECLARED[WRITES_STARVED],
    DECLARED[FIFO_BATCH],
    DECLARED[FRONT_MERGES],
    Tunable {
        name: "async_depth",
        unit: Unit::Count,
        min: 1,
        max: i32::MAX as i64,
        default: 0,
        help: "tags that writes and asynchronous reads may use; nr_requests unless set",
    },
    Tunable {
        name: "prio_aging_expire",
        unit: Unit::Milliseconds,
        min: 0,
        max: i32::MAX as i64,
        default: 10_000,
        help: "how long a lower priority class waits at most",
    },
];

/// Number of classes: real time, best effort, idle.
const CLASSES: usize = 3;

fn class_of(class: IoClass) -> usize {
    match class {
        IoClass::Rt => 0,
        IoClass::None | IoClass::Be => 1,
        IoClass::Idle => 2,
    }
}

/// A number of each class, as debugfs shows them.
fn by_class(classes: &[PerPrio; CLASSES], number: impl Fn(&PerPrio) -> u64) -> String {
    let numbers: Vec<String> = classes.iter().map(|c| number(c).to_string()).collect();
    numbers.join(" ")
}

/// `elv[0]` of an inserted request: its class plus one; zero if it was never inserted.
const ELV_CLASS: usize = 0;

#[derive(Default)]
struct PerPrio {
    sorted: [SortList; 2],
    fifo: [RqList; 2],
    /// First sector of the last request of each direction.
    latest_pos: [u64; 2],
    inserted: u64,
    merged: u64,
    dispatched: u64,
    completed: u64,
}

/// The scheduler's state.
pub struct MqDeadline {
    queue: ElevatorQueue,
    /// `read_expire` and `write_expire` in jiffies.
    expire: [i64; 2],
    classes: [PerPrio; CLASSES],
    last_dir: usize,
    batching: i64,
    starved: u32,
    batches: u64,
    switches: u64,
    expired: u64,
    aged: u64,
}

impl MqDeadline {
    /// Returns a scheduler without requests and with default tunables.
    pub fn new(info: &QueueInfo) -> MqDeadline {
        let mut new = MqDeadline {
            queue: MQ_DEADLINE.queue(),
            expire: [0; 2],
            classes: Default::default(),
            last_dir: 1,
            batching: 0,
            starved: 0,
            batches: 0,
            switches: 0,
            expired: 0,
            aged: 0,
        };
        new.depth_updated(info);
        new.update_expire();
        new
    }

    fn update_expire(&mut self) {
        let jiffies = |tunable| msecs_to_jiffies(self.queue.tunables.at(tunable));
        self.expire = [READ_EXPIRE, WRITE_EXPIRE].map(jiffies);
    }

    /// Number of a class's requests that are queued or in the drive.
    fn queued(&self, class: usize) -> u64 {
        let c = &self.classes[class];
        c.inserted - c.completed
    }

    fn class_of_rq(&self, ctx: &SchedCtx<'_>, id: RequestId) -> usize {
        class_of(ctx.rqs[id].prio.class)
    }

    /// Removes a request of a class from all lists.
    #[inline(always)]
    fn remove(&mut self, ctx: &mut SchedCtx<'_>, class: usize, id: RequestId) {
        let rq = &ctx.rqs[id];
        // A request that is merged during its insertion is in no list yet.
        if rq.is_sorted() {
            let (c, dir) = (&mut self.classes[class], rq.is_write() as usize);
            c.fifo[dir].remove(ctx.rqs, id);
            c.sorted[dir].remove(ctx.rqs, id);
        }
        ctx.merge.remove(ctx.rqs, id);
    }

    /// Records a request as the last one dispatched in its class.
    fn start(&mut self, ctx: &mut SchedCtx<'_>, class: usize, id: RequestId) {
        let (c, rq) = (&mut self.classes[class], &mut ctx.rqs[id]);
        c.latest_pos[rq.is_write() as usize] = rq.sector.0;
        c.dispatched += 1;
        rq.rq_flags.set(RqFlags::STARTED);
    }

    /// The direction of the next batch; `None` if the class is empty. Counts how often writes were
    /// passed over, even if no batch follows.
    fn choose_direction(&mut self, class: usize) -> Option<usize> {
        let fifo = &self.classes[class].fifo;
        let queued = [0, 1].map(|direction: usize| !fifo[direction].is_empty());
        let limit = self.queue.tunables.at(WRITES_STARVED);
        next_direction(queued, &mut self.starved, limit)
    }

    /// The request that starts a batch: the oldest if its deadline has passed or there is none
    /// ahead, otherwise the next one ahead.
    fn batch_start(&mut self, ctx: &SchedCtx<'_>, class: usize, dir: usize) -> Option<RequestId> {
        let c = &self.classes[class];
        let oldest = c.fifo[dir].front()?;
        if ctx.rqs[oldest].fifo_time.0 as i64 <= jiffies(ctx.now) {
            self.expired += 1;
            return Some(oldest);
        }
        let ahead = c.sorted[dir].from_sector(Sector(c.latest_pos[dir]));
        Some(ahead.unwrap_or(oldest))
    }

    /// Dispatches the best request of a class that was inserted no later than `latest_start`, in
    /// jiffies.
    #[inline(always)]
    fn dispatch_class(
        &mut self,
        ctx: &mut SchedCtx<'_>,
        class: usize,
        latest_start: i64,
    ) -> Option<RequestId> {
        let c = &self.classes[class];
        if c.fifo.iter().all(RqList::is_empty) {
            return None;
        }
        let pos = Sector(c.latest_pos[self.last_dir]);
        let ahead = c.sorted[self.last_dir].from_sector(pos);
        let id = match ahead {
            Some(id) if self.batching < self.queue.tunables.at(FIFO_BATCH) => id,
            _ => {
                let dir = self.choose_direction(class)?;
                let id = self.batch_start(ctx, class, dir)?;
                self.batches += 1;
                self.switches += (dir != self.last_dir) as u64;
                self.last_dir = dir;
                self.batching = 0;
                id
            }
        };
        let rq = &ctx.rqs[id];
        let started = rq.fifo_time.0 as i64 - self.expire[rq.is_write() as usize];
        if started > latest_start {
            return None;
        }
        self.batching += 1;
        self.remove(ctx, class, id);
        self.start(ctx, class, id);
        Some(id)
    }

    /// Dispatches a request of a lower class that has waited too long.
    #[cold]
    fn dispatch_aged(&mut self, ctx: &mut SchedCtx<'_>) -> Option<RequestId> {
        let aging = msecs_to_jiffies(self.queue.tunables.at(PRIO_AGING_EXPIRE));
        let latest_start = jiffies(ctx.now) - aging;
        let id = (1..CLASSES).find_map(|class| self.dispatch_class(ctx, class, latest_start))?;
        self.aged += 1;
        Some(id)
    }
}

impl Elevator for MqDeadline {
    fn queue(&self) -> &ElevatorQueue {
        &self.queue
    }

    fn queue_mut(&mut self) -> &mut ElevatorQueue {
        &mut self.queue
    }

    /// A new `nr_requests` sets `async_depth` to the same value. In the recorded runs `async_depth`
    /// kept its old value when `nr_requests` was written, and had the new value on a queue being
    /// set up.
    fn depth_updated(&mut self, info: &QueueInfo) {
        let depth = info.nr_requests.max(1) as i64;
        // The value is always in range.
        let _ = self.queue.tunables.set("async_depth", depth);
    }

    fn limit_depth(&mut self, op: Op, flags: BioFlags) -> Option<u32> {
        let sync_read = !op.is_write() && op_is_sync(op, flags);
        (!sync_read).then(|| self.queue.tunables.at(ASYNC_DEPTH) as u32)
    }

    fn min_shallow_depth(&self) -> Option<u32> {
        Some(1)
    }

    fn request_merge(
        &mut self,
        ctx: &mut SchedCtx<'_>,
        bio: &Bio,
    ) -> Option<(RequestId, MergeKind)> {
        if self.queue.tunables.at(FRONT_MERGES) == 0 {
            return None;
        }
        let sorted = &self.classes[class_of(bio.prio.class)].sorted[bio.op.is_write() as usize];
        let id = sorted.find(bio.end())?;
        elv_bio_merge_ok(self, ctx, id, bio).then_some((id, MergeKind::Front))
    }

    fn request_merged(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId, kind: MergeKind) {
        if kind == MergeKind::Front && ctx.rqs[id].is_sorted() {
            let (class, dir) = (self.class_of_rq(ctx, id), ctx.rqs[id].is_write() as usize);
            let sorted = &mut self.classes[class].sorted[dir];
            sorted.remove(ctx.rqs, id);
            sorted.insert(ctx.rqs, id);
        }
    }

    /// The remaining request takes over an earlier deadline and its place.
    fn requests_merged(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId, next: RequestId) {
        let class = self.class_of_rq(ctx, next);
        self.classes[class].merged += 1;
        if ctx.rqs[id].is_sorted() && ctx.rqs[next].is_sorted() {
            let dir = ctx.rqs[id].is_write() as usize;
            self.classes[class].fifo[dir].inherit_deadline(ctx.rqs, id, next);
        }
        self.remove(ctx, class, next);
    }

    fn former_request(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) -> Option<RequestId> {
        let (class, dir) = (self.class_of_rq(ctx, id), ctx.rqs[id].is_write() as usize);
        self.classes[class].sorted[dir].prev(ctx.rqs, id)
    }

    fn next_request(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) -> Option<RequestId> {
        let (class, dir) = (self.class_of_rq(ctx, id), ctx.rqs[id].is_write() as usize);
        self.classes[class].sorted[dir].next(ctx.rqs, id)
    }

    fn prepare_request(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        ctx.rqs[id].elv[ELV_CLASS] = 0;
    }

    #[inline(always)]
    fn insert_request(&mut self, ctx: &mut SchedCtx<'_>, hctx: usize, id: RequestId, at: InsertAt) {
        let rq = &mut ctx.rqs[id];
        let class = class_of(rq.prio.class);
        let was_inserted = core::mem::replace(&mut rq.elv[ELV_CLASS], class as u32 + 1) != 0;
        self.classes[class].inserted += !was_inserted as u64;
        if sched_try_insert_merge(self, ctx, id) {
            return;
        }
        ctx.trace_insert(id);
        match at {
            InsertAt::Head => {
                ctx.rqs[id].fifo_time = Nanos(jiffies(ctx.now) as u64);
                self.queue.head.push_front(ctx.rqs, id);
            }
            InsertAt::Tail => self.add_request(ctx, hctx, id),
        }
    }

    #[inline(always)]
    fn add_request(&mut self, ctx: &mut SchedCtx<'_>, _hctx: usize, id: RequestId) {
        let rq = &mut ctx.rqs[id];
        let dir = rq.is_write() as usize;
        rq.fifo_time = Nanos((jiffies(ctx.now) + self.expire[dir]) as u64);
        let c = &mut self.classes[class_of(rq.prio.class)];
        c.sorted[dir].insert(ctx.rqs, id);
        ctx.merge.add(ctx.rqs, id);
        c.fifo[dir].push_back(ctx.rqs, id);
    }

    fn dispatch_request(&mut self, ctx: &mut SchedCtx<'_>, _hctx: usize) -> Option<RequestId> {
        if let Some(id) = self.queue.head.pop_front(ctx.rqs) {
            self.start(ctx, self.class_of_rq(ctx, id), id);
            return Some(id);
        }
        let busy = (0..CLASSES).filter(|&c| self.queued(c) > 0).count();
        if busy > 1
            && let Some(id) = self.dispatch_aged(ctx)
        {
            return Some(id);
        }
        // A lower class also waits for requests of this class in the drive.
        let class = (0..CLASSES).find(|&class| self.queued(class) > 0)?;
        self.dispatch_class(ctx, class, jiffies(ctx.now))
    }

    fn has_work(&self, _hctx: usize) -> bool {
        !self.queue.head.is_empty()
            || self
                .classes
                .iter()
                .any(|c| c.fifo.iter().any(|fifo| !fifo.is_empty()))
    }

    /// A completion only counts.
    fn ends_can_wait(&self) -> bool {
        true
    }

    fn finish_request(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        // Zero: it was never inserted, like a flush without data.
        if let Some(class) = ctx.rqs[id].elv[ELV_CLASS].checked_sub(1) {
            self.classes[class as usize].completed += 1;
        }
    }

    /// The kernel clamps what `kstrtoint` reads (`STORE_FUNCTION`).
    fn sysfs_clamps(&self) -> Option<RangeInclusive<i64>> {
        Some(i32::MIN.into()..=i32::MAX.into())
    }

    fn set_tunable(&mut self, name: &str, value: i64) -> Result<(), TunableError> {
        self.queue.tunables.set(name, value)?;
        self.update_expire();
        Ok(())
    }

    fn debug_state(&self) -> Vec<(&'static str, i64)> {
        vec![
            ("last_dir", self.last_dir as i64),
            ("batching", self.batching),
            ("starved", i64::from(self.starved)),
        ]
    }

    fn debug_files(&self, rqs: &Requests, hctx: Option<usize>) -> Vec<(String, String)> {
        if hctx.is_some() {
            return Vec::new();
        }
        let head = debug_requests(rqs, &self.queue.head);
        let mut files = vec![
            ("dispatch".to_string(), head),
            ("batching".to_string(), self.batching.to_string()),
            ("starved".to_string(), self.starved.to_string()),
            (
                "async_depth".to_string(),
                self.queue.tunables.at(ASYNC_DEPTH).to_string(),
            ),
            (
                "owned_by_driver".to_string(),
                by_class(&self.classes, |c| {
                    (c.dispatched + c.merged).saturating_sub(c.completed)
                }),
            ),
            (
                "queued".to_string(),
                by_class(&self.classes, |c| c.inserted - c.completed),
            ),
        ];
        for (class, c) in self.classes.iter().enumerate() {
            for (dir, name) in ["read", "write"].into_iter().enumerate() {
                let queued = debug_requests(rqs, &c.fifo[dir]);
                let next = c.sorted[dir].from_sector(Sector(c.latest_pos[dir]));
                let next = next.map_or_else(String::new, |id| debug_request(&rqs[id]));
                files.push((format!("{name}{class}_fifo_list"), queued));
                files.push((format!("{name}{class}_next_rq"), next));
            }
        }
        files
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let sum = |f: fn(&PerPrio) -> u64| self.classes.iter().map(f).sum();
        vec![
            ("batches", self.batches),
            ("direction switches", self.switches),
            ("expired deadlines", self.expired),
            ("requests merged", sum(|c| c.merged)),
            ("dispatched", sum(|c| c.dispatched)),
            ("aged out of priority", self.aged),
        ]
    }
}

/// Entry in the registry of schedulers.
pub const MQ_DEADLINE: ElevatorType = ElevatorType {
    name: "mq-deadline",
    help: "sorted batches with a deadline a request, three priority classes",
    source: "Linux 6.12, block/mq-deadline.c",
    tunables: TUNABLES,
    attributes: &[],
    costs: Some(StepCosts::OF_MQ_DEADLINE),
    build: Some(&|info| Box::new(MqDeadline::new(info))),
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounds::{Adversary, SOON, SOON_MS, Victim, assert_wait};
    use crate::test_queue::{TestQueue, queue_info};
    use blklab_blk::IoPrio;

    fn queue() -> TestQueue {
        TestQueue::new(Box::new(MqDeadline::new(&queue_info())))
    }

    fn bio(op: Op, sector: u64) -> Bio {
        Bio::new(op, Sector(sector), 8)
    }

    fn with_class(op: Op, sector: u64, class: IoClass) -> Bio {
        let prio = IoPrio { class, level: 0 };
        Bio {
            prio,
            ..bio(op, sector)
        }
    }

    /// A file of debugfs' `sched`.
    fn shown(queue: &mut TestQueue, name: &str) -> String {
        let files = queue.with(|elevator, ctx| elevator.debug_files(ctx.rqs, None));
        let found = files.into_iter().find(|(known, _)| known == name);
        found.map_or_else(|| panic!("no {name}"), |(_, value)| value)
    }

    #[test]
    fn debugfs_shows_who_waits_and_who_is_with_the_driver() {
        let mut queue = queue();
        for sector in [800, 100] {
            queue.insert(&bio(Op::Read, sector));
        }
        queue.insert(&with_class(Op::Write, 5, IoClass::Idle));
        assert_eq!(shown(&mut queue, "queued"), "0 2 1");
        assert_eq!(shown(&mut queue, "dispatch"), "");
        assert_eq!(shown(&mut queue, "owned_by_driver"), "0 0 0");
        let waiting = shown(&mut queue, "read1_fifo_list");
        assert_eq!(waiting.lines().count(), 2, "{waiting}");
        assert!(waiting.contains("{.op=READ, "), "{waiting}");
        assert!(shown(&mut queue, "write2_fifo_list").contains("{.op=WRITE, "));
        let first = queue.dispatch().expect("a read");
        assert_eq!(queue.rq(first).sector, Sector(100));
        assert_eq!(shown(&mut queue, "owned_by_driver"), "0 1 0");
        // The older one is ahead of it.
        let waiting = shown(&mut queue, "read1_fifo_list");
        assert_eq!(waiting.lines().count(), 1, "{waiting}");
        assert_eq!(shown(&mut queue, "read1_next_rq"), waiting);
        assert_eq!(shown(&mut queue, "batching"), "1");
        queue.complete(first);
        assert_eq!(shown(&mut queue, "queued"), "0 1 1");
    }

    #[test]
    fn batches_that_change_direction_are_counted() {
        let mut queue = queue();
        queue.set("fifo_batch", 1);
        for n in 0..3 {
            queue.insert(&bio(Op::Read, 1_000 * n));
            queue.insert(&bio(Op::Write, 1_000 * n + 100_000));
        }
        let ids = queue.drain();
        let directions: Vec<bool> = ids.iter().map(|id| queue.rq(*id).is_write()).collect();
        let changes = directions
            .windows(2)
            .filter(|pair| pair[0] != pair[1])
            .count();
        assert_eq!(queue.count("direction switches"), changes as u64);
    }

    #[test]
    fn a_batch_is_fifo_batch_long_and_goes_up() {
        let mut queue = queue();
        queue.set("fifo_batch", 4);
        for sector in [900, 100, 700, 300, 500] {
            queue.insert(&bio(Op::Read, sector));
        }
        // It starts at the oldest. The deadlines of the others pass by the end of the batch, but
        // not before.
        queue.pass_ms(600);
        for sector in [910, 920, 930, 940, 950] {
            queue.insert(&bio(Op::Read, sector));
        }
        let expected = [900, 910, 920, 930, 100, 300, 500, 700, 940, 950];
        assert_eq!(queue.drain_sectors(), expected);
        assert_eq!(queue.count("batches"), 3);
    }

    #[test]
    fn writes_wait_for_no_more_than_writes_starved_batches_of_reads() {
        let mut queue = queue();
        queue.set("fifo_batch", 1);
        queue.insert(&bio(Op::Read, 50));
        queue.dispatch();
        queue.insert(&bio(Op::Write, 1));
        for sector in 10..20 {
            queue.insert(&bio(Op::Read, sector * 100));
        }
        let place = |sectors: Vec<u64>| sectors.iter().position(|&s| s == 1);
        assert_eq!(place(queue.drain_sectors()), Some(2));
    }

    #[test]
    fn writes_wait_for_all_reads_if_writes_starved_is_negative() {
        let mut queue = queue();
        queue.set("fifo_batch", 1);
        queue.set("writes_starved", -1);
        queue.insert(&bio(Op::Read, 50));
        queue.dispatch();
        queue.insert(&bio(Op::Write, 1));
        for sector in 10..20 {
            queue.insert(&bio(Op::Read, sector * 100));
        }
        assert_eq!(queue.drain_sectors().last(), Some(&1));
    }

    #[test]
    fn a_request_past_its_deadline_begins_the_next_batch() {
        let mut queue = queue();
        queue.set("fifo_batch", 1);
        queue.insert(&bio(Op::Read, 100));
        queue.dispatch();
        queue.insert(&bio(Op::Read, 5));
        queue.pass_ms(501);
        for sector in [200, 300, 400] {
            queue.insert(&bio(Op::Read, sector));
        }
        assert_eq!(queue.drain_sectors()[0], 5);
    }

    #[test]
    fn idle_waits_for_the_other_classes_but_no_longer_than_prio_aging_expire() {
        let mut queue = queue();
        queue.insert(&with_class(Op::Read, 5, IoClass::Idle));
        let first = queue
            .insert(&with_class(Op::Read, 100, IoClass::Rt))
            .unwrap();
        assert_eq!(queue.dispatch(), Some(first));
        queue.pass_ms(10_001);
        queue.insert(&bio(Op::Read, 200));
        // The best-effort request is not that old, and waits for the real-time request in the
        // drive.
        assert_eq!(queue.drain_sectors(), [5]);
        assert_eq!(queue.count("aged out of priority"), 1);
    }

    #[test]
    fn waits_are_bounded() {
        // The current batch and writes_starved others.
        assert_wait(
            &MQ_DEADLINE,
            &[],
            Victim::AsyncWrite,
            Adversary::Reads,
            3 * 16,
        );
        // The deadline and a batch, among others that are nearer.
        assert_wait(
            &MQ_DEADLINE,
            &[("read_expire", SOON_MS)],
            Victim::Read,
            Adversary::Reads,
            SOON + 16,
        );
        assert_wait(
            &MQ_DEADLINE,
            &[("write_expire", SOON_MS)],
            Victim::AsyncWrite,
            Adversary::SyncWrites,
            SOON + 16,
        );
        assert_wait(
            &MQ_DEADLINE,
            &[("prio_aging_expire", SOON_MS)],
            Victim::IdleRead,
            Adversary::Reads,
            SOON + 16,
        );
    }

    #[test]
    fn a_survivor_takes_over_the_earlier_deadline_and_its_place() {
        let mut queue = queue();
        let next = queue.insert(&bio(Op::Read, 10_016)).unwrap();
        queue.pass_ms(100);
        queue.insert(&bio(Op::Read, 100));
        let survivor = queue.insert(&bio(Op::Read, 10_000)).unwrap();
        let merged = queue.fill_hole(survivor, next, MergeKind::Back);
        assert_eq!(merged, Some(survivor));
        assert_eq!(queue.merged_away(), [next]);
        queue.pass_ms(450);
        // Neither its own deadline nor that of the request ahead has passed.
        assert_eq!(queue.dispatch(), Some(survivor));
    }
}
