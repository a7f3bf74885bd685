//! The rows of a comparison, from the command's arguments.

use blklab_elevator::{KernelVersion, QueueTraits};
use blklab_experiment::{Request, Setting, Target, settings};
use blklab_stats::World;
use blklab_workload::fio::Override;

use crate::args::{ModelArgs, SweepArgs};
use crate::failure::Failure;

/// Returns what the kernel that the answer is for looks at when it chooses a scheduler for the
/// drive.
///
/// # Errors
/// If that kernel has no driver for it.
pub(crate) fn queue_of(sweep: &SweepArgs, models: &ModelArgs) -> Result<QueueTraits, Failure> {
    let queue = Target::of_model(&models.setting()?)?.queue;
    let (kernel, first) = (sweep.kernel(), KernelVersion::first_with(queue));
    match kernel >= first {
        true => Ok(queue),
        false => Err(Failure::mistake(format!(
            "--kernel {kernel}: Linux has a driver for {} from {first} on",
            models.drive()
        ))),
    }
}

/// The schedulers of a world, and those that are compared by default.
pub(crate) struct Schedulers {
    pub(crate) all: Vec<String>,
    pub(crate) default: Vec<String>,
}

impl Schedulers {
    /// Returns these; what is set already is the first by default, to which the others are
    /// compared then.
    pub(crate) fn new(all: Vec<String>, offered: Vec<String>, set: &str) -> Schedulers {
        let mut default = offered;
        default.sort_by_key(|name| name != set);
        Schedulers { all, default }
    }

    /// Returns our own schedulers; the default ones are those that the kernel offers for such
    /// a drive.
    pub(crate) fn for_drive(kernel: KernelVersion, queue: QueueTraits) -> Schedulers {
        let names = || blklab_elevator::all().iter().map(|kind| kind.name);
        let offered = names().filter(|name| kernel.offers(name, queue));
        Schedulers::new(
            names().map(str::to_string).collect(),
            offered.map(str::to_string).collect(),
            kernel.default_scheduler(queue),
        )
    }
}

/// Returns the rows that the arguments ask for. `own` gives the scheduler of a job with
/// these overrides, where other things than schedulers are compared.
pub(crate) fn rows(
    world: World,
    (models, more): (&ModelArgs, &[String]),
    sweep: &SweepArgs,
    schedulers: Schedulers,
    own: impl FnOnce(&[Override]) -> Result<Option<String>, Failure>,
) -> Result<Vec<Setting>, Failure> {
    let mut base = models.setting()?;
    for option in more {
        base.override_option("--quick", option)?;
    }
    if let (false, None) = (sweep.vary.is_empty(), &sweep.schedulers)
        && let Some(name) = own(&base.options)?
    {
        base.scheduler.name = name;
    }
    Ok(settings(&Request {
        world,
        base,
        schedulers: sweep.schedulers.as_deref(),
        default_schedulers: schedulers.default,
        all_schedulers: schedulers.all,
        sets: &models.sets,
        vary: &sweep.vary,
    })?)
}
