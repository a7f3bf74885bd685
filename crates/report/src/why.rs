//! Why the figures are as they are: what the queue, the scheduler and the
//! drive counted, one value a scheduler.

use blklab_stats::{ChannelStats, DeviceStats, DiskStats, Results};
use serde::{Deserialize, Serialize};

use crate::comparison::SchedulerRuns;
use crate::observed::{cpu_facts, request_facts};

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
}

/// The facts, those that are nothing everywhere left out.
pub(crate) fn facts(schedulers: &[SchedulerRuns]) -> Vec<Fact> {
    let mut facts = queue_facts(schedulers);
    facts.extend(scheduler_facts(schedulers));
    facts.extend(drive_facts(schedulers));
    facts.extend(flash_facts(schedulers));
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

/// A count summed over the run's drives.
fn total(run: &Results, of: impl Fn(&DiskStats) -> u64) -> f64 {
    run.disks.iter().map(of).sum::<u64>() as f64
}

fn ratio(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}

fn queue_facts(schedulers: &[SchedulerRuns]) -> Vec<Fact> {
    let requests = |run: &Results| total(run, |d| d.queue.ios.iter().sum());
    let count = |name, of: fn(&DiskStats) -> u64| {
        let what = (Place::Queue, name, FactUnit::Count);
        fact(schedulers, what, move |run| Some(total(run, of)))
    };
    vec![
        count("requests to the drive", |d| d.queue.ios.iter().sum()),
        fact(
            schedulers,
            (Place::Queue, "mean size of a request", FactUnit::Bytes),
            |run| {
                let sectors = total(run, |d| d.queue.sectors.iter().sum());
                ratio(sectors * 512.0, requests(run))
            },
        ),
        count("merges of reads", |d| d.queue.merges[0]),
        count("merges of writes", |d| d.queue.merges[1]),
        fact(
            schedulers,
            (
                Place::Queue,
                "dispatches of more than one request",
                FactUnit::Share,
            ),
            |run| {
                let sum = |from: usize| {
                    total(run, |d| {
                        let hctx = d.queue.hctx.iter();
                        hctx.flat_map(|h| &h.dispatched[from..]).sum()
                    })
                };
                ratio(sum(2), sum(1))
            },
        ),
        fact(
            schedulers,
            (Place::Queue, "mean requests in flight", FactUnit::Ratio),
            |run| {
                let waited = total(run, |d| d.queue.time_in_queue_ns);
                ratio(waited, run.elapsed_ns as f64)
            },
        ),
        count("requeues", |d| d.queue.requeues),
        count("failed requests", |d| d.queue.errors),
    ]
}

/// The counters of all schedulers, each name once, in the order met.
fn scheduler_facts(schedulers: &[SchedulerRuns]) -> Vec<Fact> {
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
        let mut found = counters.filter(|c| c.name == name).peekable();
        found.peek()?;
        Some(found.map(|c| c.value).sum::<u64>() as f64)
    };
    names
        .into_iter()
        .map(|name| {
            let what = (Place::Scheduler, name, FactUnit::Count);
            fact(schedulers, what, |run| value_of(run, name))
        })
        .collect()
}

fn drive_facts(schedulers: &[SchedulerRuns]) -> Vec<Fact> {
    let reads = |run: &Results| total(run, |d| d.queue.ios[0]);
    let count = |name, of: fn(&DeviceStats) -> u64| {
        let what = (Place::Drive, name, FactUnit::Count);
        fact(schedulers, what, move |run| {
            Some(total(run, |d| of(&d.device)))
        })
    };
    vec![
        fact(
            schedulers,
            (Place::Drive, "channels busy, mean", FactUnit::Share),
            |run| mean(&channel_shares(run)),
        ),
        fact(
            schedulers,
            (
                Place::Drive,
                "busiest channel over the mean",
                FactUnit::Ratio,
            ),
            |run| {
                let shares = channel_shares(run);
                let busiest = shares.iter().copied().fold(0.0, f64::max);
                ratio(busiest, mean(&shares)?)
            },
        ),
        fact(
            schedulers,
            (
                Place::Drive,
                "channels' unevenness (deviation over mean)",
                FactUnit::Share,
            ),
            |run| variation(&channel_shares(run)),
        ),
        fact(
            schedulers,
            (
                Place::Drive,
                "dies' unevenness (deviation over mean)",
                FactUnit::Share,
            ),
            |run| variation(&die_shares(run)),
        ),
        count("reads that waited behind writes", |d| d.reads_behind_writes),
        fact(
            schedulers,
            (Place::Drive, "  of all reads", FactUnit::Share),
            |run| ratio(total(run, |d| d.device.reads_behind_writes), reads(run)),
        ),
        fact(
            schedulers,
            (
                Place::Drive,
                "  time they lost, in all",
                FactUnit::Nanoseconds,
            ),
            |run| Some(total(run, |d| d.device.reads_behind_writes_ns)),
        ),
        fact(
            schedulers,
            (
                Place::Drive,
                "  time they lost, each",
                FactUnit::Nanoseconds,
            ),
            |run| {
                let lost = total(run, |d| d.device.reads_behind_writes_ns);
                ratio(lost, total(run, |d| d.device.reads_behind_writes))
            },
        ),
        count("waits for a busy channel", |d| d.channel_conflicts),
        count("waits for a busy die", |d| d.die_conflicts),
        count("reads answered from the drive's cache", |d| {
            d.cache_read_hits
        }),
    ]
}

/// What the flash had to do for it.
fn flash_facts(schedulers: &[SchedulerRuns]) -> Vec<Fact> {
    let count = |name, of: fn(&DeviceStats) -> u64| {
        let what = (Place::Flash, name, FactUnit::Count);
        fact(schedulers, what, move |run| {
            Some(total(run, |d| of(&d.device)))
        })
    };
    vec![
        count("pages read", |d| d.flash_reads),
        count("pages programmed", |d| d.flash_programs),
        count("commands on several planes", |d| d.multi_plane_commands),
        count("programs and erases suspended", |d| d.suspensions),
        count("blocks erased", |d| d.flash_erases),
        fact(
            schedulers,
            (Place::Flash, "write amplification", FactUnit::Ratio),
            |run| {
                let programmed = total(run, |d| d.device.flash_sectors_programmed);
                ratio(programmed, total(run, |d| d.device.host_sectors_written))
            },
        ),
        count("blocks garbage-collected", |d| d.collection.blocks),
        count("  reads that came in its way", |d| {
            d.collection.reads_behind
        }),
        count("  writes that waited for it", |d| {
            d.collection.writes_stalled
        }),
        fact(
            schedulers,
            (
                Place::Flash,
                "map entries found in the map's cache",
                FactUnit::Share,
            ),
            |run| {
                let lookups = total(run, |d| d.device.map_lookups);
                ratio(total(run, |d| d.device.map_hits), lookups)
            },
        ),
        count("pages of the map read", |d| d.map_reads),
        count("pages of the map programmed", |d| d.map_programs),
    ]
}

/// How busy each channel of the run's drives was.
fn channel_shares(run: &Results) -> Vec<f64> {
    let channels = run.disks.iter().flat_map(|disk| &disk.device.channels);
    let busy_ns = |c: &ChannelStats| c.die_busy_ns.max(c.bus_busy_ns);
    let elapsed_ns = run.elapsed_ns.max(1) as f64;
    channels.map(|c| busy_ns(c) as f64 / elapsed_ns).collect()
}

/// How busy each die of the run's drives was.
fn die_shares(run: &Results) -> Vec<f64> {
    let dies = run.disks.iter().flat_map(|disk| &disk.device.dies);
    let elapsed_ns = run.elapsed_ns.max(1) as f64;
    dies.map(|die| die.busy_ns as f64 / elapsed_ns).collect()
}

fn mean(values: &[f64]) -> Option<f64> {
    ratio(values.iter().sum(), values.len() as f64)
}

/// The coefficient of variation: the deviation as a share of the mean.
fn variation(values: &[f64]) -> Option<f64> {
    let mean = mean(values)?;
    let squares = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>();
    ratio((squares / values.len() as f64).sqrt(), mean)
}

/// How busy the channels were under each scheduler; nothing for drives that
/// have none.
pub(crate) fn channels(schedulers: &[SchedulerRuns]) -> Vec<Channels> {
    let busy = |scheduler: &SchedulerRuns| {
        let mut sums: Vec<f64> = Vec::new();
        for run in &scheduler.runs {
            let shares = channel_shares(run);
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
            busy: busy(scheduler),
        })
        .collect();
    match all.iter().all(|channels| channels.busy.is_empty()) {
        true => Vec::new(),
        false => all,
    }
}
