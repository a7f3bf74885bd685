//! Where collection and wear levelling move data.
//!
//! Document 002, section 2.1.5, describes drives that move data only within a chip,
//! so that an address never leaves its chip; others move it anywhere. A plane's
//! collection writes to that plane unless another in its scope has more free
//! blocks. One collection at a time writes to a plane.
//!
//! *Dynamic* wear levelling writes to the least worn free block. *Static* wear
//! levelling moves cold data out of the least worn blocks into the most worn free
//! ones, so that all blocks take part, as in the dual-pool algorithm (Chang, "On
//! efficient wear leveling for large-scale flash-memory storage systems", SAC
//! 2007); instead of pools, a difference of erase counts starts a move here.

use crate::ssd::flash::transaction::NONE;
use crate::ssd::ftl::copies::Holds;
use crate::ssd::ftl::{Ftl, Stream, Victim};
use crate::ssd::spec::GcScope;

impl Ftl {
    /// The plane that a collection of `plane` should write to; `None` while
    /// there is none.
    pub(crate) fn destination(&self, plane: u32) -> Option<u32> {
        let own = &self.planes[plane as usize];
        let scope = match self.gc.scope {
            GcScope::Plane => plane..plane + 1,
            GcScope::Chip => {
                let first = plane / self.planes_per_package * self.planes_per_package;
                first..first + self.planes_per_package
            }
            GcScope::Drive => 0..self.plane_count(),
        };
        // At least two more free blocks, so that moving a block there evens the planes out
        // instead of being undone.
        let is_better = |other: &u32| {
            let other = &self.planes[*other as usize];
            other.collector == NONE && other.free.len() >= own.free.len() + 2
        };
        let emptiest = scope
            .filter(|other| *other != plane && is_better(other) && self.has_spare_block(*other))
            .max_by_key(|other| (self.planes[*other as usize].free.len(), NONE - other));
        emptiest.or((own.collector == NONE).then_some(plane))
    }

    /// The most valid slots that a victim may have.
    ///
    /// A collection may leave its last page partly empty, so a victim must have at
    /// least a page's worth of invalid slots: otherwise it frees no more than it
    /// takes, and collection never ends. Its valid slots must also fit in the room
    /// that the row has for collection, beside what other collections of the row move;
    /// losses of power during collections can have used some of that room up. Another
    /// plane has a spare block, which takes any victim.
    pub(crate) fn most_to_move(&self, plane: u32, to: u32) -> u32 {
        if to != plane {
            return self.slots_per_block();
        }
        self.room_in_row(plane)
            .min(self.slots_per_block() - self.slots_per_page())
    }

    /// Begins the collection of a block of `plane` into the plane `to`.
    pub(crate) fn begin_collection(
        &mut self,
        plane: u32,
        block: u32,
        (to, stream): (u32, Stream),
    ) -> Victim {
        let initially_valid = self.valid(block);
        self.take_victim(block);
        let state = &mut self.planes[to as usize];
        state.collector = plane;
        // Wear levelling and moves to another plane open a block of their own.
        state.reserved_blocks = (to != plane || stream == Stream::Wear) as u32;
        if stream == Stream::Collection && to == plane {
            self.reserve_room(plane, block);
        }
        Victim {
            plane,
            block,
            initially_valid,
        }
    }

    /// Moves the valid copy in a physical slot of a victim to the next free one. Returns
    /// the record of the page that it is in now, and the logical slot if it is the
    /// current copy. `None` where the physical slot holds nothing valid.
    #[inline]
    pub(crate) fn move_slot(
        &mut self,
        plane: u32,
        (to, stream): (u32, Stream),
        (at, slot): (u32, u32),
    ) -> Option<(u32, Option<u32>)> {
        let holds = self.holds_of(at, slot);
        let to = self.collection_plane(to, stream);
        let moved = match holds {
            Holds::Nothing => return None,
            Holds::Current(slot) => (self.write(to, slot, stream, 0), Some(slot)),
            Holds::Kept(slot) => (self.write_kept(to, slot, stream, at), None),
        };
        self.use_reserved_slot(plane);
        Some(moved)
    }

    /// Ends a collection whose block is erased.
    pub(crate) fn end_collection(&mut self, plane: u32, block: u32, to: u32) {
        self.leave_destination(plane, to);
        self.erased(plane, block);
    }

    /// Abandons a collection: its block is full as before.
    pub(crate) fn abandon_collection(&mut self, plane: u32, block: u32, to: u32) {
        self.leave_destination(plane, to);
        self.put_back(plane, block);
    }

    fn leave_destination(&mut self, plane: u32, to: u32) {
        let state = &mut self.planes[to as usize];
        state.collector = NONE;
        state.reserved_blocks = 0;
        self.release_room(plane);
    }

    /// The block that static wear levelling should empty in a plane now: the least worn
    /// one, if the free block that takes its data has been erased enough more often.
    pub(crate) fn cold_block(&self, plane: u32) -> Option<u32> {
        let spread = self.wear.static_spread?;
        if self.planes[plane as usize].collector != NONE || !self.has_spare_block(plane) {
            return None;
        }
        let erases = |block: &u32| self.blocks.erases[*block as usize];
        let free = &self.planes[plane as usize].free;
        let worn = free.most_wear(&self.blocks.erases)?;
        let coldest = self
            .plane_blocks(plane)
            .filter(|block| self.is_written(*block) && !self.is_static_slc(*block))
            .min_by_key(erases)?;
        (worn > erases(&coldest) + spread).then_some(coldest)
    }
}
