//! noop, as Linux 4.x had it (`block/noop-iosched.c`).
//!
//! There is one queue in order of arrival. Back merges work as for any scheduler, through the block
//! layer's hash of end sectors. There is no sorted list, so a front merge is possible only with the
//! request merged last. When a request has grown it is merged with its neighbour in the queue if
//! they are adjacent, which is rarer than with sorted neighbours.
//!
//! The kernel moved each request through `elv_dispatch_sort` into the queue from which the driver
//! takes. The driver asks only when that queue is empty, so there was never anything to sort.

use alloc::boxed::Box;
use alloc::vec::Vec;

use blklab_blk::{Elevator, ElevatorQueue, QueueInfo, RequestId, RqList, SchedCtx, Tunable};

use crate::{ElevatorType, StepCosts};

/// It has no tunables.
pub const TUNABLES: &[Tunable] = &[];

/// `elv[0]`: one while the request is in the queue.
const ELV_QUEUED: usize = 0;

/// The scheduler's state.
pub struct Noop {
    queue: ElevatorQueue,
    fifo: RqList,
}

impl Noop {
    /// Returns a scheduler without requests.
    pub fn new(_info: &QueueInfo) -> Noop {
        Noop {
            queue: NOOP.queue(),
            fifo: RqList::new(),
        }
    }

    /// Removes a queued request. One that is merged during its insertion is not queued yet.
    fn remove(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        if ctx.rqs[id].elv[ELV_QUEUED] == 1 {
            ctx.rqs[id].elv[ELV_QUEUED] = 0;
            self.fifo.remove(ctx.rqs, id);
            ctx.merge.remove(ctx.rqs, id);
        }
    }
}

impl Elevator for Noop {
    fn queue(&self) -> &ElevatorQueue {
        &self.queue
    }

    fn queue_mut(&mut self) -> &mut ElevatorQueue {
        &mut self.queue
    }

    fn disables_wbt(&self) -> bool {
        true
    }

    fn requests_merged(&mut self, ctx: &mut SchedCtx<'_>, _id: RequestId, next: RequestId) {
        self.queue.count_merge();
        self.remove(ctx, next);
    }

    fn former_request(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) -> Option<RequestId> {
        self.fifo.prev(ctx.rqs, id)
    }

    fn next_request(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) -> Option<RequestId> {
        self.fifo.next(ctx.rqs, id)
    }

    #[inline(always)]
    fn add_request(&mut self, ctx: &mut SchedCtx<'_>, _hctx: usize, id: RequestId) {
        ctx.rqs[id].elv[ELV_QUEUED] = 1;
        self.fifo.push_back(ctx.rqs, id);
        ctx.merge.add(ctx.rqs, id);
    }

    fn dispatch_request(&mut self, ctx: &mut SchedCtx<'_>, _hctx: usize) -> Option<RequestId> {
        if let Some(id) = self.queue.pop_head(ctx) {
            return Some(id);
        }
        let id = self.fifo.front()?;
        self.remove(ctx, id);
        self.queue.send(ctx, id)
    }

    fn has_work(&self, _hctx: usize) -> bool {
        !self.queue.head.is_empty() || !self.fifo.is_empty()
    }

    /// Nothing happens at an end.
    fn ends_can_wait(&self) -> bool {
        true
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.queue.counters([])
    }
}

/// Entry in the registry of schedulers.
pub const NOOP: ElevatorType = ElevatorType {
    name: "noop",
    help: "order of arrival, with merging",
    source: "Linux 4.x, block/noop-iosched.c",
    tunables: TUNABLES,
    attributes: &[],
    costs: Some(StepCosts {
        merge: 57,
        insert: 52,
        dispatch: 45,
        finish: 0,
    }),
    build: Some(&|info| Box::new(Noop::new(info))),
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounds::{Adversary, CROWD, Victim, assert_wait};
    use crate::test_queue::{TestQueue, queue_info};
    use blklab_blk::{Bio, Op, Sector};

    fn read(sector: u64) -> Bio {
        Bio::new(Op::Read, Sector(sector), 8)
    }

    #[test]
    fn goes_in_order_of_arrival() {
        let mut queue = TestQueue::new(Box::new(Noop::new(&queue_info())));
        let ids: Vec<_> = [800, 16, 400, 8]
            .map(|s| queue.insert(&read(s)))
            .into_iter()
            .flatten()
            .collect();
        assert_eq!(queue.drain(), ids);
    }

    #[test]
    fn joins_neighbours_in_the_queue_only() {
        let mut queue = TestQueue::new(Box::new(Noop::new(&queue_info())));
        let first = queue.insert(&read(0)).unwrap();
        let hole_end = queue.insert(&read(16)).unwrap();
        assert_eq!(queue.merge(&read(8)), Some(first));
        assert_eq!(queue.merged_away(), vec![hole_end]);
        assert_eq!(queue.drain(), vec![first]);
        assert_eq!(queue.rq(first).sectors, 24);
    }

    #[test]
    fn finds_nothing_to_put_a_bio_in_front_of() {
        let mut queue = TestQueue::new(Box::new(Noop::new(&queue_info())));
        queue.insert(&read(800)).unwrap();
        queue.insert(&read(16)).unwrap();
        // Sector 16 was inserted last but not merged last, so only the hash is used.
        assert_eq!(queue.merge(&read(8)), None);
    }

    #[test]
    fn waits_are_bounded() {
        // Requests that came before.
        assert_wait(&NOOP, &[], Victim::AsyncWrite, Adversary::Reads, CROWD);
        assert_wait(&NOOP, &[], Victim::Read, Adversary::SyncWrites, CROWD);
    }
}
