//! Recorded I/O: traces of blocks to replay, and the kernel's own trace of
//! its block layer.
//!
//! [`open`] reads a trace to replay: DiskSim ASCII, MSR Cambridge CSV,
//! blkparse text, blktrace binary, tracefs text or an fio iolog, gzipped or
//! not. [`tracefs`] reads every event of the kernel's block layer, to compare
//! ours with; its events can be written as they are read, or by
//! [`BlktraceWriter`] in blktrace's binary form.

mod action;
pub mod blkparse;
mod blktrace;
mod cursor;
pub mod disksim;
mod error;
mod iolog;
mod lines;
pub mod msr;
mod reader;
mod record;
mod rwbs;
pub mod tracefs;

use std::path::Path;

pub use action::{Action, EventContext};
pub use blktrace::BlktraceWriter;
pub use error::{Fault, TraceError};
pub use reader::{Format, Reader, open};
pub use record::{IoEnd, Item, TraceRecord, device_number};
pub use rwbs::Rwbs;

use lines::Lines;

/// The whole text of the file at `path`, unpacked if it is gzipped. Line ends
/// become `\n`.
pub fn read_text(path: &Path) -> Result<String, TraceError> {
    let mut lines = Lines::open(path)?;
    let mut text = String::new();
    while lines.advance()? {
        text.push_str(lines.current());
        text.push('\n');
    }
    Ok(text)
}
