//! Holds the page cache against a recorded kernel: our [`Vfs`] is given the
//! recorded calls, and the ends of requests at the places where they were
//! recorded; compared is every step that it takes.
//!
//! A call's steps are compared in order; a step that only one side took is a
//! difference. Nothing is put right after one. Left out are a mounted file
//! system's own blocks: of them only data is given.

mod calls;
mod eviction;
mod layout;
mod program;
mod recorded;
mod run;
mod shortage;
mod steps;

use std::path::{Path, PathBuf};

use blklab_fs::Event;
use blklab_workload::trace::read_text;

use crate::report::{Report, TraceReport};
use crate::{ConformError, Mode};
use calls::RecordedRun;
pub(crate) use calls::{Call, Description, RunFile, is_data, read_calls};
pub use eviction::eviction;
pub(crate) use eviction::evictions_agree;
pub(crate) use program::Program;
pub(crate) use recorded::{Fields, PAGE_SECTORS, shown};
use recorded::{Recorded, RecordedStep, read_steps};
use run::replay;
use steps::{BIO, DECISION, compare_steps};

/// Compares each recorded run.
///
/// # Errors
/// Where a trace, its list of calls or its description cannot be read.
pub fn page_cache(traces: &[PathBuf]) -> Result<Report, ConformError> {
    Report::of_each(Mode::PageCache, "", traces, compare)
}

/// Whether readahead decided as the kernel's in 99.9 % of cases, and 99 % of bios were
/// the kernel's.
pub(crate) fn agrees(report: &Report) -> bool {
    report.compared() > 0 && report.share(DECISION) >= 99.9 && report.share(BIO) >= 99.0
}

fn compare(path: &Path) -> Result<TraceReport, ConformError> {
    let run = RecordedRun::open(path)?;
    let (files, description) = (&run.files, &run.description);
    let text = read_text(path)?;
    let steps = read_steps(path, &text, &run.inodes, &[])?;
    let is_of_file = |event: &Event| match event {
        Event::Submit(bio) => is_data(files, bio.sector.0),
        Event::Add { inode, .. } | Event::Delete { inode, .. } => inode.0 != 0,
        _ => true,
    };
    // When pages are written is compared with `--write-back`.
    let compared = |event: &Event| {
        !matches!(event, Event::Dirty { .. })
            && (!description.has_file_system() || is_of_file(event))
    };
    let ours = replay(&run, &steps, &text, None);
    let mut report = TraceReport::new(path.display().to_string());
    for (call, kernel) in by_call(&steps, &compared) {
        let taken: Vec<Event> = (ours.iter())
            .filter(|(of, event)| *of == call && compared(event))
            .map(|&(_, event)| event)
            .collect();
        let line = kernel.first().map_or(0, |(_, recorded)| recorded.line);
        let place = format!("the call on line {call} of the list");
        compare_steps(&mut report, &place, line, &kernel, &taken);
    }
    Ok(report)
}

/// The recorded steps of each call.
fn by_call<'a>(
    steps: &'a [Recorded],
    compared: &dyn Fn(&Event) -> bool,
) -> Vec<(usize, Vec<(Event, &'a Recorded)>)> {
    let mut calls: Vec<(usize, Vec<(Event, &Recorded)>)> = Vec::new();
    for recorded in steps {
        match recorded.step {
            RecordedStep::Call(call) => calls.push((call, Vec::new())),
            RecordedStep::Took(event) if compared(&event) => {
                if let Some((_, taken)) = calls.last_mut() {
                    taken.push((event, recorded));
                }
            }
            _ => {}
        }
    }
    calls
}
