//! What a probe came to.

use std::fmt;

/// One thing that was looked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding<T> {
    /// What was found; `None` where nothing stood out.
    pub value: Option<T>,
    /// The share of single measurements that say the same.
    pub confidence: f64,
    /// What was seen, in words.
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

/// How addresses lie on what works in parallel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mapping {
    /// Chunk by chunk in turn, by address.
    Striped,
    /// A contiguous range for each of some groups, of so many bytes; within,
    /// chunk by chunk.
    Ranges(u64),
    /// In the order of writing, wherever the address.
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

/// What a read costs right behind writes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BehindWrites {
    /// Its time otherwise.
    pub alone_ns: u64,
    /// Its time behind a burst of writes.
    pub behind_ns: u64,
}

/// Where writing becomes slower for good.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cliff {
    /// After this many bytes.
    pub after_bytes: u64,
    /// Before, in bytes a second.
    pub before: f64,
    /// Behind.
    pub behind: f64,
}

/// Bytes in the largest unit that divides them well.
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

/// The middle one; 0 of none.
pub(crate) fn median(values: &[u64]) -> u64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied().unwrap_or(0)
}

/// The middle one of numbers that are never NaN; 0 of none.
pub(crate) fn median_of(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}
