//! The state of every flash block, and the logical slots of pages that were
//! written since the start.
//!
//! Kept as an array for each field, since a drive has up to some million blocks and
//! the choice of a victim reads one field of many.

use alloc::boxed::Box;
use alloc::collections::BinaryHeap;
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::ops::Range;

/// No block.
pub(crate) const NO_BLOCK: u32 = u32::MAX;
/// A physical slot that holds no logical one.
pub(crate) const NO_OWNER: u32 = NOTHING;
/// No physical slot.
pub(crate) const NO_SLOT: u32 = NOTHING;

/// The state of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockState {
    /// Erased.
    Free,
    /// Being written.
    Open,
    /// Written to the end.
    Full,
    /// Being collected.
    Victim,
    /// For pages of the map (see [`crate::ssd::ftl::cached_map::blocks`]).
    Map,
}

/// All blocks of the drive.
#[derive(Clone, Debug)]
pub(crate) struct Blocks {
    /// Slots that hold current data.
    pub(crate) valid: Vec<u16>,
    /// Pages programmed so far; they are programmed in order.
    pub(crate) programmed: Vec<u16>,
    pub(crate) erases: Vec<u32>,
    pub(crate) states: Vec<BlockState>,
    /// When it was filled, counted in blocks filled, for FIFO and cost-benefit.
    pub(crate) filled: Vec<u32>,
    fills: u32,
    /// The logical slot of every physical one; no table for a block written before the
    /// start.
    owners: SlotTables,
    /// For every slot of a block that is not fully programmed, the copy that it replaces;
    /// empty where older copies are not kept.
    older: SlotTables,
    /// Whether a copy in it was replaced before it was programmed.
    pub(crate) replaced: Vec<bool>,
    slots_per_block: usize,
}

impl Blocks {
    pub(crate) fn new(blocks: u64, slots_per_block: u32) -> Blocks {
        let blocks = blocks as usize;
        Blocks {
            valid: vec![0; blocks],
            programmed: vec![0; blocks],
            erases: vec![0; blocks],
            states: vec![BlockState::Free; blocks],
            filled: vec![0; blocks],
            fills: 0,
            owners: SlotTables::new(blocks, slots_per_block as usize),
            older: SlotTables::new(0, 0),
            replaced: vec![false; blocks],
            slots_per_block: slots_per_block as usize,
        }
    }

    /// From now on keeps the programmed copy of a slot until a newer one is programmed.
    /// `unfinished` are the blocks in use that take further pages.
    pub(crate) fn keep_older(&mut self, unfinished: &[u32]) {
        self.older = SlotTables::new(self.states.len(), self.slots_per_block);
        for block in unfinished {
            self.older.begin(*block);
        }
    }

    /// Whether the programmed copy of a slot is kept until a newer one is programmed.
    #[inline]
    pub(crate) fn keeps_older(&self) -> bool {
        !self.older.is_empty()
    }

    /// The copy that the one in a slot replaces, or [`NO_SLOT`].
    #[inline]
    pub(crate) fn older(&self, block: u32, slot: u32) -> u32 {
        self.older.get(block, slot).unwrap_or(NO_SLOT)
    }

    #[inline]
    pub(crate) fn set_older(&mut self, block: u32, slot: u32, older: u32) {
        self.older.set(block, slot, older);
    }

    /// The next page of a block is programmed.
    #[inline]
    pub(crate) fn program(&mut self, block: u32, page: u32, pages_per_block: u32) {
        debug_assert_eq!(
            self.programmed[block as usize] as u32, page,
            "pages of a block are programmed in order and once"
        );
        self.programmed[block as usize] = page as u16 + 1;
        if page + 1 == pages_per_block && self.keeps_older() {
            self.older.end(block);
        }
    }

    /// Frees a block that was opened and not programmed.
    pub(crate) fn close_unwritten(&mut self, block: u32) {
        debug_assert_eq!(self.programmed[block as usize], 0);
        self.states[block as usize] = BlockState::Free;
        self.forget_tables(block);
    }

    /// Forgets which copies a block's slots replace.
    pub(crate) fn forget_older(&mut self, block: u32) {
        if self.keeps_older() {
            self.older.end(block);
            self.older.begin(block);
        }
    }

    fn forget_tables(&mut self, block: u32) {
        self.owners.end(block);
        if self.keeps_older() {
            self.older.end(block);
        }
    }

    /// Opens a block for writing.
    pub(crate) fn open(&mut self, block: u32) {
        debug_assert_eq!(self.states[block as usize], BlockState::Free);
        self.states[block as usize] = BlockState::Open;
        self.replaced[block as usize] = false;
        self.owners.begin(block);
        if self.keeps_older() {
            self.older.begin(block);
        }
    }

    /// Opens a block that was written up to a page before the start.
    pub(crate) fn resume(&mut self, block: u32, page: u32) {
        self.states[block as usize] = BlockState::Open;
        self.programmed[block as usize] = page as u16;
        self.owners.begin(block);
    }

    /// The last page of a block was allocated.
    pub(crate) fn fill(&mut self, block: u32) {
        self.states[block as usize] = BlockState::Full;
        self.fills += 1;
        self.filled[block as usize] = self.fills;
    }

    /// A block was filled before the start, as the one with this number.
    pub(crate) fn filled_at_start(&mut self, block: u32, fills: u64) {
        // Half of the range is left for fills while running, which are far fewer.
        let fills = fills.min(u32::MAX as u64 / 2) as u32;
        self.filled[block as usize] = fills;
        self.fills = self.fills.max(fills);
    }

    /// Blocks filled so far, against which ages are measured.
    pub(crate) fn fills(&self) -> u32 {
        self.fills
    }

    /// Erases a block.
    pub(crate) fn erase(&mut self, block: u32) {
        debug_assert_eq!(self.valid[block as usize], 0);
        self.states[block as usize] = BlockState::Free;
        self.programmed[block as usize] = 0;
        self.erases[block as usize] += 1;
        self.forget_tables(block);
    }

    /// Sets the logical slot of a physical one.
    #[inline]
    pub(crate) fn set_owner(&mut self, block: u32, slot: u32, owner: u32) {
        self.owners.set(block, slot, owner);
    }

    /// The logical slot of a physical one; `None` where the block was written before the
    /// start.
    #[inline]
    pub(crate) fn owner(&self, block: u32, slot: u32) -> Option<u32> {
        self.owners.get(block, slot)
    }
}

/// A number for every slot of some blocks, in tables that blocks take when they are
/// opened and give back.
#[derive(Clone, Debug)]
struct SlotTables {
    /// One more than the index of each block's table. Zero for none: the allocator
    /// supplies zeroed memory, so that of blocks that no run touches is never written.
    of_block: Vec<u32>,
    tables: Vec<Box<[u32]>>,
    unused: Vec<u32>,
    slots: usize,
}

/// A slot without a number.
const NOTHING: u32 = u32::MAX;

impl SlotTables {
    /// No tables yet, for `blocks` blocks of `slots` slots.
    fn new(blocks: usize, slots: usize) -> SlotTables {
        SlotTables {
            of_block: vec![0; blocks],
            tables: Vec::new(),
            unused: Vec::new(),
            slots,
        }
    }

    /// Whether there are blocks at all.
    #[inline]
    fn is_empty(&self) -> bool {
        self.of_block.is_empty()
    }

    /// Gives a block an empty table.
    fn begin(&mut self, block: u32) {
        let table = self.unused.pop().unwrap_or_else(|| {
            let table = vec![NOTHING; self.slots];
            self.tables.push(table.into_boxed_slice());
            self.tables.len() as u32 - 1
        });
        self.tables[table as usize].fill(NOTHING);
        self.of_block[block as usize] = table + 1;
    }

    /// Takes a block's table away, if it has one.
    fn end(&mut self, block: u32) {
        let table = core::mem::take(&mut self.of_block[block as usize]);
        if table > 0 {
            self.unused.push(table - 1);
        }
    }

    /// The number of a slot; `None` where its block has no table.
    #[inline]
    fn get(&self, block: u32, slot: u32) -> Option<u32> {
        match self.of_block[block as usize] {
            0 => None,
            table => Some(self.tables[table as usize - 1][slot as usize]),
        }
    }

    /// Sets the number of a slot, if its block has a table.
    #[inline]
    fn set(&mut self, block: u32, slot: u32, number: u32) {
        if let table @ 1.. = self.of_block[block as usize] {
            self.tables[table as usize - 1][slot as usize] = number;
        }
    }
}

/// The free blocks of a plane, and which is opened next.
///
/// A new drive of many terabytes has tens of thousands of them a plane, of which a run
/// touches few: the others are kept as a range.
#[derive(Clone, Debug)]
pub(crate) struct FreeBlocks {
    /// Blocks that were neither opened nor erased since the start.
    untouched: Range<u32>,
    /// All others with their rank: the least is opened first.
    others: BinaryHeap<Reverse<(u32, u32)>>,
    /// The rank is the erase count; otherwise the last erased is opened first.
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

    /// Adds a block that has been erased `erases` times.
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

    /// Takes a given block, for the state at the start.
    pub(crate) fn remove(&mut self, block: u32) {
        if self.untouched.contains(&block) {
            let after = block + 1..self.untouched.end;
            self.untouched.end = block;
            after.for_each(|block| self.push(block, 0));
        }
        self.others.retain(|Reverse((_, other))| *other != block);
    }

    /// Ranks all blocks as never erased.
    pub(crate) fn forget_wear(&mut self) {
        let blocks = core::mem::take(&mut self.others).into_vec();
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
