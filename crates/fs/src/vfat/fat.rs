//! The table: which cluster follows which (Linux 6.12's `fs/fat/fatent.c`).

use crate::buffer::{Buffer, Buffers};
use crate::error::FsError;
use crate::file_system::Ino;

use super::Vfat;
use super::boot::{FIRST_CLUSTER, FatWidth, info};

/// An entry of the table in its buffers. One of FAT12 may span two
/// (`struct fat_entry`).
#[derive(Clone, Debug)]
struct FatEntry {
    first: Buffer,
    offset: usize,
    second: Option<Buffer>,
    width: FatWidth,
    is_odd: bool,
}

impl FatEntry {
    fn byte(&self, n: usize) -> u8 {
        let bytes = self.first.bytes();
        match (bytes.get(self.offset + n), &self.second) {
            (Some(byte), _) => *byte,
            (None, Some(second)) => second.bytes()[0],
            (None, None) => 0,
        }
    }

    fn set_byte(&self, n: usize, value: u8) {
        let mut bytes = self.first.bytes_mut();
        match (bytes.get_mut(self.offset + n), &self.second) {
            (Some(byte), _) => *byte = value,
            (None, Some(second)) => second.bytes_mut()[0] = value,
            (None, None) => {}
        }
    }

    fn value(&self) -> u32 {
        let pair = || u32::from(u16::from_le_bytes([self.byte(0), self.byte(1)]));
        match self.width {
            FatWidth::Fat12 if self.is_odd => pair() >> 4,
            FatWidth::Fat12 => pair() & 0xfff,
            FatWidth::Fat16 => pair(),
            FatWidth::Fat32 => self.first.u32_at(self.offset) & 0x0fff_ffff,
        }
    }

    fn set(&self, value: u32) {
        let put = |pair: u32| {
            self.set_byte(0, pair as u8);
            self.set_byte(1, (pair >> 8) as u8);
        };
        let pair = || u32::from(u16::from_le_bytes([self.byte(0), self.byte(1)]));
        match self.width {
            FatWidth::Fat12 if self.is_odd => put(pair() & 0xf | value << 4),
            FatWidth::Fat12 => put(pair() & 0xf000 | value),
            FatWidth::Fat16 => put(value),
            FatWidth::Fat32 => {
                let upper = self.first.u32_at(self.offset) & 0xf000_0000;
                self.first.set_u32(self.offset, upper | value);
            }
        }
    }
}

/// The inode that the table's changes belong to, as in the kernel (`fat_inode`).
pub(super) const TABLE: Ino = Ino(u64::MAX);

/// What follows a cluster, by its entry in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Free,
    Cluster(u32),
    End,
}

impl<D: Buffers> Vfat<D> {
    async fn entry(&self, cluster: u32) -> Result<FatEntry, FsError> {
        let geometry = &self.geometry;
        let byte = u64::from(cluster) * u64::from(geometry.width.bits()) / 8;
        let sector_bytes = u64::from(geometry.sector_bytes);
        let sector = u64::from(geometry.fat_start) + byte / sector_bytes;
        let offset = byte % sector_bytes;
        let is_split = geometry.width == FatWidth::Fat12 && offset == sector_bytes - 1;
        Ok(FatEntry {
            first: self.device.bread(sector).await?,
            offset: offset as usize,
            second: match is_split {
                true => Some(self.device.bread(sector + 1).await?),
                false => None,
            },
            width: geometry.width,
            is_odd: cluster % 2 == 1,
        })
    }

    /// What follows a cluster.
    pub(super) async fn next_cluster(&self, cluster: u32) -> Result<Next, FsError> {
        let entry = self.entry(cluster).await?;
        let value = entry.value();
        match value {
            0 => Ok(Next::Free),
            _ if value > self.geometry.width.bad() => Ok(Next::End),
            _ if self.geometry.is_cluster(value) => Ok(Next::Cluster(value)),
            _ => {
                let what = "the table leads to a cluster that is none, or bad";
                Err(entry.first.corrupt(entry.offset, what, value))
            }
        }
    }

    /// Changes an entry in every copy of the table (`fat_ent_write`, `fat_mirror_bhs`).
    fn write_entry(&self, entry: &FatEntry, value: u32) -> Result<(), FsError> {
        entry.set(value);
        for buffer in [Some(&entry.first), entry.second.as_ref()]
            .into_iter()
            .flatten()
        {
            self.device.mark_dirty(buffer, Some(TABLE));
            for n in 1..self.geometry.fats {
                let behind = u64::from(n) * u64::from(self.geometry.fat_sectors);
                let copy = self.device.zeroed(buffer.block() + behind)?;
                copy.bytes_mut().copy_from_slice(&buffer.bytes());
                self.device.mark_dirty(&copy, Some(TABLE));
            }
        }
        Ok(())
    }

    /// Sets what follows a cluster; `None` ends the chain.
    pub(super) async fn set_next(&self, cluster: u32, next: Option<u32>) -> Result<(), FsError> {
        let entry = self.entry(cluster).await?;
        self.write_entry(&entry, next.unwrap_or(self.geometry.width.end()))
    }

    /// Allocates the first free cluster after the one allocated last, as the end of a
    /// chain (`fat_alloc_clusters`).
    pub(super) async fn take_cluster(&self) -> Result<u32, FsError> {
        let geometry = &self.geometry;
        let (start, free) = {
            let state = self.state.borrow();
            (state.last_taken, state.free_clusters)
        };
        if free == Some(0) {
            return Err(FsError::NoSpace);
        }
        for n in 1..=geometry.clusters {
            let from_first = u64::from(start - FIRST_CLUSTER) + u64::from(n);
            let cluster = FIRST_CLUSTER + (from_first % u64::from(geometry.clusters)) as u32;
            let entry = self.entry(cluster).await?;
            if entry.value() != 0 {
                continue;
            }
            self.write_entry(&entry, geometry.width.end())?;
            let mut state = self.state.borrow_mut();
            state.last_taken = cluster;
            state.free_clusters = state.free_clusters.map(|free| free.saturating_sub(1));
            return Ok(cluster);
        }
        self.state.borrow_mut().free_clusters = Some(0);
        Err(FsError::NoSpace)
    }

    /// Frees a chain from a cluster on (`fat_free_clusters`).
    pub(super) async fn free_chain(&self, first: u32) -> Result<(), FsError> {
        let mut cluster = first;
        loop {
            let entry = self.entry(cluster).await?;
            let next = self.next_cluster(cluster).await?;
            if next == Next::Free {
                let what = "a chain leads to a cluster that is free, or is in two files";
                return Err(entry.first.corrupt(entry.offset, what, cluster));
            }
            self.write_entry(&entry, 0)?;
            let sectors = self.geometry.cluster_sectors.into();
            self.device.forget(self.geometry.sector(cluster), sectors);
            let mut state = self.state.borrow_mut();
            state.free_clusters = state.free_clusters.map(|free| free + 1);
            drop(state);
            match next {
                Next::Cluster(next) => cluster = next,
                _ => return Ok(()),
            }
        }
    }

    /// Counts free clusters, unless the information sector holds their number
    /// (`fat_count_free_clusters`).
    pub(super) async fn count_free(&self) -> Result<u32, FsError> {
        if let Some(free) = self.state.borrow().free_clusters {
            return Ok(free);
        }
        let mut free = 0;
        for n in 0..self.geometry.clusters {
            let entry = self.entry(FIRST_CLUSTER + n).await?;
            free += u32::from(entry.value() == 0);
        }
        self.state.borrow_mut().free_clusters = Some(free);
        Ok(free)
    }

    /// FAT32's information sector; `None` if its signatures are missing.
    async fn info_sector(&self) -> Result<Option<Buffer>, FsError> {
        if self.geometry.width != FatWidth::Fat32 {
            return Ok(None);
        }
        let buffer = self.device.bread(self.geometry.info_sector.into()).await?;
        let signatures = [info::SIGNATURE_1, info::SIGNATURE_2];
        let is_one = signatures
            .iter()
            .all(|&(at, value)| buffer.u32_at(at) == value);
        Ok(is_one.then_some(buffer))
    }

    /// Reads the number of free clusters and the one allocated last.
    pub(super) async fn read_info(&self) -> Result<(), FsError> {
        let Some(buffer) = self.info_sector().await? else {
            return Ok(());
        };
        let free = buffer.u32_at(info::FREE_CLUSTERS);
        let next = buffer.u32_at(info::NEXT_CLUSTER);
        let mut state = self.state.borrow_mut();
        if free <= self.geometry.clusters {
            state.free_clusters = Some(free);
        }
        if self.geometry.is_cluster(next) {
            state.last_taken = next;
        }
        Ok(())
    }

    /// Writes the number of free clusters and the one allocated last
    /// (`fat_clusters_flush`).
    pub(super) async fn write_info(&self) -> Result<(), FsError> {
        let Some(buffer) = self.info_sector().await? else {
            return Ok(());
        };
        let state = self.state.borrow();
        let free = state.free_clusters.unwrap_or(info::UNKNOWN);
        buffer.set_u32(info::FREE_CLUSTERS, free);
        buffer.set_u32(info::NEXT_CLUSTER, state.last_taken);
        self.device.mark_dirty(&buffer, None);
        Ok(())
    }
}
