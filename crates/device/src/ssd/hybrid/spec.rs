//! Hybrid mapping in a description.

use super::super::spec::{Allocation, Copyback, GcPolicy, GcScope, GcSpec, InitialState, SsdSpec};
use blklab_description::{ReadError, Table};

/// What the map has entries of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mapping {
    /// Map units.
    Page,
    /// Blocks, and map units of log blocks.
    Hybrid(HybridSpec),
}

/// `[hybrid]`: the log blocks of every plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HybridSpec {
    /// Those that take a block's pages in order.
    pub sequential: u32,
    /// Those that take any page.
    pub random: u32,
    /// Logical blocks that one of these may have pages of; `None`: any.
    pub associativity: Option<u32>,
}

impl HybridSpec {
    /// Blocks of a plane beside its data: all logs, the block that a merge
    /// writes, and one that is being erased.
    pub(crate) fn spare_blocks(&self) -> u32 {
        self.sequential + self.random + 2
    }
}

/// Reads `ftl.mapping` and `[hybrid]`.
pub(crate) fn read_mapping(root: &Table<'_>, ftl: &Table<'_>) -> Result<Mapping, ReadError> {
    let is_hybrid = ftl.choice_or("mapping", &[("page", false), ("hybrid", true)], false)?;
    let table = root.table_if_any("hybrid")?;
    let table = match (is_hybrid, table) {
        (false, None) => return Ok(Mapping::Page),
        (false, Some(_)) => {
            let problem = "legal is to leave this table out where ftl.mapping is not \"hybrid\"";
            return Err(root.wrong("hybrid", problem));
        }
        (true, None) => {
            let problem = "legal is \"page\" where there is no table [hybrid]";
            return Err(ftl.wrong("mapping", problem));
        }
        (true, Some(table)) => table,
    };
    let logs = HybridSpec {
        sequential: table.int("sequential_logs", 1..=8)? as u32,
        random: table.int("random_logs", 1..=1 << 16)? as u32,
        associativity: table
            .int_if_any("associativity", 1..=1 << 16)?
            .map(|most| most as u32),
    };
    table.finish()?;
    Ok(Mapping::Hybrid(logs))
}

/// Reads `[gc]` of a drive with hybrid mapping: merges take what room there is,
/// so all that is left to choose is how many pages are moved at once.
pub(crate) fn read_merges(root: &Table<'_>) -> Result<GcSpec, ReadError> {
    let mut depth = 4;
    if let Some(table) = root.table_if_any("gc")? {
        depth = table.int_or("depth", 1..=16384, depth)?;
        table.finish()?;
    }
    Ok(GcSpec {
        policy: GcPolicy::Fifo,
        start_blocks: 0,
        reserve_blocks: 0,
        depth: depth as u32,
        pace_bytes: 0,
        preemptible: false,
        scope: GcScope::Plane,
    })
}

/// Refuses what goes only with a map of pages.
pub(crate) fn check(
    spec: &SsdSpec,
    root: &Table<'_>,
    ftl: &Table<'_>,
    flash: &Table<'_>,
) -> Result<(), ReadError> {
    if spec.ftl.mapping == Mapping::Page {
        return Ok(());
    }
    const WITH: &str = "where ftl.mapping = \"hybrid\"";
    if spec.ftl.allocation != Allocation::Static {
        return Err(ftl.wrong("allocation", format!("legal is \"static\" {WITH}")));
    }
    if spec.ftl.map_cache_entries.is_some() {
        return Err(ftl.wrong(
            "map_cache_kb",
            format!("legal is 0 {WITH}: its map is small"),
        ));
    }
    if spec.flash.copyback != Copyback::None {
        return Err(flash.wrong("copyback", format!("legal is \"none\" {WITH}")));
    }
    if spec.flash.superpage {
        return Err(flash.wrong("superpage", format!("legal is false {WITH}")));
    }
    if spec.slc_cache.is_some() {
        return Err(root.wrong(
            "slc_cache",
            format!("legal is to leave this table out {WITH}"),
        ));
    }
    if spec.wear.static_spread.is_some() {
        let table = root.table("wear_levelling")?;
        let problem = format!("legal is to leave it out {WITH}");
        return Err(table.wrong("static_spread", problem));
    }
    match spec.state {
        InitialState::Aged(aged) if !aged.simulate => Err(root.wrong(
            "state",
            format!("legal is \"fresh\" or \"filled\" {WITH}, or aged.simulate = true"),
        )),
        InitialState::Aged(aged) if aged.occupancy < 1.0 => {
            let aged = root.table("aged")?;
            Err(aged.wrong("occupancy", format!("legal is 1 {WITH}")))
        }
        _ => Ok(()),
    }
}
