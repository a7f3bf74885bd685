//! Mounts the file system of an image, or a tree of the device model, on a folder of this
//! machine over FUSE.
//!
//! The kernel's requests are answered one after the other by a [`Volume`]. Changes are
//! committed to the image by `fsync`, every few seconds of work, and at the end.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use blklab_device_model::Sysfs;
use blklab_fs::{
    Attributes, Caller, Change, FileSystem, FsError, Ino, NewInode, Timestamp, Volume, at_once,
};
use fuser::consts::FOPEN_KEEP_CACHE;
use fuser::{
    FileAttr, FileType, Filesystem, MountOption, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, Session, SessionUnmounter,
    TimeOrNow,
};
use rustix::fs::{OFlags, statvfs};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};

use crate::tree;

/// The inode number of FUSE's root.
const ROOT: u64 = 1;
/// How long the kernel may cache names and attributes, which nothing else changes.
const CACHED: Duration = Duration::from_secs(3600);
/// Names of VFAT are not cached, because two spellings may be one file.
const NOT_CACHED: Duration = Duration::ZERO;
/// The longest name of both file systems, in bytes.
const NAME_BYTES_MAX: u32 = 255;
/// The interval of commits while there are requests, as of the kernel's flusher
/// (`dirty_writeback_centisecs`).
const COMMIT_INTERVAL: Duration = Duration::from_secs(5);

/// A file system of ours on a folder.
#[derive(Debug)]
struct Mounted<F: Filesystem> {
    session: Session<F>,
    folder: PathBuf,
    is_ending: Arc<AtomicBool>,
}

impl<F: Filesystem> Mounted<F> {
    fn new(
        files: F,
        folder: &Path,
        options: &[MountOption],
        is_ending: Arc<AtomicBool>,
    ) -> Result<Mounted<F>, String> {
        let session = Session::new(files, folder, options).map_err(|error| {
            let folder = folder.display();
            let needed =
                "root may mount, and others where fusermount3 (package fuse3) is installed";
            format!("{folder}: cannot mount: {error}; {needed}")
        })?;
        Ok(Mounted {
            session,
            folder: folder.to_path_buf(),
            is_ending,
        })
    }

    fn unmounter(&mut self) -> Unmounter {
        Unmounter {
            session: self.session.unmount_callable(),
            folder: self.folder.clone(),
            is_ending: Arc::clone(&self.is_ending),
        }
    }

    /// Serves until the folder is unmounted.
    fn serve(mut self) -> Result<(), String> {
        let served = self.session.run();
        drop(self.session);
        match served {
            // So the kernel answers a reader whose connection goes while it waits.
            Err(error) if is_abort(&error) && self.is_ending.load(Ordering::Relaxed) => Ok(()),
            served => served.map_err(|error| format!("{}: {error}", self.folder.display())),
        }
    }
}

/// A mounted tree of the device model, which does not change.
#[derive(Debug)]
pub struct SysfsMount(Mounted<tree::Tree<tree::Still>>);

impl SysfsMount {
    /// Shows a tree in an empty folder.
    ///
    /// # Errors
    /// A message that says what would make it possible.
    pub fn new(sysfs: Sysfs, folder: &Path) -> Result<SysfsMount, String> {
        let options = tree::mount_options(folder)?;
        is_possible(folder)?;
        let files = tree::Tree::new(sysfs, tree::Still);
        Mounted::new(files, folder, &options, Arc::default()).map(SysfsMount)
    }

    /// A handle to unmount it.
    pub fn unmounter(&mut self) -> Unmounter {
        self.0.unmounter()
    }

    /// Serves until the folder is unmounted.
    ///
    /// # Errors
    /// If the connection to the kernel fails.
    pub fn serve(self) -> Result<(), String> {
        self.0.serve()
    }
}

/// A mounted image.
#[derive(Debug)]
pub struct ImageMount {
    mounted: Mounted<Tree>,
    failure: Rc<RefCell<Option<String>>>,
}

/// Ends an [`ImageMount`] or a [`SysfsMount`], from any thread.
#[derive(Debug)]
pub struct Unmounter {
    session: SessionUnmounter,
    folder: PathBuf,
    is_ending: Arc<AtomicBool>,
}

impl ImageMount {
    /// Mounts a volume on a folder; `name` is its source in the list of mounts.
    ///
    /// # Errors
    /// A message that says what would make it possible.
    pub fn new(
        volume: Volume<File>,
        name: &Path,
        folder: &Path,
        read_only: bool,
    ) -> Result<ImageMount, String> {
        let kind = volume.usage().kind;
        let mut options = vec![
            MountOption::FSName(name.display().to_string()),
            MountOption::Subtype(kind.to_string()),
            MountOption::DefaultPermissions,
            MountOption::NoAtime,
        ];
        if read_only {
            options.push(MountOption::RO);
        }
        if rustix::process::geteuid().is_root() {
            // Other users may access it as far as the files' permissions allow.
            options.push(MountOption::AllowOther);
        }
        is_possible(folder)?;
        let (is_ending, failure) = (Arc::default(), Rc::default());
        let mut tree = Tree::new(volume, Arc::clone(&is_ending), Rc::clone(&failure));
        tree.is_read_only = read_only;
        Ok(ImageMount {
            mounted: Mounted::new(tree, folder, &options, is_ending)?,
            failure,
        })
    }

    /// A handle to unmount it.
    pub fn unmounter(&mut self) -> Unmounter {
        self.mounted.unmounter()
    }

    /// Serves until the folder is unmounted, then commits all changes to the image.
    ///
    /// # Errors
    /// If changes could not be written.
    pub fn serve(self) -> Result<(), String> {
        let served = self.mounted.serve();
        match self.failure.take() {
            Some(failure) => Err(failure),
            None => served,
        }
    }
}

fn is_abort(error: &std::io::Error) -> bool {
    error.raw_os_error() == Some(Errno::CONNABORTED.raw_os_error())
}

impl Unmounter {
    /// Commits all changes and unmounts the folder. Programs may go on to use files that they
    /// have open; each change is committed at once then.
    pub fn unmount(&mut self) {
        self.is_ending.store(true, Ordering::Relaxed);
        // The session owns the volume, and commits with the next request.
        let _ = statvfs(&self.folder);
        if unmount(&self.folder, UnmountFlags::DETACH).is_err() {
            // Users other than root need `fusermount3`.
            let _ = self.session.unmount();
        }
    }
}

/// Checks that an image can be mounted on a folder, with a message that says why not.
fn is_possible(folder: &Path) -> Result<(), String> {
    let name = folder.display();
    let found = std::fs::metadata(folder).map_err(|error| match error.raw_os_error() {
        Some(code) if code == Errno::NOTCONN.raw_os_error() => {
            format!("{name}: a mount that was killed is there; umount it first")
        }
        _ => format!("{name}: {error}"),
    })?;
    if !found.is_dir() {
        return Err(format!("{name}: it is no folder; name one to mount on"));
    }
    let opened = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/fuse");
    opened.map(drop).map_err(|error| {
        let needed = match error.kind() {
            std::io::ErrorKind::NotFound => {
                "the kernel's module fuse provides it (modprobe fuse; in a container, \
                 --device /dev/fuse --cap-add SYS_ADMIN)"
            }
            _ => "root may open it, or whom its permissions let",
        };
        format!("{name}: cannot mount: /dev/fuse: {error}; {needed}")
    })
}

/// The names of an open directory at the time that it was read from its beginning.
type Names = Vec<(u64, FileType, Vec<u8>)>;

/// The mounted tree of files.
#[derive(Debug)]
struct Tree {
    volume: Volume<File>,
    /// The kernel's lookup count of each inode (`nlookup`).
    lookups: BTreeMap<u64, u64>,
    directories: BTreeMap<u64, Names>,
    next_handle: u64,
    is_read_only: bool,
    committed_at: Instant,
    is_ending: Arc<AtomicBool>,
    /// The first error that no request could report.
    failure: Rc<RefCell<Option<String>>>,
    /// On VFAT, which has no owners, the user who mounted it owns all files.
    owner: Option<(u32, u32)>,
    name_timeout: Duration,
}

impl Tree {
    fn new(
        volume: Volume<File>,
        is_ending: Arc<AtomicBool>,
        failure: Rc<RefCell<Option<String>>>,
    ) -> Tree {
        let is_vfat = volume.usage().kind == "vfat";
        let owner = (
            rustix::process::geteuid().as_raw(),
            rustix::process::getegid().as_raw(),
        );
        Tree {
            volume,
            lookups: BTreeMap::new(),
            directories: BTreeMap::new(),
            next_handle: 1,
            is_read_only: false,
            committed_at: Instant::now(),
            is_ending,
            failure,
            owner: is_vfat.then_some(owner),
            name_timeout: if is_vfat { NOT_CACHED } else { CACHED },
        }
    }

    fn ino(&self, number: u64) -> Ino {
        match number {
            ROOT => self.volume.file_system().root(),
            number => Ino(number),
        }
    }

    fn number(&self, ino: Ino) -> u64 {
        match ino == self.volume.file_system().root() {
            true => ROOT,
            false => ino.0,
        }
    }

    /// Sets the caller of the following changes.
    fn begin(&mut self, request: &Request<'_>) {
        self.volume.caller = Caller {
            pid: request.pid(),
            uid: request.uid(),
            gid: request.gid(),
            now: SystemTime::now().into(),
        };
    }

    /// Ends a request, and commits if that is due.
    fn end<T>(&mut self, done: Result<T, FsError>) -> Result<T, i32> {
        let is_due = self.committed_at.elapsed() >= COMMIT_INTERVAL;
        if is_due || self.is_ending.load(Ordering::Relaxed) {
            let committed = self.commit();
            self.note(committed);
        }
        done.map_err(FsError::errno)
    }

    /// Keeps the first error that no request can report.
    fn note(&self, done: Result<(), FsError>) {
        if let Err(error) = done {
            let device = self.volume.image().failure();
            let why = device.map_or_else(|| error.to_string(), |error| error.to_string());
            let mut failure = self.failure.borrow_mut();
            failure.get_or_insert_with(|| format!("changes could not be written: {why}"));
        }
    }

    fn attributes(&self, ino: Ino) -> Result<FileAttr, FsError> {
        let found = self.volume.attributes(ino)?;
        let (uid, gid) = self.owner.unwrap_or((found.uid, found.gid));
        Ok(FileAttr {
            ino: self.number(ino),
            size: found.size_bytes,
            blocks: found.sectors,
            atime: found.accessed.into(),
            mtime: found.modified.into(),
            ctime: found.changed.into(),
            crtime: SystemTime::UNIX_EPOCH,
            kind: file_type(&found),
            perm: found.mode & 0o7777,
            nlink: found.links,
            uid,
            gid,
            rdev: 0,
            blksize: self.volume.usage().block_bytes,
            flags: 0,
        })
    }

    /// The attributes for a reply that raises the kernel's lookup count of an inode.
    fn entry(&mut self, ino: Ino) -> Result<FileAttr, FsError> {
        let attributes = self.attributes(ino)?;
        *self.lookups.entry(attributes.ino).or_default() += 1;
        Ok(attributes)
    }

    fn find(&mut self, parent: u64, name: &OsStr) -> Result<FileAttr, FsError> {
        let fs = self.volume.file_system();
        let found = at_once(fs.lookup(self.ino(parent), name.as_bytes()))?;
        self.entry(found.ok_or(FsError::NoEntry)?)
    }

    fn make(
        &mut self,
        request: &Request<'_>,
        parent: u64,
        name: &OsStr,
        new: NewInode<'_>,
    ) -> Result<FileAttr, i32> {
        self.begin(request);
        let made = self
            .volume
            .create(self.ino(parent), name.as_bytes(), new)
            .and_then(|ino| self.entry(ino));
        self.end(made)
    }

    /// Evicts an inode that lost a name, unless the kernel knows it: a program may have it
    /// open.
    fn unlinked(&self, ino: Ino) -> Result<(), FsError> {
        match self.lookups.contains_key(&self.number(ino)) {
            true => Ok(()),
            false => self.evict(ino),
        }
    }

    fn forgotten(&mut self, number: u64, times: u64) {
        let Some(lookups) = self.lookups.get_mut(&number) else {
            return;
        };
        *lookups = lookups.saturating_sub(times);
        if *lookups == 0 {
            self.lookups.remove(&number);
            self.note(self.evict(self.ino(number)));
        }
    }

    /// Drops an inode from memory, and deletes it if it has no name.
    fn evict(&self, ino: Ino) -> Result<(), FsError> {
        at_once(self.volume.file_system().evict(ino, self.volume.caller.now))
    }

    fn answer_entry(&self, found: Result<FileAttr, i32>, reply: ReplyEntry) {
        match found {
            Ok(found) => reply.entry(&self.name_timeout, &found, 0),
            Err(error) => reply.error(error),
        }
    }

    fn change(
        &self,
        ino: Ino,
        size_bytes: Option<u64>,
        change: &Change,
    ) -> Result<FileAttr, FsError> {
        if let Some(size_bytes) = size_bytes {
            self.volume.truncate(ino, size_bytes)?;
        }
        if *change != Change::default() {
            self.volume.change(ino, change)?;
        }
        self.attributes(ino)
    }

    /// The new owner and group, if they differ from the present ones.
    fn new_owner(&self, ino: Ino, uid: Option<u32>, gid: Option<u32>) -> Option<(u32, u32)> {
        let found = self.volume.attributes(ino).ok()?;
        let (old_uid, old_gid) = self.owner.unwrap_or((found.uid, found.gid));
        let owner = (uid.unwrap_or(old_uid), gid.unwrap_or(old_gid));
        (owner != (old_uid, old_gid)).then_some(owner)
    }

    fn time(&self, time: Option<TimeOrNow>) -> Option<Timestamp> {
        time.map(|time| match time {
            TimeOrNow::SpecificTime(time) => time.into(),
            TimeOrNow::Now => self.volume.caller.now,
        })
    }

    fn names(&self, number: u64) -> Result<Names, FsError> {
        let dir = self.ino(number);
        // The number of `..` does not matter: the kernel resolves it itself.
        let mut names: Names = [".", ".."]
            .map(|name| (number, FileType::Directory, name.into()))
            .into();
        for entry in self.volume.list(dir)? {
            let kind = file_type(&self.volume.attributes(entry.ino)?);
            names.push((self.number(entry.ino), kind, entry.name));
        }
        Ok(names)
    }

    fn commit(&mut self) -> Result<(), FsError> {
        self.committed_at = Instant::now();
        match self.is_read_only {
            true => Ok(()),
            false => self.volume.commit(),
        }
    }
}

fn file_type(found: &Attributes) -> FileType {
    match found.mode >> 12 {
        0o01 => FileType::NamedPipe,
        0o02 => FileType::CharDevice,
        0o04 => FileType::Directory,
        0o06 => FileType::BlockDevice,
        0o12 => FileType::Symlink,
        0o14 => FileType::Socket,
        _ => FileType::RegularFile,
    }
}

fn answer(done: Result<(), i32>, reply: ReplyEmpty) {
    match done {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error),
    }
}

impl Filesystem for Tree {
    /// Evicts all inodes, which deletes those that had no name and were still open.
    fn destroy(&mut self) {
        for number in std::mem::take(&mut self.lookups).into_keys() {
            self.note(self.evict(self.ino(number)));
        }
        let committed = self.commit();
        self.note(committed);
    }

    fn lookup(&mut self, _: &Request<'_>, parent: u64, name: &OsStr, reply: ReplyEntry) {
        let found = self.find(parent, name).map_err(FsError::errno);
        self.answer_entry(found, reply);
    }

    fn forget(&mut self, _: &Request<'_>, ino: u64, times: u64) {
        self.forgotten(ino, times);
    }

    fn getattr(&mut self, _: &Request<'_>, ino: u64, _: Option<u64>, reply: ReplyAttr) {
        match self.attributes(self.ino(ino)) {
            Ok(found) => reply.attr(&CACHED, &found),
            Err(error) => reply.error(error.errno()),
        }
    }

    fn setattr(
        &mut self,
        request: &Request<'_>,
        ino: u64,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        accessed: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<u64>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<u32>,
        reply: ReplyAttr,
    ) {
        self.begin(request);
        let ino = self.ino(ino);
        let change = Change {
            permissions: mode.map(|mode| (mode & 0o7777) as u16),
            owner: self.new_owner(ino, uid, gid),
            accessed: self.time(accessed),
            modified: self.time(modified),
        };
        let changed = self.change(ino, size, &change);
        match self.end(changed) {
            Ok(found) => reply.attr(&CACHED, &found),
            Err(error) => reply.error(error),
        }
    }

    fn readlink(&mut self, _: &Request<'_>, ino: u64, reply: ReplyData) {
        match at_once(self.volume.file_system().read_link(self.ino(ino))) {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(error.errno()),
        }
    }

    fn mknod(
        &mut self,
        request: &Request<'_>,
        parent: u64,
        name: &OsStr,
        mode: u32,
        _: u32,
        _: u32,
        reply: ReplyEntry,
    ) {
        let is_regular = matches!(mode >> 12, 0 | 0o10);
        let made = match is_regular {
            true => {
                let new = NewInode::Regular((mode & 0o7777) as u16);
                self.make(request, parent, name, new)
            }
            false => Err(FsError::NotSupported.errno()),
        };
        self.answer_entry(made, reply);
    }

    fn mkdir(
        &mut self,
        request: &Request<'_>,
        parent: u64,
        name: &OsStr,
        mode: u32,
        _: u32,
        reply: ReplyEntry,
    ) {
        let new = NewInode::Directory((mode & 0o7777) as u16);
        let made = self.make(request, parent, name, new);
        self.answer_entry(made, reply);
    }

    fn symlink(
        &mut self,
        request: &Request<'_>,
        parent: u64,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let new = NewInode::Symlink(target.as_os_str().as_bytes());
        let made = self.make(request, parent, name, new);
        self.answer_entry(made, reply);
    }

    fn link(
        &mut self,
        request: &Request<'_>,
        ino: u64,
        parent: u64,
        name: &OsStr,
        reply: ReplyEntry,
    ) {
        self.begin(request);
        let (ino, dir) = (self.ino(ino), self.ino(parent));
        let linked = self.volume.link(ino, dir, name.as_bytes());
        let linked = linked.and_then(|()| self.entry(ino));
        let linked = self.end(linked);
        self.answer_entry(linked, reply);
    }

    fn unlink(&mut self, request: &Request<'_>, parent: u64, name: &OsStr, reply: ReplyEmpty) {
        self.begin(request);
        let (fs, dir) = (self.volume.file_system(), self.ino(parent));
        let removed = at_once(fs.unlink(dir, name.as_bytes(), &self.volume.caller));
        let removed = removed.and_then(|ino| self.unlinked(ino));
        answer(self.end(removed), reply);
    }

    fn rmdir(&mut self, request: &Request<'_>, parent: u64, name: &OsStr, reply: ReplyEmpty) {
        self.begin(request);
        let (fs, dir) = (self.volume.file_system(), self.ino(parent));
        let removed = at_once(fs.remove_dir(dir, name.as_bytes(), &self.volume.caller));
        let removed = removed.and_then(|ino| self.unlinked(ino));
        answer(self.end(removed), reply);
    }

    /// The kernel has checked that no directory moves into itself.
    fn rename(
        &mut self,
        request: &Request<'_>,
        parent: u64,
        name: &OsStr,
        new_parent: u64,
        new_name: &OsStr,
        flags: u32,
        reply: ReplyEmpty,
    ) {
        if flags != 0 {
            return reply.error(FsError::BadCall.errno());
        }
        self.begin(request);
        let from = (self.ino(parent), name.as_bytes());
        let to = (self.ino(new_parent), new_name.as_bytes());
        let fs = self.volume.file_system();
        let replaced = at_once(fs.rename(from, to, &self.volume.caller));
        let renamed = replaced.and_then(|ino| ino.map_or(Ok(()), |ino| self.unlinked(ino)));
        answer(self.end(renamed), reply);
    }

    fn open(&mut self, _: &Request<'_>, _: u64, _: i32, reply: ReplyOpen) {
        reply.opened(0, FOPEN_KEEP_CACHE);
    }

    fn create(
        &mut self,
        request: &Request<'_>,
        parent: u64,
        name: &OsStr,
        mode: u32,
        _: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        let new = NewInode::Regular((mode & 0o7777) as u16);
        match self.make(request, parent, name, new) {
            Ok(found) => reply.created(&self.name_timeout, &found, 0, 0, FOPEN_KEEP_CACHE),
            Err(error) => reply.error(error),
        }
    }

    fn read(
        &mut self,
        _: &Request<'_>,
        ino: u64,
        _: u64,
        offset: i64,
        size: u32,
        _: i32,
        _: Option<u64>,
        reply: ReplyData,
    ) {
        let mut data = vec![0; size as usize];
        let from = u64::try_from(offset).unwrap_or(0);
        match self.volume.read(self.ino(ino), from, &mut data) {
            Ok(bytes) => reply.data(&data[..bytes]),
            Err(error) => reply.error(error.errno()),
        }
    }

    fn write(
        &mut self,
        request: &Request<'_>,
        ino: u64,
        _: u64,
        offset: i64,
        data: &[u8],
        _: u32,
        flags: i32,
        _: Option<u64>,
        reply: ReplyWrite,
    ) {
        self.begin(request);
        let at = u64::try_from(offset).unwrap_or(0);
        let mut written = self.volume.write(self.ino(ino), at, data);
        let flags = OFlags::from_bits_retain(flags as u32);
        if written.is_ok() && flags.intersects(OFlags::SYNC | OFlags::DSYNC) {
            written = self.commit();
        }
        match self.end(written) {
            Ok(()) => reply.written(data.len() as u32),
            Err(error) => reply.error(error),
        }
    }

    /// Nothing is to be done when a descriptor is closed.
    fn flush(&mut self, _: &Request<'_>, _: u64, _: u64, _: u64, reply: ReplyEmpty) {
        reply.ok();
    }

    fn release(
        &mut self,
        _: &Request<'_>,
        ino: u64,
        _: u64,
        _: i32,
        _: Option<u64>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.volume.file_system().release(self.ino(ino));
        reply.ok();
    }

    fn fsync(&mut self, _: &Request<'_>, _: u64, _: u64, _: bool, reply: ReplyEmpty) {
        answer(self.commit().map_err(FsError::errno), reply);
    }

    fn opendir(&mut self, _: &Request<'_>, _: u64, _: i32, reply: ReplyOpen) {
        let handle = self.next_handle;
        self.next_handle += 1;
        self.directories.insert(handle, Names::new());
        reply.opened(handle, 0);
    }

    /// Lists the names as of the first call, so that names deleted meanwhile do not shift the
    /// offsets of others.
    fn readdir(
        &mut self,
        _: &Request<'_>,
        ino: u64,
        handle: u64,
        offset: i64,
        mut reply: ReplyDirectory,
    ) {
        if offset == 0 {
            match self.names(ino) {
                Ok(names) => self.directories.insert(handle, names),
                Err(error) => return reply.error(error.errno()),
            };
        }
        let names = self.directories.get(&handle).map_or(&[][..], |all| all);
        let skip = usize::try_from(offset).unwrap_or(0);
        for (index, (number, kind, name)) in names.iter().enumerate().skip(skip) {
            if reply.add(*number, index as i64 + 1, *kind, OsStr::from_bytes(name)) {
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(&mut self, _: &Request<'_>, _: u64, handle: u64, _: i32, reply: ReplyEmpty) {
        self.directories.remove(&handle);
        reply.ok();
    }

    fn fsyncdir(&mut self, _: &Request<'_>, _: u64, _: u64, _: bool, reply: ReplyEmpty) {
        answer(self.commit().map_err(FsError::errno), reply);
    }

    fn statfs(&mut self, _: &Request<'_>, _: u64, reply: ReplyStatfs) {
        // The unmounter makes this call to have changes committed.
        let _ = self.end(Ok(()));
        let usage = self.volume.usage();
        reply.statfs(
            usage.blocks,
            usage.blocks_free,
            usage.blocks_available,
            usage.inodes,
            usage.inodes_free,
            usage.block_bytes,
            NAME_BYTES_MAX,
            usage.block_bytes,
        );
    }
}
