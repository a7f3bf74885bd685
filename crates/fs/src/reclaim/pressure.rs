//! How far reclaim calls for other caches than that of pages to shrink (`do_shrink_slab` of
//! Linux 6.12's `mm/shrinker.c`).

use crate::reclaim::scan::PRIORITY_FIRST;

/// Objects that are looked at in one go; fewer wait for the next round, unless they are all
/// that there are (the `batch` of `super_cache_scan`).
const BATCH: u64 = 1024;

/// The percentage that Linux begins with (`sysctl_vfs_cache_pressure`).
const DEFAULT_PERCENT: u64 = 100;

/// Rounds of reclaim that caches have not been shrunk for yet, each on one memory node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pressure {
    /// By priority.
    rounds: [u32; PRIORITY_FIRST as usize + 1],
    nodes: u8,
    /// How many objects count as freeable, in percent of those that are
    /// (`vfs_cache_pressure`).
    percent: u64,
}

impl Pressure {
    /// None yet on any of so many nodes.
    pub(crate) fn on_nodes(nodes: u8) -> Pressure {
        Pressure {
            nodes,
            percent: DEFAULT_PERCENT,
            ..Pressure::default()
        }
    }

    /// The same at another `vfs_cache_pressure`.
    pub(crate) fn at_percent(self, percent: u64) -> Pressure {
        Pressure { percent, ..self }
    }

    /// Takes the rounds out.
    pub(crate) fn take(&mut self) -> Pressure {
        let none = Pressure {
            rounds: Default::default(),
            ..*self
        };
        std::mem::replace(self, none)
    }

    /// How many of these unused objects a round on one node is told are freeable
    /// (`vfs_pressure_ratio`). They are spread over the nodes evenly: no object has a node here.
    pub(crate) fn freeable(self, objects: u64) -> u64 {
        let of_node = objects / u64::from(self.nodes.max(1));
        let freeable = u128::from(of_node) * u128::from(self.percent) / 100;
        freeable.try_into().unwrap_or(u64::MAX)
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
        let more = (freeable >> priority).saturating_mul(2);
        let most = freeable.saturating_mul(2);
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
    fn as_many_are_freeable_as_the_pressure_says() {
        let freeable = |percent| Pressure::on_nodes(2).at_percent(percent).freeable(2010);
        assert_eq!([0, 10, 100, 250].map(freeable), [0, 100, 1005, 2512]);
        assert_eq!(Pressure::on_nodes(1).freeable(7), 7);
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
