//! Every I/O scheduler, one file each, and the registry that finds them.
//!
//! A scheduler is a state machine behind [`blklab_blk::Elevator`]: it keeps no
//! time and knows no drive. Each file names the paper or kernel source whose
//! decisions it makes.

mod mq_deadline;
mod registry;

pub use registry::{ElevatorType, all, find};
