//! `Bio`: a piece of I/O as it enters the block layer.

use crate::units::Sector;

/// What a bio or request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Reads sectors.
    Read,
    /// Writes sectors.
    Write,
    /// Makes everything the drive has acknowledged durable.
    Flush,
    /// Tells the drive that sectors hold nothing worth keeping.
    Discard,
    /// Makes sectors read as zeroes.
    WriteZeroes,
    /// Changes the state of the zone that starts at its sector; its length is zero.
    Zone(ZoneAction),
}

/// What becomes of a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ZoneAction {
    /// It is empty, and its next write starts at its start (`REQ_OP_ZONE_RESET`).
    Reset,
    /// It has resources of the drive until it is closed or full (`REQ_OP_ZONE_OPEN`).
    Open,
    /// It gives the resources of an open zone back (`REQ_OP_ZONE_CLOSE`).
    Close,
    /// It takes no write until it is reset (`REQ_OP_ZONE_FINISH`).
    Finish,
}

impl Op {
    /// Whether the kernel's schedulers treat it as a write (`rq_data_dir`): true for everything but
    /// reads, discards included.
    pub const fn is_write(self) -> bool {
        !matches!(self, Op::Read)
    }

    /// Index into the block layer's statistics (`op_stat_group`).
    pub const fn stat_group(self) -> usize {
        match self {
            Op::Read => 0,
            Op::Write | Op::WriteZeroes | Op::Zone(_) => 1,
            Op::Discard => 2,
            Op::Flush => 3,
        }
    }
}

/// Modifiers of a bio, after the kernel's `REQ_*` bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct BioFlags(pub u16);

impl BioFlags {
    /// A process waits for it (`REQ_SYNC`).
    pub const SYNC: BioFlags = BioFlags(1 << 0);
    /// File system metadata (`REQ_META`).
    pub const META: BioFlags = BioFlags(1 << 1);
    /// Data is on stable storage before the bio completes (`REQ_FUA`).
    pub const FUA: BioFlags = BioFlags(1 << 2);
    /// The drive's cache is flushed before the bio (`REQ_PREFLUSH`).
    pub const PREFLUSH: BioFlags = BioFlags(1 << 3);
    /// Readahead; may fail cheaply (`REQ_RAHEAD`).
    pub const RAHEAD: BioFlags = BioFlags(1 << 4);
    /// Fails with EAGAIN rather than wait (`REQ_NOWAIT`).
    pub const NOWAIT: BioFlags = BioFlags(1 << 5);
    /// More I/O follows soon (`REQ_IDLE`), as direct I/O sets it.
    pub const IDLE: BioFlags = BioFlags(1 << 6);
    /// Must not be merged (`REQ_NOMERGE`).
    pub const NOMERGE: BioFlags = BioFlags(1 << 7);
    /// Written back from the page cache (`REQ_BACKGROUND`).
    pub const BACKGROUND: BioFlags = BioFlags(1 << 8);
    /// A passthrough command that a process made for the drive (`REQ_OP_DRV_IN`, `REQ_OP_DRV_OUT`),
    /// for instance io_uring's NVMe commands.
    pub const PASSTHROUGH: BioFlags = BioFlags(1 << 9);
    /// Its pages follow each other in memory, which makes them one segment
    /// (`bio_iov_iter_get_pages`). Not a bit of the kernel's, which looks at the addresses.
    pub const CONTIGUOUS: BioFlags = BioFlags(1 << 10);
    /// No modifier.
    pub const NONE: BioFlags = BioFlags(0);

    /// Whether any of `other`'s bits is set.
    pub const fn has(self, other: BioFlags) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns the union of both sets.
    pub const fn with(self, other: BioFlags) -> BioFlags {
        BioFlags(self.0 | other.0)
    }

    /// Returns these flags without those of `other`.
    pub const fn without(self, other: BioFlags) -> BioFlags {
        BioFlags(self.0 & !other.0)
    }
}

impl core::ops::BitOr for BioFlags {
    type Output = BioFlags;
    fn bitor(self, other: BioFlags) -> BioFlags {
        BioFlags(self.0 | other.0)
    }
}

/// Class of an I/O priority (`ioprio_set(2)`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IoClass {
    /// Not set; schedulers treat it as best effort.
    #[default]
    None,
    /// Real time.
    Rt,
    /// Best effort.
    Be,
    /// Served only while the drive is otherwise idle.
    Idle,
}

/// An I/O priority: class, and level 0 (highest) to 7.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct IoPrio {
    /// The class.
    pub class: IoClass,
    /// The level within it.
    pub level: u8,
}

impl IoPrio {
    /// Returns the kernel's encoding (`IOPRIO_PRIO_VALUE`): the class from bit 13 on, the level
    /// below it.
    pub const fn value(self) -> u16 {
        (self.class as u16) << 13 | self.level as u16
    }
}

/// The process that submitted a bio (its `io_context`), by which schedulers tell submitters apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubmitterId(pub u32);

/// The control group that a bio is charged to (`bi_blkg`); the default is the
/// root group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CgroupId(pub u16);

impl CgroupId {
    /// The root group.
    pub const ROOT: CgroupId = CgroupId(0);
}

/// A piece of I/O as it enters the block layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bio {
    /// What to do.
    pub op: Op,
    /// Modifiers.
    pub flags: BioFlags,
    /// First sector.
    pub sector: Sector,
    /// Length in sectors; zero only for a flush and the reset of a zone.
    pub sectors: u32,
    /// The submitter's priority.
    pub prio: IoPrio,
    /// Who submitted it.
    pub submitter: SubmitterId,
    /// The control group it is charged to.
    pub cgroup: CgroupId,
    /// The submitter's handle, returned with the completion.
    pub user_data: u64,
}

impl Bio {
    /// Returns a bio of one range without flags, with default priority, in the root group.
    pub fn new(op: Op, sector: Sector, sectors: u32) -> Bio {
        Bio {
            op,
            flags: BioFlags::NONE,
            sector,
            sectors,
            prio: IoPrio::default(),
            submitter: SubmitterId(0),
            cgroup: CgroupId::ROOT,
            user_data: 0,
        }
    }

    /// The sector after the last.
    pub fn end(&self) -> Sector {
        self.sector + self.sectors
    }

    /// Whether a process waits for it: true for all reads, and for writes with SYNC, FUA or
    /// PREFLUSH (`op_is_sync`).
    pub fn is_sync(&self) -> bool {
        op_is_sync(self.op, self.flags)
    }
}

/// The kernel's `op_is_sync`.
pub const fn op_is_sync(op: Op, flags: BioFlags) -> bool {
    matches!(op, Op::Read) || flags.has(BioFlags::SYNC.with(BioFlags::FUA).with(BioFlags::PREFLUSH))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_sets() {
        let (sync, both) = (BioFlags::SYNC, BioFlags::SYNC.with(BioFlags::FUA));
        assert_eq!(both.with(sync), both);
        assert_eq!(both | sync, both);
        assert_eq!(both.without(sync), BioFlags::FUA);
        assert!(both.has(sync) && !both.without(sync).has(sync));
    }
}
