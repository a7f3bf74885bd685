//! Flush and force-unit-access: which pages are programmed before they are full,
//! and what waits for them.
//!
//! A flush covers everything acknowledged before it. Pages on their way to the
//! flash belong to the epoch in which they were begun; a flush closes all of
//! them and ends its epoch, and ends itself when that epoch and all older ones
//! have nothing on its way.

use alloc::collections::VecDeque;

use super::{Controller, WriteCache};
use crate::ssd::flash::transaction::{NONE, Operation, Source};
use crate::ssd::ftl::Stream;

/// A command that waits for a page, and the next of that page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiter {
    pub(super) command: u32,
    pub(super) next: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Epoch {
    pages: u32,
    /// The flush command that ended it.
    flush: Option<u32>,
}

/// Epochs from the oldest that is not durable to the present.
#[derive(Clone, Debug)]
pub(super) struct Epochs {
    epochs: VecDeque<Epoch>,
    first: u32,
}

impl Epochs {
    pub(super) fn new() -> Epochs {
        Epochs {
            epochs: VecDeque::from([Epoch::default()]),
            first: 0,
        }
    }

    /// The present epoch.
    #[inline]
    pub(super) fn now(&self) -> u32 {
        self.first.wrapping_add(self.epochs.len() as u32 - 1)
    }

    /// A page is begun in the present epoch.
    #[inline]
    pub(super) fn begin_page(&mut self) {
        if let Some(last) = self.epochs.back_mut() {
            last.pages += 1;
        }
    }

    /// A page of `epoch` is on the flash.
    #[inline]
    pub(super) fn end_page(&mut self, epoch: u32) {
        let place = epoch.wrapping_sub(self.first) as usize;
        self.epochs[place].pages -= 1;
    }

    /// A flush ends the present epoch.
    pub(super) fn flush(&mut self, command: u32) {
        if let Some(last) = self.epochs.back_mut() {
            last.flush = Some(command);
        }
        self.epochs.push_back(Epoch::default());
    }

    /// Whether a flush has nothing left to wait for.
    #[inline]
    fn has_durable(&self) -> bool {
        let first = self.epochs.front();
        first.is_some_and(|first| first.pages == 0 && first.flush.is_some())
    }

    /// A flush that has nothing left to wait for.
    fn pop_durable(&mut self) -> Option<u32> {
        if !self.has_durable() {
            return None;
        }
        self.first = self.first.wrapping_add(1);
        self.epochs.pop_front()?.flush
    }
}

impl WriteCache {
    /// The open page of a stream in a plane that takes no further units.
    #[inline]
    pub(super) fn full_page(&self, ctx: &Controller, plane: u32, stream: Stream) -> Option<u32> {
        let open = ctx.media.ftl.filling(plane, stream);
        open.filter(|record| ctx.media.ftl.is_full(*record))
    }

    /// Has a command wait for a page's program.
    pub(super) fn await_page(&mut self, ctx: &mut Controller, record: u32, index: u32) {
        let first = ctx.media.ftl.record(record).waiters;
        if first != NONE && self.waiters[first].command == index {
            return; // It waits for this page already.
        }
        let waiter = self.waiters.insert(Waiter {
            command: index,
            next: first,
        });
        ctx.media.ftl.record_mut(record).waiters = waiter;
        ctx.host.commands[index].parts += 1;
    }

    /// Programs every page that holds data of the host's, full or not.
    pub(crate) fn close_all(&mut self, ctx: &mut Controller, now_ns: u64) {
        for plane in 0..ctx.media.spec.geometry.planes() {
            for stream in ctx.media.ftl.host_streams() {
                self.close_pages(ctx, now_ns, plane, stream);
            }
        }
        ctx.gc.program_superpage(&mut ctx.media, now_ns);
    }

    /// Programs the pages of the host's that take no further units. Returns
    /// whether there were any.
    pub(crate) fn close_full_pages(&mut self, ctx: &mut Controller, now_ns: u64) -> bool {
        let mut were_any = false;
        for plane in 0..ctx.media.spec.geometry.planes() {
            for stream in ctx.media.ftl.host_streams() {
                if let Some(record) = self.full_page(ctx, plane, stream) {
                    ctx.gc.program(&mut ctx.media, now_ns, record);
                    were_any = true;
                }
            }
        }
        were_any
    }

    /// Programs the pages that a command waits for, full or not.
    pub(crate) fn close_awaited(&mut self, ctx: &mut Controller, now_ns: u64) {
        for plane in 0..ctx.media.spec.geometry.planes() {
            for stream in ctx.media.ftl.host_streams() {
                let mut pages = ctx.media.ftl.pages_under_way(plane, stream);
                if pages.any(|record| ctx.media.ftl.record(record).waiters != NONE) {
                    drop(pages);
                    self.close_pages(ctx, now_ns, plane, stream);
                }
            }
        }
        ctx.gc.program_superpage(&mut ctx.media, now_ns);
    }

    /// Programs the page that a stream is filling in a plane. Where the array
    /// programs several at once, it gets the rest of them as well, empty.
    fn close_pages(&mut self, ctx: &mut Controller, now_ns: u64, plane: u32, stream: Stream) {
        if let Some(record) = ctx.media.ftl.filling(plane, stream) {
            ctx.gc.program(&mut ctx.media, now_ns, record);
        }
        while ctx.media.ftl.is_amid_program(plane, stream) {
            let record = ctx.media.ftl.open_record(plane, stream, self.epochs.now());
            self.epochs.begin_page();
            ctx.gc.program(&mut ctx.media, now_ns, record);
        }
    }

    /// A page that belongs to a flush epoch is on the flash.
    #[inline(always)]
    pub(crate) fn epoch_page_done(&mut self, ctx: &mut Controller, now_ns: u64, epoch: u32) {
        self.epochs.end_page(epoch);
        if self.epochs.has_durable() {
            self.end_flushes(ctx, now_ns);
        }
    }

    /// Ends the flushes that have nothing left to wait for.
    fn end_flushes(&mut self, ctx: &mut Controller, now_ns: u64) {
        while let Some(flush) = self.epochs.pop_durable() {
            self.data_flushed(ctx, now_ns, flush);
        }
    }

    /// A flush: everything acknowledged so far has to reach the flash.
    pub(crate) fn start_flush(&mut self, ctx: &mut Controller, now_ns: u64, index: u32) {
        if ctx.media.spec.write_cache.power_loss_protection {
            return ctx.host.finish(ctx.media.flash.events(), now_ns, index);
        }
        ctx.media.flash.gather();
        self.close_all(ctx, now_ns);
        if core::mem::take(&mut self.log_is_dirty) {
            self.program_discard_log(ctx, now_ns);
        }
        ctx.media.flash.start_gathered(now_ns);
        self.epochs.flush(index);
        self.end_flushes(ctx, now_ns);
    }

    /// The flash cannot tell a discarded slot from one that was never
    /// overwritten, so discards are written down: a page of a log.
    fn program_discard_log(&mut self, ctx: &mut Controller, now_ns: u64) {
        self.epochs.begin_page();
        let page = ctx.media.ftl.log_page(0);
        let bytes = ctx.media.spec.geometry.page_bytes;
        let epoch = self.epochs.now();
        let op =
            ctx.media
                .ftl
                .transaction(Operation::Program, Source::DiscardLog, epoch, page, bytes);
        ctx.media.flash.enqueue(now_ns, op);
    }
}
