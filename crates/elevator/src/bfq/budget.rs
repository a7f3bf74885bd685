//! Budgets: the service that a queue may get in a row, and what it is charged. A queue that
//! exhausts its budget gets a larger one next time, one that stops early a smaller one.

use blklab_blk::{RequestId, SchedCtx, jiffy_start};

use super::Bfq;
use super::queue::{MIN_THINK_TIME_NS, QueueId};
use super::weight_raising::REFERENCE_RATE;

/// The estimated rate is not used until the count of assigned budgets reaches this; each budget
/// moves the count an eighth of the way to 256.
const ENOUGH_BUDGETS: u32 = 194;
/// The largest budget until then, in sectors.
pub(super) const DEFAULT_MAX_BUDGET: i64 = 16 * 1024;
/// The smallest budget is the largest divided by this.
const MIN_BUDGET_PART: i64 = 32;
/// An asynchronous request is charged this many times its sectors, so that writes do
/// not take the drive from reads.
const ASYNC_FACTOR: u64 = 3;
/// The time slot to which a charge for time is relative (`bfq_bfqq_charge_time`), in milliseconds.
const CHARGE_TIMEOUT_MS: i64 = 124;

/// Why a queue leaves service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expiration {
    /// Its next request did not come within the idle slice.
    TooIdle,
    /// It was in service for too long.
    BudgetTimeout,
    BudgetExhausted,
    NoMoreRequests,
    /// Another queue must be served at once.
    Preempted,
}

impl Bfq {
    /// Sectors that the drive serves in `timeout_sync` at its peak rate.
    pub(super) fn budget_of_peak_rate(&self) -> i64 {
        let timeout_us = jiffy_start(self.settings.timeout).0 / 1_000;
        (self.rate.peak.saturating_mul(timeout_us) >> RATE_SHIFT) as i64
    }

    fn knows_rate(&self) -> bool {
        self.budgets_assigned >= ENOUGH_BUDGETS
    }

    pub(super) fn default_or_max_budget(&self) -> i64 {
        match self.knows_rate() {
            true => self.max_budget,
            false => DEFAULT_MAX_BUDGET,
        }
    }

    pub(super) fn min_budget(&self) -> i64 {
        self.default_or_max_budget() / MIN_BUDGET_PART
    }

    pub(super) fn count_budget(&mut self) {
        self.budgets_assigned = (self.budgets_assigned * 7 + 256) / 8;
    }

    /// The charge for a request, in sectors.
    pub(super) fn charge_of(&self, ctx: &SchedCtx<'_>, q: QueueId, id: RequestId) -> i64 {
        let sectors = ctx.rqs[id].sectors as u64;
        let queue = &self.queues[q];
        let plain = queue.sync || queue.is_raised() || self.is_asymmetric(Some(q));
        let factor = if plain { 1 } else { ASYNC_FACTOR };
        (sectors * factor) as i64
    }

    /// Whether the queue's next request, if any, is within its budget.
    pub(super) fn can_afford_next(&self, ctx: &SchedCtx<'_>, q: QueueId) -> bool {
        let next = self.queues[q].next_rq;
        next.is_some_and(|id| self.charge_of(ctx, q, id) <= self.queues[q].budget_left())
    }

    /// The queue's largest budget, or the charge of its next request if that is more.
    fn budget_for_next(&self, ctx: &SchedCtx<'_>, q: QueueId) -> i64 {
        let charge = self.queues[q].next_rq.map(|id| self.charge_of(ctx, q, id));
        self.queues[q].max_budget.max(charge.unwrap_or(0))
    }

    /// Adjusts the budget, and with it the finish time, to a new next request
    /// (`bfq_updated_next_req`).
    pub(super) fn next_request_changed(&mut self, ctx: &SchedCtx<'_>, q: QueueId) {
        // Budgets are not changed while they are in use.
        if self.queues[q].next_rq.is_none() || self.in_service == Some(q) {
            return;
        }
        let budget = self.budget_for_next(ctx, q);
        let entity = &mut self.queues[q].entity;
        let budget = budget.max(entity.service);
        if entity.budget != budget {
            entity.budget = budget;
            self.requeue(q, false);
        }
    }

    /// Sets the budget of a queue that becomes busy. If its request came within the idle slice, the
    /// queue continues with the rest of its budget and may preempt the queue in service; returns
    /// true in that case.
    pub(super) fn budget_for_activation(
        &mut self,
        ctx: &SchedCtx<'_>,
        q: QueueId,
        arrived_in_time: bool,
    ) -> bool {
        let budget = self.budget_for_next(ctx, q);
        let queue = &mut self.queues[q];
        let left = queue.budget_left();
        if queue.non_blocking_wait && arrived_in_time && left > 0 {
            queue.entity.budget = left.min(queue.max_budget);
            queue.entity.service = 0;
            return true;
        }
        queue.entity.service = 0;
        queue.entity.budget = budget;
        queue.non_blocking_wait = false;
        false
    }

    /// Sets when the budget times out; a weight-raised queue has more time, by the factor of its
    /// raising.
    pub(super) fn start_budget(&mut self, q: QueueId) {
        let soft_rt = self.is_soft_rt(q);
        let queue = &mut self.queues[q];
        let factor = match soft_rt {
            true => 1,
            false => (queue.entity.weight / queue.entity.orig_weight.max(1)) as i64,
        };
        queue.budget_timeout = self.jiffies + self.settings.timeout * factor;
        self.last_budget_start_ns = self.now_ns;
    }

    pub(super) fn is_past_timeout(&self, q: QueueId) -> bool {
        self.queues[q].budget_timeout <= self.jiffies
    }

    /// Whether a timeout expires the queue now. A queue for which the drive is idled may use up a
    /// small rest of its budget.
    pub(super) fn may_expire_for_timeout(&self, q: QueueId) -> bool {
        let queue = &self.queues[q];
        (!queue.wait_request || self.has_much_left(q)) && self.is_past_timeout(q)
    }

    fn has_much_left(&self, q: QueueId) -> bool {
        let queue = &self.queues[q];
        queue.budget_left() >= queue.entity.budget / 3
    }

    /// Whether the queue was slow, and how long it was in service, in milliseconds.
    fn is_slow(&self, q: QueueId, until_idling: bool) -> (bool, i64) {
        let queue = &self.queues[q];
        if !queue.sync {
            return (false, 0);
        }
        let end_ns = match until_idling {
            true => self.last_idling_start_ns,
            false => self.now_ns,
        };
        // The kernel's clock stands still in a plug, so the end may be before the start, and the
        // difference wraps both in the kernel and here.
        let time_ns = end_ns.wrapping_sub(self.last_budget_start_ns) as i64;
        let time_us = (time_ns / 1_000) as u32 as u64;
        if time_us < 1_000 {
            // The time is too short to measure, so the shortest useful time is assumed.
            let least_ms = if self.nonrot {
                MIN_THINK_TIME_NS
            } else {
                8_000_000
            } / 1_000_000;
            return (queue.is_seeky(), least_ms as i64);
        }
        let slow = match time_us > 20_000 {
            true => queue.entity.service < self.max_budget / 2,
            false => queue.is_seeky(),
        };
        (slow, (time_us / 1_000) as i64)
    }

    /// Charges a queue at least what the drive could have served in its time in service.
    fn charge_time(&mut self, q: QueueId, time_ms: i64) {
        let bounded_ms = time_ms.min(CHARGE_TIMEOUT_MS);
        let for_time = self.max_budget * bounded_ms / CHARGE_TIMEOUT_MS;
        let entity = &mut self.queues[q].entity;
        let total = for_time.max(entity.service);
        entity.budget = entity.budget.max(total);
        let more = (total - entity.service) as u64;
        self.charge_service(q, more);
    }

    /// Computes the next budget from how this one was used.
    fn recalc_budget(&mut self, ctx: &SchedCtx<'_>, q: QueueId, reason: Expiration) {
        let (min, max) = (self.min_budget(), self.max_budget);
        let queue = &self.queues[q];
        let (old, service) = (queue.max_budget, queue.entity.service);
        let budget = if !queue.sync {
            // Asynchronous queues get the largest budget, because they are charged fully.
            max
        } else if queue.is_raised() {
            2 * min
        } else {
            match reason {
                // It waited for its own requests in the drive; a larger budget would have let it
                // send more.
                Expiration::TooIdle if queue.dispatched > 0 => (old * 2).min(max),
                Expiration::TooIdle if old > 5 * min => old - 4 * min,
                Expiration::TooIdle => min,
                Expiration::BudgetTimeout => (old * 2).min(max),
                Expiration::BudgetExhausted => (old * 4).min(max),
                Expiration::NoMoreRequests => service.max(min),
                // Preemption says nothing about the queue.
                Expiration::Preempted => return,
            }
        };
        let bounded = match self.knows_rate() && self.settings.user_max_budget == 0 {
            true => budget.min(max),
            false => budget,
        };
        self.queues[q].max_budget = bounded;
        if self.queues[q].next_rq.is_some() {
            self.queues[q].entity.budget = self.budget_for_next(ctx, q);
        }
    }

    /// Expires the queue in service (`bfq_bfqq_expire`). With `until_idling` the idle slice is not
    /// counted.
    pub(super) fn expire(
        &mut self,
        ctx: &SchedCtx<'_>,
        q: QueueId,
        until_idling: bool,
        reason: Expiration,
    ) {
        let (slow, time_ms) = self.is_slow(q, until_idling);
        let timed_out = reason == Expiration::BudgetTimeout && self.has_much_left(q);
        if !self.queues[q].is_raised() && (slow || timed_out) {
            self.charge_time(q, time_ms);
        }
        if self.settings.low_latency {
            let next_start = self.soft_rt_next_start(q);
            let queue = &mut self.queues[q];
            if !queue.is_raised() {
                queue.raising.start_finish = self.jiffies;
            }
            match (queue.sorted.is_empty(), queue.dispatched) {
                (true, 0) => queue.soft_rt_next_start = next_start,
                // The time is known when its last request completes.
                (true, _) => queue.soft_rt_update = true,
                _ => {}
            }
        }
        self.rqs_injected = false;
        self.wait_dispatch = false;
        self.waited_rq = None;
        self.expirations[reason as usize] += 1;
        self.recalc_budget(ctx, q, reason);
        if self.leave_service(ctx, q, reason) {
            return;
        }
        let queue = &mut self.queues[q];
        let used_up = matches!(
            reason,
            Expiration::BudgetTimeout | Expiration::BudgetExhausted
        );
        if !queue.busy && !used_up {
            queue.non_blocking_wait = true;
        } else {
            queue.entity.service = 0;
        }
        // A group takes its budget from its next queue, so its service starts from zero.
        let group = queue.group;
        self.each_group_from(group, |entity| entity.service = 0);
    }

    /// Takes the queue out of service; returns true if that freed it.
    pub(super) fn leave_service(
        &mut self,
        ctx: &SchedCtx<'_>,
        q: QueueId,
        reason: Expiration,
    ) -> bool {
        let queue = &mut self.queues[q];
        if queue.coop && queue.is_seeky() {
            // Cooperating processes read sequentially; these no longer do.
            queue.split_coop = true;
        }
        let keep = reason == Expiration::Preempted && self.needs_idling(q);
        if self.queues[q].sorted.is_empty() && !keep {
            let queue = &mut self.queues[q];
            if queue.dispatched == 0 {
                queue.budget_timeout = self.jiffies;
            }
            self.del_busy(q, true);
        } else {
            self.requeue(q, true);
            if !self.queues[q].sorted.is_empty() {
                self.move_position(ctx, q);
            }
        }
        self.queues[q].wait_request = false;
        self.slice_timer = None;
        self.in_service = None;
        self.clear_in_service(q);
        self.release(q)
    }
}

// The drive's peak rate is estimated from requests dispatched in intervals of about a second.
// Budgets and the duration of weight raising depend on it.

/// Fraction bits of a rate in sectors per microsecond.
pub(super) const RATE_SHIFT: u32 = 16;
const MIN_SAMPLES: u32 = 32;
const MIN_INTERVAL_NS: u64 = 300_000_000;
const REFERENCE_INTERVAL_NS: u64 = 1_000_000_000;
/// After this long without requests, the next one starts a new interval.
const IDLE_NS: u64 = 100_000_000;
/// A rate above this, in sectors per microsecond, is a measurement error.
const MAX_RATE: u64 = 20 << RATE_SHIFT;

/// The estimate, and the current interval.
#[derive(Debug)]
pub(super) struct PeakRate {
    pub(super) peak: u64,
    samples: u32,
    sequential_samples: u32,
    sectors: u64,
    max_rq_sectors: u64,
    first_dispatch_ns: u64,
    last_dispatch_ns: u64,
    delta_from_first_ns: u64,
}

impl PeakRate {
    pub(super) fn new(nonrot: bool) -> PeakRate {
        PeakRate {
            peak: REFERENCE_RATE[nonrot as usize] * 2 / 3,
            samples: 0,
            sequential_samples: 0,
            sectors: 0,
            max_rq_sectors: 0,
            first_dispatch_ns: 0,
            last_dispatch_ns: 0,
            delta_from_first_ns: 0,
        }
    }

    /// Starts an interval with a request of this many sectors; with `None` the next request starts
    /// it.
    fn restart(&mut self, now_ns: u64, sectors: Option<u64>) {
        let Some(sectors) = sectors else {
            self.samples = 0;
            return;
        };
        self.last_dispatch_ns = now_ns;
        self.first_dispatch_ns = now_ns;
        self.samples = 1;
        self.sequential_samples = 0;
        self.sectors = sectors;
        self.max_rq_sectors = sectors;
    }

    /// Updates the estimate if the interval was long enough and not slowed down by seeks. Returns
    /// whether the estimate changed.
    fn update(&mut self, last_completion_ns: u64) -> bool {
        if self.samples < MIN_SAMPLES || self.delta_from_first_ns < MIN_INTERVAL_NS {
            return false;
        }
        // The last request may have completed long after its dispatch.
        let to_completion = last_completion_ns.wrapping_sub(self.first_dispatch_ns);
        self.delta_from_first_ns = self.delta_from_first_ns.max(to_completion);
        let rate = (self.sectors << RATE_SHIFT) / (self.delta_from_first_ns / 1_000).max(1);
        let mostly_sequential = self.sequential_samples >= (3 * self.samples) >> 2;
        if (!mostly_sequential && rate <= self.peak) || rate > MAX_RATE {
            return false;
        }
        // The longer and the more sequential the interval, the more it counts.
        let weight = (9 * self.sequential_samples / self.samples) as u64;
        // If nothing completed since the first dispatch, the length has wrapped below zero; the
        // product then wraps, in the kernel and here.
        let weight = weight.wrapping_mul(self.delta_from_first_ns) / REFERENCE_INTERVAL_NS;
        let weight = weight.min(8);
        let divisor = 10 - weight;
        self.peak = (self.peak * (divisor - 1) / divisor + rate / divisor).max(1);
        true
    }
}

impl Bfq {
    /// Ends the interval; the next one starts with a request of this many sectors.
    fn end_rate_interval(&mut self, sectors: Option<u64>) {
        if self.rate.update(self.last_completion_ns) && self.settings.user_max_budget == 0 {
            self.max_budget = self.budget_of_peak_rate();
        }
        self.rate.restart(self.now_ns, sectors);
    }

    /// Records a dispatched request.
    pub(super) fn rate_on_dispatch(&mut self, ctx: &SchedCtx<'_>, id: RequestId) {
        let rq = &ctx.rqs[id];
        let (sector, sectors) = (rq.sector.0, rq.sectors as u64);
        let now_ns = self.now_ns;
        let since_last = now_ns.wrapping_sub(self.rate.last_dispatch_ns);
        if self.rate.samples == 0 {
            self.rate.restart(now_ns, Some(sectors));
        } else if since_last > IDLE_NS && self.in_driver == 0 {
            self.end_rate_interval(Some(sectors));
        } else {
            self.rate.samples += 1;
            let since_completion = now_ns.wrapping_sub(self.last_completion_ns);
            let busy = self.in_driver > 0 || since_completion < MIN_THINK_TIME_NS;
            if busy && !self.is_far(self.last_position, sector, sectors) {
                self.rate.sequential_samples += 1;
            }
            let rate = &mut self.rate;
            rate.sectors += sectors;
            rate.max_rq_sectors = match rate.samples % 32 {
                0 => sectors,
                _ => rate.max_rq_sectors.max(sectors),
            };
            rate.delta_from_first_ns = now_ns.wrapping_sub(rate.first_dispatch_ns);
            if rate.delta_from_first_ns >= REFERENCE_INTERVAL_NS {
                self.end_rate_interval(Some(sectors));
            }
        }
        self.last_position = sector + sectors;
        self.rate.last_dispatch_ns = now_ns;
    }

    /// Records a completed request. If the drive took very long for few sectors, the interval says
    /// nothing about the peak rate and is dropped.
    pub(super) fn rate_on_completion(&mut self) {
        let since_last = self.now_ns.wrapping_sub(self.last_completion_ns);
        let since_last_us = since_last / 1_000;
        if since_last_us > MIN_THINK_TIME_NS / 1_000
            && (self.rate.max_rq_sectors << RATE_SHIFT) / since_last_us < 1 << (RATE_SHIFT - 10)
        {
            self.end_rate_interval(None);
        }
        self.last_completion_ns = self.now_ns;
    }
}

#[cfg(test)]
mod tests {
    use blklab_blk::{Bio, MergeState, Nanos, Op, QueueLimits, Request, Requests, Sector, Trace};

    use super::*;

    /// An interval of sequential requests without a completion.
    #[test]
    fn an_interval_without_a_completion_wraps_as_in_the_kernel() {
        for first_dispatch_ns in [1, 2_000_000_000, u64::MAX] {
            let mut rate = PeakRate::new(true);
            let before = rate.peak;
            rate.samples = MIN_SAMPLES;
            rate.sequential_samples = MIN_SAMPLES;
            rate.sectors = 8 * MIN_SAMPLES as u64;
            rate.first_dispatch_ns = first_dispatch_ns;
            rate.delta_from_first_ns = REFERENCE_INTERVAL_NS;
            assert!(rate.update(0));
            assert!(rate.peak < before, "{first_dispatch_ns}");
        }
    }

    /// The new estimate lies between the old one and the interval's rate. It goes half of the way
    /// after a whole sequential interval, and a tenth at least (`bfq_update_peak_rate`).
    #[test]
    fn the_longer_and_the_more_sequential_an_interval_the_more_it_counts() {
        let old = 1 << RATE_SHIFT;
        for (sequential, ms, divisor) in [
            (32, 1_000, 2),
            (32, 2_000, 2),
            (32, 800, 3),
            (32, 500, 6),
            (32, 300, 8),
            (24, 1_000, 4),
            (23, 1_000, 4),
            (16, 1_000, 6),
            (4, 1_000, 9),
            (3, 1_000, 10),
            (3, 2_500, 10),
            (4, 2_500, 8),
            (0, 1_000, 10),
        ] {
            let mut rate = PeakRate::new(true);
            rate.peak = old;
            (rate.samples, rate.sequential_samples) = (32, sequential);
            rate.delta_from_first_ns = ms * 1_000_000;
            // Three sectors per microsecond.
            rate.sectors = 3 * ms * 1_000;
            assert!(rate.update(0));
            let (way, whole) = (rate.peak - old, 2 << RATE_SHIFT);
            assert!(
                (way * divisor).abs_diff(whole) <= 2 * divisor,
                "{sequential} {ms}"
            );
        }
    }

    /// A rate that is lower than the estimate may come from seeks, and one above 20 sectors per
    /// microsecond cannot be true; neither may an interval be short or have few requests
    /// (`bfq_update_rate_reset`, `bfq_update_peak_rate`). The estimate never becomes zero.
    #[test]
    fn an_interval_that_says_nothing_changes_nothing() {
        let update = |samples, sequential, ms: u64, sectors, peak| {
            let mut rate = PeakRate::new(true);
            (rate.samples, rate.sequential_samples) = (samples, sequential);
            (rate.delta_from_first_ns, rate.sectors) = (ms * 1_000_000, sectors);
            rate.peak = peak;
            let is_changed = rate.update(0);
            assert!(is_changed || rate.peak == peak);
            is_changed.then_some(rate.peak)
        };
        let one = 1 << RATE_SHIFT;
        assert_eq!(update(31, 31, 1_000, 3_000_000, one), None);
        assert_eq!(update(32, 32, 299, 900_000, one), None);
        assert!(update(32, 32, 300, 900_000, one).is_some());
        assert_eq!(update(32, 23, 1_000, 1_000_000, one), None, "no faster");
        assert_eq!(update(32, 24, 1_000, 1_000_000, one), Some(one));
        assert_eq!(update(32, 23, 1_000, 1_000_100, one), Some(one + 1));
        assert!(update(32, 32, 1_000, 20_000_000, one).is_some());
        assert_eq!(update(32, 32, 1_000, 20_000_100, one), None, "too fast");
        assert_eq!(update(32, 32, 1_000, 1, 1), Some(1));
    }

    /// The time of the last request counts until its completion.
    #[test]
    fn an_interval_ends_with_its_last_completion() {
        let mut rate = PeakRate::new(true);
        (rate.samples, rate.sequential_samples) = (32, 32);
        (rate.delta_from_first_ns, rate.sectors) = (500_000_000, 1_000_000);
        rate.first_dispatch_ns = 7_000_000;
        rate.peak = 1 << RATE_SHIFT;
        assert!(rate.update(1_007_000_000));
        assert_eq!(rate.delta_from_first_ns, 1_000_000_000);
        assert_eq!(rate.peak, 1 << RATE_SHIFT);
    }

    /// A request close to the last one is evidence of the drive's speed only if the drive was busy,
    /// or had been for all but 2 ms (`bfq_update_peak_rate`).
    #[test]
    fn a_request_after_a_pause_is_no_evidence_of_speed() {
        let now = Nanos::from_secs(10);
        let mut rqs = Requests::default();
        let id = rqs.insert(Request::for_bio(&Bio::new(Op::Read, Sector(1_000), 8), now));
        let ctx = SchedCtx {
            now,
            rqs: &mut rqs,
            merge: &mut MergeState::new(QueueLimits::default()),
            trace: &mut Trace::default(),
            runs: &mut Vec::new(),
        };
        for (in_driver, since_completion_us, last_position, expected) in [
            (1, 50_000, 1_000, 1),
            (1, 50_000, 9_000_000, 0),
            (0, 1_999, 1_000, 1),
            (0, 1_999, 9_000_000, 0),
            (0, 2_000, 1_000, 0),
            (0, 50_000, 1_000, 0),
        ] {
            let mut bfq = Bfq::new(&crate::test_queue::queue_info());
            bfq.now_ns = now.0;
            bfq.rate.restart(now.0 - 60_000_000, Some(24));
            bfq.last_completion_ns = now.0 - since_completion_us * 1_000;
            (bfq.in_driver, bfq.last_position) = (in_driver, last_position);
            bfq.rate_on_dispatch(&ctx, id);
            let PeakRate {
                samples,
                sequential_samples,
                sectors,
                max_rq_sectors,
                ..
            } = bfq.rate;
            assert_eq!((samples, sectors, max_rq_sectors), (2, 32, 24));
            assert_eq!(
                sequential_samples, expected,
                "{in_driver} {since_completion_us}"
            );
            assert_eq!(bfq.last_position, 1_008);
        }
    }

    /// An interval is dropped if the drive took more than 2 ms for a request and did less than a
    /// sector in 1024 us (`bfq_completed_request`).
    #[test]
    fn a_drive_that_was_busy_otherwise_says_nothing_about_its_rate() {
        for (sectors, took_us, is_dropped) in [
            (1, 2_000, false),
            (1, 2_001, true),
            (2, 2_001, false),
            (2, 2_047, false),
            (2, 2_049, true),
            (8, 8_191, false),
            (8, 8_193, true),
        ] {
            let mut bfq = Bfq::new(&crate::test_queue::queue_info());
            (bfq.rate.samples, bfq.rate.max_rq_sectors) = (5, sectors);
            bfq.now_ns = bfq.last_completion_ns + took_us * 1_000;
            bfq.rate_on_completion();
            let case = (sectors, took_us);
            assert_eq!(bfq.rate.samples, if is_dropped { 0 } else { 5 }, "{case:?}");
            assert_eq!(bfq.last_completion_ns, bfq.now_ns);
        }
    }

    /// Whether a queue was slow follows from its seeks, and after more than 20 ms from its service,
    /// which is then less than half of the largest budget. A time below 1 ms cannot be measured and
    /// counts as the time of a seek; asynchronous queues are never slow (`bfq_bfqq_is_slow`).
    #[test]
    fn a_queue_is_slow_by_its_seeks_or_after_20_ms_by_its_service() {
        let (seeks, half) = (u32::MAX, DEFAULT_MAX_BUDGET / 2);
        for (nonrot, seek_history, service, took_us, expected) in [
            (true, 0, 0, 999, (false, 2)),
            (true, seeks, half, 999, (true, 2)),
            (false, seeks, half, 999, (true, 8)),
            (true, 0, 0, 1_000, (false, 1)),
            (true, seeks, half, 1_000, (true, 1)),
            (true, 0, 0, 20_000, (false, 20)),
            (true, seeks, half, 20_000, (true, 20)),
            (true, 0, half - 1, 20_001, (true, 20)),
            (true, seeks, half, 20_001, (false, 20)),
            (true, 0, half - 1, 123_999, (true, 123)),
        ] {
            for until_idling in [false, true] {
                let (mut bfq, q) = super::super::tests::one_queue();
                let end_ns = bfq.last_budget_start_ns + took_us * 1_000;
                // The idle slice at the end is not the queue's.
                let idle_ns = if until_idling { 8_000_000 } else { 0 };
                (bfq.last_idling_start_ns, bfq.now_ns) = (end_ns, end_ns + idle_ns);
                (bfq.nonrot, bfq.max_budget) = (nonrot, DEFAULT_MAX_BUDGET);
                bfq.queues[q].seek_history = seek_history;
                bfq.queues[q].entity.service = service;
                let case = (nonrot, seek_history, service, took_us);
                assert_eq!(bfq.is_slow(q, until_idling), expected, "{case:?}");
                bfq.queues[q].sync = false;
                assert_eq!(bfq.is_slow(q, until_idling), (false, 0));
            }
        }
    }

    /// A queue's budget is at least a 32nd of the largest, which is 16,384 sectors until enough
    /// budgets have been assigned for the rate to be known (`bfq_min_budget`).
    #[test]
    fn the_smallest_budget_is_a_part_of_the_largest() {
        let mut bfq = Bfq::new(&crate::test_queue::queue_info());
        bfq.max_budget = 64_000;
        let mut assigned = 0;
        while !bfq.knows_rate() {
            assert_eq!(bfq.min_budget(), 512);
            bfq.count_budget();
            assigned += 1;
        }
        assert_eq!(bfq.min_budget(), 2_000);
        // 256 * (1 - (7/8)^n) exceeds 194 from the eleventh on.
        assert_eq!(assigned, 11);
        (0..1_000).for_each(|_| bfq.count_budget());
        assert!(bfq.knows_rate());
    }

    #[test]
    fn a_budget_is_what_the_drive_does_in_timeout_sync() {
        let mut bfq = Bfq::new(&crate::test_queue::queue_info());
        // One sector per microsecond.
        bfq.rate.peak = 1 << RATE_SHIFT;
        assert_eq!(jiffy_start(bfq.settings.timeout), Nanos::from_millis(124));
        assert_eq!(bfq.budget_of_peak_rate(), 124_000);
    }
}
