//! ext2, as Linux 6.12's `fs/ext2` reads and writes it: block groups with bitmaps and
//! inode tables, files mapped by block pointers, directories without an index.

mod balloc;
mod bitmap;
mod block_map;
mod dir;
mod group;
mod ialloc;
mod inode;
mod mkfs;
mod superblock;

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeMap;

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{RngCore, SeedableRng};

use crate::buffer::{Buffer, Buffers};
use crate::error::FsError;
use crate::file_system::{
    Attributes, BlockMap, Caller, Change, DirEntry, DirectLocking, FileSystem, Ino, NewInode,
    Timestamp, Usage, may_replace,
};

use balloc::Windows;
use group::GroupDescriptor;
use inode::{Inode, LINKS_MAX, POINTERS, ROOT};
pub use mkfs::Ext2Layout;
use superblock::{Geometry, STATE_VALID, at};
pub(crate) use superblock::{MAGIC, MAGIC_BYTE, SUPERBLOCK_BYTE};

/// Bits of `st_mode` (`S_IFMT`, `S_IFREG` ...).
mod mode {
    pub(super) const KIND: u16 = 0o170_000;
    pub(super) const REGULAR: u16 = 0o100_000;
    pub(super) const DIRECTORY: u16 = 0o040_000;
    pub(super) const SYMLINK: u16 = 0o120_000;
    pub(super) const SET_GROUP_ID: u16 = 0o002_000;
}

/// The mount options that change where ext2 allocates blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ext2Options {
    /// Regular files have reservation windows (`reservation`, on by default).
    pub reservation: bool,
    /// The seed of the random groups in which directories of the root are put.
    pub seed: u64,
}

impl Default for Ext2Options {
    fn default() -> Ext2Options {
        Ext2Options {
            reservation: true,
            seed: 1,
        }
    }
}

/// What the file system keeps in memory (`struct ext2_sb_info`).
#[derive(Debug)]
struct SbInfo {
    inodes: BTreeMap<Ino, Inode>,
    windows: Windows,
    /// By group, directories that were created there lately, less other inodes
    /// (`s_debts`).
    debts: Vec<u8>,
    free_blocks: u64,
    free_inodes: u64,
    dirs: u64,
    next_generation: u32,
    /// Draws the groups in which directories of the root are put.
    random: SplitMix64,
}

/// An ext2 file system on a device.
#[derive(Debug)]
pub struct Ext2<D> {
    device: D,
    options: Ext2Options,
    geometry: Geometry,
    superblock: Buffer,
    superblock_offset: usize,
    descriptors: Vec<Buffer>,
    /// By group, its block bitmap once it was read and checked.
    block_bitmaps: RefCell<Vec<Option<Buffer>>>,
    file_bytes_max: u64,
    state: RefCell<SbInfo>,
}

impl<D: Buffers> Ext2<D> {
    /// Reads superblock and descriptors.
    ///
    /// # Errors
    /// [`FsError::Corrupt`] where they cannot be those of an ext2.
    pub async fn open(device: D, options: Ext2Options) -> Result<Ext2<D>, FsError> {
        let (superblock, superblock_offset, geometry) = superblock::load(&device).await?;
        let descriptors = group::load(&device, &geometry).await?;
        let state = SbInfo {
            inodes: BTreeMap::new(),
            windows: Windows::new(),
            debts: vec![0; geometry.groups() as usize],
            free_blocks: 0,
            free_inodes: 0,
            dirs: 0,
            next_generation: 0,
            random: SplitMix64::seed_from_u64(options.seed),
        };
        let opened = Ext2 {
            device,
            options,
            geometry,
            superblock,
            superblock_offset,
            descriptors,
            block_bitmaps: RefCell::new(vec![None; geometry.groups() as usize]),
            file_bytes_max: block_map::file_bytes_max(&geometry),
            state: RefCell::new(state),
        };
        {
            let mut state = opened.state.borrow_mut();
            for group in 0..geometry.groups() {
                let descriptor = opened.descriptor(group);
                state.free_blocks += u64::from(descriptor.free_blocks());
                state.free_inodes += u64::from(descriptor.free_inodes());
                state.dirs += u64::from(descriptor.used_dirs());
            }
            state.next_generation = state.random.next_u64() as u32;
        }
        opened.iget(ROOT).await?;
        if !opened.with(ROOT, |root| root.is(mode::DIRECTORY)) {
            let what = "the root is no directory, but has the mode";
            let found = opened.with(ROOT, |root| root.mode);
            return Err(FsError::Corrupt {
                byte: opened.inode_byte(ROOT),
                what,
                found: found.into(),
            });
        }
        Ok(opened)
    }

    /// Its device.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// Marks the superblock as mounted for writing (`ext2_setup_super`).
    pub fn mount(&self, now: Timestamp) {
        let at = |field| self.superblock_byte(field);
        let superblock = &self.superblock;
        let state = superblock.u16_at(at(at::STATE));
        superblock.set_u16(at(at::STATE), state & !STATE_VALID);
        let mounts = superblock.u16_at(at(at::MOUNT_COUNT));
        superblock.set_u16(at(at::MOUNT_COUNT), mounts.wrapping_add(1));
        superblock.set_u32(at(at::MOUNT_TIME), now.seconds as u32);
        self.device.mark_dirty(superblock, None);
    }

    /// Marks the superblock as cleanly unmounted; [`FileSystem::sync`] comes before
    /// (`ext2_put_super`).
    pub fn unmount(&self) {
        let at = self.superblock_byte(at::STATE);
        let state = self.superblock.u16_at(at);
        self.superblock.set_u16(at, state | STATE_VALID);
        self.device.mark_dirty(&self.superblock, None);
    }

    fn descriptor(&self, group: u32) -> GroupDescriptor<'_> {
        GroupDescriptor::of(group, &self.descriptors, &self.geometry)
    }

    /// The byte of a superblock's field in the superblock's buffer.
    fn superblock_byte(&self, field: usize) -> usize {
        self.superblock_offset + field
    }

    /// Reads an inode that is in memory.
    fn with<R>(&self, ino: Ino, read: impl FnOnce(&Inode) -> R) -> R {
        read(&self.state.borrow().inodes[&ino])
    }

    /// Changes an inode that is in memory, which makes it dirty.
    fn modify<R>(&self, ino: Ino, change: impl FnOnce(&mut Inode) -> R) -> Option<R> {
        let mut state = self.state.borrow_mut();
        let inode = state.inodes.get_mut(&ino)?;
        inode.is_dirty = true;
        Some(change(inode))
    }

    /// The device's byte where an inode begins.
    fn inode_byte(&self, ino: Ino) -> u64 {
        let (group, index) = self.geometry.inode_place(ino);
        let table = u64::from(self.descriptor(group).inode_table());
        let inode_bytes = u64::from(self.geometry.inode_bytes);
        table * u64::from(self.geometry.block_bytes) + u64::from(index) * inode_bytes
    }

    /// The device's byte of an inode's pointer.
    fn pointer_byte(&self, ino: Ino, pointer: usize) -> u64 {
        self.inode_byte(ino) + (inode::at::BLOCK + 4 * pointer) as u64
    }

    /// Brings a directory into memory.
    async fn directory(&self, dir: Ino) -> Result<(), FsError> {
        self.iget(dir).await?;
        match self.with(dir, |inode| inode.is(mode::DIRECTORY)) {
            true => Ok(()),
            false => Err(FsError::NotDirectory),
        }
    }

    /// Finds a name in a directory and brings its inode into memory.
    async fn named(&self, dir: Ino, name: &[u8]) -> Result<dir::Found, FsError> {
        self.directory(dir).await?;
        let found = self.find(dir, name).await?.ok_or(FsError::NoEntry)?;
        match self.iget(found.ino()).await {
            Ok(()) => Ok(found),
            Err(FsError::NoEntry) => Err(FsError::Corrupt {
                byte: self.inode_byte(found.ino()),
                what: "a directory names an inode that is not in use",
                found: found.ino().0,
            }),
            Err(error) => Err(error),
        }
    }

    fn drop_link(&self, ino: Ino, caller: &Caller) {
        self.modify(ino, |inode| {
            inode.links = inode.links.saturating_sub(1);
            inode.ctime = caller.now.seconds;
        });
    }

    /// Fills a new inode and adds its name.
    async fn fill_and_name(
        &self,
        (dir, name): (Ino, &[u8]),
        ino: Ino,
        new: NewInode<'_>,
        caller: &Caller,
    ) -> Result<(), FsError> {
        match new {
            NewInode::Regular(_) => {}
            NewInode::Directory(_) => {
                self.modify(ino, |inode| inode.links = 2);
                self.make_empty(ino, dir, caller).await?;
            }
            NewInode::Symlink(path) if path.len() < 4 * POINTERS => {
                self.modify(ino, |inode| inode.set_pointer_bytes(path));
            }
            NewInode::Symlink(path) => {
                let map = self.get_blocks(ino, 0, 1, Some(caller)).await?;
                let buffer = self.device.zeroed(map.block.ok_or(FsError::NoSpace)?)?;
                buffer.bytes_mut()[..path.len()].copy_from_slice(path);
                self.device.mark_dirty(&buffer, Some(ino));
            }
        }
        if let NewInode::Symlink(path) = new {
            self.modify(ino, |inode| inode.size_bytes = path.len() as u64);
        }
        self.add_link(dir, name, ino, caller).await
    }

    /// Drops an inode's reference to a block of extended attributes, which is freed with the
    /// last one (`ext2_xattr_delete_inode`).
    async fn free_attributes(&self, block: u32) -> Result<(), FsError> {
        const MAGIC: u32 = 0xea02_0000;
        const REFERENCES: usize = 4;
        if block == 0 {
            return Ok(());
        }
        let buffer = self.device.bread(block.into()).await?;
        if buffer.u32_at(0) != MAGIC {
            let what = "a block of extended attributes begins with 0xea020000";
            return Err(buffer.corrupt(0, what, buffer.u32_at(0)));
        }
        let references = buffer.u32_at(REFERENCES);
        if references <= 1 {
            return self.free_blocks(block, 1).await;
        }
        buffer.set_u32(REFERENCES, references - 1);
        self.device.mark_dirty(&buffer, None);
        Ok(())
    }

    /// Deletes an inode without links (`ext2_evict_inode`). It is written before its blocks
    /// are freed, so that its pointers can still be read from the device.
    async fn delete_inode(&self, ino: Ino, now: Timestamp) -> Result<(), FsError> {
        self.modify(ino, |inode| {
            inode.dtime = now.seconds.clamp(1, u32::MAX.into()) as u32;
        });
        self.update_inode(ino).await?;
        let block_sectors = self.geometry.block_sectors();
        let (has_blocks, file_acl, is_dir) = self.with(ino, |inode| {
            let has_blocks = inode.has_blocks(block_sectors) && inode.sectors > 0;
            (has_blocks, inode.file_acl, inode.is(mode::DIRECTORY))
        });
        self.modify(ino, |inode| inode.size_bytes = 0);
        if has_blocks {
            self.truncate_blocks(ino, 0).await?;
        }
        self.free_attributes(file_acl).await?;
        self.free_inode(ino, is_dir).await
    }
}

impl<D: Buffers> FileSystem for Ext2<D> {
    fn root(&self) -> Ino {
        ROOT
    }

    fn block_bytes(&self) -> u32 {
        self.geometry.block_bytes
    }

    fn file_bytes_max(&self) -> u64 {
        self.file_bytes_max
    }

    fn has_holes(&self) -> bool {
        true
    }

    fn direct_locking(&self) -> DirectLocking {
        DirectLocking::ExclusiveWrites
    }

    fn name_key<'a>(&self, name: &'a [u8]) -> Cow<'a, [u8]> {
        Cow::Borrowed(name)
    }

    async fn lookup(&self, dir: Ino, name: &[u8]) -> Result<Option<Ino>, FsError> {
        if name.len() > dir::NAME_BYTES_MAX {
            return Err(FsError::NameTooLong);
        }
        match self.named(dir, name).await {
            Ok(found) => Ok(Some(found.ino())),
            Err(FsError::NoEntry) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn attributes(&self, ino: Ino) -> Result<Attributes, FsError> {
        self.iget(ino).await?;
        Ok(self.with(ino, |inode| inode.attributes(ino)))
    }

    async fn read_dir(
        &self,
        dir: Ino,
        cursor: u64,
        entries: &mut Vec<DirEntry>,
    ) -> Result<Option<u64>, FsError> {
        self.directory(dir).await?;
        self.list_block(dir, cursor, entries).await
    }

    async fn create(
        &self,
        dir: Ino,
        name: &[u8],
        new: NewInode<'_>,
        caller: &Caller,
    ) -> Result<Ino, FsError> {
        Self::check_name(name)?;
        self.directory(dir).await?;
        let (new_mode, is_dir) = match new {
            NewInode::Regular(permissions) => (mode::REGULAR | permissions & 0o7777, false),
            NewInode::Directory(permissions) => (mode::DIRECTORY | permissions & 0o7777, true),
            NewInode::Symlink(path) => {
                if path.len() >= self.geometry.block_bytes as usize {
                    return Err(FsError::NameTooLong);
                }
                (mode::SYMLINK | 0o777, false)
            }
        };
        if is_dir && self.with(dir, |inode| inode.links >= LINKS_MAX) {
            return Err(FsError::TooManyLinks);
        }
        let ino = self.new_inode(dir, new_mode, caller).await?;
        if let Err(error) = self.fill_and_name((dir, name), ino, new, caller).await {
            self.modify(ino, |inode| inode.links = 0);
            self.evict(ino, caller.now).await?;
            return Err(error);
        }
        if is_dir {
            self.modify(dir, |inode| inode.links += 1);
        }
        Ok(ino)
    }

    async fn link(&self, ino: Ino, dir: Ino, name: &[u8], caller: &Caller) -> Result<(), FsError> {
        Self::check_name(name)?;
        self.directory(dir).await?;
        self.iget(ino).await?;
        let (is_dir, links) = self.with(ino, |inode| (inode.is(mode::DIRECTORY), inode.links));
        if is_dir {
            return Err(FsError::NotSupported);
        }
        if links >= LINKS_MAX {
            return Err(FsError::TooManyLinks);
        }
        self.add_link(dir, name, ino, caller).await?;
        self.modify(ino, |inode| {
            inode.links += 1;
            inode.ctime = caller.now.seconds;
        });
        Ok(())
    }

    async fn unlink(&self, dir: Ino, name: &[u8], caller: &Caller) -> Result<Ino, FsError> {
        let found = self.named(dir, name).await?;
        let ino = found.ino();
        if self.with(ino, |inode| inode.is(mode::DIRECTORY)) {
            return Err(FsError::IsDirectory);
        }
        self.delete_entry(dir, &found, caller)?;
        self.drop_link(ino, caller);
        Ok(ino)
    }

    async fn remove_dir(&self, dir: Ino, name: &[u8], caller: &Caller) -> Result<Ino, FsError> {
        if name == b"." || name == b".." {
            return Err(FsError::BadCall);
        }
        let found = self.named(dir, name).await?;
        let ino = found.ino();
        if !self.is_empty_dir(ino).await? {
            return Err(FsError::NotEmpty);
        }
        self.delete_entry(dir, &found, caller)?;
        self.modify(ino, |inode| {
            inode.links = 0;
            inode.size_bytes = 0;
            inode.ctime = caller.now.seconds;
        });
        self.drop_link(dir, caller);
        Ok(ino)
    }

    async fn rename(
        &self,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        caller: &Caller,
    ) -> Result<Option<Ino>, FsError> {
        let ((from_dir, from_name), (to_dir, to_name)) = (from, to);
        Self::check_name(to_name)?;
        let old = self.named(from_dir, from_name).await?;
        let ino = old.ino();
        let is_dir = self.with(ino, |inode| inode.is(mode::DIRECTORY));
        let moves_dir = is_dir && from_dir != to_dir;
        let parent = match moves_dir {
            true => Some(self.find_parent(ino).await?),
            false => None,
        };
        let replaced = match self.named(to_dir, to_name).await {
            Ok(new) if new.ino() == ino => return Ok(None),
            Ok(new) => {
                let target = new.ino();
                let target_is_dir = self.with(target, |inode| inode.is(mode::DIRECTORY));
                may_replace(is_dir, target_is_dir)?;
                if is_dir && !self.is_empty_dir(target).await? {
                    return Err(FsError::NotEmpty);
                }
                self.set_link(to_dir, &new, ino, caller);
                self.drop_link(target, caller);
                if target_is_dir {
                    self.drop_link(target, caller);
                    self.drop_link(to_dir, caller);
                }
                Some(target)
            }
            Err(FsError::NoEntry) => {
                self.add_link(to_dir, to_name, ino, caller).await?;
                None
            }
            Err(error) => return Err(error),
        };
        self.modify(ino, |inode| inode.ctime = caller.now.seconds);
        self.delete_entry(from_dir, &old, caller)?;
        if let Some(parent) = parent {
            self.set_link(ino, &parent, to_dir, caller);
            self.modify(to_dir, |inode| inode.links += 1);
            self.drop_link(from_dir, caller);
        }
        Ok(replaced)
    }

    async fn read_link(&self, ino: Ino) -> Result<Vec<u8>, FsError> {
        self.iget(ino).await?;
        let block_sectors = self.geometry.block_sectors();
        let (is_link, is_fast, bytes, path) = self.with(ino, |inode| {
            let is_fast = inode.is_fast_symlink(block_sectors);
            let is_link = inode.is(mode::SYMLINK);
            (is_link, is_fast, inode.size_bytes, inode.pointer_bytes())
        });
        if !is_link {
            return Err(FsError::BadCall);
        }
        if is_fast {
            return Ok(path[..bytes as usize].to_vec());
        }
        if bytes > u64::from(self.geometry.block_bytes) {
            return Err(FsError::Corrupt {
                byte: self.inode_byte(ino),
                what: "a symbolic link is longer than a block",
                found: bytes,
            });
        }
        let map = self.get_blocks(ino, 0, 1, None).await?;
        let at = map.block.ok_or(FsError::Corrupt {
            byte: self.pointer_byte(ino, 0),
            what: "a symbolic link has no block",
            found: 0,
        })?;
        let buffer = self.device.bread(at).await?;
        let path = buffer.bytes()[..bytes as usize].to_vec();
        Ok(path)
    }

    async fn map(
        &self,
        ino: Ino,
        block: u64,
        blocks: u64,
        create: Option<&Caller>,
    ) -> Result<BlockMap, FsError> {
        self.iget(ino).await?;
        let block_sectors = self.geometry.block_sectors();
        if !self.with(ino, |inode| inode.has_blocks(block_sectors)) {
            return Err(FsError::BadCall);
        }
        if block >= self.file_bytes_max / u64::from(self.geometry.block_bytes) {
            return Err(FsError::TooBig);
        }
        self.get_blocks(ino, block, blocks.max(1), create).await
    }

    fn set_size(&self, ino: Ino, size_bytes: u64, now: Timestamp) {
        self.modify(ino, |inode| {
            inode.size_bytes = size_bytes;
            inode.mtime = now.seconds;
            inode.ctime = now.seconds;
        });
    }

    async fn truncate(&self, ino: Ino, size_bytes: u64, caller: &Caller) -> Result<(), FsError> {
        self.iget(ino).await?;
        match self.with(ino, |inode| inode.mode & mode::KIND) {
            mode::REGULAR => {}
            mode::DIRECTORY => return Err(FsError::IsDirectory),
            _ => return Err(FsError::BadCall),
        }
        if size_bytes > self.file_bytes_max {
            return Err(FsError::TooBig);
        }
        self.modify(ino, |inode| {
            inode.size_bytes = size_bytes;
            inode.touch(caller);
        });
        let blocks = size_bytes.div_ceil(self.geometry.block_bytes.into());
        self.truncate_blocks(ino, blocks).await
    }

    async fn change(&self, ino: Ino, change: &Change) -> Result<(), FsError> {
        self.iget(ino).await?;
        self.modify(ino, |inode| {
            if let Some(permissions) = change.permissions {
                inode.mode = inode.mode & mode::KIND | permissions & 0o7777;
            }
            if let Some((uid, gid)) = change.owner {
                inode.uid = uid;
                inode.gid = gid;
            }
            if let Some(accessed) = change.accessed {
                inode.atime = accessed.seconds;
            }
            if let Some(modified) = change.modified {
                inode.mtime = modified.seconds;
            }
        });
        Ok(())
    }

    fn release(&self, ino: Ino) {
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        if let Some(inode) = state.inodes.get_mut(&ino) {
            inode.reservation.discard(&mut state.windows);
        }
    }

    async fn evict(&self, ino: Ino, now: Timestamp) -> Result<(), FsError> {
        if !self.state.borrow().inodes.contains_key(&ino) {
            return Ok(());
        }
        let done = if self.with(ino, |inode| inode.links == 0) {
            self.delete_inode(ino, now).await
        } else if self.is_dirty(ino) {
            self.update_inode(ino).await.map(|_| ())
        } else {
            Ok(())
        };
        self.release(ino);
        self.state.borrow_mut().inodes.remove(&ino);
        done
    }

    fn is_dirty(&self, ino: Ino) -> bool {
        let state = self.state.borrow();
        state.inodes.get(&ino).is_some_and(|inode| inode.is_dirty)
    }

    async fn write_inode(&self, ino: Ino, wait: bool) -> Result<(), FsError> {
        let buffer = self.update_inode(ino).await?;
        match wait {
            true => self.device.sync_buffer(&buffer).await,
            false => Ok(()),
        }
    }

    async fn sync_buffers(&self, ino: Ino) -> Result<(), FsError> {
        self.device.sync_of(ino).await
    }

    async fn sync(&self, now: Timestamp) -> Result<(), FsError> {
        let dirty: Vec<Ino> = {
            let state = self.state.borrow();
            let dirty = state.inodes.iter().filter(|(_, inode)| inode.is_dirty);
            dirty.map(|(&ino, _)| ino).collect()
        };
        for ino in dirty {
            self.update_inode(ino).await?;
        }
        self.update_superblock(now.seconds);
        Ok(())
    }

    fn usage(&self) -> Usage {
        let geometry = &self.geometry;
        let groups = geometry.groups();
        let with_superblock = (0..groups).filter(|&group| geometry.has_superblock(group));
        let copies = with_superblock.count() as u64 * u64::from(1 + geometry.descriptor_blocks());
        let own = u64::from(groups) * u64::from(2 + geometry.inode_table_blocks());
        let overhead = u64::from(geometry.first_data_block) + copies + own;
        let reserved = self.superblock_byte(at::RESERVED_BLOCKS_COUNT);
        let reserved = u64::from(self.superblock.u32_at(reserved));
        let state = self.state.borrow();
        Usage {
            kind: "ext2",
            block_bytes: geometry.block_bytes,
            blocks: u64::from(geometry.blocks).saturating_sub(overhead),
            blocks_free: state.free_blocks,
            blocks_available: state.free_blocks.saturating_sub(reserved),
            inodes: geometry.inodes.into(),
            inodes_free: state.free_inodes,
        }
    }
}
