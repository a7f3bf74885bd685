//! Static allocation: where a page of the address space belongs.

use alloc::vec;
use alloc::vec::Vec;

use crate::ssd::spec::{Axis, Geometry, Layout, SsdSpec};
use strength_reduce::StrengthReducedU32;

/// The home of a page of the address space under static allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Home {
    /// The plane.
    pub plane: u32,
    /// Its rank among the pages of that plane.
    pub rank: u32,
}

/// Static allocation as a table: planes in the order in which pages visit them.
#[derive(Clone, Debug)]
pub(crate) struct Placement {
    /// Pages of the address space that one channel holds under
    /// [`Layout::Ranges`]; all of them under [`Layout::Striped`].
    pages_per_range: StrengthReducedU32,
    planes_per_range: StrengthReducedU32,
    /// Planes of the first range in visiting order.
    visits: Vec<u32>,
    /// The index in `visits` of every plane of the first range.
    places: Vec<u32>,
    pages: u32,
}

impl Placement {
    /// That of a drive.
    pub(crate) fn of(spec: &SsdSpec) -> Placement {
        let pages = spec.logical_slots().div_ceil(spec.slots_per_page() as u64);
        Placement::new(
            &spec.geometry,
            spec.ftl.layout,
            spec.ftl.order,
            pages as u32,
        )
    }

    /// Lays `pages` over `geometry`.
    fn new(geometry: &Geometry, layout: Layout, order: [Axis; 4], pages: u32) -> Placement {
        let ranges = match layout {
            Layout::Striped => 1,
            Layout::Ranges => geometry.channels,
        };
        let planes_per_range = geometry.planes() / ranges;
        let mut visits = Vec::with_capacity(planes_per_range as usize);
        for place in 0..planes_per_range {
            visits.push(Self::visit(geometry, layout, order, place));
        }
        let mut places = vec![0; visits.len()];
        for (place, plane) in visits.iter().enumerate() {
            places[*plane as usize] = place as u32;
        }
        Placement {
            pages_per_range: StrengthReducedU32::new(pages.div_ceil(ranges)),
            planes_per_range: StrengthReducedU32::new(planes_per_range),
            visits,
            places,
            pages,
        }
    }

    /// The plane at a place of the order, the fastest axis being the first.
    fn visit(geometry: &Geometry, layout: Layout, order: [Axis; 4], place: u32) -> u32 {
        let mut rest = place;
        let mut at = [0u32; 4];
        for axis in order {
            if layout == Layout::Ranges && axis == Axis::Channel {
                continue;
            }
            let size = geometry.size(axis);
            at[axis as usize] = rest % size;
            rest /= size;
        }
        let [channel, way, die, plane] = at;
        ((channel * geometry.packages_per_channel + way) * geometry.dies_per_package + die)
            * geometry.planes_per_die
            + plane
    }

    /// The home of a page of the address space.
    #[inline(always)]
    pub(crate) fn home(&self, page: u32) -> Home {
        if self.pages_per_range.get() == self.pages {
            return self.home_in_range(0, page);
        }
        let (range, within) = StrengthReducedU32::div_rem(page, self.pages_per_range);
        self.home_in_range(range * self.planes_per_range.get(), within)
    }

    #[inline]
    fn home_in_range(&self, first_plane: u32, page: u32) -> Home {
        let (rank, place) = StrengthReducedU32::div_rem(page, self.planes_per_range);
        Home {
            plane: first_plane + self.visits[place as usize],
            rank,
        }
    }

    /// Planes that one range of addresses is laid over.
    #[inline]
    pub(crate) fn planes_per_range(&self) -> u32 {
        self.planes_per_range.get()
    }

    /// The range that a plane belongs to.
    #[inline]
    pub(crate) fn range_of(&self, plane: u32) -> u32 {
        plane / self.planes_per_range
    }

    /// The plane that pages of a range visit at a place in their order.
    #[inline]
    pub(crate) fn plane_at(&self, range: u32, place: u32) -> u32 {
        range * self.planes_per_range.get() + self.visits[place as usize]
    }

    /// The page whose home that is; `None` where the address space ends before.
    pub(crate) fn page_at(&self, home: Home) -> Option<u32> {
        let (range, plane) = StrengthReducedU32::div_rem(home.plane, self.planes_per_range);
        let place = self.places[plane as usize];
        let within = home.rank as u64 * self.planes_per_range.get() as u64 + place as u64;
        let per_range = self.pages_per_range.get() as u64;
        if within >= per_range {
            return None;
        }
        let page = range as u64 * per_range + within;
        (page < self.pages as u64).then_some(page as u32)
    }

    /// How many pages of the address space have their home in a plane.
    pub(crate) fn pages_of(&self, plane: u32) -> u32 {
        let (range, plane) = StrengthReducedU32::div_rem(plane, self.planes_per_range);
        let place = self.places[plane as usize];
        let per_range = self.pages_per_range.get() as u64;
        let in_range = (self.pages as u64)
            .saturating_sub(range as u64 * per_range)
            .min(per_range);
        in_range
            .saturating_sub(place as u64)
            .div_ceil(self.planes_per_range.get() as u64) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Geometry = Geometry {
        channels: 2,
        packages_per_channel: 3,
        dies_per_package: 2,
        planes_per_die: 2,
        blocks_per_plane: 8,
        pages_per_block: 4,
        page_bytes: 4096,
        page_parts: 1,
    };

    #[test]
    fn cwdp_visits_channels_then_ways_then_dies_then_planes() {
        let order = Axis::parse_order("CWDP").unwrap();
        let placement = Placement::new(&SMALL, Layout::Striped, order, 1000);
        let visits: Vec<u32> = (0..8).map(|page| placement.home(page).plane).collect();
        // Plane numbers: ((channel * 3 + way) * 2 + die) * 2 + plane.
        assert_eq!(visits, [0, 12, 4, 16, 8, 20, 2, 14]);
    }

    #[test]
    fn ranges_keep_a_contiguous_part_on_each_channel() {
        let order = Axis::parse_order("CWDP").unwrap();
        let placement = Placement::new(&SMALL, Layout::Ranges, order, 1000);
        assert!((0..500).all(|page| placement.home(page).plane < 12));
        assert!((500..1000).all(|page| placement.home(page).plane >= 12));
    }

    #[test]
    fn homes_and_pages_are_each_others_inverse() {
        for layout in [Layout::Striped, Layout::Ranges] {
            for order in ["CWDP", "PDWC", "WPCD"] {
                let order = Axis::parse_order(order).unwrap();
                let placement = Placement::new(&SMALL, layout, order, 997);
                for page in 0..997 {
                    assert_eq!(placement.page_at(placement.home(page)), Some(page));
                }
                let held: u32 = (0..SMALL.planes()).map(|p| placement.pages_of(p)).sum();
                assert_eq!(held, 997);
                for plane in 0..SMALL.planes() {
                    let pages = placement.pages_of(plane);
                    let at = |rank| placement.page_at(Home { plane, rank });
                    assert!((0..pages).all(|rank| at(rank).is_some()));
                    assert_eq!(at(pages), None);
                }
            }
        }
    }
}
