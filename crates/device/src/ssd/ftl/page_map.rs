//! The page map: the table from logical to physical map units ("slots").
//!
//! A drive of 16 TB has 4 billion entries, of which a run touches few. So the
//! table holds only what differs from the state at the start, in regions: a region
//! without writes costs nothing, one with few is a small hash table, and one with
//! many is an array.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use branches::prefetch_read_data;
use strength_reduce::StrengthReducedU32;

use crate::ssd::ftl::Ftl;
use crate::ssd::ftl::blocks::NO_OWNER;

/// Binary logarithm of the fewest slots of a region.
const LEAST_REGION_BITS: u32 = 12;
/// Binary logarithm of the most regions: a first-level cache holds that many, and every
/// look-up needs one.
const MOST_REGIONS_BITS: u32 = 10;
/// The cache level that an entry is prefetched into: the first.
const FIRST_CACHE: i32 = 0;

/// An array's entry that nobody wrote to.
const UNTOUCHED: u32 = u32::MAX;
/// An entry that was discarded.
const DISCARDED: u32 = u32::MAX - 1;

/// Where a logical slot is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MapEntry {
    /// Where the state at the start put it.
    Initial,
    /// Nowhere: discarded.
    Discarded,
    /// In this physical slot.
    At(u32),
}

#[derive(Clone, Debug)]
enum Region {
    Untouched,
    Discarded,
    Few(Few),
    Many(Box<[u32]>),
}

/// An open-addressing table from a slot within its region to an entry.
#[derive(Clone, Debug)]
struct Few {
    /// `key + 1` in the upper half, the entry in the lower; zero is a free place.
    places: Box<[u64]>,
    /// The entry of all keys that are not in the table.
    base: u32,
    used: u32,
}

/// The table.
#[derive(Clone, Debug)]
pub(crate) struct Map {
    regions: Vec<Region>,
    region_bits: u32,
}

impl Map {
    pub(crate) fn new(slots: u64) -> Map {
        let slot_bits = slots.next_power_of_two().trailing_zeros();
        let region_bits = LEAST_REGION_BITS.max(slot_bits.saturating_sub(MOST_REGIONS_BITS));
        Map {
            regions: vec![Region::Untouched; slots.div_ceil(1 << region_bits) as usize],
            region_bits,
        }
    }

    /// Slots of a region.
    #[inline]
    fn region_slots(&self) -> u32 {
        1 << self.region_bits
    }

    #[inline(always)]
    pub(crate) fn get(&self, slot: u32) -> MapEntry {
        let within = slot & (self.region_slots() - 1);
        let entry = match &self.regions[(slot >> self.region_bits) as usize] {
            Region::Untouched => UNTOUCHED,
            Region::Discarded => DISCARDED,
            Region::Few(few) => few.get(within),
            Region::Many(entries) => entries[within as usize],
        };
        match entry {
            UNTOUCHED => MapEntry::Initial,
            DISCARDED => MapEntry::Discarded,
            at => MapEntry::At(at),
        }
    }

    /// Has the processor prefetch a slot's entry: in a large map nothing else about a write
    /// takes as long.
    #[inline]
    pub(crate) fn prefetch(&self, slot: u32) {
        let within = slot & (self.region_slots() - 1);
        match &self.regions[(slot >> self.region_bits) as usize] {
            Region::Untouched | Region::Discarded => {}
            Region::Few(few) => prefetch_read_data::<_, FIRST_CACHE>(few.hashed(within)),
            Region::Many(entries) => {
                prefetch_read_data::<_, FIRST_CACHE>(&entries[within as usize])
            }
        }
    }

    /// Moves a slot to a physical place.
    #[inline]
    pub(crate) fn set(&mut self, slot: u32, at: u32) {
        self.put(slot, at);
    }

    /// Marks one slot discarded.
    pub(crate) fn discard(&mut self, slot: u32) {
        self.put(slot, DISCARDED);
        let last = self.region_slots() - 1;
        let region = &mut self.regions[(slot >> self.region_bits) as usize];
        // Discards go upwards, so a region that is discarded in parts is checked when its
        // last slot is.
        if slot & last == last
            && let Region::Many(entries) = region
            && entries.iter().all(|entry| *entry == DISCARDED)
        {
            *region = Region::Discarded;
        }
    }

    /// Whether a region starts at `slot` and ends by `end`.
    pub(crate) fn is_region(&self, slot: u32, end: u64) -> bool {
        slot.is_multiple_of(self.region_slots()) && self.region_end(slot) <= end
    }

    /// Where the region that starts at `slot` ends.
    pub(crate) fn region_end(&self, slot: u32) -> u64 {
        slot as u64 + self.region_slots() as u64
    }

    /// Marks the region that starts at `slot` discarded as a whole.
    pub(crate) fn discard_region(&mut self, slot: u32) {
        self.regions[(slot >> self.region_bits) as usize] = Region::Discarded;
    }

    fn put(&mut self, slot: u32, entry: u32) {
        let slots = self.region_slots();
        let within = slot & (slots - 1);
        let region = &mut self.regions[(slot >> self.region_bits) as usize];
        match region {
            Region::Many(entries) => entries[within as usize] = entry,
            // Beyond that the hash table would be as large as the array.
            Region::Few(few) if few.used < slots / 16 * 3 => few.put(within, entry),
            Region::Few(few) => {
                let mut entries = few.spread(slots);
                entries[within as usize] = entry;
                *region = Region::Many(entries);
            }
            Region::Untouched | Region::Discarded => {
                let base = match region {
                    Region::Discarded => DISCARDED,
                    _ => UNTOUCHED,
                };
                let mut few = Few::new(8, base);
                few.put(within, entry);
                *region = Region::Few(few);
            }
        }
    }
}

impl Few {
    fn new(places: usize, base: u32) -> Few {
        Few {
            base,
            places: vec![0; places].into_boxed_slice(),
            used: 0,
        }
    }

    /// The first place to look for a key. A multiplicative hash spreads neighbouring
    /// slots, which are often written together.
    #[inline]
    fn hash(&self, key: u32) -> usize {
        let hash = (key as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        hash as usize & (self.places.len() - 1)
    }

    #[inline]
    fn hashed(&self, key: u32) -> &u64 {
        &self.places[self.hash(key)]
    }

    /// The place of a key, or the free place where it would go.
    #[inline]
    fn place(&self, key: u32) -> usize {
        let mask = self.places.len() - 1;
        let mut place = self.hash(key);
        loop {
            let found = (self.places[place] >> 32) as u32;
            if found == 0 || found == key + 1 {
                return place;
            }
            place = (place + 1) & mask;
        }
    }

    #[inline]
    fn get(&self, key: u32) -> u32 {
        match self.places[self.place(key)] {
            0 => self.base,
            found => found as u32,
        }
    }

    fn put(&mut self, key: u32, entry: u32) {
        if (self.used as usize + 1) * 4 > self.places.len() * 3 {
            let mut larger = Few::new(self.places.len() * 2, self.base);
            for found in self.places.iter().filter(|found| **found != 0) {
                let place = larger.place((found >> 32) as u32 - 1);
                larger.places[place] = *found;
            }
            self.places = larger.places;
        }
        let place = self.place(key);
        self.used += (self.places[place] == 0) as u32;
        self.places[place] = (key as u64 + 1) << 32 | entry as u64;
    }

    fn spread(&self, slots: u32) -> Box<[u32]> {
        let mut entries = vec![self.base; slots as usize].into_boxed_slice();
        for found in self.places.iter().filter(|found| **found != 0) {
            entries[(found >> 32) as usize - 1] = *found as u32;
        }
        entries
    }
}

/// Where a logical slot's data is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Located {
    /// Never written, or discarded.
    Nowhere,
    /// In DRAM, on its way to this physical slot.
    Buffered(u32),
    /// In this physical slot.
    Flash(u32),
}

impl Ftl {
    /// Where a slot is.
    #[inline]
    pub(crate) fn locate(&self, slot: u32) -> Located {
        self.locate_in(slot, self.map.get(slot))
    }

    /// Prefetches the entry of a slot that will be written soon.
    #[inline]
    pub(crate) fn prefetch(&self, slot: u32) {
        self.map.prefetch(slot);
    }

    /// The physical slots of a page that were written, with their logical slots. Their map
    /// entries are prefetched: a caller that takes all of them before it looks any up
    /// waits for several cache misses no longer than for one.
    #[inline]
    pub(crate) fn owners(&self, block: u32, page: u32) -> impl Iterator<Item = (u32, u32)> {
        let first = self.page_start(block, page);
        (first..first + self.slots_per_page.get()).filter_map(|at| {
            let slot = self.owner(at)?;
            self.map.prefetch(slot);
            Some((at, slot))
        })
    }

    /// Where a slot is, by its map entry `place`.
    #[inline(always)]
    pub(crate) fn locate_in(&self, slot: u32, place: MapEntry) -> Located {
        match place {
            MapEntry::Discarded => Located::Nowhere,
            MapEntry::Initial => self.locate_initial(slot),
            MapEntry::At(at) => {
                let (block, within) = StrengthReducedU32::div_rem(at, self.slots_per_block);
                let page = within / self.slots_per_page;
                if page < self.blocks.programmed[block as usize] as u32 {
                    Located::Flash(at)
                } else {
                    Located::Buffered(at)
                }
            }
        }
    }

    /// Where the state at the start has a slot.
    #[inline]
    fn locate_initial(&self, slot: u32) -> Located {
        match self.initial.place(&self.placement, slot) {
            Some(at) => Located::Flash(at),
            None => Located::Nowhere,
        }
    }

    /// Where a slot would be had the drive been written once in order.
    #[inline(always)]
    pub(crate) fn home_of(&self, slot: u32) -> u32 {
        let (page, in_page) = StrengthReducedU32::div_rem(slot, self.slots_per_page);
        self.initial.in_order(self.placement.home(page), in_page)
    }

    /// The plane that a write of `slot` goes to.
    #[inline]
    pub(crate) fn target(&self, slot: u32) -> u32 {
        self.placement.home(slot / self.slots_per_page).plane
    }

    /// The slot whose data was last put in a physical place.
    pub(crate) fn owner(&self, at: u32) -> Option<u32> {
        let (block, within) = StrengthReducedU32::div_rem(at, self.slots_per_block);
        match self.blocks.owner(block, within) {
            // The block was open at the start, and has not been erased since.
            Some(NO_OWNER) if self.blocks.erases[block as usize] == 0 => {
                self.initial.owner(&self.placement, at)
            }
            Some(NO_OWNER) => None,
            Some(slot) => Some(slot),
            None => self.initial.owner(&self.placement, at),
        }
    }

    /// Discards slots from `start` up to `end`.
    pub(crate) fn discard(&mut self, start: u32, end: u64) {
        let mut slot = start as u64;
        while slot < end {
            match self.discardable_region(slot as u32, end) {
                Some(region_end) => slot = region_end,
                None => {
                    self.invalidate(slot as u32);
                    self.map.discard(slot as u32);
                    slot += 1;
                }
            }
        }
    }

    fn discardable_region(&mut self, slot: u32, end: u64) -> Option<u64> {
        if !self.map.is_region(slot, end) {
            return None;
        }
        let region_end = self.map.region_end(slot);
        for slot in slot as u64..region_end {
            self.invalidate(slot as u32);
        }
        self.map.discard_region(slot);
        Some(region_end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_region_discarded_in_parts_is_so_as_a_whole() {
        let mut map = Map::new(12_000);
        map.set(7, 1);
        (0..map.region_slots()).for_each(|slot| map.discard(slot));
        assert!(matches!(map.regions[0], Region::Discarded));
        map.prefetch(7);
        assert_eq!(map.get(7), MapEntry::Discarded);
        map.set(7, 2);
        map.prefetch(7);
        assert_eq!(
            (map.get(6), map.get(7)),
            (MapEntry::Discarded, MapEntry::At(2))
        );
    }

    proptest! {
        #[test]
        fn it_is_a_map(
            writes in prop::collection::vec((0u32..12_000, 0u32..1000, 0u8..40), 0..6000),
        ) {
            let mut map = Map::new(12_000);
            let region = map.region_slots();
            let mut plain: BTreeMap<u32, MapEntry> = BTreeMap::new();
            for (slot, at, kind) in writes {
                match kind {
                    0 => {
                        let start = slot / region * region;
                        if map.is_region(start, 12_000) {
                            map.discard_region(start);
                            (start..start + region).for_each(|s| { plain.insert(s, MapEntry::Discarded); });
                        }
                    }
                    1..=9 => {
                        map.discard(slot);
                        plain.insert(slot, MapEntry::Discarded);
                    }
                    _ => {
                        map.set(slot, at);
                        plain.insert(slot, MapEntry::At(at));
                    }
                }
            }
            for slot in 0..12_000 {
                prop_assert_eq!(map.get(slot), plain.get(&slot).copied().unwrap_or(MapEntry::Initial));
            }
        }
    }
}
