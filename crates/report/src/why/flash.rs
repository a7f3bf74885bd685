//! What the flash had to do.

use blklab_stats::WearStats;

use super::{Fact, FactUnit, Facts, Place, mean};
use crate::comparison::SchedulerRuns;

pub(super) fn facts(schedulers: &[SchedulerRuns]) -> Vec<Fact> {
    let mut facts = Facts::of(Place::Flash, schedulers);
    operations(&mut facts);
    collection(&mut facts);
    stalls(&mut facts);
    wear(&mut facts);
    slc_cache(&mut facts);
    map(&mut facts);
    facts.list
}

fn operations(facts: &mut Facts<'_>) {
    facts.count("pages read", |d| d.device.flash_reads);
    facts.count("pages programmed", |d| d.device.flash_programs);
    facts.count("multi-plane commands", |d| d.device.multi_plane_commands);
    facts.count("programs and erases suspended", |d| d.device.suspensions);
    facts.count("cache reads", |d| d.device.cache_reads);
    facts.count("pages moved by copyback", |d| d.device.copybacks);
    facts.count("reads packed before older ones", |d| d.device.reads_packed);
    facts.count("reads clumped before ready data", |d| {
        d.device.reads_clumped
    });
    facts.count("blocks erased", |d| d.device.flash_erases);
    facts.quotient(
        FactUnit::Ratio,
        "write amplification",
        (
            |d| d.device.flash_sectors_programmed,
            |d| d.device.host_sectors_programmed,
        ),
    );
    facts.count("sectors overwritten in the cache", |d| {
        d.device.host_sectors_absorbed
    });
}

fn collection(facts: &mut Facts<'_>) {
    facts.count("blocks garbage-collected", |d| d.device.collection.blocks);
    facts.count("  that writes had crossed into and left in part", |d| {
        d.device.collection.blocks_partly_valid
    });
    facts.quotient(
        FactUnit::Nanoseconds,
        "  one took, mean",
        (
            |d| d.device.collection.busy_ns,
            |d| d.device.collection.blocks,
        ),
    );
    facts.longest("  one took, at most", |d| d.device.collection.longest_ns);
    facts.count("pages whose read waited behind collection", |d| {
        d.device.collection.reads_behind
    });
    facts.quotient(
        FactUnit::Nanoseconds,
        "  time they lost, each",
        (
            |d| d.device.collection.reads_behind_ns,
            |d| d.device.collection.reads_behind,
        ),
    );
    facts.longest("  time one lost, at most", |d| {
        d.device.collection.longest_read_wait_ns
    });
}

fn stalls(facts: &mut Facts<'_>) {
    facts.count("times that writes waited for a free block", |d| {
        d.device.collection.writes_stalled
    });
    facts.quotient(
        FactUnit::Nanoseconds,
        "  a wait, mean",
        (
            |d| d.device.collection.stalled_ns,
            |d| d.device.collection.writes_stalled,
        ),
    );
    facts.longest("  a wait, at most", |d| {
        d.device.collection.longest_stall_ns
    });
}

fn wear(facts: &mut Facts<'_>) {
    let mut erases = |name, of: fn(&WearStats) -> f64| {
        facts.add(FactUnit::Ratio, name, |run| {
            let drives = run.disks.iter().filter(|d| !d.device.dies.is_empty());
            let worn: Vec<f64> = drives.map(|d| of(&d.device.wear)).collect();
            mean(&worn)
        });
    };
    erases("erases of a block, mean", |w| w.mean_erases);
    erases("  of the least worn block", |w| w.min_erases as f64);
    erases("  of the most worn block", |w| w.max_erases as f64);
}

fn slc_cache(facts: &mut Facts<'_>) {
    let found = "host's sectors that found room in the SLC cache";
    facts.quotient(
        FactUnit::Share,
        found,
        (
            |d| d.device.slc.sectors_written,
            |d| d.device.slc.sectors_written + d.device.slc.sectors_past,
        ),
    );
    facts.count("pages of the SLC cache read", |d| d.device.slc.pages_read);
    facts.count("blocks of the SLC cache folded", |d| {
        d.device.slc.blocks_folded
    });
}

fn map(facts: &mut Facts<'_>) {
    let found = "map entries found in the map's cache";
    facts.quotient(
        FactUnit::Share,
        found,
        (|d| d.device.map_hits, |d| d.device.map_lookups),
    );
    facts.count("logs that became data blocks as they were", |d| {
        d.device.merges.switched
    });
    facts.count("  that took the rest from the old block", |d| {
        d.device.merges.partial
    });
    facts.count("data blocks written anew from logs", |d| {
        d.device.merges.full
    });
    facts.longest("  a merge, at most", |d| d.device.merges.longest_ns);
    facts.count("pages of the map read", |d| d.device.map_reads);
    facts.count("pages of the map programmed", |d| d.device.map_programs);
    facts.count("pages of the map moved by collection", |d| {
        d.device.map_pages_moved
    });
}
