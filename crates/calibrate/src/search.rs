//! A pattern search in logarithms: along every axis in turn, a step up or down is kept if it
//! reduces the loss; if none does, the steps become smaller (Hooke and Jeeves, "Direct search
//! solution of numerical and statistical problems", J. ACM 8(2), 1961, without the pattern move).

/// The first step, as a change of the logarithm.
const FIRST_STEP: f64 = 0.25;
/// Smaller steps are not tried, because they change a value by less than the accuracy of a row.
const LAST_STEP: f64 = 0.02;

/// Changes the positive values in `start` until `loss` is minimal nearby or `most` evaluations have
/// been made. Returns the values and their loss.
pub(crate) fn search<E>(
    start: Vec<f64>,
    most: usize,
    mut loss: impl FnMut(&[f64]) -> Result<f64, E>,
) -> Result<(Vec<f64>, f64), E> {
    let mut best = start;
    let mut least = loss(&best)?;
    let mut steps = vec![FIRST_STEP; best.len()];
    let mut direction = vec![1.0; best.len()];
    let mut spent = 1;
    while spent < most && steps.iter().any(|&step| step > LAST_STEP) {
        for axis in 0..best.len() {
            if steps[axis] <= LAST_STEP || spent >= most {
                continue;
            }
            let mut helped = false;
            for sign in [direction[axis], -direction[axis]] {
                let mut tried = best.clone();
                tried[axis] *= (sign * steps[axis]).exp();
                let found = loss(&tried)?;
                spent += 1;
                if found < least {
                    (best, least, helped) = (tried, found, true);
                    direction[axis] = sign;
                    break;
                }
            }
            if !helped {
                steps[axis] /= 2.0;
            }
        }
    }
    Ok((best, least))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_finds_the_bottom_of_a_valley() {
        let place = [3.0f64, 700.0];
        let bowl = |at: &[f64]| -> Result<f64, ()> {
            Ok((at[0] / place[0]).ln().abs() + (at[1] / place[1]).ln().powi(2))
        };
        let (found, _) = search(vec![1.0, 100.0], 200, bowl).unwrap();
        for (got, want) in found.iter().zip(place) {
            assert!((got / want - 1.0).abs() < 0.05, "{found:?}");
        }
    }
}
