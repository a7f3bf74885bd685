//! The findings of a probe.

use std::fmt;

/// A property of the drive that was looked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding<T> {
    /// The value; `None` if the measurements are not clear.
    pub value: Option<T>,
    /// The share of measurements that agree.
    pub confidence: f64,
    /// The observation in words.
    pub seen: String,
}

impl<T> Finding<T> {
    pub(crate) fn found(value: T, confidence: f64, seen: String) -> Finding<T> {
        Finding {
            value: Some(value),
            confidence,
            seen,
        }
    }

    pub(crate) fn none(seen: impl Into<String>) -> Finding<T> {
        Finding {
            value: None,
            confidence: 0.0,
            seen: seen.into(),
        }
    }
}

/// Mapping of addresses to parallel units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mapping {
    /// Chunks in turn, by address.
    Striped,
    /// Contiguous ranges of this many bytes, each on its own group of units; within a range, chunks
    /// in turn.
    Ranges(u64),
    /// In the order of writes, whatever the address.
    WriteOrder,
}

impl fmt::Display for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mapping::Striped => f.write_str("striped by address"),
            Mapping::Ranges(bytes) => write!(f, "ranges of {}", size(*bytes)),
            Mapping::WriteOrder => f.write_str("in the order of writing"),
        }
    }
}

/// Cost of a read right after writes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BehindWrites {
    /// Time of a read otherwise, in nanoseconds.
    pub alone_ns: u64,
    /// Time of a read after a burst of writes, in nanoseconds.
    pub behind_ns: u64,
}

/// The point at which writes become permanently slower.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cliff {
    /// Number of bytes written before.
    pub after_bytes: u64,
    /// Rate before, in bytes per second.
    pub before: f64,
    /// Rate after, in bytes per second.
    pub behind: f64,
}

/// Formats bytes in the largest suitable unit.
pub fn size(bytes: u64) -> String {
    let units = [
        (1 << 40, "TiB"),
        (1 << 30, "GiB"),
        (1 << 20, "MiB"),
        (1 << 10, "KiB"),
    ];
    let unit = units.iter().find(|(unit, _)| bytes >= *unit);
    match unit {
        Some((unit, name)) if bytes.is_multiple_of(*unit) => format!("{} {name}", bytes / unit),
        Some((unit, name)) => format!("{:.1} {name}", bytes as f64 / *unit as f64),
        None => format!("{bytes} B"),
    }
}

/// The median; 0 for no values.
pub(crate) fn median(values: &[u64]) -> u64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied().unwrap_or(0)
}

/// The median of numbers that are not NaN; 0 for no values.
pub(crate) fn median_of(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}
