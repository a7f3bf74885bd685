//! Whether a plane takes what the host writes, or has to be collected first.

use crate::ssd::ftl::blocks::NO_BLOCK;
use crate::ssd::ftl::slc::Slc;
use crate::ssd::ftl::{Ftl, Stream};

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
    pub(in crate::ssd) fn takes_cached(&self, plane: u32) -> bool {
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
    pub(in crate::ssd) fn waits_for_cache(&self, plane: u32) -> bool {
        self.slc.as_ref().is_some_and(|slc| slc.waits(plane))
    }

    /// Whether a plane's writes will wait for room in the SLC cache once the block
    /// that they go to is full.
    pub(in crate::ssd) fn fills_last_of_cache(&self, plane: u32) -> bool {
        self.waits_for_cache(plane) && !self.can_open_cached(plane)
    }

    /// Whether a plane has room for a slot past the SLC cache.
    #[inline]
    pub(in crate::ssd) fn has_room_for_host(&self, plane: u32) -> bool {
        self.is_open(plane, Stream::Host) || self.has_spare_block(plane)
    }

    /// Whether a stream has a block that it is writing in a plane.
    #[inline]
    pub(in crate::ssd) fn is_open(&self, plane: u32, stream: Stream) -> bool {
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
}
