//! `Results`: what a run of a job produced, in whatever world it ran.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::cgroup::{CgroupStats, CostRate};
use crate::cpu::{CpuSlice, CpuTimes};
use crate::device::DeviceStats;
use crate::fact::{Fact, Place, Unit, Value};
use crate::io_log::IoLog;
use crate::job::{GroupResults, JobResults};
use crate::page_cache::CacheStats;
use crate::queue::{QueueStats, RequestStats, SchedulerStats, by_operation};
use crate::slowest::Slowest;
use crate::timeline::Timeline;
use crate::traced_request::TracedRequests;

/// Where a job ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum World {
    /// Virtual time, modelled drive.
    #[default]
    Sim,
    /// Real time, served block device.
    Serve,
    /// This machine's own kernel and a drive of it.
    Host,
    /// A real kernel in a virtual machine, on a drive's model in real time.
    Guest,
}

impl World {
    /// Its name on the command line and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            World::Sim => "sim",
            World::Serve => "serve",
            World::Host => "host",
            World::Guest => "guest",
        }
    }
}

/// One run of a job under one scheduler.
#[derive(Clone, Debug, Default)]
pub struct Results {
    /// The world.
    pub world: World,
    /// The scheduler's name.
    pub scheduler: String,
    /// The drive description's name.
    pub drive: String,
    /// The machine description's name.
    pub machine: String,
    /// The seed that repeats the run.
    pub seed: u64,
    /// The job file's name as the user gave it.
    pub job: String,
    /// How long it took, ramp included, in nanoseconds.
    pub elapsed_ns: u64,
    /// One entry a job process, or a group where the job asks for that.
    pub jobs: Vec<JobResults>,
    /// One entry a reporting group (fio's "Run status").
    pub groups: Vec<GroupResults>,
    /// The logs of the processes whose jobs write any.
    pub logs: Vec<IoLog>,
    /// One entry a drive.
    pub disks: Vec<DiskStats>,
    /// One entry a CPU; empty where CPUs cost nothing or are not measured.
    pub cpus: Vec<CpuTimes>,
    /// What CPUs did over time; empty where that is not measured.
    pub cpu_timeline: Vec<CpuSlice>,
    /// What the page cache did; `None` where all I/O was direct or it is not measured.
    pub page_cache: Option<CacheStats>,
    /// Requests on their way through the block layer; `None` where they were
    /// not traced.
    pub requests: Option<RequestStats>,
    /// What happened moment by moment; `None` unless asked for.
    pub timeline: Option<Timeline>,
    /// Where its slowest requests spent their time; `None` unless asked for.
    pub slowest: Option<Slowest>,
    /// Its requests one by one; `None` unless asked for.
    pub traced_requests: Option<TracedRequests>,
    /// Things the reader must know about this run.
    pub notes: Vec<String>,
    /// The options of `[global]` as written, in order, for fio's JSON.
    pub global_options: Vec<(String, String)>,
}

impl Results {
    /// The name of the job that each submitter is a process of.
    pub fn jobs_of_submitters(&self) -> BTreeMap<u32, &str> {
        let processes = self.jobs.iter().flat_map(|job| &job.processes);
        let named = processes.map(|process| (process.process, process.job.as_str()));
        named.collect()
    }

    /// Whether a drive lost its power in it.
    pub fn lost_power(&self) -> bool {
        self.disks.iter().any(|disk| disk.power_loss.is_some())
    }

    /// The time over which it counted, in nanoseconds: what a ramp did is forgotten.
    pub fn counted_ns(&self) -> f64 {
        let disks = self.disks.iter();
        let longest_ns = disks.map(|disk| disk.counted_in_ns(self.elapsed_ns)).max();
        longest_ns.unwrap_or(self.elapsed_ns).max(1) as f64
    }
}

/// A drive and the queue before it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct DiskStats {
    /// The `filename` it stands for.
    pub name: String,
    /// Time over which all this was counted, in nanoseconds; zero where that
    /// is the whole run.
    pub counted_ns: u64,
    /// `/sys/block/NAME/stat` and blk-mq's debugfs.
    pub queue: QueueStats,
    /// What the scheduler decided and why.
    pub scheduler: SchedulerStats,
    /// What happened inside the drive.
    pub device: DeviceStats,
    /// What happened when its power was cut, where that was asked for.
    pub power_loss: Option<PowerLoss>,
    /// What throttling did to each control group; empty where there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cgroups: Vec<CgroupStats>,
    /// The rate of the cost model's time, where that is on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_rate: Option<CostRate>,
}

impl DiskStats {
    /// Time over which it counted in a run that took `elapsed_ns`, in nanoseconds.
    pub fn counted_in_ns(&self, elapsed_ns: u64) -> u64 {
        match self.counted_ns {
            0 => elapsed_ns,
            counted_ns => counted_ns,
        }
    }
}

/// A drive that lost its power during a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PowerLoss {
    /// When, in the run.
    pub at_ns: u64,
    /// When it was ready again: its map read, and what it was writing scanned.
    pub ready_ns: u64,
    /// Requests that were in the drive and ended with an error: reads, writes,
    /// discards, flushes.
    #[serde(serialize_with = "by_operation")]
    pub failed: [u64; 4],
    /// Sectors that writes had acknowledged until then.
    pub acknowledged_sectors: u64,
    /// Flushes that had ended until then.
    pub flushes: u64,
    /// Sectors whose last write, acknowledged or not, went.
    pub lost_sectors: u64,
    /// Those of them of which an acknowledged write went: it was neither
    /// flushed nor programmed yet.
    pub lost_acknowledged_sectors: u64,
}

/// What a loss of power cost.
pub(crate) fn power_loss_facts() -> [Fact; 3] {
    let fact = |key, unit, label, meaning, of| Fact {
        place: Place::Drive,
        key,
        label,
        unit,
        meaning,
        value: Value::Sum(of),
    };
    [
        fact(
            "power_loss_requests",
            Unit::Count,
            "requests that a loss of power ended",
            "Requests that were in the drive when its power was cut.",
            |disk| Some(disk.power_loss.as_ref()?.failed.iter().sum()),
        ),
        fact(
            "power_loss_lost_acknowledged_sectors",
            Unit::Count,
            "acknowledged sectors that went with it",
            "Sectors whose write had been acknowledged and was lost.",
            |disk| Some(disk.power_loss.as_ref()?.lost_acknowledged_sectors),
        ),
        fact(
            "power_loss_ready_ns",
            Unit::Nanoseconds,
            "time until the drive was ready again",
            "Time from the loss of power until the drive had read its map.",
            |disk| {
                let loss = disk.power_loss.as_ref()?;
                Some(loss.ready_ns - loss.at_ns)
            },
        ),
    ]
}
