//! Two digits of a number as halves, mixed by addition: the network covers hardly more numbers than
//! the range, but each number costs a division.

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{RngCore, SeedableRng};

use super::{Halves, ROUNDS};

/// The two digits of a number.
#[derive(Clone, Debug)]
pub struct Digits {
    base: u32,
    rounds: [u64; ROUNDS],
}

impl Digits {
    /// Returns digits that cover the numbers below `bound`, for an order drawn from a seed.
    pub fn covering(bound: u32, seed: u64) -> Digits {
        let mut random = SplitMix64::seed_from_u64(seed);
        let root = u64::from(bound).isqrt();
        let base = root + u64::from(root * root < u64::from(bound));
        Digits {
            base: base as u32,
            rounds: core::array::from_fn(|_| random.next_u64()),
        }
    }

    /// The pseudo-random digit that a round derives from a digit.
    #[inline]
    fn draw(&self, round: usize, digit: u64) -> u64 {
        let drawn = SplitMix64::seed_from_u64(self.rounds[round] ^ digit).next_u64();
        ((drawn >> 32) * u64::from(self.base)) >> 32
    }
}

impl Halves for Digits {
    #[inline]
    fn split(&self, number: u64) -> (u64, u64) {
        // All numbers are below the square of the base and fit 32 bits, where division is faster.
        let number = number as u32;
        (u64::from(number / self.base), u64::from(number % self.base))
    }

    #[inline]
    fn join(&self, left: u64, right: u64) -> u64 {
        left * u64::from(self.base) + right
    }

    #[inline]
    fn mix(&self, round: usize, left: u64, right: u64) -> u64 {
        let sum = left + self.draw(round, right);
        match sum < u64::from(self.base) {
            true => sum,
            false => sum - u64::from(self.base),
        }
    }

    #[inline]
    fn unmix(&self, round: usize, left: u64, right: u64) -> u64 {
        let draw = self.draw(round, right);
        match left < draw {
            true => left + u64::from(self.base) - draw,
            false => left - draw,
        }
    }
}
