//! The SLC cache: blocks of multi-level flash written with one bit a cell, which
//! is several times faster and holds only a half to a quarter of the data.
//!
//! *Static* blocks are only ever SLC. *Dynamic* ones are taken from the plane's free
//! blocks as long as there are more of these than collection needs, so a full drive
//! has few of them or none. Blocks are emptied ("folded") oldest first; see
//! [`crate::ssd::gc::fold`].

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use crate::ssd::spec::{SsdSpec, WhenFull};

/// The cache's blocks.
#[derive(Clone, Debug)]
pub(crate) struct Slc {
    /// Pages of a block at one bit a cell.
    pages_per_block: u32,
    /// Blocks from this one on within each plane are static.
    first_static: u32,
    /// Most blocks of a plane that may be dynamic at once.
    dynamic_blocks: u32,
    /// Free blocks that must be left in a plane.
    keep_free: u32,
    /// Host writes wait for a fold instead of bypassing the full cache.
    waits: bool,
    /// By block: it is written at one bit a cell.
    is_slc: Vec<bool>,
    planes: Vec<PlaneCache>,
}

#[derive(Clone, Debug, Default)]
struct PlaneCache {
    /// Static blocks that are erased.
    free: Vec<u32>,
    /// Blocks that are open, full or being folded.
    used: u32,
    /// How many of those are dynamic.
    dynamic: u32,
    /// Blocks written to the end, oldest first.
    full: VecDeque<u32>,
}

impl Slc {
    /// The cache as described; `None` where the drive has none.
    pub(crate) fn new(spec: &SsdSpec) -> Option<Slc> {
        let cache = spec.slc_cache.as_ref()?;
        let geometry = &spec.geometry;
        let first_static = spec.data_blocks_per_plane();
        let planes = (0..geometry.planes()).map(|plane| {
            let first = plane * geometry.blocks_per_plane;
            PlaneCache {
                free: (first + first_static..first + first_static + cache.static_blocks)
                    .rev()
                    .collect(),
                ..PlaneCache::default()
            }
        });
        Some(Slc {
            pages_per_block: spec.slc_pages_per_block(),
            first_static,
            dynamic_blocks: cache.dynamic_blocks,
            keep_free: spec.gc.start_blocks,
            waits: cache.when_full == WhenFull::Wait,
            is_slc: vec![false; geometry.blocks() as usize],
            planes: planes.collect(),
        })
    }

    #[inline]
    pub(crate) fn holds(&self, block: u32) -> bool {
        // The page of the discard log has no block.
        self.is_slc
            .get(block as usize)
            .is_some_and(|is_slc| *is_slc)
    }

    pub(crate) fn pages_per_block(&self) -> u32 {
        self.pages_per_block
    }

    /// Whether host writes wait while a plane's cache is full. They do not where the
    /// cache has no block that could be folded to make room.
    pub(crate) fn waits(&self, plane: u32) -> bool {
        self.waits && self.planes[plane as usize].used > 0
    }

    /// Whether a block within its plane is static.
    pub(crate) fn is_static(&self, within_plane: u32) -> bool {
        within_plane >= self.first_static
    }

    /// Whether a plane with `free` blocks can open one for the cache.
    pub(crate) fn has_room(&self, plane: u32, free: usize) -> bool {
        let cache = &self.planes[plane as usize];
        !cache.free.is_empty()
            || (cache.dynamic < self.dynamic_blocks && free > self.keep_free as usize)
    }

    /// Static blocks of a plane that are erased.
    pub(crate) fn free_static(&mut self, plane: u32) -> &mut Vec<u32> {
        &mut self.planes[plane as usize].free
    }

    /// Takes the least worn of a plane's static blocks that are erased.
    pub(crate) fn take_static(&mut self, plane: u32, erases: &[u32]) -> Option<u32> {
        let free = &mut self.planes[plane as usize].free;
        let places = (0..free.len()).rev();
        let place = places.min_by_key(|place| erases[free[*place] as usize])?;
        Some(free.swap_remove(place))
    }

    /// A block is taken for the cache.
    pub(crate) fn open(&mut self, plane: u32, block: u32, is_static: bool) {
        self.is_slc[block as usize] = true;
        let cache = &mut self.planes[plane as usize];
        cache.used += 1;
        cache.dynamic += !is_static as u32;
    }

    /// A block of the cache is written to the end.
    pub(crate) fn fill(&mut self, plane: u32, block: u32) {
        self.planes[plane as usize].full.push_back(block);
    }

    /// Returns a block whose fold or collection was abandoned to the full blocks, ordered
    /// by when they were filled (`filled`).
    pub(crate) fn put_back(&mut self, plane: u32, block: u32, filled: &[u32]) {
        let full = &mut self.planes[plane as usize].full;
        let place = full.partition_point(|other| filled[*other as usize] < filled[block as usize]);
        full.insert(place, block);
    }

    /// The block of a plane to fold next.
    pub(crate) fn oldest(&self, plane: u32) -> Option<u32> {
        self.planes[plane as usize].full.front().copied()
    }

    /// Whether any plane has something to fold.
    pub(crate) fn has_full(&self) -> bool {
        self.planes.iter().any(|plane| !plane.full.is_empty())
    }

    /// Takes a block that is going to be folded or collected off the full blocks.
    pub(crate) fn begin_fold(&mut self, plane: u32, block: u32) {
        let full = &mut self.planes[plane as usize].full;
        if let Some(place) = full.iter().position(|other| *other == block) {
            full.remove(place);
        }
    }

    /// A block of the cache is erased; returns whether it is an ordinary free
    /// block again.
    pub(crate) fn erased(&mut self, plane: u32, block: u32, is_static: bool) -> bool {
        self.is_slc[block as usize] = false;
        let cache = &mut self.planes[plane as usize];
        cache.used -= 1;
        match is_static {
            true => cache.free.push(block),
            false => cache.dynamic -= 1,
        }
        !is_static
    }
}
