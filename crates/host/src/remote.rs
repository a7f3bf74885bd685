//! A run on another machine: an order is sent there, and the measurements are returned.

use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use blklab_stats::{Results, World};
use blklab_workload::fio::{self, JobFile};
use serde::{Deserialize, Serialize};

use crate::disk::Disk;
use crate::error::HostError;
use crate::fio_job::on_device;
use crate::interrupt::Interrupts;
use crate::measurement::{Measurement, Observed};
use crate::queue::{Queue, QueueSettings, RealFiles};
use crate::system::System;

/// How long the kernel may take to find a drive.
const DRIVE_LIMIT: Duration = Duration::from_secs(10);
const DRIVE_POLL: Duration = Duration::from_millis(5);

/// The run to be done.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Order {
    device: PathBuf,
    /// Shell commands that make the device.
    before: Option<String>,
    /// The job file for fio, with the device.
    job: String,
    queue: QueueSettings,
    trace: bool,
}

/// Reply to an order.
#[derive(Debug, Serialize, Deserialize)]
pub enum Reply {
    /// Measurements of the run.
    Observed(Box<Observed>),
    /// The run failed.
    Failed {
        /// Text of the error.
        message: String,
        /// Result of [`HostError::is_mistake`].
        is_mistake: bool,
    },
}

impl Order {
    /// Returns the order to run a job once on a device of the other machine, with these queue
    /// settings.
    ///
    /// # Errors
    /// If the job cannot run on a single drive.
    pub fn new(
        job: &JobFile,
        device: &Path,
        queue: &QueueSettings,
        trace: bool,
    ) -> Result<Order, HostError> {
        Ok(Order {
            device: device.to_path_buf(),
            before: None,
            job: on_device(job, device)?,
            queue: queue.clone(),
            trace,
        })
    }

    /// Adds shell commands that run first and make the device.
    #[must_use]
    pub fn after(self, commands: String) -> Order {
        Order {
            before: Some(commands),
            ..self
        }
    }

    /// Serializes the order.
    ///
    /// # Errors
    /// If a path is not valid UTF-8.
    pub fn to_json(&self) -> Result<Vec<u8>, HostError> {
        serde_json::to_vec(self).map_err(|e| HostError::Unfit(format!("the order: {e}")))
    }

    /// Carries out a serialized order and returns the reply for [`Reply::from_json`].
    ///
    /// # Errors
    /// If it is not a valid order.
    pub fn answer_json(order: &[u8]) -> Result<Vec<u8>, HostError> {
        let wrong = |e: serde_json::Error| HostError::Unfit(format!("not an order: {e}"));
        let order: Order = serde_json::from_slice(order).map_err(wrong)?;
        serde_json::to_vec(&order.answer()).map_err(wrong)
    }

    /// Carries out the order on this machine, whose drives contain no user data.
    fn answer(&self) -> Reply {
        match self.observe() {
            Ok(observed) => Reply::Observed(Box::new(observed)),
            Err(error) => Reply::Failed {
                is_mistake: error.is_mistake(),
                message: error.to_string(),
            },
        }
    }

    fn observe(&self) -> Result<Observed, HostError> {
        let system = System::default();
        if let Some(commands) = &self.before {
            make_device(commands)?;
        }
        let is_there = || match Disk::find(&system, &self.device) {
            // The kernel makes a drive's file before its queue.
            Ok(disk) => disk.folder(&system).join("queue/scheduler").exists(),
            Err(_) => self.device.exists(),
        };
        let found = Instant::now() + DRIVE_LIMIT;
        while !is_there() && Instant::now() < found {
            std::thread::sleep(DRIVE_POLL);
        }
        let disk = Disk::find(&system, &self.device)?;
        let device = self.device.display().to_string();
        let queue = Queue::new(RealFiles, device, disk.folder(&system));
        queue.check(&self.queue)?;
        let measurement = Measurement {
            system,
            disk,
            trace: self.trace,
            file_system: None,
        };
        let no_includes = |_: &str, _: &str| Err("nothing is included".to_string());
        let job = fio::parse_str("the job", &self.job, &|_| None, &no_includes);
        let job = job.map_err(|error| HostError::Unfit(error.to_string()))?;
        let fio = measurement.prepare(&job, Path::new("fio"))?;
        let interrupts = Interrupts::watch()?;
        measurement.observe(&queue, &self.queue, &fio, &interrupts)
    }
}

/// Runs shell commands that make a device. The processes that they start keep the output
/// open, so it is a file and not a pipe.
fn make_device(commands: &str) -> Result<(), HostError> {
    let failed = |e: std::io::Error| HostError::io("make the device", "/bin/sh", e);
    let mut said = tempfile::tempfile().map_err(failed)?;
    let status = Command::new("sh")
        .args(["-c", commands])
        .stdin(Stdio::null())
        .stdout(said.try_clone().map_err(failed)?)
        .stderr(said.try_clone().map_err(failed)?)
        .status()
        .map_err(failed)?;
    if status.success() {
        return Ok(());
    }
    let mut text = String::new();
    said.rewind().map_err(failed)?;
    said.read_to_string(&mut text).map_err(failed)?;
    Err(HostError::Unfit(format!(
        "the device cannot be made: {}",
        text.trim()
    )))
}

impl Reply {
    /// Parses a serialized reply.
    ///
    /// # Errors
    /// If it is not a valid reply; the message says where.
    pub fn from_json(reply: &[u8]) -> Result<Reply, String> {
        serde_json::from_slice(reply).map_err(|e| e.to_string())
    }

    /// Returns the results of the ordered job.
    ///
    /// # Errors
    /// If it did not run.
    pub fn results(self, job: &JobFile) -> Result<Results, HostError> {
        match self {
            Reply::Observed(observed) => Ok(Results {
                world: World::Guest,
                ..observed.results(job)?
            }),
            Reply::Failed {
                message,
                is_mistake: true,
            } => Err(HostError::Unfit(message)),
            Reply::Failed { message, .. } => Err(HostError::Fio(message)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_that_cannot_be_carried_out_comes_back_with_its_reason() {
        let text = "[a]\nfilename=/dev/x\nrw=randread\nsize=1m\n";
        let no_includes = |_: &str, _: &str| Err("no includes".to_string());
        let job = fio::parse_str("t.fio", text, &|_| None, &no_includes).expect("a job");
        let queue = QueueSettings::default();
        // A device that exists but is not a drive.
        let order = Order::new(&job, Path::new("/dev/null"), &queue, false).expect("an order");
        assert!(order.job.contains("filename=/dev/null"), "{}", order.job);
        let order = order.to_json().expect("JSON");
        let reply = Order::answer_json(&order).expect("a reply");
        let reply = Reply::from_json(&reply).expect("a reply");
        let error = reply.results(&job).expect_err("it is no drive");
        assert!(error.is_mistake());
        assert!(error.to_string().contains("not a block device"), "{error}");
    }
}
