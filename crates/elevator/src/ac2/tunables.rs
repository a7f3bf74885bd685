//! The tunables of ac2.

use blklab_blk::{Tunable, Unit};

pub(super) const DIES: usize = 0;
pub(super) const STRIPE_KB: usize = 1;
pub(super) const BLOCK_KB: usize = 2;
pub(super) const WRITE_WEIGHT: usize = 3;
pub(super) const LIGHT_DEPTH: usize = 4;
pub(super) const READS_RUN: usize = 5;
pub(super) const WRITE_RUN: usize = 6;
pub(super) const WRITE_SHARE: usize = 7;
pub(super) const TAG_SHARE: usize = 8;
pub(super) const DIE_DEPTH: usize = 9;
pub(super) const BATCH_LIMIT: usize = 10;
/// Index of the first of four, by kind.
pub(super) const EXPIRE: usize = 11;
pub(super) const OVERTAKE: usize = 15;
pub(super) const READ_LEAD: usize = 16;
pub(super) const RANGES: usize = 17;

pub(super) const MAX_DIES: usize = 64;

pub(super) const COUNT: (i64, i64) = (0, i32::MAX as i64);
pub(super) const AT_LEAST_ONE: (i64, i64) = (1, i32::MAX as i64);

/// The tunables.
pub const TUNABLES: &[Tunable] = &[
    Tunable::new(
        "dies",
        Unit::Count,
        (1, MAX_DIES as i64),
        16,
        "parts of the drive that work at once: its dies times the dies on each",
    ),
    Tunable::new(
        "stripe_kb",
        Unit::Kib,
        (1, 1 << 30),
        16,
        "KiB after which the next die follows: the flash's page",
    ),
    Tunable::new(
        "block_kb",
        Unit::Kib,
        (4, 1 << 20),
        1024,
        "the drive's erase block, whose writes go together",
    ),
    Tunable::new(
        "write_weight",
        Unit::Count,
        (0, 31),
        4,
        "how many reads a write in the drive counts as in its die's load",
    ),
    Tunable::new(
        "light_depth",
        Unit::Count,
        COUNT,
        1,
        "requests outstanding up to which a submitter's reads go first",
    ),
    Tunable::new(
        "reads_run",
        Unit::Count,
        COUNT,
        4,
        "reads of light submitters that may go in a row while writes wait",
    ),
    Tunable::new(
        "write_run",
        Unit::Count,
        AT_LEAST_ONE,
        1,
        "writes that then go in a row",
    ),
    Tunable::new(
        "write_share",
        Unit::Percent,
        (1, 100),
        100,
        "part of the drive's queue that writes may take while there are reads",
    ),
    Tunable::new(
        "tag_share",
        Unit::Percent,
        (1, 100),
        75,
        "part of the scheduler's tags for writes while there are reads or whose submitter has more than an even share, and for deep submitters' reads while there are light ones",
    ),
    Tunable::new(
        "die_depth",
        Unit::Count,
        COUNT,
        2,
        "requests on a die in the drive with which deep submitters' reads wait while there are light ones; 0: never",
    ),
    Tunable::new(
        "batch_limit",
        Unit::Count,
        COUNT,
        8,
        "dispatches between two checks for late requests",
    ),
    Tunable::new(
        "sync_read_expire",
        Unit::Milliseconds,
        COUNT,
        100,
        "a synchronous read's deadline",
    ),
    Tunable::new(
        "async_read_expire",
        Unit::Milliseconds,
        COUNT,
        400,
        "an asynchronous read's deadline",
    ),
    Tunable::new(
        "sync_write_expire",
        Unit::Milliseconds,
        COUNT,
        400,
        "a synchronous write's deadline",
    ),
    Tunable::new(
        "async_write_expire",
        Unit::Milliseconds,
        COUNT,
        4_000,
        "an asynchronous write's deadline",
    ),
    Tunable::new(
        "overtake",
        Unit::Count,
        COUNT,
        20,
        "places in the order of arrival that a deep submitter's read loses for each request on its die",
    ),
    Tunable::new(
        "read_lead",
        Unit::Count,
        COUNT,
        32,
        "a deep submitter's read goes before a write that came at most this many requests earlier",
    ),
    Tunable::new(
        "ranges",
        Unit::Count,
        (1, MAX_DIES as i64),
        1,
        "contiguous ranges that the address space is cut into, each on dies of its own",
    ),
];
