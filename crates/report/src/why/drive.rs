//! What the drive counted: how much of it worked at once, who waited for whom,
//! and what a loss of power cost.

use blklab_stats::{DiskStats, PowerLoss, Wait, WaitCounts};

use super::busy::{channel_shares, die_shares, of_channels, of_dies, plane_shares, variation};
use super::{Fact, FactUnit, Facts, Place, mean, ratio, total};
use crate::comparison::SchedulerRuns;

pub(super) fn facts(schedulers: &[SchedulerRuns]) -> Vec<Fact> {
    let mut facts = Facts::of(Place::Drive, schedulers);
    parallelism(&mut facts);
    queues_inside(&mut facts);
    reads_behind_writes(&mut facts);
    waits(&mut facts);
    read_cache(&mut facts);
    power(&mut facts);
    facts.list
}

fn parallelism(facts: &mut Facts<'_>) {
    facts.add(FactUnit::Share, "channels busy, mean", |run| {
        mean(&channel_shares(run))
    });
    facts.add(FactUnit::Share, "  their buses alone", |run| {
        mean(&of_channels(run, |c| c.bus_busy_ns))
    });
    facts.add(FactUnit::Ratio, "busiest channel over the mean", |run| {
        let shares = channel_shares(run);
        let busiest = shares.iter().copied().fold(0.0, f64::max);
        ratio(busiest, mean(&shares)?)
    });
    let uneven = "channels' spread (stddev/mean)";
    facts.add(FactUnit::Share, uneven, |run| {
        variation(&channel_shares(run))
    });
    facts.add(FactUnit::Share, "dies busy, mean", |run| {
        mean(&die_shares(run))
    });
    let uneven = "dies' spread (stddev/mean)";
    facts.add(FactUnit::Share, uneven, |run| variation(&die_shares(run)));
    facts.add(FactUnit::Share, "planes busy, mean", |run| {
        mean(&plane_shares(run))
    });
}

fn queues_inside(facts: &mut Facts<'_>) {
    let longest = |lengths: &mut dyn Iterator<Item = u32>| lengths.max().map(f64::from);
    facts.add(FactUnit::Ratio, "queue of a die, mean", |run| {
        mean(&of_dies(run, |die| die.queue_ns))
    });
    facts.add(FactUnit::Count, "  longest", |run| {
        let dies = run.disks.iter().flat_map(|disk| &disk.device.dies);
        longest(&mut dies.map(|die| die.longest_queue))
    });
    let waiting = "dies that wait for a channel, mean";
    facts.add(FactUnit::Ratio, waiting, |run| {
        mean(&of_channels(run, |c| c.queue_ns))
    });
    facts.add(FactUnit::Count, "  most at once", |run| {
        let channels = run.disks.iter().flat_map(|disk| &disk.device.channels);
        longest(&mut channels.map(|c| c.longest_queue))
    });
}

fn reads_behind_writes(facts: &mut Facts<'_>) {
    facts.count("pages whose read waited behind writes", |d| {
        d.device.reads_behind_writes
    });
    facts.quotient(
        FactUnit::Ratio,
        "  for each read of the host",
        (|d| d.device.reads_behind_writes, |d| d.queue.ios[0]),
    );
    facts.add(FactUnit::Nanoseconds, "  time they lost, in all", |run| {
        Some(total(run, |d| d.device.reads_behind_writes_ns))
    });
    facts.quotient(
        FactUnit::Nanoseconds,
        "  time they lost, each",
        (
            |d| d.device.reads_behind_writes_ns,
            |d| d.device.reads_behind_writes,
        ),
    );
}

fn waits(facts: &mut Facts<'_>) {
    waits_of(facts, "reads", |disk| &disk.device.read_waits);
    waits_of(facts, "writes", |disk| &disk.device.write_waits);
    facts.count("reads answered from the drive's cache", |d| {
        d.device.cache_read_hits
    });
    let fetching = "time in submission queues, each command";
    facts.quotient(
        FactUnit::Nanoseconds,
        fetching,
        (
            |d| d.device.fetches.wait_ns.iter().sum(),
            |d| d.device.fetches.commands.iter().sum(),
        ),
    );
}

/// Which share of the requests waited, and for what.
fn waits_of(facts: &mut Facts<'_>, requests: &str, of: fn(&DiskStats) -> &WaitCounts) {
    let all = |disk: &DiskStats| of(disk).requests();
    let waited = format!("{requests} that waited inside");
    let share = (|disk: &DiskStats| of(disk).waited(), all);
    facts.quotient(FactUnit::Share, &waited, share);
    for wait in Wait::ALL {
        let share = (move |disk: &DiskStats| of(disk).waited_for(wait), all);
        facts.quotient(
            FactUnit::Share,
            &format!("  {requests}, for {}", wait.name()),
            share,
        );
    }
}

fn read_cache(facts: &mut Facts<'_>) {
    let found = "map units found in the read cache";
    facts.quotient(
        FactUnit::Share,
        found,
        (
            |d| d.device.read_cache_hits,
            |d| d.device.read_cache_lookups,
        ),
    );
    facts.count("map units read ahead", |d| d.device.read_ahead_units);
    let used = "map units read ahead and then used";
    facts.quotient(
        FactUnit::Share,
        used,
        (
            |d| d.device.read_ahead_units_used,
            |d| d.device.read_ahead_units,
        ),
    );
}

fn power(facts: &mut Facts<'_>) {
    let mut of_losses = |unit, name, of: fn(&PowerLoss) -> u64| {
        facts.add(unit, name, |run| {
            let losses = run.disks.iter().filter_map(|d| d.power_loss.as_ref());
            losses.map(of).reduce(|a, b| a + b).map(|sum| sum as f64)
        });
    };
    let (count, time) = (FactUnit::Count, FactUnit::Nanoseconds);
    of_losses(count, "requests that a loss of power ended", |loss| {
        loss.failed.iter().sum()
    });
    of_losses(count, "acknowledged sectors that went with it", |loss| {
        loss.lost_acknowledged_sectors
    });
    of_losses(time, "time until the drive was ready again", |loss| {
        loss.ready_ns - loss.at_ns
    });
}
