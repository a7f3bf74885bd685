//! The part of the map that is in DRAM: the cached mapping table of DFTL
//! (Gupta, Kim and Urgaonkar, ASPLOS 2009), entry by entry, least recently used
//! out first.

use super::lru::Lru;
use super::rng::Rng;

/// "No entry".
const NONE: u32 = u32::MAX;

/// The cache.
#[derive(Clone, Debug)]
pub(crate) struct Cmt {
    slots: Lru,
    /// By a slot's place among `slots`: the next dirty entry of its page of the
    /// map. An entry that is clean is its own next one.
    next_dirty: Vec<u32>,
    /// First dirty entry of every page of the map.
    dirty: Vec<u32>,
    slots_per_map_page: u32,
    /// Slots that have entries in all.
    all_slots: u64,
    /// What was used before the start, by formula.
    warm: Option<u64>,
}

impl Cmt {
    pub(crate) fn new(capacity: u32, slots: u64, slots_per_map_page: u32) -> Cmt {
        let pages = slots.div_ceil(slots_per_map_page as u64) as usize;
        Cmt {
            slots: Lru::new(capacity),
            next_dirty: Vec::new(),
            dirty: vec![NONE; pages],
            slots_per_map_page,
            all_slots: slots,
            warm: None,
        }
    }

    /// It is full of entries that were used before the start: any slot's is as
    /// likely to be here as any other's. They are no part of `slots`, so that
    /// they cost no memory, and go as those used since come in.
    pub(crate) fn warm_up(&mut self, seed: u64) {
        self.warm = Some(seed);
    }

    /// Whether a slot's entry is still here from before the start.
    fn is_warm(&self, slot: u32) -> bool {
        self.warm.is_some_and(|seed| {
            let draw = Rng::new(seed ^ u64::from(slot)).below(u32::MAX);
            (u64::from(draw) * self.all_slots) >> 32 < u64::from(self.slots.room())
        })
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.slots.clear();
        self.warm = None;
        self.next_dirty.clear();
        self.dirty.fill(NONE);
    }

    /// The page of the map that holds a slot's entry.
    pub(crate) fn map_page(&self, slot: u32) -> u32 {
        slot / self.slots_per_map_page
    }

    /// Whether a slot's entry is here; if so it is now the last one used.
    pub(crate) fn touch(&mut self, slot: u32) -> bool {
        let index = self.slots.find(slot);
        if let Some(index) = index {
            self.slots.touch(index);
        } else if self.is_warm(slot) {
            self.insert(slot, false);
            return true;
        }
        index.is_some()
    }

    /// Brings a slot's entry in, which may be here already, and marks it dirty
    /// if it was changed. Returns the page of the map that has to be written
    /// because a dirty entry made room.
    pub(crate) fn insert(&mut self, slot: u32, changed: bool) -> Option<u32> {
        let mut evicted = None;
        let index = match self.slots.find(slot) {
            Some(index) => {
                self.slots.touch(index);
                index
            }
            None => {
                evicted = self.write_next_out();
                self.slots.insert(slot)
            }
        };
        if index as usize == self.next_dirty.len() {
            self.next_dirty.push(index);
        }
        if changed {
            self.mark_dirty(index);
        }
        evicted
    }

    /// Cleans the entry that makes room next; returns its page of the map where
    /// that has to be written.
    fn write_next_out(&mut self) -> Option<u32> {
        let index = self.slots.next_out()?;
        let page = self.map_page(self.slots.key(index));
        self.is_dirty(index).then(|| {
            // Writing a page of the map cleans all of its entries.
            self.clean(page);
            page
        })
    }

    fn is_dirty(&self, index: u32) -> bool {
        self.next_dirty[index as usize] != index
    }

    fn mark_dirty(&mut self, index: u32) {
        if self.is_dirty(index) {
            return;
        }
        let page = self.map_page(self.slots.key(index));
        let next = std::mem::replace(&mut self.dirty[page as usize], index);
        self.next_dirty[index as usize] = next;
    }

    /// Nothing of a page of the map has to be written.
    pub(crate) fn clean(&mut self, page: u32) {
        let mut index = std::mem::replace(&mut self.dirty[page as usize], NONE);
        while index != NONE {
            index = std::mem::replace(&mut self.next_dirty[index as usize], index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_is_a_least_recently_used_cache(
            uses in prop::collection::vec((0u32..300, any::<bool>(), any::<bool>()), 1..2000),
            capacity in 1u32..64,
        ) {
            const PER_PAGE: u32 = 7;
            let mut cmt = Cmt::new(capacity, 300, PER_PAGE);
            // Oldest first: (slot, dirty).
            let mut plain: Vec<(u32, bool)> = Vec::new();
            for (slot, insert, changed) in uses {
                let here = plain.iter().position(|e| e.0 == slot);
                if !insert {
                    prop_assert_eq!(cmt.touch(slot), here.is_some());
                    if let Some(at) = here {
                        let entry = plain.remove(at);
                        plain.push(entry);
                    }
                    continue;
                }
                let written = cmt.insert(slot, changed);
                let mut want = None;
                let was_dirty = match here {
                    Some(at) => plain.remove(at).1,
                    None => {
                        if plain.len() == capacity as usize {
                            let (out, dirty) = plain.remove(0);
                            if dirty {
                                want = Some(out / PER_PAGE);
                                plain.iter_mut().filter(|e| e.0 / PER_PAGE == out / PER_PAGE)
                                    .for_each(|e| e.1 = false);
                            }
                        }
                        false
                    }
                };
                plain.push((slot, changed || was_dirty));
                prop_assert_eq!(written, want);
            }
        }
    }
}
