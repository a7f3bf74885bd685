//! The options of the commands that run a job or a trace, `compare`, `replay` and `run`,
//! and of `report`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use blklab_description::{time_ns, words};
use blklab_device::DriveState;
use blklab_elevator::KernelVersion;
use blklab_experiment::{
    NamedFaults, NamedScheduler, Pace, Purpose, Recording, Setting, Tail, Timing, WorkloadSource,
};
use blklab_report::tools::Tool;
use blklab_report::{Comparison, Goal, Goals, Limit, Question, SameWork};
use blklab_sim::{FileSystemKind, Machine, Replay};
use blklab_stats::World;
use blklab_tables::Format;
use blklab_workload::fio::{self, JobSource};
use blklab_workload::trace::FORMATS;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};

use super::virtual_machine::GuestArgs;
use super::{count, seed, tool};
use crate::failure::Failure;

const REPLAY_EXAMPLES: &str = "\
Examples:
  blklab replay load.trace --schedulers mq-deadline,bfq --drive mx100-256
      what another scheduler would have done with a recorded load
  blklab replay sda.blktrace.0 --speed 2
      the load of blktrace's files, twice as fast
  blklab replay load.trace --replay dependencies
      as fast as what waited for what allows";

const COMPARE_EXAMPLES: &str = "\
Examples:
  blklab compare questions/postgres-sata
      a question with its drive and goals: the answer in one screen
  blklab compare my.fio --drive mx100-256 --goal 'db.read.p99'
      an fio job of your own, judged by what you care about
  blklab compare my.fio --vary iodepth=1,8,32 --html page.html
      how it depends on the depth
  blklab compare front-ends/randrw --frontends nbd,vhost-user,ublk,loop
      which way to a disk from user space costs least, in a real kernel";

/// The arguments that `run` and `compare` share.
#[derive(Args)]
pub(crate) struct WorkArgs {
    /// fio job files, a name from `blklab list jobs`, one block trace, or a question: a
    /// file of a job with its drive and goals, as `blklab show question NAME` prints one
    pub(crate) job: Vec<String>,

    /// fio options, as on fio's own command line
    #[arg(last = true, value_name = "FIO OPTIONS")]
    pub(crate) fio: Vec<String>,

    #[command(flatten)]
    pub(crate) models: ModelArgs,

    #[command(flatten)]
    pub(crate) pace: PaceArgs,

    /// Write to a file instead of standard output
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,

    /// A job file's text, given by a calling program and read where the job is named
    /// `-`.
    #[arg(skip)]
    pub(crate) job_text: Option<String>,
}

impl WorkArgs {
    /// Finds the job or trace.
    pub(crate) fn find(&self) -> Result<WorkloadSource, blklab_experiment::Error> {
        match &self.job_text {
            None => WorkloadSource::find(&self.job, &self.fio),
            Some(text) => Ok(WorkloadSource::Job(JobSource::File {
                name: "-".to_string(),
                text: text.clone(),
            })),
        }
    }

    /// Lists the files that may be read, so that no output replaces one of them.
    pub(crate) fn inputs(&self) -> Vec<PathBuf> {
        let mut inputs: Vec<PathBuf> = Vec::new();
        for name in self.job.iter().chain(&self.fio).map(Path::new) {
            inputs.push(name.to_path_buf());
            inputs.extend(fio::included_files(name));
        }
        inputs.extend(self.models.files().into_iter().map(Path::to_path_buf));
        inputs
    }

    /// Replaces a question's name by the question's job, and adds its drive and machine
    /// where none are given.
    pub(crate) fn take_question(&mut self) -> Result<Option<Question>, Failure> {
        let [name] = &self.job[..] else {
            return Ok(None);
        };
        let Some(question) = Question::find(name).transpose().map_err(Failure::mistake)? else {
            return Ok(None);
        };
        self.job = vec![question.job.clone()];
        let models = &mut self.models;
        models.drive = models.drive.take().or_else(|| question.drive.clone());
        models.machine = models.machine.take().or_else(|| question.machine.clone());
        Ok(Some(question))
    }
}

/// The models of drive and machine, and how they are set.
#[derive(Args)]
pub(crate) struct ModelArgs {
    /// The kind of drive that every filename is: a name from `blklab list
    /// drives`, or a file [default: nvme]
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) drive: Option<String>,

    /// What was written to the drive before: fresh, filled or aged; as its
    /// description says if not given
    #[arg(long, value_name = "STATE", value_parser = state)]
    pub(crate) state: Option<DriveState>,

    /// Faults of the drive, as read_error=1e-4,stall=1e-3:30ms,slow=2; a wrong name
    /// lists them all
    #[arg(long, value_name = "FAULT=RATE,...", value_parser = str::parse::<NamedFaults>)]
    pub(crate) faults: Option<NamedFaults>,

    /// The host: a name from `blklab list machines`, or a file; server-8 if not given,
    /// whose costs are assumed to be those of a measured server of ten cores
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) machine: Option<String>,

    /// A scheduler's tunable, such as mq-deadline.fifo_batch=1; repeat for more
    #[arg(long = "set", value_name = "SCHEDULER.TUNABLE=VALUE")]
    pub(crate) sets: Vec<String>,

    /// The queue's nr_requests under every scheduler; the kernel's default if
    /// not given
    #[arg(long, value_name = "N")]
    pub(crate) nr_requests: Option<u32>,

    /// The queue's nomerges: 0 looks for everything that can be merged, 1 only
    /// at what was inserted last, 2 merges nothing; 0 in simulation and what the
    /// queue is set to on a host if not given
    #[arg(long, value_name = "0|1|2", value_parser = clap::value_parser!(u8).range(0..=2))]
    pub(crate) nomerges: Option<u8>,

    /// Control groups: a section for each, with what is written to its io.max,
    /// io.latency, io.weight, io.bfq.weight, io.prio.class, the root's io.cost.qos and
    /// io.cost.model, and `jobs = NAME, ...`; or the name of one that is part of the
    /// program, such as isolation/io.cost
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) cgroup_file: Option<PathBuf>,

    /// Seed of all random choices; the same seed repeats a run exactly [default: 1]
    #[arg(long, value_parser = seed, allow_negative_numbers = true)]
    pub(crate) seed: Option<u64>,

    /// An option of fio's for every job in place of its own, such as runtime=2;
    /// repeat for more
    #[arg(long = "override", value_name = "OPTION=VALUE")]
    pub(crate) overrides: Vec<String>,

    /// Simulate jobs with an I/O engine that is not simulated (rbd, windowsaio, null, ...) as
    /// if they had this one, such as libaio
    #[arg(long, value_name = "ENGINE")]
    pub(crate) engine_as: Option<String>,

    /// Leave out what changes a job's work and is not simulated, with a note,
    /// instead of refusing it
    #[arg(long)]
    pub(crate) lenient: bool,

    /// Tell where the slowest I/Os of each job spent their time, against the median
    /// ones: those beyond a percentile, as p99
    #[arg(long, value_name = "PERCENTILE", value_parser = percentile)]
    pub(crate) why: Option<f64>,

    /// The machine's memory, such as 4G, where files are cached whose I/O is not direct
    /// [default: 4G]
    #[arg(long, value_name = "SIZE", value_parser = fio::bytes)]
    pub(crate) memory: Option<u64>,

    /// The file system that the files of jobs are on, made on all of the drive: raw for
    /// none, ext2, vfat, or xfs without its own blocks. A filename that begins with /dev/
    /// stays a drive
    /// [default: raw]
    #[arg(long, value_name = "KIND", value_parser = str::parse::<FileSystemKind>)]
    pub(crate) fs: Option<FileSystemKind>,

    /// The largest window of readahead, in KiB [default: 128]
    #[arg(long, value_name = "KIB", value_parser = clap::value_parser!(u32).range(0..=1 << 20))]
    pub(crate) read_ahead_kb: Option<u32>,

    /// The latency of reads above which write-back is throttled under every scheduler, in
    /// microseconds, 0 for never [default: the kernel's, 2000, of a disk 75000, and 0 under
    /// bfq and the schedulers of the single queue]
    #[arg(long, value_name = "USEC")]
    pub(crate) wbt_lat_usec: Option<u32>,

    /// A setting of the kernel's for I/O that is not direct, such as
    /// vm.dirty_ratio=10, or mm.lru_gen.enabled=y for reclaim by generations
    /// (MGLRU); repeat for more
    #[arg(long = "sysctl", value_name = "NAME=VALUE")]
    pub(crate) sysctls: Vec<String>,

    /// Cut the drives' power at this time of the run and give it back at once;
    /// requests in a drive then end with EIO, and jobs go on after that only
    /// with continue_on_error
    #[arg(long, value_name = "TIME", value_parser = time_ns, allow_hyphen_values = true)]
    pub(crate) power_loss_at: Option<u64>,
}

// Options stay `None` where they are not given, and the defaults apply later: on a real
// machine each given one is refused.
impl ModelArgs {
    /// Lists the drive, machine and control group arguments, each of which may be a
    /// file.
    pub(crate) fn files(&self) -> Vec<&Path> {
        let mut files = vec![Path::new(self.drive()), Path::new(self.machine())];
        files.extend(self.cgroup_file.as_deref());
        files
    }

    /// Returns the setting that holds for every row of a comparison.
    pub(crate) fn setting(&self) -> Result<Setting, Failure> {
        let mut setting = Setting {
            scheduler: NamedScheduler::new("none"),
            nr_requests: self.nr_requests,
            nomerges: self.nomerges,
            drive: self.drive().to_string(),
            state: self.state,
            faults: self.faults.clone(),
            machine: self.machine().to_string(),
            memory_bytes: self.memory,
            file_system: self.fs.unwrap_or_default(),
            read_ahead_kb: self.read_ahead_kb,
            wbt_lat_us: self.wbt_lat_usec,
            power_loss_at_ns: self.power_loss_at,
            cgroup_file: self
                .cgroup_file
                .as_ref()
                .map(|file| file.display().to_string()),
            ..Setting::default()
        };
        for sysctl in &self.sysctls {
            setting.set_sysctl("--sysctl", sysctl)?;
        }
        for option in &self.overrides {
            setting.override_option("--override", option)?;
        }
        if let Some(engine) = &self.engine_as {
            setting.stand_in_for_engines("--engine-as", engine)?;
        }
        Ok(setting)
    }

    /// Returns the drive's name or file.
    pub(crate) fn drive(&self) -> &str {
        self.drive.as_deref().unwrap_or("nvme")
    }

    /// Returns the machine's name or file.
    pub(crate) fn machine(&self) -> &str {
        self.machine.as_deref().unwrap_or(Machine::DEFAULT)
    }

    pub(crate) fn seed(&self) -> u64 {
        self.seed.unwrap_or(1)
    }
}

/// Parses the state of a drive.
fn state(text: &str) -> Result<DriveState, String> {
    let wrong = |_| "right is fresh, filled or aged".to_string();
    text.parse().map_err(wrong)
}

/// The pace at which a trace's I/Os arrive.
#[derive(Args)]
pub(crate) struct PaceArgs {
    /// How a trace's I/Os arrive [default: open]
    #[arg(long, visible_alias = "timing", value_parser = timing())]
    pub(crate) replay: Option<Timing>,

    /// I/Os in flight of a trace replayed closed [default: 32]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) depth: Option<u32>,

    /// Replay a trace this many times as fast as recorded, with --replay open [default:
    /// 1]
    #[arg(long, value_name = "FACTOR")]
    pub(crate) speed: Option<f64>,

    /// Replay a trace of a larger drive: sectors beyond the end of --drive continue at its
    /// start
    #[arg(long)]
    pub(crate) wrap: bool,
}

/// Parses a percentile as goals name it: `p99`, `p99.9`.
fn percentile(text: &str) -> Result<f64, String> {
    let number = text
        .strip_prefix('p')
        .and_then(|number| number.parse().ok());
    let legal = |percent: &f64| (50.0..100.0).contains(percent);
    let number = number.filter(legal);
    number.ok_or_else(|| "a percentile from p50 to below p100 is right, as p99".to_string())
}

impl PaceArgs {
    fn pace(&self) -> Pace {
        Pace {
            replay: self.replay,
            depth: self.depth,
            speed: self.speed,
            wrap: self.wrap,
        }
    }

    /// Refuses the options for a job, which has its own arrival times.
    pub(crate) fn refuse(&self) -> Result<(), Failure> {
        Ok(self.pace().refuse()?)
    }

    /// Returns how a trace is to be replayed.
    pub(crate) fn replay(&self) -> Result<Replay, Failure> {
        Ok(self.pace().replay()?)
    }
}

fn timing() -> impl TypedValueParser<Value = Timing> {
    let shown = |(_, meaning, timing): (_, &'static str, Timing)| {
        PossibleValue::new(<&'static str>::from(timing)).help(meaning.trim_end_matches('.'))
    };
    PossibleValuesParser::new(words().map(shown)).try_map(|given| {
        let found = words().find(|(word, ..)| *word == given);
        found.map(|(.., timing)| timing).ok_or("no such timing")
    })
}

#[derive(Args)]
#[command(after_help = COMPARE_EXAMPLES)]
pub(crate) struct CompareArgs {
    #[command(flatten)]
    pub(crate) work: WorkArgs,

    #[command(flatten)]
    pub(crate) sweep: SweepArgs,

    /// Front ends before the same disk: the kernel's NBD client (nbd:N has N
    /// connections), vhost-user (:N queues), ublk, tcmu, loop, lio-fileio and lio-ramdisk.
    /// Each is in a virtual machine (--world guest); with --world sim all but the last two
    /// are models, on a --machine whose description has their costs. Without --drive the
    /// disk is memory. Short for --vary frontend=...
    #[arg(long, value_delimiter = ',', value_name = "NAME[:N],...")]
    pub(crate) frontends: Vec<String>,

    /// Where the job runs [default: sim, or guest with --frontends]
    #[arg(long, value_enum)]
    pub(crate) world: Option<WorldArg>,

    #[command(flatten)]
    pub(crate) host: Box<HostArgs>,

    /// Print every step on a real machine without doing any
    #[arg(long)]
    pub(crate) dry_run: bool,

    #[command(flatten)]
    pub(crate) guest: Box<GuestArgs>,
}

impl CompareArgs {
    /// Returns where the job runs.
    pub(crate) fn world(&self) -> WorldArg {
        self.world.unwrap_or_default()
    }

    /// Has the job run in a virtual machine, if no other world is named.
    ///
    /// # Errors
    /// If another one is.
    pub(crate) fn in_guest(&mut self) -> Result<(), Failure> {
        match self.world.replace(WorldArg::Guest) {
            None | Some(WorldArg::Sim | WorldArg::Guest) => Ok(()),
            Some(WorldArg::Serve | WorldArg::Host) => {
                Err(Failure::mistake("guest run is --world guest"))
            }
        }
    }

    /// Replaces `--frontends` by the axis that it stands for.
    pub(crate) fn take_front_ends(&mut self) {
        let front_ends = std::mem::take(&mut self.frontends);
        if !front_ends.is_empty() {
            self.world.get_or_insert(WorldArg::Guest);
            let axis = format!("frontend={}", front_ends.join(","));
            self.sweep.vary.push(axis);
        }
        let mut axes = self.sweep.vary.iter();
        if axes.any(|axis| axis.trim_start().starts_with("frontend")) {
            let drive = &mut self.work.models.drive;
            drive.get_or_insert_with(|| "memory".to_string());
        }
    }
}

/// Limit on repeats, since the results of all of them stay in memory.
pub(super) const REPEATS_MAX: usize = 10_000;
/// Limit on threads.
pub(super) const THREADS_MAX: usize = 1024;

/// The settings that are compared, and the outputs of the comparison.
#[derive(Args)]
pub(crate) struct SweepArgs {
    /// An answer in about ten seconds: 2 runs each, a second of each job that has a
    /// runtime, --max-time 10s and no assumed value tried; a note lists these savings
    #[arg(long)]
    pub(crate) quick: bool,

    /// Start no run after this time, and compare the runs that have ended
    #[arg(long, value_name = "TIME", value_parser = time_ns)]
    pub(crate) max_time: Option<u64>,

    /// The schedulers, the one to compare with first; the same scheduler with other
    /// tunables is written NAME:TUNABLE=VALUE, and `all` names every scheduler [default:
    /// those of the kernel]
    #[arg(long, value_delimiter = ',', value_name = "NAME[:TUNABLE=VALUE],...")]
    pub(crate) schedulers: Option<Vec<String>>,

    /// What else to compare: a key and its values, such as iodepth=1,32; repeat
    /// for more, which gives every combination. `blklab list axes` names the keys.
    /// Without --schedulers one scheduler runs: the one of a varied tunable, else
    /// the job's own
    #[arg(long, value_name = "KEY=VALUE,...")]
    pub(crate) vary: Vec<String>,

    /// Runs of each scheduler; if not given 5, each with a seed of its own, or
    /// 3 on a host
    #[arg(long, value_name = "N",
          value_parser = count(REPEATS_MAX))]
    pub(crate) repeats: Option<usize>,

    /// Threads to run on; one a processor if not given
    #[arg(long, value_name = "N",
          value_parser = count(THREADS_MAX))]
    pub(crate) threads: Option<usize>,

    /// The release of Linux that the answer is for; a scheduler that it does not have is
    /// compared if named, but not advised [default: 6.12, or on a host its own]
    #[arg(long, value_name = "RELEASE")]
    pub(crate) kernel: Option<KernelVersion>,

    /// How many of the values that a drive's or machine's description marks as assumed
    /// are tried at their plausible ends, with as few runs as give the answer, to see whether it
    /// depends on them; 3 if not given, and none with --repeats 1
    #[arg(long, value_name = "N")]
    pub(crate) assumed: Option<usize>,

    /// The figure to judge by, such as JOB.read.p99, JOB.sync.p99, JOB.time or
    /// all.bandwidth; repeat for several, which count equally or by a weight as in
    /// 2*JOB.read.p99
    #[arg(long = "goal", value_name = "FIGURE")]
    pub(crate) goals: Vec<Goal>,

    /// A limit that a scheduler must keep to win, such as 'JOB.read.p99 < 5ms' or, against
    /// another one, 'all.bandwidth >= 0.95 none'
    #[arg(long = "subject-to", value_name = "LIMIT")]
    pub(crate) limits: Vec<Limit>,

    #[command(flatten)]
    pub(crate) shown: ShownArgs,

    /// Also write a self-contained page, with a timeline of the drive
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) timeline: TimelineArgs,

    #[command(flatten)]
    pub(crate) tables: TableArgs,
}

impl SweepArgs {
    /// Judges by a question's goals where none are given, and by its limits where none are.
    pub(crate) fn take_goals_of(&mut self, question: &Question) {
        if self.goals.is_empty() {
            self.goals.clone_from(&question.goals);
        }
        if self.limits.is_empty() {
            self.limits.clone_from(&question.subject_to);
        }
    }

    /// Returns the goals and limits.
    pub(crate) fn goals(&self) -> Goals {
        Goals {
            goals: self.goals.clone(),
            limits: self.limits.clone(),
        }
    }

    /// Refuses goals of jobs that do not exist, and limits by rows that are not compared, before
    /// anything runs.
    pub(crate) fn check_goals(
        &self,
        work: &WorkloadSource,
        models: &ModelArgs,
        settings: &[Setting],
    ) -> Result<(), Failure> {
        let rows: Vec<String> = settings.iter().map(|row| row.label.clone()).collect();
        let parts = same_work(settings, rows.iter().map(String::as_str));
        (self.goals().check_rows(&rows, &parts)).map_err(Failure::mistake)?;
        match work {
            WorkloadSource::Trace(_) | WorkloadSource::Calls { .. } => Ok(()),
            WorkloadSource::Job(_) => {
                let names = work.job_names(&models.setting()?.options)?;
                self.goals().check_jobs(&names).map_err(Failure::mistake)
            }
        }
    }

    /// Returns the time after which no run starts.
    pub(crate) fn max_time(&self) -> Option<Duration> {
        const QUICK: Duration = Duration::from_secs(10);
        let given = self.max_time.map(Duration::from_nanos);
        given.or(self.quick.then_some(QUICK))
    }

    /// Returns the kernel that the answer is for.
    pub(crate) fn kernel(&self) -> KernelVersion {
        self.kernel.unwrap_or(KernelVersion::DEFAULT)
    }
}

/// Returns rows, by their names, by the work that they do.
pub(crate) fn same_work<'a>(
    settings: &[Setting],
    rows: impl Iterator<Item = &'a str>,
) -> Vec<SameWork> {
    let mut parts: Vec<SameWork> = Vec::new();
    for (index, row) in rows.enumerate() {
        let setting = settings.iter().find(|setting| setting.label == row);
        let label = setting.map(Setting::work).unwrap_or_default();
        match parts.iter_mut().find(|part| part.label == label) {
            Some(part) => part.rows.push(index),
            None => parts.push(SameWork {
                label,
                rows: vec![index],
            }),
        }
    }
    parts
}

fn trace_help() -> String {
    let formats = FORMATS.iter().map(|format| format.help);
    let formats = formats.collect::<Vec<_>>().join(", ");
    format!("The trace, of `blklab record` or another, plain or packed by gzip or zstd: {formats}")
}

#[derive(Args)]
#[command(after_help = REPLAY_EXAMPLES)]
pub(crate) struct ReplayArgs {
    #[arg(help = trace_help())]
    pub(crate) trace: String,

    #[command(flatten)]
    pub(crate) models: ModelArgs,

    #[command(flatten)]
    pub(crate) pace: PaceArgs,

    #[command(flatten)]
    pub(crate) sweep: SweepArgs,

    /// Write to a file instead of standard output
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

/// Output formats of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CompareFormat {
    /// Tables of everything
    Normal,
    /// What changes for whom and what to do, in one screen
    Answer,
    /// JSON
    Json,
    /// A table of each job's results in each run, as Parquet
    Parquet,
    /// The same table in Arrow's file format
    Arrow,
    /// The same table as comma separated values
    Csv,
}

impl CompareFormat {
    /// Returns the file format of the table, or `None` for text and JSON.
    pub(crate) fn table(self) -> Option<Format> {
        match self {
            CompareFormat::Normal | CompareFormat::Answer | CompareFormat::Json => None,
            CompareFormat::Parquet => Some(Format::Parquet),
            CompareFormat::Arrow => Some(Format::Arrow),
            CompareFormat::Csv => Some(Format::Csv),
        }
    }
}

/// Tables written beside the printed output.
#[derive(Args)]
#[command(next_help_heading = "Tables (their columns: docs/reference/tables.md)")]
pub(crate) struct TableArgs {
    /// Also write the requests of each setting's first run one by one: when each was
    /// submitted, inserted, dispatched, issued and completed, and where it waited. FILE
    /// ends with .parquet, .arrow or .csv
    #[arg(long, value_name = "FILE")]
    pub(crate) requests: Option<PathBuf>,

    /// Also write the state of CPUs, page cache and drives over time
    #[arg(long, value_name = "FILE")]
    pub(crate) series: Option<PathBuf>,

    /// Whether requests are kept for a calling program.
    #[arg(skip)]
    pub(crate) keep_requests: bool,
}

impl TableArgs {
    /// Returns the options that name files, each with its file.
    pub(crate) fn outputs(&self) -> [(&'static str, Option<&Path>); 2] {
        [
            ("--requests", self.requests.as_deref()),
            ("--series", self.series.as_deref()),
        ]
    }

    /// Returns whether requests are recorded one by one.
    pub(crate) fn trace_requests(&self) -> bool {
        self.keep_requests || self.requests.is_some() || self.series.is_some()
    }
}

#[derive(Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) work: WorkArgs,

    /// The scheduler; if not given the job's ioscheduler, and none for a job
    /// without
    #[arg(long, value_name = "NAME")]
    pub(crate) scheduler: Option<String>,

    /// What to print; the names are fio's
    #[arg(long, value_enum, default_value_t = RunFormat::Normal)]
    pub(crate) output_format: RunFormat,

    /// Also write a self-contained page, with a timeline of the drive
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,

    /// Also write a trace for Perfetto's viewer: CPUs, queue, scheduler and
    /// drive as tracks, each request's path through them as a flow
    #[arg(long, value_name = "FILE")]
    pub(crate) perfetto: Option<PathBuf>,

    /// Also write the events of the block layer, or what a tool makes of them (--as): of
    /// the whole run, or for as long as --timeline-length says
    #[arg(long, value_name = "FILE", conflicts_with_all = ["html", "perfetto", "why"])]
    pub(crate) trace: Option<PathBuf>,

    /// The tool whose output format --trace has
    #[arg(long = "as", value_name = "TOOL", requires = "trace", default_value = "text", value_parser = tool)]
    pub(crate) tool: &'static Tool,

    #[command(flatten)]
    pub(crate) timeline: TimelineArgs,

    #[command(flatten)]
    pub(crate) tables: TableArgs,
}

/// fio's output formats, and tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RunFormat {
    /// fio's text
    Normal,
    /// fio's JSON
    Json,
    /// fio's JSON with all latency bins
    #[value(name = "json+")]
    JsonPlus,
    /// A table of each job's results, as Parquet
    Parquet,
    /// The same table in Arrow's file format
    Arrow,
    /// The same table as comma separated values
    Csv,
}

impl RunFormat {
    /// Returns the file format of the table, or `None` for text and JSON.
    pub(crate) fn table(self) -> Option<Format> {
        match self {
            RunFormat::Normal | RunFormat::Json | RunFormat::JsonPlus => None,
            RunFormat::Parquet => Some(Format::Parquet),
            RunFormat::Arrow => Some(Format::Arrow),
            RunFormat::Csv => Some(Format::Csv),
        }
    }
}

/// The world in which a job runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum WorldArg {
    /// On models, in virtual time
    #[default]
    Sim,
    /// On a drive's model in real time, served over NBD to fio
    Serve,
    /// On a real drive under this machine's kernel
    Host,
    /// On a drive's model in real time, under a real kernel in a virtual machine
    Guest,
}

impl WorldArg {
    /// Returns the world if time is real in it.
    pub(crate) fn real(self) -> Option<RealWorld> {
        match self {
            WorldArg::Sim => None,
            WorldArg::Serve => Some(RealWorld::Serve),
            WorldArg::Host => Some(RealWorld::Host),
            WorldArg::Guest => Some(RealWorld::Guest),
        }
    }
}

/// A world in which time is real.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RealWorld {
    /// On a drive's model, served over NBD to fio
    Serve,
    /// On a real drive under this machine's kernel
    Host,
    /// On a drive's model, under a real kernel in a virtual machine
    Guest,
}

impl RealWorld {
    /// Returns the world of the results.
    pub(crate) fn world(self) -> World {
        match self {
            RealWorld::Serve => World::Serve,
            RealWorld::Host => World::Host,
            RealWorld::Guest => World::Guest,
        }
    }
}

#[derive(Args)]
#[command(next_help_heading = "On a real machine")]
pub(crate) struct HostArgs {
    /// The drive that the job works on, whatever filename it gives
    #[arg(long, value_name = "DEVICE")]
    pub(crate) device: Option<PathBuf>,

    /// Allow a job that writes to destroy what is on the drive; repeats the device
    /// exactly as given to --device
    #[arg(long, value_name = "DEVICE")]
    pub(crate) destroy_data: Option<String>,

    /// Make a file system on the drive before each run, and run the job in a file of it:
    /// a kind and options of its mkfs, such as "ext4 -O ^has_journal"
    #[arg(long, value_name = "KIND OPTIONS")]
    pub(crate) mkfs: Option<String>,

    /// Measure no latencies from the block layer's trace events
    #[arg(long)]
    pub(crate) no_trace: bool,

    /// Skip the uncounted run before the first
    #[arg(long)]
    pub(crate) no_warm_up: bool,
}

impl HostArgs {
    /// Refuses the options that only a real drive has; `by` names what would choose one, such
    /// as `--world`. A guest has traces too.
    pub(crate) fn refuse(&self, by: &str, is_guest: bool) -> Result<(), Failure> {
        let HostArgs {
            device,
            destroy_data,
            no_trace,
            no_warm_up,
            mkfs,
        } = self;
        let given = [
            (device.is_some(), "--device"),
            (destroy_data.is_some(), "--destroy-data"),
            (*no_trace && !is_guest, "--no-trace"),
            (*no_warm_up, "--no-warm-up"),
            (mkfs.is_some(), "--mkfs"),
        ];
        match given.iter().find(|(given, _)| *given) {
            Some((_, option)) => Err(Failure::mistake(format!("{option} needs {by} host"))),
            None => Ok(()),
        }
    }
}

/// What is printed of a comparison.
#[derive(Args)]
pub(crate) struct ShownArgs {
    /// What to print [default: answer; normal for a list of calls]
    #[arg(long, value_enum)]
    pub(crate) output_format: Option<CompareFormat>,

    /// Print every figure and what explains it, as --output-format normal does
    #[arg(long, conflicts_with = "output_format")]
    details: bool,
}

impl ShownArgs {
    /// Returns the format for such a comparison, and whether the user has to be told that
    /// there is more.
    pub(crate) fn format(&self, comparison: &Comparison) -> (CompareFormat, bool) {
        // Where a program's calls took its time is no detail of it.
        let has_calls = !comparison.calls.is_empty();
        match self.output_format {
            Some(format) => (format, false),
            None if self.details || has_calls => (CompareFormat::Normal, false),
            None => (CompareFormat::Answer, true),
        }
    }
}

#[derive(Args)]
pub(crate) struct ReportArgs {
    /// Files that `compare --output-format json` wrote, the one to compare
    /// with first
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,

    /// Also write a self-contained page
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) shown: ShownArgs,

    /// Write to a file instead of standard output
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

/// The part of a run that a page or a Perfetto trace shows moment by moment.
#[derive(Args)]
pub(crate) struct TimelineArgs {
    /// Where the timeline of --html or --perfetto begins, in time of the simulated run,
    /// and which part --why examines [default: the end of the ramp, or with --why around
    /// one of the slowest I/Os]
    #[arg(long, value_name = "TIME", value_parser = time_ns)]
    pub(crate) timeline_start: Option<u64>,

    /// How long the timeline is [default: 20ms, 500ms for a hard disk, 1s for
    /// --perfetto, the whole run for --trace]
    #[arg(long, value_name = "TIME", value_parser = time_ns)]
    pub(crate) timeline_length: Option<u64>,
}

impl TimelineArgs {
    /// Returns what is recorded for this purpose.
    pub(crate) fn recording(&self, purpose: Purpose) -> Recording {
        Recording {
            start_ns: self.timeline_start,
            length_ns: self.timeline_length,
            purpose,
        }
    }

    /// Returns which of the slowest I/Os are examined, if any.
    pub(crate) fn tail(&self, percent: Option<f64>) -> Option<Tail> {
        percent.map(|percent| Tail {
            percent,
            start_ns: self.timeline_start,
        })
    }

    /// Returns the first of these options that was given.
    pub(crate) fn given(&self) -> Option<&'static str> {
        match (self.timeline_start, self.timeline_length) {
            (Some(_), _) => Some("--timeline-start"),
            (_, Some(_)) => Some("--timeline-length"),
            (None, None) => None,
        }
    }
}
