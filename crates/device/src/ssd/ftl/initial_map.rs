//! Where every slot is before the first command, computed instead of stored: a drive
//! that was written for months costs no more memory than a fresh one.

use alloc::vec::Vec;

use crate::ssd::flash::transaction::NONE;
use crate::ssd::ftl::blocks::BlockState;
use crate::ssd::ftl::blocks::FreeBlocks;
use crate::ssd::ftl::placement::{Home, Placement};
use crate::ssd::ftl::scattered::Scattered;
use crate::ssd::ftl::{CLOSED, Frontier, Ftl, Plane, STREAMS, Stream, Victim};
use crate::ssd::spec::{InitialState, Mapping, SsdSpec};
use strength_reduce::StrengthReducedU32;

/// The state of a drive before its first command.
#[derive(Clone, Debug)]
pub(crate) struct InitialMap {
    slots_per_page: StrengthReducedU32,
    slots_per_block: u32,
    blocks_per_plane: u32,
    logical_slots: u64,
    content: InitialData,
    slc: Option<InitialSlc>,
}

#[derive(Clone, Debug)]
enum InitialData {
    Nothing,
    /// Slots lie in order of address.
    InOrder,
    /// Slots are scattered as after long overwriting.
    Scattered(ScatteredPlanes),
}

/// Planes after long overwriting.
#[derive(Clone, Debug)]
pub(crate) struct ScatteredPlanes {
    /// Planes of rows at several moments, for each range of addresses.
    pub(crate) states: Vec<Scattered>,
    pub(crate) moments: u32,
    pub(crate) planes_per_row: u32,
    /// States that the planes of a row have: one each, or one for all.
    pub(crate) states_per_row: u32,
    /// Age of the oldest block in any of them.
    pub(crate) oldest: u32,
}

impl InitialMap {
    /// The state of a drive's description; `scattered` is that of the planes of an aged
    /// drive, unless ageing is simulated write by write.
    pub(crate) fn new(
        spec: &SsdSpec,
        placement: &Placement,
        scattered: Option<ScatteredPlanes>,
    ) -> InitialMap {
        let slots_per_page = spec.slots_per_page();
        let slots_per_block = slots_per_page * spec.geometry.pages_per_block;
        let content = match (&spec.state, scattered, spec.ftl.mapping) {
            (_, Some(planes), _) => InitialData::Scattered(planes),
            (InitialState::Fresh, ..) | (InitialState::Aged(_), _, Mapping::Page) => {
                InitialData::Nothing
            }
            (InitialState::Filled, ..) | (InitialState::Aged(_), _, Mapping::Hybrid(_)) => {
                InitialData::InOrder
            }
        };
        let mut initial = InitialMap {
            slots_per_page: StrengthReducedU32::new(slots_per_page),
            slots_per_block,
            blocks_per_plane: spec.geometry.blocks_per_plane,
            logical_slots: spec.logical_slots(),
            content,
            slc: None,
        };
        let planes = 0..spec.geometry.planes();
        let held = planes.map(|plane| {
            let used = initial.used_blocks(placement, plane).len();
            (initial.slots_of(placement, plane) as u32, used as u32)
        });
        initial.slc = InitialSlc::new(spec, held);
        initial
    }

    /// The physical slot of a logical one; `None` where it holds nothing.
    #[inline]
    pub(crate) fn place(&self, placement: &Placement, slot: u32) -> Option<u32> {
        match self.content {
            InitialData::Nothing => None,
            _ => self.place_of_content(placement, slot),
        }
    }

    fn place_of_content(&self, placement: &Placement, slot: u32) -> Option<u32> {
        let (page, in_page) = StrengthReducedU32::div_rem(slot, self.slots_per_page);
        let home = placement.home(page);
        let at = match &self.content {
            InitialData::Nothing => return None,
            InitialData::InOrder => self.in_order(home, in_page),
            InitialData::Scattered(planes) => {
                let rank = home.rank * self.slots_per_page.get() + in_page;
                let (block, within) = planes.of(placement, home.plane).place(rank)?;
                (home.plane * self.blocks_per_plane + block) * self.slots_per_block + within
            }
        };
        if let Some(slc) = &self.slc {
            let rank = home.rank * self.slots_per_page.get() + in_page;
            if let Some((block, within)) = slc.place(home.plane, rank) {
                let block = home.plane * self.blocks_per_plane + block;
                return Some(block * self.slots_per_block + within);
            }
        }
        Some(at)
    }

    /// How many blocks of a plane were filled before a block was.
    pub(crate) fn filled_before(&self, placement: &Placement, plane: u32, block: u32) -> u32 {
        match &self.content {
            InitialData::Scattered(planes) => {
                planes.oldest - planes.of(placement, plane).age(block).min(planes.oldest)
            }
            // In the order of their numbers.
            _ => block,
        }
    }

    /// The state of a plane that was overwritten for long.
    pub(crate) fn scattered(&self, placement: &Placement, plane: u32) -> Option<&Scattered> {
        match &self.content {
            InitialData::Scattered(planes) => Some(planes.of(placement, plane)),
            _ => None,
        }
    }

    /// The physical slot of a logical one on a drive written once in order.
    #[inline]
    pub(crate) fn in_order(&self, home: Home, in_page: u32) -> u32 {
        home.plane * self.blocks_per_plane * self.slots_per_block
            + home.rank * self.slots_per_page.get()
            + in_page
    }

    /// The logical slot that a physical one holds at the start.
    pub(crate) fn owner(&self, placement: &Placement, at: u32) -> Option<u32> {
        let (block, within) = (at / self.slots_per_block, at % self.slots_per_block);
        let (plane, block) = (block / self.blocks_per_plane, block % self.blocks_per_plane);
        let cached = self
            .slc
            .as_ref()
            .and_then(|slc| slc.rank(plane, block, within));
        let rank = match (&self.content, cached) {
            (_, Some(rank)) => rank,
            (InitialData::Nothing, _) => return None,
            (InitialData::InOrder, _) => block * self.slots_per_block + within,
            (InitialData::Scattered(planes), _) => {
                planes.of(placement, plane).rank(block, within)?
            }
        };
        let (rank, in_page) = StrengthReducedU32::div_rem(rank, self.slots_per_page);
        let page = placement.page_at(Home { plane, rank })?;
        let slot = page as u64 * self.slots_per_page.get() as u64 + in_page as u64;
        (slot < self.logical_slots).then_some(slot as u32)
    }

    /// Blocks of a plane that are not erased, with their valid slots.
    pub(crate) fn used_blocks(&self, placement: &Placement, plane: u32) -> Vec<u16> {
        let held = self.slots_of(placement, plane);
        let mut valid: Vec<u16> = match &self.content {
            InitialData::Nothing => Vec::new(),
            InitialData::InOrder => {
                let per_block = self.slots_per_block as u64;
                (0..held.div_ceil(per_block))
                    .map(|block| (held - block * per_block).min(per_block) as u16)
                    .collect()
            }
            InitialData::Scattered(planes) => {
                let scattered = planes.of(placement, plane);
                let mut valid = scattered.valid().to_vec();
                for rank in held..scattered.slots() {
                    if let Some(block) = self.block_of_rank(placement, plane, rank as u32) {
                        valid[block as usize] -= 1;
                    }
                }
                valid
            }
        };
        // Slots in the SLC cache are not valid elsewhere.
        for rank in self.slc.iter().flat_map(|slc| slc.ranks(plane)) {
            if let Some(block) = self.block_of_rank(placement, plane, rank) {
                valid[block as usize] -= 1;
            }
        }
        valid
    }

    /// The multi-level block, within its plane, that a plane's slot is in or
    /// would be in were it not in the SLC cache.
    fn block_of_rank(&self, placement: &Placement, plane: u32, rank: u32) -> Option<u32> {
        match &self.content {
            InitialData::Nothing => None,
            InitialData::InOrder => Some(rank / self.slots_per_block),
            InitialData::Scattered(planes) => {
                planes.of(placement, plane).place(rank).map(|at| at.0)
            }
        }
    }

    /// Slots of a plane that lie in the SLC cache, by block within the plane.
    pub(crate) fn cached_blocks(&self, placement: &Placement, plane: u32) -> Vec<(u32, u16)> {
        let Some(slc) = &self.slc else {
            return Vec::new();
        };
        let mut blocks: Vec<(u32, u16)> = slc.blocks(plane).map(|block| (block, 0)).collect();
        let per_block = slc.ranks(plane).len() / blocks.len().max(1);
        for (number, rank) in slc.ranks(plane).enumerate() {
            let holds = self.block_of_rank(placement, plane, rank).is_some();
            blocks[number / per_block].1 += holds as u16;
        }
        blocks
    }

    /// Slots of the address space in a plane. Its last page may be short.
    fn slots_of(&self, placement: &Placement, plane: u32) -> u64 {
        let pages = placement.pages_of(plane) as u64;
        let per_page = self.slots_per_page.get() as u64;
        let Some(rank) = pages.checked_sub(1) else {
            return 0;
        };
        let last = Home {
            plane,
            rank: rank as u32,
        };
        let end = placement
            .page_at(last)
            .map_or(0, |page| (page as u64 + 1) * per_page);
        pages * per_page - end.saturating_sub(self.logical_slots)
    }
}

impl ScatteredPlanes {
    fn of(&self, placement: &Placement, plane: u32) -> &Scattered {
        let row = plane / self.planes_per_row;
        let moment = placement.range_of(plane) * self.moments + row % self.moments;
        &self.states[(moment * self.states_per_row + plane % self.states_per_row) as usize]
    }
}

/// The content of the SLC cache at the start: the last slots of every plane, in order,
/// as if they had been written last.
#[derive(Clone, Debug)]
struct InitialSlc {
    /// At one bit a cell.
    slots_per_block: u32,
    first_static: u32,
    static_blocks: u32,
    planes: Vec<InitialSlcPlane>,
}

#[derive(Clone, Copy, Debug)]
struct InitialSlcPlane {
    /// The first slot of the plane, by rank, that lies in the cache.
    first_rank: u32,
    /// Full blocks: static ones, then dynamic ones.
    blocks: u32,
    /// The first dynamic one.
    first_dynamic: u32,
}

impl InitialSlc {
    /// The cache at the start; `held` has, for every plane, its slots of the
    /// address space and its blocks in use. `None` where nothing is cached.
    fn new(spec: &SsdSpec, held: impl Iterator<Item = (u32, u32)>) -> Option<InitialSlc> {
        let cache = spec.slc_cache.filter(|cache| cache.filled > 0.0)?;
        let slots_per_block = spec.slc_pages_per_block() * spec.slots_per_page();
        let data_blocks = spec.data_blocks_per_plane();
        let planes = held.map(|(slots, used_blocks)| {
            let free = (data_blocks - used_blocks).saturating_sub(spec.gc.start_blocks);
            let room = cache.static_blocks + cache.dynamic_blocks.min(free);
            let wanted = libm::ceil(cache.filled * room as f64) as u32;
            let blocks = wanted.min(slots / slots_per_block);
            InitialSlcPlane {
                first_rank: slots - blocks * slots_per_block,
                blocks,
                first_dynamic: used_blocks,
            }
        });
        Some(InitialSlc {
            slots_per_block,
            first_static: data_blocks,
            static_blocks: cache.static_blocks,
            planes: planes.collect(),
        })
    }

    /// Block within its plane, and place in it, of a plane's slot that lies in
    /// the cache.
    #[inline]
    fn place(&self, plane: u32, rank: u32) -> Option<(u32, u32)> {
        let start = &self.planes[plane as usize];
        let within = rank.checked_sub(start.first_rank)?;
        let block = within / self.slots_per_block;
        // An address space that ends within a page has slots past the last.
        let block = (block < start.blocks).then(|| self.block(start, block))?;
        Some((block, within % self.slots_per_block))
    }

    /// The plane's slot at such a place; `None` where the block is not the
    /// cache's.
    fn rank(&self, plane: u32, block: u32, place: u32) -> Option<u32> {
        let start = &self.planes[plane as usize];
        let number = match block.checked_sub(self.first_static) {
            Some(number) => number,
            None => self.static_blocks + block.checked_sub(start.first_dynamic)?,
        };
        let is_cached = number < start.blocks && place < self.slots_per_block;
        is_cached.then(|| start.first_rank + number * self.slots_per_block + place)
    }

    /// Full blocks of a plane, within it.
    fn blocks(&self, plane: u32) -> impl Iterator<Item = u32> + use<'_> {
        let start = &self.planes[plane as usize];
        (0..start.blocks).map(|number| self.block(start, number))
    }

    /// The plane's slots that lie in the cache.
    fn ranks(&self, plane: u32) -> core::ops::Range<u32> {
        let start = &self.planes[plane as usize];
        start.first_rank..start.first_rank + start.blocks * self.slots_per_block
    }

    fn block(&self, start: &InitialSlcPlane, number: u32) -> u32 {
        match number.checked_sub(self.static_blocks) {
            None => self.first_static + number,
            Some(dynamic) => start.first_dynamic + dynamic,
        }
    }
}

impl Ftl {
    /// Adds a plane with its blocks in their initial state.
    pub(super) fn lay_out(&mut self, plane: u32, planes: u32) {
        let first = plane * self.blocks_per_plane.get();
        let used = self.initial.used_blocks(&self.placement, plane);
        for (block, valid) in used.iter().enumerate() {
            let index = first as usize + block;
            self.blocks.valid[index] = *valid;
            self.blocks.programmed[index] = self.pages_per_block as u16;
            self.blocks.states[index] = BlockState::Full;
            let before = self
                .initial
                .filled_before(&self.placement, plane, block as u32);
            // Planes have filled their blocks at the same time.
            self.blocks
                .filled_at_start(first + block as u32, (before as u64 + 1) * planes as u64);
        }
        let untouched = first + used.len() as u32..first + self.data_blocks_per_plane;
        let mut free = FreeBlocks::new(untouched, self.wear.dynamic);
        if let Some(slc) = &mut self.slc {
            for (block, valid) in self.initial.cached_blocks(&self.placement, plane) {
                let (is_static, block) = (slc.is_static(block), first + block);
                match is_static {
                    true => slc.free_static(plane).retain(|other| *other != block),
                    false => free.remove(block),
                }
                self.blocks.valid[block as usize] = valid;
                self.blocks.programmed[block as usize] = slc.pages_per_block() as u16;
                self.blocks.states[block as usize] = BlockState::Full;
                // The cache was written last.
                let fills = self.blocks.fills() as u64;
                self.blocks.filled_at_start(block, fills + 1);
                slc.open(plane, block, is_static);
                slc.fill(plane, block);
            }
        }
        self.planes.push(Plane {
            free,
            frontiers: [CLOSED; STREAMS],
            collector: NONE,
            reserved_blocks: 0,
            reserved_slots: 0,
            frees_no_block: false,
        });
        self.resume_open_blocks(plane);
    }

    /// Opens the blocks that a plane of an aged drive is writing.
    fn resume_open_blocks(&mut self, plane: u32) {
        let Some(scattered) = self.initial.scattered(&self.placement, plane) else {
            return;
        };
        let first = plane * self.blocks_per_plane.get();
        let (open, victim) = (scattered.open(), scattered.victim());
        for (stream, open) in [Stream::Host, Stream::Collection].into_iter().zip(open) {
            let Some((block, slots)) = open else { continue };
            let (block, page) = (first + block, slots / self.slots_per_page);
            self.blocks.resume(block, page);
            self.planes[plane as usize].frontiers[stream.index()] = Frontier {
                block,
                page,
                ..CLOSED
            };
        }
        self.victims_at_start
            .extend(victim.map(|(block, initially_valid)| {
                let block = first + block;
                Victim {
                    plane,
                    block,
                    initially_valid,
                }
            }));
    }
}
