//! Writes events in blktrace's binary format, converted as in the kernel's kernel/trace/blktrace.c.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use blklab_blk::{BioFlags, Op};

use super::{
    AHEAD, DISCARD, FLUSH, FS, FUA, MAGIC, META, PC, READ, RECORD_BYTES, SYNC, VERSION, WRITE,
    action,
};
use crate::trace::tracefs::{BioEvent, Dev, Event, EventKind, RqEnd, RqEvent};
use crate::trace::{Rwbs, device_number};

/// The size of a task's name with its terminating zero (`TASK_COMM_LEN`).
const COMM_BYTES: usize = 16;

/// The contents of an event, apart from its place and time.
#[derive(Clone, Copy, Default)]
struct Body {
    action: u32,
    device: u32,
    sector: u64,
    bytes: u32,
    error: i32,
}

/// Writes events of all CPUs in blktrace's binary format, as one stream in order of time, as
/// `blktrace -o -` does.
#[derive(Debug)]
pub struct BlktraceWriter<W> {
    to: W,
    /// The number of events of each CPU; readers look for gaps.
    sequences: BTreeMap<u32, u32>,
    /// The number of events that were lost since the last one.
    lost: u32,
    /// The processes whose names are written.
    named: BTreeSet<u32>,
    /// The drive of the last event that named one, for events such as a plug that name none.
    device: u32,
}

impl<W: Write> BlktraceWriter<W> {
    /// Makes a writer to `to` of events on the drive `dev`.
    pub fn new(to: W, dev: Dev) -> BlktraceWriter<W> {
        BlktraceWriter {
            to,
            sequences: BTreeMap::new(),
            lost: 0,
            named: BTreeSet::new(),
            device: number(dev),
        }
    }

    /// Records that `events` events were lost before the next one. The format has no record for it:
    /// the kernel leaves a gap in a CPU's sequence numbers, which blkparse counts as skips if it
    /// reads from a pipe. As the CPUs of the lost events are unknown, the gap is put on the CPU of
    /// the next event.
    pub fn lost(&mut self, events: u64) {
        let events = u32::try_from(events).unwrap_or(u32::MAX);
        self.lost = self.lost.saturating_add(events);
    }

    /// Writes one event, unless blktrace has no such event, for example a probe of a scheduler's
    /// function.
    pub fn event(&mut self, event: &Event<'_>) -> io::Result<()> {
        let Some(mut body) = body(&event.kind) else {
            return Ok(());
        };
        match event.kind.drive() {
            Some(drive) => self.device = number(drive),
            None => body.device = self.device,
        }
        if self.named.insert(event.pid) {
            self.name(event, body.device)?;
        }
        let sequence = self.sequences.entry(event.cpu).or_default();
        *sequence = sequence
            .wrapping_add(std::mem::take(&mut self.lost))
            .wrapping_add(1);
        let sequence = *sequence;
        match event.kind {
            EventKind::Unplug { requests, .. } => {
                let depth = u64::from(requests).to_be_bytes();
                self.record(event, sequence, body, &depth)
            }
            EventKind::Split { new_sector, .. } => {
                self.record(event, sequence, body, &new_sector.0.to_be_bytes())
            }
            EventKind::BioRemap(remap) | EventKind::RqRemap(remap) => {
                let mut from = number(remap.from_dev).to_be_bytes().to_vec();
                from.extend(number(remap.dev).to_be_bytes());
                from.extend(remap.from_sector.0.to_be_bytes());
                self.record(event, sequence, body, &from)
            }
            _ => self.record(event, sequence, body, &[]),
        }
    }

    /// Flushes the underlying writer.
    pub fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }

    /// Flushes and returns the underlying writer.
    pub fn finish(mut self) -> io::Result<W> {
        self.to.flush()?;
        Ok(self.to)
    }

    /// Writes a process's name.
    fn name(&mut self, event: &Event<'_>, device: u32) -> io::Result<()> {
        let mut comm = [0; COMM_BYTES];
        let name = event.task.as_bytes();
        let len = name.len().min(COMM_BYTES - 1);
        comm[..len].copy_from_slice(&name[..len]);
        let body = Body {
            action: action::PROCESS,
            device,
            ..Body::default()
        };
        self.record(event, 0, body, &comm)
    }

    fn record(
        &mut self,
        event: &Event<'_>,
        sequence: u32,
        body: Body,
        data: &[u8],
    ) -> io::Result<()> {
        let mut record = Vec::with_capacity(RECORD_BYTES + data.len());
        record.extend((MAGIC | VERSION).to_ne_bytes());
        record.extend(sequence.to_ne_bytes());
        record.extend(event.at_ns.to_ne_bytes());
        record.extend(body.sector.to_ne_bytes());
        record.extend(body.bytes.to_ne_bytes());
        record.extend(body.action.to_ne_bytes());
        record.extend(event.pid.to_ne_bytes());
        record.extend(body.device.to_ne_bytes());
        record.extend(event.cpu.to_ne_bytes());
        // The kernel stores the lower half of a negative number, too.
        record.extend((body.error as u16).to_ne_bytes());
        record.extend((data.len() as u16).to_ne_bytes());
        record.extend(data);
        self.to.write_all(&record)
    }
}

fn number(dev: Dev) -> u32 {
    device_number(dev.major, dev.minor).unwrap_or(0)
}

/// Converts an event as the kernel does; returns `None` if blktrace has no such event.
fn body(kind: &EventKind<'_>) -> Option<Body> {
    Some(match kind {
        EventKind::BioQueue(bio) => of_bio(action::QUEUE, bio),
        EventKind::BioBackmerge(bio) => of_bio(action::BACK_MERGE, bio),
        EventKind::BioFrontmerge(bio) => of_bio(action::FRONT_MERGE, bio),
        EventKind::GetRq(bio) => of_bio(action::GET_REQUEST, bio),
        EventKind::BioComplete { bio, error } => Body {
            error: *error,
            ..of_bio(action::COMPLETE, bio)
        },
        EventKind::RqInsert(rq) => of_request(action::INSERT, rq),
        EventKind::RqIssue(rq) => of_request(action::ISSUE, rq),
        EventKind::RqMerge(rq) => of_request(action::BACK_MERGE, rq),
        EventKind::RqRequeue(end) => of_end(action::REQUEUE, end),
        EventKind::RqComplete(end) => of_end(action::COMPLETE, end),
        EventKind::Plug { .. } => Body {
            action: action::PLUG | FS,
            ..Body::default()
        },
        EventKind::Unplug { .. } => Body {
            action: action::UNPLUG | FS,
            ..Body::default()
        },
        EventKind::Split {
            dev, rwbs, sector, ..
        } => Body {
            action: action::SPLIT | categories(rwbs, false),
            device: number(*dev),
            sector: sector.0,
            ..Body::default()
        },
        EventKind::BioRemap(remap) | EventKind::RqRemap(remap) => Body {
            action: action::REMAP | categories(&remap.rwbs, false),
            device: number(remap.dev),
            sector: remap.sector.0,
            bytes: remap.sectors << 9,
            error: 0,
        },
        _ => return None,
    })
}

fn of_bio(action: u32, bio: &BioEvent<'_>) -> Body {
    Body {
        action: action | categories(&bio.rwbs, false),
        device: number(bio.dev),
        sector: place(bio.sector.0),
        bytes: bio.sectors << 9,
        error: 0,
    }
}

fn of_request(action: u32, rq: &RqEvent<'_>) -> Body {
    Body {
        action: action | categories(&rq.rwbs, !rq.cmd.is_empty()),
        device: number(rq.dev),
        sector: place(rq.sector.0),
        bytes: rq.bytes,
        error: 0,
    }
}

fn of_end(action: u32, end: &RqEnd) -> Body {
    Body {
        action: action | categories(&end.rwbs, false),
        device: number(end.dev),
        sector: place(end.sector.0),
        bytes: end.sectors << 9,
        error: end.error,
    }
}

/// Returns the sector to write; a flush without data has none, which the kernel writes as 0.
fn place(sector: u64) -> u64 {
    if sector == u64::MAX { 0 } else { sector }
}

/// Returns the categories of an operation and its modifiers.
fn categories(rwbs: &Rwbs, is_passthrough: bool) -> u32 {
    let direction = match rwbs.op {
        Some(Op::Read) => READ,
        Some(Op::Flush) => READ | FLUSH,
        Some(Op::Discard) => WRITE | DISCARD,
        // `REQ_OP_WRITE_ZEROES` and `REQ_OP_ZONE_RESET` have no letter and count as writes.
        Some(Op::Write | Op::WriteZeroes | Op::Zone(_)) | None => WRITE,
    };
    let flags = [
        (BioFlags::SYNC, SYNC),
        (BioFlags::RAHEAD, AHEAD),
        (BioFlags::META, META),
        (BioFlags::PREFLUSH, FLUSH),
        (BioFlags::FUA, FUA),
    ];
    let modifiers = flags
        .iter()
        .filter(|(flag, _)| rwbs.flags.has(*flag))
        .fold(0, |all, (_, bit)| all | bit);
    direction | modifiers | if is_passthrough { PC } else { FS }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::tracefs::events;
    use std::io::Write;
    use std::process::{Command, Stdio};

    const TEXT: &str = "\
             fio-7       [001] .....     1.000000000: block_bio_queue: 259,3 WS 800 + 8 [fio]
             fio-7       [001] .....     1.000001000: block_getrq: 259,3 WS 800 + 8 [fio]
             fio-7       [001] .....     1.000001500: block_plug: [fio]
             fio-8       [000] .....     1.000002000: block_bio_backmerge: 259,3 WS 808 + 8 [fio]
             fio-7       [001] .....     1.000002500: block_unplug: [fio] 1
             fio-7       [001] .....     1.000003000: block_rq_insert: 259,3 WS 8192 () 800 + 16 none,0,0 [fio]
             fio-7       [001] .....     1.000004000: block_rq_issue: 259,3 WS 8192 () 800 + 16 none,0,0 [fio]
          <idle>-0       [000] d.h..     1.000104000: block_rq_complete: 259,3 WS () 800 + 16 none,0,0 [-5]
             fio-8       [000] .....     1.000200000: block_rq_issue: 259,3 FFSM 0 () 18446744073709551615 + 0 none,0,0 [fio]
             fio-8       [000] .....     1.000300000: block_bio_queue: 259,3 D 0 + 1024 [fio]
             fio-8       [000] .....     1.000400000: block_bio_queue: 259,3 RA 64 + 8 [fio]
             fio-8       [000] .....     1.000500000: block_split: 259,3 R 64 / 68 [fio]
";

    fn binary(text: &str) -> Vec<u8> {
        let dev = Dev {
            major: 259,
            minor: 3,
        };
        let mut writer = BlktraceWriter::new(Vec::new(), dev);
        for event in events(text, "memory") {
            writer.event(&event.unwrap()).unwrap();
        }
        writer.finish().unwrap()
    }

    #[test]
    fn records_are_as_long_as_they_say() {
        let bytes = binary(TEXT);
        let (mut at, mut actions) = (0, 0);
        while at < bytes.len() {
            assert_eq!(bytes[at..at + 4], (MAGIC | VERSION).to_ne_bytes());
            let data = u16::from_ne_bytes([bytes[at + 46], bytes[at + 47]]);
            at += RECORD_BYTES + usize::from(data);
            actions += 1;
        }
        // The names of three processes are written once each.
        assert_eq!((at, actions), (bytes.len(), TEXT.lines().count() + 3));
    }

    /// Checks the output with `blkparse`.
    #[test]
    fn blkparse_reads_what_happened() {
        let started = Command::new("blkparse")
            .args(["-i", "-", "-q", "-f", "%a %c %T.%9t %p %C %d %S %n %e\n"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let Ok(mut blkparse) = started else {
            blklab_judges::missing("blkparse");
            return;
        };
        let mut input = blkparse.stdin.take().unwrap();
        input.write_all(&binary(TEXT)).unwrap();
        drop(input);
        let output = blkparse.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        let lines: Vec<&str> = text.lines().collect();
        let expected = [
            "Q 1 0.000000000 7 fio WS 800 8 0",
            "G 1 0.000001000 7 fio WS 800 8 0",
            "P 1 0.000001500 7 fio N 0 0 0",
            "M 0 0.000002000 8 fio WS 808 8 0",
            "U 1 0.000002500 7 fio N 0 0 0",
            "I 1 0.000003000 7 fio WS 800 16 0",
            "D 1 0.000004000 7 fio WS 800 16 0",
            "C 0 0.000104000 0 <idle> WS 800 16 65531",
            "D 0 0.000200000 8 fio FNSM 0 0 0",
            "Q 0 0.000300000 8 fio D 0 1024 0",
            "Q 0 0.000400000 8 fio RA 64 8 0",
            "X 0 0.000500000 8 fio N 64 0 0",
        ];
        assert_eq!(lines, expected, "{text}\n{said}");
    }
}
