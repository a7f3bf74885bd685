//! Open files: reads, writes, sync and truncation (`fs/open.c`, `fs/read_write.c`).

use std::cell::Cell;
use std::rc::Rc;

use super::walk::Last;
use super::{MountDevice, Namespace};
use crate::error::FsError;
use crate::file_system::{Attributes, Caller, Change, DirEntry, FileKind, FileSystem, NewInode};
use crate::inode::{File, Inode, InodeId, ReadPath};
use crate::read::BegunRead;
use crate::vfs::Host;
use crate::vfs::dentry::{DentryId, Place};

/// The flags of `open`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenFlags {
    /// It will be read (`O_RDONLY`, `O_RDWR`).
    pub read: bool,
    /// It will be written (`O_WRONLY`, `O_RDWR`).
    pub write: bool,
    /// It is created with these permissions if it does not exist (`O_CREAT`).
    pub create: Option<u16>,
    /// It must not exist (`O_EXCL`).
    pub exclusive: bool,
    /// It is cut to length 0 (`O_TRUNC`).
    pub truncate: bool,
    /// Writes go to its end (`O_APPEND`).
    pub append: bool,
    /// It must be a directory (`O_DIRECTORY`).
    pub directory: bool,
    /// A symbolic link is not followed (`O_NOFOLLOW`).
    pub no_follow: bool,
}

/// What a write has written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// The first byte of the file; with `O_APPEND` the file's end before the call.
    pub pos: u64,
    /// How many bytes.
    pub bytes: u64,
}

impl Written {
    /// The byte after the last one.
    pub fn end(self) -> u64 {
        self.pos + self.bytes
    }
}

/// An open file of the tree, with its position (`struct file`).
#[derive(Debug)]
pub struct OpenFile {
    dentry: DentryId,
    pub(super) place: Place,
    pub(super) flags: OpenFlags,
    position: Cell<u64>,
    /// The cursor of the next names of a directory; `None` at its end.
    cursor: Cell<Option<u64>>,
    /// A regular file's part in the page cache.
    file: Option<Rc<File>>,
    /// Whether the access time was updated since it was opened.
    was_accessed: Cell<bool>,
}

impl OpenFile {
    /// The inode that is open.
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

    /// Whether it was opened to be read.
    pub fn can_read(&self) -> bool {
        self.flags.read
    }

    /// Whether it was opened to be written.
    pub fn can_write(&self) -> bool {
        self.flags.write
    }

    /// A regular file's part in the page cache.
    ///
    /// # Errors
    /// [`FsError::IsDirectory`].
    pub fn data(&self) -> Result<&Rc<File>, FsError> {
        self.file.as_ref().ok_or(FsError::IsDirectory)
    }

    /// The same for a call that reads.
    pub(super) fn data_to_read(&self) -> Result<&Rc<File>, FsError> {
        match self.flags.read {
            true => self.data(),
            false => Err(FsError::BadFile),
        }
    }

    /// The same for a call that writes.
    pub(super) fn data_to_write(&self) -> Result<&Rc<File>, FsError> {
        match self.flags.write {
            true => self.data(),
            false => Err(FsError::BadFile),
        }
    }
}

impl<H: Host, F: FileSystem> Namespace<H, F> {
    /// Opens a file, and creates it if the flags say so.
    ///
    /// # Errors
    /// Those of [`Namespace::stat`] and [`Namespace::create`]; [`FsError::IsDirectory`] for
    /// writing a directory, [`FsError::LinkLoop`] for a link that is not followed.
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

    /// An inode's number in the page cache, to which it is added the first time.
    pub(super) fn data_of(&self, place: Place, attributes: &Attributes) -> InodeId {
        let mut inodes = self.inodes.borrow_mut();
        let inode = inodes.entry(place).or_default();
        *inode.data.get_or_insert_with(|| {
            let mounts = self.mounts.borrow();
            let mount = &mounts[place.mount as usize];
            let uses_iomap = mount.fs.uses_iomap();
            let inode = Inode {
                size_bytes: attributes.size_bytes,
                block_bytes: u64::from(mount.fs.block_bytes()),
                large_folios: uses_iomap,
                read_path: ReadPath::of(uses_iomap),
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
    /// Those of deleting a file that has no name left.
    pub async fn close(&self, file: OpenFile) -> Result<(), FsError> {
        if file.flags.write {
            self.fs(file.place).release(file.place.ino);
        }
        self.flush_truncated(&file).await;
        self.put(file.dentry).await?;
        self.release(file.place).await
    }

    /// Begins to write a file that was cut since it was closed last, if its file system
    /// wants that.
    async fn flush_truncated(&self, file: &OpenFile) {
        if !self.fs(file.place).flushes_truncated() {
            return;
        }
        let was_cut = {
            let mut inodes = self.inodes.borrow_mut();
            let inode = inodes.get_mut(&file.place);
            inode.is_some_and(|inode| std::mem::take(&mut inode.was_cut))
        };
        if let Some(data) = file.file.as_ref().filter(|_| was_cut) {
            self.vfs
                .write_range(data.inode, 0, u64::MAX / 2, false)
                .await;
        }
    }

    /// Reads at the position, and moves it. Returns the number of bytes read.
    ///
    /// # Errors
    /// [`FsError::IsDirectory`], [`FsError::BadFile`] for a file not opened for reading.
    pub async fn read(&self, file: &OpenFile, bytes: u64) -> Result<u64, FsError> {
        let read = self.read_at(file, file.position(), bytes).await?;
        file.position.set(file.position() + read);
        Ok(read)
    }

    /// Reads at `pos` and leaves the position as it is (`pread`).
    ///
    /// # Errors
    /// As [`Namespace::read`].
    pub async fn read_at(&self, file: &OpenFile, pos: u64, bytes: u64) -> Result<u64, FsError> {
        let data = file.data_to_read()?;
        let read = self.vfs.read(data, pos, bytes).await?;
        self.accessed(file).await?;
        Ok(read)
    }

    /// Begins to read as [`Namespace::read_at`] does, if that needs no wait. Otherwise does
    /// nothing and returns `None`.
    pub fn begin_read(&self, file: &OpenFile, pos: u64, bytes: u64) -> Option<BegunRead> {
        let data = file.file.as_ref()?;
        // The first read may change the access time.
        let is_ready = file.flags.read && file.was_accessed.get();
        is_ready.then(|| self.vfs.begin_read(data, pos, bytes))?
    }

    /// Writes as [`Namespace::write_at`] does, if that needs no wait: inside one cached page.
    /// Otherwise does nothing and returns `None`.
    pub fn write_cached(
        &self,
        file: &OpenFile,
        (pos, bytes): (u64, u64),
        caller: &Caller,
    ) -> Option<u64> {
        let data = file.file.as_ref()?;
        let is_ready = file.flags.write && !file.flags.append;
        if !is_ready || !self.locks.is_free(Some(file.place)) {
            return None;
        }
        let written = self.vfs.write_cached(data, pos, bytes)?;
        let size = self.vfs.size_bytes(data.inode);
        self.fs(file.place)
            .set_size(file.place.ino, size, caller.now);
        self.vfs.inode_changed(data.inode, false);
        Some(written)
    }

    /// Writes at the position, or with `O_APPEND` at the end, and moves the position.
    ///
    /// # Errors
    /// As [`Namespace::write_at`].
    pub async fn write(
        &self,
        file: &OpenFile,
        bytes: u64,
        caller: &Caller,
    ) -> Result<u64, FsError> {
        let written = self.write_at(file, file.position(), bytes, caller).await?;
        file.position.set(written.end());
        Ok(written.bytes)
    }

    /// Writes at `pos`, or with `O_APPEND` at the end, and leaves the position as it is
    /// (`pwrite`).
    ///
    /// # Errors
    /// [`FsError::BadFile`] for a file not opened for writing, [`FsError::NoSpace`],
    /// [`FsError::TooBig`].
    pub async fn write_at(
        &self,
        file: &OpenFile,
        pos: u64,
        bytes: u64,
        caller: &Caller,
    ) -> Result<Written, FsError> {
        file.data_to_write()?;
        let _held = self.lock(Some(file.place)).await;
        let pos = self.write_place(file, pos)?;
        let bytes = self.write_locked(file, (pos, bytes), caller).await?;
        Ok(Written { pos, bytes })
    }

    /// Where a write goes that asks for `pos` (`generic_write_checks`). The inode is locked.
    pub(super) fn write_place(&self, file: &OpenFile, pos: u64) -> Result<u64, FsError> {
        Ok(match file.flags.append {
            true => self.vfs.size_bytes(file.data()?.inode),
            false => pos,
        })
    }

    /// Writes through the page cache while the inode is locked.
    pub(super) async fn write_locked(
        &self,
        file: &OpenFile,
        (pos, bytes): (u64, u64),
        caller: &Caller,
    ) -> Result<u64, FsError> {
        let (data, fs) = (file.data()?, self.fs(file.place));
        let end = pos.checked_add(bytes).ok_or(FsError::TooBig)?;
        if end > fs.file_bytes_max() {
            return Err(FsError::TooBig);
        }
        let size_before = self.vfs.size_bytes(data.inode);
        let written = match self.fill_to(file.place, data, pos).await {
            Ok(()) => self.vfs.write(data, pos, bytes).await,
            Err(error) => Err(error),
        };
        let size = self.vfs.size_bytes(data.inode);
        if written.is_ok() || size != size_before {
            fs.set_size(file.place.ino, size, caller.now);
            self.vfs.inode_changed(data.inode, size != size_before);
        }
        written
    }

    /// Fills a file with zeroes up to `pos` if it cannot have holes (`cont_write_begin`).
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

    /// Updates a file's access time after a read, if it is not newer than the last change
    /// (`relatime`).
    pub(super) async fn accessed(&self, file: &OpenFile) -> Result<(), FsError> {
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

    /// `fsync`, or `fdatasync` if `only_data`.
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

    /// `sync`: writes all changes to their devices.
    pub async fn sync(&self) {
        let mounts: Vec<(u32, MountDevice)> = {
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

    /// Sets a file's length (`truncate`).
    ///
    /// # Errors
    /// Those of [`Namespace::stat`]; [`FsError::IsDirectory`], [`FsError::TooBig`].
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

    /// Sets an open file's length (`ftruncate`).
    ///
    /// # Errors
    /// As [`Namespace::truncate`]; [`FsError::BadCall`] for a file not opened for writing.
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
        self.direct_calls_end(place).await;
        let attributes = fs.attributes(place.ino).await?;
        // Only zeroes that are written make a file without holes longer.
        let is_filled = size_bytes > attributes.size_bytes && !fs.has_holes();
        // A block of which a part is zeroed is read, whether the file was opened before or not.
        let (block_bytes, before) = (u64::from(fs.block_bytes()), attributes.size_bytes);
        let zeroed_from =
            ReadPath::of(fs.uses_iomap()).zeroed_from(block_bytes, before, size_bytes);
        let cached = self
            .inodes
            .borrow()
            .get(&place)
            .and_then(|inode| inode.data);
        let data = match is_filled || zeroed_from.is_some() {
            true => Some(self.data_of(place, &attributes)),
            false => cached,
        };
        if let Some(data) = data {
            let file = self.vfs.open(data);
            self.fill_to(place, &file, size_bytes).await?;
            self.vfs.truncate(data, size_bytes).await;
        }
        if is_filled {
            fs.set_size(place.ino, size_bytes, caller.now);
        }
        fs.truncate(place.ino, size_bytes, caller).await?;
        if let Some(inode) = self.inodes.borrow_mut().get_mut(&place) {
            inode.was_cut |= size_bytes < attributes.size_bytes;
        }
        self.mark_changed(place, false).await
    }

    /// The next names of a directory (`getdents`); none at its end.
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
}
