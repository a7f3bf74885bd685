//! The worker thread of a loop device, which uses CPU time beside the processes
//! that it works for.
//!
//! Since Linux 5.14 it belongs to an unbound work queue, so it wakes on whichever CPU is
//! idle. With one hardware queue `blk_mq_complete_request` leaves the completion of a
//! request to the ksoftirqd of that CPU. As that is a thread too, it runs when the
//! worker has nothing more to do or has run for a while, and then completes several
//! requests at once.
//!
//! Before Linux 4.20 a thread of the highest priority (`MIN_NICE` in `loop_prepare_queue`)
//! completes each request itself.

use blklab_blk::Nanos;
use blklab_driver::Loop;

use super::thread::{Thread, is_at_once};
use crate::cpu::{CostTable, Mode};
use crate::machine::LoopThread;
use crate::system::System;
use crate::timers::EndedIo;

/// How far a worker has come with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// It has none.
    Idle,
    /// Its CPU copies the data.
    Copying,
    /// It has copied the data, and the drive under the file has done its part already or
    /// will have in a moment.
    Copied,
    /// It sleeps until the drive under the file has done its part.
    InDrive,
}

/// The kernel's worker thread of a loop device, and the ksoftirqd of its CPU.
pub(crate) struct LoopWorker {
    thread: Thread,
    kind: LoopThread,
    /// The number of the ksoftirqd that completes what it ended.
    softirq_pid: usize,
    disk: usize,
    progress: Progress,
    ended: Vec<EndedIo>,
    /// When ksoftirqd has its turn while the worker goes on.
    softirq_at: Nanos,
}

impl LoopWorker {
    /// The worker of a disk, with its number and that of its ksoftirqd.
    pub(crate) fn new(
        (pid, softirq_pid): (usize, usize),
        disk: usize,
        kind: LoopThread,
    ) -> LoopWorker {
        LoopWorker {
            thread: Thread::new(pid),
            kind,
            softirq_pid,
            disk,
            progress: Progress::Idle,
            ended: Vec::new(),
            softirq_at: Nanos::ZERO,
        }
    }

    /// The disk that it works for.
    pub(crate) fn disk(&self) -> usize {
        self.disk
    }

    /// The CPU it runs on, or ran on last.
    pub(crate) fn cpu(&self) -> usize {
        self.thread.cpu()
    }

    /// Whether it completes requests itself.
    pub(crate) fn completes(&self) -> bool {
        self.kind == LoopThread::Kthread
    }

    /// It ended an I/O, which ksoftirqd will complete.
    pub(crate) fn ended(
        &mut self,
        now: Nanos,
        io: EndedIo,
        costs: &CostTable,
        system: &mut System,
    ) {
        if self.ended.is_empty() {
            self.softirq_at = now + costs.softirq_wait;
            system.timers.set(self.softirq_at, self.softirq_pid);
        }
        self.ended.push(io);
    }

    /// Moves the I/Os that are completed now to `out`.
    pub(crate) fn take_ended(&mut self, now: Nanos, out: &mut Vec<EndedIo>) {
        if !self.thread.is_on_cpu() || self.softirq_at <= now {
            out.append(&mut self.ended);
        }
    }

    /// Wakes it if it sleeps and has something to do, or its drive has done its part.
    /// `by` is the CPU of the process that wakes it; an interrupt has none.
    pub(crate) fn wake_up(
        &mut self,
        now: Nanos,
        by: Option<usize>,
        costs: &CostTable,
        system: &mut System,
    ) {
        let driver = driver(self.disk, system);
        let has_work = match self.progress {
            Progress::InDrive => !driver.is_at_work(),
            _ => driver.has_work(),
        };
        if !has_work || !self.thread.is_asleep() {
            return;
        }
        let at = match by {
            // It wakes when that CPU has woken it.
            Some(cpu) => system.cpus.run(cpu, now, costs.wake, Mode::System),
            None => now,
        };
        self.progress = Progress::Idle;
        self.thread.wake(at, system);
    }

    /// Its timer ran out.
    pub(crate) fn on_timer(&mut self, now: Nanos, costs: &CostTable, system: &mut System) {
        if self.progress == Progress::Copied
            || !self.thread.on_timer(now, costs.context_switch, system)
        {
            return;
        }
        if self.progress == Progress::Copying {
            self.progress = Progress::Copied;
            driver(self.disk, system).copied(now);
        } else {
            self.next(now, costs, system);
        }
    }

    /// The drive has done what is due. A worker whose request is among that goes on,
    /// one that has to wait sleeps.
    pub(crate) fn after_copy(&mut self, now: Nanos, system: &mut System) {
        if self.progress != Progress::Copied {
            return;
        }
        let driver = driver(self.disk, system);
        if !driver.is_at_work() {
            self.progress = Progress::Idle;
            return self.thread.go_on(now, system);
        }
        let ends_at = driver.next_event();
        if is_at_once(now, ends_at) {
            // It stays as it is until then.
            self.thread.go_on_at(ends_at, system);
        } else {
            self.progress = Progress::InDrive;
            self.thread.sleep(now, system);
        }
    }

    /// Starts the next request, or sleeps.
    fn next(&mut self, now: Nanos, costs: &CostTable, system: &mut System) {
        if !self.thread.keeps_cpu(now, system) {
            return;
        }
        match driver(self.disk, system).begin() {
            Some(job) => {
                self.progress = Progress::Copying;
                let cost = costs.loop_work(job);
                self.thread.spend(now, cost, Mode::System, system);
            }
            None => self.thread.sleep(now, system),
        }
    }
}

fn driver(disk: usize, system: &mut System) -> &mut Loop {
    let driver = system.disks[disk].driver.as_loop();
    driver.expect("only loop devices have workers")
}
