//! Statistics over the repeats of a run: means, their confidence intervals, and whether two
//! means differ.
//!
//! Intervals are two-sided with a confidence of 95 % (Student's t). Two schedulers that ran
//! with the same seeds had the same work in each repeat, so they are compared pair by pair,
//! which removes the variance of the work. Otherwise Welch's interval is used, which does
//! not assume equal variances.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, StudentsT};

/// A mean over repeats and half the width of its 95 % interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The mean.
    pub mean: f64,
    /// Half the width of the interval around the mean; `None` with fewer than two repeats,
    /// which have no variance.
    #[serde(rename = "half_width_95")]
    pub half_width: Option<f64>,
    /// The ends of the interval where it is not symmetric, as that of a change of figures above
    /// zero, which is even in factors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<[f64; 2]>,
    /// The number of repeats.
    pub repeats: u32,
}

/// Whether a difference between two schedulers is significant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Significance {
    /// Zero lies outside the interval: they differ.
    Differs,
    /// Zero lies inside: the difference is within the noise.
    WithinNoise,
    /// Fewer than two repeats: not known.
    Unknown,
}

impl Estimate {
    /// The mean of `values` and its interval.
    pub fn of(values: &[f64]) -> Estimate {
        let n = values.len();
        if n == 0 {
            return Estimate::default();
        }
        let mean = mean(values);
        let half_width = (n > 1).then(|| {
            let error = (variance(values, mean) / n as f64).sqrt();
            margin(error, (n - 1) as f64)
        });
        Estimate {
            mean,
            half_width,
            interval: None,
            repeats: n as u32,
        }
    }

    /// The difference `b - a` of repeats that had the same work pair by pair. Repeats
    /// without a partner are left out.
    pub fn paired_difference(a: &[f64], b: &[f64]) -> Estimate {
        let differences: Vec<f64> = a.iter().zip(b).map(|(a, b)| b - a).collect();
        Estimate::of(&differences)
    }

    /// The difference `b - a` of independent repeats (Welch).
    pub fn welch_difference(a: &[f64], b: &[f64]) -> Estimate {
        if a.is_empty() || b.is_empty() {
            return Estimate::default();
        }
        let (mean_a, mean_b) = (mean(a), mean(b));
        let half_width = (a.len() > 1 && b.len() > 1).then(|| {
            let error_a = variance(a, mean_a) / a.len() as f64;
            let error_b = variance(b, mean_b) / b.len() as f64;
            let error = error_a + error_b;
            // Welch and Satterthwaite's degrees of freedom.
            let freedom = error * error
                / (error_a * error_a / (a.len() - 1) as f64
                    + error_b * error_b / (b.len() - 1) as f64);
            margin(error.sqrt(), freedom)
        });
        Estimate {
            mean: mean_b - mean_a,
            half_width,
            interval: None,
            repeats: a.len().min(b.len()) as u32,
        }
    }

    /// The change from `a` to `b` as a share of `a`; `None` if the mean of `a` is zero.
    ///
    /// Its half width is that of the ratio of two means (W. G. Cochran, "Sampling Techniques",
    /// 1977, chapter 6): of `b` less `a` times the ratio, so that a spread of `a` counts as much
    /// as its mean does. Where all repeats are above zero, the interval is that of the logarithms
    /// (Bland and Altman, "The use of transformation when comparing two means", BMJ 312, 1996):
    /// rates and latencies spread by factors, and one slow repeat of ten would hide a difference
    /// that every repeat shows.
    pub fn relative_change(a: &[f64], b: &[f64], paired: bool) -> Option<Estimate> {
        let (base, ratio) = (mean(a), mean(b) / mean(a));
        if !ratio.is_finite() {
            return None;
        }
        let paired = paired && a.len() == b.len();
        let difference = |a: &[f64], b: &[f64]| match paired {
            true => Estimate::paired_difference(a, b),
            false => Estimate::welch_difference(a, b),
        };
        let expected: Vec<f64> = a.iter().map(|a| a * ratio).collect();
        let rest = difference(&expected, b);
        // Repeats that do not spread differ from their mean by rounding.
        let exact = |half_width: f64| match half_width < ratio.abs() * 1e-12 {
            true => 0.0,
            false => half_width,
        };
        let half_width = rest.half_width.map(|half| exact(half / base.abs()));
        let logarithms = |values: &[f64]| values.iter().map(|value| value.ln()).collect::<Vec<_>>();
        let is_above_zero = a.iter().chain(b).all(|value| *value > 0.0);
        let even = (is_above_zero && half_width > Some(0.0))
            .then(|| difference(&logarithms(a), &logarithms(b)));
        Some(Estimate {
            mean: ratio - 1.0,
            half_width,
            interval: even.and_then(|even| {
                let (low, high) = (even.mean - even.half_width?, even.mean + even.half_width?);
                let mean = ratio.ln();
                Some([low.min(mean).exp() - 1.0, high.max(mean).exp() - 1.0])
            }),
            repeats: rest.repeats,
        })
    }

    /// Whether this difference is more than noise.
    pub fn significance(&self) -> Significance {
        let is_outside = match (self.half_width, self.interval) {
            (None, _) => return Significance::Unknown,
            (Some(_), Some([low, high])) => low > 0.0 || high < 0.0,
            (Some(half_width), None) => self.mean.abs() > half_width,
        };
        match is_outside {
            true => Significance::Differs,
            false => Significance::WithinNoise,
        }
    }

    /// Whether this difference is more than noise if it was found among this many: with one in
    /// twenty beyond its interval by chance, the largest of many would be taken for a
    /// difference. The interval is widened as Bonferroni has it, for n - 1 degrees of freedom,
    /// of which Welch's has no fewer.
    pub fn significance_among(&self, comparisons: usize) -> Significance {
        let Some(half_width) = self.half_width.filter(|half_width| *half_width > 0.0) else {
            return self.significance();
        };
        let freedom = f64::from(self.repeats) - 1.0;
        let confidence = 1.0 - 0.05 / comparisons.max(1) as f64;
        let wider = student_t(confidence, freedom) / student_t(0.95, freedom);
        Estimate {
            half_width: Some(half_width * wider),
            interval: self.interval.map(|ends| widened(ends, wider)),
            ..*self
        }
        .significance()
    }
}

/// An interval of a change that is this many times as wide in logarithms.
fn widened([low, high]: [f64; 2], wider: f64) -> [f64; 2] {
    let (low, high) = (low.ln_1p(), high.ln_1p());
    let (middle, half) = (f64::midpoint(low, high), (high - low) / 2.0 * wider);
    [(middle - half).exp_m1(), (middle + half).exp_m1()]
}

/// Student's t for a two-sided interval of this confidence.
fn student_t(confidence: f64, degrees_of_freedom: f64) -> f64 {
    let below = f64::midpoint(1.0, confidence);
    // Fails only if a parameter is not positive.
    StudentsT::new(0.0, 1.0, degrees_of_freedom).map_or(f64::INFINITY, |t| t.inverse_cdf(below))
}

/// Half an interval's width from the mean's standard error. It is 0 for equal repeats, whose
/// t may be infinite.
fn margin(standard_error: f64, degrees_of_freedom: f64) -> f64 {
    if standard_error == 0.0 {
        return 0.0;
    }
    student_t(0.95, degrees_of_freedom) * standard_error
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The unbiased variance of at least two values.
fn variance(values: &[f64], mean: f64) -> f64 {
    values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (values.len() - 1) as f64
}

/// Jain's fairness index: 1 if all values are equal, `1/n` if one has all. It is 0 without
/// values, or if all are 0.
///
/// R. Jain, D. Chiu and W. Hawe, "A quantitative measure of fairness", DEC
/// TR-301, 1984. For weighted shares, divide the values by their weights.
pub fn jain_index(values: &[f64]) -> f64 {
    let sum: f64 = values.iter().sum();
    let squares: f64 = values.iter().map(|v| v * v).sum();
    if squares == 0.0 {
        return 0.0;
    }
    sum * sum / (values.len() as f64 * squares)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(got: f64, want: f64, tolerance: f64) {
        assert!((got - want).abs() <= tolerance, "{got} is not {want}");
    }

    #[test]
    fn t_is_as_in_the_tables() {
        let table = [
            (1.0, 12.706),
            (2.0, 4.303),
            (3.0, 3.182),
            (4.0, 2.776),
            (5.0, 2.571),
            (9.0, 2.262),
            (10.0, 2.228),
            (30.0, 2.042),
            (120.0, 1.980),
        ];
        for (freedom, t) in table {
            close(student_t(0.95, freedom), t, 0.0005);
        }
    }

    #[test]
    fn among_many_it_takes_more_to_differ() {
        let of = |mean: f64| Estimate {
            mean,
            half_width: Some(1.0),
            interval: None,
            repeats: 5,
        };
        // t of 99.5 % with four degrees of freedom is 5.598, of 95 % 2.776.
        let least = 5.598 / 2.776;
        for (mean, among, is) in [
            (1.01, 1, Significance::Differs),
            (-1.01, 1, Significance::Differs),
            (least * 1.001, 10, Significance::Differs),
            (-least * 0.999, 10, Significance::WithinNoise),
        ] {
            assert_eq!(of(mean).significance_among(among), is, "{mean}");
        }
        let exact = Estimate::of(&[2.0, 2.0]);
        assert_eq!(exact.significance_among(1000), Significance::Differs);
        let single = Estimate::of(&[2.0]);
        assert_eq!(single.significance_among(10), Significance::Unknown);
    }

    #[test]
    fn an_interval_by_hand() {
        // Mean 3, deviation sqrt(2.5), five values: 2.776 * sqrt(2.5 / 5).
        let e = Estimate::of(&[1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!(e.mean, 3.0);
        close(e.half_width.unwrap(), 1.9632, 0.0005);
        assert_eq!(e.repeats, 5);
    }

    #[test]
    fn one_value_has_no_interval() {
        assert_eq!(Estimate::of(&[7.0]).half_width, None);
        assert_eq!(Estimate::of(&[7.0]).significance(), Significance::Unknown);
        assert_eq!(Estimate::of(&[]), Estimate::default());
    }

    #[test]
    fn welch_is_as_r_prints_it() {
        // R's documentation of t.test: the `sleep` data, extra ~ group, gives
        // t = -1.8608, df = 17.776, interval -3.3654832 to 0.2054832.
        let one = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0];
        let two = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4];
        let d = Estimate::welch_difference(&two, &one);
        close(d.mean, -1.58, 1e-9);
        close(d.mean - d.half_width.unwrap(), -3.3654832, 1e-5);
        close(d.mean + d.half_width.unwrap(), 0.2054832, 1e-5);
        assert_eq!(d.significance(), Significance::WithinNoise);
    }

    #[test]
    fn pairing_finds_what_welch_cannot() {
        // The same data paired: interval -2.4598858 to -0.7001142.
        let one = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0];
        let two = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4];
        let d = Estimate::paired_difference(&two, &one);
        close(d.mean - d.half_width.unwrap(), -2.4598858, 1e-5);
        close(d.mean + d.half_width.unwrap(), -0.7001142, 1e-5);
        assert_eq!(d.significance(), Significance::Differs);
    }

    #[test]
    fn a_change_has_the_interval_of_a_ratio() {
        // A base that spreads by half, and a tenth of it each time.
        let (base, tenth) = ([100.0, 150.0, 50.0], [10.0, 15.0, 5.0]);
        let paired = Estimate::relative_change(&base, &tenth, true).expect("a base");
        close(paired.mean, -0.9, 1e-12);
        assert_eq!(paired.half_width, Some(0.0));
        // By hand: both vary by half, t of 4 degrees of freedom is 2.776, so the interval of
        // the ratio is 0.1 * 2.776 * sqrt(2 / 3) / 2.
        let welch = Estimate::relative_change(&base, &tenth, false).expect("a base");
        close(welch.half_width.expect("repeats"), 0.1133, 0.0005);
        assert_eq!(welch.significance(), Significance::Differs);
        assert_eq!(Estimate::relative_change(&[0.0], &[1.0], true), None);
        let single = Estimate::relative_change(&[2.0], &[3.0], true).expect("a base");
        assert_eq!((single.mean, single.half_width), (0.5, None));
    }

    #[test]
    fn a_change_by_a_factor_that_spreads_is_no_noise() {
        // Syncs a second of five seeds: the second is ten times the first in the worst of them.
        let (slow, fast) = (
            [5.0, 8.0, 11.0, 13.0, 60.0],
            [600.0, 650.0, 700.0, 720.0, 800.0],
        );
        let change = Estimate::relative_change(&slow, &fast, false).expect("a base");
        // The ratio of the means is known to a factor of three only.
        assert!(change.half_width.expect("repeats") > 0.9 * (change.mean + 1.0));
        let [low, high] = change.interval.expect("all are above zero");
        assert!(
            9.0 < low && low < change.mean && change.mean < high,
            "{change:?}"
        );
        assert_eq!(change.significance_among(20), Significance::Differs);
        // And back.
        let back = Estimate::relative_change(&fast, &slow, false).expect("a base");
        let [low, high] = back.interval.expect("all are above zero");
        assert!(-1.0 < low && low < back.mean && back.mean < high && high < -0.9);
        assert_eq!(back.significance_among(20), Significance::Differs);
    }

    #[test]
    fn a_small_spread_has_an_even_interval() {
        let (base, more) = ([100.0, 102.0, 98.0], [105.0, 103.0, 107.0]);
        let change = Estimate::relative_change(&base, &more, false).expect("a base");
        let half = change.half_width.expect("repeats");
        let [low, high] = change.interval.expect("all are above zero");
        close(change.mean - low, half, 0.05 * half);
        close(high - change.mean, half, 0.05 * half);
    }

    #[test]
    fn a_repeat_without_anything_leaves_the_interval_of_the_ratio() {
        let change = Estimate::relative_change(&[0.0, 2.0, 4.0], &[3.0, 3.0, 9.0], true);
        let change = change.expect("a base");
        assert_eq!(change.interval, None);
        assert!(change.half_width > Some(0.0));
    }

    #[test]
    fn repeats_that_do_not_spread_differ_exactly() {
        let d = Estimate::welch_difference(&[5.0, 5.0], &[6.0, 6.0]);
        assert_eq!(d.half_width, Some(0.0));
        assert_eq!(d.significance(), Significance::Differs);
        let same = Estimate::paired_difference(&[5.0, 5.0], &[5.0, 5.0]);
        assert_eq!(same.significance(), Significance::WithinNoise);
    }

    #[test]
    fn jain_s_index_is_between_one_and_the_share_of_one() {
        assert_eq!(jain_index(&[]), 0.0);
        assert_eq!(jain_index(&[0.0, 0.0]), 0.0);
        assert!((jain_index(&[5.0, 5.0, 5.0]) - 1.0).abs() < 1e-12);
        assert!((jain_index(&[7.0, 0.0, 0.0, 0.0]) - 0.25).abs() < 1e-12);
        // (1 + 3)^2 / (2 * (1 + 9))
        assert!((jain_index(&[1.0, 3.0]) - 0.8).abs() < 1e-12);
    }

    #[test]
    fn one_repeat_on_either_side_leaves_the_difference_open() {
        for (a, b) in [(&[1.0][..], &[4.0, 6.0][..]), (&[1.0, 1.0], &[5.0])] {
            let d = Estimate::welch_difference(a, b);
            assert_eq!((d.mean, d.half_width, d.repeats), (4.0, None, 1));
            assert_eq!(d.significance(), Significance::Unknown);
        }
        assert_eq!(Estimate::welch_difference(&[], &[1.0]), Estimate::default());
        assert_eq!(Estimate::welch_difference(&[1.0], &[]), Estimate::default());
    }
}
