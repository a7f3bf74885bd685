//! The dentry cache: names that were looked up, whether they exist or not (`fs/dcache.c`).
//!
//! Child dentries, open files and mounts hold references to a dentry. One without
//! references stays cached on an LRU list. Pruning starts at the oldest, and passes over
//! once those that were used again.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::file_system::Ino;

/// Which inode it is, of all mounted file systems (`st_dev`, `st_ino`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The mount, counted from 0, the root's.
    pub mount: u32,
    /// The inode's number there.
    pub ino: Ino,
}

/// Identifies a dentry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct DentryId(u32);

/// Counts of lookups of names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DentryCounts {
    /// Names that were looked up, one for each part of a path.
    pub lookups: u64,
    /// Lookups that found a cached dentry.
    pub hits: u64,
    /// Lookups that found a negative dentry.
    pub negative_hits: u64,
    /// Cached dentries.
    pub cached: u64,
    /// Cached negative dentries, whose names do not exist.
    pub negative: u64,
}

#[derive(Debug)]
struct Dentry {
    parent: Option<DentryId>,
    key: Vec<u8>,
    /// The inode of the name; `None` if the dentry is negative.
    place: Option<Place>,
    /// References: of its children, open files, mounts and path walks (`d_lockref`).
    users: u32,
    /// Whether lookups find it.
    is_hashed: bool,
    /// Whether it is on the LRU list.
    is_listed: bool,
    /// Whether it was used since it was put on the list (`DCACHE_REFERENCED`).
    is_referenced: bool,
}

/// The dentry cache.
#[derive(Debug, Default)]
pub(super) struct DentryCache {
    dentries: Vec<Option<Dentry>>,
    free: Vec<u32>,
    by_name: BTreeMap<(DentryId, Vec<u8>), DentryId>,
    /// The LRU list, the oldest first. Some of its dentries have references again.
    unused: VecDeque<DentryId>,
    counts: DentryCounts,
}

impl DentryCache {
    fn dentry(&self, id: DentryId) -> &Dentry {
        let dentry = self.dentries[id.0 as usize].as_ref();
        dentry.expect("a dentry with a reference exists")
    }

    fn dentry_mut(&mut self, id: DentryId) -> &mut Dentry {
        let dentry = self.dentries[id.0 as usize].as_mut();
        dentry.expect("a dentry with a reference exists")
    }

    pub(super) fn counts(&self) -> DentryCounts {
        self.counts
    }

    /// Adds a file system's root, with one reference.
    pub(super) fn add_root(&mut self, place: Place) -> DentryId {
        self.insert(None, Vec::new(), Some(place))
    }

    /// Adds a name that was looked up, with one reference.
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

    /// Looks a name up, which is counted. A dentry found gets a reference (`d_lookup`).
    pub(super) fn lookup(&mut self, parent: DentryId, key: &[u8]) -> Option<DentryId> {
        self.counts.lookups += 1;
        let found = self.find(parent, key)?;
        self.counts.hits += 1;
        self.counts.negative_hits += u64::from(self.place(found).is_none());
        Some(found)
    }

    /// Looks a name up again, which is not counted. A dentry found gets a reference.
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

    /// Whether it has more than one reference.
    pub(super) fn is_shared(&self, id: DentryId) -> bool {
        self.dentry(id).users > 1
    }

    /// Takes a reference (`dget`).
    pub(super) fn get(&mut self, id: DentryId) {
        self.dentry_mut(id).users += 1;
    }

    /// Drops a reference (`dput`). A dentry without references that lookups do not find is
    /// freed, which drops its reference to the parent. Returns the inodes of freed dentries.
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

    /// Frees a dentry without references. Returns its parent, which loses a reference.
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

    /// Lookups no longer find it (`d_drop`).
    pub(super) fn unhash(&mut self, id: DentryId) {
        let dentry = self.dentry_mut(id);
        if std::mem::replace(&mut dentry.is_hashed, false)
            && let Some(parent) = dentry.parent
        {
            let key = dentry.key.clone();
            self.by_name.remove(&(parent, key));
        }
    }

    /// Gives a negative dentry the inode that was created (`d_instantiate`).
    pub(super) fn make_positive(&mut self, id: DentryId, place: Place) {
        self.dentry_mut(id).place = Some(place);
        self.counts.negative -= 1;
    }

    /// The name was removed (`d_delete`): a dentry with one reference becomes negative and
    /// its inode is returned, another is no longer found by lookups.
    pub(super) fn make_negative(&mut self, id: DentryId) -> Option<Place> {
        if self.is_shared(id) {
            self.unhash(id);
            return None;
        }
        self.counts.negative += 1;
        self.dentry_mut(id).place.take()
    }

    /// Frees what is cached below an empty directory that goes, which else would hold it:
    /// names that do not exist (`shrink_dcache_parent`).
    pub(super) fn shrink_children(&mut self, dir: DentryId) {
        let names = self.by_name.range((dir, Vec::new())..);
        let children = names.take_while(|((parent, _), _)| *parent == dir);
        let unused: Vec<DentryId> = children
            .map(|(_, &child)| child)
            .filter(|&child| self.dentry(child).users == 0)
            .collect();
        for &child in &unused {
            self.dentry_mut(child).is_listed = false;
            self.remove(child, &mut Vec::new());
            self.dentry_mut(dir).users -= 1;
        }
        if !unused.is_empty() {
            let freed = BTreeSet::from_iter(unused);
            self.unused.retain(|id| !freed.contains(id));
        }
    }

    /// Gives a dentry the name of `over`, which lookups no longer find (`d_move`). Returns
    /// the old parent, which loses a reference.
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

    /// Frees up to `most` dentries of the LRU list, the oldest first; those used since they
    /// were put on the list are passed over once. Returns their inodes
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

    /// The length of the LRU list.
    pub(super) fn unused(&self) -> u64 {
        self.unused.len() as u64
    }
}
