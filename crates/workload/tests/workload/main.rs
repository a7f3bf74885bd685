//! Jobs, addresses and traces, from outside; much of it with the installed fio
//! and blktrace as judges.

mod addresses;
mod addresses_against_fio;
mod blktrace;
mod fio_jobs;
mod fio_jobs_against_fio;
mod kernel_traces;
mod scratch;
mod trace_formats;

use blklab_workload::fio::{JobError, JobFile, JobSpec, parse_str};

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
