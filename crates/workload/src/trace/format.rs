//! The type of a trace format's declaration.

use std::fmt;
use std::path::{Path, PathBuf};

use super::error::{Fault, TraceError};
use super::lines::Lines;
use super::record::{Parsed, TraceRecord};

/// A format of traces that can be replayed.
#[derive(Debug)]
pub struct Format {
    /// Its name.
    pub name: &'static str,
    /// The format's description in a few words.
    pub help: &'static str,
    /// The form of a line.
    pub line: &'static str,
    /// Whether the format can record when I/Os ended, which a trace may still lack.
    pub tells_ends: bool,
    /// Whether the format records the process of an I/O.
    pub tells_processes: bool,
    /// The resolution of its times, in nanoseconds.
    pub tick_ns: u64,
    /// The function that writes an I/O as a line, if a line can hold all of it.
    pub write: Option<WriteRecord>,
    /// Whether a trace with this beginning is of this format.
    pub(super) detect: fn(&Start<'_>) -> bool,
    /// Returns the other files of the set that a file belongs to, if its name shows that it belongs
    /// to one.
    pub(super) other_files: fn(&Path) -> Option<Vec<PathBuf>>,
    /// Starts reading a trace.
    pub(super) read: fn(Input) -> Result<Box<dyn Records>, TraceError>,
}

/// Writes an I/O as a line. Returns `false`, and writes nothing, if the format cannot express it.
pub type WriteRecord = fn(&mut dyn fmt::Write, &TraceRecord) -> Result<bool, fmt::Error>;

impl PartialEq for Format {
    fn eq(&self, other: &Format) -> bool {
        self.name == other.name
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// Returns `None`, for formats that keep each trace in one file.
pub(super) fn one_file(_: &Path) -> Option<Vec<PathBuf>> {
    None
}

/// The beginning of a trace.
pub(super) struct Start<'a> {
    pub bytes: &'a [u8],
    /// The first line that identifies a format; empty if there is none.
    pub first_line: &'a str,
}

/// A file to read, with its beginning.
pub(super) struct InputFile {
    pub lines: Lines,
    pub start: Vec<u8>,
}

/// A trace to read.
pub(super) struct Input {
    /// The file that was given.
    pub named: InputFile,
    /// The other files of its set.
    pub others: Vec<InputFile>,
}

impl Input {
    /// Returns the beginning of the given file as text.
    pub fn start_text(&self) -> String {
        String::from_utf8_lossy(&self.named.start).into_owned()
    }

    /// Reads the lines of the given file with `parse`.
    pub fn lines(
        self,
        parse: impl FnMut(&str) -> Result<Parsed, Fault> + Send + 'static,
    ) -> Result<Box<dyn Records>, TraceError> {
        let lines = self.named.lines;
        Ok(Box::new(TextRecords { lines, parse }))
    }
}

/// A reader of a trace's records.
pub(super) trait Records: Send {
    /// Returns the next record.
    fn next(&mut self) -> Result<Parsed, TraceError>;

    /// Returns the error that this field of the last record is wrong.
    fn wrong(&self, field: &'static str, found: &str, expected: String) -> TraceError;
}

/// A trace in text lines.
struct TextRecords<P> {
    lines: Lines,
    parse: P,
}

impl<P: FnMut(&str) -> Result<Parsed, Fault> + Send> Records for TextRecords<P> {
    fn next(&mut self) -> Result<Parsed, TraceError> {
        if !self.lines.advance()? {
            return Ok(Parsed::Over);
        }
        let parsed = (self.parse)(self.lines.current());
        parsed.map_err(|fault| self.lines.malformed(fault))
    }

    fn wrong(&self, field: &'static str, found: &str, expected: String) -> TraceError {
        self.lines.malformed(Fault::new(0, field, found, expected))
    }
}
