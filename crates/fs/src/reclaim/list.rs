//! LRU lists of folios, linked through an entry for each folio.

use crate::page_cache::FolioId;
use crate::reclaim::lruvec::{ByLruvec, Lruvec, Lruvecs};

/// The number of lists of a memory cgroup on a node: active and inactive, or four generations.
pub(super) const LISTS: usize = 4;

/// A generation's number where a folio has none.
pub(super) const NO_GENERATION: u8 = u8::MAX;

/// A folio's links, and what only reclaim knows of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct LruEntry {
    newer: FolioId,
    older: FolioId,
    /// The list that it is on.
    list: u8,
    /// It is on a list, not in a batch or isolated (`PG_lru`).
    is_listed: bool,
    /// It has `1 << order` pages.
    pub(super) order: u8,
    /// The slot of its generation, which may be younger than that of its list.
    pub(super) generation: u8,
    /// Reads after the first two.
    pub(super) refs: u8,
    /// The memory node that it is on.
    pub(super) node: u8,
    /// The memory cgroup that it is charged to.
    pub(super) group: u16,
}

impl LruEntry {
    const fn new(order: u8, Lruvec { node, group }: Lruvec) -> LruEntry {
        LruEntry {
            newer: FolioId::NONE,
            older: FolioId::NONE,
            list: 0,
            is_listed: false,
            order,
            generation: NO_GENERATION,
            refs: 0,
            node,
            group,
        }
    }

    pub(super) fn pages(&self) -> u64 {
        1 << self.order
    }

    /// Whose lists it belongs on.
    #[inline]
    pub(super) fn lruvec(&self) -> Lruvec {
        Lruvec {
            node: self.node,
            group: self.group,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct List {
    newest: FolioId,
    oldest: FolioId,
    pages: u64,
}

/// The lists of each memory cgroup on each node, and the entries of all folios.
#[derive(Debug)]
pub(super) struct Lists {
    entries: Vec<LruEntry>,
    lists: ByLruvec<[List; LISTS]>,
}

impl Lists {
    /// Empty lists of each.
    pub(super) fn new(lruvecs: Lruvecs) -> Lists {
        let empty = List {
            newest: FolioId::NONE,
            oldest: FolioId::NONE,
            pages: 0,
        };
        Lists {
            entries: Vec::new(),
            lists: ByLruvec::new(lruvecs, |_| [empty; LISTS]),
        }
    }

    /// Resets the entry of a folio that was just added to the page cache.
    pub(super) fn begin(&mut self, id: FolioId, order: u8, of: Lruvec) {
        let entry = LruEntry::new(order, of);
        match self.entries.get_mut(id.number()) {
            Some(reused) => *reused = entry,
            None => {
                let unused = LruEntry::new(0, Lruvec::default());
                self.entries.resize(id.number(), unused);
                self.entries.push(entry);
            }
        }
    }

    pub(super) fn entry(&self, id: FolioId) -> &LruEntry {
        &self.entries[id.number()]
    }

    pub(super) fn entry_mut(&mut self, id: FolioId) -> &mut LruEntry {
        &mut self.entries[id.number()]
    }

    /// Whether it is on a list.
    pub(super) fn is_listed(&self, id: FolioId) -> bool {
        self.entry(id).is_listed
    }

    /// Pages in a list of a memory cgroup on a node.
    pub(super) fn pages(&self, of: Lruvec, list: usize) -> u64 {
        self.lists[of][list].pages
    }

    /// The folio of a list that is scanned first.
    pub(super) fn oldest(&self, of: Lruvec, list: usize) -> Option<FolioId> {
        let oldest = self.lists[of][list].oldest;
        (oldest != FolioId::NONE).then_some(oldest)
    }

    /// Adds a folio to the end of a list that is scanned last.
    pub(super) fn push_newest(&mut self, list: usize, id: FolioId) {
        let newest = self.list_of(id, list).newest;
        self.link(list, id, FolioId::NONE, newest);
    }

    /// Adds a folio to the end of a list that is scanned first.
    pub(super) fn push_oldest(&mut self, list: usize, id: FolioId) {
        let oldest = self.list_of(id, list).oldest;
        self.link(list, id, oldest, FolioId::NONE);
    }

    /// That list of the memory cgroup and the node that a folio is charged to.
    fn list_of(&mut self, id: FolioId, list: usize) -> &mut List {
        let of = self.entry(id).lruvec();
        &mut self.lists[of][list]
    }

    fn link(&mut self, list: usize, id: FolioId, newer: FolioId, older: FolioId) {
        let entry = self.entry_mut(id);
        entry.newer = newer;
        entry.older = older;
        entry.list = list as u8;
        entry.is_listed = true;
        let pages = self.entry(id).pages();
        self.list_of(id, list).pages += pages;
        match newer {
            FolioId::NONE => self.list_of(id, list).newest = id,
            newer => self.entry_mut(newer).older = id,
        }
        match older {
            FolioId::NONE => self.list_of(id, list).oldest = id,
            older => self.entry_mut(older).newer = id,
        }
    }

    /// Removes a folio from its list.
    pub(super) fn remove(&mut self, id: FolioId) {
        let LruEntry {
            newer, older, list, ..
        } = *self.entry(id);
        let list = list as usize;
        let pages = self.entry(id).pages();
        self.list_of(id, list).pages -= pages;
        self.entry_mut(id).is_listed = false;
        match newer {
            FolioId::NONE => self.list_of(id, list).newest = older,
            newer => self.entry_mut(newer).older = older,
        }
        match older {
            FolioId::NONE => self.list_of(id, list).oldest = newer,
            older => self.entry_mut(older).newer = newer,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::{LISTS, Lists};
    use crate::page_cache::FolioId;
    use crate::reclaim::lruvec::{Lruvec, Lruvecs};

    proptest! {
        #[test]
        fn lists_are_queues(steps in prop::collection::vec((0..40_u32, 0..LISTS, any::<bool>()), 0..200)) {
            const LRUVECS: Lruvecs = Lruvecs { nodes: 2, groups: 2 };
            let mut lists = Lists::new(LRUVECS);
            // Lists of the first group on the first node, then those of the second.
            let mut queues: [VecDeque<FolioId>; 4 * LISTS] = Default::default();
            let of_folio = |number: u32| number as usize % LRUVECS.count();
            let of_queue = |at: usize| (LRUVECS.at(at / LISTS), at % LISTS);
            for number in 0..40 {
                let of: Lruvec = LRUVECS.at(of_folio(number));
                lists.begin(FolioId::from_number(number), 0, of);
            }
            for (number, list, newest) in steps {
                let id = FolioId::from_number(number);
                let queue = of_folio(number) * LISTS + list;
                if lists.is_listed(id) {
                    lists.remove(id);
                    queues.iter_mut().for_each(|queue| queue.retain(|&other| other != id));
                } else if newest {
                    lists.push_newest(list, id);
                    queues[queue].push_front(id);
                } else {
                    lists.push_oldest(list, id);
                    queues[queue].push_back(id);
                }
                for (at, queue) in queues.iter().enumerate() {
                    let (of, list) = of_queue(at);
                    prop_assert_eq!(lists.oldest(of, list), queue.back().copied());
                    prop_assert_eq!(lists.pages(of, list), queue.len() as u64);
                }
            }
            for (at, mut queue) in queues.into_iter().enumerate() {
                let (of, list) = of_queue(at);
                while let Some(id) = queue.pop_back() {
                    prop_assert_eq!(lists.oldest(of, list), Some(id));
                    lists.remove(id);
                }
                prop_assert_eq!(lists.oldest(of, list), None);
            }
        }
    }
}
