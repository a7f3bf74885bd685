//! The real kernel: the same experiment on a real Linux, measured with fio
//! and tracefs.

mod cpu_load;
mod cpu_marks;
mod disk;
mod error;
mod file_system;
mod fio;
mod fio_job;
mod fio_json;
mod inspect;
mod interrupt;
mod measurement;
mod overwrite;
mod probe_target;
mod queue;
mod recorder;
mod remote;
mod signature;
mod system;
pub mod tracefs;

pub use cpu_load::{CpuWatch, Load, totals};
pub use disk::{Counters, Disk, Number};
pub use error::HostError;
pub use file_system::{FileSystem, Mounted};
pub use fio::Fio;
pub use fio_job::{is_place, is_replaced_by_server, on_device, on_server};
pub use fio_json::{JsonFault, parse as parse_fio_json};
pub use inspect::{Finding, check_rights, inspect, is_read_only};
pub use interrupt::Interrupts;
pub use measurement::{Measurement, Observed};
pub use overwrite::{check_overwrite, check_writes, is_read_only_job};
pub use probe_target::ProbeTarget;
pub use queue::{Files, Queue, QueueSettings, QueueState, RealFiles, Restore, Schedulers};
pub use recorder::{Form, Recorded, record};
pub use remote::{Order, Reply};
pub use signature::{Signature, signatures};
pub use system::System;
