//! Buffered writes (`generic_perform_write`, and `block_write_begin` of `fs/buffer.c`).

use blklab_blk::{BioFlags, Op};

use crate::PAGE_BYTES;
use crate::bio::Bio;
use crate::error::FsError;
use crate::inode::{File, Inode, InodeId};
use crate::page_cache::{FolioId, flag};
use crate::readahead::MAX_ORDER;
use crate::reclaim::Origin;
use crate::vfs::{Host, Vfs};

/// Pages of a file system's own blocks that a page's allocation may bring in: bitmap, group
/// descriptors, inode, and three levels of a map.
const MAP_PAGES: u64 = 6;

impl<H: Host> Vfs<H> {
    /// Writes `bytes` at `pos` into the page cache. Of a page that is not cached, blocks
    /// written in part are read first. Returns the number of bytes written; a call that
    /// fails has written none.
    ///
    /// # Errors
    /// [`FsError::NoSpace`] after the end of a block device and where a file system is
    /// full, [`FsError::Device`] where a block cannot be read first.
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
        let largest = match of.large_folios {
            true => PAGE_BYTES << MAX_ORDER,
            false => PAGE_BYTES,
        };
        while at < end {
            self.balance_dirty_pages_ratelimited(file.inode).await;
            let in_folio = end.min((at / largest + 1) * largest);
            match self.write_folio(file.inode, &of, at, in_folio).await {
                Ok(written_to) => at = written_to,
                Err(_) if at > pos => return Ok(at - pos),
                Err(error) => return Err(error),
            }
            self.host().resched().await;
        }
        Ok(end.saturating_sub(pos))
    }

    /// Writes as [`Vfs::write`] does if that needs no wait: inside one cached page whose
    /// blocks are allocated. Otherwise does nothing and returns `None`.
    pub fn write_cached(&self, file: &File, pos: u64, bytes: u64) -> Option<u64> {
        let end = pos.checked_add(bytes)?;
        let mut cache = self.cache.borrow_mut();
        let is_one_page = bytes > 0 && (end - 1) / PAGE_BYTES == pos / PAGE_BYTES;
        if !is_one_page || end > cache.inode(file.inode).size_bytes {
            return None;
        }
        let folio = cache.find(file.inode, pos / PAGE_BYTES)?;
        if !cache.takes_writes(folio) || self.check_is_due(file.inode).is_some() {
            return None;
        }
        let blocks = cache.blocks(folio, pos, end);
        if !cache.add_dirty(folio, blocks) {
            drop(cache);
            self.mark_clean_folio_dirty(folio, blocks);
        }
        self.wrote_pages(folio, 1);
        Some(bytes)
    }

    /// Writes the bytes from `first` up to `end` as far as one folio goes, and returns where
    /// that is. `of` is the file as it was before the call.
    async fn write_folio(
        &self,
        inode: InodeId,
        of: &Inode,
        first: u64,
        end: u64,
    ) -> Result<u64, FsError> {
        // A folio that is added is no longer than the write (`fgf_set_order`).
        let order = ((end - first) / PAGE_BYTES).checked_ilog2().unwrap_or(0);
        let folio = self.lock_for_write(inode, first / PAGE_BYTES, order).await;
        let end = end.min(self.cache.borrow().next_index(folio) * PAGE_BYTES);
        let ready = self.prepare_folio(folio, of, first, end).await;
        if ready.is_ok() {
            let blocks = self.cache.borrow().blocks(folio, first, end);
            self.mark_folio_dirty(folio, blocks);
            self.wrote_pages(folio, end.div_ceil(PAGE_BYTES) - first / PAGE_BYTES);
        }
        self.cache.borrow_mut().clear(folio, flag::LOCKED);
        if ready.is_ok() {
            self.grow(inode, end);
        }
        ready.map(|()| end)
    }

    /// Prepares a locked folio for a write: allocates its blocks, and reads those that the
    /// write changes only in part (`write_begin`).
    async fn prepare_folio(
        &self,
        folio: FolioId,
        of: &Inode,
        first: u64,
        end: u64,
    ) -> Result<(), FsError> {
        let (inode, begin, folio_end, blocks, all) = {
            let cache = self.cache.borrow();
            let begin = cache.index(folio) * PAGE_BYTES;
            let folio_end = cache.next_index(folio) * PAGE_BYTES;
            let blocks = cache.blocks(folio, first, end);
            let all = cache.blocks(folio, begin, folio_end);
            (cache.inode_of(folio), begin, folio_end, blocks, all)
        };
        let mut new_blocks = 0;
        if !self.cache.borrow().has(folio, flag::MAPPED_TO_DISK) {
            new_blocks = self.host().allocate(inode, first, end).await?;
            let is_one_page = folio_end - begin == PAGE_BYTES;
            if blocks == all && (is_one_page || (first, end) == (begin, folio_end)) {
                self.cache.borrow_mut().set(folio, flag::MAPPED_TO_DISK);
            }
        }
        let whole = (first, end) == (begin, folio_end);
        let old_data = begin < of.size_bytes;
        let small_blocks = of.block_bytes < PAGE_BYTES;
        let is_uptodate = self.cache.borrow().has(folio, flag::UPTODATE);
        if !is_uptodate && !whole && old_data {
            if small_blocks {
                let known = new_blocks | self.cache.borrow().uptodate_blocks(folio);
                self.read_partial_blocks(inode, (first, end), known).await?;
            } else if new_blocks == 0 {
                self.read_folio(folio).await;
                self.wait_until_clear(folio, flag::LOCKED).await;
                if !self.cache.borrow().has(folio, flag::UPTODATE) {
                    return Err(FsError::Device);
                }
            }
        }
        let mut cache = self.cache.borrow_mut();
        if whole || !old_data || !small_blocks {
            cache.set(folio, flag::UPTODATE);
        } else if !is_uptodate {
            cache.set_blocks_uptodate(folio, blocks, all);
        }
        Ok(())
    }

    /// Reads the blocks that the bytes from `first` up to `end` change only in part, except
    /// those in `known`, a bit each.
    async fn read_partial_blocks(
        &self,
        inode: InodeId,
        (first, end): (u64, u64),
        known: u8,
    ) -> Result<(), FsError> {
        let of = self.inode(inode);
        let block = |byte: u64| byte / of.block_bytes * of.block_bytes;
        let mut under_way = Vec::new();
        for at in (block(first)..end).step_by(of.block_bytes as usize) {
            let is_partial = first > at || end < at + of.block_bytes;
            if !is_partial || at >= of.size_bytes || of.blocks(at, at + 1) & known != 0 {
                continue;
            }
            let extent = self.host().extent(inode, at, of.block_bytes).await;
            if let Some(sector) = extent.sector {
                let bio = Bio::data(Op::Read, BioFlags::NONE, sector, of.block_bytes);
                under_way.push(self.submit(bio, Vec::new()).await);
            }
        }
        self.bios_end(under_way).await
    }

    /// Makes a file at least `end` bytes long.
    pub(crate) fn grow(&self, inode: InodeId, end: u64) {
        let mut cache = self.cache.borrow_mut();
        let size = &mut cache.inode_mut(inode).size_bytes;
        *size = (*size).max(end);
    }

    /// The locked folio of a page. If it is not cached, one of up to `1 << order` pages is
    /// added (`__filemap_get_folio`).
    async fn lock_for_write(&self, inode: InodeId, index: u64, order: u32) -> FolioId {
        loop {
            let found = self.cache.borrow().find(inode, index);
            match found {
                None => {
                    let maps = self
                        .host()
                        .known_extent(inode, index * PAGE_BYTES, 1)
                        .is_none();
                    let map_pages = if maps { MAP_PAGES } else { 0 };
                    self.await_room((1 << order) + map_pages).await;
                    if self.cache.borrow().find(inode, index).is_some() {
                        continue;
                    }
                    let mut orders = (0..=order.min(index.trailing_zeros())).rev();
                    let added = orders
                        .find_map(|order| self.add_missing(inode, index, order, Origin::Write));
                    if let Some(folio) = added {
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

    /// Sets a file's length: pages after the end are dropped, and the rest of the last
    /// block is zeroed, which makes it dirty (`truncate_setsize`, `block_truncate_page`).
    pub async fn truncate(&self, inode: InodeId, bytes: u64) {
        let before = self.size_bytes(inode);
        self.cache.borrow_mut().inode_mut(inode).size_bytes = bytes;
        let mut index = bytes.div_ceil(PAGE_BYTES);
        while let Some(folio) = self.next_folio(inode, index, u64::MAX) {
            // Of a folio that begins before the end, the pages behind it stay cached.
            let is_behind = self.cache.borrow().index(folio) >= index;
            index = self.cache.borrow().next_index(folio);
            self.wait_until_clear(folio, flag::LOCKED | flag::WRITEBACK)
                .await;
            if is_behind {
                self.drop_folio(folio);
            }
        }
        let of = self.inode(inode);
        let zeroed_from = of.read_path.zeroed_from(of.block_bytes, before, bytes);
        if let Some(byte) = zeroed_from {
            self.zero_unless_hole(inode, byte).await;
        }
    }

    /// Zeroes the block that holds this byte from there on, if it has a place.
    async fn zero_unless_hole(&self, inode: InodeId, byte: u64) {
        let extent = self.host().extent(inode, byte, 1).await;
        if extent.sector.is_some() {
            self.zero_in_block(inode, byte).await;
        }
    }

    /// Zeroes a range of a file: its whole blocks have no place any more, so that pages of
    /// them are dropped, and those at its ends become dirty (`ext4_punch_hole`).
    pub async fn punch_hole(&self, inode: InodeId, first: u64, end: u64) {
        let block_bytes = self.inode(inode).block_bytes;
        if end <= first {
            return;
        }
        self.write_range(inode, first, end - 1, true).await;
        let (hole, hole_end) = (
            first.next_multiple_of(block_bytes),
            end / block_bytes * block_bytes,
        );
        let pages = hole.div_ceil(PAGE_BYTES)..hole_end / PAGE_BYTES;
        if !pages.is_empty() {
            self.invalidate_pages2(inode, pages.start, pages.end - 1)
                .await;
        }
        let in_last = (hole_end < end && hole <= hole_end).then_some(end);
        for byte in (first < hole).then_some(first).into_iter().chain(in_last) {
            if byte < self.size_bytes(inode) {
                self.zero_unless_hole(inode, byte).await;
            }
        }
    }

    /// Zeroes a part of the block that holds this byte, which is read first and becomes
    /// dirty (`block_truncate_page`).
    async fn zero_in_block(&self, inode: InodeId, byte: u64) {
        let folio = self.lock_for_write(inode, byte / PAGE_BYTES, 0).await;
        if !self.cache.borrow().has(folio, flag::UPTODATE) {
            self.read_folio(folio).await;
            self.wait_until_clear(folio, flag::LOCKED).await;
        }
        let block = self.cache.borrow().blocks(folio, byte, byte + 1);
        self.mark_folio_dirty(folio, block);
        self.cache.borrow_mut().clear(folio, flag::LOCKED);
    }

    /// Marks a page of a block device dirty that a file system changed
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
