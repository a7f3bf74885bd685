//! What a run leaves behind.

use blklab_stats::{DiskStats, GroupResults, IoLog, JobResults, PageFaults, Results, World};
use blklab_workload::generate::{due_weights, processes};

use super::steady_state::SteadyStates;
use super::{Setup, SetupError, Simulation};
use crate::process::Process;
use crate::setup::Workload;

const FULL_LOG: &str = "a log of each I/O is full and ends before its job; log_avg_msec makes it \
                        shorter";

impl Simulation {
    /// The results of a run that is over.
    ///
    /// # Errors
    /// What kept a process from doing its work.
    pub(super) fn into_results(mut self, setup: &Setup<'_>) -> Result<Results, SetupError> {
        let now = self.clock.now();
        let mut notes = self.notes;
        for process in &mut self.processes {
            process.check()?;
            for note in process.notes() {
                if !notes.contains(&note) {
                    notes.push(note);
                }
            }
        }
        let mut logs: Vec<IoLog> = Vec::new();
        for process in self.processes.iter_mut().filter(|p| p.is_counted()) {
            logs.extend(process.take_log());
        }
        if logs.iter().any(IoLog::is_full) {
            notes.push(FULL_LOG.to_string());
        }
        let mut disks: Vec<DiskStats> = self.system.disks.iter().map(|d| d.stats(now)).collect();
        for server in &self.servers {
            server.add_times(&mut disks[server.disk()].server);
        }
        let timeline = self.system.finish_recording(now);
        let (mut cpus, mut cpu_timeline) = (Vec::new(), Vec::new());
        if !self.costs.free {
            cpus = self.system.cpus.stats(now);
            cpu_timeline = self.system.cpus.slices(now);
        }
        let (job, global_options) = match setup.workload {
            Workload::Job(job) => (job.name.clone(), job.global_options.clone()),
            Workload::Trace { file, .. } | Workload::Calls { file, .. } => {
                (file.to_string(), Default::default())
            }
        };
        let weights = weights(&setup.workload);
        let files = self.system.files.as_deref();
        let faults = |pid| files.map_or_else(Default::default, |files| files.faults_of(pid));
        let (jobs, groups) =
            job_results((self.processes, weights), &mut self.steady_states, faults);
        Ok(Results {
            world: World::Sim,
            scheduler: setup.scheduler.label(),
            drive: setup.drive.name.clone(),
            machine: setup.machine.name.clone(),
            seed: setup.seed,
            job,
            elapsed_ns: now.0,
            jobs,
            groups,
            logs,
            disks,
            cpus,
            cpu_timeline,
            page_cache: self.system.files.map(|files| files.stats()),
            timeline,
            notes,
            global_options,
            ..Results::default()
        })
    }
}

/// By process, the share of the drive that is due to it.
fn weights(workload: &Workload<'_>) -> Vec<Option<f64>> {
    match workload {
        Workload::Job(job) => due_weights(job, &processes(job)),
        Workload::Trace { .. } => vec![None],
        Workload::Calls { list, .. } => vec![None; list.programs.len()],
    }
}

/// What processes recorded: by process, or of a job that is reported as one by job, and
/// by group.
fn job_results(
    (processes, weights): (Vec<Process>, Vec<Option<f64>>),
    steady_states: &mut SteadyStates,
    faults: impl Fn(usize) -> PageFaults,
) -> (Vec<JobResults>, Vec<GroupResults>) {
    let mut jobs: Vec<JobResults> = Vec::new();
    let mut groups: Vec<GroupResults> = Vec::new();
    let counted = (processes.into_iter().zip(weights))
        .enumerate()
        .filter(|(_, (process, _))| process.is_counted());
    for (pid, (process, weight)) in counted {
        let mut job = JobResults {
            steady_state: steady_states.take(pid),
            ..process.into_results(weight)
        };
        job.cpu.faults = faults(pid);
        add_to_group(&mut groups, &job);
        match jobs.last_mut() {
            Some(last) if job.group_reporting && is_same_job(last, &job) => last.merge(&job),
            _ => jobs.push(job),
        }
    }
    (jobs, groups)
}

fn is_same_job(a: &JobResults, b: &JobResults) -> bool {
    (a.group_id, &a.name) == (b.group_id, &b.name)
}

fn add_to_group(groups: &mut Vec<GroupResults>, job: &JobResults) {
    let at = match groups.iter().position(|g| g.group_id == job.group_id) {
        Some(at) => at,
        None => {
            groups.push(GroupResults {
                group_id: job.group_id,
                ..GroupResults::default()
            });
            groups.len() - 1
        }
    };
    let group = &mut groups[at];
    group.read.merge(&job.read);
    group.write.merge(&job.write);
    group.trim.merge(&job.trim);
}
