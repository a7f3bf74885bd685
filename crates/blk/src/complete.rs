//! Ending requests (`blk_mq_end_request`): ends bios, counts, frees tags, wakes waiters, restarts
//! hardware queues.

use alloc::vec::Vec;

use crate::bio::{Bio, BioFlags};
use crate::elevator::{Elevator, SchedCtx};
use crate::queue::{BioEnd, BlkDriver, RequestQueue};
use crate::request::{BioId, IoStatus, RequestId, RqFlags};
use crate::trace::TraceKind;
use crate::units::Nanos;

impl RequestQueue {
    /// Ends a request that the drive has finished.
    #[inline]
    pub fn complete<D: BlkDriver + ?Sized>(
        &mut self,
        now: Nanos,
        id: RequestId,
        status: IoStatus,
        driver: &mut D,
    ) {
        self.trace
            .request(now, TraceKind::RqComplete(status), &self.rqs, id);
        self.put_budget(id, driver);
        self.end_by_kind(now, id, status);
        if core::mem::take(&mut self.budget_wanted) {
            self.run_hw_queues_async(now);
        }
        if let Some(woken) = driver.take_woken() {
            self.driver_unblocked(now, woken, driver);
        }
    }

    /// Requests that the driver has (`blk_mq_tagset_busy_iter`), to be ended when their drive is
    /// gone.
    pub fn busy_requests(&self) -> Vec<RequestId> {
        self.rqs.in_driver()
    }

    /// Ends a request that the driver failed instead of taking.
    pub(crate) fn end_failed(&mut self, now: Nanos, id: RequestId, error: IoStatus) {
        self.trace
            .request(now, TraceKind::RqComplete(error), &self.rqs, id);
        self.end_by_kind(now, id, error);
    }

    /// Ends a request, or one step of its flush sequence.
    #[inline]
    fn end_by_kind(&mut self, now: Nanos, id: RequestId, status: IoStatus) {
        let flags = self.rqs[id].rq_flags;
        if flags.has(RqFlags::FLUSH_RQ) {
            self.flush_rq_ended(now, id, status);
        } else if flags.has(RqFlags::FLUSH_SEQ) {
            self.flush_data_ended(now, id, status);
        } else {
            self.end_request(now, id, status);
        }
    }

    /// Takes back a request that the driver had taken and inserts it again
    /// (`blk_mq_requeue_request`). A `started` request bypasses the scheduler.
    pub fn requeue_request<D: BlkDriver + ?Sized>(
        &mut self,
        now: Nanos,
        id: RequestId,
        started: bool,
        driver: &mut D,
    ) {
        self.requeued_by_driver(now, id, driver);
        self.rqs[id].rq_flags.clear(RqFlags::IN_FLIGHT);
        if started {
            self.rqs[id].rq_flags.set(RqFlags::DONTPREP);
        }
        if self.rqs[id].rq_flags.has(RqFlags::USE_SCHED)
            && let Some((elevator, mut ctx)) = self.sched(now)
        {
            elevator.requeue_request(&mut ctx, id);
        }
        self.requeue_list.push_back(&mut self.rqs, id);
        self.kick_requeue_list(now);
    }

    /// Ends a request: ends its bios, counts it, notifies the scheduler and frees its tags.
    #[inline]
    pub(crate) fn end_request(&mut self, now: Nanos, id: RequestId, status: IoStatus) {
        self.cost_counts.ends += 1;
        if status != IoStatus::Ok && self.rqs[id].rq_flags.has(RqFlags::ZONE_WRITE) {
            self.fail_zone_write(now, id);
        }
        self.end_bios(now, id, status);
        self.account_done(now, id, status);
        if let Some(qos) = &mut self.rq_qos {
            qos.count(now, &self.rqs[id]);
        }
        self.notify_completed(now, id);
        self.free_request(now, id);
    }

    /// Calls the scheduler's `completed_request`.
    #[inline(always)]
    pub(crate) fn notify_completed(&mut self, now: Nanos, id: RequestId) {
        if self.rqs[id].rq_flags.has(RqFlags::USE_SCHED) {
            self.call_scheduler(now, id, |elevator, ctx, id| {
                elevator.completed_request(ctx, id);
            });
        }
    }

    /// Calls a hook of the scheduler. Not inlined, which keeps the path without a scheduler short.
    #[inline(never)]
    fn call_scheduler(
        &mut self,
        now: Nanos,
        id: RequestId,
        hook: impl FnOnce(&mut dyn Elevator, &mut SchedCtx<'_>, RequestId),
    ) {
        if let Some((elevator, mut ctx)) = self.sched(now) {
            hook(elevator, &mut ctx, id);
        }
    }

    #[inline]
    fn end_bios(&mut self, now: Nanos, id: RequestId, status: IoStatus) {
        let mut at = self.rqs[id].bios.take().map(|(first, _)| first);
        while let Some(bio) = at {
            at = self.rqs.bios[bio].next;
            self.end_bio(now, bio, status);
        }
    }

    /// Ends one part of a bio; the last part ends the whole bio.
    #[inline]
    pub(crate) fn end_bio(&mut self, now: Nanos, id: BioId, status: IoStatus) {
        if let Some(qos) = &mut self.rq_qos {
            qos.done_bio(now, id, status, &mut self.woken);
        }
        let node = &mut self.rqs.bios[id];
        node.pending -= 1;
        if node.status == IoStatus::Ok {
            node.status = status;
        }
        if node.pending > 0 {
            return;
        }
        let (bio, parent, status) = (node.bio, node.parent, node.status);
        self.rqs.bios.remove(id);
        match parent {
            Some(parent) => self.end_bio(now, parent, status),
            None => self.push_end(&bio, status),
        }
    }

    /// Queues the end of a bio for [`RequestQueue::take_ended`].
    #[inline]
    pub(crate) fn push_end(&mut self, bio: &Bio, status: IoStatus) {
        self.ended.push(BioEnd {
            user_data: bio.user_data,
            submitter: bio.submitter,
            op: bio.op,
            sector: bio.sector,
            sectors: bio.sectors,
            status,
        });
    }

    #[inline]
    fn account_done(&mut self, now: Nanos, id: RequestId, status: IoStatus) {
        let rq = &self.rqs[id];
        let (group, is_write) = (rq.op.stat_group(), rq.is_write());
        let (sectors, start) = (rq.sectors as u64, rq.start);
        let is_fua = is_write && rq.flags.has(BioFlags::FUA);
        let took_ns = now.saturating_sub(start).0;
        self.counters.ios[group] += 1;
        self.counters.sectors[group] += sectors;
        self.counters.ticks_ns[group] += took_ns;
        if is_fua {
            self.counters.fua_ios += 1;
            self.counters.fua_ticks_ns += took_ns;
        }
        if status != IoStatus::Ok {
            self.counters.errors += 1;
        }
        self.count_in_flight(now, is_write, -1);
    }

    /// Frees a request (`blk_mq_free_request`): calls the scheduler's `finish_request`, frees the
    /// tags, wakes waiters and runs the hardware queue again if it is marked for restart.
    #[inline]
    pub(crate) fn free_request(&mut self, now: Nanos, id: RequestId) {
        if self.rqs[id].rq_flags.has(RqFlags::ZONE_WRITE) {
            self.finish_zone_write(now, id);
        }
        if self.rqs[id].rq_flags.has(RqFlags::USE_SCHED) {
            self.call_scheduler(now, id, |elevator, ctx, id| {
                elevator.finish_request(ctx, id);
            });
        }
        if let Some(qos) = &mut self.rq_qos {
            qos.done(now, id, &self.rqs[id], &mut self.woken);
        }
        let rq = &mut self.rqs[id];
        let (hctx, cpu) = (rq.hctx as usize, rq.ctx as usize);
        let (tag, internal_tag) = (rq.tag.take(), rq.internal_tag.take());
        self.rqs.remove(id);
        let h = &mut self.hctxs[hctx];
        if let Some(tag) = tag {
            h.tags.put(cpu, tag.index() as u32);
        }
        if let (Some(tag), Some(tags)) = (internal_tag, &mut h.sched_tags) {
            tags.put(cpu, tag.index() as u32);
        }
        self.wake_waiters(hctx);
        self.restart(now, hctx);
    }

    #[inline]
    fn wake_waiters(&mut self, hctx: usize) {
        if self.waiting[hctx].is_empty() {
            return;
        }
        for _ in 0..self.hctxs[hctx].alloc_tags().freed_with_waiters() {
            match self.waiting[hctx].pop_front() {
                Some(ticket) => self.woken.push(ticket),
                None => break,
            }
        }
    }

    /// `blk_mq_sched_restart`.
    #[inline]
    pub(crate) fn restart(&mut self, now: Nanos, hctx: usize) {
        if self.hctxs[hctx].restart {
            self.hctxs[hctx].restart = false;
            self.run_hw_queue_async(now, hctx);
        }
    }
}
