//! The real device for whose queue a row's settings can be made.

use blklab_device::{Interface, registry};
use blklab_elevator::{DriverKind, QueueTraits};

use crate::error::Error;

/// A device with the kernel's names for its kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The device's name in `/sys/block`, such as `sda`.
    pub device: String,
    /// The pattern by which udev matches its kind, such as `sd[a-z]*`.
    pub pattern: String,
    /// Whether the device has rotating media; `None` if not known.
    pub rotational: Option<bool>,
    /// What decides on the scheduler that the kernel chooses by itself.
    pub queue: QueueTraits,
}

/// The kernel's names of devices: the first of each kind, and a pattern for all of them.
const NAMES: [(&str, &str); 5] = [
    ("nvme0n1", "nvme[0-9]*n[0-9]*"),
    ("sda", "sd[a-z]*"),
    ("mmcblk0", "mmcblk[0-9]*"),
    ("loop0", "loop[0-9]*"),
    ("nullb0", "nullb[0-9]*"),
];

impl Target {
    /// Returns the first device of the kind that a model belongs to.
    ///
    /// # Errors
    /// If there is no such model.
    pub fn of_model(drive: &str) -> Result<Target, Error> {
        let (drive, _) = registry::load(drive).map_err(Error::Mistake)?;
        let (device, pattern) = NAMES[match drive.interface {
            Interface::Nvme => 0,
            Interface::Ahci => 1,
            Interface::Mmc => 2,
            Interface::Loop => 3,
            Interface::Null => 4,
        }];
        let identity = drive.identity();
        Ok(Target {
            device: device.to_string(),
            pattern: pattern.to_string(),
            rotational: Some(identity.rotational),
            queue: QueueTraits {
                has_one_queue: identity.max_queues == 1,
                driver: match drive.interface {
                    Interface::Nvme => DriverKind::Nvme,
                    Interface::Loop => DriverKind::Loop,
                    Interface::Ahci | Interface::Mmc | Interface::Null => DriverKind::Other,
                },
                is_host_managed: identity.zones.is_some(),
            },
        })
    }

    /// Returns a device of this machine.
    pub(crate) fn of_device(name: &str) -> Target {
        let kind = NAMES.iter().find(|(first, _)| {
            let stem = first.trim_end_matches(|c: char| c.is_ascii_digit());
            let stem = stem.strip_suffix("0n").or(stem.strip_suffix('a'));
            name.starts_with(stem.unwrap_or(first.trim_end_matches('0')))
        });
        Target {
            device: name.to_string(),
            pattern: kind.map_or(name, |(_, pattern)| pattern).to_string(),
            rotational: None,
            queue: QueueTraits::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_matched_with_their_kind() {
        let pattern = |name| Target::of_device(name).pattern;
        assert_eq!(pattern("sdc"), "sd[a-z]*");
        assert_eq!(pattern("nvme1n1"), "nvme[0-9]*n[0-9]*");
        assert_eq!(pattern("mmcblk1"), "mmcblk[0-9]*");
        assert_eq!(pattern("vdb"), "vdb");
        let disk = Target::of_model("hdd-7200").expect("shipped");
        assert_eq!((disk.device.as_str(), disk.rotational), ("sda", Some(true)));
        assert!(disk.queue.has_one_queue);
    }
}
