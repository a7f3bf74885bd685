//! A job's settings in typed form, in one unit each, with fio's defaults filled in.

use std::borrow::Cow;
use std::sync::Arc;

use blklab_stats::{JobSetup, LatencyPercentiles, LogSetup, SteadyState};

use crate::calls::RangeSync;

use super::cgroup_write::CgroupWrite;
use super::direction::{ByDirection, Direction};
use super::engine::Engine;
use super::error::{Fault, JobError, Note, Position};
use super::iolog::{Iolog, ReplayOptions};
use super::units::Extent;
use super::verify::VerifyOptions;

/// A whole job file: all files and command line options that were read, in order.
#[derive(Clone, Debug, PartialEq)]
pub struct JobFile {
    /// The job file as given by the user, or `command line`.
    pub name: String,
    /// The jobs in the order written, with `numjobs` not expanded.
    pub jobs: Vec<JobSpec>,
    /// The paths of control groups from a separate file; each follows its ancestors.
    pub cgroups: Vec<String>,
    /// The values to write to the groups' files, in order.
    pub cgroup_writes: Vec<CgroupWrite>,
    /// Remarks for the user.
    pub notes: Vec<Note>,
    /// The options of all `[global]` sections, by fio's names, in the order fio applies them.
    pub global_options: Vec<(String, String)>,
}

impl JobFile {
    /// Returns the same jobs without logs of each I/O.
    pub fn without_logs(&self) -> Cow<'_, JobFile> {
        if !self.jobs.iter().any(|spec| spec.logs.is_any()) {
            return Cow::Borrowed(self);
        }
        let mut job = self.clone();
        let logs = job.jobs.iter_mut().map(|spec| &mut spec.logs);
        logs.for_each(|logs| *logs = LogSetup::default());
        Cow::Owned(job)
    }
}

/// `rw=`: the pattern of a job's I/O.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Pattern {
    /// `read`: sequential reads.
    #[default]
    Read,
    /// `write`: sequential writes.
    Write,
    /// `trim`: sequential trims.
    Trim,
    /// `randread`: random reads.
    RandRead,
    /// `randwrite`: random writes.
    RandWrite,
    /// `randtrim`: random trims.
    RandTrim,
    /// `rw`, `readwrite`: sequential reads and writes mixed.
    ReadWrite,
    /// `randrw`: random reads and writes mixed.
    RandReadWrite,
    /// `trimwrite`: each block is trimmed, then written, in sequence.
    TrimWrite,
    /// `randtrimwrite`: each block is trimmed, then written, at random.
    RandTrimWrite,
}

impl Pattern {
    /// The patterns with fio's words for them; of two words the first is the name.
    const NAMED: [(&'static str, Pattern); 11] = [
        ("read", Pattern::Read),
        ("write", Pattern::Write),
        ("trim", Pattern::Trim),
        ("randread", Pattern::RandRead),
        ("randwrite", Pattern::RandWrite),
        ("randtrim", Pattern::RandTrim),
        ("rw", Pattern::ReadWrite),
        ("readwrite", Pattern::ReadWrite),
        ("randrw", Pattern::RandReadWrite),
        ("trimwrite", Pattern::TrimWrite),
        ("randtrimwrite", Pattern::RandTrimWrite),
    ];

    /// All words for patterns.
    pub(crate) const WORDS: [&'static str; Pattern::NAMED.len()] = {
        let mut words = [""; Pattern::NAMED.len()];
        let mut n = 0;
        while n < words.len() {
            words[n] = Pattern::NAMED[n].0;
            n += 1;
        }
        words
    };

    /// Returns the pattern of a word.
    pub(crate) fn named(word: &str) -> Option<Pattern> {
        let found = Pattern::NAMED.iter().find(|(known, _)| *known == word);
        found.map(|(_, pattern)| *pattern)
    }

    /// Returns fio's name for the pattern.
    pub fn name(self) -> &'static str {
        let found = Pattern::NAMED.iter().find(|(_, pattern)| *pattern == self);
        found.map_or("", |(word, _)| word)
    }

    /// Whether addresses are random.
    pub const fn is_random(self) -> bool {
        matches!(
            self,
            Pattern::RandRead
                | Pattern::RandWrite
                | Pattern::RandTrim
                | Pattern::RandReadWrite
                | Pattern::RandTrimWrite
        )
    }

    /// Whether the pattern has I/O in `direction`.
    pub const fn does(self, direction: Direction) -> bool {
        use Pattern::*;
        match direction {
            Direction::Read => matches!(self, Read | RandRead | ReadWrite | RandReadWrite),
            Direction::Write => !matches!(self, Read | RandRead | Trim | RandTrim),
            Direction::Trim => matches!(self, Trim | RandTrim | TrimWrite | RandTrimWrite),
        }
    }

    /// Whether reads and writes are mixed by `rwmixread`.
    pub const fn is_mixed(self) -> bool {
        matches!(self, Pattern::ReadWrite | Pattern::RandReadWrite)
    }
}

/// `rw_sequencer=`: the offsets between two random ones (`rw=randread:8`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Sequencer {
    /// They continue from the random offset.
    #[default]
    Sequential,
    /// They repeat the offset.
    Identical,
}

/// The block sizes of one direction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct BlockSizes {
    /// The smallest, in bytes.
    pub min_bytes: u64,
    /// The largest, in bytes.
    pub max_bytes: u64,
    /// `bssplit`: sizes in bytes with their share in percent, by rising
    /// share; empty where sizes are drawn evenly between min and max.
    pub split: Vec<(u64, u32)>,
}

/// A distribution in which some blocks or files are more popular than others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Popularity {
    /// The shape of the distribution.
    pub curve: PopularityCurve,
    /// The position of the most popular block or file, as a share of all; `None`: random.
    pub center: Option<f64>,
}

/// The shape of a [`Popularity`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PopularityCurve {
    /// A Zipf distribution.
    Zipf {
        /// The exponent theta; not 1.
        theta: f64,
    },
    /// A Pareto distribution.
    Pareto {
        /// The parameter h, between 0 and 1.
        h: f64,
    },
    /// A normal distribution.
    Normal {
        /// The standard deviation in percent of all blocks or files, 0 to 100.
        deviation_percent: f64,
    },
}

/// `random_distribution=`: the distribution of random offsets over a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Distribution {
    /// A uniform distribution.
    #[default]
    Random,
    /// A distribution by popularity.
    Popularity(Popularity),
    /// `zoned`: percentages of accesses for percentages of the file.
    Zoned(ByDirection<Vec<Zone>>),
    /// `zoned_abs`: percentages of accesses for ranges in bytes.
    ZonedAbsolute(ByDirection<Vec<Zone>>),
}

/// A range of a zoned distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Zone {
    /// The percentage of the I/O that goes to this range.
    pub access_percent: u32,
    /// The length of the range: in percent of the file for `zoned`, in bytes for `zoned_abs`.
    pub size: u64,
}

/// `random_generator=`. The addresses always come from this program's own generator; `lfsr` visits
/// each block once per pass even with `norandommap`, as in fio.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum RandomGenerator {
    /// `tausworthe`.
    #[default]
    Tausworthe,
    /// `lfsr`.
    Lfsr,
    /// `tausworthe64`.
    Tausworthe64,
}

/// `file_service_type=`: the choice of the next file.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum FileService {
    /// The files in turn.
    #[default]
    RoundRobin,
    /// Each file until it is finished.
    Sequential,
    /// A uniformly random file.
    Random,
    /// A distribution by popularity over the files.
    Popularity(Popularity),
}

/// `sync=`: the flags with which files are opened for writing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SyncMode {
    /// Neither flag.
    #[default]
    None,
    /// `O_SYNC`: data and metadata are durable when a write returns.
    Sync,
    /// `O_DSYNC`: data is durable when a write returns.
    Dsync,
}

/// `sync_file_range=`: its flags and its interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FileRangeSync {
    /// The flags of the call.
    pub what: RangeSync,
    /// The number of writes between calls; 0: never.
    pub every: u32,
}

impl FileRangeSync {
    /// Adds `wait_before,write:8`; the list may be given in parts.
    pub(crate) fn add(&mut self, text: &str) {
        for part in text.split(',') {
            let (word, every) = part.split_once(':').unwrap_or((part, ""));
            match word.trim() {
                "wait_before" => self.what.wait_before = true,
                "write" => self.what.write = true,
                _ => self.what.wait_after = true,
            }
            self.every = every.trim().parse().unwrap_or(self.every);
        }
    }
}

/// `fadvise_hint=`: the advice given to the kernel about the use of files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FadviseHint {
    /// No advice.
    None,
    /// Random or sequential, according to the job's pattern.
    #[default]
    ByPattern,
    /// Random.
    Random,
    /// Sequential.
    Sequential,
}

/// `fallocate=`: the allocation of a file that is not laid out, before it is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Fallocate {
    /// No allocation.
    None,
    /// `fallocate`, if the file system supports it.
    #[default]
    Native,
    /// `posix_fallocate`, which writes to each block if the file system does not support
    /// `fallocate`.
    Posix,
    /// `fallocate` that leaves the file's length as it is; the only kind whose failure fio
    /// counts as one of the job (`fallocate_file`).
    Keep,
    /// `ftruncate`, which sets the length only.
    Truncate,
}

/// `zonemode=`: how a job uses zones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ZoneMode {
    /// `none`: not at all.
    #[default]
    None,
    /// `strided`: `zonesize` bytes in one range, then on to the next.
    Strided,
    /// `zbd`: writes keep to the write pointers of a zoned drive's zones.
    Zoned,
}

/// `zonemode` and related options.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ZoneOptions {
    /// `zonemode`.
    pub mode: ZoneMode,
    /// `zonesize`: for `strided` the bytes to transfer in a zone, for `zbd` its size; 0: not given.
    pub size_bytes: u64,
    /// `zonerange`: the length of a zone for `strided`, in bytes.
    pub range_bytes: u64,
    /// `zonecapacity`: what of a zone can be written on a drive without zones, in bytes; 0: all.
    pub capacity_bytes: u64,
    /// `zoneskip`: what lies between two zones.
    pub skip: Extent,
    /// `read_beyond_wp`: reads need no data.
    pub read_beyond_wp: bool,
    /// `max_open_zones`: the most zones to write to at once, for all jobs; 0: the drive's limit.
    pub max_open: u32,
    /// `job_max_open_zones`: the same for a process; 0: no limit.
    pub job_max_open: u32,
    /// `ignore_zone_limits`: the drive's limit does not count.
    pub ignore_limits: bool,
    /// `zone_reset_threshold`: the share of the job's part that holds data from which zones are
    /// reset.
    pub reset_threshold: f64,
    /// `zone_reset_frequency`: the share of the writes before which a zone is reset then.
    pub reset_frequency: f64,
}

impl ZoneOptions {
    /// `zoneskip` in bytes.
    pub fn skip_bytes(&self) -> u64 {
        match self.skip {
            Extent::Bytes(bytes) => bytes,
            Extent::Zones(zones) => u64::from(zones).saturating_mul(self.size_bytes),
            Extent::Percent(_) => 0,
        }
    }
}

/// `rate_process=`: the arrival process of a job with a rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum RateProcess {
    /// At even intervals.
    #[default]
    Linear,
    /// As a Poisson process.
    Poisson,
}

/// `thinktime` and related options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ThinkTime {
    /// The duration of a pause, in microseconds; 0: no pauses.
    pub pause_us: u64,
    /// The part of a pause that keeps the CPU busy, in microseconds; at most `pause_us`.
    pub spin_us: u64,
    /// The number of blocks between pauses.
    pub blocks: u32,
    /// Whether `thinktime_blocks` was given.
    pub blocks_given: bool,
    /// Whether blocks count when they are issued instead of when they complete.
    pub count_issues: bool,
    /// The time of I/O between pauses, in microseconds; 0: no such rule.
    pub io_time_us: u64,
    /// Whether the rate continues during pauses (`rate_ignore_thinktime`).
    pub rate_ignores: bool,
}

/// An I/O priority as fio takes it: class 0 none, 1 real time, 2 best effort,
/// 3 idle; level 0 (highest) to 7.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Priority {
    /// The class, 0 to 3.
    pub class: u8,
    /// The level, 0 to 7.
    pub level: u8,
}

/// A share of the I/Os with a priority of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CommandPrioritySplit {
    /// The size of these I/Os, in bytes; `None`: any.
    pub block_bytes: Option<u64>,
    /// The percentage of the I/Os of this size.
    pub percent: u32,
    /// The priority of these I/Os.
    pub priority: Priority,
}

/// `unified_rw_reporting=`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum UnifiedReporting {
    /// Each direction separately.
    #[default]
    None,
    /// All directions together.
    Mixed,
    /// Both separately and together.
    Both,
}

/// `latency_target` and related options.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LatencyTarget {
    /// The latency to stay below, in microseconds.
    pub target_us: u64,
    /// The duration of the measuring window, in microseconds.
    pub window_us: u64,
    /// The percentage of I/Os that must stay below the target.
    pub percentile: f64,
    /// Whether to keep adjusting the depth (`latency_run`).
    pub keep_running: bool,
}

impl Default for LatencyTarget {
    fn default() -> LatencyTarget {
        LatencyTarget {
            target_us: 0,
            window_us: 0,
            percentile: 100.0,
            keep_running: false,
        }
    }
}

/// `flow` and related options: processes that keep their I/Os in proportion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FlowOptions {
    /// `flow_id`: processes of the same number keep a proportion.
    pub id: u32,
    /// `flow`: the weight of each process of the job; 0: it is in no flow.
    pub weight: u32,
    /// `flow_sleep`, in microseconds: how long a process that is ahead sleeps; 0: it spins.
    pub sleep_us: u32,
}

/// `steadystate` and related options: a job ends when its figures no longer change.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SteadyStateOptions {
    /// Whether bandwidth is judged and not IOPS.
    pub of_bandwidth: bool,
    /// Whether the slope of a line through the figures is judged, and not the largest distance of
    /// one of them from their mean.
    pub by_slope: bool,
    /// What slope or distance must stay below: in percent of the mean, or in I/Os or bytes a
    /// second.
    pub limit: f64,
    /// Whether the limit is in percent of the mean.
    pub in_percent: bool,
    /// `steadystate_duration`, in whole seconds: how many figures are judged; 0: none are.
    pub seconds: u32,
    /// `steadystate_ramp_time`, in microseconds: the time before the first figure.
    pub ramp_us: u64,
}

/// `exit_what=`: the jobs that `exitall` ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ExitWhat {
    /// The jobs of the same group.
    #[default]
    Group,
    /// The running jobs, up to the next stonewall.
    Stonewall,
    /// All jobs.
    All,
}

/// An option as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenOption {
    /// fio's name for the option.
    pub name: &'static str,
    /// The place of the option.
    pub position: Position,
    /// The option and its value, as written.
    pub text: String,
    /// The value with variables replaced; `None` if there is no value.
    pub value: Option<String>,
}

impl WrittenOption {
    /// Whether the value is fio's word for "off".
    pub(crate) fn is_off(&self) -> bool {
        matches!(self.value.as_deref(), Some("0" | "none"))
    }
}

/// One job (a section of a job file), with fio's defaults and adjustments applied. It runs as
/// `numjobs` processes. Its `Default` has empty values, not fio's defaults.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobSpec {
    /// The section's name, or `name=`.
    pub name: String,
    /// The section's name, which generated file names begin with.
    pub section: String,
    /// The place of the section.
    pub position: Position,
    /// The section's own options, by fio's names for them, in the order fio
    /// applies them; fio's JSON shows these.
    pub options: Vec<(String, String)>,
    /// All options that were set, here or in a global section, for errors that are found only with
    /// the drive or the machine.
    pub written: Vec<WrittenOption>,
    /// `description`.
    pub description: Option<String>,
    /// The reporting group, counted from 0 as fio does: a new one begins at
    /// each `stonewall` and `new_group`.
    pub group: u32,
    /// `numjobs`: how many processes run this job.
    pub processes: u32,
    /// `group_reporting`: the group is reported as one.
    pub group_reporting: bool,
    /// `thread`: the job runs as threads of one process.
    pub threads: bool,
    /// `stonewall`: the job waits until all earlier ones have ended.
    pub stonewall: bool,
    /// `new_group`.
    pub new_group: bool,
    /// `wait_for`: the index in [`JobFile::jobs`] of the job to wait for, which is an earlier one.
    pub wait_for: Option<usize>,
    /// `exitall`: other jobs end with this one; as in fio it is set for all jobs if any job has it.
    pub exit_all: bool,
    /// `exitall_on_error`.
    pub exit_all_on_error: bool,
    /// `exit_what`.
    pub exit_what: ExitWhat,

    /// `filename`: the files or drives; empty if fio generates a name for each process (see
    /// [`JobSpec::file_names`]).
    pub files: Vec<String>,
    /// `directory`: prefixes, used by the processes in turn.
    pub directories: Vec<String>,
    /// `filename_format`.
    pub filename_format: String,
    /// `nrfiles`, or the number of names in `filename` if that is less.
    pub file_count: u32,
    /// `openfiles`: how many files are open at once; 0: all.
    pub open_files: u32,
    /// `file_service_type`.
    pub file_service: FileService,
    /// The number of I/Os to a file before the next file (`file_service_type=random:4`).
    pub file_service_count: u32,
    /// `filesize`: smallest and largest size of a file, in bytes.
    pub file_size_bytes: Option<(u64, u64)>,

    /// `rw`.
    pub pattern: Pattern,
    /// `rw=randread:N`: the number of I/Os per random offset.
    pub random_every: u32,
    /// `rw=read:STEP`: bytes to skip (negative: to go back) after each I/O.
    pub sequential_step_bytes: i64,
    /// `rw_sequencer`.
    pub sequencer: Sequencer,
    /// `rwmixread`, in percent.
    pub read_percent: u32,
    /// `percentage_random`: the percentage of random I/Os in a random pattern.
    pub random_percent: ByDirection<u32>,
    /// `bs`, `bsrange`, `bssplit`.
    pub block_sizes: ByDirection<BlockSizes>,
    /// `blockalign`: the alignment of random offsets, in bytes.
    pub align_bytes: ByDirection<u64>,
    /// `bs_unaligned`: sizes need not be multiples of the smallest one.
    pub unaligned: bool,
    /// `bs_is_seq_rand`: read sizes apply to sequential I/O and write sizes to random I/O, in both
    /// directions.
    pub sizes_by_randomness: bool,

    /// `size`; `None`: the size of the file or drive.
    pub size: Option<Extent>,
    /// `io_size`: the amount of I/O after which the job stops.
    pub io_size: Option<Extent>,
    /// `fill_device`: write until the drive or the file system is full, which is no error.
    pub fill_device: bool,
    /// `read_iolog` and related options.
    pub replay: ReplayOptions,
    /// The logs of `read_iolog`, for the processes in turn.
    pub iologs: Vec<Arc<Iolog>>,
    /// `offset`.
    pub offset: Extent,
    /// `offset_increment`: the additional offset of each further process.
    pub offset_increment: Extent,
    /// `offset_align`, in bytes; 0: the smallest block.
    pub offset_align_bytes: u64,
    /// `number_ios`: the number of I/Os after which the job stops; 0: no limit.
    pub number_ios: u64,
    /// `loops`: the number of runs.
    pub loops: u32,

    /// `zonemode` and related options.
    pub zones: ZoneOptions,
    /// `random_distribution`.
    pub distribution: Distribution,
    /// `random_generator`.
    pub generator: RandomGenerator,
    /// Whether blocks may repeat before all were visited (`norandommap`, and options that imply
    /// it).
    pub no_random_map: bool,
    /// `softrandommap`.
    pub soft_random_map: bool,
    /// `randrepeat`; off where `randseed` is given.
    pub random_repeatable: bool,
    /// `allrandrepeat`.
    pub all_random_repeatable: bool,
    /// `randseed`, where given.
    pub random_seed: Option<u64>,

    /// `ioengine`.
    pub engine: Engine,
    /// `iodepth`.
    pub io_depth: u32,
    /// `iodepth_batch`: the number of I/Os submitted at once; at most `io_depth`.
    pub batch_submit: u32,
    /// `iodepth_batch_complete_min`: the number of completions to wait for at once.
    pub batch_complete_min: u32,
    /// `iodepth_batch_complete_max`: the most completions to take at once.
    pub batch_complete_max: u32,
    /// `iodepth_low`: the depth to which a full queue drains before it is filled again.
    pub io_depth_low: u32,
    /// `io_submit_mode=offload`: a thread of its own submits each I/O.
    pub offload: bool,
    /// `serialize_overlap`.
    pub serialize_overlap: bool,
    /// `direct` (or `atomic`): I/O bypasses the page cache.
    pub direct: bool,
    /// `invalidate`: a file's cached pages are dropped when it is opened.
    pub invalidate: bool,
    /// `overwrite`: files are laid out before they are written.
    pub overwrite: bool,
    /// `create_on_open`: files are not laid out, but created when the job opens them.
    pub create_on_open: bool,
    /// `fallocate`.
    pub fallocate: Fallocate,
    /// `unlink`: the job removes its files when it ends.
    pub unlink: bool,
    /// `unlink_each_loop`: the job removes its files between two passes.
    pub unlink_each_loop: bool,
    /// `pre_read`: files are read into the page cache first.
    pub pre_read: bool,
    /// `fadvise_hint`.
    pub fadvise_hint: FadviseHint,
    /// `atomic`.
    pub atomic: bool,
    /// `sync`.
    pub sync: SyncMode,
    /// `fsync`: the number of writes between calls; 0: never.
    pub fsync_every: u32,
    /// `fdatasync`: the number of writes between calls; 0: never.
    pub fdatasync_every: u32,
    /// `sync_file_range`.
    pub sync_file_range: FileRangeSync,
    /// `end_fsync`.
    pub end_fsync: bool,
    /// `fsync_on_close`.
    pub fsync_on_close: bool,
    /// `hipri`: completions are polled for.
    pub polled: bool,
    /// `sqthread_poll`: a kernel thread submits.
    pub submission_thread: bool,
    /// `sq_thread_idle`: milliseconds without work after which that thread sleeps; 0 for the
    /// kernel's default.
    pub submission_thread_idle_ms: u32,
    /// `fixedbufs`: the buffers are registered with the kernel, which pins them once.
    pub registered_buffers: bool,
    /// `untouched_buffers`: the program reads into memory fresh from the kernel, and writes from
    /// memory that it never wrote to.
    pub untouched_buffers: bool,
    /// `registerfiles`: the files are registered with the kernel, which references them once.
    pub registered_files: bool,
    /// `nowait`: `RWF_NOWAIT`.
    pub nowait: bool,
    /// `force_async`: one in this many I/Os goes to a worker at once; 0: none.
    pub force_async_every: u32,

    /// `rate`, in bytes a second; 0: no limit.
    pub rate_bytes: ByDirection<u64>,
    /// `rate_min`, in bytes a second.
    pub rate_min_bytes: ByDirection<u64>,
    /// `rate_iops`; 0: no limit.
    pub rate_iops: ByDirection<u32>,
    /// `rate_iops_min`.
    pub rate_iops_min: ByDirection<u32>,
    /// `rate_process`.
    pub rate_process: RateProcess,
    /// `rate_cycle`, in milliseconds.
    pub rate_cycle_ms: u32,
    /// `thinktime` and related options.
    pub think: ThinkTime,
    /// `flow` and related options.
    pub flow: FlowOptions,

    /// `runtime`, in microseconds; 0: no limit.
    pub runtime_us: u64,
    /// `time_based`: the job starts over until `runtime` has passed.
    pub time_based: bool,
    /// `ramp_time`, in microseconds: the time before measuring begins.
    pub ramp_us: u64,
    /// `startdelay`, in microseconds: smallest and largest; each process draws a value between
    /// them.
    pub start_delay_us: (u64, u64),

    /// `prioclass` and `prio`, if either is given.
    pub priority: Option<Priority>,
    /// `cmdprio_percentage`, `cmdprio_bssplit`: I/Os with a priority of their own.
    pub command_priority: ByDirection<Vec<CommandPrioritySplit>>,
    /// `cgroup`: the control group of the processes; `None`: the root.
    pub cgroup: Option<String>,
    /// `cgroup_weight`, if given.
    pub cgroup_weight: Option<u32>,
    /// `cpus_allowed`, `cpumask`; empty: any.
    pub cpus: Vec<u32>,
    /// `cpus_allowed_policy=split`: each process has one of the CPUs.
    pub cpus_split: bool,

    /// `percentile_list`, in percent.
    pub percentiles: Vec<f64>,
    /// `clat_percentiles`.
    pub clat_percentiles: bool,
    /// `lat_percentiles`.
    pub lat_percentiles: bool,
    /// `slat_percentiles`.
    pub slat_percentiles: bool,
    /// `unified_rw_reporting`.
    pub unified: UnifiedReporting,
    /// `max_latency`, in microseconds: a slower I/O ends the job; 0: no limit.
    pub max_latency_us: ByDirection<u64>,
    /// `latency_target` and related options.
    pub latency_target: Option<LatencyTarget>,
    /// `steadystate` and related options.
    pub steady_state: SteadyStateOptions,
    /// `continue_on_error`: whether the job continues after a failed I/O of a direction.
    pub continue_on_error: ByDirection<bool>,
    /// `verify` and its companions.
    pub verify: VerifyOptions,
    /// `stats`: whether the job counts in the results.
    pub stats: bool,
    /// `bwavgtime`, in milliseconds.
    pub bandwidth_window_ms: u32,
    /// `iopsavgtime`, in milliseconds.
    pub iops_window_ms: u32,
    /// `write_lat_log` and the like.
    pub logs: LogSetup,
    /// `ioscheduler`: the scheduler that fio would set on the drive.
    pub io_scheduler: Option<String>,
    /// `kb_base`: 1024 or 1000.
    pub kb_base: u32,
}

impl JobSpec {
    /// Returns the last setting of option `name`.
    pub fn written(&self, name: &str) -> Option<&WrittenOption> {
        self.written.iter().rev().find(|option| option.name == name)
    }

    /// Returns the same job without the places of its options.
    pub fn without_places(&self) -> JobSpec {
        JobSpec {
            position: Position::default(),
            written: Vec::new(),
            ..self.clone()
        }
    }

    /// Refuses a job if the simulation would leave out part of its work.
    ///
    /// # Errors
    /// Fails at the first option that changes the work and is not simulated, with what fio would do
    /// and what the user can do instead.
    pub fn check_modelled(&self) -> Result<(), JobError> {
        super::options::check_modelled(self)
    }

    /// Returns the options that the job sets and that the simulation ignores, by fio's names.
    pub fn left_out(&self) -> impl Iterator<Item = &'static str> {
        super::options::left_out(self)
    }

    /// Returns the kinds of latency that percentiles are shown for.
    pub fn percentiles_of(&self) -> LatencyPercentiles {
        LatencyPercentiles {
            slat: self.slat_percentiles,
            clat: self.clat_percentiles,
            lat: self.lat_percentiles,
        }
    }

    /// Whether the I/O of the job's processes is drawn by lot, so that another seed has other
    /// addresses, directions, sizes or times.
    pub fn draws(&self) -> bool {
        let varies = |direction| {
            let sizes = &self.block_sizes[direction];
            self.pattern.does(direction) && sizes.min_bytes != sizes.max_bytes
        };
        let picks_files = matches!(
            self.file_service,
            FileService::Random | FileService::Popularity(_)
        );
        self.pattern.is_random()
            || self.pattern.is_mixed()
            || Direction::ALL.into_iter().any(varies)
            || picks_files
            || self.rate_process == RateProcess::Poisson
            || self.start_delay_us.0 != self.start_delay_us.1
    }

    /// Returns the figures that end the job once they are steady, none of them taken yet; `None` if
    /// it has no `steadystate_duration`.
    pub fn watched_figures(&self) -> Option<SteadyState> {
        let SteadyStateOptions {
            of_bandwidth,
            by_slope,
            limit,
            in_percent,
            seconds,
            ramp_us: _,
        } = self.steady_state;
        (seconds > 0).then(|| SteadyState {
            of_bandwidth,
            by_slope,
            limit,
            in_percent,
            seconds,
            ..SteadyState::default()
        })
    }

    /// Returns the smallest block of all directions, used or not: fio's `td_min_bs`.
    pub(crate) fn smallest_block(&self) -> u64 {
        let sizes = Direction::ALL.map(|direction| self.block_sizes[direction].min_bytes);
        sizes.into_iter().min().unwrap_or(1).max(1)
    }

    /// Sets the size of a zone, in which sizes may be given.
    pub fn set_zone_bytes(&mut self, zone_bytes: u64) {
        self.zones.size_bytes = zone_bytes;
        let in_bytes = |extent: &mut Extent| {
            if let Extent::Zones(zones) = *extent {
                *extent = Extent::Bytes(u64::from(zones).saturating_mul(zone_bytes));
            }
        };
        { self.size.iter_mut().chain(&mut self.io_size) }.for_each(in_bytes);
        in_bytes(&mut self.offset);
        in_bytes(&mut self.offset_increment);
    }

    /// Returns an error in the first of `options` that was given, or in the job if none was.
    pub fn mistake(
        &self,
        options: &[&str],
        message: impl Into<String>,
        help: impl Into<String>,
    ) -> JobError {
        self.refuse(options, Fault::new(message).help(help))
    }

    pub(crate) fn refuse(&self, options: &[&str], fault: Fault) -> JobError {
        match options.iter().find_map(|name| self.written(name)) {
            Some(option) => JobError::at(&option.position, &option.text, fault),
            None => JobError::at(&self.position, format!("[{}]", self.name), fault),
        }
    }

    /// Returns the log that process `process` (0 up to `numjobs`) replays, if it does.
    pub fn iolog(&self, process: u32) -> Option<&Arc<Iolog>> {
        match self.iologs.len() {
            0 => None,
            logs => self.iologs.get(process as usize % logs),
        }
    }

    /// Returns the options that results are told with.
    pub fn setup(&self) -> JobSetup {
        /// The class that gets what others leave (ionice(1)).
        const IDLE: u8 = 3;
        let blocks = |direction| {
            let sizes = &self.block_sizes[direction];
            (sizes.min_bytes, sizes.max_bytes)
        };
        JobSetup {
            rw: self.pattern.name().to_string(),
            block_bytes: Direction::ALL.map(blocks),
            ioengine: self.engine.name().to_string(),
            iodepth: self.io_depth,
            is_idle_class: self.priority.is_some_and(|own| own.class == IDLE),
        }
    }

    /// Returns the files of process `process` (0 up to [`JobSpec::processes`]).
    ///
    /// Without `filename`, fio generates `nrfiles` names for each process from `filename_format`,
    /// by default `$jobname.$jobnum.$filenum`.
    pub fn file_names(&self, process: u32) -> Vec<String> {
        if let Some(log) = self.iolog(process) {
            return log.files.iter().map(|file| file.name.clone()).collect();
        }
        if !self.files.is_empty() {
            let count = (self.file_count as usize).min(self.files.len());
            return self.files[..count].to_vec();
        }
        let directory = match self.directories.len() {
            0 => String::new(),
            n => format!("{}/", self.directories[process as usize % n]),
        };
        (0..self.file_count)
            .map(|file| {
                let name = replace(&self.filename_format, "$jobname", &self.section);
                let name = replace(&name, "$jobnum", &process.to_string());
                let name = replace(&name, "$filenum", &file.to_string());
                let name = replace(&name, "$clientuid", "");
                format!("{directory}{name}")
            })
            .collect()
    }
}

/// Replaces `keyword` in any case.
fn replace(text: &str, keyword: &str, value: &str) -> String {
    let lower = text.to_ascii_lowercase();
    let mut out = String::new();
    let mut from = 0;
    while let Some(at) = lower[from..].find(keyword) {
        out.push_str(&text[from..from + at]);
        out.push_str(value);
        from += at + keyword.len();
    }
    out.push_str(&text[from..]);
    out
}

#[cfg(test)]
mod tests {
    use super::replace;

    #[test]
    fn keywords_in_any_case() {
        assert_eq!(replace("$JobName.x.$jobname", "$jobname", "a"), "a.x.a");
    }
}
