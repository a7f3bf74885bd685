//! Memory nodes: how much of each is free, which pages programs have, and how much of it
//! may be dirty.

use std::task::Waker;

/// Watermarks of free pages, for memory in one zone (`/proc/zoneinfo`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watermarks {
    /// Below it, a task that needs a page reclaims itself.
    pub min: u64,
    /// Below it, `kswapd` is woken.
    pub low: u64,
    /// From it on, `kswapd` sleeps.
    pub high: u64,
}

impl Watermarks {
    /// The watermarks of a machine with `pages` pages. `min_free_kbytes` is four times the
    /// square root of the memory in KiB, from 128 KiB to 256 MiB;
    /// `watermark_scale_factor` is the default of 0.1 %.
    pub fn of(pages: u64) -> Watermarks {
        let min_free_kib = pages.saturating_mul(4 * 16).isqrt().clamp(128, 262_144);
        let min = min_free_kib / 4;
        let step = (min / 4).max(pages / 1000);
        Watermarks {
            min,
            low: min + step,
            high: min + 2 * step,
        }
    }
}

/// Pages of memory, by the node that they are on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodePages(Vec<u64>);

impl NodePages {
    /// How many there are.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    pub(super) fn add(&mut self, node: u8, pages: u64) {
        let node = usize::from(node);
        if self.0.len() <= node {
            self.0.resize(node + 1, 0);
        }
        self.0[node] += pages;
    }

    /// How many there are on each node.
    pub(super) fn by_node(&self) -> impl Iterator<Item = (u8, u64)> {
        (0..).zip(self.0.iter().copied())
    }

    /// Takes this many out, of each node in the proportion of what it has. `None` if there are
    /// fewer.
    pub fn split(&mut self, pages: u64) -> Option<NodePages> {
        let (mut left, mut total) = (pages, self.total());
        if pages > total {
            return None;
        }
        let mut taken = NodePages::default();
        for (node, there) in (0..).zip(&mut self.0) {
            let share = match total {
                0 => 0,
                _ => (u128::from(*there) * u128::from(left)).div_ceil(u128::from(total)) as u64,
            };
            total -= *there;
            *there -= share;
            left -= share;
            taken.add(node, share);
        }
        Some(taken)
    }
}

/// A memory node of the machine, the memory of one socket (`pg_data_t`), in pages.
#[derive(Clone, Debug)]
pub(super) struct Node {
    /// All that it has.
    pub(super) pages: u64,
    /// They do not change.
    pub(super) marks: Watermarks,
    /// Those of the page cache and of programs.
    pub(super) used: u64,
    /// Those of programs among them.
    pub(super) taken: u64,
    /// Those of the page cache that are dirty, or under write-back.
    pub(super) dirty: u64,
    /// The waker of its `kswapd` while that sleeps.
    pub(super) kswapd: Option<Waker>,
    pub(super) is_kswapd_wanted: bool,
}

impl Node {
    /// One of so many nodes, none of whose pages is used, if `pages` are all nodes'.
    pub(super) fn one_of(nodes: u8, pages: u64) -> Node {
        let (marks, parts) = (Watermarks::of(pages), u64::from(nodes));
        Node {
            pages: pages / parts,
            marks: Watermarks {
                min: marks.min / parts,
                low: marks.low / parts,
                high: marks.high / parts,
            },
            used: 0,
            taken: 0,
            dirty: 0,
            kswapd: None,
            is_kswapd_wanted: false,
        }
    }

    /// Its free pages, if `others` of it are neither the page cache's nor programs'.
    #[inline]
    pub(super) fn free(&self, others: u64) -> u64 {
        self.pages.saturating_sub(self.used).saturating_sub(others)
    }

    /// Its pages that can be dirty (`node_dirtyable_memory`).
    pub(super) fn dirtyable(&self, others: u64) -> u64 {
        let free = self.free(others).saturating_sub(self.marks.high);
        free + self.used - self.taken
    }

    /// Has its `kswapd` run.
    pub(super) fn wake_kswapd(&mut self) {
        self.is_kswapd_wanted = true;
        if let Some(waker) = self.kswapd.take() {
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn of_a_node_its_part_can_be_dirty() {
        let mut node = Node::one_of(2, 2_000_000);
        let all = 2_000_000 - Watermarks::of(2_000_000).high;
        assert_eq!(node.dirtyable(0), all / 2);
        (node.used, node.taken) = (700_000, 300_000);
        assert_eq!(node.dirtyable(0), all / 2 - 300_000);
        // What is kept free counts no more when it is not free.
        node.used = 1_000_000;
        assert_eq!(node.dirtyable(0), 700_000);
    }

    proptest! {
        #[test]
        fn what_is_split_is_a_whole(counts in prop::collection::vec(0..1000_u64, 0..5), share in 0..=100_u64) {
            let held = NodePages(counts);
            let pages = held.total() * share / 100;
            let mut left = held.clone();
            prop_assert_eq!(left.split(held.total() + 1), None);
            let taken = left.split(pages).expect("there are this many");
            prop_assert_eq!((taken.total(), left.total()), (pages, held.total() - pages));
            for (node, there) in held.0.iter().enumerate() {
                prop_assert_eq!(taken.0[node] + left.0[node], *there);
            }
        }
    }
}
