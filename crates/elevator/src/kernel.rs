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

    /// The scheduler that the kernel chooses for a drive by itself (`elevator_init_mq`). Without
    /// a wish of the driver's it is none for several hardware queues.
    pub fn default_scheduler(self, queue: QueueTraits) -> &'static str {
        if self.wants_zone_locks(queue) {
            return "mq-deadline";
        }
        let wants_none = queue.driver == DriverKind::Loop && self >= LOOP_WITHOUT_SCHEDULER;
        match (queue.has_one_queue && !wants_none, self < SCSI_MQ) {
            (false, _) => "none",
            (true, true) => "cfq",
            (true, false) => "mq-deadline",
        }
    }

    /// Whether this release has the scheduler and it suits the drive: where zones need
    /// mq-deadline, only that and none are left.
    pub fn offers(self, scheduler: &str, queue: QueueTraits) -> bool {
        let suits = !self.needs_zone_locks(queue) || ["none", "mq-deadline"].contains(&scheduler);
        suits && self.has(scheduler)
    }

    /// Whether the scheduler may change the order of the writes of a host-managed zone, which
    /// then fail. Until every queue had write plugs, only mq-deadline locked zones.
    pub fn reorders_zones(self, scheduler: &str, queue: QueueTraits) -> bool {
        self.needs_zone_locks(queue) && scheduler != "mq-deadline"
    }

    fn needs_zone_locks(self, queue: QueueTraits) -> bool {
        queue.is_host_managed && self < ZONE_WRITE_PLUGS
    }

    /// Whether the driver asks for a scheduler that locks zones, as all do but NVMe's.
    fn wants_zone_locks(self, queue: QueueTraits) -> bool {
        let asks = self >= ELEVATOR_FEATURES && queue.driver != DriverKind::Nvme;
        asks && self.needs_zone_locks(queue)
    }
}

/// What the kernel looks at when it chooses a scheduler for a drive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueTraits {
    /// Whether there is one hardware queue.
    pub has_one_queue: bool,
    /// The driver.
    pub driver: DriverKind,
    /// Whether the drive has host-managed zones.
    pub is_host_managed: bool,
}

/// The drivers that choose a scheduler in their own ways.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DriverKind {
    /// A loop device.
    Loop,
    /// NVMe.
    Nvme,
    /// Any other driver.
    #[default]
    Other,
}

/// The first release whose loop devices have no scheduler by default (commit 2112f5c1330a). The
/// updates of August 2023 brought it to the older releases that were still kept up.
const LOOP_WITHOUT_SCHEDULER: KernelVersion = kernel(5, 15);

/// The first release in which a driver can ask for a scheduler that locks zones (commits
/// 68c43f133a75 and a0958ba7fcdc).
const ELEVATOR_FEATURES: KernelVersion = kernel(5, 4);

/// The first release with write plugs of zones under every scheduler (commit dd291d77cc90).
const ZONE_WRITE_PLUGS: KernelVersion = kernel(6, 10);

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

    /// The default of a release for a drive.
    fn default_of(version: &str, queue: QueueTraits) -> &'static str {
        let version: KernelVersion = version.parse().expect("a release");
        version.default_scheduler(queue)
    }

    const ONE_QUEUE: QueueTraits = QueueTraits {
        has_one_queue: true,
        driver: DriverKind::Other,
        is_host_managed: false,
    };

    #[test]
    fn a_drive_of_several_queues_has_no_scheduler_by_itself() {
        assert_eq!(default_of("6.12", QueueTraits::default()), "none");
        assert_eq!(default_of("6.12", ONE_QUEUE), "mq-deadline");
        assert_eq!(default_of("4.4", ONE_QUEUE), "cfq");
    }

    #[test]
    fn a_loop_device_has_none_by_itself_since_5_15() {
        let queue = QueueTraits {
            driver: DriverKind::Loop,
            ..ONE_QUEUE
        };
        assert_eq!(default_of("6.12", queue), "none");
        assert_eq!(default_of("5.15", queue), "none");
        assert_eq!(default_of("5.14", queue), "mq-deadline");
    }

    #[test]
    fn zones_need_mq_deadline_until_queues_have_write_plugs() {
        let zoned = |driver| QueueTraits {
            has_one_queue: false,
            driver,
            is_host_managed: true,
        };
        assert_eq!(default_of("6.9", zoned(DriverKind::Other)), "mq-deadline");
        assert_eq!(default_of("5.3", zoned(DriverKind::Other)), "none");
        // NVMe's driver never asked for it.
        assert_eq!(default_of("6.9", zoned(DriverKind::Nvme)), "none");
        for (version, offered) in [
            ("6.9", &["none", "mq-deadline"][..]),
            ("6.10", &["none", "mq-deadline", "bfq", "kyber"]),
        ] {
            let version: KernelVersion = version.parse().expect("a release");
            let queue = zoned(DriverKind::Nvme);
            let names = crate::all().iter().map(|kind| kind.name);
            let names: Vec<&str> = names.filter(|name| version.offers(name, queue)).collect();
            assert_eq!(names, offered, "{version}");
            let reordered = version.reorders_zones("none", queue);
            assert_eq!(reordered, offered.len() == 2, "{version}");
            assert!(!version.reorders_zones("mq-deadline", queue));
        }
    }

    #[test]
    fn what_is_no_release_is_refused() {
        for text in ["", "6", "6.x", "x.12", "1.0", "6.99999999"] {
            assert_eq!(text.parse::<KernelVersion>(), Err(NoKernel), "{text}");
        }
    }
}
