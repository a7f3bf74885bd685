//! The fit: changes parameters until simulated rows are close to measured ones.

use thiserror::Error;

use crate::model::{CalibrateError, Model, Parameter};
use crate::row::Row;
use crate::score::{Scored, median, outcome, score};
use crate::search::{Outcome, search};
use crate::work::{Case, cases};

/// Setup of a fit.
pub struct FitSetup<'a> {
    /// The model to start from.
    pub model: Model,
    /// The parameters that may change.
    pub parameters: &'a [Parameter],
    /// All rows.
    pub rows: &'a [Row],
    /// Indices of the rows used for the fit; the others are only compared in the end.
    pub fitted: &'a [usize],
    /// The most evaluations.
    pub evaluations: usize,
    /// Seed of the simulations.
    pub seed: u64,
    /// Comment for every fitted value.
    pub comment: &'a str,
}

/// A fit with its cases.
pub struct Fit<'a> {
    setup: FitSetup<'a>,
    all: Vec<Case>,
}

/// Result of a fit.
#[derive(Clone, Debug)]
pub struct Fitted {
    /// The fitted descriptions.
    pub model: Model,
    /// The parameters with their first and last values.
    pub moved: Vec<(Parameter, f64, f64)>,
    /// The comparison of every row with its simulation.
    pub scored: Vec<Option<Scored>>,
    /// The loss over the fitted rows.
    pub loss: f64,
}

/// The reason why a fit is useless.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum Useless {
    /// Its rows are far from the measured ones.
    #[error(
        "the fit is useless: half of the {rows} fitted rows are off by a factor of {factor:.1} or \
         more in {what}; start from a drive and a machine that are more like the measured ones"
    )]
    Far {
        /// Number of rows.
        rows: usize,
        /// Half of the rows are off by this factor or more.
        factor: f64,
        /// The quantity that is off.
        what: &'static str,
    },
    /// A parameter has changed by a large factor, so the rows do not determine it.
    #[error(
        "the fit is useless: {key} went from {from:.3} to {to:.3}, so the rows do not say what \
         it is; leave it out of --fit, or give rows that depend on it"
    )]
    Adrift {
        /// The parameter.
        key: String,
        /// Initial value.
        from: f64,
        /// Final value.
        to: f64,
    },
}

/// The largest acceptable median factor between measured and simulated values.
const MOST_OFF: f64 = 2.0;
/// The largest acceptable factor of a parameter's change: links, chips and CPUs of one kind differ
/// by less.
const MOST_CHANGE: f64 = 10.0;

impl Fitted {
    /// The comparisons at the indices that `take` selects; `None` for the others.
    pub fn scored_of(&self, take: impl Fn(usize) -> bool) -> Vec<Option<Scored>> {
        let scored = self.scored.iter().enumerate();
        scored
            .map(|(at, scored)| scored.filter(|_| take(at)))
            .collect()
    }

    /// Checks whether the fit is useful; it is if no parameter was fitted.
    ///
    /// # Errors
    /// If it is useless.
    pub fn check(&self, fitted: &[usize]) -> Result<(), Useless> {
        if self.moved.is_empty() {
            return Ok(());
        }
        let scored = self.scored_of(|at| fitted.contains(&at));
        for (at, what) in ["IOPS", "mean latency"].into_iter().enumerate() {
            let errors = scored.iter().flatten().filter_map(|row| row.errors[at]);
            let ratios = errors.map(|error| 1.0 + error);
            let factors: Vec<f64> = ratios.map(|ratio| ratio.max(1.0 / ratio)).collect();
            let rows = factors.len();
            if let Some(factor) = median(factors).filter(|factor| *factor > MOST_OFF) {
                return Err(Useless::Far { rows, factor, what });
            }
        }
        let far = |from: f64, to: f64| (to / from).max(from / to) > MOST_CHANGE;
        let adrift = self.moved.iter().find(|(_, from, to)| far(*from, *to));
        match adrift {
            None => Ok(()),
            Some((parameter, from, to)) => Err(Useless::Adrift {
                key: parameter.name().to_string(),
                from: *from,
                to: *to,
            }),
        }
    }
}

/// Progress of a fit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// Number of evaluations so far; each simulates all rows.
    pub evaluations: usize,
    /// The smallest loss so far.
    pub loss: f64,
}

/// Runs a fit and calls `each` after every evaluation.
///
/// # Errors
/// If a row cannot be simulated, or a parameter is not in its description.
pub fn fit(setup: FitSetup<'_>, each: &mut dyn FnMut(Progress)) -> Result<Fitted, CalibrateError> {
    let has_state = setup.model.parse()?.0.has_state();
    let all = cases(setup.rows, has_state)?;
    Fit { setup, all }.run(each)
}

impl Fit<'_> {
    fn run(&self, each: &mut dyn FnMut(Progress)) -> Result<Fitted, CalibrateError> {
        let setup = &self.setup;
        let looked_at: Vec<Case> = self
            .all
            .iter()
            .filter(|case| case.rows.iter().any(|at| setup.fitted.contains(at)))
            .cloned()
            .collect();
        if looked_at.is_empty() {
            return Err(CalibrateError::NoRows);
        }
        let start: Result<Vec<f64>, _> = setup
            .parameters
            .iter()
            .map(|p| setup.model.get(p))
            .collect();
        let start = start?;
        let (mut best, mut evaluations) = (f64::INFINITY, 0);
        let place = search(start.clone(), setup.evaluations, |values| {
            let model = self.at(values)?;
            let outcome = match model.parse() {
                // A value is out of the legal range of the description.
                Err(_) => None,
                Ok(_) => Some(self.outcome(&model, &looked_at)?),
            };
            best = outcome.iter().fold(best, |least, o| least.min(o.loss));
            evaluations += 1;
            each(Progress {
                evaluations,
                loss: best,
            });
            Ok::<_, CalibrateError>(outcome)
        })?;
        let model = self.at(&place)?;
        let scored = score(&model, &self.all, setup.rows, setup.seed)?;
        Ok(Fitted {
            moved: setup
                .parameters
                .iter()
                .zip(start)
                .map(|(p, from)| Ok((p.clone(), from, model.get(p)?)))
                .collect::<Result<_, CalibrateError>>()?,
            model,
            scored,
            loss: best,
        })
    }

    /// How far off the fitted rows are.
    fn outcome(&self, model: &Model, cases: &[Case]) -> Result<Outcome, CalibrateError> {
        let setup = &self.setup;
        let mut scored = score(model, cases, setup.rows, setup.seed)?;
        // The other direction of a run may be held out.
        for (at, scored) in scored.iter_mut().enumerate() {
            if !setup.fitted.contains(&at) {
                *scored = None;
            }
        }
        Ok(outcome(&scored))
    }

    /// Returns the model with the parameters at these values. Whole arrays are set before single
    /// elements.
    fn at(&self, values: &[f64]) -> Result<Model, CalibrateError> {
        let mut model = self.setup.model.clone();
        for (parameter, &value) in self.setup.parameters.iter().zip(values) {
            model.set(parameter, value, self.setup.comment)?;
        }
        Ok(model)
    }
}
