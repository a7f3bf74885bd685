//! How far reclaim calls for other caches than that of pages to shrink (`do_shrink_slab` of
//! Linux 6.12's `mm/shrinker.c`).

use crate::reclaim::scan::PRIORITY_FIRST;

/// Objects that are looked at in one go; fewer wait for the next round, unless they are all
/// that there are (the `batch` of `super_cache_scan`).
const BATCH: u64 = 1024;

/// What of a cache is looked at for each page that is, in percent (`vfs_cache_pressure`).
pub(crate) const DEFAULT_PERCENT: u64 = 100;

/// Rounds of reclaim that caches have not been shrunk for yet, each on one memory node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pressure {
    /// By priority.
    rounds: [u32; PRIORITY_FIRST as usize + 1],
    nodes: u8,
}

impl Pressure {
    /// None yet on any of so many nodes.
    pub(crate) fn on_nodes(nodes: u8) -> Pressure {
        Pressure {
            nodes,
            ..Pressure::default()
        }
    }

    /// How many of these objects are on one node, over which they are spread evenly: no
    /// object has a node here.
    pub(crate) fn of_node(self, objects: u64) -> u64 {
        objects / u64::from(self.nodes.max(1))
    }

    pub(crate) fn add_round(&mut self, priority: u32) {
        let rounds = &mut self.rounds[priority as usize];
        *rounds = rounds.saturating_add(1);
    }

    /// The priority of each round, the least urgent first.
    pub(crate) fn rounds(self) -> impl Iterator<Item = u32> {
        let priorities = (0..=PRIORITY_FIRST).rev();
        priorities
            .flat_map(move |priority| (0..self.rounds[priority as usize]).map(move |_| priority))
    }
}

/// The state of a cache that is shrunk (`struct shrinker`).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Shrinker {
    /// Objects that earlier rounds were to look at and did not.
    deferred: u64,
}

impl Shrinker {
    /// How many of `freeable` unused objects a round looks at: twice the share of its pages
    /// that reclaim scans, in whole batches.
    pub(crate) fn due(&mut self, freeable: u64, priority: u32) -> u64 {
        if freeable == 0 {
            return 0;
        }
        let more = (freeable >> priority) * 2;
        let most = freeable * 2;
        let wanted = ((self.deferred >> priority) + more).min(most);
        let (mut due, mut left) = (0, wanted);
        while left >= BATCH || left >= freeable {
            due += left.min(BATCH);
            left -= left.min(BATCH);
        }
        self.deferred = (self.deferred + more).saturating_sub(due).min(most);
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_looked_at_in_batches_that_small_caches_wait_for() {
        let mut shrinker = Shrinker::default();
        assert_eq!(shrinker.due(0, 0), 0);
        // A 4096th of 100,000, twice, is less than a batch, and so are 20 of them.
        assert!((0..20).all(|_| shrinker.due(100_000, 12) == 0));
        // A 64th is three batches and a rest; of what was deferred a 64th is added.
        assert_eq!(shrinker.due(100_000, 6), 3072);
        // A cache below a batch goes all at once.
        assert_eq!(Shrinker::default().due(100, 1), 100);
        assert_eq!(Shrinker::default().due(100, 2), 0);
    }

    #[test]
    fn rounds_come_as_often_as_they_were_and_the_first_priority_first() {
        let mut pressure = Pressure::default();
        for priority in [12, 3, 12] {
            pressure.add_round(priority);
        }
        assert_eq!(Vec::from_iter(pressure.rounds()), [12, 12, 3]);
    }
}
