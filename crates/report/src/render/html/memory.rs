//! Charts of cached and dirty memory over time.

use std::fmt::{self, Write};

use super::{OverTime, chart, drawn};
use crate::comparison::MemoryTimeline;
use crate::quantity::short;

const WIDTH: f64 = 260.0;
const HEIGHT: f64 = 90.0;

/// Height of the chart's title.
const ABOVE: f64 = 16.0;

/// The areas with their colours.
const AREAS: [(&str, &str); 2] = [("cached", "var(--deep0)"), ("dirty", "var(--s2)")];

/// Returns the charts of all schedulers' memory; empty if no job used the page cache.
pub(super) fn over_time(timelines: &[MemoryTimeline]) -> OverTime<'_> {
    let areas = AREAS.iter();
    let most_bytes = most_bytes(timelines);
    let charts = timelines.iter();
    OverTime {
        title: "Memory",
        about: "What was cached over the first run, and what of it was dirty.",
        legend: areas
            .map(|(name, colour)| (chart::legend_area(colour).0, *name))
            .collect(),
        charts: charts
            .map(|of| (of.scheduler.as_str(), chart(of, most_bytes)))
            .collect(),
    }
}

/// Returns the most that was cached or dirty under any scheduler, in bytes, for a scale
/// common to all charts.
fn most_bytes(timelines: &[MemoryTimeline]) -> u64 {
    let all = timelines.iter();
    let all = all.flat_map(|of| of.cached_bytes.iter().chain(&of.dirty_bytes));
    all.copied().max().unwrap_or(0).max(1)
}

/// Draws a scheduler's memory: the area of cached memory, and the area of dirty memory
/// over it.
fn chart(timeline: &MemoryTimeline, most_bytes: u64) -> String {
    drawn(|out| {
        let last_ns = timeline.at_ns.last().copied().unwrap_or(0).max(1);
        let most_mib = short(most_bytes as f64 / f64::from(1 << 20));
        let length_s = last_ns as f64 / 1e9;
        let title = format!("up to {most_mib} MiB, {length_s:.1} s");
        chart::open_svg(out, WIDTH, ABOVE + HEIGHT + 2.0, &title)?;
        chart::tick(out, (0.0, 11.0), "start", &title)?;
        let values = [&timeline.cached_bytes, &timeline.dirty_bytes];
        for (bytes, (_, colour)) in values.into_iter().zip(AREAS) {
            let scaled = (timeline.at_ns.iter().zip(bytes)).map(|(at_ns, bytes)| {
                let across = *at_ns as f64 / last_ns as f64 * WIDTH;
                let share = *bytes as f64 / most_bytes as f64;
                (across, ABOVE + HEIGHT * (1.0 - share))
            });
            area(out, scaled, colour)?;
        }
        let floor = ABOVE + HEIGHT;
        chart::line(out, "axis", (0.0, floor), (WIDTH, floor))?;
        writeln!(out, "</svg>")
    })
    .0
}

/// Draws an area from the floor up to these points.
fn area(out: &mut String, points: impl Iterator<Item = (f64, f64)>, colour: &str) -> fmt::Result {
    let floor = ABOVE + HEIGHT;
    write!(out, "<path fill=\"{colour}\" d=\"M0 {floor:.1}")?;
    let mut last = 0.0;
    for (across, down) in points {
        write!(out, "L{across:.1} {down:.1}")?;
        last = across;
    }
    writeln!(out, "L{last:.1} {floor:.1}z\"/>")
}

#[cfg(test)]
mod tests {
    use super::*;
    use askama::Template;

    #[test]
    fn areas_share_a_scale_and_end_on_the_floor() {
        let timeline = |scheduler: &str, cached_bytes| MemoryTimeline {
            scheduler: scheduler.to_string(),
            at_ns: vec![0, 1_000_000_000],
            dirty_bytes: vec![0, 1 << 20],
            cached_bytes: vec![0, cached_bytes],
        };
        let timelines = [timeline("a<b", 4 << 20), timeline("ac", 2 << 20)];
        let page = over_time(&timelines).render().expect("a string takes all");
        assert!(page.contains("a&lt;b"), "{page}");
        // The cached areas reach the full and half the height; the dirty areas a
        // quarter.
        for points in [
            "L260.0 16.0L260.0 106.0z",
            "L260.0 61.0L260.0 106.0z",
            "L260.0 83.5L260.0 106.0z",
        ] {
            assert!(page.contains(points), "{points}: {page}");
        }
        let none = over_time(&[]).render().expect("a string takes all");
        assert!(none.is_empty());
    }
}
