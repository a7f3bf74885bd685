//! Errors of reading traces.

use std::borrow::Cow;
use std::io;

/// The longest excerpt of the input in an error, in characters.
const EXCERPT_CHARS: usize = 48;

/// The reason why a trace cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file cannot be opened or read, or its compressed data is damaged.
    #[error("{file}: {}{source}", if *line == 0 { String::new() } else { format!("after line {line}: ") })]
    Io {
        /// The trace's file.
        file: String,
        /// The number of lines read before the error.
        line: u64,
        /// The error of the system or the decompressor.
        source: io::Error,
    },
    /// A line does not conform to its format.
    #[error("{file}:{line}: {fault}")]
    Malformed {
        /// The trace's file.
        file: String,
        /// The line, counted from 1.
        line: u64,
        /// The mistake in that line.
        fault: Fault,
    },
    /// No format matches the file's first lines.
    #[error("{file}: unknown trace format (first line: {first_line}); expected one of: {expected}")]
    UnknownFormat {
        /// The trace's file.
        file: String,
        /// The first line with content, shortened.
        first_line: String,
        /// The known formats, with an example line of each.
        expected: String,
    },
    /// A binary trace does not conform to its format.
    #[error("{file}: at byte {offset}: {message}")]
    Binary {
        /// The trace's file.
        file: String,
        /// The start of the record in the file, from 0.
        offset: u64,
        /// The mistake.
        message: String,
    },
    /// A trace's JSON description is wrong.
    #[error("{file}: {message}")]
    Description {
        /// The JSON file.
        file: String,
        /// The mistake, with its place or its key.
        message: String,
    },
}

/// A mistake in one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("column {column}: {field}: found {found}, expected {expected}")]
pub struct Fault {
    /// The byte in the line, from 1.
    pub column: usize,
    /// The field's name.
    pub field: &'static str,
    /// The text found there, quoted and shortened.
    pub found: String,
    /// The form that was expected.
    pub expected: Cow<'static, str>,
}

impl Fault {
    /// Makes the fault at byte `at` (from 0) of `line`, where `found` was read.
    pub(crate) fn new(
        at: usize,
        field: &'static str,
        found: &str,
        expected: impl Into<Cow<'static, str>>,
    ) -> Fault {
        Fault {
            column: at + 1,
            field,
            found: excerpt(found),
            expected: expected.into(),
        }
    }
}

/// Quotes and escapes `text`, and shortens it for a message.
pub(crate) fn excerpt(text: &str) -> String {
    if text.is_empty() {
        return "nothing".to_owned();
    }
    match text.char_indices().nth(EXCERPT_CHARS) {
        Some((end, _)) => format!("{:?}...", &text[..end]),
        None => format!("{text:?}"),
    }
}
