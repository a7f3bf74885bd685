//! The traces of Florida International University (Koller and Rangaswami, FAST '10), as SNIA
//! distributes them: words separated by blanks, `ns pid process lba size W|R major minor md5`.
//!
//! The time is in nanoseconds, and place and size are in sectors. The text after the minor number,
//! which has checksums of the data, is skipped.

use blklab_blk::Op;

use super::cursor::Cursor;
use super::error::Fault;
use super::format::{Format, Input, one_file};
use super::record::{Parsed, TraceRecord, checked_extent, device_number};

/// Whether `line` is of this format, the only one with a letter between such numbers.
fn looks_like(line: &str) -> bool {
    line.split_ascii_whitespace().count() >= 9 && matches!(parse(line), Ok(Parsed::Record(_)))
}

fn parse(line: &str) -> Result<Parsed, Fault> {
    if line.trim().is_empty() {
        return Ok(Parsed::Nothing);
    }
    let mut at = Cursor::new(line);
    let at_ns = at.number("time", "nanoseconds")?;
    let pid = at.number("pid", "a process's number")?;
    at.word();
    // A process's name may contain blanks; the fields after it show where it ends.
    let first = request(at);
    let found = std::iter::from_fn(|| (!at.word().is_empty()).then(|| request(at)));
    let (op, sector, sectors, device) = match first {
        Ok(request) => request,
        Err(fault) => found.flatten().next().ok_or(fault)?,
    };
    Ok(Parsed::Record(TraceRecord {
        pid,
        ..TraceRecord::new(at_ns, device, op, sector, sectors)
    }))
}

/// Parses operation, first sector, sectors and drive.
fn request(mut at: Cursor<'_>) -> Result<(Op, u64, u32, u32), Fault> {
    let sector = at.number("lba", "a sector")?;
    let size = at;
    let sectors = at.number("size", "a number of sectors")?;
    let sectors = checked_extent(sector, sectors, size)?;
    at.skip_blanks();
    let letter = at;
    let op = match at.word() {
        "R" => Op::Read,
        "W" => Op::Write,
        _ => return Err(letter.fault("operation", "R or W")),
    };
    at.skip_blanks();
    let numbers = at;
    let major = at.number("major", "a drive's major number")?;
    let minor = at.number("minor", "a drive's minor number")?;
    let device = device_number(major, minor);
    let device = device.ok_or_else(|| numbers.fault("major", "numbers below 4096 and 1048576"))?;
    Ok((op, sector, sectors, device))
}

/// FIU's text.
pub static FORMAT: Format = Format {
    name: "fiu",
    help: "FIU block trace",
    line: "ns pid process lba size W|R major minor md5",
    tells_ends: false,
    tells_processes: true,
    tick_ns: 1,
    write: None,
    detect: |start| looks_like(start.first_line),
    other_files: one_file,
    read: |input: Input| input.lines(parse),
};
