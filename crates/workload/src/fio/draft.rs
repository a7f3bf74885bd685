//! A job while its options are being read: the settings as given, before fio
//! makes them fit one another.

use std::collections::BTreeSet;

use blklab_stats::DEFAULT_PERCENTILES;

use super::error::{Fault, Position};
use super::spec::*;
use super::table::{self, OptionInfo};
use super::value::{self, Value};
use super::{cpus, distribution, filenames, splits, units};

/// The settings of one section, on top of those of the global ones.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    pub spec: JobSpec,
    /// The options that were set, here or in a global section.
    pub given: BTreeSet<&'static str>,
    /// `bs`.
    pub block_bytes: ByDirection<u64>,
    /// `bsrange`, or what `bssplit` spans.
    pub block_range: ByDirection<Option<(u64, u64)>>,
    /// `blockalign`.
    pub align_bytes: ByDirection<Option<u64>>,
    /// `wait_for`, by name; the jobs it may name are known only once all are read.
    pub wait_for: Option<String>,
    /// Settings of the engine's own.
    pub engine: EngineDraft,
}

/// Settings that only some engines have; fio forgets them when a job takes
/// another engine than the global section.
#[derive(Clone, Debug, Default)]
pub(crate) struct EngineDraft {
    pub command_percent: ByDirection<u32>,
    pub command_class: ByDirection<u32>,
    pub command_level: ByDirection<u32>,
    pub command_split: String,
    pub polled: bool,
    pub submission_thread: bool,
    pub nowait: bool,
    pub force_async_every: u32,
}

impl Draft {
    /// fio's defaults.
    pub fn new(position: Position) -> Draft {
        Draft {
            spec: default_spec(position),
            given: BTreeSet::new(),
            block_bytes: ByDirection::all(4096),
            block_range: ByDirection::default(),
            align_bytes: ByDirection::default(),
            wait_for: None,
            engine: EngineDraft::default(),
        }
    }

    /// Sets one option from the text after its `=`.
    pub fn set(
        &mut self,
        option: &'static OptionInfo,
        text: Option<&str>,
        position: &Position,
        written: &str,
    ) -> Result<(), Fault> {
        let kb_base = self.spec.kb_base;
        match value::parse(option, text, kb_base)? {
            Value::Flag(on) => self.set_flag(option.name, on),
            Value::Numbers(numbers) => self.set_numbers(option.name, numbers),
            Value::Times(times) => self.set_times(option.name, times),
            Value::Bytes(first, last) => self.set_bytes(option.name, first, last),
            Value::Extent(extent) => self.set_extent(option.name, extent),
            Value::Ranges(ranges) => merge(&mut self.block_range, ranges.map(|r| r.map(Some))),
            Value::Fractions(values) => self.set_fractions(option.name, values),
            Value::Text(text) => self.set_text(option.name, &text)?,
            Value::Choice(word, rest) => self.set_choice(option.name, word, rest.as_deref())?,
            Value::Signed(_) | Value::Nothing => {}
        }
        self.given.insert(option.name);
        self.spec.written.push(WrittenOption {
            name: option.name,
            position: position.clone(),
            text: written.to_string(),
        });
        Ok(())
    }

    fn set_flag(&mut self, name: &str, on: bool) {
        let spec = &mut self.spec;
        let engine = &mut self.engine;
        let field = match name {
            "bs_unaligned" => &mut spec.unaligned,
            "bs_is_seq_rand" => &mut spec.sizes_by_randomness,
            "randrepeat" => &mut spec.random_repeatable,
            "norandommap" => &mut spec.no_random_map,
            "softrandommap" => &mut spec.soft_random_map,
            "serialize_overlap" => &mut spec.serialize_overlap,
            "allrandrepeat" => &mut spec.all_random_repeatable,
            "direct" => &mut spec.direct,
            "atomic" => &mut spec.atomic,
            "buffered" => {
                spec.direct = !on;
                return;
            }
            "time_based" => &mut spec.time_based,
            "rate_ignore_thinktime" => &mut spec.think.rate_ignores,
            "end_fsync" => &mut spec.end_fsync,
            "fsync_on_close" => &mut spec.fsync_on_close,
            "exitall" => &mut spec.exit_all,
            "exitall_on_error" => &mut spec.exit_all_on_error,
            "stonewall" => &mut spec.stonewall,
            "new_group" => &mut spec.new_group,
            "thread" => &mut spec.threads,
            "group_reporting" => &mut spec.group_reporting,
            "stats" => &mut spec.stats,
            "clat_percentiles" => &mut spec.clat_percentiles,
            "lat_percentiles" => &mut spec.lat_percentiles,
            "slat_percentiles" => &mut spec.slat_percentiles,
            "latency_run" => {
                self.latency_target().keep_running = on;
                return;
            }
            "hipri" => &mut engine.polled,
            "nowait" => &mut engine.nowait,
            "sqthread_poll" => &mut engine.submission_thread,
            _ => return,
        };
        *field = on;
    }

    fn set_numbers(&mut self, name: &str, numbers: [Option<u64>; 3]) {
        let spec = &mut self.spec;
        let engine = &mut self.engine;
        // The table keeps all but the 64-bit options below 2^32.
        let small = numbers.map(|n| n.map(|n| u32::try_from(n).unwrap_or(u32::MAX)));
        match name {
            "bs" => return merge(&mut self.block_bytes, numbers),
            "ba" => return merge(&mut self.align_bytes, numbers.map(|n| n.map(Some))),
            "percentage_random" => return merge(&mut spec.random_percent, small),
            "rate" => return merge(&mut spec.rate_bytes, numbers),
            "rate_min" => return merge(&mut spec.rate_min_bytes, numbers),
            "rate_iops" => return merge(&mut spec.rate_iops, small),
            "rate_iops_min" => return merge(&mut spec.rate_iops_min, small),
            "cmdprio_percentage" => return merge(&mut engine.command_percent, small),
            "cmdprio_class" => return merge(&mut engine.command_class, small),
            "cmdprio" => return merge(&mut engine.command_level, small),
            _ => {}
        }
        // fio reads the others' first value and drops the rest.
        let Some(n) = small[0] else { return };
        match name {
            "rwmixread" => spec.read_percent = n,
            "rwmixwrite" => spec.read_percent = 100 - n.min(100),
            "offset_align" => spec.offset_align_bytes = u64::from(n),
            "prio" => self.priority().level = n as u8,
            "prioclass" => self.priority().class = n as u8,
            "cgroup_weight" => spec.cgroup_weight = Some(n),
            "cpumask" => spec.cpus = cpus::from_mask(n),
            "force_async" => engine.force_async_every = n,
            _ => {
                if let Some(field) = self.count(name) {
                    *field = n;
                }
            }
        }
    }

    /// The plain counts.
    fn count(&mut self, name: &str) -> Option<&mut u32> {
        let spec = &mut self.spec;
        Some(match name {
            "iodepth" => &mut spec.io_depth,
            "iodepth_batch" => &mut spec.batch_submit,
            "iodepth_batch_complete_min" => &mut spec.batch_complete_min,
            "iodepth_batch_complete_max" => &mut spec.batch_complete_max,
            "iodepth_low" => &mut spec.io_depth_low,
            "nrfiles" => &mut spec.file_count,
            "fsync" => &mut spec.fsync_every,
            "fdatasync" => &mut spec.fdatasync_every,
            "loops" => &mut spec.loops,
            "numjobs" => &mut spec.processes,
            "rate_cycle" => &mut spec.rate_cycle_ms,
            "thinktime_blocks" => &mut spec.think.blocks,
            "bwavgtime" => &mut spec.bandwidth_window_ms,
            "iopsavgtime" => &mut spec.iops_window_ms,
            _ => return None,
        })
    }

    fn set_times(&mut self, name: &str, times: [Option<u64>; 3]) {
        let spec = &mut self.spec;
        if name == "max_latency" {
            return merge(&mut spec.max_latency_us, times);
        }
        let Some(first) = times[0] else { return };
        match name {
            "startdelay" => {
                let last = times.into_iter().flatten().last().unwrap_or(first);
                spec.start_delay_us = (first.min(last), first.max(last));
            }
            "runtime" => spec.runtime_us = first,
            "ramp_time" => spec.ramp_us = first,
            "thinktime" => spec.think.pause_us = first,
            "thinktime_spin" => spec.think.spin_us = first,
            "thinktime_iotime" => spec.think.io_time_us = first,
            "latency_target" => self.latency_target().target_us = first,
            "latency_window" => self.latency_target().window_us = first,
            _ => {}
        }
    }

    fn set_bytes(&mut self, name: &str, first: u64, last: u64) {
        let spec = &mut self.spec;
        match name {
            "filesize" => spec.file_size_bytes = Some((first.min(last), first.max(last))),
            "number_ios" => spec.number_ios = first,
            "randseed" => spec.random_seed = Some(first),
            _ => {}
        }
    }

    fn set_extent(&mut self, name: &str, extent: Extent) {
        // Zero is how fio says "not given".
        let given = !matches!(extent, Extent::Bytes(0) | Extent::Percent(0));
        match name {
            "size" => self.spec.size = given.then_some(extent),
            "io_size" => self.spec.io_size = given.then_some(extent),
            "offset" => self.spec.offset = extent,
            "offset_increment" => self.spec.offset_increment = extent,
            _ => {}
        }
    }

    fn set_fractions(&mut self, name: &str, values: Vec<f64>) {
        match name {
            "percentile_list" => self.spec.percentiles = values,
            "latency_percentile" => {
                self.latency_target().percentile = values.first().copied().unwrap_or(100.0);
            }
            _ => {}
        }
    }

    fn set_text(&mut self, name: &str, text: &str) -> Result<(), Fault> {
        let spec = &mut self.spec;
        match name {
            "description" => spec.description = Some(text.to_string()),
            "name" => spec.name = text.to_string(),
            "wait_for" => self.wait_for = Some(text.to_string()),
            "filename" => self.add_files(text)?,
            "directory" => spec.directories = filenames::split(text),
            "filename_format" => spec.filename_format = text.to_string(),
            "ioengine" => self.set_engine(text.trim())?,
            "bssplit" => self.set_block_split(text)?,
            "read_iolog" => spec.read_iolog = Some(text.to_string()),
            "cgroup" => spec.cgroup = Some(text.to_string()),
            "ioscheduler" => spec.io_scheduler = Some(text.to_string()),
            "cpus_allowed" => spec.cpus = cpus::parse(text)?,
            "cmdprio_bssplit" => self.engine.command_split = text.to_string(),
            _ => {}
        }
        Ok(())
    }

    fn set_choice(&mut self, name: &str, word: &str, rest: Option<&str>) -> Result<(), Fault> {
        let spec = &mut self.spec;
        match name {
            "rw" => return self.set_pattern(word, rest),
            "random_distribution" => {
                spec.distribution =
                    distribution::offsets(word, rest, &spec.distribution, spec.kb_base)?;
                return Ok(());
            }
            "file_service_type" => {
                (spec.file_service, spec.file_service_count) = distribution::files(word, rest)?;
                return Ok(());
            }
            "rw_sequencer" => {
                spec.sequencer = match word {
                    "identical" => Sequencer::Identical,
                    _ => Sequencer::Sequential,
                }
            }
            "io_submit_mode" => spec.offload = word == "offload",
            "random_generator" => {
                spec.generator = match word {
                    "lfsr" => RandomGenerator::Lfsr,
                    "tausworthe64" => RandomGenerator::Tausworthe64,
                    _ => RandomGenerator::Tausworthe,
                }
            }
            "sync" => {
                spec.sync = match word {
                    "sync" | "1" => SyncMode::Sync,
                    "dsync" => SyncMode::Dsync,
                    _ => SyncMode::None,
                }
            }
            "rate_process" => {
                spec.rate_process = match word {
                    "poisson" => RateProcess::Poisson,
                    _ => RateProcess::Linear,
                }
            }
            "thinktime_blocks_type" => spec.think.count_issues = word == "issue",
            "cpus_allowed_policy" => spec.cpus_split = word == "split",
            "exit_what" => {
                spec.exit_what = match word {
                    "stonewall" => ExitWhat::Stonewall,
                    "all" => ExitWhat::All,
                    _ => ExitWhat::Group,
                }
            }
            "unified_rw_reporting" => {
                spec.unified = match word {
                    "mixed" | "1" => UnifiedReporting::Mixed,
                    "both" | "2" => UnifiedReporting::Both,
                    _ => UnifiedReporting::None,
                }
            }
            "continue_on_error" => {
                let all = matches!(word, "io" | "all" | "1");
                spec.continue_on_error = ByDirection {
                    read: all || word == "read",
                    write: all || word == "write",
                    trim: all || word == "write",
                };
            }
            "kb_base" => spec.kb_base = if word == "1000" { 1000 } else { 1024 },
            "steadystate" if rest.is_none() => {
                return Err(Fault::new("the threshold is missing").help("such as iops:5%"));
            }
            _ => {}
        }
        match (rest, name) {
            (Some(rest), name) if !matches!(name, "mem" | "steadystate") => {
                Err(Fault::new(format!("`:{rest}` does not belong here")))
            }
            _ => Ok(()),
        }
    }

    fn set_pattern(&mut self, word: &str, rest: Option<&str>) -> Result<(), Fault> {
        let spec = &mut self.spec;
        spec.pattern = match word {
            "write" => Pattern::Write,
            "trim" => Pattern::Trim,
            "randread" => Pattern::RandRead,
            "randwrite" => Pattern::RandWrite,
            "randtrim" => Pattern::RandTrim,
            "rw" | "readwrite" => Pattern::ReadWrite,
            "randrw" => Pattern::RandReadWrite,
            "trimwrite" => Pattern::TrimWrite,
            "randtrimwrite" => Pattern::RandTrimWrite,
            _ => Pattern::Read,
        };
        spec.random_every = 1;
        spec.sequential_step_bytes = 0;
        let Some(rest) = rest else { return Ok(()) };
        if spec.pattern.is_random() {
            spec.random_every = match rest.trim().parse() {
                Ok(n) if n > 0 => n,
                _ => {
                    return Err(Fault::new("the number of I/Os per random offset is wrong")
                        .help("such as rw=randread:8"));
                }
            };
        } else {
            spec.sequential_step_bytes = units::signed_bytes(rest, spec.kb_base)?;
        }
        Ok(())
    }

    fn add_files(&mut self, text: &str) -> Result<(), Fault> {
        let spec = &mut self.spec;
        let names = filenames::split(text);
        if names.is_empty() {
            return Err(Fault::new("names no file"));
        }
        // fio forgets nrfiles with the first name and counts names instead.
        if spec.files.is_empty() {
            spec.file_count = 0;
        }
        spec.file_count = spec.file_count.saturating_add(names.len() as u32);
        let directory = match spec.directories.first() {
            Some(directory) => format!("{directory}/"),
            None => String::new(),
        };
        spec.files
            .extend(names.iter().map(|name| format!("{directory}{name}")));
        Ok(())
    }

    fn set_engine(&mut self, name: &str) -> Result<(), Fault> {
        let (word, path) = match name.split_once(':') {
            Some((word, path)) => (word, Some(path)),
            None => (name, None),
        };
        if !table::ENGINES.contains(&word) {
            return Err(value::unknown_word(word, table::ENGINES));
        }
        if (word == "external") != path.is_some() {
            return Err(Fault::new("only external takes a path, and needs one")
                .help("such as external:/path/engine.so"));
        }
        if !table::same_engine_options(self.spec.engine.name(), word) {
            self.engine = EngineDraft::default();
        }
        self.spec.engine = engine(name);
        Ok(())
    }

    fn set_block_split(&mut self, text: &str) -> Result<(), Fault> {
        let lists = splits::directions(text)?;
        for direction in Direction::ALL {
            let split = splits::block_sizes(lists[direction], self.spec.kb_base)?;
            let sizes = || split.iter().map(|(size, _)| *size);
            if let (Some(min), Some(max)) = (sizes().min(), sizes().max()) {
                self.block_range[direction] = Some((min, max));
                self.spec.block_sizes[direction].split = split;
            }
        }
        Ok(())
    }

    fn priority(&mut self) -> &mut Priority {
        self.spec.priority.get_or_insert_default()
    }

    fn latency_target(&mut self) -> &mut LatencyTarget {
        self.spec.latency_target.get_or_insert(LatencyTarget {
            target_us: 0,
            window_us: 0,
            percentile: 100.0,
            keep_running: false,
        })
    }
}

/// Takes the values given; the others stay.
fn merge<T: Copy>(target: &mut ByDirection<T>, values: [Option<T>; 3]) {
    for (direction, value) in Direction::ALL.into_iter().zip(values) {
        if let Some(value) = value {
            target[direction] = value;
        }
    }
}

fn engine(name: &str) -> Engine {
    match name {
        "sync" => Engine::Sync,
        "psync" => Engine::Psync,
        "vsync" => Engine::Vsync,
        "pvsync" => Engine::Pvsync,
        "pvsync2" => Engine::Pvsync2,
        "libaio" => Engine::Libaio,
        "posixaio" => Engine::Posixaio,
        "io_uring" => Engine::IoUring,
        "io_uring_cmd" => Engine::IoUringCmd,
        "mmap" => Engine::Mmap,
        "splice" => Engine::Splice,
        "sg" => Engine::Sg,
        "null" => Engine::Null,
        other => Engine::Other(other.to_string()),
    }
}

/// What fio takes where nothing is said.
fn default_spec(position: Position) -> JobSpec {
    let block = BlockSizes {
        min_bytes: 4096,
        max_bytes: 4096,
        ..BlockSizes::default()
    };
    JobSpec {
        position,
        processes: 1,
        filename_format: "$jobname.$jobnum.$filenum".to_string(),
        file_count: 1,
        file_service_count: 1,
        random_every: 1,
        read_percent: 50,
        random_percent: ByDirection::all(100),
        block_sizes: ByDirection::all(block),
        align_bytes: ByDirection::all(4096),
        loops: 1,
        random_repeatable: true,
        io_depth: 1,
        batch_submit: 1,
        batch_complete_min: 1,
        rate_cycle_ms: 1000,
        think: ThinkTime {
            blocks: 1,
            ..ThinkTime::default()
        },
        percentiles: DEFAULT_PERCENTILES.to_vec(),
        clat_percentiles: true,
        stats: true,
        bandwidth_window_ms: 500,
        iops_window_ms: 500,
        kb_base: 1024,
        ..JobSpec::default()
    }
}
