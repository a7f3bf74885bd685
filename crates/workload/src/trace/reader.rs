//! Reads a trace to replay, in any format.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BinaryHeap};
use std::io::Read;
use std::path::{Path, PathBuf};

use blklab_blk::Sector;

use super::FORMATS;
use super::error::{TraceError, excerpt};
use super::format::{Format, Input, InputFile, Records, Start};
use super::lines::Lines;
use super::record::{IoEnd, Item, Parsed, TraceRecord};

/// The number of records held back to sort them. The records of several CPUs are out of order by
/// far less than this.
const WINDOW_RECORDS: usize = 4096;

/// The size of a trace's beginning that is searched for its format, and for Q events in blkparse's
/// text.
const LOOK_AHEAD_BYTES: u64 = 1 << 20;

/// Detects the format of a trace by its beginning; `file` is its name in messages.
fn detect(start: &[u8], file: &str) -> Result<&'static Format, TraceError> {
    let text = String::from_utf8_lossy(start);
    let telling = |line: &&str| !line.trim().is_empty() && !line.starts_with("Input file ");
    let first_line = text.lines().find(telling).unwrap_or("");
    let start = Start {
        bytes: start,
        first_line,
    };
    let found = FORMATS.iter().find(|format| (format.detect)(&start));
    found.copied().ok_or_else(|| {
        let expected = FORMATS
            .iter()
            .map(|format| format!("{} ({})", format.name, format.line));
        TraceError::UnknownFormat {
            file: file.to_owned(),
            first_line: excerpt(first_line),
            expected: expected.collect::<Vec<_>>().join(", "),
        }
    })
}

/// Returns the other files of the set that `path` belongs to, with the format of such sets, if its
/// name shows that it belongs to one.
fn set_of(path: &Path) -> Option<(&'static Format, Vec<PathBuf>)> {
    let of_format = |format: &&'static Format| Some((*format, (format.other_files)(path)?));
    FORMATS.iter().find_map(of_format)
}

/// Returns all files of the trace at `path`, sorted by name.
pub fn files(path: &Path) -> Vec<PathBuf> {
    let mut files = set_of(path).map(|(_, others)| others).unwrap_or_default();
    files.push(path.to_path_buf());
    files.sort();
    files
}

/// Opens the trace at `path`, plain or compressed. Without a `format` it is detected by the trace's
/// name or beginning. One file of a set stands for the whole set.
pub fn open(path: &Path, format: Option<&'static Format>) -> Result<Reader, TraceError> {
    let Some((of_set, others)) = set_of(path) else {
        return Reader::start(Lines::open(path)?, Vec::new(), format);
    };
    let others: Result<Vec<Lines>, TraceError> =
        others.iter().map(|path| Lines::open(path)).collect();
    Reader::start(Lines::open(path)?, others?, format.or(Some(of_set)))
}

/// The drive that a trace is to be replayed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriveSize {
    /// Its name in messages.
    pub name: String,
    /// Its size in sectors.
    pub sectors: u64,
    /// Whether sectors beyond its end continue at its start.
    pub wraps: bool,
}

impl DriveSize {
    /// Returns where an I/O lies on the drive, of which it is no larger. One that would cross
    /// the end is moved to end there.
    pub fn place(&self, sector: Sector, sectors: u32) -> Sector {
        match self.wraps {
            true => Sector((sector.0 % self.sectors).min(self.sectors - u64::from(sectors))),
            false => sector,
        }
    }
}

/// Reads a trace's I/Os in the order of their arrival, with the first at time 0.
///
/// Traces of several CPUs are slightly out of order: 4096 records are held back and returned
/// sorted, those of equal time in the order of the file. A record that is late by more than that
/// gets the time of the record before it, which [`Reader::notes`] reports. Memory does not grow
/// with the trace. After an error the reader returns nothing more.
pub struct Reader {
    file: String,
    format: &'static Format,
    records: Box<dyn Records>,
    /// Whether ends are returned, beside arrivals.
    with_ends: bool,
    window: BinaryHeap<Reverse<WindowRecord>>,
    next_order: u64,
    ended: bool,
    /// The time of the first record in the trace's own clock.
    start_ns: Option<u64>,
    last_ns: u64,
    /// The earliest and the latest time so far in the trace's own clock.
    read_ns: Option<(u64, u64)>,
    /// The longest time from the first record to another.
    span_max_ns: u64,
    drive: Option<DriveSize>,
    moved: u64,
    skipped: BTreeMap<&'static str, u64>,
}

impl Reader {
    /// Reads a trace from `source`; `file` is its name in messages.
    pub fn new(
        source: impl Read + Send + 'static,
        file: impl Into<String>,
        format: Option<&'static Format>,
    ) -> Result<Reader, TraceError> {
        Reader::start(Lines::new(source, file.into())?, Vec::new(), format)
    }

    fn start(
        mut lines: Lines,
        others: Vec<Lines>,
        format: Option<&'static Format>,
    ) -> Result<Reader, TraceError> {
        let file = lines.file().to_owned();
        let start = lines.look_ahead(LOOK_AHEAD_BYTES)?;
        let format = match format {
            Some(format) => format,
            None => detect(&start, &file)?,
        };
        let named = InputFile { lines, start };
        let others: Result<Vec<InputFile>, TraceError> = others
            .into_iter()
            .map(|mut lines| {
                let start = lines.look_ahead(LOOK_AHEAD_BYTES)?;
                Ok(InputFile { lines, start })
            })
            .collect();
        let others = others?;
        Ok(Reader {
            file,
            format,
            records: (format.read)(Input { named, others })?,
            with_ends: false,
            window: BinaryHeap::new(),
            next_order: 0,
            ended: false,
            start_ns: None,
            last_ns: 0,
            read_ns: None,
            span_max_ns: u64::MAX,
            drive: None,
            moved: 0,
            skipped: BTreeMap::new(),
        })
    }

    /// Has [`Reader::next_item`] return ends too.
    pub fn with_ends(self) -> Reader {
        Reader {
            with_ends: true,
            ..self
        }
    }

    /// Refuses records that are later than the first by more than this.
    pub fn within(self, span_max_ns: u64) -> Reader {
        Reader {
            span_max_ns,
            ..self
        }
    }

    /// Refuses records that such a drive cannot hold.
    pub fn on_drive(self, drive: DriveSize) -> Reader {
        Reader {
            drive: Some(drive),
            ..self
        }
    }

    /// Whether the next records have any end. An I/O that was in flight for longer than the records
    /// held back is not considered.
    pub fn has_ends(&mut self) -> Result<bool, TraceError> {
        if !self.format.tells_ends {
            return Ok(false);
        }
        self.fill_window()?;
        let mut held = self.window.iter();
        Ok(held.any(|Reverse(held)| matches!(held.item, Item::Ended(_))))
    }

    /// Returns the next arrival, or end if they were requested.
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

    /// Returns the trace's format.
    pub fn format(&self) -> &'static Format {
        self.format
    }

    /// Returns remarks for the user about the records so far: those that were skipped, and those
    /// that were too late to be sorted.
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
            match self.records.next()? {
                Parsed::Record(record) => {
                    self.check_span(record.at_ns)?;
                    self.check_extent(&record)?;
                    self.hold(record.at_ns, Item::Arrival(record));
                }
                Parsed::Timed(record, took_ns) => {
                    self.check_span(record.at_ns)?;
                    self.check_extent(&record)?;
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

    /// Checks the time of the last record against those before it.
    fn check_span(&mut self, at_ns: u64) -> Result<(), TraceError> {
        let (earliest, latest) = self.read_ns.unwrap_or((at_ns, at_ns));
        let (earliest, latest) = (earliest.min(at_ns), latest.max(at_ns));
        self.read_ns = Some((earliest, latest));
        // Records before the start get the time of the start.
        let span_ns = latest - self.start_ns.unwrap_or(earliest).min(latest);
        if span_ns <= self.span_max_ns {
            return Ok(());
        }
        let seconds = |ns: u64| ns / 1_000_000_000;
        let found = format!("{} s from the first record to the last", seconds(span_ns));
        let expected = format!("at most {} s", seconds(self.span_max_ns));
        Err(self.records.wrong("time", &found, expected))
    }

    /// Checks that the drive can hold the extent of a record.
    fn check_extent(&self, record: &TraceRecord) -> Result<(), TraceError> {
        let Some(drive) = &self.drive else {
            return Ok(());
        };
        let first = if drive.wraps { 0 } else { record.sector.0 };
        let end = first + u64::from(record.sectors);
        if end <= drive.sectors || record.sectors == 0 {
            return Ok(());
        }
        let found = format!("{} + {}", record.sector.0, record.sectors);
        let (name, sectors) = (&drive.name, drive.sectors);
        let or_wrap = if drive.wraps { "" } else { ", or --wrap" };
        let expected = format!(
            "an end up to sector {sectors}, that of {name}: right is a larger --drive{or_wrap}"
        );
        Err(self.records.wrong("sectors", &found, expected))
    }

    fn hold_end(&mut self, at_ns: u64, end: IoEnd) {
        if self.with_ends {
            self.hold(at_ns, Item::Ended(end));
        }
    }

    fn hold(&mut self, at_ns: u64, item: Item) {
        let order = self.next_order;
        self.window
            .push(Reverse(WindowRecord { at_ns, order, item }));
        self.next_order += 1;
    }

    /// Returns `record` with its time relative to the trace's start.
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

/// A record in the window, ordered by its time and then by its place in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct WindowRecord {
    at_ns: u64,
    order: u64,
    item: Item,
}

impl Ord for WindowRecord {
    fn cmp(&self, other: &WindowRecord) -> Ordering {
        (self.at_ns, self.order).cmp(&(other.at_ns, other.order))
    }
}

impl PartialOrd for WindowRecord {
    fn partial_cmp(&self, other: &WindowRecord) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
