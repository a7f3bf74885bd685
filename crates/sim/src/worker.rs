//! The worker thread of a loop device: it takes CPU time beside the processes
//! that it works for.
//!
//! The kernel's is one of an unbound work queue, so it wakes on whichever CPU
//! is idle. What it ends is told from its own CPU: with one hardware queue
//! `blk_mq_complete_request` leaves the end to that CPU's ksoftirqd. That is a
//! thread like the worker, so it has its turn when the worker has nothing more
//! to do or has gone on for a while, and then tells of several ends at once.

use blklab_blk::{IoStatus, Nanos};
use blklab_driver::Loop;

use crate::cost::StepCosts;
use crate::cpu::Mode;
use crate::world::World;

/// What a drive takes that has done a request on the spot: none takes less.
const AT_ONCE: Nanos = Nanos(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It has nothing to do.
    Asleep,
    /// It will be awake in a moment.
    Waking,
    /// It could run, and its CPU runs another.
    Ready,
    /// Its CPU is at it, or at an interrupt, until the worker's timer.
    OnCpu,
    /// Its CPU is at a request.
    Copying,
    /// It has copied a request, and the drive under the file is about to be asked
    /// whether that is all, or has it in a moment.
    Copied,
    /// It sleeps until the drive under the file has done its part.
    InDrive,
}

/// An I/O whose end its process has still to be told of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Untold {
    pub(crate) pid: usize,
    pub(crate) slot: u32,
    pub(crate) status: IoStatus,
}

pub(crate) struct Worker {
    /// Its number among processes.
    pid: usize,
    /// The number of the ksoftirqd that tells what it ended.
    softirq_pid: usize,
    disk: usize,
    cpu: usize,
    state: State,
    untold: Vec<Untold>,
    /// When ksoftirqd has its turn while the worker goes on.
    softirq_at: Nanos,
}

impl Worker {
    pub(crate) fn new(pid: usize, softirq_pid: usize, disk: usize) -> Worker {
        Worker {
            pid,
            softirq_pid,
            disk,
            cpu: 0,
            state: State::Asleep,
            untold: Vec::new(),
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

    /// An I/O ended: its process will be told.
    pub(crate) fn ended(
        &mut self,
        now: Nanos,
        untold: Untold,
        costs: &StepCosts,
        world: &mut World,
    ) {
        if self.untold.is_empty() {
            self.softirq_at = now + costs.softirq_wait;
            world.timers.set(self.softirq_at, self.softirq_pid);
        }
        self.untold.push(untold);
    }

    /// Moves the ends that are to be told now to `out`.
    pub(crate) fn take_untold(&mut self, now: Nanos, out: &mut Vec<Untold>) {
        let runs = matches!(self.state, State::OnCpu | State::Copying | State::Copied);
        if !runs || self.softirq_at <= now {
            out.append(&mut self.untold);
        }
    }

    /// There is something to do for it, or the drive has done its part. `by` is
    /// the CPU of who says so, where that is a process. Wakes it where it sleeps.
    pub(crate) fn poke(
        &mut self,
        now: Nanos,
        by: Option<usize>,
        costs: &StepCosts,
        world: &mut World,
    ) {
        let wanted = match self.state {
            State::Asleep => driver(self.disk, world).has_work(),
            State::InDrive => !driver(self.disk, world).is_at_work(),
            _ => false,
        };
        if !wanted {
            return;
        }
        let at = match by {
            // It hears of it when that CPU has come so far, and woken it.
            Some(cpu) => world.cpus.run(cpu, now, costs.wake, Mode::System),
            None => now,
        };
        self.state = State::Waking;
        world.timers.set(at, self.pid);
    }

    /// Its timer ran out.
    pub(crate) fn on_timer(&mut self, now: Nanos, costs: &StepCosts, world: &mut World) {
        match self.state {
            State::Waking => {
                self.cpu = world.fair.place(self.pid, self.cpu);
                match world.fair.wakes(self.cpu, self.pid) {
                    true => self.spend(now, costs.context_switch, State::OnCpu, world),
                    false => self.state = State::Ready,
                }
            }
            State::Ready => {
                if let Some(cpu) = world.fair.runs_on(self.pid) {
                    self.cpu = cpu;
                    self.spend(now, costs.context_switch, State::OnCpu, world);
                }
            }
            State::OnCpu | State::Copying if world.cpus.free_at(self.cpu) > now => {
                world.timers.put_off(world.cpus.free_at(self.cpu), self.pid);
            }
            State::OnCpu => self.next(now, costs, world),
            State::Copying => {
                self.state = State::Copied;
                driver(self.disk, world).copied(now);
            }
            State::Asleep | State::Copied | State::InDrive => {}
        }
    }

    /// The drive has been told of everything that is due. A worker whose request
    /// it has done on the spot goes on, one that has to wait sleeps.
    pub(crate) fn after_copy(&mut self, now: Nanos, world: &mut World) {
        if self.state != State::Copied {
            return;
        }
        let driver = driver(self.disk, world);
        if driver.is_at_work() {
            let ends_at = driver.next_event();
            if ends_at <= now + AT_ONCE {
                // It stays as it is until then.
                world.timers.set(ends_at, self.pid);
                return;
            }
            self.state = State::InDrive;
            world.leave_cpu(now, self.cpu, self.pid);
        } else {
            self.state = State::OnCpu;
            let at = world.cpus.free_at(self.cpu).max(now);
            world.timers.set(at, self.pid);
        }
    }

    /// Begins with the next request, or sleeps.
    fn next(&mut self, now: Nanos, costs: &StepCosts, world: &mut World) {
        if let Some(next) = world.fair.ends_step(self.cpu, self.pid, now) {
            world.hand_over(now, self.cpu, next);
        }
        if !world.fair.is_running(self.cpu, self.pid) {
            self.state = State::Ready;
            return;
        }
        match driver(self.disk, world).begin() {
            Some(job) => self.spend(now, costs.loop_work(job), State::Copying, world),
            None => {
                self.state = State::Asleep;
                world.leave_cpu(now, self.cpu, self.pid);
            }
        }
    }

    fn spend(&mut self, now: Nanos, cost: Nanos, state: State, world: &mut World) {
        self.state = state;
        world.fair.ran(self.pid, cost);
        let until = world.cpus.run(self.cpu, now, cost, Mode::System);
        world.timers.set(until, self.pid);
    }
}

fn driver(disk: usize, world: &mut World) -> &mut Loop {
    let driver = world.disks[disk].driver.as_loop();
    driver.expect("only loop devices have workers")
}
