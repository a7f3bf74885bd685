//! Latency histograms: exact to three digits, and able to speak fio's bins.

use hdrhistogram::Histogram as Hdr;

/// Longest latency told apart, in nanoseconds (about 18 minutes); longer ones
/// are counted there.
const MAX_NS: u64 = 1 << 40;

/// A histogram of nanoseconds with a relative error below 0.1 %.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Hdr<u64>,
    sum_ns: u128,
    sum_squares: f64,
    min_ns: u64,
    max_ns: u64,
}

/// The usual figures of a histogram, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Summary {
    /// Smallest value, zero when there is none.
    pub min_ns: u64,
    /// Largest value.
    pub max_ns: u64,
    /// Mean.
    pub mean_ns: f64,
    /// Standard deviation of the population.
    pub stddev_ns: f64,
    /// Number of values.
    pub count: u64,
}

/// One bar of fio's own histogram (`json+`'s `bins`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FioBin {
    /// fio's value for the bin: the middle of its range, in nanoseconds.
    pub value_ns: u64,
    /// How many fell into it.
    pub count: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram::new()
    }
}

impl Histogram {
    /// An empty histogram.
    pub fn new() -> Histogram {
        let counts = Hdr::new_with_bounds(1, MAX_NS, 3).expect("constant bounds are legal");
        Histogram {
            counts,
            sum_ns: 0,
            sum_squares: 0.0,
            min_ns: u64::MAX,
            max_ns: 0,
        }
    }

    /// Counts one value.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        self.counts.saturating_record(ns);
        self.sum_ns += ns as u128;
        self.sum_squares += ns as f64 * ns as f64;
        self.min_ns = self.min_ns.min(ns);
        self.max_ns = self.max_ns.max(ns);
    }

    /// Adds another histogram's values.
    pub fn merge(&mut self, other: &Histogram) {
        self.counts
            .add(&other.counts)
            .expect("all histograms have the same bounds");
        self.sum_ns += other.sum_ns;
        self.sum_squares += other.sum_squares;
        self.min_ns = self.min_ns.min(other.min_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// Forgets every value.
    pub fn clear(&mut self) {
        self.counts.clear();
        self.sum_ns = 0;
        self.sum_squares = 0.0;
        self.min_ns = u64::MAX;
        self.max_ns = 0;
    }

    /// Number of values.
    pub fn count(&self) -> u64 {
        self.counts.len()
    }

    /// The value that `percent` (0-100) of all values do not exceed; zero when
    /// there is none.
    pub fn percentile(&self, percent: f64) -> u64 {
        if self.count() == 0 {
            return 0;
        }
        self.counts
            .value_at_quantile(percent / 100.0)
            .clamp(self.min_ns, self.max_ns)
    }

    /// Mean, deviation, extremes and count.
    pub fn summary(&self) -> Summary {
        let count = self.count();
        if count == 0 {
            return Summary::default();
        }
        let mean = self.sum_ns as f64 / count as f64;
        let variance = (self.sum_squares / count as f64 - mean * mean).max(0.0);
        Summary {
            min_ns: self.min_ns,
            max_ns: self.max_ns,
            mean_ns: mean,
            stddev_ns: variance.sqrt(),
            count,
        }
    }

    /// The values counted, as pairs of (value in nanoseconds, how many), in
    /// ascending order.
    pub fn bars(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.counts
            .iter_recorded()
            .map(|bar| (bar.value_iterated_to(), bar.count_since_last_iteration()))
    }

    /// The same values in fio's bins (`stat.c`: 64 to an octave).
    pub fn fio_bins(&self) -> Vec<FioBin> {
        let mut bins: Vec<FioBin> = Vec::new();
        for (value_ns, count) in self.bars() {
            let value_ns = fio_bin_value(value_ns);
            match bins.last_mut() {
                Some(last) if last.value_ns == value_ns => last.count += count,
                _ => bins.push(FioBin { value_ns, count }),
            }
        }
        bins
    }
}

/// fio keeps the top seven bits of a value (`FIO_IO_U_PLAT_BITS` 6) and names a
/// bin by its middle.
fn fio_bin_value(ns: u64) -> u64 {
    const PLAT_BITS: u32 = 6;
    let msb = 63 - ns.max(1).leading_zeros();
    if msb <= PLAT_BITS {
        return ns;
    }
    let error_bits = msb - PLAT_BITS;
    ((ns >> error_bits) << error_bits) + (1 << (error_bits - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_within_a_thousandth() {
        let mut h = Histogram::new();
        (1..=100_000u64).for_each(|v| h.record(v));
        for p in [1.0, 50.0, 99.0, 99.9] {
            let want = 1000.0 * p;
            assert!(
                (h.percentile(p) as f64 - want).abs() <= want * 0.001 + 1.0,
                "p{p}"
            );
        }
        assert_eq!(h.percentile(100.0), 100_000);
    }

    #[test]
    fn summary_of_nothing_is_zero() {
        assert_eq!(Histogram::new().summary(), Summary::default());
        assert_eq!(Histogram::new().percentile(99.0), 0);
    }

    #[test]
    fn mean_and_deviation_are_exact() {
        let mut h = Histogram::new();
        [2, 4, 4, 4, 5, 5, 7, 9]
            .into_iter()
            .for_each(|v| h.record(v));
        let s = h.summary();
        assert_eq!(
            (s.mean_ns, s.stddev_ns, s.min_ns, s.max_ns),
            (5.0, 2.0, 2, 9)
        );
    }

    #[test]
    fn bins_are_fios_own() {
        // stat.c, plat_idx_to_val: values below 128 are exact, then 64 bins an octave.
        assert_eq!(fio_bin_value(127), 127);
        assert_eq!(fio_bin_value(128), 129);
        assert_eq!(fio_bin_value(131), 131);
        assert_eq!(fio_bin_value(1_000_000), 999_424);
    }

    #[test]
    fn merging_adds() {
        let (mut a, mut b) = (Histogram::new(), Histogram::new());
        a.record(10);
        b.record(30);
        a.merge(&b);
        assert_eq!(a.summary().mean_ns, 20.0);
        assert_eq!(a.count(), 2);
    }
}
