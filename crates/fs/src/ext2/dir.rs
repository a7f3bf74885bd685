//! Directories: blocks of entries, each with its length up to the next one
//! (Linux 6.12's `fs/ext2/dir.c`).

use crate::buffer::{Buffer, Buffers};
use crate::error::FsError;
use crate::file_system::{Caller, DirEntry, FileKind, Ino};

use super::Ext2;
use super::inode::{FLAG_INDEX, Inode};
use super::mode;

/// The longest name in bytes (`EXT2_NAME_LEN`).
pub(super) const NAME_BYTES_MAX: usize = 255;
/// Bytes of an entry before its name.
const HEAD_BYTES: usize = 8;

/// Byte offsets of an entry's fields (`struct ext2_dir_entry_2`).
mod at {
    pub(super) const INODE: usize = 0;
    pub(super) const LENGTH: usize = 4;
    pub(super) const NAME_LENGTH: usize = 6;
    pub(super) const KIND: usize = 7;
}

/// The bytes that an entry with a name of this length needs (`EXT2_DIR_REC_LEN`).
pub(super) const fn entry_bytes(name_bytes: usize) -> usize {
    (HEAD_BYTES + name_bytes).next_multiple_of(4)
}

/// An entry in a directory's block.
#[derive(Clone, Copy, Debug)]
struct Entry {
    offset: usize,
    length: usize,
    /// 0 if the entry is free.
    ino: Ino,
    name_length: usize,
    kind: u8,
}

impl Entry {
    fn is_named(&self, buffer: &Buffer, name: &[u8]) -> bool {
        self.ino.0 != 0 && self.name(&buffer.bytes()) == name
    }

    fn name<'a>(&self, block: &'a [u8]) -> &'a [u8] {
        &block[self.offset + HEAD_BYTES..][..self.name_length]
    }

    /// The bytes that it needs; the rest of its length is free.
    fn used(&self) -> usize {
        if self.ino.0 == 0 {
            0
        } else {
            entry_bytes(self.name_length)
        }
    }
}

/// An entry with its block.
#[derive(Clone, Debug)]
pub(super) struct Found {
    buffer: Buffer,
    entry: Entry,
}

impl Found {
    pub(super) fn ino(&self) -> Ino {
        self.entry.ino
    }
}

/// The number of a kind of file in an entry (`fs_umode_to_ftype`).
const fn kind_number(file_mode: u16) -> u8 {
    match file_mode & mode::KIND {
        mode::REGULAR => 1,
        mode::DIRECTORY => 2,
        0o020_000 => 3,
        0o060_000 => 4,
        0o010_000 => 5,
        0o140_000 => 6,
        mode::SYMLINK => 7,
        _ => 0,
    }
}

const fn kind_of_number(number: u8) -> Option<FileKind> {
    match number {
        1 => Some(FileKind::Regular),
        2 => Some(FileKind::Directory),
        3..=6 => Some(FileKind::Special),
        7 => Some(FileKind::Symlink),
        _ => None,
    }
}

/// Puts an entry into a block.
pub(super) fn write_entry(
    buffer: &Buffer,
    offset: usize,
    length: usize,
    ino: Ino,
    name: &[u8],
    kind: u8,
) {
    buffer.set_u32(offset + at::INODE, ino.0 as u32);
    // A length of 65536 would not fit, but blocks have 4096 bytes at most.
    buffer.set_u16(offset + at::LENGTH, length as u16);
    let mut bytes = buffer.bytes_mut();
    bytes[offset + at::NAME_LENGTH] = name.len() as u8;
    bytes[offset + at::KIND] = kind;
    bytes[offset + HEAD_BYTES..][..name.len()].copy_from_slice(name);
}

/// Fills a directory's first block with the entries `.` and `..`.
pub(super) fn write_dots(buffer: &Buffer, dir: Ino, parent: Ino, has_file_types: bool) {
    let block_bytes = buffer.bytes().len();
    let kind = if has_file_types {
        kind_number(mode::DIRECTORY)
    } else {
        0
    };
    write_entry(buffer, 0, entry_bytes(1), dir, b".", kind);
    let rest = block_bytes - entry_bytes(1);
    write_entry(buffer, entry_bytes(1), rest, parent, b"..", kind);
}

impl<D: Buffers> Ext2<D> {
    /// Reads and checks the entry at `offset` (`ext2_check_folio`).
    fn entry(&self, buffer: &Buffer, offset: usize) -> Result<Entry, FsError> {
        let block_bytes = self.geometry.block_bytes as usize;
        let length = usize::from(buffer.u16_at(offset + at::LENGTH));
        let (name_length, kind) = {
            let bytes = buffer.bytes();
            (bytes[offset + at::NAME_LENGTH], bytes[offset + at::KIND])
        };
        let ino = buffer.u32_at(offset + at::INODE);
        let wrong = |at, what, found: usize| Err(buffer.corrupt(offset + at, what, found as u64));
        if length < entry_bytes(1) {
            return wrong(
                at::LENGTH,
                "a directory entry is shorter than 12 bytes",
                length,
            );
        }
        if length % 4 != 0 {
            let what = "a directory entry's length is no multiple of 4";
            return wrong(at::LENGTH, what, length);
        }
        if offset + length > block_bytes {
            let what = "a directory entry goes beyond its block";
            return wrong(at::LENGTH, what, length);
        }
        if length < entry_bytes(name_length.into()) {
            let what = "a name is longer than its directory entry";
            return wrong(at::NAME_LENGTH, what, name_length.into());
        }
        if ino > self.geometry.inodes {
            let what = "a directory entry names an inode beyond the last";
            return wrong(at::INODE, what, ino as usize);
        }
        Ok(Entry {
            offset,
            length,
            ino: Ino(ino.into()),
            name_length: name_length.into(),
            kind,
        })
    }

    /// Finds the first entry of a block for which `take` is true, and the entry before it.
    fn find_entry(
        &self,
        buffer: &Buffer,
        mut take: impl FnMut(&Entry) -> bool,
    ) -> Result<Option<(Option<Entry>, Entry)>, FsError> {
        let mut before = None;
        let mut offset = 0;
        // Lengths are multiples of 4, so less than a head may be left at the end.
        while offset + HEAD_BYTES <= self.geometry.block_bytes as usize {
            let entry = self.entry(buffer, offset)?;
            if take(&entry) {
                return Ok(Some((before, entry)));
            }
            offset += entry.length;
            before = Some(entry);
        }
        Ok(None)
    }

    fn dir_blocks(&self, dir: Ino) -> Result<u64, FsError> {
        let state = self.state.borrow();
        let inode = &state.inodes[&dir];
        if !inode.is(mode::DIRECTORY) {
            return Err(FsError::NotDirectory);
        }
        Ok(inode.size_bytes / u64::from(self.geometry.block_bytes))
    }

    /// A block of a directory.
    async fn dir_block(&self, dir: Ino, block: u64) -> Result<Buffer, FsError> {
        match self.get_blocks(dir, block, 1, None).await?.block {
            Some(at) => self.device.bread(at).await,
            None => Err(FsError::Corrupt {
                byte: self.pointer_byte(dir, 0),
                what: "a directory has a hole, at the block",
                found: block,
            }),
        }
    }

    /// Looks for a name, beginning with the block where one was found last
    /// (`ext2_find_entry`).
    pub(super) async fn find(&self, dir: Ino, name: &[u8]) -> Result<Option<Found>, FsError> {
        let blocks = self.dir_blocks(dir)?;
        let start = self.state.borrow().inodes[&dir].lookup_start;
        let start = if start < blocks { start } else { 0 };
        for n in 0..blocks {
            let block = (start + n) % blocks;
            let buffer = self.dir_block(dir, block).await?;
            let found = self.find_entry(&buffer, |entry| entry.is_named(&buffer, name))?;
            if let Some((_, entry)) = found {
                if let Some(inode) = self.state.borrow_mut().inodes.get_mut(&dir) {
                    inode.lookup_start = block;
                }
                return Ok(Some(Found { buffer, entry }));
            }
        }
        Ok(None)
    }

    /// The entry `..` of a directory (`ext2_dotdot`).
    pub(super) async fn find_parent(&self, dir: Ino) -> Result<Found, FsError> {
        let buffer = self.dir_block(dir, 0).await?;
        let found = self.find_entry(&buffer, |entry| entry.is_named(&buffer, b".."))?;
        match found {
            Some((_, entry)) => Ok(Found { buffer, entry }),
            None => Err(buffer.corrupt(entry_bytes(1), "a directory without an entry ..", 0_u64)),
        }
    }

    /// Appends the names of a directory's block to `entries`. Returns the next block.
    pub(super) async fn list_block(
        &self,
        dir: Ino,
        block: u64,
        entries: &mut Vec<DirEntry>,
    ) -> Result<Option<u64>, FsError> {
        let blocks = self.dir_blocks(dir)?;
        if block >= blocks {
            return Ok(None);
        }
        let buffer = self.dir_block(dir, block).await?;
        self.find_entry(&buffer, |entry| {
            if entry.ino.0 != 0 {
                entries.push(DirEntry {
                    name: entry.name(&buffer.bytes()).to_vec(),
                    ino: entry.ino,
                    kind: kind_of_number(entry.kind).filter(|_| self.geometry.has_file_types),
                });
            }
            false
        })?;
        Ok((block + 1 < blocks).then_some(block + 1))
    }

    /// Whether a directory has no entry besides `.` and `..` (`ext2_empty_dir`).
    pub(super) async fn is_empty_dir(&self, dir: Ino) -> Result<bool, FsError> {
        for block in 0..self.dir_blocks(dir)? {
            let buffer = self.dir_block(dir, block).await?;
            let other = self.find_entry(&buffer, |entry| {
                let bytes = buffer.bytes();
                let name = entry.name(&bytes);
                entry.ino.0 != 0 && name != b"." && name != b".."
            })?;
            if other.is_some() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Checks a new name.
    pub(super) fn check_name(name: &[u8]) -> Result<(), FsError> {
        if name.len() > NAME_BYTES_MAX {
            return Err(FsError::NameTooLong);
        }
        let is_bad = name.is_empty() || name == b"." || name == b"..";
        match is_bad || name.contains(&b'/') || name.contains(&0) {
            true => Err(FsError::BadName),
            false => Ok(()),
        }
    }

    /// Adds a name: after the first entry that has room for it, else in a new block
    /// (`ext2_add_link`).
    pub(super) async fn add_link(
        &self,
        dir: Ino,
        name: &[u8],
        ino: Ino,
        caller: &Caller,
    ) -> Result<(), FsError> {
        let needed = entry_bytes(name.len());
        let blocks = self.dir_blocks(dir)?;
        for block in 0..blocks {
            let buffer = self.dir_block(dir, block).await?;
            let mut exists = false;
            let room = self.find_entry(&buffer, |entry| {
                exists = entry.is_named(&buffer, name);
                exists || entry.length - entry.used() >= needed
            })?;
            if exists {
                return Err(FsError::Exists);
            }
            let Some((_, entry)) = room else {
                continue;
            };
            let (offset, length) = match entry.used() {
                0 => (entry.offset, entry.length),
                used => {
                    buffer.set_u16(entry.offset + at::LENGTH, used as u16);
                    (entry.offset + used, entry.length - used)
                }
            };
            self.put_entry(&buffer, dir, (offset, length), name, ino, caller);
            return Ok(());
        }
        let block_bytes = self.geometry.block_bytes;
        let map = self.get_blocks(dir, blocks, 1, Some(caller)).await?;
        let at = map.block.ok_or(FsError::NoSpace)?;
        let buffer = self.device.zeroed(at)?;
        let place = (0, block_bytes as usize);
        self.put_entry(&buffer, dir, place, name, ino, caller);
        if let Some(inode) = self.state.borrow_mut().inodes.get_mut(&dir) {
            inode.size_bytes = (blocks + 1) * u64::from(block_bytes);
        }
        Ok(())
    }

    fn put_entry(
        &self,
        buffer: &Buffer,
        dir: Ino,
        place: (usize, usize),
        name: &[u8],
        ino: Ino,
        caller: &Caller,
    ) {
        let kind = self.kind_number(ino);
        write_entry(buffer, place.0, place.1, ino, name, kind);
        self.changed(buffer, dir, caller);
    }

    fn kind_number(&self, ino: Ino) -> u8 {
        match self.geometry.has_file_types {
            true => kind_number(self.state.borrow().inodes[&ino].mode),
            false => 0,
        }
    }

    /// Marks a directory's block dirty. The flag of ext3's index is cleared, because ext2 does
    /// not keep the index up to date.
    fn changed(&self, buffer: &Buffer, dir: Ino, caller: &Caller) {
        self.device.mark_dirty(buffer, Some(dir));
        if let Some(inode) = self.state.borrow_mut().inodes.get_mut(&dir) {
            inode.touch(caller);
            inode.flags &= !FLAG_INDEX;
        }
    }

    /// Removes an entry by making the one before it longer; its name stays in the block
    /// (`ext2_delete_entry`).
    pub(super) fn delete_entry(
        &self,
        dir: Ino,
        found: &Found,
        caller: &Caller,
    ) -> Result<(), FsError> {
        let Found { buffer, entry } = found;
        // Since it was found, a name may have been added after it and shortened it.
        let place = self.find_entry(buffer, |other| other.offset >= entry.offset)?;
        if let Some((Some(before), now)) = place {
            let length = entry.offset + now.length - before.offset;
            buffer.set_u16(before.offset + at::LENGTH, length as u16);
        }
        buffer.set_u32(entry.offset + at::INODE, 0);
        self.changed(buffer, dir, caller);
        Ok(())
    }

    /// Changes the inode of an entry (`ext2_set_link`).
    pub(super) fn set_link(&self, dir: Ino, found: &Found, ino: Ino, caller: &Caller) {
        let Found { buffer, entry } = found;
        buffer.set_u32(entry.offset + at::INODE, ino.0 as u32);
        buffer.bytes_mut()[entry.offset + at::KIND] = self.kind_number(ino);
        self.changed(buffer, dir, caller);
    }

    /// Allocates and fills the first block of a new directory (`ext2_make_empty`).
    pub(super) async fn make_empty(
        &self,
        dir: Ino,
        parent: Ino,
        caller: &Caller,
    ) -> Result<(), FsError> {
        let map = self.get_blocks(dir, 0, 1, Some(caller)).await?;
        let buffer = self.device.zeroed(map.block.ok_or(FsError::NoSpace)?)?;
        write_dots(&buffer, dir, parent, self.geometry.has_file_types);
        self.device.mark_dirty(&buffer, Some(dir));
        if let Some(inode) = self.state.borrow_mut().inodes.get_mut(&dir) {
            inode.size_bytes = self.geometry.block_bytes.into();
            inode.is_dirty = true;
        }
        Ok(())
    }
}

impl Inode {
    /// Sets the times of an inode whose contents changed.
    pub(super) fn touch(&mut self, caller: &Caller) {
        self.mtime = caller.now.seconds;
        self.ctime = caller.now.seconds;
        self.is_dirty = true;
    }
}
