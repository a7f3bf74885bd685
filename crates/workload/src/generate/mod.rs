//! What a process of a job does next: where, how much, in which direction,
//! and when.
//!
//! Everything here is a pure function of the job, the sizes of its files and
//! a seed. [`processes`] numbers the processes of a job file, [`Seeds`] gives
//! each its random numbers, [`Layout`] its part of the files. From these,
//! [`OffsetGenerator`] says what to read and write, [`Pacing`] when,
//! [`CommandPriorities`] with which priority, and [`SyncSchedule`] when to
//! flush.

mod layout;
mod offsets;
mod pacing;
mod priority;
mod processes;
mod random;
mod syncs;

pub use layout::{FileExtent, Layout, LayoutError, share_end};
pub use offsets::{Io, OffsetGenerator};
pub use pacing::Pacing;
pub use priority::CommandPriorities;
pub use processes::{Process, cgroups, due_weights, processes};
pub use random::Seeds;
pub use syncs::{SyncKind, SyncSchedule};
