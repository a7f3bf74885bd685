//! The interface of a file system: names, inodes and block maps.

use std::borrow::Cow;
use std::fmt;
use std::time::{Duration, SystemTime};

use crate::error::FsError;

/// The number of an inode on its file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ino(pub u64);

/// A point in time since the beginning of 1970 in UTC (`struct timespec64`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp {
    /// Whole seconds.
    pub seconds: i64,
    /// The rest, in nanoseconds.
    pub nanoseconds: u32,
}

/// A date of the Gregorian calendar with its time in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Civil {
    /// The year.
    pub year: i64,
    /// 1 to 12.
    pub month: i64,
    /// 1 to 31.
    pub day: i64,
    /// Seconds since midnight.
    pub second_of_day: i64,
}

const DAY_SECONDS: i64 = 86400;

impl Civil {
    /// Seconds since the beginning of 1970, by Hinnant's `days_from_civil`.
    pub const fn seconds(self) -> i64 {
        let year = if self.month <= 2 {
            self.year - 1
        } else {
            self.year
        };
        let month = (self.month + 9) % 12;
        let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
        let days = 365 * year + leap_days + (153 * month + 2) / 5 + self.day - 1 - 719_468;
        days * DAY_SECONDS + self.second_of_day
    }
}

impl Timestamp {
    /// Its date, by Hinnant's `civil_from_days`.
    pub const fn civil(self) -> Civil {
        let days = self.seconds.div_euclid(DAY_SECONDS) + 719_468;
        let era = days.div_euclid(146_097);
        let of_era = days.rem_euclid(146_097);
        let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let from_march = (5 * of_year + 2) / 153;
        let month = (from_march + 2) % 12 + 1;
        Civil {
            year: era * 400 + year_of_era + (month <= 2) as i64,
            month,
            day: of_year - (153 * from_march + 2) / 5 + 1,
            second_of_day: self.seconds.rem_euclid(DAY_SECONDS),
        }
    }
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Timestamp {
        match time.duration_since(SystemTime::UNIX_EPOCH) {
            Ok(since) => Timestamp {
                seconds: since.as_secs() as i64,
                nanoseconds: since.subsec_nanos(),
            },
            Err(before) => Timestamp {
                seconds: -(before.duration().as_secs_f64().ceil() as i64),
                nanoseconds: 0,
            },
        }
    }
}

impl From<Timestamp> for SystemTime {
    fn from(time: Timestamp) -> SystemTime {
        let seconds = Duration::from_secs(time.seconds.unsigned_abs());
        let whole = match time.seconds < 0 {
            true => SystemTime::UNIX_EPOCH.checked_sub(seconds),
            false => SystemTime::UNIX_EPOCH.checked_add(seconds),
        };
        let beyond = Duration::from_nanos(time.nanoseconds.into());
        whole.map_or(SystemTime::UNIX_EPOCH, |whole| whole + beyond)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let civil = self.civil();
        let (hours, minutes) = (civil.second_of_day / 3600, civil.second_of_day / 60 % 60);
        let (year, month, day) = (civil.year, civil.month, civil.day);
        let seconds = civil.second_of_day % 60;
        write!(
            f,
            "{year}-{month:02}-{day:02}T{hours:02}:{minutes:02}:{seconds:02}Z"
        )
    }
}

/// The caller of a file system, and the time of the call. New inodes get owner and times
/// from it; the block allocator uses its process and its rights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// The process, by which ext2 spreads new files over a block group.
    pub pid: u32,
    /// The user; 0 may use reserved blocks.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The time of the call.
    pub now: Timestamp,
}

/// Kinds of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FileKind {
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A character device, a block device, a FIFO or a socket.
    Special,
}

/// The attributes of an inode (`struct kstat`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Its number.
    pub ino: Ino,
    /// Its kind.
    pub kind: FileKind,
    /// Kind and permissions (`st_mode`).
    pub mode: u16,
    /// Hard links, which are its names (`st_nlink`).
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Length in bytes.
    pub size_bytes: u64,
    /// Allocated sectors of 512 bytes (`st_blocks`).
    pub sectors: u64,
    /// Last read.
    pub accessed: Timestamp,
    /// Last change of the contents.
    pub modified: Timestamp,
    /// Last change of the inode; on VFAT its creation.
    pub changed: Timestamp,
}

/// An inode to be created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewInode<'a> {
    /// An empty regular file with these permissions.
    Regular(u16),
    /// An empty directory with these permissions.
    Directory(u16),
    /// A symbolic link to this path.
    Symlink(&'a [u8]),
}

/// Attributes to be changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Permissions.
    pub permissions: Option<u16>,
    /// Owner and group.
    pub owner: Option<(u32, u32)>,
    /// Last read.
    pub accessed: Option<Timestamp>,
    /// Last change of the contents.
    pub modified: Option<Timestamp>,
}

/// A name in a directory (`struct linux_dirent64`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// The name, in the bytes that a program sees.
    pub name: Vec<u8>,
    /// The inode that it names.
    pub ino: Ino,
    /// The inode's kind, if the directory holds it.
    pub kind: Option<FileKind>,
}

/// Where blocks of a file are on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockMap {
    /// The device's block that holds the first of them; `None` in a hole.
    pub block: Option<u64>,
    /// How many blocks follow each other there, or in the hole: at least one.
    pub blocks: u64,
    /// Whether this call allocated them, so that what they hold is not the file's.
    pub is_new: bool,
    /// The place of the next block is in a block that must be read first, so a bio should
    /// be sent before that (`BH_Boundary`).
    pub boundary: bool,
}

/// How a file system's direct I/O holds an inode's lock. A call that its submitter does not
/// wait for holds it only while it submits, unless it makes the file longer or is not of whole
/// blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirectLocking {
    /// Reads share it, writes exclude each other (`ext2_dio_write_iter`).
    ExclusiveWrites,
    /// Reads and writes exclude each other, reads only while they submit (`DIO_LOCKING`).
    Exclusive,
    /// Reads and writes of whole blocks share it (`xfs_file_dio_write_aligned`).
    Shared,
}

/// How full a file system is (`statfs`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// The name of its kind (`mount -t`).
    pub kind: &'static str,
    /// The unit of allocation, in bytes.
    pub block_bytes: u32,
    /// Blocks for files.
    pub blocks: u64,
    /// Free blocks.
    pub blocks_free: u64,
    /// Free blocks that are not reserved for root.
    pub blocks_available: u64,
    /// Inodes; 0 if the kind has no fixed number of them.
    pub inodes: u64,
    /// Free inodes.
    pub inodes_free: u64,
}

/// Symbolic links that one path may follow (`MAXSYMLINKS`).
pub(crate) const SYMLINKS_MAX: u32 = 40;

/// The names of a path, without empty ones and `.`.
pub(crate) fn names_of(path: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    let names = path.split(|&byte| byte == b'/');
    names.filter(|name| !name.is_empty() && *name != b".")
}

/// Checks that a rename replaces a directory by a directory, and other files by other
/// files (`may_delete`).
pub(crate) fn may_replace(is_dir: bool, replaced_is_dir: bool) -> Result<(), FsError> {
    match (is_dir, replaced_is_dir) {
        (true, false) => Err(FsError::NotDirectory),
        (false, true) => Err(FsError::IsDirectory),
        _ => Ok(()),
    }
}

/// A file system on a block device.
///
/// It keeps inodes in memory until [`FileSystem::evict`], and their changes until
/// [`FileSystem::write_inode`]. It does not lock. As in Linux, the caller holds an inode's
/// lock while the inode or names in it are changed, holds one lock for all renames, and
/// lets only one task at a time allocate blocks of a file. Calls for different inodes may
/// interleave at every `await`.
pub trait FileSystem {
    /// The root directory.
    fn root(&self) -> Ino;

    /// The block size of [`FileSystem::map`], in bytes.
    fn block_bytes(&self) -> u32;

    /// The length of the longest file, in bytes (`s_maxbytes`).
    fn file_bytes_max(&self) -> u64;

    /// Whether a file can have holes. If not, a write after the end fills the gap with
    /// zeroes first (`cont_write_begin`).
    fn has_holes(&self) -> bool;

    /// Whether its files are mapped extent by extent (`fs/iomap`), in folios of more than
    /// one page.
    fn uses_iomap(&self) -> bool {
        false
    }

    /// Whether reads and writes can be tried without waiting for anything
    /// (`FMODE_NOWAIT`, `FOP_BUFFER_WASYNC`).
    fn can_try(&self) -> bool {
        false
    }

    /// How direct I/O holds an inode's lock.
    fn direct_locking(&self) -> DirectLocking;

    /// Whether a file that was cut to a shorter length is written when it is closed
    /// (`xfs_release`).
    fn flushes_truncated(&self) -> bool {
        false
    }

    /// The key of a name in the dentry cache; names that are the same to the file system
    /// have the same key (`d_hash`, `d_compare`).
    fn name_key<'a>(&self, name: &'a [u8]) -> Cow<'a, [u8]>;

    /// The inode of a name in a directory, if there is one.
    ///
    /// # Errors
    /// [`FsError::NameTooLong`], and [`FsError::Corrupt`] and [`FsError::Device`] as from
    /// every `async` call here.
    fn lookup(&self, dir: Ino, name: &[u8]) -> impl Future<Output = Result<Option<Ino>, FsError>>;

    /// Attributes of an inode, which is read if it is not in memory (`iget`).
    ///
    /// # Errors
    /// [`FsError::NoEntry`] for an inode that is not in use.
    fn attributes(&self, ino: Ino) -> impl Future<Output = Result<Attributes, FsError>>;

    /// Appends some of a directory's names to `entries`, from `cursor` on. Returns the
    /// cursor of the next call, `None` at the end; that of the first call is 0.
    ///
    /// # Errors
    /// [`FsError::NotDirectory`].
    fn read_dir(
        &self,
        dir: Ino,
        cursor: u64,
        entries: &mut Vec<DirEntry>,
    ) -> impl Future<Output = Result<Option<u64>, FsError>>;

    /// Creates an inode with a name.
    ///
    /// # Errors
    /// [`FsError::Exists`], [`FsError::NoSpace`], [`FsError::NotSupported`],
    /// [`FsError::TooManyLinks`] for a directory, [`FsError::BadName`],
    /// [`FsError::NameTooLong`].
    fn create(
        &self,
        dir: Ino,
        name: &[u8],
        new: NewInode<'_>,
        caller: &Caller,
    ) -> impl Future<Output = Result<Ino, FsError>>;

    /// Adds a hard link to an inode.
    ///
    /// # Errors
    /// Those of [`FileSystem::create`]; [`FsError::NotSupported`] for directories.
    fn link(
        &self,
        ino: Ino,
        dir: Ino,
        name: &[u8],
        caller: &Caller,
    ) -> impl Future<Output = Result<(), FsError>>;

    /// Removes a name that is not a directory's. The inode loses a link and stays in
    /// memory until [`FileSystem::evict`].
    ///
    /// # Errors
    /// [`FsError::NoEntry`], [`FsError::IsDirectory`].
    fn unlink(
        &self,
        dir: Ino,
        name: &[u8],
        caller: &Caller,
    ) -> impl Future<Output = Result<Ino, FsError>>;

    /// Removes an empty directory, which stays in memory until [`FileSystem::evict`].
    ///
    /// # Errors
    /// [`FsError::NoEntry`], [`FsError::NotDirectory`], [`FsError::NotEmpty`].
    fn remove_dir(
        &self,
        dir: Ino,
        name: &[u8],
        caller: &Caller,
    ) -> impl Future<Output = Result<Ino, FsError>>;

    /// Renames. Returns the inode that had the new name before, if there was one. The
    /// caller makes sure that no directory moves into itself.
    ///
    /// # Errors
    /// Those of [`FileSystem::create`] and [`FileSystem::unlink`].
    fn rename(
        &self,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        caller: &Caller,
    ) -> impl Future<Output = Result<Option<Ino>, FsError>>;

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// [`FsError::BadCall`] for other files.
    fn read_link(&self, ino: Ino) -> impl Future<Output = Result<Vec<u8>, FsError>>;

    /// Maps up to `blocks` blocks of a file from `block` on (`get_block`). With `create`,
    /// blocks of a hole are allocated, as many as follow each other.
    ///
    /// # Errors
    /// [`FsError::NoSpace`], [`FsError::TooBig`].
    fn map(
        &self,
        ino: Ino,
        block: u64,
        blocks: u64,
        create: Option<&Caller>,
    ) -> impl Future<Output = Result<BlockMap, FsError>>;

    /// Sets a file's length after its blocks were written (`i_size_write`).
    fn set_size(&self, ino: Ino, size_bytes: u64, now: Timestamp);

    /// Sets a file's length; a file that becomes longer gets a hole, if the kind has holes.
    /// The caller zeroes the last block after the new end.
    ///
    /// # Errors
    /// [`FsError::TooBig`], [`FsError::NoSpace`].
    fn truncate(
        &self,
        ino: Ino,
        size_bytes: u64,
        caller: &Caller,
    ) -> impl Future<Output = Result<(), FsError>>;

    /// Changes attributes (`setattr`, and the access time).
    ///
    /// # Errors
    /// Those of [`FileSystem::attributes`].
    fn change(&self, ino: Ino, change: &Change) -> impl Future<Output = Result<(), FsError>>;

    /// The last writer has closed the file: its reserved blocks are given back
    /// (`ext2_release_file`).
    fn release(&self, ino: Ino);

    /// Drops an inode from memory, and deletes it if it has no link (`evict_inode`).
    ///
    /// # Errors
    /// Those of [`FileSystem::truncate`].
    fn evict(&self, ino: Ino, now: Timestamp) -> impl Future<Output = Result<(), FsError>>;

    /// Whether an inode in memory has changes that its block does not have.
    fn is_dirty(&self, ino: Ino) -> bool;

    /// Puts an inode's changes into its block, which becomes dirty. If `wait`, the block is
    /// written as well.
    ///
    /// # Errors
    /// [`FsError::Corrupt`] and [`FsError::Device`].
    fn write_inode(&self, ino: Ino, wait: bool) -> impl Future<Output = Result<(), FsError>>;

    /// Writes the blocks that map a file's data, and waits (`sync_mapping_buffers`).
    ///
    /// # Errors
    /// [`FsError::Device`].
    fn sync_buffers(&self, ino: Ino) -> impl Future<Output = Result<(), FsError>>;

    /// Puts all inodes and counters that changed in memory into their blocks, which become
    /// dirty (`sync_fs`).
    ///
    /// # Errors
    /// [`FsError::Corrupt`] and [`FsError::Device`].
    fn sync(&self, now: Timestamp) -> impl Future<Output = Result<(), FsError>>;

    /// How full it is.
    fn usage(&self) -> Usage;
}
