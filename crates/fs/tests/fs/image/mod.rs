//! File systems on images: against a model in memory, and against the tools that
//! know what such images must be.

mod broken;
mod exercise;
mod foreign;
mod model;
mod power_cut;
mod vfat_names;

use std::cell::RefCell;
use std::path::Path;
use std::process::Command;

use blklab_fs::{
    Caller, Ext2Layout, Ext2Options, FatWidth, Image, MountOptions, NewInode, Storage, Timestamp,
    VfatLayout, VfatOptions, Volume, at_once,
};
use blklab_judges::have;

type Memory = RefCell<Vec<u8>>;

/// 2024-01-01 and some seconds.
const NOW: Timestamp = Timestamp {
    seconds: 1_704_067_230,
    nanoseconds: 0,
};

fn root() -> Caller {
    Caller {
        pid: 7,
        now: NOW,
        ..Caller::default()
    }
}

fn options() -> MountOptions {
    MountOptions {
        vfat: VfatOptions::parse("utf8").expect("options"),
        ..MountOptions::default()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Ext2 { block: u32, inode: u32 },
    Fat(FatWidth),
}

fn kinds() -> Vec<Kind> {
    vec![
        Kind::Ext2 {
            block: 1024,
            inode: 128,
        },
        Kind::Ext2 {
            block: 2048,
            inode: 256,
        },
        Kind::Ext2 {
            block: 4096,
            inode: 256,
        },
        Kind::Fat(FatWidth::Fat12),
        Kind::Fat(FatWidth::Fat16),
        Kind::Fat(FatWidth::Fat32),
    ]
}

impl Kind {
    fn is_ext2(self) -> bool {
        matches!(self, Kind::Ext2 { .. })
    }

    fn bytes(self) -> usize {
        match self {
            Kind::Ext2 { block: 1024, .. } => 20 << 20,
            Kind::Ext2 { .. } => 24 << 20,
            Kind::Fat(FatWidth::Fat12) => 6 << 20,
            Kind::Fat(FatWidth::Fat16) => 16 << 20,
            Kind::Fat(FatWidth::Fat32) => 36 << 20,
        }
    }

    fn make<S: Storage>(self, image: &Image<S>) {
        let done = match self {
            Kind::Ext2 { block, inode } => {
                let layout = Ext2Layout {
                    block_bytes: Some(block),
                    inode_bytes: inode,
                    label: b"blklab".to_vec(),
                    uuid: *b"0123456789abcdef",
                    ..Ext2Layout::default()
                };
                at_once(layout.make(image, NOW))
            }
            Kind::Fat(width) => {
                let layout = VfatLayout {
                    width: Some(width),
                    cluster_sectors: (width == FatWidth::Fat32).then_some(1),
                    label: b"BLKLAB".to_vec(),
                    volume_id: 0x1234_5678,
                    ..VfatLayout::default()
                };
                at_once(layout.make(image, NOW))
            }
        };
        done.expect("a file system");
        image.commit().expect("memory");
    }

    fn volume(self) -> Volume<Memory> {
        let image = Image::new(RefCell::new(vec![0; self.bytes()])).expect("memory");
        self.make(&image);
        Volume::open(image, &options(), root()).expect("what was just made")
    }

    /// Asks the tools that know; `None` where they are not installed.
    fn judge(self, bytes: &[u8]) -> Option<Result<(), String>> {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), bytes).expect("written");
        let (program, arguments): (_, &[&str]) = match self {
            Kind::Ext2 { .. } => ("e2fsck", &["-f", "-n"]),
            Kind::Fat(_) => ("fsck.vfat", &["-n", "-v"]),
        };
        judged(program, arguments, file.path())
    }
}

fn judged(program: &str, arguments: &[&str], image: &Path) -> Option<Result<(), String>> {
    let output = Command::new(program).args(arguments).arg(image).output();
    let output = output.ok()?;
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    let all = out + &String::from_utf8_lossy(&output.stderr);
    Some(if output.status.success() {
        Ok(())
    } else {
        Err(all)
    })
}

/// Finds nothing wrong, or the test says that it was not asked.
fn is_sound(kind: Kind, volume: &Volume<Memory>) {
    volume.commit().expect("memory");
    match kind.judge(&volume.image().storage().borrow()) {
        None => {
            have(if kind.is_ext2() {
                "e2fsck"
            } else {
                "fsck.vfat"
            });
        }
        Some(verdict) => assert_eq!(verdict, Ok(()), "{kind:?}"),
    }
}

#[test]
fn a_new_file_system_is_sound() {
    for kind in kinds() {
        is_sound(kind, &kind.volume());
    }
}

/// As Linux 6.12 does it, which `fsck.vfat` tells as its dirty bit.
#[test]
fn fat_says_that_it_is_mounted_until_it_is_unmounted() {
    for (width, byte) in [
        (FatWidth::Fat12, 37),
        (FatWidth::Fat16, 37),
        (FatWidth::Fat32, 65),
    ] {
        let volume = Kind::Fat(width).volume();
        let state = |volume: &Volume<Memory>| {
            volume.commit().expect("memory");
            volume.image().storage().borrow()[byte]
        };
        let fs = volume.file_system();
        at_once(fs.mount(NOW)).expect("memory");
        assert_eq!(state(&volume), 1, "{width:?}");
        let left = Image::new(RefCell::new(volume.image().storage().borrow().clone()));
        at_once(fs.unmount()).expect("memory");
        assert_eq!(state(&volume), 0, "{width:?}");
        // One that nobody unmounted stays so.
        let again = Volume::open(left.expect("memory"), &options(), root()).expect("a FAT");
        at_once(again.file_system().mount(NOW)).expect("memory");
        at_once(again.file_system().unmount()).expect("memory");
        assert_eq!(state(&again), 1, "{width:?}");
    }
}

/// The pieces, in blocks, of four files of 12 MiB that grow by turns; one or two indirect blocks
/// part none.
fn pieces(reservation: bool) -> Vec<Vec<u64>> {
    const STEP: usize = 4096;
    let kind = Kind::Ext2 {
        block: 4096,
        inode: 256,
    };
    let image = Image::new(RefCell::new(vec![0; 64 << 20])).expect("memory");
    kind.make(&image);
    let ext2 = Ext2Options {
        reservation,
        ..Ext2Options::default()
    };
    let options = MountOptions { ext2, ..options() };
    // This process' files begin at the begin of their group.
    let caller = Caller { pid: 16, ..root() };
    let volume = Volume::open(image, &options, caller).expect("what was just made");
    let top = volume.find(b"/", true).expect("a root");
    let file = |name: &[u8]| volume.create(top, name, NewInode::Regular(0o644));
    let files = [b"a", b"b", b"c", b"d"].map(|name| file(name).expect("room"));
    for at in (0..12 << 20).step_by(STEP) {
        for &file in &files {
            volume.write(file, at, &[1; STEP]).expect("room");
        }
    }
    let pieces = |&file: &_| {
        let mut pieces: Vec<u64> = Vec::new();
        let mut end = None;
        for extent in volume.extents(file).expect("sound") {
            let block = extent.device_block.expect("no holes");
            match (pieces.last_mut(), end) {
                (Some(piece), Some(end)) if (end..=end + 2).contains(&block) => {
                    *piece += extent.blocks;
                }
                _ => pieces.push(extent.blocks),
            }
            end = Some(block + extent.blocks);
        }
        pieces
    };
    files.iter().map(pieces).collect()
}

/// A window has 8 blocks, and each further one twice as many up to 1027, of which an indirect
/// block may be one (`EXT2_DEFAULT_RESERVE_BLOCKS`, `EXT2_MAX_RESERVE_BLOCKS`).
#[test]
fn files_of_ext2_that_grow_together_take_turns_by_windows() {
    for file in pieces(true) {
        let doubled: Vec<u64> = file[..8]
            .iter()
            .map(|blocks| blocks.next_power_of_two())
            .collect();
        assert_eq!(doubled, [8, 16, 32, 64, 128, 256, 512, 1024], "{file:?}");
        assert!((1024..=1027).contains(&file[8]), "{file:?}");
    }
    for file in pieces(false) {
        assert!(file.iter().all(|&blocks| blocks <= 2), "{file:?}");
    }
}
