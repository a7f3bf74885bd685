//! A reporting group of the job: its figures and its verdict.

use serde::{Deserialize, Serialize};

use super::figure::Metric;
use super::processes::{self, ProcessFigures};
use super::runs::{Pairs, SchedulerRuns};
use super::table::{self, DirectionTable};
use super::trade;
use super::verdict::{Contest, Verdict};

/// One reporting group of the job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Section {
    /// fio's `groupid`.
    pub group_id: u32,
    /// The names of its jobs.
    pub title: String,
    /// The verdict on the group.
    pub verdict: Verdict,
    /// Reads, writes, trims and syncs, if the jobs have them: of the group as a whole,
    /// and of each job if there are several.
    pub directions: Vec<DirectionTable>,
    /// Processes side by side; empty if there is only one.
    #[serde(default)]
    pub processes: Vec<ProcessFigures>,
    /// Jobs of the idle class, which get what others leave.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub idle: Vec<String>,
}

impl Section {
    /// Whether the group is one job, so that its tables are that job's.
    pub(crate) fn is_alone(&self) -> bool {
        self.directions.iter().all(|table| table.job.is_none())
    }

    /// Returns a group with a verdict on its figures.
    pub(crate) fn with_verdict(
        (group_id, title): (u32, String),
        names: &[String],
        directions: Vec<DirectionTable>,
        processes: Vec<ProcessFigures>,
        pairs: &Pairs,
    ) -> Section {
        let mut tails = Vec::new();
        let of_one_job = |table: &&DirectionTable| !table.several_jobs;
        let can_tell = |table: &&DirectionTable| table.can_tell(Metric::P99);
        for table in directions.iter().filter(of_one_job).filter(can_tell) {
            let p99s = table.repeats(Metric::P99);
            let direction = Some(table.direction);
            let contest = Contest::decide(names, &p99s, Metric::P99, direction, pairs);
            tails.push(Contest {
                job: table.job.clone(),
                ..contest
            });
        }
        let bandwidths = bandwidths(names, &directions, pairs);
        let times = processes::contests(names, &processes, pairs);
        let trades = bandwidths.iter();
        let trades: Vec<String> = trades
            .filter_map(|bandwidth| trade::clause(bandwidth, &directions))
            .collect();
        Section {
            group_id,
            title,
            verdict: Verdict::new(bandwidths, tails, times, &trades),
            directions,
            processes,
            idle: Vec::new(),
        }
    }
}

/// Returns the contests for the bandwidth of each job, all directions together.
fn bandwidths(names: &[String], directions: &[DirectionTable], pairs: &Pairs) -> Vec<Contest> {
    let of_one_job = || directions.iter().filter(|table| !table.several_jobs);
    let mut jobs: Vec<&Option<String>> = Vec::new();
    for table in of_one_job().filter(|table| !table.has_own_times) {
        if !jobs.contains(&&table.job) {
            jobs.push(&table.job);
        }
    }
    let contest = |job: &Option<String>| {
        let mut totals = vec![Vec::new(); names.len()];
        for table in of_one_job().filter(|table| table.job == *job) {
            for (total, own) in totals.iter_mut().zip(table.repeats(Metric::Bandwidth)) {
                total.resize(own.len().max(total.len()), 0.0);
                let both = total.iter_mut().zip(own);
                both.for_each(|(total, own)| *total += own);
            }
        }
        Contest {
            job: job.clone(),
            ..Contest::decide(names, &totals, Metric::Bandwidth, None, pairs)
        }
    };
    jobs.into_iter().map(contest).collect()
}

/// Returns all groups of the job.
pub(crate) fn sections(schedulers: &[SchedulerRuns], pairs: &Pairs) -> Vec<Section> {
    let ids = group_ids(schedulers).into_iter();
    ids.map(|group_id| section(schedulers, group_id, pairs))
        .collect()
}

fn section(schedulers: &[SchedulerRuns], group_id: u32, pairs: &Pairs) -> Section {
    let names: Vec<String> = schedulers.iter().map(|s| s.name.clone()).collect();
    let jobs = jobs(schedulers, group_id);
    let directions = table::of_group(schedulers, group_id, &jobs, pairs);
    let processes = processes::figures(schedulers, group_id, pairs);
    let group = (group_id, jobs.join(", "));
    let idle = jobs.iter().filter(|job| is_idle(schedulers, group_id, job));
    Section {
        idle: idle.map(ToString::to_string).collect(),
        ..Section::with_verdict(group, &names, directions, processes, pairs)
    }
}

/// Whether all processes of a job are of the idle class.
fn is_idle(schedulers: &[SchedulerRuns], group_id: u32, job: &str) -> bool {
    let runs = schedulers.iter().flat_map(|s| &s.runs);
    let jobs = runs.flat_map(|run| &run.jobs);
    let mut own = jobs.filter(|found| found.group_id == group_id && found.name == job);
    own.all(|found| found.setup.is_idle_class)
}

fn group_ids(schedulers: &[SchedulerRuns]) -> Vec<u32> {
    let runs = schedulers.iter().flat_map(|s| &s.runs);
    let mut ids: Vec<u32> = runs
        .flat_map(|run| &run.jobs)
        .map(|job| job.group_id)
        .collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

/// Returns the names of a group's jobs, each once.
fn jobs(schedulers: &[SchedulerRuns], group_id: u32) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    let runs = schedulers.iter().flat_map(|s| &s.runs);
    for job in runs.flat_map(|run| &run.jobs) {
        if job.group_id == group_id && !names.contains(&job.name.as_str()) {
            names.push(&job.name);
        }
    }
    names
}
