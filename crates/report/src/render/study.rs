//! A study as text.

use std::fmt::{self, Write};

use comfy_table::Cell as TableCell;

use super::text::{Style, new_table, right, without_padding};
use crate::comparison::Metric;
use crate::quantity::{Scale, short, signed_percent};
use crate::study::{Case, Measured, Study};

/// A study as tables, and what it found.
pub fn render(study: &Study, style: Style) -> String {
    let mut out = String::new();
    write_study(&mut out, study, style).expect("a string takes all");
    without_padding(&out)
}

fn write_study(out: &mut String, study: &Study, style: Style) -> fmt::Result {
    writeln!(out, "study {}: {}\n", study.name, study.about)?;
    for cases in study.groups() {
        let title = title(&cases[0]);
        write_table(out, style, (&title, "MB/s"), cases, bandwidths)?;
        let percentiles = "ms in the drive (p50, p99)";
        write_table(out, style, (&title, percentiles), cases, |case| {
            of_each(case, |of| {
                let percentile = |percent| short(of.drive_ns.percentile(percent) as f64 / 1e6);
                format!("{}, {}", percentile(50.0), percentile(99.0))
            })
        })?;
        write_table(
            out,
            style,
            (&title, "CPU time in the kernel"),
            cases,
            |case| of_each(case, |of| format!("{:.1} %", of.kernel_share * 100.0)),
        )?;
    }
    for finding in &study.findings {
        writeln!(out, "{}.", finding.document)?;
        writeln!(out, "  here, {}: {}", finding.verdict(), finding.here)?;
        writeln!(out, "  why: {}", finding.reason)?;
        if let Some(assumed) = finding.assumed(study) {
            writeln!(out, "  \"{}\" hangs on {assumed}", finding.document)?;
        }
        writeln!(out)?;
    }
    if !study.assumed.is_empty() {
        writeln!(out, "{}", study.assumed)?;
    }
    Ok(())
}

/// What a drive's cases are of.
pub(super) fn title(case: &Case) -> String {
    format!("{}: {}s", case.drive, case.direction().name())
}

fn of_each(case: &Case, show: impl Fn(&Measured) -> String) -> Vec<String> {
    case.measured.iter().map(show).collect()
}

/// Each with its change against the first.
pub(super) fn bandwidths(case: &Case) -> Vec<String> {
    let Some(table) = case.table() else {
        return Vec::new();
    };
    let scale = Scale::for_bandwidth(1e8);
    let cell = |row: &crate::comparison::Row| match row.cells.get(&Metric::Bandwidth) {
        Some(cell) => {
            let change = cell.change.as_ref().map(|change| change.relative.mean);
            let change =
                change.map_or(String::new(), |mean| format!(" ({})", signed_percent(mean)));
            format!("{}{change}", scale.show(cell.value.mean))
        }
        None => "-".to_string(),
    };
    table.rows.iter().map(cell).collect()
}

fn write_table(
    out: &mut String,
    style: Style,
    (title, what): (&str, &str),
    cases: &[Case],
    values: impl Fn(&Case) -> Vec<String>,
) -> fmt::Result {
    let mut table = new_table(style);
    let mut head = vec![TableCell::new(format!("{title}, {what}"))];
    head.extend(cases[0].comparison.schedulers.iter().map(right));
    table.set_header(head);
    for case in cases {
        let mut cells = vec![TableCell::new(&case.pattern)];
        cells.extend(values(case).into_iter().map(right));
        table.add_row(cells);
    }
    writeln!(out, "{table}\n")
}
