//! The options of one section as given, before [fixup](super::fixup) fits them to one another.

use super::direction::{ByDirection, Direction};
use super::error::{Fault, JobError};
use super::lists;
use super::spec::*;
use super::units;

/// The options of a section, on top of those of `[global]`.
#[derive(Clone, Debug, Default)]
pub(crate) struct SectionOptions {
    pub spec: JobSpec,
    /// `bs`.
    pub block_bytes: ByDirection<u64>,
    /// `bsrange`, or the range that `bssplit` spans.
    pub block_range: ByDirection<Option<(u64, u64)>>,
    /// `blockalign`.
    pub align_bytes: ByDirection<Option<u64>>,
    /// `wait_for`, by name; the name is resolved when all jobs are read.
    pub wait_for: Option<String>,
    /// Options of the engine.
    pub engine: EngineOptions,
}

/// Options that only some engines have; fio drops them if a job takes another engine than the
/// global section.
#[derive(Clone, Debug, Default)]
pub(crate) struct EngineOptions {
    pub command_percent: ByDirection<u32>,
    pub command_class: ByDirection<u32>,
    pub command_level: ByDirection<u32>,
    pub command_split: String,
    pub polled: bool,
    pub submission_thread: bool,
    pub submission_thread_idle_ms: u32,
    pub registered_buffers: bool,
    pub untouched_buffers: bool,
    pub registered_files: bool,
    pub nowait: bool,
    pub force_async_every: u32,
}

impl SectionOptions {
    /// Returns an error in `option`, or in the job if the option was not given.
    pub(crate) fn refuse(&self, option: &str, fault: Fault) -> JobError {
        self.spec.refuse(&[option], fault)
    }

    /// Sets `rw`: a pattern, and the detail after its `:`.
    pub fn set_pattern(&mut self, word: &str, detail: Option<&str>) -> Result<(), Fault> {
        let spec = &mut self.spec;
        spec.pattern = Pattern::named(word).unwrap_or_default();
        spec.random_every = 1;
        spec.sequential_step_bytes = 0;
        let Some(detail) = detail else { return Ok(()) };
        if spec.pattern.is_random() {
            spec.random_every = match detail.trim().parse() {
                Ok(n) if n > 0 => n,
                _ => {
                    return Err(Fault::new("the number of I/Os per random offset is wrong")
                        .help("such as rw=randread:8"));
                }
            };
        } else {
            spec.sequential_step_bytes = units::signed_bytes(detail, spec.kb_base)?;
        }
        Ok(())
    }

    /// Sets `steadystate`: what is judged and how, and the limit after its `:`.
    pub fn set_steady_state(&mut self, word: &str, detail: Option<&str>) -> Result<(), Fault> {
        let limit = detail.ok_or_else(|| {
            let fault = Fault::new("the threshold is missing");
            fault.help("such as iops:5%")
        })?;
        let of_bandwidth = word.starts_with("bw");
        let number = limit.trim_end_matches('%');
        let in_percent = number.len() < limit.len();
        let parsed = match of_bandwidth && !in_percent {
            true => units::bytes(number, self.spec.kb_base)
                .ok()
                .map(|bytes| bytes as f64),
            false => number
                .trim()
                .parse()
                .ok()
                .filter(|limit: &f64| limit.is_finite()),
        };
        let steady_state = &mut self.spec.steady_state;
        steady_state.limit = parsed.ok_or_else(|| {
            let fault = Fault::new("the threshold is no number");
            fault.help("such as iops:5% or bw_slope:1m")
        })?;
        steady_state.of_bandwidth = of_bandwidth;
        steady_state.by_slope = word.ends_with("slope");
        steady_state.in_percent = in_percent;
        Ok(())
    }

    /// Sets `filename`; names add up over sections.
    pub fn add_files(&mut self, text: &str) -> Result<(), Fault> {
        let spec = &mut self.spec;
        let names = lists::file_names(text);
        if names.is_empty() {
            return Err(Fault::new("names no file"));
        }
        // fio forgets `nrfiles` at the first name and counts the names instead.
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

    /// Sets `bssplit`.
    pub fn set_block_split(&mut self, text: &str) -> Result<(), Fault> {
        let lists = lists::by_direction(text)?;
        for direction in Direction::ALL {
            let split = lists::block_sizes(lists[direction], self.spec.kb_base)?;
            let sizes = || split.iter().map(|(size, _)| *size);
            if let (Some(min), Some(max)) = (sizes().min(), sizes().max()) {
                self.block_range[direction] = Some((min, max));
                self.spec.block_sizes[direction].split = split;
            }
        }
        Ok(())
    }

    /// Returns the priority, with its default if it is not set yet.
    pub fn priority(&mut self) -> &mut Priority {
        self.spec.priority.get_or_insert_default()
    }

    /// Returns the latency target, with its default if it is not set yet.
    pub fn latency_target(&mut self) -> &mut LatencyTarget {
        self.spec.latency_target.get_or_insert_default()
    }
}
