//! Buffered writes.

use blklab_blk::{BioFlags, Op};

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
            let small_blocks = of.block_bytes < PAGE_BYTES;
            if !self.cache.borrow().has(folio, flag::UPTODATE) && !whole && old_data {
                if small_blocks {
                    self.read_partial_blocks(file.inode, at, in_page).await;
                } else {
                    self.read_folio(folio).await;
                    self.wait_until_clear(folio, flag::LOCKED).await;
                }
            }
            if whole || !old_data || !small_blocks {
                self.cache.borrow_mut().set(folio, flag::UPTODATE);
            }
            self.mark_folio_dirty(folio, of.blocks(at, in_page));
            self.cache.borrow_mut().clear(folio, flag::LOCKED);
            self.grow(file.inode, in_page);
            at = in_page;
            self.host().resched().await;
        }
        Ok(end.saturating_sub(pos))
    }

    /// Reads the blocks that the bytes from `first` up to `end` change only in part.
    async fn read_partial_blocks(&self, inode: InodeId, first: u64, end: u64) {
        let of = self.inode(inode);
        let block = |byte: u64| byte / of.block_bytes * of.block_bytes;
        let mut under_way = Vec::new();
        for at in (block(first)..end).step_by(of.block_bytes as usize) {
            let is_partial = first > at || end < at + of.block_bytes;
            if !is_partial || at >= of.size_bytes {
                continue;
            }
            if let Some(sector) = self.host().extent(inode, at).await.sector {
                let bio = Self::data_bio(Op::Read, BioFlags::NONE, sector, of.block_bytes);
                under_way.push(self.submit(bio, Vec::new()).await);
            }
        }
        for bio in under_way {
            self.bio_end(bio).await;
        }
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

    /// Makes a file this long: pages behind the end are dropped, and the rest of the
    /// last one is zeroed, which makes it dirty.
    pub async fn truncate(&self, inode: InodeId, bytes: u64) {
        let before = self.size_bytes(inode);
        self.cache.borrow_mut().inode_mut(inode).size_bytes = bytes;
        let mut index = bytes.div_ceil(PAGE_BYTES);
        while let Some(folio) = self.next_folio(inode, index, u64::MAX) {
            index = self.cache.borrow().next_index(folio);
            self.wait_until_clear(folio, flag::LOCKED | flag::WRITEBACK)
                .await;
            self.delete_folio(folio);
        }
        if bytes < before && !bytes.is_multiple_of(self.inode(inode).block_bytes) {
            let folio = self.lock_for_write(inode, bytes / PAGE_BYTES).await;
            if !self.cache.borrow().has(folio, flag::UPTODATE) {
                self.read_folio(folio).await;
                self.wait_until_clear(folio, flag::LOCKED).await;
            }
            let block = self.inode(inode).blocks(bytes, bytes + 1);
            self.mark_folio_dirty(folio, block);
            self.cache.borrow_mut().clear(folio, flag::LOCKED);
        }
    }

    /// A file system has changed a page of its device's buffer cache
    /// (`mark_buffer_dirty`).
    pub fn mark_buffer_dirty(&self, device: InodeId, index: u64) {
        let found = self.cache.borrow().find(device, index);
        let Some(folio) = found.or_else(|| self.add_folio(device, index, 0, Origin::Write)) else {
            return;
        };
        self.cache.borrow_mut().set(folio, flag::UPTODATE);
        self.cache.borrow_mut().clear(folio, flag::LOCKED);
        let begin = index * PAGE_BYTES;
        let blocks = self.inode(device).blocks(begin, begin + PAGE_BYTES);
        self.mark_folio_dirty(folio, blocks);
    }
}
