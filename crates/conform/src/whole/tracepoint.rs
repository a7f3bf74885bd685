//! What block tracepoints show, in one form for the kernel's trace and for ours.

use std::fmt;

use blklab_blk::{Op, Sector, TraceEvent, TraceKind};
use blklab_workload::trace::tracefs::{BioEvent, EventKind, RqEnd, RqEvent};

/// An operation and its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) op: Op,
    pub(super) sector: Sector,
    pub(super) sectors: u32,
}

impl Extent {
    pub(super) fn of_bio(bio: &BioEvent<'_>) -> Extent {
        let op = bio.rwbs.op.unwrap_or(Op::WriteZeroes);
        Extent::new(op, bio.sector, bio.sectors)
    }

    pub(super) fn of_rq(rq: &RqEvent<'_>) -> Extent {
        let op = rq.rwbs.op.unwrap_or(Op::WriteZeroes);
        Extent::new(op, rq.sector, rq.sectors)
    }

    pub(super) fn of_end(rq: &RqEnd) -> Extent {
        let op = rq.rwbs.op.unwrap_or(Op::WriteZeroes);
        Extent::new(op, rq.sector, rq.sectors)
    }

    /// The drive's flush command has no place, though the trace shows one.
    pub(super) fn new(op: Op, sector: Sector, sectors: u32) -> Extent {
        let sector = if op == Op::Flush { Sector(0) } else { sector };
        // Both have the letter N.
        let op = match op {
            Op::Zone(_) => Op::WriteZeroes,
            op => op,
        };
        Extent {
            op,
            sector,
            sectors,
        }
    }

    /// Whether all of `other` is part of it.
    pub(super) fn covers(&self, other: &Extent) -> bool {
        let end = |e: &Extent| e.sector.0.saturating_add(u64::from(e.sectors));
        self.op == other.op && self.sector <= other.sector && end(self) >= end(other)
    }
}

impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {} + {}", self.op, self.sector, self.sectors)
    }
}

/// What a tracepoint shows the block layer to have done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tracepoint {
    /// A bio that starts here waits for an earlier write of its zone.
    ZonePlug(Sector),
    /// A bio got a request.
    GetRq(Extent),
    /// A bio joined the end of a request.
    BackMerge(Extent),
    /// A bio joined the start of a request.
    FrontMerge(Extent),
    /// A request joined another.
    RqMerge(Extent),
    /// A plug got its first request.
    Plug,
    /// A plug let this many go.
    Unplug(u32),
    /// A request was inserted.
    Insert(Extent),
    /// The scheduler was asked, at this busy average.
    Ask(u32),
    /// It chose the request that starts here, or none.
    Choice(Option<Sector>),
    /// A request went to the driver.
    Issue(Extent),
    /// A flush sequence ended.
    SequenceEnd(Extent),
}

impl Tracepoint {
    /// Of a line of the kernel's trace; `None` for what is given and for what
    /// another line shows too.
    pub(super) fn of_kernel(kind: &EventKind<'_>) -> Option<Tracepoint> {
        Some(match kind {
            EventKind::ZwPlug {
                sector, held: true, ..
            } => Tracepoint::ZonePlug(*sector),
            EventKind::GetRq(bio) => Tracepoint::GetRq(Extent::of_bio(bio)),
            EventKind::BioBackmerge(bio) => Tracepoint::BackMerge(Extent::of_bio(bio)),
            EventKind::BioFrontmerge(bio) => Tracepoint::FrontMerge(Extent::of_bio(bio)),
            EventKind::RqMerge(rq) => Tracepoint::RqMerge(Extent::of_rq(rq)),
            EventKind::Plug { .. } => Tracepoint::Plug,
            EventKind::Unplug { requests, .. } => Tracepoint::Unplug(*requests),
            EventKind::RqInsert(rq) => Tracepoint::Insert(Extent::of_rq(rq)),
            EventKind::RqIssue(rq) => Tracepoint::Issue(Extent::of_rq(rq)),
            EventKind::DdDisp(call) => Tracepoint::Ask(call.busy),
            EventKind::KyDisp(call) => Tracepoint::Ask(call.busy),
            EventKind::BfqDisp(call) => Tracepoint::Ask(call.busy),
            EventKind::DdDispRet(ret) => Tracepoint::Choice(ret.picked.map(|rq| rq.sector)),
            EventKind::KyDispRet(ret) => Tracepoint::Choice(ret.picked.map(|rq| rq.sector)),
            EventKind::BfqDispRet(ret) => Tracepoint::Choice(ret.picked.map(|rq| rq.sector)),
            _ => return None,
        })
    }

    /// Of an event of our own queue.
    pub(super) fn of_ours(event: &TraceEvent) -> Option<Tracepoint> {
        let extent = Extent::new(event.op, event.sector, event.sectors);
        Some(match event.kind {
            TraceKind::ZonePlug => Tracepoint::ZonePlug(event.sector),
            TraceKind::GetRq => Tracepoint::GetRq(extent),
            TraceKind::BioBackMerge => Tracepoint::BackMerge(extent),
            TraceKind::BioFrontMerge => Tracepoint::FrontMerge(extent),
            TraceKind::RqMerge => Tracepoint::RqMerge(extent),
            TraceKind::Plug => Tracepoint::Plug,
            TraceKind::Unplug(requests) => Tracepoint::Unplug(requests),
            TraceKind::RqInsert => Tracepoint::Insert(extent),
            TraceKind::Ask(busy) => Tracepoint::Ask(busy),
            TraceKind::Dispatch => Tracepoint::Choice(Some(event.sector)),
            TraceKind::DispatchNone => Tracepoint::Choice(None),
            TraceKind::RqIssue => Tracepoint::Issue(extent),
            TraceKind::RqComplete(_) => Tracepoint::SequenceEnd(extent),
            TraceKind::BioQueue | TraceKind::RqRequeue => return None,
        })
    }

    /// Whether they are the same but for a count.
    pub(super) fn is_like(&self, other: &Tracepoint) -> bool {
        match (self, other) {
            (Tracepoint::Ask(_), Tracepoint::Ask(_))
            | (Tracepoint::Unplug(_), Tracepoint::Unplug(_)) => true,
            _ => self == other,
        }
    }

    /// The kind under which it is counted.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Tracepoint::ZonePlug(_) => "zone plug",
            Tracepoint::GetRq(_) => "request",
            Tracepoint::BackMerge(_) | Tracepoint::FrontMerge(_) => "bio merge",
            Tracepoint::RqMerge(_) => "request merge",
            Tracepoint::Plug => "plug",
            Tracepoint::Unplug(_) => "unplug",
            Tracepoint::Insert(_) => "insert",
            Tracepoint::Ask(_) => "call at busy",
            Tracepoint::Choice(_) => "choice",
            Tracepoint::Issue(_) => "issue",
            Tracepoint::SequenceEnd(_) => "sequence end",
        }
    }
}

impl fmt::Display for Tracepoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Tracepoint::ZonePlug(sector) => write!(f, "a wait for the zone of {sector}"),
            Tracepoint::GetRq(extent) => write!(f, "a request for {extent}"),
            Tracepoint::BackMerge(extent) => write!(f, "a back merge of {extent}"),
            Tracepoint::FrontMerge(extent) => write!(f, "a front merge of {extent}"),
            Tracepoint::RqMerge(extent) => write!(f, "a request merge of {extent}"),
            Tracepoint::Plug => f.write_str("a plug"),
            Tracepoint::Unplug(requests) => write!(f, "an unplug of {requests}"),
            Tracepoint::Insert(extent) => write!(f, "an insert of {extent}"),
            Tracepoint::Ask(busy) => write!(f, "a call at busy {busy}"),
            Tracepoint::Choice(Some(sector)) => write!(f, "the choice of that at {sector}"),
            Tracepoint::Choice(None) => f.write_str("no choice"),
            Tracepoint::Issue(extent) => write!(f, "an issue of {extent}"),
            Tracepoint::SequenceEnd(extent) => write!(f, "the end of flush sequence {extent}"),
        }
    }
}
