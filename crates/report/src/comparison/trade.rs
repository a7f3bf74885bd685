//! What the winner of bandwidth lost for it: reads and writes are counted
//! together there, and one may have been bought with the other.

use blklab_stats::Significance;

use super::figure::{Change, Direction, Metric};
use super::table::DirectionTable;
use super::verdict::Contest;
use crate::quantity::{and_list, change};

/// A loss of less than this share of a direction's bandwidth is not mentioned.
const PRICE: f64 = 0.05;

/// What to add where the one that leads in bandwidth has much less of a
/// direction's than the one that it was measured against.
pub(crate) fn clause(bandwidth: &Contest, directions: &[DirectionTable]) -> Option<String> {
    let [leader] = bandwidth.leaders.as_slice() else {
        return None;
    };
    let against = &bandwidth.against;
    let price = |table: &DirectionTable| {
        let change_of = lost(table, leader, against)?;
        let direction: Direction = table.direction;
        Some(format!(
            "{} {}",
            direction.name(),
            change(&change_of.relative)
        ))
    };
    let prices: Vec<String> = directions
        .iter()
        .filter(|table| table.job.is_none())
        .filter_map(price)
        .collect();
    (!prices.is_empty()).then(|| {
        format!(
            "{leader}'s bandwidth by direction against {against}: {}",
            and_list(&prices)
        )
    })
}

/// How much less of a direction a scheduler has, where that is a price.
fn lost(table: &DirectionTable, leader: &str, against: &str) -> Option<Change> {
    let bandwidths = |name: &str| {
        let row = table.rows.iter().find(|row| row.scheduler == name)?;
        row.repeats.get(&Metric::Bandwidth)
    };
    let change = Change::between(bandwidths(against)?, bandwidths(leader)?, false, true)?;
    let is_price =
        change.significance != Significance::WithinNoise && change.relative.mean <= -PRICE;
    is_price.then_some(change)
}
