//! An experiment: the same work under several settings, several times each, in one of
//! the worlds.
//!
//! [`settings`] turns a request into rows: one for each scheduler, or for each
//! combination of the values that vary. [`run`] repeats every row in a [`World`], which
//! prepares the runs, runs a row once and cleans up.

mod assumptions;
mod axis;
mod error;
mod front_end;
mod guest;
mod hash;
mod host;
mod pace;
mod range;
mod rows;
mod run;
mod run_queue;
mod schedulers;
mod served;
mod setting;
mod simulated;
mod study;
mod sweep;
mod target;
mod tuning;
mod work;
mod world;

pub use assumptions::Assumption;
pub use axis::{AXES, Axis, check_axes, with_values};
pub use error::Error;
pub use front_end::{FRONT_ENDS, FrontEnd};
pub use guest::Guest;
pub use host::Host;
pub use pace::{Pace, Timing};
pub use rows::{Request, SettingProduct, settings};
pub use run::{run, run_until};
pub use schedulers::NamedScheduler;
pub use served::Served;
pub use setting::{NamedFaults, Setting};
pub use simulated::{Descriptions, Purpose, Recording, Simulated, Tail};
pub use study::{Scale, Study, StudyDrive};
pub use sweep::{Key, Shard, Store, Sweep, SweepSpec};
pub use target::{Target, disk_of_another_kind};
pub use tuning::{FINALISTS, HalvingOutcome, halve, usual_queue_settings, usual_settings};
pub use work::WorkloadSource;
pub use world::{Event, Finished, Order, Plan, PlannedRun, Row, Watch, World};
