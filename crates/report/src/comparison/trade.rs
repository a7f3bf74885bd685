//! The losses of the bandwidth's winner: reads and writes are summed in its bandwidth,
//! and one may have been gained at the cost of the other.

use blklab_stats::Significance;

use super::figure::{Change, Direction, Metric};
use super::table::DirectionTable;
use super::verdict::Contest;
use crate::quantity::{and_list, change};

/// Smallest loss of a direction's bandwidth that is mentioned, as a share.
const LOSS_MIN: f64 = 0.05;

/// Returns a clause if the leader in bandwidth has much less of a direction than the
/// scheduler that it is compared with.
pub(crate) fn clause(bandwidth: &Contest, directions: &[DirectionTable]) -> Option<String> {
    let [leader] = bandwidth.leaders.as_slice() else {
        return None;
    };
    let against = &bandwidth.against;
    let loss = |table: &DirectionTable| {
        let change_of = lost(table, leader, against)?;
        let direction: Direction = table.direction;
        Some(format!(
            "{} {}",
            direction.name(),
            change(&change_of.relative)
        ))
    };
    let own = directions
        .iter()
        .filter(|table| !table.several_jobs && table.job == bandwidth.job);
    let losses: Vec<String> = own.filter_map(loss).collect();
    let of_job = (bandwidth.job.as_ref()).map_or(String::new(), |job| format!(" of {job}"));
    (!losses.is_empty()).then(|| {
        format!(
            "{leader}'s bandwidth{of_job} by direction against {against}: {}",
            and_list(&losses)
        )
    })
}

/// Returns how much less of a direction a scheduler has, if it is worth mentioning.
fn lost(table: &DirectionTable, leader: &str, against: &str) -> Option<Change> {
    let bandwidths = |name: &str| {
        let row = table.rows.iter().find(|row| row.scheduler == name)?;
        row.repeats.get(&Metric::Bandwidth)
    };
    let change = Change::between(bandwidths(against)?, bandwidths(leader)?, false, true)?;
    let is_noticeable =
        change.significance != Significance::WithinNoise && change.relative.mean <= -LOSS_MIN;
    is_noticeable.then_some(change)
}
