//! The I/O schedulers, each in a file or folder, and the list that finds them by name.
//!
//! A scheduler is a state machine behind [`blklab_blk::Elevator`]: it keeps no clock and does not
//! know the drive. Each file names the paper or kernel source that it follows, and ends with its
//! [`ElevatorType`].
//!
//! Without the feature `std` the crate needs only `alloc`, and without `choice`, which parses user
//! input and reports its errors, no other crate but the block layer, so that a kernel module can
//! link it.

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
#[cfg(feature = "choice")]
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

#[cfg(feature = "choice")]
pub use choice::{ChoiceError, SchedulerChoice, Setting};
pub use kernel::{DriverKind, KernelVersion, NoKernel, QueueTraits};
#[cfg(feature = "std")]
pub use registered::{known, register};

/// A kind of scheduler (`struct elevator_type`).
#[derive(Clone, Copy)]
pub struct ElevatorType {
    /// Name, as `queue/scheduler` shows it.
    pub name: &'static str,
    /// One line of help.
    pub help: &'static str,
    /// Paper or kernel source that it follows.
    pub source: &'static str,
    /// Declarations of its tunables.
    pub tunables: &'static [Tunable],
    /// Its sysfs files that are not a single number.
    pub attributes: &'static [Attribute],
    /// What its steps take a CPU, for machines whose descriptions do not say; `None` if that is not
    /// known.
    pub costs: Option<StepCosts>,
    /// Constructor; `None` for `none`.
    pub build: Option<Build>,
}

/// What a scheduler's steps take a CPU beside those of mq-deadline, whose steps in a real kernel
/// machines' descriptions have. `make step-costs` measures them, and fails where a declaration is
/// far from that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepCosts {
    /// Looking for a request to merge a bio with, in hundredths of mq-deadline's.
    pub merge: u32,
    /// Taking a request in, likewise.
    pub insert: u32,
    /// A call for a request, likewise.
    pub dispatch: u32,
    /// Hearing of an end, as far as it takes more than in mq-deadline, which counts only, in
    /// hundredths of mq-deadline's dispatch.
    pub finish: u32,
}

impl StepCosts {
    /// Those of mq-deadline.
    pub const OF_MQ_DEADLINE: StepCosts = StepCosts {
        merge: 100,
        insert: 100,
        dispatch: 100,
        finish: 0,
    };
}

/// Constructs a scheduler for a queue.
pub type Build = &'static (dyn Fn(&QueueInfo) -> Box<dyn Elevator> + Send + Sync);

impl ElevatorType {
    /// Builds a scheduler of this kind for a queue; `None` for `none`.
    pub fn build(&self, info: &QueueInfo) -> Option<Box<dyn Elevator>> {
        self.build.map(|build| build(info))
    }

    /// The initial state that every scheduler of this kind has.
    pub(crate) fn queue(&self) -> ElevatorQueue {
        ElevatorQueue::new(self.name, self.tunables)
    }
}

/// All schedulers, in the order of lists.
pub fn all() -> &'static [ElevatorType] {
    ALL
}

/// Finds the scheduler called `name`.
pub fn find(name: &str) -> Option<&'static ElevatorType> {
    ALL.iter().find(|t| t.name == name)
}

/// Calls the macro `$with` with a row for each scheduler: its module, its type and its declaration.
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

        /// The schedulers' types and declarations, for callers that need static dispatch. Each type
        /// has a constructor `new`.
        pub mod types {
            $(pub use crate::$module::{$DECLARATION, $Type};)*
        }
    };
}

for_each_scheduler!(declare);

/// The absence of a scheduler, which users choose like a scheduler.
const NONE: ElevatorType = ElevatorType {
    name: "none",
    help: "no scheduler: software queues straight to the driver",
    source: "Linux 6.12, block/blk-mq.c",
    tunables: &[],
    attributes: &[],
    costs: None,
    build: None,
};
