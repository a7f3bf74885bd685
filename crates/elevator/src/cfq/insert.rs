//! A request comes.

use super::*;

impl Cfq {
    pub(super) fn enqueue(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        let now = jiffies(ctx.now);
        let process = process_of(&ctx.rqs[id]);
        let sync = ctx.rqs[id].is_sync();
        let Some(queue) = queue_of(&ctx.rqs[id]) else {
            return self.dispatch.push_back(ctx.rqs, id);
        };
        self.apply_prio(queue, process);
        let expire = if sync {
            FIFO_EXPIRE_SYNC
        } else {
            FIFO_EXPIRE_ASYNC
        };
        ctx.rqs[id].fifo_time = Nanos((now + self.ticks(expire)) as u64);
        self.queues[queue].fifo.push_back(ctx.rqs, id);
        self.add_sorted(ctx, queue, id, now);
        ctx.merge.add(ctx.rqs, id);
        self.enqueued(ctx, queue, id);
    }

    pub(super) fn enqueued(&mut self, ctx: &SchedCtx<'_>, queue: QueueId, id: RequestId) {
        let (now, rq) = (jiffies(ctx.now), &ctx.rqs[id]);
        self.queued += 1;
        self.queues[queue].prio_pending += is_prio(rq) as u32;
        self.note_think_time(queue, process_of(rq), now);
        self.note_seek(queue, rq);
        let next = self.queues[queue].next_rq;
        let no_idle = next.is_some_and(|id| is_no_idle(&ctx.rqs[id]));
        self.update_idle_window(queue, process_of(rq), no_idle);
        if self.active == Some(queue) {
            if self.queues[queue].wait_request {
                self.answer_wait(queue, rq);
            }
        } else if self.should_preempt(queue, rq, now) {
            self.preempt(queue, now);
        }
    }

    pub(super) fn note_think_time(&mut self, queue: QueueId, process: usize, now: i64) {
        let (idle, group_idle) = (self.ticks(SLICE_IDLE), self.ticks(GROUP_IDLE));
        if self.queues[queue].sync {
            self.processes[process].think_time.update(now, idle);
            if let Some((tree, _)) = self.queues[queue].tree {
                let group = &mut self.groups[self.queues[queue].group];
                group.trees[tree].think_time.update(now, idle);
            }
        }
        let group = &mut self.groups[self.queues[queue].group];
        group.think_time.update(now, group_idle);
    }

    /// What the drive was kept idle for has come. A small request waits on, if
    /// nobody else does, for more to merge with.
    pub(super) fn answer_wait(&mut self, queue: QueueId, rq: &Request) {
        if rq.sectors > 8 || self.busy > 1 {
            self.idle_until = None;
            self.queues[queue].wait_request = false;
        } else {
            self.queues[queue].must_dispatch = true;
        }
    }
}
