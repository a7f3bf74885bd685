//! What is written to a file of a control group before jobs run.

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
    /// That of the n-th of so many drives of a run: `8:0`, `8:16` and so on. A run's
    /// only drive has any.
    pub fn is_of(self, n: usize, drives: usize) -> bool {
        drives == 1 || self.major == 8 && u64::from(self.minor) == 16 * n as u64
    }
}

impl Display for DriveNumber {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

/// Something that is written to a file of a group.
#[derive(Clone, Debug, PartialEq)]
pub struct CgroupWrite {
    /// The group, without the first slash; empty for the root.
    pub group: String,
    /// The file.
    pub file: &'static CgroupFile,
    /// The drive that it is about; all of them if not said.
    pub drive: Option<DriveNumber>,
    /// The text, without the drive's number.
    pub text: String,
    /// Where it stands.
    pub position: Position,
}

impl CgroupWrite {
    /// What is wrong with it, in the kernel's words.
    pub fn mistake(&self, why: impl Into<String>) -> JobError {
        let option = format!("{} = {}", self.file.name, self.text);
        JobError::of(&self.position, option, why, self.file.form)
    }
}
