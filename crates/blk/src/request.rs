//! `Request`: one or more bios that go to the drive as one command.

use alloc::vec::Vec;
use core::mem::offset_of;

use crate::bio::{Bio, BioFlags, CgroupId, IoPrio, Op, SubmitterId, op_is_sync};
use crate::slab::{Id, Slab};
use crate::tags::Tags;
use crate::units::{Nanos, Sector};

/// Identifies a request of a queue.
pub type RequestId = Id<Request>;
/// Identifies a bio inside the block layer.
pub type BioId = Id<BioNode>;

/// The block layer's flags of a request (`RQF_*`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RqFlags(u16);

impl RqFlags {
    /// A scheduler has dispatched it; it can no longer be merged with.
    pub const STARTED: RqFlags = RqFlags(1 << 0);
    /// It is in the merge hash.
    pub const HASHED: RqFlags = RqFlags(1 << 1);
    /// It is the data or the flush of a flush sequence.
    pub const FLUSH_SEQ: RqFlags = RqFlags(1 << 2);
    /// The scheduler's hooks apply to it.
    pub const USE_SCHED: RqFlags = RqFlags(1 << 3);
    /// It holds a scheduler tag.
    pub const SCHED_TAGS: RqFlags = RqFlags(1 << 4);
    /// The driver had started it before returning it.
    pub const DONTPREP: RqFlags = RqFlags(1 << 5);
    /// It holds dispatch budget.
    pub const BUDGET: RqFlags = RqFlags(1 << 6);
    /// The driver has it.
    pub const IN_FLIGHT: RqFlags = RqFlags(1 << 7);
    /// It is the flush command that serves flush sequences.
    pub const FLUSH_RQ: RqFlags = RqFlags(1 << 8);
    /// A scheduler's sort list holds it.
    pub const SORTED: RqFlags = RqFlags(1 << 9);
    /// Writeback throttling counts it (`WBT_TRACKED`).
    pub const WBT_TRACKED: RqFlags = RqFlags(1 << 10);
    /// Writeback throttling measures its latency (`WBT_READ`).
    pub const WBT_READ: RqFlags = RqFlags(1 << 11);
    /// Writeback throttling counts it among discards (`WBT_DISCARD`).
    pub const WBT_DISCARD: RqFlags = RqFlags(1 << 12);
    /// It is the one write of its zone that may be on its way (`RQF_ZONE_WRITE_PLUGGING`).
    pub const ZONE_WRITE: RqFlags = RqFlags(1 << 13);

    /// Whether `flag` is set.
    #[inline]
    pub const fn has(self, flag: RqFlags) -> bool {
        self.0 & flag.0 != 0
    }

    /// Returns the union of both sets.
    pub const fn with(self, other: RqFlags) -> RqFlags {
        RqFlags(self.0 | other.0)
    }

    /// Sets `flag`.
    #[inline]
    pub fn set(&mut self, flag: RqFlags) {
        self.0 |= flag.0;
    }

    /// Clears `flag`.
    #[inline]
    pub fn clear(&mut self, flag: RqFlags) {
        self.0 &= !flag.0;
    }
}

/// The neighbours of a request in a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) prev: Option<RequestId>,
    pub(crate) next: Option<RequestId>,
}

/// How many lists a request can be in at once: the scheduler's FIFO or another `queuelist`, and one
/// more for schedulers that keep two.
pub(crate) const LINKS: usize = 2;

/// Number of a tag.
pub type Tag = Id<Tags>;

/// One command for the drive. It takes two cache lines; the first has all fields that merging and
/// the schedulers' lists use, because these access requests in an order that the processor cannot
/// prefetch.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub struct Request {
    /// The operation.
    pub op: Op,
    /// Completed steps of the flush sequence (`REQ_FSEQ_*`).
    pub(crate) flush_seq: u8,
    /// Flags of the first bio.
    pub flags: BioFlags,
    /// Priority of its bios.
    pub prio: IoPrio,
    /// Flags of the block layer.
    pub rq_flags: RqFlags,
    /// First sector.
    pub sector: Sector,
    /// Length in sectors.
    pub sectors: u32,
    /// Control group of its bios.
    pub cgroup: CgroupId,
    /// Number of memory segments.
    pub segments: u16,
    /// A time that the scheduler keeps, mostly a deadline.
    pub fifo_time: Nanos,
    /// The scheduler's private data (`elv.priv`).
    pub elv: [u32; 2],
    pub(crate) links: [Link; LINKS],
    pub(crate) hash: Link,

    /// Where a scheduler's sort list holds it.
    pub(crate) sorted_at: u32,
    /// Number of requests made before it on this queue. Unlike the id it is never reused, so traces
    /// show it.
    pub serial: u64,
    /// Time of allocation.
    pub start: Nanos,
    /// Time of insertion into the scheduler or a software queue.
    pub inserted: Nanos,
    /// Time at which it was given to the driver.
    pub io_start: Nanos,
    /// The submitter of its first bio.
    pub submitter: SubmitterId,
    /// Driver tag.
    pub tag: Option<Tag>,
    /// Scheduler tag.
    pub internal_tag: Option<Tag>,
    /// The CPU, and so the software queue, on which it was submitted.
    pub ctx: u16,
    /// The hardware context it belongs to.
    pub hctx: u16,
    /// First and last bio.
    pub(crate) bios: Option<(BioId, BioId)>,
}

const _: () = assert!(size_of::<Request>() == 128, "a request is two cache lines");
const _: () = assert!(
    offset_of!(Request, sorted_at) == 64,
    "the first line ends before sorted_at"
);

impl Request {
    /// The sector after its last.
    #[inline]
    pub fn end(&self) -> Sector {
        self.sector + self.sectors
    }

    /// Whether schedulers treat it as a write (`rq_data_dir`).
    #[inline]
    pub fn is_write(&self) -> bool {
        self.op.is_write()
    }

    /// Whether a process waits for it (`rq_is_sync`).
    #[inline]
    pub fn is_sync(&self) -> bool {
        op_is_sync(self.op, self.flags)
    }

    /// Whether it is a passthrough command of a process (`blk_rq_is_passthrough`).
    #[inline]
    pub fn is_passthrough(&self) -> bool {
        self.flags.has(BioFlags::PASSTHROUGH)
    }

    /// Whether a scheduler's sort list holds it.
    #[inline]
    pub fn is_sorted(&self) -> bool {
        self.rq_flags.has(RqFlags::SORTED)
    }

    /// Whether bios and requests may be merged into it (`rq_mergeable`).
    pub fn is_mergeable(&self) -> bool {
        !matches!(self.op, Op::Flush | Op::WriteZeroes | Op::Zone(_))
            && !self.flags.has(NOMERGE_FLAGS)
            && !self.rq_flags.has(RqFlags::STARTED)
            && !self.rq_flags.has(RqFlags::FLUSH_SEQ)
    }
}

/// Flags that exclude a bio or request from merging (`REQ_NOMERGE_FLAGS`, and the other conditions
/// of `rq_mergeable`).
pub(crate) const NOMERGE_FLAGS: BioFlags = BioFlags::NOMERGE
    .with(BioFlags::PREFLUSH)
    .with(BioFlags::FUA)
    .with(BioFlags::PASSTHROUGH);

/// Result of a bio or request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoStatus {
    /// Success.
    Ok,
    /// EIO.
    IoError,
    /// EINVAL: a passthrough command that the drive cannot take.
    Invalid,
    /// ENOSPC.
    NoSpace,
    /// EAGAIN: it would have had to wait, which `REQ_NOWAIT` forbids.
    WouldBlock,
    /// EOPNOTSUPP.
    NotSupported,
}

impl IoStatus {
    /// The errno that the submitter sees; zero for success.
    pub const fn errno(self) -> i32 {
        match self {
            IoStatus::Ok => 0,
            IoStatus::IoError => 5,
            IoStatus::WouldBlock => 11,
            IoStatus::Invalid => 22,
            IoStatus::NoSpace => 28,
            IoStatus::NotSupported => 95,
        }
    }

    /// The status for an errno; [`IoStatus::IoError`] for one without a status of its own.
    pub const fn of_errno(errno: i32) -> IoStatus {
        match errno {
            0 => IoStatus::Ok,
            11 => IoStatus::WouldBlock,
            22 => IoStatus::Invalid,
            28 => IoStatus::NoSpace,
            95 => IoStatus::NotSupported,
            _ => IoStatus::IoError,
        }
    }
}

/// A bio inside the block layer.
#[derive(Clone, Debug)]
pub struct BioNode {
    /// The submitted bio, or a part of it.
    pub bio: Bio,
    /// The next bio of the same request.
    pub(crate) next: Option<BioId>,
    /// The bio this one was split from.
    pub(crate) parent: Option<BioId>,
    /// Number of parts that have not ended, counting the bio itself.
    pub(crate) pending: u32,
    /// The first error among its parts.
    pub(crate) status: IoStatus,
}

/// All requests and bios of a queue.
#[derive(Debug, Default)]
pub struct Requests {
    requests: Slab<Request>,
    pub(crate) bios: Slab<BioNode>,
    serial: u64,
}

impl Requests {
    /// Adds a request. Public for tests of schedulers without a queue.
    #[inline(always)]
    pub fn insert(&mut self, request: Request) -> RequestId {
        self.insert_with(|| request)
    }

    /// Adds the request that `make` returns, which is built in its place.
    #[inline(always)]
    pub fn insert_with(&mut self, make: impl FnOnce() -> Request) -> RequestId {
        let serial = self.serial;
        self.serial += 1;
        let numbered = || Request { serial, ..make() };
        self.requests.insert_with(numbered)
    }

    /// Makes room for so many requests at once, so that none is allocated later. Returns `false`
    /// if there is no memory.
    pub fn make_room(&mut self, requests: usize) -> bool {
        let empty = Request::for_bio(&Bio::new(Op::Read, Sector(0), 0), Nanos::ZERO);
        self.requests.try_grow(requests, &empty)
    }

    /// Frees a request.
    #[inline]
    pub fn remove(&mut self, id: RequestId) {
        self.requests.remove(id);
    }

    /// Number of requests added so far.
    pub(crate) fn made(&self) -> u64 {
        self.serial
    }

    /// Requests that the driver has.
    pub(crate) fn in_driver(&self) -> Vec<RequestId> {
        let mut ids = self.requests.ids();
        ids.retain(|id| self[*id].rq_flags.has(RqFlags::IN_FLIGHT));
        ids
    }

    /// Number of requests in use.
    pub fn in_use(&self) -> usize {
        self.requests.in_use()
    }

    /// Number of bios in use.
    pub fn bios_in_use(&self) -> usize {
        self.bios.in_use()
    }

    /// Stores a bio, field by field: a copy of the whole struct would stall until the submitter's
    /// recent small writes are in the cache.
    #[inline]
    pub(crate) fn insert_bio(&mut self, bio: &Bio, parent: Option<BioId>) -> BioId {
        self.bios.insert(BioNode {
            bio: Bio {
                op: bio.op,
                flags: bio.flags,
                sector: bio.sector,
                sectors: bio.sectors,
                prio: bio.prio,
                submitter: bio.submitter,
                cgroup: bio.cgroup,
                user_data: bio.user_data,
            },
            next: None,
            parent,
            pending: 1,
            status: IoStatus::Ok,
        })
    }

    /// Appends the bios of `tail` to those of `head`.
    pub(crate) fn append_bios(&mut self, head: RequestId, tail: RequestId) {
        let Some((first, last)) = self[tail].bios.take() else {
            return;
        };
        match self[head].bios {
            Some((start, end)) => {
                self.bios[end].next = Some(first);
                self[head].bios = Some((start, last));
            }
            None => self[head].bios = Some((first, last)),
        }
    }
}

impl core::ops::Index<RequestId> for Requests {
    type Output = Request;
    #[inline]
    fn index(&self, id: RequestId) -> &Request {
        &self.requests[id]
    }
}

impl core::ops::IndexMut<RequestId> for Requests {
    #[inline]
    fn index_mut(&mut self, id: RequestId) -> &mut Request {
        &mut self.requests[id]
    }
}

/// Builds a request from one bio, without tags. Inlined so that it is built in place.
#[inline(always)]
pub(crate) fn request_of(bio: &Bio, segments: u16, now: Nanos) -> Request {
    Request {
        op: bio.op,
        flags: bio.flags,
        sector: bio.sector,
        sectors: bio.sectors,
        prio: bio.prio,
        submitter: bio.submitter,
        cgroup: bio.cgroup,
        rq_flags: RqFlags::default(),
        segments,
        ctx: 0,
        hctx: 0,
        tag: None,
        internal_tag: None,
        start: now,
        inserted: Nanos::ZERO,
        io_start: Nanos::ZERO,
        fifo_time: Nanos::ZERO,
        elv: [0; 2],
        flush_seq: 0,
        bios: None,
        links: [Link::default(); LINKS],
        hash: Link::default(),
        sorted_at: 0,
        serial: 0,
    }
}

impl Request {
    /// Builds a request from `bio` without tags or bios, for schedulers without a queue.
    #[inline(always)]
    pub fn for_bio(bio: &Bio, now: Nanos) -> Request {
        request_of(bio, 1, now)
    }
}

#[cfg(test)]
mod tests {
    use super::RqFlags;

    #[test]
    fn each_flag_has_a_bit_of_its_own() {
        let all = [
            RqFlags::STARTED,
            RqFlags::HASHED,
            RqFlags::FLUSH_SEQ,
            RqFlags::USE_SCHED,
            RqFlags::SCHED_TAGS,
            RqFlags::DONTPREP,
            RqFlags::BUDGET,
            RqFlags::IN_FLIGHT,
            RqFlags::FLUSH_RQ,
            RqFlags::SORTED,
            RqFlags::WBT_TRACKED,
            RqFlags::WBT_READ,
            RqFlags::WBT_DISCARD,
            RqFlags::ZONE_WRITE,
        ];
        // A flag that is missing above leaves a gap, unless it is the last.
        let union = all.into_iter().fold(RqFlags::default(), RqFlags::with);
        assert_eq!(union.0, (1 << all.len()) - 1);
        for flag in all {
            let mut set = RqFlags::default();
            set.set(flag);
            let found = all.into_iter().filter(|other| set.has(*other));
            assert_eq!(found.collect::<alloc::vec::Vec<_>>(), [flag]);
            set.clear(flag);
            assert_eq!(set, RqFlags::default());
        }
    }
}
