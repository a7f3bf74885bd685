//! What the page cache decides, step by step: the points at which a kernel can
//! be traced, with the same fields.

use crate::PAGE_BYTES;
use crate::bio::Bio;
use crate::inode::{InodeId, RaState};
use crate::write_back::Reason;

/// A traced step. Indexes and counts are in pages.
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
    /// A read or fault met the readahead mark at `index` (`page_cache_async_ra`).
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
        /// The first page that is read.
        index: u64,
        /// The order of the folio that had the mark, 0 without one.
        new_order: u32,
        /// The file's state with the new window.
        ra: RaState,
    },
    /// What of it is filled in, cut at the end of the file
    /// (`page_cache_ra_unbounded`).
    Fill {
        /// The file.
        inode: InodeId,
        /// The first page.
        index: u64,
        /// How many pages.
        nr: u64,
        /// How many of them lie behind the mark.
        lookahead: u64,
    },
    /// Readahead that asks no window (`force_page_cache_ra`).
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
    /// A folio comes into the page cache.
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
    /// A round of a read has its pages (`filemap_get_pages`, at its end).
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
    /// Fault-around is done.
    MapPagesEnd {
        /// The file.
        inode: InodeId,
        /// The page of the fault.
        index: u64,
        /// Whether it was among the pages mapped.
        served: bool,
    },
    /// A fault needs the file's page (`filemap_fault`).
    Fault {
        /// The file.
        inode: InodeId,
        /// The page.
        index: u64,
        /// The file's count of misses in mappings, before.
        mmap_miss: u32,
    },
    /// The fault has its page or has to be tried again.
    FaultEnd {
        /// The file.
        inode: InodeId,
        /// The page.
        index: u64,
        /// Whether it has to be tried again.
        retry: bool,
    },
    /// A page came back that reclaim had evicted (`workingset_refault`).
    Refault {
        /// The file.
        inode: InodeId,
        /// The page.
        index: u64,
        /// Whether it came back active.
        active: bool,
    },
    /// Memory is short: reclaim begins (`try_to_free_mem_cgroup_pages`,
    /// `try_to_free_pages`).
    Reclaim {
        /// Pages that are wanted.
        pages: u64,
    },
    /// Reclaim took pages out of a list (`mm_vmscan_lru_isolate`).
    Isolate {
        /// Whether it was the active list.
        active: bool,
        /// Pages that it would have looked at.
        requested: u64,
        /// Pages that it looked at.
        scanned: u64,
        /// Pages that it took.
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
    /// The flusher was asked, or asked itself, whether there is too much dirty
    /// (`wb_over_bg_thresh`).
    OverBackground {
        /// The answer.
        over: bool,
    },
    /// The flusher begins a round (`writeback_start`).
    FlushStart {
        /// What for.
        reason: Reason,
    },
    /// The flusher has queued inodes (`writeback_queue_io`).
    QueueIo {
        /// What for.
        reason: Reason,
        /// How many were dirty long enough.
        moved: u64,
    },
    /// An inode is to be written (`writeback_single_inode_start`).
    WriteInode {
        /// The inode.
        inode: InodeId,
        /// Pages of it at most.
        pages: i64,
    },
    /// An inode was written (`writeback_single_inode`).
    WroteInode {
        /// The inode.
        inode: InodeId,
        /// Pages of it.
        pages: i64,
    },
    /// The flusher has done all its work (`writeback_pages_written`).
    Flushed {
        /// Pages and inodes.
        written: u64,
    },
}

impl Event {
    /// The index of the page that a byte lies in.
    pub const fn page_of(byte: u64) -> u64 {
        byte / PAGE_BYTES
    }
}
