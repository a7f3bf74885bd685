//! The times of a program's system calls.

use serde::Serialize;

/// Times and errors of a program's calls of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CallTimes {
    /// The name of the call.
    pub call: &'static str,
    /// The number of calls.
    pub calls: u64,
    /// The number of calls that failed, as the list expected.
    pub errors: u64,
    /// The sum of the values that the successful calls returned: bytes, names, pages.
    pub returned: u64,
    /// The time of all calls.
    pub total_ns: u64,
    /// The time of the longest call.
    pub most_ns: u64,
    /// The part of the time in which a CPU worked for them.
    pub cpu_ns: u64,
    /// The part of the time in which they waited for a tag.
    pub tag_ns: u64,
    /// The part of the time in which they waited for anything else: pages and blocks that
    /// the drive read or wrote, locks, and throttling as dirtiers.
    pub waits_ns: u64,
    /// The part of `waits_ns` in which they were throttled as dirtiers.
    pub throttled_ns: u64,
}

impl CallTimes {
    /// Returns the counters before any call.
    pub fn new(call: &'static str) -> CallTimes {
        CallTimes {
            call,
            ..CallTimes::default()
        }
    }

    /// Counts a call that ended; `returned` is `None` for one that failed.
    pub fn ended(&mut self, took_ns: u64, returned: Option<u64>) {
        self.calls += 1;
        self.errors += u64::from(returned.is_none());
        self.returned += returned.unwrap_or(0);
        self.total_ns += took_ns;
        self.most_ns = self.most_ns.max(took_ns);
    }

    /// Adds the calls of another program.
    pub fn merge(&mut self, other: &CallTimes) {
        self.calls += other.calls;
        self.errors += other.errors;
        self.returned += other.returned;
        self.total_ns += other.total_ns;
        self.most_ns = self.most_ns.max(other.most_ns);
        self.cpu_ns += other.cpu_ns;
        self.tag_ns += other.tag_ns;
        self.waits_ns += other.waits_ns;
        self.throttled_ns += other.throttled_ns;
    }

    /// Returns the pages that calls of `cachestat` found in the page cache, summed; 0 for other
    /// calls.
    pub fn cached_pages(&self) -> u64 {
        match self.call {
            "cachestat" => self.returned,
            _ => 0,
        }
    }

    /// Returns the time for which they waited for the drive and for locks, in nanoseconds.
    pub fn drive_ns(&self) -> u64 {
        self.waits_ns.saturating_sub(self.throttled_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::CallTimes;

    #[test]
    fn merging_is_the_same_as_counting_together() {
        let calls = |ended: &[(u64, Option<u64>)]| {
            let mut times = CallTimes::new("read");
            for &(took_ns, returned) in ended {
                times.ended(took_ns, returned);
                times.cpu_ns += took_ns / 8;
                times.tag_ns += took_ns / 4;
                times.waits_ns += took_ns / 2;
                times.throttled_ns += took_ns / 5;
            }
            times
        };
        let all = [(800, Some(4096)), (400, None), (1600, Some(512))];
        let mut merged = calls(&all[..1]);
        merged.merge(&calls(&all[1..]));
        assert_eq!(merged, calls(&all));
        assert_eq!((merged.calls, merged.errors, merged.returned), (3, 1, 4608));
        assert_eq!((merged.most_ns, merged.drive_ns()), (1600, 1400 - 560));
        assert_eq!(merged.total_ns, 2800);
        let failed = calls(&[(5, None), (5, None), (5, None)]);
        assert_eq!((failed.calls, failed.errors, failed.returned), (3, 3, 0));
    }
}
