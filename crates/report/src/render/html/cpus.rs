//! Charts of CPU use over time.

use std::fmt::{self, Write};

use super::{OverTime, chart, drawn};
use crate::comparison::{CPU_PARTS, CpuTimeline};

/// Limit on the CPUs that are drawn one by one; of more, the mean is drawn.
const CPUS_APART: usize = 16;

/// Spans of time of all CPUs together: more columns could not be told apart.
const COLUMNS: usize = 87;

const WIDTH: f64 = 260.0;
const HEIGHT: f64 = 70.0;
/// What is lower shows as nothing.
const HEIGHT_MIN: f64 = 0.05;

/// Returns the charts of all schedulers' CPUs; empty if CPUs were not measured.
pub(super) fn over_time(timelines: &[CpuTimeline]) -> OverTime<'_> {
    let of_scheduler = timelines.iter();
    OverTime {
        title: "CPUs",
        about: "Share of each CPU's time over the first run; the rest is idle.",
        legend: legend(),
        charts: of_scheduler
            .map(|of| (of.scheduler.as_str(), charts(of)))
            .collect(),
    }
}

/// Draws a scheduler's CPUs.
fn charts(timeline: &CpuTimeline) -> String {
    drawn(|out| match timeline.shares.len() {
        count if count > CPUS_APART => {
            out.push_str(&together(timeline));
            Ok(())
        }
        _ => timeline
            .shares
            .iter()
            .enumerate()
            .try_for_each(|(cpu, shares)| {
                chart(out, &format!("CPU {cpu}"), &timeline.end_ns, shares)
            }),
    })
    .0
}

/// All CPUs' time in one chart.
pub(super) fn together(timeline: &CpuTimeline) -> String {
    let title = format!("mean of {} CPUs", timeline.shares.len());
    let shares = mean(&timeline.shares);
    // Spans are alike, so that some of them together have the mean of their shares.
    let together = shares.len().div_ceil(COLUMNS).max(1);
    let columns: Vec<_> = shares.chunks(together).map(mean_of_spans).collect();
    let ends = timeline.end_ns.chunks(together);
    let end_ns: Vec<u64> = ends.filter_map(|ends| ends.last().copied()).collect();
    drawn(|out| chart(out, &title, &end_ns, &columns)).0
}

fn mean_of_spans(spans: &[[f64; CPU_PARTS.len()]]) -> [f64; CPU_PARTS.len()] {
    let mut mean = [0.0; CPU_PARTS.len()];
    for shares in spans {
        let pairs = mean.iter_mut().zip(shares);
        pairs.for_each(|(to, from)| *to += from / spans.len() as f64);
    }
    mean
}

/// What the colours of a CPU's parts are.
pub(super) fn legend() -> Vec<(String, &'static str)> {
    let parts = CPU_PARTS.iter().enumerate();
    let area = |part: usize| chart::legend_area(&format!("var(--cpu{part})")).0;
    parts.map(|(part, name)| (area(part), *name)).collect()
}

fn mean(cpus: &[Vec<[f64; CPU_PARTS.len()]>]) -> Vec<[f64; CPU_PARTS.len()]> {
    let spans = cpus.iter().map(Vec::len).max().unwrap_or(0);
    let mut sums = vec![[0.0; CPU_PARTS.len()]; spans];
    for cpu in cpus {
        for (sum, shares) in sums.iter_mut().zip(cpu) {
            let pairs = sum.iter_mut().zip(shares);
            pairs.for_each(|(to, from)| *to += from / cpus.len() as f64);
        }
    }
    sums
}

/// Draws one CPU: a column for each span of time, with its parts stacked.
fn chart(
    out: &mut String,
    title: &str,
    end_ns: &[u64],
    shares: &[[f64; CPU_PARTS.len()]],
) -> fmt::Result {
    let last_ns = end_ns.last().copied().unwrap_or(0).max(1) as f64;
    writeln!(
        out,
        "<svg viewBox=\"0 0 {WIDTH} {}\" role=\"img\" aria-label=\"{title}\">\n\
         <text class=\"tick\" x=\"0\" y=\"11\">{title}, {:.1} s</text>",
        HEIGHT + 18.0,
        last_ns / 1e9
    )?;
    let mut from = 0.0;
    for (end_ns, shares) in end_ns.iter().zip(shares) {
        let to = *end_ns as f64 / last_ns * WIDTH;
        let mut floor = HEIGHT + 16.0;
        for (part, share) in shares.iter().enumerate() {
            let height = share.clamp(0.0, 1.0) * HEIGHT;
            if height < HEIGHT_MIN {
                continue;
            }
            floor -= height;
            writeln!(
                out,
                "<rect x=\"{from:.1}\" y=\"{floor:.1}\" width=\"{:.1}\" height=\"{height:.1}\" \
                 fill=\"var(--cpu{part})\"/>",
                (to - from).max(0.0)
            )?;
        }
        from = to;
    }
    writeln!(
        out,
        "<line class=\"axis\" x1=\"0\" y1=\"{0:.1}\" x2=\"{WIDTH}\" y2=\"{0:.1}\"/>\n</svg>",
        HEIGHT + 16.0
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use askama::Template;

    fn timeline(cpus: usize) -> CpuTimeline {
        CpuTimeline {
            scheduler: "a<b".to_string(),
            end_ns: vec![500_000_000, 1_000_000_000],
            shares: vec![vec![[0.25, 0.5, 0.0, 0.0, 0.0, 0.0]; 2]; cpus],
        }
    }

    fn page(timelines: &[CpuTimeline]) -> String {
        over_time(timelines).render().unwrap()
    }

    #[test]
    fn parts_are_stacked_and_names_escaped() {
        let page = page(&[timeline(2)]);
        assert!(page.contains("a&lt;b") && page.contains("CPU 1"));
        // A quarter of 70 from the floor at 86, then half above it.
        assert!(
            page.contains("y=\"68.5\" width=\"130.0\" height=\"17.5\""),
            "{page}"
        );
        assert!(
            page.contains("y=\"33.5\" width=\"130.0\" height=\"35.0\""),
            "{page}"
        );
    }

    #[test]
    fn many_cpus_are_drawn_as_their_mean() {
        let page = page(&[timeline(20)]);
        assert!(page.contains("mean of 20 CPUs") && !page.contains("CPU 1,"));
        assert!(page.contains("height=\"17.5\""));
    }

    #[test]
    fn nothing_is_said_of_cpus_nobody_watched() {
        assert!(page(&[]).is_empty());
    }
}
