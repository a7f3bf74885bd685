//! `blklab compare`.

use std::io::IsTerminal;
use std::path::Path;

use blklab_blk::Nanos;
use blklab_device::DriveSpec;
use blklab_elevator::SchedulerChoice;
use blklab_report::{Comparison, Origin, SchedulerRuns, html, json, text};
use blklab_sim::{Machine, ReplayMode, Setup, SetupError, Workload, sweep_job};
use blklab_stats::{Results, Window};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::args::{CompareArgs, CompareFormat, ModelArgs, PaceArgs, ReplayArgs, SweepArgs};
use crate::failure::Failure;
use crate::host;
use crate::host_args::{HostArgs, WorldArg};
use crate::inputs::{self, Work};
use crate::output;
use crate::run::{check_power_loss, check_timeline, refuse_pace, replay_mode};
use crate::served;

/// The schedulers that are compared where none are named.
pub(crate) const SCHEDULERS: [&str; 5] = ["none", "mq-deadline", "kyber", "bfq", "ac"];

/// Runs of each scheduler where their number is not given.
const REPEATS: usize = 5;

pub(crate) fn compare(args: &CompareArgs) -> Result<(), Failure> {
    check_outputs(args.sweep.html.as_deref(), args.work.output.as_deref())?;
    match args.host.world {
        WorldArg::Sim => simulate(args),
        WorldArg::Serve => {
            refuse_host_options(args)?;
            served::compare(args)
        }
        WorldArg::Host => host::compare(args),
    }
}

/// What only a real drive has is refused rather than passed over.
fn refuse_host_options(args: &CompareArgs) -> Result<(), Failure> {
    let HostArgs {
        world: _,
        device,
        destroy_data,
        dry_run,
        no_trace,
        no_warm_up,
        mkfs,
    } = &args.host;
    let given = [
        (device.is_some(), "--device"),
        (destroy_data.is_some(), "--destroy-data"),
        (*dry_run, "--dry-run"),
        (*no_trace, "--no-trace"),
        (*no_warm_up, "--no-warm-up"),
        (mkfs.is_some(), "--mkfs"),
    ];
    match given.iter().find(|(given, _)| *given) {
        Some((_, option)) => Err(Failure::mistake(format!("{option} needs --world host"))),
        None => Ok(()),
    }
}

fn simulate(args: &CompareArgs) -> Result<(), Failure> {
    refuse_host_options(args)?;
    let work = &args.work;
    let find = |machine: &Machine| inputs::work(work, machine);
    let comparison = simulated(find, &work.models, &work.pace, &args.sweep)?;
    deliver_as(args, &comparison)
}

/// `blklab replay`.
pub(crate) fn replay(args: &ReplayArgs) -> Result<(), Failure> {
    check_outputs(args.sweep.html.as_deref(), args.output.as_deref())?;
    let find = |_: &Machine| inputs::trace(&args.trace);
    let comparison = simulated(find, &args.models, &args.pace, &args.sweep)?;
    let sweep = &args.sweep;
    let output = args.output.as_deref();
    deliver(
        &comparison,
        sweep.output_format,
        sweep.html.as_deref(),
        output,
    )
}

/// Runs all schedulers on models, several times each.
fn simulated(
    find: impl Fn(&Machine) -> Result<Work, Failure>,
    models: &ModelArgs,
    pace: &PaceArgs,
    sweep: &SweepArgs,
) -> Result<Comparison, Failure> {
    if let (None, Some(option)) = (&sweep.html, sweep.timeline.given()) {
        return Err(Failure::mistake(format!("{option} needs --html")));
    }
    let repeats = sweep.repeats.unwrap_or(REPEATS);
    let names = match &sweep.schedulers {
        Some(names) => names.clone(),
        None => SCHEDULERS.map(String::from).to_vec(),
    };
    let (machine, machine_text) = inputs::machine(models.machine())?;
    let (drive, drive_text) = inputs::drive(models.drive())?;
    let schedulers = inputs::schedulers(&names, models)?;
    let mode = replay_mode(pace)?;
    let work = find(&machine)?;
    let record = sweep
        .timeline
        .window(sweep.html.is_some(), false, (&drive, work.ramp_ns()));
    if let Work::Job { .. } = work {
        refuse_pace(pace)?;
    }
    if let Some(threads) = sweep.threads {
        blklab_sim::set_threads(threads).map_err(Failure::Broken)?;
    }
    let power_loss_at = models.power_loss_at.map(Nanos);
    let given = Given {
        machine: &machine,
        drive: &drive,
        schedulers: &schedulers,
        repeats,
        seed: models.seed(),
        mode,
        record,
        power_loss_at,
    };
    let runs = given.run(&work).map_err(Failure::of_run)?;
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
    let all: Vec<&Results> = runs.iter().flatten().collect();
    check_power_loss(power_loss_at, &all)?;
    check_timeline(record, &all)?;
    Ok(comparison(&schedulers, runs, origin))
}

/// What decides the runs beside the work.
struct Given<'a> {
    machine: &'a Machine,
    drive: &'a DriveSpec,
    schedulers: &'a [SchedulerChoice],
    repeats: usize,
    /// Of the first repeat.
    seed: u64,
    /// How a trace is replayed.
    mode: ReplayMode,
    record: Option<Window>,
    power_loss_at: Option<Nanos>,
}

impl Given<'_> {
    /// Runs the work under each scheduler so often, with a bar for who watches.
    fn run(&self, work: &Work) -> Result<Vec<Vec<Results>>, SetupError> {
        let bar = progress(self.schedulers.len() * self.repeats);
        let done = || bar.inc(1);
        let workload = match work {
            Work::Job { job, .. } => Workload::Job(job),
            Work::Trace(file) => Workload::Trace {
                file,
                mode: self.mode,
            },
        };
        let base = Setup {
            workload,
            machine: self.machine,
            drive: self.drive,
            scheduler: &self.schedulers[0],
            seed: self.seed,
            record: self.record,
            power_loss_at: self.power_loss_at,
        };
        let runs = sweep_job(&base, self.schedulers, self.repeats, &done);
        bar.finish_and_clear();
        runs
    }
}

pub(crate) fn comparison(
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

/// A comparison's page and its text need a file each.
pub(crate) fn check_outputs(page: Option<&Path>, file: Option<&Path>) -> Result<(), Failure> {
    output::check(&[("--html", page), ("--output", file)])
}

/// Delivers a comparison as the command's options say.
pub(crate) fn deliver_as(args: &CompareArgs, comparison: &Comparison) -> Result<(), Failure> {
    let sweep = &args.sweep;
    let output = args.work.output.as_deref();
    deliver(
        comparison,
        sweep.output_format,
        sweep.html.as_deref(),
        output,
    )
}

/// Prints a comparison, or writes it to `file`, and a page to `page`.
pub(crate) fn deliver(
    comparison: &Comparison,
    format: CompareFormat,
    page: Option<&Path>,
    file: Option<&Path>,
) -> Result<(), Failure> {
    let text = match format {
        CompareFormat::Normal => {
            let plain = file.is_some() || !std::io::stdout().is_terminal();
            text::render_with(comparison, style(plain))
        }
        CompareFormat::Json => json::render(comparison),
    };
    if let Some(path) = page {
        output::write_file(path, html::render(comparison).as_bytes())?;
    }
    output::deliver(&text, file)?;
    match comparison.failed.is_empty() {
        true => Ok(()),
        false => Err(Failure::No),
    }
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

/// A bar on standard error, where somebody watches that.
pub(crate) fn progress(runs: usize) -> ProgressBar {
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

/// A line on standard error that says what goes on, where somebody watches.
pub(crate) fn progress_words() -> ProgressBar {
    let bar = progress(0);
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") {
        bar.set_style(style);
    }
    bar
}

/// The command as it was typed, for the page; the program's folder is left out.
pub(crate) fn command_line() -> String {
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
