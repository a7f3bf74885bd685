//! A comparison as text, JSON and a page. This file has what they share: the subtitle,
//! the headings of columns and their units.

pub mod html;
pub mod json;
pub mod study;
pub mod text;

use blklab_stats::Estimate;

use crate::comparison::{
    CallRow, Cell, Comparison, DirectionTable, GoalRow, Metric, ProcessFigures, SlowestRow,
    SlowestTable, SlowestValue,
};
use crate::quantity::{self, Scale, Span, and_list};

/// Returns a text as lines of at most `width` characters, broken between words; a longer word
/// has a line of its own.
pub(crate) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        let length = |text: &str| text.chars().count();
        match lines.last_mut() {
            Some(line) if length(line) + 1 + length(word) <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_string()),
        }
    }
    lines
}

/// Returns the values of a call's row under each scheduler.
pub(crate) fn call_values(row: &CallRow) -> Vec<String> {
    quantity::facts(row.unit, &row.values)
}

/// Returns job, drive, machine, world, repeats and seeds in one line, with what changes in
/// the tables below are against.
pub(crate) fn subtitle(comparison: &Comparison) -> String {
    let baseline = comparison.schedulers.first().map_or("", String::as_str);
    let against = match comparison.schedulers.len() {
        0 | 1 => String::new(),
        _ => format!("; changes are against {baseline}"),
    };
    let interval = match (comparison.repeats > 1, against.is_empty()) {
        (false, _) => "",
        (true, true) => "; ± is the 95 % interval",
        (true, false) => ", ± their 95 % interval",
    };
    format!("{}{against}{interval}", setup(comparison))
}

/// Returns the line above an answer, whose table has no changes.
pub(crate) fn answer_subtitle(comparison: &Comparison) -> String {
    let interval = match comparison.repeats > 1 {
        true => "; figures are means, ± is the 95 % interval of a change",
        false => "",
    };
    format!("{}{interval}", setup(comparison))
}

/// Returns job, drive, machine, world, repeats and seeds.
fn setup(comparison: &Comparison) -> String {
    let Comparison {
        job,
        drive,
        machine,
        world,
        repeats,
        ..
    } = comparison;
    let times = match repeats {
        1 => "one run each".to_string(),
        n => format!("{n} runs each"),
    };
    let seeds = match world.as_str() {
        // fio uses its own random numbers; runs are made alike by taking turns.
        "host" => "one repeat after the other".to_string(),
        several if several.contains(',') => "each with seeds of its own".to_string(),
        _ => seed_list(&comparison.seeds),
    };
    format!("{job} on {drive}, machine {machine} ({world}): {times}, {seeds}")
}

/// Returns seeds in words, consecutive ones by their ends.
fn seed_list(seeds: &[u64]) -> String {
    let consecutive = seeds.windows(2).all(|w| w[1].checked_sub(w[0]) == Some(1));
    match seeds {
        [] => "no seed".to_string(),
        [only] => format!("seed {only}"),
        [first, .., last] if consecutive => format!("seeds {first} to {last}"),
        all => {
            let all: Vec<String> = all.iter().map(u64::to_string).collect();
            format!("seeds {}", and_list(&all))
        }
    }
}

/// Returns the heading of a column on processes.
pub(crate) fn process_head(figures: &ProcessFigures) -> String {
    let unit = process_scale(figures).unit;
    let metric = figures.column.metric;
    match (&figures.column.job, metric) {
        (Some(job), Metric::Bandwidth) => format!("{job} {unit} each"),
        (Some(job), _) => format!("{job} {} {unit}", metric.name()),
        (None, Metric::Jain) => format!("{} (1: even)", metric.name()),
        (None, _) => metric.name().to_string(),
    }
}

/// Returns the unit of a column on processes.
pub(crate) fn process_scale(figures: &ProcessFigures) -> Scale {
    scale_for(figures.column.metric, figures.cells.iter().flatten())
}

/// Returns the unit of a column.
pub(crate) fn scale_of(table: &DirectionTable, metric: Metric) -> Scale {
    let cells = table.rows.iter().filter_map(|row| row.cells.get(&metric));
    scale_for(metric, cells)
}

fn scale_for<'a>(metric: Metric, cells: impl Iterator<Item = &'a Cell>) -> Scale {
    metric.scale(Span::of(cells.map(|cell| cell.value.mean)))
}

/// Returns the text that replaces a missing figure in a table of processes.
pub(crate) fn no_figure(figures: &ProcessFigures, scheduler: usize) -> String {
    match (
        figures.unfinished(scheduler),
        figures.repeats.get(scheduler),
    ) {
        (0, _) => "-".to_string(),
        (_, Some(finished)) if !finished.is_empty() => {
            let unfinished = figures.unfinished(scheduler);
            format!(
                "unfinished in {unfinished} of {}",
                unfinished + finished.len()
            )
        }
        _ => "unfinished".to_string(),
    }
}

/// Returns the meanings of the marks that occur in the tables.
pub(crate) fn legend(comparison: &Comparison) -> Vec<&'static str> {
    let tables = || comparison.sections.iter().flat_map(|s| &s.directions);
    let processes = || comparison.sections.iter().flat_map(|s| &s.processes);
    let idle = tables().flat_map(|t| &t.rows).any(|row| row.ios == 0);
    let unknown = comparison
        .why
        .iter()
        .flat_map(|f| &f.values)
        .any(Option::is_none)
        || processes().flat_map(|f| &f.cells).any(Option::is_none);
    let cells = tables()
        .flat_map(|t| &t.rows)
        .flat_map(|row| row.cells.values());
    let is_equal = |cell: &Cell| match &cell.change {
        Some(change) => change.relative.half_width == Some(0.0),
        None => cell.value.half_width == Some(0.0) && cell.value.mean != 0.0,
    };
    let mut legend = Vec::new();
    if idle || unknown {
        legend.push(NOTHING_DONE);
    }
    if cells.into_iter().any(is_equal) {
        legend.push("no ±: the repeats did not differ");
    }
    if processes().any(|f| !f.unfinished.is_empty()) {
        legend.push(UNFINISHED);
    }
    legend
}

/// Returns the meanings of the marks that occur in the tables of an answer.
pub(crate) fn answer_legend(comparison: &Comparison) -> Vec<&'static str> {
    let rows = comparison
        .judgement
        .iter()
        .flat_map(|judgement| &judgement.rows);
    let values: Vec<String> = rows.flat_map(goal_values).collect();
    let tables = comparison.sections.iter().flat_map(|s| &s.directions);
    let is_idle =
        comparison.question.is_none() && tables.flat_map(|t| &t.rows).any(|row| row.ios == 0);
    let marks = [
        ("-", is_idle, NOTHING_DONE),
        ("unfinished", false, UNFINISHED),
    ];
    let shown = marks
        .into_iter()
        .filter(|(mark, is_elsewhere, _)| *is_elsewhere || values.iter().any(|v| v == mark))
        .map(|(mark, _, meaning)| (mark, meaning));
    shown.map(|(_, meaning)| meaning).collect()
}

const NOTHING_DONE: &str = "-: nothing of the kind was done or counted";
const UNFINISHED: &str = "unfinished: stopped before the end of its work, and not compared";

/// Returns the title of a table of slowest requests.
pub(crate) fn slowest_title(table: &SlowestTable) -> String {
    // Rounding, since 100 - 99.9 is not exact.
    let share = ((100.0 - table.percent) * 1e4).round() / 1e4;
    let operation = &table.operation;
    match table.job.as_str() {
        "" => format!("slowest {share} % of the {operation}"),
        job => format!("slowest {share} % of {job}'s {operation}"),
    }
}

/// Returns a row's values of the slowest and of the median requests, all in one unit.
pub(crate) fn slowest_values(table: &SlowestTable, row: &SlowestRow) -> Vec<String> {
    let whole = table
        .rows
        .first()
        .map_or(&row.values, |first| &first.values);
    let whole = whole.iter().flatten();
    let times = whole.flat_map(|value| [value.slowest_ns, value.median_ns]);
    let scale = Scale::for_latency(Span::of(times));
    let show = |value: &Option<SlowestValue>| match value {
        None => "-".to_string(),
        Some(value) => {
            let [slowest, median] = [value.slowest_ns, value.median_ns].map(|ns| scale.show(ns));
            format!("{slowest} {} ({median})", scale.unit)
        }
    };
    row.values.iter().map(show).collect()
}

/// Returns a goal's values, all in one unit.
pub fn goal_values(row: &GoalRow) -> Vec<String> {
    let known = row.values.iter().flatten().map(|value| value.mean);
    let scale = row.metric.scale(Span::of(known));
    let show = |value: &Option<Estimate>| match value {
        Some(value) => format!("{} {}", scale.show(value.mean), scale.unit),
        None if row.metric == Metric::Duration => "unfinished".to_string(),
        None => "-".to_string(),
    };
    row.values.iter().map(show).collect()
}

#[cfg(test)]
mod tests {
    use super::wrapped;

    #[test]
    fn lines_break_between_words() {
        assert_eq!(
            wrapped("none iodepth=1 bs=4k", 14),
            ["none iodepth=1", "bs=4k"]
        );
        assert_eq!(wrapped("nr_requests=256 x", 4), ["nr_requests=256", "x"]);
        assert_eq!(wrapped("none", 14), ["none"]);
    }
}
