//! A job as the rest of the program sees it: every option in one type, in one
//! unit, with fio's defaults filled in.

use std::borrow::Cow;

use blklab_stats::{LatencyPercentiles, LogSetup};

use crate::calls::RangeSync;

use super::cgroup_write::CgroupWrite;
use super::direction::{ByDirection, Direction};
use super::engine::Engine;
use super::error::{Fault, JobError, Note, Position};

/// A whole job: the files and command line options read, in order.
#[derive(Clone, Debug, PartialEq)]
pub struct JobFile {
    /// The job file as it was named, or `command line`.
    pub name: String,
    /// Its jobs, in the order written; `numjobs` is not expanded.
    pub jobs: Vec<JobSpec>,
    /// Control groups that a file of their own names, by path, each behind those that
    /// it is in; and what is written to their files.
    pub cgroups: Vec<String>,
    /// What is written to their files, in order.
    pub cgroup_writes: Vec<CgroupWrite>,
    /// What the user should know.
    pub notes: Vec<Note>,
    /// The options of all `[global]` sections, likewise.
    pub global_options: Vec<(String, String)>,
}

impl JobFile {
    /// The same work without logs of each I/O.
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

/// `rw=`: what a job does.
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
    /// Each pattern by fio's words for it; the first of two is its name.
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

    /// The words.
    pub(crate) const WORDS: [&'static str; Pattern::NAMED.len()] = {
        let mut words = [""; Pattern::NAMED.len()];
        let mut n = 0;
        while n < words.len() {
            words[n] = Pattern::NAMED[n].0;
            n += 1;
        }
        words
    };

    /// The pattern of that word, if it is one.
    pub(crate) fn named(word: &str) -> Option<Pattern> {
        let found = Pattern::NAMED.iter().find(|(known, _)| *known == word);
        found.map(|(_, pattern)| *pattern)
    }

    /// fio's name for it.
    pub fn name(self) -> &'static str {
        let found = Pattern::NAMED.iter().find(|(_, pattern)| *pattern == self);
        found.map_or("", |(word, _)| word)
    }

    /// Addresses are random.
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

    /// Whether it does any I/O in `direction`.
    pub const fn does(self, direction: Direction) -> bool {
        use Pattern::*;
        match direction {
            Direction::Read => matches!(self, Read | RandRead | ReadWrite | RandReadWrite),
            Direction::Write => !matches!(self, Read | RandRead | Trim | RandTrim),
            Direction::Trim => matches!(self, Trim | RandTrim | TrimWrite | RandTrimWrite),
        }
    }

    /// Reads and writes are mixed by `rwmixread`.
    pub const fn is_mixed(self) -> bool {
        matches!(self, Pattern::ReadWrite | Pattern::RandReadWrite)
    }
}

/// `rw_sequencer=`: what the I/Os between two random offsets do (`rw=randread:8`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Sequencer {
    /// They follow one another.
    #[default]
    Sequential,
    /// They repeat the offset.
    Identical,
}

/// An amount of data that may be given relative to the file or drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Extent {
    /// In bytes.
    Bytes(u64),
    /// In percent of the file or drive.
    Percent(u32),
    /// In zones of a zoned drive.
    Zones(u32),
}

impl Default for Extent {
    fn default() -> Extent {
        Extent::Bytes(0)
    }
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

/// `random_distribution=`: how random offsets spread over a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Distribution {
    /// Evenly.
    #[default]
    Random,
    /// Zipf with this theta.
    Zipf {
        /// The exponent; not 1.
        theta: f64,
        /// Where the most popular block lies, as a share of the file.
        center: Option<f64>,
    },
    /// Pareto with this power.
    Pareto {
        /// Between 0 and 1.
        h: f64,
        /// Where the most popular block lies, as a share of the file.
        center: Option<f64>,
    },
    /// Normal with this deviation.
    Normal {
        /// In percent of the file, 0 to 100.
        deviation_percent: f64,
        /// Where the most popular block lies, as a share of the file.
        center: Option<f64>,
    },
    /// `zoned`: shares of accesses to shares of the file.
    Zoned(ByDirection<Vec<Zone>>),
    /// `zoned_abs`: shares of accesses to ranges in bytes.
    ZonedAbsolute(ByDirection<Vec<Zone>>),
}

/// A range of a zoned distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Zone {
    /// How much of the I/O goes here, in percent.
    pub access_percent: u32,
    /// How long the range is: percent of the file for `zoned`, bytes for
    /// `zoned_abs`.
    pub size: u64,
}

/// `random_generator=`. The addresses come from this program's own generator
/// whichever is asked for; `lfsr` visits every block once per pass even
/// where `norandommap` is given, as fio's does.
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

/// `file_service_type=`: which of a job's files is next.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum FileService {
    /// Each in turn.
    #[default]
    RoundRobin,
    /// One after the other is finished.
    Sequential,
    /// Any.
    Random,
    /// Zipf with this theta.
    Zipf {
        /// The exponent; not 1.
        theta: f64,
        /// Where the most popular file lies, as a share of the files.
        center: Option<f64>,
    },
    /// Pareto with this power.
    Pareto {
        /// Between 0 and 1.
        h: f64,
        /// Where the most popular file lies, as a share of the files.
        center: Option<f64>,
    },
    /// Normal with this deviation.
    Normal {
        /// In percent of the files, 0 to 100.
        deviation_percent: f64,
        /// Where the most popular file lies, as a share of the files.
        center: Option<f64>,
    },
}

/// `sync=`: how writes are opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SyncMode {
    /// Plainly.
    #[default]
    None,
    /// `O_SYNC`: data and metadata are durable when a write returns.
    Sync,
    /// `O_DSYNC`: data is.
    Dsync,
}

/// `sync_file_range=`: what is written back without `fsync`, and how often.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FileRangeSync {
    /// What is done.
    pub what: RangeSync,
    /// After this many writes; 0: never.
    pub every: u32,
}

impl FileRangeSync {
    /// Reads `wait_before,write:8`; the list may be given in parts.
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

/// `fadvise_hint=`: what the kernel is told of how a file will be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FadviseHint {
    /// Nothing.
    None,
    /// Random or sequential, as the job's pattern is.
    #[default]
    ByPattern,
    /// Random.
    Random,
    /// Sequential.
    Sequential,
}

/// `fallocate=`: how a file that is not laid out gets its blocks before it is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Fallocate {
    /// It does not.
    None,
    /// By `fallocate`, where the file system has it.
    #[default]
    Native,
    /// By `posix_fallocate`, which writes to each block where the file system has no
    /// `fallocate`.
    Posix,
    /// It gets its length only, by `ftruncate`.
    Truncate,
}

/// `rate_process=`: how a rate is spread over time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum RateProcess {
    /// At even intervals.
    #[default]
    Linear,
    /// As a Poisson process.
    Poisson,
}

/// `thinktime` and what goes with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ThinkTime {
    /// How long to pause, in microseconds; 0: never.
    pub pause_us: u64,
    /// How much of the pause burns a CPU, in microseconds; at most `pause_us`.
    pub spin_us: u64,
    /// Pause after this many blocks.
    pub blocks: u32,
    /// `thinktime_blocks` was given.
    pub blocks_given: bool,
    /// Count blocks when they are issued instead of when they complete.
    pub count_issues: bool,
    /// Pause after this much time of I/O, in microseconds; 0: no such rule.
    pub io_time_us: u64,
    /// The rate also runs while pausing (`rate_ignore_thinktime`).
    pub rate_ignores: bool,
}

/// An I/O priority as fio takes it: class 0 none, 1 real time, 2 best effort,
/// 3 idle; level 0 (highest) to 7.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Priority {
    /// The class.
    pub class: u8,
    /// The level.
    pub level: u8,
}

/// A share of the I/Os that gets its own priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CommandPrioritySplit {
    /// Only I/Os of this size, in bytes; `None`: any.
    pub block_bytes: Option<u64>,
    /// How many of them, in percent.
    pub percent: u32,
    /// The priority they get.
    pub priority: Priority,
}

/// `unified_rw_reporting=`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum UnifiedReporting {
    /// Directions apart.
    #[default]
    None,
    /// All together.
    Mixed,
    /// Both.
    Both,
}

/// `latency_target` and what goes with it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LatencyTarget {
    /// The latency to stay under, in microseconds.
    pub target_us: u64,
    /// For how long, in microseconds.
    pub window_us: u64,
    /// For how many of the I/Os, in percent.
    pub percentile: f64,
    /// Keep adjusting (`latency_run`).
    pub keep_running: bool,
}

/// `exit_what=`: which jobs `exitall` ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ExitWhat {
    /// Those of its group.
    #[default]
    Group,
    /// Those running, up to the next stonewall.
    Stonewall,
    /// All.
    All,
}

/// An option as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenOption {
    /// fio's name for it.
    pub name: &'static str,
    /// Where.
    pub position: Position,
    /// With its value, as written.
    pub text: String,
    /// Its value with variables replaced; `None` where it has none.
    pub value: Option<String>,
}

impl WrittenOption {
    /// Whether its value is fio's word for not at all.
    pub(crate) fn is_off(&self) -> bool {
        matches!(self.value.as_deref(), Some("0" | "none"))
    }
}

/// One job (a section of a job file), with fio's defaults filled in and what
/// fio adjusts adjusted. `numjobs` processes run it. Its `Default` has nothing
/// anywhere, and not fio's defaults.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobSpec {
    /// The section's name, or `name=`.
    pub name: String,
    /// The section's name, which made-up file names begin with.
    pub section: String,
    /// Where the section begins.
    pub position: Position,
    /// The section's own options, by fio's names for them, in the order fio
    /// applies them; fio's JSON shows these.
    pub options: Vec<(String, String)>,
    /// All options that were set, here or in a global section, for mistakes
    /// that only the drive or the machine shows.
    pub written: Vec<WrittenOption>,
    /// `description`.
    pub description: Option<String>,
    /// The reporting group, counted from 0 as fio does: a new one begins at
    /// each `stonewall` and `new_group`.
    pub group: u32,
    /// `numjobs`: how many processes run this job.
    pub processes: u32,
    /// `group_reporting`: report the group as one.
    pub group_reporting: bool,
    /// `thread`: threads of one process rather than processes.
    pub threads: bool,
    /// `stonewall`: wait until everything before has ended.
    pub stonewall: bool,
    /// `new_group`.
    pub new_group: bool,
    /// `wait_for`: the job to wait for, which comes before this one in
    /// [`JobFile::jobs`].
    pub wait_for: Option<usize>,
    /// `exitall`: end other jobs when this one ends; fio sets it for all jobs
    /// where any job has it.
    pub exit_all: bool,
    /// `exitall_on_error`.
    pub exit_all_on_error: bool,
    /// `exit_what`.
    pub exit_what: ExitWhat,

    /// `filename`: the files or drives; empty where fio makes up a name for
    /// each process (see [`JobSpec::file_names`]).
    pub files: Vec<String>,
    /// `directory`: prefixes, used in turn by process.
    pub directories: Vec<String>,
    /// `filename_format`.
    pub filename_format: String,
    /// `nrfiles`, or the number of names in `filename` where that is less.
    pub file_count: u32,
    /// `file_service_type`.
    pub file_service: FileService,
    /// How many I/Os a file gets before the next one's turn
    /// (`file_service_type=random:4`).
    pub file_service_count: u32,
    /// `filesize`: smallest and largest size of a file, in bytes.
    pub file_size_bytes: Option<(u64, u64)>,

    /// `rw`.
    pub pattern: Pattern,
    /// `rw=randread:N`: a new random offset every N I/Os.
    pub random_every: u32,
    /// `rw=read:STEP`: bytes skipped (or, negative, jumped back) after each I/O.
    pub sequential_step_bytes: i64,
    /// `rw_sequencer`.
    pub sequencer: Sequencer,
    /// `rwmixread`, in percent.
    pub read_percent: u32,
    /// `percentage_random`: how many I/Os of a random pattern are random.
    pub random_percent: ByDirection<u32>,
    /// `bs`, `bsrange`, `bssplit`.
    pub block_sizes: ByDirection<BlockSizes>,
    /// `blockalign`: what random offsets are multiples of, in bytes.
    pub align_bytes: ByDirection<u64>,
    /// `bs_unaligned`: sizes need not be multiples of the smallest.
    pub unaligned: bool,
    /// `bs_is_seq_rand`: read sizes are for sequential, write sizes for
    /// random I/O, whatever its direction.
    pub sizes_by_randomness: bool,

    /// `size`; `None`: as large as the file or drive.
    pub size: Option<Extent>,
    /// `io_size`: stop after this much.
    pub io_size: Option<Extent>,
    /// `offset`.
    pub offset: Extent,
    /// `offset_increment`: added for each further process.
    pub offset_increment: Extent,
    /// `offset_align`, in bytes; 0: the smallest block.
    pub offset_align_bytes: u64,
    /// `number_ios`: stop after this many; 0: no limit.
    pub number_ios: u64,
    /// `loops`: run this many times.
    pub loops: u32,

    /// `random_distribution`.
    pub distribution: Distribution,
    /// `random_generator`.
    pub generator: RandomGenerator,
    /// Blocks may repeat before all were visited (`norandommap`, and what
    /// implies it).
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
    /// `iodepth_batch`: I/Os submitted at once; at most `io_depth`.
    pub batch_submit: u32,
    /// `iodepth_batch_complete_min`: completions to wait for at once.
    pub batch_complete_min: u32,
    /// `iodepth_batch_complete_max`: completions to take at once.
    pub batch_complete_max: u32,
    /// `iodepth_low`: once full, let the queue drain to here before filling it.
    pub io_depth_low: u32,
    /// `io_submit_mode=offload`: a thread of its own submits each I/O.
    pub offload: bool,
    /// `serialize_overlap`.
    pub serialize_overlap: bool,
    /// `direct` (or `atomic`): past the page cache.
    pub direct: bool,
    /// `invalidate`: what is cached of a file is dropped when it is opened.
    pub invalidate: bool,
    /// `overwrite`: files are laid out before they are written.
    pub overwrite: bool,
    /// `create_on_open`: files are not laid out, but made when the job opens them.
    pub create_on_open: bool,
    /// `fallocate`.
    pub fallocate: Fallocate,
    /// `unlink`: the job removes its files at its end.
    pub unlink: bool,
    /// `pre_read`: files are read into the page cache first.
    pub pre_read: bool,
    /// `fadvise_hint`.
    pub fadvise_hint: FadviseHint,
    /// `atomic`.
    pub atomic: bool,
    /// `sync`.
    pub sync: SyncMode,
    /// `fsync`: after this many writes; 0: never.
    pub fsync_every: u32,
    /// `fdatasync`: after this many writes; 0: never.
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
    /// `fixedbufs`: the kernel knows the buffers, and pins them once.
    pub registered_buffers: bool,
    /// `registerfiles`: the kernel knows the files, and takes hold of them once.
    pub registered_files: bool,
    /// `nowait`: `RWF_NOWAIT`.
    pub nowait: bool,
    /// `force_async`: every this many I/Os go to a worker at once; 0: none.
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
    /// `thinktime` and what goes with it.
    pub think: ThinkTime,

    /// `runtime`, in microseconds; 0: until the work is done.
    pub runtime_us: u64,
    /// `time_based`: start over until `runtime` is up.
    pub time_based: bool,
    /// `ramp_time`, in microseconds: run this long before measuring.
    pub ramp_us: u64,
    /// `startdelay`, in microseconds: lowest and highest; each process draws
    /// one between them.
    pub start_delay_us: (u64, u64),

    /// `prioclass` and `prio`, where either is given.
    pub priority: Option<Priority>,
    /// `cmdprio_percentage`, `cmdprio_bssplit`: I/Os with a priority of their own.
    pub command_priority: ByDirection<Vec<CommandPrioritySplit>>,
    /// `cgroup`: the control group its processes are in; `None`: the root.
    pub cgroup: Option<String>,
    /// `cgroup_weight`, where given.
    pub cgroup_weight: Option<u32>,
    /// `cpus_allowed`, `cpumask`; empty: any.
    pub cpus: Vec<u32>,
    /// `cpus_allowed_policy=split`: each process gets one of them.
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
    /// `latency_target` and what goes with it.
    pub latency_target: Option<LatencyTarget>,
    /// `continue_on_error`: go on after a failed I/O of this direction.
    pub continue_on_error: ByDirection<bool>,
    /// `stats`: the job counts in the results.
    pub stats: bool,
    /// `bwavgtime`, in milliseconds.
    pub bandwidth_window_ms: u32,
    /// `iopsavgtime`, in milliseconds.
    pub iops_window_ms: u32,
    /// `write_lat_log` and the like.
    pub logs: LogSetup,
    /// `ioscheduler`: the scheduler fio would set on the drive.
    pub io_scheduler: Option<String>,
    /// `kb_base`: 1024 or 1000.
    pub kb_base: u32,
}

impl JobSpec {
    /// Where `name` was last set, and as what.
    pub fn written(&self, name: &str) -> Option<&WrittenOption> {
        self.written.iter().rev().find(|option| option.name == name)
    }

    /// The same work, wherever it was written.
    pub fn without_places(&self) -> JobSpec {
        JobSpec {
            position: Position::default(),
            written: Vec::new(),
            ..self.clone()
        }
    }

    /// Refuses what the simulation would leave out of the job's work.
    ///
    /// # Errors
    /// At the first option that changes the work and is not simulated, with what fio
    /// would do and what to do instead.
    pub fn check_modelled(&self) -> Result<(), JobError> {
        super::options::check_modelled(self)
    }

    /// The options whose settings the simulation leaves out, by fio's names.
    pub fn left_out(&self) -> impl Iterator<Item = &'static str> {
        super::options::left_out(self)
    }

    /// Of which latencies percentiles are shown.
    pub fn percentiles_of(&self) -> LatencyPercentiles {
        LatencyPercentiles {
            slat: self.slat_percentiles,
            clat: self.clat_percentiles,
            lat: self.lat_percentiles,
        }
    }

    /// The smallest block of any direction, used or not: fio's `td_min_bs`.
    pub(crate) fn smallest_block(&self) -> u64 {
        let sizes = Direction::ALL.map(|direction| self.block_sizes[direction].min_bytes);
        sizes.into_iter().min().unwrap_or(1).max(1)
    }

    /// A mistake in the first of `options` that was given, or in the job where
    /// none was: what is wrong, and what would be right.
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

    /// The files that process `process` (0 up to [`JobSpec::processes`]) of
    /// this job uses.
    ///
    /// Without `filename`, fio makes up `nrfiles` names for each process from
    /// `filename_format`, which is `$jobname.$jobnum.$filenum`.
    pub fn file_names(&self, process: u32) -> Vec<String> {
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

/// Replaces `keyword`, whatever its case.
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
