//! The state of one file of a process: the last I/O, the visited blocks, and the offset of the next
//! I/O (fio's `get_next_block`).

use super::random_blocks::RandomBlocks;
use super::rules::Rules;
use crate::fio::{ByDirection, Direction, JobSpec, Pattern, Sequencer, ZoneMode};
use crate::generate::layout::{FileExtent, LayoutError};
use crate::generate::random::{Random, Seeds, Stream};

#[derive(Clone, Debug)]
pub(crate) struct File {
    pub extent: FileExtent,
    /// The number of random offsets in the file.
    pub blocks: ByDirection<u64>,
    /// The end of the last I/O, relative to the process's part.
    pub end: ByDirection<u64>,
    /// The start of the last I/O, relative to the process's part.
    pub start: ByDirection<Option<u64>>,
    /// The range that was trimmed last, if it is not written yet.
    pub trimmed: Option<(u64, u64)>,
    pub random_blocks: RandomBlocks,
    pub done: bool,
}

impl File {
    pub fn new(
        spec: &JobSpec,
        rules: &Rules,
        extent: &FileExtent,
        random: Random,
    ) -> Result<File, LayoutError> {
        // Random offsets of a strided job are those of one zone (`last_block`).
        let drawn_from = match spec.zones.mode {
            ZoneMode::Strided => &FileExtent {
                length_bytes: spec.zones.range_bytes,
                ..*extent
            },
            _ => extent,
        };
        Ok(File {
            extent: *extent,
            blocks: ByDirection::from_fn(|direction| rules.blocks(drawn_from, direction)),
            end: ByDirection::default(),
            start: ByDirection::default(),
            trimmed: None,
            random_blocks: RandomBlocks::new(spec, rules, drawn_from, random)?,
            done: false,
        })
    }

    /// Restarts sequential I/O at the beginning, with no block visited.
    pub fn restart(&mut self, random: &mut Random) {
        self.end = ByDirection::default();
        self.start = ByDirection::default();
        self.trimmed = None;
        self.random_blocks.restart(random);
    }

    #[inline]
    pub fn remember(&mut self, pattern: Pattern, direction: Direction, start: u64, length: u64) {
        self.start[direction] = Some(start);
        self.end[direction] = start + length;
        if matches!(pattern, Pattern::TrimWrite | Pattern::RandTrimWrite) {
            self.trimmed = match direction {
                Direction::Trim => Some((start, length)),
                _ => None,
            };
        }
    }

    /// Returns the end of the last I/O of this direction, plus the step.
    #[inline]
    pub fn sequential(&mut self, rules: &Rules, direction: Direction) -> Option<u64> {
        let extent = &self.extent;
        let mut at = self.end[direction];
        if at >= extent.length_bytes && rules.time_based && rules.one_file {
            at = 0;
        }
        if at >= extent.file_bytes.saturating_sub(extent.offset_bytes) {
            return None;
        }
        if at == 0 || rules.step == 0 {
            return Some(at);
        }
        let end = extent.length_bytes.min(extent.file_bytes);
        match at.checked_add_signed(rules.step) {
            Some(next) if next < extent.file_bytes => Some(next),
            // I/O that goes backwards wraps to the end, I/O with holes to the beginning.
            _ if rules.step < 0 => Some(end.saturating_add_signed(rules.step)),
            _ => Some(0),
        }
    }
}

/// The random numbers that offsets are drawn from.
#[derive(Clone, Debug)]
pub(crate) struct OffsetDraws {
    pub block: Random,
    pub sequential: ByDirection<Random>,
    pub zone: Random,
    /// The number of I/Os until the next random offset.
    pub until_random: u32,
}

/// An offset relative to the process's part, whether it is random, and its length in bytes if that
/// is determined.
pub(crate) struct NextOffset {
    pub relative: u64,
    pub is_random: bool,
    pub length: Option<u64>,
}

impl NextOffset {
    fn random(relative: u64) -> NextOffset {
        NextOffset {
            relative,
            is_random: true,
            length: None,
        }
    }

    fn sequential(relative: u64) -> NextOffset {
        NextOffset {
            relative,
            is_random: false,
            length: None,
        }
    }
}

impl OffsetDraws {
    pub fn new(seeds: &Seeds) -> OffsetDraws {
        OffsetDraws {
            block: seeds.stream(Stream::Block),
            sequential: ByDirection::from_fn(|direction| {
                seeds.stream(Stream::Sequential(direction))
            }),
            zone: seeds.stream(Stream::Zone),
            until_random: 1,
        }
    }

    #[inline]
    pub fn place(
        &mut self,
        rules: &Rules,
        file: &mut File,
        direction: Direction,
    ) -> Option<NextOffset> {
        if let (Pattern::RandTrimWrite, Direction::Write, Some((start, length))) =
            (rules.pattern, direction, file.trimmed)
        {
            return Some(NextOffset {
                relative: start,
                is_random: true,
                length: Some(length),
            });
        }
        if !rules.pattern.is_random() {
            return file
                .sequential(rules, direction)
                .map(NextOffset::sequential);
        }
        self.until_random -= 1;
        if self.until_random > 0 {
            return self.between_randoms(rules, file, direction);
        }
        self.until_random = rules.random_every;
        let percent = rules.random_percent[direction];
        let random = percent == 100 || self.sequential[direction].percent() <= percent;
        if !random && let Some(relative) = file.sequential(rules, direction) {
            return Some(NextOffset::sequential(relative));
        }
        self.random(rules, file, direction).map(NextOffset::random)
    }

    /// Returns an offset between two random ones: with `rw=randread:8`, the seven after each random
    /// one.
    fn between_randoms(
        &mut self,
        rules: &Rules,
        file: &mut File,
        direction: Direction,
    ) -> Option<NextOffset> {
        let relative = match rules.sequencer {
            Sequencer::Identical => Some(file.start[direction].unwrap_or(0)),
            Sequencer::Sequential => file.sequential(rules, direction),
        };
        let fits = |at: &u64| {
            file.extent.length_bytes - rules.min[direction].min(file.extent.length_bytes) >= *at
        };
        match relative.filter(fits) {
            Some(relative) => Some(NextOffset::sequential(relative)),
            None => self.random(rules, file, direction).map(NextOffset::random),
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
        match &mut file.random_blocks {
            RandomBlocks::Any => Some(self.block.below(blocks) * align),
            RandomBlocks::Each(permutation) => permutation.next().map(|block| block * align),
            RandomBlocks::Mapped(map) => {
                let drawn = self.block.below(blocks) * align / rules.unit;
                let last = file.extent.length_bytes - rules.min[direction];
                loop {
                    let relative = map.next_free(drawn)? * rules.unit;
                    if relative <= last {
                        return Some(relative);
                    }
                    // The offset is too close to the end for a block of this direction.
                    map.visit(relative / rules.unit, 1);
                }
            }
            RandomBlocks::Ranked(ranks) => {
                let block = ranks.next() * rules.unit / align;
                Some(block.min(blocks - 1) * align)
            }
            RandomBlocks::Zoned(tables) => {
                let percent = self.zone.percent();
                let (first, count) = tables[direction].part(percent, blocks, align);
                Some((first + self.block.below(count)) * align)
            }
        }
    }
}
