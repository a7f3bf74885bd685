//! Where everything is at the start, by formula: a drive that was written for
//! months costs no more memory than a fresh one.

use super::divide::Divisor;
use super::geometry::{Home, Placement};
use super::rng::Rng;
use super::scattered::Scattered;
use super::slc_start::SlcStart;
use super::spec::{InitialState, SsdSpec};
use super::steady::{PlaneShape, blocks_by_age};

/// The state of a drive before its first command.
#[derive(Clone, Debug)]
pub(crate) struct Start {
    slots_per_page: Divisor,
    slots_per_block: u32,
    blocks_per_plane: u32,
    logical_slots: u64,
    content: Content,
    slc: Option<SlcStart>,
}

#[derive(Clone, Debug)]
enum Content {
    Nothing,
    /// Slots lie in order of address.
    InOrder,
    /// As after long overwriting; one for every range of addresses.
    Scattered(Vec<Scattered>),
}

impl Start {
    pub(crate) fn new(spec: &SsdSpec, placement: &Placement, rng: &mut Rng) -> Start {
        let slots_per_page = spec.slots_per_page();
        let slots_per_block = slots_per_page * spec.geometry.pages_per_block;
        let most_pages = (0..spec.geometry.planes())
            .map(|plane| placement.pages_of(plane))
            .max()
            .unwrap_or(0);
        let content = match &spec.state {
            InitialState::Fresh => Content::Nothing,
            InitialState::Filled => Content::InOrder,
            InitialState::Aged(aged) if aged.simulate => Content::InOrder,
            InitialState::Aged(aged) => {
                let slots = most_pages * slots_per_page;
                let live = (slots as f64 * aged.occupancy).round().max(1.0) as u32;
                let shape = PlaneShape {
                    blocks: spec.data_blocks_per_plane(),
                    slots_per_block,
                    live,
                    free: spec.free_at_start() - spec.behind_blocks(),
                };
                let ranges = spec.geometry.planes() / placement.planes_per_range();
                let aged_range = |range| aged.of_range(range, ranges);
                let scattered = (0..ranges).map(|range| {
                    let aged = aged_range(range);
                    let blocks = blocks_by_age(shape, spec.gc.policy, &aged, rng);
                    Scattered::new(slots, aged.hot_of(slots), blocks, slots_per_block, rng)
                });
                Content::Scattered(scattered.collect())
            }
        };
        let mut start = Start {
            slots_per_page: Divisor::new(slots_per_page),
            slots_per_block,
            blocks_per_plane: spec.geometry.blocks_per_plane,
            logical_slots: spec.logical_slots(),
            content,
            slc: None,
        };
        let planes = 0..spec.geometry.planes();
        let held = planes.map(|plane| {
            let used = start.used_blocks(placement, plane).len();
            (start.slots_of(placement, plane) as u32, used as u32)
        });
        start.slc = SlcStart::new(spec, held);
        start
    }

    /// The physical slot of a logical one; `None` where it holds nothing.
    #[inline]
    pub(crate) fn place(&self, placement: &Placement, slot: u32) -> Option<u32> {
        match self.content {
            Content::Nothing => None,
            _ => self.place_of_content(placement, slot),
        }
    }

    fn place_of_content(&self, placement: &Placement, slot: u32) -> Option<u32> {
        let (page, in_page) = self.slots_per_page.split(slot);
        let home = placement.home(page);
        let at = match &self.content {
            Content::Nothing => return None,
            Content::InOrder => self.in_order(home, in_page),
            Content::Scattered(scattered) => {
                let rank = home.rank * self.slots_per_page.get() + in_page;
                let range = placement.range_of(home.plane) as usize;
                let (block, within) = scattered[range].place(rank)?;
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

    /// How many blocks of its plane were filled before a block, where they were
    /// filled in another order than that of their numbers.
    pub(crate) fn filled_before(&self, placement: &Placement, plane: u32, block: u32) -> u32 {
        match &self.content {
            Content::Scattered(scattered) => {
                scattered[placement.range_of(plane) as usize].filled_before(block)
            }
            _ => block,
        }
    }

    /// Whether blocks are partly valid, as after long overwriting.
    pub(crate) fn is_scattered(&self) -> bool {
        matches!(self.content, Content::Scattered(_))
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
            (Content::Nothing, _) => return None,
            (Content::InOrder, _) => block * self.slots_per_block + within,
            (Content::Scattered(scattered), _) => {
                scattered[placement.range_of(plane) as usize].rank(block, within)?
            }
        };
        let (rank, in_page) = self.slots_per_page.split(rank);
        let page = placement.page_at(Home { plane, rank })?;
        let slot = page as u64 * self.slots_per_page.get() as u64 + in_page as u64;
        (slot < self.logical_slots).then_some(slot as u32)
    }

    /// Blocks of a plane that are not erased, with their valid slots.
    pub(crate) fn used_blocks(&self, placement: &Placement, plane: u32) -> Vec<u16> {
        let held = self.slots_of(placement, plane);
        let mut valid: Vec<u16> = match &self.content {
            Content::Nothing => Vec::new(),
            Content::InOrder => {
                let per_block = self.slots_per_block as u64;
                (0..held.div_ceil(per_block))
                    .map(|block| (held - block * per_block).min(per_block) as u16)
                    .collect()
            }
            Content::Scattered(scattered) => {
                let scattered = &scattered[placement.range_of(plane) as usize];
                let mut valid = scattered.valid().to_vec();
                for rank in held..scattered.slots() {
                    if let Some(block) = self.block_of_rank(placement, plane, rank as u32) {
                        valid[block as usize] -= 1;
                    }
                }
                valid
            }
        };
        // What the SLC cache holds lies nowhere else.
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
            Content::Nothing => None,
            Content::InOrder => Some(rank / self.slots_per_block),
            Content::Scattered(scattered) => {
                let range = placement.range_of(plane) as usize;
                scattered[range].place(rank).map(|at| at.0)
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
