//! What a process's I/O is to the block layer.

use blklab_blk::{Bio, BioFlags, IoClass, IoPrio, Op, SECTOR_SIZE, SubmitterId};
use blklab_workload::fio::{Direction, JobSpec, Priority, SyncMode};

use super::Process;

impl Process {
    /// The bio of an I/O.
    #[inline]
    pub(super) fn bio(&self, slot: u32, nowait: bool) -> Bio {
        let io = &self.ios[slot as usize];
        let (op, mut flags) = match io.dir {
            Direction::Read => (Op::Read, BioFlags::NONE),
            Direction::Write => (Op::Write, self.write_flags),
            Direction::Trim => (Op::Discard, BioFlags::NONE),
        };
        if nowait && op != Op::Discard {
            flags = flags.with(BioFlags::NOWAIT);
        }
        Bio {
            flags,
            prio: io.prio,
            submitter: SubmitterId(self.id as u32),
            cgroup: self.cgroup,
            user_data: (self.id as u64) << 32 | slot as u64,
            ..Bio::new(op, io.sector, (io.bytes / SECTOR_SIZE) as u32)
        }
    }
}

/// What is said of a write (`dio_bio_write_op`): direct ones are synchronous, and
/// more may follow.
pub(super) fn write_flags(spec: &JobSpec) -> BioFlags {
    let flags = BioFlags::SYNC.with(BioFlags::IDLE);
    match spec.sync {
        SyncMode::None => flags,
        _ => flags.with(BioFlags::FUA),
    }
}

/// A priority as the block layer takes it. A process that never set one has
/// best effort, level 4 (`IOPRIO_BE_NORM`).
pub(super) fn io_prio(priority: Option<Priority>) -> IoPrio {
    match priority {
        Some(Priority { class: 1, level }) => IoPrio {
            class: IoClass::Rt,
            level,
        },
        Some(Priority { class: 2, level }) => IoPrio {
            class: IoClass::Be,
            level,
        },
        Some(Priority { class: 3, level }) => IoPrio {
            class: IoClass::Idle,
            level,
        },
        _ => IoPrio {
            class: IoClass::Be,
            level: 4,
        },
    }
}
