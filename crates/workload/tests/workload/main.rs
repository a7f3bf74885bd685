//! Jobs, addresses and traces, from outside; much of it with the installed fio
//! and blktrace as judges.

mod addresses;
mod addresses_against_fio;
mod blktrace;
mod calls;
mod fio_jobs;
mod fio_jobs_against_fio;
mod kernel_traces;
mod trace_formats;

use std::path::PathBuf;
use std::process::{Command, Output};

use blklab_workload::fio::{JobError, JobFile, JobSpec, parse_str};
use tempfile::TempDir;

/// Reads a job file from text; it includes no other.
fn parse(text: &str) -> Result<JobFile, JobError> {
    parse_str("t.fio", text, &|_| None, &|_, name| {
        Err(format!("{name} cannot be read"))
    })
}

/// The one job that has these options.
fn job(options: &str) -> JobSpec {
    match parse(&format!("[a]\n{options}\n")) {
        Ok(mut file) => file.jobs.remove(0),
        Err(error) => panic!("{error}"),
    }
}

/// Whether there is an fio to ask; says so where there is none, because a
/// test that asks nobody proves nothing.
pub(crate) fn have_fio() -> bool {
    blklab_judges::have("fio")
}

/// A directory of its own, gone when the test is.
pub(crate) struct Scratch(TempDir);

impl Scratch {
    pub fn new() -> Scratch {
        Scratch(tempfile::tempdir().unwrap())
    }

    /// Runs fio here.
    pub fn fio(&self, args: &[&str]) -> Output {
        self.command("fio").args(args).output().unwrap()
    }

    /// A program to be run here.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.0.path());
        command
    }

    /// A file's path.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Reads a file from here.
    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    /// Writes a file here.
    pub fn write(&self, name: &str, text: &str) {
        self.write_bytes(name, text.as_bytes());
    }

    /// Writes a file of any bytes here.
    pub fn write_bytes(&self, name: &str, bytes: &[u8]) {
        std::fs::write(self.path(name), bytes).unwrap();
    }
}

/// What fio printed.
pub(crate) fn text(output: &Output) -> String {
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    text
}
