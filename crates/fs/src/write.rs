//! Buffered writes.

use crate::PAGE_BYTES;
use crate::error::FsError;
use crate::inode::{File, InodeId};
use crate::page_cache::{FolioId, flag};
use crate::reclaim::Origin;
use crate::vfs::{Host, Vfs};

impl<H: Host> Vfs<H> {
    /// Writes `bytes` at `pos` into the page cache. A page that is not cached and
    /// written in part is read first.
    ///
    /// # Errors
    /// [`FsError::NoSpace`] behind the end of a block device.
    pub async fn write(&self, file: &File, pos: u64, bytes: u64) -> Result<u64, FsError> {
        let of = self.inode(file.inode);
        let mut end = pos + bytes;
        if of.is_device {
            if bytes > 0 && pos >= of.size_bytes {
                return Err(FsError::NoSpace);
            }
            end = end.min(of.size_bytes);
        }
        let mut at = pos;
        while at < end {
            self.balance_dirty_pages(file.inode).await;
            let index = at / PAGE_BYTES;
            let in_page = end.min((index + 1) * PAGE_BYTES);
            let folio = self.lock_for_write(file.inode, index).await;
            let whole = at.is_multiple_of(PAGE_BYTES)
                && (in_page.is_multiple_of(PAGE_BYTES) || in_page >= of.size_bytes);
            let old_data = index * PAGE_BYTES < of.size_bytes;
            if !self.cache.borrow().has(folio, flag::UPTODATE) && !whole && old_data {
                self.read_folio(folio).await;
                self.wait_until_clear(folio, flag::LOCKED).await;
            }
            self.cache.borrow_mut().set(folio, flag::UPTODATE);
            self.mark_folio_dirty(folio, of.blocks(at, in_page));
            self.cache.borrow_mut().clear(folio, flag::LOCKED);
            self.grow(file.inode, in_page);
            at = in_page;
            self.host().resched().await;
        }
        Ok(end.saturating_sub(pos))
    }

    /// A file that was written up to `end` is at least that long.
    pub(crate) fn grow(&self, inode: InodeId, end: u64) {
        let mut cache = self.cache.borrow_mut();
        let size = &mut cache.inode_mut(inode).size_bytes;
        *size = (*size).max(end);
    }

    async fn lock_for_write(&self, inode: InodeId, index: u64) -> FolioId {
        loop {
            let found = self.cache.borrow().find(inode, index);
            match found {
                None => {
                    if let Some(folio) = self.add_folio(inode, index, 0, Origin::Write) {
                        return folio;
                    }
                }
                Some(folio) if !self.cache.borrow().has(folio, flag::LOCKED) => {
                    self.cache.borrow_mut().set(folio, flag::LOCKED);
                    return folio;
                }
                Some(folio) => self.wait_until_clear(folio, flag::LOCKED).await,
            }
        }
    }
}
