//! Names that were looked up, found or not (`fs/dcache.c`).
//!
//! A dentry is kept by those below it, by open files and by mounts. One that nobody
//! keeps stays for the next lookup, in a list that is emptied from its oldest end; who
//! was found again there has a second chance.

use std::collections::{BTreeMap, VecDeque};

use crate::file_system::Ino;

/// Which inode it is, of all mounted file systems (`st_dev`, `st_ino`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The mount, counted from 0, the root's.
    pub mount: u32,
    /// The inode's number there.
    pub ino: Ino,
}

/// Names a dentry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct DentryId(u32);

/// How lookups of names went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DentryCounts {
    /// Names that were looked up, the parts of a path each.
    pub lookups: u64,
    /// Those that were cached.
    pub hits: u64,
    /// Those of them that were known not to be there.
    pub negative_hits: u64,
    /// Cached names now.
    pub cached: u64,
    /// Those of them that are known not to be there.
    pub negative: u64,
}

#[derive(Debug)]
struct Dentry {
    parent: Option<DentryId>,
    key: Vec<u8>,
    /// What the name stands for; `None` where there is nothing.
    place: Option<Place>,
    /// Who keeps it: dentries below it, open files, mounts, and walks under way.
    users: u32,
    /// Whether lookups find it.
    is_hashed: bool,
    /// Whether it is in the list of unused ones, and was found there.
    is_listed: bool,
    is_referenced: bool,
}

/// The cache of names.
#[derive(Debug, Default)]
pub(super) struct DentryCache {
    dentries: Vec<Option<Dentry>>,
    free: Vec<u32>,
    by_name: BTreeMap<(DentryId, Vec<u8>), DentryId>,
    /// Unused ones, the oldest first. Some are used again, or gone.
    unused: VecDeque<DentryId>,
    counts: DentryCounts,
}

impl DentryCache {
    fn dentry(&self, id: DentryId) -> &Dentry {
        let dentry = self.dentries[id.0 as usize].as_ref();
        dentry.expect("a dentry is kept by those who name it")
    }

    fn dentry_mut(&mut self, id: DentryId) -> &mut Dentry {
        let dentry = self.dentries[id.0 as usize].as_mut();
        dentry.expect("a dentry is kept by those who name it")
    }

    pub(super) fn counts(&self) -> DentryCounts {
        self.counts
    }

    /// A file system's root, with one user.
    pub(super) fn add_root(&mut self, place: Place) -> DentryId {
        self.insert(None, Vec::new(), Some(place))
    }

    /// A name that was looked up, with one user.
    pub(super) fn add(&mut self, parent: DentryId, key: Vec<u8>, place: Option<Place>) -> DentryId {
        self.get(parent);
        let id = self.insert(Some(parent), key.clone(), place);
        self.by_name.insert((parent, key), id);
        id
    }

    fn insert(&mut self, parent: Option<DentryId>, key: Vec<u8>, place: Option<Place>) -> DentryId {
        let dentry = Dentry {
            parent,
            key,
            place,
            users: 1,
            is_hashed: parent.is_some(),
            is_listed: false,
            is_referenced: false,
        };
        self.counts.cached += 1;
        self.counts.negative += u64::from(place.is_none());
        match self.free.pop() {
            Some(free) => {
                self.dentries[free as usize] = Some(dentry);
                DentryId(free)
            }
            None => {
                self.dentries.push(Some(dentry));
                DentryId(self.dentries.len() as u32 - 1)
            }
        }
    }

    /// Looks for a name, and counts that; it has one user more.
    pub(super) fn lookup(&mut self, parent: DentryId, key: &[u8]) -> Option<DentryId> {
        self.counts.lookups += 1;
        let found = self.find(parent, key)?;
        self.counts.hits += 1;
        self.counts.negative_hits += u64::from(self.place(found).is_none());
        Some(found)
    }

    /// Looks for a name again, which counts as no lookup; it has one user more.
    pub(super) fn find(&mut self, parent: DentryId, key: &[u8]) -> Option<DentryId> {
        let found = *self.by_name.get(&(parent, key.to_vec()))?;
        self.get(found);
        Some(found)
    }

    pub(super) fn parent(&self, id: DentryId) -> Option<DentryId> {
        self.dentry(id).parent
    }

    pub(super) fn place(&self, id: DentryId) -> Option<Place> {
        self.dentry(id).place
    }

    /// Whether somebody besides one user keeps it.
    pub(super) fn is_shared(&self, id: DentryId) -> bool {
        self.dentry(id).users > 1
    }

    /// One user more.
    pub(super) fn get(&mut self, id: DentryId) {
        self.dentry_mut(id).users += 1;
    }

    /// One user less. One that nobody keeps and nobody can find is gone, with those
    /// above it that only it kept; returned are the inodes that lose a user.
    pub(super) fn put(&mut self, id: DentryId) -> Vec<Place> {
        let mut released = Vec::new();
        let mut next = Some(id);
        while let Some(id) = next.take() {
            let dentry = self.dentry_mut(id);
            dentry.users -= 1;
            if dentry.users > 0 {
                break;
            }
            if dentry.is_hashed || dentry.parent.is_none() {
                dentry.is_referenced = dentry.is_listed;
                if !std::mem::replace(&mut dentry.is_listed, true) {
                    self.unused.push_back(id);
                }
                break;
            }
            next = self.remove(id, &mut released);
        }
        released
    }

    /// Takes an unused dentry out; its parent loses a user and is returned.
    fn remove(&mut self, id: DentryId, released: &mut Vec<Place>) -> Option<DentryId> {
        self.unhash(id);
        let dentry = self.dentries[id.0 as usize].take()?;
        if dentry.is_listed {
            self.unused.retain(|&other| other != id);
        }
        self.free.push(id.0);
        self.counts.cached -= 1;
        self.counts.negative -= u64::from(dentry.place.is_none());
        released.extend(dentry.place);
        dentry.parent
    }

    /// Lookups do not find it any more (`d_drop`).
    pub(super) fn unhash(&mut self, id: DentryId) {
        let dentry = self.dentry_mut(id);
        if std::mem::replace(&mut dentry.is_hashed, false)
            && let Some(parent) = dentry.parent
        {
            let key = dentry.key.clone();
            self.by_name.remove(&(parent, key));
        }
    }

    /// Something was created by the name (`d_instantiate`).
    pub(super) fn make_positive(&mut self, id: DentryId, place: Place) {
        self.dentry_mut(id).place = Some(place);
        self.counts.negative -= 1;
    }

    /// What had the name lost it (`d_delete`): a name that nobody else uses is known
    /// not to be there, another is not found any more. Returns the inode that lost a
    /// user.
    pub(super) fn make_negative(&mut self, id: DentryId) -> Option<Place> {
        if self.is_shared(id) {
            self.unhash(id);
            return None;
        }
        self.counts.negative += 1;
        self.dentry_mut(id).place.take()
    }

    /// A dentry takes another's name, which is not found any more (`d_move`). Returns
    /// the parent that lost a user.
    pub(super) fn take_name(&mut self, id: DentryId, over: DentryId) -> Option<DentryId> {
        let (parent, key) = {
            let over = self.dentry(over);
            (over.parent, over.key.clone())
        };
        self.unhash(over);
        self.unhash(id);
        let dentry = self.dentry_mut(id);
        let old_parent = std::mem::replace(&mut dentry.parent, parent);
        dentry.key.clone_from(&key);
        dentry.is_hashed = true;
        if let Some(parent) = parent {
            self.get(parent);
            self.by_name.insert((parent, key), id);
        }
        old_parent
    }

    /// Drops up to `most` unused dentries, the oldest first; one that was found since
    /// it came into the list is passed over once. Returns the inodes that lose a user
    /// (`prune_dcache_sb`).
    pub(super) fn prune(&mut self, most: u64) -> Vec<Place> {
        let mut released = Vec::new();
        for _ in 0..most {
            let Some(id) = self.unused.pop_front() else {
                break;
            };
            let dentry = self.dentry_mut(id);
            dentry.is_listed = false;
            if dentry.users > 0 {
                continue;
            }
            if std::mem::take(&mut dentry.is_referenced) {
                dentry.is_listed = true;
                self.unused.push_back(id);
                continue;
            }
            if let Some(parent) = self.remove(id, &mut released) {
                released.extend(self.put(parent));
            }
        }
        released
    }

    /// How many are in the list of unused ones.
    pub(super) fn unused(&self) -> u64 {
        self.unused.len() as u64
    }
}
