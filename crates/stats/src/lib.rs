//! Histograms, counters and the one [`Results`] type that every world fills.

mod histogram;
mod results;

pub use histogram::{FioBin, Histogram, Summary};
pub use results::{
    ChannelStats, Counter, CpuStats, DepthBuckets, DeviceStats, DirResults, DiskStats,
    GroupResults, HwQueueStats, JobResults, QueueStats, Results, Sample, SchedulerStats, World,
};
