//! Holds reclaim against a recorded kernel: the recorded calls run on our page cache,
//! and memory is short where it was; compared is which pages go, in which order.
//!
//! Given besides the calls are the moments at which reclaim begins (what else a memory
//! cgroup pays for is not recorded), how many active pages its statistics told of, and
//! when the flusher had written. Compared from one reclaim to the next are evictions,
//! scans with their sizes and pages that come back, in order, and for each page of a
//! read whether it was cached. Nothing is put right after a difference.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use blklab_fs::{Event, PAGE_BYTES};
use blklab_workload::trace::read_text;

use super::calls::{Call, RecordedRun};
use super::recorded::{Recorded, RecordedStep, read_steps};
use super::run::replay;
use super::steps::{EVICTION, compare_steps};
use crate::recording::beside;
use crate::report::{HitRatio, Report, TraceReport};
use crate::{ConformError, Difference, Mode};

/// Compares each recorded run.
///
/// # Errors
/// Where a trace, its list of calls or its description cannot be read.
pub fn eviction(traces: &[PathBuf]) -> Result<Report, ConformError> {
    Report::of_each(Mode::Eviction, "", traces, compare)
}

fn compare(path: &Path) -> Result<TraceReport, ConformError> {
    let run = RecordedRun::open(path)?;
    let policy = run.description.policy();
    let policy = policy.ok_or_else(|| ConformError::Description {
        file: beside(path, ".json").display().to_string(),
        message: "vm_sysctl: found no lru_gen, expected a number such as 0x0007".to_owned(),
    })?;
    let is_unmarked = |call: &Call| matches!(call, Call::ReadAt { .. } | Call::WriteAt { .. });
    let unmarked: Vec<usize> = (run.calls.iter().zip(1..))
        .filter(|(call, _)| is_unmarked(call))
        .map(|(_, line)| line)
        .collect();
    let text = read_text(path)?;
    let steps = read_steps(path, &text, &run.inodes, &unmarked)?;
    let ours = replay(&run, &steps, &text, Some(policy));
    let kernel = steps_with_calls(&steps);
    let mut report = TraceReport::new(path.display().to_string());
    compare_reclaims(&mut report, &kernel, &ours);
    compare_hits(&mut report, &run.calls, &kernel, &ours);
    Ok(report)
}

/// The recorded steps, each with its call.
fn steps_with_calls(steps: &[Recorded]) -> Vec<(usize, Event, &Recorded)> {
    let mut call = 0;
    let mut taken = Vec::new();
    for recorded in steps {
        match recorded.step {
            RecordedStep::Call(line) => call = line,
            RecordedStep::Took(event) => taken.push((call, event, recorded)),
            _ => {}
        }
    }
    taken
}

fn is_compared(event: &Event) -> bool {
    matches!(
        event,
        Event::Delete { .. }
            | Event::Isolate { .. }
            | Event::Refault { .. }
            | Event::Reclaim { .. }
    )
}

fn is_refault(event: &Event) -> bool {
    matches!(event, Event::Refault { .. })
}

fn begins_reclaim(event: &Event) -> bool {
    matches!(event, Event::Reclaim { .. })
}

/// Compares what was done from each reclaim to the next.
fn compare_reclaims(
    report: &mut TraceReport,
    kernel: &[(usize, Event, &Recorded)],
    ours: &[(usize, Event)],
) {
    let kernel: Vec<(Event, &Recorded)> = (kernel.iter())
        .filter(|(_, event, _)| is_compared(event))
        .map(|&(_, event, recorded)| (event, recorded))
        .collect();
    // Not every run was recorded with the probe on pages that come back.
    let refaults = kernel.iter().any(|(event, _)| is_refault(event));
    let ours: Vec<Event> = (ours.iter().map(|&(_, event)| event))
        .filter(|event| is_compared(event) && (refaults || !is_refault(event)))
        .collect();
    let mut kernel = kernel.chunk_by(|_, (event, _)| !begins_reclaim(event));
    let mut ours = ours.chunk_by(|_, event| !begins_reclaim(event));
    for reclaim in 1.. {
        let (theirs, our) = (kernel.next(), ours.next());
        if theirs.is_none() && our.is_none() {
            return;
        }
        let (theirs, our) = (theirs.unwrap_or_default(), our.unwrap_or_default());
        let line = theirs.first().map_or(0, |(_, recorded)| recorded.line);
        let place = format!("reclaim {reclaim}");
        compare_steps(report, &place, line, theirs, our);
    }
}

/// Whether 95 % of evictions were the kernel's, in its order, and no trace's hit ratio is
/// off by more than a point.
pub(crate) fn evictions_agree(report: &Report) -> bool {
    let ratios = report.traces.iter().filter_map(|trace| trace.hit_ratio);
    let hits_agree = { ratios }.all(|ratio| ratio.points_off() <= 1.0);
    report.compared() > 0 && report.share(EVICTION) >= 95.0 && hits_agree
}

/// Compares for each page of a read whether the call had to add it.
fn compare_hits(
    report: &mut TraceReport,
    calls: &[Call],
    kernel: &[(usize, Event, &Recorded)],
    ours: &[(usize, Event)],
) {
    let added = |events: &mut dyn Iterator<Item = (usize, Event)>| -> BTreeSet<(usize, u64)> {
        let pages = events.filter_map(|(call, event)| match event {
            Event::Add { index, order, .. } => Some((call, index..index + (1 << order))),
            _ => None,
        });
        pages
            .flat_map(|(call, pages)| pages.map(move |page| (call, page)))
            .collect()
    };
    let by_kernel = added(&mut kernel.iter().map(|&(call, event, _)| (call, event)));
    let by_us = added(&mut ours.iter().copied());
    let mut ratio = HitRatio::default();
    for (call, line) in calls.iter().zip(1..) {
        let &Call::ReadAt { offset, bytes, .. } = call else {
            continue;
        };
        for page in offset / PAGE_BYTES..(offset + bytes).div_ceil(PAGE_BYTES) {
            let (theirs, our) = (
                !by_kernel.contains(&(line, page)),
                !by_us.contains(&(line, page)),
            );
            ratio.count(theirs, our);
            let tell =
                |hit: bool| format!("page {page} was {}", if hit { "cached" } else { "read" });
            report.count("page of a read", theirs == our, || Difference {
                line: 0,
                at_ns: 0,
                kind: "page of a read",
                kernel: tell(theirs),
                ours: tell(our),
                state: vec![format!("in the call on line {line} of the list")],
            });
        }
    }
    report.hit_ratio = Some(ratio);
}
