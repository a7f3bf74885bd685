//! Buffered writes and the write-out of dirty pages.

use blklab_blk::{BioFlags, Op};

use crate::PAGE_BYTES;
use crate::error::FsError;
use crate::inode::{File, InodeId};
use crate::page_cache::{FolioId, flag};
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
            let mut cache = self.cache.borrow_mut();
            cache.set(folio, flag::UPTODATE | flag::DIRTY);
            cache.clear(folio, flag::LOCKED);
            at = in_page;
        }
        self.grow(file.inode, end);
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
                    if let Some(folio) = self.add_folio(inode, index, 0) {
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

    /// Writes the dirty pages of a range of bytes, in order, and waits for their
    /// end if `wait`.
    pub async fn write_range(&self, inode: InodeId, first_byte: u64, last_byte: u64, wait: bool) {
        let last = last_byte / PAGE_BYTES;
        let mut next = first_byte / PAGE_BYTES;
        let mut written = Vec::new();
        while let Some(folio) = self.next_folio(inode, next, last) {
            let index = self.cache.borrow().index(folio);
            next = self.cache.borrow().next_index(folio);
            if self.cache.borrow().has(folio, flag::WRITEBACK) {
                written.push(folio);
            }
            if !self.cache.borrow().has(folio, flag::DIRTY) {
                continue;
            }
            if wait {
                self.wait_until_clear(folio, flag::WRITEBACK).await;
            } else if self.cache.borrow().has(folio, flag::WRITEBACK) {
                continue;
            }
            let extent = self.host().extent(inode, index * PAGE_BYTES).await;
            {
                let mut cache = self.cache.borrow_mut();
                cache.clear(folio, flag::DIRTY);
                cache.set(folio, flag::WRITEBACK);
            }
            let flags = if wait {
                BioFlags::SYNC
            } else {
                BioFlags::default()
            };
            match extent.sector {
                Some(sector) => {
                    let bio = Self::data_bio(Op::Write, flags, sector, PAGE_BYTES);
                    self.submit(bio, vec![folio]).await;
                    written.push(folio);
                }
                None => self.cache.borrow_mut().clear(folio, flag::WRITEBACK),
            }
        }
        if wait {
            for folio in written {
                self.wait_until_clear(folio, flag::WRITEBACK).await;
            }
        }
    }

    /// Some other task has written these pages of a file: they are clean.
    pub fn written_elsewhere(&self, inode: InodeId, first: u64, last: u64) {
        let mut index = first;
        while let Some(folio) = self.next_folio(inode, index, last) {
            let mut cache = self.cache.borrow_mut();
            index = cache.next_index(folio);
            cache.clear(folio, flag::DIRTY);
        }
    }
}
