//! Counters of an SSD's flash translation layer.

use crate::fact::{Fact, Place, Unit, Value, counters, mean};
use crate::results::{DiskStats, Results};

counters! {
    /// Garbage collection.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct CollectionStats {
        /// Blocks collected.
        pub blocks: u64 => sum Flash Count "blocks garbage-collected",
        /// Those of them that still held valid data: writes had crossed their borders
        /// and left a part of them.
        pub blocks_partly_valid: u64
            => sum Flash Count "  that writes had crossed into and left in part",
        /// Sectors of valid data that had to be moved for it.
        pub sectors_moved: u64,
        /// Those of them that went to another plane.
        pub sectors_off_plane: u64,
        /// Those of them that went to another chip.
        pub sectors_off_chip: u64,
        /// Time from the choice of a block to its erasure, summed, in nanoseconds.
        pub busy_ns: u64 => per(blocks) Flash Nanoseconds "  one took, mean",
        /// The longest of these.
        pub longest_ns: u64 => max Flash Nanoseconds "  one took, at most",
        /// Pages whose read by the host collection held up: their die was at work for
        /// it between their coming and their start.
        pub reads_behind: u64 => sum Flash Count "pages whose read waited behind collection",
        /// Time that those reads lost to it, in nanoseconds.
        pub reads_behind_ns: u64
            => per(reads_behind) Flash Nanoseconds "  time they lost, each",
        /// The longest that one of them lost.
        pub longest_read_wait_ns: u64 => max Flash Nanoseconds "  time one lost, at most",
        /// Host writes that waited for a free block, or for collection to catch up.
        pub writes_stalled: u64
            => sum Flash Count "times that writes waited for a free block",
        /// Time that they waited so, summed, in nanoseconds.
        pub stalled_ns: u64 => per(writes_stalled) Flash Nanoseconds "  a wait, mean",
        /// The longest of these times.
        pub longest_stall_ns: u64 => max Flash Nanoseconds "  a wait, at most",
    }
    "collection_" of |disk| Some(&disk.device.collection)
}

impl CollectionStats {
    /// Counts the time for which a write waited.
    pub fn count_stall(&mut self, stall_ns: u64) {
        self.stalled_ns += stall_ns;
        self.longest_stall_ns = self.longest_stall_ns.max(stall_ns);
    }
}

/// A drive that had no room for a write and could gain none by garbage collection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct TooFull {
    /// Writes that it refused since the start of the run.
    pub writes: u64,
    /// The time of the first of them in the run, in nanoseconds.
    pub first_ns: u64,
    /// The plane of that write.
    pub plane: u32,
    /// Blocks of each plane that can hold the host's data.
    pub data_blocks: u32,
    /// The sectors that one of them holds.
    pub block_sectors: u64,
    /// Sectors of valid data in the plane at that time.
    pub valid_sectors: u64,
    /// Blocks of each plane that collection needs for itself.
    pub spare_blocks: u32,
}

/// How evenly blocks are worn, and what static wear levelling moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct WearStats {
    /// Erases of the least worn block.
    pub min_erases: u32,
    /// Erases of the most worn block.
    pub max_erases: u32,
    /// Mean over all blocks.
    pub mean_erases: f64,
    /// The difference between the most and the least worn block.
    pub spread_erases: u32,
    /// Blocks that were emptied because they were little worn.
    pub levelled_blocks: u64,
    /// Sectors moved from these.
    pub levelled_sectors: u64,
}

impl WearStats {
    pub(crate) fn facts() -> [Fact; 3] {
        let fact = |key, label, meaning, of| Fact {
            place: Place::Flash,
            key,
            label,
            unit: Unit::Ratio,
            meaning,
            value: Value::Run(of),
        };
        [
            fact(
                "wear_mean_erases",
                "erases of a block, mean",
                "Mean over all blocks.",
                |run| mean_wear(run, |wear| wear.mean_erases),
            ),
            fact(
                "wear_min_erases",
                "  of the least worn block",
                "Erases of the least worn block.",
                |run| mean_wear(run, |wear| wear.min_erases.into()),
            ),
            fact(
                "wear_max_erases",
                "  of the most worn block",
                "Erases of the most worn block.",
                |run| mean_wear(run, |wear| wear.max_erases.into()),
            ),
        ]
    }
}

/// Returns the mean over the run's drives that have blocks.
fn mean_wear(run: &Results, of: impl Fn(&WearStats) -> f64) -> Option<f64> {
    let has_blocks = |disk: &&DiskStats| !disk.device.dies.is_empty();
    let worn = run.disks.iter().filter(has_blocks);
    let worn: Vec<f64> = worn.map(|disk| of(&disk.device.wear)).collect();
    mean(&worn)
}

counters! {
    /// The SLC cache: flash written with one bit a cell. All zero without one.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct SlcStats {
        /// Sectors of the host's that went to it.
        pub sectors_written: u64 => per(sectors_written, sectors_past)
            Flash Share "host's sectors that found room in the SLC cache",
        /// Sectors of the host's that went past it, since it had no room.
        pub sectors_past: u64,
        /// Pages of it that the host read.
        pub pages_read: u64 => sum Flash Count "pages of the SLC cache read",
        /// Blocks of it that were emptied.
        pub blocks_folded: u64 => sum Flash Count "blocks of the SLC cache folded",
        /// Sectors that were moved for that.
        pub sectors_folded: u64,
    }
    "slc_" of |disk| Some(&disk.device.slc)
}

impl SlcStats {
    /// Counts a host write that went to the SLC cache or past it.
    pub fn count_write(&mut self, to_cache: bool, sectors: u64) {
        let counted = match to_cache {
            true => &mut self.sectors_written,
            false => &mut self.sectors_past,
        };
        *counted += sectors;
    }
}

counters! {
    /// Merges of log blocks, where a drive maps blocks: all zero elsewhere.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct MergeStats {
        /// Sequential logs that became data blocks as they were.
        pub switched: u64 => sum Flash Count "logs that became data blocks as they were",
        /// Those that took the rest from the old data block first.
        pub partial: u64 => sum Flash Count "  that took the rest from the old block",
        /// Data blocks written anew from everywhere.
        pub full: u64 => sum Flash Count "data blocks written anew from logs",
        /// Sectors that were moved for these.
        pub sectors_moved: u64,
        /// Pages programmed with nothing that anybody needs, to reach later ones.
        pub pages_padded: u64,
        /// Time from the begin of a copying merge to its end, summed over planes, in
        /// nanoseconds.
        pub busy_ns: u64,
        /// The longest of these.
        pub longest_ns: u64 => max Flash Nanoseconds "  a merge, at most",
    }
    "merges_" of |disk| Some(&disk.device.merges)
}
