//! Bios as file systems make them.

use blklab_blk::{BioFlags, Op, Sector};

/// Names a bio under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BioId(pub u32);

/// A bio on its way to the block layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bio {
    /// What it does.
    pub op: Op,
    /// How.
    pub flags: BioFlags,
    /// Where it begins.
    pub sector: Sector,
    /// How long it is, in sectors.
    pub size_sectors: u32,
}

impl Bio {
    /// The sector behind its last one.
    pub const fn end(&self) -> u64 {
        self.sector.0 + self.size_sectors as u64
    }
}
