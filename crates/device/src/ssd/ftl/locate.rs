//! Where a slot's data is, whose data is in a place, and slots that hold nothing
//! any more.

use crate::ssd::ftl::Ftl;
use crate::ssd::ftl::blocks::NO_OWNER;
use crate::ssd::ftl::page_map::Place;

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

    /// A slot will be written soon.
    #[inline]
    pub(crate) fn prefetch(&self, slot: u32) {
        self.map.prefetch(slot);
    }

    /// The places of a page that were written, with their owners. What the map
    /// has of these is asked for: whoever takes all owners before looking at any
    /// waits for several entries of a large map no longer than for one.
    #[inline]
    pub(crate) fn owners(&self, block: u32, page: u32) -> impl Iterator<Item = (u32, u32)> {
        let first = self.page_start(block, page);
        (first..first + self.slots_per_page.get()).filter_map(|at| {
            let slot = self.owner(at)?;
            self.map.prefetch(slot);
            Some((at, slot))
        })
    }

    /// Where a slot is whose entry in the map is known.
    #[inline(always)]
    pub(crate) fn locate_in(&self, slot: u32, place: Place) -> Located {
        match place {
            Place::Discarded => Located::Nowhere,
            Place::Initial => self.initial(slot),
            Place::At(at) => {
                let (block, within) = self.slots_per_block.split(at);
                let page = self.slots_per_page.split(within).0;
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
    fn initial(&self, slot: u32) -> Located {
        match self.start.place(&self.placement, slot) {
            Some(at) => Located::Flash(at),
            None => Located::Nowhere,
        }
    }

    /// Where a slot would be had the drive been written once in order.
    #[inline(always)]
    pub(crate) fn home_of(&self, slot: u32) -> u32 {
        let (page, in_page) = self.slots_per_page.split(slot);
        self.start.in_order(self.placement.home(page), in_page)
    }

    /// The plane that a write of `slot` goes to.
    #[inline]
    pub(crate) fn target(&self, slot: u32) -> u32 {
        self.placement.home(self.slots_per_page.split(slot).0).plane
    }

    /// The slot whose data was last put in a physical place.
    pub(crate) fn owner(&self, at: u32) -> Option<u32> {
        let (block, within) = self.slots_per_block.split(at);
        match self.blocks.owner(block, within) {
            // It was being written at the start, and has not been erased since.
            Some(NO_OWNER) if self.blocks.erases[block as usize] == 0 => {
                self.start.owner(&self.placement, at)
            }
            Some(NO_OWNER) => None,
            Some(slot) => Some(slot),
            None => self.start.owner(&self.placement, at),
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
