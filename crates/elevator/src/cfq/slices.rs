//! Slices: how long a queue is served, when its slice ends, when the drive idles for it, and which
//! queue may preempt it.

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

    /// Whether the group's only busy queue stays active while it has requests in the drive, because
    /// expiring it would gain nothing.
    pub(super) fn group_should_wait(&self, id: QueueId) -> bool {
        let group = &self.groups[self.queues[id].group];
        let group_idle = self.ticks(GROUP_IDLE);
        group_idle > 0
            && group.busy == 1
            && group.dispatched > 0
            && !group.think_time.is_longer_than(group_idle)
    }

    /// Chooses the queue to serve (`cfq_select_queue`); `None` while the drive idles.
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
                self.setup_merge(id, close);
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

    /// Stops idling for a seeky queue that uses little of its slice.
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

    /// The number of requests that the queue may have in the drive; `None` for no more now.
    pub(super) fn depth_allowed(&self, id: QueueId, now: i64) -> Option<i64> {
        let q = &self.queues[id];
        let quantum = self.queue.tunables.at(QUANTUM);
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
        // Asynchronous requests drain before a queue with idling is served, and wait until
        // synchronous ones have drained.
        if (self.should_idle(id) && self.in_flight[0] > 0) || (!q.sync && self.in_flight[1] > 0) {
            return false;
        }
        let Some(mut depth) = self.depth_allowed(id, now) else {
            return false;
        };
        if !q.sync && self.queue.tunables.at(LOW_LATENCY) == 1 {
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
        let late = self.check_fifo(ctx, queue);
        let id = late.or(self.queues[queue].next_rq)?;
        self.queues[queue].next_rq = self.find_next_request(ctx, queue, id);
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

    /// Expires an asynchronous queue after a few requests, and an idle-class queue after one.
    pub(super) fn end_short_turn(&mut self, queue: QueueId, now: i64) {
        let q = &self.queues[queue];
        let most = 2 * self.queue.tunables.at(SLICE_ASYNC_RQ) * (PRIO_LEVELS - q.ioprio);
        let over = !q.sync && q.slice_dispatch >= most;
        if self.busy > 1 && (over || q.class == Class::Idle) {
            self.queues[queue].slice_end = now + 1;
            self.expire_slice(now, false);
        }
    }

    /// The slice of a priority: a fifth more or less for each level away from 4.
    pub(super) fn prio_slice(&self, sync: bool, ioprio: i64) -> i64 {
        let base = self.ticks(if sync { SLICE_SYNC } else { SLICE_ASYNC });
        base + base / 5 * (NORMAL_PRIO as i64 - ioprio)
    }

    pub(super) fn busy_of_class(&self, group: GroupId, class: Class) -> i64 {
        let count = |w| self.groups[group].trees[tree_index(class, w)].queues.len() as i64;
        match class {
            Class::Idle => count(Workload::Async),
            _ => WORKLOADS.into_iter().map(count).sum(),
        }
    }

    /// The average number of busy queues of a class, which rises fast and falls slowly
    /// (`cfq_group_get_avg_queues`).
    pub(super) fn average_busy(&mut self, group: GroupId, class: Class) -> i64 {
        let busy = self.busy_of_class(group, class);
        let average = &mut self.groups[group].busy_average[class as usize];
        let (low, high) = ((*average).min(busy), (*average).max(busy));
        *average = (3 * high + low + 2) / 4;
        *average
    }

    /// The slice of a queue, shortened if the slices of all queues together would exceed
    /// `target_latency`.
    pub(super) fn scaled_slice(&mut self, id: QueueId) -> i64 {
        let q = &self.queues[id];
        let (group, class) = (q.group, q.class);
        let slice = self.prio_slice(q.sync, q.ioprio);
        if self.queue.tunables.at(LOW_LATENCY) == 0 {
            return slice;
        }
        let counted = match class {
            Class::RealTime => Class::RealTime,
            _ => Class::BestEffort,
        };
        let sync_slice = self.ticks(SLICE_SYNC);
        let expected = sync_slice * self.average_busy(group, counted);
        let target = self.group_slice(group);
        if expected <= target {
            return slice;
        }
        let shortest = 2 * self.ticks(SLICE_IDLE);
        let low = slice.min(shortest * slice / sync_slice);
        (slice * target / expected).max(low)
    }

    pub(super) fn slice_used(&self, id: QueueId, now: i64) -> bool {
        let q = &self.queues[id];
        !q.slice_new && now >= q.slice_end
    }

    pub(super) fn activate(&mut self, now: i64, id: Option<QueueId>) {
        if let Some(id) = id {
            let q = &mut self.queues[id];
            (q.slice_start, q.slice_end, q.slice_dispatch) = (0, 0, 0);
            (q.dispatch_start, q.allocated_slice) = (now, 0);
            (q.wait_request, q.must_dispatch, q.fifo_checked) = (false, false, false);
            q.slice_new = true;
            self.idle_until = None;
            self.slices += 1;
        }
        self.active = id;
    }

    /// Expires the active queue (`cfq_slice_expired`). With `keep_rest`, after a preemption or
    /// timeout, the rest of its slice is credited to its next one.
    pub(super) fn expire_slice(&mut self, now: i64, keep_rest: bool) {
        let Some(id) = self.active.take() else {
            return;
        };
        if self.queues[id].wait_request {
            self.idle_until = None;
        }
        let rest = match (keep_rest, self.queues[id].slice_new) {
            (false, _) => None,
            (true, true) => Some(self.scaled_slice(id)),
            (true, false) => Some(self.queues[id].slice_end - now),
        };
        let q = &mut self.queues[id];
        q.wait_request = false;
        q.wait_busy = false;
        q.split |= q.shared && q.is_seeky();
        q.slice_residue = rest.unwrap_or(q.slice_residue);
        self.charge_group(id, now);
        let q = &self.queues[id];
        let (on_rr, empty) = (q.on_rr, q.is_empty());
        if on_rr && empty {
            self.del_queue_rr(id);
        } else if on_rr {
            self.service_tree_add(id, now, false);
        }
        self.active_process = None;
        self.free_if_unused(id);
    }

    pub(super) fn should_idle(&self, id: QueueId) -> bool {
        let (q, idle) = (&self.queues[id], self.ticks(SLICE_IDLE));
        let Some((tree, _)) = q.tree else {
            return false;
        };
        if idle == 0 || q.class == Class::Idle {
            return false;
        }
        if q.idle_window && !self.is_queueing_ssd() {
            return true;
        }
        let tree = &self.trees_of(id)[tree];
        tree.queues.len() == 1 && q.sync && !tree.think_time.is_longer_than(idle)
    }

    pub(super) fn slice_ends_before_next_request(&self, id: QueueId, now: i64) -> bool {
        let Some(process) = self.active_process else {
            return false;
        };
        let think_time = &self.processes[process].think_time;
        think_time.is_known() && self.queues[id].slice_end - now < think_time.mean
    }

    /// Idles for the next request of the empty active queue, if that is worthwhile.
    pub(super) fn arm_idle_timer(&mut self, id: QueueId, now: i64) {
        if self.is_queueing_ssd() || self.active_process.is_none() {
            return;
        }
        let for_queue = self.should_idle(id);
        let for_group = !for_queue && self.ticks(GROUP_IDLE) > 0;
        if !for_queue && (!for_group || self.busy_in_group(id) > 1) {
            return;
        }
        if self.queues[id].dispatched > 0 || self.slice_ends_before_next_request(id, now) {
            return;
        }
        self.queues[id].wait_request = true;
        self.idles += 1;
        let idle = if for_queue { SLICE_IDLE } else { GROUP_IDLE };
        self.idle_until = Some(now + self.ticks(idle));
    }

    /// Whether the group's only queue stays active until it has more requests.
    pub(super) fn should_wait_busy(&self, id: QueueId, now: i64) -> bool {
        let q = &self.queues[id];
        let group = &self.groups[q.group];
        let big = group.think_time.is_longer_than(self.ticks(GROUP_IDLE));
        if !q.is_empty() || group.busy > 1 || big {
            return false;
        }
        self.slice_used(id, now)
            || self.slice_ends_before_next_request(id, now)
            || q.slice_end - now == 1
    }

    pub(super) fn is_close(&self, sector: Sector) -> bool {
        sector.0.abs_diff(self.last_position) <= CLOSE_THRESHOLD
    }

    /// The queue with a request close to the head, among those of one priority level in all groups
    /// (`cfqq_close`).
    fn closest(&self, ctx: &SchedCtx<'_>, ioprio: i64) -> Option<QueueId> {
        let idle = tree_index(Class::Idle, Workload::Async);
        let distance = |id: QueueId| {
            let sector = ctx.rqs[self.queues[id].next_rq?].sector;
            self.is_close(sector)
                .then(|| (sector.0.abs_diff(self.last_position), id))
        };
        let waiting = self.groups.iter().flat_map(|group| &group.trees[..idle]);
        let ids = waiting.flat_map(|tree| tree.queues.iter().map(|&(_, id)| id));
        ids.filter(|&id| self.queues[id].ioprio == ioprio)
            .filter_map(distance)
            .min()
            .map(|(_, id)| id)
    }

    /// A queue whose process works close to that of the active queue, which it may share a queue
    /// with (`cfq_close_cooperator`).
    pub(super) fn close_cooperator(&self, ctx: &SchedCtx<'_>, id: QueueId) -> Option<QueueId> {
        let q = &self.queues[id];
        if q.class == Class::Idle || !q.sync || q.is_seeky() || self.busy_in_group(id) == 1 {
            return None;
        }
        self.closest(ctx, q.ioprio).filter(|&other| {
            let other = &self.queues[other];
            other.group == q.group && other.class == q.class && other.sync && !other.is_seeky()
        })
    }

    /// Whether a queue's new request preempts the active queue (`cfq_should_preempt`).
    pub(super) fn should_preempt(&self, new: QueueId, rq: &Request, now: i64) -> bool {
        let Some(active) = self.active else {
            return false;
        };
        let (q, n) = (&self.queues[active], &self.queues[new]);
        if n.class == Class::Idle || q.class == Class::Idle {
            return n.class != Class::Idle;
        }
        if q.class == Class::RealTime && n.class != Class::RealTime {
            return false;
        }
        if q.group != n.group {
            return rq.is_sync() && !q.sync;
        }
        let alone_in_no_idle = self.workload == Workload::SyncNoIdle
            && n.workload() == Workload::SyncNoIdle
            && n.tree
                .is_some_and(|(t, _)| self.trees_of(new)[t].queues.len() == 2)
            && q.is_empty();
        if (rq.is_sync() && !q.sync)
            || self.slice_used(active, now)
            || alone_in_no_idle
            || (is_prio(rq) && q.prio_pending == 0)
            || (n.class == Class::RealTime && q.class != Class::RealTime)
            || (q.is_empty() && !self.should_idle(active))
        {
            return true;
        }
        self.active_process.is_some() && q.wait_request && self.is_close(rq.sector)
    }

    pub(super) fn preempt(&mut self, by: QueueId, now: i64) {
        self.preemptions += 1;
        let before = self.active.map(|id| self.queues[id].workload());
        self.expire_slice(now, true);
        if before != Some(self.queues[by].workload()) {
            self.groups[self.queues[by].group].saved = None;
        }
        self.service_tree_add(by, now, true);
        self.queues[by].slice_end = 0;
        self.queues[by].slice_new = true;
    }

    pub(super) fn update_idle_window(&mut self, id: QueueId, process: usize, no_idle: bool) {
        let idle = self.ticks(SLICE_IDLE);
        let think_time = self.processes[process].think_time;
        let q = &mut self.queues[id];
        if !q.sync || q.class == Class::Idle {
            return;
        }
        q.deep |= q.sorted.len() >= 4;
        if no_idle || idle == 0 || (!q.deep && q.is_seeky()) {
            q.idle_window = false;
        } else if think_time.is_known() {
            q.idle_window = think_time.mean <= idle;
        }
    }

    pub(super) fn update_seek_history(&mut self, id: QueueId, rq: &Request) {
        let rotational = self.rotational;
        let q = &mut self.queues[id];
        let distance = match q.last_request_end {
            0 => 0,
            last => last.abs_diff(rq.sector.0),
        };
        let seek = if rotational {
            distance > SEEK_THRESHOLD
        } else {
            rq.sectors < SMALL_SECTORS
        };
        q.seek_history = q.seek_history << 1 | seek as u32;
        q.last_request_end = rq.end().0;
    }

    /// Learns whether the drive queues commands, from the largest depth in 50 samples under load.
    pub(super) fn update_hw_tag(&mut self) {
        self.depth_seen = self.depth_seen.max(self.in_driver);
        let loaded = self.queued > HW_QUEUE_MIN || self.in_driver > HW_QUEUE_MIN;
        if self.queues_in_drive == Some(true) || !loaded {
            return;
        }
        let starved = self.active.is_some_and(|id| {
            let q = &self.queues[id];
            let has = q.dispatched + q.sorted.len() as u32;
            q.idle_window && has < HW_QUEUE_MIN && self.in_driver < HW_QUEUE_MIN
        });
        if starved {
            return;
        }
        self.depth_samples += 1;
        if self.depth_samples > 50 {
            self.queues_in_drive = Some(self.depth_seen >= HW_QUEUE_MIN);
        }
    }

    pub(super) fn record_completion(&mut self, queue: QueueId, rq: &Request, now: i64) {
        self.groups[self.queues[queue].group].think_time.last_end = now;
        if !rq.is_sync() {
            return;
        }
        self.processes[process_of(rq)].think_time.last_end = now;
        let q = &self.queues[queue];
        let tree = q.tree.map_or(q.tree_index(), |(tree, _)| tree);
        self.groups[self.queues[queue].group].trees[tree]
            .think_time
            .last_end = now;
        if jiffies(rq.start) + self.ticks(FIFO_EXPIRE_SYNC) <= now {
            self.last_delayed_sync = now;
        }
    }

    /// Handles a completion of the active queue: its slice may begin or end, or the drive may idle.
    pub(super) fn active_queue_completed(&mut self, ctx: &SchedCtx<'_>, id: QueueId, sync: bool) {
        let now = jiffies(ctx.now);
        if core::mem::take(&mut self.queues[id].slice_new) {
            let slice = self.scaled_slice(id);
            self.queues[id].slice_start = now;
            self.queues[id].slice_end = now + slice;
            self.queues[id].allocated_slice = slice;
        }
        if self.should_wait_busy(id, now) {
            let idle = match self.ticks(SLICE_IDLE) {
                0 => self.ticks(GROUP_IDLE),
                idle => idle,
            };
            self.queues[id].slice_end = now + idle;
            self.queues[id].wait_busy = true;
        }
        if self.slice_used(id, now) || self.queues[id].class == Class::Idle {
            self.expire_slice(now, true);
        } else if sync && self.queues[id].is_empty() && self.close_cooperator(ctx, id).is_none() {
            self.arm_idle_timer(id, now);
        }
    }

    /// Handles the expired idle timer. Returns whether requests may be dispatched.
    pub(super) fn idle_timer_ended(&mut self, now: i64) -> bool {
        let Some(id) = self.active else {
            self.expire_slice(now, true);
            return true;
        };
        let q = &self.queues[id];
        if q.must_dispatch {
            return true;
        }
        if !self.slice_used(id, now) {
            if self.busy == 0 {
                return false;
            }
            if !q.is_empty() {
                return true;
            }
            self.queues[id].deep = false;
        }
        self.expire_slice(now, false);
        true
    }
}
