//! bp, the block-preferential scheduler: M. Dunn and N. Reddy, "A new I/O
//! scheduler for solid state devices", Texas A&M University, 2009; document
//! 002, section 3.1.3.
//!
//! A write outside the erase block of the previous write is more expensive than one inside it,
//! because the drive must then complete a block that is changed only in part. So writes to the
//! current block are preferred as long as there are any. Reads do not depend on blocks and go by
//! arrival.
//!
//! The penalty for crossing a block boundary and the preference for the current block are known
//! (from the title, the abstract and the document). How starvation is avoided is not public; this
//! implementation uses the structure of Linux's deadline scheduler, with the block in place of the
//! sort order:
//!
//! - Batches have one direction and at most `fifo_batch` requests. Reads go first until they have
//!   passed over writes `writes_starved` times.
//! - A batch of writes continues in the current block, even after a batch of reads, unless the
//!   oldest write's deadline has passed. When the block has no more writes it continues with the
//!   block of the oldest write.
//! - Reads have no deadline: they go by arrival, and writes go before them for one batch at a time.

use alloc::boxed::Box;
use alloc::vec::Vec;

use blklab_blk::{
    Elevator, ElevatorQueue, Nanos, QueueInfo, RequestId, SchedCtx, Tunable, Unit, jiffies,
    msecs_to_jiffies,
};

use crate::fifos::{BundledFifos, bundled_hooks};
use crate::{ElevatorType, StepCosts};

const WRITE_EXPIRE: usize = 0;
const WRITES_STARVED: usize = 1;
const FIFO_BATCH: usize = 2;
const BLOCK_KB: usize = 3;

/// The tunables.
pub const TUNABLES: &[Tunable] = &[
    Tunable {
        name: "write_expire",
        unit: Unit::Milliseconds,
        min: 0,
        max: i32::MAX as i64,
        default: 5000,
        help: "a write's deadline: past it the present block is left for the write's",
    },
    Tunable {
        name: "writes_starved",
        unit: Unit::Count,
        min: 0,
        max: i32::MAX as i64,
        default: 2,
        help: "batches of reads that may pass writes over",
    },
    Tunable {
        name: "fifo_batch",
        unit: Unit::Count,
        min: 1,
        max: i32::MAX as i64,
        default: 16,
        help: "requests of a batch",
    },
    Tunable {
        name: "block_kb",
        unit: Unit::Kib,
        min: 4,
        max: 1 << 20,
        default: 512,
        help: "the drive's erase block",
    },
];

const READ: usize = 0;
const WRITE: usize = 1;

/// The scheduler's state.
pub struct Bp {
    queue: ElevatorQueue,
    /// Reads and writes; the writes of a block are a bundle.
    queued: BundledFifos<2>,
    dir: usize,
    batching: i64,
    starved: i64,
    crossings: u64,
    batches: u64,
    expired: u64,
}

impl Bp {
    /// Returns a scheduler without requests and with default tunables.
    pub fn new(_info: &QueueInfo) -> Bp {
        Bp {
            queue: BP.queue(),
            queued: BundledFifos::default(),
            dir: READ,
            // The first request starts a batch.
            batching: i64::MAX,
            starved: 0,
            crossings: 0,
            batches: 0,
            expired: 0,
        }
    }

    fn oldest_write_is_late(&self, ctx: &SchedCtx<'_>) -> bool {
        let oldest = self.queued.fifos().front(WRITE);
        oldest.is_some_and(|id| ctx.rqs[id].fifo_time.0 as i64 <= jiffies(ctx.now))
    }

    /// The direction of the next batch; `None` if nothing is queued.
    fn choose_direction(&mut self) -> Option<usize> {
        let [reads, writes] = [READ, WRITE].map(|dir| self.queued.fifos().front(dir).is_some());
        if reads && writes {
            if self.starved < self.queue.tunables.at(WRITES_STARVED) {
                self.starved += 1;
                return Some(READ);
            }
            self.starved = 0;
            return Some(WRITE);
        }
        if writes {
            self.starved = 0;
        }
        (reads || writes).then_some(writes as usize)
    }

    fn start_batch(&mut self, ctx: &SchedCtx<'_>) -> Option<()> {
        let dir = self.choose_direction()?;
        self.batches += 1;
        self.batching = 0;
        self.dir = dir;
        if dir == WRITE && self.oldest_write_is_late(ctx) {
            self.expired += 1;
            self.queued.stop_bundle();
        }
        Some(())
    }

    /// The next write: one of the current block, otherwise the oldest, whose block becomes current.
    fn next_write(&mut self, ctx: &SchedCtx<'_>) -> Option<RequestId> {
        if let Some(id) = self.queued.bundle_front() {
            return Some(id);
        }
        let oldest = self.queued.fifos().front(WRITE)?;
        self.queued.start_bundle(ctx.rqs, oldest);
        self.crossings += 1;
        Some(oldest)
    }

    /// Chooses the next request to dispatch.
    fn choose(&mut self, ctx: &SchedCtx<'_>) -> Option<RequestId> {
        let over = self.batching >= self.queue.tunables.at(FIFO_BATCH);
        if over || self.queued.fifos().front(self.dir).is_none() {
            self.start_batch(ctx)?;
        }
        self.batching += 1;
        match self.dir {
            READ => self.queued.fifos().front(READ),
            _ => self.next_write(ctx),
        }
    }
}

impl Elevator for Bp {
    bundled_hooks!();

    fn requests_merged(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId, next: RequestId) {
        self.queue.count_merge();
        self.queued.merged(ctx, id, next);
    }

    #[inline(always)]
    fn add_request(&mut self, ctx: &mut SchedCtx<'_>, _hctx: usize, id: RequestId) {
        let dir = ctx.rqs[id].is_write() as usize;
        let block = (dir == WRITE).then(|| {
            let expire = msecs_to_jiffies(self.queue.tunables.at(WRITE_EXPIRE));
            ctx.rqs[id].fifo_time = Nanos((jiffies(ctx.now) + expire) as u64);
            ctx.rqs[id].sector.0 / (self.queue.tunables.at(BLOCK_KB) as u64 * 2)
        });
        self.queued.push_back(ctx, id, dir, block);
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.queue.counters([
            ("batches", self.batches),
            ("blocks entered", self.crossings),
            ("expired deadlines", self.expired),
        ])
    }
}

/// Entry in the registry of schedulers.
pub const BP: ElevatorType = ElevatorType {
    name: "bp",
    help: "writes stay in the erase block of the last one; batches and deadlines",
    source: "M. Dunn, N. Reddy, Texas A&M University 2009",
    tunables: TUNABLES,
    attributes: &[],
    costs: Some(StepCosts {
        merge: 57,
        insert: 74,
        dispatch: 70,
        finish: 0,
    }),
    build: Some(&|info| Box::new(Bp::new(info))),
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounds::{Adversary, SOON, SOON_MS, Victim, assert_wait};
    use crate::test_queue::{TestQueue, queue_info};
    use blklab_blk::{Bio, Op, Sector};

    fn queue() -> TestQueue {
        TestQueue::new(Box::new(Bp::new(&queue_info())))
    }

    /// Blocks of 1024 sectors.
    fn add(queue: &mut TestQueue, op: Op, block: u64) -> RequestId {
        let place = queue.in_use() as u64;
        let bio = Bio::new(op, Sector(block * 1024 + place * 10), 8);
        queue.insert(&bio).expect("does not merge")
    }

    fn blocks(queue: &mut TestQueue) -> Vec<u64> {
        queue
            .drain_sectors()
            .into_iter()
            .map(|s| s / 1024)
            .collect()
    }

    #[test]
    fn stays_in_a_block_as_long_as_it_has_writes() {
        let mut queue = queue();
        for block in [7, 2, 7, 5] {
            add(&mut queue, Op::Write, block);
        }
        queue.dispatch();
        add(&mut queue, Op::Write, 7);
        assert_eq!(blocks(&mut queue), [7, 7, 2, 5]);
        assert_eq!(queue.count("blocks entered"), 3);
    }

    #[test]
    fn comes_back_to_the_block_after_reads() {
        let mut queue = queue();
        queue.set("fifo_batch", 2);
        queue.set("writes_starved", 1);
        for block in [7, 2, 7, 2, 7] {
            add(&mut queue, Op::Write, block);
        }
        queue.dispatch();
        queue.dispatch();
        (0..3).for_each(|_| {
            add(&mut queue, Op::Read, 1);
        });
        assert_eq!(blocks(&mut queue), [1, 1, 7, 2, 1, 2]);
    }

    #[test]
    fn a_late_write_ends_the_preference_at_the_next_batch() {
        let mut queue = queue();
        let lone = add(&mut queue, Op::Write, 2);
        queue.dispatch();
        add(&mut queue, Op::Write, 7);
        queue.dispatch();
        assert_eq!(queue.rq(lone).sector.0 / 1024, 2);
        (0..4).for_each(|_| {
            add(&mut queue, Op::Write, 7);
        });
        queue.dispatch();
        let late = add(&mut queue, Op::Write, 2);
        queue.pass_ms(5_000);
        (0..40).for_each(|_| {
            add(&mut queue, Op::Write, 7);
        });
        let ids = queue.drain();
        let at = ids.iter().position(|&id| id == late).unwrap();
        assert!(at <= 16, "the late write came {at} later");
    }

    #[test]
    fn reads_go_first_but_do_not_starve_writes() {
        let mut queue = queue();
        let write = add(&mut queue, Op::Write, 7);
        (0..60).for_each(|_| {
            add(&mut queue, Op::Read, 1);
        });
        let ids = queue.drain();
        assert_eq!(ids.iter().position(|&id| id == write), Some(32));
    }

    #[test]
    fn waits_are_bounded() {
        // The current batch and writes_starved others.
        assert_wait(&BP, &[], Victim::AsyncWrite, Adversary::Reads, 3 * 16);
        // The deadline and a batch.
        assert_wait(
            &BP,
            &[("write_expire", SOON_MS)],
            Victim::AsyncWrite,
            Adversary::SyncWrites,
            SOON + 16,
        );
    }
}
