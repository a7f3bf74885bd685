//! The search for the parameters with the least loss, in their logarithms: damped Gauss-Newton steps
//! (Marquardt, "An algorithm for least-squares estimation of nonlinear parameters", J. SIAM 11(2),
//! 1963), whose derivatives Broyden's update keeps between two rounds of differences ("A class of
//! methods for solving nonlinear simultaneous equations", Math. Comp. 19, 1965). What is left of the
//! evaluations goes to a pattern search (Hooke and Jeeves, "Direct search solution of numerical and
//! statistical problems", J. ACM 8(2), 1961, without the pattern move): a simulation is not smooth.

/// How far off a figure is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Residual {
    /// The logarithm of simulated by measured.
    pub(crate) error: f64,
    /// What the square of the error counts, nearby.
    pub(crate) weight: f64,
}

/// What parameters lead to.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Outcome {
    /// The loss.
    pub(crate) loss: f64,
    /// Every figure, always in the same order.
    pub(crate) residuals: Vec<Residual>,
}

/// The change of a logarithm by which derivatives are taken: rows must show it beside their noise.
const DIFFERENCE: f64 = 0.1;
/// The most that a logarithm changes in one step.
const LONGEST_STEP: f64 = 1.0;
/// The damping at first, and by how much it changes after a step that failed or helped.
const FIRST_DAMPING: f64 = 0.01;
const DAMPING_FACTOR: f64 = 4.0;
/// Steps that fail in a row before derivatives are taken anew.
const MOST_FAILURES: usize = 3;
/// Rounds of differences end where one reduces the loss by a smaller part.
const LEAST_PROGRESS: f64 = 0.01;
/// A parameter whose effect is so much smaller than the largest is not determined by the rows: it
/// is held where it is.
const LEAST_EFFECT: f64 = 1e-6;
/// No parameter is damped by less than with so large a part of the largest effect, so that one of
/// little effect does not go far.
const LEAST_DAMPING: f64 = 1e-3;

/// The first step of the pattern search, as a change of the logarithm.
const FIRST_STEP: f64 = 0.1;
/// Smaller steps are not tried, because they change a value by less than the accuracy of a row.
const LAST_STEP: f64 = 0.02;

/// Changes the positive values in `start` until the loss is minimal nearby or `most` evaluations
/// have been made. `evaluate` returns `None` for values that are not legal. Returns the values.
pub(crate) fn search<E>(
    start: Vec<f64>,
    most: usize,
    evaluate: impl FnMut(&[f64]) -> Result<Option<Outcome>, E>,
) -> Result<Vec<f64>, E> {
    let mut search = Search {
        most,
        spent: 0,
        evaluate,
    };
    let at: Vec<f64> = start.iter().map(|value| value.ln()).collect();
    let Some(outcome) = search.outcome(&at)? else {
        return Ok(start);
    };
    let mut best = Place { at, outcome };
    search.descend(&mut best)?;
    search.refine(&mut best)?;
    Ok(best.at.iter().map(|log| log.exp()).collect())
}

/// The logarithms of parameters, and what they lead to.
#[derive(Clone, Debug)]
struct Place {
    at: Vec<f64>,
    outcome: Outcome,
}

/// For each parameter, how the errors change with its logarithm.
type Derivatives = Vec<Vec<f64>>;

struct Search<F> {
    most: usize,
    spent: usize,
    evaluate: F,
}

impl<E, F: FnMut(&[f64]) -> Result<Option<Outcome>, E>> Search<F> {
    fn is_over(&self) -> bool {
        self.spent >= self.most
    }

    fn outcome(&mut self, at: &[f64]) -> Result<Option<Outcome>, E> {
        self.spent += 1;
        let values: Vec<f64> = at.iter().map(|log| log.exp()).collect();
        (self.evaluate)(&values)
    }

    /// Gauss-Newton steps, in rounds that begin with differences.
    fn descend(&mut self, best: &mut Place) -> Result<(), E> {
        let mut damping = FIRST_DAMPING;
        // Parameters that the rows say nothing of are looked at once.
        let mut determined = vec![true; best.at.len()];
        while determined.contains(&true) && !self.is_over() {
            let before = best.outcome.loss;
            let mut derivatives = self.differences(best, &determined)?;
            determined = effects(&derivatives);
            self.steps(best, &mut derivatives, &mut damping)?;
            if best.outcome.loss > before * (1.0 - LEAST_PROGRESS) {
                break;
            }
        }
        Ok(())
    }

    fn differences(&mut self, best: &Place, determined: &[bool]) -> Result<Derivatives, E> {
        let mut derivatives = vec![vec![0.0; best.outcome.residuals.len()]; best.at.len()];
        for axis in (0..best.at.len()).filter(|&axis| determined[axis]) {
            for change in [DIFFERENCE, -DIFFERENCE] {
                if self.is_over() {
                    return Ok(derivatives);
                }
                let mut at = best.at.clone();
                at[axis] += change;
                if let Some(outcome) = self.outcome(&at)? {
                    let pairs = outcome.residuals.iter().zip(&best.outcome.residuals);
                    derivatives[axis] = pairs.map(|(a, b)| (a.error - b.error) / change).collect();
                    break;
                }
            }
        }
        Ok(derivatives)
    }

    /// Steps until several in a row have failed.
    fn steps(
        &mut self,
        best: &mut Place,
        derivatives: &mut Derivatives,
        damping: &mut f64,
    ) -> Result<(), E> {
        let mut failures = 0;
        while failures < MOST_FAILURES && !self.is_over() {
            let Some(step) = step(&best.outcome.residuals, derivatives, *damping) else {
                return Ok(());
            };
            let at: Vec<f64> = best.at.iter().zip(&step).map(|(a, b)| a + b).collect();
            let Some(outcome) = self.outcome(&at)? else {
                *damping *= DAMPING_FACTOR;
                failures += 1;
                continue;
            };
            update(derivatives, &step, &best.outcome, &outcome);
            if outcome.loss < best.outcome.loss {
                *best = Place { at, outcome };
                *damping /= DAMPING_FACTOR;
                failures = 0;
            } else {
                *damping *= DAMPING_FACTOR;
                failures += 1;
            }
        }
        Ok(())
    }

    /// A pattern search: along every axis in turn, a step up or down is kept if it reduces the loss;
    /// if none does, the steps become smaller.
    fn refine(&mut self, best: &mut Place) -> Result<(), E> {
        let mut steps = vec![FIRST_STEP; best.at.len()];
        while steps.iter().any(|&step| step > LAST_STEP) {
            for (axis, step) in steps.iter_mut().enumerate() {
                if self.is_over() {
                    return Ok(());
                }
                if *step > LAST_STEP && !self.try_both(best, axis, *step)? {
                    *step /= 2.0;
                }
            }
        }
        Ok(())
    }

    /// Tries a step in both directions. Returns whether one helped.
    fn try_both(&mut self, best: &mut Place, axis: usize, step: f64) -> Result<bool, E> {
        for change in [step, -step] {
            let mut at = best.at.clone();
            at[axis] += change;
            if let Some(outcome) = self.outcome(&at)?
                && outcome.loss < best.outcome.loss
            {
                *best = Place { at, outcome };
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Which parameters change any error.
fn effects(derivatives: &Derivatives) -> Vec<bool> {
    let squares = |of: &Vec<f64>| of.iter().map(|d| d * d).sum::<f64>();
    let effects: Vec<f64> = derivatives.iter().map(squares).collect();
    let largest = effects.iter().copied().fold(0.0, f64::max);
    effects
        .iter()
        .map(|&e| e > largest * LEAST_EFFECT)
        .collect()
}

/// Returns Marquardt's step of every parameter; `None` if no parameter has an effect.
fn step(residuals: &[Residual], derivatives: &Derivatives, damping: f64) -> Option<Vec<f64>> {
    let weighted = |a: &[f64], b: &dyn Fn(usize) -> f64| -> f64 {
        let each = residuals.iter().enumerate();
        each.map(|(n, residual)| residual.weight * a[n] * b(n))
            .sum()
    };
    let count = derivatives.len();
    let mut matrix = vec![vec![0.0; count]; count];
    for (i, row) in matrix.iter_mut().enumerate() {
        for (j, cell) in row.iter_mut().enumerate() {
            *cell = weighted(&derivatives[i], &|n| derivatives[j][n]);
        }
    }
    let largest = (0..count).map(|i| matrix[i][i]).fold(0.0, f64::max);
    if largest == 0.0 {
        return None;
    }
    for (i, row) in matrix.iter_mut().enumerate() {
        row[i] += damping * (row[i] + largest * LEAST_DAMPING);
    }
    let slope = derivatives
        .iter()
        .map(|of| -weighted(of, &|n| residuals[n].error));
    let mut step = solve(matrix, slope.collect());
    let longest = step.iter().fold(0.0, |most: f64, s| most.max(s.abs()));
    if longest > LONGEST_STEP {
        step.iter_mut().for_each(|s| *s *= LONGEST_STEP / longest);
    }
    Some(step)
}

/// Broyden's update: the derivatives along a step become what the step has shown.
fn update(derivatives: &mut Derivatives, step: &[f64], before: &Outcome, after: &Outcome) {
    let length: f64 = step.iter().map(|s| s * s).sum();
    for (n, (before, after)) in before.residuals.iter().zip(&after.residuals).enumerate() {
        let expected: f64 = step
            .iter()
            .zip(derivatives.iter())
            .map(|(s, of)| s * of[n])
            .sum();
        let missed = after.error - before.error - expected;
        for (of, s) in derivatives.iter_mut().zip(step) {
            of[n] += missed * s / length;
        }
    }
}

/// Solves a linear system whose matrix is symmetric and positive definite, by Cholesky's
/// decomposition.
fn solve(mut matrix: Vec<Vec<f64>>, mut right: Vec<f64>) -> Vec<f64> {
    let count = right.len();
    for i in 0..count {
        for j in 0..=i {
            let done: f64 = (0..j).map(|k| matrix[i][k] * matrix[j][k]).sum();
            let rest = matrix[i][j] - done;
            matrix[i][j] = if i == j {
                rest.sqrt()
            } else {
                rest / matrix[j][j]
            };
        }
        let done: f64 = (0..i).map(|k| matrix[i][k] * right[k]).sum();
        right[i] = (right[i] - done) / matrix[i][i];
    }
    for i in (0..count).rev() {
        let done: f64 = (i + 1..count).map(|k| matrix[k][i] * right[k]).sum();
        right[i] = (right[i] - done) / matrix[i][i];
    }
    right
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(errors: impl IntoIterator<Item = f64>) -> Outcome {
        let residual = |error| Residual { error, weight: 1.0 };
        let residuals: Vec<Residual> = errors.into_iter().map(residual).collect();
        let loss = residuals.iter().map(|r| r.error * r.error).sum();
        Outcome { loss, residuals }
    }

    fn found(start: &[f64], most: usize, errors: impl Fn(&[f64]) -> Vec<f64>) -> (Vec<f64>, usize) {
        let mut spent = 0;
        let evaluate = |at: &[f64]| -> Result<Option<Outcome>, ()> {
            spent += 1;
            Ok(at.iter().all(|&v| v < 1e6).then(|| outcome(errors(at))))
        };
        let place = search(start.to_vec(), most, evaluate).unwrap();
        (place, spent)
    }

    fn assert_close(found: &[f64], wanted: &[f64]) {
        for (got, want) in found.iter().zip(wanted) {
            assert!((got / want - 1.0).abs() < 0.05, "{found:?} for {wanted:?}");
        }
    }

    /// Rows that take sums of steps, as a CPU's costs are measured.
    fn sums(at: &[f64], truth: &[f64]) -> Vec<f64> {
        let rows: [&[usize]; 5] = [&[0], &[0, 1], &[0, 1, 2], &[1, 2], &[0, 2]];
        let sum = |of: &[f64], row: &[usize]| row.iter().map(|&n| of[n]).sum::<f64>();
        rows.iter()
            .map(|row| (sum(at, row) / sum(truth, row)).ln())
            .collect()
    }

    #[test]
    fn it_finds_the_bottom_of_a_valley() {
        let truth = [3.0, 700.0, 40.0];
        let (at, _) = found(&[30.0, 100.0, 4.0], 60, |at| sums(at, &truth));
        assert_close(&at, &truth);
    }

    #[test]
    fn it_takes_few_evaluations_for_many_parameters() {
        let truth: Vec<f64> = (1..=12).map(|n| 50.0 * f64::from(n)).collect();
        // Each parameter alone, and beside the next one.
        let rows = |at: &[f64]| -> Vec<f64> {
            let row = |n: usize| match n {
                0..12 => at[n] / truth[n],
                _ => (at[n - 12] + at[(n + 1) % 12]) / (truth[n - 12] + truth[(n + 1) % 12]),
            };
            (0..24).map(|n| row(n).ln()).collect()
        };
        let (at, spent) = found(&[200.0; 12], 80, rows);
        assert_close(&at, &truth);
        assert!(spent <= 80);
    }

    #[test]
    fn what_the_rows_do_not_tell_stays_where_it_is() {
        let (at, _) = found(&[30.0, 100.0], 40, |at| vec![(at[0] / 3.0).ln()]);
        assert_close(&at, &[3.0, 100.0]);
    }

    #[test]
    fn values_that_are_not_legal_are_not_returned() {
        let (at, _) = found(&[9e5], 40, |at| vec![(at[0] / 1e7).ln()]);
        assert!(at[0] > 9e5 && at[0] < 1e6, "{at:?}");
        // Not even the first values are.
        assert_eq!(found(&[2e6], 40, |at| vec![at[0].ln()]), (vec![2e6], 1));
    }

    #[test]
    fn it_ends_after_as_many_evaluations_as_it_may_make() {
        for most in 1..20 {
            let (_, spent) = found(&[9.0, 9.0, 9.0], most, |at| sums(at, &[1.0, 2.0, 3.0]));
            assert!(spent <= most, "{spent} of {most}");
        }
    }
}
