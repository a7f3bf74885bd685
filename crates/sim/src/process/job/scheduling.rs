//! A process of a job and its CPU: it waits for it, uses it, is preempted, sleeps.

use blklab_blk::Nanos;

use super::{JobProcess, TaskState};
use crate::cpu::Mode;
use crate::system::System;

impl JobProcess {
    /// Puts the process, which is awake, on the run queue of a CPU. Returns whether
    /// it runs there at once.
    #[inline]
    pub(super) fn enqueue(&mut self, now: Nanos, system: &mut System) -> bool {
        if self.costs.free {
            self.state = TaskState::Running;
            return true;
        }
        self.cpu = system.fair.select_cpu(self.id, self.cpu);
        let runs = system.fair.enqueue(self.cpu, self.id, now);
        self.state = match runs {
            true => TaskState::Running,
            false => TaskState::Runnable,
        };
        runs
    }

    /// Whether it was picked by a CPU, which is its own from now on.
    #[inline]
    pub(super) fn is_picked(&mut self, system: &System) -> bool {
        if system.fair.is_current(self.cpu, self.id) {
            return true;
        }
        let cpu = system.fair.cpu_of_current(self.id);
        self.cpu = cpu.unwrap_or(self.cpu);
        cpu.is_some()
    }

    /// Whether it goes on after a stretch of work, or is preempted.
    pub(super) fn continues(&mut self, now: Nanos, system: &mut System) -> bool {
        if self.costs.free {
            return true;
        }
        if let Some(next) = system.fair.check_preempt(self.cpu, self.id, now) {
            system.switch_to(now, self.cpu, next);
        }
        // Once preempted, it may have been picked by another CPU.
        let continues = self.is_picked(system);
        if !continues {
            self.recorder.context_switch();
            self.state = TaskState::Runnable;
        }
        continues
    }

    /// It has no use for its CPU for a while.
    #[inline]
    pub(super) fn schedule_out(&mut self, now: Nanos, system: &mut System) {
        if !self.costs.free {
            system.schedule_out(now, self.cpu, self.id);
        }
    }

    /// Wakes it: it has what it slept for.
    #[inline]
    pub(super) fn wake_up(&mut self, now: Nanos, system: &mut System) {
        self.count_io_wait(now, -1, system);
        if self.enqueue(now, system) {
            self.schedule_in(now, system);
        }
    }

    /// Its CPU, which slept or ran another, switches to it.
    #[inline]
    pub(super) fn schedule_in(&mut self, now: Nanos, system: &mut System) {
        let cost = system.cpus.at_clock(self.costs.context_switch);
        if cost > Nanos::ZERO {
            self.occupy(now, cost, Mode::System, system);
        } else {
            self.run(now, system);
        }
    }

    /// It sleeps until something of its I/O happens.
    #[inline(always)]
    pub(super) fn sleep(&mut self, now: Nanos, state: TaskState, system: &mut System) {
        self.recorder.context_switch();
        self.count_io_wait(now, 1, system);
        self.state = state;
        self.schedule_out(now, system);
    }

    /// It begins (or ends, with -1) to wait for I/O.
    #[inline]
    fn count_io_wait(&self, now: Nanos, change: i32, system: &mut System) {
        // The time of CPUs that cost nothing is not reported.
        if !self.costs.free {
            system.cpus.count_io_wait(self.cpu, now, change);
        }
    }

    /// Spends what takes `cost` on a warm CPU. Returns true where the process
    /// goes on only later.
    #[inline]
    pub(super) fn spend(
        &mut self,
        now: Nanos,
        cost: Nanos,
        mode: Mode,
        system: &mut System,
    ) -> bool {
        self.spend_each(now, [(cost, mode)], system)
    }

    /// The same of several costs in a row, after which the process is called once.
    #[inline(always)]
    pub(super) fn spend_each<const COSTS: usize>(
        &mut self,
        now: Nanos,
        costs: [(Nanos, Mode); COSTS],
        system: &mut System,
    ) -> bool {
        let takes_time = costs.iter().any(|(cost, _)| *cost > Nanos::ZERO);
        if takes_time {
            self.occupy_for_each(now, costs, system);
        }
        takes_time
    }

    #[inline(never)]
    fn occupy_for_each<const COSTS: usize>(
        &mut self,
        now: Nanos,
        costs: [(Nanos, Mode); COSTS],
        system: &mut System,
    ) {
        let mut until = now;
        for (cost, mode) in costs {
            if cost > Nanos::ZERO {
                let cost = system.cpus.slowdown(self.cpu, now).of(cost);
                until = self.use_cpu(now, cost, mode, system);
            }
        }
        self.go_on_at(until, system);
    }

    /// Uses its CPU, and goes on after that.
    #[inline]
    pub(super) fn occupy(&mut self, now: Nanos, cost: Nanos, mode: Mode, system: &mut System) {
        let until = self.use_cpu(now, cost, mode, system);
        self.go_on_at(until, system);
    }

    /// Uses its CPU. Returns until when.
    #[inline(never)]
    fn use_cpu(&mut self, now: Nanos, cost: Nanos, mode: Mode, system: &mut System) -> Nanos {
        let until = self.book(now, cost, mode, system);
        if let Some(log) = system.cpus.log() {
            log.was_for(self.id);
        }
        until
    }

    /// Has its CPU do something for it. Returns when that is done.
    #[inline(always)]
    pub(super) fn book(
        &mut self,
        now: Nanos,
        cost: Nanos,
        mode: Mode,
        system: &mut System,
    ) -> Nanos {
        self.recorder.spent(mode, cost.0);
        system.fair.account(self.id, cost);
        system.cpus.run(self.cpu, now, cost, mode)
    }

    /// Its CPU works for it until then.
    pub(super) fn go_on_at(&mut self, until: Nanos, system: &mut System) {
        self.state = TaskState::Busy(until);
        system.timers.set(until, self.id);
    }
}
