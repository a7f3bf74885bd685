//! The options of the commands that run many settings: `sweep` and `tune`.

use std::path::PathBuf;

use blklab_experiment::Shard;
use blklab_sim::FileSystemKind;
use blklab_workload::fio;
use clap::{Arg, Args};

use super::compare::{HostArgs, REPEATS_MAX, RealWorld, SweepArgs, THREADS_MAX, WorkArgs};
use super::count;
use super::virtual_machine::GuestArgs;

const SWEEP_EXAMPLES: &str = "\
Examples:
  blklab sweep depths.toml
      every run that depths.toml asks for, those left out that depths.sweep has
  blklab sweep depths.toml --shard 2/3
      on the second of three machines
  blklab sweep depths.toml --merge from-second --merge from-third
      and what the others found beside one's own

depths.toml:
  job = \"my.fio\"
  drive = \"mx100-256\"
  repeats = 5
  vary = [\"scheduler=none,bfq\", \"iodepth=1..64*2\", \"drive.controller.read_us=20@3..20\"]";

#[derive(Args)]
#[command(after_help = SWEEP_EXAMPLES)]
pub(crate) struct SweepFileArgs {
    /// The sweep's file with job, drive, machine, vary, repeats, seed, set and override;
    /// the job is one of `blklab list jobs`, or a job, list of calls or trace in a file
    /// beside it
    #[arg(value_name = "SPEC")]
    pub(crate) spec: PathBuf,

    /// The folder of the results; SPEC's name with .sweep if not given
    #[arg(long, short, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,

    /// Copy the results that another folder has from a program of the same sources;
    /// repeat for more
    #[arg(long, value_name = "DIR")]
    pub(crate) merge: Vec<PathBuf>,

    /// Do only the I-th of N parts of the runs, for several machines
    #[arg(long, value_name = "I/N", value_parser = shard)]
    pub(crate) shard: Option<Shard>,

    /// Threads to run on; one a processor if not given
    #[arg(long, value_name = "N",
          value_parser = count(THREADS_MAX))]
    pub(crate) threads: Option<usize>,
}

const STUDY_EXAMPLES: &str = "\
Examples:
  blklab study pi4 --html pi4.html
      eight patterns on an SSD and an SD card under four schedulers, some minutes
  blklab study pi4 --fs ext2
      the same with the files on ext2
  blklab study pi4 --size 128M --repeats 1 --assumed 40
      also with each value that nobody measured at its plausible ends, which takes long
  blklab study pi4 --full --repeats 1
      the same with the document's sizes, which takes long";

#[derive(Args)]
#[command(after_help = STUDY_EXAMPLES)]
pub(crate) struct StudyArgs {
    /// The study: pi4, reads and writes on a Raspberry Pi 4
    #[arg(value_name = "STUDY")]
    pub(crate) name: String,

    /// Also write it as a page, with a histogram of requests and CPUs over time of each
    /// pattern and scheduler
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,

    /// Write to a file instead of standard output
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,

    /// What each process reads or writes, with 256 MiB of memory
    // Long enough for several turns of a governor that looks every 5 s at the highest clock.
    #[arg(long, value_name = "SIZE", default_value = "2G", conflicts_with = "full",
          value_parser = study_size)]
    pub(crate) size: u64,

    /// The file system that the files are on, made on all of the drive: raw for none, ext2,
    /// vfat, or xfs without its own blocks
    #[arg(long, value_name = "KIND", default_value = "raw",
          value_parser = str::parse::<FileSystemKind>)]
    pub(crate) fs: FileSystemKind,

    /// The document's own sizes and memory, not smaller ones
    #[arg(long)]
    pub(crate) full: bool,

    /// Runs of each row, each with a seed of its own
    #[arg(long, value_name = "N", default_value = "3",
          value_parser = count(1000))]
    pub(crate) repeats: usize,

    /// How many of the values that the descriptions of drives and machine mark as assumed are
    /// tried at their plausible ends, to see which finding hangs on one
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) assumed: usize,

    /// Threads to run on; one a processor if not given
    #[arg(long, value_name = "N",
          value_parser = count(THREADS_MAX))]
    pub(crate) threads: Option<usize>,
}

/// A process of a study does I/O of 1 MiB.
fn study_size(text: &str) -> Result<u64, String> {
    match fio::bytes(text)? {
        bytes if bytes >= 1 << 20 => Ok(bytes),
        _ => Err("right is 1M or more".to_string()),
    }
}

fn shard(text: &str) -> Result<Shard, String> {
    let numbers = text.split_once('/').and_then(|(at, of)| {
        let (at, of): (usize, usize) = (at.parse().ok()?, of.parse().ok()?);
        (1..=of).contains(&at).then(|| Shard { at: at - 1, of })
    });
    numbers.ok_or_else(|| "right is I/N with I from 1 to N, as 2/3".to_string())
}

const TUNE_EXAMPLES: &str = "\
Examples:
  blklab tune my.fio --drive nvme --goal db.read.p99 --subject-to 'all.bandwidth > 100MB/s'
      the best scheduler and setting of those that a kernel has
  blklab tune my.fio --minimize 'read p99' --maximize bandwidth --pareto
      the settings of which none is better than another in both
  blklab tune my.fio --goal all.iops --schedulers bfq --vary bfq.slice_idle_us=0..8000+1000
      the best of what is named; the first is what it is compared with
  blklab tune my.fio --drive mx100-256 --goal all.iops --verify-on host --device /dev/sdb \\
      --destroy-data /dev/sdb
      the choice and the best others measured on a real drive too";

/// Hides the options of [`SweepArgs`] that `tune` refuses.
fn hide_refused(option: Arg) -> Arg {
    let refused = [
        "quick",
        "max_time",
        "assumed",
        "requests",
        "series",
        "timeline_start",
        "timeline_length",
    ];
    let is_refused = refused.contains(&option.get_id().as_str());
    option.hide(is_refused)
}

#[derive(Args)]
#[command(after_help = TUNE_EXAMPLES, mut_args(hide_refused))]
pub(crate) struct TuneArgs {
    #[command(flatten)]
    pub(crate) work: WorkArgs,

    #[command(flatten)]
    pub(crate) sweep: SweepArgs,

    /// A figure of which less is better, as --goal; without its job where there is but one,
    /// as 'read p99'; repeat for more
    #[arg(long, value_name = "FIGURE")]
    pub(crate) minimize: Vec<String>,

    /// A figure of which more is better, such as bandwidth or 'read iops'; repeat for more
    #[arg(long, value_name = "FIGURE")]
    pub(crate) maximize: Vec<String>,

    /// With several goals, look for the settings of which none is better than another in all
    /// of them, and list these
    #[arg(long)]
    pub(crate) pareto: bool,

    /// Where the settings that are found are measured for real: on the drive of --device
    /// (host), on the drive's model served in real time (serve), or on it under a real
    /// kernel in a virtual machine (guest). Tells by how much the best of them beats the
    /// one that is advised
    #[arg(long, value_enum, value_name = "WORLD")]
    pub(crate) verify_on: Option<RealWorld>,

    /// Runs of each setting there [default: 3]
    #[arg(long, value_name = "N", requires = "verify_on",
          value_parser = count(REPEATS_MAX))]
    pub(crate) verify_repeats: Option<usize>,

    #[command(flatten)]
    pub(crate) host: Box<HostArgs>,

    #[command(flatten)]
    pub(crate) guest: Box<GuestArgs>,

    /// The settings to try, the one to compare with first, given by a calling program.
    #[arg(skip)]
    pub(crate) rows: Vec<NamedRow>,
}

/// A setting of a calling program's: its label, and its keys with their values.
pub(crate) type NamedRow = (String, Vec<(String, String)>);
