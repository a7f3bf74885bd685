//! The calls that there are, each declared once: its name in lists, its arguments, and
//! what it does.

use super::argument::{
    Advice, Argument, Bytes, Caches, Count, Duration, Handle, MapAdvice, OpenFlags, Path,
    ProgramName, RangeSync, Target, Word,
};
use super::request::{Operation, Requests, SubmitFlags, WaitMode};

/// What there is to know of a call before it is made.
#[derive(Debug)]
pub struct CallType {
    /// Its name in lists.
    pub name: &'static str,
    /// Names of its arguments, in their order, each with how it is written.
    pub arguments: &'static [(&'static str, &'static str)],
    /// What it does.
    pub help: &'static str,
}

impl CallType {
    /// The call with its arguments, as a list has it.
    pub fn form(&self) -> String {
        let arguments = self.arguments.iter().map(|(name, _)| name.to_uppercase());
        let words = std::iter::once(self.name.to_string()).chain(arguments);
        words.collect::<Vec<_>>().join(" ")
    }
}

/// An argument that is missing or wrong: its name, and how it is written.
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

        /// Every call that there is.
        pub const CALLS: &[CallType] = &[$(
            CallType {
                name: $name,
                arguments: &[$((stringify!($argument), <$kind as Argument>::RIGHT)),*],
                help: concat!($($help),+).trim_ascii(),
            },
        )*];

        impl Call {
            /// Its name in lists.
            pub fn name(&self) -> &'static str {
                match self {
                    $(Call::$call { .. } => $name,)*
                }
            }

            /// The call of that name with arguments from the front of the words; `None`
            /// where there is no such call.
            pub(super) fn take(name: &str, words: &mut &[Word]) -> Result<Option<Call>, Wrong> {
                Ok(Some(match name {
                    $($name => Call::$call {
                        $($argument: argument(words, stringify!($argument))?),*
                    },)*
                    _ => return Ok(None),
                }))
            }

            /// Appends its name and arguments.
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

/// The argument of that name from the front of the words.
fn argument<A: Argument>(words: &mut &[Word], name: &'static str) -> Result<A, Wrong> {
    A::take(words).ok_or((name, A::RIGHT))
}

calls! {
    /// Opens a file or a directory under a name of the program's own.
    "open" => Open { file: Handle, path: Path, how: OpenFlags }
    /// Closes it.
    "close" => Close { file: Handle }
    /// Reads at the file's position, which moves.
    "read" => Read { file: Handle, bytes: Bytes }
    /// Writes at the file's position, which moves.
    "write" => Write { file: Handle, bytes: Bytes }
    /// Reads at a place.
    "pread" => Pread { file: Handle, bytes: Bytes, at: Bytes }
    /// Writes at a place.
    "pwrite" => Pwrite { file: Handle, bytes: Bytes, at: Bytes }
    /// Moves the file's position; a directory is read from its beginning.
    "lseek" => Lseek { file: Handle, at: Bytes }
    /// Has the file's data and inode on the drive.
    "fsync" => Fsync { file: Handle }
    /// Has the file's data on the drive, and what is needed to find it.
    "fdatasync" => Fdatasync { file: Handle }
    /// Has all on the drives.
    "sync" => Sync {}
    /// Has all of the file system on the drive that the file is in.
    "syncfs" => Syncfs { file: Handle }
    /// Writes what is dirty of a range, or waits for that; 0 bytes reach to the end.
    "sync_file_range" => SyncFileRange { file: Handle, at: Bytes, bytes: Bytes, what: RangeSync }
    /// Makes an open file so long.
    "ftruncate" => Ftruncate { file: Handle, bytes: Bytes }
    /// Makes a file so long.
    "truncate" => Truncate { path: Path, bytes: Bytes }
    /// Allocates a range of a file. It fails with EOPNOTSUPP, as on ext2, which does not
    /// end the run.
    "fallocate" => Fallocate { file: Handle, at: Bytes, bytes: Bytes }
    /// Tells how a range will be used; 0 bytes reach to the end.
    "posix_fadvise" => Fadvise { file: Handle, at: Bytes, bytes: Bytes, advice: Advice }
    /// Begins to read a range into the page cache.
    "readahead" => Readahead { file: Handle, at: Bytes, bytes: Bytes }
    /// Reads some of the next names of a directory, as many as a C library asks for.
    "readdir" => Readdir { file: Handle }
    /// Deletes a name.
    "unlink" => Unlink { path: Path }
    /// Moves a name; what has the new one is replaced.
    "rename" => Rename { from: Path, to: Path }
    /// Gives a file a further name.
    "link" => Link { path: Path, new: Path }
    /// Makes a symbolic link.
    "symlink" => Symlink { target: Target, path: Path }
    /// Makes a directory.
    "mkdir" => Mkdir { path: Path }
    /// Removes an empty directory.
    "rmdir" => Rmdir { path: Path }
    /// Asks for a file's attributes.
    "stat" => Stat { path: Path }
    /// The same, of a symbolic link itself.
    "lstat" => Lstat { path: Path }
    /// Lists all that is below a directory as `ls -lR` does: names, and what `lstat`
    /// tells of each.
    "list_all" => ListAll { path: Path }
    /// Maps an open file from its beginning, which stays so until `munmap` or `close`.
    "mmap" => Mmap { file: Handle, bytes: Bytes }
    /// Says how a mapped file will be used.
    "madvise" => Madvise { file: Handle, advice: MapAdvice }
    /// Reads memory that a file is mapped to: a fault for each page that is not there.
    "mapped_read" => MappedRead { file: Handle, bytes: Bytes, at: Bytes }
    /// Writes such memory; a page is dirtied at its first fault.
    "mapped_write" => MappedWrite { file: Handle, bytes: Bytes, at: Bytes }
    /// Has what was written to a file's memory on the drive (`MS_SYNC`).
    "msync" => Msync { file: Handle }
    /// Ends a file's mapping.
    "munmap" => Munmap { file: Handle }
    /// Has a thread of glibc's read at a place; a file has one such thread at a time.
    "aio_read" => AioRead { request: Handle, file: Handle, bytes: Bytes, at: Bytes }
    /// Has a thread of glibc's write at a place.
    "aio_write" => AioWrite { request: Handle, file: Handle, bytes: Bytes, at: Bytes }
    /// Has a thread of glibc's call `fsync`, behind what is asked for of the file before.
    "aio_fsync" => AioFsync { request: Handle, file: Handle }
    /// Waits until one of these requests is done.
    "aio_suspend" => AioSuspend { requests: Requests }
    /// Takes back what no thread of glibc's has begun of a file.
    "aio_cancel" => AioCancel { file: Handle }
    /// Says what a request will do, for `lio_listio`, `io_submit` or `io_uring_enter`.
    /// A request that ends otherwise than this line says ends the run, unless it was
    /// taken back or its time was over.
    "prepare" => Prepare { request: Handle, how: SubmitFlags, operation: Operation }
    /// Gives requests to threads of glibc's, and waits for all of them or not.
    "lio_listio" => LioListio { mode: WaitMode, requests: Requests }
    /// Gives requests to the kernel; buffered ones are carried out within the call.
    "io_submit" => IoSubmit { requests: Requests }
    /// Waits for so many ends of requests of `io_submit`, and takes them.
    "io_getevents" => IoGetevents { ends: Count }
    /// Takes a request of `io_submit` back, which the kernel can of no file: it fails
    /// with EINVAL, and that does not end the run.
    "io_cancel" => IoCancel { request: Handle }
    /// Gives requests to io_uring, then waits for so many ends and takes them.
    "io_uring_enter" => IoUringEnter { ends: Count, requests: Requests }
    /// Drops clean pages, or names and inodes that nobody uses.
    "drop_caches" => DropCaches { what: Caches }
    /// The program sleeps.
    "sleep" => Sleep { time: Duration }
    /// The program computes: its CPU is busy.
    "think" => Think { time: Duration }
    /// Has another program begin.
    "start" => Start { program: ProgramName }
    /// Waits for another program's end.
    "wait" => Wait { program: ProgramName }
}

impl Call {
    /// The open file that it is made on.
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
            | Call::AioRead { file, .. }
            | Call::AioWrite { file, .. }
            | Call::AioFsync { file, .. }
            | Call::AioCancel { file } => Some(file),
            Call::Prepare { operation, .. } => operation.call().and_then(Call::file),
            _ => None,
        }
    }

    /// The name under which it opens a file.
    pub(super) fn opens(&self) -> Option<&Handle> {
        match self {
            Call::Open { file, .. } => Some(file),
            Call::Prepare { operation, .. } => operation.call().and_then(Call::opens),
            _ => None,
        }
    }

    /// The request that it says the work of.
    pub(super) fn prepares(&self) -> Option<&Handle> {
        match self {
            Call::Prepare { request, .. }
            | Call::AioRead { request, .. }
            | Call::AioWrite { request, .. }
            | Call::AioFsync { request, .. } => Some(request),
            _ => None,
        }
    }

    /// The requests that it names and does not prepare.
    pub(super) fn requests(&self) -> &[Handle] {
        match self {
            Call::AioSuspend { requests }
            | Call::LioListio { requests, .. }
            | Call::IoSubmit { requests }
            | Call::IoUringEnter { requests, .. } => &requests.0,
            Call::IoCancel { request } => std::slice::from_ref(request),
            Call::Prepare { operation, .. } => operation.cancelled(),
            _ => &[],
        }
    }
}
