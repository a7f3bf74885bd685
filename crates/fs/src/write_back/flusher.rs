//! The flusher: one for each device, it writes what somebody asked for, what is
//! old, and what is too much (`wb_workfn` of Linux 6.12's `fs/fs-writeback.c`).

use std::future::poll_fn;
use std::task::Poll;

use super::HZ;
use super::device::{DeviceId, Queue, state};
use super::pages::Control;
use crate::error::FsError;
use crate::event::Event;
use crate::inode::InodeId;
use crate::page_cache::Mark;
use crate::vfs::{Host, Vfs};

/// Why pages are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// There are too many dirty ones.
    Background,
    /// Somebody called `sync` or `syncfs`.
    Sync,
    /// They are old.
    Periodic,
    /// Reclaim met nothing else.
    Vmscan,
    /// The drive is running anyway (laptop mode).
    LaptopTimer,
}

/// Something that the flusher has to do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    pub(crate) reason: Reason,
    /// Pages to be written at most.
    pub(crate) pages: i64,
    /// Only the device's own pages, or only those of its file system.
    pub(crate) only_device: Option<bool>,
    /// Somebody waits until all is written.
    pub(crate) is_integrity: bool,
    /// Only what is dirty when it begins.
    pub(crate) is_tagged: bool,
    /// Each file goes on where the last round ended.
    pub(crate) is_cyclic: bool,
}

impl Work {
    /// Without a limit, and without anybody who waits.
    const fn endless(reason: Reason) -> Work {
        Work {
            reason,
            pages: i64::MAX,
            only_device: None,
            is_integrity: false,
            is_tagged: false,
            is_cyclic: true,
        }
    }

    /// For somebody who waits until all files, or all of the device's own pages, are
    /// written.
    pub(crate) const fn of_files(only_device: bool) -> Work {
        Work {
            only_device: Some(only_device),
            is_integrity: true,
            is_cyclic: false,
            ..Work::endless(Reason::Sync)
        }
    }

    fn control(&self) -> Control {
        Control {
            is_integrity: self.is_integrity,
            is_tagged: self.is_tagged,
            is_background: matches!(self.reason, Reason::Background | Reason::Periodic),
            is_cyclic: self.is_cyclic,
            ..Control::all()
        }
    }
}

/// The jiffy at which a timer that ends in `delta` jiffies fires: the timer wheel
/// has coarser slots for later ones (`calc_wheel_index`).
pub(crate) fn timer_end(now: u64, delta: u64) -> u64 {
    const SLOTS_OF_LEVEL: u64 = 63;
    let mut slot = 1;
    while delta >= SLOTS_OF_LEVEL * slot {
        slot *= 8;
    }
    ((now + delta) / slot + 1) * slot
}

impl<H: Host> Vfs<H> {
    /// Does what a device's flusher has to do now. When it has to run next is told
    /// to [`Host::flusher_due`].
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
            written += self.carry_out(device, &mut work).await;
            let mut write_back = self.write_back.borrow_mut();
            let of = write_back.device(device);
            of.works_done += 1;
            of.waiters.drain(..).for_each(|waiter| waiter.wake());
        }
        if let Some(mut work) = self.all_dirty(device) {
            written += self.carry_out(device, &mut work).await;
        }
        self.write_back.borrow_mut().device(device).start_all = None;
        if let Some(mut work) = self.old(device) {
            written += self.carry_out(device, &mut work).await;
        }
        if self.is_over(device) {
            let mut work = Work::endless(Reason::Background);
            written += self.carry_out(device, &mut work).await;
        }
        self.write_back.borrow_mut().device(device).is_running = false;
        written
    }

    /// Pages that are dirty now, and inodes, each of which may dirty one more.
    fn dirty_pages(&self) -> i64 {
        let write_back = self.write_back.borrow();
        (write_back.dirty.read() + write_back.settings.inodes_in_use) as i64
    }

    /// All that is dirty, if somebody asked for that.
    fn all_dirty(&self, device: DeviceId) -> Option<Work> {
        let pages = self.dirty_pages();
        let reason = self.write_back.borrow_mut().device(device).start_all?;
        (pages > 0).then_some(Work {
            pages,
            ..Work::endless(reason)
        })
    }

    /// What is old, if it is time to look for that.
    fn old(&self, device: DeviceId) -> Option<Work> {
        let now = self.host().now_jiffies();
        let pages = self.dirty_pages();
        let mut write_back = self.write_back.borrow_mut();
        let interval = write_back.settings.interval();
        let of = write_back.device(device);
        if interval == 0 || now < of.last_periodic + interval {
            return None;
        }
        of.last_periodic = now;
        (pages > 0).then_some(Work {
            pages,
            ..Work::endless(Reason::Periodic)
        })
    }

    /// Whether there is more than the background threshold.
    fn is_over(&self, device: DeviceId) -> bool {
        let now = self.host().now_jiffies();
        let over = self.write_back.borrow_mut().is_over_background(device, now);
        self.trace(Event::OverBackground { over });
        over
    }

    /// Does a work. Returns how many pages and inodes were written
    /// (`wb_writeback`).
    async fn carry_out(&self, device: DeviceId, work: &mut Work) -> u64 {
        let pages = work.pages;
        let mut before = self.host().now_jiffies();
        let mut is_queued = false;
        let yields = matches!(work.reason, Reason::Background | Reason::Periodic);
        while work.pages > 0 {
            let others = !self.write_back.borrow_mut().device(device).works.is_empty();
            if yields && others {
                break;
            }
            if work.reason == Reason::Background && !self.is_over(device) {
                break;
            }
            self.trace(Event::FlushStart {
                reason: work.reason,
            });
            if self.write_back.borrow_mut().next_io(device).is_none() {
                if yields {
                    before = self.horizon(work.reason);
                }
                let moved = self.write_back.borrow_mut().queue_io(device, before);
                self.trace(Event::QueueIo {
                    reason: work.reason,
                    moved,
                });
                is_queued = true;
            }
            let progress = self.write_queued(device, work).await;
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

    /// Inodes that became dirty up to then are written.
    fn horizon(&self, reason: Reason) -> u64 {
        let now = self.host().now_jiffies();
        match reason {
            Reason::Periodic => now.saturating_sub(self.write_back.borrow().settings.expire()),
            _ => now,
        }
    }

    /// Writes the inodes that are queued, for a tenth of a second. Returns pages
    /// and inodes written (`writeback_sb_inodes`).
    async fn write_queued(&self, device: DeviceId, work: &mut Work) -> i64 {
        let start = self.host().now_jiffies();
        let before = self.horizon(work.reason);
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
            // Nobody waits here whom an error could be told.
            let _ = self.write_inode(inode, &mut control, for_sync).await;
            let written = chunk - control.pages;
            work.pages -= written;
            total += written;
            self.counts.borrow_mut().flushed += written.cast_unsigned();
            self.host().resched().await;
            total += i64::from(self.requeue(inode, &control, before));
            let is_long = self.host().now_jiffies() > start + HZ / 10;
            if total > 0 && (is_long || work.pages <= 0) {
                break;
            }
        }
        total
    }

    /// Writes an inode's pages, waiting for them where somebody waits, and what else
    /// of it is dirty (`__writeback_single_inode`).
    ///
    /// # Errors
    /// [`FsError::Device`] where the inode's block cannot be read or written.
    pub(crate) async fn write_inode(
        &self,
        inode: InodeId,
        control: &mut Control,
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

    /// Where an inode belongs that was just written. Whether it is clean
    /// (`requeue_inode`).
    fn requeue(&self, inode: InodeId, control: &Control, before: u64) -> bool {
        let now = self.host().now_jiffies();
        let dirty_pages = self.cache.borrow().any_marked(inode, Mark::Dirty);
        let mut write_back = self.write_back.borrow_mut();
        let of = write_back.inode(inode);
        let is_dirty = of.state & state::DIRTY != 0;
        if is_dirty && (control.is_integrity || control.is_tagged) {
            of.dirtied_when = now;
        }
        let used_up = control.pages <= 0 && of.dirtied_when <= before;
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

    /// Somebody who is not the flusher has written an inode: if it is clean it
    /// leaves its queue (`writeback_single_inode`).
    pub(crate) fn written_by_caller(&self, inode: InodeId) {
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

    /// A file that nobody has open and that has no name: its pages and its state are
    /// dropped.
    pub async fn evict(&self, inode: InodeId) {
        self.wait_for_inode(inode).await;
        self.truncate(inode, 0).await;
        let mut write_back = self.write_back.borrow_mut();
        write_back.inode(inode).state = 0;
        write_back.enqueue(inode, Queue::None);
    }

    fn wake_inode_waiters(&self, inode: InodeId) {
        let mut write_back = self.write_back.borrow_mut();
        let device = write_back.device_of(inode);
        device.waiters.drain(..).for_each(|waiter| waiter.wake());
    }

    /// Waits until nobody writes an inode.
    pub(crate) async fn wait_for_inode(&self, inode: InodeId) {
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

    /// Gives the flusher a work and waits until it is done.
    pub(crate) async fn have_flushed(&self, device: DeviceId, work: Work) {
        let ticket = self.write_back.borrow_mut().device(device).queue_work(work);
        let Some(ticket) = ticket else {
            return;
        };
        self.wake_flusher(device);
        poll_fn(|context| {
            let mut write_back = self.write_back.borrow_mut();
            let of = write_back.device(device);
            if of.works_done >= ticket {
                return Poll::Ready(());
            }
            of.waiters.push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// All flushers are to write what is dirty, because reclaim met only such pages
    /// (`wakeup_flusher_threads`).
    pub(crate) fn start_flushers(&self) {
        let devices = self.write_back.borrow().device_ids();
        devices.for_each(|device| self.start_flusher(device, Reason::Vmscan));
    }

    /// The flusher is to write all that is dirty (`wb_start_writeback`).
    pub fn start_flusher(&self, device: DeviceId, reason: Reason) {
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
    use super::timer_end;

    /// Slots of the timer wheel have 1, 8, 64 jiffies, and so on.
    #[test]
    fn later_timers_fire_in_coarser_slots() {
        assert_eq!(timer_end(1000, 1), 1002);
        assert_eq!(timer_end(1000, 62), 1063);
        assert_eq!(timer_end(1000, 63), 1064);
        assert_eq!(timer_end(1001, 125), 1128);
        assert_eq!(timer_end(1003, 125), 1136);
        assert_eq!(timer_end(1000, 1250), 2304);
    }
}
