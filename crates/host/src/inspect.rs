//! Uses and contents of a drive that an experiment could destroy.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use crate::disk::{Disk, Number};
use crate::error::HostError;
use crate::signature::{Signature, signatures};
use crate::system::{System, names, read};

/// A reason not to write to a drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The root file system is on it, directly or through other devices.
    Root,
    /// It or one of its partitions is mounted.
    Mounted {
        /// The drive or partition.
        part: String,
        /// Mount point.
        place: String,
    },
    /// It or one of its partitions is swap space.
    Swap {
        /// The drive or partition.
        part: String,
    },
    /// A device mapper, md or loop device uses it.
    Holder {
        /// The drive or partition.
        part: String,
        /// The device that uses it.
        holder: String,
    },
    /// The kernel knows partitions on it.
    Partitions(Vec<String>),
    /// It contains a partition table, file system or volume.
    Holds(Signature),
    /// Another program has opened it exclusively.
    Busy,
}

impl Finding {
    /// Whether somebody uses the drive now, and does not only have data on it.
    pub(crate) fn is_in_use(&self) -> bool {
        match self {
            Finding::Root
            | Finding::Mounted { .. }
            | Finding::Swap { .. }
            | Finding::Holder { .. }
            | Finding::Busy => true,
            Finding::Partitions(_) | Finding::Holds(_) => false,
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Finding::Root => write!(f, "the root file system is on it"),
            Finding::Mounted { part, place } => write!(f, "{part} is mounted on {place}"),
            Finding::Swap { part } => write!(f, "{part} is in use as swap"),
            Finding::Holder { part, holder } => write!(f, "{part} is held by {holder}"),
            Finding::Partitions(parts) => write!(f, "it has partitions ({})", parts.join(", ")),
            Finding::Holds(signature) => write!(
                f,
                "it holds {} (by its mark at byte {})",
                signature.format, signature.at_bytes
            ),
            Finding::Busy => write!(f, "another program has opened it exclusively"),
        }
    }
}

/// Returns all reasons not to write to `disk`.
pub fn inspect(system: &System, disk: &Disk) -> Result<Vec<Finding>, HostError> {
    let parts = disk.parts(system);
    let mut found = Vec::new();
    let mounts = mounts(system)?;
    if on_root(system, disk, &mounts) {
        found.push(Finding::Root);
    }
    found.extend(mounted(disk, &parts, &mounts));
    found.extend(swaps(system, disk, &parts)?);
    found.extend(holders(system, disk, &parts));
    if parts.len() > 1 {
        let parts = parts.iter().skip(1).map(|(name, _)| name.clone());
        found.push(Finding::Partitions(parts.collect()));
    }
    let mut device = open(&disk.path, false)?;
    let size_bytes = disk.size_bytes(system)?;
    let held = signatures(&mut device, size_bytes)
        .map_err(|e| HostError::io("look for a file system on the drive", &disk.path, e))?;
    found.extend(held.into_iter().map(Finding::Holds));
    if found.is_empty() && !can_be_opened_exclusively(&disk.path) {
        found.push(Finding::Busy);
    }
    Ok(found)
}

/// Opens the drive for reading.
fn open(path: &Path, alone: bool) -> Result<File, HostError> {
    let mut flags = OFlags::RDONLY | OFlags::CLOEXEC;
    if alone {
        flags |= OFlags::EXCL;
    }
    let file = rustix::fs::open(path, flags, Mode::empty());
    file.map(File::from)
        .map_err(|e| HostError::io("open the drive", path, e.into()))
}

/// Whether the drive can be opened exclusively. File systems, device mapper and md claim block
/// devices with `O_EXCL`, so it fails if one of them uses the drive.
fn can_be_opened_exclusively(path: &Path) -> bool {
    match open(path, true) {
        Ok(_) => true,
        Err(HostError::Io { source, .. }) => {
            source.raw_os_error() != Some(rustix::io::Errno::BUSY.raw_os_error())
        }
        Err(_) => true,
    }
}

/// A line of `/proc/self/mountinfo` (Documentation/filesystems/proc.rst, 3.5).
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mount {
    number: Number,
    place: String,
    source: String,
}

fn mounts(system: &System) -> Result<Vec<Mount>, HostError> {
    let path = system.proc("self/mountinfo");
    let text = read("list what is mounted", &path)?;
    Ok(text.lines().filter_map(mount).collect())
}

fn mount(line: &str) -> Option<Mount> {
    let (before, after) = line.split_once(" - ")?;
    let mut fields = before.split(' ');
    let number = Number::parse(fields.nth(2)?)?;
    let place = unescaped(fields.nth(1)?);
    let source = unescaped(after.split(' ').nth(1)?);
    Some(Mount {
        number,
        place,
        source,
    })
}

/// Decodes the octal escapes, such as `\040` for a blank, with which the kernel writes special
/// characters.
fn unescaped(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let octal = match (first, after.get(..3)) {
            (b'\\', Some(digits)) => std::str::from_utf8(digits).ok(),
            _ => None,
        };
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[3..];
            }
            None => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Mounts of the drive or its partitions. Btrfs and overlays show another device number, so a
/// mount's source is compared as well.
fn mounted(disk: &Disk, parts: &[(String, Number)], mounts: &[Mount]) -> Vec<Finding> {
    let mut found = Vec::new();
    for (name, number) in parts {
        let is_it = |mount: &&Mount| {
            mount.number == *number || stands_for(&mount.source, name, disk, *number)
        };
        for mount in mounts.iter().filter(is_it) {
            found.push(Finding::Mounted {
                part: name.clone(),
                place: mount.place.clone(),
            });
        }
    }
    found
}

/// Whether a path in `/dev` names this drive or partition.
fn stands_for(path: &str, name: &str, disk: &Disk, number: Number) -> bool {
    if !path.starts_with('/') {
        return false;
    }
    let real = std::fs::canonicalize(path).unwrap_or_else(|_| PathBuf::from(path));
    let is_whole = number == disk.number;
    real == Path::new("/dev").join(name) || (is_whole && real == disk.path)
}

/// Whether the root file system uses the drive, directly or through the `slaves` of the devices
/// above it.
fn on_root(system: &System, disk: &Disk, mounts: &[Mount]) -> bool {
    // The last mount on a directory hides earlier ones.
    let Some(root) = mounts.iter().rfind(|mount| mount.place == "/") else {
        return false;
    };
    let mut folders: Vec<PathBuf> = vec![system.sys(format!("dev/block/{}", root.number))];
    if let Some(name) = root.source.strip_prefix("/dev/") {
        folders.push(system.sys(format!("class/block/{name}")));
    }
    let mut seen: Vec<PathBuf> = Vec::new();
    while let Some(folder) = folders.pop() {
        let Ok(folder) = std::fs::canonicalize(folder) else {
            continue;
        };
        if seen.contains(&folder) {
            continue;
        }
        let number = read("read a drive's number", &folder.join("dev"));
        if number.ok().and_then(|text| Number::parse(&text)) == Some(disk.number) {
            return true;
        }
        if folder.join("partition").exists() {
            folders.extend(folder.parent().map(Path::to_path_buf));
        }
        let slaves = folder.join("slaves");
        folders.extend(names(&slaves).iter().map(|name| slaves.join(name)));
        seen.push(folder);
    }
    false
}

fn swaps(
    system: &System,
    disk: &Disk,
    parts: &[(String, Number)],
) -> Result<Vec<Finding>, HostError> {
    let path = system.proc("swaps");
    if !path.exists() {
        // A kernel without swap has no such file.
        return Ok(Vec::new());
    }
    let text = read("list swap space", &path)?;
    let mut found = Vec::new();
    for (name, number) in parts {
        let sources = text
            .lines()
            .skip(1)
            .filter_map(|l| l.split_whitespace().next());
        let mut sources = sources.map(unescaped);
        if sources.any(|source| stands_for(&source, name, disk, *number)) {
            found.push(Finding::Swap { part: name.clone() });
        }
    }
    Ok(found)
}

fn holders(system: &System, disk: &Disk, parts: &[(String, Number)]) -> Vec<Finding> {
    let folder = disk.folder(system);
    let mut found = Vec::new();
    for (name, number) in parts {
        let inside = match *number == disk.number {
            true => folder.join("holders"),
            false => folder.join(name).join("holders"),
        };
        found.extend(names(&inside).into_iter().map(|holder| Finding::Holder {
            part: name.clone(),
            holder,
        }));
    }
    found
}

/// Whether the drive is read-only.
pub fn is_read_only(system: &System, disk: &Disk) -> Result<bool, HostError> {
    let path = disk.folder(system).join("ro");
    Ok(read("see whether the drive can be written", &path)? == "1")
}

/// Checks the permissions on the drive and its sysfs files before anything is changed.
pub fn check_rights(system: &System, disk: &Disk, writes: bool) -> Result<(), HostError> {
    let scheduler = disk.folder(system).join("queue/scheduler");
    let sysfs = OpenOptions::new().write(true).open(&scheduler);
    sysfs.map_err(|e| HostError::io("set the scheduler", &scheduler, e))?;
    let device = OpenOptions::new().read(true).write(writes).open(&disk.path);
    device.map_err(|e| HostError::io("open the drive", &disk.path, e))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine with its root on `vda1` and a blank `sdx` of 1 MiB.
    struct Machine {
        folder: tempfile::TempDir,
        system: System,
        disk: Disk,
    }

    fn machine() -> Machine {
        let folder = tempfile::tempdir().unwrap();
        let system = System::at(folder.path());
        let image = folder.path().join("sdx");
        std::fs::write(&image, vec![0; 1 << 20]).unwrap();
        let machine = Machine {
            disk: Disk {
                path: image,
                name: "sdx".into(),
                number: Number { major: 8, minor: 0 },
            },
            folder,
            system,
        };
        machine.put("sys/block/sdx/size", "2048\n");
        machine.put("sys/block/sdx/dev", "8:0\n");
        machine.put("sys/block/sdx/ro", "0\n");
        machine.put("sys/block/sdx/queue/scheduler", "[none] bfq\n");
        machine.put("sys/block/vda/dev", "254:0\n");
        machine.put("sys/block/vda/vda1/dev", "254:1\n");
        machine.put("sys/block/vda/vda1/partition", "1\n");
        machine.link("sys/dev/block/254:1", "sys/block/vda/vda1");
        machine.link("sys/dev/block/8:0", "sys/block/sdx");
        machine.mounts("22 1 254:1 / / rw,relatime - ext4 /dev/vda1 rw\n");
        machine
    }

    impl Machine {
        fn put(&self, path: &str, text: &str) {
            let path = self.folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }

        fn link(&self, path: &str, target: &str) {
            let path = self.folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::os::unix::fs::symlink(self.folder.path().join(target), path).unwrap();
        }

        fn mounts(&self, text: &str) {
            self.put("proc/self/mountinfo", text);
        }

        fn found(&self) -> Vec<String> {
            let found = inspect(&self.system, &self.disk).unwrap();
            found.iter().map(Finding::to_string).collect()
        }
    }

    #[test]
    fn a_blank_drive_has_nothing_against_it() {
        assert!(machine().found().is_empty());
    }

    #[test]
    fn mounts_are_found_by_number_and_by_source() {
        let m = machine();
        m.mounts("30 1 8:0 / /mnt/a\\040b rw - ext4 /dev/disk/by-id/x rw\n");
        assert_eq!(m.found(), ["sdx is mounted on /mnt/a b"]);
        m.mounts("30 1 0:44 / /mnt rw - btrfs /dev/sdx rw\n");
        assert_eq!(m.found(), ["sdx is mounted on /mnt"]);
    }

    #[test]
    fn a_mounted_partition_counts() {
        let m = machine();
        m.put("sys/block/sdx/sdx2/partition", "2\n");
        m.put("sys/block/sdx/sdx2/dev", "8:2\n");
        m.mounts("30 1 8:2 / /home rw shared:1 - xfs /dev/sdx2 rw\n");
        assert_eq!(
            m.found(),
            ["sdx2 is mounted on /home", "it has partitions (sdx2)"]
        );
    }

    #[test]
    fn swap_holders_and_signatures_are_found() {
        let m = machine();
        m.put(
            "proc/swaps",
            "Filename Type Size Used Priority\n/dev/sdx partition 1 0 -2\n",
        );
        m.put("sys/block/sdx/holders/dm-3/dev", "253:3");
        let mut bytes = vec![0; 1 << 20];
        bytes[..4].copy_from_slice(b"XFSB");
        std::fs::write(&m.disk.path, bytes).unwrap();
        assert_eq!(
            m.found(),
            [
                "sdx is in use as swap",
                "sdx is held by dm-3",
                "it holds an XFS file system (by its mark at byte 0)"
            ]
        );
    }

    #[test]
    fn the_roots_drive_is_found_through_what_lies_between() {
        let m = machine();
        // The root is on dm-0, which uses sdx.
        m.put("sys/block/dm-0/dev", "253:0\n");
        m.link("sys/block/dm-0/slaves/sdx", "sys/block/sdx");
        m.link("sys/dev/block/253:0", "sys/block/dm-0");
        m.mounts("22 1 253:0 / / rw - ext4 /dev/mapper/root rw\n");
        assert_eq!(m.found(), ["the root file system is on it"]);
    }

    #[test]
    fn rights_are_checked_before_anything_is_done() {
        let m = machine();
        check_rights(&m.system, &m.disk, true).unwrap();
        std::fs::remove_file(m.folder.path().join("sys/block/sdx/queue/scheduler")).unwrap();
        assert!(check_rights(&m.system, &m.disk, true).is_err());
        assert!(!is_read_only(&m.system, &m.disk).unwrap());
    }

    #[test]
    fn strange_lines_are_passed_over() {
        for line in ["", " - ", "1 2", "1 2 x:y / / rw - ext4 /dev/a rw", "\\"] {
            assert_eq!(mount(line), None, "{line}");
        }
        assert_eq!(unescaped("a\\040b\\0"), "a b\\0");
    }
}
