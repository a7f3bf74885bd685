//! Folding the SLC cache: the valid data of its oldest block is moved to multi-level
//! pages by a collection, and the block is erased.
//!
//! That happens when the host has been idle for a while, and when host writes wait
//! for room in the cache or will wait once its open block is full. Besides,
//! collection may choose a block of the cache as its victim.

use super::{Collector, Media};
use crate::ssd::events::EventKind;
use crate::ssd::flash::transaction::NONE;
use crate::ssd::spec::Allocation;

/// In place of a command's index in a [`EventKind::COMMAND_READY`] event: an idle check
/// is due.
pub(crate) const IDLE_CHECK: u32 = NONE;

impl Collector {
    /// The block of a plane's SLC cache that should be folded now.
    pub(crate) fn block_to_fold(&self, ctx: &Media, now_ns: u64, plane: u32) -> Option<u32> {
        let oldest = ctx.ftl.oldest_cached(plane)?;
        if !ctx.ftl.is_written(oldest) {
            return None;
        }
        let is_due = self.is_idle(ctx, now_ns)
            || ctx.ftl.stream_with_room(plane).is_none()
            || self.will_wait(ctx, plane);
        // A fold may take a free block before it frees one.
        (is_due && ctx.ftl.row_has_spare(plane)).then_some(oldest)
    }

    /// Whether writes will wait for a plane once the open block of its cache is full.
    /// Under dynamic allocation they go to another plane as long as one has room, and
    /// all planes are folded at once when none has.
    fn will_wait(&self, ctx: &Media, plane: u32) -> bool {
        ctx.spec.ftl.allocation == Allocation::Static && ctx.ftl.fills_last_of_cache(plane)
    }

    /// Whether the host has been idle long enough.
    fn is_idle(&self, ctx: &Media, now_ns: u64) -> bool {
        self.idle_at_ns(ctx).is_some_and(|at_ns| at_ns <= now_ns)
            && !ctx.writes_wait
            && self.programs_queued == 0
    }

    /// When the host will have been idle long enough; `None` where the cache is not folded
    /// for that.
    fn idle_at_ns(&self, ctx: &Media) -> Option<u64> {
        let after_ns = ctx.spec.slc_cache?.fold_after_ns?;
        Some(self.host_ns.saturating_add(after_ns))
    }

    /// Schedules an idle check, unless one is scheduled.
    pub(crate) fn schedule_idle_check(&mut self, ctx: &mut Media, now_ns: u64) {
        if let Some(at_ns) = self.idle_at_ns(ctx)
            && !self.idle_check
        {
            self.idle_check = true;
            let at_ns = match at_ns > now_ns {
                true => at_ns,
                // The host is idle, but its writes are not all programmed.
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

    /// Schedules another idle check if full blocks of the cache are left.
    pub(crate) fn recheck_when_idle(&mut self, ctx: &mut Media, now_ns: u64) {
        if ctx.ftl.has_full_cached() {
            self.schedule_idle_check(ctx, now_ns);
        }
    }

    /// Folds ahead of need when the first page of a block of the cache is programmed: with
    /// few writes in flight the host would otherwise wait for one plane at a time.
    pub(crate) fn fold_ahead(&mut self, ctx: &mut Media, now_ns: u64, plane: u32, page: u32) {
        if page == 0 && self.block_to_fold(ctx, now_ns, plane).is_some() {
            self.collect(ctx, now_ns, plane);
        }
    }

    /// An idle check is due: folds if the host is idle, else schedules another.
    pub(crate) fn fold_idle(&mut self, ctx: &mut Media, now_ns: u64) {
        self.idle_check = false;
        match self.is_idle(ctx, now_ns) {
            true => self.fold_where_due(ctx, now_ns),
            false => self.recheck_when_idle(ctx, now_ns),
        }
    }

    /// Folds in all planes where that is due: where a write waits for one plane, others
    /// will soon be short of room as well.
    pub(crate) fn fold_where_due(&mut self, ctx: &mut Media, now_ns: u64) {
        for plane in 0..ctx.spec.geometry.planes() {
            if self.block_to_fold(ctx, now_ns, plane).is_some() {
                self.collect(ctx, now_ns, plane);
            }
        }
    }
}
