//! Charts of figures over the axis of a comparison, as fio-plot draws them, such as IOPS
//! and p99 latency over the depth.

use std::fmt::{self, Write};

use askama::filters::Safe;

use super::chart::{DASHES, colour, legend_line, line, open_svg, tick};
use super::{drawn, escape};
use crate::comparison::{Axis, DirectionTable, Metric};
use crate::render::scale_of;

const SIZE: (f64, f64) = (520.0, 330.0);
const X: (f64, f64) = (66.0, 508.0);
/// The coordinates of bottom and top.
const Y: (f64, f64) = (280.0, 14.0);

/// The metrics that are drawn, if the table has them.
const METRICS: [Metric; 3] = [Metric::Iops, Metric::Bandwidth, Metric::P99];

pub(super) fn metrics(table: &DirectionTable) -> impl Iterator<Item = &'static Metric> {
    METRICS.iter().filter(|m| table.metrics().contains(m))
}

/// Returns the lines of the charts for the legend.
pub(super) fn legend<'a>(axis: &'a Axis<'_>) -> impl Iterator<Item = (Safe<String>, &'a str)> {
    let lines = axis.lines.iter().enumerate();
    lines.map(|(index, (name, _))| {
        let name = if name.is_empty() { axis.key } else { name };
        (legend_line(index), name)
    })
}

/// Draws a metric over the axis, with a line for each combination of the other keys.
pub(super) fn chart(axis: &Axis<'_>, table: &DirectionTable, metric: &Metric) -> Safe<String> {
    drawn(|out| write_chart(out, axis, table, *metric))
}

fn write_chart(
    out: &mut String,
    axis: &Axis<'_>,
    table: &DirectionTable,
    metric: Metric,
) -> fmt::Result {
    let value = |row: usize| {
        let row = table.rows.get(row).filter(|row| row.ios > 0)?;
        row.cells.get(&metric).map(|cell| cell.value.mean)
    };
    let rows = axis
        .lines
        .iter()
        .flat_map(|(_, rows)| rows.iter().flatten());
    let most = rows.filter_map(|row| value(*row)).fold(0.0, f64::max);
    let (top, step) = round_scale(most);
    let y_of = |value: f64| Y.0 + value / top * (Y.1 - Y.0);
    let gap = (X.1 - X.0) / axis.values.len() as f64;
    let x_of = |at: usize| X.0 + gap * (at as f64 + 0.5);
    let scale = scale_of(table, metric);
    open_svg(
        out,
        SIZE.0,
        SIZE.1,
        &format!("{} over {}", metric.name(), axis.key),
    )?;
    let mut at = 0.0;
    while at <= top * 1.001 {
        line(out, "grid", (X.0, y_of(at)), (X.1, y_of(at)))?;
        let text = format!("{} {}", scale.show(at), scale.unit);
        tick(out, (X.0 - 6.0, y_of(at) + 4.0), "end", text.trim_end())?;
        at += step;
    }
    line(out, "axis", (X.0, Y.0), (X.1, Y.0))?;
    for (at, value) in axis.values.iter().enumerate() {
        tick(out, (x_of(at), Y.0 + 16.0), "middle", value)?;
    }
    tick(out, ((X.0 + X.1) / 2.0, SIZE.1 - 10.0), "middle", axis.key)?;
    for (index, (name, rows)) in axis.lines.iter().enumerate() {
        let known = rows.iter().enumerate().filter_map(|(at, row)| {
            let value = value((*row)?)?;
            Some((x_of(at), y_of(value), axis.values[at], value))
        });
        let points: Vec<(f64, f64, &str, f64)> = known.collect();
        let path: Vec<String> = points
            .iter()
            .map(|(x, y, ..)| format!("{x:.1} {y:.1}"))
            .collect();
        if !path.is_empty() {
            writeln!(
                out,
                "<path class=\"curve\" stroke=\"{}\" stroke-dasharray=\"{}\" d=\"M{}\"/>",
                colour(index),
                DASHES[index % DASHES.len()],
                path.join("L")
            )?;
        }
        for (x, y, at, value) in points {
            writeln!(
                out,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{}\"><title>{} {}={at}: {} {}</title></circle>",
                colour(index),
                escape(name),
                escape(axis.key),
                scale.show(value),
                scale.unit
            )?;
        }
    }
    writeln!(out, "</svg>")
}

/// Returns the end of a scale from zero that holds a value, and its step of 1, 2 or 5
/// times a power of ten.
fn round_scale(most: f64) -> (f64, f64) {
    if most <= 0.0 {
        return (1.0, 1.0);
    }
    let rough = most / 5.0;
    let decade = 10f64.powf(rough.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * decade);
    let step = steps
        .into_iter()
        .find(|step| *step >= rough)
        .unwrap_or(rough);
    ((most / step).ceil() * step, step)
}

#[cfg(test)]
mod tests {
    use super::round_scale;

    #[test]
    fn scales_end_at_round_numbers() {
        assert_eq!(round_scale(9.3), (10.0, 2.0));
        assert_eq!(round_scale(130.0), (150.0, 50.0));
        assert_eq!(round_scale(0.0), (1.0, 1.0));
    }
}
