//! What stands above the block layer, as Linux 6.12 does it: the page cache,
//! readahead, buffered reads, page faults of mapped files and direct I/O.
//!
//! Nothing here has a clock, a thread or a drive. An operation is an `async`
//! function of [`Vfs`]; it waits for pages to be unlocked and for bios to end,
//! and whoever polls it decides how time passes. The [`Host`] takes bios and
//! tells where a file's bytes are on its device.

mod bio;
mod direct;
mod event;
mod fault;
mod inode;
mod invalidate;
mod page_cache;
mod read;
mod readahead;
mod readpages;
mod vfs;
mod write;

pub use bio::{Bio, BioId};
pub use direct::DirectCall;
pub use event::Event;
pub use fault::{Access, Mapping};
pub use inode::{BackingDevice, Extent, File, FsError, Inode, InodeId, ReadPath};
pub use invalidate::Advice;
pub use readahead::RaState;
pub use vfs::{Host, Vfs};

/// Bytes of a page.
pub const PAGE_BYTES: u64 = 4096;
