//! The worker thread of a loop device, which uses CPU time beside the processes
//! that it works for.
//!
//! The kernel's belongs to an unbound work queue, so it wakes on whichever CPU is
//! idle. With one hardware queue `blk_mq_complete_request` leaves the completion of a
//! request to the ksoftirqd of that CPU. As that is a thread too, it runs when the
//! worker has nothing more to do or has run for a while, and then completes several
//! requests at once.

use blklab_blk::Nanos;
use blklab_driver::Loop;

use crate::cpu::{CostTable, Mode};
use crate::system::System;
use crate::timers::EndedIo;

/// How long a drive takes that does a request on the spot: none takes less.
const AT_ONCE: Nanos = Nanos(1);

/// What a worker is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WorkerState {
    /// It has nothing to do.
    Asleep,
    /// It will be awake in a moment.
    Waking,
    /// It is on a run queue, and the CPU runs another.
    Runnable,
    /// Its CPU runs it, or an interrupt, until the worker's timer.
    OnCpu,
    /// Its CPU copies the data of a request.
    Copying,
    /// It has copied a request, which the drive under the file has done already or
    /// will have in a moment.
    Copied,
    /// It sleeps until the drive under the file has done its part.
    InDrive,
}

/// The kernel's worker thread of a loop device, and the ksoftirqd of its CPU.
pub(crate) struct LoopWorker {
    /// Its number, behind those of processes.
    pid: usize,
    /// The number of the ksoftirqd that completes what it ended.
    softirq_pid: usize,
    disk: usize,
    cpu: usize,
    state: WorkerState,
    ended: Vec<EndedIo>,
    /// When ksoftirqd has its turn while the worker goes on.
    softirq_at: Nanos,
}

impl LoopWorker {
    pub(crate) fn new(pid: usize, softirq_pid: usize, disk: usize) -> LoopWorker {
        LoopWorker {
            pid,
            softirq_pid,
            disk,
            cpu: 0,
            state: WorkerState::Asleep,
            ended: Vec::new(),
            softirq_at: Nanos::ZERO,
        }
    }

    /// The disk that it works for.
    pub(crate) fn disk(&self) -> usize {
        self.disk
    }

    /// The CPU it runs on, or ran on last.
    pub(crate) fn cpu(&self) -> usize {
        self.cpu
    }

    /// It ended an I/O, which ksoftirqd will complete.
    pub(crate) fn ended(
        &mut self,
        now: Nanos,
        io: EndedIo,
        costs: &CostTable,
        system: &mut System,
    ) {
        if self.ended.is_empty() {
            self.softirq_at = now + costs.softirq_wait;
            system.timers.set(self.softirq_at, self.softirq_pid);
        }
        self.ended.push(io);
    }

    /// Moves the I/Os that are completed now to `out`.
    pub(crate) fn take_ended(&mut self, now: Nanos, out: &mut Vec<EndedIo>) {
        let runs = matches!(
            self.state,
            WorkerState::OnCpu | WorkerState::Copying | WorkerState::Copied
        );
        if !runs || self.softirq_at <= now {
            out.append(&mut self.ended);
        }
    }

    /// Wakes it if it sleeps and has something to do, or its drive has done its part.
    /// `by` is the CPU of the process that wakes it; an interrupt has none.
    pub(crate) fn wake_up(
        &mut self,
        now: Nanos,
        by: Option<usize>,
        costs: &CostTable,
        system: &mut System,
    ) {
        let wanted = match self.state {
            WorkerState::Asleep => driver(self.disk, system).has_work(),
            WorkerState::InDrive => !driver(self.disk, system).is_at_work(),
            _ => false,
        };
        if !wanted {
            return;
        }
        let at = match by {
            // It wakes when that CPU has woken it.
            Some(cpu) => system.cpus.run(cpu, now, costs.wake, Mode::System),
            None => now,
        };
        self.state = WorkerState::Waking;
        system.timers.set(at, self.pid);
    }

    /// Its timer ran out.
    pub(crate) fn on_timer(&mut self, now: Nanos, costs: &CostTable, system: &mut System) {
        match self.state {
            WorkerState::Waking => {
                self.cpu = system.fair.select_cpu(self.pid, self.cpu);
                match system.fair.enqueue(self.cpu, self.pid) {
                    true => self.spend(now, costs.context_switch, WorkerState::OnCpu, system),
                    false => self.state = WorkerState::Runnable,
                }
            }
            WorkerState::Runnable => {
                if let Some(cpu) = system.fair.cpu_of_current(self.pid) {
                    self.cpu = cpu;
                    self.spend(now, costs.context_switch, WorkerState::OnCpu, system);
                }
            }
            WorkerState::OnCpu | WorkerState::Copying if system.cpus.free_at(self.cpu) > now => {
                system
                    .timers
                    .put_off(system.cpus.free_at(self.cpu), self.pid);
            }
            WorkerState::OnCpu => self.next(now, costs, system),
            WorkerState::Copying => {
                self.state = WorkerState::Copied;
                driver(self.disk, system).copied(now);
            }
            WorkerState::Asleep | WorkerState::Copied | WorkerState::InDrive => {}
        }
    }

    /// The drive has done what is due. A worker whose request is among that goes on,
    /// one that has to wait sleeps.
    pub(crate) fn after_copy(&mut self, now: Nanos, system: &mut System) {
        if self.state != WorkerState::Copied {
            return;
        }
        let driver = driver(self.disk, system);
        if driver.is_at_work() {
            let ends_at = driver.next_event();
            if ends_at <= now + AT_ONCE {
                // It stays as it is until then.
                system.timers.set(ends_at, self.pid);
                return;
            }
            self.state = WorkerState::InDrive;
            system.schedule_out(now, self.cpu, self.pid);
        } else {
            self.state = WorkerState::OnCpu;
            let at = system.cpus.free_at(self.cpu).max(now);
            system.timers.set(at, self.pid);
        }
    }

    /// Starts the next request, or sleeps.
    fn next(&mut self, now: Nanos, costs: &CostTable, system: &mut System) {
        if let Some(next) = system.fair.check_preempt(self.cpu, self.pid, now) {
            system.switch_to(now, self.cpu, next);
        }
        if !system.fair.is_current(self.cpu, self.pid) {
            self.state = WorkerState::Runnable;
            return;
        }
        match driver(self.disk, system).begin() {
            Some(job) => self.spend(now, costs.loop_work(job), WorkerState::Copying, system),
            None => {
                self.state = WorkerState::Asleep;
                system.schedule_out(now, self.cpu, self.pid);
            }
        }
    }

    fn spend(&mut self, now: Nanos, cost: Nanos, state: WorkerState, system: &mut System) {
        self.state = state;
        // It shares caches and cores with the processes that it works for.
        let cost = system.cpus.slowdown(self.cpu, now).of(cost);
        system.fair.account(self.pid, cost);
        let until = system.cpus.run(self.cpu, now, cost, Mode::System);
        system.timers.set(until, self.pid);
    }
}

fn driver(disk: usize, system: &mut System) -> &mut Loop {
    let driver = system.disks[disk].driver.as_loop();
    driver.expect("only loop devices have workers")
}
