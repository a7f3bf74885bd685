//! The experiment: a job under each scheduler in turn, several times over,
//! and everything put back.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use blklab_stats::{DiskStats, Results};
use blklab_workload::fio::JobFile;

use crate::disk::Disk;
use crate::disk_stat::Counters;
use crate::error::HostError;
use crate::file_system::{FileSystem, Mounted};
use crate::fio::Fio;
use crate::fio_job::on_device;
use crate::interrupt::Interrupts;
use crate::load::Load;
use crate::permit::is_read_only_job;
use crate::proc_stat::{CpuWatch, totals};
use crate::queue::{Choice, Files, Queue, Restore};
use crate::system::{System, read};
use crate::tracefs::{self, Kind, Session, Splitter};

/// For how long the machine's other work is looked at before the first run.
const QUIET: Duration = Duration::from_millis(500);

/// What is to be done.
#[derive(Clone, Debug)]
pub struct Experiment<'a> {
    /// The machine.
    pub system: &'a System,
    /// The drive.
    pub disk: &'a Disk,
    /// The job as the user gave it.
    pub job: &'a JobFile,
    /// The schedulers, the one to compare with first.
    pub choices: Vec<Choice>,
    /// Measured runs of each.
    pub repeats: usize,
    /// Whether a run of the first goes before, which is not counted.
    pub warm_up: bool,
    /// Whether requests are traced.
    pub trace: bool,
    /// A file system to be made for each run.
    pub file_system: Option<FileSystem>,
    /// fio's program; a plain name is looked for in `PATH`.
    pub fio: PathBuf,
}

/// One step of an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Note what the queue is set to.
    Remember,
    /// See how busy the machine is with other work.
    LookAround,
    /// Set a scheduler, by its place among the choices.
    Set(usize),
    /// Make a file system, mount it and have fio lay out its file.
    Mount,
    /// Write back and drop the page cache.
    DropCaches,
    /// Run the job: which choice and which repeat; `None` is the warm-up.
    Run(usize, Option<usize>),
    /// Unmount the file system.
    Unmount,
    /// Put the queue back.
    PutBack,
}

impl Experiment<'_> {
    /// All steps in order. Repeats are interleaved, so that a drift of the
    /// drive or the machine favours no scheduler.
    pub fn steps(&self) -> Vec<Step> {
        let mut steps = vec![Step::Remember, Step::LookAround];
        let mut run = |choice, repeat| {
            steps.push(Step::Set(choice));
            if self.file_system.is_some() {
                steps.push(Step::Mount);
            }
            // Direct I/O passes by the page cache, and dropping it disturbs
            // everybody else. A file system has just filled it.
            if self.is_buffered() || self.file_system.is_some() {
                steps.push(Step::DropCaches);
            }
            steps.push(Step::Run(choice, repeat));
            if self.file_system.is_some() {
                steps.push(Step::Unmount);
            }
        };
        if self.warm_up {
            run(0, None);
        }
        for repeat in 0..self.repeats {
            (0..self.choices.len()).for_each(|choice| run(choice, Some(repeat)));
        }
        steps.push(Step::PutBack);
        steps
    }

    fn is_buffered(&self) -> bool {
        self.job.jobs.iter().any(|job| !job.direct)
    }

    /// A step in words.
    pub fn describe(&self, step: Step) -> String {
        let folder = self.disk.folder(self.system);
        let queue = folder.join("queue");
        let queue = queue.display();
        match step {
            Step::Remember => {
                format!(
                    "remember {queue}/scheduler, {queue}/iosched/*, {queue}/nr_requests, {queue}/nomerges"
                )
            }
            Step::LookAround => {
                "see how busy the machine is: /proc/loadavg, /proc/stat".to_string()
            }
            Step::Set(choice) => self.describe_choice(&self.choices[choice], &queue.to_string()),
            Step::Mount => self.of_file_system(|fs| fs.describe(&self.disk.path)),
            Step::Unmount => self.of_file_system(FileSystem::describe_end),
            Step::DropCaches => "sync; echo 3 > /proc/sys/vm/drop_caches".to_string(),
            Step::Run(choice, repeat) => {
                let which = match repeat {
                    None => "warm-up, not counted".to_string(),
                    Some(repeat) => format!("repeat {} of {}", repeat + 1, self.repeats),
                };
                let traced = match self.trace {
                    true => ", its requests traced (an instance of tracefs)",
                    false => "",
                };
                let label = self.choices[choice].label();
                let place = self.place();
                format!(
                    "run fio on {} under {label}: {which}{traced}",
                    place.display()
                )
            }
            Step::PutBack => format!("put {queue} back as it was"),
        }
    }

    fn of_file_system(&self, words: impl Fn(&FileSystem) -> String) -> String {
        self.file_system.as_ref().map_or_else(String::new, words)
    }

    /// What fio works on: the drive, or the file in its file system.
    pub fn place(&self) -> PathBuf {
        match &self.file_system {
            Some(fs) => fs.file(),
            None => self.disk.path.clone(),
        }
    }

    fn describe_choice(&self, choice: &Choice, queue: &str) -> String {
        let Choice {
            scheduler,
            tunables,
            nr_requests,
            nomerges,
        } = choice;
        let mut text = format!("wait for requests in flight; echo {scheduler} > {queue}/scheduler");
        for (name, value) in tunables {
            text.push_str(&format!("; echo {value} > {queue}/iosched/{name}"));
        }
        if let Some(n) = nr_requests {
            text.push_str(&format!("; echo {n} > {queue}/nr_requests"));
        }
        if let Some(n) = nomerges {
            text.push_str(&format!("; echo {n} > {queue}/nomerges"));
        }
        text
    }

    /// Checks everything that can be known before anything is changed, and
    /// makes fio's job file.
    pub fn prepare<F: Files>(&self, queue: &Queue<F>) -> Result<Fio<'_>, HostError> {
        for choice in &self.choices {
            queue.check(choice)?;
        }
        if self.trace {
            tracefs::check(self.system)?;
        }
        if let Some(fs) = &self.file_system {
            fs.check(self.job)?;
        }
        let text = on_device(self.job, &self.place())?;
        let fio = Fio::prepare(&self.fio, self.job, text, is_read_only_job(self.job))?;
        fio.check()?;
        Ok(fio)
    }

    /// Does it all. The answer has one list a choice, with one entry a repeat.
    /// Whatever happens, the queue is put back.
    pub fn run<F: Files>(
        &self,
        queue: &Queue<F>,
        each_done: &dyn Fn(),
    ) -> Result<Vec<Vec<Results>>, HostError> {
        let fio = self.prepare(queue)?;
        // From here on signals are noted: before the queue is touched.
        let interrupts = Interrupts::watch()?;
        let guard = Restore::remember(queue)?;
        let done = self.measure(queue, &fio, &interrupts, each_done);
        match (done, guard.put_back()) {
            (Ok(results), Ok(())) => Ok(results),
            (Err(error), Ok(())) => Err(error),
            (Ok(_), Err(error)) => Err(error),
            // The drive went during the run: one message tells it.
            (Err(HostError::Vanished { device }), Err(_)) => Err(HostError::Vanished { device }),
            (Err(error), Err(HostError::Vanished { device })) => {
                Err(HostError::Fio(format!("{error}; {device} has vanished")))
            }
            (Err(HostError::Interrupted(signal)), Err(restore)) => Err(HostError::NotRestored(
                format!("stopped by {signal}, and {restore}"),
            )),
            (Err(error), Err(restore)) => {
                Err(HostError::NotRestored(format!("{error}; and {restore}")))
            }
        }
    }

    fn measure<F: Files>(
        &self,
        queue: &Queue<F>,
        fio: &Fio<'_>,
        interrupts: &Interrupts,
        each_done: &dyn Fn(),
    ) -> Result<Vec<Vec<Results>>, HostError> {
        let mut all: Vec<Vec<Results>> = vec![Vec::new(); self.choices.len()];
        let mut notes = Vec::new();
        // Unmounted before the queue is put back, whatever happens.
        let mut mounted: Option<Mounted> = None;
        for step in self.steps() {
            interrupts.check()?;
            match step {
                // The guard does both.
                Step::Remember | Step::PutBack => {}
                Step::LookAround => notes = self.look_around()?,
                Step::Set(choice) => queue.set(&self.choices[choice])?,
                Step::Mount => {
                    if let Some(fs) = &self.file_system {
                        mounted = Some(fs.mount(&self.disk.path)?);
                        fio.lay_out(interrupts)?;
                    }
                }
                Step::Unmount => mounted.take().map_or(Ok(()), Mounted::unmount)?,
                Step::DropCaches => self.drop_caches()?,
                Step::Run(choice, repeat) => {
                    let mut results = self.run_once(fio, interrupts)?;
                    if let Some(repeat) = repeat {
                        results.scheduler = self.choices[choice].label();
                        // Repeats of one round met the same drift.
                        results.seed = repeat as u64 + 1;
                        results.notes.extend(notes.iter().cloned());
                        all[choice].push(results);
                    }
                    each_done();
                }
            }
        }
        Ok(all)
    }

    /// Records the machine's other load; warnings are notes of the results.
    fn look_around(&self) -> Result<Vec<String>, HostError> {
        let before = Counters::of(self.system, self.disk)?;
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
        let ios: u64 = Counters::of(self.system, self.disk)?
            .since(&before)
            .ios
            .iter()
            .sum();
        let mut notes = Vec::new();
        if let Some(load) = Load::now(self.system) {
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

    fn run_once(&self, fio: &Fio<'_>, interrupts: &Interrupts) -> Result<Results, HostError> {
        let before = Counters::of(self.system, self.disk)?;
        let watch = CpuWatch::start(&self.system.proc("stat"))?;
        let session = match self.trace {
            true => Some(self.start_trace()?),
            false => None,
        };
        let start = Instant::now();
        let done = fio.run(interrupts);
        let elapsed_ns = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let slices = watch.finish();
        let mut results = done.map_err(|error| self.explained(error))?;
        self.check_work(&results)?;
        let after = Counters::of(self.system, self.disk)?;
        results.elapsed_ns = elapsed_ns;
        results.cpus = totals(&slices);
        results.cpu_timeline = slices;
        let mut disk = DiskStats {
            name: self.disk.name.clone(),
            queue: after.since(&before),
            ..DiskStats::default()
        };
        if let Some(session) = session {
            let recording = session.finish()?;
            let mut requests = recording.sink.finish();
            requests.lost_events = requests.lost_events.max(recording.lost);
            disk.queue.requeues = requests.requeues;
            disk.queue.errors = requests.errors;
            if requests.lost_events > 0 {
                results.notes.push(format!(
                    "the trace lost {} events; requests under way then are not in the latencies \
                     of scheduler and drive",
                    requests.lost_events
                ));
            }
            results.requests = Some(requests);
        }
        results.disks = vec![disk];
        results.drive = drive_name(self.system, self.disk);
        results.machine = machine_name(self.system);
        Ok(results)
    }

    fn start_trace(&self) -> Result<Session<Splitter>, HostError> {
        Session::start(self.system, self.disk, &Kind::EVENTS, Splitter::default())
    }

    /// fio ends well when a job's range lies beyond the device, having done
    /// nothing; figures of nothing are none.
    fn check_work(&self, results: &Results) -> Result<(), HostError> {
        let ios = |job: &blklab_stats::JobResults| job.read.ios + job.write.ios + job.trim.ios;
        let Some(idle) = results.jobs.iter().find(|job| ios(job) == 0) else {
            return Ok(());
        };
        let size = self.disk.size_bytes(self.system)?;
        Err(HostError::Fio(format!(
            "{}: fio did no I/O for [{}]: does its offset or size lie beyond the {size} bytes of \
             {}?",
            self.job.name,
            idle.name,
            self.disk.path.display()
        )))
    }

    /// fio cannot know that the device went away under it.
    fn explained(&self, error: HostError) -> HostError {
        match error {
            HostError::Fio(_) if !self.disk.folder(self.system).exists() => HostError::Vanished {
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

/// The kernel's release: no name of the machine gets into a report.
pub(crate) fn machine_name(system: &System) -> String {
    let release = read(
        "read the kernel's release",
        &system.proc("sys/kernel/osrelease"),
    );
    format!("Linux {}", release.unwrap_or_default())
        .trim_end()
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Number;
    use blklab_workload::fio;

    fn with<T>(job: &str, check: impl Fn(&Experiment<'_>) -> T) -> T {
        let no_includes = |_: &str, _: &str| Err("no includes".to_string());
        let job = fio::parse_str("t.fio", job, &|_| None, &no_includes).unwrap();
        let choice = |name: &str| Choice {
            scheduler: name.to_string(),
            ..Choice::default()
        };
        let disk = Disk {
            path: "/dev/sdx".into(),
            name: "sdx".into(),
            number: Number { major: 8, minor: 0 },
        };
        check(&Experiment {
            system: &System::default(),
            disk: &disk,
            job: &job,
            choices: vec![choice("none"), choice("bfq")],
            repeats: 2,
            warm_up: true,
            trace: true,
            file_system: None,
            fio: "fio".into(),
        })
    }

    const DIRECT: &str = "[a]\nfilename=/dev/x\nrw=randread\nsize=1m\ndirect=1\n";

    #[test]
    fn repeats_are_interleaved_behind_a_warm_up() {
        let runs = with(DIRECT, |e| {
            let runs = e.steps().into_iter().filter_map(|step| match step {
                Step::Run(choice, repeat) => Some((choice, repeat)),
                _ => None,
            });
            runs.collect::<Vec<_>>()
        });
        assert_eq!(
            runs,
            [
                (0, None),
                (0, Some(0)),
                (1, Some(0)),
                (0, Some(1)),
                (1, Some(1))
            ]
        );
    }

    #[test]
    fn only_buffered_jobs_drop_caches() {
        let drops = |job: &str| with(job, |e| e.steps().contains(&Step::DropCaches));
        assert!(!drops(DIRECT));
        assert!(drops(&DIRECT.replace("direct=1", "direct=0")));
    }

    #[test]
    fn every_step_has_words() {
        let words: Vec<String> = with(DIRECT, |e| {
            e.steps().into_iter().map(|s| e.describe(s)).collect()
        });
        assert!(words[0].contains("/sys/block/sdx/queue/scheduler"));
        assert!(words.iter().any(|w| w.contains("echo bfq > ")));
        assert!(words.iter().any(|w| w.contains("repeat 2 of 2")));
        assert!(words.last().unwrap().contains("as it was"));
    }
}
