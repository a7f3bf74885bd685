//! Events of our own block layer as the kernel would tell them.

use blklab_blk::{TraceEvent, TraceKind};

use super::event::*;
use crate::trace::rwbs::Rwbs;

impl<'a> Event<'a> {
    /// What the kernel would tell of an event on the drive `dev`, submitted by
    /// `task`, whose process id is the submitter's number. `None` for what the
    /// kernel has no trace event for: the calls of a scheduler.
    pub fn of_model(event: &TraceEvent, dev: Dev, task: &'a str) -> Option<Event<'a>> {
        let rwbs = Rwbs {
            op: Some(event.op),
            flags: event.flags,
        };
        let bio = BioEvent {
            dev,
            rwbs,
            sector: event.sector,
            sectors: event.sectors,
            comm: task,
        };
        let request = RqEvent {
            dev,
            rwbs,
            bytes: event.sectors << 9,
            cmd: "",
            sector: event.sector,
            sectors: event.sectors,
            prio: RqPrio::default(),
            comm: task,
        };
        let end = |error| RqEnd {
            dev,
            rwbs,
            sector: event.sector,
            sectors: event.sectors,
            prio: RqPrio::default(),
            error,
        };
        let kind = match event.kind {
            TraceKind::BioQueue => EventKind::BioQueue(bio),
            TraceKind::BioBackMerge => EventKind::BioBackmerge(bio),
            TraceKind::BioFrontMerge => EventKind::BioFrontmerge(bio),
            TraceKind::GetRq => EventKind::GetRq(bio),
            TraceKind::Plug => EventKind::Plug { comm: task },
            TraceKind::Unplug(requests) => EventKind::Unplug {
                comm: task,
                requests,
            },
            TraceKind::RqInsert => EventKind::RqInsert(request),
            TraceKind::RqMerge => EventKind::RqMerge(request),
            TraceKind::RqIssue => EventKind::RqIssue(request),
            TraceKind::RqRequeue => EventKind::RqRequeue(end(0)),
            TraceKind::RqComplete(status) => EventKind::RqComplete(end(-status.errno())),
            TraceKind::Ask(_) | TraceKind::Dispatch | TraceKind::DispatchNone => return None,
        };
        Some(Event {
            task,
            pid: event.submitter,
            cpu: u32::from(event.cpu),
            irq: false,
            need_resched: false,
            at_ns: event.at.0,
            kind,
        })
    }
}
