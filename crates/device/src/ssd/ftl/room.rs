//! Whether a plane takes what the host writes, or has to be collected first.

use super::{Ftl, Stream, Victim};
use crate::ssd::ftl::blocks::NO_BLOCK;
use crate::ssd::ftl::slc::Slc;

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
