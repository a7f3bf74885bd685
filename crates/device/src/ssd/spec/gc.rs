//! `[gc]` and `[wear_levelling]`.

use alloc::format;

use blklab_description::{KeyType, ReadError, Table, flag, keys, one_of, whole, word};
use strum::{Display, EnumMessage, VariantArray};

use super::Geometry;

/// How garbage collection chooses its victim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GcPolicy {
    /// The block with the least valid data.
    Greedy,
    /// The least valid of this many blocks drawn at random.
    Choices(u32),
    /// The block filled longest ago.
    Fifo,
    /// The block with the highest benefit over cost, weighed by age.
    CostBenefit,
}

impl GcPolicy {
    /// What `gc.policy` takes.
    const WORDS: [(&str, &str, GcPolicy); 4] = [
        (
            "greedy",
            "The block with the least valid data.",
            GcPolicy::Greedy,
        ),
        (
            "d_choices",
            "The block with the least valid data of `gc.choices` drawn at random.",
            GcPolicy::Choices(8),
        ),
        ("fifo", "The block filled longest ago.", GcPolicy::Fifo),
        (
            "cost_benefit",
            "The block with the most freed for the least copied, weighed by age.",
            GcPolicy::CostBenefit,
        ),
    ];
}

/// How far collection may move data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, EnumMessage, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum GcScope {
    /// Within its plane.
    Plane,
    /// Within its package.
    Chip,
    /// To any plane.
    Drive,
}

keys! {
    /// Garbage collection.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct GcSpec(table, geometry: &Geometry) {
        /// How the victim is chosen.
        let policy: GcPolicy = one_of(GcPolicy::WORDS);
        /// How many blocks are drawn at random.
        let choices: u32 = whole(1..=1024).or(8).needs(
            matches!(policy, GcPolicy::Choices(_)),
            "gc.policy = \"d_choices\"",
        );
        /// How the victim is chosen.
        pub policy: GcPolicy => match policy {
            GcPolicy::Choices(_) => GcPolicy::Choices(choices),
            other => other,
        };
        /// Collection starts below this many free blocks in a plane.
        pub start_blocks: u32 = blocks(2, geometry);
        /// Host writes wait rather than open one of the last free blocks, of which this many
        /// are reserved for collection.
        pub reserve_blocks: u32 = blocks(1, geometry)
            .or(1)
            .such_that(
                |blocks| *blocks < start_blocks,
                format!("below start_blocks ({start_blocks})"),
            )
            .documented("1 to below gc.start_blocks");
        /// Most pages being moved at once in a plane.
        pub depth: u32 = depth();
        /// Host writes are limited to what collection has freed; once they had to wait, they
        /// resume when this much has been freed. 0: no limit.
        pub pace_bytes: u64 as "pace_kb" = whole(0..=1 << 24).or(0).map(|kb: u64| kb * 1024);
        /// Collection runs in the background, after host transactions, until free blocks run
        /// short.
        pub preemptible: bool = flag().or(false);
        /// How far it may move data.
        pub scope: GcScope = word().or(GcScope::Plane);
    }
}

/// A number of free blocks: of a plane's blocks one is open and one is a victim.
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
        // At the working point a plane has slots worth `start_blocks - 1` blocks, of which
        // one block may be open and one not yet erased: the host needs a third.
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

    /// Reads the table of a drive with hybrid mapping, which has merges instead of victims.
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

    /// Free slots of each plane at its working point: a block less than where collection
    /// starts, so that collection is running whenever the host has to wait for it.
    pub(crate) fn working_point(&self, slots_per_block: u32) -> u32 {
        (self.start_blocks - 1) * slots_per_block
    }
}

keys! {
    /// Merges of logs.
    #[derive(Clone, Copy, Debug)]
    struct Merges(table) {
        /// Most pages being moved at once in a plane.
        depth: u32 = depth();
    }
}

keys! {
    /// Wear levelling.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct WearSpec(table) {
        /// Dynamic wear levelling: the least worn free block is written first.
        pub dynamic: bool = flag().or(true);
        /// Static wear levelling: the data of a plane's least worn block is moved to its most
        /// worn free block once these differ by more than this many erases. Without it,
        /// cold data stays where it is.
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
