//! Ranges among the values of an axis: `1..8`, `1..31+10`, `1..64*2`, `5@1..100`.

use std::hash::{DefaultHasher, Hash, Hasher};

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{RngCore, SeedableRng};

/// Limit on the values of one axis.
const VALUES_MAX: usize = 100_000;

/// Returns the values of a range on an axis; `None` if the text is not a range.
///
/// `A..B` is the whole numbers from A to B; `A..B+S` has steps of S, `A..B*F` multiplies
/// by F at each step, and `N@A..B` draws N numbers evenly from A to B, or evenly in
/// their logarithms with `N@A..B*`. Draws are the same in each run of the program.
pub(crate) fn values(key: &str, text: &str) -> Result<Option<Vec<String>>, String> {
    let (draws, range) = match text.split_once('@') {
        Some((draws, range)) => (draws.parse::<usize>().ok(), range),
        None => (None, text),
    };
    if text.contains('@') && draws.is_none() {
        return Ok(None);
    }
    let Some((from, rest)) = range.split_once("..") else {
        return Ok(None);
    };
    let at = rest.find(['+', '*']).unwrap_or(rest.len());
    let (to, step) = rest.split_at(at);
    let (Some(from), Some(to)) = (number(from), number(to)) else {
        return Ok(None);
    };
    let wrong = |what: &str| Err(format!("{text}: {what}"));
    if from > to {
        return wrong("a range goes from the smaller to the greater number");
    }
    let values = match (draws, step.split_at(step.len().min(1))) {
        (Some(0), _) => return wrong("nothing would be drawn"),
        (Some(draws), _) if draws > VALUES_MAX => return wrong("that is too many"),
        (Some(draws), ("", "")) => drawn(key, text, draws, |share| from + share * (to - from)),
        (Some(_), ("*", "")) if from <= 0.0 => return wrong("logarithms are of what is above 0"),
        (Some(draws), ("*", "")) => drawn(key, text, draws, |share| from * (to / from).powf(share)),
        (Some(_), _) => return wrong("draws have no steps; right is N@A..B or N@A..B*"),
        (None, ("", "")) => steps(from, to, |value| value + 1.0),
        (None, (kind, step)) => match (kind, number(step)) {
            ("+", Some(step)) if step > 0.0 => steps(from, to, |value| value + step),
            ("*", Some(factor)) if factor > 1.0 && from > 0.0 => {
                steps(from, to, |value| value * factor)
            }
            _ => return wrong("right is A..B+STEP with a step above 0, or A..B*FACTOR above 1"),
        },
    };
    if values.len() > VALUES_MAX {
        return wrong("that is too many values");
    }
    // A range between whole numbers has whole values.
    let whole = from.fract() == 0.0 && to.fract() == 0.0;
    let shown = values.iter().map(|value| match whole {
        true => value.round().to_string(),
        false => value.to_string(),
    });
    let mut shown: Vec<String> = shown.collect();
    let mut seen = std::collections::BTreeSet::new();
    shown.retain(|value| seen.insert(value.clone()));
    Ok(Some(shown))
}

fn number(text: &str) -> Option<f64> {
    let number: f64 = text.trim().parse().ok()?;
    number.is_finite().then_some(number)
}

fn steps(from: f64, to: f64, next: impl Fn(f64) -> f64) -> Vec<f64> {
    let steps = std::iter::successors(Some(from), |value| Some(next(*value)));
    // The tolerance keeps the last value in spite of rounding.
    let end = to + (to - from).abs() * 1e-9;
    steps
        .take_while(|value| *value <= end)
        .take(VALUES_MAX + 1)
        .collect()
}

fn drawn(key: &str, text: &str, draws: usize, of: impl Fn(f64) -> f64) -> Vec<f64> {
    let mut hasher = DefaultHasher::new();
    (key, text).hash(&mut hasher);
    let mut random = SplitMix64::seed_from_u64(hasher.finish());
    let share = |random: &mut SplitMix64| (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
    (0..draws).map(|_| of(share(&mut random))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Vec<String> {
        values("iodepth", text).expect("legal").expect("a range")
    }

    #[test]
    fn ranges_have_their_ends() {
        assert_eq!(of("1..4"), ["1", "2", "3", "4"]);
        assert_eq!(of("1..31+10"), ["1", "11", "21", "31"]);
        assert_eq!(of("1..40*3"), ["1", "3", "9", "27"]);
        assert_eq!(of("0.1..0.3+0.1").len(), 3);
        for text in ["5@10..100", "5@10..100*"] {
            let drawn = of(text);
            assert_eq!(drawn, of(text));
            let number = |value: &String| value.parse::<u32>().expect("whole");
            assert!(drawn.iter().map(number).all(|n| (10..=100).contains(&n)));
        }
        assert_ne!(of("5@10..100"), of("5@10..101"));
    }

    #[test]
    fn what_is_no_range_is_a_value() {
        for text in ["../a.toml", "a..b", "4k", "rw@x", "1...2.x", ".."] {
            assert_eq!(values("drive", text), Ok(None), "{text}");
        }
    }

    #[test]
    fn a_wrong_range_says_what_is_right() {
        for (text, said) in [
            ("8..1", "from the smaller"),
            ("1..8*1", "A..B*FACTOR above 1"),
            ("1..8+0", "a step above 0"),
            ("1..1e9", "too many"),
            ("0@1..8", "nothing would be drawn"),
            ("3@0..8*", "above 0"),
            ("3@1..8+2", "N@A..B"),
        ] {
            let error = values("iodepth", text).expect_err(said);
            assert!(error.contains(said), "{error}");
        }
    }
}
