//! The exports as disks in the device model's tree, over FUSE: `block/NAME` leads to
//! `devices/virtual/block/NAME`, as of the kernel's own virtual disks.
//!
//! Attributes that an export has now are shown and set through `attributes.rs`, as on
//! the control socket; the others are those that the model gives any disk.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use blklab_device_model::{Disk, KobjectId, Model, ModelError, Parent, Sysfs};
use fuser::{
    BackgroundSession, FileAttr, FileType, Filesystem, MountOption, ReplyAttr, ReplyData,
    ReplyDirectory, ReplyEntry, ReplyOpen, ReplyWrite, Request, TimeOrNow,
};
use rustix::io::Errno;

use super::{Exports, attributes};

/// Nothing is kept by the kernel: schedulers come and go with their files.
const NOT_KEPT: Duration = Duration::ZERO;
/// What `ls` shows as an attribute's size, as in the kernel's sysfs.
const SHOWN_BYTES: u64 = 4096;
/// The longest write that is taken (a page, as in the kernel).
const MAX_WRITE_BYTES: usize = 4096;
/// What `/proc/devices` would call the exports' driver.
const DRIVER: &str = "blklab";
/// The folder of what the present scheduler has.
const IOSCHED: &str = "queue/iosched";

/// A mounted tree; dropping it unmounts it.
pub(crate) struct MountedTree {
    _session: BackgroundSession,
}

impl MountedTree {
    /// Shows the exports' attributes in a folder.
    pub(crate) fn mount(folder: &Path, exports: Arc<Exports>) -> Result<MountedTree, String> {
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
        let tree = Tree::new(exports).map_err(|e| format!("{name}: {e}"))?;
        let session = fuser::spawn_mount2(tree, folder, &options).map_err(|e| {
            format!("{name}: FUSE is not to be had: {e}; --control goes without it")
        })?;
        Ok(MountedTree { _session: session })
    }
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
struct Tree {
    exports: Arc<Exports>,
    sysfs: Sysfs,
    /// Which export a disk is.
    disks: BTreeMap<KobjectId, usize>,
    /// Places by number; numbers start at 1, and each place keeps its own.
    places: Vec<TreeNode>,
    numbers: BTreeMap<TreeNode, u64>,
    uid: u32,
    gid: u32,
}

/// What an attribute of a disk's folder is called on the control socket.
pub(super) fn control_name(path: &str) -> &str {
    match path.strip_prefix("queue/iosched/") {
        Some(_) => &path["queue/".len()..],
        None => path,
    }
}

/// What the tree calls an export's disk.
pub(super) fn disk_name(number: usize, export: &str) -> String {
    match export {
        "" | "." | ".." => format!("b{number}"),
        name => name.replace('/', "!"),
    }
}

/// Where an attribute of the control socket lies.
fn tree_path(name: &str) -> String {
    match name.starts_with("iosched/") {
        true => format!("queue/{name}"),
        false => name.to_string(),
    }
}

impl Tree {
    fn new(exports: Arc<Exports>) -> Result<Tree, ModelError> {
        let (sysfs, disks) = disks_of(&exports)?;
        let mut tree = Tree {
            exports,
            sysfs,
            disks,
            places: Vec::new(),
            numbers: BTreeMap::new(),
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
        };
        // FUSE's first number is the top's.
        if let Some(top) = tree.sysfs.find("/") {
            tree.number(&TreeNode::Folder(top));
        }
        Ok(tree)
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

    /// The disk that a folder is of or lies in, and the path from there.
    fn disk_of(&self, folder: KobjectId) -> Option<(KobjectId, String)> {
        let (mut at, mut path) = (folder, String::new());
        while !self.disks.contains_key(&at) {
            path = match path.is_empty() {
                true => self.sysfs.name(at).to_string(),
                false => format!("{}/{path}", self.sysfs.name(at)),
            };
            at = self.sysfs.parent(at)?;
        }
        Some((at, path))
    }

    /// The export that shows a file now, and the file's name on the control socket.
    fn live(&self, folder: KobjectId, name: &str) -> Result<Option<(usize, String)>, Errno> {
        let Some((disk, path)) = self.disk_of(folder) else {
            return Ok(None);
        };
        let path = match path.is_empty() {
            true => name.to_string(),
            false => format!("{path}/{name}"),
        };
        let export = self.disks[&disk];
        let is_live = self.attributes(export)?.contains(&path);
        Ok(is_live.then(|| (export, control_name(&path).to_string())))
    }

    /// The paths of the attributes that an export has now.
    fn attributes(&self, export: usize) -> Result<BTreeSet<String>, Errno> {
        let names = self.exports.all()[export].call(|view| attributes::names(view));
        let names = names.map_err(|_| Errno::IO)?;
        Ok(names.iter().map(|name| tree_path(name)).collect())
    }

    /// Brings a disk's files up to date: a scheduler comes and goes with its own.
    fn refresh(&mut self, folder: KobjectId) -> Result<(), Errno> {
        let Some((disk, _)) = self.disk_of(folder) else {
            return Ok(());
        };
        let now = self.attributes(self.disks[&disk])?;
        let path = format!("{}/{IOSCHED}", self.sysfs.path(disk));
        if let Some(iosched) = self.sysfs.find(&path) {
            let files = self.sysfs.get(iosched).map(|k| k.attributes().keys());
            let shown = files.into_iter().flatten();
            let is_same = shown.eq(now.iter().filter_map(|path| {
                let (folder, name) = path.rsplit_once('/')?;
                (folder == IOSCHED).then_some(name)
            }));
            if !is_same {
                self.sysfs.remove(iosched);
            }
        }
        for path in now {
            if self.sysfs.attribute(disk, &path).is_none() {
                self.sysfs.set(disk, &path, "");
            }
        }
        Ok(())
    }

    /// What lies in a folder, by name.
    fn entries(&mut self, place: &TreeNode) -> Result<Vec<(String, TreeNode)>, Errno> {
        let &TreeNode::Folder(id) = place else {
            return Err(Errno::NOTDIR);
        };
        self.refresh(id)?;
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
                let live = self.live(*folder, name).ok().flatten();
                let perm = match live {
                    None => 0o444,
                    Some((_, name)) => match attributes::is_readable(&name) {
                        true if attributes::is_writable(&name) => 0o644,
                        true => 0o444,
                        false => 0o200,
                    },
                };
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
        let mut text = match self.live(folder, &name)? {
            Some((export, name)) => {
                let text =
                    self.exports.all()[export].call(move |view| attributes::read(view, &name));
                // An attribute may go while it is open: that of a former scheduler.
                text.map_err(|_| Errno::IO)?.map_err(|_| Errno::NODEV)?
            }
            None if self.is_of_scheduler(folder) => return Err(Errno::NODEV),
            None => {
                let text = self.sysfs.attribute(folder, &name);
                text.ok_or(Errno::NODEV)?.to_string()
            }
        };
        text.push('\n');
        Ok(text)
    }

    /// Whether a folder is that of a scheduler's attributes, which come and go.
    fn is_of_scheduler(&self, folder: KobjectId) -> bool {
        let disk = self.disk_of(folder);
        disk.is_some_and(|(_, path)| path == IOSCHED)
    }

    fn store(&self, number: u64, offset: i64, data: &[u8]) -> Result<(), Errno> {
        let TreeNode::Attribute(folder, name) = self.place(number)? else {
            return Err(Errno::ISDIR);
        };
        if offset != 0 || data.len() > MAX_WRITE_BYTES {
            return Err(Errno::INVAL);
        }
        let value = std::str::from_utf8(data).map_err(|_| Errno::INVAL)?;
        let Some((export, name)) = self.live(folder, &name)? else {
            return Err(Errno::IO);
        };
        if !attributes::is_writable(&name) {
            return Err(Errno::IO);
        }
        let export = &self.exports.all()[export];
        attributes::write(export, &name, value.trim()).map_err(|_| Errno::INVAL)
    }
}

/// A machine whose disks are the exports: its tree, and which disk is which.
fn disks_of(exports: &Exports) -> Result<(Sysfs, BTreeMap<KobjectId, usize>), ModelError> {
    let mut model = Model::new();
    for class in ["block", "bdi"] {
        model.register_class(class)?;
    }
    let major = model.register_blkdev(0, DRIVER)?;
    let mut disks = BTreeMap::new();
    for (number, export) in exports.all().iter().enumerate() {
        // Its size and the rest are shown as they are when somebody looks.
        let disk = Disk {
            name: disk_name(number, &export.name),
            major,
            first_minor: number as u32,
            minors: 1,
            size_sectors: 0,
            read_only: false,
            is_scanned: true,
            partitions: Vec::new(),
            attributes: Vec::new(),
            hardware_queues: Vec::new(),
            debug: Vec::new(),
        };
        let added = model.add_disk(Parent::Virtual, &disk)?;
        disks.extend(model.kobject_of(added.device).map(|disk| (disk, number)));
    }
    Ok((model.sysfs().clone(), disks))
}

fn piece(text: &str, offset: i64, size: u32) -> &[u8] {
    let bytes = text.as_bytes();
    let start = usize::try_from(offset).unwrap_or(0).min(bytes.len());
    let end = start.saturating_add(size as usize).min(bytes.len());
    &bytes[start..end]
}

impl Filesystem for Tree {
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
    fn schedulers_lie_where_the_kernel_has_them() {
        assert_eq!(tree_path("iosched/fifo_batch"), "queue/iosched/fifo_batch");
        assert_eq!(
            control_name("queue/iosched/fifo_batch"),
            "iosched/fifo_batch"
        );
        assert_eq!(control_name("queue/iostats"), "queue/iostats");
        for name in ["stat", "queue/scheduler", "iosched/x"] {
            assert_eq!(control_name(&tree_path(name)), name);
        }
    }

    #[test]
    fn reads_are_pieces() {
        assert_eq!(piece("abc\n", 0, 4096), b"abc\n");
        assert_eq!(piece("abc\n", 2, 1), b"c");
        assert_eq!(piece("abc\n", 9, 10), b"");
    }
}
