//! The active and the inactive list. A page that is accessed twice becomes active. A
//! page that refaults becomes active at once if its refault distance is at most the length
//! of the active list (`mm/swap.c` and `mm/workingset.c` of Linux 6.12).

use crate::page_cache::{FolioId, PageCache, flag};
use crate::reclaim::list::Lists;
use crate::reclaim::lruvec::Lruvec;
use crate::reclaim::shadow::Shadow;

/// The list that pages are evicted from.
pub(super) const INACTIVE: usize = 0;
/// The list of pages that were accessed more than once.
pub(super) const ACTIVE: usize = 1;

/// Sizes of the lists in pages, and refaults that became active.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LruStatistics {
    /// Pages of the active list (`NR_ACTIVE_FILE`).
    pub active: u64,
    /// Pages of the inactive list (`NR_INACTIVE_FILE`).
    pub inactive: u64,
    /// Refaulted pages that became active (`WORKINGSET_ACTIVATE_FILE`).
    pub activated_refaults: u64,
}

impl LruStatistics {
    pub(super) fn add(&mut self, more: &LruStatistics) {
        self.active += more.active;
        self.inactive += more.inactive;
        self.activated_refaults += more.activated_refaults;
    }

    /// Whether there are too few inactive pages, so that active ones must be deactivated
    /// (`inactive_is_low`): 1 to 1 below a gigabyte, 1 to sqrt(10 x gigabytes) above.
    fn inactive_is_low(&self) -> bool {
        let gigabytes = (self.inactive + self.active) >> 18;
        let ratio = match gigabytes {
            0 => 1,
            _ => (10 * gigabytes).isqrt(),
        };
        self.inactive * ratio < self.active
    }
}

/// The state of this policy besides the lists, of a memory cgroup on a node.
#[derive(Debug, Default)]
pub(super) struct ActiveInactive {
    /// Evictions and activations so far, in pages. Its growth between a page's eviction and
    /// its refault is the memory that would have kept the page (`nonresident_age`).
    pub(super) age: u64,
    /// Refaulted pages that became active.
    pub(super) activated_refaults: u64,
    /// The value of `activated_refaults` when reclaim ran last.
    refaults_at_reclaim: u64,
}

impl ActiveInactive {
    pub(super) fn statistics(&self, of: Lruvec, lists: &Lists) -> LruStatistics {
        LruStatistics {
            active: lists.pages(of, ACTIVE),
            inactive: lists.pages(of, INACTIVE),
            activated_refaults: self.activated_refaults,
        }
    }

    /// The list that a folio belongs to.
    pub(super) fn list_of(cache: &PageCache, id: FolioId) -> usize {
        if cache.has(id, flag::ACTIVE) {
            ACTIVE
        } else {
            INACTIVE
        }
    }

    /// How many pages were evicted or became active since a page was evicted
    /// (`workingset_test_recent`).
    pub(super) fn refault_distance(&self, shadow: &Shadow) -> u64 {
        let since = (self.age as u32).wrapping_sub(shadow.token);
        u64::from(since & ((1 << shadow.token_bits) - 1))
    }

    /// Whether active pages may be deactivated: if there were refaults, which shows that the
    /// active list is stale, or if there are few inactive pages (`prepare_scan_control`).
    pub(super) fn may_deactivate(&self, seen: &LruStatistics) -> bool {
        seen.activated_refaults != self.refaults_at_reclaim || seen.inactive_is_low()
    }

    /// Records the refaults at the end of reclaim (`snapshot_refaults`).
    pub(super) fn snapshot_refaults(&mut self, seen: &LruStatistics) {
        self.refaults_at_reclaim = seen.activated_refaults;
    }
}

#[cfg(test)]
mod tests {
    use super::LruStatistics;

    #[test]
    fn inactive_pages_may_be_fewer_the_more_memory_there_is() {
        let is_low = |inactive, active| {
            let statistics = LruStatistics {
                active,
                inactive,
                activated_refaults: 0,
            };
            statistics.inactive_is_low()
        };
        assert!(is_low(100, 101));
        assert!(!is_low(100, 100));
        // 1 GiB: three active pages for one inactive.
        assert!(!is_low(1 << 16, 3 << 16));
        assert!(is_low(1 << 16, (3 << 16) + 1));
    }
}
