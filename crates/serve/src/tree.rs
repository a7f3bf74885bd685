//! A tree of the device model as files over FUSE: folders, attributes and links.
//!
//! What an attribute holds when somebody looks, and what writing one does, [`Files`] says:
//! a machine as it stood after its boot, or the disks of a running server.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;
use std::time::{Duration, SystemTime};

use blklab_device_model::{KobjectId, Sysfs};
use fuser::{
    FileAttr, FileType, Filesystem, MountOption, ReplyAttr, ReplyData, ReplyDirectory, ReplyEntry,
    ReplyOpen, ReplyWrite, Request, TimeOrNow,
};
use rustix::io::Errno;

/// Nothing is kept by the kernel: schedulers come and go with their files.
const NOT_KEPT: Duration = Duration::ZERO;
/// What `ls` shows as an attribute's size, as in the kernel's sysfs.
const SHOWN_BYTES: u64 = 4096;
/// The longest write that is taken (a page, as in the kernel).
const MAX_WRITE_BYTES: usize = 4096;

/// What stands behind the attributes of a tree.
pub(crate) trait Files: Send + 'static {
    /// Brings a folder's files up to date before somebody looks into it.
    fn refresh(&self, _sysfs: &mut Sysfs, _folder: KobjectId) -> Result<(), Errno> {
        Ok(())
    }

    /// What may be done with an attribute, as a file's mode.
    fn mode(&self, _sysfs: &Sysfs, _folder: KobjectId, _name: &str) -> u16 {
        0o444
    }

    /// What an attribute holds now, without the newline at its end.
    fn show(&self, sysfs: &Sysfs, folder: KobjectId, name: &str) -> Result<String, Errno> {
        let text = sysfs.attribute(folder, name);
        text.map(str::to_string).ok_or(Errno::NODEV)
    }

    /// Writes an attribute; those that cannot be written say what the kernel's say.
    fn store(
        &self,
        _sysfs: &Sysfs,
        _folder: KobjectId,
        _name: &str,
        _value: &str,
    ) -> Result<(), Errno> {
        Err(Errno::IO)
    }
}

/// A tree that does not change.
#[derive(Debug)]
pub(crate) struct Still;

impl Files for Still {}

/// How a tree is mounted on an empty folder.
///
/// # Errors
/// A message that says why it cannot be.
pub(crate) fn mount_options(folder: &Path) -> Result<Vec<MountOption>, String> {
    let name = folder.display();
    let found = std::fs::read_dir(folder).map_err(|e| match e.raw_os_error() {
        Some(code) if code == Errno::NOTCONN.raw_os_error() => {
            format!("{name}: a server that was killed left its tree there; umount it first")
        }
        _ => format!("{name}: {e}"),
    });
    if found?.next().is_some() {
        return Err(format!("{name}: it is not empty; name an empty folder"));
    }
    let mut options = vec![
        MountOption::FSName("blklab".to_string()),
        MountOption::Subtype("sysfs".to_string()),
        MountOption::DefaultPermissions,
        MountOption::NoExec,
    ];
    if rustix::process::geteuid().is_root() {
        // As in the kernel's tree, all may look and root may set.
        options.push(MountOption::AllowOther);
    }
    Ok(options)
}

/// A place in the tree.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum TreeNode {
    Folder(KobjectId),
    /// A file in a folder.
    Attribute(KobjectId, String),
    /// A link in a folder.
    Link(KobjectId, String),
}

/// The file system.
#[derive(Debug)]
pub(crate) struct Tree<F> {
    files: F,
    sysfs: Sysfs,
    /// Places by number; numbers start at 1, and each place keeps its own.
    places: Vec<TreeNode>,
    numbers: BTreeMap<TreeNode, u64>,
    uid: u32,
    gid: u32,
}

impl<F: Files> Tree<F> {
    pub(crate) fn new(sysfs: Sysfs, files: F) -> Tree<F> {
        let mut tree = Tree {
            files,
            sysfs,
            places: Vec::new(),
            numbers: BTreeMap::new(),
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
        };
        // FUSE's first number is the top's.
        if let Some(top) = tree.sysfs.find("/") {
            tree.number(&TreeNode::Folder(top));
        }
        tree
    }

    fn number(&mut self, place: &TreeNode) -> u64 {
        if let Some(&number) = self.numbers.get(place) {
            return number;
        }
        self.places.push(place.clone());
        let number = self.places.len() as u64;
        self.numbers.insert(place.clone(), number);
        number
    }

    fn place(&self, number: u64) -> Result<TreeNode, Errno> {
        let index = usize::try_from(number).map_err(|_| Errno::NOENT)?;
        let place = index.checked_sub(1).and_then(|i| self.places.get(i));
        place.cloned().ok_or(Errno::STALE)
    }

    /// What lies in a folder, by name.
    fn entries(&mut self, place: &TreeNode) -> Result<Vec<(String, TreeNode)>, Errno> {
        let &TreeNode::Folder(id) = place else {
            return Err(Errno::NOTDIR);
        };
        self.files.refresh(&mut self.sysfs, id)?;
        let folder = self.sysfs.get(id).ok_or(Errno::NOENT)?;
        let folders = { folder.children().iter() }
            .map(|(name, &child)| (name.clone(), TreeNode::Folder(child)));
        let files = { folder.attributes().keys() }
            .map(|name| (name.clone(), TreeNode::Attribute(id, name.clone())));
        let links =
            { folder.links().keys() }.map(|name| (name.clone(), TreeNode::Link(id, name.clone())));
        Ok(folders.chain(files).chain(links).collect())
    }

    fn find(&mut self, parent: u64, name: &OsStr) -> Result<FileAttr, Errno> {
        let parent = self.place(parent)?;
        let entries = self.entries(&parent)?;
        let found = entries.iter().find(|(known, _)| name == known.as_str());
        let (_, place) = found.ok_or(Errno::NOENT)?;
        let number = self.number(place);
        Ok(self.attr(number, place))
    }

    /// Where a link leads.
    fn target(&self, number: u64) -> Result<String, Errno> {
        let TreeNode::Link(folder, name) = self.place(number)? else {
            return Err(Errno::INVAL);
        };
        let found = self.sysfs.get(folder).and_then(|k| k.links().get(&name));
        let &to = found.ok_or(Errno::NOENT)?;
        Ok(self.sysfs.link_target(folder, to))
    }

    fn attr(&self, ino: u64, place: &TreeNode) -> FileAttr {
        let (kind, perm, size) = match place {
            TreeNode::Attribute(folder, name) => {
                let perm = self.files.mode(&self.sysfs, *folder, name);
                (FileType::RegularFile, perm, SHOWN_BYTES)
            }
            TreeNode::Link(..) => {
                let bytes = self.target(ino).map_or(0, |target| target.len());
                (FileType::Symlink, 0o777, bytes as u64)
            }
            TreeNode::Folder(_) => (FileType::Directory, 0o755, 0),
        };
        let epoch = SystemTime::UNIX_EPOCH;
        FileAttr {
            ino,
            size,
            blocks: 0,
            atime: epoch,
            mtime: epoch,
            ctime: epoch,
            crtime: epoch,
            kind,
            perm,
            nlink: 1,
            uid: self.uid,
            gid: self.gid,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }

    fn show(&self, number: u64) -> Result<String, Errno> {
        let TreeNode::Attribute(folder, name) = self.place(number)? else {
            return Err(Errno::ISDIR);
        };
        let mut text = self.files.show(&self.sysfs, folder, &name)?;
        text.push('\n');
        Ok(text)
    }

    fn store(&self, number: u64, offset: i64, data: &[u8]) -> Result<(), Errno> {
        let TreeNode::Attribute(folder, name) = self.place(number)? else {
            return Err(Errno::ISDIR);
        };
        if offset != 0 || data.len() > MAX_WRITE_BYTES {
            return Err(Errno::INVAL);
        }
        let value = std::str::from_utf8(data).map_err(|_| Errno::INVAL)?;
        self.files.store(&self.sysfs, folder, &name, value.trim())
    }
}

fn piece(text: &str, offset: i64, size: u32) -> &[u8] {
    let bytes = text.as_bytes();
    let start = usize::try_from(offset).unwrap_or(0).min(bytes.len());
    let end = start.saturating_add(size as usize).min(bytes.len());
    &bytes[start..end]
}

impl<F: Files> Filesystem for Tree<F> {
    fn lookup(&mut self, _: &Request<'_>, parent: u64, name: &OsStr, reply: ReplyEntry) {
        match self.find(parent, name) {
            Ok(attr) => reply.entry(&NOT_KEPT, &attr, 0),
            Err(error) => reply.error(error.raw_os_error()),
        }
    }

    fn getattr(&mut self, _: &Request<'_>, ino: u64, _: Option<u64>, reply: ReplyAttr) {
        match self.place(ino) {
            Ok(place) => reply.attr(&NOT_KEPT, &self.attr(ino, &place)),
            Err(error) => reply.error(error.raw_os_error()),
        }
    }

    /// A shell's `>` cuts the file to nothing first, which changes nothing.
    fn setattr(
        &mut self,
        _: &Request<'_>,
        ino: u64,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        _: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<u64>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<u32>,
        reply: ReplyAttr,
    ) {
        match self.place(ino) {
            Ok(_) if mode.is_some() || uid.is_some() || gid.is_some() => {
                reply.error(Errno::PERM.raw_os_error());
            }
            Ok(place) => reply.attr(&NOT_KEPT, &self.attr(ino, &place)),
            Err(error) => reply.error(error.raw_os_error()),
        }
    }

    fn readlink(&mut self, _: &Request<'_>, ino: u64, reply: ReplyData) {
        match self.target(ino) {
            Ok(target) => reply.data(target.as_bytes()),
            Err(error) => reply.error(error.raw_os_error()),
        }
    }

    fn open(&mut self, _: &Request<'_>, _: u64, _: i32, reply: ReplyOpen) {
        // Each read asks anew, however long the file is said to be.
        reply.opened(0, fuser::consts::FOPEN_DIRECT_IO);
    }

    fn read(
        &mut self,
        _: &Request<'_>,
        ino: u64,
        _: u64,
        offset: i64,
        size: u32,
        _: i32,
        _: Option<u64>,
        reply: ReplyData,
    ) {
        match self.show(ino) {
            Ok(text) => reply.data(piece(&text, offset, size)),
            Err(error) => reply.error(error.raw_os_error()),
        }
    }

    fn write(
        &mut self,
        _: &Request<'_>,
        ino: u64,
        _: u64,
        offset: i64,
        data: &[u8],
        _: u32,
        _: i32,
        _: Option<u64>,
        reply: ReplyWrite,
    ) {
        match self.store(ino, offset, data) {
            Ok(()) => reply.written(data.len() as u32),
            Err(error) => reply.error(error.raw_os_error()),
        }
    }

    fn readdir(
        &mut self,
        _: &Request<'_>,
        ino: u64,
        _: u64,
        offset: i64,
        mut reply: ReplyDirectory,
    ) {
        let entries = self.place(ino).and_then(|place| self.entries(&place));
        let entries = match entries {
            Ok(entries) => entries,
            Err(error) => return reply.error(error.raw_os_error()),
        };
        let mut all = vec![
            (ino, FileType::Directory, ".".to_string()),
            (ino, FileType::Directory, "..".to_string()),
        ];
        for (name, place) in entries {
            let number = self.number(&place);
            all.push((number, self.attr(number, &place).kind, name));
        }
        let skip = usize::try_from(offset).unwrap_or(0);
        for (index, (number, kind, name)) in all.into_iter().enumerate().skip(skip) {
            if reply.add(number, index as i64 + 1, kind, name) {
                break;
            }
        }
        reply.ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_are_pieces() {
        assert_eq!(piece("abc\n", 0, 4096), b"abc\n");
        assert_eq!(piece("abc\n", 2, 1), b"c");
        assert_eq!(piece("abc\n", 9, 10), b"");
    }
}
