//! `Results`: what a run of a job produced, in whatever world it ran.

use crate::histogram::Histogram;
use crate::timeline::Timeline;

/// Where a job ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum World {
    /// Virtual time, modelled drive.
    #[default]
    Sim,
    /// Real time, served block device.
    Serve,
    /// A real kernel.
    Host,
}

impl World {
    /// Its name on the command line and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            World::Sim => "sim",
            World::Serve => "serve",
            World::Host => "host",
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
    /// One entry a drive.
    pub disks: Vec<DiskStats>,
    /// One entry a CPU; empty where CPUs cost nothing or are not measured.
    pub cpus: Vec<CpuTimes>,
    /// What CPUs did over time; empty where that is not measured.
    pub cpu_timeline: Vec<CpuSlice>,
    /// Requests on their way through the block layer; `None` where they were
    /// not traced.
    pub requests: Option<RequestStats>,
    /// What happened moment by moment; `None` where nobody asked for it.
    pub timeline: Option<Timeline>,
    /// Things the reader must know about this run.
    pub notes: Vec<String>,
    /// The options of `[global]` as written, in order, for fio's JSON.
    pub global_options: Vec<(String, String)>,
}

/// What fio reports of a job.
#[derive(Clone, Debug, Default)]
pub struct JobResults {
    /// Its `name`.
    pub name: String,
    /// Its `description`.
    pub description: Option<String>,
    /// fio's `groupid`.
    pub group_id: u32,
    /// Index of the first process counted here, from zero over all jobs.
    pub process: u32,
    /// How many processes are summed here (`group_reporting`).
    pub members: u32,
    /// The options of its section as written, in order, for fio's JSON.
    pub options: Vec<(String, String)>,
    /// Reads.
    pub read: DirResults,
    /// Writes.
    pub write: DirResults,
    /// Trims.
    pub trim: DirResults,
    /// `fsync`/`fdatasync` latency.
    pub sync_ns: Histogram,
    /// `fsync`/`fdatasync` calls.
    pub syncs: u64,
    /// Running time of the job in nanoseconds, ramp left out.
    pub runtime_ns: u64,
    /// CPU of its processes.
    pub cpu: CpuStats,
    /// In-flight depth at submission (1, 2, 4, ... 64+).
    pub depth: DepthBuckets,
    /// Requests a submit call.
    pub submit: BatchBuckets,
    /// Completions a reap.
    pub complete: BatchBuckets,
    /// The highest error (errno) a unit of I/O ended with; zero for none.
    pub error: i32,
    /// Units of I/O that ended in an error.
    pub total_errors: u64,
    /// `iodepth` as given.
    pub iodepth: u32,
    /// `percentile_list` as given or fio's default.
    pub percentiles: Vec<f64>,
    /// `latency_target` and friends: the target in nanoseconds, zero for none.
    pub latency_target_ns: u64,
    /// What fio's first line on a job tells; no line where `rw` is empty.
    pub setup: JobSetup,
    /// Its processes one by one, as far as they are known one by one.
    pub processes: Vec<ProcessResults>,
}

impl JobResults {
    /// The running times of all its processes together, in nanoseconds: fio's
    /// `job_runtime`, and what its CPU percentages are of.
    pub fn total_runtime_ns(&self) -> u64 {
        match &self.processes[..] {
            [] => self.runtime_ns,
            each => each.iter().map(|process| process.runtime_ns).sum(),
        }
    }
}

/// One process of a job: what fairness and start-up times are reckoned from.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProcessResults {
    /// The job's `name`.
    pub job: String,
    /// Its number over all jobs, from zero.
    pub process: u32,
    /// Bytes it read, wrote and trimmed.
    pub bytes: u64,
    /// How long it ran in nanoseconds, ramp left out.
    pub runtime_ns: u64,
    /// The share that is due to it against those of others; `None` where its
    /// class has none (real time, idle).
    pub weight: Option<f64>,
    /// It came to the end of its work, where others are stopped by `runtime`
    /// or `exitall`.
    pub finished: bool,
}

impl ProcessResults {
    /// Mean bandwidth in bytes a second.
    pub fn bandwidth(&self) -> f64 {
        rate(self.bytes, self.runtime_ns)
    }
}

/// Jain's index of values that should be equal: 1 where they are, `1/n` where
/// one has all. Zero without values, or with nothing but zeros.
///
/// R. Jain, D. Chiu and W. Hawe, "A quantitative measure of fairness", DEC
/// TR-301, 1984. Weighted: of values divided by their weights.
pub fn jain_index(values: &[f64]) -> f64 {
    let sum: f64 = values.iter().sum();
    let squares: f64 = values.iter().map(|v| v * v).sum();
    if squares == 0.0 {
        return 0.0;
    }
    sum * sum / (values.len() as f64 * squares)
}

/// What fio's first line on a job tells of its options.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobSetup {
    /// `rw` by fio's name for it.
    pub rw: String,
    /// Smallest and largest block in bytes: reads, writes, trims.
    pub block_bytes: [(u64, u64); 3],
    /// `ioengine`.
    pub ioengine: String,
}

/// fio's depth histogram: shares over powers of two.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DepthBuckets {
    /// Counts at 0, 1, 2, 4, 8, 16, 32, 64 and more.
    pub counts: [u64; 8],
}

impl DepthBuckets {
    /// Counts `ios` I/Os submitted together at a depth.
    #[inline]
    pub fn record(&mut self, depth: u32, ios: u64) {
        let slot = match depth {
            0 => 0,
            d => (1 + (31 - d.leading_zeros()) as usize).min(7),
        };
        self.counts[slot] += ios;
    }

    /// Adds another's counts.
    pub fn merge(&mut self, other: &DepthBuckets) {
        self.counts
            .iter_mut()
            .zip(other.counts)
            .for_each(|(a, b)| *a += b);
    }
}

/// fio's batch histogram (`io_u_mark_submit`, `io_u_mark_complete`): its
/// borders are not those of the depths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BatchBuckets {
    /// Counts at 0, 1-4, 5-8, 9-16, 17-32, 33-64 and more.
    pub counts: [u64; 7],
}

impl BatchBuckets {
    /// Counts a batch of `size`.
    #[inline]
    pub fn record(&mut self, size: u32) {
        let slot = match size {
            0 => 0,
            1..=4 => 1,
            5..=8 => 2,
            9..=16 => 3,
            17..=32 => 4,
            33..=64 => 5,
            _ => 6,
        };
        self.counts[slot] += 1;
    }

    /// Adds another's counts.
    pub fn merge(&mut self, other: &BatchBuckets) {
        self.counts
            .iter_mut()
            .zip(other.counts)
            .for_each(|(a, b)| *a += b);
    }
}

/// One direction of a job.
#[derive(Clone, Debug, Default)]
pub struct DirResults {
    /// Units of I/O done.
    pub ios: u64,
    /// Bytes done.
    pub bytes: u64,
    /// Units that ended short or in error.
    pub short_ios: u64,
    /// Submission latency: from when the engine is told to when the kernel has it.
    pub slat_ns: Histogram,
    /// Completion latency: from then to the completion.
    pub clat_ns: Histogram,
    /// Both.
    pub lat_ns: Histogram,
    /// Running time of this direction in nanoseconds.
    pub runtime_ns: u64,
    /// Bandwidth in bytes a second, sampled every half second as fio does.
    pub bw_samples: Sample,
    /// IOPS, sampled likewise.
    pub iops_samples: Sample,
}

impl DirResults {
    /// Mean bandwidth in bytes a second.
    pub fn bandwidth(&self) -> f64 {
        rate(self.bytes, self.runtime_ns)
    }

    /// Mean IOPS.
    pub fn iops(&self) -> f64 {
        rate(self.ios, self.runtime_ns)
    }

    /// Adds the figures of a process that ran beside this one (for
    /// `group_reporting` and totals).
    pub fn merge(&mut self, other: &DirResults) {
        self.ios += other.ios;
        self.bytes += other.bytes;
        self.short_ios += other.short_ios;
        self.slat_ns.merge(&other.slat_ns);
        self.clat_ns.merge(&other.clat_ns);
        self.lat_ns.merge(&other.lat_ns);
        self.runtime_ns = self.runtime_ns.max(other.runtime_ns);
        self.bw_samples.sum_rates(&other.bw_samples);
        self.iops_samples.sum_rates(&other.iops_samples);
    }
}

fn rate(amount: u64, ns: u64) -> f64 {
    if ns == 0 {
        return 0.0;
    }
    amount as f64 * 1e9 / ns as f64
}

/// A running sample: count, mean, deviation, extremes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// Number of samples.
    pub count: u64,
    /// Smallest.
    pub min: f64,
    /// Largest.
    pub max: f64,
    sum: f64,
    sum_squares: f64,
}

impl Sample {
    /// A sample of which only these figures are known; `stddev` is over
    /// `n - 1`, as fio prints it.
    pub fn of_moments(count: u64, min: f64, max: f64, mean: f64, stddev: f64) -> Sample {
        if count == 0 {
            return Sample::default();
        }
        let n = count as f64;
        Sample {
            count,
            min,
            max,
            sum: mean * n,
            sum_squares: stddev * stddev * (n - 1.0) + mean * mean * n,
        }
    }

    /// Counts a value.
    pub fn record(&mut self, value: f64) {
        self.min = if self.count == 0 {
            value
        } else {
            self.min.min(value)
        };
        self.max = if self.count == 0 {
            value
        } else {
            self.max.max(value)
        };
        self.count += 1;
        self.sum += value;
        self.sum_squares += value * value;
    }

    /// The mean; zero without samples.
    pub fn mean(&self) -> f64 {
        if self.count == 0 {
            0.0
        } else {
            self.sum / self.count as f64
        }
    }

    /// The population's standard deviation.
    pub fn stddev(&self) -> f64 {
        if self.count == 0 {
            return 0.0;
        }
        (self.sum_squares / self.count as f64 - self.mean().powi(2))
            .max(0.0)
            .sqrt()
    }

    /// The standard deviation as fio reckons it: of a sample, over `n - 1`.
    pub fn sample_stddev(&self) -> f64 {
        if self.count < 2 {
            return 0.0;
        }
        let n = self.count as f64;
        self.stddev() * (n / (n - 1.0)).sqrt()
    }

    /// Adds a rate sampled over the same time in another process: rates of
    /// processes side by side add up, where [`Sample::merge`] would average
    /// them. Extremes and deviations are reckoned as fio's `sum_stat` does.
    pub fn sum_rates(&mut self, other: &Sample) {
        if self.count == 0 || other.count == 0 {
            return self.merge(other);
        }
        let spread = |s: &Sample| s.sum_squares - s.sum * s.sum / s.count as f64;
        let spread_of_both = spread(self) + spread(other);
        let mean = self.mean() + other.mean();
        self.count += other.count;
        self.min += other.min;
        self.max += other.max;
        self.sum = mean * self.count as f64;
        self.sum_squares = spread_of_both + mean * self.sum;
    }

    /// Adds another's values.
    pub fn merge(&mut self, other: &Sample) {
        if other.count == 0 {
            return;
        }
        self.min = if self.count == 0 {
            other.min
        } else {
            self.min.min(other.min)
        };
        self.max = if self.count == 0 {
            other.max
        } else {
            self.max.max(other.max)
        };
        self.count += other.count;
        self.sum += other.sum;
        self.sum_squares += other.sum_squares;
    }
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
}

/// What all CPUs did in a span of time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuSlice {
    /// When it ended, from the run's start on.
    pub end_ns: u64,
    /// One entry a CPU.
    pub cpus: Vec<CpuTimes>,
}

/// What a CPU's time went to, in nanoseconds, as `/proc/stat` divides it and
/// mpstat shows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTimes {
    /// Programs, those of low priority and guests included.
    pub user_ns: u64,
    /// The kernel on their behalf, spinning on locks included.
    pub system_ns: u64,
    /// Hardware interrupts.
    pub irq_ns: u64,
    /// Softirqs.
    pub softirq_ns: u64,
    /// Nothing, while a process waits for I/O.
    pub iowait_ns: u64,
    /// Taken by the hypervisor.
    pub steal_ns: u64,
    /// Nothing.
    pub idle_ns: u64,
}

impl CpuTimes {
    /// All of it.
    pub fn total_ns(&self) -> u64 {
        let CpuTimes {
            user_ns,
            system_ns,
            irq_ns,
            softirq_ns,
            iowait_ns,
            steal_ns,
            idle_ns,
        } = self;
        user_ns + system_ns + irq_ns + softirq_ns + iowait_ns + steal_ns + idle_ns
    }

    /// Adds another's times.
    pub fn add(&mut self, other: &CpuTimes) {
        self.user_ns += other.user_ns;
        self.system_ns += other.system_ns;
        self.irq_ns += other.irq_ns;
        self.softirq_ns += other.softirq_ns;
        self.iowait_ns += other.iowait_ns;
        self.steal_ns += other.steal_ns;
        self.idle_ns += other.idle_ns;
    }
}

/// Requests on their way through the block layer, as trace events tell it:
/// the split that biosnoop and btt show.
#[derive(Clone, Debug, Default)]
pub struct RequestStats {
    /// Requests by operation, size and process, in that order.
    pub kinds: Vec<RequestKind>,
    /// Requests in the drive when another was issued, that one included.
    pub depth_at_issue: DepthBuckets,
    /// Requests that were merged into others.
    pub merges: u64,
    /// Requests that the driver gave back.
    pub requeues: u64,
    /// Requests that ended in an error.
    pub errors: u64,
    /// Events that the trace is known to have lost.
    pub lost_events: u64,
    /// Completions whose issue is not in the trace; they are in no histogram.
    pub unmatched: u64,
}

/// Requests of one operation, size and process.
#[derive(Clone, Debug, Default)]
pub struct RequestKind {
    /// Index into the block layer's counters: read, write, discard, flush.
    pub op: usize,
    /// The largest size of this class: a power of two; zero for flushes.
    pub up_to_bytes: u64,
    /// The process that inserted or issued them.
    pub process: String,
    /// In the scheduler: from insert to issue.
    pub queued_ns: Histogram,
    /// In the drive: from issue to completion.
    pub drive_ns: Histogram,
    /// Both.
    pub whole_ns: Histogram,
}

/// fio's per-group summary.
#[derive(Clone, Debug, Default)]
pub struct GroupResults {
    /// fio's `groupid`.
    pub group_id: u32,
    /// Reads, summed over its jobs.
    pub read: DirResults,
    /// Writes, likewise.
    pub write: DirResults,
    /// Trims, likewise.
    pub trim: DirResults,
}

/// A drive and the queue before it.
#[derive(Clone, Debug, Default)]
pub struct DiskStats {
    /// The `filename` it stands for.
    pub name: String,
    /// `/sys/block/NAME/stat` and blk-mq's debugfs.
    pub queue: QueueStats,
    /// What the scheduler decided and why.
    pub scheduler: SchedulerStats,
    /// What happened inside the drive.
    pub device: DeviceStats,
    /// What happened when its power was cut, where that was asked for.
    pub power_loss: Option<PowerLoss>,
    /// Time over which all this was counted, in nanoseconds; zero where that
    /// is the whole run.
    pub counted_ns: u64,
}

/// A drive that lost its power during a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PowerLoss {
    /// When, in the run.
    pub at_ns: u64,
    /// When it was ready again: its map read, and what it was writing scanned.
    pub ready_ns: u64,
    /// Requests that were in the drive and ended with an error: reads, writes,
    /// discards, flushes.
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

/// The block layer's counters as the kernel shows them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueStats {
    /// Completed requests: reads, writes, discards, flushes.
    pub ios: [u64; 4],
    /// Bios merged into queued requests, and requests into each other.
    pub merges: [u64; 4],
    /// Sectors completed.
    pub sectors: [u64; 4],
    /// Time requests took in nanoseconds, summed.
    pub ticks_ns: [u64; 4],
    /// Time with at least one request in flight, in nanoseconds.
    pub io_ticks_ns: u64,
    /// In-flight requests times time, in nanoseconds.
    pub time_in_queue_ns: u64,
    /// Requests that failed.
    pub errors: u64,
    /// Requests put back by the driver.
    pub requeues: u64,
    /// One entry a hardware context.
    pub hctx: Vec<HwQueueStats>,
}

/// One hardware context's counters (debugfs `hctxN`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HwQueueStats {
    /// Times the queue was run.
    pub run: u64,
    /// Requests a dispatch: 0, 1, 2-3, 4-7, 8-15, 16-31, 32 and more.
    pub dispatched: [u64; 7],
    /// The busy average at the end.
    pub dispatch_busy: u32,
}

/// What a scheduler tells of its decisions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SchedulerStats {
    /// Named counts, in the order they should be shown.
    pub counters: Vec<Counter>,
}

/// A named count.
#[derive(Clone, Debug, PartialEq)]
pub struct Counter {
    /// What is counted, in words fit for a table head.
    pub name: &'static str,
    /// How many.
    pub value: u64,
}

/// What happened inside a drive.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeviceStats {
    /// Steps of its simulation: what a request costs to simulate goes with them.
    pub events: u64,
    /// One entry a channel.
    pub channels: Vec<ChannelStats>,
    /// Reads whose die or channel was held by a write when they came.
    pub reads_behind_writes: u64,
    /// Time those reads lost to it, in nanoseconds.
    pub reads_behind_writes_ns: u64,
    /// Commands that waited because their channel's bus was taken.
    pub channel_conflicts: u64,
    /// Commands that waited because their die was busy.
    pub die_conflicts: u64,
    /// Pages read from flash.
    pub flash_reads: u64,
    /// Pages programmed.
    pub flash_programs: u64,
    /// Blocks erased.
    pub flash_erases: u64,
    /// Sectors the host wrote.
    pub host_sectors_written: u64,
    /// Sectors of the host's data that were programmed: what it wrote less what
    /// is still in the cache or was overwritten there.
    pub host_sectors_programmed: u64,
    /// Sectors that the host overwrote while they were in the cache, in the page
    /// that was being filled: they never reach the flash.
    pub host_sectors_absorbed: u64,
    /// Sectors programmed, for whatever reason.
    pub flash_sectors_programmed: u64,
    /// One entry a part that executes commands of its own: a die, mostly.
    pub dies: Vec<DieStats>,
    /// Commands that several planes executed as one.
    pub multi_plane_commands: u64,
    /// Programs and erases that were stopped for a read.
    pub suspensions: u64,
    /// Reads that a die began while data of its last was going out.
    pub cache_reads: u64,
    /// Programs whose data went to a die while it was at its last program.
    pub cache_programs: u64,
    /// Pages that collection moved without the channel.
    pub copybacks: u64,
    /// Reads that went before an older one of their die because more others
    /// could join them in a multi-plane command.
    pub reads_packed: u64,
    /// Reads whose command went before data that was ready for the channel.
    pub reads_clumped: u64,
    /// What garbage collection did.
    pub collection: CollectionStats,
    /// Commands fetched under NVMe's arbitration.
    pub fetches: FetchStats,
    /// What the SLC cache did.
    pub slc: SlcStats,
    /// What merges of log blocks did.
    pub merges: MergeStats,
    /// What static wear levelling moved.
    pub levelling: LevellingStats,
    /// How evenly blocks are worn.
    pub wear: WearStats,
    /// Map entries looked up in the map's cache, one for each map unit of a
    /// command; zero where the whole map is in DRAM.
    pub map_lookups: u64,
    /// Those found there: not those whose page was on its way for a neighbour,
    /// so that writing a drive once in order finds none and reads few pages.
    pub map_hits: u64,
    /// Pages of the map read from flash.
    pub map_reads: u64,
    /// Pages of the map programmed.
    pub map_programs: u64,
    /// Those of them that collection of the map's blocks moved.
    pub map_pages_moved: u64,
    /// Blocks of the map erased.
    pub map_erases: u64,
    /// Reads answered from the drive's DRAM.
    pub cache_read_hits: u64,
    /// Times that its power was cut.
    pub power_losses: u64,
    /// Sectors whose last write, acknowledged or not, went with it.
    pub power_loss_sectors: u64,
    /// Those of them of which an acknowledged write went.
    pub power_loss_acknowledged_sectors: u64,
    /// Map units on the flash looked up in an SSD's read cache.
    pub read_cache_lookups: u64,
    /// Those found there.
    pub read_cache_hits: u64,
    /// Map units that the drive read ahead of sequential readers.
    pub read_ahead_units: u64,
    /// Those of them that were then asked for.
    pub read_ahead_units_used: u64,
    /// What a disk's arm, platters and buffer did; `None` where there are none.
    pub arm: Option<ArmStats>,
}

impl DeviceStats {
    /// What the flash programmed for every sector of the host's data that
    /// reached it, as drives' own counters have it; `None` before the first.
    pub fn write_amplification(&self) -> Option<f64> {
        (self.host_sectors_programmed > 0)
            .then(|| self.flash_sectors_programmed as f64 / self.host_sectors_programmed as f64)
    }
}

/// A disk's arm, platters and buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArmStats {
    /// Movements of the arm to another cylinder.
    pub seeks: u64,
    /// Cylinders that it crossed.
    pub seek_cylinders: u64,
    /// Time that this took until the heads had settled, in nanoseconds.
    pub seek_ns: u64,
    /// Changes to another head of the same cylinder.
    pub head_switches: u64,
    /// Time that these took, in nanoseconds.
    pub head_switch_ns: u64,
    /// Times that heads waited for a block to come around.
    pub rotation_waits: u64,
    /// Time that they waited, in nanoseconds.
    pub rotation_ns: u64,
    /// Time in which blocks passed under the heads to be read or written, in
    /// nanoseconds.
    pub transfer_ns: u64,
    /// Times that heads read for a command of the host's.
    pub reads: u64,
    /// Those of them that came as reading ahead was about to reach them.
    pub reads_streamed: u64,
    /// Times that heads wrote, for a command or to empty the buffer.
    pub writes: u64,
    /// Blocks that were read because they were written in part.
    pub blocks_completed: u64,
    /// Sectors that passed under the heads to be read.
    pub sectors_read: u64,
    /// Sectors that passed under the heads to be written.
    pub sectors_written: u64,
    /// Writes that ended in the buffer.
    pub writes_buffered: u64,
    /// Those of them that waited for room.
    pub writes_waited: u64,
    /// Runs written out of the buffer.
    pub destages: u64,
    /// Sectors of these.
    pub sectors_destaged: u64,
    /// Flushes.
    pub flushes: u64,
    /// Time that they took, in nanoseconds.
    pub flush_ns: u64,
}

/// A part of a drive that executes commands of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DieStats {
    /// The channel it is on.
    pub channel: u32,
    /// Commands it executed.
    pub commands: u64,
    /// Time its array worked, in nanoseconds.
    pub busy_ns: u64,
    /// Operations that waited for it times how long, in nanoseconds: over the
    /// time of the run it is the mean length of its queue.
    pub queue_ns: u64,
    /// Most operations that waited at once.
    pub longest_queue: u32,
    /// The same as `busy_ns` for each of its planes.
    pub plane_busy_ns: Vec<u64>,
}

/// Garbage collection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CollectionStats {
    /// Blocks collected.
    pub blocks: u64,
    /// Those of them that still held valid data: writes had crossed their
    /// borders and left a part of them.
    pub blocks_partly_valid: u64,
    /// Sectors of valid data that had to be moved for it.
    pub sectors_moved: u64,
    /// Those of them that went to another plane.
    pub sectors_off_plane: u64,
    /// Those of them that went to another chip.
    pub sectors_off_chip: u64,
    /// Time from the choice of a block to its erasure, summed, in nanoseconds.
    pub busy_ns: u64,
    /// The longest of these.
    pub longest_ns: u64,
    /// Host reads whose die was at work for collection when they came.
    pub reads_behind: u64,
    /// Time that those reads lost to it, in nanoseconds.
    pub reads_behind_ns: u64,
    /// The longest that one of them lost.
    pub longest_read_wait_ns: u64,
    /// Host writes that waited for a free block.
    pub writes_stalled: u64,
    /// Time in which writes waited for a free block, in nanoseconds.
    pub stalled_ns: u64,
    /// The longest of these times.
    pub longest_stall_ns: u64,
}

/// Static wear levelling: all zero where a drive has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LevellingStats {
    /// Blocks that were emptied because they were little worn.
    pub blocks: u64,
    /// Sectors moved for it.
    pub sectors_moved: u64,
}

/// Commands fetched under NVMe's arbitration, by priority class: urgent (or all
/// of them under round robin), high, medium, low. All zero where a drive takes
/// commands as they come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FetchStats {
    /// How many.
    pub commands: [u64; 4],
    /// Time that they waited in their queues, in nanoseconds.
    pub wait_ns: [u64; 4],
}

/// The SLC cache: flash written with one bit a cell. All zero without one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlcStats {
    /// Sectors of the host's that went to it.
    pub sectors_written: u64,
    /// Sectors of the host's that went past it, since it had no room.
    pub sectors_past: u64,
    /// Pages of it that the host read.
    pub pages_read: u64,
    /// Blocks of it that were emptied.
    pub blocks_folded: u64,
    /// Sectors that were moved for that.
    pub sectors_folded: u64,
}

impl SlcStats {
    /// Counts a write of the host's that went to the cache or past it.
    pub fn count_write(&mut self, to_cache: bool, sectors: u64) {
        let counted = match to_cache {
            true => &mut self.sectors_written,
            false => &mut self.sectors_past,
        };
        *counted += sectors;
    }
}

/// Merges of log blocks, where a drive maps blocks: all zero elsewhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MergeStats {
    /// Sequential logs that became data blocks as they were.
    pub switched: u64,
    /// Those that took the rest from the old data block first.
    pub partial: u64,
    /// Data blocks written anew from everywhere.
    pub full: u64,
    /// Sectors that were moved for these.
    pub sectors_moved: u64,
    /// Pages programmed with nothing that anybody needs, to reach later ones.
    pub pages_padded: u64,
    /// Time from the begin of a copying merge to its end, summed over planes,
    /// in nanoseconds.
    pub busy_ns: u64,
    /// The longest of these.
    pub longest_ns: u64,
}

/// Erase counts over all blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WearStats {
    /// The least worn block.
    pub min_erases: u32,
    /// The most worn block.
    pub max_erases: u32,
    /// Mean over all blocks.
    pub mean_erases: f64,
}

/// One channel of a drive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChannelStats {
    /// Reads and writes of pages it carried.
    pub reads: u64,
    /// Page programs it carried.
    pub writes: u64,
    /// Time its bus was taken, in nanoseconds.
    pub bus_busy_ns: u64,
    /// Time at least one of its dies was busy, in nanoseconds.
    pub die_busy_ns: u64,
    /// Dies that waited for its bus times how long, in nanoseconds.
    pub queue_ns: u64,
    /// Most dies that waited at once.
    pub longest_queue: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depths_fall_where_fio_puts_them() {
        let mut depths = DepthBuckets::default();
        [0, 1, 2, 3, 4, 31, 32, 63, 64, u32::MAX]
            .into_iter()
            .for_each(|d| depths.record(d, 1));
        assert_eq!(depths.counts, [1, 1, 2, 1, 0, 1, 2, 2]);
    }

    #[test]
    fn batches_fall_where_fio_puts_them() {
        let mut batches = BatchBuckets::default();
        [0, 1, 4, 5, 8, 9, 16, 17, 32, 33, 64, 65]
            .into_iter()
            .for_each(|n| batches.record(n));
        assert_eq!(batches.counts, [1, 2, 2, 2, 2, 2, 1]);
    }

    #[test]
    fn jain_s_index_is_between_one_and_the_share_of_one() {
        assert_eq!(jain_index(&[]), 0.0);
        assert_eq!(jain_index(&[0.0, 0.0]), 0.0);
        assert!((jain_index(&[5.0, 5.0, 5.0]) - 1.0).abs() < 1e-12);
        assert!((jain_index(&[7.0, 0.0, 0.0, 0.0]) - 0.25).abs() < 1e-12);
        // (1 + 3)^2 / (2 * (1 + 9))
        assert!((jain_index(&[1.0, 3.0]) - 0.8).abs() < 1e-12);
    }

    #[test]
    fn rates_side_by_side_add_up() {
        let mut a = Sample::default();
        let mut b = Sample::default();
        [10.0, 20.0].into_iter().for_each(|v| a.record(v));
        [100.0, 300.0].into_iter().for_each(|v| b.record(v));
        a.sum_rates(&b);
        assert_eq!((a.count, a.min, a.max, a.mean()), (4, 110.0, 320.0, 215.0));
        // S of 50 and 20000, over n - 1.
        assert!((a.sample_stddev() - (20_050.0f64 / 3.0).sqrt()).abs() < 1e-9);
        let mut fresh = Sample::default();
        fresh.sum_rates(&a);
        assert_eq!(fresh, a);
    }

    #[test]
    fn a_sample_of_moments_has_them() {
        let s = Sample::of_moments(4, 1.0, 9.0, 5.0, 2.5);
        assert_eq!((s.count, s.min, s.max, s.mean()), (4, 1.0, 9.0, 5.0));
        assert!((s.sample_stddev() - 2.5).abs() < 1e-12);
        assert_eq!(Sample::of_moments(0, 1.0, 1.0, 1.0, 1.0), Sample::default());
    }

    #[test]
    fn merged_samples_are_as_recorded_together() {
        let (mut a, mut b, mut both) = (Sample::default(), Sample::default(), Sample::default());
        for (i, v) in [3.0, -1.0, 4.0, 1.0, 5.0].into_iter().enumerate() {
            if i < 2 {
                a.record(v)
            } else {
                b.record(v)
            }
            both.record(v);
        }
        a.merge(&b);
        assert_eq!(a, both);
        assert_eq!((a.min, a.max, a.mean()), (-1.0, 5.0, 2.4));
        assert!((a.sample_stddev() - 5.8f64.sqrt()).abs() < 1e-12);
    }
}
