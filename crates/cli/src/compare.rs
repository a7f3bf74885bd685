//! `blklab compare` and `blklab replay`.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use blklab_experiment::{Plan, Purpose, Setting, Simulated, WorkloadSource, disk_of_another_kind};
use blklab_report::Question;
use blklab_sim::Replay;
use blklab_stats::World;

use crate::args::{CompareArgs, ModelArgs, PaceArgs, ReplayArgs, SweepArgs, WorldArg};
use crate::compared::{Compared, check, deliver, runs_that_ended};
use crate::failure::Failure;
use crate::progress::{self, Caller};
use crate::real_time::RealTime;
use crate::rows::{Schedulers, queue_of, rows};
use crate::{advice, output};

/// What the intervals of a replay mean.
const ONE_RECORDING: &str = "the runs replay one recording, with each I/O up to 1 us later than it \
                             would come: intervals tell how much its timing is chance, and not how \
                             another recording would differ";

/// Default number of runs of each row.
const REPEATS_SIMULATED: usize = 5;

/// The number of runs of each row and a job's longest runtime with `--quick`.
const REPEATS_QUICK: usize = 2;
const RUNTIME_QUICK_US: u64 = 1_000_000;

/// Default number of assumed values that are tried at their ends.
const ASSUMED_TRIED: usize = 3;

pub(crate) fn compare(mut args: CompareArgs) -> Result<(), Failure> {
    let question = ask(&mut args)?;
    if args.dry_run && args.world() != WorldArg::Host {
        return Err(Failure::mistake("--dry-run needs --world host"));
    }
    if args.dry_run {
        return output::print(&real_time(&args).dry_run()?);
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
    if args.world() == WorldArg::Host {
        // A question names models, which a real drive does not use.
        (args.work.models.drive, args.work.models.machine) = (drive, machine);
    }
    if let Some(question) = &question {
        args.sweep.take_goals_of(question);
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
    let mut compared = match args.world().real() {
        None => {
            args.guest.refuse(REAL_BY)?;
            args.host.refuse(REAL_BY, false)?;
            let find = || args.work.find();
            simulated(find, &args.work.models, &args.work.pace, sweep, caller)?
        }
        Some(world) => real_time(args).compared(world, caller)?,
    };
    compared.comparison.question = question.map(|question| question.question);
    Ok(compared)
}

/// The option that names a world with real time.
const REAL_BY: &str = "--world";

fn real_time(args: &CompareArgs) -> RealTime<'_> {
    RealTime {
        by: REAL_BY,
        work: &args.work,
        sweep: &args.sweep,
        host: &args.host,
        guest: &args.guest,
        found: None,
        repeats: args.sweep.repeats,
    }
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
    let replay = pace.replay()?;
    let work = find()?;
    if let WorkloadSource::Job(_) | WorkloadSource::Calls { .. } = work {
        pace.refuse()?;
    }
    let quick = QuickMode::new(sweep, models, &work)?;
    let cut = AtomicBool::new(false);
    let queue = queue_of(sweep, models)?;
    let settings = rows(
        World::Sim,
        (models, &quick.options),
        sweep,
        Schedulers::for_drive(sweep.kernel(), queue),
        |options| Ok(work.scheduler(options)?),
    )?;
    let mut world = Simulated::new(&work, &settings)?;
    if !models.lenient {
        world.check_modelled()?;
    }
    sweep.check_goals(&work, models, &settings)?;
    configure(&mut world, models, sweep, replay);
    let plan = Plan {
        repeats: sweep.repeats.unwrap_or(quick.repeats),
        seed: models.seed(),
        warm_up: false,
        threads: sweep.threads,
        max_time: sweep.max_time(),
    };
    world.varies_arrivals = plan.repeats > 1;
    let (finished, interrupted) = progress::run_interruptible(&mut world, &plan, caller, &cut)?;
    let rows = finished.rows;
    if rows.is_empty() {
        return Err(Failure::Broken(
            "stopped before any run had ended".to_string(),
        ));
    }
    let origin = caller.origin_of(&world);
    let ended = EndedRuns {
        sweep,
        world: &world,
        work: &work,
        settings: &settings,
        plan,
        caller,
        has_all: rows.len() == settings.len(),
        missing_repeats: finished.missing_repeats,
    };
    let mut compared = Compared::new(sweep, &settings, rows, origin)?;
    compared.comparison.interrupted = interrupted;
    ended.add_notes(&mut compared, quick.note)?;
    ended.advise(&mut compared)?;
    Ok(compared)
}

/// Sets what the runs of a world record and how they go.
fn configure(world: &mut Simulated<'_>, models: &ModelArgs, sweep: &SweepArgs, replay: Replay) {
    world.replay = replay;
    world.recording = sweep
        .html
        .is_some()
        .then(|| sweep.timeline.recording(Purpose::Page));
    world.tail = sweep.timeline.tail(models.why);
    world.traces_requests = sweep.tables.trace_requests();
}

/// Simulated runs that have ended, and what they were asked for.
struct EndedRuns<'a> {
    sweep: &'a SweepArgs,
    world: &'a Simulated<'a>,
    work: &'a WorkloadSource,
    settings: &'a [Setting],
    plan: Plan,
    caller: &'a Caller<'a>,
    /// Every row has at least one run.
    has_all: bool,
    /// How many runs of each row were left out.
    missing_repeats: usize,
}

impl EndedRuns<'_> {
    /// Adds the notes on the runs.
    fn add_notes(&self, compared: &mut Compared, on_quick: Option<String>) -> Result<(), Failure> {
        let comparison = &mut compared.comparison;
        let notes = &mut comparison.notes;
        notes.extend(note_on_kind(self.settings, self.work)?);
        // Who names the states knows that they differ.
        if self.settings.iter().any(|setting| setting.state.is_none()) {
            notes.extend(self.world.note_on_states());
        }
        notes.extend(on_quick);
        if self.world.varies_arrivals && matches!(self.work, WorkloadSource::Trace(_)) {
            notes.push(ONE_RECORDING.to_string());
        }
        if self.missing_repeats > 0 {
            let ended = runs_that_ended(self.plan.repeats, self.missing_repeats, self.has_all);
            notes.push(format!("stopped after {ended}"));
        }
        Ok(())
    }

    /// Adds the advice, and how it depends on values that nobody measured.
    fn advise(&self, compared: &mut Compared) -> Result<(), Failure> {
        let (sweep, comparison) = (self.sweep, &mut compared.comparison);
        let choices = advice::choices_of_models(self.settings, self.work, sweep.kernel())?;
        if choices.is_none() {
            let note = note_on_no_advice(self.world, self.settings);
            comparison.notes.extend(note);
        }
        let Some(choices) = choices.filter(|_| self.has_all) else {
            return Ok(());
        };
        comparison.advice = choices.advise(comparison);
        if let Some(advice) = comparison.advice.as_mut().filter(|_| sweep.quick) {
            advice.make_first_look();
        }
        let tried = sweep.assumed.unwrap_or(match self.plan.repeats {
            1 => 0,
            _ if sweep.quick || self.missing_repeats > 0 => 0,
            _ => ASSUMED_TRIED,
        });
        // What a first look leaves out its note says.
        if tried == 0 && sweep.quick {
            return Ok(());
        }
        let sensitivity = advice::Sensitivity {
            sweep,
            world: self.world,
            work: self.work,
            settings: self.settings,
            choices: &choices,
            plan: self.plan,
            caller: self.caller,
        };
        sensitivity.analyse(compared, tried)
    }
}

/// Returns a note if the job names a disk of another kind than the drive that is simulated, which
/// the advice is for.
fn note_on_kind(settings: &[Setting], work: &WorkloadSource) -> Result<Option<String>, Failure> {
    let Some(first) = settings.first() else {
        return Ok(None);
    };
    let is_like_first = |setting: &Setting| {
        (&setting.drive, &setting.front_end) == (&first.drive, &first.front_end)
    };
    if !settings.iter().all(is_like_first) {
        return Ok(None);
    }
    let disk = disk_of_another_kind(first, &work.file_names(&first.options)?)?;
    Ok(disk.map(|disk| {
        format!(
            "the job's {disk} is of another kind than {}, which is simulated: --drive says what it \
             is like (`blklab list drives`)",
            first.drive
        )
    }))
}

/// Returns a note that nothing is advised where the rows differ in more than what a kernel can be
/// set to, so that no answer can be tried at other values of what nobody measured.
fn note_on_no_advice(world: &Simulated<'_>, settings: &[Setting]) -> Option<String> {
    let untried = match world.assumptions(settings).len() {
        0 => String::new(),
        1 => "; the one assumed value was not tried at its plausible ends".to_string(),
        all => format!("; none of the {all} assumed values was tried at its plausible ends"),
    };
    (settings.len() > 1).then(|| {
        format!(
            "nothing is advised, since the rows differ in more than what a running kernel can be \
             set to{untried}"
        )
    })
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
        let mut given_up = Vec::new();
        if sweep.repeats.is_none() {
            let fewer = format!("{REPEATS_QUICK} runs each in place of {REPEATS_SIMULATED}");
            given_up.push(fewer);
        }
        let given = models.setting()?.options;
        let is_given = given.iter().any(|given| given.option() == "runtime");
        let is_long = |us: Option<u64>| us.is_none_or(|us| us > RUNTIME_QUICK_US && !is_given);
        // A goal of time needs jobs that run to their end.
        if !sweep.goals().are_of_time() && is_long(work.longest_runtime_us(&given)?) {
            quick.options.push("runtime=1".to_string());
            given_up.push("the first second of each job".to_string());
        }
        given_up.push("no assumed value tried at its ends".to_string());
        let text = format!("--quick: {}", given_up.join(", "));
        quick.note = Some(text);
        Ok(quick)
    }
}
