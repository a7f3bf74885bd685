//! fio's iologs, as `write_iolog` writes them (versions 2 and 3; see "Trace file format" in fio's
//! HOWTO).
//!
//! Version 3 is `time file action [offset length]`, with the time in microseconds, as fio 3.33
//! writes it. Version 2 has no times, but a `wait` with the microseconds since the last one. Each
//! file is a drive of its own, numbered in order of appearance. Lengths are in bytes and rounded up
//! to whole sectors.

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

/// A parser of lines, with the version and the files.
#[derive(Default)]
struct Parser {
    version: u32,
    files: Vec<String>,
    /// The microseconds waited so far, in version 2.
    waited_us: u64,
}

impl Parser {
    /// Parses one line.
    fn parse(&mut self, line: &str) -> Result<Parsed, Fault> {
        let mut at = Cursor::new(line);
        at.skip_blanks();
        if at.rest().is_empty() {
            return Ok(Parsed::Nothing);
        }
        if self.version == 0 {
            return self.version(&mut at);
        }
        let at_us = match self.version {
            2 => self.waited_us,
            _ => at.number("time", "microseconds")?,
        };
        at.skip_blanks();
        let file = at.word();
        at.skip_blanks();
        let action = at;
        let op = match at.word() {
            "add" | "open" | "close" => return Ok(Parsed::Nothing),
            "wait" if self.version == 2 => {
                at.skip_blanks();
                let us: u64 = at.number("wait", "microseconds")?;
                self.waited_us = self.waited_us.saturating_add(us);
                return Ok(Parsed::Nothing);
            }
            "read" => Op::Read,
            "write" => Op::Write,
            "trim" => Op::Discard,
            "sync" | "datasync" => Op::Flush,
            _ => return Err(action.fault("action", ACTIONS)),
        };
        let at_ns = at_us.saturating_mul(1000);
        let (sector, sectors) = match op {
            Op::Flush => (0, 0),
            _ => extent(&mut at)?,
        };
        Ok(Parsed::Record(TraceRecord::new(
            at_ns,
            self.number_of(file),
            op,
            sector,
            sectors,
        )))
    }

    fn version(&mut self, at: &mut Cursor<'_>) -> Result<Parsed, Fault> {
        at.expect("fio version ", "first line")?;
        let number = *at;
        self.version = at.number("version", "version 2 or 3")?;
        match self.version {
            2 | 3 => Ok(Parsed::Nothing),
            _ => Err(number.fault("version", "version 2 or 3")),
        }
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

/// Parses offset and length in bytes into the sectors that they touch.
fn extent(at: &mut Cursor<'_>) -> Result<(u64, u32), Fault> {
    at.skip_blanks();
    let offset: u64 = at.number("offset", "a number of bytes")?;
    at.skip_blanks();
    let size = *at;
    let length: u64 = at.number("length", "a number of bytes")?;
    let sector = offset / SECTOR_SIZE;
    let end = offset
        .checked_add(length)
        .map(|end| end.div_ceil(SECTOR_SIZE));
    let end = end.ok_or_else(|| size.fault("length", "an end below 16 EiB"))?;
    let sectors = if length == 0 { 0 } else { end - sector };
    Ok((sector, checked_extent(sector, sectors, size)?))
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
