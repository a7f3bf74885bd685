//! One run of a job on a real drive, and what is seen of it.

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

/// For how long the machine's other work is looked at before the first run.
const QUIET: Duration = Duration::from_millis(500);

/// How runs of jobs on one drive are measured.
#[derive(Clone, Debug)]
pub struct Measurement {
    /// The machine.
    pub system: System,
    /// The drive.
    pub disk: Disk,
    /// Whether requests are traced.
    pub trace: bool,
    /// A file system to be made for each run.
    pub file_system: Option<FileSystem>,
}

/// What was seen of one run: it can be taken to another machine, where
/// [`Observed::results`] makes the results of it.
#[derive(Debug, Serialize, Deserialize)]
pub struct Observed {
    /// What fio printed.
    fio: Printed,
    elapsed_ns: u64,
    slices: Vec<CpuSlice>,
    before: Counters,
    after: Counters,
    /// Requests on their way, where they were traced.
    requests: Option<RequestStats>,
    /// The drive as the user named it, and its size.
    device: String,
    size_bytes: u64,
    /// The kernel's name of the drive.
    disk: String,
    /// That, and the drive's model.
    drive: String,
    kernel: String,
}

impl Observed {
    /// The results of the job that ran.
    ///
    /// # Errors
    /// Where fio's output cannot be read, or it failed.
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

    /// fio ends well when a job's range lies beyond the device, having done
    /// nothing; figures of nothing are none.
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

/// What a run is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Set the queue.
    SetQueue,
    /// Make a file system, mount it and have fio lay out its file.
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
        // Direct I/O passes by the page cache, and dropping it disturbs
        // everybody else. A file system has just filled it.
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

    /// What is done before the first run, in words.
    pub fn first_in_words(&self) -> Vec<String> {
        let queue = self.queue_folder();
        vec![
            format!(
                "remember {queue}/scheduler, {queue}/iosched/*, {queue}/nr_requests, {queue}/nomerges"
            ),
            "see how busy the machine is: /proc/loadavg, /proc/stat".to_string(),
        ]
    }

    /// What is done behind the last run, in words.
    pub fn last_in_words(&self) -> String {
        format!("put {} back as it was", self.queue_folder())
    }

    /// A run in words, a line each stage; `which` says which run it is.
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

    /// What fio works on: the drive, or the file in its file system.
    fn place(&self) -> PathBuf {
        match &self.file_system {
            Some(fs) => fs.file(),
            None => self.disk.path.clone(),
        }
    }

    /// The job file that does `job` on the drive, or on the file in its file system.
    ///
    /// # Errors
    /// Where the job cannot be put there.
    pub fn job_on_drive(&self, job: &JobFile) -> Result<String, HostError> {
        on_device(job, &self.place())
    }

    /// Checks everything of a job that can be known before anything is changed,
    /// and makes fio's job file.
    ///
    /// # Errors
    /// Where the job cannot be run so, or fio is missing.
    pub fn prepare<'a>(&self, job: &'a JobFile, program: &Path) -> Result<Fio<'a>, HostError> {
        if self.trace {
            tracefs::check(&self.system)?;
        }
        if let Some(fs) = &self.file_system {
            fs.check(job)?;
        }
        let fio = Fio::prepare(program, job, self.job_on_drive(job)?)?;
        fio.check()?;
        Ok(fio)
    }

    /// Runs fio's job once, with the queue set so.
    ///
    /// # Errors
    /// Where the queue cannot be set, fio fails or a signal comes. The queue stays
    /// as it is then; a file system is unmounted.
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

    /// The same, and says what was seen of it.
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

    /// Looks at the machine's other work, for half a second: what results should
    /// say of it.
    ///
    /// # Errors
    /// Where the kernel does not tell.
    pub fn look_around(&self) -> Result<Vec<String>, HostError> {
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
        Session::start(&self.system, &self.disk, &Kind::EVENTS, Splitter::default())
    }

    /// fio cannot know that the device went away under it.
    fn explained(&self, error: HostError) -> HostError {
        match error {
            HostError::Fio(_) if !self.disk.folder(&self.system).exists() => HostError::Vanished {
                device: self.disk.path.display().to_string(),
            },
            error => error,
        }
    }
}

/// The drive's model where it has one, and the kernel's name for it.
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
