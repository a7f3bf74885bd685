//! Comparison of simulated with measured rows.

use blklab_workload::fio::Direction;
use rayon::prelude::*;

use crate::model::{CalibrateError, Model};
use crate::row::{Measured, Row};
use crate::search::{Outcome, Residual};
use crate::work::Case;

/// The relative error of a row without simulated I/O.
const NOTHING: f64 = 10.0;

/// A row's comparison with its simulation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scored {
    /// The simulated results; `None` if no such I/O completed.
    pub simulated: Option<Measured>,
    /// Signed relative errors of IOPS, mean latency and 99th percentile; `None` for what was not
    /// measured.
    pub errors: [Option<f64>; 3],
}

/// Simulates every case and compares the results. They do not depend on the number of threads.
///
/// # Errors
/// If a description is invalid or a case cannot be simulated.
pub fn score(
    model: &Model,
    cases: &[Case],
    rows: &[Row],
    seed: u64,
) -> Result<Vec<Option<Scored>>, CalibrateError> {
    let (scored, refused) = score_each(model, cases, rows, seed)?;
    refused.into_iter().next().map_or(Ok(scored), Err)
}

/// Simulates every case that can be simulated and compares the results. Returns why the others
/// cannot, too.
///
/// # Errors
/// If a description is invalid.
pub fn score_each(
    model: &Model,
    cases: &[Case],
    rows: &[Row],
    seed: u64,
) -> Result<(Vec<Option<Scored>>, Vec<CalibrateError>), CalibrateError> {
    let (drive, machine) = model.parse()?;
    let sides: Vec<Result<[Option<Measured>; 2], CalibrateError>> = cases
        .par_iter()
        // Some cases take a hundred times as long as others.
        .with_max_len(1)
        .map(|case| case.simulate(&drive, &machine, seed))
        .collect();
    let (mut scored, mut refused) = (vec![None; rows.len()], Vec::new());
    for (case, sides) in cases.iter().zip(sides) {
        let sides = match sides {
            Ok(sides) => sides,
            Err(why) => {
                refused.push(why);
                continue;
            }
        };
        for &at in &case.rows {
            let simulated = match rows[at].direction {
                Direction::Read => sides[0],
                _ => sides[1],
            };
            scored[at] = Some(compare(&rows[at].measured, simulated));
        }
    }
    Ok((scored, refused))
}

fn compare(measured: &Measured, simulated: Option<Measured>) -> Scored {
    let mut errors = measured.figures();
    for (which, error) in errors.iter_mut().enumerate() {
        let figure = |s: &Measured| s.figures()[which];
        *error = error.map(|measured| match simulated.as_ref().and_then(figure) {
            None => NOTHING,
            Some(simulated) => simulated / measured - 1.0,
        });
    }
    Scored { simulated, errors }
}

/// Above this relative error a row counts linearly (Huber's loss), so that a row that the model
/// cannot follow does not dominate the fit.
const HUBER: f64 = 0.05;
/// Weights of IOPS, mean latency and 99th percentile. In a closed loop, IOPS and mean latency are
/// the same fact.
const WEIGHTS: [f64; 3] = [1.0, 0.5, 0.4];

/// The loss over all simulated rows, and how far off each figure is. Ratios count, so that twice and
/// half are equally far off.
pub(crate) fn outcome(scored: &[Option<Scored>]) -> Outcome {
    let (mut loss, mut residuals, mut rows) = (0.0, Vec::new(), 0usize);
    for row in scored.iter().flatten() {
        rows += 1;
        for (error, weight) in row.errors.iter().zip(WEIGHTS) {
            let Some(error) = error else { continue };
            let error = (1.0 + error).max(1e-3).ln();
            let size = error.abs();
            loss += weight
                * match size <= HUBER {
                    true => size * size / (2.0 * HUBER),
                    false => size - HUBER / 2.0,
                };
            let weight = weight / size.max(HUBER);
            residuals.push(Residual { error, weight });
        }
    }
    Outcome {
        loss: loss / rows.max(1) as f64,
        residuals,
    }
}

/// Medians of the absolute relative errors.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Medians {
    /// Error of IOPS.
    pub iops: f64,
    /// Error of mean latency.
    pub lat_mean: f64,
    /// Error of the 99th percentile.
    pub clat_p99: f64,
    /// Number of rows.
    pub rows: usize,
}

/// The median; `None` for no values.
pub(crate) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    match values.len() {
        0 => None,
        n if n % 2 == 1 => Some(values[half]),
        _ => Some((values[half - 1] + values[half]) / 2.0),
    }
}

/// The medians over the simulated rows that `take` selects.
pub fn medians(rows: &[Row], scored: &[Option<Scored>], take: impl Fn(&Row) -> bool) -> Medians {
    let taken: Vec<&Scored> = rows
        .iter()
        .zip(scored)
        .filter(|(row, _)| take(row))
        .filter_map(|(_, s)| s.as_ref())
        .collect();
    let of = |which: usize| {
        let errors = taken.iter().filter_map(|s| s.errors[which]).map(f64::abs);
        median(errors.collect()).unwrap_or(0.0)
    };
    Medians {
        iops: of(0),
        lat_mean: of(1),
        clat_p99: of(2),
        rows: taken.len(),
    }
}

/// Compares the order of schedulers. Of the pairs of schedulers with the same workload whose
/// measured IOPS differ by more than `apart` (0.05 for 5 %), returns how many the simulation puts
/// in the same order, and their total.
pub fn order_of_schedulers(rows: &[Row], scored: &[Option<Scored>], apart: f64) -> (usize, usize) {
    let (mut right, mut all) = (0, 0);
    for (a, row_a) in rows.iter().enumerate() {
        for (b, row_b) in rows.iter().enumerate() {
            let faster = row_a.measured.iops > row_b.measured.iops * (1.0 + apart);
            if !faster || !same_work(row_a, row_b) {
                continue;
            }
            let iops = |at: usize| scored[at].and_then(|s| s.simulated).map(|s| s.iops);
            if let (Some(a), Some(b)) = (iops(a), iops(b)) {
                all += 1;
                right += usize::from(a > b);
            }
        }
    }
    (right, all)
}

fn same_work(a: &Row, b: &Row) -> bool {
    a.scheduler != b.scheduler
        && (&a.study, &a.note, &a.rw, &a.bs) == (&b.study, &b.note, &b.rw, &b.bs)
        && (a.direction, a.read_percent) == (b.direction, b.read_percent)
        && (a.iodepth, a.processes, a.cores, a.devices)
            == (b.iodepth, b.processes, b.cores, b.devices)
}
