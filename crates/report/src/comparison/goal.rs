//! Goals: a comparison judged by named figures, with limits that a scheduler has to
//! keep.

use std::fmt;
use std::str::FromStr;

use blklab_description::hint;
use blklab_stats::Estimate;
use serde::{Deserialize, Serialize};

use super::figure::{Direction, Metric};
use super::processes::ProcessFigures;
use super::runs::Pairs;
use super::section::Section;
use super::verdict::{Contest, Outcome, sentence};
use super::{Comparison, DirectionTable, noun};
use crate::quantity::and_list;

/// A figure's name: `JOB.read.p99`, `JOB.bandwidth`, `all.iops`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FigureName {
    /// The job; `None` for all jobs together.
    job: Option<String>,
    direction: Option<Direction>,
    metric: Metric,
}

/// The metrics by name. A name that ends with another name comes before it.
const METRICS: [(&str, Metric); 8] = [
    ("bandwidth", Metric::Bandwidth),
    ("iops", Metric::Iops),
    ("mean", Metric::Mean),
    ("p50", Metric::P50),
    ("p99.9", Metric::P999),
    ("p99", Metric::P99),
    ("max", Metric::Max),
    ("time", Metric::Duration),
];

impl FromStr for FigureName {
    type Err = String;

    fn from_str(text: &str) -> Result<FigureName, String> {
        let ends = |(name, metric): (&str, Metric)| {
            let rest = text.strip_suffix(name)?.strip_suffix('.')?;
            Some((rest, metric))
        };
        let Some((rest, metric)) = METRICS.into_iter().find_map(ends) else {
            let names: Vec<String> = METRICS.map(|(name, _)| name.to_string()).to_vec();
            let end = text.rsplit('.').next().unwrap_or(text);
            let hint = hint(end, METRICS.map(|(name, _)| name));
            return Err(format!(
                "{text:?} is not JOB.DIRECTION.FIGURE: it ends with none of {}{hint}",
                and_list(&names)
            ));
        };
        let of = |direction: Direction| {
            let job = rest.strip_suffix(direction.name())?.strip_suffix('.')?;
            Some((job, direction))
        };
        let found = Direction::ALL.into_iter().find_map(of);
        let (job, direction) = match found {
            Some((job, direction)) => (job, Some(direction)),
            None => (rest, None),
        };
        let is_rate = matches!(metric, Metric::Bandwidth | Metric::Iops);
        match job {
            "" => Err(format!(
                "{text:?} names no job: write JOB.{text} or all.{text}"
            )),
            "all" if !is_rate => Err(format!(
                "{text:?}: only bandwidth and iops add up over jobs; name a job"
            )),
            _ if metric == Metric::Duration && direction.is_some() => Err(format!(
                "{text:?}: the time is a whole job's: write JOB.time"
            )),
            _ => Ok(FigureName {
                job: (job != "all").then(|| job.to_string()),
                direction,
                metric,
            }),
        }
    }
}

impl FigureName {
    /// Names a figure of a job, or of all jobs.
    pub(crate) fn new(
        job: Option<&str>,
        direction: Option<Direction>,
        metric: Metric,
    ) -> FigureName {
        FigureName {
            job: job.map(str::to_string),
            direction,
            metric,
        }
    }

    /// Returns the metric of the figure.
    pub(crate) fn metric(&self) -> Metric {
        self.metric
    }

    /// Returns the figure in words: `p99 read latency of victim`, `bandwidth`.
    pub(crate) fn words(&self) -> String {
        let metric = self.metric.name();
        let is_rate = matches!(self.metric, Metric::Bandwidth | Metric::Iops);
        let what = match self.direction {
            Some(direction) if is_rate => format!("{} {metric}", direction.name()),
            Some(direction) => format!("{metric} {} latency", direction.name()),
            None => metric.to_string(),
        };
        match &self.job {
            Some(job) => format!("{what} of {job}"),
            None => what,
        }
    }

    /// Whether the other figure is of the same direction of the same job.
    pub(crate) fn is_beside(&self, other: &FigureName) -> bool {
        (&self.job, self.direction) == (&other.job, other.direction)
    }

    /// Whether it is the running time of this job.
    pub(crate) fn is_time_of(&self, job: Option<&str>) -> bool {
        self.metric == Metric::Duration && self.job.as_deref() == job
    }

    /// Returns in words what there is if a scheduler has the figure: `reads of victim`,
    /// `the end of program`.
    pub(crate) fn activity(&self) -> String {
        let activity = match (self.metric, self.direction) {
            (Metric::Duration, _) => "the end".to_string(),
            (Metric::Score, _) => "a score".to_string(),
            (_, Some(direction)) => format!("{}s", direction.name()),
            (_, None) => "I/O".to_string(),
        };
        match &self.job {
            Some(job) => format!("{activity} of {job}"),
            None => activity,
        }
    }
}

impl fmt::Display for FigureName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let job = self.job.as_deref().unwrap_or("all");
        let metric = METRICS.iter().find(|(_, metric)| *metric == self.metric);
        let metric = metric.map_or("", |(name, _)| name);
        match self.direction {
            Some(direction) => write!(f, "{job}.{}.{metric}", direction.name()),
            None => write!(f, "{job}.{metric}"),
        }
    }
}

/// A figure to optimise, with its weight among several.
#[derive(Clone, Debug, PartialEq)]
pub struct Goal {
    figure: FigureName,
    weight: f64,
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.weight == 1.0 {
            true => write!(f, "{}", self.figure),
            false => write!(f, "{} * {}", self.weight, self.figure),
        }
    }
}

impl FromStr for Goal {
    type Err = String;

    /// Parses `FIGURE` or `WEIGHT*FIGURE`.
    fn from_str(text: &str) -> Result<Goal, String> {
        let weighted = text.split_once('*');
        let weighted = weighted.and_then(|(weight, rest)| {
            let weight: f64 = weight.trim().parse().ok()?;
            Some((weight, rest.trim()))
        });
        let (weight, figure) = weighted.unwrap_or((1.0, text.trim()));
        if !(weight > 0.0 && weight.is_finite()) {
            return Err(format!("a weight has to be above zero, {weight} is not"));
        }
        let figure = figure.parse()?;
        Ok(Goal { figure, weight })
    }
}

/// A bound on a figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Limit {
    figure: FigureName,
    at_most: bool,
    /// Whether the bound itself keeps the limit.
    inclusive: bool,
    bound: Bound,
    text: String,
}

/// What a figure is held against.
#[derive(Clone, Debug, PartialEq)]
enum Bound {
    /// In the metric's own unit: nanoseconds, bytes a second, or one.
    Value(f64),
    /// So many times the figure of the row of this name.
    Times(f64, String),
}

impl FromStr for Limit {
    type Err = String;

    /// Parses `FIGURE < VALUE` or `FIGURE >= 0.95 SCHEDULER`, and their like.
    fn from_str(text: &str) -> Result<Limit, String> {
        let at = text.find(['<', '>']);
        let at = at.ok_or_else(|| format!("{text:?} is not FIGURE < VALUE or FIGURE > VALUE"))?;
        let figure: FigureName = text[..at].trim().parse()?;
        let value = &text[at + 1..];
        let (inclusive, value) = match value.strip_prefix('=') {
            Some(value) => (true, value),
            None => (false, value),
        };
        Ok(Limit {
            bound: bound_of(figure.metric, value.trim())?,
            figure,
            at_most: text[at..].starts_with('<'),
            inclusive,
            text: text.trim().to_string(),
        })
    }
}

impl Limit {
    /// The bound in the metric's own unit; `None` if it is that of a row without the figure.
    fn value(&self, figures: &[Option<Estimate>], rows: &[String]) -> Option<f64> {
        match &self.bound {
            Bound::Value(value) => Some(*value),
            Bound::Times(times, row) => {
                let at = rows.iter().position(|name| name == row)?;
                Some(times * figures[at]?.mean)
            }
        }
    }

    /// Checks that the row that it is held against is among `rows`.
    fn check_row(&self, rows: &[String]) -> Result<(), String> {
        match &self.bound {
            Bound::Times(_, row) if !rows.contains(row) => {
                let hint = hint(row, rows.iter().map(String::as_str));
                let (text, rows) = (&self.text, and_list(rows));
                Err(format!(
                    "--subject-to {text}: {row} is not compared; {rows} are{hint}"
                ))
            }
            _ => Ok(()),
        }
    }

    fn is_kept(&self, mean: f64, bound: f64) -> bool {
        let is_beyond = match self.at_most {
            true => mean < bound,
            false => mean > bound,
        };
        is_beyond || self.inclusive && mean == bound
    }
}

/// Parses a value with its unit, or a factor and the row whose figure it is of.
fn bound_of(metric: Metric, text: &str) -> Result<Bound, String> {
    let of_row = || {
        let (times, row) = text.split_once(' ')?;
        let (times, unit) = match times.strip_suffix('%') {
            Some(percent) => (percent, 100.0),
            None => (times, 1.0),
        };
        let times: f64 = times.parse().ok()?;
        let is_right = times > 0.0 && times.is_finite();
        is_right.then(|| Bound::Times(times / unit, row.trim().to_string()))
    };
    match value_of(metric, text) {
        Ok(value) => Ok(Bound::Value(value)),
        Err(problem) => of_row().ok_or(problem),
    }
}

/// Parses a value with its unit, and converts it to the metric's own unit.
fn value_of(metric: Metric, text: &str) -> Result<f64, String> {
    let units: &[(&str, f64)] = match metric {
        Metric::Bandwidth => &[
            ("kB/s", 1e3),
            ("MB/s", 1e6),
            ("GB/s", 1e9),
            ("KiB/s", 1024.0),
            ("MiB/s", 1_048_576.0),
            ("GiB/s", 1_073_741_824.0),
            ("B/s", 1.0),
        ],
        Metric::Iops => &[("k", 1e3), ("M", 1e6), ("", 1.0)],
        _ => &[("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)],
    };
    let number = |(unit, factor): &(&str, f64)| {
        let number: f64 = text.strip_suffix(unit)?.trim().parse().ok()?;
        (number >= 0.0 && number.is_finite()).then_some(number * factor)
    };
    units.iter().find_map(number).ok_or_else(|| {
        let names = units
            .iter()
            .map(|(unit, _)| format!("{:?}", format!("5{unit}")));
        let names: Vec<String> = names.collect();
        format!(
            "{text:?} is no value of it, as {} are, and no part of a scheduler's, as \"0.95 none\"",
            and_list(&names)
        )
    })
}

/// The goals and limits of a comparison.
#[derive(Clone, Debug, Default)]
pub struct Goals {
    /// The figures to optimise.
    pub goals: Vec<Goal>,
    /// The limits to keep.
    pub limits: Vec<Limit>,
}

/// A goal or limit with its figure under each scheduler.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GoalRow {
    /// The figure's name, or the limit as written.
    pub name: String,
    /// The figure's metric.
    pub metric: Metric,
    /// The figure's mean by scheduler; `None` if a scheduler has none.
    pub values: Vec<Option<Estimate>>,
    /// Whether each scheduler keeps the limit; empty for goals.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<bool>,
}

/// A comparison judged by goals and limits.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Judgement {
    /// The goals, then the limits.
    pub rows: Vec<GoalRow>,
    /// The contest among the schedulers that keep the limits; `None` if none does.
    pub contest: Option<Contest>,
    /// The outcome in a sentence.
    pub sentence: String,
    /// The deciding figure and its values by scheduler and repeat.
    #[serde(skip)]
    decided: Option<(FigureName, Values)>,
}

impl Judgement {
    /// Returns whether some goal's figure is missing under every scheduler.
    pub(crate) fn is_unmeasured(&self) -> bool {
        self.rows.iter().any(GoalRow::is_unmeasured)
    }

    /// Returns whether a scheduler keeps the limits.
    pub(crate) fn keeps(&self, scheduler: usize) -> bool {
        self.rows.iter().all(|row| row.keeps(scheduler))
    }

    /// Returns the deciding figure: the only goal, or all goals together.
    pub(crate) fn decided_by(&self) -> Option<(FigureName, Values)> {
        self.decided.clone()
    }
}

impl Judgement {
    /// Returns by which factor each scheduler beats the first in the deciding figure;
    /// `None` for those that break a limit or lack a figure.
    pub fn scores(&self) -> Vec<Option<f64>> {
        let Some((figure, values)) = &self.decided else {
            return Vec::new();
        };
        let mean = |own: &Vec<f64>| (!own.is_empty()).then(|| Estimate::of(own).mean);
        let means: Vec<Option<f64>> = values.iter().map(mean).collect();
        let first = means.first().copied().flatten();
        let score = |(at, mean): (usize, &Option<f64>)| {
            let (mean, first) = ((*mean)?, first?);
            let times = match figure.metric.more_is_better() {
                true => mean / first,
                false => first / mean,
            };
            (self.keeps(at) && times.is_finite()).then_some(times)
        };
        means.iter().enumerate().map(score).collect()
    }
}

/// A figure by scheduler and repeat; a scheduler that lacks it has no values.
pub(crate) type Values = Vec<Vec<f64>>;

impl Goals {
    /// Returns whether there are neither goals nor limits.
    pub fn is_empty(&self) -> bool {
        self.goals.is_empty() && self.limits.is_empty()
    }

    /// Returns whether a goal or limit is about the time that a job takes, which only a
    /// job that ends has.
    pub fn are_of_time(&self) -> bool {
        let goals = self.goals.iter().map(|goal| &goal.figure);
        let limits = self.limits.iter().map(|limit| &limit.figure);
        goals
            .chain(limits)
            .any(|figure| figure.metric == Metric::Duration)
    }

    /// Checks, before anything runs, that the named jobs are among `jobs`.
    ///
    /// # Errors
    /// For the first unknown job, in a message for the user.
    pub fn check_jobs(&self, jobs: &[String]) -> Result<(), String> {
        let goals = self.goals.iter().map(|goal| ("--goal", &goal.figure));
        let limits = self
            .limits
            .iter()
            .map(|limit| ("--subject-to", &limit.figure));
        for (option, figure) in goals.chain(limits) {
            if let Some(job) = &figure.job
                && !jobs.contains(job)
            {
                if let Some((known, direction)) = job.rsplit_once('.')
                    && jobs.iter().any(|job| job == known)
                {
                    let hint = hint(direction, Direction::ALL.map(Direction::name));
                    return Err(format!(
                        "{option} {figure}: {direction} is none of read, write, trim and sync{hint}"
                    ));
                }
                let hint = hint(job, jobs.iter().map(String::as_str));
                let jobs = and_list(jobs);
                return Err(format!(
                    "{option} {figure}: there is no job {job}; the jobs are {jobs}{hint}"
                ));
            }
        }
        Ok(())
    }

    /// Checks, before anything runs, that limits are held against rows among `rows`.
    ///
    /// # Errors
    /// For the first one that is not, in a message for the user.
    pub fn check_rows(&self, rows: &[String]) -> Result<(), String> {
        self.limits
            .iter()
            .try_for_each(|limit| limit.check_row(rows))
    }

    /// Judges a comparison.
    ///
    /// # Errors
    /// If the comparison has no such job or figure, in a message for the user.
    pub fn judge(&self, comparison: &Comparison) -> Result<Judgement, String> {
        let values = |figure: &FigureName| figure.values(comparison);
        let goals: Vec<Values> = self
            .goals
            .iter()
            .map(|goal| values(&goal.figure))
            .collect::<Result<_, _>>()?;
        let mut rows = Vec::new();
        for (goal, values) in self.goals.iter().zip(&goals) {
            rows.push(row(goal.to_string(), goal.figure.metric, values));
        }
        for limit in &self.limits {
            limit.check_row(&comparison.schedulers)?;
            let mut row = row(
                limit.text.clone(),
                limit.figure.metric,
                &values(&limit.figure)?,
            );
            let bound = limit.value(&row.values, &comparison.schedulers);
            let keeps = |value: &Option<Estimate>| {
                let both = value.zip(bound);
                both.is_some_and(|(value, bound)| limit.is_kept(value.mean, bound))
            };
            row.kept = row.values.iter().map(keeps).collect();
            rows.push(row);
        }
        let keeps = |scheduler: &usize| rows.iter().all(|row| row.keeps(*scheduler));
        let eligible: Vec<usize> = (0..comparison.schedulers.len()).filter(keeps).collect();
        let decided = self
            .decided(&goals)
            .filter(|(_, values)| values.iter().any(|own| !own.is_empty()));
        let contest = decided
            .as_ref()
            .and_then(|decided| contest(comparison, decided, &eligible));
        let sentence = match comparison.has_verdict() {
            true => judged_sentence(comparison, &rows, contest.as_ref()),
            false => comparison.headline.clone(),
        };
        Ok(Judgement {
            rows,
            contest,
            sentence,
            decided,
        })
    }

    /// Returns the deciding figure: the only goal, or the weighted geometric mean of the
    /// factors by which each scheduler beats the first in each goal.
    fn decided(&self, goals: &[Values]) -> Option<(FigureName, Values)> {
        if let ([goal], [values]) = (&self.goals[..], goals) {
            return Some((goal.figure.clone(), values.clone()));
        }
        let schedulers = goals.first()?.len();
        let total: f64 = self.goals.iter().map(|goal| goal.weight).sum();
        let mut logs: Values = vec![Vec::new(); schedulers];
        for (goal, values) in self.goals.iter().zip(goals) {
            let mut means = values.iter().map(|own| Estimate::of(own).mean);
            let base = means.find(|mean| *mean > 0.0).unwrap_or(0.0);
            let sign = match goal.figure.metric.more_is_better() {
                true => 1.0,
                false => -1.0,
            };
            for (sum, own) in logs.iter_mut().zip(values) {
                sum.resize(own.len().max(sum.len()), 0.0);
                for (sum, value) in sum.iter_mut().zip(own) {
                    *sum += sign * goal.weight / total * (value / base).ln();
                }
            }
        }
        // A scheduler that lacks a figure, or has one of zero, has no score.
        let score = |own: &Vec<f64>| -> Vec<f64> {
            let scores: Vec<f64> = own.iter().map(|log| log.exp()).collect();
            let known = scores.iter().all(|score| score.is_finite());
            if known { scores } else { Vec::new() }
        };
        let scores = logs.iter().map(score).collect();
        Some((FigureName::new(None, None, Metric::Score), scores))
    }
}

/// Decides the contest among the schedulers that keep the limits.
fn contest(
    comparison: &Comparison,
    (figure, values): &(FigureName, Values),
    eligible: &[usize],
) -> Option<Contest> {
    if eligible.is_empty() {
        return None;
    }
    let keys: Vec<Option<()>> = eligible
        .iter()
        .map(|_| comparison.paired.then_some(()))
        .collect();
    let names = eligible.iter().map(|at| comparison.schedulers[*at].clone());
    let names: Vec<String> = names.collect();
    let values: Values = eligible.iter().map(|at| values[*at].clone()).collect();
    let pairs = Pairs::by_key(&keys);
    let contest = Contest::decide(&names, &values, figure.metric, figure.direction, &pairs);
    Some(Contest {
        job: figure.job.clone(),
        ..contest
    })
}

fn row(name: String, metric: Metric, values: &Values) -> GoalRow {
    let mean = |own: &Vec<f64>| (!own.is_empty()).then(|| Estimate::of(own));
    GoalRow {
        name,
        metric,
        values: values.iter().map(mean).collect(),
        kept: Vec::new(),
    }
}

impl GoalRow {
    /// Returns whether it is a goal whose figure is missing under every scheduler; a
    /// time is missing if the job never ended.
    fn is_unmeasured(&self) -> bool {
        self.kept.is_empty() && self.values.iter().all(Option::is_none)
    }

    /// Returns whether a scheduler keeps the limit; `true` for goals.
    fn keeps(&self, scheduler: usize) -> bool {
        self.kept.get(scheduler).copied().unwrap_or(true)
    }
}

fn judged_sentence(comparison: &Comparison, rows: &[GoalRow], contest: Option<&Contest>) -> String {
    let mut sentences = Vec::new();
    let is_limited = rows.iter().any(|row| !row.kept.is_empty());
    match contest {
        Some(contest) if contest.outcome == Outcome::Alone && is_limited => {
            let alone = if comparison.schedulers.len() > 1 {
                " alone"
            } else {
                ""
            };
            let leader = contest.leaders.join("");
            sentences.push(format!("{leader}{alone} keeps the limits."));
        }
        Some(contest) => sentences.push(sentence(&[contest])),
        None if rows.iter().all(|row| row.kept.is_empty()) => {}
        None => {
            let keeps = |at: &usize| rows.iter().all(|row| row.keeps(*at));
            let kept = (0..comparison.schedulers.len()).filter(keeps);
            let kept: Vec<String> = kept.map(|at| comparison.schedulers[at].clone()).collect();
            sentences.push(match kept.is_empty() {
                true => format!("No {} keeps the limits.", noun(&comparison.schedulers)),
                false => format!("The limits are kept by {}.", and_list(&kept)),
            });
        }
    }
    for row in rows.iter().filter(|row| row.is_unmeasured()) {
        sentences.push(format!(
            "No {} has {}.",
            noun(&comparison.schedulers),
            row.name
        ));
    }
    for row in rows {
        let missing = row
            .values
            .iter()
            .enumerate()
            .filter(|(at, _)| !row.keeps(*at));
        let missing: Vec<String> = missing
            .map(|(at, value)| {
                let scheduler = &comparison.schedulers[at];
                match value {
                    Some(value) => format!("{scheduler} ({})", row.metric.show(value.mean)),
                    None => format!("{scheduler} (no such figure)"),
                }
            })
            .collect();
        if !missing.is_empty() {
            sentences.push(format!("Not {}: {}.", row.name, and_list(&missing)));
        }
    }
    sentences.join(" ")
}

impl FigureName {
    /// Returns the figure's values, summed over the groups and directions that its name
    /// leaves open.
    fn values(&self, comparison: &Comparison) -> Result<Values, String> {
        let mut found: Vec<Values> = Vec::new();
        for section in &comparison.sections {
            found.extend(self.values_in(section)?);
        }
        let mut sum: Values = vec![Vec::new(); comparison.schedulers.len()];
        for values in &found {
            for (sum, own) in sum.iter_mut().zip(values) {
                sum.resize(own.len().max(sum.len()), 0.0);
                let both = sum.iter_mut().zip(own);
                both.for_each(|(sum, value)| *sum += value);
            }
        }
        let jobs = job_names(comparison);
        let is_known = self.job.as_ref().is_some_and(|job| jobs.contains(job));
        // A job that never ended has no time, which is not the user's mistake.
        let is_unfinished = self.metric == Metric::Duration && is_known;
        let of_job = self.job.as_deref().filter(|_| is_known);
        match (found.is_empty() && !is_unfinished, of_job) {
            (true, Some(job)) => Err(format!(
                "{self}: no such figure; those of {job} are {}",
                and_list(&figures_of(job, comparison))
            )),
            (true, None) => Err(format!(
                "{self}: no such figure; the jobs are {}",
                and_list(&jobs)
            )),
            (false, _) => Ok(sum),
        }
    }

    fn values_in(&self, section: &Section) -> Result<Vec<Values>, String> {
        if self.metric == Metric::Duration {
            let is_it = |f: &&ProcessFigures| {
                f.column.metric == Metric::Duration && f.column.job == self.job
            };
            let figures = section.processes.iter().filter(is_it);
            return Ok(figures.map(|f| f.compared()).collect());
        }
        let alone = section.is_alone();
        let tables = section.directions.iter().filter(|table| {
            let is_job = match &self.job {
                None => table.job.is_none(),
                Some(job) if alone => section.title == *job,
                Some(job) => table.job.as_ref() == Some(job),
            };
            is_job
                && self
                    .direction
                    .is_none_or(|direction| table.direction == direction)
                && table.metrics().contains(&self.metric)
                && (self.direction.is_some() || table.direction != Direction::Sync)
        });
        let tables: Vec<Values> = tables.map(|table| table.repeats(self.metric)).collect();
        let is_rate = matches!(self.metric, Metric::Bandwidth | Metric::Iops);
        match tables.len() > 1 && !is_rate {
            true => Err(format!(
                "{self}: the job has several directions; name one, as in {}.read.{}",
                self.job.as_deref().unwrap_or("all"),
                self.metric.name()
            )),
            false => Ok(tables),
        }
    }
}

/// Returns the names of a job's figures.
fn figures_of(job: &str, comparison: &Comparison) -> Vec<String> {
    let mut figures: Vec<FigureName> = Vec::new();
    for section in &comparison.sections {
        let alone = section.is_alone();
        let is_job = |table: &&DirectionTable| match alone {
            true => section.title == job,
            false => table.job.as_deref() == Some(job),
        };
        for table in section.directions.iter().filter(is_job) {
            let named =
                |metric: &Metric| FigureName::new(Some(job), Some(table.direction), *metric);
            figures.extend(table.metrics().iter().map(named));
        }
        let processes = section.processes.iter().map(|figures| &figures.column);
        let timed = processes
            .filter(|of| of.metric == Metric::Duration && of.job.as_deref() == Some(job))
            .map(|of| FigureName::new(Some(job), None, of.metric));
        figures.extend(timed);
    }
    figures.iter().map(ToString::to_string).collect()
}

/// Returns the names of all jobs.
fn job_names(comparison: &Comparison) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for section in &comparison.sections {
        let jobs = section
            .directions
            .iter()
            .filter_map(|table| table.job.clone());
        let mut jobs: Vec<String> = jobs.collect();
        if jobs.is_empty() {
            jobs.push(section.title.clone());
        }
        jobs.retain(|job| !names.contains(job));
        jobs.dedup();
        names.extend(jobs);
    }
    names.dedup();
    names
}
