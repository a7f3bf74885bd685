//! Which plane takes the host's next page.
//!
//! Static allocation gives every address its plane. Dynamic allocation (Tavakkol
//! et al., "Unleashing the potentials of dynamism for page allocation
//! strategies in SSDs", SIGMETRICS 2014) looks at what is idle when a page is
//! begun: pages follow each other over the planes in the same order as under
//! static allocation, but those whose die is at work are passed over. Where the
//! layout keeps a range of addresses on one channel, it chooses among that
//! channel's planes.

use super::{Controller, WriteCache};
use crate::ssd::flash::transaction::NONE;
use crate::ssd::ftl::Stream;
use crate::ssd::spec::Allocation;

/// Where dynamic allocation stands in one range of addresses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor {
    /// The plane whose page is being filled, [`NONE`] before the first.
    plane: u32,
    /// The place in the order that is next.
    next: u32,
}

impl Cursor {
    pub(crate) const FIRST: Cursor = Cursor {
        plane: NONE,
        next: 0,
    };
}

impl WriteCache {
    /// Plane and stream whose open page, or next one, takes a slot of the host's
    /// now; `None` where it has to wait.
    #[inline]
    pub(crate) fn allocate_page(
        &mut self,
        ctx: &mut Controller,
        now_ns: u64,
        slot: u32,
    ) -> Option<(u32, Stream)> {
        let (plane, stream) = self.allocate(ctx, now_ns, slot)?;
        match self.full_page(ctx, plane, stream) {
            None => Some((plane, stream)),
            Some(record) => self.allocate_next_page(ctx, now_ns, slot, plane, record),
        }
    }

    /// The same where the open page takes no more: it is one with units that are
    /// not whole.
    #[inline(never)]
    fn allocate_next_page(
        &mut self,
        ctx: &mut Controller,
        now_ns: u64,
        slot: u32,
        mut plane: u32,
        mut record: u32,
    ) -> Option<(u32, Stream)> {
        loop {
            // Its program may use up what room there was for the next.
            ctx.gc.program(&mut ctx.media, now_ns, record);
            let stream;
            (plane, stream) = match ctx.gc.host_stream(&ctx.media, plane) {
                Some(stream) if ctx.media.spec.ftl.allocation != Allocation::Static => {
                    (plane, stream)
                }
                _ => self.allocate(ctx, now_ns, slot)?,
            };
            match self.full_page(ctx, plane, stream) {
                None => return Some((plane, stream)),
                Some(full) => record = full,
            }
        }
    }

    /// Plane and stream that take a slot of the host's now; `None` where it has
    /// to wait.
    #[inline(always)]
    pub(crate) fn allocate(
        &mut self,
        ctx: &mut Controller,
        now_ns: u64,
        slot: u32,
    ) -> Option<(u32, Stream)> {
        if ctx.media.ftl.has_logs() {
            return ctx.gc.allocate_in_logs(&mut ctx.media, now_ns, slot);
        }
        if ctx.media.spec.ftl.allocation != Allocation::Static {
            return self.allocate_dynamically(ctx, slot);
        }
        let plane = ctx.media.ftl.target(slot);
        if ctx.media.ftl.has_rows() {
            return self.allocate_in_row(ctx, now_ns, plane);
        }
        ctx.gc
            .host_stream(&ctx.media, plane)
            .map(|stream| (plane, stream))
    }

    /// The plane of a row whose turn it is. The row waits for it while anything
    /// can be freed there.
    fn allocate_in_row(
        &mut self,
        ctx: &mut Controller,
        now_ns: u64,
        plane: u32,
    ) -> Option<(u32, Stream)> {
        if ctx.media.ftl.has_slc_cache() {
            let cached = ctx.media.ftl.in_turn(plane, Stream::Slc);
            if ctx.media.ftl.takes_cached(cached) {
                return Some((cached, Stream::Slc));
            }
            if ctx.media.ftl.waits_for_cache(cached) {
                return None;
            }
        }
        let first = ctx.media.ftl.in_turn(plane, Stream::Host);
        if ctx.gc.takes_direct(&ctx.media, first) {
            return Some((first, Stream::Host));
        }
        if ctx.gc.collect(&mut ctx.media, now_ns, first) {
            return None;
        }
        let mut row = ctx.media.ftl.row_of(plane);
        row.find(|plane| ctx.gc.takes_direct(&ctx.media, *plane))
            .map(|plane| (plane, Stream::Host))
    }

    fn allocate_dynamically(&mut self, ctx: &mut Controller, slot: u32) -> Option<(u32, Stream)> {
        let range = ctx
            .media
            .ftl
            .placement()
            .range_of(ctx.media.ftl.target(slot));
        let cursor = self.cursors[range as usize];
        if cursor.plane != NONE
            && let Some(stream) = ctx.gc.host_stream(&ctx.media, cursor.plane)
            && (ctx.media.ftl.filling(cursor.plane, stream))
                .is_some_and(|record| !ctx.media.ftl.is_full(record))
        {
            return Some((cursor.plane, stream));
        }
        let planes = ctx.media.ftl.placement().planes_per_range();
        let mut best: Option<(u64, u32, u32, Stream)> = None;
        for step in 0..planes {
            let place = (cursor.next + step) % planes;
            let plane = ctx.media.ftl.placement().plane_at(range, place);
            let Some(stream) = ctx.gc.host_stream(&ctx.media, plane) else {
                continue;
            };
            let load = match ctx.media.spec.ftl.allocation {
                // Any die at work is as bad as any other.
                Allocation::NextFree => (ctx.media.flash.backlog(plane) > 0) as u64,
                _ => ctx.media.flash.backlog(plane),
            };
            if best.is_none_or(|(least, ..)| load < least) {
                best = Some((load, place, plane, stream));
            }
            if load == 0 {
                break;
            }
        }
        let (_, place, plane, stream) = best?;
        self.cursors[range as usize] = Cursor {
            plane,
            next: (place + 1) % planes,
        };
        Some((plane, stream))
    }

    /// No plane takes the slot: starts to make room. `false` where there is
    /// none to be made.
    pub(crate) fn make_room(&mut self, ctx: &mut Controller, now_ns: u64, slot: u32) -> bool {
        if ctx.media.ftl.has_logs() {
            // A merge is under way.
            return true;
        }
        let target = ctx.media.ftl.target(slot);
        if ctx.media.spec.ftl.allocation == Allocation::Static {
            if ctx.media.ftl.waits_for_cache(target) && !ctx.gc.row_collects(&ctx.media, target) {
                ctx.gc.fold_where_due(&mut ctx.media, now_ns);
            }
            let mut may_come = false;
            for plane in ctx.media.ftl.row_of(target) {
                may_come |= ctx.gc.collect(&mut ctx.media, now_ns, plane);
            }
            return may_come;
        }
        let range = ctx.media.ftl.placement().range_of(target);
        let mut may_come = false;
        for place in 0..ctx.media.ftl.placement().planes_per_range() {
            let plane = ctx.media.ftl.placement().plane_at(range, place);
            may_come |= ctx.gc.collect(&mut ctx.media, now_ns, plane);
        }
        if !may_come && self.dirty_bytes > 0 {
            // Copies may be kept only for what overwrites them in DRAM.
            self.close_all(ctx, now_ns);
            may_come = ctx.gc.has_programs_queued();
        }
        may_come
    }
}
