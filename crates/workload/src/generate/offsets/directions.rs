//! Draws the direction of the next I/O in a mix of reads and writes: fio's `get_rw_ddir`.

use crate::fio::{Direction, Pattern};
use crate::generate::random::Random;

/// A generator of directions in which `read_percent` of the I/Os are reads.
#[derive(Clone, Debug)]
pub(crate) struct DirectionMix {
    /// The only direction of a job that does not mix.
    only: Option<Direction>,
    read_percent: u32,
    current: Direction,
    /// The number of I/Os that the current direction issues before a change.
    until: u64,
    issued: [u64; 2],
    random: Random,
}

impl DirectionMix {
    pub fn new(pattern: Pattern, read_percent: u32, random: Random) -> DirectionMix {
        let only = match pattern {
            Pattern::Read | Pattern::RandRead => Some(Direction::Read),
            Pattern::Write | Pattern::RandWrite => Some(Direction::Write),
            Pattern::ReadWrite | Pattern::RandReadWrite => None,
            // The writes that follow trims are chosen per file.
            _ => Some(Direction::Trim),
        };
        DirectionMix {
            only,
            read_percent,
            current: Direction::Read,
            until: 0,
            issued: [0; 2],
            random,
        }
    }

    /// Returns the direction of the next I/O.
    #[inline]
    pub fn next(&mut self) -> Direction {
        match self.only {
            Some(direction) => direction,
            None => self.next_of_two(),
        }
    }

    /// Draws a direction. After a change the new direction first catches up with its share of what
    /// the old one issued, as in fio.
    #[inline(never)]
    fn next_of_two(&mut self) -> Direction {
        if self.issued[self.current as usize] < self.until {
            return self.current;
        }
        let read = self.random.percent() <= self.read_percent;
        let drawn = match read {
            true => Direction::Read,
            false => Direction::Write,
        };
        if drawn != self.current {
            let share = match drawn {
                Direction::Read => self.read_percent,
                _ => 100 - self.read_percent,
            };
            self.until = self.issued[self.current as usize] * u64::from(share) / 100;
            self.current = drawn;
        }
        drawn
    }

    /// Records that the rate made the job take `direction` instead.
    #[inline(never)]
    pub fn override_with(&mut self, direction: Direction) {
        if self.only.is_none() {
            self.current = direction;
        }
    }

    /// Whether reads and writes are mixed.
    pub fn is_mixed(&self) -> bool {
        self.only.is_none()
    }

    /// Records an issued I/O.
    #[inline]
    pub fn issued(&mut self, direction: Direction) {
        if let Some(count) = self.issued.get_mut(direction as usize) {
            *count += 1;
        }
    }

    /// Starts a new pass.
    pub fn restart(&mut self) {
        self.until = 0;
    }

    /// Restarts with the stream `random`.
    pub fn reseed(&mut self, random: Random) {
        self.random = random;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_are_their_share() {
        for percent in [0, 10, 50, 70, 90, 100] {
            let mut mix = DirectionMix::new(Pattern::RandReadWrite, percent, Random::new(9));
            let mut reads = 0;
            for _ in 0..100_000 {
                let direction = mix.next();
                mix.issued(direction);
                reads += u32::from(direction == Direction::Read);
            }
            let found = f64::from(reads) / 1000.0;
            assert!(
                (found - f64::from(percent)).abs() < 1.0,
                "{percent}: {found}"
            );
        }
    }

    #[test]
    fn one_direction_stays() {
        let mut mix = DirectionMix::new(Pattern::RandWrite, 50, Random::new(1));
        assert!((0..100).all(|_| mix.next() == Direction::Write));
    }
}
