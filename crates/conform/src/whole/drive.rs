//! The recorded drive: it takes what it is given and completes when the trace
//! says so, also in the middle of a run.

use std::collections::BTreeMap;

use blklab_blk::{BlkDriver, BlkStatus, IoStatus, Nanos, Request, RequestId, RunPoint};
use blklab_workload::trace::tracefs::{Event, EventKind};

use super::lines::{IDLE, Lines};
use super::tracepoint::{Extent, Tracepoint};
use crate::clock::{Clock, jiffies_of};
use crate::recording::Recorded;
use crate::ties::Hint;

/// A request the drive has.
struct InFlight {
    id: RequestId,
    serial: u64,
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
    let pairs = events.windows(2).filter_map(|pair| {
        let (a, b) = (&pair[0].event, &pair[1].event);
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
    let pairs = events.windows(2).filter_map(|pair| {
        let (a, b) = (&pair[0].event, &pair[1].event);
        let fits = a.pid == b.pid && !a.irq && !b.irq && first(a) && second(b);
        fits.then(|| b.at_ns.saturating_sub(a.at_ns))
    });
    let mut gaps: Vec<u64> = pairs.collect();
    gaps.sort_unstable();
    gaps.get(gaps.len() / 10).copied()
}

pub(super) struct Drive<'r> {
    events: &'r [Recorded<'r>],
    clock: Clock,
    hint: Hint,
    pace: Pace,
    /// There is a scheduler.
    scheduled: bool,
    /// The driver may sleep.
    blocking: bool,
    lines: Lines<'r>,
    /// Completions that have been delivered, by event.
    delivered: Vec<bool>,
    in_flight: Vec<InFlight>,
    /// What the kernel's drive completed and ours does not have yet.
    early: Vec<Extent>,
    /// Requests that came too late: the kernel's were complete already.
    late: Vec<RequestId>,
    /// Serial numbers of what was completed and not yet seen in our trace.
    completed: Vec<u64>,
    /// The event up to which the present run has come, and whose run it is.
    next: usize,
    pid: u32,
    /// Tasks that sleep inside the driver.
    asleep: Vec<Asleep>,
    /// The line at which the scheduler is asked now.
    asked: Option<usize>,
    /// Our busy averages that differed, by the lines that show the kernel's.
    our_busy: BTreeMap<usize, u32>,
}

/// A task that was switched away from inside the driver.
#[derive(Clone, Copy, Debug)]
struct Asleep {
    pid: u32,
    id: RequestId,
    /// `Some` before its request is issued, `None` after that.
    before: Option<Extent>,
}

impl<'r> Drive<'r> {
    pub(super) fn new(
        events: &'r [Recorded<'r>],
        clock: Clock,
        hint: Hint,
        blocking: bool,
        scheduled: bool,
    ) -> Drive<'r> {
        Drive {
            events,
            clock,
            hint,
            pace: Pace::of(events, blocking),
            scheduled,
            delivered: vec![false; events.len()],
            in_flight: Vec::new(),
            early: Vec::new(),
            late: Vec::new(),
            completed: Vec::new(),
            next: 0,
            pid: 0,
            asleep: Vec::new(),
            asked: None,
            our_busy: BTreeMap::new(),
            blocking,
            lines: Lines::new(events),
        }
    }

    /// A call is made for `pid`; what it does is in the trace from `next` on.
    pub(super) fn begin(&mut self, next: usize, pid: u32) {
        self.next = next;
        self.pid = pid;
        self.hint.begin();
    }

    /// Commands it has.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Whether this completion has been delivered.
    pub(super) fn is_delivered(&self, event: usize) -> bool {
        self.delivered[event]
    }

    /// Takes note of a completion; the requests of ours that are complete by it.
    pub(super) fn deliver(&mut self, event: usize, extent: Extent, done: &mut Vec<RequestId>) {
        self.delivered[event] = true;
        if let Some(at) = self.position_of(extent) {
            done.push(self.finish(at));
            return;
        }
        // OurTracepoint may have been cut otherwise than the kernel's.
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
                done.push(self.finish(at));
            }
        }
        if !found {
            self.early.push(extent);
        }
    }

    fn position_of(&self, extent: Extent) -> Option<usize> {
        self.in_flight.iter().position(|f| f.extent == extent)
    }

    fn finish(&mut self, at: usize) -> RequestId {
        let in_flight = self.in_flight.remove(at);
        self.completed.push(in_flight.serial);
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

    /// Whether the end of this request in our trace is from a completion of the
    /// drive. Forgets the request.
    pub(super) fn completed_by_drive(&mut self, serial: u64) -> bool {
        let at = self.completed.iter().position(|&s| s == serial);
        if let Some(at) = at {
            self.completed.swap_remove(at);
        }
        at.is_some()
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

    /// Whether the task was switched away from while the driver still copied the
    /// data of the request issued at `at`: sooner than that takes. Only writes of
    /// new pages come to a point where that may happen.
    fn is_switched_inside(&self, at: usize) -> bool {
        let issue = &self.events[at].event;
        let EventKind::RqIssue(rq) = &issue.kind else {
            return false;
        };
        let mut after = self.events[at + 1..].iter().map(|r| &r.event);
        let mut marked = issue.need_resched;
        let next = after.find(|e| {
            marked |= e.pid == self.pid && e.need_resched;
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
        let lines = self.events[at + 1..].iter().map(|r| &r.event);
        for event in lines {
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
        let last = self.next.checked_sub(1).map(|at| &self.events[at].event);
        let Some((last, next)) = last.zip(self.events.get(next)) else {
            return true;
        };
        let passed = next.event.at_ns.saturating_sub(last.at_ns);
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
        for at in from..self.events.len() {
            let event = &self.events[at].event;
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
                Some(_) if self.scheduled && !self.hint.inserted() => NextLine::Nothing,
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
        for pair in self.events[..=at].windows(2).rev() {
            let (before, after) = (&pair[0].event, &pair[1].event);
            let gap_ns = after.at_ns.saturating_sub(before.at_ns);
            if before.pid != self.pid {
                return true;
            }
            if before.irq {
                // One interrupt right behind another lets nobody run between.
                let behind = gap_ns <= self.pace.issue_ns.saturating_mul(8) / 5;
                passed += if behind { 0 } else { gap_ns };
                continue;
            }
            let limit = match Tracepoint::of_kernel(&before.kind) {
                Some(Tracepoint::Choice(_)) => self.pace.issue_ns,
                Some(Tracepoint::Issue(_)) => self.pace.next_issue_ns,
                _ => return true,
            };
            return passed + gap_ns <= limit.saturating_add(self.pace.issue_ns / 2);
        }
        true
    }

    /// The completion, if any, that comes before what happens at this point.
    fn completion_before(&mut self, point: RunPoint) -> Option<usize> {
        let (mut completion, at, mut ahead) = self.look(self.next);
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
            // The tag was had, since the scheduler was asked for more.
            RunPoint::Tag => ahead == NextLine::Ask,
            RunPoint::Issue => {
                ahead == NextLine::Issue && completion.is_some_and(|at| self.in_time(at))
            }
        };
        completion.filter(|_| comes)
    }
}

impl BlkDriver for Drive<'_> {
    fn queue_rq(
        &mut self,
        _now: Nanos,
        _hctx: usize,
        id: RequestId,
        rq: &Request,
        _last: bool,
    ) -> BlkStatus {
        let extent = Extent::new(rq.op, rq.sector, rq.sectors);
        let (_, at, ahead) = self.look(self.next);
        if ahead == NextLine::Issue {
            self.next = at + 1;
        }
        if let Some(early) = self.early.iter().position(|e| e.covers(&extent)) {
            self.early.remove(early);
            self.completed.push(rq.serial);
            self.late.push(id);
            return BlkStatus::Ok;
        }
        self.in_flight.push(InFlight {
            id,
            serial: rq.serial,
            extent,
            done: 0,
        });
        let before = (ahead != NextLine::Issue && self.issues_later(extent)).then_some(extent);
        let inside = ahead == NextLine::Issue && self.is_switched_inside(at);
        if !self.blocking || (before.is_none() && !inside) {
            return BlkStatus::Ok;
        }
        let pid = self.pid;
        self.asleep.push(Asleep { pid, id, before });
        BlkStatus::OkBlocking
    }

    fn interrupt(&mut self, point: RunPoint) -> Option<(RequestId, IoStatus)> {
        let at = self.completion_before(point)?;
        let EventKind::RqComplete(rq) = &self.events[at].event.kind else {
            return None;
        };
        let in_flight = self.position_of(Extent::of_end(rq))?;
        self.delivered[at] = true;
        Some((self.finish(in_flight), IoStatus::Ok))
    }

    /// The mark is on the line of the issue, or on an interrupt after it: unless
    /// the task, marked, asks on, which then came too late for this time. An
    /// interrupt after which somebody else runs set it too, though behind its line.
    fn need_resched(&mut self) -> bool {
        let from = self.next.saturating_sub(1);
        let mut lines = self.events[from..].iter().map(|r| &r.event);
        let (mut marked, mut interrupted) = (false, false);
        if let Some(issue) = lines.next() {
            marked = issue.need_resched;
            if marked {
                return true;
            }
        }
        for event in lines {
            if event.pid != self.pid {
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

    /// OurTracepoint may be off: how often kblockd ran without a line to show for it is not
    /// always to be seen. So that this does not spread, the recorded one is taken,
    /// and the difference counted when its line comes.
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
            let recorded = &self.events[at].event;
            let jiffies = jiffies_of(&recorded.kind);
            let now = jiffies.map(|jiffies| self.clock.now_in(jiffies, recorded.at_ns));
            self.hint.asked_at(now);
            self.next = at + 1;
        }
        true
    }
}
