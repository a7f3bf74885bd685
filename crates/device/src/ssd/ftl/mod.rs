//! The flash translation layer: where logical slots (map units) are, and which
//! page of which block is written next.
//!
//! Every plane has a write frontier for host data and one for the data that garbage
//! collection moves, so that the two do not mix. A page is a *record* from its
//! first slot until it is programmed; until then its data is in DRAM. A drive with
//! an SLC cache has a third frontier, which host data goes to first (see
//! [`crate::ssd::ftl::slc`]).

#[cfg(test)]
mod check;
#[cfg(test)]
pub(crate) mod shadow;

pub(crate) mod blocks;
pub(crate) mod cached_map;
pub(crate) mod copies;
mod destination;
pub(crate) mod hybrid;
pub(crate) mod initial_map;
mod page_map;
pub(crate) mod partial;
pub(crate) mod placement;
pub(crate) mod rows;
pub(crate) mod scattered;
mod slc;
mod write_frontier;

use alloc::boxed::Box;
use alloc::vec::Vec;

use blklab_stats::{DeviceStats, WearStats};

use crate::ssd::flash::Flash;
use crate::ssd::flash::transaction::{FlashPage, Operation, Source, Transaction};
use crate::ssd::slab::Slab;
use crate::ssd::spec::Mapping;
use crate::ssd::spec::{Allocation, GcSpec, SsdSpec, WearSpec};
use blocks::{BlockState, Blocks, FreeBlocks, NO_BLOCK};
use cached_map::{CachedMap, MapWaiter};
use hybrid::Hybrid;
use initial_map::{InitialMap, ScatteredPlanes};
pub(crate) use page_map::Located;
use page_map::Map;
use partial::PartialUnits;
use placement::Placement;
use slc::Slc;
use strength_reduce::StrengthReducedU32;
use write_frontier::{CLOSED, Frontier, STREAMS};
pub(crate) use write_frontier::{PageRecord, Stream};

/// A block that is being collected.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Victim {
    pub(crate) plane: u32,
    pub(crate) block: u32,
    /// Valid slots that it had when its collection began.
    pub(crate) initially_valid: u32,
}

#[derive(Clone, Debug)]
struct Plane {
    free: FreeBlocks,
    frontiers: [Frontier; STREAMS],
    /// The plane whose collection writes to this one, if any.
    collector: u32,
    /// Free blocks that collections in progress may still need beside the reserve.
    reserved_blocks: u32,
    /// Slots that its collection may still write.
    reserved_slots: u32,
    /// Its collection empties a block that does not become an ordinary free block.
    frees_no_block: bool,
}

/// The translation layer.
#[derive(Clone, Debug)]
pub(crate) struct Ftl {
    blocks: Blocks,
    map: Map,
    placement: Placement,
    planes: Vec<Plane>,
    /// Optional parts are boxed, to keep this small on drives without them.
    slc: Option<Box<Slc>>,
    /// Where blocks are mapped as a whole, and pages only in logs.
    hybrid: Option<Box<Hybrid>>,
    records: Slab<PageRecord>,
    partial_units: PartialUnits,
    /// Where only a part of the map is in DRAM.
    cached_map: Option<Box<CachedMap>>,
    /// The plane of a slot is decided by its address alone.
    static_allocation: bool,
    initial: InitialMap,
    /// Blocks that an aged drive is collecting before the first command.
    victims_at_start: Vec<Victim>,
    /// How often a slot was written whose last copy was still in volatile DRAM.
    rewritten_in_dram: u64,
    gc: GcSpec,
    wear: WearSpec,
    slots_per_page: StrengthReducedU32,
    pages_per_block: u32,
    /// Pages that the array programs at once.
    pages_per_program: u32,
    slots_per_block: StrengthReducedU32,
    blocks_per_plane: StrengthReducedU32,
    /// The first blocks of a plane, which belong neither to the static SLC cache nor to
    /// the map.
    data_blocks_per_plane: u32,
    planes_per_package: u32,
    /// Planes that are filled in step.
    planes_per_row: StrengthReducedU32,
    /// The data of every sector, which tests follow through DRAM and flash.
    #[cfg(test)]
    pub(crate) shadow: Option<Box<shadow::Shadow>>,
}

impl Ftl {
    /// The layer of a drive whose data lies in order, or as `scattered` says; `seed`
    /// decides which entries a cached map holds.
    pub(crate) fn new(
        spec: &SsdSpec,
        placement: Placement,
        scattered: Option<ScatteredPlanes>,
        seed: u64,
    ) -> Ftl {
        let geometry = &spec.geometry;
        let slots_per_page = spec.slots_per_page();
        let slots_per_block = slots_per_page * geometry.pages_per_block;
        let mut ftl = Ftl {
            initial: InitialMap::new(spec, &placement, scattered),
            blocks: Blocks::new(geometry.blocks(), slots_per_block),
            map: Map::new(spec.logical_slots()),
            placement,
            planes: Vec::with_capacity(geometry.planes() as usize),
            slc: Slc::new(spec).map(Box::new),
            hybrid: None,
            records: Slab::with_capacity(256),
            partial_units: PartialUnits::new(spec),
            cached_map: None,
            static_allocation: spec.ftl.allocation == Allocation::Static,
            victims_at_start: Vec::new(),
            rewritten_in_dram: 0,
            gc: spec.gc,
            wear: spec.wear,
            slots_per_page: StrengthReducedU32::new(slots_per_page),
            pages_per_block: geometry.pages_per_block,
            // Pages of a log have fixed places, so a program is never padded.
            pages_per_program: match spec.ftl.mapping {
                Mapping::Page => spec.pages_per_program(),
                Mapping::Hybrid(_) => 1,
            },
            slots_per_block: StrengthReducedU32::new(slots_per_block),
            blocks_per_plane: StrengthReducedU32::new(geometry.blocks_per_plane),
            data_blocks_per_plane: spec.data_blocks_per_plane(),
            planes_per_package: geometry.planes_per_package(),
            planes_per_row: StrengthReducedU32::new(spec.planes_per_row()),
            #[cfg(test)]
            shadow: None,
        };
        for plane in 0..geometry.planes() {
            ftl.lay_out(plane, geometry.planes());
        }
        for plane in 0..geometry.planes() {
            let map_blocks = spec.map_blocks_per_plane();
            let blocks = ftl.plane_blocks(plane);
            for block in blocks.end - map_blocks..blocks.end {
                ftl.blocks.states[block as usize] = BlockState::Map;
            }
        }
        ftl.hybrid = Hybrid::new(spec, &ftl).map(Box::new);
        ftl.cached_map = CachedMap::new(spec, &ftl.placement, seed).map(Box::new);
        ftl
    }

    /// From now on keeps the programmed copy of a slot until a newer one is programmed.
    pub(crate) fn keep_older_copies(&mut self) {
        // A data block that ends early is not open, and is continued all the same.
        let takes_pages = |block: &u32| match self.blocks.states[*block as usize] {
            BlockState::Open => true,
            BlockState::Full => !self.is_written(*block),
            BlockState::Free | BlockState::Victim | BlockState::Map => false,
        };
        let blocks = 0..self.blocks.states.len() as u32;
        let unfinished: Vec<u32> = blocks.filter(takes_pages).collect();
        self.blocks.keep_older(&unfinished);
    }

    /// A transaction on a page, in the mode (SLC or multi-level) of its block.
    #[inline]
    pub(crate) fn transaction(
        &self,
        kind: Operation,
        source: Source,
        owner: u32,
        at: FlashPage,
        bytes: u32,
    ) -> Transaction {
        Transaction {
            slc: self.is_slc(at.block),
            ..Transaction::new(kind, source, owner, at, bytes)
        }
    }

    /// The map, where only a part of it is in DRAM.
    #[inline]
    pub(crate) fn cached_map(&mut self) -> Option<&mut CachedMap> {
        self.cached_map.as_deref_mut()
    }

    /// Whether only a part of the map is in DRAM.
    #[inline]
    pub(crate) fn has_cached_map(&self) -> bool {
        self.cached_map.is_some()
    }

    /// Fetches a slot's entry of the map for `waiter`, to be changed. Returns how
    /// many reads of the map it has to wait for.
    #[inline]
    pub(crate) fn change_entry(
        &mut self,
        flash: &mut Flash,
        stats: &mut DeviceStats,
        now_ns: u64,
        slot: u32,
        waiter: MapWaiter,
    ) -> u32 {
        match &mut self.cached_map {
            Some(map) => map.fetch(flash, stats, now_ns, slot..=slot, true, waiter),
            None => 0,
        }
    }

    /// A block of the map was erased.
    pub(crate) fn map_block_erased(&mut self, block: u32) {
        self.blocks.erases[block as usize] += 1;
    }

    /// The page of a physical slot.
    #[inline]
    pub(crate) fn parts(&self, at: u32) -> FlashPage {
        let (block, within) = StrengthReducedU32::div_rem(at, self.slots_per_block);
        FlashPage {
            plane: block / self.blocks_per_plane,
            block,
            page: within / self.slots_per_page,
        }
    }

    /// Where the firmware writes down what it has to know again, discards for
    /// example; `place` is that of the plane in the order of allocation.
    pub(crate) fn log_page(&self, place: u32) -> FlashPage {
        FlashPage {
            plane: self.placement.home(place).plane,
            block: NO_BLOCK,
            // The last page of a program: only that takes array time.
            page: self.pages_per_program - 1,
        }
    }

    /// Whether blocks are mapped as a whole, and pages only in logs.
    #[inline]
    pub(crate) fn has_logs(&self) -> bool {
        self.hybrid.is_some()
    }

    /// Blocks of the drive that can be random logs at once.
    pub(crate) fn all_random_logs(&self) -> u64 {
        self.hybrid.as_ref().map_or(0, |h| h.all_random_logs())
    }

    /// Whether there is an SLC cache.
    #[inline]
    pub(crate) fn has_slc_cache(&self) -> bool {
        self.slc.is_some()
    }

    /// The block of a plane's SLC cache that was filled first, if it has a full one.
    pub(crate) fn oldest_cached(&self, plane: u32) -> Option<u32> {
        self.slc.as_ref()?.oldest(plane)
    }

    /// Whether any plane has a full block of the SLC cache.
    pub(crate) fn has_full_cached(&self) -> bool {
        self.slc.as_ref().is_some_and(|slc| slc.has_full())
    }

    /// Slots of a block that hold current data.
    #[inline]
    pub(crate) fn valid(&self, block: u32) -> u32 {
        self.blocks.valid[block as usize] as u32
    }

    /// When a block was filled, counted in blocks filled.
    pub(crate) fn filled(&self, block: u32) -> u32 {
        self.blocks.filled[block as usize]
    }

    /// Blocks of the drive filled since a block was.
    pub(crate) fn age(&self, block: u32) -> u32 {
        self.blocks.fills() - self.filled(block)
    }

    /// How often a block was erased.
    pub(crate) fn erases(&self, block: u32) -> u32 {
        self.blocks.erases[block as usize]
    }

    /// How often a slot was written whose last copy was still in volatile DRAM.
    #[inline]
    pub(crate) fn rewritten_in_dram(&self) -> u64 {
        self.rewritten_in_dram
    }

    /// Sets the blocks that an aged drive is collecting before the first command.
    pub(crate) fn set_victims_at_start(&mut self, victims: Vec<Victim>) {
        self.victims_at_start = victims;
    }

    /// Static allocation: the plane of each page of the address space.
    #[inline]
    pub(crate) fn placement(&self) -> &Placement {
        &self.placement
    }

    /// Planes that one range of addresses is laid over.
    pub(crate) fn planes_per_range(&self) -> u32 {
        self.placement.planes_per_range()
    }

    /// Takes the blocks that an aged drive is collecting before the first command.
    pub(crate) fn take_victims_at_start(&mut self) -> Vec<Victim> {
        core::mem::take(&mut self.victims_at_start)
    }

    /// Drops what the controller had in DRAM beside host data when the power was lost.
    /// `interrupted` are the programs of map pages that were in progress.
    pub(crate) fn power_off(&mut self, interrupted: &[Transaction]) {
        self.partial_units.clear();
        if let Some(map) = &mut self.cached_map {
            map.power_off(interrupted);
        }
    }

    /// Whether two physical slots lie in one page.
    #[inline]
    pub(crate) fn same_page(&self, a: u32, b: u32) -> bool {
        a / self.slots_per_page == b / self.slots_per_page
    }

    /// First physical slot of a page.
    #[inline]
    pub(crate) fn page_start(&self, block: u32, page: u32) -> u32 {
        block * self.slots_per_block.get() + page * self.slots_per_page.get()
    }

    /// Blocks of a plane.
    pub(crate) fn plane_blocks(&self, plane: u32) -> core::ops::Range<u32> {
        let first = plane * self.blocks_per_plane.get();
        first..first + self.blocks_per_plane.get()
    }

    /// How many of them, the first ones, belong neither to the static SLC cache nor to the
    /// map.
    pub(crate) fn data_blocks_per_plane(&self) -> u32 {
        self.data_blocks_per_plane
    }

    /// Whether less worn blocks are preferred (dynamic wear levelling).
    pub(crate) fn levels_wear(&self) -> bool {
        self.wear.dynamic
    }

    /// Reports the erase counts over all blocks.
    pub(crate) fn report_wear(&self, wear: &mut WearStats) {
        let erases = &self.blocks.erases;
        let sum: u64 = erases.iter().map(|count| *count as u64).sum();
        wear.min_erases = erases.iter().copied().min().unwrap_or(0);
        wear.max_erases = erases.iter().copied().max().unwrap_or(0);
        wear.mean_erases = sum as f64 / erases.len().max(1) as f64;
        wear.spread_erases = wear.max_erases - wear.min_erases;
    }

    /// Planes of the drive.
    pub(crate) fn plane_count(&self) -> u32 {
        self.planes.len() as u32
    }

    /// Counts wear from now on: preconditioning is not part of it.
    pub(crate) fn forget_wear(&mut self) {
        self.blocks.erases.fill(0);
        for plane in &mut self.planes {
            plane.free.forget_wear();
        }
    }

    /// Slots of a block.
    pub(crate) fn slots_per_block(&self) -> u32 {
        self.slots_per_block.get()
    }

    /// Slots of a page.
    pub(crate) fn slots_per_page(&self) -> u32 {
        self.slots_per_page.get()
    }
}
