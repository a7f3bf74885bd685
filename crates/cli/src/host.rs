//! `blklab compare --world host`.

use blklab_host::{
    Choice, Disk, Experiment, FileSystem, HostError, Queue, RealFiles, System, check_rights,
    is_read_only_job, permit,
};
use blklab_report::{Comparison, Origin, SchedulerRuns};
use blklab_workload::fio::JobFile;

use crate::args::CompareArgs;
use crate::compare::{command_line, deliver_as, progress};
use crate::failure::Failure;
use crate::inputs::{self, Work};
use crate::output;
use crate::run::refuse_pace;
use crate::scheduler_list::{Listed, listed};

/// Repeats where the user does not say: drift shows by then, and a real drive
/// takes real time.
const REPEATS: usize = 3;

pub(crate) fn compare(args: &CompareArgs) -> Result<(), Failure> {
    let (job, job_text) = job(args)?;
    let Some(device) = &args.host.device else {
        return Err(Failure::mistake(
            "--world host needs --device, such as --device /dev/nvme0n1",
        ));
    };
    let system = System::default();
    let disk = Disk::find(&system, device).map_err(failure)?;
    let queue = Queue::new(
        RealFiles,
        device.display().to_string(),
        disk.folder(&system),
    );
    let file_system = args.host.mkfs.as_deref().map(FileSystem::parse);
    let file_system = file_system.transpose().map_err(failure)?;
    let experiment = Experiment {
        system: &system,
        disk: &disk,
        job: &job,
        choices: choices(args, &queue)?,
        repeats: args.sweep.repeats.unwrap_or(REPEATS),
        warm_up: !args.host.no_warm_up,
        trace: !args.host.no_trace,
        file_system,
        fio: "fio".into(),
    };
    // A plan can be shown to somebody who may not carry it out.
    if args.host.dry_run {
        return dry_run(&experiment, args.host.destroy_data.as_deref());
    }
    check_rights(&system, &disk, writes(&experiment)).map_err(failure)?;
    let destroy = args.host.destroy_data.as_deref();
    let makes = experiment.file_system.is_some();
    let warnings = permit(&system, &disk, &job, makes, destroy).map_err(failure)?;
    for warning in warnings {
        eprintln!("blklab: warning: {}: {warning}", device.display());
    }
    let comparison = measure(&experiment, &queue, job_text)?;
    deliver_as(args, &comparison)
}

fn measure(
    experiment: &Experiment<'_>,
    queue: &Queue<RealFiles>,
    job_text: String,
) -> Result<Comparison, Failure> {
    let runs = experiment.choices.len() * experiment.repeats + usize::from(experiment.warm_up);
    let bar = progress(runs);
    let runs = experiment.run(queue, &|| bar.inc(1));
    bar.finish_and_clear();
    let runs = runs.map_err(failure)?;
    let labels = experiment.choices.iter().map(Choice::label);
    let runs: Vec<SchedulerRuns> = labels
        .zip(runs)
        .map(|(name, runs)| SchedulerRuns { name, runs })
        .collect();
    let mut comparison = blklab_report::compare(&runs);
    comparison.origin = Origin {
        command: command_line(),
        job_text,
        ..Origin::default()
    };
    Ok(comparison)
}

/// The job, read for this machine; what only a simulation can do is refused.
fn job(args: &CompareArgs) -> Result<(JobFile, String), Failure> {
    let models = &args.work.models;
    let refuse = |option: &str, instead: &str| {
        Err(Failure::mistake(format!(
            "{option} is for simulations; {instead}"
        )))
    };
    if models.drive.is_some() {
        return refuse("--drive", "--world host has --device");
    }
    if models.seed.is_some() {
        return refuse(
            "--seed",
            "fio draws for itself: put randseed=N into the job",
        );
    }
    real_job(args, "host")
}

/// The job, read for this machine, where time is real: what only simulated time
/// can do is refused.
pub(crate) fn real_job(args: &CompareArgs, world: &str) -> Result<(JobFile, String), Failure> {
    let work = &args.work;
    let refuse = |option: &str, instead: String| {
        Err(Failure::mistake(format!(
            "{option} is for simulations; {instead}"
        )))
    };
    if work.models.machine.is_some() {
        return refuse("--machine", format!("--world {world} is this machine"));
    }
    if work.models.power_loss_at.is_some() {
        return refuse(
            "--power-loss-at",
            format!("the drive of --world {world} keeps its power"),
        );
    }
    if args.sweep.threads.is_some() {
        return refuse(
            "--threads",
            "in real time runs follow one another".to_string(),
        );
    }
    if let Some(option) = args.sweep.timeline.given() {
        return refuse(option, format!("--world {world} shows no timeline"));
    }
    refuse_pace(&work.pace)?;
    let (mut machine, _) = inputs::machine(work.models.machine())?;
    machine.cpus = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
    match inputs::work(work, &machine)? {
        Work::Job { job, text } => Ok((job, text)),
        Work::Trace(name) => Err(Failure::mistake(format!(
            "{name}: --world {world} runs fio jobs; a trace can be compared in simulation only"
        ))),
    }
}

/// The schedulers as asked, or all that the kernel has for the drive. Names
/// and tunables are the kernel's to judge.
fn choices(args: &CompareArgs, queue: &Queue<RealFiles>) -> Result<Vec<Choice>, Failure> {
    let names = match &args.sweep.schedulers {
        Some(names) => names.clone(),
        None => queue.schedulers().map_err(failure)?.names,
    };
    let list = listed(&names, &args.work.models.sets)?;
    let choice = |listed: Listed| Choice {
        scheduler: listed.name,
        tunables: listed.tunables,
        nr_requests: args.work.models.nr_requests,
        nomerges: args.work.models.nomerges,
    };
    Ok(list.into_iter().map(choice).collect())
}

fn writes(experiment: &Experiment<'_>) -> bool {
    experiment.file_system.is_some() || !is_read_only_job(experiment.job)
}

/// Prints what would be done, and what would refuse it.
fn dry_run(experiment: &Experiment<'_>, destroy: Option<&str>) -> Result<(), Failure> {
    let mut text = String::new();
    let device = experiment.disk.path.display();
    let makes = experiment.file_system.is_some();
    let Experiment {
        system, disk, job, ..
    } = experiment;
    match permit(system, disk, job, makes, destroy) {
        Ok(warnings) => {
            for warning in warnings {
                text.push_str(&format!("warning: {device}: {warning}\n"));
            }
        }
        Err(refusal) => text.push_str(&format!("would be refused: {refusal}\n")),
    }
    if let Err(error) = check_rights(system, disk, writes(experiment)) {
        text.push_str(&format!("would be refused: {error}\n"));
    }
    for (number, step) in (1..).zip(experiment.steps()) {
        text.push_str(&format!("{number:3}. {}\n", experiment.describe(step)));
    }
    let job = blklab_host::on_device(experiment.job, &experiment.place()).map_err(failure)?;
    text.push_str(&format!("\nThe job that fio gets:\n{job}"));
    output::print(&text)
}

pub(crate) fn failure(error: HostError) -> Failure {
    match error.is_mistake() {
        true => Failure::mistake(error),
        false => Failure::Broken(error.to_string()),
    }
}
