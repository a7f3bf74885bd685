//! The figures of all schedulers for one direction of I/O.

use std::collections::BTreeMap;

use blklab_stats::{DirResults, Estimate, Histogram, Results};
use serde::{Deserialize, Serialize};

use super::figure::{Cell, Change, Direction, Metric};
use super::runs::{Pairs, SchedulerRuns};

/// The figures of all schedulers for one direction of a job, or of a whole group.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DirectionTable {
    /// The job if the group has several; `None` for the group as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// Whether it sums several jobs. Such a table has rates only, because pooled
    /// latencies of different jobs describe none of them.
    #[serde(default, skip_serializing_if = "is_false")]
    pub several_jobs: bool,
    /// Whether its I/Os have times of their own, so that their rate is that of the trace and
    /// not what a scheduler makes of it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub has_own_times: bool,
    /// The direction.
    pub direction: Direction,
    /// One row for each scheduler, in the order given.
    pub rows: Vec<Row>,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

/// The figures of one scheduler for one direction.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// The scheduler.
    pub scheduler: String,
    /// I/Os done in all repeats.
    pub ios: u64,
    /// The figures over the repeats.
    pub cells: BTreeMap<Metric, Cell>,
    /// The figures of each repeat.
    pub repeats: BTreeMap<Metric, Vec<f64>>,
    /// The latency over percentiles, all repeats together.
    pub curve: Vec<CurvePoint>,
}

/// A point of a latency curve.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CurvePoint {
    /// The percentage of all I/O.
    pub percent: f64,
    /// The latency that this percentage of I/O did not exceed.
    pub latency_ns: u64,
}

impl Row {
    /// Returns the row of a scheduler that did no such I/O.
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
    /// Returns a figure by scheduler and repeat.
    pub(crate) fn repeats(&self, metric: Metric) -> Vec<Vec<f64>> {
        let rows = self.rows.iter();
        rows.map(|row| row.repeats.get(&metric).cloned().unwrap_or_default())
            .collect()
    }

    /// Returns the metrics of this table, in the order in which they are shown.
    pub fn metrics(&self) -> &'static [Metric] {
        match (self.several_jobs, self.direction) {
            (true, Direction::Sync) => &Metric::ALL[1..2],
            (true, _) => &Metric::ALL[..2],
            (false, Direction::Sync) => &Metric::ALL[1..],
            (false, _) => &Metric::ALL,
        }
    }

    /// Returns the fewest I/Os of a run from which a percentile tells more than one of them
    /// does; `None` for other metrics.
    pub(crate) fn ios_min(metric: Metric) -> Option<u64> {
        match metric {
            Metric::P99 => Some(100),
            Metric::P999 => Some(1000),
            _ => None,
        }
    }

    /// Returns the most I/Os of a run under any of the schedulers, on average over its repeats.
    pub(crate) fn most_ios(&self) -> u64 {
        let of_run = |row: &Row| {
            let runs = row.repeats.values().map(Vec::len).max().unwrap_or(0);
            row.ios / (runs as u64).max(1)
        };
        self.rows.iter().map(of_run).max().unwrap_or(0)
    }

    /// Whether the metric tells anything here. Where one scheduler has enough I/Os, those of
    /// another may be few because they were slow, which counts.
    pub(crate) fn can_tell(&self, metric: Metric) -> bool {
        if self.has_own_times && matches!(metric, Metric::Bandwidth | Metric::Iops) {
            return false;
        }
        DirectionTable::ios_min(metric).is_none_or(|min| self.most_ios() >= min)
    }

    /// Returns the table's title: `read`, `read of db`, `read of all jobs`.
    pub(crate) fn title(&self) -> String {
        let direction = self.direction.name();
        match &self.job {
            Some(job) => format!("{direction} of {job}"),
            None if self.several_jobs => format!("{direction} of all jobs"),
            None => direction.to_string(),
        }
    }

    /// Computes the figures of all rows from their repeats, and compares each with the
    /// first row.
    pub(crate) fn fill_cells(&mut self, pairs: &Pairs) {
        for &metric in self.metrics() {
            let up = metric.more_is_better();
            let values = self.repeats(metric);
            for (index, (row, own)) in self.rows.iter_mut().zip(&values).enumerate() {
                let change = (index > 0)
                    .then(|| Change::between(&values[0], own, pairs.are(0, index), up))
                    .flatten();
                let value = Estimate::of(own);
                row.cells.insert(metric, Cell { value, change });
            }
        }
    }
}

/// Returns the tables of a group: of the whole, and of each job if there are several.
/// Processes of one name are one job (`numjobs`).
pub(crate) fn of_group(
    schedulers: &[SchedulerRuns],
    group_id: u32,
    jobs: &[&str],
    pairs: &Pairs,
) -> Vec<DirectionTable> {
    let several = jobs.len() > 1;
    let each = jobs.iter().map(|job| Some(*job)).filter(|_| several);
    let tables = std::iter::once(None).chain(each).flat_map(|job| {
        Direction::ALL.into_iter().filter_map(move |direction| {
            let runs = |scheduler: &SchedulerRuns| -> Vec<DirResults> {
                let runs = scheduler.runs.iter();
                runs.map(|run| sum_of(run, group_id, job, direction))
                    .collect()
            };
            let sums: Vec<Vec<DirResults>> = schedulers.iter().map(runs).collect();
            if sums.iter().flatten().all(|dir| dir.ios == 0) {
                return None;
            }
            let mut table = DirectionTable {
                job: job.map(str::to_string),
                several_jobs: several && job.is_none(),
                has_own_times: has_own_times(schedulers, group_id, job),
                direction,
                rows: Vec::new(),
            };
            table.rows = rows(schedulers, &sums, &table);
            table.fill_cells(pairs);
            Some(table)
        })
    });
    tables.collect()
}

/// Whether all I/O of a group, or of one of its jobs, has times of its own.
fn has_own_times(schedulers: &[SchedulerRuns], group_id: u32, job: Option<&str>) -> bool {
    let runs = schedulers.iter().flat_map(|s| &s.runs);
    let mut jobs = runs
        .flat_map(|run| &run.jobs)
        .filter(|found| found.group_id == group_id && job.is_none_or(|job| found.name == job));
    jobs.all(|job| job.last_arrival_ns.is_some())
}

/// Returns the results of a group in one direction, of one job or of all.
fn sum_of(run: &Results, group_id: u32, job: Option<&str>, direction: Direction) -> DirResults {
    let mut sum = DirResults::default();
    for found in run.jobs.iter().filter(|found| found.group_id == group_id) {
        if job.is_none_or(|job| found.name == job) {
            sum.merge(&direction.of(found));
        }
    }
    sum
}

fn rows(
    schedulers: &[SchedulerRuns],
    sums: &[Vec<DirResults>],
    table: &DirectionTable,
) -> Vec<Row> {
    let row = |(scheduler, runs): (&SchedulerRuns, &Vec<DirResults>)| {
        let repeats = table.metrics().iter().map(|metric| {
            let values = runs.iter().map(|dir| metric.of(dir)).collect();
            (*metric, values)
        });
        Row {
            scheduler: scheduler.name.clone(),
            ios: runs.iter().map(|dir| dir.ios).sum(),
            cells: BTreeMap::new(),
            repeats: repeats.collect(),
            curve: match table.several_jobs {
                true => Vec::new(),
                false => curve(runs),
            },
        }
    };
    schedulers.iter().zip(sums).map(row).collect()
}

/// Returns the latency at percentiles that are evenly spaced on a scale of nines (90,
/// 99, 99.9), as far as the number of values allows.
fn curve(runs: &[DirResults]) -> Vec<CurvePoint> {
    /// Number of points from one nine to the next.
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
