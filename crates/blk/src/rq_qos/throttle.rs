//! Limits of control groups in bytes and I/Os per second, `io.max` (`block/blk-throttle.c`).
//!
//! In each slice of 100 ms a group may use what its limits allow in that time. A bio within the
//! limits of its group and of all groups above continues at once. A bio over a limit is queued in
//! that group, and each group keeps the time at which its first bio may go. A timer then moves bios
//! up the tree, level by level, and from the root to a worker that submits them. Bytes and I/Os of
//! past slices are trimmed, so that an unused allowance is not saved.
//!
//! All times are in ticks.

use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use super::HeldBios;
use super::prio::PrioPolicy;
use crate::bio::{Bio, BioFlags, CgroupId};
use crate::queue::Waiter;
use crate::submit::Plug;
use crate::units::{HZ, Nanos, SECTOR_SIZE, jiffies, jiffy_start};

/// Length of a slice (`DFL_THROTL_SLICE`).
const SLICE: i64 = HZ / 10;
/// The most reads and writes dispatched in a group's turn (three quarters and one quarter of
/// `THROTL_GRP_QUANTUM`), and the most bios of one timer run (`THROTL_QUANTUM`).
const GROUP_QUANTUM: [usize; 2] = [6, 2];
const QUANTUM: usize = 32;
/// A timer runs after at most this many slices, because limits may have changed.
const LATEST_SLICES: i64 = 8;

/// Limits of a group per second, reads first; `None` is `max`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoMax {
    /// Limit in bytes (`rbps`, `wbps`).
    pub bytes: [Option<u64>; 2],
    /// Limit in I/Os (`riops`, `wiops`).
    pub ios: [Option<u32>; 2],
}

impl IoMax {
    /// Parses a write to `io.max`, without the drive's number, such as `rbps=1048576 wiops=max`;
    /// limits that are not named keep their values.
    ///
    /// # Errors
    /// If the kernel refuses it; the message says why.
    pub fn write(&mut self, text: &str) -> Result<(), String> {
        let mut written = *self;
        for word in text.split_whitespace() {
            let (name, value) = word
                .split_once('=')
                .ok_or_else(|| format!("{word:?} is not NAME=VALUE (EINVAL)"))?;
            let limit = match value {
                "max" => None,
                "0" => {
                    return Err(format!(
                        "{name} may not be 0, which nothing could pass (ERANGE)"
                    ));
                }
                _ => Some(value.parse::<u64>().map_err(|_| {
                    format!("{name} takes a number of up to 64 bits or max, not {value:?} (EINVAL)")
                })?),
            };
            if limit == Some(1) {
                return Err(format!("{name} has to be more than 1 (EINVAL)"));
            }
            let few = limit.map(|limit| limit.min(u32::MAX as u64) as u32);
            match name {
                "rbps" => written.bytes[0] = limit,
                "wbps" => written.bytes[1] = limit,
                "riops" => written.ios[0] = few,
                "wiops" => written.ios[1] = few,
                _ => {
                    return Err(format!(
                        "{name:?} is no limit; those are rbps, wbps, riops, wiops (EINVAL)"
                    ));
                }
            }
        }
        *self = written;
        Ok(())
    }
}

/// A group's current slice in one direction.
#[derive(Clone, Copy, Debug, Default)]
struct Slice {
    start: i64,
    end: i64,
    bytes: u64,
    ios: u32,
    /// Left over from before a change of limits, negative where too much was used.
    carried_bytes: i64,
    carried_ios: i32,
}

impl Slice {
    fn is_over(&self, now: i64) -> bool {
        !(self.start..=self.end).contains(&now)
    }

    /// Starts a slice; what was carried over from before a change of limits stays if
    /// `keeps_carried` (`throtl_start_new_slice`).
    fn restart(&mut self, now: i64, keeps_carried: bool) {
        let (carried_bytes, carried_ios) = match keeps_carried {
            true => (self.carried_bytes, self.carried_ios),
            false => (0, 0),
        };
        *self = Slice {
            start: now,
            end: now + SLICE,
            bytes: 0,
            ios: 0,
            carried_bytes,
            carried_ios,
        };
    }

    /// Adds what the old limits still allowed, or minus what was used beyond them, for bios that
    /// wait while limits change (`__tg_update_carryover`).
    fn carry_over(&mut self, now: i64, bytes: Option<u64>, ios: Option<u32>) {
        let elapsed = now - self.start;
        if let Some(limit) = bytes {
            let left = allowed(limit, elapsed).wrapping_sub(self.bytes) as i64;
            self.carried_bytes = self.carried_bytes.saturating_add(left);
        }
        if let Some(limit) = ios {
            let left = allowed_ios(limit, elapsed).wrapping_sub(self.ios) as i32;
            self.carried_ios = self.carried_ios.saturating_add(left);
        }
    }

    fn extend(&mut self, to: i64) {
        if self.end < to {
            self.set_end(to);
        }
    }

    fn set_end(&mut self, to: i64) {
        self.end = round_up(to);
    }

    /// Subtracts what the elapsed whole slices allowed (`throtl_trim_slice`). The kernel counts
    /// that with a sign: an unlimited rate of bytes allows -1.
    fn trim(&mut self, now: i64, bytes: Option<u64>, ios: Option<u32>) {
        if self.is_over(now) {
            return;
        }
        self.set_end(now + SLICE);
        let elapsed = (now - self.start) / SLICE * SLICE;
        if elapsed == 0 {
            return;
        }
        let bytes = bytes.map_or(-1, |limit| allowed(limit, elapsed) as i64);
        let bytes = bytes.wrapping_add(self.carried_bytes);
        let ios = allowed_ios(ios.unwrap_or(u32::MAX), elapsed) as i32;
        let ios = ios.wrapping_add(self.carried_ios);
        if bytes <= 0 && ios <= 0 {
            return;
        }
        (self.carried_bytes, self.carried_ios) = (0, 0);
        self.bytes = match self.bytes as i64 >= bytes {
            true => self.bytes.wrapping_sub(bytes as u64),
            false => 0,
        };
        self.ios = match self.ios as i32 >= ios {
            true => self.ios.wrapping_sub(ios as u32),
            false => 0,
        };
        self.start += elapsed;
    }
}

/// The bytes that a limit allows in a number of ticks (`calculate_bytes_allowed`).
fn allowed(limit: u64, ticks: i64) -> u64 {
    let allowed = limit as u128 * ticks.max(0) as u128 / HZ as u128;
    allowed.min(u64::MAX as u128) as u64
}

/// The I/Os that a limit allows in a number of ticks (`calculate_io_allowed`).
fn allowed_ios(limit: u32, ticks: i64) -> u32 {
    allowed(limit.into(), ticks).min(u32::MAX.into()) as u32
}

fn round_up(ticks: i64) -> i64 {
    (ticks + SLICE - 1).div_euclid(SLICE) * SLICE
}

/// A delayed bio, and whether its bytes have already been charged.
#[derive(Clone, Copy, Debug)]
struct HeldBio {
    bio: Bio,
    paid: bool,
    since: Nanos,
}

/// Bios of one direction, queued by the group that they came from; the groups take turns
/// (`throtl_qnode`).
#[derive(Debug, Default)]
struct SourceQueues {
    sources: VecDeque<(CgroupId, VecDeque<HeldBio>)>,
    len: usize,
}

impl SourceQueues {
    fn push(&mut self, from: CgroupId, held: HeldBio) {
        self.len += 1;
        match self.sources.iter_mut().find(|(source, _)| *source == from) {
            Some((_, bios)) => bios.push_back(held),
            None => self.sources.push_back((from, VecDeque::from([held]))),
        }
    }

    fn first(&self) -> Option<HeldBio> {
        self.sources.front()?.1.front().copied()
    }

    fn pop(&mut self) -> Option<HeldBio> {
        let (from, mut bios) = self.sources.pop_front()?;
        let held = bios.pop_front();
        if !bios.is_empty() {
            self.sources.push_back((from, bios));
        }
        self.len -= held.is_some() as usize;
        held
    }
}

/// A group (`struct throtl_grp`), or the root, which has no limits.
#[derive(Debug, Default)]
struct Group {
    parent: CgroupId,
    max: IoMax,
    slices: [Slice; 2],
    queued: [SourceQueues; 2],
    /// Whether a bio was queued in a direction that was empty.
    was_empty: bool,
    /// The tick at which its first bio may go.
    dispatch_at: i64,
    /// Child groups with queued bios, and the tick of their timer.
    pending: Vec<CgroupId>,
    timer: Option<i64>,
    /// Bios submitted in this group that were delayed, in it or above.
    held: HeldBios,
}

impl Group {
    fn has_bios(&self) -> bool {
        self.queued.iter().any(|queue| queue.len > 0)
    }
}

/// Throttling of a queue: the limits, the priority policies, and the worker that submits released
/// bios.
#[derive(Debug, Default)]
pub(crate) struct Throttled {
    pub(crate) limits: Throttle,
    pub(crate) policies: Vec<PrioPolicy>,
    pub(crate) plug: Plug,
    pub(crate) worker: Option<Worker>,
}

/// A sleeping worker, and whether it has been woken.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) waiter: Waiter,
    pub(crate) woken: bool,
}

/// The limits of all groups on one queue (`struct throtl_data`).
#[derive(Debug)]
pub struct Throttle {
    /// Groups by number; the root is first.
    groups: Vec<Group>,
    /// Bios that the worker has to submit.
    released: VecDeque<Bio>,
}

impl Default for Throttle {
    fn default() -> Throttle {
        Throttle {
            groups: vec![Group::default()],
            released: VecDeque::new(),
        }
    }
}

impl Throttle {
    /// Sets the parent of a group, which is the root by default.
    pub fn set_parent(&mut self, group: CgroupId, parent: CgroupId) {
        let at = self.make(group);
        self.make(parent);
        self.groups[at].parent = parent;
    }

    /// Writes a group's `io.max` and restarts its slices (`tg_conf_updated`).
    pub fn set_max(&mut self, now: Nanos, group: CgroupId, max: IoMax) {
        let at = self.make(group);
        let now = jiffies(now);
        let this = &mut self.groups[at];
        for direction in 0..2 {
            let (bytes, ios) = (this.max.bytes[direction], this.max.ios[direction]);
            let slice = &mut this.slices[direction];
            if this.queued[direction].len > 0 {
                slice.carry_over(now, bytes, ios);
            }
            slice.restart(now, true);
        }
        this.max = max;
        if self.groups[at].has_bios() {
            self.update_dispatch_time(now, group);
            self.schedule_next(now, self.groups[at].parent, true);
        }
    }

    /// Returns a group's `io.max`.
    pub fn max(&self, group: CgroupId) -> IoMax {
        let group = self.groups.get(group.0 as usize);
        group.map_or(IoMax::default(), |group| group.max)
    }

    fn make(&mut self, group: CgroupId) -> usize {
        let at = group.0 as usize;
        if self.groups.len() <= at {
            self.groups.resize_with(at + 1, Group::default);
        }
        at
    }

    /// All known groups except the root, each with its parent.
    pub fn parents(&self) -> impl Iterator<Item = (CgroupId, CgroupId)> {
        let groups = self.groups.iter().enumerate().skip(1);
        groups.map(|(at, group)| (CgroupId(at as u16), group.parent))
    }

    /// Bios of a group that were delayed and have continued.
    pub fn held(&self, group: CgroupId) -> HeldBios {
        let group = self.groups.get(group.0 as usize);
        group.map_or(HeldBios::default(), |group| group.held)
    }

    /// Resets the counters.
    pub(crate) fn reset_counters(&mut self) {
        self.groups
            .iter_mut()
            .for_each(|group| group.held = HeldBios::default());
    }

    /// Takes the next bio that has passed all limits.
    pub fn take_released(&mut self) -> Option<Bio> {
        self.released.pop_front()
    }

    /// The time at which [`Throttle::timer`] should be called.
    pub fn next_timer(&self) -> Nanos {
        let timers = self.groups.iter().filter_map(|group| group.timer);
        timers.min().map_or(Nanos::MAX, jiffy_start)
    }

    fn at(&mut self, group: CgroupId) -> &mut Group {
        &mut self.groups[group.0 as usize]
    }

    /// Whether a bio may continue. Otherwise it is queued, and [`Throttle::take_released`] returns
    /// it later (`__blk_throtl_bio`).
    pub fn submit(&mut self, now: Nanos, bio: &Bio) -> bool {
        let direction = bio.op.is_write() as usize;
        let held = HeldBio {
            bio: *bio,
            paid: false,
            since: now,
        };
        let now = jiffies(now);
        let mut group = bio.cgroup;
        if self.groups.len() <= group.0 as usize {
            return true;
        }
        let mut from = group;
        while group != CgroupId::ROOT {
            let waits = self.at(group).queued[direction].len > 0;
            let goes = !waits && self.wait(now, group, direction, &held) == 0;
            // Other groups may wait for metadata and swap, whoever writes them.
            if !goes && !bio.flags.has(BioFlags::META) {
                self.at(bio.cgroup).held.bios += 1;
                self.add(group, from, direction, held);
                if self.at(group).was_empty {
                    self.update_dispatch_time(now, group);
                    let parent = self.at(group).parent;
                    self.schedule_next(now, parent, true);
                }
                return false;
            }
            self.charge(group, direction, &held);
            self.trim(now, group, direction);
            from = group;
            group = self.at(group).parent;
        }
        true
    }

    fn charge(&mut self, group: CgroupId, direction: usize, held: &HeldBio) {
        let slice = &mut self.at(group).slices[direction];
        slice.bytes += if held.paid { 0 } else { bytes_of(&held.bio) };
        slice.ios += 1;
    }

    fn trim(&mut self, now: i64, group: CgroupId, direction: usize) {
        let group = self.at(group);
        let (bytes, ios) = (group.max.bytes[direction], group.max.ios[direction]);
        group.slices[direction].trim(now, bytes, ios);
    }

    /// The number of ticks that a bio must wait in a group (`tg_may_dispatch`).
    fn wait(&mut self, now: i64, group: CgroupId, direction: usize, held: &HeldBio) -> i64 {
        let group = self.at(group);
        let (bytes, ios) = (group.max.bytes[direction], group.max.ios[direction]);
        if bytes.is_none() && ios.is_none() {
            return 0;
        }
        let empty = group.queued[direction].len == 0;
        let slice = &mut group.slices[direction];
        match slice.is_over(now) && empty {
            true => slice.restart(now, false),
            false => slice.extend(now + SLICE),
        }
        let elapsed = now - slice.start;
        let bytes_wait = match bytes {
            Some(limit) if !held.paid => wait_for_bytes(slice, elapsed, limit, &held.bio),
            _ => 0,
        };
        let ios_wait = ios.map_or(0, |limit| wait_for_ios(slice, elapsed, limit));
        let wait = bytes_wait.max(ios_wait);
        if wait > 0 {
            slice.extend(now + wait);
        }
        wait
    }

    /// Queues a bio in a group; `from` is the group itself or a child.
    fn add(&mut self, group: CgroupId, from: CgroupId, direction: usize, held: HeldBio) {
        let this = self.at(group);
        this.was_empty |= this.queued[direction].len == 0;
        this.queued[direction].push(from, held);
        let parent = this.parent;
        let pending = &mut self.at(parent).pending;
        if !pending.contains(&group) {
            pending.push(group);
        }
    }

    /// Updates the time at which a group's first bio may go (`tg_update_disptime`). Groups with
    /// equal times go in the order in which they were updated.
    fn update_dispatch_time(&mut self, now: i64, group: CgroupId) {
        let mut wait = i64::MAX;
        for direction in 0..2 {
            if let Some(first) = self.at(group).queued[direction].first() {
                wait = wait.min(self.wait(now, group, direction, &first));
            }
        }
        let this = self.at(group);
        this.dispatch_at = now.saturating_add(wait);
        this.was_empty = false;
        let parent = this.parent;
        let pending = &mut self.at(parent).pending;
        if let Some(at) = pending.iter().position(|&other| other == group) {
            pending.remove(at);
            pending.push(group);
        }
    }

    /// Sets a group's timer for the earliest of its children. Returns `false` if that one may go
    /// now and the timer is not forced (`throtl_schedule_next_dispatch`).
    fn schedule_next(&mut self, now: i64, parent: CgroupId, force: bool) -> bool {
        let Some(first) = self.first_below(parent) else {
            return true;
        };
        let at = self.at(first).dispatch_at;
        if !force && at <= now {
            return false;
        }
        let at = at.min(now + LATEST_SLICES * SLICE);
        // A kernel timer never runs early, so it runs one tick later.
        self.at(parent).timer = Some(at.max(now) + 1);
        true
    }

    fn first_below(&self, parent: CgroupId) -> Option<CgroupId> {
        let pending = self.groups[parent.0 as usize].pending.iter().copied();
        pending.min_by_key(|group| self.groups[group.0 as usize].dispatch_at)
    }

    /// Runs the expired timers (`throtl_pending_timer_fn`).
    pub fn timer(&mut self, now: Nanos) {
        let now = jiffies(now);
        for at in (0..self.groups.len()).rev() {
            let group = CgroupId(at as u16);
            if self.at(group).timer.take_if(|due| *due <= now).is_some() {
                self.dispatch_below(now, group);
            }
        }
    }

    /// Moves the bios that may go from the children of a group to it, and further up.
    fn dispatch_below(&mut self, now: i64, mut group: CgroupId) {
        loop {
            let mut dispatched = 0;
            loop {
                dispatched += self.select(now, group);
                if self.schedule_next(now, group, false) {
                    break;
                }
            }
            if dispatched == 0 {
                return;
            }
            if group == CgroupId::ROOT {
                return self.release(now);
            }
            if !self.at(group).was_empty {
                return;
            }
            self.update_dispatch_time(now, group);
            let parent = self.at(group).parent;
            if self.schedule_next(now, parent, false) {
                return;
            }
            group = parent;
        }
    }

    /// Gives all bios that reached the root to the worker, reads first.
    fn release(&mut self, now: i64) {
        for direction in 0..2 {
            while let Some(held) = self.at(CgroupId::ROOT).queued[direction].pop() {
                let waited = jiffy_start(now).saturating_sub(held.since);
                self.at(held.bio.cgroup).held.ns += waited.0;
                self.released.push_back(held.bio);
            }
        }
    }

    /// Dispatches from the children of a group whose time has come (`throtl_select_dispatch`).
    fn select(&mut self, now: i64, parent: CgroupId) -> usize {
        let mut dispatched = 0;
        while dispatched < QUANTUM {
            let Some(group) = self.first_below(parent) else {
                break;
            };
            if now < self.at(group).dispatch_at {
                break;
            }
            dispatched += self.dispatch(now, group);
            if self.at(group).has_bios() {
                self.update_dispatch_time(now, group);
            } else {
                self.at(parent).pending.retain(|&other| other != group);
            }
        }
        dispatched
    }

    /// Dispatches one turn of a group: up to six reads, then up to two writes
    /// (`throtl_dispatch_tg`).
    fn dispatch(&mut self, now: i64, group: CgroupId) -> usize {
        let mut dispatched = 0;
        for (direction, quantum) in GROUP_QUANTUM.into_iter().enumerate() {
            for _ in 0..quantum {
                let Some(first) = self.at(group).queued[direction].first() else {
                    break;
                };
                if self.wait(now, group, direction, &first) > 0 {
                    break;
                }
                self.dispatch_one(now, group, direction);
                dispatched += 1;
            }
        }
        dispatched
    }

    fn dispatch_one(&mut self, now: i64, group: CgroupId, direction: usize) {
        let Some(mut held) = self.at(group).queued[direction].pop() else {
            return;
        };
        self.charge(group, direction, &held);
        let parent = self.at(group).parent;
        if parent == CgroupId::ROOT {
            held.paid = true;
            self.at(parent).queued[direction].push(group, held);
        } else {
            self.add(parent, group, direction, held);
            let start = self.at(group).slices[direction].start;
            let slice = &mut self.at(parent).slices[direction];
            if slice.is_over(now) {
                // The parent's unused time in the old slice still counts.
                let start = start.max(slice.start);
                slice.restart(now, false);
                slice.start = start;
            }
        }
        self.trim(now, group, direction);
    }
}

/// The bytes charged for a bio; a discard is charged as one sector.
fn bytes_of(bio: &Bio) -> u64 {
    match bio.op {
        crate::bio::Op::Discard => SECTOR_SIZE,
        _ => bio.sectors as u64 * SECTOR_SIZE,
    }
}

/// The ticks to wait for the limit in bytes (`tg_within_bps_limit`).
fn wait_for_bytes(slice: &Slice, elapsed: i64, limit: u64, bio: &Bio) -> i64 {
    let rounded = round_up(elapsed.max(1));
    let after = slice.bytes.saturating_add(bytes_of(bio));
    let allowed = (allowed(limit, rounded) as i64).wrapping_add(slice.carried_bytes);
    if allowed > 0 && after <= allowed as u64 {
        return 0;
    }
    let over = (i128::from(after) - i128::from(allowed)).max(0) as u128;
    let ticks = over * HZ as u128 / limit.max(1) as u128;
    (ticks.min(i64::MAX as u128 / 4) as i64).max(1) + (rounded - elapsed)
}

/// The ticks to wait for the limit in I/Os (`tg_within_iops_limit`).
fn wait_for_ios(slice: &Slice, elapsed: i64, limit: u32) -> i64 {
    let rounded = round_up(elapsed + 1);
    let allowed = (allowed_ios(limit, rounded) as i32).wrapping_add(slice.carried_ios);
    if allowed > 0 && slice.ios < allowed as u32 {
        return 0;
    }
    (rounded - elapsed).max(HZ / i64::from(limit.max(1)) + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bio::Op;
    use crate::units::{JIFFY_NS, Sector};

    fn bio(group: u16, sectors: u32) -> Bio {
        Bio {
            cgroup: CgroupId(group),
            ..Bio::new(Op::Read, Sector(0), sectors)
        }
    }

    fn reads(bytes: u64) -> IoMax {
        IoMax {
            bytes: [Some(bytes), None],
            ..IoMax::default()
        }
    }

    fn at(tick: i64) -> Nanos {
        Nanos(tick as u64 * JIFFY_NS)
    }

    #[test]
    fn a_slice_is_trimmed_unless_neither_limit_allowed_anything() {
        let trimmed = |bytes, ios| {
            let mut slice = Slice::default();
            slice.restart(0, false);
            slice.extend(5 * SLICE);
            slice.trim(3 * SLICE, Some(bytes), Some(ios));
            slice.start
        };
        // In the three slices that are trimmed, 0.3 s, 2 a second allow nothing.
        assert_eq!(trimmed(1000, 1000), 3 * SLICE);
        assert_eq!(trimmed(1000, 2), 3 * SLICE);
        assert_eq!(trimmed(2, 1000), 3 * SLICE);
        assert_eq!(trimmed(2, 2), 0);
    }

    /// No limit in bytes counts as one that allowed nothing, so that few I/Os a second decide.
    #[test]
    fn a_slice_without_a_limit_in_bytes_is_trimmed_by_its_ios() {
        let trimmed = |ios| {
            let mut slice = Slice::default();
            slice.restart(0, false);
            slice.extend(5 * SLICE);
            slice.trim(SLICE, None, Some(ios));
            slice.start
        };
        assert_eq!(trimmed(25), SLICE);
        assert_eq!(trimmed(5), 0);
    }

    /// What a waiting group had left under its old limit counts under the new one.
    #[test]
    fn a_change_of_limits_carries_over_what_was_left() {
        let mut slice = Slice::default();
        slice.restart(0, false);
        slice.bytes = 1000;
        slice.ios = 40;
        slice.carry_over(HZ, Some(5000), Some(30));
        slice.restart(HZ, true);
        assert_eq!((slice.carried_bytes, slice.carried_ios), (4000, -10));
        let read = bio(1, 8);
        assert_eq!(wait_for_bytes(&slice, 0, 1000, &read), 0);
        assert!(wait_for_ios(&slice, 0, 30) > 0);
        slice.restart(2 * HZ, false);
        assert_eq!((slice.carried_bytes, slice.carried_ios), (0, 0));
        assert!(wait_for_bytes(&slice, 0, 1000, &read) > 0);
        assert_eq!(wait_for_ios(&slice, 0, 30), 0);
    }

    /// The number of bios of 64 KiB that pass in `ticks` while another is always ready.
    fn passed(throttle: &mut Throttle, group: u16, ticks: i64) -> usize {
        let mut passed = 0;
        let mut waiting = 0;
        for tick in 1000..1000 + ticks {
            throttle.timer(at(tick));
            while throttle.take_released().is_some() {
                waiting -= 1;
                passed += 1;
            }
            while waiting < 4 {
                match throttle.submit(at(tick), &bio(group, 128)) {
                    true => passed += 1,
                    false => waiting += 1,
                }
            }
        }
        passed
    }

    #[test]
    fn a_group_gets_what_its_limit_says() {
        let mut throttle = Throttle::default();
        throttle.set_max(at(1000), CgroupId(1), reads(6_553_600));
        let passed = passed(&mut throttle, 1, 10 * HZ);
        assert!((980..=1020).contains(&passed), "{passed} of 1000");
        assert!(throttle.held(CgroupId(1)).bios > 0);
        assert!(
            throttle.submit(at(2000), &bio(2, 8)),
            "another has no limit"
        );
    }

    #[test]
    fn the_tightest_group_above_decides() {
        let mut throttle = Throttle::default();
        throttle.set_parent(CgroupId(2), CgroupId(1));
        throttle.set_max(at(1000), CgroupId(1), reads(3_276_800));
        throttle.set_max(at(1000), CgroupId(2), reads(6_553_600));
        let passed = passed(&mut throttle, 2, 10 * HZ);
        assert!((480..=530).contains(&passed), "{passed} of 500");
    }

    #[test]
    fn what_the_kernel_refuses_is_refused() {
        let mut max = IoMax::default();
        assert_eq!(max.write("rbps=4096 wiops=7"), Ok(()));
        assert_eq!((max.bytes, max.ios), ([Some(4096), None], [None, Some(7)]));
        for (text, why) in [
            ("rbps", "NAME=VALUE"),
            ("rbps=0", "ERANGE"),
            ("wbps=x", "64 bits or max"),
            ("riops=1", "more than 1"),
            ("bps=5", "no limit"),
        ] {
            let message = max.write(text).unwrap_err();
            assert!(message.contains(why), "{text}: {message}");
        }
        assert_eq!(max.write("rbps=max"), Ok(()));
        assert_eq!(max.bytes[0], None);
    }

    #[test]
    fn ios_are_counted_too() {
        let mut throttle = Throttle::default();
        let max = IoMax {
            ios: [Some(100), None],
            ..IoMax::default()
        };
        throttle.set_max(at(1000), CgroupId(1), max);
        let passed = passed(&mut throttle, 1, 10 * HZ);
        assert!((980..=1020).contains(&passed), "{passed} of 1000");
    }

    /// A bio waits for the end of its slice, or until one more has its time if that is longer
    /// (`tg_within_iops_limit`).
    #[test]
    fn the_next_io_waits_for_the_slice_or_for_its_own_share_of_a_second() {
        for (limit, ios, elapsed, expected) in [
            // Ten in a slice of 25 ticks.
            (100, 9, 0, 0),
            (100, 10, 0, SLICE),
            (100, 10, 3, SLICE - 3),
            (100, 10, SLICE - 1, HZ / 100 + 1),
            (100, 10, SLICE, 0),
            (100, 20, SLICE, SLICE),
            // None in a slice, and one in two.
            (5, 0, 0, HZ / 5 + 1),
            (5, 0, 2 * SLICE - 1, 0),
            (5, 1, 2 * SLICE - 1, HZ / 5 + 1),
        ] {
            let slice = Slice {
                ios,
                ..Slice::default()
            };
            let found = wait_for_ios(&slice, elapsed, limit);
            assert_eq!(found, expected, "{ios} of {limit} after {elapsed}");
        }
    }

    /// A bio waits for as long as its excess takes at the limit, a tick at least, and for the rest
    /// of the slice. One without data goes at once only if something is allowed and no more was
    /// used (`tg_within_bps_limit`).
    #[test]
    fn the_next_bio_waits_for_the_bytes_beyond_what_the_slice_allows() {
        for (limit, used, sectors, elapsed, expected) in [
            // A sector in a slice of 25 ticks.
            (5_120, 0, 1, 0, 0),
            (5_120, 512, 1, 0, 25 + SLICE),
            (5_120, 512, 1, 3, 25 + SLICE - 3),
            (5_120, 512, 1, SLICE, 25),
            (5_120, 512, 1, SLICE + 1, 0),
            (5_120, 512, 0, 0, 0),
            // Eight bytes too many would have half a tick.
            (5_120, 520, 0, 0, 1 + SLICE),
            // Nothing in a slice, and a byte in five.
            (2, 0, 0, 0, 1 + SLICE),
            (2, 0, 0, SLICE, 1),
            (2, 0, 0, 5 * SLICE, 0),
        ] {
            let slice = Slice {
                bytes: used,
                ..Slice::default()
            };
            let found = wait_for_bytes(&slice, elapsed, limit, &bio(1, sectors));
            let case = (limit, used, sectors, elapsed);
            assert_eq!(found, expected, "{case:?}");
        }
    }

    /// Bios of one slice's allowance each, submitted together, go one by one.
    #[test]
    fn bios_over_the_limit_do_not_go_together() {
        let mut throttle = Throttle::default();
        let group = CgroupId(1);
        throttle.set_max(at(1000), group, reads(655_360));
        let mut gone: Vec<i64> = Vec::new();
        for _ in 0..12 {
            if throttle.submit(at(1000), &bio(1, 128)) {
                gone.push(1000);
            }
        }
        for tick in 1000..1000 + 15 * SLICE {
            throttle.timer(at(tick));
            while throttle.take_released().is_some() {
                gone.push(tick);
            }
        }
        assert_eq!(gone.len(), 12);
        // A slice's worth makes up for late timers.
        for (n, tick) in gone.iter().enumerate() {
            let slices = (tick - 1000) / SLICE;
            assert!((slices - 2..=slices + 1).contains(&(n as i64)), "{gone:?}");
        }
    }

    /// A slice lasts for as long as its first bio waits (`throtl_extend_slice`), but the timer runs
    /// earlier, because limits may change.
    #[test]
    fn a_long_wait_is_looked_at_again() {
        let mut throttle = Throttle::default();
        throttle.set_max(at(1000), CgroupId(1), reads(6_400));
        assert!(!throttle.submit(at(1000), &bio(1, 128)), "10.24 s");
        let ends = throttle.groups[1].slices[0].end;
        assert!((1000 + 10 * HZ..1000 + 11 * HZ).contains(&ends), "{ends}");
        assert_eq!(throttle.next_timer(), at(1000 + 8 * SLICE + 1));
        throttle.timer(at(1000 + 8 * SLICE + 1));
        assert_eq!(throttle.next_timer(), at(1000 + 16 * SLICE + 2));
        assert!(throttle.take_released().is_none());
        throttle.set_max(at(1300), CgroupId(1), reads(6_553_600));
        throttle.timer(throttle.next_timer());
        assert!(throttle.take_released().is_some());
    }

    /// A timer moves everything that may go, however much it is, and however many groups it
    /// comes from (`throtl_pending_timer_fn` goes on until nothing is left to dispatch now).
    #[test]
    fn all_bios_whose_time_has_come_go_with_one_timer() {
        for (groups, bios) in [(1, 100), (20, 5), (50, 1), (4, 8)] {
            let mut throttle = Throttle::default();
            for group in 1..=groups {
                throttle.set_max(at(1000), CgroupId(group), reads(2));
                for _ in 0..bios {
                    assert!(!throttle.submit(at(1000), &bio(group, 128)));
                }
            }
            for group in 1..=groups {
                throttle.set_max(at(1000), CgroupId(group), reads(1 << 40));
            }
            let timer = throttle.next_timer();
            assert_eq!(timer, at(1001), "a kernel timer never runs early");
            throttle.timer(timer);
            let released = core::iter::from_fn(|| throttle.take_released());
            assert_eq!(released.count(), usize::from(groups * bios));
            assert_eq!(throttle.next_timer(), Nanos::MAX);
        }
    }

    /// What a group did not use in past slices is not saved, but for one slice's worth beside the
    /// current one (`throtl_trim_slice`).
    #[test]
    fn an_unused_allowance_is_lost() {
        let mut throttle = Throttle::default();
        let group = CgroupId(1);
        // Ten bios of 64 KiB in a slice, of which two are used.
        throttle.set_max(at(1000), group, reads(6_553_600));
        let end = 1000 + 20 * SLICE;
        for tick in (1000..end).step_by(SLICE as usize / 2) {
            assert!(throttle.submit(at(tick), &bio(1, 128)));
        }
        let burst = (0..100).filter(|_| throttle.submit(at(end), &bio(1, 128)));
        let burst = burst.count();
        assert!((10..=30).contains(&burst), "{burst}");
    }

    /// Of groups whose bios go at the same time the worker gets one bio of each by turns, and reads
    /// before writes (`throtl_pop_queued`).
    #[test]
    fn groups_take_turns_at_the_root() {
        let mut throttle = Throttle::default();
        for group in 1..=3 {
            let bytes = [Some(2); 2];
            let max = IoMax {
                bytes,
                ..IoMax::default()
            };
            throttle.set_max(at(1000), CgroupId(group), max);
            for op in [Op::Write, Op::Read] {
                for _ in 0..8 {
                    let bio = Bio {
                        op,
                        ..bio(group, 128)
                    };
                    assert!(!throttle.submit(at(1000), &bio));
                }
            }
        }
        for group in 1..=3 {
            throttle.set_max(at(1000), CgroupId(group), IoMax::default());
        }
        throttle.timer(at(1001));
        let released = core::iter::from_fn(|| throttle.take_released());
        let released: Vec<(Op, u16)> = released.map(|bio| (bio.op, bio.cgroup.0)).collect();
        let turns = |op| [1, 2, 3].map(|group| (op, group)).repeat(8);
        assert_eq!(released, [turns(Op::Read), turns(Op::Write)].concat());
    }

    mod random {
        use proptest::prelude::*;

        use super::*;

        /// The most that a group may have used by a tick: what its limit allows until the end of
        /// the slice, and what one more slice allows, which makes up for late timers.
        fn most(limit: u64, ticks: i64) -> u64 {
            allowed(limit, round_up(ticks + 1) + SLICE)
        }

        proptest! {
            #![proptest_config(ProptestConfig::with_cases(64))]

            /// In a tree of groups every bio continues once, in the order of its group and
            /// direction, and no group's bios exceed its limits.
            #[test]
            fn limits_hold_and_nothing_is_lost_or_overtaken(
                parents in proptest::collection::vec(0u16..4, 4),
                limits in proptest::collection::vec(
                    (proptest::option::of(200_000u64..4_000_000), proptest::option::of(20u32..400)),
                    4,
                ),
                bios in proptest::collection::vec(
                    (0i64..12, 1u16..5, proptest::bool::ANY, 1u32..17),
                    1..120,
                ),
            ) {
                let mut throttle = Throttle::default();
                // A group's parent has a lower number than the group.
                let parents: Vec<u16> = (0..4).map(|at| parents[at as usize].min(at)).collect();
                for (group, &(bytes, ios)) in (1..).zip(&limits) {
                    throttle.set_parent(CgroupId(group), CgroupId(parents[group as usize - 1]));
                    let max = IoMax { bytes: [bytes; 2], ios: [ios; 2] };
                    throttle.set_max(at(1000), CgroupId(group), max);
                }
                let mut used = [[(0u64, 0u64); 2]; 5];
                // Numbers of the bios that have yet to continue, in the order in which they came.
                let mut waiting: Vec<(u64, Bio)> = Vec::new();
                let mut continues = |tick: i64, bio: &Bio| {
                    let direction = bio.op.is_write() as usize;
                    let mut group = bio.cgroup.0;
                    while group > 0 {
                        let (bytes, ios) = &mut used[group as usize][direction];
                        *bytes += bytes_of(bio);
                        *ios += 1;
                        let (max_bytes, max_ios) = limits[group as usize - 1];
                        let within = |used: u64, max: u64| used <= most(max, tick - 1000);
                        prop_assert!(max_bytes.is_none_or(|max| within(*bytes, max)), "{tick}");
                        prop_assert!(max_ios.is_none_or(|max| within(*ios, max.into())), "{tick}");
                        group = parents[group as usize - 1];
                    }
                    Ok(())
                };
                let mut now = 1000;
                let mut number = 0;
                let mut next = bios.into_iter();
                loop {
                    let came = next.next();
                    let until = came.map_or(i64::MAX, |(ticks, ..)| now + ticks);
                    while throttle.next_timer() <= at(until.min(1 << 40)) {
                        now = jiffies(throttle.next_timer());
                        throttle.timer(at(now));
                        while let Some(bio) = throttle.take_released() {
                            let is_one = |(_, other): &(u64, Bio)| {
                                other.cgroup == bio.cgroup && other.op == bio.op
                            };
                            let first = waiting.iter().position(is_one);
                            let (at, other) = waiting.remove(first.expect("it was held"));
                            prop_assert_eq!(other.sector, bio.sector, "{}", at);
                            continues(now, &bio)?;
                        }
                    }
                    let Some((_, group, is_write, pages)) = came else {
                        break;
                    };
                    now = until;
                    number += 1;
                    let bio = Bio {
                        op: if is_write { Op::Write } else { Op::Read },
                        sector: Sector(number),
                        ..bio(group, pages * 8)
                    };
                    match throttle.submit(at(now), &bio) {
                        true => continues(now, &bio)?,
                        false => waiting.push((number, bio)),
                    }
                }
                prop_assert!(waiting.is_empty(), "{:?}", waiting);
            }
        }
    }
}
