//! What the block layer does for all to see: one vocabulary for the kernel's
//! trace and for ours.

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

/// Something the block layer did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
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
    /// A plug let so many go.
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

impl Effect {
    /// What a line of the trace shows; `None` for what goes in, and for what
    /// says nothing new.
    pub(super) fn of_kernel(kind: &EventKind<'_>) -> Option<Effect> {
        Some(match kind {
            EventKind::GetRq(bio) => Effect::GetRq(Extent::of_bio(bio)),
            EventKind::BioBackmerge(bio) => Effect::BackMerge(Extent::of_bio(bio)),
            EventKind::BioFrontmerge(bio) => Effect::FrontMerge(Extent::of_bio(bio)),
            EventKind::RqMerge(rq) => Effect::RqMerge(Extent::of_rq(rq)),
            EventKind::Plug { .. } => Effect::Plug,
            EventKind::Unplug { requests, .. } => Effect::Unplug(*requests),
            EventKind::RqInsert(rq) => Effect::Insert(Extent::of_rq(rq)),
            EventKind::RqIssue(rq) => Effect::Issue(Extent::of_rq(rq)),
            EventKind::DdDisp(call) => Effect::Ask(call.busy),
            EventKind::KyDisp(call) => Effect::Ask(call.busy),
            EventKind::BfqDisp(call) => Effect::Ask(call.busy),
            EventKind::DdDispRet(ret) => Effect::Choice(ret.picked.map(|rq| rq.sector)),
            EventKind::KyDispRet(ret) => Effect::Choice(ret.picked.map(|rq| rq.sector)),
            EventKind::BfqDispRet(ret) => Effect::Choice(ret.picked.map(|rq| rq.sector)),
            _ => return None,
        })
    }

    /// What an event of our own shows.
    pub(super) fn of_ours(event: &TraceEvent) -> Option<Effect> {
        let extent = Extent::new(event.op, event.sector, event.sectors);
        Some(match event.kind {
            TraceKind::GetRq => Effect::GetRq(extent),
            TraceKind::BioBackMerge => Effect::BackMerge(extent),
            TraceKind::BioFrontMerge => Effect::FrontMerge(extent),
            TraceKind::RqMerge => Effect::RqMerge(extent),
            TraceKind::Plug => Effect::Plug,
            TraceKind::Unplug(requests) => Effect::Unplug(requests),
            TraceKind::RqInsert => Effect::Insert(extent),
            TraceKind::Ask(busy) => Effect::Ask(busy),
            TraceKind::Dispatch => Effect::Choice(Some(event.sector)),
            TraceKind::DispatchNone => Effect::Choice(None),
            TraceKind::RqIssue => Effect::Issue(extent),
            TraceKind::RqComplete(_) => Effect::SequenceEnd(extent),
            TraceKind::BioQueue | TraceKind::RqRequeue => return None,
        })
    }

    /// Whether it is the same step, though it may show another count.
    pub(super) fn is_like(&self, other: &Effect) -> bool {
        match (self, other) {
            (Effect::Ask(_), Effect::Ask(_)) | (Effect::Unplug(_), Effect::Unplug(_)) => true,
            _ => self == other,
        }
    }

    /// The kind under which it is counted.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Effect::GetRq(_) => "request",
            Effect::BackMerge(_) | Effect::FrontMerge(_) => "bio merge",
            Effect::RqMerge(_) => "request merge",
            Effect::Plug => "plug",
            Effect::Unplug(_) => "unplug",
            Effect::Insert(_) => "insert",
            Effect::Ask(_) => "call at busy",
            Effect::Choice(_) => "choice",
            Effect::Issue(_) => "issue",
            Effect::SequenceEnd(_) => "sequence end",
        }
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Effect::GetRq(extent) => write!(f, "a request for {extent}"),
            Effect::BackMerge(extent) => write!(f, "a back merge of {extent}"),
            Effect::FrontMerge(extent) => write!(f, "a front merge of {extent}"),
            Effect::RqMerge(extent) => write!(f, "a request merge of {extent}"),
            Effect::Plug => f.write_str("a plug"),
            Effect::Unplug(requests) => write!(f, "an unplug of {requests}"),
            Effect::Insert(extent) => write!(f, "an insert of {extent}"),
            Effect::Ask(busy) => write!(f, "a call at busy {busy}"),
            Effect::Choice(Some(sector)) => write!(f, "the choice of that at {sector}"),
            Effect::Choice(None) => f.write_str("no choice"),
            Effect::Issue(extent) => write!(f, "an issue of {extent}"),
            Effect::SequenceEnd(extent) => write!(f, "the end of flush sequence {extent}"),
        }
    }
}
