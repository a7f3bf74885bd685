//! The Pareto front of several goals: the rows that no other row beats in all of them.

use serde::{Deserialize, Serialize};

use super::{GoalRow, Judgement, noun};
use crate::quantity::and_list;

/// The rows of a comparison of which none is better than another in all goals.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Front {
    /// The rows, best in the first goal first.
    pub rows: Vec<usize>,
    /// The front in a sentence.
    pub sentence: String,
}

impl Front {
    /// Finds the front among rows that keep the limits. `names` are the rows' names.
    pub fn new(judgement: &Judgement, names: &[String]) -> Front {
        let points = Points::of(judgement);
        let is_best = |at: &usize| points.beaten_by(*at) == Some(0);
        let mut rows: Vec<usize> = (0..names.len()).filter(is_best).collect();
        rows.sort_by(|a, b| {
            let of = |at: usize| points.of[at].as_ref().map_or(0.0, |point| point[0]);
            of(*b).total_cmp(&of(*a))
        });
        let named: Vec<String> = rows.iter().map(|at| names[*at].clone()).collect();
        let noun = noun(names);
        let sentence = match &named[..] {
            [] => format!("No {noun} keeps the limits and has all figures."),
            [one] => format!("{one} is the best in every goal."),
            _ => format!(
                "No {noun} is better than {} in all goals.",
                and_list(&named)
            ),
        };
        Front { rows, sentence }
    }

    /// Returns a score by which rows near the front go on in a search: rows that fewer others
    /// beat have more, and those that as many beat are in the order of the goals together.
    pub fn scores(judgement: &Judgement) -> Vec<Option<f64>> {
        let points = Points::of(judgement);
        let together = judgement.scores().into_iter().enumerate();
        let score = |(at, together): (usize, Option<f64>)| {
            let beaten_by = points.beaten_by(at)? as f64;
            let together = together?;
            Some(together / (1.0 + together) - beaten_by)
        };
        together.map(score).collect()
    }
}

/// The rows' figures in each goal, with their signs such that more is better.
struct Points {
    /// `None` for a row that breaks a limit or lacks a figure.
    of: Vec<Option<Vec<f64>>>,
}

impl Points {
    fn of(judgement: &Judgement) -> Points {
        let goals: Vec<&GoalRow> = judgement.goals().collect();
        let rows = goals.first().map_or(0, |goal| goal.values.len());
        let value = |goal: &&GoalRow, at: usize| {
            let mean = goal.values[at]?.mean;
            Some(if goal.metric.more_is_better() {
                mean
            } else {
                -mean
            })
        };
        let point = |at: usize| -> Option<Vec<f64>> {
            let values = goals.iter().map(|goal| value(goal, at));
            judgement.keeps(at).then(|| values.collect())?
        };
        Points {
            of: (0..rows).map(point).collect(),
        }
    }

    /// Returns how many rows are as good in all goals and better in one.
    fn beaten_by(&self, at: usize) -> Option<usize> {
        let own = self.of[at].as_ref()?;
        let beats = |other: &&Vec<f64>| *other != own && other.iter().zip(own).all(|(a, b)| a >= b);
        Some(self.of.iter().flatten().filter(beats).count())
    }
}
