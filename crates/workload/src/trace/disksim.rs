//! DiskSim's ASCII traces in MQSim's variant, with one request per line: `arrival device sector
//! sectors type`. The arrival is in whole nanoseconds, a sector has 512 bytes, and the type is 1
//! for a read and 0 for a write.

use std::fmt;

use blklab_blk::Op;

use super::cursor::Cursor;
use super::error::Fault;
use super::format::{Format, Input, one_file};
use super::record::{Parsed, TraceRecord, checked_extent};

/// Whether `line` may be of this format: five numbers.
fn looks_like(line: &str) -> bool {
    let is_number = |word: &str| word.parse::<f64>().is_ok();
    line.split_whitespace().count() == 5 && line.split_whitespace().all(is_number)
}

/// Parses one line.
fn parse(line: &str) -> Result<Parsed, Fault> {
    let mut at = Cursor::new(line);
    at.skip_blanks();
    if at.rest().is_empty() {
        return Ok(Parsed::Nothing);
    }
    let at_ns = field(
        &mut at,
        "arrival time",
        "whole nanoseconds (DiskSim's own ms times 10^6)",
    )?;
    let device = field(&mut at, "device", "a device number")?;
    let sector = field(&mut at, "start sector", "a sector number")?;
    at.skip_blanks();
    let size = at;
    let sectors = field(&mut at, "size", "a number of sectors")?;
    let sectors = checked_extent(sector, sectors, size)?;
    at.skip_blanks();
    let op = match at.rest().trim_end() {
        "0" => Op::Write,
        "1" => Op::Read,
        _ => return Err(at.fault("type", "1 (read) or 0 (write) at the line's end")),
    };
    Ok(Parsed::Record(TraceRecord::new(
        at_ns, device, op, sector, sectors,
    )))
}

/// Parses a number up to a blank or the line's end.
fn field<T: std::str::FromStr>(
    at: &mut Cursor<'_>,
    name: &'static str,
    expected: &'static str,
) -> Result<T, Fault> {
    at.skip_blanks();
    let start = *at;
    let value = at.number(name, expected)?;
    match at.rest().chars().next() {
        None | Some(' ' | '\t') => Ok(value),
        Some(_) => Err(start.fault(name, expected)),
    }
}

/// Writes `record` as a line. The format has only reads and writes: returns `false` for anything
/// else, and writes nothing.
fn write_record(out: &mut dyn fmt::Write, record: &TraceRecord) -> Result<bool, fmt::Error> {
    let kind = match record.op {
        Op::Read => 1,
        Op::Write => 0,
        _ => return Ok(false),
    };
    let TraceRecord {
        at_ns,
        device,
        sector,
        sectors,
        ..
    } = record;
    writeln!(out, "{at_ns} {device} {sector} {sectors} {kind}")?;
    Ok(true)
}

/// DiskSim's ASCII format, as MQSim reads it.
pub static FORMAT: Format = Format {
    name: "disksim",
    help: "DiskSim ASCII (arrivals in nanoseconds)",
    line: "arrival_ns device sector sectors 1|0",
    tells_ends: false,
    tells_processes: false,
    tick_ns: 1,
    write: Some(write_record),
    detect: |start| looks_like(start.first_line),
    other_files: one_file,
    read: |input: Input| input.lines(parse),
};
