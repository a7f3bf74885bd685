//! fio's jobs: job files and fio's own command line, read as fio 3.33 does.
//!
//! The installed `fio --cmdhelp`, `fio --enghelp` and fio's manual say what
//! options there are and what their values look like; [`JobSpec`] is what
//! comes out. Options that fio knows and that mean nothing here are listed
//! once in a note; an option that fio does not know is an error.
//!
//! Where fio quietly drops what it does not understand (trailing letters of
//! a number, the unit of `runtime=10sec`, a bad second value of `bs=4k,x`),
//! this reader refuses instead.

mod args;
mod distribution;
mod error;
mod fixup;
mod job_file;
mod lists;
mod loader;
mod options;
mod section;
mod source;
mod spec;
mod units;

pub use args::parse_args;
pub use error::{JobError, Note, Position};
pub use job_file::{Environment, Includes};
pub use options::option_tables;
pub use source::{Arguments, JobSource, Override, has_option, option_names};
pub use spec::*;

use error::Fault;
use loader::Loader;
use std::path::Path;

/// Reads a job file, and returns its text too; `-` is standard input, which can
/// be read only once.
///
/// `environment` answers for `${NAME}`, and for fio's keywords `$ncpus` and
/// `$mb_memory`, which it is asked for with their `$`.
pub fn parse_file(
    path: &Path,
    environment: Environment<'_>,
) -> Result<(JobFile, String), JobError> {
    let name = path.display().to_string();
    let text = read(&name)?;
    let job = parse_str(&name, &text, environment, &include_file)?;
    Ok((job, text))
}

/// Reads a job from text; `name` stands for the file in messages.
pub fn parse_str(
    name: &str,
    text: &str,
    environment: Environment<'_>,
    includes: Includes<'_>,
) -> Result<JobFile, JobError> {
    let mut loader = Loader::new(environment);
    loader.add_file(name, text, includes)?;
    loader.finish(name)
}

fn read(name: &str) -> Result<String, JobError> {
    let text = match name {
        "-" => std::io::read_to_string(std::io::stdin()),
        name => std::fs::read_to_string(name),
    };
    text.map_err(|error| {
        let position = Position {
            file: name.to_string(),
            line: 0,
        };
        JobError::at(
            &position,
            "",
            Fault::new(format!("cannot be read: {error}")).help("give a job file"),
        )
    })
}

/// Looks for an included file as fio does: as named, then beside the file
/// that includes it.
fn include_file(from: &str, name: &str) -> Result<(String, String), String> {
    let beside = Path::new(from).with_file_name(name);
    let path = match Path::new(name).exists() {
        true => Path::new(name).to_path_buf(),
        false => beside,
    };
    let text = std::fs::read_to_string(&path)
        .map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
    Ok((path.display().to_string(), text))
}

#[cfg(test)]
mod fuzzed;
