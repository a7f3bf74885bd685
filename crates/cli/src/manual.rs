//! Completions and the manual page, made from the one declaration of options.

use blklab_description::hint;
use clap::CommandFactory;

use crate::args::{Cli, CompletionsArgs, ManArgs};
use crate::failure::Failure;
use crate::output;

pub(crate) fn completions(args: &CompletionsArgs) -> Result<(), Failure> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "blklab", &mut text);
    output::print(&String::from_utf8_lossy(&text))
}

pub(crate) fn man(args: &ManArgs) -> Result<(), Failure> {
    let mut program = Cli::command();
    // Gives the commands their full names.
    program.build();
    let command = match &args.command {
        None => program,
        Some(name) => {
            let found = program.find_subcommand(name);
            found.cloned().ok_or_else(|| {
                let known = program.get_subcommands().map(|c| c.get_name());
                let hint = hint(name, known);
                Failure::mistake(format!("there is no command {name}{hint}"))
            })?
        }
    };
    let mut text = Vec::new();
    clap_mangen::Man::new(command)
        .render(&mut text)
        .map_err(|e| Failure::Broken(format!("cannot make the manual page: {e}")))?;
    output::print(&String::from_utf8_lossy(&text))
}
