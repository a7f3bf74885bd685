//! `blklab calibrate`.

use std::fmt::Write;
use std::io::IsTerminal;
use std::path::Path;
use std::time::Instant;

use blklab_calibrate::{
    FitSetup, Fitted, Groups, Model, Row, Selection, Useless, fit, read_csv, read_fio_json,
    side_by_side,
};

use crate::args::{CalibrateArgs, DEFAULT_MACHINE};
use crate::failure::Failure;
use crate::{calibrate_host, output};

pub(crate) fn calibrate(args: &CalibrateArgs) -> Result<(), Failure> {
    output::check(&[
        ("--output-drive", args.output_drive.as_deref()),
        ("--output-machine", args.output_machine.as_deref()),
        ("--output", args.output.as_deref()),
    ])?;
    if let Some(device) = &args.host {
        return calibrate_host::calibrate(args, device);
    }
    let rows = rows(args)?;
    let drive = args.drive.as_deref().unwrap_or_default();
    let machine = args.machine.as_deref().unwrap_or(DEFAULT_MACHINE);
    let model = Model::load(drive, machine).map_err(Failure::Mistake)?;
    let fitted = fitted(args, &rows)?;
    let named: Vec<String> = args.results.iter().map(|p| file_name(p)).collect();
    let comment = format!("fitted, from {}", named.join(" and "));
    let keys = args.fit.as_deref().unwrap_or("drive.*,costs.*");
    let work = Work {
        model,
        rows: &rows,
        fitted: &fitted,
        comment: &comment,
        keys,
    };
    let (text, done) = fit_and_tell(args, work, args.hold_out.is_some())?;
    output::deliver(&text, args.output.as_deref())?;
    write(args, &done, &fitted)
}

/// What is fitted to what.
pub(crate) struct Work<'a> {
    pub(crate) model: Model,
    pub(crate) rows: &'a [Row],
    pub(crate) fitted: &'a [usize],
    pub(crate) comment: &'a str,
    pub(crate) keys: &'a str,
}

/// Fits, and says what came of it.
pub(crate) fn fit_and_tell(
    args: &CalibrateArgs,
    work: Work<'_>,
    hold_out: bool,
) -> Result<(String, Fitted), Failure> {
    let Work {
        model,
        rows,
        fitted,
        comment,
        keys,
    } = work;
    let mut parameters = Vec::new();
    if args.evaluations > 0 || args.fit.is_some() {
        parameters = model.parameters(keys).map_err(Failure::mistake)?;
    }
    if args.evaluations == 0 {
        // Nothing is fitted, but what was named has to be there all the same.
        parameters.clear();
    }
    let setup = FitSetup {
        model,
        parameters: &parameters,
        rows,
        fitted,
        evaluations: args.evaluations.max(1),
        seed: args.seed,
        comment,
    };
    let terminal = std::io::stderr().is_terminal() && !parameters.is_empty();
    let started = Instant::now();
    let done = fit(setup, &mut |progress| {
        if terminal {
            let seconds = started.elapsed().as_secs_f64();
            let left = args.evaluations.saturating_sub(progress.evaluations) as f64;
            eprint!(
                "\revaluation {} of {}, loss {:.4}, at most {:.0} s to go ",
                progress.evaluations,
                args.evaluations,
                progress.loss,
                left * seconds / progress.evaluations as f64
            );
        }
    });
    if terminal {
        eprintln!();
    }
    let done = done.map_err(Failure::mistake)?;
    let text = report(rows, &done, hold_out.then_some(fitted));
    Ok((text, done))
}

/// Places of the rows that the fit may look at.
fn fitted(args: &CalibrateArgs, rows: &[Row]) -> Result<Vec<usize>, Failure> {
    let held_out = match args.hold_out.as_deref() {
        None => return Ok((0..rows.len()).collect()),
        Some("") => return Ok((0..rows.len()).step_by(2).collect()),
        Some(text) => Selection::parse(text).map_err(Failure::mistake)?,
    };
    let fitted: Vec<usize> = (0..rows.len())
        .filter(|&at| !held_out.takes(&rows[at]))
        .collect();
    match fitted.len() {
        0 => Err(Failure::mistake(
            "no row is left to fit to; look at --hold-out",
        )),
        all if all == rows.len() => Err(Failure::mistake("no row is held out; look at --hold-out")),
        _ => Ok(fitted),
    }
}

/// All rows of all files that the selections take.
fn rows(args: &CalibrateArgs) -> Result<Vec<Row>, Failure> {
    let mut selections = Vec::new();
    for text in &args.rows {
        selections.push(Selection::parse(text).map_err(Failure::mistake)?);
    }
    let mut rows = Vec::new();
    for path in &args.results {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path)
            .map_err(|e| Failure::mistake(format!("{name}: cannot be read: {e}")))?;
        let read = match text.trim_start().starts_with('{') {
            true => read_fio_json(&name, &text, &args.scheduler),
            false => read_csv(&name, &text),
        };
        rows.extend(read.map_err(Failure::mistake)?);
    }
    rows.retain(|row| selections.iter().all(|s| s.takes(row)));
    if rows.is_empty() {
        return Err(Failure::mistake("no row is left; look at --rows"));
    }
    Ok(rows)
}

fn report(rows: &[Row], done: &Fitted, held_out: Option<&[usize]>) -> String {
    let mut text = String::new();
    if !done.moved.is_empty() {
        text.push_str("| parameter | start | fitted |\n| --- | ---: | ---: |\n");
        for (parameter, from, to) in &done.moved {
            let _ = writeln!(text, "| {} | {from:.3} | {to:.3} |", parameter.name());
        }
        text.push('\n');
    }
    let _ = write!(text, "{}", side_by_side(rows, &done.scored));
    if let Some(fitted) = held_out {
        let of = |looked_at| done.scored_of(|at| fitted.contains(&at) == looked_at);
        for (name, looked_at) in [("Fitted", true), ("Held out", false)] {
            let _ = write!(text, "\n{name}:\n\n{}", Groups::new(rows, &of(looked_at)));
        }
    }
    text
}

/// Writes the descriptions that were asked for, if the fit is of use.
pub(crate) fn write(args: &CalibrateArgs, done: &Fitted, fitted: &[usize]) -> Result<(), Failure> {
    let useless = |useless: Useless| Failure::Broken(useless.to_string());
    done.check(fitted).map_err(useless)?;
    for (path, description) in [
        (&args.output_drive, &done.model.drive),
        (&args.output_machine, &done.model.machine),
    ] {
        if let Some(path) = path {
            output::write_file(path, description.text().as_bytes())?;
        }
    }
    Ok(())
}

fn file_name(path: &Path) -> String {
    path.file_name().map_or_else(
        || path.display().to_string(),
        |n| n.to_string_lossy().into_owned(),
    )
}
