//! Steps of both sides, side by side.

use blklab_fs::Event;

use super::recorded::Recorded;
use crate::Difference;
use crate::report::{TraceReport, longest_common};

/// A decision of readahead.
pub(super) const DECISION: &str = "readahead";

/// A bio.
pub(super) const BIO: &str = "bio";

/// An evicted page.
pub(super) const EVICTION: &str = "page dropped";

/// Counts the steps that both sides took, in the longest common order, and those
/// that only one side took.
pub(super) fn compare_steps(
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
        Event::Delete { .. } => EVICTION,
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
