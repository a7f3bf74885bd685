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
}

impl Op {
    /// The direction the kernel's schedulers sort by (`rq_data_dir`):
    /// everything that is not a read counts as a write, discards included.
    pub const fn is_write(self) -> bool {
        !matches!(self, Op::Read)
    }

    /// Index into the block layer's statistics (`op_stat_group`).
    pub const fn stat_group(self) -> usize {
        match self {
            Op::Read => 0,
            Op::Write | Op::WriteZeroes => 1,
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
    /// On stable storage before it completes (`REQ_FUA`).
    pub const FUA: BioFlags = BioFlags(1 << 2);
    /// The drive's cache is flushed first (`REQ_PREFLUSH`).
    pub const PREFLUSH: BioFlags = BioFlags(1 << 3);
    /// Read ahead of need; may fail cheaply (`REQ_RAHEAD`).
    pub const RAHEAD: BioFlags = BioFlags(1 << 4);
    /// Fail with EAGAIN rather than wait (`REQ_NOWAIT`).
    pub const NOWAIT: BioFlags = BioFlags(1 << 5);
    /// More I/O follows close behind (`REQ_IDLE`), as direct I/O sets it.
    pub const IDLE: BioFlags = BioFlags(1 << 6);
    /// Must not be merged (`REQ_NOMERGE`).
    pub const NOMERGE: BioFlags = BioFlags(1 << 7);
    /// Written back from the page cache (`REQ_BACKGROUND`).
    pub const BACKGROUND: BioFlags = BioFlags(1 << 8);
    /// A command that a process made for the drive itself (`REQ_OP_DRV_IN`,
    /// `REQ_OP_DRV_OUT`), such as io_uring's for NVMe.
    pub const PASSTHROUGH: BioFlags = BioFlags(1 << 9);
    /// No modifier.
    pub const NONE: BioFlags = BioFlags(0);

    /// Whether any of `other`'s bits is set.
    pub const fn has(self, other: BioFlags) -> bool {
        self.0 & other.0 != 0
    }

    /// Both sets of bits.
    pub const fn with(self, other: BioFlags) -> BioFlags {
        BioFlags(self.0 | other.0)
    }

    /// These bits less `other`'s.
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

/// `ioprio_set(2)`'s class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IoClass {
    /// Never set: schedulers treat it as best effort.
    #[default]
    None,
    /// Real time.
    Rt,
    /// Best effort.
    Be,
    /// Only when the drive is otherwise idle.
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
    /// The kernel's number for it (`IOPRIO_PRIO_VALUE`): the class from bit 13 on, below
    /// it the level.
    pub const fn value(self) -> u16 {
        (self.class as u16) << 13 | self.level as u16
    }
}

/// Who submitted: a process (its `io_context`), as schedulers tell them apart.
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
    /// Where it starts.
    pub sector: Sector,
    /// How much, in sectors; zero only for a flush.
    pub sectors: u32,
    /// The submitter's priority.
    pub prio: IoPrio,
    /// Who submitted it.
    pub submitter: SubmitterId,
    /// The control group it is charged to.
    pub cgroup: CgroupId,
    /// The submitter's handle; it comes back with the completion.
    pub user_data: u64,
}

impl Bio {
    /// A plain bio of one range.
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

    /// Whether a process waits for it: reads always, writes when they say so
    /// (the kernel's `op_is_sync`; flush and FUA imply it).
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
