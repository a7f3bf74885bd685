//! Goals: a comparison judged by named figures, with limits that a scheduler has to
//! keep.

mod figure_values;
mod limit;

use std::fmt;
use std::str::FromStr;

use blklab_description::hint;
use blklab_stats::Estimate;
use serde::{Deserialize, Serialize};

use super::figure::{Direction, Metric};
use super::figure_name::{self, FigureName};
use super::part::SameWork;
use super::runs::Pairs;
use super::verdict::{Contest, Outcome, sentence};
use super::{Comparison, noun};
use crate::quantity::{and_list, few_of};
pub use limit::Limit;

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

/// Whether less or more of a goal's figure is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sense {
    /// Less is better.
    Minimize,
    /// More is better.
    Maximize,
}

impl Goal {
    /// Returns the goal of a figure with a sense, which has to be its own. The figure is
    /// written in full, or without its job as in `read p99`, where these jobs leave no doubt.
    ///
    /// # Errors
    /// If there is no such figure, or the sense is not its own, in a message for the user.
    pub fn with_sense(text: &str, sense: Sense, jobs: &[String]) -> Result<Goal, String> {
        let figure = figure_name::of_jobs(text.trim(), jobs)?;
        let (own, option, better) = match figure.metric.more_is_better() {
            true => (Sense::Maximize, "--maximize", "more"),
            false => (Sense::Minimize, "--minimize", "less"),
        };
        if sense != own {
            let name = figure.metric.name();
            return Err(format!(
                "of {name} {better} is better: right is {option} '{text}'"
            ));
        }
        let weight = 1.0;
        Ok(Goal { figure, weight })
    }
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
    /// Why the figure tells nothing, in a sentence; empty if it does.
    #[serde(default, rename = "untold", skip_serializing_if = "String::is_empty")]
    pub too_few_ios: String,
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
    /// Returns whether some goal's figure is missing under every scheduler, or tells nothing.
    pub fn is_unmeasured(&self) -> bool {
        self.rows.iter().any(GoalRow::is_unmeasured)
    }

    /// Returns the rows of the goals, without those of the limits.
    pub(crate) fn goals(&self) -> impl Iterator<Item = &GoalRow> {
        self.rows.iter().filter(|row| row.is_goal())
    }

    /// Returns whether a scheduler keeps the limits.
    pub(crate) fn keeps(&self, scheduler: usize) -> bool {
        self.rows.iter().all(|row| row.keeps(scheduler))
    }

    /// Puts a sentence in the place of a contest among rows that cannot be held against each
    /// other.
    pub(super) fn replace_contest(&mut self, sentence: String) {
        (self.contest, self.decided) = (None, None);
        self.sentence = sentence;
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
                let jobs = few_of(job, jobs);
                return Err(format!(
                    "{option} {figure}: there is no job {job}; the jobs are {jobs}{hint}"
                ));
            }
        }
        Ok(())
    }

    /// Checks, before anything runs, that limits are held against rows among `rows`: where
    /// these did different work, among those of each of `parts`.
    ///
    /// # Errors
    /// For the first one that is not, in a message for the user.
    pub fn check_rows(&self, rows: &[String], parts: &[SameWork]) -> Result<(), String> {
        self.limits
            .iter()
            .try_for_each(|limit| limit.check_row(rows, parts))
    }

    /// Judges a comparison.
    ///
    /// # Errors
    /// If the comparison has no such job or figure, in a message for the user.
    pub fn evaluate(&self, comparison: &Comparison) -> Result<Judgement, String> {
        self.evaluate_parts(comparison, &[])
    }

    /// Judges a comparison with limits held against rows of the same part.
    pub(super) fn evaluate_parts(
        &self,
        comparison: &Comparison,
        parts: &[SameWork],
    ) -> Result<Judgement, String> {
        let values = |figure: &FigureName| figure.values(comparison);
        let goals: Vec<Values> = self
            .goals
            .iter()
            .map(|goal| values(&goal.figure))
            .collect::<Result<_, _>>()?;
        let mut rows = Vec::new();
        for (goal, values) in self.goals.iter().zip(&goals) {
            rows.push(GoalRow {
                too_few_ios: goal.figure.too_few_ios(comparison).unwrap_or_default(),
                ..row(goal.to_string(), goal.figure.metric, values)
            });
        }
        for limit in &self.limits {
            limit.check_row(&comparison.schedulers, parts)?;
            let mut row = row(
                limit.text.clone(),
                limit.figure.metric,
                &values(&limit.figure)?,
            );
            let bounds = limit.bounds(&row.values, &comparison.schedulers, parts);
            let keeps = |(value, bound): (&Option<Estimate>, Option<f64>)| {
                let both = value.zip(bound);
                both.is_some_and(|(value, bound)| limit.is_kept(value.mean, bound))
            };
            row.kept = row.values.iter().zip(bounds).map(keeps).collect();
            rows.push(row);
        }
        let keeps = |scheduler: &usize| rows.iter().all(|row| row.keeps(*scheduler));
        let eligible: Vec<usize> = (0..comparison.schedulers.len()).filter(keeps).collect();
        let has_enough = rows.iter().all(|row| row.too_few_ios.is_empty());
        let decided = self
            .decided(&goals)
            .filter(|(_, values)| has_enough && values.iter().any(|own| !own.is_empty()));
        let contest = decided
            .as_ref()
            .and_then(|decided| contest(comparison, decided, &eligible));
        let sentence = match comparison.has_verdict() {
            true => outcome_sentence(comparison, &rows, contest.as_ref()),
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
        too_few_ios: String::new(),
    }
}

impl GoalRow {
    fn is_goal(&self) -> bool {
        self.kept.is_empty()
    }

    /// Returns whether it is a goal whose figure is missing under every scheduler, as a time
    /// is if the job never ended, or tells nothing.
    fn is_unmeasured(&self) -> bool {
        let is_missing = self.values.iter().all(Option::is_none) || !self.too_few_ios.is_empty();
        self.is_goal() && is_missing
    }

    /// Returns whether a scheduler keeps the limit; `true` for goals.
    fn keeps(&self, scheduler: usize) -> bool {
        self.kept.get(scheduler).copied().unwrap_or(true)
    }
}

fn outcome_sentence(
    comparison: &Comparison,
    rows: &[GoalRow],
    contest: Option<&Contest>,
) -> String {
    let mut sentences = Vec::new();
    let is_limited = !rows.iter().all(GoalRow::is_goal);
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
        None if !is_limited => {}
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
        sentences.push(match row.too_few_ios.is_empty() {
            true => format!("No {} has {}.", noun(&comparison.schedulers), row.name),
            false => row.too_few_ios.clone(),
        });
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
