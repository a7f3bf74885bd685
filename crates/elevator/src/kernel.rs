//! Releases of Linux and their schedulers.

use core::fmt;
use core::num::ParseIntError;
use core::str::FromStr;

/// A release of Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KernelVersion {
    major: u16,
    minor: u16,
}

impl KernelVersion {
    /// The release from which the schedulers here are taken.
    pub const DEFAULT: KernelVersion = kernel(6, 12);

    /// Whether this release has the scheduler. Schedulers of papers, and those that only some
    /// distributions add, are in no release.
    pub fn has(self, scheduler: &str) -> bool {
        let found = SCHEDULERS.iter().find(|(name, ..)| *name == scheduler);
        found.is_some_and(|(_, first, last)| *first <= self && last.is_none_or(|last| self <= last))
    }

    /// The scheduler that the kernel chooses for a drive (`elevator_get_default`): with several
    /// hardware queues none.
    pub fn default_scheduler(self, has_one_queue: bool) -> &'static str {
        match (has_one_queue, self < SCSI_MQ) {
            (false, _) => "none",
            (true, true) => "cfq",
            (true, false) => "mq-deadline",
        }
    }
}

/// The first release in which drives with one queue are behind blk-mq by default (commit
/// d5038a13eca7).
const SCSI_MQ: KernelVersion = kernel(4, 19);

/// Schedulers with the first and the last release that has them. blk-mq came with 3.13, its
/// schedulers with 4.11 and 4.12; the single-queue schedulers were removed in 5.0.
const SCHEDULERS: &[(&str, KernelVersion, Option<KernelVersion>)] = &[
    ("none", kernel(3, 13), None),
    ("noop", kernel(2, 6), Some(kernel(4, 20))),
    ("deadline", kernel(2, 6), Some(kernel(4, 20))),
    ("cfq", kernel(2, 6), Some(kernel(4, 20))),
    ("mq-deadline", kernel(4, 11), None),
    ("bfq", kernel(4, 12), None),
    ("kyber", kernel(4, 12), None),
];

const fn kernel(major: u16, minor: u16) -> KernelVersion {
    KernelVersion { major, minor }
}

impl fmt::Display for KernelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// The error for a text that is not a release of Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoKernel;

impl fmt::Display for NoKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a release of Linux from 2.6 on is right, as 6.12 or 4.19")
    }
}

impl core::error::Error for NoKernel {}

impl FromStr for KernelVersion {
    type Err = NoKernel;

    /// Parses `MAJOR.MINOR`, followed by anything that `uname -r` may append.
    fn from_str(text: &str) -> Result<KernelVersion, NoKernel> {
        let mut parts = text.trim().splitn(3, ['.', '-']);
        let mut number = || -> Result<u16, NoKernel> {
            let part = parts.next().ok_or(NoKernel)?;
            part.parse().map_err(|_: ParseIntError| NoKernel)
        };
        let version = kernel(number()?, number()?);
        match version >= kernel(2, 6) {
            true => Ok(version),
            false => Err(NoKernel),
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn every_scheduler_of_a_kernel_is_known_here() {
        for (name, ..) in SCHEDULERS {
            assert!(crate::find(name).is_some(), "{name}");
        }
    }

    #[test]
    fn kernels_have_the_schedulers_of_their_time() {
        let of = |version: &str| -> Vec<&str> {
            let version: KernelVersion = version.parse().expect("a release");
            let names = crate::all().iter().map(|kind| kind.name);
            names.filter(|name| version.has(name)).collect()
        };
        assert_eq!(of("6.12.3-arch1"), ["none", "mq-deadline", "bfq", "kyber"]);
        assert_eq!(of("3.10"), ["noop", "deadline", "cfq"]);
        assert_eq!(of("4.14").len(), 7);
    }

    #[test]
    fn a_drive_of_several_queues_has_no_scheduler_by_itself() {
        let old: KernelVersion = "4.4".parse().expect("a release");
        assert_eq!(KernelVersion::DEFAULT.default_scheduler(false), "none");
        assert_eq!(
            KernelVersion::DEFAULT.default_scheduler(true),
            "mq-deadline"
        );
        assert_eq!(old.default_scheduler(true), "cfq");
    }

    #[test]
    fn what_is_no_release_is_refused() {
        for text in ["", "6", "6.x", "x.12", "1.0", "6.99999999"] {
            assert_eq!(text.parse::<KernelVersion>(), Err(NoKernel), "{text}");
        }
    }
}
