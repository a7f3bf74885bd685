//! A comparison as JSON.

use crate::comparison::Comparison;

/// Returns the comparison as JSON, with a line feed at the end.
pub fn render(comparison: &Comparison) -> String {
    let mut text =
        serde_json::to_string_pretty(comparison).expect("its keys are strings, its values plain");
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::comparison::compare;
    use crate::sample_run::three_schedulers;

    #[test]
    fn has_the_figures_by_name() {
        let json: Value = serde_json::from_str(&render(&compare(&three_schedulers(3)))).unwrap();
        let read = &json["sections"][0]["directions"][0];
        assert_eq!(read["direction"], "read");
        let ac = &read["rows"][2];
        assert_eq!(ac["scheduler"], "ac");
        for metric in [
            "bandwidth_bytes_per_s",
            "iops",
            "latency_mean_ns",
            "latency_p50_ns",
            "latency_p99_ns",
            "latency_p99.9_ns",
            "latency_max_ns",
        ] {
            let cell = &ac["cells"][metric];
            assert!(cell["value"]["mean"].as_f64().unwrap() > 0.0, "{metric}");
            assert!(cell["value"]["half_width_95"].is_f64(), "{metric}");
            assert!(cell["change"]["relative"]["mean"].is_f64(), "{metric}");
        }
        assert_eq!(
            json["sections"][0]["verdict"]["bandwidths"][0]["outcome"],
            "wins"
        );
        assert_eq!(json["channels"][0]["busy"].as_array().unwrap().len(), 8);
    }

    #[test]
    fn same_comparison_same_bytes() {
        let text = || render(&compare(&three_schedulers(2)));
        assert_eq!(text(), text());
    }
}
