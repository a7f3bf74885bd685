//! A SCSI disk by SPC-4 and SBC-3 (T10's drafts of the SCSI primary and block commands), and
//! the ring by which Linux's target_core_user hands commands to a process.
//!
//! - `command`: the supported commands and their descriptor blocks (CDBs).
//! - `sense`: sense data of failed commands.
//! - `inquiry`, `mode`, `report`: the disk's properties, as commands ask for them.
//! - `unit`: the logical unit, which answers a command at once or starts a task.
//! - `task`: a command's operations on the medium, step by step.
//! - `mailbox`: commands and their buffers in memory shared with the kernel.
//!
//! Nothing here reads or writes a medium; the caller carries out a task's steps.

mod command;
mod inquiry;
mod mailbox;
mod mode;
mod report;
mod sense;
mod task;
mod unit;

pub use command::{CDB_BYTES, Extent};
pub use mailbox::{Buffers, Mailbox, MailboxFault, Outcome, Request};
pub use sense::{SENSE_BYTES, Sense};
pub use task::{Fault, MediumRequest, Operation, Source, Task};
pub use unit::{Disk, LogicalUnit, Started};
pub use vm_memory;

/// The data that an initiator sends with a command (Data-Out).
pub trait DataOut {
    /// Returns its length in bytes.
    fn length_bytes(&self) -> u64;

    /// Fills `into` with its bytes from `at` on. Returns whether there were enough.
    fn read(&self, at: u64, into: &mut [u8]) -> bool;
}

impl DataOut for [u8] {
    fn length_bytes(&self) -> u64 {
        self.len() as u64
    }

    fn read(&self, at: u64, into: &mut [u8]) -> bool {
        let start = usize::try_from(at).ok();
        let rest = start.and_then(|start| self.get(start..));
        match rest.and_then(|rest| rest.get(..into.len())) {
            Some(found) => {
                into.copy_from_slice(found);
                true
            }
            None => false,
        }
    }
}
