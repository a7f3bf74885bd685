//! blktrace's binary format (`struct blk_io_trace` of linux/blktrace_api.h, version 7), which
//! `blkparse`, `btt` and `iowatcher` read.
//!
//! A record has 48 bytes in the byte order of the recording machine, which readers recognize by the
//! first word, and optional data after it. A file holds the records of one CPU, a stream (`blktrace
//! -o -`) those of all. Records of the category *notify* are not I/O; one of them gives a process
//! its name.

mod read;
mod write;

pub use read::FORMAT;
pub use write::BlktraceWriter;

/// `BLK_IO_TRACE_MAGIC`, with the version in its lowest byte.
const MAGIC: u32 = 0x6561_7400;
/// `BLK_IO_TRACE_VERSION`.
const VERSION: u32 = 7;
/// The size of a record without its data.
const RECORD_BYTES: usize = 48;

/// Categories (`BLK_TC_*`), at their place in an action.
const WRITE: u32 = 1 << (1 + 16);
const READ: u32 = 1 << 16;
const FLUSH: u32 = 1 << (2 + 16);
const SYNC: u32 = 1 << (3 + 16);
const QUEUE: u32 = 1 << (4 + 16);
const REQUEUE: u32 = 1 << (5 + 16);
const ISSUE: u32 = 1 << (6 + 16);
const COMPLETE: u32 = 1 << (7 + 16);
const FS: u32 = 1 << (8 + 16);
const PC: u32 = 1 << (9 + 16);
const NOTIFY: u32 = 1 << (10 + 16);
const AHEAD: u32 = 1 << (11 + 16);
const META: u32 = 1 << (12 + 16);
const DISCARD: u32 = 1 << (13 + 16);
const FUA: u32 = 1 << (15 + 16);

/// Actions (`BLK_TA_*`).
mod action {
    pub(super) const QUEUE: u32 = 1 | super::QUEUE;
    pub(super) const BACK_MERGE: u32 = 2 | super::QUEUE;
    pub(super) const FRONT_MERGE: u32 = 3 | super::QUEUE;
    pub(super) const GET_REQUEST: u32 = 4 | super::QUEUE;
    pub(super) const REQUEUE: u32 = 6 | super::REQUEUE;
    pub(super) const ISSUE: u32 = 7 | super::ISSUE;
    pub(super) const COMPLETE: u32 = 8 | super::COMPLETE;
    pub(super) const PLUG: u32 = 9 | super::QUEUE;
    pub(super) const UNPLUG: u32 = 10 | super::QUEUE;
    pub(super) const INSERT: u32 = 12 | super::QUEUE;
    pub(super) const SPLIT: u32 = 13;
    pub(super) const REMAP: u32 = 15 | super::QUEUE;
    /// The name of a process, which precedes its first event.
    pub(super) const PROCESS: u32 = super::NOTIFY;
}
