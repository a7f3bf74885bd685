//! A comparison as a table for the terminal.

use std::fmt::{self, Write};
use std::ops::Range;

use comfy_table::{Cell as TableCell, CellAlignment, Color, ContentArrangement, Row, Table};

use crate::comparison::{Cell, Comparison, DirectionTable, Metric, Section};
use crate::processes::ProcessFigures;
use crate::quantity::{self, Scale, and_list, plus_minus_percent, relative_half_width};
use crate::why::FactRow;

/// How the text looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Columns to fit into.
    pub width: usize,
    /// Green for better and red for worse than the first scheduler.
    pub colour: bool,
}

impl Style {
    /// For files, pipes and tests.
    pub const PLAIN: Style = Style {
        width: 100,
        colour: false,
    };

    /// The columns of the terminal on standard output; `None` where that is
    /// none.
    pub fn terminal_width() -> Option<usize> {
        Table::new().width().map(usize::from)
    }

    /// Columns that changes and their intervals need side by side.
    const WIDE: usize = 120;
}

/// Columns that names of facts need, and a scheduler's values. More schedulers
/// than fit beside each other get tables of their own.
const NAME_WIDTH: usize = 40;
const VALUE_WIDTH: usize = 12;

/// The comparison as plain text.
pub fn render(comparison: &Comparison) -> String {
    render_with(comparison, Style::PLAIN)
}

/// The comparison as text in a style.
pub fn render_with(comparison: &Comparison, style: Style) -> String {
    let mut out = String::new();
    write_comparison(&mut out, comparison, style).expect("a string takes all");
    // Tables pad their last column too, which is only in the way of a copy.
    let lines: Vec<&str> = out.lines().map(str::trim_end).collect();
    format!("{}\n", lines.join("\n").trim_end())
}

fn write_comparison(out: &mut String, comparison: &Comparison, style: Style) -> fmt::Result {
    writeln!(out, "{}\n", subtitle(comparison))?;
    let several = comparison.sections.len() > 1;
    for section in &comparison.sections {
        write_section(out, comparison, section, several, style)?;
    }
    if several {
        writeln!(out, "{}\n", comparison.headline)?;
    }
    if comparison.sections.is_empty() {
        writeln!(out, "{}\n", comparison.headline)?;
    }
    write_why(out, comparison, style)?;
    for note in &comparison.notes {
        writeln!(out, "note: {note}")?;
    }
    Ok(())
}

/// What ran where and how often, in one line.
pub(crate) fn subtitle(comparison: &Comparison) -> String {
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
        // fio draws for itself; what makes runs alike is when they ran.
        "host" => "one repeat after the other".to_string(),
        several if several.contains(',') => "each with seeds of its own".to_string(),
        _ => seed_list(&comparison.seeds),
    };
    let baseline = comparison.schedulers.first().map_or("", String::as_str);
    let against = match comparison.schedulers.len() {
        0 | 1 => String::new(),
        _ => format!("; changes are against {baseline}"),
    };
    let interval = match (*repeats > 1, against.is_empty()) {
        (false, _) => "",
        (true, true) => "; ± is the 95 % interval",
        (true, false) => ", ± their 95 % interval",
    };
    format!("{job} on {drive}, machine {machine} ({world}): {times}, {seeds}{against}{interval}")
}

/// Seeds in words, a run of consecutive ones by its ends.
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

fn write_section(
    out: &mut String,
    comparison: &Comparison,
    section: &Section,
    titled: bool,
    style: Style,
) -> fmt::Result {
    if titled {
        writeln!(out, "group {}: {}\n", section.group_id, section.title)?;
    }
    for table in &section.directions {
        writeln!(out, "{}\n", direction_table(table, style))?;
    }
    if !section.processes.is_empty() {
        writeln!(
            out,
            "{}\n",
            process_table(&comparison.schedulers, section, style)
        )?;
    }
    writeln!(out, "{}\n", section.verdict.sentence)
}

fn direction_table(direction: &DirectionTable, style: Style) -> Table {
    let scales: Vec<(Metric, Scale)> = Metric::ALL
        .into_iter()
        .map(|metric| (metric, scale_of(direction, metric)))
        .collect();
    let mut table = new_table(style);
    let mut head = vec![TableCell::new(direction.direction.name())];
    for (metric, scale) in &scales {
        let unit = scale.unit;
        head.push(right(match metric {
            Metric::Bandwidth => unit.to_string(),
            Metric::Iops => format!("{unit}{}", metric.name()),
            _ => format!("{} {unit}", metric.name()),
        }));
    }
    table.set_header(head);
    for row in &direction.rows {
        let mut cells = vec![TableCell::new(&row.scheduler)];
        for (metric, scale) in &scales {
            cells.push(match row.cells.get(metric) {
                Some(cell) if row.ios > 0 => figure(cell, *scale, style),
                _ => right("-"),
            });
        }
        table.add_row(cells);
    }
    table
}

fn process_table(schedulers: &[String], section: &Section, style: Style) -> Table {
    let mut table = new_table(style);
    let mut head = vec![TableCell::new("processes")];
    head.extend(section.processes.iter().map(|f| right(process_head(f))));
    table.set_header(head);
    for (index, scheduler) in schedulers.iter().enumerate() {
        let mut cells = vec![TableCell::new(scheduler)];
        for figures in &section.processes {
            cells.push(match figures.cells.get(index) {
                Some(Some(cell)) => figure(cell, process_scale(figures), style),
                _ => right("-"),
            });
        }
        table.add_row(cells);
    }
    table
}

/// The head of a column on processes.
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

/// The unit of a column on processes.
pub(crate) fn process_scale(figures: &ProcessFigures) -> Scale {
    scale_for(figures.column.metric, figures.cells.iter().flatten())
}

/// The unit of a column: the one that suits its smallest figure.
pub(crate) fn scale_of(table: &DirectionTable, metric: Metric) -> Scale {
    let cells = table.rows.iter().filter_map(|row| row.cells.get(&metric));
    scale_for(metric, cells)
}

fn scale_for<'a>(metric: Metric, cells: impl Iterator<Item = &'a Cell>) -> Scale {
    let means = cells.map(|cell| cell.value.mean).filter(|mean| *mean > 0.0);
    let smallest = means.fold(f64::INFINITY, f64::min);
    let smallest = if smallest.is_finite() { smallest } else { 0.0 };
    match metric {
        Metric::Bandwidth => Scale::for_bandwidth(smallest),
        Metric::Iops => Scale::for_count(smallest),
        Metric::Jain => Scale::for_index(),
        _ => Scale::for_latency(smallest),
    }
}

/// A figure over its change; the first scheduler has only an interval.
fn figure(cell: &Cell, scale: Scale, style: Style) -> TableCell {
    let value = scale.show(cell.value.mean);
    let (change, interval) = match &cell.change {
        Some(change) => (
            Some(quantity::signed_percent(change.relative.mean)),
            change.relative.half_width,
        ),
        None => (None, relative_half_width(&cell.value)),
    };
    let below: Vec<String> = change
        .into_iter()
        .chain(plus_minus_percent(interval))
        .map(|text| text.replace(' ', ""))
        .collect();
    let joint = if style.width >= Style::WIDE {
        " "
    } else {
        "\n"
    };
    let text = match below.is_empty() {
        true => value,
        false => format!("{value}\n{}", below.join(joint)),
    };
    let colour = match &cell.change {
        Some(change) if style.colour && change.better => Some(Color::Green),
        Some(change) if style.colour && change.worse => Some(Color::Red),
        _ => None,
    };
    match colour {
        Some(colour) => right(text).fg(colour),
        None => right(text),
    }
}

fn write_why(out: &mut String, comparison: &Comparison, style: Style) -> fmt::Result {
    if comparison.why.is_empty() {
        return Ok(());
    }
    let all = 0..comparison.schedulers.len();
    let at_once = (style.width.saturating_sub(NAME_WIDTH) / VALUE_WIDTH).max(1);
    for first in all.clone().step_by(at_once) {
        let some = first..all.end.min(first + at_once);
        writeln!(out, "{}\n", why_table(comparison, some, style))?;
    }
    Ok(())
}

/// Why the figures of some of the schedulers are as they are.
fn why_table(comparison: &Comparison, some: Range<usize>, style: Style) -> Table {
    let mut table = new_table(style);
    let mut head = vec![TableCell::new("why (mean of a run)")];
    head.extend(comparison.schedulers[some.clone()].iter().map(right));
    table.set_header(head);
    let alike = |a: &FactRow, b: &FactRow| a.place == b.place;
    for facts in comparison.why.chunk_by(alike) {
        table.add_row(Row::from(vec![TableCell::new(format!(
            "{}:",
            facts[0].place.name()
        ))]));
        for fact in facts {
            let name = TableCell::new(format!("  {}", fact.name));
            let values = quantity::facts(fact.unit, &fact.values);
            let values = values[some.clone()].iter().map(right);
            table.add_row(std::iter::once(name).chain(values).collect::<Vec<_>>());
        }
    }
    table
}

/// A table with a line under its head and no other.
fn new_table(style: Style) -> Table {
    let mut table = Table::new();
    table.load_preset("     --            ");
    table.set_content_arrangement(ContentArrangement::Dynamic);
    table.set_width(style.width.min(usize::from(u16::MAX)) as u16);
    match style.colour {
        true => table.enforce_styling(),
        false => table.force_no_tty(),
    };
    table
}

fn right(text: impl ToString) -> TableCell {
    TableCell::new(text).set_alignment(CellAlignment::Right)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::compare;
    use crate::sample_run::three_schedulers;

    #[test]
    fn a_comparison_reads_well() {
        insta::assert_snapshot!(render(&compare(&three_schedulers(5))));
    }

    #[test]
    fn one_run_each_says_that_it_proves_nothing() {
        let text = render(&compare(&three_schedulers(1)));
        assert!(text.contains("one run each cannot tell this from noise"));
        assert!(!text.contains('±'));
    }

    #[test]
    fn fits_a_terminal_of_eighty_columns() {
        let style = Style {
            width: 80,
            colour: false,
        };
        let text = render_with(&compare(&three_schedulers(5)), style);
        let tables = text.lines().filter(|line| line.starts_with(' '));
        for line in tables {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }

    #[test]
    fn colours_only_where_asked_for() {
        let comparison = compare(&three_schedulers(5));
        let escape = '\u{1b}';
        assert!(!render(&comparison).contains(escape));
        let style = Style {
            width: 100,
            colour: true,
        };
        assert!(render_with(&comparison, style).contains(escape));
    }

    #[test]
    fn nothing_to_show_is_said() {
        assert!(render(&Comparison::default()).contains("no seed"));
    }
}
