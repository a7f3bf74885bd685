//! The JSON file beside a recorded trace, which describes the recording.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;

use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, Visitor};

use crate::trace::error::TraceError;

/// The description of a recording. Unknown keys are ignored.
#[derive(Clone, Debug, Deserialize)]
pub struct RunInfo {
    /// The run's name, which is the file's name without its extension.
    pub name: String,
    /// The I/O scheduler.
    pub scheduler: String,
    /// The kernel's version.
    #[serde(default)]
    pub kernel: String,
    /// The number of CPUs.
    #[serde(default = "one")]
    pub smp: u32,
    /// The drive traced, as `major,minor`.
    #[serde(default)]
    pub dev: String,
    /// The queue's attributes at the start.
    pub queue: QueueAttributes,
    /// The values written to the queue's attributes, in order.
    #[serde(default, deserialize_with = "pairs_in_order")]
    pub queue_set: Vec<(String, String)>,
    /// The parameters of the null_blk module.
    #[serde(default)]
    pub null_blk_parameters: BTreeMap<String, String>,
    /// The tag sets as debugfs shows them, with `name=value` lines: the scheduler's first, if it
    /// has one, then the driver's.
    #[serde(default)]
    pub hctx_debugfs: Vec<String>,
    /// The counts of calls of the scheduler's `dispatch_request`.
    #[serde(default)]
    pub dispatch_calls: DispatchCalls,
    /// The fio job that ran.
    #[serde(default)]
    pub fio_job: String,
    /// The values written to files of control groups, as path and text, in order.
    #[serde(default)]
    pub cgroup_files: Vec<(String, String)>,
    /// The paths of the control groups below the root, with `io.bfq.weight` if it was set.
    #[serde(default, deserialize_with = "cgroups")]
    pub cgroups: BTreeMap<String, Option<u32>>,
    /// The probes that were set, in the form of tracefs' `dynamic_events`.
    #[serde(default)]
    pub probes: Vec<String>,
}

/// The counts of calls of a scheduler's `dispatch_request`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct DispatchCalls {
    /// The number of calls.
    pub entry: u64,
    /// The number of returns.
    #[serde(rename = "return")]
    pub returned: u64,
    /// The number of returns without a request.
    pub null: u64,
}

/// A queue's sysfs attributes.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "BTreeMap<String, String>")]
pub struct QueueAttributes {
    /// The number of requests that the scheduler may hold or, without one, of driver tags.
    pub nr_requests: u32,
    /// The largest request, in KiB.
    pub max_sectors_kb: u32,
    /// The most memory segments of a request.
    pub max_segments: u32,
    /// Whether the drive has a volatile write cache (`write back`).
    pub write_cache: bool,
    /// Whether the drive supports FUA.
    pub fua: bool,
    /// The merges to skip: 0 none, 1 all but simple ones, 2 all.
    pub nomerges: u32,
    /// The granularity of discards, in bytes; 0 if the drive does not support them.
    pub discard_granularity: u64,
    /// The largest discard, in bytes.
    pub discard_max_bytes: u64,
    /// The most ranges of a discard.
    pub max_discard_segments: u32,
    /// The logical block size, in bytes.
    pub logical_block_size: u32,
    /// The scheduler's tunables.
    pub iosched: BTreeMap<String, String>,
    /// All attributes as read, including those above.
    pub all: BTreeMap<String, String>,
}

/// The size of a tag set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TagGeometry {
    /// The number of tags.
    pub nr_tags: u32,
    /// The smallest shallow depth of any caller.
    pub min_shallow_depth: u32,
}

impl RunInfo {
    /// Reads the JSON file at `path`.
    pub fn open(path: &Path) -> Result<RunInfo, TraceError> {
        let file = path.display().to_string();
        match fs::read_to_string(path) {
            Ok(json) => RunInfo::parse(&json, file),
            Err(source) => Err(TraceError::Io {
                file,
                line: 0,
                source,
            }),
        }
    }

    /// Parses a JSON text; `file` is its name in messages.
    pub fn parse(json: &str, file: impl Into<String>) -> Result<RunInfo, TraceError> {
        serde_json::from_str(json).map_err(|error| TraceError::Description {
            file: file.into(),
            message: error.to_string(),
        })
    }

    /// Returns the driver's tags; `None` if they were not recorded.
    pub fn driver_tags(&self) -> Option<TagGeometry> {
        self.tag_sets().last().copied()
    }

    /// Returns the sets in `hctx_debugfs`, each of which begins with its `nr_tags`.
    fn tag_sets(&self) -> Vec<TagGeometry> {
        let mut sets: Vec<TagGeometry> = Vec::new();
        for line in &self.hctx_debugfs {
            let Some((name, value)) = line.split_once('=') else {
                continue;
            };
            let Ok(value) = value.trim().parse() else {
                continue;
            };
            if name == "nr_tags" {
                let empty = TagGeometry {
                    nr_tags: value,
                    min_shallow_depth: 0,
                };
                sets.push(empty);
            }
            let Some(set) = sets.last_mut() else { continue };
            if name == "min_shallow_depth" {
                set.min_shallow_depth = value;
            }
        }
        sets
    }
}

impl TryFrom<BTreeMap<String, String>> for QueueAttributes {
    type Error = String;

    fn try_from(all: BTreeMap<String, String>) -> Result<QueueAttributes, String> {
        let write_cache = match text(&all, "write_cache")? {
            "write back" => true,
            "write through" => false,
            other => {
                return Err(format!(
                    "queue/write_cache: found {other:?}, expected \"write back\" or \"write through\""
                ));
            }
        };
        let iosched = all
            .iter()
            .filter_map(|(name, value)| {
                Some((name.strip_prefix("iosched/")?.to_owned(), value.clone()))
            })
            .collect();
        Ok(QueueAttributes {
            nr_requests: number(&all, "nr_requests")?,
            max_sectors_kb: number(&all, "max_sectors_kb")?,
            max_segments: number(&all, "max_segments")?,
            write_cache,
            fua: number::<u8>(&all, "fua")? != 0,
            nomerges: number(&all, "nomerges")?,
            discard_granularity: number(&all, "discard_granularity")?,
            discard_max_bytes: number(&all, "discard_max_bytes")?,
            max_discard_segments: number(&all, "max_discard_segments")?,
            logical_block_size: number(&all, "logical_block_size")?,
            iosched,
            all,
        })
    }
}

fn one() -> u32 {
    1
}

fn text<'a>(all: &'a BTreeMap<String, String>, name: &str) -> Result<&'a str, String> {
    all.get(name)
        .map(String::as_str)
        .ok_or_else(|| format!("queue/{name}: missing"))
}

fn number<T: std::str::FromStr>(all: &BTreeMap<String, String>, name: &str) -> Result<T, String> {
    let value = text(all, name)?;
    let message = || format!("queue/{name}: found {value:?}, expected a number that fits");
    value.trim().parse().map_err(|_| message())
}

/// Deserializes paths with weights, or paths alone.
fn cgroups<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, Option<u32>>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Cgroups {
        Weights(BTreeMap<String, Option<u32>>),
        Paths(Vec<String>),
    }

    Ok(match Cgroups::deserialize(deserializer)? {
        Cgroups::Weights(weights) => weights,
        Cgroups::Paths(paths) => paths.into_iter().map(|path| (path, None)).collect(),
    })
}

/// Deserializes a JSON object as pairs, in the order of the text, which a map would sort.
fn pairs_in_order<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<(String, String)>, D::Error> {
    struct Pairs;

    impl<'de> Visitor<'de> for Pairs {
        type Value = Vec<(String, String)>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object of attributes and the numbers or texts written to them")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut pairs = Vec::new();
            while let Some((name, value)) = map.next_entry::<String, serde_json::Value>()? {
                let value = match value {
                    serde_json::Value::String(text) => text,
                    serde_json::Value::Number(number) => number.to_string(),
                    _ => {
                        return Err(A::Error::custom(format!(
                            "queue_set/{name}: expected a number or a text"
                        )));
                    }
                };
                pairs.push((name, value));
            }
            Ok(pairs)
        }
    }

    deserializer.deserialize_map(Pairs)
}
