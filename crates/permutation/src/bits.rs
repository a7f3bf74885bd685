//! Halves of a number's bits, mixed by exclusive or: fast, and at most twice as
//! many numbers as there are.

use super::{Halves, ROUNDS};

/// The upper and the lower bits of a number.
#[derive(Clone, Debug)]
pub struct Bits {
    /// Bits of the left and right half. Where they differ, halves of unequal
    /// size change places each round; after an even number they are back.
    left_bits: u32,
    right_bits: u32,
    /// What each round adds, and the odd number it multiplies by.
    keys: [(u64, u64); ROUNDS],
}

impl Bits {
    /// Halves that cover the numbers below `bound`. All rounds are the same until
    /// [`Bits::draw_keys`].
    pub fn covering(bound: u64) -> Bits {
        let bits = (64 - bound.saturating_sub(1).leading_zeros()).max(2);
        Bits {
            left_bits: bits / 2,
            right_bits: bits - bits / 2,
            keys: [(0, 0); ROUNDS],
        }
    }

    /// Draws another order: two random numbers a round.
    pub fn draw_keys(&mut self, mut random: impl FnMut() -> u64) {
        for key in &mut self.keys {
            *key = (random(), random() | 1);
        }
    }
}

impl Halves for Bits {
    #[inline]
    fn split(&self, number: u64) -> (u64, u64) {
        (
            number >> self.right_bits,
            number & ((1 << self.right_bits) - 1),
        )
    }

    #[inline]
    fn join(&self, left: u64, right: u64) -> u64 {
        (left << self.right_bits) | right
    }

    #[inline]
    fn mix(&self, round: usize, left: u64, right: u64) -> u64 {
        let left_bits = match round % 2 {
            0 => self.left_bits,
            _ => self.right_bits,
        };
        let (add, times) = self.keys[round];
        // The product's high bits depend on all of its factor's.
        let hash = right.wrapping_add(add).wrapping_mul(times);
        left ^ ((hash ^ (hash >> 29)).wrapping_mul(times) >> (64 - left_bits))
    }

    #[inline]
    fn unmix(&self, round: usize, left: u64, right: u64) -> u64 {
        self.mix(round, left, right)
    }
}
