//! The `blklab` command: parses arguments, calls the crates that do the work, prints the
//! report. Programs call its commands through [`call`].

mod advice;
mod args;
mod calibrate;
mod compare;
mod compared;
mod conform;
mod failure;
mod fs;
mod guest;
mod library;
mod load;
mod mount;
mod output;
mod probe;
mod progress;
mod real_time;
mod record;
mod report;
mod rows;
mod run;
mod serve;
mod show;
#[cfg(test)]
#[path = "../build/sources.rs"]
mod sources;
mod study;
mod sweep;
mod top;
mod tune;

use std::process::ExitCode;

use args::{BootArgs, Cli, Command};

pub use failure::Failure;
pub use library::{
    Call, CommandOutput, DescriptionSource, NamedText, RunOutput, call, description,
    description_values, program,
};
pub use progress::Observer;
pub use sweep::SweepFile;

/// Runs the command that the process's arguments name.
pub fn main() -> ExitCode {
    let cli = Cli::read(std::env::args_os()).unwrap_or_else(|error| error.exit());
    let done = match cli.command {
        Command::Compare(args) => compare::compare(*args),
        Command::Replay(args) => compare::replay(&args),
        Command::Study(args) => study::study(&args),
        Command::Sweep(args) => sweep::sweep(&args),
        Command::Tune(args) => tune::tune(*args),
        Command::Record(args) => record::record(&args),
        Command::Report(args) => report::report(&args),
        Command::Run(args) => run::run(*args),
        Command::Probe(args) => probe::probe(&args),
        Command::Calibrate(args) => calibrate::calibrate(&args),
        Command::Conform(args) => conform::conform(&args),
        Command::Serve(args) => serve::serve(&args),
        Command::Get(args) => serve::get(&args),
        Command::Set(args) => serve::set(&args),
        Command::Top(args) => top::top(&args),
        Command::Trace(args) => record::trace(&args),
        Command::Calls(args) => record::calls(&args),
        Command::Load(args) => load::load(&args),
        Command::Fs(args) => fs::fs(&args),
        Command::Guest(args) => guest::guest(args),
        Command::Boot(args) => boot(&args),
        Command::List(args) => show::list(&args),
        Command::Show(args) => show::show(&args),
        Command::Completions(args) => show::completions(&args),
        Command::Man(args) => show::man(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

/// `blklab boot`: simulates the boot, and prints its sequence or the resulting device
/// tree, or mounts that.
fn boot(args: &BootArgs) -> Result<(), Failure> {
    let mut board = blklab_boot::Board::load(&args.board).map_err(Failure::mistake)?;
    if let Some(name) = &args.cards {
        let from = blklab_boot::Board::load(name).map_err(Failure::mistake)?;
        let taken = board.take_cards(from);
        taken.map_err(|why| Failure::Mistake(format!("--cards {name}: {why}")))?;
    }
    let booted = blklab_boot::boot(&board);
    match &args.mount {
        Some(folder) => mount::mount_sysfs(&booted, &args.board, folder),
        None if args.tree => output::print(booted.tree()),
        None => output::print(booted.sequence()),
    }
}
