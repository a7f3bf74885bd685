//! The page cache's decisions, as a kernel's tracepoints and probes show them.

use crate::PAGE_BYTES;
use crate::bio::Bio;
use crate::inode::{InodeId, RaState};
use crate::write_back::Reason;

/// A traced event. Indexes and counts are in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A read found no page at `index` (`page_cache_sync_ra`).
    SyncReadahead {
        /// The file.
        inode: InodeId,
        /// The missing page.
        index: u64,
        /// Pages that the call still wants.
        req: u64,
        /// The file's state before.
        ra: RaState,
    },
    /// A read or fault reached the readahead mark at `index` (`page_cache_async_ra`).
    AsyncReadahead {
        /// The file.
        inode: InodeId,
        /// The first page of the marked folio.
        index: u64,
        /// Pages that the call still wants.
        req: u64,
        /// The file's state before.
        ra: RaState,
    },
    /// The window that was decided on (`page_cache_ra_order`).
    Window {
        /// The file.
        inode: InodeId,
        /// The window's first page.
        index: u64,
        /// The order of the folio that had the mark; 0 if there was none.
        new_order: u32,
        /// The file's state with the new window.
        ra: RaState,
    },
    /// The pages of a window that are read, cut at the end of the file
    /// (`page_cache_ra_unbounded`).
    Fill {
        /// The file.
        inode: InodeId,
        /// The first page.
        index: u64,
        /// How many pages.
        nr: u64,
        /// How many of them lie after the mark.
        lookahead: u64,
    },
    /// Readahead without a window (`force_page_cache_ra`).
    Force {
        /// The file.
        inode: InodeId,
        /// The first page.
        index: u64,
        /// Pages asked for.
        nr: u64,
    },
    /// A run of new pages goes to the file system (`read_pages`).
    ReadPages {
        /// The file.
        inode: InodeId,
        /// The first page.
        index: u64,
        /// How many; none at the end of a walk over cached pages.
        nr: u64,
    },
    /// A folio is added to the page cache.
    Add {
        /// The file.
        inode: InodeId,
        /// Its first page.
        index: u64,
        /// It has `1 << order` pages.
        order: u32,
    },
    /// A folio leaves the page cache.
    Delete {
        /// The file.
        inode: InodeId,
        /// Its first page.
        index: u64,
        /// It has `1 << order` pages.
        order: u32,
    },
    /// A read has its next batch of pages (the end of `filemap_get_pages`).
    GetPages {
        /// The file.
        inode: InodeId,
        /// The first page asked for.
        first: u64,
        /// The last page asked for.
        last: u64,
    },
    /// Fault-around looks for cached pages (`filemap_map_pages`).
    MapPages {
        /// The file.
        inode: InodeId,
        /// The page of the fault.
        index: u64,
        /// The window's first page.
        from: u64,
        /// The window's last page.
        to: u64,
    },
    /// Fault-around has ended.
    MapPagesEnd {
        /// The file.
        inode: InodeId,
        /// The page of the fault.
        index: u64,
        /// Whether that page was mapped.
        served: bool,
    },
    /// A fault needs the file's page (`filemap_fault`).
    Fault {
        /// The file.
        inode: InodeId,
        /// The page.
        index: u64,
        /// The file's `mmap_miss` before.
        mmap_miss: u32,
    },
    /// The fault has its page, or must be retried.
    FaultEnd {
        /// The file.
        inode: InodeId,
        /// The page.
        index: u64,
        /// Whether it must be retried.
        retry: bool,
    },
    /// A page is read again that reclaim had evicted (`workingset_refault`).
    Refault {
        /// The file.
        inode: InodeId,
        /// The page.
        index: u64,
        /// Whether it goes to the active list.
        active: bool,
    },
    /// Reclaim begins (`try_to_free_mem_cgroup_pages`, `try_to_free_pages`).
    Reclaim {
        /// Pages to free.
        pages: u64,
    },
    /// Reclaim took pages off a list (`mm_vmscan_lru_isolate`).
    Isolate {
        /// Whether it was the active list.
        active: bool,
        /// Pages to scan at most.
        requested: u64,
        /// Pages scanned.
        scanned: u64,
        /// Pages taken.
        taken: u64,
    },
    /// A bio goes to the block layer.
    Submit(Bio),
    /// A page became dirty (`writeback_dirty_folio`).
    Dirty {
        /// The file.
        inode: InodeId,
        /// The page.
        index: u64,
    },
    /// The flusher compares dirty pages with the background threshold
    /// (`wb_over_bg_thresh`).
    OverBackground {
        /// Whether there are more.
        over: bool,
    },
    /// The flusher begins a round (`writeback_start`).
    FlushStart {
        /// Why.
        reason: Reason,
    },
    /// The flusher has queued inodes (`writeback_queue_io`).
    QueueIo {
        /// Why.
        reason: Reason,
        /// How many of them had been dirty for long enough.
        moved: u64,
    },
    /// Writing an inode begins (`writeback_single_inode_start`).
    WriteInode {
        /// The inode.
        inode: InodeId,
        /// Its pages to write at most.
        pages: i64,
    },
    /// An inode was written (`writeback_single_inode`).
    WroteInode {
        /// The inode.
        inode: InodeId,
        /// Its pages that were written.
        pages: i64,
    },
    /// The flusher's run ends (`writeback_pages_written`).
    Flushed {
        /// Pages and inodes written.
        written: u64,
    },
}

impl Event {
    /// The index of the page that a byte lies in.
    pub const fn page_of(byte: u64) -> u64 {
        byte / PAGE_BYTES
    }
}
