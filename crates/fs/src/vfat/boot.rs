//! The boot sector with its parameter block, and FAT32's information sector.

use crate::buffer::{Buffer, Buffers};
use crate::error::FsError;

/// Byte offsets of the boot sector's fields (`struct fat_boot_sector`).
pub(super) mod at {
    pub(in crate::vfat) const SECTOR_BYTES: usize = 11;
    pub(in crate::vfat) const CLUSTER_SECTORS: usize = 13;
    pub(in crate::vfat) const RESERVED: usize = 14;
    pub(in crate::vfat) const FATS: usize = 16;
    pub(in crate::vfat) const ROOT_ENTRIES: usize = 17;
    pub(in crate::vfat) const SECTORS_16: usize = 19;
    pub(in crate::vfat) const MEDIA: usize = 21;
    pub(in crate::vfat) const FAT_SECTORS_16: usize = 22;
    pub(in crate::vfat) const TRACK_SECTORS: usize = 24;
    pub(in crate::vfat) const HEADS: usize = 26;
    pub(in crate::vfat) const SECTORS_32: usize = 32;
    pub(in crate::vfat) const FAT_SECTORS_32: usize = 36;
    pub(in crate::vfat) const ROOT_CLUSTER: usize = 44;
    pub(in crate::vfat) const INFO_SECTOR: usize = 48;
    pub(in crate::vfat) const BACKUP_SECTOR: usize = 50;
    /// Drive number, state, signature, serial number, label and type stand here on FAT12
    /// and FAT16, at `EXTENDED_32` on FAT32.
    pub(in crate::vfat) const EXTENDED: usize = 36;
    pub(in crate::vfat) const EXTENDED_32: usize = 64;
    pub(in crate::vfat) const SIGNATURE: usize = 510;
}

/// Byte offsets of FAT32's information sector (`struct fat_boot_fsinfo`), and the values
/// of its signatures.
pub(super) mod info {
    pub(in crate::vfat) const SIGNATURE_1: (usize, u32) = (0, 0x4161_5252);
    pub(in crate::vfat) const SIGNATURE_2: (usize, u32) = (484, 0x6141_7272);
    pub(in crate::vfat) const FREE_CLUSTERS: usize = 488;
    pub(in crate::vfat) const NEXT_CLUSTER: usize = 492;
    pub(in crate::vfat) const SIGNATURE: usize = 508;
    /// The value of a number that is not known.
    pub(in crate::vfat) const UNKNOWN: u32 = u32::MAX;
}

/// Bytes of a directory entry.
pub(super) const ENTRY_BYTES: u32 = 32;
/// The first cluster's number (`FAT_START_ENT`).
pub(super) const FIRST_CLUSTER: u32 = 2;

/// The width of a table entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FatWidth {
    /// 12 bits: up to 4084 clusters.
    Fat12,
    /// 16 bits: up to 65524 clusters.
    Fat16,
    /// 28 of 32 bits.
    Fat32,
}

impl FatWidth {
    /// Bits of an entry.
    pub const fn bits(self) -> u32 {
        match self {
            FatWidth::Fat12 => 12,
            FatWidth::Fat16 => 16,
            FatWidth::Fat32 => 32,
        }
    }

    /// The most clusters (`MAX_FAT12`, `MAX_FAT16`, `MAX_FAT32`).
    pub(super) const fn clusters_max(self) -> u32 {
        match self {
            FatWidth::Fat12 => 0xff4,
            FatWidth::Fat16 => 0xfff4,
            FatWidth::Fat32 => 0x0fff_fff6,
        }
    }

    /// The entry of a chain's last cluster (`EOF_FAT12` ...).
    pub(super) const fn end(self) -> u32 {
        match self {
            FatWidth::Fat12 => 0xfff,
            FatWidth::Fat16 => 0xffff,
            FatWidth::Fat32 => 0x0fff_ffff,
        }
    }

    /// The entry of a bad cluster; larger ones end a chain (`BAD_FAT12` ...).
    pub(super) const fn bad(self) -> u32 {
        self.end() - 8
    }
}

/// The layout of the device, from its boot sector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Geometry {
    pub(super) width: FatWidth,
    pub(super) sector_bytes: u32,
    pub(super) cluster_sectors: u32,
    /// The first sector of the first table.
    pub(super) fat_start: u32,
    pub(super) fat_sectors: u32,
    pub(super) fats: u32,
    /// The root directory's first sector, except on FAT32.
    pub(super) root_start: u32,
    /// The root directory's entries, 0 on FAT32.
    pub(super) root_entries: u32,
    /// The root directory's first cluster on FAT32.
    pub(super) root_cluster: u32,
    pub(super) data_start: u32,
    pub(super) clusters: u32,
    pub(super) info_sector: u32,
}

/// Checks the fields of a boot sector that are wrong or right on their own
/// (`fat_read_bpb`).
fn check_fields(buffer: &Buffer) -> Result<(), FsError> {
    let byte_at = |at: usize| u32::from(buffer.bytes()[at]);
    let sector_bytes = u32::from(buffer.u16_at(at::SECTOR_BYTES));
    let cluster_sectors = byte_at(at::CLUSTER_SECTORS);
    let reserved = u32::from(buffer.u16_at(at::RESERVED));
    let fats = byte_at(at::FATS);
    let media = byte_at(at::MEDIA);
    let checks = [
        (
            reserved > 0,
            at::RESERVED,
            "neither ext2 nor FAT: FAT's reserved sectors are 1 or more",
            reserved,
        ),
        (
            fats > 0,
            at::FATS,
            "neither ext2 nor FAT: FAT has 1 table or more",
            fats,
        ),
        (
            media >= 0xf8 || media == 0xf0,
            at::MEDIA,
            "neither ext2 nor FAT: FAT's media byte is 0xf0, or 0xf8 and more",
            media,
        ),
        (
            sector_bytes.is_power_of_two() && (512..=4096).contains(&sector_bytes),
            at::SECTOR_BYTES,
            "a sector has 512, 1024, 2048 or 4096 bytes",
            sector_bytes,
        ),
        (
            cluster_sectors.is_power_of_two(),
            at::CLUSTER_SECTORS,
            "a cluster has 1, 2, 4, ... 128 sectors",
            cluster_sectors,
        ),
    ];
    match checks.into_iter().find(|check| !check.0) {
        Some((_, at, what, found)) => Err(buffer.corrupt(at, what, found)),
        None => Ok(()),
    }
}

impl Geometry {
    /// Reads and checks a boot sector.
    pub(super) fn read(buffer: &Buffer, size_bytes: u64) -> Result<Geometry, FsError> {
        check_fields(buffer)?;
        let u16_at = |at: usize| u32::from(buffer.u16_at(at));
        let byte_at = |at: usize| u32::from(buffer.bytes()[at]);
        let wrong = |at, what, found: u32| Err(buffer.corrupt(at, what, found));
        let sector_bytes = u16_at(at::SECTOR_BYTES);
        let cluster_sectors = byte_at(at::CLUSTER_SECTORS);
        let reserved = u16_at(at::RESERVED);
        let fats = byte_at(at::FATS);
        let fat_sectors_16 = u16_at(at::FAT_SECTORS_16);
        let is_fat32 = fat_sectors_16 == 0;
        let (fat_at, fat_sectors) = match is_fat32 {
            true => (at::FAT_SECTORS_32, buffer.u32_at(at::FAT_SECTORS_32)),
            false => (at::FAT_SECTORS_16, fat_sectors_16),
        };
        if fat_sectors == 0 {
            return wrong(fat_at, "a table has 1 sector or more", 0);
        }
        let root_entries = u16_at(at::ROOT_ENTRIES);
        if !(root_entries * ENTRY_BYTES).is_multiple_of(sector_bytes) {
            let what = "the root directory fills its sectors";
            return wrong(at::ROOT_ENTRIES, what, root_entries);
        }
        let (sectors_at, sectors) = match u16_at(at::SECTORS_16) {
            0 => (at::SECTORS_32, buffer.u32_at(at::SECTORS_32)),
            sectors => (at::SECTORS_16, sectors),
        };
        if u64::from(sectors) * u64::from(sector_bytes) > size_bytes {
            let what = "the device is shorter than this many sectors";
            return wrong(sectors_at, what, sectors);
        }
        let root_start = u64::from(reserved) + u64::from(fats) * u64::from(fat_sectors);
        let data_start = root_start + u64::from(root_entries * ENTRY_BYTES / sector_bytes);
        if data_start + u64::from(cluster_sectors) > sectors.into() {
            let what = "tables and root directory leave no cluster in this many sectors";
            return wrong(sectors_at, what, sectors);
        }
        let clusters = (sectors - data_start as u32) / cluster_sectors;
        let width = match clusters {
            _ if is_fat32 => FatWidth::Fat32,
            0..=4084 => FatWidth::Fat12,
            _ => FatWidth::Fat16,
        };
        let in_table = u64::from(fat_sectors) * u64::from(sector_bytes) * 8;
        let in_table = in_table / u64::from(width.bits());
        let in_table = in_table.saturating_sub(FIRST_CLUSTER.into());
        let clusters = u64::from(clusters).min(in_table) as u32;
        if clusters == 0 || clusters > width.clusters_max() {
            let what = "the table has no entry, or there are more clusters than it can name";
            return wrong(fat_at, what, fat_sectors);
        }
        let geometry = Geometry {
            width,
            sector_bytes,
            cluster_sectors,
            fat_start: reserved,
            fat_sectors,
            fats,
            root_start: root_start as u32,
            root_entries,
            root_cluster: if is_fat32 {
                buffer.u32_at(at::ROOT_CLUSTER)
            } else {
                0
            },
            data_start: data_start as u32,
            clusters,
            info_sector: match u16_at(at::INFO_SECTOR) {
                0 => 1,
                sector => sector,
            },
        };
        if is_fat32 && !geometry.is_cluster(geometry.root_cluster) {
            let what = "the root directory's first cluster is none";
            return wrong(at::ROOT_CLUSTER, what, geometry.root_cluster);
        }
        Ok(geometry)
    }

    pub(super) fn is_cluster(&self, cluster: u32) -> bool {
        (FIRST_CLUSTER..self.clusters + FIRST_CLUSTER).contains(&cluster)
    }

    /// A cluster's first sector.
    pub(super) fn sector(&self, cluster: u32) -> u64 {
        let from_first = u64::from(cluster - FIRST_CLUSTER);
        u64::from(self.data_start) + from_first * u64::from(self.cluster_sectors)
    }

    pub(super) const fn cluster_bytes(&self) -> u64 {
        self.sector_bytes as u64 * self.cluster_sectors as u64
    }

    pub(super) const fn entries_per_sector(&self) -> u32 {
        self.sector_bytes / ENTRY_BYTES
    }
}

/// Reads the boot sector; blocks are sectors from then on.
pub(super) async fn load<D: Buffers>(device: &D) -> Result<Geometry, FsError> {
    let size_bytes = device.size_bytes();
    if size_bytes < 512 {
        return Err(FsError::Corrupt {
            byte: size_bytes,
            what: "the device ends before FAT's boot sector does",
            found: size_bytes,
        });
    }
    device.set_block_bytes(512).await?;
    let geometry = Geometry::read(&device.bread(0).await?, size_bytes)?;
    device.set_block_bytes(geometry.sector_bytes).await?;
    Ok(geometry)
}
