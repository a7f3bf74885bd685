//! Threads that submit for a process: posixaio's, which glibc starts, and
//! io_uring's workers.

use blklab_blk::{Bio, Nanos, Submit, Waiter};

use super::Process;
use crate::cpu::Mode;
use crate::world::World;

impl Process {
    /// Submits one I/O of posixaio's.
    #[inline(never)]
    pub(super) fn submit_by_thread(&mut self, now: Nanos, slot: u32, world: &mut World) {
        let file = self.ios[slot as usize].file as usize;
        if self.aio.enqueue(file, slot) {
            self.run_aio_thread(now, slot, world);
        }
    }

    /// A thread of posixaio's has done an I/O, and goes on to the next.
    #[inline(never)]
    pub(super) fn end_by_thread(&mut self, now: Nanos, slot: u32, world: &mut World) {
        if let Some(next) = self.aio.done(self.ios[slot as usize].file as usize) {
            self.run_aio_thread(now, next, world);
        }
    }

    /// A thread of glibc's, woken for it, calls `pread` or `pwrite`.
    #[inline(never)]
    fn run_aio_thread(&mut self, now: Nanos, slot: u32, world: &mut World) {
        let bio = self.bio(slot, self.spec.nowait);
        let call = self.costs.context_switch + self.costs.syscall;
        self.submit_from_thread(now, slot, (bio, call), world);
    }

    /// io_uring hands what would block to a worker, which may.
    #[inline(never)]
    pub(super) fn punt(&mut self, now: Nanos, slot: u32, world: &mut World) {
        let bio = self.bio(slot, false);
        self.submit_from_thread(now, slot, (bio, self.costs.context_switch), world);
    }

    /// A thread beside the process submits a bio, after a wake-up of that cost.
    /// The two take turns on the one CPU.
    fn submit_from_thread(
        &mut self,
        now: Nanos,
        slot: u32,
        (bio, wake): (Bio, Nanos),
        world: &mut World,
    ) {
        let disk = self.ios[slot as usize].disk;
        let d = &mut world.disks[disk];
        let before = self.steps_to_charge(d);
        let first = d.queue.requests_made();
        let done = d.queue.submit_bio(now, self.cpu, None, bio, &mut d.driver);
        let made = first..d.queue.requests_made();
        if let Submit::Blocked(waiter) = done {
            self.park_worker(disk, waiter, world);
        }
        if !self.costs.free {
            self.book(now, wake, Mode::System, world);
        }
        self.charge(now, disk, before, world);
        if let Some(log) = world.cpus.log() {
            log.submitted((self.id, slot), (self.cpu, now), disk, made);
        }
    }

    pub(super) fn park_worker(&mut self, disk: usize, waiter: Waiter, world: &mut World) {
        world.waiters.push((disk, waiter.ticket, self.id));
        self.workers.push((disk, waiter));
    }
}
