//! Invariants of the translation layer at rest, for tests.

use alloc::vec;
use alloc::vec::Vec;

use super::{Blocks, CachedMap, Ftl, Located, Slc};
use crate::ssd::ftl::blocks::BlockState;
use crate::ssd::ftl::copies::Holds;

impl Ftl {
    /// The state of all blocks.
    pub(crate) fn blocks(&self) -> &Blocks {
        &self.blocks
    }

    /// The SLC cache.
    pub(crate) fn slc(&self) -> Option<&Slc> {
        self.slc.as_deref()
    }

    /// The map, where only a part of it is in DRAM.
    pub(crate) fn map(&self) -> Option<&CachedMap> {
        self.cached_map.as_deref()
    }

    /// Checks what must be true of a drive at rest: every slot of the
    /// address space is valid in at most one place, and counted there.
    pub(crate) fn check(&self, logical_slots: u64) {
        let mut valid = vec![0u16; self.blocks.valid.len()];
        for slot in 0..logical_slots as u32 {
            if let Located::Flash(at) | Located::Buffered(at) = self.locate(slot) {
                assert_eq!(self.holds(at), Holds::Current(slot), "slot {slot} at {at}");
                valid[(at / self.slots_per_block) as usize] += 1;
            }
            if let Some(at) = self.kept(slot) {
                assert_eq!(self.holds(at), Holds::Kept(slot), "slot {slot} at {at}");
                valid[(at / self.slots_per_block) as usize] += 1;
            }
        }
        assert_eq!(valid, self.blocks.valid, "valid slots of every block");
        self.check_logs();
        for (plane, state) in self.planes.iter().enumerate() {
            let mut free: Vec<u32> = state.free.iter().collect();
            if let Some(slc) = &self.slc {
                free.extend(slc.clone().free_static(plane as u32).iter());
            }
            free.sort_unstable();
            let erased: Vec<u32> = self
                .plane_blocks(plane as u32)
                .filter(|block| self.blocks.states[*block as usize] == BlockState::Free)
                .collect();
            assert_eq!(free, erased, "free blocks of plane {plane}");
            assert!(free.iter().all(|block| valid[*block as usize] == 0));
            assert!(
                free.iter()
                    .all(|block| self.blocks.programmed[*block as usize] == 0)
            );
        }
    }
}
