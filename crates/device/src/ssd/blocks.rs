//! The state of every flash block, and who owns the pages that were written
//! since the start.
//!
//! Kept as arrays by block number, since a drive has up to some million of
//! them and a choice of a victim looks at one field of many.

/// "No block" and "no owner table".
pub(crate) const NO_BLOCK: u32 = u32::MAX;
/// A page that holds nothing of the host's.
pub(crate) const NO_OWNER: u32 = u32::MAX;
/// No physical slot.
pub(crate) const NO_SLOT: u32 = u32::MAX;

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
    older: Older,
}

/// For every slot of a block that is not programmed to its end: the copy that
/// it replaces, [`NO_SLOT`] where there is none to keep.
#[derive(Clone, Debug)]
struct Older {
    /// Each block's table, [`NO_BLOCK`] for one without.
    of_block: Vec<u32>,
    tables: Vec<Box<[u32]>>,
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
            older: Older {
                of_block: Vec::new(),
                tables: Vec::new(),
                unused: Vec::new(),
            },
        }
    }

    /// From now on copies are kept until their successor is programmed.
    pub(crate) fn keep_older(&mut self) {
        self.older.of_block = vec![NO_BLOCK; self.uses.len()];
        for block in 0..self.uses.len() {
            if self.uses[block] == Use::Open {
                self.older.begin(block as u32, self.slots_per_block);
            }
        }
    }

    /// Whether copies are kept until their successor is programmed.
    #[inline]
    pub(crate) fn keeps_older(&self) -> bool {
        !self.older.of_block.is_empty()
    }

    /// The copy that a slot's data replaces.
    #[inline]
    pub(crate) fn older(&self, block: u32, slot: u32) -> u32 {
        match self.older.of_block[block as usize] {
            NO_BLOCK => NO_SLOT,
            table => self.older.tables[table as usize][slot as usize],
        }
    }

    #[inline]
    pub(crate) fn set_older(&mut self, block: u32, slot: u32, older: u32) {
        match self.older.of_block[block as usize] {
            NO_BLOCK => {}
            table => self.older.tables[table as usize][slot as usize] = older,
        }
    }

    /// One more page of a block is programmed.
    #[inline]
    pub(crate) fn program(&mut self, block: u32, page: u32, pages_per_block: u32) {
        debug_assert_eq!(
            self.programmed[block as usize] as u32, page,
            "pages of a block are programmed in order and once"
        );
        self.programmed[block as usize] = page as u16 + 1;
        if page + 1 == pages_per_block && self.keeps_older() {
            self.older.forget(block);
        }
    }

    /// A block that was opened and not programmed is as it was before.
    pub(crate) fn close_unwritten(&mut self, block: u32) {
        debug_assert_eq!(self.programmed[block as usize], 0);
        self.uses[block as usize] = Use::Free;
        self.forget_tables(block);
    }

    /// Forgets which copies a block's slots replace.
    pub(crate) fn forget_older(&mut self, block: u32) {
        match self.older.of_block.get(block as usize) {
            None | Some(&NO_BLOCK) => {}
            Some(table) => self.older.tables[*table as usize].fill(NO_SLOT),
        }
    }

    fn forget_tables(&mut self, block: u32) {
        let table = std::mem::replace(&mut self.tables[block as usize], NO_BLOCK);
        if table != NO_BLOCK {
            self.unused.push(table);
        }
        if self.keeps_older() {
            self.older.forget(block);
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
        if self.keeps_older() {
            self.older.begin(block, self.slots_per_block);
        }
    }

    /// Its last page was handed out.
    pub(crate) fn fill(&mut self, block: u32) {
        self.uses[block as usize] = Use::Full;
        self.fills += 1;
        self.filled[block as usize] = self.fills;
    }

    /// It was filled before the start, as the so-manyth.
    pub(crate) fn filled_at_start(&mut self, block: u32, fills: u32) {
        self.filled[block as usize] = fills;
        self.fills = self.fills.max(fills);
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
        self.forget_tables(block);
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

impl Older {
    fn begin(&mut self, block: u32, slots: usize) {
        let table = self.unused.pop().unwrap_or_else(|| {
            self.tables.push(vec![NO_SLOT; slots].into_boxed_slice());
            self.tables.len() as u32 - 1
        });
        self.tables[table as usize].fill(NO_SLOT);
        self.of_block[block as usize] = table;
    }

    fn forget(&mut self, block: u32) {
        let table = std::mem::replace(&mut self.of_block[block as usize], NO_BLOCK);
        if table != NO_BLOCK {
            self.unused.push(table);
        }
    }
}
