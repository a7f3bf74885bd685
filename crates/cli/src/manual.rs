//! Completions and the manual page, made from the one declaration of options.

use clap::CommandFactory;

use crate::args::{Cli, CompletionsArgs};
use crate::failure::Failure;
use crate::output;

pub(crate) fn completions(args: &CompletionsArgs) -> Result<(), Failure> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "blklab", &mut text);
    output::print(&String::from_utf8_lossy(&text))
}

pub(crate) fn man() -> Result<(), Failure> {
    let mut text = Vec::new();
    clap_mangen::Man::new(Cli::command())
        .render(&mut text)
        .map_err(|e| Failure::Broken(format!("cannot make the manual page: {e}")))?;
    output::print(&String::from_utf8_lossy(&text))
}
