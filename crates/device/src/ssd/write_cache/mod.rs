//! The write cache: the host's data in DRAM until its page is programmed.
//!
//! A write gets its places as [`admission`] says, each in the open page of the
//! plane that [`allocation`] chooses. What flush and force-unit-access make of
//! open pages is in [`flush`], and what the firmware writes down for them in
//! [`records`].

mod admission;
mod allocation;
mod flush;
mod records;

use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;

use blklab_blk::Op as HostOp;
use blklab_stats::Wait;

use crate::ssd::flash::transaction::NONE;
use crate::ssd::ftl::cached_map::MapWaiter;
use crate::ssd::ftl::partial::Span;
use crate::ssd::ftl::{Ftl, Located, PageRecord, Stream};
use crate::ssd::gc::{Collector, Media};
use crate::ssd::host_interface::HostInterface;
use crate::ssd::read_cache::Reads;
use crate::ssd::slab::Slab;
use crate::ssd::spec::SsdSpec;
use admission::AdmissionQueue;
use allocation::Cursor;
use flush::{Epochs, Waiter};
use records::Records;

/// What is below the write cache.
#[derive(Clone, Debug)]
pub(crate) struct Controller {
    pub(crate) host: HostInterface,
    pub(crate) reads: Reads,
    pub(crate) gc: Collector,
    pub(crate) media: Media,
}

impl Controller {
    /// A write has given a slot its place; `rest` is where it was before.
    #[cfg(test)]
    fn shadow_write(&mut self, index: u32, slot: u32, record: u32, rest: Located) {
        let command = &self.host.commands[index];
        self.media.ftl.shadow_write(command, slot, record, rest);
    }
}

/// The cache.
#[derive(Clone, Debug)]
pub(crate) struct WriteCache {
    /// Writes that wait for room.
    queue: AdmissionQueue,
    /// Dynamic allocation, range by range.
    cursors: Vec<Cursor>,
    /// Data of the host's in DRAM that is not on the flash yet.
    dirty_bytes: u64,
    /// It was full and is being emptied.
    is_full: bool,
    epochs: Epochs,
    /// Commands that wait for the program of a page.
    waiters: Slab<Waiter>,
    /// There were discards since the log of them was last programmed.
    log_is_dirty: bool,
    records: Records,
}

impl WriteCache {
    pub(crate) fn new(spec: &SsdSpec, ftl: &Ftl) -> WriteCache {
        WriteCache {
            queue: AdmissionQueue::new(admission::plane_queues(spec, ftl)),
            cursors: vec![Cursor::FIRST; spec.geometry.channels as usize],
            dirty_bytes: 0,
            is_full: false,
            epochs: Epochs::new(),
            waiters: Slab::with_capacity(0),
            log_is_dirty: false,
            records: Records::default(),
        }
    }

    /// How many writes wait for room.
    #[inline]
    pub(crate) fn waiting(&self) -> u32 {
        self.queue.len()
    }

    /// Whether slots of writes wait for a block.
    #[inline]
    pub(crate) fn has_blocked(&self) -> bool {
        self.queue.has_blocked()
    }

    /// Slots whose data in DRAM nobody was promised: those of writes under way,
    /// unless such a write took the place of what was in DRAM before.
    pub(crate) fn unanswered_slots(&self, spec: &SsdSpec, host: &HostInterface) -> BTreeSet<u32> {
        let unit = spec.ftl.map_unit_bytes as u64;
        let blocked = self.queue.all_blocked();
        let blocked: BTreeSet<(u32, u32)> = blocked.map(|p| (p.command, p.slot)).collect();
        let under_way = host.commands.indices().into_iter();
        let is_unanswered = |index: &u32| {
            let command = &host.commands[*index];
            !command.rewrites && matches!(command.op, HostOp::Write | HostOp::WriteZeroes)
        };
        under_way
            .filter(is_unanswered)
            .flat_map(|index| {
                let command = &host.commands[index];
                // No further than it has come.
                let slots = (command.first_byte / unit) as u32..command.next_slot;
                slots.map(move |slot| (index, slot))
            })
            .filter(|slot| !blocked.contains(slot))
            .map(|(_, slot)| slot)
            .collect()
    }

    /// The power is gone, and with it all that was under way.
    pub(crate) fn power_off(&mut self) {
        self.queue.clear();
        self.cursors.fill(Cursor::FIRST);
        self.dirty_bytes = 0;
        self.epochs = Epochs::new();
        self.waiters.clear();
        self.log_is_dirty = false;
        self.records = Records::default();
    }

    /// Gives one slot its place.
    pub(crate) fn place_slot(
        &mut self,
        ctx: &mut Controller,
        now_ns: u64,
        index: u32,
        (plane, stream): (u32, Stream),
        slot: u32,
        span: Span,
    ) {
        let is_whole = span.bytes() == ctx.media.spec.ftl.map_unit_bytes;
        let rest = match is_whole {
            true => Located::Nowhere,
            false => ctx.media.ftl.locate(slot),
        };
        #[cfg(test)]
        let whole_rest = ctx.media.ftl.locate(slot);
        let epoch = self.epochs.now();
        let before = ctx.media.ftl.filling(plane, stream);
        let slots_before = before.map_or(0, |record| ctx.media.ftl.record(record).slots);
        let rewritten = ctx.media.ftl.rewritten_in_dram();
        let record = ctx.media.ftl.write(plane, slot, stream, epoch);
        if ctx.media.ftl.rewritten_in_dram() != rewritten {
            ctx.host.commands[index].rewrites = true;
        }
        if before != Some(record) {
            self.epochs.begin_page();
        }
        #[cfg(test)]
        ctx.shadow_write(index, slot, record, whole_rest);
        let mut new_bytes = 0;
        if ctx.media.ftl.record(record).slots > slots_before {
            new_bytes = span.bytes();
            ctx.gc.spend_credit();
            if !is_whole {
                ctx.media.ftl.begin_partial(record, slot, span, rest);
            }
            if let Located::Buffered(at) = rest {
                ctx.media.ftl.follow(at, record);
            }
        }
        self.slot_written(ctx, now_ns, index, slot, record, (span, new_bytes));
    }

    /// Puts what a command writes of one slot to what is in an open page of it.
    #[inline(never)]
    pub(crate) fn join_slot(
        &mut self,
        ctx: &mut Controller,
        now_ns: u64,
        index: u32,
        record: u32,
        slot: u32,
        span: Span,
    ) {
        ctx.host.commands[index].rewrites = true;
        #[cfg(test)]
        ctx.shadow_write(index, slot, record, ctx.media.ftl.locate(slot));
        let new_bytes = ctx.media.ftl.join(record, slot, span);
        self.slot_written(ctx, now_ns, index, slot, record, (span, new_bytes));
    }

    /// What a command writes of one slot is in a page, `new_bytes` of which the
    /// host had not written there before.
    #[inline(always)]
    fn slot_written(
        &mut self,
        ctx: &mut Controller,
        now_ns: u64,
        index: u32,
        slot: u32,
        record: u32,
        (span, new_bytes): (Span, u32),
    ) {
        ctx.reads.remove(slot);
        self.records.changed();
        let page = ctx.media.ftl.record_mut(record);
        page.dirty_bytes += new_bytes;
        self.dirty_bytes += new_bytes as u64;
        ctx.media.stats.host_sectors_absorbed += (span.bytes() - new_bytes) as u64 / 512;
        if ctx.media.spec.slc_cache.is_some() {
            ctx.media
                .stats
                .slc
                .count_write(page.stream == Stream::Slc, new_bytes as u64 / 512);
        }
        let mut fetches = 0;
        if ctx.media.ftl.has_cached_map() {
            let waiter = MapWaiter::Record(record);
            fetches = (ctx.media.ftl).change_entry(
                &mut ctx.media.flash,
                &mut ctx.media.stats,
                now_ns,
                slot,
                waiter,
            );
            ctx.media.ftl.record_mut(record).reads += fetches;
        }
        let command = &ctx.host.commands[index];
        ctx.media.flash.note_writer(record, command.number);
        if command.op == HostOp::Write && !admission::is_cached(&ctx.media.spec, command.fua) {
            let command = &mut ctx.host.commands[index];
            command.waits.note(Wait::Map, fetches > 0);
            self.await_page(ctx, record, index);
        }
        if ctx.media.ftl.is_full(record) && !ctx.media.ftl.stays_open(record) {
            ctx.gc.program(&mut ctx.media, now_ns, record);
        }
    }

    /// A page of the host's is on the flash.
    pub(crate) fn program_done(&mut self, ctx: &mut Controller, now_ns: u64, record: u32) {
        let plane = ctx.media.ftl.record(record).plane;
        ctx.gc.host_page_programmed();
        self.note_program_waits(ctx, record);
        if !ctx.media.ftl.completes_program(record) {
            // Its data is where the array takes it from, with the rest.
            return;
        }
        self.pages_durable(ctx, now_ns, record);
        if ctx.media.ftl.has_logs() {
            ctx.gc.continue_merge(&mut ctx.media, now_ns, plane);
        }
        self.admit(ctx, now_ns);
    }

    /// Whoever waits for a page has waited for what its program waited for.
    fn note_program_waits(&mut self, ctx: &mut Controller, record: u32) {
        let PageRecord { op, waiters, .. } = *ctx.media.ftl.record(record);
        let mut waiter = waiters;
        while waiter != NONE {
            let Waiter { command, next } = self.waiters[waiter];
            let waits = ctx.media.flash.waiting(op).waits;
            ctx.host.commands[command].waits.add(waits);
            waiter = next;
        }
    }

    /// A page of the host's is on the flash, with all that was programmed at
    /// once, in their order.
    fn pages_durable(&mut self, ctx: &mut Controller, now_ns: u64, record: u32) {
        let before = ctx.media.ftl.record(record).before;
        if before != NONE {
            self.pages_durable(ctx, now_ns, before);
        }
        self.page_durable(ctx, now_ns, record);
    }

    fn page_durable(&mut self, ctx: &mut Controller, now_ns: u64, record: u32) {
        let PageRecord {
            dirty_bytes,
            stream,
            epoch,
            waiters: mut waiter,
            ..
        } = *ctx.media.ftl.record(record);
        #[cfg(test)]
        ctx.media.ftl.shadow_programmed(record);
        ctx.media.ftl.programmed(record);
        if stream == Stream::Slc {
            ctx.gc.schedule_idle_check(&mut ctx.media, now_ns);
        }
        self.dirty_bytes -= dirty_bytes as u64;
        ctx.media.stats.host_sectors_programmed += dirty_bytes as u64 / 512;
        while waiter != NONE {
            let Waiter { command, next } = self.waiters[waiter];
            self.waiters.remove(waiter);
            self.part_durable(ctx, now_ns, command);
            waiter = next;
        }
        self.epoch_page_done(ctx, now_ns, epoch);
    }

    pub(crate) fn start_discard(&mut self, ctx: &mut Controller, now_ns: u64, index: u32) {
        // Map units that are covered in part keep their data.
        let fetches = self.discard_whole_units(ctx, now_ns, index);
        ctx.host.commands[index].parts = fetches;
        if fetches == 0 {
            ctx.host.finish(ctx.media.flash.events(), now_ns, index);
        }
    }

    /// Discarded units read as zeros; those covered in part are written.
    pub(crate) fn start_write_zeroes(&mut self, ctx: &mut Controller, now_ns: u64, index: u32) {
        let fetches = self.discard_whole_units(ctx, now_ns, index);
        ctx.host.commands[index].parts = fetches;
        if fetches == 0 {
            self.start_write(ctx, now_ns, index);
        }
    }

    /// Returns how many pages of the map the command has to wait for.
    fn discard_whole_units(&mut self, ctx: &mut Controller, now_ns: u64, index: u32) -> u32 {
        let command = &ctx.host.commands[index];
        let unit = ctx.media.spec.ftl.map_unit_bytes as u64;
        let start = command.first_byte.div_ceil(unit);
        let end = (command.first_byte + command.bytes) / unit;
        if start >= end {
            return 0;
        }
        ctx.media.ftl.discard_partial(start as u32, end);
        ctx.media.ftl.discard(start as u32, end);
        self.log_is_dirty = true;
        self.records.changed();
        ctx.reads.remove_range(start as u32, end);
        match ctx.media.ftl.cached_map() {
            Some(map) => map.discard(
                &mut ctx.media.flash,
                &mut ctx.media.stats,
                now_ns,
                index,
                (start, end),
            ),
            None => 0,
        }
    }
}
