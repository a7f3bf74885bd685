//! Histograms, counters and the one [`Results`] type that every world fills.

mod estimate;
mod histogram;
mod results;
mod timeline;

pub use estimate::{Estimate, Significance, student_t95};
pub use histogram::{FioBin, Histogram, Summary};
pub use results::{
    ArmStats, BatchBuckets, ChannelStats, CollectionStats, Counter, CpuSlice, CpuStats, CpuTimes,
    DepthBuckets, DeviceStats, DieStats, DirResults, DiskStats, FetchStats, GroupResults,
    HwQueueStats, JobResults, JobSetup, LevellingStats, MergeStats, PowerLoss, ProcessResults,
    QueueStats, RequestKind, RequestStats, Results, Sample, SchedulerStats, SlcStats, WearStats,
    World, jain_index,
};
pub use timeline::{
    Activity, Cause, CpuTask, CpuWork, DiskTimeline, DrivePart, DriveTimeline, RequestStep,
    StepKind, Timeline, Window, Work,
};
