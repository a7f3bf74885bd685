//! Chooses a row: one that is better than the current scheduler, and whose losses are
//! small beside its gains.

use blklab_stats::{Estimate, Significance};
use serde::{Deserialize, Serialize};

use super::Choices;
use crate::comparison::figure::{Change, Direction, Metric};
use crate::comparison::figure_name::FigureName;
use crate::comparison::{Comparison, DirectionTable, Judgement, ProcessFigures, Section};
use crate::quantity::{and_list, change};

/// Smallest change of a figure that is worth another scheduler, as a share.
const CHANGE_MIN: f64 = 0.05;
/// Smallest change where rows ran once, which gives no estimate of the noise.
const UNTESTED_CHANGE_MIN: f64 = 0.1;
/// A row is taken if its gains are at least this many times its losses, both summed as
/// logarithms of the factors by which figures improve or worsen.
const GAIN_OVER_LOSS_MIN: f64 = 4.0;
/// A row that gains this many times as much as the one that is taken, at a price that keeps it
/// from being taken itself, is named beside it.
const MORE_GAIN_MIN: f64 = 1.5;
/// The gain that counts for a figure which only one of two rows has.
const ONE_SIDED_GAIN: f64 = 3.0;
/// Limit on the figures that a sentence names.
const FIGURES_NAMED_MAX: usize = 3;

/// The answer of a comparison.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// Switch to this row.
    Take(String),
    /// Keep this row: no difference is worth a change.
    Keep(String),
    /// The better row depends on which figure counts.
    Depends,
}

impl Answer {
    /// Returns the decision as the end of a sentence.
    pub fn words(&self) -> String {
        match self {
            Answer::Take(name) => format!("{name} is to be taken"),
            Answer::Keep(name) => format!("no difference is worth leaving {name}"),
            Answer::Depends => "it depends on which figure counts".to_string(),
        }
    }
}

/// A figure to decide by, with its values by row and repeat.
struct Figure {
    name: FigureName,
    values: Vec<Vec<f64>>,
    /// Whether only its losses count: a longer tail beyond the figure that is decided by.
    is_price: bool,
    /// Whether it is of a job of the idle class, which decides only where no other does.
    is_idle: bool,
}

/// Which changes for the better count.
#[derive(Clone, Copy)]
pub(super) enum Gains {
    /// Those that are more than noise among all that were looked at.
    Sure,
    /// Those that are more than noise each by itself.
    Likely,
}

/// The change of a figure from one row to another.
struct FigureChange<'f> {
    figure: &'f Figure,
    /// The logarithm of the factor by which the figure improves; negative if it worsens.
    gain: f64,
    /// The change, if both rows have the figure.
    change: Option<Change>,
}

/// What a row gains and what it loses, both summed as logarithms of factors.
#[derive(Clone, Copy)]
struct Weight {
    gain: f64,
    loss: f64,
}

impl Weight {
    /// Whether the row's losses are small beside its gains.
    fn is_better(self) -> bool {
        self.gain > 0.0 && self.gain >= GAIN_OVER_LOSS_MIN * self.loss
    }

    /// Whether the row gains and costs too much to be better. One that loses much more than it
    /// gains is not considered.
    fn is_mixed(self) -> bool {
        !self.is_better() && self.loss < GAIN_OVER_LOSS_MIN * self.gain
    }
}

/// Sums what changes worsen.
fn loss_of(changes: &[FigureChange<'_>]) -> f64 {
    changes.iter().map(|step| (-step.gain).max(0.0)).sum()
}

/// A decision among rows.
pub(super) struct Decision<'c> {
    comparison: &'c Comparison,
    /// The figures to decide by.
    deciding: Vec<Figure>,
    /// The number of differences from `base` that are looked at for a gain.
    looked_at: usize,
    /// All figures, since a row may worsen one that is not decided by.
    all: Vec<Figure>,
    base: usize,
    /// The other rows that keep the limits.
    others: Vec<usize>,
    outcome: Outcome,
}

enum Outcome {
    Take(usize),
    Keep,
    /// Rows that improve some figures and worsen others.
    Depends(Vec<usize>),
}

impl<'c> Decision<'c> {
    /// Decides among `rows`, starting from the kernel's default, or else from the first
    /// row that keeps the limits; `None` if no row keeps them.
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
        // A default that breaks the limits is replaced by the best row that keeps them.
        let best = Decision::from(first, comparison, rows).resulting_row();
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
                Some(Some((name, values))) => vec![Figure {
                    name,
                    values,
                    is_price: false,
                    is_idle: false,
                }],
            },
            looked_at: 0,
            all: all(),
            base,
            others: Vec::new(),
            outcome: Outcome::Keep,
        };
        let kept = eligible(comparison, rows);
        decision.others = kept.iter().copied().filter(|at| *at != base).collect();
        let figures = decision.deciding.iter().filter(|figure| !figure.is_price);
        decision.looked_at = figures.count() * decision.others.len();
        decision.outcome = decision.decide(&kept, Gains::Sure);
        decision
    }

    /// Returns the row that gains most of those that cost too much to be taken, if it gains much
    /// more than the one that is taken.
    pub(super) fn dearer(&self) -> Option<usize> {
        let taken = self.taken()?;
        let weigh = |at: usize| self.weigh(at, Gains::Sure);
        let others = self.others.iter().filter(|at| **at != taken);
        let weighed = others.map(|at| (weigh(*at), *at));
        let dear = weighed.filter(|(weight, _)| weight.is_mixed());
        let (most, at) = dear.max_by(|a, b| a.0.gain.total_cmp(&b.0.gain))?;
        (most.gain >= MORE_GAIN_MIN * weigh(taken).gain).then_some(at)
    }

    /// Returns the gains of a row and its losses.
    fn weigh(&self, at: usize, gains: Gains) -> Weight {
        let changes = self.deciding_changes(at, gains);
        Weight {
            gain: changes.iter().map(|step| step.gain.max(0.0)).sum(),
            loss: loss_of(&changes),
        }
    }

    fn decide(&self, rows: &[usize], gains: Gains) -> Outcome {
        let mut better: Vec<(f64, usize)> = Vec::new();
        let mut mixed: Vec<(f64, usize)> = Vec::new();
        for &at in rows.iter().filter(|at| **at != self.base) {
            let weight = self.weigh(at, gains);
            let net = weight.gain - weight.loss;
            if weight.is_better() {
                better.push((net, at));
            } else if weight.is_mixed() {
                mixed.push((net, at));
            }
        }
        let best_first = |mut rows: Vec<(f64, usize)>| -> Vec<usize> {
            rows.sort_by(|a, b| b.0.total_cmp(&a.0));
            rows.into_iter().map(|(_, at)| at).collect()
        };
        match (best_first(better).as_slice(), mixed.is_empty()) {
            ([best, others @ ..], _) => Outcome::Take(self.cheapest_like(*best, others)),
            ([], true) => Outcome::Keep,
            ([], false) => Outcome::Depends(best_first(mixed)),
        }
    }

    /// Returns the row that costs the other figures least among `best` and those of `others` that
    /// are as good by the goal, as far as the runs can tell them apart. Without a goal a row's
    /// losses have been weighed against its gains already.
    fn cheapest_like(&self, best: usize, others: &[usize]) -> usize {
        let Some(goal) = self.goal() else {
            return best;
        };
        let up = goal.name.metric().more_is_better();
        let is_like_best = |at: &usize| {
            let (from, to) = (&goal.values[best], &goal.values[*at]);
            let change = Change::between(from, to, self.comparison.paired, up);
            change.is_some_and(|change| change.significance == Significance::WithinNoise)
        };
        let price = |at: usize| loss_of(&self.changes(&self.all, at, Gains::Likely));
        let like_best = others.iter().copied().filter(is_like_best);
        // Of equal prices the first, which is the better.
        let priced = std::iter::once(best).chain(like_best);
        let cheapest = priced.map(|at| (price(at), at));
        let cheapest = cheapest.min_by(|a, b| a.0.total_cmp(&b.0));
        cheapest.map_or(best, |(_, at)| at)
    }

    /// Returns the one figure that the user's goals come to, if there are goals.
    fn goal(&self) -> Option<&Figure> {
        self.comparison.judgement.as_ref()?;
        self.deciding.first()
    }

    pub(super) fn answer(&self, comparison: &Comparison) -> Answer {
        match self.outcome {
            Outcome::Take(at) => Answer::Take(comparison.schedulers[at].clone()),
            Outcome::Keep => Answer::Keep(comparison.schedulers[self.base].clone()),
            Outcome::Depends(_) => Answer::Depends,
        }
    }

    /// Returns the row that others are compared with.
    pub(super) fn base(&self) -> usize {
        self.base
    }

    /// Returns the row to take, if one is.
    pub(super) fn taken(&self) -> Option<usize> {
        match self.outcome {
            Outcome::Take(at) => Some(at),
            Outcome::Keep | Outcome::Depends(_) => None,
        }
    }

    /// Returns the row in use after the decision has been followed.
    pub(super) fn resulting_row(&self) -> usize {
        self.taken().unwrap_or(self.base)
    }

    /// Returns the rows that improve some figures and worsen others, the best of them
    /// first.
    pub(super) fn mixed(&self) -> Vec<usize> {
        match &self.outcome {
            Outcome::Depends(rows) => rows.iter().copied().take(2).collect(),
            Outcome::Take(_) | Outcome::Keep => Vec::new(),
        }
    }

    /// Returns the changes that a row is weighed by: what the idle class gets counts only where
    /// nothing else changes.
    fn deciding_changes(&self, at: usize, gains: Gains) -> Vec<FigureChange<'_>> {
        let mut changes = self.changes(&self.deciding, at, gains);
        if changes.iter().any(|step| !step.figure.is_idle) {
            changes.retain(|step| !step.figure.is_idle);
        }
        changes
    }

    /// Returns the improvements of a row, the largest first.
    pub(super) fn gains(&self, at: usize, gains: Gains) -> Vec<String> {
        let mut changes = self.deciding_changes(at, gains);
        changes.retain(|step| step.gain > 0.0);
        changes.sort_by(|a, b| b.gain.total_cmp(&a.gain));
        self.named(&changes, at)
    }

    /// Returns a sentence on a row that is kept out because its improvements are more than
    /// noise by themselves and not among all that were looked at.
    pub(super) fn maybe_chance(&self, rows: &[usize]) -> Option<String> {
        let Outcome::Keep = self.outcome else {
            return None;
        };
        let rows = eligible(self.comparison, rows);
        let Outcome::Take(at) = self.decide(&rows, Gains::Likely) else {
            return None;
        };
        let names = &self.comparison.schedulers;
        Some(format!(
            "{}'s {} may be chance among the {} differences looked at: more --repeats tell.",
            names[at],
            and_list(&self.gains(at, Gains::Likely)),
            self.looked_at
        ))
    }

    /// Returns a row that is better than the one that is taken by differences that are more than
    /// noise each by itself: then more runs have to tell which of them to take.
    pub(super) fn likely_better(&self) -> Option<usize> {
        let taken = self.taken()?;
        let from_taken = Decision::from(taken, self.comparison, &self.others);
        match from_taken.decide(&self.others, Gains::Likely) {
            Outcome::Take(at) => Some(at),
            Outcome::Keep | Outcome::Depends(_) => None,
        }
    }

    /// Returns what the best of the other rows costs, if each of them loses by what is decided
    /// by: then it is the current row that is better.
    pub(super) fn all_lose(&self) -> Option<String> {
        let losses = self
            .others
            .iter()
            .map(|at| (self.weigh(*at, Gains::Likely).loss, *at));
        let (least, at) = losses.min_by(|a, b| a.0.total_cmp(&b.0))?;
        (least > 0.0).then(|| {
            let changes = self.deciding_changes(at, Gains::Likely);
            let names = &self.comparison.schedulers;
            let worse = and_list(&self.named_losses(changes, at));
            match self.others.len() {
                1 => format!("{} is worse ({worse})", names[at]),
                _ => format!("all others are worse, {} least ({worse})", names[at]),
            }
        })
    }

    /// Returns the losses of a row, the largest first.
    pub(super) fn losses(&self, at: usize) -> Vec<String> {
        self.named_losses(self.changes(&self.all, at, Gains::Likely), at)
    }

    /// Returns those changes of a row that are losses in words, the largest first.
    fn named_losses(&self, mut changes: Vec<FigureChange<'_>>, at: usize) -> Vec<String> {
        changes.retain(|step| step.gain < 0.0);
        changes.sort_by(|a, b| a.gain.total_cmp(&b.gain));
        self.named(&changes, at)
    }

    /// Returns the first changes of a row in words.
    fn named(&self, changes: &[FigureChange<'_>], at: usize) -> Vec<String> {
        let named = changes.iter().take(FIGURES_NAMED_MAX);
        named.map(|change| self.text(change, at)).collect()
    }

    /// Returns a change of a row in words. A figure that only one of the two rows has is named
    /// by what happens there only, such as the end of a job.
    fn text(&self, step: &FigureChange<'_>, at: usize) -> String {
        let base = &self.comparison.schedulers[self.base];
        let (name, activity) = (&step.figure.name, step.figure.name.activity());
        match (&step.change, self.time_of(name)) {
            (Some(step), _) => format!("{} {}", name.words(), change(&step.relative)),
            (None, Some(time)) => format!(
                "{activity} {} (under {base} {})",
                time.ended(at),
                time.ended(self.base)
            ),
            (None, None) if step.gain > 0.0 => format!("{activity} (not under {base})"),
            (None, None) => format!("{activity} (only under {base})"),
        }
    }

    /// Returns the running times of the job that a figure names, if it is about its time.
    fn time_of(&self, name: &FigureName) -> Option<&ProcessFigures> {
        let sections = self.comparison.sections.iter();
        let mut all = sections.flat_map(|section| &section.processes);
        all.find(|f| {
            f.column.metric == Metric::Duration && name.is_time_of(f.column.job.as_deref())
        })
    }

    /// Returns a goal that the user could give to decide the question.
    pub(super) fn example_goal(&self) -> String {
        let first = self.mixed().first().copied().unwrap_or(self.base);
        let mut changes = self.deciding_changes(first, Gains::Sure);
        changes.sort_by(|a, b| b.gain.total_cmp(&a.gain));
        let best = changes.first().map(|step| step.figure.name.to_string());
        best.unwrap_or_default()
    }

    /// Returns the figures whose change is large enough to be worth another scheduler
    /// and is more than noise, or, where rows ran once, is not known to be noise. A price is
    /// left out where the figure that it goes with is a loss already.
    fn changes<'f>(&self, figures: &'f [Figure], to: usize, gains: Gains) -> Vec<FigureChange<'f>> {
        let mut changes: Vec<FigureChange<'f>> = Vec::new();
        for figure in figures {
            let Some(change) = self.change(figure, to, gains) else {
                continue;
            };
            let is_known = |known: &FigureChange<'_>| {
                let name = &known.figure.name;
                known.gain < 0.0 && name.metric() == Metric::P99 && name.is_beside(&figure.name)
            };
            let counts = !figure.is_price || change.gain < 0.0 && !changes.iter().any(is_known);
            if counts {
                changes.push(change);
            }
        }
        changes
    }

    fn change<'f>(&self, figure: &'f Figure, to: usize, gains: Gains) -> Option<FigureChange<'f>> {
        let (from, to) = (&figure.values[self.base], &figure.values[to]);
        let up = figure.name.metric().more_is_better();
        let has = |values: &[f64]| Estimate::of(values).mean > 0.0;
        let one_sided = |gain: f64| FigureChange {
            figure,
            gain,
            change: None,
        };
        match (has(from), has(to)) {
            (false, false) => return None,
            (true, false) => return Some(one_sided(-ONE_SIDED_GAIN)),
            (false, true) => return Some(one_sided(ONE_SIDED_GAIN)),
            (true, true) => {}
        }
        let change = Change::between(from, to, self.comparison.paired, up)?;
        let relative = &change.relative;
        let log = relative.mean.max(-0.999).ln_1p();
        let gain = if up { log } else { -log };
        let significance = match gains {
            Gains::Sure if gain > 0.0 => relative.significance_among(self.looked_at),
            Gains::Sure | Gains::Likely => change.significance,
        };
        let change_min = match significance {
            Significance::WithinNoise => return None,
            Significance::Differs => CHANGE_MIN,
            Significance::Unknown => UNTESTED_CHANGE_MIN,
        };
        (relative.mean.abs() >= change_min).then_some(FigureChange {
            figure,
            gain,
            change: Some(change),
        })
    }
}

/// Returns the rows that keep the limits.
fn eligible(comparison: &Comparison, rows: &[usize]) -> Vec<usize> {
    let keeps = |at: &&usize| {
        let judgement = comparison.judgement.as_ref();
        judgement.is_none_or(|judgement| judgement.keeps(**at))
    };
    rows.iter().filter(keeps).copied().collect()
}

/// Returns the figures that each job of a group notices: bandwidth and tail latency, or
/// its running time if it ends by itself; and as a price the tail beyond it.
fn figures(section: &Section) -> Vec<Figure> {
    let alone = section.is_alone();
    let times = section
        .processes
        .iter()
        .filter(|f| f.column.metric == Metric::Duration);
    let mut figures: Vec<Figure> = times
        .map(|f| Figure {
            name: FigureName::new(f.column.job.as_deref(), None, Metric::Duration),
            values: f.compared(),
            is_price: false,
            is_idle: (f.column.job.as_ref()).is_some_and(|job| section.idle.contains(job)),
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
        for metric in [Metric::Bandwidth, Metric::P99, Metric::P999] {
            // A job that ends has a fixed amount of work, so its bandwidth repeats its
            // time.
            let counts = table.metrics().contains(&metric)
                && table.can_tell(metric)
                && !(metric == Metric::Bandwidth && is_timed(job))
                && !(metric != Metric::Bandwidth && is_synced(section, table));
            if counts {
                figures.push(Figure {
                    name: FigureName::new(Some(job), Some(table.direction), metric),
                    values: table.repeats(metric),
                    is_price: metric == Metric::P999,
                    is_idle: section.idle.iter().any(|idle| idle == job),
                });
            }
        }
    }
    figures
}

/// Whether a job's writes are only the first part of what it waits for: as many calls make them
/// durable. Its rate and the latency of these calls tell how it fares.
fn is_synced(section: &Section, table: &DirectionTable) -> bool {
    let syncs = section.directions.iter().find(|other| {
        (other.direction, &other.job, other.several_jobs) == (Direction::Sync, &table.job, false)
    });
    let is_write = table.direction == Direction::Write;
    is_write && syncs.is_some_and(|syncs| 2 * syncs.most_ios() > table.most_ios())
}
