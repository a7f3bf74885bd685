//! Which part of a run is shown moment by moment.

use blklab_device::DriveSpec;
use blklab_stats::Window;
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

/// What --html and --perfetto keep at most: a page or a viewer holds no more.
const PAGE_ENTRIES: usize = 60_000;
const PERFETTO_ENTRIES: usize = 3_000_000;

impl TimelineArgs {
    /// The window to record of that drive for what is asked for; a Perfetto trace
    /// takes more.
    /// Without an option it begins at `start_ns`.
    pub(crate) fn window(
        &self,
        page: bool,
        perfetto: bool,
        (drive, start_ns): (&DriveSpec, u64),
    ) -> Option<Window> {
        // An I/O of a disk takes about ten milliseconds.
        let page_ns = match drive.identity().rotational {
            true => 500_000_000,
            false => 20_000_000,
        };
        let (length_ns, max_entries) = match (page, perfetto) {
            (_, true) => (1_000_000_000, PERFETTO_ENTRIES),
            (true, false) => (page_ns, PAGE_ENTRIES),
            (false, false) => return None,
        };
        Some(Window {
            start_ns: self.timeline_start.unwrap_or(start_ns),
            length_ns: self.timeline_length.unwrap_or(length_ns),
            max_entries,
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

    #[test]
    fn a_page_shows_more_of_a_disk() {
        let args = TimelineArgs {
            timeline_start: None,
            timeline_length: None,
        };
        let length_ns = |name: &str| {
            let (drive, _) = blklab_device::registry::load(name).expect("known");
            let window = args.window(true, false, (&drive, 7)).expect("a page");
            assert_eq!(window.start_ns, 7);
            window.length_ns
        };
        assert_eq!(length_ns("hdd-7200"), 500_000_000);
        assert_eq!(length_ns("mx100-256"), 20_000_000);
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in ".{0,12}", number in "[0-9.e+-]{0,8}(ns|us|ms|s)") {
            let _ = time_ns(&text);
            let _ = time_ns(&number);
        }
    }
}
