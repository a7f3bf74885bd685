//! The served world: a drive's model paced in real time, its data over NBD, the job
//! through fio's own NBD engine.

use std::path::{Path, PathBuf};
use std::time::Instant;

use blklab_blk::SECTOR_SIZE;
use blklab_device::DriveSpec;
use blklab_elevator::SchedulerChoice;
use blklab_host::{
    CpuWatch, Fio, HostError, Interrupts, Load, System, is_replaced_by_server, on_server, totals,
};
use blklab_serve::{ExportConfig, Limits, Listen, Server, ServerConfig, TlsSettings, memory, null};
use blklab_stats::{Results, World as WorldKind};
use blklab_workload::fio::{JobFile, JobSource};

use crate::error::Error;
use crate::setting::{Setting, check_queue};
use crate::work::{Jobs, check_options, own_cpus};
use crate::world::{Order, PlannedRun, Watch, World};

/// A row: the served drive with its scheduler, and the index of the job.
struct ServedRow {
    label: String,
    scheduler: SchedulerChoice,
    drive_name: String,
    drive: DriveSpec,
    job: usize,
}

/// Drives' models in real time, served to fio on this machine.
pub struct Served {
    system: System,
    rows: Vec<ServedRow>,
    jobs: Jobs,
    /// fio's program; a plain name is searched in `PATH`.
    fio: PathBuf,
    drive_text: String,
}

/// The socket, fio with every job, and a warning about the machine.
pub struct Ready<'w> {
    socket: PathBuf,
    fios: Vec<Fio<'w>>,
    interrupts: Interrupts,
    warning: Option<String>,
    /// The folder is removed with the socket in it when this is dropped.
    _folder: tempfile::TempDir,
}

impl Served {
    /// Prepares the job under these settings.
    ///
    /// # Errors
    /// If a setting names something unknown; the message says what is right.
    pub fn new(source: &JobSource, settings: &[Setting]) -> Result<Served, Error> {
        let mut jobs = Jobs::new();
        let mut rows = Vec::new();
        let mut texts: Vec<String> = Vec::new();
        for setting in settings {
            check_options(&setting.options, is_replaced_by_server, "--world serve")?;
            let job = jobs.read(source, own_cpus(), setting)?;
            let scheduler = setting.choice()?;
            let (drive, text) = setting.drive().map_err(Error::Mistake)?;
            check_queue(&scheduler, &drive, None)?;
            if !texts.contains(&text) {
                texts.push(text);
            }
            rows.push(ServedRow {
                label: setting.label.clone(),
                scheduler,
                drive_name: setting.drive.clone(),
                drive,
                job,
            });
        }
        Ok(Served {
            system: System::default(),
            rows,
            jobs,
            fio: "fio".into(),
            drive_text: texts.join("\n"),
        })
    }

    /// Returns the drives' descriptions.
    pub fn drive_text(&self) -> &str {
        &self.drive_text
    }
}

/// Configures a server of a drive's model in real time.
pub(crate) fn paced(
    (name, drive): (&str, &DriveSpec),
    scheduler: SchedulerChoice,
    job: &JobFile,
    socket: &Path,
    seed: u64,
) -> ServerConfig {
    let size_bytes = drive.identity().capacity_sectors * SECTOR_SIZE;
    ServerConfig {
        listen: vec![Listen::Unix(socket.to_path_buf())],
        activated: false,
        exports: vec![ExportConfig {
            name: String::new(),
            description: name.to_string(),
            // Only jobs that verify need the data that they wrote; a large drive's data
            // would not fit in memory.
            backend: match verifies(job) {
                true => memory(size_bytes),
                false => null(size_bytes),
            },
            read_only: false,
            threads: 1,
            vhost_user: None,
            ublk: None,
            tcmu: None,
            scheduler,
            depth: 1,
            drive: Some((name.to_string(), drive.clone())),
            cgroups: None,
            seed,
            power_cuts: false,
        }],
        tls: TlsSettings::default(),
        limits: Limits::default(),
        busy_poll_us: 0,
        time_dilation: 1,
        insecure_unsealed_memory: false,
        control: None,
        sysfs: None,
        metrics: None,
    }
}

/// Whether a job reads back what it wrote.
pub(crate) fn verifies(job: &JobFile) -> bool {
    let jobs = job.jobs.iter().flat_map(|spec| &spec.options);
    let mut options = job.global_options.iter().chain(jobs);
    options.any(|(name, value)| name == "verify" && value != "0")
}

impl World for Served {
    type Ready<'w> = Ready<'w>;
    const ORDER: Order = Order::Interleaved;

    fn labels(&self) -> Vec<String> {
        self.rows.iter().map(|row| row.label.clone()).collect()
    }

    fn prepare(&self, _: Watch<'_>) -> Result<Ready<'_>, Error> {
        let folder = tempfile::tempdir()
            .map_err(|e| HostError::io("make a temporary folder", std::env::temp_dir(), e))?;
        let socket = folder.path().join("nbd.sock");
        let uri = format!("nbd+unix:///?socket={}", socket.display());
        let mut fios = Vec::new();
        for job in self.jobs.iter() {
            let fio = Fio::prepare(&self.fio, job, on_server(job, &uri)?)?;
            fio.check()?;
            fios.push(fio);
        }
        let interrupts = Interrupts::watch()?;
        // Pacing is imprecise on a machine that is busy with other work.
        let load = Load::now(&self.system);
        Ok(Ready {
            socket,
            fios,
            interrupts,
            warning: load.and_then(|load| load.warning(own_cpus() as usize)),
            _folder: folder,
        })
    }

    /// Each run has a new drive, as in a simulation.
    fn run(
        &self,
        ready: &Ready<'_>,
        planned: PlannedRun,
        _: &mut dyn FnMut(f64),
    ) -> Result<Results, Error> {
        ready.interrupts.check()?;
        let row = &self.rows[planned.row];
        let config = paced(
            (&row.drive_name, &row.drive),
            row.scheduler.clone(),
            self.jobs.get(row.job),
            &ready.socket,
            planned.seed,
        );
        let server = Server::start(&config).map_err(Error::Server)?;
        let watch = CpuWatch::start(&self.system.proc("stat"))?;
        let start = Instant::now();
        let done = ready.fios[row.job].run(&ready.interrupts);
        let elapsed_ns = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let slices = watch.finish();
        let stats = server.drive_stats();
        server.shut_down().map_err(Error::Server)?;
        let (disk, lateness) = stats.map_err(Error::Server)?;
        let mut results = done?;
        results.pacing_lateness_ns = Some(lateness);
        results.notes.extend(ready.warning.iter().cloned());
        Ok(Results {
            world: WorldKind::Serve,
            elapsed_ns,
            cpus: totals(&slices),
            cpu_timeline: slices,
            disks: vec![disk],
            drive: row.drive_name.clone(),
            machine: self.system.kernel(),
            ..results
        })
    }
}
