//! Random orders of the numbers below a bound, in constant memory.
//!
//! A Feistel network (Luby and Rackoff, SIAM Journal on Computing 17(2), 1988) maps each number to
//! another, and can be inverted. It covers somewhat more numbers than the range; a result outside
//! the range is mapped again (Black and Rogaway: "Ciphers with arbitrary finite domains", CT-RSA
//! 2002).

#![cfg_attr(not(test), no_std)]

mod bits;
mod digits;

pub use bits::Bits;
pub use digits::Digits;

/// Number of rounds: four look random in both directions (Luby and Rackoff).
pub const ROUNDS: usize = 4;

/// The division of a number into halves, and the mixing of a round.
pub trait Halves {
    /// Returns the left and the right half of a number.
    fn split(&self, number: u64) -> (u64, u64);

    /// Returns the number with these halves.
    fn join(&self, left: u64, right: u64) -> u64;

    /// Mixes a value that the round derives from `right` into `left`.
    fn mix(&self, round: usize, left: u64, right: u64) -> u64;

    /// Inverts [`Halves::mix`].
    fn unmix(&self, round: usize, left: u64, right: u64) -> u64;
}

/// A random order of the numbers below a bound.
#[derive(Clone, Debug)]
pub struct Permutation<H> {
    bound: u64,
    halves: H,
}

impl<H: Halves> Permutation<H> {
    /// Returns an order of the numbers below `bound`; `halves` must cover at least these.
    pub fn new(bound: u64, halves: H) -> Permutation<H> {
        Permutation { bound, halves }
    }

    /// The bound.
    #[inline]
    pub fn bound(&self) -> u64 {
        self.bound
    }

    /// The halves, for drawing another order.
    pub fn halves_mut(&mut self) -> &mut H {
        &mut self.halves
    }

    /// The number at this position of the order; both are below the bound.
    #[inline]
    pub fn shuffled(&self, number: u64) -> u64 {
        self.walk(number, |mut left, mut right| {
            for round in 0..ROUNDS {
                (left, right) = (right, self.halves.mix(round, left, right));
            }
            (left, right)
        })
    }

    /// The position of this number in the order.
    #[inline]
    pub fn unshuffled(&self, number: u64) -> u64 {
        self.walk(number, |mut left, mut right| {
            for round in (0..ROUNDS).rev() {
                (left, right) = (self.halves.unmix(round, right, left), left);
            }
            (left, right)
        })
    }

    #[inline]
    fn walk(&self, mut number: u64, network: impl Fn(u64, u64) -> (u64, u64)) -> u64 {
        loop {
            let (left, right) = self.halves.split(number);
            let (left, right) = network(left, right);
            number = self.halves.join(left, right);
            if number < self.bound {
                return number;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand_xoshiro::SplitMix64;
    use rand_xoshiro::rand_core::{RngCore, SeedableRng};

    fn by_bits(bound: u64, seed: u64) -> Permutation<Bits> {
        let mut random = SplitMix64::seed_from_u64(seed);
        let mut halves = Bits::covering(bound);
        halves.draw_keys(|| random.next_u64());
        Permutation::new(bound, halves)
    }

    fn by_digits(bound: u32, seed: u64) -> Permutation<Digits> {
        Permutation::new(bound.into(), Digits::covering(bound, seed))
    }

    fn is_a_permutation<H: Halves>(order: &Permutation<H>) -> bool {
        let mut seen = vec![false; order.bound() as usize];
        (0..order.bound()).all(|number| {
            let place = order.shuffled(number);
            let is_new = !std::mem::replace(&mut seen[place as usize], true);
            is_new && order.unshuffled(place) == number
        })
    }

    proptest! {
        #[test]
        fn each_number_has_a_place_of_its_own(seed: u64, bound in 1u32..3000) {
            prop_assert!(is_a_permutation(&by_bits(bound.into(), seed)));
            prop_assert!(is_a_permutation(&by_digits(bound, seed)));
        }

        #[test]
        fn any_bound_works(bound in 1u64.., seed: u64, number: u64) {
            let order = by_bits(bound, seed);
            let place = order.shuffled(number % bound);
            prop_assert!(place < bound);
            prop_assert_eq!(order.unshuffled(place), number % bound);
        }

        #[test]
        fn digits_reach_the_last_number(seed: u64, number in 0..u32::MAX) {
            let order = by_digits(u32::MAX, seed);
            let number = u64::from(number);
            prop_assert_eq!(order.unshuffled(order.shuffled(number)), number);
        }
    }

    #[test]
    fn every_part_of_the_order_covers_every_part_of_the_range() {
        // 64 parts of the order by 64 parts of the range, with 1000 numbers expected in each cell.
        // A chi-square with 63 * 63 degrees of freedom has mean 3969 and standard deviation 89.
        for seed in 0..5 {
            let bound = 64 * 64 * 1000;
            let order = by_bits(bound, seed);
            let mut cells = vec![0u32; 64 * 64];
            for number in 0..bound {
                let row = number * 64 / bound;
                cells[(row * 64 + order.shuffled(number) * 64 / bound) as usize] += 1;
            }
            let chi: f64 = cells
                .iter()
                .map(|n| (f64::from(*n) - 1000.0).powi(2) / 1000.0)
                .sum();
            assert!((3969.0 - 450.0..3969.0 + 450.0).contains(&chi), "{chi}");
        }
    }

    #[test]
    fn neighbours_do_not_follow_one_another() {
        let order = by_bits(100_000, 3);
        let places: Vec<u64> = (0..100_000).map(|n| order.shuffled(n)).collect();
        let close = places.windows(2).filter(|p| p[0].abs_diff(p[1]) < 1000);
        // 2 % of random pairs are that close: 2000, with a standard deviation of 44.
        let close = close.count();
        assert!((1700..2300).contains(&close), "{close}");
    }

    #[test]
    fn places_do_not_follow_numbers() {
        // Of 100,000 numbers, those in the first tenth of the order: how many are in each run of
        // 1000 numbers, and how often two neighbours are.
        let order = by_digits(100_000, 5);
        let first = |number: u64| order.shuffled(number) < 10_000;
        let runs = (0..100).map(|run| (run * 1000..(run + 1) * 1000).filter(|n| first(*n)));
        // Five standard deviations of a sample, which is 9.5 of 100.
        let counts: Vec<usize> = runs.map(Iterator::count).collect();
        assert!(counts.iter().all(|n| n.abs_diff(100) < 48), "{counts:?}");
        for apart in [1, 2, 64, 316, 317, 1000, 50_000] {
            let both = (0..100_000 - apart).filter(|n| first(*n) && first(n + apart));
            let (both, wanted) = (both.count(), (100_000 - apart) as usize / 100);
            assert!(both.abs_diff(wanted) < 160, "{apart} apart: {both}");
        }
    }
}
