//! Quantities as the comparison's reports show them: few digits, and one unit for each
//! column.

use blklab_stats::{Estimate, Unit};

/// The unit of a column of figures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Scale {
    /// The unit's symbol.
    pub unit: &'static str,
    /// The unit's size in the base unit (bytes a second, nanoseconds).
    pub factor: f64,
    /// Digits after the point, if they do not follow from the size.
    decimals: Option<usize>,
}

const LATENCY: [Scale; 4] = [
    scale("ns", 1.0),
    scale("us", 1e3),
    scale("ms", 1e6),
    scale("s", 1e9),
];

const BANDWIDTH: [Scale; 4] = [
    scale("B/s", 1.0),
    scale("kB/s", 1e3),
    scale("MB/s", 1e6),
    scale("GB/s", 1e9),
];

const COUNT: [Scale; 3] = [scale("", 1.0), scale("k", 1e3), scale("M", 1e6)];

const fn scale(unit: &'static str, factor: f64) -> Scale {
    Scale {
        unit,
        factor,
        decimals: None,
    }
}

impl Scale {
    /// Returns the unit in which a typical latency of `ns` has two to five digits.
    pub fn for_latency(ns: f64) -> Scale {
        largest_within(&LATENCY, ns)
    }

    /// Returns the unit for a bandwidth in bytes a second.
    pub fn for_bandwidth(bytes_per_s: f64) -> Scale {
        largest_within(&BANDWIDTH, bytes_per_s)
    }

    /// Returns the unit for a plain number.
    pub fn for_count(count: f64) -> Scale {
        match count < 10_000.0 {
            true => COUNT[0],
            false => largest_within(&COUNT, count),
        }
    }

    /// Returns the unit for an index between zero and one, whose third digit matters.
    pub fn for_index() -> Scale {
        Scale {
            decimals: Some(3),
            ..COUNT[0]
        }
    }

    /// Formats a value in this unit, without the unit's symbol.
    pub fn show(&self, value: f64) -> String {
        match self.decimals {
            Some(decimals) => format!("{:.decimals$}", value / self.factor),
            None => short(value / self.factor),
        }
    }
}

fn largest_within(scales: &[Scale], value: f64) -> Scale {
    // At least two digits before the point: 9000 ns reads better than 9 us.
    let fits = |s: &&Scale| value >= 10.0 * s.factor;
    *scales.iter().rev().find(fits).unwrap_or(&scales[0])
}

/// Formats a number with about four digits.
pub(crate) fn short(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_string(),
        size if size < 0.01 => format!("{value:.1e}"),
        size if size < 9.995 => format!("{value:.2}"),
        size if size < 999.95 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// Formats a latency with its unit.
pub(crate) fn latency(ns: f64) -> String {
    let scale = Scale::for_latency(ns);
    format!("{} {}", scale.show(ns), scale.unit)
}

/// Shares from here on, ten times as much, are shown as factors instead of percent.
const FACTOR_FROM: f64 = 9.0;

/// Formats a signed share in percent, such as `+4.1 %`, or as a factor such as `x12.3`
/// from ten times as much on.
pub(crate) fn signed_percent(share: f64) -> String {
    if share >= FACTOR_FROM {
        return format!("x{}", short(share + 1.0));
    }
    let percent = share * 100.0;
    // Rounding first avoids `-0.0`.
    let tenths = (percent * 10.0).round() / 10.0 + 0.0;
    match tenths.abs() < 100.0 {
        true => format!("{tenths:+.1} %"),
        false => format!("{percent:+.0} %"),
    }
}

/// Formats half an interval in percent, such as `±0.3 %`; `None` if it is missing or
/// zero. An interval wider than the figure itself is only shown as such.
pub(crate) fn plus_minus_percent(half_width: Option<f64>) -> Option<String> {
    let percent = half_width? * 100.0;
    match percent {
        0.0 => None,
        ..0.05 => Some("±≤0.1 %".to_string()),
        ..10.0 => Some(format!("±{percent:.1} %")),
        ..=100.0 => Some(format!("±{percent:.0} %")),
        _ => Some("±≥100 %".to_string()),
    }
}

/// The ratio between the largest and the smallest figure from which the smallest one's
/// unit makes the largest unreadable.
const FAR_APART_RATIO: f64 = 1000.0;

/// Formats a fact in one unit for all schedulers: that of the smallest value, or of the
/// geometric mean if the values are far apart.
pub(crate) fn facts(unit: Unit, values: &[Option<f64>]) -> Vec<String> {
    let known = || values.iter().flatten().filter(|value| **value > 0.0);
    let least = known().copied().fold(f64::INFINITY, f64::min);
    let most = known().copied().fold(0.0, f64::max);
    let far_apart = most >= least * FAR_APART_RATIO;
    let typical = match (least.is_finite(), far_apart) {
        (false, _) => 0.0,
        (true, false) => least,
        (true, true) => (least * most).sqrt(),
    };
    let show = |value: &Option<f64>| match *value {
        None => "-".to_string(),
        Some(value) => fact(unit, value, typical),
    };
    values.iter().map(show).collect()
}

/// Formats one scheduler's value in the unit that suits `typical`.
fn fact(unit: Unit, value: f64, typical: f64) -> String {
    match unit {
        Unit::Count => {
            let scale = Scale::for_count(typical);
            format!("{}{}", count_in(scale, value), scale.unit)
        }
        Unit::Bytes => format!("{} KiB", short(value / 1024.0)),
        Unit::Nanoseconds => {
            let scale = Scale::for_latency(typical);
            format!("{} {}", scale.show(value), scale.unit)
        }
        Unit::Share => format!("{:.1} %", value * 100.0),
        Unit::Ratio => format!("{value:.2}"),
    }
}

/// Counts are whole unless they are means over repeats.
fn count_in(scale: Scale, count: f64) -> String {
    match scale.factor == 1.0 && count.fract() == 0.0 {
        true => format!("{count:.0}"),
        false => scale.show(count),
    }
}

/// Formats a change with its interval: `+4.1 % ±0.3 %`.
pub(crate) fn change(relative: &Estimate) -> String {
    let mean = signed_percent(relative.mean);
    let interval = match relative.mean >= FACTOR_FROM {
        true => (relative.half_width.map(short))
            .filter(|half| half != "0")
            .map(|half| format!("±{half}")),
        false => plus_minus_percent(relative.half_width),
    };
    match interval {
        Some(interval) => format!("{mean} {interval}"),
        None => mean,
    }
}

/// Returns half an interval as a share of its mean; `None` if either is missing.
pub(crate) fn relative_half_width(value: &Estimate) -> Option<f64> {
    let half_width = value.half_width?;
    (value.mean != 0.0).then(|| half_width / value.mean.abs())
}

/// Joins words as a list: `a`, `a and b`, `a, b and c`.
pub(crate) fn and_list(words: &[String]) -> String {
    match words {
        [] => String::new(),
        [only] => only.clone(),
        [most @ .., last] => format!("{} and {last}", most.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_leave_two_to_five_digits() {
        assert_eq!(latency(9_000.0), "9000 ns");
        assert_eq!(latency(85_340.0), "85.3 us");
        assert_eq!(latency(12_345_678.0), "12.3 ms");
        assert_eq!(latency(0.0), "0 ns");
        assert_eq!(Scale::for_bandwidth(512.4e6).show(512.4e6), "512.4");
        assert_eq!(Scale::for_count(9_999.0).show(9_999.0), "9999");
        assert_eq!(Scale::for_count(123_456.0).unit, "k");
    }

    #[test]
    fn a_fact_has_one_unit_for_all_unless_they_are_far_apart() {
        let ns = |values: &[f64]| {
            let values: Vec<Option<f64>> = values.iter().copied().map(Some).collect();
            facts(Unit::Nanoseconds, &values)
        };
        assert_eq!(ns(&[9_000.0, 85_340.0]), ["9000 ns", "85340 ns"]);
        assert_eq!(ns(&[85_340.0, 12.3e6]), ["85.3 us", "12300 us"]);
        assert_eq!(ns(&[85_340.0, 2e9, 0.0]), ["0.09 ms", "2000 ms", "0 ms"]);
        let counts = facts(Unit::Count, &[Some(9_000.0), None, Some(12_000.0)]);
        assert_eq!(counts, ["9000", "-", "12000"]);
    }

    #[test]
    fn changes_carry_their_sign() {
        assert_eq!(signed_percent(0.0412), "+4.1 %");
        assert_eq!(signed_percent(-0.0001), "+0.0 %");
        assert_eq!(signed_percent(-0.152), "-15.2 %");
        assert_eq!(signed_percent(8.0), "+800 %");
        assert_eq!(signed_percent(12.3), "x13.3");
        let manifold = Estimate {
            half_width: Some(0.25),
            ..Estimate::of(&[1233.5])
        };
        assert_eq!(change(&manifold), "x1234 ±0.25");
        assert_eq!(plus_minus_percent(Some(0.0031)).as_deref(), Some("±0.3 %"));
        let even = Estimate {
            half_width: Some(0.0),
            ..manifold
        };
        assert_eq!(change(&even), "x1234");
        assert_eq!(plus_minus_percent(None), None);
        assert_eq!(plus_minus_percent(Some(0.0)), None);
        assert_eq!(
            plus_minus_percent(Some(0.000_1)).as_deref(),
            Some("±≤0.1 %")
        );
        assert_eq!(plus_minus_percent(Some(29.79)).as_deref(), Some("±≥100 %"));
    }

    #[test]
    fn lists_read_as_english() {
        let words = ["a", "b", "c"].map(String::from);
        assert_eq!(and_list(&words), "a, b and c");
        assert_eq!(and_list(&words[..2]), "a and b");
        assert_eq!(and_list(&words[..1]), "a");
    }
}
