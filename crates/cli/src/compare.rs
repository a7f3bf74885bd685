//! `blklab compare` and `blklab replay`.

use std::io::IsTerminal;
use std::path::Path;

use blklab_experiment::{Host, Plan, Request, Row, Served, Setting, Simulated, Work, settings};
use blklab_report::{Comparison, Goals, Origin, SchedulerRuns, html, json, text};
use blklab_stats::World;
use blklab_workload::fio::JobSource;

use crate::args::WorldArg;
use crate::args::{CompareArgs, CompareFormat, ModelArgs, PaceArgs, ReplayArgs, SweepArgs};
use crate::failure::Failure;
use crate::output;

/// The schedulers that are compared where none are named.
const SCHEDULERS: [&str; 5] = ["none", "mq-deadline", "kyber", "bfq", "ac"];

/// Runs of each row where their number is not given: more where they cost no real
/// time.
const REPEATS_SIMULATED: usize = 5;
const REPEATS_REAL: usize = 3;

pub(crate) fn compare(args: &CompareArgs) -> Result<(), Failure> {
    let (sweep, output) = (&args.sweep, args.work.output.as_deref());
    let mut inputs = args.work.models.files();
    inputs.extend(args.work.job.iter().map(Path::new));
    check_outputs(sweep.html.as_deref(), output, &inputs)?;
    let comparison = match args.host.world {
        WorldArg::Sim => {
            args.host.refuse()?;
            let find = || Work::find(&args.work.job, &args.work.fio);
            simulated(find, &args.work.models, &args.work.pace, sweep)?
        }
        WorldArg::Serve => {
            args.host.refuse()?;
            served(args)?
        }
        WorldArg::Host if args.host.dry_run => {
            let (host, plan) = host(args)?;
            return output::print(&host.dry_run(&plan)?);
        }
        WorldArg::Host => on_host(args)?,
    };
    deliver_judged(sweep, comparison, output)
}

/// `blklab replay`.
pub(crate) fn replay(args: &ReplayArgs) -> Result<(), Failure> {
    let (sweep, output) = (&args.sweep, args.output.as_deref());
    let mut inputs = args.models.files();
    inputs.push(Path::new(&args.trace));
    check_outputs(sweep.html.as_deref(), output, &inputs)?;
    let find = || Work::trace(&args.trace);
    let comparison = simulated(find, &args.models, &args.pace, sweep)?;
    deliver_judged(sweep, comparison, output)
}

/// Compares on models in virtual time.
fn simulated(
    find: impl Fn() -> Result<Work, blklab_experiment::Error>,
    models: &ModelArgs,
    pace: &PaceArgs,
    sweep: &SweepArgs,
) -> Result<Comparison, Failure> {
    if let (None, Some(option)) = (&sweep.html, sweep.timeline.given()) {
        return Err(Failure::mistake(format!("{option} needs --html")));
    }
    let mode = pace.mode()?;
    let work = find()?;
    if let Work::Job(_) = work {
        pace.refuse()?;
    }
    let rows = rows(
        World::Sim,
        models,
        sweep,
        SCHEDULERS.map(String::from).to_vec(),
        || Ok(work.scheduler()?),
    )?;
    let mut world = Simulated::new(&work, &rows)?;
    if !models.lenient {
        world.check_modelled()?;
    }
    world.mode = mode;
    world.recording = sweep.timeline.recording(sweep.html.is_some(), false);
    world.power_loss_at_ns = models.power_loss_at;
    let plan = Plan {
        repeats: sweep.repeats.unwrap_or(REPEATS_SIMULATED),
        seed: models.seed(),
        warm_up: false,
        threads: sweep.threads,
    };
    let rows = output::run_with_progress(&world, &plan)?;
    let descriptions = world.descriptions();
    Ok(comparison(
        rows,
        Origin {
            command: output::command_line(),
            job_text: descriptions.job,
            drive_text: descriptions.drive,
            machine_text: descriptions.machine,
        },
    ))
}

/// Compares on drives' models in real time.
fn served(args: &CompareArgs) -> Result<Comparison, Failure> {
    let source = real_job(args, "serve")?;
    let models = &args.work.models;
    let default = SCHEDULERS.map(String::from).to_vec();
    let rows = rows(World::Serve, models, &args.sweep, default, || {
        Ok(Work::Job(source.clone()).scheduler()?)
    })?;
    let world = Served::new(&source, &rows)?;
    let plan = Plan {
        repeats: args.sweep.repeats.unwrap_or(REPEATS_REAL),
        seed: models.seed(),
        ..Plan::default()
    };
    let rows = output::run_with_progress(&world, &plan)?;
    Ok(comparison(
        rows,
        Origin {
            command: output::command_line(),
            job_text: source.text(),
            drive_text: world.drive_text().to_string(),
            ..Origin::default()
        },
    ))
}

/// Compares on a real drive.
fn on_host(args: &CompareArgs) -> Result<Comparison, Failure> {
    let (host, plan) = host(args)?;
    let rows = output::run_with_progress(&host, &plan)?;
    Ok(comparison(
        rows,
        Origin {
            command: output::command_line(),
            job_text: host.job_text(),
            ..Origin::default()
        },
    ))
}

/// The drive that the arguments name, with the job and the rows to run on it.
fn host(args: &CompareArgs) -> Result<(Host, Plan), Failure> {
    let models = &args.work.models;
    if models.drive.is_some() {
        return refuse("--drive", "--world host has --device");
    }
    if models.seed.is_some() {
        let instead = "fio draws for itself: put randseed=N into the job";
        return refuse("--seed", instead);
    }
    let source = real_job(args, "host")?;
    let Some(device) = &args.host.device else {
        return Err(Failure::mistake(
            "--world host needs --device, such as --device /dev/nvme0n1",
        ));
    };
    let mut host = Host::find(device)?.with_destroy_data(args.host.destroy_data.as_deref());
    if args.host.no_trace {
        host = host.without_trace();
    }
    if let Some(mkfs) = &args.host.mkfs {
        host = host.with_file_system(mkfs)?;
    }
    let (names, active) = host.schedulers()?;
    let rows = rows(World::Host, models, &args.sweep, names, || Ok(Some(active)))?;
    let plan = Plan {
        repeats: args.sweep.repeats.unwrap_or(REPEATS_REAL),
        warm_up: !args.host.no_warm_up,
        ..Plan::default()
    };
    Ok((host.with_rows(&source, &rows)?, plan))
}

fn refuse<T>(option: &str, instead: &str) -> Result<T, Failure> {
    Err(Failure::mistake(format!(
        "{option} is for simulations; {instead}"
    )))
}

/// The job, where time is real: what only simulated time can do is refused.
fn real_job(args: &CompareArgs, world: &str) -> Result<JobSource, Failure> {
    let work = &args.work;
    if work.models.machine.is_some() {
        return refuse("--machine", &format!("--world {world} is this machine"));
    }
    if work.models.lenient {
        return refuse("--lenient", "fio itself runs the job and does all of it");
    }
    if work.models.power_loss_at.is_some() {
        let instead = format!("the drive of --world {world} keeps its power");
        return refuse("--power-loss-at", &instead);
    }
    if args.sweep.threads.is_some() {
        return refuse("--threads", "in real time runs follow one another");
    }
    if let Some(option) = args.sweep.timeline.given() {
        return refuse(option, &format!("--world {world} shows no timeline"));
    }
    work.pace.refuse()?;
    match Work::find(&work.job, &work.fio)? {
        Work::Job(source) => Ok(source),
        Work::Trace(name) => Err(Failure::mistake(format!(
            "{name}: --world {world} runs fio jobs; a trace can be compared in simulation only"
        ))),
    }
}

/// The rows that the arguments ask for. `own` is the scheduler of a comparison of
/// other things.
fn rows(
    world: World,
    models: &ModelArgs,
    sweep: &SweepArgs,
    default_schedulers: Vec<String>,
    own: impl FnOnce() -> Result<Option<String>, Failure>,
) -> Result<Vec<Setting>, Failure> {
    let mut base = models.setting();
    if let (false, None) = (sweep.vary.is_empty(), &sweep.schedulers)
        && let Some(name) = own()?
    {
        base.scheduler.name = name;
    }
    Ok(settings(&Request {
        world,
        base,
        schedulers: sweep.schedulers.as_deref(),
        default_schedulers,
        sets: &models.sets,
        vary: &sweep.vary,
    })?)
}

fn comparison(rows: Vec<Row>, origin: Origin) -> Comparison {
    let runs = rows.into_iter().map(|row| SchedulerRuns {
        name: row.label,
        runs: row.runs,
    });
    let mut comparison = blklab_report::compare(&runs.collect::<Vec<_>>());
    comparison.origin = origin;
    comparison
}

/// A comparison's page and its text need a file each.
pub(crate) fn check_outputs(
    page: Option<&Path>,
    file: Option<&Path>,
    inputs: &[&Path],
) -> Result<(), Failure> {
    output::check(&[("--html", page), ("--output", file)], inputs)
}

/// Judges a comparison by the goals and limits that were given, and delivers it.
fn deliver_judged(
    sweep: &SweepArgs,
    mut comparison: Comparison,
    output: Option<&Path>,
) -> Result<(), Failure> {
    let goals = Goals {
        goals: sweep.goals.clone(),
        limits: sweep.limits.clone(),
    };
    if !goals.is_empty() {
        let judgement = goals.judge(&comparison).map_err(Failure::mistake)?;
        comparison.judgement = Some(judgement);
    }
    deliver(
        &comparison,
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
