//! What is shown on standard error while something goes on.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use blklab_experiment::{Event, Finished, Plan, Row, World};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use signal_hook::consts::SIGINT;
use signal_hook::flag;

use crate::failure::{Failure, INTERRUPTED};

/// Steps of a bar that a run is.
const STEPS: f64 = 1000.0;

/// Runs an experiment with a bar for who watches.
pub(crate) fn run(world: &impl World, plan: &Plan) -> Result<Vec<Row>, Failure> {
    let never = AtomicBool::new(false);
    watched(world, plan, &never).map(|finished| finished.rows)
}

/// The same, where Ctrl-C ends it with what has run; a second one ends the program.
/// Tells whether it was pressed.
pub(crate) fn run_interruptible(
    world: &impl World,
    plan: &Plan,
) -> Result<(Finished, bool), Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    let registered = flag::register_conditional_shutdown(SIGINT, INTERRUPTED, Arc::clone(&stop))
        .and_then(|second| Ok([second, flag::register(SIGINT, Arc::clone(&stop))?]));
    let ids = registered.map_err(|e| Failure::Broken(format!("cannot wait for Ctrl-C: {e}")))?;
    let finished = watched(world, plan, &stop);
    for id in ids {
        signal_hook::low_level::unregister(id);
    }
    Ok((finished?, stop.load(Ordering::Relaxed)))
}

fn watched(world: &impl World, plan: &Plan, stop: &AtomicBool) -> Result<Finished, Failure> {
    let runs = world.labels().len() * plan.repeats + usize::from(plan.warm_up);
    let bar = bar(runs);
    let state = Mutex::new((0.0, 0));
    let watch = |event: Event<'_>| {
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        let (done, ended) = &mut *state;
        match event {
            Event::Warning(warning) => bar.suspend(|| eprintln!("blklab: warning: {warning}")),
            Event::Advanced(share) => {
                *done += share;
                bar.set_position((*done * STEPS) as u64);
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
