//! Files, open files and what is known of their device.

use std::cell::Cell;

use crate::PAGE_BYTES;

/// Names a file, or a block device that is read as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InodeId(pub u32);

/// What of a block device readahead has to know (`struct backing_dev_info`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackingDevice {
    /// The largest window, in pages: `read_ahead_kb`.
    pub ra_pages: u32,
    /// The largest request, in pages: `max_sectors_kb`.
    pub io_pages: u32,
}

/// How a file system reads the pages that readahead gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadPath {
    /// Block by block, one bio as long as blocks follow each other
    /// (`fs/mpage.c`, and ext4's copy of it).
    Mpage,
    /// Extent by extent (`fs/iomap/buffered-io.c`).
    Iomap,
}

/// A file's part in the page cache.
#[derive(Clone, Copy, Debug)]
pub struct Inode {
    /// Its length in bytes.
    pub size_bytes: u64,
    /// The unit in which its device is allotted, in bytes.
    pub block_bytes: u64,
    /// Whether folios may have more than one page.
    pub large_folios: bool,
    /// How its pages are read.
    pub read_path: ReadPath,
    /// Whether it is the block device itself: it cannot grow, and calls are cut at
    /// its end before readahead sees them.
    pub is_device: bool,
    /// Its device.
    pub device: BackingDevice,
}

impl Inode {
    /// The blocks of a page that hold the bytes from `first` up to `end`, a bit each.
    pub(crate) fn blocks(&self, first: u64, end: u64) -> u8 {
        let page = first / PAGE_BYTES * PAGE_BYTES;
        let block = |byte: u64| (byte - page) / self.block_bytes;
        (block(first)..=block(end - 1)).fold(0, |blocks, n| blocks | 1_u8 << n)
    }
}

/// Where some bytes of a file are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The first sector on the device; `None` in a hole.
    pub sector: Option<u64>,
    /// How many bytes from the one asked for lie there, one after the other.
    pub bytes: u64,
    /// Where the file goes on is not known without reading another block, so that a bio
    /// should not wait for it (`BH_Boundary`).
    pub boundary: bool,
}

/// A file's readahead state (`struct file_ra_state`); sizes are in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RaState {
    /// Where the window begins.
    pub start: u64,
    /// How long it is.
    pub size: u32,
    /// How much of it lies behind the mark.
    pub async_size: u32,
    /// The largest window: `read_ahead_kb`, as advised for this file.
    pub ra_pages: u32,
    /// Faults that found no page, less those that did.
    pub mmap_miss: u32,
    /// The byte behind the last read; -1 before the first.
    pub prev_pos: i64,
}

impl RaState {
    pub(crate) const fn new(ra_pages: u32) -> RaState {
        RaState {
            start: 0,
            size: 0,
            async_size: 0,
            ra_pages,
            mmap_miss: 0,
            prev_pos: -1,
        }
    }
}

/// An open file: its readahead state, and what was advised of it.
#[derive(Debug)]
pub struct File {
    /// What is open.
    pub inode: InodeId,
    pub(crate) ra: Cell<RaState>,
    pub(crate) random: Cell<bool>,
    /// Failed writes of the file that this user of it was told of.
    pub(crate) write_errors_seen: Cell<u32>,
}

impl File {
    /// An open file that nothing was read of.
    pub fn new(inode: InodeId, device: &BackingDevice) -> File {
        File {
            inode,
            ra: Cell::new(RaState::new(device.ra_pages)),
            random: Cell::new(false),
            write_errors_seen: Cell::new(0),
        }
    }

    /// Its readahead state.
    pub fn readahead_state(&self) -> RaState {
        self.ra.get()
    }
}
