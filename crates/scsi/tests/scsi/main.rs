//! A SCSI disk, and the ring of target_core_user.

mod disk;
mod mailbox;
