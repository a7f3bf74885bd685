//! Random calls of a program on a mounted file system, through page cache, write-back and
//! little memory, beside a plain model of what they must do.

use std::collections::BTreeMap;
use std::process::Command;

use blklab_fs::{Caller, FileKind, FileSystem, Image, MountOptions, Volume};
use blklab_judges::have;
use blklab_workload::calls::CallList;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::{TOOLS, run_to_image};
use crate::caching::{Caching, FileSystemKind};
use crate::setup::Workload;

/// Directories below the root.
const DIRS: [&str; 3] = ["/d0", "/d1", "/a directory of a longer name"];

/// Names in the root and in directories.
const NAMES: [&str; 5] = ["f0", "f1", "F2.TXT", "a file of a longer name.text", "f4"];

/// Files that the program can have open at once.
const HANDLES: usize = 4;

/// What has a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Node {
    Directory,
    /// A file, by its place in [`Model::sizes`].
    File(usize),
    /// A symbolic link to the first name in the root.
    Link,
}

/// An open file, by its place in [`Model::sizes`].
#[derive(Clone, Copy)]
struct Handle {
    file: usize,
    is_direct: bool,
}

/// What there should be.
#[derive(Default)]
struct Model {
    has_links: bool,
    nodes: BTreeMap<String, Node>,
    sizes: Vec<u64>,
    open: [Option<Handle>; HANDLES],
    /// The calls so far.
    text: String,
}

/// A call that is drawn: which, on which names or handle, where, and how much.
type Draw = (u8, usize, usize, u64, u64);

fn draws(count: usize) -> impl Strategy<Value = Vec<Draw>> {
    let at = prop_oneof![0..9_000_u64, 0..300_000_u64, Just(270_336)];
    let bytes = prop_oneof![1..600_u64, 1..9_000_u64, 1..140_000_u64];
    let nth = 0..1_000_usize;
    prop::collection::vec((0..25_u8, nth.clone(), nth, at, bytes), count)
}

/// The n-th path of a file, counted round.
fn path(n: usize) -> String {
    let name = NAMES[n % NAMES.len()];
    match n / NAMES.len() % (DIRS.len() + 1) {
        0 => format!("/{name}"),
        dir => format!("{}/{name}", DIRS[dir - 1]),
    }
}

impl Model {
    fn new(kind: FileSystemKind) -> Model {
        Model {
            has_links: kind != FileSystemKind::Vfat,
            text: "# Random calls.\n[p]\n".to_string(),
            ..Model::default()
        }
    }

    fn node(&self, path: &str) -> Option<Node> {
        self.nodes.get(path).copied()
    }

    fn has_parent(&self, path: &str) -> bool {
        let (dir, _) = path.rsplit_once('/').expect("paths begin with /");
        dir.is_empty() || self.node(dir) == Some(Node::Directory)
    }

    fn is_empty_directory(&self, path: &str) -> bool {
        let below = format!("{path}/");
        !self.nodes.keys().any(|other| other.starts_with(&below))
    }

    /// Adds a call with what it must fail with.
    fn call(&mut self, call: &str, done: Result<(), &str>) {
        self.text += call;
        if let Err(error) = done {
            self.text += &format!(" = {error}");
        }
        self.text += "\n";
    }

    /// The same by way of io_uring.
    fn request(&mut self, call: &str, done: Result<(), &str>) {
        self.call(&format!("prepare r {call}"), done);
        self.call("io_uring_enter 1 r", Ok(()));
    }

    fn draw(&mut self, (which, n, m, at, bytes): Draw) {
        let handle = n % HANDLES;
        let (one, other) = (path(n), path(m));
        match which {
            0..=3 => self.open((handle, m % 4 == 0), &one),
            4 => self.close(handle),
            5..=8 => self.write(handle, (at, bytes), which == 8),
            9 | 10 => self.read(handle, (at, bytes)),
            11 => self.cut(handle, at),
            12 | 13 => self.unlink(&one),
            14 => self.rename(&one, &other),
            15 => self.rename(DIRS[n % DIRS.len()], DIRS[m % DIRS.len()]),
            16 => self.make_directory(DIRS[n % DIRS.len()]),
            17 => self.remove_directory(DIRS[n % DIRS.len()]),
            18 => self.link(&one, &other),
            19 if self.open[handle].is_some() => {
                let sync = ["fsync", "fdatasync"][m % 2];
                self.call(&format!("{sync} h{handle}"), Ok(()));
            }
            20 => self.call(["sync", "sleep 7s", "sleep 40s"][n % 3], Ok(())),
            21 => self.call(&format!("drop_caches {}", n % 3 + 1), Ok(())),
            22 => self.stat(&one),
            23 => self.map(handle, bytes),
            24 => self.truncate(&one, at),
            _ => {}
        }
    }

    fn open(&mut self, (handle, is_direct): (usize, bool), path: &str) {
        if self.open[handle].is_some() || self.node(path) == Some(Node::Link) {
            return;
        }
        let done = match (self.has_parent(path), self.node(path)) {
            (false, _) => Err("ENOENT"),
            (true, Some(Node::File(file))) => Ok(file),
            (true, _) => {
                self.sizes.push(0);
                let file = self.sizes.len() - 1;
                self.nodes.insert(path.to_string(), Node::File(file));
                Ok(file)
            }
        };
        self.open[handle] = done.ok().map(|file| Handle { file, is_direct });
        let direct = if is_direct { " direct" } else { "" };
        let call = format!("open h{handle} \"{path}\" read write create{direct}");
        self.call(&call, done.map(|_| ()));
    }

    fn close(&mut self, handle: usize) {
        let done = self.open[handle].take().map(|_| ());
        self.call(&format!("close h{handle}"), done.ok_or("EBADF"));
    }

    /// Whole sectors where the file is open with `O_DIRECT`.
    fn range(handle: Handle, (at, bytes): (u64, u64)) -> (u64, u64) {
        match handle.is_direct {
            true => (at / 512 * 512, bytes.next_multiple_of(512)),
            false => (at, bytes),
        }
    }

    fn read(&mut self, handle: usize, range: (u64, u64)) {
        if let Some(open) = self.open[handle] {
            let (at, bytes) = Model::range(open, range);
            self.call(&format!("pread h{handle} {bytes} {at}"), Ok(()));
        }
    }

    fn write(&mut self, handle: usize, range: (u64, u64), by_ring: bool) {
        let Some(open) = self.open[handle] else {
            return;
        };
        let (file, (at, bytes)) = (open.file, Model::range(open, range));
        self.sizes[file] = self.sizes[file].max(at + bytes);
        let call = format!("pwrite h{handle} {bytes} {at}");
        match by_ring {
            true => self.request(&call, Ok(())),
            false => self.call(&call, Ok(())),
        }
    }

    fn cut(&mut self, handle: usize, bytes: u64) {
        if let Some(Handle { file, .. }) = self.open[handle] {
            self.sizes[file] = bytes;
            self.call(&format!("ftruncate h{handle} {bytes}"), Ok(()));
        }
    }

    fn truncate(&mut self, path: &str, bytes: u64) {
        let done = match self.node(path) {
            Some(Node::Link) => return,
            Some(Node::File(file)) => {
                self.sizes[file] = bytes;
                Ok(())
            }
            _ => Err("ENOENT"),
        };
        self.call(&format!("truncate \"{path}\" {bytes}"), done);
    }

    fn unlink(&mut self, path: &str) {
        let done = self.nodes.remove(path).map(|_| ());
        self.call(&format!("unlink \"{path}\""), done.ok_or("ENOENT"));
    }

    fn rename(&mut self, from: &str, to: &str) {
        let (node, replaced) = (self.node(from), self.node(to));
        let is_directory = |node: Option<Node>| node == Some(Node::Directory);
        let done = match (node, replaced) {
            (None, _) => Err("ENOENT"),
            _ if !self.has_parent(to) => Err("ENOENT"),
            _ if from != to && is_directory(replaced) && !self.is_empty_directory(to) => {
                Err("ENOTEMPTY")
            }
            _ => Ok(()),
        };
        self.call(&format!("rename \"{from}\" \"{to}\""), done);
        // Two names of one file stay both.
        if done.is_err()
            || from == to
            || (node == replaced && !is_directory(node) && node != Some(Node::Link))
        {
            return;
        }
        let below = format!("{from}/");
        let is_moved = |path: &String| path == from || path.starts_with(&below);
        let moved: Vec<String> = self
            .nodes
            .keys()
            .filter(|path| is_moved(path))
            .cloned()
            .collect();
        for path in moved {
            let node = self.nodes.remove(&path).expect("a path of the model");
            self.nodes
                .insert(format!("{to}{}", &path[from.len()..]), node);
        }
    }

    fn make_directory(&mut self, path: &str) {
        let done = match self.node(path) {
            None => Ok(()),
            Some(_) => Err("EEXIST"),
        };
        self.nodes
            .entry(path.to_string())
            .or_insert(Node::Directory);
        self.request(&format!("mkdir \"{path}\""), done);
    }

    fn remove_directory(&mut self, path: &str) {
        let done = match self.node(path) {
            None => Err("ENOENT"),
            Some(_) if !self.is_empty_directory(path) => Err("ENOTEMPTY"),
            Some(_) => Ok(()),
        };
        if done.is_ok() {
            self.nodes.remove(path);
        }
        self.call(&format!("rmdir \"{path}\""), done);
    }

    /// A second name, or a symbolic link.
    fn link(&mut self, path: &str, new: &str) {
        let node = self.node(path);
        if node == Some(Node::Link) {
            return;
        }
        let symbolic = node.is_none() && path.starts_with("/f");
        let done = match node {
            None if !symbolic => Err("ENOENT"),
            _ if !self.has_parent(new) => Err("ENOENT"),
            _ if self.node(new).is_some() => Err("EEXIST"),
            _ if !self.has_links => Err("EPERM"),
            _ => Ok(()),
        };
        if done.is_ok() {
            self.nodes
                .insert(new.to_string(), node.unwrap_or(Node::Link));
        }
        match symbolic {
            true => self.call(&format!("symlink /f0 \"{new}\""), done),
            false => self.call(&format!("link \"{path}\" \"{new}\""), done),
        }
    }

    fn stat(&mut self, path: &str) {
        let done = self.node(path).map(|_| ());
        self.call(&format!("lstat \"{path}\""), done.ok_or("ENOENT"));
    }

    /// Memory that a file is mapped to is written, as far as the file reaches.
    fn map(&mut self, handle: usize, bytes: u64) {
        let Some(Handle { file, .. }) = self.open[handle] else {
            return;
        };
        let bytes = bytes.min(self.sizes[file]);
        if bytes > 0 {
            self.call(&format!("mmap h{handle} {bytes}"), Ok(()));
            self.call(&format!("mapped_write h{handle} {bytes} 0"), Ok(()));
            self.call(&format!("munmap h{handle}"), Ok(()));
        }
    }

    /// The tree as it should be: names, and how long what they name is.
    fn tree(&self) -> BTreeMap<String, (FileKind, u64)> {
        let found = self.nodes.iter().map(|(path, node)| {
            let what = match node {
                Node::Directory => (FileKind::Directory, 0),
                Node::File(file) => (FileKind::Regular, self.sizes[*file]),
                Node::Link => (FileKind::Symlink, "/f0".len() as u64),
            };
            (path.clone(), what)
        });
        found.collect()
    }
}

/// The tree that an image has.
fn tree(image: &std::fs::File) -> BTreeMap<String, (FileKind, u64)> {
    let image = Image::new(image.try_clone().expect("a file")).expect("an image");
    let options = MountOptions::default();
    let volume = Volume::open(image, &options, Caller::default()).expect("a file system");
    let mut found = BTreeMap::new();
    let top = volume.file_system().root();
    for (dir, ino) in volume.directories(top).expect("directories") {
        for entry in volume.list(ino).expect("names") {
            let dir = String::from_utf8_lossy(&dir);
            let path = format!("{dir}/{}", String::from_utf8_lossy(&entry.name));
            let path = format!("/{}", path.trim_start_matches('/'));
            let attributes = volume.attributes(entry.ino).expect("attributes");
            let bytes = match attributes.kind {
                FileKind::Directory => 0,
                _ => attributes.size_bytes,
            };
            found.insert(path, (attributes.kind, bytes));
        }
    }
    found.remove("/lost+found");
    found
}

/// How many calls; with `BLKLAB_IMAGE_STEPS` more than fit into `make test`.
fn calls() -> usize {
    let steps = std::env::var("BLKLAB_IMAGE_STEPS").ok();
    steps.and_then(|steps| steps.parse().ok()).unwrap_or(400)
}

/// Runs the calls and looks at what they left.
fn check(kind: FileSystemKind, draws: &[Draw]) -> Result<(), TestCaseError> {
    let mut model = Model::new(kind);
    draws.iter().for_each(|draw| model.draw(*draw));
    let list = CallList::parse("t.calls", &model.text).expect("a list");
    let mut caching = Caching {
        file_system: kind,
        ..Caching::default()
    };
    // So little that pages are evicted, and writers held back.
    caching.write_back.memory_pages = 4096;
    let image = tempfile::NamedTempFile::new().expect("a temporary file");
    let file = "t.calls";
    let workload = Workload::Calls { list: &list, file };
    if let Err(error) = run_to_image(workload, caching, image.as_file()) {
        let line = error
            .to_string()
            .split(':')
            .nth(1)
            .and_then(|line| line.parse().ok());
        let said = line.and_then(|line: usize| model.text.lines().nth(line - 1));
        return Err(TestCaseError::fail(format!(
            "{kind:?}: {error}: {said:?}\n{}",
            model.text
        )));
    }
    // XFS is in memory alone: its calls did what the list says of them.
    if kind == FileSystemKind::Xfs {
        return Ok(());
    }
    prop_assert_eq!(
        tree(image.as_file()),
        model.tree(),
        "{:?}\n{}",
        kind,
        model.text
    );
    for (_, tool, option) in TOOLS.iter().filter(|(of, ..)| *of == kind) {
        if have(tool) {
            let judged = Command::new(tool).arg(option).arg(image.path()).output();
            let judged = judged.expect("it runs");
            let said = String::from_utf8_lossy(&judged.stdout);
            prop_assert!(judged.status.success(), "{kind:?}: {said}\n{}", model.text);
        }
    }
    Ok(())
}

#[test]
fn random_calls_do_what_the_model_does_and_leave_a_sound_image() {
    let kinds = [
        FileSystemKind::Ext2,
        FileSystemKind::Vfat,
        FileSystemKind::Xfs,
    ];
    for kind in kinds {
        let mut runner = TestRunner::new(Config {
            cases: 3,
            max_shrink_iters: 300,
            failure_persistence: None,
            ..Config::default()
        });
        let done = runner.run(&draws(calls()), |draws| check(kind, &draws));
        done.unwrap_or_else(|error| panic!("{error}"));
    }
}
