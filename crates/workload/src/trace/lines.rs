//! Reads the lines of a trace from a plain or compressed file.

use std::fs::File;
use std::io::{self, BufRead, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use blklab_description::kind_without_end;

use super::error::{Fault, TraceError};
use super::packed::unpacked;

/// The longest line. A file with a longer line is not a trace, and is not read into memory.
const LINE_BYTES_MAX: usize = 64 << 10;

/// Opens a file that can be read repeatedly, as the format is detected first.
fn open_rereadable(path: &Path) -> io::Result<File> {
    let kind = std::fs::metadata(path)?.file_type();
    let once = kind.is_fifo().then_some("a pipe");
    match once.or(kind_without_end(path)) {
        None => File::open(path),
        Some(what) => {
            let why = format!("{what}, and a trace is in a file");
            Err(io::Error::new(io::ErrorKind::InvalidInput, why))
        }
    }
}

/// A reader of lines that knows their places.
pub(crate) struct Lines {
    file: String,
    source: Box<dyn BufRead + Send>,
    number: u64,
    bytes: Vec<u8>,
    text: String,
}

impl Lines {
    /// Opens the file at `path`.
    pub(crate) fn open(path: &Path) -> Result<Lines, TraceError> {
        let file = path.display().to_string();
        match open_rereadable(path) {
            Ok(source) => Lines::new(source, file),
            Err(source) => Err(TraceError::Io {
                file,
                line: 0,
                source,
            }),
        }
    }

    /// Reads from `source`, decompressing it if needed; `file` is its name in messages.
    pub(crate) fn new(
        source: impl Read + Send + 'static,
        file: String,
    ) -> Result<Lines, TraceError> {
        match unpacked(source) {
            Ok(source) => Ok(Lines {
                file,
                source,
                number: 0,
                bytes: Vec::new(),
                text: String::new(),
            }),
            Err(source) => Err(TraceError::Io {
                file,
                line: 0,
                source,
            }),
        }
    }

    /// Moves to the next line, which [`Lines::current`] returns; `false` after the last line.
    pub(crate) fn advance(&mut self) -> Result<bool, TraceError> {
        self.bytes.clear();
        let limit = LINE_BYTES_MAX as u64 + 1;
        let read = (&mut self.source)
            .take(limit)
            .read_until(b'\n', &mut self.bytes);
        match read {
            Err(source) => {
                return Err(TraceError::Io {
                    file: self.file.clone(),
                    line: self.number,
                    source,
                });
            }
            Ok(0) => return Ok(false),
            Ok(_) => self.number += 1,
        }
        let line = without_line_end(&self.bytes);
        if line.len() > LINE_BYTES_MAX {
            let found = String::from_utf8_lossy(line);
            let expected = format!("at most {LINE_BYTES_MAX} bytes before the line's end");
            return Err(self.malformed(Fault::new(0, "line", &found, expected)));
        }
        self.text.clear();
        self.text.push_str(&String::from_utf8_lossy(line));
        Ok(true)
    }

    /// Returns the next `limit` bytes without consuming them.
    pub(crate) fn look_ahead(&mut self, limit: u64) -> Result<Vec<u8>, TraceError> {
        let mut start = Vec::new();
        if let Err(source) = (&mut self.source).take(limit).read_to_end(&mut start) {
            return Err(TraceError::Io {
                file: self.file.clone(),
                line: self.number,
                source,
            });
        }
        let rest = std::mem::replace(&mut self.source, Box::new(io::empty()));
        self.source = Box::new(io::Cursor::new(start.clone()).chain(rest));
        Ok(start)
    }

    /// Returns the file's name in messages and the unread rest.
    pub(crate) fn into_source(self) -> (String, Box<dyn BufRead + Send>) {
        (self.file, self.source)
    }

    /// Returns the file's name in messages.
    pub(crate) fn file(&self) -> &str {
        &self.file
    }

    /// Returns the current line without its end. Invalid UTF-8, which a process's name may contain,
    /// is replaced by U+FFFD.
    pub(crate) fn current(&self) -> &str {
        &self.text
    }

    /// Returns the number of the current line, from 1.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Returns an error about the current line.
    pub(crate) fn malformed(&self, fault: Fault) -> TraceError {
        TraceError::Malformed {
            file: self.file.clone(),
            line: self.number,
            fault,
        }
    }
}

fn without_line_end(bytes: &[u8]) -> &[u8] {
    let line = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    line.strip_suffix(b"\r").unwrap_or(line)
}
