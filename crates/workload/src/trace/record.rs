//! `TraceRecord`: one I/O of a trace, whatever format it came in.

use blklab_blk::{BioFlags, Op, SECTOR_SIZE, Sector};

use super::cursor::Cursor;
use super::error::Fault;

/// The largest end of an extent, in sectors, so that it can be expressed in bytes.
pub(super) const END_SECTORS_MAX: u64 = u64::MAX / SECTOR_SIZE;

/// One I/O to replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceRecord {
    /// The arrival time, relative to the trace's first I/O.
    pub at_ns: u64,
    /// The drive, in the format's numbering; `major,minor` is encoded as the kernel's `dev_t`
    /// ([`device_number`]).
    pub device: u32,
    /// The operation: `Read`, `Write`, `Discard` or `Flush`.
    pub op: Op,
    /// The first sector.
    pub sector: Sector,
    /// The length in sectors; zero only for a flush.
    pub sectors: u32,
    /// The process that submitted the I/O; 0 if the format does not record it.
    pub pid: u32,
    /// The modifiers: `SYNC`, `META`, `FUA`, `PREFLUSH` and `RAHEAD` only.
    pub flags: BioFlags,
}

impl TraceRecord {
    /// Makes an I/O of an unknown process, without modifiers.
    pub(super) fn new(at_ns: u64, device: u32, op: Op, sector: u64, sectors: u32) -> TraceRecord {
        TraceRecord {
            at_ns,
            device,
            op,
            sector: Sector(sector),
            sectors,
            pid: 0,
            flags: BioFlags::NONE,
        }
    }
}

/// A completed extent of a drive. If requests were merged or bios split it differs from that of a
/// [`TraceRecord`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoEnd {
    /// The drive, as in [`TraceRecord`].
    pub device: u32,
    /// The operation.
    pub op: Op,
    /// The first sector.
    pub sector: Sector,
    /// The length in sectors; zero for a flush.
    pub sectors: u32,
}

/// An item of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item {
    /// The arrival of an I/O.
    Arrival(TraceRecord),
    /// The completion of an extent.
    Ended(IoEnd),
}

/// Returns the number of drive `major,minor`, or `None` if the kernel cannot encode it (12 and 20
/// bits).
pub const fn device_number(major: u32, minor: u32) -> Option<u32> {
    if major < 1 << 12 && minor < 1 << 20 {
        Some(major << 20 | minor)
    } else {
        None
    }
}

/// The meaning of a line of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parsed {
    /// An I/O, with its time in the trace's own clock.
    Record(TraceRecord),
    /// An I/O, and its duration.
    Timed(TraceRecord, u64),
    /// The completion of an I/O, with its time in the trace's own clock.
    Ended {
        /// The time.
        at_ns: u64,
        /// The extent.
        end: IoEnd,
    },
    /// A valid line without an I/O.
    Nothing,
    /// An I/O that cannot be replayed; the text describes it.
    Skipped(&'static str),
    /// The end of the trace; later lines are not read.
    Over,
}

/// The reason for skipping an I/O with the kernel's operation `N`.
pub(super) const WITHOUT_LETTER: &str = "operations without a letter (N)";

/// Returns the length in sectors at `at` of an I/O that starts at `sector`, after checking that it
/// is not 0 and that its end can be expressed in bytes.
pub(super) fn checked_extent(sector: u64, sectors: u64, at: Cursor<'_>) -> Result<u32, Fault> {
    if sectors == 0 {
        return Err(at.fault("size", "more than nothing"));
    }
    if sector
        .checked_add(sectors)
        .is_none_or(|end| end > END_SECTORS_MAX)
    {
        return Err(at.fault("size", "an end below 16 EiB"));
    }
    u32::try_from(sectors).map_err(|_| at.fault("size", "less than 2^32 sectors (2 TiB)"))
}
