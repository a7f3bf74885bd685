//! Cached and dirty memory over time.

use blklab_stats::CacheSample;
use serde::{Deserialize, Serialize};

use super::runs::SchedulerRuns;

/// Memory over a scheduler's first run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryTimeline {
    /// The scheduler.
    pub scheduler: String,
    /// The times of the samples, in nanoseconds from the run's start.
    pub at_ns: Vec<u64>,
    /// Dirty memory at each time, in bytes.
    pub dirty_bytes: Vec<u64>,
    /// Cached memory, dirty or not, at each time, in bytes.
    pub cached_bytes: Vec<u64>,
}

/// Returns the timelines of the schedulers whose jobs used the page cache.
pub(crate) fn timelines(schedulers: &[SchedulerRuns]) -> Vec<MemoryTimeline> {
    let of = |scheduler: &SchedulerRuns| {
        let samples = &scheduler.runs.first()?.page_cache.as_ref()?.samples;
        let column = |value: fn(&CacheSample) -> u64| samples.iter().map(value).collect();
        (samples.len() > 1).then(|| MemoryTimeline {
            scheduler: scheduler.name.clone(),
            at_ns: column(|sample| sample.at_ns),
            dirty_bytes: column(|sample| sample.dirty_bytes),
            cached_bytes: column(|sample| sample.cached_bytes),
        })
    };
    schedulers.iter().filter_map(of).collect()
}
