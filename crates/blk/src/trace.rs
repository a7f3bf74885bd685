//! The kernel's block tracepoints, for checkers and trace files.

use alloc::vec::Vec;

use crate::bio::{Bio, BioFlags, Op};
use crate::request::{IoStatus, RequestId, Requests};
use crate::units::{Nanos, Sector};

/// Which tracepoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceKind {
    /// `block_bio_queue`.
    BioQueue,
    /// `block_bio_backmerge`.
    BioBackMerge,
    /// `block_bio_frontmerge`.
    BioFrontMerge,
    /// `block_getrq`.
    GetRq,
    /// `block_plug`.
    Plug,
    /// `block_unplug`, with the number of requests.
    Unplug(u32),
    /// `block_rq_insert`.
    RqInsert,
    /// `block_rq_merge`: the request that was merged into another.
    RqMerge,
    /// The scheduler is asked, at this busy average.
    Ask(u32),
    /// It named this request.
    Dispatch,
    /// It named none.
    DispatchNone,
    /// `block_rq_issue`.
    RqIssue,
    /// `block_rq_requeue`.
    RqRequeue,
    /// `block_rq_complete`, and how it went.
    RqComplete(IoStatus),
}

/// One event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceEvent {
    /// When.
    pub at: Nanos,
    /// What happened.
    pub kind: TraceKind,
    /// The request's serial number; `u64::MAX` for an event of a bio or a plug.
    pub serial: u64,
    /// Operation of the request or bio.
    pub op: Op,
    /// Modifiers.
    pub flags: BioFlags,
    /// Start.
    pub sector: Sector,
    /// Length in sectors.
    pub sectors: u32,
    /// Software queue for a request.
    pub cpu: u16,
    /// Submitter.
    pub submitter: u32,
}

/// When a CPU did what a queue did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// When it began.
    pub start: Nanos,
    /// When it was done.
    pub end: Nanos,
    /// When the drive has what the driver was given.
    pub reached: Nanos,
}

/// A recorder of events; off by default, when it costs a test of a flag.
#[derive(Debug, Default)]
pub struct Trace {
    on: bool,
    events: Vec<TraceEvent>,
    /// Events from this index on do not have their final times yet.
    untimed: usize,
}

impl Trace {
    /// Starts or stops recording.
    pub fn enable(&mut self, on: bool) {
        self.on = on;
    }

    /// Moves what was recorded to the end of `out`.
    pub fn drain_into(&mut self, out: &mut Vec<TraceEvent>) {
        out.append(&mut self.events);
        self.untimed = 0;
    }

    /// Whether it records.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.on
    }

    /// Makes the times of all events so far final.
    #[inline]
    pub fn set_timed(&mut self) {
        self.untimed = self.events.len();
    }

    /// Spreads the events since the last [`Trace::set_timed`] over `span`, the
    /// time in which a CPU did what the queue did at one moment: in proportion to
    /// the `weight` of their kinds.
    pub(crate) fn spread(
        &mut self,
        is_own: impl Fn(&TraceEvent) -> bool,
        span: &Span,
        weight: impl Fn(TraceKind) -> u64,
    ) {
        let own = |event: &&mut TraceEvent| {
            !matches!(event.kind, TraceKind::RqComplete(_)) && is_own(event)
        };
        let events = &mut self.events[self.untimed..];
        let all: u64 = events.iter_mut().filter(own).map(|e| weight(e.kind)).sum();
        let took_ns = (span.end - span.start).0;
        let mut done = 0;
        for event in events.iter_mut().filter(own) {
            done += weight(event.kind);
            let share_ns = u128::from(took_ns) * u128::from(done) / u128::from(all.max(1));
            event.at = match event.kind {
                TraceKind::RqIssue => span.reached,
                _ => span.start + Nanos(share_ns as u64),
            };
        }
    }

    /// Records an event of a request.
    #[inline(always)]
    pub fn request(&mut self, at: Nanos, kind: TraceKind, rqs: &Requests, id: RequestId) {
        if self.on {
            self.note_request(at, kind, rqs, id);
        }
    }

    #[cold]
    fn note_request(&mut self, at: Nanos, kind: TraceKind, rqs: &Requests, id: RequestId) {
        let rq = &rqs[id];
        self.events.push(TraceEvent {
            at,
            kind,
            serial: rq.serial,
            op: rq.op,
            flags: rq.flags,
            sector: rq.sector,
            sectors: rq.sectors,
            cpu: rq.ctx,
            submitter: rq.submitter.0,
        });
    }

    /// Records an event of a bio.
    #[inline(always)]
    pub fn bio(&mut self, at: Nanos, kind: TraceKind, bio: &Bio) {
        if self.on {
            self.note_bio(at, kind, bio);
        }
    }

    #[cold]
    fn note_bio(&mut self, at: Nanos, kind: TraceKind, bio: &Bio) {
        self.events.push(TraceEvent {
            at,
            kind,
            serial: u64::MAX,
            op: bio.op,
            flags: bio.flags,
            sector: bio.sector,
            sectors: bio.sectors,
            cpu: 0,
            submitter: bio.submitter.0,
        });
    }

    /// Records an event of a plug, of which `id` is a request.
    #[inline(always)]
    pub fn plug(&mut self, at: Nanos, kind: TraceKind, rqs: &Requests, id: RequestId) {
        if self.on {
            self.note_plug(at, kind, rqs, id);
        }
    }

    #[cold]
    fn note_plug(&mut self, at: Nanos, kind: TraceKind, rqs: &Requests, id: RequestId) {
        self.note_mark(at, kind);
        if let Some(event) = self.events.last_mut() {
            event.cpu = rqs[id].ctx;
            event.submitter = rqs[id].submitter.0;
        }
    }

    /// Records an event of neither a request nor a bio.
    #[inline(always)]
    pub fn mark(&mut self, at: Nanos, kind: TraceKind) {
        if self.on {
            self.note_mark(at, kind);
        }
    }

    #[cold]
    fn note_mark(&mut self, at: Nanos, kind: TraceKind) {
        self.note_bio(at, kind, &Bio::new(Op::Read, Sector(0), 0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_shared_by_weight() {
        let mut trace = Trace::default();
        trace.enable(true);
        trace.mark(Nanos(5), TraceKind::Plug);
        trace.set_timed();
        for kind in [TraceKind::GetRq, TraceKind::RqInsert, TraceKind::RqIssue] {
            trace.mark(Nanos(5), kind);
        }
        let span = Span {
            start: Nanos(100),
            end: Nanos(200),
            reached: Nanos(300),
        };
        trace.spread(
            |_| true,
            &span,
            |kind| match kind {
                TraceKind::GetRq => 1,
                TraceKind::RqInsert => 2,
                _ => 1,
            },
        );
        let mut events = Vec::new();
        trace.drain_into(&mut events);
        let at: Vec<u64> = events.iter().map(|event| event.at.0).collect();
        assert_eq!(at, [5, 125, 175, 300]);
    }
}
