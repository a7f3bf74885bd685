//! Predicted times of requests: a model for each kind, learned from completions.
//!
//! A small request takes the base; a larger one takes the base and a slope for each further KiB.
//! Samples are gathered in buckets by their ratio to the prediction, so that the slowest hundredth
//! can be left out of the mean.

use alloc::boxed::Box;
use alloc::vec;

use blklab_blk::{Tunables, msecs_to_jiffies};

use super::settings::{SHRINK_GBYTES, SHRINK_KREQS, SHRINK_RESIST};

/// Requests up to this size are small.
const SMALL_BYTES: u32 = 4096;
const BUCKETS: usize = 64;
/// Number of samples after which a model is updated.
const ENOUGH_SAMPLES: u64 = 1024;
/// Time after which it is updated in any case, in milliseconds.
const UPDATE_MS: i64 = 1_500;
/// Percentage of samples that count; slower ones are outliers.
const OUTLIER_PERCENT: u64 = 99;

/// Samples with similar ratios to the prediction.
#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    latency: u64,
    bytes: u64,
    weight: u64,
}

/// The bucket of a measured time. The source truncates the index to a byte before limiting it, so a
/// sample above 72 times the prediction may be in any bucket.
fn bucket_of(measured: u64, predicted: u64) -> usize {
    let predicted = predicted.max(1);
    let times = |n: u64| measured.saturating_mul(n) / predicted;
    let index = if measured < predicted.saturating_mul(2) {
        times(20)
    } else if measured < predicted.saturating_mul(5) {
        times(10).wrapping_add(20)
    } else {
        times(3).wrapping_add(40)
    };
    (index as u8 as usize).min(BUCKETS - 1)
}

/// Buckets of samples. They are on the heap because a kernel stack has no room for them.
#[derive(Debug)]
struct Buckets(Box<[Bucket]>);

impl Default for Buckets {
    fn default() -> Buckets {
        Buckets(vec![Bucket::default(); BUCKETS].into_boxed_slice())
    }
}

impl Buckets {
    fn clear(&mut self) {
        self.0.fill(Bucket::default());
    }

    fn weight(&self) -> u64 {
        self.0.iter().map(|b| b.weight).sum()
    }

    /// Moves all samples of `other` into this one.
    fn absorb(&mut self, other: &mut Buckets) {
        for (all, more) in self.0.iter_mut().zip(other.0.iter()) {
            all.latency += more.latency;
            all.bytes += more.bytes;
            all.weight += more.weight;
        }
        other.clear();
    }

    /// The sum of all samples, or of all but the slowest.
    fn sum(&self, all: bool) -> Bucket {
        let mut left = self.weight() * if all { 100 } else { OUTLIER_PERCENT } / 100;
        let mut sum = Bucket::default();
        for b in self.0.iter().filter(|b| b.weight > 0) {
            let taken = b.weight.min(left);
            let part = |of: u64| (of as u128 * taken as u128 / b.weight as u128) as u64;
            sum.latency += part(b.latency);
            sum.bytes += part(b.bytes);
            sum.weight += taken;
            left -= taken;
        }
        sum
    }
}

/// Samples of small and of large requests.
#[derive(Debug, Default)]
pub(super) struct Samples {
    small: Buckets,
    large: Buckets,
}

impl Samples {
    /// Removes all samples.
    pub(super) fn clear(&mut self) {
        self.small.clear();
        self.large.clear();
    }
}

/// The model of one kind of request; empty by default.
#[derive(Debug, Default)]
pub(super) struct Model {
    pub(super) base_ns: u64,
    pub(super) slope_ns_per_kib: u64,
    new: Samples,
    small_latency: u64,
    small_count: u64,
    large_latency: u64,
    large_bytes: u64,
    updated: i64,
}

impl Model {
    /// Returns a model with given values, which weigh as much as one sample.
    pub(super) fn written(base_ns: u64, slope_ns_per_kib: u64) -> Model {
        Model {
            base_ns,
            slope_ns_per_kib,
            small_latency: base_ns,
            small_count: 1,
            large_latency: slope_ns_per_kib,
            large_bytes: 1024,
            ..Model::default()
        }
    }

    pub(super) fn predict(&self, bytes: u32) -> u64 {
        let beyond_kib = bytes.saturating_sub(SMALL_BYTES).div_ceil(1024) as u64;
        let beyond_ns = self.slope_ns_per_kib.saturating_mul(beyond_kib);
        self.base_ns.saturating_add(beyond_ns)
    }

    /// Adds a sample. Returns whether the model has been waiting for it because it has no base yet.
    pub(super) fn learn(
        &mut self,
        bytes: u32,
        latency_ns: u64,
        predicted_ns: u64,
        weight: u64,
    ) -> bool {
        let small = bytes <= SMALL_BYTES;
        let bucket = if small {
            &mut self.new.small.0[bucket_of(latency_ns, self.base_ns)]
        } else if self.base_ns == 0 || predicted_ns == 0 {
            return false;
        } else {
            &mut self.new.large.0[bucket_of(latency_ns, predicted_ns)]
        };
        bucket.latency += latency_ns * weight;
        bucket.bytes += bytes as u64 * weight;
        bucket.weight += weight;
        small && self.base_ns == 0
    }

    /// Updates the model if there are enough samples or the last update was long ago. `gathered` is
    /// shared by all kinds, as in the source: samples that are too few for this model go into the
    /// next one that is updated, of whatever kind.
    pub(super) fn update(&mut self, gathered: &mut Samples, tunables: &Tunables, now: i64) {
        gathered.small.absorb(&mut self.new.small);
        gathered.large.absorb(&mut self.new.large);
        let (small, large) = (gathered.small.weight(), gathered.large.weight());
        let due = self.base_ns == 0 || now >= self.updated + msecs_to_jiffies(UPDATE_MS);
        // The slope is computed with the base before this update.
        let base_before = self.base_ns;
        let (mut small_done, mut large_done) = (false, false);
        if small > 0 && (due || small >= ENOUGH_SAMPLES) {
            small_done = self.update_base(&gathered.small, tunables);
            gathered.small.clear();
        }
        if large > 0 && (due || large >= ENOUGH_SAMPLES || self.slope_ns_per_kib == 0) {
            large_done = self.update_slope(&gathered.large, base_before, tunables);
            gathered.large.clear();
        }
        if small_done || large_done || due {
            self.updated = now;
        }
    }

    fn update_base(&mut self, small: &Buckets, tunables: &Tunables) -> bool {
        let sum = small.sum(self.base_ns == 0);
        if self.small_count >= 1000 * tunables.at(SHRINK_KREQS) as u64 {
            let by = tunables.at(SHRINK_RESIST) as u32;
            self.small_latency -= self.small_latency >> by;
            self.small_count -= self.small_count >> by;
        }
        if sum.weight == 0 {
            return false;
        }
        self.small_latency = self.small_latency.saturating_add(sum.latency);
        self.small_count += sum.weight;
        self.base_ns = self.small_latency / self.small_count;
        true
    }

    fn update_slope(&mut self, large: &Buckets, base_ns: u64, tunables: &Tunables) -> bool {
        let sum = large.sum(self.slope_ns_per_kib == 0);
        if sum.weight == 0 {
            return false;
        }
        if self.large_bytes >= tunables.at(SHRINK_GBYTES) as u64 * (1 << 30) {
            let by = tunables.at(SHRINK_RESIST) as u32;
            self.large_latency -= self.large_latency >> by;
            self.large_bytes -= self.large_bytes >> by;
        }
        // As in the source, one base is subtracted from the whole sum.
        let beyond_ns = if sum.latency > base_ns {
            sum.latency - base_ns
        } else {
            sum.latency
        };
        self.large_latency = self.large_latency.saturating_add(beyond_ns);
        self.large_bytes += sum.bytes;
        self.slope_ns_per_kib = self.large_latency / self.large_bytes.div_ceil(1024);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adios::settings::TUNABLES;

    fn learn(model: &mut Model, latency_ns: u64, times: usize) {
        for _ in 0..times {
            model.learn(4096, latency_ns, model.base_ns, 1);
        }
    }

    #[test]
    fn leaves_the_slowest_hundredth_out() {
        let tunables = Tunables::new(TUNABLES);
        let (mut model, mut gathered) = (Model::written(1_000, 0), Samples::default());
        learn(&mut model, 1_000, 1980);
        learn(&mut model, 50_000, 20);
        model.update(&mut gathered, &tunables, 0);
        assert_eq!(model.base_ns, 1_000);
    }

    #[test]
    fn an_index_is_a_byte_before_it_is_limited() {
        assert_eq!(bucket_of(100, 100), 20);
        assert_eq!(bucket_of(300, 100), 50);
        assert_eq!(bucket_of(700, 100), 61);
        assert_eq!(bucket_of(7_000, 100), 63);
        assert_eq!(bucket_of(7_300, 100), 3);
    }

    #[test]
    fn what_a_model_leaves_goes_into_the_next() {
        let tunables = Tunables::new(TUNABLES);
        let mut gathered = Samples::default();
        let mut reads = Model::written(1_000, 0);
        let mut discards = Model::default();
        learn(&mut reads, 3_000, 100);
        reads.update(&mut gathered, &tunables, 1);
        assert_eq!(reads.base_ns, 1_000);
        discards.update(&mut gathered, &tunables, 1);
        assert_eq!(discards.base_ns, 3_000);
    }

    #[test]
    fn is_brought_up_to_date_by_number_or_by_time() {
        let tunables = Tunables::new(TUNABLES);
        let mut gathered = Samples::default();
        let mut model = Model::written(1_000, 0);
        learn(&mut model, 2_000, 1023);
        model.update(&mut gathered, &tunables, 374);
        assert_eq!(model.base_ns, 1_000);
        learn(&mut model, 2_000, 1);
        model.update(&mut gathered, &tunables, 374);
        assert!(model.base_ns > 1_990);
        learn(&mut model, 4_000, 1014);
        model.update(&mut gathered, &tunables, 374 + 374);
        assert!(model.base_ns < 2_001);
        model.update(&mut gathered, &tunables, 374 + 375);
        assert!(model.base_ns > 2_900);
    }

    #[test]
    fn forgets_a_part_of_what_is_old() {
        let mut tunables = Tunables::new(TUNABLES);
        tunables.set("shrink_at_kreqs", 1).unwrap();
        tunables.set("shrink_resist", 1).unwrap();
        let mut gathered = Samples::default();
        let mut model = Model::written(1_000, 0);
        for round in 1..=2 {
            learn(&mut model, 1_000 * round, 1024);
            model.update(&mut gathered, &tunables, 0);
        }
        // The older thousand count half.
        let mean = (507 * 1_000 + 1_013 * 2_000) / (507 + 1_013);
        assert!(model.base_ns.abs_diff(mean) < 10, "{}", model.base_ns);
    }

    /// Sums shrink from `shrink_at_gbytes` on, so that until then all samples weigh the same.
    #[test]
    fn a_slope_is_the_mean_until_its_sums_shrink() {
        let mut tunables = Tunables::new(TUNABLES);
        let slope_after = |tunables: &Tunables| {
            let (mut model, mut gathered) = (Model::written(1_000, 0), Samples::default());
            (model.large_latency, model.large_bytes) = (0, 0);
            for per_kib in [100, 300] {
                for _ in 0..2_000 {
                    let predicted = model.predict(1 << 20);
                    model.learn(1 << 20, 1024 * per_kib, predicted, 1);
                }
                model.update(&mut gathered, tunables, 1 << 40);
            }
            model.slope_ns_per_kib
        };
        assert!(slope_after(&tunables).abs_diff(200) <= 2);
        let (at, most) = (TUNABLES[SHRINK_GBYTES], TUNABLES[SHRINK_RESIST]);
        tunables.set(at.name, at.min).expect("is legal");
        tunables.set(most.name, most.min).expect("is legal");
        assert!(slope_after(&tunables) > 202, "what was learned first fades");
    }
}
