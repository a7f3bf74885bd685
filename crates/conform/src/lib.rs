//! Holds our block layer and schedulers against traces of the real kernel.
//!
//! A recorded run is a trace of the kernel while known work went through it, and a
//! description of the queue or the machine it ran on. What is compared:
//!
//! - [`scheduler_alone`]: our scheduler gets the recorded inserts, merges and
//!   completions through the hooks of [`blklab_blk::Elevator`], and is asked
//!   wherever the kernel's was. Compared: each choice and each answer without a
//!   request, the scheduler's state after each call, deadlines, and with which
//!   request something merged. Of a scheduler in our kernel module, every call that it got
//!   there is made here too.
//! - [`whole`]: our [`blklab_blk::RequestQueue`] gets bios, plugs and
//!   completions. Compared: merges, requests, plugs, inserts, calls of the
//!   scheduler with the busy average and their answers, and issues, as one
//!   sequence.
//! - [`page_cache`]: our page cache gets the recorded system calls. Compared:
//!   each decision about readahead, page added and bio.
//! - [`write_back`]: the same calls. Compared: how long a writer pauses, which
//!   page is written why and in which bio, and the flusher's steps.
//! - [`eviction`]: the same calls on a machine short of memory. Compared: hits,
//!   and which pages go in which order.
//!
//! Every compared event counts, and so does everything we do and the kernel
//! did not. What is given and what is compared is in
//! `docs/evidence/kernel-traces.md`.

mod alone;
mod cgroups;
mod clock;
#[cfg(test)]
mod damaged_traces;
mod mmc;
mod page_cache;
mod recording;
mod report;
mod setup;
mod tasks;
mod ties;
mod whole;
mod write_back;

use std::fmt;
use std::path::{Path, PathBuf};

use blklab_workload::trace::TraceError;

pub use mmc::mmc;
pub use page_cache::{eviction, page_cache};
pub use report::{Difference, Report, Tally, TraceReport};
pub use write_back::write_back;

use recording::Recording;

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// A scheduler's answers, given what went into it.
    SchedulerAlone,
    /// What the block layer makes of bios.
    Whole,
    /// What the page cache makes of system calls.
    PageCache,
    /// Which pages go when memory is short.
    Eviction,
    /// When dirty pages are written, and how writers are slowed down.
    WriteBack,
    /// How cards are identified, and what is sent to them.
    Mmc,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mode::SchedulerAlone => "scheduler alone",
            Mode::Whole => "whole block layer",
            Mode::PageCache => "page cache",
            Mode::WriteBack => "write-back",
            Mode::Eviction => "eviction",
            Mode::Mmc => "memory cards",
        })
    }
}

/// Why there is nothing to compare.
#[derive(Debug, thiserror::Error)]
pub enum ConformError {
    /// The trace or its description cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// No scheduler of that name can be held against a trace.
    #[error("scheduler: found {found:?}, expected {expected} ({mode})")]
    Scheduler {
        /// The name.
        found: String,
        /// Names that can be.
        expected: String,
        /// In this comparison.
        mode: Mode,
    },
    /// The trace was recorded with another scheduler.
    #[error("{file}: recorded with scheduler {found:?}, expected {expected:?}")]
    OtherScheduler {
        /// The trace.
        file: String,
        /// What it was recorded with.
        found: String,
        /// What was asked for.
        expected: String,
    },
    /// Events are missing, so that no comparison would mean anything.
    #[error("{file}:{line}: {count} events lost here; record with a larger buffer_size_kb")]
    Lost {
        /// The trace.
        file: String,
        /// Where.
        line: u64,
        /// How many.
        count: u64,
    },
    /// A bio or request that no drive could hold.
    #[error("{file}:{line}: the extent ends beyond byte 2^64; expected one that a drive can hold")]
    Extent {
        /// The trace.
        file: String,
        /// Where.
        line: u64,
    },
    /// The trace holds no event that could be compared.
    #[error("{file}: found no {expected} event; is it a trace of this scheduler?")]
    Nothing {
        /// The trace.
        file: String,
        /// The event that should be there.
        expected: &'static str,
    },
    /// The description holds a value that our queue cannot take.
    #[error("{file}: {name}: {message}")]
    Setup {
        /// The trace.
        file: String,
        /// The attribute.
        name: String,
        /// What is wrong with its value.
        message: String,
    },
    /// The list of calls or the description beside a trace cannot be read.
    #[error("{file}: {message}")]
    Description {
        /// The file, with its line if it has one.
        file: String,
        /// What is wrong.
        message: String,
    },
    /// No trace was named.
    #[error("no trace named; expected one or more tracefs traces, plain or gzipped")]
    NoTraces,
}

/// Compares as `mode` says.
///
/// # Errors
/// Where a trace cannot be read, or `scheduler` cannot be compared with it.
pub fn run(mode: Mode, scheduler: &str, traces: &[PathBuf]) -> Result<Report, ConformError> {
    match mode {
        Mode::SchedulerAlone => scheduler_alone(scheduler, traces),
        Mode::Whole => whole(scheduler, traces),
        Mode::PageCache => page_cache(traces),
        Mode::Eviction => eviction(traces),
        Mode::WriteBack => write_back(traces),
        Mode::Mmc => mmc(traces),
    }
}

/// Whether what was compared agrees as it should: on everything, or in the share that a
/// comparison names for each kind of event or of run.
pub fn agrees(report: &Report) -> bool {
    match report.mode {
        Mode::SchedulerAlone => report.all_agree(),
        Mode::Whole => report.reaches_goals(),
        Mode::PageCache => page_cache::agrees(report),
        Mode::Eviction => page_cache::evictions_agree(report),
        Mode::WriteBack => write_back::agrees(report),
        Mode::Mmc => mmc::agrees(report),
    }
}

/// Asks our scheduler wherever the kernel's was asked.
///
/// # Errors
/// As [`run`].
pub fn scheduler_alone(
    scheduler: &str,
    traces: &[impl AsRef<Path>],
) -> Result<Report, ConformError> {
    alone::check(scheduler)?;
    compare(Mode::SchedulerAlone, scheduler, traces, |recording| {
        alone::compare(recording, scheduler)
    })
}

/// Submits the recorded bios to our block layer.
///
/// # Errors
/// As [`run`].
pub fn whole(scheduler: &str, traces: &[impl AsRef<Path>]) -> Result<Report, ConformError> {
    whole::check(scheduler)?;
    compare(Mode::Whole, scheduler, traces, |recording| {
        whole::compare(recording, scheduler)
    })
}

fn compare(
    mode: Mode,
    scheduler: &str,
    traces: &[impl AsRef<Path>],
    mut one: impl FnMut(&Recording) -> Result<TraceReport, ConformError>,
) -> Result<Report, ConformError> {
    Report::of_each(mode, scheduler, traces, |path| {
        let recording = Recording::open(path)?;
        if let Some(info) = &recording.info
            && info.scheduler != scheduler
        {
            return Err(ConformError::OtherScheduler {
                file: recording.file,
                found: info.scheduler.clone(),
                expected: scheduler.to_owned(),
            });
        }
        one(&recording)
    })
}
