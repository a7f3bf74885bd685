//! Which write gets its place next.
//!
//! Writes are admitted in the order in which they come. Lack of room in the cache
//! stops all of them. Lack of a block stops only what goes to the same planes: the
//! slots of a write that go there are *parked*, those that go elsewhere go on, and
//! so do the writes behind. (MQSim has a list of writes for each plane without
//! room as well: `Write_transactions_for_overfull_planes`.) So all planes that
//! lack room are collected, folded or merged at once. What goes to the same planes
//! keeps its order, and with it whatever goes to the same address.

use std::collections::VecDeque;

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

/// What became of a slot that was to get its place.
enum Try {
    Placed,
    /// Its planes lack a block, which is being freed.
    NeedsBlock,
    /// Nothing can be freed for it.
    NoSpace,
    /// Nobody gets a place now.
    Stopped(Wait),
}

/// Whether a write ends when it is in the cache.
pub(super) fn is_cached(spec: &SsdSpec, fua: bool) -> bool {
    let cache = &spec.write_cache;
    cache.enabled && (!fua || cache.power_loss_protection)
}

/// The number of the plane queue of a slot: one for the planes that it can go to.
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

    /// Gives waiting writes their places as long as there is room.
    pub(crate) fn admit(&mut self, ctx: &mut Controller, now_ns: u64) {
        // What is parked came before all that is still in the queue.
        if self.queue.has_parked() && !self.place_parked(ctx, now_ns) {
            return;
        }
        while let Some(index) = self.queue.first() {
            if !self.place(ctx, now_ns, index) {
                return;
            }
            let command = &mut ctx.host.commands[index];
            command.waits.add(self.queue.pop(command.stops_before));
            let has_parked = command.parked > 0;
            if has_parked {
                self.queue.leave_parked();
            }
            ctx.media.writes_wait = self.queue.len() > 0;
            if !has_parked {
                self.admitted(ctx, now_ns, index);
            }
        }
    }

    /// All slots of a write have their places.
    fn admitted(&mut self, ctx: &mut Controller, now_ns: u64, index: u32) {
        let command = &mut ctx.host.commands[index];
        let since_ns = std::mem::replace(&mut command.stalled_since_ns, NOT_STALLED);
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
            // Its admission is over when the data is in DRAM.
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

    /// A write waits for a free block, or for its pace.
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

    /// Gives the slots of the first write their places, or parks them; `false`
    /// where it has to stay first.
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
                // It was discarded, with all that follow it up to the last.
                slot = (end_byte / unit) as u32;
                continue;
            }
            let outcome = match self.queue.has_parked() && self.waits_behind_others(ctx, slot) {
                true => Try::NeedsBlock,
                false => self.try_slot(ctx, now_ns, index, slot),
            };
            match outcome {
                Try::Placed => {}
                Try::NeedsBlock if self.queue.all_wait() => {
                    return self.stop(ctx, index, slot, Wait::Collection);
                }
                Try::NeedsBlock => self.park(ctx, index, slot),
                Try::NoSpace => {
                    self.refuse_write(ctx, now_ns, index, slot);
                    break;
                }
                Try::Stopped(wait) => return self.stop(ctx, index, slot, wait),
            }
            slot += 1;
        }
        ctx.host.commands[index].next_slot = slot;
        true
    }

    /// The first write goes no further than to this slot for now.
    fn stop(&mut self, ctx: &mut Controller, index: u32, slot: u32, wait: Wait) -> bool {
        self.queue.stop(wait);
        ctx.host.commands[index].next_slot = slot;
        false
    }

    /// Gives one slot of a write its place, if there is one. Under load most are
    /// tried while the cache is full, so that is asked in place.
    #[inline(always)]
    fn try_slot(&mut self, ctx: &mut Controller, now_ns: u64, index: u32, slot: u32) -> Try {
        if !self.cache_is_full(ctx) {
            return self.try_in_cache(ctx, now_ns, index, slot);
        }
        if !ctx.gc.has_programs_queued() {
            self.close_all(ctx, now_ns);
        }
        Try::Stopped(Wait::Cache)
    }

    /// The same while the cache takes data.
    #[inline(never)]
    fn try_in_cache(&mut self, ctx: &mut Controller, now_ns: u64, index: u32, slot: u32) -> Try {
        let span = self.span_of(ctx, index, slot);
        if let Some(record) = ctx.media.ftl.joined_page(slot) {
            self.join_slot(ctx, now_ns, index, record, slot, span);
            return Try::Placed;
        }
        if ctx.gc.is_behind_pace() {
            self.note_stall(ctx, now_ns, index);
            return Try::Stopped(Wait::Collection);
        }
        let Some(place) = self.allocate_page(ctx, now_ns, slot) else {
            if !self.make_room(ctx, now_ns, slot) && !self.close_full_pages(ctx, now_ns) {
                return Try::NoSpace;
            }
            self.note_stall(ctx, now_ns, index);
            return Try::NeedsBlock;
        };
        self.place_slot(ctx, now_ns, index, place, slot, span);
        Try::Placed
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

    /// Whether others wait for the planes that a slot can go to.
    #[inline(never)]
    fn waits_behind_others(&self, ctx: &Controller, slot: u32) -> bool {
        self.queue
            .has_waiting(plane_queue_of(&ctx.media.spec, &ctx.media.ftl, slot))
    }

    #[inline(never)]
    fn park(&mut self, ctx: &mut Controller, index: u32, slot: u32) {
        let queue = plane_queue_of(&ctx.media.spec, &ctx.media.ftl, slot);
        let command = &mut ctx.host.commands[index];
        command.parked += 1;
        command.waits.note(Wait::Collection, true);
        let parked = Parked {
            command: index,
            slot,
        };
        self.queue.park(queue, parked);
    }

    /// Gives parked slots their places as far as there is room; `false` where
    /// nobody gets a place now.
    #[inline(never)]
    fn place_parked(&mut self, ctx: &mut Controller, now_ns: u64) -> bool {
        let mut place = 0;
        while let Some(queue) = self.queue.queue_at(place) {
            while let Some(Parked { command, slot }) = self.queue.first_in(queue) {
                // A write that failed needs no further places.
                let outcome = match ctx.host.commands[command].status {
                    CommandStatus::Ok => self.try_slot(ctx, now_ns, command, slot),
                    _ => Try::Placed,
                };
                match outcome {
                    Try::Placed => {}
                    Try::NoSpace => self.refuse_write(ctx, now_ns, command, slot),
                    Try::NeedsBlock => break,
                    Try::Stopped(wait) => {
                        ctx.host.commands[command].waits.note(wait, true);
                        return false;
                    }
                }
                self.queue.take_first(queue);
                self.unparked(ctx, now_ns, command);
            }
            match self.queue.has_waiting(queue) {
                true => place += 1,
                false => self.queue.end_queue(place),
            }
        }
        true
    }

    /// A slot of a write is parked no more.
    fn unparked(&mut self, ctx: &mut Controller, now_ns: u64, index: u32) {
        let command = &mut ctx.host.commands[index];
        command.parked -= 1;
        if command.parked == 0 && self.queue.first() != Some(index) {
            self.queue.end_parked();
            ctx.media.writes_wait = self.queue.len() > 0;
            self.admitted(ctx, now_ns, index);
        }
    }

    /// Ends a write at a slot that no plane takes.
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
pub(crate) struct Parked {
    pub(crate) command: u32,
    pub(crate) slot: u32,
}

/// A slot in a plane queue, with the next one.
#[derive(Clone, Copy, Debug)]
struct Link {
    parked: Parked,
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
/// The first of the queue is held up by want of room for anybody; the others wait
/// for whatever it waits for. So *stops* are numbered, and a write that leaves the
/// queue has waited for everything that stopped somebody after it came. What
/// waits for a block of certain planes is not in the queue but in these planes'
/// *queue*, slot by slot.
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
    links: Slab<Link>,
    plane_queues: Vec<PlaneQueue>,
    /// Those with somebody in them, the oldest first.
    used_queues: Vec<u32>,
    /// Writes that only parked slots keep waiting.
    parked: u32,
}

impl AdmissionQueue {
    /// Nobody waits, with this many plane queues.
    pub(crate) fn new(queues: u32) -> AdmissionQueue {
        AdmissionQueue {
            commands: VecDeque::with_capacity(64),
            stops: 0,
            stopped_by: None,
            last_for_cache: 0,
            last_for_collection: 0,
            links: Slab::with_capacity(0),
            plane_queues: vec![PlaneQueue::EMPTY; queues as usize],
            used_queues: Vec::with_capacity(queues as usize),
            parked: 0,
        }
    }

    /// A write joins; returns how many stops it has nothing to do with.
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
        self.commands.len() as u32 + self.parked
    }

    /// The first one cannot go on for want of something.
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

    /// The first one leaves the queue; returns what it has waited for there.
    #[inline]
    pub(crate) fn pop(&mut self, stops_before: u64) -> Waits {
        self.commands.pop_front();
        self.stopped_by = None;
        let mut waits = Waits::NONE;
        waits.note(Wait::Cache, self.last_for_cache > stops_before);
        waits.note(Wait::Collection, self.last_for_collection > stops_before);
        waits
    }

    /// One that has left the queue has slots parked.
    pub(crate) fn leave_parked(&mut self) {
        self.parked += 1;
    }

    /// Such a one has none any more.
    pub(crate) fn end_parked(&mut self) {
        self.parked -= 1;
    }

    /// Whether any slot is parked.
    #[inline]
    pub(crate) fn has_parked(&self) -> bool {
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

    /// The queue at this place, from 0, of those with somebody in it, oldest first.
    pub(crate) fn queue_at(&self, place: usize) -> Option<u32> {
        self.used_queues.get(place).copied()
    }

    /// That plane queue is empty.
    pub(crate) fn end_queue(&mut self, place: usize) {
        self.used_queues.remove(place);
    }

    /// A slot joins a plane queue.
    pub(crate) fn park(&mut self, queue: u32, parked: Parked) {
        let link = Link { parked, next: NONE };
        let index = self.links.insert(link);
        let ends = &mut self.plane_queues[queue as usize];
        match std::mem::replace(&mut ends.last, index) {
            NONE => {
                ends.first = index;
                self.used_queues.push(queue);
            }
            last => self.links[last].next = index,
        }
    }

    /// The first slot of a plane queue.
    pub(crate) fn first_in(&self, queue: u32) -> Option<Parked> {
        match self.plane_queues[queue as usize].first {
            NONE => None,
            first => Some(self.links[first].parked),
        }
    }

    /// It leaves.
    pub(crate) fn take_first(&mut self, queue: u32) {
        let ends = &mut self.plane_queues[queue as usize];
        let first = ends.first;
        ends.first = self.links[first].next;
        self.links.remove(first);
        if ends.first == NONE {
            ends.last = NONE;
        }
    }

    /// All parked slots, in no order.
    pub(crate) fn all_parked(&self) -> impl Iterator<Item = Parked> {
        let firsts = self
            .used_queues
            .iter()
            .map(|queue| self.plane_queues[*queue as usize].first);
        firsts.flat_map(|first| {
            let next = |link: &u32| Some(self.links[*link].next).filter(|n| *n != NONE);
            std::iter::successors(Some(first).filter(|f| *f != NONE), next)
                .map(|link| self.links[link].parked)
        })
    }

    /// Nobody waits any more.
    pub(crate) fn clear(&mut self) {
        *self = AdmissionQueue::new(self.plane_queues.len() as u32);
    }
}
