//! Replays a trace of the kernel's block layer: queued bios are arrivals, completed requests are
//! ends.

use blklab_blk::{BioFlags, Op};

use super::event::{EventKind, RqEnd};
use super::parse::{self, Line, parse_line};
use crate::trace::cursor::Cursor;
use crate::trace::error::Fault;
use crate::trace::format::{Format, Input, one_file};
use crate::trace::record::{
    IoEnd, Parsed, TraceRecord, WITHOUT_LETTER, checked_extent, device_number,
};

/// Parses a line of tracefs text that may be an arrival or an end.
fn item(line: &str) -> Result<Parsed, Fault> {
    let event = match parse_line(line)? {
        Line::Event(event) => event,
        Line::Skip => return Ok(Parsed::Nothing),
        Line::Lost(_) => {
            return Ok(Parsed::Skipped("gaps where the ring buffer was overrun"));
        }
    };
    let whole_line = Cursor::new(line);
    let bio = match event.kind {
        EventKind::BioQueue(bio) => bio,
        EventKind::RqComplete(end) => return Ok(request_end(event.at_ns, &end)),
        _ => return Ok(Parsed::Nothing),
    };
    let device = device_number(bio.dev.major, bio.dev.minor)
        .ok_or_else(|| whole_line.fault("device", "major,minor up to 4095,1048575"))?;
    let flags = bio.rwbs.flags;
    let record = TraceRecord {
        at_ns: event.at_ns,
        device,
        op: Op::Flush,
        sector: bio.sector,
        sectors: 0,
        pid: event.pid,
        flags: flags.without(BioFlags::PREFLUSH),
    };
    let is_flush = flags.has(BioFlags::PREFLUSH) || bio.rwbs.op == Some(Op::Flush);
    if bio.sectors == 0 && is_flush {
        return Ok(Parsed::Record(record));
    }
    let Some(op) = bio.rwbs.op else {
        return Ok(Parsed::Skipped(WITHOUT_LETTER));
    };
    let sectors = checked_extent(bio.sector.0, bio.sectors.into(), whole_line)?;
    Ok(Parsed::Record(TraceRecord {
        op,
        sectors,
        flags,
        ..record
    }))
}

/// Returns a request's end; that of a passthrough request is ignored, as it has no arrival.
fn request_end(at_ns: u64, end: &RqEnd) -> Parsed {
    let device = device_number(end.dev.major, end.dev.minor);
    let is_flush = end.sectors == 0 && end.rwbs.flags.has(BioFlags::PREFLUSH);
    let op = if is_flush {
        Some(Op::Flush)
    } else {
        end.rwbs.op
    };
    let (Some(device), Some(op)) = (device, op) else {
        return Parsed::Nothing;
    };
    let end = IoEnd {
        device,
        op,
        sector: end.sector,
        sectors: end.sectors,
    };
    Parsed::Ended { at_ns, end }
}

/// tracefs text, in which `block_bio_queue` events are the arrivals.
pub static FORMAT: Format = Format {
    name: "tracefs",
    help: "tracefs text",
    line: "task-pid [cpu] flags time: event: arguments",
    tells_ends: true,
    tells_processes: true,
    tick_ns: 1,
    write: None,
    detect: |start| {
        let line = start.first_line;
        line.starts_with("# tracer:") || parse::event(line).is_ok()
    },
    other_files: one_file,
    read: |input: Input| input.lines(item),
};
