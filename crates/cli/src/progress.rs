//! The progress of runs on standard error, and their end by Ctrl-C.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use blklab_experiment::{Event, Finished, Plan, Row, World};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use signal_hook::consts::SIGINT;
use signal_hook::flag;

use crate::failure::{Failure, INTERRUPTED};
use crate::output;

/// Steps of the progress bar for each run.
const STEPS: f64 = 1000.0;

/// Shortest time between two plain lines of progress, and before the first.
const PLAIN_INTERVAL: Duration = Duration::from_secs(30);

/// Observes the progress of runs and can stop them.
pub struct Observer<'a> {
    /// Called with the number of runs done, including parts of runs, and the number of
    /// all runs.
    pub progress: &'a (dyn Fn(f64, usize) + Sync),
    /// A flag that stops the runs once it is set.
    pub stop: &'a AtomicBool,
}

/// The caller of a command: the command line, or a program.
pub(crate) struct Caller<'a> {
    /// The command as it was typed.
    pub(crate) command: String,
    /// The calling program's observer; without one, progress goes to standard error.
    pub(crate) observer: Option<Observer<'a>>,
}

impl<'a> Caller<'a> {
    /// Returns the caller of this process's own command line.
    pub(crate) fn terminal() -> Caller<'a> {
        Caller {
            command: output::command_line(),
            observer: None,
        }
    }

    /// Returns the flag by which the calling program aborts a run.
    pub(crate) fn abandon(&self) -> Option<&'a AtomicBool> {
        self.observer.as_ref().map(|observer| observer.stop)
    }
}

/// Runs an experiment and reports its progress.
pub(crate) fn run(
    world: &impl World,
    plan: &Plan,
    caller: &Caller<'_>,
) -> Result<Vec<Row>, Failure> {
    let never = AtomicBool::new(false);
    let stop = caller.abandon().unwrap_or(&never);
    run_observed(world, plan, caller, stop).map(|finished| finished.rows)
}

/// Runs an experiment as [`run`] does, and lets Ctrl-C end it with the runs done so far; a
/// second Ctrl-C ends the program. Returns whether Ctrl-C was pressed.
pub(crate) fn run_interruptible(
    world: &impl World,
    plan: &Plan,
    caller: &Caller<'_>,
) -> Result<(Finished, bool), Failure> {
    if let Some(stop) = caller.abandon() {
        let finished = run_observed(world, plan, caller, stop)?;
        return Ok((finished, stop.load(Ordering::Relaxed)));
    }
    until_interrupted(|stop| run_observed(world, plan, caller, stop))
}

/// Calls `run`, which reports the number of runs first and then 0 after each run. Ctrl-C
/// sets the flag that `run` is given; a second one ends the program. Returns whether
/// Ctrl-C was pressed.
pub(crate) fn runs_until_interrupted<T>(
    run: impl FnOnce(&(dyn Fn(usize) + Sync), &AtomicBool) -> Result<T, Failure>,
) -> Result<(T, bool), Failure> {
    let display = Display::new(0);
    let counts = Mutex::new((0, 0));
    let ended = |runs: usize| {
        let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
        let (ended, all) = &mut *counts;
        match runs {
            0 => *ended += 1,
            runs => *all = runs,
        }
        display.show(*ended as f64, *ended, *all);
    };
    until_interrupted(|stop| {
        let done = run(&ended, stop);
        display.finish();
        done
    })
}

/// Calls `run` with a flag that Ctrl-C sets; a second Ctrl-C ends the program. Returns
/// whether Ctrl-C was pressed.
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

fn run_observed(
    world: &impl World,
    plan: &Plan,
    caller: &Caller<'_>,
    stop: &AtomicBool,
) -> Result<Finished, Failure> {
    let runs = world.labels().len() * plan.repeats + usize::from(plan.warm_up);
    let observer = caller.observer.as_ref();
    let display = match observer {
        None => Display::new(runs),
        Some(_) => Display::hidden(),
    };
    let state = Mutex::new((0.0, 0));
    let watch = |event: Event<'_>| {
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        let (done, ended) = &mut *state;
        match event {
            Event::Warning(warning) => display.warn(warning),
            Event::Advanced(share) => {
                *done += share;
                display.show(*done, *ended, runs);
                if let Some(observer) = observer {
                    (observer.progress)(*done, runs);
                }
            }
            Event::RunEnded => {
                *ended += 1;
                display.show(*done, *ended, runs);
            }
        }
    };
    let finished = blklab_experiment::run_until(world, plan, &watch, stop);
    display.finish();
    Ok(finished?)
}

/// Progress on standard error: a bar if that is a terminal, else a plain line now and then.
struct Display {
    bar: ProgressBar,
    plain: Option<Mutex<PlainLines>>,
    started: Instant,
}

impl Display {
    fn new(runs: usize) -> Display {
        Display {
            bar: bar(runs),
            plain: (!std::io::stderr().is_terminal()).then(Mutex::default),
            started: Instant::now(),
        }
    }

    /// Returns a display that shows warnings only.
    fn hidden() -> Display {
        Display {
            bar: ProgressBar::hidden(),
            plain: None,
            started: Instant::now(),
        }
    }

    fn warn(&self, warning: &str) {
        self.bar.suspend(|| eprintln!("blklab: warning: {warning}"));
    }

    /// Shows how many of `runs` have ended, and how many are `done`, including parts of
    /// runs.
    fn show(&self, done: f64, ended: usize, runs: usize) {
        self.bar.set_length((runs as f64 * STEPS) as u64);
        self.bar.set_position((done * STEPS) as u64);
        self.bar.set_message(format!("{ended}/{runs} runs"));
        if let Some(plain) = &self.plain {
            let mut plain = plain.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(line) = plain.next(self.started.elapsed(), done, ended, runs) {
                eprintln!("{line}");
            }
        }
    }

    fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// The plain lines of progress for logs and other programs.
#[derive(Default)]
struct PlainLines {
    /// Time of the last line since the start; zero before the first.
    printed_at: Duration,
}

impl PlainLines {
    /// Returns the next line; `None` until [`PLAIN_INTERVAL`] has passed since the last.
    fn next(&mut self, elapsed: Duration, done: f64, ended: usize, runs: usize) -> Option<String> {
        if elapsed.saturating_sub(self.printed_at) < PLAIN_INTERVAL {
            return None;
        }
        self.printed_at = elapsed;
        let left_s = elapsed.as_secs_f64() * (runs as f64 - done).max(0.0) / done;
        Some(format!("blklab: {ended}/{runs} runs{}", time_left(left_s)))
    }
}

/// Formats the time that is left; empty while it is not known.
fn time_left(left_s: f64) -> String {
    match left_s {
        left if !left.is_finite() => String::new(),
        left if left < 60.0 => format!(", {left:.0} s left"),
        left if left < 7200.0 => format!(", {:.0} min left", left / 60.0),
        left => format!(", {:.0} h left", left / 3600.0),
    }
}

/// Returns a bar on standard error, which is hidden if that is not a terminal.
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

/// Returns a status line with a spinner on standard error, hidden if that is not a terminal.
pub(crate) fn status_line() -> ProgressBar {
    let bar = bar(0);
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") {
        bar.set_style(style);
    }
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_lines_are_half_a_minute_apart() {
        let mut plain = PlainLines::default();
        let mut next = |at_s, done, ended| plain.next(Duration::from_secs(at_s), done, ended, 12);
        assert_eq!(next(29, 1.0, 1), None);
        let first = next(30, 3.0, 2);
        assert_eq!(first.as_deref(), Some("blklab: 2/12 runs, 2 min left"));
        assert_eq!(next(59, 6.0, 6), None);
        let second = next(60, 8.0, 8);
        assert_eq!(second.as_deref(), Some("blklab: 8/12 runs, 30 s left"));
    }

    #[test]
    fn the_time_left_is_unknown_before_any_progress() {
        let line = PlainLines::default().next(PLAIN_INTERVAL, 0.0, 0, 4);
        assert_eq!(line.as_deref(), Some("blklab: 0/4 runs"));
        assert_eq!(time_left(3.0 * 3600.0), ", 3 h left");
    }
}
