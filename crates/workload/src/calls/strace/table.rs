//! The open files of a recorded program, and the files that must have existed before it.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::super::argument::{Bytes, Errno, OpenFlags, Path};
use super::super::call::Call;
use super::super::list::{Prepared, PreparedKind};

/// An open file; duplicated descriptors share one.
#[derive(Clone, Debug)]
pub(super) struct OpenedFile {
    /// The file's name in the list.
    pub(super) handle: String,
    /// The path by which it was opened.
    pub(super) path: Vec<u8>,
    /// Its path now; `None` if it was removed.
    pub(super) path_now: Option<Vec<u8>>,
    pub(super) position: u64,
    /// Whether the parent opened the file and this process has not used it yet.
    pub(super) is_inherited: bool,
    flags: OpenFlags,
}

impl OpenedFile {
    pub(super) fn new(handle: String, path: Vec<u8>, flags: OpenFlags) -> OpenedFile {
        OpenedFile {
            handle,
            path_now: Some(path.clone()),
            path,
            position: 0,
            is_inherited: false,
            flags,
        }
    }

    /// Returns the flags to open the file again, which must exist and keep its data.
    pub(super) fn reopen_flags(&self) -> OpenFlags {
        let (read, write) = (OpenFlags::READ, OpenFlags::WRITE);
        let flags = match (self.flags.has(read), self.flags.has(write)) {
            (true, true) => read.with(write),
            (false, true) => write,
            _ => read,
        };
        match self.flags.has(OpenFlags::APPEND) {
            true => flags.with(OpenFlags::APPEND),
            false => flags,
        }
    }
}

/// The descriptor table of a process.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    /// By descriptor, the index of the file and whether `execve` closes it.
    descriptors: BTreeMap<i64, (usize, bool)>,
    files: Vec<Option<OpenedFile>>,
}

impl Table {
    /// Returns a child's table, with the same files.
    pub(super) fn inherited(&self) -> Table {
        let mut child = self.clone();
        for file in child.files.iter_mut().flatten() {
            file.is_inherited = true;
        }
        child
    }

    /// Returns a name in the list for a file opened as `fd` that no open file has.
    pub(super) fn name_for(&self, fd: i64) -> String {
        let is_free = |name: &String| !self.files.iter().flatten().any(|file| file.handle == *name);
        let further = (2..).map(|n| format!("fd{fd}.{n}"));
        let mut names = std::iter::once(format!("fd{fd}")).chain(further);
        names.find(is_free).unwrap_or_default()
    }

    pub(super) fn insert(&mut self, fd: i64, file: OpenedFile, closes: bool) {
        let place = match self.files.iter().position(Option::is_none) {
            Some(place) => place,
            None => {
                self.files.push(None);
                self.files.len() - 1
            }
        };
        self.files[place] = Some(file);
        self.descriptors.insert(fd, (place, closes));
    }

    pub(super) fn find(&self, fd: i64) -> Option<&OpenedFile> {
        let (place, _) = self.descriptors.get(&fd)?;
        self.files[*place].as_ref()
    }

    pub(super) fn find_mut(&mut self, fd: i64) -> Option<&mut OpenedFile> {
        let (place, _) = self.descriptors.get(&fd)?;
        self.files[*place].as_mut()
    }

    /// Files at or below this path are at another one now, or nowhere.
    pub(super) fn moved(&mut self, from: &[u8], to: Option<&[u8]>) {
        for file in self.files.iter_mut().flatten() {
            let rest = file
                .path_now
                .as_deref()
                .and_then(|now| now.strip_prefix(from));
            let rest = rest.filter(|rest| rest.is_empty() || rest.starts_with(b"/"));
            if let Some(rest) = rest {
                file.path_now = to.map(|to| [to, rest].concat());
            }
        }
    }

    pub(super) fn duplicate(&mut self, from: i64, to: i64, closes: bool) {
        if let Some(&(place, _)) = self.descriptors.get(&from) {
            self.descriptors.insert(to, (place, closes));
        }
    }

    /// Closes a descriptor. Returns the file if this was its last descriptor.
    pub(super) fn remove(&mut self, fd: i64) -> Option<OpenedFile> {
        let (place, _) = self.descriptors.remove(&fd)?;
        let is_used = self.descriptors.values().any(|(other, _)| *other == place);
        match is_used {
            true => None,
            false => self.files[place].take(),
        }
    }

    /// Returns the descriptors that `execve` closes.
    pub(super) fn closed_by_exec(&self) -> Vec<i64> {
        let closed = self.descriptors.iter().filter(|(_, (_, closes))| *closes);
        closed.map(|(&fd, _)| fd).collect()
    }
}

/// The kind of file at a path before the program began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// A file of this length in bytes.
    File(u64),
    /// A directory.
    Directory,
    /// No file.
    Nothing,
}

/// The paths that the program used: the kind of file before it began, and the files that it made.
#[derive(Debug, Default)]
pub(super) struct Files {
    before: BTreeMap<Rc<[u8]>, Known>,
    /// The length of each file that the program itself created.
    own: BTreeMap<Rc<[u8]>, u64>,
}

impl Files {
    /// Records what was at a path before the program, unless that is known already.
    fn had(&mut self, path: &[u8], known: Known) {
        if !self.own.contains_key(path) && !self.before.contains_key(path) {
            self.before.insert(path.into(), known);
        }
    }

    /// Records that the program created or changed the file at `path`, whose directory therefore
    /// existed.
    fn record_creation(&mut self, path: &[u8], bytes: u64) {
        if let Some(slash) = path
            .iter()
            .rposition(|byte| *byte == b'/')
            .filter(|at| *at > 0)
        {
            self.had(&path[..slash], Known::Directory);
        }
        self.had(path, Known::Nothing);
        self.own.insert(path.into(), bytes);
    }

    pub(super) fn opened(&mut self, path: &[u8], flags: OpenFlags) {
        let known = match flags.has(OpenFlags::DIRECTORY) {
            true => Known::Directory,
            false => Known::File(0),
        };
        // A successful open with `O_CREAT` does not show whether the file existed.
        match flags.has(OpenFlags::CREATE) && !self.before.contains_key(path) {
            true => self.record_creation(path, 0),
            false => self.had(path, known),
        }
    }

    pub(super) fn failed(&mut self, path: &[u8], error: Option<Errno>) {
        match error.map(Errno::name) {
            Some("ENOENT") => self.had(path, Known::Nothing),
            Some("EEXIST") => self.had(path, Known::File(0)),
            _ => {}
        }
    }

    /// Records a read up to byte `end`.
    pub(super) fn read(&mut self, path: &[u8], end: u64) {
        if self.own.get(path).is_some_and(|own| *own >= end) {
            return;
        }
        if let Some(Known::File(bytes)) = self.before.get_mut(path) {
            *bytes = (*bytes).max(end);
        }
    }

    /// Records a write up to byte `end`.
    pub(super) fn written(&mut self, path: &[u8], end: u64) {
        let own = self.own.entry(path.into()).or_default();
        *own = (*own).max(end);
    }

    /// Records what the kernel reports about a path.
    pub(super) fn learn(&mut self, path: &[u8], known: Option<Known>) {
        let Some(known) = known else { return };
        if self.own.contains_key(path) {
            return;
        }
        match (self.before.get_mut(path), known) {
            (Some(Known::File(bytes)), Known::File(seen)) => *bytes = (*bytes).max(seen),
            (Some(before @ Known::File(_)), Known::Directory) => *before = known,
            (Some(_), _) => {}
            (None, known) => {
                self.before.insert(path.into(), known);
            }
        }
    }

    /// Records a call on paths and its result.
    pub(super) fn called(&mut self, call: &Call, known: Option<Known>, error: Option<Errno>) {
        let done = error.is_none();
        match call {
            Call::Stat { path } | Call::Lstat { path } if done => {
                self.had(&path.0, known.unwrap_or(Known::File(0)));
                self.learn(&path.0, known);
            }
            Call::Mkdir { path } if done => self.record_creation(&path.0, 0),
            Call::Mkdir { path } if error.map(Errno::name) == Some("EEXIST") => {
                self.had(&path.0, Known::Directory);
            }
            Call::Symlink { path, .. } if done => self.record_creation(&path.0, 0),
            Call::Rmdir { path } if done => self.had(&path.0, Known::Directory),
            Call::Unlink { path } if done => {
                self.had(&path.0, Known::File(0));
                self.own.insert(path.0.clone().into(), 0);
            }
            Call::Truncate { path, .. } if done => self.had(&path.0, Known::File(0)),
            Call::Rename { from, to } if done => {
                self.had(&from.0, Known::File(0));
                let bytes = self.own.get(&from.0[..]).copied().unwrap_or(0);
                self.record_creation(&to.0, bytes);
            }
            Call::Link { path, new } if done => {
                self.had(&path.0, Known::File(0));
                self.record_creation(&new.0, 0);
            }
            Call::Stat { path } | Call::Lstat { path } | Call::Unlink { path } => {
                self.failed(&path.0, error);
            }
            _ => {}
        }
    }

    /// Returns the files that have to exist before the first call. A path that contains other paths
    /// is a directory.
    pub(super) fn prepared(&self) -> Vec<Prepared> {
        let mut prepared = Vec::new();
        for (path, known) in &self.before {
            let below = [path, &b"/"[..]].concat();
            let mut behind = self.before.range(Rc::from(&below[..])..);
            let has_below = behind
                .next()
                .is_some_and(|(next, _)| next.starts_with(&below));
            let what = match known {
                Known::File(bytes) if !has_below => PreparedKind::File(Bytes(*bytes)),
                Known::File(_) | Known::Directory => PreparedKind::Directory,
                Known::Nothing => continue,
            };
            if path[..] != b"/"[..] {
                prepared.push(Prepared {
                    path: Path(path.to_vec()),
                    what,
                    line: 0,
                });
            }
        }
        prepared
    }
}
