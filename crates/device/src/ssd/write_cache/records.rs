//! The firmware's own records: what of the map has changed, programmed page by page
//! once the data is on the flash.
//!
//! Neither a flush nor a write with force unit access ends before them. Whoever
//! comes while pages of them are being programmed waits for the next ones, which
//! then serve all that wait, as a file system's journal commits.

use alloc::vec::Vec;

use blklab_blk::Op as HostOp;

use super::{Controller, WriteCache};
use crate::ssd::flash::transaction::{Operation, Source, Transaction};
use crate::ssd::spec::SsdSpec;

/// Where the records stand.
#[derive(Clone, Debug, Default)]
pub(super) struct Records {
    /// Something has changed since the pages that were begun last.
    is_stale: bool,
    /// Pages of those under way that are not on the flash yet.
    left: u32,
    /// Pages begun so far: they go around the planes.
    begun: u32,
    /// Commands that end with the pages under way.
    served: Vec<u32>,
    /// Commands that need the pages after these.
    waiting: Vec<u32>,
}

impl Records {
    /// The map has changed.
    #[inline]
    pub(super) fn changed(&mut self) {
        self.is_stale = true;
    }
}

/// Pages that a command has to wait for when its data is on the flash.
pub(super) fn pages_for(spec: &SsdSpec, op: HostOp) -> u32 {
    match op {
        HostOp::Write => spec.write_cache.fua_records,
        _ => spec.write_cache.flush_records,
    }
}

impl WriteCache {
    /// What a flush covers is on the flash: it ends after the records of that.
    pub(super) fn data_flushed(&mut self, ctx: &mut Controller, now_ns: u64, index: u32) {
        let op = ctx.host.commands[index].op;
        let records = &self.records;
        let is_recorded = !records.is_stale && records.left == 0;
        if is_recorded || pages_for(&ctx.media.spec, op) == 0 {
            return ctx.host.finish(ctx.media.flash.events(), now_ns, index);
        }
        self.record(ctx, now_ns, index);
    }

    /// A write with force unit access has its places: what stood for its admission
    /// stands for its records from now on.
    pub(super) fn await_records(&mut self, ctx: &mut Controller, now_ns: u64, index: u32) {
        let command = &mut ctx.host.commands[index];
        command.awaits_records = true;
        if command.parts == 1 {
            self.record(ctx, now_ns, index);
        }
    }

    /// A page that a command has waited for is on the flash.
    pub(super) fn part_durable(&mut self, ctx: &mut Controller, now_ns: u64, index: u32) {
        ctx.host.part_sent(ctx.media.flash.events(), now_ns, index);
        let command = &ctx.host.commands[index];
        if command.awaits_records && command.parts == 1 {
            self.record(ctx, now_ns, index);
        }
    }

    /// Has a command whose data is on the flash wait for the next records.
    pub(super) fn record(&mut self, ctx: &mut Controller, now_ns: u64, index: u32) {
        self.records.waiting.push(index);
        if self.records.left == 0 {
            self.begin_records(ctx, now_ns);
        }
    }

    /// Begins the pages that all who wait have asked for.
    fn begin_records(&mut self, ctx: &mut Controller, now_ns: u64) {
        let records = &mut self.records;
        core::mem::swap(&mut records.served, &mut records.waiting);
        let pages = records.served.iter().map(|index| {
            let command = &ctx.host.commands[*index];
            pages_for(&ctx.media.spec, command.op)
        });
        records.left = pages.max().unwrap_or(0);
        records.is_stale = false;
        if records.left > 0 {
            self.program_record(ctx, now_ns);
        }
    }

    fn program_record(&mut self, ctx: &mut Controller, now_ns: u64) {
        let geometry = &ctx.media.spec.geometry;
        let plane = self.records.begun % geometry.planes();
        self.records.begun = self.records.begun.wrapping_add(1);
        let page = ctx.media.ftl.log_page(plane);
        let bytes = geometry.page_bytes;
        let op = Transaction {
            slc: ctx.media.spec.slc_cache.is_some(),
            ..Transaction::new(Operation::Program, Source::Record, 0, page, bytes)
        };
        ctx.media.flash.enqueue(now_ns, op);
    }

    /// A page of the records is on the flash.
    pub(crate) fn record_done(&mut self, ctx: &mut Controller, now_ns: u64) {
        self.records.left -= 1;
        if self.records.left > 0 {
            return self.program_record(ctx, now_ns);
        }
        for index in self.records.served.drain(..) {
            let events = ctx.media.flash.events();
            match ctx.host.commands[index].op {
                HostOp::Write => ctx.host.part_sent(events, now_ns, index),
                _ => ctx.host.finish(events, now_ns, index),
            }
        }
        if !self.records.waiting.is_empty() {
            self.begin_records(ctx, now_ns);
        }
    }
}
