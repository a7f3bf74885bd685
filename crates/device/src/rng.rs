//! Chance that is the same on every machine.

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{RngCore, SeedableRng};

/// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
#[derive(Clone, Debug)]
pub(crate) struct Rng(SplitMix64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Rng {
        Rng(SplitMix64::seed_from_u64(seed))
    }

    #[inline]
    pub(crate) fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Whether something happens that does so at this rate, from 0 to 1.
    #[inline]
    pub(crate) fn happens(&mut self, rate: f64) -> bool {
        // 53 bits are a number from 0 to below 1.
        rate > 0.0 && ((self.next() >> 11) as f64) < rate * (1u64 << 53) as f64
    }

    /// A number below a bound that may need all bits.
    #[inline]
    pub(crate) fn below_u64(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// A number below `bound`.
    #[inline]
    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        (((self.next() >> 32) * bound as u64) >> 32) as u32
    }
}
