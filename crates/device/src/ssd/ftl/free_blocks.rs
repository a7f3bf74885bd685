//! The free blocks of a plane.
//!
//! A new drive of many terabytes has tens of thousands of them a plane, nearly
//! all of which no run touches: those are a range of numbers.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

/// Erased blocks, and which is opened next.
#[derive(Clone, Debug)]
pub(crate) struct FreeBlocks {
    /// Not opened since the start; not erased either.
    untouched: Range<u32>,
    /// All others with their rank: the least goes first.
    others: BinaryHeap<Reverse<(u32, u32)>>,
    /// Blocks are ranked by their wear, else the last erased goes first.
    by_wear: bool,
    erased: u32,
}

impl FreeBlocks {
    pub(crate) fn new(untouched: Range<u32>, by_wear: bool) -> FreeBlocks {
        FreeBlocks {
            untouched,
            others: BinaryHeap::new(),
            by_wear,
            erased: 0,
        }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.untouched.len() + self.others.len()
    }

    /// A block that has been erased so many times is free.
    pub(crate) fn push(&mut self, block: u32, erases: u32) {
        self.erased += 1;
        let rank = match self.by_wear {
            true => erases,
            false => u32::MAX - self.erased,
        };
        self.others.push(Reverse((rank, block)));
    }

    /// Takes the block to open next.
    pub(crate) fn take(&mut self) -> Option<u32> {
        let other = match self.by_wear && !self.untouched.is_empty() {
            true => None,
            false => self.others.pop().map(|Reverse((_, block))| block),
        };
        other.or_else(|| self.untouched.next())
    }

    /// Takes the most worn block.
    pub(crate) fn take_most_worn(&mut self, erases: &[u32]) -> Option<u32> {
        let blocks = self.others.iter().map(|Reverse((_, block))| *block);
        let Some(worn) = blocks.max_by_key(|block| erases[*block as usize]) else {
            return self.untouched.next();
        };
        self.others.retain(|Reverse((_, block))| *block != worn);
        Some(worn)
    }

    /// Erases of the most worn block.
    pub(crate) fn most_wear(&self, erases: &[u32]) -> Option<u32> {
        self.iter().map(|block| erases[block as usize]).max()
    }

    /// Takes a certain block, before the first command.
    pub(crate) fn remove(&mut self, block: u32) {
        if self.untouched.contains(&block) {
            let after = block + 1..self.untouched.end;
            self.untouched.end = block;
            after.for_each(|block| self.push(block, 0));
        }
        self.others.retain(|Reverse((_, other))| *other != block);
    }

    /// No block counts as worn.
    pub(crate) fn forget_wear(&mut self) {
        let blocks = std::mem::take(&mut self.others).into_vec();
        for Reverse((_, block)) in blocks {
            self.push(block, 0);
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> {
        let others = self.others.iter().map(|Reverse((_, block))| *block);
        self.untouched.clone().chain(others)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_worn_goes_first_or_the_last_erased() {
        let erases = [9, 9, 3, 5, 1, 4];
        for (by_wear, order) in [(true, [0, 1, 4, 2, 5, 3]), (false, [5, 4, 3, 2, 0, 1])] {
            let mut free = FreeBlocks::new(0..2, by_wear);
            for block in 2..6 {
                free.push(block, erases[block as usize]);
            }
            assert_eq!(free.len(), 6);
            let taken: Vec<u32> = std::iter::from_fn(|| free.take()).collect();
            assert_eq!(taken, order);
        }
        let mut free = FreeBlocks::new(0..0, true);
        (2..6).for_each(|block| free.push(block, erases[block as usize]));
        assert_eq!(free.most_wear(&erases), Some(5));
        assert_eq!(free.take_most_worn(&erases), Some(3));
        free.remove(4);
        assert_eq!(free.iter().collect::<Vec<u32>>().len(), 2);
    }
}
