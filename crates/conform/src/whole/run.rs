//! Who runs the queue, and when: the drive's interrupts, tasks, kblockd.

use blklab_blk::{Op, RequestQueue};
use blklab_workload::trace::tracefs::{Event, EventKind};

use super::Whole;
use super::drive::Drive;
use super::submit::Task;
use super::tracepoint::{Extent, Tracepoint};

impl<'r> Whole<'r> {
    /// The drive is done with a request, or a flush sequence ended.
    pub(super) fn completion(&mut self, extent: Extent) {
        let pid = self.event().pid;
        if self.drive.is_delivered(self.at) {
            return;
        }
        let end = Tracepoint::SequenceEnd(extent);
        let bare = extent.sectors == 0 && extent.op != Op::Flush;
        if !self.drive.has(extent) && (bare || self.unmatched.has_match(pid, &end)) {
            return self.compare(&end);
        }
        let ended = self.drive.recorded_end(self.at);
        let mut done = Vec::new();
        self.drive.deliver(self.at, extent, &mut done);
        self.complete(pid, &done, ended);
        self.retry_stuck();
    }

    /// The scheduler has learned of the end of a request whose completion other CPUs came
    /// behind: its tag is free now.
    pub(super) fn end_request(&mut self) {
        let Some(complete) = self.ending.remove(&self.event().cpu) else {
            return;
        };
        let at = std::mem::replace(&mut self.at, complete);
        if let EventKind::RqComplete(rq) = &self.event().kind {
            self.completion(Extent::of_end(rq));
        }
        self.at = at;
    }

    /// A task that let its plug go inserts what it held.
    pub(super) fn unplug_deferred(&mut self) {
        let (at, event) = (self.at, self.event());
        let waits = event.irq
            || matches!(
                event.kind,
                EventKind::DdIns(_) | EventKind::KyIns(_) | EventKind::BfqIns(_)
            );
        let task = self.tasks.get_mut(&event.pid).filter(|_| !waits);
        let Some(unplugs) = task.and_then(|task| task.unplugs.take()) else {
            return;
        };
        self.at = unplugs;
        if let Some(tracepoint) = Tracepoint::of_kernel(&self.event().kind) {
            self.tracepoint(&tracepoint);
        }
        self.at = at;
    }

    /// The kernel's queue did something.
    pub(super) fn tracepoint(&mut self, tracepoint: &Tracepoint) {
        let pid = self.event().pid;
        if !self.unmatched.has_match(pid, tracepoint) {
            self.run_up_to(tracepoint);
        }
        self.compare(tracepoint);
        if let Tracepoint::Issue(extent) = tracepoint {
            self.issued(pid, *extent);
        }
    }

    /// Runs what must have run before `tracepoint`, where no line of its own
    /// tells of it.
    fn run_up_to(&mut self, tracepoint: &Tracepoint) {
        let event = self.event();
        match tracepoint {
            Tracepoint::Unplug(_) => self.unplug(event.pid),
            Tracepoint::GetRq(_) | Tracepoint::Ask(_) | Tracepoint::Issue(_)
                if self.sleeps(event.pid) =>
            {
                self.go_on(event.pid);
            }
            Tracepoint::Ask(_) if self.drive.is_blocking() => {
                self.run_whoever_holds();
                if !self.unmatched.has_match(event.pid, tracepoint) && is_kblockd(event) {
                    self.wake_and_run_kblockd();
                }
            }
            _ if is_kblockd(event) => self.wake_and_run_kblockd(),
            _ => {}
        }
    }

    fn wake_and_run_kblockd(&mut self) {
        if self.queue.next_run(self.hctx()) > self.now {
            self.queue.expedite(self.now);
        }
        self.run_kblockd(self.at);
    }

    /// A task asks the scheduler though here a request is held for the next run: another, woken
    /// for a tag, has run the queue and sleeps in the driver with that request.
    fn run_whoever_holds(&mut self) {
        let Some(held) = self.queue.held_request(self.hctx()) else {
            return;
        };
        let extent = Extent::new(held.op, held.sector, held.sectors);
        let issuer = self.lines.issuer(extent, self.at);
        let pid = self.event().pid;
        if let Some(holder) = issuer.filter(|&holder| holder != pid && self.sleeps(holder)) {
            self.go_on(holder);
        }
    }

    /// A task lets its plug go.
    fn unplug(&mut self, pid: u32) {
        let sleeps = self.sleeps(pid);
        let runs_later = self.drive.is_switched_away(pid, self.at);
        self.call(pid, self.at, |queue, now, task, drive| {
            if sleeps || runs_later {
                queue.flush_plug_from_schedule(now, &mut task.plug, drive);
            } else {
                queue.flush_plug(now, &mut task.plug, drive);
            }
        });
        self.task(pid).runs_later = runs_later && !sleeps;
    }

    /// The task is back on the CPU and goes on where it was switched away from:
    /// between letting its plug go and running the queue, or inside the driver.
    pub(super) fn back_on_cpu(&mut self) {
        let event = self.event();
        let pid = event.pid;
        if event.irq {
            return;
        }
        if self.tasks.get(&pid).is_some_and(|task| task.runs_later) {
            self.task(pid).runs_later = false;
            self.call(pid, self.at, |queue, now, _, drive| {
                queue.run_hw_queues(now, drive);
            });
        }
        if let Some(id) = self.drive.take_inside(pid) {
            self.call(pid, self.at, |queue, now, _, drive| {
                queue.driver_unblocked(now, id, drive);
            });
        }
    }

    /// A request of this task's went to the driver: the driver that was asleep
    /// before goes on, unless the task sleeps in it again.
    fn issued(&mut self, pid: u32, extent: Extent) {
        if let Some(id) = self.drive.take_before(pid, extent, self.at) {
            self.call(pid, self.at + 1, |queue, now, _, drive| {
                queue.driver_unblocked(now, id, drive);
            });
        }
    }

    /// Work of kblockd's is due and another task comes to run: kblockd goes first.
    /// Where there is no driver tag its run shows nothing in the trace, though it
    /// counts in the busy average. A run that shows is awaited.
    pub(super) fn run_kblockd_untraced(&mut self) {
        let hctx = self.hctx();
        let due = self.queue.next_run(hctx) <= self.now && !self.queue.asks_first(hctx);
        if self.is_full(hctx) && self.event().pid != self.kblockd() && due {
            self.run_kblockd(self.at);
        }
    }

    /// Has kblockd do its work. A completion during a run makes it run again at
    /// once; without a driver tag that shows nothing.
    fn run_kblockd(&mut self, next: usize) {
        let (kblockd, hctx) = (self.kblockd(), self.hctx());
        if self.drive.sleeps_in_driver(kblockd) || self.drive.is_paused(kblockd) {
            // One at a time: a work item does not run twice at once.
            return;
        }
        let process = |queue: &mut RequestQueue, now, _: &mut Task, drive: &mut Drive<'r>| {
            queue.process_hctx(now, hctx, drive);
        };
        self.call(kblockd, next, process);
        let due = self.queue.next_run(hctx) <= self.now && !self.queue.asks_first(hctx);
        if self.is_full(hctx) && due {
            let after = self.drive.after();
            if self.drive.has_time(after) {
                self.call(kblockd, after, process);
            }
        }
    }

    /// The hardware context of the CPU at hand.
    fn hctx(&self) -> usize {
        self.queue.hctx_of(self.cpu())
    }

    /// The task in which kblockd works on the CPU at hand.
    fn kblockd(&self) -> u32 {
        let task = self.kblockd.get(&self.event().cpu);
        task.copied().unwrap_or(u32::MAX)
    }

    /// Whether our drive can take no more from a hardware context.
    fn is_full(&self, hctx: usize) -> bool {
        self.drive.in_flight_of(hctx) >= self.queue.info().queue_depth as usize
    }
}

/// Whether this is kblockd at work. Its workers have names that end in `H`.
pub(super) fn is_kblockd(event: &Event<'_>) -> bool {
    event.task.starts_with("kworker/")
        && event.task.ends_with('H')
        && !matches!(event.kind, EventKind::BioQueue(_))
}
