//! Slices: how long a queue is served.

use super::*;

impl Cfq {
    /// The slice of a priority: a fifth more or less for each level from 4.
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

    /// Busy queues of a class, which grows fast and shrinks slowly.
    pub(super) fn average_busy(&mut self, group: GroupId, class: Class) -> i64 {
        let busy = self.busy_of_class(group, class);
        let average = &mut self.groups[group].busy_average[class as usize];
        let (low, high) = ((*average).min(busy), (*average).max(busy));
        *average = (3 * high + low + 2) / 4;
        *average
    }

    /// The slice of a queue, shortened where all queues' slices together would
    /// take longer than `target_latency`.
    pub(super) fn scaled_slice(&mut self, id: QueueId) -> i64 {
        let q = &self.queues[id];
        let (group, class) = (q.group, q.class);
        let slice = self.prio_slice(q.sync, q.ioprio);
        if self.tunables.at(LOW_LATENCY) == 0 {
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

    /// The active queue's slice ends. What is left of it is kept where the
    /// queue lost it through no fault of its own.
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
            self.leave_service(id);
        } else if on_rr {
            self.enter_tree(id, now, false);
        }
        self.active_process = None;
        self.free_if_unused(id);
    }
}
