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

#[cfg(test)]
mod tests {
    use super::*;

    const SEEK: Access = Access {
        seek_ns: 4_000,
        rotation_ns: 3_000,
        transfer_ns: 1_000,
        cylinders: 7,
    };

    fn times(arm: &ArmStats) -> [u64; 4] {
        [
            arm.seek_ns,
            arm.head_switch_ns,
            arm.rotation_ns,
            arm.transfer_ns,
        ]
    }

    /// Each part counts while it passes, and nothing twice, however often one asks.
    #[test]
    fn the_time_of_an_access_counts_as_it_passes() {
        let mut counters = Counters::default();
        counters.access(10_000, &SEEK);
        for (now_ns, parts) in [
            (10_000, [0, 0, 0, 0]),
            (11_000, [1_000, 0, 0, 0]),
            (14_000, [4_000, 0, 0, 0]),
            (16_500, [4_000, 0, 2_500, 0]),
            (17_001, [4_000, 0, 3_000, 1]),
            (99_000, [4_000, 0, 3_000, 1_000]),
        ] {
            assert_eq!(times(&counters.until(now_ns)), parts, "{now_ns}");
            counters.count_time(now_ns);
            assert_eq!(times(&counters.done), parts, "{now_ns}");
        }
    }

    /// Time before a reset and after a stop is not in the counters.
    #[test]
    fn a_reset_and_a_stop_cut_an_access() {
        let mut counters = Counters::default();
        counters.access(0, &SEEK);
        counters.reset(3_000);
        assert_eq!(times(&counters.until(5_000)), [1_000, 0, 1_000, 0]);
        assert_eq!(counters.done.seeks, 0);
        counters.stop(5_000);
        assert_eq!(times(&counters.until(99_000)), [1_000, 0, 1_000, 0]);
    }

    /// The arm seeks to another cylinder and switches heads on its own; only what takes time is
    /// a head switch or a wait for the platters.
    #[test]
    fn seeks_head_switches_and_waits_are_told_apart() {
        let switch = Access {
            cylinders: 0,
            rotation_ns: 0,
            ..SEEK
        };
        let there = Access {
            seek_ns: 0,
            ..switch
        };
        for (access, seeks, switches, waits) in
            [(SEEK, 1, 0, 1), (switch, 0, 1, 0), (there, 0, 0, 0)]
        {
            let mut counters = Counters::default();
            counters.access(0, &access);
            let arm = counters.until(99_000);
            let found = (arm.seeks, arm.head_switches, arm.rotation_waits);
            assert_eq!(found, (seeks, switches, waits));
            assert_eq!(arm.seek_cylinders, u64::from(access.cylinders));
            let moving = [arm.seek_ns, arm.head_switch_ns];
            assert_eq!(moving, [4_000 * seeks, 4_000 * switches]);
        }
    }

    /// A read that was read ahead transfers its sectors and neither seeks nor waits.
    #[test]
    fn sectors_count_by_direction() {
        let run = |start, end| SectorRun { start, end };
        let mut counters = Counters::default();
        counters.sectors(run(100, 108), false);
        counters.sectors(run(200, 203), true);
        counters.sectors(run(300, 304), true);
        counters.read_ahead_hit(1_000, run(108, 124), 500);
        let arm = counters.until(1_200);
        assert_eq!((arm.sectors_read, arm.sectors_written), (24, 7));
        assert_eq!(
            (arm.reads_streamed, arm.seeks, arm.rotation_waits),
            (1, 0, 0)
        );
        assert_eq!(times(&arm), [0, 0, 0, 200]);
    }
}
