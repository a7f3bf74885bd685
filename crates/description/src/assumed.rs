//! The table `[assumed]` of a description: values that nobody measured, each with the
//! ends between which it is plausible, so that a decision that depends on the
//! description can be repeated with them.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::hint;
use crate::source::{ReadError, Source};

/// The name of the table.
pub(crate) const TABLE: &str = "assumed";

/// The reference's text on the table.
pub(crate) const ABOUT: &str = "Values of this file that nobody measured: a key with its table \
    in quotes, and other values, each legal in its place; those of a number have it between the \
    least and the largest of them, as in `\"link.submit_us\" = [0.3, 2]`. `blklab compare` \
    decides again with them.";

/// A value that nobody measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assumed {
    /// The key with its table: `controller.patience_us`.
    pub key: String,
    /// Its value as written.
    pub value: String,
    /// The ends of the plausible range, as written.
    pub ends: Vec<String>,
    /// The place of the value in the text.
    span: Range<usize>,
    /// The place of the key's name in the table.
    pub(crate) offset: usize,
}

impl Assumed {
    /// Returns the description's text with this value replaced by another.
    pub fn replaced(&self, text: &str, value: &str) -> String {
        format!(
            "{}{value}{}",
            &text[..self.span.start],
            &text[self.span.end..]
        )
    }

    /// Returns the ends that are not the value itself.
    pub fn other_ends(&self) -> impl Iterator<Item = &str> {
        let ends = self.ends.iter().map(String::as_str);
        ends.filter(|end| *end != self.value)
    }

    /// Returns the error for an end that is not legal in the value's place; `problem` is
    /// the reader's message on the text with that end.
    pub(crate) fn refusal(&self, end: &str, key: &str, problem: &str) -> ReadError {
        let problem = match key == self.key {
            true => problem.to_string(),
            false => format!("found {end}, with which `{key}` is wrong: {problem}"),
        };
        error(self.offset, &self.key, problem)
    }
}

/// Reads the table of a description.
pub(crate) fn read(root: &DeTable<'_>, source: &Source<'_>) -> Result<Vec<Assumed>, ReadError> {
    let Some((name, table)) = root.get_key_value(TABLE) else {
        return Ok(Vec::new());
    };
    let DeValue::Table(entries) = table.get_ref() else {
        let found = source.shown(table.span());
        let problem = format!("found {found}, legal is a table, [{TABLE}]");
        return Err(ReadError {
            key: TABLE.to_string(),
            ..error(name.span().start, "", problem)
        });
    };
    let mut all: Vec<Assumed> = Vec::new();
    for (name, ends) in entries.iter() {
        let (offset, key) = (name.span().start, name.get_ref().to_string());
        let Some(value) = value_at(root, &key) else {
            return Err(error(offset, &key, unknown(root, &key)));
        };
        let legal = "legal is a list of other values that it plausibly has, as in [1, 5]";
        if let Some(found) = source.malformed(&ends.span()) {
            return Err(ReadError {
                is_syntax: true,
                ..error(offset, &key, format!("found {found}, {legal}"))
            });
        }
        let listed = values(ends, source).ok_or_else(|| {
            let found = source.shown(ends.span());
            error(offset, &key, format!("found {found}, {legal}"))
        })?;
        if !is_between(value.get_ref(), ends.get_ref()) {
            let (found, own) = (source.shown(ends.span()), source.shown(value.span()));
            let legal = format!("legal is a list whose least is at most {own}, the value itself");
            let problem = format!("found {found}, {legal}, and whose largest is at least that");
            return Err(error(offset, &key, problem));
        }
        all.push(Assumed {
            value: source.shown(value.span()),
            span: value.span(),
            key,
            ends: listed,
            offset,
        });
    }
    // A parsed table is sorted by name; the file lists the values that matter most
    // first.
    all.sort_by_key(|assumed| assumed.offset);
    Ok(all)
}

fn error(offset: usize, key: &str, problem: String) -> ReadError {
    ReadError {
        offset,
        key: format!("{TABLE}.{key:?}"),
        problem,
        is_syntax: false,
    }
}

/// Returns the elements of an array as written; `None` if it is empty or no array.
fn values(array: &Spanned<DeValue<'_>>, source: &Source<'_>) -> Option<Vec<String>> {
    let DeValue::Array(items) = array.get_ref() else {
        return None;
    };
    let written = items.iter().map(|item| source.written(item.span()));
    (!items.is_empty()).then(|| written.collect())
}

/// Returns whether a number, or each of an array, is between the least and the largest of the
/// ends; other values have no order.
fn is_between(value: &DeValue<'_>, ends: &DeValue<'_>) -> bool {
    let (Some(value), DeValue::Array(ends)) = (numbers(value), ends) else {
        return true;
    };
    let ends: Vec<Vec<f64>> = ends
        .iter()
        .filter_map(|end| numbers(end.get_ref()))
        .collect();
    value.iter().enumerate().all(|(at, value)| {
        let ends = || ends.iter().filter_map(|end| end.get(at));
        ends().any(|end| end <= value) && ends().any(|end| end >= value)
    })
}

/// Returns a number, or all numbers of an array.
fn numbers(value: &DeValue<'_>) -> Option<Vec<f64>> {
    match value {
        DeValue::Integer(whole) => {
            let number = i64::from_str_radix(whole.as_str(), whole.radix()).ok()?;
            Some(alloc::vec![number as f64])
        }
        DeValue::Float(number) => Some(alloc::vec![number.as_str().parse().ok()?]),
        DeValue::Array(items) => {
            let each: Option<Vec<Vec<f64>>> =
                items.iter().map(|item| numbers(item.get_ref())).collect();
            each.map(|each| each.concat())
        }
        _ => None,
    }
}

/// Finds the value of a key that is named with its table.
fn value_at<'t>(root: &'t DeTable<'_>, key: &str) -> Option<&'t Spanned<DeValue<'t>>> {
    let (mut table, mut names) = (root, key.split('.').peekable());
    while let Some(name) = names.next() {
        let value = table.get(name)?;
        match (value.get_ref(), names.peek()) {
            (DeValue::Table(inner), Some(_)) => table = inner,
            (DeValue::Table(_), None) | (_, Some(_)) => return None,
            (_, None) => return Some(value),
        }
    }
    None
}

fn unknown(root: &DeTable<'_>, key: &str) -> String {
    let mut keys = Vec::new();
    add_keys(root, "", &mut keys);
    let hint = hint(key, keys.iter().map(String::as_str));
    format!(
        "no such key in this file; legal is one with its table, as in \"host.queue_depth\"{hint}"
    )
}

fn add_keys(table: &DeTable<'_>, path: &str, keys: &mut Vec<String>) {
    for (name, value) in table.iter().filter(|(name, _)| name.get_ref() != TABLE) {
        let name = format!("{path}{}", name.get_ref());
        match value.get_ref() {
            DeValue::Table(inner) => add_keys(inner, &format!("{name}."), keys),
            _ => keys.push(name),
        }
    }
}
