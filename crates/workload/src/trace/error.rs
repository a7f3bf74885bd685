//! What can be wrong with a trace, said in one message.

use std::borrow::Cow;
use std::io;

/// Longest excerpt of the input that an error quotes, in characters.
const EXCERPT_CHARS: usize = 48;

/// Why a trace could not be read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file could not be opened or read, or what it is packed in is damaged.
    #[error("{file}: {}{source}", if *line == 0 { String::new() } else { format!("after line {line}: ") })]
    Io {
        /// The trace's file.
        file: String,
        /// Lines read before that.
        line: u64,
        /// What the system or the decompressor said.
        source: io::Error,
    },
    /// A line does not say what its format wants it to say.
    #[error("{file}:{line}: {fault}")]
    Malformed {
        /// The trace's file.
        file: String,
        /// The line, counted from 1.
        line: u64,
        /// What is wrong in that line.
        fault: Fault,
    },
    /// None of the formats fits the file's first lines.
    #[error("{file}: unknown trace format (first line: {first_line}); expected one of: {expected}")]
    UnknownFormat {
        /// The trace's file.
        file: String,
        /// Its first line that says something, shortened.
        first_line: String,
        /// The formats there are, with what a line of each looks like.
        expected: String,
    },
    /// A binary trace is not as its format wants it to be.
    #[error("{file}: at byte {offset}: {message}")]
    Binary {
        /// The trace's file.
        file: String,
        /// Where the record begins, counted from 0.
        offset: u64,
        /// What is wrong there.
        message: String,
    },
    /// A trace's JSON description is not as it should be.
    #[error("{file}: {message}")]
    Description {
        /// The JSON file.
        file: String,
        /// What is wrong, with its place or its key.
        message: String,
    },
}

/// What is wrong in one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("column {column}: {field}: found {found}, expected {expected}")]
pub struct Fault {
    /// The byte in the line, counted from 1.
    pub column: usize,
    /// The field's name.
    pub field: &'static str,
    /// What stands there, quoted and shortened.
    pub found: String,
    /// What would have been right.
    pub expected: Cow<'static, str>,
}

impl Fault {
    /// The fault at byte `at` (from 0) of `line`, where `found` stands.
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

/// `text` quoted, escaped and cut to a length that fits a message.
pub(crate) fn excerpt(text: &str) -> String {
    if text.is_empty() {
        return "nothing".to_owned();
    }
    match text.char_indices().nth(EXCERPT_CHARS) {
        Some((end, _)) => format!("{:?}...", &text[..end]),
        None => format!("{text:?}"),
    }
}
