//! The tree of names: mounts, path walks, and calls on names and open files (`fs/namei.c`,
//! `fs/open.c`, `fs/read_write.c`).

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

use super::dentry::{DentryCache, DentryCounts, DentryId};
use crate::PAGE_BYTES;
use crate::direct::DirectCall;
use crate::error::FsError;
use crate::file_system::{
    Attributes, Caller, Change, DirEntry, FileKind, FileSystem, Ino, NewInode, SYMLINKS_MAX,
    Timestamp, may_replace, names_of,
};
use crate::inode::{BackingDevice, File, Inode, InodeId, ReadPath};
use crate::vfs::{Host, Vfs};
use crate::write_back::DeviceId;

/// Bytes of a name at most (`NAME_MAX`).
const NAME_BYTES_MAX: usize = 255;
/// Bytes of a path at most, with the zero behind it (`PATH_MAX`).
const PATH_BYTES_MAX: usize = 4096;

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

/// An inode of one of the mounted file systems.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Which mount, counted from 0, the root.
    pub mount: u32,
    /// Its number there.
    pub ino: Ino,
}

/// How a file is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenFlags {
    /// It will be read (`O_RDONLY`, `O_RDWR`).
    pub read: bool,
    /// It will be written (`O_WRONLY`, `O_RDWR`).
    pub write: bool,
    /// It is made with these permissions where it is not there (`O_CREAT`).
    pub create: Option<u16>,
    /// It must not be there (`O_EXCL`).
    pub exclusive: bool,
    /// It is cut to nothing (`O_TRUNC`).
    pub truncate: bool,
    /// Writes go to its end (`O_APPEND`).
    pub append: bool,
    /// It must be a directory (`O_DIRECTORY`).
    pub directory: bool,
    /// A symbolic link is not followed (`O_NOFOLLOW`).
    pub no_follow: bool,
}

/// An open file: where it is, its position, and its readahead state.
#[derive(Debug)]
pub struct OpenFile {
    dentry: DentryId,
    place: Place,
    flags: OpenFlags,
    position: Cell<u64>,
    /// Where the next names of a directory are; `None` at its end.
    cursor: Cell<Option<u64>>,
    /// What is open in the page cache, for regular files.
    file: Option<Rc<File>>,
    /// Whether the time of access was looked at.
    was_accessed: Cell<bool>,
}

impl OpenFile {
    /// Which inode is open.
    pub fn place(&self) -> Place {
        self.place
    }

    /// Where the next read or write begins, in bytes.
    pub fn position(&self) -> u64 {
        self.position.get()
    }

    /// Moves the position (`lseek`); a directory is read from its beginning.
    pub fn seek(&self, position: u64) {
        self.position.set(position);
        self.cursor.set(Some(0));
    }

    /// The pages of a regular file.
    ///
    /// # Errors
    /// [`FsError::IsDirectory`].
    pub fn data(&self) -> Result<&Rc<File>, FsError> {
        self.file.as_ref().ok_or(FsError::IsDirectory)
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

/// A path's last name, and whether it must be a directory's.
type LastName = (Vec<u8>, bool);

/// How a walk treats the last name of its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Last {
    Follow,
    NoFollow,
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

    fn positive(&self, dentry: DentryId) -> Result<Place, FsError> {
        self.dentries.borrow().place(dentry).ok_or(FsError::NoEntry)
    }

    async fn kind_of(&self, dentry: DentryId) -> Result<FileKind, FsError> {
        let place = self.positive(dentry)?;
        Ok(self.fs(place).attributes(place.ino).await?.kind)
    }

    /// What is mounted on a dentry, if anything is: its root, with one user more; the
    /// dentry has one less.
    async fn cross(&self, dentry: DentryId) -> Result<DentryId, FsError> {
        let mut here = dentry;
        loop {
            let mounted = {
                let mounts = self.mounts.borrow();
                let found = mounts.iter().rfind(|mount| mount.on == Some(here));
                found.map(|mount| mount.root)
            };
            let Some(root) = mounted else {
                return Ok(here);
            };
            self.dentries.borrow_mut().get(root);
            self.put(here).await?;
            here = root;
        }
    }

    /// The directory above, across mounts; the root is above itself.
    fn above(&self, dentry: DentryId) -> DentryId {
        let mut here = dentry;
        loop {
            if let Some(parent) = self.dentries.borrow().parent(here) {
                return parent;
            }
            let mounts = self.mounts.borrow();
            let on = mounts.iter().find(|mount| mount.root == here);
            match on.and_then(|mount| mount.on) {
                Some(on) => here = on,
                None => return here,
            }
        }
    }

    /// Looks a name up in a directory; the dentry has one user more, and may be
    /// negative.
    async fn lookup(&self, dir: DentryId, name: &[u8]) -> Result<DentryId, FsError> {
        if name.len() > NAME_BYTES_MAX {
            return Err(FsError::NameTooLong);
        }
        let place = self.positive(dir)?;
        let fs = self.fs(place);
        let key = fs.name_key(name);
        let cached = self.dentries.borrow_mut().lookup(dir, &key);
        if let Some(found) = cached {
            return Ok(found);
        }
        let _held = self.lock(Some(place)).await;
        self.lookup_locked(dir, place, name).await
    }

    /// Looks a name up while its directory is locked.
    async fn lookup_locked(
        &self,
        dir: DentryId,
        place: Place,
        name: &[u8],
    ) -> Result<DentryId, FsError> {
        let fs = self.fs(place);
        let key = fs.name_key(name);
        let cached = self.dentries.borrow_mut().find(dir, &key);
        if let Some(found) = cached {
            return Ok(found);
        }
        let found = fs.lookup(place.ino, name).await?;
        let found = found.map(|ino| Place { ino, ..place });
        if let Some(found) = found {
            self.hold(found);
        }
        Ok((self.dentries.borrow_mut()).add(dir, key.into_owned(), found))
    }

    /// Walks a path; the dentry at its end has one user more. It is positive.
    async fn walk(&self, path: &[u8], last: Last) -> Result<DentryId, FsError> {
        let mut links = 0;
        let (dir, name) = self.walk_to_parent(path, &mut links).await?;
        let Some((name, must_be_dir)) = name else {
            return Ok(dir);
        };
        let follow = last == Last::Follow || must_be_dir;
        let found = self.step(dir, &name, follow, &mut links).await?;
        let checked = match must_be_dir {
            true => self.kind_of(found).await,
            false => Ok(FileKind::Directory),
        };
        match checked {
            Ok(FileKind::Directory) => Ok(found),
            other => {
                self.put(found).await?;
                Err(other.err().unwrap_or(FsError::NotDirectory))
            }
        }
    }

    /// Walks a path up to its last name, which is returned with whether it must be a
    /// directory's; `None` where the path names no entry, such as the root.
    async fn walk_to_parent(
        &self,
        path: &[u8],
        links: &mut u32,
    ) -> Result<(DentryId, Option<LastName>), FsError> {
        if path.is_empty() {
            return Err(FsError::NoEntry);
        }
        if path.len() >= PATH_BYTES_MAX {
            return Err(FsError::NameTooLong);
        }
        let root = self.mounts.borrow()[0].root;
        self.dentries.borrow_mut().get(root);
        let mut here = self.cross(root).await?;
        let names: Vec<&[u8]> = names_of(path).collect();
        let Some((last, before)) = names.split_last() else {
            return Ok((here, None));
        };
        for name in before {
            here = self.step(here, name, true, links).await?;
        }
        if *last == b".." {
            let here = self.step(here, last, true, links).await?;
            return Ok((here, None));
        }
        let must_be_dir = path.ends_with(b"/") || path.ends_with(b"/.");
        Ok((here, Some((last.to_vec(), must_be_dir))))
    }

    /// One name further: gives up the user of `dir`, also where it fails.
    async fn step(
        &self,
        dir: DentryId,
        name: &[u8],
        follow: bool,
        links: &mut u32,
    ) -> Result<DentryId, FsError> {
        let found = self.step_from(dir, name, follow, links).await;
        self.put(dir).await?;
        found
    }

    async fn step_from(
        &self,
        dir: DentryId,
        name: &[u8],
        follow: bool,
        links: &mut u32,
    ) -> Result<DentryId, FsError> {
        if self.kind_of(dir).await? != FileKind::Directory {
            return Err(FsError::NotDirectory);
        }
        if name == b".." {
            let above = self.above(dir);
            self.dentries.borrow_mut().get(above);
            return self.cross(above).await;
        }
        let found = self.lookup(dir, name).await?;
        let kind = self.kind_of(found).await;
        match kind {
            Ok(FileKind::Symlink) if follow => {
                let target = self.follow(dir, found, links).await;
                self.put(found).await?;
                target
            }
            Ok(_) => self.cross(found).await,
            Err(error) => {
                self.put(found).await?;
                Err(error)
            }
        }
    }

    /// Where a symbolic link in `dir` leads.
    async fn follow(
        &self,
        dir: DentryId,
        link: DentryId,
        links: &mut u32,
    ) -> Result<DentryId, FsError> {
        *links += 1;
        if *links > SYMLINKS_MAX {
            return Err(FsError::LinkLoop);
        }
        let place = self.positive(link)?;
        let target = self.fs(place).read_link(place.ino).await?;
        let start = match target.first() {
            None => return Err(FsError::NoEntry),
            Some(b'/') => self.mounts.borrow()[0].root,
            Some(_) => dir,
        };
        self.dentries.borrow_mut().get(start);
        let mut here = start;
        for name in names_of(&target) {
            here = Box::pin(self.step(here, name, true, links)).await?;
        }
        Ok(here)
    }

    /// What `stat` tells of a path, `lstat` where links are not followed.
    ///
    /// # Errors
    /// [`FsError::NoEntry`], [`FsError::NotDirectory`], [`FsError::LinkLoop`],
    /// [`FsError::NameTooLong`], and those of the file system.
    pub async fn stat(&self, path: &[u8], follow: bool) -> Result<(Place, Attributes), FsError> {
        let last = if follow { Last::Follow } else { Last::NoFollow };
        let dentry = self.walk(path, last).await?;
        let place = self.positive(dentry)?;
        let attributes = self.fs(place).attributes(place.ino).await;
        self.put(dentry).await?;
        Ok((place, attributes?))
    }

    /// Where a symbolic link leads.
    ///
    /// # Errors
    /// Those of [`Namespace::stat`]; [`FsError::BadCall`] for other files.
    pub async fn read_link(&self, path: &[u8]) -> Result<Vec<u8>, FsError> {
        let dentry = self.walk(path, Last::NoFollow).await?;
        let place = self.positive(dentry)?;
        let target = self.fs(place).read_link(place.ino).await;
        self.put(dentry).await?;
        target
    }

    /// The last name of a path in its directory, looked up, for a call that changes it.
    /// Calls `change` with the directory locked; gives back all users.
    async fn change_name<T>(
        &self,
        path: &[u8],
        change: impl AsyncFnOnce(Name<'_, F>) -> Result<T, FsError>,
    ) -> Result<T, FsError> {
        let (dir, last) = self.walk_to_parent(path, &mut 0).await?;
        let changed = match last {
            None => Err(FsError::Exists),
            Some((name, must_be_dir)) => self.change_in(dir, &name, must_be_dir, change).await,
        };
        self.put(dir).await?;
        changed
    }

    async fn change_in<T>(
        &self,
        dir: DentryId,
        name: &[u8],
        must_be_dir: bool,
        change: impl AsyncFnOnce(Name<'_, F>) -> Result<T, FsError>,
    ) -> Result<T, FsError> {
        if self.kind_of(dir).await? != FileKind::Directory {
            return Err(FsError::NotDirectory);
        }
        if name.len() > NAME_BYTES_MAX {
            return Err(FsError::NameTooLong);
        }
        let place = self.positive(dir)?;
        let held = self.lock(Some(place)).await;
        let dentry = self.lookup_locked(dir, place, name).await?;
        let fs = self.fs(place);
        let changed = change(Name {
            fs: &fs,
            dir: place,
            name,
            dentry,
            must_be_dir,
        })
        .await;
        self.mark_changed(place, false).await?;
        drop(held);
        self.put(dentry).await?;
        changed
    }

    /// Makes something by a new name.
    ///
    /// # Errors
    /// [`FsError::Exists`], and those of walks and of the file system.
    pub async fn create(
        &self,
        path: &[u8],
        new: NewInode<'_>,
        caller: &Caller,
    ) -> Result<Place, FsError> {
        self.change_name(path, async |name| {
            if name.must_be_dir && !matches!(new, NewInode::Directory(_)) {
                return Err(FsError::NoEntry);
            }
            self.create_in(&name, new, caller).await
        })
        .await
    }

    async fn create_in(
        &self,
        name: &Name<'_, F>,
        new: NewInode<'_>,
        caller: &Caller,
    ) -> Result<Place, FsError> {
        if self.dentries.borrow().place(name.dentry).is_some() {
            return Err(FsError::Exists);
        }
        let ino = name.fs.create(name.dir.ino, name.name, new, caller).await?;
        let place = Place { ino, ..name.dir };
        self.hold(place);
        (self.dentries.borrow_mut()).make_positive(name.dentry, place);
        self.mark_changed(place, false).await?;
        Ok(place)
    }

    /// A further name of a file.
    ///
    /// # Errors
    /// As [`Namespace::create`]; [`FsError::OtherDevice`] across mounts.
    pub async fn link(&self, from: &[u8], to: &[u8], caller: &Caller) -> Result<(), FsError> {
        let old = self.walk(from, Last::NoFollow).await?;
        let place = self.positive(old)?;
        let linked = self
            .change_name(to, async |name| {
                if self.dentries.borrow().place(name.dentry).is_some() {
                    return Err(FsError::Exists);
                }
                if name.dir.mount != place.mount {
                    return Err(FsError::OtherDevice);
                }
                name.fs
                    .link(place.ino, name.dir.ino, name.name, caller)
                    .await?;
                self.hold(place);
                (self.dentries.borrow_mut()).make_positive(name.dentry, place);
                self.mark_changed(place, false).await
            })
            .await;
        self.put(old).await?;
        linked
    }

    /// Removes a name; with the last name and the last user the file is deleted.
    ///
    /// # Errors
    /// [`FsError::NoEntry`], [`FsError::IsDirectory`], and those of walks and of the
    /// file system.
    pub async fn unlink(&self, path: &[u8], caller: &Caller) -> Result<(), FsError> {
        self.now.set(caller.now);
        let lost = self
            .change_name(path, async |name| {
                let place = self.positive(name.dentry)?;
                let kind = name.fs.attributes(place.ino).await?.kind;
                if kind == FileKind::Directory {
                    return Err(FsError::IsDirectory);
                }
                if name.must_be_dir {
                    return Err(FsError::NotDirectory);
                }
                name.fs.unlink(name.dir.ino, name.name, caller).await?;
                self.mark_changed(place, false).await?;
                Ok(self.dentries.borrow_mut().make_negative(name.dentry))
            })
            .await?;
        self.release_all(Vec::from_iter(lost)).await
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// [`FsError::NotDirectory`], [`FsError::NotEmpty`], [`FsError::Busy`] where
    /// something is mounted, and those of walks.
    pub async fn remove_dir(&self, path: &[u8], caller: &Caller) -> Result<(), FsError> {
        self.now.set(caller.now);
        let lost = self
            .change_name(path, async |name| {
                let place = self.positive(name.dentry)?;
                let kind = name.fs.attributes(place.ino).await?.kind;
                if kind != FileKind::Directory {
                    return Err(FsError::NotDirectory);
                }
                if self.is_mounted_on(name.dentry) {
                    return Err(FsError::Busy);
                }
                name.fs.remove_dir(name.dir.ino, name.name, caller).await?;
                Ok(self.dentries.borrow_mut().make_negative(name.dentry))
            })
            .await?;
        self.release_all(Vec::from_iter(lost)).await
    }

    fn is_mounted_on(&self, dentry: DentryId) -> bool {
        let mounts = self.mounts.borrow();
        mounts.iter().any(|mount| mount.on == Some(dentry))
    }

    /// Gives something another name; what had that name loses it.
    ///
    /// # Errors
    /// [`FsError::BadCall`] for a directory into itself, [`FsError::OtherDevice`]
    /// across mounts, [`FsError::Busy`] for what is mounted on, and those of
    /// [`Namespace::unlink`] and [`Namespace::remove_dir`].
    pub async fn rename(&self, from: &[u8], to: &[u8], caller: &Caller) -> Result<(), FsError> {
        self.now.set(caller.now);
        let _renames = self.lock(None).await;
        let (from_dir, from_last) = self.walk_to_parent(from, &mut 0).await?;
        let walked = self.walk_to_parent(to, &mut 0).await;
        let (to_dir, to_last) = match walked {
            Ok(walked) => walked,
            Err(error) => {
                self.put(from_dir).await?;
                return Err(error);
            }
        };
        let renamed = match (from_last, to_last) {
            (Some(from), Some(to)) => self.rename_in((from_dir, from), (to_dir, to), caller).await,
            _ => Err(FsError::Busy),
        };
        self.put(from_dir).await?;
        self.put(to_dir).await?;
        renamed
    }

    async fn rename_in(
        &self,
        from: (DentryId, LastName),
        to: (DentryId, LastName),
        caller: &Caller,
    ) -> Result<(), FsError> {
        let ((from_dir, (from_name, from_is_dir)), (to_dir, (to_name, to_is_dir))) = (from, to);
        for dir in [from_dir, to_dir] {
            if self.kind_of(dir).await? != FileKind::Directory {
                return Err(FsError::NotDirectory);
            }
        }
        let (from_place, to_place) = (self.positive(from_dir)?, self.positive(to_dir)?);
        if from_place.mount != to_place.mount {
            return Err(FsError::OtherDevice);
        }
        if from_name.len().max(to_name.len()) > NAME_BYTES_MAX {
            return Err(FsError::NameTooLong);
        }
        let first = self.lock(Some(from_place.min(to_place))).await;
        let second = match from_place == to_place {
            true => None,
            false => Some(self.lock(Some(from_place.max(to_place))).await),
        };
        let old = self.lookup_locked(from_dir, from_place, &from_name).await?;
        let new = match self.lookup_locked(to_dir, to_place, &to_name).await {
            Ok(new) => new,
            Err(error) => {
                self.put(old).await?;
                return Err(error);
            }
        };
        let must_be_dir = from_is_dir || to_is_dir;
        let moved = match self.may_rename(old, new, to_dir, must_be_dir).await {
            Ok(true) => {
                let from = (from_place.ino, &*from_name);
                let fs = self.fs(from_place);
                let moved = fs.rename(from, (to_place.ino, &to_name), caller).await;
                moved.map(|_| self.dentries.borrow_mut().take_name(old, new))
            }
            Ok(false) => Ok(None),
            Err(error) => Err(error),
        };
        let moved_place = self.positive(old).ok();
        for changed in [from_place, to_place].into_iter().chain(moved_place) {
            self.mark_changed(changed, false).await?;
        }
        drop((first, second));
        if let Ok(Some(lost_child)) = moved {
            self.put(lost_child).await?;
        }
        self.put(old).await?;
        self.put(new).await?;
        moved.map(|_| ())
    }

    /// Whether a rename has anything to do.
    async fn may_rename(
        &self,
        old: DentryId,
        new: DentryId,
        to_dir: DentryId,
        must_be_dir: bool,
    ) -> Result<bool, FsError> {
        let place = self.positive(old)?;
        let over = self.dentries.borrow().place(new);
        if over == Some(place) {
            return Ok(false);
        }
        let is_dir = self.kind_of(old).await? == FileKind::Directory;
        if must_be_dir && !is_dir {
            return Err(FsError::NotDirectory);
        }
        if is_dir && self.is_above(old, to_dir) {
            return Err(FsError::BadCall);
        }
        if self.is_above(new, old) && over.is_some() {
            return Err(FsError::NotEmpty);
        }
        if over.is_some() {
            may_replace(is_dir, self.kind_of(new).await? == FileKind::Directory)?;
        }
        if self.is_mounted_on(old) || self.is_mounted_on(new) {
            return Err(FsError::Busy);
        }
        Ok(true)
    }

    /// Whether a dentry is another one, or a directory that it is in.
    fn is_above(&self, dentry: DentryId, below: DentryId) -> bool {
        let dentries = self.dentries.borrow();
        let mut here = Some(below);
        while let Some(id) = here {
            if id == dentry {
                return true;
            }
            here = dentries.parent(id);
        }
        false
    }

    /// Opens a file, or makes it.
    ///
    /// # Errors
    /// Those of walks and of the file system; [`FsError::IsDirectory`] for writing a
    /// directory, [`FsError::LinkLoop`] for a link that is not followed.
    pub async fn open(
        &self,
        path: &[u8],
        flags: OpenFlags,
        caller: &Caller,
    ) -> Result<OpenFile, FsError> {
        self.now.set(caller.now);
        let must_be_new = flags.create.is_some() && flags.exclusive;
        let follow = !(flags.no_follow || must_be_new);
        let last = if follow { Last::Follow } else { Last::NoFollow };
        let dentry = match (self.walk(path, last).await, flags.create) {
            (Err(FsError::NoEntry), Some(permissions)) => {
                self.create(path, NewInode::Regular(permissions), caller)
                    .await?;
                self.walk(path, last).await?
            }
            (Ok(found), Some(_)) if flags.exclusive => {
                self.put(found).await?;
                return Err(FsError::Exists);
            }
            (walked, _) => walked?,
        };
        let opened = self.open_dentry(dentry, flags, caller).await;
        if opened.is_err() {
            self.put(dentry).await?;
        }
        opened
    }

    async fn open_dentry(
        &self,
        dentry: DentryId,
        flags: OpenFlags,
        caller: &Caller,
    ) -> Result<OpenFile, FsError> {
        let place = self.positive(dentry)?;
        let fs = self.fs(place);
        let attributes = fs.attributes(place.ino).await?;
        match attributes.kind {
            FileKind::Symlink => return Err(FsError::LinkLoop),
            FileKind::Directory if flags.write || flags.create.is_some() => {
                return Err(FsError::IsDirectory);
            }
            FileKind::Directory => {}
            _ if flags.directory => return Err(FsError::NotDirectory),
            _ => {}
        }
        let file = match attributes.kind {
            FileKind::Regular => {
                let data = self.data_of(place, &attributes);
                Some(Rc::new(self.vfs.open(data)))
            }
            _ => None,
        };
        if flags.truncate && flags.write && file.is_some() {
            self.truncate_inode(place, 0, caller).await?;
        }
        self.hold(place);
        Ok(OpenFile {
            dentry,
            place,
            flags,
            position: Cell::new(0),
            cursor: Cell::new(Some(0)),
            file,
            was_accessed: Cell::new(false),
        })
    }

    /// Where an inode's pages are, and its state in write-back.
    fn data_of(&self, place: Place, attributes: &Attributes) -> InodeId {
        let mut inodes = self.inodes.borrow_mut();
        let inode = inodes.entry(place).or_default();
        *inode.data.get_or_insert_with(|| {
            let mounts = self.mounts.borrow();
            let mount = &mounts[place.mount as usize];
            let inode = Inode {
                size_bytes: attributes.size_bytes,
                block_bytes: u64::from(mount.fs.block_bytes()),
                large_folios: false,
                read_path: ReadPath::Mpage,
                is_device: false,
                device: mount.drive.readahead,
            };
            let data = self.vfs.add_inode_on(inode, mount.drive.device);
            self.vfs.host().inode_added(data, place);
            data
        })
    }

    /// Closes a file.
    ///
    /// # Errors
    /// Those of deleting it, where it had no name any more.
    pub async fn close(&self, file: OpenFile) -> Result<(), FsError> {
        if file.flags.write {
            self.fs(file.place).release(file.place.ino);
        }
        self.put(file.dentry).await?;
        self.release(file.place).await
    }

    /// Reads from the position on, and moves it. Returns how many bytes there were.
    ///
    /// # Errors
    /// [`FsError::IsDirectory`], [`FsError::BadCall`] for a file that was not opened
    /// for it.
    pub async fn read(&self, file: &OpenFile, bytes: u64) -> Result<u64, FsError> {
        let read = self.read_at(file, file.position(), bytes).await?;
        file.position.set(file.position() + read);
        Ok(read)
    }

    /// Reads at a place, the position stays.
    ///
    /// # Errors
    /// As [`Namespace::read`].
    pub async fn read_at(&self, file: &OpenFile, pos: u64, bytes: u64) -> Result<u64, FsError> {
        let data = file.data()?;
        if !file.flags.read {
            return Err(FsError::BadCall);
        }
        let read = self.vfs.read(data, pos, bytes).await?;
        self.accessed(file).await?;
        Ok(read)
    }

    /// Writes at the position, or at the end, and moves it.
    ///
    /// # Errors
    /// As [`Namespace::write_at`].
    pub async fn write(
        &self,
        file: &OpenFile,
        bytes: u64,
        caller: &Caller,
    ) -> Result<u64, FsError> {
        let data = file.data()?;
        if file.flags.append {
            file.position.set(self.vfs.size_bytes(data.inode));
        }
        let written = self.write_at(file, file.position(), bytes, caller).await?;
        file.position.set(file.position() + written);
        Ok(written)
    }

    /// Writes at a place, the position stays. Blocks are allocated at once.
    ///
    /// # Errors
    /// [`FsError::BadCall`] for a file that was not opened for it,
    /// [`FsError::IsDirectory`], [`FsError::NoSpace`], [`FsError::TooBig`].
    pub async fn write_at(
        &self,
        file: &OpenFile,
        pos: u64,
        bytes: u64,
        caller: &Caller,
    ) -> Result<u64, FsError> {
        let data = file.data()?;
        if !file.flags.write {
            return Err(FsError::BadCall);
        }
        let (fs, ino) = (self.fs(file.place), file.place.ino);
        let end = pos.checked_add(bytes).ok_or(FsError::TooBig)?;
        if end > fs.file_bytes_max() {
            return Err(FsError::TooBig);
        }
        let _held = self.lock(Some(file.place)).await;
        let size_before = self.vfs.size_bytes(data.inode);
        let written = match self.fill_to(file.place, data, pos).await {
            Ok(()) => self.vfs.write(data, pos, bytes).await,
            Err(error) => Err(error),
        };
        let size = self.vfs.size_bytes(data.inode);
        if written.is_ok() || size != size_before {
            fs.set_size(ino, size, caller.now);
            self.vfs.inode_changed(data.inode, size != size_before);
        }
        written
    }

    /// Reads at a place past the page cache (`O_DIRECT`).
    ///
    /// # Errors
    /// As [`Namespace::read`]; [`FsError::NotAligned`].
    pub async fn read_direct(&self, file: &OpenFile, call: DirectCall) -> Result<u64, FsError> {
        let data = file.data()?;
        if !file.flags.read {
            return Err(FsError::BadCall);
        }
        let read = self.vfs.read_direct(data, call).await?;
        self.accessed(file).await?;
        Ok(read)
    }

    /// Writes at a place past the page cache (`O_DIRECT`). What would fill a hole, and
    /// on VFAT what makes the file longer, goes through the page cache and is written
    /// at once (`ext2_dio_write_iter`, `fat_direct_IO`).
    ///
    /// # Errors
    /// As [`Namespace::write_at`]; [`FsError::NotAligned`].
    pub async fn write_direct(
        &self,
        file: &OpenFile,
        call: DirectCall,
        caller: &Caller,
    ) -> Result<u64, FsError> {
        let data = file.data()?;
        if !file.flags.write {
            return Err(FsError::BadCall);
        }
        let held = self.lock(Some(file.place)).await;
        let direct_bytes = self.allocate_direct(file, call, caller).await?;
        let mut written = 0;
        if direct_bytes > 0 {
            let size_before = self.vfs.size_bytes(data.inode);
            let call = DirectCall {
                bytes: direct_bytes,
                ..call
            };
            written = self.vfs.write_direct(data, call).await?;
            let size = self.vfs.size_bytes(data.inode);
            let fs = self.fs(file.place);
            fs.set_size(file.place.ino, size, caller.now);
            self.vfs.inode_changed(data.inode, size != size_before);
        }
        drop(held);
        if written < call.bytes {
            let (pos, bytes) = (call.pos + written, call.bytes - written);
            written += self.write_at(file, pos, bytes, caller).await?;
            let last = pos + bytes - 1;
            self.vfs.write_range(data.inode, pos, last, true).await;
            let pages = (pos / PAGE_BYTES, last / PAGE_BYTES);
            (self.vfs).invalidate_mapping_pages(data.inode, pages.0, pages.1);
        }
        Ok(written)
    }

    /// Blocks behind the end of a file for a direct write. Returns how many of its bytes
    /// may go to the device directly.
    async fn allocate_direct(
        &self,
        file: &OpenFile,
        call: DirectCall,
        caller: &Caller,
    ) -> Result<u64, FsError> {
        let (fs, ino) = (self.fs(file.place), file.place.ino);
        let size = self.vfs.size_bytes(file.data()?.inode);
        let end = call.pos.checked_add(call.bytes).ok_or(FsError::TooBig)?;
        if end > fs.file_bytes_max() {
            return Err(FsError::TooBig);
        }
        if !fs.has_holes() && end > size {
            return Ok(0);
        }
        let block_bytes = u64::from(fs.block_bytes());
        let (mut block, last) = (call.pos / block_bytes, end.div_ceil(block_bytes));
        while block < last {
            let is_behind = block * block_bytes >= size;
            let create = is_behind.then_some(caller);
            match fs.map(ino, block, last - block, create).await {
                Ok(map) if map.block.is_some() => block += map.blocks.max(1),
                Err(error) if block * block_bytes <= call.pos => return Err(error),
                _ => break,
            }
        }
        Ok((block * block_bytes).min(end).saturating_sub(call.pos))
    }

    /// Where a file cannot have holes, what lies between its end and `pos` is filled
    /// with zeroes (`cont_write_begin`).
    async fn fill_to(&self, place: Place, data: &File, pos: u64) -> Result<(), FsError> {
        let size = self.vfs.size_bytes(data.inode);
        if pos <= size || self.fs(place).has_holes() {
            return Ok(());
        }
        let filled = self.vfs.write(data, size, pos - size).await?;
        match filled == pos - size {
            true => Ok(()),
            false => Err(FsError::NoSpace),
        }
    }

    /// A file was read: its time of access is renewed if it is not newer than the last
    /// change (`relatime`).
    async fn accessed(&self, file: &OpenFile) -> Result<(), FsError> {
        if file.was_accessed.replace(true) {
            return Ok(());
        }
        let fs = self.fs(file.place);
        let attributes = fs.attributes(file.place.ino).await?;
        if attributes.accessed > attributes.modified.max(attributes.changed) {
            return Ok(());
        }
        let change = Change {
            accessed: Some(self.now.get()),
            ..Change::default()
        };
        fs.change(file.place.ino, &change).await?;
        self.mark_changed(file.place, true).await
    }

    /// Has a file's changes on the device: all of them, or what is needed to read its
    /// data.
    ///
    /// # Errors
    /// [`FsError::Device`] where something could not be written.
    pub async fn fsync(&self, file: &OpenFile, only_data: bool) -> Result<(), FsError> {
        match &file.file {
            Some(data) => self.vfs.fsync(data, 0, u64::MAX / 2, only_data).await,
            None => {
                let attributes = self.fs(file.place).attributes(file.place.ino).await?;
                let data = self.vfs.open(self.data_of(file.place, &attributes));
                self.vfs.fsync(&data, 0, u64::MAX / 2, only_data).await
            }
        }
    }

    /// Has all changes on their devices (`sync`).
    pub async fn sync(&self) {
        let mounts: Vec<(u32, MountedOn)> = {
            let mounts = self.mounts.borrow();
            (0..).zip(mounts.iter().map(|mount| mount.drive)).collect()
        };
        for (number, drive) in mounts {
            let inodes: Vec<InodeId> = {
                let inodes = self.inodes.borrow();
                let here = inodes.iter().filter(|(place, _)| place.mount == number);
                let pages = here.filter_map(|(_, inode)| inode.data);
                pages.chain(drive.buffers).collect()
            };
            self.vfs.sync(drive.device, &inodes).await;
        }
    }

    /// Cuts a file, or makes it longer by a hole.
    ///
    /// # Errors
    /// Those of walks; [`FsError::IsDirectory`], [`FsError::TooBig`].
    pub async fn truncate(
        &self,
        path: &[u8],
        size_bytes: u64,
        caller: &Caller,
    ) -> Result<(), FsError> {
        let dentry = self.walk(path, Last::Follow).await?;
        let cut = match self.kind_of(dentry).await {
            Ok(FileKind::Regular) => {
                let place = self.positive(dentry)?;
                self.truncate_inode(place, size_bytes, caller).await
            }
            Ok(FileKind::Directory) => Err(FsError::IsDirectory),
            Ok(_) => Err(FsError::BadCall),
            Err(error) => Err(error),
        };
        self.put(dentry).await?;
        cut
    }

    /// The same of an open file (`ftruncate`).
    ///
    /// # Errors
    /// As [`Namespace::write_at`].
    pub async fn resize(
        &self,
        file: &OpenFile,
        size_bytes: u64,
        caller: &Caller,
    ) -> Result<(), FsError> {
        file.data()?;
        match file.flags.write {
            true => self.truncate_inode(file.place, size_bytes, caller).await,
            false => Err(FsError::BadCall),
        }
    }

    async fn truncate_inode(
        &self,
        place: Place,
        size_bytes: u64,
        caller: &Caller,
    ) -> Result<(), FsError> {
        let fs = self.fs(place);
        if size_bytes > fs.file_bytes_max() {
            return Err(FsError::TooBig);
        }
        let _held = self.lock(Some(place)).await;
        let data = self
            .inodes
            .borrow()
            .get(&place)
            .and_then(|inode| inode.data);
        if let Some(data) = data {
            let file = self.vfs.open(data);
            self.fill_to(place, &file, size_bytes).await?;
            self.vfs.truncate(data, size_bytes).await;
        }
        fs.truncate(place.ino, size_bytes, caller).await?;
        self.mark_changed(place, false).await
    }

    /// Some of the next names of a directory (`getdents`); none at its end.
    ///
    /// # Errors
    /// [`FsError::NotDirectory`], and those of the file system.
    pub async fn read_dir(&self, dir: &OpenFile) -> Result<Vec<DirEntry>, FsError> {
        let mut entries = Vec::new();
        let fs = self.fs(dir.place);
        let _held = self.lock(Some(dir.place)).await;
        while entries.is_empty()
            && let Some(cursor) = dir.cursor.get()
        {
            let next = fs.read_dir(dir.place.ino, cursor, &mut entries).await?;
            dir.cursor.set(next);
        }
        self.accessed(dir).await?;
        Ok(entries)
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

/// A name that a call changes, its directory locked.
struct Name<'a, F> {
    fs: &'a F,
    dir: Place,
    name: &'a [u8],
    dentry: DentryId,
    must_be_dir: bool,
}
