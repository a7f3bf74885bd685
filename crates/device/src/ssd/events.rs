//! The event queue of an SSD, soonest first.
//!
//! Most operations take a constant time (a page read, the transfer of a page),
//! so events of one kind become due nearly in the order in which they were
//! pushed. Each kind has a sorted queue of its own, and the next event is the
//! least of their heads: several times faster than one heap for all.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

/// Kinds of events.
const KINDS: usize = 8;
const KIND_BITS: u32 = KINDS.trailing_zeros();
/// No event of a kind.
const NEVER: u64 = u64::MAX;
/// The latest time that an event can have: 36 years.
const LATEST_NS: u64 = (1 << (64 - KIND_BITS)) - 2;

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EventKind(usize);

impl EventKind {
    /// A read's data has left its channel.
    pub(crate) const DATA_OUT: EventKind = EventKind(0);
    /// A channel is free for whoever waits for it.
    pub(crate) const CHANNEL_FREE: EventKind = EventKind(1);
    /// The controller has processed a command, or a fetch or an idle check is due (see
    /// [`crate::ssd::host_interface::FETCH`] and [`crate::ssd::gc::IDLE_CHECK`]).
    pub(crate) const COMMAND_READY: EventKind = EventKind(2);
    /// A write's data has arrived.
    pub(crate) const WRITE_RECEIVED: EventKind = EventKind(3);
    /// A DRAM transfer is over.
    pub(crate) const DRAM_DONE: EventKind = EventKind(4);
    /// A command's completion has reached the host.
    pub(crate) const COMPLETED: EventKind = EventKind(5);
    /// A unit's array has read.
    pub(crate) const ARRAY_READ: EventKind = EventKind(6);
    /// A unit's array has programmed or erased.
    pub(crate) const ARRAY_CHANGED: EventKind = EventKind(7);
}

/// The events of a kind in order of time, in a ring whose size is a power of two.
#[derive(Clone, Debug)]
struct Ring {
    places: Box<[(u64, u32)]>,
    /// Positions count up without end; an entry's place is the position modulo the size.
    first: usize,
    after_last: usize,
    /// The latest time of any entry so far.
    latest: u64,
}

impl Ring {
    fn new() -> Ring {
        Ring {
            places: vec![(NEVER, 0); 64].into_boxed_slice(),
            first: 0,
            after_last: 0,
            latest: 0,
        }
    }

    #[inline]
    fn get(&self, at: usize) -> (u64, u32) {
        self.places[at & (self.places.len() - 1)]
    }

    #[inline]
    fn set(&mut self, at: usize, entry: (u64, u32)) {
        let mask = self.places.len() - 1;
        self.places[at & mask] = entry;
    }

    /// Whether an entry of this time can go to the end, as nearly all can.
    #[inline]
    fn can_append(&self, key: u64) -> bool {
        key >= self.latest && self.after_last - self.first < self.places.len()
    }

    #[inline]
    fn append(&mut self, entry: (u64, u32)) {
        self.latest = entry.0;
        self.set(self.after_last, entry);
        self.after_last += 1;
    }

    /// Puts an entry in its order.
    fn insert(&mut self, entry: (u64, u32)) {
        if self.after_last - self.first == self.places.len() {
            self.grow();
        }
        let mut at = self.after_last;
        while at != self.first && self.get(at - 1).0 > entry.0 {
            self.set(at, self.get(at - 1));
            at -= 1;
        }
        self.set(at, entry);
        self.after_last += 1;
        self.latest = self.latest.max(entry.0);
    }

    /// Drops the first entry. The ring must not be empty.
    #[inline]
    fn drop_first(&mut self) {
        self.first += 1;
    }

    #[inline]
    fn head(&self) -> (u64, u32) {
        match self.first == self.after_last {
            true => (NEVER, 0),
            false => self.get(self.first),
        }
    }

    #[cold]
    fn grow(&mut self) {
        let mut larger = Vec::with_capacity(self.places.len() * 2);
        larger.extend((self.first..self.after_last).map(|at| self.get(at)));
        self.after_last = larger.len();
        self.first = 0;
        larger.resize(self.places.len() * 2, (NEVER, 0));
        self.places = larger.into_boxed_slice();
    }
}

/// Events by kind.
#[derive(Clone, Debug)]
pub(crate) struct EventQueue {
    rings: [Ring; KINDS],
    /// A tournament tree: the head of each kind at `KINDS + kind`, and at every place
    /// before that the lesser of its two children, so that place 1 has the least of
    /// all. The low bits of a key are the kind, which breaks ties the same way
    /// everywhere.
    least: [u64; 2 * KINDS],
    /// The head's event of each kind, beside the tree so that it is fetched at once.
    first_events: [u32; KINDS],
}

impl EventQueue {
    pub(crate) fn new() -> EventQueue {
        EventQueue {
            rings: core::array::from_fn(|_| Ring::new()),
            least: [NEVER; 2 * KINDS],
            first_events: [0; KINDS],
        }
    }

    /// When the next event is due; `u64::MAX` when there is none.
    #[inline]
    pub(crate) fn next_ns(&self) -> u64 {
        match self.least[1] {
            NEVER => NEVER,
            key => key >> KIND_BITS,
        }
    }

    /// Adds an event.
    #[inline(never)]
    pub(crate) fn push(&mut self, kind: EventKind, at_ns: u64, event: u32) {
        let key = (at_ns.min(LATEST_NS) << KIND_BITS) | kind.0 as u64;
        let ring = &mut self.rings[kind.0 % KINDS];
        if !ring.can_append(key) {
            return self.push_in_order(key, event);
        }
        ring.append((key, event));
        if key < self.least[KINDS + kind.0 % KINDS] {
            self.set_first(kind.0, (key, event));
        }
    }

    /// Adds an event before others of its kind, or to a ring without room. A function
    /// of its own in tail position, so that the usual path has no registers to save.
    #[inline(never)]
    fn push_in_order(&mut self, key: u64, event: u32) {
        let kind = key as usize % KINDS;
        self.rings[kind].insert((key, event));
        self.set_first(kind, self.rings[kind].head());
    }

    /// Sets the first event of a kind, or that it has none.
    #[inline(always)]
    fn set_first(&mut self, kind: usize, (key, event): (u64, u32)) {
        self.first_events[kind % KINDS] = event;
        let (mut place, mut least) = (KINDS + kind % KINDS, key);
        for _ in 0..KIND_BITS {
            self.least[place] = least;
            least = least.min(self.least[place ^ 1]);
            place /= 2;
        }
        self.least[1] = least;
    }

    /// The last key of what is due at a time.
    #[inline]
    pub(crate) fn until(limit_ns: u64) -> u64 {
        (limit_ns.min(LATEST_NS) << KIND_BITS) | (KINDS as u64 - 1)
    }

    /// Takes the next event if its key is no later than `last`, from
    /// [`EventQueue::until`].
    #[inline]
    pub(crate) fn pop_due(&mut self, last: u64) -> Option<(u64, EventKind, u32)> {
        let key = self.least[1];
        if key > last {
            return None;
        }
        let kind = key as usize % KINDS;
        let event = self.first_events[kind];
        self.rings[kind].drop_first();
        self.set_first(kind, self.rings[kind].head());
        Some((key >> KIND_BITS, EventKind(kind), event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Of events at one time the kinds come in order, and those of a kind as they were added.
        #[test]
        fn events_come_in_order_of_time(
            steps in prop::collection::vec((0u8..5, 0usize..8, 0u64..200), 0..1200),
            (kinds, spread) in (1usize..=8, 1u64..=200),
        ) {
            let mut queue = EventQueue::new();
            let mut plain: Vec<(u64, usize, u32)> = Vec::new();
            let mut now = 0;
            for (added, (pop, kind, after)) in steps.into_iter().enumerate() {
                if pop == 0 {
                    plain.sort();
                    let got = queue.pop_due(EventQueue::until(u64::MAX));
                    let got = got.map(|(at, kind, event)| (at, kind.0, event));
                    let want = (!plain.is_empty()).then(|| plain.remove(0));
                    prop_assert_eq!(got, want);
                    now = got.map_or(now, |got| got.0);
                } else {
                    let (kind, at) = (kind % kinds, now + after % spread);
                    queue.push(EventKind(kind), at, added as u32);
                    plain.push((at, kind, added as u32));
                }
                prop_assert_eq!(queue.next_ns(), plain.iter().map(|p| p.0).min().unwrap_or(NEVER));
            }
        }
    }
}
