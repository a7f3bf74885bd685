//! A run of a job on a real drive and its measurement.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use blklab_stats::{CpuSlice, DiskStats, JobResults, RequestStats, Results};
use blklab_workload::fio::JobFile;
use serde::{Deserialize, Serialize};

use crate::cpu_load::Load;
use crate::cpu_load::{CpuWatch, totals};
use crate::disk::Counters;
use crate::disk::Disk;
use crate::error::HostError;
use crate::file_system::{FileSystem, Mounted};
use crate::fio::{Fio, Printed};
use crate::fio_job::on_device;
use crate::interrupt::Interrupts;
use crate::queue::{Files, Queue, QueueSettings};
use crate::system::{System, read};
use crate::tracefs::{self, Kind, Session, Splitter};

/// How long other work on the machine is observed before the first run.
const QUIET: Duration = Duration::from_millis(500);

/// Setup for measuring jobs on one drive.
#[derive(Clone, Debug)]
pub struct Measurement {
    /// The machine.
    pub system: System,
    /// The drive.
    pub disk: Disk,
    /// Whether requests are traced.
    pub trace: bool,
    /// The file system to make for each run, if any.
    pub file_system: Option<FileSystem>,
}

/// Raw measurements of one run, which can be sent to another machine, where [`Observed::results`]
/// evaluates them.
#[derive(Debug, Serialize, Deserialize)]
pub struct Observed {
    /// Output of fio.
    fio: Printed,
    elapsed_ns: u64,
    slices: Vec<CpuSlice>,
    before: Counters,
    after: Counters,
    /// Latencies of requests, if they were traced.
    requests: Option<RequestStats>,
    /// The drive's name as given by the user, and its size.
    device: String,
    size_bytes: u64,
    /// The kernel's name of the drive.
    disk: String,
    /// The kernel's name and the model of the drive.
    drive: String,
    kernel: String,
}

impl Observed {
    /// Evaluates the measurements for the job that ran.
    ///
    /// # Errors
    /// If fio failed or its output cannot be parsed.
    pub fn results(self, job: &JobFile) -> Result<Results, HostError> {
        let mut results = self.fio.results(job)?;
        self.check_work(job, &results)?;
        results.elapsed_ns = self.elapsed_ns;
        results.cpus = totals(&self.slices);
        results.cpu_timeline = self.slices;
        let mut disk = DiskStats {
            name: self.disk,
            queue: self.after.since(&self.before),
            ..DiskStats::default()
        };
        if let Some(requests) = &self.requests {
            disk.queue.requeues = requests.requeues;
            disk.queue.errors = requests.errors;
            if requests.lost_events > 0 {
                results.notes.push(format!(
                    "the trace lost {} events; requests under way then are not in the latencies \
                     of scheduler and drive",
                    requests.lost_events
                ));
            }
        }
        results.requests = self.requests;
        results.disks = vec![disk];
        results.drive = self.drive;
        results.machine = self.kernel;
        Ok(results)
    }

    /// Refuses results without I/O: fio succeeds without doing anything if a job's range is beyond
    /// the end of the device.
    fn check_work(&self, job: &JobFile, results: &Results) -> Result<(), HostError> {
        let ios = |job: &JobResults| job.read.ios + job.write.ios + job.trim.ios;
        let Some(idle) = results.jobs.iter().find(|job| ios(job) == 0) else {
            return Ok(());
        };
        Err(HostError::Fio(format!(
            "{}: fio did no I/O for [{}]: does its offset or size lie beyond the {} bytes of {}?",
            job.name, idle.name, self.size_bytes, self.device
        )))
    }
}

/// A stage of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Set scheduler and tunables.
    SetQueue,
    /// Make and mount a file system, and let fio create its file.
    Mount,
    /// Write back and drop the page cache.
    DropCaches,
    /// Run the job.
    Fio,
    /// Unmount the file system.
    Unmount,
}

impl Measurement {
    /// The stages of a run, in order.
    fn stages(&self, job: &JobFile) -> Vec<Stage> {
        let has_file_system = self.file_system.is_some();
        // Direct I/O bypasses the page cache, and dropping it disturbs other programs; creating a
        // file system fills it.
        let drops = has_file_system || job.jobs.iter().any(|job| !job.direct);
        let stages = [
            (true, Stage::SetQueue),
            (has_file_system, Stage::Mount),
            (drops, Stage::DropCaches),
            (true, Stage::Fio),
            (has_file_system, Stage::Unmount),
        ];
        let wanted = stages.into_iter().filter(|(wanted, _)| *wanted);
        wanted.map(|(_, stage)| stage).collect()
    }

    fn queue_folder(&self) -> String {
        let folder = self.disk.folder(&self.system);
        folder.join("queue").display().to_string()
    }

    /// Describes what is done before the first run.
    pub fn first_in_words(&self) -> Vec<String> {
        let queue = self.queue_folder();
        vec![
            format!(
                "remember {queue}/scheduler, {queue}/iosched/*, {queue}/nr_requests, {queue}/nomerges"
            ),
            "see how busy the machine is: /proc/loadavg, /proc/stat".to_string(),
        ]
    }

    /// Describes what is done after the last run.
    pub fn last_in_words(&self) -> String {
        format!("put {} back as it was", self.queue_folder())
    }

    /// Describes a run, one line for each stage; `which` names the run.
    pub fn run_in_words(
        &self,
        job: &JobFile,
        settings: &QueueSettings,
        which: &str,
    ) -> Vec<String> {
        let traced = match self.trace {
            true => ", its requests traced (an instance of tracefs)",
            false => "",
        };
        let place = self.place();
        let words = |stage: Stage| match stage {
            Stage::SetQueue => settings.in_words(&self.queue_folder()),
            Stage::Mount => self.of_file_system(|fs| fs.describe(&self.disk.path)),
            Stage::Unmount => self.of_file_system(FileSystem::describe_end),
            Stage::DropCaches => "sync; echo 3 > /proc/sys/vm/drop_caches".to_string(),
            Stage::Fio => format!("run fio on {} {which}{traced}", place.display()),
        };
        self.stages(job).into_iter().map(words).collect()
    }

    fn of_file_system(&self, words: impl Fn(&FileSystem) -> String) -> String {
        self.file_system.as_ref().map_or_else(String::new, words)
    }

    /// The file that fio uses: the drive, or the file in its file system.
    fn place(&self) -> PathBuf {
        match &self.file_system {
            Some(fs) => fs.file(),
            None => self.disk.path.clone(),
        }
    }

    /// Writes the job file that runs `job` on the drive or in its file system.
    ///
    /// # Errors
    /// If the job cannot run there.
    pub fn job_on_drive(&self, job: &JobFile) -> Result<String, HostError> {
        on_device(job, &self.place())
    }

    /// Checks all that can be checked before anything is changed, and prepares fio.
    ///
    /// # Errors
    /// If the job cannot run this way, or fio is missing.
    pub fn prepare<'a>(&self, job: &'a JobFile, program: &Path) -> Result<Fio<'a>, HostError> {
        if self.trace {
            tracefs::check(&self.system).map_err(HostError::or_without_trace)?;
        }
        if let Some(fs) = &self.file_system {
            fs.check(job)?;
        }
        let fio = Fio::prepare(program, job, self.job_on_drive(job)?)?;
        fio.check()?;
        Ok(fio)
    }

    /// Runs fio's job once with these queue settings.
    ///
    /// # Errors
    /// If the queue cannot be set, fio fails or a signal arrives. The queue then keeps its
    /// settings; a file system is unmounted.
    pub fn run<F: Files>(
        &self,
        queue: &Queue<F>,
        settings: &QueueSettings,
        fio: &Fio<'_>,
        interrupts: &Interrupts,
    ) -> Result<Results, HostError> {
        let observed = self.observe(queue, settings, fio, interrupts)?;
        observed
            .results(fio.job())
            .map_err(|error| self.explained(error))
    }

    /// Runs fio's job once and returns the raw measurements.
    ///
    /// # Errors
    /// As [`Measurement::run`].
    pub fn observe<F: Files>(
        &self,
        queue: &Queue<F>,
        settings: &QueueSettings,
        fio: &Fio<'_>,
        interrupts: &Interrupts,
    ) -> Result<Observed, HostError> {
        let mut mounted: Option<Mounted> = None;
        let mut observed = None;
        for stage in self.stages(fio.job()) {
            interrupts.check()?;
            match stage {
                Stage::SetQueue => queue.set(settings)?,
                Stage::Mount => {
                    if let Some(fs) = &self.file_system {
                        mounted = Some(fs.mount(&self.disk.path)?);
                        fio.lay_out(interrupts)?;
                    }
                }
                Stage::DropCaches => self.drop_caches()?,
                Stage::Fio => observed = Some(self.run_fio(fio, interrupts)?),
                Stage::Unmount => mounted.take().map_or(Ok(()), Mounted::unmount)?,
            }
        }
        observed.ok_or_else(|| HostError::Fio(format!("{}: fio did not run", fio.job().name)))
    }

    /// Observes other work on the machine for half a second and returns notes for the results.
    ///
    /// # Errors
    /// If the kernel's counters cannot be read.
    pub fn observe_other_work(&self) -> Result<Vec<String>, HostError> {
        let before = Counters::of(&self.system, &self.disk)?;
        let watch = CpuWatch::start(&self.system.proc("stat"))?;
        std::thread::sleep(QUIET);
        let slices = watch.finish();
        let cpus = slices.first().map_or(1, |slice| slice.cpus.len());
        let times = slices.iter().flat_map(|slice| &slice.cpus);
        let (mut idle_ns, mut total_ns) = (0, 0);
        for time in times {
            idle_ns += time.idle_ns + time.iowait_ns;
            total_ns += time.total_ns();
        }
        let busy = match total_ns {
            0 => 0.0,
            total => 1.0 - idle_ns as f64 / total as f64,
        };
        let ios: u64 = Counters::of(&self.system, &self.disk)?
            .since(&before)
            .ios
            .iter()
            .sum();
        let mut notes = Vec::new();
        if let Some(load) = Load::now(&self.system) {
            notes.push(format!(
                "before the runs: load {:.2} on {cpus} CPUs, {:.0} % of their time taken, \
                 {ios} requests to the drive in {} ms",
                load.minute,
                busy * 100.0,
                QUIET.as_millis()
            ));
            notes.extend(load.warning(cpus));
        }
        if ios > 0 {
            let device = self.disk.path.display();
            notes.push(format!(
                "{device} was in use by others before the runs; the figures show it"
            ));
        }
        Ok(notes)
    }

    fn drop_caches(&self) -> Result<(), HostError> {
        rustix::fs::sync();
        let path = self.system.proc("sys/vm/drop_caches");
        std::fs::write(&path, "3").map_err(|e| HostError::io("drop the page cache", &path, e))
    }

    fn run_fio(&self, fio: &Fio<'_>, interrupts: &Interrupts) -> Result<Observed, HostError> {
        let before = Counters::of(&self.system, &self.disk)?;
        let watch = CpuWatch::start(&self.system.proc("stat"))?;
        let session = match self.trace {
            true => Some(self.start_trace()?),
            false => None,
        };
        let start = Instant::now();
        let done = fio.run_printed(interrupts);
        let elapsed_ns = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let slices = watch.finish();
        let printed = done.map_err(|error| self.explained(error))?;
        let after = Counters::of(&self.system, &self.disk)?;
        let requests = match session {
            None => None,
            Some(session) => {
                let recording = session.finish()?;
                let mut requests = recording.sink.finish();
                requests.lost_events = requests.lost_events.max(recording.lost);
                Some(requests)
            }
        };
        Ok(Observed {
            fio: printed,
            elapsed_ns,
            slices,
            before,
            after,
            requests,
            device: self.disk.path.display().to_string(),
            size_bytes: self.disk.size_bytes(&self.system)?,
            disk: self.disk.name.clone(),
            drive: drive_name(&self.system, &self.disk),
            kernel: self.system.kernel(),
        })
    }

    fn start_trace(&self) -> Result<Session<Splitter>, HostError> {
        let session = Session::start(&self.system, &self.disk, &Kind::EVENTS, Splitter::default());
        session.map_err(HostError::or_without_trace)
    }

    /// Replaces fio's error if the device has disappeared.
    fn explained(&self, error: HostError) -> HostError {
        match error {
            HostError::Fio(_) if !self.disk.folder(&self.system).exists() => HostError::Vanished {
                device: self.disk.path.display().to_string(),
            },
            error => error,
        }
    }
}

/// The kernel's name of the drive, and its model if it has one.
fn drive_name(system: &System, disk: &Disk) -> String {
    let model = disk.folder(system).join("device/model");
    match read("read the drive's model", &model) {
        Ok(model) if !model.is_empty() => format!("{} ({model})", disk.name),
        _ => disk.name.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Number;
    use blklab_workload::fio;

    fn measurement() -> Measurement {
        Measurement {
            system: System::default(),
            disk: Disk {
                path: "/dev/sdx".into(),
                name: "sdx".into(),
                number: Number { major: 8, minor: 0 },
            },
            trace: true,
            file_system: None,
        }
    }

    fn job(text: &str) -> JobFile {
        let no_includes = |_: &str, _: &str| Err("no includes".to_string());
        fio::parse_str("t.fio", text, &|_| None, &no_includes).unwrap()
    }

    const DIRECT: &str = "[a]\nfilename=/dev/x\nrw=randread\nsize=1m\ndirect=1\n";

    #[test]
    fn only_buffered_jobs_drop_caches() {
        let drops = |text: &str| {
            measurement()
                .stages(&job(text))
                .contains(&Stage::DropCaches)
        };
        assert!(!drops(DIRECT));
        assert!(drops(&DIRECT.replace("direct=1", "direct=0")));
    }

    #[test]
    fn every_stage_has_words() {
        let measurement = measurement();
        let settings = QueueSettings {
            scheduler: "bfq".to_string(),
            read_ahead_kb: Some(0),
            ..QueueSettings::default()
        };
        let run = measurement.run_in_words(&job(DIRECT), &settings, "under bfq: repeat 2 of 2");
        assert!(
            run[0].contains("echo bfq > /sys/block/sdx/queue/scheduler"),
            "{run:?}"
        );
        assert!(
            run[0].contains("echo 0 > /sys/block/sdx/queue/read_ahead_kb"),
            "{run:?}"
        );
        assert!(
            run[1].contains("run fio on /dev/sdx under bfq: repeat 2 of 2"),
            "{run:?}"
        );
        assert!(measurement.last_in_words().contains("as it was"));
    }
}
