//! Files of the scheduler's sysfs folder that are not one number.

use blklab_blk::Attribute;

use super::model::{Model, Samples};
use super::{Adios, DISCARD, KINDS, READ, WRITE};

/// What the source calls itself.
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

/// By sysfs's names.
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

    /// The samples of all kinds that no model has taken in are lost with it.
    fn write_model(&mut self, kind: usize, base_ns: u64, slope_ns_per_kib: u64) {
        self.models[kind] = Model::written(base_ns, slope_ns_per_kib);
        self.gathered = Samples::EMPTY;
    }
}
