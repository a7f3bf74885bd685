//! Measured and simulated rows side by side, as Markdown.

use std::fmt;

use crate::row::{Row, direction_name};
use crate::score::{Medians, Scored, medians, order_of_schedulers};

/// A table of all simulated rows, with medians for each study.
pub struct SideBySide<'a> {
    rows: &'a [Row],
    scored: &'a [Option<Scored>],
}

/// Returns the table of measured and simulated rows.
pub fn side_by_side<'a>(rows: &'a [Row], scored: &'a [Option<Scored>]) -> SideBySide<'a> {
    SideBySide { rows, scored }
}

impl fmt::Display for SideBySide<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "| study | scheduler | rw | bs | depth | processes | cores | drives | IOPS | simulated | % | mean us | simulated | % | p99 us | simulated | % |"
        )?;
        writeln!(
            f,
            "| --- | --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
        )?;
        for (row, scored) in self.rows.iter().zip(self.scored) {
            if let Some(scored) = scored {
                line(f, row, scored)?;
            }
        }
        writeln!(f)?;
        writeln!(f, "Median absolute errors:\n")?;
        Groups::new(self.rows, self.scored).fmt(f)?;
        let (right, all) = order_of_schedulers(self.rows, self.scored, 0.05);
        writeln!(
            f,
            "\nPairs of schedulers that differ by more than 5 % in the same work: {right} of {all} in the right order."
        )
    }
}

/// Medians of the absolute errors of each study and of all rows.
pub struct Groups<'a> {
    rows: &'a [Row],
    scored: &'a [Option<Scored>],
}

impl<'a> Groups<'a> {
    /// Returns the medians of the simulated rows.
    pub fn new(rows: &'a [Row], scored: &'a [Option<Scored>]) -> Groups<'a> {
        Groups { rows, scored }
    }
}

impl fmt::Display for Groups<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| rows of | rows | IOPS | mean latency | p99 |")?;
        writeln!(f, "| --- | ---: | ---: | ---: | ---: |")?;
        let mut studies: Vec<&str> = Vec::new();
        for row in self.rows {
            if !studies.contains(&row.study.as_str()) {
                studies.push(&row.study);
            }
        }
        for study in studies {
            let m = medians(self.rows, self.scored, |row| row.study == study);
            median_line(f, study, m)?;
        }
        median_line(f, "all", medians(self.rows, self.scored, |_| true))
    }
}

fn line(f: &mut fmt::Formatter<'_>, row: &Row, scored: &Scored) -> fmt::Result {
    let direction = direction_name(row.direction);
    let mix = match row.mixes() {
        true => format!(" {} %", row.read_percent),
        false => String::new(),
    };
    write!(
        f,
        "| {} | {} | {}{mix} {direction} | {} | {} | {} | {} | {} |",
        row.study,
        row.scheduler,
        row.rw,
        row.bs,
        row.iodepth,
        row.processes,
        row.cores,
        row.devices
    )?;
    let simulated = scored.simulated.map_or([None; 3], |s| s.figures());
    for (which, measured) in row.measured.figures().into_iter().enumerate() {
        let places = if which == 0 { 0 } else { 1 };
        match (measured, simulated[which], scored.errors[which]) {
            (Some(measured), Some(simulated), Some(error)) => write!(
                f,
                " {measured:.places$} | {simulated:.places$} | {:+.1} |",
                error * 100.0
            )?,
            (Some(measured), ..) => write!(f, " {measured:.places$} | none | |")?,
            (None, ..) => write!(f, " | | |")?,
        }
    }
    writeln!(f)
}

fn median_line(f: &mut fmt::Formatter<'_>, name: &str, m: Medians) -> fmt::Result {
    if m.rows == 0 {
        return Ok(());
    }
    writeln!(
        f,
        "| {name} | {} | {:.1} % | {:.1} % | {:.1} % |",
        m.rows,
        m.iops * 100.0,
        m.lat_mean * 100.0,
        m.clat_p99 * 100.0
    )
}
