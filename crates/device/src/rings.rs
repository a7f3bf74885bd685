//! Queues of things that become due in the order in which they were queued.

use std::collections::VecDeque;

/// Events whose times never decrease, as those of a first-come server or of a
/// constant delay: no heap is needed to find the first.
#[derive(Clone, Debug)]
pub(crate) struct Ring<T> {
    entries: VecDeque<(u64, T)>,
    /// The first event's time, or `u64::MAX`: asked for at every step.
    head_ns: u64,
}

impl<T: Copy> Ring<T> {
    pub(crate) fn new() -> Ring<T> {
        Ring {
            entries: VecDeque::with_capacity(64),
            head_ns: u64::MAX,
        }
    }

    /// Adds an event that is due no earlier than the last one.
    #[inline]
    pub(crate) fn push(&mut self, at_ns: u64, event: T) {
        debug_assert!(self.entries.back().is_none_or(|last| last.0 <= at_ns));
        if self.entries.is_empty() {
            self.head_ns = at_ns;
        }
        self.entries.push_back((at_ns, event));
    }

    /// When the first event is due; `u64::MAX` when there is none.
    #[inline]
    pub(crate) fn head_ns(&self) -> u64 {
        self.head_ns
    }

    /// Takes the first event.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<(u64, T)> {
        let first = self.entries.pop_front();
        self.head_ns = self.entries.front().map_or(u64::MAX, |entry| entry.0);
        first
    }
}
