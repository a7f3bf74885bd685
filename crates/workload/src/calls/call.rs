//! The calls that there are, each declared once: its name in lists, its arguments, and
//! what it does.

use super::argument::{
    Advice, Argument, Bytes, Caches, Duration, Handle, OpenFlags, Path, ProgramName, RangeSync,
    Target, Word,
};

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
            | Call::Readdir { file } => Some(file),
            _ => None,
        }
    }
}
