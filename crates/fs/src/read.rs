//! Buffered reads (`filemap_read` of Linux 6.12's `mm/filemap.c`).

use core::ops::Range;

use crate::PAGE_BYTES;
use crate::bio::{Bio, BioId};
use crate::error::FsError;
use crate::event::Event;
use crate::inode::{File, InodeId};
use crate::page_cache::{FOLIO_BATCH, FolioId, PageCache, flag};
use crate::reclaim::Origin;
use crate::vfs::{Host, Vfs};

/// The folios that a read copies from before it looks for more (`struct folio_batch`).
struct FolioBatch {
    folios: [Option<FolioId>; FOLIO_BATCH],
    len: usize,
}

impl FolioBatch {
    const EMPTY: FolioBatch = FolioBatch {
        folios: [None; FOLIO_BATCH],
        len: 0,
    };

    fn last(&self) -> Option<FolioId> {
        self.folios[..self.len].last().copied().flatten()
    }

    /// Adds a folio. Whether there is room for another.
    fn push(&mut self, folio: FolioId) -> bool {
        self.folios[self.len] = Some(folio);
        self.len += 1;
        self.len < FOLIO_BATCH
    }
}

/// The result of looking for a batch of folios.
enum Lookup {
    /// The batch can be copied from.
    Found,
    /// The lookup must be repeated.
    Retry,
    /// The first page cannot be read.
    Failed,
}

/// How far a read got that no task waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BegunRead {
    /// So many bytes were read.
    Over(u64),
    /// The page is missing. This bio is to be submitted; when it has ended
    /// ([`Vfs::awaits_read`]), the read is made again, and finds the page.
    Waits(BioId, Bio),
}

/// Notes that a program uses a folio. Returns its pages, if they were read ahead and this is
/// the first time.
#[inline]
fn take_unused(cache: &mut PageCache, folio: FolioId) -> u64 {
    if !cache.has(folio, flag::UNUSED_READAHEAD) {
        return 0;
    }
    cache.clear(folio, flag::UNUSED_READAHEAD);
    cache.pages(folio)
}

/// Whether two bytes of a file lie in one folio of this size (`pos_same_folio`).
#[inline]
fn is_same_folio(order: u32, a: u64, b: i64) -> bool {
    let shift = PAGE_BYTES.ilog2() + order;
    a.cast_signed() >> shift == b >> shift
}

impl<H: Host> Vfs<H> {
    /// Reads `bytes` from `pos` on through the page cache. Returns the number of bytes
    /// read.
    ///
    /// # Errors
    /// [`FsError::Device`] where the first page cannot be read.
    pub async fn read(&self, file: &File, pos: u64, bytes: u64) -> Result<u64, FsError> {
        self.read_into(file, pos, bytes, u64::MAX).await
    }

    /// Begins to read as [`Vfs::read`] does, if that is inside one page which is cached, or for
    /// which nothing else is read. Otherwise does nothing and returns `None`.
    pub fn begin_read(&self, file: &File, pos: u64, bytes: u64) -> Option<BegunRead> {
        let index = pos / PAGE_BYTES;
        let mut cache = self.cache.borrow_mut();
        let in_file = pos.checked_add(bytes)? <= cache.inode(file.inode).size_bytes;
        if !in_file || bytes == 0 || (pos + bytes - 1) / PAGE_BYTES != index {
            return None;
        }
        let Some(folio) = cache.find(file.inode, index) else {
            drop(cache);
            let (id, bio) = self.begin_single_page(file, index)?;
            return Some(BegunRead::Waits(id, bio));
        };
        if !cache.is_ready_page(folio) {
            return None;
        }
        self.read_ready(&mut cache, file, folio, (pos, bytes));
        Some(BegunRead::Over(bytes))
    }

    /// Reads inside a page for which nothing has to be waited for.
    #[inline]
    fn read_ready(
        &self,
        cache: &mut PageCache,
        file: &File,
        folio: FolioId,
        (pos, bytes): (u64, u64),
    ) {
        if !is_same_folio(0, pos, file.set_prev_pos((pos + bytes).cast_signed()) - 1) {
            self.mark_accessed(cache, folio);
        }
        self.count_read(cache, folio, 1);
    }

    /// Reads into a buffer of which only the first `buffer_bytes` are valid memory: the
    /// copy ends there, while readahead works with all `bytes`.
    ///
    /// # Errors
    /// As [`Vfs::read`].
    pub async fn read_into(
        &self,
        file: &File,
        pos: u64,
        bytes: u64,
        buffer_bytes: u64,
    ) -> Result<u64, FsError> {
        let size = self.size_bytes(file.inode);
        let mut left = bytes;
        if self.inode(file.inode).is_device {
            left = left.min(size.saturating_sub(pos));
        }
        let mut at = pos;
        let mut last_pos = file.ra.get().prev_pos;
        let mut moved = false;
        let mut got = Ok(());
        let buffer_end = pos.saturating_add(buffer_bytes);
        let end = size.min(buffer_end).min(pos.saturating_add(left));
        self.count_missing(file.inode, pos / PAGE_BYTES..end.div_ceil(PAGE_BYTES));
        while left > 0 && at < size.min(buffer_end) {
            let mut batch = FolioBatch::EMPTY;
            got = self.filemap_get_pages(file, at, left, &mut batch).await;
            if got.is_err() {
                break;
            }
            let end = size.min(at + left);
            for (n, folio) in batch.folios.iter().take(batch.len).flatten().enumerate() {
                let cache = &mut *self.cache.borrow_mut();
                // Several reads in a row inside one folio count as one access.
                if n > 0 || !is_same_folio(cache.order(*folio), at, last_pos - 1) {
                    self.mark_accessed(cache, *folio);
                }
                let next = cache.next_index(*folio) * PAGE_BYTES;
                let copied = end.min(next).min(buffer_end).saturating_sub(at);
                if copied == 0 {
                    break;
                }
                let pages = (at + copied).div_ceil(PAGE_BYTES) - at / PAGE_BYTES;
                self.count_read(cache, *folio, pages);
                at += copied;
                left -= copied;
                last_pos = at.cast_signed();
                moved = true;
            }
        }
        if moved {
            file.set_prev_pos(last_pos);
            return Ok(at - pos);
        }
        got.map(|()| 0)
    }

    /// Counts those pages of a read that are not cached, or not read yet, when it begins.
    fn count_missing(&self, inode: InodeId, pages: Range<u64>) {
        let cache = self.cache.borrow();
        let (mut index, mut missing) = (pages.start, 0);
        while index < pages.end {
            let folio = cache.find(inode, index);
            let next = folio.map_or(index + 1, |folio| cache.next_index(folio));
            let next = next.min(pages.end);
            if !folio.is_some_and(|folio| cache.has(folio, flag::UPTODATE)) {
                missing += next - index;
            }
            index = next;
        }
        self.counts.borrow_mut().missed += missing;
    }

    /// Counts pages of a folio that a program reads.
    #[inline]
    pub(crate) fn count_read(&self, cache: &mut PageCache, folio: FolioId, pages: u64) {
        let mut counts = self.counts.borrow_mut();
        counts.read += pages;
        counts.readahead_used += take_unused(cache, folio);
    }

    /// Counts a folio of readahead that a program uses for the first time.
    pub(crate) fn count_used(&self, folio: FolioId) {
        let used = take_unused(&mut self.cache.borrow_mut(), folio);
        self.counts.borrow_mut().readahead_used += used;
    }

    /// Fills `batch` with the next folios of a read: those that need no wait, or one after
    /// waiting for it.
    async fn filemap_get_pages(
        &self,
        file: &File,
        pos: u64,
        bytes: u64,
        batch: &mut FolioBatch,
    ) -> Result<(), FsError> {
        let index = pos / PAGE_BYTES;
        let last_index = (pos + bytes).div_ceil(PAGE_BYTES);
        loop {
            batch.len = 0;
            match self.try_get_pages(file, index, last_index, batch).await {
                Lookup::Found => return Ok(()),
                Lookup::Failed => return Err(FsError::Device),
                Lookup::Retry => {}
            }
        }
    }

    async fn try_get_pages(
        &self,
        file: &File,
        index: u64,
        last_index: u64,
        batch: &mut FolioBatch,
    ) -> Lookup {
        let inode = file.inode;
        self.filemap_get_read_batch(inode, index, last_index - 1, batch);
        if batch.len == 0 {
            let req = last_index - index;
            self.page_cache_sync_ra(file, index, (req, req), Origin::Read)
                .await;
            self.filemap_get_read_batch(inode, index, last_index - 1, batch);
        }
        let Some(folio) = batch.last() else {
            return self.filemap_create_folio(inode, index, batch).await;
        };
        if self.cache.borrow().has(folio, flag::READAHEAD) {
            let req = last_index - self.cache.borrow().index(folio);
            self.page_cache_async_ra(file, folio, (req, req), Origin::Read)
                .await;
        }
        if !self.cache.borrow().has(folio, flag::UPTODATE) {
            let update = self.filemap_update_page(folio).await;
            if !matches!(update, Lookup::Found) {
                // The folios before it, if any, are copied first.
                batch.len -= 1;
                return if batch.len > 0 { Lookup::Found } else { update };
            }
        }
        let last = last_index - 1;
        self.trace(Event::GetPages {
            inode,
            first: index,
            last,
        });
        Lookup::Found
    }

    /// Adds cached folios from `index` on, up to the first missing one, and up to one that
    /// is not uptodate or has the readahead mark.
    fn filemap_get_read_batch(
        &self,
        inode: InodeId,
        index: u64,
        last: u64,
        batch: &mut FolioBatch,
    ) {
        let cache = self.cache.borrow();
        let mut index = index;
        while index <= last {
            let Some(folio) = cache.find(inode, index) else {
                return;
            };
            let goes_on = batch.push(folio)
                && cache.has(folio, flag::UPTODATE)
                && !cache.has(folio, flag::READAHEAD);
            if !goes_on {
                return;
            }
            index = cache.next_index(folio);
        }
    }

    /// Adds and reads a single page that readahead left out.
    async fn filemap_create_folio(
        &self,
        inode: InodeId,
        index: u64,
        batch: &mut FolioBatch,
    ) -> Lookup {
        let Some(folio) = self.add_folio(inode, index, 0, Origin::Read) else {
            return Lookup::Retry;
        };
        self.read_folio(folio).await;
        self.wait_until_clear(folio, flag::LOCKED).await;
        if !self.cache.borrow().has(folio, flag::UPTODATE) {
            return Lookup::Failed;
        }
        batch.push(folio);
        Lookup::Found
    }

    /// Reads a folio, or waits for whoever does; in that case the lookup is repeated.
    async fn filemap_update_page(&self, folio: FolioId) -> Lookup {
        if self.cache.borrow().has(folio, flag::LOCKED) {
            self.wait_until_clear(folio, flag::LOCKED).await;
            return Lookup::Retry;
        }
        if !self.cache.borrow().has(folio, flag::UPTODATE) {
            self.cache.borrow_mut().set(folio, flag::LOCKED);
            self.read_folio(folio).await;
            self.wait_until_clear(folio, flag::LOCKED).await;
        }
        match self.cache.borrow().has(folio, flag::UPTODATE) {
            true => Lookup::Found,
            false => Lookup::Failed,
        }
    }
}
