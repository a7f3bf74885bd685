//! Admission: which write is placed next.
//!
//! Writes are admitted in the order in which they come. A full cache stops all of
//! them. A plane without a free block stops only the slots that go to it: these are
//! *blocked*, while other slots and later writes are placed. (MQSim has a list of
//! writes for each plane without room too: `Write_transactions_for_overfull_planes`.)
//! So all planes that lack room are collected, folded or merged at once. Slots for
//! the same planes, and so for the same address, keep their order.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use blklab_blk::Op as HostOp;
use blklab_stats::{TooFull, Wait, Waits};

use super::{Controller, WriteCache, records};
use crate::CommandStatus;
use crate::ssd::flash::transaction::NONE;
use crate::ssd::ftl::Ftl;
use crate::ssd::ftl::partial::Span;
use crate::ssd::host_interface::{ActiveCommand, FetchCtx, NOT_STALLED};
use crate::ssd::slab::Slab;
use crate::ssd::spec::{Allocation, SsdSpec};

/// The outcome of placing a slot of a write.
enum Placement {
    Placed,
    /// Its planes have no free block; one is being freed.
    NeedsBlock,
    /// Its planes have no free block, and none can be freed.
    NoSpace,
    /// No slot of any write can be placed now.
    Stopped(Wait),
}

/// Whether a write ends when it is in the cache.
pub(super) fn is_cached(spec: &SsdSpec, fua: bool) -> bool {
    let cache = &spec.write_cache;
    cache.enabled && (!fua || cache.power_loss_protection)
}

/// The plane queue of a slot: there is one for each set of planes that a slot can go to.
fn plane_queue_of(spec: &SsdSpec, ftl: &Ftl, slot: u32) -> u32 {
    ftl.target(slot) / planes_per_queue(spec, ftl)
}

/// How many plane queues there are.
pub(super) fn plane_queues(spec: &SsdSpec, ftl: &Ftl) -> u32 {
    ftl.plane_count() / planes_per_queue(spec, ftl)
}

fn planes_per_queue(spec: &SsdSpec, ftl: &Ftl) -> u32 {
    match spec.ftl.allocation {
        Allocation::Static => ftl.row_of(0).len() as u32,
        _ => ftl.planes_per_range(),
    }
}

impl WriteCache {
    /// A write's data is in the controller.
    pub(crate) fn start_write(&mut self, ctx: &mut Controller, now_ns: u64, index: u32) {
        let (first, last) = ctx.host.slots_of(index);
        let command = &mut ctx.host.commands[index];
        command.next_slot = first;
        // One part stands for its own admission.
        command.parts = 1;
        command.stops_before = self.queue.push(index);
        ctx.media.writes_wait = true;
        if first == last {
            self.admit(ctx, now_ns);
        } else {
            ctx.media.flash.gather();
            self.admit(ctx, now_ns);
            ctx.media.flash.start_gathered(now_ns);
        }
        if ctx.host.arbitrates() {
            let mut fetch = FetchCtx {
                ftl: &ctx.media.ftl,
                events: ctx.media.flash.events(),
                stats: &mut ctx.media.stats,
                writes_waiting: self.queue.len(),
            };
            ctx.host.fetch_past_waiting_writes(&mut fetch, now_ns);
        }
    }

    /// Places waiting writes as long as there is room.
    pub(crate) fn admit(&mut self, ctx: &mut Controller, now_ns: u64) {
        // Blocked slots are older than all writes of the queue.
        if self.queue.has_blocked() && !self.place_blocked(ctx, now_ns) {
            return;
        }
        while let Some(index) = self.queue.first() {
            if !self.place(ctx, now_ns, index) {
                return;
            }
            let command = &mut ctx.host.commands[index];
            command.waits.add(self.queue.pop(command.stops_before));
            let has_blocked = command.blocked > 0;
            if has_blocked {
                self.queue.add_blocked();
            }
            ctx.media.writes_wait = self.queue.len() > 0;
            if !has_blocked {
                self.admitted(ctx, now_ns, index);
            }
        }
    }

    /// All slots of a write are placed.
    fn admitted(&mut self, ctx: &mut Controller, now_ns: u64, index: u32) {
        let command = &mut ctx.host.commands[index];
        let since_ns = core::mem::replace(&mut command.stalled_since_ns, NOT_STALLED);
        if since_ns != NOT_STALLED {
            ctx.media.stats.collection.count_stall(now_ns - since_ns);
        }
        let ActiveCommand {
            op,
            status,
            fua,
            bytes,
            ..
        } = *command;
        if op == HostOp::WriteZeroes {
            self.end_write_zeroes(ctx, now_ns, index);
        } else if status == CommandStatus::Ok && is_cached(&ctx.media.spec, fua) {
            // Its own part ends when the data is in DRAM.
            ctx.host
                .use_dram(ctx.media.flash.events(), now_ns, index, bytes);
        } else {
            if fua || !ctx.media.spec.write_cache.enabled {
                self.close_awaited(ctx, now_ns);
            }
            if fua && status == CommandStatus::Ok && records::pages_for(&ctx.media.spec, op) > 0 {
                return self.await_records(ctx, now_ns, index);
            }
            ctx.host.part_sent(ctx.media.flash.events(), now_ns, index);
        }
    }

    /// A write waits for a free block, or is throttled to the pace of collection.
    fn note_stall(&mut self, ctx: &mut Controller, now_ns: u64, index: u32) {
        let since_ns = &mut ctx.host.commands[index].stalled_since_ns;
        if *since_ns == NOT_STALLED {
            *since_ns = now_ns;
            ctx.media.stats.collection.writes_stalled += 1;
        }
    }

    /// The units that a command zeroes in part are in DRAM.
    fn end_write_zeroes(&mut self, ctx: &mut Controller, now_ns: u64, index: u32) {
        let command = &ctx.host.commands[index];
        match command.status == CommandStatus::Ok && !is_cached(&ctx.media.spec, command.fua) {
            true => self.start_flush(ctx, now_ns, index),
            false => ctx.host.finish(ctx.media.flash.events(), now_ns, index),
        }
    }

    /// Whether the cache takes no data, because it is full or was and has not
    /// been emptied far enough yet.
    fn cache_is_full(&mut self, ctx: &Controller) -> bool {
        let cache = &ctx.media.spec.write_cache;
        self.is_full = match self.is_full {
            false => self.dirty_bytes >= cache.size_bytes,
            true => self.dirty_bytes + cache.resume_bytes > cache.size_bytes,
        };
        self.is_full
    }

    /// Places the slots of the first write, or blocks them. Returns `false` if the write
    /// has to stay first.
    fn place(&mut self, ctx: &mut Controller, now_ns: u64, index: u32) -> bool {
        let unit = ctx.media.spec.ftl.map_unit_bytes as u64;
        let ActiveCommand {
            op,
            first_byte,
            bytes,
            next_slot: mut slot,
            status,
            ..
        } = ctx.host.commands[index];
        if status != CommandStatus::Ok {
            return true;
        }
        let end_byte = first_byte + bytes;
        while (slot as u64) * unit < end_byte {
            let slot_byte = slot as u64 * unit;
            if op == HostOp::WriteZeroes && slot_byte >= first_byte && slot_byte + unit <= end_byte
            {
                // This slot and those up to the last were discarded.
                slot = (end_byte / unit) as u32;
                continue;
            }
            let outcome = match self.queue.has_blocked() && self.waits_behind_others(ctx, slot) {
                true => Placement::NeedsBlock,
                false => self.try_slot(ctx, now_ns, index, slot),
            };
            match outcome {
                Placement::Placed => {}
                Placement::NeedsBlock if self.queue.all_wait() => {
                    return self.stop(ctx, index, slot, Wait::Collection);
                }
                Placement::NeedsBlock => self.block(ctx, index, slot),
                Placement::NoSpace => {
                    self.refuse_write(ctx, now_ns, index, slot);
                    break;
                }
                Placement::Stopped(wait) => return self.stop(ctx, index, slot, wait),
            }
            slot += 1;
        }
        ctx.host.commands[index].next_slot = slot;
        true
    }

    /// The first write waits at this slot.
    fn stop(&mut self, ctx: &mut Controller, index: u32, slot: u32, wait: Wait) -> bool {
        self.queue.stop(wait);
        ctx.host.commands[index].next_slot = slot;
        false
    }

    /// Places one slot of a write if it can. Under load the cache is full most of the
    /// time, so that check is inlined.
    #[inline(always)]
    fn try_slot(&mut self, ctx: &mut Controller, now_ns: u64, index: u32, slot: u32) -> Placement {
        if !self.cache_is_full(ctx) {
            return self.try_in_cache(ctx, now_ns, index, slot);
        }
        if !ctx.gc.has_programs_queued() {
            self.close_all(ctx, now_ns);
        }
        Placement::Stopped(Wait::Cache)
    }

    /// Places one slot of a write while the cache has room.
    #[inline(never)]
    fn try_in_cache(
        &mut self,
        ctx: &mut Controller,
        now_ns: u64,
        index: u32,
        slot: u32,
    ) -> Placement {
        let span = self.span_of(ctx, index, slot);
        if let Some(record) = ctx.media.ftl.joined_page(slot) {
            self.join_slot(ctx, now_ns, index, record, slot, span);
            return Placement::Placed;
        }
        if ctx.gc.is_behind_pace() {
            self.note_stall(ctx, now_ns, index);
            return Placement::Stopped(Wait::Collection);
        }
        let Some(place) = self.allocate_page(ctx, now_ns, slot) else {
            if !self.make_room(ctx, now_ns, slot) && !self.close_full_pages(ctx, now_ns) {
                return Placement::NoSpace;
            }
            self.note_stall(ctx, now_ns, index);
            return Placement::NeedsBlock;
        };
        self.place_slot(ctx, now_ns, index, place, slot, span);
        Placement::Placed
    }

    /// What a command covers of a slot.
    #[inline]
    fn span_of(&self, ctx: &Controller, index: u32, slot: u32) -> Span {
        let command = &ctx.host.commands[index];
        let unit = ctx.media.spec.ftl.map_unit_bytes as u64;
        let slot_byte = slot as u64 * unit;
        let start = slot_byte.max(command.first_byte);
        let stop = (slot_byte + unit).min(command.first_byte + command.bytes);
        Span::of_bytes(start - slot_byte, stop - slot_byte)
    }

    /// Whether other slots wait for the planes that this one can go to.
    #[inline(never)]
    fn waits_behind_others(&self, ctx: &Controller, slot: u32) -> bool {
        self.queue
            .has_waiting(plane_queue_of(&ctx.media.spec, &ctx.media.ftl, slot))
    }

    #[inline(never)]
    fn block(&mut self, ctx: &mut Controller, index: u32, slot: u32) {
        let queue = plane_queue_of(&ctx.media.spec, &ctx.media.ftl, slot);
        let command = &mut ctx.host.commands[index];
        command.blocked += 1;
        command.waits.note(Wait::Collection, true);
        let slot = BlockedSlot {
            command: index,
            slot,
        };
        self.queue.block(queue, slot);
    }

    /// Places blocked slots as far as there is room. Returns `false` if no slot of any
    /// write can be placed now.
    #[inline(never)]
    fn place_blocked(&mut self, ctx: &mut Controller, now_ns: u64) -> bool {
        let mut place = 0;
        while let Some(queue) = self.queue.queue_at(place) {
            while let Some(BlockedSlot { command, slot }) = self.queue.first_in(queue) {
                // A write that failed needs no further places.
                let outcome = match ctx.host.commands[command].status {
                    CommandStatus::Ok => self.try_slot(ctx, now_ns, command, slot),
                    _ => Placement::Placed,
                };
                match outcome {
                    Placement::Placed => {}
                    Placement::NoSpace => self.refuse_write(ctx, now_ns, command, slot),
                    Placement::NeedsBlock => break,
                    Placement::Stopped(wait) => {
                        ctx.host.commands[command].waits.note(wait, true);
                        return false;
                    }
                }
                self.queue.take_first(queue);
                self.unblocked(ctx, now_ns, command);
            }
            match self.queue.has_waiting(queue) {
                true => place += 1,
                false => self.queue.end_queue(place),
            }
        }
        true
    }

    /// A slot of a write is not blocked any more.
    fn unblocked(&mut self, ctx: &mut Controller, now_ns: u64, index: u32) {
        let command = &mut ctx.host.commands[index];
        command.blocked -= 1;
        if command.blocked == 0 && self.queue.first() != Some(index) {
            self.queue.remove_blocked();
            ctx.media.writes_wait = self.queue.len() > 0;
            self.admitted(ctx, now_ns, index);
        }
    }

    /// Fails a write at a slot that has no space.
    #[cold]
    pub(crate) fn refuse_write(
        &mut self,
        ctx: &mut Controller,
        now_ns: u64,
        index: u32,
        slot: u32,
    ) {
        ctx.host.commands[index].status = CommandStatus::NoSpace;
        match &mut ctx.media.stats.too_full {
            Some(too_full) => too_full.writes += 1,
            None => ctx.media.stats.too_full = Some(self.first_refused(ctx, now_ns, slot)),
        }
    }

    fn first_refused(&self, ctx: &Controller, now_ns: u64, slot: u32) -> TooFull {
        let plane = ctx.media.ftl.target(slot);
        let unit_sectors = ctx.media.spec.ftl.map_unit_bytes as u64 / 512;
        let blocks = ctx.media.ftl.plane_blocks(plane);
        let valid_slots: u64 = blocks.map(|block| ctx.media.ftl.valid(block) as u64).sum();
        TooFull {
            writes: 1,
            first_ns: now_ns,
            plane,
            data_blocks: ctx.media.ftl.data_blocks_per_plane(),
            block_sectors: ctx.media.ftl.slots_per_block() as u64 * unit_sectors,
            valid_sectors: valid_slots * unit_sectors,
            spare_blocks: ctx.media.spec.spare_blocks(),
        }
    }
}

/// A slot of a write that waits for a block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockedSlot {
    pub(crate) command: u32,
    pub(crate) slot: u32,
}

/// A slot in a plane queue, with the next one.
#[derive(Clone, Copy, Debug)]
struct QueuedSlot {
    slot: BlockedSlot,
    next: u32,
}

/// Slots that wait for the same planes.
#[derive(Clone, Copy, Debug)]
struct PlaneQueue {
    first: u32,
    last: u32,
}

impl PlaneQueue {
    const EMPTY: PlaneQueue = PlaneQueue {
        first: NONE,
        last: NONE,
    };
}

/// Writes that wait for room, in the order in which they came.
///
/// The first write waits for the cache or for collection, the others wait behind it.
/// Its *stops* are numbered, so that a write that leaves the queue knows what it has
/// waited for: every stop since it came. Slots that wait for a block of certain planes
/// are in the queue of these planes instead.
#[derive(Clone, Debug)]
pub(crate) struct AdmissionQueue {
    commands: VecDeque<u32>,
    /// Stops so far.
    stops: u64,
    /// What stops the first one now.
    stopped_by: Option<Wait>,
    /// The last stop for want of room in the cache, and of free blocks.
    last_for_cache: u64,
    last_for_collection: u64,
    slots: Slab<QueuedSlot>,
    plane_queues: Vec<PlaneQueue>,
    /// Plane queues that are not empty, the oldest first.
    used_queues: Vec<u32>,
    /// Writes that have left `commands` and wait for blocked slots.
    blocked: u32,
}

impl AdmissionQueue {
    /// An empty queue with this many plane queues.
    pub(crate) fn new(queues: u32) -> AdmissionQueue {
        AdmissionQueue {
            commands: VecDeque::with_capacity(64),
            stops: 0,
            stopped_by: None,
            last_for_cache: 0,
            last_for_collection: 0,
            slots: Slab::with_capacity(0),
            plane_queues: vec![PlaneQueue::EMPTY; queues as usize],
            used_queues: Vec::with_capacity(queues as usize),
            blocked: 0,
        }
    }

    /// Adds a write. Returns the number of stops before it.
    #[inline]
    pub(crate) fn push(&mut self, command: u32) -> u64 {
        self.commands.push_back(command);
        self.stops - self.stopped_by.is_some() as u64
    }

    #[inline]
    pub(crate) fn first(&self) -> Option<u32> {
        self.commands.front().copied()
    }

    /// How many writes wait.
    #[inline]
    pub(crate) fn len(&self) -> u32 {
        self.commands.len() as u32 + self.blocked
    }

    /// The first write cannot be placed for this reason.
    pub(crate) fn stop(&mut self, wait: Wait) {
        if self.stopped_by == Some(wait) {
            return;
        }
        self.stopped_by = Some(wait);
        self.stops += 1;
        match wait {
            Wait::Cache => self.last_for_cache = self.stops,
            _ => self.last_for_collection = self.stops,
        }
    }

    /// Removes the first write. Returns what it has waited for.
    #[inline]
    pub(crate) fn pop(&mut self, stops_before: u64) -> Waits {
        self.commands.pop_front();
        self.stopped_by = None;
        let mut waits = Waits::NONE;
        waits.note(Wait::Cache, self.last_for_cache > stops_before);
        waits.note(Wait::Collection, self.last_for_collection > stops_before);
        waits
    }

    /// The write that was removed has blocked slots.
    pub(crate) fn add_blocked(&mut self) {
        self.blocked += 1;
    }

    /// Such a write has no blocked slots any more.
    pub(crate) fn remove_blocked(&mut self) {
        self.blocked -= 1;
    }

    /// Whether any slot is blocked.
    #[inline]
    pub(crate) fn has_blocked(&self) -> bool {
        !self.used_queues.is_empty()
    }

    /// Whether slots wait in every plane queue.
    pub(crate) fn all_wait(&self) -> bool {
        self.used_queues.len() == self.plane_queues.len()
    }

    /// Whether slots wait in a plane queue.
    pub(crate) fn has_waiting(&self, queue: u32) -> bool {
        self.plane_queues[queue as usize].first != NONE
    }

    /// The plane queue at this place, from 0, of those that are not empty, oldest first.
    pub(crate) fn queue_at(&self, place: usize) -> Option<u32> {
        self.used_queues.get(place).copied()
    }

    /// The plane queue at this place has become empty.
    pub(crate) fn end_queue(&mut self, place: usize) {
        self.used_queues.remove(place);
    }

    /// Adds a slot to a plane queue.
    pub(crate) fn block(&mut self, queue: u32, slot: BlockedSlot) {
        let queued = QueuedSlot { slot, next: NONE };
        let index = self.slots.insert(queued);
        let ends = &mut self.plane_queues[queue as usize];
        match core::mem::replace(&mut ends.last, index) {
            NONE => {
                ends.first = index;
                self.used_queues.push(queue);
            }
            last => self.slots[last].next = index,
        }
    }

    /// The first slot of a plane queue.
    pub(crate) fn first_in(&self, queue: u32) -> Option<BlockedSlot> {
        match self.plane_queues[queue as usize].first {
            NONE => None,
            first => Some(self.slots[first].slot),
        }
    }

    /// Removes the first slot of a plane queue.
    pub(crate) fn take_first(&mut self, queue: u32) {
        let ends = &mut self.plane_queues[queue as usize];
        let first = ends.first;
        ends.first = self.slots[first].next;
        self.slots.remove(first);
        if ends.first == NONE {
            ends.last = NONE;
        }
    }

    /// All blocked slots, in no order.
    pub(crate) fn all_blocked(&self) -> impl Iterator<Item = BlockedSlot> {
        let firsts = self
            .used_queues
            .iter()
            .map(|queue| self.plane_queues[*queue as usize].first);
        firsts.flat_map(|first| {
            let next = |queued: &u32| Some(self.slots[*queued].next).filter(|n| *n != NONE);
            core::iter::successors(Some(first).filter(|f| *f != NONE), next)
                .map(|queued| self.slots[queued].slot)
        })
    }

    /// Removes all writes.
    pub(crate) fn clear(&mut self) {
        *self = AdmissionQueue::new(self.plane_queues.len() as u32);
    }
}
