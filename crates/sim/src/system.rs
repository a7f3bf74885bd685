//! The simulated system that processes run on: drives, CPUs and timers.

use std::collections::VecDeque;

use blklab_blk::{KblockdDelay, Nanos};
use blklab_device::DriveSpec;
use blklab_driver::Attachment;
use blklab_elevator::SchedulerChoice;
use blklab_stats::{CallSpan, Timeline};

use crate::contents::Contents;
use crate::cpu::{CostTable, Cpus, FairClass, Topology};
use crate::disk::Disk;
use crate::file_layer::FileLayer;
use crate::flows::Flows;
use crate::machine::Dispatch;
use crate::recording::Recording;
use crate::setup::{Setup, SetupError};
use crate::timers::Timers;
use crate::zoned_files::ZonedFiles;

/// What a process sees of the rest when it runs.
pub(crate) struct System {
    pub(crate) disks: Vec<Disk>,
    pub(crate) cpus: Cpus,
    pub(crate) fair: FairClass,
    pub(crate) timers: Timers,
    /// By disk, the processes that sleep in its queue, themselves or a worker.
    pub(crate) tag_waiters: Vec<TagWaiters<usize>>,
    /// Processes that go on in the next turn of the event loop, after drives and
    /// timers that are due.
    pub(crate) next_turn: VecDeque<usize>,
    /// The page cache, where a job's I/O goes through it.
    pub(crate) files: Option<Box<FileLayer>>,
    /// What is on drives and in files, where a job verifies it.
    pub(crate) contents: Option<Box<Contents>>,
    /// The zones that jobs keep to.
    pub(crate) zones: ZonedFiles,
    /// The flows that processes of jobs keep to.
    pub(crate) flows: Flows,
    recording: Option<Recording>,
    template: DiskTemplate,
}

/// What each drive of a run is made from.
struct DiskTemplate {
    spec: DriveSpec,
    attachment: Attachment,
    scheduler: SchedulerChoice,
    topology: Topology,
    irq_cpu: usize,
    seed: u64,
    /// Who submits and is no job runs its hardware queue itself instead of leaving it
    /// to kblockd.
    runs_inline: bool,
    kblockd_delay: KblockdDelay,
    /// Commands reach the drive when their CPU has come to them.
    holds_commands: bool,
    /// The kernel throttles write-back by itself.
    has_wbt: bool,
}

impl System {
    /// A system without drives and processes.
    pub(crate) fn new(setup: &Setup<'_>, costs: &CostTable) -> System {
        let machine = setup.machine;
        System {
            disks: Vec::new(),
            cpus: Cpus::new(machine.cpus(), machine.costs.coldness(), setup.seed)
                .with_clock(machine.ondemand)
                .with_topology(machine.topology),
            fair: FairClass::new(machine.cpus(), machine.cpu_scheduler, setup.seed)
                .with_topology(machine.topology),
            timers: Timers::default(),
            tag_waiters: Vec::new(),
            next_turn: VecDeque::new(),
            files: None,
            contents: None,
            zones: ZonedFiles::default(),
            flows: Flows::default(),
            recording: setup.record.map(Recording::new),
            template: DiskTemplate {
                spec: setup.drive.clone(),
                attachment: machine.attachment(setup.drive, setup.front_end),
                scheduler: setup.scheduler.clone(),
                topology: machine.topology,
                irq_cpu: machine.irq_cpu as usize,
                seed: setup.seed,
                runs_inline: machine.dispatch_to(setup.front_end) != Dispatch::Kblockd,
                kblockd_delay: costs.kblockd_delay(),
                holds_commands: !costs.free,
                has_wbt: machine.wbt,
            },
        }
    }

    /// Adds a drive of the run's kind. Returns its number.
    ///
    /// # Errors
    /// Where its queue does not take what the scheduler is set to.
    pub(crate) fn add_disk(&mut self, now: Nanos, name: &str) -> Result<usize, SetupError> {
        let t = &self.template;
        let number = self.disks.len();
        let seed = disk_seed(t.seed, number);
        let mut disk = Disk::new(
            name,
            (&t.spec, t.attachment),
            &t.scheduler,
            t.topology.cpus,
            seed,
        )?;
        disk.queue.set_runs_inline(t.runs_inline);
        disk.queue.set_sockets(|cpu| t.topology.socket_of(cpu));
        disk.set_irq_cpu(t.irq_cpu);
        disk.queue.set_kblockd_delay(t.kblockd_delay);
        if t.holds_commands {
            disk.driver.hold();
        }
        self.disks.push(disk);
        self.tag_waiters.push(TagWaiters::new());
        self.record(now);
        Ok(number)
    }

    /// Adds the page cache.
    pub(crate) fn add_files(&mut self, files: FileLayer) {
        self.files = Some(Box::new(files));
        self.throttle_writes();
    }

    /// Has the kernel hold back buffered writes and discards of the drives that there are, where
    /// it does so by itself. Other I/O is never held back, and does without the bookkeeping.
    pub(crate) fn throttle_writes(&mut self) {
        if self.template.has_wbt {
            for disk in &mut self.disks {
                disk.queue.enable_wbt(Nanos::ZERO);
            }
        }
    }

    /// When the recording begins or ends.
    #[inline]
    pub(crate) fn next_recording_event(&self) -> Nanos {
        let recording = self.recording.as_ref();
        recording.map_or(Nanos::MAX, Recording::next_event)
    }

    /// Whether what happens is recorded.
    #[inline]
    pub(crate) fn is_recording(&self) -> bool {
        self.recording.is_some()
    }

    /// Takes in what was recorded before `now`, at which nothing has happened yet.
    #[inline]
    pub(crate) fn record(&mut self, now: Nanos) {
        if let Some(recording) = &mut self.recording {
            recording.step(now, &mut self.disks, &mut self.cpus);
        }
    }

    /// A program's call has returned.
    pub(crate) fn call_returned(&mut self, call: CallSpan) {
        if let Some(recording) = &mut self.recording {
            recording.call_returned(call);
        }
    }

    /// What was recorded, at the end of the run.
    pub(crate) fn finish_recording(&mut self, now: Nanos) -> Option<Timeline> {
        let recording = self.recording.take()?;
        recording.finish(now, &mut self.disks, &mut self.cpus)
    }

    /// The process no longer wants its CPU, which goes to the next.
    #[inline(never)]
    pub(crate) fn schedule_out(&mut self, now: Nanos, cpu: usize, pid: usize) {
        if let Some(next) = self.fair.dequeue(cpu, pid, now) {
            self.switch_to(now, cpu, next);
        }
    }

    /// The CPU switches to process `next` when what it is doing is done.
    pub(crate) fn switch_to(&mut self, now: Nanos, cpu: usize, next: usize) {
        let at = self.cpus.free_at(cpu).max(now);
        self.timers.set(at, next);
    }
}

/// The seed of a run's `n`-th drive: the first one's is the run's own, and
/// repeats with the seeds that follow share none.
fn disk_seed(seed: u64, n: usize) -> u64 {
    seed ^ (n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Who sleeps in one queue for a tag, by ticket. Tickets only grow, and are drawn
/// about in that order, so that the one looked for is near the front.
#[derive(Clone, Debug)]
pub(crate) struct TagWaiters<T> {
    by_ticket: VecDeque<(u64, T)>,
}

impl<T> TagWaiters<T> {
    pub(crate) fn new() -> TagWaiters<T> {
        TagWaiters {
            by_ticket: VecDeque::new(),
        }
    }

    /// Adds a waiter, whose ticket is the last that was given out.
    pub(crate) fn push(&mut self, ticket: u64, waiter: T) {
        debug_assert!(self.by_ticket.back().is_none_or(|last| last.0 < ticket));
        self.by_ticket.push_back((ticket, waiter));
    }

    /// Removes and returns the waiter with that ticket.
    pub(crate) fn take(&mut self, ticket: u64) -> Option<T> {
        let at = self.by_ticket.binary_search_by_key(&ticket, |(t, _)| *t);
        let (_, waiter) = self.by_ticket.remove(at.ok()?)?;
        Some(waiter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_waiter_is_found_once() {
        let mut waiters = TagWaiters::new();
        (1..=9).for_each(|ticket| waiters.push(ticket, ticket * 10));
        for ticket in [1, 3, 2, 9, 5] {
            assert_eq!(waiters.take(ticket), Some(ticket * 10));
            assert_eq!(waiters.take(ticket), None);
        }
        waiters.push(10, 100);
        assert_eq!(waiters.take(10), Some(100));
        assert_eq!(waiters.take(11), None);
    }
}
