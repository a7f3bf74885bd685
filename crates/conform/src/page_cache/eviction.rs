//! Holds reclaim against a recorded kernel: the recorded calls run on our page cache,
//! and memory is short where it was; compared is which pages go, in which order.
//!
//! Given besides the calls are the moments at which reclaim begins (what else a memory
//! cgroup pays for is not recorded), how many active pages its statistics told of, and
//! when the flusher had written. Compared from one reclaim to the next are evictions,
//! scans with their sizes and pages that come back, in order, and for each page of a
//! read whether it was cached. Nothing is put right after a difference.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

use blklab_fs::{Event, Host, PAGE_BYTES, Vfs};

use super::calls::Call;
use super::recorded::{Recorded, RecordedStep, read_steps};
use super::run::replay;
use super::{RecordedRun, compare_steps};
use crate::recording::beside;
use crate::report::{Report, TraceReport};
use crate::{ConformError, Difference, Mode};

/// An evicted page.
pub(crate) const EVICTION: &str = "page dropped";

/// How many pages of reads were cached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HitRatio {
    pages: u64,
    kernel: u64,
    ours: u64,
}

impl HitRatio {
    fn percent(hits: u64, pages: u64) -> f64 {
        match pages {
            0 => 0.0,
            _ => hits as f64 * 100.0 / pages as f64,
        }
    }

    /// How far ours is from the kernel's, in points of a percent.
    pub(crate) fn points_off(&self) -> f64 {
        Self::percent(self.kernel.abs_diff(self.ours), self.pages)
    }
}

impl fmt::Display for HitRatio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kernel = Self::percent(self.kernel, self.pages);
        let ours = Self::percent(self.ours, self.pages);
        write!(f, "hit ratio: kernel {kernel:.2} %, ours {ours:.2} %")
    }
}

/// So many active pages, as statistics told of them.
#[derive(Clone, Copy)]
struct SawActive {
    pages: u64,
    /// The last call that saw another number.
    after: usize,
    /// The first call that saw this one.
    first: usize,
}

/// When memory was short, and what reclaim knew.
pub(super) struct Shortage {
    /// The call of each reclaim, and pages that the call had added before it.
    reclaims: Vec<(usize, u64)>,
    reclaimed: Cell<usize>,
    /// Pages that our call has added.
    added: Cell<u64>,
    /// What statistics told of, one after the other.
    saw_active: Vec<SawActive>,
    /// How many of those were seen, and whether statistics are those of the next.
    seen: Cell<usize>,
    flushed: Cell<bool>,
}

impl Shortage {
    pub(super) fn new(steps: &[Recorded]) -> Shortage {
        let (mut call, mut added) = (0, 0);
        let (mut reclaims, mut saw_active) = (Vec::new(), Vec::<SawActive>::new());
        let mut saw_in = 0;
        for recorded in steps {
            match recorded.step {
                RecordedStep::Call(line) => (call, added) = (line, 0),
                RecordedStep::Took(Event::Add { order, .. }) => added += 1 << order,
                RecordedStep::Took(Event::Reclaim { .. }) => reclaims.push((call, added)),
                RecordedStep::SawActive { pages } => {
                    if saw_active.last().is_none_or(|saw| saw.pages != pages) {
                        saw_active.push(SawActive {
                            pages,
                            after: saw_in,
                            first: call,
                        });
                    }
                    saw_in = call;
                }
                _ => {}
            }
        }
        Shortage {
            reclaims,
            reclaimed: Cell::new(0),
            added: Cell::new(0),
            saw_active,
            seen: Cell::new(0),
            flushed: Cell::new(false),
        }
    }

    /// A call begins. Statistics were flushed at some time before they were seen: when
    /// there were as many active pages as they told of.
    pub(super) fn begin<H: Host>(&self, vfs: &Vfs<H>, call: usize) {
        self.added.set(0);
        while let Some(&saw) = self.saw_active.get(self.seen.get()) {
            let active = vfs.lru_statistics().map(|lists| lists.active);
            let may_be_now = saw.after < call && active == Some(saw.pages);
            if !self.flushed.get() && (may_be_now || saw.first <= call) {
                vfs.flush_memory_statistics();
                self.flushed.set(true);
            }
            if saw.first > call {
                return;
            }
            self.seen.set(self.seen.get() + 1);
            self.flushed.set(false);
        }
    }

    /// Pages of others: all that there are, where the kernel began to reclaim.
    pub(super) fn other_pages(&self, call: usize) -> u64 {
        let is_due = (self.reclaims.get(self.reclaimed.get()))
            .is_some_and(|&due| due <= (call, self.added.get()));
        if is_due { u64::MAX } else { 0 }
    }

    pub(super) fn took(&self, event: &Event) {
        match event {
            Event::Add { order, .. } => self.added.set(self.added.get() + (1 << order)),
            Event::Reclaim { .. } => self.reclaimed.set(self.reclaimed.get() + 1),
            _ => {}
        }
    }
}

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
    let steps = read_steps(path, &run.inodes, &unmarked)?;
    let ours = replay(&run, &steps, Some(policy));
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
            ratio.pages += 1;
            ratio.kernel += u64::from(theirs);
            ratio.ours += u64::from(our);
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
