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
mod latency;
mod lines;
mod run;
mod submit;
mod throttle;
mod tracepoint;
mod unmatched;

use std::collections::BTreeMap;

use blklab_blk::{
    CgroupId, IoStatus, Nanos, Op, QueueConfig, RateChange, RequestId, RequestQueue, Sector,
    SubmitterId, Throttle, TraceEvent, Waiter,
};
use blklab_workload::trace::tracefs::{Event, EventKind};

use crate::alone::{exits, probes_of};
use crate::cgroups::Cgroups;
use crate::clock::{Clock, jiffies_of};
use crate::recording::{Recorded, Recording};
use crate::report::TraceReport;
use crate::setup::Setup;
use crate::tasks::Exits;
use crate::ties::{Ended, Hint, TieBreaker};
use crate::{ConformError, Mode};
use drive::{Drive, Pause, is_finish};
use latency::Latencies;
use lines::{Lines, tag_of};
use run::is_kblockd;
use submit::Task;
use throttle::{is_throttled, throttle_of};
use tracepoint::{Extent, Tracepoint};
use unmatched::{OurTracepoint, Unmatched};

/// Schedulers whose calls [`Tracepoint`] has.
const SCHEDULERS: [&str; 4] = ["none", "mq-deadline", "kyber", "bfq"];

/// Share of a run's events that has to agree, in percent.
const GOAL_PERCENT: f64 = 99.5;

/// The same of a run with io.cost or with zones: its timers and workers leave no lines of their
/// own, so that many of their moments are concluded.
const GOAL_OF_COSTS_AND_ZONES_PERCENT: f64 = 95.0;

/// What a run of this queue has to reach.
fn goal_percent(queue: &RequestQueue) -> f64 {
    match queue.io_cost().is_some() || queue.limits().zones.is_some() {
        true => GOAL_OF_COSTS_AND_ZONES_PERCENT,
        false => GOAL_PERCENT,
    }
}

/// Whether `scheduler` can be compared.
pub(crate) fn check(scheduler: &str) -> Result<(), ConformError> {
    if SCHEDULERS.contains(&scheduler) {
        return Ok(());
    }
    Err(ConformError::Scheduler {
        found: scheduler.to_owned(),
        expected: SCHEDULERS.join(", "),
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
    cgroups: Cgroups,
    exits: Exits,
    /// Lines of completions, by the CPU in whose interrupt the request has not ended yet.
    ending: BTreeMap<u32, usize>,
    /// `io.max`, where the run shows what that does.
    throttle: Option<Throttle>,
    /// The groups of the bios that it holds back, by their places.
    held_in: BTreeMap<Sector, CgroupId>,
    /// There is a scheduler: between a task's unplug and its insert interrupts and other
    /// CPUs come to it.
    scheduled: bool,
    /// Bios that ours sleep on though the kernel's task went on.
    stuck: Vec<Waiter>,
    /// The task in which kblockd works, by CPU.
    kblockd: BTreeMap<u32, u32>,
    unmatched: Unmatched,
    latencies: Latencies,
    /// Serial numbers of our requests by the kernel's pointers.
    serials: BTreeMap<u64, u64>,
    /// Serial number of the request inserted last.
    inserted: Option<u64>,
    /// What writeback throttling holds back, where the trace does not show its
    /// calls, and bios that it did.
    throttles: Vec<Op>,
    throttled: u64,
    /// Sleepers that our block layer woke.
    woken: Vec<u64>,
    /// How often they tried in vain before a bio, as its tag tells.
    tried: u64,
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
        let mut queue = queue_of(&setup, scheduler, &hint, &recording.file, &mut report.notes)?;
        let cgroups = Cgroups::of(recording.info.as_ref(), events);
        if let Some(elevator) = queue.elevator_mut() {
            cgroups.set_up(elevator);
        }
        if let Some(info) = &recording.info {
            cgroups.write_files(info, &mut queue, &recording.file)?;
        }
        report.goal_percent = Some(goal_percent(&queue));
        start_tags(&mut queue, events);
        let throttle = match is_throttled(events) {
            true => throttle_of(recording.info.as_ref(), &cgroups, &recording.file)?,
            false => None,
        };
        let probes = probes_of(scheduler).ok();
        let exits = exits(recording, scheduler, events)?;
        report.notes.extend(exits.note());
        let workers = events.iter().map(|r| &r.event).rev();
        let kblockd = workers.filter(|e| is_kblockd(e)).map(|e| (e.cpu, e.pid));
        let scheduled = queue.elevator().is_some();
        Ok(Whole {
            events,
            lines: Lines::new(events),
            clock,
            queue,
            drive: Drive::new(
                events,
                clock,
                hint.clone(),
                (setup.queue_depth, setup.blocking),
                probes,
            ),
            cgroups,
            exits,
            ending: BTreeMap::new(),
            throttle,
            held_in: BTreeMap::new(),
            scheduled,
            hint,
            tasks: BTreeMap::new(),
            stuck: Vec::new(),
            kblockd: kblockd.collect(),
            unmatched: Unmatched::default(),
            latencies: Latencies::new(),
            serials: BTreeMap::new(),
            inserted: None,
            throttles: setup.throttled,
            throttled: 0,
            woken: Vec::new(),
            tried: 0,
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
            self.run_what_came_before();
            self.take_event(&self.events[at].event);
        }
        self.finish();
    }

    /// Does what left no line, or was due, before the event that the replay has come to.
    fn run_what_came_before(&mut self) {
        let (at, event) = (self.at, &self.events[self.at].event);
        self.drive.comes_to(at);
        while let Some(pause) = self.drive.take_paused(at) {
            self.go_on_paused(&pause);
        }
        self.run_timer();
        self.exit_tasks();
        self.unplug_deferred();
        let before = self.lines.last_of_cpu(event.cpu, at);
        if let Some(before) = before {
            if before.pid != event.pid {
                self.run_kblockd_untraced();
            }
            self.run_woken_untraced(before);
        }
        self.back_on_cpu();
        self.go_on_before_interrupt();
    }

    /// Does what an event says, or compares it with what our side has done.
    fn take_event(&mut self, event: &'r Event<'r>) {
        match &event.kind {
            EventKind::BioQueue(bio) => {
                self.released(bio);
                self.bio_queue(bio);
            }
            EventKind::RqComplete(rq) => {
                match self.drive.frees_tag_later(self.at) {
                    true => _ = self.ending.insert(event.cpu, self.at),
                    false => self.completion(Extent::of_end(rq)),
                }
                self.queue.timer_interrupt(self.now);
                if self.queue.io_cost().is_some() {
                    self.run_woken_without_tag();
                }
            }
            EventKind::IocostRate {
                rate,
                busy_level,
                missed_ppm,
                wait_percent,
                lagging,
                shortages,
                ..
            } => self.compare_rate(RateChange {
                rate: rate[1],
                busy_level: *busy_level,
                missed_ppm: *missed_ppm,
                wait_percent: *wait_percent,
                lagging: *lagging,
                shortages: *shortages,
            }),
            EventKind::Unplug { .. } if self.scheduled => {
                self.task(event.pid).unplugs = Some(self.at);
            }
            EventKind::ThrRet {
                sector,
                bytes,
                held,
                ..
            } => self.throttle(*sector, *bytes, *held),
            EventKind::ZwWork { .. } => self.zone_work(),
            EventKind::WbtWait(call) => self.next_part(call.sector),
            EventKind::WbtWaitRet(call) => self.compare_wbt(call),
            EventKind::WbtTimer {
                status,
                step,
                in_flight,
                ..
            } => self.compare_wbt_timer([
                i64::from(*status),
                i64::from(*step),
                i64::from(*in_flight),
            ]),
            EventKind::TracingMark { text } => {
                self.limits_written(text);
                if let Some((group, weight)) = self.cgroups.written(text)
                    && let Some(elevator) = self.queue.elevator_mut()
                {
                    elevator.set_cgroup_weight(group, weight);
                }
            }
            EventKind::RqIns { rq, .. } => {
                if let Some(serial) = self.inserted.take() {
                    self.serials.insert(*rq, serial);
                }
            }
            kind if is_finish(kind) => self.end_request(),
            kind => {
                if let Some(tracepoint) = Tracepoint::of_kernel(kind) {
                    self.tracepoint(&tracepoint);
                }
            }
        }
    }

    /// Reports what is left at the end of the trace.
    fn finish(&mut self) {
        for ours in self.unmatched.take_rest() {
            self.extra(&ours);
        }
        self.report.latency = Some(self.latencies.tally());
        if self.throttled > 0 {
            let note = format!(
                "{} bios were held back though there were tags (writeback throttling, whose calls are not in the trace); submitted when the trace let them in",
                self.throttled
            );
            self.report.notes.push(note);
        }
        if self.tried > 0 {
            let note = format!(
                "{} times a task that was woken looked for a tag in vain before another's bio, which leaves no line; told by the tag that the bio got",
                self.tried
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
        let hctx = self.queue.hctx_of(self.cpu());
        self.drive.begin(next, pid, self.event().cpu, hctx);
        let now = self.task_now();
        let task = self.tasks.entry(pid).or_default();
        let result = f(&mut self.queue, now, task, &mut self.drive);
        self.called(pid);
        result
    }

    /// The time that the task at hand sees.
    fn task_now(&self) -> Nanos {
        let event = self.event();
        match self.drive.task_clock_ns(event) {
            Some(at_ns) => self.clock.now_in(self.clock.jiffies(event.at_ns), at_ns),
            None => self.now,
        }
    }

    /// A run of the queue goes on that let other CPUs come first.
    fn go_on_paused(&mut self, pause: &Pause) {
        self.drive.resume(pause, self.at);
        match pause.inside {
            Some(id) => self.queue.driver_unblocked(self.now, id, &mut self.drive),
            None => self.queue.resume_run(self.now, pause.name, &mut self.drive),
        }
        self.called(pause.pid);
    }

    /// A call of the queue as task `pid` is over.
    fn called(&mut self, pid: u32) {
        self.note_tracepoints(pid);
        let mut late = Vec::new();
        self.drive.take_late(&mut late);
        self.complete(pid, &late, None);
    }

    fn run_timer(&mut self) {
        let next = |queue: &RequestQueue| queue.elevator()?.next_timer();
        if let Some(throttle) = &mut self.throttle {
            throttle.timer(self.now);
        }
        self.run_cost_timers();
        self.queue.run_timers(self.now);
        while let Some(at) = next(&self.queue).filter(|&at| at <= self.now) {
            self.queue.run_timers(at);
        }
    }

    /// Timers of the cost model, each at its time: who it lets go asks for a tag then,
    /// which shows only where there is one.
    fn run_cost_timers(&mut self) {
        let next = |queue: &RequestQueue| queue.io_cost().map(|cost| cost.next_timer());
        while let Some(at) = next(&self.queue).filter(|&at| at <= self.now) {
            let now = std::mem::replace(&mut self.now, at);
            self.queue.run_timers(at);
            self.run_woken_without_tag();
            self.now = now;
        }
    }

    fn exit_tasks(&mut self) {
        let exiting: Vec<u32> = self.exits.before(self.at).collect();
        for pid in exiting {
            self.queue.exit_submitter(self.now, SubmitterId(pid));
        }
    }

    /// Keeps the queue's new tracepoints until the kernel's are compared.
    fn note_tracepoints(&mut self, pid: u32) {
        self.queue.take_trace(&mut self.trace);
        for event in self.trace.drain(..) {
            let Some(tracepoint) = Tracepoint::of_ours(&event) else {
                continue;
            };
            let serial = event.serial;
            match tracepoint {
                Tracepoint::GetRq(_) => self.latencies.made(serial, self.now.0),
                Tracepoint::Issue(_) => {
                    let recorded = self.drive.take_issued_ns(serial);
                    let at = recorded.map_or(event.at, |at_ns| self.clock.now(at_ns));
                    self.latencies.issued(serial, at.0);
                }
                Tracepoint::SequenceEnd(_) => {
                    if let Some(end_ns) = self.drive.completed_by_drive(serial) {
                        self.latencies.ended(serial, end_ns);
                        continue;
                    }
                }
                _ => {}
            }
            self.unmatched
                .push(pid, OurTracepoint { tracepoint, serial });
        }
    }

    fn complete(&mut self, pid: u32, done: &[RequestId], ended: Option<Ended>) {
        for &id in done {
            self.hint.completes(id, ended);
            self.queue
                .complete(self.now, id, IoStatus::Ok, &mut self.drive);
            self.note_tracepoints(pid);
        }
    }
}

/// The kernel's search for a tag starts at random: the address of a CPU's first
/// request tells where. Which tags are taken decides who waits, where a scheduler
/// limits the depth.
fn start_tags(queue: &mut RequestQueue, events: &[Recorded<'_>]) {
    let mut starts = vec![None; queue.info().nr_cpus as usize];
    for Recorded { event, .. } in events {
        if let EventKind::RqIns { rq, .. } = event.kind
            && let Some(tag) = tag_of(rq, queue.nr_requests())
            && let Some(start) = starts.get_mut(event.cpu as usize)
        {
            start.get_or_insert(tag);
        }
    }
    for (cpu, start) in starts.into_iter().enumerate() {
        queue.start_tags_at(cpu, start.unwrap_or(0));
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
        nr_hw_queues: setup.nr_hw_queues as usize,
        queue_depth: setup.queue_depth,
        round_robin_tags: false,
        seed: 0,
        limits: setup.limits.clone(),
    });
    let kind = blklab_elevator::find(scheduler);
    if let Some(elevator) = kind.and_then(|kind| kind.build(&setup.info())) {
        let merges = probes_of(scheduler).is_ok_and(|probes| probes.follows_tasks());
        let elevator = TieBreaker::new(elevator, hint.clone(), merges);
        queue.set_elevator(Some(Box::new(elevator)));
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
    if let Some(latency_us) = setup.wbt_latency_us {
        queue.set_wbt_latency(Nanos::ZERO, latency_us);
    }
    queue.enable_trace(true);
    Ok(queue)
}
