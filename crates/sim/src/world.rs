//! The machine around a process: disks, CPUs and clocks.

use blklab_blk::Nanos;

use crate::cpu::Cpus;
use crate::disk::Disk;
use crate::fair::Fair;
use crate::timers::Timers;
use crate::waiting::Waiting;

/// What a process sees of the rest when it runs.
pub(crate) struct World {
    pub(crate) disks: Vec<Disk>,
    pub(crate) cpus: Cpus,
    pub(crate) fair: Fair,
    pub(crate) timers: Timers,
    /// By disk, the processes that sleep in its queue, themselves or a worker.
    pub(crate) waiting: Vec<Waiting<usize>>,
}

impl World {
    /// A process has no use for its CPU for a while.
    #[inline(never)]
    pub(crate) fn leave_cpu(&mut self, now: Nanos, cpu: usize, pid: usize) {
        if let Some(next) = self.fair.sleeps(cpu, pid) {
            self.hand_over(now, cpu, next);
        }
    }

    /// The CPU is `next`'s as soon as it has done what it is at.
    pub(crate) fn hand_over(&mut self, now: Nanos, cpu: usize, next: usize) {
        let at = self.cpus.free_at(cpu).max(now);
        self.timers.set(at, next);
    }
}
