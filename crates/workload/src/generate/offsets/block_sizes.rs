//! Draws the size of the next block, as fio's `get_next_buflen` does.

use crate::fio::BlockSizes;
use crate::generate::random::Random;

/// A generator of the sizes of one direction.
#[derive(Clone, Debug)]
pub(crate) struct SizeDraws {
    min: u64,
    max: u64,
    /// Sizes and their shares in percent, sorted by share.
    split: Vec<(u64, u32)>,
    random: Random,
}

impl SizeDraws {
    pub fn new(sizes: &BlockSizes, random: Random) -> SizeDraws {
        SizeDraws {
            min: sizes.min_bytes,
            max: sizes.max_bytes,
            split: sizes
                .split
                .iter()
                .copied()
                .filter(|(_, share)| *share > 0)
                .collect(),
            random,
        }
    }

    /// Restarts with the stream `random`.
    pub fn reseed(&mut self, random: Random) {
        self.random = random;
    }

    /// Returns the size if there is only one.
    #[inline]
    pub fn fixed(&self) -> Option<u64> {
        (self.min == self.max).then_some(self.min)
    }

    /// Returns a size of at most `room` bytes; `None` if even the smallest does not fit.
    pub fn next(&mut self, room: u64) -> Option<u64> {
        /// The number of tries before the smallest size is taken, as a split may have no size that
        /// fits.
        const TRIES: u32 = 64;
        if room < self.min {
            return None;
        }
        for _ in 0..TRIES {
            let size = self.draw(room);
            if size <= room {
                return Some(size);
            }
        }
        Some(self.min)
    }

    fn draw(&mut self, room: u64) -> u64 {
        let drawn = match self.split.is_empty() {
            // fio adds up to the largest size rather than up to the difference, and clamps the sum,
            // so that the largest is drawn more often than the others.
            true => self.min.saturating_add(self.random.below(self.max)),
            false => self.draw_split(room),
        };
        (drawn - drawn % self.min).clamp(self.min, self.max)
    }

    fn draw_split(&mut self, room: u64) -> u64 {
        let percent = self.random.percent();
        let mut share_so_far = 0;
        let mut size = self.min;
        for (candidate, share) in &self.split {
            size = *candidate;
            share_so_far += share;
            if percent <= share_so_far && size <= room {
                break;
            }
        }
        size
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(min: u64, max: u64, split: &[(u64, u32)]) -> SizeDraws {
        let sizes = BlockSizes {
            min_bytes: min,
            max_bytes: max,
            split: split.to_vec(),
        };
        SizeDraws::new(&sizes, Random::new(1))
    }

    #[test]
    fn shares_are_kept() {
        let mut sizes = sizes(4096, 65536, &[(65536, 10), (8192, 30), (4096, 60)]);
        let mut counts = [0; 3];
        for _ in 0..100_000 {
            match sizes.next(u64::MAX) {
                Some(65536) => counts[0] += 1,
                Some(8192) => counts[1] += 1,
                Some(4096) => counts[2] += 1,
                other => panic!("{other:?}"),
            }
        }
        for (count, expected) in counts.into_iter().zip([10_000, 30_000, 60_000]) {
            assert!(i32::abs(count - expected) < 600, "{counts:?}");
        }
    }

    #[test]
    fn ranges_are_multiples_that_fit() {
        let mut sizes = sizes(512, 4096, &[]);
        let mut largest = 0;
        for room in (512..8192).cycle().step_by(64).take(20_000) {
            let size = sizes.next(room).unwrap();
            assert!(size <= room && size.is_multiple_of(512) && (512..=4096).contains(&size));
            largest = largest.max(size);
        }
        assert_eq!(largest, 4096);
        assert_eq!(sizes.next(511), None);
    }

    #[test]
    fn a_split_that_never_fits_ends() {
        let mut sizes = sizes(4096, 65536, &[(65536, 100), (4096, 0)]);
        assert_eq!(sizes.next(8192), Some(4096));
    }
}
