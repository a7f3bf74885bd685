//! The exports' attributes as files, where the kernel has those of its drives:
//! `block/NAME/queue/scheduler` and the rest, over FUSE.
//!
//! The values are those of `attributes.rs`, as on the control socket; this file
//! knows only where in the tree each attribute lies.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

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
/// The folder of exports.
const BLOCK: &str = "block";

/// A mounted tree; dropping it unmounts it.
pub(crate) struct Sysfs {
    _session: BackgroundSession,
}

impl Sysfs {
    /// Shows the exports' attributes in a folder.
    pub(crate) fn mount(folder: &Path, exports: Arc<Exports>) -> Result<Sysfs, String> {
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
        let tree = Tree::new(exports);
        let session = fuser::spawn_mount2(tree, folder, &options).map_err(|e| {
            format!("{name}: FUSE is not to be had: {e}; --control goes without it")
        })?;
        Ok(Sysfs { _session: session })
    }
}

/// A place in the tree.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum TreeNode {
    Root,
    /// `block`.
    Block,
    /// `block/NAME`, by the export's number.
    Export(usize),
    /// A folder below: `queue`, or `queue/iosched`.
    Folder(usize, String),
    /// An attribute, by its path below the export.
    Attribute(usize, String),
}

/// The file system.
struct Tree {
    exports: Arc<Exports>,
    /// Names of the exports' folders.
    names: Vec<String>,
    /// Places by number; numbers start at 1, and each place keeps its own.
    places: Vec<TreeNode>,
    numbers: BTreeMap<TreeNode, u64>,
    uid: u32,
    gid: u32,
}

/// What an attribute is called on the control socket.
fn control_name(path: &str) -> &str {
    match path.strip_prefix("queue/iosched/") {
        Some(_) => &path["queue/".len()..],
        None => path,
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
    fn new(exports: Arc<Exports>) -> Tree {
        let names = exports.all().iter().enumerate();
        let names = names.map(|(number, export)| match export.name.as_str() {
            "" | "." | ".." => format!("b{number}"),
            // As the kernel does with names that hold a slash.
            name => name.replace('/', "!"),
        });
        let names = names.collect();
        let mut tree = Tree {
            exports,
            names,
            places: Vec::new(),
            numbers: BTreeMap::new(),
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
        };
        tree.number(&TreeNode::Root);
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

    /// The attributes that an export has now.
    fn attributes(&self, export: usize) -> Result<Vec<String>, Errno> {
        let names = self.exports.all()[export].call(|view| attributes::names(view));
        let names = names.map_err(|_| Errno::IO)?;
        Ok(names.iter().map(|name| tree_path(name)).collect())
    }

    /// What lies in a folder, by name.
    fn entries(&self, place: &TreeNode) -> Result<Vec<(String, TreeNode)>, Errno> {
        let (export, folder) = match place {
            TreeNode::Root => return Ok(vec![(BLOCK.to_string(), TreeNode::Block)]),
            TreeNode::Block => {
                let names = self.names.iter().cloned().enumerate();
                return Ok(names.map(|(i, name)| (name, TreeNode::Export(i))).collect());
            }
            TreeNode::Export(export) => (*export, String::new()),
            TreeNode::Folder(export, path) => (*export, format!("{path}/")),
            TreeNode::Attribute(..) => return Err(Errno::NOTDIR),
        };
        let mut entries: Vec<(String, TreeNode)> = Vec::new();
        for path in self.attributes(export)? {
            let Some(below) = path.strip_prefix(&folder) else {
                continue;
            };
            let (name, place) = match below.split_once('/') {
                Some((name, _)) => (name, TreeNode::Folder(export, format!("{folder}{name}"))),
                None => (below, TreeNode::Attribute(export, path.clone())),
            };
            if !entries.iter().any(|(known, _)| known == name) {
                entries.push((name.to_string(), place));
            }
        }
        Ok(entries)
    }

    fn find(&mut self, parent: u64, name: &OsStr) -> Result<FileAttr, Errno> {
        let parent = self.place(parent)?;
        let entries = self.entries(&parent)?;
        let found = entries.iter().find(|(known, _)| name == known.as_str());
        let (_, place) = found.ok_or(Errno::NOENT)?;
        let number = self.number(place);
        Ok(self.attr(number, place))
    }

    fn attr(&self, ino: u64, place: &TreeNode) -> FileAttr {
        let (kind, perm, size) = match place {
            TreeNode::Attribute(_, path) => {
                let name = control_name(path);
                let perm = match (attributes::is_readable(name), attributes::is_writable(name)) {
                    (true, true) => 0o644,
                    (true, false) => 0o444,
                    (false, _) => 0o200,
                };
                (FileType::RegularFile, perm, SHOWN_BYTES)
            }
            _ => (FileType::Directory, 0o755, 0),
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
        let TreeNode::Attribute(export, path) = self.place(number)? else {
            return Err(Errno::ISDIR);
        };
        let name = control_name(&path).to_string();
        let text = self.exports.all()[export].call(move |view| attributes::read(view, &name));
        // An attribute may go while it is open: that of a former scheduler.
        let mut text = text.map_err(|_| Errno::IO)?.map_err(|_| Errno::NODEV)?;
        text.push('\n');
        Ok(text)
    }

    fn store(&self, number: u64, offset: i64, data: &[u8]) -> Result<(), Errno> {
        let TreeNode::Attribute(export, path) = self.place(number)? else {
            return Err(Errno::ISDIR);
        };
        if offset != 0 || data.len() > MAX_WRITE_BYTES {
            return Err(Errno::INVAL);
        }
        let value = std::str::from_utf8(data).map_err(|_| Errno::INVAL)?;
        let name = control_name(&path);
        if !attributes::is_writable(name) {
            return Err(Errno::IO);
        }
        attributes::write(&self.exports.all()[export], name, value.trim()).map_err(|_| Errno::INVAL)
    }
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
