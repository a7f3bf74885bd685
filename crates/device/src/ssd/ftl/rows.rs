//! Planes of a die filled in step.
//!
//! ONFI's multi-plane commands program the same page of every plane. Planes that
//! were filled independently would be at unrelated pages and could not be programmed
//! together, so firmware fills the blocks of a die's planes as one *row*: page by
//! page over all planes, host data in one row and data that collection moves in
//! another. Any slot of the die goes to the plane whose turn it is.
//!
//! Where planes are not kept in step, a row is one plane.
//!
//! Real firmware collects such a row as a whole. Here each plane chooses its own
//! victims, so each needs blocks that are worth collecting. If every page of the
//! row began with the same plane, a host with a regular pattern (each unit in two
//! halves, or a log page before each data page) would leave one plane with all
//! invalid data and the other with none. So the plane that a page of the row begins
//! with varies (see [`first_place`]).

use core::ops::Range;

use super::{Ftl, Stream, Victim};
use crate::ssd::flash::transaction::NONE;
use crate::ssd::ftl::blocks::NO_BLOCK;
use crate::ssd::ftl::slc::Slc;

/// Which plane of a row a page begins with: by the fractional part of a multiple of
/// the golden ratio, since these are evenly distributed along every arithmetic
/// progression (Weyl, Mathematische Annalen 77, 1916), so that no regular pattern of
/// writes favours one plane.
#[inline]
pub(crate) fn first_place(page: u32, planes: u32) -> u32 {
    // The fractional part of the golden ratio in units of 2^-32.
    let fraction = page.wrapping_mul(0x9e37_79b9);
    ((u64::from(fraction) * u64::from(planes)) >> 32) as u32
}

impl Ftl {
    /// The planes that are filled in step with a plane.
    #[inline]
    pub(crate) fn row_of(&self, plane: u32) -> Range<u32> {
        let first = plane - plane % self.planes_per_row;
        first..first + self.planes_per_row.get()
    }

    /// Whether planes are filled in step.
    #[inline]
    pub(crate) fn has_rows(&self) -> bool {
        self.planes_per_row.get() > 1
    }

    /// The plane of a row that takes a stream's next slot: the one whose page is being
    /// filled, else the one that is least far in its block.
    #[inline]
    pub(crate) fn in_turn(&self, plane: u32, stream: Stream) -> u32 {
        if !self.has_rows() {
            return plane;
        }
        let frontier = |plane: u32| &self.planes[plane as usize].frontiers[stream.index()];
        let is_filling = |plane: &u32| {
            let record = frontier(*plane).record;
            record != NONE && !self.is_full(record)
        };
        // Most slots go to the one page that is being filled.
        let mut filling = self.row_of(plane).filter(is_filling);
        if let (Some(only), None) = (filling.next(), filling.next()) {
            return only;
        }
        let is_open = |plane: &u32| frontier(*plane).block != NO_BLOCK;
        let open = self.row_of(plane).filter(is_open);
        let farthest = open.map(|plane| frontier(plane).page).max().unwrap_or(0);
        // A plane without an open block has filled it already, or not begun it: it has
        // filled it if the others are past the middle.
        let pages = self.pages_for(stream);
        let closed = match farthest * 2 > pages {
            true => pages,
            false => 0,
        };
        let progress = |plane: &u32| match (frontier(*plane).record, is_open(plane)) {
            (NONE, false) => closed + 1,
            (NONE, true) => frontier(*plane).page + 1,
            (record, _) if self.is_full(record) => frontier(*plane).page + 2,
            _ => 0,
        };
        let row = self.row_of(plane);
        let first = row.start;
        let planes = self.planes_per_row.get();
        let turn = |plane: &u32| {
            let begins = first_place(frontier(*plane).page, planes);
            (plane - first + planes - begins) % planes
        };
        row.min_by_key(|plane| (progress(plane), turn(plane)))
            .unwrap_or(plane)
    }

    /// The plane of a row that takes the next slot that collection moves: the one whose
    /// turn it is, or another if that has no block left (see [`Ftl::most_to_move`]).
    pub(crate) fn collection_plane(&self, plane: u32, stream: Stream) -> u32 {
        if !self.has_rows() || stream != Stream::Collection {
            return plane;
        }
        let in_turn = self.in_turn(plane, stream);
        let has_place =
            |plane: &u32| self.is_open(*plane, stream) || self.unreserved_blocks(*plane) > 0;
        match has_place(&in_turn) {
            true => in_turn,
            false => self.row_of(plane).find(has_place).unwrap_or(in_turn),
        }
    }

    /// Free blocks of a plane that are not reserved for a collection in progress.
    #[inline]
    fn unreserved_blocks(&self, plane: u32) -> u32 {
        let state = &self.planes[plane as usize];
        (state.free.len() as u32).saturating_sub(state.reserved_blocks)
    }

    /// Whether the plane has a free block beyond the reserve.
    #[inline]
    pub(crate) fn has_spare_block(&self, plane: u32) -> bool {
        self.unreserved_blocks(plane) > self.gc.reserve_blocks
            && (self.slc.is_none() || self.row_has_spare(plane))
    }

    /// Whether the row of a plane has a free block beyond the reserve, and beyond one for
    /// every collection there that frees no ordinary block.
    pub(crate) fn row_has_spare(&self, plane: u32) -> bool {
        let row = self.row_of(plane);
        let taken = row
            .clone()
            .filter(|plane| self.planes[*plane as usize].frees_no_block);
        let spare = |plane| {
            self.unreserved_blocks(plane)
                .saturating_sub(self.gc.reserve_blocks)
        };
        let taken = taken.count() as u32;
        row.map(spare).sum::<u32>() > taken
    }

    /// Slots that collection may still write in a row without taking blocks from the
    /// host, less those that collections in progress may still need.
    ///
    /// In a row without collections in progress that is at least a block, so that its
    /// least valid block can always be collected: the host opens a block only where
    /// the reserve is complete, and a collection writes less than the block that it
    /// frees.
    pub(crate) fn room_in_row(&self, plane: u32) -> u32 {
        let row = self.row_of(plane);
        let of_plane = |plane: u32| {
            let reserve = self.unreserved_blocks(plane).min(self.gc.reserve_blocks);
            self.left_to_collection(plane) + reserve * self.slots_per_block()
        };
        let reserved_slots: u32 = row
            .clone()
            .map(|plane| self.planes[plane as usize].reserved_slots)
            .sum();
        let room: u32 = row.map(of_plane).sum();
        room.saturating_sub(reserved_slots)
    }

    /// Slots of a plane's open block for collection that are not allocated yet.
    fn left_to_collection(&self, plane: u32) -> u32 {
        if !self.is_open(plane, Stream::Collection) {
            return 0;
        }
        let frontier = &self.planes[plane as usize].frontiers[Stream::Collection.index()];
        let begun = match frontier.record {
            NONE => 0,
            record => self.records[record].slots,
        };
        (self.pages_per_block - frontier.page) * self.slots_per_page() - begun
    }

    /// Reserves the slots that a plane's collection of a block will write within its row.
    pub(super) fn reserve_room(&mut self, plane: u32, block: u32) {
        // Collections of a row share pages, and one that ends may leave a page partly
        // empty whose rest others counted on.
        let lost = match self.has_rows() {
            true => self.slots_per_page() - 1,
            false => 0,
        };
        let frees_no_block = self.is_static_slc(block);
        let state = &mut self.planes[plane as usize];
        state.reserved_slots = self.blocks.valid[block as usize] as u32 + lost;
        state.frees_no_block = frees_no_block;
    }

    /// The collection has written one of its reserved slots.
    pub(super) fn use_reserved_slot(&mut self, plane: u32) {
        let reserved_slots = &mut self.planes[plane as usize].reserved_slots;
        *reserved_slots = reserved_slots.saturating_sub(1);
    }

    /// The collection has ended: nothing is reserved any more.
    pub(super) fn release_room(&mut self, plane: u32) {
        let state = &mut self.planes[plane as usize];
        (state.reserved_slots, state.frees_no_block) = (0, false);
    }
}

/// Whether a plane has room for host writes, or has to be collected first.
impl Ftl {
    /// The stream that has room for a host slot in a plane; `None` where the host has to
    /// wait for a free block.
    #[inline]
    pub(crate) fn stream_with_room(&self, plane: u32) -> Option<Stream> {
        if self.slc.is_some() {
            if self.takes_cached(plane) {
                return Some(Stream::Slc);
            }
            if self.waits_for_cache(plane) {
                return None;
            }
        }
        self.has_room_for_host(plane).then_some(Stream::Host)
    }

    /// Whether the SLC cache takes a slot in a plane now.
    pub(crate) fn takes_cached(&self, plane: u32) -> bool {
        self.is_open(plane, Stream::Slc) || self.can_open_cached(plane)
    }

    /// Whether the SLC cache has room for another block of a plane.
    fn can_open_cached(&self, plane: u32) -> bool {
        let free = match self.has_spare_block(plane) {
            true => self.planes[plane as usize].free.len(),
            false => 0,
        };
        let has_room = |slc: &Slc| slc.has_room(plane, free);
        self.slc.as_deref().is_some_and(has_room)
    }

    /// Whether the host waits for room in a plane's SLC cache while that is full.
    pub(crate) fn waits_for_cache(&self, plane: u32) -> bool {
        self.slc.as_ref().is_some_and(|slc| slc.waits(plane))
    }

    /// Whether writes to a plane will wait for room in the SLC cache once its open block
    /// there is full.
    pub(crate) fn fills_last_of_cache(&self, plane: u32) -> bool {
        self.waits_for_cache(plane) && !self.can_open_cached(plane)
    }

    /// Whether a plane has room for a slot past the SLC cache.
    #[inline]
    pub(crate) fn has_room_for_host(&self, plane: u32) -> bool {
        self.is_open(plane, Stream::Host) || self.has_spare_block(plane)
    }

    /// Whether a stream has a block that it is writing in a plane.
    #[inline]
    pub(crate) fn is_open(&self, plane: u32, stream: Stream) -> bool {
        self.planes[plane as usize].frontiers[stream.index()].block != NO_BLOCK
    }

    /// Whether the plane should be collected.
    #[inline]
    pub(crate) fn wants_collection(&self, plane: u32) -> bool {
        self.free_blocks(plane) < self.gc.start_blocks
    }

    /// Erased blocks of a plane.
    #[inline]
    pub(crate) fn free_blocks(&self, plane: u32) -> u32 {
        self.planes[plane as usize].free.len() as u32
    }

    /// Free slots of a plane, including what the collection of its victim has gained so
    /// far.
    pub(crate) fn room(&self, plane: u32, victim: Option<Victim>) -> u32 {
        self.free_slots(plane) + victim.map_or(0, |victim| self.gained(victim))
    }

    /// Slots of a plane that can be written without an erase.
    fn free_slots(&self, plane: u32) -> u32 {
        let state = &self.planes[plane as usize];
        let left = |stream: Stream| {
            let frontier = &state.frontiers[stream.index()];
            match self.is_open(plane, stream) {
                true => (self.pages_per_block - frontier.page) * self.slots_per_page(),
                false => 0,
            }
        };
        let open: u32 = [Stream::Host, Stream::Collection]
            .into_iter()
            .map(left)
            .sum();
        state.free.len() as u32 * self.slots_per_block() + open
    }

    /// Slots that a collection has gained so far: its block's, by the share of valid slots
    /// that has been moved.
    fn gained(&self, victim: Victim) -> u32 {
        if self.is_static_slc(victim.block) {
            return 0;
        }
        let left = self.blocks.valid[victim.block as usize] as u64;
        let all = u64::from(victim.initially_valid).max(left).max(1);
        (self.slots_per_block() as u64 * (all - left) / all) as u32
    }
}

#[cfg(test)]
mod tests {
    use crate::ssd::Ssd;
    use crate::ssd::tests::{FEWER_BLOCKS, PAGES_16K, small};

    /// A collection may write all valid slots of its block, and in a row may leave all but one slot
    /// of its last page empty, on which others counted. Its room is free again at its end.
    #[test]
    fn a_collection_reserves_what_it_may_write_or_leave_empty() {
        for (multi_plane, left_empty) in [("same_page", 3), ("none", 0)] {
            let multi_plane = format!("multi_plane = \"{multi_plane}\"");
            let rows = ("multi_plane = \"any\"", multi_plane.as_str());
            let mut drive = Ssd::new(small(&[PAGES_16K, FEWER_BLOCKS, rows]), 1);
            let ftl = &mut drive.controller.media.ftl;
            assert_eq!(ftl.has_rows(), left_empty > 0);
            for plane in 0..4 {
                let block = ftl.plane_blocks(plane).start;
                ftl.blocks.valid[block as usize] = 100;
                let valid = 100;
                let room = ftl.room_in_row(plane);
                assert!(room > valid + left_empty);
                ftl.reserve_room(plane, block);
                assert_eq!(ftl.room_in_row(plane), room - valid - left_empty);
                // Each slot that it writes takes a place, and its reservation with it.
                ftl.use_reserved_slot(plane);
                assert_eq!(ftl.room_in_row(plane), room - valid - left_empty + 1);
                ftl.release_room(plane);
                assert_eq!(ftl.room_in_row(plane), room);
            }
        }
    }
}
