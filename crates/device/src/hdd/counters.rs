//! What the heads have done.
//!
//! What an access takes is known when it begins. Its time is booked as it
//! passes, so that counts that are taken or begun anew meanwhile have only what
//! is within them.

use blklab_stats::ArmStats;

use super::buffer::SectorRun;
use super::mechanics::Access;

/// What the heads have done, and what they are at.
#[derive(Clone, Debug, Default)]
pub(super) struct Counters {
    pub(super) done: ArmStats,
    /// What of the work that has begun is not booked yet, in order.
    ahead: Vec<Span>,
}

#[derive(Clone, Copy, Debug)]
struct Span {
    phase: Phase,
    start_ns: u64,
    end_ns: u64,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    Seek,
    HeadSwitch,
    Rotation,
    Transfer,
}

impl Counters {
    /// What has happened until now.
    pub(super) fn until(&self, now_ns: u64) -> ArmStats {
        let mut counts = self.clone();
        counts.book(now_ns);
        counts.done
    }

    /// Books the time until now.
    pub(super) fn book(&mut self, now_ns: u64) {
        for span in &mut self.ahead {
            let until_ns = span.end_ns.min(now_ns).max(span.start_ns);
            let sum_ns = match span.phase {
                Phase::Seek => &mut self.done.seek_ns,
                Phase::HeadSwitch => &mut self.done.head_switch_ns,
                Phase::Rotation => &mut self.done.rotation_ns,
                Phase::Transfer => &mut self.done.transfer_ns,
            };
            *sum_ns += until_ns - span.start_ns;
            span.start_ns = until_ns;
        }
        self.ahead.retain(|span| span.start_ns < span.end_ns);
    }

    /// Begins anew.
    pub(super) fn reset(&mut self, now_ns: u64) {
        self.book(now_ns);
        self.done = ArmStats::default();
    }

    /// The work under way does not go on.
    pub(super) fn stop(&mut self, now_ns: u64) {
        self.book(now_ns);
        self.ahead.clear();
    }

    /// The heads go somewhere and over some blocks.
    pub(super) fn access(&mut self, start_ns: u64, access: &Access) {
        let mut moving = Phase::Seek;
        match access.cylinders {
            0 => {
                self.done.head_switches += (access.seek_ns > 0) as u64;
                moving = Phase::HeadSwitch;
            }
            cylinders => {
                self.done.seeks += 1;
                self.done.seek_cylinders += cylinders as u64;
            }
        }
        self.done.rotation_waits += (access.rotation_ns > 0) as u64;
        let there_ns = self.add(moving, start_ns, access.seek_ns);
        let around_ns = self.add(Phase::Rotation, there_ns, access.rotation_ns);
        self.add(Phase::Transfer, around_ns, access.transfer_ns);
    }

    /// A run passes under the heads.
    pub(super) fn sectors(&mut self, run: SectorRun, write: bool) {
        match write {
            true => self.done.sectors_written += run.end - run.start,
            false => self.done.sectors_read += run.end - run.start,
        }
    }

    /// Reading ahead comes to a run in `ns`.
    pub(super) fn stream(&mut self, start_ns: u64, run: SectorRun, ns: u64) {
        self.done.reads_streamed += 1;
        self.add(Phase::Transfer, start_ns, ns);
        self.sectors(run, false);
    }

    fn add(&mut self, phase: Phase, start_ns: u64, ns: u64) -> u64 {
        let end_ns = start_ns + ns;
        if ns > 0 {
            self.ahead.push(Span {
                phase,
                start_ns,
                end_ns,
            });
        }
        end_ns
    }
}
