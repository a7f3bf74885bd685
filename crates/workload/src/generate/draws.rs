//! Where the next I/O to a file begins: fio's `get_next_block`.

use super::file::File;
use super::random::Random;
use super::rules::Rules;
use super::seeds::{Seeds, Stream};
use super::visits::Visits;
use crate::fio::{ByDirection, Direction, Pattern, Sequencer};

/// The random numbers offsets are drawn from.
#[derive(Clone, Debug)]
pub(crate) struct Draws {
    pub block: Random,
    pub sequential: ByDirection<Random>,
    pub zone: Random,
    /// I/Os until the next random offset.
    pub until_random: u32,
}

/// An offset relative to the extent, how it came about, and for how many
/// bytes, where that is settled.
pub(crate) struct Place {
    pub relative: u64,
    pub is_random: bool,
    pub length: Option<u64>,
}

impl Place {
    fn random(relative: u64) -> Place {
        Place {
            relative,
            is_random: true,
            length: None,
        }
    }

    fn sequential(relative: u64) -> Place {
        Place {
            relative,
            is_random: false,
            length: None,
        }
    }
}

impl Draws {
    pub fn new(seeds: &Seeds) -> Draws {
        Draws {
            block: seeds.stream(Stream::Block),
            sequential: ByDirection::from_fn(|direction| {
                seeds.stream(Stream::Sequential(direction))
            }),
            zone: seeds.stream(Stream::Zone),
            until_random: 1,
        }
    }

    #[inline]
    pub fn place(&mut self, rules: &Rules, file: &mut File, direction: Direction) -> Option<Place> {
        if let (Pattern::RandTrimWrite, Direction::Write, Some((start, length))) =
            (rules.pattern, direction, file.trimmed)
        {
            return Some(Place {
                relative: start,
                is_random: true,
                length: Some(length),
            });
        }
        if !rules.pattern.is_random() {
            return file.sequential(rules, direction).map(Place::sequential);
        }
        self.until_random -= 1;
        if self.until_random > 0 {
            return self.between_randoms(rules, file, direction);
        }
        self.until_random = rules.random_every;
        let percent = rules.random_percent[direction];
        let random = percent == 100 || self.sequential[direction].percent() <= percent;
        if !random && let Some(relative) = file.sequential(rules, direction) {
            return Some(Place::sequential(relative));
        }
        self.random(rules, file, direction).map(Place::random)
    }

    /// `rw=randread:8`: the seven after each random one.
    fn between_randoms(
        &mut self,
        rules: &Rules,
        file: &mut File,
        direction: Direction,
    ) -> Option<Place> {
        let relative = match rules.sequencer {
            Sequencer::Identical => Some(file.start[direction].unwrap_or(0)),
            Sequencer::Sequential => file.sequential(rules, direction),
        };
        let fits = |at: &u64| {
            file.extent.length_bytes - rules.min[direction].min(file.extent.length_bytes) >= *at
        };
        match relative.filter(fits) {
            Some(relative) => Some(Place::sequential(relative)),
            None => self.random(rules, file, direction).map(Place::random),
        }
    }

    #[inline]
    fn random(&mut self, rules: &Rules, file: &mut File, direction: Direction) -> Option<u64> {
        if let Some(relative) = self.random_once(rules, file, direction) {
            return Some(relative);
        }
        if !rules.time_based {
            return None;
        }
        file.restart(&mut self.block);
        self.random_once(rules, file, direction)
    }

    #[inline]
    fn random_once(&mut self, rules: &Rules, file: &mut File, direction: Direction) -> Option<u64> {
        let align = rules.align[direction];
        let blocks = file.blocks[direction];
        if blocks == 0 {
            return None;
        }
        match &mut file.visits {
            Visits::Any => Some(self.block.below(blocks) * align),
            Visits::Each(permutation) => permutation.next().map(|block| block * align),
            Visits::Mapped(map) => {
                let drawn = self.block.below(blocks) * align / rules.unit;
                let last = file.extent.length_bytes - rules.min[direction];
                loop {
                    let relative = map.next_free(drawn)? * rules.unit;
                    if relative <= last {
                        return Some(relative);
                    }
                    // Too near the end for this direction's blocks.
                    map.visit(relative / rules.unit, 1);
                }
            }
            Visits::Ranked(ranks) => {
                let block = ranks.next() * rules.unit / align;
                Some(block.min(blocks - 1) * align)
            }
            Visits::Zoned(tables) => {
                let percent = self.zone.percent();
                let (first, count) = tables[direction].part(percent, blocks, align);
                Some((first + self.block.below(count)) * align)
            }
        }
    }
}
