//! The answer of a comparison in text, which fits on a screen.

use std::fmt::{self, Write};

use comfy_table::{Cell as TableCell, Table};

use super::{
    Style, coloured, indented, new_table, right, slowest, with_whole_words, without_padding,
    write_curves, write_end, write_goal_outcome,
};
use crate::comparison::{Comparison, DirectionTable, Metric, Section, axis};
use crate::quantity;
use crate::render::{answer_legend, answer_subtitle, scale_of, subtitle};

/// Returns the answer only, which fits on a screen: question or figures, goals and advice.
pub fn answer(comparison: &Comparison, style: Style) -> String {
    let mut out = String::new();
    write_answer(&mut out, comparison, style).expect("a string takes all");
    without_padding(&out)
}

fn write_answer(out: &mut String, comparison: &Comparison, style: Style) -> fmt::Result {
    match &comparison.question {
        Some(question) => writeln!(out, "{question}\n{}\n", answer_subtitle(comparison))?,
        None => {
            writeln!(out, "{}\n", subtitle(comparison))?;
            write_short(out, comparison, style)?;
        }
    }
    match &comparison.judgement {
        Some(judgement) => write_goal_outcome(out, comparison, judgement, style)?,
        None => write_verdicts(out, &comparison.sections, &comparison.headline)?,
    }
    // Recorded only where somebody asked for it.
    out.push_str(&slowest(comparison, style));
    write_end(out, comparison, &answer_legend(comparison), style)
}

/// The most tables of a comparison on a screen, and the most groups that have a sentence each.
const TABLES_ON_A_SCREEN: usize = 8;
const VERDICTS_ON_A_SCREEN: usize = 4;

/// Writes one table of all jobs: how much each gets under each scheduler, and how long it waits
/// at worst. Curves have a table each, with a column for each of their points.
fn write_short(out: &mut String, comparison: &Comparison, style: Style) -> fmt::Result {
    let (shown, left) = tables_on_a_screen(comparison);
    if let Some(axis) = axis(&comparison.schedulers) {
        for (_, table) in &shown {
            write_curves(out, &axis, table, style)?;
        }
    } else {
        let mut short = new_table(style);
        let mut head = ["work", "scheduler"].map(TableCell::new).to_vec();
        head.extend(["bandwidth", "change", "p99", "change"].map(right));
        short.set_header(head);
        for (section, table) in &shown {
            add_short_rows(&mut short, section, table, style);
        }
        if !short.is_empty() {
            writeln!(out, "{}\n", with_whole_words(short))?;
        }
    }
    match left {
        0 => Ok(()),
        _ => writeln!(
            out,
            "{left} more, in which less changes, are in --details.\n"
        ),
    }
}

/// A table with the group that it is of.
type Shown<'c> = (&'c Section, &'c DirectionTable);

/// Returns the tables of single jobs, or where these are too many, those in which most changes;
/// and how many are left out.
fn tables_on_a_screen(comparison: &Comparison) -> (Vec<Shown<'_>>, usize) {
    let of_jobs = comparison.sections.iter().flat_map(|section| {
        let tables = section.directions.iter();
        tables
            .filter(|table| table.job.is_some() || section.is_alone())
            .map(move |table| (section, table))
    });
    let mut tables: Vec<(usize, Shown<'_>)> = of_jobs.enumerate().collect();
    tables.sort_by(|(_, (_, a)), (_, (_, b))| largest_change(b).total_cmp(&largest_change(a)));
    let left = tables.len().saturating_sub(TABLES_ON_A_SCREEN);
    tables.truncate(TABLES_ON_A_SCREEN);
    tables.sort_by_key(|(place, _)| *place);
    (tables.into_iter().map(|(_, shown)| shown).collect(), left)
}

/// Returns the largest change that is more than noise among those that are shown, as the
/// logarithm of a factor.
fn largest_change(table: &DirectionTable) -> f64 {
    let metrics = short_metrics(table);
    let cells = (table.rows.iter()).flat_map(|row| metrics.map(|metric| row.cells.get(&metric)));
    let changes = cells.flatten().filter_map(|cell| cell.change.as_ref());
    changes
        .filter(|change| change.better || change.worse)
        .map(|change| change.relative.mean.max(-0.999).ln_1p().abs())
        .fold(0.0, f64::max)
}

/// Returns the figures of a table that the answer shows. Calls that make writes durable have a
/// rate, no bandwidth.
fn short_metrics(table: &DirectionTable) -> [Metric; 2] {
    [table.metrics()[0], Metric::P99]
}

/// Adds a row for each scheduler.
fn add_short_rows(short: &mut Table, section: &Section, table: &DirectionTable, style: Style) {
    let job = table.job.as_ref().unwrap_or(&section.title);
    let mut work = indented(&format!("{} of {job}", table.direction.name()));
    for row in &table.rows {
        let mut cells = vec![
            TableCell::new(std::mem::take(&mut work)),
            TableCell::new(&row.scheduler),
        ];
        for metric in short_metrics(table) {
            let cell = row.cells.get(&metric).filter(|_| row.ios > 0);
            let change = cell.and_then(|cell| cell.change.as_ref());
            let change_text = change.map_or(String::new(), |change| {
                quantity::change(&change.relative).replace(" %", "%")
            });
            let mark = if row.ios > 0 { "" } else { "-" };
            let value = cell.map_or(mark.to_string(), |cell| {
                let value = scale_of(table, metric).with_unit(cell.value.mean);
                match metric {
                    Metric::Iops => format!("{value}/s"),
                    _ => value,
                }
            });
            cells.push(right(value));
            cells.push(coloured(right(change_text), change, style));
        }
        short.add_row(cells);
    }
}

/// Writes a sentence for each group of jobs, or one for all where these are many.
fn write_verdicts(out: &mut String, sections: &[Section], headline: &str) -> fmt::Result {
    if !(2..=VERDICTS_ON_A_SCREEN).contains(&sections.len()) {
        return writeln!(out, "{headline}\n");
    }
    for section in sections {
        writeln!(out, "{}: {}", section.title, section.verdict.sentence)?;
    }
    writeln!(out)
}
