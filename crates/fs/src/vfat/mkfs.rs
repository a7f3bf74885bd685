//! Making a FAT file system as `mkfs.vfat` does.

use crate::buffer::{Buffer, Buffers};
use crate::error::FsError;
use crate::file_system::Timestamp;

use super::boot::{ENTRY_BYTES, FIRST_CLUSTER, FatWidth, Geometry, at, info};
use super::entry;

/// Reserved sectors of FAT32: boot sector, information sector, and their backups.
const RESERVED_32: u32 = 32;
const INFO_SECTOR: u32 = 1;
const BACKUP_SECTOR: u32 = 6;
/// Entries of the root directory, except on FAT32.
const ROOT_ENTRIES: u32 = 512;
/// The media byte of a fixed disk.
const MEDIA: u8 = 0xf8;
/// Devices of this length or more get FAT32 by default.
const FAT32_BYTES: u64 = 512 << 20;

/// What a new FAT is like; see mkfs.fat(8).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VfatLayout {
    /// Bits of a table entry; chosen by the device's length if `None`.
    pub width: Option<FatWidth>,
    /// Bytes of a sector: 512, 1024, 2048 or 4096.
    pub sector_bytes: u32,
    /// Sectors of a cluster: 1, 2, 4, ... 128; chosen by the device's length if `None`.
    pub cluster_sectors: Option<u32>,
    /// The volume's label in its code page, up to 11 bytes.
    pub label: Vec<u8>,
    /// The volume's serial number.
    pub volume_id: u32,
}

impl Default for VfatLayout {
    fn default() -> VfatLayout {
        VfatLayout {
            width: None,
            sector_bytes: 512,
            cluster_sectors: None,
            label: Vec::new(),
            volume_id: 0,
        }
    }
}

impl VfatLayout {
    /// How a device of that length is divided.
    fn geometry(&self, size_bytes: u64) -> Result<(Geometry, u32), FsError> {
        let is_legal = self.sector_bytes.is_power_of_two()
            && (512..=4096).contains(&self.sector_bytes)
            && self
                .cluster_sectors
                .is_none_or(|n| n.is_power_of_two() && n <= 128)
            && self.label.len() <= 11;
        if !is_legal {
            return Err(FsError::BadCall);
        }
        let sectors = size_bytes / u64::from(self.sector_bytes);
        let sectors = u32::try_from(sectors).map_err(|_| FsError::TooBig)?;
        let is_fat32 = match self.width {
            Some(width) => width == FatWidth::Fat32,
            None => size_bytes >= FAT32_BYTES,
        };
        // The cluster sizes of mkfs.fat.
        let cluster_bytes = match size_bytes >> 20 {
            _ if !is_fat32 => 2048,
            ..260 => 512,
            260..8192 => 4096,
            8192..16384 => 8192,
            16384..32768 => 16384,
            _ => 32768,
        };
        let smallest = (cluster_bytes / self.sector_bytes).max(1);
        let choices = match self.cluster_sectors {
            Some(sectors) => sectors..sectors + 1,
            None => smallest..129,
        };
        for cluster_sectors in choices.filter(|n| n.is_power_of_two()) {
            let widths = [FatWidth::Fat12, FatWidth::Fat16, FatWidth::Fat32];
            for width in widths {
                if self.width.is_some_and(|wanted| wanted != width)
                    || (width == FatWidth::Fat32) != is_fat32
                {
                    continue;
                }
                if let Some(geometry) = self.divide(width, sectors, cluster_sectors) {
                    return Ok((geometry, sectors));
                }
            }
        }
        Err(FsError::NoSpace)
    }

    fn divide(&self, width: FatWidth, sectors: u32, cluster_sectors: u32) -> Option<Geometry> {
        let is_fat32 = width == FatWidth::Fat32;
        let reserved = if is_fat32 { RESERVED_32 } else { 1 };
        let root_entries = if is_fat32 { 0 } else { ROOT_ENTRIES };
        let root_sectors = root_entries * ENTRY_BYTES / self.sector_bytes;
        let left = sectors.checked_sub(reserved + root_sectors)?;
        // The table grows until it has an entry for each cluster in the sectors left.
        let table_sectors = |clusters: u32| {
            let bits = (u64::from(clusters) + u64::from(FIRST_CLUSTER)) * u64::from(width.bits());
            bits.div_ceil(8 * u64::from(self.sector_bytes)) as u32
        };
        let mut fat_sectors = 1;
        loop {
            let clusters = left.checked_sub(2 * fat_sectors)? / cluster_sectors;
            let needed = table_sectors(clusters);
            if needed <= fat_sectors {
                let least = match width {
                    FatWidth::Fat12 => 1,
                    FatWidth::Fat16 => 4085,
                    FatWidth::Fat32 => 2,
                };
                let most = if is_fat32 {
                    width.clusters_max()
                } else {
                    width.clusters_max() - 0x10
                };
                let fits = (least..=most.max(4084)).contains(&clusters);
                let is_seen = width != FatWidth::Fat12 || clusters <= 4084;
                return (fits && is_seen).then_some(Geometry {
                    width,
                    sector_bytes: self.sector_bytes,
                    cluster_sectors,
                    fat_start: reserved,
                    fat_sectors,
                    fats: 2,
                    root_start: reserved + 2 * fat_sectors,
                    root_entries,
                    root_cluster: if is_fat32 { FIRST_CLUSTER } else { 0 },
                    data_start: reserved + 2 * fat_sectors + root_sectors,
                    clusters,
                    info_sector: INFO_SECTOR,
                });
            }
            fat_sectors = needed.max(fat_sectors + 1);
        }
    }

    /// Writes a new file system.
    ///
    /// # Errors
    /// [`FsError::NoSpace`] where no such file system fits the device,
    /// [`FsError::TooBig`] where it has too many sectors, [`FsError::BadCall`] where a
    /// value is none of those above.
    pub async fn make<D: Buffers>(&self, device: &D, now: Timestamp) -> Result<(), FsError> {
        let (geometry, sectors) = self.geometry(device.size_bytes())?;
        device.set_block_bytes(geometry.sector_bytes).await?;
        let is_fat32 = geometry.width == FatWidth::Fat32;
        device.clear(0, geometry.data_start.into())?;
        if is_fat32 {
            let root = geometry.sector(geometry.root_cluster);
            device.clear(root, geometry.cluster_sectors.into())?;
        }
        let write = |sector: u32| -> Result<Buffer, FsError> {
            let buffer = device.zeroed(sector.into())?;
            device.mark_dirty(&buffer, None);
            Ok(buffer)
        };
        let copies: &[u32] = if is_fat32 { &[0, BACKUP_SECTOR] } else { &[0] };
        for &sector in copies {
            self.boot_sector(&write(sector)?, &geometry, sectors);
            if is_fat32 {
                self.information(&write(sector + INFO_SECTOR)?, &geometry);
            }
        }
        for fat in 0..geometry.fats {
            let buffer = write(geometry.fat_start + fat * geometry.fat_sectors)?;
            let media = u32::from(MEDIA);
            match geometry.width {
                FatWidth::Fat12 => buffer.set_u32(0, 0x00ff_ff00 | media),
                FatWidth::Fat16 => buffer.set_u32(0, 0xffff_ff00 | media),
                FatWidth::Fat32 => {
                    buffer.set_u32(0, 0x0fff_ff00 | media);
                    buffer.set_u32(4, 0x0fff_ffff);
                    buffer.set_u32(8, geometry.width.end());
                }
            }
        }
        if !self.label.is_empty() {
            let root = match is_fat32 {
                true => geometry.sector(geometry.root_cluster) as u32,
                false => geometry.root_start,
            };
            let mut label = entry::new_entry(false, 0, now);
            label[..11].copy_from_slice(&self.padded_label());
            label[entry::at::ATTRIBUTES] = entry::ATTRIBUTE_VOLUME;
            write(root)?.bytes_mut()[..32].copy_from_slice(&label);
        }
        Ok(())
    }

    fn padded_label(&self) -> [u8; 11] {
        let label: &[u8] = if self.label.is_empty() {
            b"NO NAME"
        } else {
            &self.label
        };
        std::array::from_fn(|n| label.get(n).copied().unwrap_or(b' '))
    }

    fn boot_sector(&self, buffer: &Buffer, geometry: &Geometry, sectors: u32) {
        let is_fat32 = geometry.width == FatWidth::Fat32;
        let put16 = |bytes: &mut [u8], at: usize, value: u32| {
            bytes[at..at + 2].copy_from_slice(&(value as u16).to_le_bytes());
        };
        let put32 = |bytes: &mut [u8], at: usize, value: u32| {
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        };
        let mut bytes = buffer.bytes_mut();
        let bytes = &mut *bytes;
        // A jump over the parameters, where a boot loader would begin.
        bytes[..3].copy_from_slice(&[0xeb, if is_fat32 { 0x58 } else { 0x3c }, 0x90]);
        bytes[3..11].copy_from_slice(b"blklab  ");
        put16(bytes, at::SECTOR_BYTES, geometry.sector_bytes);
        bytes[at::CLUSTER_SECTORS] = geometry.cluster_sectors as u8;
        put16(bytes, at::RESERVED, geometry.fat_start);
        bytes[at::FATS] = geometry.fats as u8;
        put16(bytes, at::ROOT_ENTRIES, geometry.root_entries);
        match sectors {
            ..0x1_0000 if !is_fat32 => put16(bytes, at::SECTORS_16, sectors),
            _ => put32(bytes, at::SECTORS_32, sectors),
        }
        bytes[at::MEDIA] = MEDIA;
        put16(bytes, at::TRACK_SECTORS, 32);
        put16(bytes, at::HEADS, 2);
        let (extended, kind) = match geometry.width {
            FatWidth::Fat12 => (at::EXTENDED, b"FAT12   "),
            FatWidth::Fat16 => (at::EXTENDED, b"FAT16   "),
            FatWidth::Fat32 => (at::EXTENDED_32, b"FAT32   "),
        };
        if is_fat32 {
            put32(bytes, at::FAT_SECTORS_32, geometry.fat_sectors);
            put32(bytes, at::ROOT_CLUSTER, geometry.root_cluster);
            put16(bytes, at::INFO_SECTOR, INFO_SECTOR);
            put16(bytes, at::BACKUP_SECTOR, BACKUP_SECTOR);
        } else {
            put16(bytes, at::FAT_SECTORS_16, geometry.fat_sectors);
        }
        bytes[extended] = 0x80;
        bytes[extended + 2] = 0x29;
        put32(bytes, extended + 3, self.volume_id);
        bytes[extended + 7..extended + 18].copy_from_slice(&self.padded_label());
        bytes[extended + 18..extended + 26].copy_from_slice(kind);
        bytes[at::SIGNATURE..at::SIGNATURE + 2].copy_from_slice(&[0x55, 0xaa]);
    }

    fn information(&self, buffer: &Buffer, geometry: &Geometry) {
        for (at, value) in [info::SIGNATURE_1, info::SIGNATURE_2] {
            buffer.set_u32(at, value);
        }
        // One cluster is the root's.
        buffer.set_u32(info::FREE_CLUSTERS, geometry.clusters - 1);
        buffer.set_u32(info::NEXT_CLUSTER, geometry.root_cluster);
        buffer.set_u32(info::SIGNATURE, 0xaa55_0000);
    }
}
