//! Allocation of blocks near a goal, with reservation windows
//! (Linux 6.12's `fs/ext2/balloc.c`).

use std::collections::BTreeMap;

use crate::buffer::{Buffer, Buffers};
use crate::error::FsError;
use crate::file_system::{Caller, Ino};

use super::mode;
use super::superblock::{Geometry, at};
use super::{Ext2, bitmap};

/// Blocks of a file's first window (`EXT2_DEFAULT_RESERVE_BLOCKS`).
const RESERVE_BLOCKS: u32 = 8;
/// Blocks of the largest window (`EXT2_MAX_RESERVE_BLOCKS`).
const RESERVE_BLOCKS_MAX: u32 = 1027;

/// A file's reservation: other files do not allocate in its window as long as there are
/// blocks elsewhere. It exists only in memory (`struct ext2_reserve_window_node`).
#[derive(Clone, Copy, Debug)]
pub(super) struct Reservation {
    /// First and last block of the window.
    window: Option<(u32, u32)>,
    /// The length of the next window.
    goal_blocks: u32,
    /// Blocks that were allocated from this window.
    hits: u32,
}

impl Default for Reservation {
    fn default() -> Reservation {
        Reservation {
            window: None,
            goal_blocks: RESERVE_BLOCKS,
            hits: 0,
        }
    }
}

/// All windows: last block by first block.
pub(super) type Windows = BTreeMap<u32, u32>;

/// A group to allocate blocks in.
struct Group<'a> {
    bitmap: &'a Buffer,
    first: u32,
    last: u32,
}

impl Group<'_> {
    /// Allocates up to `count` blocks in a row: at the goal or at the next free block, and
    /// inside the window if there is one (`ext2_try_to_allocate`). Blocks are counted from
    /// the group's first.
    fn take(
        &self,
        goal: Option<u32>,
        count: u32,
        window: Option<(u32, u32)>,
    ) -> Option<(u32, u32)> {
        let mut bits = self.bitmap.bytes_mut();
        let all = self.last - self.first + 1;
        let (start, end) = match window {
            Some((from, to)) => (
                from.saturating_sub(self.first),
                (to.saturating_add(1) - self.first).min(all),
            ),
            None => (0, all),
        };
        let goal = goal.filter(|goal| (start..end).contains(goal));
        let found = match goal {
            Some(goal) => bitmap::next_zero(&bits, goal, end)?,
            None => {
                let mut bit = bitmap::next_usable(&bits, start, end)?;
                let lowest = bit.saturating_sub(7).max(start);
                while window.is_none() && bit > lowest && !bitmap::test(&bits, bit - 1) {
                    bit -= 1;
                }
                bit
            }
        };
        let mut taken = 0;
        while taken < count && found + taken < end && bitmap::set(&mut bits, found + taken) {
            taken += 1;
        }
        Some((found, taken))
    }
}

/// Whether a window covers a goal, which is counted from the group's first block
/// (`goal_in_my_reservation`).
fn is_in_window(window: (u32, u32), goal: Option<u32>, group: &Group<'_>) -> bool {
    let (start, end) = window;
    let is_in_group = start <= group.last && end >= group.first;
    let goal = goal.map(|goal| goal + group.first);
    is_in_group && goal.is_none_or(|goal| (start..=end).contains(&goal))
}

impl Reservation {
    /// Drops the window (`ext2_discard_reservation`).
    pub(super) fn discard(&mut self, windows: &mut Windows) {
        if let Some((start, _)) = self.window.take() {
            windows.remove(&start);
        }
    }

    /// Allocates a new window from the goal on that has a free block. Whether there is one
    /// (`alloc_new_reservation`).
    fn renew(&mut self, windows: &mut Windows, goal: Option<u32>, group: &Group<'_>) -> bool {
        let mut start = group.first + goal.unwrap_or(0);
        if let Some((first, last)) = self.window {
            if first <= group.last && last > group.last && start >= first {
                // The window reaches into the next group, where it may still be used.
                return false;
            }
            if self.hits > (last - first).div_ceil(2) {
                self.goal_blocks = (self.goal_blocks * 2).min(RESERVE_BLOCKS_MAX);
            }
        }
        loop {
            let Some(from) = self.next_gap(windows, start, group.last) else {
                self.discard(windows);
                return false;
            };
            self.discard(windows);
            let to = from.saturating_add(self.goal_blocks - 1);
            self.window = Some((from, to));
            self.hits = 0;
            windows.insert(from, to);
            let all = group.last - group.first + 1;
            let bits = group.bitmap.bytes();
            let Some(free) = bitmap::next_zero(&bits, from - group.first, all) else {
                drop(bits);
                self.discard(windows);
                return false;
            };
            if group.first + free <= to {
                return true;
            }
            start = group.first + free;
        }
    }

    /// The first block from `start` to `last` that has room for a window before the next one
    /// (`find_next_reservable_window`).
    fn next_gap(&self, windows: &Windows, start: u32, last: u32) -> Option<u32> {
        let mut from = start;
        if let Some((_, end)) = windows.range(..=start).next_back() {
            from = from.max(end.saturating_add(1));
        }
        for (&first, &end) in windows.range(start.saturating_add(1)..) {
            if from > last || from.saturating_add(self.goal_blocks) <= first {
                break;
            }
            from = from.max(end.saturating_add(1));
        }
        (from <= last).then_some(from)
    }

    /// Extends the window, up to the next one (`try_to_extend_reservation`).
    fn extend(&mut self, windows: &mut Windows, blocks: u32) {
        let Some((start, end)) = self.window else {
            return;
        };
        let next = windows.range(start.saturating_add(1)..).next();
        let room = next.map_or(u32::MAX, |(&first, _)| first.saturating_sub(1));
        let end = end.saturating_add(blocks).min(room);
        self.window = Some((start, end));
        windows.insert(start, end);
    }

    /// Allocates from the window, or from a new one if this one does not cover the goal or
    /// has no free block (`ext2_try_to_allocate_with_rsv`).
    fn take(
        &mut self,
        windows: &mut Windows,
        group: &Group<'_>,
        goal: Option<u32>,
        count: u32,
    ) -> Option<(u32, u32)> {
        let mut goal = goal;
        let mut failed = false;
        loop {
            match self.window {
                Some(window) if !failed && is_in_window(window, goal, group) => {
                    let left = goal.map(|goal| window.1 - (goal + group.first) + 1);
                    if let Some(left) = left.filter(|&left| left < count) {
                        self.extend(windows, count - left);
                    }
                }
                _ => {
                    self.goal_blocks = self.goal_blocks.max(count.min(RESERVE_BLOCKS_MAX));
                    if !self.renew(windows, goal, group) {
                        return None;
                    }
                    goal = goal.filter(|&goal| {
                        let window = self.window;
                        window.is_some_and(|window| is_in_window(window, Some(goal), group))
                    });
                }
            }
            if let Some((bit, taken)) = group.take(goal, count, self.window) {
                self.hits += taken;
                return Some((bit, taken));
            }
            failed = true;
        }
    }
}

impl<D: Buffers> Ext2<D> {
    /// A group's block bitmap, which is checked when it is read first
    /// (`read_block_bitmap`).
    async fn block_bitmap(&self, group: u32) -> Result<Buffer, FsError> {
        let known = self.block_bitmaps.borrow()[group as usize].clone();
        if let Some(known) = known.filter(|known| self.device.is_current(known)) {
            return Ok(known);
        }
        let descriptor = self.descriptor(group);
        let buffer = self.device.bread(descriptor.block_bitmap().into()).await?;
        descriptor.check_block_bitmap(&self.geometry, group, &buffer)?;
        if self.device.keeps_buffers() {
            self.block_bitmaps.borrow_mut()[group as usize] = Some(buffer.clone());
        }
        Ok(buffer)
    }

    /// Whether the caller may allocate a block: the last ones are reserved for root and for
    /// the user and group in the superblock (`ext2_has_free_blocks`).
    fn has_free_blocks(&self, caller: &Caller) -> bool {
        let at = |field| self.superblock_byte(field);
        let reserved = self.superblock.u32_at(at(at::RESERVED_BLOCKS_COUNT));
        let reserved_gid = self.superblock.u16_at(at(at::RESERVED_GID));
        let is_entitled = caller.uid == 0
            || caller.uid == u32::from(self.superblock.u16_at(at(at::RESERVED_UID)))
            || (reserved_gid != 0 && caller.gid == u32::from(reserved_gid));
        let free = self.state.borrow().free_blocks;
        free > if is_entitled { 0 } else { reserved.into() }
    }

    /// Allocates up to `count` blocks in a row, at the goal or after it (`ext2_new_blocks`).
    /// Returns the first one and their number.
    pub(super) async fn new_blocks(
        &self,
        ino: Ino,
        goal: u32,
        count: u32,
        caller: &Caller,
    ) -> Result<(u32, u32), FsError> {
        if !self.has_free_blocks(caller) {
            return Err(FsError::NoSpace);
        }
        let geometry = self.geometry;
        let is_inside = goal >= geometry.first_data_block && goal < geometry.blocks;
        let goal = if is_inside {
            goal
        } else {
            geometry.first_data_block
        };
        let (goal_group, goal_bit) = geometry.place(goal);
        let (is_regular, mut window_blocks) = {
            let state = self.state.borrow();
            let inode = &state.inodes[&ino];
            let reservation = &inode.reservation;
            let is_short = u32::from(self.descriptor(goal_group).free_blocks())
                < reservation.goal_blocks
                && reservation.window.is_none();
            (
                inode.is(mode::REGULAR) && !is_short,
                reservation.goal_blocks,
            )
        };
        let mut has_window = is_regular && self.options.reservation;
        loop {
            for n in 0..=geometry.groups() {
                let group = (goal_group + n) % geometry.groups();
                let free = u32::from(self.descriptor(group).free_blocks());
                let needed = if n == 0 || !has_window {
                    0
                } else {
                    window_blocks / 2
                };
                if free <= needed {
                    continue;
                }
                let goal = (n == 0).then_some(goal_bit);
                let found = self.take_in_group(ino, group, goal, count, has_window);
                if let Some(found) = found.await? {
                    return Ok(found);
                }
            }
            if !has_window {
                return Err(FsError::NoSpace);
            }
            // What is left may be in the windows of other files.
            has_window = false;
            window_blocks = 0;
        }
    }

    /// Allocates in one group, if that has a free block. Returns the first block and the
    /// number of blocks.
    async fn take_in_group(
        &self,
        ino: Ino,
        group: u32,
        goal: Option<u32>,
        count: u32,
        has_window: bool,
    ) -> Result<Option<(u32, u32)>, FsError> {
        let geometry = &self.geometry;
        let buffer = self.block_bitmap(group).await?;
        let first = geometry.group_first_block(group);
        let place = Group {
            bitmap: &buffer,
            first,
            last: first + geometry.group_blocks(group) - 1,
        };
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        let taken = match state.inodes.get_mut(&ino) {
            Some(inode) if has_window => {
                inode
                    .reservation
                    .take(&mut state.windows, &place, goal, count)
            }
            _ => place.take(goal, count, None),
        };
        let Some((bit, taken)) = taken else {
            return Ok(None);
        };
        let block = first + bit;
        let descriptor = self.descriptor(group);
        if descriptor.is_system_zone(geometry, block, taken) {
            let what = "the block bitmap says that a block of the group's own structures is free";
            return Err(buffer.corrupt(bit as usize / 8, what, block));
        }
        descriptor.add_free_blocks(-(taken as i32));
        state.free_blocks = state.free_blocks.saturating_sub(taken.into());
        self.device.mark_dirty(descriptor.buffer(), None);
        self.device.mark_dirty(&buffer, None);
        Ok(Some((block, taken)))
    }

    /// Frees blocks that follow each other (`ext2_free_blocks`).
    pub(super) async fn free_blocks(&self, block: u32, count: u32) -> Result<(), FsError> {
        let geometry: &Geometry = &self.geometry;
        self.device.forget(block.into(), count.into());
        let (mut block, mut left) = (block, count);
        while left > 0 {
            let (group, bit) = geometry.place(block);
            let here = left.min(geometry.group_blocks(group) - bit);
            let buffer = self.block_bitmap(group).await?;
            let descriptor = self.descriptor(group);
            if descriptor.is_system_zone(geometry, block, here) {
                let what = "a file has a block of the file system's own structures";
                return Err(buffer.corrupt(bit as usize / 8, what, block));
            }
            let mut bits = buffer.bytes_mut();
            let twice = (bit..bit + here).find(|&bit| !bitmap::clear(&mut bits, bit));
            drop(bits);
            let freed = twice.map_or(here, |twice| twice - bit);
            descriptor.add_free_blocks(freed as i32);
            self.state.borrow_mut().free_blocks += u64::from(freed);
            self.device.mark_dirty(descriptor.buffer(), None);
            self.device.mark_dirty(&buffer, None);
            if let Some(twice) = twice {
                let what = "a block that files have is marked free, or is in two files";
                return Err(buffer.corrupt(twice as usize / 8, what, block + freed));
            }
            block += here;
            left -= here;
        }
        Ok(())
    }
}
