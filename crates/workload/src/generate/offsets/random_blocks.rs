//! Chooses the random blocks of a file: each once or independently, uniformly or by a distribution.

use blklab_permutation::{Bits, Permutation};

use super::distribution::{Ranks, ZoneTable};
use super::rules::Rules;
use crate::fio::{ByDirection, Direction, Distribution, JobSpec, RandomGenerator, Zone};
use crate::generate::layout::{FileExtent, LayoutError};
use crate::generate::random::Random;

/// The choice of random blocks of a file.
#[derive(Clone, Debug)]
pub(crate) enum RandomBlocks {
    /// Independent uniform draws.
    Any,
    /// Each block once, with one block size.
    Each(Passes),
    /// Each block once, with several block sizes.
    Mapped(RandomMap),
    /// Blocks by popularity.
    Ranked(Box<Ranks>),
    /// Parts of the file with percentages of the I/O.
    Zoned(Box<ByDirection<ZoneTable>>),
}

impl RandomBlocks {
    pub fn new(
        spec: &JobSpec,
        rules: &Rules,
        extent: &FileExtent,
        random: Random,
    ) -> Result<RandomBlocks, LayoutError> {
        if !rules.pattern.is_random() {
            return Ok(RandomBlocks::Any);
        }
        let range = extent.length_bytes.min(extent.file_bytes) / rules.unit;
        Ok(match &spec.distribution {
            Distribution::Popularity(popularity) => {
                let ranks = Ranks::of(range.max(1), *popularity, random);
                RandomBlocks::Ranked(Box::new(ranks))
            }
            Distribution::Zoned(zones) => zoned(zones, false),
            Distribution::ZonedAbsolute(zones) => {
                check_zones(spec, zones, extent)?;
                zoned(zones, true)
            }
            Distribution::Random => RandomBlocks::evenly(spec, rules, range)?,
        })
    }

    fn evenly(spec: &JobSpec, rules: &Rules, blocks: u64) -> Result<RandomBlocks, LayoutError> {
        let one_size = rules.has_one_size(spec);
        let once = !spec.no_random_map || spec.generator == RandomGenerator::Lfsr;
        Ok(match (once, one_size) {
            (true, true) => RandomBlocks::Each(Passes::new(blocks)),
            (false, _) => RandomBlocks::Any,
            (true, false) if spec.no_random_map => RandomBlocks::Any,
            (true, false) if blocks <= MAP_LIMIT => RandomBlocks::Mapped(RandomMap::new(blocks)),
            (true, false) if spec.soft_random_map => RandomBlocks::Any,
            (true, false) => {
                return Err(LayoutError::Map { blocks });
            }
        })
    }

    /// Starts over with no block visited.
    pub fn restart(&mut self, random: &mut Random) {
        match self {
            RandomBlocks::Each(permutation) => permutation.restart(random),
            RandomBlocks::Mapped(map) => map.clear(),
            _ => {}
        }
    }

    /// Takes the blocks of a random I/O; returns its largest length.
    #[inline]
    pub fn claim(&mut self, relative: u64, length: u64, unit: u64) -> u64 {
        match self {
            RandomBlocks::Mapped(map) => {
                let count = map.visit(relative / unit, length.div_ceil(unit));
                match count {
                    0 => length,
                    count => length.min(count * unit),
                }
            }
            _ => length,
        }
    }
}

fn zoned(zones: &ByDirection<Vec<Zone>>, absolute: bool) -> RandomBlocks {
    RandomBlocks::Zoned(Box::new(ByDirection::from_fn(|direction| {
        ZoneTable::new(&zones[direction], absolute)
    })))
}

fn check_zones(
    spec: &JobSpec,
    zones: &ByDirection<Vec<Zone>>,
    extent: &FileExtent,
) -> Result<(), LayoutError> {
    for direction in Direction::ALL {
        let zone_bytes = zones[direction]
            .iter()
            .fold(0u64, |sum, zone| sum.saturating_add(zone.size));
        if spec.pattern.does(direction) && zone_bytes > extent.length_bytes {
            return Err(LayoutError::Zones {
                zone_bytes,
                bytes: extent.length_bytes,
            });
        }
    }
    Ok(())
}

/// Draws each block once, in a random order.
///
/// fio marks visited blocks in a bitmap. With blocks of one size a permutation has the same effect
/// without the bitmap.
#[derive(Clone, Debug)]
pub(crate) struct Passes {
    order: Permutation<Bits>,
    /// The number of blocks drawn.
    at: u64,
}

impl Passes {
    /// Makes an order of `blocks` blocks, which [`restart`](Self::restart) draws.
    fn new(blocks: u64) -> Passes {
        Passes {
            order: Permutation::new(blocks, Bits::covering(blocks)),
            at: 0,
        }
    }

    /// Draws another order and starts it.
    fn restart(&mut self, random: &mut Random) {
        self.at = 0;
        self.order.halves_mut().draw_keys(|| random.next());
    }

    /// Returns the next block; `None` once each was drawn.
    #[inline(never)]
    pub fn next(&mut self) -> Option<u64> {
        let block = self.peek()?;
        self.at += 1;
        Some(block)
    }

    /// Returns the block that is drawn next.
    #[inline]
    pub fn peek(&self) -> Option<u64> {
        (self.at < self.order.bound()).then(|| self.order.shuffled(self.at))
    }
}

const WORD: u64 = 64;

/// The most blocks of a file with a map: 128 MiB of bits.
pub(crate) const MAP_LIMIT: u64 = 1 << 30;

/// A bitmap of visited blocks, for blocks of several sizes.
///
/// fio calls it axmap: above the bits of the blocks, each level has one bit per 64 of the level
/// below, which is set when all of these are. The next free block is found in a step or two per
/// level.
#[derive(Clone, Debug)]
pub(crate) struct RandomMap {
    blocks: u64,
    /// The levels of the bitmap from the lowest; the highest has one word.
    levels: Vec<Vec<u64>>,
}

impl RandomMap {
    pub fn new(blocks: u64) -> RandomMap {
        let mut map = RandomMap {
            blocks,
            levels: Vec::new(),
        };
        let mut bits = blocks;
        loop {
            let words = bits.div_ceil(WORD).max(1);
            map.levels.push(vec![0; words as usize]);
            if words == 1 {
                break;
            }
            bits = words;
        }
        map.clear();
        map
    }

    /// Clears all bits.
    pub fn clear(&mut self) {
        let mut bits = self.blocks;
        for level in &mut self.levels {
            level.fill(0);
            // Bits beyond the end are set, so that words can become full.
            let used = bits % WORD;
            if let Some(last) = level.last_mut()
                && (used != 0 || bits == 0)
            {
                *last = u64::MAX << used;
            }
            bits = level.len() as u64;
        }
    }

    fn is_visited(&self, block: u64) -> bool {
        self.levels[0][(block / WORD) as usize] & (1 << (block % WORD)) != 0
    }

    /// Returns the first free block from `block` on, wrapping at the end; `None` if there is none.
    pub fn next_free(&self, block: u64) -> Option<u64> {
        if block >= self.blocks {
            return self.free_from(0);
        }
        self.free_from(block).or_else(|| self.free_from(0))
    }

    fn free_from(&self, block: u64) -> Option<u64> {
        let mut bit = block;
        let mut level = 0;
        // Goes up until a word has a free bit at or after the place.
        loop {
            let words = &self.levels[level];
            let word = *words.get((bit / WORD) as usize)?;
            let free = !word & (u64::MAX << (bit % WORD));
            if free != 0 {
                bit = bit / WORD * WORD + u64::from(free.trailing_zeros());
                break;
            }
            bit = bit / WORD + 1;
            level += 1;
            if level == self.levels.len() {
                return None;
            }
        }
        // Goes down to the first free bit below it.
        while level > 0 {
            level -= 1;
            let free = !self.levels[level][bit as usize];
            bit = bit * WORD + u64::from(free.trailing_zeros());
        }
        Some(bit)
    }

    /// Marks up to `count` blocks from `block` on as visited, up to the end or the first that is
    /// marked; returns their number.
    pub fn visit(&mut self, block: u64, count: u64) -> u64 {
        let mut done = 0;
        while done < count && block + done < self.blocks && !self.is_visited(block + done) {
            self.mark(block + done);
            done += 1;
        }
        done
    }

    fn mark(&mut self, block: u64) {
        let mut bit = block;
        for level in &mut self.levels {
            let word = &mut level[(bit / WORD) as usize];
            *word |= 1 << (bit % WORD);
            if *word != u64::MAX {
                break;
            }
            bit /= WORD;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_empty_map_is_full() {
        assert_eq!(RandomMap::new(0).next_free(0), None);
        let mut map = RandomMap::new(1);
        assert_eq!(map.next_free(7), Some(0));
        assert_eq!(map.visit(0, 9), 1);
        assert_eq!(map.next_free(0), None);
    }

    proptest! {
        #[test]
        fn it_is_what_a_plain_list_is(
            blocks in 1u64..20_000,
            visits in proptest::collection::vec((any::<u64>(), 1u64..300), 1..60),
        ) {
            let mut map = RandomMap::new(blocks);
            let mut plain = vec![false; blocks as usize];
            for (at, count) in visits {
                let at = at % blocks;
                let expected = (0..blocks)
                    .map(|i| (at + i) % blocks)
                    .find(|block| !plain[*block as usize]);
                prop_assert_eq!(map.next_free(at), expected);
                let Some(free) = expected else { break };
                let run = (free..blocks)
                    .take(count as usize)
                    .take_while(|block| !plain[*block as usize])
                    .count() as u64;
                prop_assert_eq!(map.visit(free, count), run);
                plain[free as usize..(free + run) as usize].fill(true);
            }
            map.clear();
            prop_assert_eq!(map.next_free(0), Some(0));
        }
    }

    fn order(blocks: u64, random: &mut Random) -> Vec<u64> {
        let mut passes = Passes::new(blocks);
        passes.restart(random);
        std::iter::from_fn(|| passes.next()).collect()
    }

    #[test]
    fn a_pass_visits_each_block_in_another_order() {
        let mut random = Random::new(1);
        let (first, second) = (order(1000, &mut random), order(1000, &mut random));
        assert_ne!(first, second);
        for mut pass in [first, second] {
            pass.sort_unstable();
            assert!(pass.into_iter().eq(0..1000));
        }
        assert!(order(0, &mut random).is_empty());
    }
}
