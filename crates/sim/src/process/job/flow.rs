//! `flow`: processes whose I/Os keep to the proportion of their weights (fio's `flow.c`).

use blklab_blk::Nanos;
use blklab_workload::fio::JobSpec;

use super::pause::SPIN_SLICE;
use super::{JobProcess, PauseReason, Phase, TaskState};
use crate::system::System;
use crate::timers::Timers;

/// The flows of a run.
#[derive(Default)]
pub(crate) struct Flows {
    flows: Vec<Flow>,
}

struct Flow {
    id: u32,
    /// The weights of all its processes that have not ended.
    weight: u64,
    /// One more than the I/Os of these processes, as in fio: nobody is behind nothing.
    ios: u64,
    /// Those that sleep until they are no longer ahead.
    waiting: Vec<(usize, FlowShare)>,
}

/// A process's part in its flow.
#[derive(Clone, Copy)]
pub(crate) struct FlowShare {
    /// The index of the flow in [`Flows`].
    flow: usize,
    weight: u64,
    ios: u64,
}

impl Flows {
    /// Adds a process of a job; `None` where the job is in no flow.
    pub(crate) fn add(&mut self, spec: &JobSpec) -> Option<FlowShare> {
        let weight = u64::from(spec.flow.weight);
        if weight == 0 {
            return None;
        }
        let known = self.flows.iter().position(|flow| flow.id == spec.flow.id);
        let flow = known.unwrap_or_else(|| {
            self.flows.push(Flow {
                id: spec.flow.id,
                weight: 0,
                ios: 1,
                waiting: Vec::new(),
            });
            self.flows.len() - 1
        });
        self.flows[flow].weight += weight;
        Some(FlowShare {
            flow,
            weight,
            ios: 0,
        })
    }

    fn is_ahead(&self, share: &FlowShare) -> bool {
        let flow = &self.flows[share.flow];
        share.is_ahead_of(flow.weight, flow.ios)
    }
}

impl FlowShare {
    /// Whether the process has done more than its weight's share of the I/Os of a flow.
    fn is_ahead_of(&self, flow_weight: u64, flow_ios: u64) -> bool {
        u128::from(self.ios) * u128::from(flow_weight)
            > u128::from(self.weight) * u128::from(flow_ios)
    }
}

impl Flow {
    /// Has the processes called that wait and are no longer ahead.
    fn wake_ready(&mut self, now: Nanos, timers: &mut Timers) {
        let (weight, ios) = (self.weight, self.ios);
        self.waiting.retain(|(pid, share)| {
            let is_ahead = share.is_ahead_of(weight, ios);
            if !is_ahead {
                timers.set(now, *pid);
            }
            is_ahead
        });
    }
}

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
        let flow = &mut system.flows.flows[share.flow];
        flow.waiting.push((self.id, share));
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
            let waiting = &mut system.flows.flows[share.flow].waiting;
            waiting.retain(|(pid, _)| *pid != self.id);
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
            share.ios += 1;
            let flow = &mut system.flows.flows[share.flow];
            flow.ios += 1;
            flow.wake_ready(now, &mut system.timers);
        }
    }

    /// The process has ended: its I/Os and its weight no longer count.
    pub(super) fn leave_flow(&mut self, now: Nanos, system: &mut System) {
        if let Some(share) = self.flow.take() {
            let flow = &mut system.flows.flows[share.flow];
            flow.ios -= share.ios;
            flow.weight -= share.weight;
            flow.wake_ready(now, &mut system.timers);
        }
    }
}
