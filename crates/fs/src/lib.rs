//! What stands above the block layer, as in Linux 6.12: file systems and their names,
//! the page cache, readahead, buffered reads, page faults of mapped files, direct I/O,
//! write-back and reclaim.
//!
//! Nothing here has a clock, a thread or a drive. An operation is an `async` function
//! that waits for pages to be unlocked and for bios to end; its caller polls it and
//! decides how time passes. The [`Host`] takes bios and maps files to their device.

mod bio;
mod buffer;
mod buffer_cache;
mod counts;
mod direct;
mod error;
mod event;
mod ext2;
mod fault;
mod file_system;
mod image;
mod inode;
mod invalidate;
mod mounted;
mod page_cache;
mod raw;
mod read;
mod readahead;
mod readpages;
mod reclaim;
mod vfat;
mod vfs;
mod write;
pub mod write_back;
mod xfs;

pub use bio::{Bio, BioId};
pub use buffer::{Buffer, Buffers};
pub use buffer_cache::{BufferCache, BufferCounts};
pub use counts::CacheCounts;
pub use direct::DirectCall;
pub use error::FsError;
pub use event::Event;
pub use ext2::{Ext2, Ext2Layout, Ext2Options};
pub use fault::{Fault, Mapping, MmapAdvice};
pub use file_system::{
    Attributes, BlockMap, Caller, Change, Civil, DirEntry, DirectLocking, FileKind, FileSystem,
    Ino, NewInode, Timestamp, Usage,
};
pub use image::{FileExtent, Image, SparseDisk, Storage, Volume, at_once};
pub use inode::{BackingDevice, Extent, File, Inode, InodeId, RaState, ReadPath};
pub use invalidate::Advice;
pub use mounted::{MountOptions, Mounted};
pub use read::BegunRead;
pub use reclaim::{
    LruStatistics, MEMORY_FILES, Memory, MemoryFile, MemoryGroup, MemoryGroupCounts, NodePages,
    OverHigh, Policy, Pressure, Watermarks,
};
pub use vfat::{Charset, FatWidth, ShortNames, Vfat, VfatLayout, VfatOptions};
pub use vfs::{
    DentryCounts, Host, MountDevice, Namespace, OpenFile, OpenFlags, Place, ShrinkCounts, Vfs,
    Written,
};
pub use xfs::Xfs;

/// Bytes of a page.
pub const PAGE_BYTES: u64 = 4096;
