//! A discard, and what came behind it.
//!
//! The source takes a request for a barrier where the bit of the flush
//! operation is set in its operation. Flushes themselves never reach a
//! scheduler of blk-mq, but a discard's number has that bit too.

use blklab_blk::{Op, RequestId, SchedCtx};

use super::Adios;

pub(super) fn is_barrier(op: Op) -> bool {
    matches!(op, Op::Flush | Op::Discard)
}

impl Adios {
    /// All before a barrier has been sent: it goes, and what came behind it, up
    /// to the next barrier, may wait for its turn.
    pub(super) fn release_barrier(&mut self, ctx: &mut SchedCtx<'_>) -> Option<RequestId> {
        let barrier = self.behind_barrier.pop_front(ctx.rqs)?;
        self.start_way(barrier);
        while let Some(id) = self.behind_barrier.front() {
            if is_barrier(ctx.rqs[id].op) {
                break;
            }
            self.behind_barrier.remove(ctx.rqs, id);
            self.merge_or_wait(ctx, id);
        }
        self.turn_head(ctx);
        Some(barrier)
    }
}
