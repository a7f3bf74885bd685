//! A command's operations on the medium, step by step.

use crate::DataOut;
use crate::command::Extent;
use crate::sense::Sense;
use crate::unit::Disk;

/// The most bytes of a step without data.
const MAX_STEP_BYTES: u64 = 1 << 30;

/// The source of the data of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// All data from the initiator.
    All,
    /// One block from the initiator, repeated for each block.
    OneBlock,
}

/// The operation of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Reads data for the initiator.
    Read,
    /// Reads and discards the data.
    Check,
    /// Reads and compares with the source's data.
    Compare(Source),
    /// Writes the source's data.
    Write(Source),
    /// Makes finished writes durable.
    Flush,
    /// Unmaps blocks.
    Unmap,
    /// Writes zeroes.
    WriteZeroes {
        /// Whether the blocks may be unmapped if they then read as zeroes.
        may_unmap: bool,
    },
}

/// One request to the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MediumRequest {
    /// The operation.
    pub operation: Operation,
    /// The offset on the medium in bytes.
    pub offset: u64,
    /// The length in bytes.
    pub length: u32,
    /// Whether it must be on the medium when it ends (FUA).
    pub is_durable: bool,
    /// The offset of its data in the initiator's data, in bytes.
    pub data_at: u64,
    block_bytes: u32,
}

impl MediumRequest {
    /// Fills `into` with the data to be written, from `at` bytes after the step's start on.
    /// Returns whether there was enough.
    pub fn fill<D: DataOut + ?Sized>(&self, data: &D, at: u32, into: &mut [u8]) -> bool {
        match self.operation {
            Operation::Write(Source::All) | Operation::Compare(Source::All) => {
                data.read(self.data_at + u64::from(at), into)
            }
            _ => self.fill_with_block(data, at, into),
        }
    }

    fn fill_with_block<D: DataOut + ?Sized>(&self, data: &D, at: u32, into: &mut [u8]) -> bool {
        let block_bytes = self.block_bytes as usize;
        let mut place = at as usize % block_bytes;
        let mut filled = 0;
        while filled < into.len() {
            let length = (block_bytes - place).min(into.len() - filled);
            if !data.read(place as u64, &mut into[filled..filled + length]) {
                return false;
            }
            filled += length;
            place = 0;
        }
        true
    }

    /// Compares data of the medium, from `at` bytes after the step's start on.
    ///
    /// # Errors
    /// At the first byte that differs, or if the initiator's data cannot be read.
    pub fn compare<D: DataOut + ?Sized>(
        &self,
        data: &D,
        at: u32,
        medium: &[u8],
    ) -> Result<(), Fault> {
        let mut piece = [0; 512];
        for (index, found) in medium.chunks(piece.len()).enumerate() {
            let done = (index * piece.len()) as u32;
            let wanted = &mut piece[..found.len()];
            if !self.fill(data, at + done, wanted) {
                return Err(Fault::NoData);
            }
            let differs = found.iter().zip(&*wanted).position(|(a, b)| a != b);
            if let Some(place) = differs {
                let place = u64::from(at + done) + place as u64;
                return Err(Fault::Differs(self.data_at + place));
            }
        }
        Ok(())
    }
}

/// The reason for which a step failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The medium failed.
    Medium,
    /// The medium has no room.
    NoSpace,
    /// The initiator's data cannot be read.
    NoData,
    /// This byte of the initiator's data differs from the medium.
    Differs(u64),
}

/// The remaining work of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Work {
    /// One operation on all blocks.
    Blocks(Operation),
    /// A flush, once.
    Flush,
    /// The same, after all commands before it have ended.
    FlushAfterAll,
    /// A comparison of the blocks, which is followed by a write of this extent.
    Compare(Extent),
    /// An unmap, also of these further ranges, from the last one on.
    Unmap(Vec<Extent>),
}

/// A command in progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    work: Work,
    is_durable: bool,
    /// The remaining blocks of the current range.
    left: Extent,
    /// The offset of their data in bytes.
    data_at: u64,
    block_bytes: u32,
    max_step_blocks: u64,
}

const NO_BLOCKS: Extent = Extent { lba: 0, blocks: 0 };

impl Task {
    fn new(disk: &Disk, work: Work, extent: Extent, is_durable: bool) -> Task {
        let carries_data = !matches!(
            work,
            Work::Unmap(_) | Work::Blocks(Operation::WriteZeroes { .. })
        );
        Task {
            work,
            is_durable,
            left: extent,
            data_at: 0,
            block_bytes: disk.block_bytes,
            max_step_blocks: match carries_data {
                true => disk.max_transfer_blocks(),
                false => MAX_STEP_BYTES / u64::from(disk.block_bytes),
            },
        }
    }

    fn without_blocks(work: Work) -> Task {
        Task {
            work,
            is_durable: false,
            left: NO_BLOCKS,
            data_at: 0,
            block_bytes: 1,
            max_step_blocks: 1,
        }
    }

    pub(crate) fn none() -> Task {
        Task::without_blocks(Work::Blocks(Operation::Check))
    }

    pub(crate) fn flush() -> Task {
        Task::without_blocks(Work::Flush)
    }

    /// A flush of all that was written by commands that came before, also of those that have
    /// not ended.
    pub(crate) fn flush_after_all() -> Task {
        Task::without_blocks(Work::FlushAfterAll)
    }

    pub(crate) fn read(disk: &Disk, extent: Extent) -> Task {
        Task::new(disk, Work::Blocks(Operation::Read), extent, false)
    }

    pub(crate) fn write(disk: &Disk, extent: Extent, source: Source, is_durable: bool) -> Task {
        let work = Work::Blocks(Operation::Write(source));
        Task::new(disk, work, extent, is_durable)
    }

    pub(crate) fn verify(disk: &Disk, extent: Extent, compared: Option<Source>) -> Task {
        let operation = compared.map_or(Operation::Check, Operation::Compare);
        Task::new(disk, Work::Blocks(operation), extent, false)
    }

    pub(crate) fn write_zeroes(
        disk: &Disk,
        extent: Extent,
        may_unmap: bool,
        is_durable: bool,
    ) -> Task {
        let work = Work::Blocks(Operation::WriteZeroes { may_unmap });
        Task::new(disk, work, extent, is_durable)
    }

    pub(crate) fn compare_and_write(disk: &Disk, extent: Extent, is_durable: bool) -> Task {
        Task::new(disk, Work::Compare(extent), extent, is_durable)
    }

    pub(crate) fn unmap(disk: &Disk, ranges: Vec<Extent>, is_durable: bool) -> Task {
        Task::new(disk, Work::Unmap(ranges), NO_BLOCKS, is_durable)
    }

    /// Returns whether it runs alone: after all commands before it have ended, and before any
    /// other begins.
    pub fn is_exclusive(&self) -> bool {
        matches!(self.work, Work::Compare(_) | Work::FlushAfterAll)
    }

    /// Returns the next step, to be carried out after the one before has succeeded; `None` at
    /// the end of the command.
    pub fn next_request(&mut self) -> Option<MediumRequest> {
        if matches!(self.work, Work::Flush | Work::FlushAfterAll) {
            self.work = Work::Blocks(Operation::Check);
            return Some(self.step(Operation::Flush, NO_BLOCKS));
        }
        while self.left.blocks == 0 {
            match &mut self.work {
                Work::Unmap(ranges) => self.left = ranges.pop()?,
                Work::Compare(all) => {
                    self.left = *all;
                    self.work = Work::Blocks(Operation::Write(Source::All));
                    // COMPARE AND WRITE may have no blocks.
                    if self.left.blocks == 0 {
                        return None;
                    }
                }
                Work::Blocks(_) | Work::Flush | Work::FlushAfterAll => return None,
            }
        }
        let now = Extent {
            blocks: self.left.blocks.min(self.max_step_blocks),
            ..self.left
        };
        let operation = match &self.work {
            Work::Blocks(operation) => *operation,
            Work::Compare(_) => Operation::Compare(Source::All),
            Work::Unmap(_) | Work::Flush | Work::FlushAfterAll => Operation::Unmap,
        };
        let step = self.step(operation, now);
        self.left.lba += now.blocks;
        self.left.blocks -= now.blocks;
        self.data_at += u64::from(step.length);
        Some(step)
    }

    fn step(&self, operation: Operation, blocks: Extent) -> MediumRequest {
        let block_bytes = u64::from(self.block_bytes);
        let modifies = matches!(
            operation,
            Operation::Write(_) | Operation::Unmap | Operation::WriteZeroes { .. }
        );
        MediumRequest {
            operation,
            offset: blocks.lba * block_bytes,
            length: (blocks.blocks * block_bytes) as u32,
            is_durable: self.is_durable && modifies,
            data_at: self.data_at,
            block_bytes: self.block_bytes,
        }
    }

    /// Returns the sense data for a step that failed.
    pub fn sense(&self, step: &MediumRequest, fault: Fault) -> Sense {
        let lba = step.offset / u64::from(self.block_bytes);
        match (fault, step.operation) {
            (Fault::NoSpace, _) => Sense::NO_SPACE,
            (Fault::NoData, _) => Sense::TOO_LITTLE_DATA,
            (Fault::Differs(at), _) => Sense::miscompare(at),
            (Fault::Medium, Operation::Read | Operation::Check | Operation::Compare(_)) => {
                Sense::read_error(lba)
            }
            (Fault::Medium, _) => Sense::write_error(lba),
        }
    }
}
