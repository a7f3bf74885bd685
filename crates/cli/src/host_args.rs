//! The options of a comparison on a real machine.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::failure::Failure;

/// Where a job runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum WorldArg {
    /// On models, in virtual time
    #[default]
    Sim,
    /// On a drive's model in real time, served over NBD to fio
    Serve,
    /// On a real drive under this machine's kernel
    Host,
}

#[derive(Args)]
#[command(next_help_heading = "On a real machine (--world host)")]
pub(crate) struct HostArgs {
    /// Where the job runs
    #[arg(long, value_enum, default_value_t)]
    pub(crate) world: WorldArg,

    /// The drive that the job works on, whatever filename it gives
    #[arg(long, value_name = "DEVICE")]
    pub(crate) device: Option<PathBuf>,

    /// Allow a job that writes to destroy what is on the drive: its name once
    /// more, exactly as behind --device
    #[arg(long, value_name = "DEVICE")]
    pub(crate) destroy_data: Option<String>,

    /// Make a file system on the drive for each run, and run the job in a file
    /// of it: a kind and options of its mkfs, such as "ext4 -O ^has_journal"
    #[arg(long, value_name = "KIND OPTIONS")]
    pub(crate) mkfs: Option<String>,

    /// Print every step and do none
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Do without latencies from the block layer's trace events
    #[arg(long)]
    pub(crate) no_trace: bool,

    /// Do without the run before the first that is not counted
    #[arg(long)]
    pub(crate) no_warm_up: bool,
}

impl HostArgs {
    /// Refuses what only a real drive has.
    pub(crate) fn refuse(&self) -> Result<(), Failure> {
        let HostArgs {
            world: _,
            device,
            destroy_data,
            dry_run,
            no_trace,
            no_warm_up,
            mkfs,
        } = self;
        let given = [
            (device.is_some(), "--device"),
            (destroy_data.is_some(), "--destroy-data"),
            (*dry_run, "--dry-run"),
            (*no_trace, "--no-trace"),
            (*no_warm_up, "--no-warm-up"),
            (mkfs.is_some(), "--mkfs"),
        ];
        match given.iter().find(|(given, _)| *given) {
            Some((_, option)) => Err(Failure::mistake(format!("{option} needs --world host"))),
            None => Ok(()),
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

    /// What to print
    #[arg(long, value_enum, default_value_t = crate::args::CompareFormat::Normal)]
    pub(crate) output_format: crate::args::CompareFormat,

    /// Write to a file instead of standard output
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

/// Forms of recordings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum FormArg {
    /// tracefs text
    #[default]
    Tracefs,
    /// What blkparse prints
    Blkparse,
    /// blktrace's binary files, one a CPU, for blkparse, btt and iowatcher
    Blktrace,
}

#[derive(Args)]
pub(crate) struct RecordArgs {
    /// The drive
    #[arg(value_name = "DEVICE")]
    pub(crate) device: PathBuf,

    /// Where to; of blktrace's files the name before .blktrace.N
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: PathBuf,

    /// The form; `blklab replay` reads all
    #[arg(long, value_enum, default_value_t)]
    pub(crate) format: FormArg,

    /// For how long; until Ctrl-C if not given
    #[arg(long, value_name = "S")]
    pub(crate) seconds: Option<f64>,
}
