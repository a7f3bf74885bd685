//! Where everything is at the start, by formula: a drive that was written for
//! months costs no more memory than a fresh one.

use super::divide::Divisor;
use super::geometry::{Home, Placement};
use super::rng::Rng;
use super::slc_start::SlcStart;
use super::spec::{InitialState, SsdSpec};
use super::steady::{PlaneShape, valid_counts};

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
    Scattered(Scattered),
}

/// Slots lie scattered over blocks that are partly valid, alike in all planes.
#[derive(Clone, Debug)]
struct Scattered {
    /// Slots of the address space in a plane.
    slots: u64,
    /// Those of them that hold data.
    live: u64,
    /// A permutation of a plane's slots: multiplication modulo `slots`.
    factor: u64,
    inverse: u64,
    /// Valid slots of every used block, and the sums before each.
    valid: Vec<u16>,
    before: Vec<u32>,
    /// First block whose sum reaches so many parts of `live`.
    guide: Vec<u32>,
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
                    free: spec.gc.start_blocks,
                };
                let valid = valid_counts(shape, spec.gc.policy, aged, rng);
                Content::Scattered(Scattered::new(slots as u64, live as u64, valid))
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
        let (page, in_page) = self.slots_per_page.split(slot);
        let home = placement.home(page);
        let at = match &self.content {
            Content::Nothing => return None,
            Content::InOrder => self.in_order(home, in_page),
            Content::Scattered(scattered) => {
                let rank = home.rank * self.slots_per_page.get() + in_page;
                let (block, within) = scattered.place(rank, self.slots_per_block)?;
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
                scattered.rank(block, within, self.slots_per_block)?
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
                let mut valid = scattered.valid.clone();
                for rank in held..scattered.slots {
                    if let Some(block) = self.block_of_rank(rank as u32) {
                        valid[block as usize] -= 1;
                    }
                }
                valid
            }
        };
        // What the SLC cache holds lies nowhere else.
        for rank in self.slc.iter().flat_map(|slc| slc.ranks(plane)) {
            if let Some(block) = self.block_of_rank(rank) {
                valid[block as usize] -= 1;
            }
        }
        valid
    }

    /// The multi-level block, within its plane, that a plane's slot is in or
    /// would be in were it not in the SLC cache.
    fn block_of_rank(&self, rank: u32) -> Option<u32> {
        match &self.content {
            Content::Nothing => None,
            Content::InOrder => Some(rank / self.slots_per_block),
            Content::Scattered(scattered) => {
                scattered.place(rank, self.slots_per_block).map(|at| at.0)
            }
        }
    }

    /// Slots of a plane that lie in the SLC cache, by block within the plane.
    pub(crate) fn cached_blocks(&self, plane: u32) -> Vec<(u32, u16)> {
        let Some(slc) = &self.slc else {
            return Vec::new();
        };
        let mut blocks: Vec<(u32, u16)> = slc.blocks(plane).map(|block| (block, 0)).collect();
        let per_block = slc.ranks(plane).len() / blocks.len().max(1);
        for (number, rank) in slc.ranks(plane).enumerate() {
            let holds = self.block_of_rank(rank).is_some();
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

impl Scattered {
    fn new(slots: u64, live: u64, valid: Vec<u16>) -> Scattered {
        let mut sum = 0;
        let before: Vec<u32> = valid
            .iter()
            .map(|count| {
                sum += *count as u32;
                sum - *count as u32
            })
            .collect();
        let mut guide = Vec::with_capacity(valid.len() + 1);
        for part in 0..=valid.len() as u64 {
            let rank = (part * live / valid.len() as u64) as u32;
            guide.push(before.partition_point(|sum| *sum <= rank).saturating_sub(1) as u32);
        }
        // The golden ratio's part of the whole scatters neighbours evenly.
        let mut factor = (slots as f64 * 0.618_033_988_749_895) as u64 | 1;
        while greatest_common_divisor(factor, slots) != 1 {
            factor += 2;
        }
        Scattered {
            slots,
            live,
            factor: factor % slots.max(1),
            inverse: inverse(factor, slots),
            valid,
            before,
            guide,
        }
    }

    /// Block and place of a plane's slot.
    fn place(&self, rank: u32, slots_per_block: u32) -> Option<(u32, u32)> {
        let rank = rank as u64 * self.factor % self.slots;
        if rank >= self.live {
            return None;
        }
        let part = rank * self.valid.len() as u64 / self.live;
        let mut block = self.guide[part as usize] as usize;
        while block + 1 < self.before.len() && self.before[block + 1] as u64 <= rank {
            block += 1;
        }
        let within = rank - self.before[block] as u64;
        // Valid slots are spread evenly over the block.
        let place = within * slots_per_block as u64 / self.valid[block] as u64;
        Some((block as u32, place as u32))
    }

    /// The plane's slot that is there.
    fn rank(&self, block: u32, place: u32, slots_per_block: u32) -> Option<u32> {
        let valid = *self.valid.get(block as usize)? as u64;
        let within = (place as u64 * valid).div_ceil(slots_per_block as u64);
        if within >= valid || within * slots_per_block as u64 / valid != place as u64 {
            return None;
        }
        let rank = self.before[block as usize] as u64 + within;
        Some((rank as u128 * self.inverse as u128 % self.slots as u128) as u32)
    }
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    match b {
        0 => a,
        b => greatest_common_divisor(b, a % b),
    }
}

/// `factor * inverse = 1` modulo `modulus`, by the extended Euclidean algorithm.
fn inverse(factor: u64, modulus: u64) -> u64 {
    let (mut old_rest, mut rest) = (factor as i128, modulus as i128);
    let (mut old_share, mut share) = (1i128, 0i128);
    while rest != 0 {
        let quotient = old_rest / rest;
        (old_rest, rest) = (rest, old_rest - quotient * rest);
        (old_share, share) = (share, old_share - quotient * share);
    }
    old_share.rem_euclid(modulus as i128) as u64
}
