//! Processes side by side: what each job's processes got, how evenly, and how
//! long those took that came to the end of their work while others went on.
//!
//! After the S suite (P. Valente's benchmarks for I/O schedulers), which
//! measures per-process bandwidth and the time until a program is up while
//! readers and writers run.

use blklab_stats::{Estimate, ProcessResults, jain_index};
use serde::{Deserialize, Serialize};

use super::figure::{Cell, Change, Metric};
use super::runs::{Pairs, SchedulerRuns};
use super::verdict::{Contest, Outcome};

/// What a column of the table tells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessColumn {
    /// The job, or none where the column is about all of them.
    #[serde(default)]
    pub job: Option<String>,
    /// Mean bandwidth of one process, the fairness of all, or the time that the
    /// job took.
    pub metric: Metric,
}

/// A column's figures, one a scheduler.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ProcessFigures {
    /// What they are.
    pub column: ProcessColumn,
    /// The figures; `None` where a scheduler has none.
    pub cells: Vec<Option<Cell>>,
    /// The figures of each repeat, by scheduler.
    pub repeats: Vec<Vec<f64>>,
}

impl ProcessFigures {
    /// Figures from their repeats, each against the first scheduler's.
    pub(crate) fn new(column: ProcessColumn, repeats: Vec<Vec<f64>>, pairs: &Pairs) -> Self {
        let up = column.metric.more_is_better();
        let base = repeats.first().cloned().unwrap_or_default();
        let cell = |(index, own): (usize, &Vec<f64>)| {
            let change = (index > 0 && !base.is_empty() && !own.is_empty())
                .then(|| Change::between(&base, own, pairs.are(0, index), up))
                .flatten();
            let value = Estimate::of(own);
            (!own.is_empty()).then_some(Cell { value, change })
        };
        let cells = repeats.iter().enumerate().map(cell).collect();
        ProcessFigures {
            column,
            cells,
            repeats,
        }
    }
}

/// Jobs beyond which per-process bandwidths are left to the JSON of each run.
const MOST_JOBS: usize = 6;

/// The table of a reporting group; empty where it has but one process, which
/// was stopped.
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
        let repeats: Vec<Vec<f64>> = runs
            .iter()
            .map(|runs| runs.iter().filter_map(|run| of(run)).collect())
            .collect();
        if repeats.iter().any(|values| !values.is_empty()) {
            let job = job.map(str::to_string);
            let column = ProcessColumn { job, metric };
            figures.push(ProcessFigures::new(column, repeats, pairs));
        }
    };
    for job in jobs.iter().filter(|job| finishes(job)) {
        add(Some(job), Metric::Duration, &|run| duration(run, job));
    }
    if several {
        if jobs.len() <= MOST_JOBS {
            for job in jobs.iter().filter(|job| !finishes(job)) {
                add(Some(job), Metric::Bandwidth, &|run| bandwidth(run, job));
            }
        }
        let competes = |job: &str| !finishes(job) || jobs.iter().all(|job| finishes(job));
        add(None, Metric::Jain, &|run| fairness(run, &competes));
    }
    figures
}

/// Who needs the least time for the jobs that end by themselves, and who is
/// fairest.
pub(crate) fn contests(
    names: &[String],
    figures: &[ProcessFigures],
    pairs: &Pairs,
) -> Vec<Contest> {
    let judged = figures
        .iter()
        .filter(|f| matches!(f.column.metric, Metric::Duration | Metric::Jain));
    let contests = judged.map(|f| {
        let contest = Contest::decide(names, &f.repeats, f.column.metric, None, pairs);
        Contest {
            job: f.column.job.clone(),
            ..contest
        }
    });
    // Where all are fair there is nothing to tell.
    let tells = |c: &Contest| c.metric != Metric::Jain || c.outcome != Outcome::WithinNoise;
    contests.filter(tells).collect()
}

/// How long a job took: as long as the slowest of its processes. A run in which
/// one was stopped does not tell.
fn duration(run: &[&ProcessResults], job: &str) -> Option<f64> {
    let of_job = || run.iter().filter(|p| p.job == job);
    let whole = of_job().all(|p| p.finished);
    let longest = of_job().map(|p| p.runtime_ns).max()?;
    whole.then_some(longest as f64)
}

/// What one process of a job got, in the mean.
fn bandwidth(run: &[&ProcessResults], job: &str) -> Option<f64> {
    let of_job: Vec<f64> = run
        .iter()
        .filter(|p| p.job == job)
        .map(|p| p.bandwidth())
        .collect();
    (!of_job.is_empty()).then(|| Estimate::of(&of_job).mean)
}

/// Jain's index of bandwidths divided by weights, of those jobs that compete: one
/// that ends by itself beside others that do not wants less than its share.
fn fairness(run: &[&ProcessResults], competes: &dyn Fn(&str) -> bool) -> Option<f64> {
    let competing = run.iter().filter(|p| competes(&p.job));
    let due: Vec<f64> = competing
        .filter_map(|p| Some(p.bandwidth() / p.weight?))
        .collect();
    (due.len() > 1).then(|| jain_index(&due))
}
