//! Write-back: how dirty pages are counted, when they are written, and how tasks that
//! dirty pages are throttled to the speed of the device.
//!
//! The rules are those of Linux 6.12's `mm/page-writeback.c` and
//! `fs/fs-writeback.c`; times are in jiffies, rates in pages a second.

mod balance;
mod bandwidth;
mod counters;
mod device;
mod dirty_state;
mod domain;
mod flusher;
mod limit;
mod pages;
mod sync;
mod throttle;
mod work;

pub use balance::History;
pub use bandwidth::{Bandwidth, Counted};
pub use device::DeviceId;
pub use dirty_state::DirtyState;
pub use sync::SyncRange;
pub use throttle::{Dirtier, Throttle, ThrottleAction};
pub use work::Reason;

pub(crate) use device::WriteBack;
pub(crate) use domain::GroupMemory;
pub(crate) use limit::DirtyLimit;

/// Jiffies a second.
pub const HZ: u64 = blklab_blk::HZ as u64;

/// The settings of write-back (`/proc/sys/vm/dirty_*`), and the memory that their ratios
/// refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Dirty memory at which dirtiers are stopped, in bytes; 0 if the ratio holds.
    pub dirty_bytes: u64,
    /// The same in percent of the memory that can be dirty.
    pub dirty_ratio: u64,
    /// Dirty memory above which flushers write in the background, in bytes; 0 if the
    /// ratio holds.
    pub dirty_background_bytes: u64,
    /// The same in percent of the memory that can be dirty.
    pub dirty_background_ratio: u64,
    /// The age at which dirty pages are written, in 1/100 s.
    pub dirty_expire_centisecs: u64,
    /// The interval at which flushers look for old pages, in 1/100 s; 0 for never.
    pub dirty_writeback_centisecs: u64,
    /// Whether a periodic run goes on with any inode that an earlier run left unfinished,
    /// as Linux did before 6.10, and not with expired ones alone.
    pub finishes_unexpired: bool,
    /// Whether background write-back waits for the higher threshold.
    pub laptop_mode: bool,
    /// Memory in pages.
    pub memory_pages: u64,
    /// Pages that are free or hold file data: those that can be dirty.
    pub dirtyable_pages: u64,
    /// Inodes in use. A periodic run may write one page more for each.
    pub inodes_in_use: u64,
}

/// Both thresholds, with that of background write-back below the other.
const fn in_order(thresh: u64, background: u64) -> (u64, u64) {
    match background >= thresh {
        true => (thresh, thresh / 2),
        false => (thresh, background),
    }
}

impl Settings {
    /// Linux's defaults on a machine with this much memory.
    pub const fn with_memory(memory_pages: u64) -> Settings {
        Settings {
            dirty_bytes: 0,
            dirty_ratio: 20,
            dirty_background_bytes: 0,
            dirty_background_ratio: 10,
            dirty_expire_centisecs: 3000,
            dirty_writeback_centisecs: 500,
            finishes_unexpired: false,
            laptop_mode: false,
            memory_pages,
            dirtyable_pages: memory_pages,
            inodes_in_use: 0,
        }
    }

    /// The threshold at which dirtiers are stopped and that of background write-back, in
    /// pages (`domain_dirty_limits`).
    pub const fn thresholds(&self) -> (u64, u64) {
        let dirtyable = self.dirtyable_pages;
        let background = self.background_limit().of_system(dirtyable);
        in_order(self.dirty_limit().of_system(dirtyable), background)
    }

    /// At which dirtiers are stopped.
    pub(crate) const fn dirty_limit(&self) -> DirtyLimit {
        DirtyLimit {
            bytes: self.dirty_bytes,
            percent: self.dirty_ratio,
        }
    }

    /// Above which flushers write in the background.
    const fn background_limit(&self) -> DirtyLimit {
        DirtyLimit {
            bytes: self.dirty_background_bytes,
            percent: self.dirty_background_ratio,
        }
    }

    /// The thresholds of a memory cgroup of whose pages `available` can be dirty, where all of
    /// the system are `system`.
    pub(crate) fn thresholds_of_group(&self, available: u64, system: u64) -> (u64, u64) {
        let background = self.background_limit().of_group(available, system);
        in_order(self.dirty_limit().of_group(available, system), background)
    }

    /// The age at which dirty pages are written, in jiffies.
    pub(crate) const fn expire(&self) -> u64 {
        self.dirty_expire_centisecs * HZ / 100
    }

    /// The time between two periodic runs, in jiffies.
    pub(crate) const fn interval(&self) -> u64 {
        self.dirty_writeback_centisecs * HZ / 100
    }
}
