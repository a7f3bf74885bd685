//! Pages become dirty: they are counted, their inode is queued, the flusher is
//! woken, and whoever dirtied too many sleeps.

use super::device::{DeviceId, Queue, state};
use super::flusher::timer_end;
use super::throttle::Verdict;
use crate::event::Event;
use crate::inode::InodeId;
use crate::page_cache::FolioId;
use crate::vfs::{Host, Vfs};

impl<H: Host> Vfs<H> {
    /// Blocks of a folio are newer than the device's (`folio_mark_dirty`).
    pub(crate) fn mark_folio_dirty(&self, folio: FolioId, blocks: u8) {
        let (inode, index) = {
            let cache = self.cache.borrow();
            (cache.inode_of(folio), cache.index(folio))
        };
        if self.cache.borrow_mut().set_dirty(folio, blocks) {
            self.write_back.borrow_mut().page_dirtied(inode);
            self.host().with_dirtier(|dirtier| dirtier.dirtied += 1);
            self.trace(Event::Dirty { inode, index });
            self.mark_inode_dirty(inode, state::PAGES);
        }
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
        let (mut dirtied, mut allowed) = (0, 0);
        (self.host())
            .with_dirtier(|task| (dirtied, allowed) = (task.dirtied, task.pages_until_look));
        if self.write_back.borrow_mut().device_of(inode).is_exceeded {
            allowed = allowed.min(8);
        }
        if dirtied >= allowed {
            self.balance(inode, dirtied).await;
        }
    }

    async fn balance(&self, inode: InodeId, pages: u64) {
        loop {
            let now = self.host().now_jiffies();
            let mut write_back = self.write_back.borrow_mut();
            let device = write_back.inode(inode).device;
            let state = write_back.system_state();
            let dirty = write_back.dirty.read();
            let laptop = write_back.settings.laptop_mode;
            let is_running = write_back.device(device).is_running;
            let over = dirty > state.background_thresh && !laptop;
            if state.is_freerun() {
                drop(write_back);
                if over && !is_running {
                    self.wake_flusher(device);
                }
                self.host().with_dirtier(|task| task.run_free(&state, now));
                return;
            }
            let mut state = write_back.with_device(state, device, now);
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
            drop(write_back);
            if !is_running {
                self.wake_flusher(device);
            }
            let mut look = None;
            self.host().with_dirtier(|task| {
                look = Some(task.look(pages, state.device_dirty, ratio, &rates, now));
            });
            let Some(pass) = look else {
                return;
            };
            if let Verdict::Pause(jiffies) = pass.verdict {
                self.host().sleep(jiffies).await;
            }
            self.host().with_dirtier(|task| task.looked_at(&pass));
            let is_stuck = pass.task_ratelimit == 0 && state.device_dirty > 8;
            if !is_stuck {
                return;
            }
        }
    }
}
