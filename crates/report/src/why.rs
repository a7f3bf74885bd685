//! Why the figures are as they are: what the queue, the scheduler and the
//! drive counted, one value a scheduler.

use blklab_stats::{Place, Results, Unit};
use serde::{Deserialize, Serialize};

use crate::comparison::SchedulerRuns;
use crate::observed::request_facts;

/// A fact's values, one a scheduler.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FactRow {
    /// Where it was counted.
    pub place: Place,
    /// What it is.
    pub name: String,
    /// What it is counted in.
    pub unit: Unit,
    /// The mean over repeats, by scheduler; `None` where the scheduler or the
    /// drive does not know it.
    pub values: Vec<Option<f64>>,
}

impl FactRow {
    /// A row with its value taken from each run.
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
            name: name.to_string(),
            unit,
            values: schedulers.iter().map(mean_of).collect(),
        }
    }

    /// Whether there is anything in it.
    pub(crate) fn is_something(&self) -> bool {
        self.values.iter().flatten().any(|value| *value != 0.0)
    }
}

/// The facts, those that are nothing everywhere left out.
pub(crate) fn facts(schedulers: &[SchedulerRuns]) -> Vec<FactRow> {
    let mut declared = blklab_stats::facts();
    declared.sort_by_key(|fact| (fact.place, rank(fact.key)));
    let declared = declared.into_iter().map(|fact| {
        let what = (fact.place, fact.label, fact.unit);
        FactRow::new(schedulers, what, |run| fact.of(run))
    });
    let mut rows: Vec<FactRow> = declared.chain(scheduler_facts(schedulers)).collect();
    rows.retain(FactRow::is_something);
    rows.extend(request_facts(schedulers));
    rows.sort_by_key(|row| row.place);
    rows
}

/// Where a fact stands within its place.
fn rank(key: &str) -> usize {
    const ORDER: [&str; 20] = [
        "reads_behind",
        "reads_waited",
        "writes_waited",
        "cache_read_hits",
        "fetch",
        "read_",
        "power_loss",
        "arm_head_switch_ns_share",
        "arm_rotation_ns_share",
        "arm_transfer_ns_share",
        "arm",
        "flash_erases",
        "flash_sectors",
        "host_sectors_absorbed",
        "collection",
        "wear",
        "slc",
        "map_hits",
        "merges",
        "map",
    ];
    let at = ORDER.iter().position(|prefix| key.starts_with(prefix));
    at.map_or(0, |at| at + 1)
}

/// The counters of all schedulers, each name once, in the order met.
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

/// How busy the channels of a drive were under one scheduler.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Channels {
    /// The scheduler.
    pub scheduler: String,
    /// Share of the run in which each channel had a busy die, over repeats;
    /// the channels of several drives one after the other.
    pub busy: Vec<f64>,
    /// Share of the run in which each die's array was busy, likewise.
    #[serde(default)]
    pub dies: Vec<f64>,
    /// The same of each plane.
    #[serde(default)]
    pub planes: Vec<f64>,
}

/// How busy the channels were under each scheduler; nothing for drives that
/// have none.
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
