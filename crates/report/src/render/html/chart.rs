//! The page's charts as SVG. Coordinates are those of each chart's own view box; colours
//! come from the style sheet.

use std::fmt::{self, Write};

use askama::filters::Safe;

use super::{drawn, escape, mark};
use crate::comparison::{Cell, DirectionTable, Metric, Row};
use crate::quantity::{self, Scale, short};
use crate::render::{scale_of, wrapped};

/// The number of colours in the style sheet. Further schedulers reuse them.
pub(super) const COLOURS: usize = 12;

/// The lines' dashes, which distinguish them without colour, too.
pub(super) const DASHES: [&str; 4] = ["none", "8 3", "2 3", "9 3 2 3"];

pub(super) fn colour(index: usize) -> String {
    format!("var(--s{})", index % COLOURS)
}

/// Returns a scheduler's line for the legend.
pub(super) fn legend_line(index: usize) -> Safe<String> {
    Safe(format!(
        "<svg viewBox=\"0 0 30 10\" aria-hidden=\"true\"><line x1=\"0\" y1=\"5\" x2=\"30\" \
         y2=\"5\" stroke=\"{}\" stroke-width=\"3\" stroke-dasharray=\"{}\"/></svg>",
        colour(index),
        DASHES[index % DASHES.len()]
    ))
}

/// Returns the schedulers' lines for the legend of latency charts.
pub(super) fn legend(table: &DirectionTable) -> impl Iterator<Item = (Safe<String>, &str)> {
    let rows = table.rows.iter().enumerate();
    rows.map(|(index, row)| (legend_line(index), row.scheduler.as_str()))
}

/// Returns an area's colour for the legend.
pub(super) fn legend_area(colour: &str) -> Safe<String> {
    Safe(format!(
        "<svg viewBox=\"0 0 30 10\" aria-hidden=\"true\"><rect width=\"30\" height=\"10\" \
         fill=\"{colour}\"/></svg>"
    ))
}

pub(super) fn open_svg(out: &mut String, width: f64, height: f64, label: &str) -> fmt::Result {
    writeln!(
        out,
        "<svg viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{}\">",
        escape(label)
    )
}

pub(super) fn line(out: &mut String, class: &str, from: (f64, f64), to: (f64, f64)) -> fmt::Result {
    writeln!(
        out,
        "<line class=\"{class}\" x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\"/>",
        from.0, from.1, to.0, to.1
    )
}

pub(super) fn tick(out: &mut String, at: (f64, f64), anchor: &str, text: &str) -> fmt::Result {
    writeln!(
        out,
        "<text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{}</text>",
        at.0,
        at.1,
        escape(text)
    )
}

/// Draws bars of bandwidth, one for each scheduler, with the 95 % interval over repeats.
pub(super) fn bandwidth(table: &DirectionTable) -> Safe<String> {
    drawn(|out| write_bandwidth(out, table))
}

fn write_bandwidth(out: &mut String, table: &DirectionTable) -> fmt::Result {
    const WIDTH: f64 = 520.0;
    let labels = BarLabels::of(table);
    let bars = labels.bars();
    let cell_of = |row: &Row| row.cells.get(&Metric::Bandwidth).copied();
    let cells: Vec<Option<Cell>> = table.rows.iter().map(cell_of).collect();
    let reach = |cell: &Cell| cell.value.mean + cell.value.half_width.unwrap_or(0.0);
    let most = cells.iter().flatten().map(reach).fold(0.0, f64::max);
    let x_of = |value: f64| match most > 0.0 {
        true => bars.start + (value / most).clamp(0.0, 1.0) * (bars.end - bars.start),
        false => bars.start,
    };
    let scale = scale_of(table, Metric::Bandwidth);
    let bottom = labels.height() + 4.0;
    open_svg(out, WIDTH, bottom, "bandwidths side by side")?;
    let mut top = 2.0;
    for (index, (lines, cell)) in labels.rows.iter().zip(&cells).enumerate() {
        let middle = labels.write(out, lines, top)?;
        if let Some(cell) = cell {
            bandwidth_bar(out, (index, middle), cell, scale, &x_of)?;
        }
        top += labels.row_height(lines);
    }
    line(out, "axis", (bars.start, 0.0), (bars.start, bottom))?;
    writeln!(out, "</svg>")
}

/// The labels of bars: beside the bars, or, if one is too long for that, all above them.
struct BarLabels {
    are_beside: bool,
    /// The lines of each row's label.
    rows: Vec<Vec<String>>,
}

impl BarLabels {
    /// The most characters beside a bar, and in a line above it.
    const BESIDE_MAX: usize = 12;
    const LINE_MAX: usize = 72;
    /// The height of a bar with the space around it.
    const BAR: f64 = 34.0;
    const LINE: f64 = 15.0;

    fn of(table: &DirectionTable) -> BarLabels {
        let names = || table.rows.iter().map(|row| row.scheduler.as_str());
        BarLabels {
            are_beside: names().all(|name| name.chars().count() <= BarLabels::BESIDE_MAX),
            rows: names()
                .map(|name| wrapped(name, BarLabels::LINE_MAX))
                .collect(),
        }
    }

    /// Returns the coordinates at which bars start and end.
    fn bars(&self) -> std::ops::Range<f64> {
        match self.are_beside {
            true => 100.0..360.0,
            false => 1.0..360.0,
        }
    }

    fn row_height(&self, lines: &[String]) -> f64 {
        match self.are_beside {
            true => BarLabels::BAR,
            false => BarLabels::BAR + BarLabels::LINE * lines.len() as f64,
        }
    }

    fn height(&self) -> f64 {
        self.rows.iter().map(|lines| self.row_height(lines)).sum()
    }

    /// Writes a row's label, and returns the middle of its bar.
    fn write(&self, out: &mut String, lines: &[String], top: f64) -> Result<f64, fmt::Error> {
        let middle = top + self.row_height(lines) - BarLabels::BAR / 2.0;
        let (x, first, anchor) = match self.are_beside {
            true => (self.bars().start - 8.0, middle + 4.0, "end"),
            false => (self.bars().start + 4.0, top + BarLabels::LINE, "start"),
        };
        for (at, line) in lines.iter().enumerate() {
            writeln!(
                out,
                "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{}</text>",
                first + BarLabels::LINE * at as f64,
                escape(line)
            )?;
        }
        Ok(middle)
    }
}

fn bandwidth_bar(
    out: &mut String,
    (index, middle): (usize, f64),
    cell: &Cell,
    scale: Scale,
    x_of: &impl Fn(f64) -> f64,
) -> fmt::Result {
    const HEIGHT: f64 = 20.0;
    let (start, end) = (x_of(0.0), x_of(cell.value.mean));
    writeln!(
        out,
        "<rect x=\"{start:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{HEIGHT:.1}\" rx=\"2\" \
         fill=\"{}\"/>",
        middle - HEIGHT / 2.0,
        end - start,
        colour(index)
    )?;
    let mut label = end;
    if let Some(half_width) = cell.value.half_width {
        let low = x_of(cell.value.mean - half_width);
        let high = x_of(cell.value.mean + half_width);
        writeln!(
            out,
            "<path class=\"error\" d=\"M{low:.1} {:.1}v10M{low:.1} {middle:.1}H{high:.1}\
             M{high:.1} {:.1}v10\"/>",
            middle - 5.0,
            middle - 5.0
        )?;
        label = high;
    }
    let (class, change) = match &cell.change {
        Some(c) => (
            mark(c.better, c.worse),
            quantity::signed_percent(c.relative.mean),
        ),
        None => ("", String::new()),
    };
    writeln!(
        out,
        "<text x=\"{:.1}\" y=\"{:.1}\">{} {} <tspan class=\"{class}\">{change}</tspan></text>",
        label + 8.0,
        middle + 4.0,
        scale.show(cell.value.mean),
        scale.unit
    )
}

/// The plot area of a latency chart with its scales.
struct Plane {
    /// The last nine that is shown: 3 is 99.9 %.
    nines: f64,
    /// The decadic logarithms of the latencies at bottom and top.
    logs: (f64, f64),
}

impl Plane {
    const SIZE: (f64, f64) = (520.0, 330.0);
    const X: (f64, f64) = (58.0, 508.0);
    /// The coordinates of bottom and top.
    const Y: (f64, f64) = (286.0, 10.0);

    /// Returns a plot area that holds all curves; `None` if there are none.
    fn around(table: &DirectionTable) -> Option<Plane> {
        let points = table.rows.iter().flat_map(|row| &row.curve);
        let mut plane = Plane {
            nines: 1.0,
            logs: (f64::INFINITY, f64::NEG_INFINITY),
        };
        for point in points {
            let log = (point.latency_ns.max(1) as f64).log10();
            plane.logs = (plane.logs.0.min(log), plane.logs.1.max(log));
            plane.nines = plane.nines.max(nines(point.percent));
        }
        if plane.logs.0 > plane.logs.1 {
            return None;
        }
        let room = (0.04 * (plane.logs.1 - plane.logs.0)).max(0.1);
        plane.logs = (plane.logs.0 - room, plane.logs.1 + room);
        Some(plane)
    }

    fn x(&self, percent: f64) -> f64 {
        Plane::X.0 + nines(percent) / self.nines * (Plane::X.1 - Plane::X.0)
    }

    fn y(&self, ns: f64) -> f64 {
        let (low, high) = self.logs;
        let share = (ns.max(1.0).log10() - low) / (high - low);
        Plane::Y.0 + share * (Plane::Y.1 - Plane::Y.0)
    }

    /// Returns the latencies of grid lines: 1, 2 and 5 of each decade, or fewer if these
    /// are too dense.
    fn latency_ticks(&self) -> Vec<f64> {
        let (low, high) = self.logs;
        let steps: &[f64] = match high - low {
            span if span < 2.2 => &[1.0, 2.0, 5.0],
            span if span < 4.0 => &[1.0, 3.0],
            _ => &[1.0],
        };
        let decades = low.floor() as i32..=high.ceil() as i32;
        let all = decades.flat_map(|d| steps.iter().map(move |s| s * 10f64.powi(d)));
        all.filter(|ns| (low..=high).contains(&ns.log10()))
            .collect()
    }
}

/// Returns the number of nines of a percentile: 99.9 has three.
fn nines(percent: f64) -> f64 {
    -(1.0 - percent / 100.0).max(1e-9).log10()
}

/// Draws latency over percentiles, with one line for each scheduler; both axes are
/// logarithmic, so that the tail gets as much room as the rest.
pub(super) fn latency(table: &DirectionTable) -> Safe<String> {
    drawn(|out| write_latency(out, table))
}

fn write_latency(out: &mut String, table: &DirectionTable) -> fmt::Result {
    let Some(plane) = Plane::around(table) else {
        return writeln!(out, "<p class=\"soft\">No I/O was done.</p>");
    };
    open_svg(
        out,
        Plane::SIZE.0,
        Plane::SIZE.1,
        "latency over percentiles",
    )?;
    latency_axes(out, &plane)?;
    for (index, row) in table.rows.iter().enumerate() {
        latency_curve(out, &plane, index, row)?;
    }
    for row in &table.rows {
        latency_hits(out, &plane, row)?;
    }
    writeln!(out, "</svg>")
}

fn latency_axes(out: &mut String, plane: &Plane) -> fmt::Result {
    for ns in plane.latency_ticks() {
        let y = plane.y(ns);
        let scale = Scale::for_latency(ns * 10.0);
        let text = format!("{} {}", short_tick(ns / scale.factor), scale.unit);
        line(out, "grid", (Plane::X.0, y), (Plane::X.1, y))?;
        tick(out, (Plane::X.0 - 6.0, y + 4.0), "end", &text)?;
    }
    for percent in [0.0, 50.0, 90.0, 99.0, 99.9, 99.99, 99.999, 99.9999] {
        // The tolerance keeps a tick that lies exactly on the edge.
        if nines(percent) > plane.nines + 1e-6 {
            break;
        }
        let x = plane.x(percent);
        line(out, "grid", (x, Plane::Y.0), (x, Plane::Y.1))?;
        tick(out, (x, Plane::Y.0 + 16.0), "middle", &format!("{percent}"))?;
    }
    line(
        out,
        "axis",
        (Plane::X.0, Plane::Y.0),
        (Plane::X.1, Plane::Y.0),
    )?;
    let middle = (Plane::X.0 + Plane::X.1) / 2.0;
    let below = (middle, Plane::SIZE.1 - 8.0);
    tick(out, below, "middle", "percent of I/O that took no longer")
}

/// Formats a tick's number, without decimals if it is whole.
fn short_tick(value: f64) -> String {
    match (value - value.round()).abs() < 1e-9 {
        true => format!("{value:.0}"),
        false => short(value),
    }
}

fn latency_curve(out: &mut String, plane: &Plane, index: usize, row: &Row) -> fmt::Result {
    if row.curve.is_empty() {
        return Ok(());
    }
    let place = |p: &crate::CurvePoint| (plane.x(p.percent), plane.y(p.latency_ns as f64));
    let points = row.curve.iter().map(place);
    let points: Vec<String> = points.map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
    writeln!(
        out,
        "<path class=\"curve\" stroke=\"{}\" stroke-dasharray=\"{}\" d=\"M{}\"/>",
        colour(index),
        DASHES[index % DASHES.len()],
        points.join("L")
    )
}

/// Draws invisible circles along a curve that show their value under the pointer.
fn latency_hits(out: &mut String, plane: &Plane, row: &Row) -> fmt::Result {
    for point in row.curve.iter().step_by(3) {
        let ns = point.latency_ns as f64;
        writeln!(
            out,
            "<circle class=\"hit\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"5\">\
             <title>{}: {} % within {}</title></circle>",
            plane.x(point.percent),
            plane.y(ns),
            escape(&row.scheduler),
            percent_text(point.percent),
            quantity::latency(ns)
        )?;
    }
    Ok(())
}

/// Formats a percentile with as many decimals as distinguish it from 100.
fn percent_text(percent: f64) -> String {
    let decimals = nines(percent).max(1.0) as usize - 1;
    format!("{percent:.*}", decimals.max(1))
}

/// Draws the utilization of each part as bars, on a scale common to all schedulers.
pub(super) fn shares(part: (usize, &str), busy: &[f64], most: f64) -> Safe<String> {
    drawn(|out| write_shares(out, part, busy, most))
}

fn write_shares(
    out: &mut String,
    (index, part): (usize, &str),
    busy: &[f64],
    most: f64,
) -> fmt::Result {
    const SIZE: (f64, f64) = (260.0, 140.0);
    const X: (f64, f64) = (42.0, 256.0);
    const Y: (f64, f64) = (118.0, 8.0);
    let y_of = |share: f64| Y.0 + share / most * (Y.1 - Y.0);
    open_svg(
        out,
        SIZE.0,
        SIZE.1,
        &format!("share of the run each {part} was busy"),
    )?;
    for share in [0.0, most / 2.0, most] {
        let y = y_of(share);
        line(out, "grid", (X.0, y), (X.1, y))?;
        let text = format!("{:.0} %", share * 100.0);
        tick(out, (X.0 - 4.0, y + 4.0), "end", &text)?;
    }
    let step = (X.1 - X.0) / busy.len().max(1) as f64;
    // Every bar has its number if there is room for it.
    let label_every = (busy.len() / 16 + 1).max(1);
    for (channel, share) in busy.iter().enumerate() {
        let x = X.0 + step * channel as f64;
        writeln!(
            out,
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{}\">\
             <title>{part} {channel}: {:.1} %</title></rect>",
            x + step * 0.1,
            y_of(*share),
            step * 0.8,
            Y.0 - y_of(*share),
            colour(index),
            share * 100.0
        )?;
        if channel % label_every == 0 {
            let below = (x + step / 2.0, Y.0 + 15.0);
            tick(out, below, "middle", &channel.to_string())?;
        }
    }
    let mean = busy.iter().sum::<f64>() / busy.len().max(1) as f64;
    line(out, "mean", (X.0, y_of(mean)), (X.1, y_of(mean)))?;
    writeln!(out, "</svg>")
}
