//! A file's dirty pages become bios (`write_cache_pages`, and ext4's own loop).

use blklab_blk::{BioFlags, Op};

use super::device::DeviceId;
use crate::PAGE_BYTES;
use crate::inode::InodeId;
use crate::page_cache::{FolioId, Mark, flag};
use crate::vfs::{Host, Vfs};

/// Segments that a bio holds at most (`BIO_MAX_VECS`).
const BIO_MAX_SEGMENTS: u32 = 256;

/// Folios that are looked up at once (`PAGEVEC_SIZE`).
const LOOKED_UP: usize = 31;

/// Which pages are written, and how (`struct writeback_control`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Control {
    /// Pages that may still be written.
    pub(crate) pages: i64,
    pub(crate) first: u64,
    pub(crate) last: u64,
    /// Somebody waits until they are written.
    pub(crate) is_integrity: bool,
    /// Only those that are dirty when it begins.
    pub(crate) is_tagged: bool,
    /// Nobody asked for it.
    pub(crate) is_background: bool,
    /// Goes on where the last round ended.
    pub(crate) is_cyclic: bool,
}

impl Control {
    /// Every dirty page of a file.
    pub(crate) const fn all() -> Control {
        Control {
            pages: i64::MAX,
            first: 0,
            last: u64::MAX,
            is_integrity: false,
            is_tagged: false,
            is_background: false,
            is_cyclic: false,
        }
    }

    /// The dirty pages of a range of bytes.
    pub(crate) const fn range(first_byte: u64, last_byte: u64, is_integrity: bool) -> Control {
        Control {
            first: first_byte / PAGE_BYTES,
            last: last_byte / PAGE_BYTES,
            is_integrity,
            ..Control::all()
        }
    }

    const fn flags(&self) -> BioFlags {
        if self.is_integrity {
            BioFlags::SYNC
        } else if self.is_background {
            BioFlags::BACKGROUND
        } else {
            BioFlags::NONE
        }
    }

    const fn mark(&self) -> Mark {
        if self.is_integrity || self.is_tagged {
            Mark::ToWrite
        } else {
            Mark::Dirty
        }
    }
}

/// A bio that is being filled.
#[derive(Default)]
struct Open {
    /// Its first sector and its bytes so far.
    bio: Option<(u64, u64)>,
    segments: u32,
    /// The page frame behind its last one, where that is known.
    next_frame: Option<u64>,
    folios: Vec<FolioId>,
}

impl<H: Host> Vfs<H> {
    /// Writes dirty pages, as many as `control` says (`do_writepages`).
    pub(crate) async fn do_writepages(&self, inode: InodeId, control: &mut Control) {
        if control.pages <= 0 {
            return;
        }
        self.begin_estimate(inode);
        if self.inode(inode).is_device {
            self.write_block_by_block(inode, control).await;
        } else {
            self.write_by_extents(inode, control).await;
        }
        self.renew_estimate(inode);
    }

    fn begin_estimate(&self, inode: InodeId) {
        let now = self.host().now_jiffies();
        let mut write_back = self.write_back.borrow_mut();
        let device = write_back.device_of(inode);
        if device.inodes_writing == 0 {
            let counted = device.counted();
            device.bandwidth.begin(counted, now);
        }
    }

    fn renew_estimate(&self, inode: InodeId) {
        let now = self.host().now_jiffies();
        let mut write_back = self.write_back.borrow_mut();
        let device = write_back.device_of(inode);
        if device.bandwidth.is_due(now) {
            let counted = device.counted();
            device.bandwidth.update(counted, now);
        }
    }

    /// Renews the estimate of what a device writes, 200 ms after it had nothing left
    /// to write (`wb_update_bandwidth`).
    pub fn update_bandwidth(&self, device: DeviceId) {
        let now = self.host().now_jiffies();
        let mut write_back = self.write_back.borrow_mut();
        let device = write_back.device(device);
        let counted = device.counted();
        device.bandwidth.update(counted, now);
    }

    /// A block device's own pages: a bio for each block (`blkdev_writepages`).
    async fn write_block_by_block(&self, inode: InodeId, control: &mut Control) {
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

    /// A file's pages: one bio as long as blocks follow each other
    /// (`ext4_do_writepages` where no block has to be allotted).
    async fn write_by_extents(&self, inode: InodeId, control: &mut Control) {
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

    /// Writes the marked folios of a range in order. Returns where the next round
    /// goes on: for a device behind the last page if there may be more, for a file
    /// at the last page that was written.
    async fn write_marked(
        &self,
        inode: InodeId,
        control: &mut Control,
        first: u64,
        last: u64,
        is_device: bool,
    ) -> Option<u64> {
        if control.mark() == Mark::ToWrite {
            self.cache.borrow_mut().mark_for_writing(inode, first, last);
        }
        let mut open = Open::default();
        let mut next = first;
        let mut last_written = None;
        loop {
            let batch = self.look_up(inode, &mut next, last, control.mark());
            if batch.is_empty() {
                break;
            }
            for (folio, serial) in batch {
                if !control.is_integrity && control.pages <= 0 {
                    self.send_write(&mut open, control).await;
                    return last_written.map(|page| page + u64::from(is_device));
                }
                if !self.may_write(folio, serial, control).await {
                    continue;
                }
                last_written = Some(self.cache.borrow().index(folio));
                self.write_folio(folio, &mut open, control, is_device).await;
                control.pages -= 1;
            }
            self.host().resched().await;
        }
        self.send_write(&mut open, control).await;
        let has_more = !control.is_integrity && control.pages <= 0;
        match is_device {
            true => last_written.filter(|_| has_more).map(|page| page + 1),
            false => last_written,
        }
    }

    /// The next marked folios, each with what tells it from others in its place.
    fn look_up(
        &self,
        inode: InodeId,
        next: &mut u64,
        last: u64,
        mark: Mark,
    ) -> Vec<(FolioId, u32)> {
        let cache = self.cache.borrow();
        let mut batch = Vec::new();
        while batch.len() < LOOKED_UP && *next <= last {
            let Some(folio) = cache.next_marked(inode, *next, last, mark) else {
                break;
            };
            *next = cache.next_index(folio);
            batch.push((folio, cache.serial(folio)));
        }
        batch
    }

    /// Whether a folio that was looked up is still there and still dirty, after
    /// waiting for whoever writes it where somebody waits for us.
    async fn may_write(&self, folio: FolioId, serial: u32, control: &Control) -> bool {
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

    /// Adds a folio's dirty blocks to the open bio. What lies behind the end of the
    /// file, or in a hole, is not written.
    async fn write_folio(
        &self,
        folio: FolioId,
        open: &mut Open,
        control: &Control,
        is_device: bool,
    ) {
        let (inode, index) = {
            let cache = self.cache.borrow();
            (cache.inode_of(folio), cache.index(folio))
        };
        let of = self.inode(inode);
        self.write_back.borrow_mut().page_cleaned(inode);
        let blocks = self.begin_write_back(folio);
        // The folio is kept under write-back until all its bios are made.
        self.cache.borrow_mut().begin_write(folio);
        let begin = index * PAGE_BYTES;
        let end = (begin + PAGE_BYTES).min(of.size_bytes.next_multiple_of(of.block_bytes));
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

    /// Adds a block to the open bio, or to a new one if it does not follow it.
    async fn append_write(
        &self,
        open: &mut Open,
        folio: FolioId,
        (sector, bytes): (u64, u64),
        control: &Control,
    ) {
        let (inode, index) = {
            let cache = self.cache.borrow();
            (cache.inode_of(folio), cache.index(folio))
        };
        let joins_folio = open.folios.last() == Some(&folio);
        let frame = self.host().frame(inode, index);
        let joins = joins_folio || (frame.is_some() && frame == open.next_frame);
        let follows = (open.bio).is_some_and(|(first, so_far)| first + so_far / 512 == sector);
        if open.bio.is_some() && (!follows || (open.segments >= BIO_MAX_SEGMENTS && !joins)) {
            self.send_write(open, control).await;
        }
        let (first, so_far) = open.bio.unwrap_or((sector, 0));
        open.segments += u32::from(open.bio.is_none() || !joins);
        open.bio = Some((first, so_far + bytes));
        open.next_frame = frame.map(|frame| frame + 1);
        if open.folios.last() != Some(&folio) {
            self.cache.borrow_mut().begin_write(folio);
            open.folios.push(folio);
        }
    }

    async fn send_write(&self, open: &mut Open, control: &Control) {
        if let Some((sector, bytes)) = open.bio.take() {
            let bio = Self::data_bio(Op::Write, control.flags(), sector, bytes);
            let folios = std::mem::take(&mut open.folios);
            *open = Open::default();
            self.submit(bio, folios).await;
        }
    }

    /// A folio is being written. Returns its blocks that were dirty.
    fn begin_write_back(&self, folio: FolioId) -> u8 {
        let inode = self.cache.borrow().inode_of(folio);
        let is_first = !self.cache.borrow().any_marked(inode, Mark::WriteBack);
        let blocks = self.cache.borrow_mut().begin_write_back(folio);
        let mut write_back = self.write_back.borrow_mut();
        write_back.page_writing(inode);
        write_back.device_of(inode).inodes_writing += u64::from(is_first);
        blocks
    }

    /// A bio of a folio that is being written has ended, or all of them are made.
    pub(crate) fn end_folio_write(&self, folio: FolioId) {
        let inode = self.cache.borrow().inode_of(folio);
        if !self.cache.borrow_mut().end_write(folio) {
            return;
        }
        self.lru_written(folio);
        self.counts.borrow_mut().written += 1;
        let now = self.host().now_jiffies();
        let is_last = !self.cache.borrow().any_marked(inode, Mark::WriteBack);
        let mut write_back = self.write_back.borrow_mut();
        write_back.page_written(inode, now);
        write_back.device_of(inode).inodes_writing -= u64::from(is_last);
    }

    /// Waits until no page of a range is being written.
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

    /// Writes the dirty pages of a range of bytes, and waits for their end if
    /// `wait`.
    pub async fn write_range(&self, inode: InodeId, first_byte: u64, last_byte: u64, wait: bool) {
        let mut control = Control::range(first_byte, last_byte, wait);
        let (first, last) = (control.first, control.last);
        if self.cache.borrow().any_marked(inode, Mark::Dirty) {
            self.do_writepages(inode, &mut control).await;
        }
        if wait {
            self.wait_for_pages(inode, first, last).await;
        }
    }

    /// Some other task has written these pages of a file: they are clean.
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

    /// A folio's data is not to be written any more.
    pub(crate) fn cancel_dirty(&self, folio: FolioId) {
        let inode = self.cache.borrow().inode_of(folio);
        if self.cache.borrow_mut().cancel_dirty(folio) {
            self.write_back.borrow_mut().page_cleaned(inode);
        }
    }
}
