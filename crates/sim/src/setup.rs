//! What a run is made of, checked before anything runs.

use blklab_blk::Nanos;
use blklab_device::{DriveSpec, Interface};
use blklab_driver::{Attachment, FrontEnd};
use blklab_elevator::{ChoiceError, SchedulerChoice};
use blklab_stats::Window;
use blklab_workload::calls::CallList;
use blklab_workload::fio::{Direction, Engine, Extent, JobError, JobFile, JobSpec, ZoneMode};
use blklab_workload::trace::Format;
use thiserror::Error;

use crate::caching::{Caching, FileSystemKind};
use crate::machine::{LoopCosts, Machine};

/// Why a run cannot be.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum SetupError {
    /// A scheduler that there is not, or that cannot be set so.
    #[error(transparent)]
    Scheduler(#[from] ChoiceError),
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
    /// A list of calls that cannot be made, or one of them that does not do what its
    /// line says.
    #[error("{0}")]
    Calls(String),
    /// A power loss of what is no drive.
    #[error(
        "a loss of power of {drive} is not simulated: a loop device's file loses what the page \
         cache of its machine has, which loses power with it; right is a drive of another interface"
    )]
    PowerLoss {
        /// The drive.
        drive: String,
    },
    /// A run that its caller broke off.
    #[error("it was stopped before its end")]
    Abandoned,
    /// A run that can never end.
    #[error(
        "the simulation stands still at {at_us} us of its time: {why}. This is an error of the \
         program, not of the job"
    )]
    Stuck {
        /// When.
        at_us: u64,
        /// How it is stuck.
        why: &'static str,
    },
    /// A file system that cannot be made, or files that it cannot hold.
    #[error(
        "{job}: its files cannot be laid out on a file system of all of {drive}: {problem}; right \
         is a smaller size, or --fs raw"
    )]
    FileSystem {
        /// The job.
        job: String,
        /// The drive.
        drive: String,
        /// What is wrong.
        problem: String,
    },
    /// A power loss under the page cache.
    #[error(
        "{place}: job {job}: a loss of power is simulated with direct=1 alone: what the page cache \
         of the machine has not written goes with it"
    )]
    PowerLossBuffered {
        /// File and line of the job.
        place: String,
        /// The job.
        job: String,
    },
    /// A front end of which the machine's description does not tell what it costs.
    #[error(
        "front end {front_end}: {machine} does not say what it costs, which its table \
         [costs.front_end.{name}] would; right is a machine that does, such as vm-2cpu, or \
         --world guest"
    )]
    FrontEnd {
        /// The front end.
        front_end: FrontEnd,
        /// Its name in descriptions.
        name: &'static str,
        /// The machine.
        machine: String,
    },
    /// A drive with zones behind what does not know them.
    #[error("{0}")]
    Zones(String),
    /// What the queue does not take.
    #[error("{0}")]
    Queue(String),
}

impl SetupError {
    pub(crate) fn trace(error: blklab_workload::trace::TraceError) -> SetupError {
        SetupError::Trace(error.to_string())
    }

    /// Whether the user can mend it.
    pub fn is_users(&self) -> bool {
        !matches!(self, SetupError::Stuck { .. })
    }

    /// The error of a trace that does not say when I/Os ended.
    pub(crate) fn trace_without_ends(file: &str, format: &Format) -> SetupError {
        SetupError::Trace(format!(
            "{file}: this {format} trace does not tell when I/Os ended, so what waited for what \
             is not known; replay it at its times (--replay open) or with a number in flight \
             (--replay closed --depth N)"
        ))
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
        /// How it is replayed.
        replay: Replay,
    },
    /// The programs of a list of calls.
    Calls {
        /// The list.
        list: &'a CallList,
        /// Its file.
        file: &'a str,
    },
}

/// How a trace is replayed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Replay {
    /// How its I/Os arrive.
    pub mode: ReplayMode,
    /// Whether sectors beyond the drive's end continue at its start.
    pub wraps: bool,
    /// The seed of random delays, of at most a microsecond, before each arrival; `None` to
    /// replay the trace to the letter. A trace has nothing random, and runs of it that differ
    /// so little show how much of a result is chance (Alameldeen and Wood, "Variability in
    /// architectural simulations of multi-threaded workloads", HPCA 2003).
    pub jitter: Option<u64>,
}

/// How the I/Os of a trace arrive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ReplayMode {
    /// At their recorded times, whatever became of earlier ones.
    Open {
        /// The trace's time passes this many times as fast.
        speed: f64,
    },
    /// This many are kept in flight; recorded times are ignored.
    Closed {
        /// How many.
        depth: u32,
    },
    /// As soon as the I/Os of its process have ended that had ended before it in the
    /// trace; time between is left out.
    Dependencies,
}

impl Default for ReplayMode {
    fn default() -> ReplayMode {
        ReplayMode::Open { speed: 1.0 }
    }
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
    /// The front end before each of them, if any; else each is the machine's own.
    pub front_end: Option<FrontEnd>,
    /// The scheduler on each of them.
    pub scheduler: &'a SchedulerChoice,
    /// Decides everything left to chance.
    pub seed: u64,
    /// The part of the run to be recorded, if any.
    pub record: Option<Window>,
    /// When every drive loses its power, if it does.
    pub power_loss_at: Option<Nanos>,
    /// The memory and settings of the page cache.
    pub caching: Caching,
}

impl<'a> Setup<'a> {
    /// Work on the machine's own drives: with the first seed, the usual page cache, nothing
    /// recorded, and power throughout.
    pub fn new(
        workload: Workload<'a>,
        machine: &'a Machine,
        drive: &'a DriveSpec,
        scheduler: &'a SchedulerChoice,
    ) -> Setup<'a> {
        Setup {
            workload,
            machine,
            drive,
            front_end: None,
            scheduler,
            seed: 1,
            record: None,
            power_loss_at: None,
            caching: Caching::default(),
        }
    }
}

/// Refuses a front end whose costs on the machine are not known.
///
/// # Errors
/// Then; the message says which machine has them.
pub fn check_front_end(machine: &Machine, front_end: Option<FrontEnd>) -> Result<(), SetupError> {
    match front_end {
        Some(front_end) if machine.costs.of_front_end(front_end.kind).is_none() => {
            Err(SetupError::FrontEnd {
                front_end,
                name: front_end.kind.name(),
                machine: machine.name.clone(),
            })
        }
        _ => Ok(()),
    }
}

/// Refuses a power loss that cannot be simulated.
pub(crate) fn check_power_loss(drive: &DriveSpec, at: Option<Nanos>) -> Result<(), SetupError> {
    match at.is_some() && drive.interface == Interface::Loop {
        false => Ok(()),
        true => Err(SetupError::PowerLoss {
            drive: drive.name.clone(),
        }),
    }
}

/// Refuses a power loss under jobs whose I/O goes through the page cache.
pub(crate) fn check_buffered_power_loss(
    job: &JobFile,
    at: Option<Nanos>,
) -> Result<(), SetupError> {
    let buffered = job.jobs.iter().find(|spec| !spec.direct);
    match buffered.filter(|_| at.is_some()) {
        None => Ok(()),
        Some(spec) => Err(SetupError::PowerLossBuffered {
            place: spec.position.to_string(),
            job: spec.name.clone(),
        }),
    }
}

/// Refuses jobs that verify where what they would find is not followed from the drive to them.
pub(crate) fn check_verify(setup: &Setup<'_>, job: &JobFile) -> Result<(), SetupError> {
    let verifying = job.jobs.iter().find(|spec| spec.verify.is_on());
    let Some(spec) = verifying else {
        return Ok(());
    };
    let refused = |problem: &str| {
        Err(SetupError::Job {
            place: spec.position.to_string(),
            job: spec.name.clone(),
            problem: problem.to_string(),
        })
    };
    if setup.power_loss_at.is_some() {
        return refused(
            "verify does not know which blocks a loss of power takes; leave --power-loss-at out",
        );
    }
    if !setup.drive.faults().is_some_and(|faults| faults.in_data()) {
        return Ok(());
    }
    let is_direct = spec.direct || spec.engine == Engine::IoUringCmd;
    let is_file = setup.caching.file_system != FileSystemKind::Raw;
    if !is_direct || is_file {
        return refused(
            "verify finds faults in data, such as bit_rot, only where I/O goes to the drive itself; \
             put direct=1, without --fs",
        );
    }
    if setup.front_end.is_some() || setup.drive.interface == Interface::Loop {
        return refused(
            "verify finds faults in data, such as bit_rot, only where I/O goes to the drive's own \
             driver; leave --front-end out, and take another drive than a loop device",
        );
    }
    Ok(())
}

/// Refuses what lies between a drive with zones and its jobs, where Linux has none that knows of
/// zones or writes in their order.
pub(crate) fn check_zones(setup: &Setup<'_>) -> Result<(), SetupError> {
    let (drive, machine) = (setup.drive, setup.machine);
    if drive.identity().zones.is_none() {
        return Ok(());
    }
    let refused = |why: String| Err(SetupError::Zones(format!("{}: {why}", drive.name)));
    if let Some(front_end) = setup.front_end {
        return refused(format!(
            "it has zones, of which no client of {front_end} learns; right is no front end"
        ));
    }
    if machine.attachment(drive, None) != Attachment::Direct {
        return refused(format!(
            "it has zones, and {} has it behind a USB bridge, which knows none; right is a machine \
             that has its interface",
            machine.name
        ));
    }
    if setup.caching.file_system != FileSystemKind::Raw {
        return refused(
            "it has zones, and ext2, VFAT and XFS as here write anywhere; right is --fs raw"
                .to_string(),
        );
    }
    Ok(())
}

/// Returns a note if the scheduler is a calling program's own, whose CPU time nobody measured.
pub(crate) fn scheduler_cost_note(name: &str) -> Option<String> {
    let is_ours = blklab_elevator::all().iter().any(|kind| kind.name == name);
    (!is_ours).then(|| {
        format!(
            "{name} is the calling program's: its CPU time is taken to be mq-deadline's, and what \
             its own code takes is not measured"
        )
    })
}

/// What to say of jobs that write to a drive with zones and do not keep to them.
pub(crate) fn zones_note(job: &JobFile, drive: &DriveSpec) -> Option<String> {
    let limits = drive.identity().zones?;
    let writes =
        |spec: &&JobSpec| spec.zones.mode != ZoneMode::Zoned && spec.pattern.does(Direction::Write);
    let spec = job.jobs.iter().find(writes)?;
    Some(format!(
        "{}: {} has zones of {} sectors, which fail writes that are not at their write pointers; \
         zonemode=zbd keeps to them",
        spec.name, drive.name, limits.zone_sectors
    ))
}

/// What to say of direct jobs beside others that use the page cache.
pub(crate) fn mixed_note(job: &JobFile) -> Option<String> {
    let direct = job.jobs.iter().find(|spec| spec.direct)?;
    job.jobs.iter().find(|spec| !spec.direct)?;
    Some(format!(
        "{}: its direct I/O does not look at what the page cache has of the same place",
        direct.name
    ))
}

/// What to say of reads that check what was written before all is written. fio counts their
/// time as that of the writes (`update_runtime` in fio's `backend.c`).
pub(crate) fn backlog_note(job: &JobFile) -> Option<String> {
    let divided = |spec: &&JobSpec| {
        spec.verify.is_on() && spec.verify.backlog > 0 && !spec.pattern.does(Direction::Read)
    };
    let spec = job.jobs.iter().find(divided)?;
    Some(format!(
        "{}: as fio does, reads of verify_backlog are divided by the time of the last pass alone: \
         their bandwidth and IOPS say nothing, their latencies do",
        spec.name
    ))
}

/// What to say of how the drive is attached to the machine: a loop device whose worker's
/// copies cost nothing, or a SATA drive where there is USB alone.
pub(crate) fn attachment_note(drive: &DriveSpec, machine: &Machine) -> Option<String> {
    let is_free = machine.costs.loop_worker == LoopCosts::default();
    if drive.interface == Interface::Loop && is_free {
        return Some(format!(
            "{}: its copies cost nothing on {}, whatever their size: that needs a machine with \
             [costs.loop], such as vm-2cpu",
            drive.name, machine.name
        ));
    }
    let link = machine.bridge_of(drive)?.link;
    Some(format!(
        "{}: behind a USB bridge on {} ({}, {} speed)",
        drive.name, machine.name, link.protocol, link.speed
    ))
}

/// What to say of a machine whose CPUs a replay does not use.
pub(crate) fn trace_cost_note(machine: &Machine) -> Option<String> {
    (!machine.costs.are_zero()).then(|| {
        format!(
            "a trace has no programs: the CPUs and locks of {} cost nothing in its replay",
            machine.name
        )
    })
}

/// What to say of jobs that name another scheduler than the run's.
pub(crate) fn other_scheduler_notes(job: &JobFile, scheduler: &str) -> Vec<String> {
    let other = |spec: &JobSpec| {
        let name = spec.io_scheduler.as_deref();
        let name = name.filter(|name| *name != scheduler)?;
        Some(format!(
            "{}: ioscheduler={name} is left out: the command names the scheduler",
            spec.name
        ))
    };
    job.jobs.iter().filter_map(other).collect()
}

/// Checks that every job can be simulated. Returns what of it is not simulated.
///
/// # Errors
/// At the first job that cannot; the message has its file and line.
pub fn check_job(job: &JobFile) -> Result<Vec<String>, SetupError> {
    let mut notes = Vec::new();
    for spec in &job.jobs {
        check_engine(spec)?;
        let left_out: Vec<&str> = spec.left_out().collect();
        if !left_out.is_empty() {
            notes.push(format!(
                "{}: not simulated, and left out: {}",
                spec.name,
                left_out.join(", ")
            ));
        }
    }
    Ok(notes)
}

/// Refuses jobs whose I/O would pass by the run's scheduler.
///
/// # Errors
/// At the first one.
pub(crate) fn check_scheduler(job: &JobFile, scheduler: &str) -> Result<(), SetupError> {
    let passes_by = |spec: &&JobSpec| spec.engine == Engine::IoUringCmd;
    match job.jobs.iter().find(passes_by) {
        Some(spec) if scheduler != "none" => {
            let problem = format!(
                "ioengine=io_uring_cmd passes its commands by the scheduler, here {scheduler}; \
                 right is the scheduler none, or ioengine=io_uring"
            );
            Err(refused(spec, "ioengine", problem))
        }
        _ => Ok(()),
    }
}

fn check_engine(spec: &JobSpec) -> Result<(), SetupError> {
    if spec.engine == Engine::Mmap && spec.direct {
        let problem = "ioengine=mmap with direct=1, which drops each page after its use, is not \
                       simulated; leave direct out";
        return Err(refused(spec, "direct", problem.to_string()));
    }
    if spec.engine.is_simulated() {
        return Ok(());
    }
    let simulated: Vec<&str> = Engine::simulated().collect();
    let (last, others) = simulated.split_last().expect("one is simulated");
    let instead = match spec.engine.has_stand_in() {
        true => ", and with --engine-as libaio the job runs as with that one",
        false => "; it does no block I/O that another could do for it",
    };
    let problem = format!(
        "ioengine={} is not simulated; {} and {last} are{instead}",
        spec.engine.name(),
        others.join(", ")
    );
    Err(refused(spec, "ioengine", problem))
}

/// The error about an option of a job, at the line where the job has it from.
fn refused(spec: &JobSpec, option: &str, problem: String) -> SetupError {
    let written = spec.written(option);
    SetupError::Job {
        place: written
            .map_or(&spec.position, |written| &written.position)
            .to_string(),
        job: spec.name.clone(),
        problem,
    }
}

/// Checks that every job fits the machine and the drive: fio, or the kernel under it,
/// refuses what does not.
///
/// # Errors
/// At the first that does not fit, with the place of its option.
pub(crate) fn check_fit(
    job: &JobFile,
    machine: &Machine,
    drive: &DriveSpec,
) -> Result<(), SetupError> {
    for spec in &job.jobs {
        let fits = check_cpus(spec, machine).and_then(|()| check_blocks(spec, drive));
        fits.map_err(|mistake| SetupError::Mistake(Box::new(mistake)))?;
    }
    Ok(())
}

fn check_cpus(spec: &JobSpec, machine: &Machine) -> Result<(), JobError> {
    match spec.cpus.iter().find(|&&cpu| cpu >= machine.cpus()) {
        None => Ok(()),
        Some(cpu) => Err(spec.mistake(
            &["cpus_allowed", "cpumask"],
            format!("{} has no CPU {cpu}", machine.name),
            format!("0 to {}", machine.cpus() - 1),
        )),
    }
}

/// Direct I/O is in whole logical blocks of the drive; the kernel ends any other
/// with EINVAL.
fn check_blocks(spec: &JobSpec, drive: &DriveSpec) -> Result<(), JobError> {
    if !spec.direct {
        return Ok(());
    }
    let logical = u64::from(drive.identity().logical_block_bytes);
    let whole = |options: &[&str], bytes: u64| match bytes.is_multiple_of(logical) {
        true => Ok(()),
        false => Err(spec.mistake(
            options,
            format!("{bytes} bytes are not whole blocks of {}", drive.name),
            format!("a multiple of its logical block of {logical} bytes"),
        )),
    };
    for direction in Direction::ALL.into_iter().filter(|d| spec.pattern.does(*d)) {
        let sizes = &spec.block_sizes[direction];
        let split = sizes.split.iter().map(|(bytes, _)| *bytes);
        for bytes in split.chain([sizes.min_bytes, sizes.max_bytes]) {
            whole(&["bssplit", "bsrange", "bs"], bytes)?;
        }
        whole(&["ba"], spec.align_bytes[direction])?;
    }
    let bytes_of = |extent| match extent {
        Extent::Bytes(bytes) => bytes,
        _ => 0,
    };
    whole(&["offset"], bytes_of(spec.offset))?;
    whole(&["offset_increment"], bytes_of(spec.offset_increment))?;
    whole(&["offset_align"], spec.offset_align_bytes)?;
    whole(&["rw"], spec.sequential_step_bytes.unsigned_abs())
}
