//! Idling, cooperation and preemption: what happens when the active queue has
//! nothing to do, or another has something better.

use super::*;

impl Cfq {
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

    pub(super) fn slice_is_shorter_than_thought(&self, id: QueueId, now: i64) -> bool {
        let Some(process) = self.active_process else {
            return false;
        };
        let think_time = &self.processes[process].think_time;
        think_time.is_known() && self.queues[id].slice_end - now < think_time.mean
    }

    /// The active queue ran dry: waits for its next request if that is worth it.
    pub(super) fn arm_idle_timer(&mut self, id: QueueId, now: i64) {
        if self.is_queueing_ssd() || self.active_process.is_none() {
            return;
        }
        let for_queue = self.should_idle(id);
        let for_group = !for_queue && self.ticks(GROUP_IDLE) > 0;
        if !for_queue && (!for_group || self.busy_in_group(id) > 1) {
            return;
        }
        if self.queues[id].dispatched > 0 || self.slice_is_shorter_than_thought(id, now) {
            return;
        }
        self.queues[id].wait_request = true;
        self.idles += 1;
        let idle = if for_queue { SLICE_IDLE } else { GROUP_IDLE };
        self.idle_until = Some(now + self.ticks(idle));
    }

    /// Whether the only queue should keep its turn until it has more requests.
    pub(super) fn should_wait_busy(&self, id: QueueId, now: i64) -> bool {
        let q = &self.queues[id];
        let group = &self.groups[q.group];
        let big = group.think_time.is_longer_than(self.ticks(GROUP_IDLE));
        if !q.is_empty() || group.busy > 1 || big {
            return false;
        }
        self.slice_used(id, now)
            || self.slice_is_shorter_than_thought(id, now)
            || q.slice_end - now == 1
    }

    pub(super) fn is_close(&self, sector: Sector) -> bool {
        sector.0.abs_diff(self.last_position) <= CLOSE_THRESHOLD
    }

    /// A queue of the same priority that works right where the head is.
    pub(super) fn close_cooperator(&self, ctx: &SchedCtx<'_>, id: QueueId) -> Option<QueueId> {
        let q = &self.queues[id];
        if q.class == Class::Idle || !q.sync || q.is_seeky() || self.busy_in_group(id) == 1 {
            return None;
        }
        let close = |other: &Queue| {
            let sector = ctx.rqs[other.next_rq?].sector;
            (self.is_close(sector) && other.ioprio == q.ioprio && other.class == q.class)
                .then(|| sector.0.abs_diff(self.last_position))
        };
        let waiting = WORKLOADS
            .into_iter()
            .flat_map(|w| &self.trees_of(id)[tree_index(q.class, w)].queues);
        waiting
            .map(|&(_, other)| other)
            .filter(|&other| other != id)
            .filter_map(|other| Some((close(&self.queues[other])?, other)))
            .min()
            .map(|(_, other)| other)
            .filter(|&other| self.queues[other].sync && !self.queues[other].is_seeky())
    }

    /// Whether a queue's new request takes the drive from the active queue.
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
        self.enter_tree(by, now, true);
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

    pub(super) fn note_seek(&mut self, id: QueueId, rq: &Request) {
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
}
