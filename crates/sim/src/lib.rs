//! Virtual time: runs a workload on a modelled machine.
//!
//! A run is a pure function of workload, machine, drive, scheduler and seed: the
//! same input gives the same result on any machine, thread and build.

mod caching;
mod cgroups;
mod contents;
mod cpu;
mod disk;
mod file_layer;
mod flows;
mod machine;
mod process;
mod recording;
mod setup;
mod simulation;
mod system;
mod timers;
mod zoned_files;

pub use caching::{Caching, FileSystemKind};
pub use cpu::{CpuScheduler, Numbering, Ondemand, Topology};
pub use machine::{
    Costs, Dispatch, EngineCosts, FrontEndCosts, LoopCosts, Machine, SchedulerCosts,
};
pub use setup::{Replay, ReplayMode, Setup, SetupError, Workload, check_front_end, check_job};
pub use simulation::{BreakOff, run, run_watched};
