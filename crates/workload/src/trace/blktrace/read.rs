//! Reads blktrace's binary format, from one CPU's file or several.

use std::io::{self, BufRead, Read};
use std::path::{Path, PathBuf};

use blklab_blk::{BioFlags, Op, Sector};

use super::{
    AHEAD, DISCARD, FLUSH, FUA, MAGIC, META, NOTIFY, PC, RECORD_BYTES, SYNC, VERSION, WRITE, action,
};
use crate::trace::error::TraceError;
use crate::trace::format::{Format, Input, InputFile, Records};
use crate::trace::record::{END_SECTORS_MAX, IoEnd, Parsed, TraceRecord};

/// Whether a file with this beginning is of this format, in either byte order.
fn is_magic(start: &[u8]) -> bool {
    let Some(word) = start.first_chunk::<4>() else {
        return false;
    };
    let words = [u32::from_le_bytes(*word), u32::from_be_bytes(*word)];
    words.iter().any(|word| word & 0xffff_ff00 == MAGIC)
}

/// Merges the records of several CPUs in order of time, as far as the records of each CPU are in
/// order.
struct Cpus {
    streams: Vec<Stream>,
    /// The stream of the last record, and the record's start in it.
    last: (usize, u64),
    /// The action that marks arrivals: queued, or issued if no queued I/O was recorded.
    arrival: u32,
}

impl Cpus {
    fn new(input: Input) -> Result<Cpus, TraceError> {
        let mut streams = Vec::new();
        let mut arrival = action::ISSUE;
        for InputFile { lines, start } in std::iter::once(input.named).chain(input.others) {
            let (file, source) = lines.into_source();
            let mut stream = Stream::new(file, source);
            stream.advance()?;
            streams.push(stream);
            if has_queue(&start) {
                arrival = action::QUEUE;
            }
        }
        Ok(Cpus {
            streams,
            last: (0, 0),
            arrival,
        })
    }
}

impl Records for Cpus {
    fn next(&mut self) -> Result<Parsed, TraceError> {
        let times = self.streams.iter().enumerate();
        let waiting = times.filter_map(|(n, s)| Some((s.next?.at_ns, n)));
        let Some((_, earliest)) = waiting.min() else {
            return Ok(Parsed::Over);
        };
        let stream = &mut self.streams[earliest];
        let record = stream.next.take();
        self.last = (earliest, stream.next_offset);
        let parsed = record.map(|r| r.parsed(self.arrival).map_err(|m| stream.damaged(m)));
        stream.advance()?;
        Ok(parsed.transpose()?.unwrap_or(Parsed::Over))
    }

    fn wrong(&self, field: &'static str, found: &str, expected: String) -> TraceError {
        let (stream, offset) = self.last;
        TraceError::Binary {
            file: self.streams[stream].file.clone(),
            offset,
            message: format!("{field}: found {found}, expected {expected}"),
        }
    }
}

/// Whether a file's first records include queued I/Os.
fn has_queue(start: &[u8]) -> bool {
    let source = Box::new(io::Cursor::new(start.to_vec()));
    let mut stream = Stream::new(String::new(), source);
    // The part of the file may end within a record.
    while stream.advance().is_ok()
        && let Some(record) = stream.next
    {
        if record.is(action::QUEUE) {
            return true;
        }
    }
    false
}

/// A record in this machine's byte order.
#[derive(Clone, Copy, Debug)]
struct Raw {
    at_ns: u64,
    sector: u64,
    bytes: u32,
    action: u32,
    pid: u32,
    device: u32,
}

impl Raw {
    fn is(&self, action: u32) -> bool {
        // The upper half of an action has categories of the operation, too.
        !self.has(NOTIFY) && self.action as u16 == action as u16
    }

    fn has(&self, category: u32) -> bool {
        self.action & category != 0
    }

    /// Returns the operation; `None` for a passthrough command.
    fn op(&self) -> Option<Op> {
        if self.has(PC) {
            None
        } else if self.has(FLUSH) && self.bytes == 0 {
            Some(Op::Flush)
        } else if self.has(DISCARD) {
            Some(Op::Discard)
        } else if self.has(WRITE) {
            Some(Op::Write)
        } else {
            Some(Op::Read)
        }
    }

    fn flags(&self) -> BioFlags {
        let preflush = self.has(FLUSH) && self.bytes > 0;
        let modifiers = [
            (preflush, BioFlags::PREFLUSH),
            (self.has(FUA), BioFlags::FUA),
            (self.has(AHEAD), BioFlags::RAHEAD),
            (self.has(SYNC), BioFlags::SYNC),
            (self.has(META), BioFlags::META),
        ];
        let set = modifiers.iter().filter(|(set, _)| *set);
        set.fold(BioFlags::NONE, |flags, (_, flag)| flags.with(*flag))
    }

    fn parsed(&self, arrival: u32) -> Result<Parsed, String> {
        let is_arrival = self.is(arrival);
        if !is_arrival && !self.is(action::COMPLETE) {
            return Ok(Parsed::Nothing);
        }
        let Some(op) = self.op() else {
            return Ok(Parsed::Skipped("passthrough commands"));
        };
        if self.bytes == 0 && op != Op::Flush {
            return Ok(Parsed::Skipped("I/Os with neither data nor a flush"));
        }
        let sectors = self.bytes / 512;
        let end = self.sector.checked_add(u64::from(sectors));
        if !self.bytes.is_multiple_of(512) || end.is_none_or(|end| end > END_SECTORS_MAX) {
            return Err(format!(
                "found {} bytes at sector {}, expected a multiple of 512 that ends below 16 EiB",
                self.bytes, self.sector
            ));
        }
        if !is_arrival {
            let end = IoEnd {
                device: self.device,
                op,
                sector: Sector(self.sector),
                sectors,
            };
            return Ok(Parsed::Ended {
                at_ns: self.at_ns,
                end,
            });
        }
        Ok(Parsed::Record(TraceRecord {
            at_ns: self.at_ns,
            device: self.device,
            op,
            sector: Sector(self.sector),
            sectors,
            pid: self.pid,
            flags: self.flags(),
        }))
    }
}

/// One file.
struct Stream {
    file: String,
    source: Box<dyn BufRead + Send>,
    /// The number of bytes read.
    offset: u64,
    /// Whether the file has the other byte order.
    is_swapped: bool,
    /// The next record.
    next: Option<Raw>,
    /// The start of the next record.
    next_offset: u64,
}

impl Stream {
    fn new(file: String, source: Box<dyn BufRead + Send>) -> Stream {
        Stream {
            file,
            source,
            offset: 0,
            is_swapped: false,
            next: None,
            next_offset: 0,
        }
    }

    fn damaged(&self, message: impl Into<String>) -> TraceError {
        TraceError::Binary {
            file: self.file.clone(),
            offset: self.offset,
            message: message.into(),
        }
    }

    /// Reads the next record and skips its data.
    fn advance(&mut self) -> Result<(), TraceError> {
        let mut bytes = [0; RECORD_BYTES];
        let length = self.fill(&mut bytes)?;
        if length == 0 {
            self.next = None;
            return Ok(());
        }
        if length < RECORD_BYTES {
            return Err(self.damaged("the file ends within a record: it was cut"));
        }
        let raw = self.decode(&bytes)?;
        self.next_offset = self.offset;
        self.offset += RECORD_BYTES as u64;
        let data = u64::from(self.u16_at(&bytes, 46));
        let skipped = io::copy(&mut (&mut self.source).take(data), &mut io::sink());
        if skipped.map_err(|e| self.damaged(e.to_string()))? < data {
            return Err(self.damaged("the file ends within a record's data: it was cut"));
        }
        self.offset += data;
        self.next = Some(raw);
        Ok(())
    }

    /// Fills the buffer up to the end of the file.
    fn fill(&mut self, bytes: &mut [u8]) -> Result<usize, TraceError> {
        let mut length = 0;
        while length < bytes.len() {
            match self.source.read(&mut bytes[length..]) {
                Ok(0) => break,
                Ok(read) => length += read,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(self.damaged(e.to_string())),
            }
        }
        Ok(length)
    }

    fn decode(&mut self, bytes: &[u8; RECORD_BYTES]) -> Result<Raw, TraceError> {
        let magic = u32::from_ne_bytes(chunk(bytes, 0));
        self.is_swapped = magic & 0xffff_ff00 != MAGIC;
        let magic = self.u32_at(bytes, 0);
        if magic != MAGIC | VERSION {
            let expected = MAGIC | VERSION;
            return Err(self.damaged(format!(
                "a record's magic: found {magic:#010x}, expected {expected:#010x} (version {VERSION})"
            )));
        }
        Ok(Raw {
            at_ns: self.u64_at(bytes, 8),
            sector: self.u64_at(bytes, 16),
            bytes: self.u32_at(bytes, 24),
            action: self.u32_at(bytes, 28),
            pid: self.u32_at(bytes, 32),
            device: self.u32_at(bytes, 36),
        })
    }

    fn u16_at(&self, bytes: &[u8; RECORD_BYTES], at: usize) -> u16 {
        let value = u16::from_ne_bytes(chunk(bytes, at));
        if self.is_swapped {
            value.swap_bytes()
        } else {
            value
        }
    }

    fn u32_at(&self, bytes: &[u8; RECORD_BYTES], at: usize) -> u32 {
        let value = u32::from_ne_bytes(chunk(bytes, at));
        if self.is_swapped {
            value.swap_bytes()
        } else {
            value
        }
    }

    fn u64_at(&self, bytes: &[u8; RECORD_BYTES], at: usize) -> u64 {
        let value = u64::from_ne_bytes(chunk(bytes, at));
        if self.is_swapped {
            value.swap_bytes()
        } else {
            value
        }
    }
}

/// Returns `N` bytes of a record at an offset of the layout.
fn chunk<const N: usize>(bytes: &[u8; RECORD_BYTES], at: usize) -> [u8; N] {
    let mut chunk = [0; N];
    chunk.copy_from_slice(&bytes[at..at + N]);
    chunk
}

/// The most CPUs, more than a machine that ran blktrace is likely to have.
const CPUS_MAX: u32 = 4096;

/// Returns the files of the other CPUs if `path` is `NAME.blktrace.N`. CPUs that were offline have
/// none.
fn other_cpus(path: &Path) -> Option<Vec<PathBuf>> {
    let (stem, cpu) = path.to_str()?.rsplit_once('.')?;
    let cpu: u32 = cpu.parse().ok()?;
    let others = (0..CPUS_MAX).filter(|n| *n != cpu);
    let others = others.map(|n| PathBuf::from(format!("{stem}.{n}")));
    stem.ends_with(".blktrace")
        .then(|| others.filter(|path| path.is_file()).collect())
}

/// blktrace's binary form.
pub static FORMAT: Format = Format {
    name: "blktrace",
    help: "blktrace binary (one file NAME.blktrace.N stands for its set)",
    line: "binary",
    tells_ends: true,
    tells_processes: true,
    tick_ns: 1,
    write: None,
    detect: |start| is_magic(start.bytes),
    other_files: other_cpus,
    read: |input: Input| Ok(Box::new(Cpus::new(input)?)),
};
