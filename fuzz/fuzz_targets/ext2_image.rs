//! ext2 images of which some bytes are changed: errors, never a panic or a call
//! without end.
#![no_main]

mod image;

use blklab_fs::{Ext2Layout, Timestamp, at_once};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|changes: &[u8]| {
    image::change_and_exercise(changes, |image| {
        at_once(Ext2Layout::default().make(image, Timestamp::default()))
    });
});
