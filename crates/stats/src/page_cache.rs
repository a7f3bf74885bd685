//! Counters of the page cache.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use serde::Serialize;

use crate::fact::{Fact, Place, Unit, Value, ratio};
use crate::results::Results;

/// The memory of the page cache at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CacheSample {
    /// The time, in nanoseconds from the run's start.
    pub at_ns: u64,
    /// Dirty memory.
    pub dirty_bytes: u64,
    /// Cached memory, dirty or not.
    pub cached_bytes: u64,
}

macro_rules! cache_counts {
    ($($(#[doc = $doc:literal])+ $field:ident $key:literal $unit:ident $label:literal,)+) => {
        /// The page cache's counters of a run.
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
        pub struct CacheStats {
            $($(#[doc = $doc])+ pub $field: u64,)+
            /// The memory of control groups; empty where no group has a limit.
            #[serde(skip_serializing_if = "Vec::is_empty")]
            pub groups: Vec<MemoryGroupStats>,
            /// Memory over time from the run's start, in even steps.
            pub samples: Vec<CacheSample>,
        }

        fn counts() -> Vec<Fact> {
            vec![$(fact(
                ($key, $label, Unit::$unit),
                concat!($($doc),+).trim_ascii(),
                |run| Some(run.page_cache.as_ref()?.$field as f64),
            )),+]
        }
    };
}

cache_counts! {
    /// Pages that programs read.
    read_pages "cache_read_pages" Count "pages read",
    /// Pages that were in the cache when a program read them.
    hits "cache_hits" Count "  that were cached",
    /// Pages that were not cached, or still being read, when a program read them.
    misses "cache_misses" Count "  that were not, or still being read",
    /// Pages that were read before a program asked for them.
    readahead_pages "cache_readahead_pages" Count "pages read ahead",
    /// Pages that readahead read and that a program then read.
    readahead_used "cache_readahead_used" Count "  that a program read then",
    /// Pages that readahead read and that were dropped before a program read them.
    readahead_wasted "cache_readahead_wasted" Count "  that were dropped unread",
    /// Clean pages that were written to and became dirty.
    dirtied_pages "cache_dirtied_pages" Count "pages dirtied",
    /// Pages that were written back to a drive.
    written_pages "cache_written_pages" Count "pages written back",
    /// Pages that the flusher wrote back because they were too many or too old.
    flusher_pages "cache_flusher_pages" Count "  by the flusher",
    /// The most memory that was dirty at once.
    dirty_max_bytes "cache_dirty_max_bytes" Bytes "dirty memory at most",
    /// Time for which writers were throttled because too much memory was dirty, summed
    /// over the writers.
    throttled_ns "cache_throttled_ns" Nanoseconds "writers held back for",
    /// Pages that were evicted because memory was short.
    evicted_pages "cache_evicted_pages" Count "pages evicted",
    /// Names looked up in directories, one for each component of a path.
    names_looked_up "fs_names_looked_up" Count "names looked up",
    /// Names found in the dentry cache, including negative entries.
    names_cached "fs_names_cached" Count "  that were cached",
    /// Names found in the dentry cache as negative entries: no file has them.
    names_known_missing "fs_names_known_missing" Count "  that were known not to be there",
    /// Names that left the dentry cache because memory was short.
    names_shrunk "fs_names_shrunk" Count "  dropped because memory was short",
    /// Inodes that were dropped because memory was short.
    inodes_shrunk "fs_inodes_shrunk" Count "inodes dropped because memory was short",
    /// Blocks of file systems' metadata that were looked up: bitmaps, inodes, directories,
    /// maps.
    blocks_looked_up "fs_blocks_looked_up" Count "file system's blocks asked for",
    /// Blocks of metadata that had to be read from the drive.
    blocks_read "fs_blocks_read" Count "  that were read",
    /// Bios that wrote blocks of metadata.
    blocks_written "fs_blocks_written" Count "writes of file system's blocks",
}

macro_rules! group_counts {
    ($($(#[doc = $doc:literal])+ $field:ident $key:literal $unit:ident $label:literal,)+) => {
        /// The memory of a control group (`memory.stat`, `memory.events.local`). What happened
        /// in groups below it counts there alone.
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
        pub struct MemoryGroupStats {
            /// The group's path.
            pub name: String,
            /// Memory charged to it and to the groups below it at the end (`memory.current`).
            pub current_bytes: u64,
            /// The most of that at once, from the run's start (`memory.peak`).
            pub peak_bytes: u64,
            $($(#[doc = $doc])+ pub $field: u64,)+
        }

        fn group_facts() -> Vec<Fact> {
            vec![$(fact(
                ($key, $label, Unit::$unit),
                concat!($($doc),+).trim_ascii(),
                |run| sum_of_groups(run, |group| group.$field),
            )),+]
        }
    };
}

group_counts! {
    /// Cached pages that were charged to control groups, where one has a limit of memory.
    charged_pages "memory_charged_pages" Count "pages charged to control groups",
    /// Pages of control groups that were reclaimed, for whatever limit.
    reclaimed_pages "memory_reclaimed_pages" Count "  that were reclaimed",
    /// Reclaims because a control group was above its memory.high.
    high_events "memory_high_events" Count "reclaims for memory.high",
    /// Reclaims because a control group would have passed its memory.max.
    max_events "memory_max_events" Count "reclaims for memory.max",
    /// Writes that passed a memory.max because nothing of the group could be reclaimed for as
    /// long as Linux tries before it kills a program.
    oom_events "memory_oom_events" Count "  in vain, where Linux kills",
    /// Time for which tasks were held back because their control group was above its
    /// memory.high, summed over the tasks.
    throttled_ns "memory_throttled_ns" Nanoseconds "held back for memory.high",
}

/// A fact of a run about its page cache.
fn fact(
    (key, label, unit): (&'static str, &'static str, Unit),
    meaning: &'static str,
    of: fn(&Results) -> Option<f64>,
) -> Fact {
    Fact {
        place: Place::PageCache,
        key,
        label,
        unit,
        meaning,
        value: Value::Run(of),
    }
}

fn sum_of_groups(run: &Results, of: fn(&MemoryGroupStats) -> u64) -> Option<f64> {
    let groups = &run.page_cache.as_ref()?.groups;
    (!groups.is_empty()).then(|| groups.iter().map(of).sum::<u64>() as f64)
}

impl CacheStats {
    /// Returns the share of pages that were cached when a program read them.
    pub fn hit_ratio(&self) -> Option<f64> {
        ratio(self.hits as f64, self.read_pages as f64)
    }
}

pub(crate) fn facts() -> Vec<Fact> {
    let mut facts = vec![fact(
        ("cache_hit_ratio", "reads answered from memory", Unit::Share),
        "Share of the pages that programs read that were already in memory.",
        |run| run.page_cache.as_ref()?.hit_ratio(),
    )];
    facts.extend(counts());
    facts.extend(group_facts());
    facts
}
