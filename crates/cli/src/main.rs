//! The `blklab` command: arguments in, calls, report out.

mod args;
mod calibrate;
mod calibrate_host;
mod compare;
mod conform;
mod failure;
mod host_args;
mod list;
mod load;
mod manual;
mod output;
mod probe;
mod progress;
mod record;
mod report;
mod run;
mod serve;
mod serve_args;
mod show;
mod timeline_args;
mod top;
mod trace;

use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match cli.command {
        Command::Compare(args) => compare::compare(&args),
        Command::Replay(args) => compare::replay(&args),
        Command::Record(args) => record::record(&args),
        Command::Report(args) => report::report(&args),
        Command::Run(args) => run::run(&args),
        Command::Probe(args) => probe::probe(&args),
        Command::Calibrate(args) => calibrate::calibrate(&args),
        Command::Conform(args) => conform::conform(&args),
        Command::Serve(args) => serve::serve(&args),
        Command::Get(args) => serve::get(&args),
        Command::Set(args) => serve::set(&args),
        Command::Top(args) => top::top(&args),
        Command::Trace(args) => trace::trace(&args),
        Command::Load(args) => load::load(&args),
        Command::List(args) => list::list(&args),
        Command::Show(args) => show::show(&args),
        Command::Completions(args) => manual::completions(&args),
        Command::Man(args) => manual::man(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
