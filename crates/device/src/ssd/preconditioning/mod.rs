//! The state of a drive before its first command.
//!
//! The steady state of an aged drive is either scaled up from a smaller plane
//! ([`steady`]) or reached by carrying out every write ([`ageing`]), the reference for
//! the first.

pub(crate) mod ageing;
mod scaled_row;
pub(crate) mod steady;

use alloc::vec::Vec;

use crate::Rng;
use crate::ssd::ftl::Ftl;
use crate::ssd::ftl::initial_map::ScatteredPlanes;
use crate::ssd::ftl::placement::Placement;
use crate::ssd::ftl::scattered::{Occupied, Scattered};
use crate::ssd::spec::{AgedSpec, InitialState, SsdSpec};
use ageing::FreeTarget;
use scaled_row::PlaneShape;
use strength_reduce::StrengthReducedU32;

/// Most moments of the steady state that planes are distributed over.
const MOMENTS: u32 = 16;

/// The translation layer of a drive before its first command; `seed` decides
/// which entries a cached map holds.
pub(crate) fn precondition(spec: &SsdSpec, seed: u64, rng: &mut Rng) -> Ftl {
    let placement = Placement::of(spec);
    let scattered = match &spec.state {
        InitialState::Aged(aged) if !aged.simulate => {
            Some(scattered_planes(spec, aged, &placement, rng))
        }
        _ => None,
    };
    let mut ftl = Ftl::new(spec, placement, scattered, seed);
    if let InitialState::Aged(aged) = &spec.state
        && aged.simulate
    {
        ageing::overwrite(&mut ftl, spec, aged, rng);
    }
    if !spec.write_cache.power_loss_protection {
        ftl.keep_older_copies();
    }
    ftl
}

/// The planes of a drive after long overwriting, scaled up from small ones.
fn scattered_planes(
    spec: &SsdSpec,
    aged: &AgedSpec,
    placement: &Placement,
    rng: &mut Rng,
) -> ScatteredPlanes {
    let (slots, live) = slots_of_a_plane(spec, aged, placement);
    let slots_per_block = spec.slots_per_page() * spec.geometry.pages_per_block;
    let planes_per_row = spec.planes_per_row();
    // Without hot and cold data all planes of a row are statistically alike.
    let states_per_row = match aged.is_even() {
        true => 1,
        false => planes_per_row,
    };
    let shape = PlaneShape {
        blocks: spec.data_blocks_per_plane(),
        slots_per_block,
        slots_per_step: spec.slots_per_word_line(),
        live,
        room: FreeTarget::at_start(spec),
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
    ScatteredPlanes {
        states,
        moments,
        planes_per_row,
        states_per_row,
        oldest,
    }
}

/// Slots of the address space in a plane, and those of them that hold data.
fn slots_of_a_plane(spec: &SsdSpec, aged: &AgedSpec, placement: &Placement) -> (u32, u32) {
    let planes = 0..spec.geometry.planes();
    let most_pages = planes.map(|plane| placement.pages_of(plane)).max();
    let slots = most_pages.unwrap_or(0) * spec.slots_per_page();
    (
        slots,
        libm::round(slots as f64 * aged.occupancy).max(1.0) as u32,
    )
}

/// Which slots of a plane hold data.
fn occupied(slots: u32, live: u32, aged: &AgedSpec) -> Occupied {
    Occupied::new((slots, aged.hot_of(slots)), (live, aged.hot_of(live)))
}

/// The logical slots of an aged drive that hold data, in order of address.
fn occupied_slots(spec: &SsdSpec, aged: &AgedSpec, placement: &Placement) -> Vec<u32> {
    let (slots, live) = slots_of_a_plane(spec, aged, placement);
    let per_page = StrengthReducedU32::new(spec.slots_per_page());
    let ranges = spec.geometry.planes() / placement.planes_per_range();
    let of_range = |range| occupied(slots, live, &aged.of_range(range, ranges));
    let occupied: Vec<Occupied> = (0..ranges).map(of_range).collect();
    (0..spec.logical_slots() as u32)
        .filter(|slot| {
            let (page, in_page) = StrengthReducedU32::div_rem(*slot, per_page);
            let home = placement.home(page);
            let rank = home.rank * per_page.get() + in_page;
            occupied[placement.range_of(home.plane) as usize].holds(rank)
        })
        .collect()
}
