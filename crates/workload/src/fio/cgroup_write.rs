//! A value that is written to a file of a control group before jobs run.

use std::fmt::{self, Display, Formatter};

use blklab_blk::{CGROUP_FILES, CgroupFile, CgroupFileOn};
use blklab_fs::{MEMORY_FILES, MemoryFile};

use super::error::{JobError, Position};

/// The number of a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DriveNumber {
    pub(crate) major: u32,
    pub(crate) minor: u32,
}

impl DriveNumber {
    /// Whether this is the number of drive `n` of `drives` in a run: `8:0`, `8:16` and so on. A
    /// run's only drive matches any number.
    pub fn is_of(self, n: usize, drives: usize) -> bool {
        drives == 1 || self.major == 8 && u64::from(self.minor) == 16 * n as u64
    }
}

impl Display for DriveNumber {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

/// A file of a control group: one of its I/O, or one of its memory.
#[derive(Clone, Copy, PartialEq)]
pub enum GroupFile {
    /// Of its I/O, on each drive.
    Io(&'static CgroupFile),
    /// Of its memory.
    Memory(&'static MemoryFile),
}

impl GroupFile {
    /// All files.
    pub fn all() -> impl Iterator<Item = GroupFile> {
        let io = CGROUP_FILES.iter().map(GroupFile::Io);
        io.chain(MEMORY_FILES.iter().map(GroupFile::Memory))
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            GroupFile::Io(file) => file.name,
            GroupFile::Memory(file) => file.name,
        }
    }

    /// Syntax of what is written, after the drive's number if the file takes one.
    pub fn form(self) -> &'static str {
        match self {
            GroupFile::Io(file) => file.form,
            GroupFile::Memory(_) => MemoryFile::FORM,
        }
    }

    /// Groups that have the file.
    pub fn on(self) -> CgroupFileOn {
        match self {
            GroupFile::Io(file) => file.on,
            GroupFile::Memory(_) => CgroupFileOn::Others,
        }
    }

    /// The weight that `text` sets, if this is a file of weights.
    pub fn weight(self, text: &str) -> Option<u32> {
        match self {
            GroupFile::Io(file) => file.weight(text),
            GroupFile::Memory(_) => None,
        }
    }
}

/// By its name: what it is written with has no name.
impl fmt::Debug for GroupFile {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A value for a file of a group.
#[derive(Clone, Debug, PartialEq)]
pub struct CgroupWrite {
    /// The group's path without the first slash; empty for the root.
    pub group: String,
    /// The file.
    pub file: GroupFile,
    /// The drive that the value applies to; `None` means all.
    pub drive: Option<DriveNumber>,
    /// The text, without the drive's number.
    pub text: String,
    /// The place of the value in its file.
    pub position: Position,
}

impl CgroupWrite {
    /// Returns an error about this value; `why` is the kernel's reason.
    pub fn mistake(&self, why: impl Into<String>) -> JobError {
        let option = format!("{} = {}", self.file.name(), self.text);
        JobError::of(&self.position, option, why, self.file.form())
    }
}
