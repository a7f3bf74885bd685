//! What a queue may ask of its drive (`/sys/block/*/queue/`).

use crate::bio::Op;

/// Bytes of memory that lie together: a user's buffer is scattered page by
/// page, so a page each.
const SEGMENT_BYTES: u64 = 4096;

/// How much merging is tried (`queue/nomerges`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum NoMerges {
    /// 0: everything.
    #[default]
    All,
    /// 1: only with the request merged last.
    OneHit,
    /// 2: nothing.
    Never,
}

/// A queue's limits, with the kernel's names. Sizes are in sectors of 512 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    /// Size of the drive.
    pub capacity_sectors: u64,
    /// Every range is a multiple of this, in sectors: a power of two, as
    /// `blk_validate_block_size` demands.
    pub logical_block_sectors: u32,
    /// Largest read or write (`max_sectors_kb` x 2).
    pub max_sectors: u32,
    /// Most memory segments of a request.
    pub max_segments: u16,
    /// Largest discard; zero where the drive takes none.
    pub max_discard_sectors: u32,
    /// Ranges of one discard command; more than one makes any two discards mergeable.
    pub max_discard_segments: u16,
    /// Largest write of zeroes; zero where the drive takes none.
    pub max_write_zeroes_sectors: u32,
    /// The drive acknowledges writes that are not durable (`write_cache` is
    /// `write back`).
    pub write_cache: bool,
    /// The drive honours FUA.
    pub fua: bool,
    /// The drive has moving parts.
    pub rotational: bool,
    /// How much merging is tried.
    pub nomerges: NoMerges,
}

/// The kernel's cap on `max_sectors_kb` while it is not set (`BLK_DEF_MAX_SECTORS_CAP`).
pub const DEFAULT_MAX_SECTORS: u32 = 2560;

impl Default for QueueLimits {
    fn default() -> Self {
        QueueLimits {
            capacity_sectors: u64::MAX,
            logical_block_sectors: 1,
            max_sectors: DEFAULT_MAX_SECTORS,
            max_segments: 128,
            max_discard_sectors: u32::MAX >> 9,
            max_discard_segments: 1,
            max_write_zeroes_sectors: 0,
            write_cache: false,
            fua: false,
            rotational: false,
            nomerges: NoMerges::All,
        }
    }
}

impl QueueLimits {
    /// Memory segments of a bio of `sectors`.
    #[inline]
    pub fn segments_of(&self, sectors: u32) -> u16 {
        let bytes = sectors as u64 * crate::units::SECTOR_SIZE;
        bytes.div_ceil(SEGMENT_BYTES).clamp(1, u16::MAX as u64) as u16
    }

    /// Whether a number of sectors, or all of several or-ed together, is a
    /// number of whole blocks.
    #[inline]
    pub fn is_whole_blocks(&self, sectors: u64) -> bool {
        sectors & (self.logical_block_sectors as u64 - 1) == 0
    }

    /// The largest request of an operation, in whole blocks.
    #[inline]
    pub fn max_request_sectors(&self, op: Op) -> u32 {
        let max = match op {
            Op::Discard => self.max_discard_sectors,
            Op::WriteZeroes => self.max_write_zeroes_sectors,
            _ => self.max_rw_sectors(),
        };
        (max & !(self.logical_block_sectors - 1)).max(self.logical_block_sectors)
    }

    /// The largest request of reads or writes that both limits allow.
    #[inline]
    pub fn max_rw_sectors(&self) -> u32 {
        let by_segments = self.max_segments as u64 * SEGMENT_BYTES / 512;
        (self.max_sectors as u64).min(by_segments).max(1) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bio_has_a_segment_for_each_page() {
        let segments = |sectors| QueueLimits::default().segments_of(sectors);
        assert_eq!([0, 8, 9, 2048].map(segments), [1, 1, 2, 256]);
    }
}
