//! `blklab tune`.

use std::ops::Range;
use std::sync::atomic::AtomicBool;

use blklab_experiment::{
    FINALISTS, HalvingOutcome, Plan, Row, Setting, Simulated, WorkloadSource, halve,
    usual_queue_settings, usual_settings, with_values,
};
use blklab_report::{Comparison, Front, Goal, Origin, Sense, Verification, choice_of};
use blklab_stats::{Results, World};

use crate::advice;
use crate::args::{RealWorld, SweepArgs, TuneArgs};
use crate::compared::{Compared, check, deliver};
use crate::failure::Failure;
use crate::progress::{self, Caller};
use crate::real_time::RealTime;
use crate::rows::{Schedulers, queue_of, rows};

/// Axes with an effect below this factor are not reported.
const EFFECT_MIN: f64 = 1.001;

/// Settings that are run to the end where a front is looked for.
const FRONT_FINALISTS: usize = 3 * FINALISTS;

/// Default number of runs of the settings that are tried to the end.
const REPEATS: usize = 8;

/// Settings that were tuned, with the number of runs that it took.
pub(crate) struct Tuned {
    pub(crate) compared: Compared,
    pub(crate) runs: usize,
}

/// Tunes for a calling program.
pub(crate) fn called(mut args: TuneArgs, caller: &Caller<'_>) -> Result<Tuned, Failure> {
    let work = args.work.find()?;
    take_goals(&mut args, &work)?;
    refuse(&args)?;
    tuned(&mut args, &work, caller)
}

pub(crate) fn tune(mut args: TuneArgs) -> Result<(), Failure> {
    let mut inputs = args.work.inputs();
    if let Some(question) = args.work.take_question()? {
        args.sweep.take_goals_of(&question);
    }
    inputs.extend(args.work.inputs());
    let work = args.work.find()?;
    take_goals(&mut args, &work)?;
    refuse(&args)?;
    let file = args.work.output.as_deref();
    check(&args.sweep, file, &inputs)?;
    let tuned = tuned(&mut args, &work, &Caller::terminal())?;
    deliver(&tuned.compared, &args.sweep, args.work.output.as_deref())
}

/// Adds the goals that are given with their sense.
fn take_goals(args: &mut TuneArgs, work: &WorkloadSource) -> Result<(), Failure> {
    let jobs = work.job_names(&args.work.models.setting()?.options)?;
    for (option, figures, sense) in [
        ("--minimize", &args.minimize, Sense::Minimize),
        ("--maximize", &args.maximize, Sense::Maximize),
    ] {
        for figure in figures {
            let goal = Goal::with_sense(figure, sense, &jobs);
            let goal = goal.map_err(|why| Failure::Mistake(format!("{option} {figure}: {why}")))?;
            args.sweep.goals.push(goal);
        }
    }
    Ok(())
}

/// The option that has the settings measured.
const VERIFY: &str = "--verify-on";

/// Refuses the options that only `compare` has, and those of a measurement without one.
fn refuse(args: &TuneArgs) -> Result<(), Failure> {
    if args.verify_on.is_none() {
        args.host.refuse(VERIFY, false)?;
        args.guest.refuse(VERIFY)?;
    }
    let sweep = &args.sweep;
    if sweep.goals().goals.is_empty() {
        return Err(Failure::mistake(
            "tune needs a --goal to be the best in, such as --goal all.bandwidth or \
             --goal JOB.read.p99",
        ));
    }
    if args.pareto && sweep.goals().goals.len() < 2 {
        return Err(Failure::mistake(
            "--pareto is for several goals; one has a best setting",
        ));
    }
    let [(requests, _), (series, _)] = sweep.tables.outputs();
    for (option, is_given) in [
        ("--quick", sweep.quick),
        ("--max-time", sweep.max_time.is_some()),
        ("--assumed", sweep.assumed.is_some()),
        (requests, sweep.tables.requests.is_some()),
        (series, sweep.tables.series.is_some()),
    ] {
        if is_given {
            return Err(Failure::Mistake(format!(
                "{option} is for `blklab compare`, which can compare the settings that tune finds"
            )));
        }
    }
    match sweep.timeline.given() {
        None => Ok(()),
        Some(option) => Err(Failure::Mistake(format!(
            "{option} is for `blklab compare`"
        ))),
    }
}

/// A search for the best of some settings.
struct Search<'a> {
    args: &'a TuneArgs,
    work: &'a WorkloadSource,
    caller: &'a Caller<'a>,
    settings: &'a [Setting],
    /// The runs of each setting so far.
    found: Vec<Vec<Results>>,
    /// What each setting scored in the first round.
    first_scores: Vec<Option<f64>>,
}

impl Search<'_> {
    /// Runs settings with these repeats, and returns their scores by all runs that they have had;
    /// `None` if it was stopped.
    fn round(
        &mut self,
        left: &[usize],
        new: Range<usize>,
        stop: &AtomicBool,
    ) -> Result<Option<Vec<Option<f64>>>, Failure> {
        let (sweep, models) = (&self.args.sweep, &self.args.work.models);
        let of_round: Vec<Setting> = left.iter().map(|at| self.settings[*at].clone()).collect();
        let mut world = Simulated::new(self.work, &of_round)?;
        (world.replay, world.varies_arrivals) = (self.args.work.pace.replay()?, true);
        let plan = Plan {
            repeats: new.len(),
            seed: models.seed().wrapping_add(new.start as u64),
            threads: sweep.threads,
            ..Plan::default()
        };
        let ran = progress::run_unless_stopped(&world, &plan, self.caller, stop)?;
        let Some(ran) = ran else {
            return Ok(None);
        };
        for (at, row) in left.iter().zip(ran) {
            self.found[*at].extend(row.runs);
        }
        let compared = Compared::new(sweep, &of_round, self.runs_of(left), Origin::default())?;
        let Some(judgement) = compared.comparison.judgement else {
            return Ok(Some(Vec::new()));
        };
        if judgement.is_unmeasured() {
            return Err(Failure::mistake(&judgement.sentence));
        }
        if self.first_scores.is_empty() {
            self.first_scores = judgement.scores();
        }
        Ok(Some(match self.args.pareto {
            true => Front::scores(&judgement),
            false => judgement.scores(),
        }))
    }

    /// Returns the runs of these settings so far.
    fn runs_of(&self, of: &[usize]) -> Vec<Row> {
        let row = |at: &usize| Row {
            label: self.settings[*at].label.clone(),
            runs: self.found[*at].clone(),
        };
        of.iter().map(row).collect()
    }
}

/// Finds the best settings, and compares them with the first.
fn tuned(
    args: &mut TuneArgs,
    work: &WorkloadSource,
    caller: &Caller<'_>,
) -> Result<Tuned, Failure> {
    let (settings, plain) = settings(args, work)?;
    let args = &*args;
    let (sweep, models) = (&args.sweep, &args.work.models);
    sweep.check_goals(work, models, &settings)?;
    if let Some(world) = args.verify_on {
        real_time(args, &settings).check(world)?;
    }
    let whole = Simulated::new(work, &settings)?;
    if !models.lenient {
        whole.check_modelled()?;
    }
    let repeats = sweep.repeats.unwrap_or(REPEATS);
    let count = match args.pareto {
        true => FRONT_FINALISTS,
        false => FINALISTS,
    };
    let mut search = Search {
        args,
        work,
        caller,
        settings: &settings,
        found: vec![Vec::new(); settings.len()],
        first_scores: Vec::new(),
    };
    let (outcome, interrupted) = progress::until_stopped(caller, |stop| {
        let round = |left: &[usize], new: Range<usize>| search.round(left, new, stop);
        halve(settings.len(), plain, repeats, count, round)
    })?;
    if outcome.finalists.is_empty() {
        return Err(Failure::Interrupted);
    }
    let origin = caller.origin_of(&whole);
    let mut compared = Compared::new(sweep, &settings, search.runs_of(&outcome.finalists), origin)?;
    let comparison = &mut compared.comparison;
    comparison.interrupted = interrupted;
    let notes = notes(&outcome, &settings, &search.first_scores, repeats);
    comparison.notes.extend(notes);
    let finalists = outcome.finalists.iter().map(|at| settings[*at].clone());
    answer(
        args,
        work,
        &finalists.collect::<Vec<_>>(),
        comparison,
        caller,
    )?;
    Ok(Tuned {
        compared,
        runs: outcome.runs,
    })
}

/// Adds the answer to a comparison of the settings that were found, and their measurement if that
/// is asked for and nobody interrupted.
fn answer(
    args: &TuneArgs,
    work: &WorkloadSource,
    finalists: &[Setting],
    comparison: &mut Comparison,
    caller: &Caller<'_>,
) -> Result<(), Failure> {
    comparison.question = Some(question(&args.sweep));
    if let (true, Some(judgement)) = (args.pareto, &comparison.judgement) {
        comparison.front = Some(Front::new(judgement, &comparison.schedulers));
    }
    let Some(choices) = advice::choices_of_models(finalists, work, args.sweep.kernel())? else {
        return Ok(());
    };
    comparison.advice = choices.advise(comparison);
    let answer = choices.answer(comparison);
    let choice = choice_of(comparison, answer.as_ref()).map(str::to_string);
    match comparison.interrupted {
        true => Ok(()),
        false => verify(args, finalists, comparison, choice, caller),
    }
}

/// Measures the settings that were found, if that is asked for, beside the one that the
/// simulation chooses.
fn verify(
    args: &TuneArgs,
    found: &[Setting],
    comparison: &mut Comparison,
    choice: Option<String>,
    caller: &Caller<'_>,
) -> Result<(), Failure> {
    let (Some(world), Some(choice)) = (args.verify_on, choice) else {
        return Ok(());
    };
    let measured = real_time(args, found).compared(world, caller)?;
    let notes = measured.comparison.notes.iter();
    let notes = notes.map(|note| format!("measured: {note}"));
    comparison.notes.extend(notes);
    comparison.verification = Verification::new(&measured.comparison, &choice);
    Ok(())
}

fn real_time<'a>(args: &'a TuneArgs, found: &'a [Setting]) -> RealTime<'a> {
    RealTime {
        by: VERIFY,
        work: &args.work,
        sweep: &args.sweep,
        host: &args.host,
        guest: &args.guest,
        found: Some(found),
        repeats: args.verify_repeats,
    }
}

/// Returns the settings to try: those of the arguments, or the usual ones of a kernel. The
/// first of them, as many as the number says, are compared with whatever is found: the
/// kernel's schedulers as they are, or the first setting of the arguments.
fn settings(args: &mut TuneArgs, work: &WorkloadSource) -> Result<(Vec<Setting>, usize), Failure> {
    let (sweep, models) = (&mut args.sweep, &args.work.models);
    if !args.rows.is_empty() {
        let base = models.setting()?;
        let rows = args.rows.iter();
        let rows = rows.map(|(label, values)| with_values(&base, label, values));
        return Ok((rows.collect::<Result<_, _>>()?, 1));
    }
    let kernel = sweep.kernel();
    let queue = queue_of(sweep, models)?;
    let is_usual = sweep.schedulers.is_none() && sweep.vary.is_empty();
    let mut plain = 1;
    if is_usual {
        plain = Schedulers::for_drive(kernel, queue).default.len();
        sweep.schedulers = Some(usual_settings(kernel, queue));
    }
    let mut settings = rows(
        World::Sim,
        (models, &[]),
        sweep,
        Schedulers::for_drive(kernel, queue),
        |options| Ok(work.scheduler(options)?),
    )?;
    if is_usual {
        let is_buffered = work.is_buffered(&models.setting()?.options)?;
        let verified = args.verify_on.map(RealWorld::world);
        let worlds: Vec<World> = std::iter::once(World::Sim).chain(verified).collect();
        let of_queue = usual_queue_settings(&settings[..plain], is_buffered, &worlds)?;
        settings.extend(of_queue);
    }
    Ok((settings, plain))
}

fn question(sweep: &SweepArgs) -> String {
    let goals = sweep.goals().goals;
    let goals: Vec<String> = goals.iter().map(ToString::to_string).collect();
    format!("Which setting is best for {}?", goals.join(" and "))
}

/// Describes how the finalists were found, and how much each varied key matters.
fn notes(
    outcome: &HalvingOutcome,
    settings: &[Setting],
    scores: &[Option<f64>],
    repeats: usize,
) -> Vec<String> {
    let (tried, runs) = (settings.len(), outcome.runs);
    let mut notes = vec![format!(
        "{tried} settings were tried by {runs} runs, where all of them {repeats} times would be \
         {}; these have been run {} times; of settings with equal results only the first went on",
        tried * repeats,
        outcome.repeats
    )];
    if scores.iter().all(Option::is_none) {
        notes.push("no setting keeps the limits".to_string());
        return notes;
    }
    let mut effects = effects(settings, scores);
    effects.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    let named = effects
        .iter()
        .filter(|(_, times)| *times > EFFECT_MIN)
        .take(5);
    let named = named.map(|(key, times)| format!("{key} ({:.1} %)", (times - 1.0) * 100.0));
    let named: Vec<String> = named.collect();
    if !named.is_empty() {
        notes.push(format!(
            "what matters, by how far apart the best settings with each of its values are in \
             one run: {}",
            named.join(", ")
        ));
    }
    notes
}

/// Returns for each varied key the score of the best setting with its best value,
/// divided by that of the best setting with its worst value.
fn effects(settings: &[Setting], scores: &[Option<f64>]) -> Vec<(String, f64)> {
    let mut best: Vec<(String, Vec<(String, f64)>)> = Vec::new();
    for (setting, score) in settings.iter().zip(scores) {
        let Some(score) = score else {
            continue;
        };
        for (key, value) in varied(setting) {
            let at = best.iter().position(|(known, _)| *known == key);
            let at = at.unwrap_or_else(|| {
                best.push((key, Vec::new()));
                best.len() - 1
            });
            let values = &mut best[at].1;
            match values.iter_mut().find(|(known, _)| *known == value) {
                Some((_, of)) => *of = of.max(*score),
                None => values.push((value, *score)),
            }
        }
    }
    let effect = |(key, values): (String, Vec<(String, f64)>)| {
        let of = || values.iter().map(|(_, score)| *score);
        let (most, least) = (of().fold(0.0, f64::max), of().fold(f64::INFINITY, f64::min));
        (key, most / least)
    };
    let several = best.into_iter().filter(|(_, values)| values.len() > 1);
    several.map(effect).collect()
}

/// Returns the keys and values that vary in a setting.
fn varied(setting: &Setting) -> Vec<(String, String)> {
    let scheduler = &setting.scheduler;
    let mut varied = vec![("scheduler".to_string(), scheduler.name.clone())];
    for (tunable, value) in &scheduler.tunables {
        varied.push((format!("{}.{tunable}", scheduler.name), value.clone()));
    }
    let others = setting
        .axes
        .iter()
        .filter(|(key, _)| key != "scheduler" && !varied.iter().any(|(known, _)| known == key));
    let others: Vec<(String, String)> = others.cloned().collect();
    varied.extend(others);
    varied
}
