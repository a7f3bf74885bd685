//! How long each request takes, here and in the kernel, from `block_getrq` to its end.
//!
//! What the drive and the CPU take is the trace's: ours waits as long as our block layer has
//! it wait, and then takes as long as the recorded one did from its issue.

use std::collections::BTreeMap;

use crate::report::Tally;

/// The name of the count.
pub(crate) const KIND: &str = "latency within 10 %";

/// What the times of a request are known of, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Times {
    made: Option<u64>,
    issued: Option<u64>,
}

impl Times {
    /// How long the request waited.
    fn waited_ns(self) -> Option<u64> {
        Some(self.issued?.saturating_sub(self.made?))
    }
}

/// A request of ours, and the kernel's that was compared with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Pair {
    ours: Times,
    kernel: Times,
}

impl Pair {
    /// Whether ours takes as long as the kernel's, give or take a tenth.
    fn is_near(self, end_ns: u64) -> Option<bool> {
        let recorded_ns = end_ns.saturating_sub(self.kernel.made?);
        let waited = self.ours.waited_ns().zip(self.kernel.waited_ns());
        let off = waited.map(|(ours, kernel)| ours.abs_diff(kernel));
        Some(off.is_some_and(|off_ns| off_ns <= recorded_ns / 10))
    }
}

/// Requests that have not ended, by the serial numbers of ours, and what was counted.
#[derive(Debug)]
pub(super) struct Latencies {
    open: BTreeMap<u64, Pair>,
    tally: Tally,
}

impl Latencies {
    pub(super) fn new() -> Latencies {
        Latencies {
            open: BTreeMap::new(),
            tally: Tally {
                kind: KIND,
                agreed: 0,
                compared: 0,
            },
        }
    }

    pub(super) fn tally(&self) -> Tally {
        self.tally
    }

    fn pair(&mut self, serial: u64) -> &mut Pair {
        self.open.entry(serial).or_default()
    }

    /// Our request was made.
    pub(super) fn made(&mut self, serial: u64, at_ns: u64) {
        self.pair(serial).ours.made = Some(at_ns);
    }

    /// Our request went to the drive. That of a flush sequence may do so more than once.
    pub(super) fn issued(&mut self, serial: u64, at_ns: u64) {
        self.pair(serial).ours.issued = Some(at_ns);
    }

    /// The kernel made the same request.
    pub(super) fn kernel_made(&mut self, serial: u64, at_ns: u64) {
        self.pair(serial).kernel.made = Some(at_ns);
    }

    /// The kernel's went to the drive.
    pub(super) fn kernel_issued(&mut self, serial: u64, at_ns: u64) {
        self.pair(serial).kernel.issued = Some(at_ns);
    }

    /// The kernel made a request that we did not.
    pub(super) fn only_kernel_made(&mut self) {
        self.tally.compared += 1;
    }

    /// Both made the request part of another.
    pub(super) fn merged(&mut self, serial: u64) {
        self.open.remove(&serial);
    }

    /// The drive is done with the request, with the kernel's at this moment.
    pub(super) fn ended(&mut self, serial: u64, at_ns: u64) {
        let pair = self.open.remove(&serial).unwrap_or_default();
        if let Some(near) = pair.is_near(at_ns) {
            self.tally.compared += 1;
            self.tally.agreed += u64::from(near);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request that the kernel held for 2 ms and its drive for 8 ms.
    fn held_for(ours_ns: u64) -> Latencies {
        let mut latencies = Latencies::new();
        latencies.made(7, 500);
        latencies.kernel_made(7, 1_000);
        latencies.issued(7, 500 + ours_ns);
        latencies.kernel_issued(7, 2_001_000);
        latencies.ended(7, 10_001_000);
        latencies
    }

    fn counted(latencies: &Latencies) -> (u64, u64) {
        (latencies.tally().agreed, latencies.tally().compared)
    }

    #[test]
    fn a_tenth_of_the_whole_latency_is_near() {
        for (held_ns, near) in [(2_000_000, 1), (1_000_000, 1), (999_999, 0), (3_000_001, 0)] {
            assert_eq!(counted(&held_for(held_ns)), (near, 1), "{held_ns}");
        }
    }

    #[test]
    fn a_request_of_one_side_is_not_near() {
        let mut latencies = Latencies::new();
        latencies.only_kernel_made();
        assert_eq!(counted(&latencies), (0, 1));
        latencies.made(1, 0);
        latencies.issued(1, 10);
        latencies.ended(1, 90);
        assert_eq!(counted(&latencies), (0, 1));
        latencies.made(2, 0);
        latencies.kernel_made(2, 0);
        latencies.issued(2, 10);
        latencies.ended(2, 90);
        assert_eq!(counted(&latencies), (0, 2));
    }

    #[test]
    fn what_both_merged_away_is_not_counted() {
        let mut latencies = Latencies::new();
        latencies.made(1, 0);
        latencies.kernel_made(1, 0);
        latencies.merged(1);
        latencies.ended(1, 90);
        assert_eq!(counted(&latencies), (0, 0));
    }
}
