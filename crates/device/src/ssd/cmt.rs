//! The part of the map that is in DRAM: the cached mapping table of DFTL
//! (Gupta, Kim and Urgaonkar, ASPLOS 2009), entry by entry, least recently used
//! out first.

/// "No entry".
const NONE: u32 = u32::MAX;

/// A cached entry of the map.
#[derive(Clone, Copy, Debug)]
struct Entry {
    slot: u32,
    /// Neighbours by time of use.
    newer: u32,
    older: u32,
    /// Neighbours among the dirty entries of one page of the map; an entry that
    /// is clean is its own neighbour.
    next_dirty: u32,
    before_dirty: u32,
}

/// The cache.
#[derive(Clone, Debug)]
pub(crate) struct Cmt {
    entries: Vec<Entry>,
    capacity: usize,
    newest: u32,
    oldest: u32,
    /// From a slot to its entry, by open addressing.
    places: Vec<u32>,
    /// First dirty entry of every page of the map.
    dirty: Vec<u32>,
    slots_per_map_page: u32,
}

impl Cmt {
    pub(crate) fn new(capacity: u32, slots: u64, slots_per_map_page: u32) -> Cmt {
        let pages = slots.div_ceil(slots_per_map_page as u64) as usize;
        Cmt {
            entries: Vec::new(),
            capacity: capacity as usize,
            newest: NONE,
            oldest: NONE,
            places: vec![NONE; (capacity as usize * 2).next_power_of_two()],
            dirty: vec![NONE; pages],
            slots_per_map_page,
        }
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.newest = NONE;
        self.oldest = NONE;
        self.places.fill(NONE);
        self.dirty.fill(NONE);
    }

    /// The page of the map that holds a slot's entry.
    pub(crate) fn map_page(&self, slot: u32) -> u32 {
        slot / self.slots_per_map_page
    }

    /// Whether a slot's entry is here; if so it is now the last one used.
    pub(crate) fn touch(&mut self, slot: u32) -> bool {
        let index = self.places[self.place(slot)];
        if index == NONE {
            return false;
        }
        self.unlink(index);
        self.link_newest(index);
        true
    }

    /// Brings a slot's entry in, which may be here already, and marks it dirty
    /// if it was changed. Returns the page of the map that has to be written
    /// because a dirty entry made room.
    pub(crate) fn insert(&mut self, slot: u32, changed: bool) -> Option<u32> {
        let mut index = self.places[self.place(slot)];
        let mut evicted = None;
        if index == NONE {
            (index, evicted) = self.room();
            self.entries[index as usize].slot = slot;
            let place = self.place(slot);
            self.places[place] = index;
        } else {
            self.unlink(index);
        }
        self.link_newest(index);
        if changed {
            self.mark_dirty(index);
        }
        evicted
    }

    /// A free entry, the least recently used one's if there is no other.
    fn room(&mut self) -> (u32, Option<u32>) {
        if self.entries.len() < self.capacity {
            let index = self.entries.len() as u32;
            self.entries.push(Entry {
                slot: 0,
                newer: NONE,
                older: NONE,
                next_dirty: index,
                before_dirty: index,
            });
            return (index, None);
        }
        let index = self.oldest;
        let slot = self.entries[index as usize].slot;
        let page = self.map_page(slot);
        let written = self.is_dirty(index).then(|| {
            // Writing a page of the map cleans all of its entries.
            self.clean(page);
            page
        });
        self.unlink(index);
        self.forget(slot);
        (index, written)
    }

    fn is_dirty(&self, index: u32) -> bool {
        self.entries[index as usize].next_dirty != index
    }

    fn mark_dirty(&mut self, index: u32) {
        if self.is_dirty(index) {
            return;
        }
        let page = self.map_page(self.entries[index as usize].slot);
        let next = std::mem::replace(&mut self.dirty[page as usize], index);
        self.entries[index as usize].next_dirty = next;
        self.entries[index as usize].before_dirty = NONE;
        if next != NONE {
            self.entries[next as usize].before_dirty = index;
        }
    }

    fn clean(&mut self, page: u32) {
        let mut index = std::mem::replace(&mut self.dirty[page as usize], NONE);
        while index != NONE {
            let entry = &mut self.entries[index as usize];
            let next = entry.next_dirty;
            entry.next_dirty = index;
            entry.before_dirty = index;
            index = next;
        }
    }

    fn unlink(&mut self, index: u32) {
        let Entry { newer, older, .. } = self.entries[index as usize];
        match newer {
            NONE => self.newest = older,
            newer => self.entries[newer as usize].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.entries[older as usize].newer = newer,
        }
    }

    fn link_newest(&mut self, index: u32) {
        let older = std::mem::replace(&mut self.newest, index);
        self.entries[index as usize].newer = NONE;
        self.entries[index as usize].older = older;
        match older {
            NONE => self.oldest = index,
            older => self.entries[older as usize].newer = index,
        }
    }

    /// Where a slot's entry is noted, or the free place where it would be.
    fn place(&self, slot: u32) -> usize {
        let mask = self.places.len() - 1;
        let mut place = Self::first_place(slot, mask);
        loop {
            let index = self.places[place];
            if index == NONE || self.entries[index as usize].slot == slot {
                return place;
            }
            place = (place + 1) & mask;
        }
    }

    fn first_place(slot: u32, mask: usize) -> usize {
        ((slot as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize & mask
    }

    /// Removes a slot's note and moves those up that had to go past it.
    fn forget(&mut self, slot: u32) {
        let mask = self.places.len() - 1;
        let mut hole = self.place(slot);
        let mut place = hole;
        loop {
            place = (place + 1) & mask;
            let index = self.places[place];
            if index == NONE {
                break;
            }
            let first = Self::first_place(self.entries[index as usize].slot, mask);
            // It may move up if its first place is not between hole and place.
            if place.wrapping_sub(first) & mask >= place.wrapping_sub(hole) & mask {
                self.places[hole] = index;
                hole = place;
            }
        }
        self.places[hole] = NONE;
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
