//! A block from its first page to its erase.

use crate::ssd::ftl::blocks::Use;
use crate::ssd::ftl::{Ftl, Stream};

impl Ftl {
    /// Whether a block is written with one bit a cell.
    #[inline]
    pub(crate) fn is_slc(&self, block: u32) -> bool {
        match &self.slc {
            None => false,
            Some(slc) => slc.holds(block),
        }
    }

    /// Whether a block is the SLC cache's alone.
    pub(crate) fn is_static_slc(&self, block: u32) -> bool {
        match &self.slc {
            None => false,
            Some(slc) => slc.is_static(self.blocks_per_plane.split(block).1),
        }
    }

    /// Pages of a block as it is written now.
    #[inline]
    pub(crate) fn pages_of(&self, block: u32) -> u32 {
        match &self.slc {
            Some(slc) if slc.holds(block) => slc.pages_per_block(),
            _ => self.pages_per_block,
        }
    }

    /// Pages of a block as a stream writes it.
    #[inline]
    pub(in crate::ssd) fn pages_for(&self, stream: Stream) -> u32 {
        match &self.slc {
            Some(slc) if stream == Stream::Slc => slc.pages_per_block(),
            _ => self.pages_per_block,
        }
    }

    /// The least worn free block: dynamic wear levelling.
    pub(in crate::ssd) fn open_block(&mut self, plane: u32, stream: Stream) -> u32 {
        let erases = &self.blocks.erases;
        let free = &mut self.planes[plane as usize].free;
        let of_cache = match (&mut self.slc, stream) {
            (Some(slc), Stream::Slc) => slc.take_static(plane, erases),
            _ => None,
        };
        let block = of_cache.or_else(|| match stream {
            // What hardly changes goes where there is least wear left.
            Stream::Wear => free.take_most_worn(erases),
            _ => free.take(),
        });
        // The reserve keeps one for every stream (see `stream_with_room`).
        let block = block.expect("a free block is kept in reserve");
        if stream == Stream::Wear {
            // That was the block for what it moves.
            self.planes[plane as usize].promised = 0;
        }
        self.blocks.open(block);
        if stream == Stream::Slc {
            let is_static = self.is_static_slc(block);
            if let Some(slc) = &mut self.slc {
                slc.open(plane, block, is_static);
            }
        }
        block
    }

    /// A block is written to the end.
    pub(in crate::ssd) fn fill(&mut self, plane: u32, block: u32, stream: Stream) {
        self.blocks.fill(block);
        if let (Stream::Slc, Some(slc)) = (stream, &mut self.slc) {
            slc.fill(plane, block);
        }
    }

    /// A block will be emptied and erased.
    pub(crate) fn begin_collection(&mut self, block: u32) {
        self.blocks.uses[block as usize] = Use::Victim;
        let plane = self.blocks_per_plane.split(block).0;
        if let Some(slc) = &mut self.slc
            && slc.holds(block)
        {
            slc.begin_fold(plane, block);
        }
    }

    /// Whether every page of a block is on the flash.
    pub(crate) fn is_written(&self, block: u32) -> bool {
        self.blocks.uses[block as usize] == Use::Full
            && self.blocks.programmed[block as usize] as u32 == self.pages_of(block)
    }

    /// An erased block is free again.
    pub(crate) fn erased(&mut self, plane: u32, block: u32) {
        self.blocks.erase(block);
        self.set_free(plane, block);
    }

    /// A block can be opened again.
    pub(in crate::ssd) fn set_free(&mut self, plane: u32, block: u32) {
        if self.is_slc(block) {
            let is_static = self.is_static_slc(block);
            if let Some(slc) = &mut self.slc
                && !slc.erased(plane, block, is_static)
            {
                return;
            }
        }
        let erases = self.blocks.erases[block as usize];
        self.planes[plane as usize].free.push(block, erases);
    }
}
