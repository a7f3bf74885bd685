//! Advice on a file's use (`posix_fadvise`, `readahead(2)`), and dropping cached pages
//! (`mm/fadvise.c`, `mm/truncate.c`).

use crate::PAGE_BYTES;
use crate::inode::{File, InodeId};
use crate::page_cache::{FolioId, flag};
use crate::vfs::{Host, Vfs};

/// The advice of `posix_fadvise`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// No advice: the default (`POSIX_FADV_NORMAL`).
    Normal,
    /// Read in no order (`POSIX_FADV_RANDOM`).
    Random,
    /// Read in order (`POSIX_FADV_SEQUENTIAL`).
    Sequential,
    /// Needed soon (`POSIX_FADV_WILLNEED`).
    WillNeed,
    /// Not needed soon again (`POSIX_FADV_DONTNEED`).
    DontNeed,
    /// Used once (`POSIX_FADV_NOREUSE`).
    NoReuse,
}

impl<H: Host> Vfs<H> {
    /// `posix_fadvise`; a length of 0 reaches to the end. `readahead(2)` is the
    /// same as [`Advice::WillNeed`].
    pub async fn fadvise(&self, file: &File, offset: u64, bytes: u64, advice: Advice) {
        let device = self.inode(file.inode).device;
        let mut ra = file.ra.get();
        let last_byte = match bytes {
            0 => u64::MAX / 2,
            bytes => offset + bytes - 1,
        };
        match advice {
            Advice::Normal => {
                ra.ra_pages = device.ra_pages;
                file.random.set(false);
                file.is_used_once.set(false);
            }
            Advice::Random => file.random.set(true),
            Advice::Sequential => {
                ra.ra_pages = device.ra_pages * 2;
                file.random.set(false);
            }
            Advice::NoReuse => file.is_used_once.set(true),
            Advice::WillNeed => {
                let first = offset / PAGE_BYTES;
                let nr = last_byte / PAGE_BYTES - first + 1;
                return self.force_page_cache_ra(file, (first, nr), 0..0).await;
            }
            Advice::DontNeed => return self.drop_range(file.inode, offset, last_byte).await,
        }
        file.ra.set(ra);
    }

    /// Drops the pages that lie wholly in a range; the last page of the file counts as
    /// whole. Write-back of dirty pages is started, and they stay.
    async fn drop_range(&self, inode: InodeId, offset: u64, last_byte: u64) {
        self.write_range(inode, offset, last_byte, false).await;
        let first = offset.div_ceil(PAGE_BYTES);
        let mut last = last_byte / PAGE_BYTES;
        let ends_inside = last_byte % PAGE_BYTES != PAGE_BYTES - 1;
        if ends_inside && last_byte + 1 != self.size_bytes(inode) {
            match last.checked_sub(1) {
                Some(before) => last = before,
                None => return,
            }
        }
        self.invalidate_mapping_pages(inode, first, last);
    }

    /// Drops the clean pages of a range; pages that are dirty, under write-back, locked or
    /// mapped stay.
    pub(crate) fn invalidate_mapping_pages(&self, inode: InodeId, first: u64, last: u64) {
        let mut index = first;
        while let Some(folio) = self.next_folio(inode, index, last) {
            index = self.cache.borrow().next_index(folio);
            if self.can_drop(folio) {
                self.drop_folio(folio);
            }
        }
    }

    /// Drops all clean pages of a file (`invalidate_mapping_pages`).
    pub fn drop_clean_pages(&self, inode: InodeId) {
        self.invalidate_mapping_pages(inode, 0, u64::MAX);
    }

    /// Removes a folio from the cache, which a call of the running task asks for.
    pub(crate) fn drop_folio(&self, folio: FolioId) {
        let pages = 1 << self.cache.borrow().order(folio);
        self.delete_folio(folio);
        self.host().dropped_pages(pages);
    }

    /// The first cached folio with a page from `index` to `last`.
    pub(crate) fn next_folio(&self, inode: InodeId, index: u64, last: u64) -> Option<FolioId> {
        self.cache.borrow().find_from(inode, index, last)
    }

    fn can_drop(&self, folio: FolioId) -> bool {
        let cache = self.cache.borrow();
        !cache.has(folio, flag::LOCKED | flag::DIRTY | flag::WRITEBACK) && !cache.mapped(folio)
    }

    /// Writes and drops all pages of a block device (`BLKFLSBUF`).
    pub async fn flush_buffers(&self, inode: InodeId) {
        self.write_range(inode, 0, u64::MAX / 2, true).await;
        self.invalidate_mapping_pages(inode, 0, u64::MAX);
    }

    /// Drops every page of a range, mapped ones as well, but for those that are dirty
    /// (`invalidate_inode_pages2_range`).
    pub(crate) async fn invalidate_pages2(&self, inode: InodeId, first: u64, last: u64) {
        let mut index = first;
        while let Some(folio) = self.next_folio(inode, index, last) {
            let at = self.cache.borrow().index(folio);
            index = self.cache.borrow().next_index(folio);
            self.wait_until_clear(folio, flag::LOCKED | flag::WRITEBACK)
                .await;
            let is_clean = {
                let cache = self.cache.borrow();
                cache.find(inode, at) == Some(folio) && !cache.has(folio, flag::DIRTY)
            };
            if is_clean {
                self.drop_folio(folio);
            }
        }
    }
}
