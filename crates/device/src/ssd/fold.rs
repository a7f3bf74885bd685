//! Emptying the SLC cache: what is current in its oldest block goes to
//! multi-level pages, as a collection moves it, and the block is erased.
//!
//! That happens when the host has been silent for a while, when its writes wait
//! for room in the cache, and, block by block, when collection finds that the
//! block with least to move is one of the cache's.

use super::lanes::Lane;
use super::{FOLD_TIMER, Ssd};

impl Ssd {
    /// The block of the SLC cache that should be emptied now in a plane.
    pub(super) fn block_to_fold(&self, now_ns: u64, plane: u32) -> Option<u32> {
        let slc = self.ftl.slc.as_ref()?;
        let oldest = slc
            .oldest(plane)
            .filter(|block| self.ftl.is_written(*block))?;
        let is_due = self.is_idle(now_ns) || self.ftl.host_stream(plane).is_none();
        // It may take a block before it frees one.
        (is_due && self.ftl.row_has_spare(plane)).then_some(oldest)
    }

    /// Whether the host has been silent long enough.
    fn is_idle(&self, now_ns: u64) -> bool {
        self.silent_ns().is_some_and(|at_ns| at_ns <= now_ns)
            && self.waiting.first().is_none()
            && self.programs_queued == 0
    }

    /// When the host will have been silent long enough.
    fn silent_ns(&self) -> Option<u64> {
        let after_ns = self.spec.slc_cache?.fold_after_ns?;
        Some(self.host_ns.saturating_add(after_ns))
    }

    /// The cache has grown: it will be looked at once the host is silent.
    pub(super) fn slc_written(&mut self, now_ns: u64) {
        if let Some(at_ns) = self.silent_ns()
            && !self.fold_timer
        {
            self.fold_timer = true;
            let at_ns = match at_ns > now_ns {
                true => at_ns,
                // Silent already, but not at rest.
                false => {
                    now_ns
                        + self
                            .spec
                            .slc_cache
                            .and_then(|c| c.fold_after_ns)
                            .unwrap_or(0)
                        + 1
                }
            };
            self.backend.lanes.push(Lane::ARRIVING, at_ns, FOLD_TIMER);
        }
    }

    /// The host is not silent any more: what is left is looked at again once it
    /// is.
    pub(super) fn fold_later(&mut self, now_ns: u64) {
        if self.ftl.slc.as_ref().is_some_and(|slc| slc.has_full()) {
            self.slc_written(now_ns);
        }
    }

    /// Starts to empty the cache if the host is silent, else looks again later.
    pub(super) fn fold_idle(&mut self, now_ns: u64) {
        self.fold_timer = false;
        if !self.is_idle(now_ns) {
            return self.fold_later(now_ns);
        }
        for plane in 0..self.spec.geometry.planes() {
            if self.block_to_fold(now_ns, plane).is_some() {
                self.collect(now_ns, plane);
            }
        }
    }
}
