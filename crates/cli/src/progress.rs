//! What is shown on standard error while something goes on.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use blklab_experiment::{Event, Finished, Plan, Row, World};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use signal_hook::consts::SIGINT;
use signal_hook::flag;

use crate::failure::{Failure, INTERRUPTED};
use crate::output;

/// Steps of a bar that a run is.
const STEPS: f64 = 1000.0;

/// Who sees how runs come on, and may stop them.
pub struct Observer<'a> {
    /// Told how many runs are done, parts of runs included, and how many there are.
    pub progress: &'a (dyn Fn(f64, usize) + Sync),
    /// Ends the runs once it is set.
    pub stop: &'a AtomicBool,
}

/// Who called a command.
pub(crate) struct Caller<'a> {
    /// The command as it was typed.
    pub(crate) command: String,
    /// A program that watches; without one a terminal does.
    pub(crate) observer: Option<Observer<'a>>,
}

impl<'a> Caller<'a> {
    /// Who typed the command.
    pub(crate) fn terminal() -> Caller<'a> {
        Caller {
            command: output::command_line(),
            observer: None,
        }
    }

    /// What abandons a run in its middle.
    pub(crate) fn abandon(&self) -> Option<&'a AtomicBool> {
        self.observer.as_ref().map(|observer| observer.stop)
    }
}

/// Runs an experiment with a bar for who watches.
pub(crate) fn run(
    world: &impl World,
    plan: &Plan,
    caller: &Caller<'_>,
) -> Result<Vec<Row>, Failure> {
    let never = AtomicBool::new(false);
    let stop = caller.abandon().unwrap_or(&never);
    watched(world, plan, caller, stop).map(|finished| finished.rows)
}

/// The same, where Ctrl-C ends it with what has run; a second one ends the program.
/// Tells whether it was pressed.
pub(crate) fn run_interruptible(
    world: &impl World,
    plan: &Plan,
    caller: &Caller<'_>,
) -> Result<(Finished, bool), Failure> {
    if let Some(stop) = caller.abandon() {
        let finished = watched(world, plan, caller, stop)?;
        return Ok((finished, stop.load(Ordering::Relaxed)));
    }
    until_interrupted(|stop| watched(world, plan, caller, stop))
}

/// Runs many, of which `run` tells first how many there are and then that one more has
/// ended. Ctrl-C sets what it is given to stop by; a second one ends the program. Whether
/// one came.
pub(crate) fn runs_until_interrupted<T>(
    run: impl FnOnce(&(dyn Fn(usize) + Sync), &AtomicBool) -> Result<T, Failure>,
) -> Result<(T, bool), Failure> {
    let bar = bar(0);
    let ended = |all: usize| match all {
        0 => {
            bar.inc(STEPS as u64);
            let (done, all) = (bar.position(), bar.length().unwrap_or(0));
            bar.set_message(format!(
                "{}/{} runs",
                done / STEPS as u64,
                all / STEPS as u64
            ));
        }
        all => bar.set_length(all as u64 * STEPS as u64),
    };
    until_interrupted(|stop| {
        let done = run(&ended, stop);
        bar.finish_and_clear();
        done
    })
}

/// Does `run`, for which Ctrl-C sets what it is given to stop by; a second one ends the
/// program. Whether one came.
fn until_interrupted<T>(
    run: impl FnOnce(&AtomicBool) -> Result<T, Failure>,
) -> Result<(T, bool), Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    let registered = flag::register_conditional_shutdown(SIGINT, INTERRUPTED, Arc::clone(&stop))
        .and_then(|second| Ok([second, flag::register(SIGINT, Arc::clone(&stop))?]));
    let ids = registered.map_err(|e| Failure::Broken(format!("cannot wait for Ctrl-C: {e}")))?;
    let done = run(&stop);
    for id in ids {
        signal_hook::low_level::unregister(id);
    }
    Ok((done?, stop.load(Ordering::Relaxed)))
}

fn watched(
    world: &impl World,
    plan: &Plan,
    caller: &Caller<'_>,
    stop: &AtomicBool,
) -> Result<Finished, Failure> {
    let runs = world.labels().len() * plan.repeats + usize::from(plan.warm_up);
    let observer = caller.observer.as_ref();
    let bar = match observer {
        None => bar(runs),
        Some(_) => ProgressBar::hidden(),
    };
    let state = Mutex::new((0.0, 0));
    let watch = |event: Event<'_>| {
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        let (done, ended) = &mut *state;
        match event {
            Event::Warning(warning) => bar.suspend(|| eprintln!("blklab: warning: {warning}")),
            Event::Advanced(share) => {
                *done += share;
                bar.set_position((*done * STEPS) as u64);
                if let Some(observer) = observer {
                    (observer.progress)(*done, runs);
                }
            }
            Event::RunEnded => {
                *ended += 1;
                bar.set_message(format!("{ended}/{runs} runs"));
            }
        }
    };
    let finished = blklab_experiment::run_until(world, plan, &watch, stop);
    bar.finish_and_clear();
    Ok(finished?)
}

/// A bar on standard error, if that is a terminal.
fn bar(runs: usize) -> ProgressBar {
    let target = if std::io::stderr().is_terminal() {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
    };
    let steps = (runs as f64 * STEPS) as u64;
    let bar = ProgressBar::with_draw_target(Some(steps), target);
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {msg}, {eta} left") {
        bar.set_style(style);
    }
    bar.set_message(format!("0/{runs} runs"));
    bar.tick();
    bar
}

/// A line on standard error that says what goes on, if that is a terminal.
pub(crate) fn line() -> ProgressBar {
    let bar = bar(0);
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") {
        bar.set_style(style);
    }
    bar
}
