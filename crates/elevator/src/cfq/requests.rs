//! Requests inside a queue: in what order they go.

use super::*;

impl Cfq {
    /// What it costs to get to a request from `from`; `None` where it lies too
    /// far behind to go back to.
    pub(super) fn way_to(&self, sector: u64, from: u64) -> Option<u64> {
        let back_max = self.tunables.at(BACK_SEEK_MAX) as u64 * 2;
        if sector >= from {
            Some(sector - from)
        } else if sector.saturating_add(back_max) >= from {
            let penalty = self.tunables.at(BACK_SEEK_PENALTY) as u64;
            Some((from - sector).saturating_mul(penalty))
        } else {
            None
        }
    }

    /// The better of two requests from `from`: synchronous before not, metadata
    /// before data, then the shorter way.
    pub(super) fn better(
        &self,
        ctx: &SchedCtx<'_>,
        one: Option<RequestId>,
        two: Option<RequestId>,
        from: u64,
    ) -> Option<RequestId> {
        let (Some(a), Some(b)) = (one, two) else {
            return one.or(two);
        };
        let (rq_a, rq_b) = (&ctx.rqs[a], &ctx.rqs[b]);
        if rq_a.is_sync() != rq_b.is_sync() {
            return Some(if rq_a.is_sync() { a } else { b });
        }
        if is_prio(rq_a) != is_prio(rq_b) {
            return Some(if is_prio(rq_a) { a } else { b });
        }
        let (at_a, at_b) = (rq_a.sector.0, rq_b.sector.0);
        let take_a = match (self.way_to(at_a, from), self.way_to(at_b, from)) {
            (Some(x), Some(y)) if x == y => at_a >= at_b,
            (Some(x), Some(y)) => x < y,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            // Both far behind: from the furthest only one way back is needed.
            (None, None) => at_a <= at_b,
        };
        Some(if take_a { a } else { b })
    }

    /// The best request of a queue after `id`, which is queued.
    pub(super) fn after(
        &self,
        ctx: &SchedCtx<'_>,
        queue: QueueId,
        id: RequestId,
    ) -> Option<RequestId> {
        let sorted = &self.queues[queue].sorted;
        let prev = sorted.prev(ctx.rqs, id);
        let wrapped = || sorted.first().filter(|&first| first != id);
        let next = sorted.next(ctx.rqs, id).or_else(wrapped);
        self.better(ctx, next, prev, ctx.rqs[id].sector.0)
    }

    pub(super) fn add_sorted(
        &mut self,
        ctx: &mut SchedCtx<'_>,
        queue: QueueId,
        id: RequestId,
        now: i64,
    ) {
        self.queues[queue].sorted.insert(ctx.rqs, id);
        if !self.queues[queue].on_rr {
            self.enter_service(queue, now);
        }
        let next = self.queues[queue].next_rq;
        self.queues[queue].next_rq = self.better(ctx, next, Some(id), self.last_position);
    }

    /// Takes a queued request out of everything it is in.
    pub(super) fn remove(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        ctx.merge.remove(ctx.rqs, id);
        // One that merges while it is being inserted is in no list yet.
        let (true, Some(queue)) = (ctx.rqs[id].is_sorted(), queue_of(&ctx.rqs[id])) else {
            return;
        };
        if self.queues[queue].next_rq == Some(id) {
            self.queues[queue].next_rq = self.after(ctx, queue, id);
        }
        let q = &mut self.queues[queue];
        q.fifo.remove(ctx.rqs, id);
        q.sorted.remove(ctx.rqs, id);
        q.prio_pending -= is_prio(&ctx.rqs[id]) as u32;
        self.queued -= 1;
    }

    /// The oldest request, once a slice, where its deadline has passed.
    pub(super) fn late_request(&mut self, ctx: &SchedCtx<'_>, queue: QueueId) -> Option<RequestId> {
        let q = &mut self.queues[queue];
        if std::mem::replace(&mut q.fifo_checked, true) {
            return None;
        }
        let oldest = q.fifo.front()?;
        let late = jiffies(ctx.now) >= ctx.rqs[oldest].fifo_time.0 as i64;
        self.expired += late as u64;
        late.then_some(oldest)
    }
}
