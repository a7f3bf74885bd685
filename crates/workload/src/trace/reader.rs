//! Reads a trace to replay, in whatever format it is.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BinaryHeap};
use std::fmt;
use std::io::Read;
use std::path::Path;
use std::str::FromStr;

use blklab_blk::{BioFlags, Op};

use super::error::{TraceError, excerpt};
use super::lines::Lines;
use super::record::{Parsed, TraceRecord, checked_extent, device_number};
use super::{blkparse, cursor::Cursor, disksim, error::Fault, msr, tracefs};

/// Records held back to bring them into order. A multiprocessor's trace is
/// out of order by what its CPUs do at once, which is far less.
const WINDOW_RECORDS: usize = 4096;

/// How much of a trace is looked at to learn its format, and whether a
/// blkparse text has Q events.
const LOOK_AHEAD_BYTES: u64 = 1 << 20;

/// The formats, with what a line of each looks like.
const FORMATS: &str = "disksim (arrival_ns device sector sectors 1|0), \
     msr (Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime), \
     blkparse (major,minor cpu sequence time pid action rwbs sector + sectors [process]), \
     tracefs (task-pid [cpu] flags time: event: arguments)";

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
}

impl Format {
    /// Every format.
    pub const ALL: [Format; 4] = [
        Format::DiskSim,
        Format::Msr,
        Format::Blkparse,
        Format::Tracefs,
    ];

    /// The format's name, as options spell it.
    pub const fn name(self) -> &'static str {
        match self {
            Format::DiskSim => "disksim",
            Format::Msr => "msr",
            Format::Blkparse => "blkparse",
            Format::Tracefs => "tracefs",
        }
    }

    /// The format that the first telling line of `text` has.
    fn detect(text: &str) -> Option<Format> {
        let line = first_line(text)?;
        if line.starts_with("# tracer:") || tracefs::looks_like(line) {
            Some(Format::Tracefs)
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
            format!("trace format {name:?}; expected disksim, msr, blkparse or tracefs")
        })
    }
}

/// The first line that says something about the format.
fn first_line(text: &str) -> Option<&str> {
    text.lines()
        .find(|line| !line.trim().is_empty() && !line.starts_with("Input file "))
}

/// Opens the trace at `path`, plain or gzipped. Without a format the trace's
/// first line tells it.
pub fn open(path: &Path, format: Option<Format>) -> Result<Reader, TraceError> {
    Reader::start(Lines::open(path)?, format)
}

/// A trace's I/Os in the order of their arrival, the first at time 0.
///
/// Traces of several CPUs are slightly out of order: 4096 records are held
/// back and handed out sorted (those of one time in the order of the file).
/// A record that is late by more than that is moved to the time of the record
/// before it, and [`Reader::notes`] says so. Memory does not grow with the
/// trace. After an error there is nothing more.
pub struct Reader {
    lines: Lines,
    parser: Parser,
    window: BinaryHeap<Reverse<Held>>,
    next_order: u64,
    ended: bool,
    /// The trace's own time of its first record.
    start_ns: Option<u64>,
    last_ns: u64,
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
        Reader::start(Lines::new(source, file.into())?, format)
    }

    fn start(mut lines: Lines, format: Option<Format>) -> Result<Reader, TraceError> {
        let text = lines.look_ahead(LOOK_AHEAD_BYTES)?;
        let Some(format) = format.or_else(|| Format::detect(&text)) else {
            return Err(TraceError::UnknownFormat {
                file: lines.file().to_owned(),
                first_line: excerpt(first_line(&text).unwrap_or("")),
                expected: FORMATS,
            });
        };
        Ok(Reader {
            lines,
            parser: Parser::new(format, &text),
            window: BinaryHeap::new(),
            next_order: 0,
            ended: false,
            start_ns: None,
            last_ns: 0,
            moved: 0,
            skipped: BTreeMap::new(),
        })
    }

    /// The trace's format.
    pub fn format(&self) -> Format {
        match self.parser {
            Parser::DiskSim => Format::DiskSim,
            Parser::Msr(_) => Format::Msr,
            Parser::Blkparse(_) => Format::Blkparse,
            Parser::Tracefs => Format::Tracefs,
        }
    }

    /// What a reader of the result should know about the records handed out
    /// so far: what was skipped, and what came too late to be sorted.
    pub fn notes(&self) -> Vec<String> {
        let file = self.lines.file();
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
            if !self.lines.advance()? {
                self.ended = true;
                break;
            }
            let parsed = self.parser.parse(self.lines.current());
            match parsed.map_err(|fault| self.lines.malformed(fault))? {
                Parsed::Record(record) => {
                    self.window.push(Reverse(Held {
                        order: self.next_order,
                        record,
                    }));
                    self.next_order += 1;
                }
                Parsed::Nothing => {}
                Parsed::Skipped(what) => *self.skipped.entry(what).or_default() += 1,
                Parsed::End => self.ended = true,
            }
        }
        Ok(())
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
        if let Err(error) = self.fill_window() {
            self.ended = true;
            self.window.clear();
            return Some(Err(error));
        }
        let Reverse(held) = self.window.pop()?;
        Some(Ok(self.rebased(held.record)))
    }
}

/// A record in the window, ordered by its time and then by its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    order: u64,
    record: TraceRecord,
}

impl Ord for Held {
    fn cmp(&self, other: &Held) -> Ordering {
        (self.record.at_ns, self.order).cmp(&(other.record.at_ns, other.order))
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
            Format::Tracefs => Parser::Tracefs,
        }
    }

    fn parse(&mut self, line: &str) -> Result<Parsed, Fault> {
        match self {
            Parser::DiskSim => disksim::parse(line),
            Parser::Msr(parser) => parser.parse(line),
            Parser::Blkparse(parser) => parser.parse(line),
            Parser::Tracefs => tracefs_arrival(line),
        }
    }
}

/// The arrival that a line of tracefs text is, if it is one.
fn tracefs_arrival(line: &str) -> Result<Parsed, Fault> {
    let event = match tracefs::parse_line(line)? {
        tracefs::Line::Event(event) => event,
        tracefs::Line::Skip => return Ok(Parsed::Nothing),
        tracefs::Line::Lost(_) => {
            return Ok(Parsed::Skipped("gaps where the ring buffer was overrun"));
        }
    };
    let tracefs::EventKind::BioQueue(bio) = event.kind else {
        return Ok(Parsed::Nothing);
    };
    let whole_line = Cursor::new(line);
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
