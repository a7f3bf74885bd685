//! `io_submit_mode=offload`: each I/O is done by a thread of the process's, so that the process
//! keeps to its rate however late I/Os are (fio's `rate-submit.c`).
//!
//! fio has as many threads as I/Os may be in flight. Here they share the CPU of the process.

use blklab_blk::Nanos;

use super::{JobProcess, PauseReason, Phase, TaskState};
use crate::cpu::Mode;
use crate::system::System;

impl JobProcess {
    /// A thread begins with an I/O.
    pub(super) fn offload(&mut self, now: Nanos, slot: u32, system: &mut System) {
        let woken = system.cpus.slowdown(self.cpu, now);
        self.ios[slot as usize].issued = now + woken.of(self.costs.context_switch);
        self.run_thread(now, slot, system);
    }

    /// The I/O of a thread has ended: the thread takes it, and the process goes on if it waits for
    /// one to be done.
    pub(super) fn end_offloaded(&mut self, now: Nanos, system: &mut System) {
        let Some(slot) = self.done.pop_front() else {
            return;
        };
        let cost = self.costs.context_switch + self.costs.user_reap;
        let taken_at = match self.costs.free {
            true => now,
            false => {
                let cost = system.cpus.slowdown(self.cpu, now).of(cost);
                self.book(now, cost, Mode::System, system)
            }
        };
        self.take(taken_at, slot, system);
        self.recorder.reaped(1);
        if matches!(self.state, TaskState::AwaitsCompletions(_)) {
            self.wake_up(now, system);
        }
    }

    /// Goes on when one more I/O may be issued.
    pub(super) fn await_thread(&mut self, now: Nanos, system: &mut System) {
        match self.outstanding() < self.depth {
            true => self.phase = Phase::Fill,
            false => self.sleep(now, TaskState::AwaitsCompletions(1), system),
        }
    }

    /// Whether a pause begins with I/O in flight, as threads take that (`io_u_quiesce` in fio looks
    /// at the process's own only).
    pub(super) fn pauses_at_once(&self, reason: PauseReason) -> bool {
        let for_own = matches!(
            reason,
            PauseReason::Rate(_) | PauseReason::Think | PauseReason::Flow
        );
        self.offloads && for_own
    }
}
