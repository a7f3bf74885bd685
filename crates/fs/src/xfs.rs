//! XFS as far as the page cache depends on it: files in extents, large folios, and write-back
//! of a truncated file when it is closed (`fs/xfs`, `fs/iomap`).
//!
//! Names, inodes and extents exist only in memory. XFS's metadata and its log cause no I/O,
//! and images are not supported.

use std::borrow::Cow;
use std::cell::{RefCell, RefMut};
use std::collections::BTreeMap;

use crate::buffer::Buffers;
use crate::error::FsError;
use crate::file_system::{
    Attributes, BlockMap, Caller, Change, DirEntry, DirectLocking, FileKind, FileSystem, Ino,
    NewInode, Timestamp, Usage, may_replace,
};

/// The block size that `mkfs.xfs` chooses.
const BLOCK_BYTES: u64 = 4096;

/// The longest name in bytes.
const NAME_BYTES_MAX: usize = 255;

/// The inode number of the root (as `mkfs.xfs` chooses on a large device).
const ROOT: Ino = Ino(128);

/// The largest and the smallest speculative preallocation of a growing file, in blocks: 8 GiB
/// and 64 KiB (`xfs_iomap_prealloc_size`).
const PREALLOCATION_MAX: u64 = (8 << 30) / BLOCK_BYTES;
const PREALLOCATION_MIN: u64 = (64 << 10) / BLOCK_BYTES;

/// An inode with its contents.
#[derive(Debug)]
struct Inode {
    attributes: Attributes,
    is_dirty: bool,
    contents: Contents,
}

#[derive(Debug)]
enum Contents {
    File(Extents),
    Directory {
        names: BTreeMap<Vec<u8>, Ino>,
        parent: Ino,
    },
    Symlink(Vec<u8>),
}

/// Adjacent blocks on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Extent {
    block: u64,
    blocks: u64,
}

/// A file's extents by their first block in the file.
#[derive(Debug, Default)]
struct Extents {
    extents: BTreeMap<u64, Extent>,
    /// The blocks of all extents.
    blocks: u64,
    /// The speculative preallocation after the last block, so that the file grows without
    /// fragmentation.
    preallocated: Option<Extent>,
}

impl Extents {
    /// Returns the block after the last one of the file.
    fn end(&self) -> u64 {
        let last = self.extents.last_key_value();
        last.map_or(0, |(first, extent)| first + extent.blocks)
    }

    /// Returns the rest of the extent that contains `block`, from `block` on.
    fn find(&self, block: u64) -> Option<Extent> {
        let (first, extent) = self.extents.range(..=block).next_back()?;
        let skipped = block - first;
        (skipped < extent.blocks).then(|| Extent {
            block: extent.block + skipped,
            blocks: extent.blocks - skipped,
        })
    }

    /// Returns the length of the hole at `block`, in blocks.
    fn hole(&self, block: u64) -> u64 {
        let next = self.extents.range(block..).next();
        next.map_or(u64::MAX - block, |(first, _)| first - block)
    }

    /// Adds an extent, joined with the one before it if they are adjacent on the device.
    fn insert(&mut self, at: u64, new: Extent) {
        self.blocks += new.blocks;
        if let Some((first, before)) = self.extents.range_mut(..at).next_back()
            && first + before.blocks == at
            && before.block + before.blocks == new.block
        {
            before.blocks += new.blocks;
            return;
        }
        self.extents.insert(at, new);
    }

    /// Removes and returns all blocks from `block` on, including the preallocation.
    fn cut(&mut self, block: u64) -> Vec<Extent> {
        let mut behind: Vec<Extent> = self.extents.split_off(&block).into_values().collect();
        if let Some((first, extent)) = self.extents.range_mut(..block).next_back()
            && first + extent.blocks > block
        {
            let kept = block - first;
            behind.push(Extent {
                block: extent.block + kept,
                blocks: extent.blocks - kept,
            });
            extent.blocks = kept;
        }
        self.blocks -= behind.iter().map(|extent| extent.blocks).sum::<u64>();
        behind.extend(self.preallocated.take());
        behind
    }
}

/// The free extents of the device by their first block.
#[derive(Debug)]
struct FreeSpace {
    extents: BTreeMap<u64, u64>,
}

impl FreeSpace {
    /// Allocates up to `wanted` adjacent blocks, from the first free extent that is long
    /// enough, or else from the longest.
    fn take(&mut self, wanted: u64) -> Option<Extent> {
        let fits = self.extents.iter().find(|(_, blocks)| **blocks >= wanted);
        let found = fits.or_else(|| self.extents.iter().max_by_key(|(_, blocks)| **blocks));
        let (&block, &blocks) = found?;
        self.extents.remove(&block);
        let taken = wanted.min(blocks);
        if taken < blocks {
            self.extents.insert(block + taken, blocks - taken);
        }
        Some(Extent {
            block,
            blocks: taken,
        })
    }

    /// Frees blocks.
    fn give(&mut self, extent: Extent) {
        let Extent { mut block, blocks } = extent;
        let mut end = block + blocks;
        if let Some(behind) = self.extents.remove(&end) {
            end += behind;
        }
        if let Some((&before, &blocks)) = self.extents.range(..block).next_back()
            && before + blocks == block
        {
            block = before;
        }
        self.extents.insert(block, end - block);
    }

    fn blocks(&self) -> u64 {
        self.extents.values().sum()
    }
}

#[derive(Debug)]
struct State {
    inodes: BTreeMap<Ino, Inode>,
    next_ino: u64,
    free: FreeSpace,
    blocks: u64,
}

/// An XFS whose metadata is in memory only.
#[derive(Debug)]
pub struct Xfs<D> {
    device: D,
    state: RefCell<State>,
}

impl<D: Buffers> Xfs<D> {
    /// Makes an empty file system on the whole device.
    pub fn new(device: D, now: Timestamp) -> Xfs<D> {
        let blocks = device.size_bytes() / BLOCK_BYTES;
        let caller = Caller {
            now,
            ..Caller::default()
        };
        let root = Inode::new(ROOT, NewInode::Directory(0o755), ROOT, &caller);
        let state = State {
            inodes: BTreeMap::from([(ROOT, root)]),
            next_ino: ROOT.0 + 1,
            free: FreeSpace {
                extents: BTreeMap::from([(0, blocks)]),
            },
            blocks,
        };
        Xfs {
            device,
            state: RefCell::new(state),
        }
    }
}

impl<D> Xfs<D> {
    /// Returns its device.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// Changes an inode in memory.
    fn with<T>(&self, ino: Ino, change: impl FnOnce(&mut Inode) -> T) -> Result<T, FsError> {
        let mut state = self.state.borrow_mut();
        state.inode(ino).map(change)
    }

    /// Returns the names of a directory.
    fn names(&self, dir: Ino) -> Result<RefMut<'_, BTreeMap<Vec<u8>, Ino>>, FsError> {
        RefMut::filter_map(self.state.borrow_mut(), |state| {
            match &mut state.inodes.get_mut(&dir)?.contents {
                Contents::Directory { names, .. } => Some(names),
                _ => None,
            }
        })
        .map_err(|_| FsError::NotDirectory)
    }

    /// Removes a name and a link of its inode.
    fn remove(&self, dir: Ino, name: &[u8], now: Timestamp) -> Result<Ino, FsError> {
        let ino = self.names(dir)?.remove(name).ok_or(FsError::NoEntry)?;
        let was_dir = self.with(ino, |inode| {
            inode.changed(now);
            let is_dir = inode.attributes.kind == FileKind::Directory;
            // A directory has two links: its name and `.`.
            inode.attributes.links -= if is_dir { 2 } else { 1 };
            is_dir
        })?;
        self.with(dir, |dir| {
            dir.attributes.links -= u32::from(was_dir);
            dir.modified(now);
        })?;
        Ok(ino)
    }

    /// Adds a name; the inode's link count already includes it.
    fn add(&self, dir: Ino, name: &[u8], ino: Ino, now: Timestamp) -> Result<(), FsError> {
        match name {
            [] | b"." | b".." => return Err(FsError::BadName),
            long if long.len() > NAME_BYTES_MAX => return Err(FsError::NameTooLong),
            _ => {}
        }
        if self.names(dir)?.contains_key(name) {
            return Err(FsError::Exists);
        }
        self.names(dir)?.insert(name.to_vec(), ino);
        let is_dir = self.with(ino, |inode| {
            if let Contents::Directory { parent, .. } = &mut inode.contents {
                *parent = dir;
            }
            inode.attributes.kind == FileKind::Directory
        })?;
        self.with(dir, |dir| {
            dir.attributes.links += u32::from(is_dir);
            dir.modified(now);
        })
    }

    fn is_dir(&self, ino: Ino) -> Result<bool, FsError> {
        self.with(ino, |inode| inode.attributes.kind == FileKind::Directory)
    }

    fn is_empty(&self, dir: Ino) -> Result<bool, FsError> {
        Ok(self.names(dir)?.is_empty())
    }
}

impl Inode {
    fn new(ino: Ino, new: NewInode<'_>, parent: Ino, caller: &Caller) -> Inode {
        let (kind, format, permissions, contents) = match new {
            NewInode::Regular(permissions) => {
                let contents = Contents::File(Extents::default());
                (FileKind::Regular, 0o100_000, permissions, contents)
            }
            NewInode::Directory(permissions) => {
                let names = BTreeMap::new();
                let contents = Contents::Directory { names, parent };
                (FileKind::Directory, 0o040_000, permissions, contents)
            }
            NewInode::Symlink(target) => {
                let contents = Contents::Symlink(target.to_vec());
                (FileKind::Symlink, 0o120_000, 0o777, contents)
            }
        };
        let size_bytes = match &contents {
            Contents::Symlink(target) => target.len() as u64,
            _ => 0,
        };
        Inode {
            attributes: Attributes {
                ino,
                kind,
                mode: format | permissions,
                links: if kind == FileKind::Directory { 2 } else { 1 },
                uid: caller.uid,
                gid: caller.gid,
                size_bytes,
                sectors: 0,
                accessed: caller.now,
                modified: caller.now,
                changed: caller.now,
            },
            is_dirty: true,
            contents,
        }
    }

    fn changed(&mut self, now: Timestamp) {
        self.attributes.changed = now;
        self.is_dirty = true;
    }

    fn modified(&mut self, now: Timestamp) {
        self.attributes.modified = now;
        self.changed(now);
    }
}

impl State {
    fn inode(&mut self, ino: Ino) -> Result<&mut Inode, FsError> {
        self.inodes.get_mut(&ino).ok_or(FsError::NoEntry)
    }

    fn extents(&mut self, ino: Ino) -> Result<&mut Extents, FsError> {
        match &mut self.inode(ino)?.contents {
            Contents::File(extents) => Ok(extents),
            _ => Err(FsError::BadCall),
        }
    }

    /// Allocates up to `wanted` blocks for the hole at `block` of a file. A growing file also
    /// preallocates as many blocks as it has, within limits.
    fn allocate(&mut self, ino: Ino, block: u64, wanted: u64) -> Result<Extent, FsError> {
        let extents = self.extents(ino)?;
        let is_growing = block == extents.end();
        let preallocated = extents.preallocated.take();
        let ahead = match is_growing {
            true => block.clamp(PREALLOCATION_MIN, PREALLOCATION_MAX),
            false => 0,
        };
        let mut extent = match preallocated {
            Some(extent) if is_growing => extent,
            other => {
                other.into_iter().for_each(|extent| self.free.give(extent));
                self.take_free(wanted.saturating_add(ahead))?
            }
        };
        let behind = extent.blocks.saturating_sub(wanted);
        extent.blocks -= behind;
        let rest = Extent {
            block: extent.block + extent.blocks,
            blocks: behind,
        };
        let rest = (behind > 0).then_some(rest);
        let extents = self.extents(ino)?;
        extents.insert(block, extent);
        extents.preallocated = rest;
        let sectors = extents.blocks * (BLOCK_BYTES / 512);
        self.inode(ino)?.attributes.sectors = sectors;
        Ok(extent)
    }

    /// Allocates blocks; files' preallocations are freed first if there is no other space.
    fn take_free(&mut self, wanted: u64) -> Result<Extent, FsError> {
        if self.free.extents.is_empty() {
            let inodes = self.inodes.values_mut();
            let preallocated = inodes.filter_map(|inode| match &mut inode.contents {
                Contents::File(extents) => extents.preallocated.take(),
                _ => None,
            });
            preallocated.for_each(|extent| self.free.give(extent));
        }
        self.free.take(wanted).ok_or(FsError::NoSpace)
    }

    fn cut(&mut self, ino: Ino, block: u64) -> Result<(), FsError> {
        let extents = self.extents(ino)?;
        let behind = extents.cut(block);
        let sectors = extents.blocks * (BLOCK_BYTES / 512);
        behind.into_iter().for_each(|extent| self.free.give(extent));
        self.inode(ino)?.attributes.sectors = sectors;
        Ok(())
    }
}

impl<D: Buffers> FileSystem for Xfs<D> {
    fn root(&self) -> Ino {
        ROOT
    }

    fn block_bytes(&self) -> u32 {
        BLOCK_BYTES as u32
    }

    fn file_bytes_max(&self) -> u64 {
        i64::MAX as u64
    }

    fn has_holes(&self) -> bool {
        true
    }

    fn uses_iomap(&self) -> bool {
        true
    }

    fn can_try(&self) -> bool {
        true
    }

    fn direct_locking(&self) -> DirectLocking {
        DirectLocking::Shared
    }

    fn flushes_truncated(&self) -> bool {
        true
    }

    fn name_key<'a>(&self, name: &'a [u8]) -> Cow<'a, [u8]> {
        Cow::Borrowed(name)
    }

    async fn lookup(&self, dir: Ino, name: &[u8]) -> Result<Option<Ino>, FsError> {
        if name.len() > NAME_BYTES_MAX {
            return Err(FsError::NameTooLong);
        }
        Ok(self.names(dir)?.get(name).copied())
    }

    async fn attributes(&self, ino: Ino) -> Result<Attributes, FsError> {
        self.with(ino, |inode| inode.attributes)
    }

    async fn read_dir(
        &self,
        dir: Ino,
        cursor: u64,
        entries: &mut Vec<DirEntry>,
    ) -> Result<Option<u64>, FsError> {
        if cursor > 0 {
            return Ok(None);
        }
        let names: Vec<(Vec<u8>, Ino)> = self.names(dir)?.clone().into_iter().collect();
        let parent = self.with(dir, |dir| match dir.contents {
            Contents::Directory { parent, .. } => parent,
            _ => ROOT,
        })?;
        let own = [(b".".to_vec(), dir), (b"..".to_vec(), parent)];
        for (name, ino) in own.into_iter().chain(names) {
            let kind = self.with(ino, |inode| inode.attributes.kind)?;
            entries.push(DirEntry {
                name,
                ino,
                kind: Some(kind),
            });
        }
        Ok(None)
    }

    async fn create(
        &self,
        dir: Ino,
        name: &[u8],
        new: NewInode<'_>,
        caller: &Caller,
    ) -> Result<Ino, FsError> {
        let ino = {
            let mut state = self.state.borrow_mut();
            let ino = Ino(state.next_ino);
            state.next_ino += 1;
            state.inodes.insert(ino, Inode::new(ino, new, dir, caller));
            ino
        };
        let added = self.add(dir, name, ino, caller.now);
        if added.is_err() {
            self.state.borrow_mut().inodes.remove(&ino);
        }
        added.map(|()| ino)
    }

    async fn link(&self, ino: Ino, dir: Ino, name: &[u8], caller: &Caller) -> Result<(), FsError> {
        if self.is_dir(ino)? {
            return Err(FsError::NotSupported);
        }
        self.add(dir, name, ino, caller.now)?;
        self.with(ino, |inode| {
            inode.attributes.links += 1;
            inode.changed(caller.now);
        })
    }

    async fn unlink(&self, dir: Ino, name: &[u8], caller: &Caller) -> Result<Ino, FsError> {
        let ino = self.lookup(dir, name).await?.ok_or(FsError::NoEntry)?;
        if self.is_dir(ino)? {
            return Err(FsError::IsDirectory);
        }
        self.remove(dir, name, caller.now)
    }

    async fn remove_dir(&self, dir: Ino, name: &[u8], caller: &Caller) -> Result<Ino, FsError> {
        let ino = self.lookup(dir, name).await?.ok_or(FsError::NoEntry)?;
        if !self.is_dir(ino)? {
            return Err(FsError::NotDirectory);
        }
        if !self.is_empty(ino)? {
            return Err(FsError::NotEmpty);
        }
        self.remove(dir, name, caller.now)
    }

    async fn rename(
        &self,
        (from, name): (Ino, &[u8]),
        (to, new_name): (Ino, &[u8]),
        caller: &Caller,
    ) -> Result<Option<Ino>, FsError> {
        let ino = self.lookup(from, name).await?.ok_or(FsError::NoEntry)?;
        let replaced = self.lookup(to, new_name).await?;
        if replaced == Some(ino) {
            return Ok(None);
        }
        let is_dir = self.is_dir(ino)?;
        if let Some(replaced) = replaced {
            let replaced_is_dir = self.is_dir(replaced)?;
            may_replace(is_dir, replaced_is_dir)?;
            if replaced_is_dir && !self.is_empty(replaced)? {
                return Err(FsError::NotEmpty);
            }
            self.remove(to, new_name, caller.now)?;
        }
        self.add(to, new_name, ino, caller.now)?;
        self.names(from)?.remove(name);
        self.with(from, |from| {
            from.attributes.links -= u32::from(is_dir);
            from.modified(caller.now);
        })?;
        self.with(ino, |inode| inode.changed(caller.now))?;
        Ok(replaced)
    }

    async fn read_link(&self, ino: Ino) -> Result<Vec<u8>, FsError> {
        self.with(ino, |inode| match &inode.contents {
            Contents::Symlink(target) => Ok(target.clone()),
            _ => Err(FsError::BadCall),
        })?
    }

    async fn map(
        &self,
        ino: Ino,
        block: u64,
        blocks: u64,
        create: Option<&Caller>,
    ) -> Result<BlockMap, FsError> {
        let mut state = self.state.borrow_mut();
        let extents = state.extents(ino)?;
        let (found, hole) = (extents.find(block), extents.hole(block));
        let (extent, is_new) = match (found, create) {
            (Some(extent), _) => (Some(extent), false),
            (None, None) => (None, false),
            (None, Some(_)) => (Some(state.allocate(ino, block, blocks.min(hole))?), true),
        };
        Ok(BlockMap {
            block: extent.map(|extent| extent.block),
            blocks: extent.map_or(hole, |extent| extent.blocks).min(blocks),
            is_new,
            boundary: false,
        })
    }

    fn set_size(&self, ino: Ino, size_bytes: u64, now: Timestamp) {
        // The inode may have been deleted in the meantime.
        let _ = self.with(ino, |inode| {
            inode.attributes.size_bytes = size_bytes;
            inode.modified(now);
        });
    }

    async fn truncate(&self, ino: Ino, size_bytes: u64, caller: &Caller) -> Result<(), FsError> {
        if size_bytes > self.file_bytes_max() {
            return Err(FsError::TooBig);
        }
        let first = size_bytes.div_ceil(BLOCK_BYTES);
        self.state.borrow_mut().cut(ino, first)?;
        self.set_size(ino, size_bytes, caller.now);
        Ok(())
    }

    async fn change(&self, ino: Ino, change: &Change) -> Result<(), FsError> {
        self.with(ino, |inode| {
            let of = &mut inode.attributes;
            if let Some(permissions) = change.permissions {
                of.mode = of.mode & !0o7777 | permissions & 0o7777;
            }
            (of.uid, of.gid) = change.owner.unwrap_or((of.uid, of.gid));
            of.accessed = change.accessed.unwrap_or(of.accessed);
            of.modified = change.modified.unwrap_or(of.modified);
            inode.is_dirty = true;
        })
    }

    fn release(&self, ino: Ino) {
        let mut state = self.state.borrow_mut();
        let preallocated = state
            .extents(ino)
            .map(|extents| extents.preallocated.take());
        if let Ok(Some(extent)) = preallocated {
            state.free.give(extent);
        }
    }

    async fn evict(&self, ino: Ino, _now: Timestamp) -> Result<(), FsError> {
        self.release(ino);
        let mut state = self.state.borrow_mut();
        if state.inode(ino)?.attributes.links == 0 {
            // Only files have blocks.
            let _ = state.cut(ino, 0);
            state.inodes.remove(&ino);
        }
        Ok(())
    }

    fn is_dirty(&self, ino: Ino) -> bool {
        self.with(ino, |inode| inode.is_dirty).unwrap_or(false)
    }

    async fn write_inode(&self, ino: Ino, _wait: bool) -> Result<(), FsError> {
        self.with(ino, |inode| inode.is_dirty = false)
    }

    async fn sync_buffers(&self, _ino: Ino) -> Result<(), FsError> {
        Ok(())
    }

    async fn sync(&self, _now: Timestamp) -> Result<(), FsError> {
        let mut state = self.state.borrow_mut();
        let inodes = state.inodes.values_mut();
        inodes.for_each(|inode| inode.is_dirty = false);
        Ok(())
    }

    fn usage(&self) -> Usage {
        let state = self.state.borrow();
        let blocks_free = state.free.blocks();
        Usage {
            kind: "xfs",
            block_bytes: BLOCK_BYTES as u32,
            blocks: state.blocks,
            blocks_free,
            blocks_available: blocks_free,
            inodes: 0,
            inodes_free: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Extent, Extents, FreeSpace};

    #[test]
    fn adjacent_extents_are_joined() {
        let mut extents = Extents::default();
        let extent = |block, blocks| Extent { block, blocks };
        extents.insert(0, extent(100, 10));
        extents.insert(10, extent(110, 5));
        extents.insert(20, extent(200, 5));
        assert_eq!(extents.find(3), Some(extent(103, 12)));
        assert_eq!((extents.find(16), extents.hole(16)), (None, 4));
        assert_eq!(extents.end(), 25);
        assert_eq!(extents.cut(4), [extent(200, 5), extent(104, 11)]);
        assert_eq!((extents.blocks, extents.find(4)), (4, None));
    }

    proptest! {
        /// Blocks are allocated once, and once all are freed they are one extent again.
        #[test]
        fn blocks_are_free_or_taken(wanted in prop::collection::vec(1..40_u64, 1..40)) {
            let mut free = FreeSpace { extents: [(0, 500)].into() };
            let mut taken: Vec<Extent> = Vec::new();
            for (n, wanted) in wanted.into_iter().enumerate() {
                if let Some(extent) = free.take(wanted) {
                    let apart = |other: &Extent| {
                        extent.block + extent.blocks <= other.block
                            || other.block + other.blocks <= extent.block
                    };
                    prop_assert!(taken.iter().all(apart), "{extent:?} is taken");
                    taken.push(extent);
                }
                if n % 3 == 2 {
                    free.give(taken.swap_remove(n % taken.len()));
                }
                let sum: u64 = taken.iter().map(|extent| extent.blocks).sum();
                prop_assert_eq!(free.blocks() + sum, 500);
            }
            taken.into_iter().for_each(|extent| free.give(extent));
            prop_assert_eq!(free.extents, [(0, 500)].into());
        }
    }
}
