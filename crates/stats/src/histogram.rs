//! Latency histograms: exact to three digits, and convertible to fio's bins.

use alloc::vec;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

/// The longest latency with a slot of its own, about 18 minutes in nanoseconds; longer
/// ones are counted in this slot.
const MAX_NS: u64 = 1 << 40;

/// Significant bits of a slot: 1024 slots an octave, so that a slot is never wider than a
/// thousandth of its values. fio uses [`FIO_BITS`], so each slot lies in one of fio's bins.
const SLOT_BITS: u32 = 10;

/// Number of values up to which they are kept as a list.
const FEW_VALUES: u64 = 512;

/// fio's `FIO_IO_U_PLAT_BITS`: 64 bins to an octave.
const FIO_BITS: u32 = 6;

/// fio's `FIO_IO_U_PLAT_NR`.
const FIO_BINS: usize = 29 << FIO_BITS;

/// fio's value of its last bin, which counts everything longer than 17 s.
const FIO_LAST_BIN_NS: u64 = 17_112_760_320;

/// A histogram of nanoseconds with a relative error below 0.1 %.
///
/// The first values are kept as a list, many values as a table of counts that grows with
/// the longest value. This saves memory, as a job has ten histograms of which most stay
/// empty, and ten thousand processes have few values each. The layout is HdrHistogram's; the
/// crate of that name takes twice the time a value here.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Histogram {
    /// Slots with their counts, in ascending order, while `counts` is empty.
    few: Vec<(u32, u32)>,
    /// Counts by [`slot_of`].
    counts: Vec<u64>,
    count: u64,
    sum_ns: u128,
    /// An integer, so that the deviation does not depend on the order of merging.
    sum_squares: u128,
    min_ns: u64,
    max_ns: u64,
}

/// Returns the slot of a value: the value itself up to 2047, above that its top eleven
/// bits with the amount of the shift.
#[inline]
fn slot_of(ns: u64) -> usize {
    let shift = (63 - (ns | ((2 << SLOT_BITS) - 1)).leading_zeros()) - SLOT_BITS;
    ((shift as usize) << SLOT_BITS) + (ns >> shift) as usize
}

/// Returns the largest value of a slot.
fn slot_end(slot: usize) -> u64 {
    let shift = ((slot >> SLOT_BITS) as u32).saturating_sub(1);
    let top = slot as u64 - ((shift as u64) << SLOT_BITS);
    ((top + 1) << shift) - 1
}

/// The usual figures of a histogram, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Summary {
    /// Smallest value; zero without values.
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
    /// The number of values in it.
    pub count: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram::new()
    }
}

impl Histogram {
    /// Creates an empty histogram, without allocating.
    pub const fn new() -> Histogram {
        Histogram {
            few: Vec::new(),
            counts: Vec::new(),
            count: 0,
            sum_ns: 0,
            sum_squares: 0,
            min_ns: u64::MAX,
            max_ns: 0,
        }
    }

    /// Counts one value.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        let slot = slot_of(ns.min(MAX_NS));
        match self.counts.get_mut(slot) {
            Some(count) => *count += 1,
            None => self.count_beyond(slot),
        }
        self.count += 1;
        self.sum_ns += ns as u128;
        self.sum_squares = self.sum_squares.saturating_add(ns as u128 * ns as u128);
        self.min_ns = self.min_ns.min(ns);
        self.max_ns = self.max_ns.max(ns);
    }

    /// Counts one value `count` times.
    pub fn record_many(&mut self, ns: u64, count: u64) {
        if count == 0 {
            return;
        }
        self.record(ns);
        let more = count - 1;
        self.add(slot_of(ns.min(MAX_NS)), more);
        self.count += more;
        self.sum_ns += ns as u128 * more as u128;
        let square = ns as u128 * ns as u128;
        let squares = square.saturating_mul(more as u128);
        self.sum_squares = self.sum_squares.saturating_add(squares);
    }

    /// Builds the histogram of fio's output from `bins` and the figures printed with
    /// them, with `stddev_ns` over `n - 1`. Without bins, only extremes, mean and
    /// deviation are known, and every percentile is the largest value.
    pub fn of_fio(bins: &[FioBin], summary: Summary) -> Histogram {
        let mut histogram = Histogram::new();
        for bin in bins.iter().filter(|bin| bin.count > 0) {
            histogram.make_room(slot_of(bin.value_ns.min(MAX_NS)));
            let count = &mut histogram.counts[slot_of(bin.value_ns.min(MAX_NS))];
            *count = count.saturating_add(bin.count);
        }
        if summary.count == 0 {
            return Histogram::new();
        }
        let n = summary.count as f64;
        let squares = summary.stddev_ns * summary.stddev_ns * (n - 1.0)
            + summary.mean_ns * summary.mean_ns * n;
        histogram.count = summary.count;
        histogram.sum_ns = (summary.mean_ns * n) as u128;
        histogram.sum_squares = squares as u128;
        histogram.min_ns = summary.min_ns;
        histogram.max_ns = summary.max_ns;
        histogram
    }

    /// Counts a value beyond the end of the table.
    #[cold]
    fn count_beyond(&mut self, slot: usize) {
        if self.count >= FEW_VALUES {
            self.make_room(slot);
        }
        self.add(slot, 1);
    }

    /// Converts the list to a table, and grows the table to the end of the slot's
    /// octave. Values seldom come in ascending order, so a histogram grows only a few
    /// times.
    fn make_room(&mut self, slot: usize) {
        let few = core::mem::take(&mut self.few);
        let last = few.last().map_or(0, |(slot, _)| *slot as usize);
        let room = (slot.max(last) | ((1 << SLOT_BITS) - 1)) + 1;
        if self.counts.len() < room {
            self.counts.resize(room, 0);
        }
        for (slot, count) in few {
            self.counts[slot as usize] += u64::from(count);
        }
    }

    /// Adds to the count of a slot, but not to the sums.
    fn add(&mut self, slot: usize, count: u64) {
        let at = self
            .few
            .partition_point(|(known, _)| (*known as usize) < slot);
        let listed = self
            .few
            .get(at)
            .filter(|(known, _)| *known as usize == slot);
        let sum = listed.map_or(0, |(_, listed)| u64::from(*listed)) + count;
        match u32::try_from(sum) {
            Ok(sum) if self.counts.is_empty() && listed.is_some() => self.few[at].1 = sum,
            Ok(sum) if self.counts.is_empty() => self.few.insert(at, (slot as u32, sum)),
            _ => {
                self.make_room(slot);
                self.counts[slot] += count;
            }
        }
    }

    /// Adds another histogram's values.
    pub fn merge(&mut self, other: &Histogram) {
        if self.is_empty() && other.counts.is_empty() {
            self.few.clone_from(&other.few);
        } else if let Some(last) = other.slots().map(|(slot, _)| slot).last() {
            self.make_room(last);
            for (slot, count) in other.slots() {
                self.counts[slot] += count;
            }
        }
        self.count += other.count;
        self.sum_ns += other.sum_ns;
        self.sum_squares = self.sum_squares.saturating_add(other.sum_squares);
        self.min_ns = self.min_ns.min(other.min_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// Removes all values and keeps the allocated memory.
    pub fn clear(&mut self) {
        let mut counts = core::mem::take(&mut self.counts);
        let mut few = core::mem::take(&mut self.few);
        counts.fill(0);
        few.clear();
        *self = Histogram {
            few,
            counts,
            ..Histogram::new()
        };
    }

    /// Returns the number of values.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the value that `percent` (0 to 100) of all values do not exceed; 0
    /// without values.
    pub fn percentile(&self, percent: f64) -> u64 {
        if self.count == 0 {
            return 0;
        }
        let wanted = rank(percent, self.count);
        let mut seen = 0;
        for (end_ns, count) in self.bars() {
            seen += count;
            // The last slot has all values from its start on.
            if seen >= wanted && end_ns < MAX_NS {
                return end_ns.clamp(self.min_ns, self.max_ns);
            }
        }
        self.max_ns
    }

    /// Returns mean, deviation, extremes and count.
    pub fn summary(&self) -> Summary {
        if self.count == 0 {
            return Summary::default();
        }
        let count = self.count as f64;
        let mean = self.sum_ns as f64 / count;
        let variance = (self.sum_squares as f64 / count - mean * mean).max(0.0);
        Summary {
            min_ns: self.min_ns,
            max_ns: self.max_ns,
            mean_ns: mean,
            stddev_ns: libm::sqrt(variance),
            count: self.count,
        }
    }

    /// Returns the values in nanoseconds with their counts, in ascending order.
    pub fn bars(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.slots().map(|(slot, count)| (slot_end(slot), count))
    }

    /// Returns the slots with values, of the list or of the table, in ascending order.
    fn slots(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        let few = self.few.iter();
        let counts = self.counts.iter().copied().enumerate();
        few.map(|&(slot, count)| (slot as usize, u64::from(count)))
            .chain(counts.filter(|(_, count)| *count > 0))
    }

    /// Returns the values in fio's bins (`stat.c`: 64 to an octave).
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

    /// Returns the counts of all of fio's bins.
    pub fn fio_counts(&self) -> Vec<u64> {
        let mut counts = vec![0; FIO_BINS];
        for (value_ns, count) in self.bars() {
            counts[fio_bin(value_ns)] += count;
        }
        counts
    }

    /// Returns percentiles as fio prints them, each the value of one of its bins, in the
    /// order of `percents`; all 0 without values.
    pub fn fio_percentiles(&self, percents: &[f64]) -> Vec<u64> {
        let mut cumulated = self.fio_bins();
        let mut seen = 0;
        for bin in &mut cumulated {
            seen += bin.count;
            bin.count = seen;
        }
        let value_of = |percent: &f64| {
            let wanted = rank(*percent, self.count);
            let at = cumulated.partition_point(|bin| bin.count < wanted);
            let bin = cumulated.get(at).or(cumulated.last());
            bin.map_or(0, |bin| bin.value_ns)
        };
        percents.iter().map(value_of).collect()
    }
}

impl Summary {
    /// Returns the standard deviation as fio computes it: of a sample, over `n - 1`.
    pub fn sample_stddev_ns(&self) -> f64 {
        if self.count < 2 {
            return 0.0;
        }
        let n = self.count as f64;
        self.stddev_ns * libm::sqrt(n / (n - 1.0))
    }
}

/// Returns the number of values at or below the `percent`-th percentile of `count`
/// values; at least one.
fn rank(percent: f64, count: u64) -> u64 {
    let share = percent.clamp(0.0, 100.0) / 100.0;
    (libm::ceil(share * count as f64) as u64).clamp(1, count.max(1))
}

/// Returns the index of a value's bin in fio (`plat_val_to_idx`).
fn fio_bin(ns: u64) -> usize {
    let shift = (63 - (ns | 1).leading_zeros()).saturating_sub(FIO_BITS);
    let bin = ((shift as usize) << FIO_BITS) + (ns >> shift) as usize;
    bin.min(FIO_BINS - 1)
}

/// Returns fio's value for the bin of a value (`plat_idx_to_val`): the top seven bits
/// choose the bin, whose middle is the value.
fn fio_bin_value(ns: u64) -> u64 {
    let msb = 63 - ns.max(1).leading_zeros();
    if msb <= FIO_BITS {
        return ns;
    }
    let error_bits = msb - FIO_BITS;
    let middle = ((ns >> error_bits) << error_bits) + (1 << (error_bits - 1));
    middle.min(FIO_LAST_BIN_NS)
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
        // A bin of the example in fio_jsonplus_clat2csv.
        assert_eq!(fio_bin_value(1_000_000), 1_003_520);
        assert_eq!(fio_bin_value(u64::MAX), FIO_LAST_BIN_NS);
    }

    #[test]
    fn bins_are_numbered_as_fio_s() {
        // stat.c, plat_val_to_idx.
        let bins = [0, 127, 128, 129, 130, 255, 256, 1_000_000].map(fio_bin);
        assert_eq!(bins, [0, 127, 128, 128, 129, 191, 192, 954]);
        assert_eq!(fio_bin(u64::MAX), FIO_BINS - 1);
    }

    #[test]
    fn slots_tile_the_line() {
        let mut next = 0;
        for slot in 0..=slot_of(MAX_NS) {
            assert_eq!(slot_of(next), slot);
            assert_eq!(slot_of(slot_end(slot)), slot);
            assert!(slot_end(slot) - next <= next / 1024);
            next = slot_end(slot) + 1;
        }
    }

    #[test]
    fn very_long_values_are_no_longer_than_the_longest() {
        let mut histogram = Histogram::new();
        let (second_ns, hour_ns) = (1_000_000_000, 3_600_000_000_000);
        histogram.record(second_ns);
        histogram.record(hour_ns);
        assert!(histogram.percentile(50.0) < 1_001_000_000);
        assert_eq!(histogram.percentile(100.0), hour_ns);
        assert_eq!(histogram.percentile(99.0), hour_ns);
    }

    #[test]
    fn agrees_with_hdrhistogram() {
        let mut ours = Histogram::new();
        let mut theirs = hdrhistogram::Histogram::<u64>::new(3).unwrap();
        let mut x = 1u64;
        for _ in 0..50_000 {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let ns = (x >> 33) % (1 << (x >> 59));
            ours.record(ns);
            theirs.record(ns).unwrap();
        }
        for p in [0.0, 0.1, 10.0, 50.0, 75.0, 99.0, 99.9, 99.999, 100.0] {
            let want = theirs.value_at_quantile(p / 100.0).min(ours.max_ns);
            assert_eq!(ours.percentile(p), want, "p{p}");
        }
    }

    #[test]
    fn fio_percentiles_are_bins() {
        let mut h = Histogram::new();
        (1..=1000u64).for_each(|us| h.record(us * 1000));
        let bins = h.fio_bins();
        for value in h.fio_percentiles(&[1.0, 50.0, 99.0, 99.99]) {
            assert!(bins.iter().any(|bin| bin.value_ns == value), "{value}");
        }
        assert_eq!(h.fio_percentiles(&[50.0]), vec![fio_bin_value(500_000)]);
        assert_eq!(Histogram::new().fio_percentiles(&[50.0]), vec![0]);
    }

    #[test]
    fn what_fio_tells_comes_back() {
        let mut h = Histogram::new();
        (1..=1000u64).for_each(|us| h.record(us * 1000));
        let summary = Summary {
            stddev_ns: h.summary().sample_stddev_ns(),
            ..h.summary()
        };
        let back = Histogram::of_fio(&h.fio_bins(), summary);
        assert_eq!(back.fio_bins(), h.fio_bins());
        let percents = [1.0, 50.0, 99.0, 99.9];
        assert_eq!(
            back.fio_percentiles(&percents),
            h.fio_percentiles(&percents)
        );
        assert!((back.summary().mean_ns - summary.mean_ns).abs() < 1.0);
        assert!((back.summary().stddev_ns - h.summary().stddev_ns).abs() < 1.0);
        assert_eq!(back.summary().max_ns, 1_000_000);
        assert!(Histogram::of_fio(&[], Summary::default()).is_empty());
        let unknown = Histogram::of_fio(&[], summary);
        assert_eq!(unknown.percentile(50.0), 1_000_000);
    }

    #[test]
    fn an_empty_histogram_owns_no_memory() {
        assert_eq!(Histogram::new().counts.capacity(), 0);
        let mut h = Histogram::new();
        h.merge(&Histogram::new());
        assert_eq!((h.counts.capacity(), h.few.capacity()), (0, 0));
    }

    #[test]
    fn a_list_and_a_table_tell_the_same() {
        let value = |n: u64| (n * 7919) % 5_000_011;
        let (mut listed, mut table) = (Histogram::new(), Histogram::new());
        table.make_room(0);
        for n in 0..FEW_VALUES {
            listed.record(value(n));
            table.record(value(n));
        }
        assert!(listed.counts.is_empty() && table.few.is_empty());
        let bars = |h: &Histogram| h.bars().collect::<Vec<_>>();
        assert_eq!(bars(&listed), bars(&table));
        let mut merged = Histogram::new();
        merged.merge(&listed);
        assert_eq!(bars(&merged), bars(&listed));
        merged.merge(&table);
        listed.record(value(FEW_VALUES));
        table.record(value(FEW_VALUES));
        assert!(listed.few.is_empty());
        assert_eq!(bars(&listed), bars(&table));
        assert_eq!(merged.count(), 2 * FEW_VALUES);
        assert_eq!(
            bars(&merged).iter().map(|bar| bar.1).sum::<u64>(),
            2 * FEW_VALUES
        );
    }

    #[test]
    fn many_of_a_value_are_so_many_times_one() {
        let (mut many, mut each) = (Histogram::new(), Histogram::new());
        for (ns, count) in [(0, 3), (70_000, 0), (5_000, 1000)] {
            many.record_many(ns, count);
            (0..count).for_each(|_| each.record(ns));
        }
        assert_eq!(many.summary(), each.summary());
        assert!(many.bars().eq(each.bars()));
    }

    #[test]
    fn clearing_forgets_all() {
        let mut h = Histogram::new();
        h.record(u64::MAX);
        h.clear();
        assert_eq!(h.summary(), Summary::default());
        assert_eq!(h.bars().count(), 0);
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

    /// Lists, tables that grow, and sums of both are as a plain list of the values.
    #[test]
    fn any_merged_histograms_are_as_their_values() {
        let mut x = 7u64;
        let mut random = move || {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            x >> 33
        };
        for sizes in [[3, 700], [700, 3], [3, 4], [700, 700], [0, 700], [511, 513]] {
            let (mut sum, mut values) = (Histogram::new(), Vec::new());
            for (part, size) in sizes.into_iter().enumerate() {
                let mut one = Histogram::new();
                for _ in 0..size {
                    // The second part has longer values, so that the table has to grow.
                    let ns = (random() % (1 << (random() % 16))) << (8 * part);
                    one.record(ns);
                    values.push(slot_end(slot_of(ns)));
                }
                sum.merge(&one);
            }
            values.sort_unstable();
            let bars: Vec<(u64, u64)> = values
                .chunk_by(|a, b| a == b)
                .map(|equal| (equal[0], equal.len() as u64))
                .collect();
            assert!(sum.bars().eq(bars), "{sizes:?}");
            let counts = sum.fio_counts();
            assert_eq!(counts.iter().sum::<u64>(), values.len() as u64);
            let of_bin = |n: usize| values.iter().filter(|ns| fio_bin(**ns) == n).count();
            assert!((0..FIO_BINS).all(|n| counts[n] == of_bin(n) as u64 || of_bin(n) == 0));
        }
    }

    /// The table ends with the octave of the longest value, so that it does not grow at each value.
    #[test]
    fn a_table_has_room_for_whole_octaves() {
        let mut h = Histogram::new();
        h.make_room(0);
        assert_eq!(h.counts.len(), 1 << SLOT_BITS);
        h.make_room(1 << SLOT_BITS);
        assert_eq!(h.counts.len(), 2 << SLOT_BITS);
        h.make_room(5);
        assert_eq!(h.counts.len(), 2 << SLOT_BITS);
    }

    #[test]
    fn a_sample_s_deviation_needs_two_values() {
        let of = |values: &[u64]| {
            let mut h = Histogram::new();
            values.iter().for_each(|v| h.record(*v));
            h.summary().sample_stddev_ns()
        };
        assert_eq!((of(&[]), of(&[9])), (0.0, 0.0));
        assert!((of(&[4, 6]) - 2.0f64.sqrt()).abs() < 1e-12);
    }

    /// Of ten values the fifth is the median, and the percentile just above is the sixth.
    #[test]
    fn fio_s_percentiles_are_the_values_of_their_rank() {
        let mut h = Histogram::new();
        (1..=10).for_each(|ns| h.record(ns));
        let percents = [0.0, 10.0, 10.1, 50.0, 50.1, 99.0, 100.0];
        assert_eq!(h.fio_percentiles(&percents), [1, 1, 2, 5, 6, 10, 10]);
        let ours = percents.map(|percent| h.percentile(percent));
        assert_eq!(ours, [1, 1, 2, 5, 6, 10, 10]);
    }
}
