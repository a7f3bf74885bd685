//! `TraceRecord`: one I/O of a trace, whatever format it came in.

use blklab_blk::{BioFlags, Op, SECTOR_SIZE, Sector};

use super::cursor::Cursor;
use super::error::Fault;

/// An end beyond this sector could not be counted in bytes.
pub(super) const END_SECTORS_MAX: u64 = u64::MAX / SECTOR_SIZE;

/// One I/O to replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceRecord {
    /// When it arrived, from the trace's first I/O on.
    pub at_ns: u64,
    /// The drive, as the format numbers drives; from `major,minor` it is
    /// made as the kernel makes its `dev_t` ([`device_number`]).
    pub device: u32,
    /// What it does: `Read`, `Write`, `Discard` or `Flush`.
    pub op: Op,
    /// Where it starts.
    pub sector: Sector,
    /// Its length; zero only for a flush.
    pub sectors: u32,
    /// The process it came from; 0 where the format does not say.
    pub pid: u32,
    /// Modifiers: of these `SYNC`, `META`, `FUA`, `PREFLUSH` and `RAHEAD`.
    pub flags: BioFlags,
}

impl TraceRecord {
    /// An I/O of no known process, without modifiers.
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

/// An extent of a drive that was done. Where requests were merged or bios cut,
/// it is not that of a [`TraceRecord`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoEnd {
    /// The drive, as in [`TraceRecord`].
    pub device: u32,
    /// What was done.
    pub op: Op,
    /// Where it starts.
    pub sector: Sector,
    /// Its length; zero for a flush.
    pub sectors: u32,
}

/// What a trace tells next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item {
    /// An I/O arrived.
    Arrival(TraceRecord),
    /// An extent was done.
    Ended(IoEnd),
}

/// The number of drive `major,minor`, or `None` where the kernel has no room
/// for it (12 and 20 bits).
pub const fn device_number(major: u32, minor: u32) -> Option<u32> {
    if major < 1 << 12 && minor < 1 << 20 {
        Some(major << 20 | minor)
    } else {
        None
    }
}

/// What a line of a trace means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parsed {
    /// An I/O, its time as the trace counts.
    Record(TraceRecord),
    /// An I/O, and how long it took.
    Timed(TraceRecord, u64),
    /// I/O that ended, its time as the trace counts.
    Ended {
        /// When.
        at_ns: u64,
        /// What.
        end: IoEnd,
    },
    /// Something that is part of the format and no I/O.
    Nothing,
    /// I/O that cannot be replayed; the text says what it is.
    Skipped(&'static str),
    /// The trace is over here, whatever follows.
    Over,
}

/// Why an I/O is skipped whose operation the kernel writes as `N`.
pub(super) const WITHOUT_LETTER: &str = "operations without a letter (N)";

/// The length in sectors at `at`, of an I/O that starts at `sector`: more than
/// nothing, and with an end that can be counted.
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
