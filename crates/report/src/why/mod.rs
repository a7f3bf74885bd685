//! Why the figures are as they are: what the queue, the scheduler and the
//! drive counted, one value a scheduler.

mod busy;
mod disk;
mod drive;
mod flash;
mod queue;

use blklab_stats::{DiskStats, Results};
use serde::{Deserialize, Serialize};

use crate::comparison::SchedulerRuns;
use crate::observed::{cpu_facts, request_facts};

pub(crate) use busy::channels;

/// Where a fact was counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Place {
    /// The block layer's queue.
    Queue,
    /// The scheduler itself.
    Scheduler,
    /// The drive.
    Drive,
    /// The flash inside it.
    Flash,
    /// The host's CPUs.
    Cpus,
}

impl Place {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Place::Queue => "queue",
            Place::Scheduler => "scheduler",
            Place::Drive => "drive",
            Place::Flash => "flash",
            Place::Cpus => "CPUs",
        }
    }
}

/// What a fact is counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FactUnit {
    /// Things.
    Count,
    /// Bytes.
    Bytes,
    /// Nanoseconds.
    Nanoseconds,
    /// A share: 1 is all.
    Share,
    /// A plain number.
    Ratio,
}

/// One fact for all schedulers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Fact {
    /// Where it was counted.
    pub place: Place,
    /// What it is.
    pub name: String,
    /// What it is counted in.
    pub unit: FactUnit,
    /// The mean over repeats, by scheduler; `None` where the scheduler or the
    /// drive does not know it.
    pub values: Vec<Option<f64>>,
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

/// The facts, those that are nothing everywhere left out.
pub(crate) fn facts(schedulers: &[SchedulerRuns]) -> Vec<Fact> {
    let mut facts = queue::facts(schedulers);
    facts.extend(queue::scheduler_facts(schedulers));
    facts.extend(drive::facts(schedulers));
    facts.extend(disk::facts(schedulers));
    facts.extend(flash::facts(schedulers));
    facts.extend(cpu_facts(schedulers));
    facts.retain(|fact| fact.values.iter().flatten().any(|value| *value != 0.0));
    facts.extend(request_facts(schedulers));
    facts.sort_by_key(|fact| fact.place);
    facts
}

/// A fact taken from each run.
pub(crate) fn fact(
    schedulers: &[SchedulerRuns],
    (place, name, unit): (Place, &str, FactUnit),
    of: impl Fn(&Results) -> Option<f64>,
) -> Fact {
    let mean_of = |scheduler: &SchedulerRuns| {
        let known: Vec<f64> = scheduler.runs.iter().filter_map(&of).collect();
        (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
    };
    Fact {
        place,
        name: name.to_string(),
        unit,
        values: schedulers.iter().map(mean_of).collect(),
    }
}

/// Facts of one place, in the order in which they are shown.
struct Facts<'a> {
    schedulers: &'a [SchedulerRuns],
    place: Place,
    list: Vec<Fact>,
}

impl<'a> Facts<'a> {
    fn of(place: Place, schedulers: &'a [SchedulerRuns]) -> Facts<'a> {
        Facts {
            schedulers,
            place,
            list: Vec::new(),
        }
    }

    /// Something worked out for each run.
    fn add(&mut self, unit: FactUnit, name: &str, of: impl Fn(&Results) -> Option<f64>) {
        let what = (self.place, name, unit);
        self.list.push(fact(self.schedulers, what, of));
    }

    /// A count summed over the run's drives.
    fn count(&mut self, name: &str, of: impl Fn(&DiskStats) -> u64) {
        self.add(FactUnit::Count, name, |run| Some(total(run, &of)));
    }

    /// One sum over the run's drives divided by another.
    fn quotient(
        &mut self,
        unit: FactUnit,
        name: &str,
        (part, whole): (impl Fn(&DiskStats) -> u64, impl Fn(&DiskStats) -> u64),
    ) {
        self.add(unit, name, |run| {
            ratio(total(run, &part), total(run, &whole))
        });
    }

    /// The greatest among the run's drives, in nanoseconds.
    fn longest(&mut self, name: &str, of: impl Fn(&DiskStats) -> u64) {
        self.add(FactUnit::Nanoseconds, name, |run| {
            run.disks.iter().map(&of).max().map(|ns| ns as f64)
        });
    }
}

/// A count summed over the run's drives.
fn total(run: &Results, of: impl Fn(&DiskStats) -> u64) -> f64 {
    run.disks.iter().map(of).sum::<u64>() as f64
}

fn ratio(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}

fn mean(values: &[f64]) -> Option<f64> {
    ratio(values.iter().sum(), values.len() as f64)
}

/// The time over which a run counted: what a ramp did is forgotten.
fn counted_ns(run: &Results) -> f64 {
    let disks = run.disks.iter();
    let longest_ns = disks.map(|disk| disk.counted_in_ns(run.elapsed_ns)).max();
    longest_ns.unwrap_or(run.elapsed_ns).max(1) as f64
}
