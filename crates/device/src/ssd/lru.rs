//! A set of keys with a capacity, that evicts the least recently used key for a
//! new one. What belongs to a key is kept by the set's user, by the key's index.

use alloc::vec;
use alloc::vec::Vec;

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
    /// Hash table from a key to its entry, with open addressing.
    buckets: Vec<u32>,
}

impl Lru {
    pub(crate) fn new(capacity: u32) -> Lru {
        Lru {
            entries: Vec::new(),
            capacity: capacity as usize,
            newest: NONE,
            oldest: NONE,
            free: NONE,
            buckets: vec![NONE; (capacity as usize * 2).next_power_of_two()],
        }
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.newest = NONE;
        self.oldest = NONE;
        self.free = NONE;
        self.buckets.fill(NONE);
    }

    /// How many more keys it can take before it evicts one.
    pub(crate) fn room(&self) -> u32 {
        (self.capacity - self.entries.len()) as u32
    }

    /// The index of a key.
    pub(crate) fn find(&self, key: u32) -> Option<u32> {
        let index = self.buckets[self.bucket(key)];
        (index != NONE).then_some(index)
    }

    /// The key at an index.
    pub(crate) fn key(&self, index: u32) -> u32 {
        self.entries[index as usize].key
    }

    /// The index of the key that the next new one evicts; `None` while there is room.
    pub(crate) fn victim(&self) -> Option<u32> {
        let full = self.entries.len() == self.capacity && self.free == NONE;
        (full && self.oldest != NONE).then_some(self.oldest)
    }

    /// Marks the key at an index as the most recently used one.
    pub(crate) fn touch(&mut self, index: u32) {
        self.unlink(index);
        self.link_newest(index);
    }

    /// Takes in a key that is not there as the most recently used one, and evicts
    /// [`Lru::victim`] if there is no room. Returns its index.
    pub(crate) fn insert(&mut self, key: u32) -> u32 {
        let index = if let Some(oldest) = self.victim() {
            self.unlink(oldest);
            self.remove_from_table(self.key(oldest));
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
        let bucket = self.bucket(key);
        self.buckets[bucket] = index;
        self.link_newest(index);
        index
    }

    /// Removes a key, if it is there.
    pub(crate) fn remove(&mut self, key: u32) {
        let Some(index) = self.find(key) else {
            return;
        };
        self.unlink(index);
        self.remove_from_table(key);
        self.entries[index as usize].older = self.free;
        self.free = index;
    }

    /// Removes all keys that `matches`.
    pub(crate) fn remove_if(&mut self, matches: impl Fn(u32) -> bool) {
        let mut index = self.newest;
        while index != NONE {
            let Entry { key, older, .. } = self.entries[index as usize];
            if matches(key) {
                self.remove(key);
            }
            index = older;
        }
    }

    /// The most keys that it has held at one time.
    pub(crate) fn peak_len(&self) -> usize {
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
        let older = core::mem::replace(&mut self.newest, index);
        self.entries[index as usize].newer = NONE;
        self.entries[index as usize].older = older;
        match older {
            NONE => self.oldest = index,
            older => self.entries[older as usize].newer = index,
        }
    }

    /// The bucket of a key, or the free one where it would go.
    fn bucket(&self, key: u32) -> usize {
        let mask = self.buckets.len() - 1;
        let mut bucket = Self::home_bucket(key, mask);
        loop {
            let index = self.buckets[bucket];
            if index == NONE || self.key(index) == key {
                return bucket;
            }
            bucket = (bucket + 1) & mask;
        }
    }

    fn home_bucket(key: u32, mask: usize) -> usize {
        ((key as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize & mask
    }

    /// Removes a key from the hash table and moves up the keys that it displaced.
    fn remove_from_table(&mut self, key: u32) {
        let mask = self.buckets.len() - 1;
        let mut hole = self.bucket(key);
        let mut bucket = hole;
        loop {
            bucket = (bucket + 1) & mask;
            let index = self.buckets[bucket];
            if index == NONE {
                break;
            }
            let home = Self::home_bucket(self.key(index), mask);
            // A key may move up if its home is not between the hole and its bucket.
            if bucket.wrapping_sub(home) & mask >= bucket.wrapping_sub(hole) & mask {
                self.buckets[hole] = index;
                hole = bucket;
            }
        }
        self.buckets[hole] = NONE;
    }
}
