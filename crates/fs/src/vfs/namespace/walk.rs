//! Path walks, across symbolic links and mounts (`fs/namei.c`).

use super::Namespace;
use crate::error::FsError;
use crate::file_system::{Attributes, FileKind, FileSystem, SYMLINKS_MAX, names_of};
use crate::vfs::Host;
use crate::vfs::dentry::{DentryId, Place};

/// The longest name in bytes (`NAME_MAX`).
pub(super) const NAME_BYTES_MAX: usize = 255;
/// The longest path in bytes, with the zero at its end (`PATH_MAX`).
const PATH_BYTES_MAX: usize = 4096;

/// A path's last name, and whether it must be a directory's.
pub(super) type LastName = (Vec<u8>, bool);

/// Whether a walk follows a symbolic link that is the last name (`LOOKUP_FOLLOW`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Last {
    Follow,
    NoFollow,
}

impl<H: Host, F: FileSystem> Namespace<H, F> {
    /// The inode of a dentry that is not negative.
    pub(super) fn positive(&self, dentry: DentryId) -> Result<Place, FsError> {
        self.dentries.borrow().place(dentry).ok_or(FsError::NoEntry)
    }

    pub(super) async fn kind_of(&self, dentry: DentryId) -> Result<FileKind, FsError> {
        let place = self.positive(dentry)?;
        Ok(self.fs(place).attributes(place.ino).await?.kind)
    }

    /// The root of the file system mounted on a dentry, or the dentry itself. The caller's
    /// reference moves to it (`traverse_mounts`).
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

    /// The parent directory, across mounts; that of the root is the root (`follow_dotdot`).
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

    /// Looks a name up in a directory. The dentry gets a reference and may be negative.
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
    pub(super) async fn lookup_locked(
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

    /// Walks a path. The dentry at its end gets a reference and is not negative.
    pub(super) async fn walk(&self, path: &[u8], last: Last) -> Result<DentryId, FsError> {
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

    /// Walks a path up to its last name. Returns the directory and the name; no name if the
    /// path ends with a directory itself, such as the root or `..`.
    pub(super) async fn walk_to_parent(
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

    /// Walks one name further, and drops the caller's reference to `dir`, also on errors.
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

    /// Walks the target of a symbolic link in `dir`.
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

    /// `stat` of a path, or `lstat` unless `follow`.
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

    /// The target of a symbolic link (`readlink`).
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
}
