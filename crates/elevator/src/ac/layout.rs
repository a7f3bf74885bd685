//! Which sub-group an address is in.

use blklab_blk::Tunables;

use super::{CHANNELS, STRIPE_KB};
use crate::divide::Divisor;

/// Where sub-groups lie on the drive.
#[derive(Clone, Copy)]
pub(super) struct Layout {
    channels: u64,
    /// Sectors a sub-group has before the next follows.
    span: Divisor,
    striped: bool,
}

impl Layout {
    pub(super) fn new(tunables: &Tunables, capacity_sectors: u64) -> Layout {
        let channels = tunables.at(CHANNELS) as u64;
        let stripe = tunables.at(STRIPE_KB) as u64 * 2;
        let span = match stripe {
            0 => capacity_sectors / channels,
            stripe => stripe,
        };
        Layout {
            channels,
            span: Divisor::new(span),
            striped: stripe > 0,
        }
    }

    pub(super) fn group_of(&self, sector: u64) -> usize {
        let (index, _) = self.span.split(sector);
        let group = if self.striped {
            index % self.channels
        } else {
            index.min(self.channels - 1)
        };
        group as usize
    }
}
