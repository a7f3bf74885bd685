//! What lies in the SLC cache at the start, by formula: the last slots of every
//! plane, in order, as if they had been written last.

use crate::ssd::spec::SsdSpec;

/// The cache's full blocks before the first command.
#[derive(Clone, Debug)]
pub(crate) struct SlcStart {
    /// At one bit a cell.
    slots_per_block: u32,
    first_static: u32,
    static_blocks: u32,
    planes: Vec<PlaneStart>,
}

#[derive(Clone, Copy, Debug)]
struct PlaneStart {
    /// The first slot of the plane, by rank, that lies in the cache.
    first_rank: u32,
    /// Full blocks: static ones, then dynamic ones.
    blocks: u32,
    /// The first dynamic one.
    first_dynamic: u32,
}

impl SlcStart {
    /// The cache at the start; `held` has, for every plane, its slots of the
    /// address space and its blocks in use. `None` where nothing is cached.
    pub(crate) fn new(spec: &SsdSpec, held: impl Iterator<Item = (u32, u32)>) -> Option<SlcStart> {
        let cache = spec.slc_cache.filter(|cache| cache.filled > 0.0)?;
        let slots_per_block = spec.slc_pages_per_block() * spec.slots_per_page();
        let data_blocks = spec.data_blocks_per_plane();
        let planes = held.map(|(slots, used_blocks)| {
            let free = (data_blocks - used_blocks).saturating_sub(spec.gc.start_blocks);
            let room = cache.static_blocks + cache.dynamic_blocks.min(free);
            let wanted = (cache.filled * room as f64).ceil() as u32;
            let blocks = wanted.min(slots / slots_per_block);
            PlaneStart {
                first_rank: slots - blocks * slots_per_block,
                blocks,
                first_dynamic: used_blocks,
            }
        });
        Some(SlcStart {
            slots_per_block,
            first_static: data_blocks,
            static_blocks: cache.static_blocks,
            planes: planes.collect(),
        })
    }

    /// Block within its plane, and place in it, of a plane's slot that lies in
    /// the cache.
    #[inline]
    pub(crate) fn place(&self, plane: u32, rank: u32) -> Option<(u32, u32)> {
        let start = &self.planes[plane as usize];
        let within = rank.checked_sub(start.first_rank)?;
        let block = within / self.slots_per_block;
        // An address space that ends within a page has slots past the last.
        let block = (block < start.blocks).then(|| self.block(start, block))?;
        Some((block, within % self.slots_per_block))
    }

    /// The plane's slot at such a place; `None` where the block is not the
    /// cache's.
    pub(crate) fn rank(&self, plane: u32, block: u32, place: u32) -> Option<u32> {
        let start = &self.planes[plane as usize];
        let number = match block.checked_sub(self.first_static) {
            Some(number) => number,
            None => self.static_blocks + block.checked_sub(start.first_dynamic)?,
        };
        let is_cached = number < start.blocks && place < self.slots_per_block;
        is_cached.then(|| start.first_rank + number * self.slots_per_block + place)
    }

    /// Full blocks of a plane, within it.
    pub(crate) fn blocks(&self, plane: u32) -> impl Iterator<Item = u32> + use<'_> {
        let start = &self.planes[plane as usize];
        (0..start.blocks).map(|number| self.block(start, number))
    }

    /// The plane's slots that lie in the cache.
    pub(crate) fn ranks(&self, plane: u32) -> std::ops::Range<u32> {
        let start = &self.planes[plane as usize];
        start.first_rank..start.first_rank + start.blocks * self.slots_per_block
    }

    fn block(&self, start: &PlaneStart, number: u32) -> u32 {
        match number.checked_sub(self.static_blocks) {
            None => self.first_static + number,
            Some(dynamic) => start.first_dynamic + dynamic,
        }
    }
}
