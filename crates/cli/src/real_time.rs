//! Comparisons in worlds where time is real: a served model, a real drive, a virtual machine.

use blklab_experiment::{Finished, Guest, Host, Plan, Served, Setting, WorkloadSource, check_axes};
use blklab_guest::Packages;
use blklab_report::{Choices, Origin};
use blklab_stats::World;
use blklab_workload::fio::{JobSource, Override};

use crate::advice;
use crate::args::{GuestArgs, HostArgs, RealWorld, SweepArgs, WorkArgs};
use crate::compared::{Compared, runs_that_ended};
use crate::failure::Failure;
use crate::progress::{self, Caller};
use crate::rows::{Schedulers, queue_of, rows};

/// Default number of runs of each row.
const REPEATS: usize = 3;

/// A comparison in real time.
pub(crate) struct RealTime<'a> {
    /// The option that names the world, such as `--world`.
    pub(crate) by: &'static str,
    pub(crate) work: &'a WorkArgs,
    pub(crate) sweep: &'a SweepArgs,
    pub(crate) host: &'a HostArgs,
    pub(crate) guest: &'a GuestArgs,
    /// The settings that a simulation found; without them the rows are those of the options.
    pub(crate) found: Option<&'a [Setting]>,
    /// Runs of each row, if given.
    pub(crate) repeats: Option<usize>,
}

impl RealTime<'_> {
    /// Runs the comparison in a world.
    pub(crate) fn compared(
        &self,
        world: RealWorld,
        caller: &Caller<'_>,
    ) -> Result<Compared, Failure> {
        let source = self.check(world)?;
        match world {
            RealWorld::Serve => self.served(&source, caller),
            RealWorld::Guest => self.in_guest(&source, caller),
            RealWorld::Host => self.on_host(&source, caller),
        }
    }

    /// Checks, before anything runs, that the options are of this world, and returns the job.
    pub(crate) fn check(&self, world: RealWorld) -> Result<JobSource, Failure> {
        if world != RealWorld::Guest {
            self.guest.refuse(self.by)?;
        }
        if world != RealWorld::Host {
            self.host.refuse(self.by, world == RealWorld::Guest)?;
        }
        if let Some(found) = self.found {
            check_axes(found, world.world())?;
        }
        self.job(world.world())
    }

    /// Describes every step on a real drive without doing any.
    pub(crate) fn dry_run(&self) -> Result<String, Failure> {
        let (host, _, plan) = self.host(&self.job(World::Host)?)?;
        Ok(host.dry_run(&plan)?)
    }

    /// Returns our own schedulers, and those of the kernel that the answer is for.
    fn schedulers(&self) -> Result<Schedulers, Failure> {
        let queue = queue_of(self.sweep, &self.work.models)?;
        Ok(Schedulers::for_drive(self.sweep.kernel(), queue))
    }

    /// Runs the comparison on drives' models.
    fn served(&self, source: &JobSource, caller: &Caller<'_>) -> Result<Compared, Failure> {
        let schedulers = self.schedulers()?;
        let settings = self.settings(World::Serve, schedulers, |options| {
            Ok(WorkloadSource::Job(source.clone()).scheduler(options)?)
        })?;
        let world = Served::new(source, &settings)?;
        self.on_models(&world, world.drive_text(), source, &settings, caller)
    }

    /// Runs the comparison under a real kernel in a virtual machine.
    fn in_guest(&self, source: &JobSource, caller: &Caller<'_>) -> Result<Compared, Failure> {
        let mut schedulers = self.schedulers()?;
        schedulers.all.clone_from(&schedulers.default);
        let settings = self.settings(World::Guest, schedulers, |options| {
            Ok(WorkloadSource::Job(source.clone()).scheduler(options)?)
        })?;
        let packages = Packages::find(&self.guest.folder());
        let packages = packages.map_err(blklab_experiment::Error::from)?;
        let mut world = Guest::new(packages, source, &settings)?;
        world.module.clone_from(&self.guest.module);
        world.accelerator = self.guest.accelerator();
        world.cpus = self.guest.guest_cpus.unwrap_or(1);
        world.time_dilation = self.guest.time_dilation();
        world.trace = !self.host.no_trace;
        self.on_models(&world, world.drive_text(), source, &settings, caller)
    }

    /// Runs the comparison in a world that serves drives' models.
    fn on_models<W: blklab_experiment::World>(
        &self,
        world: &W,
        drive_text: &str,
        source: &JobSource,
        settings: &[Setting],
        caller: &Caller<'_>,
    ) -> Result<Compared, Failure> {
        let sweep = self.sweep;
        let job = WorkloadSource::Job(source.clone());
        sweep.check_goals(&job, &self.work.models, settings)?;
        let plan = Plan {
            repeats: self.repeats.unwrap_or(REPEATS),
            seed: self.work.models.seed(),
            ..Plan::default()
        };
        let choices = advice::choices_of_models(settings, &job, sweep.kernel())?;
        let finished = progress::run_in_real_time(world, &plan, caller)?;
        let origin = Origin {
            command: caller.command.clone(),
            job_text: source.text(),
            drive_text: drive_text.to_string(),
            ..Origin::default()
        };
        self.ended(finished, (plan, settings), choices, origin)
    }

    /// Runs the comparison on a real drive.
    fn on_host(&self, source: &JobSource, caller: &Caller<'_>) -> Result<Compared, Failure> {
        let (host, settings, plan) = self.host(source)?;
        let choices = advice::choices_of_host(&settings, &host)?;
        let finished = progress::run_in_real_time(&host, &plan, caller)?;
        let origin = Origin {
            command: caller.command.clone(),
            job_text: host.job_text(),
            ..Origin::default()
        };
        self.ended(finished, (plan, &settings), choices, origin)
    }

    /// Returns the comparison of the runs that have ended, which are not all if a signal came.
    fn ended(
        &self,
        finished: Finished,
        (plan, settings): (Plan, &[Setting]),
        choices: Option<Choices>,
        origin: Origin,
    ) -> Result<Compared, Failure> {
        let has_all = finished.rows.len() == settings.len();
        let stopped = finished.interruption.map(|signal| {
            let ended = runs_that_ended(plan.repeats, finished.missing_repeats, has_all);
            format!("{signal}; shown are {ended}")
        });
        let mut compared = Compared::new(self.sweep, settings, finished.rows, origin)?;
        let comparison = &mut compared.comparison;
        comparison.interrupted = stopped.is_some();
        comparison.notes.extend(stopped);
        let choices = choices.filter(|_| has_all);
        comparison.advice = choices.and_then(|choices| choices.advise(comparison));
        Ok(compared)
    }

    /// Returns the drive that the arguments name, with the job, and the rows and plan to run
    /// on it.
    fn host(&self, source: &JobSource) -> Result<(Host, Vec<Setting>, Plan), Failure> {
        let models = &self.work.models;
        if models.faults.is_some() {
            return refuse("--faults", "a real drive has its own");
        }
        if self.found.is_none() {
            self.refuse_models()?;
        }
        let Some(device) = &self.host.device else {
            return Err(Failure::mistake(format!(
                "{} host needs --device, such as --device /dev/nvme0n1",
                self.by
            )));
        };
        let mut host = Host::find(device)?.with_destroy_data(self.host.destroy_data.as_deref());
        if self.host.no_trace {
            host = host.without_trace();
        }
        if let Some(mkfs) = &self.host.mkfs {
            host = host.with_file_system(mkfs)?;
        }
        let (names, active) = host.schedulers()?;
        let schedulers = Schedulers::new(names.clone(), names, &active);
        let rows = self.settings(World::Host, schedulers, |_| Ok(Some(active)))?;
        let job = WorkloadSource::Job(source.clone());
        self.sweep.check_goals(&job, models, &rows)?;
        let plan = Plan {
            repeats: self.repeats.unwrap_or(REPEATS),
            warm_up: !self.host.no_warm_up,
            ..Plan::default()
        };
        Ok((host.with_rows(source, &rows)?, rows, plan))
    }

    /// Refuses what describes a model, where no model runs.
    fn refuse_models(&self) -> Result<(), Failure> {
        let models = &self.work.models;
        if models.drive.is_some() {
            return refuse("--drive", "--world host has --device");
        }
        if models.state.is_some() {
            return refuse(
                "--state",
                "write to the device before, as the state needs it",
            );
        }
        if models.seed.is_some() {
            let instead = "fio draws for itself: put randseed=N into the job";
            return refuse("--seed", instead);
        }
        if self.sweep.kernel.is_some() {
            return refuse("--kernel", "--world host is under the kernel that runs");
        }
        Ok(())
    }

    /// Returns the rows. `own` gives the scheduler where other things than schedulers are
    /// compared.
    fn settings(
        &self,
        world: World,
        schedulers: Schedulers,
        own: impl FnOnce(&[Override]) -> Result<Option<String>, Failure>,
    ) -> Result<Vec<Setting>, Failure> {
        match self.found {
            Some(found) => Ok(found.to_vec()),
            None => rows(world, (&self.work.models, &[]), self.sweep, schedulers, own),
        }
    }

    /// Returns the job, and refuses the options that only simulated time has.
    fn job(&self, world: World) -> Result<JobSource, Failure> {
        let named = format!("{} {}", self.by, world.name());
        if self.found.is_none() {
            self.refuse_simulation(&named)?;
        }
        self.refuse_other_work(&named)?;
        match self.work.find()? {
            WorkloadSource::Job(source) => Ok(source),
            WorkloadSource::Trace(name) | WorkloadSource::Calls { file: name, .. } => {
                Err(Failure::mistake(format!(
                    "{name}: {named} runs fio jobs; traces and lists of calls are simulated only"
                )))
            }
        }
    }

    /// Refuses what a simulation would do differently from the world `named`, or show as well.
    fn refuse_simulation(&self, named: &str) -> Result<(), Failure> {
        let models = &self.work.models;
        let sweep = self.sweep;
        if models.machine.is_some() {
            return refuse("--machine", &format!("{named} is this machine"));
        }
        if models.lenient {
            return refuse("--lenient", "fio itself runs the job and does all of it");
        }
        if models.engine_as.is_some() {
            return refuse("--engine-as", "fio has the job's own engine");
        }
        if models.why.is_some() {
            let instead = format!("{named} does not see each request's way");
            return refuse("--why", &instead);
        }
        if sweep.assumed.is_some() {
            return refuse(
                "--assumed",
                "runs in real time are not repeated at other values",
            );
        }
        let short = [
            ("--quick", sweep.quick),
            ("--max-time", sweep.max_time.is_some()),
        ];
        if let Some((option, _)) = short.iter().find(|(_, is_given)| *is_given) {
            return refuse(
                option,
                "--repeats and the job's runtime say how long it takes",
            );
        }
        if sweep.threads.is_some() {
            return refuse("--threads", "in real time runs follow one another");
        }
        if let Some(option) = sweep.timeline.given() {
            return refuse(option, &format!("{named} shows no timeline"));
        }
        if sweep.tables.trace_requests() {
            let [(requests, _), (series, _)] = sweep.tables.outputs();
            let option = match sweep.tables.requests {
                Some(_) => requests,
                None => series,
            };
            let instead = format!("{named} does not see each request's way");
            return refuse(option, &instead);
        }
        Ok(())
    }

    /// Refuses what makes simulated work another than that of the world `named`.
    fn refuse_other_work(&self, named: &str) -> Result<(), Failure> {
        let models = &self.work.models;
        for (option, is_given) in [
            ("--memory", models.memory.is_some()),
            ("--fs", models.fs.is_some()),
            ("--read-ahead-kb", models.read_ahead_kb.is_some()),
            ("--wbt-lat-usec", models.wbt_lat_usec.is_some()),
            ("--sysctl", !models.sysctls.is_empty()),
        ] {
            if is_given {
                return refuse(option, "the machine's own page cache has its own settings");
            }
        }
        if models.cgroup_file.is_some() {
            let instead = format!("the groups of {named} are those of its kernel");
            return refuse("--cgroup-file", &instead);
        }
        if models.power_loss_at.is_some() {
            let instead = format!("the drive of {named} keeps its power");
            return refuse("--power-loss-at", &instead);
        }
        self.work.pace.refuse()
    }
}

fn refuse<T>(option: &str, instead: &str) -> Result<T, Failure> {
    Err(Failure::mistake(format!(
        "{option} is for simulations; {instead}"
    )))
}
