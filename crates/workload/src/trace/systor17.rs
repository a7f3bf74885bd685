//! The traces of a virtual desktop infrastructure (Lee et al., SYSTOR '17), as SNIA distributes
//! them: CSV with `Timestamp,Response,IOType,LUN,Offset,Size`.
//!
//! Timestamp (since 1970) and response are seconds with a fraction, offset and size are in bytes,
//! and the type is `R`, `W`, or empty if unknown.

use super::cells::{cell_fault, number, operation, text, whole_sectors};
use super::cursor::Cursor;
use super::error::Fault;
use super::format::{Format, Input, one_file};
use super::record::{Parsed, TraceRecord, checked_extent};

const HEADER: &str = "Timestamp,Response,IOType,LUN,Offset,Size";
const OPERATIONS: [&str; 2] = ["R", "W"];

/// Whether `line` may be of this format.
fn looks_like(line: &str) -> bool {
    let is_seconds = |cell: &str| cell.contains('.') && cell.trim().parse::<f64>().is_ok();
    let mut cells = line.split(',');
    let is_request = line.split(',').count() == 6
        && cells.by_ref().take(2).all(is_seconds)
        && (cells.next()).is_some_and(|op| op.is_empty() || OPERATIONS.contains(&op));
    is_request || line.starts_with(HEADER)
}

fn parse(line: &str) -> Result<Parsed, Fault> {
    if line.trim().is_empty() || line.starts_with(HEADER) {
        return Ok(Parsed::Nothing);
    }
    let mut at = Cursor::new(line);
    let at_ns = seconds(&mut at, "Timestamp")?;
    let took_ns = seconds(&mut at, "Response")?;
    if at.rest().starts_with(',') {
        return Ok(Parsed::Skipped("I/Os without a type"));
    }
    let op = operation(&mut at, "IOType", OPERATIONS)?;
    let device = number(&mut at, "LUN", "a logical unit's number")?;
    let sector = whole_sectors(&mut at, "Offset")?;
    let size = at;
    let sectors = whole_sectors(&mut at, "Size")?;
    let record = TraceRecord::new(
        at_ns,
        device,
        op,
        sector,
        checked_extent(sector, sectors, size)?,
    );
    Ok(Parsed::Timed(record, took_ns))
}

/// Parses seconds in the next cell into nanoseconds.
fn seconds(at: &mut Cursor<'_>, field: &'static str) -> Result<u64, Fault> {
    let start = *at;
    let ns = at.seconds(field)?;
    if text(at).is_empty() {
        Ok(ns)
    } else {
        Err(cell_fault(
            start,
            field,
            "seconds with 1 to 9 fractional digits",
        ))
    }
}

/// SYSTOR '17's CSV.
pub static FORMAT: Format = Format {
    name: "systor17",
    help: "SYSTOR '17 CSV",
    line: HEADER,
    tells_ends: true,
    tells_processes: false,
    // The times have nine digits, but the last three carry no information.
    tick_ns: 1000,
    write: None,
    detect: |start| looks_like(start.first_line),
    other_files: one_file,
    read: |input: Input| input.lines(parse),
};
