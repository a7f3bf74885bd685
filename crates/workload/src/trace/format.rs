//! What a trace format is declared with: one row that says all of it.

use std::fmt;
use std::path::{Path, PathBuf};

use super::error::{Fault, TraceError};
use super::lines::Lines;
use super::record::{Parsed, TraceRecord};

/// A format of traces to replay.
#[derive(Debug)]
pub struct Format {
    /// Its name.
    pub name: &'static str,
    /// What it is, in a few words.
    pub help: &'static str,
    /// What a line of it looks like.
    pub line: &'static str,
    /// Whether it has room for when I/Os ended. A trace may lack them all the same.
    pub tells_ends: bool,
    /// Whether it says which process an I/O is of.
    pub tells_processes: bool,
    /// What its times are multiples of, in nanoseconds.
    pub tick_ns: u64,
    /// Writes an I/O as a line, where a line says all of it.
    pub write: Option<WriteRecord>,
    /// Whether a trace that starts so is of this format.
    pub(super) detect: fn(&Start<'_>) -> bool,
    /// The other files of the set that a file is one of, where its name says that
    /// it is.
    pub(super) other_files: fn(&Path) -> Option<Vec<PathBuf>>,
    /// Begins to read.
    pub(super) read: fn(Input) -> Result<Box<dyn Records>, TraceError>,
}

/// Writes an I/O as a line. `false` if the format has no word for it, and nothing
/// was written.
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

/// A format that keeps each trace in one file.
pub(super) fn one_file(_: &Path) -> Option<Vec<PathBuf>> {
    None
}

/// How a trace starts.
pub(super) struct Start<'a> {
    pub bytes: &'a [u8],
    /// The first line that says something about the format; empty if none does.
    pub first_line: &'a str,
}

/// A file to be read, and how it starts.
pub(super) struct InputFile {
    pub lines: Lines,
    pub start: Vec<u8>,
}

/// A trace to be read.
pub(super) struct Input {
    /// The file that was named.
    pub named: InputFile,
    /// The others of its set.
    pub others: Vec<InputFile>,
}

impl Input {
    /// How the file that was named starts, as text.
    pub fn start_text(&self) -> String {
        String::from_utf8_lossy(&self.named.start).into_owned()
    }

    /// The lines of the file that was named, each read by `parse`.
    pub fn lines(
        self,
        parse: impl FnMut(&str) -> Result<Parsed, Fault> + Send + 'static,
    ) -> Result<Box<dyn Records>, TraceError> {
        let lines = self.named.lines;
        Ok(Box::new(TextRecords { lines, parse }))
    }
}

/// A trace being read, record by record.
pub(super) trait Records: Send {
    /// What comes next.
    fn next(&mut self) -> Result<Parsed, TraceError>;

    /// The time of the record just read is wrong.
    fn wrong_time(&self, found: &str, expected: String) -> TraceError;
}

/// A trace of lines.
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

    fn wrong_time(&self, found: &str, expected: String) -> TraceError {
        self.lines.malformed(Fault::new(0, "time", found, expected))
    }
}
