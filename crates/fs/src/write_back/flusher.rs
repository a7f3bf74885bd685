//! A device's flusher: it does the work that is queued, writes pages that were dirty for
//! too long, and writes while more is dirty than the background threshold allows
//! (`wb_workfn` of Linux 6.12's `fs/fs-writeback.c`).

use std::future::poll_fn;
use std::task::Poll;

use super::HZ;
use super::device::{DeviceId, Queue, state};
use super::work::{Reason, WritebackControl, WritebackWork};
use crate::error::FsError;
use crate::event::Event;
use crate::inode::InodeId;
use crate::page_cache::Mark;
use crate::vfs::{Host, Vfs};

/// The jiffy at which a timer of `delta` jiffies runs.
pub(super) fn timer_end(now: u64, delta: u64) -> u64 {
    blklab_blk::timer_end(now as i64, delta as i64) as u64
}

impl<H: Host> Vfs<H> {
    /// Runs a device's flusher once. [`Host::flusher_due`] is told when it must run next.
    pub async fn flush(&self, device: DeviceId) {
        self.write_back.borrow_mut().device(device).due = None;
        loop {
            let written = self.flush_once(device).await;
            self.trace(Event::Flushed { written });
            let mut write_back = self.write_back.borrow_mut();
            if write_back.device(device).works.is_empty() {
                break;
            }
        }
        if self.write_back.borrow_mut().device(device).has_dirty() {
            self.wake_flusher_later(device);
        }
    }

    async fn flush_once(&self, device: DeviceId) -> u64 {
        let mut written = 0;
        self.write_back.borrow_mut().device(device).is_running = true;
        loop {
            let work = self
                .write_back
                .borrow_mut()
                .device(device)
                .works
                .pop_front();
            let Some(mut work) = work else {
                break;
            };
            written += self.wb_writeback(device, &mut work).await;
            let mut write_back = self.write_back.borrow_mut();
            let of = write_back.device(device);
            of.works_done += 1;
            of.waiters.drain(..).for_each(|waiter| waiter.wake());
        }
        if let Some(mut work) = self.check_start_all(device) {
            written += self.wb_writeback(device, &mut work).await;
        }
        self.write_back.borrow_mut().device(device).start_all = None;
        if let Some(mut work) = self.check_old_data(device) {
            written += self.wb_writeback(device, &mut work).await;
        }
        if self.is_over_background(device) {
            let mut work = WritebackWork::unlimited(Reason::Background);
            written += self.wb_writeback(device, &mut work).await;
        }
        self.write_back.borrow_mut().device(device).is_running = false;
        written
    }

    /// The dirty pages, plus one for each inode, which may have to be written too
    /// (`get_nr_dirty_pages`).
    fn dirty_pages(&self) -> i64 {
        let write_back = self.write_back.borrow();
        (write_back.system.dirty.read() + write_back.settings.inodes_in_use) as i64
    }

    /// The work of writing all that is dirty, if that was asked for
    /// (`wb_check_start_all`).
    fn check_start_all(&self, device: DeviceId) -> Option<WritebackWork> {
        let pages = self.dirty_pages();
        let reason = self.write_back.borrow_mut().device(device).start_all?;
        (pages > 0).then_some(WritebackWork {
            pages,
            ..WritebackWork::unlimited(reason)
        })
    }

    /// The work of writing old pages, if it is time to look for them
    /// (`wb_check_old_data_flush`).
    fn check_old_data(&self, device: DeviceId) -> Option<WritebackWork> {
        let now = self.host().now_jiffies();
        let pages = self.dirty_pages();
        let mut write_back = self.write_back.borrow_mut();
        let interval = write_back.settings.interval();
        let of = write_back.device(device);
        if interval == 0 || now < of.last_periodic + interval {
            return None;
        }
        of.last_periodic = now;
        (pages > 0).then_some(WritebackWork {
            pages,
            ..WritebackWork::unlimited(Reason::Periodic)
        })
    }

    /// Whether more is dirty than the background threshold allows.
    fn is_over_background(&self, device: DeviceId) -> bool {
        let now = self.host().now_jiffies();
        let group = self.write_back.borrow_mut().device(device).group;
        let memory = self.group_memory(group);
        let over = (self.write_back.borrow_mut()).is_over_background(device, memory, now);
        self.trace(Event::OverBackground { over });
        over
    }

    /// Does a work. Returns the number of pages and inodes written.
    async fn wb_writeback(&self, device: DeviceId, work: &mut WritebackWork) -> u64 {
        let pages = work.pages;
        let mut dirtied_before = self.host().now_jiffies();
        let mut is_queued = false;
        let yields = matches!(work.reason, Reason::Background | Reason::Periodic);
        while work.pages > 0 {
            let others = !self.write_back.borrow_mut().device(device).works.is_empty();
            if yields && others {
                break;
            }
            if work.reason == Reason::Background && !self.is_over_background(device) {
                break;
            }
            self.trace(Event::FlushStart {
                reason: work.reason,
            });
            if self.write_back.borrow_mut().next_io(device).is_none() {
                if yields {
                    dirtied_before = self.dirtied_before(work.reason);
                }
                let mut write_back = self.write_back.borrow_mut();
                let moved = write_back.queue_io(device, dirtied_before);
                drop(write_back);
                self.trace(Event::QueueIo {
                    reason: work.reason,
                    moved,
                });
                is_queued = true;
            }
            let progress = self.writeback_sb_inodes(device, work).await;
            if progress > 0 || !is_queued {
                continue;
            }
            let blocked = self.write_back.borrow_mut().next_more_io(device);
            let Some(blocked) = blocked else {
                break;
            };
            self.wait_for_inode(blocked).await;
        }
        (pages - work.pages).cast_unsigned()
    }

    /// The jiffy up to which an inode must have become dirty to be written.
    fn dirtied_before(&self, reason: Reason) -> u64 {
        let now = self.host().now_jiffies();
        match reason {
            Reason::Periodic => now.saturating_sub(self.write_back.borrow().settings.expire()),
            _ => now,
        }
    }

    /// Writes queued inodes for up to a tenth of a second. Returns the number of pages and
    /// inodes written.
    async fn writeback_sb_inodes(&self, device: DeviceId, work: &mut WritebackWork) -> i64 {
        let start = self.host().now_jiffies();
        let dirtied_before = self.dirtied_before(work.reason);
        let mut control = work.control();
        let mut total = 0;
        loop {
            let next = self.write_back.borrow_mut().next_io(device);
            let Some(inode) = next else {
                break;
            };
            let now = self.host().now_jiffies();
            let is_device = self.inode(inode).is_device;
            if work.only_device.is_some_and(|only| only != is_device) {
                self.write_back.borrow_mut().redirty(inode, now);
                continue;
            }
            let is_writing = self.write_back.borrow_mut().inode(inode).state & state::WRITING != 0;
            if is_writing && !work.is_integrity {
                self.write_back.borrow_mut().enqueue(inode, Queue::MoreIo);
                continue;
            }
            if is_writing {
                self.wait_for_inode(inode).await;
                continue;
            }
            let chunk = match work.is_integrity || work.is_tagged {
                true => i64::MAX,
                false => self.write_back.borrow_mut().chunk(device, work.pages),
            };
            control.pages = chunk;
            let for_sync = work.reason == Reason::Sync;
            // The file's next fsync reports an error; the flusher ignores it.
            let _ = self.write_inode(inode, &mut control, for_sync).await;
            let written = chunk - control.pages;
            work.pages -= written;
            total += written;
            self.host().resched().await;
            total += i64::from(self.requeue_inode(inode, &control, dirtied_before));
            let is_long = self.host().now_jiffies() > start + HZ / 10;
            if total > 0 && (is_long || work.pages <= 0) {
                break;
            }
        }
        total
    }

    /// Writes an inode's dirty pages and then the inode itself. It waits for the pages if
    /// the caller does (`__writeback_single_inode`).
    ///
    /// # Errors
    /// [`FsError::Device`] where the inode's block cannot be read or written.
    pub(super) async fn write_inode(
        &self,
        inode: InodeId,
        control: &mut WritebackControl,
        for_sync: bool,
    ) -> Result<(), FsError> {
        self.write_back.borrow_mut().inode(inode).state |= state::WRITING;
        let pages = control.pages;
        self.trace(Event::WriteInode { inode, pages });
        self.do_writepages(inode, control).await;
        if control.is_integrity && !for_sync {
            self.wait_for_pages(inode, 0, u64::MAX).await;
        }
        let dirty_pages = self.cache.borrow().any_marked(inode, Mark::Dirty);
        let before = {
            let mut write_back = self.write_back.borrow_mut();
            let of = write_back.inode(inode);
            let before = of.state;
            of.state &= !state::DIRTY;
            if dirty_pages {
                of.state |= state::PAGES;
            }
            before
        };
        let mut done = Ok(());
        if before & (state::SYNC | state::DATASYNC) != 0 && !self.inode(inode).is_device {
            let wait = control.is_integrity && !for_sync;
            done = self.host().write_inode(inode, wait).await;
        }
        self.trace(Event::WroteInode {
            inode,
            pages: pages - control.pages,
        });
        done
    }

    /// Puts an inode that was just written into the queue where it belongs. Whether it is
    /// clean.
    fn requeue_inode(
        &self,
        inode: InodeId,
        control: &WritebackControl,
        dirtied_before: u64,
    ) -> bool {
        let now = self.host().now_jiffies();
        let dirty_pages = self.cache.borrow().any_marked(inode, Mark::Dirty);
        let mut write_back = self.write_back.borrow_mut();
        let is_any_finished = write_back.settings.finishes_unexpired;
        let of = write_back.inode(inode);
        let is_dirty = of.state & state::DIRTY != 0;
        if is_dirty && (control.is_integrity || control.is_tagged) {
            of.dirtied_when = now;
        }
        let is_its_turn = is_any_finished || of.dirtied_when <= dirtied_before;
        let used_up = control.pages <= 0 && is_its_turn;
        of.state &= !state::WRITING;
        if dirty_pages && used_up {
            write_back.enqueue(inode, Queue::MoreIo);
        } else if dirty_pages || is_dirty {
            write_back.redirty(inode, now);
        } else {
            of.state &= !state::QUEUED;
            write_back.enqueue(inode, Queue::None);
        }
        drop(write_back);
        self.wake_inode_waiters(inode);
        !is_dirty
    }

    /// A task other than the flusher has written an inode, which leaves its queue if it is
    /// clean (`writeback_single_inode`).
    pub(super) fn written_by_caller(&self, inode: InodeId) {
        let now = self.host().now_jiffies();
        let mut write_back = self.write_back.borrow_mut();
        let of = write_back.inode(inode);
        of.state &= !state::WRITING;
        if of.state & state::DIRTY == 0 {
            of.state &= !state::QUEUED;
            write_back.enqueue(inode, Queue::None);
        } else if of.state & state::QUEUED == 0 {
            write_back.redirty(inode, now);
        }
        drop(write_back);
        self.wake_inode_waiters(inode);
    }

    /// Drops the pages and the state of a file that is not open and has no name.
    pub async fn evict(&self, inode: InodeId) {
        self.wait_for_inode(inode).await;
        self.truncate(inode, 0).await;
        let mut write_back = self.write_back.borrow_mut();
        write_back.inode(inode).state = 0;
        write_back.enqueue(inode, Queue::None);
        write_back.detach(inode);
    }

    fn wake_inode_waiters(&self, inode: InodeId) {
        let mut write_back = self.write_back.borrow_mut();
        let device = write_back.device_of(inode);
        device.waiters.drain(..).for_each(|waiter| waiter.wake());
    }

    /// Waits until an inode is not being written (`inode_wait_for_writeback`).
    pub(super) async fn wait_for_inode(&self, inode: InodeId) {
        poll_fn(|context| {
            let mut write_back = self.write_back.borrow_mut();
            if write_back.inode(inode).state & state::WRITING == 0 {
                return Poll::Ready(());
            }
            let device = write_back.device_of(inode);
            device.waiters.push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Queues a work for the flusher of a device and those of its groups' parts, and waits
    /// until it is done (`bdi_split_work_to_wbs`).
    pub(super) async fn queue_and_wait(&self, device: DeviceId, work: WritebackWork) {
        let queued: Vec<(DeviceId, u64)> = {
            let mut write_back = self.write_back.borrow_mut();
            let parts: Vec<DeviceId> = write_back.parts_of(device).collect();
            let queue = |part| Some((part, write_back.device(part).queue_work(work)?));
            parts.into_iter().filter_map(queue).collect()
        };
        for (part, _) in &queued {
            self.wake_flusher(*part);
        }
        for (part, done_at) in queued {
            self.wait_for_work(part, done_at).await;
        }
    }

    async fn wait_for_work(&self, device: DeviceId, done_at: u64) {
        poll_fn(|context| {
            let mut write_back = self.write_back.borrow_mut();
            let of = write_back.device(device);
            if of.works_done >= done_at {
                return Poll::Ready(());
            }
            of.waiters.push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Has all flushers write, because reclaim found only dirty pages
    /// (`wakeup_flusher_threads`).
    pub(crate) fn start_flushers(&self) {
        let devices = self.write_back.borrow().device_ids();
        devices.for_each(|device| self.start_flusher(device, Reason::Vmscan));
    }

    /// Has the flushers of a device and of its groups' parts write all that is dirty.
    pub(super) fn start_flushers_of(&self, device: DeviceId, reason: Reason) {
        let parts: Vec<DeviceId> = self.write_back.borrow().parts_of(device).collect();
        let parts = parts.into_iter();
        parts.for_each(|part| self.start_flusher(part, reason));
    }

    /// Has the flusher write all that is dirty (`wb_start_writeback`).
    pub(super) fn start_flusher(&self, device: DeviceId, reason: Reason) {
        let mut write_back = self.write_back.borrow_mut();
        let of = write_back.device(device);
        if !of.has_dirty() || of.start_all.is_some() {
            return;
        }
        of.start_all = Some(reason);
        drop(write_back);
        self.wake_flusher(device);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::HZ;
    use crate::PAGE_BYTES;
    use crate::bio::{Bio, BioId};
    use crate::event::Event;
    use crate::image::at_once;
    use crate::inode::{BackingDevice, Extent, Inode, InodeId, ReadPath};
    use crate::vfs::{Host, Vfs};
    use crate::write_back::{DeviceId, Settings};

    /// A device on which every bio ends at once, and a clock that is set by hand.
    struct Clock(Rc<Cell<u64>>);

    impl Host for Clock {
        async fn submit(&self, vfs: &Vfs<Self>, id: BioId, _: Bio) {
            vfs.bio_ended(id);
        }

        async fn extent(&self, _: InodeId, byte: u64, _bytes: u64) -> Extent {
            Extent {
                sector: Some(byte / 512),
                bytes: 1 << 30,
                boundary: false,
            }
        }

        fn now_jiffies(&self) -> u64 {
            self.0.get()
        }

        fn trace(&self, _: &Vfs<Self>, _: Event) {}
    }

    /// Dirty pages of a file of 5000 after flushes 5 and 10 s after it was written. The
    /// first finds the device's share of the background threshold exceeded, as it has
    /// written nothing yet, and leaves the file when it has written a part.
    fn dirty_after_flushes(finishes_unexpired: bool) -> [u64; 2] {
        // Late enough for a file to be younger than the age at which it expires.
        const WRITTEN_AT: u64 = 100 * HZ;
        let now = Rc::new(Cell::new(WRITTEN_AT));
        let settings = Settings {
            finishes_unexpired,
            ..Settings::with_memory(1 << 16)
        };
        let vfs = Vfs::with_settings(Clock(now.clone()), settings);
        let inode = vfs.add_inode(Inode {
            size_bytes: 5000 * PAGE_BYTES,
            block_bytes: PAGE_BYTES,
            large_folios: false,
            read_path: ReadPath::Mpage,
            is_device: false,
            device: BackingDevice {
                ra_pages: 32,
                io_pages: 320,
            },
        });
        let file = vfs.open(inode);
        at_once(vfs.write(&file, 0, 5000 * PAGE_BYTES)).expect("there is room");
        [5, 10].map(|seconds| {
            now.set(WRITTEN_AT + seconds * HZ + 1);
            at_once(vfs.flush(DeviceId(0)));
            vfs.dirty_pages_now()
        })
    }

    #[test]
    fn a_periodic_run_leaves_young_files_unless_it_finishes_all() {
        let [first, then] = dirty_after_flushes(false);
        assert!((1..5000).contains(&first) && then > 0, "{first} {then}");
        assert_eq!(dirty_after_flushes(true), [first, 0]);
    }
}
