//! fio's jobs: job files and fio's own command line, read as fio 3.33 does.
//!
//! The options and the form of their values follow `fio --cmdhelp`, `fio --enghelp` and fio's
//! manual; [`JobSpec`] is the result. Options of fio that have no effect here are listed in one
//! note; an option that fio does not know is an error.
//!
//! fio silently ignores some text that it does not understand (trailing letters of a number, the
//! unit of `runtime=10sec`, a bad second value of `bs=4k,x`); this reader refuses it.

mod args;
mod cgroup_write;
mod direction;
mod distribution;
mod engine;
mod error;
mod fixup;
mod iolog;
mod job_file;
mod lists;
mod loader;
mod options;
mod section;
mod source;
mod spec;
mod units;
mod verify;

pub use args::parse_args;
pub use cgroup_write::{CgroupWrite, DriveNumber, GroupFile};
pub use direction::{ByDirection, Direction, SyncKind};
pub use engine::Engine;
pub use error::{JobError, Note, Position};
pub use iolog::{Iolog, IologAction, IologEntry, LoggedFile, ReplayOptions};
pub use job_file::{Environment, Includes, included_files};
pub use loader::{Override, OverrideWhen};
pub use options::{has_option, is_work, option_names, option_tables, takes_whole_numbers};
pub use source::{Arguments, JobSource};
pub use spec::*;
pub use units::Extent;
pub(crate) use units::bytes as bytes_of;
pub use verify::{Checksum, HEADER_BYTES, VerifyKind, VerifyOptions};

use loader::Loader;

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

/// Reads an amount of data as fio does, such as `4G`.
///
/// # Errors
/// Returns the mistake and its correction.
pub fn bytes(text: &str) -> Result<u64, String> {
    units::bytes(text, KIB).map_err(|fault| match fault.help.as_str() {
        "" => fault.message,
        help => format!("{}; {help}", fault.message),
    })
}

/// The default of `kb_base`.
const KIB: u32 = 1024;

#[cfg(test)]
mod fuzzed;
