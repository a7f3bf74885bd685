//! A value that is written to a file of a control group before jobs run.

use std::fmt::{self, Display, Formatter};

use blklab_blk::CgroupFile;

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

/// A value for a file of a group.
#[derive(Clone, Debug, PartialEq)]
pub struct CgroupWrite {
    /// The group's path without the first slash; empty for the root.
    pub group: String,
    /// The file.
    pub file: &'static CgroupFile,
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
        let option = format!("{} = {}", self.file.name, self.text);
        JobError::of(&self.position, option, why, self.file.form)
    }
}
