//! Inodes: in memory, and in the inode table.

use crate::buffer::{Buffer, Buffers};
use crate::error::FsError;
use crate::file_system::{Attributes, FileKind, Ino, Timestamp};

use super::Ext2;
use super::balloc::Reservation;
use super::mode;
use super::superblock::{RO_COMPAT_LARGE_FILE, at as superblock};

/// The root directory's inode number (`EXT2_ROOT_INO`).
pub(super) const ROOT: Ino = Ino(2);
/// Pointers of an inode: 12 direct and 3 indirect ones (`EXT2_N_BLOCKS`).
pub(super) const POINTERS: usize = 15;
/// Subdirectories are spread over the groups (`EXT2_TOPDIR_FL`).
pub(super) const FLAG_TOPDIR: u32 = 0x0002_0000;
/// The directory has an index of ext3, which ext2 does not keep (`EXT2_INDEX_FL`).
pub(super) const FLAG_INDEX: u32 = 0x0000_1000;
/// Flags that a new inode inherits from its directory (`EXT2_FL_INHERITED`).
const FLAGS_INHERITED: u32 = 0x0112_cedf & !FLAG_INDEX;
/// The mask of inherited flags for regular files (`EXT2_REG_FLMASK`).
const FLAGS_REGULAR: u32 = !(0x0001_0000 | FLAG_TOPDIR);
/// The mask for files that are neither regular nor directories (`EXT2_OTHER_FLMASK`).
const FLAGS_OTHER: u32 = 0x0000_00c0;
/// The most links of an inode (`EXT2_LINK_MAX`).
pub(super) const LINKS_MAX: u16 = 32000;

/// Byte offsets of an inode's fields (`struct ext2_inode`).
pub(super) mod at {
    pub(super) const MODE: usize = 0;
    pub(super) const UID_LOW: usize = 2;
    pub(super) const SIZE: usize = 4;
    pub(super) const ATIME: usize = 8;
    pub(super) const CTIME: usize = 12;
    pub(super) const MTIME: usize = 16;
    pub(super) const DTIME: usize = 20;
    pub(super) const GID_LOW: usize = 24;
    pub(super) const LINKS: usize = 26;
    pub(super) const SECTORS: usize = 28;
    pub(super) const FLAGS: usize = 32;
    pub(in crate::ext2) const BLOCK: usize = 40;
    pub(super) const GENERATION: usize = 100;
    pub(super) const FILE_ACL: usize = 104;
    pub(super) const SIZE_HIGH: usize = 108;
    pub(super) const UID_HIGH: usize = 120;
    pub(super) const GID_HIGH: usize = 122;
}

/// An inode in memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Inode {
    pub(super) mode: u16,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) size_bytes: u64,
    pub(super) atime: i64,
    pub(super) ctime: i64,
    pub(super) mtime: i64,
    pub(super) dtime: u32,
    pub(super) links: u16,
    pub(super) sectors: u64,
    pub(super) flags: u32,
    pub(super) pointers: [u32; POINTERS],
    pub(super) generation: u32,
    /// The block of its extended attributes; 0 if it has none.
    pub(super) file_acl: u32,
    /// Whether it was never written, so that its place in the table still holds an old inode
    /// (`EXT2_STATE_NEW`).
    pub(super) is_new: bool,
    pub(super) is_dirty: bool,
    /// The block of the file that was allocated last, and its place on the device.
    pub(super) last_allocated: Option<(u64, u32)>,
    /// By level, the indirect block that was read last.
    pub(super) branch: [Option<Buffer>; 3],
    /// A regular file's reservation of blocks.
    pub(super) reservation: Reservation,
    /// The block of a directory in which a name was found last (`i_dir_start_lookup`).
    pub(super) lookup_start: u64,
}

impl Inode {
    fn read(buffer: &Buffer, offset: usize) -> Inode {
        let u16_at = |at| buffer.u16_at(offset + at);
        let u32_at = |at| buffer.u32_at(offset + at);
        // Times are signed, so that they reach from 1901 to 2038.
        let time = |at| i64::from(u32_at(at) as i32);
        let high = |at| u32::from(u16_at(at)) << 16;
        let mode = u16_at(at::MODE);
        let size_high = match mode & mode::KIND {
            mode::REGULAR => u64::from(u32_at(at::SIZE_HIGH)) << 32,
            _ => 0,
        };
        Inode {
            mode,
            uid: u32::from(u16_at(at::UID_LOW)) | high(at::UID_HIGH),
            gid: u32::from(u16_at(at::GID_LOW)) | high(at::GID_HIGH),
            size_bytes: u64::from(u32_at(at::SIZE)) | size_high,
            atime: time(at::ATIME),
            ctime: time(at::CTIME),
            mtime: time(at::MTIME),
            dtime: u32_at(at::DTIME),
            links: u16_at(at::LINKS),
            sectors: u32_at(at::SECTORS).into(),
            flags: u32_at(at::FLAGS),
            pointers: std::array::from_fn(|n| u32_at(at::BLOCK + 4 * n)),
            generation: u32_at(at::GENERATION),
            file_acl: u32_at(at::FILE_ACL),
            ..Inode::default()
        }
    }

    /// Writes its fields into a buffer; the buffer's other bytes stay.
    pub(super) fn write(&self, buffer: &Buffer, offset: usize) {
        let put16 = |at, value: u32| buffer.set_u16(offset + at, value as u16);
        let put32 = |at, value: u64| buffer.set_u32(offset + at, value as u32);
        put16(at::MODE, self.mode.into());
        put16(at::UID_LOW, self.uid);
        put16(at::UID_HIGH, self.uid >> 16);
        put16(at::GID_LOW, self.gid);
        put16(at::GID_HIGH, self.gid >> 16);
        put16(at::LINKS, self.links.into());
        put32(at::SIZE, self.size_bytes);
        if self.is(mode::REGULAR) {
            put32(at::SIZE_HIGH, self.size_bytes >> 32);
        }
        put32(at::ATIME, self.atime as u64);
        put32(at::CTIME, self.ctime as u64);
        put32(at::MTIME, self.mtime as u64);
        put32(at::DTIME, self.dtime.into());
        put32(at::SECTORS, self.sectors);
        put32(at::FLAGS, self.flags.into());
        put32(at::GENERATION, self.generation.into());
        put32(at::FILE_ACL, self.file_acl.into());
        for (n, pointer) in self.pointers.iter().enumerate() {
            put32(at::BLOCK + 4 * n, u64::from(*pointer));
        }
    }

    pub(super) const fn is(&self, kind: u16) -> bool {
        self.mode & mode::KIND == kind
    }

    /// Whether it is a symbolic link that holds its target in place of the pointers
    /// (`ext2_inode_is_fast_symlink`).
    pub(super) fn is_fast_symlink(&self, block_sectors: u64) -> bool {
        let attributes = if self.file_acl != 0 { block_sectors } else { 0 };
        self.is(mode::SYMLINK) && self.sectors == attributes
    }

    /// Whether its pointers refer to blocks, and are not a device number or a symbolic
    /// link's target.
    pub(super) fn has_blocks(&self, block_sectors: u64) -> bool {
        match self.mode & mode::KIND {
            mode::REGULAR | mode::DIRECTORY => true,
            mode::SYMLINK => !self.is_fast_symlink(block_sectors),
            _ => false,
        }
    }

    /// The bytes of the pointers, as they hold a short symbolic link's target.
    pub(super) fn pointer_bytes(&self) -> [u8; 4 * POINTERS] {
        let mut bytes = [0; 4 * POINTERS];
        for (chunk, pointer) in bytes.chunks_exact_mut(4).zip(self.pointers) {
            chunk.copy_from_slice(&pointer.to_le_bytes());
        }
        bytes
    }

    /// Puts a short symbolic link's target in place of the pointers.
    pub(super) fn set_pointer_bytes(&mut self, path: &[u8]) {
        let mut bytes = [0; 4 * POINTERS];
        bytes[..path.len()].copy_from_slice(path);
        for (pointer, chunk) in self.pointers.iter_mut().zip(bytes.chunks_exact(4)) {
            *pointer = u32::from_le_bytes([chunk[0], chunk[1], chunk[2], chunk[3]]);
        }
    }

    /// The flags that a new inode of this mode inherits from its directory
    /// (`ext2_mask_flags`).
    pub(super) const fn inherited_flags(&self, new_mode: u16) -> u32 {
        let flags = self.flags & FLAGS_INHERITED;
        match new_mode & mode::KIND {
            mode::DIRECTORY => flags,
            mode::REGULAR => flags & FLAGS_REGULAR,
            _ => flags & FLAGS_OTHER,
        }
    }

    pub(super) fn kind(&self) -> FileKind {
        match self.mode & mode::KIND {
            mode::REGULAR => FileKind::Regular,
            mode::DIRECTORY => FileKind::Directory,
            mode::SYMLINK => FileKind::Symlink,
            _ => FileKind::Special,
        }
    }

    pub(super) fn attributes(&self, ino: Ino) -> Attributes {
        let time = |seconds| Timestamp {
            seconds,
            nanoseconds: 0,
        };
        Attributes {
            ino,
            kind: self.kind(),
            mode: self.mode,
            links: self.links.into(),
            uid: self.uid,
            gid: self.gid,
            size_bytes: self.size_bytes,
            sectors: self.sectors,
            accessed: time(self.atime),
            modified: time(self.mtime),
            changed: time(self.ctime),
        }
    }
}

impl<D: Buffers> Ext2<D> {
    /// The block of the inode table that holds an inode, and the inode's byte there.
    async fn inode_block(&self, ino: Ino) -> Result<(Buffer, usize), FsError> {
        let geometry = &self.geometry;
        let (group, index) = geometry.inode_place(ino);
        let byte = index * geometry.inode_bytes;
        let table = self.descriptor(group).inode_table();
        let block = table + byte / geometry.block_bytes;
        let buffer = self.device.bread(block.into()).await?;
        Ok((buffer, (byte % geometry.block_bytes) as usize))
    }

    /// Reads an inode, unless it is in memory (`ext2_iget`).
    ///
    /// # Errors
    /// [`FsError::NoEntry`] where it is not in use, [`FsError::Corrupt`] where its fields
    /// are wrong.
    pub(super) async fn iget(&self, ino: Ino) -> Result<(), FsError> {
        if self.state.borrow().inodes.contains_key(&ino) {
            return Ok(());
        }
        let is_file = ino.0 >= self.geometry.first_ino.into() || ino == ROOT;
        if !is_file || ino.0 > self.geometry.inodes.into() {
            let what = "an inode number beyond those that files can have";
            return Err(self.superblock.corrupt(
                self.superblock_byte(superblock::INODES_COUNT),
                what,
                ino.0,
            ));
        }
        let (buffer, offset) = self.inode_block(ino).await?;
        let inode = Inode::read(&buffer, offset);
        if inode.links == 0 && (inode.mode == 0 || inode.dtime != 0) {
            return Err(FsError::NoEntry);
        }
        let corrupt = |at, what, found: u64| Err(buffer.corrupt(offset + at, what, found));
        if inode.size_bytes > self.file_bytes_max {
            let what = "the file is longer than its pointers reach";
            return corrupt(at::SIZE, what, inode.size_bytes);
        }
        let block_bytes = u64::from(self.geometry.block_bytes);
        let is_dir = inode.is(mode::DIRECTORY);
        if is_dir && !inode.size_bytes.is_multiple_of(block_bytes) {
            let what = "a directory's length is a multiple of the block length";
            return corrupt(at::SIZE, what, inode.size_bytes);
        }
        if is_dir && inode.size_bytes > self.device.size_bytes() {
            let what = "a directory is longer than the device";
            return corrupt(at::SIZE, what, inode.size_bytes);
        }
        if inode.is_fast_symlink(self.geometry.block_sectors())
            && inode.size_bytes >= 4 * POINTERS as u64
        {
            let what = "a symbolic link without a block has 59 bytes at most";
            return corrupt(at::SIZE, what, inode.size_bytes);
        }
        if inode.file_acl != 0 && !self.geometry.is_data_block(inode.file_acl) {
            let what = "the block of extended attributes is beyond the end";
            return corrupt(at::FILE_ACL, what, inode.file_acl.into());
        }
        // Another task may have read it during the wait, and changed it since.
        let mut state = self.state.borrow_mut();
        state.inodes.entry(ino).or_insert(inode);
        Ok(())
    }

    /// Puts an inode's fields into its block, which it returns (`__ext2_write_inode`).
    pub(super) async fn update_inode(&self, ino: Ino) -> Result<Buffer, FsError> {
        let (buffer, offset) = self.inode_block(ino).await?;
        let mut state = self.state.borrow_mut();
        let Some(inode) = state.inodes.get_mut(&ino) else {
            return Ok(buffer);
        };
        if inode.is_new {
            let end = offset + self.geometry.inode_bytes as usize;
            buffer.bytes_mut()[offset..end].fill(0);
            inode.is_new = false;
        }
        inode.write(&buffer, offset);
        inode.is_dirty = false;
        let is_large = inode.is(mode::REGULAR) && inode.size_bytes > i32::MAX as u64;
        drop(state);
        self.device.mark_dirty(&buffer, None);
        if is_large {
            self.mark_large_file();
        }
        Ok(buffer)
    }

    /// Sets the feature of file systems with a file of 2 GiB or more.
    fn mark_large_file(&self) {
        let at = self.superblock_byte(superblock::FEATURE_RO_COMPAT);
        let features = self.superblock.u32_at(at);
        if features & RO_COMPAT_LARGE_FILE == 0 {
            self.superblock.set_u32(at, features | RO_COMPAT_LARGE_FILE);
            self.device.mark_dirty(&self.superblock, None);
        }
    }
}
