//! The outcome of a comparison: judged by the user's goals, and written in every format.

use std::path::Path;

use blklab_experiment::{Row, Setting};
use blklab_report::{Comparison, Origin, SchedulerRuns, html, json, text};
use blklab_tables::Table;

use crate::args::{CompareFormat, ShownArgs, SweepArgs, same_work};
use crate::failure::Failure;
use crate::output;

/// A comparison with its runs.
pub(crate) struct Compared {
    pub(crate) comparison: Comparison,
    pub(crate) settings: Vec<SchedulerRuns>,
}

impl Compared {
    /// Compares the runs of these settings, and judges those that did the same work by the goals
    /// and limits of the arguments.
    pub(crate) fn new(
        sweep: &SweepArgs,
        of: &[Setting],
        rows: Vec<Row>,
        origin: Origin,
    ) -> Result<Compared, Failure> {
        let runs = rows.into_iter().map(|row| SchedulerRuns {
            name: row.label,
            runs: row.runs,
        });
        let settings: Vec<SchedulerRuns> = runs.collect();
        let mut comparison = blklab_report::compare(&settings);
        comparison.origin = origin;
        let names = settings.iter().map(|row| row.name.as_str());
        let parts = same_work(of, names);
        comparison
            .evaluate_by_work(&settings, &parts, &sweep.goals())
            .map_err(Failure::mistake)?;
        Ok(Compared {
            comparison,
            settings,
        })
    }
}

/// Checks, before anything runs, that every output can be written to a file of its own.
pub(crate) fn check(
    sweep: &SweepArgs,
    file: Option<&Path>,
    inputs: &[impl AsRef<Path>],
) -> Result<(), Failure> {
    let mut outputs = vec![("--html", sweep.html.as_deref()), ("--output", file)];
    outputs.extend(sweep.tables.outputs());
    output::check(&outputs, inputs)?;
    let printed = sweep.shown.output_format.and_then(CompareFormat::table);
    output::check_tables(&sweep.tables, printed, file)
}

/// Prints the comparison, or writes it to `file`, with its page and tables.
pub(crate) fn deliver(
    compared: &Compared,
    sweep: &SweepArgs,
    file: Option<&Path>,
) -> Result<(), Failure> {
    let Compared {
        comparison,
        settings,
    } = compared;
    output::write_tables(&sweep.tables, settings)?;
    let page = sweep.html.as_deref();
    let Some(form) = sweep.shown.format(comparison).0.table() else {
        return deliver_text(comparison, &sweep.shown, page, file);
    };
    write_page(comparison, page)?;
    output::deliver_table(&results_table(settings), form, file)?;
    ended(comparison)
}

/// Says how many runs of each row have ended, where they are not all.
pub(crate) fn runs_that_ended(repeats: usize, missing: usize, has_all_rows: bool) -> String {
    let others = match has_all_rows {
        true => "",
        false => "; what has not run once is left out",
    };
    format!("{} of {repeats} runs each{others}", repeats - missing)
}

/// Returns the table of each job's results in each run.
pub(crate) fn results_table(settings: &[SchedulerRuns]) -> Table {
    let settings = settings.iter();
    blklab_tables::results(settings.map(|setting| (setting.name.as_str(), &setting.runs[..])))
}

/// Where the rest of a comparison is, below its answer.
const MORE: &str = "\nmore: --details prints every figure and what explains it, --html FILE makes a \
                    page of them\n";

/// Prints a comparison, or writes it to `file`, and a page to `page`.
pub(crate) fn deliver_text(
    comparison: &Comparison,
    shown: &ShownArgs,
    page: Option<&Path>,
    file: Option<&Path>,
) -> Result<(), Failure> {
    let (format, has_more) = shown.format(comparison);
    let mut text = match format {
        CompareFormat::Normal => text::render_with(comparison, style(file)),
        CompareFormat::Answer => text::answer(comparison, style(file)),
        CompareFormat::Json => json::render(comparison),
        CompareFormat::Parquet | CompareFormat::Arrow | CompareFormat::Csv => {
            return Err(Failure::mistake(
                "--output-format: a comparison's file has no single runs; `blklab compare` \
                 writes tables of them",
            ));
        }
    };
    if has_more {
        text.push_str(MORE);
    }
    write_page(comparison, page)?;
    output::deliver(&text, file)?;
    ended(comparison)
}

fn write_page(comparison: &Comparison, page: Option<&Path>) -> Result<(), Failure> {
    match page {
        Some(path) => output::write_file(path, html::render(comparison).as_bytes()),
        None => Ok(()),
    }
}

/// Returns the command's outcome once everything is written.
fn ended(comparison: &Comparison) -> Result<(), Failure> {
    match (comparison.interrupted, comparison.failed.is_empty()) {
        (true, _) => Err(Failure::Interrupted),
        (false, true) => Ok(()),
        (false, false) => Err(Failure::CheckFailed),
    }
}

pub(crate) fn style(file: Option<&Path>) -> text::Style {
    if output::leaves_the_terminal(file) {
        return text::Style::PLAIN;
    }
    text::Style {
        width: text::Style::terminal_width().unwrap_or(120),
        colour: std::env::var_os("NO_COLOR").is_none(),
    }
}
