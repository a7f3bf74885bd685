//! A description as text whose numbers can be changed in place, so that a fitted one keeps the
//! comments of the original on all other lines.

use blklab_description::{Key, Kind, Reference};
use thiserror::Error;

/// The error for a key that does not exist or is not a number.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{key}: {problem}")]
pub struct KeyError {
    /// The key as requested.
    pub key: String,
    /// The problem, and what would be right.
    pub problem: String,
}

/// The text of the description of a drive or machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    lines: Vec<String>,
    keys: Reference,
}

impl Description {
    /// Returns a description with this text and the keys that it may have.
    pub fn new(text: &str, keys: Reference) -> Description {
        Description {
            lines: text.lines().map(str::to_string).collect(),
            keys,
        }
    }

    /// The complete text.
    pub fn text(&self) -> String {
        let mut text = self.lines.join("\n");
        text.push('\n');
        text
    }

    /// Returns the number of a key such as `flash.erase_us`, or an element of an array such as
    /// `flash.read_us[2]`. An array without an index stands for its first element.
    ///
    /// # Errors
    /// If there is no such key, or no such element.
    pub fn number(&self, key: &str) -> Result<f64, KeyError> {
        let (line, place) = self.find(key)?;
        let numbers = self.numbers(key, line)?;
        numbers
            .get(place.unwrap_or(0))
            .copied()
            .ok_or_else(|| fault(key, format!("the array has {} numbers", numbers.len())))
    }

    /// Sets a number, which no longer counts as assumed, and replaces the comment of its line by
    /// `comment`. An array without an index keeps its proportions.
    ///
    /// # Errors
    /// As [`Description::number`].
    pub fn set(&mut self, key: &str, value: f64, comment: &str) -> Result<(), KeyError> {
        let (line, place) = self.find(key)?;
        let mut numbers = self.numbers(key, line)?;
        let is_array = self.lines[line].contains('[');
        match place {
            Some(at) if at < numbers.len() => numbers[at] = value,
            Some(_) => {
                let problem = format!("the array has {} numbers", numbers.len());
                return Err(fault(key, problem));
            }
            None => {
                let first = numbers[0];
                for number in &mut numbers {
                    *number = if first == 0.0 {
                        value
                    } else {
                        *number / first * value
                    };
                }
            }
        }
        let is_whole = |key: &Key| key.kind == Kind::Whole;
        let whole = self.keys.key(path(key)).is_none_or(is_whole);
        let shown: Vec<String> = numbers.iter().map(|&n| show(n, whole)).collect();
        let shown = match is_array {
            true => format!("[{}]", shown.join(", ")),
            false => shown.concat(),
        };
        let name = self.lines[line].split('=').next().unwrap_or("").trim_end();
        self.lines[line] = match comment {
            "" => format!("{name} = {shown}"),
            comment => format!("{name} = {shown} # {comment}"),
        };
        self.forget_assumed(path(key));
        Ok(())
    }

    /// Removes the line of a key in the table `[assumed]`, whose ends were those of another value.
    fn forget_assumed(&mut self, key: &str) {
        let quoted = format!("{key:?}");
        let mut is_assumed = false;
        self.lines.retain(|line| {
            let line = line.trim();
            if line.starts_with('[') {
                is_assumed = line.starts_with("[assumed]");
            }
            let name = line.split('=').next().unwrap_or("").trim();
            !(is_assumed && name == quoted)
        });
    }

    /// Gives a key the value and the comment that it has in another description.
    ///
    /// # Errors
    /// If one of the two has no such key.
    pub fn take(&mut self, key: &str, from: &Description) -> Result<(), KeyError> {
        let ((own, _), (other, _)) = (self.find(key)?, from.find(key)?);
        self.lines[own].clone_from(&from.lines[other]);
        Ok(())
    }

    fn numbers(&self, key: &str, line: usize) -> Result<Vec<f64>, KeyError> {
        let text = &self.lines[line];
        let value = text.split_once('=').map_or("", |(_, value)| value);
        let value = value.split('#').next().unwrap_or("").trim();
        let inner = value.trim_start_matches('[').trim_end_matches(']');
        let numbers: Option<Vec<f64>> = inner
            .split(',')
            .map(|n| n.trim().replace('_', "").parse().ok())
            .collect();
        numbers
            .filter(|numbers| !numbers.is_empty())
            .ok_or_else(|| fault(key, format!("found {value}, legal is a number")))
    }

    /// Finds the line of a key, and the index in its array.
    fn find(&self, key: &str) -> Result<(usize, Option<usize>), KeyError> {
        let (path, place) = match key.strip_suffix(']').and_then(|k| k.split_once('[')) {
            Some((path, place)) => {
                let number = place.parse().map_err(|_| {
                    fault(
                        key,
                        format!("found [{place}], legal is a place such as [0]"),
                    )
                })?;
                (path, Some(number))
            }
            None => (key, None),
        };
        let (table, name) = path.rsplit_once('.').unwrap_or(("", path));
        let mut current = "";
        for (n, line) in self.lines.iter().enumerate() {
            let line = line.split('#').next().unwrap_or("").trim();
            if let Some(heading) = line.strip_prefix('[')
                && !line.contains('=')
            {
                current = heading.split(']').next().unwrap_or("").trim();
            } else if current == table
                && line
                    .split_once('=')
                    .is_some_and(|(found, _)| found.trim() == name)
            {
                return Ok((n, place));
            }
        }
        Err(fault(
            key,
            "is not in the description that the fit starts from".to_string(),
        ))
    }
}

/// The key without an array index.
fn path(key: &str) -> &str {
    key.split('[').next().unwrap_or(key)
}

/// Formats a number with three decimals, or with at least four significant digits, because a search
/// changes small numbers by fractions.
fn show(number: f64, whole: bool) -> String {
    if whole || number.abs() >= 1000.0 {
        return format!("{}", number.round());
    }
    let decimals = match number.abs() {
        small if small > 0.0 && small < 1.0 => 4 + (-small.log10()).floor().min(12.0) as usize,
        _ => 3,
    };
    let text = format!("{number:.decimals$}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

fn fault(key: &str, problem: String) -> KeyError {
    KeyError {
        key: key.to_string(),
        problem,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use blklab_description::{number, one_or_each};

    const TEXT: &str =
        "a = 1\n[flash] # [x] = y\nread_us = [10, 20] # why\n[costs.scheduler.bfq]\nx_ns = 5\n";

    #[test]
    fn numbers_are_read_and_set_where_they_stand() {
        let read = blklab_description::read_with_reference("d.toml", TEXT, |root| {
            let flash = root.table("flash")?;
            let spans = one_or_each(2, number(0.0..=99.0), "one a place");
            flash.key("read_us", "", spans)
        });
        let mut d = Description::new(TEXT, read.expect("legal").1);
        assert_eq!(d.number("flash.read_us[1]").unwrap(), 20.0);
        d.set("flash.read_us", 15.0, "fitted").unwrap();
        d.set("costs.scheduler.bfq.x_ns", 7.4, "").unwrap();
        assert_eq!(
            d.text(),
            "a = 1\n[flash] # [x] = y\nread_us = [15, 30] # fitted\n[costs.scheduler.bfq]\nx_ns = 7\n"
        );
        d.set("flash.read_us[1]", 0.01122, "").unwrap();
        assert_eq!(d.number("flash.read_us[1]").unwrap(), 0.01122);
        let assumed = "[assumed]\n\"a\" = [1, 2]\n\"flash.read_us\" = [[9, 9], [20, 30]]\n";
        let mut assuming = Description::new(&format!("{TEXT}{assumed}"), d.keys.clone());
        assuming.set("flash.read_us[0]", 40.0, "").unwrap();
        assert!(assuming.text().ends_with("[assumed]\n\"a\" = [1, 2]\n"));
        let other = Description::new("a = \"b\" # a fact\n", d.keys.clone());
        d.take("a", &other).unwrap();
        assert!(d.text().starts_with("a = \"b\" # a fact\n[flash]"));
        assert!(d.take("flash.read_us", &other).is_err());
        for wrong in ["flash.read_us[2]", "flash.no", "flash.read_us[x]", "x_ns"] {
            assert!(d.set(wrong, 1.0, "").is_err(), "{wrong}");
        }
    }
}
