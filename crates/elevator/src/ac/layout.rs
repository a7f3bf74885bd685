//! Which sub-group an address is in.

use blklab_blk::Tunables;

use super::{CHANNELS, STRIPE_KB};

/// Where sub-groups lie on the drive.
#[derive(Clone, Copy)]
pub(super) struct Layout {
    pub(super) channels: u64,
    /// Sectors a sub-group has before the next follows.
    pub(super) span: u64,
    /// 2^64 over that: a division would be a fifth of what an insert costs.
    pub(super) per_span: u64,
    pub(super) striped: bool,
}

impl Layout {
    pub(super) fn new(tunables: &Tunables, capacity_sectors: u64) -> Layout {
        let channels = tunables.at(CHANNELS) as u64;
        let stripe = tunables.at(STRIPE_KB) as u64 * 2;
        let span = match stripe {
            0 => (capacity_sectors / channels).max(1),
            stripe => stripe,
        };
        Layout {
            channels,
            span,
            per_span: u64::MAX / span,
            striped: stripe > 0,
        }
    }

    /// `sector / span`: the product is that, or one less.
    pub(super) fn index_of(&self, sector: u64) -> u64 {
        let index = ((sector as u128 * self.per_span as u128) >> 64) as u64;
        index + (sector - index * self.span >= self.span) as u64
    }

    pub(super) fn group_of(&self, sector: u64) -> usize {
        let index = self.index_of(sector);
        let group = if self.striped {
            index % self.channels
        } else {
            index.min(self.channels - 1)
        };
        group as usize
    }
}
