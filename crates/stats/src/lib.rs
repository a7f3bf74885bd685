//! Histograms, counters and the one [`Results`] type that every world fills.

#![cfg_attr(not(any(test, feature = "std")), no_std)]

extern crate alloc;

mod buckets;
mod calls;
mod cgroup;
mod cpu;
mod device;
#[cfg(feature = "std")]
mod estimate;
mod fact;
mod hdd;
mod histogram;
mod io_log;
mod job;
mod page_cache;
mod queue;
mod results;
mod sample;
mod slowest;
mod ssd;
mod steady_state;
mod timeline;
mod traced_cpu;
mod traced_disk;
mod traced_request;
mod waits;

pub use buckets::{BatchBuckets, DepthBuckets};
pub use calls::CallTimes;
pub use cgroup::{CgroupStats, CostRate, CostTimes, HeldIos};
pub use cpu::{CpuSlice, CpuTimes};
pub use device::{ChannelStats, DeviceStats, DieStats, FaultStats, FetchStats, fault_facts};
#[cfg(feature = "std")]
pub use estimate::{Estimate, Significance, jain_index};
pub use fact::{Fact, Place, Unit, facts};
pub use hdd::ArmStats;
pub use histogram::{FioBin, Histogram, Summary};
pub use io_log::{IoLog, LogEntry, LogHistogram, LogKind, LogMean, LogSetup};
pub use job::{
    CpuStats, DEFAULT_PERCENTILES, DirResults, GroupResults, JobResults, JobSetup,
    LatencyPercentiles, LatencyTarget, PageFaults, ProcessResults,
};
pub use page_cache::{CacheSample, CacheStats, MemoryGroupStats};
pub use queue::{
    Counter, HwQueueStats, OPERATIONS, QueueStats, RequestKind, RequestStats, SchedulerStats,
};
pub use results::{DiskStats, PowerLoss, Results, ServerTimes, World};
pub use sample::Sample;
pub use slowest::{Example, MeanTimes, Slowest, SlowestOf};
pub use ssd::{CollectionStats, MergeStats, SlcStats, TooFull, WearStats};
pub use steady_state::SteadyState;
pub use timeline::{
    Activity, CallSpan, Cause, CpuTask, CpuWork, Detail, DiskTimeline, DrivePart, DriveTimeline,
    DriveWork, FlushSpan, IoSpan, Passage, RequestStep, StepKind, Through, Timeline, Window,
};
pub use traced_request::{Stage, StageTimes, TracedRequest, TracedRequests};
pub use waits::{Wait, WaitCounts, Waits};
