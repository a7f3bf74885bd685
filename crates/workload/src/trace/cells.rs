//! Parses the cells of a line of comma-separated values.

use std::borrow::Cow;
use std::str::FromStr;

use blklab_blk::{Op, SECTOR_SIZE};

use super::cursor::Cursor;
use super::error::Fault;

/// Returns the fault of a wrong cell at `at`.
pub(super) fn cell_fault(
    at: Cursor<'_>,
    field: &'static str,
    expected: impl Into<Cow<'static, str>>,
) -> Fault {
    let cell = at.rest().split(',').next().unwrap_or_default();
    Fault::new(at.column(), field, cell, expected)
}

/// Returns the next cell, up to a comma or the line's end.
pub(super) fn text<'a>(at: &mut Cursor<'a>) -> &'a str {
    let rest = at.rest();
    let cell = rest.split(',').next().unwrap_or_default();
    at.advance(rest.len().min(cell.len() + 1));
    cell.trim()
}

/// Parses a number that fills the next cell.
pub(super) fn number<T: FromStr>(
    at: &mut Cursor<'_>,
    field: &'static str,
    expected: &'static str,
) -> Result<T, Fault> {
    let start = *at;
    let digits = text(at);
    let number = digits.parse().ok();
    let number = number.filter(|_| !digits.starts_with('+'));
    number.ok_or_else(|| cell_fault(start, field, expected))
}

/// Parses a time in the next cell, in units of `tick_ns`, into nanoseconds.
pub(super) fn ticks(
    at: &mut Cursor<'_>,
    field: &'static str,
    expected: &'static str,
    tick_ns: u64,
) -> Result<u64, Fault> {
    let start = *at;
    let ticks: u64 = number(at, field, expected)?;
    let at_ns = ticks.checked_mul(tick_ns);
    at_ns.ok_or_else(|| cell_fault(start, field, "a time of less than 2^64 ns (584 years)"))
}

/// Parses a read or write in the next cell, in the format's spelling and either case.
pub(super) fn operation(
    at: &mut Cursor<'_>,
    field: &'static str,
    [read, write]: [&str; 2],
) -> Result<Op, Fault> {
    let start = *at;
    match text(at) {
        cell if cell.eq_ignore_ascii_case(read) => Ok(Op::Read),
        cell if cell.eq_ignore_ascii_case(write) => Ok(Op::Write),
        _ => Err(cell_fault(start, field, format!("{read} or {write}"))),
    }
}

/// Parses a number of bytes in the next cell that are whole sectors.
pub(super) fn whole_sectors(at: &mut Cursor<'_>, field: &'static str) -> Result<u64, Fault> {
    let start = *at;
    let bytes: u64 = number(at, field, "a number of bytes")?;
    if !bytes.is_multiple_of(SECTOR_SIZE) {
        return Err(cell_fault(start, field, "bytes that are a multiple of 512"));
    }
    Ok(bytes / SECTOR_SIZE)
}
