//! What a run is made of, checked before anything runs.

use blklab_blk::{Nanos, NoMerges, RequestQueue, TunableError};
use blklab_device::{DriveSpec, Interface};
use blklab_elevator::ElevatorType;
use blklab_stats::Window;
use blklab_workload::fio::{Engine, JobError, JobFile, JobSpec, UnifiedReporting};
use blklab_workload::hint;
use blklab_workload::trace::Format;
use thiserror::Error;

use crate::machine::{LoopCosts, Machine};

/// Why a run cannot be.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum SetupError {
    /// No scheduler of that name.
    #[error("{}", unknown_scheduler(name))]
    UnknownScheduler {
        /// What was asked for.
        name: String,
    },
    /// A tunable that cannot be set so.
    #[error("{scheduler}.{tunable}: {problem}")]
    Tunable {
        /// The scheduler.
        scheduler: &'static str,
        /// The tunable as written.
        tunable: String,
        /// What is wrong and what would be right.
        problem: String,
    },
    /// An option of a job that does not fit the machine or the drive.
    #[error("{0}")]
    Mistake(Box<JobError>),
    /// Something in a job that cannot be simulated.
    #[error("{place}: job {job}: {problem}")]
    Job {
        /// File and line of the job.
        place: String,
        /// The job.
        job: String,
        /// What is wrong and what would be right.
        problem: String,
    },
    /// A trace that cannot be read.
    #[error("{0}")]
    Trace(String),
    /// A loss of power of what is no drive.
    #[error(
        "a loss of power of {drive} is not simulated: a loop device's file loses what the page \
         cache of its machine has, which loses power with it; right is a drive of another interface"
    )]
    PowerLoss {
        /// The drive.
        drive: String,
    },
    /// A run that can never end.
    #[error(
        "the simulation stands still at {at_us} us of its time: {why}. This is an error of the \
         program, not of the job"
    )]
    Stuck {
        /// When.
        at_us: u64,
        /// What is seen of it.
        why: &'static str,
    },
    /// What the queue does not take.
    #[error("{0}")]
    Queue(String),
}

impl SetupError {
    pub(crate) fn trace(error: blklab_workload::trace::TraceError) -> SetupError {
        SetupError::Trace(error.to_string())
    }

    pub(crate) fn stuck(now: Nanos, why: &'static str) -> SetupError {
        let at_us = now.0 / 1000;
        SetupError::Stuck { at_us, why }
    }

    /// Whether the user can mend it.
    pub fn is_users(&self) -> bool {
        !matches!(self, SetupError::Stuck { .. })
    }

    /// A trace that does not tell when I/Os ended.
    pub(crate) fn untold(file: &str, format: Format) -> SetupError {
        SetupError::Trace(format!(
            "{file}: this {format} trace does not tell when I/Os ended, so what waited for what \
             is not known; replay it at its times (--timing open) or with a number in flight \
             (--timing closed --depth N)"
        ))
    }
}

fn unknown_scheduler(name: &str) -> String {
    let known: Vec<&str> = blklab_elevator::all().iter().map(|t| t.name).collect();
    let hint = hint(name, known.iter().copied());
    let known = known.join(", ");
    match name {
        "" => format!("a scheduler's name is missing; there are {known}"),
        _ => format!("there is no scheduler called {name}; there are {known}{hint}"),
    }
}

/// A scheduler and how it is set.
#[derive(Clone)]
pub struct SchedulerChoice {
    /// Its kind.
    pub kind: &'static ElevatorType,
    /// Tunables that are not at their defaults.
    pub tunables: Vec<(String, i64)>,
    /// Attributes written, after the tunables.
    pub attributes: Vec<(&'static str, Vec<u64>)>,
    /// `queue/nr_requests`, where it is not the kernel's default.
    pub nr_requests: Option<u32>,
    /// `queue/nomerges`; the queue's own if not given.
    pub nomerges: Option<NoMerges>,
}

impl SchedulerChoice {
    /// The scheduler of that name, as it comes.
    ///
    /// # Errors
    /// Where there is none; the message names the nearest.
    pub fn named(name: &str) -> Result<SchedulerChoice, SetupError> {
        let kind = blklab_elevator::find(name).ok_or_else(|| SetupError::UnknownScheduler {
            name: name.to_string(),
        })?;
        Ok(SchedulerChoice {
            kind,
            tunables: Vec::new(),
            attributes: Vec::new(),
            nr_requests: None,
            nomerges: None,
        })
    }

    /// Sets a tunable from its text.
    ///
    /// # Errors
    /// Where the scheduler has no such tunable, or the value is no number or out
    /// of range; the message says what is right.
    pub fn set(&mut self, tunable: &str, value: &str) -> Result<(), SetupError> {
        let fault = |problem: String| SetupError::Tunable {
            scheduler: self.kind.name,
            tunable: tunable.to_string(),
            problem,
        };
        let attributes = self.kind.attributes;
        if let Some(attribute) = attributes.iter().find(|a| a.name == tunable) {
            let numbers = attribute.parse(value).map_err(fault)?;
            self.attributes.push((attribute.name, numbers));
            return Ok(());
        }
        let declared = self.kind.tunables;
        let Some(t) = declared.iter().find(|t| t.name == tunable) else {
            let names = declared.iter().map(|t| t.name);
            let written = attributes.iter().filter(|a| !a.takes.is_empty());
            let known: Vec<&'static str> = names.chain(written.map(|a| a.name)).collect();
            let hint = hint(tunable, known.iter().copied());
            let list = TunableError::Unknown { known };
            return Err(fault(format!("no such tunable; {list}{hint}")));
        };
        let number: i64 = value
            .parse()
            .map_err(|_| fault(format!("found {value:?}; legal is {}", t.range())))?;
        if !(t.min..=t.max).contains(&number) {
            return Err(fault(TunableError::Range(*t, number).to_string()));
        }
        self.tunables.push((tunable.to_string(), number));
        Ok(())
    }

    /// Puts the scheduler on an idle queue, set as chosen.
    ///
    /// # Errors
    /// Where the queue does not take its `nr_requests`, or the scheduler a
    /// tunable; the message says what is right.
    pub fn put_on(&self, queue: &mut RequestQueue) -> Result<(), String> {
        let info = queue.info();
        queue.set_elevator(self.kind.build(&info));
        if let Some(nr) = self.nr_requests {
            queue.set_nr_requests(nr)?;
        }
        if let Some(nomerges) = self.nomerges {
            queue.limits_mut().nomerges = nomerges;
        }
        if let Some(elevator) = queue.elevator_mut() {
            for (name, value) in &self.tunables {
                let set = elevator.set_tunable(name, *value);
                set.map_err(|e| e.to_string())?;
            }
            for (name, numbers) in &self.attributes {
                elevator.set_attribute(name, numbers);
            }
        }
        Ok(())
    }

    /// The name to show: the kind's, and what was set.
    pub fn label(&self) -> String {
        let mut words = vec![self.kind.name.to_string()];
        let tunables = self.tunables.iter();
        words.extend(tunables.map(|(name, value)| format!("{name}={value}")));
        words.extend(self.attributes.iter().map(|(name, numbers)| {
            let numbers: Vec<String> = numbers.iter().map(u64::to_string).collect();
            format!("{name}={}", numbers.join(","))
        }));
        words.join(" ")
    }
}

/// What a run does.
#[derive(Clone, Copy, Debug)]
pub enum Workload<'a> {
    /// The jobs of an fio job file.
    Job(&'a JobFile),
    /// The I/Os of a block trace.
    Trace {
        /// Its file.
        file: &'a str,
        /// How its I/Os arrive.
        mode: ReplayMode,
    },
}

/// How the I/Os of a trace arrive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ReplayMode {
    /// At their recorded times, whatever became of earlier ones.
    Open {
        /// The trace's time passes so many times as fast.
        speed: f64,
    },
    /// So many are kept in flight; recorded times are ignored.
    Closed {
        /// How many.
        depth: u32,
    },
    /// As soon as those of its process have ended that had ended before it in
    /// the trace; time between is left out.
    Dependencies,
}

/// Everything that decides a run.
#[derive(Clone)]
pub struct Setup<'a> {
    /// What is done.
    pub workload: Workload<'a>,
    /// The host.
    pub machine: &'a Machine,
    /// The kind of drive that every `filename` of a job and every drive of a trace is.
    pub drive: &'a DriveSpec,
    /// The scheduler on each of them.
    pub scheduler: &'a SchedulerChoice,
    /// Decides everything left to chance.
    pub seed: u64,
    /// The part of the run to be recorded, if any.
    pub record: Option<Window>,
    /// When every drive loses its power, if it does.
    pub power_loss_at: Option<Nanos>,
}

/// Refuses a loss of power that cannot be simulated.
pub(crate) fn check_power_loss(drive: &DriveSpec, at: Option<Nanos>) -> Result<(), SetupError> {
    match at.is_some() && drive.interface == Interface::Loop {
        false => Ok(()),
        true => Err(SetupError::PowerLoss {
            drive: drive.name.clone(),
        }),
    }
}

/// What to say where a loop device's worker copies for nothing: its figures then
/// tell of the block layer alone.
pub(crate) fn loop_note(drive: &DriveSpec, machine: &Machine) -> Option<String> {
    let is_free = machine.costs.loop_worker == LoopCosts::default();
    (drive.interface == Interface::Loop && is_free).then(|| {
        format!(
            "{}: its copies cost nothing on {}, whatever their size: that needs a machine with \
             [costs.loop], such as vm-2cpu",
            drive.name, machine.name
        )
    })
}

/// Checks that every job can be simulated, and tells what of it is not.
///
/// # Errors
/// At the first job that cannot; the message has its file and line.
pub fn check_job(job: &JobFile) -> Result<Vec<String>, SetupError> {
    let mut notes = Vec::new();
    for spec in &job.jobs {
        check_engine(spec)?;
        let unmodelled = [
            (spec.latency_target.is_some(), "latency_target"),
            (spec.offload, "io_submit_mode=offload"),
            (spec.serialize_overlap, "serialize_overlap"),
            (spec.polled, "hipri"),
            (spec.submission_thread, "sqthread_poll"),
            (spec.read_iolog.is_some(), "read_iolog"),
            (spec.force_async_every > 0, "force_async"),
            (
                spec.unified != UnifiedReporting::None,
                "unified_rw_reporting",
            ),
            (
                spec.iops_window_ms != spec.bandwidth_window_ms,
                "iopsavgtime (bwavgtime stands for both)",
            ),
        ];
        let named: Vec<&str> = unmodelled
            .iter()
            .filter(|(asked, _)| *asked)
            .map(|(_, name)| *name)
            .collect();
        if !named.is_empty() {
            notes.push(format!(
                "{}: not simulated, and left out: {}",
                spec.name,
                named.join(", ")
            ));
        }
    }
    Ok(notes)
}

/// The I/O engines that are simulated.
pub(crate) const SIMULATED_ENGINES: &[Engine] = &[
    Engine::Sync,
    Engine::Psync,
    Engine::Vsync,
    Engine::Pvsync,
    Engine::Pvsync2,
    Engine::Libaio,
    Engine::Posixaio,
    Engine::IoUring,
];

fn check_engine(spec: &JobSpec) -> Result<(), SetupError> {
    if SIMULATED_ENGINES.contains(&spec.engine) {
        return Ok(());
    }
    Err(SetupError::Job {
        place: spec.position.to_string(),
        job: spec.name.clone(),
        problem: format!(
            "ioengine={} is not simulated; sync, psync, vsync, pvsync, pvsync2, libaio, posixaio and io_uring are",
            spec.engine.name()
        ),
    })
}
