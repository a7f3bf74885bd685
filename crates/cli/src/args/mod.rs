//! The command line: each option is declared once.

mod compare;
mod fs;
mod guest;
mod measure;
mod serve;
mod sweep;
mod virtual_machine;

use std::ffi::OsString;
use std::path::PathBuf;

use blklab_report::tools::{TOOLS, Tool};
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};

pub(crate) use compare::{
    CompareArgs, CompareFormat, HostArgs, ModelArgs, PaceArgs, RealWorld, ReplayArgs, ReportArgs,
    RunArgs, RunFormat, ShownArgs, SweepArgs, TableArgs, WorkArgs, WorldArg, same_work,
};
pub(crate) use fs::{FsArgs, FsCommand, FsKind, FsLsArgs, FsMkfsArgs};
pub(crate) use guest::{GuestAnswerArgs, GuestCommand, GuestCommandArgs, GuestScriptArgs};
pub(crate) use measure::{CalibrateArgs, CallsArgs, ConformArgs, FormArg, ProbeArgs, RecordArgs};
pub(crate) use serve::{GetArgs, LoadArgs, ServeArgs, SetArgs, TopArgs, TraceArgs};
pub(crate) use sweep::{StudyArgs, SweepFileArgs, TuneArgs};
pub(crate) use virtual_machine::GuestArgs;

const EXAMPLES: &str = "\
Examples:
  blklab compare questions/postgres-sata
      a question with its drive and goal, and its answer in one screen
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

/// Linux's block I/O stack in user space: which I/O scheduler serves a job best,
/// by how much and why.
#[derive(Parser)]
#[command(name = "blklab", version, after_help = EXAMPLES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Cli {
    /// Reads the words of a command line, the command's name first.
    pub(crate) fn read<W>(words: impl IntoIterator<Item = W>) -> Result<Cli, clap::Error>
    where
        W: Into<OsString> + Clone,
    {
        let mut command = with_negative_numbers(Cli::command());
        let read = command.try_get_matches_from_mut(words);
        let read = read.and_then(|matches| Cli::from_arg_matches(&matches));
        read.map_err(|error| error.format(&mut command))
    }
}

/// Parses a count from 1 to `max`.
fn count(max: usize) -> impl Fn(&str) -> Result<usize, String> + Clone {
    move |text| match text.parse() {
        Ok(count) if (1..=max).contains(&count) => Ok(count),
        _ => Err(format!("{text} is not in 1..={max}")),
    }
}

/// Takes -1 as the value of an option, whose range is then told, and not as an option of its own.
fn with_negative_numbers(command: clap::Command) -> clap::Command {
    let command = command.mut_args(|arg| match arg.get_action().takes_values() {
        true if !arg.is_positional() => arg.allow_negative_numbers(true),
        _ => arg,
    });
    command.mut_subcommands(with_negative_numbers)
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Run a job under several schedulers and tell which serves it best
    Compare(Box<CompareArgs>),
    /// Replay a block trace: what would another scheduler have done with it?
    Replay(Box<ReplayArgs>),
    /// Repeat the measurements of a document, and show its values beside the new ones
    Study(StudyArgs),
    /// Run every combination of the values that a file lists, and resume where it
    /// stopped
    Sweep(SweepFileArgs),
    /// Find the best scheduler and setting for a job, judged by a goal
    Tune(Box<TuneArgs>),
    /// Put comparisons from any worlds into one table and page
    Report(ReportArgs),
    /// Record this machine's block I/O on a drive, to replay it
    Record(RecordArgs),
    /// Run a job under one scheduler and print it as fio does
    Run(Box<RunArgs>),
    /// Find a drive's inner structure by measurement, and describe it
    Probe(ProbeArgs),
    /// Fit a drive's and a machine's description to measured fio results
    Calibrate(CalibrateArgs),
    /// Compare our schedulers and block layer with traces of a real kernel
    Conform(ConformArgs),
    /// Serve block devices over NBD or vhost-user, with a scheduler and a drive's speed
    Serve(Box<ServeArgs>),
    /// Show an attribute of a running server
    Get(GetArgs),
    /// Change an attribute of a running server, such as its scheduler
    Set(SetArgs),
    /// Show a running server's activity in a table that repeats
    Top(TopArgs),
    /// Show a block trace as blkparse, biosnoop or iostat would, or record one of a
    /// running server
    Trace(TraceArgs),
    /// Convert an strace recording of a program into a list of calls to simulate
    Calls(CallsArgs),
    /// Load an NBD server as fast as it answers, to find its limit
    Load(LoadArgs),
    /// Read and change file systems in images
    Fs(FsArgs),
    /// Boot a real kernel in a virtual machine, and run jobs under it
    Guest(GuestCommandArgs),
    /// Simulate a machine's boot: initcalls, drivers, its memory card and the card's
    /// disk
    Boot(BootArgs),
    /// List what is shipped with the program
    List(ListArgs),
    /// Show one item of `list`
    Show(ShowArgs),
    /// Print a completion script for a shell
    Completions(CompletionsArgs),
    /// Print a manual page
    Man(ManArgs),
}

/// Parses a seed.
fn seed(text: &str) -> Result<u64, String> {
    let wrong = |_| format!("right is a whole number from 0 to {}", u64::MAX);
    text.parse().map_err(wrong)
}

#[derive(Args)]
pub(crate) struct BootArgs {
    /// The machine: rpi4, vexpress-a9, emmc, a file that describes its devices as
    /// boards/rpi4.toml does, or a device tree blob, whose name ends with .dtb
    #[arg(value_name = "MACHINE")]
    pub(crate) board: String,

    /// Put the cards of another machine into the slots of the controllers with the same
    /// names: a device tree does not describe cards
    #[arg(long, value_name = "MACHINE")]
    pub(crate) cards: Option<String>,

    /// Print /sys after the boot, with debugfs in kernel/debug, not the sequence of events
    #[arg(long)]
    pub(crate) tree: bool,

    /// Show /sys after the boot as files in an empty folder, until it is unmounted or a
    /// signal arrives; needs FUSE
    #[arg(long, value_name = "DIR", conflicts_with = "tree")]
    pub(crate) mount: Option<PathBuf>,
}

#[derive(Args)]
pub(crate) struct ListArgs {
    /// What to list
    #[arg(value_enum)]
    pub(crate) what: Listed,
}

/// What is shipped with the program.
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
    /// The keys that `compare --vary` takes
    Axes,
}

#[derive(Args)]
pub(crate) struct ShowArgs {
    /// The kind of item
    #[arg(value_enum)]
    pub(crate) what: Shown,
    /// Its name
    pub(crate) name: String,
}

/// An item that is shipped with the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shown {
    /// A scheduler with its tunables
    Scheduler,
    /// A drive's description
    Drive,
    /// A job's text
    Job,
    /// A question, as a template for your own
    Question,
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
    /// The command whose page is printed, such as serve; the whole program's if not
    /// given
    pub(crate) command: Option<String>,
}

/// Finds a tool by its name.
fn tool(name: &str) -> Result<&'static Tool, String> {
    Tool::find(name).ok_or_else(|| {
        let names: Vec<&str> = TOOLS.iter().map(|tool| tool.name).collect();
        format!("no such tool; there are {}", names.join(", "))
    })
}

/// Lists the tools, one a line, for help texts.
fn tools_help() -> String {
    let lines = TOOLS
        .iter()
        .map(|tool| format!("- {:<10} {}", tool.name, tool.help));
    lines.collect::<Vec<_>>().join("\n")
}
