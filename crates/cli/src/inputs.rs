//! Finds what arguments name: jobs, traces, drives, machines, schedulers.

use std::path::Path;

use blklab_blk::NoMerges;
use blklab_description::hint;
use blklab_device::{DriveSpec, registry};
use blklab_elevator::SchedulerChoice;
use blklab_sim::Machine;
use blklab_workload::fio::{self, JobFile};
use blklab_workload::{library, trace};

use crate::args::{ModelArgs, WorkArgs};
use crate::failure::Failure;
use crate::scheduler_list::listed;

/// What a command works on.
pub(crate) enum Work {
    /// An fio job.
    Job {
        /// The job.
        job: JobFile,
        /// Its text, for the page.
        text: String,
    },
    /// A block trace.
    Trace(String),
}

impl Work {
    /// When its measured part begins, in nanoseconds. Only work that goes on until
    /// its time is up is sure to come to that.
    pub(crate) fn ramp_ns(&self) -> u64 {
        match self {
            Work::Job { job, .. } if job.jobs.iter().all(|spec| spec.time_based) => {
                let ramps_us = job.jobs.iter().map(|spec| spec.ramp_us);
                ramps_us.min().unwrap_or(0).saturating_mul(1000)
            }
            _ => 0,
        }
    }
}

/// fio's environment: variables, and the keywords it answers itself.
fn environment(machine: &Machine) -> impl Fn(&str) -> Option<String> {
    let cpus = machine.cpus;
    move |name| match name {
        "$ncpus" => Some(cpus.to_string()),
        _ => std::env::var(name).ok(),
    }
}

/// The job or trace that the arguments name.
pub(crate) fn work(args: &WorkArgs, machine: &Machine) -> Result<Work, Failure> {
    let environment = environment(machine);
    if let [name] = &args.job[..]
        && args.fio.is_empty()
    {
        if let Some(text) = library::find(name) {
            let job =
                fio::parse_str(name, text, &environment, &no_includes).map_err(Failure::mistake)?;
            return Ok(Work::Job {
                job,
                text: text.to_string(),
            });
        }
        let path = Path::new(name);
        if name != "-" && !path.exists() {
            return Err(no_such_job(name));
        }
        if is_trace(path)? {
            return Ok(Work::Trace(name.clone()));
        }
        let (job, text) = fio::parse_file(path, &environment).map_err(Failure::mistake)?;
        return Ok(Work::Job { job, text });
    }
    if args.job.is_empty() && args.fio.is_empty() {
        return Err(Failure::mistake(
            "no job given; name a file, one of `blklab list jobs`, or give fio options behind --",
        ));
    }
    let mut words = args.fio.clone();
    words.extend(args.job.iter().cloned());
    let job = fio::parse_args(&words, &environment).map_err(Failure::mistake)?;
    let text = words.join(" ");
    Ok(Work::Job { job, text })
}

/// The trace that the argument names, and nothing else.
pub(crate) fn trace(name: &str) -> Result<Work, Failure> {
    let path = Path::new(name);
    if !path.exists() {
        // As blkparse takes the name of a set.
        let first = format!("{name}.blktrace.0");
        if Path::new(&first).exists() {
            return Ok(Work::Trace(first));
        }
        return Err(Failure::mistake(format!("{name}: no such trace")));
    }
    match trace::open(path, None) {
        Ok(_) => Ok(Work::Trace(name.to_string())),
        Err(error) => Err(Failure::mistake(error)),
    }
}

fn no_includes(_: &str, name: &str) -> Result<(String, String), String> {
    Err(format!("{name}: a built-in job includes nothing"))
}

fn no_such_job(name: &str) -> Failure {
    let hint = hint(name, library::names());
    Failure::mistake(format!(
        "{name}: no such file, and no job of that name in `blklab list jobs`{hint}"
    ))
}

/// Whether the file is a block trace. fio's job files begin with a section.
fn is_trace(path: &Path) -> Result<bool, Failure> {
    if path == Path::new("-") {
        return Ok(false);
    }
    match trace::open(path, None) {
        Ok(_) => Ok(true),
        Err(trace::TraceError::UnknownFormat { .. }) => Ok(false),
        Err(error) => Err(Failure::mistake(error)),
    }
}

/// The drive that the argument names.
pub(crate) fn drive(name: &str) -> Result<(DriveSpec, String), Failure> {
    registry::load(name).map_err(Failure::Mistake)
}

/// The machine that the argument names.
pub(crate) fn machine(name: &str) -> Result<(Machine, String), Failure> {
    Machine::load(name).map_err(Failure::Mistake)
}

/// The scheduler that a job itself asks for (`ioscheduler`), which fio sets on
/// the drive.
pub(crate) fn scheduler_of(job: &JobFile) -> Result<Option<String>, Failure> {
    let mut found: Option<&str> = None;
    for spec in &job.jobs {
        let Some(name) = spec.io_scheduler.as_deref() else {
            continue;
        };
        let mistake = |message: String, help: String| {
            Failure::mistake(spec.mistake(&["ioscheduler"], message, help))
        };
        SchedulerChoice::named(name).map_err(|problem| {
            mistake(
                problem.to_string(),
                "or a scheduler of your own choice with --scheduler".into(),
            )
        })?;
        match found {
            Some(other) if other != name => {
                return Err(mistake(
                    format!("another job has ioscheduler={other}"),
                    "one for all, as all drives of a run have the same, or --scheduler".into(),
                ));
            }
            _ => found = Some(name),
        }
    }
    Ok(found.map(str::to_string))
}

/// The schedulers named, set as the options say.
pub(crate) fn schedulers(
    names: &[String],
    args: &ModelArgs,
) -> Result<Vec<SchedulerChoice>, Failure> {
    let mut choices = Vec::new();
    for listed in listed(names, &args.sets)? {
        let mut choice = SchedulerChoice::named(&listed.name).map_err(Failure::mistake)?;
        for (tunable, value) in &listed.tunables {
            choice.set(tunable, value).map_err(Failure::mistake)?;
        }
        choice.nr_requests = args.nr_requests;
        choice.nomerges = args.nomerges.map(|level| match level {
            0 => NoMerges::All,
            1 => NoMerges::OneHit,
            _ => NoMerges::Never,
        });
        choices.push(choice);
    }
    Ok(choices)
}
