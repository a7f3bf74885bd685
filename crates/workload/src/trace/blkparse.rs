//! blkparse's default text output, with one event per line: `major,minor cpu sequence time pid
//! action rwbs sector + sectors [process]`.
//!
//! An I/O arrives when it is queued (action Q), or, in a trace that was recorded or filtered
//! without Q, when it is issued (D). Completions (C) are ends. Other actions, messages and the
//! summary at the end are skipped.

use std::collections::BTreeMap;
use std::fmt;
use std::io;

use blklab_blk::{BioFlags, Op, Sector};

use super::cursor::Cursor;
use super::error::Fault;
use super::format::{Format, Input, one_file};
use super::record::{IoEnd, Parsed, TraceRecord, WITHOUT_LETTER, checked_extent, device_number};
use super::rwbs::Rwbs;
use super::tracefs::{BioEvent, Dev, Event, EventKind, RqEnd, RqEvent};

const LINE_EXPECTED: &str =
    "blkparse's \"major,minor cpu sequence time pid action rwbs sector + sectors [process]\"";

/// Whether `line` may be of this format: it begins with `major,minor cpu sequence
/// seconds.fraction`.
fn looks_like(line: &str) -> bool {
    let mut at = Cursor::new(line);
    prefix(&mut at).is_ok()
}

/// Returns the action that marks arrivals in a trace that begins with `text`: `Q` if it occurs,
/// else `D`.
fn arrival_action(text: &str) -> &'static str {
    let is_queue = |line: &str| {
        let mut at = Cursor::new(line);
        prefix(&mut at).is_ok() && at.number::<u32>("pid", "").is_ok() && at.word() == "Q"
    };
    if text.lines().any(is_queue) { "Q" } else { "D" }
}

/// A parser of lines.
struct Parser {
    /// The action that marks arrivals.
    arrival: &'static str,
}

impl Parser {
    /// Parses one line.
    fn parse(&self, line: &str) -> Result<Parsed, Fault> {
        let start = line.trim();
        if start.is_empty() || start.starts_with("Input file ") {
            return Ok(Parsed::Nothing);
        }
        if begins_summary(start) {
            return Ok(Parsed::Over);
        }
        let mut at = Cursor::new(line);
        let (device, at_ns) = prefix(&mut at)?;
        let pid = at.number("pid", "a process id")?;
        let action = at.word();
        if action.is_empty() {
            return Err(at.fault("action", LINE_EXPECTED));
        }
        if action == "C" {
            return ended(&mut at, device, at_ns);
        }
        if action != self.arrival {
            // The first Q comes after the part of the trace that was searched.
            let is_late_queue = action == "Q";
            let late = Parsed::Skipped("queued I/Os (Q) after a start with only issues (D)");
            return Ok(if is_late_queue { late } else { Parsed::Nothing });
        }
        arrival(
            &mut at,
            TraceRecord {
                at_ns,
                device,
                op: Op::Flush,
                sector: Sector(0),
                sectors: 0,
                pid,
                flags: BioFlags::NONE,
            },
        )
    }
}

/// Whether `line` begins the summary: that of each CPU, or of the only one.
fn begins_summary(line: &str) -> bool {
    let has_cpu = line.strip_prefix("CPU").is_some_and(|rest| {
        rest.trim_start_matches(|digit: char| digit.is_ascii_digit())
            .starts_with(" (")
    });
    has_cpu || line.starts_with("Total (")
}

/// Parses `major,minor cpu sequence time` into the device and the time in nanoseconds.
fn prefix(at: &mut Cursor<'_>) -> Result<(u32, u64), Fault> {
    const DEVICE: &str = "major,minor (up to 4095,1048575)";
    at.skip_blanks();
    let start = *at;
    let major = at.number("device", LINE_EXPECTED)?;
    at.expect(",", "device")?;
    let minor = at.number("device", DEVICE)?;
    let device = device_number(major, minor).ok_or_else(|| start.fault("device", DEVICE))?;
    at.number::<u32>("cpu", "a CPU's number")?;
    at.number::<u64>("sequence", "a sequence number")?;
    at.skip_blanks();
    Ok((device, at.seconds("time")?))
}

/// Parses the text after a completion's action. The completion of an operation without a letter
/// (`N`), such as a passthrough command, is ignored, unless it is a flush (`FN`).
fn ended(at: &mut Cursor<'_>, device: u32, at_ns: u64) -> Result<Parsed, Fault> {
    at.skip_blanks();
    let column = at.column();
    let Rwbs { op, flags } = Rwbs::parse(at.word(), column)?;
    let sector = at.number("sector", "a sector number").unwrap_or(0);
    at.skip_blanks();
    let has_extent = at.eat("+");
    at.skip_blanks();
    let sectors = match has_extent {
        true => at.number("size", "a number of sectors")?,
        false => 0,
    };
    let is_flush = sectors == 0 && flags.has(BioFlags::PREFLUSH);
    let Some(op) = op.filter(|_| !is_flush).or(is_flush.then_some(Op::Flush)) else {
        return Ok(Parsed::Nothing);
    };
    let end = IoEnd {
        device,
        op,
        sector: Sector(sector),
        sectors,
    };
    Ok(Parsed::Ended { at_ns, end })
}

/// Parses the text after an arrival's action into `record`.
fn arrival(at: &mut Cursor<'_>, record: TraceRecord) -> Result<Parsed, Fault> {
    at.skip_blanks();
    let column = at.column();
    let Rwbs { op, flags } = Rwbs::parse(at.word(), column)?;
    at.skip_blanks();
    if at.rest().is_empty() || at.rest().starts_with('[') {
        // An I/O without an extent is a flush or a preflush, without data.
        let is_flush = flags.has(BioFlags::PREFLUSH) || op == Some(Op::Flush);
        let flush = TraceRecord {
            op: Op::Flush,
            flags: flags.without(BioFlags::PREFLUSH),
            ..record
        };
        return Ok(if is_flush {
            Parsed::Record(flush)
        } else {
            Parsed::Skipped(WITHOUT_DATA)
        });
    }
    let sector = at.number(
        "sector",
        "a sector number, or [process] on an I/O without data",
    )?;
    at.skip_blanks();
    if at.eat("(") {
        return Ok(Parsed::Skipped("passthrough commands"));
    }
    at.expect("+", "extent")?;
    at.skip_blanks();
    let size = *at;
    let sectors = at.number("size", "a number of sectors")?;
    let Some(op) = op else {
        return Ok(Parsed::Skipped(WITHOUT_LETTER));
    };
    let sectors = checked_extent(sector, sectors, size)?;
    Ok(Parsed::Record(TraceRecord {
        op,
        sector: Sector(sector),
        sectors,
        flags,
        ..record
    }))
}

/// The reason for skipping an I/O.
const WITHOUT_DATA: &str = "I/Os with neither data nor a flush";
/// The source and time of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventContext<'a> {
    /// The drive's major number.
    pub major: u32,
    /// The drive's minor number.
    pub minor: u32,
    /// The CPU.
    pub cpu: u32,
    /// The number of the event on its CPU.
    pub sequence: u64,
    /// The time since the trace's start.
    pub at_ns: u64,
    /// The id of the running process.
    pub pid: u32,
    /// The name of the running process.
    pub process: &'a str,
}

/// Writes the beginning of a line: drive, CPU, sequence, time and process.
impl fmt::Display for EventContext<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let EventContext {
            major,
            minor,
            cpu,
            sequence,
            at_ns,
            pid,
            process: _,
        } = *self;
        let (seconds, ns) = (at_ns / 1_000_000_000, at_ns % 1_000_000_000);
        write!(
            f,
            "{major:>3},{minor:<3} {cpu:>2} {sequence:>8} {seconds:>5}.{ns:09} {pid:>5}"
        )
    }
}

/// An event of an extent. The letters are blkparse's actions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Q: a bio enters the block layer.
    Queue,
    /// G: a request is allocated for a bio.
    GetRequest,
    /// I: the request is inserted into the scheduler.
    Insert,
    /// M: a bio joins the end of a request.
    BackMerge,
    /// F: a bio joins the start of a request.
    FrontMerge,
    /// R: the driver requeues a request.
    Requeue,
    /// D: the request is issued to the driver.
    Issue,
    /// C: the request is complete, with this error or 0.
    Complete(i32),
}

/// Writes an event in blkparse's default format.
pub fn write_event(
    out: &mut impl fmt::Write,
    context: &EventContext<'_>,
    action: Action,
    rwbs: Rwbs,
    sector: Sector,
    sectors: u32,
) -> fmt::Result {
    let process = context.process;
    let letter = match action {
        Action::Queue => "Q",
        Action::GetRequest => "G",
        Action::Insert => "I",
        Action::BackMerge => "M",
        Action::FrontMerge => "F",
        Action::Requeue => "R",
        Action::Issue => "D",
        Action::Complete(_) => "C",
    };
    write!(out, "{context} {letter:>2} {:>3} ", letters(rwbs, sectors))?;
    let ended = match action {
        Action::Complete(error) => Some(error),
        Action::Requeue => Some(0),
        _ => None,
    };
    match ended {
        Some(error) if sectors == 0 => writeln!(out, "{sector} [{error}]"),
        Some(error) => writeln!(out, "{sector} + {sectors} [{error}]"),
        _ if sectors == 0 => writeln!(out, "[{process}]"),
        _ => writeln!(out, "{sector} + {sectors} [{process}]"),
    }
}

/// Returns the letters of an operation as blkparse has them (`fill_rwbs`): it knows no operation
/// that flushes, only one without data (N) with a flush before it.
fn letters(rwbs: Rwbs, sectors: u32) -> String {
    let Rwbs { op, flags } = rwbs;
    let rwbs = match op {
        Some(Op::Flush) => Rwbs {
            op: None,
            flags: flags.with(BioFlags::PREFLUSH),
        },
        Some(Op::Read) if sectors == 0 => Rwbs { op: None, flags },
        _ => rwbs,
    };
    rwbs.to_string()
}

/// Writes that a task plugs, or that it unplugs this many requests.
fn write_plug(
    out: &mut impl fmt::Write,
    context: &EventContext<'_>,
    letter: &str,
    requests: Option<u32>,
) -> fmt::Result {
    write!(out, "{context} {letter:>2}   N [{}]", context.process)?;
    match requests {
        Some(requests) => writeln!(out, " {requests}"),
        None => writeln!(out),
    }
}

/// Writes events of tracefs as blkparse prints them: times relative to the first event, and a
/// sequence number per CPU.
#[derive(Debug)]
pub struct BlkparseWriter<W> {
    to: W,
    line: String,
    /// The drive of the last event that named one, for events such as a plug that name none.
    drive: Dev,
    start_ns: Option<u64>,
    /// The number of events of each CPU.
    sequences: BTreeMap<u32, u64>,
}

impl<W: io::Write> BlkparseWriter<W> {
    /// Makes a writer to `to` of events on `drive`.
    pub fn new(to: W, drive: Dev) -> BlkparseWriter<W> {
        BlkparseWriter {
            to,
            line: String::new(),
            drive,
            start_ns: None,
            sequences: BTreeMap::new(),
        }
    }

    /// Writes one event, unless blktrace has no such event. The first that it has is at zero.
    pub fn event(&mut self, event: &Event<'_>) -> io::Result<()> {
        let start_ns = self.start_ns.unwrap_or(event.at_ns);
        let event = Event {
            at_ns: event.at_ns.saturating_sub(start_ns),
            ..*event
        };
        self.drive = event.kind.drive().unwrap_or(self.drive);
        let sequence = self.sequences.entry(event.cpu).or_default();
        self.line.clear();
        write_tracefs_event(&mut self.line, &event, *sequence + 1, self.drive)
            .map_err(io::Error::other)?;
        if !self.line.is_empty() {
            *sequence += 1;
            self.start_ns = Some(start_ns);
        }
        self.to.write_all(self.line.as_bytes())
    }

    /// Writes that `events` events were lost, as a message, as programs can add to blktrace's
    /// output.
    pub fn lost(&mut self, events: u64) -> io::Result<()> {
        let Dev { major, minor } = self.drive;
        writeln!(
            self.to,
            "{major:>3},{minor:<3}  0        0     0.000000000     0  m   N lost {events} events"
        )
    }

    /// Returns the underlying writer.
    pub fn finish(self) -> W {
        self.to
    }
}

/// Writes an event, unless blktrace has no such event.
fn write_tracefs_event(
    out: &mut impl fmt::Write,
    event: &Event<'_>,
    sequence: u64,
    drive: Dev,
) -> fmt::Result {
    let bio = |action, bio: &BioEvent<'_>| (action, bio.dev, bio.rwbs, bio.sector, bio.sectors);
    let request = |action, rq: &RqEvent<'_>| (action, rq.dev, rq.rwbs, rq.sector, rq.sectors);
    let end = |action, end: &RqEnd| (action, end.dev, end.rwbs, end.sector, end.sectors);
    let mut context = EventContext {
        major: drive.major,
        minor: drive.minor,
        cpu: event.cpu,
        sequence,
        at_ns: event.at_ns,
        pid: event.pid,
        process: event.task,
    };
    let (action, dev, rwbs, sector, sectors) = match &event.kind {
        EventKind::Plug { .. } => return write_plug(out, &context, "P", None),
        EventKind::Unplug { requests, .. } => {
            return write_plug(out, &context, "U", Some(*requests));
        }
        EventKind::BioQueue(b) => bio(Action::Queue, b),
        EventKind::GetRq(b) => bio(Action::GetRequest, b),
        EventKind::BioBackmerge(b) => bio(Action::BackMerge, b),
        EventKind::BioFrontmerge(b) => bio(Action::FrontMerge, b),
        EventKind::RqMerge(rq) => request(Action::BackMerge, rq),
        EventKind::RqInsert(rq) => request(Action::Insert, rq),
        EventKind::RqIssue(rq) => request(Action::Issue, rq),
        EventKind::RqRequeue(e) => end(Action::Requeue, e),
        EventKind::RqComplete(e) => end(Action::Complete(e.error), e),
        _ => return Ok(()),
    };
    (context.major, context.minor) = (dev.major, dev.minor);
    // A flush without data has no place; the kernel writes sector 0.
    let sector = if sectors == 0 { Sector(0) } else { sector };
    write_event(out, &context, action, rwbs, sector, sectors)
}

/// blkparse's default text.
pub static FORMAT: Format = Format {
    name: "blkparse",
    help: "blkparse text",
    line: "major,minor cpu sequence time pid action rwbs sector + sectors [process]",
    tells_ends: true,
    tells_processes: true,
    tick_ns: 1,
    write: None,
    detect: |start| looks_like(start.first_line),
    other_files: one_file,
    read: |input: Input| {
        let arrival = arrival_action(&input.start_text());
        let parser = Parser { arrival };
        input.lines(move |line| parser.parse(line))
    },
};
