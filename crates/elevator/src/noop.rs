//! noop, as Linux 4.x had it (`block/noop-iosched.c`).
//!
//! One queue in order of arrival. What a bio continues is found through the
//! block layer's hash of end sectors, so back merges work as they do for any
//! scheduler. There is no sorted list, so of requests that a bio could go in
//! front of only the one merged last is seen. When a request has grown it is
//! joined with its neighbour in the queue where the two touch, which sorted
//! neighbours would do more often.
//!
//! The kernel moved each request through `elv_dispatch_sort` into the queue
//! that the driver takes from. The driver asks only when that queue is empty,
//! so the sort never had anything to sort, and there is none here.

use blklab_blk::{RequestId, Requests, RqList, SchedCtx, Tunable, Tunables};

use crate::single_queue::Policy;

/// It has none.
pub const TUNABLES: &[Tunable] = &[];

/// `elv[0]`: one while the request is in the queue.
const ELV_QUEUED: usize = 0;

/// The scheduler's state.
pub struct Noop {
    tunables: Tunables,
    queue: RqList,
}

impl Noop {
    /// A fresh one.
    pub fn new() -> Noop {
        Noop {
            tunables: Tunables::new(TUNABLES),
            queue: RqList::new(),
        }
    }
}

impl Policy for Noop {
    const NAME: &'static str = "noop";

    fn add(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        ctx.rqs[id].elv[ELV_QUEUED] = 1;
        self.queue.push_back(ctx.rqs, id);
        ctx.merge.add(ctx.rqs, id);
    }

    fn choose(&mut self, _ctx: &SchedCtx<'_>) -> Option<RequestId> {
        self.queue.front()
    }

    fn remove(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        if ctx.rqs[id].elv[ELV_QUEUED] == 1 {
            ctx.rqs[id].elv[ELV_QUEUED] = 0;
            self.queue.remove(ctx.rqs, id);
            ctx.merge.remove(ctx.rqs, id);
        }
    }

    fn former(&self, rqs: &Requests, id: RequestId) -> Option<RequestId> {
        self.queue.prev(rqs, id)
    }

    fn latter(&self, rqs: &Requests, id: RequestId) -> Option<RequestId> {
        self.queue.next(rqs, id)
    }

    fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    fn tunables(&self) -> &Tunables {
        &self.tunables
    }

    fn tunables_mut(&mut self) -> &mut Tunables {
        &mut self.tunables
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rig::Rig;
    use crate::single_queue::SingleQueue;
    use blklab_blk::{Bio, Op, Sector};

    fn read(sector: u64) -> Bio {
        Bio::new(Op::Read, Sector(sector), 8)
    }

    #[test]
    fn goes_in_order_of_arrival() {
        let mut rig = Rig::new(SingleQueue::of(Noop::new()));
        let ids: Vec<_> = [800, 16, 400, 8]
            .map(|s| rig.insert(&read(s)))
            .into_iter()
            .flatten()
            .collect();
        assert_eq!(rig.drain(), ids);
    }

    #[test]
    fn joins_neighbours_in_the_queue_only() {
        let mut rig = Rig::new(SingleQueue::of(Noop::new()));
        let first = rig.insert(&read(0)).unwrap();
        let hole_end = rig.insert(&read(16)).unwrap();
        assert_eq!(rig.merge(&read(8)), Some(first));
        assert_eq!(rig.swallowed(), vec![hole_end]);
        assert_eq!(rig.drain(), vec![first]);
        assert_eq!(rig.rq(first).sectors, 24);
    }

    #[test]
    fn finds_nothing_to_put_a_bio_in_front_of() {
        let mut rig = Rig::new(SingleQueue::of(Noop::new()));
        rig.insert(&read(800)).unwrap();
        rig.insert(&read(16)).unwrap();
        // 16 was inserted last but not merged last, so only the hash is asked.
        assert_eq!(rig.merge(&read(8)), None);
    }
}
