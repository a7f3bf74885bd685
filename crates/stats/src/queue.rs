//! What the block layer and its scheduler count.

use crate::buckets::DepthBuckets;
use crate::histogram::Histogram;
/// Requests on their way through the block layer, as trace events tell it:
/// the split that biosnoop and btt show.
#[derive(Clone, Debug, Default)]
pub struct RequestStats {
    /// Requests by operation, size and process, in that order.
    pub kinds: Vec<RequestKind>,
    /// Requests in the drive when another was issued, that one included.
    pub depth_at_issue: DepthBuckets,
    /// Requests that were merged into others.
    pub merges: u64,
    /// Requests that the driver gave back.
    pub requeues: u64,
    /// Requests that ended in an error.
    pub errors: u64,
    /// Events that the trace is known to have lost.
    pub lost_events: u64,
    /// Completions whose issue is not in the trace; they are in no histogram.
    pub unmatched: u64,
}

/// Requests of one operation, size and process.
#[derive(Clone, Debug, Default)]
pub struct RequestKind {
    /// Index into the block layer's counters: read, write, discard, flush.
    pub op: usize,
    /// The largest size of this class: a power of two; zero for flushes.
    pub up_to_bytes: u64,
    /// The process that inserted or issued them.
    pub process: String,
    /// In the scheduler: from insert to issue.
    pub queued_ns: Histogram,
    /// In the drive: from issue to completion.
    pub drive_ns: Histogram,
    /// Both.
    pub whole_ns: Histogram,
}

/// The block layer's counters as the kernel shows them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueStats {
    /// Completed requests: reads, writes, discards, flushes.
    pub ios: [u64; 4],
    /// Bios merged into queued requests, and requests into each other.
    pub merges: [u64; 4],
    /// Sectors completed.
    pub sectors: [u64; 4],
    /// Time requests took in nanoseconds, summed.
    pub ticks_ns: [u64; 4],
    /// Time with at least one request in flight, in nanoseconds.
    pub io_ticks_ns: u64,
    /// In-flight requests times time, in nanoseconds.
    pub time_in_queue_ns: u64,
    /// Requests that failed.
    pub errors: u64,
    /// Requests put back by the driver.
    pub requeues: u64,
    /// One entry a hardware context.
    pub hctx: Vec<HwQueueStats>,
}

/// One hardware context's counters (debugfs `hctxN`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HwQueueStats {
    /// Times the queue was run.
    pub run: u64,
    /// Requests a dispatch: 0, 1, 2-3, 4-7, 8-15, 16-31, 32 and more.
    pub dispatched: [u64; 7],
    /// The busy average at the end.
    pub dispatch_busy: u32,
}

/// What a scheduler tells of its decisions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SchedulerStats {
    /// Named counts, in the order they should be shown.
    pub counters: Vec<Counter>,
}

/// A named count.
#[derive(Clone, Debug, PartialEq)]
pub struct Counter {
    /// What is counted, in words fit for a table head.
    pub name: &'static str,
    /// How many.
    pub value: u64,
}
