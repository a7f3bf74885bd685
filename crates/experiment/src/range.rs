//! Ranges among the values of an axis: `1..8`, `1..31+10`, `1..64*2`, `5@1..100`.

use std::collections::HashSet;

use blklab_description::is_whole;
use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{RngCore, SeedableRng};

use crate::hash::StableHash;

/// Limit on the values of one axis.
const VALUES_MAX: usize = 100_000;

/// Significant digits of a value: what arithmetic adds after them is no part of it, as in
/// 0.1 + 0.2 = 0.30000000000000004.
const DIGITS: usize = 12;

/// Draws for each value that is wanted before there are held to be no more: all of
/// [`VALUES_MAX`] whole numbers with even logarithms take some hundred for each.
const DRAWS_A_WHOLE: usize = 1000;
const DRAWS_A_FRACTION: usize = 10;

/// Returns the values of a range on an axis; `None` if the text is not a range.
///
/// `A..B` is the whole numbers from A to B; `A..B+S` has steps of S, `A..B*F` multiplies
/// by F at each step, and `N@A..B` draws N different numbers evenly from A to B, or evenly in
/// their logarithms with `N@A..B*`. Draws are the same in each build of the program. `whole`, which
/// is only asked of a range, says that the key takes whole numbers alone: products are rounded
/// then, each number once, and whole numbers are drawn.
///
/// # Errors
/// If the range is wrong, or has fewer values than are to be drawn.
pub(crate) fn values(
    key: &str,
    whole: impl FnOnce() -> bool,
    text: &str,
) -> Result<Option<Vec<String>>, String> {
    let Some(range) = Range::parse(text) else {
        return Ok(None);
    };
    let whole = whole();
    let of_whole = [range.from, range.to].into_iter().all(is_whole);
    let values = if range.from > range.to {
        Err("a range goes from the smaller to the greater number".to_string())
    } else if whole && !of_whole {
        Err(format!("{key} takes whole numbers, as a range from 1 to 8"))
    } else if let Some(draws) = range.draws {
        range.drawn(draws, whole, StableHash::default().with(key).with(text))
    } else {
        range.steps(key, whole)
    };
    let values = values.map_err(|problem| format!("{text}: {problem}"))?;
    Ok(Some(values))
}

/// A range as it is written.
struct Range<'a> {
    /// How many numbers are drawn, if any are.
    draws: Option<usize>,
    from: f64,
    to: f64,
    /// `+STEP`, `*FACTOR`, `*` or nothing.
    step: &'a str,
}

impl<'a> Range<'a> {
    fn parse(text: &'a str) -> Option<Range<'a>> {
        let (draws, range) = match text.split_once('@') {
            Some((draws, range)) => (Some(draws.parse().ok()?), range),
            None => (None, text),
        };
        let (from, rest) = range.split_once("..")?;
        let at = rest.find(['+', '*']).unwrap_or(rest.len());
        let (to, step) = rest.split_at(at);
        Some(Range {
            draws,
            from: number(from)?,
            to: number(to)?,
            step,
        })
    }

    /// Returns the values of a range with steps.
    fn steps(&self, key: &str, whole: bool) -> Result<Vec<String>, String> {
        let (kind, step) = self.step.split_at(self.step.len().min(1));
        let steps = match (kind, number(step)) {
            ("", _) => self.until_end(|n| self.from + n),
            ("+", Some(step)) if whole && !is_whole(step) => {
                return Err(format!("{key} takes whole numbers, and {step} is none"));
            }
            ("+", Some(step)) if step > 0.0 => self.until_end(|n| self.from + n * step),
            ("*", Some(factor)) if factor > 1.0 && self.from > 0.0 => {
                self.until_end(|n| self.from * factor.powf(n))
            }
            _ => {
                let right = "right is A..B+STEP with a step above 0, or A..B*FACTOR above 1";
                return Err(right.to_string());
            }
        };
        if steps.len() > VALUES_MAX {
            return Err("that is too many values".to_string());
        }
        let steps = steps.into_iter();
        let mut values: Vec<String> = match whole {
            true => steps.map(|value| value.round().to_string()).collect(),
            false => steps.map(shown).collect(),
        };
        // Products are in order, so equal ones follow one another.
        values.dedup();
        Ok(values)
    }

    /// Returns the values from the 0-th on that are not above the end.
    fn until_end(&self, value: impl Fn(f64) -> f64) -> Vec<f64> {
        // The tolerance keeps the last value in spite of rounding.
        let end = self.to + (self.to - self.from) * 1e-9;
        let values = (0..=VALUES_MAX).map(|n| value(n as f64));
        values.take_while(|value| *value <= end).collect()
    }

    /// Returns as many different numbers of the range, drawn from a stream of this seed.
    fn drawn(&self, draws: usize, whole: bool, seed: StableHash) -> Result<Vec<String>, String> {
        let is_log = match self.step {
            "" => false,
            "*" if self.from > 0.0 => true,
            "*" => return Err("logarithms are of what is above 0".to_string()),
            _ => return Err("draws have no steps; right is N@A..B or N@A..B*".to_string()),
        };
        if draws == 0 {
            return Err("nothing would be drawn".to_string());
        }
        if draws > VALUES_MAX {
            return Err("that is too many".to_string());
        }
        let (from, to) = (self.from, self.to);
        let (there_are, draws_max) = match whole {
            true => (to - from + 1.0, draws * DRAWS_A_WHOLE),
            false if from == to => (1.0, draws),
            false => (f64::INFINITY, draws * DRAWS_A_FRACTION),
        };
        let too_few = |many: f64| format!("{draws} numbers are asked for, and there are {many}");
        if there_are < draws as f64 {
            return Err(too_few(there_are));
        }
        // Each whole number stands for what is from it up to the next one.
        let end = if whole { to + 1.0 } else { to };
        let of = |share: f64| match is_log {
            true => from * (end / from).powf(share),
            false => from + share * (end - from),
        };
        let mut random = SplitMix64::seed_from_u64(seed.bits() as u64);
        let (mut values, mut seen) = (Vec::new(), HashSet::new());
        for _ in 0..draws_max {
            let value = of((random.next_u64() >> 11) as f64 / (1u64 << 53) as f64);
            let value = match whole {
                true => value.floor().min(to).to_string(),
                false => shown(value),
            };
            if seen.insert(value.clone()) {
                values.push(value);
            }
            if values.len() == draws {
                return Ok(values);
            }
        }
        Err(too_few(values.len() as f64))
    }
}

fn number(text: &str) -> Option<f64> {
    let number: f64 = text.trim().parse().ok()?;
    number.is_finite().then_some(number)
}

/// Returns a number as its label has it, which is its value, too.
fn shown(value: f64) -> String {
    let rounded = format!("{value:.*e}", DIGITS - 1);
    rounded.parse().unwrap_or(value).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(key: &str, whole: bool, text: &str) -> Vec<String> {
        values(key, || whole, text)
            .expect("legal")
            .expect("a range")
    }

    fn whole(text: &str) -> Vec<String> {
        of("iodepth", true, text)
    }

    fn fractions(text: &str) -> Vec<String> {
        of("drive.controller.read_us", false, text)
    }

    #[test]
    fn ranges_have_their_ends() {
        assert_eq!(whole("1..4"), ["1", "2", "3", "4"]);
        assert_eq!(whole("1..31+10"), ["1", "11", "21", "31"]);
        assert_eq!(whole("1..40*3"), ["1", "3", "9", "27"]);
        assert_eq!(whole("1..6*1.5"), ["1", "2", "3", "5"]);
        assert_eq!(fractions("1..4"), ["1", "2", "3", "4"]);
        assert_eq!(fractions("1..2+0.25"), ["1", "1.25", "1.5", "1.75", "2"]);
        assert_eq!(fractions("0.1..0.3+0.1"), ["0.1", "0.2", "0.3"]);
        let tenths = fractions("0..1+0.1");
        assert_eq!(tenths.len(), 11);
        assert!(tenths.iter().all(|value| value.len() <= 3), "{tenths:?}");
        assert_eq!(fractions("1..4*1.5"), ["1", "1.5", "2.25", "3.375"]);
    }

    #[test]
    fn as_many_numbers_are_drawn_as_are_asked_for() {
        for (text, draws) in [("20@3..20", 20), ("1000@3..20", 1000), ("4@1..4*", 4)] {
            let drawn = fractions(text);
            assert_eq!(drawn.len(), draws, "{text}");
            assert_eq!(drawn, fractions(text));
            let numbers: HashSet<&String> = drawn.iter().collect();
            assert_eq!(numbers.len(), draws, "{text}");
        }
        for (text, draws) in [
            ("4@1..4", 4),
            ("4@1..4*", 4),
            ("18@3..20", 18),
            ("9@1..1e9*", 9),
        ] {
            let mut drawn: Vec<f64> = (whole(text).iter())
                .map(|value| value.parse::<u32>().expect("whole").into())
                .collect();
            drawn.sort_by(f64::total_cmp);
            drawn.dedup();
            assert_eq!(drawn.len(), draws, "{text}");
        }
        assert_ne!(whole("5@10..100"), whole("5@10..101"));
        assert_ne!(whole("5@10..100"), of("numjobs", true, "5@10..100"));
    }

    #[test]
    fn draws_are_even() {
        let numbers = |text: &str| -> Vec<f64> {
            let drawn = fractions(text).into_iter();
            drawn
                .map(|value| value.parse().expect("a number"))
                .collect()
        };
        let even = numbers("10000@0..1");
        let below = even.iter().filter(|value| **value < 0.25).count();
        assert!((2350..2650).contains(&below), "{below}");
        let logarithms = numbers("10000@1..10000*");
        let below = logarithms.iter().filter(|value| **value < 10.0).count();
        assert!((2350..2650).contains(&below), "{below}");
    }

    /// A sweep's parts from two machines and two builds are put together, so these never change. The
    /// numbers are those of a program in Python after the published FNV-1a and SplitMix64.
    #[test]
    fn draws_are_the_same_in_every_build() {
        assert_eq!(whole("3@1..100"), ["35", "33", "12"]);
        assert_eq!(fractions("2@3..20"), ["12.131675224", "4.95048720016"]);
    }

    #[test]
    fn every_whole_number_of_a_long_range_can_be_drawn() {
        assert_eq!(whole("10000@1..10000*").len(), 10_000);
    }

    #[test]
    fn what_is_no_range_is_a_value() {
        for text in ["../a.toml", "a..b", "4k", "rw@x", "1...2.x", ".."] {
            assert_eq!(values("drive", || false, text), Ok(None), "{text}");
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
            ("20@3..5", "20 numbers are asked for, and there are 3"),
            ("1..2+0.25", "iodepth takes whole numbers, and 0.25 is none"),
            ("1.5..8", "iodepth takes whole numbers"),
        ] {
            let error = values("iodepth", || true, text).expect_err(said);
            assert!(error.contains(said), "{error}");
        }
        let error = values("drive.x", || false, "2@3..3").expect_err("one number");
        assert!(error.contains("there are 1"), "{error}");
    }
}
