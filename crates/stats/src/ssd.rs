//! Counters of an SSD's flash translation layer.

use alloc::vec::Vec;

use crate::fact::{Fact, Place, Unit, Value, counters, mean};
use crate::results::{DiskStats, Results};

counters! {
    /// Garbage collection.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct CollectionStats {
        /// Blocks that were garbage-collected.
        pub blocks: u64 => sum Flash Count "blocks garbage-collected",
        /// Collected blocks that still held valid data, because the host's writes had
        /// overwritten only a part of them.
        pub blocks_partly_valid: u64
            => sum Flash Count "  that writes had crossed into and left in part",
        /// Sectors of valid data that collection moved.
        pub sectors_moved: u64,
        /// Those of them that went to another plane.
        pub sectors_off_plane: u64,
        /// Those of them that went to another chip.
        pub sectors_off_chip: u64,
        /// Time from the choice of a block to its erasure, summed, in nanoseconds.
        pub busy_ns: u64 => per(blocks) Flash Nanoseconds "  one took, mean":
            "Time from the choice of a block to its erasure, mean.",
        /// The longest time from the choice of a block to its erasure, in nanoseconds.
        pub longest_ns: u64 => max Flash Nanoseconds "  one took, at most",
        /// Page reads of the host that garbage collection delayed: it used their die
        /// between the read's arrival and its start.
        pub reads_behind: u64 => sum Flash Count "pages whose read waited behind collection",
        /// Time by which garbage collection delayed page reads of the host, summed, in
        /// nanoseconds.
        pub reads_behind_ns: u64
            => per(reads_behind) Flash Nanoseconds "  time they lost, each":
                "Delay of a page read that waited for garbage collection, mean.",
        /// The longest delay of a page read by garbage collection, in nanoseconds.
        pub longest_read_wait_ns: u64 => max Flash Nanoseconds "  time one lost, at most",
        /// Host writes that waited for a free block, or for collection to catch up.
        pub writes_stalled: u64
            => sum Flash Count "times that writes waited for a free block",
        /// Time of these waits, summed, in nanoseconds.
        pub stalled_ns: u64 => per(writes_stalled) Flash Nanoseconds "  a wait, mean":
            "Time for which a host write waited for a free block or for collection, mean.",
        /// The longest wait of a host write for a free block or for collection, in
        /// nanoseconds.
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
    /// The writes that it refused since the start of the run.
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
    /// Blocks that wear levelling emptied because they were little worn.
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
                "Erases of a block, mean over all blocks.",
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
        /// Sectors of the host's data that were written to it.
        pub sectors_written: u64 => per(sectors_written, sectors_past)
            Flash Share "host's sectors that found room in the SLC cache":
                "Share of the host's sectors that were written to the SLC cache.",
        /// Sectors of the host's data that were not written to it, because it had no room.
        pub sectors_past: u64,
        /// Pages of the SLC cache that the host read.
        pub pages_read: u64 => sum Flash Count "pages of the SLC cache read",
        /// Blocks of the SLC cache that were folded: their data was moved out of it.
        pub blocks_folded: u64 => sum Flash Count "blocks of the SLC cache folded",
        /// Sectors moved by folding.
        pub sectors_folded: u64,
    }
    "slc_" of |disk| Some(&disk.device.slc)
}

impl SlcStats {
    /// Counts a host write, to the SLC cache or past it.
    pub fn count_write(&mut self, to_cache: bool, sectors: u64) {
        let counted = match to_cache {
            true => &mut self.sectors_written,
            false => &mut self.sectors_past,
        };
        *counted += sectors;
    }
}

counters! {
    /// Merges of log blocks. All zero for a drive that does not map blocks.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct MergeStats {
        /// Switch merges: sequential log blocks that became data blocks as they were.
        pub switched: u64 => sum Flash Count "logs that became data blocks as they were",
        /// Partial merges: sequential log blocks that became data blocks after the rest of the
        /// old data block was copied to them.
        pub partial: u64 => sum Flash Count "  that took the rest from the old block",
        /// Full merges: data blocks rewritten from the newest copies of their pages.
        pub full: u64 => sum Flash Count "data blocks written anew from logs",
        /// Sectors that merges copied.
        pub sectors_moved: u64,
        /// Pages programmed as padding, because the pages of a block are programmed in order.
        pub pages_padded: u64,
        /// Time of the merges that copied, from begin to end, summed over planes, in
        /// nanoseconds.
        pub busy_ns: u64,
        /// The longest time of a merge that copied, in nanoseconds.
        pub longest_ns: u64 => max Flash Nanoseconds "  a merge, at most",
    }
    "merges_" of |disk| Some(&disk.device.merges)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stalls_add_up_and_the_longest_is_kept() {
        let mut stats = CollectionStats::default();
        [30, 50, 20]
            .into_iter()
            .for_each(|ns| stats.count_stall(ns));
        assert_eq!((stats.stalled_ns, stats.longest_stall_ns), (100, 50));
    }

    #[test]
    fn a_write_goes_to_the_slc_cache_or_past_it() {
        let mut stats = SlcStats::default();
        stats.count_write(true, 8);
        stats.count_write(true, 16);
        stats.count_write(false, 3);
        assert_eq!((stats.sectors_written, stats.sectors_past), (24, 3));
    }
}
