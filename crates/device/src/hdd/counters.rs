//! Counters of the heads.
//!
//! The time of an access is known when it begins, and counted as it passes, so that
//! counters that are read or reset meanwhile have only the part until then.

use alloc::vec::Vec;

use blklab_stats::ArmStats;

use super::buffer::SectorRun;
use super::mechanics::Access;

/// What the heads have done, and their access in progress.
#[derive(Clone, Debug, Default)]
pub(super) struct Counters {
    pub(super) done: ArmStats,
    /// The parts of accesses that have begun and are not counted yet, in order.
    uncounted: Vec<TimeSpan>,
}

#[derive(Clone, Copy, Debug)]
struct TimeSpan {
    phase: AccessPhase,
    start_ns: u64,
    end_ns: u64,
}

#[derive(Clone, Copy, Debug)]
enum AccessPhase {
    Seek,
    HeadSwitch,
    Rotation,
    Transfer,
}

impl Counters {
    /// The counters until now.
    pub(super) fn until(&self, now_ns: u64) -> ArmStats {
        let mut counts = self.clone();
        counts.count_time(now_ns);
        counts.done
    }

    /// Counts the time until now.
    pub(super) fn count_time(&mut self, now_ns: u64) {
        for span in &mut self.uncounted {
            let until_ns = span.end_ns.min(now_ns).max(span.start_ns);
            let sum_ns = match span.phase {
                AccessPhase::Seek => &mut self.done.seek_ns,
                AccessPhase::HeadSwitch => &mut self.done.head_switch_ns,
                AccessPhase::Rotation => &mut self.done.rotation_ns,
                AccessPhase::Transfer => &mut self.done.transfer_ns,
            };
            *sum_ns += until_ns - span.start_ns;
            span.start_ns = until_ns;
        }
        self.uncounted.retain(|span| span.start_ns < span.end_ns);
    }

    /// Counts from now on.
    pub(super) fn reset(&mut self, now_ns: u64) {
        self.count_time(now_ns);
        self.done = ArmStats::default();
    }

    /// Ends the access in progress.
    pub(super) fn stop(&mut self, now_ns: u64) {
        self.count_time(now_ns);
        self.uncounted.clear();
    }

    /// Counts an access from its start.
    pub(super) fn access(&mut self, start_ns: u64, access: &Access) {
        let mut moving = AccessPhase::Seek;
        match access.cylinders {
            0 => {
                self.done.head_switches += (access.seek_ns > 0) as u64;
                moving = AccessPhase::HeadSwitch;
            }
            cylinders => {
                self.done.seeks += 1;
                self.done.seek_cylinders += cylinders as u64;
            }
        }
        self.done.rotation_waits += (access.rotation_ns > 0) as u64;
        let there_ns = self.add(moving, start_ns, access.seek_ns);
        let around_ns = self.add(AccessPhase::Rotation, there_ns, access.rotation_ns);
        self.add(AccessPhase::Transfer, around_ns, access.transfer_ns);
    }

    /// Counts a run that passes under the heads.
    pub(super) fn sectors(&mut self, run: SectorRun, write: bool) {
        match write {
            true => self.done.sectors_written += run.end - run.start,
            false => self.done.sectors_read += run.end - run.start,
        }
    }

    /// Counts a read of a run that the read-ahead has read within `ns`.
    pub(super) fn read_ahead_hit(&mut self, start_ns: u64, run: SectorRun, ns: u64) {
        self.done.reads_streamed += 1;
        self.add(AccessPhase::Transfer, start_ns, ns);
        self.sectors(run, false);
    }

    fn add(&mut self, phase: AccessPhase, start_ns: u64, ns: u64) -> u64 {
        let end_ns = start_ns + ns;
        if ns > 0 {
            self.uncounted.push(TimeSpan {
                phase,
                start_ns,
                end_ns,
            });
        }
        end_ns
    }
}
