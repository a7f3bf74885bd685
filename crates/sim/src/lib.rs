//! Virtual time: runs a job on a modelled machine.
//!
//! A run is a pure function of job, machine, drive, scheduler and seed: the
//! same input gives the same result on any machine, thread and build.

mod aio_threads;
mod arrivals;
mod cost;
mod cpu;
mod cpu_history;
mod disk;
mod drives;
mod fair;
mod fit;
mod lock;
mod machine;
mod min_rate;
mod plan;
mod process;
mod progress;
mod recorder;
mod recording;
mod replay;
mod run;
mod setup;
mod sweep;
mod task_log;
mod timers;
mod waiting;
mod worker;
mod world;

pub use machine::{Costs, Dispatch, EngineCosts, LoopCosts, Machine, SchedulerCosts};
pub use run::run;
pub use setup::{ReplayMode, Setup, SetupError, Workload, check_job};
pub use sweep::{set_threads, sweep, sweep_job};
