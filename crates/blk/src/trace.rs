//! The kernel's block tracepoints, for conformance checks and trace files.

use alloc::vec::Vec;

use crate::bio::{Bio, BioFlags, Op};
use crate::request::{IoStatus, RequestId, Requests};
use crate::units::{Nanos, Sector};

/// Kind of a tracepoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceKind {
    /// `block_bio_queue`.
    BioQueue,
    /// `block_bio_backmerge`.
    BioBackMerge,
    /// `block_bio_frontmerge`.
    BioFrontMerge,
    /// `disk_zone_wplug_add_bio`: the bio waits for an earlier write of its zone.
    ZonePlug,
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
    /// The scheduler is asked for a request, at this busy average.
    Ask(u32),
    /// The scheduler returned this request.
    Dispatch,
    /// The scheduler returned no request.
    DispatchNone,
    /// `block_rq_issue`.
    RqIssue,
    /// `block_rq_requeue`.
    RqRequeue,
    /// `block_rq_complete`, with the status.
    RqComplete(IoStatus),
}

/// A recorded tracepoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceEvent {
    /// Time of the event.
    pub at: Nanos,
    /// Kind of the event.
    pub kind: TraceKind,
    /// The request's serial number; `u64::MAX` for an event of a bio or a plug.
    pub serial: u64,
    /// Operation of the request or bio.
    pub op: Op,
    /// Flags of the request or bio.
    pub flags: BioFlags,
    /// First sector.
    pub sector: Sector,
    /// Length in sectors.
    pub sectors: u32,
    /// The CPU of the request's software queue.
    pub cpu: u16,
    /// The submitter.
    pub submitter: u32,
}

/// The time in which a CPU ran the queue's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Start of the work.
    pub start: Nanos,
    /// End of the work.
    pub end: Nanos,
    /// When the issued commands reach the drive.
    pub reached: Nanos,
}

/// A recorder of tracepoints; it is off by default and then costs one test of a flag.
#[derive(Debug, Default)]
pub struct Trace {
    on: bool,
    events: Vec<TraceEvent>,
    /// Index of the first event whose time is not final.
    untimed: usize,
}

impl Trace {
    /// Starts or stops recording.
    pub fn enable(&mut self, on: bool) {
        self.on = on;
    }

    /// Moves the recorded events to the end of `out`.
    pub fn drain_into(&mut self, out: &mut Vec<TraceEvent>) {
        out.append(&mut self.events);
        self.untimed = 0;
    }

    /// Whether recording is on.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.on
    }

    /// Makes the times of all events so far final.
    #[inline]
    pub fn set_timed(&mut self) {
        self.untimed = self.events.len();
    }

    /// Spreads the events since the last [`Trace::set_timed`] over `span`, in which a CPU did what
    /// the queue did at one moment, in proportion to the `weight` of their kinds.
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
            self.record_request(at, kind, rqs, id);
        }
    }

    #[cold]
    fn record_request(&mut self, at: Nanos, kind: TraceKind, rqs: &Requests, id: RequestId) {
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
            self.record_bio(at, kind, bio);
        }
    }

    #[cold]
    fn record_bio(&mut self, at: Nanos, kind: TraceKind, bio: &Bio) {
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

    /// Records an event of the plug that holds the request `id`.
    #[inline(always)]
    pub fn plug(&mut self, at: Nanos, kind: TraceKind, rqs: &Requests, id: RequestId) {
        if self.on {
            self.record_plug(at, kind, rqs, id);
        }
    }

    #[cold]
    fn record_plug(&mut self, at: Nanos, kind: TraceKind, rqs: &Requests, id: RequestId) {
        self.record_mark(at, kind);
        if let Some(event) = self.events.last_mut() {
            event.cpu = rqs[id].ctx;
            event.submitter = rqs[id].submitter.0;
        }
    }

    /// Records an event of neither a request nor a bio.
    #[inline(always)]
    pub fn mark(&mut self, at: Nanos, kind: TraceKind) {
        if self.on {
            self.record_mark(at, kind);
        }
    }

    #[cold]
    fn record_mark(&mut self, at: Nanos, kind: TraceKind) {
        self.record_bio(at, kind, &Bio::new(Op::Read, Sector(0), 0));
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
