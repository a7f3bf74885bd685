//! Directories: the entries of a long name stand before that of its short one
//! (Linux 6.12's `fs/fat/dir.c`).

use std::collections::BTreeSet;

use crate::buffer::{Buffer, Buffers};
use crate::error::FsError;
use crate::file_system::{Caller, Ino};

use super::Vfat;
use super::boot::{ENTRY_BYTES, FatWidth};
use super::entry::{
    ATTRIBUTE_DIRECTORY, ATTRIBUTES_LONG, DELETED, DIR_BYTES_MAX, DosEntry, at, is_dots, is_file,
    is_free, short_name,
};
use super::inode::{Inode, ROOT};
use super::name::{NewName, UNITS_PER_SLOT, checksum, slot_units, strip_trailing_dots};

/// Entries of a long name at most (`MSDOS_SLOTS`).
const SLOTS_MAX: u8 = 20;

/// Reads a directory's entries one after the other.
struct Cursor {
    dir: Ino,
    /// The index of the next entry in the directory.
    index: u64,
    /// The directory's sector that was read last, with its index.
    sector: Option<(u64, Buffer)>,
}

/// A file of a directory, with all entries of its name.
#[derive(Clone, Debug)]
pub(super) struct Record {
    /// The index of its first entry in the directory.
    first: u64,
    /// How many entries it has.
    count: u64,
    /// The long name; empty if it has none.
    pub(super) long: Vec<u16>,
    pub(super) entry: DosEntry,
    /// The number of the last entry on the device.
    pub(super) position: u64,
}

/// What follows the first entry of a long name (`PARSE_*`).
enum LongName {
    /// The rest of the long name, and the entry of the short one with its number.
    Whole(Vec<u16>, DosEntry, u64),
    /// An entry that is not part of this name.
    Other(DosEntry, u64),
    /// Nothing that can be used.
    Broken,
    /// The end of the directory.
    End,
}

impl<D: Buffers> Vfat<D> {
    /// Whether a directory is FAT12's or FAT16's root, which is not made of clusters.
    pub(super) fn is_fixed_root(&self, dir: Ino) -> bool {
        dir == ROOT && self.geometry.width != FatWidth::Fat32
    }

    /// The device's sector that holds the n-th sector of a directory.
    async fn dir_sector(&self, dir: Ino, n: u64) -> Result<Option<u64>, FsError> {
        let geometry = &self.geometry;
        let cluster_sectors = u64::from(geometry.cluster_sectors);
        if self.is_fixed_root(dir) {
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
    async fn next_entry(&self, cursor: &mut Cursor) -> Result<Option<(DosEntry, u64)>, FsError> {
        let per_sector = u64::from(self.geometry.entries_per_sector());
        let n = cursor.index / per_sector;
        if cursor.sector.as_ref().is_none_or(|(at, _)| *at != n) {
            let Some(sector) = self.dir_sector(cursor.dir, n).await? else {
                return Ok(None);
            };
            let cluster_sectors = u64::from(self.geometry.cluster_sectors);
            let begins_cluster = n.is_multiple_of(cluster_sectors) && cluster_sectors > 1;
            if begins_cluster && !self.is_fixed_root(cursor.dir) {
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

    /// The next file of a directory from entry `index` on, and the index of the entry
    /// after it.
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
                    LongName::Whole(long, entry, position) => (long, entry, position),
                    LongName::Other(entry, position) => {
                        pending = Some((entry, position));
                        continue;
                    }
                    LongName::Broken => continue,
                    LongName::End => return Ok(None),
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

    /// Reads the entries after the first one of a long name (`fat_parse_long`).
    async fn parse_long(&self, cursor: &mut Cursor, start: DosEntry) -> Result<LongName, FsError> {
        let slots = start[0] & !0x40;
        if start[0] & 0x40 == 0 || slots == 0 || slots > SLOTS_MAX {
            return Ok(LongName::Broken);
        }
        let sum = start[at::LONG_CHECKSUM];
        let mut long = vec![0; usize::from(slots) * UNITS_PER_SLOT];
        let mut entry = start;
        for slot in (0..slots).rev() {
            let units = usize::from(slot) * UNITS_PER_SLOT;
            long[units..units + UNITS_PER_SLOT].copy_from_slice(&slot_units(&entry));
            let Some((next, position)) = self.next_entry(cursor).await? else {
                return Ok(LongName::End);
            };
            entry = next;
            if slot == 0 {
                let is_named = is_file(&entry);
                return Ok(match entry[at::ATTRIBUTES] {
                    ATTRIBUTES_LONG if entry[0] != DELETED => LongName::Other(entry, position),
                    _ if !is_named => LongName::Broken,
                    // The checksum is of another short name: the long one is stale.
                    _ if checksum(&short_name(&entry)) != sum => {
                        LongName::Whole(Vec::new(), entry, position)
                    }
                    _ => LongName::Whole(long, entry, position),
                });
            }
            let is_next = entry[at::ATTRIBUTES] == ATTRIBUTES_LONG
                && entry[0] & !0x40 == slot
                && entry[at::LONG_CHECKSUM] == sum;
            if !is_next {
                return Ok(LongName::Other(entry, position));
            }
        }
        Ok(LongName::Broken)
    }

    /// Looks for the file whose short or long name this is (`fat_search_long`).
    pub(super) async fn find(&self, dir: Ino, name: &[u8]) -> Result<Option<Record>, FsError> {
        let options = &self.options;
        let name = strip_trailing_dots(name);
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

    /// The name that programs see.
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

    /// The number of a directory's subdirectories (`fat_subdirs`).
    pub(super) async fn count_dirs(&self, dir: Ino) -> Result<u32, FsError> {
        let (mut index, mut dirs) = (0, 0);
        while let Some((record, next)) = self.next_record(dir, index).await? {
            let is_dir = record.entry[at::ATTRIBUTES] & ATTRIBUTE_DIRECTORY != 0;
            dirs += u32::from(is_dir && !is_dots(&record.entry));
            index = next;
        }
        Ok(dirs)
    }

    /// The number on the device of a directory's entry `..` (`fat_get_dotdot_entry`).
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

    /// The entries of a new name. `entry` holds all but the name
    /// (`vfat_build_slots`).
    pub(super) async fn new_entries(
        &self,
        dir: Ino,
        name: &[u8],
        mut entry: DosEntry,
        caller: &Caller,
    ) -> Result<Vec<DosEntry>, FsError> {
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

    /// Adds entries at the first place with enough free entries in a row; a directory
    /// without such a place becomes longer (`fat_add_entries`). Returns the number of the
    /// last entry on the device.
    pub(super) async fn add_entries(
        &self,
        dir: Ino,
        entries: &[DosEntry],
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
                    // The cursor continues after what was the end.
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

    /// Adds a cluster of free entries to a directory that has `entries` so far.
    async fn extend_dir(&self, dir: Ino, entries: u64) -> Result<(), FsError> {
        if self.is_fixed_root(dir) || entries * u64::from(ENTRY_BYTES) >= DIR_BYTES_MAX {
            return Err(FsError::NoSpace);
        }
        let cluster = self.take_cluster().await?;
        self.zero_cluster(cluster, dir)?;
        self.append_cluster(dir, cluster).await
    }

    /// Fills a directory's cluster with free entries (`fat_zeroed_cluster`).
    pub(super) fn zero_cluster(&self, cluster: u32, dir: Ino) -> Result<(), FsError> {
        for n in 0..u64::from(self.geometry.cluster_sectors) {
            let buffer = self.device.zeroed(self.geometry.sector(cluster) + n)?;
            self.device.mark_dirty(&buffer, Some(dir));
        }
        Ok(())
    }

    /// The buffer that holds an entry, and the entry's byte there.
    pub(super) async fn entry_place(&self, position: u64) -> Result<(Buffer, usize), FsError> {
        let per_sector = u64::from(self.geometry.entries_per_sector());
        let buffer = self.device.bread(position / per_sector).await?;
        let offset = position % per_sector * u64::from(ENTRY_BYTES);
        Ok((buffer, offset as usize))
    }

    async fn put_entry(
        &self,
        position: u64,
        entry: &DosEntry,
        of: Option<Ino>,
    ) -> Result<(), FsError> {
        let (buffer, offset) = self.entry_place(position).await?;
        buffer.bytes_mut()[offset..offset + entry.len()].copy_from_slice(entry);
        self.device.mark_dirty(&buffer, of);
        Ok(())
    }

    /// Marks the entries of a name as free and leaves the rest of them as it is
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

    /// Sets the times of a changed directory; the root has none.
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
