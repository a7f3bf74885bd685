//! `Results`: the results of one run, the same for every world.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use serde::Serialize;

use crate::cgroup::{CgroupStats, CostRate};
use crate::cpu::{CpuSlice, CpuTimes};
use crate::device::DeviceStats;
use crate::fact::{Fact, Place, Unit, Value};
use crate::histogram::Histogram;
use crate::io_log::IoLog;
use crate::job::{GroupResults, JobResults};
use crate::page_cache::CacheStats;
use crate::queue::{QueueStats, RequestStats, SchedulerStats, by_operation};
use crate::slowest::Slowest;
use crate::timeline::Timeline;
use crate::traced_request::TracedRequests;

/// The world where a job ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum World {
    /// A simulation in virtual time.
    #[default]
    Sim,
    /// A served block device, in real time.
    Serve,
    /// This machine's kernel with one of its drives.
    Host,
    /// A real kernel in a virtual machine, on a drive's model in real time.
    Guest,
}

impl World {
    /// Returns the name on the command line and in reports.
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
    /// The world where it ran.
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
    /// The run's length, ramp included, in nanoseconds.
    pub elapsed_ns: u64,
    /// One entry for each process, or for each group of a job with `group_reporting`.
    pub jobs: Vec<JobResults>,
    /// One entry for each reporting group (fio's "Run status").
    pub groups: Vec<GroupResults>,
    /// The logs of the processes whose jobs write any.
    pub logs: Vec<IoLog>,
    /// One entry for each drive.
    pub disks: Vec<DiskStats>,
    /// One entry for each CPU; empty if CPUs are free or not measured.
    pub cpus: Vec<CpuTimes>,
    /// CPU times over time; empty if not measured.
    pub cpu_timeline: Vec<CpuSlice>,
    /// Counters of the page cache; `None` if all I/O was direct or the cache was not
    /// measured.
    pub page_cache: Option<CacheStats>,
    /// Times of requests in scheduler and drive; `None` if not traced.
    pub requests: Option<RequestStats>,
    /// All events in order of time; `None` unless requested.
    pub timeline: Option<Timeline>,
    /// Where the slowest requests spent their time; `None` unless requested.
    pub slowest: Option<Slowest>,
    /// The requests one by one; `None` unless requested.
    pub traced_requests: Option<TracedRequests>,
    /// How much later requests ended than the drive's model said, in nanoseconds; `None` where
    /// no model was served in real time.
    pub pacing_lateness_ns: Option<Histogram>,
    /// Notes for the reader.
    pub notes: Vec<String>,
    /// The options of `[global]` as written, in order, for fio's JSON.
    pub global_options: Vec<(String, String)>,
}

impl Results {
    /// Returns the job of each submitter.
    pub fn jobs_of_submitters(&self) -> BTreeMap<u32, &str> {
        let processes = self.jobs.iter().flat_map(|job| &job.processes);
        let named = processes.map(|process| (process.process, process.job.as_str()));
        named.collect()
    }

    /// Returns whether a drive lost its power during the run.
    pub fn lost_power(&self) -> bool {
        self.disks.iter().any(|disk| disk.power_loss.is_some())
    }

    /// Returns the time that the counters cover, in nanoseconds; ramps are left out.
    pub fn counted_ns(&self) -> f64 {
        let disks = self.disks.iter();
        let longest_ns = disks.map(|disk| disk.counted_in_ns(self.elapsed_ns)).max();
        longest_ns.unwrap_or(self.elapsed_ns).max(1) as f64
    }
}

/// The counters of a drive and its queue.
#[derive(Clone, Debug, Default, Serialize)]
pub struct DiskStats {
    /// The drive's `filename` in the job.
    pub name: String,
    /// The time that the counters cover, in nanoseconds; 0 for the whole run.
    pub counted_ns: u64,
    /// The counters of `/sys/block/NAME/stat` and blk-mq's debugfs.
    pub queue: QueueStats,
    /// The scheduler's own counters.
    pub scheduler: SchedulerStats,
    /// Counters of the drive's model.
    pub device: DeviceStats,
    /// The loss of the drive's power, if the run had one.
    pub power_loss: Option<PowerLoss>,
    /// Counters of throttling by control group; empty without groups.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cgroups: Vec<CgroupStats>,
    /// The time of a front end's servers, if the drive is behind one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<ServerTimes>,
    /// The vrate of `io.cost`, if that is on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_rate: Option<CostRate>,
}

impl DiskStats {
    /// Returns the time that the counters cover in a run of `elapsed_ns`, in
    /// nanoseconds.
    pub fn counted_in_ns(&self, elapsed_ns: u64) -> u64 {
        match self.counted_ns {
            0 => elapsed_ns,
            counted_ns => counted_ns,
        }
    }
}

/// What the threads of a front end's server spent CPU time on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ServerTimes {
    /// Receiving requests from the kernel, in nanoseconds.
    pub receive_ns: u64,
    /// Carrying requests out, in nanoseconds.
    pub serve_ns: u64,
    /// Answering the kernel, in nanoseconds.
    pub reply_ns: u64,
}

impl ServerTimes {
    /// The facts on a server.
    pub(crate) fn facts() -> [Fact; 1] {
        [Fact {
            place: Place::Drive,
            key: "server_reply_share",
            label: "server's CPU time in answering",
            unit: Unit::Share,
            meaning: "The share of the server's CPU time in which it answered the kernel, such as \
                      in `uio_write` for TCMU.",
            value: Value::Quotient(
                |disk| Some(disk.server?.reply_ns),
                |disk| {
                    let times = disk.server?;
                    Some(times.receive_ns + times.serve_ns + times.reply_ns)
                },
            ),
        }]
    }
}

/// The loss of a drive's power during a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PowerLoss {
    /// The time of the loss in the run, in nanoseconds.
    pub at_ns: u64,
    /// The time at which the drive was ready again, after it had read its map and
    /// scanned the blocks that it was writing, in nanoseconds.
    pub ready_ns: u64,
    /// Requests that were in the drive and failed, by operation.
    #[serde(serialize_with = "by_operation")]
    pub failed: [u64; 4],
    /// Sectors of writes that had been acknowledged before.
    pub acknowledged_sectors: u64,
    /// Flushes that had ended before.
    pub flushes: u64,
    /// Sectors whose last write, acknowledged or not, was lost.
    pub lost_sectors: u64,
    /// Those of the lost sectors whose lost write had been acknowledged: it was neither
    /// flushed nor programmed.
    pub lost_acknowledged_sectors: u64,
}

/// Returns the facts on a loss of power.
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
            "Requests that were in the drive at its loss of power.",
            |disk| Some(disk.power_loss.as_ref()?.failed.iter().sum()),
        ),
        fact(
            "power_loss_lost_acknowledged_sectors",
            Unit::Count,
            "acknowledged sectors that went with it",
            "Sectors of acknowledged writes that were lost.",
            |disk| Some(disk.power_loss.as_ref()?.lost_acknowledged_sectors),
        ),
        fact(
            "power_loss_ready_ns",
            Unit::Nanoseconds,
            "time until the drive was ready again",
            "Time from the loss of power until the drive had read its map and was ready.",
            |disk| {
                let loss = disk.power_loss.as_ref()?;
                Some(loss.ready_ns - loss.at_ns)
            },
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worlds_have_the_names_of_the_command_line() {
        let worlds = [World::Sim, World::Serve, World::Host, World::Guest];
        assert_eq!(worlds.map(World::name), ["sim", "serve", "host", "guest"]);
    }

    #[test]
    fn a_submitter_s_job_is_that_of_its_process() {
        let process = |process, job: &str| crate::ProcessResults {
            job: job.to_string(),
            process,
            ..crate::ProcessResults::default()
        };
        let job = |processes| JobResults {
            processes,
            ..JobResults::default()
        };
        let run = Results {
            jobs: vec![
                job(vec![process(0, "a"), process(1, "a")]),
                job(vec![process(2, "b")]),
            ],
            ..Results::default()
        };
        let jobs: Vec<_> = run.jobs_of_submitters().into_iter().collect();
        assert_eq!(jobs, [(0, "a"), (1, "a"), (2, "b")]);
    }

    /// A drive whose counters begin after the ramp says so; without drives all of the run counts.
    #[test]
    fn the_counted_time_is_the_longest_of_the_drives() {
        let disk = |counted_ns| DiskStats {
            counted_ns,
            ..DiskStats::default()
        };
        let mut run = Results {
            elapsed_ns: 900,
            ..Results::default()
        };
        assert_eq!(run.counted_ns(), 900.0);
        run.disks = vec![disk(600), disk(700)];
        assert_eq!(run.counted_ns(), 700.0);
        run.disks.push(disk(0));
        assert_eq!(run.counted_ns(), 900.0);
        assert_eq!(Results::default().counted_ns(), 1.0);
    }
}
