//! What a drive reports on its way to processes: ends of I/O, through interrupts and
//! softirqs, and tags that have become free.

use blklab_blk::Span;

use super::Simulation;
use crate::cpu::Mode;
use crate::process::Process;
use crate::timers::EndedIo;

impl Simulation {
    /// Lets time pass in a disk, and calls processes for what has ended.
    #[inline(always)]
    pub(super) fn advance_disk(&mut self, disk: usize) {
        let now = self.clock.now();
        self.system.disks[disk].advance(now, &mut self.ended, &mut self.woken);
        self.charge_advance(disk);
        self.deliver(disk);
        self.wake_workers(None);
    }

    /// Charges what kblockd did in the advance of a disk.
    #[inline(always)]
    fn charge_advance(&mut self, disk: usize) {
        match self.costs.free {
            true => self.system.disks[disk].kblockd_runs.clear(),
            false => self.charge_at_cost(disk),
        }
    }

    /// What the interrupt itself did keeps the time of the advance, as it is charged
    /// with the ends of I/O.
    #[inline(never)]
    fn charge_at_cost(&mut self, disk: usize) {
        if !self.system.disks[disk].kblockd_runs.is_empty() {
            self.charge_kblockd(disk);
        }
        let disk = &mut self.system.disks[disk];
        disk.release(self.clock.now());
        disk.queue.keep_trace_times();
    }

    /// Charges runs of hardware queues by kblockd to the CPUs of these.
    fn charge_kblockd(&mut self, disk: usize) {
        let now = self.clock.now();
        let (disk, cpus) = (&mut self.system.disks[disk], &mut self.system.cpus);
        let mut runs = std::mem::take(&mut disk.kblockd_runs);
        for (hctx, steps) in runs.drain(..) {
            // With one queue kblockd runs on the CPU that asked for it.
            let asked = disk.driver.as_served().and_then(|s| s.sender_cpu(hctx));
            let cpu = asked.unwrap_or_else(|| disk.queue.cpu_of(hctx));
            let start = cpus.free_at(cpu).max(now);
            let done = (self.costs).charge_kblockd(cpus, &mut disk.lock, cpu, now, &steps);
            let span = Span {
                start,
                end: done,
                reached: done,
            };
            disk.spread_trace_times(&self.costs, hctx, span);
            disk.driver.release_queue(hctx, done);
            if let Some(log) = cpus.log() {
                let of_cpu = |p: &Process| p.cpu() == cpu;
                log.dispatched_for(self.processes.iter().position(of_cpu));
            }
        }
        disk.kblockd_runs = runs;
    }

    /// Calls processes for bios that ended and tags that are free. What they do may end
    /// more bios at once (those refused on the spot).
    #[inline]
    fn deliver(&mut self, disk: usize) {
        while !self.ended.is_empty() || !self.woken.is_empty() {
            if !self.woken.is_empty() {
                self.wake_tag_waiters(disk);
            }
            for at in 0..self.ended.len() {
                self.end_io(disk, EndedIo::of_bio(&self.ended[at]));
            }
            self.ended.clear();
            let queue = &mut self.system.disks[disk].queue;
            queue.take_ended(&mut self.ended);
            queue.take_woken(&mut self.woken);
        }
    }

    /// Wakes threads that slept for a tag. A thread that was woken inside the
    /// kernel takes its tag before one that first returns to user space and
    /// comes back; and those that are woken together each take one before any of
    /// them has come to its next bio.
    #[inline(never)]
    fn wake_tag_waiters(&mut self, disk: usize) {
        let mut woken = std::mem::take(&mut self.woken);
        let mut tried = std::mem::take(&mut self.tried);
        for ticket in woken.drain(..) {
            if let Some(pid) = self.system.tag_waiters[disk].take(ticket) {
                self.with_process(pid, |p, now, system| p.on_tag(now, (disk, ticket), system));
                tried.push(pid);
            }
        }
        for pid in tried.drain(..) {
            self.with_process(pid, Process::on_all_tried);
        }
        self.tried = tried;
        self.woken = woken;
    }

    /// An I/O of a process ended in the drive. Where interrupts cost time, the process
    /// is called when its CPU has handled one.
    #[inline]
    fn end_io(&mut self, disk: usize, io: EndedIo) {
        if !self.costs.free {
            return self.interrupt(disk, io);
        }
        if let Some(log) = self.system.cpus.log() {
            let cpu = self.processes[io.pid].submit_cpu();
            log.ended((io.pid, io.slot), (cpu, self.clock.now()), disk);
        }
        self.with_process(io.pid, |p, now, system| {
            p.on_end(now, io.slot, io.status, system);
        });
    }

    /// The drive interrupts a CPU, or its loop device's worker has ended the I/O.
    #[inline(never)]
    fn interrupt(&mut self, disk: usize, io: EndedIo) {
        if self.processes[io.pid].polls_for_ends() {
            return self.with_process(io.pid, |p, now, system| {
                p.on_end(now, io.slot, io.status, system);
            });
        }
        if let Some(at) = self.workers.iter().position(|w| w.disk() == disk) {
            if self.workers[at].completes() {
                let cpu = self.workers[at].cpu();
                return self.complete_on(disk, (cpu, Mode::System), io);
            }
            return self.with_worker(at, |w, now, costs, system| {
                w.ended(now, io, costs, system);
            });
        }
        let submitter = self.processes[io.pid].submit_cpu();
        let d = &self.system.disks[disk];
        let mut on = (d.interrupted_cpu(submitter), d.ends_in());
        if let Some(at) = self.answering {
            let now = self.clock.now();
            on = self.servers[at].completes_on(now, on, &mut self.system);
        }
        self.complete_on(disk, on, io);
    }

    /// A CPU completes an I/O that ended: in an interrupt, in the softirq that it leaves that to,
    /// or in a thread that it runs.
    pub(super) fn complete_on(&mut self, disk: usize, (cpu, mode): (usize, Mode), io: EndedIo) {
        let now = self.clock.now();
        let (d, cpus) = (&mut self.system.disks[disk], &mut self.system.cpus);
        let wakes = self.processes[io.pid].awaits_io();
        let began = cpus.free_at(cpu).max(now);
        let done_at = (self.costs).charge_end(cpus, &mut d.lock, cpu, now, (disk, mode, wakes));
        // What an interrupt takes is in the system time of the process that it
        // interrupts, unless the kernel counts it apart (`CONFIG_IRQ_TIME_ACCOUNTING`).
        let interrupted = self.system.fair.current(cpu).unwrap_or(usize::MAX);
        if let Some(process) = self.processes.get_mut(interrupted) {
            process.was_interrupted(done_at - began);
        }
        if let Some(log) = cpus.log() {
            log.ended((io.pid, io.slot), (cpu, now), disk);
        }
        self.interrupts.push(done_at, io);
    }

    /// Delivers what was refused on the spot, which has ended without an event of the
    /// drive. What comes of it is delivered in the same loop.
    #[inline]
    pub(super) fn deliver_refused(&mut self) {
        if self.system.disks.iter().any(|d| d.queue.has_ended()) {
            self.deliver_each_refused();
        }
    }

    #[cold]
    fn deliver_each_refused(&mut self) {
        if std::mem::replace(&mut self.is_delivering_refused, true) {
            return;
        }
        // What was being delivered goes on afterwards.
        let (ended, woken) = (
            std::mem::take(&mut self.ended),
            std::mem::take(&mut self.woken),
        );
        let refused = |s: &Simulation| s.system.disks.iter().position(|d| d.queue.has_ended());
        while let Some(disk) = refused(self) {
            self.system.disks[disk].queue.take_ended(&mut self.ended);
            self.deliver(disk);
        }
        (self.ended, self.woken) = (ended, woken);
        self.is_delivering_refused = false;
    }
}
