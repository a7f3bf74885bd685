//! Random numbers that are the same everywhere.
//!
//! Xoshiro256++ (Blackman, Vigna: "Scrambled linear pseudorandom number
//! generators", 2021) through `rand_xoshiro`, which promises to keep it.
//! `rand`'s own `SmallRng` may be another algorithm on another platform or in
//! the next version. What is drawn from it is made here rather than by
//! `rand`'s distributions for the same reason, and logarithms and powers come
//! from `libm`, because those of two systems' C libraries differ.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{RngCore, SeedableRng};

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub(crate) struct Random(Xoshiro256PlusPlus);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    #[inline]
    pub fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Evenly from 0 to `n - 1`; 0 where `n` is 0.
    #[inline]
    pub fn below(&mut self, n: u64) -> u64 {
        // Lemire's multiplication; without his rejection step the bias is at
        // most n / 2^64, which no run is long enough to show.
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }

    /// Evenly from 1 to 100.
    #[inline]
    pub fn percent(&mut self) -> u32 {
        self.below(100) as u32 + 1
    }

    /// Evenly from 0 to just below 1.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_never_change() {
        let mut random = Random::new(1);
        let drawn: Vec<u64> = (0..3).map(|_| random.next()).collect();
        assert_eq!(
            drawn,
            [
                14_971_601_782_005_023_387,
                13_781_649_495_232_077_965,
                1_847_458_086_238_483_744
            ]
        );
    }

    #[test]
    fn draws_stay_in_range() {
        let mut random = Random::new(7);
        assert_eq!(random.below(0), 0);
        assert_eq!(random.below(1), 0);
        let mut seen = [0u32; 101];
        for _ in 0..100_000 {
            seen[random.percent() as usize] += 1;
            let unit = random.unit();
            assert!((0.0..1.0).contains(&unit));
        }
        assert_eq!(seen[0], 0);
        // 1000 expected of each, standard deviation 31.5.
        assert!(seen[1..].iter().all(|n| (800..1200).contains(n)));
    }
}
