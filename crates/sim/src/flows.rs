//! `flow`: what the processes of a run share of its flows, in which I/Os keep to the proportion of
//! weights (fio's `flow.c`).

use blklab_blk::Nanos;
use blklab_workload::fio::JobSpec;

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

    /// The process waits until it is no longer ahead of its flow.
    pub(crate) fn wait(&mut self, pid: usize, share: FlowShare) {
        self.flows[share.flow].waiting.push((pid, share));
    }

    /// The process no longer waits.
    pub(crate) fn stop_waiting(&mut self, pid: usize, share: &FlowShare) {
        let waiting = &mut self.flows[share.flow].waiting;
        waiting.retain(|(waiting, _)| *waiting != pid);
    }

    /// Counts an I/O of a process, which may let others go on.
    #[inline]
    pub(crate) fn count(&mut self, now: Nanos, share: &mut FlowShare, timers: &mut Timers) {
        share.ios += 1;
        let flow = &mut self.flows[share.flow];
        flow.ios += 1;
        flow.wake_ready(now, timers);
    }

    /// Removes a process that has ended: its I/Os and its weight no longer count.
    pub(crate) fn remove(&mut self, now: Nanos, share: &FlowShare, timers: &mut Timers) {
        let flow = &mut self.flows[share.flow];
        flow.ios -= share.ios;
        flow.weight -= share.weight;
        flow.wake_ready(now, timers);
    }

    /// Whether the process has done more than its weight's share of its flow's I/Os.
    pub(crate) fn is_ahead(&self, share: &FlowShare) -> bool {
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
