//! The errors of calls, by Linux's error numbers.

use std::fmt;

/// Why a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FsError {
    /// `EINVAL`: offset, length or buffer of direct I/O is not aligned.
    NotAligned,
    /// `ENOSPC`: no block, inode or directory entry is left for the caller, or a write is
    /// after the end of a block device.
    NoSpace,
    /// `SIGBUS` or `SIGSEGV`: an access after the end of the file or its mapping.
    NotMapped,
    /// `ENOENT`.
    NoEntry,
    /// `EBADF`: the file is not open for that.
    BadFile,
    /// `EACCES`: the file is not open for what its mapping would be for.
    NoAccess,
    /// `EEXIST`.
    Exists,
    /// `ENOTDIR`.
    NotDirectory,
    /// `EISDIR`.
    IsDirectory,
    /// `ENOTEMPTY`.
    NotEmpty,
    /// `ELOOP`: symbolic links that lead to each other.
    LinkLoop,
    /// `EMLINK`: an inode has as many links as its file system can count.
    TooManyLinks,
    /// `ENAMETOOLONG`.
    NameTooLong,
    /// `EINVAL`: a name that the file system or the character set cannot hold.
    BadName,
    /// `EINVAL`: a directory would be moved into itself, or this kind of file does not
    /// have such a call.
    BadCall,
    /// `EFBIG`: longer than the file system's longest file.
    TooBig,
    /// `EPERM`: the file system does not have this kind of file, as VFAT has no links.
    NotSupported,
    /// `EBUSY`: something is mounted there.
    Busy,
    /// `EXDEV`: a link or a new name on another file system.
    OtherDevice,
    /// `EIO`: the device failed to read or write.
    Device,
    /// `EUCLEAN`: the device holds another file system, or a broken one.
    Corrupt {
        /// Where on the device, in bytes.
        byte: u64,
        /// What is wrong there.
        what: &'static str,
        /// The value found there.
        found: u64,
    },
}

impl FsError {
    /// Its number on Linux (`errno`); `EFAULT` for those that Linux tells by a signal.
    pub const fn errno(self) -> i32 {
        match self {
            FsError::NotSupported => 1,
            FsError::NoEntry => 2,
            FsError::Device => 5,
            FsError::BadFile => 9,
            FsError::NoAccess => 13,
            FsError::NotMapped => 14,
            FsError::Busy => 16,
            FsError::Exists => 17,
            FsError::OtherDevice => 18,
            FsError::NotDirectory => 20,
            FsError::IsDirectory => 21,
            FsError::NotAligned | FsError::BadName | FsError::BadCall => 22,
            FsError::TooBig => 27,
            FsError::NoSpace => 28,
            FsError::TooManyLinks => 31,
            FsError::NameTooLong => 36,
            FsError::NotEmpty => 39,
            FsError::LinkLoop => 40,
            FsError::Corrupt { .. } => 117,
        }
    }
}

impl fmt::Display for FsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            FsError::NotAligned => "offset, length or buffer is not a multiple of 512 (EINVAL)",
            FsError::NoSpace => "no space left on device (ENOSPC)",
            FsError::NotMapped => "behind the end of the file (SIGBUS)",
            FsError::NoEntry => "no such file or directory (ENOENT)",
            FsError::BadFile => "the file is not open for that (EBADF)",
            FsError::NoAccess => "permission denied (EACCES)",
            FsError::Exists => "file exists (EEXIST)",
            FsError::NotDirectory => "not a directory (ENOTDIR)",
            FsError::IsDirectory => "is a directory (EISDIR)",
            FsError::NotEmpty => "directory not empty (ENOTEMPTY)",
            FsError::LinkLoop => "too many symbolic links (ELOOP)",
            FsError::TooManyLinks => "too many links (EMLINK)",
            FsError::NameTooLong => "file name too long (ENAMETOOLONG)",
            FsError::BadName => "the file system cannot hold such a name (EINVAL)",
            FsError::BadCall => "invalid argument (EINVAL)",
            FsError::TooBig => "file too large (EFBIG)",
            FsError::NotSupported => "the file system has no such files (EPERM)",
            FsError::Busy => "device or resource busy (EBUSY)",
            FsError::OtherDevice => "invalid cross-device link (EXDEV)",
            FsError::Device => "input/output error (EIO)",
            FsError::Corrupt { byte, what, found } => {
                return write!(f, "byte {byte}: {what}; found {found} ({found:#x})");
            }
        };
        f.write_str(text)
    }
}

impl std::error::Error for FsError {}
