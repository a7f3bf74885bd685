//! Steps of both sides, side by side.

use blklab_fs::Event;

use super::recorded::Recorded;
use crate::Difference;
use crate::report::{Pair, TraceReport};

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
    let theirs = |pair: &Pair| pair.kernel.map(|at| &kernel[at]);
    let event_of_ours = |pair: &Pair| pair.ours.map(|at| &ours[at]);
    let described = |event: Option<&Event>| {
        event.map_or_else(|| "nothing".to_owned(), |event| format!("{event:?}"))
    };
    report.count_in_order(
        (kernel.len(), ours.len()),
        |k, o| kernel[k].0 == ours[o],
        |pair| {
            let event = theirs(pair).map(|(event, _)| event);
            (event.or(event_of_ours(pair))).map_or("", kind_of)
        },
        |pair, kind| Difference {
            line: theirs(pair).map_or(line, |(_, recorded)| recorded.line),
            at_ns: theirs(pair).map_or(0, |(_, recorded)| recorded.at_ns),
            kind,
            kernel: described(theirs(pair).map(|(event, _)| event)),
            ours: described(event_of_ours(pair)),
            state: vec![format!("in {place}")],
        },
    );
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
