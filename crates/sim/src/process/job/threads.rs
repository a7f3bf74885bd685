//! Threads that submit for a process of a job: posixaio's, which glibc starts, fio's own
//! (`io_submit_mode=offload`), and io_uring's workers.

use blklab_blk::{Bio, Nanos, Submit, Waiter};

use super::JobProcess;
use crate::cpu::Mode;
use crate::disk::Disk;
use crate::system::System;

impl JobProcess {
    /// Submits one I/O on its detour; whether it has one.
    #[inline(never)]
    pub(super) fn submit_otherwise(&mut self, now: Nanos, slot: u32, system: &mut System) -> bool {
        let is_cached = self.is_cached(slot);
        if self.has_threads {
            self.submit_by_thread(now, slot, system);
        } else if is_cached {
            self.submit_cached(now, slot, system);
        } else if self.submits_through_ring() {
            self.submit_through_ring(now, slot, system);
        } else if self.ios[slot as usize].is_forced {
            self.punt(now, slot, system);
        } else {
            return false;
        }
        true
    }

    /// Submits one I/O of posixaio's, or of fio's threads.
    #[inline(never)]
    pub(super) fn submit_by_thread(&mut self, now: Nanos, slot: u32, system: &mut System) {
        if self.offloads {
            return self.offload(now, slot, system);
        }
        let file = self.ios[slot as usize].file as usize;
        if self.aio.enqueue(file, slot) {
            self.run_thread(now, slot, system);
        }
    }

    /// A thread of posixaio's has done an I/O, and goes on to the next; or one of fio's.
    #[inline(never)]
    pub(super) fn end_by_thread(&mut self, now: Nanos, slot: u32, system: &mut System) {
        if self.offloads {
            return self.end_offloaded(now, system);
        }
        if let Some(next) = self.aio.done(self.ios[slot as usize].file as usize) {
            self.run_thread(now, next, system);
        }
    }

    /// A thread, woken for it, calls `pread` or `pwrite`.
    #[inline(never)]
    pub(super) fn run_thread(&mut self, now: Nanos, slot: u32, system: &mut System) {
        if self.is_cached(slot) {
            return self.call_by_worker(now, slot, self.costs.context_switch, system);
        }
        let bio = self.bio(slot, self.spec.nowait);
        let call = self.costs.context_switch + self.costs.syscall;
        let disk = self.ios[slot as usize].disk;
        self.submit_to_wait(now, (disk, slot), (bio, call), system);
    }

    /// io_uring hands what would block, or is to go there, to a worker, which may block.
    #[inline(never)]
    pub(super) fn punt(&mut self, now: Nanos, slot: u32, system: &mut System) {
        let bio = self.bio(slot, false);
        let disk = self.ios[slot as usize].disk;
        self.submit_to_wait(now, (disk, slot), (bio, self.costs.context_switch), system);
    }

    /// Submits a bio in a call of that cost. Where there is no tag, a worker
    /// waits for one. Worker and process take turns on the one CPU.
    pub(super) fn submit_to_wait(
        &mut self,
        now: Nanos,
        (disk, slot): (usize, u32),
        (bio, call): (Bio, Nanos),
        system: &mut System,
    ) {
        let (cpu, runs_inline) = (self.cpu, self.runs_inline);
        let enter = |d: &mut Disk| {
            d.queue.set_runs_inline(runs_inline);
            d.queue.submit_bio(now, cpu, None, bio, &mut d.driver)
        };
        self.in_worker(now, (disk, slot), (call, enter), system);
    }

    /// The block layer lets the process's worker of that ticket try again.
    pub(super) fn on_worker_tag(
        &mut self,
        now: Nanos,
        (disk, ticket): (usize, u64),
        system: &mut System,
    ) {
        let Some((waiter, slot)) = self.workers[disk].take(ticket) else {
            return;
        };
        if self.is_cached(slot) {
            return self.resume_worker(now, (disk, slot), waiter, system);
        }
        let call = self.costs.context_switch;
        let enter = |d: &mut Disk| d.queue.resume(now, None, waiter, &mut d.driver);
        self.in_worker(now, (disk, slot), (call, enter), system);
    }

    /// A call of that cost enters the block layer; a worker waits for what it
    /// lacks there.
    fn in_worker(
        &mut self,
        now: Nanos,
        (disk, slot): (usize, u32),
        (call, enter): (Nanos, impl FnOnce(&mut Disk) -> Submit),
        system: &mut System,
    ) {
        let d = &mut system.disks[disk];
        let before = self.steps_to_charge(d);
        let first = d.queue.requests_made();
        let done = enter(d);
        let made = first..d.queue.requests_made();
        if let Submit::Blocked(waiter) = done {
            self.worker_waits((disk, slot), waiter, system);
        }
        if !self.costs.free {
            let call = system.cpus.at_clock(call);
            self.book(now, call, Mode::System, system);
        }
        self.charge(now, disk, before, system);
        if let Some(log) = system.cpus.log() {
            log.submitted((self.id, slot), (self.cpu, now), disk, made);
        }
    }

    /// The worker that submits an I/O waits for room in the block layer.
    pub(super) fn worker_waits(
        &mut self,
        (disk, slot): (usize, u32),
        waiter: Waiter,
        system: &mut System,
    ) {
        system.tag_waiters[disk].push(waiter.ticket, self.id);
        self.workers[disk].push(waiter.ticket, (waiter, slot));
    }
}
