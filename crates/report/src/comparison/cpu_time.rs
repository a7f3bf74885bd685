//! The use of each CPU over time, for charts stacked like mpstat's columns.

use blklab_stats::{CpuSlice, CpuTimes};
use serde::{Deserialize, Serialize};

use super::runs::SchedulerRuns;

/// The parts of a CPU's time in the order in which they are stacked; the rest is idle.
pub(crate) const PARTS: [&str; 6] = [
    "applications",
    "kernel",
    "interrupts",
    "softirqs",
    "waiting for I/O",
    "hypervisor",
];

/// The use of CPUs over a scheduler's first run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CpuTimeline {
    /// The scheduler.
    pub scheduler: String,
    /// The end of each span of time, in nanoseconds from the run's start.
    pub end_ns: Vec<u64>,
    /// The shares of [`PARTS`] in each CPU's time, by CPU and span.
    pub shares: Vec<Vec<[f64; PARTS.len()]>>,
}

/// Returns the timelines of the schedulers whose CPUs were measured.
pub(crate) fn timelines(schedulers: &[SchedulerRuns]) -> Vec<CpuTimeline> {
    let watched = schedulers.iter().filter_map(|scheduler| {
        let slices = &scheduler.runs.first()?.cpu_timeline;
        (!slices.is_empty()).then(|| timeline(&scheduler.name, slices))
    });
    watched.collect()
}

fn timeline(scheduler: &str, slices: &[CpuSlice]) -> CpuTimeline {
    let cpus = slices
        .iter()
        .map(|slice| slice.cpus.len())
        .max()
        .unwrap_or(0);
    let one = |cpu: usize| {
        let spans = slices.iter();
        spans
            .map(|slice| slice.cpus.get(cpu).map_or([0.0; PARTS.len()], shares))
            .collect()
    };
    CpuTimeline {
        scheduler: scheduler.to_string(),
        end_ns: slices.iter().map(|slice| slice.end_ns).collect(),
        shares: (0..cpus).map(one).collect(),
    }
}

fn shares(times: &CpuTimes) -> [f64; PARTS.len()] {
    let total_ns = times.total_ns().max(1) as f64;
    [
        times.user_ns,
        times.system_ns,
        times.irq_ns,
        times.softirq_ns,
        times.iowait_ns,
        times.steal_ns,
    ]
    .map(|ns| ns as f64 / total_ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample_run::three_schedulers;

    #[test]
    fn shares_are_of_each_cpus_own_time() {
        let mut schedulers = three_schedulers(2);
        let busy = CpuTimes {
            user_ns: 3,
            iowait_ns: 1,
            ..CpuTimes::default()
        };
        schedulers[1].runs[0].cpu_timeline = vec![CpuSlice {
            end_ns: 500,
            cpus: vec![busy, CpuTimes::default()],
        }];
        let timelines = timelines(&schedulers);
        assert_eq!(timelines.len(), 1);
        assert_eq!(timelines[0].scheduler, schedulers[1].name);
        assert_eq!(timelines[0].shares[0][0], [0.75, 0.0, 0.0, 0.0, 0.25, 0.0]);
        assert_eq!(timelines[0].shares[1][0], [0.0; 6]);
    }
}
