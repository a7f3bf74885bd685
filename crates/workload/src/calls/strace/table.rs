//! What a recorded program has open, and what must have been there before it.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::super::argument::{Bytes, Errno, OpenFlags, Path};
use super::super::call::Call;
use super::super::list::{Prepared, PreparedKind};

/// An open file. Descriptors that were duplicated are one.
#[derive(Clone, Debug)]
pub(super) struct OpenedFile {
    /// Its name in the list.
    pub(super) handle: String,
    pub(super) path: Vec<u8>,
    pub(super) position: u64,
    /// The parent opened it, and this process has not used it yet.
    pub(super) is_inherited: bool,
    flags: OpenFlags,
}

impl OpenedFile {
    pub(super) fn new(handle: String, path: Vec<u8>, flags: OpenFlags) -> OpenedFile {
        OpenedFile {
            handle,
            path,
            position: 0,
            is_inherited: false,
            flags,
        }
    }

    /// How it is opened once more: it is there, and keeps what it has.
    pub(super) fn reopen_flags(&self) -> OpenFlags {
        let (read, write) = (OpenFlags::READ, OpenFlags::WRITE);
        match (self.flags.has(read), self.flags.has(write)) {
            (true, true) => read.with(write),
            (false, true) => write,
            _ => read,
        }
    }
}

/// The descriptors of a process.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    /// By descriptor, the file's place, and whether `execve` closes it.
    descriptors: BTreeMap<i64, (usize, bool)>,
    files: Vec<Option<OpenedFile>>,
}

impl Table {
    /// That of a child: the same files.
    pub(super) fn inherited(&self) -> Table {
        let mut child = self.clone();
        for file in child.files.iter_mut().flatten() {
            file.is_inherited = true;
        }
        child
    }

    /// A name in the list for what is opened as `fd`, which no open file has.
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

    pub(super) fn duplicate(&mut self, from: i64, to: i64, closes: bool) {
        if let Some(&(place, _)) = self.descriptors.get(&from) {
            self.descriptors.insert(to, (place, closes));
        }
    }

    /// Closes a descriptor. Returns the file if it was its last one.
    pub(super) fn remove(&mut self, fd: i64) -> Option<OpenedFile> {
        let (place, _) = self.descriptors.remove(&fd)?;
        let is_used = self.descriptors.values().any(|(other, _)| *other == place);
        match is_used {
            true => None,
            false => self.files[place].take(),
        }
    }

    /// The descriptors that `execve` closes.
    pub(super) fn closed_by_exec(&self) -> Vec<i64> {
        let closed = self.descriptors.iter().filter(|(_, (_, closes))| *closes);
        closed.map(|(&fd, _)| fd).collect()
    }
}

/// What a path had before the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// A file of that many bytes.
    File(u64),
    /// A directory.
    Directory,
    /// Nothing.
    Nothing,
}

/// Paths by what they had before, and what the program made there.
#[derive(Debug, Default)]
pub(super) struct Files {
    before: BTreeMap<Rc<[u8]>, Known>,
    /// Where the program has a file of its own, its length.
    own: BTreeMap<Rc<[u8]>, u64>,
}

impl Files {
    /// What a path had before, if nobody has said so yet.
    fn had(&mut self, path: &[u8], known: Known) {
        if !self.own.contains_key(path) && !self.before.contains_key(path) {
            self.before.insert(path.into(), known);
        }
    }

    /// The program has a file of its own there, or what was there is changed. The
    /// directory that it is in was there.
    fn makes(&mut self, path: &[u8], bytes: u64) {
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
        // With `O_CREAT` it is not told whether it was there.
        match flags.has(OpenFlags::CREATE) && !self.before.contains_key(path) {
            true => self.makes(path, 0),
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

    /// Something was read up to that byte.
    pub(super) fn read(&mut self, path: &[u8], end: u64) {
        if self.own.get(path).is_some_and(|own| *own >= end) {
            return;
        }
        if let Some(Known::File(bytes)) = self.before.get_mut(path) {
            *bytes = (*bytes).max(end);
        }
    }

    /// Something was written up to that byte.
    pub(super) fn written(&mut self, path: &[u8], end: u64) {
        let own = self.own.entry(path.into()).or_default();
        *own = (*own).max(end);
    }

    /// What the kernel tells of a path.
    pub(super) fn is_so(&mut self, path: &[u8], known: Option<Known>) {
        let Some(known) = known else { return };
        if self.own.contains_key(path) {
            return;
        }
        match (self.before.get_mut(path), known) {
            (Some(Known::File(bytes)), Known::File(told)) => *bytes = (*bytes).max(told),
            (Some(before @ Known::File(_)), Known::Directory) => *before = known,
            (Some(_), _) => {}
            (None, known) => {
                self.before.insert(path.into(), known);
            }
        }
    }

    /// A call on paths, and what it tells.
    pub(super) fn called(&mut self, call: &Call, told: Option<Known>, error: Option<Errno>) {
        let done = error.is_none();
        match call {
            Call::Stat { path } | Call::Lstat { path } if done => {
                self.had(&path.0, told.unwrap_or(Known::File(0)));
                self.is_so(&path.0, told);
            }
            Call::Mkdir { path } if done => self.makes(&path.0, 0),
            Call::Mkdir { path } if error.map(Errno::name) == Some("EEXIST") => {
                self.had(&path.0, Known::Directory);
            }
            Call::Symlink { path, .. } if done => self.makes(&path.0, 0),
            Call::Rmdir { path } if done => self.had(&path.0, Known::Directory),
            Call::Unlink { path } if done => {
                self.had(&path.0, Known::File(0));
                self.own.insert(path.0.clone().into(), 0);
            }
            Call::Truncate { path, .. } if done => self.had(&path.0, Known::File(0)),
            Call::Rename { from, to } if done => {
                self.had(&from.0, Known::File(0));
                let bytes = self.own.get(&from.0[..]).copied().unwrap_or(0);
                self.makes(&to.0, bytes);
            }
            Call::Link { path, new } if done => {
                self.had(&path.0, Known::File(0));
                self.makes(&new.0, 0);
            }
            Call::Stat { path } | Call::Lstat { path } | Call::Unlink { path } => {
                self.failed(&path.0, error);
            }
            _ => {}
        }
    }

    /// What has to be there before the first call. What other paths lie below is a
    /// directory.
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
