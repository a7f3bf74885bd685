//! Where the time of a program's calls went.

use serde::Serialize;

/// What became of a program's calls of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CallTimes {
    /// The call.
    pub call: &'static str,
    /// How often it was made.
    pub calls: u64,
    /// How often it failed, as it had to.
    pub errors: u64,
    /// How long all of them took.
    pub total_ns: u64,
    /// The longest.
    pub most_ns: u64,
    /// What of the time a CPU worked for them.
    pub cpu_ns: u64,
    /// What of it they waited for a request of the queue.
    pub tag_ns: u64,
    /// What of it they waited otherwise: for pages and blocks that the drive reads or
    /// writes, for locks, and while writers are held back.
    pub waits_ns: u64,
    /// What of that last writers were held back for because too much was dirty.
    pub throttled_ns: u64,
}

impl CallTimes {
    /// No call yet.
    pub fn new(call: &'static str) -> CallTimes {
        CallTimes {
            call,
            ..CallTimes::default()
        }
    }

    /// A call is over.
    pub fn ended(&mut self, took_ns: u64, has_failed: bool) {
        self.calls += 1;
        self.errors += u64::from(has_failed);
        self.total_ns += took_ns;
        self.most_ns = self.most_ns.max(took_ns);
    }

    /// Adds those of another program.
    pub fn merge(&mut self, other: &CallTimes) {
        self.calls += other.calls;
        self.errors += other.errors;
        self.total_ns += other.total_ns;
        self.most_ns = self.most_ns.max(other.most_ns);
        self.cpu_ns += other.cpu_ns;
        self.tag_ns += other.tag_ns;
        self.waits_ns += other.waits_ns;
        self.throttled_ns += other.throttled_ns;
    }

    /// What they waited for the drive and for locks, in nanoseconds.
    pub fn drive_ns(&self) -> u64 {
        self.waits_ns.saturating_sub(self.throttled_ns)
    }
}
