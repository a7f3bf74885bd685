//! A request of virtio-blk (section 5.2.6 of the specification): a header that the
//! device reads, data in one direction, and a status that it writes.

use crate::Memory;
use crate::ring::{Chain, RingFault};

/// Bytes of a request's header.
pub const HEADER_BYTES: u32 = 16;
/// Bytes of a disk's name.
pub const ID_BYTES: usize = 20;
/// Bytes of a range to discard or to fill with zeroes.
const RANGE_BYTES: u32 = 16;
/// `VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP`.
const MAY_UNMAP: u32 = 1;
const SECTOR_BYTES: u64 = 512;

/// The operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// `VIRTIO_BLK_T_IN`.
    Read,
    /// `VIRTIO_BLK_T_OUT`.
    Write,
    /// `VIRTIO_BLK_T_FLUSH`.
    Flush,
    /// `VIRTIO_BLK_T_GET_ID`.
    GetId,
    /// `VIRTIO_BLK_T_DISCARD`.
    Discard,
    /// `VIRTIO_BLK_T_WRITE_ZEROES`.
    WriteZeroes {
        /// The range may become a hole.
        may_unmap: bool,
    },
}

impl Operation {
    /// Its number in the header.
    pub fn code(self) -> u32 {
        match self {
            Operation::Read => 0,
            Operation::Write => 1,
            Operation::Flush => 4,
            Operation::GetId => 8,
            Operation::Discard => 11,
            Operation::WriteZeroes { .. } => 13,
        }
    }
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// `VIRTIO_BLK_S_OK`.
    Ok = 0,
    /// `VIRTIO_BLK_S_IOERR`.
    IoError = 1,
    /// `VIRTIO_BLK_S_UNSUPP`.
    Unsupported = 2,
}

impl Status {
    /// Writes it where the driver expects it, after all data.
    ///
    /// # Errors
    /// If the chain has no room for it.
    pub fn write(self, memory: &Memory, chain: &Chain) -> Result<(), RingFault> {
        let at = chain.writable_bytes().checked_sub(1);
        chain.write(memory, at.ok_or(RingFault::NoStatus)?, &[self as u8])
    }
}

/// The limits of a disk's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The size of the disk.
    pub capacity_sectors: u64,
    /// Its logical block size.
    pub block_bytes: u32,
    /// The longest read or write.
    pub max_transfer_bytes: u32,
    /// The longest discard; 0 if it takes none.
    pub max_discard_sectors: u32,
    /// The longest write of zeroes.
    pub max_zeroes_sectors: u32,
    /// Writes are refused.
    pub read_only: bool,
}

/// A request that was checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The operation.
    pub operation: Operation,
    /// The offset in bytes.
    pub offset: u64,
    /// The length in bytes.
    pub length: u32,
}

impl Request {
    /// Reads a request from a chain. The header is copied before it is checked, because the
    /// driver may change it at any time.
    ///
    /// # Errors
    /// The status to answer with, if the disk does not take the request.
    pub fn parse(memory: &Memory, chain: &Chain, limits: &Limits) -> Result<Request, Status> {
        let mut header = [0; HEADER_BYTES as usize];
        chain
            .read(memory, 0, &mut header)
            .map_err(|_| Status::IoError)?;
        let (code, sector) = decode_header(header);
        let given = chain.readable_bytes() - HEADER_BYTES;
        let taken = chain.writable_bytes() - 1;
        match code {
            0 => limits.transfer(Operation::Read, sector, taken, given),
            1 => limits.transfer(Operation::Write, sector, given, taken),
            4 => Ok(Request::without_range(Operation::Flush)),
            8 if taken as usize >= ID_BYTES => Ok(Request::without_range(Operation::GetId)),
            8 => Err(Status::IoError),
            11 | 13 => {
                let mut range = [0; RANGE_BYTES as usize];
                let read = chain.read(memory, HEADER_BYTES, &mut range);
                read.map_err(|_| Status::IoError)?;
                // The configuration space allows only one range.
                if given != RANGE_BYTES {
                    return Err(Status::IoError);
                }
                limits.range(code, range)
            }
            _ => Err(Status::Unsupported),
        }
    }

    fn without_range(operation: Operation) -> Request {
        Request {
            operation,
            offset: 0,
            length: 0,
        }
    }
}

impl Limits {
    /// Checks a read or write of `length` bytes; `other` bytes have the wrong direction.
    fn transfer(
        &self,
        operation: Operation,
        sector: u64,
        length: u32,
        other: u32,
    ) -> Result<Request, Status> {
        let is_refused = operation == Operation::Write && self.read_only;
        if other > 0 || length == 0 || length > self.max_transfer_bytes || is_refused {
            return Err(Status::IoError);
        }
        self.check(operation, sector, u64::from(length))
    }

    /// Checks a discard or a write of zeroes.
    fn range(&self, code: u32, bytes: [u8; RANGE_BYTES as usize]) -> Result<Request, Status> {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = bytes;
        let sector = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
        let sectors = u32::from_le_bytes([i, j, k, l]);
        let flags = u32::from_le_bytes([m, n, o, p]);
        let is_discard = code == Operation::Discard.code();
        let (operation, most, known_flags) = match is_discard {
            true => (Operation::Discard, self.max_discard_sectors, 0),
            false => {
                let may_unmap = flags & MAY_UNMAP != 0;
                let operation = Operation::WriteZeroes { may_unmap };
                (operation, self.max_zeroes_sectors, MAY_UNMAP)
            }
        };
        if most == 0 || flags & !known_flags != 0 {
            return Err(Status::Unsupported);
        }
        if self.read_only || sectors == 0 || sectors > most {
            return Err(Status::IoError);
        }
        self.check(operation, sector, u64::from(sectors) * SECTOR_BYTES)
    }

    fn check(&self, operation: Operation, sector: u64, length: u64) -> Result<Request, Status> {
        let offset = sector.checked_mul(SECTOR_BYTES);
        let end = offset.and_then(|offset| offset.checked_add(length));
        let (Some(offset), Some(end)) = (offset, end) else {
            return Err(Status::IoError);
        };
        let block = u64::from(self.block_bytes);
        let is_aligned = offset.is_multiple_of(block) && length.is_multiple_of(block);
        if !is_aligned || end > self.capacity_sectors * SECTOR_BYTES {
            return Err(Status::IoError);
        }
        let length = u32::try_from(length).map_err(|_| Status::IoError)?;
        Ok(Request {
            operation,
            offset,
            length,
        })
    }
}

/// The bytes of a request's header.
pub fn encode_header(operation: Operation, sector: u64) -> [u8; HEADER_BYTES as usize] {
    let mut header = [0; HEADER_BYTES as usize];
    header[..4].copy_from_slice(&operation.code().to_le_bytes());
    header[8..].copy_from_slice(&sector.to_le_bytes());
    header
}

/// A header's operation and sector. Its priority is not used.
fn decode_header(header: [u8; HEADER_BYTES as usize]) -> (u32, u64) {
    let [a, b, c, d, _, _, _, _, e, f, g, h, i, j, k, l] = header;
    let sector = u64::from_le_bytes([e, f, g, h, i, j, k, l]);
    (u32::from_le_bytes([a, b, c, d]), sector)
}
