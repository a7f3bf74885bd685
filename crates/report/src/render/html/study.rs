//! A study as one page.

use std::fmt::{self, Write};

use askama::Template;
use askama::filters::Safe;
use blklab_stats::Histogram;

use super::{STYLE, VERSION, chart, cpus, drawn};
use crate::quantity::latency;
use crate::study::{Case, Finding, Study};

#[derive(Template)]
#[template(path = "study.html")]
struct Page<'a> {
    study: &'a Study,
}

/// The study as a page.
pub fn render(study: &Study) -> String {
    let page = Page { study };
    page.render().expect("a string takes all") + "\n"
}

fn class(finding: &Finding) -> &'static str {
    match finding.agrees {
        true => "good",
        false => "bad",
    }
}

/// The document shows latencies and CPUs of its pattern 4 alone.
fn is_looked_at(case: &Case) -> bool {
    case.pattern.contains("-4-")
}

/// Bars of an octave: fewer show no shape, more are mostly empty.
const BARS_OF_OCTAVE: f64 = 4.0;

fn bar_of(ns: u64) -> i32 {
    ((ns.max(1) as f64).log2() * BARS_OF_OCTAVE).floor() as i32
}

/// A histogram a scheduler, all on the same scales.
fn histograms(case: &Case) -> impl Iterator<Item = (&str, Safe<String>)> {
    let all = || case.measured.iter().map(|of| &of.drive_ns);
    let ends = || all().flat_map(|of| of.bars()).map(|(ns, _)| bar_of(ns));
    let range = (ends().min().unwrap_or(0), ends().max().unwrap_or(0));
    let most = all().map(|of| shares(of, range).into_iter().fold(0.0, f64::max));
    let most = most.fold(0.0, f64::max);
    let named = case.comparison.schedulers.iter().enumerate().zip(all());
    named.map(move |((index, name), of)| {
        let drawn = drawn(|out| write_histogram(out, index, of, (range, most)));
        (name.as_str(), drawn)
    })
}

/// Shares of the values by bar.
fn shares(of: &Histogram, (first, last): (i32, i32)) -> Vec<f64> {
    let mut shares = vec![0.0; (last - first + 1).max(1) as usize];
    for (ns, count) in of.bars() {
        shares[(bar_of(ns) - first) as usize] += count as f64 / of.count() as f64;
    }
    shares
}

fn write_histogram(
    out: &mut String,
    index: usize,
    of: &Histogram,
    (range, most): ((i32, i32), f64),
) -> fmt::Result {
    const SIZE: (f64, f64) = (260.0, 130.0);
    const X: (f64, f64) = (40.0, 256.0);
    const Y: (f64, f64) = (106.0, 8.0);
    if of.is_empty() {
        return writeln!(out, "<p class=\"soft\">No request was timed.</p>");
    }
    let shares = shares(of, range);
    chart::open_svg(out, SIZE.0, SIZE.1, "requests by their time in the drive")?;
    for share in [0.0, most / 2.0, most] {
        let y = Y.0 + share / most * (Y.1 - Y.0);
        chart::line(out, "grid", (X.0, y), (X.1, y))?;
        let text = format!("{:.0} %", share * 100.0);
        chart::tick(out, (X.0 - 4.0, y + 4.0), "end", &text)?;
    }
    let step = (X.1 - X.0) / shares.len() as f64;
    let begin_ns = |bar: usize| ((range.0 + bar as i32) as f64 / BARS_OF_OCTAVE).exp2();
    for (bar, share) in shares.iter().enumerate().filter(|(_, share)| **share > 0.0) {
        let height = share / most * (Y.0 - Y.1);
        writeln!(
            out,
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{height:.1}\" fill=\"{}\">\
             <title>{} to {}: {:.1} %</title></rect>",
            X.0 + step * bar as f64,
            Y.0 - height,
            step * 0.9,
            chart::colour(index),
            latency(begin_ns(bar)),
            latency(begin_ns(bar + 1)),
            share * 100.0
        )?;
    }
    let ends = [(0, X.0, "start"), (shares.len(), X.1, "end")];
    for (bar, x, anchor) in ends {
        chart::tick(out, (x, Y.0 + 15.0), anchor, &latency(begin_ns(bar)))?;
    }
    chart::line(out, "axis", (X.0, Y.0), (X.1, Y.0))?;
    writeln!(out, "</svg>")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::html::tests::check_tags;
    use crate::sample_run::three_schedulers;
    use blklab_stats::{RequestKind, RequestStats};

    #[test]
    fn a_page_has_what_was_measured_and_is_whole() {
        let mut runs = three_schedulers(2);
        let mut kind = RequestKind::default();
        kind.drive_ns.record_many(1_000_000, 3);
        kind.drive_ns.record(8_000_000);
        runs[1].runs[0].requests = Some(RequestStats {
            kinds: vec![kind],
            ..RequestStats::default()
        });
        let case = |pattern: &str| ("a<b".to_string(), pattern.to_string(), runs.clone());
        let cases = vec![case("seq-1"), case("seq-4-all")];
        let study = Study::new(
            "pi4",
            "about".into(),
            "blklab study pi4".into(),
            None,
            cases,
        );
        assert!(study.findings.len() < 2, "there are no such drives");
        let page = render(&study);
        check_tags(&page);
        assert_eq!(
            page.matches("<h2 class=\"group\">a&lt;b: reads</h2>")
                .count(),
            1
        );
        // The document's pattern is open, and no bar is lost.
        assert_eq!(page.matches("<details open>").count(), 1);
        assert_eq!(page.matches(": 75.0 %</title>").count(), 2);
        assert!(!page.contains("NaN") && !page.contains("http"));
    }
}
