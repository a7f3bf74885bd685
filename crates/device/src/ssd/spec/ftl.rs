//! `[ftl]`: where data goes.

use super::super::hybrid::spec::{self as hybrid, Mapping};
use crate::Identity;
use crate::ssd::geometry::{Axis, Geometry, Layout};
use blklab_description::{ReadError, Table};

/// The largest map unit, in bytes.
pub(crate) const MOST_MAP_UNIT_BYTES: u32 = 64 << 10;

/// What `ftl.order` takes.
const LEGAL_ORDER: &str = "the letters C, W, D and P in any order, the axis that runs fastest \
                           first: \"CWDP\", \"PDWC\", ...";

/// `[ftl]`
#[derive(Clone, Debug, PartialEq)]
pub struct FtlSpec {
    /// What one entry of the map covers.
    pub map_unit_bytes: u32,
    /// How logical addresses are laid over the flash.
    pub layout: Layout,
    /// Order in which they go over channels (C), ways (W), dies (D), planes (P).
    pub order: [Axis; 4],
    /// What the map has entries of.
    pub mapping: Mapping,
    /// Who decides which plane a page goes to.
    pub allocation: Allocation,
    /// Entries of the map kept in DRAM; `None` where all of them are.
    pub map_cache_entries: Option<u32>,
    /// Entries that one read of the map brings in, and that go out together.
    pub map_line_entries: u32,
    /// Entries of a page of the map.
    pub entries_per_map_page: u32,
    /// Planes of a die are filled in step, so that they can program as one.
    pub in_step: bool,
    /// A read of what was never written goes to the flash nevertheless.
    pub read_unwritten: bool,
}

/// Which plane takes the host's next page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocation {
    /// Its address decides.
    Static,
    /// The next in the order whose die has nothing to do.
    NextFree,
    /// The one whose die, then channel, has least to do.
    LeastLoaded,
}

pub(super) fn read_ftl(
    root: &Table<'_>,
    table: &Table<'_>,
    geometry: &Geometry,
    identity: &Identity,
) -> Result<FtlSpec, ReadError> {
    let map_unit_bytes = table.int("map_unit_bytes", 512..=MOST_MAP_UNIT_BYTES as u64)? as u32;
    if !map_unit_bytes.is_power_of_two()
        || map_unit_bytes > geometry.page_bytes
        || map_unit_bytes < identity.logical_block_bytes
    {
        return Err(table.wrong(
            "map_unit_bytes",
            format!(
                "legal is a power of two from the logical block ({}) to the page ({})",
                identity.logical_block_bytes, geometry.page_bytes
            ),
        ));
    }
    let order = table.parsed("order", LEGAL_ORDER, Axis::parse_order)?;
    let layout = table.choice(
        "layout",
        &[("striped", Layout::Striped), ("ranges", Layout::Ranges)],
    )?;
    let map_entry_bytes = table.int_or("map_entry_bytes", 1..=64, 4)? as u32;
    let entries_per_map_page = geometry.page_bytes / map_entry_bytes;
    let read_unwritten = table.flag_or("read_unwritten", false)?;
    let ftl = FtlSpec {
        map_unit_bytes,
        layout,
        order,
        mapping: hybrid::read_mapping(root, table)?,
        allocation: table.choice_or(
            "allocation",
            &[
                ("static", Allocation::Static),
                ("next_free", Allocation::NextFree),
                ("least_loaded", Allocation::LeastLoaded),
            ],
            Allocation::Static,
        )?,
        map_cache_entries: map_cache_entries(table)?,
        map_line_entries: map_line_entries(table, entries_per_map_page)?,
        entries_per_map_page,
        in_step: table.flag_or("in_step", true)?,
        read_unwritten,
    };
    table.finish()?;
    Ok(ftl)
}

/// How many entries come in together: whole lines make up a page of the map.
fn map_line_entries(table: &Table<'_>, per_page: u32) -> Result<u32, ReadError> {
    let line = table.int_or("map_line_entries", 1..=1 << 16, 1)? as u32;
    match line.is_power_of_two() && per_page.is_multiple_of(line) {
        true => Ok(line),
        false => Err(table.wrong(
            "map_line_entries",
            format!(
                "legal is a power of two that divides the {per_page} entries of a page of the map"
            ),
        )),
    }
}

/// How much of the map is in DRAM: all of it unless the description says how
/// much memory there is, and how large an entry is with its own address.
fn map_cache_entries(table: &Table<'_>) -> Result<Option<u32>, ReadError> {
    let kb = table.int_or("map_cache_kb", 0..=1 << 24, 0)?;
    let entry_bytes = table.int_or("map_cache_entry_bytes", 1..=64, 8)?;
    match kb {
        0 => Ok(None),
        kb => Ok(Some(
            (kb * 1024 / entry_bytes).min(u32::MAX as u64 - 1) as u32
        )),
    }
}
