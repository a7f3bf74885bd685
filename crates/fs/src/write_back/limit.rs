//! A limit of dirty memory, in bytes or in percent, as pages (`vm.dirty_bytes`,
//! `vm.dirty_ratio`, and those of background write-back).

use crate::PAGE_BYTES;

/// A limit as it is set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DirtyLimit {
    /// 0 if the ratio holds.
    pub(super) bytes: u64,
    /// Of the memory that can be dirty.
    pub(super) percent: u64,
}

impl DirtyLimit {
    /// The pages that the bytes begin, if it is in bytes.
    const fn whole_pages(self) -> Option<u64> {
        match self.bytes {
            0 => None,
            bytes => Some(bytes.div_ceil(PAGE_BYTES)),
        }
    }

    /// The ratio in parts of a page's size, in which it is rounded.
    const fn ratio(self) -> u64 {
        self.percent * PAGE_BYTES / 100
    }

    /// Pages of the system, of which `dirtyable` can be dirty (`domain_dirty_limits`).
    pub(super) const fn of_system(self, dirtyable: u64) -> u64 {
        match self.whole_pages() {
            Some(pages) => pages,
            None => self.ratio() * dirtyable / PAGE_BYTES,
        }
    }

    /// Pages of a memory cgroup of whose pages `available` can be dirty, where all of the
    /// system are `system`: a number of bytes is a share of those.
    pub(super) fn of_group(self, available: u64, system: u64) -> u64 {
        let ratio = match self.bytes {
            0 => self.ratio(),
            bytes => bytes.div_ceil(system.max(1)).min(PAGE_BYTES),
        };
        ratio * available / PAGE_BYTES
    }

    /// Pages of a memory node of which `dirtyable` can be dirty; `all` are those of all nodes
    /// (`node_dirty_limit`).
    pub(crate) fn of_node(self, dirtyable: u64, all: impl FnOnce() -> u64) -> u64 {
        let Some(pages) = self.whole_pages() else {
            return self.percent * dirtyable / 100;
        };
        let share = u128::from(pages) * u128::from(dirtyable) / u128::from(all().max(1));
        share.try_into().unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_is_pages_of_a_system_a_group_or_a_node() {
        let percent = DirtyLimit {
            bytes: 0,
            percent: 20,
        };
        // A fifth of 4096 parts is 819.
        assert_eq!(percent.of_system(1 << 20), 819 << 8);
        assert_eq!(percent.of_group(1 << 20, 1 << 30), 819 << 8);
        assert_eq!(percent.of_node(700_000, || 0), 140_000);
        let bytes = DirtyLimit {
            bytes: 4096 * 999 + 1,
            percent: 0,
        };
        assert_eq!(bytes.of_system(7), 1000);
        // 1000 of 1000 parts of a page for each page of the system.
        assert_eq!(bytes.of_group(4096, 4096), 1000);
        assert_eq!(bytes.of_node(700_000, || 1_400_000), 500);
    }
}
