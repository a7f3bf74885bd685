//! `flow`: a process of a job waits while it is ahead of its flow.

use blklab_blk::Nanos;

use super::pause::SPIN_SLICE;
use super::{JobProcess, PauseReason, Phase, TaskState};
use crate::flows::FlowShare;
use crate::system::System;

impl JobProcess {
    /// The same in its flow, if its job has it in one.
    pub(crate) fn in_flow(self, share: Option<FlowShare>) -> JobProcess {
        JobProcess {
            flow: share,
            ..self
        }
    }

    /// A process that waits for its flow stops at the end of its time.
    pub(super) fn limit_waits_for_flow(&self, system: &mut System) {
        let deadline = self.plan.deadline();
        if self.flow.is_some() && deadline < Nanos::MAX {
            system.timers.set(deadline, self.id);
        }
    }

    /// Whether the process is ahead of its flow and waits; it has begun to.
    #[cold]
    pub(super) fn waits_for_flow(&mut self, now: Nanos, system: &mut System) -> bool {
        let Some(share) = self.flow else {
            return false;
        };
        // fio reads again what it wrote without looking at the flow.
        let reads_rest = self.plan.verification().is_some_and(|v| v.reads_rest());
        if reads_rest || self.plan.is_over(now) || !system.flows.is_ahead(&share) {
            return false;
        }
        if self.spec.flow.sleep_us > 0 {
            self.phase = Phase::Quiesce(PauseReason::Flow);
            return true;
        }
        system.flows.wait(self.id, share);
        self.state = TaskState::AwaitsFlow;
        if !self.costs.free {
            // It spins, and the CPU may be another's after each slice.
            self.spins_since = Some(now);
            system.timers.set(now + SPIN_SLICE, self.id);
        }
        true
    }

    /// Its flow lets it go on, or its slice of the CPU is over, or its time. Returns whether it
    /// runs at once.
    #[cold]
    pub(super) fn stop_waiting_for_flow(&mut self, now: Nanos, system: &mut System) -> bool {
        if let Some(share) = &self.flow {
            system.flows.stop_waiting(self.id, share);
        }
        match self.spins_since.take() {
            Some(since) => {
                self.stop_spinning(now, since, system);
                false
            }
            None => self.enqueue(now, system),
        }
    }

    /// Counts an I/O, which may let others go on.
    #[inline]
    pub(super) fn count_in_flow(&mut self, now: Nanos, system: &mut System) {
        if let Some(share) = &mut self.flow {
            system.flows.count(now, share, &mut system.timers);
        }
    }

    /// The process has ended: its I/Os and its weight no longer count.
    pub(super) fn leave_flow(&mut self, now: Nanos, system: &mut System) {
        if let Some(share) = self.flow.take() {
            system.flows.remove(now, &share, &mut system.timers);
        }
    }
}
