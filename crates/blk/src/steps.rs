//! What the block layer has done, step by step: whoever models CPUs knows what
//! each step costs, and the block layer only counts.

/// Steps done since the queue was made. They only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Steps {
    /// Bios taken in.
    pub bios: u64,
    /// Times the scheduler was asked for a request to merge with.
    pub merge_looks: u64,
    /// Requests given to the scheduler.
    pub inserts: u64,
    /// Times the scheduler was asked for a request.
    pub asks: u64,
    /// Requests given to the driver.
    pub issues: u64,
    /// Those of them that are longer than a page of 4 KiB.
    pub lists: u64,
    /// Pages in those beyond the first of each.
    pub further_pages: u64,
    /// Requests ended.
    pub ends: u64,
}

impl Steps {
    /// What was done since `earlier`.
    pub fn since(&self, earlier: &Steps) -> Steps {
        Steps {
            bios: self.bios - earlier.bios,
            merge_looks: self.merge_looks - earlier.merge_looks,
            inserts: self.inserts - earlier.inserts,
            asks: self.asks - earlier.asks,
            issues: self.issues - earlier.issues,
            lists: self.lists - earlier.lists,
            further_pages: self.further_pages - earlier.further_pages,
            ends: self.ends - earlier.ends,
        }
    }
}
