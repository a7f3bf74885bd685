//! Recorded I/O: traces of blocks to replay, and the kernel's own trace of
//! its block layer.

mod cursor;
mod error;
mod lines;
mod rwbs;
pub mod tracefs;

use std::path::Path;

pub use error::{Fault, TraceError};
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
