//! The page cache: which pages of files are in memory, and their state. It holds no data.

mod xarray;

use std::task::Waker;

use crate::inode::{Inode, InodeId};
pub(crate) use xarray::Mark;
use xarray::XArray;

/// Folios that are handled as one batch (`PAGEVEC_SIZE`).
pub(crate) const FOLIO_BATCH: usize = 31;

/// Identifies a folio in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FolioId(u32);

impl FolioId {
    /// No folio.
    pub(crate) const NONE: FolioId = FolioId(u32::MAX);

    /// Its index into arrays with an entry for each folio.
    pub(crate) const fn number(self) -> usize {
        self.0 as usize
    }

    #[cfg(test)]
    pub(crate) const fn from_number(number: u32) -> FolioId {
        FolioId(number)
    }
}

/// Flags of a folio (`PG_*`).
pub(crate) mod flag {
    /// It is being read or changed.
    pub(crate) const LOCKED: u16 = 1 << 0;
    /// Its data is valid.
    pub(crate) const UPTODATE: u16 = 1 << 1;
    /// Its data is newer than the device's.
    pub(crate) const DIRTY: u16 = 1 << 2;
    /// It is being written to the device.
    pub(crate) const WRITEBACK: u16 = 1 << 3;
    /// The readahead mark: a read that reaches the folio starts to read the next window.
    /// On a folio that is dirty or under write-back, the same bit means that reclaim wants
    /// it as soon as it is clean (`PG_reclaim`).
    pub(crate) const READAHEAD: u16 = 1 << 4;
    /// It was part of a working set when it was evicted, or was on the active list.
    pub(crate) const WORKINGSET: u16 = 1 << 5;
    /// Readahead added it, and no program has read it yet. Linux has no such flag; it is
    /// for the counters.
    pub(crate) const UNUSED_READAHEAD: u16 = 1 << 6;
    /// All of its blocks are allocated (`PG_mappedtodisk`).
    pub(crate) const MAPPED_TO_DISK: u16 = 1 << 7;
    /// A bio that reads it has failed, and others are still in flight.
    pub(crate) const READ_FAILED: u16 = 1 << 8;
    /// A flusher writes it back. Linux has no such flag; it is for the counters.
    pub(crate) const BY_FLUSHER: u16 = 1 << 9;
    /// It was accessed since the last scan of its list.
    pub(crate) const REFERENCED: u16 = 1 << 10;
    /// It belongs to the active list, or to the youngest generation.
    pub(crate) const ACTIVE: u16 = 1 << 11;
}

/// Pages that follow each other and are cached as one.
#[derive(Clone, Copy, Debug)]
struct Folio {
    inode: InodeId,
    index: u64,
    flags: u16,
    order: u8,
    /// Page table entries that map its pages.
    mapped: u16,
    /// Bios that must end before it is uptodate or written.
    bios: u16,
    /// Its blocks that are dirty, a bit each.
    dirty_blocks: u8,
    /// Its blocks whose data is valid, a bit each, while not all are.
    uptodate_blocks: u8,
    /// Never used again, unlike its [`FolioId`].
    serial: u32,
}

/// A file's pages (`struct address_space`).
#[derive(Debug)]
struct AddressSpace {
    inode: Inode,
    /// By page, the number of its folio plus one.
    pages: XArray,
    /// By page, what reclaim stored when it evicted the page, plus one.
    shadows: XArray,
    cached_pages: u64,
    /// How many bios failed to write it (`errseq_t`).
    write_errors: u32,
}

/// The page cache of all files.
#[derive(Debug, Default)]
pub(crate) struct PageCache {
    folios: Vec<Folio>,
    free: Vec<u32>,
    /// How many folios were added so far.
    added: u32,
    spaces: Vec<AddressSpace>,
    /// Tasks that wait for a folio to be unlocked, or for its write-back to end.
    waiters: Vec<(FolioId, Waker)>,
}

impl PageCache {
    /// Adds a file without cached pages.
    pub(crate) fn add_inode(&mut self, inode: Inode) -> InodeId {
        self.spaces.push(AddressSpace {
            inode,
            pages: XArray::default(),
            shadows: XArray::default(),
            cached_pages: 0,
            write_errors: 0,
        });
        InodeId(self.spaces.len() as u32 - 1)
    }

    #[inline]
    pub(crate) fn inode(&self, inode: InodeId) -> &Inode {
        &self.spaces[inode.0 as usize].inode
    }

    pub(crate) fn inode_mut(&mut self, inode: InodeId) -> &mut Inode {
        &mut self.spaces[inode.0 as usize].inode
    }

    /// How many writes of the file failed.
    pub(crate) fn write_errors(&self, inode: InodeId) -> u32 {
        self.spaces[inode.0 as usize].write_errors
    }

    /// Counts a failed write of the file (`mapping_set_error`).
    pub(crate) fn add_write_error(&mut self, inode: InodeId) {
        self.spaces[inode.0 as usize].write_errors += 1;
    }

    /// How many pages of the file are cached.
    pub(crate) fn cached_pages(&self, inode: InodeId) -> u64 {
        self.spaces[inode.0 as usize].cached_pages
    }

    /// How many pages of all files are cached.
    pub(crate) fn all_cached_pages(&self) -> u64 {
        self.spaces.iter().map(|space| space.cached_pages).sum()
    }

    /// The folio that holds page `index`.
    #[inline]
    pub(crate) fn find(&self, inode: InodeId, index: u64) -> Option<FolioId> {
        let entry = self.spaces[inode.0 as usize].pages.load(index);
        entry.checked_sub(1).map(FolioId)
    }

    /// Whether a look at a page of the file often has to wait for memory.
    #[inline]
    pub(crate) fn is_spread_out(&self, inode: InodeId) -> bool {
        self.spaces[inode.0 as usize].pages.is_spread_out()
    }

    /// Has the processor prefetch what is known of page `index`.
    pub(crate) fn prefetch(&self, inode: InodeId, index: u64) {
        self.spaces[inode.0 as usize].pages.prefetch(index);
    }

    /// The first folio that has a page from `index` to `last`.
    pub(crate) fn find_from(&self, inode: InodeId, index: u64, last: u64) -> Option<FolioId> {
        let pages = &self.spaces[inode.0 as usize].pages;
        let page = pages.next_before(index, last.saturating_add(1))?;
        self.find(inode, page)
    }

    /// Adds a locked folio of `1 << order` pages, of which the first is not cached; `None` if
    /// another one is.
    pub(crate) fn add(&mut self, inode: InodeId, index: u64, order: u32) -> Option<FolioId> {
        debug_assert!(self.find(inode, index).is_none());
        let pages = index..index + (1 << order);
        let cached = &self.spaces[inode.0 as usize].pages;
        if cached.next_before(index + 1, pages.end).is_some() {
            return None;
        }
        let folio = Folio {
            inode,
            index,
            flags: flag::LOCKED,
            order: order as u8,
            mapped: 0,
            bios: 0,
            dirty_blocks: 0,
            uptodate_blocks: 0,
            serial: self.added,
        };
        self.added += 1;
        let id = match self.free.pop() {
            Some(id) => {
                self.folios[id as usize] = folio;
                id
            }
            None => {
                self.folios.push(folio);
                self.folios.len() as u32 - 1
            }
        };
        let space = &mut self.spaces[inode.0 as usize];
        space.pages.store_all(pages, id + 1);
        space.cached_pages += 1 << order;
        Some(FolioId(id))
    }

    /// Removes a folio.
    pub(crate) fn delete(&mut self, id: FolioId) {
        let Folio {
            inode,
            index,
            order,
            ..
        } = self.folios[id.0 as usize];
        let space = &mut self.spaces[inode.0 as usize];
        space.pages.store_all(index..index + (1 << order), 0);
        space.cached_pages -= 1 << order;
        self.folios[id.0 as usize].flags = 0;
        self.wake(id);
        self.free.push(id.0);
    }

    /// Stores the shadow entry of a folio that is evicted.
    pub(crate) fn put_shadow(&mut self, id: FolioId, shadow: u32) {
        let Folio { inode, index, .. } = self.folios[id.0 as usize];
        let shadows = &mut self.spaces[inode.0 as usize].shadows;
        shadows.store(index, shadow + 1);
    }

    /// Removes and returns the shadow entry of a folio's pages.
    #[inline]
    pub(crate) fn take_shadow(&mut self, id: FolioId) -> Option<u32> {
        let Folio {
            inode,
            index,
            order,
            ..
        } = self.folios[id.0 as usize];
        let shadows = &mut self.spaces[inode.0 as usize].shadows;
        if shadows.is_unused() {
            return None;
        }
        let end = index + (1 << order);
        let (mut from, mut found) = (index, None);
        while let Some(page) = shadows.next_before(from, end) {
            found = shadows.load(page).checked_sub(1);
            shadows.store(page, 0);
            from = page + 1;
        }
        found
    }

    #[inline]
    pub(crate) fn index(&self, id: FolioId) -> u64 {
        self.folios[id.0 as usize].index
    }

    /// The file that a folio belongs to, its first page there, and how many it has.
    pub(crate) fn place(&self, id: FolioId) -> (InodeId, u64, u64) {
        (self.inode_of(id), self.index(id), self.pages(id))
    }

    #[inline]
    pub(crate) fn inode_of(&self, id: FolioId) -> InodeId {
        self.folios[id.0 as usize].inode
    }

    /// Its serial number, which is never used again, unlike its [`FolioId`].
    pub(crate) fn serial(&self, id: FolioId) -> u32 {
        self.folios[id.0 as usize].serial
    }

    #[inline]
    pub(crate) fn order(&self, id: FolioId) -> u32 {
        self.folios[id.0 as usize].order as u32
    }

    /// How many pages it has.
    pub(crate) fn pages(&self, id: FolioId) -> u64 {
        1 << self.order(id)
    }

    /// The page after its last one.
    pub(crate) fn next_index(&self, id: FolioId) -> u64 {
        self.index(id) + (1 << self.order(id))
    }

    /// Whether a read of it needs no wait and no look at what is read ahead, and it is one page.
    #[inline]
    pub(crate) fn is_ready_page(&self, id: FolioId) -> bool {
        let Folio { order, flags, .. } = self.folios[id.0 as usize];
        order == 0 && flags & (flag::UPTODATE | flag::READAHEAD) == flag::UPTODATE
    }

    /// Whether a write inside of it needs no wait, no read and no new block.
    #[inline]
    pub(crate) fn takes_writes(&self, id: FolioId) -> bool {
        const READY: u16 = flag::UPTODATE | flag::MAPPED_TO_DISK;
        self.folios[id.0 as usize].flags & (READY | flag::LOCKED) == READY
    }

    /// Whether it has any of these flags.
    #[inline]
    pub(crate) fn has(&self, id: FolioId, flags: u16) -> bool {
        self.folios[id.0 as usize].flags & flags != 0
    }

    #[inline]
    pub(crate) fn set(&mut self, id: FolioId, flags: u16) {
        self.folios[id.0 as usize].flags |= flags;
    }

    /// Clears flags and wakes the tasks that wait for that.
    #[inline]
    pub(crate) fn clear(&mut self, id: FolioId, flags: u16) {
        self.folios[id.0 as usize].flags &= !flags;
        if flags & (flag::LOCKED | flag::WRITEBACK) != 0 && !self.waiters.is_empty() {
            self.wake(id);
        }
    }

    /// One more bio, or another part of reading it, must end before it is uptodate.
    #[inline]
    pub(crate) fn begin_read(&mut self, id: FolioId) {
        self.folios[id.0 as usize].bios += 1;
    }

    /// A part of reading it has ended. The last one unlocks the folio, which is uptodate
    /// unless a part failed.
    #[inline]
    pub(crate) fn end_read(&mut self, id: FolioId, has_failed: bool) {
        let folio = &mut self.folios[id.0 as usize];
        folio.bios -= 1;
        if has_failed {
            folio.flags |= flag::READ_FAILED;
        }
        if folio.bios == 0 {
            if folio.flags & flag::READ_FAILED == 0 {
                folio.flags |= flag::UPTODATE;
            }
            folio.flags &= !flag::READ_FAILED;
            self.clear(id, flag::LOCKED);
        }
    }

    /// Its blocks that hold the bytes of the file from `first` up to `end`, a bit each. A
    /// folio of several pages is dirty as a whole.
    #[inline]
    pub(crate) fn blocks(&self, id: FolioId, first: u64, end: u64) -> u8 {
        let Folio { inode, order, .. } = self.folios[id.0 as usize];
        match order {
            0 => self.inode(inode).blocks(first, end),
            _ => u8::MAX,
        }
    }

    /// Its blocks that are uptodate, a bit each.
    pub(crate) fn uptodate_blocks(&self, id: FolioId) -> u8 {
        match self.has(id, flag::UPTODATE) {
            true => u8::MAX,
            false => self.folios[id.0 as usize].uptodate_blocks,
        }
    }

    /// Marks blocks uptodate; `all` are the folio's blocks.
    pub(crate) fn set_blocks_uptodate(&mut self, id: FolioId, blocks: u8, all: u8) {
        let folio = &mut self.folios[id.0 as usize];
        folio.uptodate_blocks |= blocks;
        if folio.uptodate_blocks & all == all {
            folio.flags |= flag::UPTODATE;
        }
    }

    /// Marks blocks clean, but not the folio. Whether one of them was dirty.
    pub(crate) fn clean_blocks(&mut self, id: FolioId, blocks: u8) -> bool {
        let folio = &mut self.folios[id.0 as usize];
        let was_dirty = folio.dirty_blocks & blocks != 0;
        folio.dirty_blocks &= !blocks;
        was_dirty
    }

    /// Marks blocks dirty, if the folio is. Whether it is.
    #[inline]
    pub(crate) fn add_dirty(&mut self, id: FolioId, blocks: u8) -> bool {
        let folio = &mut self.folios[id.0 as usize];
        let is_dirty = folio.flags & flag::DIRTY != 0;
        if is_dirty {
            folio.dirty_blocks |= blocks;
        }
        is_dirty
    }

    /// Marks blocks, and the folio, dirty, which was clean.
    pub(crate) fn set_dirty(&mut self, id: FolioId, blocks: u8) {
        let folio = &mut self.folios[id.0 as usize];
        folio.dirty_blocks |= blocks;
        folio.flags |= flag::DIRTY;
        self.mark(id, Mark::Dirty);
    }

    /// Marks it clean without writing it. Whether it was dirty.
    pub(crate) fn cancel_dirty(&mut self, id: FolioId) -> bool {
        let folio = &mut self.folios[id.0 as usize];
        folio.dirty_blocks = 0;
        let was_dirty = folio.flags & flag::DIRTY != 0;
        folio.flags &= !flag::DIRTY;
        self.unmark(id, Mark::Dirty);
        self.unmark(id, Mark::ToWrite);
        was_dirty
    }

    /// Marks it clean and under write-back. Returns its blocks that were dirty.
    pub(crate) fn begin_write_back(&mut self, id: FolioId) -> u8 {
        let blocks = self.folios[id.0 as usize].dirty_blocks;
        self.cancel_dirty(id);
        self.set(id, flag::WRITEBACK);
        self.mark(id, Mark::WriteBack);
        blocks
    }

    /// One more bio must end before its write-back ends.
    pub(crate) fn begin_write(&mut self, id: FolioId) {
        self.folios[id.0 as usize].bios += 1;
    }

    /// A bio that writes it has ended. Whether it was the last one.
    pub(crate) fn end_write(&mut self, id: FolioId) -> bool {
        let folio = &mut self.folios[id.0 as usize];
        folio.bios -= 1;
        let is_last = folio.bios == 0;
        if is_last {
            self.unmark(id, Mark::WriteBack);
            self.clear(id, flag::WRITEBACK);
        }
        is_last
    }

    fn mark(&mut self, id: FolioId, mark: Mark) {
        let Folio { inode, index, .. } = self.folios[id.0 as usize];
        self.spaces[inode.0 as usize].pages.mark(index, mark);
    }

    fn unmark(&mut self, id: FolioId, mark: Mark) {
        let Folio { inode, index, .. } = self.folios[id.0 as usize];
        self.spaces[inode.0 as usize].pages.unmark(index, mark);
    }

    /// Whether a page of the file has the mark.
    pub(crate) fn any_marked(&self, inode: InodeId, mark: Mark) -> bool {
        self.spaces[inode.0 as usize].pages.any_marked(mark)
    }

    /// The folio of the first page from `index` to `last` with the mark.
    pub(crate) fn next_marked(
        &self,
        inode: InodeId,
        index: u64,
        last: u64,
        mark: Mark,
    ) -> Option<FolioId> {
        let pages = &self.spaces[inode.0 as usize].pages;
        let page = pages.next_marked(index, mark)?;
        (page <= last).then(|| self.find(inode, page)).flatten()
    }

    /// Marks the dirty pages of a range for writing (`tag_pages_for_writeback`).
    pub(crate) fn mark_for_writing(&mut self, inode: InodeId, first: u64, last: u64) {
        let mut index = first;
        while let Some(folio) = self.next_marked(inode, index, last, Mark::Dirty) {
            self.mark(folio, Mark::ToWrite);
            index = self.next_index(folio);
        }
    }

    pub(crate) fn mapped(&self, id: FolioId) -> bool {
        self.folios[id.0 as usize].mapped > 0
    }

    /// Counts a page table entry that maps it, or does so no longer.
    pub(crate) fn map(&mut self, id: FolioId, more: bool) {
        let mapped = &mut self.folios[id.0 as usize].mapped;
        *mapped = if more { *mapped + 1 } else { *mapped - 1 };
    }

    /// Wakes a task when the folio is unlocked, its write-back ends, or it is deleted.
    pub(crate) fn wait(&mut self, id: FolioId, waker: Waker) {
        self.waiters.push((id, waker));
    }

    fn wake(&mut self, id: FolioId) {
        let woken = self
            .waiters
            .extract_if(.., |(waits_for, _)| *waits_for == id);
        for (_, waker) in woken {
            waker.wake();
        }
    }

    /// The first page from `index` on that is not cached (`page_cache_next_miss`). If the
    /// next `max_scan` pages are all cached, the page after them.
    pub(crate) fn next_miss(&self, inode: InodeId, index: u64, max_scan: u64) -> u64 {
        let mut lag = self.walk_lag(index, self.find(inode, index));
        for page in index..index + max_scan {
            if self.find(inode, page - lag).is_none() {
                return page;
            }
            // In the next node the walk is at the right slot again.
            if (page - lag) % 64 == 63 {
                lag = 0;
            }
        }
        index + max_scan
    }

    /// The first page from `index` downwards that is not cached, of `max_scan` pages at
    /// most (`page_cache_prev_miss`); `None`, in the kernel the largest index, if all down
    /// to page 0 are cached.
    pub(crate) fn prev_miss(&self, inode: InodeId, index: u64, max_scan: u64) -> Option<u64> {
        let first = self.find(inode, index);
        if first.is_none() && max_scan > 0 {
            return Some(index);
        }
        let mut lag = self.walk_lag(index, first);
        for scanned in 0..max_scan {
            let page = index.checked_sub(scanned)?;
            if self.find(inode, page - lag.min(page)).is_none() {
                return Some(page);
            }
            if (page - lag.min(page)).is_multiple_of(64) {
                lag = 0;
            }
        }
        (index + 1).checked_sub(max_scan)
    }

    /// By how many pages the kernel's walk lags behind its index. Begun inside a folio, it
    /// continues from the folio's first slot, while the index counts from the page asked
    /// for (`xas_load` and `xas_next` of Linux 6.12).
    fn walk_lag(&self, index: u64, begun_in: Option<FolioId>) -> u64 {
        let first = begun_in.map_or(index, |id| self.index(id));
        if index - first < 64 { index - first } else { 0 }
    }
}
