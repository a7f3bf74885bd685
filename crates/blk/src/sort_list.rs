//! Requests in order of their sector: what the kernel's schedulers keep in a
//! red-black tree (`elv_rb_add` and friends).
//!
//! Sorted runs of at most [`RUN`] entries under a small directory of first
//! keys, which is a two-level B+ tree. At a few hundred requests an insert
//! is two binary searches and a short move inside one or two cache lines; runs
//! are reused, so a warm list allocates nothing.

use crate::request::{RequestId, Requests};
use crate::units::Sector;

/// Entries a run holds before it is split.
const RUN: usize = 64;
/// Two neighbours with no more entries than this together become one.
const JOIN: usize = RUN / 2;

#[derive(Clone, Debug)]
struct Run {
    keys: [u64; RUN],
    ids: [Option<RequestId>; RUN],
    len: usize,
}

impl Run {
    const EMPTY: Run = Run {
        keys: [0; RUN],
        ids: [None; RUN],
        len: 0,
    };

    fn keys(&self) -> &[u64] {
        &self.keys[..self.len]
    }

    fn insert(&mut self, at: usize, key: u64, id: RequestId) {
        self.keys.copy_within(at..self.len, at + 1);
        self.ids.copy_within(at..self.len, at + 1);
        self.keys[at] = key;
        self.ids[at] = Some(id);
        self.len += 1;
    }

    fn remove(&mut self, at: usize) {
        self.keys.copy_within(at + 1..self.len, at);
        self.ids.copy_within(at + 1..self.len, at);
        self.len -= 1;
    }

    /// Moves the entries from `at` on to the end of `other`.
    fn move_to(&mut self, at: usize, other: &mut Run) {
        let moved = self.len - at;
        let end = other.len + moved;
        other.keys[other.len..end].copy_from_slice(&self.keys[at..self.len]);
        other.ids[other.len..end].copy_from_slice(&self.ids[at..self.len]);
        other.len = end;
        self.len = at;
    }
}

/// A directory entry: the smallest key of a run, and where the run is.
#[derive(Clone, Copy, Debug)]
struct Entry {
    first: u64,
    run: u32,
}

/// A position in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    entry: usize,
    at: usize,
}

/// Requests in order of their start sector; equal ones in order of insertion.
#[derive(Clone, Debug, Default)]
pub struct SortList {
    directory: Vec<Entry>,
    runs: Vec<Run>,
    free: Vec<u32>,
    len: usize,
}

impl SortList {
    /// An empty list.
    pub fn new() -> SortList {
        SortList::default()
    }

    /// Whether nothing is in it.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many requests are in it.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Puts a request in, behind those that start at the same sector. It keeps
    /// its place when its sector changes, until it is taken out: a request is
    /// in one sort list at most, as it has one `rb_node` in the kernel.
    pub fn insert(&mut self, rqs: &mut Requests, id: RequestId) {
        let sector = rqs[id].sector;
        debug_assert!(
            rqs[id].sorted_at.is_none(),
            "request {id:?} is sorted twice"
        );
        rqs[id].sorted_at = Some(sector);
        let key = sector.0;
        self.len += 1;
        if self.directory.is_empty() {
            let run = self.new_run();
            self.directory.push(Entry { first: key, run });
        }
        let mut entry = self
            .directory
            .partition_point(|e| e.first <= key)
            .saturating_sub(1);
        if self.run(entry).len == RUN {
            self.split(entry);
            if self.directory[entry + 1].first <= key {
                entry += 1;
            }
        }
        let at = self.run(entry).keys().partition_point(|&k| k <= key);
        self.run_mut(entry).insert(at, key, id);
        if at == 0 {
            self.directory[entry].first = key;
        }
    }

    /// Takes a request out.
    ///
    /// # Panics
    /// Where it is not in the list.
    pub fn remove(&mut self, rqs: &mut Requests, id: RequestId) {
        let place = self.place_of(rqs, id).expect("request is in the list");
        rqs[id].sorted_at = None;
        self.len -= 1;
        let run = self.run_mut(place.entry);
        run.remove(place.at);
        match (run.len, run.keys[0]) {
            (0, _) => self.drop_entry(place.entry),
            (_, first) if place.at == 0 => self.directory[place.entry].first = first,
            _ => {}
        }
        self.join_neighbours(place.entry);
    }

    /// Whether the request is in the list.
    pub fn contains(&self, rqs: &Requests, id: RequestId) -> bool {
        self.place_of(rqs, id).is_some()
    }

    /// The first request that starts at or behind `sector`.
    pub fn from_sector(&self, sector: Sector) -> Option<RequestId> {
        self.id_at(self.lower_bound(sector.0))
    }

    /// The first request that starts exactly at `sector`.
    pub fn find(&self, sector: Sector) -> Option<RequestId> {
        let place = self.lower_bound(sector.0);
        let id = self.id_at(place)?;
        (self.run(place.entry).keys[place.at] == sector.0).then_some(id)
    }

    /// The request with the lowest sector.
    pub fn first(&self) -> Option<RequestId> {
        self.id_at(Place { entry: 0, at: 0 })
    }

    /// The request with the highest sector.
    pub fn last(&self) -> Option<RequestId> {
        let entry = self.directory.len().checked_sub(1)?;
        let at = self.run(entry).len - 1;
        self.id_at(Place { entry, at })
    }

    /// The request behind `id`, which is in the list.
    pub fn next(&self, rqs: &Requests, id: RequestId) -> Option<RequestId> {
        let place = self.place_of(rqs, id)?;
        self.id_at(self.normal(Place {
            at: place.at + 1,
            ..place
        }))
    }

    /// The request before `id`, which is in the list.
    pub fn prev(&self, rqs: &Requests, id: RequestId) -> Option<RequestId> {
        let place = self.place_of(rqs, id)?;
        if place.at > 0 {
            return self.id_at(Place {
                at: place.at - 1,
                ..place
            });
        }
        let entry = place.entry.checked_sub(1)?;
        self.id_at(Place {
            entry,
            at: self.run(entry).len - 1,
        })
    }

    /// The requests in order.
    pub fn iter(&self) -> impl Iterator<Item = RequestId> + '_ {
        self.directory.iter().flat_map(|e| {
            let run = &self.runs[e.run as usize];
            run.ids[..run.len].iter().flatten().copied()
        })
    }

    fn run(&self, entry: usize) -> &Run {
        &self.runs[self.directory[entry].run as usize]
    }

    fn run_mut(&mut self, entry: usize) -> &mut Run {
        &mut self.runs[self.directory[entry].run as usize]
    }

    /// A place behind a run's end is the next run's start.
    fn normal(&self, place: Place) -> Place {
        if place.entry < self.directory.len() && place.at >= self.run(place.entry).len {
            return Place {
                entry: place.entry + 1,
                at: 0,
            };
        }
        place
    }

    fn lower_bound(&self, key: u64) -> Place {
        let entry = self
            .directory
            .partition_point(|e| e.first < key)
            .saturating_sub(1);
        if entry >= self.directory.len() {
            return Place { entry, at: 0 };
        }
        let at = self.run(entry).keys().partition_point(|&k| k < key);
        self.normal(Place { entry, at })
    }

    fn id_at(&self, place: Place) -> Option<RequestId> {
        if place.entry >= self.directory.len() {
            return None;
        }
        let run = self.run(place.entry);
        if place.at < run.len {
            run.ids[place.at]
        } else {
            None
        }
    }

    /// Requests of equal sectors may stretch over several runs.
    fn place_of(&self, rqs: &Requests, id: RequestId) -> Option<Place> {
        let sector = rqs[id].sorted_at?;
        let mut place = self.lower_bound(sector.0);
        loop {
            let found = self.id_at(place)?;
            if self.run(place.entry).keys[place.at] != sector.0 {
                return None;
            }
            if found == id {
                return Some(place);
            }
            place = self.normal(Place {
                at: place.at + 1,
                ..place
            });
        }
    }

    fn new_run(&mut self) -> u32 {
        if let Some(run) = self.free.pop() {
            self.runs[run as usize].len = 0;
            return run;
        }
        self.runs.push(Run::EMPTY);
        self.runs.len() as u32 - 1
    }

    fn split(&mut self, entry: usize) {
        let upper = self.new_run();
        let lower = self.directory[entry].run;
        let [from, to] = self
            .runs
            .get_disjoint_mut([lower as usize, upper as usize])
            .expect("a new run is not an old one");
        from.move_to(RUN / 2, to);
        let first = to.keys[0];
        self.directory
            .insert(entry + 1, Entry { first, run: upper });
    }

    fn drop_entry(&mut self, entry: usize) {
        let gone = self.directory.remove(entry);
        self.free.push(gone.run);
    }

    fn join_neighbours(&mut self, entry: usize) {
        if entry + 1 >= self.directory.len() {
            return;
        }
        if self.run(entry).len + self.run(entry + 1).len > JOIN {
            return;
        }
        let (left, right) = (self.directory[entry].run, self.directory[entry + 1].run);
        let [to, from] = self
            .runs
            .get_disjoint_mut([left as usize, right as usize])
            .expect("neighbours are two runs");
        from.move_to(0, to);
        self.drop_entry(entry + 1);
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
            ops in prop::collection::vec((0u8..5, 0u64..300, any::<prop::sample::Index>()), 0..600),
        ) {
            let mut rqs = Requests::default();
            let (mut list, mut model) = (SortList::new(), BTreeMap::new());
            for (serial, (op, sector, pick)) in ops.into_iter().enumerate() {
                if op < 3 || model.is_empty() {
                    let bio = Bio::new(Op::Read, Sector(sector), 8);
                    let id = rqs.insert(Request::for_bio(&bio, Nanos::ZERO));
                    list.insert(&mut rqs, id);
                    model.insert((sector, serial), id);
                } else if op == 3 {
                    let key = *model.keys().nth(pick.index(model.len())).unwrap();
                    let id = model.remove(&key).unwrap();
                    list.remove(&mut rqs, id);
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
}
