//! The tree of names: mounts and inodes in memory (`fs/namespace.c`, `fs/inode.c`). The
//! files below hold path walks and the calls on names and on open files.

mod change;
mod direct;
mod lock;
mod open_file;
mod shrink;
mod walk;

pub use open_file::{OpenFile, OpenFlags, Written};
pub use shrink::ShrinkCounts;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::task::Waker;

use lock::{Hold, LockGuard, LockName, Locks};
use walk::Last;

use super::dentry::{DentryCache, DentryCounts, DentryId, Place};
use crate::error::FsError;
use crate::file_system::{FileKind, FileSystem, Timestamp};
use crate::inode::{BackingDevice, InodeId};
use crate::reclaim::Shrinker;
use crate::vfs::{Host, Vfs};
use crate::write_back::DeviceId;

/// The device of a mounted file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MountDevice {
    /// Its limits for readahead.
    pub readahead: BackingDevice,
    /// Its number in write-back, which has a flusher for it.
    pub device: DeviceId,
    /// Its own pages, if the buffer cache of the file system is in the page cache.
    pub buffers: Option<InodeId>,
}

impl From<BackingDevice> for MountDevice {
    fn from(readahead: BackingDevice) -> MountDevice {
        MountDevice {
            readahead,
            device: DeviceId::default(),
            buffers: None,
        }
    }
}

#[derive(Debug)]
struct Mount<F> {
    fs: Rc<F>,
    drive: MountDevice,
    root: DentryId,
    /// The mount point; `None` for the root.
    on: Option<DentryId>,
}

/// An inode in memory.
#[derive(Debug, Default)]
struct InCore {
    /// References: of dentries and open files (`i_count`).
    users: u32,
    /// Its number in the page cache, once it has one.
    data: Option<InodeId>,
    /// It is among the unused inodes.
    is_listed: bool,
    /// It was cut to a shorter length since it was closed last (`XFS_ITRUNCATED`).
    was_cut: bool,
    /// Its direct calls under way (`i_dio_count`), and the tasks that wait for their end.
    direct_calls: u32,
    direct_waiters: Vec<Waker>,
}

/// Mounted file systems as one tree of names, over one page cache.
#[derive(Debug)]
pub struct Namespace<H, F> {
    vfs: Rc<Vfs<H>>,
    mounts: RefCell<Vec<Mount<F>>>,
    dentries: RefCell<DentryCache>,
    inodes: RefCell<BTreeMap<Place, InCore>>,
    /// Inodes that nothing uses, the one unused for longest first. Some are used again, or
    /// gone.
    unused_inodes: RefCell<VecDeque<Place>>,
    shrinker: RefCell<Shrinker>,
    shrunk: Cell<ShrinkCounts>,
    locks: Locks,
    /// The time of the last call that changed something. Files deleted later, when they are
    /// closed, get it as their time of deletion.
    now: Cell<Timestamp>,
}

impl<H: Host, F: FileSystem> Namespace<H, F> {
    /// A tree with one file system, whose root is that of the tree.
    pub fn new(vfs: Rc<Vfs<H>>, fs: Rc<F>, drive: impl Into<MountDevice>) -> Namespace<H, F> {
        let namespace = Namespace {
            vfs,
            mounts: RefCell::default(),
            dentries: RefCell::default(),
            inodes: RefCell::default(),
            unused_inodes: RefCell::default(),
            shrinker: RefCell::default(),
            shrunk: Cell::default(),
            locks: Locks::default(),
            now: Cell::default(),
        };
        namespace.add_mount(fs, drive.into(), None);
        namespace
    }

    fn add_mount(&self, fs: Rc<F>, drive: MountDevice, on: Option<DentryId>) {
        let mount = self.mounts.borrow().len() as u32;
        let ino = fs.root();
        let place = Place { mount, ino };
        self.hold(place);
        let root = self.dentries.borrow_mut().add_root(place);
        self.mounts.borrow_mut().push(Mount {
            fs,
            drive,
            root,
            on,
        });
    }

    /// Mounts a file system on a directory.
    ///
    /// # Errors
    /// Those of [`Namespace::stat`]; [`FsError::NotDirectory`], [`FsError::Busy`] on a
    /// mount point.
    pub async fn mount(
        &self,
        fs: Rc<F>,
        drive: impl Into<MountDevice>,
        path: &[u8],
    ) -> Result<(), FsError> {
        let on = self.walk(path, Last::Follow).await?;
        let checked = match self.kind_of(on).await {
            Ok(FileKind::Directory) if self.dentries.borrow().parent(on).is_none() => {
                Err(FsError::Busy)
            }
            Ok(FileKind::Directory) => Ok(()),
            Ok(_) => Err(FsError::NotDirectory),
            Err(error) => Err(error),
        };
        match checked {
            Ok(()) => self.add_mount(fs, drive.into(), Some(on)),
            Err(_) => self.put(on).await?,
        }
        checked
    }

    /// Counts of lookups of names.
    pub fn dentry_counts(&self) -> DentryCounts {
        self.dentries.borrow().counts()
    }

    /// The number of inodes in memory.
    #[cfg(test)]
    pub(crate) fn inodes_in_memory(&self) -> u64 {
        self.inodes.borrow().len() as u64
    }

    /// The inode that has this number in the page cache.
    pub fn place_of(&self, data: InodeId) -> Option<Place> {
        let inodes = self.inodes.borrow();
        let mut found = inodes.iter().filter(|(_, inode)| inode.data == Some(data));
        found.next().map(|(&place, _)| place)
    }

    pub(super) fn fs(&self, place: Place) -> Rc<F> {
        Rc::clone(&self.mounts.borrow()[place.mount as usize].fs)
    }

    /// Takes a reference to an inode (`ihold`).
    fn hold(&self, place: Place) {
        self.inodes.borrow_mut().entry(place).or_default().users += 1;
    }

    /// Drops a reference to an inode (`iput`), which is deleted if that was the last one and
    /// it has no link.
    async fn release(&self, place: Place) -> Result<(), FsError> {
        let users = {
            let mut inodes = self.inodes.borrow_mut();
            let inode = inodes.entry(place).or_default();
            inode.users -= 1;
            inode.users
        };
        if users == 0 {
            self.list_unused(place);
        }
        if users > 0 || self.fs(place).attributes(place.ino).await?.links > 0 {
            return Ok(());
        }
        // A task may have taken a reference during the wait, through an open file.
        let is_unused = (self.inodes.borrow().get(&place)).is_some_and(|inode| inode.users == 0);
        if is_unused {
            self.evict(place).await?;
        }
        Ok(())
    }

    /// Drops an inode from memory, with its pages.
    async fn evict(&self, place: Place) -> Result<(), FsError> {
        let Some(inode) = self.inodes.borrow_mut().remove(&place) else {
            return Ok(());
        };
        if let Some(data) = inode.data {
            self.vfs.evict(data).await;
        }
        self.fs(place).evict(place.ino, self.now.get()).await
    }

    /// Marks an inode dirty in write-back if a call changed it. With `only_times`,
    /// `fdatasync` need not write it.
    async fn mark_changed(&self, place: Place, only_times: bool) -> Result<(), FsError> {
        let fs = self.fs(place);
        if !fs.is_dirty(place.ino) {
            return Ok(());
        }
        let attributes = fs.attributes(place.ino).await?;
        let data = self.data_of(place, &attributes);
        self.vfs.inode_changed(data, !only_times);
        Ok(())
    }

    /// Drops a reference to a dentry, and those to inodes that follow from that.
    async fn put(&self, dentry: DentryId) -> Result<(), FsError> {
        let released = self.dentries.borrow_mut().put(dentry);
        self.release_all(released).await
    }

    async fn release_all(&self, places: Vec<Place>) -> Result<(), FsError> {
        for place in places {
            self.release(place).await?;
        }
        Ok(())
    }

    /// Takes a lock alone, after waiting for it.
    async fn lock(&self, name: LockName) -> LockGuard<'_> {
        self.locks.lock(name, Hold::Alone).await
    }

    /// Drops clean pages (`echo 1 > /proc/sys/vm/drop_caches`), unused dentries and inodes
    /// (2), or both (3).
    ///
    /// # Errors
    /// [`FsError::BadCall`] for other numbers, and those of the file system.
    pub async fn drop_caches(&self, what: u32) -> Result<(), FsError> {
        if !(1..=3).contains(&what) {
            return Err(FsError::BadCall);
        }
        if what & 1 != 0 {
            let inodes = self.inodes.borrow();
            let mounts = self.mounts.borrow();
            let files = inodes.values().filter_map(|inode| inode.data);
            let devices = mounts.iter().filter_map(|mount| mount.drive.buffers);
            for data in files.chain(devices) {
                self.vfs.invalidate_mapping_pages(data, 0, u64::MAX);
            }
        }
        if what & 2 != 0 {
            self.drop_dentries().await?;
            self.drop_inodes().await?;
        }
        Ok(())
    }

    /// Drops unused dentries until there are none; freeing one may leave its parent unused.
    async fn drop_dentries(&self) -> Result<(), FsError> {
        loop {
            let unused = self.dentries.borrow().unused();
            if unused == 0 {
                return Ok(());
            }
            let released = self.dentries.borrow_mut().prune(unused);
            self.release_all(released).await?;
        }
    }

    /// Drops unused inodes from memory, except those with cached pages.
    async fn drop_inodes(&self) -> Result<(), FsError> {
        let unused: Vec<Place> = {
            let inodes = self.inodes.borrow();
            let unused = inodes.iter().filter(|(_, inode)| {
                let has_pages = |data| self.vfs.cached_pages(data) > 0;
                inode.users == 0 && !inode.data.is_some_and(has_pages)
            });
            unused.map(|(&place, _)| place).collect()
        };
        for place in unused {
            self.evict(place).await?;
        }
        Ok(())
    }
}
