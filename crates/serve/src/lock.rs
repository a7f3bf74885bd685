//! Locks on files and devices in use: advisory ones (`flock(2)`), which `flock(1)`, fdisk, mkfs
//! and udev take on a device too, and which end with the process that holds them.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FlockOperation, OFlags, flock, major, minor};
use rustix::io::Errno;

use crate::patiently;

/// How long a lock is waited for: that of a killed process goes with the last of its I/O.
const RELEASE_LIMIT: Duration = Duration::from_secs(1);

/// Locks a file: those who only read it may share it, who changes it has it alone.
///
/// # Errors
/// Who has it, if another does.
pub fn lock(file: &File, changes: bool) -> Result<(), String> {
    let operation = match changes {
        true => FlockOperation::NonBlockingLockExclusive,
        false => FlockOperation::NonBlockingLockShared,
    };
    let locked = patiently(RELEASE_LIMIT, || match flock(file, operation) {
        // A file system without locks cannot tell who else uses the file.
        Ok(()) | Err(Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS) => Some(Ok(())),
        Err(Errno::WOULDBLOCK | Errno::INTR) => None,
        Err(error) => Some(Err(format!("cannot lock: {error}"))),
    });
    locked.unwrap_or_else(|| Err(in_use(holder(file))))
}

/// Opens a file or block device to read and write it; a device so that nobody else uses it, as
/// file systems, device mapper and md claim theirs.
///
/// # Errors
/// Those of the operating system, and that the device is in use.
pub fn open_to_change(path: &Path) -> io::Result<File> {
    open_with(path, OFlags::empty())
}

/// Does the same with further flags.
pub(crate) fn open_with(path: &Path, flags: OFlags) -> io::Result<File> {
    let is_device = path
        .metadata()
        .is_ok_and(|of| of.file_type().is_block_device());
    let flags = match is_device {
        true => flags | OFlags::EXCL,
        false => flags,
    };
    let mut options = File::options();
    options.read(true).write(true);
    options.custom_flags(flags.bits() as i32);
    let opened = patiently(RELEASE_LIMIT, || match options.open(path) {
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => None,
        opened => Some(opened),
    });
    opened.unwrap_or_else(|| {
        let why = "it is mounted, or another program has it alone";
        Err(io::Error::new(io::ErrorKind::ResourceBusy, why))
    })
}

fn in_use(holder: Option<u32>) -> String {
    let by = match holder {
        Some(pid) if pid == std::process::id() => "this process already".to_string(),
        Some(pid) => match std::fs::read_to_string(format!("/proc/{pid}/comm")) {
            Ok(name) => format!("process {pid} ({})", name.trim_end()),
            Err(_) => format!("process {pid}"),
        },
        None => "another process".to_string(),
    };
    format!("in use by {by}: while one changes it, no other may open it")
}

/// Returns the process that holds a lock on the file, if the kernel tells.
fn holder(file: &File) -> Option<u32> {
    let metadata = file.metadata().ok()?;
    let device = (major(metadata.dev()), minor(metadata.dev()));
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    holder_in(&locks, device, metadata.ino())
}

/// Finds the holder in `/proc/locks`, whose lines are as `1: FLOCK ADVISORY WRITE PID
/// MAJOR:MINOR:INODE START END`; those of waiters have an arrow after the number.
fn holder_in(locks: &str, (major, minor): (u32, u32), inode: u64) -> Option<u32> {
    let place = format!("{major:02x}:{minor:02x}:{inode}");
    locks.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let is_flock = words.next() == Some("FLOCK");
        let pid = words.nth(2)?.parse().ok().filter(|&pid| pid > 0)?;
        (is_flock && words.next() == Some(&place)).then_some(pid)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_share_a_file_and_a_writer_is_alone() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let open = || File::open(file.path()).expect("it is there");
        let readers = [open(), open()];
        for reader in &readers {
            assert_eq!(lock(reader, false), Ok(()));
        }
        let refused = lock(&open(), true).expect_err("others read it");
        assert!(refused.starts_with("in use by "), "{refused}");
        drop(readers);
        let writer = open();
        assert_eq!(lock(&writer, true), Ok(()));
        assert!(lock(&open(), false).is_err());
        drop(writer);
        assert_eq!(lock(&open(), false), Ok(()));
    }

    #[test]
    fn the_holder_is_read_from_the_kernels_list() {
        let locks = "1: POSIX  ADVISORY  WRITE 11 08:01:77 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 12 08:01:77 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 13 08:01:77 0 EOF\n\
                     3: FLOCK  ADVISORY  READ 14 fe:10:78 0 EOF\n";
        assert_eq!(holder_in(locks, (8, 1), 77), Some(12));
        assert_eq!(holder_in(locks, (254, 16), 78), Some(14));
        assert_eq!(holder_in(locks, (8, 1), 78), None);
    }
}
