//! What will happen inside the drive, soonest first.
//!
//! Most things that happen take a constant time from when they start (a page
//! read, the transfer of a page), so those of one kind become due in the order
//! in which they started, or nearly so. Each kind has a lane, a queue kept
//! sorted; the next event is the least of the lanes' heads. That is several
//! times faster than one heap for all.

/// Lanes there are.
const LANES: usize = 8;
const LANE_BITS: u32 = LANES.trailing_zeros();
/// No event in a lane.
const NEVER: u64 = u64::MAX;
/// No event in a place.
const NOTHING: (u64, u32) = (NEVER, 0);
/// The latest time that an event can have: 36 years.
const LATEST_NS: u64 = (1 << (64 - LANE_BITS)) - 2;

/// A kind of event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lane(usize);

impl Lane {
    /// A read's data has left its channel.
    pub(crate) const DATA_OUT: Lane = Lane(0);
    /// A channel is free again that somebody waits for.
    pub(crate) const BUS: Lane = Lane(1);
    /// A command has passed the controller.
    pub(crate) const ARRIVING: Lane = Lane(2);
    /// A write's data has arrived.
    pub(crate) const RECEIVING: Lane = Lane(3);
    /// A DRAM transfer is over.
    pub(crate) const DRAM: Lane = Lane(4);
    /// An end has reached the host.
    pub(crate) const LEAVING: Lane = Lane(5);
    /// A unit's array has read.
    pub(crate) const READ: Lane = Lane(6);
    /// A unit's array has programmed or erased.
    pub(crate) const CHANGE: Lane = Lane(7);
}

/// A lane's events in order of time, in a ring whose size is a power of two.
/// Places without an event are at [`NEVER`], so that the first place tells when
/// the next event is whether there is one or not.
#[derive(Clone, Debug)]
struct Ring {
    places: Box<[(u64, u32)]>,
    /// Counted without end; the place is the remainder.
    first: usize,
    after_last: usize,
    /// The latest time that was put in.
    latest: u64,
}

impl Ring {
    fn new() -> Ring {
        Ring {
            places: vec![NOTHING; 64].into_boxed_slice(),
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

    /// Puts an entry in its order, which is at the end nearly always.
    #[inline(always)]
    fn insert(&mut self, entry: (u64, u32)) {
        if self.after_last - self.first == self.places.len() {
            self.grow();
        }
        if entry.0 < self.latest {
            return self.insert_before_others(entry);
        }
        self.latest = entry.0;
        self.set(self.after_last, entry);
        self.after_last += 1;
    }

    #[inline(never)]
    fn insert_before_others(&mut self, entry: (u64, u32)) {
        let mut at = self.after_last;
        while at != self.first && self.get(at - 1).0 > entry.0 {
            self.set(at, self.get(at - 1));
            at -= 1;
        }
        self.set(at, entry);
        self.after_last += 1;
    }

    /// Takes the first entry; the caller knows that there is one.
    #[inline]
    fn take(&mut self) -> (u64, u32) {
        let mask = self.places.len() - 1;
        let entry = std::mem::replace(&mut self.places[self.first & mask], NOTHING);
        self.first += 1;
        entry
    }

    #[inline]
    fn head(&self) -> u64 {
        self.get(self.first).0
    }

    #[cold]
    fn grow(&mut self) {
        let mut larger = Vec::with_capacity(self.places.len() * 2);
        larger.extend((self.first..self.after_last).map(|at| self.get(at)));
        self.after_last = larger.len();
        self.first = 0;
        larger.resize(self.places.len() * 2, NOTHING);
        self.places = larger.into_boxed_slice();
    }
}

/// Events by lane.
#[derive(Clone, Debug)]
pub(crate) struct Lanes {
    /// Times with the lane in the low bits, so that the least of them names
    /// its lane and ties are broken the same way everywhere.
    rings: [Ring; LANES],
    /// The first of each.
    heads: [u64; LANES],
    least: u64,
}

impl Lanes {
    pub(crate) fn new() -> Lanes {
        Lanes {
            rings: std::array::from_fn(|_| Ring::new()),
            heads: [NEVER; LANES],
            least: NEVER,
        }
    }

    /// When the next event is due; `u64::MAX` when there is none.
    #[inline]
    pub(crate) fn next_ns(&self) -> u64 {
        match self.least {
            NEVER => NEVER,
            key => key >> LANE_BITS,
        }
    }

    /// Adds an event.
    #[inline(never)]
    pub(crate) fn push(&mut self, lane: Lane, at_ns: u64, event: u32) {
        let key = (at_ns.min(LATEST_NS) << LANE_BITS) | lane.0 as u64;
        self.rings[lane.0].insert((key, event));
        self.heads[lane.0] = self.heads[lane.0].min(key);
        self.least = self.least.min(key);
    }

    /// Takes the next event if it is due at `limit_ns` or before.
    #[inline]
    pub(crate) fn pop_due(&mut self, limit_ns: u64) -> Option<(u64, Lane, u32)> {
        if self.least > (limit_ns.min(LATEST_NS) << LANE_BITS) | (LANES as u64 - 1) {
            return None;
        }
        let lane = (self.least as usize) % LANES;
        let (key, event) = self.rings[lane].take();
        self.heads[lane] = self.rings[lane].head();
        self.least = least(&self.heads);
        Some((key >> LANE_BITS, Lane(lane), event))
    }
}

/// The least of the heads, by halves so that comparisons do not wait for each
/// other.
#[inline]
fn least(heads: &[u64; LANES]) -> u64 {
    let mut four = [0; 4];
    for i in 0..4 {
        four[i] = heads[i].min(heads[i + 4]);
    }
    four[0].min(four[2]).min(four[1].min(four[3]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn events_come_in_order_of_time(
            steps in prop::collection::vec((any::<bool>(), 0usize..8, 0u64..200), 0..600),
        ) {
            let mut lanes = Lanes::new();
            let mut plain: Vec<(u64, usize)> = Vec::new();
            let mut now = 0;
            for (pop, lane, after) in steps {
                if pop {
                    plain.sort();
                    let got = lanes.pop_due(u64::MAX).map(|(at, lane, _)| (at, lane.0));
                    let want = (!plain.is_empty()).then(|| plain.remove(0));
                    prop_assert_eq!(got, want);
                    now = got.map_or(now, |got| got.0);
                } else {
                    lanes.push(Lane(lane), now + after, 0);
                    plain.push((now + after, lane));
                }
                prop_assert_eq!(lanes.next_ns(), plain.iter().map(|p| p.0).min().unwrap_or(NEVER));
            }
        }
    }
}
