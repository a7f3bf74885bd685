//! What the winner of bandwidth lost for it: reads and writes are counted
//! together there, and one may have been bought with the other.

use blklab_stats::Significance;

use crate::comparison::{Change, Direction, DirectionTable, Metric};
use crate::quantity::{and_list, change};
use crate::verdict::Contest;

/// Less than this share of a direction's bandwidth is no price.
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
    let prices: Vec<String> = directions.iter().filter_map(price).collect();
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

#[cfg(test)]
mod tests {
    use crate::comparison::compare;
    use crate::sample_run::three_schedulers;

    /// The second scheduler with so many times the first one's reads and writes.
    fn headline(reads: u64, writes: u64) -> String {
        let mut schedulers = three_schedulers(3);
        schedulers.truncate(2);
        let first = schedulers[0].clone();
        for (run, base) in schedulers[1].runs.iter_mut().zip(&first.runs) {
            run.jobs[0].read.bytes = base.jobs[0].read.bytes * reads / 100;
            run.jobs[0].write.bytes = base.jobs[0].write.bytes * writes / 100;
        }
        compare(&schedulers).headline
    }

    #[test]
    fn who_wins_reads_by_writes_is_told_so() {
        let said = headline(200, 30);
        assert!(said.contains("wins bandwidth"), "{said}");
        let price = "'s bandwidth by direction against noop: write -70.0 %";
        assert!(said.contains(price), "{said}");
        assert!(!said.contains("read -"), "{said}");
    }

    #[test]
    fn who_loses_nothing_pays_nothing() {
        let said = headline(200, 98);
        assert!(said.contains("wins bandwidth"), "{said}");
        assert!(!said.contains("by direction"), "{said}");
    }
}
