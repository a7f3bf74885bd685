//! Which row to take: one that is better than what there is, at a price that is small
//! beside that.

use blklab_stats::{Estimate, Significance};
use serde::{Deserialize, Serialize};

use super::Choices;
use crate::comparison::figure::{Change, Metric};
use crate::comparison::goal::FigureName;
use crate::comparison::{Comparison, Judgement, Section};
use crate::quantity::change;

/// A change of scheduler is not worth less than this share of a figure.
const WORTH: f64 = 0.05;
/// And for less than this where rows ran once, which tells nothing of the noise.
const WORTH_UNTESTED: f64 = 0.1;
/// A row is taken at a price where what it brings is so many times as much, both as
/// logarithms of how many times better and worse figures get.
const GAIN_OVER_PRICE: f64 = 4.0;
/// Where a row has a figure that another lacks, that counts as so much.
const LACKING: f64 = 3.0;
/// Figures that a sentence names.
const NAMED: usize = 3;

/// What a comparison says to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// To take this row.
    Take(String),
    /// To keep this row: no difference is worth a change.
    Keep(String),
    /// Whether something is better depends on which job counts.
    Depends,
}

impl Answer {
    /// It as the end of a sentence.
    pub fn words(&self) -> String {
        match self {
            Answer::Take(name) => format!("{name} is to be taken"),
            Answer::Keep(name) => format!("no difference is worth leaving {name}"),
            Answer::Depends => "it depends on which figure counts".to_string(),
        }
    }
}

/// A figure that is decided by, and its values by row and repeat.
struct Figure {
    name: FigureName,
    values: Vec<Vec<f64>>,
}

/// How a figure changes from one row to another.
struct FigureChange<'f> {
    figure: &'f Figure,
    /// The logarithm of how many times as good it gets.
    gain: f64,
    /// Its change, where both rows have it.
    change: Option<Change>,
}

impl FigureChange<'_> {
    fn text(&self) -> String {
        let what = self.figure.name.words();
        match &self.change {
            Some(step) => format!("{what} {}", change(&step.relative)),
            None if self.gain > 0.0 => format!("{what} at all"),
            None => format!("all of {what}"),
        }
    }
}

/// A decision among some rows.
pub(super) struct Decision<'c> {
    comparison: &'c Comparison,
    /// What is decided by.
    deciding: Vec<Figure>,
    /// All figures: a row may cost something that is not decided by.
    all: Vec<Figure>,
    base: usize,
    outcome: Outcome,
}

enum Outcome {
    Take(usize),
    Keep,
    /// Rows that are better in some figures and worse in others.
    Depends(Vec<usize>),
}

impl<'c> Decision<'c> {
    /// Decides among `rows`, from what the kernel does by itself, or else from the
    /// first of them; `None` where there are none.
    pub(super) fn new(
        comparison: &'c Comparison,
        choices: &Choices,
        rows: &[usize],
    ) -> Option<Decision<'c>> {
        let kept = eligible(comparison, rows);
        let by_default = rows.iter().find(|at| choices.rows[**at].by_default);
        let first = *kept.first()?;
        let Some(&base) = by_default else {
            return Some(Decision::from(first, comparison, rows));
        };
        if kept.contains(&base) {
            return Some(Decision::from(base, comparison, rows));
        }
        // What does not keep the limits has to be left.
        let best = Decision::from(first, comparison, rows).held();
        Some(Decision {
            base,
            outcome: Outcome::Take(best),
            ..Decision::from(base, comparison, rows)
        })
    }

    /// Decides whether to leave `base` for one of `rows`.
    pub(super) fn from(base: usize, comparison: &'c Comparison, rows: &[usize]) -> Decision<'c> {
        let all = || comparison.sections.iter().flat_map(figures).collect();
        let decided = comparison.judgement.as_ref().map(Judgement::decided_by);
        let mut decision = Decision {
            comparison,
            deciding: match decided {
                None => all(),
                Some(None) => Vec::new(),
                Some(Some((name, values))) => vec![Figure { name, values }],
            },
            all: all(),
            base,
            outcome: Outcome::Keep,
        };
        decision.outcome = decision.decide(&eligible(comparison, rows));
        decision
    }

    fn decide(&self, rows: &[usize]) -> Outcome {
        let mut best: Option<(f64, usize)> = None;
        let mut both_ways: Vec<(f64, usize)> = Vec::new();
        for &at in rows.iter().filter(|at| **at != self.base) {
            let steps = self.steps(&self.deciding, at);
            let gain: f64 = steps.iter().map(|step| step.gain.max(0.0)).sum();
            let price: f64 = steps.iter().map(|step| (-step.gain).max(0.0)).sum();
            let net = gain - price;
            if gain > 0.0 && gain >= GAIN_OVER_PRICE * price {
                if best.is_none_or(|(most, _)| net > most) {
                    best = Some((net, at));
                }
            } else if gain > 0.0 && price < GAIN_OVER_PRICE * gain {
                // A row that costs many times more than it brings is not considered.
                both_ways.push((net, at));
            }
        }
        both_ways.sort_by(|a, b| b.0.total_cmp(&a.0));
        match (best, both_ways.is_empty()) {
            (Some((_, at)), _) => Outcome::Take(at),
            (None, true) => Outcome::Keep,
            (None, false) => Outcome::Depends(both_ways.iter().map(|(_, at)| *at).collect()),
        }
    }

    pub(super) fn answer(&self, comparison: &Comparison) -> Answer {
        match self.outcome {
            Outcome::Take(at) => Answer::Take(comparison.schedulers[at].clone()),
            Outcome::Keep => Answer::Keep(comparison.schedulers[self.base].clone()),
            Outcome::Depends(_) => Answer::Depends,
        }
    }

    /// The row that others are compared with.
    pub(super) fn base(&self) -> usize {
        self.base
    }

    /// The row to take, if one is.
    pub(super) fn taken(&self) -> Option<usize> {
        match self.outcome {
            Outcome::Take(at) => Some(at),
            Outcome::Keep | Outcome::Depends(_) => None,
        }
    }

    /// The row that there is when the decision has been followed.
    pub(super) fn held(&self) -> usize {
        self.taken().unwrap_or(self.base)
    }

    /// Rows that are better and worse, the best of them first.
    pub(super) fn both_ways(&self) -> Vec<usize> {
        match &self.outcome {
            Outcome::Depends(rows) => rows.iter().copied().take(2).collect(),
            Outcome::Take(_) | Outcome::Keep => Vec::new(),
        }
    }

    /// What a row brings, the most first.
    pub(super) fn gains(&self, at: usize) -> Vec<String> {
        let mut steps = self.steps(&self.deciding, at);
        steps.retain(|step| step.gain > 0.0);
        steps.sort_by(|a, b| b.gain.total_cmp(&a.gain));
        steps.iter().take(NAMED).map(FigureChange::text).collect()
    }

    /// What a row costs, the most first.
    pub(super) fn prices(&self, at: usize) -> Vec<String> {
        let mut steps = self.steps(&self.all, at);
        steps.retain(|step| step.gain < 0.0);
        steps.sort_by(|a, b| a.gain.total_cmp(&b.gain));
        steps.iter().take(NAMED).map(FigureChange::text).collect()
    }

    /// A goal that a user could give.
    pub(super) fn example_goal(&self) -> String {
        let first = self.both_ways().first().copied().unwrap_or(self.base);
        let mut steps = self.steps(&self.deciding, first);
        steps.sort_by(|a, b| b.gain.total_cmp(&a.gain));
        let best = steps.first().map(|step| step.figure.name.to_string());
        best.unwrap_or_default()
    }

    /// The figures that differ by so much that it is worth a change, and that are
    /// surely or, where rows ran once, at least not surely not the noise.
    fn steps<'f>(&self, figures: &'f [Figure], to: usize) -> Vec<FigureChange<'f>> {
        let step = |figure: &'f Figure| {
            let (from, to) = (&figure.values[self.base], &figure.values[to]);
            let up = figure.name.metric().more_is_better();
            let has = |values: &[f64]| Estimate::of(values).mean > 0.0;
            let (gain, change) = match (has(from), has(to)) {
                (false, false) => return None,
                (true, false) => (-LACKING, None),
                (false, true) => (LACKING, None),
                (true, true) => {
                    let change = Change::between(from, to, self.comparison.paired, up)?;
                    let relative = change.relative.mean;
                    let worth = match change.significance {
                        Significance::WithinNoise => return None,
                        Significance::Differs => WORTH,
                        Significance::Unknown => WORTH_UNTESTED,
                    };
                    if relative.abs() < worth {
                        return None;
                    }
                    let log = relative.max(-0.999).ln_1p();
                    (if up { log } else { -log }, Some(change))
                }
            };
            Some(FigureChange {
                figure,
                gain,
                change,
            })
        };
        figures.iter().filter_map(step).collect()
    }
}

/// The rows that keep the limits, where there are any.
fn eligible(comparison: &Comparison, rows: &[usize]) -> Vec<usize> {
    let keeps = |at: &&usize| {
        let judgement = comparison.judgement.as_ref();
        judgement.is_none_or(|judgement| judgement.keeps(**at))
    };
    rows.iter().filter(keeps).copied().collect()
}

/// What each job of a group sees: how much it gets and how long it waits, or how long
/// it takes where it ends by itself.
fn figures(section: &Section) -> Vec<Figure> {
    let alone = section.directions.iter().all(|table| table.job.is_none());
    let times = section
        .processes
        .iter()
        .filter(|f| f.column.metric == Metric::Duration);
    let mut figures: Vec<Figure> = times
        .map(|f| Figure {
            name: FigureName::new(f.column.job.as_deref(), None, Metric::Duration),
            values: f.compared(),
        })
        .collect();
    let is_timed = |job: &str| {
        let mut timed = section.processes.iter();
        timed.any(|f| f.column.metric == Metric::Duration && f.column.job.as_deref() == Some(job))
    };
    for table in section.directions.iter().filter(|t| !t.several_jobs) {
        let job = match (&table.job, alone) {
            (Some(job), _) => job.as_str(),
            (None, true) => section.title.as_str(),
            (None, false) => continue,
        };
        for metric in [Metric::Bandwidth, Metric::P99] {
            // The bandwidth of work that ends is its time once more.
            let counts = table.metrics().contains(&metric)
                && !(metric == Metric::Bandwidth && is_timed(job));
            if counts {
                figures.push(Figure {
                    name: FigureName::new(Some(job), Some(table.direction), metric),
                    values: table.repeats(metric),
                });
            }
        }
    }
    figures
}
