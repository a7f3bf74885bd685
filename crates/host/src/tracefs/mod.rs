//! Tracing of the kernel's block layer through tracefs's binary ring buffers, without blktrace,
//! BPF, debugfs or kernel headers.

mod decode;
mod format;
mod page;
#[cfg(all(test, target_endian = "little"))]
mod recorded;
mod session;
mod split;
mod text;

use blklab_blk::{IoClass, Sector};
use blklab_workload::trace::Rwbs;
use blklab_workload::trace::tracefs::{BioEvent, Dev, Event, EventKind, RqEnd, RqEvent, RqPrio};

pub use decode::{COMM_BYTES, Decoder, Kind, RequestEvent};
pub use format::{EventFormat, Field, FormatFault, PageFormat};
pub use page::{Page, PageFault, Record};
pub(crate) use session::monotonic_ns;
pub use session::{Recording, Session, Sink, check};
pub use split::Splitter;
pub(crate) use split::name as comm_name;
pub use text::TextWriter;

/// Converts an event of the task `task` to an event of tracefs text; `None` if the letters of its
/// operation are unknown.
pub fn trace_event<'a>(event: &RequestEvent, task: &'a str) -> Option<Event<'a>> {
    let letters = event.rwbs.split(|byte| *byte == 0).next()?;
    let rwbs: Rwbs = std::str::from_utf8(letters).ok()?.parse().ok()?;
    let dev = Dev::of_number(event.dev);
    let (sector, sectors) = (Sector(event.sector), (event.bytes / 512) as u32);
    let bio = BioEvent {
        dev,
        rwbs,
        sector,
        sectors,
        comm: task,
    };
    let prio = priority(event.ioprio);
    let request = RqEvent {
        dev,
        rwbs,
        bytes: event.bytes as u32,
        cmd: "",
        sector,
        sectors,
        prio,
        comm: task,
    };
    let end = RqEnd {
        dev,
        rwbs,
        sector,
        sectors,
        prio,
        error: event.error,
    };
    let kind = match event.kind {
        Kind::Queue => EventKind::BioQueue(bio),
        Kind::GetRequest => EventKind::GetRq(bio),
        Kind::BackMerge => EventKind::BioBackmerge(bio),
        Kind::FrontMerge => EventKind::BioFrontmerge(bio),
        Kind::Start => EventKind::Other(event.kind.name()),
        Kind::Insert => EventKind::RqInsert(request),
        Kind::Issue => EventKind::RqIssue(request),
        Kind::Merge => EventKind::RqMerge(request),
        Kind::Requeue => EventKind::RqRequeue(end),
        Kind::Complete => EventKind::RqComplete(end),
    };
    Some(Event {
        task,
        pid: event.pid,
        cpu: event.cpu,
        irq: false,
        need_resched: false,
        preempt_depth: 0,
        at_ns: event.at_ns,
        kind,
    })
}

/// Decodes class, hint and level, of 3, 10 and 3 bits.
fn priority(ioprio: u16) -> RqPrio {
    RqPrio {
        class: match ioprio >> 13 {
            1 => IoClass::Rt,
            2 => IoClass::Be,
            3 => IoClass::Idle,
            _ => IoClass::None,
        },
        hint: u32::from(ioprio >> 3 & 0x3ff),
        level: u32::from(ioprio & 7),
    }
}
