//! The experiment on a served drive: a model paced in real time, its data
//! over NBD, the job through fio's own NBD engine.

use std::path::{Path, PathBuf};
use std::time::Instant;

use blklab_device::DriveSpec;
use blklab_elevator::SchedulerChoice;
use blklab_serve::{ExportConfig, Limits, Listen, Server, ServerConfig, TlsSettings, memory, null};
use blklab_stats::{Results, World};
use blklab_workload::fio::JobFile;

use crate::error::HostError;
use crate::fio::Fio;
use crate::fio_job::on_server;
use crate::interrupt::Interrupts;
use crate::load::Load;
use crate::permit::is_read_only_job;
use crate::proc_stat::{CpuWatch, totals};
use crate::system::System;

/// What is to be done.
pub struct ServedExperiment<'a> {
    /// The machine.
    pub system: &'a System,
    /// The job as the user gave it.
    pub job: &'a JobFile,
    /// The drive's name and model.
    pub drive: (&'a str, &'a DriveSpec),
    /// The schedulers, the one to compare with first.
    pub schedulers: &'a [SchedulerChoice],
    /// Runs of each.
    pub repeats: usize,
    /// Decides what the drive leaves to chance, in the first repeat.
    pub seed: u64,
    /// fio's program; a plain name is looked for in `PATH`.
    pub fio: PathBuf,
}

impl ServedExperiment<'_> {
    /// Does it all. The answer has one list a scheduler, with one entry a
    /// repeat. Each run has a drive of its own, as new as a simulated one;
    /// repeats are interleaved, so that a drift of the machine favours nobody.
    pub fn run(&self, each_done: &dyn Fn()) -> Result<Vec<Vec<Results>>, HostError> {
        let folder = tempfile::tempdir()
            .map_err(|e| HostError::io("make a temporary folder", std::env::temp_dir(), e))?;
        let socket = folder.path().join("nbd.sock");
        let uri = format!("nbd+unix:///?socket={}", socket.display());
        let text = on_server(self.job, &uri)?;
        let fio = Fio::prepare(&self.fio, self.job, text, is_read_only_job(self.job))?;
        fio.check()?;
        let interrupts = Interrupts::watch()?;
        let warning = self.warning()?;
        let mut all: Vec<Vec<Results>> = vec![Vec::new(); self.schedulers.len()];
        for repeat in 0..self.repeats as u64 {
            for (scheduler, runs) in self.schedulers.iter().zip(&mut all) {
                interrupts.check()?;
                let config = self.server(scheduler, &socket, self.seed.wrapping_add(repeat));
                let mut results = self.run_once(&config, &fio, &interrupts)?;
                results.scheduler = scheduler.label();
                results.seed = self.seed.wrapping_add(repeat);
                results.notes.extend(warning.iter().cloned());
                runs.push(results);
                each_done();
            }
        }
        Ok(all)
    }

    /// A machine that is busy with other work paces badly.
    fn warning(&self) -> Result<Option<String>, HostError> {
        let cpus = std::thread::available_parallelism().map_or(1, |n| n.get());
        Ok(Load::now(self.system).and_then(|load| load.warning(cpus)))
    }

    fn server(&self, scheduler: &SchedulerChoice, socket: &Path, seed: u64) -> ServerConfig {
        let (name, spec) = self.drive;
        let size_bytes = spec.identity().capacity_sectors * 512;
        ServerConfig {
            listen: vec![Listen::Unix(socket.to_path_buf())],
            activated: false,
            exports: vec![ExportConfig {
                name: String::new(),
                description: name.to_string(),
                // What is read back matters to jobs that verify it, and to
                // nobody else; a large drive's would not fit in memory.
                backend: match self.verifies() {
                    true => memory(size_bytes),
                    false => null(size_bytes),
                },
                read_only: false,
                scheduler: scheduler.clone(),
                depth: 1,
                drive: Some((name.to_string(), spec.clone())),
                seed,
            }],
            tls: TlsSettings::default(),
            limits: Limits::default(),
            busy_poll_us: 0,
            control: None,
            sysfs: None,
            metrics: None,
        }
    }

    fn verifies(&self) -> bool {
        let jobs = self.job.jobs.iter().flat_map(|spec| &spec.options);
        let mut options = self.job.global_options.iter().chain(jobs);
        options.any(|(name, value)| name == "verify" && value != "0")
    }

    fn run_once(
        &self,
        config: &ServerConfig,
        fio: &Fio<'_>,
        interrupts: &Interrupts,
    ) -> Result<Results, HostError> {
        let server = Server::start(config).map_err(HostError::Served)?;
        let watch = CpuWatch::start(&self.system.proc("stat"))?;
        let start = Instant::now();
        let done = fio.run(interrupts);
        let elapsed_ns = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let slices = watch.finish();
        let told = server.drive_stats();
        server.shut_down().map_err(HostError::Served)?;
        let (disk, lateness) = told.map_err(HostError::Served)?;
        let mut results = done?;
        let late = |percent| lateness.percentile(percent) as f64 / 1e3;
        results.notes.push(format!(
            "pacing: requests ended {:.1} us (median) and {:.1} us (99 %) later than the model said",
            late(50.0),
            late(99.0)
        ));
        results.world = World::Serve;
        results.elapsed_ns = elapsed_ns;
        results.cpus = totals(&slices);
        results.cpu_timeline = slices;
        results.disks = vec![disk];
        results.drive = self.drive.0.to_string();
        results.machine = crate::experiment::machine_name(self.system);
        Ok(results)
    }
}
