//! Submitters and their queues. Each process has its own queue for synchronous requests;
//! asynchronous requests share a queue for each priority.

use alloc::vec::Vec;

use blklab_blk::{IoPrio, Request, RequestId, SchedCtx, SubmitterId};

use super::Bfq;
use super::budget::Expiration;
use super::groups::{GroupId, ROOT};
use super::queue::{Injection, QueueId, Raising, ThinkTime, class_and_level, weight_of_level};

/// The scheduler's words in a request: its context and its queue, each plus one; zero for none.
pub(super) const ELV_CONTEXT: usize = 0;
pub(super) const ELV_QUEUE: usize = 1;

/// A queue's state before it was merged, to be restored when it is split.
#[derive(Clone, Debug)]
pub(super) struct Saved {
    pub(super) short_ttime: bool,
    pub(super) io_bound: bool,
    pub(super) io_start_ns: u64,
    pub(super) idle_total_ns: u64,
    pub(super) in_large_burst: bool,
    pub(super) was_in_burst_list: bool,
    pub(super) weight: u32,
    pub(super) raising: Raising,
    pub(super) ttime: ThinkTime,
    pub(super) injection: Injection,
}

/// The scheduler's state of a submitter (`bfq_io_cq`).
#[derive(Clone, Debug)]
pub(super) struct Context {
    /// Its queues: asynchronous, synchronous.
    pub(super) queues: [Option<QueueId>; 2],
    pub(super) submitter: SubmitterId,
    /// Control group of its last bio.
    pub(super) group: GroupId,
    prio: IoPrio,
    /// Number of its requests, queued or in the drive.
    pub(super) requests: u32,
    /// Whether its process has exited; some of its requests may remain.
    pub(super) exited: bool,
    pub(super) saved: Option<Saved>,
    /// Target of a delayed stable merge.
    pub(super) stable_merge: Option<QueueId>,
    pub(super) stably_merged: bool,
}

/// All contexts, with an index by submitter.
#[derive(Debug, Default)]
pub(super) struct Contexts {
    all: Vec<Context>,
    free: Vec<usize>,
    /// Indices of contexts, sorted by submitter.
    by_submitter: Vec<(SubmitterId, usize)>,
}

impl core::ops::Index<usize> for Contexts {
    type Output = Context;
    fn index(&self, at: usize) -> &Context {
        &self.all[at]
    }
}

impl core::ops::IndexMut<usize> for Contexts {
    fn index_mut(&mut self, at: usize) -> &mut Context {
        &mut self.all[at]
    }
}

impl Contexts {
    fn place(&self, submitter: SubmitterId) -> Result<usize, usize> {
        self.by_submitter.binary_search_by_key(&submitter, |e| e.0)
    }

    pub(super) fn find(&self, submitter: SubmitterId) -> Option<usize> {
        self.place(submitter).ok().map(|at| self.by_submitter[at].1)
    }

    fn find_or_add(&mut self, submitter: SubmitterId, prio: IoPrio) -> usize {
        let place = match self.place(submitter) {
            Ok(at) => return self.by_submitter[at].1,
            Err(place) => place,
        };
        let new = Context {
            queues: [None; 2],
            submitter,
            group: ROOT,
            prio,
            requests: 0,
            exited: false,
            saved: None,
            stable_merge: None,
            stably_merged: false,
        };
        let index = match self.free.pop() {
            Some(index) => {
                self.all[index] = new;
                index
            }
            None => {
                self.all.push(new);
                self.all.len() - 1
            }
        };
        self.by_submitter.insert(place, (submitter, index));
        index
    }

    fn remove(&mut self, submitter: SubmitterId) -> Option<usize> {
        let at = self.place(submitter).ok()?;
        let (_, index) = self.by_submitter.remove(at);
        self.all[index].exited = true;
        Some(index)
    }

    /// Frees a context that has exited and has no requests left.
    fn free_if_done(&mut self, index: usize) {
        if self.all[index].exited && self.all[index].requests == 0 {
            self.free.push(index);
        }
    }
}

impl Bfq {
    /// The context of a request that the scheduler holds.
    pub(super) fn context_of(rq: &Request) -> Option<usize> {
        (rq.elv[ELV_CONTEXT] as usize).checked_sub(1)
    }

    /// The queue of a request that the scheduler holds.
    pub(super) fn queue_of(rq: &Request) -> Option<QueueId> {
        let index = (rq.elv[ELV_QUEUE] as usize).checked_sub(1)?;
        Some(QueueId::from_index(index))
    }

    /// Assigns a queue to a request (`bfq_init_rq`).
    pub(super) fn assign_queue(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) -> QueueId {
        if let Some(q) = Bfq::queue_of(&ctx.rqs[id]) {
            return q;
        }
        let rq = &ctx.rqs[id];
        let (submitter, prio, sync) = (rq.submitter, rq.prio, rq.is_sync());
        let cgroup = rq.cgroup;
        let context = self.contexts.find_or_add(submitter, prio);
        self.check_priority(context, prio);
        self.check_cgroup(ctx, context, cgroup);
        let q = self.queue_or_split(context, sync);
        self.request_allocated(q);
        self.contexts[context].requests += 1;
        let words = &mut ctx.rqs[id].elv;
        words[ELV_CONTEXT] = context as u32 + 1;
        words[ELV_QUEUE] = q.index() as u32 + 1;
        let queue = &mut self.queues[q];
        if queue.merge_into.is_none() && queue.process_refs == 1 {
            queue.context = Some(context);
        }
        if queue.just_created && (self.burst.size > 0 || self.busy_total() == 0) {
            self.handle_burst(q);
        }
        q
    }

    /// Removes a request from its queue when it completes or is requeued.
    pub(super) fn release_request(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        let rq = &mut ctx.rqs[id];
        let (Some(q), Some(context)) = (Bfq::queue_of(rq), Bfq::context_of(rq)) else {
            return;
        };
        rq.elv = [0; 2];
        self.request_freed(q);
        self.release(q);
        self.contexts[context].requests -= 1;
        self.contexts.free_if_done(context);
    }

    /// Applies a change of the submitter's priority since its last request.
    fn check_priority(&mut self, context: usize, prio: IoPrio) {
        if self.contexts[context].prio == prio {
            return;
        }
        self.contexts[context].prio = prio;
        if let Some(old) = self.contexts[context].queues[0] {
            let new = self.get_queue(context, false, true);
            self.set_queue(context, Some(new), false);
            self.drop_process_ref(old);
        }
        if let Some(q) = self.contexts[context].queues[1] {
            let (class, level) = class_and_level(prio);
            let queue = &mut self.queues[q];
            queue.new_class = class;
            queue.entity.new_weight = weight_of_level(level);
            queue.entity.prio_changed = true;
        }
    }

    /// Sets or clears the context's queue (`bic_set_bfqq`).
    pub(super) fn set_queue(&mut self, context: usize, q: Option<QueueId>, sync: bool) {
        let old = self.contexts[context].queues[sync as usize];
        if let Some(old) = old
            && self.queues[old].context == Some(context)
        {
            self.queues[old].context = None;
        }
        self.contexts[context].queues[sync as usize] = q;
        // The merge has been done, so it must not be done again later.
        if q.is_some() && self.contexts[context].stable_merge == q {
            self.forget_stable_merge(context);
        }
    }

    /// Returns the context's queue or creates one (`bfq_get_queue`). `again` means that the context
    /// had a queue before.
    pub(super) fn get_queue(&mut self, context: usize, sync: bool, again: bool) -> QueueId {
        let Context {
            prio,
            submitter,
            group,
            ..
        } = self.contexts[context];
        if !sync {
            let (class, level) = class_and_level(prio);
            let slot = match class {
                super::queue::IDLE_CLASS => 16,
                class => class * 8 + level as usize,
            };
            let q = match self.groups[group].async_queues[slot] {
                Some(q) => q,
                None => {
                    let q = self.create_queue(group, prio, submitter, false);
                    self.groups[group].async_queues[slot] = Some(q);
                    // The group keeps the queue for later processes.
                    self.queues[q].process_refs += 1;
                    q
                }
            };
            self.queues[q].process_refs += 1;
            return q;
        }
        let q = self.create_queue(group, prio, submitter, true);
        self.queues[q].process_refs += 1;
        match again {
            true => q,
            false => self.merge_if_stable(q, context),
        }
    }

    /// Returns the context's queue. A context that shares a queue with processes that it no longer
    /// cooperates with gets its own queue back.
    fn queue_or_split(&mut self, context: usize, sync: bool) -> QueueId {
        let Some(q) = self.contexts[context].queues[sync as usize] else {
            let q = self.get_queue(context, sync, false);
            self.set_queue(context, Some(q), sync);
            return q;
        };
        let queue = &self.queues[q];
        if queue.coop && queue.split_coop && !self.contexts[context].stably_merged {
            return self.split(context, q);
        }
        q
    }

    /// Drops a process's reference to a queue.
    pub(super) fn drop_process_ref(&mut self, q: QueueId) {
        let queue = &self.queues[q];
        if queue.busy && queue.sorted.is_empty() && self.in_service != Some(q) {
            self.del_busy(q, false);
        }
        let last_created = &mut self.groups[self.queues[q].group].last_created;
        last_created.take_if(|last| *last == q);
        self.queues[q].process_refs -= 1;
        self.release(q);
    }

    /// Handles the exit of a submitter (`bfq_exit_icq`).
    pub(super) fn exit_context(&mut self, ctx: &SchedCtx<'_>, submitter: SubmitterId) {
        let Some(context) = self.contexts.remove(submitter) else {
            return;
        };
        if self.contexts[context].stable_merge.is_some() {
            self.forget_stable_merge(context);
        }
        for sync in [true, false] {
            let Some(q) = self.contexts[context].queues[sync as usize] else {
                continue;
            };
            self.set_queue(context, None, sync);
            if self.in_service == Some(q) {
                self.leave_service(ctx, q, Expiration::BudgetTimeout);
                self.run_queues();
            }
            self.drop_cooperators(q);
            self.drop_process_ref(q);
        }
        self.contexts.free_if_done(context);
    }
}
