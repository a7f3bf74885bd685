//! `fs IMAGE mkfs`: makes a file system on an image or a device.

use std::cell::Cell;
use std::fs::{File, OpenOptions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use blklab_fs::{
    Caller, Ext2Layout, FatWidth, FsError, Image, MountOptions, Storage, VfatLayout, Volume,
    at_once,
};
use blklab_serve::parse_size;

use super::{cannot_open, failure, lock, now, open_image};
use crate::args::{FsArgs, FsKind, FsMkfsArgs};
use crate::failure::Failure;

/// Parses an option's size in bytes.
fn size(option: &str, text: Option<&String>) -> Result<Option<u32>, Failure> {
    let Some(text) = text else {
        return Ok(None);
    };
    let wrong = |why: String| Failure::mistake(format!("{option} {text}: {why}"));
    let bytes = parse_size(text).map_err(wrong)?;
    let bytes = u32::try_from(bytes).map_err(|_| wrong("less than 4G is needed".to_string()))?;
    Ok(Some(bytes))
}

/// Parses hexadecimal digits, ignoring dashes; random bytes if there are none.
fn uuid(text: Option<&String>) -> Result<[u8; 16], Failure> {
    let random = || u128::from(RandomState::new().build_hasher().finish());
    let Some(text) = text else {
        // A random UUID has fixed version and variant bits (RFC 9562, version 4).
        let mut bytes = (random() << 64 | random()).to_be_bytes();
        bytes[6] = bytes[6] & 0x0f | 0x40;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        return Ok(bytes);
    };
    let digits = text.replace('-', "");
    let number = u128::from_str_radix(&digits, 16).ok();
    let number = number.filter(|_| digits.len() == 32 || digits.len() == 8);
    number.map(u128::to_be_bytes).ok_or_else(|| {
        let right = "right are 32 hexadecimal digits, for FAT 8";
        Failure::mistake(format!("--uuid {text}: {right}"))
    })
}

/// What options may say, in words.
const EXT2_VALUES: &str = "--block-size 1k, 2k or 4k, --inode-size 128 or 256, --reserved 0 to 50, \
                           --label of 16 bytes at most";
const FAT_VALUES: &str = "--sector-size 512, 1k, 2k or 4k, --block-size of 1 to 128 sectors, a \
                          power of two, --label of 11 bytes at most";

/// A file that has its new length from the first write on, so that one which cannot get the file
/// system stays as it was.
struct Resized {
    file: File,
    /// `None` leaves the length as it is.
    size_bytes: Cell<Option<u64>>,
}

impl Resized {
    fn resize(&self) -> io::Result<()> {
        match self.size_bytes.take() {
            Some(size_bytes) => self.file.set_len(size_bytes),
            None => Ok(()),
        }
    }
}

impl Storage for Resized {
    fn size_bytes(&self) -> io::Result<u64> {
        match self.size_bytes.get() {
            Some(size_bytes) => Ok(size_bytes),
            None => self.file.size_bytes(),
        }
    }

    fn read_at(&self, byte: u64, into: &mut [u8]) -> io::Result<()> {
        let end = self.file.size_bytes()?;
        let held = end.saturating_sub(byte).min(into.len() as u64) as usize;
        let (held, behind) = into.split_at_mut(held);
        behind.fill(0);
        self.file.read_at(byte, held)
    }

    fn write_at(&self, byte: u64, from: &[u8]) -> io::Result<()> {
        self.resize()?;
        self.file.write_at(byte, from)
    }

    fn flush(&self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Opens or creates the image for a new file system.
fn image_for_mkfs(args: &FsArgs, mkfs: &FsMkfsArgs) -> Result<Image<Resized>, Failure> {
    let name = args.image.as_path();
    let wrong = |error: io::Error| cannot_open(name, &error);
    let size_bytes = match &mkfs.size {
        None => None,
        Some(text) => Some(
            parse_size(text).map_err(|why| Failure::mistake(format!("--size {text}: {why}")))?,
        ),
    };
    let file = if name.exists() {
        let file = open_image(name, true)?;
        lock(name, &file, true)?;
        if !mkfs.force {
            check_empty(name, &file)?;
        }
        file
    } else if size_bytes.is_none() {
        let name = name.display();
        return Err(Failure::mistake(format!(
            "{name}: there is no such image; give its --size"
        )));
    } else {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).open(name);
        let file = file.map_err(wrong)?;
        lock(name, &file, true)?;
        file
    };
    let size_bytes = Cell::new(size_bytes);
    Image::new(Resized { file, size_bytes }).map_err(wrong)
}

/// Refuses an image that holds something.
fn check_empty(name: &Path, file: &File) -> Result<(), Failure> {
    let wrong = |error: io::Error| cannot_open(name, &error);
    let holds = |what: &str| {
        let name = name.display();
        Failure::mistake(format!("{name}: it has {what}; --force replaces it"))
    };
    let copy = file.try_clone().map_err(wrong)?;
    let image = Image::new(copy).map_err(wrong)?;
    if let Ok(volume) = Volume::open(image, &MountOptions::default(), Caller::default()) {
        let kind = volume.usage().kind;
        return Err(holds(&format!("a file system ({kind})")));
    }
    let size_bytes = file.size_bytes().map_err(wrong)?;
    let found = blklab_host::signatures(&mut &*file, size_bytes).map_err(wrong)?;
    match found.first() {
        Some(signature) => Err(holds(signature.format)),
        None => Ok(()),
    }
}

pub(super) fn make(args: &FsArgs, mkfs: &FsMkfsArgs) -> Result<(), Failure> {
    let block_bytes = size("--block-size", mkfs.block_size.as_ref())?;
    let sector_bytes = size("--sector-size", mkfs.sector_size.as_ref())?.unwrap_or(512);
    let bytes_per_inode = size("--bytes-per-inode", mkfs.bytes_per_inode.as_ref())?;
    let uuid = uuid(mkfs.uuid.as_ref())?;
    let label = mkfs.label.as_bytes().to_vec();
    let now = now()?;
    let is_new = !args.image.exists();
    let image = image_for_mkfs(args, mkfs)?;
    let made = match mkfs.kind {
        FsKind::Ext2 => {
            let layout = Ext2Layout {
                block_bytes,
                inode_bytes: mkfs.inode_size,
                bytes_per_inode,
                reserved_percent: mkfs.reserved,
                label,
                uuid,
            };
            at_once(layout.make(&image, now))
        }
        kind => {
            let width = match kind {
                FsKind::Fat12 => Some(FatWidth::Fat12),
                FsKind::Fat16 => Some(FatWidth::Fat16),
                FsKind::Fat32 => Some(FatWidth::Fat32),
                _ => None,
            };
            let layout = VfatLayout {
                width,
                sector_bytes,
                cluster_sectors: block_bytes.map(|bytes| bytes / sector_bytes.max(1)),
                label,
                volume_id: u32::from_be_bytes([uuid[12], uuid[13], uuid[14], uuid[15]]),
            };
            at_once(layout.make(&image, now))
        }
    };
    let name = args.image.display();
    let resize = || image.storage().resize().map_err(|_| FsError::TooBig);
    let made = made.and_then(|()| resize()).and_then(|()| image.commit());
    if made.is_err() && is_new {
        // The removal is best effort: the message below says why there is no file
        // system.
        let _ = std::fs::remove_file(&args.image);
    }
    made.map_err(|error| match error {
        FsError::BadCall => Failure::mistake(format!(
            "{name}: an option has a value that the file system cannot have; right is {}",
            match mkfs.kind {
                FsKind::Ext2 => EXT2_VALUES,
                _ => FAT_VALUES,
            }
        )),
        FsError::NoSpace => Failure::mistake(format!(
            "{name}: no such file system fits its {} bytes",
            blklab_fs::Buffers::size_bytes(&image)
        )),
        error => failure(&image, name, error),
    })
}
