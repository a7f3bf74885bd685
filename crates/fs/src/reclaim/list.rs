//! LRU lists of folios, linked through an entry for each folio.

use crate::page_cache::FolioId;

/// The number of lists of a memory cgroup: active and inactive, or four generations.
pub(super) const LISTS: usize = 4;

/// Flags of a folio that only reclaim uses (`PG_*`).
pub(super) mod state {
    /// It is on a list, not in a batch or isolated.
    pub(in crate::reclaim) const LRU: u8 = 1 << 0;
    /// It belongs to the active list, or to the youngest generation.
    pub(in crate::reclaim) const ACTIVE: u8 = 1 << 1;
    /// It was accessed since the last scan.
    pub(in crate::reclaim) const REFERENCED: u8 = 1 << 2;
}

/// A generation's number where a folio has none.
pub(super) const NO_GENERATION: u8 = u8::MAX;

/// A folio's links and flags.
#[derive(Clone, Copy, Debug)]
pub(super) struct LruEntry {
    newer: FolioId,
    older: FolioId,
    /// The list that it is on.
    list: u8,
    pub(super) state: u8,
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
    const fn new(order: u8, node: u8, group: u16) -> LruEntry {
        LruEntry {
            newer: FolioId::NONE,
            older: FolioId::NONE,
            list: 0,
            state: 0,
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
}

#[derive(Clone, Copy, Debug)]
struct List {
    newest: FolioId,
    oldest: FolioId,
    pages: u64,
}

/// The lists of each memory cgroup (`struct lruvec`), and the entries of all folios.
#[derive(Debug)]
pub(super) struct Lists {
    entries: Vec<LruEntry>,
    lists: Vec<[List; LISTS]>,
}

impl Lists {
    /// Empty lists of this many memory cgroups.
    pub(super) fn new(groups: usize) -> Lists {
        let empty = List {
            newest: FolioId::NONE,
            oldest: FolioId::NONE,
            pages: 0,
        };
        Lists {
            entries: Vec::new(),
            lists: vec![[empty; LISTS]; groups],
        }
    }

    /// Resets the entry of a folio that was just added to the page cache, on that memory
    /// node and charged to that memory cgroup.
    pub(super) fn begin(&mut self, id: FolioId, order: u8, (node, group): (u8, u16)) {
        let entry = LruEntry::new(order, node, group);
        match self.entries.get_mut(id.number()) {
            Some(reused) => *reused = entry,
            None => {
                self.entries.resize(id.number(), LruEntry::new(0, 0, 0));
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

    /// Whether it has any of these flags.
    pub(super) fn has(&self, id: FolioId, states: u8) -> bool {
        self.entry(id).state & states != 0
    }

    pub(super) fn set(&mut self, id: FolioId, states: u8) {
        self.entry_mut(id).state |= states;
    }

    pub(super) fn clear(&mut self, id: FolioId, states: u8) {
        self.entry_mut(id).state &= !states;
    }

    /// Pages in a list of a memory cgroup.
    pub(super) fn pages(&self, group: u16, list: usize) -> u64 {
        self.lists[usize::from(group)][list].pages
    }

    /// The folio of a list that is scanned first.
    pub(super) fn oldest(&self, group: u16, list: usize) -> Option<FolioId> {
        let oldest = self.lists[usize::from(group)][list].oldest;
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

    /// That list of the memory cgroup that a folio is charged to.
    fn list_of(&mut self, id: FolioId, list: usize) -> &mut List {
        let group = usize::from(self.entry(id).group);
        &mut self.lists[group][list]
    }

    fn link(&mut self, list: usize, id: FolioId, newer: FolioId, older: FolioId) {
        let entry = self.entry_mut(id);
        entry.newer = newer;
        entry.older = older;
        entry.list = list as u8;
        entry.state |= state::LRU;
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
        self.clear(id, state::LRU);
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

    use super::{LISTS, Lists, state};
    use crate::page_cache::FolioId;

    proptest! {
        #[test]
        fn lists_are_queues(steps in prop::collection::vec((0..40_u32, 0..LISTS, any::<bool>()), 0..200)) {
            const GROUPS: usize = 2;
            let mut lists = Lists::new(GROUPS);
            // Lists of the first group, then those of the second.
            let mut queues: [VecDeque<FolioId>; GROUPS * LISTS] = Default::default();
            let group_of = |number: u32| (number % GROUPS as u32) as u16;
            let of_queue = |at: usize| ((at / LISTS) as u16, at % LISTS);
            for number in 0..40 {
                lists.begin(FolioId::from_number(number), 0, (0, group_of(number)));
            }
            for (number, list, newest) in steps {
                let id = FolioId::from_number(number);
                let queue = usize::from(group_of(number)) * LISTS + list;
                if lists.has(id, state::LRU) {
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
                    let (group, list) = of_queue(at);
                    prop_assert_eq!(lists.oldest(group, list), queue.back().copied());
                    prop_assert_eq!(lists.pages(group, list), queue.len() as u64);
                }
            }
            for (at, mut queue) in queues.into_iter().enumerate() {
                let (group, list) = of_queue(at);
                while let Some(id) = queue.pop_back() {
                    prop_assert_eq!(lists.oldest(group, list), Some(id));
                    lists.remove(id);
                }
                prop_assert_eq!(lists.oldest(group, list), None);
            }
        }
    }
}
