//! IRBW, individual reads and bundled writes: J. Kim and others, "Disk
//! schedulers for solid state drivers", EMSOFT 2009; document 002, section
//! 3.1.1. Both of the paper's schedulers are here, by `read_preference`.
//!
//! A read's time on an SSD hardly depends on what went before, a write's does:
//! writes that fall into one logical block together are cheapest. So writes are
//! put into bundles by block, and a bundle goes as a whole. IRBW-FIFO orders
//! bundles and single reads by arrival; IRBW-FIFO-RP lets reads go before
//! bundles, which is what document 002 describes and the default here.
//!
//! From the paper's public abstract and the document; the rest is chosen here:
//! - A bundle's place in the order is that of its oldest write.
//! - A bundle takes no more writes once its first has gone, or a block that is
//!   written again and again would keep the drive for itself.
//! - Inside a bundle writes go by arrival: grouping lifts any need of an order,
//!   says the abstract. Reads do not interrupt a bundle.
//! - The paper measures the block's size on each drive. `bundle_kb` is 512, the
//!   erase block of many drives of that time.
//! - There is no deadline: with `read_preference` reads may starve writes. STB
//!   came to mend that.

use blklab_blk::{RequestId, Requests, SchedCtx, Tunable, Tunables, Unit};

use crate::bundles::Bundles;
use crate::fifos::Fifos;
use crate::single_queue::Policy;

const READ_PREFERENCE: usize = 0;
const BUNDLE_KB: usize = 1;

/// What a user can set.
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
    tunables: Tunables,
    /// Reads and writes in order of arrival.
    fifo: Fifos<2>,
    bundles: Bundles,
    sent_bundles: u64,
}

impl Irbw {
    /// A fresh one.
    pub fn new() -> Irbw {
        Irbw {
            tunables: Tunables::new(TUNABLES),
            fifo: Fifos::default(),
            bundles: Bundles::default(),
            sent_bundles: 0,
        }
    }

    /// Whether the next to go is a read; `None` where nothing is queued.
    fn read_is_next(&self, ctx: &SchedCtx<'_>) -> Option<bool> {
        match (self.fifo.front(READ), self.fifo.front(WRITE)) {
            (None, None) => None,
            (Some(_), None) => Some(true),
            (None, Some(_)) => Some(false),
            (Some(read), Some(write)) => {
                let first = ctx.rqs[read].serial < ctx.rqs[write].serial;
                Some(first || self.tunables.at(READ_PREFERENCE) == 1)
            }
        }
    }

    fn start_bundle(&mut self, ctx: &SchedCtx<'_>) -> Option<RequestId> {
        let oldest = self.fifo.front(WRITE)?;
        let bundle = self.bundles.start(ctx.rqs, oldest)?;
        self.bundles.close(bundle);
        self.sent_bundles += 1;
        Some(oldest)
    }
}

impl Policy for Irbw {
    const NAME: &'static str = "irbw";

    fn add(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        let dir = ctx.rqs[id].is_write() as usize;
        if dir == WRITE {
            let block = ctx.rqs[id].sector.0 / (self.tunables.at(BUNDLE_KB) as u64 * 2);
            self.bundles.add(ctx.rqs, id, block);
        }
        self.fifo.push_back(ctx, id, dir);
    }

    fn choose(&mut self, ctx: &SchedCtx<'_>) -> Option<RequestId> {
        if let Some(id) = self.bundles.front() {
            return Some(id);
        }
        if self.read_is_next(ctx)? {
            self.fifo.front(READ)
        } else {
            self.start_bundle(ctx)
        }
    }

    fn remove(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        self.fifo.remove(ctx, id);
        self.bundles.remove(ctx.rqs, id);
    }

    fn former(&self, rqs: &Requests, id: RequestId) -> Option<RequestId> {
        if rqs[id].is_write() {
            return self.bundles.prev(rqs, id);
        }
        self.fifo.prev(rqs, id)
    }

    fn latter(&self, rqs: &Requests, id: RequestId) -> Option<RequestId> {
        if rqs[id].is_write() {
            return self.bundles.next(rqs, id);
        }
        self.fifo.next(rqs, id)
    }

    fn is_empty(&self) -> bool {
        self.fifo.is_empty()
    }

    fn tunables(&self) -> &Tunables {
        &self.tunables
    }

    fn tunables_mut(&mut self) -> &mut Tunables {
        &mut self.tunables
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        vec![("bundles", self.sent_bundles)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rig::Rig;
    use crate::single_queue::SingleQueue;
    use blklab_blk::{Bio, Op, Sector};

    fn rig() -> Rig {
        Rig::new(SingleQueue::of(Irbw::new()))
    }

    /// Blocks of 1024 sectors.
    fn add(rig: &mut Rig, op: Op, block: u64, place: u64) {
        let bio = Bio::new(op, Sector(block * 1024 + place * 16), 8);
        rig.insert(&bio).expect("does not merge");
    }

    fn blocks(rig: &mut Rig) -> Vec<u64> {
        rig.drain_sectors().into_iter().map(|s| s / 1024).collect()
    }

    #[test]
    fn writes_go_by_block_in_order_of_each_block_s_oldest() {
        let mut rig = rig();
        for block in [7, 2, 7, 5, 2, 7] {
            let place = rig.in_use() as u64;
            add(&mut rig, Op::Write, block, place);
        }
        assert_eq!(blocks(&mut rig), [7, 7, 7, 2, 2, 5]);
        assert_eq!(rig.count("bundles"), 3);
    }

    #[test]
    fn reads_go_first_but_do_not_interrupt_a_bundle() {
        let mut rig = rig();
        add(&mut rig, Op::Write, 7, 0);
        add(&mut rig, Op::Write, 7, 1);
        add(&mut rig, Op::Write, 8, 0);
        rig.dispatch();
        add(&mut rig, Op::Read, 1, 0);
        assert_eq!(blocks(&mut rig), [7, 1, 8]);
    }

    #[test]
    fn irbw_fifo_keeps_the_order_of_arrival_of_reads_and_bundles() {
        let mut rig = rig();
        rig.set("read_preference", 0);
        add(&mut rig, Op::Write, 7, 0);
        add(&mut rig, Op::Read, 1, 0);
        add(&mut rig, Op::Write, 8, 0);
        add(&mut rig, Op::Write, 7, 1);
        assert_eq!(blocks(&mut rig), [7, 7, 1, 8]);
    }

    #[test]
    fn a_bundle_takes_no_writes_once_it_goes() {
        let mut rig = rig();
        add(&mut rig, Op::Write, 7, 0);
        add(&mut rig, Op::Write, 7, 1);
        add(&mut rig, Op::Write, 8, 0);
        rig.dispatch();
        add(&mut rig, Op::Write, 7, 2);
        assert_eq!(blocks(&mut rig), [7, 8, 7]);
    }
}
