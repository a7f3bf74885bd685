//! Which blocks were visited, where blocks differ in size.
//!
//! The bitmap that fio calls axmap: above the bits of the blocks, each level
//! has one bit for 64 of the level below, set where all of them are. The next
//! free block is found in a step or two a level.

const WORD: u64 = 64;

/// A file has at most this many blocks under a map: 128 MiB of bits.
pub(crate) const MAP_LIMIT: u64 = 1 << 30;

#[derive(Clone, Debug)]
pub(crate) struct Map {
    blocks: u64,
    /// The lowest level first; the highest has one word.
    levels: Vec<Vec<u64>>,
}

impl Map {
    pub fn new(blocks: u64) -> Map {
        let mut map = Map {
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
        assert_eq!(Map::new(0).next_free(0), None);
        let mut map = Map::new(1);
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
            let mut map = Map::new(blocks);
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
}
