//! The work of an experiment: an fio job, a list of calls, or a block trace.

use std::path::Path;
use std::sync::Arc;

use blklab_description::{hint, kind_without_end};
use blklab_elevator::SchedulerChoice;
use blklab_workload::calls::CallList;
use blklab_workload::cgroup::CgroupConfig;
use blklab_workload::fio::{JobFile, JobSource, JobSpec, Override};
use blklab_workload::{library, trace};

use crate::error::Error;
use crate::setting::Setting;

/// The file name extension of lists of calls.
const CALLS: &str = "calls";

/// The work of an experiment.
#[derive(Clone, Debug)]
pub enum WorkloadSource {
    /// An fio job.
    Job(JobSource),
    /// A block trace, by its file.
    Trace(String),
    /// A list of calls.
    Calls {
        /// The list's file.
        file: String,
        /// The parsed list.
        list: Arc<CallList>,
    },
}

impl WorkloadSource {
    /// Finds the work that a user names: a shipped job, a job file, a trace, a list of
    /// calls, or several words and `fio` options as on fio's own command line.
    ///
    /// # Errors
    /// If there is no such job, or its file cannot be read.
    pub fn find(names: &[String], fio: &[String]) -> Result<WorkloadSource, Error> {
        if let ([name], []) = (names, fio) {
            return WorkloadSource::named(name);
        }
        if names.is_empty() && fio.is_empty() {
            return Err(Error::mistake(
                "no job given; name a file, one of `blklab list jobs`, or give fio options \
                 behind --",
            ));
        }
        let mut before = names.iter().enumerate();
        if let Some((_, twice)) = before.find(|(at, name)| names[..*at].contains(name)) {
            return Err(Error::mistake(format!(
                "{twice} is named twice; numjobs=2 runs a job twice"
            )));
        }
        let words = fio.iter().chain(names).cloned();
        Ok(WorkloadSource::Job(JobSource::arguments(words.collect())))
    }

    fn named(name: &str) -> Result<WorkloadSource, Error> {
        if let Some(source) = JobSource::shipped(name) {
            return Ok(WorkloadSource::Job(source));
        }
        if let Some(text) = library::list(name) {
            let list = CallList::parse(name, text).map_err(Error::mistake)?;
            return Ok(WorkloadSource::Calls {
                file: name.to_string(),
                list: Arc::new(list),
            });
        }
        let path = Path::new(name);
        if name != "-" && !path.exists() {
            let hint = hint(name, library::names());
            return Err(Error::mistake(format!(
                "{name}: no such file, and no job of that name in `blklab list jobs`{hint}"
            )));
        }
        if let Some(what) = kind_without_end(path) {
            return Err(Error::mistake(format!(
                "{name}: {what}, and a job or a trace is in a file"
            )));
        }
        if path.extension().is_some_and(|end| end == CALLS) {
            return WorkloadSource::calls(path);
        }
        if path.is_file() && is_trace(path)? {
            return Ok(WorkloadSource::Trace(name.to_string()));
        }
        let source = JobSource::file(path).map_err(Error::mistake)?;
        Ok(WorkloadSource::Job(source))
    }

    fn calls(path: &Path) -> Result<WorkloadSource, Error> {
        let list = CallList::read(path).map_err(Error::mistake)?;
        Ok(WorkloadSource::Calls {
            file: path.display().to_string(),
            list: Arc::new(list),
        })
    }

    /// Finds the trace that a user names, and refuses any other work.
    ///
    /// # Errors
    /// If there is no such trace, or its format is not known.
    pub fn trace(name: &str) -> Result<WorkloadSource, Error> {
        if !Path::new(name).exists() {
            // blkparse, too, accepts the common name of a set of files.
            let first = format!("{name}.blktrace.0");
            if Path::new(&first).exists() {
                return Ok(WorkloadSource::Trace(first));
            }
            return Err(Error::mistake(format!("{name}: no such trace")));
        }
        match trace::open(Path::new(name), None) {
            Ok(_) => Ok(WorkloadSource::Trace(name.to_string())),
            Err(error) => Err(Error::mistake(error)),
        }
    }

    /// Returns the scheduler that the job, with the overrides, itself asks for
    /// (`ioscheduler`), which fio sets on the drive.
    ///
    /// # Errors
    /// If the job has a mistake, or asks for several schedulers.
    pub fn scheduler(&self, overrides: &[Override]) -> Result<Option<String>, Error> {
        match self {
            WorkloadSource::Job(source) => scheduler_of(&parse_job(source, own_cpus(), overrides)?),
            WorkloadSource::Trace(_) | WorkloadSource::Calls { .. } => Ok(None),
        }
    }

    /// Returns the names of the jobs, each once; none for a trace, whose jobs are known
    /// only after it ran.
    ///
    /// # Errors
    /// If the job has a mistake.
    pub fn job_names(&self, overrides: &[Override]) -> Result<Vec<String>, Error> {
        let WorkloadSource::Job(source) = self else {
            return Ok(Vec::new());
        };
        let job = parse_job(source, own_cpus(), overrides)?;
        let mut names: Vec<String> = job.jobs.into_iter().map(|spec| spec.name).collect();
        let mut seen: Vec<String> = Vec::new();
        names.retain(|name| {
            let is_new = !seen.contains(name);
            seen.push(name.clone());
            is_new
        });
        Ok(names)
    }

    /// Returns the names of all files and drives of a user's own jobs; none for other work. The
    /// names in jobs of ours are of nobody's drives.
    ///
    /// # Errors
    /// If the job has a mistake.
    pub fn file_names(&self, overrides: &[Override]) -> Result<Vec<String>, Error> {
        let WorkloadSource::Job(source @ (JobSource::File { .. } | JobSource::Arguments(_))) = self
        else {
            return Ok(Vec::new());
        };
        let job = parse_job(source, own_cpus(), overrides)?;
        let of_job = |spec: &JobSpec| -> Vec<String> {
            let processes = 0..spec.processes;
            processes.flat_map(|at| spec.file_names(at)).collect()
        };
        Ok(job.jobs.iter().flat_map(of_job).collect())
    }

    /// Returns the longest runtime of the jobs; `None` if one has none and goes on until all of
    /// its size is done. Traces and lists of calls end by themselves.
    ///
    /// # Errors
    /// If the job has a mistake.
    pub fn longest_runtime_us(&self, overrides: &[Override]) -> Result<Option<u64>, Error> {
        let WorkloadSource::Job(source) = self else {
            return Ok(Some(0));
        };
        let job = parse_job(source, own_cpus(), overrides)?;
        let runtimes = || job.jobs.iter().map(|spec| spec.runtime_us);
        Ok(runtimes().max().filter(|_| runtimes().all(|us| us > 0)))
    }

    /// Returns whether some I/O goes through the page cache. A trace's is below it.
    ///
    /// # Errors
    /// If the job has a mistake.
    pub fn is_buffered(&self, overrides: &[Override]) -> Result<bool, Error> {
        match self {
            WorkloadSource::Job(source) => {
                let job = parse_job(source, own_cpus(), overrides)?;
                Ok(job.jobs.iter().any(|spec| !spec.direct))
            }
            WorkloadSource::Trace(_) => Ok(false),
            WorkloadSource::Calls { .. } => Ok(true),
        }
    }

    /// Returns the text of a job or list, or the name of a trace, to show to the user.
    pub fn text(&self) -> String {
        match self {
            WorkloadSource::Job(source) => source.text(),
            WorkloadSource::Trace(file) => file.clone(),
            WorkloadSource::Calls { list, .. } => list.to_string(),
        }
    }
}

/// Returns whether the file is a block trace. A table is one, though it may not be of a known
/// format: no job has lines of columns.
fn is_trace(path: &Path) -> Result<bool, Error> {
    match trace::open(path, None) {
        Ok(_) => Ok(true),
        Err(trace::TraceError::UnknownFormat { first_line, .. })
            if !is_table(path, &first_line) =>
        {
            Ok(false)
        }
        Err(error) => Err(Error::mistake(error)),
    }
}

/// Whether a file is called a table, or its first line is one's.
fn is_table(path: &Path, first_line: &str) -> bool {
    let is_named = path
        .extension()
        .is_some_and(|end| end == "csv" || end == "tsv");
    // It is quoted, and a tab is shown as `\t`.
    let columns = first_line.replace("\\t", ",").split(',').count();
    is_named || (columns >= TABLE_COLUMNS && !first_line.contains('='))
}

/// Columns of a trace's table at least.
const TABLE_COLUMNS: usize = 4;

/// Parses a job for a machine with this number of CPUs, with the variables of the
/// environment and fio's keyword `$ncpus`.
pub(crate) fn parse_job(
    source: &JobSource,
    cpus: u32,
    overrides: &[Override],
) -> Result<JobFile, Error> {
    let environment = |name: &str| match name {
        "$ncpus" => Some(cpus.to_string()),
        _ => std::env::var(name).ok(),
    };
    source
        .parse(&environment, overrides)
        .map_err(Error::mistake)
}

/// Refuses overrides of an option that the world sets itself.
pub(crate) fn check_options(
    overrides: &[Override],
    is_set: fn(&str) -> bool,
    by: &str,
) -> Result<(), Error> {
    match overrides.iter().find(|given| is_set(given.option())) {
        None => Ok(()),
        Some(option) => Err(Error::mistake(format!(
            "{} {}: {by} sets it, whatever the job says",
            option.given_by, option.name
        ))),
    }
}

/// Returns the number of this machine's CPUs.
pub(crate) fn own_cpus() -> u32 {
    std::thread::available_parallelism().map_or(1, |n| n.get() as u32)
}

fn scheduler_of(job: &JobFile) -> Result<Option<String>, Error> {
    let mut found: Option<&str> = None;
    for spec in &job.jobs {
        let Some(name) = spec.io_scheduler.as_deref() else {
            continue;
        };
        let mistake = |message: String, help: String| {
            Error::mistake(spec.mistake(&["ioscheduler"], message, help))
        };
        SchedulerChoice::named(name).map_err(|problem| {
            mistake(
                problem.to_string(),
                "or a scheduler of your own choice with --scheduler".into(),
            )
        })?;
        match found {
            Some(other) if other != name => {
                return Err(mistake(
                    format!("another job has ioscheduler={other}"),
                    "one for all, as all drives of a run have the same, or --scheduler".into(),
                ));
            }
            _ => found = Some(name),
        }
    }
    Ok(found.map(str::to_string))
}

/// The parsed jobs of an experiment: one for each combination of options, CPUs and
/// control groups in its rows.
pub(crate) struct Jobs {
    read: Vec<(JobKey, JobFile)>,
}

/// The values that determine a parsed job.
#[derive(PartialEq)]
struct JobKey {
    cpus: u32,
    options: Vec<Override>,
    only: Option<String>,
    cgroup_file: Option<String>,
}

impl Jobs {
    pub(crate) fn new() -> Jobs {
        Jobs { read: Vec::new() }
    }

    /// Returns the index of the job with this setting's options and control groups on a
    /// machine with this number of CPUs.
    pub(crate) fn read(
        &mut self,
        source: &JobSource,
        cpus: u32,
        setting: &Setting,
    ) -> Result<usize, Error> {
        let (options, file) = (&setting.options, &setting.cgroup_file);
        let key = JobKey {
            cpus,
            options: options.clone(),
            only: setting.only_job.clone(),
            cgroup_file: file.clone(),
        };
        if let Some(at) = self.read.iter().position(|(known, _)| *known == key) {
            return Ok(at);
        }
        let mut job = parse_job(source, cpus, options)?;
        if let Some(only) = &setting.only_job {
            job.jobs.retain(|spec| spec.name == *only);
        }
        if let Some(file) = file {
            let config = CgroupConfig::read(Path::new(file)).map_err(Error::mistake)?;
            config.put_on(&mut job).map_err(Error::mistake)?;
        }
        self.read.push((key, job));
        Ok(self.read.len() - 1)
    }

    pub(crate) fn get(&self, at: usize) -> &JobFile {
        &self.read[at].1
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &JobFile> {
        self.read.iter().map(|(_, job)| job)
    }
}
