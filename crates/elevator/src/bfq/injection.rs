//! Injection: while the drive is idled for the queue in service, requests of other queues may be
//! dispatched, as many as do not slow down its own. Wakers: if a queue's requests always follow
//! another queue's completions, serving that queue helps it most.

use blklab_blk::{SchedCtx, msecs_to_jiffies};

use super::Bfq;
use super::queue::QueueId;
use super::queue::SMALL_SECTORS;

/// A request this soon after another queue's completion may have waited for it.
const WAKE_NS: u64 = 4_000_000;
/// This many such requests in a row make the other queue a waker.
const WAKE_DETECTIONS: u32 = 3;
/// They must come within this many idle slices.
const WAKE_SLICES: u64 = 128;

impl Bfq {
    /// Resets what was learned. A queue with a long think time starts with one injected request,
    /// one with a short think time with none.
    pub(super) fn reset_injection(&mut self, q: QueueId) {
        let jiffies = self.jiffies;
        let queue = &mut self.queues[q];
        queue.injection.last_service_ns = 0;
        queue.injection.limit = if queue.short_ttime { 0 } else { 1 };
        queue.injection.lowered = jiffies;
        self.waited_rq = None;
    }

    /// Starts timing a request that arrives at an empty synchronous queue; its service time shows
    /// the cost of injection.
    pub(super) fn prepare_injection_sample(&mut self, q: QueueId) {
        self.detect_waker(q);
        let jiffies = self.jiffies;
        if self.queues[q].injection.lowered + msecs_to_jiffies(1000) <= jiffies {
            self.reset_injection(q);
        }
        let injection = self.queues[q].injection;
        let undisturbed = self.in_driver == 0;
        let disturbed = injection.last_service_ns > 0 && self.rqs_injected && self.in_driver > 0;
        if self.in_service == Some(q)
            && (undisturbed || disturbed)
            && injection.lowered + msecs_to_jiffies(10) <= jiffies
        {
            self.last_empty_occupied_ns = self.now_ns;
            self.wait_dispatch = true;
            if undisturbed {
                self.rqs_injected = false;
            }
        }
    }

    /// Handles the completion of the timed request. The limit rises while the request took less
    /// than one and a half times as long as without injection, otherwise it falls.
    pub(super) fn update_injection(&mut self, q: QueueId) {
        let total_ns = self.now_ns.wrapping_sub(self.last_empty_occupied_ns);
        let (jiffies, in_driver) = (self.jiffies, self.in_driver);
        let injection = &mut self.queues[q].injection;
        let old_limit = injection.limit;
        if injection.last_service_ns > 0 && self.rqs_injected {
            let threshold = injection.last_service_ns * 3 / 2;
            if total_ns >= threshold && old_limit > 0 {
                injection.limit -= 1;
                injection.lowered = jiffies;
            } else if total_ns < threshold && old_limit <= self.drive.max_in_driver {
                injection.limit += 1;
            }
        }
        let alone = in_driver == 1;
        if (injection.last_service_ns == 0 && alone) || total_ns < injection.last_service_ns {
            if injection.last_service_ns == 0 {
                // There is now a reference time, so injection can be tried.
                injection.limit = old_limit.max(1);
            }
            injection.last_service_ns = total_ns;
        } else if !self.rqs_injected && alone {
            // The drive or its workload has changed.
            injection.last_service_ns = total_ns;
        }
        self.waited_rq = None;
        self.rqs_injected = false;
    }

    /// Chooses a queue to inject a request from while the drive is idled for `in_service`.
    ///
    /// The kernel also means to allow one request after the wait has lasted a slice, but it
    /// compares jiffies with nanoseconds, so that never happens.
    pub(super) fn choose_for_injection(
        &mut self,
        ctx: &SchedCtx<'_>,
        in_service: QueueId,
    ) -> Option<QueueId> {
        let queue = &self.queues[in_service];
        if self.in_driver >= queue.injection.limit {
            return None;
        }
        let from_any = !queue.is_raised() || !queue.short_ttime;
        let chosen = self.last_activated(|q| {
            (from_any || self.queues[q].is_raised())
                && self.can_afford_next(ctx, q)
                && !self.is_too_large_to_inject(ctx, q)
        })?;
        self.rqs_injected = true;
        Some(chosen)
    }

    /// Whether a queue's next request is too large: on a drive without moving parts it may delay
    /// the queue in service for longer than was measured.
    fn is_too_large_to_inject(&self, ctx: &SchedCtx<'_>, q: QueueId) -> bool {
        let next = self.queues[q].next_rq;
        let large = next.is_some_and(|id| ctx.rqs[id].sectors as u64 >= SMALL_SECTORS);
        self.nonrot && large && self.in_driver >= 1
    }

    /// Chooses a queue to serve while the one in service is empty: the asynchronous queue of its
    /// process, its waker, or a queue that it wakes.
    pub(super) fn async_waker_or_woken(&self, ctx: &SchedCtx<'_>, q: QueueId) -> Option<QueueId> {
        let can_serve = |q: QueueId| self.queues[q].busy && self.can_afford_next(ctx, q);
        let own_async = self.own_async(ctx, q);
        let related = [
            own_async,
            self.queues[q].waker,
            self.queues[q].woken.first().copied(),
        ];
        related.into_iter().flatten().find(|&q| can_serve(q))
    }

    /// The asynchronous queue of the process, if its next request comes from this process.
    fn own_async(&self, ctx: &SchedCtx<'_>, q: QueueId) -> Option<QueueId> {
        let context = self.queues[q].context?;
        let asynchronous = self.contexts[context].queues[0]?;
        let next = self.queues[asynchronous].next_rq?;
        (Bfq::context_of(&ctx.rqs[next]) == Some(context)).then_some(asynchronous)
    }

    /// Counts requests that follow another queue's completion, until that queue is known to be the
    /// waker (`bfq_check_waker`).
    fn detect_waker(&mut self, q: QueueId) {
        let Some(last) = self.last_completed else {
            return;
        };
        let now_ns = self.now_ns;
        let slices_ns = WAKE_SLICES * self.settings.slice_idle_ns;
        let queue = &mut self.queues[q];
        let late = now_ns.wrapping_sub(self.last_completion_ns) >= WAKE_NS;
        if last == q || queue.short_ttime || late {
            return;
        }
        let too_old = now_ns > queue.waker_detection_started_ns + slices_ns;
        if queue.tentative_waker != Some(last) || too_old {
            queue.tentative_waker = Some(last);
            queue.waker_detections = 1;
            queue.waker_detection_started_ns = now_ns;
        } else {
            queue.waker_detections += 1;
        }
        if queue.waker_detections == WAKE_DETECTIONS {
            queue.tentative_waker = None;
            self.set_waker(q, Some(last));
        }
    }

    pub(super) fn set_waker(&mut self, q: QueueId, waker: Option<QueueId>) {
        self.leave_waker(q);
        self.queues[q].waker = waker;
        if let Some(waker) = waker {
            self.queues[waker].woken.insert(0, q);
        }
    }

    pub(super) fn leave_waker(&mut self, q: QueueId) {
        if let Some(waker) = self.queues[q].waker.take() {
            self.queues[waker].woken.retain(|&woken| woken != q);
        }
    }

    /// Moves a queue that became busy to the front of its waker's list.
    pub(super) fn move_to_front_of_woken(&mut self, q: QueueId) {
        if let Some(waker) = self.queues[q].waker {
            let woken = &mut self.queues[waker].woken;
            if let Some(at) = woken.iter().position(|&w| w == q) {
                woken[..=at].rotate_right(1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::queues;

    const MS: u64 = 1_000_000;

    /// A queue is the waker of one that thinks long if three requests of that one follow its
    /// completions within 4 ms each and 128 idle slices in all (`bfq_check_waker`).
    #[test]
    fn three_requests_after_completions_show_a_waker() {
        let slices_ns = 128 * 8 * MS;
        // When the requests come after the first, and after their completions.
        let cases: [(&[u64], u64, bool); 6] = [
            (&[0, MS], 0, false),
            (&[0, MS, 2 * MS], 4 * MS - 1, true),
            (&[0, MS, 2 * MS], 4 * MS, false),
            (&[0, MS, slices_ns], 0, true),
            (&[0, MS, slices_ns + 1], 0, false),
            (
                &[0, MS, slices_ns + 1, slices_ns + 2, slices_ns + 3],
                0,
                true,
            ),
        ];
        for (times_ns, after_ns, is_found) in cases {
            let (mut bfq, [q, waker]) = queues();
            bfq.queues[q].short_ttime = false;
            bfq.last_completed = Some(waker);
            let start_ns = bfq.now_ns;
            for time_ns in times_ns {
                bfq.now_ns = start_ns + time_ns;
                bfq.last_completion_ns = bfq.now_ns - after_ns;
                bfq.detect_waker(q);
            }
            let found = bfq.queues[q].waker;
            assert_eq!(found, is_found.then_some(waker), "{times_ns:?} {after_ns}");
        }
    }

    /// Another queue's completion in between begins anew, a queue does not wake itself, and one
    /// that thinks shortly needs none (`bfq_check_waker`).
    #[test]
    fn only_one_other_queue_is_a_waker() {
        for (completed, short_ttime, is_found) in [
            ([1, 1, 1], false, true),
            ([1, 2, 1], false, false),
            ([2, 1, 1], false, false),
            ([0, 0, 0], false, false),
            ([1, 1, 1], true, false),
        ] {
            let (mut bfq, all) = queues::<3>();
            bfq.queues[all[0]].short_ttime = short_ttime;
            bfq.last_completion_ns = bfq.now_ns;
            for number in completed {
                bfq.last_completed = Some(all[number]);
                bfq.detect_waker(all[0]);
            }
            let found = bfq.queues[all[0]].waker;
            assert_eq!(found, is_found.then_some(all[1]), "{completed:?}");
        }
    }
}
