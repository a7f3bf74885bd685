//! The comparison of schedulers as plain data: text, HTML and JSON show this
//! and reckon nothing themselves.

use std::collections::BTreeMap;

use blklab_stats::{DirResults, Estimate, Histogram, Results, Significance, Timeline};
use serde::{Deserialize, Serialize};

use crate::cpu_time::{CpuTimeline, timelines};
use crate::failed::{self, FailedIo};
use crate::pairs::Pairs;
use crate::processes::{self, ProcessFigures};
use crate::starved;
use crate::too_full;
use crate::trade;
use crate::verdict::{Contest, Verdict, headline};
use crate::why::{Channels, FactRow, channels, facts};

/// How many times as long one scheduler's runs have to take for that to be told.
const UNLIKE: f64 = 1.2;

/// A scheduler and its repeats of the job.
#[derive(Clone, Debug)]
pub struct SchedulerRuns {
    /// What to call it: its name, and its tunables where those differ.
    pub name: String,
    /// One run a repeat. The n-th run of every scheduler should have the same
    /// seed: they are compared pair by pair then.
    pub runs: Vec<Results>,
}

/// Schedulers compared on one job.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Comparison {
    /// The job file's name.
    pub job: String,
    /// The drive's name.
    pub drive: String,
    /// The machine's name.
    pub machine: String,
    /// Where it ran: `sim`, `serve` or `host`.
    pub world: String,
    /// The schedulers in the order given; the first is what the others are
    /// compared with.
    pub schedulers: Vec<String>,
    /// Runs of each scheduler.
    pub repeats: usize,
    /// The seed of each repeat, as the first scheduler ran them.
    pub seeds: Vec<u64>,
    /// Whether all schedulers met the same work repeat by repeat, so that
    /// differences are taken pair by pair.
    pub paired: bool,
    /// One sentence on the whole job.
    pub headline: String,
    /// Schedulers under which I/O failed; where there are any, nobody wins.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<FailedIo>,
    /// One section a reporting group (`stonewall`, `new_group`).
    pub sections: Vec<Section>,
    /// What explains the figures.
    pub why: Vec<FactRow>,
    /// How the drive's channels were busy; empty for drives without any.
    pub channels: Vec<Channels>,
    /// What CPUs did over time; empty where that was not watched.
    #[serde(default)]
    pub cpus: Vec<CpuTimeline>,
    /// What happened moment by moment in each scheduler's first run, where that
    /// was recorded. It is for the page; JSON would be drowned in it.
    #[serde(skip)]
    pub timelines: Vec<SchedulerTimeline>,
    /// Things the reader must know, each once.
    pub notes: Vec<String>,
    /// How to repeat it; the caller fills it in.
    pub origin: Origin,
}

/// A scheduler's recorded run.
#[derive(Clone, Debug)]
pub struct SchedulerTimeline {
    /// The scheduler.
    pub scheduler: String,
    /// What was recorded of it.
    pub timeline: Timeline,
}

/// What repeats a comparison.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The command line.
    pub command: String,
    /// The job file's text.
    pub job_text: String,
    /// The drive description's text.
    pub drive_text: String,
    /// The machine description's text.
    pub machine_text: String,
}

/// One reporting group of the job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Section {
    /// fio's `groupid`.
    pub group_id: u32,
    /// The names of its jobs.
    pub title: String,
    /// Who won.
    pub verdict: Verdict,
    /// Reads, writes and trims, as far as the job has them.
    pub directions: Vec<DirectionTable>,
    /// Processes side by side; empty where there is but one.
    #[serde(default)]
    pub processes: Vec<ProcessFigures>,
}

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
}

impl Direction {
    /// All of them.
    pub const ALL: [Direction; 3] = [Direction::Read, Direction::Write, Direction::Trim];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Direction::Read => "read",
            Direction::Write => "write",
            Direction::Trim => "trim",
        }
    }
}

/// A figure that schedulers are compared by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Metric {
    /// Bandwidth.
    #[serde(rename = "bandwidth_bytes_per_s")]
    Bandwidth,
    /// Units of I/O a second.
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
    /// Jain's index of what processes got for their weight.
    #[serde(rename = "jain_index")]
    Jain,
    /// How long a job took to the end of its work.
    #[serde(rename = "duration_ns")]
    Duration,
}

impl Metric {
    /// Those of a direction of I/O, in the order they are shown; the others are
    /// of processes.
    pub const ALL: [Metric; 7] = [
        Metric::Bandwidth,
        Metric::Iops,
        Metric::Mean,
        Metric::P50,
        Metric::P99,
        Metric::P999,
        Metric::Max,
    ];

    /// The head of its column, without a unit.
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
        }
    }

    /// Whether more of it is better; of latency less is.
    pub const fn more_is_better(self) -> bool {
        matches!(self, Metric::Bandwidth | Metric::Iops | Metric::Jain)
    }

    /// Zero for what is not of a direction.
    fn of(self, dir: &DirResults) -> f64 {
        let latency = dir.latency();
        match self {
            Metric::Bandwidth => dir.bandwidth(),
            Metric::Iops => dir.iops(),
            Metric::Mean => latency.summary().mean_ns,
            Metric::P50 => latency.percentile(50.0) as f64,
            Metric::P99 => latency.percentile(99.0) as f64,
            Metric::P999 => latency.percentile(99.9) as f64,
            Metric::Max => latency.summary().max_ns as f64,
            Metric::Jain | Metric::Duration => 0.0,
        }
    }
}

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

/// A figure over all repeats.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Its mean over the repeats, and how sure that is.
    pub value: Estimate,
    /// Against the first scheduler; `None` for that one itself, and where its
    /// figure is zero.
    pub change: Option<Change>,
}

/// How far a figure is from another scheduler's.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// The difference as a share of the other's figure: 0.041 is `+4.1 %`.
    pub relative: Estimate,
    /// Whether that is more than noise.
    pub significance: Significance,
    /// More than noise, and for the better.
    pub better: bool,
    /// More than noise, and for the worse.
    pub worse: bool,
}

impl Change {
    /// Compares repeats of a figure with another's; `None` where the other's
    /// mean is zero.
    pub(crate) fn between(
        base: &[f64],
        other: &[f64],
        paired: bool,
        more_is_better: bool,
    ) -> Option<Change> {
        let base_mean = Estimate::of(base).mean;
        if base_mean == 0.0 {
            return None;
        }
        let difference = match paired && base.len() == other.len() {
            true => Estimate::paired_difference(base, other),
            false => Estimate::welch_difference(base, other),
        };
        let significance = difference.significance();
        let relative = difference.scaled(1.0 / base_mean);
        // What reads as +0.0 % is neither good nor bad, however certain.
        let reads_as_zero = relative.mean.abs() < 0.000_5;
        let differs = significance == Significance::Differs && !reads_as_zero;
        let up_is_good = (difference.mean > 0.0) == more_is_better;
        Some(Change {
            relative,
            significance,
            better: differs && up_is_good,
            worse: differs && !up_is_good,
        })
    }
}

/// A point of a latency curve.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CurvePoint {
    /// This many percent of all I/O ...
    pub percent: f64,
    /// ... took no longer than this.
    pub latency_ns: u64,
}

/// Compares schedulers that ran the same job.
pub fn compare(schedulers: &[SchedulerRuns]) -> Comparison {
    let Some(first) = schedulers.iter().find_map(|s| s.runs.first()) else {
        return Comparison::default();
    };
    let seeds_of: Vec<_> = schedulers.iter().map(|s| Some(seeds(s))).collect();
    let pairs = Pairs::by_key(&seeds_of);
    let mut sections: Vec<Section> = group_ids(schedulers)
        .into_iter()
        .map(|group_id| section(schedulers, group_id, &pairs))
        .collect();
    let failed = failed::failed(schedulers);
    let no_verdict = failed::sentence(&failed).or_else(|| failed::cut_short(schedulers));
    if let Some(sentence) = &no_verdict {
        let verdicts = sections.iter_mut().map(|section| &mut section.verdict);
        verdicts.for_each(|verdict| verdict.sentence = sentence.clone());
    }
    Comparison {
        job: first.job.clone(),
        drive: first.drive.clone(),
        machine: first.machine.clone(),
        world: first.world.name().to_string(),
        schedulers: schedulers.iter().map(|s| s.name.clone()).collect(),
        repeats: schedulers.iter().map(|s| s.runs.len()).min().unwrap_or(0),
        seeds: seeds(&schedulers[0]),
        paired: pairs.are_all(),
        headline: no_verdict.unwrap_or_else(|| headline(&sections)),
        failed,
        sections,
        why: facts(schedulers),
        channels: channels(schedulers),
        cpus: timelines(schedulers),
        timelines: recorded(schedulers),
        notes: notes(schedulers),
        origin: Origin::default(),
    }
}

/// The recorded timelines, one a scheduler.
fn recorded(schedulers: &[SchedulerRuns]) -> Vec<SchedulerTimeline> {
    let of = |scheduler: &SchedulerRuns| {
        let timeline = scheduler.runs.iter().find_map(|run| run.timeline.clone())?;
        Some(SchedulerTimeline {
            scheduler: scheduler.name.clone(),
            timeline,
        })
    };
    schedulers.iter().filter_map(of).collect()
}

fn seeds(scheduler: &SchedulerRuns) -> Vec<u64> {
    scheduler.runs.iter().map(|run| run.seed).collect()
}

fn notes(schedulers: &[SchedulerRuns]) -> Vec<String> {
    let mut notes: Vec<String> = Vec::new();
    let all = schedulers.iter().flat_map(|s| &s.runs);
    for note in all.flat_map(|run| &run.notes) {
        if !notes.contains(note) {
            notes.push(note.clone());
        }
    }
    notes.extend(too_full::notes(schedulers));
    notes.extend(unlike_times(schedulers));
    notes.extend(schedulers.iter().filter_map(starved::note));
    notes
}

/// What to say where work that ends by itself took one scheduler much longer
/// than another: what runs beside it was measured for as long.
fn unlike_times(schedulers: &[SchedulerRuns]) -> Option<String> {
    let is_cut = |run: &Results| {
        let finished = |wanted| {
            run.jobs
                .iter()
                .flat_map(|j| &j.processes)
                .any(|p| p.finished == wanted)
        };
        finished(true) && finished(false)
    };
    if !schedulers.iter().flat_map(|s| &s.runs).any(is_cut) {
        return None;
    }
    let mean_s = |s: &SchedulerRuns| {
        let elapsed: Vec<f64> = s
            .runs
            .iter()
            .map(|run| run.elapsed_ns as f64 / 1e9)
            .collect();
        (Estimate::of(&elapsed).mean, s.name.clone())
    };
    let mut took: Vec<(f64, String)> = schedulers.iter().map(mean_s).collect();
    took.sort_by(|a, b| a.0.total_cmp(&b.0));
    let ((least, first), (most, last)) = (took.first()?, took.last()?);
    (most > &(least * UNLIKE)).then(|| {
        format!(
            "runs ended by themselves after {least:.3} s ({first}) to {most:.3} s ({last}): \
             bandwidths and latencies are of unlike times"
        )
    })
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

/// The names of a group's jobs, each once.
fn title(schedulers: &[SchedulerRuns], group_id: u32) -> String {
    let mut names: Vec<&str> = Vec::new();
    let runs = schedulers.iter().flat_map(|s| &s.runs);
    for job in runs.flat_map(|run| &run.jobs) {
        if job.group_id == group_id && !names.contains(&job.name.as_str()) {
            names.push(&job.name);
        }
    }
    names.join(", ")
}

fn section(schedulers: &[SchedulerRuns], group_id: u32, pairs: &Pairs) -> Section {
    let mut bandwidths: Vec<Vec<f64>> = vec![Vec::new(); schedulers.len()];
    let mut directions = Vec::new();
    let mut tails = Vec::new();
    for direction in Direction::ALL {
        let sums: Vec<Vec<DirResults>> = schedulers
            .iter()
            .map(|scheduler| {
                let runs = scheduler.runs.iter();
                runs.map(|run| sum_of(run, group_id, direction)).collect()
            })
            .collect();
        for (total, runs) in bandwidths.iter_mut().zip(&sums) {
            total.resize(runs.len(), 0.0);
            let both = total.iter_mut().zip(runs);
            both.for_each(|(total, dir)| *total += dir.bandwidth());
        }
        if sums.iter().flatten().all(|dir| dir.ios == 0) {
            continue;
        }
        let p99s = values_of(&sums, Metric::P99);
        let tail = Contest::decide(schedulers, &p99s, Metric::P99, Some(direction), pairs);
        tails.push(tail);
        directions.push(DirectionTable {
            direction,
            rows: rows(schedulers, &sums, pairs),
        });
    }
    let bandwidth = Contest::decide(schedulers, &bandwidths, Metric::Bandwidth, None, pairs);
    let names: Vec<String> = schedulers.iter().map(|s| s.name.clone()).collect();
    let processes = processes::figures(schedulers, group_id, pairs);
    let times = processes::contests(&names, &processes, pairs);
    let trade = trade::clause(&bandwidth, &directions);
    Section {
        group_id,
        title: title(schedulers, group_id),
        verdict: Verdict::new(bandwidth, tails, times, trade),
        directions,
        processes,
    }
}

/// A direction of a group, all its jobs together.
fn sum_of(run: &Results, group_id: u32, direction: Direction) -> DirResults {
    let mut sum = DirResults::default();
    for job in run.jobs.iter().filter(|job| job.group_id == group_id) {
        sum.merge(match direction {
            Direction::Read => &job.read,
            Direction::Write => &job.write,
            Direction::Trim => &job.trim,
        });
    }
    sum
}

/// A figure by scheduler and repeat.
fn values_of(sums: &[Vec<DirResults>], metric: Metric) -> Vec<Vec<f64>> {
    sums.iter()
        .map(|runs| runs.iter().map(|dir| metric.of(dir)).collect())
        .collect()
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
        let values = values_of(sums, metric);
        for (row, values) in rows.iter_mut().zip(values) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample_run::three_schedulers;

    #[test]
    fn cells_are_means_over_repeats() {
        let schedulers = three_schedulers(4);
        let comparison = compare(&schedulers);
        let read = &comparison.sections[0].directions[0];
        assert_eq!(read.direction, Direction::Read);
        let runs = schedulers[2].runs.iter();
        let by_hand: Vec<f64> = runs.map(|run| run.jobs[0].read.iops()).collect();
        let cell = read.rows[2].cells[&Metric::Iops];
        assert_eq!(cell.value, Estimate::of(&by_hand));
        let base = read.rows[0].cells[&Metric::Iops];
        assert_eq!(base.change, None);
        let relative = cell.change.unwrap().relative.mean;
        assert!((relative - (cell.value.mean / base.value.mean - 1.0)).abs() < 1e-12);
    }

    #[test]
    fn the_same_seeds_are_compared_pair_by_pair() {
        let mut schedulers = three_schedulers(3);
        assert!(compare(&schedulers).paired);
        schedulers[1].runs[2].seed = 77;
        assert!(!compare(&schedulers).paired);
    }

    #[test]
    fn directions_are_those_the_job_has() {
        let mut schedulers = three_schedulers(2);
        for run in schedulers.iter_mut().flat_map(|s| &mut s.runs) {
            run.jobs[0].write = DirResults::default();
        }
        let comparison = compare(&schedulers);
        let directions = &comparison.sections[0].directions;
        assert_eq!(directions.len(), 1);
        assert_eq!(comparison.sections[0].verdict.tails.len(), 1);
    }

    #[test]
    fn each_group_is_a_section() {
        let mut schedulers = three_schedulers(2);
        for run in schedulers.iter_mut().flat_map(|s| &mut s.runs) {
            let mut second = run.jobs[0].clone();
            second.name = "second".to_string();
            second.group_id = 1;
            run.jobs.push(second);
        }
        let comparison = compare(&schedulers);
        let titles: Vec<&str> = comparison
            .sections
            .iter()
            .map(|s| s.title.as_str())
            .collect();
        assert_eq!(titles, ["mixed", "second"]);
        assert!(
            comparison
                .headline
                .starts_with("Bandwidth: ac leads 2 of 2;")
        );
    }

    #[test]
    fn jobs_of_a_group_add_up() {
        let mut schedulers = three_schedulers(2);
        let before = compare(&schedulers);
        for run in schedulers.iter_mut().flat_map(|s| &mut s.runs) {
            let twin = run.jobs[0].clone();
            run.jobs.push(twin);
        }
        let after = compare(&schedulers);
        let iops = |c: &Comparison| {
            c.sections[0].directions[0].rows[0].cells[&Metric::Iops]
                .value
                .mean
        };
        assert!((iops(&after) - 2.0 * iops(&before)).abs() < 1e-6);
        assert_eq!(after.sections[0].title, "mixed");
    }

    #[test]
    fn curves_rise_and_end_where_the_values_do() {
        let comparison = compare(&three_schedulers(2));
        let curve = &comparison.sections[0].directions[0].rows[0].curve;
        assert!(curve.windows(2).all(|w| w[0].percent < w[1].percent));
        assert!(curve.windows(2).all(|w| w[0].latency_ns <= w[1].latency_ns));
        assert_eq!(curve[0].percent, 0.0);
        // 18 000 values carry four nines and a bit.
        let last = curve.last().unwrap().percent;
        assert!((99.99..99.999).contains(&last), "{last}");
    }

    #[test]
    fn nothing_compares_to_nothing() {
        assert_eq!(compare(&[]).schedulers.len(), 0);
        let name = "none".to_string();
        let idle = SchedulerRuns {
            name,
            runs: Vec::new(),
        };
        assert!(compare(&[idle]).sections.is_empty());
    }

    #[test]
    fn notes_show_once() {
        let mut schedulers = three_schedulers(2);
        for run in schedulers.iter_mut().flat_map(|s| &mut s.runs) {
            run.notes.push("buffered I/O is not modelled".to_string());
        }
        assert_eq!(compare(&schedulers).notes.len(), 1);
    }
}
