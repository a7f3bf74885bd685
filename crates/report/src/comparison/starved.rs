//! Starvation: a process that waited long for an I/O while others continued. Percentiles
//! over all I/O hide it, and so does an index of totals.

use blklab_stats::{ProcessResults, Results};

use super::runs::SchedulerRuns;
use crate::quantity::{and_list, latency, short};

/// A wait is long from this share of the process's running time.
const WAIT_SHARE_MIN: f64 = 0.1;
/// A single waiting I/O stops a process whose mean depth is below this.
const STOPPED_DEPTH_MAX: f64 = 2.0;
/// A process with more I/Os in flight counts if its longest wait is this many times its
/// mean latency.
const WAIT_OVER_MEAN_MIN: f64 = 10.0;
/// Another process continued if its longest wait was at most this share of the long one.
const OTHERS_WAIT_SHARE_MAX: f64 = 0.25;

/// Returns a note on the process that starved longest under a scheduler, if any. It is about
/// one run, where tables have the means of all.
pub(crate) fn note(scheduler: &SchedulerRuns) -> Option<String> {
    let runs = scheduler.runs.iter().enumerate();
    let found = runs.filter_map(|(at, run)| Some((at, starved(run)?)));
    let (at, (starved, others)) = found.max_by_key(|(_, (starved, _))| starved.latency_max_ns)?;
    let wait_ns = starved.latency_max_ns as f64;
    let which = match scheduler.runs.len() {
        1 => String::new(),
        all => format!(", run {} of {all} (tables have the means of all)", at + 1),
    };
    Some(format!(
        "{}{which}: a process of {} waited {} for one I/O, {} % of its run, and {} no more than {}",
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

/// Returns a note on the jobs of which a process did no I/O at all in a run, while others did:
/// no table has a row of what did not happen.
pub fn note_without_io(scheduler: &SchedulerRuns) -> Option<String> {
    let without: Vec<Vec<&str>> = scheduler.runs.iter().map(jobs_without_io).collect();
    let first = without.iter().find(|jobs| !jobs.is_empty())?;
    let all = scheduler.runs.len();
    let runs = without.iter().filter(|jobs| !jobs.is_empty()).count();
    let which = match all {
        1 => String::new(),
        _ => format!(
            " in {runs} of {all} runs (bandwidths are the means of all, latencies of those with I/O)"
        ),
    };
    let jobs: Vec<String> = first.iter().map(ToString::to_string).collect();
    Some(format!(
        "{}: a process of {} did no I/O{which}: it waited all of its time",
        scheduler.name,
        and_list(&jobs)
    ))
}

/// Returns the jobs of a run of which a process did no I/O though it ran, each once. Lists of
/// calls need none.
fn jobs_without_io(run: &Results) -> Vec<&str> {
    let jobs = || run.jobs.iter().filter(|job| job.calls.is_empty());
    let is_idle = |p: &ProcessResults| p.ios == 0 && p.runtime_ns > 0 && !p.failed && !p.finished;
    let others = jobs().flat_map(|job| &job.processes).any(|p| p.ios > 0);
    let mut names: Vec<&str> = jobs()
        .flat_map(|job| &job.processes)
        .filter(|p| others && is_idle(p))
        .map(|p| p.job.as_str())
        .collect();
    names.dedup();
    names
}

/// Returns the process of a run that waited longest, if it starved, and the process that
/// waited least at the same time.
fn starved(run: &Results) -> Option<(&ProcessResults, &ProcessResults)> {
    let all = || run.jobs.iter().flat_map(|job| &job.processes);
    let is_long = |p: &&ProcessResults| {
        let (wait_ns, runtime_ns) = (p.latency_max_ns as f64, p.runtime_ns as f64);
        let at_once = p.ios as f64 * p.latency_mean_ns / runtime_ns;
        let unusual =
            at_once < STOPPED_DEPTH_MAX || wait_ns >= WAIT_OVER_MEAN_MIN * p.latency_mean_ns;
        unusual && wait_ns >= WAIT_SHARE_MIN * runtime_ns
    };
    let starved = all().filter(is_long).max_by_key(|p| p.latency_max_ns)?;
    let wait_ns = starved.latency_max_ns;
    // A process that ran only briefly is not considered.
    let was_there = |p: &&ProcessResults| p.bytes > 0 && p.runtime_ns >= wait_ns;
    let others = all().filter(was_there).min_by_key(|p| p.latency_max_ns)?;
    let went_on = others.latency_max_ns as f64 <= OTHERS_WAIT_SHARE_MAX * wait_ns as f64;
    went_on.then_some((starved, others))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample_run::three_schedulers;

    #[test]
    fn a_job_without_io_beside_others_is_named() {
        let mut noop = three_schedulers(2).remove(0);
        assert_eq!(note_without_io(&noop), None);
        let process = |job: &str, ios| ProcessResults {
            job: job.to_string(),
            runtime_ns: 15,
            ios,
            ..ProcessResults::default()
        };
        noop.runs[1].jobs[0].processes = vec![process("a", 5), process("copy", 0)];
        let note = note_without_io(&noop).expect("one had none");
        assert!(
            note.starts_with("noop: a process of copy did no I/O in 1 of 2 runs ("),
            "{note}"
        );
        // Who had ended, or whom no one got ahead of, did not wait.
        noop.runs[1].jobs[0].processes[1].finished = true;
        assert_eq!(note_without_io(&noop), None);
        noop.runs[1].jobs[0].processes = vec![process("copy", 0)];
        assert_eq!(note_without_io(&noop), None);
    }
}
