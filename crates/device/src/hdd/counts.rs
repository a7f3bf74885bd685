//! Counts what the heads do.
//!
//! What an access takes is known when it begins. Its time is booked as it
//! passes, so that counts that are taken or begun anew meanwhile have only what
//! is within them.

use blklab_stats::ArmStats;

use super::buffer::Run;
use super::mechanics::Access;

/// What the heads have done, and what they are at.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    pub(super) done: ArmStats,
    /// What of the work that has begun is not booked yet, in order.
    ahead: Vec<Step>,
}

#[derive(Clone, Copy, Debug)]
struct Step {
    kind: StepKind,
    start_ns: u64,
    end_ns: u64,
}

#[derive(Clone, Copy, Debug)]
enum StepKind {
    Seek,
    HeadSwitch,
    Rotation,
    Transfer,
}

impl Counts {
    /// What has happened until now.
    pub(super) fn until(&self, now_ns: u64) -> ArmStats {
        let mut counts = self.clone();
        counts.book(now_ns);
        counts.done
    }

    /// Books the time until now.
    pub(super) fn book(&mut self, now_ns: u64) {
        for step in &mut self.ahead {
            let until_ns = step.end_ns.min(now_ns).max(step.start_ns);
            let sum_ns = match step.kind {
                StepKind::Seek => &mut self.done.seek_ns,
                StepKind::HeadSwitch => &mut self.done.head_switch_ns,
                StepKind::Rotation => &mut self.done.rotation_ns,
                StepKind::Transfer => &mut self.done.transfer_ns,
            };
            *sum_ns += until_ns - step.start_ns;
            step.start_ns = until_ns;
        }
        self.ahead.retain(|step| step.start_ns < step.end_ns);
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
        let mut moving = StepKind::Seek;
        match access.cylinders {
            0 => {
                self.done.head_switches += (access.seek_ns > 0) as u64;
                moving = StepKind::HeadSwitch;
            }
            cylinders => {
                self.done.seeks += 1;
                self.done.seek_cylinders += cylinders as u64;
            }
        }
        self.done.rotation_waits += (access.rotation_ns > 0) as u64;
        let there_ns = self.step(moving, start_ns, access.seek_ns);
        let around_ns = self.step(StepKind::Rotation, there_ns, access.rotation_ns);
        self.step(StepKind::Transfer, around_ns, access.transfer_ns);
    }

    /// A run passes under the heads.
    pub(super) fn sectors(&mut self, run: Run, write: bool) {
        match write {
            true => self.done.sectors_written += run.end - run.start,
            false => self.done.sectors_read += run.end - run.start,
        }
    }

    /// Reading ahead comes to a run in `ns`.
    pub(super) fn stream(&mut self, start_ns: u64, run: Run, ns: u64) {
        self.done.reads_streamed += 1;
        self.step(StepKind::Transfer, start_ns, ns);
        self.sectors(run, false);
    }

    fn step(&mut self, kind: StepKind, start_ns: u64, ns: u64) -> u64 {
        let end_ns = start_ns + ns;
        if ns > 0 {
            self.ahead.push(Step {
                kind,
                start_ns,
                end_ns,
            });
        }
        end_ns
    }
}
