//! A process and its CPU: it gets it, uses it, loses it to others, and sleeps.

use blklab_blk::Nanos;

use super::{Process, State};
use crate::cpu::Mode;
use crate::world::World;

impl Process {
    /// Whether the process, now awake, has its CPU; else it waits for it.
    #[inline]
    pub(super) fn gets_cpu(&mut self, world: &mut World) -> bool {
        if self.costs.free {
            self.state = State::Running;
            return true;
        }
        self.cpu = world.fair.place(self.id, self.cpu);
        let gets = world.fair.wakes(self.cpu, self.id);
        self.state = if gets { State::Running } else { State::Ready };
        gets
    }

    /// Whether a CPU runs it; that is its own from now on.
    #[inline]
    pub(super) fn finds_cpu(&mut self, world: &World) -> bool {
        if world.fair.is_running(self.cpu, self.id) {
            return true;
        }
        let found = world.fair.runs_on(self.id);
        self.cpu = found.unwrap_or(self.cpu);
        found.is_some()
    }

    /// Whether the process may use its CPU on after a step.
    pub(super) fn keeps_cpu(&mut self, now: Nanos, world: &mut World) -> bool {
        if self.costs.free {
            return true;
        }
        if let Some(next) = world.fair.ends_step(self.cpu, self.id, now) {
            world.hand_over(now, self.cpu, next);
        }
        // Put aside, it may have been taken over by another CPU.
        let keeps = self.finds_cpu(world);
        if !keeps {
            self.recorder.context_switch();
            self.state = State::Ready;
        }
        keeps
    }

    /// The process has no use for its CPU for a while.
    #[inline]
    pub(super) fn leaves_cpu(&mut self, now: Nanos, world: &mut World) {
        if !self.costs.free {
            world.leave_cpu(now, self.cpu, self.id);
        }
    }

    /// It has what it slept for.
    #[inline]
    pub(super) fn wake(&mut self, now: Nanos, world: &mut World) {
        self.waits(now, -1, world);
        if self.gets_cpu(world) {
            self.switched_to(now, world);
        }
    }

    /// Its CPU, which slept or ran another, comes to it.
    #[inline]
    pub(super) fn switched_to(&mut self, now: Nanos, world: &mut World) {
        let cost = self.costs.context_switch;
        if cost > Nanos::ZERO {
            self.occupy(now, cost, Mode::System, world);
        } else {
            self.step(now, world);
        }
    }

    /// It sleeps until something of its I/O happens.
    #[inline(always)]
    pub(super) fn sleep(&mut self, now: Nanos, state: State, world: &mut World) {
        self.recorder.context_switch();
        self.waits(now, 1, world);
        self.state = state;
        self.leaves_cpu(now, world);
    }

    /// It begins (or ends, with -1) to wait for I/O. CPUs that cost nothing are
    /// not watched.
    #[inline]
    fn waits(&self, now: Nanos, change: i32, world: &mut World) {
        if !self.costs.free {
            world.cpus.waits(self.cpu, now, change);
        }
    }

    /// Spends what takes `cost` on a warm CPU. Returns true where the process
    /// goes on only later.
    #[inline]
    pub(super) fn spend(&mut self, now: Nanos, cost: Nanos, mode: Mode, world: &mut World) -> bool {
        if cost == Nanos::ZERO {
            return false;
        }
        let cost = world.cpus.stretch(self.cpu, now).of(cost);
        self.occupy(now, cost, mode, world);
        true
    }

    /// Uses its CPU.
    #[inline(never)]
    pub(super) fn occupy(&mut self, now: Nanos, cost: Nanos, mode: Mode, world: &mut World) {
        let until = self.book(now, cost, mode, world);
        if let Some(log) = world.cpus.log() {
            log.was_for(self.id);
        }
        self.go_on_at(until, world);
    }

    /// Has its CPU do something for it. Returns when that is done.
    #[inline(always)]
    pub(super) fn book(&mut self, now: Nanos, cost: Nanos, mode: Mode, world: &mut World) -> Nanos {
        self.recorder.spent(mode, cost.0);
        world.fair.ran(self.id, cost);
        world.cpus.run(self.cpu, now, cost, mode)
    }

    /// Its CPU is at it until then.
    pub(super) fn go_on_at(&mut self, until: Nanos, world: &mut World) {
        self.state = State::Until(until);
        world.timers.set(until, self.id);
    }
}
