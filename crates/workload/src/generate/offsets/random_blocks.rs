//! How the random blocks of a file are chosen: each once or any, evenly or
//! by a distribution.

use blklab_permutation::{Bits, Permutation};

use super::distribution::{Ranks, ZoneTable};
use super::rules::Rules;
use crate::fio::{ByDirection, Direction, Distribution, JobSpec, RandomGenerator, Zone};
use crate::generate::layout::{FileExtent, LayoutError};
use crate::generate::random::Random;

/// How random blocks of a file are chosen.
#[derive(Clone, Debug)]
pub(crate) enum RandomBlocks {
    /// Any, any time.
    Any,
    /// Each once, all of one size.
    Each(Passes),
    /// Each once, of different sizes.
    Mapped(RandomMap),
    /// Some more often than others.
    Ranked(Box<Ranks>),
    /// Parts with shares.
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
        let ranked = |ranks: fn(u64, f64, Option<f64>, Random) -> Ranks, shape, center| {
            RandomBlocks::Ranked(Box::new(ranks(range.max(1), shape, center, random.clone())))
        };
        Ok(match &spec.distribution {
            Distribution::Zipf { theta, center } => ranked(Ranks::zipf, *theta, *center),
            Distribution::Pareto { h, center } => ranked(Ranks::pareto, *h, *center),
            Distribution::Normal {
                deviation_percent,
                center,
            } => ranked(Ranks::normal, *deviation_percent, *center),
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

    /// Nothing is visited.
    pub fn restart(&mut self, random: &mut Random) {
        match self {
            RandomBlocks::Each(permutation) => permutation.restart(random),
            RandomBlocks::Mapped(map) => map.clear(),
            _ => {}
        }
    }

    /// Takes the blocks of a random I/O; returns how long it may be.
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

/// Each block once, in a random order.
///
/// fio marks visited blocks in a bitmap. Where all blocks are of one size a
/// permutation does the same without the bitmap.
#[derive(Clone, Debug)]
pub(crate) struct Passes {
    order: Permutation<Bits>,
    /// How many blocks were given out.
    at: u64,
}

impl Passes {
    /// An order of `blocks` blocks, to be drawn by [`restart`](Self::restart).
    fn new(blocks: u64) -> Passes {
        Passes {
            order: Permutation::new(blocks, Bits::covering(blocks)),
            at: 0,
        }
    }

    /// Draws another order and begins it.
    fn restart(&mut self, random: &mut Random) {
        self.at = 0;
        self.order.halves_mut().draw_keys(|| random.next());
    }

    /// The next block; `None` once each was given out.
    #[inline(never)]
    pub fn next(&mut self) -> Option<u64> {
        if self.at >= self.order.bound() {
            return None;
        }
        let block = self.order.shuffled(self.at);
        self.at += 1;
        Some(block)
    }
}

const WORD: u64 = 64;

/// A file has at most this many blocks under a map: 128 MiB of bits.
pub(crate) const MAP_LIMIT: u64 = 1 << 30;

/// Which blocks were visited, where blocks differ in size.
///
/// The bitmap that fio calls axmap: above the bits of the blocks, each level
/// has one bit for 64 of the level below, set where all of them are. The next
/// free block is found in a step or two a level.
#[derive(Clone, Debug)]
pub(crate) struct RandomMap {
    blocks: u64,
    /// The lowest level first; the highest has one word.
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

    /// Forgets all visits.
    pub fn clear(&mut self) {
        let mut bits = self.blocks;
        for level in &mut self.levels {
            level.fill(0);
            // Bits beyond the end count as visited, so that words fill up.
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

    /// The first free block from `block` on, around the end; `None` when
    /// there is none.
    pub fn next_free(&self, block: u64) -> Option<u64> {
        if block >= self.blocks {
            return self.free_from(0);
        }
        self.free_from(block).or_else(|| self.free_from(0))
    }

    fn free_from(&self, block: u64) -> Option<u64> {
        let mut bit = block;
        let mut level = 0;
        // Up, until a word has a free bit at or after the place.
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
        // Down again, to the first free bit below.
        while level > 0 {
            level -= 1;
            let free = !self.levels[level][bit as usize];
            bit = bit * WORD + u64::from(free.trailing_zeros());
        }
        Some(bit)
    }

    /// Visits up to `count` blocks from `block` on, up to the first that was
    /// visited before or the end; returns how many.
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
