//! Schedulers' runs, and which of them met the same work repeat by repeat.

use blklab_stats::Results;

/// A scheduler and its repeats of the job.
#[derive(Clone, Debug)]
pub struct SchedulerRuns {
    /// What to call it: its name, and its tunables where those differ.
    pub name: String,
    /// One run a repeat. The n-th run of every scheduler should have the same
    /// seed: they are compared pair by pair then.
    pub runs: Vec<Results>,
}

impl SchedulerRuns {
    /// The seed of each repeat.
    pub(crate) fn seeds(&self) -> Vec<u64> {
        self.runs.iter().map(|run| run.seed).collect()
    }
}

/// Schedulers whose n-th repeats had the same seed and work: their differences
/// are taken pair by pair, which leaves out what the seed made of both.
pub(crate) struct Pairs(Vec<usize>);

impl Pairs {
    /// One key a scheduler; those with the same key met the same work, those
    /// without one only by themselves.
    pub(crate) fn by_key<K: PartialEq>(keys: &[Option<K>]) -> Pairs {
        let class = |(index, key): (usize, &Option<K>)| match key {
            Some(_) => keys.iter().position(|k| k == key).unwrap_or(index),
            None => index,
        };
        Pairs(keys.iter().enumerate().map(class).collect())
    }

    /// Whether these two are compared pair by pair.
    pub(crate) fn are(&self, one: usize, other: usize) -> bool {
        self.0[one] == self.0[other]
    }

    /// Whether any two are.
    pub(crate) fn are_all(&self) -> bool {
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
        assert!(!pairs.are_all());
        assert!(Pairs::by_key(&[Some(1), Some(1)]).are_all());
    }
}
