//! What will happen inside the flash, soonest first.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Something that ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Event {
    /// A channel's bus becomes free.
    Bus(u32),
    /// The array of a unit is done.
    Array(u32),
}

/// The few events that are under way at a time: at most one a bus and one a
/// unit, plus those that a suspension made void.
#[derive(Clone, Debug, Default)]
pub(crate) struct Events {
    heap: BinaryHeap<Reverse<(u64, Event)>>,
}

impl Events {
    #[inline]
    pub(crate) fn push(&mut self, at_ns: u64, event: Event) {
        self.heap.push(Reverse((at_ns, event)));
    }

    #[inline]
    pub(crate) fn head_ns(&self) -> u64 {
        self.heap.peek().map_or(u64::MAX, |Reverse(first)| first.0)
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<(u64, Event)> {
        self.heap.pop().map(|Reverse(first)| first)
    }
}
