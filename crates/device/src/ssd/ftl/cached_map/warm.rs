//! What a cache held before the start, without a list of it.
//!
//! Of all keys from 0 on, some were used before the start, in random order. The
//! order is a permutation that can be asked both ways: the keys that are left are those before one place of the order, and the
//! key at that place is the one used longest ago.

use blklab_permutation::{Digits, Permutation};

/// The keys that are left from before the start, last used first, and among
/// them those that were used since.
#[derive(Clone, Debug)]
pub(crate) struct Warm {
    /// From keys to how long ago they were used.
    order: Permutation<Digits>,
    left: u32,
}

impl Warm {
    /// `held` of `all` keys, or all if there are no more, drawn from a seed.
    pub(crate) fn new(seed: u64, held: u32, all: u32) -> Warm {
        Warm {
            order: Permutation::new(all.into(), Digits::covering(all, seed)),
            left: held.min(all),
        }
    }

    /// Whether a key that was not used since the start is still here.
    pub(crate) fn holds(&self, key: u32) -> bool {
        self.left > 0 && self.order.shuffled(key.into()) < u64::from(self.left)
    }

    /// The key used longest ago goes; those that were used since are passed over.
    pub(crate) fn push_out(&mut self, was_used: impl Fn(u32) -> bool) {
        while self.left > 0 {
            self.left -= 1;
            if !was_used(self.order.unshuffled(self.left.into()) as u32) {
                break;
            }
        }
    }
}
