//! `blklab run`.

use std::path::Path;

use blklab_blk::Nanos;
use blklab_device::DriveSpec;
use blklab_elevator::SchedulerChoice;
use blklab_report::{
    Origin, SchedulerRuns, compare, failed_units, fio_json, fio_text, html, perfetto,
};
use blklab_sim::{Machine, ReplayMode, Setup, Workload};
use blklab_stats::{Results, Window};

use crate::args::{PaceArgs, Replay, RunArgs, RunFormat};
use crate::compare::command_line;
use crate::failure::Failure;
use crate::inputs::{self, Work};
use crate::output;

/// How much slower and faster a trace can go.
const SPEED_MIN: f64 = 1e-3;
const SPEED_MAX: f64 = 1e6;
/// I/Os in flight of a trace replayed closed.
const CLOSED_DEPTH: u32 = 32;

pub(crate) fn run(args: &RunArgs) -> Result<(), Failure> {
    let (page, perfetto) = (args.html.as_deref(), args.perfetto.as_deref());
    if let (None, None, Some(option)) = (page, perfetto, args.timeline.given()) {
        return Err(Failure::mistake(format!(
            "{option} needs --html or --perfetto"
        )));
    }
    output::check(&[
        ("--perfetto", perfetto),
        ("--html", page),
        ("--output", args.work.output.as_deref()),
    ])?;
    let (machine, machine_text) = inputs::machine(args.work.models.machine())?;
    let (drive, drive_text) = inputs::drive(args.work.models.drive())?;
    let work = inputs::work(&args.work, &machine)?;
    let record = args
        .timeline
        .window(page.is_some(), perfetto.is_some(), (&drive, work.ramp_ns()));
    let scheduler = scheduler(args, &work)?;
    if let Work::Job { .. } = work {
        refuse_pace(&args.work.pace)?;
    }
    let results = simulate(args, (&work, &machine, &drive), &scheduler, record)?;
    check_timeline(record, &[&results])?;
    let text = printed(args.output_format, &results);
    let failed = failed_units(&results).0 > 0;
    if let Some(path) = perfetto {
        write_trace(path, &results)?;
    }
    if let Some(path) = page {
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
        write_page(path, results, origin)?;
    }
    output::deliver(&text, args.work.output.as_deref())?;
    match failed {
        true => Err(Failure::No),
        false => Ok(()),
    }
}

/// A timeline that was asked for has to begin while something happens in a run.
pub(crate) fn check_timeline(record: Option<Window>, runs: &[&Results]) -> Result<(), Failure> {
    if record.is_none() || runs.iter().any(|run| run.timeline.is_some()) {
        return Ok(());
    }
    let end_ns = runs.iter().map(|run| run.elapsed_ns).max().unwrap_or(0);
    Err(Failure::mistake(format!(
        "--timeline-start: the run was over after {:.3} ms; a timeline begins before",
        end_ns as f64 / 1e6
    )))
}

/// A power loss that was asked for has to have been in every run.
pub(crate) fn check_power_loss(at: Option<Nanos>, runs: &[&Results]) -> Result<(), Failure> {
    let missed = |run: &&&Results| !run.lost_power();
    match runs.iter().find(missed).filter(|_| at.is_some()) {
        None => Ok(()),
        Some(run) => Err(Failure::mistake(format!(
            "--power-loss-at: the run under {} was over after {:.3} ms; right is a time before",
            run.scheduler,
            run.elapsed_ns as f64 / 1e6
        ))),
    }
}

/// The scheduler that the command or else the job names.
fn scheduler(args: &RunArgs, work: &Work) -> Result<SchedulerChoice, Failure> {
    let name = match (&args.scheduler, work) {
        (Some(name), _) => Some(name.clone()),
        (None, Work::Job { job, .. }) => inputs::scheduler_of(job)?,
        (None, Work::Trace(_)) => None,
    };
    let names = [name.unwrap_or_else(|| "none".to_string())];
    Ok(inputs::schedulers(&names, &args.work.models)?.remove(0))
}

fn simulate(
    args: &RunArgs,
    (work, machine, drive): (&Work, &Machine, &DriveSpec),
    scheduler: &SchedulerChoice,
    record: Option<Window>,
) -> Result<Results, Failure> {
    let models = &args.work.models;
    let seed = models.seed();
    let power_loss_at = models.power_loss_at.map(Nanos);
    let workload = match work {
        Work::Job { job, .. } => Workload::Job(job),
        Work::Trace(file) => Workload::Trace {
            file,
            mode: replay_mode(&args.work.pace)?,
        },
    };
    let results = blklab_sim::run(&Setup {
        workload,
        machine,
        drive,
        scheduler,
        seed,
        record,
        power_loss_at,
    });
    let results = results.map_err(Failure::of_run)?;
    check_power_loss(power_loss_at, &[&results])?;
    Ok(results)
}

/// What fio would print. Notes have no place in its text, and have in its JSON.
fn printed(format: RunFormat, results: &Results) -> String {
    if format == RunFormat::Normal {
        let notes = results.notes.iter();
        notes.for_each(|note| eprintln!("blklab: {note}"));
        return fio_text::render(results, None);
    }
    let options = fio_json::Options {
        plus: format == RunFormat::JsonPlus,
        timestamp_ms: None,
    };
    fio_json::render(results, options)
}

/// Writes the run's timeline for Perfetto.
fn write_trace(path: &Path, results: &Results) -> Result<(), Failure> {
    if results.timeline.as_ref().is_some_and(|t| t.cut) {
        eprintln!("blklab: the timeline is full; it ends before its window does");
    }
    match perfetto::render(results) {
        Some(trace) => output::write_file(path, &trace),
        // `check_timeline` has seen that there is one.
        None => Ok(()),
    }
}

/// Writes the run as a page of its own.
fn write_page(path: &Path, results: Results, origin: Origin) -> Result<(), Failure> {
    let name = results.scheduler.clone();
    let mut alone = compare(&[SchedulerRuns {
        name,
        runs: vec![results],
    }]);
    alone.origin = origin;
    output::write_file(path, html::render(&alone).as_bytes())
}

/// A job has times of its own.
pub(crate) fn refuse_pace(pace: &PaceArgs) -> Result<(), Failure> {
    let given = [
        (pace.replay.is_some(), "--replay"),
        (pace.depth.is_some(), "--depth"),
        (pace.speed.is_some(), "--speed"),
    ];
    match given.iter().find(|(given, _)| *given) {
        Some((_, option)) => Err(Failure::mistake(format!(
            "{option} is for traces; an fio job says itself when its I/Os come"
        ))),
        None => Ok(()),
    }
}

/// How a trace is to be replayed.
pub(crate) fn replay_mode(pace: &PaceArgs) -> Result<ReplayMode, Failure> {
    let (replay, speed) = (pace.replay.unwrap_or(Replay::Open), pace.speed);
    if speed.is_some() && replay != Replay::Open {
        return Err(Failure::mistake(
            "--speed is for traces replayed at their times (--timing open)",
        ));
    }
    if pace.depth.is_some() && replay != Replay::Closed {
        return Err(Failure::mistake(
            "--depth is for traces replayed with a number in flight (--timing closed)",
        ));
    }
    let speed = speed.unwrap_or(1.0);
    if !(SPEED_MIN..=SPEED_MAX).contains(&speed) {
        return Err(Failure::mistake(format!(
            "--speed {speed}: from {SPEED_MIN} to {SPEED_MAX} is possible; 2 is twice as fast"
        )));
    }
    Ok(match replay {
        Replay::Open => ReplayMode::Open { speed },
        Replay::Closed => ReplayMode::Closed {
            depth: pace.depth.unwrap_or(CLOSED_DEPTH),
        },
        Replay::Dependencies => ReplayMode::Dependencies,
    })
}
