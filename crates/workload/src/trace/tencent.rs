//! The traces of Tencent's Cloud Block Storage, as SNIA distributes them: CSV with
//! `Timestamp,Offset,Size,IOType,VolumeID`.
//!
//! The timestamp is in whole seconds since 1970, so all I/O of a second arrives at once. Offset and
//! size are in sectors, and the type is 0 for a read and 1 for a write.

use super::cells::{number, operation, ticks};
use super::cursor::Cursor;
use super::error::Fault;
use super::format::{Format, Input, one_file};
use super::record::{Parsed, TraceRecord, checked_extent};

const TICK_NS: u64 = 1_000_000_000;
const HEADER: &str = "Timestamp,Offset,Size,IOType,VolumeID";
const OPERATIONS: [&str; 2] = ["0", "1"];

/// Whether `line` may be of this format.
fn looks_like(line: &str) -> bool {
    let is_request = line.split(',').count() == 5
        && (line.split(',')).all(|cell| cell.trim().parse::<u64>().is_ok())
        && line
            .split(',')
            .nth(3)
            .is_some_and(|op| OPERATIONS.contains(&op.trim()));
    is_request || line.starts_with(HEADER)
}

fn parse(line: &str) -> Result<Parsed, Fault> {
    if line.trim().is_empty() || line.starts_with(HEADER) {
        return Ok(Parsed::Nothing);
    }
    let mut at = Cursor::new(line);
    let at_ns = ticks(&mut at, "Timestamp", "seconds since 1970", TICK_NS)?;
    let sector = number(&mut at, "Offset", "a number of sectors")?;
    let size = at;
    let sectors = number(&mut at, "Size", "a number of sectors")?;
    let sectors = checked_extent(sector, sectors, size)?;
    let op = operation(&mut at, "IOType", OPERATIONS)?;
    let device = number(&mut at, "VolumeID", "a volume's number")?;
    Ok(Parsed::Record(TraceRecord::new(
        at_ns, device, op, sector, sectors,
    )))
}

/// Tencent's CSV.
pub static FORMAT: Format = Format {
    name: "tencent",
    help: "Tencent Cloud Block Storage CSV",
    line: HEADER,
    tells_ends: false,
    tells_processes: false,
    tick_ns: TICK_NS,
    write: None,
    detect: |start| looks_like(start.first_line),
    other_files: one_file,
    read: |input: Input| input.lines(parse),
};
