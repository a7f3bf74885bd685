//! `[nvme]`: how the controller fetches commands from its queues.

use crate::Identity;
use blklab_description::{ReadError, Table};

/// `[nvme]`: how the controller fetches commands from its queues.
#[derive(Clone, Debug, PartialEq)]
pub struct NvmeSpec {
    /// Whose turn it is.
    pub arbitration: Arbitration,
    /// Most commands from a queue in a row.
    pub burst: u32,
    /// Most commands being processed: fetched, not ended, and no writes that wait
    /// for room in the cache.
    pub fetch_limit: u32,
    /// Commands a round of the classes high, medium and low.
    pub weights: [u32; 3],
    /// The class of every queue, from 0 (urgent) to 3 (low); queues beyond the
    /// last start from the first again. Empty where all have their turn.
    pub queue_priorities: Vec<u8>,
}

/// What `nvme.queue_priorities` takes.
const LEGAL_PRIORITIES: &str =
    "a letter a queue, such as \"uhml\": u urgent, h high, m medium, l low";

/// NVMe's arbitration mechanisms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arbitration {
    /// All queues in turn.
    RoundRobin,
    /// Urgent queues first, others by the weights of their classes.
    Weighted,
}

pub(super) fn read_nvme(table: &Table<'_>, identity: &Identity) -> Result<NvmeSpec, ReadError> {
    let arbitration = table.choice(
        "arbitration",
        &[
            ("round_robin", Arbitration::RoundRobin),
            ("weighted", Arbitration::Weighted),
        ],
    )?;
    let weight = |key, default| Ok(table.int_or(key, 1..=256, default)? as u32);
    let weights = [
        weight("high_weight", 1)?,
        weight("medium_weight", 1)?,
        weight("low_weight", 1)?,
    ];
    let queue_priorities = match arbitration {
        Arbitration::RoundRobin => table
            .parsed_if_any("queue_priorities", LEGAL_PRIORITIES, classes)?
            .unwrap_or_default(),
        Arbitration::Weighted => table.parsed("queue_priorities", LEGAL_PRIORITIES, classes)?,
    };
    let all = identity.queue_depth as u64 * identity.max_queues as u64;
    let nvme = NvmeSpec {
        arbitration,
        burst: table.int_or("burst", 1..=64, 64)? as u32,
        fetch_limit: table.int_or("fetch_limit", 1..=1 << 20, all)?.min(1 << 30) as u32,
        weights,
        queue_priorities,
    };
    table.finish()?;
    Ok(nvme)
}

/// The classes that letters stand for, from 0 (urgent) to 3 (low).
fn classes(letters: &str) -> Option<Vec<u8>> {
    let class = |letter: char| "uhml".find(letter).map(|class| class as u8);
    let classes: Option<Vec<u8>> = letters.chars().map(class).collect();
    classes.filter(|classes| !classes.is_empty())
}
