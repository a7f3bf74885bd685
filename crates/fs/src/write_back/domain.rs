//! Pages that share thresholds of dirty memory: those of the system, or of a memory cgroup
//! (`struct wb_domain`).

use super::bandwidth::INTERVAL;
use super::counters::{PercpuCounter, Proportions};
use super::dirty_state::DirtyState;

/// The counters of a domain, and its smoothed threshold.
#[derive(Debug)]
pub(crate) struct Domain {
    pub(crate) dirty: PercpuCounter,
    pub(crate) writing: PercpuCounter,
    /// What a memory cgroup's statistics said of both when they were last flushed.
    seen_dirty: u64,
    seen_writing: u64,
    /// The smoothed threshold (`dirty_limit`), and when it was updated last.
    pub(super) limit: u64,
    pub(super) limit_at: u64,
    /// What each device has lately written of it.
    pub(super) proportions: Proportions,
}

impl Domain {
    /// One whose counters lag behind by up to `batch` pages.
    pub(super) fn new(batch: i64, limit: u64, now: u64) -> Domain {
        Domain {
            dirty: PercpuCounter::new(batch),
            writing: PercpuCounter::new(batch),
            seen_dirty: 0,
            seen_writing: 0,
            limit,
            limit_at: now,
            proportions: Proportions::default(),
        }
    }

    pub(super) fn flush_statistics(&mut self) {
        self.seen_dirty = self.dirty.sum();
        self.seen_writing = self.writing.sum();
    }

    /// Dirty pages and those under write-back, by a memory cgroup's statistics.
    pub(super) fn seen(&self) -> (u64, u64) {
        (self.seen_dirty, self.seen_writing)
    }

    /// Lets the smoothed threshold follow: up at once, down by 1/32 of the distance every
    /// 200 ms (`domain_update_dirty_limit`).
    pub(super) fn update_limit(&mut self, state: &DirtyState, now: u64) -> u64 {
        if now < self.limit_at + INTERVAL {
            return self.limit;
        }
        self.limit_at = now;
        let floor = state.thresh.max(state.dirty);
        if self.limit < state.thresh {
            self.limit = state.thresh;
        } else if self.limit > floor {
            self.limit -= (self.limit - floor) / 32;
        }
        self.limit
    }
}

/// The memory of a cgroup as dirty throttling sees it, in pages (`mem_cgroup_wb_stats`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct GroupMemory {
    /// Pages of files, dirty or not.
    pub(crate) cached: u64,
    /// Pages that it may still be charged.
    pub(crate) headroom: u64,
}

impl GroupMemory {
    /// The pages of a cgroup that can be dirty, of which `dirty` are: its own, and what it can
    /// still get of the `system`'s, whose pages that can be dirty and are dirty these are
    /// (`mdtc_calc_avail`).
    pub(super) fn available(&self, dirty: u64, (system, system_dirty): (u64, u64)) -> u64 {
        let clean = self.cached.saturating_sub(dirty);
        let system_clean = system.saturating_sub(system_dirty);
        let others_clean = system_clean.saturating_sub(clean);
        self.cached + self.headroom.min(others_clean)
    }
}

#[cfg(test)]
mod tests {
    use super::GroupMemory;

    #[test]
    fn a_group_can_dirty_what_it_has_and_what_it_can_get() {
        let memory = GroupMemory {
            cached: 600,
            headroom: 400,
        };
        assert_eq!(memory.available(100, (10_000, 0)), 1_000);
        // Of the system's 800 clean pages 500 are the group's own.
        assert_eq!(memory.available(100, (1_000, 200)), 900);
        assert_eq!(memory.available(100, (1_000, 900)), 600);
    }
}
