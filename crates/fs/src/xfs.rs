//! XFS as the page cache sees it: files in extents, large folios, and write-back of a
//! truncated file when it is closed (`fs/xfs`, `fs/iomap`).
//!
//! Names, inodes and extents are kept in memory alone: XFS's own blocks and its log are
//! neither read nor written, and there are no images of it.

use std::borrow::Cow;
use std::cell::{RefCell, RefMut};
use std::collections::BTreeMap;

use crate::buffer::Buffers;
use crate::error::FsError;
use crate::file_system::{
    Attributes, BlockMap, Caller, Change, DirEntry, FileKind, FileSystem, Ino, NewInode, Timestamp,
    Usage, may_replace,
};

/// The block size that `mkfs.xfs` chooses.
const BLOCK_BYTES: u64 = 4096;

/// A name's longest length in bytes.
const NAME_BYTES_MAX: usize = 255;

/// The number of the root (`mkfs.xfs` on a large device).
const ROOT: Ino = Ino(128);

/// Blocks that a file which grows has reserved at most and at least: 8 GiB and 64 KiB
/// (`xfs_iomap_prealloc_size`).
const RESERVED_MAX: u64 = (8 << 30) / BLOCK_BYTES;
const RESERVED_MIN: u64 = (64 << 10) / BLOCK_BYTES;

/// An inode with what it holds.
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

/// Blocks that follow each other on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    block: u64,
    blocks: u64,
}

/// A file's blocks: by the first of the file, where they are on the device.
#[derive(Debug, Default)]
struct Extents {
    runs: BTreeMap<u64, Run>,
    /// What is kept free behind its last block, so that it grows without gaps.
    reserved: Option<Run>,
}

impl Extents {
    /// The file's block after its last one.
    fn end(&self) -> u64 {
        let last = self.runs.last_key_value();
        last.map_or(0, |(first, run)| first + run.blocks)
    }

    /// The blocks from `block` on that follow each other.
    fn find(&self, block: u64) -> Option<Run> {
        let (first, run) = self.runs.range(..=block).next_back()?;
        let skipped = block - first;
        (skipped < run.blocks).then(|| Run {
            block: run.block + skipped,
            blocks: run.blocks - skipped,
        })
    }

    /// How many blocks from `block` on are a hole.
    fn hole(&self, block: u64) -> u64 {
        let next = self.runs.range(block..).next();
        next.map_or(u64::MAX - block, |(first, _)| first - block)
    }

    /// Adds blocks, to the run before them if they follow it on the device too.
    fn insert(&mut self, at: u64, new: Run) {
        if let Some((first, before)) = self.runs.range_mut(..at).next_back()
            && first + before.blocks == at
            && before.block + before.blocks == new.block
        {
            before.blocks += new.blocks;
            return;
        }
        self.runs.insert(at, new);
    }

    /// Takes all blocks from `block` on.
    fn cut(&mut self, block: u64) -> Vec<Run> {
        let mut behind: Vec<Run> = self.runs.split_off(&block).into_values().collect();
        if let Some((first, run)) = self.runs.range_mut(..block).next_back()
            && first + run.blocks > block
        {
            let kept = block - first;
            behind.push(Run {
                block: run.block + kept,
                blocks: run.blocks - kept,
            });
            run.blocks = kept;
        }
        behind.extend(self.reserved.take());
        behind
    }

    fn blocks(&self) -> u64 {
        self.runs.values().map(|run| run.blocks).sum()
    }
}

/// The free blocks of the device: runs by their first block.
#[derive(Debug)]
struct FreeSpace {
    runs: BTreeMap<u64, u64>,
}

impl FreeSpace {
    /// Takes up to `wanted` blocks that follow each other: the first run that has as many,
    /// or else the longest.
    fn take(&mut self, wanted: u64) -> Option<Run> {
        let fits = self.runs.iter().find(|(_, blocks)| **blocks >= wanted);
        let found = fits.or_else(|| self.runs.iter().max_by_key(|(_, blocks)| **blocks));
        let (&block, &blocks) = found?;
        self.runs.remove(&block);
        let taken = wanted.min(blocks);
        if taken < blocks {
            self.runs.insert(block + taken, blocks - taken);
        }
        Some(Run {
            block,
            blocks: taken,
        })
    }

    /// Gives blocks back.
    fn give(&mut self, run: Run) {
        let Run { mut block, blocks } = run;
        let mut end = block + blocks;
        if let Some(behind) = self.runs.remove(&end) {
            end += behind;
        }
        if let Some((&before, &blocks)) = self.runs.range(..block).next_back()
            && before + blocks == block
        {
            block = before;
        }
        self.runs.insert(block, end - block);
    }

    fn blocks(&self) -> u64 {
        self.runs.values().sum()
    }
}

#[derive(Debug)]
struct State {
    inodes: BTreeMap<Ino, Inode>,
    next_ino: u64,
    free: FreeSpace,
    blocks: u64,
}

/// An XFS whose names and extents are in memory.
#[derive(Debug)]
pub struct Xfs<D> {
    device: D,
    state: RefCell<State>,
}

impl<D: Buffers> Xfs<D> {
    /// An empty file system on all of a device.
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
                runs: BTreeMap::from([(0, blocks)]),
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
    /// Its device.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// Changes an inode in memory.
    fn with<T>(&self, ino: Ino, change: impl FnOnce(&mut Inode) -> T) -> Result<T, FsError> {
        let mut state = self.state.borrow_mut();
        state.inode(ino).map(change)
    }

    /// The names of a directory.
    fn names(&self, dir: Ino) -> Result<RefMut<'_, BTreeMap<Vec<u8>, Ino>>, FsError> {
        RefMut::filter_map(self.state.borrow_mut(), |state| {
            match &mut state.inodes.get_mut(&dir)?.contents {
                Contents::Directory { names, .. } => Some(names),
                _ => None,
            }
        })
        .map_err(|_| FsError::NotDirectory)
    }

    /// Removes a name; its inode loses a link.
    fn remove(&self, dir: Ino, name: &[u8], now: Timestamp) -> Result<Ino, FsError> {
        let ino = self.names(dir)?.remove(name).ok_or(FsError::NoEntry)?;
        let was_dir = self.with(ino, |inode| {
            inode.changed(now);
            let is_dir = inode.attributes.kind == FileKind::Directory;
            // A directory has its own name and `.`.
            inode.attributes.links -= if is_dir { 2 } else { 1 };
            is_dir
        })?;
        self.with(dir, |dir| {
            dir.attributes.links -= u32::from(was_dir);
            dir.modified(now);
        })?;
        Ok(ino)
    }

    /// Adds a name for an inode that has a link for it.
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

    /// Allocates up to `wanted` blocks for a hole of a file at `block`. A file that grows
    /// has as much again reserved behind them.
    fn allocate(&mut self, ino: Ino, block: u64, wanted: u64) -> Result<Run, FsError> {
        let extents = self.extents(ino)?;
        let is_growing = block == extents.end();
        let reserved = extents.reserved.take();
        let ahead = match is_growing {
            true => block.clamp(RESERVED_MIN, RESERVED_MAX),
            false => 0,
        };
        let mut run = match reserved {
            Some(run) if is_growing => run,
            other => {
                other.into_iter().for_each(|run| self.free.give(run));
                self.take_free(wanted.saturating_add(ahead))?
            }
        };
        let behind = run.blocks.saturating_sub(wanted);
        run.blocks -= behind;
        let rest = Run {
            block: run.block + run.blocks,
            blocks: behind,
        };
        let rest = (behind > 0).then_some(rest);
        let extents = self.extents(ino)?;
        extents.insert(block, run);
        extents.reserved = rest;
        let sectors = extents.blocks() * (BLOCK_BYTES / 512);
        self.inode(ino)?.attributes.sectors = sectors;
        Ok(run)
    }

    /// Takes free blocks, those that files have reserved last.
    fn take_free(&mut self, wanted: u64) -> Result<Run, FsError> {
        if self.free.runs.is_empty() {
            let inodes = self.inodes.values_mut();
            let reserved = inodes.filter_map(|inode| match &mut inode.contents {
                Contents::File(extents) => extents.reserved.take(),
                _ => None,
            });
            reserved.for_each(|run| self.free.give(run));
        }
        self.free.take(wanted).ok_or(FsError::NoSpace)
    }

    fn cut(&mut self, ino: Ino, block: u64) -> Result<(), FsError> {
        let extents = self.extents(ino)?;
        let behind = extents.cut(block);
        let sectors = extents.blocks() * (BLOCK_BYTES / 512);
        behind.into_iter().for_each(|run| self.free.give(run));
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
        let (run, is_new) = match (found, create) {
            (Some(run), _) => (Some(run), false),
            (None, None) => (None, false),
            (None, Some(_)) => (Some(state.allocate(ino, block, blocks.min(hole))?), true),
        };
        Ok(BlockMap {
            block: run.map(|run| run.block),
            blocks: run.map_or(hole, |run| run.blocks).min(blocks),
            is_new,
            boundary: false,
        })
    }

    fn set_size(&self, ino: Ino, size_bytes: u64, now: Timestamp) {
        // An inode that was deleted meanwhile has no length.
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
        let reserved = state.extents(ino).map(|extents| extents.reserved.take());
        if let Ok(Some(run)) = reserved {
            state.free.give(run);
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

    use super::{Extents, FreeSpace, Run};

    #[test]
    fn what_follows_is_one_run() {
        let mut extents = Extents::default();
        let run = |block, blocks| Run { block, blocks };
        extents.insert(0, run(100, 10));
        extents.insert(10, run(110, 5));
        extents.insert(20, run(200, 5));
        assert_eq!(extents.find(3), Some(run(103, 12)));
        assert_eq!((extents.find(16), extents.hole(16)), (None, 4));
        assert_eq!(extents.end(), 25);
        assert_eq!(extents.cut(4), [run(200, 5), run(104, 11)]);
        assert_eq!((extents.blocks(), extents.find(4)), (4, None));
    }

    proptest! {
        /// What was taken and given back is as free as before, in one run.
        #[test]
        fn blocks_are_free_or_taken(wanted in prop::collection::vec(1..40_u64, 1..40)) {
            let mut free = FreeSpace { runs: [(0, 500)].into() };
            let mut taken: Vec<Run> = Vec::new();
            for (n, wanted) in wanted.into_iter().enumerate() {
                if let Some(run) = free.take(wanted) {
                    let apart = |other: &Run| {
                        run.block + run.blocks <= other.block
                            || other.block + other.blocks <= run.block
                    };
                    prop_assert!(taken.iter().all(apart), "{run:?} is taken");
                    taken.push(run);
                }
                if n % 3 == 2 {
                    free.give(taken.swap_remove(n % taken.len()));
                }
                let sum: u64 = taken.iter().map(|run| run.blocks).sum();
                prop_assert_eq!(free.blocks() + sum, 500);
            }
            taken.into_iter().for_each(|run| free.give(run));
            prop_assert_eq!(free.runs, [(0, 500)].into());
        }
    }
}
