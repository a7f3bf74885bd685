//! The facts that explain the figures, from the counters of the queue, the scheduler and
//! the drive, with one value for each scheduler.

use blklab_stats::{CgroupStats, Histogram, Place, RequestKind, RequestStats, Results, Unit};
use serde::{Deserialize, Serialize};

use super::runs::SchedulerRuns;

/// A fact with a value for each scheduler.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FactRow {
    /// The place where it was counted.
    pub place: Place,
    /// The name for programs; the name in tables for facts that only a run declares.
    #[serde(default)]
    pub key: String,
    /// The name in tables.
    pub name: String,
    /// The meaning; empty for facts that only a run declares.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub meaning: String,
    /// The unit.
    pub unit: Unit,
    /// The mean over repeats, by scheduler; `None` if the scheduler or the drive does
    /// not count it.
    pub values: Vec<Option<f64>>,
}

impl FactRow {
    /// Computes a row from each run's value.
    pub(crate) fn new(
        schedulers: &[SchedulerRuns],
        (place, name, unit): (Place, &str, Unit),
        of: impl Fn(&Results) -> Option<f64>,
    ) -> FactRow {
        let mean_of = |scheduler: &SchedulerRuns| {
            let known: Vec<f64> = scheduler.runs.iter().filter_map(&of).collect();
            (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
        };
        FactRow {
            place,
            key: name.trim().to_string(),
            name: name.to_string(),
            meaning: String::new(),
            unit,
            values: schedulers.iter().map(mean_of).collect(),
        }
    }

    /// Returns whether any value is not zero.
    pub(crate) fn is_something(&self) -> bool {
        self.values.iter().flatten().any(|value| *value != 0.0)
    }
}

/// Returns the facts that are not zero everywhere.
pub(crate) fn facts(schedulers: &[SchedulerRuns]) -> Vec<FactRow> {
    let declared = blklab_stats::facts().into_iter().map(|fact| {
        let what = (fact.place, fact.label, fact.unit);
        FactRow {
            key: fact.key.to_string(),
            meaning: fact.meaning.to_string(),
            ..FactRow::new(schedulers, what, |run| fact.of(run))
        }
    });
    let mut rows: Vec<FactRow> = declared
        .chain(cgroup_facts(schedulers))
        .chain(scheduler_facts(schedulers))
        .collect();
    rows.retain(FactRow::is_something);
    rows.extend(request_facts(schedulers));
    rows.sort_by_key(|row| row.place);
    rows
}

/// Returns the counters of all schedulers, each name once, in order of appearance.
fn scheduler_facts(schedulers: &[SchedulerRuns]) -> Vec<FactRow> {
    let mut names: Vec<&'static str> = Vec::new();
    let runs = schedulers.iter().flat_map(|s| &s.runs);
    let disks = runs.flat_map(|run| &run.disks);
    for counter in disks.flat_map(|disk| &disk.scheduler.counters) {
        if !names.contains(&counter.name) {
            names.push(counter.name);
        }
    }
    let value_of = |run: &Results, name: &str| {
        let disks = run.disks.iter();
        let counters = disks.flat_map(|disk| &disk.scheduler.counters);
        let found = counters.filter(|c| c.name == name).map(|c| c.value);
        found.reduce(|a, b| a + b).map(|sum| sum as f64)
    };
    let row = |name: &'static str| {
        let what = (Place::Scheduler, name, Unit::Count);
        FactRow::new(schedulers, what, |run| value_of(run, name))
    };
    names.into_iter().map(row).collect()
}

/// Returns what each layer held back of each control group, and the drive's time that
/// the group used.
fn cgroup_facts(schedulers: &[SchedulerRuns]) -> Vec<FactRow> {
    let mut names: Vec<&str> = Vec::new();
    let runs = schedulers.iter().flat_map(|s| &s.runs);
    let disks = runs.flat_map(|run| &run.disks);
    for group in disks.flat_map(|disk| &disk.cgroups) {
        if !names.contains(&group.name.as_str()) {
            names.push(&group.name);
        }
    }
    let mut rows = Vec::new();
    for name in names.into_iter().filter(|name| !name.is_empty()) {
        let of = |run: &Results, value: &dyn Fn(&CgroupStats) -> Option<u64>| {
            let groups = run.disks.iter().flat_map(|disk| &disk.cgroups);
            let values = groups.filter(|group| group.name == name).filter_map(value);
            values.reduce(|a, b| a + b).map(|sum| sum as f64)
        };
        for (at, (layer, _)) in CgroupStats::default().layers().into_iter().enumerate() {
            let label = format!("/{name}: held by {layer}");
            let what = (Place::Queue, label.as_str(), Unit::Count);
            rows.push(FactRow::new(schedulers, what, |run| {
                of(run, &|group| Some(group.layers()[at].1.ios))
            }));
            let what = (Place::Queue, "  for, mean", Unit::Nanoseconds);
            rows.push(FactRow::new(schedulers, what, |run| {
                of(run, &|group| group.layers()[at].1.mean_ns())
            }));
        }
        let label = format!("/{name}: time of the drive");
        let what = (Place::Queue, label.as_str(), Unit::Nanoseconds);
        rows.push(FactRow::new(schedulers, what, |run| {
            of(run, &|group| Some(group.cost?.usage_us * 1000))
        }));
    }
    rows
}

/// The utilization of a drive's channels under one scheduler.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Channels {
    /// The scheduler.
    pub scheduler: String,
    /// The share of the run in which each channel had a busy die, as the mean over
    /// repeats; the channels of several drives one after the other.
    pub busy: Vec<f64>,
    /// The share of the run in which each die's array was busy.
    #[serde(default)]
    pub dies: Vec<f64>,
    /// The share of the run in which each plane was busy.
    #[serde(default)]
    pub planes: Vec<f64>,
}

/// Returns the utilization of channels under each scheduler; empty for drives without
/// channels.
pub(crate) fn channels(schedulers: &[SchedulerRuns]) -> Vec<Channels> {
    let mean = |scheduler: &SchedulerRuns, of: fn(&Results) -> Vec<f64>| {
        let mut sums: Vec<f64> = Vec::new();
        for run in &scheduler.runs {
            let shares = of(run);
            sums.resize(sums.len().max(shares.len()), 0.0);
            sums.iter_mut().zip(shares).for_each(|(sum, s)| *sum += s);
        }
        let runs = scheduler.runs.len().max(1) as f64;
        sums.iter_mut().for_each(|sum| *sum /= runs);
        sums
    };
    let all: Vec<Channels> = schedulers
        .iter()
        .map(|scheduler| Channels {
            scheduler: scheduler.name.clone(),
            busy: mean(scheduler, Results::channel_shares),
            dies: mean(scheduler, Results::die_shares),
            planes: mean(scheduler, Results::plane_shares),
        })
        .collect();
    match all.iter().all(|channels| channels.busy.is_empty()) {
        true => Vec::new(),
        false => all,
    }
}

/// The block layer's operations, by their index in its counters.
const OPS: [&str; 4] = ["reads", "writes", "discards", "flushes"];

/// Limit on the sizes and processes shown separately: those with the most requests.
const KINDS_SHOWN: usize = 8;

/// A part of a request's time: its place, its name and its histogram.
type RequestTime = (Place, &'static str, fn(&RequestKind) -> &Histogram);

const PARTS: [RequestTime; 3] = [
    (Place::Queue, "from first to last", |kind| &kind.whole_ns),
    (Place::Scheduler, "in the scheduler", |kind| &kind.queued_ns),
    (Place::Drive, "in the drive", |kind| &kind.drive_ns),
];

/// Returns the facts on traced requests. Lost events are reported even if there are
/// none, because the other facts are only reliable then.
pub(super) fn request_facts(schedulers: &[SchedulerRuns]) -> Vec<FactRow> {
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

/// Returns the mean over fio's classes of depth, each taken at its lower bound.
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

fn by_direction(schedulers: &[SchedulerRuns], (place, where_, of): RequestTime) -> Vec<FactRow> {
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

/// Merges a histogram over the requests that `wanted` accepts; `None` if there are none.
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

/// Returns the facts by size and process, if a direction has more than one of them.
fn by_kind(schedulers: &[SchedulerRuns], (place, where_, of): RequestTime) -> Vec<FactRow> {
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

/// Returns the kinds with the most requests over all runs, sorted by operation, size and
/// process.
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
