//! `[ftl]` and `[hybrid]`: mapping and allocation.

use alloc::format;

use blklab_description::{ReadError, Table, flag, keys, parsed, whole, word};
use strum::{Display, EnumMessage, VariantArray};

use super::{Axis, Geometry, Layout};
use crate::Identity;

/// The largest map unit, in bytes.
pub(crate) const MOST_MAP_UNIT_BYTES: u32 = 64 << 10;

/// What `ftl.order` takes.
const LEGAL_ORDER: &str = "the letters C, W, D and P in any order, the axis that runs fastest \
                           first: \"CWDP\", \"PDWC\", ...";

/// What `ftl.in_step` needs, which is known only when all tables are read.
pub(super) const IN_STEP: &str = "several planes a die, flash.multi_plane = \"same_page\", static \
                                  allocation, mapped pages and gc.scope = \"plane\", without \
                                  flash.superpage and flash.copyback";

const MAP_CACHE: &str = "ftl.map_cache_kb above 0";

/// Which plane takes the host's next page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, EnumMessage, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Allocation {
    /// The one that its address decides.
    Static,
    /// The next in the order whose die is idle.
    NextFree,
    /// The one whose die, then channel, has the least queued.
    LeastLoaded,
}

keys! {
    /// Mapping and allocation.
    #[derive(Clone, Debug, PartialEq)]
    pub struct FtlSpec(table, root: &Table<'_>, geometry: &Geometry, identity: &Identity) {
        /// Bytes that one entry of the map covers.
        pub map_unit_bytes: u32 = whole(512..=MOST_MAP_UNIT_BYTES)
            .such_that(
                |bytes: &u32| {
                    bytes.is_power_of_two()
                        && (identity.logical_block_bytes..=geometry.page_bytes).contains(bytes)
                },
                format!(
                    "a power of two from the logical block ({}) to the page ({})",
                    identity.logical_block_bytes, geometry.page_bytes
                ),
            )
            .documented("a power of two from the logical block to the page");
        /// Order in which addresses go over channels (C), ways (W), dies (D) and
        /// planes (P).
        pub order: [Axis; 4] = parsed(LEGAL_ORDER, Axis::parse_order);
        /// How logical addresses are spread over channels.
        pub layout: Layout = word();
        /// Size of an entry of the map on the flash.
        let map_entry_bytes: u32 = whole(1..=64).or(4);
        /// Entries of a page of the map.
        pub entries_per_map_page: u32 => geometry.page_bytes / map_entry_bytes;
        /// Reads of unwritten addresses go to the flash, too.
        pub read_unwritten: bool = flag().or(false);
        /// What the map has entries of.
        let mapping: MappedUnit = word().or(MappedUnit::Page);
        /// What the map has entries of, with the logs of hybrid mapping.
        pub mapping: Mapping => Mapping::of(mapping, root, table)?;
        /// Which plane takes the host's next page.
        pub allocation: Allocation = word().or(Allocation::Static);
        /// DRAM for entries of the map; 0: all of them are in DRAM.
        let map_cache_kb: u64 = whole(0..=1 << 24).or(0);
        /// Size of an entry in that DRAM, with its key.
        let map_cache_entry_bytes: u64 = whole(1..=64).or(8).needs(map_cache_kb > 0, MAP_CACHE);
        /// Entries of the map kept in DRAM; `None` where all of them are.
        pub map_cache_entries: Option<u32> =>
            cached_entries(map_cache_kb * 1024, map_cache_entry_bytes);
        /// Entries of a line of that DRAM, which are read and evicted together.
        pub map_line_entries: u32 = whole(1..=1 << 16)
            .or(1)
            .such_that(
                |line: &u32| line.is_power_of_two() && entries_per_map_page.is_multiple_of(*line),
                format!(
                    "a power of two that divides the {entries_per_map_page} entries of a page of the map"
                ),
            )
            .documented("a power of two that divides the entries of a page of the map")
            .needs(map_cache_kb > 0, MAP_CACHE);
        /// Planes of a die are filled in step, so that one command can program them all.
        pub in_step: bool = flag().or(true).needs(true, IN_STEP);
    }
}

/// How many entries of the map a cache holds; `None` where there is none.
fn cached_entries(bytes: u64, entry_bytes: u64) -> Option<u32> {
    (bytes > 0).then(|| (bytes / entry_bytes).min(u32::MAX as u64 - 1) as u32)
}

/// What `ftl.mapping` takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, EnumMessage, VariantArray)]
#[strum(serialize_all = "snake_case")]
enum MappedUnit {
    /// Map units.
    Page,
    /// Blocks, and map units of log blocks (FAST).
    Hybrid,
}

/// What the map has entries of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mapping {
    /// Map units.
    Page,
    /// Blocks, and map units of log blocks.
    Hybrid(HybridSpec),
}

impl Mapping {
    fn of(unit: MappedUnit, root: &Table<'_>, ftl: &Table<'_>) -> Result<Mapping, ReadError> {
        match (unit, root.table_if_any("hybrid")?) {
            (MappedUnit::Page, None) => Ok(Mapping::Page),
            (MappedUnit::Page, Some(_)) => Err(root.wrong(
                "hybrid",
                "legal is to leave this table out where ftl.mapping is not \"hybrid\"",
            )),
            (MappedUnit::Hybrid, None) => Err(ftl.wrong(
                "mapping",
                "legal is \"page\" where there is no table [hybrid]",
            )),
            (MappedUnit::Hybrid, Some(table)) => HybridSpec::read(&table).map(Mapping::Hybrid),
        }
    }
}

keys! {
    /// The log blocks of every plane, with `ftl.mapping = "hybrid"`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct HybridSpec(table) {
        /// Log blocks that take the pages of one logical block in order.
        pub sequential: u32 as "sequential_logs" = whole(1..=16);
        /// Log blocks that take any page.
        pub random: u32 as "random_logs" = whole(1..=1 << 16);
        /// Most logical blocks that a random log may have pages of; without it, any number.
        pub associativity: Option<u32> = whole(1..=1 << 16).optional();
    }
}

impl HybridSpec {
    /// Blocks of a plane besides its data blocks: all logs, the target of a merge, and one
    /// that is being erased.
    pub(crate) fn spare_blocks(&self) -> u32 {
        self.sequential + self.random + 2
    }
}
