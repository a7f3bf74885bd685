//! The queue to serve, and how many of its requests may be in the drive.

use super::*;

impl Cfq {
    pub(super) fn expire_and_choose(&mut self, now: i64, next: Option<QueueId>) -> Option<QueueId> {
        self.expire_slice(now, false);
        self.choose_queue(now, next)
    }

    pub(super) fn choose_queue(&mut self, now: i64, next: Option<QueueId>) -> Option<QueueId> {
        if self.busy == 0 || self.queued == 0 {
            return None;
        }
        let next = next.or_else(|| {
            self.choose_group(now);
            let tree = &self.groups[self.serving].trees[tree_index(self.class, self.workload)];
            tree.queues.first().map(|&(_, id)| id)
        });
        self.activate(now, next);
        next
    }

    /// With one queue left, and requests of it in the drive, nothing is gained
    /// by ending its turn.
    pub(super) fn group_should_wait(&self, id: QueueId) -> bool {
        let group = &self.groups[self.queues[id].group];
        let group_idle = self.ticks(GROUP_IDLE);
        group_idle > 0
            && group.busy == 1
            && group.dispatched > 0
            && !group.think_time.is_longer_than(group_idle)
    }

    /// The queue to serve; `None` to keep the drive waiting.
    pub(super) fn select_queue(&mut self, ctx: &SchedCtx<'_>) -> Option<QueueId> {
        let now = jiffies(ctx.now);
        let Some(id) = self.active else {
            return self.choose_queue(now, None);
        };
        if self.queued == 0 {
            return None;
        }
        let q = &self.queues[id];
        let (empty, in_drive) = (q.is_empty(), q.dispatched > 0);
        if q.wait_busy && !empty {
            return self.expire_and_choose(now, None);
        }
        if self.slice_used(id, now) && !q.must_dispatch {
            let wait = self.busy_in_group(id) == 1 && empty && in_drive && self.should_idle(id);
            if wait || self.group_should_wait(id) {
                return None;
            }
            return self.expire_and_choose(now, None);
        }
        if !empty {
            return Some(id);
        }
        if let Some(close) = self.close_cooperator(ctx, id) {
            if self.queues[id].merges_into.is_none() {
                self.plan_merge(id, close);
            }
            return self.expire_and_choose(now, Some(close));
        }
        if self.idle_until.is_some() {
            return None;
        }
        self.stop_idling_if_deep(id, now);
        if (in_drive && self.should_idle(id)) || self.group_should_wait(id) {
            return None;
        }
        self.expire_and_choose(now, None)
    }

    /// A queue that seeks with many requests at once, on a drive that is faster
    /// than it, is not waited for.
    pub(super) fn stop_idling_if_deep(&mut self, id: QueueId, now: i64) {
        let q = &mut self.queues[id];
        let early = q.slice_new || q.slice_end - now > now - q.slice_start;
        if q.is_seeky() && q.idle_window && early {
            q.deep = false;
            q.idle_window = false;
        }
    }

    pub(super) fn slice_used_soon(&self, id: QueueId, now: i64) -> bool {
        let q = &self.queues[id];
        q.slice_new || now + self.ticks(SLICE_IDLE) * q.dispatched as i64 > q.slice_end
    }

    /// How many requests the queue may have in the drive; `None` for none now.
    pub(super) fn depth_allowed(&self, id: QueueId, now: i64) -> Option<i64> {
        let q = &self.queues[id];
        let quantum = self.tunables.at(QUANTUM);
        let idle = q.class == Class::Idle;
        let half = if idle { 1 } else { (quantum / 2).max(1) };
        if (q.dispatched as i64) < half {
            return Some(half);
        }
        let only_sync = q.sync && self.busy_sync == 1;
        if idle || (self.busy > 1 && self.slice_used_soon(id, now) && !only_sync) {
            return None;
        }
        let alone = self.busy == 1 || only_sync;
        Some(if alone { i64::MAX } else { quantum })
    }

    pub(super) fn may_dispatch(&self, id: QueueId, now: i64) -> bool {
        let q = &self.queues[id];
        // Asynchronous requests drain before synchronous ones that idle, and
        // wait for synchronous ones to drain.
        if (self.should_idle(id) && self.in_flight[0] > 0) || (!q.sync && self.in_flight[1] > 0) {
            return false;
        }
        let Some(mut depth) = self.depth_allowed(id, now) else {
            return false;
        };
        if !q.sync && self.tunables.at(LOW_LATENCY) == 1 {
            let calm = (now - self.last_delayed_sync) / self.ticks(SLICE_SYNC);
            let ramp = if calm == 0 && q.dispatched == 0 {
                1
            } else {
                calm
            };
            depth = depth.min(ramp);
        }
        (q.dispatched as i64) < depth
    }

    pub(super) fn dispatch_from(
        &mut self,
        ctx: &mut SchedCtx<'_>,
        queue: QueueId,
    ) -> Option<RequestId> {
        let now = jiffies(ctx.now);
        if self.queues[queue].is_empty() || !self.may_dispatch(queue, now) {
            return None;
        }
        let late = self.late_request(ctx, queue);
        let id = late.or(self.queues[queue].next_rq)?;
        self.queues[queue].next_rq = self.after(ctx, queue, id);
        self.remove(ctx, id);
        let process = process_of(&ctx.rqs[id]);
        self.active_process.get_or_insert(process);
        let q = &mut self.queues[queue];
        q.dispatched += 1;
        q.slice_dispatch += 1;
        q.must_dispatch = false;
        self.in_flight[q.sync as usize] += 1;
        self.groups[q.group].dispatched += 1;
        ctx.rqs[id].elv[ELV_PROCESS] |= SERVED;
        self.end_short_turn(queue, now);
        Some(id)
    }

    /// An asynchronous queue's turn ends after a few requests, an idle one's
    /// after one.
    pub(super) fn end_short_turn(&mut self, queue: QueueId, now: i64) {
        let q = &self.queues[queue];
        let most = 2 * self.tunables.at(SLICE_ASYNC_RQ) * (PRIO_LEVELS - q.ioprio);
        let over = !q.sync && q.slice_dispatch >= most;
        if self.busy > 1 && (over || q.class == Class::Idle) {
            self.queues[queue].slice_end = now + 1;
            self.expire_slice(now, false);
        }
    }

    pub(super) fn give_to_driver(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        let rq = &mut ctx.rqs[id];
        rq.rq_flags.set(RqFlags::STARTED);
        self.dispatched += 1;
        if rq.elv[ELV_PROCESS] & SERVED != 0 {
            rq.elv[ELV_PROCESS] |= IN_DRIVER;
            self.in_driver += 1;
            self.last_position = rq.end().0;
        }
    }
}
