//! Every I/O scheduler, a file or a folder each, and the registry that finds
//! them.
//!
//! A scheduler is a state machine behind [`blklab_blk::Elevator`]: it keeps no
//! time and knows no drive. Each file names the paper or kernel source whose
//! decisions it makes, and ends with its [`ElevatorType`].
//!
//! Without the feature `std`, which is what users write and the messages about it,
//! the crate needs `alloc` alone, so that a kernel module can link it.

#![cfg_attr(not(any(test, feature = "std")), no_std)]

extern crate alloc;

mod ac;
mod ac2;
mod adios;
mod bfq;
#[cfg(test)]
mod bounds;
mod bp;
mod cfq;
#[cfg(feature = "std")]
mod choice;
mod deadline;
mod fifos;
mod fios;
mod irbw;
mod kernel;
mod kyber;
mod mq_deadline;
mod noop;
mod registry;

mod sio;
mod stb;
#[cfg(test)]
mod test_queue;

#[cfg(feature = "std")]
pub use choice::{ChoiceError, SchedulerChoice, Setting};
pub use kernel::{KernelVersion, NoKernel};
pub use registry::{Build, ElevatorType, all, find, types};
