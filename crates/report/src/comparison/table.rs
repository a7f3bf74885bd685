//! All schedulers' figures for one direction of I/O.

use std::collections::BTreeMap;

use blklab_stats::{DirResults, Estimate, Histogram, Results};
use serde::{Deserialize, Serialize};

use super::figure::{Cell, Change, Direction, Metric};
use super::runs::{Pairs, SchedulerRuns};

/// All schedulers' figures for one direction.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DirectionTable {
    /// Which.
    pub direction: Direction,
    /// One row a scheduler, in the order given.
    pub rows: Vec<Row>,
}

/// One scheduler's figures for one direction.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// The scheduler.
    pub scheduler: String,
    /// Units of I/O done in all repeats.
    pub ios: u64,
    /// Its figures.
    pub cells: BTreeMap<Metric, Cell>,
    /// The figures of each repeat.
    pub repeats: BTreeMap<Metric, Vec<f64>>,
    /// Its latency over percentiles, all repeats together.
    pub curve: Vec<CurvePoint>,
}

/// A point of a latency curve.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CurvePoint {
    /// This many percent of all I/O ...
    pub percent: f64,
    /// ... took no longer than this.
    pub latency_ns: u64,
}

impl Row {
    /// The row of a scheduler that did no such I/O.
    pub(crate) fn idle(scheduler: String) -> Row {
        Row {
            scheduler,
            ios: 0,
            cells: BTreeMap::new(),
            repeats: BTreeMap::new(),
            curve: Vec::new(),
        }
    }
}

impl DirectionTable {
    /// A figure by scheduler and repeat.
    pub(crate) fn repeats(&self, metric: Metric) -> Vec<Vec<f64>> {
        let rows = self.rows.iter();
        rows.map(|row| row.repeats.get(&metric).cloned().unwrap_or_default())
            .collect()
    }
}

/// A direction of a group; `None` where no scheduler did such I/O.
pub(crate) fn of_group(
    schedulers: &[SchedulerRuns],
    group_id: u32,
    direction: Direction,
    pairs: &Pairs,
) -> Option<DirectionTable> {
    let sums = |scheduler: &SchedulerRuns| -> Vec<DirResults> {
        let runs = scheduler.runs.iter();
        runs.map(|run| sum_of(run, group_id, direction)).collect()
    };
    let sums: Vec<Vec<DirResults>> = schedulers.iter().map(sums).collect();
    let rows = || rows(schedulers, &sums, pairs);
    sums.iter()
        .flatten()
        .any(|dir| dir.ios > 0)
        .then(|| DirectionTable {
            direction,
            rows: rows(),
        })
}

/// A direction of a group, all its jobs together.
fn sum_of(run: &Results, group_id: u32, direction: Direction) -> DirResults {
    let mut sum = DirResults::default();
    for job in run.jobs.iter().filter(|job| job.group_id == group_id) {
        sum.merge(direction.of(job));
    }
    sum
}

fn rows(schedulers: &[SchedulerRuns], sums: &[Vec<DirResults>], pairs: &Pairs) -> Vec<Row> {
    let mut rows: Vec<Row> = schedulers
        .iter()
        .zip(sums)
        .map(|(scheduler, runs)| Row {
            scheduler: scheduler.name.clone(),
            ios: runs.iter().map(|dir| dir.ios).sum(),
            cells: BTreeMap::new(),
            repeats: BTreeMap::new(),
            curve: curve(runs),
        })
        .collect();
    for metric in Metric::ALL {
        for (row, runs) in rows.iter_mut().zip(sums) {
            let values = runs.iter().map(|dir| metric.of(dir)).collect();
            row.repeats.insert(metric, values);
        }
    }
    fill_cells(&mut rows, pairs);
    rows
}

/// Reckons all rows' figures from their repeats, each against the first row.
pub(crate) fn fill_cells(rows: &mut [Row], pairs: &Pairs) {
    for metric in Metric::ALL {
        let up = metric.more_is_better();
        let values = |row: &Row| row.repeats.get(&metric).cloned().unwrap_or_default();
        let base = rows.first().map(values).unwrap_or_default();
        for (index, row) in rows.iter_mut().enumerate() {
            let own = values(row);
            let change = (index > 0)
                .then(|| Change::between(&base, &own, pairs.are(0, index), up))
                .flatten();
            let value = Estimate::of(&own);
            row.cells.insert(metric, Cell { value, change });
        }
    }
}

/// Latency at percentiles that lie evenly on a scale of nines (90, 99, 99.9),
/// as far as the number of values carries.
fn curve(runs: &[DirResults]) -> Vec<CurvePoint> {
    /// Points from one nine to the next.
    const STEPS: u32 = 24;
    let mut all = Histogram::new();
    runs.iter().for_each(|dir| all.merge(dir.latency()));
    if all.is_empty() {
        return Vec::new();
    }
    let nines = (all.count() as f64).log10().min(6.0);
    let points = (nines * STEPS as f64).floor() as u32;
    let percent_of = |step: u32| 100.0 * (1.0 - 10f64.powf(-(step as f64) / STEPS as f64));
    (0..=points)
        .map(percent_of)
        .map(|percent| CurvePoint {
            percent,
            latency_ns: all.percentile(percent),
        })
        .collect()
}
