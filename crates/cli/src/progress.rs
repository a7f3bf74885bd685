//! What is shown on standard error while something goes on.

use std::io::IsTerminal;

use blklab_experiment::{Event, Plan, Row, World};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::failure::Failure;

/// Runs an experiment with a bar for who watches.
pub(crate) fn run(world: &impl World, plan: &Plan) -> Result<Vec<Row>, Failure> {
    let bar = bar(world.labels().len() * plan.repeats + usize::from(plan.warm_up));
    let rows = blklab_experiment::run(world, plan, &|event| match event {
        Event::Warning(warning) => bar.suspend(|| eprintln!("blklab: warning: {warning}")),
        Event::RunEnded => bar.inc(1),
    });
    bar.finish_and_clear();
    Ok(rows?)
}

/// A bar on standard error, where somebody watches that.
fn bar(runs: usize) -> ProgressBar {
    let target = if std::io::stderr().is_terminal() {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
    };
    let bar = ProgressBar::with_draw_target(Some(runs as u64), target);
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {pos}/{len} runs, {eta} left") {
        bar.set_style(style);
    }
    bar.tick();
    bar
}

/// A line on standard error that says what goes on, where somebody watches.
pub(crate) fn line() -> ProgressBar {
    let bar = bar(0);
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") {
        bar.set_style(style);
    }
    bar
}
