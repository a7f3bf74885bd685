//! Fits descriptions to measured rows, and reports the result.

use std::fmt::Write;
use std::io::IsTerminal;
use std::time::Instant;

use blklab_calibrate::{FitSetup, Fitted, Groups, Model, Row, Useless, fit, side_by_side};

use crate::args::CalibrateArgs;
use crate::failure::Failure;
use crate::output;

/// A model and the rows that it is fitted to.
pub(crate) struct FitInput<'a> {
    pub(crate) model: Model,
    pub(crate) rows: &'a [Row],
    pub(crate) fitted: &'a [usize],
    pub(crate) comment: &'a str,
    pub(crate) keys: &'a str,
}

/// Fits the model's parameters to the rows, and returns the report with the fit.
pub(crate) fn fit_and_report(
    args: &CalibrateArgs,
    work: FitInput<'_>,
    hold_out: bool,
) -> Result<(String, Fitted), Failure> {
    let FitInput {
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
        // Nothing is fitted, but a wrong key is still reported.
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

/// Writes the requested descriptions if the fit is good enough to use.
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
