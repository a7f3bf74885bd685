//! The recorded drive: it takes what it is given and completes when the trace
//! says so, also in the middle of a run.

use std::collections::BTreeMap;

use blklab_blk::{
    BlkDriver, BlkStatus, Interruption, IoStatus, Nanos, Request, RequestId, RunPoint,
};
use blklab_workload::trace::tracefs::{Event, EventKind};

use super::lines::{IDLE, Lines};
use super::tracepoint::{Extent, Tracepoint};
use crate::alone::probes::Probes;
use crate::clock::{Clock, jiffies_of};
use crate::recording::Recorded;
use crate::tasks::{DEPTH_IN_PROBE, Tasks, answer_of, work_begins, work_ns};
use crate::ties::{Ended, Hint};

/// The lines of a completion's interrupt, at most.
const INTERRUPT_LINES: usize = 8;

/// A request the drive has.
struct InFlight {
    id: RequestId,
    serial: u64,
    hctx: usize,
    extent: Extent,
    /// Sectors of it that the kernel's drive is done with.
    done: u32,
}

/// What a task's next line shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NextLine {
    /// It asks the scheduler.
    Ask,
    /// The scheduler answers.
    Answer,
    /// It issues a request.
    Issue,
    /// None of these: the run is over, or another task runs.
    Nothing,
}

/// How fast the recorded machine was where nothing interrupted it.
#[derive(Clone, Copy, Debug)]
struct Pace {
    /// From the scheduler's answer to the issue of its request.
    issue_ns: u64,
    /// From one issue to the next of a list. A driver that copies data takes as
    /// long as that takes, so there is none.
    next_issue_ns: u64,
    /// What a driver that copies data takes for a byte of a write, in
    /// picoseconds.
    write_byte_ps: Option<u64>,
}

impl Pace {
    fn of(events: &[Recorded<'_>], blocking: bool) -> Pace {
        let issue = |e: &Event<'_>| matches!(e.kind, EventKind::RqIssue(_));
        let choice = |e: &Event<'_>| {
            let tracepoint = Tracepoint::of_kernel(&e.kind);
            matches!(tracepoint, Some(Tracepoint::Choice(Some(_))))
        };
        Pace {
            issue_ns: usual_gap_ns(events, choice, issue).unwrap_or(u64::MAX / 2),
            next_issue_ns: match usual_gap_ns(events, issue, issue) {
                Some(gap_ns) if !blocking => gap_ns,
                _ => u64::MAX / 2,
            },
            write_byte_ps: if blocking {
                write_byte_ps(events)
            } else {
                None
            },
        }
    }
}

/// The time from a write's issue to the task's next line, by the byte.
fn write_byte_ps(events: &[Recorded<'_>]) -> Option<u64> {
    let pairs = pairs(events).filter_map(|(a, b)| {
        let EventKind::RqIssue(rq) = &a.kind else {
            return None;
        };
        let fits = a.pid == b.pid && !b.irq && rq.bytes >= 4096 && Extent::of_rq(rq).op.is_write();
        let gap_ns = b.at_ns.saturating_sub(a.at_ns);
        fits.then(|| gap_ns.saturating_mul(1000) / u64::from(rq.bytes))
    });
    let mut paces: Vec<u64> = pairs.collect();
    paces.sort_unstable();
    paces.get(paces.len() / 10).copied()
}

/// The time between two kinds of a task's lines, one right after the other, where
/// all goes well: one in ten is faster.
fn usual_gap_ns(
    events: &[Recorded<'_>],
    first: impl Fn(&Event<'_>) -> bool,
    second: impl Fn(&Event<'_>) -> bool,
) -> Option<u64> {
    let pairs = pairs(events).filter_map(|(a, b)| {
        let fits = a.pid == b.pid && !a.irq && !b.irq && first(a) && second(b);
        fits.then(|| b.at_ns.saturating_sub(a.at_ns))
    });
    let mut gaps: Vec<u64> = pairs.collect();
    gaps.sort_unstable();
    gaps.get(gaps.len() / 10).copied()
}

/// Each line with the one before it on its CPU.
fn pairs<'r>(events: &'r [Recorded<'r>]) -> impl Iterator<Item = (&'r Event<'r>, &'r Event<'r>)> {
    let mut last: BTreeMap<u32, &Event<'r>> = BTreeMap::new();
    events.iter().filter_map(move |Recorded { event, .. }| {
        last.insert(event.cpu, event).map(|before| (before, event))
    })
}

pub(super) struct Drive<'r> {
    events: &'r [Recorded<'r>],
    clock: Clock,
    hint: Hint,
    pace: Pace,
    /// The scheduler's, if there is one.
    probes: Option<&'static dyn Probes>,
    /// How long the kernel's scheduler works on a question, at least.
    work_ns: u64,
    /// What tasks do, where the scheduler looks at the clock that they see.
    tasks: Option<Tasks>,
    /// The line that the trace has come to.
    at: usize,
    /// Runs that let other CPUs come first, and how many there have been.
    paused: Vec<Pause>,
    pauses: u64,
    /// Commands that it takes from a hardware context.
    depth: usize,
    /// The driver may sleep.
    blocking: bool,
    lines: Lines<'r>,
    /// Completions that have been delivered, by event.
    delivered: Vec<bool>,
    in_flight: Vec<InFlight>,
    /// What the kernel's drive completed, and when, and ours does not have yet.
    early: Vec<(Extent, u64)>,
    /// Requests that came too late: the kernel's were complete already.
    late: Vec<RequestId>,
    /// Serial numbers of what was completed and not yet seen in our trace, and when the
    /// kernel's was.
    completed: Vec<(u64, u64)>,
    /// The event up to which the present run has come, and whose run it is.
    next: usize,
    pid: u32,
    cpu: u32,
    hctx: usize,
    /// The task of the present call finds a tag before the next completion.
    finds_tag: bool,
    /// Requests, by serial number, that went to the driver where the kernel's task issued one,
    /// and when that was.
    issued: BTreeMap<u64, u64>,
    /// Tasks that sleep inside the driver.
    asleep: Vec<Asleep>,
    /// The line at which the scheduler is asked now.
    asked: Option<usize>,
    /// Our busy averages that differed, by the lines that show the kernel's.
    our_busy: BTreeMap<usize, u32>,
}

/// A run of a hardware queue that lets other CPUs come first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pause {
    pub(super) name: u64,
    pub(super) pid: u32,
    cpu: u32,
    hctx: usize,
    /// It goes on before this line.
    before: usize,
    /// The line at which it asked, if it has.
    asked: Option<usize>,
    /// The request with which it is in the driver, if it is there.
    pub(super) inside: Option<RequestId>,
}

/// A task that was switched away from inside the driver.
#[derive(Clone, Copy, Debug)]
struct Asleep {
    pid: u32,
    id: RequestId,
    /// `Some` before its request is issued, `None` after that.
    before: Option<Extent>,
}

/// Whether a scheduler learns of the end of a request (`finish_request`).
pub(super) fn is_finish(kind: &EventKind<'_>) -> bool {
    matches!(
        kind,
        EventKind::DdFin { .. } | EventKind::KyFin { .. } | EventKind::BfqFin { .. }
    )
}

impl<'r> Drive<'r> {
    pub(super) fn new(
        events: &'r [Recorded<'r>],
        clock: Clock,
        hint: Hint,
        (depth, blocking): (u32, bool),
        probes: Option<&'static dyn Probes>,
    ) -> Drive<'r> {
        let follows_tasks = probes.is_some_and(|probes| probes.follows_tasks());
        Drive {
            events,
            clock,
            hint,
            pace: Pace::of(events, blocking),
            work_ns: probes.map_or(0, |probes| work_ns(events, |kind| answer_of(probes, kind))),
            probes,
            tasks: follows_tasks.then(|| Tasks::of(events)),
            at: 0,
            paused: Vec::new(),
            pauses: 0,
            delivered: vec![false; events.len()],
            in_flight: Vec::new(),
            early: Vec::new(),
            late: Vec::new(),
            completed: Vec::new(),
            next: 0,
            pid: 0,
            cpu: 0,
            hctx: 0,
            finds_tag: false,
            issued: BTreeMap::new(),
            asleep: Vec::new(),
            asked: None,
            our_busy: BTreeMap::new(),
            depth: depth as usize,
            blocking,
            lines: Lines::new(events),
        }
    }

    /// A call is made for `pid`; what it does is in the trace from `next` on.
    /// It runs the hardware context `hctx`.
    pub(super) fn begin(&mut self, next: usize, pid: u32, cpu: u32, hctx: usize) {
        self.next = next;
        self.pid = pid;
        self.cpu = cpu;
        self.hctx = hctx;
        self.finds_tag = false;
        self.hint.begin();
    }

    /// Whether the task of this call finds a tag before the next completion.
    pub(super) fn finds_tag(&mut self, finds: bool) {
        self.finds_tag = finds;
    }

    /// The trace comes to this line.
    pub(super) fn comes_to(&mut self, at: usize) {
        self.at = at;
        let event = &self.events[at].event;
        let Some(tasks) = &mut self.tasks else {
            return;
        };
        tasks.runs(event);
        match event.kind {
            EventKind::BioQueue(_) => tasks.queues(at, event),
            EventKind::GetRq(_) => tasks.submits(event),
            EventKind::Unplug { .. } => tasks.flushes(event),
            EventKind::RqIssue(_) => tasks.dispatches(event),
            _ => {}
        }
    }

    /// The time that the task of this event has read and goes on with.
    pub(super) fn task_clock_ns(&self, event: &Event<'_>) -> Option<u64> {
        self.tasks.as_ref()?.clock_ns(event)
    }

    /// The first run that goes on before the line at `at`.
    pub(super) fn take_paused(&mut self, at: usize) -> Option<Pause> {
        let due = self.paused.iter().enumerate();
        let due = due.filter(|(_, pause)| pause.before <= at);
        let (first, _) = due.min_by_key(|(_, pause)| (pause.before, pause.name))?;
        Some(self.paused.remove(first))
    }

    /// Whether a run of this task's lets other CPUs come first.
    pub(super) fn is_paused(&self, pid: u32) -> bool {
        self.paused.iter().any(|pause| pause.pid == pid)
    }

    /// A run goes on at the line at `at`.
    pub(super) fn resume(&mut self, pause: &Pause, at: usize) {
        self.begin(at, pause.pid, pause.cpu, pause.hctx);
        self.asked = pause.asked;
        self.tell_time();
    }

    /// The scheduler is told when the kernel's was asked.
    fn tell_time(&mut self) {
        let Some(asked) = self.asked else {
            return;
        };
        let event = &self.events[asked].event;
        let works_at = &self.events[self.works_behind(asked)].event;
        let (mut at_ns, jiffies) = (event.at_ns, jiffies_of(&event.kind));
        if let Some(tasks) = &mut self.tasks {
            tasks.dispatches(event);
            at_ns = tasks.clock_ns(event).unwrap_or(works_at.at_ns);
        }
        let now = jiffies.map(|jiffies| self.clock.now_in(jiffies, at_ns));
        self.hint.asked_at(now);
    }

    /// The line behind which the scheduler works on what it is asked at `asked`.
    fn works_behind(&self, asked: usize) -> usize {
        let Some(probes) = self.probes else {
            return asked;
        };
        let answers = |kind: &EventKind<'_>| answer_of(probes, kind);
        asked + work_begins(&self.events[asked..], self.work_ns, answers)
    }

    /// The run stops until the trace comes to `before`. Returns its name.
    fn pause(&mut self, before: usize, inside: Option<RequestId>) -> u64 {
        self.pauses += 1;
        self.paused.push(Pause {
            name: self.pauses,
            pid: self.pid,
            cpu: self.cpu,
            hctx: self.hctx,
            before,
            asked: self.asked,
            inside,
        });
        self.pauses
    }

    /// The line before which the run goes on that has issued a request at the line before
    /// `next` and has more of its list: that of the next issue, where others come between; or
    /// where its CPU stands still, which shows nothing of the next though it could be issued.
    fn stands_still(&self, next: usize, hctx: usize) -> Option<usize> {
        let (_, before, ahead) = self.look(next);
        let could = self.in_flight_of(hctx) < self.depth;
        let waits = ahead == NextLine::Issue || ahead == NextLine::Nothing && could;
        let beside_others_ns = self.time_beside_others(next - 1, before)?;
        let stood_still = ahead == NextLine::Nothing
            || self.stood_still(beside_others_ns, self.pace.next_issue_ns);
        (waits && stood_still).then_some(before)
    }

    /// How much of the time between two lines of the run's CPU is not that between the first
    /// and the last line of other CPUs; `None` where those have none.
    fn time_beside_others(&self, from: usize, to: usize) -> Option<u64> {
        let mut lines = self.events.get(from + 1..to)?.iter().map(|r| &r.event);
        let first = lines.find(|event| event.cpu != self.cpu)?;
        let last = lines.rfind(|event| event.cpu != self.cpu).unwrap_or(first);
        let passed_ns = |from: &Event<'_>, to: &Event<'_>| to.at_ns.saturating_sub(from.at_ns);
        let (from, to) = (&self.events[from].event, &self.events.get(to)?.event);
        Some(passed_ns(from, to).saturating_sub(passed_ns(first, last)))
    }

    /// Whether the run's CPU only stood still, while others had the time, between two lines of
    /// which one usually comes so long behind the other. Had it tried for a tag in vain, kblockd
    /// would have had to begin again. Entering and leaving an interrupt on another CPU takes
    /// about as long as an issue.
    fn stood_still(&self, beside_others_ns: u64, usual_ns: u64) -> bool {
        let interrupt_ns = self.pace.issue_ns.saturating_mul(3) / 2;
        beside_others_ns <= usual_ns.saturating_add(interrupt_ns)
    }

    /// The line of the issue, where the CPU stood still between the scheduler's answer at
    /// `answer` and the search for a tag, while completions came on others.
    fn stands_still_before_tag(&self, answer: usize) -> Option<usize> {
        let (_, issue, ahead) = self.look(answer + 1);
        let lines = self.events.get(answer + 1..issue)?.iter();
        let mut others = lines
            .map(|r| &r.event)
            .filter(|event| event.cpu != self.cpu);
        let beside_others_ns = self.time_beside_others(answer, issue)?;
        let waits = ahead == NextLine::Issue && others.all(|event| event.irq);
        (waits && self.stood_still(beside_others_ns, self.pace.issue_ns)).then_some(issue)
    }

    /// The line of the scheduler's answer to what it is asked at `asked`, behind which a tag is
    /// looked for.
    fn answer_to(&self, asked: usize) -> Option<usize> {
        let mut behind = self.lines.of_cpu(self.cpu, asked + 1);
        let answers = |kind| matches!(Tracepoint::of_kernel(kind), Some(Tracepoint::Choice(_)));
        behind.find_map(|(at, event)| answers(&event.kind).then_some(at))
    }

    /// The line before which the run goes on, where other CPUs come first.
    fn others_first(&self, point: RunPoint) -> Option<usize> {
        let before = match point {
            RunPoint::Ask => match self.look(self.next) {
                (_, at, NextLine::Ask) => at,
                // Had the kernel's run asked it would show: its CPU stood still, until others
                // had taken what there was or left a request without a tag.
                (_, at, NextLine::Nothing | NextLine::Issue) if self.hint.has_work(self.hctx) => at,
                _ => return None,
            },
            RunPoint::Choose => self.works_behind(self.asked?) + 1,
            RunPoint::Tag => {
                let answer = self.answer_to(self.asked?)?;
                self.stands_still_before_tag(answer).unwrap_or(answer + 1)
            }
            RunPoint::Issue | RunPoint::Request | RunPoint::Insert => return None,
        };
        let mut lines = self.events.get(self.at + 1..before)?.iter();
        let others = lines.any(|recorded| recorded.event.cpu != self.cpu);
        let mut paused = self.paused.iter();
        // A tag is looked for right behind the answer, before others go on at the next line.
        let last = before - usize::from(point == RunPoint::Tag);
        let goes_on = paused.any(|pause| pause.before <= last);
        (others || goes_on && before > self.at).then_some(before)
    }

    /// Whether its driver may sleep.
    pub(super) fn is_blocking(&self) -> bool {
        self.blocking
    }

    /// Commands it has.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Those of a hardware context.
    pub(super) fn in_flight_of(&self, hctx: usize) -> usize {
        self.in_flight.iter().filter(|f| f.hctx == hctx).count()
    }

    /// Whether this completion has been delivered.
    pub(super) fn is_delivered(&self, event: usize) -> bool {
        self.delivered[event]
    }

    /// Takes note of a completion; the requests of ours that are complete by it.
    pub(super) fn deliver(&mut self, event: usize, extent: Extent, done: &mut Vec<RequestId>) {
        self.delivered[event] = true;
        let at_ns = self.events[event].event.at_ns;
        if let Some(at) = self.position_of(extent) {
            done.push(self.finish(at, at_ns));
            return;
        }
        // Our request may cover other sectors than the kernel's.
        let mut found = false;
        for at in (0..self.in_flight.len()).rev() {
            let in_flight = &mut self.in_flight[at];
            if extent.covers(&in_flight.extent) {
                in_flight.done = in_flight.extent.sectors;
            } else if in_flight.extent.covers(&extent) {
                in_flight.done += extent.sectors;
            } else {
                continue;
            }
            found = true;
            if in_flight.done >= in_flight.extent.sectors {
                done.push(self.finish(at, at_ns));
            }
        }
        if !found {
            self.early.push((extent, at_ns));
        }
    }

    /// When the scheduler learned of the end of a request that the line at `at` shows. The
    /// tick stands still in an interrupt.
    pub(super) fn recorded_end(&self, at: usize) -> Option<Ended> {
        let complete = &self.events[at].event;
        let behind = self.lines.of_cpu(complete.cpu, at + 1);
        let mut interrupt = behind.map(|(_, event)| event).take(INTERRUPT_LINES);
        let time = |ns| self.clock.now(ns);
        interrupt.find_map(|event| match event.kind {
            EventKind::RqComplete(_) => Some(None),
            EventKind::KyDone {
                now_ns,
                start_ns,
                io_start_ns,
                ..
            } => Some(Some(Ended {
                at: time(now_ns),
                made_and_issued: Some([time(start_ns), time(io_start_ns)]),
            })),
            EventKind::BfqFin { .. } => Some(Some(Ended {
                at: self
                    .clock
                    .now_in(self.clock.jiffies(complete.at_ns), event.at_ns),
                made_and_issued: None,
            })),
            _ => None,
        })?
    }

    /// Whether other CPUs come between the completion at `at` and the end of its request, of
    /// which the scheduler learns before the tag is free.
    pub(super) fn frees_tag_later(&self, at: usize) -> bool {
        let cpu = self.events[at].event.cpu;
        let mut behind = self.lines.of_cpu(cpu, at + 1).take(INTERRUPT_LINES);
        let next = behind.find(|(_, event)| {
            is_finish(&event.kind) || matches!(event.kind, EventKind::RqComplete(_))
        });
        next.is_some_and(|(end, event)| {
            let mut between = self.events[at + 1..end].iter();
            is_finish(&event.kind) && between.any(|recorded| recorded.event.cpu != cpu)
        })
    }

    fn position_of(&self, extent: Extent) -> Option<usize> {
        self.in_flight.iter().position(|f| f.extent == extent)
    }

    fn finish(&mut self, at: usize, end_ns: u64) -> RequestId {
        let in_flight = self.in_flight.remove(at);
        self.completed.push((in_flight.serial, end_ns));
        in_flight.id
    }

    /// Whether our drive has this request.
    pub(super) fn has(&self, extent: Extent) -> bool {
        self.position_of(extent).is_some()
    }

    /// Our busy average at the call that the line at `event` shows, where it was
    /// another.
    pub(super) fn take_our_busy(&mut self, event: usize) -> Option<u32> {
        self.our_busy.remove(&event)
    }

    /// When the kernel's drive completed this request, if the end of ours in our trace is
    /// from that. Forgets the request.
    pub(super) fn completed_by_drive(&mut self, serial: u64) -> Option<u64> {
        let at = self.completed.iter().position(|&(s, _)| s == serial)?;
        Some(self.completed.swap_remove(at).1)
    }

    /// When the kernel's task issued a request where ours issued this one.
    pub(super) fn take_issued_ns(&mut self, serial: u64) -> Option<u64> {
        self.issued.remove(&serial)
    }

    /// Requests that were complete before they came.
    pub(super) fn take_late(&mut self, done: &mut Vec<RequestId>) {
        done.append(&mut self.late);
    }

    /// Whether the task's next step is to issue this, after others ran: it slept
    /// in the driver right before (`might_sleep` in `null_queue_rq`).
    fn issues_later(&self, extent: Extent) -> bool {
        let mut own = self.lines.own(self.pid, self.next);
        let step = own.find_map(|(_, event)| match Tracepoint::of_kernel(&event.kind) {
            Some(Tracepoint::Issue(issue)) => Some(issue == extent),
            Some(Tracepoint::Ask(_) | Tracepoint::GetRq(_)) => Some(false),
            _ if matches!(event.kind, EventKind::BioQueue(_)) => Some(false),
            _ => None,
        });
        step == Some(true)
    }

    /// Whether the task's next step is to issue what the scheduler chose for it last, and
    /// another asks the scheduler before: it slept in the driver with its request, which had
    /// a tag.
    fn issues_behind_others(&self) -> bool {
        let before = self.events[..self.next].iter().rev().map(|r| &r.event);
        let mut own = before.filter(|event| event.pid == self.pid && !event.irq);
        let last = own.next().map(|event| &event.kind);
        let Some(Tracepoint::Choice(Some(chosen))) = last.and_then(Tracepoint::of_kernel) else {
            return false;
        };
        let steps = self.lines.ahead(self.next).filter(|(_, event)| !event.irq);
        let steps = steps.filter_map(|(_, event)| {
            Some((event.pid == self.pid, Tracepoint::of_kernel(&event.kind)?))
        });
        let mut others_ask = false;
        for (own, step) in steps {
            match step {
                Tracepoint::Issue(issue) if own => return others_ask && issue.sector == chosen,
                _ if own => return false,
                Tracepoint::Ask(_) => others_ask = true,
                _ => {}
            }
        }
        false
    }

    /// Whether the task was switched away from while the driver still copied the
    /// data of the request issued at `at`: sooner than that takes. Only writes of
    /// new pages come to a point where that may happen.
    fn is_switched_inside(&self, at: usize) -> bool {
        let issue = &self.events[at].event;
        let EventKind::RqIssue(rq) = &issue.kind else {
            return false;
        };
        let mut after = self.lines.of_cpu(self.cpu, at + 1).map(|(_, event)| event);
        let mut marked = issue.need_resched;
        let next = after.find(|e| {
            // An interrupt sets the mark too, behind its line.
            marked |= e.pid == self.pid && (e.need_resched || e.irq);
            e.pid != self.pid || !e.irq
        });
        let (Some(next), Some(byte_ps)) = (next, self.pace.write_byte_ps) else {
            return false;
        };
        let takes_ns = u64::from(rq.bytes).saturating_mul(byte_ps) / 1000;
        let passed_ns = next.at_ns.saturating_sub(issue.at_ns);
        let writes = Extent::of_rq(rq).op.is_write() && rq.bytes > 0;
        writes && marked && next.pid != self.pid && passed_ns < takes_ns
    }

    /// Whether the task, which lets its plug go at `at`, was switched away from
    /// after its requests were inserted and before it ran the queue
    /// (`might_sleep_if` in `blk_mq_run_hw_queue`).
    pub(super) fn is_switched_away(&self, pid: u32, at: usize) -> bool {
        let mut marked = false;
        let cpu = self.events[at].event.cpu;
        for (_, event) in self.lines.of_cpu(cpu, at + 1) {
            if event.pid != pid {
                return self.blocking && marked;
            }
            marked |= event.need_resched;
            let step = matches!(
                Tracepoint::of_kernel(&event.kind),
                Some(Tracepoint::Ask(_) | Tracepoint::Issue(_) | Tracepoint::GetRq(_))
            );
            if !event.irq && (step || matches!(event.kind, EventKind::BioQueue(_))) {
                return false;
            }
        }
        false
    }

    /// Whether the task sleeps inside the driver.
    pub(super) fn sleeps_in_driver(&self, pid: u32) -> bool {
        self.asleep.iter().any(|asleep| asleep.pid == pid)
    }

    /// The request in which the task slept that is back on the CPU.
    pub(super) fn take_inside(&mut self, pid: u32) -> Option<RequestId> {
        let asleep = |a: &Asleep| a.pid == pid && a.before.is_none();
        let at = self.asleep.iter().position(asleep)?;
        Some(self.asleep.remove(at).id)
    }

    /// The request before whose issue, now at `event`, the task slept. It may
    /// fall asleep again behind it.
    pub(super) fn take_before(
        &mut self,
        pid: u32,
        extent: Extent,
        event: usize,
    ) -> Option<RequestId> {
        let asleep = |a: &Asleep| a.pid == pid && a.before == Some(extent);
        let at = self.asleep.iter().position(asleep)?;
        self.pid = pid;
        if self.is_switched_inside(event) {
            self.asleep[at].before = None;
            return None;
        }
        Some(self.asleep.remove(at).id)
    }

    /// Whether kblockd, which has just ended a run, has the time to begin another
    /// one that shows nothing before the next line.
    pub(super) fn has_time(&self, next: usize) -> bool {
        let last = self.lines.last_of_cpu(self.cpu, self.next);
        let next = self.lines.of_cpu(self.cpu, next).next();
        let Some((last, (_, next))) = last.zip(next) else {
            return true;
        };
        let passed = next.at_ns.saturating_sub(last.at_ns);
        passed > self.pace.issue_ns.saturating_mul(21) / 10
    }

    /// The first event behind this run that is not part of it.
    pub(super) fn after(&self) -> usize {
        self.next
    }

    /// Looks along the task's own lines: a completion on the way, and what the
    /// lines lead to.
    fn look(&self, from: usize) -> (Option<usize>, usize, NextLine) {
        let mut completion = None;
        for (at, event) in self.lines.of_cpu(self.cpu, from) {
            if event.pid != self.pid {
                return (completion, at, NextLine::Nothing);
            }
            if event.irq {
                let ours = matches!(&event.kind, EventKind::RqComplete(rq)
                    if self.has(Extent::of_end(rq)));
                if ours && !self.delivered[at] {
                    completion = completion.or(Some(at));
                }
                continue;
            }
            let ahead = match Tracepoint::of_kernel(&event.kind) {
                Some(Tracepoint::Ask(_)) => NextLine::Ask,
                Some(Tracepoint::Choice(_)) => NextLine::Answer,
                Some(Tracepoint::Issue(_)) => NextLine::Issue,
                // A run before a request is had or a plug let go ends there.
                Some(_) if self.probes.is_some() && !self.hint.inserted() => NextLine::Nothing,
                _ if matches!(event.kind, EventKind::BioQueue(_)) => NextLine::Nothing,
                _ => continue,
            };
            return (completion, at, ahead);
        }
        (completion, self.events.len(), NextLine::Nothing)
    }

    /// Whether the completion at `at` came before the driver tag was tried for the
    /// request that is issued next, and not after that had failed. The task's
    /// line before it tells: had there been a tag, the request would have been
    /// issued by now.
    fn in_time(&self, at: usize) -> bool {
        let mut passed = 0;
        let mut after = &self.events[at].event;
        let in_probe = after.preempt_depth >= DEPTH_IN_PROBE;
        let lines = self.events[..at].iter().rev().map(|r| &r.event);
        for before in lines.filter(|event| event.cpu == self.cpu) {
            let gap_ns = after.at_ns.saturating_sub(before.at_ns);
            let inside = after.irq && !matches!(after.kind, EventKind::RqComplete(_));
            after = before;
            if before.pid != self.pid {
                return true;
            }
            if before.irq {
                // Nobody runs inside an interrupt, nor between two that are close.
                let behind = gap_ns <= self.pace.issue_ns.saturating_mul(8) / 5;
                passed += if inside || behind { 0 } else { gap_ns };
                continue;
            }
            let limit = match Tracepoint::of_kernel(&before.kind) {
                // The answer was still being recorded.
                Some(Tracepoint::Choice(_)) if in_probe => return true,
                Some(Tracepoint::Choice(_)) => self.pace.issue_ns,
                Some(Tracepoint::Issue(_)) => self.pace.next_issue_ns,
                _ => return true,
            };
            return passed + gap_ns <= limit.saturating_add(self.pace.issue_ns / 2);
        }
        true
    }

    /// The completion, if any, that comes before the task inserts what its plug held.
    fn completion_before_insert(&self) -> Option<usize> {
        let own = self.lines.of_cpu(self.cpu, self.next);
        let mut own = own.take_while(|(_, event)| event.pid == self.pid);
        let mut completion = None;
        let inserts = own.find_map(|(at, event)| match &event.kind {
            EventKind::RqComplete(rq) => {
                let ours = !self.delivered[at] && self.has(Extent::of_end(rq));
                completion = completion.or(ours.then_some(at));
                None
            }
            EventKind::RqInsert(_) | EventKind::RqMerge(_) => Some(true),
            kind => match Tracepoint::of_kernel(kind) {
                Some(Tracepoint::Plug | Tracepoint::Unplug(_)) | None => None,
                Some(_) => Some(false),
            },
        });
        completion.filter(|_| inserts == Some(true))
    }

    /// Whether the completion at `at` came before the task, which has run the queue, looked for
    /// a tag: it gets a request behind it, or the scheduler's answer was still being recorded.
    fn comes_before_search(&self, at: usize) -> bool {
        if let Some(request) = self.lines.gets_request(self.pid, self.next) {
            return at < request;
        }
        let answer = self.events[..at].iter().rev().map(|r| &r.event);
        let mut own = answer.filter(|event| event.cpu == self.cpu && !event.irq);
        let kind = own.next().map(|event| &event.kind);
        let answered = kind.and_then(Tracepoint::of_kernel) == Some(Tracepoint::Choice(None));
        answered && self.events[at].event.preempt_depth >= DEPTH_IN_PROBE
    }

    /// The completion, if any, that comes before what happens at this point.
    fn completion_before(&mut self, point: RunPoint) -> Option<usize> {
        if point == RunPoint::Insert {
            return self.completion_before_insert();
        }
        let (mut completion, at, mut ahead) = self.look(self.next);
        if point == RunPoint::Choose {
            let behind = self.asked.map(|asked| self.works_behind(asked));
            return completion.filter(|&at| Some(at) <= behind);
        }
        if ahead == NextLine::Answer && point != RunPoint::Ask {
            // One that came during the call is there in any case.
            if completion.is_some() {
                return completion;
            }
            self.next = at + 1;
            (completion, _, ahead) = self.look(self.next);
        }
        let comes = match point {
            RunPoint::Ask => ahead == NextLine::Ask,
            RunPoint::Choose | RunPoint::Insert => false,
            // The tag was had, since the scheduler was asked for more.
            RunPoint::Tag => ahead == NextLine::Ask,
            RunPoint::Issue => match ahead {
                NextLine::Issue => completion.is_some_and(|at| self.in_time(at)),
                NextLine::Nothing => self.blocking && self.issues_behind_others(),
                _ => false,
            },
            RunPoint::Request => {
                !self.finds_tag && completion.is_some_and(|at| self.comes_before_search(at))
            }
        };
        completion.filter(|_| comes)
    }
}

impl BlkDriver for Drive<'_> {
    fn queue_rq(
        &mut self,
        _now: Nanos,
        hctx: usize,
        id: RequestId,
        rq: &Request,
        last: bool,
    ) -> BlkStatus {
        let extent = Extent::new(rq.op, rq.sector, rq.sectors);
        let (_, at, ahead) = self.look(self.next);
        if ahead == NextLine::Issue {
            self.next = at + 1;
            self.issued.insert(rq.serial, self.events[at].event.at_ns);
        }
        if let Some(early) = self.early.iter().position(|(e, _)| e.covers(&extent)) {
            let (_, end_ns) = self.early.remove(early);
            self.completed.push((rq.serial, end_ns));
            self.late.push(id);
            return BlkStatus::Ok;
        }
        self.in_flight.push(InFlight {
            id,
            serial: rq.serial,
            hctx,
            extent,
            done: 0,
        });
        let issues = ahead == NextLine::Issue && !last;
        if issues && let Some(before) = self.stands_still(at + 1, hctx) {
            self.pause(before, Some(id));
            return BlkStatus::OkBlocking;
        }
        let before = (ahead != NextLine::Issue && self.issues_later(extent)).then_some(extent);
        let inside = ahead == NextLine::Issue && self.is_switched_inside(at);
        if !self.blocking || (before.is_none() && !inside) {
            return BlkStatus::Ok;
        }
        let pid = self.pid;
        self.asleep.push(Asleep { pid, id, before });
        BlkStatus::OkBlocking
    }

    fn interrupt(&mut self, point: RunPoint) -> Option<Interruption> {
        if let Some(before) = self.others_first(point) {
            let name = self.pause(before, None);
            return Some(Interruption::OtherCpus(name));
        }
        let at = self.completion_before(point)?;
        let EventKind::RqComplete(rq) = &self.events[at].event.kind else {
            return None;
        };
        let in_flight = self.position_of(Extent::of_end(rq))?;
        self.delivered[at] = true;
        let at_ns = self.events[at].event.at_ns;
        let id = self.finish(in_flight, at_ns);
        self.hint.completes(id, self.recorded_end(at));
        let now = self.clock.now(at_ns);
        Some(Interruption::Completion(id, IoStatus::Ok, now))
    }

    /// The mark is on the line of the issue, or on an interrupt after it: unless
    /// the task, marked, asks on, which then came too late for this time. An
    /// interrupt after which somebody else runs set it too, though behind its line,
    /// and so did a tick, which has none.
    fn need_resched(&mut self) -> bool {
        let from = self.next.saturating_sub(1);
        let mut lines = self.lines.of_cpu(self.cpu, from).map(|(_, event)| event);
        let (mut marked, mut interrupted) = (false, false);
        let mut issued_in = u64::MAX;
        if let Some(issue) = lines.next() {
            marked = issue.need_resched;
            if marked {
                return true;
            }
            issued_in = self.clock.jiffies(issue.at_ns);
        }
        for event in lines {
            if event.pid != self.pid {
                interrupted |= self.clock.jiffies(event.at_ns) > issued_in;
                return marked || (interrupted && event.pid != IDLE);
            }
            if !event.irq {
                let asks = matches!(Tracepoint::of_kernel(&event.kind), Some(Tracepoint::Ask(_)));
                return marked && !(asks && event.need_resched);
            }
            marked |= event.need_resched;
            interrupted = true;
        }
        marked
    }

    /// Our busy average may differ: how often kblockd ran without leaving a line cannot
    /// always be told from the trace. So that this does not spread, the recorded
    /// average is taken, and the difference is counted when its line comes.
    fn dispatch_busy(&mut self, busy: u32) -> u32 {
        let Some(at) = self.asked else {
            return busy;
        };
        match Tracepoint::of_kernel(&self.events[at].event.kind) {
            Some(Tracepoint::Ask(recorded)) if recorded != busy => {
                self.our_busy.insert(at, busy);
                recorded
            }
            _ => busy,
        }
    }

    /// The scheduler is asked right after this: the trace knows when.
    fn get_budget(&mut self) -> bool {
        let (_, at, ahead) = self.look(self.next);
        self.asked = (ahead == NextLine::Ask).then_some(at);
        if ahead == NextLine::Ask {
            self.tell_time();
            self.next = at + 1;
        }
        true
    }
}
