//! Reads: from map entries to transactions on the flash, and back to the host.

use blklab_stats::Wait;

use super::{ReadCtx, Reads};
use crate::ssd::flash::codewords::PageRead;
use crate::ssd::flash::transaction::{Operation, Source};
use crate::ssd::ftl::Located;
use crate::ssd::ftl::cached_map::MapWaiter;
use crate::ssd::host_interface::ActiveCommand;

/// What a read wants of one page, in bytes.
#[derive(Clone, Copy, Debug)]
struct PartBytes {
    /// On the channel: whole codewords.
    channel: u64,
    /// On the link: what the host asked for.
    host: u64,
}

/// Where a slot's data comes from.
enum SlotSource {
    /// This physical slot.
    Flash(u32),
    Dram,
    /// Nobody wrote it.
    Zeros,
}

/// Slots of a read that lie side by side in one page.
#[derive(Clone, Copy, Debug, Default)]
struct SlotRun {
    /// One of them.
    at: u32,
    whole: PageRead,
    /// What the host asked for; zero where there is no run.
    host_bytes: u64,
}

impl Reads {
    /// Starts a read, once its entries of the map are in DRAM.
    #[inline(always)]
    pub(crate) fn start_read(&mut self, ctx: &mut ReadCtx<'_>, now_ns: u64, index: u32) {
        if ctx.host.commands[index].is_unwritten {
            return self.send_zeroes(ctx, now_ns, index);
        }
        if ctx.media.ftl.has_cached_map() && self.waits_for_map(ctx, now_ns, index) {
            return;
        }
        self.read_mapped(ctx, now_ns, index);
        if self.ahead.is_some() {
            self.read_ahead(ctx, now_ns, index);
        }
    }

    /// Whether pages of the map have to be read before a read.
    #[inline(never)]
    fn waits_for_map(&mut self, ctx: &mut ReadCtx<'_>, now_ns: u64, index: u32) -> bool {
        let (first, last) = ctx.host.slots_of(index);
        ctx.media.flash.gather();
        let waiter = MapWaiter::Command(index);
        let fetches = match ctx.media.ftl.cached_map() {
            Some(map) => map.fetch(
                &mut ctx.media.flash,
                &mut ctx.media.stats,
                now_ns,
                first..=last,
                false,
                waiter,
            ),
            None => 0,
        };
        ctx.media.flash.start_gathered(now_ns);
        let command = &mut ctx.host.commands[index];
        command.parts = fetches;
        command.waits.note(Wait::Map, fetches > 0);
        if fetches > 0 {
            self.read_ahead(ctx, now_ns, index);
        }
        fetches > 0
    }

    /// Answers a read of which nothing is on the flash.
    #[inline(never)]
    fn send_zeroes(&mut self, ctx: &mut ReadCtx<'_>, now_ns: u64, index: u32) {
        ctx.media.stats.sectors_read_unwritten += ctx.host.commands[index].bytes / 512;
        ctx.host.finish(ctx.media.flash.events(), now_ns, index);
    }

    /// Turns a read into one transaction for every page that it touches.
    #[inline(always)]
    pub(crate) fn read_mapped(&mut self, ctx: &mut ReadCtx<'_>, now_ns: u64, index: u32) {
        let (first, last) = ctx.host.slots_of(index);
        match first == last {
            true => self.read_slot(ctx, now_ns, index, first),
            false => {
                ctx.media.flash.gather();
                self.read_slots(ctx, now_ns, index);
                ctx.media.flash.start_gathered(now_ns);
            }
        }
    }

    /// Reads of several map units.
    #[inline(never)]
    fn read_slots(&mut self, ctx: &mut ReadCtx<'_>, now_ns: u64, index: u32) {
        let ActiveCommand {
            first_byte, bytes, ..
        } = ctx.host.commands[index];
        let unit_bits = ctx.media.spec.ftl.map_unit_bytes.trailing_zeros();
        let end = first_byte + bytes;
        let (mut from_dram, mut zeros) = (0, 0);
        let mut byte = first_byte;
        let mut run = SlotRun::default();
        let mut parts = 0;
        while byte < end {
            let slot = (byte >> unit_bits) as u32;
            let stop = ((slot as u64 + 1) << unit_bits).min(end);
            let wanted = stop - byte;
            let alone_bytes = self.codewords.of_part(byte, stop);
            #[cfg(test)]
            ctx.media
                .ftl
                .shadow_read(&ctx.host.commands[index], byte, stop);
            let found = self.find(ctx, index, slot, (byte, stop));
            byte = stop;
            match found {
                SlotSource::Dram => from_dram += wanted,
                SlotSource::Zeros => zeros += wanted,
                SlotSource::Flash(at) => {
                    if run.host_bytes > 0 && !ctx.media.ftl.same_page(run.at, at) {
                        parts += self.read_run(ctx, now_ns, index, run);
                        run = SlotRun::default();
                    }
                    run.at = at;
                    run.whole.add(&self.codewords, at, alone_bytes);
                    run.host_bytes += wanted;
                }
            }
        }
        parts += self.read_run(ctx, now_ns, index, run);
        if from_dram > 0 {
            ctx.host
                .use_dram(ctx.media.flash.events(), now_ns, index, from_dram);
            parts += 1;
            ctx.media.stats.cache_read_hits += (parts == 1) as u64;
        }
        ctx.host.commands[index].parts = parts;
        ctx.host.commands[index].dram_bytes = from_dram;
        ctx.media.stats.sectors_read_unwritten += zeros / 512;
        if parts == 0 {
            return ctx.host.finish(ctx.media.flash.events(), now_ns, index);
        }
        // Unwritten units need no fetch: their zeros are sent first.
        if zeros > 0 {
            ctx.host.send(now_ns, index, zeros);
        }
    }

    /// Reads within one map unit, as most reads are.
    #[inline(always)]
    fn read_slot(&mut self, ctx: &mut ReadCtx<'_>, now_ns: u64, index: u32, slot: u32) {
        let command = &mut ctx.host.commands[index];
        let (first_byte, bytes) = (command.first_byte, command.bytes);
        command.parts = 1;
        command.dram_bytes = bytes;
        #[cfg(test)]
        ctx.media
            .ftl
            .shadow_read(&ctx.host.commands[index], first_byte, first_byte + bytes);
        let at = match self.find(ctx, index, slot, (first_byte, first_byte + bytes)) {
            SlotSource::Flash(at) => at,
            SlotSource::Dram => {
                ctx.media.stats.cache_read_hits += 1;
                return ctx
                    .host
                    .use_dram(ctx.media.flash.events(), now_ns, index, bytes);
            }
            SlotSource::Zeros => return self.send_zeroes(ctx, now_ns, index),
        };
        let part = PartBytes {
            channel: self.codewords.of_part(first_byte, first_byte + bytes),
            host: bytes,
        };
        self.read_page(ctx, now_ns, index, at, part);
    }

    #[inline(always)]
    fn find(
        &mut self,
        ctx: &mut ReadCtx<'_>,
        index: u32,
        slot: u32,
        part: (u64, u64),
    ) -> SlotSource {
        match ctx.media.ftl.locate(slot) {
            Located::Flash(_) if self.is_cached_read(ctx, index, slot) => SlotSource::Dram,
            Located::Flash(at) => SlotSource::Flash(at),
            Located::Buffered(_) => ctx
                .media
                .ftl
                .rest_of(slot, part)
                .map_or(SlotSource::Dram, SlotSource::Flash),
            Located::Nowhere if ctx.media.spec.ftl.read_unwritten => {
                SlotSource::Flash(ctx.media.ftl.home_of(slot))
            }
            Located::Nowhere => SlotSource::Zeros,
        }
    }

    /// Reads a run, if there is one; returns how many parts of its command that
    /// is.
    fn read_run(&mut self, ctx: &mut ReadCtx<'_>, now_ns: u64, index: u32, run: SlotRun) -> u32 {
        if run.host_bytes == 0 {
            return 0;
        }
        let part = PartBytes {
            channel: run.whole.bytes,
            host: run.host_bytes,
        };
        self.read_page(ctx, now_ns, index, run.at, part);
        1
    }

    #[inline(always)]
    fn read_page(
        &mut self,
        ctx: &mut ReadCtx<'_>,
        now_ns: u64,
        owner: u32,
        at: u32,
        part: PartBytes,
    ) {
        if self.ahead.is_some() && self.joins_read_ahead(ctx, owner, at, part.host) {
            return;
        }
        let at = ctx.media.ftl.parts(at);
        let mut op = ctx.media.ftl.transaction(
            Operation::Read,
            Source::Host,
            owner,
            at,
            part.channel as u32,
        );
        op.command = ctx.host.commands[owner].number;
        ctx.media.stats.slc.pages_read += op.slc as u64;
        let op = ctx.media.flash.enqueue(now_ns, op);
        ctx.media.flash.set_host_bytes(op, part.host as u32);
    }

    /// A page of a read is in the controller: it goes on to the host at once.
    #[inline(always)]
    pub(crate) fn host_read_done(&mut self, ctx: &mut ReadCtx<'_>, now_ns: u64, transaction: u32) {
        let index = ctx.media.flash.transaction(transaction).owner;
        let read = *ctx.media.flash.waiting(transaction);
        ctx.host.commands[index].waits.add(read.waits);
        // Bytes that the host did not ask for do not cross the link.
        let sent_ns = ctx.host.send(now_ns, index, read.host_bytes as u64);
        ctx.host.part_sent(ctx.media.flash.events(), sent_ns, index);
    }
}
