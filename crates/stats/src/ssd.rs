//! What the flash translation layer of an SSD did.
/// Garbage collection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CollectionStats {
    /// Blocks collected.
    pub blocks: u64,
    /// Those of them that still held valid data: writes had crossed their
    /// borders and left a part of them.
    pub blocks_partly_valid: u64,
    /// Sectors of valid data that had to be moved for it.
    pub sectors_moved: u64,
    /// Those of them that went to another plane.
    pub sectors_off_plane: u64,
    /// Those of them that went to another chip.
    pub sectors_off_chip: u64,
    /// Time from the choice of a block to its erasure, summed, in nanoseconds.
    pub busy_ns: u64,
    /// The longest of these.
    pub longest_ns: u64,
    /// Pages whose read by the host collection held up: their die was at work
    /// for it between their coming and their start.
    pub reads_behind: u64,
    /// Time that those reads lost to it, in nanoseconds.
    pub reads_behind_ns: u64,
    /// The longest that one of them lost.
    pub longest_read_wait_ns: u64,
    /// Host writes that waited for a free block, or for collection to catch up.
    pub writes_stalled: u64,
    /// Time that they waited so, summed, in nanoseconds.
    pub stalled_ns: u64,
    /// The longest of these times.
    pub longest_stall_ns: u64,
}

impl CollectionStats {
    /// Counts how long a write waited.
    pub fn count_stall(&mut self, stall_ns: u64) {
        self.stalled_ns += stall_ns;
        self.longest_stall_ns = self.longest_stall_ns.max(stall_ns);
    }
}

/// A drive that had no room for a write, and none to gain by collection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TooFull {
    /// Writes that it refused, since the start of the run.
    pub writes: u64,
    /// When the first of them was, in the run, in nanoseconds.
    pub first_ns: u64,
    /// The plane that it was for.
    pub plane: u32,
    /// Blocks of each plane that can hold the host's data.
    pub data_blocks: u32,
    /// The sectors that one of them holds.
    pub block_sectors: u64,
    /// Sectors of valid data in the plane then.
    pub valid_sectors: u64,
    /// Blocks of each plane that collection needs for itself.
    pub spare_blocks: u32,
}

/// Static wear levelling: all zero where a drive has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LevellingStats {
    /// Blocks that were emptied because they were little worn.
    pub blocks: u64,
    /// Sectors moved for it.
    pub sectors_moved: u64,
}

/// The SLC cache: flash written with one bit a cell. All zero without one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlcStats {
    /// Sectors of the host's that went to it.
    pub sectors_written: u64,
    /// Sectors of the host's that went past it, since it had no room.
    pub sectors_past: u64,
    /// Pages of it that the host read.
    pub pages_read: u64,
    /// Blocks of it that were emptied.
    pub blocks_folded: u64,
    /// Sectors that were moved for that.
    pub sectors_folded: u64,
}

impl SlcStats {
    /// Counts a write of the host's that went to the cache or past it.
    pub fn count_write(&mut self, to_cache: bool, sectors: u64) {
        let counted = match to_cache {
            true => &mut self.sectors_written,
            false => &mut self.sectors_past,
        };
        *counted += sectors;
    }
}

/// Merges of log blocks, where a drive maps blocks: all zero elsewhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MergeStats {
    /// Sequential logs that became data blocks as they were.
    pub switched: u64,
    /// Those that took the rest from the old data block first.
    pub partial: u64,
    /// Data blocks written anew from everywhere.
    pub full: u64,
    /// Sectors that were moved for these.
    pub sectors_moved: u64,
    /// Pages programmed with nothing that anybody needs, to reach later ones.
    pub pages_padded: u64,
    /// Time from the begin of a copying merge to its end, summed over planes,
    /// in nanoseconds.
    pub busy_ns: u64,
    /// The longest of these.
    pub longest_ns: u64,
}
