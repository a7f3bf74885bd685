//! The progress of runs on standard error, and their end by Ctrl-C.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use blklab_experiment::{Event, Finished, Plan, Row, Simulated, World};
use blklab_report::Origin;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use signal_hook::consts::SIGINT;
use signal_hook::flag;

use crate::failure::{Failure, INTERRUPTED};
use crate::output;

/// Steps of the progress bar for each run.
const STEPS: f64 = 1000.0;

/// How a run of a job without a runtime becomes shorter.
const SHORTER: &str = "give it runtime=, or --override runtime=10";

/// Files that are made in less time than a hint takes to read.
const MANY_FILES: u64 = 20_000;

/// A run that takes longer is worth a hint.
const HINT_AFTER: Duration = Duration::from_secs(5);

/// Between two looks at runs under way.
const WATCH_INTERVAL: Duration = Duration::from_millis(50);

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

    /// Returns what a report says of where it comes from.
    pub(crate) fn origin_of(&self, world: &Simulated<'_>) -> Origin {
        let descriptions = world.descriptions();
        Origin {
            command: self.command.clone(),
            job_text: descriptions.job,
            drive_text: descriptions.drive,
            machine_text: descriptions.machine,
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
    Ok(run_in_real_time(world, plan, caller)?.all()?)
}

/// Runs an experiment as [`run`] does, in a world that notices signals by itself: one of them
/// ends it with the runs done so far.
pub(crate) fn run_in_real_time(
    world: &impl World,
    plan: &Plan,
    caller: &Caller<'_>,
) -> Result<Finished, Failure> {
    let never = AtomicBool::new(false);
    let stop = caller.abandon().unwrap_or(&never);
    let ended = AtomicUsize::new(0);
    run_observed(world, plan, caller, (stop, &ended))
}

/// Runs an experiment as [`run`] does; `None` if `stop` was set before its end.
pub(crate) fn run_unless_stopped(
    world: &impl World,
    plan: &Plan,
    caller: &Caller<'_>,
    stop: &AtomicBool,
) -> Result<Option<Vec<Row>>, Failure> {
    let finished = run_observed(world, plan, caller, (stop, &AtomicUsize::new(0)))?;
    Ok((!stop.load(Ordering::Relaxed)).then_some(finished.rows))
}

/// Calls `run` with a flag that the calling program sets, or else Ctrl-C, of which a second one
/// ends the program. Returns whether it was set.
pub(crate) fn until_stopped<T>(
    caller: &Caller<'_>,
    run: impl FnOnce(&AtomicBool) -> Result<T, Failure>,
) -> Result<(T, bool), Failure> {
    match caller.abandon() {
        Some(stop) => Ok((run(stop)?, stop.load(Ordering::Relaxed))),
        None => until_interrupted(run),
    }
}

/// The end of runs that are under way.
struct UnderWay<'a> {
    /// The flag that ends them at once.
    cut: &'a AtomicBool,
    /// The longest runtime of the jobs; 0 if a run may take as long as a job's size asks for.
    runtime_us: Option<u64>,
    /// The job that goes through all of its size, if one does.
    unlimited: Option<String>,
    /// Files that are made before a run.
    files: u64,
    /// Whether what is ended so has results.
    keeps_cut: bool,
}

/// Runs an experiment as [`run`] does, and lets Ctrl-C end it with the runs done so far; a
/// second Ctrl-C ends the program. Where no run has ended, Ctrl-C or the time limit of the
/// plan ends those under way by `cut`. Returns whether Ctrl-C was pressed.
pub(crate) fn run_interruptible<'a>(
    world: &mut Simulated<'a>,
    plan: &Plan,
    caller: &Caller<'a>,
    cut: &'a AtomicBool,
) -> Result<(Finished, bool), Failure> {
    world.abandon = Some(caller.abandon().unwrap_or(cut));
    let world = &*world;
    let under_way = &UnderWay {
        cut,
        runtime_us: world.longest_runtime_us(),
        unlimited: world.unlimited_job().map(str::to_string),
        files: world.files_made(),
        keeps_cut: world.keeps_aborted,
    };
    let never = AtomicUsize::new(0);
    if let Some(stop) = caller.abandon() {
        let finished = run_observed(world, plan, caller, (stop, &never))?;
        return Ok((finished, stop.load(Ordering::Relaxed)));
    }
    let done = until_interrupted(|stop| {
        let ended = AtomicUsize::new(0);
        let (over, is_over) = mpsc::channel();
        std::thread::scope(|scope| {
            let ended = &ended;
            scope.spawn(move || under_way.watch(plan.max_time, (stop, &is_over), ended));
            let done = run_observed(world, plan, caller, (stop, ended));
            // The watcher ends now, not at its next look.
            drop(over);
            match done {
                Err(_) if !cut.load(Ordering::Relaxed) => done.map(Some),
                Err(_) if stop.load(Ordering::Relaxed) => Err(Failure::Interrupted),
                Err(_) => Ok(None),
                Ok(finished) => Ok(Some(finished)),
            }
        })
    })?;
    match done {
        (Some(finished), interrupted) => Ok((finished, interrupted)),
        (None, _) => Err(Failure::Broken(format!(
            "no run had ended when its time was over; {}more --max-time",
            shorter(under_way.runtime_us)
        ))),
    }
}

/// Returns how a run becomes shorter, if it can, by the longest runtime of its jobs.
fn shorter(runtime_us: Option<u64>) -> String {
    match runtime_us {
        None => String::new(),
        Some(0) => format!("{SHORTER}, or "),
        Some(us) => format!(
            "give it less than its runtime of {} s, or ",
            us as f64 / 1e6
        ),
    }
}

impl UnderWay<'_> {
    /// Tells on standard error what Ctrl-C does and why a run takes long, and cuts runs where
    /// none has ended, until all is over.
    fn watch(
        &self,
        max_time: Option<Duration>,
        (stop, is_over): (&AtomicBool, &Receiver<()>),
        ended: &AtomicUsize,
    ) {
        let started = Instant::now();
        let hint = self.hint();
        let (mut has_stopped, mut has_hinted) = (false, hint.is_none());
        while let Err(RecvTimeoutError::Timeout) = is_over.recv_timeout(WATCH_INTERVAL) {
            let none_ended = ended.load(Ordering::Relaxed) == 0;
            if stop.load(Ordering::Relaxed) && !has_stopped {
                has_stopped = true;
                eprintln!("blklab: {}", self.stopping(none_ended));
                self.cut.fetch_or(none_ended, Ordering::Relaxed);
            }
            if none_ended && max_time.is_some_and(|limit| started.elapsed() > limit) {
                self.cut.store(true, Ordering::Relaxed);
            }
            if none_ended && !has_hinted && started.elapsed() > HINT_AFTER {
                has_hinted = true;
                eprintln!("blklab: {}", hint.as_deref().unwrap_or_default());
            }
        }
    }

    /// Returns what the first Ctrl-C does.
    fn stopping(&self, none_ended: bool) -> &'static str {
        match (none_ended, self.keeps_cut) {
            (true, true) => "the run ends here; Ctrl-C again ends it without results",
            (true, false) => "stopped before any run had ended",
            (false, _) => "the runs under way go on to their end; Ctrl-C again ends them",
        }
    }

    /// Why a run may take long, and how it takes less.
    fn hint(&self) -> Option<String> {
        match (self.files > MANY_FILES, &self.unlimited) {
            (true, _) => Some(format!(
                "{} files are made first, and a directory is searched name by name for each; \
                 fewer nrfiles take less",
                self.files
            )),
            (false, Some(job)) => Some(format!(
                "the job {job} has no runtime and goes through all of its size; {SHORTER}"
            )),
            _ => None,
        }
    }
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
    (stop, all_ended): (&AtomicBool, &AtomicUsize),
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
                all_ended.store(*ended, Ordering::Relaxed);
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
        let state = state(self.started.elapsed(), done, ended, runs);
        if let Some(plain) = &self.plain {
            let mut plain = plain.lock().unwrap_or_else(PoisonError::into_inner);
            if plain.is_due(self.started.elapsed()) {
                eprintln!("blklab: {state}");
            }
        }
        self.bar.set_message(state);
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
    /// Whether the next line is due: [`PLAIN_INTERVAL`] has passed since the last.
    fn is_due(&mut self, elapsed: Duration) -> bool {
        let is_due = elapsed.saturating_sub(self.printed_at) >= PLAIN_INTERVAL;
        if is_due {
            self.printed_at = elapsed;
        }
        is_due
    }
}

/// Says how many of `runs` have ended, and how long the rest takes by how many are `done`,
/// including parts of runs.
fn state(elapsed: Duration, done: f64, ended: usize, runs: usize) -> String {
    let left_s = elapsed.as_secs_f64() * (runs as f64 - done).max(0.0) / done;
    format!("{ended}/{runs} runs{}", time_left(left_s))
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
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {msg}") {
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
        let due = [29, 30, 59, 60].map(|at_s| plain.is_due(Duration::from_secs(at_s)));
        assert_eq!(due, [false, true, false, true]);
    }

    #[test]
    fn the_time_left_is_that_of_the_runs_to_come() {
        let at = |at_s, done, ended| state(Duration::from_secs(at_s), done, ended, 12);
        assert_eq!(at(30, 3.0, 2), "2/12 runs, 2 min left");
        assert_eq!(at(60, 8.0, 8), "8/12 runs, 30 s left");
    }

    #[test]
    fn a_hint_says_what_takes_long() {
        let cut = AtomicBool::new(false);
        let hint = |job: Option<&str>, files| {
            let under_way = UnderWay {
                cut: &cut,
                runtime_us: None,
                unlimited: job.map(str::to_string),
                files,
                keeps_cut: false,
            };
            under_way.hint().unwrap_or_default()
        };
        assert_eq!(hint(None, 0), "");
        assert!(hint(Some("copy"), 20_000).starts_with("the job copy has no runtime"));
        assert!(hint(None, 1_000_000).starts_with("1000000 files are made first"));
        assert!(hint(Some("copy"), 20_001).starts_with("20001 files"));
    }

    #[test]
    fn only_a_run_that_can_be_is_to_be_shorter() {
        let of = |runtime_us| shorter(runtime_us);
        assert_eq!(of(None), "");
        assert_eq!(
            of(Some(0)),
            "give it runtime=, or --override runtime=10, or "
        );
        let of_5_s = "give it less than its runtime of 5 s, or ";
        assert_eq!(of(Some(5_000_000)), of_5_s);
    }

    #[test]
    fn the_time_left_is_unknown_before_any_progress() {
        assert_eq!(state(PLAIN_INTERVAL, 0.0, 0, 4), "0/4 runs");
        assert_eq!(time_left(3.0 * 3600.0), ", 3 h left");
    }
}
