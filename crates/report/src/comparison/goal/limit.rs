//! Limits: bounds on figures, as values or as parts of another row's figure.

use std::str::FromStr;

use blklab_description::hint;
use blklab_stats::Estimate;

use crate::comparison::figure::Metric;
use crate::comparison::figure_name::FigureName;
use crate::comparison::part::{SameWork, name_in_part, position};
use crate::quantity::{and_list, few_of};

/// A bound on a figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Limit {
    pub(super) figure: FigureName,
    at_most: bool,
    /// Whether the bound itself keeps the limit.
    inclusive: bool,
    bound: Bound,
    /// As written.
    pub(super) text: String,
}

/// What a figure is held against.
#[derive(Clone, Debug, PartialEq)]
enum Bound {
    /// In the metric's own unit: nanoseconds, bytes a second, or one.
    Value(f64),
    /// So many times the figure of the row of this name.
    Times(f64, String),
}

impl FromStr for Limit {
    type Err = String;

    /// Parses `FIGURE < VALUE` or `FIGURE >= 0.95 SCHEDULER`, and their like.
    fn from_str(text: &str) -> Result<Limit, String> {
        let at = text.find(['<', '>']);
        let at = at.ok_or_else(|| format!("{text:?} is not FIGURE < VALUE or FIGURE > VALUE"))?;
        let figure: FigureName = text[..at].trim().parse()?;
        let value = &text[at + 1..];
        let (inclusive, value) = match value.strip_prefix('=') {
            Some(value) => (true, value),
            None => (false, value),
        };
        Ok(Limit {
            bound: bound_of(figure.metric, value.trim())?,
            figure,
            at_most: text[at..].starts_with('<'),
            inclusive,
            text: text.trim().to_string(),
        })
    }
}

impl Limit {
    /// The bound of each row in the metric's own unit; `None` if it is that of a row without the
    /// figure.
    pub(super) fn bounds(
        &self,
        figures: &[Option<Estimate>],
        rows: &[String],
        parts: &[SameWork],
    ) -> Vec<Option<f64>> {
        let bound = |index| match &self.bound {
            Bound::Value(value) => Some(*value),
            Bound::Times(times, named) => {
                let at = position(named, index, rows, parts)?;
                Some(times * figures[at]?.mean)
            }
        };
        (0..rows.len()).map(bound).collect()
    }

    /// Checks that the row that it is held against is among `rows`, or among those of each part.
    pub(super) fn check_row(&self, rows: &[String], parts: &[SameWork]) -> Result<(), String> {
        let Bound::Times(_, named) = &self.bound else {
            return Ok(());
        };
        if (0..rows.len()).all(|index| position(named, index, rows, parts).is_some()) {
            return Ok(());
        }
        let mut names: Vec<String> = Vec::new();
        for index in 0..rows.len() {
            let name = name_in_part(index, rows, parts);
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let hint = hint(named, names.iter().map(String::as_str));
        let are = if names.len() == 1 { "is" } else { "are" };
        let (text, names) = (&self.text, few_of(named, &names));
        Err(format!(
            "--subject-to {text}: {named} is not compared; {names} {are}{hint}"
        ))
    }

    pub(super) fn is_kept(&self, mean: f64, bound: f64) -> bool {
        let is_beyond = match self.at_most {
            true => mean < bound,
            false => mean > bound,
        };
        is_beyond || self.inclusive && mean == bound
    }
}

/// Parses a value with its unit, or a factor and the row whose figure it is of.
fn bound_of(metric: Metric, text: &str) -> Result<Bound, String> {
    let of_row = || {
        let (times, row) = text.split_once(' ')?;
        let (times, unit) = match times.strip_suffix('%') {
            Some(percent) => (percent, 100.0),
            None => (times, 1.0),
        };
        let times: f64 = times.parse().ok()?;
        let is_right = times > 0.0 && times.is_finite();
        is_right.then(|| Bound::Times(times / unit, row.trim().to_string()))
    };
    match value_of(metric, text) {
        Ok(value) => Ok(Bound::Value(value)),
        Err(problem) => of_row().ok_or(problem),
    }
}

/// Parses a value with its unit, and converts it to the metric's own unit.
fn value_of(metric: Metric, text: &str) -> Result<f64, String> {
    let units: &[(&str, f64)] = match metric {
        Metric::Bandwidth => &[
            ("kB/s", 1e3),
            ("MB/s", 1e6),
            ("GB/s", 1e9),
            ("KiB/s", 1024.0),
            ("MiB/s", 1_048_576.0),
            ("GiB/s", 1_073_741_824.0),
            ("B/s", 1.0),
        ],
        Metric::Iops => &[("k", 1e3), ("M", 1e6), ("", 1.0)],
        _ => &[("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)],
    };
    let number = |(unit, factor): &(&str, f64)| {
        let number: f64 = text.strip_suffix(unit)?.trim().parse().ok()?;
        (number >= 0.0 && number.is_finite()).then_some(number * factor)
    };
    units.iter().find_map(number).ok_or_else(|| {
        let names = units
            .iter()
            .map(|(unit, _)| format!("{:?}", format!("5{unit}")));
        let names: Vec<String> = names.collect();
        format!(
            "{text:?} is no value of it, as {} are, and no part of a scheduler's, as \"0.95 none\"",
            and_list(&names)
        )
    })
}
