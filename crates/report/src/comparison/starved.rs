//! A process that waited long for an I/O while others went on: percentiles over
//! all I/O hide it, and so does an index of totals.

use blklab_stats::{ProcessResults, Results};

use super::runs::SchedulerRuns;
use crate::quantity::{latency, short};

/// A wait of this share of its run makes a difference to a process.
const LONG: f64 = 0.1;
/// A process with more in flight than this goes on beside an I/O that waits, ...
const AT_ONCE: f64 = 2.0;
/// ... unless that waits so many times longer than its others.
const UNUSUAL: f64 = 10.0;
/// Others went on meanwhile that never waited for so much of it.
const OTHERS: f64 = 0.25;

/// What to say of the process that waited longest under a scheduler, if any.
pub(crate) fn note(scheduler: &SchedulerRuns) -> Option<String> {
    let found = scheduler.runs.iter().filter_map(starved);
    let (starved, others) = found.max_by_key(|(starved, _)| starved.latency_max_ns)?;
    let wait_ns = starved.latency_max_ns as f64;
    Some(format!(
        "{}: a process of {} waited {} for one I/O, {} % of its run, and {} no more than {}",
        scheduler.name,
        starved.job,
        latency(wait_ns),
        short(wait_ns * 100.0 / starved.runtime_ns as f64),
        match others.job == starved.job {
            true => "another".to_string(),
            false => format!("one of {}", others.job),
        },
        latency(others.latency_max_ns as f64),
    ))
}

/// The process of a run that waited longest, and the one beside it that waited
/// least, where the first starved.
fn starved(run: &Results) -> Option<(&ProcessResults, &ProcessResults)> {
    let all = || run.jobs.iter().flat_map(|job| &job.processes);
    let is_long = |p: &&ProcessResults| {
        let (wait_ns, runtime_ns) = (p.latency_max_ns as f64, p.runtime_ns as f64);
        let at_once = p.ios as f64 * p.latency_mean_ns / runtime_ns;
        let unusual = at_once < AT_ONCE || wait_ns >= UNUSUAL * p.latency_mean_ns;
        unusual && wait_ns >= LONG * runtime_ns
    };
    let starved = all().filter(is_long).max_by_key(|p| p.latency_max_ns)?;
    let wait_ns = starved.latency_max_ns;
    // A process that ran for a moment only is not considered.
    let was_there = |p: &&ProcessResults| p.bytes > 0 && p.runtime_ns >= wait_ns;
    let others = all().filter(was_there).min_by_key(|p| p.latency_max_ns)?;
    let went_on = others.latency_max_ns as f64 <= OTHERS * wait_ns as f64;
    went_on.then_some((starved, others))
}
