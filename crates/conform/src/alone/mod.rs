//! A scheduler alone: the recorded inserts, merges and ends go in through its
//! hooks, and it is asked wherever the kernel's was.
//!
//! There is no queue here: requests live in a bare [`Requests`] under the names
//! of the kernel's pointers. After a wrong answer nothing is put right: the
//! kernel's request stays in our scheduler until that names it too, so that
//! whatever follows from the difference is counted as well.
//!
//! Of a scheduler in our kernel module every call is recorded; those are made again ([`calls`]).

mod answers;
mod calls;
pub(crate) mod probes;

use std::collections::{BTreeMap, BTreeSet};

use blklab_blk::{
    Bio, BioFlags, Elevator, InsertAt, MergeState, Nanos, Op, Request, RequestId, Requests,
    RqFlags, RqList, SchedCtx, SubmitterId, Trace, take_request,
};
use blklab_workload::trace::tracefs::{BioEvent, EventKind, MergeSide, RqEvent};

use crate::cgroups::Cgroups;
use crate::clock::{Clock, jiffies_of};
use crate::recording::{Recorded, Recording};
use crate::report::TraceReport;
use crate::setup::{Setup, unknown_scheduler};
use crate::tasks::{DEPTH_IN_PROBE, Exits, Tasks, answer_of, priority, work_begins, work_ns};
use crate::ties::{Hint, TieBreaker};
use crate::{ConformError, Mode};
use answers::extent;
use probes::{Answer, ProbeEvent, Probes};

/// Lines of one interrupt follow each other faster.
const INTERRUPT_GAP_NS: u64 = 20_000;

/// What makes a write a flush sequence, on a drive with a volatile cache.
const FLUSH_FLAGS: BioFlags = BioFlags::FUA.with(BioFlags::PREFLUSH);

/// Whether there is such a scheduler.
pub(crate) fn check(scheduler: &str) -> Result<(), ConformError> {
    let known = blklab_elevator::find(scheduler).filter(|kind| kind.build.is_some());
    known
        .map(|_| ())
        .ok_or_else(|| unknown_scheduler(scheduler))
}

/// The probes of a scheduler.
pub(crate) fn probes_of(scheduler: &str) -> Result<&'static dyn Probes, ConformError> {
    match scheduler {
        "mq-deadline" => Ok(&probes::MqDeadline),
        "kyber" => Ok(&probes::Kyber),
        "bfq" => Ok(&probes::Bfq),
        _ => Err(ConformError::Scheduler {
            found: scheduler.to_owned(),
            expected: "mq-deadline, kyber, bfq, or a trace of the module blklab-iosched".to_owned(),
            mode: Mode::SchedulerAlone,
        }),
    }
}

/// Compares one trace.
pub(crate) fn compare(recording: &Recording, scheduler: &str) -> Result<TraceReport, ConformError> {
    let events = recording.events()?;
    if calls::are_in(&events) {
        return calls::compare(recording, scheduler, &events);
    }
    let probes = probes_of(scheduler)?;
    let asks =
        |r: &Recorded<'_>| matches!(probes.step(&r.event.kind), Some(ProbeEvent::Ask { .. }));
    if !events.iter().any(asks) {
        return Err(ConformError::Nothing {
            file: recording.file.clone(),
            expected: probes.ask_event(),
        });
    }
    // An insert into whose recording a tick fell may have been before or behind
    // it; its deadline tells, at its dispatch. So those are known the second time.
    let mut alone = Alone::with_exits(recording, scheduler, probes, &events)?;
    alone.report.notes.extend(alone.exits.note());
    if !alone.behind_tick.is_empty() {
        let behind_tick = std::mem::take(&mut alone.behind_tick);
        alone = Alone::new(recording, scheduler, probes, &events, behind_tick)?;
        alone.replay();
    }
    Ok(alone.report)
}

/// The tasks of a trace that exit, which replays of its scheduler find where no probe tells.
pub(crate) fn exits(
    recording: &Recording,
    scheduler: &str,
    events: &[Recorded<'_>],
) -> Result<Exits, ConformError> {
    let exits = Exits::of(recording.info.as_ref(), events);
    match probes_of(scheduler) {
        Ok(probes) if probes.follows_tasks() && !exits.are_recorded() => {
            Ok(Alone::with_exits(recording, scheduler, probes, events)?.exits)
        }
        _ => Ok(exits),
    }
}

/// A question, from the event that is its entry.
#[derive(Clone, Copy)]
struct Question {
    entry: usize,
    /// Behind which event the scheduler works on it.
    works_behind: usize,
    hctx: usize,
    jiffies: u64,
}

/// What goes on on a CPU.
#[derive(Default)]
struct Cpu<'r> {
    /// The hardware context and the place of what is being inserted.
    hctx: usize,
    at_head: bool,
    /// `block_rq_insert`, whose pointer comes with the next line.
    inserting: Option<RqEvent<'r>>,
    question: Option<Question>,
    /// Our answer, and when it was asked for.
    answer: Option<Option<RequestId>>,
    /// The tick in which the interrupt began that runs, which is its to the end,
    /// and when its last line was.
    interrupt: Option<(u64, u64)>,
    /// An answer whose state was read after interrupts that follow it.
    unread: Option<Unread>,
}

/// An answer at an event, and behind which event the last of its state was read.
struct Unread {
    at: usize,
    read_behind: usize,
    answer: Answer,
    /// Ours, right behind the call.
    ours: Vec<(&'static str, i64)>,
}

struct Alone<'r> {
    events: &'r [Recorded<'r>],
    probes: &'r dyn Probes,
    clock: Clock,
    /// How long the kernel's scheduler works on a question, at least.
    work_ns: u64,
    setup: Setup,
    cgroups: Cgroups,
    elevator: Box<dyn Elevator>,
    hint: Hint,
    rqs: Requests,
    merge: MergeState,
    trace: Trace,
    /// Hardware contexts that the scheduler wants run; not used, as the trace shows the
    /// runs.
    runs: Vec<u16>,
    now: Nanos,
    /// The event that is being replayed.
    at: usize,
    /// Requests by the kernel's pointers, from insert to end.
    by_pointer: BTreeMap<u64, RequestId>,
    /// The event that inserted a request, by the request's place.
    inserted_by: BTreeMap<usize, usize>,
    /// Requests that our scheduler holds, by their places.
    held: BTreeSet<usize>,
    /// Ended in the kernel, still in our scheduler.
    overdue: Vec<RequestId>,
    cpus: BTreeMap<u32, Cpu<'r>>,
    /// Where writes with a flush or FUA start that are on their way.
    sequences: BTreeSet<u64>,
    /// The bio that each task merges, until the scheduler hears of it.
    merging: BTreeMap<u32, BioEvent<'r>>,
    /// Requests that our last insert or merge merged into others, in order.
    merged_away: Vec<RequestId>,
    /// Events of inserts that the tick came before; found in the first pass and given
    /// in the second.
    behind_tick: BTreeSet<usize>,
    given_behind_tick: BTreeSet<usize>,
    /// What tasks do, where the scheduler is given that.
    tasks: Option<Tasks>,
    /// The last answer.
    answered_at: usize,
    exits: Exits,
    finds_exits: bool,
    /// The kernel had no queue in service, and ours has; since an answer.
    somebody_left: Option<(usize, usize)>,
    /// Our queues by the kernel's pointers and owners.
    queues: BTreeMap<(u64, i64), (i64, i64)>,
    report: TraceReport,
}

impl<'r> Alone<'r> {
    fn new(
        recording: &'r Recording,
        scheduler: &str,
        probes: &'r dyn Probes,
        events: &'r [Recorded<'r>],
        given_behind_tick: BTreeSet<usize>,
    ) -> Result<Alone<'r>, ConformError> {
        let mut report = TraceReport::new(recording.file.clone());
        let setup = Setup::of(recording, events, &mut report.notes);
        let mut elevator = setup.elevator(scheduler, &recording.file, &mut report.notes)?;
        let info = recording.info.as_ref();
        let cgroups = Cgroups::of(info, events);
        cgroups.set_up(elevator.as_mut());
        let exits = Exits::of(info, events);
        let hint = Hint::default();
        let follows_tasks = probes.follows_tasks();
        let elevator = match follows_tasks {
            // A scheduler that merges bios by itself needs no tie breaker.
            true => elevator,
            false => Box::new(TieBreaker::new(elevator, hint.clone(), false)),
        };
        Ok(Alone {
            events,
            probes,
            clock: Clock::of(events),
            work_ns: work_ns(events, |kind| answer_of(probes, kind)),
            elevator,
            hint,
            rqs: Requests::default(),
            merge: MergeState::new(setup.limits.clone()),
            setup,
            cgroups,
            trace: Trace::default(),
            runs: Vec::new(),
            now: Nanos::ZERO,
            at: 0,
            by_pointer: BTreeMap::new(),
            inserted_by: BTreeMap::new(),
            held: BTreeSet::new(),
            overdue: Vec::new(),
            cpus: BTreeMap::new(),
            sequences: BTreeSet::new(),
            merging: BTreeMap::new(),
            merged_away: Vec::new(),
            behind_tick: BTreeSet::new(),
            given_behind_tick,
            tasks: follows_tasks.then(|| Tasks::of(events)),
            answered_at: 0,
            finds_exits: !exits.are_recorded(),
            exits,
            somebody_left: None,
            queues: BTreeMap::new(),
            report,
        })
    }

    /// One that has come to the end, with all tasks that exit found on the way.
    fn with_exits(
        recording: &'r Recording,
        scheduler: &str,
        probes: &'r dyn Probes,
        events: &'r [Recorded<'r>],
    ) -> Result<Alone<'r>, ConformError> {
        let new = || Alone::new(recording, scheduler, probes, events, BTreeSet::new());
        let mut alone = new()?;
        alone.replay();
        while let Some((since, now)) = alone.somebody_left {
            let mut exits = std::mem::take(&mut alone.exits);
            let found = exits.learn(events, since, now);
            alone = new()?;
            alone.exits = exits;
            alone.finds_exits = found;
            alone.replay();
        }
        Ok(alone)
    }

    fn replay(&mut self) {
        for at in 0..self.events.len() {
            self.at = at;
            let event = &self.events[at].event;
            let jiffies = self.jiffies();
            self.now = self.clock.now_in(jiffies, event.at_ns);
            self.run_timer();
            if let Some(tasks) = &mut self.tasks {
                tasks.runs(event);
                self.exit_tasks();
            }
            match self.probes.step(&event.kind) {
                Some(step) => self.step(step),
                None => self.block_event(),
            }
            if self.somebody_left.is_some() {
                return;
            }
            self.answer_questions();
            self.compare_read_state();
        }
        self.report_own_merges();
        let ties = self.hint.taken();
        if ties > 0 {
            let note = format!("{ties} times a bio fitted several requests; took the recorded one");
            self.report.notes.push(note);
        }
    }

    /// What goes on on the event's CPU.
    fn cpu(&mut self) -> &mut Cpu<'r> {
        let cpu = self.events[self.at].event.cpu;
        self.cpus.entry(cpu).or_default()
    }

    /// The tick of the event. It stands still in an interrupt, also where the
    /// trace clock passes the next.
    fn jiffies(&mut self) -> u64 {
        let event = &self.events[self.at].event;
        let by_clock = self.clock.jiffies(event.at_ns);
        let jiffies = jiffies_of(&event.kind).unwrap_or(by_clock);
        let begins = matches!(event.kind, EventKind::RqComplete(_));
        let interrupt = &mut self.cpu().interrupt;
        let goes_on = |&(_, last_ns): &(u64, u64)| {
            event.irq && !begins && event.at_ns.saturating_sub(last_ns) < INTERRUPT_GAP_NS
        };
        let began = interrupt.filter(goes_on).map(|(began, _)| began);
        let jiffies = began.unwrap_or(jiffies);
        *interrupt = event.irq.then_some((jiffies, event.at_ns));
        jiffies
    }

    fn block_event(&mut self) {
        self.task_event();
        let event = &self.events[self.at].event;
        match event.kind {
            EventKind::BioBackmerge(bio) | EventKind::BioFrontmerge(bio) => {
                self.merging.insert(event.pid, bio);
            }
            EventKind::RqMerge(rq) => self.merged_on_insert(&rq),
            // Its task goes on, so the merge was into a plug.
            EventKind::BioQueue(_) | EventKind::Unplug { .. } => {
                self.merging.remove(&event.pid);
            }
            EventKind::GetRq(bio) => {
                self.merging.remove(&event.pid);
                if bio.rwbs.flags.has(FLUSH_FLAGS) {
                    self.sequences.insert(bio.sector.0);
                }
            }
            EventKind::RqInsert(rq) => self.cpu().inserting = Some(rq),
            EventKind::TracingMark { text } => {
                if let Some((group, weight)) = self.cgroups.written(text) {
                    self.elevator.set_cgroup_weight(group, weight);
                }
            }
            EventKind::RqIns { rq, jif, .. } => self.inserted(rq, jif),
            _ => {}
        }
    }

    /// What is given to a scheduler that follows tasks.
    fn task_event(&mut self) {
        let event = &self.events[self.at].event;
        let Some(tasks) = &mut self.tasks else {
            return;
        };
        match event.kind {
            EventKind::BioQueue(bio) => {
                tasks.queues(self.at, event);
                self.queue_bio(&bio);
            }
            EventKind::GetRq(bio) => {
                tasks.submits(event);
                tasks.makes(event.pid, &bio);
            }
            EventKind::Unplug { .. } => tasks.flushes(event),
            EventKind::RqIssue(_) => tasks.dispatches(event),
            _ => {}
        }
    }

    /// A bio joins what its task holds back, or goes to our scheduler, which
    /// may make it part of what is queued.
    fn queue_bio(&mut self, event: &BioEvent<'r>) {
        let pid = self.events[self.at].event.pid;
        let Some(tasks) = &mut self.tasks else {
            return;
        };
        let merges = tasks.merges(self.at);
        if merges && tasks.merge_into_plug(pid, event) {
            return;
        }
        let prio = tasks.priority(pid);
        self.now = self.task_now(self.clock.jiffies(self.events[self.at].event.at_ns));
        let cpu = self.cpu_number();
        let bio = Bio {
            prio,
            flags: event.rwbs.flags,
            submitter: SubmitterId(pid),
            cgroup: self.cgroups.of_task(pid),
            ..Bio::new(
                event.rwbs.op.unwrap_or(Op::WriteZeroes),
                event.sector,
                event.sectors,
            )
        };
        let (elevator, mut ctx) = self.ctx();
        let merged = elevator.bio_merge(&mut ctx, cpu, &bio);
        self.merge.take_merged_away(&mut self.merged_away);
        for id in std::mem::take(&mut self.merged_away) {
            self.held.remove(&id.index());
        }
        if !merges && merged.is_none() {
            return;
        }
        let text = self.describe(merged);
        self.count("bio merge", merges == merged.is_some(), || {
            let what = if merges { "a merge" } else { "no merge" };
            (what.to_owned(), text)
        });
    }

    /// A request that is being inserted became part of another at once: then
    /// there is no `rq_ins` for it.
    fn merged_on_insert(&mut self, event: &RqEvent<'r>) {
        let pid = self.events[self.at].event.pid;
        if !self.tasks.as_ref().is_some_and(|t| t.has_made(pid, event)) {
            return;
        }
        self.now = self.task_now(self.clock.jiffies(self.events[self.at].event.at_ns));
        let id = self.insert(None, event);
        let same = self.merged_away.contains(&id);
        self.count("request merge", same, || {
            ("a request joins another".to_owned(), "no merge".to_owned())
        });
        if same {
            self.merged_away.retain(|&gone| gone != id);
            self.free(id);
        }
    }

    /// The drive was done with a request.
    fn completed(&mut self, pointer: u64, now_ns: u64, start_ns: u64, io_start_ns: u64) {
        let Some(&id) = self.by_pointer.get(&pointer) else {
            return;
        };
        if self.held.contains(&id.index()) {
            return;
        }
        self.rqs[id].start = self.clock.now(start_ns);
        self.rqs[id].io_start = self.clock.now(io_start_ns);
        self.now = self.clock.now(now_ns);
        let (elevator, mut ctx) = self.ctx();
        elevator.completed_request(&mut ctx, id);
    }

    fn run_timer(&mut self) {
        while let Some(at) = self.elevator.next_timer().filter(|&at| at <= self.now) {
            let (elevator, mut ctx) = self.ctx();
            ctx.now = at;
            elevator.timer(&mut ctx);
        }
    }

    fn exit_tasks(&mut self) {
        let exiting: Vec<u32> = self.exits.before(self.at).collect();
        for pid in exiting {
            let (elevator, mut ctx) = self.ctx();
            elevator.exit_submitter(&mut ctx, SubmitterId(pid));
        }
    }

    /// The scheduler is asked; it will look at its state a little later.
    fn asked(&mut self, hctx: u64, jiffies: u64, nobody_served: bool) {
        let event = &self.events[self.at].event;
        if let Some(tasks) = &mut self.tasks {
            tasks.dispatches(event);
            let ours = self.finds_exits && nobody_served;
            if ours && self.state_of("in_service_queue") >= Some(0) {
                self.somebody_left = Some((self.answered_at, self.at));
                return;
            }
        }
        let answers = |kind: &EventKind<'_>| answer_of(self.probes, kind);
        let later = work_begins(&self.events[self.at..], self.work_ns, answers);
        self.cpu().question = Some(Question {
            entry: self.at,
            works_behind: self.at + later,
            hctx: self.setup.hctx(hctx),
            jiffies,
        });
    }

    /// Asks our scheduler what the kernel's works on from here.
    fn answer_questions(&mut self) {
        let at = self.at;
        let due = |cpu: &mut Cpu<'_>| cpu.question.take_if(|q| q.works_behind == at);
        let due: Vec<Question> = self.cpus.values_mut().filter_map(due).collect();
        for question in due {
            self.ask(question);
        }
    }

    /// The time that the task sees in this tick.
    fn task_now(&self, jiffies: u64) -> Nanos {
        self.task_now_since(self.at, jiffies)
    }

    /// The same where it does something since event `since`, in which it may
    /// have been interrupted.
    fn task_now_since(&self, since: usize, jiffies: u64) -> Nanos {
        let clock_ns = |tasks: &Tasks| tasks.clock_ns(&self.events[since].event);
        let at_ns = self.tasks.as_ref().and_then(clock_ns);
        let here_ns = self.events[self.at].event.at_ns;
        self.clock.now_in(jiffies, at_ns.unwrap_or(here_ns))
    }

    /// The event's CPU as a scheduler numbers it.
    fn cpu_number(&self) -> usize {
        let cpu = self.events[self.at].event.cpu;
        cpu.min(self.setup.nr_cpus.saturating_sub(1)) as usize
    }

    fn state_of(&self, name: &str) -> Option<i64> {
        let state = self.elevator.debug_state();
        state.iter().find(|(n, _)| *n == name).map(|&(_, v)| v)
    }

    fn step(&mut self, step: ProbeEvent) {
        match step {
            ProbeEvent::InsertCall { hctx, at_head } => {
                let hctx = self.setup.hctx(hctx);
                let cpu = self.cpu();
                (cpu.hctx, cpu.at_head) = (hctx, at_head);
            }
            ProbeEvent::Ask {
                hctx,
                jiffies,
                nobody_served,
            } => self.asked(hctx, jiffies, nobody_served),
            ProbeEvent::Answer(answer) => self.answered(answer),
            ProbeEvent::BioMerged {
                rq,
                sector,
                bytes,
                side,
            } => self.bio_merged(rq, sector, bytes, side),
            ProbeEvent::RqMerged { rq, sector, next } => self.rq_merged(rq, sector, next),
            ProbeEvent::Completed {
                rq,
                now_ns,
                start_ns,
                io_start_ns,
            } => self.completed(rq, now_ns, start_ns, io_start_ns),
            ProbeEvent::Adjusted { name, value } => {
                let ours = self.state_of(name);
                self.count("depth", ours == Some(value), || {
                    (format!("{name} {value}"), format!("{ours:?}"))
                });
            }
            ProbeEvent::Finish { rq, was_inserted } => self.finished(rq, was_inserted),
        }
    }

    fn ctx(&mut self) -> (&mut dyn Elevator, SchedCtx<'_>) {
        self.runs.clear();
        let ctx = SchedCtx {
            now: self.now,
            rqs: &mut self.rqs,
            merge: &mut self.merge,
            trace: &mut self.trace,
            runs: &mut self.runs,
        };
        (self.elevator.as_mut(), ctx)
    }

    /// `rq_ins`: the request of the line before it went into the scheduler.
    fn inserted(&mut self, pointer: u64, jiffies: u64) {
        let Some(event) = self.cpu().inserting.take() else {
            return;
        };
        let late = self.given_behind_tick.contains(&self.at);
        self.now = self.task_now(jiffies.saturating_add(late.into()));
        let id = self.insert(Some(pointer), &event);
        let alone = !self.merged_away.contains(&id);
        self.count("insert", alone, || {
            (
                format!("queued {}", extent(event.sector.0, event.sectors)),
                "merged it with another request".to_owned(),
            )
        });
        self.merged_away.clear();
    }

    fn insert(&mut self, pointer: Option<u64>, event: &RqEvent<'_>) -> RequestId {
        self.report_own_merges();
        let pid = self.events[self.at].event.pid;
        let maker = self.tasks.as_mut().and_then(|t| t.takes(pid, event));
        let maker = maker.unwrap_or(pid);
        let &mut Cpu { hctx, at_head, .. } = self.cpu();
        let bio = Bio {
            prio: priority(event),
            flags: event.rwbs.flags,
            submitter: SubmitterId(maker),
            cgroup: self.cgroups.of_task(maker),
            ..Bio::new(
                event.rwbs.op.unwrap_or(Op::WriteZeroes),
                event.sector,
                event.sectors,
            )
        };
        let mut request = Request::for_bio(&bio, self.now);
        request.segments = match bio.op {
            Op::Discard => 1,
            _ => self.merge.limits.segments_of(bio.sectors),
        };
        request.rq_flags.set(RqFlags::USE_SCHED);
        request.ctx = self.cpu_number() as u16;
        request.hctx = hctx as u16;
        // The data of a flush sequence has lost the marks of one.
        if self.sequences.remove(&bio.sector.0) || at_head {
            request.rq_flags.set(RqFlags::FLUSH_SEQ);
        }
        let at = match at_head {
            true => InsertAt::Head,
            false => InsertAt::Tail,
        };
        let id = self.rqs.insert(request);
        if let Some(stale) = pointer.and_then(|p| self.by_pointer.insert(p, id)) {
            self.overdue.push(stale);
        }
        self.inserted_by.insert(id.index(), self.at);
        self.held.insert(id.index());
        let (elevator, mut ctx) = self.ctx();
        elevator.prepare_request(&mut ctx, id);
        let mut list = RqList::new();
        list.push_back(ctx.rqs, id);
        elevator.insert_requests(&mut ctx, hctx, &mut list, at);
        self.take_merged_away();
        id
    }

    fn ask(&mut self, question: Question) {
        self.report_own_merges();
        self.now = self.task_now_since(question.entry, question.jiffies);
        let (elevator, mut ctx) = self.ctx();
        let answer = take_request(elevator, &mut ctx, question.hctx);
        if let Some(id) = answer {
            self.held.remove(&id.index());
        }
        let cpu = self.events[question.entry].event.cpu;
        self.cpus.entry(cpu).or_default().answer = Some(answer);
    }

    /// A bio joined a queued request, and no other joined that.
    fn bio_merged(&mut self, pointer: u64, sector: u64, bytes: u32, side: MergeSide) {
        let wanted = self.by_pointer.get(&pointer).copied();
        let Some(ours) = self.merge_bio(pointer, wanted) else {
            return;
        };
        let size = ours.map(|id| (self.rqs[id].sector.0, self.rqs[id].sectors));
        let same =
            ours == wanted && size == Some((sector, bytes / 512)) && self.merged_away.is_empty();
        let text = self.describe(ours);
        self.count("bio merge", same, || {
            let kernel = extent(sector, bytes / 512);
            (format!("{side:?} merge makes {kernel}"), text)
        });
    }

    /// A request joined another: behind a bio that closed the gap between them,
    /// or right at its insert.
    fn rq_merged(&mut self, pointer: u64, sector: u64, next: u64) {
        if !self.merging.contains_key(&self.events[self.at].event.pid)
            && !self.by_pointer.contains_key(&next)
        {
            // It is being inserted; its length comes with the next line.
            if let Some(event) = self.merged_next() {
                self.insert(Some(next), &event);
            }
        } else {
            // A bio in front of `next` may have let that join the one before.
            self.merge_bio(pointer, self.by_pointer.get(&next).copied());
        }
        let wanted = self.by_pointer.get(&next).copied();
        let ours = (!self.merged_away.is_empty()).then(|| self.merged_away.remove(0));
        let survivor = self.by_pointer.get(&pointer).copied();
        let at = survivor.map(|id| self.rqs[id].sector.0);
        let same = wanted.is_some() && ours == wanted && at == Some(sector);
        let text = self.describe(ours);
        self.count("request merge", same, || {
            (format!("a request joins that at {sector}"), text)
        });
    }

    /// The `block_rq_merge` that follows.
    fn merged_next(&self) -> Option<RqEvent<'r>> {
        let after = self.events[self.at + 1..].iter();
        after
            .take_while(|r| self.probes.step(&r.event.kind).is_none())
            .find_map(|r| match r.event.kind {
                EventKind::RqMerge(rq) => Some(rq),
                _ => None,
            })
    }

    /// Has our scheduler merge the bio that this task merges. `None` where the
    /// trace does not tell of one. It goes in front of `found` at best.
    fn merge_bio(&mut self, pointer: u64, found: Option<RequestId>) -> Option<Option<RequestId>> {
        self.report_own_merges();
        let pid = self.events[self.at].event.pid;
        let event = self.merging.remove(&pid)?;
        // A bio's line has no priority; it merges only with its own.
        let prio = self.by_pointer.get(&pointer).map(|&id| self.rqs[id].prio);
        let op = event.rwbs.op.unwrap_or(Op::WriteZeroes);
        let bio = Bio {
            prio: prio.unwrap_or_default(),
            flags: event.rwbs.flags,
            submitter: SubmitterId(pid),
            ..Bio::new(op, event.sector, event.sectors)
        };
        let serial = found.map(|id| self.rqs[id].serial);
        self.hint.merges_into(serial);
        let (elevator, mut ctx) = self.ctx();
        let merged = elevator.bio_merge(&mut ctx, 0, &bio);
        self.take_merged_away();
        Some(merged)
    }

    /// Requests of ours that merged where the kernel's did not.
    fn report_own_merges(&mut self) {
        for id in std::mem::take(&mut self.merged_away) {
            let text = self.describe(Some(id));
            self.count("request merge", false, || ("no merge".to_owned(), text));
        }
    }

    fn finished(&mut self, pointer: u64, was_inserted: bool) {
        let Some(id) = self.by_pointer.remove(&pointer) else {
            return;
        };
        if !was_inserted {
            return;
        }
        if self.held.contains(&id.index()) {
            self.overdue.push(id);
        } else {
            self.free(id);
        }
    }

    fn free(&mut self, id: RequestId) {
        let (elevator, mut ctx) = self.ctx();
        elevator.finish_request(&mut ctx, id);
        self.rqs.remove(id);
    }

    /// Notes which requests our scheduler has just made part of others.
    fn take_merged_away(&mut self) {
        self.merge.take_merged_away(&mut self.merged_away);
        for id in &self.merged_away {
            self.held.remove(&id.index());
        }
    }
}
