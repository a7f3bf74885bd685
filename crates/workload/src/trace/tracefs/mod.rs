//! The kernel's own trace of its block layer: the text of tracefs' `trace` file, with which `blklab
//! conform` compares our block layer.
//!
//! Timestamps may have 6 fractional digits, as the kernel prints them, or up to 9. A known event
//! with wrong arguments is an error; an unknown event is [`EventKind::Other`].

mod cpu_times;
mod event;
mod parse;
mod replay;
mod run_info;
mod write;

use std::io::Read;
use std::path::Path;

pub use cpu_times::CpuStat;
pub use event::*;
pub use parse::{Line, lost_events, lost_line, parse_line};
pub use replay::FORMAT;
pub use run_info::{DispatchCalls, QueueAttributes, RunInfo, TagGeometry};
pub use write::HEADER;

use super::error::TraceError;
use super::lines::Lines;
use parse::LineKind;

/// Reads the events of a trace. Each event borrows from the reader, so memory does not grow with
/// the trace.
pub struct Reader {
    lines: Lines,
    lost: u64,
}

impl Reader {
    /// Opens the trace at `path`, plain or compressed.
    pub fn open(path: &Path) -> Result<Reader, TraceError> {
        Ok(Reader {
            lines: Lines::open(path)?,
            lost: 0,
        })
    }

    /// Reads a trace from `source`; `file` is its name in messages.
    pub fn new(
        source: impl Read + Send + 'static,
        file: impl Into<String>,
    ) -> Result<Reader, TraceError> {
        Ok(Reader {
            lines: Lines::new(source, file.into())?,
            lost: 0,
        })
    }

    /// Returns the next event, or `None` after the last.
    pub fn next_event(&mut self) -> Result<Option<Event<'_>>, TraceError> {
        while self.lines.advance()? {
            match parse::line_kind(self.lines.current()) {
                LineKind::Skip => {}
                LineKind::Lost(count) => self.lost = self.lost.saturating_add(count),
                LineKind::Event => {
                    let event = parse::event(self.lines.current());
                    return event.map(Some).map_err(|fault| self.lines.malformed(fault));
                }
            }
        }
        Ok(None)
    }

    /// Returns the number of events that the ring buffer is known to have lost so far.
    pub fn lost_events(&self) -> u64 {
        self.lost
    }
}

/// The events of a whole trace that is in memory already, and outlives them.
///
/// ```
/// use blklab_workload::trace::tracefs::{events, EventKind};
///
/// let text = "  fio-7  [000] .....  1.000000500: block_unplug: [fio] 16\n";
/// let all: Vec<_> = events(text, "memory").collect::<Result<_, _>>().unwrap();
/// assert_eq!(all[0].at_ns, 1_000_000_500);
/// assert_eq!(all[0].kind, EventKind::Unplug { comm: "fio", requests: 16 });
/// ```
pub fn events<'a>(
    text: &'a str,
    file: &'a str,
) -> impl Iterator<Item = Result<Event<'a>, TraceError>> {
    let events = text
        .lines()
        .zip(1..)
        .filter(|(line, _)| parse::line_kind(line) == LineKind::Event);
    events.map(move |(line, number)| {
        parse::event(line).map_err(|fault| TraceError::Malformed {
            file: file.to_owned(),
            line: number,
            fault,
        })
    })
}

#[cfg(test)]
mod tests;
