//! A random order of blocks in constant memory.
//!
//! fio marks visited blocks in a bitmap. Where all blocks are of one size a
//! permutation does the same, each block once and in random order, without
//! the bitmap: a Feistel network over the next power of two (Black, Rogaway:
//! "Ciphers with arbitrary finite domains", 2002), walked on where it leaves
//! the range, which it does less than half of the time.

use super::random::Random;

/// Luby and Rackoff: four rounds look random from both ends.
const ROUNDS: usize = 4;

#[derive(Clone, Debug)]
pub(crate) struct Permutation {
    blocks: u64,
    /// How many blocks were given out.
    at: u64,
    /// Bits of the left and right half. Where they differ, halves of unequal
    /// size change places each round; after an even number they are back.
    left_bits: u32,
    right_bits: u32,
    /// What each round adds, and the odd number it multiplies by.
    keys: [(u64, u64); ROUNDS],
}

impl Permutation {
    /// An order of `blocks` blocks, to be drawn by [`restart`](Self::restart).
    pub fn new(blocks: u64) -> Permutation {
        let bits = (64 - blocks.saturating_sub(1).leading_zeros()).max(2);
        Permutation {
            blocks,
            at: 0,
            left_bits: bits / 2,
            right_bits: bits - bits / 2,
            keys: [(0, 0); ROUNDS],
        }
    }

    /// Draws another order and begins it.
    pub fn restart(&mut self, random: &mut Random) {
        self.at = 0;
        for key in &mut self.keys {
            *key = (random.next(), random.next() | 1);
        }
    }

    /// The next block; `None` once each was given out.
    #[inline(never)]
    pub fn next(&mut self) -> Option<u64> {
        if self.at >= self.blocks {
            return None;
        }
        let mut block = self.shuffle(self.at);
        while block >= self.blocks {
            block = self.shuffle(block);
        }
        self.at += 1;
        Some(block)
    }

    #[inline]
    fn shuffle(&self, value: u64) -> u64 {
        let (mut left_bits, mut right_bits) = (self.left_bits, self.right_bits);
        let mut left = value >> right_bits;
        let mut right = value & ((1 << right_bits) - 1);
        for (add, times) in self.keys {
            // The product's high bits depend on all of its factor's.
            let hash = right.wrapping_add(add).wrapping_mul(times);
            let hash = (hash ^ (hash >> 29)).wrapping_mul(times) >> (64 - left_bits);
            (left, right) = (right, left ^ hash);
            (left_bits, right_bits) = (right_bits, left_bits);
        }
        (left << right_bits) | right
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn order(blocks: u64, seed: u64) -> Vec<u64> {
        let mut random = Random::new(seed);
        let mut permutation = Permutation::new(blocks);
        permutation.restart(&mut random);
        std::iter::from_fn(|| permutation.next()).collect()
    }

    proptest! {
        #[test]
        fn each_block_once(blocks in 0u64..5000, seed: u64) {
            let mut order = order(blocks, seed);
            order.sort_unstable();
            prop_assert!(order.into_iter().eq(0..blocks));
        }

        #[test]
        fn any_size_works(blocks in 1u64.., seed: u64) {
            let mut random = Random::new(seed);
            let mut permutation = Permutation::new(blocks);
            permutation.restart(&mut random);
            for _ in 0..4 {
                match permutation.next() {
                    Some(block) => prop_assert!(block < blocks),
                    None => prop_assert!(blocks < 4),
                }
            }
        }
    }

    #[test]
    fn every_part_of_the_order_covers_every_part_of_the_range() {
        // 64 places in the order by 64 places in the range: 1000 expected in
        // each cell. A chi-square with 63 * 63 degrees of freedom has mean
        // 3969 and deviation 89.
        for seed in 0..5 {
            let blocks = 64 * 64 * 1000;
            let mut cells = vec![0u32; 64 * 64];
            for (at, block) in order(blocks, seed).into_iter().enumerate() {
                let row = at as u64 * 64 / blocks;
                cells[(row * 64 + block * 64 / blocks) as usize] += 1;
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
        let order = order(100_000, 3);
        let close = order
            .windows(2)
            .filter(|pair| pair[0].abs_diff(pair[1]) < 1000)
            .count();
        // 2 % of random pairs are that close: 2000, deviation 44.
        assert!((1700..2300).contains(&close), "{close}");
    }

    #[test]
    fn another_order_each_time() {
        let mut random = Random::new(1);
        let mut permutation = Permutation::new(1000);
        permutation.restart(&mut random);
        let first: Vec<_> = std::iter::from_fn(|| permutation.next()).collect();
        permutation.restart(&mut random);
        let second: Vec<_> = std::iter::from_fn(|| permutation.next()).collect();
        assert_eq!(second.len(), 1000);
        assert_ne!(first, second);
    }
}
