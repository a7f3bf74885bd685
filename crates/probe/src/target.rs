//! The interface of a probed drive: it runs I/Os and returns their times.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{RngCore, SeedableRng};

/// An I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Io {
    /// Whether it writes.
    pub is_write: bool,
    /// Offset in bytes.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
}

impl Io {
    /// Returns a read.
    pub fn read(offset: u64, bytes: u64) -> Io {
        Io {
            is_write: false,
            offset,
            bytes,
        }
    }

    /// Returns a write.
    pub fn write(offset: u64, bytes: u64) -> Io {
        Io {
            is_write: true,
            offset,
            bytes,
        }
    }
}

/// Times of a batch of I/Os.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// Time from the first submission to the last completion, in nanoseconds.
    pub elapsed_ns: u64,
    /// Latency of each I/O in the given order, in nanoseconds.
    pub latencies_ns: Vec<u64>,
    /// Completion time of each I/O since the start of the batch, in nanoseconds.
    pub ended_ns: Vec<u64>,
}

/// The reason why a probe ended early.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The drive failed an I/O.
    #[error("{0}")]
    Io(String),
    /// A signal such as Ctrl-C.
    #[error("stopped by {0}")]
    Interrupted(&'static str),
}

/// A drive to be probed. Writes destroy its data.
pub trait Target {
    /// Size in bytes.
    fn capacity_bytes(&self) -> u64;

    /// Length of the smallest I/O, in bytes.
    fn block_bytes(&self) -> u64;

    /// Whether it has moving parts, as far as it reports.
    fn is_rotational(&self) -> bool;

    /// Where it is reported whether it has moving parts, for a sentence that goes on with
    /// "says that".
    fn rotational_source(&self) -> String;

    /// Runs the I/Os in order, at most `depth` at once.
    fn run(&mut self, ios: &[Io], depth: usize) -> Result<Batch, ProbeError>;

    /// Leaves the drive idle for `ns`, so that it can finish deferred work.
    fn rest(&mut self, ns: u64);
}

/// Random positions, reproducible from the seed.
#[derive(Debug)]
pub struct Places(Xoshiro256PlusPlus);

impl Places {
    /// Returns a generator with this seed.
    pub fn new(seed: u64) -> Places {
        Places(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    /// Returns a multiple of `align` at which `room` bytes fit below `capacity`.
    pub fn aligned(&mut self, align: u64, room: u64, capacity: u64) -> u64 {
        let places = (capacity.saturating_sub(room) / align.max(1)).max(1);
        self.0.next_u64() % places * align
    }
}
