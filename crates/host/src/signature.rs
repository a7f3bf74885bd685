//! Signatures of partition tables, file systems, swap space and volumes in a drive's first and last
//! blocks. The magic numbers are from the documentation of each format; the list follows `blkid`
//! and `wipefs`.

use std::io::{self, Read, Seek, SeekFrom};

/// A format recognised on a drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// The format's usual name.
    pub format: &'static str,
    /// Position of the magic number, in bytes.
    pub at_bytes: u64,
}

/// A magic number at a fixed position: format, position in bytes, and the bytes there.
type Magic = (&'static str, u64, &'static [u8]);

const MAGICS: &[Magic] = &[
    ("an ext2, ext3 or ext4 file system", 1024 + 56, b"\x53\xef"),
    ("an XFS file system", 0, b"XFSB"),
    ("a Btrfs file system", 65_536 + 64, b"_BHRfS_M"),
    ("an F2FS file system", 1024, b"\x10\x20\xf5\xf2"),
    ("an NTFS file system", 3, b"NTFS    "),
    ("an exFAT file system", 3, b"EXFAT   "),
    ("a FAT file system", 54, b"FAT12   "),
    ("a FAT file system", 54, b"FAT16   "),
    ("a FAT file system", 82, b"FAT32   "),
    (
        "a bcachefs file system",
        4096 + 24,
        b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca",
    ),
    (
        "a bcache device",
        4096 + 24,
        b"\xc6\x85\x73\xf6\x66\xce\x90\xa9",
    ),
    ("a ReiserFS file system", 65_536 + 52, b"ReIsEr"),
    ("a JFS file system", 32_768, b"JFS1"),
    ("a NILFS2 file system", 1024 + 6, b"\x34\x34"),
    ("an EROFS file system", 1024, b"\xe2\xe1\xf5\xe0"),
    ("a SquashFS file system", 0, b"hsqs"),
    ("an ISO 9660 file system", 32_769, b"CD001"),
    ("a UDF file system", 32_769, b"BEA01"),
    ("a Minix file system", 1024 + 16, b"\x7f\x13"),
    ("a Minix file system", 1024 + 16, b"\x8f\x13"),
    ("a Minix file system", 1024 + 24, b"\x5a\x4d"),
    ("a GFS2 file system", 65_536, b"\x01\x16\x19\x70"),
    ("an OCFS2 file system", 8192, b"OCFSV2"),
    ("swap space", 4096 - 10, b"SWAPSPACE2"),
    ("swap space", 4096 - 10, b"SWAP-SPACE"),
    ("swap space", 16_384 - 10, b"SWAPSPACE2"),
    ("swap space", 65_536 - 10, b"SWAPSPACE2"),
    ("an LVM volume", 512 + 24, b"LVM2 001"),
    ("a LUKS volume", 0, b"LUKS\xba\xbe"),
    ("a BitLocker volume", 3, b"-FVE-FS-"),
    ("an md RAID member", 0, b"\xfc\x4e\x2b\xa9"),
    ("an md RAID member", 4096, b"\xfc\x4e\x2b\xa9"),
    ("a Ceph OSD", 0, b"bluestore block device"),
    ("a GPT partition table", 512, b"EFI PART"),
    ("a GPT partition table", 4096, b"EFI PART"),
    ("an Apple partition table", 512, b"PM\0\0"),
    ("a BSD disk label", 512, b"\x57\x45\x56\x82"),
];

/// Length of the drive's beginning that contains all of [`MAGICS`], in bytes.
const HEAD_BYTES: u64 = 65_536 + 4096;

/// Searches for signatures on a drive of `size_bytes`.
pub fn signatures(drive: &mut (impl Read + Seek), size_bytes: u64) -> io::Result<Vec<Signature>> {
    let head = read_at(drive, 0, HEAD_BYTES.min(size_bytes))?;
    let mut found: Vec<Signature> = Vec::new();
    for &(format, at_bytes, magic) in MAGICS {
        if has(&head, at_bytes, magic) {
            add(&mut found, format, at_bytes);
        }
    }
    if is_mbr(&head) {
        add(&mut found, "an MBR partition table", 510);
    }
    zfs(&head, &mut found);
    tail(drive, size_bytes, &mut found)?;
    Ok(found)
}

/// Adds a format unless it has already been found.
fn add(found: &mut Vec<Signature>, format: &'static str, at_bytes: u64) {
    if found.iter().all(|signature| signature.format != format) {
        found.push(Signature { format, at_bytes });
    }
}

fn read_at(drive: &mut (impl Read + Seek), at: u64, length: u64) -> io::Result<Vec<u8>> {
    drive.seek(SeekFrom::Start(at))?;
    let mut bytes = Vec::new();
    drive.take(length).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn has(bytes: &[u8], at: u64, magic: &[u8]) -> bool {
    let at = usize::try_from(at).unwrap_or(usize::MAX);
    let end = at.saturating_add(magic.len());
    bytes.get(at..end) == Some(magic)
}

/// Whether there is an MBR partition table. The boot signature is not enough, because FAT has it
/// too: all four entries must have status 0 or 0x80, and one must be in use.
fn is_mbr(head: &[u8]) -> bool {
    let (Some(entries), Some([0x55, 0xaa])) = (head.get(446..510), head.get(510..512)) else {
        return false;
    };
    let mut entries = entries.chunks_exact(16);
    let sound = entries.clone().all(|e| e[0] & 0x7f == 0);
    let used = |e: &[u8]| e[4] != 0 && e[12..16] != [0; 4];
    sound && entries.any(used)
}

/// ZFS has an array of uberblocks from 128 KiB on; the name-value list of its label begins at 16
/// KiB with the XDR encoding (1) and a byte order.
fn zfs(head: &[u8], found: &mut Vec<Signature>) {
    if has(head, 16_384, &[1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]) {
        add(found, "a ZFS pool member", 16_384);
    }
}

/// Formats with a magic number near the end of the drive: the backup GPT, and md RAID 0.90 and 1.0.
fn tail(
    drive: &mut (impl Read + Seek),
    size_bytes: u64,
    found: &mut Vec<Signature>,
) -> io::Result<()> {
    let md_magic = b"\xfc\x4e\x2b\xa9";
    let md_090 = (size_bytes & !0xffff).checked_sub(65_536);
    let md_10 = size_bytes.checked_sub(8192).map(|at| at & !0xfff);
    for at in [md_090, md_10].into_iter().flatten() {
        if has(&read_at(drive, at, 4)?, 0, md_magic) {
            add(found, "an md RAID member", at);
        }
    }
    for sector in [512, 4096] {
        let Some(at) = size_bytes.checked_sub(sector) else {
            continue;
        };
        if has(&read_at(drive, at, 8)?, 0, b"EFI PART") {
            add(found, "a GPT partition table", at);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;
    use std::process::Command;

    const SIZE: u64 = 1 << 20;

    fn found(bytes: Vec<u8>) -> Vec<&'static str> {
        let size = bytes.len() as u64;
        let all = signatures(&mut Cursor::new(bytes), size).unwrap();
        all.into_iter().map(|s| s.format).collect()
    }

    #[test]
    fn every_mark_is_found_where_it_lies() {
        for &(format, at, magic) in MAGICS {
            let mut bytes = vec![0; SIZE as usize];
            bytes[at as usize..at as usize + magic.len()].copy_from_slice(magic);
            assert_eq!(found(bytes), [format]);
        }
    }

    #[test]
    fn blank_and_tiny_drives_hold_nothing() {
        for size in [0, 1, 511, 512, 4096, 70_000, SIZE] {
            assert!(found(vec![0; size as usize]).is_empty(), "{size}");
            assert!(found(vec![0xff; size as usize]).is_empty(), "{size}");
        }
    }

    #[test]
    fn an_mbr_needs_more_than_its_boot_mark() {
        let mut bytes = vec![0; SIZE as usize];
        bytes[510..512].copy_from_slice(&[0x55, 0xaa]);
        assert!(found(bytes.clone()).is_empty());
        bytes[446 + 4] = 0x83;
        bytes[446 + 12] = 8;
        assert_eq!(found(bytes), ["an MBR partition table"]);
    }

    #[test]
    fn marks_at_the_end_are_found() {
        let mut bytes = vec![0; SIZE as usize];
        let at = (SIZE - 512) as usize;
        bytes[at..at + 8].copy_from_slice(b"EFI PART");
        assert_eq!(found(bytes), ["a GPT partition table"]);
        let mut bytes = vec![0; SIZE as usize];
        let at = (SIZE - 8192) as usize;
        bytes[at..at + 4].copy_from_slice(b"\xfc\x4e\x2b\xa9");
        assert_eq!(found(bytes), ["an md RAID member"]);
    }

    /// The formats' own programs make the signatures, if they are installed.
    #[test]
    fn real_formatters_leave_what_is_looked_for() {
        let formatters: [(&[&str], &str); 4] = [
            (
                &["mkfs.ext4", "-q", "-F"],
                "an ext2, ext3 or ext4 file system",
            ),
            (&["mkfs.vfat"], "a FAT file system"),
            (&["mkfs.xfs", "-q", "-f"], "an XFS file system"),
            (&["mkswap"], "swap space"),
        ];
        for (command, format) in formatters {
            let file = tempfile::NamedTempFile::new().unwrap();
            file.as_file().set_len(320 << 20).unwrap();
            let mut program = Command::new(command[0]);
            let done = program.args(&command[1..]).arg(file.path()).output();
            let Ok(done) = done else {
                blklab_judges::not_possible(&format!("{} is not installed", command[0]));
                continue;
            };
            assert!(done.status.success(), "{}", command[0]);
            let size = file.as_file().metadata().unwrap().len();
            let all = signatures(&mut file.reopen().unwrap(), size).unwrap();
            assert!(
                all.iter().any(|s| s.format == format),
                "{}: {all:?}",
                command[0]
            );
        }
    }
}
