//! One run on another machine: an order goes there, and what was seen comes back.

use std::path::{Path, PathBuf};
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

/// How long a drive may take until the kernel has found it.
const DRIVE_LIMIT: Duration = Duration::from_secs(10);
const DRIVE_POLL: Duration = Duration::from_millis(5);

/// What is to be run there.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Order {
    device: PathBuf,
    /// The job as fio gets it, the device in it.
    job: String,
    queue: QueueSettings,
    trace: bool,
}

/// What comes back.
#[derive(Debug, Serialize, Deserialize)]
pub enum Reply {
    /// It ran.
    Observed(Box<Observed>),
    /// It could not: why, and whether the user can mend it.
    Failed {
        /// What `HostError` says.
        message: String,
        /// What [`HostError::is_mistake`] says.
        is_mistake: bool,
    },
}

impl Order {
    /// Runs a job once on a device of the other machine, with its queue set so.
    ///
    /// # Errors
    /// Where the job cannot be put on one drive.
    pub fn new(
        job: &JobFile,
        device: &Path,
        queue: &QueueSettings,
        trace: bool,
    ) -> Result<Order, HostError> {
        Ok(Order {
            device: device.to_path_buf(),
            job: on_device(job, device)?,
            queue: queue.clone(),
            trace,
        })
    }

    /// As it goes to the other machine.
    ///
    /// # Errors
    /// Where a name in it is no text.
    pub fn to_json(&self) -> Result<Vec<u8>, HostError> {
        serde_json::to_vec(self).map_err(|e| HostError::Unfit(format!("the order: {e}")))
    }

    /// Carries out an order as it came, and answers as [`Reply::from_json`] reads.
    ///
    /// # Errors
    /// Where it is none.
    pub fn answer_json(order: &[u8]) -> Result<Vec<u8>, HostError> {
        let wrong = |e: serde_json::Error| HostError::Unfit(format!("not an order: {e}"));
        let order: Order = serde_json::from_slice(order).map_err(wrong)?;
        serde_json::to_vec(&order.answer()).map_err(wrong)
    }

    /// Carries it out on this machine, whose drives hold nobody's data.
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
        let found = Instant::now() + DRIVE_LIMIT;
        while !self.device.exists() && Instant::now() < found {
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

impl Reply {
    /// Reads what came back.
    ///
    /// # Errors
    /// Where it is no reply; the message says where.
    pub fn from_json(reply: &[u8]) -> Result<Reply, String> {
        serde_json::from_slice(reply).map_err(|e| e.to_string())
    }

    /// The results of the job that was ordered.
    ///
    /// # Errors
    /// Where it did not run.
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
        // A device that is there and is none.
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
