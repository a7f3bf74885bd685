//! The block traces of Alibaba's cloud of January 2020 (github.com/alibaba/block-traces):
//! CSV with `device_id,opcode,offset,length,timestamp`.
//!
//! The operation is `R` or `W`, offset and length are in bytes, and the timestamp is in
//! microseconds since 1970. A header line with the names of the columns is skipped.

use super::cells::{number, operation, ticks, whole_sectors};
use super::cursor::Cursor;
use super::error::Fault;
use super::format::{Format, Input, one_file};
use super::record::{Parsed, TraceRecord, checked_extent};

const TICK_NS: u64 = 1000;
const HEADER: &str = "device_id,opcode,offset,length,timestamp";
const OPERATIONS: [&str; 2] = ["R", "W"];

/// Whether `line` may be of this format.
fn looks_like(line: &str) -> bool {
    let mut cells = line.split(',').map(str::trim);
    let is_request = cells.next().is_some_and(|id| id.parse::<u32>().is_ok())
        && cells.next().is_some_and(|op| OPERATIONS.contains(&op))
        && cells.clone().count() == 3
        && cells.all(|cell| cell.parse::<u64>().is_ok());
    is_request || line.starts_with(HEADER)
}

fn parse(line: &str) -> Result<Parsed, Fault> {
    if line.trim().is_empty() || line.starts_with(HEADER) {
        return Ok(Parsed::Nothing);
    }
    let mut at = Cursor::new(line);
    let device = number(&mut at, "device_id", "a disk's number")?;
    let op = operation(&mut at, "opcode", OPERATIONS)?;
    let sector = whole_sectors(&mut at, "offset")?;
    let size = at;
    let sectors = whole_sectors(&mut at, "length")?;
    let sectors = checked_extent(sector, sectors, size)?;
    let at_ns = ticks(&mut at, "timestamp", "microseconds since 1970", TICK_NS)?;
    Ok(Parsed::Record(TraceRecord::new(
        at_ns, device, op, sector, sectors,
    )))
}

/// Alibaba's CSV.
pub static FORMAT: Format = Format {
    name: "alibaba",
    help: "Alibaba block traces (2020) CSV",
    line: HEADER,
    tells_ends: false,
    tells_processes: false,
    tick_ns: TICK_NS,
    write: None,
    detect: |start| looks_like(start.first_line),
    other_files: one_file,
    read: |input: Input| input.lines(parse),
};
