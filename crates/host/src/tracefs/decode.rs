//! Decoding of the block layer's binary events.

use super::format::{EventFormat, FormatFault};
use super::page::{Record, u16_at, u32_at, u64_at};

/// Kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `block_bio_queue`: a bio entered the block layer.
    Queue,
    /// `block_io_start`: a request was made (Linux 6.5 and later).
    Start,
    /// `block_rq_insert`: a request was inserted into the scheduler.
    Insert,
    /// `block_rq_issue`: a request was given to the driver.
    Issue,
    /// `block_rq_requeue`: the driver returned a request.
    Requeue,
    /// `block_rq_merge`: a request was merged into another.
    Merge,
    /// `block_getrq`: a request was allocated for a bio.
    GetRequest,
    /// `block_bio_backmerge`: a bio was merged at the end of a request.
    BackMerge,
    /// `block_bio_frontmerge`: a bio was merged at the start of a request.
    FrontMerge,
    /// `block_rq_complete`: the drive completed a request or a part of it.
    Complete,
}

impl Kind {
    /// The events that [`Splitter`](super::Splitter) uses, each with its name and whether every
    /// kernel has it.
    pub const EVENTS: [(Kind, &'static str, bool); 7] = [
        (Kind::Start, "block_io_start", false),
        (Kind::Insert, "block_rq_insert", true),
        (Kind::Issue, "block_rq_issue", true),
        (Kind::Requeue, "block_rq_requeue", true),
        (Kind::Merge, "block_rq_merge", false),
        (Kind::FrontMerge, "block_bio_frontmerge", true),
        (Kind::Complete, "block_rq_complete", true),
    ];

    /// The events of a recording that can be replayed.
    pub const RECORDED: [(Kind, &'static str, bool); 9] = [
        (Kind::Queue, "block_bio_queue", true),
        (Kind::GetRequest, "block_getrq", true),
        (Kind::BackMerge, "block_bio_backmerge", true),
        (Kind::FrontMerge, "block_bio_frontmerge", true),
        (Kind::Insert, "block_rq_insert", true),
        (Kind::Issue, "block_rq_issue", true),
        (Kind::Requeue, "block_rq_requeue", true),
        (Kind::Merge, "block_rq_merge", false),
        (Kind::Complete, "block_rq_complete", true),
    ];

    /// Name of the event.
    pub fn name(self) -> &'static str {
        let all = Kind::EVENTS.into_iter().chain(Kind::RECORDED);
        let mut found = all.filter(|(kind, _, _)| *kind == self);
        found.next().map_or("", |(_, name, _)| name)
    }
}

/// Size of a task's name in the kernel, including the final zero.
pub const COMM_BYTES: usize = 16;

/// Space for the letters of an operation; kernels have 8 or 10.
pub const RWBS_BYTES: usize = 10;

/// An event of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestEvent {
    /// Time of the trace clock, in nanoseconds.
    pub at_ns: u64,
    /// Kind of the event.
    pub kind: Kind,
    /// The drive (the kernel's `dev_t`).
    pub dev: u32,
    /// First sector.
    pub sector: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// Read, write, discard or flush, in the block layer's order; `None` for passthrough commands.
    pub op: Option<u8>,
    /// Name of the task, padded with zeroes; all zero if the event does not include it.
    pub comm: [u8; COMM_BYTES],
    /// 0 or a negative error number.
    pub error: i32,
    /// The CPU of the event.
    pub cpu: u32,
    /// Id of the task.
    pub pid: u32,
    /// Operation and flags in the kernel's letters, padded with zeroes.
    pub rwbs: [u8; RWBS_BYTES],
    /// I/O priority in the kernel's encoding.
    pub ioprio: u16,
}

/// Positions of an event's fields.
#[derive(Clone, Debug)]
struct Layout {
    id: u16,
    kind: Kind,
    dev: usize,
    sector: usize,
    sectors: usize,
    rwbs: (usize, usize),
    comm: Option<usize>,
    error: Option<usize>,
    pid: usize,
    ioprio: Option<usize>,
}

/// The layouts of one kernel's events.
#[derive(Clone, Debug, Default)]
pub struct Decoder {
    layouts: Vec<Layout>,
}

impl Decoder {
    /// Adds an event's format.
    pub fn add(&mut self, kind: Kind, format: &EventFormat) -> Result<(), FormatFault> {
        let rwbs = format.field("rwbs");
        let rwbs = rwbs.ok_or_else(|| FormatFault(format!("{} has no field rwbs", format.name)))?;
        let comm = format.field("comm").filter(|f| f.size == COMM_BYTES);
        let error = format.field("error").filter(|f| f.size == 4);
        self.layouts.push(Layout {
            id: format.id,
            kind,
            dev: format.sized("dev", 4)?.offset,
            sector: format.sized("sector", 8)?.offset,
            sectors: format.sized("nr_sector", 4)?.offset,
            rwbs: (rwbs.offset, rwbs.size),
            comm: comm.map(|f| f.offset),
            error: error.map(|f| f.offset),
            pid: format.sized("common_pid", 4)?.offset,
            ioprio: format
                .field("ioprio")
                .filter(|f| f.size == 2)
                .map(|f| f.offset),
        });
        Ok(())
    }

    /// Decodes a record; `None` for events that were not added and for records that are too short.
    pub fn decode(&self, record: &Record<'_>, cpu: u32) -> Option<RequestEvent> {
        let bytes = record.bytes;
        let id = u16_at(bytes, 0)?;
        let layout = self.layouts.iter().find(|layout| layout.id == id)?;
        let (at, size) = layout.rwbs;
        let letters = bytes.get(at..at.checked_add(size)?)?;
        let comm = match layout.comm {
            Some(at) => bytes
                .get(at..at.checked_add(COMM_BYTES)?)?
                .try_into()
                .ok()?,
            None => [0; COMM_BYTES],
        };
        let error = match layout.error {
            Some(at) => u32_at(bytes, at)?.cast_signed(),
            None => 0,
        };
        let mut rwbs = [0; RWBS_BYTES];
        let kept = letters.len().min(RWBS_BYTES);
        rwbs[..kept].copy_from_slice(&letters[..kept]);
        let ioprio = match layout.ioprio {
            Some(at) => u16_at(bytes, at)?,
            None => 0,
        };
        Some(RequestEvent {
            cpu,
            pid: u32_at(bytes, layout.pid)?,
            rwbs,
            ioprio,
            at_ns: record.at_ns,
            kind: layout.kind,
            dev: u32_at(bytes, layout.dev)?,
            sector: u64_at(bytes, layout.sector)?,
            bytes: u64::from(u32_at(bytes, layout.sectors)?) * 512,
            op: op(letters),
            comm,
            error,
        })
    }
}

/// The operation at the beginning of `rwbs` (`blk_fill_rwbs`): a leading `F` is a preflush if
/// another operation follows, otherwise a flush.
fn op(letters: &[u8]) -> Option<u8> {
    let letters = match letters {
        [b'F', rest @ ..] if matches!(rest.first(), Some(b'R' | b'W' | b'D')) => rest,
        letters => letters,
    };
    match letters.first()? {
        b'R' => Some(0),
        b'W' => Some(1),
        b'D' => Some(2),
        b'F' => Some(3),
        _ => None,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::format::tests::ISSUE;
    use super::*;
    use proptest::prelude::*;

    fn decoder() -> Decoder {
        let mut decoder = Decoder::default();
        decoder
            .add(Kind::Issue, &EventFormat::parse(ISSUE).unwrap())
            .unwrap();
        decoder
    }

    /// A `block_rq_issue` record of Linux 6.18.
    pub(crate) fn issue(dev: u32, sector: u64, sectors: u32, rwbs: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; 64];
        bytes[..2].copy_from_slice(&2104u16.to_ne_bytes());
        bytes[8..12].copy_from_slice(&dev.to_ne_bytes());
        bytes[16..24].copy_from_slice(&sector.to_ne_bytes());
        bytes[24..28].copy_from_slice(&sectors.to_ne_bytes());
        bytes[34..34 + rwbs.len()].copy_from_slice(rwbs);
        bytes[44..47].copy_from_slice(b"fio");
        bytes
    }

    #[test]
    fn fields_come_from_where_the_format_says() {
        let bytes = issue(7 << 20, 123, 8, b"WS");
        let record = Record {
            at_ns: 5,
            bytes: &bytes,
        };
        let event = decoder().decode(&record, 0).unwrap();
        assert_eq!((event.dev, event.sector, event.bytes), (7 << 20, 123, 4096));
        assert_eq!((event.op, event.kind), (Some(1), Kind::Issue));
        assert_eq!(&event.comm[..4], b"fio\0");
    }

    #[test]
    fn operations_are_told_by_their_letters() {
        let cases: [(&[u8], Option<u8>); 8] = [
            (b"R", Some(0)),
            (b"RAM", Some(0)),
            (b"FWFS", Some(1)),
            (b"DS", Some(2)),
            (b"F", Some(3)),
            (b"FF\0", Some(3)),
            (b"N", None),
            (b"", None),
        ];
        for (letters, want) in cases {
            assert_eq!(op(letters), want, "{letters:?}");
        }
    }

    #[test]
    fn formats_without_what_is_needed_are_refused() {
        for gone in ["sector_t sector", "dev_t dev", "char rwbs"] {
            let text = ISSUE.replace(gone, "int x");
            let format = EventFormat::parse(&text).unwrap();
            assert!(
                Decoder::default().add(Kind::Issue, &format).is_err(),
                "{gone}"
            );
        }
    }

    proptest! {
        #[test]
        fn no_record_is_a_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..80), ours: bool) {
            if ours && bytes.len() > 2 {
                bytes[..2].copy_from_slice(&2104u16.to_ne_bytes());
            }
            let _ = decoder().decode(&Record { at_ns: 0, bytes: &bytes }, 0);
        }
    }
}
