//! The tree of names: what is mounted where, and which inodes are in memory (`fs/namespace.c`,
//! `fs/inode.c`); calls on names and files are in the files below.

mod change;
mod open_file;
mod walk;

pub use open_file::{OpenFile, OpenFlags};

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

use walk::Last;

use super::dentry::{DentryCache, DentryCounts, DentryId, Place};
use crate::error::FsError;
use crate::file_system::{FileKind, FileSystem, Timestamp};
use crate::inode::{BackingDevice, InodeId};
use crate::vfs::{Host, Vfs};
use crate::write_back::DeviceId;

/// The drive that a file system is on, as its files see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MountedOn {
    /// What readahead has to know of it.
    pub readahead: BackingDevice,
    /// The device whose flusher writes it.
    pub device: DeviceId,
    /// Its buffer cache, where that is in the page cache as well.
    pub buffers: Option<InodeId>,
}

impl From<BackingDevice> for MountedOn {
    fn from(readahead: BackingDevice) -> MountedOn {
        MountedOn {
            readahead,
            device: DeviceId::default(),
            buffers: None,
        }
    }
}

#[derive(Debug)]
struct Mount<F> {
    fs: Rc<F>,
    drive: MountedOn,
    root: DentryId,
    /// The directory that it hides; the root has none.
    on: Option<DentryId>,
}

/// An inode in memory.
#[derive(Debug, Default)]
struct InCore {
    /// Dentries and open files.
    users: u32,
    /// Its pages, and its state in write-back.
    data: Option<InodeId>,
}

/// Who has a lock, and who waits for it.
#[derive(Debug, Default)]
struct Lock {
    is_held: bool,
    waiters: Vec<Waker>,
}

/// What is locked: one inode, or all renames.
type LockName = Option<Place>;

/// Files by their names: several file systems as one tree, over one page cache.
#[derive(Debug)]
pub struct Namespace<H, F> {
    vfs: Rc<Vfs<H>>,
    mounts: RefCell<Vec<Mount<F>>>,
    dentries: RefCell<DentryCache>,
    inodes: RefCell<BTreeMap<Place, InCore>>,
    locks: RefCell<BTreeMap<LockName, Lock>>,
    /// The time of the last call that changed something: that of what its end deletes.
    now: Cell<Timestamp>,
}

/// A lock that is held; it ends when this is dropped.
struct Held<'a> {
    locks: &'a RefCell<BTreeMap<LockName, Lock>>,
    name: LockName,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if let Some(lock) = self.locks.borrow_mut().remove(&self.name) {
            lock.waiters.into_iter().for_each(Waker::wake);
        }
    }
}

impl<H: Host, F: FileSystem> Namespace<H, F> {
    /// A tree with one file system, whose root is everybody's root.
    pub fn new(vfs: Rc<Vfs<H>>, fs: Rc<F>, drive: impl Into<MountedOn>) -> Namespace<H, F> {
        let namespace = Namespace {
            vfs,
            mounts: RefCell::default(),
            dentries: RefCell::default(),
            inodes: RefCell::default(),
            locks: RefCell::default(),
            now: Cell::default(),
        };
        namespace.add_mount(fs, drive.into(), None);
        namespace
    }

    fn add_mount(&self, fs: Rc<F>, drive: MountedOn, on: Option<DentryId>) {
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

    /// Mounts a file system on a directory, whose names are hidden from then on.
    ///
    /// # Errors
    /// Those of walks; [`FsError::NotDirectory`], [`FsError::Busy`] where something is
    /// mounted.
    pub async fn mount(
        &self,
        fs: Rc<F>,
        drive: impl Into<MountedOn>,
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

    /// How lookups of names went.
    pub fn dentry_counts(&self) -> DentryCounts {
        self.dentries.borrow().counts()
    }

    /// Inodes in memory.
    pub fn inodes_in_memory(&self) -> u64 {
        self.inodes.borrow().len() as u64
    }

    /// The inode whose pages these are.
    pub fn place_of(&self, data: InodeId) -> Option<Place> {
        let inodes = self.inodes.borrow();
        let mut found = inodes.iter().filter(|(_, inode)| inode.data == Some(data));
        found.next().map(|(&place, _)| place)
    }

    pub(super) fn fs(&self, place: Place) -> Rc<F> {
        Rc::clone(&self.mounts.borrow()[place.mount as usize].fs)
    }

    /// One user more of an inode.
    fn hold(&self, place: Place) {
        self.inodes.borrow_mut().entry(place).or_default().users += 1;
    }

    /// One user less; an inode without users and without links is deleted.
    async fn release(&self, place: Place) -> Result<(), FsError> {
        let users = {
            let mut inodes = self.inodes.borrow_mut();
            let inode = inodes.entry(place).or_default();
            inode.users -= 1;
            inode.users
        };
        if users > 0 || self.fs(place).attributes(place.ino).await?.links > 0 {
            return Ok(());
        }
        // Somebody may have found it again meanwhile, through an open file.
        let is_unused = (self.inodes.borrow().get(&place)).is_some_and(|inode| inode.users == 0);
        if is_unused {
            self.evict(place).await?;
        }
        Ok(())
    }

    /// An inode leaves memory, with its pages.
    async fn evict(&self, place: Place) -> Result<(), FsError> {
        let Some(inode) = self.inodes.borrow_mut().remove(&place) else {
            return Ok(());
        };
        if let Some(data) = inode.data {
            self.vfs.evict(data).await;
        }
        self.fs(place).evict(place.ino, self.now.get()).await
    }

    /// The flusher is to write the inode, where the call that was just made changed it.
    /// A change that is `only_times` matters to no `fdatasync`.
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

    /// Waits for a lock.
    async fn lock(&self, name: LockName) -> Held<'_> {
        poll_fn(|context| {
            let mut locks = self.locks.borrow_mut();
            let lock = locks.entry(name).or_default();
            if std::mem::replace(&mut lock.is_held, true) {
                lock.waiters.push(context.waker().clone());
                return Poll::Pending;
            }
            Poll::Ready(())
        })
        .await;
        Held {
            locks: &self.locks,
            name,
        }
    }

    /// Drops what memory has besides: clean pages (`echo 1 > /proc/sys/vm/drop_caches`),
    /// names and inodes that nobody uses (2), or both (3).
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
            self.drop_names().await?;
            self.drop_inodes().await?;
        }
        Ok(())
    }

    /// Drops unused names until there are none; each round frees those above the ones
    /// of the round before.
    async fn drop_names(&self) -> Result<(), FsError> {
        loop {
            let unused = self.dentries.borrow().unused();
            if unused == 0 {
                return Ok(());
            }
            let released = self.dentries.borrow_mut().prune(unused);
            self.release_all(released).await?;
        }
    }

    /// Inodes that nobody uses leave memory, but those that have pages: they go with
    /// the pages.
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
