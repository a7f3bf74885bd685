//! Runs a job on a modelled machine, in virtual time.

use std::ops::Range;
use std::sync::Arc;

use blklab_blk::{BioEnd, CgroupId, IoStatus, Nanos, SECTOR_SIZE, Span, SubmitterId};
use blklab_stats::{GroupResults, JobResults, ProcessResults, Results, World as WorldKind};
use blklab_workload::fio::{ExitWhat, JobFile, JobSpec};
use blklab_workload::generate::{Process as Numbered, cgroups, due_weights, processes};

use crate::arrivals::{Arrival, Arrivals};
use crate::cost::StepCosts;
use crate::cpu::{Cpus, Mode};
use crate::disk::Disk;
use crate::drives::{Drives, drive_seed};
use crate::fair::{Allowed, Fair};
use crate::fit;
use crate::machine::Dispatch;
use crate::plan::Plan;
use crate::process::Process;
use crate::progress::{LOST, Progress};
use crate::recording::Recording;
use crate::replay::replay;
use crate::setup::{Setup, SetupError, Workload, check_job, check_power_loss, loop_note};
use crate::timers::Timers;
use crate::waiting::Waiting;
use crate::worker::{Untold, Worker};
use crate::world::World;

/// Runs the workload once.
///
/// # Errors
/// Where it cannot be simulated: then nothing has run. Where a trace cannot be
/// read or has no I/O. Where the run can never end.
pub fn run(setup: &Setup<'_>) -> Result<Results, SetupError> {
    match setup.workload {
        Workload::Job(job) => run_job(setup, job),
        Workload::Trace { file, mode } => replay(setup, file, mode),
    }
}

fn run_job(setup: &Setup<'_>, job: &JobFile) -> Result<Results, SetupError> {
    let mut notes = check_job(job)?;
    notes.extend(other_schedulers(setup, job));
    fit::check(job, setup.machine, setup.drive)?;
    check_power_loss(setup.drive, setup.power_loss_at)?;
    let mut machine = Sim::new(setup, job)?;
    if let Some(recording) = &mut machine.recording {
        recording.step(
            machine.now,
            &mut machine.world.disks,
            &mut machine.world.cpus,
        );
    }
    machine.start_ready();
    while machine.advance()? {}
    Ok(machine.results(setup, job, notes))
}

/// A process that has not started, and what it waits for.
struct Pending {
    pid: usize,
    /// All processes before this one must have ended (`stonewall`).
    after: Option<usize>,
    /// All processes of this job must have ended (`wait_for`).
    awaited: Option<Range<usize>>,
    delay: Nanos,
}

struct Sim {
    now: Nanos,
    world: World,
    costs: StepCosts,
    /// Ends of I/O on their way through the interrupt handler.
    arrivals: Arrivals,
    processes: Vec<Process>,
    /// Of loop devices. Their numbers come behind those of processes.
    workers: Vec<Worker>,
    pending: Vec<Pending>,
    /// Started, and waiting for `startdelay` to pass.
    delayed: Vec<bool>,
    /// What a disk has just told: of bios that ended, of waiters that may go on.
    ended: Vec<BioEnd>,
    woken: Vec<u64>,
    /// Processes that slept for a tag and were woken.
    resumed: Vec<usize>,
    untold: Vec<Untold>,
    recording: Option<Recording>,
    /// Where the last ramp ends and counters start afresh; [`Nanos::MAX`] where
    /// that has been, or there is none.
    ramp_end: Nanos,
    /// When the drives lose their power; [`Nanos::MAX`] where that has been, or
    /// does not happen.
    power_loss_at: Nanos,
    /// What was refused on the spot is being delivered.
    settling: bool,
    over: usize,
    progress: Progress,
}

impl Sim {
    fn new(setup: &Setup<'_>, job: &JobFile) -> Result<Sim, SetupError> {
        let capacity_bytes = setup.drive.identity().capacity_sectors * SECTOR_SIZE;
        let numbered = processes(job);
        let drives = Drives::new(job, &numbered, capacity_bytes)?;
        let (mut disks, costs) = disks(setup, job, drives.names())?;
        let Started {
            processes,
            pending,
            mut allowed,
        } = Started::new((setup, job), &numbered, (&drives, costs))?;
        let workers = workers(&mut disks, processes.len());
        // Workers and their ksoftirqds run anywhere.
        allowed.resize(processes.len() + 2 * workers.len(), Allowed::All);
        let ramp_end = ramp_end(&pending, &processes);
        Ok(Sim {
            now: Nanos::ZERO,
            delayed: vec![false; processes.len()],
            world: World {
                waiting: disks.iter().map(|_| Waiting::new()).collect(),
                disks,
                cpus: Cpus::new(setup.machine.cpus, setup.machine.costs.coldness()),
                fair: Fair::new(setup.machine.cpus, allowed),
                timers: Timers::default(),
            },
            costs,
            arrivals: Arrivals::default(),
            processes,
            workers,
            pending,
            ended: Vec::new(),
            woken: Vec::new(),
            resumed: Vec::new(),
            untold: Vec::new(),
            recording: setup.record.map(Recording::new),
            ramp_end,
            power_loss_at: setup.power_loss_at.unwrap_or(Nanos::MAX),
            settling: false,
            over: 0,
            progress: Progress::default(),
        })
    }

    /// Starts every process that waits for nothing any more.
    fn start_ready(&mut self) {
        let mut at = 0;
        while at < self.pending.len() {
            if !self.may_start(&self.pending[at]) {
                at += 1;
                continue;
            }
            let Pending { pid, delay, .. } = self.pending.remove(at);
            if delay > Nanos::ZERO {
                self.delayed[pid] = true;
                self.world.timers.set(self.now + delay, pid);
            } else {
                self.with_process(pid, |p, now, world| p.start(now, world));
            }
        }
    }

    fn may_start(&self, pending: &Pending) -> bool {
        let all_over =
            |some: &Range<usize>| self.processes[some.clone()].iter().all(Process::is_over);
        let wall = pending.after.map(|wall| 0..wall);
        wall.iter().chain(&pending.awaited).all(all_over)
    }

    /// Lets time pass to the next event and everything happen that happens
    /// then. Returns false when all is over.
    fn advance(&mut self) -> Result<bool, SetupError> {
        if self.over == self.processes.len() {
            return Ok(false);
        }
        let outside = self.next_appointment().min(self.power_loss_at);
        let marks = match &self.recording {
            Some(recording) => recording.next_event().min(self.ramp_end),
            None => self.ramp_end,
        };
        let next = match &mut self.world.disks[..] {
            // A drive alone runs on by itself until it concerns anybody.
            [disk] => disk.run_ahead(outside.min(marks)),
            disks => {
                let disks = disks.iter().map(Disk::next_event).min();
                outside.min(disks.unwrap_or(Nanos::MAX))
            }
        };
        if next == Nanos::MAX {
            return Err(SetupError::stuck(self.now, LOST));
        }
        self.now = self.now.max(next);
        self.progress.step(self.now)?;
        if self.now >= self.ramp_end {
            self.end_ramp();
        }
        if let Some(recording) = &mut self.recording {
            recording.step(self.now, &mut self.world.disks, &mut self.world.cpus);
        }
        for disk in 0..self.world.disks.len() {
            if self.world.disks[disk].is_due(self.now) {
                self.advance_disk(disk);
            }
        }
        if self.now >= self.power_loss_at {
            self.lose_power();
        }
        if self.next_appointment() <= self.now {
            self.keep_appointments();
        }
        Ok(true)
    }

    /// When a process is to hear of something that comes from no drive.
    #[inline]
    fn next_appointment(&self) -> Nanos {
        self.world.timers.next().min(self.arrivals.next())
    }

    /// Tells processes of ends that their CPU has come to, and of timers.
    #[inline(never)]
    fn keep_appointments(&mut self) {
        while let Some(a) = self.arrivals.pop_due(self.now) {
            self.with_process(a.pid, |p, now, world| {
                p.on_end(now, a.slot, a.status, world)
            });
        }
        while let Some(pid) = self.world.timers.pop_due(self.now) {
            if pid >= self.processes.len() {
                let number = pid - self.processes.len();
                self.on_worker_timer(number / 2, number % 2 == 1);
            } else if std::mem::take(&mut self.delayed[pid]) {
                self.with_process(pid, |p, now, world| p.start(now, world));
            } else {
                self.with_process(pid, |p, now, world| p.on_timer(now, world));
            }
        }
    }

    /// Counters start afresh where the last ramp ends.
    #[cold]
    fn end_ramp(&mut self) {
        self.ramp_end = Nanos::MAX;
        let now = self.now;
        let disks = self.world.disks.iter_mut();
        disks.for_each(|d| d.reset_counters(now));
        self.world.cpus.reset(now);
    }

    /// Every drive loses its power, and what is in it ends with an error.
    #[cold]
    fn lose_power(&mut self) {
        self.power_loss_at = Nanos::MAX;
        for disk in 0..self.world.disks.len() {
            self.world.disks[disk].lose_power(self.now);
            self.advance_disk(disk);
        }
    }

    #[inline(always)]
    fn advance_disk(&mut self, disk: usize) {
        self.world.disks[disk].advance(self.now, &mut self.ended, &mut self.woken);
        self.charge_kblockd(disk);
        if !self.costs.free {
            // What the interrupt itself gave to the drive.
            self.world.disks[disk].release(self.now);
            self.world.disks[disk].queue.keep_trace_times();
        }
        self.deliver(disk);
        self.poke_workers(None);
    }

    /// Wakes the workers that have something to do. `by` is the CPU of the
    /// process that gave it to them.
    #[inline]
    fn poke_workers(&mut self, by: Option<usize>) {
        if !self.workers.is_empty() {
            self.poke_each(by);
        }
    }

    #[inline(never)]
    fn poke_each(&mut self, by: Option<usize>) {
        for at in 0..self.workers.len() {
            self.with_worker(at, |w, now, costs, world| w.poke(now, by, costs, world));
        }
    }

    /// A worker goes on, or the ksoftirqd behind it.
    fn on_worker_timer(&mut self, at: usize, is_softirq: bool) {
        if !is_softirq {
            self.with_worker(at, |w, now, costs, world| w.on_timer(now, costs, world));
            let disk = self.workers[at].disk();
            if self.world.disks[disk].is_due(self.now) {
                self.advance_disk(disk);
            }
            self.with_worker(at, |w, now, _, world| w.after_copy(now, world));
        }
        let mut untold = std::mem::take(&mut self.untold);
        self.workers[at].take_untold(self.now, &mut untold);
        let (disk, cpu) = (self.workers[at].disk(), self.workers[at].cpu());
        for Untold { pid, slot, status } in untold.drain(..) {
            self.tell_end(disk, cpu, pid, slot, status);
        }
        self.untold = untold;
    }

    fn with_worker(
        &mut self,
        at: usize,
        act: impl FnOnce(&mut Worker, Nanos, &StepCosts, &mut World),
    ) {
        act(
            &mut self.workers[at],
            self.now,
            &self.costs,
            &mut self.world,
        );
    }

    /// Tells processes of ends and tags. What they do may end more bios at once
    /// (those refused on the spot).
    #[inline]
    fn deliver(&mut self, disk: usize) {
        while !self.ended.is_empty() || !self.woken.is_empty() {
            if !self.woken.is_empty() {
                self.let_on(disk);
            }
            for at in 0..self.ended.len() {
                let end = &self.ended[at];
                let (pid, slot) = ((end.user_data >> 32) as usize, end.user_data as u32);
                self.end_io(disk, pid, slot, end.status);
            }
            self.ended.clear();
            let queue = &mut self.world.disks[disk].queue;
            queue.take_ended(&mut self.ended);
            queue.take_woken(&mut self.woken);
        }
    }

    /// Lets threads on that slept for a tag. A thread that was woken inside the
    /// kernel takes its tag before one that first returns to user space and
    /// comes back; and those that are woken together each take one before any of
    /// them has come to its next bio.
    #[inline(never)]
    fn let_on(&mut self, disk: usize) {
        let mut woken = std::mem::take(&mut self.woken);
        let mut resumed = std::mem::take(&mut self.resumed);
        for ticket in woken.drain(..) {
            if let Some(pid) = self.world.waiting[disk].take(ticket) {
                self.with_process(pid, |p, now, world| {
                    p.on_woken(now, (disk, ticket), world);
                });
                resumed.push(pid);
            }
        }
        for pid in resumed.drain(..) {
            self.with_process(pid, |p, now, world| p.on_resumed(now, world));
        }
        self.resumed = resumed;
        self.woken = woken;
    }

    /// An I/O of a process ended in the drive. Where interrupts cost time, the
    /// process hears of it when its CPU has handled one.
    #[inline]
    fn end_io(&mut self, disk: usize, pid: usize, slot: u32, status: IoStatus) {
        if !self.costs.free {
            return self.end_io_at_cost(disk, pid, slot, status);
        }
        let (cpu, now) = (self.processes[pid].cpu(), self.now);
        if let Some(log) = self.world.cpus.log() {
            log.ended((pid, slot), (cpu, now), disk);
        }
        self.with_process(pid, |p, now, world| p.on_end(now, slot, status, world));
    }

    #[inline(never)]
    fn end_io_at_cost(&mut self, disk: usize, pid: usize, slot: u32, status: IoStatus) {
        let cpu = self.processes[pid].cpu();
        if let Some(at) = self.workers.iter().position(|w| w.disk() == disk) {
            let untold = Untold { pid, slot, status };
            return self.with_worker(at, |w, now, costs, world| {
                w.ended(now, untold, costs, world);
            });
        }
        let cpu = self.world.disks[disk].interrupted_cpu(cpu);
        self.tell_end(disk, cpu, pid, slot, status);
    }

    /// The interrupt handler of a CPU tells a process of an end.
    fn tell_end(&mut self, disk: usize, cpu: usize, pid: usize, slot: u32, status: IoStatus) {
        let mode = self.world.disks[disk].ends_in();
        let lock = &mut self.world.disks[disk].lock;
        let wakes = self.processes[pid].is_asleep();
        let costs = &self.costs;
        let began = self.world.cpus.free_at(cpu).max(self.now);
        let at = costs.charge_end(&mut self.world.cpus, lock, cpu, self.now, (mode, wakes));
        // What an interrupt takes is in the system time of the process that it
        // stops, unless the kernel is told to keep them apart
        // (`CONFIG_IRQ_TIME_ACCOUNTING`).
        let stopped = self.world.fair.running(cpu).unwrap_or(usize::MAX);
        if let Some(process) = self.processes.get_mut(stopped) {
            process.recorder.spent(Mode::System, (at - began).0);
        }
        if let Some(log) = self.world.cpus.log() {
            log.ended((pid, slot), (cpu, self.now), disk);
        }
        self.arrivals.push(Arrival {
            at,
            pid,
            slot,
            status,
        });
    }

    /// Charges what kblockd did to the CPUs that it did it on.
    #[inline]
    fn charge_kblockd(&mut self, disk: usize) {
        if !self.world.disks[disk].worked.is_empty() {
            self.charge_worked(disk);
        }
    }

    #[inline(never)]
    fn charge_worked(&mut self, disk: usize) {
        let disk = &mut self.world.disks[disk];
        let mut worked = std::mem::take(&mut disk.worked);
        for (hctx, steps) in worked.drain(..) {
            if !self.costs.free {
                let cpu = disk.queue.cpu_of(hctx);
                let costs = &self.costs;
                let start = self.world.cpus.free_at(cpu).max(self.now);
                let done = costs.charge_kblockd(
                    &mut self.world.cpus,
                    &mut disk.lock,
                    cpu,
                    self.now,
                    &steps,
                );
                let span = Span {
                    start,
                    end: done,
                    reached: done,
                };
                disk.was_done(costs, Some(hctx), span);
                disk.driver.release_queue(hctx, done);
                if let Some(log) = self.world.cpus.log() {
                    let of_cpu = |p: &Process| p.cpu() == cpu;
                    log.dispatched_for(self.processes.iter().position(of_cpu).unwrap_or(0));
                }
            }
        }
        disk.worked = worked;
    }

    #[inline]
    fn with_process(&mut self, pid: usize, act: impl FnOnce(&mut Process, Nanos, &mut World)) {
        act(&mut self.processes[pid], self.now, &mut self.world);
        if !self.costs.free {
            self.release_all(self.now);
        }
        self.poke_workers(Some(self.processes[pid].cpu()));
        self.settle();
        if self.processes[pid].just_ended() {
            self.on_over(pid);
        }
    }

    /// What nobody is charged for does not wait for its CPU.
    #[inline(never)]
    fn release_all(&mut self, now: Nanos) {
        self.world
            .disks
            .iter_mut()
            .for_each(|disk| disk.release(now));
    }

    /// Delivers what was refused on the spot: that has ended without an event of
    /// the drive. What comes of it is settled in the same loop.
    #[inline]
    fn settle(&mut self) {
        if self.world.disks.iter().any(|d| d.queue.has_ended()) {
            self.deliver_refused();
        }
    }

    #[cold]
    fn deliver_refused(&mut self) {
        if std::mem::replace(&mut self.settling, true) {
            return;
        }
        // What was being delivered goes on afterwards.
        let (ended, woken) = (
            std::mem::take(&mut self.ended),
            std::mem::take(&mut self.woken),
        );
        let refused = |sim: &Sim| sim.world.disks.iter().position(|d| d.queue.has_ended());
        while let Some(disk) = refused(self) {
            self.world.disks[disk].queue.take_ended(&mut self.ended);
            self.deliver(disk);
        }
        (self.ended, self.woken) = (ended, woken);
        self.settling = false;
    }

    #[cold]
    fn on_over(&mut self, pid: usize) {
        self.over += 1;
        // Its I/O context goes with it.
        for disk in &mut self.world.disks {
            disk.queue.exit_submitter(self.now, SubmitterId(pid as u32));
        }
        let spec = Arc::clone(&self.processes[pid].spec);
        if spec.exit_all || spec.exit_all_on_error && self.processes[pid].has_failed() {
            self.stop_others(&spec);
        }
        self.start_ready();
    }

    /// Ends the processes that `exit_what` of a job tells to.
    fn stop_others(&mut self, spec: &JobSpec) {
        let now = self.now;
        for other in 0..self.processes.len() {
            let waits = self.delayed[other] || self.pending.iter().any(|p| p.pid == other);
            let process = &mut self.processes[other];
            let ends = match spec.exit_what {
                ExitWhat::All => true,
                ExitWhat::Group => process.spec.group == spec.group,
                ExitWhat::Stonewall => !waits,
            };
            if ends {
                process.stop(now, &mut self.world.timers);
                if self.delayed[other] {
                    // It has nothing to wait for.
                    self.world.timers.set(now, other);
                }
            }
        }
    }

    /// What to say where a scheduler knows nothing of the job's control groups.
    fn cgroup_note(&self, job: &JobFile, scheduler: &str) -> Option<String> {
        let elevator = self.world.disks.first().and_then(|d| d.queue.elevator());
        let deaf = !elevator.is_some_and(|e| e.has_cgroups());
        (deaf && !cgroups(job).is_empty()).then(|| {
            format!("{scheduler} has no control groups: cgroup counts in Jain's index alone")
        })
    }

    fn results(mut self, setup: &Setup<'_>, job: &JobFile, mut notes: Vec<String>) -> Results {
        notes.extend(job.notes.iter().map(ToString::to_string));
        notes.extend(loop_note(setup.drive, setup.machine));
        notes.extend(self.cgroup_note(job, setup.scheduler.kind.name));
        let now = self.now;
        let recording = self.recording.take();
        let timeline =
            recording.and_then(|r| r.finish(now, &mut self.world.disks, &mut self.world.cpus));
        let disks = self.world.disks.iter().map(|d| d.stats(now)).collect();
        for process in &self.processes {
            if let Some(option) = process.missed {
                let note = format!("{}: ended by its {option}", process.spec.name);
                if !notes.contains(&note) {
                    notes.push(note);
                }
            }
        }
        let weights = due_weights(job, &processes(job));
        let (jobs, groups) = job_results(self.processes, weights);
        let (mut cpus, mut cpu_timeline) = (Vec::new(), Vec::new());
        if !self.costs.free {
            cpus = self.world.cpus.stats(now);
            cpu_timeline = self.world.cpus.slices(now);
        }
        Results {
            world: WorldKind::Sim,
            scheduler: setup.scheduler.label(),
            drive: setup.drive.name.clone(),
            machine: setup.machine.name.clone(),
            seed: setup.seed,
            job: job.name.clone(),
            elapsed_ns: now.0,
            jobs,
            groups,
            disks,
            cpus,
            cpu_timeline,
            timeline,
            notes,
            global_options: job.global_options.clone(),
            ..Results::default()
        }
    }
}

/// What processes wrote down: by job or reporting group, and by group.
fn job_results(
    processes: Vec<Process>,
    weights: Vec<Option<f64>>,
) -> (Vec<JobResults>, Vec<GroupResults>) {
    let mut jobs: Vec<JobResults> = Vec::new();
    let mut groups: Vec<GroupResults> = Vec::new();
    let counted = (processes.into_iter().zip(weights)).filter(|(process, _)| process.spec.stats);
    for (process, weight) in counted {
        let together = process.spec.group_reporting;
        let (number, finished) = (process.id as u32, process.finished);
        let failed = process.has_failed();
        let mut job = process.recorder.into_results(number);
        let own = ProcessResults {
            job: job.name.clone(),
            process: number,
            runtime_ns: job.runtime_ns,
            weight,
            finished,
            failed,
            ..ProcessResults::default()
        };
        job.processes = vec![own.with_io([&job.read, &job.write, &job.trim])];
        add_to_group(&mut groups, &job);
        match jobs.last_mut() {
            Some(last) if together && last.group_id == job.group_id => last.merge(&job),
            _ => jobs.push(job),
        }
    }
    (jobs, groups)
}

/// A run's disks, and what the steps of an I/O cost on them.
fn disks(
    setup: &Setup<'_>,
    job: &JobFile,
    names: &[String],
) -> Result<(Vec<Disk>, StepCosts), SetupError> {
    let disk = |(n, name): (usize, &String)| {
        let seed = drive_seed(setup.seed, n);
        Disk::new(name, setup.drive, setup.scheduler, setup.machine.cpus, seed)
    };
    let disks: Result<Vec<Disk>, SetupError> = names.iter().enumerate().map(disk).collect();
    let mut disks = disks?;
    let groups = cgroups(job);
    let elevator = disks.first().and_then(|d| d.queue.elevator());
    let one_lock = elevator.is_some_and(|e| e.is_single_queue());
    let scheduler = setup.scheduler.kind.name;
    let costs = StepCosts::new(&setup.machine.costs, scheduler, one_lock);
    let inline = setup.machine.dispatch == Dispatch::Submitter;
    for disk in &mut disks {
        disk.set_cgroup_weights(&groups);
        disk.queue.set_runs_inline(inline);
        disk.queue.set_kblockd_delay(costs.kblockd_delay());
        if !costs.free {
            disk.driver.hold();
        }
    }
    Ok((disks, costs))
}

/// The workers of loop devices, numbered behind so many processes.
fn workers(disks: &mut [Disk], processes: usize) -> Vec<Worker> {
    let mut workers: Vec<Worker> = Vec::new();
    for (n, disk) in disks.iter_mut().enumerate() {
        if let Some(driver) = disk.driver.as_loop() {
            driver.lend_cpu();
            // One number for the worker, one for its ksoftirqd.
            let pid = processes + 2 * workers.len();
            workers.push(Worker::new(pid, pid + 1, n));
        }
    }
    workers
}

/// The processes of a run, by number.
struct Started {
    processes: Vec<Process>,
    /// What each waits for before it starts.
    pending: Vec<Pending>,
    /// Where each may run.
    allowed: Vec<Allowed>,
}

impl Started {
    fn new(
        (setup, job): (&Setup<'_>, &JobFile),
        numbered: &[Numbered],
        (drives, costs): (&Drives, StepCosts),
    ) -> Result<Started, SetupError> {
        let groups = cgroups(job);
        let specs: Vec<Arc<JobSpec>> = job.jobs.iter().cloned().map(Arc::new).collect();
        let (mut processes, mut pending, mut wall) = (Vec::new(), Vec::new(), 0);
        let mut allowed = Vec::new();
        for (pid, n) in numbered.iter().enumerate() {
            let spec = &specs[n.job];
            if spec.stonewall && n.number == 0 {
                wall = pid;
            }
            let plan = Plan::new(spec, n, drives.files_of(pid), setup.seed)?;
            pending.push(Pending {
                pid,
                after: (wall > 0).then_some(wall),
                awaited: spec.wait_for.map(|job| pids_of(job, numbered)),
                delay: plan.start_delay(),
            });
            let own = own_cpus(&n.cpus(spec), setup.machine.cpus);
            let cpu = own[pid % own.len()];
            allowed.push(match own.len() {
                1 => Allowed::One,
                _ => Allowed::These(own),
            });
            let costs = costs.with_engine(&setup.machine.costs, &spec.engine);
            let disks = drives.names().len();
            let process = Process::new(pid, Arc::clone(spec), plan, cpu, costs, disks);
            processes.push(process.in_cgroup(cgroup_of(spec, &groups)));
        }
        Ok(Started {
            processes,
            pending,
            allowed,
        })
    }
}

/// When the ramps of all processes that wait for no other are over;
/// [`Nanos::MAX`] where none of them has one.
fn ramp_end(pending: &[Pending], processes: &[Process]) -> Nanos {
    let at_once = pending
        .iter()
        .filter(|p| p.after.is_none() && p.awaited.is_none());
    let ramps = at_once.map(|p| (p.delay, Nanos::from_micros(processes[p.pid].spec.ramp_us)));
    let has_ramp = ramps.clone().any(|(_, ramp)| ramp > Nanos::ZERO);
    let last = ramps.map(|(delay, ramp)| delay + ramp).max();
    last.filter(|_| has_ramp).unwrap_or(Nanos::MAX)
}

/// What to say of jobs that name another scheduler than the run's.
fn other_schedulers(setup: &Setup<'_>, job: &JobFile) -> Vec<String> {
    let other = |spec: &JobSpec| {
        let name = spec.io_scheduler.as_deref();
        let name = name.filter(|name| *name != setup.scheduler.kind.name)?;
        Some(format!(
            "{}: ioscheduler={name} is left out: the command names the scheduler",
            spec.name
        ))
    };
    job.jobs.iter().filter_map(other).collect()
}

/// The control group of a job's processes; the root where it names none.
fn cgroup_of(spec: &JobSpec, groups: &[(String, Option<u32>)]) -> CgroupId {
    let name = spec.cgroup.as_ref();
    let at = name.and_then(|name| groups.iter().position(|(known, _)| known == name));
    at.map_or(CgroupId::ROOT, |at| CgroupId(at as u16 + 1))
}

/// The processes of a job, which are numbered one behind the other.
fn pids_of(job: usize, numbered: &[Numbered]) -> Range<usize> {
    let first = numbered.partition_point(|n| n.job < job);
    first..numbered.partition_point(|n| n.job <= job)
}

/// The CPUs that a process may run on, of those that there are: all of them if
/// the job names none of them. Processes start on one after the other.
fn own_cpus(allowed: &[u32], cpus: u32) -> Box<[usize]> {
    let known = allowed.iter().filter(|&&cpu| cpu < cpus);
    let own: Box<[usize]> = known.map(|&cpu| cpu as usize).collect();
    match own.is_empty() {
        true => (0..cpus as usize).collect(),
        false => own,
    }
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
    for (sum, dir) in [
        (&mut group.read, &job.read),
        (&mut group.write, &job.write),
        (&mut group.trim, &job.trim),
    ] {
        sum.merge(dir);
    }
}
