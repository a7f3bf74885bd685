//! A thread of the kernel, or of a server: it sleeps, is woken, waits for a CPU, and runs there
//! until it has nothing more to do or another has its turn.

use blklab_blk::Nanos;

use crate::cpu::Mode;
use crate::system::System;

/// How long a drive takes that does a request on the spot: none takes less.
const AT_ONCE: Nanos = Nanos(1);

/// Whether a drive has done its part on the spot, so that no thread sleeps for it.
pub(super) fn is_at_once(now: Nanos, ends_at: Nanos) -> bool {
    ends_at <= now + AT_ONCE
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ThreadState {
    Asleep,
    /// It will be awake in a moment.
    Waking,
    /// It is on a run queue, and the CPU runs another.
    Runnable,
    /// Its CPU runs it, or an interrupt, until the thread's timer.
    OnCpu,
}

/// A thread that may run on any CPU.
#[derive(Debug)]
pub(super) struct Thread {
    /// Its number, behind those of processes.
    pid: usize,
    cpu: usize,
    state: ThreadState,
}

impl Thread {
    /// A thread that sleeps.
    pub(super) fn new(pid: usize) -> Thread {
        Thread {
            pid,
            cpu: 0,
            state: ThreadState::Asleep,
        }
    }

    /// The CPU it runs on, or ran on last.
    pub(super) fn cpu(&self) -> usize {
        self.cpu
    }

    pub(super) fn is_asleep(&self) -> bool {
        self.state == ThreadState::Asleep
    }

    pub(super) fn is_on_cpu(&self) -> bool {
        self.state == ThreadState::OnCpu
    }

    /// Wakes it, which has happened at `at`.
    pub(super) fn wake(&mut self, at: Nanos, system: &mut System) {
        self.state = ThreadState::Waking;
        system.timers.set(at, self.pid);
    }

    /// Its timer ran out. Returns whether its CPU is done with what the thread spent time on,
    /// so that it goes on; `switch` is what switching to it takes.
    pub(super) fn on_timer(&mut self, now: Nanos, switch: Nanos, system: &mut System) -> bool {
        match self.state {
            ThreadState::Asleep => false,
            ThreadState::Waking => {
                self.cpu = system.fair.select_cpu(self.pid, self.cpu);
                match system.fair.enqueue(self.cpu, self.pid, now) {
                    true => self.switch_in(now, switch, system),
                    false => self.state = ThreadState::Runnable,
                }
                false
            }
            ThreadState::Runnable => {
                if let Some(cpu) = system.fair.cpu_of_current(self.pid) {
                    self.cpu = cpu;
                    self.switch_in(now, switch, system);
                }
                false
            }
            ThreadState::OnCpu => {
                let free_at = system.cpus.free_at(self.cpu);
                if free_at > now {
                    system.timers.put_off(free_at, self.pid);
                }
                free_at <= now
            }
        }
    }

    fn switch_in(&mut self, now: Nanos, switch: Nanos, system: &mut System) {
        self.state = ThreadState::OnCpu;
        self.spend(now, switch, Mode::System, system);
    }

    /// Whether it keeps its CPU. Where another has its turn, it goes on after that.
    pub(super) fn keeps_cpu(&mut self, now: Nanos, system: &mut System) -> bool {
        if let Some(next) = system.fair.check_preempt(self.cpu, self.pid, now) {
            system.switch_to(now, self.cpu, next);
        }
        let keeps = system.fair.is_current(self.cpu, self.pid);
        if !keeps {
            self.state = ThreadState::Runnable;
        }
        keeps
    }

    /// Spends time on its CPU, after which its timer runs out. Returns how much it took there.
    pub(super) fn spend(
        &mut self,
        now: Nanos,
        cost: Nanos,
        mode: Mode,
        system: &mut System,
    ) -> Nanos {
        // It shares caches and cores with the processes that it works for.
        let cost = system.cpus.slowdown(self.cpu, now).of(cost);
        system.fair.account(self.pid, cost);
        let until = system.cpus.run(self.cpu, now, cost, mode);
        system.timers.set(until, self.pid);
        cost
    }

    /// Has it go on once its CPU is free.
    pub(super) fn go_on(&mut self, now: Nanos, system: &mut System) {
        let at = system.cpus.free_at(self.cpu).max(now);
        system.timers.set(at, self.pid);
    }

    /// Has it go on at `at`, until when it keeps its CPU.
    pub(super) fn go_on_at(&mut self, at: Nanos, system: &mut System) {
        system.timers.set(at, self.pid);
    }

    /// Puts it to sleep, and gives its CPU to the next.
    pub(super) fn sleep(&mut self, now: Nanos, system: &mut System) {
        self.state = ThreadState::Asleep;
        system.schedule_out(now, self.cpu, self.pid);
    }
}
