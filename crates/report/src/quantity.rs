//! Quantities as the comparison's reports show them: few digits, and one unit for each
//! column.

use blklab_description::nearest_few;
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

/// The smallest and the largest figure of a column.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Span {
    least: f64,
    most: f64,
}

impl Span {
    /// Returns the span of some figures, of which zeros do not count.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Span {
        let mut span = Span {
            least: f64::INFINITY,
            most: 0.0,
        };
        for value in values.into_iter().filter(|value| *value > 0.0) {
            span.least = span.least.min(value);
            span.most = span.most.max(value);
        }
        if span.most == 0.0 {
            span.least = 0.0;
        }
        span
    }
}

impl From<f64> for Span {
    fn from(value: f64) -> Span {
        Span::of([value])
    }
}

impl Scale {
    /// Returns the unit for latencies in nanoseconds.
    pub fn for_latency(span: impl Into<Span>) -> Scale {
        for_column(&LATENCY, span.into())
    }

    /// Returns the unit for bandwidths in bytes a second.
    pub fn for_bandwidth(span: impl Into<Span>) -> Scale {
        for_column(&BANDWIDTH, span.into())
    }

    /// Returns the unit for plain numbers.
    pub fn for_count(span: impl Into<Span>) -> Scale {
        let span = span.into();
        match span.least < 10_000.0 && span.most < UNREADABLE {
            true => COUNT[0],
            false => for_column(&COUNT, span),
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

    /// Formats a value with the unit.
    pub fn with_unit(&self, value: f64) -> String {
        format!("{} {}", self.show(value), self.unit)
    }
}

/// Numbers from here on are not read at a glance.
const UNREADABLE: f64 = 100_000.0;
/// Numbers from here on are shown in the next unit if the smallest figure is one of it at
/// least.
const LONG: f64 = 10_000.0;

/// Returns the unit in which the smallest figure has two digits before the point, since 9000 ns
/// reads better than 9 us, or a larger one in which the largest figure is readable.
fn for_column(scales: &[Scale], span: Span) -> Scale {
    let fits = |s: &Scale| span.least >= 10.0 * s.factor;
    let mut at = scales.iter().rposition(fits).unwrap_or(0);
    while let Some(next) = scales.get(at + 1) {
        let most = span.most / scales[at].factor;
        if most < LONG || (most < UNREADABLE && span.least < next.factor) {
            break;
        }
        at += 1;
    }
    scales[at]
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
    Scale::for_latency(ns).with_unit(ns)
}

/// Shares from here on, ten times as much, are shown as factors instead of percent.
const FACTOR_FROM: f64 = 9.0;

/// An interval that is wider than this share of what a figure has become is shown by its ends.
const EVEN_TO: f64 = 0.3;

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

/// Formats a fact in one unit for all schedulers.
pub(crate) fn facts(unit: Unit, values: &[Option<f64>]) -> Vec<String> {
    let span = Span::of(values.iter().flatten().copied());
    let show = |value: &Option<f64>| match *value {
        None => "-".to_string(),
        Some(value) => fact(unit, value, span),
    };
    values.iter().map(show).collect()
}

/// Formats one scheduler's value in the unit that suits all.
fn fact(unit: Unit, value: f64, span: Span) -> String {
    match unit {
        Unit::Count => {
            let scale = Scale::for_count(span);
            format!("{}{}", count_in(scale, value), scale.unit)
        }
        Unit::Bytes => format!("{} KiB", short(value / 1024.0)),
        Unit::Nanoseconds => Scale::for_latency(span).with_unit(value),
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

/// Formats the interval of a change: `±0.3 %`, or both ends where they are not about as far from
/// the change, as in `(-81 % to -12 %)` and `(x12 to x69)`; `None` if it is missing or zero.
pub(crate) fn interval_of_change(relative: &Estimate) -> Option<String> {
    let (mean, half_width) = (relative.mean, relative.half_width?);
    let [low, high] = match relative.interval {
        Some(ends) => ends,
        // A figure above zero cannot become less than nothing.
        None => [(mean - half_width).max(-1.0), mean + half_width],
    };
    if half_width == 0.0 {
        return None;
    }
    let (below, above) = (mean - low, high - mean);
    if below.max(above) > EVEN_TO * (1.0 + mean) {
        return Some(format!(
            "({} to {})",
            end_of_interval(low),
            end_of_interval(high)
        ));
    }
    // The end that is nearer to no change.
    let nearer = if mean < 0.0 { above } else { below };
    match mean >= FACTOR_FROM {
        true => Some(format!("±{}", short(nearer))).filter(|text| text != "±0"),
        false => plus_minus_percent(Some(nearer)),
    }
}

fn end_of_interval(share: f64) -> String {
    match share {
        FACTOR_FROM.. => format!("x{}", short(share + 1.0)),
        _ => format!("{:+.0} %", share * 100.0),
    }
}

/// Formats a change with its interval: `+4.1 % ±0.3 %`.
pub(crate) fn change(relative: &Estimate) -> String {
    let mean = signed_percent(relative.mean);
    match interval_of_change(relative) {
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

/// Names that a message lists, at most.
const LISTED: usize = 8;

/// Names in place of many.
const NEAREST: usize = 5;

/// Returns all known names, or of many those that are nearest to a typed one and how many others
/// there are.
pub(crate) fn few_of(typed: &str, known: &[String]) -> String {
    if known.len() <= LISTED {
        return and_list(known);
    }
    let nearest = nearest_few(typed, known.iter().map(String::as_str), NEAREST);
    let others = known.len() - nearest.len();
    format!("{} and {others} others", nearest.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_names_the_nearest_are_listed() {
        let names: Vec<String> = (0..110).map(|n| format!("bfq slice_idle_us={n}")).collect();
        let few = few_of("bfq slice_idel_us=7", &names);
        assert!(few.starts_with("bfq slice_idle_us=7, "), "{few}");
        assert!(few.ends_with(" and 105 others"), "{few}");
        assert!(few.len() < 150, "{few}");
        assert_eq!(
            few_of("x", &names[..2]),
            "bfq slice_idle_us=0 and bfq slice_idle_us=1"
        );
    }

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
    fn a_fact_has_one_unit_for_all_in_which_the_largest_is_readable() {
        let ns = |values: &[f64]| {
            let values: Vec<Option<f64>> = values.iter().copied().map(Some).collect();
            facts(Unit::Nanoseconds, &values)
        };
        assert_eq!(ns(&[9_000.0, 9_900.0]), ["9000 ns", "9900 ns"]);
        assert_eq!(ns(&[9_000.0, 85_340.0]), ["9.00 us", "85.3 us"]);
        assert_eq!(ns(&[8_600.0, 12_323_800.0]), ["8.60 us", "12324 us"]);
        assert_eq!(ns(&[3.4e6, 26.97e6]), ["3.40 ms", "27.0 ms"]);
        assert_eq!(ns(&[85_340.0, 12.3e6]), ["85.3 us", "12300 us"]);
        assert_eq!(ns(&[85_340.0, 2e9, 0.0]), ["0.09 ms", "2000 ms", "0 ms"]);
        let counts = facts(Unit::Count, &[Some(9_000.0), None, Some(12_000.0)]);
        assert_eq!(counts, ["9000", "-", "12000"]);
        let counts = facts(Unit::Count, &[Some(9_000.0), Some(2e6)]);
        assert_eq!(counts, ["9.00k", "2000k"]);
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
        let reduction = |half_width: f64| Estimate {
            mean: -0.864,
            half_width: Some(half_width),
            ..manifold
        };
        assert_eq!(change(&reduction(0.04)), "-86.4 % ±4.0 %");
        assert_eq!(change(&reduction(0.22)), "-86.4 % (-100 % to -64 %)");
        assert_eq!(change(&reduction(3.0)), "-86.4 % (-100 % to +214 %)");
        let by_ends = |mean: f64, low: f64, high: f64| {
            change(&Estimate {
                mean,
                half_width: Some(1.0),
                interval: Some([low, high]),
                repeats: 5,
            })
        };
        assert_eq!(by_ends(0.04, 0.02, 0.07), "+4.0 % ±2.0 %");
        assert_eq!(by_ends(-0.04, -0.07, -0.01), "-4.0 % ±3.0 %");
        assert_eq!(by_ends(1.5, 0.2, 3.0), "+150 % (+20 % to +300 %)");
        assert_eq!(by_ends(56.0, 8.0, 90.0), "x57.0 (+800 % to x91.0)");
        assert_eq!(by_ends(56.0, 50.0, 63.0), "x57.0 ±6.00");
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
