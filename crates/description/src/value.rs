//! The kinds of values that a key can have.

use std::ops::RangeInclusive;

use toml::Spanned;
use toml::de::DeValue;

use crate::table::{ReadError, Table};

/// What a key with a line of text takes.
const TEXT: &str = "text in \"quotes\"";

impl<'a> Table<'a> {
    /// A whole number.
    pub fn int(&self, key: &'static str, range: RangeInclusive<u64>) -> Result<u64, ReadError> {
        self.read(key, &legal_whole(&range), |value| whole_in(value, &range))
    }

    /// A whole number that may be left out.
    pub fn int_or(
        &self,
        key: &'static str,
        range: RangeInclusive<u64>,
        default: u64,
    ) -> Result<u64, ReadError> {
        Ok(self.int_if_any(key, range)?.unwrap_or(default))
    }

    /// A whole number, or nothing.
    pub fn int_if_any(
        &self,
        key: &'static str,
        range: RangeInclusive<u64>,
    ) -> Result<Option<u64>, ReadError> {
        self.read_if_any(key, &legal_whole(&range), |value| whole_in(value, &range))
    }

    /// A number with or without a fraction.
    pub fn number(&self, key: &'static str, range: RangeInclusive<f64>) -> Result<f64, ReadError> {
        self.read(key, &legal_number(&range), |value| number_in(value, &range))
    }

    /// A number, or nothing.
    fn number_if_any(
        &self,
        key: &'static str,
        range: RangeInclusive<f64>,
    ) -> Result<Option<f64>, ReadError> {
        self.read_if_any(key, &legal_number(&range), |value| number_in(value, &range))
    }

    /// A number that may be left out.
    pub fn number_or(
        &self,
        key: &'static str,
        range: RangeInclusive<f64>,
        default: f64,
    ) -> Result<f64, ReadError> {
        Ok(self.number_if_any(key, range)?.unwrap_or(default))
    }

    /// A span in microseconds, returned in nanoseconds.
    pub fn micros(&self, key: &'static str, max_us: f64) -> Result<u64, ReadError> {
        self.number(key, 0.0..=max_us).map(nanos)
    }

    /// Such a span, or nothing.
    pub fn micros_if_any(&self, key: &'static str, max_us: f64) -> Result<Option<u64>, ReadError> {
        Ok(self.number_if_any(key, 0.0..=max_us)?.map(nanos))
    }

    /// Such a span that may be left out.
    pub fn micros_or(
        &self,
        key: &'static str,
        max_us: f64,
        default_ns: u64,
    ) -> Result<u64, ReadError> {
        Ok(self.micros_if_any(key, max_us)?.unwrap_or(default_ns))
    }

    /// A span in microseconds that is more than nothing, of what takes time
    /// whatever does it; in nanoseconds.
    pub fn micros_above_zero(&self, key: &'static str, max_us: f64) -> Result<u64, ReadError> {
        self.number(key, 0.001..=max_us).map(nanos)
    }

    /// Such a span that may be left out.
    pub fn micros_above_zero_or(
        &self,
        key: &'static str,
        max_us: f64,
        default_ns: u64,
    ) -> Result<u64, ReadError> {
        let found = self.number_if_any(key, 0.001..=max_us)?;
        Ok(found.map_or(default_ns, nanos))
    }

    /// `count` spans in microseconds, or one that stands for all of them.
    pub fn micros_each(
        &self,
        key: &'static str,
        count: usize,
        max_us: f64,
    ) -> Result<Vec<u64>, ReadError> {
        let array = match count {
            1 => String::new(),
            _ => format!(", or an array of {count} such, one a bit of the cell"),
        };
        let legal = format!("a number from 0.001 to {max_us}{array}");
        let legal_ns = |value: &DeValue<'_>| number_in(value, &(0.001..=max_us)).map(nanos);
        self.read(key, &legal, |value| match value {
            DeValue::Array(items) => {
                let spans = items.iter().map(|item| legal_ns(item.get_ref()));
                let spans = spans.collect::<Option<Vec<u64>>>();
                spans.filter(|spans| spans.len() == count)
            }
            one => legal_ns(one).map(|ns| vec![ns; count]),
        })
    }

    /// Yes or no, which may be left out.
    pub fn flag_or(&self, key: &'static str, default: bool) -> Result<bool, ReadError> {
        let flag = self.read_if_any(key, "true or false", DeValue::as_bool)?;
        Ok(flag.unwrap_or(default))
    }

    /// A line of text.
    pub fn text(&self, key: &'static str) -> Result<String, ReadError> {
        self.read(key, TEXT, |value| value.as_str().map(str::to_string))
    }

    /// Text that says something to `parse`, in words that `legal` tells.
    pub fn parsed<T>(
        &self,
        key: &'static str,
        legal: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, ReadError> {
        self.read(key, legal, |value| value.as_str().and_then(parse))
    }

    /// Such text, or nothing.
    pub fn parsed_if_any<T>(
        &self,
        key: &'static str,
        legal: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, ReadError> {
        self.read_if_any(key, legal, |value| value.as_str().and_then(parse))
    }

    /// One of several words.
    pub fn choice<T: Copy>(&self, key: &'static str, words: &[(&str, T)]) -> Result<T, ReadError> {
        self.parsed(key, &legal_words(words), |found| meaning(words, found))
    }

    /// One of several words, which may be left out.
    pub fn choice_or<T: Copy>(
        &self,
        key: &'static str,
        words: &[(&str, T)],
        default: T,
    ) -> Result<T, ReadError> {
        let found = self.parsed_if_any(key, &legal_words(words), |found| meaning(words, found))?;
        Ok(found.unwrap_or(default))
    }

    /// Rows of so many numbers.
    pub fn rows(
        &self,
        key: &'static str,
        columns: usize,
        legal: &str,
    ) -> Result<Vec<Vec<f64>>, ReadError> {
        let row = |row: &Spanned<DeValue<'a>>| {
            let cells = row.get_ref().as_array()?.iter();
            let cells = cells.map(|cell| fraction(cell.get_ref()));
            let cells = cells.collect::<Option<Vec<f64>>>();
            cells.filter(|cells| cells.len() == columns)
        };
        self.read(key, legal, |value| {
            let rows = value.as_array()?.iter().map(row);
            let rows = rows.collect::<Option<Vec<Vec<f64>>>>();
            rows.filter(|rows| !rows.is_empty())
        })
    }
}

fn nanos(micros: f64) -> u64 {
    (micros * 1e3).round() as u64
}

fn legal_whole(range: &RangeInclusive<u64>) -> String {
    format!("a whole number from {} to {}", range.start(), range.end())
}

fn legal_number(range: &RangeInclusive<f64>) -> String {
    format!("a number from {} to {}", range.start(), range.end())
}

fn legal_words<T>(words: &[(&str, T)]) -> String {
    let words: Vec<String> = words
        .iter()
        .map(|(word, _)| format!("\"{word}\""))
        .collect();
    format!("one of {}", words.join(", "))
}

fn meaning<T: Copy>(words: &[(&str, T)], found: &str) -> Option<T> {
    let word = words.iter().find(|(word, _)| *word == found);
    word.map(|(_, meaning)| *meaning)
}

fn whole(value: &DeValue<'_>) -> Option<u64> {
    let DeValue::Integer(digits) = value else {
        return None;
    };
    u64::from_str_radix(digits.as_str(), digits.radix()).ok()
}

fn fraction(value: &DeValue<'_>) -> Option<f64> {
    match value {
        DeValue::Integer(_) => whole(value).map(|n| n as f64),
        DeValue::Float(digits) => digits.as_str().parse().ok().filter(|n: &f64| n.is_finite()),
        _ => None,
    }
}

fn whole_in(value: &DeValue<'_>, range: &RangeInclusive<u64>) -> Option<u64> {
    whole(value).filter(|n| range.contains(n))
}

fn number_in(value: &DeValue<'_>, range: &RangeInclusive<f64>) -> Option<f64> {
    fraction(value).filter(|n| range.contains(n))
}
