//! A comparison as tables for the terminal.

mod answer;

use std::fmt::{self, Write};
use std::ops::Range;

use blklab_stats::JobResults;
use comfy_table::{
    Cell as TableCell, CellAlignment, Color, ColumnConstraint, ContentArrangement, Row, Table,
    Width,
};

use super::{
    call_values, goal_values, legend, no_figure, process_head, process_scale, scale_of,
    slowest_title, slowest_values, subtitle, wrapped,
};
use crate::comparison::{
    Advice, Axis, CALL_PARTS, Cell, Change, Comparison, DirectionTable, FactRow, Judgement, Metric,
    Section, axis,
};
use crate::quantity::{self, Scale, plus_minus_percent, relative_half_width};

pub use answer::answer;

/// The style of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// The width in columns.
    pub width: usize,
    /// Whether changes are coloured: green for better and red for worse than the first
    /// scheduler.
    pub colour: bool,
}

impl Style {
    /// The style for files, pipes and tests.
    pub const PLAIN: Style = Style {
        width: 100,
        colour: false,
    };

    /// Returns the width of the terminal on standard output; `None` if it is not a
    /// terminal.
    pub fn terminal_width() -> Option<usize> {
        Table::new().width().map(usize::from)
    }

    /// The width from which changes and their intervals are shown side by side.
    const WIDE: usize = 120;
}

/// The widths of facts' names and of a scheduler's values. If more schedulers are
/// compared than fit side by side, further tables follow.
const NAME_WIDTH: usize = 40;
const VALUE_WIDTH: usize = 12;
/// The blanks around a cell's text.
const PADDING: usize = 2;

/// Returns the comparison as plain text.
pub fn render(comparison: &Comparison) -> String {
    render_with(comparison, Style::PLAIN)
}

/// Returns the comparison as text in a style.
pub fn render_with(comparison: &Comparison, style: Style) -> String {
    let mut out = String::new();
    write_comparison(&mut out, comparison, style).expect("a string takes all");
    without_padding(&out)
}

/// Removes the padding of the tables' last columns, which would be copied along.
pub(super) fn without_padding(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    format!("{}\n", lines.join("\n").trim_end())
}

/// Writes what is read last: marks and notes, the real measurement and the advice.
fn write_end(
    out: &mut String,
    comparison: &Comparison,
    legend: &[&str],
    style: Style,
) -> fmt::Result {
    for mark in legend {
        writeln!(out, "{mark}")?;
    }
    for note in &comparison.notes {
        writeln!(out, "note: {note}")?;
    }
    if let Some(verification) = &comparison.verification {
        writeln!(out, "\nmeasured on {}\n", verification.place())?;
        write_goals(
            out,
            &verification.schedulers,
            &verification.judgement,
            style,
        )?;
        writeln!(out, "{}", verification.sentence)?;
    }
    match &comparison.advice {
        Some(advice) => write_advice(out, advice),
        None => Ok(()),
    }
}

fn write_goal_outcome(
    out: &mut String,
    comparison: &Comparison,
    judgement: &Judgement,
    style: Style,
) -> fmt::Result {
    write_goals(out, &comparison.schedulers, judgement, style)?;
    writeln!(out, "{}\n", judgement.sentence)?;
    let Some(front) = &comparison.front else {
        return Ok(());
    };
    if !front.rows.is_empty() {
        let names = &comparison.schedulers;
        writeln!(
            out,
            "{}\n",
            front_table(names, &front.rows, judgement, style)
        )?;
    }
    writeln!(out, "{}\n", front.sentence)
}

/// Returns a table with a row for each of some settings and a column for each goal, with the
/// intervals.
fn front_table(names: &[String], some: &[usize], judgement: &Judgement, style: Style) -> Table {
    let mut table = new_table(style);
    let mut head = vec![TableCell::new("Pareto front")];
    head.extend(judgement.goals().map(|goal| right(&goal.name)));
    table.set_header(head);
    let values: Vec<Vec<String>> = judgement.goals().map(goal_values).collect();
    for at in some {
        let mut cells = vec![TableCell::new(&names[*at])];
        for (goal, values) in judgement.goals().zip(&values) {
            let interval =
                goal.values[*at].and_then(|of| plus_minus_percent(relative_half_width(&of)));
            let interval =
                interval.map_or(String::new(), |text| format!(" {}", text.replace(' ', "")));
            cells.push(right(format!("{}{interval}", values[*at])));
        }
        table.add_row(cells);
    }
    with_whole_words(table)
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
    if let Some(judgement) = &comparison.judgement {
        write_goal_outcome(out, comparison, judgement, style)?;
    }
    write_why(out, comparison, style)?;
    write_calls(out, comparison, style)?;
    out.push_str(&slowest(comparison, style));
    write_end(out, comparison, &legend(comparison), style)
}

/// Returns what to do, with the commands that do it; empty if there is no advice.
pub fn advice(comparison: &Comparison) -> String {
    let mut out = String::from("\n\n");
    if let Some(advice) = &comparison.advice {
        write_advice(&mut out, advice).expect("a string takes all");
    }
    out.trim().to_string()
}

/// Writes the advice at the end, where a terminal shows it.
fn write_advice(out: &mut String, advice: &Advice) -> fmt::Result {
    if !out.ends_with("\n\n") {
        writeln!(out)?;
    }
    writeln!(out, "what to do: {}", advice.sentence)?;
    for sentence in [&advice.price, &advice.assumed] {
        if !sentence.is_empty() {
            writeln!(out, "{sentence}")?;
        }
    }
    for command in &advice.commands {
        let file = command.file.as_ref();
        let into = file.map_or(String::new(), |file| format!(", in {file}"));
        writeln!(out, "  {}{into}:", command.when)?;
        for line in &command.lines {
            writeln!(out, "    {line}")?;
        }
    }
    Ok(())
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
    if let Some(axis) = axis(&comparison.schedulers) {
        for table in &section.directions {
            write_curves(out, &axis, table, style)?;
        }
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

/// Writes a table for each figure that is usually plotted, with a column for each value
/// of the axis.
fn write_curves(
    out: &mut String,
    axis: &Axis<'_>,
    direction: &DirectionTable,
    style: Style,
) -> fmt::Result {
    let is_shown = |metric: &&Metric| matches!(metric, Metric::Iops | Metric::P99);
    for metric in direction.metrics().iter().filter(is_shown) {
        let scale = scale_of(direction, *metric);
        let mut table = new_table(style);
        let unit = scale.unit;
        let what = match metric {
            Metric::Iops => format!("{unit}{}", metric.name()),
            _ => format!("{} {unit}", metric.name()),
        };
        let mut head = vec![TableCell::new(format!(
            "{what} of {} over {}",
            direction.title(),
            axis.key
        ))];
        head.extend(axis.values.iter().map(right));
        table.set_header(head);
        for (name, rows) in &axis.lines {
            let mut cells = vec![TableCell::new(name)];
            for row in rows {
                let row = row.and_then(|row| direction.rows.get(row));
                let cell = row.filter(|row| row.ios > 0);
                let cell = cell.and_then(|row| row.cells.get(metric));
                cells.push(right(
                    cell.map_or("-".to_string(), |cell| scale.show(cell.value.mean)),
                ));
            }
            table.add_row(cells);
        }
        writeln!(out, "{table}\n")?;
    }
    Ok(())
}

fn direction_table(direction: &DirectionTable, style: Style) -> Table {
    let metrics = direction.metrics().iter();
    let scales: Vec<(Metric, Scale)> = metrics
        .map(|metric| (*metric, scale_of(direction, *metric)))
        .collect();
    let mut table = new_table(style);
    let mut head = vec![TableCell::new(direction.title())];
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
                _ => right(no_figure(figures, index)),
            });
        }
        table.add_row(cells);
    }
    table
}

fn write_goals(
    out: &mut String,
    schedulers: &[String],
    judgement: &Judgement,
    style: Style,
) -> fmt::Result {
    if end_alike(schedulers) {
        return write_goals_by_row(out, schedulers, judgement, style);
    }
    let names = judgement.rows.iter().map(|row| row.name.chars().count());
    let name_width = names.max().unwrap_or(0) + PADDING;
    for some in side_by_side(schedulers, name_width, style) {
        let mut table = new_table(style);
        let mut head = vec![TableCell::new("goals")];
        head.extend(schedulers[some.clone()].iter().map(right));
        table.set_header(head);
        for row in &judgement.rows {
            let name = TableCell::new(&row.name);
            let values = goal_values(row);
            let values = values[some.clone()].iter().map(right);
            table.add_row(std::iter::once(name).chain(values).collect::<Vec<_>>());
        }
        writeln!(out, "{}\n", with_whole_words(table))?;
    }
    Ok(())
}

/// Returns whether names of several words would be cut in a narrow head so that two of them
/// have the same last line.
fn end_alike(names: &[String]) -> bool {
    let ends = names
        .iter()
        .filter_map(|name| Some(name.rsplit_once(' ')?.1));
    let mut ends: Vec<&str> = ends.collect();
    ends.sort_unstable();
    ends.windows(2).any(|pair| pair[0] == pair[1])
}

/// Writes the goals with a row for each setting, whose names are too long for columns.
fn write_goals_by_row(
    out: &mut String,
    schedulers: &[String],
    judgement: &Judgement,
    style: Style,
) -> fmt::Result {
    let mut table = new_table(style);
    let mut head = vec![TableCell::new("goals")];
    head.extend(judgement.rows.iter().map(|row| right(&row.name)));
    table.set_header(head);
    let columns: Vec<Vec<String>> = judgement.rows.iter().map(goal_values).collect();
    for (at, name) in schedulers.iter().enumerate() {
        let values = columns.iter().map(|column| right(&column[at]));
        let name = TableCell::new(name);
        table.add_row(std::iter::once(name).chain(values).collect::<Vec<_>>());
    }
    writeln!(out, "{}\n", with_whole_words(table))
}

/// Returns a cell with a figure above its change; the first scheduler has only an
/// interval.
fn figure(cell: &Cell, scale: Scale, style: Style) -> TableCell {
    let value = scale.show(cell.value.mean);
    let (change, interval) = match &cell.change {
        Some(change) => (
            Some(quantity::signed_percent(change.relative.mean)),
            quantity::interval_of_change(&change.relative),
        ),
        None => (None, plus_minus_percent(relative_half_width(&cell.value))),
    };
    let below: Vec<String> = change
        .into_iter()
        .chain(interval)
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
    coloured(right(text), cell.change.as_ref(), style)
}

/// Returns a cell in the colour of a change: green for better, red for worse.
fn coloured(cell: TableCell, change: Option<&Change>, style: Style) -> TableCell {
    match change {
        Some(change) if style.colour && change.better => cell.fg(Color::Green),
        Some(change) if style.colour && change.worse => cell.fg(Color::Red),
        _ => cell,
    }
}

fn write_why(out: &mut String, comparison: &Comparison, style: Style) -> fmt::Result {
    if comparison.why.is_empty() {
        return Ok(());
    }
    for some in side_by_side(&comparison.schedulers, NAME_WIDTH, style) {
        writeln!(out, "{}\n", why_table(comparison, some, style))?;
    }
    Ok(())
}

/// Returns the schedulers of each table: as many as fit side by side.
fn side_by_side(
    schedulers: &[String],
    name_width: usize,
    style: Style,
) -> impl Iterator<Item = Range<usize>> {
    let words = schedulers.iter().flat_map(|name| name.split(' '));
    let longest = words.map(|word| word.chars().count()).max().unwrap_or(0);
    let value_width = VALUE_WIDTH.max(longest + PADDING);
    let at_once = (style.width.saturating_sub(name_width) / value_width).max(1);
    let end = schedulers.len();
    (0..end)
        .step_by(at_once)
        .map(move |first| first..end.min(first + at_once))
}

/// Returns the table of facts for some of the schedulers.
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
            let name = TableCell::new(indented(&format!("  {}", fact.name)));
            let values = quantity::facts(fact.unit, &fact.values);
            let values = values[some.clone()].iter().map(right);
            table.add_row(std::iter::once(name).chain(values).collect::<Vec<_>>());
        }
    }
    with_whole_words(table)
}

/// Returns a name for the first column; what does not fit there goes on below, indented as much.
fn indented(name: &str) -> String {
    let text = name.trim_start();
    let indent = name.len() - text.len();
    let lines = wrapped(text, NAME_WIDTH - indent).into_iter();
    let lines: Vec<String> = lines.map(|line| format!("{:indent$}{line}", "")).collect();
    lines.join("\n")
}

/// Writes the time of programs' calls.
fn write_calls(out: &mut String, comparison: &Comparison, style: Style) -> fmt::Result {
    for program in &comparison.calls {
        let mut table = new_table(style);
        let title = format!("calls of {} (mean of a run)", program.program);
        let mut head = vec![TableCell::new(title)];
        head.extend(comparison.schedulers.iter().map(right));
        table.set_header(head);
        for row in &program.rows {
            let indent = if row.is_part { "    " } else { "  " };
            let name = TableCell::new(format!("{indent}{}", row.name));
            let values = call_values(row).into_iter().map(right);
            table.add_row(std::iter::once(name).chain(values).collect::<Vec<_>>());
        }
        writeln!(out, "{}\n", with_whole_words(table))?;
    }
    match comparison.calls.is_empty() {
        true => Ok(()),
        false => writeln!(out, "{CALL_PARTS}\n"),
    }
}

/// Returns where the slowest requests spent their time, with the stages' meanings; empty
/// unless they were recorded.
pub fn slowest(comparison: &Comparison, style: Style) -> String {
    let mut text = String::new();
    let mut meanings: Vec<(&str, &str)> = Vec::new();
    for of in &comparison.slowest {
        let mut table = new_table(style);
        let mut head = vec![TableCell::new(format!("{} (median)", slowest_title(of)))];
        head.extend(comparison.schedulers.iter().map(right));
        table.set_header(head);
        for row in &of.rows {
            let name = TableCell::new(indented(&format!("  {}", row.name)));
            let values = slowest_values(of, row).into_iter().map(right);
            table.add_row(std::iter::once(name).chain(values).collect::<Vec<_>>());
            if !meanings.iter().any(|(name, _)| *name == row.name) {
                meanings.push((&row.name, &row.meaning));
            }
        }
        text.push_str(&format!("{}\n\n", with_whole_words(table)));
    }
    for (name, meaning) in &meanings {
        text.push_str(&format!("{name}: {meaning}\n"));
    }
    if !meanings.is_empty() {
        text.push('\n');
    }
    text
}

/// Returns the time of each program's calls.
pub fn calls(jobs: &[JobResults], style: Style) -> String {
    let mut text = String::new();
    for job in jobs.iter().filter(|job| !job.calls.is_empty()) {
        let mut table = new_table(style);
        let mut head = vec![TableCell::new(&job.name)];
        head.extend(CALL_COLUMNS.map(right));
        table.set_header(head);
        for times in &job.calls {
            let mean_ns = times.total_ns as f64 / times.calls.max(1) as f64;
            let spans_ns = [
                times.total_ns as f64,
                mean_ns,
                times.most_ns as f64,
                times.cpu_ns as f64,
                times.drive_ns() as f64,
                times.tag_ns as f64,
                times.throttled_ns as f64,
            ];
            let mut row = vec![TableCell::new(times.call)];
            row.extend([times.calls, times.errors].map(right));
            row.extend(spans_ns.map(|ns| right(span(ns))));
            table.add_row(row);
        }
        for column in table.column_iter_mut() {
            column.set_padding((1, 0));
        }
        text.push_str(&format!("{}\n\n", with_whole_words(table)));
        for times in job.calls.iter().filter(|times| times.cached_pages() > 0) {
            let (call, pages) = (times.call, times.cached_pages());
            let calls = match times.calls {
                1 => String::new(),
                calls => format!(", all {calls} calls summed"),
            };
            text.push_str(&format!(" {call} found {pages} cached pages{calls}\n\n"));
        }
    }
    if !text.is_empty() {
        text.push_str(CALL_MEANINGS);
    }
    without_padding(&text)
}

/// The columns of [`calls`] after the call's name.
const CALL_COLUMNS: [&str; 9] = [
    "calls",
    "failed",
    "time",
    "mean",
    "max",
    "CPU",
    "waited",
    "queue",
    "throttled",
];

const CALL_MEANINGS: &str = "\
CPU: a CPU worked for them, its turn included. waited: for pages and blocks that the drive
reads or writes, for locks, and for other programs. queue: for a request of the queue.
throttled: held back because too much was dirty. failed: as the list says that they do.
";

/// Formats a time; `-` for zero.
fn span(ns: f64) -> String {
    match ns > 0.0 {
        true => quantity::latency(ns),
        false => "-".to_string(),
    }
}

/// Returns a table with a line below its head and no other.
pub(super) fn new_table(style: Style) -> Table {
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

/// Has no word of a table broken, though it may become wider than its style.
fn with_whole_words(mut table: Table) -> Table {
    let mut longest: Vec<usize> = Vec::new();
    for row in table.header().into_iter().chain(table.row_iter()) {
        for (at, cell) in row.cell_iter().enumerate() {
            let text = cell.content();
            let lines = text.lines();
            let length = match at {
                // Names are broken where their indentation is kept, if at all.
                0 => lines.map(|line| line.chars().count()).max(),
                _ => text
                    .split_whitespace()
                    .map(|word| word.chars().count())
                    .max(),
            };
            longest.resize(longest.len().max(at + 1), 0);
            longest[at] = longest[at].max(length.unwrap_or(0));
        }
    }
    for (column, length) in table.column_iter_mut().zip(longest) {
        let length = u16::try_from(length).unwrap_or(u16::MAX);
        let least = Width::Fixed(length.saturating_add(column.padding_width()));
        column.set_constraint(ColumnConstraint::LowerBoundary(least));
    }
    table
}

pub(super) fn right(text: impl ToString) -> TableCell {
    TableCell::new(text).set_alignment(CellAlignment::Right)
}

#[cfg(test)]
mod tests {
    use blklab_stats::CallTimes;

    use super::*;
    use crate::comparison::compare;
    use crate::sample_run::three_schedulers;

    #[test]
    fn a_comparison_reads_well() {
        insta::assert_snapshot!(render(&compare(&three_schedulers(5))));
    }

    /// The answer is for one screen, and has each job's figures under each scheduler.
    #[test]
    fn an_answer_fits_on_a_screen() {
        let comparison = compare(&three_schedulers(5));
        let text = answer(&comparison, Style::PLAIN);
        assert!(text.lines().count() <= 40, "{text}");
        insta::assert_snapshot!(text);
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
    fn labels_of_why_stay_indented_and_whole_beside_long_names() {
        let mut schedulers = three_schedulers(2);
        for scheduler in &mut schedulers {
            scheduler.name = format!("mq-deadline iodepth=32 {}=256", scheduler.name);
        }
        let text = render(&compare(&schedulers));
        let why = text.split(" why (mean of a run)").skip(1);
        let lines: Vec<&str> = why.flat_map(str::lines).collect();
        let with = |label: &str| lines.iter().any(|line| line.starts_with(label));
        for label in [
            "   requests to the drive  ",
            "   pages whose read waited behind writes  ",
        ] {
            assert!(with(label), "{label}: {text}");
        }
        assert_eq!(
            indented("  heads waiting for their block of the drive"),
            "  heads waiting for their block of the\n  drive"
        );
    }

    #[test]
    fn words_of_calls_are_whole() {
        let mut times = CallTimes::new("drop_caches");
        (times.calls, times.total_ns, times.throttled_ns) = (1, 67_900, 11_000_000);
        let job = JobResults {
            name: "reader".to_string(),
            calls: vec![times],
            ..JobResults::default()
        };
        let text = calls(&[job], Style::PLAIN);
        for word in ["throttled\n", " drop_caches ", " 11.0 ms"] {
            assert!(text.contains(word), "{word}: {text}");
        }
        let longest = text.lines().map(|line| line.chars().count()).max();
        assert!(longest <= Some(100), "{text}");
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
