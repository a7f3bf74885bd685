//! One table of a description, whose keys are taken one after the other.

use std::cell::RefCell;
use std::ops::{Range, RangeInclusive};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// What is wrong with a key, and where in the text.
#[derive(Clone, Debug, PartialEq)]
pub struct ReadError {
    pub(crate) offset: usize,
    pub(crate) key: String,
    pub(crate) problem: String,
}

/// A table whose keys are taken one after the other; whatever nobody asked for
/// is an error in the end.
pub struct Table<'a> {
    /// `""` for the whole file, else `geometry` and the like.
    path: String,
    span: Range<usize>,
    entries: &'a DeTable<'a>,
    asked: RefCell<Vec<&'static str>>,
}

impl<'a> Table<'a> {
    pub(crate) fn root(parsed: &'a Spanned<DeTable<'a>>) -> Table<'a> {
        Table {
            path: String::new(),
            span: parsed.span(),
            entries: parsed.get_ref(),
            asked: RefCell::default(),
        }
    }

    /// The keys' names as the user would write them.
    fn name(&self, key: &str) -> String {
        if self.path.is_empty() {
            key.to_string()
        } else {
            format!("{}.{key}", self.path)
        }
    }

    fn error(&self, offset: usize, key: &str, problem: String) -> ReadError {
        ReadError {
            offset,
            key: self.name(key),
            problem,
        }
    }

    /// An error about a key that was read already.
    pub fn wrong(&self, key: &str, problem: impl Into<String>) -> ReadError {
        let offset = self
            .entries
            .get_key_value(key)
            .map_or(self.span.start, |(name, _)| name.span().start);
        self.error(offset, key, problem.into())
    }

    /// Whether a key is there.
    pub fn has(&self, key: &str) -> bool {
        self.entries.contains_key(key)
    }

    fn get(&self, key: &'static str) -> Option<&'a Spanned<DeValue<'a>>> {
        self.asked.borrow_mut().push(key);
        self.entries.get(key)
    }

    /// Reads a key where it is there.
    pub fn if_any<T>(
        &self,
        key: &'static str,
        read: impl FnOnce() -> Result<T, ReadError>,
    ) -> Result<Option<T>, ReadError> {
        self.get(key).map(|_| read()).transpose()
    }

    fn require(
        &self,
        key: &'static str,
        legal: &str,
    ) -> Result<&'a Spanned<DeValue<'a>>, ReadError> {
        self.get(key).ok_or_else(|| self.missing(key, legal))
    }

    /// A key that is not there; one a letter off is most likely it, and one with
    /// the same stem too, with its unit left out or another.
    fn missing(&self, key: &str, legal: &str) -> ReadError {
        let mut names = self.entries.keys();
        let typed = names.find(|name| strsim::osa_distance(name.get_ref(), key) == 1);
        if let Some(name) = typed {
            let name = (name.span().start, name.get_ref());
            let problem = format!("found `{}`; write `{key} = ...` ({legal})", name.1);
            return self.error(name.0, key, problem);
        }
        let stem = key.rsplit_once('_').map_or(key, |(stem, _)| stem);
        let near = self.entries.keys().find(|name| {
            let name = name.get_ref().as_ref();
            name == stem
                || name
                    .rsplit_once('_')
                    .is_some_and(|(other, _)| other == stem)
        });
        match near {
            Some(name) => self.error(
                name.span().start,
                key,
                format!(
                    "found `{}`: the unit is missing or another; write `{key} = ...` ({legal})",
                    name.get_ref()
                ),
            ),
            None => self.error(
                self.span.start,
                key,
                format!("is missing; it takes {legal}"),
            ),
        }
    }

    fn mismatch(&self, value: &Spanned<DeValue<'a>>, key: &str, legal: &str) -> ReadError {
        self.error(
            value.span().start,
            key,
            format!("found {}, legal is {legal}", shown(value.get_ref())),
        )
    }

    /// A whole number.
    pub fn int(&self, key: &'static str, range: RangeInclusive<u64>) -> Result<u64, ReadError> {
        let legal = format!("a whole number from {} to {}", range.start(), range.end());
        let value = self.require(key, &legal)?;
        whole(value.get_ref())
            .filter(|n| range.contains(n))
            .ok_or_else(|| self.mismatch(value, key, &legal))
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
        self.if_any(key, || self.int(key, range))
    }

    /// A number with or without a fraction.
    pub fn number(&self, key: &'static str, range: RangeInclusive<f64>) -> Result<f64, ReadError> {
        let legal = format!("a number from {} to {}", range.start(), range.end());
        let value = self.require(key, &legal)?;
        fraction(value.get_ref())
            .filter(|n| range.contains(n))
            .ok_or_else(|| self.mismatch(value, key, &legal))
    }

    /// A number that may be left out.
    pub fn number_or(
        &self,
        key: &'static str,
        range: RangeInclusive<f64>,
        default: f64,
    ) -> Result<f64, ReadError> {
        let found = self.if_any(key, || self.number(key, range))?;
        Ok(found.unwrap_or(default))
    }

    /// A span in microseconds, returned in nanoseconds.
    pub fn micros(&self, key: &'static str, max_us: f64) -> Result<u64, ReadError> {
        Ok((self.number(key, 0.0..=max_us)? * 1e3).round() as u64)
    }

    /// Such a span that is more than nothing, of what takes time whatever does
    /// it.
    pub fn micros_above_zero(&self, key: &'static str, max_us: f64) -> Result<u64, ReadError> {
        Ok((self.number(key, 0.001..=max_us)? * 1e3).round() as u64)
    }

    /// Such a span that may be left out.
    pub fn micros_or(
        &self,
        key: &'static str,
        max_us: f64,
        default_ns: u64,
    ) -> Result<u64, ReadError> {
        let found = self.if_any(key, || self.micros(key, max_us))?;
        Ok(found.unwrap_or(default_ns))
    }

    /// `count` spans in microseconds, or one that stands for all of them.
    pub fn micros_each(
        &self,
        key: &'static str,
        count: usize,
        max_us: f64,
    ) -> Result<Vec<u64>, ReadError> {
        let legal = format!(
            "one number or an array of {count}, each from 0.001 to {max_us} (one a bit of the cell)"
        );
        let value = self.require(key, &legal)?;
        let legal_ns = |value: &DeValue<'_>| {
            fraction(value)
                .filter(|us| (0.001..=max_us).contains(us))
                .map(|us| (us * 1e3).round() as u64)
        };
        let spans = match value.get_ref() {
            DeValue::Array(items) => items
                .iter()
                .map(|item| legal_ns(item.get_ref()))
                .collect::<Option<Vec<u64>>>()
                .filter(|spans| spans.len() == count),
            one => legal_ns(one).map(|ns| vec![ns; count]),
        };
        spans.ok_or_else(|| self.mismatch(value, key, &legal))
    }

    /// Yes or no, which may be left out.
    pub fn flag_or(&self, key: &'static str, default: bool) -> Result<bool, ReadError> {
        match self.get(key) {
            None => Ok(default),
            Some(value) => value
                .get_ref()
                .as_bool()
                .ok_or_else(|| self.mismatch(value, key, "true or false")),
        }
    }

    /// A line of text.
    pub fn text(&self, key: &'static str) -> Result<String, ReadError> {
        let value = self.require(key, "a string")?;
        value
            .get_ref()
            .as_str()
            .map(str::to_string)
            .ok_or_else(|| self.mismatch(value, key, "a string"))
    }

    /// A line of text that may be left out.
    pub fn text_if_any(&self, key: &'static str) -> Result<Option<String>, ReadError> {
        self.if_any(key, || self.text(key))
    }

    /// One of several words.
    pub fn choice<T: Copy>(&self, key: &'static str, words: &[(&str, T)]) -> Result<T, ReadError> {
        let legal = words
            .iter()
            .map(|(word, _)| format!("\"{word}\""))
            .collect::<Vec<_>>()
            .join(", ");
        let value = self.require(key, &format!("one of {legal}"))?;
        let found = value.get_ref().as_str();
        words
            .iter()
            .find(|(word, _)| Some(*word) == found)
            .map(|(_, meaning)| *meaning)
            .ok_or_else(|| self.mismatch(value, key, &format!("one of {legal}")))
    }

    /// One of several words, which may be left out.
    pub fn choice_or<T: Copy>(
        &self,
        key: &'static str,
        words: &[(&str, T)],
        default: T,
    ) -> Result<T, ReadError> {
        let found = self.if_any(key, || self.choice(key, words))?;
        Ok(found.unwrap_or(default))
    }

    /// Rows of so many numbers.
    pub fn rows(
        &self,
        key: &'static str,
        columns: usize,
        legal: &str,
    ) -> Result<Vec<Vec<f64>>, ReadError> {
        let value = self.require(key, legal)?;
        let row = |row: &Spanned<DeValue<'a>>| {
            row.get_ref().as_array().and_then(|cells| {
                cells
                    .iter()
                    .map(|cell| fraction(cell.get_ref()))
                    .collect::<Option<Vec<f64>>>()
                    .filter(|cells| cells.len() == columns)
            })
        };
        value
            .get_ref()
            .as_array()
            .and_then(|rows| rows.iter().map(row).collect::<Option<Vec<_>>>())
            .filter(|rows| !rows.is_empty())
            .ok_or_else(|| self.mismatch(value, key, legal))
    }

    /// A table within this one.
    pub fn table(&self, key: &'static str) -> Result<Table<'a>, ReadError> {
        match self.table_if_any(key)? {
            Some(table) => Ok(table),
            None => Err(self.missing_table(key)),
        }
    }

    /// A table that is not there; one a letter or two off is most likely it.
    fn missing_table(&self, key: &str) -> ReadError {
        let wanted = format!("[{}]", self.name(key));
        let mut names = self.entries.keys();
        let typed = names.find(|name| strsim::osa_distance(name.get_ref(), key) <= 2);
        match typed {
            Some(name) => {
                let found = self.name(name.get_ref());
                let problem = format!("found [{found}]; write {wanted}");
                self.error(name.span().start, key, problem)
            }
            None => self.error(
                self.span.start,
                key,
                format!("the table {wanted} is missing"),
            ),
        }
    }

    /// A table within this one that may be left out.
    pub fn table_if_any(&self, key: &'static str) -> Result<Option<Table<'a>>, ReadError> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        match value.get_ref() {
            DeValue::Table(entries) => Ok(Some(Table {
                path: self.name(key),
                span: value.span(),
                entries,
                asked: RefCell::default(),
            })),
            _ => Err(self.mismatch(value, key, "a table")),
        }
    }

    /// Refuses whatever nobody asked for.
    pub fn finish(&self) -> Result<(), ReadError> {
        let asked = self.asked.borrow();
        for (name, _) in self.entries.iter() {
            let key = name.get_ref().as_ref();
            if !asked.contains(&key) {
                let mut known: Vec<&str> = asked.clone();
                known.sort_unstable();
                known.dedup();
                return Err(self.error(
                    name.span().start,
                    key,
                    format!("no such key here; legal are {}", known.join(", ")),
                ));
            }
        }
        Ok(())
    }
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

fn shown(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => format!("{text:?}"),
        DeValue::Integer(digits) => digits.as_str().to_string(),
        DeValue::Float(digits) => digits.as_str().to_string(),
        DeValue::Boolean(yes) => yes.to_string(),
        DeValue::Array(items) => {
            let items: Vec<String> = items.iter().map(|item| shown(item.get_ref())).collect();
            format!("[{}]", items.join(", "))
        }
        DeValue::Table(_) => "a table".to_string(),
        DeValue::Datetime(_) => "a date".to_string(),
    }
}
