//! Devices that pages are written to (`struct bdi_writeback`), and their dirty inodes. Each
//! memory cgroup has a part of its own of each device, with its own dirty inodes and flusher.

use std::collections::VecDeque;
use std::task::Waker;

use super::bandwidth::{Bandwidth, Counted};
use super::counters::{DEVICE_BATCH, DeviceProportion, PercpuCounter, system_batch};
use super::dirty_state::DirtyState;
use super::domain::{Domain, GroupMemory};
use super::work::{Reason, WritebackWork};
use super::{HZ, Settings};
use crate::inode::InodeId;

/// Identifies a device that pages are written to, or a memory cgroup's part of one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceId(pub u32);

/// State of an inode in write-back (`I_DIRTY_*`, `I_SYNC`).
pub(crate) mod state {
    /// Its times are dirty, which `fdatasync` need not write (`I_DIRTY_SYNC`).
    pub(crate) const SYNC: u8 = 1 << 0;
    /// What is needed to find its data is dirty (`I_DIRTY_DATASYNC`).
    pub(crate) const DATASYNC: u8 = 1 << 1;
    /// It has dirty pages (`I_DIRTY_PAGES`).
    pub(crate) const PAGES: u8 = 1 << 2;
    /// It is being written (`I_SYNC`).
    pub(crate) const WRITING: u8 = 1 << 3;
    /// A flusher has taken it over for writing (`I_SYNC_QUEUED`).
    pub(crate) const QUEUED: u8 = 1 << 4;
    /// Anything of it is dirty (`I_DIRTY`).
    pub(crate) const DIRTY: u8 = SYNC | DATASYNC | PAGES;
}

/// The queue that an inode is in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Queue {
    /// It is clean.
    #[default]
    None,
    /// Dirty inodes, the oldest first (`b_dirty`).
    Dirty,
    /// Inodes to write in this round (`b_io`).
    Io,
    /// Inodes that this round did not finish (`b_more_io`).
    MoreIo,
}

/// An inode's part in write-back.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct InodeState {
    pub(crate) device: DeviceId,
    /// Whether the group that its write-back belongs to is settled.
    is_attached: bool,
    pub(crate) state: u8,
    queue: Queue,
    /// When it became dirty, in jiffies.
    pub(crate) dirtied_when: u64,
    /// The page where the next cyclic round continues (`writeback_index`).
    pub(crate) next_page: u64,
}

/// A device's counters, estimates, queues and flusher.
#[derive(Debug)]
pub(crate) struct Device {
    /// The device that it is a part of; itself if it is the root's.
    of: DeviceId,
    /// The memory cgroup that dirtied its pages first; 0 is the root.
    pub(super) group: u16,
    pub(crate) reclaimable: PercpuCounter,
    pub(crate) writing: PercpuCounter,
    pub(crate) dirtied: PercpuCounter,
    pub(crate) written: PercpuCounter,
    pub(crate) bandwidth: Bandwidth,
    /// It and the system were above their thresholds when a task was last checked.
    pub(crate) is_exceeded: bool,
    /// Its proportions of the pages that all devices wrote lately, and of those of its group.
    proportion: DeviceProportion,
    proportion_in_group: DeviceProportion,
    dirty: VecDeque<InodeId>,
    io: VecDeque<InodeId>,
    more_io: VecDeque<InodeId>,
    pub(super) works: VecDeque<WritebackWork>,
    /// Set when all that is dirty must be written (`WB_start_all`).
    pub(crate) start_all: Option<Reason>,
    /// When its flusher last looked for old pages, in jiffies (`last_old_flush`).
    pub(crate) last_periodic: u64,
    pub(crate) is_running: bool,
    /// When the flusher runs next, in jiffies.
    pub(crate) due: Option<u64>,
    /// Inodes that have pages under write-back.
    pub(crate) inodes_writing: u64,
    /// Whether it has a cache that must be flushed.
    pub(crate) has_volatile_cache: bool,
    /// Works that are done so far.
    pub(crate) works_done: u64,
    works_queued: u64,
    /// Tasks that wait for a work, or for an inode that is being written.
    pub(crate) waiters: Vec<Waker>,
}

impl Device {
    fn new(of: DeviceId, group: u16, now: u64) -> Device {
        Device {
            of,
            group,
            reclaimable: PercpuCounter::new(DEVICE_BATCH),
            writing: PercpuCounter::new(DEVICE_BATCH),
            dirtied: PercpuCounter::new(DEVICE_BATCH),
            written: PercpuCounter::new(DEVICE_BATCH),
            bandwidth: Bandwidth::new(now),
            is_exceeded: false,
            proportion: DeviceProportion::default(),
            proportion_in_group: DeviceProportion::default(),
            dirty: VecDeque::new(),
            io: VecDeque::new(),
            more_io: VecDeque::new(),
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
        let queues = [&self.dirty, &self.io, &self.more_io];
        queues.iter().any(|queue| !queue.is_empty())
    }

    /// Queues a work, unless nothing is dirty. Returns the value of `works_done` at which
    /// it is done.
    pub(super) fn queue_work(&mut self, work: WritebackWork) -> Option<u64> {
        if !self.has_dirty() {
            return None;
        }
        self.works.push_back(work);
        self.works_queued += 1;
        Some(self.works_queued)
    }

    /// Pages dirtied and written so far, as far as the counters show them.
    pub(crate) fn counted(&self) -> Counted {
        Counted {
            dirtied: self.dirtied.read(),
            written: self.written.read(),
        }
    }

    fn queue(&mut self, queue: Queue) -> Option<&mut VecDeque<InodeId>> {
        match queue {
            Queue::None => None,
            Queue::Dirty => Some(&mut self.dirty),
            Queue::Io => Some(&mut self.io),
            Queue::MoreIo => Some(&mut self.more_io),
        }
    }
}

/// The state of write-back: settings, counters, devices and inodes.
#[derive(Debug)]
pub(crate) struct WriteBack {
    pub(crate) settings: Settings,
    /// Pages of programs, which hold no file's data.
    pub(crate) taken_pages: u64,
    /// All pages.
    pub(crate) system: Domain,
    /// Those of each memory cgroup below the root.
    groups: Vec<Domain>,
    /// When their statistics are to be flushed next.
    flush_due: u64,
    devices: Vec<Device>,
    inodes: Vec<InodeState>,
}

impl WriteBack {
    pub(crate) fn new(settings: Settings, now: u64) -> WriteBack {
        let batch = system_batch(settings.memory_pages);
        WriteBack {
            taken_pages: 0,
            system: Domain::new(batch, settings.thresholds().0, now),
            groups: Vec::new(),
            flush_due: 0,
            devices: vec![Device::new(DeviceId(0), 0, now)],
            inodes: Vec::new(),
            settings,
        }
    }

    /// Pages that can be dirty now (`global_dirtyable_memory`).
    fn dirtyable_pages(&self) -> u64 {
        self.settings
            .dirtyable_pages
            .saturating_sub(self.taken_pages)
    }

    /// The thresholds for those.
    fn thresholds(&self) -> (u64, u64) {
        let settings = Settings {
            dirtyable_pages: self.dirtyable_pages(),
            ..self.settings
        };
        settings.thresholds()
    }

    /// Whether memory cgroups' statistics are to be flushed again (`FLUSH_TIME`).
    pub(crate) fn is_flush_of_statistics_due(&mut self, now: u64) -> bool {
        const PERIOD: u64 = 2 * HZ;
        let is_due = now >= self.flush_due;
        if is_due {
            self.flush_due = now + PERIOD;
        }
        is_due
    }

    pub(crate) fn flush_group_statistics(&mut self) {
        self.groups.iter_mut().for_each(Domain::flush_statistics);
    }

    /// Adds the domains of this many memory cgroups below the root.
    pub(crate) fn add_groups(&mut self, groups: usize, now: u64) {
        let domain = || Domain::new(DEVICE_BATCH, 0, now);
        self.groups.resize_with(groups, domain);
    }

    /// Adds a memory cgroup's part of a device (`cgwb_create`).
    pub(crate) fn add_group_device(&mut self, of: DeviceId, group: u16, now: u64) -> DeviceId {
        let has_volatile_cache = self.device(of).has_volatile_cache;
        self.devices.push(Device {
            has_volatile_cache,
            ..Device::new(of, group, now)
        });
        DeviceId(self.devices.len() as u32 - 1)
    }

    /// The part of a device that belongs to a memory cgroup; the root's where it has none.
    fn part_of_group(&self, device: DeviceId, group: u16) -> DeviceId {
        let of = self.devices.get(device.0 as usize).map_or(device, |d| d.of);
        let mut parts = self.parts_of(of);
        let part = parts.find(|part| self.devices[part.0 as usize].group == group);
        part.unwrap_or(of)
    }

    /// A device and its memory cgroups' parts of it.
    pub(super) fn parts_of(&self, device: DeviceId) -> impl Iterator<Item = DeviceId> + use<'_> {
        let parts = (0..).map(DeviceId).zip(&self.devices);
        let parts = parts.filter(move |(_, part)| part.of == device);
        parts.map(|(number, _)| number)
    }

    /// The part of an inode's device that the running task of a memory cgroup is slowed down
    /// by (`wb_get_create_current`).
    pub(super) fn part_of_writer(&mut self, inode: InodeId, group: u16) -> DeviceId {
        let device = self.inode(inode).device;
        match self.groups.is_empty() {
            true => device,
            false => self.part_of_group(device, group),
        }
    }

    /// Whether an inode may still come to belong to the group that dirties it.
    pub(super) fn is_unattached(&mut self, inode: InodeId) -> bool {
        if self.groups.is_empty() {
            return false;
        }
        let of = self.inode(inode);
        !of.is_attached && of.state & state::DIRTY == 0 && of.queue == Queue::None
    }

    /// An inode's write-back belongs to a memory cgroup from now on (`inode_attach_wb`). That
    /// it belongs to the root is not settled: Linux hands it over to a group that dirties more
    /// of it (`inode_switch_wbs`).
    pub(super) fn attach(&mut self, inode: InodeId, group: u16) {
        let device = self.inode(inode).device;
        let part = self.part_of_group(device, group);
        let of = self.inode(inode);
        (of.device, of.is_attached) = (part, group != 0);
    }

    /// An inode that is dropped belongs to no group.
    pub(super) fn detach(&mut self, inode: InodeId) {
        if !self.groups.is_empty() {
            self.attach(inode, 0);
        }
    }

    /// All devices.
    pub(crate) fn device_ids(&self) -> impl Iterator<Item = DeviceId> + use<> {
        (0..self.devices.len() as u32).map(DeviceId)
    }

    pub(crate) fn device(&mut self, device: DeviceId) -> &mut Device {
        let at = device.0 as usize;
        while self.devices.len() <= at {
            let next = DeviceId(self.devices.len() as u32);
            self.devices
                .push(Device::new(next, 0, self.system.limit_at));
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

    /// Whether the device of an inode and the system were above their thresholds when a task was
    /// last checked.
    #[inline]
    pub(crate) fn is_exceeded(&self, inode: InodeId) -> bool {
        let of = self.inodes.get(inode.0 as usize);
        let device = of.map_or(DeviceId::default(), |of| of.device);
        let device = self.devices.get(device.0 as usize);
        device.is_some_and(|device| device.is_exceeded)
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

    /// The next inode to write in this round.
    pub(crate) fn next_io(&mut self, device: DeviceId) -> Option<InodeId> {
        self.device(device).io.front().copied()
    }

    /// The first inode that this round did not finish.
    pub(crate) fn next_more_io(&mut self, device: DeviceId) -> Option<InodeId> {
        self.device(device).more_io.front().copied()
    }

    /// Puts an inode back into the dirty queue. The queue stays in order of time, so an
    /// inode that is older than the last one counts as dirtied now (`redirty_tail`).
    pub(crate) fn redirty(&mut self, inode: InodeId, now: u64) {
        let device = self.inode(inode).device;
        self.inode(inode).state &= !state::QUEUED;
        if let Some(&youngest) = self.device(device).dirty.back()
            && self.inode(inode).dirtied_when < self.inode(youngest).dirtied_when
        {
            self.inode(inode).dirtied_when = now;
        }
        self.enqueue(inode, Queue::Dirty);
    }

    /// Queues unfinished inodes for writing, then those that were dirty at `before`.
    /// Returns the number of the latter (`queue_io`).
    pub(crate) fn queue_io(&mut self, device: DeviceId, before: u64) -> u64 {
        let unfinished: Vec<InodeId> = self.device(device).more_io.iter().copied().collect();
        for inode in unfinished {
            self.enqueue(inode, Queue::Io);
        }
        let mut moved = 0;
        while let Some(&oldest) = self.device(device).dirty.front() {
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
        let own = &mut self.devices[device.0 as usize].proportion;
        let (of, all) = self.system.proportions.fraction(own, now);
        thresh * of / all
    }

    /// Its share of a threshold of its group.
    fn share_in_group(&mut self, device: DeviceId, thresh: u64, now: u64) -> u64 {
        let device = &mut self.devices[device.0 as usize];
        let Some(domain) = domain_of(&mut self.groups, device.group) else {
            return thresh;
        };
        let (of, all) = (domain.proportions).fraction(&mut device.proportion_in_group, now);
        thresh * of / all
    }

    /// The dirty state of the whole system.
    pub(crate) fn system_state(&self) -> DirtyState {
        let (thresh, background_thresh) = self.thresholds();
        DirtyState {
            dirty: self.system_dirty(),
            thresh,
            background_thresh,
            limit: self.system.limit,
            ..DirtyState::default()
        }
    }

    /// Pages of the system that are dirty or being written.
    fn system_dirty(&self) -> u64 {
        self.system.dirty.read() + self.system.writing.read()
    }

    /// The dirty state of a device's group, by its statistics as of their last flush; `None` if
    /// that is the root.
    pub(super) fn group_state(&self, device: DeviceId, memory: GroupMemory) -> Option<DirtyState> {
        let group = self.devices[device.0 as usize].group;
        let domain = self.groups.get(usize::from(group).checked_sub(1)?)?;
        let (dirty, writing) = domain.seen();
        let dirty = dirty + writing;
        let dirtyable = self.dirtyable_pages();
        let available = memory.available(dirty, (dirtyable, self.system_dirty()));
        let (thresh, background_thresh) = self.settings.thresholds_of_group(available, dirtyable);
        Some(DirtyState {
            dirty,
            thresh,
            background_thresh,
            limit: domain.limit,
            ..DirtyState::default()
        })
    }

    /// Adds the device's state. A small one is counted exactly, because the counters'
    /// error would exceed it (`wb_dirty_limits`).
    pub(crate) fn with_device(
        &mut self,
        state: DirtyState,
        device: DeviceId,
        now: u64,
    ) -> DirtyState {
        let device_thresh = self.share(device, state.thresh, now);
        self.with_device_pages(state, device, device_thresh)
    }

    /// The same for the state of its group.
    pub(super) fn with_device_in_group(
        &mut self,
        state: DirtyState,
        device: DeviceId,
        now: u64,
    ) -> DirtyState {
        let device_thresh = self.share_in_group(device, state.thresh, now);
        self.with_device_pages(state, device, device_thresh)
    }

    fn with_device_pages(
        &mut self,
        state: DirtyState,
        device: DeviceId,
        device_thresh: u64,
    ) -> DirtyState {
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

    /// Whether the system, the device's group or the device exceeds its background threshold
    /// (`wb_over_bg_thresh`).
    pub(crate) fn is_over_background(
        &mut self,
        device: DeviceId,
        memory: GroupMemory,
        now: u64,
    ) -> bool {
        let (_, background) = self.thresholds();
        if self.system.dirty.read() > background {
            return true;
        }
        let share = self.share(device, background, now);
        self.has_more_dirty(device, share) || self.is_group_over_background(device, memory, now)
    }

    fn is_group_over_background(
        &mut self,
        device: DeviceId,
        memory: GroupMemory,
        now: u64,
    ) -> bool {
        let Some(state) = self.group_state(device, memory) else {
            return false;
        };
        let group = self.device(device).group;
        let domain = domain_of(&mut self.groups, group);
        if domain.is_some_and(|domain| domain.seen().0 > state.background_thresh) {
            return true;
        }
        let share = self.share_in_group(device, state.background_thresh, now);
        self.has_more_dirty(device, share)
    }

    fn has_more_dirty(&mut self, device: DeviceId, share: u64) -> bool {
        let reclaimable = &self.device(device).reclaimable;
        let dirty = if share < 2 * DEVICE_BATCH as u64 {
            reclaimable.sum()
        } else {
            reclaimable.read()
        };
        dirty > share
    }

    /// Lets the smoothed threshold of the system follow, or that of a memory cgroup.
    pub(super) fn update_limit(&mut self, group: u16, state: &DirtyState, now: u64) -> u64 {
        let domain = domain_of(&mut self.groups, group).unwrap_or(&mut self.system);
        domain.update_limit(state, now)
    }

    /// Pages of one inode that are written before the next inode's turn: what the device
    /// writes in half a second, in multiples of 4 MiB (`writeback_chunk_size`).
    pub(crate) fn chunk(&mut self, device: DeviceId, left: i64) -> i64 {
        const STEP: i64 = (4 << 20) / crate::PAGE_BYTES as i64;
        let rate = self.device(device).bandwidth.average_write_rate;
        let pages = (rate / 2).min(self.system.limit / 8) as i64;
        (pages.min(left) + STEP) / STEP * STEP
    }

    /// Sets the smoothed threshold.
    pub(crate) const fn set_limit(&mut self, limit: u64) {
        self.system.limit = limit;
    }

    /// Sets how many pages a device and all others wrote lately.
    pub(crate) fn set_written_before(
        &mut self,
        device: DeviceId,
        pages: u64,
        others: u64,
        now: u64,
    ) {
        self.device(device);
        let own = &mut self.devices[device.0 as usize].proportion;
        let all_others = &mut DeviceProportion::default();
        for (pages, proportion) in [(others, all_others), (pages, own)] {
            for _ in 0..pages {
                self.system.proportions.add(proportion, 1, now);
            }
        }
    }

    /// Pages of a folio became dirty.
    pub(crate) fn pages_dirtied(&mut self, inode: InodeId, pages: u64) {
        let pages = pages.cast_signed();
        self.change_domains(inode, |domain| domain.dirty.add(pages));
        let device = self.device_of(inode);
        device.reclaimable.add(pages);
        device.dirtied.add(pages);
    }

    /// They are no longer dirty.
    pub(crate) fn pages_cleaned(&mut self, inode: InodeId, pages: u64) {
        let pages = pages.cast_signed();
        self.change_domains(inode, |domain| domain.dirty.add(-pages));
        self.device_of(inode).reclaimable.add(-pages);
    }

    /// They are being written.
    pub(crate) fn pages_writing(&mut self, inode: InodeId, pages: u64) {
        let pages = pages.cast_signed();
        self.change_domains(inode, |domain| domain.writing.add(pages));
        self.device_of(inode).writing.add(pages);
    }

    /// They were written.
    pub(crate) fn pages_written(&mut self, inode: InodeId, pages: u64, now: u64) {
        let count = pages.cast_signed();
        self.change_domains(inode, |domain| domain.writing.add(-count));
        let at = self.inode(inode).device.0 as usize;
        let device = &mut self.devices[at];
        device.writing.add(-count);
        device.written.add(count);
        (self.system.proportions).add(&mut device.proportion, pages, now);
        if let Some(domain) = domain_of(&mut self.groups, device.group) {
            (domain.proportions).add(&mut device.proportion_in_group, pages, now);
        }
    }

    /// Changes the counters of the system and of the memory cgroup that an inode belongs to.
    fn change_domains(&mut self, inode: InodeId, change: impl Fn(&mut Domain)) {
        change(&mut self.system);
        if self.groups.is_empty() {
            return;
        }
        let group = self.device_of(inode).group;
        if let Some(domain) = domain_of(&mut self.groups, group) {
            change(domain);
        }
    }
}

/// The domain of a memory cgroup; `None` for the root, whose pages are the system's alone.
fn domain_of(groups: &mut [Domain], group: u16) -> Option<&mut Domain> {
    groups.get_mut(usize::from(group).checked_sub(1)?)
}
