//! `blklab run`.

use std::path::Path;

use blklab_report::{Origin, SchedulerRuns, compare, fio_json, fio_text, html, perfetto};
use blklab_sim::{ReplayMode, ReplaySetup, Setup};
use blklab_stats::Results;

use crate::args::{PaceArgs, Replay, RunArgs, RunFormat};
use crate::compare::command_line;
use crate::failure::Failure;
use crate::inputs::{self, Work};
use crate::output;

/// How much slower and faster a trace can go.
const SPEED_MIN: f64 = 1e-3;
const SPEED_MAX: f64 = 1e6;

pub(crate) fn run(args: &RunArgs) -> Result<(), Failure> {
    let (page, perfetto) = (args.html.as_deref(), args.perfetto.as_deref());
    let record = args.timeline.window(page.is_some(), perfetto.is_some());
    if let (None, Some(option)) = (record, args.timeline.given()) {
        return Err(Failure::mistake(format!(
            "{option} needs --html or --perfetto"
        )));
    }
    let (machine, machine_text) = inputs::machine(&args.work.models.machine)?;
    let (drive, drive_text) = inputs::drive(&args.work.models.drive)?;
    let names = [args.scheduler.clone()];
    let scheduler = inputs::schedulers(&names, &args.work.models)?.remove(0);
    let work = inputs::work(&args.work, &machine)?;
    let results = match &work {
        Work::Job { job, .. } => blklab_sim::run(&Setup {
            job,
            machine: &machine,
            drive: &drive,
            scheduler: &scheduler,
            seed: args.work.models.seed,
            record,
        }),
        Work::Trace(trace) => blklab_sim::replay(&ReplaySetup {
            trace,
            mode: replay_mode(&args.work.pace)?,
            machine: &machine,
            drive: &drive,
            scheduler: &scheduler,
            seed: args.work.models.seed,
            record,
        }),
    }
    .map_err(Failure::mistake)?;
    let options = fio_json::Options {
        plus: args.output_format == RunFormat::JsonPlus,
        timestamp_ms: None,
    };
    let text = match args.output_format {
        RunFormat::Normal => fio_text::render(&results, None),
        RunFormat::Json | RunFormat::JsonPlus => fio_json::render(&results, options),
    };
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
    output::deliver(&text, args.work.output.as_deref())
}

/// Writes the run's timeline for Perfetto.
fn write_trace(path: &Path, results: &Results) -> Result<(), Failure> {
    let trace = perfetto::render(results).ok_or_else(|| {
        let end_ms = results.elapsed_ns as f64 / 1e6;
        Failure::mistake(format!(
            "--timeline-start: the run was over after {end_ms:.3} ms; a timeline begins before"
        ))
    })?;
    if results.timeline.as_ref().is_some_and(|t| t.cut) {
        eprintln!("blklab: the timeline is full; it ends before its window does");
    }
    output::write_file(path, &trace)
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

/// How a trace is to be replayed.
pub(crate) fn replay_mode(pace: &PaceArgs) -> Result<ReplayMode, Failure> {
    let speed = pace.speed;
    if !(SPEED_MIN..=SPEED_MAX).contains(&speed) {
        return Err(Failure::mistake(format!(
            "--speed {speed}: from {SPEED_MIN} to {SPEED_MAX} is possible; 2 is twice as fast"
        )));
    }
    if speed != 1.0 && pace.replay != Replay::Open {
        return Err(Failure::mistake(
            "--speed is for traces replayed at their times (--timing open)",
        ));
    }
    Ok(match pace.replay {
        Replay::Open => ReplayMode::Open { speed },
        Replay::Closed => ReplayMode::Closed {
            depth: pace.depth.max(1),
        },
        Replay::Dependencies => ReplayMode::Dependencies,
    })
}
