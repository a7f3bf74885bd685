//! A disk for other simulators: Linux's block layer and a scheduler in front of a modelled drive,
//! in virtual time, reproducible from a seed.
//!
//! [`SimulatedDisk`] models only time. [`SimulatedStorage`] also stores data: an unflushed write
//! may be lost or torn at a power cut, and reads may have the faults that the drive is configured
//! with ([`Faults`]). [`SimulatedStorage::set_power_cut`] says what becomes of unflushed writes.
//!
//! `cargo bench --package blklab` measures what a request takes a CPU, and
//! `cargo run --package blklab --example append_log` shows a power cut.
//!
//! Without the feature `std` the crate and all below it need only `alloc`. Drives and schedulers are
//! then those that are shipped, by name; messages on unknown names do not tell the nearest.
//!
//! ```
//! use blklab::{Faults, Nanos, Setup, SimulatedStorage};
//!
//! let faults = Faults::parse("stall=0.01:30ms").unwrap();
//! let setup = Setup::named("nvme", "mq-deadline").unwrap().with_faults(faults);
//! let mut disk = SimulatedStorage::new(&setup, 7).unwrap();
//! disk.write(Nanos(0), 4096, &[1; 512], false).unwrap();
//! let now = disk.run_until_idle();
//! let flush = disk.flush(now);
//! let now = disk.run_until_idle();
//! let read = disk.read(now, 4096, 512).unwrap();
//! disk.run_until_idle();
//! let mut ended = Vec::new();
//! disk.take_ended(&mut ended);
//! assert_eq!(ended[1].id, flush);
//! assert_eq!((ended[2].id, ended[2].result.as_ref().unwrap()[0]), (read, 1));
//! ```

#![cfg_attr(not(any(test, feature = "std")), no_std)]

extern crate alloc;

mod contents;
mod disk;
mod storage;

pub use blklab_blk::{IoStatus, Nanos, Op, Sector};
pub use blklab_device::{DriveSpec, Faults, PowerCut};
pub use blklab_elevator::SchedulerChoice;

pub use disk::{Call, Done, Setup, SetupError, SimulatedDisk};
pub use storage::{Ended, IoId, RangeError, SimulatedStorage};
