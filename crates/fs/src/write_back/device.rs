//! What is known of each device that pages are written to, and its inodes
//! (`struct bdi_writeback`).

use std::collections::VecDeque;
use std::task::Waker;

use super::bandwidth::{Bandwidth, Counted};
use super::counters::{Batched, DEVICE_BATCH, Part, Proportions, system_batch};
use super::flusher::{Reason, Work};
use super::throttle::DirtyState;
use super::{HZ, Settings};
use crate::inode::InodeId;

/// Names a device that pages are written to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceId(pub u32);

/// What is dirty of an inode (`I_DIRTY_*`), and what happens to it.
pub(crate) mod state {
    /// Its times, which only `fsync` must write.
    pub(crate) const SYNC: u8 = 1 << 0;
    /// What is needed to find its data.
    pub(crate) const DATASYNC: u8 = 1 << 1;
    /// Pages.
    pub(crate) const PAGES: u8 = 1 << 2;
    /// It is being written.
    pub(crate) const WRITING: u8 = 1 << 3;
    /// The flusher has it in a queue.
    pub(crate) const QUEUED: u8 = 1 << 4;
    /// Anything dirty.
    pub(crate) const DIRTY: u8 = SYNC | DATASYNC | PAGES;
}

/// The queue that an inode is in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Queue {
    /// It is clean.
    #[default]
    None,
    /// Dirty, the oldest first.
    Dirty,
    /// To be written in this round.
    Io,
    /// Not finished in this round.
    MoreIo,
}

/// An inode's part in write-back.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct InodeState {
    pub(crate) device: DeviceId,
    pub(crate) state: u8,
    queue: Queue,
    /// When it became dirty.
    pub(crate) dirtied_when: u64,
    /// Where the next round goes on.
    pub(crate) next_page: u64,
}

/// A device.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) reclaimable: Batched,
    pub(crate) writing: Batched,
    pub(crate) dirtied: Batched,
    pub(crate) written: Batched,
    pub(crate) bandwidth: Bandwidth,
    pub(crate) is_exceeded: bool,
    part: Part,
    queues: [VecDeque<InodeId>; 3],
    pub(crate) works: VecDeque<Work>,
    /// Everything is to be written, and why.
    pub(crate) start_all: Option<Reason>,
    pub(crate) last_periodic: u64,
    pub(crate) is_running: bool,
    /// When the flusher runs next.
    pub(crate) due: Option<u64>,
    /// Files that have pages under write-back.
    pub(crate) inodes_writing: u64,
    /// Whether it has a cache that must be flushed.
    pub(crate) has_volatile_cache: bool,
    /// Works done so far, and tasks that wait for one.
    pub(crate) works_done: u64,
    works_queued: u64,
    pub(crate) waiters: Vec<Waker>,
}

impl Device {
    fn new(now: u64) -> Device {
        Device {
            reclaimable: Batched::new(DEVICE_BATCH),
            writing: Batched::new(DEVICE_BATCH),
            dirtied: Batched::new(DEVICE_BATCH),
            written: Batched::new(DEVICE_BATCH),
            bandwidth: Bandwidth::new(now),
            is_exceeded: false,
            part: Part::default(),
            queues: Default::default(),
            works: VecDeque::new(),
            start_all: None,
            last_periodic: now,
            is_running: false,
            due: None,
            inodes_writing: 0,
            has_volatile_cache: false,
            works_done: 0,
            works_queued: 0,
            waiters: Vec::new(),
        }
    }

    /// Whether it has dirty inodes.
    pub(crate) fn has_dirty(&self) -> bool {
        self.queues.iter().any(|queue| !queue.is_empty())
    }

    /// Queues a work, unless there is nothing dirty. Returns how many works are done
    /// when it is.
    pub(crate) fn queue_work(&mut self, work: Work) -> Option<u64> {
        if !self.has_dirty() {
            return None;
        }
        self.works.push_back(work);
        self.works_queued += 1;
        Some(self.works_queued)
    }

    /// Pages dirtied and written so far, as read without the CPUs' batches.
    pub(crate) fn counted(&self) -> Counted {
        Counted {
            dirtied: self.dirtied.read(),
            written: self.written.read(),
        }
    }

    fn queue(&mut self, queue: Queue) -> Option<&mut VecDeque<InodeId>> {
        match queue {
            Queue::None => None,
            Queue::Dirty => Some(&mut self.queues[0]),
            Queue::Io => Some(&mut self.queues[1]),
            Queue::MoreIo => Some(&mut self.queues[2]),
        }
    }
}

/// All that write-back knows.
#[derive(Debug)]
pub(crate) struct WriteBack {
    pub(crate) settings: Settings,
    pub(crate) dirty: Batched,
    pub(crate) writing: Batched,
    /// The threshold as it comes down slowly, and when it last did.
    limit: u64,
    limit_at: u64,
    proportions: Proportions,
    devices: Vec<Device>,
    inodes: Vec<InodeState>,
}

impl WriteBack {
    pub(crate) fn new(settings: Settings, now: u64) -> WriteBack {
        let batch = system_batch(settings.memory_pages);
        WriteBack {
            dirty: Batched::new(batch),
            writing: Batched::new(batch),
            limit: settings.thresholds().0,
            limit_at: now,
            proportions: Proportions::default(),
            devices: vec![Device::new(now)],
            inodes: Vec::new(),
            settings,
        }
    }

    /// All devices.
    pub(crate) fn device_ids(&self) -> impl Iterator<Item = DeviceId> + use<> {
        (0..self.devices.len() as u32).map(DeviceId)
    }

    pub(crate) fn device(&mut self, device: DeviceId) -> &mut Device {
        let at = device.0 as usize;
        while self.devices.len() <= at {
            self.devices.push(Device::new(self.limit_at));
        }
        &mut self.devices[at]
    }

    pub(crate) fn inode(&mut self, inode: InodeId) -> &mut InodeState {
        let at = inode.0 as usize;
        if self.inodes.len() <= at {
            self.inodes.resize(at + 1, InodeState::default());
        }
        &mut self.inodes[at]
    }

    /// The device of an inode.
    pub(crate) fn device_of(&mut self, inode: InodeId) -> &mut Device {
        let device = self.inode(inode).device;
        self.device(device)
    }

    /// Puts an inode at the end of a queue.
    pub(crate) fn enqueue(&mut self, inode: InodeId, queue: Queue) {
        let InodeState {
            device, queue: old, ..
        } = *self.inode(inode);
        if let Some(from) = self.device(device).queue(old) {
            from.retain(|&other| other != inode);
        }
        self.inode(inode).queue = queue;
        if let Some(to) = self.device(device).queue(queue) {
            to.push_back(inode);
        }
    }

    /// The next inode to be written.
    pub(crate) fn next_io(&mut self, device: DeviceId) -> Option<InodeId> {
        self.device(device).queues[1].front().copied()
    }

    /// The inode that waited longest for another try.
    pub(crate) fn next_more_io(&mut self, device: DeviceId) -> Option<InodeId> {
        self.device(device).queues[2].front().copied()
    }

    /// Back among the dirty ones. Where younger ones came since, it counts as dirty
    /// from now on (`redirty_tail`).
    pub(crate) fn redirty(&mut self, inode: InodeId, now: u64) {
        let device = self.inode(inode).device;
        self.inode(inode).state &= !state::QUEUED;
        if let Some(&youngest) = self.device(device).queues[0].back()
            && self.inode(inode).dirtied_when < self.inode(youngest).dirtied_when
        {
            self.inode(inode).dirtied_when = now;
        }
        self.enqueue(inode, Queue::Dirty);
    }

    /// Queues for writing what was unfinished, then what was dirty at `before`.
    /// Returns how many of the latter (`queue_io`).
    pub(crate) fn queue_io(&mut self, device: DeviceId, before: u64) -> u64 {
        let unfinished: Vec<InodeId> = self.device(device).queues[2].iter().copied().collect();
        for inode in unfinished {
            self.enqueue(inode, Queue::Io);
        }
        let mut moved = 0;
        while let Some(&oldest) = self.device(device).queues[0].front() {
            if self.inode(oldest).dirtied_when > before {
                break;
            }
            self.inode(oldest).state |= state::QUEUED;
            self.enqueue(oldest, Queue::Io);
            moved += 1;
        }
        moved
    }

    /// The device's share of a threshold, in pages (`__wb_calc_thresh`).
    fn share(&mut self, device: DeviceId, thresh: u64, now: u64) -> u64 {
        let part = &mut self.devices[device.0 as usize].part;
        let (of, all) = self.proportions.fraction(part, now);
        thresh * of / all
    }

    /// What balancing looks at, without the device's part.
    pub(crate) fn system_state(&self) -> DirtyState {
        let (thresh, background_thresh) = self.settings.thresholds();
        DirtyState {
            dirty: self.dirty.read() + self.writing.read(),
            thresh,
            background_thresh,
            limit: self.limit,
            ..DirtyState::default()
        }
    }

    /// Adds the device's part; where that is small it is counted exactly.
    pub(crate) fn with_device(
        &mut self,
        state: DirtyState,
        device: DeviceId,
        now: u64,
    ) -> DirtyState {
        let device_thresh = self.share(device, state.thresh, now);
        let of = self.device(device);
        let [reclaimable, writing] = [&of.reclaimable, &of.writing].map(|counter| {
            if device_thresh < 2 * DEVICE_BATCH as u64 {
                counter.sum()
            } else {
                counter.read()
            }
        });
        DirtyState {
            device_dirty: reclaimable + writing,
            device_thresh,
            ..state
        }
    }

    /// Whether the device should be written in the background
    /// (`wb_over_bg_thresh`).
    pub(crate) fn is_over_background(&mut self, device: DeviceId, now: u64) -> bool {
        let (_, background) = self.settings.thresholds();
        if self.dirty.read() > background {
            return true;
        }
        let share = self.share(device, background, now);
        let reclaimable = &self.device(device).reclaimable;
        let dirty = if share < 2 * DEVICE_BATCH as u64 {
            reclaimable.sum()
        } else {
            reclaimable.read()
        };
        dirty > share
    }

    /// The slow threshold follows: up at once, down by a 32nd of the way each
    /// 200 ms.
    pub(crate) fn update_limit(&mut self, state: &DirtyState, now: u64) -> u64 {
        if now < self.limit_at + HZ / 5 {
            return self.limit;
        }
        self.limit_at = now;
        let floor = state.thresh.max(state.dirty);
        if self.limit < state.thresh {
            self.limit = state.thresh;
        } else if self.limit > floor {
            self.limit -= (self.limit - floor) / 32;
        }
        self.limit
    }

    /// Pages that an inode may have written before others have their turn: half a
    /// second's worth, in steps of 4 MiB (`writeback_chunk_size`).
    pub(crate) fn chunk(&mut self, device: DeviceId, left: i64) -> i64 {
        const STEP: i64 = (4 << 20) / crate::PAGE_BYTES as i64;
        let rate = self.device(device).bandwidth.average_write_rate;
        let pages = (rate / 2).min(self.limit / 8) as i64;
        (pages.min(left) + STEP) / STEP * STEP
    }

    /// The threshold that comes down slowly is there.
    pub(crate) const fn set_limit(&mut self, limit: u64) {
        self.limit = limit;
    }

    /// A device and others wrote so many pages lately.
    pub(crate) fn wrote_before(&mut self, device: DeviceId, pages: u64, others: u64, now: u64) {
        self.device(device);
        let part = &mut self.devices[device.0 as usize].part;
        for (pages, part) in [(others, &mut Part::default()), (pages, part)] {
            for _ in 0..pages {
                self.proportions.add(part, now);
            }
        }
    }

    /// A page became dirty.
    pub(crate) fn page_dirtied(&mut self, inode: InodeId) {
        self.dirty.add(1);
        let device = self.device_of(inode);
        device.reclaimable.add(1);
        device.dirtied.add(1);
    }

    /// A page is dirty no more.
    pub(crate) fn page_cleaned(&mut self, inode: InodeId) {
        self.dirty.add(-1);
        self.device_of(inode).reclaimable.add(-1);
    }

    /// A page is being written.
    pub(crate) fn page_writing(&mut self, inode: InodeId) {
        self.writing.add(1);
        self.device_of(inode).writing.add(1);
    }

    /// A page was written.
    pub(crate) fn page_written(&mut self, inode: InodeId, now: u64) {
        self.writing.add(-1);
        let at = self.inode(inode).device.0 as usize;
        let device = &mut self.devices[at];
        device.writing.add(-1);
        device.written.add(1);
        self.proportions.add(&mut device.part, now);
    }
}
