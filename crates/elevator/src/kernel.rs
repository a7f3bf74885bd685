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

    /// The first release that has a driver for such a drive.
    pub fn first_with(queue: QueueTraits) -> KernelVersion {
        let since = queue.driver.releases().since;
        match (queue.is_host_managed, queue.driver) {
            (true, DriverKind::Nvme) => NVME_ZONES,
            (true, _) => since.max(ZONES),
            (false, _) => since,
        }
    }

    /// The scheduler that the kernel chooses for a drive by itself (`elevator_init_mq`). Without
    /// a wish of the driver's it is none for several hardware queues.
    pub fn default_scheduler(self, queue: QueueTraits) -> &'static str {
        if self.wants_zone_locks(queue) {
            return "mq-deadline";
        }
        let wants_none = queue.driver == DriverKind::Loop && self >= LOOP_WITHOUT_SCHEDULER;
        match self.io_path(queue.driver) {
            IoPath::Bios => "none",
            IoPath::SingleQueue => "cfq",
            IoPath::MultiQueue if self < MQ_SCHEDULERS => "none",
            IoPath::MultiQueue if queue.has_one_queue && !wants_none => "mq-deadline",
            IoPath::MultiQueue => "none",
        }
    }

    /// Whether this release has the scheduler, on the path that requests take to such a drive,
    /// and it suits the drive: where zones need mq-deadline, only that and none are left.
    pub fn offers(self, scheduler: &str, queue: QueueTraits) -> bool {
        let path = self.io_path(queue.driver);
        if path == IoPath::Bios {
            // Without a request queue there is nothing to schedule; sysfs says none.
            return scheduler == "none";
        }
        let suits = !self.needs_zone_locks(queue) || ["none", "mq-deadline"].contains(&scheduler);
        suits && self.has(scheduler) && path == path_of(scheduler)
    }

    /// Whether the scheduler may change the order of the writes of a host-managed zone, which
    /// then fail. Until every queue had write plugs, only mq-deadline locked zones.
    pub fn reorders_zones(self, scheduler: &str, queue: QueueTraits) -> bool {
        self.needs_zone_locks(queue) && scheduler != "mq-deadline"
    }

    fn io_path(self, driver: DriverKind) -> IoPath {
        let releases = driver.releases();
        match self >= releases.multi_queue {
            true => IoPath::MultiQueue,
            false => releases.before,
        }
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
    /// Whether there is one hardware queue: the drive has one, or the machine has one CPU.
    pub has_one_queue: bool,
    /// The driver.
    pub driver: DriverKind,
    /// Whether the drive has host-managed zones.
    pub is_host_managed: bool,
}

/// The drivers, which came and moved to blk-mq with releases of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DriverKind {
    /// A loop device.
    Loop,
    /// MMC and SD cards.
    Mmc,
    /// A client of NBD.
    Nbd,
    /// The null block device.
    Null,
    /// NVMe.
    Nvme,
    /// SCSI, and with it SATA and USB.
    #[default]
    Scsi,
    /// A user-space block device.
    Ublk,
    /// A virtio disk.
    Virtio,
}

/// The ways to a driver that the kernel has had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IoPath {
    /// The driver takes bios: there is no request queue, and so no scheduler.
    Bios,
    /// One request queue with the schedulers of its time.
    SingleQueue,
    /// blk-mq.
    MultiQueue,
}

/// The releases with which a driver came and moved.
struct DriverReleases {
    since: KernelVersion,
    /// The first release in which it is behind blk-mq, where nothing else is asked for.
    multi_queue: KernelVersion,
    /// What it was behind until then.
    before: IoPath,
}

impl DriverKind {
    /// Sources are the commits that moved the drivers: loop b5dd2f6047ca, MMC 81196976ed94, NBD
    /// fd8383fd88a2, NVMe a4aea5623d4a, SCSI d5038a13eca7, virtio 1cf7e9c68fe8.
    const fn releases(self) -> DriverReleases {
        let (since, multi_queue, before) = match self {
            DriverKind::Loop => (kernel(2, 6), kernel(4, 0), IoPath::Bios),
            DriverKind::Mmc => (kernel(2, 6), kernel(4, 16), IoPath::SingleQueue),
            DriverKind::Nbd => (kernel(2, 6), kernel(4, 9), IoPath::SingleQueue),
            DriverKind::Null => (kernel(3, 13), kernel(3, 13), IoPath::SingleQueue),
            DriverKind::Nvme => (kernel(3, 3), kernel(3, 19), IoPath::Bios),
            DriverKind::Scsi => (kernel(2, 6), kernel(4, 19), IoPath::SingleQueue),
            DriverKind::Ublk => (kernel(6, 0), kernel(6, 0), IoPath::MultiQueue),
            DriverKind::Virtio => (kernel(2, 6), kernel(3, 13), IoPath::SingleQueue),
        };
        DriverReleases {
            since,
            multi_queue,
            before,
        }
    }
}

/// The path that a scheduler is for.
fn path_of(scheduler: &str) -> IoPath {
    match scheduler {
        "noop" | "deadline" | "cfq" => IoPath::SingleQueue,
        _ => IoPath::MultiQueue,
    }
}

/// The first release whose loop devices have no scheduler by default (commit 2112f5c1330a). The
/// updates of August 2023 brought it to the older releases that were still kept up.
const LOOP_WITHOUT_SCHEDULER: KernelVersion = kernel(5, 15);

/// The first release in which a driver can ask for a scheduler that locks zones (commits
/// 68c43f133a75 and a0958ba7fcdc).
const ELEVATOR_FEATURES: KernelVersion = kernel(5, 4);

/// The first release with write plugs of zones under every scheduler (commit dd291d77cc90).
const ZONE_WRITE_PLUGS: KernelVersion = kernel(6, 10);

/// The first release with host-managed zones of SCSI (commit 89d947561077).
const ZONES: KernelVersion = kernel(4, 10);

/// The first release with NVMe's zoned namespaces (commit 240e6ee272c0).
const NVME_ZONES: KernelVersion = kernel(5, 9);

/// The first release with a scheduler for blk-mq (commit bd166ef183c2).
const MQ_SCHEDULERS: KernelVersion = kernel(4, 11);

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
        driver: DriverKind::Scsi,
        is_host_managed: false,
    };

    #[test]
    fn a_drive_of_several_queues_has_no_scheduler_by_itself() {
        let nvme = QueueTraits {
            driver: DriverKind::Nvme,
            ..QueueTraits::default()
        };
        assert_eq!(default_of("6.12", nvme), "none");
        let on_one_cpu = QueueTraits {
            has_one_queue: true,
            ..nvme
        };
        assert_eq!(default_of("6.12", on_one_cpu), "mq-deadline");
        assert_eq!(default_of("4.10", on_one_cpu), "none");
        assert_eq!(default_of("4.11", on_one_cpu), "mq-deadline");
        assert_eq!(default_of("6.12", ONE_QUEUE), "mq-deadline");
        assert_eq!(default_of("4.4", ONE_QUEUE), "cfq");
    }

    #[test]
    fn drivers_move_to_blk_mq_one_after_the_other() {
        let one_queue = |driver| QueueTraits {
            driver,
            ..ONE_QUEUE
        };
        let offered = |version: &str, driver| -> Vec<&str> {
            let version: KernelVersion = version.parse().expect("a release");
            let names = crate::all().iter().map(|kind| kind.name);
            let queue = one_queue(driver);
            names.filter(|name| version.offers(name, queue)).collect()
        };
        let single = ["noop", "deadline", "cfq"];
        let multi = ["none", "mq-deadline", "bfq", "kyber"];
        assert_eq!(offered("4.14", DriverKind::Scsi), single);
        assert_eq!(offered("4.19", DriverKind::Scsi), multi);
        assert_eq!(offered("4.14", DriverKind::Nvme), multi);
        assert_eq!(offered("4.11", DriverKind::Nvme), multi[..2]);
        assert_eq!(offered("4.4", DriverKind::Nvme), ["none"]);
        assert_eq!(offered("3.10", DriverKind::Nvme), ["none"]);
        assert_eq!(offered("4.15", DriverKind::Mmc), single);
        assert_eq!(offered("4.16", DriverKind::Mmc), multi);
        assert_eq!(
            default_of("4.17", one_queue(DriverKind::Mmc)),
            "mq-deadline"
        );
        assert_eq!(default_of("4.4", one_queue(DriverKind::Loop)), "none");
        assert_eq!(
            default_of("4.14", one_queue(DriverKind::Loop)),
            "mq-deadline"
        );
    }

    #[test]
    fn a_driver_is_in_no_release_before_its_own() {
        let first = |driver, is_host_managed| {
            KernelVersion::first_with(QueueTraits {
                driver,
                is_host_managed,
                ..QueueTraits::default()
            })
        };
        assert_eq!(first(DriverKind::Nvme, false), kernel(3, 3));
        assert_eq!(first(DriverKind::Nvme, true), kernel(5, 9));
        assert_eq!(first(DriverKind::Scsi, true), kernel(4, 10));
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
        assert_eq!(default_of("6.9", zoned(DriverKind::Scsi)), "mq-deadline");
        assert_eq!(default_of("5.3", zoned(DriverKind::Scsi)), "none");
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
