//! Processes side by side: the bandwidth of each job's processes, their fairness, and
//! the time of jobs that ended by themselves while others went on.
//!
//! After the S suite (P. Valente's benchmarks for I/O schedulers), which measures
//! per-process bandwidth and the start-up time of a program while readers and writers
//! run.

use blklab_stats::{Estimate, JobResults, ProcessResults, Results, jain_index};
use serde::{Deserialize, Serialize};

use super::figure::{Cell, Change, Metric};
use super::runs::{Pairs, SchedulerRuns};
use super::verdict::{Contest, Outcome};
use crate::quantity::latency;

/// The figure of a column.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessColumn {
    /// The job; `None` if the column is about all jobs.
    #[serde(default)]
    pub job: Option<String>,
    /// Mean bandwidth of a process, fairness of all processes, or running time of the
    /// job.
    pub metric: Metric,
}

/// A column's figures, one for each scheduler.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ProcessFigures {
    /// The figure of the column.
    pub column: ProcessColumn,
    /// The figures; `None` if a scheduler has none.
    pub cells: Vec<Option<Cell>>,
    /// The figures of each repeat, by scheduler.
    pub repeats: Vec<Vec<f64>>,
    /// Repeats in which the job did not end, by scheduler; empty if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unfinished: Vec<usize>,
    /// The shortest time after which the job was stopped in such a repeat, in nanoseconds, by
    /// scheduler; empty if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stopped_after_ns: Vec<Option<u64>>,
}

impl ProcessFigures {
    /// Computes figures from their repeats and compares each with the first scheduler's.
    /// Each scheduler's repeats come with the number of those that did not finish; a
    /// scheduler with unfinished repeats has no figure.
    pub(crate) fn new(
        column: ProcessColumn,
        values: Vec<(Vec<f64>, usize)>,
        pairs: &Pairs,
    ) -> ProcessFigures {
        let up = column.metric.more_is_better();
        let (repeats, unfinished): (Vec<_>, Vec<_>) = values.into_iter().unzip();
        let mut figures = ProcessFigures {
            column,
            cells: Vec::new(),
            repeats,
            unfinished: match unfinished.iter().any(|count| *count > 0) {
                true => unfinished,
                false => Vec::new(),
            },
            stopped_after_ns: Vec::new(),
        };
        let compared = figures.compared();
        let cell = |(index, own): (usize, &Vec<f64>)| {
            let base = &compared[0];
            let change = (index > 0 && !base.is_empty() && !own.is_empty())
                .then(|| Change::between(base, own, pairs.are(0, index), up))
                .flatten();
            let value = Estimate::of(own);
            (!own.is_empty()).then_some(Cell { value, change })
        };
        figures.cells = compared.iter().enumerate().map(cell).collect();
        figures
    }

    /// Returns the number of a scheduler's repeats that did not finish.
    pub fn unfinished(&self, scheduler: usize) -> usize {
        self.unfinished.get(scheduler).copied().unwrap_or(0)
    }

    /// Returns in words when the job ended under a scheduler: `in 1.9 s`, or `not within 120 s`.
    pub(crate) fn ended(&self, scheduler: usize) -> String {
        let (own, unfinished) = (&self.repeats[scheduler], self.unfinished(scheduler));
        if unfinished == 0 {
            return format!("in {}", latency(Estimate::of(own).mean));
        }
        let stopped_ns = self.stopped_after_ns.get(scheduler).copied().flatten();
        let within = stopped_ns.map(|ns| format!(" within {}", latency(ns as f64)));
        let often = match own.is_empty() {
            true => String::new(),
            false => format!(" in {unfinished} of {} runs", unfinished + own.len()),
        };
        format!("not{}{often}", within.unwrap_or_default())
    }

    /// Returns each scheduler's finished repeats and the number of the others.
    pub(crate) fn by_scheduler(&self) -> Vec<(Vec<f64>, usize)> {
        let repeats = self.repeats.iter().cloned().enumerate();
        repeats
            .map(|(at, own)| (own, self.unfinished(at)))
            .collect()
    }

    /// Returns the repeats to compare; none for a scheduler that did not finish all.
    pub(crate) fn compared(&self) -> Vec<Vec<f64>> {
        let all = self.by_scheduler().into_iter();
        all.map(|(own, unfinished)| if unfinished > 0 { Vec::new() } else { own })
            .collect()
    }
}

/// Limit on the jobs whose per-process bandwidths are shown.
const JOBS_SHOWN_MAX: usize = 6;

/// Returns the columns of a reporting group; none if its only process was stopped.
pub(crate) fn figures(
    schedulers: &[SchedulerRuns],
    group_id: u32,
    pairs: &Pairs,
) -> Vec<ProcessFigures> {
    let runs: Vec<Vec<Vec<&ProcessResults>>> = schedulers
        .iter()
        .map(|s| {
            let runs = s.runs.iter();
            runs.map(|run| {
                let jobs = run.jobs.iter().filter(|job| job.group_id == group_id);
                jobs.flat_map(|job| &job.processes).collect()
            })
            .collect()
        })
        .collect();
    let all = || runs.iter().flatten();
    let several = all().any(|processes| processes.len() > 1);
    let mut jobs: Vec<&str> = Vec::new();
    for process in all().flatten() {
        if !jobs.contains(&process.job.as_str()) {
            jobs.push(&process.job);
        }
    }
    let finishes = |job: &str| {
        let mut of_job = all().flatten().filter(|p| p.job == job);
        of_job.any(|p| p.finished)
    };
    let mut figures = Vec::new();
    let mut add = |job: Option<&str>, metric, of: &dyn Fn(&[&ProcessResults]) -> Option<f64>| {
        let values = |runs: &Vec<Vec<&ProcessResults>>| {
            let known: Vec<f64> = runs.iter().filter_map(|run| of(run)).collect();
            let unfinished = match metric {
                Metric::Duration => runs.len() - known.len(),
                _ => 0,
            };
            (known, unfinished)
        };
        let values: Vec<(Vec<f64>, usize)> = runs.iter().map(values).collect();
        if values.iter().any(|(known, _)| !known.is_empty()) {
            let job = job.map(str::to_string);
            let column = ProcessColumn { job, metric };
            figures.push(ProcessFigures::new(column, values, pairs));
        }
    };
    for job in jobs.iter().filter(|job| finishes(job)) {
        add(Some(job), Metric::Duration, &|run| duration(run, job));
    }
    if several {
        if jobs.len() <= JOBS_SHOWN_MAX {
            for job in jobs.iter().filter(|job| !finishes(job)) {
                add(Some(job), Metric::Bandwidth, &|run| bandwidth(run, job));
            }
        }
        let competes = |job: &str| !finishes(job) || jobs.iter().all(|job| finishes(job));
        let mut runs = schedulers.iter().flat_map(|s| &s.runs);
        if runs.all(|run| has_shares(run, group_id, &competes)) {
            add(None, Metric::Jain, &|run| fairness(run, &competes));
        }
    }
    for of_job in figures.iter_mut().filter(|f| !f.unfinished.is_empty()) {
        let job = of_job.column.job.as_deref().unwrap_or_default();
        let stopped = |runs: &Vec<Vec<&ProcessResults>>| {
            let processes = runs
                .iter()
                .flatten()
                .filter(|p| p.job == job && !p.finished);
            processes.map(|p| p.runtime_ns).min()
        };
        of_job.stopped_after_ns = runs.iter().map(stopped).collect();
    }
    figures
}

/// Returns the contests for the least time of jobs that end by themselves, and for
/// fairness.
pub(crate) fn contests(
    names: &[String],
    figures: &[ProcessFigures],
    pairs: &Pairs,
) -> Vec<Contest> {
    let compared = figures
        .iter()
        .filter(|f| matches!(f.column.metric, Metric::Duration | Metric::Jain))
        .filter(|f| f.cells.iter().any(Option::is_some));
    let contests = compared.map(|f| {
        let contest = Contest::decide(names, &f.compared(), f.column.metric, None, pairs);
        Contest {
            job: f.column.job.clone(),
            ..contest
        }
    });
    // A fairness contest without differences is not worth a sentence.
    let tells = |c: &Contest| c.metric != Metric::Jain || c.outcome != Outcome::WithinNoise;
    contests.filter(tells).collect()
}

/// Returns the time that a job took, which is that of its slowest process; `None` if a
/// process was stopped.
fn duration(run: &[&ProcessResults], job: &str) -> Option<f64> {
    let of_job = || run.iter().filter(|p| p.job == job);
    let whole = of_job().all(|p| p.finished);
    let longest = of_job().map(|p| p.runtime_ns).max()?;
    whole.then_some(longest as f64)
}

/// Returns the mean bandwidth of a job's processes.
fn bandwidth(run: &[&ProcessResults], job: &str) -> Option<f64> {
    let of_job: Vec<f64> = run
        .iter()
        .filter(|p| p.job == job)
        .map(|p| p.bandwidth())
        .collect();
    (!of_job.is_empty()).then(|| Estimate::of(&of_job).mean)
}

/// Returns whether it is known which share is due to each competing process: where weights
/// or groups say so, and where all do the same kind of work. Bandwidths of unlike work, such
/// as small random and large sequential reads, are not alike under the fairest scheduler.
fn has_shares(run: &Results, group_id: u32, competes: &dyn Fn(&str) -> bool) -> bool {
    let jobs = || run.jobs.iter().filter(|job| job.group_id == group_id);
    let is_competing = |process: &&ProcessResults| competes(&process.job);
    let weights = jobs()
        .flat_map(|job| &job.processes)
        .filter(is_competing)
        .map(|process| process.weight);
    let mut groups = run.disks.iter().flat_map(|disk| &disk.cgroups);
    let is_given = !is_one(weights)
        || jobs().any(|job| has_option(job, "cgroup"))
        || groups.any(|group| !group.name.is_empty());
    let competing = jobs().filter(|job| job.processes.iter().any(|p| competes(&p.job)));
    is_given || is_one(competing.map(|job| (&job.setup.rw, job.setup.block_bytes)))
}

/// Returns whether all items are equal.
fn is_one<T: PartialEq>(mut items: impl Iterator<Item = T>) -> bool {
    let first = items.next();
    items.all(|item| Some(item) == first)
}

fn has_option(job: &JobResults, name: &str) -> bool {
    job.options.iter().any(|(option, _)| option == name)
}

/// Returns Jain's index of bandwidths divided by weights over the competing jobs. A job
/// that ends by itself beside others that do not needs less than its share.
fn fairness(run: &[&ProcessResults], competes: &dyn Fn(&str) -> bool) -> Option<f64> {
    let competing = run.iter().filter(|p| competes(&p.job));
    let due: Vec<f64> = competing
        .filter_map(|p| Some(p.bandwidth() / p.weight?))
        .collect();
    (due.len() > 1).then(|| jain_index(&due))
}
