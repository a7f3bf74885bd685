//! Checks with blktrace's own `blkparse` what is written, and reads a file that blktrace recorded.

use std::io::{Cursor, Write};
use std::process::Stdio;

use proptest::prelude::*;

use super::Scratch;
use blklab_blk::{BioFlags, IoClass, Op, Sector};
use blklab_workload::trace::tracefs::{BioEvent, Dev, Event, EventKind, RqEnd, RqEvent, RqPrio};
use blklab_workload::trace::{
    Action, BlktraceWriter, EventContext, Reader, Rwbs, TraceError, TraceRecord, blkparse,
    blktrace, device_number,
};

/// The size of a record without its data.
const RECORD_BYTES: usize = 48;

type Written = (EventContext<'static>, Action, Rwbs, Sector, u32);

/// Returns the events of an I/O's life, on two CPUs.
fn events() -> Vec<Written> {
    let kinds = [
        (Op::Read, BioFlags::NONE),
        (Op::Write, BioFlags::SYNC.with(BioFlags::FUA)),
        (Op::Read, BioFlags::RAHEAD.with(BioFlags::META)),
        (Op::Write, BioFlags::PREFLUSH.with(BioFlags::SYNC)),
        (Op::Discard, BioFlags::SYNC),
        (Op::Flush, BioFlags::PREFLUSH),
    ];
    let actions = [
        Action::Queue,
        Action::GetRequest,
        Action::Insert,
        Action::BackMerge,
        Action::FrontMerge,
        Action::Issue,
        Action::Requeue,
        Action::Complete(0),
    ];
    let mut sequences = [0; 2];
    let mut events = Vec::new();
    for (n, (op, flags)) in kinds.into_iter().enumerate() {
        for action in actions {
            let cpu = n % 2;
            sequences[cpu] += 1;
            let context = EventContext {
                major: DEV.major,
                minor: DEV.minor,
                cpu: cpu as u32,
                sequence: sequences[cpu],
                at_ns: events.len() as u64 * 1_000_003,
                pid: 4711 + cpu as u32,
                process: ["my fio", "kworker/1:1H"][cpu],
            };
            let rwbs = Rwbs {
                op: Some(op),
                flags,
            };
            let (sector, sectors) = match op {
                Op::Flush => (0, 0),
                _ => (8 << n, 8),
            };
            events.push((context, action, rwbs, Sector(sector), sectors));
        }
    }
    events
}

const DEV: Dev = Dev {
    major: 259,
    minor: 3,
};

fn kind(written: &Written) -> EventKind<'static> {
    let (context, action, rwbs, sector, sectors) = *written;
    let bio = BioEvent {
        dev: DEV,
        rwbs,
        sector,
        sectors,
        comm: context.process,
    };
    let prio = RqPrio {
        class: IoClass::None,
        hint: 0,
        level: 0,
    };
    let request = RqEvent {
        dev: DEV,
        rwbs,
        bytes: sectors * 512,
        cmd: "",
        sector,
        sectors,
        prio,
        comm: context.process,
    };
    let end = |error| RqEnd {
        dev: DEV,
        rwbs,
        sector,
        sectors,
        prio,
        error,
    };
    match action {
        Action::Queue => EventKind::BioQueue(bio),
        Action::GetRequest => EventKind::GetRq(bio),
        Action::Insert => EventKind::RqInsert(request),
        Action::BackMerge => EventKind::BioBackmerge(bio),
        Action::FrontMerge => EventKind::BioFrontmerge(bio),
        Action::Issue => EventKind::RqIssue(request),
        Action::Requeue => EventKind::RqRequeue(end(0)),
        Action::Complete(error) => EventKind::RqComplete(end(error)),
    }
}

fn binary(events: &[Written]) -> Vec<u8> {
    let mut writer = BlktraceWriter::new(Vec::new(), DEV);
    events
        .iter()
        .for_each(|written| write(&mut writer, written));
    writer.finish().expect("memory takes it")
}

fn write(writer: &mut BlktraceWriter<Vec<u8>>, written: &Written) {
    let done = writer.event(&Event {
        task: written.0.process,
        pid: written.0.pid,
        cpu: written.0.cpu,
        irq: false,
        need_resched: false,
        preempt_depth: 0,
        at_ns: written.0.at_ns,
        kind: kind(written),
    });
    done.expect("memory takes it");
}

/// Returns the lines that blkparse prints of files, or of its standard input.
fn blkparsed(place: &Scratch, options: &[&str], bytes: Option<&[u8]>) -> Option<Vec<String>> {
    let mut command = place.command("blkparse");
    command
        .args(options)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let Ok(mut child) = command.stdin(Stdio::piped()).spawn() else {
        blklab_judges::missing("blkparse");
        return None;
    };
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(bytes.unwrap_or_default()).unwrap();
    drop(stdin);
    let done = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(said, "", "blkparse complains");
    let text = String::from_utf8_lossy(&done.stdout);
    Some(text.lines().map(str::to_owned).collect())
}

/// Returns the events that blkparse prints before its statistics.
fn events_of(mut lines: Vec<String>) -> Vec<String> {
    let events = lines.iter().position(|line| line.starts_with("CPU"));
    lines.truncate(events.unwrap_or(lines.len()));
    lines
}

#[test]
fn blkparse_counts_what_was_lost() {
    let mut writer = BlktraceWriter::new(Vec::new(), DEV);
    let events = events();
    let of_a_cpu = events.iter().filter(|written| written.0.cpu == 0);
    for (n, written) in of_a_cpu.enumerate() {
        if n == 2 {
            writer.lost(7);
        }
        write(&mut writer, written);
    }
    let place = Scratch::new();
    let bytes = writer.finish().unwrap();
    if let Some(lines) = blkparsed(&place, &["-i", "-"], Some(&bytes)) {
        let skips = lines.iter().find(|line| line.starts_with("Skips"));
        assert!(skips.is_some_and(|s| s.contains("(7")), "{skips:?}");
    }
}

#[test]
fn blkparse_prints_what_our_own_text_says() {
    let events = events();
    let mut ours = String::new();
    for (context, action, rwbs, sector, sectors) in &events {
        blkparse::write_event(&mut ours, context, *action, *rwbs, *sector, *sectors).unwrap();
    }
    let ours: Vec<&str> = ours.lines().collect();
    let place = Scratch::new();
    for cpu in [0, 1] {
        let events: Vec<_> = events.iter().filter(|e| e.0.cpu == cpu).copied().collect();
        place.write_bytes(&format!("t.blktrace.{cpu}"), &binary(&events));
    }
    if let Some(theirs) = blkparsed(&place, &["-i", "t"], None) {
        assert_eq!(events_of(theirs), ours);
    }
    if let Some(theirs) = blkparsed(&place, &["-i", "-"], Some(&binary(&events))) {
        assert_eq!(events_of(theirs), ours);
    }
}

fn read(bytes: Vec<u8>) -> Result<Vec<TraceRecord>, TraceError> {
    Reader::new(Cursor::new(bytes), "t.blktrace.0", None)?.collect()
}

#[test]
fn files_of_all_cpus_are_read_as_one() {
    let place = Scratch::new();
    let (even, odd): (Vec<_>, Vec<_>) = events().into_iter().partition(|e| e.0.cpu == 0);
    place.write_bytes("t.blktrace.0", &binary(&even));
    place.write_bytes("t.blktrace.1", &binary(&odd));
    for cpu in ["t.blktrace.0", "t.blktrace.1"] {
        let reader = blklab_workload::trace::open(&place.path(cpu), None).unwrap();
        assert_eq!(reader.format(), &blktrace::FORMAT);
        let records: Result<Vec<_>, _> = reader.collect();
        let whole = read(binary(&events())).unwrap();
        assert_eq!(records.unwrap(), whole);
        let sectors: Vec<u64> = whole.iter().map(|r| r.sector.0).collect();
        assert_eq!(sectors, [8, 16, 32, 64, 128, 0]);
    }
}

#[test]
fn the_other_byte_order_is_read() {
    let mut bytes = binary(&events());
    let mut at = 0;
    while at < bytes.len() {
        let data = usize::from(u16::from_ne_bytes([bytes[at + 46], bytes[at + 47]]));
        let fields = [4, 4, 8, 8, 4, 4, 4, 4, 4, 2, 2];
        let mut field = at;
        for size in fields {
            bytes[field..field + size].reverse();
            field += size;
        }
        at += RECORD_BYTES + data;
    }
    assert_eq!(read(bytes).unwrap(), read(binary(&events())).unwrap());
}

#[test]
fn without_queued_ios_those_issued_count() {
    let mut events = events();
    events.retain(|event| event.1 != Action::Queue);
    assert_eq!(read(binary(&events)).unwrap().len(), 6);
}

#[test]
fn damage_is_reported_with_its_place() {
    let whole = binary(&events());
    let cut = read(whole[..whole.len() - 7].to_vec())
        .unwrap_err()
        .to_string();
    assert!(cut.contains("was cut"), "{cut}");
    assert!(cut.starts_with("t.blktrace.0: at byte "), "{cut}");
    let mut other = whole.clone();
    // The error is in the record after the first, which is a name with 16 bytes.
    other[RECORD_BYTES + 16] = 8;
    let error = read(other).unwrap_err().to_string();
    assert!(
        error.contains("at byte 64") && error.contains("version 7"),
        "{error}"
    );
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(
        ios in prop::collection::vec((0..4_u8, 1..4096_u32, any::<u32>(), 0..32_u16, 0..1_000_000_u64), 1..50)
    ) {
        let mut events = Vec::new();
        let mut expected: Vec<TraceRecord> = Vec::new();
        let mut now = 0;
        for (n, (op, sectors, sector, bits, after)) in ios.into_iter().enumerate() {
            let op = [Op::Read, Op::Write, Op::Discard, Op::Flush][usize::from(op)];
            now += if n == 0 { 0 } else { after };
            let (flags, sectors) = match op {
                Op::Flush => (BioFlags(bits).without(BioFlags::PREFLUSH), 0),
                _ => (BioFlags(bits), sectors),
            };
            let context = EventContext {
                major: 259, minor: 3, cpu: 0, sequence: n as u64, at_ns: now, pid: 7, process: "p",
            };
            let sector = Sector(u64::from(sector));
            events.push((context, Action::Queue, Rwbs { op: Some(op), flags }, sector, sectors));
            let device = device_number(259, 3).unwrap();
            expected.push(TraceRecord { at_ns: now, device, op, sector, sectors, pid: 7, flags });
        }
        prop_assert_eq!(read(binary(&events)).unwrap(), expected);
    }

    #[test]
    fn no_bytes_are_a_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..400), at in any::<usize>(), to in any::<u8>()) {
        let _ = Reader::new(Cursor::new(bytes.clone()), "t", Some(&blktrace::FORMAT)).map(Iterator::count);
        let mut damaged = binary(&events());
        let at = at % damaged.len();
        damaged[at] = to;
        damaged.append(&mut bytes);
        let _ = read(damaged);
    }
}
