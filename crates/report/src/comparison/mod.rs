//! The comparison of schedulers as plain data, which text, HTML and JSON show without
//! computing anything.

mod advice;
mod calls;
mod cpu_time;
mod curves;
mod failed;
mod figure;
mod figure_name;
mod front;
mod goal;
mod memory;
pub mod merge;
mod notes;
mod part;
mod processes;
mod runs;
mod same_work;
mod section;
pub(crate) mod slowest;
mod starved;
mod table;
#[cfg(test)]
mod tests;
mod trade;
mod verdict;
mod verification;
mod why;

use blklab_stats::Timeline;
use serde::{Deserialize, Serialize};

pub use advice::{Advice, Answer, Availability, Choices, Command, QueueSetting, note_on_untried};
pub(crate) use calls::CALL_PARTS;
pub use calls::{CallRow, CallTable};
pub use cpu_time::CpuTimeline;
pub(crate) use cpu_time::PARTS as CPU_PARTS;
pub(crate) use curves::{Axis, axis};
pub use failed::{FailedIo, failed_units};
pub use figure::{Cell, Change, Direction, Metric};
pub use figure_name::FigureName;
pub use front::Front;
pub use goal::{Goal, GoalRow, Goals, Judgement, Limit, Sense};
pub use memory::MemoryTimeline;
pub use notes::drive_notes;
pub use part::SameWork;
pub use processes::{ProcessColumn, ProcessFigures};
pub use runs::SchedulerRuns;
pub use section::Section;
pub use slowest::{SlowestRow, SlowestTable, SlowestValue};
pub use starved::note_without_io;
pub use table::{CurvePoint, DirectionTable, Row};
pub use verdict::{Contest, Outcome, Verdict};
pub use verification::{Verification, choice_of};
pub use why::{Channels, FactRow};

use runs::Pairs;
use verdict::headline;

/// A comparison of schedulers on one job.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Comparison {
    /// The job file's name.
    pub job: String,
    /// The drive's name.
    pub drive: String,
    /// The machine's name.
    pub machine: String,
    /// The world where it ran: `sim`, `serve`, `host` or `guest`.
    pub world: String,
    /// The schedulers in the order given; the others are compared with the first.
    pub schedulers: Vec<String>,
    /// The number of runs of each scheduler.
    pub repeats: usize,
    /// The seed of each repeat of the first scheduler.
    pub seeds: Vec<u64>,
    /// Whether all schedulers had the same work in each repeat, so that differences are
    /// computed pair by pair.
    pub paired: bool,
    /// The question, if the job came with one; set by the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<String>,
    /// The verdict on the whole job in a sentence.
    pub headline: String,
    /// The judgement by the user's goals, if there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub judgement: Option<Judgement>,
    /// The Pareto front of several goals; set by the caller, where it is asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub front: Option<Front>,
    /// The advice; set by the caller, who knows the kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advice: Option<Advice>,
    /// What a real measurement of the same settings says; set by the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verification: Option<Verification>,
    /// Schedulers under which I/O failed; then no scheduler wins.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<FailedIo>,
    /// One section for each reporting group (`stonewall`, `new_group`).
    pub sections: Vec<Section>,
    /// The facts that explain the figures.
    pub why: Vec<FactRow>,
    /// Where the slowest requests spent their time; empty unless requested.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slowest: Vec<SlowestTable>,
    /// The time of programs' calls; empty for jobs that are not lists of calls.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<CallTable>,
    /// Memory over time; empty if no job used the page cache.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub memory: Vec<MemoryTimeline>,
    /// The utilization of the drive's channels; empty for drives without any.
    pub channels: Vec<Channels>,
    /// The use of CPUs over time; empty if not measured.
    #[serde(default)]
    pub cpus: Vec<CpuTimeline>,
    /// The recorded timeline of each scheduler's first run. It is drawn on the page and
    /// too long for JSON.
    #[serde(skip)]
    pub timelines: Vec<SchedulerTimeline>,
    /// Notes for the reader, each once.
    pub notes: Vec<String>,
    /// Whether Ctrl-C ended it early.
    #[serde(skip)]
    pub interrupted: bool,
    /// The inputs that repeat the comparison; set by the caller.
    pub origin: Origin,
}

/// A scheduler's recorded run.
#[derive(Clone, Debug)]
pub struct SchedulerTimeline {
    /// The scheduler.
    pub scheduler: String,
    /// The recorded timeline.
    pub timeline: Timeline,
}

/// The inputs that repeat a comparison.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The command line.
    pub command: String,
    /// The job file's text.
    pub job_text: String,
    /// The drive description's text.
    pub drive_text: String,
    /// The machine description's text.
    pub machine_text: String,
}

impl Comparison {
    /// Returns whether the figures allow a winner.
    fn has_verdict(&self) -> bool {
        self.failed.is_empty() && !self.headline.starts_with(failed::NO_VERDICT)
    }
}

/// Returns the noun for rows of these names: schedulers, or settings if other keys vary.
pub(crate) fn noun(names: &[String]) -> &'static str {
    match names.iter().any(|name| name.contains('=')) {
        true => "setting",
        false => "scheduler",
    }
}

/// Compares schedulers that ran the same job.
pub fn compare(schedulers: &[SchedulerRuns]) -> Comparison {
    let Some(first) = schedulers.iter().find_map(|s| s.runs.first()) else {
        return Comparison::default();
    };
    let seeds_of: Vec<_> = schedulers.iter().map(|s| Some(s.seeds())).collect();
    let pairs = Pairs::by_key(&seeds_of);
    let mut sections = section::sections(schedulers, &pairs);
    let too_few = notes::note_on_few_ios(&sections);
    let failed = failed::failed(schedulers);
    let no_verdict = failed::sentence(&failed).or_else(|| failed::cut_short(schedulers));
    if let Some(sentence) = &no_verdict {
        let verdicts = sections.iter_mut().map(|section| &mut section.verdict);
        verdicts.for_each(|verdict| verdict.sentence = sentence.clone());
    }
    Comparison {
        job: first.job.clone(),
        drive: first.drive.clone(),
        machine: first.machine.clone(),
        world: first.world.name().to_string(),
        schedulers: schedulers.iter().map(|s| s.name.clone()).collect(),
        repeats: schedulers.iter().map(|s| s.runs.len()).min().unwrap_or(0),
        seeds: schedulers[0].seeds(),
        paired: pairs.are_all_paired(),
        headline: no_verdict
            .unwrap_or_else(|| headline(sections.iter().map(|s| &s.verdict).collect())),
        question: None,
        judgement: None,
        front: None,
        advice: None,
        verification: None,
        failed,
        sections,
        why: why::facts(schedulers),
        slowest: slowest::tables(schedulers),
        calls: calls::tables(schedulers),
        memory: memory::timelines(schedulers),
        channels: why::channels(schedulers),
        cpus: cpu_time::timelines(schedulers),
        timelines: recorded(schedulers),
        notes: { notes::notes(schedulers).into_iter() }
            .chain(too_few)
            .collect(),
        interrupted: false,
        origin: Origin::default(),
    }
}

/// Returns the recorded timelines, one for each scheduler.
fn recorded(schedulers: &[SchedulerRuns]) -> Vec<SchedulerTimeline> {
    let of = |scheduler: &SchedulerRuns| {
        let timeline = scheduler.runs.iter().find_map(|run| run.timeline.clone())?;
        Some(SchedulerTimeline {
            scheduler: scheduler.name.clone(),
            timeline,
        })
    };
    schedulers.iter().filter_map(of).collect()
}
