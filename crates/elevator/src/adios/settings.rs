//! The tunables, and the sysfs files that are not a single number.

use alloc::format;
use alloc::string::{String, ToString};

use blklab_blk::{Attribute, Tunable, Unit};

use super::model::Model;
use super::{Adios, DISCARD, KINDS, READ, WRITE};

pub(super) const WINDOW: usize = 0;
pub(super) const REFILL_BELOW: usize = 1;
pub(super) const LATENCY_LIMIT: usize = 2;
pub(super) const BATCH_ORDER: usize = 3;
/// Index of the first of three, by kind.
pub(super) const BATCH_LIMIT: usize = 4;
/// Index of the first of three, by kind.
pub(super) const TARGET: usize = 7;
pub(super) const SHRINK_KREQS: usize = 10;
pub(super) const SHRINK_GBYTES: usize = 11;
pub(super) const SHRINK_RESIST: usize = 12;
pub(super) const READ_PRIORITY: usize = 13;
pub(super) const COMPLIANCE: usize = 14;

/// Nanoseconds of a day, longer than any meaningful window or target.
pub(super) const DAY_NS: i64 = 86_400_000_000_000;
pub(super) const BATCH_RANGE: (i64, i64) = (1, u32::MAX as i64);
pub(super) const TARGET_RANGE: (i64, i64) = (0, DAY_NS);
pub(super) const MS: i64 = 1_000_000;

/// The tunables, with the names and units of sysfs.
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

/// Version number that the source shows.
const VERSION: &str = "3.1.9";

const MODEL: &[&[&str]] = &[&["base in ns", "slope in ns/KiB"]];

const fn model(name: &'static str, help: &'static str) -> Attribute {
    Attribute {
        name,
        help,
        readable: true,
        takes: MODEL,
    }
}

/// The sysfs files that are not a single number.
pub const ATTRIBUTES: &[Attribute] = &[
    Attribute {
        name: "adios_version",
        help: "the version of the source",
        readable: true,
        takes: &[],
    },
    Attribute {
        name: "batch_actual_max",
        help: "most requests of a batch so far, in all and by kind",
        readable: true,
        takes: &[],
    },
    model("lat_model_read", "what a read takes"),
    model("lat_model_write", "what a write takes"),
    model("lat_model_discard", "what a discard takes"),
    Attribute {
        name: "reset_bq_stats",
        help: "makes batch_actual_max start anew",
        readable: false,
        takes: &[&["1"]],
    },
    Attribute {
        name: "reset_lat_model",
        help: "makes all models start anew, or from given numbers",
        readable: false,
        takes: &[
            &["1"],
            &[
                "base of reads",
                "slope",
                "base of writes",
                "slope",
                "base of discards",
                "slope",
            ],
        ],
    },
];

impl Adios {
    pub(super) fn show(&self, name: &str) -> Option<String> {
        let model = |kind: usize| {
            let model = &self.models[kind];
            let (base, slope) = (model.base_ns, model.slope_ns_per_kib);
            format!("base : {base} ns\nslope: {slope} ns/KiB")
        };
        Some(match name {
            "adios_version" => VERSION.to_string(),
            "batch_actual_max" => {
                let [read, write, discard, _] = self.largest_by_kind;
                let total = self.largest_batch;
                format!("Total  : {total}\nDiscard: {discard}\nRead   : {read}\nWrite  : {write}")
            }
            "lat_model_read" => model(READ),
            "lat_model_write" => model(WRITE),
            "lat_model_discard" => model(DISCARD),
            _ => return None,
        })
    }

    pub(super) fn store(&mut self, name: &str, numbers: &[u64]) {
        match (name, numbers) {
            ("lat_model_read", &[base, slope]) => self.write_model(READ, base, slope),
            ("lat_model_write", &[base, slope]) => self.write_model(WRITE, base, slope),
            ("lat_model_discard", &[base, slope]) => self.write_model(DISCARD, base, slope),
            ("reset_bq_stats", _) => {
                self.largest_batch = 0;
                self.largest_by_kind = [0; KINDS];
            }
            ("reset_lat_model", &[_]) => {
                for kind in 0..KINDS {
                    self.write_model(kind, 0, 0);
                }
            }
            ("reset_lat_model", pairs) => {
                for (kind, pair) in pairs.chunks_exact(2).enumerate() {
                    self.write_model(kind, pair[0], pair[1]);
                }
            }
            _ => {}
        }
    }

    /// Replaces a model; the gathered samples of all kinds are lost with it.
    fn write_model(&mut self, kind: usize, base_ns: u64, slope_ns_per_kib: u64) {
        self.models[kind] = Model::written(base_ns, slope_ns_per_kib);
        self.gathered.clear();
    }
}
