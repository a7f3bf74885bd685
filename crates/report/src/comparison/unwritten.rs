//! Reads of addresses that hold nothing: an SSD answers them without its flash, faster than
//! it would read data.

use blklab_stats::{DiskStats, Results};

use super::runs::SchedulerRuns;
use crate::quantity::short;

/// A note is made if at least this share of what a drive read holds nothing.
const SHARE_MIN: f64 = 0.1;

/// Returns a sentence on each drive of a run of which much that was read holds nothing.
pub(crate) fn unwritten(run: &Results) -> Vec<String> {
    let disks = run.disks.iter();
    disks
        .filter_map(|disk| sentence(disk, &run.drive))
        .collect()
}

/// Returns the same of the first run that has any; others differ by a little.
pub(crate) fn notes(schedulers: &[SchedulerRuns]) -> Vec<String> {
    let runs = schedulers.iter().flat_map(|s| &s.runs);
    let found = runs.map(unwritten).find(|sentences| !sentences.is_empty());
    found.unwrap_or_default()
}

fn sentence(disk: &DiskStats, drive: &str) -> Option<String> {
    let empty = disk.device.sectors_read_unwritten as f64;
    // The queue's count leaves out what is still in flight.
    let share = (empty / disk.queue.sectors[0].max(1) as f64).min(1.0);
    (share >= SHARE_MIN).then(|| {
        format!(
            "{} ({drive}): {} % of what was read holds nothing (never written, or discarded), \
             which the drive answers with zeroes and without its flash; where it starts fresh, \
             --state filled has it hold data",
            disk.name,
            short(share * 100.0),
        )
    })
}
