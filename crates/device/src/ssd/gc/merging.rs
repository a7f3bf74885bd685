//! Merges of logs: their reads, programs and erases.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::{Collector, Media, Progress};
use crate::ssd::flash::transaction::{FlashPage, Operation, Source, Transaction};
use crate::ssd::ftl::Stream;
use crate::ssd::ftl::hybrid::LogNeed;
use crate::ssd::ftl::hybrid::merge::MergeStep;

/// The transactions of a plane's merge in progress.
#[derive(Clone, Debug, Default)]
pub(crate) struct Merging {
    /// Pages whose slots are being read, in order.
    reading: VecDeque<MergePage>,
    /// Lists of sources to use again.
    spare: Vec<Vec<(u32, u32)>>,
    programs: u32,
    erasing: bool,
    since_ns: u64,
}

#[derive(Clone, Debug)]
struct MergePage {
    page: u32,
    /// Logical slots, and the physical ones that they are read from.
    sources: Vec<(u32, u32)>,
    reads: u32,
}

impl Merging {
    /// Counts the merge in progress from `now_ns` on.
    pub(crate) fn count_from(&mut self, now_ns: u64) {
        self.since_ns = now_ns;
    }

    /// After a loss of power.
    pub(crate) fn power_off(&mut self) {
        *self = Merging::default();
    }
}

impl Collector {
    /// Plane and log that take a host slot now; `None` where it has to wait for a merge,
    /// which is begun.
    pub(crate) fn allocate_in_logs(
        &mut self,
        ctx: &mut Media,
        now_ns: u64,
        slot: u32,
    ) -> Option<(u32, Stream)> {
        // What the slot needs first may be done at once, and show a second need.
        for _ in 0..3 {
            match ctx.ftl.log_for(slot) {
                Ok(found) => return Some(found),
                Err((plane, want)) => self.make_room_in_log(ctx, now_ns, plane, want),
            }
        }
        ctx.ftl.log_for(slot).ok()
    }

    fn make_room_in_log(&mut self, ctx: &mut Media, now_ns: u64, plane: u32, want: LogNeed) {
        match want {
            LogNeed::Sequential(number) => self.close_log(ctx, now_ns, plane, number),
            LogNeed::Random => {
                if let Some(record) = ctx.ftl.reclaim(plane) {
                    self.program(ctx, now_ns, record);
                }
            }
            LogNeed::Page => {
                if let Some(record) = ctx.ftl.filling(plane, Stream::Host) {
                    self.program(ctx, now_ns, record);
                }
            }
            LogNeed::Wait => {}
        }
        self.continue_merge(ctx, now_ns, plane);
    }

    fn close_log(&mut self, ctx: &mut Media, now_ns: u64, plane: u32, number: usize) {
        if let Some(record) = ctx.ftl.close_sequential(plane, number) {
            self.program(ctx, now_ns, record);
        }
    }

    /// Continues a plane's merges as far as possible now.
    pub(crate) fn continue_merge(&mut self, ctx: &mut Media, now_ns: u64, plane: u32) {
        loop {
            self.erase_dead(ctx, now_ns, plane);
            if ctx.ftl.merge_of(plane).is_some() {
                if !self.copy_pages(ctx, now_ns, plane) {
                    return;
                }
                ctx.ftl.end_merge(plane);
                let took_ns = now_ns - self.merging[plane as usize].since_ns;
                ctx.stats.merges.busy_ns += took_ns;
                ctx.stats.merges.longest_ns = ctx.stats.merges.longest_ns.max(took_ns);
                continue;
            }
            match ctx.ftl.next_merge(plane) {
                MergeStep::None => return,
                MergeStep::Released => {}
                MergeStep::Switched => ctx.stats.merges.switched += 1,
                MergeStep::Close(number) => self.close_log(ctx, now_ns, plane, number),
                MergeStep::Partial => {
                    ctx.stats.merges.partial += 1;
                    self.merging[plane as usize].since_ns = now_ns;
                }
                MergeStep::Full => {
                    ctx.stats.merges.full += 1;
                    self.merging[plane as usize].since_ns = now_ns;
                }
            }
        }
    }

    fn erase_dead(&mut self, ctx: &mut Media, now_ns: u64, plane: u32) {
        let merging = &mut self.merging[plane as usize];
        if merging.erasing {
            return;
        }
        if let Some(block) = ctx.ftl.dead_block(plane) {
            merging.erasing = true;
            ctx.ftl.rescue_rests(&mut ctx.flash, now_ns, block);
            let at = FlashPage {
                plane,
                block,
                page: 0,
            };
            let erase = ctx
                .ftl
                .transaction(Operation::Erase, Source::Merge, plane, at, 0);
            ctx.flash.enqueue(now_ns, erase);
        }
    }

    /// Reads and programs pages of a plane's merge, as many at once as `gc.depth` allows.
    /// Returns whether all are programmed.
    fn copy_pages(&mut self, ctx: &mut Media, now_ns: u64, plane: u32) -> bool {
        loop {
            self.program_read_pages(ctx, now_ns, plane);
            let merging = &mut self.merging[plane as usize];
            if merging.reading.len() as u32 + merging.programs >= ctx.spec.gc.depth {
                return false;
            }
            let mut sources = merging.spare.pop().unwrap_or_default();
            let Some(page) = ctx.ftl.next_merge_page(plane, &mut sources) else {
                let merging = &mut self.merging[plane as usize];
                merging.spare.push(sources);
                return merging.reading.is_empty() && merging.programs == 0;
            };
            let reads = self.read_sources(ctx, now_ns, plane, page, &sources);
            self.merging[plane as usize].reading.push_back(MergePage {
                page,
                sources,
                reads,
            });
        }
    }

    /// Reads slots, with one read for each page that holds some of them. Returns the number
    /// of reads.
    fn read_sources(
        &mut self,
        ctx: &mut Media,
        now_ns: u64,
        plane: u32,
        page: u32,
        sources: &[(u32, u32)],
    ) -> u32 {
        let mut reads = 0;
        for (place, (_, at)) in sources.iter().enumerate() {
            let is_same = |other: &&(u32, u32)| ctx.ftl.same_page(other.1, *at);
            if sources[..place].iter().any(|other| is_same(&other)) {
                continue;
            }
            let slots = sources.iter().filter(is_same).map(|(_, at)| *at);
            let bytes = self.codewords.of_units(slots);
            let from = ctx.ftl.parts(*at);
            debug_assert_eq!(from.plane, plane);
            let read = ctx
                .ftl
                .transaction(Operation::Read, Source::Merge, page, from, bytes);
            ctx.flash.enqueue(now_ns, read);
            reads += 1;
        }
        reads
    }

    /// Programs the pages whose slots have been read, in order.
    fn program_read_pages(&mut self, ctx: &mut Media, now_ns: u64, plane: u32) {
        loop {
            let reading = &mut self.merging[plane as usize].reading;
            if reading.front().is_none_or(|page| page.reads > 0) {
                return;
            }
            let Some(mut page) = reading.pop_front() else {
                return;
            };
            let record = ctx.ftl.begin_merge_page(plane);
            let mut slots = 0;
            for (slot, from) in page.sources.drain(..) {
                if ctx.ftl.merge_slot(record, slot, from) {
                    slots += 1;
                    #[cfg(test)]
                    ctx.ftl.shadow_move(from, record);
                }
            }
            let sectors = ctx.spec.ftl.map_unit_bytes as u64 / 512;
            ctx.stats.merges.sectors_moved += slots * sectors;
            ctx.stats.merges.pages_padded += (slots == 0) as u64;
            let merging = &mut self.merging[plane as usize];
            merging.spare.push(page.sources);
            merging.programs += 1;
            self.program(ctx, now_ns, record);
        }
    }

    /// A read or an erase of a merge has ended. Returns what that has achieved.
    pub(crate) fn merge_op_done(
        &mut self,
        ctx: &mut Media,
        now_ns: u64,
        op: &Transaction,
    ) -> Progress {
        let merging = &mut self.merging[op.plane as usize];
        if op.kind == Operation::Read {
            let page = merging.reading.iter_mut().find(|p| p.page == op.owner);
            if let Some(page) = page {
                page.reads -= 1;
            }
            self.continue_merge(ctx, now_ns, op.plane);
            return Progress::None;
        }
        merging.erasing = false;
        ctx.ftl.dead_block_erased(op.plane);
        self.continue_merge(ctx, now_ns, op.plane);
        Progress::Erased
    }

    /// A page of a merge is programmed.
    pub(crate) fn merge_page_done(&mut self, ctx: &mut Media, now_ns: u64, plane: u32) {
        self.merging[plane as usize].programs -= 1;
        self.continue_merge(ctx, now_ns, plane);
    }
}
