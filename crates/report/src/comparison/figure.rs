//! The figures by which schedulers are compared, and their differences.

use std::borrow::Cow;

use blklab_stats::{DirResults, Estimate, JobResults, Significance};
use serde::{Deserialize, Serialize};

use crate::quantity::{Scale, Span};

/// A direction of I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// Trims (discards).
    Trim,
    /// Calls of `fsync` and `fdatasync`, fio's `sync` section.
    Sync,
}

impl Direction {
    /// All directions.
    pub const ALL: [Direction; 4] = [
        Direction::Read,
        Direction::Write,
        Direction::Trim,
        Direction::Sync,
    ];

    /// Returns the direction's name.
    pub const fn name(self) -> &'static str {
        match self {
            Direction::Read => "read",
            Direction::Write => "write",
            Direction::Trim => "trim",
            Direction::Sync => "sync",
        }
    }

    /// Returns a job's results in this direction.
    pub(crate) fn of(self, job: &JobResults) -> Cow<'_, DirResults> {
        match self {
            Direction::Read => Cow::Borrowed(&job.read),
            Direction::Write => Cow::Borrowed(&job.write),
            Direction::Trim => Cow::Borrowed(&job.trim),
            Direction::Sync => Cow::Owned(job.sync_results()),
        }
    }
}

/// A figure by which schedulers are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Metric {
    /// Bandwidth.
    #[serde(rename = "bandwidth_bytes_per_s")]
    Bandwidth,
    /// I/Os a second.
    #[serde(rename = "iops")]
    Iops,
    /// Mean latency, from submission to completion.
    #[serde(rename = "latency_mean_ns")]
    Mean,
    /// Median latency.
    #[serde(rename = "latency_p50_ns")]
    P50,
    /// 99th percentile of latency.
    #[serde(rename = "latency_p99_ns")]
    P99,
    /// 99.9th percentile of latency.
    #[serde(rename = "latency_p99.9_ns")]
    P999,
    /// Longest latency.
    #[serde(rename = "latency_max_ns")]
    Max,
    /// Jain's index of the processes' bandwidths divided by their weights.
    #[serde(rename = "jain_index")]
    Jain,
    /// The time that a job took to the end of its work.
    #[serde(rename = "duration_ns")]
    Duration,
    /// Several goals together, as a factor over the first scheduler.
    #[serde(rename = "score")]
    Score,
}

impl Metric {
    /// The metrics of a direction of I/O, in the order in which they are shown; the
    /// other metrics belong to processes.
    pub const ALL: [Metric; 7] = [
        Metric::Bandwidth,
        Metric::Iops,
        Metric::Mean,
        Metric::P50,
        Metric::P99,
        Metric::P999,
        Metric::Max,
    ];

    /// Returns the heading of the metric's column, without a unit.
    pub const fn name(self) -> &'static str {
        match self {
            Metric::Bandwidth => "bandwidth",
            Metric::Iops => "IOPS",
            Metric::Mean => "mean",
            Metric::P50 => "p50",
            Metric::P99 => "p99",
            Metric::P999 => "p99.9",
            Metric::Max => "max",
            Metric::Jain => "Jain index",
            Metric::Duration => "time",
            Metric::Score => "the goals together",
        }
    }

    /// Returns whether larger values are better; of latencies and times, smaller ones
    /// are.
    pub const fn more_is_better(self) -> bool {
        matches!(
            self,
            Metric::Bandwidth | Metric::Iops | Metric::Jain | Metric::Score
        )
    }

    /// Returns the unit in which figures are shown.
    pub(crate) fn scale(self, span: impl Into<Span>) -> Scale {
        match self {
            Metric::Bandwidth => Scale::for_bandwidth(span),
            Metric::Iops => Scale::for_count(span),
            Metric::Jain | Metric::Score => Scale::for_index(),
            _ => Scale::for_latency(span),
        }
    }

    /// Formats a figure with its unit.
    pub(crate) fn show(self, value: f64) -> String {
        self.scale(value).with_unit(value)
    }

    /// Returns the metric of a direction; zero for metrics of processes.
    pub(crate) fn of(self, dir: &DirResults) -> f64 {
        let latency = dir.latency();
        match self {
            Metric::Bandwidth => dir.bandwidth(),
            Metric::Iops => dir.iops(),
            Metric::Mean => latency.summary().mean_ns,
            Metric::P50 => latency.percentile(50.0) as f64,
            Metric::P99 => latency.percentile(99.0) as f64,
            Metric::P999 => latency.percentile(99.9) as f64,
            Metric::Max => latency.summary().max_ns as f64,
            Metric::Jain | Metric::Duration | Metric::Score => 0.0,
        }
    }
}

/// A figure over all repeats.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// The mean over the repeats, with its interval.
    pub value: Estimate,
    /// The difference from the first scheduler; `None` for the first one itself, and if
    /// its figure is zero.
    pub change: Option<Change>,
}

/// The difference of a figure from another scheduler's.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// The difference as a share of the other's figure: 0.041 is `+4.1 %`.
    pub relative: Estimate,
    /// Whether the difference is more than noise.
    pub significance: Significance,
    /// Whether it is more than noise and an improvement.
    pub better: bool,
    /// Whether it is more than noise and a deterioration.
    pub worse: bool,
}

impl Change {
    /// Compares repeats of a figure with another's; `None` if the other's mean is zero.
    pub(crate) fn between(
        base: &[f64],
        other: &[f64],
        paired: bool,
        more_is_better: bool,
    ) -> Option<Change> {
        let relative = Estimate::relative_change(base, other, paired)?;
        let significance = relative.significance();
        // A change that is shown as +0.0 % counts neither as better nor as worse.
        let reads_as_zero = relative.mean.abs() < 0.000_5;
        let differs = significance == Significance::Differs && !reads_as_zero;
        let up_is_good = (relative.mean > 0.0) == more_is_better;
        Some(Change {
            relative,
            significance,
            better: differs && up_is_good,
            worse: differs && !up_is_good,
        })
    }
}
