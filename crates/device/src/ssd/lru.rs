//! A set of so many keys that forgets the least recently used one for a new
//! one. What belongs to a key is kept by whoever uses the set, by the key's
//! place in it.

/// "No entry".
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Entry {
    key: u32,
    /// Neighbours by time of use; `older` also links free entries.
    newer: u32,
    older: u32,
}

/// The set.
#[derive(Clone, Debug)]
pub(crate) struct Lru {
    entries: Vec<Entry>,
    capacity: usize,
    newest: u32,
    oldest: u32,
    free: u32,
    /// From a key to its entry, by open addressing.
    places: Vec<u32>,
}

impl Lru {
    pub(crate) fn new(capacity: u32) -> Lru {
        Lru {
            entries: Vec::new(),
            capacity: capacity as usize,
            newest: NONE,
            oldest: NONE,
            free: NONE,
            places: vec![NONE; (capacity as usize * 2).next_power_of_two()],
        }
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.newest = NONE;
        self.oldest = NONE;
        self.free = NONE;
        self.places.fill(NONE);
    }

    /// How many more keys it can take without forgetting one.
    pub(crate) fn room(&self) -> u32 {
        (self.capacity - self.entries.len()) as u32
    }

    /// Where a key is.
    pub(crate) fn find(&self, key: u32) -> Option<u32> {
        let index = self.places[self.place(key)];
        (index != NONE).then_some(index)
    }

    /// The key at a place.
    pub(crate) fn key(&self, index: u32) -> u32 {
        self.entries[index as usize].key
    }

    /// The key that will be forgotten next for a new one.
    pub(crate) fn next_out(&self) -> Option<u32> {
        let full = self.entries.len() == self.capacity && self.free == NONE;
        (full && self.oldest != NONE).then_some(self.oldest)
    }

    /// Marks a place as the last one used.
    pub(crate) fn touch(&mut self, index: u32) {
        self.unlink(index);
        self.link_newest(index);
    }

    /// Takes in a key that is not there, as the last one used. Returns its
    /// place, which was [`Lru::next_out`]'s if there was no other.
    pub(crate) fn insert(&mut self, key: u32) -> u32 {
        let index = if let Some(oldest) = self.next_out() {
            self.unlink(oldest);
            self.forget(self.key(oldest));
            oldest
        } else if self.free != NONE {
            let index = self.free;
            self.free = self.entries[index as usize].older;
            index
        } else {
            self.entries.push(Entry {
                key,
                newer: NONE,
                older: NONE,
            });
            self.entries.len() as u32 - 1
        };
        self.entries[index as usize].key = key;
        let place = self.place(key);
        self.places[place] = index;
        self.link_newest(index);
        index
    }

    /// Forgets a key, if it is there.
    pub(crate) fn remove(&mut self, key: u32) {
        let Some(index) = self.find(key) else {
            return;
        };
        self.unlink(index);
        self.forget(key);
        self.entries[index as usize].older = self.free;
        self.free = index;
    }

    /// Forgets the keys that `goes` says.
    pub(crate) fn remove_if(&mut self, goes: impl Fn(u32) -> bool) {
        let mut index = self.newest;
        while index != NONE {
            let Entry { key, older, .. } = self.entries[index as usize];
            if goes(key) {
                self.remove(key);
            }
            index = older;
        }
    }

    /// At least as many as there are keys: all that there were at once.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
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

    /// Where a key is noted, or the free place where it would be.
    fn place(&self, key: u32) -> usize {
        let mask = self.places.len() - 1;
        let mut place = Self::first_place(key, mask);
        loop {
            let index = self.places[place];
            if index == NONE || self.key(index) == key {
                return place;
            }
            place = (place + 1) & mask;
        }
    }

    fn first_place(key: u32, mask: usize) -> usize {
        ((key as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize & mask
    }

    /// Removes a key's note and moves those up that had to go past it.
    fn forget(&mut self, key: u32) {
        let mask = self.places.len() - 1;
        let mut hole = self.place(key);
        let mut place = hole;
        loop {
            place = (place + 1) & mask;
            let index = self.places[place];
            if index == NONE {
                break;
            }
            let first = Self::first_place(self.key(index), mask);
            // It may move up if its first place is not between hole and place.
            if place.wrapping_sub(first) & mask >= place.wrapping_sub(hole) & mask {
                self.places[hole] = index;
                hole = place;
            }
        }
        self.places[hole] = NONE;
    }
}
