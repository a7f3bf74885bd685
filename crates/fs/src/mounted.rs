//! A mounted file system of any kind.

use std::borrow::Cow;

use crate::buffer::Buffers;
use crate::error::FsError;
use crate::ext2::{self, Ext2, Ext2Options};
use crate::file_system::{
    Attributes, BlockMap, Caller, Change, DirEntry, DirectLocking, FileSystem, Ino, NewInode,
    Timestamp, Usage,
};
use crate::vfat::{Vfat, VfatOptions};
use crate::xfs::Xfs;

/// Mount options of all kinds of file systems.
#[derive(Clone, Debug, Default)]
pub struct MountOptions {
    /// Options of ext2.
    pub ext2: Ext2Options,
    /// Options of VFAT.
    pub vfat: VfatOptions,
}

/// A file system, of the kind that its device holds.
#[derive(Debug)]
pub enum Mounted<D> {
    /// ext2.
    Ext2(Ext2<D>),
    /// FAT12, FAT16 or FAT32.
    Vfat(Vfat<D>),
    /// XFS, which no device holds an image of.
    Xfs(Xfs<D>),
}

/// Makes the same call on whichever kind it is.
macro_rules! either {
    ($self:ident, $fs:ident => $call:expr) => {
        match $self {
            Mounted::Ext2($fs) => $call,
            Mounted::Vfat($fs) => $call,
            Mounted::Xfs($fs) => $call,
        }
    };
}

impl<D: Buffers> Mounted<D> {
    /// Opens the file system that a device holds, by its magic number.
    ///
    /// # Errors
    /// [`FsError::Corrupt`] where the device holds neither kind, or a broken one.
    pub async fn open(device: D, options: &MountOptions) -> Result<Mounted<D>, FsError> {
        if is_ext2(&device).await? {
            return Ok(Mounted::Ext2(Ext2::open(device, options.ext2).await?));
        }
        Ok(Mounted::Vfat(
            Vfat::open(device, options.vfat.clone()).await?,
        ))
    }

    /// Says on its device that it is mounted to be written.
    ///
    /// # Errors
    /// [`FsError::Device`].
    pub async fn mount(&self, now: Timestamp) -> Result<(), FsError> {
        match self {
            Mounted::Ext2(fs) => {
                fs.mount(now);
                Ok(())
            }
            Mounted::Vfat(fs) => fs.mount().await,
            Mounted::Xfs(_) => Ok(()),
        }
    }

    /// Says there that nothing is missing on the device, after [`FileSystem::sync`].
    ///
    /// # Errors
    /// [`FsError::Device`].
    pub async fn unmount(&self) -> Result<(), FsError> {
        match self {
            Mounted::Ext2(fs) => {
                fs.unmount();
                Ok(())
            }
            Mounted::Vfat(fs) => fs.unmount().await,
            Mounted::Xfs(_) => Ok(()),
        }
    }

    /// Its device.
    pub fn device(&self) -> &D {
        either!(self, fs => fs.device())
    }
}

async fn is_ext2<D: Buffers>(device: &D) -> Result<bool, FsError> {
    if device.size_bytes() < 2 * ext2::SUPERBLOCK_BYTE {
        return Ok(false);
    }
    device.set_block_bytes(1024).await?;
    let superblock = device.bread(1).await?;
    Ok(superblock.u16_at(ext2::MAGIC_BYTE) == ext2::MAGIC)
}

impl<D: Buffers> FileSystem for Mounted<D> {
    fn root(&self) -> Ino {
        either!(self, fs => fs.root())
    }

    fn block_bytes(&self) -> u32 {
        either!(self, fs => fs.block_bytes())
    }

    fn file_bytes_max(&self) -> u64 {
        either!(self, fs => fs.file_bytes_max())
    }

    fn has_holes(&self) -> bool {
        either!(self, fs => fs.has_holes())
    }

    fn uses_iomap(&self) -> bool {
        either!(self, fs => fs.uses_iomap())
    }

    fn can_try(&self) -> bool {
        either!(self, fs => fs.can_try())
    }

    fn direct_locking(&self) -> DirectLocking {
        either!(self, fs => fs.direct_locking())
    }

    fn flushes_truncated(&self) -> bool {
        either!(self, fs => fs.flushes_truncated())
    }

    fn name_key<'a>(&self, name: &'a [u8]) -> Cow<'a, [u8]> {
        either!(self, fs => fs.name_key(name))
    }

    async fn lookup(&self, dir: Ino, name: &[u8]) -> Result<Option<Ino>, FsError> {
        either!(self, fs => fs.lookup(dir, name).await)
    }

    async fn attributes(&self, ino: Ino) -> Result<Attributes, FsError> {
        either!(self, fs => fs.attributes(ino).await)
    }

    async fn read_dir(
        &self,
        dir: Ino,
        cursor: u64,
        entries: &mut Vec<DirEntry>,
    ) -> Result<Option<u64>, FsError> {
        either!(self, fs => fs.read_dir(dir, cursor, entries).await)
    }

    async fn create(
        &self,
        dir: Ino,
        name: &[u8],
        new: NewInode<'_>,
        caller: &Caller,
    ) -> Result<Ino, FsError> {
        either!(self, fs => fs.create(dir, name, new, caller).await)
    }

    async fn link(&self, ino: Ino, dir: Ino, name: &[u8], caller: &Caller) -> Result<(), FsError> {
        either!(self, fs => fs.link(ino, dir, name, caller).await)
    }

    async fn unlink(&self, dir: Ino, name: &[u8], caller: &Caller) -> Result<Ino, FsError> {
        either!(self, fs => fs.unlink(dir, name, caller).await)
    }

    async fn remove_dir(&self, dir: Ino, name: &[u8], caller: &Caller) -> Result<Ino, FsError> {
        either!(self, fs => fs.remove_dir(dir, name, caller).await)
    }

    async fn rename(
        &self,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        caller: &Caller,
    ) -> Result<Option<Ino>, FsError> {
        either!(self, fs => fs.rename(from, to, caller).await)
    }

    async fn read_link(&self, ino: Ino) -> Result<Vec<u8>, FsError> {
        either!(self, fs => fs.read_link(ino).await)
    }

    async fn map(
        &self,
        ino: Ino,
        block: u64,
        blocks: u64,
        create: Option<&Caller>,
    ) -> Result<BlockMap, FsError> {
        either!(self, fs => fs.map(ino, block, blocks, create).await)
    }

    fn set_size(&self, ino: Ino, size_bytes: u64, now: Timestamp) {
        either!(self, fs => fs.set_size(ino, size_bytes, now));
    }

    async fn truncate(&self, ino: Ino, size_bytes: u64, caller: &Caller) -> Result<(), FsError> {
        either!(self, fs => fs.truncate(ino, size_bytes, caller).await)
    }

    async fn change(&self, ino: Ino, change: &Change) -> Result<(), FsError> {
        either!(self, fs => fs.change(ino, change).await)
    }

    fn release(&self, ino: Ino) {
        either!(self, fs => fs.release(ino));
    }

    async fn evict(&self, ino: Ino, now: Timestamp) -> Result<(), FsError> {
        either!(self, fs => fs.evict(ino, now).await)
    }

    fn is_dirty(&self, ino: Ino) -> bool {
        either!(self, fs => fs.is_dirty(ino))
    }

    async fn write_inode(&self, ino: Ino, wait: bool) -> Result<(), FsError> {
        either!(self, fs => fs.write_inode(ino, wait).await)
    }

    async fn sync_buffers(&self, ino: Ino) -> Result<(), FsError> {
        either!(self, fs => fs.sync_buffers(ino).await)
    }

    async fn sync(&self, now: Timestamp) -> Result<(), FsError> {
        either!(self, fs => fs.sync(now).await)
    }

    fn usage(&self) -> Usage {
        either!(self, fs => fs.usage())
    }
}
