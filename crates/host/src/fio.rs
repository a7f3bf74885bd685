//! Running fio on the device, and its results.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use blklab_stats::Results;
use blklab_workload::fio::JobFile;
use rustix::process::{Pid, Signal, kill_process_group};
use serde::{Deserialize, Serialize};

use crate::error::HostError;
use crate::fio_json;
use crate::interrupt::Interrupts;
use crate::overwrite::is_read_only_job;

/// Interval at which a running fio is checked.
const POLL: Duration = Duration::from_millis(20);

/// How long fio may take to end on SIGTERM before it is killed.
const GRACE: Duration = Duration::from_secs(10);

/// The most bytes of fio's messages that an error quotes.
const COMPLAINT_BYTES: u64 = 2000;

/// fio with a job file.
#[derive(Debug)]
pub struct Fio<'a> {
    program: PathBuf,
    job: &'a JobFile,
    text: String,
    read_only: bool,
    folder: tempfile::TempDir,
}

/// The output of a run of fio.
#[derive(Debug, Serialize, Deserialize)]
pub struct Printed {
    /// Standard output, with fio's JSON.
    json: String,
    /// Standard error.
    said: String,
}

impl Printed {
    /// Returns the results of `job` from the output.
    pub fn results(&self, job: &JobFile) -> Result<Results, HostError> {
        let results = fio_json::parse(&self.json, job);
        let mut results = results.map_err(|fault| HostError::Fio(fault.to_string()))?;
        let mut failed = results.jobs.iter().filter(|job| job.error != 0);
        if let Some(job) = failed.find(|failed| !goes_on(job, &failed.name)) {
            let error = io::Error::from_raw_os_error(job.error);
            return Err(HostError::Fio(format!("fio: job {}: {error}", job.name)));
        }
        results.notes.extend(fio_json::remarks(&self.said));
        Ok(results)
    }
}

impl<'a> Fio<'a> {
    /// Finds fio and writes `text` as its job file. `job` is the user's job; if it only reads, fio
    /// runs with `--readonly`.
    pub fn prepare(program: &Path, job: &'a JobFile, text: String) -> Result<Fio<'a>, HostError> {
        let version = Command::new(program)
            .arg("--version")
            .stdin(Stdio::null())
            .output();
        match version {
            Ok(done) if done.status.success() => {}
            Ok(_) => return Err(HostError::Fio("fio --version fails".to_string())),
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(HostError::NoFio),
            Err(e) => return Err(HostError::io("start fio", program, e)),
        }
        let folder = tempfile::tempdir()
            .map_err(|e| HostError::io("make a temporary folder", std::env::temp_dir(), e))?;
        let fio = Fio {
            program: program.to_path_buf(),
            job,
            text,
            read_only: is_read_only_job(job),
            folder,
        };
        let path = fio.job_path();
        std::fs::write(&path, &fio.text).map_err(|e| HostError::io("write fio's job", &path, e))?;
        Ok(fio)
    }

    fn job_path(&self) -> PathBuf {
        self.folder.path().join("job.fio")
    }

    /// The job as the user gave it.
    pub fn job(&self) -> &'a JobFile {
        self.job
    }

    /// The text of the job file for fio.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// fio's command-line arguments, before the job file.
    fn arguments(&self) -> Vec<String> {
        let mut arguments = vec!["--output-format=json+".to_string()];
        if self.read_only {
            arguments.push("--readonly".to_string());
        }
        arguments
    }

    /// The command, for display.
    pub fn command(&self) -> String {
        let program = self.program.display();
        format!("{program} {} JOB", self.arguments().join(" "))
    }

    /// Checks with fio that it accepts the job, without any I/O.
    pub fn check(&self) -> Result<(), HostError> {
        let done = Command::new(&self.program)
            .arg("--parse-only")
            .arg(self.job_path())
            .stdin(Stdio::null())
            .output()
            .map_err(|e| HostError::io("start fio", &self.program, e))?;
        if done.status.success() {
            return Ok(());
        }
        let complaint = String::from_utf8_lossy(&done.stderr).into_owned();
        Err(HostError::Unfit(refused(&self.job.name, &complaint)))
    }

    /// Makes fio create the files that the job uses.
    pub fn lay_out(&self, interrupts: &Interrupts) -> Result<(), HostError> {
        self.start(&["--create_only=1"], interrupts).map(drop)
    }

    /// Runs fio. A signal ends fio and makes the run fail.
    pub fn run(&self, interrupts: &Interrupts) -> Result<Results, HostError> {
        self.run_printed(interrupts)?.results(self.job)
    }

    /// Runs fio and returns its output.
    pub fn run_printed(&self, interrupts: &Interrupts) -> Result<Printed, HostError> {
        let arguments = self.arguments();
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let (output, said) = self.start(&arguments, interrupts)?;
        let json = std::fs::read_to_string(&output)
            .map_err(|e| HostError::io("read fio's output", &output, e))?;
        Ok(Printed { json, said })
    }

    /// Starts fio and waits for its end. Returns the path of its output and its messages.
    fn start(
        &self,
        arguments: &[&str],
        interrupts: &Interrupts,
    ) -> Result<(PathBuf, String), HostError> {
        let output = self.folder.path().join("out.json");
        let complaints = self.folder.path().join("err.txt");
        let create = |path: &Path| {
            File::create(path).map_err(|e| HostError::io("write fio's output", path, e))
        };
        let child = Command::new(&self.program)
            .args(arguments)
            .arg(self.job_path())
            .stdin(Stdio::null())
            .stdout(create(&output)?)
            .stderr(create(&complaints)?)
            // A process group of its own: Ctrl-C reaches only this program, and fio's children can
            // be ended together with it.
            .process_group(0)
            .spawn()
            .map_err(|e| HostError::io("start fio", &self.program, e))?;
        let status = Running { child }.wait(interrupts)?;
        let said = beginning(&complaints);
        if !status.success() {
            return Err(HostError::Fio(failed(
                &self.job.name,
                status,
                &said,
                &output,
            )));
        }
        Ok((output, said))
    }
}

/// Whether errors are part of what a job measures (`continue_on_error`).
fn goes_on(job: &JobFile, name: &str) -> bool {
    let mut named = job.jobs.iter().filter(|spec| spec.name == name);
    named.any(|spec| {
        let goes_on = &spec.continue_on_error;
        goes_on.read || goes_on.write || spec.verify.goes_on
    })
}

fn refused(job: &str, complaint: &str) -> String {
    let lines: Vec<&str> = complaint
        .lines()
        .map(str::trim)
        .filter(|l| !l.is_empty())
        .collect();
    format!("{job}: fio refuses the job: {}", lines.join("; "))
}

/// Builds the error for a failed fio from standard error and from the output before its JSON.
fn failed(job: &str, status: ExitStatus, said: &str, output: &Path) -> String {
    let how = match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => "no exit status".to_string(),
    };
    let before_json = beginning(output);
    let before_json = before_json
        .lines()
        .take_while(|line| !line.starts_with('{'));
    let words: Vec<&str> = said
        .lines()
        .chain(before_json)
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    match words.is_empty() {
        true => format!("{job}: fio failed ({how}) and said nothing"),
        false => format!("{job}: fio failed ({how}): {}", words.join("; ")),
    }
}

fn beginning(path: &Path) -> String {
    let mut bytes = Vec::new();
    if let Ok(mut file) = File::open(path) {
        // Unreadable parts are left out.
        let _ = file.rewind();
        let _ = file.take(COMPLAINT_BYTES).read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A running fio, which is ended with its children when dropped.
struct Running {
    child: Child,
}

impl Running {
    fn wait(mut self, interrupts: &Interrupts) -> Result<ExitStatus, HostError> {
        loop {
            let status = self.child.try_wait();
            let status = status.map_err(|e| HostError::io("wait for fio", "fio", e))?;
            if let Some(status) = status {
                interrupts.check()?;
                return Ok(status);
            }
            interrupts.check()?;
            std::thread::sleep(POLL);
        }
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid {
            // It may have ended in the meantime.
            let _ = kill_process_group(pid, signal);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        self.signal(Signal::TERM);
        let end = Instant::now() + GRACE;
        while Instant::now() < end {
            if matches!(self.child.try_wait(), Ok(Some(_)) | Err(_)) {
                return;
            }
            std::thread::sleep(POLL);
        }
        self.signal(Signal::KILL);
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interrupt::TURNS;
    use blklab_workload::fio;
    use std::os::unix::fs::PermissionsExt;

    fn job() -> JobFile {
        let no_includes = |_: &str, _: &str| Err("no includes".to_string());
        let text = "[a]\nrw=read\nsize=1m\n";
        fio::parse_str("t.fio", text, &|_| None, &no_includes).unwrap()
    }

    /// A program that replaces fio and runs `script`.
    fn stand_in(script: &str) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fio");
        let text = format!("#!/bin/sh\n[ \"$1\" = --version ] && exit 0\n{script}\n");
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        (folder, path)
    }

    fn run(script: &str) -> Result<Results, HostError> {
        let _turn = TURNS.lock();
        let (_folder, program) = stand_in(script);
        let job = job();
        let interrupts = Interrupts::watch().unwrap();
        Fio::prepare(&program, &job, String::new())?.run(&interrupts)
    }

    #[test]
    fn a_missing_fio_names_its_package() {
        let job = job();
        let error = Fio::prepare(Path::new("/no/such/fio"), &job, String::new()).unwrap_err();
        assert!(error.is_mistake());
        assert!(error.to_string().contains("package `fio`"), "{error}");
    }

    #[test]
    fn a_failing_fio_is_quoted() {
        let error = run("echo 'no such engine' >&2; exit 3").unwrap_err();
        assert_eq!(
            error.to_string(),
            "t.fio: fio failed (exit status 3): no such engine"
        );
        let error = run("kill -9 $$").unwrap_err();
        assert!(error.to_string().contains("signal 9"), "{error}");
    }

    #[test]
    fn an_error_inside_is_an_error() {
        let error = run("echo '{\"jobs\":[{\"jobname\":\"a\",\"error\":5}]}'").unwrap_err();
        assert!(error.to_string().contains("job a"), "{error}");
        assert!(run("echo nonsense").is_err());
    }

    #[test]
    fn remarks_become_notes() {
        // Some of what fio says begins with its name already.
        let said = "echo careful >&2; echo 'fio: slow' >&2";
        let results = run(&format!("{said}; echo '{{\"jobs\":[]}}'")).unwrap();
        assert_eq!(results.notes, ["fio: careful", "fio: slow"]);
    }

    #[test]
    fn a_signal_ends_fio_and_what_it_started() {
        let script = "sleep 600 & echo $! > $0.pid; kill -TERM $PPID; wait";
        let _turn = TURNS.lock();
        let (folder, program) = stand_in(script);
        let job = job();
        let interrupts = Interrupts::watch().unwrap();
        let fio = Fio::prepare(&program, &job, String::new()).unwrap();
        let error = fio.run(&interrupts).unwrap_err();
        assert!(
            matches!(error, HostError::Interrupted("SIGTERM")),
            "{error}"
        );
        let pid = std::fs::read_to_string(folder.path().join("fio.pid")).unwrap();
        let path = format!("/proc/{}/stat", pid.trim());
        // It is gone, or a zombie until init reaps it. The signal has been sent but may not have
        // arrived yet.
        let is_dead = || {
            let state = std::fs::read_to_string(&path);
            state.map_or(true, |state| state.contains(") Z "))
        };
        let end = Instant::now() + GRACE;
        while !is_dead() && Instant::now() < end {
            std::thread::sleep(POLL);
        }
        assert!(is_dead());
    }

    #[test]
    fn a_read_only_job_is_run_read_only() {
        let job = job();
        let (_folder, program) = stand_in("");
        let fio = Fio::prepare(&program, &job, String::new()).unwrap();
        assert!(fio.command().contains("--readonly"));
        let mut writes = job.clone();
        writes.jobs[0].pattern = fio::Pattern::Write;
        let fio = Fio::prepare(&program, &writes, String::new()).unwrap();
        assert!(!fio.command().contains("--readonly"));
    }
}
