//! Requests sorted by sector, for which the kernel's schedulers use a red-black tree (`elv_rb_add`
//! and others).
//!
//! Entries are in sorted runs of at most [`RUN`] under a small directory of first keys, a two-level
//! B+ tree. With a few hundred requests an insert takes two branch-free searches and a short move
//! inside a few cache lines. A run is freed when it is empty and is not merged with its neighbour
//! before (Johnson and Shasha, "B-trees with inserts and deletes: why free-at-empty is better than
//! merge-at-half", JCSS 1993); runs are reused, so a warm list does not allocate. A *finger*
//! remembers the position of the entry removed last, at which a scheduler that scans along the
//! sectors continues without a search.

use alloc::vec;
use alloc::vec::Vec;
use core::cell::Cell;
use core::hint::select_unpredictable;

use crate::request::{RequestId, Requests, RqFlags};
use crate::units::Sector;

/// The most entries in a run, a power of two.
const RUN: usize = 16;
/// The key of an unused place, greater than all others.
const NOTHING: u64 = u64::MAX;

/// Places in a run. Those beyond [`RUN`] are always unused, so that an insert or removal can move a
/// fixed number of entries without branches.
const PLACES: usize = 2 * RUN;

#[derive(Clone, Debug)]
#[repr(align(64))]
struct Run {
    keys: [u64; PLACES],
    ids: [Option<RequestId>; PLACES],
}

impl Run {
    const EMPTY: Run = Run {
        keys: [NOTHING; PLACES],
        ids: [None; PLACES],
    };

    /// Number of keys smaller than `key`.
    #[inline]
    fn count_before(&self, key: u64) -> usize {
        self.keys
            .first_chunk()
            .map_or(0, |keys| count_before(keys, key))
    }

    #[inline]
    fn insert(&mut self, at: usize, key: u64, id: RequestId) {
        move_entries(&mut self.keys, at, at + 1);
        move_entries(&mut self.ids, at, at + 1);
        self.keys[at] = key;
        self.ids[at] = Some(id);
    }

    #[inline]
    fn remove(&mut self, at: usize) {
        move_entries(&mut self.keys, at + 1, at);
        move_entries(&mut self.ids, at + 1, at);
    }

    /// Moves the upper half of a full run to an empty one.
    fn split_into(&mut self, other: &mut Run) {
        let (half, full) = (RUN / 2, RUN);
        other.keys[..half].copy_from_slice(&self.keys[half..full]);
        other.ids[..half].copy_from_slice(&self.ids[half..full]);
        self.keys[half..full].fill(NOTHING);
        self.ids[half..full].fill(None);
    }
}

/// Number of keys in a sorted run that are smaller than `key`. Comparisons with random keys cannot
/// be predicted, so there is no branch, and few comparisons depend on another: first every fourth
/// key, then four in a row.
#[inline]
fn count_before(keys: &[u64; RUN], key: u64) -> usize {
    let before = |at: usize| (keys[at % RUN] < key) as usize;
    let base = 4 * (before(3) + before(7) + before(11));
    base + (before(base) + before(base + 1)) + (before(base + 2) + before(base + 3))
}

/// Moves [`RUN`] entries, whether used or not.
#[inline]
fn move_entries<T: Copy>(places: &mut [T; PLACES], from: usize, to: usize) {
    if let Some(moved) = places[from..].first_chunk::<RUN>().copied() {
        places[to..to + RUN].copy_from_slice(&moved);
    }
}

/// A directory entry: a run and its number of entries.
#[derive(Clone, Copy, Debug)]
struct RunEntry {
    run: u32,
    len: u32,
}

/// A position in the list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Position {
    entry: usize,
    at: usize,
}

/// Requests sorted by first sector; those with equal sectors are in order of insertion.
#[derive(Clone, Debug)]
pub struct SortList {
    /// Directory of the runs, in order.
    order: Vec<RunEntry>,
    /// The smallest key of each run, followed by [`RUN`] times [`NOTHING`].
    firsts: Vec<u64>,
    runs: Vec<Run>,
    free: Vec<u32>,
    len: usize,
    finger: Cell<Finger>,
    /// Number of requests with the same first sector as their predecessor.
    equals: usize,
}

/// The position of the first key that is not less than `key`.
#[derive(Clone, Copy, Debug, Default)]
struct Finger {
    key: u64,
    place: Position,
}

impl Default for SortList {
    fn default() -> Self {
        SortList::new()
    }
}

impl SortList {
    /// An empty list.
    pub fn new() -> SortList {
        SortList {
            order: Vec::new(),
            firsts: vec![NOTHING; RUN],
            runs: Vec::new(),
            free: Vec::new(),
            len: 0,
            finger: Cell::default(),
            equals: 0,
        }
    }

    /// Whether the list has no requests.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of requests.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Inserts a request after those with the same first sector. It stays at its position, even if
    /// its sector changes, until it is removed. A request is in at most one sort list, as it has
    /// one `rb_node` in the kernel.
    #[inline]
    pub fn insert(&mut self, rqs: &mut Requests, id: RequestId) {
        let rq = &mut rqs[id];
        debug_assert!(!rq.is_sorted(), "request {id:?} is sorted twice");
        rq.sorted_at = rq.sector;
        rq.rq_flags.set(RqFlags::SORTED);
        let key = rq.sector.0;
        self.len += 1;
        if self.order.is_empty() {
            let run = self.new_run();
            self.firsts.insert(0, key);
            self.order.push(RunEntry { run, len: 0 });
        }
        // The position after all equal keys is that before the first larger one.
        let after = key.saturating_add(1);
        let mut entry = self.entries_before(after).saturating_sub(1);
        if self.len_of(entry) == RUN {
            self.split(entry);
            entry += (self.firsts[entry + 1] <= key) as usize;
        }
        let len = self.len_of(entry);
        self.order[entry].len += 1;
        let run = self.run_mut(entry);
        let at = run.count_before(after).min(len);
        // The first key of a run is greater than all keys before it.
        let is_equal = run.keys[at.saturating_sub(1)] == key;
        run.insert(at, key, id);
        if at == 0 {
            self.firsts[entry] = key;
        }
        self.equals += is_equal as usize;
        let Finger { key: bound, place } = self.finger.get_mut();
        // The side of the finger cannot be predicted, so there is no branch.
        let is_before = key < *bound;
        let is_next = !is_before & (entry < place.entry);
        let moved = place.at + (is_before & (place.entry == entry)) as usize;
        place.at = select_unpredictable(is_next, at, moved);
        place.entry = select_unpredictable(is_next, entry, place.entry);
    }

    /// Removes a request and returns the one after it.
    ///
    /// # Panics
    /// If it is not in the list.
    #[inline]
    pub fn remove(&mut self, rqs: &mut Requests, id: RequestId) -> Option<RequestId> {
        let place = self.place_of(rqs, id).expect("request is in the list");
        let behind = self.remove_at(rqs, id, place);
        self.id_at(behind)
    }

    /// Removes a request and returns those before and after it.
    ///
    /// # Panics
    /// If it is not in the list.
    #[inline]
    pub fn take(
        &mut self,
        rqs: &mut Requests,
        id: RequestId,
    ) -> (Option<RequestId>, Option<RequestId>) {
        let place = self.place_of(rqs, id).expect("request is in the list");
        let before = self.before(place);
        let behind = self.remove_at(rqs, id, place);
        (before, self.id_at(behind))
    }

    /// Removes the request at a position. Returns the position of the one after it.
    #[inline]
    fn remove_at(&mut self, rqs: &mut Requests, id: RequestId, place: Position) -> Position {
        rqs[id].rq_flags.clear(RqFlags::SORTED);
        self.len -= 1;
        self.order[place.entry].len -= 1;
        let len = self.len_of(place.entry);
        let run = self.run_mut(place.entry);
        let key = run.keys[place.at];
        run.remove(place.at);
        let first = run.keys[0];
        if len == 0 {
            self.drop_entry(place.entry);
        } else {
            self.firsts[place.entry] = first;
        }
        let behind = self.normal(place);
        let place = match self.equals {
            0 => behind,
            _ => self.search_again(key),
        };
        self.finger.set(Finger { key, place });
        behind
    }

    /// The finger's position if another request with the same key may be before the removed one.
    /// before what was taken out.
    #[cold]
    fn search_again(&mut self, key: u64) -> Position {
        let place = self.lower_bound(key);
        let is_left = self.id_at(place).is_some() && self.run(place.entry).keys[place.at] == key;
        self.equals -= is_left as usize;
        place
    }

    /// Whether the list contains the request.
    pub fn contains(&self, rqs: &Requests, id: RequestId) -> bool {
        self.place_of(rqs, id).is_some()
    }

    /// The first request that starts at or after `sector`.
    #[inline]
    pub fn from_sector(&self, sector: Sector) -> Option<RequestId> {
        let Finger { key, place } = self.finger.get();
        if key == sector.0 {
            return self.id_at(place);
        }
        let place = self.lower_bound(sector.0);
        let key = sector.0;
        self.finger.set(Finger { key, place });
        self.id_at(place)
    }

    /// The first request that starts exactly at `sector`.
    pub fn find(&self, sector: Sector) -> Option<RequestId> {
        let place = self.lower_bound(sector.0);
        let id = self.id_at(place)?;
        (self.run(place.entry).keys[place.at] == sector.0).then_some(id)
    }

    /// The request with the lowest sector.
    pub fn first(&self) -> Option<RequestId> {
        self.id_at(Position::default())
    }

    /// The request with the highest sector.
    pub fn last(&self) -> Option<RequestId> {
        let entry = self.order.len().checked_sub(1)?;
        let at = self.len_of(entry) - 1;
        self.id_at(Position { entry, at })
    }

    /// The request after `id`, which must be in the list.
    pub fn next(&self, rqs: &Requests, id: RequestId) -> Option<RequestId> {
        let place = self.place_of(rqs, id)?;
        self.id_at(self.behind(place))
    }

    /// The request before `id`, which must be in the list.
    pub fn prev(&self, rqs: &Requests, id: RequestId) -> Option<RequestId> {
        self.before(self.place_of(rqs, id)?)
    }

    #[inline]
    fn before(&self, place: Position) -> Option<RequestId> {
        if place.at > 0 {
            return self.id_at(Position {
                at: place.at - 1,
                ..place
            });
        }
        let entry = place.entry.checked_sub(1)?;
        self.id_at(Position {
            entry,
            at: self.len_of(entry) - 1,
        })
    }

    /// The requests in order.
    pub fn iter(&self) -> impl Iterator<Item = RequestId> + '_ {
        self.order.iter().flat_map(|&RunEntry { run, len }| {
            let ids = &self.runs[run as usize].ids;
            ids[..len as usize].iter().flatten().copied()
        })
    }

    #[inline]
    fn len_of(&self, entry: usize) -> usize {
        self.order[entry].len as usize
    }

    #[inline]
    fn run(&self, entry: usize) -> &Run {
        &self.runs[self.order[entry].run as usize]
    }

    #[inline]
    fn run_mut(&mut self, entry: usize) -> &mut Run {
        &mut self.runs[self.order[entry].run as usize]
    }

    /// Number of runs whose first key is smaller than `key`.
    #[inline]
    fn entries_before(&self, key: u64) -> usize {
        // Whether the list is long or short cannot be predicted either, so the first step is always
        // taken.
        let left = self.order.len();
        let half = select_unpredictable(left > RUN, left / 2, 0);
        let mut base = select_unpredictable(self.firsts[half] < key, half, 0);
        let mut left = left - half;
        while left > RUN {
            let half = left / 2;
            let is_before = self.firsts[base + half] < key;
            base = select_unpredictable(is_before, base + half, base);
            left -= half;
        }
        let firsts = self.firsts[base..].first_chunk();
        base + firsts.map_or(0, |firsts| count_before(firsts, key))
    }

    /// The next position; after the end of a run it is the start of the next run.
    #[inline]
    fn behind(&self, place: Position) -> Position {
        self.normal(Position {
            at: place.at + 1,
            ..place
        })
    }

    #[inline]
    fn normal(&self, place: Position) -> Position {
        if place.entry < self.order.len() && place.at >= self.len_of(place.entry) {
            return Position {
                entry: place.entry + 1,
                at: 0,
            };
        }
        place
    }

    #[inline]
    fn lower_bound(&self, key: u64) -> Position {
        if self.len == 0 {
            return Position::default();
        }
        let entry = self.entries_before(key).saturating_sub(1);
        let at = self.run(entry).count_before(key);
        self.normal(Position { entry, at })
    }

    #[inline]
    fn id_at(&self, place: Position) -> Option<RequestId> {
        if place.entry >= self.order.len() || place.at >= PLACES {
            return None;
        }
        self.run(place.entry).ids[place.at]
    }

    /// Finds the position of a request. Requests with equal sectors can extend over several runs.
    #[inline]
    fn place_of(&self, rqs: &Requests, id: RequestId) -> Option<Position> {
        if !rqs[id].is_sorted() {
            return None;
        }
        let at_finger = self.finger.get().place;
        if self.id_at(at_finger) == Some(id) {
            return Some(at_finger);
        }
        let sector = rqs[id].sorted_at;
        let mut place = self.lower_bound(sector.0);
        loop {
            let found = self.id_at(place)?;
            if self.run(place.entry).keys[place.at] != sector.0 {
                return None;
            }
            if found == id {
                return Some(place);
            }
            place = self.behind(place);
        }
    }

    fn new_run(&mut self) -> u32 {
        if let Some(run) = self.free.pop() {
            return run;
        }
        self.runs.push(Run::EMPTY);
        self.runs.len() as u32 - 1
    }

    fn split(&mut self, entry: usize) {
        let upper = self.new_run();
        let lower = &mut self.order[entry];
        let [from, to] = self
            .runs
            .get_disjoint_mut([lower.run as usize, upper as usize])
            .expect("a new run is not an old one");
        from.split_into(to);
        lower.len -= (RUN / 2) as u32;
        let first = to.keys[0];
        self.firsts.insert(entry + 1, first);
        let half = RunEntry {
            run: upper,
            len: (RUN / 2) as u32,
        };
        self.order.insert(entry + 1, half);
        let place = &mut self.finger.get_mut().place;
        if place.entry > entry {
            place.entry += 1;
        } else if place.entry == entry && place.at >= RUN / 2 {
            *place = Position {
                entry: entry + 1,
                at: place.at - RUN / 2,
            };
        }
    }

    /// Frees an empty run.
    fn drop_entry(&mut self, entry: usize) {
        self.firsts.remove(entry);
        let empty = self.order.remove(entry);
        self.free.push(empty.run);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Request;
    use crate::units::Nanos;
    use crate::{Bio, Op};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn check(list: &SortList, model: &BTreeMap<(u64, usize), RequestId>) {
        assert!(list.iter().eq(model.values().copied()));
        assert_eq!(list.first(), model.values().next().copied());
        assert_eq!(list.last(), model.values().next_back().copied());
        assert_eq!(list.len(), model.len());
    }

    proptest! {
        #[test]
        fn behaves_as_a_sorted_map(
            ops in prop::collection::vec((0u8..7, 0u64..2000, any::<prop::sample::Index>()), 0..600),
            sectors in prop::sample::select(vec![30u64, 300, 2000]),
        ) {
            let mut rqs = Requests::default();
            let mut list = SortList::new();
            let mut model: BTreeMap<(u64, usize), RequestId> = BTreeMap::new();
            let mut taken = 0;
            for (serial, (op, sector, pick)) in ops.into_iter().enumerate() {
                let sector = sector % sectors;
                // Access along the sectors, as schedulers do.
                let want = model.range((taken, 0)..).next();
                prop_assert_eq!(list.from_sector(Sector(taken)), want.map(|(_, id)| *id));
                if op == 5 && let Some((&key, _)) = want {
                    let id = model.remove(&key).unwrap();
                    list.remove(&mut rqs, id);
                    taken = key.0;
                } else if op < 3 || model.is_empty() {
                    let bio = Bio::new(Op::Read, Sector(sector), 8);
                    let id = rqs.insert(Request::for_bio(&bio, Nanos::ZERO));
                    list.insert(&mut rqs, id);
                    model.insert((sector, serial), id);
                } else if op == 3 {
                    let key = *model.keys().nth(pick.index(model.len())).unwrap();
                    let id = model.remove(&key).unwrap();
                    taken = if pick.index(3) == 0 { taken } else { key.0 };
                    let neighbours = list.take(&mut rqs, id);
                    let before = model.range(..key).next_back().map(|(_, id)| *id);
                    let behind = model.range(key..).next().map(|(_, id)| *id);
                    prop_assert_eq!(neighbours, (before, behind));
                    prop_assert!(!list.contains(&rqs, id));
                } else {
                    let want = model.range((sector, 0)..).next();
                    prop_assert_eq!(list.from_sector(Sector(sector)), want.map(|(_, id)| *id));
                    let exact = want.filter(|((s, _), _)| *s == sector);
                    prop_assert_eq!(list.find(Sector(sector)), exact.map(|(_, id)| *id));
                    let key = *model.keys().nth(pick.index(model.len())).unwrap();
                    let next = model.range(key..).nth(1).map(|(_, id)| *id);
                    let prev = model.range(..key).next_back().map(|(_, id)| *id);
                    prop_assert_eq!(list.next(&rqs, model[&key]), next);
                    prop_assert_eq!(list.prev(&rqs, model[&key]), prev);
                }
                check(&list, &model);
            }
        }
    }

    #[test]
    fn a_place_in_a_long_list_is_found() {
        let (mut rqs, mut list) = (Requests::default(), SortList::new());
        let mut ids = BTreeMap::new();
        for n in 0..4000 {
            // 1231 has no factor in common with 4000, so that each sector comes once.
            let sector = n * 1231 % 4000 * 10;
            let bio = Bio::new(Op::Read, Sector(sector), 8);
            let id = rqs.insert(Request::for_bio(&bio, Nanos::ZERO));
            list.insert(&mut rqs, id);
            ids.insert(sector, id);
        }
        for (&sector, &id) in &ids {
            assert_eq!(list.find(Sector(sector)), Some(id));
            assert_eq!(list.from_sector(Sector(sector.saturating_sub(9))), Some(id));
        }
        assert!(list.iter().eq(ids.into_values()));
    }
}
