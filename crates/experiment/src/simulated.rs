//! The simulated world: models in virtual time.

use std::borrow::Cow;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

use blklab_blk::Nanos;
use blklab_device::{DriveSpec, DriveState};
use blklab_driver::FrontEnd;
use blklab_elevator::SchedulerChoice;
use blklab_sim::{
    BreakOff, Caching, FileSystemKind, Machine, Replay, Setup, Workload, check_front_end, check_job,
};
use blklab_stats::{Detail, Results, Slowest, Window};
use blklab_workload::calls::CallList;
use blklab_workload::fio::{JobFile, JobSpec, Override};
use blklab_workload::generate::processes;

use crate::error::Error;
use crate::hash::StableHash;
use crate::setting::{Setting, check_queue};
use crate::work::{Jobs, WorkloadSource};
use crate::world::{Order, PlannedRun, Row, Watch, World};

/// The part of a run that is recorded moment by moment, and its detail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recording {
    /// The start of the recording; the end of the job's ramp if not given.
    pub start_ns: Option<u64>,
    /// The length of the recording; a length that suits the drive if not given.
    pub length_ns: Option<u64>,
    /// The purpose of the recording.
    pub purpose: Purpose,
}

/// The purpose of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// An HTML page.
    Page,
    /// Perfetto's viewer, which can show more than a page.
    Perfetto,
    /// A block trace, or a tool's view of one: the whole run, without the drive's
    /// inside.
    Trace,
}

/// Limits on the recorded entries; more make a page or a viewer unusable.
const PAGE_ENTRIES: usize = 60_000;
const PERFETTO_ENTRIES: usize = 3_000_000;
/// Limit on the entries of a block trace, about 300 MB.
const TRACE_ENTRIES: usize = 5_000_000;
/// Limit on the entries from which the slowest requests are found, about 60 MB.
const SLOWEST_ENTRIES: usize = 1_000_000;
/// Limit on the entries for a table of requests: 5 GB, about three million requests of an NVMe
/// drive.
const REQUESTS_ENTRIES: usize = 50_000_000;

impl Recording {
    /// Returns the window to record on this drive; it begins at `ramp_ns` by default.
    fn window(&self, drive: &DriveSpec, ramp_ns: u64) -> Window {
        // An I/O of a hard disk takes about ten milliseconds.
        let page_ns = match drive.identity().rotational {
            true => 500_000_000,
            false => 20_000_000,
        };
        let (length_ns, max_entries) = match self.purpose {
            Purpose::Page => (page_ns, PAGE_ENTRIES),
            Purpose::Perfetto => (1_000_000_000, PERFETTO_ENTRIES),
            Purpose::Trace => (u64::MAX, TRACE_ENTRIES),
        };
        let is_trace = self.purpose == Purpose::Trace;
        Window {
            start_ns: self.start_ns.unwrap_or(if is_trace { 0 } else { ramp_ns }),
            length_ns: self.length_ns.unwrap_or(length_ns),
            max_entries,
            detail: if is_trace {
                Detail::Bios
            } else {
                Detail::Drives
            },
        }
    }
}

/// Returns when the measured part of a job begins, in nanoseconds. Only a time-based job
/// is certain to reach the end of its ramp.
fn ramp_ns(job: &JobFile) -> u64 {
    if !job.jobs.iter().all(|spec| spec.time_based) {
        return 0;
    }
    let ramps_us = job.jobs.iter().map(|spec| spec.ramp_us);
    ramps_us.min().unwrap_or(0).saturating_mul(1000)
}

/// Returns when a job ends at the latest, in nanoseconds; `None` if it ends when its
/// work is done.
fn end_ns(job: &JobFile) -> Option<u64> {
    let mut stages_us = vec![0];
    for spec in &job.jobs {
        if spec.stonewall {
            stages_us.push(0);
        }
        if spec.runtime_us == 0 {
            return None;
        }
        let ramp_us = spec.ramp_us.saturating_add(spec.start_delay_us.1);
        let stage_us = stages_us.last_mut()?;
        *stage_us = (*stage_us).max(ramp_us.saturating_add(spec.runtime_us));
    }
    let all_us = stages_us.into_iter().fold(0, u64::saturating_add);
    Some(all_us.saturating_mul(1000).max(1))
}

/// The texts that describe an experiment, for its page.
#[derive(Clone, Debug, Default)]
pub struct Descriptions {
    /// The job's text, or the name of a trace's file.
    pub job: String,
    /// The drives' descriptions.
    pub drive: String,
    /// The machines' descriptions.
    pub machine: String,
}

/// Models that rows refer to, each loaded once.
pub(crate) struct LoadedModels<T>(Vec<LoadedModel<T>>);

struct LoadedModel<T> {
    name: String,
    model: T,
    text: String,
    /// The hash of the text, which is long and belongs to the identity of many rows.
    hash: u128,
}

impl<T> LoadedModels<T> {
    fn place_of(
        &mut self,
        name: &str,
        load: impl Fn(&str) -> Result<(T, String), String>,
    ) -> Result<usize, Error> {
        if let Some(at) = self.0.iter().position(|known| known.name == name) {
            return Ok(at);
        }
        let (model, text) = load(name).map_err(Error::Mistake)?;
        self.0.push(LoadedModel {
            name: name.to_string(),
            model,
            hash: StableHash::default().with(&text).bits(),
            text,
        });
        Ok(self.0.len() - 1)
    }

    /// Iterates over the models with their names.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &T)> {
        (self.0.iter()).map(|known| (known.name.as_str(), &known.model))
    }

    /// Replaces the model of this name by what `make` makes of its text.
    pub(crate) fn replace(
        &mut self,
        name: &str,
        make: impl Fn(&str) -> Result<T, Error>,
    ) -> Result<(), Error> {
        for known in &mut self.0 {
            if known.name == name {
                known.model = make(&known.text)?;
            }
        }
        Ok(())
    }

    fn texts(&self) -> String {
        let texts: Vec<&str> = self.0.iter().map(|known| known.text.as_str()).collect();
        texts.join("\n")
    }
}

/// The work of a row.
enum Input<'a> {
    /// A job, by its index.
    Job(usize),
    /// A trace, by its file.
    Trace(&'a str),
    /// A list of calls, with its file.
    Calls(&'a CallList, &'a str),
}

/// A row, with indices of its models.
struct SimulatedRow<'a> {
    label: String,
    scheduler: SchedulerChoice,
    caching: Caching,
    drive: usize,
    front_end: Option<FrontEnd>,
    machine: usize,
    input: Input<'a>,
    power_loss_at_ns: Option<u64>,
}

/// Models in virtual time.
pub struct Simulated<'a> {
    pub(crate) work: &'a WorkloadSource,
    rows: Vec<SimulatedRow<'a>>,
    pub(crate) drives: LoadedModels<DriveSpec>,
    pub(crate) machines: LoadedModels<Machine>,
    pub(crate) jobs: Jobs,
    /// How a trace is replayed.
    pub replay: Replay,
    /// Whether the arrivals of a trace vary a little from run to run.
    pub varies_arrivals: bool,
    /// The part that is recorded of the first run of each row, if any.
    pub recording: Option<Recording>,
    /// The slowest requests that are examined in the first run of each row, if any.
    pub tail: Option<Tail>,
    /// Whether results keep the logs of each I/O that jobs ask for; they are long.
    pub keeps_logs: bool,
    /// Whether all requests of the first run of each row are kept one by one.
    pub traces_requests: bool,
    /// Whether results have the times of requests in scheduler and drive.
    pub times_requests: bool,
    /// A flag that aborts the current runs once it is set.
    pub abandon: Option<&'a AtomicBool>,
    /// Whether an aborted run of jobs has results: the jobs end as if their time were over.
    pub keeps_aborted: bool,
}

/// The slowest requests that are examined.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tail {
    /// The percentile of latency beyond which a request counts as slow.
    pub percent: f64,
    /// The time from which requests are examined; the end of the job's ramp if not
    /// given.
    pub start_ns: Option<u64>,
}

impl<'a> Simulated<'a> {
    /// Prepares the work under these settings.
    ///
    /// # Errors
    /// If a setting names something unknown, or a job cannot be simulated; the message
    /// says what is right.
    pub fn new(work: &'a WorkloadSource, settings: &[Setting]) -> Result<Simulated<'a>, Error> {
        let mut world = Simulated {
            work,
            rows: Vec::new(),
            drives: LoadedModels(Vec::new()),
            machines: LoadedModels(Vec::new()),
            jobs: Jobs::new(),
            replay: Replay::default(),
            varies_arrivals: false,
            recording: None,
            tail: None,
            keeps_logs: false,
            traces_requests: false,
            times_requests: false,
            abandon: None,
            keeps_aborted: false,
        };
        for setting in settings {
            let row = world.simulation(setting)?;
            world.rows.push(row);
        }
        for job in world.jobs.iter() {
            check_job(job)?;
        }
        Ok(world)
    }

    /// Returns the longest runtime of all jobs, 0 if one of them goes on until all of its size
    /// is done; `None` for traces and lists of calls, which have no jobs.
    pub fn longest_runtime_us(&self) -> Option<u64> {
        let specs = || self.jobs.iter().flat_map(|job| &job.jobs);
        let longest = specs().map(|spec| spec.runtime_us).max()?;
        match specs().all(|spec| spec.runtime_us > 0) {
            true => Some(longest),
            false => Some(0),
        }
    }

    /// Returns a note if drives that are compared begin in different states, on which a faster
    /// one may depend.
    pub fn note_on_states(&self) -> Option<String> {
        // A disk has none.
        let can_begin_so = |drive: &DriveSpec| drive.clone().in_state(drive.state()).is_ok();
        let with_state = self.drives.iter().filter(|(_, drive)| can_begin_so(drive));
        let states: Vec<_> = with_state
            .map(|(name, drive)| (name, drive.state()))
            .collect();
        let is_another = |(_, state): &(&str, DriveState)| *state != states[0].1;
        states.iter().any(is_another).then(|| {
            let all = states.iter().map(|(name, state)| format!("{name} {state}"));
            let all: Vec<String> = all.collect();
            format!(
                "the drives begin in different states ({}): --state gives all of them the same",
                all.join(", ")
            )
        })
    }

    /// Returns the first job that nothing ends but its size: neither a runtime nor a number of I/Os.
    pub fn unlimited_job(&self) -> Option<&str> {
        let mut specs = self.jobs.iter().flat_map(|job| &job.jobs);
        let unlimited = specs.find(|spec| spec.runtime_us == 0 && spec.number_ios == 0);
        unlimited.map(|spec| spec.name.as_str())
    }

    /// Returns the most files that a row's jobs have made in a file system before they begin.
    pub fn files_made(&self) -> u64 {
        let is_in_one = |row: &SimulatedRow<'_>| row.caching.file_system != FileSystemKind::Raw;
        if !self.rows.iter().any(is_in_one) {
            return 0;
        }
        let files = |job: &JobFile| -> u64 {
            let named = job.jobs.iter().filter(|spec| spec.files.is_empty());
            let files = named.map(|spec| u64::from(spec.processes) * u64::from(spec.file_count));
            files.sum()
        };
        self.jobs.iter().map(files).max().unwrap_or(0)
    }

    /// Refuses jobs with options that change the work and are not simulated.
    ///
    /// # Errors
    /// For the first such option.
    pub fn check_modelled(&self) -> Result<(), Error> {
        let mut specs = self.jobs.iter().flat_map(|job| &job.jobs);
        specs
            .try_for_each(|spec| spec.check_modelled())
            .map_err(Error::mistake)
    }

    fn simulation(&mut self, setting: &Setting) -> Result<SimulatedRow<'a>, Error> {
        let machine = self.machines.place_of(&setting.machine, Machine::load)?;
        let front_end = setting.simulated_front_end()?;
        let drive = (self.drives).place_of(&setting.simulated_drive_name(), |_| {
            setting.simulated_drive()
        })?;
        let scheduler = setting.choice()?;
        check_front_end(&self.machines.0[machine].model, front_end)?;
        check_queue(&scheduler, &self.drives.0[drive].model, front_end)?;
        let cpus = self.machines.0[machine].model.cpus();
        let input = match self.work {
            WorkloadSource::Job(source) => Input::Job(self.jobs.read(source, cpus, setting)?),
            WorkloadSource::Trace(file) | WorkloadSource::Calls { file, .. }
                if !setting.options.is_empty() =>
            {
                let Override { given_by, name, .. } = &setting.options[0];
                return Err(Error::Mistake(format!(
                    "{given_by} {name}: {file} is no job of fio's, which has such options"
                )));
            }
            WorkloadSource::Trace(file) | WorkloadSource::Calls { file, .. }
                if setting.cgroup_file.is_some() =>
            {
                return Err(Error::Mistake(format!(
                    "--cgroup-file: {file} has no jobs that could be in groups"
                )));
            }
            WorkloadSource::Trace(file) => Input::Trace(file),
            WorkloadSource::Calls { file, list } => Input::Calls(list, file),
        };
        Ok(SimulatedRow {
            label: setting.label.clone(),
            scheduler,
            caching: setting.caching()?,
            drive,
            front_end,
            machine,
            input,
            power_loss_at_ns: setting.power_loss_at_ns,
        })
    }

    /// Returns the log files of all jobs, each once, as fio would name them.
    pub fn log_files(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for job in self.jobs.iter() {
            for (number, process) in processes(job).iter().enumerate() {
                let spec = &job.jobs[process.job];
                let kinds = spec.logs.kinds();
                names.extend(kinds.map(|kind| spec.logs.file(kind, &spec.name, number as u32)));
            }
        }
        names.sort();
        names.dedup();
        names
    }

    /// Returns a text of everything that determines a row's results, except their seeds and the
    /// content of a trace.
    pub(crate) fn identity(&self, row: usize) -> String {
        let row = &self.rows[row];
        let drive = &self.drives.0[row.drive];
        let machine = self.machines.0[row.machine].hash;
        let work = match row.input {
            // The place of the job's file is left out: machines have it in different
            // places.
            Input::Job(at) => {
                let job = self.jobs.get(at);
                let (groups, writes) = (&job.cgroups, &job.cgroup_writes);
                let specs = job.jobs.iter().map(JobSpec::without_places);
                format!("{:?} {groups:?} {writes:?}", specs.collect::<Vec<_>>())
            }
            Input::Trace(_) => format!("{:?} {}", self.replay, self.varies_arrivals),
            Input::Calls(list, _) => list.to_string(),
        };
        let SchedulerChoice {
            kind,
            tunables,
            attributes,
            nr_requests,
            nomerges,
            wbt_lat_us,
        } = &row.scheduler;
        let queue = (
            kind.name,
            tunables,
            attributes,
            nr_requests,
            nomerges,
            wbt_lat_us,
        );
        format!(
            "{work} {queue:?} {:?} {:?} {:?} {} {:x} {machine:x}",
            row.caching, row.front_end, row.power_loss_at_ns, drive.name, drive.hash
        )
    }

    /// Returns the texts that describe the experiment.
    pub fn descriptions(&self) -> Descriptions {
        Descriptions {
            job: self.work.text(),
            drive: self.drives.texts(),
            machine: self.machines.texts(),
        }
    }

    /// Checks that the requested timeline begins before the run ends.
    fn check_recording(&self, rows: &[Row]) -> Result<(), Error> {
        let runs = || rows.iter().flat_map(|row| &row.runs);
        if self.recording.is_none() || runs().any(|run| run.timeline.is_some()) {
            return Ok(());
        }
        let end_ns = runs().map(|run| run.elapsed_ns).max().unwrap_or(0);
        Err(Error::Mistake(format!(
            "--timeline-start: the run was over after {:.3} ms; a timeline begins before",
            end_ns as f64 / 1e6
        )))
    }

    /// Checks that the requested power loss happened in every run.
    fn check_power_loss(&self, rows: &[Row]) -> Result<(), Error> {
        let cut = self.rows.iter().zip(rows);
        let cut = cut.filter(|(own, _)| own.power_loss_at_ns.is_some());
        let mut runs = cut.flat_map(|(_, row)| &row.runs);
        match runs.find(|run| !run.lost_power()) {
            None => Ok(()),
            Some(run) => Err(Error::Mistake(format!(
                "--power-loss-at: the run under {} was over after {:.3} ms; right is a time before",
                run.scheduler,
                run.elapsed_ns as f64 / 1e6
            ))),
        }
    }

    fn is_abandoned(&self) -> bool {
        self.abandon
            .is_some_and(|stop| stop.load(Ordering::Relaxed))
    }
}

impl World for Simulated<'_> {
    type Ready<'w>
        = ()
    where
        Self: 'w;
    const ORDER: Order = Order::Parallel;

    fn labels(&self) -> Vec<String> {
        self.rows.iter().map(|row| row.label.clone()).collect()
    }

    fn prepare(&self, _: Watch<'_>) -> Result<(), Error> {
        Ok(())
    }

    fn run(
        &self,
        (): &(),
        planned: PlannedRun,
        reached: &mut dyn FnMut(f64),
    ) -> Result<Results, Error> {
        let row = &self.rows[planned.row];
        let drive = &self.drives.0[row.drive].model;
        let replay = Replay {
            jitter: self.varies_arrivals.then_some(planned.seed),
            ..self.replay
        };
        let job;
        let (workload, ramp_ns, end_ns) = match row.input {
            Input::Job(at) => {
                job = match self.keeps_logs {
                    true => Cow::Borrowed(self.jobs.get(at)),
                    false => self.jobs.get(at).without_logs(),
                };
                (Workload::Job(&job), ramp_ns(&job), end_ns(&job))
            }
            Input::Trace(file) => (Workload::Trace { file, replay }, 0, None),
            Input::Calls(list, file) => (Workload::Calls { list, file }, 0, None),
        };
        let mut watch = |now: Nanos| {
            if let Some(end_ns) = end_ns {
                reached(now.0 as f64 / end_ns as f64);
            }
            match (self.is_abandoned(), self.keeps_aborted) {
                (false, _) => ControlFlow::Continue(()),
                (true, true) => ControlFlow::Break(BreakOff::Work),
                (true, false) => ControlFlow::Break(BreakOff::Run),
            }
        };
        let mut run = |record: Option<Window>| -> Result<Results, Error> {
            let setup = Setup {
                workload,
                machine: &self.machines.0[row.machine].model,
                drive,
                front_end: row.front_end,
                scheduler: &row.scheduler,
                seed: planned.seed,
                record,
                power_loss_at: row.power_loss_at_ns.map(Nanos),
                caching: row.caching,
            };
            Ok(blklab_sim::run_watched(&setup, &mut watch)?)
        };
        if self.times_requests {
            return Ok(timed(run(Some(Window {
                start_ns: ramp_ns,
                length_ns: u64::MAX,
                max_entries: REQUESTS_ENTRIES,
                detail: Detail::Bios,
            }))?));
        }
        // Only the first run of each row is analysed.
        let is_first = planned.repeat == Some(0);
        let recording = self.recording.filter(|_| is_first);
        let window = recording.map(|recording| recording.window(drive, ramp_ns));
        let traced = RequestTrace {
            tail: self.tail.filter(|_| is_first),
            keeps_requests: self.traces_requests && is_first,
        };
        match traced.tail.is_some() || traced.keeps_requests {
            true => traced.of_run(&mut run, window, ramp_ns),
            false => run(window),
        }
    }

    fn check(&self, rows: &[Row]) -> Result<(), Error> {
        self.check_power_loss(rows)?;
        self.check_recording(rows)
    }
}

/// What is taken from a run whose requests are all recorded.
struct RequestTrace {
    tail: Option<Tail>,
    keeps_requests: bool,
}

impl RequestTrace {
    /// Runs with a record of all requests, and once more if a timeline is wanted, too: around one
    /// of the slow requests.
    fn of_run(
        &self,
        run: &mut dyn FnMut(Option<Window>) -> Result<Results, Error>,
        window: Option<Window>,
        ramp_ns: u64,
    ) -> Result<Results, Error> {
        let start_ns = self.tail.and_then(|tail| tail.start_ns);
        let mut results = run(Some(Window {
            start_ns: start_ns.unwrap_or(ramp_ns),
            length_ns: u64::MAX,
            max_entries: match self.keeps_requests {
                true => REQUESTS_ENTRIES,
                false => SLOWEST_ENTRIES,
            },
            detail: Detail::Drives,
        }))?;
        let recorded = results.timeline.take();
        let jobs = results.jobs_of_submitters();
        let job_of = |submitter| {
            jobs.get(&submitter)
                .copied()
                .unwrap_or_default()
                .to_string()
        };
        let slowest = recorded.as_ref().zip(self.tail);
        let slowest = slowest.map(|(recorded, tail)| recorded.slowest(tail.percent, job_of));
        let traced_requests = recorded.filter(|_| self.keeps_requests);
        let traced_requests = traced_requests.map(|recorded| recorded.traced_requests());
        if let Some(window) = window {
            results = run(Some(around(window, slowest.as_ref(), start_ns)))?;
        }
        Ok(Results {
            slowest,
            traced_requests,
            ..results
        })
    }
}

/// Results with the times of the requests that were recorded, in place of the record.
fn timed(mut results: Results) -> Results {
    let Some(recorded) = results.timeline.take() else {
        return results;
    };
    let jobs = results.jobs_of_submitters();
    let job_of = |submitter| {
        jobs.get(&submitter)
            .map_or("kworker", |name| name)
            .to_string()
    };
    results.requests = Some(recorded.traced_requests().times(job_of));
    results
}

/// Centres the window on one of the slowest requests, unless its start was given.
fn around(window: Window, slowest: Option<&Slowest>, start_ns: Option<u64>) -> Window {
    let example = slowest.and_then(|slowest| slowest.of.first());
    match (example.map(|of| of.example), start_ns) {
        (Some(example), None) => Window {
            start_ns: example.from_ns.saturating_sub(window.length_ns / 2),
            ..window
        },
        _ => window,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use blklab_device::registry;

    #[test]
    fn a_page_shows_more_of_a_disk() {
        let recording = Recording {
            start_ns: None,
            length_ns: None,
            purpose: Purpose::Page,
        };
        let length_ns = |name: &str| {
            let (drive, _) = registry::load(name).expect("known");
            let window = recording.window(&drive, 7);
            assert_eq!(window.start_ns, 7);
            window.length_ns
        };
        assert_eq!(length_ns("hdd-7200"), 500_000_000);
        assert_eq!(length_ns("mx100-256"), 20_000_000);
    }
}
