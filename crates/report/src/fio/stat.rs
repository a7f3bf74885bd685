//! The figures that fio derives from its counters (`stat.c`), for its text and its JSON.

use std::collections::BTreeMap;

use blklab_stats::{
    BatchBuckets, DepthBuckets, DirResults, DiskStats, JobResults, Sample, Summary,
};

/// Upper bounds of fio's latency classes within a unit.
pub(crate) const LATENCY_CLASSES: [u64; 10] = [2, 4, 10, 20, 50, 100, 250, 500, 750, 1000];

/// The shares of all I/O in fio's latency classes, in percent.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct LatencyShares {
    pub ns: [f64; 10],
    pub us: [f64; 10],
    /// This unit has two more classes: up to 2000, and above.
    pub ms: [f64; 12],
}

impl LatencyShares {
    /// Classifies the completion latencies of all directions. A value within a
    /// thousandth below a class's bound may count in the next class.
    pub fn of(job: &JobResults) -> LatencyShares {
        let mut shares = LatencyShares::default();
        for dir in directions(job) {
            for (ns, count) in dir.clat_ns.bars() {
                *shares.class_of(ns) += count as f64;
            }
        }
        let total = total_ios(job) as f64;
        let all = shares.ns.iter_mut().chain(&mut shares.us);
        for share in all.chain(&mut shares.ms) {
            *share = percent_at_least(*share, total, 0.01);
        }
        shares
    }

    fn class_of(&mut self, ns: u64) -> &mut f64 {
        let within = |value| LATENCY_CLASSES.partition_point(|end| *end <= value);
        match ns {
            0..1_000 => &mut self.ns[within(ns)],
            1_000..1_000_000 => &mut self.us[within(ns / 1_000)],
            _ => match ns / 1_000_000 {
                ms if ms < 1000 => &mut self.ms[within(ms)],
                ms if ms < 2000 => &mut self.ms[10],
                _ => &mut self.ms[11],
            },
        }
    }
}

/// Returns the directions of a job in fio's order.
pub(crate) fn directions(job: &JobResults) -> [&DirResults; 3] {
    [&job.read, &job.write, &job.trim]
}

/// Returns the number of I/Os of all directions.
pub(crate) fn total_ios(job: &JobResults) -> u64 {
    directions(job).iter().map(|dir| dir.ios).sum()
}

/// Returns the shares in percent at depths 1, 2, 4, 8, 16, 32 and more.
pub(crate) fn depth_shares(job: &JobResults) -> [f64; 7] {
    let DepthBuckets { counts } = &job.depth;
    // fio has no class for depth zero and counts it as one.
    let mut merged = [0; 7];
    merged.copy_from_slice(&counts[1..]);
    merged[0] += counts[0];
    let total = total_ios(job) as f64;
    merged.map(|count| percent_at_least(count as f64, total, 0.1))
}

/// Returns the shares in percent of batches of 0, up to 4, 8, 16, 32, 64 and more.
pub(crate) fn batch_shares(batches: &BatchBuckets) -> [f64; 7] {
    let total = batches.counts.iter().sum::<u64>() as f64;
    batches
        .counts
        .map(|count| percent_at_least(count as f64, total, 0.1))
}

/// Returns a share in percent; a count above zero is shown as at least `least`.
fn percent_at_least(count: f64, total: f64, least: f64) -> f64 {
    if count == 0.0 || total == 0.0 {
        return 0.0;
    }
    (count * 100.0 / total).max(least)
}

/// Returns user and system CPU time in percent of the processes' running time.
pub(crate) fn cpu_percent(job: &JobResults) -> (f64, f64) {
    let share = |ns: u64| match job.total_runtime_ns() {
        0 => 0.0,
        runtime_ns => ns as f64 * 100.0 / runtime_ns as f64,
    };
    (share(job.cpu.user_ns), share(job.cpu.system_ns))
}

/// Returns the share of the counted time, a run without its ramp, in which the drive was
/// busy, in percent. fio's own results only have the length of the run.
pub(crate) fn disk_util_percent(disk: &DiskStats, elapsed_ns: u64) -> f64 {
    let counted_ns = disk.counted_in_ns(elapsed_ns);
    if counted_ns == 0 {
        return 0.0;
    }
    (disk.queue.io_ticks_ns as f64 * 100.0 / counted_ns as f64).min(100.0)
}

/// Converts to milliseconds, rounded up as fio does for running times.
pub(crate) fn msec(ns: u64) -> u64 {
    ns.div_ceil(1_000_000)
}

/// A sampled rate of fio: bandwidth in KiB/s, or IOPS.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Rate {
    pub min: u64,
    pub max: u64,
    pub mean: f64,
    pub stddev: f64,
    pub samples: u64,
}

impl Rate {
    /// Converts a sample, with its unit divided by `divisor`.
    pub fn of(sample: &Sample, divisor: f64) -> Rate {
        Rate {
            min: (sample.min / divisor) as u64,
            max: (sample.max / divisor) as u64,
            mean: sample.mean() / divisor,
            stddev: sample.sample_stddev() / divisor,
            samples: sample.count,
        }
    }
}

/// Returns the sampled bandwidth in percent of the group's, which fio caps at 100.
pub(crate) fn percent_of_group(mean_kib: f64, group_bytes_per_second: u64) -> f64 {
    if group_bytes_per_second <= 1024 {
        return 100.0;
    }
    (mean_kib.trunc() * 100.0 / (group_bytes_per_second as f64 / 1024.0)).min(100.0)
}

/// The sums of a direction over a reporting group, for "Run status".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct GroupRate {
    pub bytes: u64,
    /// The group's bytes divided by its longest running time.
    pub bandwidth: u64,
    pub min_bandwidth: u64,
    pub max_bandwidth: u64,
    pub min_runtime_ns: u64,
    pub max_runtime_ns: u64,
}

impl GroupRate {
    /// Sums a direction over the jobs of a group; `None` if none ran.
    pub fn of<'a>(dirs: impl Iterator<Item = &'a DirResults>) -> Option<GroupRate> {
        let mut sum: Option<GroupRate> = None;
        for dir in dirs.filter(|dir| dir.runtime_ns > 0 && dir.bytes > 0) {
            let bandwidth = dir.bandwidth() as u64;
            let sum = sum.get_or_insert(GroupRate {
                min_bandwidth: u64::MAX,
                min_runtime_ns: u64::MAX,
                ..GroupRate::default()
            });
            sum.bytes += dir.bytes;
            sum.min_bandwidth = sum.min_bandwidth.min(bandwidth);
            sum.max_bandwidth = sum.max_bandwidth.max(bandwidth);
            sum.min_runtime_ns = sum.min_runtime_ns.min(dir.runtime_ns);
            sum.max_runtime_ns = sum.max_runtime_ns.max(dir.runtime_ns);
        }
        if let Some(sum) = &mut sum {
            sum.bandwidth = (sum.bytes as f64 * 1e9 / sum.max_runtime_ns as f64) as u64;
        }
        sum
    }
}

/// The sums of every group's reads, writes and trims.
pub(crate) struct GroupRates(BTreeMap<u32, [Option<GroupRate>; 3]>);

impl GroupRates {
    /// Sums all groups at once: for each job anew it would take long where there are many.
    pub fn of(jobs: &[JobResults]) -> GroupRates {
        let mut groups: BTreeMap<u32, Vec<&JobResults>> = BTreeMap::new();
        for job in jobs {
            groups.entry(job.group_id).or_default().push(job);
        }
        let rates = |jobs: &Vec<&JobResults>| {
            let of_direction = |at: usize| jobs.iter().map(move |job| directions(job)[at]);
            [0, 1, 2].map(|at| GroupRate::of(of_direction(at)))
        };
        GroupRates(groups.iter().map(|(id, jobs)| (*id, rates(jobs))).collect())
    }

    /// Returns a group's sums in fio's order; `None` where nothing ran.
    pub fn of_group(&self, id: u32) -> [Option<GroupRate>; 3] {
        self.0.get(&id).copied().unwrap_or_default()
    }
}

/// A summary of latencies in the unit in which fio shows it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ScaledLatency {
    pub unit: &'static str,
    pub min: u64,
    pub max: u64,
    pub mean: f64,
    pub stddev: f64,
}

impl ScaledLatency {
    /// Picks the largest unit that preserves the smallest value and the deviation.
    pub fn of(summary: &Summary) -> ScaledLatency {
        let stddev = summary.sample_stddev_ns();
        let fits = |ns: u64| {
            summary.min_ns > 2 * ns && summary.max_ns > 100 * ns - 1 && stddev > ns as f64
        };
        let (unit, ns) = match () {
            () if fits(1_000_000) => ("msec", 1_000_000),
            () if fits(1_000) => ("usec", 1_000),
            () => ("nsec", 1),
        };
        ScaledLatency {
            unit,
            min: summary.min_ns / ns,
            max: summary.max_ns / ns,
            mean: summary.mean_ns / ns as f64,
            stddev: stddev / ns as f64,
        }
    }
}

/// Returns a job's valid percentiles in ascending order, as fio lists them.
pub(crate) fn percentile_list(job: &JobResults) -> Vec<f64> {
    let mut list: Vec<f64> = job.percentiles.clone();
    list.retain(|p| *p > 0.0 && *p <= 100.0);
    list.sort_by(f64::total_cmp);
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_fall_into_fios_classes() {
        let mut job = JobResults::default();
        for ns in [1, 999, 1_000, 99_900, 100_000, 1_990_000, 2_500_000_000] {
            job.read.clat_ns.record(ns);
            job.read.ios += 1;
        }
        let shares = LatencyShares::of(&job);
        let one = 100.0 / 7.0;
        assert_eq!((shares.ns[0], shares.ns[9]), (one, one));
        // 1 us is in class "2", 99.9 us in "100", 100 us in "250".
        assert_eq!(shares.us[0], one);
        assert_eq!((shares.us[5], shares.us[6]), (one, one));
        assert_eq!((shares.ms[0], shares.ms[11]), (one, one));
    }

    #[test]
    fn the_least_share_still_shows() {
        let mut job = JobResults::default();
        job.read.ios = 1_000_000;
        job.depth.counts = [1, 0, 0, 0, 999_999, 0, 0, 0];
        let shares = depth_shares(&job);
        assert_eq!(shares[0], 0.1);
        assert!((shares[3] - 99.9999).abs() < 1e-9);
    }

    #[test]
    fn a_group_ends_with_its_last_job() {
        let job = |bytes, runtime_ns| DirResults {
            bytes,
            runtime_ns,
            ..DirResults::default()
        };
        let jobs = [
            job(1000, 1_000_000_000),
            job(3000, 2_000_000_000),
            job(0, 0),
        ];
        let rate = GroupRate::of(jobs.iter()).unwrap();
        assert_eq!((rate.bytes, rate.bandwidth), (4000, 2000));
        assert_eq!((rate.min_bandwidth, rate.max_bandwidth), (1000, 1500));
        assert_eq!(GroupRate::of([].iter()), None);
    }

    #[test]
    fn groups_are_summed_apart() {
        let job = |group_id, bytes| {
            let mut job = JobResults {
                group_id,
                ..JobResults::default()
            };
            (job.read.bytes, job.read.runtime_ns) = (bytes, 1_000_000_000);
            job
        };
        let jobs = [job(0, 1000), job(1, 2000), job(0, 4000)];
        let groups = GroupRates::of(&jobs);
        let of_zero = [&jobs[0], &jobs[2]].into_iter().map(|job| &job.read);
        assert_eq!(groups.of_group(0), [GroupRate::of(of_zero), None, None]);
        assert_eq!(groups.of_group(1)[0].map(|sum| sum.bytes), Some(2000));
        assert_eq!(groups.of_group(2), [None; 3]);
    }
}
