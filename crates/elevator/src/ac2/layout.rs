//! Which die an address is on.

use blklab_blk::Tunables;

use super::tunables::{DIES, RANGES, STRIPE_KB};
use crate::divide::Divisor;

/// Ranges of whole pages, each over dies of its own, page by page.
#[derive(Clone, Copy)]
pub(super) struct Layout {
    sectors_per_page: Divisor,
    pages_per_range: Divisor,
    dies_per_range: Divisor,
}

impl Layout {
    pub(super) fn new(tunables: &Tunables, capacity_sectors: u64) -> Layout {
        let dies = tunables.at(DIES) as u64;
        let ranges = (tunables.at(RANGES) as u64).min(dies);
        let page = tunables.at(STRIPE_KB) as u64 * 2;
        let pages = capacity_sectors.div_ceil(page);
        Layout {
            sectors_per_page: Divisor::new(page),
            pages_per_range: Divisor::new(pages.div_ceil(ranges)),
            dies_per_range: Divisor::new(dies / ranges),
        }
    }

    pub(super) fn die_of(&self, sector: u64) -> usize {
        let (page, _) = self.sectors_per_page.split(sector);
        let (range, page) = self.pages_per_range.split(page);
        let (_, die) = self.dies_per_range.split(page);
        (range * self.dies_per_range.get() + die) as usize
    }
}
