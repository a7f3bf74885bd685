//! What the flusher is asked to do, and which pages of an inode one call writes.

use blklab_blk::BioFlags;

use crate::PAGE_BYTES;
use crate::page_cache::Mark;

/// Why pages are written (`enum wb_reason`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// More are dirty than the background threshold allows.
    Background,
    /// A program called `sync` or `syncfs`.
    Sync,
    /// They have been dirty for longer than `dirty_expire_centisecs`.
    Periodic,
    /// Reclaim found only dirty pages.
    Vmscan,
    /// The disk spins anyway (laptop mode).
    LaptopTimer,
}

/// Work queued for a flusher (`struct wb_writeback_work`).
#[derive(Clone, Copy, Debug)]
pub(super) struct WritebackWork {
    pub(super) reason: Reason,
    /// Pages to write at most.
    pub(super) pages: i64,
    /// Only the block device's own pages, or only those of its file system.
    pub(super) only_device: Option<bool>,
    /// Some task waits until all is written (`WB_SYNC_ALL`).
    pub(super) is_integrity: bool,
    /// Pages that become dirty meanwhile are left out (`tagged_writepages`).
    pub(super) is_tagged: bool,
    /// Each file is continued where the round before ended (`range_cyclic`).
    pub(super) is_cyclic: bool,
}

impl WritebackWork {
    /// Work without a limit that no task waits for.
    pub(super) const fn unlimited(reason: Reason) -> WritebackWork {
        WritebackWork {
            reason,
            pages: i64::MAX,
            only_device: None,
            is_integrity: false,
            is_tagged: false,
            is_cyclic: true,
        }
    }

    /// Work of a task that waits until all files, or all of the device's own pages, are
    /// written.
    pub(super) const fn sync(only_device: bool) -> WritebackWork {
        WritebackWork {
            only_device: Some(only_device),
            is_integrity: true,
            is_cyclic: false,
            ..WritebackWork::unlimited(Reason::Sync)
        }
    }

    /// How each inode of this work is written.
    pub(super) fn control(&self) -> WritebackControl {
        WritebackControl {
            is_integrity: self.is_integrity,
            is_tagged: self.is_tagged,
            is_background: matches!(self.reason, Reason::Background | Reason::Periodic),
            is_cyclic: self.is_cyclic,
            by_flusher: true,
            ..WritebackControl::all()
        }
    }
}

/// Which pages of an inode are written, and how (`struct writeback_control`).
#[derive(Clone, Copy, Debug)]
pub(super) struct WritebackControl {
    /// Pages that may still be written (`nr_to_write`).
    pub(super) pages: i64,
    /// First and last page.
    pub(super) first: u64,
    pub(super) last: u64,
    /// Some task waits until they are written (`WB_SYNC_ALL`).
    pub(super) is_integrity: bool,
    /// Pages that become dirty meanwhile are left out (`tagged_writepages`).
    pub(super) is_tagged: bool,
    /// The flusher started on its own (`for_background`, `for_kupdate`).
    pub(super) is_background: bool,
    /// The file is continued where the round before ended (`range_cyclic`).
    pub(super) is_cyclic: bool,
    /// A flusher writes them, for the counters.
    pub(super) by_flusher: bool,
}

impl WritebackControl {
    /// Every dirty page of a file.
    pub(super) const fn all() -> WritebackControl {
        WritebackControl {
            pages: i64::MAX,
            first: 0,
            last: u64::MAX,
            is_integrity: false,
            is_tagged: false,
            is_background: false,
            is_cyclic: false,
            by_flusher: false,
        }
    }

    /// The dirty pages of a range of bytes.
    pub(super) const fn range(
        first_byte: u64,
        last_byte: u64,
        is_integrity: bool,
    ) -> WritebackControl {
        WritebackControl {
            first: first_byte / PAGE_BYTES,
            last: last_byte / PAGE_BYTES,
            is_integrity,
            ..WritebackControl::all()
        }
    }

    /// The `REQ_*` flags of its bios (`wbc_to_write_flags`).
    pub(super) const fn flags(&self) -> BioFlags {
        if self.is_integrity {
            BioFlags::SYNC
        } else if self.is_background {
            BioFlags::BACKGROUND
        } else {
            BioFlags::NONE
        }
    }

    /// The mark by which its pages are found (`wbc_to_tag`).
    pub(super) const fn mark(&self) -> Mark {
        if self.is_integrity || self.is_tagged {
            Mark::ToWrite
        } else {
            Mark::Dirty
        }
    }
}
