//! What was seen of requests, where a world can see it: the split between
//! scheduler and drive, by direction and by size and process.

use blklab_stats::{Histogram, Place, RequestKind, RequestStats, Results, Unit};

use crate::comparison::SchedulerRuns;
use crate::why::FactRow;

/// The block layer's operations, by their index in its counters.
const OPS: [&str; 4] = ["reads", "writes", "discards", "flushes"];

/// Sizes and processes shown apart: those with most requests.
const KINDS_SHOWN: usize = 8;

/// Where a request's time went.
type Part = (Place, &'static str, fn(&RequestKind) -> &Histogram);

const PARTS: [Part; 3] = [
    (Place::Queue, "from first to last", |kind| &kind.whole_ns),
    (Place::Scheduler, "in the scheduler", |kind| &kind.queued_ns),
    (Place::Drive, "in the drive", |kind| &kind.drive_ns),
];

/// Facts on requests that were traced. Losses are told even where there were
/// none: only then can the rest be believed.
pub(crate) fn request_facts(schedulers: &[SchedulerRuns]) -> Vec<FactRow> {
    let traced = |s: &SchedulerRuns| s.runs.iter().any(|run| run.requests.is_some());
    if !schedulers.iter().any(traced) {
        return Vec::new();
    }
    let count = |name, of: fn(&RequestStats) -> u64| {
        let what = (Place::Queue, name, Unit::Count);
        FactRow::new(schedulers, what, move |run| {
            Some(of(run.requests.as_ref()?) as f64)
        })
    };
    let mut facts = vec![
        count("trace events lost", |r| r.lost_events),
        count("completions without their issue", |r| r.unmatched),
        count("requests merged into others", |r| r.merges),
        FactRow::new(
            schedulers,
            (
                Place::Drive,
                "requests in it at an issue, mean",
                Unit::Ratio,
            ),
            |run| mean_depth(run.requests.as_ref()?),
        ),
    ];
    for part in PARTS {
        facts.extend(by_direction(schedulers, part));
        facts.extend(by_kind(schedulers, part));
    }
    let lost = |fact: &FactRow| fact.name == "trace events lost";
    facts.retain(|f| lost(f) || f.is_something());
    facts
}

/// The mean over fio's classes of depth, each taken at its lower end.
fn mean_depth(requests: &RequestStats) -> Option<f64> {
    let counts = requests.depth_at_issue.counts;
    let total: u64 = counts.iter().sum();
    let depths = [0u64, 1, 2, 4, 8, 16, 32, 64];
    let sum: f64 = counts
        .iter()
        .zip(depths)
        .map(|(n, d)| *n as f64 * d as f64)
        .sum();
    (total > 0).then(|| sum / total as f64)
}

fn by_direction(schedulers: &[SchedulerRuns], (place, where_, of): Part) -> Vec<FactRow> {
    let mut facts = Vec::new();
    for (op, ops) in OPS.into_iter().enumerate() {
        let all = move |run: &Results| merged(run, of, |kind| kind.op == op);
        let mean = format!("{ops} {where_}, mean");
        facts.push(FactRow::new(
            schedulers,
            (place, &mean, Unit::Nanoseconds),
            move |run| Some(all(run)?.summary().mean_ns),
        ));
        for percent in [50.0, 99.0] {
            let name = format!("{ops} {where_}, p{percent}");
            facts.push(FactRow::new(
                schedulers,
                (place, &name, Unit::Nanoseconds),
                move |run| Some(all(run)?.percentile(percent) as f64),
            ));
        }
    }
    facts
}

/// All requests of a run that are as wanted; `None` where there are none.
fn merged(
    run: &Results,
    of: fn(&RequestKind) -> &Histogram,
    wanted: impl Fn(&RequestKind) -> bool,
) -> Option<Histogram> {
    let mut all = Histogram::new();
    let kinds = run.requests.as_ref()?.kinds.iter();
    kinds
        .filter(|kind| wanted(kind))
        .for_each(|kind| all.merge(of(kind)));
    (!all.is_empty()).then_some(all)
}

/// Sizes and processes apart, where there is more than one of a direction.
fn by_kind(schedulers: &[SchedulerRuns], (place, where_, of): Part) -> Vec<FactRow> {
    let mut facts = Vec::new();
    let kinds = busiest(schedulers);
    for (op, bytes, process) in &kinds {
        if kinds.iter().filter(|kind| kind.0 == *op).count() < 2 {
            continue;
        }
        let ops = OPS.get(*op).copied().unwrap_or("others");
        let name = format!(
            "  {ops} up to {} KiB of {process} {where_}, mean",
            bytes.div_ceil(1024)
        );
        facts.push(FactRow::new(
            schedulers,
            (place, &name, Unit::Nanoseconds),
            |run| {
                let wanted = |kind: &RequestKind| {
                    (kind.op, kind.up_to_bytes, &kind.process) == (*op, *bytes, process)
                };
                Some(merged(run, of, wanted)?.summary().mean_ns)
            },
        ));
    }
    facts
}

/// The kinds with most requests over all runs, in the order of their place.
fn busiest(schedulers: &[SchedulerRuns]) -> Vec<(usize, u64, String)> {
    let mut counts: Vec<((usize, u64, String), u64)> = Vec::new();
    let runs = schedulers.iter().flat_map(|s| &s.runs);
    for kind in runs
        .filter_map(|run| run.requests.as_ref())
        .flat_map(|r| &r.kinds)
    {
        let key = (kind.op, kind.up_to_bytes, kind.process.clone());
        let requests = kind.whole_ns.count();
        match counts.iter_mut().find(|(k, _)| *k == key) {
            Some((_, count)) => *count += requests,
            None => counts.push((key, requests)),
        }
    }
    counts.sort_by(|(a, n), (b, m)| m.cmp(n).then_with(|| a.cmp(b)));
    counts.truncate(KINDS_SHOWN);
    let mut kinds: Vec<_> = counts.into_iter().map(|(key, _)| key).collect();
    kinds.sort();
    kinds
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample_run::three_schedulers;
    use blklab_stats::{CpuSlice, CpuTimes};

    fn histogram(ns: u64) -> Histogram {
        let mut histogram = Histogram::new();
        histogram.record(ns);
        histogram
    }

    fn kind(op: usize, process: &str, queued_ns: u64, drive_ns: u64) -> RequestKind {
        RequestKind {
            op,
            up_to_bytes: 4096,
            process: process.to_string(),
            queued_ns: histogram(queued_ns),
            drive_ns: histogram(drive_ns),
            whole_ns: histogram(queued_ns + drive_ns),
        }
    }

    fn traced() -> Vec<SchedulerRuns> {
        let mut schedulers = three_schedulers(2);
        for run in schedulers.iter_mut().flat_map(|s| &mut s.runs) {
            run.requests = Some(RequestStats {
                kinds: vec![
                    kind(0, "fio", 100, 1000),
                    kind(0, "db", 300, 1000),
                    kind(1, "fio", 7, 9),
                ],
                ..RequestStats::default()
            });
            run.cpu_timeline = vec![CpuSlice {
                end_ns: 1,
                cpus: vec![
                    CpuTimes {
                        user_ns: 1,
                        idle_ns: 3,
                        ..CpuTimes::default()
                    };
                    2
                ],
            }];
        }
        schedulers
    }

    fn value(facts: &[FactRow], name: &str) -> Option<f64> {
        let found = facts.iter().find(|fact| fact.name == name);
        found.unwrap_or_else(|| panic!("{name} is missing")).values[0]
    }

    #[test]
    fn the_split_is_by_direction_size_and_process() {
        let facts = request_facts(&traced());
        assert_eq!(value(&facts, "reads in the scheduler, mean"), Some(200.0));
        assert_eq!(value(&facts, "reads in the drive, p99"), Some(1000.0));
        assert_eq!(value(&facts, "writes from first to last, mean"), Some(16.0));
        assert_eq!(
            value(&facts, "  reads up to 4 KiB of db in the scheduler, mean"),
            Some(300.0)
        );
        // Of writes there is one kind only.
        assert!(facts.iter().all(|f| !f.name.contains("writes up to")));
    }

    #[test]
    fn losses_are_told_where_there_are_none() {
        let facts = crate::compare(&traced()).why;
        assert_eq!(value(&facts, "trace events lost"), Some(0.0));
        assert!(request_facts(&three_schedulers(1)).is_empty());
    }

    #[test]
    fn cpu_time_is_shared_out() {
        let facts = crate::compare(&traced()).why;
        assert_eq!(value(&facts, "applications"), Some(0.25));
    }
}
