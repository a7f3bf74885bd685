//! Runs a workload on a modelled machine: the event loop of virtual time.

mod clock;
mod completions;
mod results;
mod startup;
mod steady_state;
#[cfg(test)]
mod tests;

use std::ops::ControlFlow;

use blklab_blk::{BioEnd, Nanos};
use blklab_stats::Results;

use crate::cpu::CostTable;
use crate::disk::Disk;
use crate::process::Process;
use crate::process::loop_worker::LoopWorker;
use crate::process::server::ServerThread;
use crate::setup::{Setup, SetupError};
use crate::system::System;
use crate::timers::{EndedIo, Interrupts};
use clock::Clock;
use startup::StartQueue;
use steady_state::SteadyStates;

/// Runs the workload once.
///
/// # Errors
/// Where it cannot be simulated: then nothing has run. Where a trace cannot be
/// read or has no I/O. Where the run can never end.
pub fn run(setup: &Setup<'_>) -> Result<Results, SetupError> {
    run_watched(setup, &mut |_| ControlFlow::Continue(()))
}

/// Between two calls of who watches a run: some milliseconds.
const EVENTS_WATCHED: u32 = 1 << 16;

/// How who watches a run breaks it off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakOff {
    /// Jobs, traces and lists of calls issue nothing more, as if their time were over.
    Work,
    /// The run is abandoned.
    Run,
}

/// The same, which tells now and then how far virtual time has come, and is broken off
/// where `watch` says so.
///
/// # Errors
/// As [`run`], and where it was abandoned.
pub fn run_watched(
    setup: &Setup<'_>,
    watch: &mut dyn FnMut(Nanos) -> ControlFlow<BreakOff>,
) -> Result<Results, SetupError> {
    let mut simulation = Simulation::new(setup)?;
    simulation.system.record(Nanos::ZERO);
    simulation.start_kernel_threads();
    simulation.start_ready();
    let mut are_stopped = false;
    loop {
        for _ in 0..EVENTS_WATCHED {
            if !simulation.advance()? {
                return simulation.into_results(setup);
            }
        }
        match watch(simulation.clock.now()) {
            ControlFlow::Continue(()) => {}
            ControlFlow::Break(BreakOff::Work) if are_stopped => {}
            ControlFlow::Break(BreakOff::Work) => {
                are_stopped = true;
                simulation.stop_work();
            }
            ControlFlow::Break(BreakOff::Run) => return Err(SetupError::Abandoned),
        }
    }
}

struct Simulation {
    clock: Clock,
    system: System,
    costs: CostTable,
    processes: Vec<Process>,
    /// Those that have not started.
    starts: StartQueue,
    exited: usize,
    /// Of loop devices. Their numbers come behind those of processes.
    workers: Vec<LoopWorker>,
    /// Of front ends. Their numbers come behind those of processes; a run has no
    /// workers beside them.
    servers: Vec<ServerThread>,
    /// The server whose answers are being delivered.
    answering: Option<usize>,
    interrupts: Interrupts,
    /// What a disk has just reported: bios that ended, and waiters that may try again
    /// to get a tag.
    ended: Vec<BioEnd>,
    woken: Vec<u64>,
    /// Processes that slept for a tag and were woken together.
    tried: Vec<usize>,
    /// I/Os that ksoftirqd completes.
    softirq_ended: Vec<EndedIo>,
    /// Bios that were refused on the spot are being delivered.
    is_delivering_refused: bool,
    /// Where the last ramp ends and counters start afresh; [`Nanos::MAX`] where
    /// that has been, or there is none.
    ramp_end: Nanos,
    /// When the drives lose their power; [`Nanos::MAX`] where that has been, or
    /// does not happen.
    power_loss_at: Nanos,
    steady_states: SteadyStates,
    /// What a reader of the results should know.
    notes: Vec<String>,
}

impl Simulation {
    /// The error of a run in which nothing happens any more: that of a list whose programs
    /// wait for each other, or of ours.
    #[cold]
    fn stuck(&self) -> SetupError {
        let waits = self.processes.iter().filter_map(Process::waits_in_vain);
        let waits: Vec<String> = waits.collect();
        match waits.is_empty() {
            true => (self.clock).stuck("processes wait, and nothing will ever happen"),
            false => SetupError::Calls(waits.join("; ")),
        }
    }

    /// Has all processes issue nothing more.
    fn stop_work(&mut self) {
        let (now, system) = (self.clock.now(), &mut self.system);
        let running = self.processes.iter_mut().filter(|p| !p.has_exited());
        running.for_each(|process| process.stop(now, system));
    }

    /// Lets time pass to the next event and everything happen that happens
    /// then. Returns false when all is over.
    fn advance(&mut self) -> Result<bool, SetupError> {
        if self.exited == self.processes.len() {
            return Ok(false);
        }
        let in_turn = self.system.next_turn.len();
        let next = self.next_event(in_turn > 0);
        if next == Nanos::MAX {
            return Err(self.stuck());
        }
        self.clock.advance(next)?;
        let now = self.clock.now();
        if now >= self.ramp_end {
            self.end_ramp();
        }
        self.system.record(now);
        for disk in 0..self.system.disks.len() {
            if self.system.disks[disk].is_due(now) {
                self.advance_disk(disk);
            }
        }
        if now >= self.power_loss_at {
            self.lose_power();
        }
        if now >= self.steady_states.next() {
            self.check_steady_states();
        }
        if self.next_call() <= now {
            self.call_processes();
        }
        if in_turn > 0 {
            self.call_next_turn(in_turn);
        }
        let next_turn = self.system.next_turn.len();
        if next_turn > 0 && self.is_next_turn_alone() {
            self.call_next_turn(next_turn);
        }
        Ok(true)
    }

    /// Whether nothing comes before the next turn, so that it needs no advance of its own.
    fn is_next_turn_alone(&self) -> bool {
        let (now, disks) = (self.clock.now(), &self.system.disks);
        let marks = self.ramp_end.min(self.power_loss_at);
        self.exited < self.processes.len()
            && !self.system.is_recording()
            && marks.min(self.steady_states.next()) > now
            && self.next_call() > now
            && !disks.iter().any(|disk| disk.is_due(now))
    }

    /// When the next event is: at once where a process goes on `in_turn`.
    fn next_event(&mut self, in_turn: bool) -> Nanos {
        let mut calls = self.next_call();
        if in_turn {
            calls = self.clock.now();
        }
        let outside = calls.min(self.power_loss_at).min(self.steady_states.next());
        let marks = self.system.next_recording_event().min(self.ramp_end);
        match &mut self.system.disks[..] {
            // A single drive runs ahead to its next event that concerns other parts.
            [disk] => disk.run_ahead(outside.min(marks)),
            disks => {
                let disks = disks.iter().map(Disk::next_event).min();
                outside.min(disks.unwrap_or(Nanos::MAX))
            }
        }
    }

    /// When a process is called that waits for no drive.
    #[inline]
    fn next_call(&self) -> Nanos {
        self.system.timers.next().min(self.interrupts.next())
    }

    /// Calls processes whose I/O a CPU has handled the end of, and those whose timer
    /// has run out.
    #[inline(never)]
    fn call_processes(&mut self) {
        let now = self.clock.now();
        while let Some(io) = self.interrupts.pop_due(now) {
            self.with_process(io.pid, |p, now, system| {
                p.on_end(now, io.slot, io.status, system);
            });
        }
        while let Some(pid) = self.system.timers.pop_due(now) {
            if pid >= self.processes.len() {
                let number = pid - self.processes.len();
                match self.servers.is_empty() {
                    true => self.on_worker_timer(number / 2, number % 2 == 1),
                    false => self.on_server_timer(number / 2),
                }
            } else if self.starts.take_delayed(pid) {
                self.with_process(pid, Process::start);
            } else {
                self.with_process(pid, Process::on_timer);
            }
        }
    }

    /// Calls the first `in_turn` of the processes that asked for the next turn.
    #[inline(never)]
    fn call_next_turn(&mut self, in_turn: usize) {
        for _ in 0..in_turn {
            if let Some(pid) = self.system.next_turn.pop_front() {
                self.with_process(pid, Process::on_turn);
            }
        }
    }

    /// Counters start afresh where the last ramp ends.
    #[cold]
    fn end_ramp(&mut self) {
        self.ramp_end = Nanos::MAX;
        let now = self.clock.now();
        let disks = self.system.disks.iter_mut();
        disks.for_each(|d| d.reset_counters(now));
        self.system.cpus.reset(now);
        self.servers.iter_mut().for_each(ServerThread::reset_times);
        if let Some(files) = &mut self.system.files {
            files.reset_counters();
        }
    }

    /// Every drive loses its power, and what is in it ends with an error.
    #[cold]
    fn lose_power(&mut self) {
        self.power_loss_at = Nanos::MAX;
        for disk in 0..self.system.disks.len() {
            self.system.disks[disk].lose_power(self.clock.now());
            self.advance_disk(disk);
        }
    }

    /// Calls a process, and delivers what comes of that at once.
    #[inline]
    fn with_process(&mut self, pid: usize, act: impl FnOnce(&mut Process, Nanos, &mut System)) {
        act(&mut self.processes[pid], self.clock.now(), &mut self.system);
        if !self.costs.free {
            self.release_all();
        }
        self.wake_workers(Some(pid));
        self.deliver_refused();
        if self.processes[pid].has_just_exited() {
            self.on_exit(pid);
        }
    }

    /// Lets the drives have the commands whose CPU time is charged to no process.
    #[inline(never)]
    fn release_all(&mut self) {
        let now = self.clock.now();
        let disks = self.system.disks.iter_mut();
        disks.for_each(|disk| disk.release(now));
    }

    /// Wakes the workers and servers that have something to do. `by` is the process that
    /// gave it to them.
    #[inline]
    fn wake_workers(&mut self, by: Option<usize>) {
        if !self.workers.is_empty() || !self.servers.is_empty() {
            self.wake_each_worker(by);
        }
    }

    #[inline(never)]
    fn wake_each_worker(&mut self, by: Option<usize>) {
        let by = by.map(|pid| self.processes[pid].cpu());
        for at in 0..self.workers.len() {
            self.with_worker(at, |w, now, costs, system| {
                w.wake_up(now, by, costs, system)
            });
        }
        let now = self.clock.now();
        for server in &mut self.servers {
            server.wake_up(now, by, &self.costs, &mut self.system);
        }
    }

    /// A server of a front end goes on.
    fn on_server_timer(&mut self, at: usize) {
        let now = self.clock.now();
        let server = &mut self.servers[at];
        let disk = server.disk();
        let answers = server.on_timer(now, &self.costs, &mut self.system);
        if answers {
            self.answering = Some(at);
        }
        if self.system.disks[disk].is_due(now) {
            self.advance_disk(disk);
        }
        if answers {
            self.answering = None;
            self.servers[at].go_on(now, &mut self.system);
        }
    }

    /// A worker goes on, or the ksoftirqd behind it.
    fn on_worker_timer(&mut self, at: usize, is_softirq: bool) {
        let now = self.clock.now();
        if !is_softirq {
            self.with_worker(at, |w, now, costs, system| w.on_timer(now, costs, system));
            let disk = self.workers[at].disk();
            if self.system.disks[disk].is_due(now) {
                self.advance_disk(disk);
            }
            self.with_worker(at, |w, now, _, system| w.after_copy(now, system));
        }
        let mut ended = std::mem::take(&mut self.softirq_ended);
        self.workers[at].take_ended(now, &mut ended);
        let (disk, cpu) = (self.workers[at].disk(), self.workers[at].cpu());
        for io in ended.drain(..) {
            let mode = self.system.disks[disk].ends_in();
            self.complete_on(disk, (cpu, mode), io);
        }
        self.softirq_ended = ended;
    }

    fn with_worker(
        &mut self,
        at: usize,
        act: impl FnOnce(&mut LoopWorker, Nanos, &CostTable, &mut System),
    ) {
        act(
            &mut self.workers[at],
            self.clock.now(),
            &self.costs,
            &mut self.system,
        );
    }
}
