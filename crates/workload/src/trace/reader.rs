//! Reads a trace to replay, in whatever format it is.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BinaryHeap};
use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use blklab_blk::{BioFlags, Op};

use super::error::{TraceError, excerpt};
use super::lines::Lines;
use super::record::{IoEnd, Item, Parsed, TraceRecord, checked_extent, device_number};
use super::{blkparse, blktrace, cursor::Cursor, disksim, error::Fault, iolog, msr, tracefs};

/// Records held back to bring them into order. A multiprocessor's trace is
/// out of order by what its CPUs do at once, which is far less.
const WINDOW_RECORDS: usize = 4096;

/// How much of a trace is looked at to learn its format, and whether a
/// blkparse text has Q events.
const LOOK_AHEAD_BYTES: u64 = 1 << 20;

/// More CPUs than a machine that ran blktrace is likely to have had.
const CPUS_MAX: u32 = 4096;

/// The formats, with what a line of each looks like.
const FORMATS: &str = "disksim (arrival_ns device sector sectors 1|0), \
     msr (Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime), \
     blkparse (major,minor cpu sequence time pid action rwbs sector + sectors [process]), \
     tracefs (task-pid [cpu] flags time: event: arguments), \
     iolog (fio version 2 or 3 iolog), blktrace (binary)";

/// A format of traces to replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// DiskSim ASCII, with arrivals in nanoseconds.
    DiskSim,
    /// MSR Cambridge CSV.
    Msr,
    /// blkparse's default text.
    Blkparse,
    /// tracefs text: its `block_bio_queue` events are the arrivals.
    Tracefs,
    /// What fio's `write_iolog` writes.
    Iolog,
    /// blktrace's binary form.
    Blktrace,
}

impl Format {
    /// Every format.
    pub const ALL: [Format; 6] = [
        Format::DiskSim,
        Format::Msr,
        Format::Blkparse,
        Format::Tracefs,
        Format::Iolog,
        Format::Blktrace,
    ];

    /// The format's name, as options spell it.
    pub const fn name(self) -> &'static str {
        match self {
            Format::DiskSim => "disksim",
            Format::Msr => "msr",
            Format::Blkparse => "blkparse",
            Format::Tracefs => "tracefs",
            Format::Iolog => "iolog",
            Format::Blktrace => "blktrace",
        }
    }

    /// The format that the first telling line of `text` has.
    fn detect(text: &str) -> Option<Format> {
        let line = first_line(text)?;
        if line.starts_with("# tracer:") || tracefs::looks_like(line) {
            Some(Format::Tracefs)
        } else if iolog::looks_like(line) {
            Some(Format::Iolog)
        } else if disksim::looks_like(line) {
            Some(Format::DiskSim)
        } else if msr::looks_like(line) {
            Some(Format::Msr)
        } else if blkparse::looks_like(line) {
            Some(Format::Blkparse)
        } else {
            None
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Format {
    type Err = String;

    fn from_str(name: &str) -> Result<Format, String> {
        let found = Format::ALL.into_iter().find(|format| format.name() == name);
        found.ok_or_else(|| {
            format!(
                "trace format {name:?}; expected disksim, msr, blkparse, tracefs, iolog or blktrace"
            )
        })
    }
}

/// The first line that says something about the format.
fn first_line(text: &str) -> Option<&str> {
    text.lines()
        .find(|line| !line.trim().is_empty() && !line.starts_with("Input file "))
}

/// Opens the trace at `path`, plain or gzipped. Without a format the trace's
/// first line tells it. Of blktrace's files `NAME.blktrace.N` one stands for
/// those of all CPUs.
pub fn open(path: &Path, format: Option<Format>) -> Result<Reader, TraceError> {
    let Some((stem, cpu)) = of_one_cpu(path) else {
        return Reader::start(Lines::open(path)?, Vec::new(), format);
    };
    // CPUs that were offline have no file, so holes are allowed.
    let others = (0..CPUS_MAX).filter(|n| *n != cpu);
    let others = others.map(|n| PathBuf::from(format!("{stem}.{n}")));
    let others: Result<Vec<Lines>, TraceError> = others
        .filter(|path| path.is_file())
        .map(|path| Lines::open(&path))
        .collect();
    // The file may be empty: a CPU that did nothing.
    let format = format.or(Some(Format::Blktrace));
    Reader::start(Lines::open(path)?, others?, format)
}

/// What `NAME.blktrace.N` is called without its CPU, and that.
fn of_one_cpu(path: &Path) -> Option<(String, u32)> {
    let name = path.to_str()?;
    let (stem, cpu) = name.rsplit_once('.')?;
    let cpu = cpu.parse().ok()?;
    stem.ends_with(".blktrace").then(|| (stem.to_owned(), cpu))
}

/// A trace's I/Os in the order of their arrival, the first at time 0.
///
/// Traces of several CPUs are slightly out of order: 4096 records are held
/// back and handed out sorted (those of one time in the order of the file).
/// A record that is late by more than that is moved to the time of the record
/// before it, and [`Reader::notes`] says so. Memory does not grow with the
/// trace. After an error there is nothing more.
pub struct Reader {
    file: String,
    source: Source,
    /// Whether ends are handed out, beside arrivals.
    with_ends: bool,
    window: BinaryHeap<Reverse<Held>>,
    next_order: u64,
    ended: bool,
    /// The trace's own time of its first record.
    start_ns: Option<u64>,
    last_ns: u64,
    /// The earliest and the latest time read so far, as the trace counts.
    read_ns: Option<(u64, u64)>,
    /// How much later than the first record others may be.
    span_max_ns: u64,
    moved: u64,
    skipped: BTreeMap<&'static str, u64>,
}

impl Reader {
    /// Reads a trace from `source`, which messages call `file`.
    pub fn new(
        source: impl Read + Send + 'static,
        file: impl Into<String>,
        format: Option<Format>,
    ) -> Result<Reader, TraceError> {
        Reader::start(Lines::new(source, file.into())?, Vec::new(), format)
    }

    fn start(
        mut lines: Lines,
        mut others: Vec<Lines>,
        format: Option<Format>,
    ) -> Result<Reader, TraceError> {
        let start = lines.look_ahead(LOOK_AHEAD_BYTES)?;
        let file = lines.file().to_owned();
        let is_binary = blktrace::is_magic(&start) && format.is_none();
        let source = if is_binary || format == Some(Format::Blktrace) {
            let mut starts = vec![start];
            for other in &mut others {
                starts.push(other.look_ahead(LOOK_AHEAD_BYTES)?);
            }
            let files = std::iter::once(lines).chain(others);
            let files = files.map(Lines::into_source).collect();
            Source::Binary(blktrace::Source::new(files, &starts)?)
        } else {
            let text = String::from_utf8_lossy(&start);
            let Some(format) = format.or_else(|| Format::detect(&text)) else {
                return Err(TraceError::UnknownFormat {
                    file,
                    first_line: excerpt(first_line(&text).unwrap_or("")),
                    expected: FORMATS,
                });
            };
            Source::Text(lines, Parser::new(format, &text))
        };
        Ok(Reader {
            file,
            source,
            with_ends: false,
            window: BinaryHeap::new(),
            next_order: 0,
            ended: false,
            start_ns: None,
            last_ns: 0,
            read_ns: None,
            span_max_ns: u64::MAX,
            moved: 0,
            skipped: BTreeMap::new(),
        })
    }

    /// Has [`Reader::next_item`] tell ends too.
    pub fn with_ends(self) -> Reader {
        Reader {
            with_ends: true,
            ..self
        }
    }

    /// Refuses a record that is later than the first by more than this.
    pub fn within(self, span_max_ns: u64) -> Reader {
        Reader {
            span_max_ns,
            ..self
        }
    }

    /// Whether the records to come tell any end: an I/O in flight for longer
    /// than what is held back is not to be expected.
    pub fn has_ends(&mut self) -> Result<bool, TraceError> {
        self.fill_window()?;
        let mut held = self.window.iter();
        Ok(held.any(|Reverse(held)| matches!(held.item, Item::Ended(_))))
    }

    /// What the trace tells next: arrivals, and ends if they were asked for.
    pub fn next_item(&mut self) -> Result<Option<Item>, TraceError> {
        if let Err(error) = self.fill_window() {
            self.ended = true;
            self.window.clear();
            return Err(error);
        }
        let item = self.window.pop().map(|Reverse(held)| held);
        Ok(item.map(|held| match held.item {
            Item::Arrival(record) => Item::Arrival(self.rebased(record)),
            end => end,
        }))
    }

    /// The trace's format.
    pub fn format(&self) -> Format {
        let Source::Text(_, parser) = &self.source else {
            return Format::Blktrace;
        };
        match parser {
            Parser::DiskSim => Format::DiskSim,
            Parser::Msr(_) => Format::Msr,
            Parser::Blkparse(_) => Format::Blkparse,
            Parser::Tracefs => Format::Tracefs,
            Parser::Iolog(_) => Format::Iolog,
        }
    }

    /// What a reader of the result should know about the records handed out
    /// so far: what was skipped, and what came too late to be sorted.
    pub fn notes(&self) -> Vec<String> {
        let file = &self.file;
        let skipped = self
            .skipped
            .iter()
            .map(|(what, count)| format!("{file}: skipped {count} {what}"));
        let moved = (self.moved > 0).then(|| {
            format!(
                "{file}: {} records were out of order by more than {WINDOW_RECORDS} records; \
                 each was moved to the time of the one before it",
                self.moved
            )
        });
        skipped.chain(moved).collect()
    }

    /// Reads until the window is full or the trace has ended.
    fn fill_window(&mut self) -> Result<(), TraceError> {
        while !self.ended && self.window.len() < WINDOW_RECORDS {
            match self.source.next()? {
                Parsed::Record(record) => {
                    self.check_span(record.at_ns)?;
                    self.hold(record.at_ns, Item::Arrival(record));
                }
                Parsed::Timed(record, took_ns) => {
                    self.check_span(record.at_ns)?;
                    self.hold(record.at_ns, Item::Arrival(record));
                    let end = IoEnd {
                        device: record.device,
                        op: record.op,
                        sector: record.sector,
                        sectors: record.sectors,
                    };
                    self.hold_end(record.at_ns.saturating_add(took_ns), end);
                }
                Parsed::Ended { at_ns, end } => self.hold_end(at_ns, end),
                Parsed::Nothing => {}
                Parsed::Skipped(what) => *self.skipped.entry(what).or_default() += 1,
                Parsed::Over => self.ended = true,
            }
        }
        Ok(())
    }

    /// Checks the time of the record just read against those before it.
    fn check_span(&mut self, at_ns: u64) -> Result<(), TraceError> {
        let (earliest, latest) = self.read_ns.unwrap_or((at_ns, at_ns));
        let (earliest, latest) = (earliest.min(at_ns), latest.max(at_ns));
        self.read_ns = Some((earliest, latest));
        // What comes before the start is moved there.
        let span_ns = latest - self.start_ns.unwrap_or(earliest).min(latest);
        match span_ns > self.span_max_ns {
            true => Err(self.source.too_long(&self.file, span_ns, self.span_max_ns)),
            false => Ok(()),
        }
    }

    fn hold_end(&mut self, at_ns: u64, end: IoEnd) {
        if self.with_ends {
            self.hold(at_ns, Item::Ended(end));
        }
    }

    fn hold(&mut self, at_ns: u64, item: Item) {
        let order = self.next_order;
        self.window.push(Reverse(Held { at_ns, order, item }));
        self.next_order += 1;
    }

    /// `record` with its time counted from the trace's start.
    fn rebased(&mut self, record: TraceRecord) -> TraceRecord {
        let start_ns = *self.start_ns.get_or_insert(record.at_ns);
        let at_ns = match record.at_ns.checked_sub(start_ns) {
            Some(at_ns) if at_ns >= self.last_ns => at_ns,
            _ => {
                self.moved += 1;
                self.last_ns
            }
        };
        self.last_ns = at_ns;
        TraceRecord { at_ns, ..record }
    }
}

impl Iterator for Reader {
    type Item = Result<TraceRecord, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.next_item().transpose()? {
                Ok(Item::Arrival(record)) => return Some(Ok(record)),
                Ok(Item::Ended(_)) => {}
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

/// Where records come from.
enum Source {
    Text(Lines, Parser),
    Binary(blktrace::Source),
}

impl Source {
    fn next(&mut self) -> Result<Parsed, TraceError> {
        match self {
            Source::Binary(source) => Ok(source.next()?.unwrap_or(Parsed::Over)),
            Source::Text(lines, parser) => {
                if !lines.advance()? {
                    return Ok(Parsed::Over);
                }
                let parsed = parser.parse(lines.current());
                parsed.map_err(|fault| lines.malformed(fault))
            }
        }
    }

    /// The record just read makes the trace so long.
    fn too_long(&self, file: &str, span_ns: u64, span_max_ns: u64) -> TraceError {
        let seconds = |ns: u64| ns / 1_000_000_000;
        let found = format!("{} s from the first record to the last", seconds(span_ns));
        let expected = format!("at most {} s", seconds(span_max_ns));
        match self {
            Source::Text(lines, _) => lines.malformed(Fault::new(0, "time", &found, expected)),
            Source::Binary(_) => TraceError::Description {
                file: file.to_owned(),
                message: format!("time: found {found}, expected {expected}"),
            },
        }
    }
}

/// A record in the window, ordered by its time and then by its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    at_ns: u64,
    order: u64,
    item: Item,
}

impl Ord for Held {
    fn cmp(&self, other: &Held) -> Ordering {
        (self.at_ns, self.order).cmp(&(other.at_ns, other.order))
    }
}

impl PartialOrd for Held {
    fn partial_cmp(&self, other: &Held) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// A format's parser with what it remembers from line to line.
enum Parser {
    DiskSim,
    Msr(msr::Parser),
    Blkparse(blkparse::Parser),
    Tracefs,
    Iolog(iolog::Parser),
}

impl Parser {
    /// The parser of a trace that begins with `text`.
    fn new(format: Format, text: &str) -> Parser {
        match format {
            Format::DiskSim => Parser::DiskSim,
            Format::Msr => Parser::Msr(msr::Parser::default()),
            Format::Blkparse => Parser::Blkparse(blkparse::Parser {
                arrival: blkparse::arrival_action(text),
            }),
            // A binary trace has no lines to parse.
            Format::Tracefs | Format::Blktrace => Parser::Tracefs,
            Format::Iolog => Parser::Iolog(iolog::Parser::default()),
        }
    }

    fn parse(&mut self, line: &str) -> Result<Parsed, Fault> {
        match self {
            Parser::DiskSim => disksim::parse(line),
            Parser::Msr(parser) => parser.parse(line),
            Parser::Blkparse(parser) => parser.parse(line),
            Parser::Tracefs => tracefs_item(line),
            Parser::Iolog(parser) => parser.parse(line),
        }
    }
}

/// The arrival or end that a line of tracefs text is, if it is one.
fn tracefs_item(line: &str) -> Result<Parsed, Fault> {
    let event = match tracefs::parse_line(line)? {
        tracefs::Line::Event(event) => event,
        tracefs::Line::Skip => return Ok(Parsed::Nothing),
        tracefs::Line::Lost(_) => {
            return Ok(Parsed::Skipped("gaps where the ring buffer was overrun"));
        }
    };
    let whole_line = Cursor::new(line);
    let bio = match event.kind {
        tracefs::EventKind::BioQueue(bio) => bio,
        tracefs::EventKind::RqComplete(end) => return Ok(tracefs_end(event.at_ns, &end)),
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
        return Ok(Parsed::Skipped(blkparse::WITHOUT_LETTER));
    };
    let sectors = checked_extent(bio.sector.0, bio.sectors.into(), whole_line)?;
    Ok(Parsed::Record(TraceRecord {
        op,
        sectors,
        flags,
        ..record
    }))
}

/// A request's end; of one passed through nobody waits for it.
fn tracefs_end(at_ns: u64, end: &tracefs::RqEnd) -> Parsed {
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
