//! What a process of a job does next: where, how much, in which direction,
//! and when.
//!
//! Everything here is a pure function of the job, the sizes of its files and
//! a seed. [`processes`] numbers the processes of a job file, [`Seeds`] gives
//! each its random numbers, [`Layout`] its part of the files. From these,
//! [`OffsetGenerator`] says what to read and write, [`Pacing`] when,
//! [`CommandPriorities`] with which priority, and [`SyncSchedule`] when to
//! flush.

mod choose;
mod draws;
mod file;
mod layout;
mod limits;
mod map;
mod mix;
mod offsets;
mod pacing;
mod permutation;
mod plain;
mod priority;
mod processes;
mod random;
mod ranks;
mod rules;
mod seeds;
mod sizes;
mod syncs;
mod visits;
mod weights;
mod zones;

pub use layout::{FileExtent, Layout, LayoutError, share_end};
pub use offsets::{Io, OffsetGenerator};
pub use pacing::Pacing;
pub use priority::CommandPriorities;
pub use processes::{Process, processes};
pub use seeds::Seeds;
pub use syncs::{SyncKind, SyncSchedule};
pub use weights::{cgroups, due_weights};
