//! What a disk's arm, platters and buffer had to do.

use blklab_stats::{ArmStats, DiskStats};

use super::{Fact, FactUnit, Facts, Place, counted_ns, ratio, total};
use crate::comparison::SchedulerRuns;

type Of = fn(&ArmStats) -> u64;

pub(super) fn facts(schedulers: &[SchedulerRuns]) -> Vec<Fact> {
    let mut facts = Arms(Facts::of(Place::Drive, schedulers));
    facts.platters();
    facts.buffer();
    facts.0.list
}

/// Facts of the arms of a run's disks.
struct Arms<'a>(Facts<'a>);

impl Arms<'_> {
    fn platters(&mut self) {
        self.share("arm seeking or changing heads", |a| {
            a.seek_ns + a.head_switch_ns
        });
        self.share("heads waiting for their block to come around", |a| {
            a.rotation_ns
        });
        self.share("blocks passing under the heads", |a| a.transfer_ns);
        self.count("seeks", |a| a.seeks);
        let crossed: (Of, Of) = (|a| a.seek_cylinders, |a| a.seeks);
        self.each(FactUnit::Ratio, "  cylinders crossed, mean", crossed);
        self.time("  one took, mean", (|a| a.seek_ns, |a| a.seeks));
        self.count("head switches", |a| a.head_switches);
        self.count("waits for rotation", |a| a.rotation_waits);
        self.time(
            "  one took, mean",
            (|a| a.rotation_ns, |a| a.rotation_waits),
        );
        self.count("reads from the platters", |a| a.reads);
        self.count("  that reading ahead was about to reach", |a| {
            a.reads_streamed
        });
        self.count("writes to the platters", |a| a.writes);
        self.count("blocks read because they were written in part", |a| {
            a.blocks_completed
        });
    }

    fn buffer(&mut self) {
        self.count("writes that ended in the buffer", |a| a.writes_buffered);
        self.count("  that waited for room in it", |a| a.writes_waited);
        self.count("runs written out of the buffer", |a| a.destages);
        let sectors: (Of, Of) = (|a| a.sectors_destaged, |a| a.destages);
        self.each(FactUnit::Ratio, "  sectors of one, mean", sectors);
        self.count("flushes of the buffer", |a| a.flushes);
        self.time("  one took, mean", (|a| a.flush_ns, |a| a.flushes));
    }

    fn count(&mut self, name: &str, of: Of) {
        self.0.count(name, |disk| of_arm(disk, of));
    }

    /// What one arm has of the time.
    fn share(&mut self, name: &str, of: Of) {
        self.0.add(FactUnit::Share, name, |run| {
            let disks = run.disks.iter().filter(|d| d.device.arm.is_some()).count();
            let busy_ns = total(run, |disk| of_arm(disk, of));
            ratio(busy_ns, counted_ns(run) * disks as f64)
        });
    }

    fn each(&mut self, unit: FactUnit, name: &str, (sum, count): (Of, Of)) {
        let sum = |disk: &DiskStats| of_arm(disk, sum);
        let count = |disk: &DiskStats| of_arm(disk, count);
        self.0.quotient(unit, name, (sum, count));
    }

    fn time(&mut self, name: &str, of: (Of, Of)) {
        self.each(FactUnit::Nanoseconds, name, of);
    }
}

fn of_arm(disk: &DiskStats, of: Of) -> u64 {
    disk.device.arm.as_ref().map_or(0, of)
}
