//! Waiting requests by deadline.

use std::collections::VecDeque;

use blklab_blk::{RequestId, RqList, SchedCtx};

/// Deadlines are cut by this many bits: about a millisecond.
const QUANTUM_SHIFT: u32 = 20;

/// Requests in order of their deadlines' moments, and in one moment by arrival.
/// New moments are mostly the last, so a sorted ring is cheaper than a tree.
#[derive(Debug, Default)]
pub(super) struct DeadlineQueue {
    moments: VecDeque<(u64, RqList)>,
}

impl DeadlineQueue {
    /// Where a moment is or belongs. New ones are mostly the last, and those
    /// taken out the first, so both ends are looked at before the rest.
    fn place_of(&self, moment: u64) -> usize {
        match (self.moments.front(), self.moments.back()) {
            (Some(&(first, _)), _) if first >= moment => 0,
            (_, Some(&(last, _))) if last == moment => self.moments.len() - 1,
            (_, Some(&(last, _))) if last < moment => self.moments.len(),
            _ => self.moments.partition_point(|&(m, _)| m < moment),
        }
    }

    pub(super) fn insert(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        let moment = ctx.rqs[id].fifo_time.0 >> QUANTUM_SHIFT;
        let at = self.place_of(moment);
        if self.moments.get(at).is_none_or(|&(m, _)| m != moment) {
            self.moments.insert(at, (moment, RqList::new()));
        }
        self.moments[at].1.push_back(ctx.rqs, id);
    }

    pub(super) fn remove(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        let at = self.place_of(ctx.rqs[id].fifo_time.0 >> QUANTUM_SHIFT);
        self.moments[at].1.remove(ctx.rqs, id);
        if self.moments[at].1.is_empty() {
            self.moments.remove(at);
        }
    }

    pub(super) fn first(&self) -> Option<RequestId> {
        self.moments.front()?.1.front()
    }
}
