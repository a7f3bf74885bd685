//! A number for every slot of some blocks: tables that blocks take when they
//! are opened and give back.

/// Tables by block.
#[derive(Clone, Debug)]
pub(crate) struct SlotTables {
    /// One more than the number of each block's table; zero for none, so that
    /// memory of blocks that no run touches is never written.
    of_block: Vec<u32>,
    tables: Vec<Box<[u32]>>,
    unused: Vec<u32>,
    slots: usize,
}

/// A slot of which nothing was noted.
pub(crate) const NOTHING: u32 = u32::MAX;

impl SlotTables {
    /// For so many blocks of so many slots.
    pub(crate) fn new(blocks: usize, slots: usize) -> SlotTables {
        SlotTables {
            of_block: vec![0; blocks],
            tables: Vec::new(),
            unused: Vec::new(),
            slots,
        }
    }

    /// Whether there are blocks at all.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.of_block.is_empty()
    }

    /// Gives a block a table in which nothing is noted.
    pub(crate) fn begin(&mut self, block: u32) {
        let table = self.unused.pop().unwrap_or_else(|| {
            let table = vec![NOTHING; self.slots];
            self.tables.push(table.into_boxed_slice());
            self.tables.len() as u32 - 1
        });
        self.tables[table as usize].fill(NOTHING);
        self.of_block[block as usize] = table + 1;
    }

    /// Takes a block's table away, if it has one.
    pub(crate) fn end(&mut self, block: u32) {
        let table = std::mem::take(&mut self.of_block[block as usize]);
        if table > 0 {
            self.unused.push(table - 1);
        }
    }

    /// What is noted of a slot; `None` where its block has no table.
    #[inline]
    pub(crate) fn get(&self, block: u32, slot: u32) -> Option<u32> {
        match self.of_block[block as usize] {
            0 => None,
            table => Some(self.tables[table as usize - 1][slot as usize]),
        }
    }

    /// Notes something of a slot, if its block has a table.
    #[inline]
    pub(crate) fn set(&mut self, block: u32, slot: u32, number: u32) {
        if let table @ 1.. = self.of_block[block as usize] {
            self.tables[table as usize - 1][slot as usize] = number;
        }
    }
}
