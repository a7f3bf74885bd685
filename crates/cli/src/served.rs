//! `blklab compare --world serve`.

use blklab_host::{ServedExperiment, System};
use blklab_report::Origin;

use crate::args::CompareArgs;
use crate::compare::{SCHEDULERS, command_line, comparison, deliver_as, progress};
use crate::failure::Failure;
use crate::host::{failure, real_job};
use crate::inputs;

/// Runs of each scheduler where their number is not given: they take real time.
const REPEATS: usize = 3;

pub(crate) fn compare(args: &CompareArgs) -> Result<(), Failure> {
    let (job, job_text) = real_job(args, "serve")?;
    let models = &args.work.models;
    let names = match &args.sweep.schedulers {
        Some(names) => names.clone(),
        None => SCHEDULERS.map(String::from).to_vec(),
    };
    let schedulers = inputs::schedulers(&names, models)?;
    let (drive, drive_text) = inputs::drive(models.drive())?;
    let repeats = args.sweep.repeats.unwrap_or(REPEATS);
    let experiment = ServedExperiment {
        system: &System::default(),
        job: &job,
        drive: (models.drive(), &drive),
        schedulers: &schedulers,
        repeats,
        seed: models.seed(),
        fio: "fio".into(),
    };
    let bar = progress(schedulers.len() * repeats);
    let runs = experiment.run(&|| bar.inc(1));
    bar.finish_and_clear();
    let origin = Origin {
        command: command_line(),
        job_text,
        drive_text,
        ..Origin::default()
    };
    let runs = runs.map_err(failure)?;
    deliver_as(args, &comparison(&schedulers, runs, origin))
}
