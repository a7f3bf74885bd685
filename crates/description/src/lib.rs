//! Descriptions that users write, of drives and of machines: TOML read key by
//! key, so that every complaint names file, line and key, what was found there
//! and what would have been legal.

mod nearest;
mod shipped;
mod source;
mod table;
#[cfg(test)]
mod tests;
mod value;

use thiserror::Error;
use toml::de::DeTable;

use source::{Source, Syntax};

pub use nearest::{hint, nearest};
pub use shipped::text_of;
pub use table::{ReadError, Table};

/// A mistake in a description.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{file}:{line}: {}{problem}", if key.is_empty() { String::new() } else { format!("`{key}`: ") })]
pub struct SpecError {
    /// The file as the user named it.
    pub file: String,
    /// The line, from one.
    pub line: usize,
    /// The key with its table, empty where the line has none.
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
    let (parsed, mistakes) = DeTable::parse_recoverable(text);
    let syntax = mistakes.first().map(Syntax::of);
    let source = Source::new(text, syntax.as_ref());
    let result = read(&Table::root(&parsed, &source));
    let error = match (syntax.as_ref(), result) {
        (None, Ok(read)) => return Ok(read),
        (None, Err(error)) => error,
        // What else the reader says may come of the text that it could not see.
        (Some(syntax), result) => match result {
            Err(error) if error.is_syntax => error,
            _ => source.error_of(syntax),
        },
    };
    Err(SpecError {
        file: file.to_string(),
        line: source.line_of(error.offset),
        key: error.key,
        problem: error.problem,
    })
}
