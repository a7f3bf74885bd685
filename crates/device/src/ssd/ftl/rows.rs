//! Planes of a die filled in step.
//!
//! ONFI's multi-plane commands program the same page of every plane. Planes
//! that each went their own way would be at unrelated pages and work alone, so
//! firmware fills the blocks of a die's planes as one *row*: page by page over
//! all planes, the host's data in one row and what collection moves in another.
//! Any slot of the die's goes to the plane whose turn it is.
//!
//! Where planes are not kept in step, a row is one plane.
//!
//! Real firmware collects such a row as a whole, so it does not matter there
//! which plane has what. Here each plane chooses its own victims and needs
//! blocks of its own that are worth collecting. If every page of the row began
//! with the same plane, a host that writes in a rhythm (each unit in two halves,
//! or a page of a log before each page of data) would leave one plane with all
//! that is dead and the other with all that is not. So the plane that a page of
//! the row begins with changes (see [`first_place`]).

use std::ops::Range;

use super::{Ftl, Stream, Victim};
use crate::ssd::flash::transaction::NONE;
use crate::ssd::ftl::blocks::NO_BLOCK;
use crate::ssd::ftl::slc::Slc;

/// Which plane of a row a page begins with: as the multiples of the golden ratio
/// have it, whose fractions are evenly spread along every arithmetic progression
/// (Weyl, Mathematische Annalen 77, 1916). So no rhythm of the host's keeps to one
/// plane.
#[inline]
pub(crate) fn first_place(page: u32, planes: u32) -> u32 {
    // 2^32 parts of the golden ratio.
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

    /// The plane of a row that takes a stream's next slot: the one whose page
    /// is being filled, else the one that is least far.
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
        // One without a block has filled it already, or not begun to.
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

    /// The plane of a row that takes the next slot that collection moves: the
    /// one whose turn it is unless it has no block left. (Then another one has:
    /// see [`Ftl::most_to_move`].)
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

    /// Free blocks of a plane that no job under way takes for itself.
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

    /// Whether the row of a plane has a free block beyond the reserve, and one
    /// for every job that takes room there and gives none back.
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

    /// Slots that collection may still write in a row without the host's
    /// blocks, less those that jobs under way may still use up.
    ///
    /// That is never less than a block in a row where no job is under way, so
    /// that its least valid block can always be collected: the host opens a
    /// block only where the reserve is whole, and a job uses up less than the
    /// block that it gives back.
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

    /// Slots of a plane's block for what collection moves that are not handed
    /// out yet.
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

    /// A plane's collection begins to move a block within its row.
    pub(super) fn reserve_room(&mut self, plane: u32, block: u32) {
        // Jobs of a row share pages, and one that ends may leave a page partly
        // empty that others have counted on.
        let lost = match self.has_rows() {
            true => self.slots_per_page() - 1,
            false => 0,
        };
        let frees_no_block = self.is_static_slc(block);
        let state = &mut self.planes[plane as usize];
        state.reserved_slots = self.blocks.valid[block as usize] as u32 + lost;
        state.frees_no_block = frees_no_block;
    }

    /// It has moved one of them.
    pub(super) fn use_reserved_slot(&mut self, plane: u32) {
        let reserved_slots = &mut self.planes[plane as usize].reserved_slots;
        *reserved_slots = reserved_slots.saturating_sub(1);
    }

    /// It is over.
    pub(super) fn release_room(&mut self, plane: u32) {
        let state = &mut self.planes[plane as usize];
        (state.reserved_slots, state.frees_no_block) = (0, false);
    }
}

/// Whether a plane takes what the host writes, or has to be collected first.
impl Ftl {
    /// The stream that has room for a slot of the host's in a plane; `None` where
    /// the host has to wait for a free block.
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

    /// Whether the host waits for room in the SLC cache of a plane where there
    /// is none.
    pub(crate) fn waits_for_cache(&self, plane: u32) -> bool {
        self.slc.as_ref().is_some_and(|slc| slc.waits(plane))
    }

    /// Whether a plane's writes will wait for room in the SLC cache once the block
    /// that they go to is full.
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

    /// Slots free in a plane, with what has been gained of the block being
    /// emptied.
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

    /// What a collection has gained of its block, by what is left to be moved.
    fn gained(&self, victim: Victim) -> u32 {
        if self.is_static_slc(victim.block) {
            return 0;
        }
        let left = self.blocks.valid[victim.block as usize] as u64;
        let all = u64::from(victim.had).max(left).max(1);
        (self.slots_per_block() as u64 * (all - left) / all) as u32
    }
}
