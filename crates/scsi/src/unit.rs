//! The disk as a logical unit, which answers a command at once or starts a task.

use crate::DataOut;
use crate::command::{ByteCheck, Command, Extent, Opcodes, Supported, number};
use crate::inquiry::{self, MAX_COMPARE_BLOCKS, MAX_RANGE_BYTES, MAX_UNMAP_RANGES};
use crate::mode::{self, ModeSenseFields};
use crate::report;
use crate::sense::Sense;
use crate::task::{Source, Task};

/// The longest reported serial number.
const MAX_SERIAL_BYTES: usize = 64;
/// The operation code of UNMAP.
const UNMAP: u8 = 0x42;
/// The bytes of UNMAP's parameter list before its block descriptors, and of each of these.
const UNMAP_HEADER_BYTES: usize = 8;
const UNMAP_RANGE_BYTES: usize = 16;
const MAX_UNMAP_BYTES: usize = UNMAP_HEADER_BYTES + UNMAP_RANGE_BYTES * MAX_UNMAP_RANGES;

/// The constant properties of a disk.
#[derive(Clone, Debug)]
pub struct Disk {
    /// Its size in blocks, at least one.
    pub blocks: u64,
    /// Bytes of a block: a power of two, at least 512.
    pub block_bytes: u32,
    /// Bytes of a physical block: a block times a power of two.
    pub physical_block_bytes: u32,
    /// Bytes of the longest read or write, at least one block.
    pub max_transfer_bytes: u32,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Whether it is a rotating medium.
    pub rotational: bool,
    /// Whether it supports UNMAP.
    pub unmaps: bool,
    /// Its serial number.
    pub name: String,
}

impl Disk {
    /// Returns the reported part of the serial number.
    pub(crate) fn serial(&self) -> &str {
        let mut end = self.name.len().min(MAX_SERIAL_BYTES);
        while !self.name.is_char_boundary(end) {
            end -= 1;
        }
        &self.name[..end]
    }

    /// Returns a name made of the serial number (NAA, locally assigned).
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

    /// Returns whether it supports a command.
    pub(crate) fn has(&self, command: &Supported) -> bool {
        command.opcode() != UNMAP || self.unmaps
    }

    fn data_bytes(&self, blocks: u64) -> u64 {
        blocks.saturating_mul(self.block_bytes.into())
    }

    /// Checks that blocks are on the disk and at most `most`.
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

/// The result of starting a command.
#[derive(Debug, PartialEq, Eq)]
pub enum Started {
    /// The command has succeeded with this data for the initiator.
    Answered(Vec<u8>),
    /// The steps of this task must be carried out.
    Task(Task),
}

/// A disk with the state that its initiator can change.
#[derive(Debug)]
pub struct LogicalUnit {
    disk: Disk,
    write_cache: bool,
    is_stopped: bool,
}

impl LogicalUnit {
    /// Returns a disk whose write cache is enabled.
    pub fn new(disk: Disk) -> LogicalUnit {
        LogicalUnit {
            disk,
            write_cache: true,
            is_stopped: false,
        }
    }

    /// Returns its constant properties.
    pub fn disk(&self) -> &Disk {
        &self.disk
    }

    /// Starts a command.
    ///
    /// # Errors
    /// If it fails without an access to the medium.
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
                let asked = ModeSenseFields {
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

    /// Starts a command that accesses the medium.
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
                // Everything is flushed, whatever the range. IMMED is ignored: answering only
                // after the flush is also correct.
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
                // Without a write cache no initiator flushes, so what is cached, or about to be,
                // is flushed now (SBC-3, the bit WCE).
                match had_cache && !self.write_cache {
                    true => Ok(Task::flush_after_all()),
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
        // WSNZ: length 0, which would mean up to the end, is not supported.
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

    /// Reads the ranges of an UNMAP (SBC-3, section 5.28).
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

    /// Returns whether a write must be on the medium before it is answered.
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

/// Returns whether the block from the initiator is all zeroes.
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
