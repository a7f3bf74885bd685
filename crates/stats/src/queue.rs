//! The counters of the block layer and its scheduler.

use alloc::string::String;
use alloc::vec::Vec;

use serde::ser::{SerializeMap, Serializer};
use serde::{Deserialize, Serialize};

use crate::buckets::DepthBuckets;
use crate::fact::{Fact, Place, Unit, Value, ratio};
use crate::histogram::Histogram;
use crate::results::DiskStats;

/// The block layer's operations in the order of its counters.
pub const OPERATIONS: [&str; 4] = ["read", "write", "discard", "flush"];

/// Indices into [`OPERATIONS`].
const DISCARD: usize = 2;
const FLUSH: usize = 3;

/// The times of requests in the scheduler and in the drive, from trace events, as biosnoop
/// and btt show them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RequestStats {
    /// Requests by operation, size and process, in that order.
    pub kinds: Vec<RequestKind>,
    /// Requests in the drive when a request was issued, itself included.
    pub depth_at_issue: DepthBuckets,
    /// Requests that were merged into others.
    pub merges: u64,
    /// Requests that the driver returned to be dispatched again.
    pub requeues: u64,
    /// Requests that ended in an error.
    pub errors: u64,
    /// Events that the trace is known to have lost.
    pub lost_events: u64,
    /// Completions whose issue is not in the trace; they are in no histogram.
    pub unmatched: u64,
}

/// Requests of one operation, size and process.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RequestKind {
    /// The index of the operation in [`OPERATIONS`].
    pub op: usize,
    /// The upper bound of this size class: a power of two; zero for flushes.
    pub up_to_bytes: u64,
    /// The process that inserted or issued the requests.
    pub process: String,
    /// Time in the scheduler, from insert to issue.
    pub queued_ns: Histogram,
    /// Time in the drive, from issue to completion.
    pub drive_ns: Histogram,
    /// Time from insert to completion.
    pub whole_ns: Histogram,
}

/// The block layer's counters as the kernel shows them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct QueueStats {
    /// Completed requests by operation.
    #[serde(serialize_with = "by_operation")]
    pub ios: [u64; 4],
    /// Bios merged into queued requests, and requests into each other.
    #[serde(serialize_with = "by_operation")]
    pub merges: [u64; 4],
    /// Sectors completed.
    #[serde(serialize_with = "by_operation")]
    pub sectors: [u64; 4],
    /// Time that requests took in nanoseconds, summed.
    #[serde(serialize_with = "by_operation")]
    pub ticks_ns: [u64; 4],
    /// Time with at least one request in flight, in nanoseconds.
    pub io_ticks_ns: u64,
    /// Requests in flight times time, in nanoseconds.
    pub time_in_queue_ns: u64,
    /// Time for which other requests were in flight during a flush, summed over these
    /// requests, in nanoseconds; zero if not measured.
    pub behind_flush_ns: u64,
    /// Writes with FUA, which bypass the drive's cache; zero if not measured.
    pub fua_ios: u64,
    /// Time that writes with FUA took, summed, in nanoseconds.
    pub fua_ticks_ns: u64,
    /// Requests that failed.
    pub errors: u64,
    /// Requests that the driver returned to be dispatched again.
    pub requeues: u64,
    /// One entry for each hardware context.
    pub hctx: Vec<HwQueueStats>,
}

/// One hardware context's counters (debugfs `hctxN`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HwQueueStats {
    /// Number of runs of the queue.
    pub run: u64,
    /// Dispatches by their number of requests: 0, 1, 2-3, 4-7, 8-15, 16-31, 32 and more.
    #[serde(serialize_with = "by_batch")]
    pub dispatched: [u64; 7],
    /// The busy average at the end.
    pub dispatch_busy: u32,
}

/// A scheduler's own counters of its decisions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SchedulerStats {
    /// The counters, in the order in which they are shown.
    pub counters: Vec<Counter>,
}

/// A named count.
#[derive(Clone, Debug, PartialEq)]
pub struct Counter {
    /// The name, as a table's heading.
    pub name: &'static str,
    /// The count.
    pub value: u64,
}

/// A map of counts by the counters' names.
impl Serialize for SchedulerStats {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        named(self.counters.iter().map(|c| (c.name, c.value)), serializer)
    }
}

pub(crate) fn by_operation<S: Serializer>(counts: &[u64; 4], s: S) -> Result<S::Ok, S::Error> {
    named(OPERATIONS.into_iter().zip(*counts), s)
}

fn by_batch<S: Serializer>(counts: &[u64; 7], s: S) -> Result<S::Ok, S::Error> {
    let batches = ["0", "1", "2", "4", "8", "16", "32+"];
    named(batches.into_iter().zip(*counts), s)
}

fn named<S: Serializer>(
    counts: impl Iterator<Item = (&'static str, u64)>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(None)?;
    for (name, count) in counts {
        map.serialize_entry(name, &count)?;
    }
    map.end()
}

impl QueueStats {
    fn requests(disk: &DiskStats) -> Option<u64> {
        Some(disk.queue.ios.iter().sum())
    }

    /// Returns the number of dispatches by size class, from index `requests` of
    /// `dispatched` on.
    fn dispatches(&self, requests: usize) -> u64 {
        let batches = self.hctx.iter().flat_map(|h| &h.dispatched[requests..]);
        batches.sum()
    }
}

/// Returns all facts of the block layer's queue.
pub(crate) fn facts() -> impl Iterator<Item = Fact> {
    let before = request_facts().into_iter().chain(flush_facts());
    before.chain(discard_and_error_facts())
}

/// A fact of the queue's.
pub(crate) fn fact(
    key: &'static str,
    unit: Unit,
    label: &'static str,
    meaning: &'static str,
    value: Value,
) -> Fact {
    Fact {
        place: Place::Queue,
        key,
        label,
        unit,
        meaning,
        value,
    }
}

/// Returns the facts on requests, their merges and their dispatch.
fn request_facts() -> [Fact; 6] {
    [
        fact(
            "queue_requests",
            Unit::Count,
            "requests to the drive",
            "Requests that the block layer completed.",
            Value::Sum(QueueStats::requests),
        ),
        fact(
            "queue_request_bytes",
            Unit::Bytes,
            "mean size of a request",
            "Bytes of a completed request, mean.",
            Value::Quotient(
                |disk| Some(disk.queue.sectors.iter().sum::<u64>() * 512),
                QueueStats::requests,
            ),
        ),
        fact(
            "queue_read_merges",
            Unit::Count,
            "merges of reads",
            "Reads merged into queued requests, and queued reads into each other.",
            Value::Sum(|disk| Some(disk.queue.merges[0])),
        ),
        fact(
            "queue_write_merges",
            Unit::Count,
            "merges of writes",
            "Writes merged into queued requests, and queued writes into each other.",
            Value::Sum(|disk| Some(disk.queue.merges[1])),
        ),
        fact(
            "queue_batch_share",
            Unit::Share,
            "dispatches of more than one request",
            "Share of the dispatches with at least one request that took more than one.",
            Value::Quotient(
                |disk| Some(disk.queue.dispatches(2)),
                |disk| Some(disk.queue.dispatches(1)),
            ),
        ),
        fact(
            "queue_in_flight",
            Unit::Ratio,
            "requests in scheduler and drive, mean",
            "Requests from start to completion, those that wait in a scheduler among them, mean over \
             the time. I/Os that wait for a tag are not counted: under none this is where they wait.",
            Value::Run(|run| {
                let waits = run.disks.iter().map(|disk| disk.queue.time_in_queue_ns);
                ratio(waits.sum::<u64>() as f64, run.counted_ns())
            }),
        ),
    ]
}

/// Returns the facts on flushes and writes past the drive's cache.
fn flush_facts() -> [Fact; 7] {
    [
        fact(
            "queue_flushes",
            Unit::Count,
            "flushes",
            "Requests for the drive to write its volatile cache to the medium, for fsync, \
             fdatasync and writes with PREFLUSH or FUA.",
            Value::Sum(|disk| Some(disk.queue.ios[FLUSH])),
        ),
        fact(
            "queue_flush_ns",
            Unit::Nanoseconds,
            "  one took, mean",
            "Time of a flush from its start in the block layer to its completion, mean.",
            Value::Quotient(
                |disk| Some(disk.queue.ticks_ns[FLUSH]),
                |disk| Some(disk.queue.ios[FLUSH]),
            ),
        ),
        fact(
            "queue_flush_time_ns",
            Unit::Nanoseconds,
            "  they took, in all",
            "Time of all flushes, summed; callers of fsync wait at least for their own.",
            Value::Sum(|disk| Some(disk.queue.ticks_ns[FLUSH])),
        ),
        fact(
            "queue_behind_flush_ns",
            Unit::Nanoseconds,
            "  others waited beside them, in all",
            "Time for which other requests were in flight during a flush, summed over these \
             requests: the most by which flushes can have delayed them.",
            Value::Sum(|disk| Some(disk.queue.behind_flush_ns)),
        ),
        fact(
            "queue_behind_flush_share",
            Unit::Share,
            "  of the others' time",
            "Share of the in-flight time of reads and writes that passed during a flush.",
            Value::Quotient(
                |disk| Some(disk.queue.behind_flush_ns),
                |disk| Some(disk.queue.ticks_ns[..DISCARD].iter().sum()),
            ),
        ),
        fact(
            "queue_fua_writes",
            Unit::Count,
            "writes past the drive's cache",
            "Writes with FUA, which complete when the data is on the medium: for O_SYNC and \
             O_DSYNC, if the drive supports FUA.",
            Value::Sum(|disk| Some(disk.queue.fua_ios)),
        ),
        fact(
            "queue_fua_ns",
            Unit::Nanoseconds,
            "  one took, mean",
            "Time of a write with FUA from its start in the block layer to its completion, mean.",
            Value::Quotient(
                |disk| Some(disk.queue.fua_ticks_ns),
                |disk| Some(disk.queue.fua_ios),
            ),
        ),
    ]
}

/// Returns the facts on discards, requeues and errors.
fn discard_and_error_facts() -> [Fact; 4] {
    [
        fact(
            "queue_discards",
            Unit::Count,
            "discards",
            "Requests that tell the drive which sectors are no longer used.",
            Value::Sum(|disk| Some(disk.queue.ios[DISCARD])),
        ),
        fact(
            "queue_discard_ns",
            Unit::Nanoseconds,
            "  one took, mean",
            "Time of a discard from its start in the block layer to its completion, mean.",
            Value::Quotient(
                |disk| Some(disk.queue.ticks_ns[DISCARD]),
                |disk| Some(disk.queue.ios[DISCARD]),
            ),
        ),
        fact(
            "queue_requeues",
            Unit::Count,
            "requeues",
            "Requests that the driver returned to be dispatched again.",
            Value::Sum(|disk| Some(disk.queue.requeues)),
        ),
        fact(
            "queue_errors",
            Unit::Count,
            "failed requests",
            "Requests that failed.",
            Value::Sum(|disk| Some(disk.queue.errors)),
        ),
    ]
}
