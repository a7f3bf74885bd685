//! FAT12, FAT16 and FAT32 with long names, as Linux 6.12's `fs/fat` reads and writes
//! them as `vfat`.

mod boot;
mod charset;
mod dir;
mod entry;
mod fat;
mod inode;
mod mkfs;
mod name;

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use crate::buffer::{Buffer, Buffers};
use crate::error::FsError;
use crate::file_system::{
    Attributes, BlockMap, Caller, Change, DirEntry, DirectLocking, FileKind, FileSystem, Ino,
    NewInode, Timestamp, Usage, may_replace,
};

pub use boot::FatWidth;
use boot::{FIRST_CLUSTER, Geometry};
pub use charset::Charset;
use entry::{
    ATTRIBUTE_ARCHIVE, ATTRIBUTE_DIRECTORY, ATTRIBUTE_READ_ONLY, at, new_entry, set_first_cluster,
};
use inode::{Inode, ROOT};
pub use mkfs::VfatLayout;
use name::strip_trailing_dots;
pub use name::{ShortNames, VfatOptions};

/// The longest file, in bytes.
const FILE_BYTES_MAX: u64 = u32::MAX as u64;

/// What the file system keeps in memory (`struct msdos_sb_info`).
#[derive(Debug, Default)]
struct SbInfo {
    inodes: BTreeMap<Ino, Inode>,
    /// Inodes by the number of their entry on the device.
    positions: BTreeMap<u64, Ino>,
    /// The entries of inodes that are not numbered by their entry.
    moved: BTreeMap<Ino, u64>,
    /// How many inodes were not numbered by their entry so far.
    moved_inos: u64,
    /// The cluster that was allocated last (`prev_free`).
    last_taken: u32,
    /// `None` until they are counted.
    free_clusters: Option<u32>,
}

/// A VFAT file system on a device.
#[derive(Debug)]
pub struct Vfat<D> {
    device: D,
    options: VfatOptions,
    geometry: Geometry,
    /// It was not unmounted the last time.
    was_mounted: Cell<bool>,
    state: RefCell<SbInfo>,
}

/// It is mounted, or was not unmounted (`FAT_STATE_DIRTY`).
const STATE_MOUNTED: u8 = 1;

impl<D: Buffers> Vfat<D> {
    /// Reads the boot sector and counts free clusters.
    ///
    /// # Errors
    /// [`FsError::Corrupt`] where it cannot be a FAT.
    pub async fn open(device: D, options: VfatOptions) -> Result<Vfat<D>, FsError> {
        let geometry = boot::load(&device).await?;
        let opened = Vfat {
            device,
            options,
            geometry,
            was_mounted: Cell::new(false),
            state: RefCell::new(SbInfo {
                last_taken: FIRST_CLUSTER,
                ..SbInfo::default()
            }),
        };
        opened.read_info().await?;
        opened.count_free().await?;
        let root = Inode {
            first: geometry.root_cluster,
            attributes: ATTRIBUTE_DIRECTORY,
            ..Inode::default()
        };
        opened.state.borrow_mut().inodes.insert(ROOT, root);
        opened.measure_dir(ROOT).await?;
        if geometry.width != FatWidth::Fat32 {
            let size_bytes = u64::from(geometry.root_entries * boot::ENTRY_BYTES);
            opened.modify(ROOT, |root| root.size_bytes = size_bytes);
        }
        opened.modify(ROOT, |root| root.is_dirty = false);
        Ok(opened)
    }

    /// Its device.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// The width of its table's entries.
    pub fn width(&self) -> FatWidth {
        self.geometry.width
    }

    /// Says in the boot sector that it is mounted to be written (`fat_set_state`). One
    /// that says so already was not unmounted, and says so until somebody has checked it.
    ///
    /// # Errors
    /// [`FsError::Device`].
    pub async fn mount(&self) -> Result<(), FsError> {
        let (buffer, at) = self.mount_state().await?;
        let state = buffer.bytes()[at];
        self.was_mounted.set(state & STATE_MOUNTED != 0);
        buffer.bytes_mut()[at] = state | STATE_MOUNTED;
        self.device.mark_dirty(&buffer, None);
        self.device.sync_buffer(&buffer).await
    }

    /// Says there that nothing is missing on the device, after [`FileSystem::sync`].
    ///
    /// # Errors
    /// [`FsError::Device`].
    pub async fn unmount(&self) -> Result<(), FsError> {
        if self.was_mounted.get() {
            return Ok(());
        }
        let (buffer, at) = self.mount_state().await?;
        buffer.bytes_mut()[at] &= !STATE_MOUNTED;
        self.device.mark_dirty(&buffer, None);
        self.device.sync_buffer(&buffer).await
    }

    /// The boot sector, and the byte in it that says whether it is mounted.
    async fn mount_state(&self) -> Result<(Buffer, usize), FsError> {
        let extended = match self.geometry.width {
            FatWidth::Fat32 => boot::at::EXTENDED_32,
            _ => boot::at::EXTENDED,
        };
        Ok((self.device.bread(0).await?, extended + 1))
    }

    /// Reads an inode that is in memory.
    fn with<R>(&self, ino: Ino, read: impl FnOnce(&Inode) -> R) -> R {
        read(&self.state.borrow().inodes[&ino])
    }

    /// Changes an inode that is in memory, which makes it dirty.
    fn modify(&self, ino: Ino, change: impl FnOnce(&mut Inode)) {
        if let Some(inode) = self.state.borrow_mut().inodes.get_mut(&ino) {
            inode.is_dirty = true;
            change(inode);
        }
    }

    /// Brings a directory into memory.
    async fn directory(&self, dir: Ino) -> Result<(), FsError> {
        self.iget(dir).await?;
        match self.with(dir, Inode::is_dir) {
            true => Ok(()),
            false => Err(FsError::NotDirectory),
        }
    }

    /// Brings the inode that a directory's entry names into memory.
    async fn named(&self, dir: Ino, name: &[u8]) -> Result<(dir::Record, Ino), FsError> {
        self.directory(dir).await?;
        let record = self.find(dir, name).await?.ok_or(FsError::NoEntry)?;
        let ino = self.ino_at(record.position);
        self.iget(ino).await?;
        Ok((record, ino))
    }

    /// The first cluster that an entry `..` names; it is 0 for the root.
    fn parent_cluster(&self, parent: Ino) -> u32 {
        match parent {
            ROOT => 0,
            _ => self.with(parent, |inode| inode.first),
        }
    }

    /// Allocates a new directory's cluster, with the entries for itself and its parent
    /// (`fat_alloc_new_dir`).
    async fn new_dir(&self, parent: Ino, now: Timestamp) -> Result<u32, FsError> {
        let cluster = self.take_cluster().await?;
        self.zero_cluster(cluster, parent)?;
        let buffer = self.device.bread(self.geometry.sector(cluster)).await?;
        let parent_cluster = self.parent_cluster(parent);
        let dots = [(b".          ", cluster), (b"..         ", parent_cluster)];
        let mut bytes = buffer.bytes_mut();
        for (slot, (name, first)) in bytes.chunks_exact_mut(32).zip(dots) {
            slot.copy_from_slice(&new_entry(true, first, now));
            slot[..11].copy_from_slice(name);
        }
        drop(bytes);
        self.device.mark_dirty(&buffer, Some(parent));
        Ok(cluster)
    }

    /// The blocks of a file from `block` on that follow each other on the device; `None`
    /// after the end of its chain.
    async fn map_chain(
        &self,
        ino: Ino,
        block: u64,
        blocks: u64,
    ) -> Result<Option<BlockMap>, FsError> {
        let cluster_sectors = u64::from(self.geometry.cluster_sectors);
        let n = block / cluster_sectors;
        let Some(first) = self.cluster(ino, n).await? else {
            return Ok(None);
        };
        let in_cluster = block % cluster_sectors;
        let mut count = cluster_sectors - in_cluster;
        let mut clusters = 1;
        while count < blocks {
            let next = self.cluster(ino, n + clusters).await?;
            if next.map(u64::from) != Some(u64::from(first) + clusters) {
                break;
            }
            clusters += 1;
            count += cluster_sectors;
        }
        Ok(Some(BlockMap {
            block: Some(self.geometry.sector(first) + in_cluster),
            blocks: count.min(blocks),
            is_new: false,
            boundary: false,
        }))
    }
}

impl<D: Buffers> FileSystem for Vfat<D> {
    fn root(&self) -> Ino {
        ROOT
    }

    fn block_bytes(&self) -> u32 {
        self.geometry.sector_bytes
    }

    fn file_bytes_max(&self) -> u64 {
        FILE_BYTES_MAX
    }

    fn has_holes(&self) -> bool {
        false
    }

    fn direct_locking(&self) -> DirectLocking {
        DirectLocking::Exclusive
    }

    fn name_key<'a>(&self, name: &'a [u8]) -> Cow<'a, [u8]> {
        Cow::Owned(self.options.lower(strip_trailing_dots(name)))
    }

    async fn lookup(&self, dir: Ino, name: &[u8]) -> Result<Option<Ino>, FsError> {
        match self.named(dir, name).await {
            Ok((_, ino)) => Ok(Some(ino)),
            Err(FsError::NoEntry) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn attributes(&self, ino: Ino) -> Result<Attributes, FsError> {
        self.iget(ino).await?;
        Ok(self.stat(ino))
    }

    async fn read_dir(
        &self,
        dir: Ino,
        cursor: u64,
        entries: &mut Vec<DirEntry>,
    ) -> Result<Option<u64>, FsError> {
        self.directory(dir).await?;
        let Some((record, next)) = self.next_record(dir, cursor).await? else {
            return Ok(None);
        };
        let is_dir = record.entry[at::ATTRIBUTES] & ATTRIBUTE_DIRECTORY != 0;
        entries.push(DirEntry {
            name: self.program_name(&record),
            ino: self.ino_at(record.position),
            kind: Some(if is_dir {
                FileKind::Directory
            } else {
                FileKind::Regular
            }),
        });
        Ok(Some(next))
    }

    async fn create(
        &self,
        dir: Ino,
        name: &[u8],
        new: NewInode<'_>,
        caller: &Caller,
    ) -> Result<Ino, FsError> {
        self.directory(dir).await?;
        if self.find(dir, name).await?.is_some() {
            return Err(FsError::Exists);
        }
        let (is_dir, permissions) = match new {
            NewInode::Regular(permissions) => (false, permissions),
            NewInode::Directory(permissions) => (true, permissions),
            NewInode::Symlink(_) => return Err(FsError::NotSupported),
        };
        // Checks the name before a cluster is allocated.
        let blank = new_entry(is_dir, 0, caller.now);
        let mut entries = self.new_entries(dir, name, blank, caller).await?;
        let first = match is_dir {
            true => self.new_dir(dir, caller.now).await?,
            false => 0,
        };
        if let Some(entry) = entries.last_mut() {
            set_first_cluster(entry, first);
            if permissions & 0o222 == 0 {
                entry[at::ATTRIBUTES] |= ATTRIBUTE_READ_ONLY;
            }
        }
        let position = match self.add_entries(dir, &entries, caller).await {
            Ok(position) => position,
            Err(error) => {
                if first != 0 {
                    self.free_chain(first).await?;
                }
                return Err(error);
            }
        };
        if is_dir {
            self.modify(dir, |inode| inode.links += 1);
        }
        let ino = self.ino_at(position);
        self.iget(ino).await?;
        Ok(ino)
    }

    async fn link(&self, _: Ino, _: Ino, _: &[u8], _: &Caller) -> Result<(), FsError> {
        Err(FsError::NotSupported)
    }

    async fn unlink(&self, dir: Ino, name: &[u8], caller: &Caller) -> Result<Ino, FsError> {
        let (record, ino) = self.named(dir, name).await?;
        if self.with(ino, Inode::is_dir) {
            return Err(FsError::IsDirectory);
        }
        self.remove_entries(dir, &record, caller).await?;
        self.drop_inode(ino, caller);
        Ok(ino)
    }

    async fn remove_dir(&self, dir: Ino, name: &[u8], caller: &Caller) -> Result<Ino, FsError> {
        if name == b"." || name == b".." {
            return Err(FsError::BadCall);
        }
        let (record, ino) = self.named(dir, name).await?;
        if !self.with(ino, Inode::is_dir) {
            return Err(FsError::NotDirectory);
        }
        if !self.is_empty_dir(ino).await? {
            return Err(FsError::NotEmpty);
        }
        self.remove_entries(dir, &record, caller).await?;
        self.modify(dir, |inode| inode.links = inode.links.saturating_sub(1));
        self.drop_inode(ino, caller);
        Ok(ino)
    }

    async fn rename(
        &self,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        caller: &Caller,
    ) -> Result<Option<Ino>, FsError> {
        let ((from_dir, from_name), (to_dir, to_name)) = (from, to);
        let (old, ino) = self.named(from_dir, from_name).await?;
        let is_dir = self.with(ino, Inode::is_dir);
        let moves_dir = is_dir && from_dir != to_dir;
        let parent = match moves_dir {
            true => Some(self.parent_entry(ino).await?),
            false => None,
        };
        let replaced = match self.named(to_dir, to_name).await {
            // Another spelling of the same name: the kernel leaves it as it is.
            Ok((_, new)) if new == ino => return Ok(None),
            Ok((record, new)) => {
                may_replace(is_dir, self.with(new, Inode::is_dir))?;
                if is_dir && !self.is_empty_dir(new).await? {
                    return Err(FsError::NotEmpty);
                }
                self.drop_inode(new, caller);
                self.attach(ino, record.position);
                if is_dir {
                    self.modify(to_dir, |inode| inode.links = inode.links.saturating_sub(1));
                }
                Some(new)
            }
            Err(FsError::NoEntry) => {
                let blank = new_entry(is_dir, 0, caller.now);
                let entries = self.new_entries(to_dir, to_name, blank, caller).await?;
                let position = self.add_entries(to_dir, &entries, caller).await?;
                self.attach(ino, position);
                None
            }
            Err(error) => return Err(error),
        };
        self.update_entry(ino).await?;
        if let Some(parent) = parent {
            let (buffer, offset) = self.entry_place(parent).await?;
            let first = self.parent_cluster(to_dir);
            set_first_cluster(&mut buffer.bytes_mut()[offset..], first);
            self.device.mark_dirty(&buffer, Some(ino));
        }
        if moves_dir {
            self.modify(from_dir, |inode| {
                inode.links = inode.links.saturating_sub(1)
            });
            self.modify(to_dir, |inode| inode.links += 1);
        }
        self.remove_entries(from_dir, &old, caller).await?;
        Ok(replaced)
    }

    async fn read_link(&self, _: Ino) -> Result<Vec<u8>, FsError> {
        Err(FsError::BadCall)
    }

    async fn map(
        &self,
        ino: Ino,
        block: u64,
        blocks: u64,
        create: Option<&Caller>,
    ) -> Result<BlockMap, FsError> {
        self.iget(ino).await?;
        let sector_bytes = u64::from(self.geometry.sector_bytes);
        let size_bytes = self.with(ino, |inode| inode.size_bytes);
        let used = size_bytes.div_ceil(sector_bytes);
        let blocks = blocks.max(1);
        if self.is_fixed_root(ino) {
            let sector = u64::from(self.geometry.root_start) + block;
            let left = used.saturating_sub(block);
            return Ok(BlockMap {
                block: (left > 0).then_some(sector),
                blocks: blocks.min(left).max(1),
                is_new: false,
                boundary: false,
            });
        }
        if create.is_none() {
            return match self.map_chain(ino, block, blocks).await? {
                Some(map) => Ok(map),
                None if block < used => Err(FsError::Corrupt {
                    byte: self.entry_byte(ino),
                    what: "a file's chain ends before the file does, at the sector",
                    found: block,
                }),
                None => Ok(BlockMap {
                    block: None,
                    blocks,
                    is_new: false,
                    boundary: false,
                }),
            };
        }
        if block >= FILE_BYTES_MAX.div_ceil(sector_bytes) {
            return Err(FsError::TooBig);
        }
        let n = block / u64::from(self.geometry.cluster_sectors);
        if self.cluster(ino, n).await?.is_none() {
            if self.with(ino, |inode| inode.chain.len() as u64) != n {
                return Err(FsError::BadCall);
            }
            let cluster = self.take_cluster().await?;
            self.append_cluster(ino, cluster).await?;
        }
        // Blocks after the end of the file hold none of its data, even in its own cluster.
        let is_new = block >= used;
        let blocks = if is_new {
            blocks
        } else {
            blocks.min(used - block)
        };
        let map = self.map_chain(ino, block, blocks).await?;
        map.map(|map| BlockMap { is_new, ..map })
            .ok_or(FsError::NoSpace)
    }

    fn set_size(&self, ino: Ino, size_bytes: u64, now: Timestamp) {
        self.modify(ino, |inode| {
            inode.size_bytes = size_bytes;
            inode.modified = now;
            inode.attributes |= ATTRIBUTE_ARCHIVE;
        });
    }

    async fn truncate(&self, ino: Ino, size_bytes: u64, caller: &Caller) -> Result<(), FsError> {
        self.iget(ino).await?;
        let (is_dir, size) = self.with(ino, |inode| (inode.is_dir(), inode.size_bytes));
        if is_dir {
            return Err(FsError::IsDirectory);
        }
        if size_bytes > size {
            return Err(FsError::BadCall);
        }
        self.set_size(ino, size_bytes, caller.now);
        let clusters = size_bytes.div_ceil(self.geometry.cluster_bytes());
        self.keep_clusters(ino, clusters).await
    }

    async fn change(&self, ino: Ino, change: &Change) -> Result<(), FsError> {
        self.iget(ino).await?;
        if change.owner.is_some_and(|owner| owner != (0, 0)) {
            return Err(FsError::NotSupported);
        }
        self.modify(ino, |inode| {
            match change.permissions {
                Some(mode) if mode & 0o222 == 0 => inode.attributes |= ATTRIBUTE_READ_ONLY,
                Some(_) => inode.attributes &= !ATTRIBUTE_READ_ONLY,
                None => {}
            }
            inode.accessed = change.accessed.unwrap_or(inode.accessed);
            inode.modified = change.modified.unwrap_or(inode.modified);
        });
        Ok(())
    }

    fn release(&self, _: Ino) {}

    async fn evict(&self, ino: Ino, _: Timestamp) -> Result<(), FsError> {
        if ino == ROOT || !self.state.borrow().inodes.contains_key(&ino) {
            return Ok(());
        }
        let done = if self.with(ino, |inode| inode.links == 0) {
            self.keep_clusters(ino, 0).await
        } else if self.is_dirty(ino) {
            self.update_entry(ino).await.map(|_| ())
        } else {
            Ok(())
        };
        self.detach(ino);
        let mut state = self.state.borrow_mut();
        state.inodes.remove(&ino);
        state.moved.remove(&ino);
        done
    }

    fn is_dirty(&self, ino: Ino) -> bool {
        let state = self.state.borrow();
        state.inodes.get(&ino).is_some_and(|inode| inode.is_dirty)
    }

    async fn write_inode(&self, ino: Ino, wait: bool) -> Result<(), FsError> {
        if !self.state.borrow().inodes.contains_key(&ino) {
            return Ok(());
        }
        let buffer = self.update_entry(ino).await?;
        let Some(buffer) = buffer.filter(|_| wait) else {
            return Ok(());
        };
        self.device.sync_buffer(&buffer).await?;
        // The table is shared by all files (`fat_file_fsync`).
        self.device.sync_of(fat::TABLE).await
    }

    async fn sync_buffers(&self, ino: Ino) -> Result<(), FsError> {
        self.device.sync_of(ino).await
    }

    async fn sync(&self, _: Timestamp) -> Result<(), FsError> {
        let dirty: Vec<Ino> = {
            let state = self.state.borrow();
            let dirty = state.inodes.iter().filter(|(_, inode)| inode.is_dirty);
            dirty.map(|(&ino, _)| ino).collect()
        };
        for ino in dirty {
            self.update_entry(ino).await?;
        }
        self.write_info().await
    }

    fn usage(&self) -> Usage {
        let free = u64::from(self.state.borrow().free_clusters.unwrap_or(0));
        Usage {
            kind: "vfat",
            block_bytes: self.geometry.cluster_bytes() as u32,
            blocks: self.geometry.clusters.into(),
            blocks_free: free,
            blocks_available: free,
            inodes: 0,
            inodes_free: 0,
        }
    }
}
