//! The real kernel: the same experiment on a real Linux, measured with fio
//! and tracefs.

mod disk;
mod disk_stat;
mod error;
mod experiment;
mod file_system;
mod fio;
mod fio_job;
mod fio_json;
mod inspect;
mod interrupt;
mod load;
mod permit;
mod probed;
mod proc_stat;
mod queue;
mod record;
mod recorder;
mod served;
mod signature;
mod system;
pub mod tracefs;

pub use disk::{Disk, Number};
pub use disk_stat::Counters;
pub use error::HostError;
pub use experiment::{Experiment, Step};
pub use file_system::{FileSystem, Mounted};
pub use fio::Fio;
pub use fio_job::{on_device, on_server};
pub use fio_json::{JsonFault, parse as parse_fio_json};
pub use inspect::{Finding, check_rights, inspect, is_read_only};
pub use interrupt::Interrupts;
pub use load::Load;
pub use permit::{is_read_only_job, permit, permit_writes};
pub use probed::Probed;
pub use proc_stat::{CpuWatch, totals};
pub use queue::{Choice, Files, Queue, QueueState, RealFiles, Restore, Schedulers};
pub use record::{Recorded, record};
pub use recorder::{Form, Recorder};
pub use served::ServedExperiment;
pub use signature::{Signature, signatures};
pub use system::System;
