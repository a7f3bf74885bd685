//! Schedulers' runs, and which of them had the same work in each repeat.

use blklab_stats::Results;

/// A scheduler with its repeats of the job.
#[derive(Clone, Debug)]
pub struct SchedulerRuns {
    /// The label: the scheduler's name, with its tunables if these differ.
    pub name: String,
    /// One run for each repeat. The n-th run of every scheduler should have the same
    /// seed, so that they are compared pair by pair.
    pub runs: Vec<Results>,
}

impl SchedulerRuns {
    /// Returns the seed of each repeat.
    pub(crate) fn seeds(&self) -> Vec<u64> {
        self.runs.iter().map(|run| run.seed).collect()
    }
}

/// Groups of schedulers whose n-th repeats had the same seed and work. Their differences
/// are computed pair by pair, which removes the variance that the seed causes in both.
pub(crate) struct Pairs(Vec<usize>);

impl Pairs {
    /// Groups schedulers by their keys: equal keys mean the same work, and a scheduler
    /// without a key is a group of its own.
    pub(crate) fn by_key<K: PartialEq>(keys: &[Option<K>]) -> Pairs {
        let class = |(index, key): (usize, &Option<K>)| match key {
            Some(_) => keys.iter().position(|k| k == key).unwrap_or(index),
            None => index,
        };
        Pairs(keys.iter().enumerate().map(class).collect())
    }

    /// Returns whether two schedulers are compared pair by pair.
    pub(crate) fn are(&self, one: usize, other: usize) -> bool {
        self.0[one] == self.0[other]
    }

    /// Returns whether all schedulers are in one group.
    pub(crate) fn are_all_paired(&self) -> bool {
        self.0.windows(2).all(|w| w[0] == w[1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_the_same_key_is_paired() {
        let pairs = Pairs::by_key(&[Some("a"), None, Some("b"), Some("a"), None]);
        assert!(pairs.are(0, 3) && pairs.are(1, 1));
        for (one, other) in [(0, 1), (0, 2), (1, 4), (2, 3)] {
            assert!(!pairs.are(one, other), "{one} {other}");
        }
        assert!(!pairs.are_all_paired());
        assert!(Pairs::by_key(&[Some(1), Some(1)]).are_all_paired());
    }
}
