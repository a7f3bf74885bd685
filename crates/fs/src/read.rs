//! Buffered reads (`filemap_read` of Linux 6.12's `mm/filemap.c`).

use crate::PAGE_BYTES;
use crate::error::FsError;
use crate::event::Event;
use crate::inode::{File, InodeId};
use crate::page_cache::{FolioId, flag};
use crate::reclaim::Origin;
use crate::vfs::{Host, Vfs};

/// Folios that one round of a read takes (`PAGEVEC_SIZE`).
const BATCH: usize = 31;

/// The folios of a round.
struct Batch {
    folios: [Option<FolioId>; BATCH],
    len: usize,
}

impl Batch {
    const EMPTY: Batch = Batch {
        folios: [None; BATCH],
        len: 0,
    };

    fn last(&self) -> Option<FolioId> {
        self.folios[..self.len].last().copied().flatten()
    }

    /// Adds a folio; whether there is room for another.
    fn push(&mut self, folio: FolioId) -> bool {
        self.folios[self.len] = Some(folio);
        self.len += 1;
        self.len < BATCH
    }
}

/// What became of a round.
enum Round {
    /// Its pages can be copied.
    Got,
    /// It has to look again.
    Again,
    /// The page that it begins with cannot be read.
    Failed,
}

impl<H: Host> Vfs<H> {
    /// Reads `bytes` from `pos` on into the page cache and out of it. Returns how
    /// many there were before the end of the file.
    ///
    /// # Errors
    /// [`FsError::Device`] where the first page cannot be read.
    pub async fn read(&self, file: &File, pos: u64, bytes: u64) -> Result<u64, FsError> {
        self.read_into(file, pos, bytes, u64::MAX).await
    }

    /// Reads within one page that is cached, as [`Vfs::read`] does, without anything to
    /// wait for. `None` where it is not: nothing has been done then.
    pub fn read_cached(&self, file: &File, pos: u64, bytes: u64) -> Option<u64> {
        let index = pos / PAGE_BYTES;
        let folio = {
            let cache = self.cache.borrow();
            let in_file = pos.checked_add(bytes)? <= cache.inode(file.inode).size_bytes;
            if !in_file || bytes == 0 || (pos + bytes - 1) / PAGE_BYTES != index {
                return None;
            }
            let folio = cache.find(file.inode, index)?;
            let is_ready = cache.order(folio) == 0
                && cache.has(folio, flag::UPTODATE)
                && !cache.has(folio, flag::READAHEAD);
            is_ready.then_some(folio)?
        };
        let mut ra = file.ra.get();
        if !self.is_in_folio(folio, pos, ra.prev_pos - 1) {
            self.mark_accessed(folio);
        }
        self.count_read(folio, 1);
        ra.prev_pos = (pos + bytes).cast_signed();
        file.ra.set(ra);
        Some(bytes)
    }

    /// Reads into a buffer of which only `buffer_bytes` are in the program's memory: the
    /// call asks for more, but ends there (`EFAULT`).
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
        // -1 before the first read.
        let mut last_pos = file.ra.get().prev_pos;
        let mut moved = false;
        let mut got = Ok(());
        let buffer_end = pos.saturating_add(buffer_bytes);
        while left > 0 && at < size.min(buffer_end) {
            let mut batch = Batch::EMPTY;
            got = self.filemap_get_pages(file, at, left, &mut batch).await;
            if got.is_err() {
                break;
            }
            let end = size.min(at + left);
            for (n, folio) in batch.folios.iter().take(batch.len).flatten().enumerate() {
                // Reads that follow each other inside a folio use it once.
                if n > 0 || !self.is_in_folio(*folio, at, last_pos - 1) {
                    self.mark_accessed(*folio);
                }
                let next = self.cache.borrow().next_index(*folio) * PAGE_BYTES;
                let copied = end.min(next).min(buffer_end).saturating_sub(at);
                if copied == 0 {
                    break;
                }
                self.count_read(*folio, (at + copied).div_ceil(PAGE_BYTES) - at / PAGE_BYTES);
                at += copied;
                left -= copied;
                last_pos = at.cast_signed();
                moved = true;
            }
        }
        if moved {
            let mut ra = file.ra.get();
            ra.prev_pos = last_pos;
            file.ra.set(ra);
            return Ok(at - pos);
        }
        got.map(|()| 0)
    }

    /// A read copies from so many pages of a folio.
    fn count_read(&self, folio: FolioId, pages: u64) {
        let mut counts = self.counts.borrow_mut();
        counts.read += pages;
        let mut cache = self.cache.borrow_mut();
        if cache.has(folio, flag::AHEAD) {
            cache.clear(folio, flag::AHEAD);
            counts.readahead_used += 1 << cache.order(folio);
        }
    }

    /// Whether two bytes lie in one folio of this folio's size (`pos_same_folio`).
    fn is_in_folio(&self, folio: FolioId, a: u64, b: i64) -> bool {
        let shift = PAGE_BYTES.ilog2() + self.cache.borrow().order(folio);
        a.cast_signed() >> shift == b >> shift
    }

    /// Has the next pages of a read that are there without waiting, or the one
    /// that had to be waited for.
    async fn filemap_get_pages(
        &self,
        file: &File,
        pos: u64,
        bytes: u64,
        batch: &mut Batch,
    ) -> Result<(), FsError> {
        let index = pos / PAGE_BYTES;
        let last_index = (pos + bytes).div_ceil(PAGE_BYTES);
        loop {
            batch.len = 0;
            match self.try_get_pages(file, index, last_index, batch).await {
                Round::Got => return Ok(()),
                Round::Failed => return Err(FsError::Device),
                Round::Again => {}
            }
        }
    }

    async fn try_get_pages(
        &self,
        file: &File,
        index: u64,
        last_index: u64,
        batch: &mut Batch,
    ) -> Round {
        let inode = file.inode;
        self.filemap_get_read_batch(inode, index, last_index - 1, batch);
        if batch.len == 0 {
            self.page_cache_sync_ra(file, index, last_index - index, Origin::Read)
                .await;
            self.filemap_get_read_batch(inode, index, last_index - 1, batch);
        }
        let Some(folio) = batch.last() else {
            return self.filemap_create_folio(inode, index, batch).await;
        };
        if self.cache.borrow().has(folio, flag::READAHEAD) {
            let req = last_index - self.cache.borrow().index(folio);
            self.page_cache_async_ra(file, folio, req, Origin::Read)
                .await;
        }
        if !self.cache.borrow().has(folio, flag::UPTODATE) {
            let update = self.filemap_update_page(folio).await;
            if !matches!(update, Round::Got) {
                // Those before it are read first, where there are any.
                batch.len -= 1;
                return if batch.len > 0 { Round::Got } else { update };
            }
        }
        let last = last_index - 1;
        self.trace(Event::GetPages {
            inode,
            first: index,
            last,
        });
        Round::Got
    }

    /// Cached folios from `index` on, up to the first hole and up to one that ends
    /// the round: one that is not uptodate or has the mark.
    fn filemap_get_read_batch(&self, inode: InodeId, index: u64, last: u64, batch: &mut Batch) {
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

    /// A page that readahead left out is read alone.
    async fn filemap_create_folio(&self, inode: InodeId, index: u64, batch: &mut Batch) -> Round {
        let Some(folio) = self.add_folio(inode, index, 0, Origin::Read) else {
            return Round::Again;
        };
        self.counts.borrow_mut().missed += 1;
        self.read_folio(folio).await;
        self.wait_until_clear(folio, flag::LOCKED).await;
        if !self.cache.borrow().has(folio, flag::UPTODATE) {
            return Round::Failed;
        }
        batch.push(folio);
        Round::Got
    }

    /// Waits for a folio, or reads it; this read may take it at once only where it is
    /// the one that did so.
    async fn filemap_update_page(&self, folio: FolioId) -> Round {
        self.counts.borrow_mut().missed += 1;
        if self.cache.borrow().has(folio, flag::LOCKED) {
            self.wait_until_clear(folio, flag::LOCKED).await;
            return Round::Again;
        }
        if !self.cache.borrow().has(folio, flag::UPTODATE) {
            self.cache.borrow_mut().set(folio, flag::LOCKED);
            self.read_folio(folio).await;
            self.wait_until_clear(folio, flag::LOCKED).await;
        }
        match self.cache.borrow().has(folio, flag::UPTODATE) {
            true => Round::Got,
            false => Round::Failed,
        }
    }
}
