//! Requests sorted by sector, for which the kernel's schedulers use a red-black tree (`elv_rb_add`
//! and others).
//!
//! Entries are in runs of at most [`RUN`] under a small directory of lower bounds, a two-level B+
//! tree. Inside a run entries stay in their slots, and a word of sixteen four-bit numbers holds
//! their order (the permuter of Mao, Kohler and Morris, "Cache craftiness for fast multicore
//! key-value storage", EuroSys 2012). So an insert takes two branch-free searches and moves nothing
//! but bits of that word, and a request knows its slot, so that no search removes it. A run is freed
//! when it is empty and is not merged with its neighbour before (Johnson and Shasha, "B-trees with
//! inserts and deletes: why free-at-empty is better than merge-at-half", JCSS 1993); runs are
//! reused, so a warm list does not allocate. A *finger* remembers the request after the one removed
//! last, at which a scheduler that scans along the sectors continues without a search.

use alloc::vec;
use alloc::vec::Vec;
use core::cell::Cell;
use core::hint::select_unpredictable;

use crate::request::{RequestId, Requests, RqFlags};
use crate::units::Sector;

/// The most entries in a run: as many as a word has numbers of four bits.
const RUN: usize = 16;
/// The key of a free slot, greater than all others.
const NOTHING: u64 = u64::MAX;
/// The run before the first and after the last.
const NO_RUN: u32 = u32::MAX;

/// The slots of a run in order of their keys, followed by the free slots: four bits each.
#[derive(Clone, Copy, Debug)]
struct SlotOrder(u64);

impl SlotOrder {
    const ASCENDING: SlotOrder = SlotOrder(0xfedc_ba98_7654_3210);
    /// The number 1 in each of the sixteen places.
    const ONES: u64 = 0x1111_1111_1111_1111;

    #[inline]
    fn slot_at(self, at: usize) -> usize {
        (self.0 >> (4 * (at % RUN))) as usize % RUN
    }

    /// The bits of all places before `at`.
    #[inline]
    fn before(at: usize) -> u64 {
        (1 << (4 * (at % RUN))) - 1
    }

    /// The place of a slot.
    #[inline]
    fn place_of(self, slot: usize) -> usize {
        // The lowest four bits that are zero; the subtraction borrows from no lower ones.
        let differs = self.0 ^ (Self::ONES * slot as u64);
        let zero = differs.wrapping_sub(Self::ONES) & !differs & (8 * Self::ONES);
        zero.trailing_zeros() as usize / 4
    }

    /// Moves the slot at `from` down to `at`, and those between up by one.
    #[inline]
    fn move_down(&mut self, from: usize, at: usize) {
        let slot = self.slot_at(from) as u64;
        let (low, middle) = (Self::before(at), Self::before(from));
        let high = !(middle << 4 | 15);
        self.0 = (self.0 & (low | high)) | (self.0 & middle & !low) << 4 | slot << (4 * at);
    }

    /// Moves the slot at `from` up to `at`, and those between down by one.
    #[inline]
    fn move_up(&mut self, from: usize, at: usize) {
        let slot = self.slot_at(from) as u64;
        let (low, middle) = (Self::before(from), Self::before(at));
        let high = !(middle << 4 | 15);
        self.0 = (self.0 & (low | high)) | (self.0 >> 4) & middle & !low | slot << (4 * at);
    }
}

#[derive(Clone, Debug)]
#[repr(align(64))]
struct Run {
    /// The keys by slot.
    keys: [u64; RUN],
    /// The requests by slot.
    ids: [Option<RequestId>; RUN],
    order: SlotOrder,
    len: usize,
    /// No key in this run is smaller and none in an earlier run is greater; zero in the first run.
    bound: u64,
    prev: u32,
    next: u32,
}

/// A request with its key.
type Entry = (u64, Option<RequestId>);

impl Run {
    const EMPTY: Run = Run {
        keys: [NOTHING; RUN],
        ids: [None; RUN],
        order: SlotOrder::ASCENDING,
        len: 0,
        bound: 0,
        prev: NO_RUN,
        next: NO_RUN,
    };

    /// Number of keys smaller than `key`. Comparisons with random keys cannot be predicted, so there
    /// is no branch.
    #[inline]
    fn count_before(&self, key: u64) -> usize {
        self.keys.iter().map(|&k| (k < key) as usize).sum()
    }

    /// The entry at a place in order, which must be in use.
    #[inline]
    fn entry_at(&self, at: usize) -> Entry {
        let slot = self.order.slot_at(at);
        (self.keys[slot], self.ids[slot])
    }

    /// Adds an entry at a place in order. Returns its slot.
    #[inline]
    fn insert(&mut self, at: usize, key: u64, id: RequestId) -> usize {
        let slot = self.order.slot_at(self.len);
        self.order.move_down(self.len, at);
        self.len += 1;
        self.keys[slot] = key;
        self.ids[slot] = Some(id);
        slot
    }

    /// Frees the slot at a place in order. Returns its entry.
    #[inline]
    fn remove(&mut self, at: usize) -> Entry {
        let entry = self.clear(at);
        self.len -= 1;
        self.order.move_up(at, self.len);
        entry
    }

    /// Empties the slot at a place in order. Returns its entry.
    #[inline]
    fn clear(&mut self, at: usize) -> Entry {
        let slot = self.order.slot_at(at);
        let key = core::mem::replace(&mut self.keys[slot], NOTHING);
        (key, self.ids[slot].take())
    }
}

/// Number of keys in a sorted part of the directory that are smaller than `key`. Few comparisons
/// depend on another: first every fourth key, then four in a row.
#[inline]
fn count_before(keys: &[u64; RUN], key: u64) -> usize {
    let before = |at: usize| (keys[at % RUN] < key) as usize;
    let base = 4 * (before(3) + before(7) + before(11));
    base + (before(base) + before(base + 1)) + (before(base + 2) + before(base + 3))
}

/// The run and the slot of a request, in one word.
fn place(run: u32, slot: usize) -> u32 {
    run * RUN as u32 + slot as u32
}

/// Requests sorted by first sector; those with equal sectors are in order of insertion.
#[derive(Clone, Debug)]
pub struct SortList {
    /// Directory of the runs, in order.
    order: Vec<u32>,
    /// The bound of each run, followed by [`RUN`] times [`NOTHING`].
    bounds: Vec<u64>,
    runs: Vec<Run>,
    free: Vec<u32>,
    len: usize,
    finger: Cell<Finger>,
}

/// The first request whose key is not less than `from`, with its key.
#[derive(Clone, Copy, Debug)]
struct Finger {
    from: u64,
    next: Entry,
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
            bounds: vec![NOTHING; RUN],
            runs: Vec::new(),
            free: Vec::new(),
            len: 0,
            finger: Cell::new(Finger {
                from: 0,
                next: (NOTHING, None),
            }),
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
        debug_assert!(!rqs[id].is_sorted(), "request {id:?} is sorted twice");
        let key = rqs[id].sector.0;
        // The position after all equal keys is that before the first larger one.
        let after = key.saturating_add(1);
        if self.order.is_empty() {
            self.add_run(0, 0);
        }
        let mut entry = self.entry_of(after);
        if self.runs[self.order[entry] as usize].len == RUN {
            self.split(rqs, entry);
            entry += (self.bounds[entry + 1] <= key) as usize;
        }
        let number = self.order[entry];
        let run = &mut self.runs[number as usize];
        let slot = run.insert(run.count_before(after), key, id);
        let rq = &mut rqs[id];
        rq.sorted_at = place(number, slot);
        rq.rq_flags.set(RqFlags::SORTED);
        self.len += 1;
        // Whether the request is next at the finger cannot be predicted, so there is no branch.
        let Finger { from, next } = self.finger.get_mut();
        let is_next = (*from <= key) & ((key < next.0) | next.1.is_none());
        next.0 = select_unpredictable(is_next, key, next.0);
        next.1 = select_unpredictable(is_next, Some(id), next.1);
    }

    /// Removes a request and returns the one after it.
    ///
    /// # Panics
    /// If it is not in the list.
    #[inline]
    pub fn remove(&mut self, rqs: &mut Requests, id: RequestId) -> Option<RequestId> {
        let (run, at) = self.place_of(rqs, id).expect("request is in the list");
        rqs[id].rq_flags.clear(RqFlags::SORTED);
        self.len -= 1;
        let r = &mut self.runs[run as usize];
        // All keys before this run are at most its bound.
        let (before, _) = r.entry_at(at.wrapping_sub(1));
        let before = select_unpredictable(at > 0, before, r.bound);
        let (key, _) = r.remove(at);
        let (left, behind) = (r.len, r.next);
        let next = match at < left {
            true => r.entry_at(at),
            false => self.first_of(behind),
        };
        if left == 0 {
            self.drop_run(run);
        }
        let mut finger = Finger { from: key, next };
        if before == key {
            finger.next = self.lower_bound(key);
        }
        self.finger.set(finger);
        next.1
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
        let before = self.prev(rqs, id);
        (before, self.remove(rqs, id))
    }

    /// Whether the list contains the request.
    pub fn contains(&self, rqs: &Requests, id: RequestId) -> bool {
        self.place_of(rqs, id).is_some()
    }

    /// The first request that starts at or after `sector`.
    #[inline]
    pub fn from_sector(&self, sector: Sector) -> Option<RequestId> {
        let finger = self.finger.get();
        if finger.from == sector.0 {
            return finger.next.1;
        }
        let (from, next) = (sector.0, self.lower_bound(sector.0));
        self.finger.set(Finger { from, next });
        next.1
    }

    /// The first request that starts exactly at `sector`.
    #[inline]
    pub fn find(&self, sector: Sector) -> Option<RequestId> {
        if self.len == 0 {
            return None;
        }
        let (key, id) = self.lower_bound(sector.0);
        id.filter(|_| key == sector.0)
    }

    /// The request with the lowest sector.
    pub fn first(&self) -> Option<RequestId> {
        self.first_of(*self.order.first()?).1
    }

    /// The request with the highest sector.
    pub fn last(&self) -> Option<RequestId> {
        self.last_of(*self.order.last()?)
    }

    /// The request after `id`, which must be in the list.
    pub fn next(&self, rqs: &Requests, id: RequestId) -> Option<RequestId> {
        let (run, at) = self.place_of(rqs, id)?;
        let r = &self.runs[run as usize];
        match at + 1 < r.len {
            true => r.entry_at(at + 1).1,
            false => self.first_of(r.next).1,
        }
    }

    /// The request before `id`, which must be in the list.
    pub fn prev(&self, rqs: &Requests, id: RequestId) -> Option<RequestId> {
        let (run, at) = self.place_of(rqs, id)?;
        let r = &self.runs[run as usize];
        match at.checked_sub(1) {
            Some(before) => r.entry_at(before).1,
            None => self.last_of(r.prev),
        }
    }

    /// The requests in order.
    pub fn iter(&self) -> impl Iterator<Item = RequestId> + '_ {
        let runs = self.order.iter().map(|&run| &self.runs[run as usize]);
        runs.flat_map(|run| (0..run.len).filter_map(|at| run.entry_at(at).1))
    }

    /// The first entry of a run, or nothing if there is no such run.
    #[inline]
    fn first_of(&self, run: u32) -> Entry {
        match self.runs.get(run as usize) {
            Some(run) => run.entry_at(0),
            None => (NOTHING, None),
        }
    }

    fn last_of(&self, run: u32) -> Option<RequestId> {
        let run = self.runs.get(run as usize)?;
        run.entry_at(run.len.checked_sub(1)?).1
    }

    /// The last run whose bound is smaller than `key`, or the first.
    #[inline]
    fn entry_of(&self, key: u64) -> usize {
        if self.order.len() < 2 {
            return 0;
        }
        // Whether the list is long or short cannot be predicted either, so the first step is always
        // taken.
        let left = self.order.len();
        let half = select_unpredictable(left > RUN, left / 2, 0);
        let mut base = select_unpredictable(self.bounds[half] < key, half, 0);
        let mut left = left - half;
        while left > RUN {
            let half = left / 2;
            let is_before = self.bounds[base + half] < key;
            base = select_unpredictable(is_before, base + half, base);
            left -= half;
        }
        let bounds = self.bounds[base..].first_chunk();
        let before = base + bounds.map_or(0, |bounds| count_before(bounds, key));
        before.saturating_sub(1)
    }

    /// The first entry whose key is not less than `key`.
    #[inline]
    fn lower_bound(&self, key: u64) -> Entry {
        let Some(&run) = self.order.get(self.entry_of(key)) else {
            return (NOTHING, None);
        };
        let run = &self.runs[run as usize];
        let at = run.count_before(key);
        match at < run.len {
            true => run.entry_at(at),
            false => self.first_of(run.next),
        }
    }

    /// The run of a request and its place in order there.
    #[inline]
    fn place_of(&self, rqs: &Requests, id: RequestId) -> Option<(u32, usize)> {
        let rq = &rqs[id];
        let (number, slot) = (rq.sorted_at / RUN as u32, rq.sorted_at as usize % RUN);
        let run = self.runs.get(number as usize)?;
        (rq.is_sorted() && run.ids[slot] == Some(id)).then(|| (number, run.order.place_of(slot)))
    }

    /// Adds an empty run to the directory at `entry`. Returns its number.
    fn add_run(&mut self, entry: usize, bound: u64) -> u32 {
        let number = self.free.pop().unwrap_or_else(|| {
            self.runs.push(Run::EMPTY);
            self.runs.len() as u32 - 1
        });
        self.order.insert(entry, number);
        self.bounds.insert(entry, bound);
        self.runs[number as usize].bound = bound;
        let prev = entry.checked_sub(1).map_or(NO_RUN, |prev| self.order[prev]);
        let next = self.order.get(entry + 1).copied().unwrap_or(NO_RUN);
        self.link(prev, number);
        self.link(number, next);
        number
    }

    /// Makes two runs neighbours; either may be [`NO_RUN`].
    fn link(&mut self, prev: u32, next: u32) {
        if let Some(run) = self.runs.get_mut(prev as usize) {
            run.next = next;
        }
        if let Some(run) = self.runs.get_mut(next as usize) {
            run.prev = prev;
        }
    }

    /// Moves the upper half of a full run to a new one behind it.
    fn split(&mut self, rqs: &mut Requests, entry: usize) {
        let full = self.order[entry] as usize;
        let (bound, _) = self.runs[full].entry_at(RUN / 2);
        let upper = self.add_run(entry + 1, bound);
        let [from, to] = self
            .runs
            .get_disjoint_mut([full, upper as usize])
            .expect("a new run is not an old one");
        to.order = SlotOrder::ASCENDING;
        for slot in 0..RUN / 2 {
            let (key, id) = from.clear(RUN / 2 + slot);
            (to.keys[slot], to.ids[slot]) = (key, id);
            if let Some(id) = id {
                rqs[id].sorted_at = place(upper, slot);
            }
        }
        (from.len, to.len) = (RUN / 2, RUN / 2);
    }

    /// Frees an empty run, unless it is the only one.
    fn drop_run(&mut self, number: u32) {
        if self.order.len() == 1 {
            return;
        }
        let Run {
            bound, prev, next, ..
        } = self.runs[number as usize];
        // Of runs with equal bounds it may be any.
        let mut entry = self.entry_of(bound);
        while self.order[entry] != number {
            entry += 1;
        }
        self.order.remove(entry);
        self.bounds.remove(entry);
        self.link(prev, next);
        self.free.push(number);
        if entry == 0 {
            self.bounds[0] = 0;
            self.runs[next as usize].bound = 0;
        }
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

    /// Requests of one sector keep the order in which they came, also where they fill whole runs.
    #[test]
    fn requests_of_one_sector_keep_their_order_in_a_long_list() {
        let (mut rqs, mut list) = (Requests::default(), SortList::new());
        let mut model = BTreeMap::new();
        for serial in 0..1500 {
            let sector = serial as u64 * 7 % 3 * 8;
            let bio = Bio::new(Op::Read, Sector(sector), 8);
            let id = rqs.insert(Request::for_bio(&bio, Nanos::ZERO));
            list.insert(&mut rqs, id);
            model.insert((sector, serial), id);
        }
        check(&list, &model);
        while let Some((&key, &id)) = model.range((8, 0)..).next() {
            assert_eq!(list.from_sector(Sector(key.0)), Some(id));
            assert_eq!(list.find(Sector(key.0)), Some(id));
            list.remove(&mut rqs, id);
            model.remove(&key);
        }
        check(&list, &model);
    }
}
