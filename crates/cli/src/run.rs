//! `blklab run`.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use blklab_experiment::{Plan, Purpose, Request, Simulated, WorkloadSource, settings};
use blklab_report::tools::{RunEvents, Tool};
use blklab_report::{
    Origin, SchedulerRuns, compare, failed_units, fio_json, fio_logs, fio_text, html,
    note_without_io, perfetto, text,
};
use blklab_stats::{Results, World};

use crate::args::{RunArgs, RunFormat};
use crate::compared::results_table;
use crate::failure::Failure;
use crate::output;
use crate::progress::{self, Caller};

pub(crate) fn run(mut args: RunArgs) -> Result<(), Failure> {
    let inputs = prepare(&mut args)?;
    let ran = simulate(&args, &inputs, &Caller::terminal())?;
    let failed = failed_units(&ran.results).0 > 0;
    deliver(&args, ran.results, ran.origin)?;
    match (ran.interrupted, failed) {
        (true, _) => Err(Failure::Interrupted),
        (false, true) => Err(Failure::CheckFailed),
        (false, false) => Ok(()),
    }
}

/// A run of some work.
pub(crate) struct Ran {
    pub(crate) results: Results,
    pub(crate) origin: Origin,
    /// Whether it was ended before its time.
    pub(crate) interrupted: bool,
}

/// Takes a question's job, and refuses options that need others. Returns the files that
/// are read.
pub(crate) fn prepare(args: &mut RunArgs) -> Result<Vec<PathBuf>, Failure> {
    let mut inputs = args.work.inputs();
    // A single run answers no question, but uses the question's job and drive.
    args.work.take_question()?;
    inputs.extend(args.work.inputs());
    let is_recorded = purpose(args).is_some() || args.work.models.why.is_some();
    if let (false, Some(option)) = (is_recorded, args.timeline.given()) {
        return Err(Failure::mistake(format!(
            "{option} needs --html, --perfetto or --trace, or --why"
        )));
    }
    check_outputs(args, &[], &inputs)?;
    let file = args.work.output.as_deref();
    output::check_tables(&args.tables, args.output_format.table(), file)?;
    Ok(inputs)
}

/// Checks that each output of a run, the logs of its job included, has a file of its
/// own.
fn check_outputs(args: &RunArgs, logs: &[String], inputs: &[PathBuf]) -> Result<(), Failure> {
    let mut outputs = vec![
        ("--trace", args.trace.as_deref()),
        ("--perfetto", args.perfetto.as_deref()),
        ("--html", args.html.as_deref()),
        ("--output", args.work.output.as_deref()),
    ];
    outputs.extend(args.tables.outputs());
    outputs.extend(logs.iter().map(|name| ("a log", Some(Path::new(name)))));
    output::check(&outputs, inputs)
}

/// Prints and writes the requested outputs.
fn deliver(args: &RunArgs, results: Results, origin: Origin) -> Result<(), Failure> {
    let file = args.work.output.as_deref();
    if let Some(path) = &args.perfetto {
        write_perfetto(path, &results)?;
    }
    if let Some(path) = &args.trace {
        write_trace(path, args.tool, &results)?;
    }
    for file in fio_logs::files(&results) {
        output::write_file(Path::new(&file.name), file.text().as_bytes())?;
    }
    let alone = [SchedulerRuns {
        name: results.scheduler.clone(),
        runs: vec![results],
    }];
    output::write_tables(&args.tables, &alone)?;
    if let Some(note) = note_without_io(&alone[0]) {
        eprintln!("blklab: {note}");
    }
    if let Some(path) = &args.html {
        let mut page = compare(&alone);
        page.origin = origin;
        output::write_file(path, html::render(&page).as_bytes())?;
    }
    match args.output_format.table() {
        Some(format) => output::deliver_table(&results_table(&alone), format, file),
        None => {
            let results = &alone[0].runs[0];
            // Who does not see the text sees its notes.
            if args.output_format == RunFormat::Normal && output::leaves_the_terminal(file) {
                let notes = results.notes.iter();
                notes.for_each(|note| eprintln!("blklab: {note}"));
            }
            output::deliver(printed(args.output_format, results), file)
        }
    }
}

/// Returns what the run is recorded for, if anything. A recording for Perfetto also
/// serves a page.
fn purpose(args: &RunArgs) -> Option<Purpose> {
    match (&args.trace, &args.perfetto, &args.html) {
        (Some(_), ..) => Some(Purpose::Trace),
        (_, Some(_), _) => Some(Purpose::Perfetto),
        (.., Some(_)) => Some(Purpose::Page),
        _ => None,
    }
}

/// Checks the output files, and runs the work once, under the scheduler of the command
/// or else of the job.
pub(crate) fn simulate(
    args: &RunArgs,
    inputs: &[PathBuf],
    caller: &Caller<'_>,
) -> Result<Ran, Failure> {
    let models = &args.work.models;
    let work = args.work.find()?;
    if let WorkloadSource::Job(_) | WorkloadSource::Calls { .. } = work {
        args.work.pace.refuse()?;
    }
    let base = models.setting()?;
    let own = || work.scheduler(&base.options);
    let scheduler = match &args.scheduler {
        Some(name) => name.clone(),
        None => own()?.unwrap_or_else(|| "none".to_string()),
    };
    let rows = settings(&Request {
        world: World::Sim,
        base,
        schedulers: Some(&[scheduler]),
        default_schedulers: Vec::new(),
        all_schedulers: Vec::new(),
        sets: &models.sets,
        vary: &[],
    })?;
    let cut = AtomicBool::new(false);
    let mut world = Simulated::new(&work, &rows)?;
    if !models.lenient {
        world.check_modelled()?;
    }
    check_outputs(args, &world.log_files(), inputs)?;
    world.keeps_logs = true;
    world.replay = args.work.pace.replay()?;
    world.recording = purpose(args).map(|purpose| args.timeline.recording(purpose));
    world.tail = args.timeline.tail(models.why);
    world.traces_requests = args.tables.trace_requests();
    let plan = Plan {
        seed: models.seed(),
        ..Plan::default()
    };
    world.keeps_aborted = caller.abandon().is_none();
    let (finished, interrupted) = progress::run_interruptible(&mut world, &plan, caller, &cut)?;
    let mut rows = finished.rows;
    let origin = caller.origin_of(&world);
    let run = rows.pop().and_then(|mut row| row.runs.pop());
    let results = run.ok_or_else(|| Failure::Broken("the run has no results".to_string()))?;
    Ok(Ran {
        results,
        origin,
        interrupted,
    })
}

/// Formats the results as fio prints them, with notes behind.
pub(crate) fn printed(format: RunFormat, results: &Results) -> String {
    if format == RunFormat::Normal {
        let text = fio_text::render(results, None);
        let calls = text::calls(&results.jobs, text::Style::PLAIN);
        let text = match calls.is_empty() {
            true => text,
            false => format!("{text}\n{calls}"),
        };
        let text = match results.slowest {
            None => text,
            Some(_) => format!("{text}\n{}", slowest(results)),
        };
        return format!("{}\n", text.trim_end());
    }
    let options = fio_json::Options {
        plus: format == RunFormat::JsonPlus,
        timestamp_ms: None,
    };
    fio_json::render(results, options)
}

/// Returns where the slowest I/Os spent their time.
fn slowest(results: &Results) -> String {
    let alone = compare(&[SchedulerRuns {
        name: results.scheduler.clone(),
        runs: vec![results.clone()],
    }]);
    let text = text::slowest(&alone, text::Style::PLAIN);
    format!("{}\n", text.trim_end())
}

/// Writes the run's timeline for Perfetto.
fn write_perfetto(path: &Path, results: &Results) -> Result<(), Failure> {
    warn_if_cut(results);
    match perfetto::render(results) {
        Some(trace) => output::write_file(path, &trace),
        // The world ensures that a requested timeline exists.
        None => Ok(()),
    }
}

/// Writes what a tool prints of the run.
fn write_trace(path: &Path, tool: &Tool, results: &Results) -> Result<(), Failure> {
    warn_if_cut(results);
    // The world ensures that a requested recording exists.
    let Some(events) = RunEvents::of(results) else {
        return Ok(());
    };
    let printed = tool.render(&events.source(), &mut events.iter());
    output::write_file(path, &printed.map_err(Failure::Mistake)?)
}

/// Warns if a recording ended early because it was full.
fn warn_if_cut(results: &Results) {
    if let Some(timeline) = results.timeline.as_ref().filter(|t| t.cut) {
        let at_s = timeline.end_ns as f64 / 1e9;
        eprintln!(
            "blklab: the recording is full and ends at {at_s:.3} s; --timeline-start and \
             --timeline-length choose another part"
        );
    }
}
