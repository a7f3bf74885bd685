//! Broken images are errors that name a byte, never a panic or a call without end.

use std::cell::RefCell;

use blklab_fs::{FileSystem, FsError, Image, MountOptions, NewInode, Volume};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::image::exercise::exercise;
use crate::image::{Kind, Memory, kinds, root};

/// A file system with a tree in it.
fn filled(kind: Kind) -> Volume<Memory> {
    let volume = kind.volume();
    let top = volume.file_system().root();
    let dir = volume
        .create(top, b"dir", NewInode::Directory(0o755))
        .expect("room");
    let below = volume
        .create(dir, b"below", NewInode::Directory(0o755))
        .expect("room");
    for (n, dir) in [top, dir, below].into_iter().enumerate() {
        for length in [10, 3000, 300_000] {
            let name = format!("a file with {length} bytes in {n}");
            let file = volume.create(dir, name.as_bytes(), NewInode::Regular(0o644));
            let file = file.expect("room");
            volume.write(file, 0, &vec![n as u8; length]).expect("room");
        }
    }
    volume.commit().expect("memory");
    volume
}

/// Where structures are: bytes that are not 0, outside of the files' data.
fn structure(bytes: &[u8]) -> Vec<usize> {
    let at = bytes
        .iter()
        .enumerate()
        .filter(|(_, byte)| !matches!(**byte, 0..=2 | 0xff));
    let mut at: Vec<usize> = at.map(|(at, _)| at).collect();
    at.extend((0..4096).step_by(3));
    at
}

#[test]
fn any_bytes_may_be_wrong() {
    for kind in kinds() {
        let bytes = filled(kind).image().storage().borrow().clone();
        let places = structure(&bytes);
        let changes = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12);
        let mut runner = TestRunner::new(Config {
            cases: 24,
            max_shrink_iters: 50,
            failure_persistence: None,
            ..Config::default()
        });
        let done = runner.run(&changes, |changes| {
            let mut broken = bytes.clone();
            for (at, value) in changes {
                broken[places[at.index(places.len())]] = value;
            }
            exercise(broken);
            Ok(())
        });
        done.unwrap_or_else(|error| panic!("{kind:?}: {error}"));
    }
}

fn opened(bytes: Vec<u8>) -> Result<Volume<Memory>, FsError> {
    let image = Image::new(RefCell::new(bytes)).expect("memory");
    Volume::open(image, &MountOptions::default(), root())
}

fn corrupt_byte(result: Result<impl Sized, FsError>) -> u64 {
    match result {
        Err(FsError::Corrupt { byte, .. }) => byte,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("no error"),
    }
}

const EXT2: Kind = Kind::Ext2 {
    block: 1024,
    inode: 128,
};

#[test]
fn errors_name_the_byte_that_is_wrong() {
    let bytes = filled(EXT2).image().storage().borrow().clone();
    let with = |at: usize, value: u32| {
        let mut bytes = bytes.clone();
        bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        bytes
    };
    // Neither magic number.
    assert_eq!(corrupt_byte(opened(vec![0; 1 << 20])), 14);
    // More blocks than the device has.
    assert_eq!(corrupt_byte(opened(with(1024 + 4, 1 << 30))), 1024 + 4);
    // A block bitmap outside of its group.
    assert_eq!(corrupt_byte(opened(with(2048, 0))), 2048);
    // The first block of a file beyond the end.
    let volume = opened(bytes.clone()).expect("sound");
    // A file of the root is in the first group.
    let ino = volume
        .find(b"a file with 10 bytes in 0", true)
        .expect("a file");
    let table = u32::from_le_bytes([bytes[2056], bytes[2057], bytes[2058], bytes[2059]]);
    let pointer = table as usize * 1024 + (ino.0 as usize - 1) * 128 + 40;
    let volume = opened(with(pointer, u32::MAX)).expect("read lazily");
    let read = volume.read(ino, 0, &mut [0; 10]);
    assert_eq!(corrupt_byte(read), pointer as u64);
}

#[test]
fn a_chain_that_is_a_loop_is_an_error() {
    let kind = Kind::Fat(blklab_fs::FatWidth::Fat16);
    let bytes = filled(kind).image().storage().borrow().clone();
    let volume = opened(bytes.clone()).expect("sound");
    let name = b"dir/a file with 300000 bytes in 1";
    let ino = volume.find(name, true).expect("a file");
    let first = volume.extents(ino).expect("blocks")[0]
        .device_block
        .expect("no hole");
    // The table begins at sector 1, data behind two tables and 32 sectors of the root.
    let fat_sectors = u64::from(u16::from_le_bytes([bytes[22], bytes[23]]));
    let cluster = (first - 1 - 2 * fat_sectors - 32) / u64::from(bytes[13]) + 2;
    let entry = 512 + 2 * cluster as usize;
    let mut looped = bytes;
    looped[entry + 2..entry + 4].copy_from_slice(&(cluster as u16).to_le_bytes());
    let volume = opened(looped).expect("read lazily");
    let (dir, file) = volume.find_parent(name).expect("a directory");
    corrupt_byte(volume.remove(dir, file));
}
