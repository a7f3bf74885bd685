//! All calls, each declared once with its name, its arguments and its help.

use super::argument::{
    Advice, Argument, Bytes, Caches, Count, Duration, Handle, MapAdvice, OnlyRequest, OpenFlags,
    Path, ProgramName, RangeSync, Target, Word,
};
use super::request::{Notification, Operation, Requests, SubmitFlags, WaitMode};

/// The declaration of a call.
#[derive(Debug)]
pub struct CallType {
    /// The call's name in lists.
    pub name: &'static str,
    /// The arguments in order: the name and the written form of each.
    pub arguments: &'static [(&'static str, &'static str)],
    /// What the call does.
    pub help: &'static str,
}

impl CallType {
    /// Returns the call with its arguments, as a list has it.
    pub fn form(&self) -> String {
        let arguments = self.arguments.iter().map(|(name, _)| name.to_uppercase());
        let words = std::iter::once(self.name.to_string()).chain(arguments);
        words.collect::<Vec<_>>().join(" ")
    }
}

/// The name and the written form of an argument that is missing or wrong.
pub(super) type Wrong = (&'static str, &'static str);

macro_rules! calls {
    ($($(#[doc = $help:literal])+ $name:literal => $call:ident { $($argument:ident: $kind:ty),* })*) => {
        /// A call of a list.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Call {
            $(
                $(#[doc = $help])+
                $call {
                    $(#[doc = concat!("Its argument `", stringify!($argument), "`.")] $argument: $kind),*
                },
            )*
        }

        /// All calls.
        pub const CALLS: &[CallType] = &[$(
            CallType {
                name: $name,
                arguments: &[$((stringify!($argument), <$kind as Argument>::RIGHT)),*],
                help: concat!($($help),+).trim_ascii(),
            },
        )*];

        impl Call {
            /// Returns the call's name in lists.
            pub fn name(&self) -> &'static str {
                match self {
                    $(Call::$call { .. } => $name,)*
                }
            }

            /// Takes the arguments of the call `name` from the front of `words`. Returns `None` if
            /// there is no such call.
            pub(super) fn take(name: &str, words: &mut &[Word]) -> Result<Option<Call>, Wrong> {
                Ok(Some(match name {
                    $($name => Call::$call {
                        $($argument: argument(words, stringify!($argument))?),*
                    },)*
                    _ => return Ok(None),
                }))
            }

            /// Appends the call's name and arguments.
            pub(super) fn print(&self, text: &mut String) {
                match self {
                    $(Call::$call { $($argument),* } => {
                        text.push_str($name);
                        $($argument.print(text);)*
                    })*
                }
            }
        }
    };
}

/// Takes the argument `name` from the front of `words`.
fn argument<A: Argument>(words: &mut &[Word], name: &'static str) -> Result<A, Wrong> {
    A::take(words).ok_or((name, A::RIGHT))
}

calls! {
    /// Opens a file or a directory under a name of the program's own. A path below /dev that no
    /// line prepares is the drive itself, one below /dev/raw its character device, which is
    /// always direct.
    "open" => Open { file: Handle, path: Path, how: OpenFlags }
    /// Closes an open file.
    "close" => Close { file: Handle }
    /// Reads at the file's position, which moves.
    "read" => Read { file: Handle, bytes: Bytes }
    /// Writes at the file's position, which moves.
    "write" => Write { file: Handle, bytes: Bytes }
    /// Reads at an offset.
    "pread" => Pread { file: Handle, bytes: Bytes, at: Bytes }
    /// Writes at an offset.
    "pwrite" => Pwrite { file: Handle, bytes: Bytes, at: Bytes }
    /// Moves the file's position; a directory is read from its beginning.
    "lseek" => Lseek { file: Handle, at: Bytes }
    /// Waits until the file's data and inode are on the drive.
    "fsync" => Fsync { file: Handle }
    /// Waits until the file's data, and the metadata that is needed to find it, are on the drive.
    "fdatasync" => Fdatasync { file: Handle }
    /// Waits until all data of all file systems is on the drives.
    "sync" => Sync {}
    /// Waits until all data of the file's file system is on the drive.
    "syncfs" => Syncfs { file: Handle }
    /// Starts writeback of a range's dirty pages, or waits for it; 0 bytes reach to the end of the
    /// file.
    "sync_file_range" => SyncFileRange { file: Handle, at: Bytes, bytes: Bytes, what: RangeSync }
    /// Sets the length of an open file.
    "ftruncate" => Ftruncate { file: Handle, bytes: Bytes }
    /// Sets the length of a file.
    "truncate" => Truncate { path: Path, bytes: Bytes }
    /// Allocates a range of a file. The run continues if it fails with EOPNOTSUPP, as on ext2.
    "fallocate" => Fallocate { file: Handle, at: Bytes, bytes: Bytes }
    /// Declares the expected use of a range; 0 bytes reach to the end of the file.
    "posix_fadvise" => Fadvise { file: Handle, at: Bytes, bytes: Bytes, advice: Advice }
    /// Starts to read a range into the page cache.
    "readahead" => Readahead { file: Handle, at: Bytes, bytes: Bytes }
    /// Reads the next names of a directory, as many as a C library asks for at once.
    "readdir" => Readdir { file: Handle }
    /// Deletes a name.
    "unlink" => Unlink { path: Path }
    /// Renames a file and replaces one that has the new name.
    "rename" => Rename { from: Path, to: Path }
    /// Gives a file a further name.
    "link" => Link { path: Path, new: Path }
    /// Makes a symbolic link.
    "symlink" => Symlink { target: Target, path: Path }
    /// Makes a directory.
    "mkdir" => Mkdir { path: Path }
    /// Removes an empty directory.
    "rmdir" => Rmdir { path: Path }
    /// Reads a file's attributes.
    "stat" => Stat { path: Path }
    /// Reads a file's attributes, or those of a symbolic link itself.
    "lstat" => Lstat { path: Path }
    /// Lists everything below a directory as `ls -lR` does: it reads all names and the attributes
    /// of each.
    "list_all" => ListAll { path: Path }
    /// Maps an open file from its beginning until `munmap` or `close`.
    "mmap" => Mmap { file: Handle, bytes: Bytes }
    /// Declares the expected use of a mapped file.
    "madvise" => Madvise { file: Handle, advice: MapAdvice }
    /// Reads memory that a file is mapped to, with a page fault for each page that is not mapped
    /// yet.
    "mapped_read" => MappedRead { file: Handle, bytes: Bytes, at: Bytes }
    /// Writes memory that a file is mapped to; the first fault on a page makes it dirty.
    "mapped_write" => MappedWrite { file: Handle, bytes: Bytes, at: Bytes }
    /// Waits until data written to a file's mapping is on the drive (`MS_SYNC`).
    "msync" => Msync { file: Handle }
    /// Ends a file's mapping.
    "munmap" => Munmap { file: Handle }
    /// Has a thread of glibc read at an offset; each file has one such thread at a time.
    "aio_read" => AioRead { request: Handle, file: Handle, bytes: Bytes, at: Bytes }
    /// Has a thread of glibc write at an offset.
    "aio_write" => AioWrite { request: Handle, file: Handle, bytes: Bytes, at: Bytes }
    /// Has a thread of glibc call `fsync` after the earlier requests on the file.
    "aio_fsync" => AioFsync { request: Handle, file: Handle }
    /// Says how the end of a request of POSIX AIO is told from then on: not at all, by a
    /// signal, or each time by a new thread of the process that makes a program's calls.
    "sigevent" => Sigevent { request: Handle, how: Notification }
    /// Waits for this many signals of such requests and takes them. They come no other way:
    /// the program has them blocked, as `sigwaitinfo` wants it.
    "sigwait" => Sigwait { signals: Count }
    /// Waits until one of these requests is done.
    "aio_suspend" => AioSuspend { requests: Requests }
    /// Cancels the requests on a file that no thread of glibc has begun, or one of them.
    "aio_cancel" => AioCancel { file: Handle, request: OnlyRequest }
    /// Declares what a request will do, for `lio_listio`, `io_submit` or `io_uring_enter`. A
    /// request with another result than this line says ends the run, unless it was cancelled or
    /// timed out.
    "prepare" => Prepare { request: Handle, how: SubmitFlags, operation: Operation }
    /// Submits requests to threads of glibc. It waits for all of them (`wait`) or for none; then
    /// nothing (`nowait`), a signal or a new thread tells when all are done, as with `sigevent`.
    "lio_listio" => LioListio { mode: WaitMode, requests: Requests }
    /// Submits requests to the kernel; buffered ones are carried out within the call.
    "io_submit" => IoSubmit { requests: Requests }
    /// Waits for this many completions of `io_submit` requests and takes them.
    "io_getevents" => IoGetevents { ends: Count }
    /// Cancels an `io_submit` request. The kernel can cancel none on a file, so the call fails with
    /// EINVAL, which does not end the run.
    "io_cancel" => IoCancel { request: Handle }
    /// Submits requests to io_uring, then waits for this many completions and takes them.
    "io_uring_enter" => IoUringEnter { ends: Count, requests: Requests }
    /// Counts the pages of a file that are cached (`cachestat(2)`).
    "cachestat" => Cachestat { file: Handle }
    /// Takes memory and writes to all of it, which costs nothing of its own; at its end a
    /// process gives back what it has.
    "malloc" => Malloc { bytes: Bytes }
    /// Gives so much memory back.
    "free" => Free { bytes: Bytes }
    /// Drops clean pages, or dentries and inodes that are not in use.
    "drop_caches" => DropCaches { what: Caches }
    /// Has the program sleep.
    "sleep" => Sleep { time: Duration }
    /// Has the program compute, which keeps its CPU busy.
    "think" => Think { time: Duration }
    /// Starts another program.
    "start" => Start { program: ProgramName }
    /// Waits until another program ends.
    "wait" => Wait { program: ProgramName }
}

impl Call {
    /// Returns the open file that the call is made on.
    pub fn file(&self) -> Option<&Handle> {
        match self {
            Call::Close { file }
            | Call::Read { file, .. }
            | Call::Write { file, .. }
            | Call::Pread { file, .. }
            | Call::Pwrite { file, .. }
            | Call::Lseek { file, .. }
            | Call::Fsync { file }
            | Call::Fdatasync { file }
            | Call::Syncfs { file }
            | Call::SyncFileRange { file, .. }
            | Call::Ftruncate { file, .. }
            | Call::Fallocate { file, .. }
            | Call::Fadvise { file, .. }
            | Call::Readahead { file, .. }
            | Call::Readdir { file }
            | Call::Mmap { file, .. }
            | Call::Madvise { file, .. }
            | Call::MappedRead { file, .. }
            | Call::MappedWrite { file, .. }
            | Call::Msync { file }
            | Call::Munmap { file }
            | Call::Cachestat { file }
            | Call::AioRead { file, .. }
            | Call::AioWrite { file, .. }
            | Call::AioFsync { file, .. }
            | Call::AioCancel { file, .. } => Some(file),
            Call::Prepare { operation, .. } => operation.call().and_then(Call::file),
            _ => None,
        }
    }

    /// Returns the name under which the call opens a file.
    pub(super) fn opens(&self) -> Option<&Handle> {
        match self {
            Call::Open { file, .. } => Some(file),
            Call::Prepare { operation, .. } => operation.call().and_then(Call::opens),
            _ => None,
        }
    }

    /// Returns the request that the call prepares.
    pub(super) fn prepares(&self) -> Option<&Handle> {
        match self {
            Call::Prepare { request, .. }
            | Call::AioRead { request, .. }
            | Call::AioWrite { request, .. }
            | Call::AioFsync { request, .. } => Some(request),
            _ => None,
        }
    }

    /// The program whose calls a new thread makes when requests end.
    pub(super) fn notifies(&self) -> Option<&ProgramName> {
        match self {
            Call::Sigevent {
                how: Notification::Thread(program),
                ..
            }
            | Call::LioListio {
                mode: WaitMode::NoWait(Notification::Thread(program)),
                ..
            } => Some(program),
            _ => None,
        }
    }

    /// Returns the requests that the call names without preparing them.
    pub(super) fn requests(&self) -> &[Handle] {
        match self {
            Call::AioSuspend { requests }
            | Call::LioListio { requests, .. }
            | Call::IoSubmit { requests }
            | Call::IoUringEnter { requests, .. } => &requests.0,
            Call::IoCancel { request } | Call::Sigevent { request, .. } => {
                std::slice::from_ref(request)
            }
            Call::AioCancel { request, .. } => request.0.as_slice(),
            Call::Prepare { operation, .. } => operation.cancelled(),
            _ => &[],
        }
    }
}
