//! A row of results: the workload, and what fio reported.

use blklab_workload::fio::Direction;
use thiserror::Error;

/// A fault in a file of results.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{file}:{line}: {}{problem}", if column.is_empty() { String::new() } else { format!("column `{column}`: ") })]
pub struct RowError {
    /// Name of the file as the user gave it.
    pub file: String,
    /// Line, from 1; for JSON the number of the job.
    pub line: usize,
    /// Column; empty if the whole line is meant.
    pub column: String,
    /// What was found, and what would be right.
    pub problem: String,
}

/// fio's results in one direction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// I/Os per second.
    pub iops: f64,
    /// Mean latency from the program's point of view, in microseconds; `None` if it was not
    /// measured.
    pub lat_mean_us: Option<f64>,
    /// The 99th percentile of completion latency, in microseconds; `None` if it was not measured.
    pub clat_p99_us: Option<f64>,
}

impl Measured {
    /// IOPS, mean latency and 99th percentile.
    pub fn figures(&self) -> [Option<f64>; 3] {
        [Some(self.iops), self.lat_mean_us, self.clat_p99_us]
    }
}

/// A row of results.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The experiment that it belongs to.
    pub study: String,
    /// The I/O scheduler.
    pub scheduler: String,
    /// A note that distinguishes repeats.
    pub note: String,
    /// fio's `rw`.
    pub rw: String,
    /// Direction of the results.
    pub direction: Direction,
    /// fio's `rwmixread`: the percentage of reads if `rw` mixes them with writes.
    pub read_percent: u32,
    /// Further fio options, as on its command line but without `--`: the I/O engine, `hipri`,
    /// `size`. Empty for those of the first study (io_uring with registered buffers and files).
    pub options: String,
    /// fio's `bs`.
    pub bs: String,
    /// fio's `iodepth`.
    pub iodepth: u32,
    /// Number of processes.
    pub processes: u32,
    /// Number of cores that they ran on.
    pub cores: u32,
    /// Number of drives that they used.
    pub devices: u32,
    /// How much was read in order before, from where the row's jobs begin: what earlier runs have
    /// left in the drive's cache.
    pub read_before_bytes: u64,
    /// The measured results.
    pub measured: Measured,
}

impl Row {
    /// Describes the workload, for a table.
    pub fn label(&self) -> String {
        let mix = match (self.mixes(), self.read_percent) {
            (false, _) | (true, 50) => String::new(),
            (true, percent) => format!(" of {percent} % reads"),
        };
        format!(
            "{} {} {}{}{mix} bs={} qd={} x{} cores={}{}",
            self.study,
            self.scheduler,
            match self.options.as_str() {
                "" => String::new(),
                options => format!("{options} "),
            },
            direction_name(self.direction),
            self.bs,
            self.iodepth,
            self.processes,
            self.cores,
            match self.devices {
                1 => String::new(),
                n => format!(" drives={n}"),
            }
        )
    }

    /// Whether `rw` mixes reads and writes.
    pub(crate) fn mixes(&self) -> bool {
        matches!(self.rw.as_str(), "randrw" | "rw" | "readwrite")
    }

    /// What is wrong if rate and latency contradict the depth: by Little's law their product is
    /// the number of I/Os in flight. A tenth is left to how they were rounded and when they were
    /// counted.
    pub(crate) fn too_many_in_flight(&self) -> Option<String> {
        let most = u64::from(self.iodepth) * u64::from(self.processes);
        let latency_us = self.measured.lat_mean_us?;
        let iops = self.measured.iops;
        let in_flight = iops * latency_us / 1e6;
        (in_flight > 1.1 * most as f64).then(|| {
            let (processes, depth) = (self.processes, self.iodepth);
            format!(
                "{iops} I/Os a second of {latency_us} us each are {in_flight:.1} in flight, where \
                 {processes} processes at depth {depth} have {most} at most"
            )
        })
    }

    fn field(&self, name: &str) -> Option<String> {
        Some(match name {
            "study" => self.study.clone(),
            "scheduler" => self.scheduler.clone(),
            "note" => self.note.clone(),
            "rw" => self.rw.clone(),
            "direction" => direction_name(self.direction).to_string(),
            "rwmixread" => self.read_percent.to_string(),
            "options" => self.options.clone(),
            "bs" => self.bs.clone(),
            "iodepth" => self.iodepth.to_string(),
            "processes" => self.processes.to_string(),
            "cores" => self.cores.to_string(),
            "devices" => self.devices.to_string(),
            _ => return None,
        })
    }
}

pub(crate) fn direction_name(direction: Direction) -> &'static str {
    match direction {
        Direction::Read => "read",
        Direction::Write => "write",
        Direction::Trim => "trim",
    }
}

/// Columns by which rows can be selected.
const FIELDS: &str = "study, scheduler, note, rw, direction, rwmixread, options, bs, iodepth, processes, cores and devices";

/// A selection of rows: `COLUMN=VALUE[,VALUE...]`, where a final `*` matches any rest. Several
/// selections must all match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    column: String,
    values: Vec<String>,
}

impl Selection {
    /// Parses a selection.
    ///
    /// # Errors
    /// A message that says what would be right.
    pub fn parse(text: &str) -> Result<Selection, String> {
        let Some((column, values)) = text.split_once('=') else {
            return Err(format!(
                "{text}: legal is COLUMN=VALUE, such as study=device-*"
            ));
        };
        let known = FIELDS.replace(" and ", ", ");
        if !known.split(", ").any(|field| field == column) {
            return Err(format!("{column}: no such column; there are {FIELDS}"));
        }
        Ok(Selection {
            column: column.to_string(),
            values: values.split(',').map(str::to_string).collect(),
        })
    }

    /// Whether a row matches.
    pub fn takes(&self, row: &Row) -> bool {
        let Some(found) = row.field(&self.column) else {
            return false;
        };
        self.values
            .iter()
            .any(|value| match value.strip_suffix('*') {
                Some(start) => found.starts_with(start),
                None => found == *value,
            })
    }
}
