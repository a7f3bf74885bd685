//! Idling: keeping the drive free for a moment because the queue in service is about to send its
//! next request. This costs throughput, so it is done only if it gains more (a sequential reader on
//! a drive that seeks) or if shares or latencies could not be kept otherwise.

use alloc::vec::Vec;

use blklab_blk::{Nanos, SchedCtx};

use super::Bfq;
use super::budget::Expiration;
use super::queue::{MIN_THINK_TIME_NS, QueueId};

/// The shortest idle time for a weight-raised queue.
const RAISED_IDLE_NS: u64 = 20_000_000;

/// A drive that holds more requests than this queues commands.
const QUEUEING_THRESHOLD: u32 = 3;
const QUEUEING_SAMPLES: u32 = 32;

/// Whether the drive queues commands, as far as is known.
#[derive(Debug, Default)]
pub(super) struct DriveQueue {
    pub(super) known: Option<bool>,
    pub(super) max_in_driver: u32,
    samples: u32,
}

impl DriveQueue {
    /// Assumed to be true until it is known.
    pub(super) fn is_queueing(&self) -> bool {
        self.known.unwrap_or(true)
    }
}

impl Bfq {
    pub(super) fn busy_total(&self) -> u32 {
        self.busy.iter().sum()
    }

    /// Learns at each completion whether the drive queues commands (`bfq_update_hw_tag`).
    pub(super) fn observe_drive_queue(&mut self) {
        self.drive.max_in_driver = self.drive.max_in_driver.max(self.in_driver);
        if self.drive.known == Some(true) {
            return;
        }
        // Under low load the depth says nothing about the drive.
        if self.in_driver + self.queued <= QUEUEING_THRESHOLD {
            return;
        }
        if let Some(q) = self.in_service {
            let queue = &self.queues[q];
            let own = queue.dispatched + queue.queued[0] + queue.queued[1];
            if queue.short_ttime && own < QUEUEING_THRESHOLD && self.in_driver < QUEUEING_THRESHOLD
            {
                return;
            }
        }
        self.drive.samples += 1;
        if self.drive.samples <= QUEUEING_SAMPLES {
            return;
        }
        self.drive.known = Some(self.drive.max_in_driver > QUEUEING_THRESHOLD);
        self.drive.max_in_driver = 0;
        self.drive.samples = 0;
        self.queueing_flash = self.nonrot && self.drive.is_queueing();
    }

    /// Whether idling raises throughput (`idling_boosts_thr_without_issues`).
    pub(super) fn idling_boosts_throughput(&self, q: QueueId) -> bool {
        let queue = &self.queues[q];
        if queue.process_refs == 0 {
            return false;
        }
        let plain_disk = !self.nonrot && !self.drive.is_queueing();
        let sequential = !queue.is_seeky() && queue.io_bound && queue.short_ttime;
        let boosts = plain_disk || (!(self.nonrot && self.drive.is_queueing()) && sequential);
        // Idling for a queue that is not raised would delay raised ones.
        boosts && self.wr_busy == 0
    }

    /// Whether the queue needs idling to get its share, because other queues would fill the drive,
    /// which ignores weights.
    pub(super) fn needs_idling(&self, q: QueueId) -> bool {
        let queue = &self.queues[q];
        if queue.process_refs == 0 {
            return false;
        }
        let busy = self.busy_total();
        let others_lower = self.wr_busy < busy || self.in_driver >= queue.dispatched + 4;
        (queue.is_raised() && others_lower) || self.is_asymmetric(Some(q)) || busy == 1
    }

    /// Whether to idle for the queue's next request (`bfq_better_to_idle`).
    pub(super) fn better_to_idle(&self, q: QueueId) -> bool {
        let queue = &self.queues[q];
        if queue.process_refs == 0 {
            return false;
        }
        if self.settings.strict_guarantees {
            return true;
        }
        if self.settings.slice_idle_ns == 0 || !queue.sync || queue.is_idle_class() {
            return false;
        }
        self.idling_boosts_throughput(q) || self.needs_idling(q)
    }

    pub(super) fn must_idle(&self, q: QueueId) -> bool {
        self.queues[q].sorted.is_empty() && self.better_to_idle(q)
    }

    /// Starts idling for the queue in service.
    pub(super) fn arm_slice_timer(&mut self, q: QueueId) {
        self.queues[q].wait_request = true;
        let slice = self.settings.slice_idle_ns;
        let queue = &self.queues[q];
        let slice = if queue.is_raised() {
            slice.max(RAISED_IDLE_NS)
        } else if queue.is_seeky() && !self.is_asymmetric(Some(q)) {
            // A seeky queue gains little from idling, so its slice is short.
            slice.min(MIN_THINK_TIME_NS)
        } else {
            slice
        };
        self.last_idling_start_ns = self.now_ns;
        self.slice_timer = Some(Nanos(self.now_ns.saturating_add(slice)));
        self.idlings += 1;
    }

    pub(super) fn stop_waiting(&mut self, q: QueueId) {
        self.queues[q].wait_request = false;
        self.slice_timer = None;
    }

    /// Handles the end of the idle slice.
    pub(super) fn slice_timer_fired(&mut self, ctx: &SchedCtx<'_>) {
        let Some(q) = self.in_service else {
            return;
        };
        self.queues[q].wait_request = false;
        if self.is_past_timeout(q) {
            self.expire(ctx, q, true, Expiration::BudgetTimeout);
        } else if self.queues[q].queued == [0, 0] {
            self.expire(ctx, q, true, Expiration::TooIdle);
        }
        // Otherwise a small request came and was held back for merging.
        self.run_queues();
    }

    /// Schedules a run of the hardware queues, if there is something to dispatch.
    pub(super) fn run_queues(&mut self) {
        if self.queued > 0 {
            self.run_at = Some(Nanos(self.now_ns));
        }
    }
}

// Queues are counted by weight: if all weights are equal, no queue needs idling to get a fair
// share.

/// The number of queues of each weight, sorted by weight, that are busy or have requests in the
/// drive. Weight-raised queues do not count.
#[derive(Debug, Default)]
pub(super) struct WeightCounts(Vec<(u32, u32)>);

impl WeightCounts {
    fn add(&mut self, weight: u32) {
        match self.0.binary_search_by_key(&weight, |&(w, _)| w) {
            Ok(at) => self.0[at].1 += 1,
            Err(at) => self.0.insert(at, (weight, 1)),
        }
    }

    /// Every counted weight, as often as it is counted.
    #[cfg(test)]
    pub(super) fn all(&self) -> Vec<u32> {
        let times = |&(weight, count): &(u32, u32)| (0..count).map(move |_| weight);
        self.0.iter().flat_map(times).collect()
    }

    fn remove(&mut self, weight: u32) {
        if let Ok(at) = self.0.binary_search_by_key(&weight, |&(w, _)| w) {
            self.0[at].1 -= 1;
            if self.0[at].1 == 0 {
                self.0.remove(at);
            }
        }
    }
}

impl Bfq {
    pub(super) fn count_weight(&mut self, q: QueueId) {
        let queue = &mut self.queues[q];
        if queue.counted_weight.is_none() {
            queue.counted_weight = Some(queue.entity.weight);
            self.weights.add(queue.entity.weight);
        }
    }

    pub(super) fn uncount_weight(&mut self, q: QueueId) {
        if let Some(weight) = self.queues[q].counted_weight.take() {
            self.weights.remove(weight);
            self.release(q);
        }
    }

    /// Whether busy queues differ in weight or class, so that `q`, unless its weight is the lowest,
    /// needs idling to get its share (`bfq_asymmetric_scenario`).
    pub(super) fn is_asymmetric(&self, q: Option<QueueId>) -> bool {
        let counts = &self.weights.0;
        let weight = q.and_then(|q| self.queues[q].counted_weight);
        let least = weight.is_some() && weight == counts.first().map(|&(w, _)| w);
        let varied_weights = !least && counts.len() > 1;
        let classes = self.busy.iter().filter(|&&busy| busy > 0).count();
        varied_weights || classes > 1 || self.pending_groups > 1
    }
}
