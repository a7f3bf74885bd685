//! Recorded I/O: traces of blocks to replay, and the kernel's own trace of
//! its block layer.
//!
//! [`open`] reads a trace to replay, in any of [`FORMATS`], plain or packed
//! by gzip or zstd.
//! [`tracefs`] reads every event of the kernel's block layer, to compare
//! ours with; its events can be written as they are read, or by
//! [`BlktraceWriter`] in blktrace's binary form.

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
pub use reader::{Reader, open};
pub use record::{IoEnd, Item, TraceRecord, device_number};
pub use rwbs::Rwbs;

pub(crate) use lines::Lines;

/// Every format of traces to replay. One that fits a trace's start is taken before
/// those behind it.
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

/// The formats as a table in Markdown.
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

/// The whole text of the file at `path`, unpacked if it is packed. Line ends
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
