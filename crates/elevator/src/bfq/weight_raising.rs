//! Weight raising: a queue that seems to belong to an interactive or a soft real-time program gets
//! many times its share for some time.
//!
//! A queue is interactive if it had no requests for long; it is raised for as long as it takes to
//! start a large program on this drive. A queue is soft real-time if its requests come at a low
//! rate and never before the previous ones completed, like those of a video player; it is raised
//! for short times, repeatedly and much higher.

use alloc::vec::Vec;

use blklab_blk::{HZ, JIFFY_NS, msecs_to_jiffies};

use super::Bfq;
use super::groups::{GroupId, ROOT};
use super::queue::{DEFAULT_WEIGHT, LONG_AGO, QueueId};

/// Factor of an interactive queue's weight.
const COEFF: u32 = 30;
/// Additional factor of a soft real-time queue's weight.
const SOFT_RT_FACTOR: u32 = 100;
const SOFT_RT_MS: i64 = 300;
/// A queue must be without requests for this long to be raised again.
const MIN_IDLE_MS: i64 = 2_000;
/// The shortest time between raisings of an asynchronous queue that is always busy.
const MIN_INTER_ARRIVAL_ASYNC_MS: i64 = 500;
/// The highest rate of a soft real-time program, in sectors per second.
const MAX_SOFT_RT_RATE: i64 = 7_000;
/// A raised queue with more service than this, in sectors, is copying files rather than starting a
/// program.
const MAX_SERVICE: u64 = 120_000;

/// The time to start a large program on a drive of the reference rate: with moving parts, and
/// without.
const REFERENCE_MS: [i64; 2] = [7_000, 2_500];
/// Reference rates in sectors per microsecond, with 16 fraction bits: with moving parts, and
/// without.
pub(super) const REFERENCE_RATE: [u64; 2] = [14_000, 33_000];
const MIN_DURATION_MS: i64 = 3_000;
const MAX_DURATION_MS: i64 = 25_000;

pub(super) fn min_idle_time() -> i64 {
    msecs_to_jiffies(MIN_IDLE_MS)
}

fn soft_rt_time() -> i64 {
    msecs_to_jiffies(SOFT_RT_MS)
}

/// Classification of a queue that became busy.
pub(super) struct Arrival {
    pub(super) old_coeff: u32,
    pub(super) raise: bool,
    pub(super) interactive: bool,
    pub(super) soft_rt: bool,
    pub(super) in_burst: bool,
}

impl Bfq {
    /// The duration of interactive raising in jiffies: the faster the drive, the shorter.
    pub(super) fn raising_time(&self) -> i64 {
        let reference = msecs_to_jiffies(REFERENCE_MS[self.nonrot as usize]) as u64;
        let time = REFERENCE_RATE[self.nonrot as usize] * reference / self.rate.peak;
        let (min, max) = (
            msecs_to_jiffies(MIN_DURATION_MS),
            msecs_to_jiffies(MAX_DURATION_MS),
        );
        (time as i64).clamp(min, max)
    }

    pub(super) fn interactive_coeff(&self) -> u32 {
        COEFF
    }

    /// Whether the queue's current or last raising is a soft real-time one.
    pub(super) fn is_soft_rt(&self, q: QueueId) -> bool {
        self.queues[q].raising.max_time == soft_rt_time()
    }

    /// Classifies a queue that becomes busy (`bfq_bfqq_handle_idle_busy_switch`).
    pub(super) fn classify_arrival(&self, q: QueueId, old_coeff: u32, single: bool) -> Arrival {
        let queue = &self.queues[q];
        let in_burst = queue.in_large_burst;
        let default = queue.entity.new_weight == DEFAULT_WEIGHT;
        let totally_seeky = queue.seek_history == u32::MAX;
        let soft_rt = !totally_seeky
            && !in_burst
            && queue.soft_rt_next_start < self.jiffies
            && queue.dispatched == 0
            && default;
        let interactive = !in_burst && self.idle_for_long(q) && default;
        let deserving = queue.sync && single && (interactive || soft_rt);
        Arrival {
            old_coeff,
            raise: self.settings.low_latency && (queue.is_raised() || deserving),
            interactive,
            soft_rt,
            in_burst,
        }
    }

    pub(super) fn idle_for_long(&self, q: QueueId) -> bool {
        let queue = &self.queues[q];
        queue.dispatched == 0 && queue.budget_timeout + min_idle_time() < self.jiffies
    }

    /// Starts, extends or ends the raising of a queue that becomes busy.
    pub(super) fn raise_on_arrival(&mut self, q: QueueId, arrival: &Arrival) {
        let raising_time = self.raising_time();
        let least_budget = 2 * self.min_budget();
        let (jiffies, raising) = (self.jiffies, &mut self.queues[q].raising);
        if arrival.old_coeff == 1 && arrival.raise {
            if arrival.interactive {
                raising.service = 0;
                raising.coeff = COEFF;
                raising.max_time = raising_time;
            } else {
                raising.start_before_soft_rt = LONG_AGO;
                raising.coeff = COEFF * SOFT_RT_FACTOR;
                raising.max_time = soft_rt_time();
            }
            // A small budget keeps the delay of other raised queues short.
            let entity = &mut self.queues[q].entity;
            entity.budget = entity.budget.min(least_budget);
        } else if arrival.old_coeff > 1 {
            if arrival.interactive {
                raising.coeff = COEFF;
                raising.max_time = raising_time;
            } else if arrival.in_burst {
                raising.coeff = 1;
            } else if arrival.soft_rt {
                if raising.max_time != soft_rt_time() {
                    raising.start_before_soft_rt = raising.start_finish;
                    raising.max_time = soft_rt_time();
                    raising.coeff = COEFF * SOFT_RT_FACTOR;
                }
                raising.start_finish = jiffies;
            }
        }
    }

    /// Raises an asynchronous queue that is always busy if its requests come rarely.
    pub(super) fn raise_busy_async(&mut self, q: QueueId) {
        let raising = &self.queues[q].raising;
        if raising.start_finish + msecs_to_jiffies(MIN_INTER_ARRIVAL_ASYNC_MS) >= self.jiffies {
            return;
        }
        let time = self.raising_time();
        let queue = &mut self.queues[q];
        queue.raising.coeff = COEFF;
        queue.raising.max_time = time;
        queue.entity.prio_changed = true;
        self.wr_busy += 1;
    }

    pub(super) fn end_raising(&mut self, q: QueueId) {
        let soft_rt = self.is_soft_rt(q);
        let queue = &mut self.queues[q];
        if !soft_rt {
            // It may have become soft real-time while it was interactive.
            queue.soft_rt_next_start = self.jiffies;
        }
        if queue.busy {
            self.wr_busy -= 1;
        }
        queue.raising.coeff = 1;
        queue.raising.max_time = 0;
        queue.raising.start_finish = self.jiffies;
        queue.entity.prio_changed = true;
    }

    /// Ends all raising when `low_latency` is switched off.
    pub(super) fn end_all_raising(&mut self) {
        for q in self.queues_in_trees() {
            if self.queues[q].is_raised() {
                self.end_raising(q);
            }
        }
    }

    fn back_to_interactive(&mut self, q: QueueId) {
        let time = self.raising_time();
        let queue = &mut self.queues[q];
        queue.raising.coeff = COEFF;
        queue.raising.max_time = time;
        queue.raising.start_finish = queue.raising.start_before_soft_rt;
        queue.entity.prio_changed = true;
    }

    /// Ends a soft real-time raising; the interactive one that it interrupted may continue.
    fn end_soft_rt(&mut self, q: QueueId) {
        let began = self.queues[q].raising.start_before_soft_rt;
        if began + self.raising_time() < self.jiffies {
            self.end_raising(q);
        } else {
            self.back_to_interactive(q);
        }
    }

    /// Ends the soft real-time raising of a queue all of whose requests are seeks, because such a
    /// queue only looks like soft real-time.
    pub(super) fn end_soft_rt_of_seeky(&mut self, q: QueueId) {
        let queue = &self.queues[q];
        if queue.is_raised() && queue.seek_history == u32::MAX && self.is_soft_rt(q) {
            self.end_soft_rt(q);
        }
    }

    /// Ends the raising of a queue whose time or service is used up.
    pub(super) fn update_raising(&mut self, q: QueueId) {
        if self.queues[q].is_raised() {
            let queue = &self.queues[q];
            let over = queue.raising.start_finish + queue.raising.max_time < self.jiffies;
            if queue.in_large_burst || (over && !self.is_soft_rt(q)) {
                self.end_raising(q);
            } else if over {
                self.end_soft_rt(q);
            }
            let raising = &self.queues[q].raising;
            if raising.coeff > 1 && !self.is_soft_rt(q) && raising.service > MAX_SERVICE {
                self.end_raising(q);
            }
        }
        let queue = &self.queues[q];
        if (queue.entity.weight > queue.entity.orig_weight) != queue.is_raised() {
            self.update_weight(q, false);
        }
    }

    /// Restores the raising from before queues were merged, unless it has ended since.
    pub(super) fn resume_raising(&mut self, q: QueueId) {
        let queue = &self.queues[q];
        let over = queue.raising.start_finish + queue.raising.max_time < self.jiffies;
        if !queue.is_raised() || !(queue.in_large_burst || over) {
            return;
        }
        let began = queue.raising.start_before_soft_rt;
        let interactive = began + self.raising_time() >= self.jiffies;
        if self.is_soft_rt(q) && !queue.in_large_burst && interactive {
            self.back_to_interactive(q);
        } else {
            self.queues[q].raising.coeff = 1;
        }
    }

    /// The earliest time at which a queue may count as soft real-time: when such a program would
    /// have consumed the service that the queue got, and after a longer pause than a greedy one
    /// makes (`bfq_bfqq_softrt_next_start`).
    pub(super) fn soft_rt_next_start(&self, q: QueueId) -> i64 {
        let queue = &self.queues[q];
        let used = HZ * queue.service_since_idle as i64 / MAX_SOFT_RT_RATE;
        let idle = (self.settings.slice_idle_ns / JIFFY_NS) as i64;
        queue
            .soft_rt_next_start
            .max(queue.last_idle_to_busy + used)
            .max(self.jiffies + idle + 4)
    }

    /// Extends the raising of a soft real-time queue by the time for which it waited for service.
    pub(super) fn prolong_soft_rt(&mut self, q: QueueId) {
        let soft_rt = self.is_soft_rt(q);
        let (jiffies, queue) = (self.jiffies, &mut self.queues[q]);
        if !soft_rt
            || !queue.is_raised()
            || queue.raising.start_finish >= jiffies
            || queue.budget_timeout >= jiffies
        {
            return;
        }
        if queue.budget_timeout > queue.raising.start_finish {
            queue.raising.start_finish += jiffies - queue.budget_timeout;
        } else {
            queue.raising.start_finish = jiffies;
        }
    }
}

// Bursts: many queues created shortly after each other belong to a starting service or to a build;
// they are not interactive, and idling for them gains nothing.

/// The longest time between two queues of one burst, in milliseconds.
const BURST_INTERVAL_MS: i64 = 180;
/// A burst of this many queues is large.
const LARGE_BURST: u32 = 8;
/// A queue that was split less than this long ago is not new, in milliseconds.
const AFTER_SPLIT_MS: i64 = 10;

#[derive(Debug)]
pub(super) struct Burst {
    /// Queues of the current burst, until it is known to be large.
    list: Vec<QueueId>,
    pub(super) size: u32,
    pub(super) is_large: bool,
    pub(super) last_arrival: i64,
    /// The control group of these queues.
    group: GroupId,
}

impl Burst {
    pub(super) fn new() -> Burst {
        Burst {
            list: Vec::new(),
            size: 0,
            is_large: false,
            last_arrival: LONG_AGO,
            group: ROOT,
        }
    }
}

pub(super) fn burst_interval() -> i64 {
    msecs_to_jiffies(BURST_INTERVAL_MS)
}

impl Bfq {
    /// Handles the first request of a new queue, which may belong to a burst (`bfq_handle_burst`).
    pub(super) fn handle_burst(&mut self, q: QueueId) {
        let queue = &self.queues[q];
        if queue.in_burst_list
            || queue.in_large_burst
            || queue.split + msecs_to_jiffies(AFTER_SPLIT_MS) >= self.jiffies
        {
            return;
        }
        let late = self.burst.last_arrival + burst_interval() < self.jiffies;
        if late || queue.group != self.burst.group {
            self.burst.is_large = false;
            self.start_burst(q);
        } else if self.burst.is_large {
            self.queues[q].in_large_burst = true;
        } else {
            self.add_to_burst(q);
        }
        self.burst.last_arrival = self.jiffies;
    }

    /// Starts a burst with this queue, if no other queue is busy.
    fn start_burst(&mut self, q: QueueId) {
        for old in core::mem::take(&mut self.burst.list) {
            self.queues[old].in_burst_list = false;
        }
        self.burst.size = 0;
        self.burst.group = self.queues[q].group;
        if self.busy_total() == 0 {
            self.join_burst_list(q);
            self.burst.size = 1;
        }
    }

    fn add_to_burst(&mut self, q: QueueId) {
        self.burst.size += 1;
        if self.burst.size != LARGE_BURST {
            return self.join_burst_list(q);
        }
        self.burst.is_large = true;
        self.queues[q].in_large_burst = true;
        for member in core::mem::take(&mut self.burst.list) {
            self.queues[member].in_burst_list = false;
            self.queues[member].in_large_burst = true;
        }
    }

    pub(super) fn join_burst_list(&mut self, q: QueueId) {
        if !self.queues[q].in_burst_list {
            self.queues[q].in_burst_list = true;
            self.burst.list.push(q);
        }
    }

    /// Removes a queue that is freed from the burst.
    pub(super) fn leave_burst_list(&mut self, q: QueueId) {
        if !self.queues[q].in_burst_list {
            return;
        }
        self.forget_burst(q);
        // Freeing a shared queue does not change the size, because its processes remain.
        if self.queues[q].context.is_some() {
            self.burst.size = self.burst.size.saturating_sub(1);
        }
    }

    /// Removes a queue that had no requests for long from its burst.
    pub(super) fn forget_burst(&mut self, q: QueueId) {
        self.queues[q].in_burst_list = false;
        self.burst.list.retain(|&member| member != q);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::one_queue;

    /// A queue that is freed leaves its burst, which is smaller then unless its process remains
    /// because the queue was merged (`bfq_put_queue`).
    #[test]
    fn a_freed_queue_leaves_its_burst() {
        for (is_listed, is_shared, size, left) in [
            (true, false, 3, 2),
            (true, true, 3, 3),
            (false, false, 3, 3),
            (true, false, 0, 0),
        ] {
            let (mut bfq, q) = one_queue();
            bfq.forget_burst(q);
            if is_listed {
                bfq.join_burst_list(q);
            }
            bfq.burst.size = size;
            if is_shared {
                bfq.queues[q].context = None;
            }
            bfq.leave_burst_list(q);
            let case = (is_listed, is_shared, size);
            assert!(bfq.burst.list.is_empty(), "{case:?}");
            assert!(!bfq.queues[q].in_burst_list, "{case:?}");
            assert_eq!(bfq.burst.size, left, "{case:?}");
        }
    }
}
