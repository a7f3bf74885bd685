//! Directories: entries of 32 bytes, those of a long name before that of the short
//! one (Linux 6.12's `fs/fat/dir.c`).

use std::collections::BTreeSet;

use crate::buffer::{Buffer, Buffers};
use crate::error::FsError;
use crate::file_system::{Caller, Ino};

use super::Vfat;
use super::boot::{ENTRY_BYTES, FatWidth};
use super::inode::{Inode, ROOT, at};
use super::name::{NewName, UNITS_PER_SLOT, checksum, slot_units, without_last_dots};

/// Bytes of a directory at most (`FAT_MAX_DIR_SIZE`).
pub(super) const DIR_BYTES_MAX: u64 = 65536 * 32;
/// The first byte of an entry that was removed.
const DELETED: u8 = 0xe5;
/// Parts of a long name at most.
const SLOTS_MAX: u8 = 20;

pub(super) const ATTRIBUTE_READ_ONLY: u8 = 0x01;
pub(super) const ATTRIBUTE_VOLUME: u8 = 0x08;
pub(super) const ATTRIBUTE_DIRECTORY: u8 = 0x10;
pub(super) const ATTRIBUTE_ARCHIVE: u8 = 0x20;
/// A part of a long name.
pub(super) const ATTRIBUTES_LONG: u8 = 0x0f;

/// An entry's 32 bytes.
pub(super) type Entry = [u8; ENTRY_BYTES as usize];

/// Whether an entry is free.
pub(super) const fn is_free(entry: &Entry) -> bool {
    entry[0] == 0 || entry[0] == DELETED
}

/// Whether an entry is that of a file or a directory.
pub(super) const fn is_file(entry: &Entry) -> bool {
    !is_free(entry) && entry[at::ATTRIBUTES] & ATTRIBUTE_VOLUME == 0
}

/// The short name of an entry.
pub(super) fn short_name(entry: &Entry) -> [u8; 11] {
    std::array::from_fn(|n| entry[n])
}

/// Whether it is `.` or `..`.
fn is_dots(entry: &Entry) -> bool {
    matches!(&short_name(entry), b".          " | b"..         ")
}

/// Reads a directory's entries one after the other.
struct Cursor {
    dir: Ino,
    /// The next entry.
    index: u64,
    sector: Option<(u64, Buffer)>,
}

/// A named file of a directory, with all its entries.
#[derive(Clone, Debug)]
pub(super) struct Record {
    /// The first of its entries in the directory, and how many they are.
    first: u64,
    count: u64,
    /// The long name; empty where there is none.
    pub(super) long: Vec<u16>,
    pub(super) entry: Entry,
    /// The number of the last entry on the device.
    pub(super) position: u64,
}

/// How the entries of a long name end.
enum Long {
    /// With the short name's entry, and this long name.
    Whole(Vec<u16>, Entry, u64),
    /// With something that is looked at on its own.
    Other(Entry, u64),
    /// With nothing.
    Broken,
    /// With the directory.
    End,
}

impl<D: Buffers> Vfat<D> {
    /// The sector of the device with the n-th sector of a directory.
    async fn dir_sector(&self, dir: Ino, n: u64) -> Result<Option<u64>, FsError> {
        let geometry = &self.geometry;
        let cluster_sectors = u64::from(geometry.cluster_sectors);
        if dir == ROOT && geometry.width != FatWidth::Fat32 {
            let sectors = geometry.root_entries / geometry.entries_per_sector();
            let sector = u64::from(geometry.root_start) + n;
            return Ok((n < sectors.into()).then_some(sector));
        }
        if n * u64::from(geometry.sector_bytes) >= DIR_BYTES_MAX {
            return Ok(None);
        }
        let cluster = self.cluster(dir, n / cluster_sectors).await?;
        Ok(cluster.map(|cluster| geometry.sector(cluster) + n % cluster_sectors))
    }

    /// The next entry with its number on the device; `None` at the end.
    async fn next_entry(&self, cursor: &mut Cursor) -> Result<Option<(Entry, u64)>, FsError> {
        let per_sector = u64::from(self.geometry.entries_per_sector());
        let n = cursor.index / per_sector;
        if cursor.sector.as_ref().is_none_or(|(at, _)| *at != n) {
            let Some(sector) = self.dir_sector(cursor.dir, n).await? else {
                return Ok(None);
            };
            let cluster_sectors = u64::from(self.geometry.cluster_sectors);
            let is_fixed = cursor.dir == ROOT && self.geometry.width != FatWidth::Fat32;
            if n.is_multiple_of(cluster_sectors) && cluster_sectors > 1 && !is_fixed {
                for ahead in 0..cluster_sectors {
                    self.device.read_ahead(sector + ahead).await;
                }
            }
            cursor.sector = Some((n, self.device.bread(sector).await?));
        }
        let Some((_, buffer)) = &cursor.sector else {
            return Ok(None);
        };
        let in_sector = cursor.index % per_sector;
        let bytes = buffer.bytes();
        let offset = (in_sector * u64::from(ENTRY_BYTES)) as usize;
        let entry = std::array::from_fn(|n| bytes[offset + n]);
        cursor.index += 1;
        Ok(Some((entry, buffer.block() * per_sector + in_sector)))
    }

    /// The next named file of a directory from entry `index` on, and the entry behind
    /// it.
    pub(super) async fn next_record(
        &self,
        dir: Ino,
        index: u64,
    ) -> Result<Option<(Record, u64)>, FsError> {
        let mut cursor = Cursor {
            dir,
            index,
            sector: None,
        };
        let mut pending = None;
        loop {
            let next = match pending.take() {
                Some(next) => Some(next),
                None => self.next_entry(&mut cursor).await?,
            };
            let Some((entry, position)) = next else {
                return Ok(None);
            };
            let first = cursor.index - 1;
            let (long, entry, position) = if entry[at::ATTRIBUTES] == ATTRIBUTES_LONG {
                if entry[0] == DELETED {
                    continue;
                }
                match self.parse_long(&mut cursor, entry).await? {
                    Long::Whole(long, entry, position) => (long, entry, position),
                    Long::Other(entry, position) => {
                        pending = Some((entry, position));
                        continue;
                    }
                    Long::Broken => continue,
                    Long::End => return Ok(None),
                }
            } else if is_file(&entry) {
                (Vec::new(), entry, position)
            } else {
                continue;
            };
            let slots = long.len().div_ceil(UNITS_PER_SLOT) as u64;
            let record = Record {
                first: if long.is_empty() {
                    cursor.index - 1
                } else {
                    first
                },
                count: slots + 1,
                long,
                entry,
                position,
            };
            return Ok(Some((record, cursor.index)));
        }
    }

    /// Reads on from the first entry of a long name (`fat_parse_long`).
    async fn parse_long(&self, cursor: &mut Cursor, start: Entry) -> Result<Long, FsError> {
        let slots = start[0] & !0x40;
        if start[0] & 0x40 == 0 || slots == 0 || slots > SLOTS_MAX {
            return Ok(Long::Broken);
        }
        let sum = start[at::LONG_CHECKSUM];
        let mut long = vec![0; usize::from(slots) * UNITS_PER_SLOT];
        let mut entry = start;
        for slot in (0..slots).rev() {
            let units = usize::from(slot) * UNITS_PER_SLOT;
            long[units..units + UNITS_PER_SLOT].copy_from_slice(&slot_units(&entry));
            let Some((next, position)) = self.next_entry(cursor).await? else {
                return Ok(Long::End);
            };
            entry = next;
            if slot == 0 {
                let is_named = is_file(&entry);
                return Ok(match entry[at::ATTRIBUTES] {
                    ATTRIBUTES_LONG if entry[0] != DELETED => Long::Other(entry, position),
                    _ if !is_named => Long::Broken,
                    // The long name is not this file's.
                    _ if checksum(&short_name(&entry)) != sum => {
                        Long::Whole(Vec::new(), entry, position)
                    }
                    _ => Long::Whole(long, entry, position),
                });
            }
            let is_next = entry[at::ATTRIBUTES] == ATTRIBUTES_LONG
                && entry[0] & !0x40 == slot
                && entry[at::LONG_CHECKSUM] == sum;
            if !is_next {
                return Ok(Long::Other(entry, position));
            }
        }
        Ok(Long::Broken)
    }

    /// Looks for a name: first in the short names, then in the long ones
    /// (`fat_search_long`).
    pub(super) async fn find(&self, dir: Ino, name: &[u8]) -> Result<Option<Record>, FsError> {
        let options = &self.options;
        let name = without_last_dots(name);
        if name.is_empty() {
            return Ok(None);
        }
        let wanted = options.lower(name);
        let mut index = 0;
        while let Some((record, next)) = self.next_record(dir, index).await? {
            let short =
                options.short_to_program(&short_name(&record.entry), record.entry[at::CASE]);
            if options.lower(&short) == wanted {
                return Ok(Some(record));
            }
            if !record.long.is_empty() {
                let long = options.to_program(&record.long);
                if options.lower(&long) == wanted {
                    return Ok(Some(record));
                }
            }
            index = next;
        }
        Ok(None)
    }

    /// The name that a program sees.
    pub(super) fn program_name(&self, record: &Record) -> Vec<u8> {
        match record.long.is_empty() {
            true => {
                let short = short_name(&record.entry);
                self.options
                    .short_to_program(&short, record.entry[at::CASE])
            }
            false => self.options.to_program(&record.long),
        }
    }

    /// Whether a directory names nothing but itself and its parent.
    pub(super) async fn is_empty_dir(&self, dir: Ino) -> Result<bool, FsError> {
        let mut index = 0;
        while let Some((record, next)) = self.next_record(dir, index).await? {
            if !is_dots(&record.entry) {
                return Ok(false);
            }
            index = next;
        }
        Ok(true)
    }

    /// How many directories a directory names, without itself and its parent.
    pub(super) async fn count_dirs(&self, dir: Ino) -> Result<u32, FsError> {
        let (mut index, mut dirs) = (0, 0);
        while let Some((record, next)) = self.next_record(dir, index).await? {
            let is_dir = record.entry[at::ATTRIBUTES] & ATTRIBUTE_DIRECTORY != 0;
            dirs += u32::from(is_dir && !is_dots(&record.entry));
            index = next;
        }
        Ok(dirs)
    }

    /// The entry of a directory for its parent: its number on the device.
    pub(super) async fn parent_entry(&self, dir: Ino) -> Result<u64, FsError> {
        let mut index = 0;
        while let Some((record, next)) = self.next_record(dir, index).await? {
            if &short_name(&record.entry) == b"..         " {
                return Ok(record.position);
            }
            index = next;
        }
        Err(FsError::Corrupt {
            byte: self.entry_byte(dir),
            what: "a directory without an entry .., at the cluster",
            found: self.with(dir, |inode| inode.first.into()),
        })
    }

    /// Entries for a new name; `entry` has all but the name.
    pub(super) async fn new_entries(
        &self,
        dir: Ino,
        name: &[u8],
        mut entry: Entry,
        caller: &Caller,
    ) -> Result<Vec<Entry>, FsError> {
        let options = &self.options;
        let new = NewName::new(name, options)?;
        let mut taken = BTreeSet::new();
        let mut index = 0;
        while let Some((record, next)) = self.next_record(dir, index).await? {
            taken.insert(short_name(&record.entry));
            index = next;
        }
        let (short, case, is_short) = match new.plain(options) {
            Some((short, _, _)) if taken.contains(&short) => return Err(FsError::Exists),
            Some(plain) => plain,
            None => {
                let mut candidates = new.candidates(options, caller.now);
                let free = candidates.find(|short| !taken.contains(short));
                (free.ok_or(FsError::NoSpace)?, 0, false)
            }
        };
        entry[..11].copy_from_slice(&short);
        entry[at::CASE] = case;
        let mut entries = if is_short {
            Vec::new()
        } else {
            new.slots(&short)
        };
        entries.push(entry);
        Ok(entries)
    }

    /// Adds entries in the first place where so many in a row are free; a directory
    /// without one becomes longer (`fat_add_entries`). Returns the number of the last
    /// one on the device.
    pub(super) async fn add_entries(
        &self,
        dir: Ino,
        entries: &[Entry],
        caller: &Caller,
    ) -> Result<u64, FsError> {
        let mut cursor = Cursor {
            dir,
            index: 0,
            sector: None,
        };
        let mut places = Vec::new();
        while places.len() < entries.len() {
            match self.next_entry(&mut cursor).await? {
                Some((entry, position)) if is_free(&entry) => places.push(position),
                Some(_) => places.clear(),
                None => {
                    self.extend_dir(dir, cursor.index).await?;
                    // The cursor goes on behind what was the end.
                    cursor.sector = None;
                }
            }
        }
        for (entry, position) in entries.iter().zip(&places) {
            self.put_entry(*position, entry, Some(dir)).await?;
        }
        self.touch(dir, caller);
        Ok(places.last().copied().unwrap_or(0))
    }

    /// Adds a cluster of free entries to a directory of so many entries.
    async fn extend_dir(&self, dir: Ino, entries: u64) -> Result<(), FsError> {
        let is_fixed = dir == ROOT && self.geometry.width != FatWidth::Fat32;
        if is_fixed || entries * u64::from(ENTRY_BYTES) >= DIR_BYTES_MAX {
            return Err(FsError::NoSpace);
        }
        let cluster = self.take_cluster().await?;
        self.zero_cluster(cluster, dir)?;
        self.append_cluster(dir, cluster).await
    }

    /// A cluster of a directory without entries.
    pub(super) fn zero_cluster(&self, cluster: u32, dir: Ino) -> Result<(), FsError> {
        for n in 0..u64::from(self.geometry.cluster_sectors) {
            let buffer = self.device.zeroed(self.geometry.sector(cluster) + n)?;
            self.device.mark_dirty(&buffer, Some(dir));
        }
        Ok(())
    }

    /// The buffer with an entry, and its byte there.
    pub(super) async fn entry_place(&self, position: u64) -> Result<(Buffer, usize), FsError> {
        let per_sector = u64::from(self.geometry.entries_per_sector());
        let buffer = self.device.bread(position / per_sector).await?;
        let offset = position % per_sector * u64::from(ENTRY_BYTES);
        Ok((buffer, offset as usize))
    }

    async fn put_entry(
        &self,
        position: u64,
        entry: &Entry,
        of: Option<Ino>,
    ) -> Result<(), FsError> {
        let (buffer, offset) = self.entry_place(position).await?;
        buffer.bytes_mut()[offset..offset + entry.len()].copy_from_slice(entry);
        self.device.mark_dirty(&buffer, of);
        Ok(())
    }

    /// Marks a name's entries as free; all else of them stays
    /// (`fat_remove_entries`).
    pub(super) async fn remove_entries(
        &self,
        dir: Ino,
        record: &Record,
        caller: &Caller,
    ) -> Result<(), FsError> {
        let mut cursor = Cursor {
            dir,
            index: record.first,
            sector: None,
        };
        for _ in 0..record.count {
            let Some((_, position)) = self.next_entry(&mut cursor).await? else {
                break;
            };
            let (buffer, offset) = self.entry_place(position).await?;
            buffer.bytes_mut()[offset] = DELETED;
            self.device.mark_dirty(&buffer, Some(dir));
        }
        self.touch(dir, caller);
        Ok(())
    }

    /// A directory was changed.
    fn touch(&self, dir: Ino, caller: &Caller) {
        let touch = |inode: &mut Inode| {
            inode.modified = caller.now;
            inode.accessed = caller.now;
        };
        if dir != ROOT {
            self.modify(dir, touch);
        }
    }
}
