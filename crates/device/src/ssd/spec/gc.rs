//! `[gc]` and `[wear_levelling]`: making room, and wearing all blocks alike.

use crate::ssd::geometry::Geometry;
use blklab_description::{ReadError, Table};

/// `[gc]`
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GcSpec {
    /// Which block is collected.
    pub policy: GcPolicy,
    /// Collection starts below this many free blocks in a plane.
    pub start_blocks: u32,
    /// The host waits below this many.
    pub reserve_blocks: u32,
    /// Collected pages under way at once in a plane.
    pub depth: u32,
    /// The host may write as much as was freed, and after it had to wait goes on
    /// when that is this much; 0 where it may run ahead.
    pub pace_bytes: u64,
    /// It steps aside for the host until free blocks run out.
    pub preemptible: bool,
    /// How far it moves data.
    pub scope: GcScope,
}

/// Which block garbage collection takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GcPolicy {
    /// The one with the least valid data.
    Greedy,
    /// The least valid of so many drawn at random.
    Choices(u32),
    /// The one written longest ago.
    Fifo,
    /// Most freed for the copying, weighed by age.
    CostBenefit,
}

/// How far collection moves data from where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GcScope {
    /// Not out of its plane.
    Plane,
    /// Not out of its package.
    Chip,
    /// Anywhere.
    Drive,
}

/// `[wear_levelling]`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WearSpec {
    /// The least worn free block is written first.
    pub dynamic: bool,
    /// Data is moved out of a plane's least worn block into a free one that has
    /// been erased more than so many times more; `None` where it stays.
    pub static_spread: Option<u32>,
}

pub(super) fn read_gc(table: &Table<'_>, geometry: &Geometry) -> Result<GcSpec, ReadError> {
    #[derive(Clone, Copy)]
    enum Name {
        Greedy,
        Choices,
        Fifo,
        CostBenefit,
    }
    let name = table.choice(
        "policy",
        &[
            ("greedy", Name::Greedy),
            ("d_choices", Name::Choices),
            ("fifo", Name::Fifo),
            ("cost_benefit", Name::CostBenefit),
        ],
    )?;
    let most = (geometry.blocks_per_plane as u64 - 2).max(2);
    let choices = table.int_if_any("choices", 1..=1024)?;
    let gc = GcSpec {
        policy: match name {
            Name::Greedy => GcPolicy::Greedy,
            Name::Choices => GcPolicy::Choices(choices.unwrap_or(8) as u32),
            Name::Fifo => GcPolicy::Fifo,
            Name::CostBenefit => GcPolicy::CostBenefit,
        },
        start_blocks: table.int("start_blocks", 2..=most)? as u32,
        reserve_blocks: table.int_or("reserve_blocks", 1..=most, 1)? as u32,
        depth: table.int_or("depth", 1..=16384, 4)? as u32,
        pace_bytes: table.int_or("pace_kb", 0..=1 << 24, 0)? * 1024,
        preemptible: table.flag_or("preemptible", false)?,
        scope: table.choice_or(
            "scope",
            &[
                ("plane", GcScope::Plane),
                ("chip", GcScope::Chip),
                ("drive", GcScope::Drive),
            ],
            GcScope::Plane,
        )?,
    };
    if gc.reserve_blocks >= gc.start_blocks {
        return Err(table.wrong(
            "reserve_blocks",
            format!("legal is below start_blocks ({})", gc.start_blocks),
        ));
    }
    // At the working point a plane has `start_blocks - 1` blocks free, of which
    // one may be open and one not yet gained: the host must find a third.
    let least = gc.reserve_blocks + 3;
    if gc.preemptible && gc.start_blocks < least {
        let problem = format!(
            "legal is at least {least} (reserve_blocks + 3) where preemptible = true: \
             the host could not begin a block where collection stops"
        );
        return Err(table.wrong("start_blocks", problem));
    }
    table.finish()?;
    Ok(gc)
}

pub(super) fn read_wear(root: &Table<'_>) -> Result<WearSpec, ReadError> {
    let mut wear = WearSpec {
        dynamic: true,
        static_spread: None,
    };
    if let Some(table) = root.table_if_any("wear_levelling")? {
        wear.dynamic = table.flag_or("dynamic", true)?;
        let spread = table.int_or("static_spread", 1..=1 << 20, 0)? as u32;
        wear.static_spread = (spread > 0).then_some(spread);
        table.finish()?;
    }
    Ok(wear)
}
