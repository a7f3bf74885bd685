//! How a run begins: its system is built, and processes start one after the other
//! as their jobs say.

use std::ops::Range;
use std::sync::Arc;

use blklab_blk::{Nanos, SECTOR_SIZE};
use blklab_workload::calls::CallList;
use blklab_workload::fio::{Direction, ExitWhat, JobFile, JobSpec};
use blklab_workload::generate::{Process as Numbered, processes};
use blklab_workload::trace::DriveSize;

use super::Simulation;
use super::clock::Clock;
use super::steady_state::SteadyStates;
use crate::caching::FileSystemKind;
use crate::cgroups::{Cgroups, MemoryGroups};
use crate::contents::Contents;
use crate::cpu::{Affinity, CostTable, Topology};
use crate::disk::Disk;
use crate::file_layer::FileLayer;
use crate::process::Process;
use crate::process::job::{Cached, JobProcess, PlacedFiles, Plan};
use crate::process::kernel_threads::KernelThreads;
use crate::process::loop_worker::LoopWorker;
use crate::process::program;
use crate::process::server::ServerThread;
use crate::process::trace::TraceProcess;
use crate::setup::{
    Replay, Setup, SetupError, Workload, attachment_note, backlog_note, check_buffered_power_loss,
    check_fit, check_front_end, check_job, check_power_loss, check_scheduler, check_verify,
    check_zones, mixed_note, other_scheduler_notes, scheduler_cost_note, trace_cost_note,
    zones_note,
};
use crate::system::System;
use crate::timers::Interrupts;
use crate::zoned_files::{sized_in_zones, zones_of};

/// A process that has not started, and what it waits for.
struct PendingStart {
    pid: usize,
    /// All processes before this one must have ended (`stonewall`).
    after: Option<usize>,
    /// All processes of this job must have ended (`wait_for`).
    awaited: Option<Range<usize>>,
    delay: Nanos,
}

impl PendingStart {
    fn may_start(&self, processes: &[Process]) -> bool {
        let all_exited =
            |some: &Range<usize>| processes[some.clone()].iter().all(Process::has_exited);
        let wall = self.after.map(|wall| 0..wall);
        wall.iter().chain(&self.awaited).all(all_exited)
    }

    fn waits_for_others(&self) -> bool {
        self.after.is_some() || self.awaited.is_some()
    }
}

/// Processes that have not started.
#[derive(Default)]
pub(super) struct StartQueue {
    pending: Vec<PendingStart>,
    /// By process, whether it waits for its `startdelay` to pass.
    delayed: Vec<bool>,
}

impl StartQueue {
    /// Whether the process waited for its `startdelay`; it no longer does.
    #[inline]
    pub(super) fn take_delayed(&mut self, pid: usize) -> bool {
        std::mem::take(&mut self.delayed[pid])
    }

    fn add(&mut self, pending: PendingStart) {
        self.pending.push(pending);
        self.delayed.push(false);
    }

    /// A process more that waits for nothing.
    fn add_started(&mut self) {
        self.delayed.push(false);
    }

    fn has(&self, pid: usize) -> bool {
        self.delayed[pid] || self.pending.iter().any(|p| p.pid == pid)
    }

    /// When the ramps of all processes that wait for no other are over;
    /// [`Nanos::MAX`] where none of them has one.
    fn ramp_end(&self, processes: &[Process]) -> Nanos {
        let ramp = |p: &PendingStart| {
            let ramp_us = processes[p.pid].job().map_or(0, |spec| spec.ramp_us);
            (p.delay, Nanos::from_micros(ramp_us))
        };
        let at_once = self.pending.iter().filter(|p| !p.waits_for_others());
        let ramps = at_once.map(ramp);
        let has_ramp = ramps.clone().any(|(_, ramp)| ramp > Nanos::ZERO);
        let last = ramps.map(|(delay, ramp)| delay + ramp).max();
        last.filter(|_| has_ramp).unwrap_or(Nanos::MAX)
    }
}

/// What a workload brings to a run.
struct Started {
    system: System,
    costs: CostTable,
    processes: Vec<Process>,
    starts: StartQueue,
    workers: Vec<LoopWorker>,
    servers: Vec<ServerThread>,
    notes: Vec<String>,
}

impl Simulation {
    /// A run before its first event.
    pub(super) fn new(setup: &Setup<'_>) -> Result<Simulation, SetupError> {
        let machine = setup.machine.serving(setup.drive);
        let setup = Setup {
            machine: &machine,
            ..setup.clone()
        };
        check_zones(&setup)?;
        let started = match setup.workload {
            Workload::Job(job) => {
                let job = sized_in_zones(job, zones_of(setup.drive));
                Started::of_job(&setup, &job)?
            }
            Workload::Trace { file, replay } => {
                let drive = DriveSize {
                    name: setup.drive.name.clone(),
                    sectors: setup.drive.identity().capacity_sectors,
                    wraps: replay.wraps,
                };
                Started::of_trace(&setup, (file, replay), drive)?
            }
            Workload::Calls { list, file } => Started::of_calls(&setup, (list, file))?,
        };
        let Started {
            system,
            costs,
            processes,
            starts,
            workers,
            servers,
            notes,
        } = started;
        // They never exit.
        let kernel_processes = usize::from(system.files.is_some());
        let steady_states = SteadyStates::new(&processes);
        Ok(Simulation {
            clock: Clock::default(),
            ramp_end: starts.ramp_end(&processes),
            system,
            costs,
            processes,
            starts,
            exited: kernel_processes,
            workers,
            servers,
            answering: None,
            interrupts: Interrupts::default(),
            ended: Vec::new(),
            woken: Vec::new(),
            tried: Vec::new(),
            softirq_ended: Vec::new(),
            is_delivering_refused: false,
            power_loss_at: setup.power_loss_at.unwrap_or(Nanos::MAX),
            steady_states,
            notes,
        })
    }

    /// Starts the kernel's threads of the page cache.
    pub(super) fn start_kernel_threads(&mut self) {
        if self.system.files.is_some() {
            self.with_process(self.processes.len() - 1, Process::start);
        }
    }

    /// Starts every process that waits for nothing any more.
    pub(super) fn start_ready(&mut self) {
        let mut at = 0;
        while at < self.starts.pending.len() {
            if !self.starts.pending[at].may_start(&self.processes) {
                at += 1;
                continue;
            }
            let PendingStart { pid, delay, .. } = self.starts.pending.remove(at);
            if delay > Nanos::ZERO {
                self.starts.delayed[pid] = true;
                self.system.timers.set(self.clock.now() + delay, pid);
            } else {
                self.with_process(pid, Process::start);
            }
        }
    }

    #[cold]
    pub(super) fn on_exit(&mut self, pid: usize) {
        self.exited += 1;
        let process = &self.processes[pid];
        if let Some(submitter) = process.submitter() {
            // Its I/O context goes with it.
            let now = self.clock.now();
            let disks = self.system.disks.iter_mut();
            disks.for_each(|disk| disk.queue.exit_submitter(now, submitter));
        }
        if let Some(spec) = process.job()
            && (spec.exit_all || spec.exit_all_on_error && process.has_failed())
        {
            self.stop_others(spec.exit_what, spec.group);
        }
        self.start_ready();
    }

    /// Stops the processes that `exit_what` of a job of that group says.
    fn stop_others(&mut self, exit_what: ExitWhat, group: u32) {
        let now = self.clock.now();
        for other in 0..self.processes.len() {
            let process = &mut self.processes[other];
            let stops = match exit_what {
                ExitWhat::All => true,
                ExitWhat::Group => process.job().is_some_and(|spec| spec.group == group),
                ExitWhat::Stonewall => !self.starts.has(other),
            };
            if stops {
                process.stop(now, &mut self.system);
                if self.starts.delayed[other] {
                    // It has nothing to wait for.
                    self.system.timers.set(now, other);
                }
            }
        }
    }
}

impl Started {
    fn of_job(setup: &Setup<'_>, job: &JobFile) -> Result<Started, SetupError> {
        let (machine, scheduler) = (setup.machine, setup.scheduler.kind.name);
        check_front_end(machine, setup.front_end)?;
        let mut notes = check_job(job)?;
        notes.extend(other_scheduler_notes(job, scheduler));
        check_scheduler(job, scheduler)?;
        check_fit(job, machine, setup.drive)?;
        check_power_loss(setup.drive, setup.power_loss_at)?;
        check_buffered_power_loss(job, setup.power_loss_at)?;
        check_verify(setup, job)?;
        let numbered = processes(job);
        let capacity_bytes = setup.drive.identity().capacity_sectors * SECTOR_SIZE;
        let file_system = setup.caching.file_system;
        let files = PlacedFiles::new(job, &numbered, (capacity_bytes, file_system))?;
        let costs = CostTable::new(machine, scheduler);
        let mut system = System::new(setup, &costs);
        for name in files.drive_names() {
            system.add_disk(Nanos::ZERO, name)?;
        }
        let elevator = system.disks.first().and_then(|d| d.queue.elevator());
        let has_cgroups = elevator.is_some_and(|e| e.has_cgroups());
        let mut started = Started {
            costs: costs.with_one_lock(elevator.is_some_and(|e| e.is_single_queue())),
            system,
            processes: Vec::new(),
            starts: StartQueue::default(),
            workers: Vec::new(),
            servers: Vec::new(),
            notes,
        };
        let (in_tree, _) = files.in_tree();
        let groups = Cgroups::of(job);
        let memory = groups.memory(job)?;
        if job.jobs.iter().any(|spec| !spec.direct) || !in_tree.is_empty() {
            started.add_file_layer((setup, job), &files, memory)?;
        } else {
            started.notes.extend(memory.unused_note());
            started.notes.extend(setup.caching.unused_note());
        }
        let discards = |spec: &JobSpec| spec.pattern.does(Direction::Trim);
        if job.jobs.iter().any(discards) {
            started.system.throttle_writes();
        }
        started.add_processes((setup, job), &numbered, &files)?;
        started.add_kernel_threads(machine.cpus() as usize - 1);
        started.add_workers(setup);
        started.add_servers(setup);
        let drives = started.system.disks.len();
        groups.check_drives(job, drives)?;
        for (n, disk) in started.system.disks.iter_mut().enumerate() {
            disk.set_cgroups(&groups, job, (n, drives))?;
        }
        let notes = &mut started.notes;
        notes.extend(job.notes.iter().map(ToString::to_string));
        notes.extend(attachment_note(setup.drive, machine));
        notes.extend(mixed_note(job));
        notes.extend(backlog_note(job));
        notes.extend(zones_note(job, setup.drive));
        notes.extend(scheduler_cost_note(setup.scheduler.kind.name));
        let is_alone = job.cgroup_writes.is_empty() && !groups.tree().names().is_empty();
        if !has_cgroups && is_alone {
            notes.push(format!(
                "{scheduler} has no control groups: cgroup counts in Jain's index alone"
            ));
        }
        Ok(started)
    }

    /// Adds the page cache, and the file system that files of the job are on.
    fn add_file_layer(
        &mut self,
        (setup, job): (&Setup<'_>, &JobFile),
        files: &PlacedFiles,
        memory: MemoryGroups,
    ) -> Result<(), SetupError> {
        let disks = &self.system.disks;
        let mut layer = FileLayer::new(&setup.caching, setup.machine, disks, memory);
        let (in_tree, disk) = files.in_tree();
        if !in_tree.is_empty() {
            let capacity_bytes = setup.drive.identity().capacity_sectors * SECTOR_SIZE;
            let what = (setup.caching.file_system, in_tree);
            let made = layer.mount((disk, &disks[disk]), what, capacity_bytes);
            made.map_err(|error| SetupError::FileSystem {
                job: job.name.clone(),
                drive: setup.drive.name.clone(),
                problem: error.to_string(),
            })?;
        }
        self.system.add_files(layer);
        Ok(())
    }

    fn of_trace(
        setup: &Setup<'_>,
        trace: (&str, Replay),
        drive: DriveSize,
    ) -> Result<Started, SetupError> {
        if let Some(front_end) = setup.front_end {
            return Err(SetupError::Trace(format!(
                "{}: a trace has no programs, beside which a server of {front_end} could run; \
                 right is a job",
                trace.0
            )));
        }
        check_power_loss(setup.drive, setup.power_loss_at)?;
        let note = attachment_note(setup.drive, setup.machine);
        let notes = note.into_iter().chain(trace_cost_note(setup.machine));
        let process = TraceProcess::open(0, trace, (setup.machine, drive), notes.collect())?;
        let costs = CostTable::free();
        let mut started = Started {
            system: System::new(setup, &costs),
            costs,
            processes: vec![Process::from(process)],
            starts: StartQueue::default(),
            workers: Vec::new(),
            servers: Vec::new(),
            notes: Vec::new(),
        };
        started.system.fair.add(Affinity::All);
        started.starts.add(PendingStart {
            pid: 0,
            after: None,
            awaited: None,
            delay: Nanos::ZERO,
        });
        Ok(started)
    }

    fn of_calls(setup: &Setup<'_>, (list, file): (&CallList, &str)) -> Result<Started, SetupError> {
        let wrong = |what: &str| SetupError::Calls(format!("{file}: {what}"));
        check_front_end(setup.machine, setup.front_end)?;
        let kind = setup.caching.file_system;
        if setup.power_loss_at.is_some() {
            return Err(wrong(
                "a loss of power is simulated with jobs of direct=1 alone",
            ));
        }
        let costs = CostTable::new(setup.machine, setup.scheduler.kind.name);
        let mut system = System::new(setup, &costs);
        system.add_disk(Nanos::ZERO, "drive0")?;
        let elevator = system.disks[0].queue.elevator();
        let costs = costs.with_one_lock(elevator.is_some_and(|e| e.is_single_queue()));
        let memory = MemoryGroups::default();
        let mut layer = FileLayer::new(&setup.caching, setup.machine, &system.disks, memory);
        let capacity_bytes = setup.drive.identity().capacity_sectors * SECTOR_SIZE;
        if kind != FileSystemKind::Raw {
            let prepared = program::prepared(list);
            let on = (0, &system.disks[0]);
            let mounted = layer.mount(on, (kind, &prepared), capacity_bytes);
            mounted.map_err(|error| {
                let drive = &setup.drive.name;
                wrong(&format!(
                    "its files cannot be laid out on all of {drive}: {error}"
                ))
            })?;
        } else if let Some(prepared) = list.prepared.first() {
            let (line, what) = (prepared.line, program::NO_FILES);
            return Err(SetupError::Calls(format!("{file}:{line}: {what}")));
        }
        let cpus = setup.machine.cpus() as usize;
        let drive = (&system.disks[0], capacity_bytes);
        let programs = program::programs((list, file), (&mut layer, drive), costs, cpus)?;
        system.add_files(layer);
        let mut started = Started {
            system,
            costs,
            processes: Vec::new(),
            starts: StartQueue::default(),
            workers: Vec::new(),
            servers: Vec::new(),
            notes: attachment_note(setup.drive, setup.machine)
                .into_iter()
                .collect(),
        };
        for (pid, program) in programs.into_iter().enumerate() {
            started.processes.push(Process::from(program));
            started.system.fair.add(Affinity::One);
            started.starts.add(PendingStart {
                pid,
                after: None,
                awaited: None,
                delay: Nanos::ZERO,
            });
        }
        started.add_kernel_threads(cpus - 1);
        started.add_workers(setup);
        started.add_servers(setup);
        Ok(started)
    }

    fn add_processes(
        &mut self,
        (setup, job): (&Setup<'_>, &JobFile),
        numbered: &[Numbered],
        files: &PlacedFiles,
    ) -> Result<(), SetupError> {
        let groups = Cgroups::of(job);
        let specs: Vec<Arc<JobSpec>> = job.jobs.iter().cloned().map(Arc::new).collect();
        let keeps_contents = job.jobs.iter().any(|spec| spec.verify.is_on());
        if keeps_contents {
            let of_process = numbered.iter().map(|n| Arc::clone(&specs[n.job]));
            self.system.contents = Some(Box::new(Contents::new(of_process.collect())));
            let disks = self.system.disks.iter_mut();
            disks.for_each(Disk::keep_data_faults);
        }
        // A process among others would do its I/O in step with them.
        let start_spread_us = match numbered.len() {
            1 => 0,
            _ => setup.machine.start_spread_us,
        };
        let mut wall = 0;
        for (pid, n) in numbered.iter().enumerate() {
            let spec = &specs[n.job];
            if spec.stonewall && n.number == 0 {
                wall = pid;
            }
            let zones = (&mut self.system.zones, zones_of(setup.drive));
            let draws = (setup.seed, start_spread_us);
            let plan = Plan::new(spec, (n, pid), files.of_process(pid), zones, draws)?;
            self.starts.add(PendingStart {
                pid,
                after: (wall > 0).then_some(wall),
                awaited: spec.wait_for.map(|job| pids_of(job, numbered)),
                delay: plan.start_delay(),
            });
            let own = own_cpus(&n.cpus(spec), setup.machine.topology);
            let cpu = own[pid % own.len()];
            // io_uring's threads have CPUs behind those of the programs, as far as
            // there are any.
            let sq_cpu = own[(numbered.len() + pid) % own.len()];
            self.system.fair.add(match own.len() {
                1 => Affinity::One,
                _ => Affinity::These(own),
            });
            let costs = self.costs.with_engine(&setup.machine.costs, spec);
            let disks = self.system.disks.len();
            let process = JobProcess::new(pid, Arc::clone(spec), plan, cpu, costs, disks);
            let mut process = process
                .in_cgroup(groups.of_job(spec))
                .ending_after_one(files.layout_error(pid, spec))
                .in_flow(self.system.flows.add(spec))
                .dispatching(setup.machine.dispatch_to(setup.front_end))
                .with_submission_thread(sq_cpu)
                .keeping_contents(keeps_contents);
            let own_files = files.of_process(pid);
            let is_in_tree = own_files.iter().any(|file| file.in_tree.is_some());
            let needs_layer = !spec.direct || is_in_tree;
            if let Some(layer) = self.system.files.as_deref_mut().filter(|_| needs_layer) {
                let disks = &self.system.disks;
                let cached = Cached::new(pid, spec, (layer, disks), files);
                process = process.through_cache(cached);
            }
            self.processes.push(Process::from(process));
        }
        Ok(())
    }

    /// Adds the kernel's threads of the page cache, numbered behind processes.
    fn add_kernel_threads(&mut self, cpu: usize) {
        let disks = self.system.disks.len();
        if let Some(layer) = self.system.files.as_deref_mut() {
            let pid = self.processes.len();
            let threads = KernelThreads::new((pid, cpu), self.costs, disks, layer);
            self.processes.push(Process::from(threads));
            self.starts.add_started();
            self.system.fair.add(Affinity::One);
        }
    }

    /// Adds the threads of front ends' servers, numbered behind processes.
    fn add_servers(&mut self, setup: &Setup<'_>) {
        let Some(front_end) = setup.front_end else {
            return;
        };
        let Some(costs) = setup.machine.costs.of_front_end(front_end.kind) else {
            return;
        };
        for (n, disk) in self.system.disks.iter_mut().enumerate() {
            let Some(driver) = disk.driver.as_served() else {
                continue;
            };
            for line in 0..driver.start(setup.machine.cpus() as usize) {
                // One number for the server, one for the kernel's thread behind it.
                let pid = self.processes.len() + 2 * self.servers.len();
                let kind = (front_end.kind, costs);
                self.servers
                    .push(ServerThread::new((pid, pid + 1), (n, line), kind));
                self.system.fair.add(Affinity::All);
                self.system.fair.add(Affinity::All);
            }
        }
    }

    /// Adds the workers of loop devices, numbered behind processes.
    fn add_workers(&mut self, setup: &Setup<'_>) {
        for (n, disk) in self.system.disks.iter_mut().enumerate() {
            if let Some(driver) = disk.driver.as_loop() {
                driver.schedule_worker();
                // One number for the worker, one for its ksoftirqd.
                let pid = self.processes.len() + 2 * self.workers.len();
                let kind = setup.machine.loop_thread;
                self.workers.push(LoopWorker::new((pid, pid + 1), n, kind));
                // They run anywhere.
                self.system.fair.add_weighted(Affinity::All, kind.weight());
                self.system.fair.add(Affinity::All);
            }
        }
    }
}

/// The processes of a job, which are numbered one behind the other.
fn pids_of(job: usize, numbered: &[Numbered]) -> Range<usize> {
    let first = numbered.partition_point(|n| n.job < job);
    first..numbered.partition_point(|n| n.job <= job)
}

/// The CPUs that a process may run on, of those that there are: all of them if
/// the job names none of them. Processes start on one after the other.
fn own_cpus(allowed: &[u32], topology: Topology) -> Box<[usize]> {
    let cpus = topology.cpus;
    let known = allowed.iter().filter(|&&cpu| cpu < cpus);
    let mut own: Box<[usize]> = known.map(|&cpu| cpu as usize).collect();
    if own.is_empty() {
        own = (0..cpus as usize).collect();
    }
    topology.by_idle_core(&mut own);
    own
}
