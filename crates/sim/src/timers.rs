//! Who wants to be called when.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use blklab_blk::Nanos;

/// Appointments of processes, in order of time and, at one time, of being made.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<(Nanos, u64, u32)>>,
    made: u64,
}

impl Timers {
    /// Has process `pid` called at `at`.
    pub(crate) fn set(&mut self, at: Nanos, pid: usize) {
        self.made += 1;
        self.heap.push(Reverse((at, self.made, pid as u32)));
    }

    /// When the next one is.
    #[inline]
    pub(crate) fn next(&self) -> Nanos {
        self.heap.peek().map_or(Nanos::MAX, |Reverse((at, ..))| *at)
    }

    /// The next process whose time has come.
    pub(crate) fn pop_due(&mut self, now: Nanos) -> Option<usize> {
        if self.next() > now {
            return None;
        }
        self.heap.pop().map(|Reverse((_, _, pid))| pid as usize)
    }
}
