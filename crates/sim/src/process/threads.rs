//! Threads that submit for a process: posixaio's, which glibc starts, and
//! io_uring's workers.

use blklab_blk::{Bio, Nanos, Submit};

use super::Process;
use crate::cpu::Mode;
use crate::disk::Disk;
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
        let disk = self.ios[slot as usize].disk;
        self.submit_to_wait(now, (disk, slot), (bio, call), world);
    }

    /// io_uring hands what would block to a worker, which may.
    #[inline(never)]
    pub(super) fn punt(&mut self, now: Nanos, slot: u32, world: &mut World) {
        let bio = self.bio(slot, false);
        let disk = self.ios[slot as usize].disk;
        self.submit_to_wait(now, (disk, slot), (bio, self.costs.context_switch), world);
    }

    /// Submits a bio in a call of that cost. Where there is no tag, a worker
    /// waits for one. Worker and process take turns on the one CPU.
    pub(super) fn submit_to_wait(
        &mut self,
        now: Nanos,
        (disk, slot): (usize, u32),
        (bio, call): (Bio, Nanos),
        world: &mut World,
    ) {
        let cpu = self.cpu;
        let enter = |d: &mut Disk| d.queue.submit_bio(now, cpu, None, bio, &mut d.driver);
        self.in_worker(now, (disk, slot), (call, enter), world);
    }

    /// The block layer lets the process's worker of that ticket try again.
    pub(super) fn on_worker_woken(
        &mut self,
        now: Nanos,
        (disk, ticket): (usize, u64),
        world: &mut World,
    ) {
        let Some((waiter, slot)) = self.workers[disk].take(ticket) else {
            return;
        };
        let call = self.costs.context_switch;
        let enter = |d: &mut Disk| d.queue.resume(now, None, waiter, &mut d.driver);
        self.in_worker(now, (disk, slot), (call, enter), world);
    }

    /// A call of that cost enters the block layer; a worker waits for what it
    /// lacks there.
    fn in_worker(
        &mut self,
        now: Nanos,
        (disk, slot): (usize, u32),
        (call, enter): (Nanos, impl FnOnce(&mut Disk) -> Submit),
        world: &mut World,
    ) {
        let d = &mut world.disks[disk];
        let before = self.steps_to_charge(d);
        let first = d.queue.requests_made();
        let done = enter(d);
        let made = first..d.queue.requests_made();
        if let Submit::Blocked(waiter) = done {
            world.waiting[disk].push(waiter.ticket, self.id);
            self.workers[disk].push(waiter.ticket, (waiter, slot));
        }
        if !self.costs.free {
            self.book(now, call, Mode::System, world);
        }
        self.charge(now, disk, before, world);
        if let Some(log) = world.cpus.log() {
            log.submitted((self.id, slot), (self.cpu, now), disk, made);
        }
    }
}
