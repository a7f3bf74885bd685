//! Serving: which queue a request is taken from, and what its completion says.

use blklab_blk::{RequestId, RqFlags, SchedCtx};

use super::Bfq;
use super::budget::Expiration;
use super::queue::QueueId;

impl Bfq {
    /// The queue to take a request from (`bfq_select_queue`): the one in
    /// service, as long as it has requests and budget; another only for as long
    /// as that is waited for; else the next in service.
    fn select_queue(&mut self, ctx: &SchedCtx<'_>) -> Option<QueueId> {
        if let Some(q) = self.in_service {
            let reason = if self.may_expire_for_timeout(q) && !self.must_idle(q) {
                Expiration::BudgetTimeout
            } else {
                match self.serve_or_wait(ctx, q) {
                    Ok(served) => return served,
                    Err(reason) => reason,
                }
            };
            self.expire(ctx, q, false, reason);
        }
        loop {
            let q = self.take_next_into_service()?;
            match self.serve_or_wait(ctx, q) {
                Ok(served) => return served,
                Err(reason) => self.expire(ctx, q, false, reason),
            }
        }
    }

    /// What to serve while `q` is in service, or why it has to leave.
    fn serve_or_wait(
        &mut self,
        ctx: &SchedCtx<'_>,
        q: QueueId,
    ) -> Result<Option<QueueId>, Expiration> {
        if self.queues[q].next_rq.is_some() {
            if !self.can_afford_next(ctx, q) {
                return Err(Expiration::BudgetExhausted);
            }
            if self.queues[q].wait_request {
                self.stop_waiting(q);
            }
            return Ok(Some(q));
        }
        let queue = &self.queues[q];
        if !queue.wait_request && (queue.dispatched == 0 || !self.better_to_idle(q)) {
            return Err(Expiration::NoMoreRequests);
        }
        if let Some(related) = self.related_to_serve(ctx, q) {
            return Ok(Some(related));
        }
        let queue = &self.queues[q];
        let inject = !self.idling_boosts_throughput(q)
            && (!queue.is_raised() || self.wr_busy > 1 || !queue.short_ttime);
        Ok(match inject {
            true => self.choose_for_injection(ctx, q),
            false => None,
        })
    }

    fn take_next_into_service(&mut self) -> Option<QueueId> {
        let next = self.take_next_queue();
        if let Some(q) = next {
            self.queues[q].fifo_checked = false;
            self.count_budget();
            self.prolong_soft_rt(q);
            self.start_budget(q);
        }
        self.in_service = next;
        self.in_service_position = 0;
        next
    }

    /// Takes the next request of a queue.
    fn dispatch_from(&mut self, ctx: &mut SchedCtx<'_>, q: QueueId) -> Option<RequestId> {
        let id = self.queues[q].next_rq?;
        let charge = self.charge_of(ctx, q, id);
        self.book_service(q, charge as u64);
        let in_service = self.in_service == Some(q);
        if in_service && self.wait_dispatch {
            self.wait_dispatch = false;
            self.waited_rq = Some(id);
        }
        self.queues[q].dispatched += 1;
        self.rate_on_dispatch(ctx, id);
        if in_service {
            self.in_service_position = self.last_position;
        }
        self.remove_request(ctx, q, id);
        if !in_service {
            self.injected += 1;
            return Some(id);
        }
        self.update_raising(q);
        // The idle class gets one request at a time when others wait.
        if self.busy_total() > 1 && self.queues[q].is_idle_class() {
            self.expire(ctx, q, false, Expiration::BudgetExhausted);
        }
        Some(id)
    }

    /// The next request for the drive.
    pub(super) fn dispatch_one(&mut self, ctx: &mut SchedCtx<'_>) -> Option<RequestId> {
        if let Some(id) = self.dispatch.pop_front(ctx.rqs) {
            if let Some(q) = Bfq::queue_of(&ctx.rqs[id]) {
                self.queues[q].dispatched += 1;
            }
            return Some(self.start(ctx, id));
        }
        if self.busy_total() == 0 || (self.set.strict_guarantees && self.in_driver > 0) {
            return None;
        }
        let q = self.select_queue(ctx)?;
        let id = self.dispatch_from(ctx, q)?;
        Some(self.start(ctx, id))
    }

    fn start(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) -> RequestId {
        self.in_driver += 1;
        self.last_dispatched = Bfq::queue_of(&ctx.rqs[id]);
        ctx.rqs[id].rq_flags.set(RqFlags::STARTED);
        id
    }

    /// The drive is done with a request, or gave it back.
    pub(super) fn request_left_drive(&mut self, ctx: &SchedCtx<'_>, q: QueueId, id: RequestId) {
        if self.waited_rq == Some(id) {
            self.update_injection(q);
        }
        self.observe_drive_queue();
        self.in_driver -= 1;
        let jiffies = self.jiffies;
        let queue = &mut self.queues[q];
        queue.dispatched -= 1;
        if queue.dispatched == 0 && !queue.busy {
            // From now on it is idle.
            queue.budget_timeout = jiffies;
            self.uncount_pending(q);
            self.uncount_weight(q);
        }
        self.queues[q].ttime.last_end_ns = self.now_ns;
        self.rate_on_completion();
        // Who of several processes is to be thanked cannot be told.
        self.last_completed = (!self.queues[q].coop).then_some(q);
        let queue = &self.queues[q];
        if queue.soft_rt_update
            && queue.dispatched == 0
            && queue.sorted.is_empty()
            && queue.raising.coeff != self.interactive_coeff()
        {
            self.queues[q].soft_rt_next_start = self.soft_rt_next_start(q);
        }
        if self.in_service == Some(q) && self.waits_or_expires(ctx, q) {
            return;
        }
        if self.in_driver == 0 {
            self.run_queues();
        }
    }

    /// The queue in service may now have to be waited for, or leave. Returns
    /// whether it is waited for.
    fn waits_or_expires(&mut self, ctx: &SchedCtx<'_>, q: QueueId) -> bool {
        if self.must_idle(q) {
            if self.queues[q].dispatched == 0 {
                self.arm_slice_timer(q);
            }
            return true;
        }
        let queue = &self.queues[q];
        if self.may_expire_for_timeout(q) {
            self.expire(ctx, q, false, Expiration::BudgetTimeout);
        } else if queue.sorted.is_empty() && (queue.dispatched == 0 || !self.better_to_idle(q)) {
            self.expire(ctx, q, false, Expiration::NoMoreRequests);
        }
        false
    }
}
