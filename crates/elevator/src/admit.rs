//! The way in that most schedulers share.

use blklab_blk::{Elevator, InsertAt, RequestId, RqList, SchedCtx, sched_try_insert_merge};

/// Whether a request that comes is left for its scheduler to queue. It is not
/// where it is inserted at the head, as requeues and the data of flush
/// sequences are: it goes into `head_list`, which is served before all else.
/// Nor is it where a queued request swallows it.
#[inline(always)]
pub fn admit<E: Elevator>(
    elevator: &mut E,
    head_list: impl FnOnce(&mut E) -> &mut RqList,
    ctx: &mut SchedCtx<'_>,
    id: RequestId,
    at: InsertAt,
) -> bool {
    if at == InsertAt::Tail && sched_try_insert_merge(elevator, ctx, id) {
        return false;
    }
    ctx.trace_insert(id);
    if at == InsertAt::Head {
        head_list(elevator).push_front(ctx.rqs, id);
    }
    at == InsertAt::Tail
}
