//! Non-uniform distributions: Zipf, Pareto and normal over a range of blocks as fio defines them
//! (its `lib/zipf.c` and `lib/gauss.c`), and parts of a file with percentages of the I/O (`zoned`,
//! `zoned_abs`).
//!
//! fio draws a rank, where small ranks are more popular, and scatters the ranks over the range by a
//! multiplicative hash, so that popular blocks are not adjacent.

use crate::fio::{Popularity, PopularityCurve, Zone};
use crate::generate::random::Random;

/// The multiplier of the kernel's `hash_64`, with which fio scatters ranks.
const GOLDEN_RATIO: u64 = 0x61c8_8646_80b5_83eb;

/// The most terms of zeta that fio adds up.
const ZETA_TERMS: u64 = 10_000_000;

/// A generator of blocks by their popularity.
#[derive(Clone, Debug)]
pub(crate) struct Ranks {
    shape: Shape,
    range: u64,
    /// An offset that is added to each draw, modulo the range.
    shift: u64,
    /// Whether ranks are scattered over the range.
    scatter: bool,
    random: Random,
}

#[derive(Clone, Debug)]
enum Shape {
    Zipf {
        alpha: f64,
        eta: f64,
        zeta: f64,
        /// The limit, as a part of zeta, below which the second rank is drawn.
        second: f64,
    },
    Pareto {
        power: f64,
    },
    Normal {
        /// The standard deviation in blocks; 0 leaves the sum of uniform draws as it is.
        deviation: u64,
    },
}

impl Ranks {
    /// Makes a distribution over `range` blocks; `range` must not be 0.
    pub fn of(range: u64, popularity: Popularity, random: Random) -> Ranks {
        let center = popularity.center;
        match popularity.curve {
            PopularityCurve::Zipf { theta } => Ranks::zipf(range, theta, center, random),
            PopularityCurve::Pareto { h } => Ranks::pareto(range, h, center, random),
            PopularityCurve::Normal { deviation_percent } => {
                Ranks::normal(range, deviation_percent, center, random)
            }
        }
    }

    /// Makes a Zipf distribution over `range` blocks; `range` must not be 0.
    fn zipf(range: u64, theta: f64, center: Option<f64>, random: Random) -> Ranks {
        let zeta = zeta(range.min(ZETA_TERMS), theta);
        let two = 1.0 + libm::pow(0.5, theta);
        let n = range as f64;
        let shape = Shape::Zipf {
            alpha: 1.0 / (1.0 - theta),
            eta: (1.0 - libm::pow(2.0 / n, 1.0 - theta)) / (1.0 - two / zeta),
            zeta,
            second: two,
        };
        Ranks::new(shape, range, center, random)
    }

    fn pareto(range: u64, h: f64, center: Option<f64>, random: Random) -> Ranks {
        let shape = Shape::Pareto {
            power: libm::log(h) / libm::log(1.0 - h),
        };
        Ranks::new(shape, range, center, random)
    }

    fn normal(range: u64, deviation_percent: f64, center: Option<f64>, random: Random) -> Ranks {
        let deviation = (range as f64 * deviation_percent / 100.0).ceil() as u64;
        let shape = Shape::Normal {
            deviation: deviation.min(range / 2),
        };
        let mut ranks = Ranks::new(shape, range, None, random);
        ranks.shift = match center {
            // The draws are around the middle; the shift moves them to the center.
            Some(center) if center < 0.5 => range - (range as f64 * (0.5 - center)) as u64,
            Some(center) => (range as f64 * (center - 0.5)) as u64,
            None => 0,
        };
        ranks
    }

    fn new(shape: Shape, range: u64, center: Option<f64>, mut random: Random) -> Ranks {
        let shift = match center {
            Some(center) => (range as f64 * center) as u64,
            None => random.below(range),
        };
        Ranks {
            shape,
            range,
            shift,
            scatter: true,
            random,
        }
    }

    /// Keeps popular ranks adjacent, as fio does for choosing files.
    pub fn unscattered(mut self) -> Ranks {
        self.scatter = false;
        self
    }

    /// Returns the next block.
    pub fn next(&mut self) -> u64 {
        let rank = self.rank();
        let place = match self.scatter {
            true => rank.wrapping_mul(GOLDEN_RATIO),
            false => rank,
        };
        // fio's sum wraps at 2^64, too.
        place.wrapping_add(self.shift) % self.range
    }

    fn rank(&mut self) -> u64 {
        let n = self.range as f64;
        match self.shape {
            Shape::Zipf {
                alpha,
                eta,
                zeta,
                second,
            } => {
                let u = self.random.unit();
                let z = u * zeta;
                if z < 1.0 {
                    0
                } else if z < second {
                    1
                } else {
                    (n * libm::pow(eta * u - eta + 1.0, alpha)) as u64
                }
            }
            Shape::Pareto { power } => ((n - 1.0) * libm::pow(self.random.unit(), power)) as u64,
            Shape::Normal { deviation } => self.normal_rank(deviation),
        }
    }

    /// Returns the mean of twelve uniform draws, moved by up to half a deviation.
    fn normal_rank(&mut self, deviation: u64) -> u64 {
        const DRAWS: u128 = 12;
        let mut sum = 0u128;
        for _ in 0..DRAWS {
            sum += u128::from(self.random.below(self.range.saturating_add(1)));
        }
        let mean = sum.div_ceil(DRAWS) as i128;
        if deviation == 0 {
            return mean as u64;
        }
        let mut move_by = (deviation as f64 * self.random.unit()) as i128 - (deviation / 2) as i128;
        while !(0..i128::from(self.range)).contains(&(mean + move_by)) && move_by != 0 {
            move_by /= 2;
        }
        (mean + move_by) as u64
    }
}

/// Returns the sum of `1 / i^theta` for `i` from 1 to `n`.
fn zeta(n: u64, theta: f64) -> f64 {
    /// The number of terms that are added one by one; the rest is their integral with the first two
    /// corrections of Euler and Maclaurin, with an error below 1e-12.
    const EXACT: u64 = 1000;
    let term = |i: u64| libm::pow(i as f64, -theta);
    let exact: f64 = (1..=n.min(EXACT)).map(term).sum();
    if n <= EXACT {
        return exact;
    }
    let (a, b) = (EXACT as f64, n as f64);
    let integral = (libm::pow(b, 1.0 - theta) - libm::pow(a, 1.0 - theta)) / (1.0 - theta);
    let ends = (term(n) - term(EXACT)) / 2.0;
    let slopes = theta * (term(EXACT) / a - term(n) / b) / 12.0;
    exact + integral + ends + slopes
}

/// A table of a hundred draws with the part of the file that each goes to.
#[derive(Clone, Debug)]
pub(crate) struct ZoneTable {
    /// The start and end of each part, in percent of the file or in bytes; empty if the direction
    /// has no zones.
    parts: Vec<(u64, u64)>,
    absolute: bool,
}

impl ZoneTable {
    pub fn new(zones: &[Zone], absolute: bool) -> ZoneTable {
        let mut parts = Vec::new();
        let mut start = 0u64;
        for zone in zones {
            let end = start.saturating_add(zone.size);
            parts.extend(std::iter::repeat_n(
                (start, end),
                zone.access_percent as usize,
            ));
            start = end;
        }
        ZoneTable { parts, absolute }
    }

    /// Returns the first block and the number of blocks of the part that draw `percent` (1 to 100)
    /// goes to.
    pub fn part(&self, percent: u32, blocks: u64, block_bytes: u64) -> (u64, u64) {
        let Some(&(start, end)) = self.parts.get(percent as usize - 1) else {
            return (0, blocks);
        };
        let place = |at: u64| match self.absolute {
            true => at / block_bytes,
            false => (u128::from(at) * u128::from(blocks) / 100) as u64,
        };
        (place(start), place(end) - place(start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: usize = 200_000;

    fn counts(mut ranks: Ranks) -> Vec<u32> {
        let mut counts = vec![0u32; ranks.range as usize];
        for _ in 0..DRAWS {
            counts[ranks.next() as usize] += 1;
        }
        counts
    }

    fn sorted(mut counts: Vec<u32>) -> Vec<f64> {
        counts.sort_unstable_by(|a, b| b.cmp(a));
        counts
            .into_iter()
            .map(|n| f64::from(n) / DRAWS as f64)
            .collect()
    }

    #[test]
    fn zeta_is_its_sum() {
        for theta in [0.5, 0.9, 1.1, 1.2, 2.0] {
            let n = 100_000;
            let plain: f64 = (1..=n).map(|i| libm::pow(i as f64, -theta)).sum();
            assert!((zeta(n, theta) / plain - 1.0).abs() < 1e-10, "{theta}");
        }
    }

    #[test]
    fn zipf_ranks_are_as_popular_as_their_power() {
        let theta = 1.2;
        let range = 10_000;
        let ranks = Ranks::zipf(range, theta, Some(0.0), Random::new(1)).unscattered();
        let counts = counts(ranks);
        let zeta = zeta(range, theta);
        // The first two are exact; the rest follow a continuous curve.
        for (rank, tolerance) in [(0, 0.03), (1, 0.05), (9, 0.3)] {
            let expected = libm::pow((rank + 1) as f64, -theta) / zeta;
            let found = f64::from(counts[rank]) / DRAWS as f64;
            assert!(
                (found / expected - 1.0).abs() < tolerance,
                "{rank}: {found} {expected}"
            );
        }
        let ten: u32 = counts[..100].iter().sum();
        let expected: f64 = (1..=100).map(|i| libm::pow(i as f64, -theta)).sum::<f64>() / zeta;
        assert!((f64::from(ten) / DRAWS as f64 / expected - 1.0).abs() < 0.03);
    }

    #[test]
    fn pareto_gives_the_few_the_many() {
        // With a power of h, a share h of the blocks gets a share 1 - h of the I/O.
        for h in [0.1, 0.2, 0.3] {
            let range = 10_000;
            let ranks = Ranks::pareto(range, h, Some(0.0), Random::new(2)).unscattered();
            let counts = counts(ranks);
            let few: u32 = counts[..(range as f64 * h) as usize].iter().sum();
            let found = f64::from(few) / DRAWS as f64;
            assert!((found - (1.0 - h)).abs() < 0.01, "{h}: {found}");
        }
    }

    #[test]
    fn normal_draws_gather_around_the_middle() {
        let range = 10_000;
        let ranks = Ranks::normal(range, 0.0, None, Random::new(3)).unscattered();
        let counts = counts(ranks);
        // The mean of twelve uniform draws deviates by range / 12.
        let deviation = range as usize / 12;
        let middle = range as usize / 2;
        let near: u32 = counts[middle - deviation..middle + deviation].iter().sum();
        let found = f64::from(near) / DRAWS as f64;
        assert!((found - 0.683).abs() < 0.01, "{found}");
    }

    #[test]
    fn a_center_moves_the_middle() {
        let range = 1000;
        let ranks = Ranks::normal(range, 5.0, Some(0.25), Random::new(4)).unscattered();
        let counts = counts(ranks);
        let low: u32 = counts[..500].iter().sum();
        assert!(f64::from(low) / DRAWS as f64 > 0.95);
    }

    #[test]
    fn scattering_keeps_the_shares() {
        let plain = Ranks::zipf(4096, 1.1, Some(0.0), Random::new(5)).unscattered();
        let scattered = Ranks::zipf(4096, 1.1, None, Random::new(5));
        let (plain, scattered) = (sorted(counts(plain)), sorted(counts(scattered)));
        for rank in [0, 1, 10] {
            assert!((plain[rank] / scattered[rank] - 1.0).abs() < 0.15);
        }
    }

    #[test]
    fn tiny_ranges_do_not_break() {
        for range in 1..5 {
            for mut ranks in [
                Ranks::zipf(range, 0.0, None, Random::new(1)),
                Ranks::zipf(range, 1.1, Some(1.0), Random::new(1)),
                Ranks::pareto(range, 0.2, None, Random::new(1)),
                Ranks::normal(range, 99.0, Some(0.0), Random::new(1)),
            ] {
                for _ in 0..100 {
                    assert!(ranks.next() < range);
                }
            }
        }
    }

    fn zone(access_percent: u32, size: u64) -> Zone {
        Zone {
            access_percent,
            size,
        }
    }

    #[test]
    fn parts_of_a_file() {
        let table = ZoneTable::new(&[zone(60, 10), zone(40, 90)], false);
        assert_eq!(table.part(1, 1000, 1), (0, 100));
        assert_eq!(table.part(60, 1000, 1), (0, 100));
        assert_eq!(table.part(61, 1000, 1), (100, 900));
        assert_eq!(table.part(100, 1000, 1), (100, 900));
        let table = ZoneTable::new(&[zone(100, 8192)], true);
        assert_eq!(table.part(50, 1000, 4096), (0, 2));
        assert_eq!(ZoneTable::new(&[], true).part(5, 1000, 4096), (0, 1000));
    }
}
