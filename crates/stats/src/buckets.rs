//! fio's histograms of depths and batches.

use serde::{Deserialize, Serialize};

/// fio's depth histogram: shares over powers of two.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DepthBuckets {
    /// Counts at 0, 1, 2, 4, 8, 16, 32, 64 and more.
    pub counts: [u64; 8],
}

impl DepthBuckets {
    /// Counts `ios` I/Os submitted together at a depth.
    #[inline]
    pub fn record(&mut self, depth: u32, ios: u64) {
        let slot = match depth {
            0 => 0,
            d => (1 + (31 - d.leading_zeros()) as usize).min(7),
        };
        self.counts[slot] += ios;
    }

    /// Adds another's counts.
    pub fn merge(&mut self, other: &DepthBuckets) {
        self.counts
            .iter_mut()
            .zip(other.counts)
            .for_each(|(a, b)| *a += b);
    }
}

/// fio's batch histogram (`io_u_mark_submit`, `io_u_mark_complete`): its
/// borders are not those of the depths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BatchBuckets {
    /// Counts at 0, 1-4, 5-8, 9-16, 17-32, 33-64 and more.
    pub counts: [u64; 7],
}

impl BatchBuckets {
    /// Counts a batch of `size`.
    #[inline]
    pub fn record(&mut self, size: u32) {
        let slot = match size {
            0 => 0,
            1..=4 => 1,
            5..=8 => 2,
            9..=16 => 3,
            17..=32 => 4,
            33..=64 => 5,
            _ => 6,
        };
        self.counts[slot] += 1;
    }

    /// Adds another's counts.
    pub fn merge(&mut self, other: &BatchBuckets) {
        self.counts
            .iter_mut()
            .zip(other.counts)
            .for_each(|(a, b)| *a += b);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depths_fall_where_fio_puts_them() {
        let mut depths = DepthBuckets::default();
        [0, 1, 2, 3, 4, 31, 32, 63, 64, u32::MAX]
            .into_iter()
            .for_each(|d| depths.record(d, 1));
        assert_eq!(depths.counts, [1, 1, 2, 1, 0, 1, 2, 2]);
    }

    #[test]
    fn batches_fall_where_fio_puts_them() {
        let mut batches = BatchBuckets::default();
        [0, 1, 4, 5, 8, 9, 16, 17, 32, 33, 64, 65]
            .into_iter()
            .for_each(|n| batches.record(n));
        assert_eq!(batches.counts, [1, 2, 2, 2, 2, 2, 1]);
    }

    #[test]
    fn counts_of_two_add_up() {
        let (mut depths, mut batches) = (DepthBuckets::default(), BatchBuckets::default());
        depths.record(1, 3);
        batches.record(4);
        let (other_depths, other_batches) = (depths.clone(), batches.clone());
        depths.merge(&other_depths);
        batches.merge(&other_batches);
        assert_eq!((depths.counts[1], batches.counts[1]), (6, 2));
    }
}
