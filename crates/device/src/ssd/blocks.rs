//! The state of every flash block, and who owns the pages that were written
//! since the start.
//!
//! Kept as arrays by block number, since a drive has up to some million of
//! them and a choice of a victim looks at one field of many.

/// "No block" and "no owner table".
pub(crate) const NO_BLOCK: u32 = u32::MAX;
/// A page that holds nothing of the host's.
pub(crate) const NO_OWNER: u32 = u32::MAX;

/// What a block is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// Erased.
    Free,
    /// Being written.
    Open,
    /// Written to the end.
    Full,
    /// Being collected.
    Victim,
}

/// All blocks of the drive.
#[derive(Clone, Debug)]
pub(crate) struct Blocks {
    /// Slots that hold current data.
    pub(crate) valid: Vec<u16>,
    /// Pages programmed so far; they are programmed in order.
    pub(crate) programmed: Vec<u16>,
    pub(crate) erases: Vec<u32>,
    pub(crate) uses: Vec<Use>,
    /// When it was filled, counted in blocks filled, for FIFO and cost-benefit.
    pub(crate) filled: Vec<u32>,
    fills: u32,
    slots_per_block: usize,
    /// Each block's owner table, [`NO_BLOCK`] for one written before the start.
    tables: Vec<u32>,
    owners: Vec<Box<[u32]>>,
    unused: Vec<u32>,
}

impl Blocks {
    pub(crate) fn new(blocks: u64, slots_per_block: u32) -> Blocks {
        let blocks = blocks as usize;
        Blocks {
            valid: vec![0; blocks],
            programmed: vec![0; blocks],
            erases: vec![0; blocks],
            uses: vec![Use::Free; blocks],
            filled: vec![0; blocks],
            fills: 0,
            slots_per_block: slots_per_block as usize,
            tables: vec![NO_BLOCK; blocks],
            owners: Vec::new(),
            unused: Vec::new(),
        }
    }

    /// Starts to write a block.
    pub(crate) fn open(&mut self, block: u32) {
        debug_assert_eq!(self.uses[block as usize], Use::Free);
        self.uses[block as usize] = Use::Open;
        let table = self.unused.pop().unwrap_or_else(|| {
            self.owners
                .push(vec![NO_OWNER; self.slots_per_block].into_boxed_slice());
            self.owners.len() as u32 - 1
        });
        self.owners[table as usize].fill(NO_OWNER);
        self.tables[block as usize] = table;
    }

    /// Its last page was handed out.
    pub(crate) fn fill(&mut self, block: u32) {
        self.uses[block as usize] = Use::Full;
        self.fills += 1;
        self.filled[block as usize] = self.fills;
    }

    /// Blocks filled so far: the present, for ages.
    pub(crate) fn fills(&self) -> u32 {
        self.fills
    }

    /// Its content is gone.
    pub(crate) fn erase(&mut self, block: u32) {
        debug_assert_eq!(self.valid[block as usize], 0);
        self.uses[block as usize] = Use::Free;
        self.programmed[block as usize] = 0;
        self.erases[block as usize] += 1;
        let table = std::mem::replace(&mut self.tables[block as usize], NO_BLOCK);
        if table != NO_BLOCK {
            self.unused.push(table);
        }
    }

    /// Records who owns a slot.
    #[inline]
    pub(crate) fn set_owner(&mut self, block: u32, slot: u32, owner: u32) {
        let table = self.tables[block as usize];
        self.owners[table as usize][slot as usize] = owner;
    }

    /// Who owns a slot; `None` where the block was written before the start.
    #[inline]
    pub(crate) fn owner(&self, block: u32, slot: u32) -> Option<u32> {
        match self.tables[block as usize] {
            NO_BLOCK => None,
            table => Some(self.owners[table as usize][slot as usize]),
        }
    }
}
