//! Limits of a request queue (`/sys/block/*/queue/`).

use crate::bio::{Bio, BioFlags, Op};
use crate::units::Sector;

/// Size of a memory segment in bytes: the pages of a user's buffer are not contiguous, so each is a
/// segment.
const SEGMENT_BYTES: u64 = 4096;

/// Which merges are tried (`queue/nomerges`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum NoMerges {
    /// 0: all merges.
    #[default]
    All,
    /// 1: only with the request merged last.
    OneHit,
    /// 2: no merges.
    Never,
}

/// The zones of a host-managed drive. All have the same size, but the last may be smaller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ZoneLimits {
    /// Size of a zone in sectors (`queue/chunk_sectors`), a power of two.
    pub zone_sectors: u32,
    /// Sectors of a zone that can be written, at most its size.
    pub capacity_sectors: u32,
    /// Number of conventional zones, which can be written anywhere; they are the first.
    pub conventional: u32,
    /// Most zones that are open at once; zero if there is no limit (`queue/max_open_zones`).
    pub max_open: u32,
    /// Most zones that are open or closed at once; zero if there is no limit
    /// (`queue/max_active_zones`).
    pub max_active: u32,
}

impl ZoneLimits {
    /// Number of the zone that contains a sector.
    #[inline]
    pub fn zone_of(&self, sector: Sector) -> u64 {
        sector.0 >> self.zone_sectors.trailing_zeros()
    }

    /// Sectors between the start of the zone and a sector in it.
    #[inline]
    pub fn offset_of(&self, sector: Sector) -> u32 {
        (sector.0 & (self.zone_sectors as u64 - 1)) as u32
    }

    /// Sectors from a sector to the end of its zone.
    #[inline]
    pub fn sectors_left(&self, sector: Sector) -> u32 {
        self.zone_sectors - self.offset_of(sector)
    }

    /// Whether the zone that contains a sector must be written at its write pointer.
    pub fn is_sequential(&self, sector: Sector) -> bool {
        self.zone_of(sector) >= self.conventional as u64
    }

    /// Number of zones of a drive (`queue/nr_zones`).
    pub fn count(&self, drive_sectors: u64) -> u64 {
        drive_sectors.div_ceil(self.zone_sectors as u64)
    }
}

/// A queue's limits, with the kernel's names. Sizes are in sectors of 512 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    /// Size of the drive.
    pub capacity_sectors: u64,
    /// Logical block size in sectors, a power of two as `blk_validate_block_size` requires.
    pub logical_block_sectors: u32,
    /// Largest read or write (`max_sectors_kb` × 2).
    pub max_sectors: u32,
    /// Most memory segments in a request.
    pub max_segments: u16,
    /// Largest discard; zero if the drive has no discard.
    pub max_discard_sectors: u32,
    /// Most ranges in one discard command; with more than one, any two discards can be merged.
    pub max_discard_segments: u16,
    /// Largest write of zeroes; zero if the drive has none.
    pub max_write_zeroes_sectors: u32,
    /// Whether the drive acknowledges writes before they are durable (`write_cache` is `write
    /// back`).
    pub write_cache: bool,
    /// Whether the drive supports FUA.
    pub fua: bool,
    /// Whether the drive has moving parts.
    pub rotational: bool,
    /// Which merges are tried.
    pub nomerges: NoMerges,
    /// Zones, if the drive is host-managed (`queue/zoned`). Set before the queue is made.
    pub zones: Option<ZoneLimits>,
}

/// The kernel's default cap on `max_sectors_kb` (`BLK_DEF_MAX_SECTORS_CAP`), in sectors.
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
            zones: None,
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

    /// Whether a number of sectors is a multiple of the logical block size. Several numbers can be
    /// tested at once by or-ing them together.
    #[inline]
    pub fn is_whole_blocks(&self, sectors: u64) -> bool {
        sectors & (self.logical_block_sectors as u64 - 1) == 0
    }

    /// The largest request of an operation, in sectors, rounded down to whole blocks.
    #[inline]
    pub fn max_request_sectors(&self, op: Op) -> u32 {
        let max = match op {
            Op::Discard => self.max_discard_sectors,
            Op::WriteZeroes => self.max_write_zeroes_sectors,
            _ => self.max_rw_sectors(),
        };
        (max & !(self.logical_block_sectors - 1)).max(self.logical_block_sectors)
    }

    /// The largest request that starts at a sector, in sectors: none continues behind its zone's
    /// end (`get_max_io_size`).
    #[inline]
    pub fn max_request_sectors_at(&self, op: Op, sector: Sector) -> u32 {
        self.within_zone(op, sector, self.max_request_sectors(op))
    }

    /// The largest part of a bio that fits into a request, in sectors (`bio_split_rw_at`): of a
    /// bio whose memory is one piece the number of segments does not limit it.
    #[inline]
    pub fn max_sectors_of(&self, bio: &Bio) -> u32 {
        match bio.flags.has(BioFlags::CONTIGUOUS) {
            true => {
                let max = self.max_sectors & !(self.logical_block_sectors - 1);
                self.within_zone(bio.op, bio.sector, max.max(self.logical_block_sectors))
            }
            false => self.max_request_sectors_at(bio.op, bio.sector),
        }
    }

    /// Cuts a number of sectors that start at `sector` off at the zone's end
    /// (`blk_boundary_sectors_left`). Discards have no such boundary.
    #[inline]
    pub(crate) fn within_zone(&self, op: Op, sector: Sector, sectors: u32) -> u32 {
        match &self.zones {
            Some(zones) if op != Op::Discard => sectors.min(zones.sectors_left(sector)),
            _ => sectors,
        }
    }

    /// What sysfs says of the zones (`queue/NAME`, `block/blk-sysfs.c`); limits of their number
    /// are shown where there are zones.
    ///
    /// The kernel emulates zone append (`blk_validate_zoned_limits`), up to the largest write and
    /// within a zone.
    pub fn zone_attributes(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let count = self
            .zones
            .map_or(0, |zones| zones.count(self.capacity_sectors));
        let zones = self.zones.unwrap_or_default();
        let append_sectors = zones.zone_sectors.min(self.max_sectors);
        let append_bytes = u64::from(append_sectors) * crate::units::SECTOR_SIZE;
        let always = [
            ("chunk_sectors", u64::from(zones.zone_sectors)),
            ("nr_zones", count),
            ("zone_append_max_bytes", append_bytes),
        ];
        let limits = self.zones.map(|zones| {
            [
                ("max_active_zones", u64::from(zones.max_active)),
                ("max_open_zones", u64::from(zones.max_open)),
            ]
        });
        always.into_iter().chain(limits.into_iter().flatten())
    }

    /// What sysfs says of the kind of zones (`queue/zoned`).
    pub fn zoned(&self) -> &'static str {
        match self.zones {
            Some(_) => "host-managed",
            None => "none",
        }
    }

    /// The largest read or write that both the sector and the segment limit allow, in sectors.
    #[inline]
    pub fn max_rw_sectors(&self) -> u32 {
        let by_segments = self.max_segments as u64 * SEGMENT_BYTES / 512;
        (self.max_sectors as u64).min(by_segments).max(1) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 16 pages of their own are four requests of four segments, and one segment if they follow
    /// each other.
    #[test]
    fn memory_in_one_piece_is_one_segment() {
        let limits = QueueLimits {
            max_sectors: 64,
            max_segments: 4,
            ..QueueLimits::default()
        };
        let pages = Bio::new(Op::Read, Sector(0), 128);
        let flags = BioFlags::CONTIGUOUS;
        assert_eq!(limits.max_sectors_of(&pages), 32);
        assert_eq!(limits.max_sectors_of(&Bio { flags, ..pages }), 64);
    }

    #[test]
    fn sysfs_tells_of_zones() {
        let attribute = |limits: &QueueLimits, name| {
            let mut all = limits.zone_attributes();
            all.find(|(known, _)| *known == name)
                .map(|(_, value)| value)
        };
        let zoned = QueueLimits {
            capacity_sectors: 4096 * 30,
            max_sectors: 1024,
            zones: Some(ZoneLimits {
                zone_sectors: 4096,
                capacity_sectors: 2048,
                max_open: 4,
                max_active: 5,
                ..ZoneLimits::default()
            }),
            ..QueueLimits::default()
        };
        assert_eq!(zoned.zoned(), "host-managed");
        let names = [
            "chunk_sectors",
            "nr_zones",
            "max_open_zones",
            "max_active_zones",
            "zone_append_max_bytes",
        ];
        let all = |limits| names.map(|name| attribute(limits, name));
        assert_eq!(all(&zoned), [4096, 30, 4, 5, 512 << 10].map(Some));
        let other = QueueLimits::default();
        assert_eq!(other.zoned(), "none");
        assert_eq!(all(&other), [Some(0), Some(0), None, None, Some(0)]);
    }

    /// A page of 8 sectors for each segment, and at least one sector.
    #[test]
    fn a_request_is_as_large_as_sectors_and_segments_allow() {
        let largest = |max_sectors, max_segments| {
            let limits = QueueLimits {
                max_sectors,
                max_segments,
                ..QueueLimits::default()
            };
            limits.max_rw_sectors()
        };
        assert_eq!(largest(2560, 128), 1024);
        assert_eq!(largest(1000, 128), 1000);
        assert_eq!(largest(8, 1), 8);
        assert_eq!((largest(0, 128), largest(8, 0)), (1, 1));
    }

    #[test]
    fn a_bio_has_a_segment_for_each_page() {
        let segments = |sectors| QueueLimits::default().segments_of(sectors);
        assert_eq!([0, 8, 9, 2048].map(segments), [1, 1, 2, 256]);
    }
}
