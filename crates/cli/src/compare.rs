//! `blklab compare` and `blklab replay`.

use std::path::Path;

use blklab_elevator::KernelVersion;
use blklab_experiment::{
    Guest, Host, Plan, Purpose, Request, Served, Setting, Simulated, WorkloadSource, settings,
};
use blklab_guest::Packages;
use blklab_report::{Origin, Question};
use blklab_stats::World;
use blklab_workload::fio::JobSource;

use crate::args::WorldArg;
use crate::args::{CompareArgs, ModelArgs, PaceArgs, ReplayArgs, SweepArgs};
use crate::compared::{Compared, check, deliver};
use crate::failure::Failure;
use crate::progress::{self, Caller};
use crate::{advice, output};

/// Default number of runs of each row: more where they take no real time.
const REPEATS_SIMULATED: usize = 5;
const REPEATS_REAL: usize = 3;

/// The number of runs of each row and a job's longest runtime with `--quick`.
const REPEATS_QUICK: usize = 2;
const RUNTIME_QUICK_US: u64 = 1_000_000;

/// Default number of assumed values that are tried at their ends.
const ASSUMED_TRIED: usize = 3;

pub(crate) fn compare(mut args: CompareArgs) -> Result<(), Failure> {
    let question = ask(&mut args)?;
    if args.host.world() == WorldArg::Host && args.host.dry_run {
        let (host, _, plan) = host(&args)?;
        return output::print(&host.dry_run(&plan)?);
    }
    let compared = compared(&args, question, &Caller::terminal())?;
    deliver(&compared, &args.sweep, args.work.output.as_deref())
}

/// Replaces a question's name, if one is asked, by the question, and checks the output
/// files.
pub(crate) fn ask(args: &mut CompareArgs) -> Result<Option<Question>, Failure> {
    let mut inputs = args.work.inputs();
    let (drive, machine) = (
        args.work.models.drive.clone(),
        args.work.models.machine.clone(),
    );
    let question = args.work.take_question()?;
    args.take_front_ends();
    if args.host.world() == WorldArg::Host {
        // A question names models, which a real drive does not use.
        (args.work.models.drive, args.work.models.machine) = (drive, machine);
    }
    if let Some(question) = &question {
        args.sweep.judge_by(question);
    }
    inputs.extend(args.work.inputs());
    inputs.extend(args.host.device.clone());
    check(&args.sweep, args.work.output.as_deref(), &inputs)?;
    Ok(question)
}

/// Runs the comparison in the world that the arguments name.
pub(crate) fn compared(
    args: &CompareArgs,
    question: Option<Question>,
    caller: &Caller<'_>,
) -> Result<Compared, Failure> {
    let sweep = &args.sweep;
    if args.host.world() != WorldArg::Guest {
        args.guest.refuse()?;
    }
    if args.host.world() != WorldArg::Host {
        args.host.refuse()?;
    }
    let mut compared = match args.host.world() {
        WorldArg::Sim => {
            let find = || args.work.find();
            simulated(find, &args.work.models, &args.work.pace, sweep, caller)?
        }
        WorldArg::Serve => served(args, caller)?,
        WorldArg::Guest => in_guest(args, caller)?,
        WorldArg::Host => on_host(args, caller)?,
    };
    compared.comparison.question = question.map(|question| question.question);
    Ok(compared)
}

/// `blklab replay`.
pub(crate) fn replay(args: &ReplayArgs) -> Result<(), Failure> {
    let replayed = replayed(args, &Caller::terminal())?;
    deliver(&replayed, &args.sweep, args.output.as_deref())
}

/// Runs the comparison of a replayed trace.
pub(crate) fn replayed(args: &ReplayArgs, caller: &Caller<'_>) -> Result<Compared, Failure> {
    let (sweep, output) = (&args.sweep, args.output.as_deref());
    let mut inputs = args.models.files();
    inputs.push(Path::new(&args.trace));
    check(sweep, output, &inputs)?;
    let find = || WorkloadSource::trace(&args.trace);
    simulated(find, &args.models, &args.pace, sweep, caller)
}

/// Runs the comparison on models in virtual time.
fn simulated(
    find: impl Fn() -> Result<WorkloadSource, blklab_experiment::Error>,
    models: &ModelArgs,
    pace: &PaceArgs,
    sweep: &SweepArgs,
    caller: &Caller<'_>,
) -> Result<Compared, Failure> {
    if let (None, None, Some(option)) = (&sweep.html, models.why, sweep.timeline.given()) {
        return Err(Failure::mistake(format!("{option} needs --html")));
    }
    let mode = pace.mode()?;
    let work = find()?;
    if let WorkloadSource::Job(_) | WorkloadSource::Calls { .. } = work {
        pace.refuse()?;
    }
    let quick = QuickMode::new(sweep, models, &work)?;
    let settings = rows(
        World::Sim,
        (models, &quick.options),
        sweep,
        Schedulers::of_kernel(sweep.kernel()),
        || Ok(work.scheduler()?),
    )?;
    let mut world = Simulated::new(&work, &settings)?;
    if !models.lenient {
        world.check_modelled()?;
    }
    sweep.check_goals(&work)?;
    world.mode = mode;
    world.recording = sweep
        .html
        .is_some()
        .then(|| sweep.timeline.recording(Purpose::Page));
    world.power_loss_at_ns = models.power_loss_at;
    world.tail = sweep.timeline.tail(models.why);
    world.traces_requests = sweep.tables.trace_requests();
    world.abandon = caller.abandon();
    let plan = Plan {
        repeats: sweep.repeats.unwrap_or(quick.repeats),
        seed: models.seed(),
        warm_up: false,
        threads: sweep.threads,
        max_time: sweep.max_time(),
    };
    let (finished, interrupted) = progress::run_interruptible(&world, &plan, caller)?;
    let rows = finished.rows;
    if rows.is_empty() {
        return Err(Failure::Broken(
            "stopped before any run had ended".to_string(),
        ));
    }
    let (has_all, missing) = (rows.len() == settings.len(), finished.missing_repeats);
    let descriptions = world.descriptions();
    let origin = Origin {
        command: caller.command.clone(),
        job_text: descriptions.job,
        drive_text: descriptions.drive,
        machine_text: descriptions.machine,
    };
    let first_runs = advice::first_runs(&rows);
    let mut compared = Compared::new(sweep, rows, origin)?;
    let comparison = &mut compared.comparison;
    comparison.interrupted = interrupted;
    comparison.notes.extend(quick.note);
    if missing > 0 {
        let (done, all) = (plan.repeats - missing, plan.repeats);
        let others = match has_all {
            true => "",
            false => "; what has not run once is left out",
        };
        let note = format!("stopped after {done} of {all} runs each{others}");
        comparison.notes.push(note);
    }
    let choices = advice::choices_of_models(&settings, sweep.kernel())?;
    let Some(choices) = choices.filter(|_| has_all) else {
        return Ok(compared);
    };
    comparison.advice = choices.advise(comparison);
    let tried = sweep.assumed.unwrap_or(match plan.repeats {
        1 => 0,
        _ if sweep.quick || missing > 0 => 0,
        _ => ASSUMED_TRIED,
    });
    let sensitivity = advice::Sensitivity {
        sweep,
        world: &world,
        work: &work,
        settings: &settings,
        choices: &choices,
        plan,
        caller,
    };
    sensitivity.analyse(comparison, &first_runs, tried)?;
    Ok(compared)
}

/// The savings of `--quick`.
struct QuickMode {
    repeats: usize,
    /// fio options for all jobs.
    options: Vec<String>,
    /// A note that lists the savings.
    note: Option<String>,
}

impl QuickMode {
    fn new(
        sweep: &SweepArgs,
        models: &ModelArgs,
        work: &WorkloadSource,
    ) -> Result<QuickMode, Failure> {
        let mut quick = QuickMode {
            repeats: REPEATS_SIMULATED,
            options: Vec::new(),
            note: None,
        };
        if !sweep.quick {
            return Ok(quick);
        }
        quick.repeats = REPEATS_QUICK;
        let mut given_up = format!("{REPEATS_QUICK} runs each in place of {REPEATS_SIMULATED}");
        let is_set = models
            .overrides
            .iter()
            .any(|option| option.starts_with("runtime="));
        // A goal of time needs jobs that run to their end.
        let is_set = is_set || sweep.goals().are_of_time();
        if !is_set && work.longest_runtime_us()? > RUNTIME_QUICK_US {
            quick.options.push("runtime=1".to_string());
            given_up.push_str(", the first second of each job");
        }
        let text = format!("--quick: {given_up}, and no assumed value tried at its ends");
        quick.note = Some(text);
        Ok(quick)
    }
}

/// Runs the comparison on drives' models in real time.
fn served(args: &CompareArgs, caller: &Caller<'_>) -> Result<Compared, Failure> {
    let source = real_job(args, "serve")?;
    let models = &args.work.models;
    let sweep = &args.sweep;
    let schedulers = Schedulers::of_kernel(sweep.kernel());
    let settings = rows(World::Serve, (models, &[]), sweep, schedulers, || {
        Ok(WorkloadSource::Job(source.clone()).scheduler()?)
    })?;
    let world = Served::new(&source, &settings)?;
    real_time(args, &world, world.drive_text(), &source, &settings, caller)
}

/// Runs the comparison in a world that serves drives' models in real time.
fn real_time<W: blklab_experiment::World>(
    args: &CompareArgs,
    world: &W,
    drive_text: &str,
    source: &JobSource,
    settings: &[Setting],
    caller: &Caller<'_>,
) -> Result<Compared, Failure> {
    let sweep = &args.sweep;
    sweep.check_goals(&WorkloadSource::Job(source.clone()))?;
    let plan = Plan {
        repeats: sweep.repeats.unwrap_or(REPEATS_REAL),
        seed: args.work.models.seed(),
        ..Plan::default()
    };
    let rows = progress::run(world, &plan, caller)?;
    let origin = Origin {
        command: caller.command.clone(),
        job_text: source.text(),
        drive_text: drive_text.to_string(),
        ..Origin::default()
    };
    let mut compared = Compared::new(sweep, rows, origin)?;
    let choices = advice::choices_of_models(settings, sweep.kernel())?;
    let comparison = &mut compared.comparison;
    comparison.advice = choices.and_then(|choices| choices.advise(comparison));
    Ok(compared)
}

/// Runs the comparison under a real kernel in a virtual machine.
fn in_guest(args: &CompareArgs, caller: &Caller<'_>) -> Result<Compared, Failure> {
    let source = real_job(args, "guest")?;
    let (models, sweep) = (&args.work.models, &args.sweep);
    let mut schedulers = Schedulers::of_kernel(sweep.kernel());
    schedulers.all.clone_from(&schedulers.default);
    let settings = rows(World::Guest, (models, &[]), sweep, schedulers, || {
        Ok(WorkloadSource::Job(source.clone()).scheduler()?)
    })?;
    let packages = Packages::find(&args.guest.folder()).map_err(blklab_experiment::Error::from)?;
    let mut world = Guest::new(packages, &source, &settings)?;
    world.module.clone_from(&args.guest.module);
    world.accelerator = args.guest.accelerator();
    world.cpus = args.guest.guest_cpus.unwrap_or(1);
    world.time_dilation = args.guest.time_dilation();
    world.trace = !args.host.no_trace;
    real_time(args, &world, world.drive_text(), &source, &settings, caller)
}

/// Runs the comparison on a real drive.
fn on_host(args: &CompareArgs, caller: &Caller<'_>) -> Result<Compared, Failure> {
    let (host, settings, plan) = host(args)?;
    let choices = advice::choices_of_host(&settings, &host)?;
    let rows = progress::run(&host, &plan, caller)?;
    let origin = Origin {
        command: caller.command.clone(),
        job_text: host.job_text(),
        ..Origin::default()
    };
    let mut compared = Compared::new(&args.sweep, rows, origin)?;
    let comparison = &mut compared.comparison;
    comparison.advice = choices.and_then(|choices| choices.advise(comparison));
    Ok(compared)
}

/// Returns the drive that the arguments name, with the job, and the rows and plan to run
/// on it.
fn host(args: &CompareArgs) -> Result<(Host, Vec<Setting>, Plan), Failure> {
    let models = &args.work.models;
    if models.drive.is_some() {
        return refuse("--drive", "--world host has --device");
    }
    if models.state.is_some() {
        return refuse(
            "--state",
            "write to the device before, as the state needs it",
        );
    }
    if models.faults.is_some() {
        return refuse("--faults", "a real drive has its own");
    }
    if models.seed.is_some() {
        let instead = "fio draws for itself: put randseed=N into the job";
        return refuse("--seed", instead);
    }
    if args.sweep.kernel.is_some() {
        return refuse("--kernel", "--world host is under the kernel that runs");
    }
    let source = real_job(args, "host")?;
    args.sweep
        .check_goals(&WorkloadSource::Job(source.clone()))?;
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
    let schedulers = Schedulers {
        all: names.clone(),
        default: names,
    };
    let rows = rows(World::Host, (models, &[]), &args.sweep, schedulers, || {
        Ok(Some(active))
    })?;
    let plan = Plan {
        repeats: args.sweep.repeats.unwrap_or(REPEATS_REAL),
        warm_up: !args.host.no_warm_up,
        ..Plan::default()
    };
    Ok((host.with_rows(&source, &rows)?, rows, plan))
}

fn refuse<T>(option: &str, instead: &str) -> Result<T, Failure> {
    Err(Failure::mistake(format!(
        "{option} is for simulations; {instead}"
    )))
}

/// Returns the job for a world in real time, and refuses the options that only simulated
/// time has.
fn real_job(args: &CompareArgs, world: &str) -> Result<JobSource, Failure> {
    let work = &args.work;
    if work.models.machine.is_some() {
        return refuse("--machine", &format!("--world {world} is this machine"));
    }
    if work.models.lenient {
        return refuse("--lenient", "fio itself runs the job and does all of it");
    }
    if work.models.why.is_some() {
        let instead = format!("--world {world} does not see each request's way");
        return refuse("--why", &instead);
    }
    let models = &work.models;
    for (option, is_given) in [
        ("--memory", models.memory.is_some()),
        ("--fs", models.fs.is_some()),
        ("--read-ahead-kb", models.read_ahead_kb.is_some()),
        ("--sysctl", !models.sysctls.is_empty()),
    ] {
        if is_given {
            return refuse(option, "the machine's own page cache has its own settings");
        }
    }
    if work.models.cgroup_file.is_some() {
        let instead = format!("the groups of --world {world} are those of its kernel");
        return refuse("--cgroup-file", &instead);
    }
    if work.models.faults.is_some_and(|faults| faults.in_data()) {
        let instead = format!("what --world {world} reads is what its back end has");
        return refuse(
            "--faults with bit_rot, stale_read or misdirected_read",
            &instead,
        );
    }
    if work.models.power_loss_at.is_some() {
        let instead = format!("the drive of --world {world} keeps its power");
        return refuse("--power-loss-at", &instead);
    }
    if args.sweep.assumed.is_some() {
        return refuse(
            "--assumed",
            "runs in real time are not repeated at other values",
        );
    }
    if args.sweep.quick || args.sweep.max_time.is_some() {
        let option = if args.sweep.quick {
            "--quick"
        } else {
            "--max-time"
        };
        return refuse(
            option,
            "--repeats and the job's runtime say how long it takes",
        );
    }
    if args.sweep.threads.is_some() {
        return refuse("--threads", "in real time runs follow one another");
    }
    if let Some(option) = args.sweep.timeline.given() {
        return refuse(option, &format!("--world {world} shows no timeline"));
    }
    if args.sweep.tables.trace_requests() {
        let [(requests, _), (series, _)] = args.sweep.tables.outputs();
        let option = match args.sweep.tables.requests {
            Some(_) => requests,
            None => series,
        };
        let instead = format!("--world {world} does not see each request's way");
        return refuse(option, &instead);
    }
    work.pace.refuse()?;
    match work.find()? {
        WorkloadSource::Job(source) => Ok(source),
        WorkloadSource::Trace(name) | WorkloadSource::Calls { file: name, .. } => {
            Err(Failure::mistake(format!(
                "{name}: --world {world} runs fio jobs; traces and lists of calls are simulated only"
            )))
        }
    }
}

/// The schedulers of a world, and those that are compared by default.
pub(crate) struct Schedulers {
    all: Vec<String>,
    default: Vec<String>,
}

impl Schedulers {
    /// Returns our own schedulers; the default ones are those that the kernel has.
    pub(crate) fn of_kernel(kernel: KernelVersion) -> Schedulers {
        let names = || blklab_elevator::all().iter().map(|kind| kind.name);
        Schedulers {
            all: names().map(str::to_string).collect(),
            default: names()
                .filter(|name| kernel.has(name))
                .map(str::to_string)
                .collect(),
        }
    }
}

/// Returns the rows that the arguments ask for. `own` gives the scheduler where other
/// things than schedulers are compared.
pub(crate) fn rows(
    world: World,
    (models, more): (&ModelArgs, &[String]),
    sweep: &SweepArgs,
    schedulers: Schedulers,
    own: impl FnOnce() -> Result<Option<String>, Failure>,
) -> Result<Vec<Setting>, Failure> {
    let mut base = models.setting()?;
    for option in more {
        base.override_option("--quick", option)?;
    }
    if let (false, None) = (sweep.vary.is_empty(), &sweep.schedulers)
        && let Some(name) = own()?
    {
        base.scheduler.name = name;
    }
    Ok(settings(&Request {
        world,
        base,
        schedulers: sweep.schedulers.as_deref(),
        default_schedulers: schedulers.default,
        all_schedulers: schedulers.all,
        sets: &models.sets,
        vary: &sweep.vary,
    })?)
}
