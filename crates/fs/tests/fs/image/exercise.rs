//! What can be done with an image that may be broken: every call ends in a result.

use std::cell::RefCell;

use blklab_fs::{
    Caller, FileKind, FileSystem, FsError, Image, MountOptions, NewInode, VfatOptions, Volume,
};

/// What is read of a file: broken ones can say that they are long.
const READ_BYTES: usize = 1 << 16;
/// Directories and files that are looked at.
const FILES_MAX: usize = 200;

/// Opens an image, reads and changes it, and deletes what it has. Broken images are
/// errors; whether they are is not told.
pub fn exercise(bytes: Vec<u8>) {
    let Ok(image) = Image::new(RefCell::new(bytes)) else {
        return;
    };
    let options = MountOptions {
        vfat: VfatOptions::parse("utf8").unwrap_or_default(),
        ..MountOptions::default()
    };
    if let Ok(volume) = Volume::open(image, &options, Caller::default()) {
        // Each part is of use after a failure of the one before.
        let _ = read(&volume);
        let _ = write(&volume);
        let _ = delete(&volume);
        let _ = volume.commit();
    }
}

fn read(volume: &Volume<RefCell<Vec<u8>>>) -> Result<(), FsError> {
    let mut buffer = vec![0; READ_BYTES];
    let dirs = volume.directories(volume.file_system().root())?;
    for (_, dir) in dirs.into_iter().take(FILES_MAX) {
        for entry in volume.list(dir)?.into_iter().take(FILES_MAX) {
            let attributes = volume.attributes(entry.ino)?;
            if attributes.kind == FileKind::Regular {
                // One that is broken does not hide the others.
                let _ = volume.read(entry.ino, 0, &mut buffer);
                let _ = volume.read(entry.ino, attributes.size_bytes / 2, &mut buffer);
            } else {
                let _ = volume.find(&entry.name, true);
            }
        }
    }
    Ok(())
}

fn write(volume: &Volume<RefCell<Vec<u8>>>) -> Result<(), FsError> {
    let root = volume.file_system().root();
    let dir = volume.create(root, b"new directory", NewInode::Directory(0o755))?;
    let file = volume.create(dir, b"new file", NewInode::Regular(0o644))?;
    volume.write(file, 0, &[7; 5000])?;
    volume.write(file, 300_000, &[8; 5000])?;
    volume.truncate(file, 4000)?;
    volume.rename((dir, b"new file"), (root, b"other name"))?;
    volume.remove(root, b"other name")
}

fn delete(volume: &Volume<RefCell<Vec<u8>>>) -> Result<(), FsError> {
    let root = volume.file_system().root();
    for entry in volume.list(root)?.into_iter().take(FILES_MAX) {
        let _ = volume.remove_tree(root, &entry.name);
    }
    Ok(())
}
