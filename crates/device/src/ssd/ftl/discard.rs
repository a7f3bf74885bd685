//! Slots that hold nothing any more.

use crate::ssd::ftl::Ftl;

impl Ftl {
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
