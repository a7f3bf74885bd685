//! Why the figures are as they are: what the queue, the scheduler and the
//! drive counted, one value a scheduler.

use blklab_stats::{
    ArmStats, ChannelStats, DeviceStats, DieStats, DiskStats, PowerLoss, Results, WearStats,
};
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
    /// Share of the run in which each die's array was busy, likewise.
    #[serde(default)]
    pub dies: Vec<f64>,
    /// The same of each plane.
    #[serde(default)]
    pub planes: Vec<f64>,
}

/// The facts, those that are nothing everywhere left out.
pub(crate) fn facts(schedulers: &[SchedulerRuns]) -> Vec<Fact> {
    let mut facts = queue_facts(schedulers);
    facts.extend(scheduler_facts(schedulers));
    facts.extend(drive_facts(schedulers));
    facts.extend(power_facts(schedulers));
    facts.extend(disk_facts(schedulers));
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
                ratio(waited, counted_ns(run))
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
    let share = |name, of: fn(&Results) -> Option<f64>| {
        fact(schedulers, (Place::Drive, name, FactUnit::Share), of)
    };
    let number = |name, of: fn(&Results) -> Option<f64>| {
        fact(schedulers, (Place::Drive, name, FactUnit::Ratio), of)
    };
    vec![
        share("channels busy, mean", |run| mean(&channel_shares(run))),
        share("  their buses alone", |run| {
            mean(&of_channels(run, |c| c.bus_busy_ns))
        }),
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
        share("dies busy, mean", |run| mean(&die_shares(run))),
        share("dies' unevenness (deviation over mean)", |run| {
            variation(&die_shares(run))
        }),
        share("planes busy, mean", |run| mean(&plane_shares(run))),
        number("queue of a die, mean", |run| {
            mean(&of_dies(run, |die| die.queue_ns))
        }),
        number("  longest", |run| {
            let dies = run.disks.iter().flat_map(|disk| &disk.device.dies);
            longest(dies.map(|die| die.longest_queue))
        }),
        number("dies that wait for a channel, mean", |run| {
            mean(&of_channels(run, |c| c.queue_ns))
        }),
        number("  most at once", |run| {
            let channels = run.disks.iter().flat_map(|disk| &disk.device.channels);
            longest(channels.map(|c| c.longest_queue))
        }),
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
        fact(
            schedulers,
            (
                Place::Drive,
                "time in submission queues, each command",
                FactUnit::Nanoseconds,
            ),
            |run| {
                let sum = |of: fn(&DiskStats) -> &[u64; 4]| total(run, |d| of(d).iter().sum());
                let waited = sum(|d| &d.device.fetches.wait_ns);
                ratio(waited, sum(|d| &d.device.fetches.commands))
            },
        ),
        fact(
            schedulers,
            (
                Place::Drive,
                "map units found in the read cache",
                FactUnit::Share,
            ),
            |run| {
                let lookups = total(run, |d| d.device.read_cache_lookups);
                ratio(total(run, |d| d.device.read_cache_hits), lookups)
            },
        ),
        count("map units read ahead", |d| d.read_ahead_units),
        fact(
            schedulers,
            (
                Place::Drive,
                "map units read ahead and then used",
                FactUnit::Share,
            ),
            |run| {
                let ahead = total(run, |d| d.device.read_ahead_units);
                ratio(total(run, |d| d.device.read_ahead_units_used), ahead)
            },
        ),
    ]
}

/// What a loss of power cost.
fn power_facts(schedulers: &[SchedulerRuns]) -> Vec<Fact> {
    let of_losses = |name, unit, of: fn(&PowerLoss) -> u64| {
        fact(schedulers, (Place::Drive, name, unit), move |run| {
            let losses = run.disks.iter().filter_map(|d| d.power_loss.as_ref());
            losses.map(of).reduce(|a, b| a + b).map(|sum| sum as f64)
        })
    };
    let (count, time) = (FactUnit::Count, FactUnit::Nanoseconds);
    vec![
        of_losses("requests that a loss of power ended", count, |loss| {
            loss.failed.iter().sum()
        }),
        of_losses("acknowledged sectors that went with it", count, |loss| {
            loss.lost_acknowledged_sectors
        }),
        of_losses("time until the drive was ready again", time, |loss| {
            loss.ready_ns - loss.at_ns
        }),
    ]
}

/// What a disk's arm, platters and buffer had to do for it.
fn disk_facts(schedulers: &[SchedulerRuns]) -> Vec<Fact> {
    type Of = fn(&ArmStats) -> u64;
    let arms = |run: &Results, of: Of| total(run, |d| d.device.arm.as_ref().map_or(0, of));
    let count = |name, of: Of| {
        let what = (Place::Drive, name, FactUnit::Count);
        fact(schedulers, what, move |run| Some(arms(run, of)))
    };
    let share = |name, of: Of| {
        let what = (Place::Drive, name, FactUnit::Share);
        fact(schedulers, what, move |run| {
            let disks = run.disks.iter().filter(|d| d.device.arm.is_some()).count();
            ratio(arms(run, of), counted_ns(run) * disks as f64)
        })
    };
    let each = |name, unit, sum: Of, count: Of| {
        fact(schedulers, (Place::Drive, name, unit), move |run| {
            ratio(arms(run, sum), arms(run, count))
        })
    };
    let ns = FactUnit::Nanoseconds;
    vec![
        share("arm seeking or changing heads", |a| {
            a.seek_ns + a.head_switch_ns
        }),
        share("heads waiting for their block to come around", |a| {
            a.rotation_ns
        }),
        share("blocks passing under the heads", |a| a.transfer_ns),
        count("seeks", |a| a.seeks),
        each(
            "  cylinders crossed, mean",
            FactUnit::Ratio,
            |a| a.seek_cylinders,
            |a| a.seeks,
        ),
        each("  one took, mean", ns, |a| a.seek_ns, |a| a.seeks),
        count("head switches", |a| a.head_switches),
        count("waits for rotation", |a| a.rotation_waits),
        each(
            "  one took, mean",
            ns,
            |a| a.rotation_ns,
            |a| a.rotation_waits,
        ),
        count("reads from the platters", |a| a.reads),
        count("  that reading ahead was about to reach", |a| {
            a.reads_streamed
        }),
        count("writes to the platters", |a| a.writes),
        count("blocks read because they were written in part", |a| {
            a.blocks_completed
        }),
        count("writes that ended in the buffer", |a| a.writes_buffered),
        count("  that waited for room in it", |a| a.writes_waited),
        count("runs written out of the buffer", |a| a.destages),
        each(
            "  sectors of one, mean",
            FactUnit::Ratio,
            |a| a.sectors_destaged,
            |a| a.destages,
        ),
        count("flushes of the buffer", |a| a.flushes),
        each("  one took, mean", ns, |a| a.flush_ns, |a| a.flushes),
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
    let pause = |name, of: fn(&Results) -> Option<f64>| {
        fact(schedulers, (Place::Flash, name, FactUnit::Nanoseconds), of)
    };
    let wear = |name, of: fn(&WearStats) -> f64| {
        let what = (Place::Flash, name, FactUnit::Ratio);
        fact(schedulers, what, move |run| {
            let drives = run.disks.iter().filter(|d| !d.device.dies.is_empty());
            let worn: Vec<f64> = drives.map(|d| of(&d.device.wear)).collect();
            mean(&worn)
        })
    };
    vec![
        count("pages read", |d| d.flash_reads),
        count("pages programmed", |d| d.flash_programs),
        count("commands on several planes", |d| d.multi_plane_commands),
        count("programs and erases suspended", |d| d.suspensions),
        count("cache reads", |d| d.cache_reads),
        count("pages moved by copyback", |d| d.copybacks),
        count("reads packed before older ones", |d| d.reads_packed),
        count("reads clumped before ready data", |d| d.reads_clumped),
        count("blocks erased", |d| d.flash_erases),
        fact(
            schedulers,
            (Place::Flash, "write amplification", FactUnit::Ratio),
            |run| {
                let programmed = total(run, |d| d.device.flash_sectors_programmed);
                ratio(programmed, total(run, |d| d.device.host_sectors_programmed))
            },
        ),
        count("sectors overwritten in the cache", |d| {
            d.host_sectors_absorbed
        }),
        count("blocks garbage-collected", |d| d.collection.blocks),
        count("  that writes had crossed into and left in part", |d| {
            d.collection.blocks_partly_valid
        }),
        pause("  one took, mean", |run| {
            let busy_ns = total(run, |d| d.device.collection.busy_ns);
            ratio(busy_ns, total(run, |d| d.device.collection.blocks))
        }),
        pause("  one took, at most", |run| {
            most(run, |d| d.collection.longest_ns)
        }),
        count("reads that found their die collecting", |d| {
            d.collection.reads_behind
        }),
        pause("  time they lost, each", |run| {
            let lost_ns = total(run, |d| d.device.collection.reads_behind_ns);
            ratio(lost_ns, total(run, |d| d.device.collection.reads_behind))
        }),
        pause("  time one lost, at most", |run| {
            most(run, |d| d.collection.longest_read_wait_ns)
        }),
        count("times that writes waited for a free block", |d| {
            d.collection.writes_stalled
        }),
        pause("  a time, mean", |run| {
            let stalled_ns = total(run, |d| d.device.collection.stalled_ns);
            ratio(
                stalled_ns,
                total(run, |d| d.device.collection.writes_stalled),
            )
        }),
        pause("  a time, at most", |run| {
            most(run, |d| d.collection.longest_stall_ns)
        }),
        wear("erases of a block, mean", |w| w.mean_erases),
        wear("  of the least worn block", |w| w.min_erases as f64),
        wear("  of the most worn block", |w| w.max_erases as f64),
        fact(
            schedulers,
            (
                Place::Flash,
                "host's sectors that found room in the SLC cache",
                FactUnit::Share,
            ),
            |run| {
                let cached = total(run, |d| d.device.slc.sectors_written);
                ratio(cached, cached + total(run, |d| d.device.slc.sectors_past))
            },
        ),
        count("pages of the SLC cache read", |d| d.slc.pages_read),
        count("blocks of the SLC cache folded", |d| d.slc.blocks_folded),
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
        count("logs that became data blocks as they were", |d| {
            d.merges.switched
        }),
        count("  that took the rest from the old block", |d| {
            d.merges.partial
        }),
        count("data blocks written anew from logs", |d| d.merges.full),
        pause("  a merge, at most", |run| {
            most(run, |d| d.merges.longest_ns)
        }),
        count("pages of the map read", |d| d.map_reads),
        count("pages of the map programmed", |d| d.map_programs),
        count("pages of the map moved by collection", |d| {
            d.map_pages_moved
        }),
    ]
}

/// The most of a time over the run's drives.
fn most(run: &Results, of: impl Fn(&DeviceStats) -> u64) -> Option<f64> {
    let times = run.disks.iter().map(|disk| of(&disk.device));
    times.max().map(|ns| ns as f64)
}

/// The time over which a run counted: what a ramp did is forgotten.
fn counted_ns(run: &Results) -> f64 {
    let longest_ns = run.disks.iter().map(|disk| disk.counted_ns).max();
    match longest_ns {
        None | Some(0) => run.elapsed_ns.max(1) as f64,
        Some(ns) => ns as f64,
    }
}

/// What each channel of the run's drives has of the time.
fn of_channels(run: &Results, of: impl Fn(&ChannelStats) -> u64) -> Vec<f64> {
    let channels = run.disks.iter().flat_map(|disk| &disk.device.channels);
    channels.map(|c| of(c) as f64 / counted_ns(run)).collect()
}

/// What each die of the run's drives has of the time.
fn of_dies(run: &Results, of: impl Fn(&DieStats) -> u64) -> Vec<f64> {
    let dies = run.disks.iter().flat_map(|disk| &disk.device.dies);
    dies.map(|die| of(die) as f64 / counted_ns(run)).collect()
}

/// How busy each channel of the run's drives was.
fn channel_shares(run: &Results) -> Vec<f64> {
    of_channels(run, |c| c.die_busy_ns.max(c.bus_busy_ns))
}

/// How busy each die of the run's drives was.
fn die_shares(run: &Results) -> Vec<f64> {
    of_dies(run, |die| die.busy_ns)
}

/// How busy each plane of the run's drives was.
fn plane_shares(run: &Results) -> Vec<f64> {
    let dies = run.disks.iter().flat_map(|disk| &disk.device.dies);
    let planes = dies.flat_map(|die| &die.plane_busy_ns);
    planes.map(|ns| *ns as f64 / counted_ns(run)).collect()
}

/// The longest over all dies of the run's drives, or all channels.
fn longest(lengths: impl Iterator<Item = u32>) -> Option<f64> {
    lengths.max().map(f64::from)
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
            busy: mean(scheduler, channel_shares),
            dies: mean(scheduler, die_shares),
            planes: mean(scheduler, plane_shares),
        })
        .collect();
    match all.iter().all(|channels| channels.busy.is_empty()) {
        true => Vec::new(),
        false => all,
    }
}
