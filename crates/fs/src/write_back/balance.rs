//! What happens when pages become dirty: they are counted, their inode is queued, the
//! flusher is woken, and a task that dirties too many is throttled.

use super::bandwidth::Bandwidth;
use super::counters::DEVICE_BATCH;
use super::device::{DeviceId, Queue, WriteBack, state};
use super::dirty_state::DirtyState;
use super::flusher::timer_end;
use super::throttle::{Throttle, ThrottleAction};
use crate::event::Event;
use crate::inode::InodeId;
use crate::page_cache::{FolioId, Mark};
use crate::vfs::{Host, Vfs};

/// The state of a device's write-back at the start of a run.
#[derive(Clone, Copy, Debug)]
pub struct History {
    /// Its rates.
    pub rates: Bandwidth,
    /// Pages that it wrote lately, which count for its share of the thresholds.
    pub written_pages: u64,
    /// Pages that other devices wrote lately.
    pub others_written_pages: u64,
    /// The smoothed threshold in pages, if it differs from the present one.
    pub limit: Option<u64>,
    /// When its flusher last looked for old pages, in jiffies.
    pub last_periodic: u64,
    /// Whether it has a cache that must be flushed.
    pub has_volatile_cache: bool,
}

impl<H: Host> Vfs<H> {
    /// Marks blocks of a folio dirty (`folio_mark_dirty`).
    pub(crate) fn mark_folio_dirty(&self, folio: FolioId, blocks: u8) {
        // The inode of a dirty page is dirty, and attached, already.
        if !self.cache.borrow_mut().add_dirty(folio, blocks) {
            self.mark_clean_folio_dirty(folio, blocks);
        }
    }

    /// The same for one that is clean.
    pub(crate) fn mark_clean_folio_dirty(&self, folio: FolioId, blocks: u8) {
        let (inode, index, pages) = self.cache.borrow().place(folio);
        self.attach_inode(inode, || self.group_of(folio));
        self.cache.borrow_mut().set_dirty(folio, blocks);
        self.write_back.borrow_mut().pages_dirtied(inode, pages);
        self.node_dirtied(folio, pages);
        let dirty = self.dirty_pages_now();
        let mut counts = self.counts.borrow_mut();
        counts.dirtied += pages;
        counts.dirty_max = counts.dirty_max.max(dirty);
        drop(counts);
        (self.host()).with_dirtier(|dirtier| dirtier.nr_dirtied += pages);
        self.trace(Event::Dirty { inode, index });
        self.mark_inode_dirty(inode, state::PAGES);
    }

    /// Sets the state of a device at the start of a run.
    pub fn set_history(&self, device: DeviceId, history: &History) {
        let now = self.host().now_jiffies();
        let mut write_back = self.write_back.borrow_mut();
        let others = history.others_written_pages;
        write_back.set_written_before(device, history.written_pages, others, now);
        if let Some(limit) = history.limit {
            write_back.set_limit(limit);
        }
        let of = write_back.device(device);
        of.bandwidth = history.rates;
        of.last_periodic = history.last_periodic;
        of.has_volatile_cache = history.has_volatile_cache;
    }

    /// Sets what the system's counters of dirty pages and of pages under write-back show:
    /// CPUs have added what they held back (`refresh_cpu_vm_stats`), or other devices
    /// have such pages.
    pub fn set_counters(&self, dirty_pages: u64, writing_pages: u64) {
        let mut write_back = self.write_back.borrow_mut();
        write_back.system.dirty.set_shared(dirty_pages);
        write_back.system.writing.set_shared(writing_pages);
    }

    /// Marks an inode dirty: its times, or, if `data`, what is needed to find its data.
    pub fn inode_changed(&self, inode: InodeId, data: bool) {
        let what = if data { state::DATASYNC } else { state::SYNC };
        self.attach_inode(inode, || self.host().memory_group());
        self.mark_inode_dirty(inode, what);
    }

    /// Has an inode that is clean written by the memory cgroup that now dirties it.
    fn attach_inode(&self, inode: InodeId, group: impl FnOnce() -> u16) {
        if !self.write_back.borrow_mut().is_unattached(inode) {
            return;
        }
        let is_marked = |mark| self.cache.borrow().any_marked(inode, mark);
        if !is_marked(Mark::Dirty) && !is_marked(Mark::WriteBack) {
            self.write_back.borrow_mut().attach(inode, group());
        }
    }

    /// Adds a memory cgroup's part of a device, which has a flusher of its own.
    pub fn add_group_device(&self, device: DeviceId, group: u16) -> DeviceId {
        let now = self.host().now_jiffies();
        let mut write_back = self.write_back.borrow_mut();
        write_back.add_group_device(device, group, now)
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

    /// Wakes the flusher after `dirty_writeback_centisecs`, unless it is due already
    /// (`wb_wakeup_delayed`).
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

    /// Wakes the flusher (`wb_wakeup`).
    pub(crate) fn wake_flusher(&self, device: DeviceId) {
        let now = self.host().now_jiffies();
        self.write_back.borrow_mut().device(device).due = Some(now);
        self.host().flusher_due(device, now);
    }

    /// A task is about to dirty a page. It sleeps if it dirties pages faster than the
    /// device writes them (`balance_dirty_pages_ratelimited`).
    pub(crate) async fn balance_dirty_pages_ratelimited(&self, inode: InodeId) {
        if let Some(dirtied) = self.check_is_due(inode) {
            self.balance_dirty_pages(inode, dirtied).await;
        }
    }

    /// The pages that the running task has dirtied, if they are enough for a check.
    pub(crate) fn check_is_due(&self, inode: InodeId) -> Option<u64> {
        let (mut dirtied, mut allowed) = (0, 0);
        (self.host())
            .with_dirtier(|task| (dirtied, allowed) = (task.nr_dirtied, task.nr_dirtied_pause));
        if self.write_back.borrow().is_exceeded(inode) {
            allowed = allowed.min(8);
        }
        (dirtied >= allowed).then_some(dirtied)
    }

    async fn balance_dirty_pages(&self, inode: InodeId, pages: u64) {
        loop {
            let check = self.check_dirtier(inode, pages);
            if check.wakes_flusher {
                self.wake_flusher(check.device);
            }
            let Some(throttle) = check.throttle else {
                if check.wakes_flusher {
                    self.host().resched().await;
                }
                return;
            };
            if let ThrottleAction::Pause(jiffies) = throttle.action {
                let device = self.write_back.borrow_mut().inode(inode).device;
                self.host().slows_dirtier(device);
                self.host().sleep(jiffies).await;
            }
            self.host().with_dirtier(|task| task.record(&throttle));
            let is_stopped =
                throttle.task_ratelimit == 0 && check.device_dirty > DEVICE_BATCH as u64;
            if !is_stopped {
                return;
            }
        }
    }

    /// Checks the running task, which has dirtied `pages`, against what is dirty.
    fn check_dirtier(&self, inode: InodeId, pages: u64) -> Check {
        let now = self.host().now_jiffies();
        let (device, group) = {
            let mut write_back = self.write_back.borrow_mut();
            let device = write_back.part_of_writer(inode, self.host().memory_group());
            (device, write_back.device(device).group)
        };
        let memory = self.group_memory(group);
        let mut write_back = self.write_back.borrow_mut();
        let states = (
            write_back.system_state(),
            write_back.group_state(device, memory),
        );
        let is_idle = !write_back.device(device).is_running;
        if states.0.is_freerun() && states.1.is_none_or(|group| group.is_freerun()) {
            self.host().with_dirtier(|task| {
                task.freerun(&states.0, now);
                let next = states.1.map_or(u64::MAX, |group| group.poll_interval());
                task.nr_dirtied_pause = task.nr_dirtied_pause.min(next);
            });
            let over = write_back.system.dirty.read() > states.0.background_thresh;
            return Check {
                device,
                device_dirty: 0,
                wakes_flusher: over && is_idle && !write_back.settings.laptop_mode,
                throttle: None,
            };
        }
        let (tighter, ratio) = write_back.tighter_state(states, device, now);
        let rates = write_back.device(device).bandwidth;
        let mut throttle = None;
        self.host().with_dirtier(|task| {
            throttle = Some(task.throttle(pages, tighter.device_dirty, ratio, &rates, now));
        });
        Check {
            device,
            device_dirty: tighter.device_dirty,
            wakes_flusher: is_idle,
            throttle,
        }
    }
}

impl WriteBack {
    /// Of the states of the system and of a device's group the one that slows dirtiers down
    /// more, with its position ratio. Updates the device's rates by both.
    fn tighter_state(
        &mut self,
        (system, group): (DirtyState, Option<DirtyState>),
        device: DeviceId,
        now: u64,
    ) -> (DirtyState, u64) {
        let mut system = self.with_device(system, device, now);
        let mut group = group.map(|group| self.with_device_in_group(group, device, now));
        let of = self.device(device);
        of.is_exceeded = system.is_exceeded() || group.is_some_and(|group| group.is_exceeded());
        let rate = of.bandwidth.average_write_rate;
        let system_ratio = system.position_ratio(rate);
        let group_ratio = group.map(|group| group.position_ratio(rate));
        if of.bandwidth.is_due(now) {
            let (counted, number) = (of.counted(), of.group);
            system.limit = self.update_limit(0, &system, now);
            if let Some(group) = &mut group {
                group.limit = self.update_limit(number, group, now);
            }
            let of_group = group.zip(group_ratio);
            let rates = &mut self.device(device).bandwidth;
            rates.update_with_ratelimit(&[Some((system, system_ratio)), of_group], counted, now);
        }
        match group.zip(group_ratio) {
            Some((group, ratio)) if ratio < system_ratio => (group, ratio),
            _ => (system, system_ratio),
        }
    }
}

/// The result of checking a task that dirties pages.
struct Check {
    device: DeviceId,
    /// Dirty pages of the device.
    device_dirty: u64,
    wakes_flusher: bool,
    /// `None` while tasks are not throttled.
    throttle: Option<Throttle>,
}
