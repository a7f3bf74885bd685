//! A number's upper and lower bits as halves, mixed by exclusive or: fast, but the network covers
//! up to twice as many numbers as the range.

use super::{Halves, ROUNDS};

/// The upper and the lower bits of a number.
#[derive(Clone, Debug)]
pub struct Bits {
    /// Number of bits in the left and right half. Halves of unequal size swap their sizes in each
    /// round; after an even number of rounds they are restored.
    left_bits: u32,
    right_bits: u32,
    /// For each round a number to add and an odd number to multiply by.
    keys: [(u64, u64); ROUNDS],
}

impl Bits {
    /// Returns halves that cover the numbers below `bound`. All rounds are equal until
    /// [`Bits::draw_keys`].
    pub fn covering(bound: u64) -> Bits {
        let bits = (64 - bound.saturating_sub(1).leading_zeros()).max(2);
        Bits {
            left_bits: bits / 2,
            right_bits: bits - bits / 2,
            keys: [(0, 0); ROUNDS],
        }
    }

    /// Draws keys for another order, two random numbers for each round.
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
        // The high bits of a product depend on all bits of its factors.
        let hash = right.wrapping_add(add).wrapping_mul(times);
        left ^ ((hash ^ (hash >> 29)).wrapping_mul(times) >> (64 - left_bits))
    }

    #[inline]
    fn unmix(&self, round: usize, left: u64, right: u64) -> u64 {
        self.mix(round, left, right)
    }
}
