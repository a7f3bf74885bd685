//! Completions that a layer over a drive holds back until their time.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use blklab_blk::Nanos;

use crate::Completion;

/// Completions that the host has yet to see, in the order of their times; those of one time in
/// the order in which they were inserted.
#[derive(Debug, Default)]
pub(crate) struct PendingCompletions {
    by_time: BTreeMap<(Nanos, u64), Completion>,
    inserted: u64,
}

impl PendingCompletions {
    pub(crate) fn insert(&mut self, completion: Completion) {
        self.by_time
            .insert((completion.at, self.inserted), completion);
        self.inserted += 1;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_time.is_empty()
    }

    /// The time of the first one, [`Nanos::MAX`] where there is none.
    pub(crate) fn next_event(&self) -> Nanos {
        let first = self.by_time.first_key_value();
        first.map_or(Nanos::MAX, |(&(at, _), _)| at)
    }

    /// Moves those whose time has come to `done`.
    pub(crate) fn take_until(&mut self, now: Nanos, done: &mut Vec<Completion>) {
        while let Some(first) = self.by_time.first_entry()
            && first.key().0 <= now
        {
            done.push(first.remove());
        }
    }

    pub(crate) fn clear(&mut self) {
        self.by_time.clear();
    }
}
