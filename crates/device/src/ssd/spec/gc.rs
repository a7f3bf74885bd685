//! `[gc]` and `[wear_levelling]`: making room, and wearing all blocks alike.

use blklab_description::{KeyType, ReadError, Table, flag, keys, one_of, whole, word};
use strum::{Display, EnumMessage, VariantArray};

use super::Geometry;

/// Which block garbage collection takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GcPolicy {
    /// The one with the least valid data.
    Greedy,
    /// The least valid of this many drawn at random.
    Choices(u32),
    /// The one written longest ago.
    Fifo,
    /// Most freed for the copying, weighed by age.
    CostBenefit,
}

impl GcPolicy {
    /// What `gc.policy` takes.
    const WORDS: [(&str, &str, GcPolicy); 4] = [
        (
            "greedy",
            "The one with the least valid data.",
            GcPolicy::Greedy,
        ),
        (
            "d_choices",
            "The one with the least valid data of `gc.choices` drawn at random.",
            GcPolicy::Choices(8),
        ),
        ("fifo", "The one written longest ago.", GcPolicy::Fifo),
        (
            "cost_benefit",
            "The one of which most is freed for the copying, weighed by age.",
            GcPolicy::CostBenefit,
        ),
    ];
}

/// How far collection moves data from where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, EnumMessage, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum GcScope {
    /// Not out of its plane.
    Plane,
    /// Not out of its package.
    Chip,
    /// Anywhere.
    Drive,
}

keys! {
    /// Making room.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct GcSpec(table, geometry: &Geometry) {
        /// Which block is collected.
        let policy: GcPolicy = one_of(GcPolicy::WORDS);
        /// Blocks that are drawn at random.
        let choices: u32 = whole(1..=1024).or(8).needs(
            matches!(policy, GcPolicy::Choices(_)),
            "gc.policy = \"d_choices\"",
        );
        /// Which block is collected.
        pub policy: GcPolicy => match policy {
            GcPolicy::Choices(_) => GcPolicy::Choices(choices),
            other => other,
        };
        /// Collection starts below this many free blocks in a plane.
        pub start_blocks: u32 = blocks(2, geometry);
        /// The host waits below this many.
        pub reserve_blocks: u32 = blocks(1, geometry)
            .or(1)
            .such_that(
                |blocks| *blocks < start_blocks,
                format!("below start_blocks ({start_blocks})"),
            )
            .documented("1 to below gc.start_blocks");
        /// Collected pages under way at once in a plane.
        pub depth: u32 = depth();
        /// The host may write as much as was freed, and after it had to wait goes on
        /// when that is this much; 0 where it may run ahead.
        pub pace_bytes: u64 as "pace_kb" = whole(0..=1 << 24).or(0).map(|kb: u64| kb * 1024);
        /// It runs in the background, behind the host, until free blocks run out.
        pub preemptible: bool = flag().or(false);
        /// How far it moves data.
        pub scope: GcScope = word().or(GcScope::Plane);
    }
}

/// Of a plane's blocks one is open and one is being emptied.
fn blocks(least: u32, geometry: &Geometry) -> KeyType<'static, u32> {
    whole(least..=(geometry.blocks_per_plane - 2).max(2))
        .documented("2 to geometry.blocks_per_plane - 2")
}

fn depth() -> KeyType<'static, u32> {
    whole(1..=16384).or(4)
}

impl GcSpec {
    pub(super) fn read_checked(
        table: &Table<'_>,
        geometry: &Geometry,
    ) -> Result<GcSpec, ReadError> {
        let gc = GcSpec::read(table, geometry)?;
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
        Ok(gc)
    }

    /// Reads the table of a drive with hybrid mapping: merges take what room there
    /// is, so all that is left to choose is how many pages are moved at once.
    pub(super) fn read_of_merges(table: Option<&Table<'_>>) -> Result<GcSpec, ReadError> {
        let merges = table.map_or(Ok(Merges { depth: 4 }), Merges::read)?;
        Ok(GcSpec {
            policy: GcPolicy::Fifo,
            start_blocks: 0,
            reserve_blocks: 0,
            depth: merges.depth,
            pace_bytes: 0,
            preemptible: false,
            scope: GcScope::Plane,
        })
    }

    /// Slots that each plane has free at its working point. A block less than what
    /// starts collection, so that there is always one to be collected.
    pub(crate) fn working_point(&self, slots_per_block: u32) -> u32 {
        (self.start_blocks - 1) * slots_per_block
    }
}

keys! {
    /// Making room.
    #[derive(Clone, Copy, Debug)]
    struct Merges(table) {
        /// Collected pages under way at once in a plane.
        depth: u32 = depth();
    }
}

keys! {
    /// Wearing all blocks alike.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct WearSpec(table) {
        /// The least worn free block is written first.
        pub dynamic: bool = flag().or(true);
        /// By how many erases more a free block must be worn for data of the plane's
        /// least worn block to be moved there; without it, the data stays.
        pub static_spread: Option<u32> = whole(1..=1 << 20).optional();
    }
}

impl Default for WearSpec {
    fn default() -> WearSpec {
        WearSpec {
            dynamic: true,
            static_spread: None,
        }
    }
}
