//! Emptying the SLC cache: what is current in its oldest block goes to
//! multi-level pages, as a collection moves it, and the block is erased.
//!
//! That happens when the host has been silent for a while, when its writes wait
//! for room in the cache or will once the block that they go to is full, and,
//! block by block, when collection finds that the block with least to move is one
//! of the cache's.

use super::{Collector, Media};
use crate::ssd::events::EventKind;
use crate::ssd::flash::transaction::NONE;
use crate::ssd::spec::Allocation;

/// Among arriving commands: time to see whether the host is silent.
pub(crate) const IDLE_CHECK: u32 = NONE;

impl Collector {
    /// The block of the SLC cache that should be emptied now in a plane.
    pub(crate) fn block_to_fold(&self, ctx: &Media, now_ns: u64, plane: u32) -> Option<u32> {
        let oldest = ctx.ftl.oldest_cached(plane)?;
        if !ctx.ftl.is_written(oldest) {
            return None;
        }
        let is_due = self.is_idle(ctx, now_ns)
            || ctx.ftl.stream_with_room(plane).is_none()
            || self.will_wait(ctx, plane);
        // It may take a block before it frees one.
        (is_due && ctx.ftl.row_has_spare(plane)).then_some(oldest)
    }

    /// Whether writes will wait for a plane once the block of the cache that they go
    /// to is full. Where the drive chooses the plane they wait for none as long as
    /// another has room, and all planes are emptied at once when none has.
    fn will_wait(&self, ctx: &Media, plane: u32) -> bool {
        ctx.spec.ftl.allocation == Allocation::Static && ctx.ftl.fills_last_of_cache(plane)
    }

    /// Whether the host has been silent long enough.
    fn is_idle(&self, ctx: &Media, now_ns: u64) -> bool {
        self.silent_ns(ctx).is_some_and(|at_ns| at_ns <= now_ns)
            && !ctx.writes_wait
            && self.programs_queued == 0
    }

    /// When the host will have been silent long enough.
    fn silent_ns(&self, ctx: &Media) -> Option<u64> {
        let after_ns = ctx.spec.slc_cache?.fold_after_ns?;
        Some(self.host_ns.saturating_add(after_ns))
    }

    /// The cache has grown: it will be looked at once the host is silent.
    pub(crate) fn slc_written(&mut self, ctx: &mut Media, now_ns: u64) {
        if let Some(at_ns) = self.silent_ns(ctx)
            && !self.idle_check
        {
            self.idle_check = true;
            let at_ns = match at_ns > now_ns {
                true => at_ns,
                // Silent already, but not at rest.
                false => {
                    now_ns
                        + ctx
                            .spec
                            .slc_cache
                            .and_then(|c| c.fold_after_ns)
                            .unwrap_or(0)
                        + 1
                }
            };
            ctx.flash
                .events()
                .push(EventKind::COMMAND_READY, at_ns, IDLE_CHECK);
        }
    }

    /// The host is not silent any more: what is left is looked at again once it
    /// is.
    pub(crate) fn fold_later(&mut self, ctx: &mut Media, now_ns: u64) {
        if ctx.ftl.has_full_cached() {
            self.slc_written(ctx, now_ns);
        }
    }

    /// A page of the cache is queued for its program. With the first of a plane's
    /// last block the plane begins to make room, before anybody waits for it: else
    /// a host that has few writes under way would wait for one plane at a time.
    pub(crate) fn fold_ahead(&mut self, ctx: &mut Media, now_ns: u64, plane: u32, page: u32) {
        if page == 0 && self.block_to_fold(ctx, now_ns, plane).is_some() {
            self.collect(ctx, now_ns, plane);
        }
    }

    /// Starts to empty the cache if the host is silent, else looks again later.
    pub(crate) fn fold_idle(&mut self, ctx: &mut Media, now_ns: u64) {
        self.idle_check = false;
        match self.is_idle(ctx, now_ns) {
            true => self.fold_where_due(ctx, now_ns),
            false => self.fold_later(ctx, now_ns),
        }
    }

    /// Begins to empty the cache in all planes that should be emptied: where a
    /// write waits for one plane, others will be short as well.
    pub(crate) fn fold_where_due(&mut self, ctx: &mut Media, now_ns: u64) {
        for plane in 0..ctx.spec.geometry.planes() {
            if self.block_to_fold(ctx, now_ns, plane).is_some() {
                self.collect(ctx, now_ns, plane);
            }
        }
    }
}
