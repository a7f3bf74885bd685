//! The results that fio reports of a job, its processes and its reporting group.

use alloc::string::String;
use alloc::vec::Vec;

use crate::buckets::{BatchBuckets, DepthBuckets};
use crate::calls::CallTimes;
use crate::histogram::Histogram;
use crate::sample::Sample;
use crate::steady_state::SteadyState;

/// fio's default percentiles, in percent (`percentile_list`).
pub const DEFAULT_PERCENTILES: [f64; 17] = [
    1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95,
    99.99,
];

/// The latencies whose percentiles are shown: `slat_percentiles`, `clat_percentiles` and
/// `lat_percentiles`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LatencyPercentiles {
    /// Whether those of submission latency are shown.
    pub slat: bool,
    /// Whether those of completion latency are shown.
    pub clat: bool,
    /// Whether those of total latency are shown.
    pub lat: bool,
}

impl Default for LatencyPercentiles {
    /// Returns fio's default: completion latency only.
    fn default() -> LatencyPercentiles {
        LatencyPercentiles {
            slat: false,
            clat: true,
            lat: false,
        }
    }
}

/// The results that fio reports of a job.
#[derive(Clone, Debug, Default)]
pub struct JobResults {
    /// The job's `name`.
    pub name: String,
    /// The job's `description`.
    pub description: Option<String>,
    /// fio's `groupid`.
    pub group_id: u32,
    /// The number of the first process counted here, from 0 over all jobs.
    pub process: u32,
    /// The number of processes summed here.
    pub members: u32,
    /// Whether fio adds it to the previous job of its group (`group_reporting`).
    pub group_reporting: bool,
    /// The options of its section as written, in order, for fio's JSON.
    pub options: Vec<(String, String)>,
    /// Reads.
    pub read: DirResults,
    /// Writes.
    pub write: DirResults,
    /// Trims.
    pub trim: DirResults,
    /// Latencies of `fsync` and `fdatasync` calls.
    pub sync_ns: Histogram,
    /// Number of `fsync` and `fdatasync` calls.
    pub syncs: u64,
    /// Number of zones that the job reset.
    pub zone_resets: u64,
    /// Running time of the job in nanoseconds, without ramp.
    pub runtime_ns: u64,
    /// CPU use of the job's processes.
    pub cpu: CpuStats,
    /// I/Os in flight at submission (1, 2, 4, ... 64 and more).
    pub depth: DepthBuckets,
    /// I/Os of each submit call.
    pub submit: BatchBuckets,
    /// Completions of each reaping call.
    pub complete: BatchBuckets,
    /// The first error (errno) that an I/O ended with; zero for none.
    pub error: i32,
    /// I/Os that ended in an error.
    pub total_errors: u64,
    /// `percentile_list` as given or fio's default.
    pub percentiles: Vec<f64>,
    /// The latencies whose percentiles are shown.
    pub percentiles_of: LatencyPercentiles,
    /// When the last I/O was due, in nanoseconds from the start, if each has a time of its own: an
    /// open replay.
    pub last_arrival_ns: Option<u64>,
    /// `latency_target` and what came of it.
    pub latency_target: LatencyTarget,
    /// `steadystate`: the figures that could end the job.
    pub steady_state: Option<SteadyState>,
    /// The options in fio's first line on a job; there is no line if `rw` is empty.
    pub setup: JobSetup,
    /// The job's processes, if they are known one by one.
    pub processes: Vec<ProcessResults>,
    /// The times of the job's calls by kind, if it is a list of calls.
    pub calls: Vec<CallTimes>,
}

/// `latency_target`, and the depth that it came to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LatencyTarget {
    /// The latency to stay below in nanoseconds, zero for none.
    pub target_ns: u64,
    /// `latency_window` in microseconds.
    pub window_us: u64,
    /// The percentage of I/Os that stay below the target in a window that succeeds.
    pub percentile: f64,
    /// The last depth; `iodepth` without a target.
    pub depth: u32,
}

impl LatencyTarget {
    /// No target, at that depth.
    pub fn none(depth: u32) -> LatencyTarget {
        LatencyTarget {
            depth,
            ..LatencyTarget::default()
        }
    }
}

impl Default for LatencyTarget {
    fn default() -> LatencyTarget {
        LatencyTarget {
            target_ns: 0,
            window_us: 0,
            percentile: 100.0,
            depth: 0,
        }
    }
}

impl JobResults {
    /// Returns the running times of all processes together, in nanoseconds: fio's
    /// `job_runtime`, the basis of its CPU percentages.
    pub fn total_runtime_ns(&self) -> u64 {
        match &self.processes[..] {
            [] => self.runtime_ns,
            each => each.iter().map(|process| process.runtime_ns).sum(),
        }
    }

    /// Returns the calls of `fsync` and `fdatasync` as the I/Os of a direction, of which fio counts
    /// those that have a latency. Their time is the job's.
    pub fn sync_results(&self) -> DirResults {
        DirResults {
            ios: self.sync_ns.count(),
            lat_ns: self.sync_ns.clone(),
            runtime_ns: self.runtime_ns,
            ..DirResults::default()
        }
    }

    /// Returns how long after its last I/O was due an open replay ended, in nanoseconds.
    pub fn lateness_ns(&self) -> Option<u64> {
        let last_ns = self.last_arrival_ns?;
        Some(self.runtime_ns.saturating_sub(last_ns))
    }

    /// Adds another process of the same group (`group_reporting`). Name and options stay
    /// those of the first.
    pub fn merge(&mut self, other: &JobResults) {
        let JobResults {
            name: _,
            description: _,
            group_id: _,
            process: _,
            members,
            group_reporting: _,
            options: _,
            read,
            write,
            trim,
            sync_ns,
            syncs,
            zone_resets,
            runtime_ns,
            cpu,
            depth,
            submit,
            complete,
            error,
            total_errors,
            percentiles: _,
            percentiles_of: _,
            last_arrival_ns,
            latency_target: _,
            steady_state,
            setup: _,
            processes,
            calls,
        } = other;
        self.members += members;
        self.read.merge(read);
        self.write.merge(write);
        self.trim.merge(trim);
        self.sync_ns.merge(sync_ns);
        self.syncs += syncs;
        self.zone_resets += zone_resets;
        self.runtime_ns = self.runtime_ns.max(*runtime_ns);
        self.last_arrival_ns = self.last_arrival_ns.max(*last_arrival_ns);
        self.cpu.add(cpu);
        self.depth.merge(depth);
        self.submit.merge(submit);
        self.complete.merge(complete);
        self.error = if self.error == 0 { *error } else { self.error };
        self.total_errors += total_errors;
        self.steady_state = self.steady_state.take().or(steady_state.clone());
        self.processes.extend_from_slice(processes);
        self.calls.extend_from_slice(calls);
    }
}

/// One process of a job, from which fairness and start-up times are computed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProcessResults {
    /// The job's `name`.
    pub job: String,
    /// The process's number over all jobs, from 0.
    pub process: u32,
    /// Bytes that it read, wrote and trimmed.
    pub bytes: u64,
    /// Its running time in nanoseconds, without ramp.
    pub runtime_ns: u64,
    /// The weight of its share of the drive; `None` for classes without one (real time,
    /// idle).
    pub weight: Option<f64>,
    /// Whether it completed its work, and was not stopped by `runtime` or `exitall`.
    pub finished: bool,
    /// Whether an error ended it early.
    pub failed: bool,
    /// The number of its I/Os.
    pub ios: u64,
    /// The mean latency of its I/Os in nanoseconds.
    pub latency_mean_ns: f64,
    /// The longest latency of its I/Os in nanoseconds.
    pub latency_max_ns: u64,
}

impl ProcessResults {
    /// Sets bytes, number and latencies from those of its reads, writes and trims.
    pub fn with_io(self, directions: [&DirResults; 3]) -> ProcessResults {
        let mut latency = Histogram::new();
        for dir in directions {
            latency.merge(dir.latency());
        }
        let bytes = directions.map(|dir| dir.bytes);
        ProcessResults {
            bytes: bytes.into_iter().fold(0, u64::saturating_add),
            ios: latency.count(),
            latency_mean_ns: latency.summary().mean_ns,
            latency_max_ns: latency.summary().max_ns,
            ..self
        }
    }

    /// Returns the mean bandwidth in bytes a second.
    pub fn bandwidth(&self) -> f64 {
        rate(self.bytes, self.runtime_ns)
    }
}

/// The options in fio's first line on a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobSetup {
    /// `rw`, by fio's name.
    pub rw: String,
    /// Smallest and largest block in bytes: reads, writes, trims.
    pub block_bytes: [(u64, u64); 3],
    /// `ioengine`.
    pub ioengine: String,
    /// `iodepth`.
    pub iodepth: u32,
    /// Whether the job is of the idle class, which gets what others leave (`prioclass=3`).
    pub is_idle_class: bool,
}

/// One direction of a job.
#[derive(Clone, Debug, Default)]
pub struct DirResults {
    /// I/Os done.
    pub ios: u64,
    /// Bytes done.
    pub bytes: u64,
    /// I/Os that ended short or in error.
    pub short_ios: u64,
    /// Submission latency: from the engine's call until the kernel has the I/O.
    pub slat_ns: Histogram,
    /// Completion latency: from submission to completion.
    pub clat_ns: Histogram,
    /// Total latency.
    pub lat_ns: Histogram,
    /// Running time of this direction in nanoseconds.
    pub runtime_ns: u64,
    /// Bandwidth in bytes a second, sampled every half second as fio does.
    pub bw_samples: Sample,
    /// IOPS, sampled every half second.
    pub iops_samples: Sample,
}

impl DirResults {
    /// Returns the mean bandwidth in bytes a second.
    pub fn bandwidth(&self) -> f64 {
        rate(self.bytes, self.runtime_ns)
    }

    /// Returns the total latency, because schedulers also differ in how long submission
    /// waits for a tag; the completion latency in worlds that measure nothing else.
    pub fn latency(&self) -> &Histogram {
        match self.lat_ns.is_empty() {
            true => &self.clat_ns,
            false => &self.lat_ns,
        }
    }

    /// Returns the mean IOPS.
    pub fn iops(&self) -> f64 {
        rate(self.ios, self.runtime_ns)
    }

    /// Adds the results of a process that ran at the same time (for `group_reporting`
    /// and totals).
    pub fn merge(&mut self, other: &DirResults) {
        let DirResults {
            ios,
            bytes,
            short_ios,
            slat_ns,
            clat_ns,
            lat_ns,
            runtime_ns,
            bw_samples,
            iops_samples,
        } = other;
        self.ios += ios;
        self.bytes += bytes;
        self.short_ios += short_ios;
        self.slat_ns.merge(slat_ns);
        self.clat_ns.merge(clat_ns);
        self.lat_ns.merge(lat_ns);
        self.runtime_ns = self.runtime_ns.max(*runtime_ns);
        self.bw_samples.sum_rates(bw_samples);
        self.iops_samples.sum_rates(iops_samples);
    }
}

fn rate(amount: u64, ns: u64) -> f64 {
    if ns == 0 {
        return 0.0;
    }
    amount as f64 * 1e9 / ns as f64
}

/// CPU use of a job's processes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CpuStats {
    /// User time in nanoseconds.
    pub user_ns: u64,
    /// System time in nanoseconds.
    pub system_ns: u64,
    /// Context switches.
    pub context_switches: u64,
    /// Faults on mapped files.
    pub faults: PageFaults,
}

/// Page faults of a job's processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageFaults {
    /// Those that waited for a page.
    pub major: u64,
    /// Those whose page was in memory.
    pub minor: u64,
}

impl PageFaults {
    /// Adds another's.
    pub fn add(&mut self, other: &PageFaults) {
        let PageFaults { major, minor } = other;
        self.major += major;
        self.minor += minor;
    }
}

impl CpuStats {
    /// Adds another's use.
    pub fn add(&mut self, other: &CpuStats) {
        let CpuStats {
            user_ns,
            system_ns,
            context_switches,
            faults,
        } = other;
        self.user_ns += user_ns;
        self.system_ns += system_ns;
        self.context_switches += context_switches;
        self.faults.add(faults);
    }
}

/// fio's per-group summary.
#[derive(Clone, Debug, Default)]
pub struct GroupResults {
    /// fio's `groupid`.
    pub group_id: u32,
    /// Reads, summed over its jobs.
    pub read: DirResults,
    /// Writes, summed over its jobs.
    pub write: DirResults,
    /// Trims, summed over its jobs.
    pub trim: DirResults,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A replay is late by what it ran beyond its last arrival; one that waits for each I/O before
    /// the next has no arrivals, and one whose last I/O was not awaited is not late.
    #[test]
    fn a_replay_is_late_from_its_last_arrival_on() {
        let late = |last_arrival_ns| {
            let job = JobResults {
                runtime_ns: 5_000,
                last_arrival_ns,
                ..JobResults::default()
            };
            job.lateness_ns()
        };
        let found = [None, Some(4_200), Some(5_000), Some(6_000)].map(late);
        assert_eq!(found, [None, Some(800), Some(0), Some(0)]);
    }

    #[test]
    fn rates_are_of_the_time_that_was_measured() {
        let mut read = DirResults {
            ios: 10,
            bytes: 40_960,
            ..DirResults::default()
        };
        assert_eq!((read.iops(), read.bandwidth()), (0.0, 0.0));
        read.runtime_ns = 500_000_000;
        assert_eq!((read.iops(), read.bandwidth()), (20.0, 81_920.0));
    }

    #[test]
    fn a_process_has_the_io_of_all_directions() {
        let direction = |bytes, latency_ns| {
            let mut dir = DirResults {
                bytes,
                ..DirResults::default()
            };
            dir.lat_ns.record(latency_ns);
            dir
        };
        let process = ProcessResults {
            job: "x".to_string(),
            runtime_ns: 1_000_000_000,
            ..ProcessResults::default()
        };
        let (read, write) = (direction(4096, 100), direction(512, 300));
        let process = process.with_io([&read, &write, &DirResults::default()]);
        assert_eq!((process.job.as_str(), process.ios), ("x", 2));
        assert_eq!((process.bytes, process.bandwidth()), (4608, 4608.0));
        assert_eq!(
            (process.latency_mean_ns, process.latency_max_ns),
            (200.0, 300)
        );
    }

    #[test]
    fn io_of_two_processes_adds_up_and_the_longer_time_counts() {
        let of = |ios, runtime_ns| {
            let mut dir = DirResults {
                ios,
                bytes: 4096 * ios,
                short_ios: ios / 2,
                runtime_ns,
                ..DirResults::default()
            };
            for n in 0..ios {
                dir.slat_ns.record(10 + n);
                dir.clat_ns.record(20 + n);
                dir.lat_ns.record(30 + n);
            }
            dir
        };
        let mut sum = of(6, 50);
        sum.merge(&of(4, 70));
        sum.merge(&of(2, 60));
        assert_eq!((sum.ios, sum.bytes, sum.short_ios), (12, 49_152, 6));
        assert_eq!(sum.runtime_ns, 70);
        let latencies = [&sum.slat_ns, &sum.clat_ns, &sum.lat_ns];
        assert_eq!(latencies.map(Histogram::count), [12; 3]);
        assert_eq!(latencies.map(|lat| lat.summary().max_ns), [15, 25, 35]);
    }

    #[test]
    fn processes_of_a_group_add_up_and_the_longest_time_counts() {
        let of = |runtime_ns, error| JobResults {
            members: 1,
            syncs: 3,
            runtime_ns,
            error,
            total_errors: 5,
            ..JobResults::default()
        };
        let mut sum = of(20, 0);
        sum.merge(&of(30, 28));
        sum.merge(&of(10, 5));
        assert_eq!((sum.members, sum.syncs, sum.total_errors), (3, 9, 15));
        assert_eq!((sum.runtime_ns, sum.error), (30, 28));
    }

    #[test]
    fn a_job_s_time_is_its_processes_if_they_are_known() {
        let process = |runtime_ns| ProcessResults {
            runtime_ns,
            ..ProcessResults::default()
        };
        let mut job = JobResults {
            runtime_ns: 70,
            ..JobResults::default()
        };
        assert_eq!(job.total_runtime_ns(), 70);
        job.processes = vec![process(70), process(50)];
        assert_eq!(job.total_runtime_ns(), 120);
    }

    /// All that a job counts is summed; what describes it stays that of the first.
    #[test]
    fn merging_jobs_adds_every_count() {
        let dir = |ios| DirResults {
            ios,
            ..DirResults::default()
        };
        let of = |n: u64| {
            let mut job = JobResults {
                name: format!("job{n}"),
                members: 2,
                read: dir(n),
                write: dir(10 * n),
                trim: dir(100 * n),
                syncs: 7,
                zone_resets: n + 4,
                cpu: CpuStats {
                    user_ns: 30 * n,
                    system_ns: 20 * n,
                    context_switches: 10 * n,
                    faults: PageFaults {
                        major: n,
                        minor: 100 * n,
                    },
                },
                processes: vec![ProcessResults::default()],
                calls: vec![CallTimes::new("read")],
                ..JobResults::default()
            };
            job.sync_ns.record(n);
            job.depth.record(1, n);
            job.submit.record(1);
            job.complete.record(1);
            job
        };
        let mut sum = of(2);
        sum.merge(&of(3));
        assert_eq!((sum.name.as_str(), sum.members, sum.syncs), ("job2", 4, 14));
        assert_eq!((sum.read.ios, sum.write.ios, sum.trim.ios), (5, 50, 500));
        assert_eq!((sum.zone_resets, sum.sync_ns.count()), (13, 2));
        let cpu = CpuStats {
            user_ns: 150,
            system_ns: 100,
            context_switches: 50,
            faults: PageFaults {
                major: 5,
                minor: 500,
            },
        };
        assert_eq!(sum.cpu, cpu);
        assert_eq!(sum.depth.counts[1], 5);
        assert_eq!((sum.submit.counts[1], sum.complete.counts[1]), (2, 2));
        assert_eq!((sum.processes.len(), sum.calls.len()), (2, 2));
    }

    /// Counts and times of both add up, and the longer runtime counts.
    #[test]
    fn merging_directions_adds_every_count() {
        let of = |n: u64| {
            let mut dir = DirResults {
                ios: n,
                bytes: 10 * n,
                short_ios: 100 * n,
                runtime_ns: 1000 * n,
                ..DirResults::default()
            };
            (0..n).for_each(|_| dir.slat_ns.record(1));
            (0..2 * n).for_each(|_| dir.clat_ns.record(1));
            (0..3 * n).for_each(|_| dir.lat_ns.record(1));
            dir
        };
        for (a, b) in [(3, 5), (5, 3), (0, 4), (4, 0)] {
            let mut sum = of(a);
            sum.merge(&of(b));
            let n = a + b;
            assert_eq!((sum.ios, sum.bytes, sum.short_ios), (n, 10 * n, 100 * n));
            let [slat, clat, lat] = [&sum.slat_ns, &sum.clat_ns, &sum.lat_ns].map(|h| h.count());
            assert_eq!((slat, clat, lat), (n, 2 * n, 3 * n));
            assert_eq!(sum.runtime_ns, 1000 * a.max(b));
        }
    }
}
