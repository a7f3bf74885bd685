//! Searching a trace for what a task does next.

use blklab_blk::{BioFlags, IoPrio};
use blklab_workload::trace::tracefs::{Event, EventKind};

use super::tracepoint::Extent;
use crate::recording::Recorded;

/// The idle task's process id.
pub(super) const IDLE: u32 = 0;

/// Lines that are looked at, at most.
const LOOK_AHEAD: usize = 20_000;

/// The lines of a trace.
#[derive(Clone, Copy)]
pub(super) struct Lines<'r> {
    events: &'r [Recorded<'r>],
}

/// Bytes of a request of null_blk with what the driver adds to it, and of a piece
/// of memory that a queue's requests lie in one behind the other.
const REQUEST_BYTES: u64 = 0x180;
const REQUESTS_BYTES: u64 = 0x1_0000;

/// The tag of a request, which its address tells where all requests of a queue with so
/// many lie in one piece.
pub(super) fn tag_of(rq: u64, nr_requests: u32) -> Option<u32> {
    let in_one_piece = u64::from(nr_requests) * REQUEST_BYTES <= REQUESTS_BYTES;
    in_one_piece.then_some((rq % REQUESTS_BYTES / REQUEST_BYTES) as u32)
}

/// What the kernel did with a bio, as far as the block layer does not decide
/// that.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BioOutcome {
    /// The event that shows it.
    pub(super) at: Option<usize>,
    /// Its task slept before.
    pub(super) sleeps: bool,
    /// Its task holds a plug.
    pub(super) plugged: bool,
    /// It was told not to wait, and so it failed.
    pub(super) refused: bool,
    /// The request it went in front of.
    pub(super) merged: Option<u64>,
}

impl<'r> Lines<'r> {
    pub(super) fn new(events: &'r [Recorded<'r>]) -> Lines<'r> {
        Lines { events }
    }

    pub(super) fn event(&self, at: usize) -> &'r Event<'r> {
        &self.events[at].event
    }

    /// All lines from `from` on, as far as one looks.
    pub(super) fn ahead(
        self,
        from: usize,
    ) -> impl DoubleEndedIterator<Item = (usize, &'r Event<'r>)> {
        let end = self.events.len().min(from.saturating_add(LOOK_AHEAD));
        (from..end).map(move |at| (at, &self.events[at].event))
    }

    /// The lines of a task from `from` on, interrupts left out.
    pub(super) fn own(self, pid: u32, from: usize) -> impl Iterator<Item = (usize, &'r Event<'r>)> {
        let lines = self.ahead(from);
        lines.filter(move |(_, event)| event.pid == pid && !event.irq)
    }

    /// Whether another task ran on this line's CPU in `range`.
    pub(super) fn others_in(&self, line: &Event<'_>, range: std::ops::Range<usize>) -> bool {
        let mut lines = self.events[range].iter().map(|recorded| &recorded.event);
        lines.any(|event| event.cpu == line.cpu && event.pid != line.pid)
    }

    /// The lines of a CPU from `from` on.
    pub(super) fn of_cpu(
        self,
        cpu: u32,
        from: usize,
    ) -> impl Iterator<Item = (usize, &'r Event<'r>)> {
        let lines = self.events.iter().enumerate().skip(from);
        let lines = lines.map(|(at, recorded)| (at, &recorded.event));
        lines.filter(move |(_, event)| event.cpu == cpu)
    }

    /// The last line of a CPU before `before`.
    pub(super) fn last_of_cpu(&self, cpu: u32, before: usize) -> Option<&'r Event<'r>> {
        let lines = self.events[..before].iter().rev().map(|r| &r.event);
        lines.into_iter().find(|event| event.cpu == cpu)
    }

    /// The line of a request that `pid` gets, where that is its first of its own from `from`
    /// on and no other task runs on its CPU before.
    pub(super) fn gets_request(&self, pid: u32, from: usize) -> Option<usize> {
        let (at, event) = self.own(pid, from).next()?;
        let gets = matches!(event.kind, EventKind::GetRq(_)) && !self.others_in(event, from..at);
        gets.then_some(at)
    }

    /// The task that issues a request, from `from` on.
    pub(super) fn issuer(&self, extent: Extent, from: usize) -> Option<u32> {
        let mut lines = self.ahead(from).map(|(_, event)| event);
        let issues = |event: &&Event<'_>| matches!(&event.kind, EventKind::RqIssue(rq) if Extent::of_rq(rq) == extent);
        lines.find(issues).map(|event| event.pid)
    }

    /// What becomes of the bio that `pid` submits before the event at `from`.
    pub(super) fn outcome(&self, pid: u32, from: usize) -> BioOutcome {
        for (at, event) in self.own(pid, from) {
            let outcome = BioOutcome {
                at: Some(at),
                sleeps: self.others_in(event, from..at),
                ..BioOutcome::default()
            };
            match event.kind {
                EventKind::GetRq(_) => {
                    let plugged = self.plugs_next(pid, at);
                    return BioOutcome { plugged, ..outcome };
                }
                EventKind::BioBackmerge(_) | EventKind::ZwPlug { held: true, .. } => {
                    return outcome;
                }
                EventKind::BioFrontmerge(_) => {
                    let merged = self.merged_into(pid, at);
                    return BioOutcome { merged, ..outcome };
                }
                EventKind::BioQueue(_) => {
                    let refused = true;
                    return BioOutcome { refused, ..outcome };
                }
                _ => {}
            }
        }
        BioOutcome::default()
    }

    /// The address of the request that was made for a bio of this task by the line at `at`.
    pub(super) fn request_made(&self, pid: u32, at: usize) -> Option<u64> {
        let EventKind::GetRq(bio) = &self.event(at).kind else {
            return None;
        };
        let mut own = self.own(pid, at + 1);
        own.find_map(|(_, event)| match event.kind {
            EventKind::RqIns { rq, sector, .. } if sector == bio.sector => Some(rq),
            _ => None,
        })
    }

    /// Modifiers that a bio's line does not show, but that of throttling does.
    pub(super) fn unshown_flags(&self, pid: u32, from: usize) -> BioFlags {
        let call = self.own(pid, from).find_map(|(_, event)| match event.kind {
            EventKind::WbtWait(call) => Some(call.opf),
            EventKind::BioQueue(_) | EventKind::GetRq(_) => Some(None),
            _ => None,
        });
        let opf = call.flatten().unwrap_or(0);
        let bits = [(15, BioFlags::IDLE), (20, BioFlags::BACKGROUND)];
        let set = bits.iter().filter(|(bit, _)| opf >> bit & 1 == 1);
        set.fold(BioFlags::NONE, |all, &(_, flag)| all.with(flag))
    }

    /// Whether the task's first request from `from` on opens a plug.
    pub(super) fn plugs_next(&self, pid: u32, from: usize) -> bool {
        let mut own = self.own(pid, from);
        own.any(|(_, event)| matches!(event.kind, EventKind::GetRq(_)));
        let next = own.next();
        next.is_some_and(|(_, event)| matches!(event.kind, EventKind::Plug { .. }))
    }

    /// The request that a front merge at `from` found.
    fn merged_into(&self, pid: u32, from: usize) -> Option<u64> {
        let (_, event) = self.own(pid, from + 1).next()?;
        match event.kind {
            EventKind::DdBmerged { rq, .. } => Some(rq),
            EventKind::DdRqmerged { next, .. } => Some(next),
            _ => None,
        }
    }

    /// A bio's line does not tell its priority; that of its request does.
    pub(super) fn prio_of(&self, from: usize, extent: Extent) -> IoPrio {
        let mut requests = self.ahead(from).filter_map(|(_, event)| match &event.kind {
            EventKind::RqInsert(rq) | EventKind::RqIssue(rq) => Some(rq),
            _ => None,
        });
        let rq = requests.find(|rq| Extent::of_rq(rq).covers(&extent));
        rq.map_or(IoPrio::default(), |rq| IoPrio {
            class: rq.prio.class,
            level: rq.prio.level as u8,
        })
    }
}
