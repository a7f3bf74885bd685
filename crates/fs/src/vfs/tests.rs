//! The tree of names over ext2 in memory, beside a plain model of it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use proptest::prelude::*;

use super::{Host, Namespace, OpenFile, OpenFlags, Vfs};
use crate::{
    BackingDevice, Bio, BioId, Caller, DentryCounts, Event, Ext2, Ext2Layout, Ext2Options, Extent,
    FileKind, FsError, Image, InodeId, NewInode, Pressure, ShrinkCounts, Timestamp, at_once,
};

/// A device on which every bio ends at once.
pub(crate) struct Instant;

impl Host for Instant {
    async fn submit(&self, vfs: &Vfs<Self>, id: BioId, _: Bio) {
        vfs.bio_ended(id);
    }

    async fn extent(&self, _: InodeId, byte: u64, _bytes: u64) -> Extent {
        Extent {
            sector: Some(byte / 512),
            bytes: 1 << 30,
            boundary: false,
        }
    }

    fn trace(&self, _: &Vfs<Self>, _: Event) {}
}

type Disk = Ext2<Image<RefCell<Vec<u8>>>>;
type Tree = Namespace<Instant, Disk>;

const DEVICE: BackingDevice = BackingDevice {
    ra_pages: 32,
    io_pages: 320,
};

fn disk() -> Rc<Disk> {
    let image = Image::new(RefCell::new(vec![0; 1 << 20])).unwrap();
    at_once(Ext2Layout::default().make(&image, Timestamp::default())).unwrap();
    Rc::new(at_once(Ext2::open(image, Ext2Options::default())).unwrap())
}

fn tree() -> Tree {
    Namespace::new(Rc::new(Vfs::new(Instant)), disk(), DEVICE)
}

const READ: OpenFlags = OpenFlags {
    read: true,
    write: false,
    create: None,
    exclusive: false,
    truncate: false,
    append: false,
    directory: false,
    no_follow: false,
};

const CREATE: OpenFlags = OpenFlags {
    write: true,
    create: Some(0o644),
    ..READ
};

fn caller() -> Caller {
    Caller::default()
}

fn open(tree: &Tree, path: &str, flags: OpenFlags) -> Result<OpenFile, FsError> {
    at_once(tree.open(path.as_bytes(), flags, &caller()))
}

fn mkdir(tree: &Tree, path: &str) -> Result<(), FsError> {
    let new = NewInode::Directory(0o755);
    at_once(tree.create(path.as_bytes(), new, &caller())).map(|_| ())
}

fn symlink(tree: &Tree, path: &str, target: &str) {
    let new = NewInode::Symlink(target.as_bytes());
    at_once(tree.create(path.as_bytes(), new, &caller())).unwrap();
}

fn write(tree: &Tree, path: &str, bytes: u64) {
    let file = open(tree, path, CREATE).unwrap();
    assert_eq!(at_once(tree.write(&file, bytes, &caller())), Ok(bytes));
    at_once(tree.close(file)).unwrap();
}

fn size(tree: &Tree, path: &str) -> Result<u64, FsError> {
    at_once(tree.stat(path.as_bytes(), true)).map(|(_, attributes)| attributes.size_bytes)
}

fn unlink(tree: &Tree, path: &str) -> Result<(), FsError> {
    at_once(tree.unlink(path.as_bytes(), &caller()))
}

#[test]
fn names_that_are_not_there_are_remembered_too() {
    let tree = tree();
    write(&tree, "/a", 1);
    let before = tree.dentry_counts();
    assert_eq!(size(&tree, "/a"), Ok(1));
    assert_eq!(size(&tree, "/b"), Err(FsError::NoEntry));
    assert_eq!(size(&tree, "/b"), Err(FsError::NoEntry));
    let after = tree.dentry_counts();
    assert_eq!(after.lookups - before.lookups, 3);
    assert_eq!(after.hits - before.hits, 2);
    assert_eq!(after.negative_hits - before.negative_hits, 1);
    assert_eq!(after.negative, 1);
    write(&tree, "/b", 2);
    assert_eq!(size(&tree, "/b"), Ok(2));
    assert_eq!(tree.dentry_counts().negative, 0);
    unlink(&tree, "/b").unwrap();
    assert_eq!(tree.dentry_counts().negative, 1);
}

fn pressure(priority: u32) -> Pressure {
    let mut pressure = Pressure::on_nodes(1);
    pressure.add_round(priority);
    pressure
}

#[test]
fn short_memory_drops_the_names_that_were_not_used_for_longest() {
    let tree = tree();
    for n in 0..3000 {
        assert_eq!(size(&tree, &format!("/{n}")), Err(FsError::NoEntry));
    }
    assert_eq!(size(&tree, "/7"), Err(FsError::NoEntry));
    at_once(tree.shrink(pressure(12))).unwrap();
    assert_eq!(tree.shrink_counts(), ShrinkCounts::default());
    // A third are looked at, and one was used again.
    at_once(tree.shrink(pressure(2))).unwrap();
    assert_eq!(tree.shrink_counts().dentries, 1024);
    let before = tree.dentry_counts().hits;
    for (n, is_cached) in [(7, true), (8, false), (1024, false), (1025, true)] {
        let hits = tree.dentry_counts().hits;
        assert_eq!(size(&tree, &format!("/{n}")), Err(FsError::NoEntry));
        assert_eq!(
            tree.dentry_counts().hits - hits,
            u64::from(is_cached),
            "/{n}"
        );
    }
    assert_eq!(tree.dentry_counts().hits - before, 2);
}

#[test]
fn short_memory_drops_inodes_without_pages_and_changes() {
    let tree = tree();
    write(&tree, "/written", 5000);
    mkdir(&tree, "/d").unwrap();
    at_once(tree.drop_caches(2)).unwrap();
    size(&tree, "/d").unwrap();
    assert_eq!(tree.inodes_in_memory(), 3);
    // A dentry that goes leaves its inode unused.
    at_once(tree.shrink(pressure(0))).unwrap();
    at_once(tree.shrink(pressure(0))).unwrap();
    assert_eq!(tree.shrink_counts().inodes, 1);
    assert_eq!(
        tree.inodes_in_memory(),
        2,
        "the root, and the file with pages"
    );
    assert_eq!(size(&tree, "/written"), Ok(5000));
}

#[test]
fn dropping_caches_drops_names_and_inodes_without_pages() {
    let tree = tree();
    mkdir(&tree, "/d").unwrap();
    write(&tree, "/d/a", 5000);
    at_once(tree.drop_caches(2)).unwrap();
    let counts = tree.dentry_counts();
    assert_eq!((counts.cached, counts.negative), (1, 0), "the root stays");
    assert_eq!(
        tree.inodes_in_memory(),
        2,
        "the root, and the file with dirty pages"
    );
    let (hits, lookups) = (counts.hits, counts.lookups);
    assert_eq!(size(&tree, "/d/a"), Ok(5000));
    let DentryCounts {
        hits: more,
        lookups: all,
        ..
    } = tree.dentry_counts();
    assert_eq!((more - hits, all - lookups), (0, 2));
    assert_eq!(at_once(tree.drop_caches(4)), Err(FsError::BadCall));
}

#[test]
fn a_file_without_a_name_lives_as_long_as_it_is_open() {
    let tree = tree();
    let used = |tree: &Tree| {
        let (place, _) = at_once(tree.stat(b"/", true)).unwrap();
        crate::FileSystem::usage(&*tree.fs(place)).inodes_free
    };
    let free = used(&tree);
    let file = open(&tree, "/a", CREATE).unwrap();
    at_once(tree.write(&file, 100, &caller())).unwrap();
    unlink(&tree, "/a").unwrap();
    assert_eq!(size(&tree, "/a"), Err(FsError::NoEntry));
    assert_eq!(at_once(tree.write(&file, 100, &caller())), Ok(100));
    assert_eq!(file.position(), 200);
    file.seek(0);
    let other = open(&tree, "/a", CREATE).unwrap();
    assert_ne!(other.place(), file.place());
    assert_eq!(at_once(tree.read(&file, 1000)), Ok(200));
    assert_eq!(used(&tree), free - 2);
    at_once(tree.close(file)).unwrap();
    assert_eq!(used(&tree), free - 1);
    at_once(tree.close(other)).unwrap();
    assert_eq!(used(&tree), free - 1);
}

#[test]
fn links_are_followed_and_loops_are_found() {
    let tree = tree();
    mkdir(&tree, "/d").unwrap();
    write(&tree, "/d/a", 7);
    symlink(&tree, "/d/near", "a");
    symlink(&tree, "/far", "/d/../d/near");
    symlink(&tree, "/dir", "d");
    symlink(&tree, "/x", "y");
    symlink(&tree, "/y", "x");
    assert_eq!(size(&tree, "/far"), Ok(7));
    assert_eq!(size(&tree, "/dir/near"), Ok(7));
    assert_eq!(size(&tree, "/x"), Err(FsError::LinkLoop));
    assert_eq!(size(&tree, "/d/a/b"), Err(FsError::NotDirectory));
    let (_, link) = at_once(tree.stat(b"/dir", false)).unwrap();
    assert_eq!(link.kind, FileKind::Symlink);
    assert_eq!(at_once(tree.read_link(b"/dir")), Ok(b"d".to_vec()));
    let no_follow = OpenFlags {
        no_follow: true,
        ..READ
    };
    assert_eq!(
        open(&tree, "/far", no_follow).err(),
        Some(FsError::LinkLoop)
    );
    assert_eq!(size(&tree, &"n".repeat(256)), Err(FsError::NameTooLong));
    assert_eq!(size(&tree, &"n/".repeat(2048)), Err(FsError::NameTooLong));
}

#[test]
fn a_mount_hides_what_was_there() {
    let tree = tree();
    mkdir(&tree, "/m").unwrap();
    write(&tree, "/m/below", 1);
    write(&tree, "/top", 4);
    at_once(tree.mount(disk(), DEVICE, b"/m")).unwrap();
    assert_eq!(size(&tree, "/m/below"), Err(FsError::NoEntry));
    write(&tree, "/m/a", 2);
    assert_eq!(size(&tree, "/m/../top"), Ok(4));
    let rename = |from: &[u8], to: &[u8]| at_once(tree.rename(from, to, &caller()));
    assert_eq!(rename(b"/m/a", b"/a"), Err(FsError::OtherDevice));
    assert_eq!(rename(b"/m", b"/n"), Err(FsError::Busy));
    assert_eq!(
        at_once(tree.remove_dir(b"/m", &caller())),
        Err(FsError::Busy)
    );
    assert_eq!(
        at_once(tree.mount(disk(), DEVICE, b"/top")),
        Err(FsError::NotDirectory)
    );
    at_once(tree.drop_caches(3)).unwrap();
    assert_eq!(size(&tree, "/m/a"), Ok(2));
}

#[test]
fn a_directory_does_not_move_into_itself() {
    let tree = tree();
    mkdir(&tree, "/d").unwrap();
    mkdir(&tree, "/d/e").unwrap();
    let rename = |from: &[u8], to: &[u8]| at_once(tree.rename(from, to, &caller()));
    assert_eq!(rename(b"/d", b"/d/e/f"), Err(FsError::BadCall));
    assert_eq!(rename(b"/d/e", b"/d"), Err(FsError::NotEmpty));
    rename(b"/d/e", b"/e").unwrap();
    rename(b"/d", b"/e/d").unwrap();
    assert!(at_once(tree.stat(b"/e/d/..", true)).is_ok());
    assert_eq!(
        at_once(tree.stat(b"/e/d/..", true)).unwrap().0,
        at_once(tree.stat(b"/e", true)).unwrap().0
    );
}

/// A call on the tree; paths are of two names out of three.
#[derive(Clone, Debug)]
enum TreeCall {
    Create(usize),
    Mkdir(usize),
    Unlink(usize),
    Rmdir(usize),
    Link(usize, usize),
    Rename(usize, usize),
    Write(usize, u64),
    Truncate(usize, u64),
    DropCaches(u32),
}

const PATHS: [&str; 12] = [
    "/a", "/b", "/c", "/a/a", "/a/b", "/a/c", "/b/a", "/b/b", "/b/c", "/c/a", "/c/b", "/c/c",
];

fn steps() -> impl Strategy<Value = Vec<TreeCall>> {
    let path = || 0..PATHS.len();
    let step = prop_oneof![
        path().prop_map(TreeCall::Create),
        path().prop_map(TreeCall::Mkdir),
        path().prop_map(TreeCall::Unlink),
        path().prop_map(TreeCall::Rmdir),
        (path(), path()).prop_map(|(a, b)| TreeCall::Link(a, b)),
        (path(), path()).prop_map(|(a, b)| TreeCall::Rename(a, b)),
        (path(), 1..20_000_u64).prop_map(|(a, n)| TreeCall::Write(a, n)),
        (path(), 0..20_000_u64).prop_map(|(a, n)| TreeCall::Truncate(a, n)),
        (1..4_u32).prop_map(TreeCall::DropCaches),
    ];
    prop::collection::vec(step, 1..60)
}

/// What a name stands for in the model: a directory, or a file by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Node {
    Directory,
    File(usize),
}

/// The tree as names and lengths alone.
#[derive(Default)]
struct Model {
    names: BTreeMap<String, Node>,
    sizes: Vec<u64>,
}

impl Model {
    /// Whether the directory of a path is there.
    fn has_parent(&self, path: &str) -> bool {
        match path[1..].find('/') {
            Some(end) => self.names.get(&path[..=end]) == Some(&Node::Directory),
            None => true,
        }
    }

    fn is_empty(&self, path: &str) -> bool {
        let below = format!("{path}/");
        !self.names.keys().any(|name| name.starts_with(&below))
    }

    fn add(&mut self, path: &str, node: Node) -> bool {
        let may = self.has_parent(path) && !self.names.contains_key(path);
        if may {
            self.names.insert(path.to_owned(), node);
        }
        may
    }

    /// Removes a name of that kind.
    fn remove(&mut self, path: &str, is_dir: bool) -> bool {
        let found = self.names.get(path).copied();
        let is_this = found.is_some_and(|node| (node == Node::Directory) == is_dir);
        let may = is_this && self.is_empty(path);
        if may {
            self.names.remove(path);
        }
        may
    }

    fn file(&self, path: &str) -> Option<usize> {
        match self.names.get(path) {
            Some(&Node::File(number)) => Some(number),
            _ => None,
        }
    }

    fn link(&mut self, from: &str, to: &str) -> bool {
        let file = self.file(from);
        file.is_some_and(|number| self.add(to, Node::File(number)))
    }

    fn rename(&mut self, from: &str, to: &str) -> bool {
        let (Some(&node), true) = (self.names.get(from), self.has_parent(to)) else {
            return false;
        };
        let over = self.names.get(to).copied();
        if over == Some(node) && node != Node::Directory || from == to {
            return true;
        }
        let is_dir = node == Node::Directory;
        if is_dir && to.starts_with(&format!("{from}/")) || from.starts_with(&format!("{to}/")) {
            return false;
        }
        if over.is_some_and(|over| (over == Node::Directory) != is_dir) || !self.is_empty(to) {
            return false;
        }
        let below = format!("{from}/");
        let moved: Vec<(String, Node)> = (self.names.iter())
            .filter(|(name, _)| **name == *from || name.starts_with(&below))
            .map(|(name, &node)| (name.clone(), node))
            .collect();
        for (name, node) in moved {
            self.names.remove(&name);
            self.names
                .insert(format!("{to}{}", &name[from.len()..]), node);
        }
        true
    }

    /// Takes a step; whether it can be.
    fn take(&mut self, step: &TreeCall) -> bool {
        match *step {
            TreeCall::Create(at) => {
                self.sizes.push(0);
                self.add(PATHS[at], Node::File(self.sizes.len() - 1))
            }
            TreeCall::Mkdir(at) => self.add(PATHS[at], Node::Directory),
            TreeCall::Unlink(at) => self.remove(PATHS[at], false),
            TreeCall::Rmdir(at) => self.remove(PATHS[at], true),
            TreeCall::Link(from, to) => self.link(PATHS[from], PATHS[to]),
            TreeCall::Rename(from, to) => self.rename(PATHS[from], PATHS[to]),
            TreeCall::Write(at, bytes) => self.resize(PATHS[at], |size| size.max(bytes)),
            TreeCall::Truncate(at, bytes) => self.resize(PATHS[at], |_| bytes),
            TreeCall::DropCaches(_) => true,
        }
    }

    fn resize(&mut self, path: &str, size: impl FnOnce(u64) -> u64) -> bool {
        let Some(file) = self.file(path) else {
            return false;
        };
        self.sizes[file] = size(self.sizes[file]);
        true
    }
}

fn take(tree: &Tree, step: &TreeCall) -> Result<(), FsError> {
    let path = |at: usize| PATHS[at].as_bytes();
    let caller = caller();
    match *step {
        TreeCall::Create(at) => {
            let exclusive = OpenFlags {
                exclusive: true,
                ..CREATE
            };
            let file = open(tree, PATHS[at], exclusive)?;
            at_once(tree.close(file))
        }
        TreeCall::Mkdir(at) => mkdir(tree, PATHS[at]),
        TreeCall::Unlink(at) => unlink(tree, PATHS[at]),
        TreeCall::Rmdir(at) => at_once(tree.remove_dir(path(at), &caller)),
        TreeCall::Link(from, to) => at_once(tree.link(path(from), path(to), &caller)),
        TreeCall::Rename(from, to) => at_once(tree.rename(path(from), path(to), &caller)),
        TreeCall::Write(at, bytes) => {
            let flags = OpenFlags {
                write: true,
                ..READ
            };
            let file = open(tree, PATHS[at], flags)?;
            let written = at_once(tree.write(&file, bytes, &caller));
            at_once(tree.close(file))?;
            written.map(|_| ())
        }
        TreeCall::Truncate(at, bytes) => at_once(tree.truncate(path(at), bytes, &caller)),
        TreeCall::DropCaches(what) => at_once(tree.drop_caches(what)),
    }
}

/// All names below a directory, as it lists them.
fn list(tree: &Tree, dir: &str, names: &mut BTreeMap<String, (FileKind, u64)>) {
    let open_dir = open(tree, dir, READ).unwrap();
    loop {
        let entries = at_once(tree.read_dir(&open_dir)).unwrap();
        if entries.is_empty() {
            break;
        }
        for entry in entries {
            let name = String::from_utf8(entry.name).unwrap();
            if [".", "..", "lost+found"].contains(&&*name) {
                continue;
            }
            let path = format!("{}/{name}", dir.trim_end_matches('/'));
            let (_, attributes) = at_once(tree.stat(path.as_bytes(), false)).unwrap();
            let is_dir = attributes.kind == FileKind::Directory;
            let size = if is_dir { 0 } else { attributes.size_bytes };
            names.insert(path.clone(), (attributes.kind, size));
            if is_dir {
                list(tree, &path, names);
            }
        }
    }
    at_once(tree.close(open_dir)).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn the_tree_is_as_the_model_says(steps in steps()) {
        let (tree, mut model) = (tree(), Model::default());
        for step in &steps {
            let taken = take(&tree, step);
            prop_assert_eq!(taken.is_ok(), model.take(step), "{:?}: {:?}", step, taken);
        }
        let mut names = BTreeMap::new();
        list(&tree, "/", &mut names);
        let expected: BTreeMap<String, (FileKind, u64)> = (model.names.iter())
            .map(|(name, node)| match *node {
                Node::Directory => (name.clone(), (FileKind::Directory, 0)),
                Node::File(file) => (name.clone(), (FileKind::Regular, model.sizes[file])),
            })
            .collect();
        prop_assert_eq!(names, expected);
        // With nothing open, only the root is kept.
        at_once(tree.drop_caches(3)).unwrap();
        prop_assert_eq!(tree.dentry_counts().cached, 1);
    }
}
