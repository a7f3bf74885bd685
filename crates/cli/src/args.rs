//! The command line, each option once.

use std::path::PathBuf;

use blklab_experiment::{NamedScheduler, Setting};
use blklab_report::{Goal, Limit};
use blklab_sim::ReplayMode;
use blklab_workload::trace::FORMATS;
use clap::builder::RangedU64ValueParser;
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::failure::Failure;
use crate::host_args::{HostArgs, RecordArgs, ReportArgs};
use crate::serve_args::{GetArgs, LoadArgs, ServeArgs, SetArgs, TopArgs, TraceArgs};
use crate::timeline_args::{TimelineArgs, time_ns};

const EXAMPLES: &str = "\
Examples:
  blklab compare thesis/randrw-90-10 --drive mx100-256
      four schedulers on the web server's pattern of the AC thesis
  blklab compare my.fio --schedulers none,mq-deadline --html page.html
      an fio job of your own, and a page to show
  blklab compare my.fio --set mq-deadline.fifo_batch=1
  blklab run my.fio --scheduler ac --output-format json
      one run, printed as fio prints it
  blklab run my.fio --perfetto run.pftrace
      the path of every request, for ui.perfetto.dev
  blklab compare --drive nvme -- --name=t --rw=randread --bs=4k --filename=/dev/x --runtime=1
      fio's own command line
  blklab compare search.trace --replay closed --depth 32
      a block trace
  blklab compare my.fio --world host --device /dev/nvme1n1
      the same on a real drive, under this machine's own kernel
  blklab report sim.json host.json --html both.html
      comparisons of both worlds in one table";

const PROBE_EXAMPLES: &str = "\
Examples:
  blklab probe /dev/nvme1n1
      what reads alone tell
  blklab probe /dev/sdx --destroy-data /dev/sdx --output-drive sdx.toml
      also what takes writing, and a description for --drive
  blklab probe --drive mx100-256
      a model, of which the right answers are known";

const REPLAY_EXAMPLES: &str = "\
Examples:
  blklab replay load.trace --schedulers mq-deadline,bfq --drive mx100-256
      what another scheduler would have done with a recorded load
  blklab replay sda.blktrace.0 --speed 2
      the load of blktrace's files, twice as fast
  blklab replay load.trace --timing dependencies
      as fast as what waited for what allows";

/// Linux's block I/O stack in user space: which I/O scheduler serves a job best,
/// by how much and why.
#[derive(Parser)]
#[command(name = "blklab", version, after_help = EXAMPLES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Run a job under several schedulers and tell which serves it best
    Compare(CompareArgs),
    /// Replay a block trace: what would another scheduler have done with it?
    Replay(Box<ReplayArgs>),
    /// Put comparisons, of whatever worlds, into one table and page
    Report(ReportArgs),
    /// Record what this machine's kernel does with a drive, to replay it
    Record(RecordArgs),
    /// Run a job under one scheduler and print it as fio does
    Run(RunArgs),
    /// Find what a drive looks like inside, and describe it
    Probe(ProbeArgs),
    /// Fit a drive's and a machine's description to measured fio results
    Calibrate(CalibrateArgs),
    /// Hold our schedulers and block layer against traces of a real kernel
    Conform(ConformArgs),
    /// Serve block devices over NBD, with a scheduler and a drive's speed
    Serve(Box<ServeArgs>),
    /// Show an attribute of a running server
    Get(GetArgs),
    /// Change an attribute of a running server, such as its scheduler
    Set(SetArgs),
    /// Show what a running server does, again and again
    Top(TopArgs),
    /// Record what a running server's block layer does, event by event
    Trace(TraceArgs),
    /// Load an NBD server as fast as it answers, to find its limit
    Load(LoadArgs),
    /// List what comes with the program
    List(ListArgs),
    /// Show one of what `list` lists
    Show(ShowArgs),
    /// Print a completion script for a shell
    Completions(CompletionsArgs),
    /// Print a manual page
    Man(ManArgs),
}

/// What both `run` and `compare` take.
#[derive(Args)]
pub(crate) struct WorkArgs {
    /// fio job files, a name from `blklab list jobs`, or one block trace
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
}

/// The machine where none is named.
pub(crate) const DEFAULT_MACHINE: &str = "generic-8";

/// What is simulated.
#[derive(Args)]
pub(crate) struct ModelArgs {
    /// The kind of drive that every filename is: a name from `blklab list
    /// drives`, or a file [default: nvme]
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) drive: Option<String>,

    /// The host: a name from `blklab list machines`, or a file [default:
    /// generic-8]
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

    /// Decides everything left to chance; the same seed repeats a run exactly
    /// [default: 1]
    #[arg(long)]
    pub(crate) seed: Option<u64>,

    /// Cut the drives' power at this time of the run and give it back at once;
    /// requests in a drive then end with EIO, and jobs go on after that only
    /// with continue_on_error
    #[arg(long, value_name = "TIME", value_parser = time_ns)]
    pub(crate) power_loss_at: Option<u64>,
}

// What may be given is kept apart from what holds where nothing is: on a real
// machine these options are refused.
impl ModelArgs {
    /// What holds for every row of a comparison.
    pub(crate) fn setting(&self) -> Setting {
        Setting {
            scheduler: NamedScheduler::new("none"),
            nr_requests: self.nr_requests,
            nomerges: self.nomerges,
            drive: self.drive().to_string(),
            machine: self.machine().to_string(),
            ..Setting::default()
        }
    }

    /// The drive's name or file.
    pub(crate) fn drive(&self) -> &str {
        self.drive.as_deref().unwrap_or("nvme")
    }

    /// The machine's name or file.
    pub(crate) fn machine(&self) -> &str {
        self.machine.as_deref().unwrap_or(DEFAULT_MACHINE)
    }

    /// The seed.
    pub(crate) fn seed(&self) -> u64 {
        self.seed.unwrap_or(1)
    }
}

/// When a trace's I/Os arrive.
#[derive(Args)]
pub(crate) struct PaceArgs {
    /// How a trace's I/Os arrive [default: open]
    #[arg(long, visible_alias = "timing", value_enum)]
    pub(crate) replay: Option<Replay>,

    /// I/Os in flight of a trace replayed closed [default: 32]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) depth: Option<u32>,

    /// So many times as fast as recorded, of a trace replayed open [default: 1]
    #[arg(long, value_name = "FACTOR")]
    pub(crate) speed: Option<f64>,
}

/// How much slower and faster a trace can go.
const SPEED_MIN: f64 = 1e-3;
const SPEED_MAX: f64 = 1e6;
/// I/Os in flight of a trace replayed closed.
const CLOSED_DEPTH: u32 = 32;

impl PaceArgs {
    /// Refuses the options where a job is run, which has times of its own.
    pub(crate) fn refuse(&self) -> Result<(), Failure> {
        let given = [
            (self.replay.is_some(), "--replay"),
            (self.depth.is_some(), "--depth"),
            (self.speed.is_some(), "--speed"),
        ];
        match given.iter().find(|(given, _)| *given) {
            Some((_, option)) => Err(Failure::mistake(format!(
                "{option} is for traces; an fio job says itself when its I/Os come"
            ))),
            None => Ok(()),
        }
    }

    /// How a trace is to be replayed.
    pub(crate) fn mode(&self) -> Result<ReplayMode, Failure> {
        let (replay, speed) = (self.replay.unwrap_or(Replay::Open), self.speed);
        if speed.is_some() && replay != Replay::Open {
            return Err(Failure::mistake(
                "--speed is for traces replayed at their times (--timing open)",
            ));
        }
        if self.depth.is_some() && replay != Replay::Closed {
            return Err(Failure::mistake(
                "--depth is for traces replayed with a number in flight (--timing closed)",
            ));
        }
        let speed = speed.unwrap_or(1.0);
        if !(SPEED_MIN..=SPEED_MAX).contains(&speed) {
            return Err(Failure::mistake(format!(
                "--speed {speed}: from {SPEED_MIN} to {SPEED_MAX} is possible; 2 is twice as fast"
            )));
        }
        Ok(match replay {
            Replay::Open => ReplayMode::Open { speed },
            Replay::Closed => ReplayMode::Closed {
                depth: self.depth.unwrap_or(CLOSED_DEPTH),
            },
            Replay::Dependencies => ReplayMode::Dependencies,
        })
    }
}

/// How a trace is replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Replay {
    /// At their recorded times
    Open,
    /// As earlier ones end, so many at once
    Closed,
    /// As soon as those of the same process have ended that had ended before
    Dependencies,
}

#[derive(Args)]
pub(crate) struct CompareArgs {
    #[command(flatten)]
    pub(crate) work: WorkArgs,

    #[command(flatten)]
    pub(crate) sweep: SweepArgs,

    #[command(flatten)]
    pub(crate) host: HostArgs,
}

/// All repeats are kept for the comparison.
const REPEATS_MAX: u64 = 10_000;
/// More than any processor runs at once.
const THREADS_MAX: u64 = 1024;

/// What is compared, and what is made of it.
#[derive(Args)]
pub(crate) struct SweepArgs {
    /// The schedulers, the one to compare with first; one and the same with other
    /// tunables is written NAME:TUNABLE=VALUE. If not given
    /// none,mq-deadline,kyber,bfq,ac, or on a host all that its kernel has
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
          value_parser = RangedU64ValueParser::<usize>::new().range(1..=REPEATS_MAX))]
    pub(crate) repeats: Option<usize>,

    /// Threads to run on; one a processor if not given
    #[arg(long, value_name = "N",
          value_parser = RangedU64ValueParser::<usize>::new().range(1..=THREADS_MAX))]
    pub(crate) threads: Option<usize>,

    /// What to judge by, as JOB.read.p99, JOB.sync.p99, JOB.time or all.bandwidth;
    /// several count alike, or by weights as in 2*JOB.read.p99
    #[arg(long = "goal", value_name = "FIGURE")]
    pub(crate) goals: Vec<Goal>,

    /// What a scheduler has to keep to win, as 'JOB.read.p99 < 5ms' or
    /// 'all.bandwidth > 100MB/s'
    #[arg(long = "subject-to", value_name = "LIMIT")]
    pub(crate) limits: Vec<Limit>,

    /// What to print
    #[arg(long, value_enum, default_value_t = CompareFormat::Normal)]
    pub(crate) output_format: CompareFormat,

    /// Also write a self-contained page, with a timeline of the drive
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) timeline: TimelineArgs,
}

fn trace_help() -> String {
    let formats = FORMATS.iter().map(|format| format.help);
    let formats = formats.collect::<Vec<_>>().join(", ");
    format!("The trace, of `blklab record` or another, gzipped or not: {formats}")
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

/// Forms of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CompareFormat {
    /// A table
    Normal,
    /// JSON
    Json,
}

#[derive(Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) work: WorkArgs,

    /// The scheduler; if not given the job's ioscheduler, and none for a job
    /// without
    #[arg(long, value_name = "NAME")]
    pub(crate) scheduler: Option<String>,

    /// What to print, by fio's names
    #[arg(long, value_enum, default_value_t = RunFormat::Normal)]
    pub(crate) output_format: RunFormat,

    /// Also write a self-contained page, with a timeline of the drive
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,

    /// Also write a trace for Perfetto's viewer: CPUs, queue, scheduler and
    /// drive as tracks, each request's path through them as a flow
    #[arg(long, value_name = "FILE")]
    pub(crate) perfetto: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) timeline: TimelineArgs,
}

/// fio's output formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RunFormat {
    /// fio's text
    Normal,
    /// fio's JSON
    Json,
    /// fio's JSON with all latency bins
    #[value(name = "json+")]
    JsonPlus,
}

const CALIBRATE_EXAMPLES: &str = "\
Examples:
  How far off are the shipped descriptions?
    blklab calibrate fio.json --drive nvme --machine generic-8 --evaluations 0

  Fit them to fio runs on your own machine, and check with every second row:
    for qd in 1 4 16 64; do fio --name=q$qd --filename=/dev/nvme0n1 --rw=randread \\
      --bs=4k --direct=1 --ioengine=io_uring --iodepth=$qd --time_based --runtime=30 \\
      --output-format=json --output=q$qd.json; done
    blklab calibrate q*.json --drive nvme --machine generic-8 --hold-out \\
      --output-drive mine.toml --output-machine my-host.toml

  Are odd numbers of processes predicted from the even ones?
    blklab calibrate rows.csv --drive mine.toml --machine my-host.toml \\
      --fit 'costs.*' --hold-out=processes=1,3,5,7,9

  Only some numbers, to only some rows:
    blklab calibrate rows.csv --drive mine.toml --machine my-host.toml \\
      --fit drive.flash.read_us,costs.bio_ns --rows rw=randread --rows iodepth=1,16

A CSV file has the columns scheduler, rw, direction, bs, iodepth, processes, cores,
devices, iops, lat_mean_us and clat_p99_us; study and note may tell rows apart.";

#[derive(Args)]
#[command(after_help = CALIBRATE_EXAMPLES)]
pub(crate) struct CalibrateArgs {
    /// Measured results: CSV with named columns, or fio's JSON
    #[arg(
        required_unless_present = "host",
        conflicts_with = "host",
        value_name = "CSV|JSON"
    )]
    pub(crate) results: Vec<PathBuf>,

    /// Measure this drive of this machine instead, under each scheduler of its
    /// kernel; most of the jobs are held out of the fit
    #[arg(long, value_name = "DEVICE")]
    pub(crate) host: Option<PathBuf>,

    /// Allow --host to write, which destroys what is on the drive: its name once
    /// more
    // With results: `requires` alone does not refuse it, clap drops it beside
    // their own `conflicts_with`.
    #[arg(
        long,
        value_name = "DEVICE",
        requires = "host",
        conflicts_with = "results"
    )]
    pub(crate) destroy_data: Option<String>,

    /// The drive to start from: a name from `blklab list drives`, or a file;
    /// for --host loop or null if not given, as the device is
    #[arg(long, value_name = "NAME|FILE", required_unless_present = "host")]
    pub(crate) drive: Option<String>,

    /// The machine to start from: a name from `blklab list machines`, or a file.
    /// If not given generic-8, for --host vm-2cpu or xeon-10core, as the device is
    /// a loop device or another, with this machine's CPUs
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) machine: Option<String>,

    /// What may move: numeric keys of the two descriptions as drive.KEY and
    /// costs.KEY. drive.* is what reads of a drive decide, costs.* one cost of
    /// every group of steps. Nothing moves with --evaluations 0. If not given
    /// drive.* and costs.*, or for --host what the drive takes and costs.*
    #[arg(long, value_name = "KEY,...")]
    pub(crate) fit: Option<String>,

    /// Take only some rows, such as study=device-* or scheduler=none,bfq; repeat
    /// for more conditions
    #[arg(long, value_name = "COLUMN=VALUE,...")]
    pub(crate) rows: Vec<String>,

    /// Do not fit to these rows, or if none are named to every second one, and
    /// say how far off they are
    #[arg(
        long,
        value_name = "COLUMN=VALUE,...",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "",
        conflicts_with = "host"
    )]
    pub(crate) hold_out: Option<String>,

    /// The scheduler that fio's JSON was measured under
    #[arg(long, default_value = "none", value_name = "NAME")]
    pub(crate) scheduler: String,

    /// Simulations of all rows that the fit may spend
    #[arg(long, default_value_t = 200, value_name = "N")]
    pub(crate) evaluations: usize,

    /// Decides everything left to chance
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,

    /// Write the fitted drive there
    #[arg(long, value_name = "FILE")]
    pub(crate) output_drive: Option<PathBuf>,

    /// How long --host runs each job, in milliseconds
    #[arg(long, default_value_t = 300, value_name = "MS", requires = "host",
          value_parser = clap::value_parser!(u32).range(10..=3_600_000))]
    pub(crate) job_ms: u32,

    /// How often --host runs each job under each scheduler
    #[arg(long, default_value_t = 3, value_name = "N", requires = "host",
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) repeats: u32,

    /// Write what --host measured there, as CSV that can be fitted to again
    #[arg(
        long,
        value_name = "FILE",
        requires = "host",
        conflicts_with = "results"
    )]
    pub(crate) output_rows: Option<PathBuf>,

    /// Write the fitted machine there
    #[arg(long, value_name = "FILE")]
    pub(crate) output_machine: Option<PathBuf>,

    /// Write the table to a file instead of standard output
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Args)]
#[command(after_help = PROBE_EXAMPLES)]
pub(crate) struct ProbeArgs {
    /// A drive of this machine, or an NBD export (nbd://..., nbd+unix://...)
    #[arg(
        required_unless_present = "drive",
        conflicts_with = "drive",
        value_name = "DEVICE|URI"
    )]
    pub(crate) device: Option<String>,

    /// A model instead: a name from `blklab list drives`, or a file
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) drive: Option<String>,

    /// Allow writing, which destroys what is on the drive: its name once more.
    /// A model needs no word
    #[arg(long, value_name = "DEVICE|URI")]
    pub(crate) destroy_data: Option<String>,

    /// How much to overwrite in search of where writing becomes slower
    #[arg(long, default_value = "8G", value_name = "BYTES")]
    pub(crate) cliff_bytes: String,

    /// Decides which places are tried
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,

    /// Write a description of the drive there
    #[arg(long, value_name = "FILE")]
    pub(crate) output_drive: Option<PathBuf>,

    /// Write the findings to a file instead of standard output
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Args)]
pub(crate) struct ConformArgs {
    /// The scheduler the traces were recorded under
    #[arg(long, value_name = "NAME", required_unless_present = "page_cache")]
    pub(crate) scheduler: Option<String>,

    /// Check the whole block layer, not the scheduler alone
    #[arg(long)]
    pub(crate) whole: bool,

    /// Check the page cache: readahead, pages and bios of traces with NAME.calls.txt beside;
    /// 99.9 % of readahead decisions and 99 % of bios count as success
    #[arg(long, conflicts_with_all = ["scheduler", "whole", "min_percent"])]
    pub(crate) page_cache: bool,

    /// Agreement that counts as success with --whole, in percent
    #[arg(long, default_value_t = 99.0, value_name = "P")]
    pub(crate) min_percent: f64,

    /// Recorded traces: tracefs text, plain or gzipped, with NAME.json beside
    #[arg(required = true, value_name = "TRACE")]
    pub(crate) traces: Vec<PathBuf>,
}

#[derive(Args)]
pub(crate) struct ListArgs {
    /// What to list
    #[arg(value_enum)]
    pub(crate) what: Listed,
}

/// What comes with the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Listed {
    /// I/O schedulers
    Schedulers,
    /// Drives
    Drives,
    /// Jobs
    Jobs,
    /// Machines
    Machines,
    /// What `compare --vary` takes
    Axes,
}

#[derive(Args)]
pub(crate) struct ShowArgs {
    /// Of what kind
    #[arg(value_enum)]
    pub(crate) what: Shown,
    /// Its name
    pub(crate) name: String,
}

/// One of what `list` lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shown {
    /// A scheduler with its tunables
    Scheduler,
    /// A drive's description
    Drive,
    /// A job's text
    Job,
    /// A machine's description
    Machine,
}

#[derive(Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Args)]
pub(crate) struct ManArgs {
    /// The command whose page it is, such as serve; the program's if not given
    pub(crate) command: Option<String>,
}
