//! The memory that the page cache uses and its limits: the watermarks of a machine with
//! `kswapd`, the thread that keeps pages free, or a memory cgroup that stands for all.

use std::cell::RefCell;
use std::future::poll_fn;
use std::task::{Poll, Waker};

use crate::reclaim::scan::{CLUSTER_PAGES, Reclaimer, Scan};
use crate::reclaim::{Lru, Memory};
use crate::vfs::{Host, Vfs};

/// Reclaims before a page is charged in spite of the limit (`MAX_RECLAIM_RETRIES`).
const RECLAIMS_MAX: u32 = 16;

/// The memory cgroup whose pages are all pages.
const ROOT: u16 = 0;

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

    fn add(&mut self, node: u8, pages: u64) {
        let node = usize::from(node);
        if self.0.len() <= node {
            self.0.resize(node + 1, 0);
        }
        self.0[node] += pages;
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

/// A memory node of the machine, the memory of one socket.
#[derive(Clone, Copy, Debug)]
struct Node {
    pages: u64,
    /// They do not change.
    marks: Watermarks,
    used: u64,
}

/// The pages charged to the limit.
#[derive(Debug)]
pub(super) struct Charge {
    memory: Memory,
    /// A memory cgroup has one.
    nodes: Vec<Node>,
    /// The waker of a sleeping `kswapd`.
    kswapd: Option<Waker>,
    kswapd_wanted: bool,
}

impl Charge {
    pub(super) fn new(memory: Memory) -> Charge {
        let (pages, nodes) = match memory {
            Memory::Machine { pages, nodes } => (pages, nodes.max(1)),
            Memory::Cgroup { max_pages } => (max_pages, 1),
        };
        let (marks, parts) = (Watermarks::of(pages), u64::from(nodes));
        let node = Node {
            pages: pages / parts,
            marks: Watermarks {
                min: marks.min / parts,
                low: marks.low / parts,
                high: marks.high / parts,
            },
            used: 0,
        };
        Charge {
            memory,
            nodes: vec![node; usize::from(nodes)],
            kswapd: None,
            kswapd_wanted: false,
        }
    }

    pub(super) fn has_remote_nodes(&self) -> bool {
        self.nodes.len() > 1
    }

    pub(super) fn is_cgroup(&self) -> bool {
        matches!(self.memory, Memory::Cgroup { .. })
    }

    /// Charges pages, if there is room besides `others`, which are not the page cache's, and
    /// returns their node. Otherwise returns who must reclaim (`try_charge_memcg`,
    /// `__alloc_pages`).
    #[inline]
    fn charge(&mut self, pages: u64, others: u64, near: u8) -> Result<u8, Reclaimer> {
        let at = usize::from(near);
        let is_plenty =
            at < self.nodes.len() && self.free_of(at, others) >= self.nodes[at].marks.low + pages;
        if is_plenty && !self.is_cgroup() {
            self.nodes[at].used += pages;
            return Ok(near);
        }
        self.charge_when_short(pages, others, near)
    }

    #[inline(never)]
    fn charge_when_short(&mut self, pages: u64, others: u64, near: u8) -> Result<u8, Reclaimer> {
        if self.is_cgroup() {
            if pages > self.free_of(0, others) {
                return Err(Reclaimer::Cgroup);
            }
            self.nodes[0].used += pages;
            return Ok(0);
        }
        let node = match self.nearest_above(|marks| marks.low + pages, others, near) {
            Some(node) => Some(node),
            None => {
                self.wake_kswapd();
                self.nearest_above(|marks| marks.min + pages, others, near)
            }
        };
        let node = node.ok_or(Reclaimer::Direct)?;
        self.nodes[usize::from(node)].used += pages;
        Ok(node)
    }

    /// The first node with this many free pages, from the one that is near to the CPU on
    /// (`get_page_from_freelist` with the zonelist of a node).
    fn nearest_above(
        &self,
        wanted: impl Fn(&Watermarks) -> u64,
        others: u64,
        near: u8,
    ) -> Option<u8> {
        let nodes = self.nodes.len();
        let mut in_order = (0..nodes).map(|further| (usize::from(near) + further) % nodes);
        let found =
            in_order.find(|node| self.free_of(*node, others) >= wanted(&self.nodes[*node].marks));
        found.map(|node| node as u8)
    }

    /// A node's free pages, if `others` are spread over all nodes.
    fn free_of(&self, node: usize, others: u64) -> u64 {
        let Node { pages, used, .. } = self.nodes[node];
        let of_others = others / self.nodes.len() as u64;
        pages.saturating_sub(used).saturating_sub(of_others)
    }

    /// The pages that `kswapd` keeps free; none of a cgroup.
    fn kept_free(&self) -> u64 {
        match self.is_cgroup() {
            true => 0,
            false => self.nodes.iter().map(|node| node.marks.high).sum(),
        }
    }

    /// Charges pages of a node although there is no room.
    fn force(&mut self, pages: u64, node: u8) {
        self.nodes[usize::from(node)].used += pages;
    }

    pub(super) fn uncharge(&mut self, pages: u64, node: u8) {
        self.nodes[usize::from(node)].used -= pages;
    }

    fn wake_kswapd(&mut self) {
        self.kswapd_wanted = true;
        if let Some(waker) = self.kswapd.take() {
            waker.wake();
        }
    }

    /// Whether enough pages are free for `kswapd` to sleep.
    fn is_balanced(&self, others: u64) -> bool {
        let free = (0..self.nodes.len()).map(|node| self.free_of(node, others));
        self.is_cgroup() || free.sum::<u64>() >= self.kept_free()
    }
}

impl<H: Host> Vfs<H> {
    /// How many pages programs can still take, if all that are cached go: there is no swap.
    pub fn memory_left(&self) -> u64 {
        let Some(lru) = &self.lru else {
            return u64::MAX;
        };
        let lru = lru.borrow();
        let nodes = lru.charge.nodes.iter();
        let most: u64 = nodes.map(|node| node.pages - node.marks.min).sum();
        most.saturating_sub(self.write_back.borrow().taken_pages)
    }

    /// A program takes pages of memory, which are added to `held`, for which others may be
    /// evicted, and which hold no file's data: less can be dirty. Returns how many are of
    /// another node than its CPU.
    pub fn take_memory(&self, pages: u64, held: &mut NodePages) -> u64 {
        let (near, mut remote_pages) = (self.host().node(), 0);
        // Memory comes page by page, and what is short is reclaimed a cluster at a time.
        for taken in (0..pages).step_by(CLUSTER_PAGES as usize) {
            let cluster = (pages - taken).min(CLUSTER_PAGES);
            let node = self.charge_pages(cluster);
            held.add(node, cluster);
            remote_pages += if node == near { 0 } else { cluster };
        }
        self.write_back.borrow_mut().taken_pages += pages;
        remote_pages
    }

    /// It gives them back.
    pub fn give_memory(&self, pages: &NodePages) {
        if let Some(lru) = &self.lru {
            let charge = &mut lru.borrow_mut().charge;
            for (node, pages) in (0..).zip(&pages.0) {
                charge.uncharge(*pages, node);
            }
        }
        self.write_back.borrow_mut().taken_pages -= pages.total();
    }

    /// Charges a folio of `pages` pages, after reclaim if there is no room. Returns their
    /// node.
    pub(crate) fn charge_pages(&self, pages: u64) -> u8 {
        let near = self.host().node();
        let Some(lru) = &self.lru else { return near };
        match self.try_charge(lru, (pages, near)) {
            Ok(node) => node,
            Err(reclaimer) => self.charge_after_reclaim(lru, (pages, near), reclaimer),
        }
    }

    #[inline]
    fn try_charge(&self, lru: &RefCell<Lru>, (pages, near): (u64, u8)) -> Result<u8, Reclaimer> {
        let others = self.host().other_pages();
        lru.borrow_mut().charge.charge(pages, others, near)
    }

    #[inline(never)]
    fn charge_after_reclaim(
        &self,
        lru: &RefCell<Lru>,
        (pages, near): (u64, u8),
        mut reclaimer: Reclaimer,
    ) -> u8 {
        for _ in 0..RECLAIMS_MAX {
            self.try_to_free_pages((reclaimer, ROOT), pages);
            match self.try_charge(lru, (pages, near)) {
                Ok(node) => return node,
                Err(next) => reclaimer = next,
            }
        }
        self.try_to_free_pages((reclaimer, ROOT), pages);
        lru.borrow_mut().charge.force(pages, near);
        near
    }

    /// Gives back what was charged for a folio that was not added.
    pub(crate) fn uncharge_pages(&self, pages: u64, node: u8) {
        if let Some(lru) = &self.lru {
            lru.borrow_mut().charge.uncharge(pages, node);
        }
    }

    /// A run of the thread `kswapd`, which keeps pages free: sleeps until it is woken, and
    /// reclaims.
    pub async fn kswapd(&self) {
        poll_fn(|context| {
            let Some(lru) = &self.lru else {
                return Poll::Pending;
            };
            let charge = &mut lru.borrow_mut().charge;
            if std::mem::take(&mut charge.kswapd_wanted) {
                return Poll::Ready(());
            }
            charge.kswapd = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
        self.balance_pgdat();
    }

    /// Reclaims until the high watermark is reached, or nothing more can be freed.
    fn balance_pgdat(&self) {
        let is_balanced = || {
            let others = self.host().other_pages();
            let lru = self.lru.as_ref();
            lru.is_none_or(|lru| lru.borrow().charge.is_balanced(others))
        };
        let lru = self.lru.as_ref();
        let wanted = lru.map_or(0, |lru| lru.borrow().charge.kept_free());
        let mut scan = Scan::new((Reclaimer::Kswapd, ROOT), wanted.max(CLUSTER_PAGES));
        while scan.priority >= 1 && !is_balanced() {
            scan.scanned = 0;
            scan.reclaimed = 0;
            self.shrink_node(&mut scan);
            if scan.scanned < scan.wanted || scan.reclaimed == 0 {
                scan.priority -= 1;
            }
        }
        if scan.needs_flusher {
            self.start_flushers();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn pages_come_from_the_near_node_then_from_the_next() {
        let memory = Memory::Machine {
            pages: 2_000_000,
            nodes: 2,
        };
        let mut charge = Charge::new(memory);
        let low = Watermarks::of(2_000_000).low / 2;
        assert_eq!(charge.charge(1_000_000 - low, 0, 1), Ok(1));
        assert_eq!(charge.charge(1, 0, 1), Ok(0));
        assert!(!charge.kswapd_wanted);
        assert_eq!(charge.charge(999_999 - low, 0, 1), Ok(0));
        // Both are at the low watermark: the near one gives its last pages.
        assert_eq!(charge.charge(1, 0, 1), Ok(1));
        assert!(charge.kswapd_wanted && !charge.is_balanced(0));
        assert_eq!(charge.charge(low, 0, 1), Err(Reclaimer::Direct));
        charge.uncharge(500_000, 0);
        assert!(charge.is_balanced(0));
        assert_eq!(charge.charge(1, 0, 1), Ok(0));
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
