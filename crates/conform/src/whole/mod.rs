//! The whole block layer: bios, plugs and completions go in as they were
//! recorded, and everything our queue does is compared with the trace.
//!
//! Given are the things that the block layer does not decide: when a task
//! submits a bio and whether it holds a plug, when it lets that go, when it runs
//! again after it slept, when kblockd runs, and when the drive completes, to the
//! point between two steps of a dispatch loop at which an interrupt came. All
//! the rest is compared.

mod compare;
mod drive;
mod lines;
mod run;
mod submit;
mod tracepoint;
mod unmatched;

use std::collections::BTreeMap;

use blklab_blk::{IoStatus, Nanos, Op, QueueConfig, RequestId, RequestQueue, TraceEvent, Waiter};
use blklab_workload::trace::tracefs::{Event, EventKind};

use crate::clock::{Clock, jiffies_of};
use crate::recording::{Recorded, Recording};
use crate::report::TraceReport;
use crate::setup::Setup;
use crate::ties::{Hint, TieBreaker};
use crate::{ConformError, Mode};
use drive::Drive;
use lines::Lines;
use run::is_kblockd;
use submit::Task;
use tracepoint::{Extent, Tracepoint};
use unmatched::{OurTracepoint, Unmatched};

/// Schedulers whose calls [`Tracepoint`] has.
const SCHEDULERS: [&str; 2] = ["none", "mq-deadline"];

/// Whether `scheduler` can be compared.
pub(crate) fn check(scheduler: &str) -> Result<(), ConformError> {
    if SCHEDULERS.contains(&scheduler) {
        return Ok(());
    }
    Err(ConformError::Scheduler {
        found: scheduler.to_owned(),
        expected: SCHEDULERS.join(" or "),
        mode: Mode::Whole,
    })
}

/// Compares one trace.
pub(crate) fn compare(recording: &Recording, scheduler: &str) -> Result<TraceReport, ConformError> {
    let events = recording.events()?;
    let bio = |r: &Recorded<'_>| matches!(r.event.kind, EventKind::BioQueue(_));
    if !events.iter().any(bio) {
        return Err(ConformError::Nothing {
            file: recording.file.clone(),
            expected: "block_bio_queue",
        });
    }
    let mut whole = Whole::new(recording, scheduler, &events)?;
    whole.replay();
    Ok(whole.report)
}

struct Whole<'r> {
    events: &'r [Recorded<'r>],
    lines: Lines<'r>,
    clock: Clock,
    queue: RequestQueue,
    drive: Drive<'r>,
    hint: Hint,
    tasks: BTreeMap<u32, Task>,
    /// Bios that ours sleep on though the kernel's task went on.
    stuck: Vec<Waiter>,
    /// The task kblockd's work runs in.
    kblockd: u32,
    unmatched: Unmatched,
    /// Serial numbers of our requests by the kernel's pointers.
    serials: BTreeMap<u64, u64>,
    /// Serial number of the request inserted last.
    inserted: Option<u64>,
    /// What writeback throttling holds back, and bios that it did.
    throttles: Vec<Op>,
    throttled: u64,
    /// Sleepers that our block layer woke.
    woken: Vec<u64>,
    now: Nanos,
    at: usize,
    trace: Vec<TraceEvent>,
    report: TraceReport,
}

impl<'r> Whole<'r> {
    fn new(
        recording: &'r Recording,
        scheduler: &str,
        events: &'r [Recorded<'r>],
    ) -> Result<Whole<'r>, ConformError> {
        let mut report = TraceReport::new(recording.file.clone());
        let setup = Setup::of(recording, events, &mut report.notes);
        let (clock, hint) = (Clock::of(events), Hint::default());
        let queue = queue_of(&setup, scheduler, &hint, &recording.file, &mut report.notes)?;
        let kblockd = events.iter().map(|r| &r.event).find(|e| is_kblockd(e));
        let scheduled = queue.elevator().is_some();
        Ok(Whole {
            events,
            lines: Lines::new(events),
            clock,
            queue,
            drive: Drive::new(events, clock, hint.clone(), setup.blocking, scheduled),
            hint,
            tasks: BTreeMap::new(),
            stuck: Vec::new(),
            kblockd: kblockd.map_or(u32::MAX, |event| event.pid),
            unmatched: Unmatched::default(),
            serials: BTreeMap::new(),
            inserted: None,
            throttles: setup.throttled,
            throttled: 0,
            woken: Vec::new(),
            now: Nanos::ZERO,
            at: 0,
            trace: Vec::new(),
            report,
        })
    }

    fn replay(&mut self) {
        for at in 0..self.events.len() {
            self.at = at;
            // The recorded tick may be a moment behind the clock: time never is.
            self.now = self.now.max(self.time_of(at));
            let event = &self.events[at].event;
            if at > 0 && self.events[at - 1].event.pid != event.pid {
                self.run_kblockd_untraced();
                self.run_woken_untraced();
            }
            self.back_on_cpu();
            match &event.kind {
                EventKind::BioQueue(bio) => self.bio_queue(bio),
                EventKind::RqComplete(rq) => self.completion(Extent::of_end(rq)),
                EventKind::RqIns { rq, .. } => {
                    if let Some(serial) = self.inserted.take() {
                        self.serials.insert(*rq, serial);
                    }
                }
                kind => {
                    if let Some(tracepoint) = Tracepoint::of_kernel(kind) {
                        self.tracepoint(&tracepoint);
                    }
                }
            }
        }
        for ours in self.unmatched.take_rest() {
            self.extra(&ours);
        }
        if self.throttled > 0 {
            let note = format!(
                "{} bios were held back though there were tags (writeback throttling, which our block layer does not have); submitted when the trace let them in",
                self.throttled
            );
            self.report.notes.push(note);
        }
        let ties = self.hint.taken();
        if ties > 0 {
            let note = format!("{ties} times a bio fitted several requests; took the recorded one");
            self.report.notes.push(note);
        }
    }

    fn time_of(&self, at: usize) -> Nanos {
        let event = &self.events[at].event;
        match jiffies_of(&event.kind) {
            Some(jiffies) => self.clock.now_in(jiffies, event.at_ns),
            None => self.clock.now(event.at_ns),
        }
    }

    fn event(&self) -> &'r Event<'r> {
        &self.events[self.at].event
    }

    /// Calls the queue as task `pid`, whose lines start at `next`, and keeps the
    /// tracepoints of that.
    fn call<T>(
        &mut self,
        pid: u32,
        next: usize,
        f: impl FnOnce(&mut RequestQueue, Nanos, &mut Task, &mut Drive<'r>) -> T,
    ) -> T {
        self.drive.begin(next, pid);
        let task = self.tasks.entry(pid).or_default();
        let result = f(&mut self.queue, self.now, task, &mut self.drive);
        self.note_tracepoints(pid);
        let mut late = Vec::new();
        self.drive.take_late(&mut late);
        self.complete(pid, &late);
        result
    }

    /// Keeps the queue's new tracepoints until the kernel's are compared.
    fn note_tracepoints(&mut self, pid: u32) {
        self.queue.take_trace(&mut self.trace);
        for event in self.trace.drain(..) {
            let Some(tracepoint) = Tracepoint::of_ours(&event) else {
                continue;
            };
            let serial = event.serial;
            if !matches!(tracepoint, Tracepoint::SequenceEnd(_))
                || !self.drive.completed_by_drive(serial)
            {
                self.unmatched
                    .push(pid, OurTracepoint { tracepoint, serial });
            }
        }
    }

    fn complete(&mut self, pid: u32, done: &[RequestId]) {
        for &id in done {
            self.queue
                .complete(self.now, id, IoStatus::Ok, &mut self.drive);
            self.note_tracepoints(pid);
        }
    }
}

/// Our queue, as the recorded one was.
fn queue_of(
    setup: &Setup,
    scheduler: &str,
    hint: &Hint,
    file: &str,
    notes: &mut Vec<String>,
) -> Result<RequestQueue, ConformError> {
    let mut queue = RequestQueue::new(&QueueConfig {
        nr_cpus: setup.nr_cpus as usize,
        nr_hw_queues: 1,
        queue_depth: setup.queue_depth,
        limits: setup.limits.clone(),
    });
    let kind = blklab_elevator::find(scheduler);
    if let Some(elevator) = kind.and_then(|kind| kind.build(&setup.info())) {
        queue.set_elevator(Some(Box::new(TieBreaker::new(elevator, hint.clone()))));
    }
    if let Some(nr) = setup.nr_requests
        && nr != queue.nr_requests()
    {
        queue
            .set_nr_requests(nr)
            .map_err(|message| ConformError::Setup {
                file: file.to_owned(),
                name: "nr_requests".to_owned(),
                message,
            })?;
    }
    // Writing nr_requests sets async_depth anew; what was recorded stays.
    if let Some(elevator) = queue.elevator_mut() {
        setup.tune(elevator, file, notes)?;
    }
    queue.enable_trace(true);
    Ok(queue)
}
