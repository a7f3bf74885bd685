//! When processes are called: by timers, and by interrupts that a CPU handles.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use blklab_blk::{BioEnd, IoStatus, Nanos};

/// Timers of processes, in order of time. At one time those that were put off
/// come first, as processes of one CPU take turns, then those set first.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    /// Of each its time, its place among those of that time, and its process.
    heap: BinaryHeap<Reverse<(Nanos, u64, u32)>>,
    set: u64,
}

/// Is added to the place of a timer that was not put off: more than there ever are.
const BEHIND_PUT_OFF: u64 = 1 << 63;

impl Timers {
    /// Has process `pid` called at `at`.
    pub(crate) fn set(&mut self, at: Nanos, pid: usize) {
        self.push(at, BEHIND_PUT_OFF, pid);
    }

    /// Has process `pid` called at `at`, when the CPU that it found busy is free.
    pub(crate) fn put_off(&mut self, at: Nanos, pid: usize) {
        self.push(at, 0, pid);
    }

    fn push(&mut self, at: Nanos, behind: u64, pid: usize) {
        self.set += 1;
        self.heap.push(Reverse((at, behind + self.set, pid as u32)));
    }

    /// When the next one runs out; [`Nanos::MAX`] where none is set.
    #[inline]
    pub(crate) fn next(&self) -> Nanos {
        self.heap.peek().map_or(Nanos::MAX, |Reverse((at, ..))| *at)
    }

    /// The next process whose timer has run out.
    pub(crate) fn pop_due(&mut self, now: Nanos) -> Option<usize> {
        if self.next() > now {
            return None;
        }
        self.heap.pop().map(|Reverse((.., pid))| pid as usize)
    }
}

/// An I/O of a process that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EndedIo {
    pub(crate) pid: usize,
    pub(crate) slot: u32,
    pub(crate) status: IoStatus,
}

impl EndedIo {
    /// The I/O whose bio ended.
    #[inline]
    pub(crate) fn of_bio(end: &BioEnd) -> EndedIo {
        EndedIo {
            pid: (end.user_data >> 32) as usize,
            slot: end.user_data as u32,
            status: end.status,
        }
    }
}

/// What a bio is marked with, so that its end finds its process and slot.
#[inline]
pub(crate) fn user_data(pid: usize, slot: u32) -> u64 {
    (pid as u64) << 32 | u64::from(slot)
}

/// An interrupt that a CPU is handling.
#[derive(Debug, PartialEq, Eq)]
struct Interrupt {
    done_at: Nanos,
    number: u64,
    io: EndedIo,
}

impl Ord for Interrupt {
    fn cmp(&self, other: &Interrupt) -> Ordering {
        (self.done_at, self.number).cmp(&(other.done_at, other.number))
    }
}

impl PartialOrd for Interrupt {
    fn partial_cmp(&self, other: &Interrupt) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Interrupts that CPUs are handling, in the order in which they will be done.
#[derive(Debug, Default)]
pub(crate) struct Interrupts {
    heap: BinaryHeap<Reverse<Interrupt>>,
    pushed: u64,
}

impl Interrupts {
    /// The interrupt of an I/O will have been handled at `done_at`.
    pub(crate) fn push(&mut self, done_at: Nanos, io: EndedIo) {
        self.pushed += 1;
        self.heap.push(Reverse(Interrupt {
            done_at,
            number: self.pushed,
            io,
        }));
    }

    /// When the next one has been handled; [`Nanos::MAX`] where there is none.
    #[inline]
    pub(crate) fn next(&self) -> Nanos {
        self.heap.peek().map_or(Nanos::MAX, |i| i.0.done_at)
    }

    /// The I/O of the next one that has been handled by `now`.
    pub(crate) fn pop_due(&mut self, now: Nanos) -> Option<EndedIo> {
        if self.next() > now {
            return None;
        }
        self.heap.pop().map(|i| i.0.io)
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
