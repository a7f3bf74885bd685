//! Queued requests by kind, each kind in order of arrival: the queues of the
//! schedulers that do not sort.

use blklab_blk::{RequestId, Requests, RqList, SchedCtx};

/// `elv[0]`: a request's kind, and one more so that zero says not queued.
const ELV_KIND: usize = 0;

/// A queue for each of `KINDS` kinds.
pub struct Fifos<const KINDS: usize>([RqList; KINDS]);

impl<const KINDS: usize> Default for Fifos<KINDS> {
    fn default() -> Self {
        Fifos([RqList::new(); KINDS])
    }
}

impl<const KINDS: usize> Fifos<KINDS> {
    /// Queues a request behind those of its kind.
    #[inline]
    pub fn push_back(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId, kind: usize) {
        ctx.rqs[id].elv[ELV_KIND] = kind as u32 + 1;
        self.0[kind].push_back(ctx.rqs, id);
        ctx.merge.add(ctx.rqs, id);
    }

    /// The kind of a request, if it is queued.
    #[inline]
    pub fn kind_of(&self, rqs: &Requests, id: RequestId) -> Option<usize> {
        let kind = rqs[id].elv[ELV_KIND].checked_sub(1)?;
        Some(kind as usize)
    }

    /// Takes a request out; one that merges while it is being inserted is in no
    /// queue yet.
    #[inline]
    pub fn remove(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        if let Some(kind) = self.kind_of(ctx.rqs, id) {
            ctx.rqs[id].elv[ELV_KIND] = 0;
            self.0[kind].remove(ctx.rqs, id);
            ctx.merge.remove(ctx.rqs, id);
        }
    }

    /// `next` became part of `id`, which takes over the earlier deadline
    /// together with its place where both are of one kind.
    #[inline]
    pub fn merged(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId, next: RequestId) {
        let kind = self.kind_of(ctx.rqs, id);
        if let Some(kind) = kind
            && self.kind_of(ctx.rqs, next) == Some(kind)
        {
            self.0[kind].inherit_deadline(ctx.rqs, id, next);
        }
    }

    /// Whether nothing is queued.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(RqList::is_empty)
    }

    /// The oldest request of a kind.
    #[inline]
    pub fn front(&self, kind: usize) -> Option<RequestId> {
        self.0[kind].front()
    }

    /// The oldest of each kind that has any.
    #[inline]
    pub fn fronts(&self) -> impl Iterator<Item = RequestId> {
        self.0.iter().filter_map(RqList::front)
    }

    /// The request queued before this one, if it is queued.
    #[inline]
    pub fn prev(&self, rqs: &Requests, id: RequestId) -> Option<RequestId> {
        self.0[self.kind_of(rqs, id)?].prev(rqs, id)
    }

    /// The request queued behind this one, if it is queued.
    #[inline]
    pub fn next(&self, rqs: &Requests, id: RequestId) -> Option<RequestId> {
        self.0[self.kind_of(rqs, id)?].next(rqs, id)
    }
}
