//! Holds write-back against a recorded kernel.
//!
//! Given are the calls, when requests ended, which task ran when, and what the
//! kernel's counters read. Compared is what a task that dirties pages may do and
//! how long it sleeps, when the flusher runs, what it decides, and each page that
//! is written, for which reason and in which bio.
//!
//! Of a file system only data is looked at: where its files are, what it changes of
//! its own and what it writes itself are given.

mod new_blocks;
mod recorded;
mod replay;
mod throttle;

use std::path::{Path, PathBuf};

use blklab_blk::Op;
use blklab_fs::Event;
use blklab_fs::write_back::{Bandwidth, History, Settings};
use blklab_workload::trace::read_text;

use crate::page_cache::{Call, Description, Fields, RunFile, read_calls};
use crate::recording::beside;
use crate::report::{Report, TraceReport};
use crate::{ConformError, Difference, Mode};
use new_blocks::place_new_blocks;
use recorded::{Reader, Recorded};
use replay::{FlusherStep, Outcome, RunInputs, replay};
use throttle::{Jiffies, THROTTLE};

/// Compares each recorded run.
///
/// # Errors
/// Where a trace, its list of calls or its description cannot be read.
pub fn write_back(traces: &[PathBuf]) -> Result<Report, ConformError> {
    Report::of_each(Mode::WriteBack, "", traces, compare)
}

/// A page that is written.
const WRITTEN: &str = "page written";

/// The flusher begins to run.
const WAKEUP: &str = "flusher's run";

/// Whether writers were slowed down as the kernel's in 99 % of cases, and 98 % of pages
/// were written for the same reason in the same bios.
pub(crate) fn agrees(report: &Report) -> bool {
    report.compared() > 0 && report.share(THROTTLE) >= 99.0 && report.share(WRITTEN) >= 98.0
}

fn compare(path: &Path) -> Result<TraceReport, ConformError> {
    let mut report = TraceReport::new(path.display().to_string());
    let calls = read_calls(&beside(path, ".calls.txt"))?;
    let described = beside(path, ".json");
    let description = Description::open(&described)?;
    let mut files = description
        .files()
        .ok_or_else(|| ConformError::Description {
            file: described.display().to_string(),
            message: "dev, bdi, queue or files: found no numbers where they belong".to_owned(),
        })?;
    let text = read_text(path)?;
    let Some(jiffies) = Jiffies::of(&text) else {
        return Ok(report);
    };
    throttle::compare(path, &text, &jiffies, &mut report)?;
    add_new_files(&mut files, &description, &calls, &text);
    let new_blocks = place_new_blocks(&mut files, &calls, &text);
    let reader = Reader {
        path,
        files: &files,
        jiffies: &jiffies,
        has_file_system: description.has_file_system(),
        inode_bytes: description.inode_bytes(),
    };
    let steps = reader.steps(&text)?;
    let known = RunInputs {
        calls: &calls,
        files: &files,
        new_blocks,
        settings: Settings {
            inodes_in_use: inodes_in_use(&text),
            ..description.settings()
        },
        history: history(&text, &jiffies, description.has_volatile_cache()),
        fault_around_pages: description.fault_around_pages(),
    };
    for outcome in replay(&known, &steps) {
        count(&mut report, &steps, &outcome);
    }
    Ok(report)
}

/// Adds the files that the run makes, in the order in which they become dirty.
fn add_new_files(files: &mut Vec<RunFile>, description: &Description, calls: &[Call], text: &str) {
    let mut numbers = Vec::new();
    for fields in text.lines().filter_map(Fields::of) {
        if fields.event == "writeback_dirty_folio"
            && let Some(number) = fields.unsigned("ino")
            && !numbers.contains(&number)
            && files.iter().all(|file| file.number != number)
        {
            numbers.push(number);
        }
    }
    let mut numbers = numbers.into_iter();
    for call in calls {
        if let Call::Open { path, how, .. } = call
            && how.create
            && files.iter().all(|file| file.path != *path)
            && let Some(number) = numbers.next()
        {
            files.extend(description.new_file(path, number));
        }
    }
}

/// What happened to the device before the run: its rates as the program finds them
/// first, the pages that it wrote by the share that it has first, and the threshold.
fn history(text: &str, jiffies: &Jiffies, has_volatile_cache: bool) -> History {
    /// Written pages of all devices: enough that the share comes out exactly.
    const WRITTEN: u64 = 1024;
    let first = |event| {
        let mut all = text.lines().filter_map(Fields::of);
        all.find(|fields| fields.event == event)
    };
    let rates = first("bdp").and_then(|bdp| throttle::rates(&bdp, jiffies.at(bdp.at_ns)));
    let share = first("wb_share").and_then(|fields| {
        let (of, share) = (fields.unsigned("of")?, fields.unsigned("share")?);
        share.checked_mul(WRITTEN)?.checked_div(of)
    });
    let written_pages = share.unwrap_or(0).min(WRITTEN);
    History {
        rates: rates.unwrap_or(Bandwidth::new(0)),
        written_pages,
        others_written_pages: if written_pages > 0 {
            WRITTEN - written_pages
        } else {
            0
        },
        limit: first("global_dirty_state").and_then(|fields| fields.unsigned("limit")),
        last_periodic: last_periodic(text, jiffies),
        has_volatile_cache,
    }
}

/// When the flusher last looked for old pages: long ago, unless it does not do so
/// when it runs first.
fn last_periodic(text: &str, jiffies: &Jiffies) -> u64 {
    let mut runs = (text.lines().filter_map(Fields::of))
        .skip_while(|fields| fields.event != "wb_workfn")
        .take_while(|fields| fields.event != "writeback_pages_written");
    let begin = runs.next().map_or(0, |run| jiffies.at(run.at_ns));
    let looks = runs
        .any(|fields| fields.event == "writeback_start" && fields.rest.contains("reason=periodic"));
    if looks { 0 } else { begin }
}

/// What the flusher adds to the dirty pages, where a trace tells it.
fn inodes_in_use(text: &str) -> u64 {
    let mut dirty = 0;
    let mut counts = text.lines().filter_map(Fields::of).filter_map(|fields| {
        if fields.event == "global_dirty_state" {
            dirty = fields.unsigned("dirty").unwrap_or(0);
        }
        let is_start = fields.event == "writeback_start";
        let pages = fields.unsigned("nr_pages").filter(|_| is_start)?;
        (pages < 1 << 40).then(|| pages.saturating_sub(dirty))
    });
    counts.next().unwrap_or(0)
}

/// Counts a step: written pages one by one.
fn count(report: &mut TraceReport, steps: &[Recorded], outcome: &Outcome) {
    let tell = |taken: &FlusherStep| format!("{:?} {:?}", taken.reason, taken.event);
    let (at, kind, kernel, ours, taken) = match outcome {
        Outcome::Both(at, taken) => (Some(*at), kind_of(&taken.event), None, None, Some(taken)),
        Outcome::OnlyKernel(at, taken) => {
            let kernel = Some(tell(taken));
            (Some(*at), kind_of(&taken.event), kernel, None, Some(taken))
        }
        Outcome::OnlyOurs(taken) => {
            let ours = Some(tell(taken));
            (None, kind_of(&taken.event), None, ours, Some(taken))
        }
        Outcome::Runs(at, due) => {
            let now = steps[*at].jiffies;
            // One that is to run at once runs when a CPU is free.
            let agrees = due.is_some_and(|(due, since)| due == now || (due == since && due < now));
            let kernel = (!agrees).then(|| format!("runs at {now}"));
            let ours = (!agrees).then(|| format!("due, and since: {due:?}"));
            (Some(*at), Some(WAKEUP), kernel, ours, None)
        }
    };
    let Some(kind) = kind else {
        return;
    };
    let pages = match taken.map(|taken| taken.event) {
        Some(Event::Submit(bio)) => u64::from(bio.size_sectors).div_ceil(8).max(1),
        _ => 1,
    };
    let agrees = kernel.is_none() && ours.is_none();
    for _ in 0..pages {
        report.count(kind, agrees, || Difference {
            line: at.map_or(0, |at| steps[at].line),
            at_ns: at.map_or(0, |at| steps[at].at_ns),
            kind,
            kernel: kernel.clone().unwrap_or_else(|| "nothing".to_owned()),
            ours: ours.clone().unwrap_or_else(|| "nothing".to_owned()),
            state: Vec::new(),
        });
    }
}

/// What a step is counted as; reads are compared elsewhere.
fn kind_of(event: &Event) -> Option<&'static str> {
    match event {
        Event::Submit(bio) => (bio.op == Op::Write).then_some(WRITTEN),
        Event::Dirty { .. } => Some("page dirtied"),
        _ => Some("flusher's step"),
    }
}
