//! ext2 and FAT images of which some bytes are changed: errors, never a panic or a call
//! without end.
#![no_main]

#[path = "../../crates/fs/tests/fs/image/exercise.rs"]
mod exercise;

use std::cell::RefCell;

use blklab_fs::{
    Ext2Layout, FileSystem, Image, MountOptions, NewInode, Timestamp, VfatLayout, Volume, at_once,
};
use libfuzzer_sys::fuzz_target;

const IMAGE_BYTES: usize = 512 << 10;

// The file system, and changes: each is a place in three bytes and its new value.
fuzz_target!(|input: (bool, &[u8])| {
    let (is_ext2, changes) = input;
    let image = Image::new(RefCell::new(vec![0; IMAGE_BYTES])).expect("memory");
    let made = match is_ext2 {
        true => at_once(Ext2Layout::default().make(&image, Timestamp::default())),
        false => at_once(VfatLayout::default().make(&image, Timestamp::default())),
    };
    made.expect("large enough");
    image.commit().expect("memory");
    let volume = Volume::open(image, &MountOptions::default(), Default::default());
    let volume = volume.expect("just made");
    let root = volume.file_system().root();
    let dir = volume
        .create(root, b"dir", NewInode::Directory(0o755))
        .expect("room");
    for name in [&b"short"[..], b"a longer name"] {
        let file = volume
            .create(dir, name, NewInode::Regular(0o644))
            .expect("room");
        volume.write(file, 0, &[7; 40_000]).expect("room");
    }
    volume.commit().expect("memory");
    let mut bytes = volume.image().storage().borrow().clone();
    for change in changes.chunks_exact(4) {
        let at = u32::from_le_bytes([change[0], change[1], change[2], 0]) as usize;
        bytes[at % IMAGE_BYTES] = change[3];
    }
    exercise::exercise(bytes);
});
