//! What every file system does: names, inodes and where their blocks are.

use std::borrow::Cow;
use std::fmt;
use std::time::{Duration, SystemTime};

use crate::error::FsError;

/// Names an inode on its file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ino(pub u64);

/// A point in time, counted from 1970 on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp {
    /// Whole seconds.
    pub seconds: i64,
    /// What is beyond them, in nanoseconds.
    pub nanoseconds: u32,
}

/// A point in time in UTC, by the Gregorian calendar.
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
    /// Seconds from 1970 on, by Hinnant's `days_from_civil`.
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

/// Who calls, and when: new inodes take owner and time from it, the allocator its
/// place and its rights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// The process: ext2 spreads processes over a block group by it.
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

/// What `stat` tells of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Its number.
    pub ino: Ino,
    /// What it is.
    pub kind: FileKind,
    /// Kind and permissions as `st_mode` has them.
    pub mode: u16,
    /// Names that it has.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Length in bytes.
    pub size_bytes: u64,
    /// What it occupies on the device, in sectors of 512 bytes.
    pub sectors: u64,
    /// Last read.
    pub accessed: Timestamp,
    /// Last change of the contents.
    pub modified: Timestamp,
    /// Last change of the inode; on VFAT its creation.
    pub changed: Timestamp,
}

/// What a new inode is.
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

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// The name, in the bytes that a program sees.
    pub name: Vec<u8>,
    /// What it names.
    pub ino: Ino,
    /// What that is, where the directory says so.
    pub kind: Option<FileKind>,
}

/// Where blocks of a file are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockMap {
    /// The first one's block of the device; `None` in a hole.
    pub block: Option<u64>,
    /// How many blocks from there follow each other, or are holes: at least one.
    pub blocks: u64,
    /// Whether they were allocated by this call: their old contents are not the file's.
    pub is_new: bool,
    /// Whether the next block's place needs a further block to be read, so that a bio
    /// should not wait for it (`BH_Boundary`).
    pub boundary: bool,
}

/// How full a file system is (`statfs`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// The kind's name, as `mount -t` takes it.
    pub kind: &'static str,
    /// The unit of allocation, in bytes.
    pub block_bytes: u32,
    /// Blocks that files could have.
    pub blocks: u64,
    /// Those of them that are free.
    pub blocks_free: u64,
    /// Those of the free ones that are not reserved.
    pub blocks_available: u64,
    /// Inodes; 0 where they are not counted.
    pub inodes: u64,
    /// Free inodes.
    pub inodes_free: u64,
}

/// Symbolic links on the way of one path at most (`MAXSYMLINKS`).
pub(crate) const SYMLINKS_MAX: u32 = 40;

/// The names of a path, but those that stand for the directory itself.
pub(crate) fn names_of(path: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    let names = path.split(|&byte| byte == b'/');
    names.filter(|name| !name.is_empty() && *name != b".")
}

/// Refuses that a directory takes the name of something else, or something else that
/// of a directory (`may_delete`).
pub(crate) fn may_replace(is_dir: bool, replaced_is_dir: bool) -> Result<(), FsError> {
    match (is_dir, replaced_is_dir) {
        (true, false) => Err(FsError::NotDirectory),
        (false, true) => Err(FsError::IsDirectory),
        _ => Ok(()),
    }
}

/// A file system on a block device.
///
/// It keeps the inodes that it was asked for in memory until [`FileSystem::evict`],
/// and their changes until [`FileSystem::write_inode`]. It does not lock: as in Linux
/// the caller holds an inode's lock while it or names in it are changed, one lock
/// over all renames, and lets one task at a time map blocks of one file to be
/// written. Calls for different inodes may interleave at any wait.
pub trait FileSystem {
    /// The root directory.
    fn root(&self) -> Ino;

    /// The unit in which files are mapped, in bytes.
    fn block_bytes(&self) -> u32;

    /// The longest that a file can be, in bytes.
    fn file_bytes_max(&self) -> u64;

    /// Whether a file can have holes. Where it cannot, a write behind the end first
    /// fills what is between with zeroes (`cont_write_begin`).
    fn has_holes(&self) -> bool;

    /// What two names of the same directory entry have in common: the key of a cache
    /// of names (`d_hash`, `d_compare`).
    fn name_key<'a>(&self, name: &'a [u8]) -> Cow<'a, [u8]>;

    /// What a name in a directory stands for.
    ///
    /// # Errors
    /// A name that there cannot be, and as every call here that waits:
    /// [`FsError::Corrupt`] and [`FsError::Device`].
    fn lookup(&self, dir: Ino, name: &[u8]) -> impl Future<Output = Result<Option<Ino>, FsError>>;

    /// Attributes of an inode, which is read where it is not in memory (`iget`).
    ///
    /// # Errors
    /// [`FsError::NoEntry`] for one that is not in use.
    fn attributes(&self, ino: Ino) -> impl Future<Output = Result<Attributes, FsError>>;

    /// The names of a directory from `cursor` on, which is 0 or was returned: some of
    /// them are appended to `entries`. Returns where to go on, `None` at the end.
    ///
    /// # Errors
    /// [`FsError::NotDirectory`].
    fn read_dir(
        &self,
        dir: Ino,
        cursor: u64,
        entries: &mut Vec<DirEntry>,
    ) -> impl Future<Output = Result<Option<u64>, FsError>>;

    /// A new inode with its name.
    ///
    /// # Errors
    /// [`FsError::Exists`], [`FsError::NoSpace`], [`FsError::NotSupported`],
    /// [`FsError::TooManyLinks`] for a directory, and those of names.
    fn create(
        &self,
        dir: Ino,
        name: &[u8],
        new: NewInode<'_>,
        caller: &Caller,
    ) -> impl Future<Output = Result<Ino, FsError>>;

    /// A further name of an inode.
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

    /// Removes a name of something that is no directory. The inode loses a link and
    /// stays until [`FileSystem::evict`].
    ///
    /// # Errors
    /// [`FsError::NoEntry`], [`FsError::IsDirectory`].
    fn unlink(
        &self,
        dir: Ino,
        name: &[u8],
        caller: &Caller,
    ) -> impl Future<Output = Result<Ino, FsError>>;

    /// Removes an empty directory, which stays until [`FileSystem::evict`].
    ///
    /// # Errors
    /// [`FsError::NoEntry`], [`FsError::NotDirectory`], [`FsError::NotEmpty`].
    fn remove_dir(
        &self,
        dir: Ino,
        name: &[u8],
        caller: &Caller,
    ) -> impl Future<Output = Result<Ino, FsError>>;

    /// Moves a name. Returns the inode that had the new name and lost it, if there was
    /// one. The caller has seen to it that no directory moves into itself.
    ///
    /// # Errors
    /// Those of [`FileSystem::create`] and [`FileSystem::unlink`].
    fn rename(
        &self,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        caller: &Caller,
    ) -> impl Future<Output = Result<Option<Ino>, FsError>>;

    /// Where a symbolic link leads.
    ///
    /// # Errors
    /// [`FsError::BadCall`] for other files.
    fn read_link(&self, ino: Ino) -> impl Future<Output = Result<Vec<u8>, FsError>>;

    /// Where up to `blocks` blocks of a file from `block` on are (`get_block`). With
    /// `create`, holes get blocks, as many as can be had at once.
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

    /// The file is this long now, because blocks of it were written (`i_size_write`).
    fn set_size(&self, ino: Ino, size_bytes: u64, now: Timestamp);

    /// Cuts a file, or makes it longer by a hole where the file system has holes. What
    /// the last block holds behind the new end is for the caller to zero.
    ///
    /// # Errors
    /// [`FsError::TooBig`], [`FsError::NoSpace`].
    fn truncate(
        &self,
        ino: Ino,
        size_bytes: u64,
        caller: &Caller,
    ) -> impl Future<Output = Result<(), FsError>>;

    /// Changes attributes (`setattr`, `utimes`, and times of access).
    ///
    /// # Errors
    /// Those of [`FileSystem::attributes`].
    fn change(&self, ino: Ino, change: &Change) -> impl Future<Output = Result<(), FsError>>;

    /// The last program that could write to the file has closed it: blocks that were
    /// set aside for it are so no longer.
    fn release(&self, ino: Ino);

    /// The inode leaves memory; without a link, it is deleted.
    ///
    /// # Errors
    /// Those of [`FileSystem::truncate`].
    fn evict(&self, ino: Ino, now: Timestamp) -> impl Future<Output = Result<(), FsError>>;

    /// Whether the inode has changes that are in memory alone.
    fn is_dirty(&self, ino: Ino) -> bool;

    /// Puts an inode's changes into its block, which becomes dirty; if `wait`, that is
    /// written.
    ///
    /// # Errors
    /// [`FsError::Corrupt`] and [`FsError::Device`].
    fn write_inode(&self, ino: Ino, wait: bool) -> impl Future<Output = Result<(), FsError>>;

    /// Writes the blocks that are needed to find a file's data, and waits for that.
    ///
    /// # Errors
    /// [`FsError::Device`].
    fn sync_buffers(&self, ino: Ino) -> impl Future<Output = Result<(), FsError>>;

    /// Puts all that is in memory alone into dirty blocks: inodes and counters.
    ///
    /// # Errors
    /// [`FsError::Corrupt`] and [`FsError::Device`].
    fn sync(&self, now: Timestamp) -> impl Future<Output = Result<(), FsError>>;

    /// How full it is.
    fn usage(&self) -> Usage;
}
