//! Every I/O scheduler, a file or a folder each, and the list that finds them by
//! name.
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
#[cfg(feature = "std")]
mod registered;
mod sio;
mod stb;
#[cfg(test)]
mod test_queue;

use alloc::boxed::Box;

use blklab_blk::{Attribute, Elevator, ElevatorQueue, QueueInfo, Tunable};

#[cfg(feature = "std")]
pub use choice::{ChoiceError, SchedulerChoice, Setting};
pub use kernel::{KernelVersion, NoKernel};
#[cfg(feature = "std")]
pub use registered::{known, register};

/// A kind of scheduler (`struct elevator_type`).
#[derive(Clone, Copy)]
pub struct ElevatorType {
    /// As `queue/scheduler` shows it.
    pub name: &'static str,
    /// One line of help.
    pub help: &'static str,
    /// Where its decisions come from.
    pub source: &'static str,
    /// Its tunables.
    pub tunables: &'static [Tunable],
    /// Its files in sysfs that are not one number.
    pub attributes: &'static [Attribute],
    /// The scheduler whose costs a machine's description gives and that this one
    /// is assumed to share, because it keeps the same kinds of lists under the
    /// same kind of lock; `None` where descriptions give its own.
    pub costs_like: Option<&'static str>,
    /// What makes one; `None` for `none`.
    pub build: Option<Build>,
}

/// Makes a scheduler for a queue.
pub type Build = &'static (dyn Fn(&QueueInfo) -> Box<dyn Elevator> + Send + Sync);

impl ElevatorType {
    /// A scheduler of this kind for a queue; `None` for `none`.
    pub fn build(&self, info: &QueueInfo) -> Option<Box<dyn Elevator>> {
        self.build.map(|build| build(info))
    }

    /// What each scheduler of this kind starts with.
    pub(crate) fn queue(&self) -> ElevatorQueue {
        ElevatorQueue::new(self.name, self.tunables)
    }
}

/// All schedulers, in the order in which lists show them.
pub fn all() -> &'static [ElevatorType] {
    ALL
}

/// The scheduler called `name`.
pub fn find(name: &str) -> Option<&'static ElevatorType> {
    ALL.iter().find(|t| t.name == name)
}

/// Calls the macro `$with` with a row for each scheduler: its module, its type,
/// and its declaration.
#[macro_export]
macro_rules! for_each_scheduler {
    ($with:ident) => {
        $with! {
            noop Noop NOOP
            deadline Deadline DEADLINE
            mq_deadline MqDeadline MQ_DEADLINE
            bfq Bfq BFQ
            kyber Kyber KYBER
            ac Ac AC
            sio Sio SIO
            irbw Irbw IRBW
            stb Stb STB
            bp Bp BP
            cfq Cfq CFQ
            adios Adios ADIOS
            fios Fios FIOS
            ac2 Ac2 AC2
        }
    };
}

macro_rules! declare {
    ($($module:ident $Type:ident $DECLARATION:ident)*) => {
        const ALL: &[ElevatorType] = &[NONE, $($module::$DECLARATION),*];

        /// The schedulers' own types and their declarations, for callers that must
        /// not go through a table of functions. Each is made by its `new`.
        pub mod types {
            $(pub use crate::$module::{$DECLARATION, $Type};)*
        }
    };
}

for_each_scheduler!(declare);

/// The absence of a scheduler, which users choose like one.
const NONE: ElevatorType = ElevatorType {
    name: "none",
    help: "no scheduler: software queues straight to the driver",
    source: "Linux 6.12, block/blk-mq.c",
    tunables: &[],
    attributes: &[],
    costs_like: None,
    build: None,
};
