//! Who wants to be called when.
//!
//! At one time, a process that found its CPU taken comes before one that has
//! just used it: processes of one CPU take turns.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use blklab_blk::Nanos;

/// Appointments of processes, in order of time and, at one time, those put off
/// first, then in order of being made.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<(Nanos, bool, u64, u32)>>,
    made: u64,
}

impl Timers {
    /// Has process `pid` called at `at`.
    pub(crate) fn set(&mut self, at: Nanos, pid: usize) {
        self.made += 1;
        self.heap.push(Reverse((at, true, self.made, pid as u32)));
    }

    /// Has process `pid` called at `at`, when the CPU that it found taken is
    /// free.
    pub(crate) fn put_off(&mut self, at: Nanos, pid: usize) {
        self.made += 1;
        self.heap.push(Reverse((at, false, self.made, pid as u32)));
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
        self.heap.pop().map(|Reverse((.., pid))| pid as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_put_off_comes_first() {
        let mut timers = Timers::default();
        timers.set(Nanos(20), 1);
        timers.put_off(Nanos(20), 2);
        timers.set(Nanos(10), 3);
        assert_eq!(timers.pop_due(Nanos(5)), None);
        let order: Vec<usize> = std::iter::from_fn(|| timers.pop_due(Nanos(20))).collect();
        assert_eq!(order, [3, 2, 1]);
    }
}
