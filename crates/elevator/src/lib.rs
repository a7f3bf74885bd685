//! Every I/O scheduler, a file or a folder each, and the registry that finds
//! them.
//!
//! A scheduler is a state machine behind [`blklab_blk::Elevator`]: it keeps no
//! time and knows no drive. Each file names the paper or kernel source whose
//! decisions it makes.

mod ac;
mod ac2;
mod adios;
mod admit;
mod bfq;
mod bp;
mod bundles;
mod cfq;
mod choice;
mod deadline;
mod divide;
mod fifos;
mod fios;
mod id_map;
mod irbw;
mod jiffies;
mod kyber;
mod mq_deadline;
mod noop;
mod registry;
#[cfg(test)]
mod rig;
mod setting;
mod single_queue;
mod sio;
mod stb;

pub use choice::{ChoiceError, SchedulerChoice};
pub use registry::{Build, ElevatorType, all, find};
pub use setting::Setting;
