//! The options of `blklab guest`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::compare::CompareArgs;
use super::virtual_machine::GuestArgs;

const EXAMPLES: &str = "\
Examples:
  blklab guest setup
      fetch a kernel
  blklab guest run my.fio --schedulers none,mq-deadline,bfq --drive mx100-256
      the job under a real kernel, on a drive as slow as the model
  blklab guest run thesis/randrw-90-10 --drive mx100-256-ranges \\
      --module kernel/blklab-iosched.ko --schedulers noop,blklab-deadline,cfq,ac
      the same under schedulers of our own, as a module of that kernel
  blklab guest script test.sh --load null_blk
      a script of your own as all that the guest runs";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct GuestCommandArgs {
    #[command(subcommand)]
    pub(crate) command: GuestCommand,
}

#[derive(Subcommand)]
pub(crate) enum GuestCommand {
    /// Fetch a kernel with the machine's package manager, without installing it, and
    /// print the variables that the kernel module is built with
    Setup(GuestSetupArgs),
    /// Run a job under a real kernel: `compare --world guest`
    Run(Box<CompareArgs>),
    /// Boot a guest that runs a shell script
    Script(Box<GuestScriptArgs>),
    /// Run a job as the host ordered, inside a guest
    #[command(hide = true)]
    Answer(GuestAnswerArgs),
}

#[derive(Args)]
pub(crate) struct GuestSetupArgs {
    /// Where to unpack it [default: blklab/guest in the user's cache]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) guest: Option<PathBuf>,
}

#[derive(Args)]
pub(crate) struct GuestScriptArgs {
    /// The script; its output is printed, and it has failed unless it prints a line
    /// `passed`
    pub(crate) script: PathBuf,

    #[command(flatten)]
    pub(crate) guest: GuestArgs,

    /// A module of the guest's kernel to load, with its parameters; repeat for more
    #[arg(long, value_name = "NAME PARAMETER=VALUE...")]
    pub(crate) load: Vec<String>,

    /// A program to copy into the guest; repeat for more
    #[arg(long, value_name = "FILE")]
    pub(crate) program: Vec<PathBuf>,

    /// QEMU's options for further devices, such as "-device nvme,..."; repeat for more
    #[arg(long, value_name = "OPTIONS", allow_hyphen_values = true)]
    pub(crate) qemu: Vec<String>,

    /// Text to add to the kernel's command line
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) append: String,

    /// Memory in MiB
    #[arg(long, value_name = "N", default_value_t = 2048)]
    pub(crate) memory: u32,

    /// Let the guest's clock count instructions, one nanosecond each
    #[arg(long)]
    pub(crate) count_instructions: bool,

    /// Stop the guest after this many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 1200)]
    pub(crate) limit: u64,

    /// Write what the script sends to the file that $PORT names into this file
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Args)]
pub(crate) struct GuestAnswerArgs {
    /// The order's file
    pub(crate) order: PathBuf,
}
