//! STB, selective timeout bundling: S. Kang, H. Park and C. Yoo, "Performance
//! enhancement of I/O scheduler for solid state devices", ICCE 2011; document
//! 002, section 3.1.2.
//!
//! Known facts: like IRBW it bundles writes and prefers reads, but it divides requests into two
//! groups and gives each request a timeout (the abstract), and it treats four kinds differently,
//! synchronous and asynchronous reads and writes (the document). The paper has two pages and no
//! other public text. The following is decided here:
//!
//! - The two groups are the synchronous and the asynchronous requests. A process waits for a
//!   synchronous one, so that group goes first; within a group reads go before writes.
//! - Bundling is selective: only asynchronous writes are bundled. A synchronous write gains nothing
//!   from waiting for other writes of its block.
//! - A request that has timed out goes before all others, earliest timeout first. An asynchronous
//!   write takes its bundle along. Only timed-out requests interrupt a bundle.
//! - Not told is what the two groups are, whether a bundle waits for its timeout to fill, and how
//!   long timeouts are. As decided here, STB differs from IRBW where asynchronous requests, bundles
//!   of several synchronous writes, or waits as long as a timeout occur.
//! - The timeouts are those of the thesis's AC for the same four kinds (its Table 4.3); the thesis
//!   names STB as a source.
//! - As in IRBW, a bundle accepts no more writes once its first has been sent.

use alloc::boxed::Box;
use alloc::vec::Vec;

use blklab_blk::{
    Elevator, ElevatorQueue, Nanos, QueueInfo, RequestId, SchedCtx, Tunable, Unit, jiffies,
    msecs_to_jiffies,
};

use crate::fifos::{BundledFifos, bundled_hooks};
use crate::{ElevatorType, StepCosts};

/// Index of the first of four, in the order of [`kind_of`].
const EXPIRE: usize = 0;
const BUNDLE_KB: usize = 4;

const fn expire(name: &'static str, default: i64, help: &'static str) -> Tunable {
    Tunable {
        name,
        unit: Unit::Milliseconds,
        min: 0,
        max: i32::MAX as i64,
        default,
        help,
    }
}

/// The tunables.
pub const TUNABLES: &[Tunable] = &[
    expire("sync_read_expire", 500, "a synchronous read's timeout"),
    expire("sync_write_expire", 2_000, "a synchronous write's timeout"),
    expire("async_read_expire", 4_000, "an asynchronous read's timeout"),
    expire(
        "async_write_expire",
        16_000,
        "an asynchronous write's timeout",
    ),
    Tunable {
        name: "bundle_kb",
        unit: Unit::Kib,
        min: 4,
        max: 1 << 20,
        default: 512,
        help: "the drive's logical block, whose asynchronous writes go together",
    },
];

/// Number of kinds, in the order of preference: sync read, sync write, async read, async write.
const KINDS: usize = 4;
const ASYNC_WRITE: usize = 3;

fn kind_of(write: bool, sync: bool) -> usize {
    2 * !sync as usize + write as usize
}

/// The scheduler's state.
pub struct Stb {
    queue: ElevatorQueue,
    /// Each kind in order of arrival, which is also the order of timeouts; asynchronous
    /// writes are in bundles.
    queued: BundledFifos<KINDS>,
    sent_bundles: u64,
    expired: u64,
}

impl Stb {
    /// Returns a scheduler without requests and with default tunables.
    pub fn new(_info: &QueueInfo) -> Stb {
        Stb {
            queue: STB.queue(),
            queued: BundledFifos::default(),
            sent_bundles: 0,
            expired: 0,
        }
    }

    /// The timed-out request with the earliest timeout, among the oldest of each kind.
    fn timed_out(&self, ctx: &SchedCtx<'_>) -> Option<RequestId> {
        let now = jiffies(ctx.now) as u64;
        let oldest = self.queued.fifos().fronts();
        oldest
            .filter(|&id| ctx.rqs[id].fifo_time.0 <= now)
            .min_by_key(|&id| ctx.rqs[id].fifo_time)
    }

    /// Makes the bundle of a write the one that is being sent.
    fn start_bundle_of(&mut self, ctx: &SchedCtx<'_>, id: RequestId) {
        self.sent_bundles += u64::from(self.queued.start_closed_bundle(ctx.rqs, id));
    }

    /// Chooses the next request to dispatch.
    fn choose(&mut self, ctx: &SchedCtx<'_>) -> Option<RequestId> {
        if let Some(late) = self.timed_out(ctx) {
            self.expired += 1;
            self.start_bundle_of(ctx, late);
            return Some(late);
        }
        if let Some(id) = self.queued.bundle_front() {
            return Some(id);
        }
        let id = self.queued.fifos().fronts().next()?;
        self.start_bundle_of(ctx, id);
        Some(id)
    }
}

impl Elevator for Stb {
    bundled_hooks!();

    fn requests_merged(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId, next: RequestId) {
        self.queue.count_merge();
        self.queued.merged(ctx, id, next);
    }

    #[inline(always)]
    fn add_request(&mut self, ctx: &mut SchedCtx<'_>, _hctx: usize, id: RequestId) {
        let rq = &mut ctx.rqs[id];
        let kind = kind_of(rq.is_write(), rq.is_sync());
        let expire = msecs_to_jiffies(self.queue.tunables.at(EXPIRE + kind));
        rq.fifo_time = Nanos((jiffies(ctx.now) + expire) as u64);
        let bundle_sectors = self.queue.tunables.at(BUNDLE_KB) as u64 * 2;
        let block = (kind == ASYNC_WRITE).then(|| rq.sector.0 / bundle_sectors);
        self.queued.push_back(ctx, id, kind, block);
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.queue.counters([
            ("bundles", self.sent_bundles),
            ("expired deadlines", self.expired),
        ])
    }
}

/// Entry in the registry of schedulers.
pub const STB: ElevatorType = ElevatorType {
    name: "stb",
    help: "sync before async, bundles of asynchronous writes, a timeout a request",
    source: "S. Kang, H. Park, C. Yoo, ICCE 2011",
    tunables: TUNABLES,
    attributes: &[],
    costs: Some(StepCosts {
        merge: 57,
        insert: 62,
        dispatch: 62,
        finish: 0,
    }),
    build: Some(&|info| Box::new(Stb::new(info))),
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounds::{Adversary, SOON, SOON_MS, Victim, assert_wait};
    use crate::test_queue::{TestQueue, queue_info};
    use blklab_blk::{Bio, BioFlags, Op, Sector};

    fn queue() -> TestQueue {
        TestQueue::new(Box::new(Stb::new(&queue_info())))
    }

    /// Blocks of 1024 sectors.
    fn add(queue: &mut TestQueue, op: Op, flags: BioFlags, block: u64) -> RequestId {
        let place = queue.in_use() as u64;
        let mut bio = Bio::new(op, Sector(block * 1024 + place * 16), 8);
        bio.flags = flags;
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
    fn sync_goes_before_async_and_only_async_writes_are_bundled() {
        let mut queue = queue();
        for block in [7, 2, 7] {
            add(&mut queue, Op::Write, BioFlags::NONE, block);
        }
        for block in [9, 8, 9] {
            add(&mut queue, Op::Write, BioFlags::SYNC, block);
        }
        add(&mut queue, Op::Read, BioFlags::NONE, 1);
        assert_eq!(blocks(&mut queue), [1, 9, 8, 9, 7, 7, 2]);
        assert_eq!(queue.count("bundles"), 2);
    }

    #[test]
    fn what_timed_out_goes_first_and_takes_its_bundle_along() {
        let mut queue = queue();
        for block in [7, 2, 7] {
            add(&mut queue, Op::Write, BioFlags::NONE, block);
        }
        queue.pass_ms(15_000);
        add(&mut queue, Op::Write, BioFlags::NONE, 7);
        queue.pass_ms(1_000);
        (0..3).for_each(|_| {
            add(&mut queue, Op::Read, BioFlags::NONE, 1);
        });
        // The three late requests by age, then the rest of the bundles of blocks 2 and 7.
        assert_eq!(blocks(&mut queue), [7, 2, 7, 7, 1, 1, 1]);
        assert_eq!(queue.count("expired deadlines"), 3);
    }

    #[test]
    fn a_read_waits_no_longer_than_its_timeout_and_a_bundle() {
        let mut queue = queue();
        (0..30).for_each(|_| {
            add(&mut queue, Op::Write, BioFlags::NONE, 7);
        });
        queue.dispatch();
        let read = add(&mut queue, Op::Read, BioFlags::NONE, 1);
        queue.dispatch();
        queue.pass_ms(500);
        assert_eq!(queue.dispatch(), Some(read));
    }

    #[test]
    fn waits_are_bounded() {
        // Only the deadline.
        assert_wait(
            &STB,
            &[("async_write_expire", SOON_MS)],
            Victim::AsyncWrite,
            Adversary::Reads,
            SOON + 1,
        );
        assert_wait(
            &STB,
            &[("async_write_expire", SOON_MS)],
            Victim::AsyncWrite,
            Adversary::SyncWrites,
            SOON + 1,
        );
    }
}
