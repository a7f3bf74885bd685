//! The options of the commands that measure or check: `calibrate`, `probe`, `conform`,
//! `record`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::seed;

const PROBE_EXAMPLES: &str = "\
Examples:
  blklab probe /dev/nvme1n1
      what reads alone tell
  blklab probe /dev/sdx --destroy-data /dev/sdx --output-drive sdx.toml
      also what takes writing, and a description for --drive
  blklab probe --drive mx100-256
      a model, of which the right answers are known";

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

  What would io.cost be told of a drive?
    blklab calibrate --iocost --drive nvme --output groups.conf
    blklab run JOB --drive nvme --cgroup-file groups.conf

A CSV file has the columns scheduler, rw, direction, bs, iodepth, processes, cores,
devices, iops, lat_mean_us and clat_p99_us; study and note may tell rows apart.";

#[derive(Args)]
#[command(after_help = CALIBRATE_EXAMPLES)]
pub(crate) struct CalibrateArgs {
    /// Measured results: CSV with named columns, or fio's JSON
    #[arg(
        required_unless_present_any = ["host", "iocost"],
        conflicts_with = "host",
        value_name = "CSV|JSON"
    )]
    pub(crate) results: Vec<PathBuf>,

    /// Measure this drive of this machine instead, under each scheduler of its
    /// kernel; most of the jobs are held out of the fit
    #[arg(long, value_name = "DEVICE")]
    pub(crate) host: Option<PathBuf>,

    /// Allow --host to write, which destroys what is on the drive; repeats the device's
    /// name
    // `requires` alone does not refuse this option beside results: clap drops the
    // requirement where their `conflicts_with` applies.
    #[arg(
        long,
        value_name = "DEVICE",
        requires = "host",
        conflicts_with = "results"
    )]
    pub(crate) destroy_data: Option<String>,

    /// The drive to start from: a name from `blklab list drives`, or a file; with
    /// --host, loop for a loop device and null for any other if not given
    #[arg(long, value_name = "NAME|FILE", required_unless_present = "host")]
    pub(crate) drive: Option<String>,

    /// The machine to start from: a name from `blklab list machines`, or a file. If not
    /// given generic-8; with --host, vm-2cpu for a loop device and xeon-10core for any
    /// other, with this machine's CPUs
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) machine: Option<String>,

    /// Measure what io.cost needs to know of --drive, its model's six coefficients and
    /// its QoS, and print it as the lines of a --cgroup-file; each of the eight jobs
    /// takes this many simulated seconds
    #[arg(
        long,
        value_name = "SECONDS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "4",
        conflicts_with_all = ["host", "results", "fit", "rows", "hold_out", "output_drive", "output_machine"],
        value_parser = clap::value_parser!(u32).range(1..=3600)
    )]
    pub(crate) iocost: Option<u32>,

    /// The parameters to fit: numeric keys of the two descriptions as drive.KEY and
    /// costs.KEY. drive.* is every key that reads of a drive decide, costs.* one cost of
    /// every group of steps. Nothing is fitted with --evaluations 0 [default: drive.*
    /// and costs.*; for --host the drive's times and costs.*]
    #[arg(long, value_name = "KEY,...")]
    pub(crate) fit: Option<String>,

    /// Take only some rows, such as study=device-* or scheduler=none,bfq; repeat
    /// for more conditions
    #[arg(long, value_name = "COLUMN=VALUE,...")]
    pub(crate) rows: Vec<String>,

    /// Keep these rows out of the fit and report the error on them; every second row if
    /// none are named
    #[arg(
        long,
        value_name = "COLUMN=VALUE,...",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "",
        conflicts_with = "host"
    )]
    pub(crate) hold_out: Option<String>,

    /// The scheduler under which fio's JSON was measured
    #[arg(long, default_value = "none", value_name = "NAME")]
    pub(crate) scheduler: String,

    /// How often the fit may simulate all rows
    #[arg(long, default_value_t = 200, value_name = "N")]
    pub(crate) evaluations: usize,

    /// Seed of all random choices
    #[arg(long, default_value_t = 1, value_parser = seed, allow_negative_numbers = true)]
    pub(crate) seed: u64,

    /// Write the fitted drive to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) output_drive: Option<PathBuf>,

    /// How long --host runs each job, in milliseconds
    #[arg(long, default_value_t = 300, value_name = "MS", requires = "host",
          value_parser = clap::value_parser!(u32).range(10..=3_600_000))]
    pub(crate) job_ms: u32,

    /// Runs of each job under each scheduler with --host
    #[arg(long, default_value_t = 3, value_name = "N", requires = "host",
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) repeats: u32,

    /// Write the rows that --host measured to this file, as CSV that can be fitted to
    /// again
    #[arg(
        long,
        value_name = "FILE",
        requires = "host",
        conflicts_with = "results"
    )]
    pub(crate) output_rows: Option<PathBuf>,

    /// Write the fitted machine to this file
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

    /// Probe a model instead: a name from `blklab list drives`, or a file
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) drive: Option<String>,

    /// Allow writing, which destroys what is on the drive; repeats the drive's name. A
    /// model does not need it
    #[arg(long, value_name = "DEVICE|URI")]
    pub(crate) destroy_data: Option<String>,

    /// How much to overwrite in search of the point where writing becomes slower
    #[arg(long, default_value = "8G", value_name = "BYTES")]
    pub(crate) cliff_bytes: String,

    /// Seed of the addresses that are tried
    #[arg(long, default_value_t = 1, value_parser = seed, allow_negative_numbers = true)]
    pub(crate) seed: u64,

    /// Write a description of the drive to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) output_drive: Option<PathBuf>,

    /// Write the findings to a file instead of standard output
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Args)]
pub(crate) struct ConformArgs {
    /// The scheduler the traces were recorded under
    #[arg(long, value_name = "NAME", required_unless_present_any = ["page_cache", "write_back", "eviction", "mmc"])]
    pub(crate) scheduler: Option<String>,

    /// Check the whole block layer, not the scheduler alone
    #[arg(long)]
    pub(crate) whole: bool,

    /// Check the page cache: readahead, pages and bios of traces that have
    /// NAME.calls.txt beside them; succeeds from 99.9 % of readahead decisions and 99 %
    /// of bios
    #[arg(long, conflicts_with_all = ["scheduler", "whole", "min_percent"])]
    pub(crate) page_cache: bool,

    /// Check write-back: when, why and in which bios pages are written, and how writers
    /// are throttled; succeeds from 98 % of pages and 99 % of throttling decisions
    #[arg(long, conflicts_with_all = ["scheduler", "whole", "page_cache", "min_percent"])]
    pub(crate) write_back: bool,

    /// Check reclaim: which pages are evicted in which order; succeeds from 95 % of
    /// evictions and hit ratios within one percentage point
    #[arg(long, conflicts_with_all = ["scheduler", "whole", "page_cache", "write_back", "min_percent"])]
    pub(crate) eviction: bool,

    /// Check memory cards: every command from power-on, sysfs attributes and uevents;
    /// succeeds if identification, attributes and uevents agree wholly and the rest to
    /// 99 %
    #[arg(long, conflicts_with_all = ["scheduler", "whole", "page_cache", "write_back", "eviction", "min_percent"])]
    pub(crate) mmc: bool,

    /// Agreement that every run of --whole needs, in percent, instead of 99.5, or 95 with
    /// io.cost or zones
    #[arg(long, value_name = "P", requires = "whole")]
    pub(crate) min_percent: Option<f64>,

    /// Recorded traces: tracefs text, plain or gzipped, with NAME.json beside each
    #[arg(required = true, value_name = "TRACE")]
    pub(crate) traces: Vec<PathBuf>,
}

/// Formats of recordings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum FormArg {
    /// tracefs text
    #[default]
    Tracefs,
    /// The text that blkparse prints
    Blkparse,
    /// blktrace's binary files, one a CPU, for blkparse, btt and iowatcher
    Blktrace,
}

#[derive(Args)]
pub(crate) struct RecordArgs {
    /// The drive to record
    #[arg(value_name = "DEVICE")]
    pub(crate) device: PathBuf,

    /// The output file; for blktrace's files the name before .blktrace.N
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: PathBuf,

    /// The format; `blklab replay` reads all of them
    #[arg(long, value_enum, default_value_t)]
    pub(crate) format: FormArg,

    /// How long to record; until Ctrl-C if not given
    #[arg(long, value_name = "S")]
    pub(crate) seconds: Option<f64>,
}

const CALLS_EXAMPLES: &str = "\
Examples:
  strace -f -ttt -T -o tar.strace tar -cf all.tar src
  blklab calls tar.strace --under $PWD --cwd $PWD -o tar.calls
  blklab run tar.calls --drive hdd-7200 --fs ext2
      the same calls on another drive";

#[derive(Args)]
#[command(after_help = CALLS_EXAMPLES)]
pub(crate) struct CallsArgs {
    /// The output of `strace -f -ttt`; -T adds how long calls took, and -y the folder of
    /// paths that do not begin with /
    #[arg(value_name = "RECORDING")]
    pub(crate) recording: PathBuf,

    /// The output file; standard output if not given
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,

    /// Keep only calls on files below this folder
    #[arg(long, value_name = "DIR")]
    pub(crate) under: Option<PathBuf>,

    /// The program's working directory at its start
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub(crate) cwd: PathBuf,

    /// Leave out the time between calls
    #[arg(long)]
    pub(crate) no_think: bool,
}
