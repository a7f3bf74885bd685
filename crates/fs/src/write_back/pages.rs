//! How bios are made of a file's dirty pages (`write_cache_pages`, and ext4's own loop).

use blklab_blk::Op;

use super::device::DeviceId;
use super::work::WritebackControl;
use crate::PAGE_BYTES;
use crate::bio::BioBuilder;
use crate::inode::InodeId;
use crate::page_cache::{FOLIO_BATCH, FolioId, Mark, flag};
use crate::vfs::{Host, Vfs};

impl<H: Host> Vfs<H> {
    /// Writes as many dirty pages of an inode as `control` allows.
    pub(super) async fn do_writepages(&self, inode: InodeId, control: &mut WritebackControl) {
        if control.pages <= 0 {
            return;
        }
        self.begin_bandwidth_estimate(inode);
        if self.inode(inode).is_device {
            self.write_block_by_block(inode, control).await;
        } else {
            self.write_by_extents(inode, control).await;
        }
        self.update_bandwidth_if_due(inode);
    }

    fn begin_bandwidth_estimate(&self, inode: InodeId) {
        let now = self.host().now_jiffies();
        let mut write_back = self.write_back.borrow_mut();
        let device = write_back.device_of(inode);
        if device.inodes_writing == 0 {
            let counted = device.counted();
            device.bandwidth.begin(counted, now);
        }
    }

    fn update_bandwidth_if_due(&self, inode: InodeId) {
        let now = self.host().now_jiffies();
        let mut write_back = self.write_back.borrow_mut();
        let device = write_back.device_of(inode);
        if device.bandwidth.is_due(now) {
            let counted = device.counted();
            device.bandwidth.update(counted, now);
        }
    }

    /// Updates the estimate of a device's write rate. Linux does so 200 ms after the
    /// device had nothing left to write (`wb_update_bandwidth_workfn`).
    pub fn update_bandwidth(&self, device: DeviceId) {
        let now = self.host().now_jiffies();
        let mut write_back = self.write_back.borrow_mut();
        let device = write_back.device(device);
        let counted = device.counted();
        device.bandwidth.update(counted, now);
    }

    /// Writes a block device's own pages, with a bio for each block
    /// (`blkdev_writepages`).
    async fn write_block_by_block(&self, inode: InodeId, control: &mut WritebackControl) {
        let first = match control.is_cyclic {
            true => self.write_back.borrow_mut().inode(inode).next_page,
            false => control.first,
        };
        let next = self
            .write_marked(inode, control, first, control.last, true)
            .await;
        if control.is_cyclic {
            self.write_back.borrow_mut().inode(inode).next_page = next.unwrap_or(0);
        }
    }

    /// Writes a file's pages, with one bio for blocks that follow each other
    /// (`ext4_do_writepages` for blocks that are allocated).
    async fn write_by_extents(&self, inode: InodeId, control: &mut WritebackControl) {
        if !self.cache.borrow().any_marked(inode, Mark::Dirty) {
            return;
        }
        let start = match control.is_cyclic {
            true => self.write_back.borrow_mut().inode(inode).next_page,
            false => control.first,
        };
        let written = self
            .write_marked(inode, control, start, control.last, false)
            .await;
        let mut next = written.unwrap_or(start);
        if control.is_cyclic && start > 0 && control.pages > 0 {
            let written = self.write_marked(inode, control, 0, start - 1, false);
            next = written.await.unwrap_or(0);
        }
        let is_whole = control.first == 0 && control.last >= u64::MAX / PAGE_BYTES / 2;
        if control.is_cyclic || (is_whole && control.pages > 0) {
            self.write_back.borrow_mut().inode(inode).next_page = next;
        }
    }

    /// Writes the marked folios of a range in order. Returns the page where the next
    /// cyclic round continues, the one after the last page written: of a device only if
    /// there may be more.
    async fn write_marked(
        &self,
        inode: InodeId,
        control: &mut WritebackControl,
        first: u64,
        last: u64,
        is_device: bool,
    ) -> Option<u64> {
        if control.mark() == Mark::ToWrite {
            self.cache.borrow_mut().mark_for_writing(inode, first, last);
        }
        let mut open = BioBuilder::default();
        let mut next = first;
        let mut written_to = None;
        loop {
            let batch = self.look_up(inode, &mut next, last, control.mark());
            if batch.is_empty() {
                break;
            }
            for (folio, serial) in batch {
                if !control.is_integrity && control.pages <= 0 {
                    self.send_write(&mut open, control).await;
                    return written_to;
                }
                if !self.is_still_dirty(folio, serial, control).await {
                    continue;
                }
                written_to = Some(self.cache.borrow().next_index(folio));
                control.pages -= self.cache.borrow().pages(folio).cast_signed();
                self.write_back_folio(folio, &mut open, control, is_device)
                    .await;
            }
            self.host().resched().await;
        }
        self.send_write(&mut open, control).await;
        let has_more = !control.is_integrity && control.pages <= 0;
        written_to.filter(|_| has_more || !is_device)
    }

    /// The next marked folios, each with its serial number.
    fn look_up(
        &self,
        inode: InodeId,
        next: &mut u64,
        last: u64,
        mark: Mark,
    ) -> Vec<(FolioId, u32)> {
        let cache = self.cache.borrow();
        let mut batch = Vec::new();
        while batch.len() < FOLIO_BATCH && *next <= last {
            let Some(folio) = cache.next_marked(inode, *next, last, mark) else {
                break;
            };
            *next = cache.next_index(folio);
            batch.push((folio, cache.serial(folio)));
        }
        batch
    }

    /// Whether a folio that was looked up is still cached and dirty. It waits for a write
    /// of the folio that is under way only if the caller needs integrity.
    async fn is_still_dirty(
        &self,
        folio: FolioId,
        serial: u32,
        control: &WritebackControl,
    ) -> bool {
        let is_there = || self.cache.borrow().serial(folio) == serial;
        let dirty = || is_there() && self.cache.borrow().has(folio, flag::DIRTY);
        if is_there() {
            self.wait_until_clear(folio, flag::LOCKED).await;
        }
        if !dirty() || (!control.is_integrity && self.cache.borrow().has(folio, flag::WRITEBACK)) {
            return false;
        }
        self.wait_until_clear(folio, flag::WRITEBACK).await;
        dirty()
    }

    /// Adds a folio's dirty blocks to the bio. Blocks after the end of the file, and in
    /// holes, are not written.
    async fn write_back_folio(
        &self,
        folio: FolioId,
        open: &mut BioBuilder,
        control: &WritebackControl,
        is_device: bool,
    ) {
        let (inode, index, pages) = self.cache.borrow().place(folio);
        let of = self.inode(inode);
        (self.write_back.borrow_mut()).pages_cleaned(inode, pages);
        let blocks = self.begin_write_back(folio);
        if control.by_flusher {
            self.cache.borrow_mut().set(folio, flag::BY_FLUSHER);
        }
        // Counts as a bio, so that write-back does not end before all bios are made.
        self.cache.borrow_mut().begin_write(folio);
        let begin = index * PAGE_BYTES;
        let last_block = of.size_bytes.next_multiple_of(of.block_bytes);
        let end = (begin + pages * PAGE_BYTES).min(last_block);
        if pages > 1 {
            self.append_extents(open, folio, (begin, end), control)
                .await;
            return self.end_folio_write(folio);
        }
        for (n, at) in (begin..end).step_by(of.block_bytes as usize).enumerate() {
            if blocks & (1 << n) == 0 {
                continue;
            }
            let extent = self.host().extent(inode, at, of.block_bytes).await;
            if let Some(sector) = extent.sector {
                self.append_write(open, folio, (sector, of.block_bytes), control)
                    .await;
                if is_device {
                    self.send_write(open, control).await;
                }
            }
        }
        self.end_folio_write(folio);
    }

    /// Adds the bytes of a folio from `at` up to `end` to the bio, one part for each extent
    /// (`iomap_writepage_map`).
    async fn append_extents(
        &self,
        open: &mut BioBuilder,
        folio: FolioId,
        (mut at, end): (u64, u64),
        control: &WritebackControl,
    ) {
        let inode = self.cache.borrow().inode_of(folio);
        while at < end {
            let extent = self.host().extent(inode, at, end - at).await;
            let bytes = extent.bytes.min(end - at);
            if let Some(sector) = extent.sector {
                self.append_write(open, folio, (sector, bytes), control)
                    .await;
            }
            at += bytes;
        }
    }

    /// Adds blocks to the bio, after sending it if they do not fit.
    async fn append_write(
        &self,
        open: &mut BioBuilder,
        folio: FolioId,
        (sector, bytes): (u64, u64),
        control: &WritebackControl,
    ) {
        let (inode, index, pages) = self.cache.borrow().place(folio);
        let frame = self.host().frame(inode, index);
        let extends_segment = open.last_folio() == Some(folio) || open.extends_segment(frame);
        if open.must_send_before(sector, extends_segment) {
            self.send_write(open, control).await;
        }
        let next_frame = frame.map(|frame| frame + pages);
        open.add(sector, bytes, extends_segment, next_frame);
        if open.last_folio() != Some(folio) {
            self.cache.borrow_mut().begin_write(folio);
            open.add_folio(folio, || self.take_list());
        }
    }

    async fn send_write(&self, open: &mut BioBuilder, control: &WritebackControl) {
        if let Some((bio, folios)) = open.take(Op::Write, control.flags()) {
            self.submit(bio, folios).await;
        }
    }

    /// Begins write-back of a folio. Returns its blocks that were dirty, a bit each
    /// (`folio_start_writeback`).
    fn begin_write_back(&self, folio: FolioId) -> u8 {
        let inode = self.cache.borrow().inode_of(folio);
        let is_first = !self.cache.borrow().any_marked(inode, Mark::WriteBack);
        let blocks = self.cache.borrow_mut().begin_write_back(folio);
        let mut write_back = self.write_back.borrow_mut();
        write_back.pages_writing(inode, self.cache.borrow().pages(folio));
        write_back.device_of(inode).inodes_writing += u64::from(is_first);
        blocks
    }

    /// A bio that writes part of a folio has ended. The last one ends the folio's
    /// write-back (`folio_end_writeback`).
    pub(crate) fn end_folio_write(&self, folio: FolioId) {
        let inode = self.cache.borrow().inode_of(folio);
        if !self.cache.borrow_mut().end_write(folio) {
            return;
        }
        self.lru_written(folio);
        let pages = self.cache.borrow().pages(folio);
        self.count_written(folio, pages);
        let now = self.host().now_jiffies();
        let is_last = !self.cache.borrow().any_marked(inode, Mark::WriteBack);
        self.node_cleaned(folio, pages);
        let mut write_back = self.write_back.borrow_mut();
        write_back.pages_written(inode, pages, now);
        write_back.device_of(inode).inodes_writing -= u64::from(is_last);
    }

    /// Counts a folio's pages as written, at the same moment whoever wrote them.
    fn count_written(&self, folio: FolioId, pages: u64) {
        let mut cache = self.cache.borrow_mut();
        let mut counts = self.counts.borrow_mut();
        counts.written += pages;
        if cache.has(folio, flag::BY_FLUSHER) {
            counts.flushed += pages;
            cache.clear(folio, flag::BY_FLUSHER);
        }
    }

    /// Waits until no page of a range is under write-back (`filemap_fdatawait_range`).
    pub(crate) async fn wait_for_pages(&self, inode: InodeId, first: u64, last: u64) {
        let mut next = first;
        loop {
            let folio = self
                .cache
                .borrow()
                .next_marked(inode, next, last, Mark::WriteBack);
            let Some(folio) = folio else {
                return;
            };
            next = self.cache.borrow().index(folio);
            self.wait_until_clear(folio, flag::WRITEBACK).await;
        }
    }

    /// Writes the dirty pages of a range of bytes, and waits for them if `wait`
    /// (`filemap_write_and_wait_range`).
    pub async fn write_range(&self, inode: InodeId, first_byte: u64, last_byte: u64, wait: bool) {
        let mut control = WritebackControl::range(first_byte, last_byte, wait);
        let (first, last) = (control.first, control.last);
        if self.cache.borrow().any_marked(inode, Mark::Dirty) {
            self.do_writepages(inode, &mut control).await;
        }
        if wait {
            self.wait_for_pages(inode, first, last).await;
        }
    }

    /// Marks pages clean, because a task that is not part of this model wrote them.
    pub fn written_elsewhere(&self, inode: InodeId, first: u64, last: u64) {
        let mut index = first;
        while let Some(folio) = self.next_folio(inode, index, last) {
            index = self.cache.borrow().next_index(folio);
            if self.cache.borrow().has(folio, flag::DIRTY) {
                self.cancel_dirty(folio);
                self.lru_written(folio);
            }
        }
    }

    /// Marks a folio clean without writing it (`folio_cancel_dirty`).
    pub(crate) fn cancel_dirty(&self, folio: FolioId) {
        let inode = self.cache.borrow().inode_of(folio);
        if self.cache.borrow_mut().cancel_dirty(folio) {
            let pages = self.cache.borrow().pages(folio);
            self.write_back.borrow_mut().pages_cleaned(inode, pages);
            self.node_cleaned(folio, pages);
        }
    }
}
