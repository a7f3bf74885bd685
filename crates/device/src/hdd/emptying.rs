//! How long it would take to write out what the buffer holds.
//!
//! A drive may not take minutes for a flush, so its firmware takes no more
//! writes than it can be rid of in a certain time, however large its DRAM. It
//! estimates that from the writes that it holds (Seagate, "Adaptive control of
//! write cache size in a storage device", US patent application 2016/0077974).

use super::HddSpec;

/// The estimate and its bound.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Emptying {
    /// What the heads have lately taken to get to a run, on average.
    positioning_ns: u64,
    limit_ns: u64,
}

/// The weight of the last run in the average: 1 over this.
const MEMORY: u64 = 32;

impl Emptying {
    pub(crate) fn new(spec: &HddSpec) -> Emptying {
        Emptying {
            positioning_ns: spec.average_seek_ns + spec.write_settle_ns + spec.turn_ns / 2,
            limit_ns: spec.cache.flush_limit_ns,
        }
    }

    /// A run was written after the heads took so long to get there.
    pub(crate) fn reached(&mut self, positioning_ns: u64) {
        self.positioning_ns = (self.positioning_ns * (MEMORY - 1) + positioning_ns) / MEMORY;
    }

    /// Whether so many runs, which take `transfer_ns` under the heads, need more
    /// than a share of the longest time: 1 over `parts`.
    pub(crate) fn exceeds(&self, runs: u64, transfer_ns: u64, parts: u64) -> bool {
        let needs_ns = runs
            .saturating_mul(self.positioning_ns)
            .saturating_add(transfer_ns);
        needs_ns > self.limit_ns / parts
    }
}
