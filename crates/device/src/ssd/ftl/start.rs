//! Where everything is at the start, by formula: a drive that was written for
//! months costs no more memory than a fresh one.

use crate::ssd::divide::Divisor;
use crate::ssd::ftl::scattered::{Occupied, Scattered};
use crate::ssd::ftl::slc_start::SlcStart;
use crate::ssd::geometry::{Home, Placement};
use crate::ssd::preconditioning::steady::{self, PlaneShape, Room};
use crate::ssd::rng::Rng;
use crate::ssd::spec::Mapping;
use crate::ssd::spec::{AgedSpec, InitialState, SsdSpec};

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
    /// As after long overwriting.
    Scattered(Planes),
}

/// Planes after long overwriting.
#[derive(Clone, Debug)]
struct Planes {
    /// Rows of planes at several moments, for each range of addresses.
    states: Vec<Scattered>,
    moments: u32,
    planes_per_row: u32,
    /// States that the planes of a row have: one each, or one for all.
    states_per_row: u32,
    /// Age of the oldest block in any of them.
    oldest: u32,
}

/// Most moments that planes are at.
const MOMENTS: u32 = 16;

impl Start {
    pub(crate) fn new(spec: &SsdSpec, placement: &Placement, rng: &mut Rng) -> Start {
        let slots_per_page = spec.slots_per_page();
        let slots_per_block = slots_per_page * spec.geometry.pages_per_block;
        let content = match &spec.state {
            InitialState::Fresh => Content::Nothing,
            InitialState::Filled => Content::InOrder,
            InitialState::Aged(aged) if aged.simulate => match spec.ftl.mapping {
                Mapping::Page => Content::Nothing,
                Mapping::Hybrid(_) => Content::InOrder,
            },
            InitialState::Aged(aged) => Content::Scattered(Planes::new(spec, aged, placement, rng)),
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
            Content::Scattered(planes) => {
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
            Content::Scattered(planes) => {
                planes.oldest - planes.of(placement, plane).age(block).min(planes.oldest)
            }
            // In the order of their numbers.
            _ => block,
        }
    }

    /// A plane that was overwritten for long.
    pub(crate) fn scattered(&self, placement: &Placement, plane: u32) -> Option<&Scattered> {
        match &self.content {
            Content::Scattered(planes) => Some(planes.of(placement, plane)),
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
            (Content::Nothing, _) => return None,
            (Content::InOrder, _) => block * self.slots_per_block + within,
            (Content::Scattered(planes), _) => planes.of(placement, plane).rank(block, within)?,
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
            Content::Scattered(planes) => {
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
            Content::Scattered(planes) => planes.of(placement, plane).place(rank).map(|at| at.0),
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

impl Planes {
    fn new(spec: &SsdSpec, aged: &AgedSpec, placement: &Placement, rng: &mut Rng) -> Planes {
        let (slots, live) = slots_of_a_plane(spec, aged, placement);
        let slots_per_block = spec.slots_per_page() * spec.geometry.pages_per_block;
        let planes_per_row = spec.planes_per_row();
        // Where data is alike, it is all the same what is mixed with what.
        let states_per_row = match aged.is_even() {
            true => 1,
            false => planes_per_row,
        };
        let shape = PlaneShape {
            blocks: spec.data_blocks_per_plane(),
            slots_per_block,
            slots_per_step: spec.slots_per_word_line(),
            live,
            room: Room::at_start(spec),
            reserve: spec.gc.reserve_blocks,
            planes: spec.geometry.planes(),
            planes_per_row: states_per_row,
        };
        let moments = match spec.flash.superpage {
            // All planes are filled together.
            true => 1,
            false => (spec.geometry.planes() / planes_per_row).min(MOMENTS),
        };
        let mut states = Vec::new();
        let mut oldest = 0;
        let ranges = spec.geometry.planes() / placement.planes_per_range();
        for range in 0..ranges {
            let aged = aged.of_range(range, ranges);
            let occupied = occupied(slots, live, &aged);
            for state in steady::planes(shape, spec.gc.policy, &aged, moments, rng) {
                oldest = state.full.iter().fold(oldest, |age, b| age.max(b.age));
                states.push(Scattered::new(&occupied, &state, slots_per_block, rng));
            }
        }
        Planes {
            states,
            moments,
            planes_per_row,
            states_per_row,
            oldest,
        }
    }

    fn of(&self, placement: &Placement, plane: u32) -> &Scattered {
        let row = plane / self.planes_per_row;
        let moment = placement.range_of(plane) * self.moments + row % self.moments;
        &self.states[(moment * self.states_per_row + plane % self.states_per_row) as usize]
    }
}

/// Slots of the address space in a plane, and those of them that hold data.
fn slots_of_a_plane(spec: &SsdSpec, aged: &AgedSpec, placement: &Placement) -> (u32, u32) {
    let planes = 0..spec.geometry.planes();
    let most_pages = planes.map(|plane| placement.pages_of(plane)).max();
    let slots = most_pages.unwrap_or(0) * spec.slots_per_page();
    (
        slots,
        (slots as f64 * aged.occupancy).round().max(1.0) as u32,
    )
}

/// Which slots of a plane hold data.
fn occupied(slots: u32, live: u32, aged: &AgedSpec) -> Occupied {
    Occupied::new((slots, aged.hot_of(slots)), (live, aged.hot_of(live)))
}

/// The logical slots of an aged drive that hold data, in order of address.
pub(crate) fn occupied_slots(spec: &SsdSpec, aged: &AgedSpec, placement: &Placement) -> Vec<u32> {
    let (slots, live) = slots_of_a_plane(spec, aged, placement);
    let per_page = Divisor::new(spec.slots_per_page());
    let ranges = spec.geometry.planes() / placement.planes_per_range();
    let of_range = |range| occupied(slots, live, &aged.of_range(range, ranges));
    let occupied: Vec<Occupied> = (0..ranges).map(of_range).collect();
    (0..spec.logical_slots() as u32)
        .filter(|slot| {
            let (page, in_page) = per_page.split(*slot);
            let home = placement.home(page);
            let rank = home.rank * per_page.get() + in_page;
            occupied[placement.range_of(home.plane) as usize].holds(rank)
        })
        .collect()
}
