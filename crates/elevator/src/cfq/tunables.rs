//! The tunables of cfq.

use blklab_blk::{HZ, Tunable, Unit};

pub(super) const QUANTUM: usize = 0;
pub(super) const FIFO_EXPIRE_SYNC: usize = 1;
pub(super) const FIFO_EXPIRE_ASYNC: usize = 2;
pub(super) const BACK_SEEK_MAX: usize = 3;
pub(super) const BACK_SEEK_PENALTY: usize = 4;
pub(super) const SLICE_SYNC: usize = 5;
pub(super) const SLICE_ASYNC: usize = 6;
pub(super) const SLICE_ASYNC_RQ: usize = 7;
pub(super) const SLICE_IDLE: usize = 8;
pub(super) const GROUP_IDLE: usize = 9;
pub(super) const LOW_LATENCY: usize = 10;
pub(super) const TARGET_LATENCY: usize = 11;

const U32: i64 = u32::MAX as i64;

/// The tunables, with the order, names and units of sysfs. The kernel keeps times in ticks and shows
/// what whole ticks make.
pub const TUNABLES: &[Tunable] = &[
    Tunable::new(
        "quantum",
        Unit::Count,
        (1, U32),
        8,
        "requests of a queue in the drive at once",
    ),
    Tunable::new(
        "fifo_expire_sync",
        Unit::Milliseconds,
        (1, U32),
        HZ / 8 * (1000 / HZ),
        "a synchronous request's deadline",
    ),
    Tunable::new(
        "fifo_expire_async",
        Unit::Milliseconds,
        (1, U32),
        HZ / 4 * (1000 / HZ),
        "an asynchronous request's deadline",
    ),
    Tunable::new(
        "back_seek_max",
        Unit::Kib,
        (0, U32),
        16 * 1024,
        "how far back from the head a request may lie to be next",
    ),
    Tunable::new(
        "back_seek_penalty",
        Unit::Count,
        (1, U32),
        2,
        "cost of a distance back against one ahead",
    ),
    Tunable::new(
        "slice_sync",
        Unit::Milliseconds,
        (1, U32),
        100,
        "a synchronous queue's slice at priority 4",
    ),
    Tunable::new(
        "slice_async",
        Unit::Milliseconds,
        (1, U32),
        40,
        "an asynchronous queue's slice at priority 4",
    ),
    Tunable::new(
        "slice_async_rq",
        Unit::Count,
        (1, U32),
        2,
        "requests of an asynchronous slice, before priority scales them",
    ),
    Tunable::new(
        "slice_idle",
        Unit::Milliseconds,
        (0, U32),
        8,
        "how long the drive idles for an empty queue's next request; 0 on a drive without moving parts",
    ),
    Tunable::new(
        "group_idle",
        Unit::Milliseconds,
        (0, U32),
        8,
        "the same for the only queue of a group",
    ),
    Tunable::new(
        "low_latency",
        Unit::Bool,
        (0, 1),
        1,
        "scale slices to target_latency, send asynchronous requests gradually",
    ),
    Tunable::new(
        "target_latency",
        Unit::Milliseconds,
        (1, U32),
        300,
        "time in which each queue gets a slice",
    ),
];
