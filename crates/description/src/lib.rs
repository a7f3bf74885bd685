//! Descriptions of drives, machines and servers that users write: TOML read key by key,
//! so that every message names file, line and key, what was found there and what would
//! have been legal.
//!
//! A key is declared once, with [`keys!`]: its name with unit, its type, its default,
//! what it needs and what it means. Reading and the [`Reference`] are made from that
//! declaration.

#![cfg_attr(not(any(test, feature = "std")), no_std)]

extern crate alloc;

mod assumed;
mod change;
#[cfg(feature = "std")]
mod file;
mod key_type;
mod keys;
mod reference;
mod shipped;
mod source;
mod table;
#[cfg(test)]
mod tests;
mod value;

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::cell::RefCell;

use thiserror::Error;
use toml::de::DeTable;

pub use source::ReadError;
use source::{Source, SyntaxError};
use table::Document;

pub use assumed::Assumed;
pub use change::{UNSET, with_value};
#[cfg(feature = "std")]
pub use file::{NewFile, kind_without_end, read_bytes, read_text};
pub use key_type::{
    Integer, KeyType, Kind, Word, array, flag, is_whole, nanos, number, one_of, one_or_each,
    parsed, text, time_ns, whole, word, words,
};
pub use reference::{Key, Reference, TableOfKeys};
pub use shipped::Shipped;
pub use table::Table;
pub use value::{Value, values};

/// A mistake in a description.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{file}:{line}: {}{problem}", if key.is_empty() { String::new() } else { format!("`{key}`: ") })]
pub struct SpecError {
    /// The file as the user named it.
    pub file: String,
    /// The line, from one.
    pub line: usize,
    /// The key with its table; empty if the line has none.
    pub key: String,
    /// What was found, and what would be legal.
    pub problem: String,
}

/// Reads a description; `file` is its name in messages.
///
/// # Errors
/// If the text is not TOML, or `read` finds a mistake in it.
pub fn read<T>(
    file: &str,
    text: &str,
    read: impl Fn(&Table<'_>) -> Result<T, ReadError>,
) -> Result<T, SpecError> {
    read_with_reference(file, text, read).map(|(read, _)| read)
}

/// Reads a description as [`read`] does, and returns the reference of all keys that were
/// read. The ends of its assumed values are checked by reading it once with each of
/// them.
///
/// # Errors
/// As [`read`].
pub fn read_with_reference<T>(
    file: &str,
    text: &str,
    read: impl Fn(&Table<'_>) -> Result<T, ReadError>,
) -> Result<(T, Reference), SpecError> {
    let (value, reference, assumed) = read_once(file, text, &read)?;
    let ends = assumed
        .iter()
        .flat_map(|a| a.ends.iter().map(move |end| (a, end)));
    for (assumed, end) in ends {
        let tried = read_once(file, &assumed.replaced(text, end), &read);
        if let Err(error) = tried {
            let refused = assumed.refusal(end, &error.key, &error.problem);
            return Err(SpecError::at(file, &Source::new(text, None), refused));
        }
    }
    Ok((value, reference))
}

fn read_once<T>(
    file: &str,
    text: &str,
    read: &impl Fn(&Table<'_>) -> Result<T, ReadError>,
) -> Result<(T, Reference, Vec<Assumed>), SpecError> {
    let (parsed, mistakes) = DeTable::parse_recoverable(text);
    let syntax = mistakes.first().map(SyntaxError::of);
    let document = Document {
        source: Source::new(text, syntax.as_ref()),
        reference: RefCell::default(),
        idle: RefCell::default(),
        assumed: RefCell::default(),
    };
    let result = read(&Table::root(&parsed, &document));
    let idle = document.idle.borrow_mut().drain(..).next();
    let result = result.and_then(|read| idle.map_or(Ok(read), Err));
    let error = match (syntax.as_ref(), result) {
        (None, Ok(read)) => {
            return Ok((
                read,
                document.reference.into_inner(),
                document.assumed.into_inner(),
            ));
        }
        (None, Err(error)) => error,
        // Later errors may be caused by the part that could not be parsed.
        (Some(syntax), result) => match result {
            Err(error) if error.is_syntax => error,
            _ => document.source.error_of(syntax),
        },
    };
    Err(SpecError::at(file, &document.source, error))
}

impl SpecError {
    fn at(file: &str, source: &Source<'_>, error: ReadError) -> SpecError {
        SpecError {
            file: file.to_string(),
            line: source.line_of(error.offset),
            key: error.key,
            problem: error.problem,
        }
    }
}

/// Returns by how many letters a name differs from another (optimal string alignment).
#[cfg(feature = "std")]
fn letters_apart(one: &str, other: &str) -> usize {
    strsim::osa_distance(one, other)
}

/// Without the feature `std` names that differ are not alike.
#[cfg(not(feature = "std"))]
fn letters_apart(one: &str, other: &str) -> usize {
    if one == other { 0 } else { usize::MAX }
}

/// Returns the name in `known` that `typed` most likely means, if one is close enough.
///
/// By fio's rule, a name is close enough if at most half of the letters differ. Of
/// equally close names the first wins, so the answer depends only on the order of
/// `known`.
#[cfg(feature = "std")]
pub fn nearest<'a>(typed: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let typed = typed.to_ascii_lowercase();
    let limit = typed.chars().count().div_ceil(2);
    known
        .into_iter()
        .map(|name| (strsim::damerau_levenshtein(&typed, name), name))
        .min_by_key(|(distance, _)| *distance)
        .filter(|(distance, _)| *distance <= limit)
        .map(|(_, name)| name)
}

/// Returns as many known names as are nearest to a typed one, the nearest first.
#[cfg(feature = "std")]
pub fn nearest_few<'a>(
    typed: &str,
    known: impl IntoIterator<Item = &'a str>,
    few: usize,
) -> Vec<&'a str> {
    let typed = typed.to_ascii_lowercase();
    let mut known: Vec<&str> = known.into_iter().collect();
    known.sort_by_cached_key(|name| strsim::damerau_levenshtein(&typed, name));
    known.truncate(few);
    known
}

/// The fewest letters that are searched as a part of a longer name.
const LETTERS_OF_PART: usize = 3;

/// Returns the end of a message on an unknown name: `; did you mean NAME?`, or nothing
/// if no known name is close or contains it.
pub fn hint<'a>(typed: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    let part = typed.to_ascii_lowercase();
    let has_part = |name: &&str| part.len() >= LETTERS_OF_PART && name.contains(&part);
    let whole = || known.iter().copied().find(has_part);
    #[cfg(feature = "std")]
    let near = nearest(typed, known.iter().copied());
    #[cfg(not(feature = "std"))]
    let near = None;
    match near.or_else(whole) {
        Some(near) => format!("; did you mean {near}?"),
        None => String::new(),
    }
}
