//! The drive finished a request, or a wait is over.

use super::*;

impl Cfq {
    /// Whether the drive queues: by the most it had at once over 50 samples
    /// under load.
    pub(super) fn learn_depth(&mut self) {
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

    pub(super) fn note_end(&mut self, queue: QueueId, rq: &Request, now: i64) {
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

    /// The active queue had a request completed: its slice may begin, end, or
    /// be waited in.
    pub(super) fn active_completed(&mut self, ctx: &SchedCtx<'_>, id: QueueId, sync: bool) {
        let now = jiffies(ctx.now);
        if std::mem::take(&mut self.queues[id].slice_new) {
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

    /// The idle timer ran out. Returns whether requests may go now.
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
