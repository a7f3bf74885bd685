//! Calls that change names: create, link, unlink, rename (`fs/namei.c`).

use super::Namespace;
use super::walk::{Last, LastName, NAME_BYTES_MAX};
use crate::error::FsError;
use crate::file_system::{Caller, FileKind, FileSystem, NewInode, may_replace};
use crate::vfs::Host;
use crate::vfs::dentry::{DentryId, Place};

/// A name that a call changes, while its directory is locked.
struct Name<'a, F> {
    fs: &'a F,
    dir: Place,
    name: &'a [u8],
    dentry: DentryId,
    must_be_dir: bool,
}

impl<H: Host, F: FileSystem> Namespace<H, F> {
    /// Looks up the last name of a path and calls `change` with the directory locked. Drops
    /// all references afterwards. The root has no name, and fails with `at_root`.
    async fn change_name<T>(
        &self,
        (path, at_root): (&[u8], FsError),
        change: impl AsyncFnOnce(Name<'_, F>) -> Result<T, FsError>,
    ) -> Result<T, FsError> {
        let (dir, last) = self.walk_to_parent(path, &mut 0).await?;
        let changed = match last {
            None => Err(at_root),
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

    /// Creates a file, a directory or a symbolic link.
    ///
    /// # Errors
    /// [`FsError::Exists`], and those of [`Namespace::stat`] and [`FileSystem::create`].
    pub async fn create(
        &self,
        path: &[u8],
        new: NewInode<'_>,
        caller: &Caller,
    ) -> Result<Place, FsError> {
        self.change_name((path, FsError::Exists), async |name| {
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

    /// Adds a hard link to a file.
    ///
    /// # Errors
    /// As [`Namespace::create`]; [`FsError::OtherDevice`] across mounts.
    pub async fn link(&self, from: &[u8], to: &[u8], caller: &Caller) -> Result<(), FsError> {
        let old = self.walk(from, Last::NoFollow).await?;
        let place = self.positive(old)?;
        let linked = self
            .change_name((to, FsError::Exists), async |name| {
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

    /// Removes a name. The file is deleted when it has no name left and is not open.
    ///
    /// # Errors
    /// [`FsError::NoEntry`], [`FsError::IsDirectory`], and those of [`Namespace::stat`] and
    /// [`FileSystem::unlink`].
    pub async fn unlink(&self, path: &[u8], caller: &Caller) -> Result<(), FsError> {
        self.now.set(caller.now);
        let lost = self
            .change_name((path, FsError::IsDirectory), async |name| {
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
    /// [`FsError::NotDirectory`], [`FsError::NotEmpty`], [`FsError::Busy`] for a mount
    /// point and the root, and those of [`Namespace::stat`].
    pub async fn remove_dir(&self, path: &[u8], caller: &Caller) -> Result<(), FsError> {
        self.now.set(caller.now);
        let lost = self
            .change_name((path, FsError::Busy), async |name| {
                let place = self.positive(name.dentry)?;
                let kind = name.fs.attributes(place.ino).await?.kind;
                if kind != FileKind::Directory {
                    return Err(FsError::NotDirectory);
                }
                if self.is_mounted_on(name.dentry) {
                    return Err(FsError::Busy);
                }
                name.fs.remove_dir(name.dir.ino, name.name, caller).await?;
                let mut dentries = self.dentries.borrow_mut();
                dentries.shrink_children(name.dentry);
                Ok(dentries.make_negative(name.dentry))
            })
            .await?;
        self.release_all(Vec::from_iter(lost)).await
    }

    fn is_mounted_on(&self, dentry: DentryId) -> bool {
        let mounts = self.mounts.borrow();
        mounts.iter().any(|mount| mount.on == Some(dentry))
    }

    /// Renames a file or directory, and replaces what had the new name.
    ///
    /// # Errors
    /// [`FsError::BadCall`] for a directory into itself, [`FsError::OtherDevice`]
    /// across mounts, [`FsError::Busy`] for a mount point, and those of
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
                moved.map(|_| {
                    let mut dentries = self.dentries.borrow_mut();
                    dentries.shrink_children(new);
                    dentries.take_name(old, new)
                })
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

    /// Checks a rename. Whether it has anything to do: two names of one inode stay as they
    /// are.
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

    /// Whether a dentry is `below` itself, or a directory above it (`is_subdir`).
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
}
