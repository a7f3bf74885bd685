//! The traces of Microsoft Research Cambridge, as SNIA distributes them: CSV with
//! `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`.
//!
//! The timestamp is a Windows file time (100 ns since 1601), offset and size are in bytes, and the
//! response time has the unit of the timestamp. A header line with the names of the columns is
//! skipped. Disks are identified by their number alone, so a file may hold one host only.

use std::fmt;

use blklab_blk::{Op, SECTOR_SIZE};

use super::cells::{cell_fault, number, operation, whole_sectors};
use super::cursor::Cursor;
use super::error::Fault;
use super::format::{Format, Input, one_file};
use super::record::{Parsed, TraceRecord, checked_extent};

/// The unit of a Windows file time, in nanoseconds.
const TICK_NS: u64 = 100;

/// The columns, as a header names them.
const HEADER: &str = "Timestamp,Hostname,";

/// Whether `line` may be of this format.
fn looks_like(line: &str) -> bool {
    line.starts_with(HEADER)
        || line.split(',').nth(3).is_some_and(|kind| {
            let kind = kind.trim();
            kind.eq_ignore_ascii_case("read") || kind.eq_ignore_ascii_case("write")
        })
}

/// A parser of lines, with the host that they are from.
#[derive(Default)]
struct Parser {
    host: Option<String>,
    past_first_line: bool,
}

impl Parser {
    /// Parses one line.
    fn parse(&mut self, line: &str) -> Result<Parsed, Fault> {
        let is_first = !std::mem::replace(&mut self.past_first_line, true);
        if line.trim().is_empty() || (is_first && line.starts_with(HEADER)) {
            return Ok(Parsed::Nothing);
        }
        let mut at = Cursor::new(line);
        let start = at;
        let expected = "a Windows file time in units of 100 ns";
        let ticks: u64 = number(&mut at, "Timestamp", expected)?;
        let at_ns = ticks.checked_mul(TICK_NS).ok_or_else(|| {
            cell_fault(
                start,
                "Timestamp",
                "a Windows file time before the year 2185",
            )
        })?;
        self.check_host(&mut at)?;
        let device = number(&mut at, "DiskNumber", "a disk's number")?;
        let op = operation(&mut at, "Type", ["Read", "Write"])?;
        let sector = whole_sectors(&mut at, "Offset")?;
        let size = at;
        let sectors = whole_sectors(&mut at, "Size")?;
        let sectors = checked_extent(sector, sectors, size)?;
        let record = TraceRecord::new(at_ns, device, op, sector, sectors);
        Ok(match response_ticks(at)? {
            0 => Parsed::Record(record),
            ticks => Parsed::Timed(record, ticks.saturating_mul(TICK_NS)),
        })
    }

    fn check_host(&mut self, at: &mut Cursor<'_>) -> Result<(), Fault> {
        let start = *at;
        let host = at.until(',', "Hostname")?;
        match &self.host {
            Some(known) if known == host => Ok(()),
            Some(known) => {
                let expected = format!("{known:?} as before: a file may hold one host's disks");
                Err(cell_fault(start, "Hostname", expected))
            }
            None => {
                self.host = Some(host.to_owned());
                Ok(())
            }
        }
    }
}

/// Reads the last column. Some hosts did not measure the response time and left it empty or wrote
/// 0, which is 0 here.
fn response_ticks(mut at: Cursor<'_>) -> Result<u64, Fault> {
    if at.rest().trim().is_empty() {
        return Ok(0);
    }
    let expected = "a whole number of 100 ns, or nothing";
    let ticks = number(&mut at, "ResponseTime", expected)?;
    match at.rest().trim() {
        "" => Ok(ticks),
        _ => Err(cell_fault(at, "after ResponseTime", "the line's end")),
    }
}

/// The host's name in lines that are written.
const HOST: &str = "host";

/// Writes `record` as a line, with timestamps from 1601 on and a response time of 0. The format has
/// only reads and writes: returns `false` for anything else, and writes nothing.
fn write_record(out: &mut dyn fmt::Write, record: &TraceRecord) -> Result<bool, fmt::Error> {
    let kind = match record.op {
        Op::Read => "Read",
        Op::Write => "Write",
        _ => return Ok(false),
    };
    let ticks = record.at_ns / TICK_NS;
    let size = u64::from(record.sectors) * SECTOR_SIZE;
    writeln!(
        out,
        "{ticks},{HOST},{},{kind},{},{size},0",
        record.device,
        record.sector.bytes()
    )?;
    Ok(true)
}

/// MSR Cambridge CSV.
pub static FORMAT: Format = Format {
    name: "msr",
    help: "MSR Cambridge CSV",
    line: "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime",
    tells_ends: true,
    tells_processes: false,
    tick_ns: TICK_NS,
    write: Some(write_record),
    detect: |start| looks_like(start.first_line),
    other_files: one_file,
    read: |input: Input| {
        let mut parser = Parser::default();
        input.lines(move |line| parser.parse(line))
    },
};
