//! Files and open files as the page cache sees them.

use std::cell::Cell;

use crate::PAGE_BYTES;

/// Identifies a file, or a block device, in the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InodeId(pub u32);

/// The limits of a block device that readahead keeps to (`struct backing_dev_info`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackingDevice {
    /// The largest window, in pages: `read_ahead_kb`.
    pub ra_pages: u32,
    /// The largest request, in pages: `max_sectors_kb`.
    pub io_pages: u32,
}

/// How a file system makes bios of the pages that it reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadPath {
    /// Page by page, each mapped block by block (`fs/mpage.c`, and ext4's copy of it).
    Mpage,
    /// Extent by extent (`fs/iomap/buffered-io.c`).
    Iomap,
}

impl ReadPath {
    /// That of a file system, by whether it maps its files extent by extent.
    pub(crate) fn of(uses_iomap: bool) -> ReadPath {
        match uses_iomap {
            true => ReadPath::Iomap,
            false => ReadPath::Mpage,
        }
    }

    /// From which byte on the rest of a block is zeroed where a file's length goes from `before`
    /// to `after` bytes: of a file that becomes longer, ext2 does so where it ends then, and xfs
    /// where it ended (`ext2_setsize`, `xfs_setattr_size`).
    pub(crate) fn zeroed_from(self, block_bytes: u64, before: u64, after: u64) -> Option<u64> {
        let end = match self {
            ReadPath::Iomap => after.min(before),
            ReadPath::Mpage => after,
        };
        (after != before && !end.is_multiple_of(block_bytes)).then_some(end)
    }
}

/// What the page cache knows of a file.
#[derive(Clone, Copy, Debug)]
pub struct Inode {
    /// Its length in bytes.
    pub size_bytes: u64,
    /// The block size of its file system, in bytes.
    pub block_bytes: u64,
    /// Whether folios may have more than one page.
    pub large_folios: bool,
    /// How its pages are read.
    pub read_path: ReadPath,
    /// Whether it is a block device: it cannot grow, and reads are cut at its end before
    /// readahead sees them.
    pub is_device: bool,
    /// Its device.
    pub device: BackingDevice,
}

impl Inode {
    /// The blocks of one page that hold the bytes from `first` up to `end`, a bit each.
    #[inline]
    pub(crate) fn blocks(&self, first: u64, end: u64) -> u8 {
        match self.block_bytes >= PAGE_BYTES {
            true => 1,
            false => self.small_blocks(first, end),
        }
    }

    fn small_blocks(&self, first: u64, end: u64) -> u8 {
        let page = first / PAGE_BYTES * PAGE_BYTES;
        let block = |byte: u64| (byte - page) / self.block_bytes;
        (block(first)..=block(end - 1)).fold(0, |blocks, n| blocks | 1_u8 << n)
    }
}

/// Where bytes of a file are on its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The first sector on the device; `None` in a hole.
    pub sector: Option<u64>,
    /// How many bytes, from the one asked for, follow each other there.
    pub bytes: u64,
    /// The place of the next byte is in a block that must be read first, so a bio should
    /// be sent before that (`BH_Boundary`).
    pub boundary: bool,
}

/// A file's readahead state (`struct file_ra_state`); sizes are in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RaState {
    /// The window's first page.
    pub start: u64,
    /// The window's length.
    pub size: u32,
    /// The part of the window from the readahead mark on.
    pub async_size: u32,
    /// The largest window: `read_ahead_kb`, as advised for this file.
    pub ra_pages: u32,
    /// Page faults that missed the cache, less those that hit it.
    pub mmap_miss: u32,
    /// The byte after the last read; -1 before the first.
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

/// An open file: its readahead state, and the advice given for it (`struct file`).
#[derive(Debug)]
pub struct File {
    /// The inode that is open.
    pub inode: InodeId,
    pub(crate) ra: Cell<RaState>,
    /// `POSIX_FADV_RANDOM` holds: nothing is read ahead (`FMODE_RANDOM`).
    pub(crate) random: Cell<bool>,
    /// What is read will not be used again (`FMODE_NOREUSE`).
    pub(crate) is_used_once: Cell<bool>,
    /// Failed writes of the file that were reported to this open file (`f_wb_err`).
    pub(crate) write_errors_seen: Cell<u32>,
}

impl File {
    /// A file that was just opened.
    pub fn new(inode: InodeId, device: &BackingDevice) -> File {
        File {
            inode,
            ra: Cell::new(RaState::new(device.ra_pages)),
            random: Cell::new(false),
            is_used_once: Cell::new(false),
            write_errors_seen: Cell::new(0),
        }
    }

    /// Sets the byte after the last read. Returns what it was.
    #[inline]
    pub(crate) fn set_prev_pos(&self, prev_pos: i64) -> i64 {
        let before = self.ra.get();
        self.ra.set(RaState { prev_pos, ..before });
        before.prev_pos
    }
}
