//! Tests of jobs, addresses and traces through the public interface, many of them with the
//! installed fio and blktrace as reference.

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

/// Parses a job file from text without includes.
fn parse(text: &str) -> Result<JobFile, JobError> {
    parse_str("t.fio", text, &|_| None, &|_, name| {
        Err(format!("{name} cannot be read"))
    })
}

/// Returns the one job with these options.
fn job(options: &str) -> JobSpec {
    match parse(&format!("[a]\n{options}\n")) {
        Ok(mut file) => file.jobs.remove(0),
        Err(error) => panic!("{error}"),
    }
}

/// Whether fio is installed. Prints a remark if it is not, as the test that calls this then
/// proves nothing.
pub(crate) fn have_fio() -> bool {
    blklab_judges::have("fio")
}

/// Makes a directory that is removed with the value.
pub(crate) struct Scratch(TempDir);

impl Scratch {
    pub fn new() -> Scratch {
        Scratch(tempfile::tempdir().unwrap())
    }

    /// Runs fio in this directory.
    pub fn fio(&self, args: &[&str]) -> Output {
        self.command("fio").args(args).output().unwrap()
    }

    /// Returns a command that runs in this directory.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.0.path());
        command
    }

    /// Returns a file's path.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Reads a file of this directory.
    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    /// Writes a file to this directory.
    pub fn write(&self, name: &str, text: &str) {
        self.write_bytes(name, text.as_bytes());
    }

    /// Writes a file of arbitrary bytes to this directory.
    pub fn write_bytes(&self, name: &str, bytes: &[u8]) {
        std::fs::write(self.path(name), bytes).unwrap();
    }
}

/// Returns fio's output.
pub(crate) fn text(output: &Output) -> String {
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    text
}
