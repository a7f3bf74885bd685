//! What processes call: reads and writes of parts of a drive, and every call on the
//! files of a mounted file system.
//!
//! A process begins a call with [`System::begin_call`] and has it go on with
//! [`System::go_on_in_call`], up to [`Progress::Over`]. Files and paths are named
//! beforehand ([`FileLayer::open`], [`FileLayer::open_in_tree`],
//! [`FileLayer::add_path`]), so that a call allocates nothing; a file of the mounted
//! file system is open from its [`Call::OpenFile`] to its [`Call::Close`].
//!
//! [`System::begin_call`]: crate::system::System::begin_call
//! [`System::go_on_in_call`]: crate::system::System::go_on_in_call
//! [`Progress::Over`]: super::Progress::Over
//! [`FileLayer::open`]: super::FileLayer::open
//! [`FileLayer::open_in_tree`]: super::FileLayer::open_in_tree
//! [`FileLayer::add_path`]: super::FileLayer::add_path

use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use blklab_fs::write_back::{DeviceId, SyncRange};
use blklab_fs::{
    Advice, BegunRead, Bio, BioId, DirectCall, File, FileKind, FsError, MmapAdvice, NewInode,
    OpenFlags, PAGE_BYTES, Vfs, Written,
};
use blklab_workload::calls::RangeSync;

use super::FileId;
use super::kernel::{Kernel, OpenFile, Opened, Region};
use super::tree::FileTree;

/// Cached pages that a fault maps around its own (`fault_around_bytes`, 64 KiB).
const FAULT_AROUND_PAGES: u64 = 16;

/// A path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PathId(pub(super) u32);

/// How a read or write goes to its drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// Through the page cache.
    Cached,
    /// Direct (`O_DIRECT`), by a caller that waits for its end.
    Direct,
    /// Direct, by one that does not (`io_submit`, io_uring).
    DirectAsync,
}

impl Route {
    /// The route of an open file's reads and writes.
    pub(crate) fn of(is_direct: bool, is_async: bool) -> Route {
        match (is_direct, is_async) {
            (false, _) => Route::Cached,
            (true, false) => Route::Direct,
            (true, true) => Route::DirectAsync,
        }
    }
}

/// A call that a process makes. Places are bytes of the file, or of the drive where the
/// file is a part of that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// fio has opened a file: it drops what is cached of it (`invalidate`) or reads so
    /// many bytes of it (`pre_read`), and says how it will use it (`fadvise_hint`).
    Prepare {
        file: FileId,
        invalidate: bool,
        pre_read: Option<(u64, u64)>,
        advice: Option<Advice>,
    },
    /// `pread`.
    Read {
        file: FileId,
        at: u64,
        bytes: u64,
        route: Route,
    },
    /// `pwrite`, with what `O_SYNC` or `O_DSYNC` adds to it.
    Write {
        file: FileId,
        at: u64,
        bytes: u64,
        route: Route,
        sync: Option<Durability>,
    },
    /// `mmap` of this many bytes from the beginning, and `madvise`.
    Map {
        file: FileId,
        bytes: u64,
        access: MmapAdvice,
    },
    /// The program reads or writes bytes of the mapped file.
    Touch {
        file: FileId,
        at: u64,
        bytes: u64,
        write: bool,
    },
    /// `madvise` of a mapped file.
    AdviseMapping { file: FileId, access: MmapAdvice },
    /// `msync` of all that a file has mapped.
    SyncMapping { file: FileId },
    /// `munmap`.
    Unmap { file: FileId },
    /// `cachestat`: returns how many of a file's pages are cached.
    CountCached { file: FileId },
    /// `fsync` or `fdatasync`.
    Sync { file: FileId, what: Durability },
    /// `sync_file_range`; a length of 0 reaches to the end.
    SyncRange {
        file: FileId,
        at: u64,
        bytes: u64,
        what: RangeSync,
    },
    /// `posix_fadvise`; a length of 0 reaches to the end.
    Advise {
        file: FileId,
        at: u64,
        bytes: u64,
        advice: Advice,
    },
    /// `readahead`.
    Readahead { file: FileId, at: u64, bytes: u64 },
    /// `open`.
    OpenFile { file: FileId, flags: OpenFlags },
    /// `close`.
    Close { file: FileId },
    /// `read`, where the file's position is.
    ReadOn {
        file: FileId,
        bytes: u64,
        route: Route,
    },
    /// `write`, where the file's position is, with what `O_SYNC` or `O_DSYNC` adds to it.
    WriteOn {
        file: FileId,
        bytes: u64,
        route: Route,
        sync: Option<Durability>,
    },
    /// `lseek` to a byte from the beginning.
    Seek { file: FileId, to: u64 },
    /// `ftruncate`.
    Resize { file: FileId, bytes: u64 },
    /// `getdents`: returns how many names there were, 0 at the end.
    ReadDir { file: FileId },
    /// `stat`, or `lstat`.
    Stat { path: PathId, follow: bool },
    /// `mkdir` with these permissions.
    MakeDir { path: PathId, permissions: u16 },
    /// `rmdir`.
    RemoveDir { path: PathId },
    /// `unlink`.
    Unlink { path: PathId },
    /// `rename`.
    Rename { from: PathId, to: PathId },
    /// `link`.
    Link { from: PathId, to: PathId },
    /// `symlink`.
    Symlink { target: PathId, path: PathId },
    /// `truncate`.
    Truncate { path: PathId, bytes: u64 },
    /// What `ls -lR` calls: `open`, `getdents`, `lstat` of each name, and so on below
    /// each directory. Returns how many names there were.
    ListAll { path: PathId },
    /// `sync`.
    SyncAll,
    /// A number written to `/proc/sys/vm/drop_caches`.
    DropCaches(u32),
}

impl Call {
    /// The file that it is of; others are by path.
    pub(super) fn file(&self) -> Option<FileId> {
        match *self {
            Call::Prepare { file, .. }
            | Call::Read { file, .. }
            | Call::Write { file, .. }
            | Call::Map { file, .. }
            | Call::Touch { file, .. }
            | Call::AdviseMapping { file, .. }
            | Call::SyncMapping { file }
            | Call::Unmap { file }
            | Call::CountCached { file }
            | Call::Sync { file, .. }
            | Call::SyncRange { file, .. }
            | Call::Advise { file, .. }
            | Call::Readahead { file, .. }
            | Call::OpenFile { file, .. }
            | Call::Close { file }
            | Call::ReadOn { file, .. }
            | Call::WriteOn { file, .. }
            | Call::Seek { file, .. }
            | Call::Resize { file, .. }
            | Call::ReadDir { file } => Some(file),
            Call::Stat { .. }
            | Call::MakeDir { .. }
            | Call::RemoveDir { .. }
            | Call::Unlink { .. }
            | Call::Rename { .. }
            | Call::Link { .. }
            | Call::Symlink { .. }
            | Call::Truncate { .. }
            | Call::ListAll { .. }
            | Call::SyncAll
            | Call::DropCaches(_) => None,
        }
    }
}

impl Call {
    fn is_of_mapping(&self) -> bool {
        matches!(
            self,
            Call::Map { .. }
                | Call::Touch { .. }
                | Call::AdviseMapping { .. }
                | Call::SyncMapping { .. }
                | Call::Unmap { .. }
        )
    }
}

/// What has to be on the drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Durability {
    /// The data, and what is needed to find it.
    Data,
    /// The inode's times as well.
    All,
}

/// The call that a task is to make, and what the last one returned. A task has one
/// call at a time.
#[derive(Default)]
pub(super) struct CallSlot {
    call: Cell<Option<Call>>,
    returned: Cell<Option<Result<u64, FsError>>>,
}

impl CallSlot {
    /// The task is to make this call.
    pub(super) fn begin(&self, call: Call) {
        self.call.set(Some(call));
    }

    /// The call, while the task has not seen it.
    #[inline]
    pub(super) fn unseen(&self) -> Option<Call> {
        self.call.get()
    }

    /// The call is over without the task.
    #[inline]
    pub(super) fn forget(&self) {
        self.call.set(None);
    }

    /// What the call returned, once it has.
    pub(super) fn returned(&self) -> Option<Result<u64, FsError>> {
        self.returned.take()
    }
}

/// How far a call got without a task.
pub(super) enum AtOnce {
    /// It has returned.
    Over(Result<u64, FsError>),
    /// It waits for this bio, which is to be submitted, and is to be made again then.
    Reads(BioId, Bio),
}

/// The fast path of reads and writes that need only cached pages, or of one that misses a
/// single page, most of all calls: it polls no future. `None` where the call may have to
/// sleep for something else.
#[inline]
pub(super) fn call_without_waiting(
    vfs: &Vfs<Kernel>,
    tree: Option<&FileTree>,
    call: &Call,
) -> Option<AtOnce> {
    let (Call::Read { file, .. } | Call::Write { file, .. }) = call else {
        return None;
    };
    vfs.host().with_open_file(file.0, |open| match &open.what {
        Opened::Region(region) => call_on_region_without_waiting(vfs, region, call),
        Opened::InTree(_, opened) => {
            let opened = opened.borrow();
            call_on_file_without_waiting(vfs, (tree?, opened.as_ref()?), call)
        }
    })
}

fn call_on_file_without_waiting(
    vfs: &Vfs<Kernel>,
    (tree, file): (&FileTree, &blklab_fs::OpenFile),
    call: &Call,
) -> Option<AtOnce> {
    match *call {
        Call::Read {
            at,
            bytes,
            route: Route::Cached,
            ..
        } => Some(begun(tree.begin_read(file, at, bytes)?)),
        Call::Write {
            at,
            bytes,
            route: Route::Cached,
            sync: None,
            ..
        } => {
            let caller = vfs.host().caller();
            let written = tree.write_cached(file, (at, bytes), &caller)?;
            Some(AtOnce::Over(Ok(written)))
        }
        _ => None,
    }
}

fn begun(read: BegunRead) -> AtOnce {
    match read {
        BegunRead::Over(bytes) => AtOnce::Over(Ok(bytes)),
        BegunRead::Waits(id, bio) => AtOnce::Reads(id, bio),
    }
}

fn call_on_region_without_waiting(
    vfs: &Vfs<Kernel>,
    region: &Region,
    call: &Call,
) -> Option<AtOnce> {
    let is_write = matches!(call, Call::Write { .. });
    match *call {
        _ if region.refuses(is_write) => None,
        Call::Read {
            at,
            bytes,
            route: Route::Cached,
            ..
        } => {
            let read = vfs.begin_read(&region.file, at - region.base_bytes, bytes)?;
            Some(begun(read))
        }
        Call::Write {
            at,
            bytes,
            route: Route::Cached,
            sync: None,
            ..
        } if region.write_lock.as_ref().is_none_or(|lock| lock.is_free()) => {
            let written = vfs.write_cached(&region.file, at - region.base_bytes, bytes)?;
            Some(AtOnce::Over(Ok(written)))
        }
        _ => None,
    }
}

/// Makes the calls of a process, one after the other.
pub(super) async fn serve_calls(
    vfs: Rc<Vfs<Kernel>>,
    tree: Option<Rc<FileTree>>,
    calls: Rc<CallSlot>,
) {
    loop {
        let call = poll_fn(|_| match calls.call.take() {
            Some(call) => Poll::Ready(call),
            None => Poll::Pending,
        });
        let call = call.await;
        let returned = match call.file() {
            Some(file) => {
                let open = vfs.host().open_file(file.0);
                match &open.what {
                    _ if call.is_of_mapping() => call_on_mapping(&vfs, (file, &open), call).await,
                    Opened::Region(region) => call_on_region(&vfs, region, call).await,
                    Opened::InTree(..) => call_on_file(&vfs, tree.as_deref(), &open, call).await,
                }
            }
            None => call_on_path(&vfs, tree.as_deref(), call).await,
        };
        vfs.host().return_to_program(&vfs).await;
        calls.returned.set(Some(returned));
    }
}

/// A call on a part of a drive.
async fn call_on_region(vfs: &Vfs<Kernel>, region: &Region, call: Call) -> Result<u64, FsError> {
    match call {
        Call::Read { .. } if region.refuses(false) => Err(FsError::BadFile),
        Call::Write { .. } if region.refuses(true) => Err(FsError::BadFile),
        Call::OpenFile { flags, .. } => open_device(vfs, region, flags),
        Call::ReadOn { .. }
        | Call::WriteOn { .. }
        | Call::Seek { .. }
        | Call::Readahead { .. }
        | Call::ReadDir { .. } => call_on_device(vfs, region, call).await,
        Call::Read {
            at,
            bytes,
            route: Route::Cached,
            ..
        } => vfs.read(&region.file, at - region.base_bytes, bytes).await,
        Call::Read {
            at, bytes, route, ..
        } => {
            let call = direct_call(at - region.base_bytes, bytes, route);
            vfs.read_direct(&region.file, call).await
        }
        Call::Write {
            at,
            bytes,
            route: Route::Cached,
            sync,
            ..
        } => write_region(vfs, region, (at - region.base_bytes, bytes), sync).await,
        Call::Write {
            at,
            bytes,
            route,
            sync,
            ..
        } => {
            let call = direct_call(at - region.base_bytes, bytes, route);
            let written = vfs.write_direct(&region.file, call).await?;
            sync_written(vfs, &region.file, (call.pos, written), sync).await
        }
        Call::Prepare { .. } => {
            // A part of a drive is opened without a call of its own.
            if vfs.is_device(region.file.inode) {
                vfs.device_opened(region.file.inode);
            }
            call_on_data(vfs, &region.file, call).await
        }
        Call::Close { .. } => {
            region.opened.set(None);
            if vfs.is_device(region.file.inode) {
                vfs.device_closed(region.file.inode).await;
            }
            Ok(0)
        }
        Call::SyncRange {
            file,
            at,
            bytes,
            what,
        } => {
            let at = at - region.base_bytes;
            let call = Call::SyncRange {
                file,
                at,
                bytes,
                what,
            };
            call_on_data(vfs, &region.file, call).await
        }
        call => call_on_data(vfs, &region.file, call).await,
    }
}

/// `open` of a drive.
fn open_device(vfs: &Vfs<Kernel>, region: &Region, how: OpenFlags) -> Result<u64, FsError> {
    if how.directory {
        return Err(FsError::NotDirectory);
    }
    if how.create.is_some() && how.exclusive {
        return Err(FsError::Exists);
    }
    // What it was opened as before under this name counts as closed by the end of the process.
    if region.opened.replace(Some(how)).is_none() {
        vfs.device_opened(region.file.inode);
    }
    region.position.set(0);
    Ok(0)
}

/// A call of a program's on a drive that it has opened.
async fn call_on_device(vfs: &Vfs<Kernel>, region: &Region, call: Call) -> Result<u64, FsError> {
    let at = region.position.get();
    match call {
        Call::ReadOn { file, bytes, route } => {
            let call = Call::Read {
                file,
                at,
                bytes,
                route,
            };
            let read = Box::pin(call_on_region(vfs, region, call)).await?;
            region.position.set(at + read);
            Ok(read)
        }
        Call::WriteOn {
            file,
            bytes,
            route,
            sync,
        } => {
            let appends = region.opened.get().is_some_and(|how| how.append);
            let at = match appends {
                true => vfs.size_bytes(region.file.inode),
                false => at,
            };
            let call = Call::Write {
                file,
                at,
                bytes,
                route,
                sync,
            };
            let written = Box::pin(call_on_region(vfs, region, call)).await?;
            region.position.set(at + written);
            Ok(written)
        }
        Call::Seek { to, .. } if to > vfs.size_bytes(region.file.inode) => Err(FsError::BadCall),
        Call::Seek { to, .. } => {
            region.position.set(to);
            Ok(to)
        }
        Call::Readahead { at, bytes, .. } => {
            (vfs.fadvise(&region.file, at, bytes, Advice::WillNeed)).await;
            Ok(0)
        }
        _ => Err(FsError::NotDirectory),
    }
}

async fn write_region(
    vfs: &Vfs<Kernel>,
    region: &Region,
    (at, bytes): (u64, u64),
    sync: Option<Durability>,
) -> Result<u64, FsError> {
    if let Some(lock) = &region.write_lock {
        lock.lock().await;
    }
    let written = vfs.write(&region.file, at, bytes).await;
    if let Some(lock) = &region.write_lock {
        lock.unlock();
    }
    sync_written(vfs, &region.file, (at, written?), sync).await
}

/// Has on the drive what `O_SYNC` or `O_DSYNC` says.
async fn sync_written(
    vfs: &Vfs<Kernel>,
    file: &File,
    (at, written): (u64, u64),
    sync: Option<Durability>,
) -> Result<u64, FsError> {
    if let Some(what) = sync {
        let last = at + written.max(1) - 1;
        vfs.fsync(file, at, last, what == Durability::Data).await?;
    }
    Ok(written)
}

/// A call that is the same for all files that have pages.
async fn call_on_data(vfs: &Vfs<Kernel>, file: &File, call: Call) -> Result<u64, FsError> {
    match call {
        Call::Prepare {
            invalidate,
            pre_read,
            advice,
            ..
        } => {
            if invalidate {
                drop_cached(vfs, file).await;
            }
            if let Some((at, bytes)) = pre_read {
                vfs.read(file, at, bytes).await?;
            }
            if let Some(advice) = advice {
                vfs.fadvise(file, 0, 0, advice).await;
            }
        }
        Call::Sync { what, .. } => {
            let only_data = what == Durability::Data;
            vfs.fsync(file, 0, u64::MAX / 2, only_data).await?;
        }
        Call::SyncRange {
            at, bytes, what, ..
        } => {
            let last = match bytes {
                0 => u64::MAX / 2,
                bytes => at + bytes - 1,
            };
            let what = SyncRange {
                wait_before: what.wait_before,
                write: what.write,
                wait_after: what.wait_after,
            };
            vfs.sync_file_range(file, at, last, what).await?;
        }
        Call::Advise {
            at, bytes, advice, ..
        } => vfs.fadvise(file, at, bytes, advice).await,
        Call::CountCached { .. } => return Ok(vfs.cached_pages(file.inode)),
        _ => return Err(FsError::BadCall),
    }
    Ok(0)
}

/// A call on memory that a file is mapped to, or one that maps it.
async fn call_on_mapping(
    vfs: &Vfs<Kernel>,
    (id, open): (FileId, &OpenFile),
    call: Call,
) -> Result<u64, FsError> {
    let base_bytes = match &open.what {
        Opened::Region(region) => region.base_bytes,
        Opened::InTree(..) => 0,
    };
    match call {
        Call::Map { bytes, access, .. } => {
            let file = match &open.what {
                Opened::Region(region) => Rc::clone(&region.file),
                Opened::InTree(_, opened) => {
                    let file = opened.borrow().clone().ok_or(FsError::BadFile)?;
                    if !file.can_read() {
                        return Err(FsError::NoAccess);
                    }
                    Rc::clone(file.data()?)
                }
            };
            // Each file has a part of the address space for itself.
            let address = u64::from(id.0 + 1) << 40;
            let mapping = vfs.map(file, address, 0, bytes, FAULT_AROUND_PAGES);
            mapping.advise(access);
            *open.mapping.borrow_mut() = Some(mapping);
            Ok(0)
        }
        Call::Touch {
            at, bytes, write, ..
        } => {
            let mapping = open.mapping.borrow().clone().ok_or(FsError::NotMapped)?;
            if write && !open.can_write() {
                return Err(FsError::NoAccess);
            }
            let first = at - base_bytes;
            for page in first / PAGE_BYTES..(first + bytes).div_ceil(PAGE_BYTES) {
                let offset = page * PAGE_BYTES;
                match write {
                    true => vfs.touch_for_write(&mapping, offset).await?,
                    false => vfs.touch(&mapping, offset).await?,
                }
            }
            Ok(bytes)
        }
        Call::AdviseMapping { access, .. } => {
            let mapping = open.mapping.borrow().clone().ok_or(FsError::NotMapped)?;
            mapping.advise(access);
            Ok(0)
        }
        Call::SyncMapping { .. } => {
            let mapping = open.mapping.borrow().clone().ok_or(FsError::NotMapped)?;
            // `msync` is `vfs_fsync_range` with `datasync`.
            let only_data = true;
            vfs.fsync(mapping.file(), 0, u64::MAX / 2, only_data)
                .await?;
            Ok(0)
        }
        Call::Unmap { .. } => match open.mapping.borrow_mut().take() {
            Some(_) => Ok(0),
            None => Err(FsError::NotMapped),
        },
        _ => Err(FsError::BadCall),
    }
}

/// What fio does with the cache of a file that it opens: `BLKFLSBUF` on a block device,
/// `POSIX_FADV_DONTNEED` else.
async fn drop_cached(vfs: &Vfs<Kernel>, file: &File) {
    if vfs.is_device(file.inode) {
        vfs.flush_buffers(file.inode).await;
    } else {
        vfs.fadvise(file, 0, 0, Advice::DontNeed).await;
    }
}

/// A call on a file of the mounted file system.
async fn call_on_file(
    vfs: &Vfs<Kernel>,
    tree: Option<&FileTree>,
    open: &OpenFile,
    call: Call,
) -> Result<u64, FsError> {
    let (Some(tree), Opened::InTree(path, opened)) = (tree, &open.what) else {
        return Err(FsError::NoEntry);
    };
    let caller = vfs.host().caller();
    if let Call::OpenFile { flags, .. } = call {
        let file = tree.open(path, flags, &caller).await?;
        let before = opened.borrow_mut().replace(Rc::new(file));
        return match before.map(Rc::try_unwrap) {
            Some(Ok(before)) => tree.close(before).await.map(|()| 0),
            _ => Ok(0),
        };
    }
    let file = opened.borrow().clone().ok_or(FsError::BadFile)?;
    match call {
        Call::Close { .. } => {
            drop((file, open.mapping.borrow_mut().take()));
            let file = opened.borrow_mut().take().map(Rc::try_unwrap);
            if let Some(Ok(file)) = file {
                tree.close(file).await?;
            }
            Ok(0)
        }
        Call::Read {
            at, bytes, route, ..
        } => read_file(tree, &file, (at, bytes), route).await,
        Call::Write {
            at,
            bytes,
            route,
            sync,
            ..
        } => {
            let how = (route, sync);
            let written = write_file(vfs, (tree, &file), (at, bytes), how).await?;
            Ok(written.bytes)
        }
        Call::ReadOn { bytes, route, .. } => {
            let at = file.position();
            let read = read_file(tree, &file, (at, bytes), route).await?;
            file.seek(at + read);
            Ok(read)
        }
        Call::WriteOn {
            bytes, route, sync, ..
        } => {
            let (at, how) = (file.position(), (route, sync));
            let written = write_file(vfs, (tree, &file), (at, bytes), how).await?;
            file.seek(written.end());
            Ok(written.bytes)
        }
        Call::Seek { to, .. } => {
            file.seek(to);
            Ok(to)
        }
        // `ksys_readahead`.
        Call::Readahead { .. } if !file.can_read() => Err(FsError::BadFile),
        Call::Readahead { at, bytes, .. } => {
            let data = file.data().map_err(|_| FsError::BadCall)?;
            vfs.fadvise(data, at, bytes, Advice::WillNeed).await;
            Ok(0)
        }
        Call::Resize { bytes, .. } => tree.resize(&file, bytes, &caller).await.map(|()| 0),
        Call::ReadDir { .. } => Ok(tree.read_dir(&file).await?.len() as u64),
        Call::Sync { what, .. } => {
            let only_data = what == Durability::Data;
            tree.fsync(&file, only_data).await.map(|()| 0)
        }
        call => call_on_data(vfs, file.data()?, call).await,
    }
}

/// Reads this many bytes of a file of the mounted file system from a byte on.
async fn read_file(
    tree: &FileTree,
    file: &blklab_fs::OpenFile,
    (at, bytes): (u64, u64),
    route: Route,
) -> Result<u64, FsError> {
    match route {
        Route::Cached => tree.read_at(file, at, bytes).await,
        _ => tree.read_direct(file, direct_call(at, bytes, route)).await,
    }
}

/// Writes this many bytes to a file of the mounted file system from a byte on, or to its end
/// with `O_APPEND`.
async fn write_file(
    vfs: &Vfs<Kernel>,
    (tree, file): (&FileTree, &blklab_fs::OpenFile),
    (at, bytes): (u64, u64),
    (route, sync): (Route, Option<Durability>),
) -> Result<Written, FsError> {
    let caller = vfs.host().caller();
    let written = match route {
        Route::Cached => tree.write_at(file, at, bytes, &caller).await?,
        _ => {
            let call = direct_call(at, bytes, route);
            tree.write_direct(file, call, &caller).await?
        }
    };
    let place = (written.pos, written.bytes);
    sync_written(vfs, file.data()?, place, sync).await?;
    Ok(written)
}

/// A buffer of fio's begins at a page.
fn direct_call(pos: u64, bytes: u64, route: Route) -> DirectCall {
    DirectCall {
        pos,
        bytes,
        buffer_offset: 0,
        is_async: route == Route::DirectAsync,
    }
}

/// A call on names of the mounted file system, or on all of it.
async fn call_on_path(
    vfs: &Vfs<Kernel>,
    tree: Option<&FileTree>,
    call: Call,
) -> Result<u64, FsError> {
    let Some(tree) = tree else {
        return call_on_drive(vfs, call).await;
    };
    let caller = vfs.host().caller();
    let path = |id: PathId| vfs.host().path(id.0);
    match call {
        Call::Stat { path: at, follow } => {
            let (_, attributes) = tree.stat(&path(at), follow).await?;
            return Ok(attributes.size_bytes);
        }
        Call::MakeDir {
            path: at,
            permissions,
        } => {
            let new = NewInode::Directory(permissions);
            tree.create(&path(at), new, &caller).await?;
        }
        Call::RemoveDir { path: at } => tree.remove_dir(&path(at), &caller).await?,
        Call::Unlink { path: at } => tree.unlink(&path(at), &caller).await?,
        Call::Rename { from, to } => tree.rename(&path(from), &path(to), &caller).await?,
        Call::Link { from, to } => tree.link(&path(from), &path(to), &caller).await?,
        Call::Symlink { target, path: at } => {
            let new = NewInode::Symlink(&path(target));
            tree.create(&path(at), new, &caller).await?;
        }
        Call::Truncate { path: at, bytes } => tree.truncate(&path(at), bytes, &caller).await?,
        Call::ListAll { path: at } => return list_all(vfs, tree, path(at).to_vec()).await,
        Call::SyncAll => tree.sync().await,
        Call::DropCaches(what) => tree.drop_caches(what).await?,
        _ => return Err(FsError::BadCall),
    }
    Ok(0)
}

/// A call on everything, where that is one drive without a file system.
async fn call_on_drive(vfs: &Vfs<Kernel>, call: Call) -> Result<u64, FsError> {
    let inodes = vfs.host().regions();
    match call {
        Call::SyncAll => vfs.sync(DeviceId(0), &inodes).await,
        Call::DropCaches(what) if what & 1 != 0 => {
            inodes.iter().for_each(|inode| vfs.drop_clean_pages(*inode));
        }
        Call::DropCaches(_) => {}
        _ => return Err(FsError::NoEntry),
    }
    Ok(0)
}

/// Lists a directory and those below it, with what `stat` tells of each name.
async fn list_all(vfs: &Vfs<Kernel>, tree: &FileTree, root: Vec<u8>) -> Result<u64, FsError> {
    let flags = OpenFlags {
        read: true,
        directory: true,
        ..OpenFlags::default()
    };
    let mut names = 0;
    let mut left = vec![root];
    while let Some(path) = left.pop() {
        let dir = tree.open(&path, flags, &vfs.host().caller()).await?;
        let mut entries = Vec::new();
        loop {
            let next = tree.read_dir(&dir).await?;
            if next.is_empty() {
                break;
            }
            entries.extend(next);
        }
        for entry in entries {
            if entry.name == b"." || entry.name == b".." {
                continue;
            }
            names += 1;
            let path = [&*path, b"/", &entry.name].concat();
            let (_, attributes) = tree.stat(&path, false).await?;
            if attributes.kind == FileKind::Directory {
                left.push(path);
            }
        }
        tree.close(dir).await?;
    }
    Ok(names)
}

/// Pages that this many bytes lie in.
pub(crate) fn pages_of(at: u64, bytes: u64) -> u64 {
    (at + bytes).div_ceil(PAGE_BYTES) - at / PAGE_BYTES
}
