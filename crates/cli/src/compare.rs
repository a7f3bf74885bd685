//! `blklab compare`.

use std::io::IsTerminal;

use blklab_report::{Comparison, Origin, SchedulerRuns, html, json, text};
use blklab_sim::{ReplaySetup, SchedulerChoice, Setup, sweep, sweep_job};
use blklab_stats::Results;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::args::{CompareArgs, CompareFormat};
use crate::failure::Failure;
use crate::inputs::{self, Work};
use crate::output;
use crate::run::replay_mode;

pub(crate) fn compare(args: &CompareArgs) -> Result<(), Failure> {
    let (machine, machine_text) = inputs::machine(&args.work.machine)?;
    let (drive, drive_text) = inputs::drive(&args.work.drive)?;
    let schedulers = inputs::schedulers(&args.schedulers, &args.work)?;
    if args.repeats == 0 {
        return Err(Failure::mistake("--repeats 0: at least one run is needed"));
    }
    let work = inputs::work(&args.work, &machine)?;
    set_threads(args.threads)?;
    let bar = progress(schedulers.len() * args.repeats);
    let seed = args.work.seed;
    let done = || bar.inc(1);
    let runs = match &work {
        Work::Job { job, .. } => {
            let base = Setup {
                job,
                machine: &machine,
                drive: &drive,
                scheduler: &schedulers[0],
                seed,
            };
            sweep_job(&base, &schedulers, args.repeats, &done)
        }
        Work::Trace(trace) => {
            let run = |scheduler: &SchedulerChoice, seed: u64| {
                blklab_sim::replay(&ReplaySetup {
                    trace,
                    mode: replay_mode(&args.work),
                    machine: &machine,
                    drive: &drive,
                    scheduler,
                    seed,
                })
            };
            sweep(&schedulers, args.repeats, seed, run, &done)
        }
    };
    bar.finish_and_clear();
    let job_text = match work {
        Work::Job { text, .. } => text,
        Work::Trace(name) => name,
    };
    let origin = Origin {
        command: command_line(),
        job_text,
        drive_text,
        machine_text,
    };
    let runs = runs.map_err(Failure::mistake)?;
    deliver(args, comparison(&schedulers, runs, origin))
}

fn comparison(
    schedulers: &[SchedulerChoice],
    runs: Vec<Vec<Results>>,
    origin: Origin,
) -> Comparison {
    let runs: Vec<SchedulerRuns> = schedulers
        .iter()
        .zip(runs)
        .map(|(scheduler, runs)| SchedulerRuns {
            name: scheduler.label(),
            runs,
        })
        .collect();
    let mut comparison = blklab_report::compare(&runs);
    comparison.origin = origin;
    comparison
}

fn deliver(args: &CompareArgs, comparison: Comparison) -> Result<(), Failure> {
    let text = match args.output_format {
        CompareFormat::Normal => {
            let plain = args.work.output.is_some() || !std::io::stdout().is_terminal();
            text::render_with(&comparison, style(plain))
        }
        CompareFormat::Json => json::render(&comparison),
    };
    if let Some(path) = &args.html {
        output::write_file(path, &html::render(&comparison))?;
    }
    output::deliver(&text, args.work.output.as_deref())
}

fn style(plain: bool) -> text::Style {
    if plain {
        return text::Style::PLAIN;
    }
    text::Style {
        width: text::Style::terminal_width().unwrap_or(120),
        colour: std::env::var_os("NO_COLOR").is_none(),
    }
}

fn set_threads(threads: Option<usize>) -> Result<(), Failure> {
    let Some(threads) = threads else {
        return Ok(());
    };
    if threads == 0 {
        return Err(Failure::mistake("--threads 0: at least one is needed"));
    }
    blklab_sim::set_threads(threads).map_err(Failure::Broken)
}

/// A bar on standard error, where somebody watches that.
fn progress(runs: usize) -> ProgressBar {
    let target = if std::io::stderr().is_terminal() {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
    };
    let bar = ProgressBar::with_draw_target(Some(runs as u64), target);
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {pos}/{len} runs, {eta} left") {
        bar.set_style(style);
    }
    bar.tick();
    bar
}

/// The command as it was typed, for the page; the program's folder is left out.
fn command_line() -> String {
    let words = std::env::args().skip(1).map(|word| quoted(&word));
    let mut line = String::from("blklab");
    words.for_each(|word| {
        line.push(' ');
        line.push_str(&word);
    });
    line
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./:,+%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_string();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}
