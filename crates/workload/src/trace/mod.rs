//! Recorded I/O: block traces to replay, and the kernel's own trace of its block layer.
//!
//! [`open`] reads a trace to replay, in any of [`FORMATS`], plain or compressed by gzip or zstd.
//! [`tracefs`] reads all events of the kernel's block layer, to compare them with ours; they can be
//! written as they are read, or by [`BlktraceWriter`] in blktrace's binary format.

pub mod alibaba;
pub mod blkparse;
pub mod blktrace;
mod cells;
mod cursor;
pub mod disksim;
mod error;
pub mod fiu;
mod format;
pub mod iolog;
mod lines;
pub mod msr;
mod packed;
mod reader;
mod record;
mod rwbs;
pub mod systor17;
pub mod tencent;
pub mod tracefs;

use std::path::Path;

pub use blkparse::{Action, BlkparseWriter, EventContext};
pub use blktrace::BlktraceWriter;
pub use error::{Fault, TraceError};
pub use format::{Format, WriteRecord};
pub use reader::{DriveSize, Reader, files, open};
pub use record::{IoEnd, Item, TraceRecord, device_number};
pub use rwbs::Rwbs;

pub(crate) use lines::Lines;

/// All formats of traces that can be replayed. If several match a trace's beginning, the first one
/// is used.
pub static FORMATS: &[&Format] = &[
    &disksim::FORMAT,
    &msr::FORMAT,
    &alibaba::FORMAT,
    &tencent::FORMAT,
    &systor17::FORMAT,
    &fiu::FORMAT,
    &blkparse::FORMAT,
    &tracefs::FORMAT,
    &iolog::FORMAT,
    &blktrace::FORMAT,
];

/// Returns the formats as a Markdown table.
pub fn format_table() -> String {
    let mut text = "| format | a line | ends | processes | times |\n\
                    | --- | --- | --- | --- | --- |\n"
        .to_string();
    for format in FORMATS {
        let yes = |is| if is { "yes" } else { "no" };
        text.push_str(&format!(
            "| {} | `{}` | {} | {} | {} ns |\n",
            format.help,
            format.line.replace('|', "\\|"),
            yes(format.tells_ends),
            yes(format.tells_processes),
            format.tick_ns,
        ));
    }
    text
}

/// Returns the whole text of the file at `path`, decompressed if needed, with `\n` as line ends.
pub fn read_text(path: &Path) -> Result<String, TraceError> {
    let mut lines = Lines::open(path)?;
    let mut text = String::new();
    while lines.advance()? {
        text.push_str(lines.current());
        text.push('\n');
    }
    Ok(text)
}
