//! Holds the page cache against a recorded kernel: our [`Vfs`] is given the
//! recorded calls, and the ends of requests at the places where they were
//! recorded; compared is every step that it takes.
//!
//! A call's steps are compared in order; a step that only one side took is a
//! difference. Nothing is put right after one. Left out are a mounted file
//! system's own blocks: of them only data is given.

mod calls;
mod eviction;
mod program;
mod recorded;
mod run;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use blklab_fs::{Event, InodeId};

use crate::ConformError;
use crate::recording::beside;
use crate::report::longest_common;
use crate::report::{Report, TraceReport};
use crate::{Difference, Mode};
pub(crate) use calls::{Call, Description, RunFile, read_calls};
pub use eviction::eviction;
pub(crate) use eviction::{EVICTION, HitRatio};
pub(crate) use program::Program;
pub(crate) use recorded::{Fields, shown};
use recorded::{Recorded, RecordedStep, read_steps};
use run::replay;

/// Compares each recorded run.
///
/// # Errors
/// Where a trace, its list of calls or its description cannot be read.
pub fn page_cache(traces: &[PathBuf]) -> Result<Report, ConformError> {
    Report::of_each(Mode::PageCache, "", traces, compare)
}

/// A recorded run: what was called, on which files.
struct RecordedRun {
    calls: Vec<Call>,
    description: Description,
    files: Vec<RunFile>,
    /// Our names of the files by their inode numbers.
    inodes: BTreeMap<u64, InodeId>,
}

impl RecordedRun {
    /// Reads what lies beside a trace.
    fn open(path: &Path) -> Result<RecordedRun, ConformError> {
        let calls = read_calls(&beside(path, ".calls.txt"))?;
        let described = beside(path, ".json");
        let description = Description::open(&described)?;
        let files = description
            .files()
            .ok_or_else(|| ConformError::Description {
                file: described.display().to_string(),
                message: "dev, bdi, queue or files: found no numbers where they belong".to_owned(),
            })?;
        let inodes = (files.iter().zip(0..))
            .map(|(file, n)| (file.number, InodeId(n)))
            .collect();
        Ok(RecordedRun {
            calls,
            description,
            files,
            inodes,
        })
    }
}

fn compare(path: &Path) -> Result<TraceReport, ConformError> {
    let run = RecordedRun::open(path)?;
    let (files, description) = (&run.files, &run.description);
    let steps = read_steps(path, &run.inodes, &[])?;
    let is_data = |event: &Event| match event {
        Event::Submit(bio) => files.iter().skip(1).any(|file| {
            let inside = |&(_, bytes, first): &(u64, u64, u64)| {
                (first..first + bytes.div_ceil(512)).contains(&bio.sector.0)
            };
            file.extents.iter().any(inside)
        }),
        Event::Add { inode, .. } | Event::Delete { inode, .. } => inode.0 != 0,
        _ => true,
    };
    // When pages are written is compared with `--write-back`.
    let compared = |event: &Event| {
        !matches!(event, Event::Dirty { .. }) && (!description.has_file_system() || is_data(event))
    };
    let ours = replay(&run, &steps, None);
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

/// Counts the steps that both sides took, in the longest common order, and those
/// that only one side took.
fn compare_steps(
    report: &mut TraceReport,
    place: &str,
    line: u64,
    kernel: &[(Event, &Recorded)],
    ours: &[Event],
) {
    let same = |k: usize, o: usize| kernel[k].0 == ours[o];
    let common = longest_common(kernel.len(), ours.len(), same);
    let (mut k, mut o) = (0, 0);
    for &(next_k, next_o) in common.iter().chain(&[(kernel.len(), ours.len())]) {
        // What lies between two common steps is told pair by pair.
        for n in 0..(next_k - k).max(next_o - o) {
            let theirs = kernel[k..next_k].get(n);
            let our = ours[o..next_o].get(n);
            let Some(kind) = theirs.map(|(event, _)| kind_of(event)).or(our.map(kind_of)) else {
                continue;
            };
            let tell = |event: Option<&Event>| {
                event.map_or_else(|| "nothing".to_owned(), |event| format!("{event:?}"))
            };
            report.count(kind, false, || Difference {
                line: theirs.map_or(line, |(_, recorded)| recorded.line),
                at_ns: theirs.map_or(0, |(_, recorded)| recorded.at_ns),
                kind,
                kernel: tell(theirs.map(|(event, _)| event)),
                ours: tell(our),
                state: vec![format!("in {place}")],
            });
        }
        if next_k < kernel.len() {
            report.count(kind_of(&kernel[next_k].0), true, || {
                unreachable!("it agrees")
            });
        }
        (k, o) = (next_k + 1, next_o + 1);
    }
}

/// What a step is counted as.
fn kind_of(event: &Event) -> &'static str {
    match event {
        Event::SyncReadahead { .. }
        | Event::AsyncReadahead { .. }
        | Event::Window { .. }
        | Event::Fill { .. }
        | Event::Force { .. } => DECISION,
        Event::ReadPages { .. } => "run of pages",
        Event::Add { .. } => "page added",
        Event::Delete { .. } => "page dropped",
        Event::GetPages { .. } => "round of a read",
        Event::MapPages { .. } | Event::MapPagesEnd { .. } => "fault-around",
        Event::Fault { .. } | Event::FaultEnd { .. } => "fault",
        Event::Submit(_) => BIO,
        Event::Dirty { .. }
        | Event::OverBackground { .. }
        | Event::FlushStart { .. }
        | Event::QueueIo { .. }
        | Event::WriteInode { .. }
        | Event::WroteInode { .. }
        | Event::Flushed { .. } => "write-back",
        Event::Refault { .. } => "refault",
        Event::Reclaim { .. } | Event::Isolate { .. } => "scan",
    }
}

/// A decision of readahead.
pub(crate) const DECISION: &str = "readahead";

/// A bio.
pub(crate) const BIO: &str = "bio";
