//! What a user can set.

use blklab_blk::{Tunable, Unit};

pub(super) const WINDOW: usize = 0;
pub(super) const REFILL_BELOW: usize = 1;
pub(super) const LATENCY_LIMIT: usize = 2;
pub(super) const BATCH_ORDER: usize = 3;
/// The first of three, by kind.
pub(super) const BATCH_LIMIT: usize = 4;
/// The first of three, by kind.
pub(super) const TARGET: usize = 7;
pub(super) const SHRINK_KREQS: usize = 10;
pub(super) const SHRINK_GBYTES: usize = 11;
pub(super) const SHRINK_RESIST: usize = 12;
pub(super) const READ_PRIORITY: usize = 13;
pub(super) const COMPLIANCE: usize = 14;

/// A day: longer than any window or target that means something.
pub(super) const DAY_NS: i64 = 86_400_000_000_000;
pub(super) const BATCH_RANGE: (i64, i64) = (1, u32::MAX as i64);
pub(super) const TARGET_RANGE: (i64, i64) = (0, DAY_NS);
pub(super) const MS: i64 = 1_000_000;

/// What a user can set, by sysfs's names and units.
pub const TUNABLES: &[Tunable] = &[
    Tunable::new(
        "global_latency_window",
        Unit::Nanoseconds,
        (0, DAY_NS),
        16 * MS,
        "predicted time that the drive is given work for; 22 ms on a drive with moving parts",
    ),
    Tunable::new(
        "bq_refill_below_ratio",
        Unit::Percent,
        (0, 100),
        20,
        "part of the window below which the next batch is made",
    ),
    Tunable::new(
        "lat_model_latency_limit",
        Unit::Nanoseconds,
        (0, 2_000_000_000),
        500 * MS,
        "longest time that the models learn from",
    ),
    Tunable::new(
        "batch_order",
        Unit::Bool,
        (0, 1),
        0,
        "1: asynchronous requests of a batch by sector; only on drives with moving parts",
    ),
    Tunable::new(
        "batch_limit_read",
        Unit::Count,
        BATCH_RANGE,
        36,
        "reads of a batch",
    ),
    Tunable::new(
        "batch_limit_write",
        Unit::Count,
        BATCH_RANGE,
        72,
        "writes of a batch",
    ),
    Tunable::new(
        "batch_limit_discard",
        Unit::Count,
        BATCH_RANGE,
        1,
        "discards of a batch",
    ),
    Tunable::new(
        "lat_target_read",
        Unit::Nanoseconds,
        TARGET_RANGE,
        2 * MS,
        "how far off an asynchronous read's deadline is",
    ),
    Tunable::new(
        "lat_target_write",
        Unit::Nanoseconds,
        TARGET_RANGE,
        2_000 * MS,
        "how far off an asynchronous write's deadline is",
    ),
    Tunable::new(
        "lat_target_discard",
        Unit::Nanoseconds,
        TARGET_RANGE,
        8_000 * MS,
        "how far off a discard's deadline is",
    ),
    Tunable::new(
        "shrink_at_kreqs",
        Unit::Count,
        (1, 100_000),
        5_000,
        "thousands of small requests at which a model forgets a part",
    ),
    Tunable::new(
        "shrink_at_gbytes",
        Unit::Count,
        (1, 1_000),
        50,
        "GiB of large requests at which a model forgets a part",
    ),
    Tunable::new(
        "shrink_resist",
        Unit::Count,
        (1, 3),
        2,
        "how little it forgets: half to this power",
    ),
    Tunable::new(
        "read_priority",
        Unit::Count,
        (-20, 19),
        8,
        "how much reads are preferred at about the same deadline",
    ),
    Tunable::new(
        "compliance_flags",
        Unit::Count,
        (0, i64::MAX),
        0,
        "bit 0: asynchronous requests are not reordered by what they are predicted to take",
    ),
];
