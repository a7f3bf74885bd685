//! Freeing names and inodes that nothing uses when memory is short (`super_cache_scan` of
//! `fs/super.c`).

use super::{InCore, Namespace};
use crate::error::FsError;
use crate::file_system::FileSystem;
use crate::reclaim::Pressure;
use crate::vfs::Host;
use crate::vfs::dentry::Place;

/// What was freed because memory was short.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShrinkCounts {
    /// Dentries.
    pub dentries: u64,
    /// Inodes.
    pub inodes: u64,
}

impl<H: Host, F: FileSystem> Namespace<H, F> {
    /// What was freed so far because memory was short.
    pub fn shrink_counts(&self) -> ShrinkCounts {
        self.shrunk.get()
    }

    /// Frees unused dentries and inodes as far as reclaim calls for.
    ///
    /// # Errors
    /// Those of the file system.
    pub async fn shrink(&self, pressure: Pressure) -> Result<(), FsError> {
        for priority in pressure.rounds() {
            let dentries = self.dentries.borrow().unused();
            let inodes = self.unused_inodes.borrow().len() as u64;
            let all = dentries + inodes;
            let freeable = pressure.freeable(all);
            let due = self.shrinker.borrow_mut().due(freeable, priority);
            if due > 0 {
                let share = |of: u64| (u128::from(due) * u128::from(of) / u128::from(all)) as u64;
                // A dentry holds its inode.
                self.prune_dentries(share(dentries) + 1).await?;
                self.prune_inodes(share(inodes) + 1).await?;
            }
        }
        Ok(())
    }

    async fn prune_dentries(&self, most: u64) -> Result<(), FsError> {
        let before = self.dentries.borrow().counts().cached;
        let released = self.dentries.borrow_mut().prune(most);
        let freed = before - self.dentries.borrow().counts().cached;
        let shrunk = self.shrunk.get();
        self.shrunk.set(ShrinkCounts {
            dentries: shrunk.dentries + freed,
            ..shrunk
        });
        self.release_all(released).await
    }

    /// Looks at unused inodes, the one that is unused for longest first. Those with cached
    /// pages or changes stay (`inode_lru_isolate`).
    async fn prune_inodes(&self, most: u64) -> Result<(), FsError> {
        for _ in 0..most {
            let Some(place) = self.unused_inodes.borrow_mut().pop_front() else {
                break;
            };
            let unused = {
                let mut inodes = self.inodes.borrow_mut();
                let inode = inodes.get_mut(&place).filter(|inode| inode.is_listed);
                inode.and_then(|inode| {
                    inode.is_listed = false;
                    (inode.users == 0).then_some(inode.data)
                })
            };
            let Some(data) = unused else { continue };
            let has_pages = data.is_some_and(|data| self.vfs.cached_pages(data) > 0);
            if has_pages || self.fs(place).is_dirty(place.ino) {
                self.list_unused(place);
                continue;
            }
            self.evict(place).await?;
            let shrunk = self.shrunk.get();
            self.shrunk.set(ShrinkCounts {
                inodes: shrunk.inodes + 1,
                ..shrunk
            });
        }
        Ok(())
    }

    /// Notes that nothing uses an inode (`inode_add_lru`).
    pub(super) fn list_unused(&self, place: Place) {
        let mut inodes = self.inodes.borrow_mut();
        let listed = inodes
            .get_mut(&place)
            .map(|InCore { is_listed, .. }| is_listed);
        if let Some(is_listed) = listed
            && !std::mem::replace(is_listed, true)
        {
            self.unused_inodes.borrow_mut().push_back(place);
        }
    }
}
