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
    /// last start from the first again.
    pub queue_priorities: Vec<u8>,
}

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
    let priorities = match arbitration {
        Arbitration::RoundRobin => table.text_if_any("queue_priorities")?,
        Arbitration::Weighted => Some(table.text("queue_priorities")?),
    };
    let priorities = priorities.unwrap_or_else(|| "m".to_string());
    let class = |letter: char| "uhml".find(letter).map(|class| class as u8);
    let queue_priorities: Vec<u8> = priorities.chars().map_while(class).collect();
    if priorities.is_empty() || queue_priorities.len() != priorities.chars().count() {
        return Err(table.wrong(
            "queue_priorities",
            format!("found {priorities:?}, legal is a letter a queue: u, h, m or l (urgent, high, medium, low)"),
        ));
    }
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
