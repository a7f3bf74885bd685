//! deadline, the single-queue scheduler of Linux 4.x
//! (`block/deadline-iosched.c`).
//!
//! Each direction has its requests in two lists: sorted by sector, and in order of arrival. After a
//! dispatch the next request in sort order is remembered; a batch follows these links for
//! `fifo_batch` requests. Between batches reads are preferred until they have passed over writes
//! `writes_starved` times. A batch starts with the oldest request if its deadline has passed or
//! there is no link in its direction.
//!
//! Differences from mq-deadline: there are no priority classes and no ageing, asynchronous requests
//! may use all tags, and a batch continues from a link to a request rather than from a sector. So a
//! request that arrives between the last one and the link waits for the next pass, a switch of
//! direction always starts at the oldest request, and an interrupted batch of writes is not
//! continued after reads.
//!
//! The kernel's function moves one request at a time to the queue from which the driver takes, and
//! is called when that queue is empty; this corresponds to one call here.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::RangeInclusive;

use blklab_blk::{
    Bio, Elevator, ElevatorQueue, MergeKind, Nanos, QueueInfo, RequestId, RqList, SchedCtx,
    SortList, Tunable, Unit, elv_bio_merge_ok, jiffies, msecs_to_jiffies,
};

use crate::{ElevatorType, StepCosts};

pub(crate) const READ_EXPIRE: usize = 0;
pub(crate) const WRITE_EXPIRE: usize = 1;
pub(crate) const WRITES_STARVED: usize = 2;
pub(crate) const FIFO_BATCH: usize = 3;
pub(crate) const FRONT_MERGES: usize = 4;

/// The tunables, with the order, names and units of sysfs; mq-deadline has these and more.
pub(crate) const DECLARED: [Tunable; 5] = [
    Tunable {
        name: "read_expire",
        unit: Unit::Milliseconds,
        min: 0,
        max: i32::MAX as i64,
        default: 500,
        help: "a read's deadline",
    },
    Tunable {
        name: "write_expire",
        unit: Unit::Milliseconds,
        min: 0,
        max: i32::MAX as i64,
        default: 5000,
        help: "a write's deadline",
    },
    Tunable {
        name: "writes_starved",
        unit: Unit::Count,
        min: i32::MIN as i64,
        max: i32::MAX as i64,
        default: 2,
        help: "batches of reads that may pass writes over; a negative number is without limit",
    },
    Tunable {
        name: "fifo_batch",
        unit: Unit::Count,
        min: 0,
        max: i32::MAX as i64,
        default: 16,
        help: "requests of a batch",
    },
    Tunable {
        name: "front_merges",
        unit: Unit::Bool,
        min: 0,
        max: 1,
        default: 1,
        help: "look for requests that a bio goes in front of",
    },
];
/// The tunables.
pub const TUNABLES: &[Tunable] = &DECLARED;

const READ: usize = 0;
const WRITE: usize = 1;

/// The scheduler's state.
pub struct Deadline {
    queue: ElevatorQueue,
    sorted: [SortList; 2],
    fifo: [RqList; 2],
    /// The request after the last dispatched one, only in its direction.
    next_rq: [Option<RequestId>; 2],
    batching: i64,
    starved: u32,
    batches: u64,
    expired: u64,
}

/// The direction of the next batch, of those in which requests are queued. Counts how often in a
/// row writes were passed over, which they are `writes_starved` times.
#[inline]
pub(crate) fn next_direction(
    [reads, writes]: [bool; 2],
    starved: &mut u32,
    writes_starved: i64,
) -> Option<usize> {
    if reads && writes {
        let passed_over = *starved;
        *starved = starved.wrapping_add(1);
        // The kernel's comparison is unsigned, so a negative limit is never reached.
        if passed_over < writes_starved as u32 {
            return Some(READ);
        }
    } else if reads {
        return Some(READ);
    } else if !writes {
        return None;
    }
    *starved = 0;
    Some(WRITE)
}

impl Deadline {
    /// Returns a scheduler without requests and with default tunables.
    pub fn new(_info: &QueueInfo) -> Deadline {
        Deadline {
            queue: DEADLINE.queue(),
            sorted: Default::default(),
            fifo: Default::default(),
            next_rq: [None; 2],
            batching: 0,
            starved: 0,
            batches: 0,
            expired: 0,
        }
    }

    /// Whether the oldest request of a direction is late.
    fn oldest_is_late(&self, ctx: &SchedCtx<'_>, oldest: RequestId) -> bool {
        ctx.rqs[oldest].fifo_time.0 as i64 <= jiffies(ctx.now)
    }

    /// The direction of the next batch; `None` if nothing is queued.
    fn choose_direction(&mut self) -> Option<usize> {
        let queued = [READ, WRITE].map(|direction| !self.fifo[direction].is_empty());
        let limit = self.queue.tunables.at(WRITES_STARVED);
        next_direction(queued, &mut self.starved, limit)
    }

    /// The request that starts a batch.
    fn start_batch(&mut self, ctx: &SchedCtx<'_>) -> Option<RequestId> {
        let dir = self.choose_direction()?;
        let oldest = self.fifo[dir].front()?;
        let late = self.oldest_is_late(ctx, oldest);
        self.expired += late as u64;
        self.batches += 1;
        self.batching = 0;
        match self.next_rq[dir] {
            Some(ahead) if !late => Some(ahead),
            _ => Some(oldest),
        }
    }

    /// Chooses the next request to dispatch.
    fn choose(&mut self, ctx: &SchedCtx<'_>) -> Option<RequestId> {
        let ahead = self.next_rq[WRITE].or(self.next_rq[READ]);
        let id = match ahead {
            Some(id) if self.batching < self.queue.tunables.at(FIFO_BATCH) => id,
            _ => self.start_batch(ctx)?,
        };
        self.batching += 1;
        let dir = ctx.rqs[id].is_write() as usize;
        self.next_rq = [None; 2];
        self.next_rq[dir] = Some(id);
        Some(id)
    }

    /// Removes a request from all lists; a link to it moves to the next request.
    fn remove(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        let dir = ctx.rqs[id].is_write() as usize;
        // A request that is merged during its insertion is in no list yet.
        if ctx.rqs[id].is_sorted() {
            let behind = self.sorted[dir].remove(ctx.rqs, id);
            if self.next_rq[dir] == Some(id) {
                self.next_rq[dir] = behind;
            }
            self.fifo[dir].remove(ctx.rqs, id);
        }
        ctx.merge.remove(ctx.rqs, id);
    }
}

impl Elevator for Deadline {
    fn queue(&self) -> &ElevatorQueue {
        &self.queue
    }

    fn queue_mut(&mut self) -> &mut ElevatorQueue {
        &mut self.queue
    }

    fn disables_wbt(&self) -> bool {
        true
    }

    fn request_merge(
        &mut self,
        ctx: &mut SchedCtx<'_>,
        bio: &Bio,
    ) -> Option<(RequestId, MergeKind)> {
        if self.queue.tunables.at(FRONT_MERGES) == 0 {
            return None;
        }
        let id = self.sorted[bio.op.is_write() as usize].find(bio.end())?;
        elv_bio_merge_ok(self, ctx, id, bio).then_some((id, MergeKind::Front))
    }

    fn request_merged(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId, kind: MergeKind) {
        if kind == MergeKind::Front && ctx.rqs[id].is_sorted() {
            let sorted = &mut self.sorted[ctx.rqs[id].is_write() as usize];
            sorted.remove(ctx.rqs, id);
            sorted.insert(ctx.rqs, id);
        }
    }

    /// The remaining request takes over an earlier deadline and its place.
    fn requests_merged(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId, next: RequestId) {
        self.queue.count_merge();
        if ctx.rqs[id].is_sorted() && ctx.rqs[next].is_sorted() {
            let dir = ctx.rqs[id].is_write() as usize;
            self.fifo[dir].inherit_deadline(ctx.rqs, id, next);
        }
        self.remove(ctx, next);
    }

    fn former_request(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) -> Option<RequestId> {
        self.sorted[ctx.rqs[id].is_write() as usize].prev(ctx.rqs, id)
    }

    fn next_request(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) -> Option<RequestId> {
        self.sorted[ctx.rqs[id].is_write() as usize].next(ctx.rqs, id)
    }

    #[inline(always)]
    fn add_request(&mut self, ctx: &mut SchedCtx<'_>, _hctx: usize, id: RequestId) {
        let dir = ctx.rqs[id].is_write() as usize;
        let expire = msecs_to_jiffies(self.queue.tunables.at([READ_EXPIRE, WRITE_EXPIRE][dir]));
        ctx.rqs[id].fifo_time = Nanos((jiffies(ctx.now) + expire) as u64);
        self.sorted[dir].insert(ctx.rqs, id);
        self.fifo[dir].push_back(ctx.rqs, id);
        ctx.merge.add(ctx.rqs, id);
    }

    fn dispatch_request(&mut self, ctx: &mut SchedCtx<'_>, _hctx: usize) -> Option<RequestId> {
        if let Some(id) = self.queue.pop_head(ctx) {
            return Some(id);
        }
        let id = self.choose(ctx)?;
        self.remove(ctx, id);
        self.queue.send(ctx, id)
    }

    fn has_work(&self, _hctx: usize) -> bool {
        !self.queue.head.is_empty() || self.fifo.iter().any(|fifo| !fifo.is_empty())
    }

    /// Nothing happens at an end.
    fn ends_can_wait(&self) -> bool {
        true
    }

    /// Values are clamped (`STORE_FUNCTION`).
    fn sysfs_clamps(&self) -> Option<RangeInclusive<i64>> {
        Some(i64::MIN..=i64::MAX)
    }

    fn debug_state(&self) -> Vec<(&'static str, i64)> {
        vec![
            ("batching", self.batching),
            ("starved", i64::from(self.starved)),
        ]
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.queue.counters([
            ("batches", self.batches),
            ("expired deadlines", self.expired),
        ])
    }
}

/// Entry in the registry of schedulers.
pub const DEADLINE: ElevatorType = ElevatorType {
    name: "deadline",
    help: "sorted batches with a deadline a request, one queue",
    source: "Linux 4.x, block/deadline-iosched.c",
    tunables: TUNABLES,
    attributes: &[],
    costs: Some(StepCosts {
        merge: 90,
        insert: 98,
        dispatch: 103,
        finish: 0,
    }),
    build: Some(&|info| Box::new(Deadline::new(info))),
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounds::{Adversary, SOON, SOON_MS, Victim, assert_wait};
    use crate::test_queue::{TestQueue, queue_info};
    use blklab_blk::{Op, Sector};

    fn queue() -> TestQueue {
        TestQueue::new(Box::new(Deadline::new(&queue_info())))
    }

    fn add(queue: &mut TestQueue, op: Op, sector: u64) -> RequestId {
        queue
            .insert(&Bio::new(op, Sector(sector), 8))
            .expect("nothing to merge with")
    }

    #[test]
    fn starts_at_the_oldest_and_goes_up() {
        let mut queue = queue();
        for sector in [300, 100, 500, 400] {
            add(&mut queue, Op::Read, sector);
        }
        assert_eq!(queue.drain_sectors(), [300, 400, 500, 100]);
    }

    #[test]
    fn a_request_between_here_and_the_link_waits_for_the_next_pass() {
        let mut queue = queue();
        add(&mut queue, Op::Read, 100);
        add(&mut queue, Op::Read, 500);
        queue.dispatch();
        add(&mut queue, Op::Read, 200);
        assert_eq!(queue.drain_sectors(), [500, 200]);
    }

    #[test]
    fn writes_wait_for_two_batches_of_reads() {
        let mut queue = queue();
        queue.set("fifo_batch", 2);
        (0..8).for_each(|i| {
            add(&mut queue, Op::Read, i * 100);
        });
        add(&mut queue, Op::Write, 10_000);
        let ids = queue.drain();
        let at = ids.iter().position(|&id| queue.rq(id).is_write());
        assert_eq!(at, Some(4));
    }

    #[test]
    fn keeps_batches_at_fifo_batch_when_a_deadline_passes() {
        let mut queue = queue();
        let late = add(&mut queue, Op::Read, 10);
        add(&mut queue, Op::Read, 100_000);
        queue.pass_ms(100);
        // The head has moved past the late request.
        assert_eq!(queue.dispatch(), Some(late));
        let late = add(&mut queue, Op::Read, 20);
        (0..100).for_each(|i| {
            add(&mut queue, Op::Read, 200_000 + 100 * i);
        });
        queue.pass_ms(600);
        let ids = queue.drain();
        let at = ids.iter().position(|&id| id == late).unwrap();
        assert!((1..=16).contains(&at), "the late one came {at} later");
    }

    #[test]
    fn puts_a_bio_in_front() {
        let mut queue = queue();
        let id = add(&mut queue, Op::Write, 100);
        add(&mut queue, Op::Write, 300);
        assert_eq!(queue.merge(&Bio::new(Op::Write, Sector(92), 8)), Some(id));
        queue.set("front_merges", 0);
        assert_eq!(queue.merge(&Bio::new(Op::Write, Sector(292), 8)), None);
        assert_eq!(queue.drain_sectors(), [92, 300]);
    }

    #[test]
    fn waits_are_bounded() {
        // The current batch and writes_starved others.
        assert_wait(&DEADLINE, &[], Victim::AsyncWrite, Adversary::Reads, 3 * 16);
        // The deadline and a batch, among others that are nearer.
        assert_wait(
            &DEADLINE,
            &[("read_expire", SOON_MS)],
            Victim::Read,
            Adversary::Reads,
            SOON + 16,
        );
        assert_wait(
            &DEADLINE,
            &[("write_expire", SOON_MS)],
            Victim::AsyncWrite,
            Adversary::SyncWrites,
            SOON + 16,
        );
    }

    #[test]
    fn a_survivor_takes_over_the_earlier_deadline_and_its_place() {
        let mut queue = queue();
        let next = add(&mut queue, Op::Read, 116);
        queue.pass_ms(100);
        let other = add(&mut queue, Op::Read, 10_000);
        let survivor = add(&mut queue, Op::Read, 100);
        let merged = queue.fill_hole(survivor, next, MergeKind::Back);
        assert_eq!(merged, Some(survivor));
        assert_eq!(queue.merged_away(), [next]);
        queue.pass_ms(450);
        assert_eq!(queue.drain(), [survivor, other]);
        assert_eq!(queue.count("expired deadlines"), 1);
    }

    #[test]
    fn a_request_that_starts_earlier_is_found_and_sorted_there() {
        let mut queue = queue();
        let low = add(&mut queue, Op::Read, 100);
        let high = add(&mut queue, Op::Read, 200);
        let bio = |sector| Bio::new(Op::Read, Sector(sector), 8);
        assert_eq!(queue.merge(&bio(192)), Some(high));
        assert_eq!(queue.merge(&bio(92)), Some(low));
        assert_eq!(queue.merge(&bio(184)), Some(high));
        assert_eq!(queue.merge(&bio(84)), Some(low));
        assert_eq!(queue.drain_sectors(), [84, 184]);
    }
}
