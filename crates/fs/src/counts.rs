//! What the page cache has done, in pages.

use crate::vfs::{Host, Vfs};

/// Counts since the cache was made, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheCounts {
    /// Pages that reads copied from, and accesses to mapped pages.
    pub read: u64,
    /// Pages of those that were missing or still being read when the read or the access began.
    pub missed: u64,
    /// Pages that readahead read before a call asked for them.
    pub readahead: u64,
    /// Pages of readahead that a program read.
    pub readahead_used: u64,
    /// Pages of readahead that left the cache unread.
    pub readahead_wasted: u64,
    /// Clean pages that became dirty.
    pub dirtied: u64,
    /// Pages that were written to a device.
    pub written: u64,
    /// Pages of those that a flusher wrote.
    pub flushed: u64,
    /// The most pages that were dirty at once.
    pub dirty_max: u64,
    /// Pages that reclaim evicted.
    pub evicted: u64,
}

impl<H: Host> Vfs<H> {
    /// The counts so far.
    pub fn counts(&self) -> CacheCounts {
        *self.counts.borrow()
    }

    /// Sets the counts to zero.
    pub fn reset_counts(&self) {
        *self.counts.borrow_mut() = CacheCounts {
            dirty_max: self.dirty_pages_now(),
            ..CacheCounts::default()
        };
        self.reset_memory_group_counts();
    }

    /// The exact number of dirty pages; the kernel's own counters lag behind.
    pub fn dirty_pages_now(&self) -> u64 {
        self.write_back.borrow().system.dirty.sum()
    }
}
