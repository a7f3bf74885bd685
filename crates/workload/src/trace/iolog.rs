//! fio's iologs, as `write_iolog` writes them (versions 2 and 3; see "Trace file format" in fio's
//! HOWTO).
//!
//! Version 3 is `time file action [offset length]`, with the time in microseconds, as fio 3.33
//! writes it. Version 2 has no times, but `file wait time 0`, which fio 3.33 takes for milliseconds
//! since its start (`read_iolog_get`; the HOWTO says otherwise). To replay one, each file is a drive
//! of its own, numbered in order of appearance, and I/Os are rounded up to whole sectors.

use blklab_blk::{Op, SECTOR_SIZE};

use super::cursor::Cursor;
use super::error::Fault;
use super::format::{Format, Input, one_file};
use super::record::{Parsed, TraceRecord, checked_extent};

const ACTIONS: &str =
    "an action (add, open, close, read, write, trim, sync, datasync, or wait in version 2)";

/// Whether `line` is the first line of an iolog.
fn looks_like(line: &str) -> bool {
    line.starts_with("fio version ") && line.trim_end().ends_with("iolog")
}

/// What a line says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Line<'a> {
    /// When it was logged, in microseconds; in version 2 the time waited for so far.
    pub at_us: u64,
    pub file: &'a str,
    pub action: Action,
}

/// What was done with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Add,
    Open,
    Close,
    Io {
        op: Op,
        offset_bytes: u64,
        length_bytes: u64,
    },
    Sync,
    DataSync,
}

/// A parser of lines.
#[derive(Default)]
pub(crate) struct LineParser {
    version: u32,
    /// The time waited for so far, in version 2.
    waited_us: u64,
}

impl LineParser {
    /// Whether lines have times of their own. Without, a line's time is a moment that is waited
    /// for, counted from the start of fio.
    pub(crate) fn has_times(&self) -> bool {
        self.version != 2
    }

    /// Parses one line; `None` where it is no action on a file.
    pub(crate) fn parse<'a>(&mut self, line: &'a str) -> Result<Option<Line<'a>>, Fault> {
        let mut at = Cursor::new(line);
        at.skip_blanks();
        if at.rest().is_empty() {
            return Ok(None);
        }
        if self.version == 0 {
            self.parse_version(&mut at)?;
            return Ok(None);
        }
        let at_us = match self.version {
            2 => self.waited_us,
            _ => at.number("time", "microseconds")?,
        };
        at.skip_blanks();
        let file = at.word();
        at.skip_blanks();
        let word = at;
        let action = match at.word() {
            "add" => Action::Add,
            "open" => Action::Open,
            "close" => Action::Close,
            "wait" if self.version == 2 => {
                at.skip_blanks();
                let ms: u64 = at.number("wait", "milliseconds")?;
                at.skip_blanks();
                // fio reads a length here, too, and refuses a line without.
                at.number::<u64>("length", "a number, which means nothing, as 0")?;
                self.waited_us = self.waited_us.max(ms.saturating_mul(1000));
                return Ok(None);
            }
            "read" => io(&mut at, Op::Read)?,
            "write" => io(&mut at, Op::Write)?,
            "trim" => io(&mut at, Op::Discard)?,
            "sync" => Action::Sync,
            "datasync" => Action::DataSync,
            _ => return Err(word.fault("action", ACTIONS)),
        };
        Ok(Some(Line {
            at_us,
            file,
            action,
        }))
    }

    fn parse_version(&mut self, at: &mut Cursor<'_>) -> Result<(), Fault> {
        at.expect("fio version ", "first line")?;
        let number = *at;
        self.version = at.number("version", "version 2 or 3")?;
        match self.version {
            2 | 3 => Ok(()),
            _ => Err(number.fault("version", "version 2 or 3")),
        }
    }
}

/// Parses offset and length in bytes.
fn io(at: &mut Cursor<'_>, op: Op) -> Result<Action, Fault> {
    at.skip_blanks();
    let offset_bytes: u64 = at.number("offset", "a number of bytes")?;
    at.skip_blanks();
    let size = *at;
    let length_bytes: u64 = at.number("length", "a number of bytes")?;
    if offset_bytes.checked_add(length_bytes).is_none() {
        return Err(size.fault("length", "an end below 16 EiB"));
    }
    let (sector, sectors) = extent(offset_bytes, length_bytes);
    checked_extent(sector, sectors, size)?;
    Ok(Action::Io {
        op,
        offset_bytes,
        length_bytes,
    })
}

/// The sectors that bytes touch: the first and how many.
fn extent(offset_bytes: u64, length_bytes: u64) -> (u64, u64) {
    let sector = offset_bytes / SECTOR_SIZE;
    match length_bytes {
        0 => (sector, 0),
        length => (
            sector,
            (offset_bytes + length).div_ceil(SECTOR_SIZE) - sector,
        ),
    }
}

/// A parser of I/Os, with the files so far.
#[derive(Default)]
struct Parser {
    lines: LineParser,
    files: Vec<String>,
}

impl Parser {
    /// Parses one line.
    fn parse(&mut self, line: &str) -> Result<Parsed, Fault> {
        let Some(line) = self.lines.parse(line)? else {
            return Ok(Parsed::Nothing);
        };
        let (op, (sector, sectors)) = match line.action {
            Action::Add | Action::Open | Action::Close => return Ok(Parsed::Nothing),
            Action::Sync | Action::DataSync => (Op::Flush, (0, 0)),
            Action::Io {
                op,
                offset_bytes,
                length_bytes,
            } => (op, extent(offset_bytes, length_bytes)),
        };
        Ok(Parsed::Record(TraceRecord::new(
            line.at_us.saturating_mul(1000),
            self.number_of(line.file),
            op,
            sector,
            sectors as u32,
        )))
    }

    fn number_of(&mut self, file: &str) -> u32 {
        let known = self.files.iter().position(|known| known == file);
        let number = known.unwrap_or_else(|| {
            self.files.push(file.to_owned());
            self.files.len() - 1
        });
        number as u32
    }
}

/// What fio's `write_iolog` writes.
pub static FORMAT: Format = Format {
    name: "iolog",
    help: "fio iolog (write_iolog)",
    line: "fio version 2 or 3 iolog",
    tells_ends: false,
    tells_processes: false,
    tick_ns: 1000,
    write: None,
    detect: |start| looks_like(start.first_line),
    other_files: one_file,
    read: |input: Input| {
        let mut parser = Parser::default();
        input.lines(move |line| parser.parse(line))
    },
};
