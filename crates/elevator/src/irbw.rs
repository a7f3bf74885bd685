//! IRBW, individual reads and bundled writes: J. Kim and others, "Disk
//! schedulers for solid state drivers", EMSOFT 2009; document 002, section
//! 3.1.1. Both of the paper's schedulers are here, by `read_preference`.
//!
//! The time of a read on an SSD hardly depends on earlier requests, that of a write does: writes
//! that fall into one logical block together are cheapest. So writes are put into bundles by block,
//! and a bundle is sent as a whole. IRBW-FIFO orders bundles and single reads by arrival;
//! IRBW-FIFO-RP sends reads before bundles, which is what document 002 describes and the default
//! here.
//!
//! The sources are the paper's public abstract and the document; other details are decided here:
//! - A bundle's place in the order is that of its oldest write.
//! - A bundle accepts no more writes once its first has been sent; otherwise a block that is
//!   written repeatedly would occupy the drive.
//! - Within a bundle writes go by arrival, because grouping makes an order unnecessary, as the
//!   abstract says. Reads do not interrupt a bundle.
//! - The paper measures the block size of each drive. `bundle_kb` is 512, the erase block of many
//!   drives of that time.
//! - What is appropriate for a bundle's size is not told; one write is a bundle, too, and nothing
//!   waits for a second. So where no two writes of a block wait together, this is reads before
//!   writes, as STB is where all requests are synchronous.
//! - There are no deadlines: with `read_preference` reads may starve writes, which STB was designed
//!   to avoid.

use alloc::boxed::Box;
use alloc::vec::Vec;

use blklab_blk::{Elevator, ElevatorQueue, QueueInfo, RequestId, SchedCtx, Tunable, Unit};

use crate::fifos::{BundledFifos, bundled_hooks};
use crate::{ElevatorType, StepCosts};

const READ_PREFERENCE: usize = 0;
const BUNDLE_KB: usize = 1;

/// The tunables.
pub const TUNABLES: &[Tunable] = &[
    Tunable {
        name: "read_preference",
        unit: Unit::Bool,
        min: 0,
        max: 1,
        default: 1,
        help: "reads go before bundles (IRBW-FIFO-RP); 0: in order of arrival (IRBW-FIFO)",
    },
    Tunable {
        name: "bundle_kb",
        unit: Unit::Kib,
        min: 4,
        max: 1 << 20,
        default: 512,
        help: "the drive's logical block, whose writes go together",
    },
];

const READ: usize = 0;
const WRITE: usize = 1;

/// The scheduler's state.
pub struct Irbw {
    queue: ElevatorQueue,
    /// Reads and writes; all writes are in bundles.
    queued: BundledFifos<2>,
    sent_bundles: u64,
}

impl Irbw {
    /// Returns a scheduler without requests and with default tunables.
    pub fn new(_info: &QueueInfo) -> Irbw {
        Irbw {
            queue: IRBW.queue(),
            queued: BundledFifos::default(),
            sent_bundles: 0,
        }
    }

    /// Whether a read is next; `None` if nothing is queued.
    fn read_is_next(&self, ctx: &SchedCtx<'_>) -> Option<bool> {
        match (
            self.queued.fifos().front(READ),
            self.queued.fifos().front(WRITE),
        ) {
            (None, None) => None,
            (Some(_), None) => Some(true),
            (None, Some(_)) => Some(false),
            (Some(read), Some(write)) => {
                let first = ctx.rqs[read].serial < ctx.rqs[write].serial;
                Some(first || self.queue.tunables.at(READ_PREFERENCE) == 1)
            }
        }
    }

    fn start_bundle(&mut self, ctx: &SchedCtx<'_>) -> Option<RequestId> {
        let oldest = self.queued.fifos().front(WRITE)?;
        self.sent_bundles += u64::from(self.queued.start_closed_bundle(ctx.rqs, oldest));
        Some(oldest)
    }

    /// Chooses the next request to dispatch.
    fn choose(&mut self, ctx: &SchedCtx<'_>) -> Option<RequestId> {
        if let Some(id) = self.queued.bundle_front() {
            return Some(id);
        }
        if self.read_is_next(ctx)? {
            self.queued.fifos().front(READ)
        } else {
            self.start_bundle(ctx)
        }
    }
}

impl Elevator for Irbw {
    bundled_hooks!();

    fn requests_merged(&mut self, ctx: &mut SchedCtx<'_>, _id: RequestId, next: RequestId) {
        self.queue.count_merge();
        self.queued.remove(ctx, next);
    }

    #[inline(always)]
    fn add_request(&mut self, ctx: &mut SchedCtx<'_>, _hctx: usize, id: RequestId) {
        let dir = ctx.rqs[id].is_write() as usize;
        let bundle_sectors = self.queue.tunables.at(BUNDLE_KB) as u64 * 2;
        let block = (dir == WRITE).then(|| ctx.rqs[id].sector.0 / bundle_sectors);
        self.queued.push_back(ctx, id, dir, block);
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.queue.counters([("bundles", self.sent_bundles)])
    }
}

/// Entry in the registry of schedulers.
pub const IRBW: ElevatorType = ElevatorType {
    name: "irbw",
    help: "reads one by one and first, writes in bundles by erase block",
    source: "J. Kim and others, EMSOFT 2009",
    tunables: TUNABLES,
    attributes: &[],
    costs: Some(StepCosts {
        merge: 56,
        insert: 68,
        dispatch: 68,
        finish: 0,
    }),
    build: Some(&|info| Box::new(Irbw::new(info))),
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounds::{Adversary, CROWD, Victim, assert_wait};
    use crate::test_queue::{TestQueue, queue_info};
    use blklab_blk::{Bio, Op, Sector};

    fn queue() -> TestQueue {
        TestQueue::new(Box::new(Irbw::new(&queue_info())))
    }

    /// Blocks of 1024 sectors.
    fn add(queue: &mut TestQueue, op: Op, block: u64, place: u64) {
        let bio = Bio::new(op, Sector(block * 1024 + place * 16), 8);
        queue.insert(&bio).expect("does not merge");
    }

    fn blocks(queue: &mut TestQueue) -> Vec<u64> {
        queue
            .drain_sectors()
            .into_iter()
            .map(|s| s / 1024)
            .collect()
    }

    #[test]
    fn writes_go_by_block_in_order_of_each_block_s_oldest() {
        let mut queue = queue();
        for block in [7, 2, 7, 5, 2, 7] {
            let place = queue.in_use() as u64;
            add(&mut queue, Op::Write, block, place);
        }
        assert_eq!(blocks(&mut queue), [7, 7, 7, 2, 2, 5]);
        assert_eq!(queue.count("bundles"), 3);
    }

    #[test]
    fn reads_go_first_but_do_not_interrupt_a_bundle() {
        let mut queue = queue();
        add(&mut queue, Op::Write, 7, 0);
        add(&mut queue, Op::Write, 7, 1);
        add(&mut queue, Op::Write, 8, 0);
        queue.dispatch();
        add(&mut queue, Op::Read, 1, 0);
        assert_eq!(blocks(&mut queue), [7, 1, 8]);
    }

    #[test]
    fn irbw_fifo_keeps_the_order_of_arrival_of_reads_and_bundles() {
        let mut queue = queue();
        queue.set("read_preference", 0);
        add(&mut queue, Op::Write, 7, 0);
        add(&mut queue, Op::Read, 1, 0);
        add(&mut queue, Op::Write, 8, 0);
        add(&mut queue, Op::Write, 7, 1);
        assert_eq!(blocks(&mut queue), [7, 7, 1, 8]);
    }

    #[test]
    fn a_bundle_takes_no_writes_once_it_goes() {
        let mut queue = queue();
        add(&mut queue, Op::Write, 7, 0);
        add(&mut queue, Op::Write, 7, 1);
        add(&mut queue, Op::Write, 8, 0);
        queue.dispatch();
        add(&mut queue, Op::Write, 7, 2);
        assert_eq!(blocks(&mut queue), [7, 8, 7]);
    }

    #[test]
    fn waits_are_bounded() {
        // Requests that came before.
        assert_wait(
            &IRBW,
            &[("read_preference", 0)],
            Victim::AsyncWrite,
            Adversary::Reads,
            CROWD,
        );
        // A bundle.
        assert_wait(&IRBW, &[], Victim::Read, Adversary::SyncWrites, CROWD);
    }
}
