//! How long requests of a domain took.

use crate::jiffies::msecs_to_jiffies;

/// A bucket of a latency histogram is a quarter of the target wide; four are
/// up to the target, and of the four beyond the last has no end.
pub(super) const BUCKETS: usize = 8;
pub(super) const GOOD_BUCKETS: usize = 4;
/// A percentile is taken of this many samples, or a second after the first.
pub(super) const ENOUGH_SAMPLES: u32 = 500;

/// How long requests of a domain took.
#[derive(Clone, Copy, Default)]
pub(super) struct Histogram {
    pub(super) buckets: [u32; BUCKETS],
}

impl Histogram {
    pub(super) fn add(&mut self, target_ns: u64, latency_ns: u64) {
        let width_ns = (target_ns / GOOD_BUCKETS as u64).max(1);
        let bucket = latency_ns.saturating_sub(1) / width_ns;
        self.buckets[(bucket as usize).min(BUCKETS - 1)] += 1;
    }

    pub(super) fn samples(&self) -> u32 {
        self.buckets.iter().sum()
    }

    /// The bucket in which the percentile lies.
    pub(super) fn percentile(&self, percent: u32) -> usize {
        let mut rank = (self.samples() as u64 * percent as u64).div_ceil(100);
        for (bucket, &samples) in self.buckets[..BUCKETS - 1].iter().enumerate() {
            match rank.checked_sub(samples as u64) {
                Some(left) if left > 0 => rank = left,
                _ => return bucket,
            }
        }
        BUCKETS - 1
    }
}

/// What kyber knows of a domain that has a target.
#[derive(Clone, Copy, Default)]
pub(super) struct Latency {
    /// From allocation to end.
    pub(super) total: Histogram,
    /// In the drive.
    pub(super) io: Histogram,
    /// The jiffy from which few samples will do.
    pub(super) due: Option<i64>,
    /// The last percentile, kept for when the drive is next found to be busy.
    pub(super) p99: Option<usize>,
}

/// Which histogram.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Total,
    Io,
}

impl Latency {
    /// A percentile, if there is enough to take it of, which is then forgotten.
    ///
    /// Both histograms share one appointment: with few samples the first that
    /// is asked for uses it up, and the other waits for the next.
    pub(super) fn percentile(
        &mut self,
        now_jiffies: i64,
        kind: Kind,
        percent: u32,
    ) -> Option<usize> {
        let histogram = match kind {
            Kind::Total => &mut self.total,
            Kind::Io => &mut self.io,
        };
        let samples = histogram.samples();
        if samples == 0 {
            return None;
        }
        let due = *self.due.get_or_insert(now_jiffies + msecs_to_jiffies(1000));
        if samples < ENOUGH_SAMPLES && due > now_jiffies {
            return None;
        }
        self.due = None;
        Some(std::mem::take(histogram).percentile(percent))
    }
}
