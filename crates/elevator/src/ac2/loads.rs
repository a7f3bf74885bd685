//! How much each die has in the drive.

use super::tunables::MAX_DIES;

/// Levels of load that are told apart.
const LEVELS: usize = 32;

/// How much each die has in the drive, and the dies of each level.
pub(super) struct Loads {
    pub(super) load: [u32; MAX_DIES],
    levels: [u64; LEVELS],
}

impl Loads {
    pub(super) fn new() -> Loads {
        let mut levels = [0; LEVELS];
        levels[0] = u64::MAX;
        Loads {
            load: [0; MAX_DIES],
            levels,
        }
    }

    fn level(load: u32) -> usize {
        (load as usize).min(LEVELS - 1)
    }

    pub(super) fn set(&mut self, die: usize, load: u32) {
        let before = std::mem::replace(&mut self.load[die], load);
        self.levels[Self::level(before)] &= !(1 << die);
        self.levels[Self::level(load)] |= 1 << die;
    }

    /// Of `dies`, one of the least loaded: the first at or behind `from`.
    pub(super) fn least(&self, dies: u64, from: usize) -> Option<usize> {
        if dies == 0 {
            return None;
        }
        let level = self.levels.iter().find(|&&level| level & dies != 0)?;
        let set = level & dies;
        let ahead = set & (u64::MAX << from);
        let die = if ahead != 0 { ahead } else { set }.trailing_zeros();
        Some(die as usize)
    }
}
