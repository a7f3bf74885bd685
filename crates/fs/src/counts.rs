//! What the page cache has done, in pages.

use crate::inode::InodeId;
use crate::vfs::{Host, Vfs};

/// Counts since the cache was made, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheCounts {
    /// Pages that reads copied from.
    pub read: u64,
    /// Times that a read found a page missing or still on its way, and waited for it.
    pub missed: u64,
    /// Pages that readahead brought, those included that a call had asked for.
    pub readahead: u64,
    /// Those of them that a program has read.
    pub readahead_used: u64,
    /// Those of them that left the cache before.
    pub readahead_wasted: u64,
    /// Clean pages that became dirty.
    pub dirtied: u64,
    /// Pages that were written to a device.
    pub written: u64,
    /// Those of them that the flusher wrote.
    pub flushed: u64,
    /// The most dirty pages at once.
    pub dirty_max: u64,
    /// Pages that reclaim evicted.
    pub evicted: u64,
}

impl<H: Host> Vfs<H> {
    /// What was counted so far.
    pub fn counts(&self) -> CacheCounts {
        *self.counts.borrow()
    }

    /// Starts counting afresh.
    pub fn reset_counts(&self) {
        *self.counts.borrow_mut() = CacheCounts {
            dirty_max: self.dirty_pages_now(),
            ..CacheCounts::default()
        };
    }

    /// Whether it is a block device.
    pub fn is_device(&self, inode: InodeId) -> bool {
        self.inode(inode).is_device
    }

    /// Pages that are dirty, without the lag of the kernel's counters.
    pub fn dirty_pages_now(&self) -> u64 {
        self.write_back.borrow().dirty.sum()
    }

    /// Pages that are cached.
    pub fn all_cached_pages(&self) -> u64 {
        self.cache.borrow().all_cached_pages()
    }
}
