//! Findings from writes: the buffer, reads after writes, and the cliff. All of them overwrite the
//! drive's data.
//!
//! After Kim et al., "SSDcheck: Timely and accurate prediction of irregular behaviors in black-box
//! SSDs", MICRO 2018: a drive's buffer shows as the amount that can be written before writes become
//! slower, its flushing as slower reads, and its garbage collection as a permanent loss of speed.

use crate::finding::{BehindWrites, Cliff, Finding, median, median_of, size};
use crate::target::{Io, Places, ProbeError, Target};

const WRITE_BYTES: u64 = 64 << 10;
const REST_NS: u64 = 3_000_000_000;

/// Writes in flight while a buffer is filled: a single one may be slower than the write-back.
const FILL_DEPTH: usize = 4;
const FILL_BYTES_MAX: u64 = 512 << 20;
const FILL_RUNS: usize = 5;

/// The factor by which writes become slower when the buffer is full, and the number of writes whose
/// median is compared.
const FULL: f64 = 1.4;
const FULL_IOS: usize = 48;

/// Finds the amount of data that the buffer takes after a pause.
pub(crate) fn buffer(target: &mut dyn Target, seed: u64) -> Result<Finding<u64>, ProbeError> {
    let mut places = Places::new(seed);
    let mut sizes = Vec::new();
    for _ in 0..FILL_RUNS {
        target.rest(REST_NS);
        if let Some(bytes) = fill(target, &mut places)? {
            sizes.push(bytes);
        }
    }
    if sizes.len() * 2 < FILL_RUNS {
        return Ok(Finding::none(format!(
            "writes are as fast at the end of {} as at their start",
            size(FILL_BYTES_MAX.min(target.capacity_bytes() / 4))
        )));
    }
    let middle = median(&sizes);
    let near = sizes.iter().filter(|s| s.abs_diff(middle) * 5 <= middle);
    let confidence = near.count() as f64 / FILL_RUNS as f64;
    let seen = format!(
        "after a rest writes take {FULL} times longer behind {} to {}, less what was written \
         back meanwhile",
        size(sizes.iter().copied().min().unwrap_or(0)),
        size(sizes.iter().copied().max().unwrap_or(0))
    );
    Ok(Finding::found(middle, confidence, seen))
}

/// Writes until writes become slower; returns the size of the buffer.
fn fill(target: &mut dyn Target, places: &mut Places) -> Result<Option<u64>, ProbeError> {
    let most = FILL_BYTES_MAX.min(target.capacity_bytes() / 4);
    let base = places.aligned(1 << 20, most, target.capacity_bytes());
    let ios: Vec<Io> = (0..most / WRITE_BYTES)
        .map(|n| Io::write(base + n * WRITE_BYTES, WRITE_BYTES))
        .collect();
    let batch = target.run(&ios, FILL_DEPTH)?;
    let latencies = &batch.latencies_ns;
    let usual = median(&latencies[..32.min(latencies.len())]).max(1);
    let windows = latencies.windows(FULL_IOS).enumerate().skip(8);
    let is_full = |window: &[u64]| median(window) as f64 > usual as f64 * FULL;
    let mut full = windows.filter(|(_, window)| is_full(window));
    let Some((at, _)) = full.next() else {
        return Ok(None);
    };
    // If the median of a window is slow, the edge is in the window's middle.
    let at = at + FULL_IOS / 2;
    // The amount written back while the buffer was filled, at the later rate.
    let (from, to) = (at, (at + 1024).min(ios.len() - 1));
    let span_ns = batch.ended_ns[to]
        .saturating_sub(batch.ended_ns[from])
        .max(1);
    let rate = (to - from) as f64 * WRITE_BYTES as f64 / span_ns as f64;
    let left = rate * batch.ended_ns[at] as f64;
    Ok(Some((at as f64 * WRITE_BYTES as f64 - left).max(0.0) as u64))
}

/// Number of reads timed after a burst of writes.
const BEHIND_TRIALS: usize = 48;
const BURST_BYTES: u64 = 4 << 20;

/// Smaller factors are noise.
const PENALTY: f64 = 1.2;

/// Finds the cost of a read right after writes.
pub(crate) fn behind_writes(
    target: &mut dyn Target,
    seed: u64,
) -> Result<Finding<BehindWrites>, ProbeError> {
    let mut places = Places::new(seed);
    let capacity = target.capacity_bytes();
    let unit = target.block_bytes().max(4096);
    let mut alone = Vec::new();
    target.rest(REST_NS);
    for _ in 0..BEHIND_TRIALS {
        let at = places.aligned(unit, unit, capacity);
        alone.push(target.run(&[Io::read(at, unit)], 1)?.elapsed_ns);
    }
    let alone_ns = median(&alone).max(1);
    let mut behind = Vec::new();
    for _ in 0..BEHIND_TRIALS {
        target.rest(REST_NS / 10);
        let burst = BURST_BYTES.min(capacity / 8) / WRITE_BYTES;
        let base = places.aligned(1 << 20, BURST_BYTES, capacity);
        let ios: Vec<Io> = (0..burst)
            .map(|n| Io::write(base + n * WRITE_BYTES, WRITE_BYTES))
            .collect();
        target.run(&ios, FILL_DEPTH)?;
        let at = places.aligned(unit, unit, capacity);
        behind.push(target.run(&[Io::read(at, unit)], 1)?.elapsed_ns);
    }
    let behind_ns = median(&behind);
    let seen = format!(
        "a read takes {:.1} us, and {:.1} us right behind {} of writes",
        alone_ns as f64 / 1e3,
        behind_ns as f64 / 1e3,
        size(BURST_BYTES)
    );
    let slower = behind
        .iter()
        .filter(|ns| **ns as f64 > alone_ns as f64 * PENALTY);
    let confidence = slower.count() as f64 / BEHIND_TRIALS as f64;
    if (behind_ns as f64) < alone_ns as f64 * PENALTY {
        return Ok(Finding::none(seen));
    }
    let value = BehindWrites {
        alone_ns,
        behind_ns,
    };
    Ok(Finding::found(value, confidence, seen))
}

/// Formats a rate in MB/s with at least two significant digits.
fn megabytes(bytes_per_second: f64) -> String {
    let rate = bytes_per_second / 1e6;
    let decimals = match rate {
        rate if rate >= 10.0 => 0,
        rate if rate >= 1.0 => 1,
        rate if rate >= 0.1 => 2,
        _ => 3,
    };
    format!("{rate:.decimals$}")
}

const CLIFF_DEPTH: usize = 32;
const WINDOW_IOS: usize = 1024;

/// A permanent rate below this share of the first rate is a cliff.
const LOSS: f64 = 0.75;

/// Overwrites `limit_bytes` at random and finds where writes become permanently slower.
pub(crate) fn cliff(
    target: &mut dyn Target,
    limit_bytes: u64,
    seed: u64,
) -> Result<Finding<Cliff>, ProbeError> {
    let mut places = Places::new(seed);
    let capacity = target.capacity_bytes();
    let windows = (limit_bytes / WRITE_BYTES / WINDOW_IOS as u64).max(1);
    let window_bytes = WRITE_BYTES * WINDOW_IOS as u64;
    target.rest(REST_NS);
    let mut rates = Vec::new();
    for _ in 0..windows {
        let ios: Vec<Io> = (0..WINDOW_IOS)
            .map(|_| {
                Io::write(
                    places.aligned(WRITE_BYTES, WRITE_BYTES, capacity),
                    WRITE_BYTES,
                )
            })
            .collect();
        let batch = target.run(&ios, CLIFF_DEPTH)?;
        rates.push(window_bytes as f64 * 1e9 / batch.elapsed_ns.max(1) as f64);
    }
    if rates.len() < 16 {
        return Ok(Finding::none(format!(
            "{} are too little to tell; give more with --cliff-bytes",
            size(windows * window_bytes)
        )));
    }
    let before = median_of(&rates[..4]);
    let behind = median_of(&rates[rates.len() * 3 / 4..]);
    let seen = format!(
        "random writes go from {} to {} MB/s over {}",
        megabytes(before),
        megabytes(behind),
        size(windows * window_bytes)
    );
    let middle = (before + behind) / 2.0;
    let below = |window: &&[f64]| window.iter().all(|rate| *rate < middle);
    let edge = rates.windows(4).position(|window| below(&window));
    let (Some(edge), true) = (edge, behind < before * LOSS) else {
        return Ok(Finding::none(seen));
    };
    let (first, last) = rates.split_at(edge);
    let agree = first.iter().filter(|rate| **rate >= middle).count()
        + last.iter().filter(|rate| **rate < middle).count();
    let value = Cliff {
        after_bytes: edge as u64 * window_bytes,
        before,
        behind,
    };
    Ok(Finding::found(
        value,
        agree as f64 / rates.len() as f64,
        seen,
    ))
}
