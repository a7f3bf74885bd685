//! Descriptions that users write, of drives and of machines: TOML read key by
//! key, so that every complaint names file, line and key, what was found there
//! and what would have been legal.

mod table;

use thiserror::Error;
use toml::de::DeTable;

pub use table::{ReadError, Table};

/// A mistake in a description.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{file}:{line}: {}{problem}", if key.is_empty() { String::new() } else { format!("`{key}`: ") })]
pub struct SpecError {
    /// The file as the user named it.
    pub file: String,
    /// The line, from one.
    pub line: usize,
    /// The key with its table, empty where the text is no TOML at all.
    pub key: String,
    /// What was found and what would be legal.
    pub problem: String,
}

/// Reads a description; `file` is the name that the user knows it by.
///
/// # Errors
/// Where the text is no TOML, or `read` finds a mistake in it.
pub fn read<T>(
    file: &str,
    text: &str,
    read: impl FnOnce(&Table<'_>) -> Result<T, ReadError>,
) -> Result<T, SpecError> {
    let at = |offset: usize, key: String, problem: String| SpecError {
        file: file.to_string(),
        line: line_of(text, offset),
        key,
        problem,
    };
    let parsed = DeTable::parse(text).map_err(|error| {
        let offset = error.span().map_or(0, |span| span.start);
        at(offset, String::new(), error.message().to_string())
    })?;
    read(&Table::root(&parsed)).map_err(|error| at(error.offset, error.key, error.problem))
}

fn line_of(text: &str, offset: usize) -> usize {
    1 + text.as_bytes()[..offset.min(text.len())]
        .iter()
        .filter(|byte| **byte == b'\n')
        .count()
}
