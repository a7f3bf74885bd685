//! The disk as a logical unit: what it answers at once, and which tasks it begins.

use crate::DataOut;
use crate::command::{ByteCheck, Command, Extent, Opcodes, Supported, number};
use crate::inquiry::{self, MAX_COMPARE_BLOCKS, MAX_RANGE_BYTES, MAX_UNMAP_RANGES};
use crate::mode::{self, Asked};
use crate::report;
use crate::sense::Sense;
use crate::task::{Source, Task};

/// The longest serial number that is told.
const MAX_SERIAL_BYTES: usize = 64;
/// The operation code of UNMAP.
const UNMAP: u8 = 0x42;
/// Bytes of UNMAP's list before its ranges, and of each range.
const UNMAP_HEADER_BYTES: usize = 8;
const UNMAP_RANGE_BYTES: usize = 16;
const MAX_UNMAP_BYTES: usize = UNMAP_HEADER_BYTES + UNMAP_RANGE_BYTES * MAX_UNMAP_RANGES;

/// What does not change about a disk.
#[derive(Clone, Debug)]
pub struct Disk {
    /// Its size in blocks, at least one.
    pub blocks: u64,
    /// Bytes of a block: a power of two from 512 on.
    pub block_bytes: u32,
    /// Bytes that are best written together: a multiple of a block by a power of two.
    pub physical_block_bytes: u32,
    /// Bytes of the longest read or write, at least a block.
    pub max_transfer_bytes: u32,
    /// Writes are refused.
    pub read_only: bool,
    /// It has a moving head.
    pub rotational: bool,
    /// Blocks can be given back.
    pub unmaps: bool,
    /// Its serial number.
    pub name: String,
}

impl Disk {
    /// The serial number, as much of it as is told.
    pub(crate) fn serial(&self) -> &str {
        let mut end = self.name.len().min(MAX_SERIAL_BYTES);
        while !self.name.is_char_boundary(end) {
            end -= 1;
        }
        &self.name[..end]
    }

    /// A name that is unique as far as the serial number is (NAA, locally assigned).
    pub fn naa(&self) -> u64 {
        inquiry::local_naa(&self.name)
    }

    pub(crate) fn physical_blocks(&self) -> u32 {
        (self.physical_block_bytes / self.block_bytes).max(1)
    }

    pub(crate) fn max_transfer_blocks(&self) -> u64 {
        u64::from((self.max_transfer_bytes / self.block_bytes).max(1))
    }

    pub(crate) fn max_range_blocks(&self) -> u64 {
        MAX_RANGE_BYTES / u64::from(self.block_bytes)
    }

    pub(crate) fn max_compare_blocks(&self) -> u64 {
        self.max_transfer_blocks().min(MAX_COMPARE_BLOCKS)
    }

    /// Whether it has a command.
    pub(crate) fn has(&self, command: &Supported) -> bool {
        command.opcode() != UNMAP || self.unmaps
    }

    fn data_bytes(&self, blocks: u64) -> u64 {
        blocks.saturating_mul(self.block_bytes.into())
    }

    /// Checks that blocks are on the disk, and not more than `most`.
    fn check(&self, extent: Extent, most: u64) -> Result<(), Sense> {
        let end = extent.lba.checked_add(extent.blocks);
        if end.is_none_or(|end| end > self.blocks) || extent.lba >= self.blocks {
            return Err(Sense::OUT_OF_RANGE);
        }
        match extent.blocks > most {
            true => Err(Sense::INVALID_FIELD),
            false => Ok(()),
        }
    }
}

/// What a command leads to.
#[derive(Debug, PartialEq, Eq)]
pub enum Started {
    /// It has ended well; these bytes go to the initiator, as far as it has room.
    Answered(Vec<u8>),
    /// Its steps are to be carried out.
    Task(Task),
}

/// A disk with what its initiator can change.
#[derive(Debug)]
pub struct LogicalUnit {
    disk: Disk,
    write_cache: bool,
    is_stopped: bool,
}

impl LogicalUnit {
    /// A disk with its write cache on.
    pub fn new(disk: Disk) -> LogicalUnit {
        LogicalUnit {
            disk,
            write_cache: true,
            is_stopped: false,
        }
    }

    /// What does not change about it.
    pub fn disk(&self) -> &Disk {
        &self.disk
    }

    /// Begins a command.
    ///
    /// # Errors
    /// If it fails at once.
    pub fn start<D: DataOut + ?Sized>(&mut self, cdb: &[u8], data: &D) -> Result<Started, Sense> {
        let command = Command::parse(cdb)?;
        if self.is_stopped && needs_medium(command) {
            return Err(Sense::STOPPED);
        }
        let (answer, allocation) = match command {
            Command::TestUnitReady => (Vec::new(), 0),
            Command::RequestSense {
                descriptor,
                allocation,
            } => (self.request_sense(descriptor), allocation),
            Command::Inquiry { page, allocation } => {
                (inquiry::inquiry(&self.disk, page)?, allocation)
            }
            Command::ModeSense {
                is_long,
                no_descriptor,
                long_lba,
                page,
                subpage,
                allocation,
            } => {
                let asked = Asked {
                    is_long,
                    no_descriptor,
                    long_lba,
                    page,
                    subpage,
                };
                (
                    mode::sense(&self.disk, self.write_cache, asked)?,
                    allocation,
                )
            }
            Command::ReadCapacity10 => (report::capacity_10(&self.disk), usize::MAX),
            Command::ReadCapacity16 { allocation } => (report::capacity_16(&self.disk), allocation),
            Command::GetLbaStatus { lba, allocation } => {
                let extent = Extent { lba, blocks: 0 };
                self.disk.check(extent, 0)?;
                (report::lba_status(&self.disk, lba), allocation)
            }
            Command::ReportLuns { select, allocation } => (report::luns(select)?, allocation),
            Command::ReportOpcodes {
                which,
                with_timeouts,
                allocation,
            } => (self.report_opcodes(which, with_timeouts)?, allocation),
            command => return self.begin(command, data).map(Started::Task),
        };
        let mut answer = answer;
        answer.truncate(allocation);
        Ok(Started::Answered(answer))
    }

    fn request_sense(&self, descriptor: bool) -> Vec<u8> {
        let sense = match self.is_stopped {
            true => Sense::STOPPED,
            false => Sense::NONE,
        };
        match descriptor {
            true => sense.descriptor().to_vec(),
            false => sense.fixed().to_vec(),
        }
    }

    fn report_opcodes(&self, which: Opcodes, with_timeouts: bool) -> Result<Vec<u8>, Sense> {
        report::opcodes(&self.disk, which, with_timeouts)
    }

    /// Begins a command that has something done to the medium.
    fn begin<D: DataOut + ?Sized>(&mut self, command: Command, data: &D) -> Result<Task, Sense> {
        let (disk, transfer) = (&self.disk, self.disk.max_transfer_blocks());
        match command {
            Command::Read { extent } => {
                disk.check(extent, transfer)?;
                Ok(Task::read(disk, extent))
            }
            Command::Write { extent, fua } => {
                disk.check(extent, transfer)?;
                self.check_writable(data, disk.data_bytes(extent.blocks))?;
                Ok(Task::write(disk, extent, Source::All, self.is_durable(fua)))
            }
            Command::Verify { extent, check } => self.begin_verify(extent, check, data),
            Command::SynchronizeCache { extent } => {
                // Length 0 is up to the end; everything is flushed in any case. With IMMED the
                // answer comes after the flush all the same, which no initiator can tell.
                disk.check(extent, u64::MAX)?;
                Ok(Task::flush())
            }
            Command::WriteSame {
                extent,
                unmap,
                no_data,
            } => self.begin_write_same(extent, unmap, no_data, data),
            Command::CompareAndWrite { extent, fua } => {
                disk.check(extent, disk.max_compare_blocks())?;
                self.check_writable(data, disk.data_bytes(extent.blocks * 2))?;
                Ok(Task::compare_and_write(disk, extent, self.is_durable(fua)))
            }
            Command::Unmap { list_bytes } => {
                let ranges = self.read_ranges(list_bytes, data)?;
                Ok(Task::unmap(disk, ranges, self.is_durable(false)))
            }
            Command::ModeSelect {
                is_long,
                list_bytes,
            } => {
                let wanted = mode::select(disk, self.write_cache, is_long, list_bytes, data)?;
                let had_cache = self.write_cache;
                self.write_cache = wanted.unwrap_or(had_cache);
                // What was cached must not wait for a flush that nobody sends any more.
                match had_cache && !self.write_cache {
                    true => Ok(Task::flush()),
                    false => Ok(Task::none()),
                }
            }
            Command::StartStop { start, no_flush } => {
                self.is_stopped = !start;
                match start || no_flush {
                    true => Ok(Task::none()),
                    false => Ok(Task::flush()),
                }
            }
            _ => Err(Sense::INTERNAL),
        }
    }

    fn begin_verify<D: DataOut + ?Sized>(
        &self,
        extent: Extent,
        check: ByteCheck,
        data: &D,
    ) -> Result<Task, Sense> {
        let disk = &self.disk;
        let (most, needed, compared) = match check {
            ByteCheck::None => (u64::MAX, 0, None),
            ByteCheck::All => (disk.max_transfer_blocks(), extent.blocks, Some(Source::All)),
            ByteCheck::OneBlock => (u64::MAX, extent.blocks.min(1), Some(Source::OneBlock)),
        };
        disk.check(extent, most)?;
        check_data(data, disk.data_bytes(needed))?;
        Ok(Task::verify(disk, extent, compared))
    }

    fn begin_write_same<D: DataOut + ?Sized>(
        &self,
        extent: Extent,
        unmap: bool,
        no_data: bool,
        data: &D,
    ) -> Result<Task, Sense> {
        let disk = &self.disk;
        disk.check(extent, disk.max_range_blocks())?;
        // WSNZ: a length of 0 would be up to the end.
        if extent.blocks == 0 {
            return Err(Sense::INVALID_FIELD);
        }
        if unmap && !disk.unmaps {
            return Err(Sense::invalid_field(1));
        }
        self.check_writable(data, if no_data { 0 } else { disk.block_bytes.into() })?;
        let durable = self.is_durable(false);
        match no_data || is_zero(data, disk.block_bytes)? {
            true => Ok(Task::write_zeroes(disk, extent, unmap, durable)),
            false => Ok(Task::write(disk, extent, Source::OneBlock, durable)),
        }
    }

    /// The ranges of an UNMAP (SBC-3, section 5.28).
    fn read_ranges<D: DataOut + ?Sized>(
        &self,
        list_bytes: usize,
        data: &D,
    ) -> Result<Vec<Extent>, Sense> {
        if !self.disk.unmaps {
            return Err(Sense::UNKNOWN_COMMAND);
        }
        if list_bytes == 0 {
            return Ok(Vec::new());
        }
        if list_bytes < UNMAP_HEADER_BYTES {
            return Err(Sense::LIST_LENGTH);
        }
        self.check_writable(data, 0)?;
        let mut list = vec![0; list_bytes.min(MAX_UNMAP_BYTES)];
        if !data.read(0, &mut list) {
            return Err(Sense::TOO_LITTLE_DATA);
        }
        let (header, rest) = list.split_at(UNMAP_HEADER_BYTES);
        let descriptors_bytes = number(&header[2..4]) as usize;
        if descriptors_bytes / UNMAP_RANGE_BYTES > MAX_UNMAP_RANGES {
            return Err(Sense::invalid_parameter(2));
        }
        let rest = &rest[..rest.len().min(descriptors_bytes)];
        let ranges = rest.chunks_exact(UNMAP_RANGE_BYTES).map(|range| Extent {
            lba: number(&range[..8]),
            blocks: number(&range[8..12]),
        });
        let ranges: Vec<Extent> = ranges.collect();
        let mut total = 0;
        for range in &ranges {
            self.disk.check(*range, u64::MAX)?;
            total += range.blocks;
        }
        match total > self.disk.max_range_blocks() {
            true => Err(Sense::invalid_parameter(UNMAP_HEADER_BYTES as u16)),
            false => Ok(ranges),
        }
    }

    /// Whether a write is on the medium before it is answered.
    fn is_durable(&self, fua: bool) -> bool {
        fua || !self.write_cache
    }

    fn check_writable<D: DataOut + ?Sized>(&self, data: &D, bytes: u64) -> Result<(), Sense> {
        match self.disk.read_only {
            true => Err(Sense::WRITE_PROTECTED),
            false => check_data(data, bytes),
        }
    }
}

fn check_data<D: DataOut + ?Sized>(data: &D, bytes: u64) -> Result<(), Sense> {
    match data.length_bytes() < bytes {
        true => Err(Sense::TOO_LITTLE_DATA),
        false => Ok(()),
    }
}

/// Whether the block that came along holds zeroes.
fn is_zero<D: DataOut + ?Sized>(data: &D, block_bytes: u32) -> Result<bool, Sense> {
    let mut piece = [0; 512];
    for at in (0..u64::from(block_bytes)).step_by(piece.len()) {
        if !data.read(at, &mut piece) {
            return Err(Sense::TOO_LITTLE_DATA);
        }
        if piece.iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn needs_medium(command: Command) -> bool {
    !matches!(
        command,
        Command::RequestSense { .. }
            | Command::Inquiry { .. }
            | Command::ModeSense { .. }
            | Command::ModeSelect { .. }
            | Command::StartStop { .. }
            | Command::ReportLuns { .. }
            | Command::ReportOpcodes { .. }
    )
}
