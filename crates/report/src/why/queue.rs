//! What the block layer's queue counted, and the scheduler.

use blklab_stats::{DiskStats, Results};

use super::{Fact, FactUnit, Facts, Place, counted_ns, fact, ratio, total};
use crate::comparison::SchedulerRuns;

pub(super) fn facts(schedulers: &[SchedulerRuns]) -> Vec<Fact> {
    let mut facts = Facts::of(Place::Queue, schedulers);
    facts.count("requests to the drive", requests);
    facts.add(FactUnit::Bytes, "mean size of a request", |run| {
        let sectors = total(run, |d| d.queue.sectors.iter().sum());
        ratio(sectors * 512.0, total(run, requests))
    });
    facts.count("merges of reads", |d| d.queue.merges[0]);
    facts.count("merges of writes", |d| d.queue.merges[1]);
    let together = "dispatches of more than one request";
    facts.quotient(
        FactUnit::Share,
        together,
        (|d| dispatches(d, 2), |d| dispatches(d, 1)),
    );
    facts.add(FactUnit::Ratio, "mean requests in flight", |run| {
        let waited = total(run, |d| d.queue.time_in_queue_ns);
        ratio(waited, counted_ns(run))
    });
    facts.count("requeues", |d| d.queue.requeues);
    facts.count("failed requests", |d| d.queue.errors);
    facts.list
}

fn requests(disk: &DiskStats) -> u64 {
    disk.queue.ios.iter().sum()
}

/// Runs of hardware queues that took so many requests or more.
fn dispatches(disk: &DiskStats, requests: usize) -> u64 {
    let hctx = disk.queue.hctx.iter();
    hctx.flat_map(|h| &h.dispatched[requests..]).sum()
}

/// The counters of all schedulers, each name once, in the order met.
pub(super) fn scheduler_facts(schedulers: &[SchedulerRuns]) -> Vec<Fact> {
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
