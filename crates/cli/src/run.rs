//! `blklab run`.

use blklab_report::{fio_json, fio_text};
use blklab_sim::{ReplayMode, ReplaySetup, Setup};

use crate::args::{Replay, RunArgs, RunFormat, WorkArgs};
use crate::failure::Failure;
use crate::inputs::{self, Work};
use crate::output;

pub(crate) fn run(args: &RunArgs) -> Result<(), Failure> {
    let (machine, _) = inputs::machine(&args.work.machine)?;
    let (drive, _) = inputs::drive(&args.work.drive)?;
    let names = [args.scheduler.clone()];
    let scheduler = inputs::schedulers(&names, &args.work)?.remove(0);
    let results = match inputs::work(&args.work, &machine)? {
        Work::Job { job, .. } => blklab_sim::run(&Setup {
            job: &job,
            machine: &machine,
            drive: &drive,
            scheduler: &scheduler,
            seed: args.work.seed,
        }),
        Work::Trace(trace) => blklab_sim::replay(&ReplaySetup {
            trace: &trace,
            mode: replay_mode(&args.work),
            machine: &machine,
            drive: &drive,
            scheduler: &scheduler,
            seed: args.work.seed,
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
pub(crate) fn replay_mode(args: &WorkArgs) -> ReplayMode {
    match args.replay {
        Replay::Open => ReplayMode::Open,
        Replay::Closed => ReplayMode::Closed {
            depth: args.depth.max(1),
        },
    }
}
