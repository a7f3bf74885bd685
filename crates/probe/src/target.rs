//! What is probed: a drive that takes I/Os and tells how long they took.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{RngCore, SeedableRng};

/// One I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Io {
    /// Whether it writes.
    pub is_write: bool,
    /// Where it starts, in bytes.
    pub offset: u64,
    /// Its length in bytes.
    pub bytes: u64,
}

impl Io {
    /// A read.
    pub fn read(offset: u64, bytes: u64) -> Io {
        Io {
            is_write: false,
            offset,
            bytes,
        }
    }

    /// A write.
    pub fn write(offset: u64, bytes: u64) -> Io {
        Io {
            is_write: true,
            offset,
            bytes,
        }
    }
}

/// How a batch went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// From the first submission to the last end.
    pub elapsed_ns: u64,
    /// Each I/O's time, in the order given.
    pub latencies_ns: Vec<u64>,
    /// When each ended, from the batch's start.
    pub ended_ns: Vec<u64>,
}

/// Why a probe ended early.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The drive failed an I/O.
    #[error("{0}")]
    Io(String),
    /// Ctrl-C or the like.
    #[error("stopped by {0}")]
    Interrupted(&'static str),
}

/// A drive under test. Writes destroy what is on it.
pub trait Target {
    /// Its size.
    fn capacity_bytes(&self) -> u64;

    /// The smallest I/O it takes.
    fn block_bytes(&self) -> u64;

    /// Whether it has moving parts, as far as it tells.
    fn is_rotational(&self) -> bool;

    /// Does the I/Os in order, at most `depth` at once.
    fn run(&mut self, ios: &[Io], depth: usize) -> Result<Batch, ProbeError>;

    /// Leaves the drive alone, so that it can finish what it put off.
    fn rest(&mut self, ns: u64);
}

/// Places to try, the same for the same seed.
#[derive(Debug)]
pub struct Places(Xoshiro256PlusPlus);

impl Places {
    /// A stream of its own.
    pub fn new(seed: u64) -> Places {
        Places(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    /// A multiple of `align` at which `room` bytes fit below `capacity`.
    pub fn aligned(&mut self, align: u64, room: u64, capacity: u64) -> u64 {
        let places = (capacity.saturating_sub(room) / align.max(1)).max(1);
        self.0.next_u64() % places * align
    }
}
