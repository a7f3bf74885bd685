//! The real kernel: the same experiment on a real Linux, measured with fio
//! and tracefs.

mod disk;
mod disk_stat;
mod error;
mod file_system;
mod fio;
mod fio_job;
mod fio_json;
mod inspect;
mod interrupt;
mod load;
mod measurement;
mod overwrite;
mod probed;
mod proc_stat;
mod queue;
mod record;
mod recorder;
mod signature;
mod system;
pub mod tracefs;

pub use disk::{Disk, Number};
pub use disk_stat::Counters;
pub use error::HostError;
pub use file_system::{FileSystem, Mounted};
pub use fio::Fio;
pub use fio_job::{on_device, on_server};
pub use fio_json::{JsonFault, parse as parse_fio_json};
pub use inspect::{Finding, check_rights, inspect, is_read_only};
pub use interrupt::Interrupts;
pub use load::Load;
pub use measurement::Measurement;
pub use overwrite::{check_overwrite, check_writes, is_read_only_job};
pub use probed::Probed;
pub use proc_stat::{CpuWatch, totals};
pub use queue::{Files, Queue, QueueSettings, QueueState, RealFiles, Restore, Schedulers};
pub use record::{Recorded, record};
pub use recorder::{Form, Recorder};
pub use signature::{Signature, signatures};
pub use system::System;
