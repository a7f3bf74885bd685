//! Inodes: VFAT has none on the device, so that they are made of directory entries.

use crate::buffer::{Buffer, Buffers};
use crate::error::FsError;
use crate::file_system::{Attributes, Caller, Civil, FileKind, Ino, Timestamp};

use super::Vfat;
use super::boot::ENTRY_BYTES;
use super::dir::{
    ATTRIBUTE_ARCHIVE, ATTRIBUTE_DIRECTORY, ATTRIBUTE_READ_ONLY, DIR_BYTES_MAX, Entry, is_file,
};
use super::fat::Next;

/// The root, which has no entry (`MSDOS_ROOT_INO`).
pub(super) const ROOT: Ino = Ino(1);
/// An entry's inode has its number on the device and this ...
const FIRST_INO: u64 = 2;
/// ... unless another file was there first: then one from here on.
const FIRST_MOVED_INO: u64 = 1 << 48;

/// Byte offsets of an entry's fields (`struct msdos_dir_entry`).
pub(super) mod at {
    pub(in crate::vfat) const ATTRIBUTES: usize = 11;
    pub(in crate::vfat) const CASE: usize = 12;
    pub(in crate::vfat) const CREATED_HUNDREDTHS: usize = 13;
    /// In an entry of a long name.
    pub(in crate::vfat) const LONG_CHECKSUM: usize = 13;
    pub(in crate::vfat) const CREATED_TIME: usize = 14;
    pub(in crate::vfat) const CREATED_DATE: usize = 16;
    pub(in crate::vfat) const ACCESSED_DATE: usize = 18;
    pub(in crate::vfat) const CLUSTER_HIGH: usize = 20;
    pub(in crate::vfat) const TIME: usize = 22;
    pub(in crate::vfat) const DATE: usize = 24;
    pub(in crate::vfat) const CLUSTER_LOW: usize = 26;
    pub(in crate::vfat) const SIZE: usize = 28;
}

/// An inode in memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Inode {
    /// The number of its entry on the device; none for the root and what was removed.
    pub(super) position: Option<u64>,
    /// Its first cluster; 0 is none.
    pub(super) first: u32,
    pub(super) size_bytes: u64,
    pub(super) attributes: u8,
    pub(super) links: u32,
    pub(super) modified: Timestamp,
    pub(super) accessed: Timestamp,
    /// Its clusters, as far as they were looked for.
    pub(super) chain: Vec<u32>,
    /// Whether these are all.
    pub(super) is_complete: bool,
    pub(super) is_dirty: bool,
}

impl Inode {
    fn read(entry: &Entry, position: u64) -> Inode {
        let u16_at = |at: usize| u16::from_le_bytes([entry[at], entry[at + 1]]);
        let u32_at = |at: usize| u32::from(u16_at(at)) | u32::from(u16_at(at + 2)) << 16;
        let is_dir = entry[at::ATTRIBUTES] & ATTRIBUTE_DIRECTORY != 0;
        Inode {
            position: Some(position),
            first: u32::from(u16_at(at::CLUSTER_LOW)) | u32::from(u16_at(at::CLUSTER_HIGH)) << 16,
            size_bytes: if is_dir { 0 } else { u32_at(at::SIZE).into() },
            attributes: entry[at::ATTRIBUTES],
            links: if is_dir { 2 } else { 1 },
            modified: from_fat_time(u16_at(at::DATE), u16_at(at::TIME)),
            accessed: from_fat_time(u16_at(at::ACCESSED_DATE), 0),
            ..Inode::default()
        }
    }

    pub(super) const fn is_dir(&self) -> bool {
        self.attributes & ATTRIBUTE_DIRECTORY != 0
    }
}

/// An entry without a name of a new file or directory.
pub(super) fn new_entry(is_dir: bool, first: u32, now: Timestamp) -> Entry {
    let mut entry = [0; ENTRY_BYTES as usize];
    entry[at::ATTRIBUTES] = if is_dir {
        ATTRIBUTE_DIRECTORY
    } else {
        ATTRIBUTE_ARCHIVE
    };
    let (date, time, hundredths) = to_fat_time(now);
    entry[at::CREATED_HUNDREDTHS] = hundredths;
    for (at, value) in [
        (at::CREATED_TIME, time),
        (at::CREATED_DATE, date),
        (at::ACCESSED_DATE, date),
        (at::TIME, time),
        (at::DATE, date),
        (at::CLUSTER_LOW, first as u16),
        (at::CLUSTER_HIGH, (first >> 16) as u16),
    ] {
        entry[at..at + 2].copy_from_slice(&value.to_le_bytes());
    }
    entry
}

/// The first second of a year.
const fn year_start(year: i64) -> i64 {
    let civil = Civil {
        year,
        month: 1,
        day: 1,
        second_of_day: 0,
    };
    civil.seconds()
}

/// Date, time and hundredths of a second as entries have them, from 1980 to 2107, in
/// UTC (`fat_time_unix2fat`).
fn to_fat_time(time: Timestamp) -> (u16, u16, u8) {
    let seconds = time.seconds.clamp(year_start(1980), year_start(2108) - 1);
    let civil = Timestamp { seconds, ..time }.civil();
    let date = ((civil.year - 1980) << 9) | (civil.month << 5) | civil.day;
    let in_day = civil.second_of_day;
    let (hours, minutes) = (in_day / 3600, in_day / 60 % 60);
    let of_day = (hours << 11) | (minutes << 5) | (in_day % 60 / 2);
    let hundredths = in_day % 2 * 100 + i64::from(time.nanoseconds) / 10_000_000;
    (date as u16, of_day as u16, hundredths as u8)
}

fn from_fat_time(date: u16, time: u16) -> Timestamp {
    let (date, time) = (i64::from(date), i64::from(time));
    let civil = Civil {
        year: 1980 + (date >> 9),
        month: (date >> 5 & 15).clamp(1, 12),
        day: (date & 31).max(1),
        second_of_day: (time >> 11) * 3600 + (time >> 5 & 63) * 60 + (time & 31) * 2,
    };
    Timestamp {
        seconds: civil.seconds(),
        nanoseconds: 0,
    }
}

impl<D: Buffers> Vfat<D> {
    /// The inode of an entry, which need not be in memory.
    pub(super) fn ino_at(&self, position: u64) -> Ino {
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        if let Some(&ino) = state.positions.get(&position) {
            return ino;
        }
        let ino = Ino(FIRST_INO + position);
        if !state.inodes.contains_key(&ino) {
            return ino;
        }
        let ino = Ino(FIRST_MOVED_INO + state.moved_inos);
        state.moved_inos += 1;
        state.moved.insert(ino, position);
        state.positions.insert(position, ino);
        ino
    }

    /// Sees to it that an inode is in memory.
    pub(super) async fn iget(&self, ino: Ino) -> Result<(), FsError> {
        if self.state.borrow().inodes.contains_key(&ino) {
            return Ok(());
        }
        let moved = self.state.borrow().moved.get(&ino).copied();
        let by_number = ino
            .0
            .checked_sub(FIRST_INO)
            .filter(|_| ino.0 < FIRST_MOVED_INO);
        let position = moved.or(by_number).ok_or(FsError::NoEntry)?;
        if position >= self.device.size_bytes() / u64::from(ENTRY_BYTES) {
            return Err(FsError::NoEntry);
        }
        let (buffer, offset) = self.entry_place(position).await?;
        let entry: Entry = std::array::from_fn(|n| buffer.bytes()[offset + n]);
        if !is_file(&entry) {
            return Err(FsError::NoEntry);
        }
        let inode = Inode::read(&entry, position);
        let first = inode.first;
        let is_none = first == 0 && !inode.is_dir();
        if !is_none && !self.geometry.is_cluster(first) {
            let what = "a file's first cluster is none";
            return Err(buffer.corrupt(offset + at::CLUSTER_LOW, what, first));
        }
        let is_dir = inode.is_dir();
        {
            let mut state = self.state.borrow_mut();
            state.positions.insert(position, ino);
            state.inodes.entry(ino).or_insert(inode);
        }
        if is_dir {
            self.measure_dir(ino).await?;
        }
        Ok(())
    }

    /// A directory's length is that of its chain; its links are told by those in it
    /// (`fat_calc_dir_size`, `fat_subdirs`).
    pub(super) async fn measure_dir(&self, dir: Ino) -> Result<(), FsError> {
        let mut clusters = 0;
        while self.cluster(dir, clusters).await?.is_some() {
            clusters += 1;
        }
        let size_bytes = clusters * self.geometry.cluster_bytes();
        if size_bytes > DIR_BYTES_MAX.max(self.geometry.cluster_bytes()) {
            return Err(FsError::Corrupt {
                byte: self.entry_byte(dir),
                what: "a directory is longer than 2 MiB: its chain may be a loop",
                found: size_bytes,
            });
        }
        let links = 2 + self.count_dirs(dir).await?;
        let mut state = self.state.borrow_mut();
        if let Some(inode) = state.inodes.get_mut(&dir) {
            inode.links = links;
            inode.size_bytes = size_bytes;
        }
        Ok(())
    }

    /// Where an inode's entry begins on the device.
    pub(super) fn entry_byte(&self, ino: Ino) -> u64 {
        let position = self.with(ino, |inode| inode.position);
        position.unwrap_or(0) * u64::from(ENTRY_BYTES)
    }

    /// The n-th cluster of a file, if it has so many.
    pub(super) async fn cluster(&self, ino: Ino, n: u64) -> Result<Option<u32>, FsError> {
        let most = match self.with(ino, Inode::is_dir) {
            true => DIR_BYTES_MAX / self.geometry.cluster_bytes() + 2,
            false => u64::from(self.geometry.clusters),
        };
        loop {
            let (known, count, last, first, is_complete) = self.with(ino, |inode| {
                let known = inode.chain.get(n as usize).copied();
                let last = inode.chain.last().copied();
                (
                    known,
                    inode.chain.len(),
                    last,
                    inode.first,
                    inode.is_complete,
                )
            });
            if known.is_some() || is_complete || first == 0 {
                return Ok(known);
            }
            let next = match last {
                None => Next::Cluster(first),
                Some(last) => self.next_cluster(last).await?,
            };
            let broken = |what| {
                Err(FsError::Corrupt {
                    byte: self.entry_byte(ino),
                    what,
                    found: first.into(),
                })
            };
            match next {
                Next::Cluster(_) if count as u64 >= most => {
                    return broken("a file's chain is a loop, from the cluster");
                }
                Next::Free => return broken("a file's chain leads to a free cluster, from"),
                Next::Cluster(cluster) => self.known(ino, |inode| {
                    // Another task may have been faster.
                    if inode.chain.len() == count {
                        inode.chain.push(cluster);
                    }
                }),
                Next::End => self.known(ino, |inode| inode.is_complete = true),
            }
        }
    }

    /// Notes what was read of an inode.
    fn known(&self, ino: Ino, note: impl FnOnce(&mut Inode)) {
        if let Some(inode) = self.state.borrow_mut().inodes.get_mut(&ino) {
            note(inode);
        }
    }

    /// Puts a new cluster at the end of a file whose chain is known whole
    /// (`fat_chain_add`).
    pub(super) async fn append_cluster(&self, ino: Ino, cluster: u32) -> Result<(), FsError> {
        let last = self.with(ino, |inode| inode.chain.last().copied());
        if let Some(last) = last {
            self.set_next(last, Some(cluster)).await?;
        }
        let cluster_bytes = self.geometry.cluster_bytes();
        self.modify(ino, |inode| {
            if last.is_none() {
                inode.first = cluster;
            }
            inode.chain.push(cluster);
            inode.is_complete = true;
            if inode.is_dir() {
                inode.size_bytes += cluster_bytes;
            }
        });
        Ok(())
    }

    /// Keeps so many clusters of a file and frees the others (`fat_free`).
    pub(super) async fn keep_clusters(&self, ino: Ino, clusters: u64) -> Result<(), FsError> {
        let first = self.with(ino, |inode| inode.first);
        if first == 0 {
            return Ok(());
        }
        let freed = match clusters.checked_sub(1) {
            None => {
                self.modify(ino, |inode| inode.first = 0);
                Some(first)
            }
            Some(last) => {
                let Some(last) = self.cluster(ino, last).await? else {
                    return Ok(());
                };
                let next = self.next_cluster(last).await?;
                if next != Next::End {
                    self.set_next(last, None).await?;
                }
                match next {
                    Next::Cluster(next) => Some(next),
                    _ => None,
                }
            }
        };
        self.modify(ino, |inode| {
            inode.chain.truncate(clusters as usize);
            inode.is_complete = true;
        });
        match freed {
            Some(cluster) => self.free_chain(cluster).await,
            None => Ok(()),
        }
    }

    /// Puts an inode's fields into its entry (`__fat_write_inode`).
    pub(super) async fn update_entry(&self, ino: Ino) -> Result<Option<Buffer>, FsError> {
        let position = self.with(ino, |inode| inode.position);
        let Some(position) = position.filter(|_| ino != ROOT) else {
            self.known(ino, |inode| inode.is_dirty = false);
            return Ok(None);
        };
        let (buffer, offset) = self.entry_place(position).await?;
        let inode = self.with(ino, Inode::clone);
        let size = if inode.is_dir() { 0 } else { inode.size_bytes };
        let (date, time, _) = to_fat_time(inode.modified);
        let (accessed, _, _) = to_fat_time(inode.accessed);
        buffer.bytes_mut()[offset + at::ATTRIBUTES] = inode.attributes;
        for (at, value) in [
            (at::CLUSTER_LOW, inode.first as u16),
            (at::CLUSTER_HIGH, (inode.first >> 16) as u16),
            (at::TIME, time),
            (at::DATE, date),
            (at::ACCESSED_DATE, accessed),
        ] {
            buffer.set_u16(offset + at, value);
        }
        buffer.set_u32(offset + at::SIZE, size as u32);
        self.device.mark_dirty(&buffer, None);
        self.known(ino, |inode| inode.is_dirty = false);
        Ok(Some(buffer))
    }

    /// What `stat` tells; owner and permissions are the mount's.
    pub(super) fn stat(&self, ino: Ino) -> Attributes {
        self.with(ino, |inode| {
            let writable = if inode.attributes & ATTRIBUTE_READ_ONLY == 0 {
                0o777
            } else {
                0o555
            };
            let (kind, kind_mode) = match inode.is_dir() {
                true => (FileKind::Directory, 0o040_000),
                false => (FileKind::Regular, 0o100_000),
            };
            let cluster_bytes = self.geometry.cluster_bytes();
            Attributes {
                ino,
                kind,
                mode: kind_mode | writable & !self.options.umask,
                links: inode.links,
                uid: 0,
                gid: 0,
                size_bytes: inode.size_bytes,
                sectors: inode.size_bytes.next_multiple_of(cluster_bytes) / 512,
                accessed: inode.accessed,
                modified: inode.modified,
                changed: inode.modified,
            }
        })
    }

    /// A name's entry is no longer the inode's.
    pub(super) fn detach(&self, ino: Ino) {
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        if let Some(inode) = state.inodes.get_mut(&ino)
            && let Some(position) = inode.position.take()
        {
            state.positions.remove(&position);
        }
    }

    /// The inode has another entry.
    pub(super) fn attach(&self, ino: Ino, position: u64) {
        self.detach(ino);
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        state.positions.insert(position, ino);
        if let Some(inode) = state.inodes.get_mut(&ino) {
            inode.position = Some(position);
            inode.is_dirty = true;
        }
    }

    /// What nothing names any more goes with [`Vfat::evict`].
    pub(super) fn drop_inode(&self, ino: Ino, caller: &Caller) {
        self.detach(ino);
        self.modify(ino, |inode| {
            inode.links = 0;
            inode.modified = caller.now;
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_entries_are_those_of_calendars() {
        let leap_day = Timestamp {
            seconds: 1_709_211_599,
            nanoseconds: 500_000_000,
        };
        // 2024-02-29 12:59:59.
        let date = 44 << 9 | 2 << 5 | 29;
        let time = 12 << 11 | 59 << 5 | 29;
        assert_eq!(to_fat_time(leap_day), (date, time, 150));
        assert_eq!(from_fat_time(date, time).seconds, 1_709_211_598);
        assert_eq!(to_fat_time(Timestamp::default()), (1 << 5 | 1, 0, 0));
    }
}
