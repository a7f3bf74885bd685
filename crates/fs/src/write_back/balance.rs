//! Pages become dirty: they are counted, their inode is queued, the flusher is
//! woken, and whoever dirtied too many sleeps.

use super::bandwidth::Bandwidth;
use super::counters::DEVICE_BATCH;
use super::device::{DeviceId, Queue, state};
use super::flusher::timer_end;
use super::throttle::{Pass, Verdict};
use crate::event::Event;
use crate::inode::InodeId;
use crate::page_cache::FolioId;
use crate::vfs::{Host, Vfs};

/// What write-back knows of a device from before.
#[derive(Clone, Copy, Debug)]
pub struct History {
    /// Its rates.
    pub rates: Bandwidth,
    /// Pages that it wrote lately.
    pub written_pages: u64,
    /// Pages that other devices wrote lately.
    pub others_written_pages: u64,
    /// The threshold as it was last, in pages, where that is not the present one: it
    /// comes down slowly.
    pub limit: Option<u64>,
    /// When its flusher last looked for old pages, in jiffies.
    pub last_periodic: u64,
    /// Whether it has a cache that must be flushed.
    pub has_volatile_cache: bool,
}

impl<H: Host> Vfs<H> {
    /// Blocks of a folio are newer than the device's (`folio_mark_dirty`).
    pub(crate) fn mark_folio_dirty(&self, folio: FolioId, blocks: u8) {
        let (inode, index) = {
            let cache = self.cache.borrow();
            (cache.inode_of(folio), cache.index(folio))
        };
        if self.cache.borrow_mut().set_dirty(folio, blocks) {
            self.write_back.borrow_mut().page_dirtied(inode);
            let dirty = self.dirty_pages_now();
            let mut counts = self.counts.borrow_mut();
            counts.dirtied += 1;
            counts.dirty_max = counts.dirty_max.max(dirty);
            drop(counts);
            self.host().with_dirtier(|dirtier| dirtier.dirtied += 1);
            self.trace(Event::Dirty { inode, index });
            self.mark_inode_dirty(inode, state::PAGES);
        }
    }

    /// What happened to a device before.
    pub fn set_history(&self, device: DeviceId, history: &History) {
        let now = self.host().now_jiffies();
        let mut write_back = self.write_back.borrow_mut();
        let others = history.others_written_pages;
        write_back.wrote_before(device, history.written_pages, others, now);
        if let Some(limit) = history.limit {
            write_back.set_limit(limit);
        }
        let of = write_back.device(device);
        of.bandwidth = history.rates;
        of.last_periodic = history.last_periodic;
        of.has_volatile_cache = history.has_volatile_cache;
    }

    /// The system's counters of dirty pages and of pages that are being written read
    /// so much now: CPUs have added what they held back (`refresh_cpu_vm_stats`), or
    /// other devices have such pages.
    pub fn set_counters(&self, dirty_pages: u64, writing_pages: u64) {
        let mut write_back = self.write_back.borrow_mut();
        write_back.dirty.show(dirty_pages);
        write_back.writing.show(writing_pages);
    }

    /// A file's times or, if `data`, what is needed to find its data have changed.
    pub fn inode_changed(&self, inode: InodeId, data: bool) {
        let what = if data { state::DATASYNC } else { state::SYNC };
        self.mark_inode_dirty(inode, what);
    }

    fn mark_inode_dirty(&self, inode: InodeId, what: u8) {
        let now = self.host().now_jiffies();
        let mut write_back = self.write_back.borrow_mut();
        let of = write_back.inode(inode);
        let was = of.state;
        of.state |= what;
        if was & state::DIRTY != 0 || was & state::QUEUED != 0 {
            return;
        }
        of.dirtied_when = now;
        let device = of.device;
        let first = !write_back.device(device).has_dirty();
        write_back.enqueue(inode, Queue::Dirty);
        drop(write_back);
        if first {
            self.wake_flusher_later(device);
        }
    }

    /// The flusher looks for old pages after the usual interval, unless it is to run
    /// anyway (`wb_wakeup_delayed`).
    pub(crate) fn wake_flusher_later(&self, device: DeviceId) {
        let now = self.host().now_jiffies();
        let mut write_back = self.write_back.borrow_mut();
        let interval = write_back.settings.interval();
        if interval == 0 || write_back.device(device).due.is_some() {
            return;
        }
        let due = timer_end(now, interval);
        write_back.device(device).due = Some(due);
        drop(write_back);
        self.host().flusher_due(device, due);
    }

    /// The flusher runs now.
    pub(crate) fn wake_flusher(&self, device: DeviceId) {
        let now = self.host().now_jiffies();
        self.write_back.borrow_mut().device(device).due = Some(now);
        self.host().flusher_due(device, now);
    }

    /// Whoever dirties a page of a file comes by here first, and sleeps if pages
    /// come faster than the device takes them (`balance_dirty_pages_ratelimited`).
    pub(crate) async fn balance_dirty_pages(&self, inode: InodeId) {
        if let Some(dirtied) = self.must_balance(inode) {
            self.balance(inode, dirtied).await;
        }
    }

    /// How many pages the task that runs has dirtied, if these are so many that it has to
    /// look whether they are too many.
    pub(crate) fn must_balance(&self, inode: InodeId) -> Option<u64> {
        let (mut dirtied, mut allowed) = (0, 0);
        (self.host())
            .with_dirtier(|task| (dirtied, allowed) = (task.dirtied, task.pages_until_look));
        if self.write_back.borrow_mut().device_of(inode).is_exceeded {
            allowed = allowed.min(8);
        }
        (dirtied >= allowed).then_some(dirtied)
    }

    async fn balance(&self, inode: InodeId, pages: u64) {
        loop {
            let look = self.look(inode, pages);
            if look.wakes {
                self.wake_flusher(look.device);
            }
            let Some(pass) = look.pass else {
                if look.wakes {
                    self.host().resched().await;
                }
                return;
            };
            if let Verdict::Pause(jiffies) = pass.verdict {
                self.host().sleep(jiffies).await;
            }
            self.host().with_dirtier(|task| task.looked_at(&pass));
            let is_stuck = pass.task_ratelimit == 0 && look.device_dirty > DEVICE_BATCH as u64;
            if !is_stuck {
                return;
            }
        }
    }

    /// Looks at what is dirty, and at the task that has dirtied so many pages.
    fn look(&self, inode: InodeId, pages: u64) -> Look {
        let now = self.host().now_jiffies();
        let mut write_back = self.write_back.borrow_mut();
        let device = write_back.inode(inode).device;
        let mut state = write_back.system_state();
        let is_idle = !write_back.device(device).is_running;
        if state.is_freerun() {
            self.host().with_dirtier(|task| task.run_free(&state, now));
            let over = write_back.dirty.read() > state.background_thresh;
            return Look {
                device,
                device_dirty: 0,
                wakes: over && is_idle && !write_back.settings.laptop_mode,
                pass: None,
            };
        }
        state = write_back.with_device(state, device, now);
        let of = write_back.device(device);
        of.is_exceeded = state.is_exceeded();
        let ratio = state.position_ratio(of.bandwidth.average_write_rate);
        if of.bandwidth.is_due(now) {
            let counted = of.counted();
            state.limit = write_back.update_limit(&state, now);
            let rates = &mut write_back.device(device).bandwidth;
            rates.update_with_ratelimit(&state, ratio, counted, now);
        }
        let rates = write_back.device(device).bandwidth;
        let mut pass = None;
        self.host().with_dirtier(|task| {
            pass = Some(task.look(pages, state.device_dirty, ratio, &rates, now));
        });
        Look {
            device,
            device_dirty: state.device_dirty,
            wakes: is_idle,
            pass,
        }
    }
}

/// What a look at a task came to.
struct Look {
    device: DeviceId,
    /// Dirty pages of the device.
    device_dirty: u64,
    /// The flusher has to run.
    wakes: bool,
    /// What the task does; nothing if nobody has to wait.
    pass: Option<Pass>,
}
