//! The host's world: a real drive under this machine's kernel.

use std::path::{Path, PathBuf};

use blklab_host::{
    Disk, FileSystem, Fio, Interrupts, Measurement, Queue, QueueSettings, RealFiles, Restore,
    System, check_overwrite, check_rights,
};
use blklab_stats::Results;
use blklab_workload::fio::JobSource;

use crate::error::Error;
use crate::run_queue::interleaved;
use crate::setting::Setting;
use crate::target::Target;
use crate::work::{Jobs, check_options, own_cpus};
use crate::world::{Event, Order, Plan, PlannedRun, Watch, World};

/// A row: the queue's settings, and the index of the job.
struct HostRow {
    label: String,
    queue: QueueSettings,
    job: usize,
}

/// A real drive under this machine's kernel.
pub struct Host {
    measurement: Measurement,
    queue: Queue<RealFiles>,
    rows: Vec<HostRow>,
    jobs: Jobs,
    job_text: String,
    /// The drive's name, if its data may be destroyed.
    destroy_data: Option<String>,
    /// fio's program; a plain name is searched in `PATH`.
    fio: PathBuf,
}

/// fio with every job, and the queue's settings to restore at the end.
pub struct Ready<'w> {
    fios: Vec<Fio<'w>>,
    interrupts: Interrupts,
    restore: Restore<'w, RealFiles>,
    /// Notes on the machine.
    notes: Vec<String>,
}

impl Host {
    /// Finds the drive at `device`; it has no rows yet.
    ///
    /// # Errors
    /// If there is no such drive.
    pub fn find(device: &Path) -> Result<Host, Error> {
        let system = System::default();
        let disk = Disk::find(&system, device)?;
        let folder = disk.folder(&system);
        Ok(Host {
            queue: Queue::new(RealFiles, device.display().to_string(), folder),
            measurement: Measurement {
                system,
                disk,
                trace: true,
                file_system: None,
            },
            rows: Vec::new(),
            jobs: Jobs::new(),
            job_text: String::new(),
            destroy_data: None,
            fio: "fio".into(),
        })
    }

    /// Disables the tracing of requests.
    pub fn without_trace(mut self) -> Host {
        self.measurement.trace = false;
        self
    }

    /// Has a file system made before each run, of a kind with options of its `mkfs`.
    ///
    /// # Errors
    /// If that kind cannot be made.
    pub fn with_file_system(mut self, mkfs: &str) -> Result<Host, Error> {
        self.measurement.file_system = Some(FileSystem::parse(mkfs)?);
        Ok(self)
    }

    /// Allows the drive's data to be destroyed if `device` is exactly the drive's name.
    pub fn with_destroy_data(mut self, device: Option<&str>) -> Host {
        self.destroy_data = device.map(str::to_string);
        self
    }

    /// Adds the rows: the job under each of these settings.
    ///
    /// # Errors
    /// If the job cannot be read.
    pub fn with_rows(mut self, source: &JobSource, settings: &[Setting]) -> Result<Host, Error> {
        for setting in settings {
            check_options(&setting.options, blklab_host::is_place, "--device")?;
            let job = self.jobs.read(source, own_cpus(), setting)?;
            self.rows.push(HostRow {
                label: setting.label.clone(),
                queue: setting.of_kernel(),
                job,
            });
        }
        self.job_text = source.text();
        Ok(self)
    }

    /// Returns the job's text as it was given.
    pub fn job_text(&self) -> String {
        self.job_text.clone()
    }

    /// Returns the drive.
    pub fn disk(&self) -> &Disk {
        &self.measurement.disk
    }

    /// Returns the drive's size in bytes.
    ///
    /// # Errors
    /// If the kernel does not report it.
    pub fn size_bytes(&self) -> Result<u64, Error> {
        Ok(self.disk().size_bytes(&self.measurement.system)?)
    }

    /// Returns the schedulers that the kernel has for the drive, and the active one.
    ///
    /// # Errors
    /// If the kernel does not report them.
    pub fn schedulers(&self) -> Result<(Vec<String>, String), Error> {
        let schedulers = self.queue.schedulers()?;
        Ok((schedulers.names, schedulers.active))
    }

    /// Returns the device on which settings are made.
    pub fn target(&self) -> Target {
        Target::of_device(&self.disk().name)
    }

    /// Describes every step of the experiment in order, and any reason for which it
    /// would be refused, without doing anything.
    ///
    /// # Errors
    /// If a job cannot run on the drive.
    pub fn dry_run(&self, plan: &Plan) -> Result<String, Error> {
        let mut text = String::new();
        let device = self.disk().path.display();
        match self.check_overwrite() {
            Ok(warnings) => {
                for warning in warnings {
                    text.push_str(&format!("warning: {device}: {warning}\n"));
                }
            }
            Err(refusal) => text.push_str(&format!("would be refused: {refusal}\n")),
        }
        if let Err(error) = self.check_rights() {
            text.push_str(&format!("would be refused: {error}\n"));
        }
        let mut steps = self.measurement.first_in_words();
        for planned in interleaved(self.rows.len(), plan) {
            let row = &self.rows[planned.row];
            let label = &row.label;
            let which = match planned.repeat {
                None => format!("under {label}: warm-up, not counted"),
                Some(n) => format!("under {label}: repeat {} of {}", n + 1, plan.repeats),
            };
            let job = self.jobs.get(row.job);
            steps.extend(self.measurement.run_in_words(job, &row.queue, &which));
        }
        steps.push(self.measurement.last_in_words());
        for (number, step) in (1..).zip(steps) {
            text.push_str(&format!("{number:3}. {step}\n"));
        }
        for job in self.jobs.iter() {
            let job = self.measurement.job_on_drive(job)?;
            text.push_str(&format!("\nThe job that fio gets:\n{job}"));
        }
        Ok(text)
    }

    fn check_rights(&self) -> Result<(), Error> {
        let writes = self.measurement.file_system.is_some()
            || self
                .jobs
                .iter()
                .any(|job| !blklab_host::is_read_only_job(job));
        let Measurement { system, disk, .. } = &self.measurement;
        Ok(check_rights(system, disk, writes)?)
    }

    /// Returns the warnings about the drive's use; an error if its data would be
    /// destroyed without permission.
    fn check_overwrite(&self) -> Result<Vec<String>, Error> {
        let Measurement {
            system,
            disk,
            file_system,
            ..
        } = &self.measurement;
        let destroy = self.destroy_data.as_deref();
        let mut all: Vec<String> = Vec::new();
        for job in self.jobs.iter() {
            let warnings = check_overwrite(system, disk, job, file_system.is_some(), destroy)?;
            let new: Vec<String> = warnings.into_iter().filter(|w| !all.contains(w)).collect();
            all.extend(new);
        }
        Ok(all)
    }
}

impl World for Host {
    type Ready<'w> = Ready<'w>;
    const ORDER: Order = Order::Interleaved;

    fn labels(&self) -> Vec<String> {
        self.rows.iter().map(|row| row.label.clone()).collect()
    }

    fn prepare(&self, watch: Watch<'_>) -> Result<Ready<'_>, Error> {
        self.check_rights()?;
        let device = self.disk().path.display();
        for warning in self.check_overwrite()? {
            watch(Event::Warning(&format!("{device}: {warning}")));
        }
        for row in &self.rows {
            self.queue.check(&row.queue)?;
        }
        let mut fios = Vec::new();
        for job in self.jobs.iter() {
            fios.push(self.measurement.prepare(job, &self.fio)?);
        }
        // Signals are caught from here on, before the queue is changed.
        let interrupts = Interrupts::watch()?;
        let restore = Restore::remember(&self.queue)?;
        interrupts.check()?;
        let notes = self.measurement.observe_other_work()?;
        Ok(Ready {
            fios,
            interrupts,
            restore,
            notes,
        })
    }

    fn run(
        &self,
        ready: &Ready<'_>,
        planned: PlannedRun,
        _: &mut dyn FnMut(f64),
    ) -> Result<Results, Error> {
        let row = &self.rows[planned.row];
        let fio = &ready.fios[row.job];
        let measurement = &self.measurement;
        let mut results = measurement.run(&self.queue, &row.queue, fio, &ready.interrupts)?;
        results.notes.extend(ready.notes.iter().cloned());
        Ok(results)
    }

    fn clean_up(&self, ready: Ready<'_>) -> Result<(), Error> {
        Ok(ready.restore.put_back()?)
    }
}
