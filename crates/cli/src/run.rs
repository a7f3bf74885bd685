//! `blklab run`.

use blklab_report::{fio_json, fio_text};
use blklab_sim::{ReplayMode, ReplaySetup, Setup};

use crate::args::{PaceArgs, Replay, RunArgs, RunFormat};
use crate::failure::Failure;
use crate::inputs::{self, Work};
use crate::output;

/// How much slower and faster a trace can go.
const SPEED_MIN: f64 = 1e-3;
const SPEED_MAX: f64 = 1e6;

pub(crate) fn run(args: &RunArgs) -> Result<(), Failure> {
    let (machine, _) = inputs::machine(&args.work.models.machine)?;
    let (drive, _) = inputs::drive(&args.work.models.drive)?;
    let names = [args.scheduler.clone()];
    let scheduler = inputs::schedulers(&names, &args.work.models)?.remove(0);
    let results = match inputs::work(&args.work, &machine)? {
        Work::Job { job, .. } => blklab_sim::run(&Setup {
            job: &job,
            machine: &machine,
            drive: &drive,
            scheduler: &scheduler,
            seed: args.work.models.seed,
        }),
        Work::Trace(trace) => blklab_sim::replay(&ReplaySetup {
            trace: &trace,
            mode: replay_mode(&args.work.pace)?,
            machine: &machine,
            drive: &drive,
            scheduler: &scheduler,
            seed: args.work.models.seed,
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
    output::deliver(&text, args.work.output.as_deref())
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
