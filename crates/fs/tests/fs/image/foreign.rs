//! Images and tools of others: we read and change what `mke2fs -d`, `mkfs.vfat` and
//! `mcopy` made, and `debugfs`, `dumpe2fs` and mtools read what we made.

use std::cell::RefCell;
use std::fs;
use std::path::Path;
use std::process::Command;

use blklab_fs::{FatWidth, FileKind, FileSystem, FsError, Image, NewInode, Storage, Volume};
use blklab_judges::have;

use crate::image::{Kind, Memory, is_sound, judged, options, root};

const EXT2: Kind = Kind::Ext2 {
    block: 1024,
    inode: 128,
};

fn output(program: &str, arguments: &[&str]) -> Vec<u8> {
    let output = Command::new(program)
        .args(arguments)
        .output()
        .expect("installed");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{program} {arguments:?}: {said}");
    output.stdout
}

/// A folder with files of several lengths, one of them with a hole.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let below = folder.path().join("below/deeper");
    fs::create_dir_all(&below).expect("folders");
    for (name, length) in [("empty", 0), ("small.txt", 13), ("large.bin", 900_000)] {
        let data: Vec<u8> = (0..length).map(|n: u32| (n * 7 / 8) as u8).collect();
        fs::write(folder.path().join(name), &data).expect("a file");
        fs::write(below.join(name), &data).expect("a file");
    }
    let names = (0..120).map(|n| format!("below/one of many files, number {n}"));
    for name in names {
        fs::write(folder.path().join(&name), name.as_bytes()).expect("a file");
    }
    folder
}

/// Every file of a folder is in the volume.
fn has_all<S: Storage>(volume: &Volume<S>, folder: &Path, path: &str) {
    for entry in fs::read_dir(folder.join(path)).expect("a folder") {
        let entry = entry.expect("an entry");
        let name = entry.file_name().into_string().expect("UTF-8");
        let inside = format!("{path}/{name}");
        if entry.path().is_dir() {
            has_all(volume, folder, inside.trim_start_matches('/'));
            continue;
        }
        let ino = volume
            .find(inside.as_bytes(), false)
            .unwrap_or_else(|e| panic!("{inside}: {e}"));
        if volume.attributes(ino).expect("attributes").kind != FileKind::Regular {
            continue;
        }
        let mut data = Vec::new();
        volume
            .copy_out(ino, &mut data)
            .expect("memory")
            .expect("data");
        assert!(data == fs::read(entry.path()).expect("a file"), "{inside}");
    }
}

fn opened(path: &Path) -> Volume<Memory> {
    let bytes = fs::read(path).expect("an image");
    let image = Image::new(RefCell::new(bytes)).expect("memory");
    Volume::open(image, &options(), root()).expect("a file system")
}

#[test]
fn we_read_and_change_what_mke2fs_made() {
    if !have("mke2fs") || !have("e2fsck") {
        return;
    }
    let folder = folder();
    std::os::unix::fs::symlink("small.txt", folder.path().join("link")).expect("a link");
    let long = "x/".repeat(50);
    std::os::unix::fs::symlink(&long, folder.path().join("long link")).expect("a link");
    let from = folder.path().to_str().expect("UTF-8").to_owned();
    for options in [
        &["-b", "1024", "-I", "128"][..],
        &["-b", "4096"],
        &["-b", "2048", "-O", "none"],
    ] {
        let image = tempfile::NamedTempFile::new().expect("a file");
        let path = image.path().to_str().expect("UTF-8");
        let fixed = ["-q", "-F", "-t", "ext2", "-d", &from];
        output("mke2fs", &[&fixed, options, &[path, "24M"]].concat());
        let volume = opened(image.path());
        has_all(&volume, folder.path(), "");
        assert_eq!(volume.find(b"link", true), volume.find(b"small.txt", true));
        let link = volume.find(b"long link", false).expect("a link");
        let target = blklab_fs::at_once(volume.file_system().read_link(link));
        assert_eq!(target, Ok(long.clone().into_bytes()));
        let top = volume.file_system().root();
        volume.remove_tree(top, b"below").expect("removed");
        let file = volume
            .create(top, b"new", NewInode::Regular(0o600))
            .expect("a file");
        volume
            .write(file, 2_000_000, b"behind a hole")
            .expect("room");
        volume.commit().expect("memory");
        fs::write(image.path(), &*volume.image().storage().borrow()).expect("written");
        assert_eq!(
            judged("e2fsck", &["-f", "-n"], image.path()),
            Some(Ok(())),
            "{options:?}"
        );
    }
}

#[test]
fn we_read_and_change_what_mkfs_vfat_and_mcopy_made() {
    if !have("mkfs.vfat") || !have("fsck.vfat") || !have("mcopy") {
        return;
    }
    let folder = folder();
    let source = |name: &str| folder.path().join(name).to_str().expect("UTF-8").to_owned();
    for (width, kib) in [("12", "4096"), ("16", "16384"), ("32", "40960")] {
        let place = tempfile::tempdir().expect("a folder");
        let image = place.path().join("image");
        let path = image.to_str().expect("UTF-8");
        output("mkfs.vfat", &["-F", width, "-C", path, kib]);
        let files = ["empty", "small.txt", "large.bin", "below"].map(source);
        let files = files.each_ref().map(String::as_str);
        output(
            "mcopy",
            &[&["-s", "-i", path][..], &files, &["::/"]].concat(),
        );
        let volume = opened(&image);
        has_all(&volume, folder.path(), "");
        let top = volume.file_system().root();
        volume.remove_tree(top, b"BELOW").expect("removed");
        let file = volume
            .create(top, b"new file", NewInode::Regular(0o600))
            .expect("a file");
        volume.write(file, 200_000, b"behind zeroes").expect("room");
        volume.commit().expect("memory");
        fs::write(&image, &*volume.image().storage().borrow()).expect("written");
        assert_eq!(
            judged("fsck.vfat", &["-n"], &image),
            Some(Ok(())),
            "FAT{width}"
        );
    }
}

/// A volume of ours with two files, in a file.
fn ours(kind: Kind) -> (Volume<Memory>, tempfile::NamedTempFile, Vec<u8>) {
    let volume = kind.volume();
    let top = volume.file_system().root();
    let data: Vec<u8> = (0..500_000_u32).map(|n| (n * 5 / 4) as u8).collect();
    let dir = volume
        .create(top, b"dir", NewInode::Directory(0o755))
        .expect("a directory");
    let file = volume.create(dir, b"some long name.bin", NewInode::Regular(0o640));
    volume.write(file.expect("a file"), 0, &data).expect("room");
    volume.commit().expect("memory");
    let image = tempfile::NamedTempFile::new().expect("a file");
    fs::write(image.path(), &*volume.image().storage().borrow()).expect("written");
    (volume, image, data)
}

#[test]
fn debugfs_and_dumpe2fs_read_what_we_made() {
    if !have("debugfs") || !have("dumpe2fs") {
        return;
    }
    let (volume, image, data) = ours(EXT2);
    let path = image.path().to_str().expect("UTF-8");
    let read = output("debugfs", &["-R", "cat \"/dir/some long name.bin\"", path]);
    assert!(read == data);
    let said = String::from_utf8(output("dumpe2fs", &["-h", path])).expect("UTF-8");
    let usage = volume.usage();
    for line in [
        format!("Free blocks:              {}", usage.blocks_free),
        format!("Free inodes:              {}", usage.inodes_free),
        "Filesystem state:         clean".to_owned(),
        "Filesystem volume name:   blklab".to_owned(),
        "Filesystem UUID:          30313233-3435-3637-3839-616263646566".to_owned(),
    ] {
        assert!(said.contains(&line), "{line}\n{said}");
    }
}

#[test]
fn mtools_read_what_we_made() {
    if !have("mcopy") {
        return;
    }
    for width in [FatWidth::Fat12, FatWidth::Fat16, FatWidth::Fat32] {
        let (_, image, data) = ours(Kind::Fat(width));
        let path = image.path().to_str().expect("UTF-8");
        let read = output("mcopy", &["-i", path, "::/dir/some long name.bin", "-"]);
        assert!(read == data, "{width:?}");
    }
}

/// What rm leaves behind: on ext2 the inode with its pointers, on VFAT the entry but
/// for its first byte, and the contents on both.
#[test]
fn a_deleted_file_can_still_be_read_from_the_device() {
    for kind in [EXT2, Kind::Fat(FatWidth::Fat16)] {
        let volume = kind.volume();
        let top = volume.file_system().root();
        let file = volume
            .create(top, b"PASSWORD", NewInode::Regular(0o600))
            .expect("a file");
        volume.write(file, 0, b"PASSWORD: secret").expect("room");
        volume.commit().expect("memory");
        volume.remove(top, b"PASSWORD").expect("removed");
        is_sound(kind, &volume);
        assert_eq!(volume.find(b"PASSWORD", true), Err(FsError::NoEntry));
        let mut texts = Vec::new();
        let done: Result<(), FsError> = volume.image().strings(4, |_, text| {
            texts.push(String::from_utf8_lossy(text).into_owned());
            Ok(())
        });
        assert_eq!(done, Ok(()));
        assert!(
            texts.iter().any(|text| text == "PASSWORD: secret"),
            "{texts:?}"
        );
        let name = if kind == EXT2 {
            "PASSWORD"
        } else {
            "ASSWORD    "
        };
        assert!(texts.iter().any(|text| text.starts_with(name)), "{texts:?}");
    }
}

#[test]
fn a_full_file_system_says_so_and_keeps_what_it_had() {
    for kind in crate::image::kinds() {
        let volume = kind.volume();
        let top = volume.file_system().root();
        let file = volume
            .create(top, b"large", NewInode::Regular(0o600))
            .expect("a file");
        let data = vec![1; 1 << 20];
        let mut at = 0;
        let error = loop {
            match volume.write(file, at, &data) {
                Ok(()) => at += data.len() as u64,
                Err(error) => break error,
            }
        };
        assert_eq!(error, FsError::NoSpace, "{kind:?}");
        assert_eq!(volume.usage().blocks_free, 0, "{kind:?}");
        is_sound(kind, &volume);
        volume.remove(top, b"large").expect("removed");
        assert!(volume.usage().blocks_free > at / u64::from(volume.usage().block_bytes));
        is_sound(kind, &volume);
    }
}
