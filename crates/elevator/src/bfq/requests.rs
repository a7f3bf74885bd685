//! The requests of a queue: they are inserted by position and by age and dispatched one at a time.
//! Also the transitions of a queue between idle and busy.

use blklab_blk::{BioFlags, Nanos, RequestId, RqFlags, SchedCtx, msecs_to_jiffies};

use super::Bfq;
use super::budget::Expiration;
use super::queue::QueueId;

/// A smaller request may be held back for merging, in sectors.
const SMALL_REQUEST_SECTORS: u32 = 32;
/// After this long without requests a queue no longer belongs to its burst, in milliseconds.
const BURST_OVER_MS: i64 = 10_000;

/// Distance of a request from the end of the previous one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Distance {
    /// Ahead, or behind by at most `back_seek_max`, which counts `back_seek_penalty` times.
    Near(u64),
    /// Further behind, so that everything ahead comes first.
    Wraps,
}

impl Bfq {
    fn distance(&self, sector: u64, last: u64) -> Distance {
        if sector >= last {
            Distance::Near(sector - last)
        } else if sector.saturating_add(self.settings.back_max_sectors) >= last {
            Distance::Near((last - sector).saturating_mul(self.settings.back_penalty))
        } else {
            Distance::Wraps
        }
    }

    /// Chooses the request to serve first (`bfq_choose_req`): a synchronous one, then metadata,
    /// then the one closer to `last`.
    fn choose(
        &self,
        ctx: &SchedCtx<'_>,
        first: Option<RequestId>,
        second: Option<RequestId>,
        last: u64,
    ) -> Option<RequestId> {
        let (Some(a), Some(b)) = (first, second) else {
            return first.or(second);
        };
        if a == b {
            return Some(a);
        }
        let (ra, rb) = (&ctx.rqs[a], &ctx.rqs[b]);
        if ra.is_sync() != rb.is_sync() {
            return Some(if ra.is_sync() { a } else { b });
        }
        let (meta_a, meta_b) = (ra.flags.has(BioFlags::META), rb.flags.has(BioFlags::META));
        if meta_a != meta_b {
            return Some(if meta_a { a } else { b });
        }
        let (sa, sb) = (ra.sector.0, rb.sector.0);
        let (da, db) = (self.distance(sa, last), self.distance(sb, last));
        let a_first = match (da, db) {
            // Both are far behind: one seek back to the lower one serves both.
            (Distance::Wraps, Distance::Wraps) => sa <= sb,
            _ if da == db => sa >= sb,
            _ => da < db,
        };
        Some(if a_first { a } else { b })
    }

    /// The oldest request, if its deadline has passed; checked once in a service slot
    /// (`bfq_check_fifo`).
    fn check_fifo(&mut self, ctx: &SchedCtx<'_>, q: QueueId, last: RequestId) -> Option<RequestId> {
        let queue = &mut self.queues[q];
        if core::mem::replace(&mut queue.fifo_checked, true) {
            return None;
        }
        let oldest = queue.fifo.front()?;
        let due = oldest != last && Nanos(self.now_ns) >= ctx.rqs[oldest].fifo_time;
        due.then_some(oldest)
    }

    /// The request after `last`, which was between `behind` and `ahead`.
    fn find_next(
        &mut self,
        ctx: &SchedCtx<'_>,
        q: QueueId,
        last: RequestId,
        (behind, ahead): (Option<RequestId>, Option<RequestId>),
    ) -> Option<RequestId> {
        if let Some(oldest) = self.check_fifo(ctx, q, last) {
            return Some(oldest);
        }
        let ahead = ahead.or_else(|| self.queues[q].sorted.first());
        self.choose(ctx, ahead, behind, ctx.rqs[last].sector.0)
    }

    /// Updates the queue's node in the tree of next requests.
    pub(super) fn move_position(&mut self, ctx: &SchedCtx<'_>, q: QueueId) {
        if !self.queueing_flash {
            let next = self.queues[q].next_rq.map(|id| ctx.rqs[id].sector);
            self.update_position(q, next);
        }
    }

    /// Inserts a request into its queue.
    pub(super) fn insert_into_queue(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        let q = self.follow_cooperator(ctx, id);
        let context = Bfq::context_of(&ctx.rqs[id]).expect("a request that is inserted has one");
        self.update_think_time(q);
        self.update_short_ttime(q, context);
        self.update_seeks(ctx, q, id);
        self.add_request(ctx, q, id, context);
        let sync = ctx.rqs[id].is_sync() as usize;
        ctx.rqs[id].fifo_time =
            Nanos(self.now_ns).saturating_add(Nanos(self.settings.fifo_expire_ns[sync]));
        self.queues[q].fifo.push_back(ctx.rqs, id);
        self.request_enqueued(ctx, q, id);
    }

    /// The request's queue, after a merge that the request may cause.
    fn follow_cooperator(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) -> QueueId {
        let rq = &ctx.rqs[id];
        let old = Bfq::queue_of(rq).expect("a request that is inserted has a queue");
        let context = Bfq::context_of(rq).expect("and a context");
        let Some(into) = self.find_cooperator(old, rq.sector, context) else {
            return old;
        };
        self.request_allocated(into);
        if self.contexts[context].queues[1] == Some(old) {
            let mut q = old;
            while q != into {
                q = self.merge(context, q);
            }
        }
        self.queues[old].just_created = false;
        self.request_freed(old);
        self.release(old);
        ctx.rqs[id].elv[super::submitter::ELV_QUEUE] = into.index() as u32 + 1;
        into
    }

    #[inline(always)]
    fn add_request(&mut self, ctx: &mut SchedCtx<'_>, q: QueueId, id: RequestId, context: usize) {
        let old_coeff = self.queues[q].raising.coeff;
        let sync = ctx.rqs[id].is_sync();
        self.queues[q].queued[sync as usize] += 1;
        self.queued += 1;
        if self.queues[q].sync {
            if self.contexts[context].requests <= 1 {
                self.prepare_injection_sample(q);
            }
            self.update_io_bound(q);
        }
        self.queues[q].sorted.insert(ctx.rqs, id);
        let before = self.queues[q].next_rq;
        let next = self.choose(ctx, before, Some(id), self.last_position);
        self.queues[q].next_rq = next;
        if before != next {
            self.move_position(ctx, q);
        }
        let mut interactive = false;
        if !self.queues[q].busy {
            interactive = self.idle_to_busy(ctx, q, old_coeff, context);
        } else {
            if self.settings.low_latency && old_coeff == 1 && !sync {
                self.raise_busy_async(q);
            }
            if before != next {
                self.next_request_changed(ctx, q);
            }
        }
        // Set for a queue that is not raised and when raising begins.
        let queue = &mut self.queues[q];
        if self.settings.low_latency && (old_coeff == 1 || !queue.is_raised() || interactive) {
            queue.raising.start_finish = self.jiffies;
        }
    }

    /// Handles the first request of an idle queue (`bfq_bfqq_handle_idle_busy_switch`). Returns
    /// whether the queue seems interactive.
    fn idle_to_busy(
        &mut self,
        ctx: &mut SchedCtx<'_>,
        q: QueueId,
        old_coeff: u32,
        context: usize,
    ) -> bool {
        let idle_for_long = self.idle_for_long(q);
        let deadline = self.queues[q].ttime.last_end_ns + 3 * self.settings.slice_idle_ns;
        let arrived_in_time = self.now_ns <= deadline;
        let single = self.queues[q].context.is_some() || self.contexts[context].stably_merged;
        let arrival = self.classify_arrival(q, old_coeff, single);
        let wants_drive = self.budget_for_activation(ctx, q, arrived_in_time);
        let queue = &self.queues[q];
        let over = queue.budget_timeout + msecs_to_jiffies(BURST_OVER_MS) < self.jiffies;
        if !queue.just_created && idle_for_long && over {
            self.forget_burst(q);
            self.queues[q].in_large_burst = false;
        }
        self.queues[q].just_created = false;
        let since_split = super::weight_raising::min_idle_time() + self.queues[q].split;
        if self.settings.low_latency && since_split < self.jiffies {
            self.raise_on_arrival(q, &arrival);
            if self.queues[q].raising.coeff != old_coeff {
                self.queues[q].entity.prio_changed = true;
            }
        }
        let queue = &mut self.queues[q];
        queue.last_idle_to_busy = self.jiffies;
        queue.service_since_idle = 0;
        queue.soft_rt_update = false;
        self.add_busy(q);
        if let Some(now) = self.in_service
            && self.may_preempt(q, now, wants_drive)
            && self.next_may_preempt()
        {
            self.expire(ctx, now, false, Expiration::Preempted);
        }
        arrival.interactive
    }

    /// Whether a queue that became busy may preempt the one in service: because it continues its
    /// budget, has a higher class or weight, or the drive need not be idled for the other.
    fn may_preempt(&self, q: QueueId, now: QueueId, wants_drive: bool) -> bool {
        let (new, old) = (&self.queues[q], &self.queues[now]);
        let outweighs = match new.group == old.group {
            true => new.entity.weight > old.entity.weight,
            false => self.weight_outside_group(q) > self.weight_outside_group(now),
        };
        (wants_drive && new.raising.coeff >= old.raising.coeff)
            || new.class < old.class
            || outweighs
            || !self.better_to_idle(now)
    }

    fn add_busy(&mut self, q: QueueId) {
        self.activate(q);
        let queue = &mut self.queues[q];
        queue.busy = true;
        self.busy[queue.class] += 1;
        let raised = queue.is_raised();
        if queue.dispatched == 0 {
            self.count_pending(q);
            if !raised {
                self.count_weight(q);
            }
        }
        self.wr_busy += raised as u32;
        self.move_to_front_of_woken(q);
    }

    pub(super) fn del_busy(&mut self, q: QueueId, expiration: bool) {
        let queue = &mut self.queues[q];
        queue.busy = false;
        self.busy[queue.class] -= 1;
        self.wr_busy -= queue.is_raised() as u32;
        let in_driver = queue.dispatched > 0;
        self.deactivate(q, true, expiration);
        if !in_driver {
            self.uncount_pending(q);
            self.uncount_weight(q);
        }
    }

    /// Handles an insert into the queue in service for which the drive idles. A small request may
    /// be held back for the rest of the idle slice to merge with others.
    fn request_enqueued(&mut self, ctx: &SchedCtx<'_>, q: QueueId, id: RequestId) {
        let rq = &ctx.rqs[id];
        let (end, sync) = (rq.end().0, rq.is_sync() as usize);
        let small = rq.sectors < SMALL_REQUEST_SECTORS && self.queues[q].queued[sync] == 1;
        self.queues[q].last_request_pos = end;
        if self.in_service != Some(q) || !self.queues[q].wait_request {
            return;
        }
        let timeout = self.is_past_timeout(q);
        if small && self.idling_boosts_throughput(q) && !timeout {
            return;
        }
        self.stop_waiting(q);
        if timeout {
            self.expire(ctx, q, false, Expiration::BudgetTimeout);
        }
    }

    /// Removes a request from its queue.
    pub(super) fn remove_request(&mut self, ctx: &mut SchedCtx<'_>, q: QueueId, id: RequestId) {
        let neighbours = self.queues[q].sorted.take(ctx.rqs, id);
        if self.queues[q].next_rq == Some(id) {
            self.queues[q].next_rq = self.find_next(ctx, q, id, neighbours);
            self.next_request_changed(ctx, q);
        }
        let sync = ctx.rqs[id].is_sync() as usize;
        let queue = &mut self.queues[q];
        queue.fifo.remove(ctx.rqs, id);
        queue.queued[sync] -= 1;
        self.queued -= 1;
        ctx.merge.remove(ctx.rqs, id);
        if !self.queues[q].sorted.is_empty() {
            return self.move_position(ctx, q);
        }
        self.queues[q].next_rq = None;
        if self.queues[q].busy && self.in_service != Some(q) {
            self.del_busy(q, false);
            let entity = &mut self.queues[q].entity;
            entity.budget = 0;
            entity.service = 0;
        }
        self.remove_position_of(q);
    }

    /// Handles a bio merged in front of a request.
    pub(super) fn front_merged(&mut self, ctx: &mut SchedCtx<'_>, q: QueueId, id: RequestId) {
        let behind = self.queues[q].sorted.prev(ctx.rqs, id);
        let overtook = behind.is_some_and(|b| ctx.rqs[id].sector < ctx.rqs[b].sector);
        let sorted = &mut self.queues[q].sorted;
        sorted.remove(ctx.rqs, id);
        sorted.insert(ctx.rqs, id);
        if !overtook {
            return;
        }
        let before = self.queues[q].next_rq;
        let next = self.choose(ctx, before, Some(id), self.last_position);
        self.queues[q].next_rq = next;
        if before != next {
            self.next_request_changed(ctx, q);
            self.move_position(ctx, q);
        }
    }

    /// Handles the merge of `next` into `id`, which takes over an earlier deadline with its place
    /// in the FIFO, and the role of `next_rq`.
    pub(super) fn merge_requests(
        &mut self,
        ctx: &mut SchedCtx<'_>,
        id: RequestId,
        next: RequestId,
    ) {
        let queues = (Bfq::queue_of(&ctx.rqs[id]), Bfq::queue_of(&ctx.rqs[next]));
        let both_queued = ctx.rqs[id].is_sorted() && ctx.rqs[next].is_sorted();
        if let (Some(q), Some(other)) = queues {
            if q == other && both_queued {
                self.queues[q].fifo.inherit_deadline(ctx.rqs, id, next);
            }
            if self.queues[q].next_rq == Some(next) {
                self.queues[q].next_rq = Some(id);
            }
        }
        if ctx.rqs[next].is_sorted()
            && let Some(other) = queues.1
        {
            self.remove_request(ctx, other, next);
        }
    }
}

// Service: the queue that a request is dispatched from, and the effects of its completion.

impl Bfq {
    /// Chooses the queue to dispatch from (`bfq_select_queue`): the one in service while it has
    /// requests and budget, another one while the drive idles for it, otherwise the next one.
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

    /// The queue to serve while `q` is in service, or the reason why `q` expires.
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
        if let Some(related) = self.async_waker_or_woken(ctx, q) {
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

    /// Dispatches the next request of a queue.
    fn dispatch_from(&mut self, ctx: &mut SchedCtx<'_>, q: QueueId) -> Option<RequestId> {
        let id = self.queues[q].next_rq?;
        let charge = self.charge_of(ctx, q, id);
        self.charge_service(q, charge as u64);
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
        // A queue of the idle class gets one request at a time while others are busy.
        if self.busy_total() > 1 && self.queues[q].is_idle_class() {
            self.expire(ctx, q, false, Expiration::BudgetExhausted);
        }
        Some(id)
    }

    /// The next request for the drive.
    pub(super) fn dispatch_one(&mut self, ctx: &mut SchedCtx<'_>) -> Option<RequestId> {
        if let Some(id) = self.queue.head.pop_front(ctx.rqs) {
            if let Some(q) = Bfq::queue_of(&ctx.rqs[id]) {
                self.queues[q].dispatched += 1;
            }
            return Some(self.start(ctx, id));
        }
        if self.busy_total() == 0 || (self.settings.strict_guarantees && self.in_driver > 0) {
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

    /// Handles a request that completed or was requeued (`bfq_completed_request`).
    pub(super) fn request_completed(&mut self, ctx: &SchedCtx<'_>, q: QueueId, id: RequestId) {
        if self.waited_rq == Some(id) {
            self.update_injection(q);
        }
        self.observe_drive_queue();
        self.in_driver -= 1;
        let jiffies = self.jiffies;
        let queue = &mut self.queues[q];
        queue.dispatched -= 1;
        if queue.dispatched == 0 && !queue.busy {
            // The queue's idle time starts now.
            queue.budget_timeout = jiffies;
            self.uncount_pending(q);
            self.uncount_weight(q);
        }
        self.queues[q].ttime.last_end_ns = self.now_ns;
        self.rate_on_completion();
        // In a shared queue it is unknown which process woke another.
        self.last_completed = (!self.queues[q].coop).then_some(q);
        let queue = &self.queues[q];
        if queue.soft_rt_update
            && queue.dispatched == 0
            && queue.sorted.is_empty()
            && queue.raising.coeff != self.interactive_coeff()
        {
            self.queues[q].soft_rt_next_start = self.soft_rt_next_start(q);
        }
        if self.in_service == Some(q) && self.idle_or_expire(ctx, q) {
            return;
        }
        if self.in_driver == 0 {
            self.run_queues();
        }
    }

    /// Idles for the queue in service or expires it, if it is time for that. Returns whether the
    /// drive idles.
    fn idle_or_expire(&mut self, ctx: &SchedCtx<'_>, q: QueueId) -> bool {
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
