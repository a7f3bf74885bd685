//! Linux's block layer as a state machine.

mod bio;
mod units;

pub use bio::{Bio, BioFlags, IoClass, IoPrio, Op, SubmitterId, op_is_sync};
pub use units::{Nanos, SECTOR_SIZE, Sector};
