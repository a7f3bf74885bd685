//! Which part of a run is shown moment by moment.

use blklab_experiment::Recording;
use clap::Args;

/// Which part of a run a page or a Perfetto trace shows moment by moment.
#[derive(Args)]
pub(crate) struct TimelineArgs {
    /// Where the timeline of --html or --perfetto begins, in the simulated run;
    /// the end of the ramp if not given
    #[arg(long, value_name = "TIME", value_parser = time_ns)]
    pub(crate) timeline_start: Option<u64>,

    /// How long the timeline is; if not given 20ms, 500ms of a disk, or 1s for
    /// --perfetto
    #[arg(long, value_name = "TIME", value_parser = time_ns)]
    pub(crate) timeline_length: Option<u64>,
}

impl TimelineArgs {
    /// What is recorded for a page or for Perfetto, if either is asked for.
    pub(crate) fn recording(&self, page: bool, perfetto: bool) -> Option<Recording> {
        (page || perfetto).then_some(Recording {
            start_ns: self.timeline_start,
            length_ns: self.timeline_length,
            for_perfetto: perfetto,
        })
    }

    /// An option that was given though nothing is recorded.
    pub(crate) fn given(&self) -> Option<&'static str> {
        match (self.timeline_start, self.timeline_length) {
            (Some(_), _) => Some("--timeline-start"),
            (_, Some(_)) => Some("--timeline-length"),
            (None, None) => None,
        }
    }
}

/// A time with its unit, in nanoseconds.
pub(crate) fn time_ns(text: &str) -> Result<u64, String> {
    let wrong = || "right is a number with its unit: 500us, 20ms or 1.5s".to_string();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match &text[digits.len()..] {
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        _ => return Err(wrong()),
    };
    let number: f64 = digits.parse().map_err(|_| wrong())?;
    let ns = number * factor;
    match (0.0..9e18).contains(&ns) {
        true => Ok(ns as u64),
        false => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn times_have_a_unit() {
        assert_eq!(time_ns("1.5s"), Ok(1_500_000_000));
        assert_eq!(time_ns("20ms"), Ok(20_000_000));
        assert_eq!(time_ns("0ns"), Ok(0));
        for wrong in ["", "1", "s", "-1s", "1e30s", "NaNs", "infs", "1 s", "1m"] {
            assert!(time_ns(wrong).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in ".{0,12}", number in "[0-9.e+-]{0,8}(ns|us|ms|s)") {
            let _ = time_ns(&text);
            let _ = time_ns(&number);
        }
    }
}
