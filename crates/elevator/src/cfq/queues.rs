//! Processes, their queues, and the order of requests within a queue.

use super::*;

impl Cfq {
    pub(super) fn process(&mut self, id: SubmitterId, now: i64) -> usize {
        if let Some(&process) = self.process_ids.get(&id) {
            return process;
        }
        let mut new = Process::default();
        new.think_time.last_end = now;
        let process = match self.free_processes.pop() {
            Some(process) => {
                self.processes[process] = new;
                process
            }
            None => {
                self.processes.push(new);
                self.processes.len() - 1
            }
        };
        self.process_ids.insert(id, process);
        process
    }

    /// Handles the exit of a process: its queues expire, and the drive does not idle for them
    /// (`cfq_exit_icq`).
    pub(super) fn exit_process(&mut self, now: Nanos, submitter: SubmitterId) {
        let Some(process) = self.process_ids.remove(&submitter) else {
            return;
        };
        self.processes[process].exited = true;
        for sync in [0, 1] {
            let Some(id) = self.processes[process].queues[sync].take() else {
                continue;
            };
            if self.active == Some(id) {
                self.expire_slice(jiffies(now), false);
                self.run_at = (self.busy > 0).then_some(now);
            }
            self.put_cooperators(id);
            self.put_queue(id);
        }
        self.active_process.take_if(|active| *active == process);
        self.free_process_if_unused(process);
    }

    pub(super) fn process_request_freed(&mut self, process: usize) {
        self.processes[process].requests -= 1;
        self.free_process_if_unused(process);
    }

    fn free_process_if_unused(&mut self, process: usize) {
        let p = &self.processes[process];
        if p.exited && p.requests == 0 {
            self.active_process.take_if(|active| *active == process);
            self.free_processes.push(process);
        }
    }

    pub(super) fn make_queue(&mut self, group: GroupId, sync: bool) -> QueueId {
        let id = self.free_queues.pop().unwrap_or_else(|| {
            self.queues.push(Queue::default());
            self.queues.len() - 1
        });
        let q = &mut self.queues[id];
        // The sort list keeps its allocation.
        let sorted = core::mem::take(&mut q.sorted);
        *q = Queue {
            group,
            sync,
            sorted,
            idle_window: sync,
            prio_changed: true,
            ..Queue::default()
        };
        id
    }

    /// Assigns a queue to a process: a new one, or the shared asynchronous one of its priority.
    pub(super) fn assign_queue(&mut self, process: usize, sync: bool) -> QueueId {
        let Process { prio, group, .. } = self.processes[process];
        let id = if sync {
            self.make_queue(group, true)
        } else {
            let level = match prio.class {
                IoClass::None => NORMAL_PRIO,
                IoClass::Idle => 0,
                _ => prio.level.min(PRIO_LEVELS as u8 - 1),
            };
            let (class, level) = (class_of(prio) as usize, level as usize);
            match self.groups[group].async_queues[class][level] {
                Some(id) => id,
                None => {
                    let id = self.make_queue(group, false);
                    self.queues[id].processes = 1;
                    self.groups[group].async_queues[class][level] = Some(id);
                    id
                }
            }
        };
        self.queues[id].processes += 1;
        self.processes[process].queues[sync as usize] = Some(id);
        self.apply_prio(id, process);
        id
    }

    /// Applies a changed priority to a queue with its next request.
    pub(super) fn apply_prio(&mut self, id: QueueId, process: usize) {
        let prio = self.processes[process].prio;
        let q = &mut self.queues[id];
        if !core::mem::take(&mut q.prio_changed) {
            return;
        }
        q.class = class_of(prio);
        q.ioprio = match prio.class {
            IoClass::None => NORMAL_PRIO as i64,
            IoClass::Idle => PRIO_LEVELS - 1,
            _ => (prio.level as i64).min(PRIO_LEVELS - 1),
        };
        if q.class == Class::Idle {
            q.idle_window = false;
        }
    }

    pub(super) fn check_ioprio(&mut self, process: usize, prio: IoPrio) {
        if self.processes[process].prio == prio {
            return;
        }
        self.processes[process].prio = prio;
        if let Some(id) = self.processes[process].queues[0].take() {
            self.put_queue(id);
        }
        if let Some(id) = self.processes[process].queues[1] {
            self.queues[id].prio_changed = true;
        }
    }

    pub(super) fn put_queue(&mut self, id: QueueId) {
        self.queues[id].processes -= 1;
        self.free_if_unused(id);
    }

    pub(super) fn free_if_unused(&mut self, id: QueueId) {
        let q = &self.queues[id];
        if q.processes == 0 && q.allocated == 0 && !q.on_rr && self.active != Some(id) {
            self.free_queues.push(id);
        }
    }

    /// Gives up the place of one process in the queues into which its own would have been merged
    /// (`cfq_put_cooperator`).
    pub(super) fn put_cooperators(&mut self, id: QueueId) {
        let mut into = self.queues[id].merges_into;
        while let Some(queue) = into {
            into = self.queues[queue].merges_into;
            self.put_queue(queue);
        }
    }

    /// The queue for a process's next request, after a split or a pending merge.
    pub(super) fn queue_for(&mut self, process: usize, sync: bool) -> QueueId {
        let Some(id) = self.processes[process].queues[sync as usize] else {
            return self.assign_queue(process, sync);
        };
        if self.queues[id].shared && self.queues[id].split {
            if self.queues[id].processes > 1 {
                self.processes[process].queues[sync as usize] = None;
                self.put_cooperators(id);
                self.put_queue(id);
                return self.assign_queue(process, sync);
            }
            self.queues[id].shared = false;
            self.queues[id].split = false;
        }
        let Some(into) = self.queues[id].merges_into else {
            return id;
        };
        self.processes[process].queues[sync as usize] = Some(into);
        self.queues[into].shared = true;
        self.put_queue(id);
        into
    }

    /// Schedules the merge of two queues into the one with more processes, which counts those of
    /// the other from now on (`cfq_setup_merge`).
    pub(super) fn setup_merge(&mut self, id: QueueId, other: QueueId) {
        let mut into = other;
        while let Some(next) = self.queues[into].merges_into {
            if next == id {
                return;
            }
            into = next;
        }
        let (here, there) = (self.queues[id].processes, self.queues[into].processes);
        if here == 0 || there == 0 {
            return;
        }
        let (from, to) = if there >= here {
            (id, into)
        } else {
            (into, id)
        };
        self.queues[from].merges_into = Some(to);
        self.queues[to].processes = here + there;
    }

    pub(super) fn enqueue(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        let now = jiffies(ctx.now);
        let process = process_of(&ctx.rqs[id]);
        let sync = ctx.rqs[id].is_sync();
        let Some(queue) = queue_of(&ctx.rqs[id]) else {
            return self.queue.head.push_back(ctx.rqs, id);
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
        self.update_think_time(queue, process_of(rq), now);
        self.update_seek_history(queue, rq);
        let next = self.queues[queue].next_rq;
        let no_idle = next.is_some_and(|id| is_no_idle(&ctx.rqs[id]));
        self.update_idle_window(queue, process_of(rq), no_idle);
        if self.active == Some(queue) {
            if self.queues[queue].wait_request {
                self.wait_request_ended(queue, rq);
            }
        } else if self.should_preempt(queue, rq, now) {
            self.preempt(queue, now);
        }
    }

    pub(super) fn update_think_time(&mut self, queue: QueueId, process: usize, now: i64) {
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

    /// Handles the arrival of the request that the drive idled for. A small one waits to be merged
    /// with more, if no other queue is busy.
    pub(super) fn wait_request_ended(&mut self, queue: QueueId, rq: &Request) {
        if rq.sectors > 8 || self.busy > 1 {
            self.idle_until = None;
            self.queues[queue].wait_request = false;
        } else {
            self.queues[queue].must_dispatch = true;
        }
    }

    /// The distance of a request from `from`, with a penalty if it is behind; `None` if it is
    /// further behind than `back_seek_max`.
    pub(super) fn seek_cost(&self, sector: u64, from: u64) -> Option<u64> {
        let back_max = self.queue.tunables.at(BACK_SEEK_MAX) as u64 * 2;
        if sector >= from {
            Some(sector - from)
        } else if sector.saturating_add(back_max) >= from {
            let penalty = self.queue.tunables.at(BACK_SEEK_PENALTY) as u64;
            Some((from - sector).saturating_mul(penalty))
        } else {
            None
        }
    }

    /// Chooses the request to serve first (`cfq_choose_req`): a synchronous one, then metadata,
    /// then the closer one.
    pub(super) fn choose_request(
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
        let take_a = match (self.seek_cost(at_a, from), self.seek_cost(at_b, from)) {
            (Some(x), Some(y)) if x == y => at_a >= at_b,
            (Some(x), Some(y)) => x < y,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            // Both are far behind: one seek back to the lower one serves both.
            (None, None) => at_a <= at_b,
        };
        Some(if take_a { a } else { b })
    }

    /// The request of a queue to serve after `id`, which is queued (`cfq_find_next_rq`).
    pub(super) fn find_next_request(
        &self,
        ctx: &SchedCtx<'_>,
        queue: QueueId,
        id: RequestId,
    ) -> Option<RequestId> {
        let sorted = &self.queues[queue].sorted;
        let prev = sorted.prev(ctx.rqs, id);
        let wrapped = || sorted.first().filter(|&first| first != id);
        let next = sorted.next(ctx.rqs, id).or_else(wrapped);
        self.choose_request(ctx, next, prev, ctx.rqs[id].sector.0)
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
            self.add_queue_rr(queue, now);
        }
        let next = self.queues[queue].next_rq;
        self.queues[queue].next_rq = self.choose_request(ctx, next, Some(id), self.last_position);
    }

    /// Removes a queued request from its queue.
    pub(super) fn remove(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        ctx.merge.remove(ctx.rqs, id);
        // A request that is merged during its insertion is in no list yet.
        let (true, Some(queue)) = (ctx.rqs[id].is_sorted(), queue_of(&ctx.rqs[id])) else {
            return;
        };
        if self.queues[queue].next_rq == Some(id) {
            self.queues[queue].next_rq = self.find_next_request(ctx, queue, id);
        }
        let q = &mut self.queues[queue];
        q.fifo.remove(ctx.rqs, id);
        q.sorted.remove(ctx.rqs, id);
        q.prio_pending -= is_prio(&ctx.rqs[id]) as u32;
        self.queued -= 1;
    }

    /// The oldest request, if its deadline has passed; checked once in a slice (`cfq_check_fifo`).
    pub(super) fn check_fifo(&mut self, ctx: &SchedCtx<'_>, queue: QueueId) -> Option<RequestId> {
        let q = &mut self.queues[queue];
        if core::mem::replace(&mut q.fifo_checked, true) {
            return None;
        }
        let oldest = q.fifo.front()?;
        let late = jiffies(ctx.now) >= ctx.rqs[oldest].fifo_time.0 as i64;
        self.expired += late as u64;
        late.then_some(oldest)
    }
}

fn class_of(prio: IoPrio) -> Class {
    match prio.class {
        IoClass::Rt => Class::RealTime,
        IoClass::None | IoClass::Be => Class::BestEffort,
        IoClass::Idle => Class::Idle,
    }
}
