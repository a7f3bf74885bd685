//! A process that waited long for an I/O while others went on: percentiles over
//! all I/O hide it, and so does an index of totals.

use blklab_stats::{ProcessResults, Results};

use crate::comparison::SchedulerRuns;
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
    // One that was there for a moment only has nothing to tell.
    let was_there = |p: &&ProcessResults| p.bytes > 0 && p.runtime_ns >= wait_ns;
    let others = all().filter(was_there).min_by_key(|p| p.latency_max_ns)?;
    let went_on = others.latency_max_ns as f64 <= OTHERS * wait_ns as f64;
    went_on.then_some((starved, others))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::compare;
    use crate::sample_run::three_schedulers;

    /// One that has 8 I/Os in flight for five seconds.
    fn process(job: &str, mean_us: u64, max_us: u64) -> ProcessResults {
        ProcessResults {
            job: job.to_string(),
            bytes: 1 << 20,
            ios: 8 * 5_000_000 / mean_us,
            runtime_ns: 5_000_000_000,
            latency_mean_ns: mean_us as f64 * 1e3,
            latency_max_ns: max_us * 1000,
            ..ProcessResults::default()
        }
    }

    #[test]
    fn who_waits_while_others_go_on_is_named() {
        let mut schedulers = three_schedulers(2);
        let mut said = |reader, writer| {
            schedulers[1].runs[1].jobs[0].processes = vec![reader, writer];
            let mut notes = compare(&schedulers).notes;
            notes.retain(|note| note.contains("waited"));
            notes
        };
        let writer = process("writer", 900, 20_000);
        assert_eq!(
            said(process("reader", 150, 1_200_000), writer.clone()),
            [
                "mq-deadline: a process of reader waited 1200 ms for one I/O, 24.0 % of its run, \
                 and one of writer no more than 20.0 ms"
            ]
        );
        // Not for long; as it always does; all alike.
        assert!(said(process("reader", 150, 400_000), writer.clone()).is_empty());
        assert!(said(process("reader", 400_000, 1_200_000), writer.clone()).is_empty());
        // One that waits for each of its I/Os, of which it did two.
        let alone = ProcessResults {
            ios: 2,
            ..process("reader", 2_500_000, 4_900_000)
        };
        assert!(said(alone, writer)[0].contains("waited 4900 ms for one I/O"));
        let also = process("writer", 900, 900_000);
        assert!(said(process("reader", 150, 1_200_000), also).is_empty());
    }
}
