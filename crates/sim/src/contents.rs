//! What is on drives and in files, as far as `verify=` looks at it: which process wrote each
//! block in which write, and what the block was before. The data itself is not kept.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use blklab_blk::SECTOR_SIZE;
use blklab_device::{DataFault, FaultyData, faulty_parts};
use blklab_workload::fio::{HEADER_BYTES, JobSpec, VerifyKind};

/// Where fio's header begins (`FIO_HDR_MAGIC`), in bytes of it.
const MAGIC_BYTES: u64 = 2;

/// A drive, or a file of the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Space {
    Drive(usize),
    File(usize),
}

/// A write, as its blocks tell of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// The process.
    pub(crate) writer: usize,
    /// Where it begins in its space, in bytes.
    pub(crate) start: i64,
    /// Where it begins in the file of its job, in bytes.
    pub(crate) offset_bytes: u64,
    pub(crate) length_bytes: u64,
    /// The number of its process's writes before it; `None` if no header says so.
    pub(crate) number: Option<u64>,
    pub(crate) draw: u64,
}

/// What is wrong with the data that a drive returned or took, in bytes of the drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FaultyPart {
    pub(crate) range: Range<u64>,
    pub(crate) fault: DataFault,
}

/// A read, and what it must find.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected<'a> {
    /// The process that reads.
    pub(crate) reader: usize,
    pub(crate) space: Space,
    /// Where in its space it reads.
    pub(crate) start: u64,
    /// Where that is in the file of its job.
    pub(crate) offset_bytes: u64,
    pub(crate) length_bytes: u64,
    /// The number in the header; `None`: any.
    pub(crate) number: Option<u64>,
    /// The seed of the contents; `None`: any.
    pub(crate) draw: Option<u64>,
    pub(crate) faults: &'a [FaultyPart],
}

/// How a block differs, in fio's words (`verify_header`, `log_verify_failure`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mismatch {
    what: Difference,
    /// Where in the file the piece with the header begins, and its length.
    offset_bytes: u64,
    length_bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Difference {
    Magic,
    Length(u64, u64),
    Seed,
    Offset(u64, u64),
    Number(u64, u64),
    HeaderChecksum,
    Data(&'static str),
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.what {
            Difference::Magic => write!(f, "verify: bad magic header, wanted acca"),
            Difference::Length(found, wanted) => {
                write!(f, "verify: bad header length {found}, wanted {wanted}")
            }
            Difference::Seed => write!(f, "verify: bad header rand_seed"),
            Difference::Offset(found, wanted) => {
                write!(f, "verify: bad header offset {found}, wanted {wanted}")
            }
            Difference::Number(found, wanted) => {
                write!(f, "verify: bad header numberio {found}, wanted {wanted}")
            }
            Difference::HeaderChecksum => write!(f, "verify: bad header crc"),
            Difference::Data(kind) => write!(f, "{kind}: verify failed"),
        }?;
        let (offset, length) = (self.offset_bytes, self.length_bytes);
        write!(f, " at offset {offset}, length {length}")
    }
}

/// Writes by where they begin, of which none overlap.
#[derive(Debug, Default)]
struct Extents(BTreeMap<u64, (u64, Stamp)>);

impl Extents {
    /// Removes and returns what lies in a range.
    fn take(&mut self, range: &Range<u64>) -> Vec<(Range<u64>, Stamp)> {
        let found = self.in_range(range);
        for (part, stamp) in &found {
            let first = self.0.range(..=part.start).next_back();
            let Some((&start, &(end, _))) = first else {
                continue;
            };
            self.0.remove(&start);
            if start < part.start {
                self.0.insert(start, (part.start, *stamp));
            }
            if part.end < end {
                self.0.insert(part.end, (end, *stamp));
            }
        }
        found
    }

    fn insert(&mut self, range: Range<u64>, stamp: Stamp) {
        self.0.insert(range.start, (range.end, stamp));
    }

    /// What lies in a range, in order.
    fn in_range(&self, range: &Range<u64>) -> Vec<(Range<u64>, Stamp)> {
        let before = self.0.range(..range.start).next_back();
        let inside = self.0.range(range.clone());
        let clipped = |(&start, &(end, stamp)): (&u64, &(u64, Stamp))| {
            let part = start.max(range.start)..end.min(range.end);
            (part.start < part.end).then_some((part, stamp))
        };
        before
            .into_iter()
            .chain(inside)
            .filter_map(clipped)
            .collect()
    }

    /// What lies so far away from a range, as if it lay in it.
    fn lying_away(&self, range: &Range<u64>, away: i64) -> Vec<(Range<u64>, Stamp)> {
        let moved = |range: &Range<u64>, by: i64| {
            range.start.saturating_add_signed(by)..range.end.saturating_add_signed(by)
        };
        let there = self.in_range(&moved(range, away));
        let here = there.into_iter().map(|(part, stamp)| {
            let start = stamp.start - away;
            (moved(&part, -away), Stamp { start, ..stamp })
        });
        here.collect()
    }
}

/// What is in a space.
#[derive(Debug, Default)]
struct Blocks {
    now: Extents,
    /// What each block was before its last write.
    before: Extents,
    /// Bits that flipped on the medium since then, by their bytes.
    flipped: BTreeSet<(u64, u8)>,
}

/// What is on drives and in files.
#[derive(Debug)]
pub(crate) struct Contents {
    spaces: BTreeMap<Space, Blocks>,
    /// The job of each process.
    specs: Vec<Arc<JobSpec>>,
}

impl Contents {
    /// Nothing that fio wrote is there; the processes of these jobs will write.
    pub(crate) fn new(specs: Vec<Arc<JobSpec>>) -> Contents {
        Contents {
            spaces: BTreeMap::new(),
            specs,
        }
    }

    /// A write ended well, as far as its process knows.
    pub(crate) fn wrote(&mut self, space: Space, stamp: Stamp, faults: &[FaultyPart]) {
        let start = stamp.start.unsigned_abs();
        let faulty = faults.iter().map(|part| (part.range.clone(), part.fault));
        for (part, fault) in faulty_parts(start..start + stamp.length_bytes, faulty) {
            let (landed, place) = FaultyData::landing(fault, part.start, part.end - part.start);
            let start = stamp.start + place as i64 - part.start as i64;
            self.put(space, place..place + landed.end, Stamp { start, ..stamp });
        }
    }

    fn put(&mut self, space: Space, range: Range<u64>, stamp: Stamp) {
        if range.is_empty() {
            return;
        }
        self.clear(space, range.clone());
        let blocks = self.spaces.entry(space).or_default();
        blocks.now.insert(range, stamp);
    }

    /// A range holds nothing that fio wrote, as after a trim.
    pub(crate) fn clear(&mut self, space: Space, range: Range<u64>) {
        let blocks = self.spaces.entry(space).or_default();
        blocks.before.take(&range);
        for (part, stamp) in blocks.now.take(&range) {
            blocks.before.insert(part, stamp);
        }
        let mended = blocks.flipped.range((range.start, 0)..(range.end, 0));
        for bit in mended.copied().collect::<Vec<_>>() {
            blocks.flipped.remove(&bit);
        }
    }

    /// Bits flip on the medium. One that flips twice is right again.
    pub(crate) fn rot(&mut self, space: Space, faults: &[FaultyPart]) {
        for part in faults {
            let DataFault::BitRot { sector, bit } = part.fault else {
                continue;
            };
            let place = (sector * SECTOR_SIZE + u64::from(bit / 8), (bit % 8) as u8);
            let blocks = self.spaces.entry(space).or_default();
            if !blocks.flipped.remove(&place) {
                blocks.flipped.insert(place);
            }
        }
    }

    /// Looks at a read as fio does (`verify_io_u`). Returns how it differs.
    pub(crate) fn check(&self, expected: &Expected<'_>) -> Option<Mismatch> {
        let verify = &self.specs[expected.reader].verify;
        if matches!(verify.kind, VerifyKind::None | VerifyKind::Null) {
            return None;
        }
        let every = verify.header_every(expected.length_bytes);
        (0..expected.length_bytes / every)
            .find_map(|piece| self.check_piece(expected, (piece * every, every)))
    }

    /// What a read got of a range of its space.
    fn returned(&self, expected: &Expected<'_>, range: &Range<u64>) -> Vec<(Range<u64>, Stamp)> {
        let Some(blocks) = self.spaces.get(&expected.space) else {
            return Vec::new();
        };
        let mut returned = Extents::default();
        for (part, stamp) in blocks.now.in_range(range) {
            returned.insert(part, stamp);
        }
        for FaultyPart { range: all, fault } in expected.faults {
            let part = all.start.max(range.start)..all.end.min(range.end);
            if part.is_empty() {
                continue;
            }
            let instead = match fault {
                DataFault::Stale => blocks.before.in_range(&part),
                DataFault::Misdirected { sector } => {
                    let away = (sector * SECTOR_SIZE) as i64 - all.start as i64;
                    blocks.now.lying_away(&part, away)
                }
                DataFault::BitRot { .. } | DataFault::Lost | DataFault::Torn { .. } => continue,
            };
            returned.take(&part);
            for (part, stamp) in instead {
                returned.insert(part, stamp);
            }
        }
        returned.in_range(range)
    }

    /// Looks at one header and what belongs to it, so far into the read and so long.
    fn check_piece(&self, expected: &Expected<'_>, (at, length): (u64, u64)) -> Option<Mismatch> {
        let verify = &self.specs[expected.reader].verify;
        let range = expected.start + at..expected.start + at + length;
        let parts = self.returned(expected, &range);
        let differs = |what| {
            Some(Mismatch {
                what,
                offset_bytes: expected.offset_bytes + at,
                length_bytes: length,
            })
        };
        let has_header = verify.kind.header_bytes() > 0;
        let header = range.start + verify.offset_bytes;
        if has_header {
            let stamp = parts.iter().find(|(part, _)| part.contains(&header));
            let wrong = match stamp {
                Some((_, stamp)) => self.check_header(expected, stamp, (at, length)),
                None => Some(Difference::Magic),
            };
            let flipped = |bytes| self.is_flipped(expected, header..header + bytes);
            if flipped(MAGIC_BYTES) {
                return differs(Difference::Magic);
            }
            if let Some(what) = wrong {
                return differs(what);
            }
            if flipped(HEADER_BYTES) {
                return differs(Difference::HeaderChecksum);
            }
        }
        let covered: u64 = parts.iter().map(|(part, _)| part.end - part.start).sum();
        let is_whole = covered == length;
        let checks_data =
            matches!(verify.kind, VerifyKind::Checksum(_)) || verify.pattern.is_some();
        let is_right = match verify.kind {
            VerifyKind::Checksum(_) => is_whole && self.is_of_one_write(expected, &parts),
            _ => is_whole && self.is_pattern(expected, &parts),
        };
        let is_flipped = self.is_flipped(expected, range);
        match checks_data && (!is_right || is_flipped) {
            true => differs(Difference::Data(match verify.kind {
                VerifyKind::Checksum(checksum) => checksum.name,
                _ => "pattern",
            })),
            false => None,
        }
    }

    /// Looks at the header that a write left there, in fio's order.
    fn check_header(
        &self,
        expected: &Expected<'_>,
        stamp: &Stamp,
        (at, length): (u64, u64),
    ) -> Option<Difference> {
        let (reader, writer) = (&self.specs[expected.reader], &self.specs[stamp.writer]);
        let number = match stamp.number {
            Some(number) if writer.verify.kind.header_bytes() > 0 => number,
            _ => return Some(Difference::Magic),
        };
        let every = writer.verify.header_every(stamp.length_bytes);
        let into = ((expected.start + at) as i64 - stamp.start).unsigned_abs();
        if !into.is_multiple_of(every) || writer.verify.offset_bytes != reader.verify.offset_bytes {
            return Some(Difference::Magic);
        }
        if every != length {
            return Some(Difference::Length(every, length));
        }
        if expected
            .draw
            .is_some_and(|draw| draw != stamp.draw || expected.reader != stamp.writer)
        {
            return Some(Difference::Seed);
        }
        let (found, wanted) = (stamp.offset_bytes + into, expected.offset_bytes + at);
        if found != wanted {
            return Some(Difference::Offset(found, wanted));
        }
        // The header has room for 16 bits.
        let (found, wanted) = (number & 0xffff, expected.number.map(|n| n & 0xffff));
        wanted
            .filter(|wanted| *wanted != found)
            .map(|wanted| Difference::Number(found, wanted))
    }

    fn is_of_one_write(&self, expected: &Expected<'_>, parts: &[(Range<u64>, Stamp)]) -> bool {
        let kind = |pid: usize| self.specs[pid].verify.kind;
        parts.windows(2).all(|pair| pair[0].1 == pair[1].1)
            && (parts.first()).is_some_and(|(_, s)| kind(s.writer) == kind(expected.reader))
    }

    /// Whether these blocks hold the reader's pattern. One in which the offset is, is that of a
    /// write from the same place.
    fn is_pattern(&self, expected: &Expected<'_>, parts: &[(Range<u64>, Stamp)]) -> bool {
        let pattern = |pid: usize| self.specs[pid].verify.pattern.as_deref();
        let own = pattern(expected.reader);
        let has_offset = own.is_some_and(|pattern| pattern.contains("%o"));
        parts.iter().all(|(_, stamp)| {
            let is_there = !has_offset || stamp.start == expected.start as i64;
            pattern(stamp.writer) == own && stamp.number.is_some() && is_there
        })
    }

    /// Whether a bit of a range has flipped, as far as the read came from there.
    fn is_flipped(&self, expected: &Expected<'_>, range: Range<u64>) -> bool {
        let is_elsewhere = |byte: u64| {
            let mut faults = expected.faults.iter();
            faults.any(|part| {
                part.range.contains(&byte) && !matches!(part.fault, DataFault::BitRot { .. })
            })
        };
        let Some(blocks) = self.spaces.get(&expected.space) else {
            return false;
        };
        let mut flipped = blocks.flipped.range((range.start, 0)..(range.end, 0));
        flipped.any(|&(byte, _)| !is_elsewhere(byte))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use blklab_workload::fio::parse_str;

    const DRIVE: Space = Space::Drive(0);

    fn contents(options: &[&str]) -> Contents {
        let job = |options: &&str| {
            let text = format!("[a]\nrw=write\ndirect=1\n{options}\n");
            let mut job = parse_str("t", &text, &|_| None, &|_, _| Err(String::new())).unwrap();
            Arc::new(job.jobs.remove(0))
        };
        Contents::new(options.iter().map(job).collect())
    }

    fn stamp(writer: usize, start: u64, number: u64) -> Stamp {
        Stamp {
            writer,
            start: start as i64,
            offset_bytes: start,
            length_bytes: 4096,
            number: Some(number),
            draw: number,
        }
    }

    fn read(start: u64, number: u64, faults: &[FaultyPart]) -> Expected<'_> {
        Expected {
            reader: 0,
            space: DRIVE,
            start,
            offset_bytes: start,
            length_bytes: 4096,
            number: Some(number),
            draw: None,
            faults,
        }
    }

    fn faulty(at: u64, fault: Option<DataFault>) -> Vec<FaultyPart> {
        let range = at..at + 4096;
        let part = |fault| FaultyPart {
            range: range.clone(),
            fault,
        };
        fault.into_iter().map(part).collect()
    }

    /// What a reader of the first job finds wrong at a place where it expects its first write.
    fn mismatch(c: &mut Contents, at: u64) -> String {
        let found = c.check(&read(at, 0, &[]));
        found.expect("it differs").to_string()
    }

    #[test]
    fn each_difference_has_fios_words() {
        let mut c = contents(&[
            "verify=crc32c",
            "verify=0",
            "verify=md5",
            "verify=crc32c\nbs=8k",
        ]);
        c.wrote(DRIVE, stamp(0, 0, 0), &[]);
        c.wrote(DRIVE, stamp(0, 4096, 1), &[]);
        let mut said = |at, number, fault: Option<DataFault>| {
            let faults = faulty(at, fault);
            c.rot(DRIVE, &faults);
            let found = c.check(&read(at, number, &faults));
            found.map_or("right".to_string(), |m| m.to_string())
        };
        assert_eq!(said(0, 0, None), "right");
        assert_eq!(
            said(0, 5, None),
            "verify: bad header numberio 0, wanted 5 at offset 0, length 4096"
        );
        assert_eq!(
            said(4096, 1, Some(DataFault::Misdirected { sector: 0 })),
            "verify: bad header offset 0, wanted 4096 at offset 4096, length 4096"
        );
        assert_eq!(
            said(4096, 1, Some(DataFault::Stale)),
            "verify: bad magic header, wanted acca at offset 4096, length 4096"
        );
        let flip = |bit| Some(DataFault::BitRot { sector: 9, bit });
        let data = "crc32c: verify failed at offset 4096, length 4096";
        assert_eq!(said(4096, 1, flip(7)), data);
        assert_eq!(said(4096, 1, None), data, "it stays");
        assert_eq!(said(4096, 1, flip(7)), "right", "it has flipped back");
        // A sector of another write in the middle, that has no header of fio's.
        c.wrote(
            DRIVE,
            Stamp {
                number: None,
                length_bytes: 512,
                ..stamp(1, 512, 0)
            },
            &[],
        );
        let found = mismatch(&mut c, 0);
        assert!(found.starts_with("crc32c: "), "{found}");
        c.wrote(DRIVE, stamp(2, 0, 0), &[]);
        let found = mismatch(&mut c, 0);
        assert!(found.starts_with("crc32c: "), "{found}");
        c.wrote(
            DRIVE,
            Stamp {
                length_bytes: 8192,
                ..stamp(3, 0, 0)
            },
            &[],
        );
        let found = mismatch(&mut c, 0);
        assert!(found.contains("header length 8192"), "{found}");
        let found = mismatch(&mut c, 4096);
        assert!(found.contains("magic"), "{found}");
        c.clear(DRIVE, 0..512);
        let found = mismatch(&mut c, 0);
        assert!(found.contains("magic"), "{found}");
    }

    #[test]
    fn a_write_that_lands_nowhere_in_part_or_elsewhere_is_told_by_what_is_there() {
        let said = |fault: DataFault, at: u64| {
            let mut c = contents(&["verify=crc32c"]);
            c.wrote(DRIVE, stamp(0, 0, 0), &[]);
            c.wrote(DRIVE, stamp(0, 4096, 1), &[]);
            c.wrote(DRIVE, stamp(0, 4096, 2), &faulty(4096, Some(fault)));
            let found = c.check(&read(at, if at == 0 { 0 } else { 2 }, &[]));
            found.map_or("right".to_string(), |m| m.to_string())
        };
        let old = "verify: bad header numberio 1, wanted 2 at offset 4096, length 4096";
        assert_eq!(said(DataFault::Lost, 4096), old);
        assert_eq!(said(DataFault::Torn { sectors: 0 }, 4096), old);
        let torn = said(DataFault::Torn { sectors: 3 }, 4096);
        assert_eq!(torn, "crc32c: verify failed at offset 4096, length 4096");
        let elsewhere = DataFault::Misdirected { sector: 0 };
        assert_eq!(said(elsewhere, 4096), old);
        assert_eq!(
            said(elsewhere, 0),
            "verify: bad header offset 4096, wanted 0 at offset 0, length 4096"
        );
    }

    #[test]
    fn a_header_alone_does_not_tell_of_the_rest() {
        let mut c = contents(&["verify=meta", "verify_pattern=0xab"]);
        c.wrote(DRIVE, stamp(0, 0, 0), &[]);
        c.wrote(DRIVE, stamp(1, 8192, 0), &[]);
        let mut flip = |sector, bit| {
            let faults = faulty(sector * 512, Some(DataFault::BitRot { sector, bit }));
            c.rot(DRIVE, &faults);
            c.check(&Expected {
                reader: usize::from(sector >= 16),
                ..read(sector / 16 * 8192, 0, &[])
            })
        };
        assert_eq!(flip(1, 0), None);
        let mismatch = flip(0, 8 * 20).unwrap();
        assert!(mismatch.to_string().starts_with("verify: bad header crc"));
        let mismatch = flip(17, 0).unwrap();
        assert!(mismatch.to_string().starts_with("pattern: verify failed"));
        assert_eq!(flip(17, 0), None);
    }
}
