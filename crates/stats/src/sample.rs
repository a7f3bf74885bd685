//! A running sample of values, computed as fio does.

/// A running sample: count, mean, deviation, extremes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// Number of values.
    pub count: u64,
    /// Smallest.
    pub min: f64,
    /// Largest.
    pub max: f64,
    sum: f64,
    sum_squares: f64,
}

impl Sample {
    /// Returns a sample of which only these figures are known; `stddev` is over `n - 1`,
    /// as in fio's output.
    pub fn of_moments(count: u64, min: f64, max: f64, mean: f64, stddev: f64) -> Sample {
        if count == 0 {
            return Sample::default();
        }
        let n = count as f64;
        Sample {
            count,
            min,
            max,
            sum: mean * n,
            sum_squares: stddev * stddev * (n - 1.0) + mean * mean * n,
        }
    }

    /// Counts a value.
    pub fn record(&mut self, value: f64) {
        self.min = if self.count == 0 {
            value
        } else {
            self.min.min(value)
        };
        self.max = if self.count == 0 {
            value
        } else {
            self.max.max(value)
        };
        self.count += 1;
        self.sum += value;
        self.sum_squares += value * value;
    }

    /// Returns the mean; zero without values.
    pub fn mean(&self) -> f64 {
        if self.count == 0 {
            0.0
        } else {
            self.sum / self.count as f64
        }
    }

    /// Returns the population's standard deviation.
    pub fn stddev(&self) -> f64 {
        if self.count == 0 {
            return 0.0;
        }
        let variance = self.sum_squares / self.count as f64 - self.mean() * self.mean();
        libm::sqrt(variance.max(0.0))
    }

    /// Returns the standard deviation as fio computes it: of a sample, over `n - 1`.
    pub fn sample_stddev(&self) -> f64 {
        if self.count < 2 {
            return 0.0;
        }
        let n = self.count as f64;
        self.stddev() * libm::sqrt(n / (n - 1.0))
    }

    /// Adds the rate of another process over the same time. Rates of concurrent processes add
    /// up, while [`Sample::merge`] would average them. Extremes and deviations are computed
    /// as in fio's `sum_stat`.
    pub fn sum_rates(&mut self, other: &Sample) {
        if self.count == 0 || other.count == 0 {
            return self.merge(other);
        }
        let spread = |s: &Sample| s.sum_squares - s.sum * s.sum / s.count as f64;
        let spread_of_both = spread(self) + spread(other);
        let mean = self.mean() + other.mean();
        self.count += other.count;
        self.min += other.min;
        self.max += other.max;
        self.sum = mean * self.count as f64;
        self.sum_squares = spread_of_both + mean * self.sum;
    }

    /// Adds another's values.
    pub fn merge(&mut self, other: &Sample) {
        if other.count == 0 {
            return;
        }
        self.min = if self.count == 0 {
            other.min
        } else {
            self.min.min(other.min)
        };
        self.max = if self.count == 0 {
            other.max
        } else {
            self.max.max(other.max)
        };
        self.count += other.count;
        self.sum += other.sum;
        self.sum_squares += other.sum_squares;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_side_by_side_add_up() {
        let mut a = Sample::default();
        let mut b = Sample::default();
        [10.0, 20.0].into_iter().for_each(|v| a.record(v));
        [100.0, 200.0, 300.0].into_iter().for_each(|v| b.record(v));
        a.sum_rates(&b);
        assert_eq!((a.count, a.min, a.max, a.mean()), (5, 110.0, 320.0, 215.0));
        // S of 50 and 20000, over n - 1.
        assert!((a.sample_stddev() - (20_050.0f64 / 4.0).sqrt()).abs() < 1e-9);
        let mut fresh = Sample::default();
        fresh.sum_rates(&a);
        assert_eq!(fresh, a);
    }

    #[test]
    fn a_sample_of_moments_has_them() {
        let s = Sample::of_moments(4, 1.0, 9.0, 5.0, 2.5);
        assert_eq!((s.count, s.min, s.max, s.mean()), (4, 1.0, 9.0, 5.0));
        assert!((s.sample_stddev() - 2.5).abs() < 1e-12);
        assert_eq!(Sample::of_moments(0, 1.0, 1.0, 1.0, 1.0), Sample::default());
    }

    #[test]
    fn merged_samples_are_as_recorded_together() {
        let (mut a, mut b, mut both) = (Sample::default(), Sample::default(), Sample::default());
        for (i, v) in [3.0, -1.0, 4.0, 1.0, 5.0].into_iter().enumerate() {
            if i < 2 {
                a.record(v)
            } else {
                b.record(v)
            }
            both.record(v);
        }
        a.merge(&b);
        assert_eq!(a, both);
        assert_eq!((a.min, a.max, a.mean()), (-1.0, 5.0, 2.4));
        assert!((a.sample_stddev() - 5.8f64.sqrt()).abs() < 1e-12);
    }

    #[test]
    fn deviations_need_values_and_fio_s_two_of_them() {
        let mut s = Sample::default();
        assert_eq!((s.mean(), s.stddev(), s.sample_stddev()), (0.0, 0.0, 0.0));
        s.record(5.0);
        assert_eq!((s.mean(), s.stddev(), s.sample_stddev()), (5.0, 0.0, 0.0));
        s.record(7.0);
        assert_eq!((s.min, s.max, s.mean(), s.stddev()), (5.0, 7.0, 6.0, 1.0));
        assert!((s.sample_stddev() - 2.0f64.sqrt()).abs() < 1e-12);
    }

    /// The extremes of a sample without values are not among those of the sum.
    #[test]
    fn merging_with_nothing_changes_nothing() {
        let mut some = Sample::default();
        [-4.0, -2.0].into_iter().for_each(|v| some.record(v));
        let mut sum = some;
        sum.merge(&Sample::default());
        assert_eq!(sum, some);
        let mut sum = Sample::default();
        sum.merge(&some);
        assert_eq!(sum, some);
        let mut high = Sample::default();
        [40.0, 60.0].into_iter().for_each(|v| high.record(v));
        let mut sum = Sample::default();
        sum.merge(&high);
        assert_eq!((sum, sum.min), (high, 40.0));
    }
}
