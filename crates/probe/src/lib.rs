//! Finds what a drive looks like inside, from outside: chunks, how many work
//! in parallel, how addresses lie on them, the write buffer, what reads cost
//! behind writes, and where writing becomes slower for good.
//!
//! Every method is a published one; the modules name them. Every finding comes
//! with the share of single measurements that say the same, or with what was
//! seen where nothing stood out.

mod describe;
mod finding;
mod modelled;
mod pairs;
mod probed;
mod reads;
mod target;
mod writes;

pub use describe::describe;
pub use finding::{BehindWrites, Cliff, Finding, Mapping, size};
pub use modelled::Modelled;
pub use pairs::Layout;
pub use probed::{Plan, Probed, probe};
pub use reads::Speedup;
pub use target::{Batch, Io, Places, ProbeError, Target};
