//! Ends of I/O that a CPU has still to handle.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use blklab_blk::{IoStatus, Nanos};

/// An I/O whose end a process will hear of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrival {
    pub(crate) at: Nanos,
    pub(crate) pid: usize,
    pub(crate) slot: u32,
    pub(crate) status: IoStatus,
}

#[derive(Debug, PartialEq, Eq)]
struct Ordered {
    order: u64,
    arrival: Arrival,
}

impl Ord for Ordered {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.arrival.at, self.order).cmp(&(other.arrival.at, other.order))
    }
}

impl PartialOrd for Ordered {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Arrivals in order of time and, at one time, of being handled.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    heap: BinaryHeap<Reverse<Ordered>>,
    pushed: u64,
}

impl Arrivals {
    pub(crate) fn push(&mut self, arrival: Arrival) {
        self.pushed += 1;
        self.heap.push(Reverse(Ordered {
            order: self.pushed,
            arrival,
        }));
    }

    /// When the next one is.
    #[inline]
    pub(crate) fn next(&self) -> Nanos {
        self.heap.peek().map_or(Nanos::MAX, |o| o.0.arrival.at)
    }

    /// The next one whose time has come.
    pub(crate) fn pop_due(&mut self, now: Nanos) -> Option<Arrival> {
        if self.next() > now {
            return None;
        }
        self.heap.pop().map(|o| o.0.arrival)
    }
}
