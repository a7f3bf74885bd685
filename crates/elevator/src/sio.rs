//! SIO, the Simple I/O scheduler: M. Boton's module, version 0.2 of 2012, as in the CyanogenMod
//! kernels; document 002 describes it in section 3.1.4. AC has its deadlines and its way to avoid
//! starving writes from SIO.
//!
//! There are four queues in order of arrival: synchronous and asynchronous, reads and writes. The
//! next request is the oldest synchronous one of the preferred direction, otherwise its oldest
//! asynchronous one, otherwise the same of the other direction. Reads are preferred until more than
//! `writes_starved` went in a row. After more than `fifo_batch` dispatches the heads of the queues
//! are checked, and a late one goes first: asynchronous before synchronous and writes before reads,
//! because the usual order neglects these.
//!
//! Nothing is sorted. Back merges use the block layer's hash, and a grown request merges with its
//! neighbour in the queue.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use blklab_blk::{
    Elevator, ElevatorQueue, Nanos, QueueInfo, RequestId, SchedCtx, Tunable, Unit, jiffies,
    msecs_to_jiffies,
};

use crate::fifos::Fifos;
use crate::{ElevatorType, StepCosts};

const WRITES_STARVED: usize = 0;
const FIFO_BATCH: usize = 1;
/// Index of the first of four, in the order of [`kind_of`].
const EXPIRE: usize = 2;

const fn expire(name: &'static str, default: i64, help: &'static str) -> Tunable {
    let range = (0, i32::MAX as i64);
    Tunable::new(name, Unit::Milliseconds, range, default, help)
}

/// Deadlines, in the order of [`kind_of`].
pub(crate) const DEADLINES: [Tunable; KINDS] = [
    expire("sync_read_expire", 500, "a synchronous read's deadline"),
    expire(
        "async_read_expire",
        4_000,
        "an asynchronous read's deadline",
    ),
    expire("sync_write_expire", 2_000, "a synchronous write's deadline"),
    expire(
        "async_write_expire",
        16_000,
        "an asynchronous write's deadline",
    ),
];

/// The tunables, with the module's names.
pub const TUNABLES: &[Tunable] = &[
    Tunable {
        name: "writes_starved",
        unit: Unit::Count,
        min: 0,
        max: i32::MAX as i64,
        default: 1,
        help: "reads in a row that may pass writes over, less one",
    },
    Tunable {
        name: "fifo_batch",
        unit: Unit::Count,
        min: 0,
        max: i32::MAX as i64,
        default: 1,
        help: "dispatches between two checks for late requests, less one",
    },
    DEADLINES[0],
    DEADLINES[1],
    DEADLINES[2],
    DEADLINES[3],
];

const READ: usize = 0;
const WRITE: usize = 1;
/// Number of kinds: sync read, async read, sync write, async write.
pub(crate) const KINDS: usize = 4;
/// The order in which late requests are searched.
const LATE_ORDER: [usize; KINDS] = [3, 1, 2, 0];

pub(crate) fn kind_of(dir: usize, sync: bool) -> usize {
    2 * dir + !sync as usize
}

/// The scheduler's state.
pub struct Sio {
    queue: ElevatorQueue,
    fifo: Fifos<KINDS>,
    batched: i64,
    starved: i64,
    expired: u64,
}

impl Sio {
    /// Returns a scheduler without requests and with default tunables.
    pub fn new(_info: &QueueInfo) -> Sio {
        Sio {
            queue: SIO.queue(),
            fifo: Fifos::default(),
            batched: 0,
            starved: 0,
            expired: 0,
        }
    }

    fn late_request(&self, ctx: &SchedCtx<'_>) -> Option<RequestId> {
        let now = jiffies(ctx.now);
        LATE_ORDER.into_iter().find_map(|kind| {
            let oldest = self.fifo.front(kind)?;
            (now > ctx.rqs[oldest].fifo_time.0 as i64).then_some(oldest)
        })
    }

    fn next_in_turn(&self) -> Option<RequestId> {
        let starving = self.starved > self.queue.tunables.at(WRITES_STARVED);
        let first = if starving { WRITE } else { READ };
        [first, 1 - first].into_iter().find_map(|dir| {
            let sync = self.fifo.front(kind_of(dir, true));
            sync.or_else(|| self.fifo.front(kind_of(dir, false)))
        })
    }

    /// Chooses the next request to dispatch.
    fn choose(&mut self, ctx: &SchedCtx<'_>) -> Option<RequestId> {
        let mut late = None;
        if self.batched > self.queue.tunables.at(FIFO_BATCH) {
            self.batched = 0;
            late = self.late_request(ctx);
            self.expired += late.is_some() as u64;
        }
        let id = late.or_else(|| self.next_in_turn())?;
        self.batched += 1;
        self.starved = match ctx.rqs[id].is_write() {
            true => 0,
            false => self.starved + 1,
        };
        Some(id)
    }
}

impl Elevator for Sio {
    fn queue(&self) -> &ElevatorQueue {
        &self.queue
    }

    fn queue_mut(&mut self) -> &mut ElevatorQueue {
        &mut self.queue
    }

    fn requests_merged(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId, next: RequestId) {
        self.queue.count_merge();
        self.fifo.merged(ctx, id, next);
        self.fifo.remove(ctx, next);
    }

    fn former_request(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) -> Option<RequestId> {
        self.fifo.prev(ctx.rqs, id)
    }

    fn next_request(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) -> Option<RequestId> {
        self.fifo.next(ctx.rqs, id)
    }

    #[inline(always)]
    fn add_request(&mut self, ctx: &mut SchedCtx<'_>, _hctx: usize, id: RequestId) {
        let rq = &mut ctx.rqs[id];
        let kind = kind_of(rq.is_write() as usize, rq.is_sync());
        let expire = msecs_to_jiffies(self.queue.tunables.at(EXPIRE + kind));
        rq.fifo_time = Nanos((jiffies(ctx.now) + expire) as u64);
        self.fifo.push_back(ctx, id, kind);
    }

    fn dispatch_request(&mut self, ctx: &mut SchedCtx<'_>, _hctx: usize) -> Option<RequestId> {
        if let Some(id) = self.queue.pop_head(ctx) {
            return Some(id);
        }
        let id = self.choose(ctx)?;
        self.fifo.remove(ctx, id);
        self.queue.send(ctx, id)
    }

    fn has_work(&self, _hctx: usize) -> bool {
        !self.queue.head.is_empty() || !self.fifo.is_empty()
    }

    /// Nothing happens at an end.
    fn ends_can_wait(&self) -> bool {
        true
    }

    fn debug_state(&self) -> Vec<(&'static str, i64)> {
        vec![("batched", self.batched), ("starved", self.starved)]
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.queue.counters([("expired deadlines", self.expired)])
    }
}

/// Entry in the registry of schedulers.
pub const SIO: ElevatorType = ElevatorType {
    name: "sio",
    help: "four queues in order of arrival with a deadline each kind, no sorting",
    source: "M. Boton's module sio-iosched, version 0.2 of 2012",
    tunables: TUNABLES,
    attributes: &[],
    costs: Some(StepCosts {
        merge: 57,
        insert: 60,
        dispatch: 57,
        finish: 0,
    }),
    build: Some(&|info| Box::new(Sio::new(info))),
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounds::{Adversary, SOON, SOON_MS, Victim, assert_wait};
    use crate::test_queue::{TestQueue, queue_info};
    use blklab_blk::{Bio, BioFlags, MergeKind, Op, Sector};

    fn queue() -> TestQueue {
        TestQueue::new(Box::new(Sio::new(&queue_info())))
    }

    fn add(queue: &mut TestQueue, op: Op, flags: BioFlags, sector: u64) -> RequestId {
        let mut bio = Bio::new(op, Sector(sector), 8);
        bio.flags = flags;
        queue.insert(&bio).expect("does not merge")
    }

    #[test]
    fn a_write_goes_after_two_reads_and_sync_before_async() {
        let mut queue = queue();
        let slow = add(&mut queue, Op::Write, BioFlags::NONE, 9000);
        let sync = add(&mut queue, Op::Write, BioFlags::SYNC, 8000);
        (0..5).for_each(|i| {
            add(&mut queue, Op::Read, BioFlags::NONE, 1000 - i * 100);
        });
        let ids = queue.drain();
        let at = |id| ids.iter().position(|&x| x == id);
        assert_eq!((at(sync), at(slow)), (Some(2), Some(5)));
    }

    #[test]
    fn a_late_write_goes_within_a_batch_however_many_reads_there_are() {
        let mut queue = queue();
        queue.set("writes_starved", i32::MAX as i64);
        let write = add(&mut queue, Op::Write, BioFlags::NONE, 9000);
        queue.pass_ms(16_004);
        (0..20).for_each(|i| {
            add(&mut queue, Op::Read, BioFlags::NONE, i * 100);
        });
        let ids = queue.drain();
        assert_eq!(ids.iter().position(|&id| id == write), Some(2));
    }

    /// Counts the requests of a batch, and the reads that went while a write waited
    /// (`sio_dispatch_requests`).
    #[test]
    fn shows_the_batch_and_the_reads_before_a_write() {
        let mut queue = queue();
        add(&mut queue, Op::Write, BioFlags::NONE, 9000);
        add(&mut queue, Op::Read, BioFlags::SYNC, 100);
        for state in [
            [("batched", 1), ("starved", 1)],
            [("batched", 2), ("starved", 0)],
        ] {
            queue.dispatch().expect("the read, then the write");
            assert_eq!(queue.elevator.debug_state(), state);
        }
    }

    #[test]
    fn does_not_sort() {
        let mut queue = queue();
        for sector in [500, 100, 300] {
            add(&mut queue, Op::Read, BioFlags::NONE, sector);
        }
        assert_eq!(queue.drain_sectors(), [500, 100, 300]);
    }

    #[test]
    fn waits_are_bounded() {
        // The deadline and the dispatches until deadlines are checked.
        assert_wait(
            &SIO,
            &[("async_write_expire", SOON_MS)],
            Victim::AsyncWrite,
            Adversary::SyncWrites,
            SOON + 8 + 1,
        );
        // Consecutive reads before writes.
        assert_wait(&SIO, &[], Victim::AsyncWrite, Adversary::Reads, 8);
    }

    #[test]
    fn a_survivor_takes_over_an_earlier_deadline() {
        let mut queue = queue();
        queue.set("writes_starved", i32::MAX as i64);
        let write = add(&mut queue, Op::Write, BioFlags::NONE, 9000);
        queue.set("async_write_expire", 100);
        let next = add(&mut queue, Op::Write, BioFlags::NONE, 9016);
        let merged = queue.fill_hole(write, next, MergeKind::Back);
        assert_eq!(merged, Some(write));
        assert_eq!(queue.merged_away(), [next]);
        queue.pass_ms(108);
        (0..20).for_each(|i| {
            add(&mut queue, Op::Read, BioFlags::NONE, i * 100);
        });
        let ids = queue.drain();
        assert_eq!(ids.iter().position(|&id| id == write), Some(2));
    }
}
