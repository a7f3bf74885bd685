//! A scheduler in the module `blklab-iosched`: each call of it in a real kernel is made of ours
//! too, in the same order and with the same arguments.
//!
//! Compared are the answers, the state after each choice, and what the module tells of a
//! request with the kernel's own event of its insert. A call that ours cannot take, for
//! instance of a request that it does not hold, is a difference.

use std::collections::BTreeMap;
use std::fmt::Display;

use blklab_blk::{
    Bio, BioFlags, Elevator, InsertAt, IoClass, IoPrio, MergeKind, MergeState, Nanos, NoMerges, Op,
    QueueLimits, Request, RequestId, Requests, RqFlags, SchedCtx, SubmitterId, Trace, take_request,
};
use blklab_workload::trace::tracefs::{BlklabCall, EventKind, RqEvent};

use crate::ConformError;
use crate::clock::LATEST_NS;
use crate::recording::{Recorded, Recording};
use crate::report::{Difference, TraceReport};
use crate::setup::Setup;
use crate::tasks::priority;

/// The flags that the kernel's events show.
const SHOWN_FLAGS: BioFlags = BioFlags::SYNC
    .with(BioFlags::META)
    .with(BioFlags::FUA)
    .with(BioFlags::PREFLUSH)
    .with(BioFlags::RAHEAD);

/// Whether the trace is one of the module's.
pub(super) fn are_in(events: &[Recorded<'_>]) -> bool {
    let is_call = |r: &Recorded<'_>| matches!(r.event.kind, EventKind::BlklabCall(_));
    events.iter().any(is_call)
}

/// Compares one trace.
pub(super) fn compare(
    recording: &Recording,
    scheduler: &str,
    events: &[Recorded<'_>],
) -> Result<TraceReport, ConformError> {
    let mut calls = Calls::new(recording, scheduler, events)?;
    for recorded in events {
        match recorded.event.kind {
            EventKind::RqInsert(rq) => {
                calls.inserting.insert(recorded.event.cpu, rq);
            }
            EventKind::BlklabCall(call) => calls.call(recorded, &call),
            _ => {}
        }
    }
    Ok(calls.report)
}

/// Where a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Queued,
    WithDrive,
    Requeued,
    MergedAway,
}

struct Calls<'r> {
    elevator: Box<dyn Elevator>,
    rqs: Requests,
    merge: MergeState,
    trace: Trace,
    /// Hardware contexts that the scheduler wants run; not used, as the calls show the runs.
    runs: Vec<u16>,
    nr_hw_queues: u16,
    nr_cpus: u16,
    places: BTreeMap<u32, Place>,
    /// The kernel's own event of the insert that comes next, by CPU.
    inserting: BTreeMap<u32, RqEvent<'r>>,
    at: &'r Recorded<'r>,
    report: TraceReport,
}

fn number(id: Option<RequestId>) -> u32 {
    id.map_or(0, |id| id.index() as u32 + 1)
}

fn name(number: u32) -> String {
    match number {
        0 => "none".to_owned(),
        number => format!("request {number}"),
    }
}

fn time(ns: u64) -> Nanos {
    Nanos(ns.min(LATEST_NS))
}

fn bio_of(call: &BlklabCall<'_>) -> Bio {
    let op = match call.op {
        0 => Op::Read,
        1 => Op::Write,
        2 => Op::Flush,
        3 => Op::Discard,
        _ => Op::WriteZeroes,
    };
    let class = match call.class {
        1 => IoClass::Rt,
        2 => IoClass::Be,
        3 => IoClass::Idle,
        _ => IoClass::None,
    };
    Bio {
        flags: BioFlags(call.flags),
        submitter: SubmitterId(call.submitter),
        prio: IoPrio {
            class,
            level: call.level.min(7),
        },
        ..Bio::new(op, call.sector, call.sectors)
    }
}

impl<'r> Calls<'r> {
    fn new(
        recording: &Recording,
        scheduler: &str,
        events: &'r [Recorded<'r>],
    ) -> Result<Calls<'r>, ConformError> {
        let mut report = TraceReport::new(recording.file.clone());
        let setup = Setup::of(recording, events, &mut report.notes);
        let elevator = setup.elevator(scheduler, &recording.file, &mut report.notes)?;
        Ok(Calls {
            elevator,
            rqs: Requests::default(),
            merge: MergeState::of_kernel(QueueLimits {
                capacity_sectors: setup.limits.capacity_sectors,
                max_sectors: setup.limits.max_sectors,
                rotational: setup.limits.rotational,
                nomerges: NoMerges::Never,
                ..QueueLimits::default()
            }),
            trace: Trace::default(),
            runs: Vec::new(),
            nr_hw_queues: setup.nr_hw_queues as u16,
            nr_cpus: setup.nr_cpus as u16,
            places: BTreeMap::new(),
            inserting: BTreeMap::new(),
            at: &events[0],
            report,
        })
    }

    /// Makes the call of ours.
    fn call(&mut self, recorded: &'r Recorded<'r>, call: &BlklabCall<'r>) {
        self.at = recorded;
        if !self.can_take(call) {
            let kernel = format!("{} of {}", call.hook, name(call.rq));
            return self.compare("call", kernel, "does not fit what it holds".to_owned());
        }
        let (bio, id) = (bio_of(call), call.rq.checked_sub(1));
        let id = id.map(|index| RequestId::from_index(index as usize));
        match (call.hook, id) {
            ("insert", id) => self.insert(call, &bio, id),
            ("dispatch", _) => self.dispatch(call),
            ("limit_depth", _) => {
                let ours = self.elevator.limit_depth_for(&bio).unwrap_or(0);
                self.compare("depth", call.answer, ours);
            }
            ("bio_merge", _) => {
                let cpu = call.cpu.into();
                let ours = self.with(call, |e, ctx| e.bio_merge(ctx, cpu, &bio));
                self.compare("bio merge", name(call.answer), name(number(ours)));
            }
            ("request_merge", _) => {
                let ours = match self.with(call, |e, ctx| e.request_merge(ctx, &bio)) {
                    Some((id, MergeKind::Front)) => Some(id),
                    _ => None,
                };
                self.compare("bio merge", name(call.answer), name(number(ours)));
            }
            ("timer", _) => {
                let is_due = self.elevator.next_timer() <= Some(time(call.now_ns));
                let ours = is_due && self.with(call, |e, ctx| e.timer(ctx));
                self.compare("timer", call.answer == 1, ours);
            }
            ("exit_submitter", _) => {
                self.with(call, |e, ctx| e.exit_submitter(ctx, bio.submitter));
            }
            (_, Some(id)) => self.call_about(call, &bio, id),
            (_, None) => {}
        }
    }

    /// A call about a request that the scheduler knows.
    fn call_about(&mut self, call: &BlklabCall<'_>, bio: &Bio, id: RequestId) {
        match call.hook {
            "allow_merge" => {
                let ours = self.with(call, |e, ctx| e.allow_merge(ctx, id, bio));
                self.compare("bio merge", call.answer == 1, ours);
            }
            "request_merged" => {
                self.update(id, call);
                let kinds = [MergeKind::Back, MergeKind::Front];
                let kind = kinds[usize::from(call.other == 1)];
                self.with(call, |e, ctx| e.request_merged(ctx, id, kind));
            }
            "requests_merged" => {
                self.update(id, call);
                let next = RequestId::from_index(call.other as usize - 1);
                self.with(call, |e, ctx| e.requests_merged(ctx, id, next));
                self.places.insert(call.other, Place::MergedAway);
            }
            "former" => {
                let ours = self.with(call, |e, ctx| e.former_request(ctx, id));
                self.compare("neighbour", name(call.answer), name(number(ours)));
            }
            "next" => {
                let ours = self.with(call, |e, ctx| e.next_request(ctx, id));
                self.compare("neighbour", name(call.answer), name(number(ours)));
            }
            "requeue" => {
                self.with(call, |e, ctx| e.requeue_request(ctx, id));
                self.places.insert(call.rq, Place::Requeued);
            }
            // It can only be "finish".
            _ => {
                self.with(call, |e, ctx| {
                    if call.other == 1 {
                        e.completed_request(ctx, id);
                    }
                    e.finish_request(ctx, id);
                });
                self.rqs.remove(id);
                self.places.remove(&call.rq);
            }
        }
    }

    /// Whether our scheduler can be called so.
    fn can_take(&self, call: &BlklabCall<'_>) -> bool {
        let place = |rq: u32| self.places.get(&rq).copied();
        let is_queued = |rq: u32| place(rq) == Some(Place::Queued);
        if call.hctx >= self.nr_hw_queues || call.cpu >= self.nr_cpus {
            return false;
        }
        match call.hook {
            "insert" => call.rq == 0 || place(call.rq) == Some(Place::Requeued),
            "limit_depth" | "dispatch" | "bio_merge" | "request_merge" | "timer"
            | "exit_submitter" => true,
            "allow_merge" | "request_merged" | "former" | "next" => is_queued(call.rq),
            "requests_merged" => {
                call.rq != call.other && is_queued(call.rq) && is_queued(call.other)
            }
            "requeue" => place(call.rq) == Some(Place::WithDrive),
            "finish" => place(call.rq).is_some_and(|place| place != Place::Queued),
            _ => false,
        }
    }

    fn insert(&mut self, call: &BlklabCall<'r>, bio: &Bio, known: Option<RequestId>) {
        self.compare_with_event(bio);
        let id = match known {
            Some(id) => {
                self.update(id, call);
                id
            }
            None => {
                let mut request = Request::for_bio(bio, time(call.start_ns));
                (request.ctx, request.hctx) = (call.cpu, call.hctx);
                self.rqs.insert(request)
            }
        };
        let at = match call.other {
            1 => InsertAt::Head,
            _ => InsertAt::Tail,
        };
        self.with(call, |e, ctx| {
            if known.is_none() {
                e.prepare_request(ctx, id);
            }
            e.insert_request(ctx, call.hctx.into(), id, at);
        });
        self.places.insert(number(Some(id)), Place::Queued);
        let hashed = match self.rqs[id].rq_flags.has(RqFlags::HASHED) {
            true => "hashed",
            false => "",
        };
        let text = |number, hashed: &str| format!("{} {hashed}", name(number));
        let ours = text(number(Some(id)), hashed);
        self.compare("insert", text(call.answer, call.state), ours);
    }

    /// What the scheduler is told of the request is what the kernel's event says.
    fn compare_with_event(&mut self, bio: &Bio) {
        let Some(event) = self.inserting.remove(&self.at.event.cpu) else {
            return;
        };
        let shown = |op, flags: BioFlags, prio: IoPrio, sector, sectors| {
            let flags = flags.0 & SHOWN_FLAGS.0;
            format!("{op:?} {sector} + {sectors}, flags {flags:#x}, {prio:?}")
        };
        let op = event.rwbs.op.unwrap_or(Op::WriteZeroes);
        let (flags, prio) = (event.rwbs.flags, priority(&event));
        let kernel = shown(op, flags, prio, event.sector, event.sectors);
        let ours = shown(bio.op, bio.flags, bio.prio, bio.sector, bio.sectors);
        self.compare("request", kernel, ours);
    }

    fn dispatch(&mut self, call: &BlklabCall<'_>) {
        let ours = self.with(call, |e, ctx| take_request(e, ctx, call.hctx.into()));
        let mut state = String::new();
        if let Some(id) = ours {
            self.rqs[id].io_start = time(call.now_ns);
            self.places.insert(number(ours), Place::WithDrive);
            state = format!("fifo={} ", self.rqs[id].fifo_time.0);
        }
        for (name, value) in self.elevator.debug_state() {
            state += &format!("{name}={value} ");
        }
        let kind = if call.answer == 0 { "none" } else { "choice" };
        self.compare(kind, name(call.answer), name(number(ours)));
        if !state.is_empty() {
            self.compare("state", call.state, state.trim_end());
        }
    }

    /// The request has grown, or is told anew.
    fn update(&mut self, id: RequestId, call: &BlklabCall<'_>) {
        let rq = &mut self.rqs[id];
        (rq.sector, rq.sectors) = (call.sector, call.sectors);
    }

    fn with<R>(
        &mut self,
        call: &BlklabCall<'_>,
        hook: impl FnOnce(&mut dyn Elevator, &mut SchedCtx<'_>) -> R,
    ) -> R {
        self.runs.clear();
        let mut ctx = SchedCtx {
            now: time(call.now_ns),
            rqs: &mut self.rqs,
            merge: &mut self.merge,
            trace: &mut self.trace,
            runs: &mut self.runs,
        };
        hook(self.elevator.as_mut(), &mut ctx)
    }

    fn compare<T: PartialEq + Display>(&mut self, kind: &'static str, kernel: T, ours: T) {
        let state = || {
            let state = self.elevator.debug_state();
            state
                .iter()
                .map(|(name, value)| format!("{name} {value}"))
                .collect()
        };
        self.report.count(kind, kernel == ours, || Difference {
            line: self.at.line,
            at_ns: self.at.event.at_ns,
            kind,
            kernel: kernel.to_string(),
            ours: ours.to_string(),
            state: state(),
        });
    }
}
