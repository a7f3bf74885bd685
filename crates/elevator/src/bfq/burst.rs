//! Bursts: many queues that appear shortly after each other belong to a
//! service that starts up, or to a build; none of them is interactive, and none
//! gains by being waited for.

use super::Bfq;
use super::groups::{GroupId, ROOT};
use super::queue::{LONG_AGO, QueueId};
use crate::jiffies::msecs_to_jiffies;

/// Queues of one burst follow each other in less than this.
const INTERVAL_MS: i64 = 180;
/// A burst of so many is large.
const LARGE: u32 = 8;
/// A queue that was just split off is none that appears.
const AFTER_SPLIT_MS: i64 = 10;

#[derive(Debug)]
pub(super) struct Burst {
    /// Queues of the present burst, until it is known to be large.
    list: Vec<QueueId>,
    pub(super) size: u32,
    pub(super) is_large: bool,
    last_arrival: i64,
    /// The control group of all of them.
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

pub(super) fn interval() -> i64 {
    msecs_to_jiffies(INTERVAL_MS)
}

impl Bfq {
    /// A queue got its first request while others were appearing.
    pub(super) fn handle_burst(&mut self, q: QueueId) {
        let queue = &self.queues[q];
        if queue.in_burst_list
            || queue.in_large_burst
            || queue.split + msecs_to_jiffies(AFTER_SPLIT_MS) >= self.jiffies
        {
            return;
        }
        let late = self.burst.last_arrival + interval() < self.jiffies;
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

    /// The first of a new burst, if there is no other queue.
    fn start_burst(&mut self, q: QueueId) {
        for old in std::mem::take(&mut self.burst.list) {
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
        if self.burst.size != LARGE {
            return self.join_burst_list(q);
        }
        self.burst.is_large = true;
        self.queues[q].in_large_burst = true;
        for member in std::mem::take(&mut self.burst.list) {
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

    /// A queue is freed.
    pub(super) fn leave_burst_list(&mut self, q: QueueId) {
        if !self.queues[q].in_burst_list {
            return;
        }
        self.forget_burst(q);
        // A shared queue leaves without the burst getting smaller: its
        // processes are still there.
        if self.queues[q].context.is_some() {
            self.burst.size = self.burst.size.saturating_sub(1);
        }
    }

    /// A queue was idle for so long that it has nothing to do with its burst.
    pub(super) fn forget_burst(&mut self, q: QueueId) {
        self.queues[q].in_burst_list = false;
        self.burst.list.retain(|&member| member != q);
    }
}
