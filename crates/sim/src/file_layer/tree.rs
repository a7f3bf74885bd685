//! A file system on a simulated drive: made and filled before the run, then mounted.
//!
//! Its metadata blocks are read and written by bios like files' data. Their bytes are
//! kept in memory twice: as the buffer cache has them, and as the drive does
//! ([`SparseDisk`]).

use std::rc::Rc;

use blklab_fs::write_back::DeviceId;
use blklab_fs::{
    BackingDevice, BufferCache, BufferCounts, Caller, DentryCounts, Ext2Layout, FileKind,
    FileSystem, FsError, Image, Ino, Inode, InodeId, MountDevice, MountOptions, Mounted, Namespace,
    NewInode, ReadPath, SparseDisk, VfatLayout, Vfs, Xfs, at_once,
};

use super::kernel::{Kernel, MountedFs};
use crate::caching::FileSystemKind;

/// Its files by their names.
pub(super) type FileTree = Namespace<Kernel, MountedFs>;

/// A file that is there before the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NewFile {
    /// Its path from the root on.
    pub(crate) path: Vec<u8>,
    pub(crate) contents: Contents,
}

/// What is made at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Contents {
    /// Only the directories above it.
    Nothing,
    /// A file of this many bytes, all of them a hole if the file system has holes.
    Hole(u64),
    /// A file of this many bytes, with blocks for all of them.
    Written(u64),
}

/// The mounted file system and its names.
pub(super) struct Tree {
    namespace: Rc<FileTree>,
    fs: Rc<MountedFs>,
    disk: usize,
}

impl Tree {
    /// Makes a file system of `size_bytes` with these files, and mounts it as a machine
    /// that has just been booted does: nothing is cached.
    ///
    /// # Errors
    /// [`FsError::NoSpace`] where the files do not fit, [`FsError::TooBig`] where the
    /// drive or a file is longer than the kind can be.
    pub(super) fn mount(
        vfs: &Rc<Vfs<Kernel>>,
        (kind, files): (FileSystemKind, &[NewFile]),
        (disk, size_bytes): (usize, u64),
        readahead: BackingDevice,
    ) -> Result<Tree, FsError> {
        let storage = Rc::new(SparseDisk::new(size_bytes));
        let start = vfs.host().caller();
        if kind != FileSystemKind::Xfs {
            make(kind, &storage, files, &start)?;
        }
        let device = DeviceId(disk as u32);
        let pages = vfs.add_inode_on(pages_of_device(size_bytes, readahead), device);
        vfs.host().place_region(pages, 0, size_bytes);
        let buffers = BufferCache::new(vfs, pages, storage)?;
        let fs = vfs.host().instantly(|| {
            let mounted = match kind {
                FileSystemKind::Xfs => {
                    let mounted = Mounted::Xfs(Xfs::new(buffers, start.now));
                    at_once(add_files(&mounted, files, &start))?;
                    mounted
                }
                _ => at_once(Mounted::open(buffers, &MountOptions::default()))?,
            };
            at_once(mounted.mount(start.now))?;
            Ok(Rc::new(mounted))
        })?;
        fs.device().take_counts();
        vfs.reset_counts();
        vfs.host().set_mounted(Rc::clone(&fs));
        let drive = MountDevice {
            readahead,
            device,
            buffers: Some(pages),
        };
        let namespace = Namespace::new(Rc::clone(vfs), Rc::clone(&fs), drive);
        Ok(Tree {
            namespace: Rc::new(namespace),
            fs,
            disk,
        })
    }

    /// The inode of the drive that it is on.
    pub(super) fn device(&self) -> InodeId {
        self.fs.device().device()
    }

    /// Its files.
    pub(super) fn files(&self) -> &FileTree {
        &self.namespace
    }

    /// Its files, for a task.
    pub(super) fn namespace(&self) -> Rc<FileTree> {
        Rc::clone(&self.namespace)
    }

    /// The drive that it is on.
    pub(super) fn disk(&self) -> usize {
        self.disk
    }

    /// Whether its files can be read and written without waiting.
    pub(super) fn can_try(&self) -> bool {
        self.fs.can_try()
    }

    #[cfg(test)]
    pub(super) fn write_out(&self, vfs: &Rc<Vfs<Kernel>>) -> Result<Rc<SparseDisk>, FsError> {
        vfs.host().instantly(|| {
            at_once(self.fs.sync(vfs.host().caller().now))?;
            at_once(self.fs.unmount())?;
            let buffers = self.fs.device();
            at_once(vfs.write_range(buffers.device(), 0, u64::MAX / 2, true));
            Ok(Rc::clone(buffers.storage()))
        })
    }

    /// The dentry cache's and the buffer cache's counters.
    pub(super) fn counts(&self) -> (DentryCounts, BufferCounts) {
        (self.namespace.dentry_counts(), self.fs.device().counts())
    }
}

/// The block device's inode, whose pages are the buffer cache.
fn pages_of_device(size_bytes: u64, readahead: BackingDevice) -> Inode {
    Inode {
        size_bytes,
        block_bytes: 512,
        large_folios: false,
        read_path: ReadPath::Mpage,
        is_device: true,
        device: readahead,
    }
}

/// Makes a file system with files.
fn make(
    kind: FileSystemKind,
    storage: &Rc<SparseDisk>,
    files: &[NewFile],
    caller: &Caller,
) -> Result<(), FsError> {
    let image = Image::new(Rc::clone(storage)).map_err(|_| FsError::Device)?;
    match kind {
        FileSystemKind::Raw | FileSystemKind::Xfs => return Err(FsError::BadCall),
        FileSystemKind::Ext2 => at_once(Ext2Layout::default().make(&image, caller.now))?,
        FileSystemKind::Vfat => at_once(VfatLayout::default().make(&image, caller.now))?,
    }
    let fs = at_once(Mounted::open(image, &MountOptions::default()))?;
    at_once(add_files(&fs, files, caller))?;
    at_once(fs.sync(caller.now))?;
    fs.device().commit()
}

/// Makes files, in their order.
async fn add_files<F: FileSystem>(
    fs: &F,
    files: &[NewFile],
    caller: &Caller,
) -> Result<(), FsError> {
    for file in files {
        add_file(fs, file, caller).await?;
    }
    Ok(())
}

/// Makes a file, with the directories that it is in.
async fn add_file<F: FileSystem>(fs: &F, file: &NewFile, caller: &Caller) -> Result<(), FsError> {
    let names = file.path.split(|byte| *byte == b'/');
    let mut names = names.filter(|name| !name.is_empty());
    let Some(name) = names.next_back() else {
        return Err(FsError::BadName);
    };
    let mut dir = fs.root();
    for name in names {
        dir = directory(fs, dir, name, caller).await?;
    }
    let (size_bytes, is_written) = match file.contents {
        Contents::Nothing => return Ok(()),
        Contents::Hole(bytes) => (bytes, !fs.has_holes()),
        Contents::Written(bytes) => (bytes, true),
    };
    if size_bytes > fs.file_bytes_max() {
        return Err(FsError::TooBig);
    }
    let new = NewInode::Regular(0o644);
    let ino = fs.create(dir, name, new, caller).await?;
    if is_written {
        let block_bytes = u64::from(fs.block_bytes());
        let (mut block, last) = (0, size_bytes.div_ceil(block_bytes));
        while block < last {
            let map = fs.map(ino, block, last - block, Some(caller)).await?;
            block += map.blocks.max(1);
        }
    }
    fs.set_size(ino, size_bytes, caller.now);
    fs.release(ino);
    Ok(())
}

/// A directory in another, which is made if it is not there.
async fn directory<F: FileSystem>(
    fs: &F,
    dir: Ino,
    name: &[u8],
    caller: &Caller,
) -> Result<Ino, FsError> {
    if let Some(found) = fs.lookup(dir, name).await? {
        return match fs.attributes(found).await?.kind {
            FileKind::Directory => Ok(found),
            _ => Err(FsError::NotDirectory),
        };
    }
    fs.create(dir, name, NewInode::Directory(0o755), caller)
        .await
}
