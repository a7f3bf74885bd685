//! The flash translation layer: where logical slots are, and which page of
//! which block is written next.
//!
//! Every plane has a block that takes the host's data and one that takes what
//! garbage collection moves, so that the two do not mix. A page is a *record*
//! from its first slot until it is programmed; until then its data is in DRAM.
//! A drive with an SLC cache has a third block, which the host's data goes to
//! first (see [`crate::ssd::ftl::slc`]).

use crate::ssd::divide::Divisor;
use crate::ssd::flash::transaction::NONE;
use crate::ssd::ftl::blocks::{Blocks, NO_BLOCK, Use};
use crate::ssd::ftl::free_blocks::FreeBlocks;
use crate::ssd::ftl::hybrid::Hybrid;
use crate::ssd::ftl::page_map::Map;
use crate::ssd::ftl::slc::Slc;
use crate::ssd::ftl::start::Start;
use crate::ssd::geometry::Placement;
use crate::ssd::preconditioning::ageing;
use crate::ssd::rng::Rng;
use crate::ssd::spec::Mapping;
use crate::ssd::spec::{GcSpec, InitialState, SsdSpec, WearSpec};

pub(crate) mod blocks;
pub(crate) mod cached_map;
pub(crate) mod copies;
mod cycle;
mod destination;
mod discard;
mod free_blocks;
pub(crate) mod hybrid;
mod lay_out;
mod locate;
mod page_map;
pub(crate) mod partial;
mod room;
pub(crate) mod rows;
pub(crate) mod scattered;
mod slc;
mod slc_start;
mod slot_tables;
pub(crate) mod start;
mod stream;
pub(crate) mod superpage;
mod write_frontier;

#[cfg(test)]
mod check;

pub(crate) use locate::Located;
use stream::STREAMS;
pub(crate) use stream::Stream;
pub(crate) use write_frontier::PageRecord;
pub(super) use write_frontier::{CLOSED, Frontier};

/// A page of the flash, or a block where the page does not matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FlashPage {
    pub(crate) plane: u32,
    /// The global block.
    pub(crate) block: u32,
    /// The page within its block.
    pub(crate) page: u32,
}

/// A block that is being emptied.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Victim {
    pub(crate) plane: u32,
    pub(crate) block: u32,
    /// Valid slots that it had when its collection began.
    pub(crate) had: u32,
}

#[derive(Clone, Debug)]
pub(super) struct Plane {
    pub(super) free: FreeBlocks,
    pub(super) frontiers: [Frontier; STREAMS],
    /// The plane whose collection writes to this one, if any.
    pub(super) collector: u32,
    /// Free blocks that jobs under way may still need beside the reserve.
    pub(super) promised: u32,
    /// Slots that its collection may still use up.
    pub(super) owed: u32,
    /// Its collection empties a block that does not become free.
    pub(super) gives_nothing: bool,
}

/// The translation layer.
#[derive(Clone, Debug)]
pub(crate) struct Ftl {
    pub(crate) blocks: Blocks,
    pub(super) map: Map,
    pub(super) placement: Placement,
    pub(super) planes: Vec<Plane>,
    /// Boxed, so that a drive without it only asks whether it is there.
    pub(crate) slc: Option<Box<Slc>>,
    /// Likewise: where blocks are mapped as a whole, and pages only in logs.
    pub(crate) hybrid: Option<Box<Hybrid>>,
    pub(super) records: Vec<PageRecord>,
    pub(super) free_record: u32,
    start: Start,
    /// What an aged drive is emptying before the first command.
    pub(super) victims_at_start: Vec<Victim>,
    /// How often a slot was written whose last copy was still in DRAM, in a
    /// drive that would lose that with its power.
    pub(crate) rewritten_in_dram: u64,
    pub(super) gc: GcSpec,
    pub(super) wear: WearSpec,
    slots_per_page: Divisor,
    pub(super) pages_per_block: u32,
    /// Pages that the array programs at once.
    pub(super) pages_per_program: u32,
    pub(super) slots_per_block: Divisor,
    pub(super) blocks_per_plane: Divisor,
    /// The first of them, which are neither the SLC cache's alone nor the map's.
    data_blocks_per_plane: u32,
    pub(super) planes_per_package: u32,
    /// Planes that are filled in step.
    pub(super) planes_per_row: Divisor,
}

impl Ftl {
    pub(crate) fn new(spec: &SsdSpec, rng: &mut Rng) -> Ftl {
        let geometry = &spec.geometry;
        let slots_per_page = spec.slots_per_page();
        let logical_slots = spec.logical_slots();
        let pages = logical_slots.div_ceil(slots_per_page as u64) as u32;
        let slots_per_block = slots_per_page * geometry.pages_per_block;
        let placement = Placement::new(geometry, spec.ftl.layout, spec.ftl.order, pages);
        let mut ftl = Ftl {
            start: Start::new(spec, &placement, rng),
            blocks: Blocks::new(geometry.blocks(), slots_per_block),
            map: Map::new(logical_slots),
            placement,
            planes: Vec::with_capacity(geometry.planes() as usize),
            slc: Slc::new(spec).map(Box::new),
            hybrid: None,
            records: Vec::with_capacity(256),
            free_record: NONE,
            victims_at_start: Vec::new(),
            rewritten_in_dram: 0,
            gc: spec.gc,
            wear: spec.wear,
            slots_per_page: Divisor::new(slots_per_page),
            pages_per_block: geometry.pages_per_block,
            // A log's pages have their places, so nothing is filled up there.
            pages_per_program: match spec.ftl.mapping {
                Mapping::Page => spec.pages_per_program(),
                Mapping::Hybrid(_) => 1,
            },
            slots_per_block: Divisor::new(slots_per_block),
            blocks_per_plane: Divisor::new(geometry.blocks_per_plane),
            data_blocks_per_plane: spec.data_blocks_per_plane(),
            planes_per_package: geometry.planes_per_package(),
            planes_per_row: Divisor::new(spec.planes_per_row()),
        };
        for plane in 0..geometry.planes() {
            ftl.lay_out(plane, geometry.planes());
        }
        for plane in 0..geometry.planes() {
            let map_blocks = spec.map_blocks_per_plane();
            let blocks = ftl.plane_blocks(plane);
            for block in blocks.end - map_blocks..blocks.end {
                ftl.blocks.uses[block as usize] = Use::Map;
            }
        }
        ftl.hybrid = Hybrid::new(spec, &ftl).map(Box::new);
        if let InitialState::Aged(aged) = &spec.state
            && aged.simulate
        {
            ageing::overwrite(&mut ftl, spec, aged, rng);
        }
        if !spec.write_cache.power_loss_protection {
            ftl.blocks.keep_older();
        }
        ftl
    }

    /// The page of a physical slot.
    #[inline]
    pub(crate) fn parts(&self, at: u32) -> FlashPage {
        let (block, within) = self.slots_per_block.split(at);
        FlashPage {
            plane: self.blocks_per_plane.split(block).0,
            block,
            page: self.slots_per_page.split(within).0,
        }
    }

    /// Where discards are written down.
    pub(crate) fn discard_log(&self) -> FlashPage {
        FlashPage {
            plane: self.placement.home(0).plane,
            block: NO_BLOCK,
            // The last of a program, which takes the array's time.
            page: self.pages_per_program - 1,
        }
    }

    /// The place of a page of the map, counted within the last `blocks` blocks
    /// of the so-manyth plane in the order of allocation.
    pub(crate) fn map_page(&self, plane: usize, place: u32, blocks: u32) -> FlashPage {
        let ranges = self.plane_count() / self.placement.planes_per_range();
        let number = plane as u32;
        let plane = self.placement.plane_at(number % ranges, number / ranges);
        FlashPage {
            plane,
            block: self.plane_blocks(plane).end - blocks + place / self.pages_per_block,
            page: place % self.pages_per_block,
        }
    }

    /// The place of such a page.
    pub(crate) fn map_place(&self, page: FlashPage, blocks: u32) -> u32 {
        let first = self.plane_blocks(page.plane).end - blocks;
        (page.block - first) * self.pages_per_block + page.page
    }

    /// Whether two physical slots lie in one page.
    #[inline]
    pub(crate) fn same_page(&self, a: u32, b: u32) -> bool {
        self.slots_per_page.split(a).0 == self.slots_per_page.split(b).0
    }

    /// First physical slot of a page.
    #[inline]
    pub(crate) fn page_start(&self, block: u32, page: u32) -> u32 {
        block * self.slots_per_block.get() + page * self.slots_per_page.get()
    }

    /// Blocks of a plane.
    pub(crate) fn plane_blocks(&self, plane: u32) -> std::ops::Range<u32> {
        let first = plane * self.blocks_per_plane.get();
        first..first + self.blocks_per_plane.get()
    }

    /// How many of them, the first ones, are neither the SLC cache's alone nor the
    /// map's.
    pub(crate) fn data_blocks_per_plane(&self) -> u32 {
        self.data_blocks_per_plane
    }

    /// Whether blocks that are less worn go before others.
    pub(crate) fn levels_wear(&self) -> bool {
        self.wear.dynamic
    }

    /// Fills in the erase counts over all blocks.
    pub(crate) fn report_wear(&self, wear: &mut blklab_stats::WearStats) {
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

    /// Wear is counted from the first command on.
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
